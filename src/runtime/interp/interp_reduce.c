/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of reductions, as base/limits.h defines it.
 *
 * In ROW the accumulators of a reduction are side by side. Lane i of a chunk goes to accumulator i
 * mod DF_LANES, because chunks begin at multiples of DF_LANES within their block. In COL each
 * accumulator is a vector. Accumulators without elements are left out of the fold; to fold an
 * identity would change no bit.
 *
 * For argmin and argmax one accumulator keeps the best value and its
 * index, because the result does not depend on the order.
 */
#include "runtime/interp/interp_run.h"

#include "base/bits.h"

static size_t row_stride(const df_interp *x, const df_red *r)
{
    return df_red_lanes(x->k) * r->size;
}

void df_red_begin_block(df_interp *x, df_range steps, int64_t first, int64_t n_elements, uint32_t n)
{
    const uint32_t n_acc = (uint32_t)df_min_i64(n_elements, DF_LANES);
    for (uint32_t i = steps.begin; i < steps.end; i++) {
        if (x->steps[i].kind != DF_KOP_reduce) continue;
        df_red *const r = &x->reds[x->steps[i].red];
        if (df_is_arg(r->op)) {
            if (x->pass == DF_PASS_PART || first == 0)
                for (uint32_t j = 0; j < n; j++) r->index[j] = -1;
        } else if (x->k->mode == DF_MODE_ROW) {
            df_splat_bits(r->acc, r->identity, r->size, n_acc);
        } else {
            for (uint32_t j = 0; j < n_acc; j++)
                df_splat_bits(r->acc + j * row_stride(x, r), r->identity, r->size, n);
        }
    }
}

static void fold_arg(df_red *r, uint32_t lane, const char *value, int64_t index)
{
    char *const best = r->acc + lane * (size_t)r->size;
    if (r->index[lane] >= 0 && !r->before(value, best)) return;
    memcpy(best, value, r->size);
    r->index[lane] = index;
}

void df_red_fold(df_interp *x, df_red *r, const char *v, int64_t at, uint32_t n)
{
    const bool along = x->k->mode == DF_MODE_ROW;
    if (df_is_arg(r->op)) {
        for (uint32_t i = 0; i < n; i++)
            fold_arg(r, along ? 0 : i, v + i * (size_t)r->size, along ? at + i : at);
    } else if (along) {
        r->fold_row(r->acc, v, n);
    } else {
        r->fold(r->acc + (size_t)(at % DF_LANES) * row_stride(x, r), v, n);
    }
}

void df_red_scan(df_interp *x, df_red *r, char *dst, const char *v, int64_t at, uint32_t n)
{
    if (x->k->mode == DF_MODE_ROW) {
        r->scan(dst, r->acc, v, n, at == 0);
        return;
    }
    if (at == 0)
        memcpy(r->acc, v, r->size * (size_t)n);
    else
        r->fold(r->acc, v, n);
    memcpy(dst, r->acc, r->size * (size_t)n);
}

/* Folds the upper half of the accumulators into the lower half, until accumulator 0 holds the
 * block. n_acc accumulators have elements. */
static void fold_block(df_interp *x, df_red *r, uint32_t n_acc, uint32_t n)
{
    const size_t by = row_stride(x, r);
    for (uint32_t h = DF_LANES / 2; h >= 1; h /= 2) {
        const uint32_t n_up = n_acc > h ? n_acc - h : 0; /* upper ones that have elements */
        if (x->k->mode == DF_MODE_ROW)
            r->fold(r->acc, r->acc + h * by, n_up);
        else
            for (uint32_t j = 0; j < n_up; j++) r->fold(r->acc + j * by, r->acc + (j + h) * by, n);
        if (n_up) n_acc = h;
    }
}

/* Joins the two newest entries of a stack of `depth` entries. */
static void join_newest(const df_interp *x, df_red *r, uint32_t depth, uint32_t n)
{
    const size_t by = row_stride(x, r);
    r->fold(r->stack + (depth - 2) * by, r->stack + (depth - 1) * by, n);
}

