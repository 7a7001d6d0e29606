/* SPDX-License-Identifier: Apache-2.0
 *
 * Which results are written around the caches (jit_llvm/rows/stream.c). This is the only place that
 * decides it. Bits do not depend on it.
 *
 * A result that is larger than the caches is not found there by its next reader in any case. When
 * it is written around them, its memory is not read first, and what the launch reads stays longer.
 * Two threads of Zen 4 with 32 MiB of cache compute o = k a + b over f32 in
 *
 *   MB moved               24    36    48    60    96   192
 *   through caches, us    206   403   598   858  1598  3147
 *   around them, us       282   421   373   507   942  2206
 *
 * A result that replaces an operand is not written around the caches: its lines have just been
 * read, and both kinds of stores then take the same time. Nor is one of a launch that mostly
 * writes, for which the table has 1027 and 1129 us in its last column.
 */
#include "runtime/exec/exec_run.h"

#include <math.h>

/* Rows with gaps between them have lines at both ends of which only a part is written. Shorter rows
 * than this do not stream. */
#define LEAST_ROW_BYTES 1024
/* A launch streams when it reads at least this share of what it writes. */
#define LEAST_READ 0.5

static const df_access *stream_access(const df_seg_run *s, uint32_t i)
{
    return &s->kernel->access[i];
}

static bool has_streams(const df_seg_run *s)
{
    for (uint32_t i = 0; i < s->kernel->n_access; i++)
        if (df_access_may_stream(s->kernel, i)) return true;
    return false;
}

static bool reads_enough(const df_run *r, const df_seg *seg, const df_seg_run *s)
{
    double written = 0;
    for (uint32_t i = 0; i < s->kernel->n_access; i++)
        if (stream_access(s, i)->kind == DF_ACCESS_STORE)
            written += (double)df_run_access_bytes(r, seg, s->kernel, i);
    return s->bytes - written >= LEAST_READ * written;
}

void df_run_find_streams(df_run *r)
{
    const double least = r->x->stream_bytes;
    for (uint32_t l = 0; l < r->plan->n_launches; l++) {
        const df_launch *const launch = &r->plan->launches[l];
        double bytes = 0;
        for (uint32_t i = launch->first; i < launch->first + launch->n; i++)
            bytes += r->segs[i].bytes;
        if (bytes <= least) continue;
        for (uint32_t i = launch->first; i < launch->first + launch->n; i++) {
            df_seg_run *const s = &r->segs[i];
            const df_seg *const seg = &r->plan->segs[i];
            if (seg->kind != DF_SEG_KERNEL || s->is_idle || !has_streams(s)) continue;
            const double row = (double)s->n_inner * (double)sizeof(float);
            s->may_stream = row >= fmin(LEAST_ROW_BYTES, least) && reads_enough(r, seg, s);
        }
    }
}

/* Whether the segment loads from the memory that access `store` writes. */
static bool replaces_operand(const df_run *r, const df_seg *seg, const df_seg_run *s,
                             uint32_t store)
{
    const char *const to = r->base[seg->bind[store].buf.i];
    for (uint32_t i = 0; i < s->kernel->n_access; i++) {
        const df_buf buf = seg->bind[i].buf;
        if (stream_access(s, i)->kind != DF_ACCESS_STORE && buf.i != DF_NONE &&
            r->base[buf.i] == to)
            return true;
    }
    return false;
}

/* Whether the addresses of the accesses a and b come to a vector's alignment after the same number
 * of elements, in every row. */
static bool move_in_step(const df_seg_run *s, uint32_t a, uint32_t b)
{
    const df_kernel *const k = s->kernel;
    if (((uintptr_t)s->ptr[a] | (uintptr_t)s->ptr[b]) % 64 != 0) return false;
    for (uint32_t x = 0; x < k->n_axes; x++)
        if (s->args.stride[a * k->n_axes + x] != s->args.stride[b * k->n_axes + x]) return false;
    return true;
}

bool df_run_streams(const df_run *r, const df_seg *seg, const df_seg_run *s)
{
    uint32_t first = DF_NONE;
    for (uint32_t i = 0; i < s->kernel->n_access; i++) {
        if (!df_access_may_stream(s->kernel, i)) continue;
        if (replaces_operand(r, seg, s, i)) return false;
        if (first == DF_NONE) first = i;
        if (first != i && !move_in_step(s, first, i)) return false;
    }
    return true;
}
