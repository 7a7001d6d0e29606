/* SPDX-License-Identifier: Apache-2.0
 *
 * Shape rules of ops.def, one function per rule. Each rule also refuses attributes that have no
 * meaning. So later code may use the attributes of a checked node as indices: axes are below the
 * rank, permutations are permutations, and masks have no other bits.
 *
 * df_shape_numel checks every result: 8 bytes times the number of elements fit into an int64_t. So
 * offsets within a contiguous value never overflow.
 *
 * The arguments of slice are start, step, start, step, ...: two per axis.
 */
#include "ops/shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct rule_in {
    df_diag *d;
    const char *name;
    df_op op;
    uint32_t attr;
    const int64_t *args;
    const df_shape *src;
    uint32_t n_src;
} rule_in;

static const char *text(const df_shape *s, char buf[DF_SHAPE_TEXT])
{
    return df_shape_text(s, buf, DF_SHAPE_TEXT);
}

static deft_status check_no_attr(const rule_in *r)
{
    if (r->attr == 0) return DEFT_OK;
    return df_fail(r->d, DEFT_E_ARG, "%s: attribute %" PRIu32 " has no meaning", r->name, r->attr);
}

static deft_status check_axis(const rule_in *r, uint32_t rank)
{
    if (r->attr < rank) return DEFT_OK;
    return df_fail(r->d, DEFT_E_RANGE, "%s: axis %" PRIu32 " of a tensor of rank %" PRIu32, r->name,
                   r->attr, rank);
}

/* Checks that mask is a set of axes below rank. */
static deft_status check_mask(const rule_in *r, uint32_t mask, uint32_t rank)
{
    if (mask >> rank == 0) return DEFT_OK;
    uint32_t axis = rank;
    while (!(mask >> axis & 1)) axis++;
    if (axis >= DEFT_MAX_RANK) return check_no_attr(r);
    return df_fail(r->d, DEFT_E_RANGE, "%s: axis %" PRIu32 " of a tensor of rank %" PRIu32, r->name,
                   axis, rank);
}

static deft_status fail_rank(const rule_in *r, uint32_t rank)
{
    return df_fail(r->d, DEFT_E_LIMIT, "%s: the result has rank %" PRIu32 ", but %d is the most",
                   r->name, rank, DEFT_MAX_RANK);
}

static deft_status check_extents(const rule_in *r, const df_shape *s)
{
    char a[DF_SHAPE_TEXT];
    int64_t n;
    if (s->rank > DEFT_MAX_RANK) return fail_rank(r, s->rank);
    for (uint32_t i = 0; i < s->rank; i++)
        if (s->dim[i] < 0)
            return df_fail(r->d, DEFT_E_SHAPE, "%s: %s has a negative extent", r->name, text(s, a));
    if (!df_shape_numel(s, &n))
        return df_fail(r->d, DEFT_E_SHAPE, "%s: %s has too many elements", r->name, text(s, a));
    return DEFT_OK;
}

static deft_status check_order(const rule_in *r)
{
    const df_shape *const a = &r->src[0];
    char t[DF_SHAPE_TEXT];
    if (r->attr > DF_ORDER_DESCENDING) return check_no_attr(r);
    if (a->rank == 0) return df_fail(r->d, DEFT_E_SHAPE, "%s: the operand has no axis", r->name);
    if (a->dim[a->rank - 1] > UINT32_MAX)
        return df_fail(r->d, DEFT_E_LIMIT, "%s: %s: an axis of 2^32 elements or more", r->name,
                       text(a, t));
    return DEFT_OK;
}

