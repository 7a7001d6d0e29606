/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference interpreter. Every other path must give the bits that this one gives. It is meant
 * to be read next to fuser/plan.h (loop structure), ops/kops.def (meaning of kernel ops) and
 * base/limits.h (order of reductions).
 *
 * A call first divides its workspace (interp_prepare.c). Then the loops of the kernel's mode run
 * the steps of each (stage, level) over chunks of lanes:
 *
 *   MAP    lanes along INNER
 *   COL    lanes along INNER
 *   LOOP   lanes along INNER
 *   ROW    lanes along RED. Row-level values have one lane. Where the inner loop reads such a
 *          value, it is copied to all lanes of the chunk (splat)
 *
 * A ROW kernel may have several RED axes. A chunk then consists of runs along the last of them, and
 * is computed run by run.
 *
 * Two things must hold. Loads copy, because a later store of the same chunk may write the memory
 * that they read. A chunk of reduced elements begins at a multiple of DF_LANES within its block.
 */
#include "runtime/interp/interp_run.h"

/* ---- lanes ---- */

/* Copies lane by lane. Each copy has a constant size, so that it compiles to one move. Memory may
 * be misaligned. */
#define COPY_LANES(size, dst_step, src_step)                                                       \
    for (uint32_t i = 0; i < n; i++, dst += (dst_step), src += (src_step)) memcpy(dst, src, size)

static void interp_load_lanes(char *restrict dst, const char *restrict src, int64_t stride,
                              size_t size, uint32_t n)
{
    const int64_t by = stride * (int64_t)size;
    if (stride == 1)
        memcpy(dst, src, size * n);
    else if (stride == 0 && n > 0)
        df_splat(dst, src, size, n);
    else if (size == 1)
        COPY_LANES(1, 1, by);
    else if (size == 2)
        COPY_LANES(2, 2, by);
    else if (size == 4)
        COPY_LANES(4, 4, by);
    else
        COPY_LANES(8, 8, by);
}

static void interp_store_lanes(char *restrict dst, const char *restrict src, int64_t stride,
                               size_t size, uint32_t n)
{
    const int64_t by = stride * (int64_t)size;
    if (stride == 1)
        memcpy(dst, src, size * n);
    else if (size == 1)
        COPY_LANES(1, by, 1);
    else if (size == 2)
        COPY_LANES(2, by, 2);
    else if (size == 4)
        COPY_LANES(4, by, 4);
    else
        COPY_LANES(8, by, 8);
}

static void interp_gather_lanes(char *restrict dst, const char *table, const int64_t *at,
                                size_t size, uint32_t n)
{
    if (size == 1)
        for (uint32_t i = 0; i < n; i++) memcpy(dst + i, table + at[i], 1);
    else if (size == 2)
        for (uint32_t i = 0; i < n; i++) memcpy(dst + 2 * (size_t)i, table + at[i] * 2, 2);
    else if (size == 4)
        for (uint32_t i = 0; i < n; i++) memcpy(dst + 4 * (size_t)i, table + at[i] * 4, 4);
    else
        for (uint32_t i = 0; i < n; i++) memcpy(dst + 8 * (size_t)i, table + at[i] * 8, 8);
}

#undef COPY_LANES

/* Loads the lanes whose byte in `is` is not 0; the others are those of `other`. Only loaded lanes
 * have memory, so `src`, the address of lane 0, may lie outside of it. */
static void interp_load_lanes_if(char *dst, uintptr_t src, const char *is, const char *other,
                                 int64_t stride, size_t size, uint32_t n)
{
    const uintptr_t by = (uintptr_t)(stride * (int64_t)size);
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i + 1;
        while (end < n && is[end] == is[i]) end++;
        if (is[i])
            interp_load_lanes(dst + i * size, (const char *)(src + i * by), stride, size, end - i);
        else
            memcpy(dst + i * size, other + i * size, (end - i) * size);
        i = end;
    }
}

