/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions and running values of complex numbers (complex.h). Sums go by parts. A product is
 * computed in log2(n) passes, each of which multiplies one half by the other.
 */
#include "lazy/complex/complex.h"

/* Elements [start, start + n) along the last axis of both parts. */
static uint32_t part_of_axis(deft_ctx *cx, uint32_t a, uint32_t axis, int64_t start, int64_t n,
                             uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    df_shape s;
    int64_t from[DEFT_MAX_RANK] = { 0 }, by[DEFT_MAX_RANK];
    df_rec_shape(&cx->rec, a, &s);
    for (uint32_t i = 0; i < s.rank; i++) by[i] = 1;
    from[axis] = n ? start : 0;
    s.dim[axis] = n;
    return df_slice_node(cx, a, from, by, &s, site);
}

static df_parts range(deft_ctx *cx, df_parts x, uint32_t axis, int64_t start, int64_t n,
                      uintptr_t site)
{
    return (df_parts){ part_of_axis(cx, x.re, axis, start, n, site),
                       part_of_axis(cx, x.im, axis, start, n, site), false };
}

/* Two parts of an axis next to each other. */
static uint32_t beside(deft_ctx *cx, uint32_t a, uint32_t b, uint32_t axis, uintptr_t site)
{
    const uint32_t piece[2] = { a, b };
    return a == DF_BAD || b == DF_BAD ? DF_BAD : df_join(cx, piece, 2, axis, site);
}

static df_parts joined(deft_ctx *cx, df_parts a, df_parts b, uint32_t axis, uintptr_t site)
{
    return (df_parts){ beside(cx, a.re, b.re, axis, site), beside(cx, a.im, b.im, axis, site),
                       false };
}

static int64_t extent(const deft_ctx *cx, df_parts x, uint32_t axis)
{
    return df_rec_extents(&cx->rec, x.re)[axis];
}

static bool is_bad(df_parts x)
{
    return x.re == DF_BAD || x.im == DF_BAD;
}

/* One real record of the shape of `like` without its axis, or with extent 1 there: `value`. */
static uint32_t filled_like(deft_ctx *cx, uint32_t like, uint32_t axis, int32_t value,
                            uintptr_t site)
{
    df_shape s;
    df_rec_shape(&cx->rec, like, &s);
    s.dim[axis] = 1;
    return df_expand_to(cx, df_cst(cx, df_dtype_at(cx, like), value, site), &s, site);
}

/* The product along an axis, which stays with extent 1. */
static df_parts product_along(deft_ctx *cx, df_parts x, uint32_t axis, uintptr_t site)
{
    int64_t n = extent(cx, x, axis);
    if (n == 0)
        return (df_parts){ filled_like(cx, x.re, axis, 1, site),
                           filled_like(cx, x.re, axis, 0, site), false };
    for (; n > 1 && !is_bad(x); n = n / 2 + n % 2) {
        const df_parts low = range(cx, x, axis, 0, n / 2, site);
        const df_parts high = range(cx, x, axis, n / 2, n / 2, site);
        const df_parts p = df_complex_mul(cx, low, high, site);
        x = n % 2 ? joined(cx, p, range(cx, x, axis, n - 1, 1, site), axis, site) : p;
    }
    return x;
}

static df_parts product_over(deft_ctx *cx, df_parts x, uint32_t axes, bool keep, uintptr_t site)
{
    const uint32_t rank = cx->rec.nodes[x.re].rank;
    for (uint32_t i = 0; i < rank && !is_bad(x); i++)
        if (axes >> i & 1u) x = product_along(cx, x, i, site);
    if (keep || !axes || is_bad(x)) return x;
    const deft_dtype t = df_dtype_at(cx, x.re);
    x.re = df_append(cx, DF_OP_squeeze, t, axes, &x.re, NULL, 0, NULL, site);
    x.im = df_append(cx, DF_OP_squeeze, t, axes, &x.im, NULL, 0, NULL, site);
    return x;
}

deft_tensor *df_complex_reduce(deft_ctx *cx, df_op op, df_parts x, uint32_t axes, bool keep,
                               uintptr_t site)
{
    if (is_bad(x)) return NULL;
    if (op == DF_OP_any || op == DF_OP_all)
        return df_result(cx, df_reduce(cx, op, df_complex_truth(cx, x, site), axes, keep, site));
    if (op == DF_OP_sum)
        return df_parts_result(cx,
                               (df_parts){ df_reduce(cx, op, x.re, axes, keep, site),
                                           df_reduce(cx, op, x.im, axes, keep, site), false },
                               site);
    if (op == DF_OP_prod) return df_parts_result(cx, product_over(cx, x, axes, keep, site), site);
    return df_error(cx, DEFT_E_DTYPE, "%s: complex numbers have no order", df_op_infos[op].name);
}

/* A parallel prefix (Hillis and Steele, "Data parallel algorithms", 1986): in each pass an element
 * is multiplied by the one that is twice as far before it as in the pass before. */
static df_parts running_product(deft_ctx *cx, df_parts x, uint32_t axis, uintptr_t site)
{
    const int64_t n = extent(cx, x, axis);
    for (int64_t by = 1; by < n && !is_bad(x); by *= 2) {
        const df_parts before = range(cx, x, axis, 0, n - by, site);
        const df_parts here = range(cx, x, axis, by, n - by, site);
        x = joined(cx, range(cx, x, axis, 0, by, site), df_complex_mul(cx, before, here, site),
                   axis, site);
    }
    return x;
}

deft_tensor *df_complex_running(deft_ctx *cx, df_op op, df_parts x, uint32_t axis, uintptr_t site)
{
    if (is_bad(x)) return NULL;
    const deft_dtype t = df_dtype_at(cx, x.re);
    if (op == DF_OP_cumprod) return df_parts_result(cx, running_product(cx, x, axis, site), site);
    if (op != DF_OP_cumsum)
        return df_error(cx, DEFT_E_DTYPE, "%s: complex numbers have no order",
                        df_op_infos[op].name);
    return df_parts_result(cx,
                           (df_parts){ df_append(cx, op, t, axis, &x.re, NULL, 0, NULL, site),
                                       df_append(cx, op, t, axis, &x.im, NULL, 0, NULL, site),
                                       false },
                           site);
}