static deft_status check_topk(const rule_in *r, const df_shape *out)
{
    const deft_status st = check_order(r);
    if (st != DEFT_OK) return st;
    df_shape want = r->src[0];
    const uint32_t last = want.rank - 1;
    if (out->rank == want.rank && out->dim[last] <= want.dim[last]) want.dim[last] = out->dim[last];
    char a[2][DF_SHAPE_TEXT];
    if (df_shape_equal(out, &want)) {
        const int64_t n = r->src[0].dim[last], m = out->dim[last], first = r->args[0];
        if (first >= 0 && first <= n - m) return DEFT_OK;
        return df_fail(r->d, DEFT_E_RANGE,
                       "topk: %" PRId64 " elements from position %" PRId64 " of %" PRId64, m, first,
                       n);
    }
    return df_fail(r->d, DEFT_E_SHAPE, "topk: the operand is %s, the result %s",
                   text(&r->src[0], a[0]), text(out, a[1]));
}

static deft_status check_compress(const rule_in *r, const df_shape *out)
{
    char a[3][DF_SHAPE_TEXT];
    if (out->rank == 1 && r->src[0].rank == 1 && df_shape_equal(&r->src[0], &r->src[1]))
        return check_no_attr(r);
    return df_fail(r->d, DEFT_E_SHAPE,
                   "compress: the operands are %s and %s, the result %s: not vectors, or not of "
                   "one length",
                   text(&r->src[0], a[0]), text(&r->src[1], a[1]), text(out, a[2]));
}

static deft_status shape_given(const rule_in *r, const df_shape *out)
{
    if (r->op == DF_OP_input || r->op == DF_OP_cst) return DEFT_OK; /* any ordinal, any bits */
    if (r->op == DF_OP_iota) return check_axis(r, out->rank);
    if (r->op == DF_OP_count) return check_mask(r, r->attr, r->src[0].rank);
    if (r->op == DF_OP_which && (out->rank != 1 || r->src[0].rank != 1)) {
        char a[2][DF_SHAPE_TEXT];
        return df_fail(r->d, DEFT_E_SHAPE, "which: the operand is %s, the result %s: not vectors",
                       text(&r->src[0], a[0]), text(out, a[1]));
    }
    if (r->op == DF_OP_which && r->attr == DF_WHICH_ZEROS) return DEFT_OK;
    if (r->op == DF_OP_topk) return check_topk(r, out);
    if (r->op == DF_OP_compress) return check_compress(r, out);
    if (r->op == DF_OP_call || r->op == DF_OP_result) return DEFT_OK; /* trace/verify.c */
    if (r->op == DF_OP_random && r->attr > 3)
        return df_fail(r->d, DEFT_E_RANGE, "random: word %" PRIu32 ", must be 0 to 3", r->attr);
    return r->op == DF_OP_random ? DEFT_OK : check_no_attr(r);
}

static deft_status shape_same(const rule_in *r, df_shape *out)
{
    *out = r->src[0];
    if (r->op == DF_OP_powi) return DEFT_OK; /* any exponent */
    if (r->op == DF_OP_polygamma) {
        if (r->attr >= 1 && r->attr <= DF_POLYGAMMA_MOST) return DEFT_OK;
        return df_fail(r->d, DEFT_E_RANGE, "polygamma: order %" PRId32 ", must be 1 to %d",
                       (int32_t)r->attr, DF_POLYGAMMA_MOST);
    }
    return df_op_infos[r->op].cls == DF_CLASS_scan ? check_axis(r, out->rank) : check_no_attr(r);
}

static deft_status fail_broadcast(const rule_in *r, uint32_t axis, int64_t have, int64_t found)
{
    char a[3][DF_SHAPE_TEXT];
    for (uint32_t i = 0; i < r->n_src; i++) text(&r->src[i], a[i]);
    if (r->n_src == 2)
        return df_fail(r->d, DEFT_E_SHAPE,
                       "%s: %s and %s do not broadcast: %" PRId64 " and %" PRId64
                       " meet in axis %" PRIu32,
                       r->name, a[0], a[1], have, found, axis);
    return df_fail(r->d, DEFT_E_SHAPE,
                   "%s: %s, %s and %s do not broadcast: %" PRId64 " and %" PRId64
                   " meet in axis %" PRIu32,
                   r->name, a[0], a[1], a[2], have, found, axis);
}