static void interp_check_lanes(const df_istep *s, uint32_t n, int64_t *fault)
{
    const int64_t *const at = (const int64_t *)(const void *)s->src[0];
    const int64_t *const extent = (const int64_t *)(const void *)s->src[1];
    int64_t *const dst = (int64_t *)(void *)s->dst;
    for (uint32_t i = 0; i < n; i++) {
        const int64_t place = at[i] < 0 ? at[i] + extent[i] : at[i];
        const bool good = 0 <= place && place < extent[i];
        dst[i] = good ? place : 0;
        if (!good) {
            fault[0] = (int64_t)s->imm + 1;
            fault[1] = place;
            fault[2] = extent[i];
        }
    }
}

/* Runs a loop op (carry, next, proceed) within an iteration. Returns false when the loop ends. */
static bool run_loop_step(const df_istep *s, uint32_t n)
{
    if (s->op == DF_K_next) memcpy(s->dst, s->src[1], n * (size_t)s->size);
    return s->op != DF_K_proceed || *s->src[0] != 0;
}

/* ---- steps ---- */

/* Runs the steps over n lanes. Lane 0 is position `at` of the vectorized axis. At the ELEM level it
 * is also reduced position red_at. */
static void run_steps(df_interp *x, df_range steps, int64_t at, int64_t red_at, uint32_t n)
{
    for (uint32_t i = steps.begin; i < steps.end; i++) {
        const df_istep *const s = &x->steps[i];
        switch ((df_kop_kind)s->kind) {
        case DF_KOP_map:
            if (s->op == DF_K_check)
                interp_check_lanes(s, n, x->a->fault);
            else
                s->fn(s->dst, s->src[0], s->src[1], s->src[2], n);
            break;
        case DF_KOP_leaf: { /* index; the others are uniform */
            int64_t *const dst = (int64_t *)(void *)s->dst;
            const int64_t first = x->a->base[s->imm] + x->off[s->imm] + at * s->by;
            for (uint32_t j = 0; j < n; j++) dst[j] = first + j * s->by;
            break;
        }
        case DF_KOP_memory: {
            char *const p = x->a->ptr[s->imm];
            const int64_t off = (x->off[s->imm] + at * s->by) * s->size;
            if (s->op == DF_K_load_if)
                interp_load_lanes_if(s->dst, (uintptr_t)p + (uintptr_t)off, s->src[0], s->src[1],
                                     s->by, s->size, n);
            else if (s->op == DF_K_load)
                interp_load_lanes(s->dst, p + off, s->by, s->size, n);
            else if (s->op == DF_K_load_at)
                interp_gather_lanes(s->dst, p, (const int64_t *)(const void *)s->src[0], s->size,
                                    n);
            else if (!x->no_store)
                interp_store_lanes(p + off, s->src[0], s->by, s->size, n);
            break;
        }
        case DF_KOP_reduce: {
            df_red *const r = &x->reds[s->red];
            if (r->operand)
                memcpy(r->operand + x->lane * (size_t)r->size, s->src[0], n * (size_t)r->size);
            else
                df_red_fold(x, r, s->src[0], red_at, n);
            break;
        }
        case DF_KOP_scan: df_red_scan(x, &x->reds[s->red], s->dst, s->src[0], red_at, n); break;
        case DF_KOP_loop:
            x->leaves = !run_loop_step(s, n);
            if (x->leaves) return;
            break;
        }
    }
}

static void run_row_steps(df_interp *x, df_range steps, int64_t at, uint32_t n)
{
    run_steps(x, steps, at, 0, n);
    if (x->k->mode != DF_MODE_ROW) return;
    for (uint32_t i = steps.begin; i < steps.end; i++) {
        const df_istep *const s = &x->steps[i];
        if (s->splat) df_splat(s->dst, s->dst, s->size, x->width);
    }
}

/* ---- loops ---- */

/* Turns a row-major position over the axes of `role` into one index per axis. */
static void split_index(const df_interp *x, df_role role, int64_t at, int64_t *index)
{
    for (uint32_t j = x->k->n_axes; j-- > 0;) {
        index[j] = 0;
        if (x->k->role[j] != role) continue;
        index[j] = at % x->a->extent[j];
        at /= x->a->extent[j];
    }
}

static void next_index(const df_interp *x, df_role role, int64_t *index)
{
    for (uint32_t j = x->k->n_axes; j-- > 0;) {
        if (x->k->role[j] != role) continue;
        if (++index[j] < x->a->extent[j]) return;
        index[j] = 0;
    }
}

