/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the segments of a run: extents, estimated time and code.
 */
#include "runtime/exec/exec_run.h"

#include <math.h>

/* Estimates for LOOP kernels: the most iterations of a loop that can end early (`proceed`), and the
 * fewest lanes that an iteration is counted as. */
#define EXPECTED_ITERATIONS 1024
#define LOOP_LANES 64

static bool exec_kernel_has_scratch(const df_kernel *k)
{
    for (uint32_t i = 0; i < k->n_access; i++)
        if (k->access[i].kind == DF_ACCESS_SCRATCH) return true;
    return false;
}

/* Returns the work of s in elements. The bound of a loop that can end early says little, so it is
 * limited. An iteration over few lanes takes as long as one over several vectors. */
static double count_elements(const df_seg_run *s)
{
    const df_kernel *const k = s->kernel;
    int64_t n_red = df_max_i64(s->n_red, 1), n_inner = s->n_inner;
    if (k->mode == DF_MODE_LOOP && n_inner > 0) n_inner = df_max_i64(n_inner, LOOP_LANES);
    for (uint32_t i = 0; k->mode == DF_MODE_LOOP && i < k->n_ins; i++)
        if (k->ins[i].op == DF_K_proceed) n_red = df_min_i64(n_red, EXPECTED_ITERATIONS);
    return (double)s->n_outer * (double)n_inner * (double)n_red;
}

/* Whether the elements of two accesses may alternate in memory, as parts of complex numbers do. */
static bool are_twins(const df_kernel *k, uint32_t a, uint32_t b)
{
    return k->access[a].twin == b + 1 || k->access[b].twin == a + 1;
}

/* Whether an earlier access of the kernel loads the same elements, as far as buffers tell. */
static bool is_loaded_before(const df_kernel *k, const df_seg *seg, uint32_t access)
{
    for (uint32_t i = 0; i < access; i++)
        if (k->access[i].kind != DF_ACCESS_STORE && df_access_is_strided(k->access[i].kind) &&
            seg->bind[i].buf.i == seg->bind[access].buf.i && !are_twins(k, i, access))
            return true;
    return false;
}

/* Returns the bytes that s moves between memory and registers. What several accesses load of one
 * buffer is mostly the same, unless it alternates. */
static double count_bytes(const df_run *r, const df_seg *seg, const df_kernel *k)
{
    double sum = 0;
    for (uint32_t i = 0; i < k->n_access; i++)
        if (k->access[i].kind == DF_ACCESS_STORE || !is_loaded_before(k, seg, i))
            sum += (double)df_run_access_bytes(r, seg, k, i);
    return sum;
}

const df_code *df_run_code(const df_run *r, const df_seg *seg, const df_seg_run *s)
{
    if (!r->x->tiers || !r->plan->execs) return NULL;
    return df_tiers_code(r->x->tiers, r->plan, seg->kernel, s->elements, r->waiter);
}

static bool exec_buffer_is_empty(const df_run *r, df_buf buf)
{
    return buf.i == DF_NONE || df_run_slot(r, r->plan->bufs[buf.i].numel) == 0;
}

/* Returns true when all buffers that seg writes have no elements. It then needs not iterate over
 * its rows, of which there may be billions. A kernel that checks indices is never idle. */
static bool is_idle(const df_run *r, const df_seg *seg)
{
    const df_kernel *const k = df_seg_kernel(r->plan, seg);
    if (seg->kind == DF_SEG_ROUTINE)
        return seg->op != DF_OP_which && seg->op != DF_OP_call && !df_bind_is_scatter(seg) &&
               exec_buffer_is_empty(r, seg->c.buf);
    if (seg->kind == DF_SEG_MATMUL && !exec_buffer_is_empty(r, seg->c.buf)) return false;
    if (k && k->flags & DF_KERNEL_CHECKS) return false;
    for (uint32_t i = 0; k && i < k->n_access; i++)
        if (k->access[i].kind == DF_ACCESS_STORE && !exec_buffer_is_empty(r, seg->bind[i].buf))
            return false;
    return true;
}

static void measure_kernel(df_run *r, const df_seg *seg, df_seg_run *s)
{
    const df_kernel *const k = s->kernel = &r->plan->kernels[seg->kernel.i];
    s->n_outer = s->n_inner = s->n_red = 1;
    for (uint32_t j = 0; j < k->n_axes; j++) {
        const int64_t extent = df_run_slot(r, seg->extent[j]);
        switch ((df_role)k->role[j]) {
        case DF_AXIS_OUTER: s->n_outer *= extent; break;
        case DF_AXIS_RED: s->n_red *= extent; break;
        case DF_AXIS_INNER: s->n_inner = extent; break;
        }
    }
    if (s->is_idle) s->n_outer = 0;
    s->elements = count_elements(s);
    s->code = df_run_code(r, seg, s);
    s->code_ns = s->elements * (k->cost > 1 ? k->cost : 1) * (s->code ? DF_CODE_NS : DF_INTERP_NS);
    s->bytes = s->is_idle ? 0 : count_bytes(r, seg, k);
    s->ns = fmax(s->code_ns, s->bytes * DF_MEMORY_NS);
    s->per_thread = seg->kind == DF_SEG_KERNEL && exec_kernel_has_scratch(k);
    /* Code that is published later may have tiles, too. */
    const size_t tiles = df_kernel_has_tiles(k) ? DF_TILES_BYTES : 0;
    const size_t work = s->code ? 0 : df_interp_work_size(k);
    if (tiles > r->work_size) r->work_size = tiles;
    if (work > r->work_size) r->work_size = work;
}

void df_run_measure(df_run *r)
{
    for (uint32_t i = 0; i < r->plan->n_segs; i++) {
        const df_seg *const seg = &r->plan->segs[i];
        df_seg_run *const s = &r->segs[i];
        *s = (df_seg_run){ .riders = DF_NONE, .is_idle = is_idle(r, seg) };
        if (seg->kernel.i != DF_NONE) measure_kernel(r, seg, s);
    }
}