static deft_status shape_broadcast(const rule_in *r, df_shape *out)
{
    df_shape s = { .rank = 0 };
    for (uint32_t i = 0; i < r->n_src; i++)
        if (r->src[i].rank > s.rank) s.rank = r->src[i].rank;
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = 1;
    for (uint32_t i = 0; i < r->n_src; i++) {
        const uint32_t skip = s.rank - r->src[i].rank;
        for (uint32_t k = 0; k < r->src[i].rank; k++) {
            const int64_t n = r->src[i].dim[k];
            int64_t *const m = &s.dim[skip + k];
            if (n == *m || n == 1) continue;
            if (*m != 1) return fail_broadcast(r, skip + k, *m, n);
            *m = n;
        }
    }
    *out = s;
    return check_no_attr(r);
}

static deft_status shape_reduce(const rule_in *r, df_shape *out)
{
    const df_shape *const a = &r->src[0];
    const uint32_t axes = r->attr & ~DF_REDUCE_KEEPDIMS;
    const bool keep = (r->attr & DF_REDUCE_KEEPDIMS) != 0;
    const deft_status st = check_mask(r, axes, a->rank);
    if (st != DEFT_OK) return st;

    const bool needs_one =
        r->op == DF_OP_min || r->op == DF_OP_max || r->op == DF_OP_argmin || r->op == DF_OP_argmax;
    df_shape s = { .rank = 0 };
    for (uint32_t i = 0; i < a->rank; i++) {
        if (!(axes >> i & 1)) {
            s.dim[s.rank++] = a->dim[i];
            continue;
        }
        if (needs_one && a->dim[i] == 0) {
            char b[DF_SHAPE_TEXT];
            return df_fail(r->d, DEFT_E_SHAPE,
                           "%s: axis %" PRIu32 " of %s has no elements to choose from", r->name, i,
                           text(a, b));
        }
        if (keep) s.dim[s.rank++] = 1;
    }
    *out = s;
    return DEFT_OK;
}

static deft_status shape_slice(const rule_in *r, const df_shape *out)
{
    const df_shape *const a = &r->src[0];
    char b[2][DF_SHAPE_TEXT];
    if (out->rank != a->rank)
        return df_fail(r->d, DEFT_E_SHAPE, "slice: %s of %s: ranks differ", text(out, b[0]),
                       text(a, b[1]));
    for (uint32_t i = 0; i < a->rank; i++) {
        const int64_t start = r->args[2 * i], step = r->args[2 * i + 1];
        const int64_t n = out->dim[i], m = a->dim[i];
        if (step == 0)
            return df_fail(r->d, DEFT_E_RANGE, "slice: step 0 along axis %" PRIu32 " of %s", i,
                           text(a, b[0]));
        /* An empty slice may start one past the end. Any other accesses its first and last. */
        int64_t last = start;
        const bool fits = n == 0
                              ? 0 <= start && start <= m
                              : df_mul_i64(n - 1, step, &last) && df_add_i64(last, start, &last) &&
                                    0 <= start && start < m && 0 <= last && last < m;
        if (!fits)
            return df_fail(r->d, DEFT_E_RANGE,
                           "slice: %" PRId64 " elements from %" PRId64 " in steps of %" PRId64
                           " leave axis %" PRIu32 " of %s",
                           n, start, step, i, text(a, b[0]));
    }
    return check_no_attr(r);
}