/* Per access: out = from + index * stride, summed over the axes of role. from NULL: 0. */
static void set_offsets(const df_interp *x, df_role role, const int64_t *index, const int64_t *from,
                        int64_t *out)
{
    const uint32_t n_axes = x->k->n_axes;
    for (uint32_t i = 0; i < x->k->n_access; i++) {
        int64_t off = from ? from[i] : 0;
        for (uint32_t j = 0; j < n_axes; j++)
            if (x->k->role[j] == role) off += index[j] * x->stride[i * n_axes + j];
        out[i] = off;
    }
}

static void enter_row(df_interp *x, const int64_t *outer_index)
{
    set_offsets(x, DF_AXIS_OUTER, outer_index, NULL, x->outer);
    memcpy(x->off, x->outer, sizeof *x->off * x->k->n_access);
}

/* Runs a chunk of n reduced elements from r on, run by run. `index` is the position of the first
 * element; afterwards it is that of the element after the last. Operands of reductions are folded
 * when the chunk is complete, so that lane i is element r + i. */
static void run_chunk(df_interp *x, df_range steps, int64_t r, uint32_t n, int64_t *index)
{
    const int64_t length = x->a->extent[x->vec];
    for (x->lane = 0; x->lane < n;) {
        const int64_t at = index[x->vec];
        const uint32_t here = (uint32_t)df_min_i64(length - at, n - x->lane);
        index[x->vec] = 0;
        set_offsets(x, DF_AXIS_RED, index, x->outer, x->off);
        run_steps(x, steps, at, r + x->lane, here);
        x->lane += here;
        index[x->vec] = at + here - 1;
        next_index(x, DF_AXIS_RED, index);
    }
    for (uint32_t i = steps.begin; i < steps.end; i++) {
        df_red *const red = &x->reds[x->steps[i].red];
        if (x->steps[i].kind == DF_KOP_reduce) df_red_fold(x, red, red->operand, r, n);
    }
}

/* Runs blocks [b0, b1) of the reduced elements of stage s. In COL, for lanes [i0, i0 + n). */
static void run_blocks(df_interp *x, uint32_t s, int64_t b0, int64_t b1, int64_t i0, uint32_t n)
{
    const df_range steps = x->elem[s];
    int64_t index[DF_MAX_AXES];
    const bool along = x->k->mode == DF_MODE_ROW, runs = along && x->n_red > 1;
    if ((!along || runs) && b0 < b1) split_index(x, DF_AXIS_RED, b0 * DF_BLOCK, index);
    for (int64_t b = b0; b < b1; b++) {
        const int64_t first = b * DF_BLOCK, end = df_min_i64(first + DF_BLOCK, x->length);
        df_red_begin_block(x, steps, first, end - first, n);
        if (along) {
            for (int64_t r = first; r < end; r += DF_CHUNK) {
                const uint32_t n_here = (uint32_t)df_min_i64(DF_CHUNK, end - r);
                if (runs)
                    run_chunk(x, steps, r, n_here, index);
                else
                    run_steps(x, steps, r, r, n_here);
            }
        } else {
            for (int64_t r = first; r < end; r++) {
                set_offsets(x, DF_AXIS_RED, index, x->outer, x->off);
                run_steps(x, steps, i0, r, n);
                next_index(x, DF_AXIS_RED, index);
            }
        }
        df_red_end_block(x, steps, b, end - first, i0, n);
    }
    memcpy(x->off, x->outer, sizeof *x->off * x->k->n_access);
}

/* Runs all iterations of a LOOP for lanes [i0, i0 + n). During an iteration, the lanes of a `next`
 * hold the next value of its state. After the loop they hold the final value. */