/* Pushes `value`, n lanes, the result of block number b, as entry `depth`, and joins entries of
 * equal size. Returns the new depth. */
static uint32_t push_block(const df_interp *x, df_red *r, const char *value, int64_t b,
                           uint32_t depth, uint32_t n)
{
    memcpy(r->stack + depth * row_stride(x, r), value, r->size * (size_t)n);
    depth++;
    for (unsigned joins = df_ctz64((uint64_t)b + 1); joins > 0; joins--)
        join_newest(x, r, depth--, n);
    return depth;
}

static void write_partial(df_interp *x, const df_red *r, int64_t b, int64_t i0, uint32_t n)
{
    uint64_t *const out = x->a->partial + (r->slot * x->n_blocks + b) * x->n_inner + i0;
    for (uint32_t i = 0; i < n; i++) out[i] = df_bits_load(r->acc + i * (size_t)r->size, r->size);
    if (!df_is_arg(r->op)) return;
    uint64_t *const index = out + x->n_blocks * x->n_inner;
    for (uint32_t i = 0; i < n; i++) index[i] = (uint64_t)r->index[i];
}

void df_red_end_block(df_interp *x, df_range steps, int64_t b, int64_t n_elements, int64_t i0,
                      uint32_t n)
{
    uint32_t depth = x->depth;
    for (uint32_t i = steps.begin; i < steps.end; i++) {
        if (x->steps[i].kind != DF_KOP_reduce) continue;
        df_red *const r = &x->reds[x->steps[i].red];
        if (!df_is_arg(r->op)) fold_block(x, r, (uint32_t)df_min_i64(n_elements, DF_LANES), n);
        if (x->pass == DF_PASS_PART)
            write_partial(x, r, b, i0, n);
        else if (!df_is_arg(r->op))
            depth = push_block(x, r, r->acc, b, x->depth, n);
    }
    x->depth = depth;
}

/* Joins the `depth` entries of the stack of r into its result. Without reduced elements, the result
 * is the value of an empty reduction. */
static void finish_red(const df_interp *x, df_red *r, uint32_t depth, uint32_t n)
{
    if (df_is_arg(r->op)) {
        if (x->length == 0)
            memset(r->result, 0, sizeof(int64_t) * n);
        else
            memcpy(r->result, r->index, sizeof(int64_t) * n);
    } else if (x->length == 0) {
        df_splat_bits(r->result, r->op == DF_K_sum ? 0 : r->identity, r->size, n);
    } else {
        for (; depth > 1; depth--) join_newest(x, r, depth, n);
        memcpy(r->result, r->stack, r->size * (size_t)n);
    }
}

void df_red_end_stage(df_interp *x, df_range steps, uint32_t n)
{
    for (uint32_t i = steps.begin; i < steps.end; i++) {
        const df_istep *const s = &x->steps[i];
        if (s->kind != DF_KOP_reduce) continue;
        df_red *const r = &x->reds[s->red];
        finish_red(x, r, x->depth, n);
        if (s->splat) df_splat(r->result, r->result, df_is_arg(r->op) ? 8 : r->size, x->width);
    }
    x->depth = 0;
}

void df_red_join_partial(df_interp *x, df_red *r, int64_t i0, uint32_t n)
{
    uint32_t depth = 0;
    for (uint32_t i = 0; df_is_arg(r->op) && i < n; i++) r->index[i] = -1;
    for (int64_t b = 0; b < x->n_blocks; b++) {
        const uint64_t *const in = x->a->partial + (r->slot * x->n_blocks + b) * x->n_inner + i0;
        if (df_is_arg(r->op)) {
            const uint64_t *const index = in + x->n_blocks * x->n_inner;
            for (uint32_t i = 0; i < n; i++) {
                char value[8];
                df_bits_store(value, in[i], r->size);
                fold_arg(r, i, value, (int64_t)index[i]);
            }
            continue;
        }
        for (uint32_t i = 0; i < n; i++)
            df_bits_store(r->acc + i * (size_t)r->size, in[i], r->size);
        depth = push_block(x, r, r->acc, b, depth, n);
    }
    finish_red(x, r, depth, n);
}