static deft_status shape_permute(const rule_in *r, df_shape *out)
{
    const df_shape *const a = &r->src[0];
    uint32_t seen = 0;
    for (uint32_t i = 0; i < a->rank; i++) {
        const uint32_t axis = r->attr >> 4 * i & 15;
        if (axis >= a->rank)
            return df_fail(r->d, DEFT_E_RANGE,
                           "permute: axis %" PRIu32 " of a tensor of rank %" PRIu32, axis, a->rank);
        if (seen >> axis & 1)
            return df_fail(r->d, DEFT_E_ARG, "permute: axis %" PRIu32 " is named twice", axis);
        seen |= 1u << axis;
        out->dim[i] = a->dim[axis];
    }
    out->rank = a->rank;
    if ((uint64_t)r->attr >> 4 * a->rank != 0)
        return df_fail(r->d, DEFT_E_ARG, "permute: more axes than the rank, %" PRIu32, a->rank);
    return DEFT_OK;
}

static deft_status shape_expand(const rule_in *r, const df_shape *out)
{
    const df_shape *const a = &r->src[0];
    bool fits = out->rank >= a->rank;
    for (uint32_t i = 0; fits && i < a->rank; i++) {
        const int64_t n = out->dim[out->rank - a->rank + i];
        fits = a->dim[i] == n || a->dim[i] == 1;
    }
    char b[2][DF_SHAPE_TEXT];
    if (!fits)
        return df_fail(r->d, DEFT_E_SHAPE, "expand: %s does not broadcast to %s", text(a, b[0]),
                       text(out, b[1]));
    return check_no_attr(r);
}

static deft_status shape_reshape(const rule_in *r, const df_shape *out)
{
    const df_shape *const a = &r->src[0];
    int64_t n = 0, m = 0;
    char b[2][DF_SHAPE_TEXT];
    if (!df_shape_numel(a, &n) || !df_shape_numel(out, &m) || n != m)
        return df_fail(r->d, DEFT_E_SHAPE, "reshape: %s has %" PRId64 " elements, %s has %" PRId64,
                       text(a, b[0]), n, text(out, b[1]), m);
    return check_no_attr(r);
}

static deft_status shape_squeeze(const rule_in *r, df_shape *out)
{
    const df_shape *const a = &r->src[0];
    const deft_status st = check_mask(r, r->attr, a->rank);
    if (st != DEFT_OK) return st;
    df_shape s = { .rank = 0 };
    for (uint32_t i = 0; i < a->rank; i++) {
        char b[DF_SHAPE_TEXT];
        if (!(r->attr >> i & 1))
            s.dim[s.rank++] = a->dim[i];
        else if (a->dim[i] != 1)
            return df_fail(r->d, DEFT_E_SHAPE,
                           "squeeze: axis %" PRIu32 " of %s has extent %" PRId64 ", not 1", i,
                           text(a, b), a->dim[i]);
    }
    *out = s;
    return DEFT_OK;
}

static deft_status shape_unsqueeze(const rule_in *r, df_shape *out)
{
    const df_shape *const a = &r->src[0];
    const uint32_t rank = a->rank + df_popcount(r->attr);
    if (rank > DEFT_MAX_RANK) return fail_rank(r, rank);
    const deft_status st = check_mask(r, r->attr, rank);
    if (st != DEFT_OK) return st;
    df_shape s = { .rank = rank };
    for (uint32_t i = 0, k = 0; i < rank; i++) s.dim[i] = r->attr >> i & 1 ? 1 : a->dim[k++];
    *out = s;
    return DEFT_OK;
}