static void run_iterations(df_interp *x, int64_t i0, uint32_t n)
{
    const df_range steps = x->elem[0];
    for (uint32_t i = steps.begin; i < steps.end; i++) {
        const df_istep *const s = &x->steps[i];
        if (s->op == DF_K_carry) memcpy(s->dst, s->src[0], n * (size_t)s->size);
    }
    x->leaves = false;
    for (int64_t r = 0; r < x->length; r++) {
        run_steps(x, steps, i0, r, n);
        if (x->leaves) break;
        for (uint32_t i = steps.begin; i < steps.end; i++) {
            const df_istep *const s = &x->steps[i];
            if (s->op == DF_K_next) memcpy(s->state, s->dst, n * (size_t)s->size);
        }
        for (uint32_t i = 0; i < x->k->n_access; i++)
            x->off[i] += x->stride[i * x->k->n_axes + (uint32_t)x->vec - 1];
    }
    for (uint32_t i = steps.begin; i < steps.end; i++) {
        const df_istep *const s = &x->steps[i];
        if (s->op == DF_K_next) memcpy(s->dst, s->state, n * (size_t)s->size);
    }
    memcpy(x->off, x->outer, sizeof *x->off * x->k->n_access);
}

/* Runs all stages for lanes [i0, i0 + n); in ROW, for the current row. */
static void run_lanes(df_interp *x, int64_t i0, uint32_t n)
{
    if (x->k->mode == DF_MODE_MAP) {
        run_steps(x, x->elem[0], i0, 0, n);
        return;
    }
    for (uint32_t s = 0; s < x->k->n_stages; s++) {
        run_row_steps(x, x->row[s], i0, n);
        if (x->elem[s].begin == x->elem[s].end) continue;
        if (x->k->mode == DF_MODE_LOOP) {
            run_iterations(x, i0, n);
            continue;
        }
        run_blocks(x, s, 0, x->n_blocks, i0, n);
        df_red_end_stage(x, x->elem[s], n);
    }
}

void df_interp_main(const df_kernel *k, void *work, const df_kargs *a, int64_t o0, int64_t o1,
                    int64_t i0, int64_t i1)
{
    df_interp x;
    int64_t outer[DF_MAX_AXES];
    if (o0 >= o1 || i0 >= i1) return;
    df_interp_prepare(&x, DF_PASS_MAIN, k, work, a, i0, i1);
    split_index(&x, DF_AXIS_OUTER, o0, outer);
    for (int64_t o = o0; o < o1; o++) {
        enter_row(&x, outer);
        if (k->mode == DF_MODE_ROW)
            run_lanes(&x, 0, 1);
        else
            for (int64_t i = i0; i < i1; i += DF_CHUNK)
                run_lanes(&x, i, (uint32_t)df_min_i64(DF_CHUNK, i1 - i));
        next_index(&x, DF_AXIS_OUTER, outer);
    }
}

void df_interp_part(const df_kernel *k, void *work, const df_kargs *a, int64_t o, int64_t b0,
                    int64_t b1)
{
    df_interp x;
    int64_t outer[DF_MAX_AXES];
    df_interp_prepare(&x, DF_PASS_PART, k, work, a, 0, DF_CHUNK);
    split_index(&x, DF_AXIS_OUTER, o, outer);
    enter_row(&x, outer);
    const int64_t n_inner = k->mode == DF_MODE_ROW ? 1 : x.n_inner;
    for (int64_t i = 0; i < n_inner; i += DF_CHUNK) {
        const uint32_t n = (uint32_t)df_min_i64(DF_CHUNK, n_inner - i);
        x.no_store = true;
        run_row_steps(&x, x.row[0], i, n);
        x.no_store = false;
        run_blocks(&x, 0, b0, b1, i, n);
    }
}

void df_interp_fin(const df_kernel *k, void *work, const df_kargs *a, int64_t o, int64_t i0,
                   int64_t i1)
{
    df_interp x;
    int64_t outer[DF_MAX_AXES];
    df_interp_prepare(&x, DF_PASS_FIN, k, work, a, i0, i1);
    split_index(&x, DF_AXIS_OUTER, o, outer);
    enter_row(&x, outer);
    for (int64_t i = i0; i < i1; i += DF_CHUNK) {
        const uint32_t n = (uint32_t)df_min_i64(DF_CHUNK, i1 - i);
        run_row_steps(&x, x.row[0], i, n);
        for (uint32_t j = 0; j < x.n_reds; j++) df_red_join_partial(&x, &x.reds[j], i, n);
        for (uint32_t s = 1; s < k->n_stages; s++) run_row_steps(&x, x.row[s], i, n);
    }
}
