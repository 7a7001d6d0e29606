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
#include <string.h>

/* Rows with gaps between them have lines at both ends of which only a part is written. Shorter rows
 * than this do not stream. */
#define LEAST_ROW_BYTES 1024
/* A launch streams when it reads at least this share of what it writes. */
#define LEAST_READ 0.5
/* A kernel that transposes, and reads no more than this share of what it writes, streams from
 * TILED_SHARE of the bytes on. It writes a few lines of each of many rows, one block after the
 * other, so ordinary stores wait for these lines to be read. One thread copies a transposed matrix
 * of f32 in
 *
 *   MB moved               2.1   8.4   12.8   25.7   33.6
 *   through caches, us      41   359   1144   2738   3000
 *   around them, us         53   263    642   1583   1849
 *
 * A kernel that adds such an operand to another reads that much more, and gains only where other
 * kernels do. */
#define MOST_READ 1.25
#define TILED_SHARE 0.25
enum { MOST_VECTOR_BYTES = 64 };

static const df_access *stream_access(const df_seg_run *s, uint32_t i)
{
    return &s->kernel->access[i];
}

static uint64_t stream_size(const df_seg_run *s, uint32_t i)
{
    return deft_dtype_size((deft_dtype)stream_access(s, i)->dtype);
}

/* The first access that may stream; DF_NONE: there is none. */
static uint32_t first_stream(const df_seg_run *s)
{
    for (uint32_t i = 0; i < s->kernel->n_access; i++)
        if (df_access_may_stream(s->kernel, i)) return i;
    return DF_NONE;
}

static double bytes_written(const df_run *r, const df_seg *seg, const df_seg_run *s)
{
    double written = 0;
    for (uint32_t i = 0; i < s->kernel->n_access; i++)
        if (stream_access(s, i)->kind == DF_ACCESS_STORE)
            written += (double)df_run_access_bytes(r, seg, s->kernel, i);
    return written;
}

/* Whether a segment of a launch that moves `bytes` streams, as far as sizes tell. */
static bool sizes_allow(const df_run *r, const df_seg *seg, const df_seg_run *s, double bytes)
{
    const uint32_t first = first_stream(s);
    if (first == DF_NONE) return false;
    const double row = (double)s->n_inner * (double)stream_size(s, first);
    if (row < fmin(LEAST_ROW_BYTES, r->x->stream_bytes)) return false;
    const double written = bytes_written(r, seg, s), read = s->bytes - written;
    const bool scatters = df_kernel_has_tiles(s->kernel) && read <= MOST_READ * written;
    const double least = r->x->stream_bytes * (scatters ? TILED_SHARE : 1);
    return bytes > least && read >= LEAST_READ * written;
}

void df_run_find_streams(df_run *r)
{
    for (uint32_t l = 0; l < r->plan->n_launches; l++) {
        const df_launch *const launch = &r->plan->launches[l];
        double bytes = 0;
        for (uint32_t i = launch->first; i < launch->first + launch->n; i++)
            bytes += r->segs[i].bytes;
        if (bytes <= r->x->stream_bytes * TILED_SHARE) continue;
        for (uint32_t i = launch->first; i < launch->first + launch->n; i++) {
            df_seg_run *const s = &r->segs[i];
            const df_seg *const seg = &r->plan->segs[i];
            if (seg->kind == DF_SEG_KERNEL && !s->is_idle)
                s->may_stream = sizes_allow(r, seg, s, bytes);
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

/* Whether access `other` is aligned to a vector of its elements, but to MOST_VECTOR_BYTES at most,
 * wherever access `first` is aligned to as many elements. Their dtypes may differ. A kernel that
 * stores elements of 4 or more bytes has no more lanes than such elements fit into a vector. */
static bool move_in_step(const df_seg_run *s, uint32_t first, uint32_t other)
{
    const uint32_t n = s->kernel->n_axes;
    const uint64_t of_first = stream_size(s, first), of_other = stream_size(s, other);
    const uint64_t largest = of_first > of_other ? of_first : of_other;
    const uint64_t lanes = MOST_VECTOR_BYTES / (largest < 4 ? 1 : of_other < 4 ? 4 : of_other);
    const uint64_t apart =
        (uintptr_t)s->ptr[first] / of_first - (uintptr_t)s->ptr[other] / of_other;
    return apart % lanes == 0 && !memcmp(&s->args.stride[first * n], &s->args.stride[other * n],
                                         n * sizeof *s->args.stride);
}

bool df_run_streams(const df_run *r, const df_seg *seg, const df_seg_run *s)
{
    const uint32_t first = first_stream(s);
    for (uint32_t i = 0; i < s->kernel->n_access; i++) {
        if (!df_access_may_stream(s->kernel, i)) continue;
        if ((uintptr_t)s->ptr[i] % stream_size(s, i) != 0) return false; /* memory of the caller */
        if (replaces_operand(r, seg, s, i)) return false;
        if (!move_in_step(s, first, i)) return false;
    }
    return true;
}