static deft_status shape_diagonal(const rule_in *r, const df_shape *out)
{
    const df_shape *const a = &r->src[0];
    const uint32_t x = r->attr & 15, y = r->attr >> 4 & 15;
    if (r->attr >> 8 != 0)
        return df_fail(r->d, DEFT_E_ARG, "diagonal: attribute %" PRIu32 " has no meaning", r->attr);
    if (x >= a->rank || y >= a->rank)
        return df_fail(r->d, DEFT_E_RANGE,
                       "diagonal: axis %" PRIu32 " of a tensor of rank %" PRIu32,
                       x >= a->rank ? x : y, a->rank);
    if (x == y) return df_fail(r->d, DEFT_E_ARG, "diagonal: axis %" PRIu32 " is named twice", x);

    df_shape s = { .rank = 0 };
    for (uint32_t i = 0; i < a->rank; i++)
        if (i != x && i != y) s.dim[s.rank++] = a->dim[i];
    const int64_t offset = r->args[0];
    int64_t n = 0; /* an offset beyond the matrix gives an empty diagonal */
    if (offset >= 0 && offset < a->dim[y]) n = df_min_i64(a->dim[x], a->dim[y] - offset);
    if (offset < 0 && offset > -a->dim[x]) n = df_min_i64(a->dim[x] + offset, a->dim[y]);
    s.dim[s.rank++] = n;
    char b[3][DF_SHAPE_TEXT];
    if (!df_shape_equal(&s, out))
        return df_fail(r->d, DEFT_E_SHAPE, "diagonal: offset %" PRId64 " of %s is %s, not %s",
                       offset, text(a, b[0]), text(&s, b[1]), text(out, b[2]));
    return DEFT_OK;
}

static deft_status shape_matmul(const rule_in *r, df_shape *out)
{
    const df_shape *const a = &r->src[0], *const b = &r->src[1];
    char t[2][DF_SHAPE_TEXT];
    bool fits = a->rank == b->rank && a->rank >= 2 && a->dim[a->rank - 1] == b->dim[a->rank - 2];
    for (uint32_t i = 0; fits && i + 2 < a->rank; i++) fits = a->dim[i] == b->dim[i];
    if (!fits)
        return df_fail(r->d, DEFT_E_SHAPE, "matmul: a is %s, b is %s", text(a, t[0]),
                       text(b, t[1]));
    *out = *a;
    out->dim[a->rank - 1] = b->dim[b->rank - 1];
    return check_no_attr(r);
}

static deft_status shape_take(const rule_in *r, df_shape *out)
{
    const df_shape *const a = &r->src[0], *const b = &r->src[1];
    const deft_status st = check_axis(r, a->rank);
    if (st != DEFT_OK) return st;
    const uint32_t rank = a->rank - 1 + b->rank;
    if (rank > DEFT_MAX_RANK) return fail_rank(r, rank);
    df_shape s = { .rank = 0 };
    int64_t n = 1;
    for (uint32_t i = 0; i < r->attr; i++) s.dim[s.rank++] = a->dim[i];
    for (uint32_t i = 0; i < b->rank; i++) n = (s.dim[s.rank++] = b->dim[i]) == 0 ? 0 : n;
    for (uint32_t i = r->attr + 1; i < a->rank; i++) s.dim[s.rank++] = a->dim[i];
    char t[2][DF_SHAPE_TEXT];
    if (a->dim[r->attr] == 0 && n != 0)
        return df_fail(r->d, DEFT_E_SHAPE,
                       "%s: indices %s into axis %" PRIu32 " of %s, which is empty", r->name,
                       text(b, t[0]), r->attr, text(a, t[1]));
    *out = s;
    return DEFT_OK;
}

static deft_status shape_gather(const rule_in *r, df_shape *out)
{
    const df_shape *const a = &r->src[0], *const b = &r->src[1];
    const deft_status st = check_axis(r, a->rank);
    if (st != DEFT_OK) return st;
    bool fits = a->rank == b->rank;
    int64_t n = 0;
    for (uint32_t i = 0; fits && i < a->rank; i++) fits = i == r->attr || b->dim[i] <= a->dim[i];
    if (fits && a->dim[r->attr] == 0) fits = df_shape_numel(b, &n) && n == 0;
    char t[2][DF_SHAPE_TEXT];
    if (!fits)
        return df_fail(r->d, DEFT_E_SHAPE, "%s: indices %s along axis %" PRIu32 " do not fit %s",
                       r->name, text(b, t[0]), r->attr, text(a, t[1]));
    *out = *b;
    return DEFT_OK;
}

/* The third operand has the shape of the result of take or gather at the indices. */
static deft_status shape_scatter(const rule_in *r, df_shape *out)
{
    df_shape want = { .rank = 0 };
    char t[3][DF_SHAPE_TEXT];
    const bool slices = df_op_infos[r->op].shape_rule == DF_SHAPE_index_add;
    const deft_status st = slices ? shape_take(r, &want) : shape_gather(r, &want);
    if (st != DEFT_OK) return st;
    if (!df_shape_equal(&r->src[2], &want))
        return df_fail(r->d, DEFT_E_SHAPE,
                       "%s: values %s at indices %s along axis %" PRIu32 ", must be %s", r->name,
                       text(&r->src[2], t[0]), text(&r->src[1], t[1]), r->attr, text(&want, t[2]));
    *out = r->src[0];
    return DEFT_OK;
}

static deft_status shape_update(const rule_in *r, df_shape *out)
{
    char t[2][DF_SHAPE_TEXT];
    if (!df_shape_equal(&r->src[1], &r->src[2]))
        return df_fail(r->d, DEFT_E_SHAPE, "update: the value is %s, the place is %s",
                       text(&r->src[1], t[0]), text(&r->src[2], t[1]));
    *out = r->src[0];
    return check_no_attr(r);
}

static deft_status shape_order(const rule_in *r, df_shape *out)
{
    *out = r->src[0];
    return check_order(r);
}

static deft_status fail_two(const rule_in *r, uint32_t a, uint32_t b, const char *what)
{
    char t[2][DF_SHAPE_TEXT];
    return df_fail(r->d, DEFT_E_SHAPE, "%s: %s and %s: %s", r->name, text(&r->src[a], t[0]),
                   text(&r->src[b], t[1]), what);
}

static deft_status check_one(const rule_in *r)
{
    char t[DF_SHAPE_TEXT];
    if (r->src[0].rank == 0) return check_no_attr(r);
    return df_fail(r->d, DEFT_E_SHAPE, "%s: the operand is %s, must be one value", r->name,
                   text(&r->src[0], t));
}

static deft_status shape_one(const rule_in *r, df_shape *out)
{
    df_loop_tag tag;
    out->rank = 0;
    if (r->op == DF_OP_loop && r->src[0].rank == 0 && df_loop_tag_of(r->attr, &tag)) return DEFT_OK;
    return check_one(r);
}

static deft_status shape_each(const rule_in *r, df_shape *out)
{
    const df_shape *const s = &r->src[0];
    if (s->rank == 0) return df_fail(r->d, DEFT_E_SHAPE, "each: the operand has no axis");
    out->rank = s->rank - 1;
    memcpy(out->dim, s->dim + 1, out->rank * sizeof *out->dim);
    return check_no_attr(r);
}

static deft_status shape_next(const rule_in *r, df_shape *out)
{
    *out = r->src[0];
    if (!df_shape_equal(&r->src[0], &r->src[1]))
        return fail_two(r, 0, 1, "a state keeps its shape");
    return check_no_attr(r);
}

static deft_status shape_stack(const rule_in *r, const df_shape *out)
{
    char t[2][DF_SHAPE_TEXT];
    const df_shape row = { .rank = out->rank ? out->rank - 1 : 0 };
    df_shape behind = row;
    memcpy(behind.dim, out->dim + 1, row.rank * sizeof *row.dim);
    if (out->rank > 0 && df_shape_equal(&behind, &r->src[0])) return check_no_attr(r);
    return df_fail(r->d, DEFT_E_SHAPE, "stack: rows of %s cannot make %s", text(&r->src[0], t[0]),
                   text(out, t[1]));
}

static deft_status shape_cond(const rule_in *r, df_shape *out)
{
    *out = r->src[1];
    if (!df_shape_equal(&r->src[1], &r->src[2]))
        return fail_two(r, 1, 2, "both branches give one shape");
    return check_one(r);
}

static deft_status apply_rule(const rule_in *r, df_shape *out)
{
    switch ((df_shape_rule)df_op_infos[r->op].shape_rule) {
    case DF_SHAPE_given: return shape_given(r, out);
    case DF_SHAPE_same: return shape_same(r, out);
    case DF_SHAPE_broadcast: return shape_broadcast(r, out);
    case DF_SHAPE_reduce: return shape_reduce(r, out);
    case DF_SHAPE_slice: return shape_slice(r, out);
    case DF_SHAPE_permute: return shape_permute(r, out);
    case DF_SHAPE_expand: return shape_expand(r, out);
    case DF_SHAPE_reshape: return shape_reshape(r, out);
    case DF_SHAPE_squeeze: return shape_squeeze(r, out);
    case DF_SHAPE_unsqueeze: return shape_unsqueeze(r, out);
    case DF_SHAPE_diagonal: return shape_diagonal(r, out);
    case DF_SHAPE_matmul: return shape_matmul(r, out);
    case DF_SHAPE_take: return shape_take(r, out);
    case DF_SHAPE_gather: return shape_gather(r, out);
    case DF_SHAPE_update: return shape_update(r, out);
    case DF_SHAPE_scatter_add:
    case DF_SHAPE_index_add: return shape_scatter(r, out);
    case DF_SHAPE_order: return shape_order(r, out);
    case DF_SHAPE_one: return shape_one(r, out);
    case DF_SHAPE_each: return shape_each(r, out);
    case DF_SHAPE_next: return shape_next(r, out);
    case DF_SHAPE_stack: return shape_stack(r, out);
    case DF_SHAPE_cond: return shape_cond(r, out);
    }
    df_unreachable();
}

bool df_shape_takes_extents(df_op op)
{
    const uint8_t rule = df_op_infos[op].shape_rule;
    return rule == DF_SHAPE_given || rule == DF_SHAPE_expand || rule == DF_SHAPE_reshape ||
           rule == DF_SHAPE_slice || rule == DF_SHAPE_diagonal || rule == DF_SHAPE_stack;
}

/* An extent of 0 makes the number of elements 0. The product of the other extents must still be
 * within bounds, because strides are products of extents. */
bool df_shape_numel(const df_shape *s, int64_t *out)
{
    int64_t n = 1;
    bool empty = false;
    for (uint32_t i = 0; i < s->rank; i++) {
        if (s->dim[i] == 0)
            empty = true;
        else if (!df_mul_i64(n, s->dim[i], &n))
            return false;
    }
    if (n > INT64_MAX / 8) return false;
    *out = empty ? 0 : n;
    return true;
}

const char *df_shape_text(const df_shape *s, char *buf, size_t n)
{
    size_t at = 0;
    const uint32_t rank = s->rank < DEFT_MAX_RANK ? s->rank : DEFT_MAX_RANK;
    if (n == 0) return buf;
    buf[0] = '\0';
    for (uint32_t i = 0; i <= rank && at < n; i++) {
        const int more =
            i < rank ? snprintf(buf + at, n - at, "%s%" PRId64, i == 0 ? "[" : ",", s->dim[i])
                     : snprintf(buf + at, n - at, "%s", rank == 0 ? "[]" : "]");
        at += more > 0 ? (size_t)more : 0;
    }
    return buf;
}

deft_status df_shape_infer(df_diag *d, df_op op, uint32_t attr, const int64_t *args,
                           const df_shape *src, uint32_t n_src, df_shape *out)
{
    df_assert((unsigned)op < DF_N_OPS && n_src == df_op_infos[op].n_src);
    const rule_in r = { .d = d,
                        .name = df_op_infos[op].name,
                        .op = op,
                        .attr = attr,
                        .args = args,
                        .src = src,
                        .n_src = n_src };
    deft_status st = df_shape_takes_extents(op) ? check_extents(&r, out) : DEFT_OK;
    df_shape s = *out;
    if (st == DEFT_OK) st = apply_rule(&r, &s);
    if (st == DEFT_OK) st = check_extents(&r, &s);
    if (st == DEFT_OK) *out = s;
    return st;
}
