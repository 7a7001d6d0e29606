/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that are recorded as several records: reductions over lists of axes, joining, padding,
 * indexing, products, normalizations, losses. None needs anything of a back end.
 *
 * Halves are lifted to f32 at the start and rounded at the end, so that a composite rounds once
 * like any other op; its numbers are f32. What only moves, selects or compares is left as it is.
 */
#include "lazy/compose.h"

#include "deft/layers.h"

#include <string.h>

static uint32_t more(deft_ctx *cx, const char *what, unsigned which, deft_tensor *t)
{
    return df_enter_more(cx, what, which, t) ? df_node_of(cx, t) : DF_BAD;
}

/* In the float dtype that a composite calculates in. */
static uint32_t as_float(deft_ctx *cx, uint32_t node, uintptr_t site)
{
    if (node == DF_BAD) return DF_BAD;
    return df_to(cx, node, df_arithmetic_dtype(df_dtype_at(cx, node)), site);
}

/* The same for what need not be a float: only halves are lifted. */
static uint32_t lifted(deft_ctx *cx, uint32_t node, uintptr_t site)
{
    if (node == DF_BAD || !df_is_half(df_dtype_at(cx, node))) return node;
    return df_to(cx, node, DEFT_F32, site);
}

/* The result of a composite whose operands met in t. */
static deft_tensor *rounded(deft_ctx *cx, uint32_t node, deft_dtype t, uintptr_t site)
{
    return df_result(cx, df_is_half(t) ? df_to(cx, node, t, site) : node);
}

/* ---- elementwise with other arguments ---- */

deft_tensor *deft_cast(deft_tensor *t, deft_dtype dtype)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("cast", t, &a, &s);
    if (!cx) return NULL;
    if ((unsigned)dtype >= DEFT_N_DTYPES)
        return df_error(cx, DEFT_E_DTYPE, "cast: %d is no dtype", (int)dtype);
    return df_result(cx, df_to(cx, a, dtype, DF_SITE));
}

deft_tensor *deft_where(deft_tensor *condition, deft_tensor *a, deft_tensor *b)
{
    uint32_t c;
    df_shape s;
    deft_ctx *const cx = df_begin("where", condition, &c, &s);
    if (!cx) return NULL;
    const uint32_t na = more(cx, "where", 2, a), nb = more(cx, "where", 3, b);
    return df_result(cx, df_where(cx, c, na, nb, DF_SITE));
}

deft_tensor *deft_clamp(deft_tensor *t, double low, double high)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("clamp", t, &a, &s);
    if (!cx) return NULL;
    const uintptr_t site = DF_SITE;
    const deft_dtype d = df_dtype_at(cx, a);
    a = df_map2(cx, DF_OP_maximum, a, df_number_f(cx, "clamp", d, low, site), site);
    return df_result(cx,
                     df_map2(cx, DF_OP_minimum, a, df_number_f(cx, "clamp", d, high, site), site));
}

deft_tensor *deft_clamp_t(deft_tensor *t, deft_tensor *low, deft_tensor *high)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("clamp", t, &a, &s);
    if (!cx) return NULL;
    if (low) a = df_map2(cx, DF_OP_maximum, a, more(cx, "clamp", 2, low), DF_SITE);
    if (high) a = df_map2(cx, DF_OP_minimum, a, more(cx, "clamp", 3, high), DF_SITE);
    return df_result(cx, a);
}

/* a + weight * (b - a), which met in t */
static deft_tensor *lerp(deft_ctx *cx, uint32_t a, uint32_t b, uint32_t weight, deft_dtype t,
                         uintptr_t site)
{
    a = lifted(cx, a, site);
    const uint32_t way = df_map2(cx, DF_OP_sub, lifted(cx, b, site), a, site);
    const uint32_t by = df_map2(cx, DF_OP_mul, lifted(cx, weight, site), way, site);
    return rounded(cx, df_map2(cx, DF_OP_add, a, by, site), t, site);
}

deft_tensor *deft_lerp(deft_tensor *a, deft_tensor *b, deft_tensor *weight)
{
    uint32_t na;
    df_shape s;
    deft_ctx *const cx = df_begin("lerp", a, &na, &s);
    if (!cx) return NULL;
    const uint32_t nb = more(cx, "lerp", 2, b), nw = more(cx, "lerp", 3, weight);
    if (nb == DF_BAD || nw == DF_BAD) return NULL;
    const deft_dtype t = df_promote(df_dtype_at(cx, na), df_dtype_at(cx, nb));
    return lerp(cx, na, nb, nw, df_promote(t, df_dtype_at(cx, nw)), DF_SITE);
}

deft_tensor *deft_lerp_f(deft_tensor *a, deft_tensor *b, double weight)
{
    uint32_t na;
    df_shape s;
    deft_ctx *const cx = df_begin("lerp", a, &na, &s);
    if (!cx) return NULL;
    const uint32_t nb = more(cx, "lerp", 2, b);
    if (nb == DF_BAD) return NULL;
    if (cx->recording) return df_result(cx, df_recording_refuses(cx, "lerp", weight, DF_SITE));
    const deft_dtype t = df_promote(df_dtype_at(cx, na), df_dtype_at(cx, nb));
    const uintptr_t site = DF_SITE;
    const uint32_t by = df_number_f(cx, "lerp", df_arithmetic_dtype(t), weight, site);
    return lerp(cx, na, nb, by, df_is_float(t) ? t : DEFT_F32, site);
}

deft_tensor *deft_lerp_i(deft_tensor *a, deft_tensor *b, int64_t weight)
{
    return deft_lerp_f(a, b, (double)weight);
}

/* ---- reductions ---- */

static deft_tensor *reduce(df_op op, deft_tensor *t, const deft_axes *axes, int keep,
                           uintptr_t site)
{
    uint32_t a, mask;
    df_shape s;
    const char *const what = df_op_infos[op].name;
    deft_ctx *const cx = df_begin(what, t, &a, &s);
    if (!cx || !df_check_axes(cx, what, axes, s.rank, &mask)) return NULL;
    return df_result(cx, df_reduce(cx, op, a, mask, keep != 0, site));
}

#define DF_REDUCTION(name)                                                                         \
    deft_tensor *deft_##name(deft_tensor *t, deft_axes axes, int keepdims)                         \
    {                                                                                              \
        return reduce(DF_OP_##name, t, &axes, keepdims, DF_SITE);                                  \
    }
DF_REDUCTION(sum)
DF_REDUCTION(prod)
DF_REDUCTION(min)
DF_REDUCTION(max)
DF_REDUCTION(any)
DF_REDUCTION(all)
DF_REDUCTION(argmin)
DF_REDUCTION(argmax)
#undef DF_REDUCTION

/* How many elements the axes hold, as a number of dtype t. */
static uint32_t count(deft_ctx *cx, uint32_t a, uint32_t mask, deft_dtype t, uintptr_t site)
{
    const df_shape scalar = { .rank = 0 };
    return df_append(cx, DF_OP_count, t, mask, &a, NULL, 0, &scalar, site);
}

static uint32_t mean(deft_ctx *cx, uint32_t a, uint32_t mask, bool keep, uintptr_t site)
{
    a = as_float(cx, a, site);
    if (a == DF_BAD) return DF_BAD;
    const uint32_t n = count(cx, a, mask, df_dtype_at(cx, a), site);
    return df_map2(cx, DF_OP_div, df_reduce(cx, DF_OP_sum, a, mask, keep, site), n, site);
}

deft_tensor *deft_mean(deft_tensor *t, deft_axes axes, int keepdims)
{
    uint32_t a, mask;
    df_shape s;
    deft_ctx *const cx = df_begin("mean", t, &a, &s);
    if (!cx || !df_check_axes(cx, "mean", &axes, s.rank, &mask)) return NULL;
    return rounded(cx, mean(cx, a, mask, keepdims != 0, DF_SITE), df_dtype_at(cx, a), DF_SITE);
}

/* (x - mean), and the mean square of it over n - ddof. */
static uint32_t variance(deft_ctx *cx, uint32_t a, uint32_t mask, bool keep, int ddof,
                         uint32_t *centred, uintptr_t site)
{
    a = as_float(cx, a, site);
    const uint32_t c = df_map2(cx, DF_OP_sub, a, mean(cx, a, mask, true, site), site);
    if (c == DF_BAD) return DF_BAD;
    const deft_dtype t = df_dtype_at(cx, c);
    uint32_t n = count(cx, a, mask, t, site);
    if (ddof) n = df_map2(cx, DF_OP_sub, n, df_cst(cx, t, ddof, site), site);
    *centred = c;
    const uint32_t sq = df_map1(cx, DF_OP_square, c, site);
    return df_map2(cx, DF_OP_div, df_reduce(cx, DF_OP_sum, sq, mask, keep, site), n, site);
}

deft_tensor *deft_var(deft_tensor *t, deft_axes axes, int keepdims, int ddof)
{
    uint32_t a, mask, centred;
    df_shape s;
    deft_ctx *const cx = df_begin("var", t, &a, &s);
    if (!cx || !df_check_axes(cx, "var", &axes, s.rank, &mask)) return NULL;
    const uint32_t v = variance(cx, a, mask, keepdims != 0, ddof, &centred, DF_SITE);
    return rounded(cx, v, df_dtype_at(cx, a), DF_SITE);
}

deft_tensor *deft_cumsum(deft_tensor *t, int axis)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("cumsum", t, &a, &s);
    if (!cx) return NULL;
    const int at = df_check_axis(cx, "cumsum", axis, s.rank);
    if (at < 0) return NULL;
    const uintptr_t site = DF_SITE;
    if (!df_is_float(df_dtype_at(cx, a))) a = df_to(cx, a, DEFT_I64, site);
    if (a == DF_BAD) return NULL;
    return df_result(
        cx, df_append(cx, DF_OP_cumsum, df_dtype_at(cx, a), (uint32_t)at, &a, NULL, 0, NULL, site));
}

/* ---- joining ---- */

/* Writes value into rows [at, at + n) of axis of base. */
static uint32_t put(deft_ctx *cx, uint32_t base, uint32_t value, uint32_t axis, int64_t at,
                    uintptr_t site)
{
    if (base == DF_BAD || value == DF_BAD) return DF_BAD;
    df_shape s;
    df_rec_shape(&cx->rec, value, &s);
    int64_t start[DEFT_MAX_RANK] = { 0 }, step[DEFT_MAX_RANK];
    for (uint32_t i = 0; i < s.rank; i++) step[i] = 1;
    start[axis] = s.dim[axis] ? at : 0;
    const uint32_t place = df_slice_node(cx, base, start, step, &s, site);
    const uint32_t src[3] = { base, value, place };
    return df_append(cx, DF_OP_update, df_dtype_at(cx, base), 0, src, NULL, 0, NULL, site);
}

static uint32_t empty(deft_ctx *cx, deft_dtype t, const df_shape *s, uintptr_t site)
{
    return df_append(cx, DF_OP_empty, t, 0, NULL, NULL, 0, s, site);
}

uint32_t df_join(deft_ctx *cx, const uint32_t *piece, size_t n, uint32_t axis, uintptr_t site)
{
    df_shape s, p;
    df_rec_shape(&cx->rec, piece[0], &s);
    s.dim[axis] = 0;
    for (size_t i = 0; i < n; i++) {
        df_rec_shape(&cx->rec, piece[i], &p);
        s.dim[axis] += p.dim[axis];
    }
    uint32_t out = empty(cx, df_dtype_at(cx, piece[0]), &s, site);
    int64_t at = 0;
    for (size_t i = 0; i < n && out != DF_BAD; i++) {
        df_rec_shape(&cx->rec, piece[i], &p);
        if (p.dim[axis] == 0) continue;
        out = put(cx, out, piece[i], axis, at, site);
        at += p.dim[axis];
    }
    return out;
}

static deft_tensor *join_list(const char *what, deft_tensor *const *parts, size_t n, int axis,
                              bool stack, uintptr_t site)
{
    if (!parts || !n) return NULL;
    deft_ctx *const cx = df_enter(what, 1, parts[0]);
    if (!cx) return NULL;
    if (n > 65536) return df_error(cx, DEFT_E_LIMIT, "%s: %zu parts", what, n);
    df_arena_reset(&cx->pass);
    uint32_t *const piece = df_arena_new(&cx->pass, uint32_t, n);
    if (!piece) return df_error(cx, DEFT_E_MEMORY, "%s: no memory for %zu parts", what, n);
    deft_dtype t = DEFT_BOOL;
    df_shape first, s;
    int at = -1;
    for (size_t i = 0; i < n; i++) {
        if ((piece[i] = more(cx, what, (unsigned)i + 1, parts[i])) == DF_BAD) return NULL;
        df_rec_shape(&cx->rec, piece[i], &s);
        if (i == 0) {
            first = s;
            if ((at = df_check_axis(cx, what, axis, s.rank + (stack ? 1 : 0))) < 0) return NULL;
        }
        bool fits = s.rank == first.rank;
        for (uint32_t k = 0; fits && k < s.rank; k++)
            fits = s.dim[k] == first.dim[k] || (!stack && (int)k == at);
        char a[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
        if (!fits)
            return df_error(cx, DEFT_E_SHAPE, "%s: part 0 is %s, part %zu is %s", what,
                            df_shape_text(&first, a, sizeof a), i, df_shape_text(&s, b, sizeof b));
        t = i ? df_promote(t, df_dtype_at(cx, piece[i])) : df_dtype_at(cx, piece[i]);
    }
    for (size_t i = 0; i < n; i++) {
        piece[i] = df_to(cx, piece[i], t, site);
        if (stack && piece[i] != DF_BAD)
            piece[i] = df_append(cx, DF_OP_unsqueeze, t, 1u << at, &piece[i], NULL, 0, NULL, site);
        if (piece[i] == DF_BAD) return NULL;
    }
    return df_result(cx, df_join(cx, piece, n, (uint32_t)at, site));
}

deft_tensor *deft_concat(deft_tensor *const *parts, size_t n, int axis)
{
    return join_list("concat", parts, n, axis, false, DF_SITE);
}

deft_tensor *deft_stack(deft_tensor *const *parts, size_t n, int axis)
{
    return join_list("stack", parts, n, axis, true, DF_SITE);
}

/* n elements of axis from `start` by `step`. */
static uint32_t part(deft_ctx *cx, uint32_t a, uint32_t axis, int64_t start, int64_t step,
                     int64_t n, uintptr_t site)
{
    df_shape s;
    if (a == DF_BAD) return DF_BAD;
    df_rec_shape(&cx->rec, a, &s);
    int64_t from[DEFT_MAX_RANK] = { 0 }, by[DEFT_MAX_RANK];
    for (uint32_t i = 0; i < s.rank; i++) by[i] = 1;
    from[axis] = n ? start : 0;
    by[axis] = step;
    s.dim[axis] = n;
    return df_slice_node(cx, a, from, by, &s, site);
}

/* `n` copies of one element of axis. */
static uint32_t repeat(deft_ctx *cx, uint32_t a, uint32_t axis, int64_t at, int64_t n,
                       uintptr_t site)
{
    const uint32_t one = part(cx, a, axis, at, 1, 1, site);
    if (one == DF_BAD) return DF_BAD;
    df_shape s;
    df_rec_shape(&cx->rec, one, &s);
    s.dim[axis] = n;
    return df_expand_to(cx, one, &s, site);
}

/* One axis of an edge, reflect or wrap pad. */
static uint32_t pad_axis(deft_ctx *cx, uint32_t a, uint32_t axis, int64_t dim, int64_t before,
                         int64_t after, deft_pad_mode mode, uintptr_t site)
{
    uint32_t piece[3];
    size_t n = 0;
    if (before)
        piece[n++] = mode == DEFT_PAD_EDGE      ? repeat(cx, a, axis, 0, before, site)
                     : mode == DEFT_PAD_REFLECT ? part(cx, a, axis, before, -1, before, site)
                                                : part(cx, a, axis, dim - before, 1, before, site);
    piece[n++] = a;
    if (after)
        piece[n++] = mode == DEFT_PAD_EDGE      ? repeat(cx, a, axis, dim - 1, after, site)
                     : mode == DEFT_PAD_REFLECT ? part(cx, a, axis, dim - 2, -1, after, site)
                                                : part(cx, a, axis, 0, 1, after, site);
    for (size_t i = 0; i < n; i++)
        if (piece[i] == DF_BAD) return DF_BAD;
    return df_join(cx, piece, n, axis, site);
}

uint32_t df_surround(deft_ctx *cx, uint32_t a, const int64_t *before, uint32_t fill,
                     const df_shape *out, uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    df_shape s;
    df_rec_shape(&cx->rec, a, &s);
    int64_t start[DEFT_MAX_RANK], step[DEFT_MAX_RANK];
    bool nothing = false;
    for (uint32_t i = 0; i < s.rank; i++) {
        start[i] = s.dim[i] ? before[i] : 0;
        step[i] = 1;
        nothing |= s.dim[i] == 0;
    }
    const uint32_t base = df_expand_to(cx, fill, out, site);
    if (nothing || base == DF_BAD) return base;
    const uint32_t place = df_slice_node(cx, base, start, step, &s, site);
    const uint32_t src[3] = { base, a, place };
    return df_append(cx, DF_OP_update, df_dtype_at(cx, a), 0, src, NULL, 0, NULL, site);
}

deft_tensor *deft_pad(deft_tensor *t, const int64_t *before, const int64_t *after,
                      deft_pad_mode mode, double value)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("pad", t, &a, &s);
    if (!cx) return NULL;
    const uintptr_t site = DF_SITE;
    if (s.rank && (!before || !after))
        return df_error(cx, DEFT_E_ARG, "pad: before or after is NULL");
    if ((unsigned)mode > DEFT_PAD_WRAP) return df_error(cx, DEFT_E_ARG, "pad: mode %d", (int)mode);
    deft_shape grown = { .rank = s.rank };
    df_shape out;
    for (uint32_t i = 0; i < s.rank; i++) {
        const int64_t most = mode == DEFT_PAD_CONSTANT  ? INT64_MAX
                             : mode == DEFT_PAD_EDGE    ? (s.dim[i] ? INT64_MAX : 0)
                             : mode == DEFT_PAD_REFLECT ? df_max_i64(s.dim[i] - 1, 0)
                                                        : s.dim[i];
        if (before[i] < 0 || after[i] < 0 || before[i] > most || after[i] > most)
            return df_error(cx, DEFT_E_RANGE,
                            "pad: %lld before and %lld after axis %u of extent %lld",
                            (long long)before[i], (long long)after[i], i, (long long)s.dim[i]);
        if (!df_add_i64(s.dim[i], before[i], &grown.dim[i]) ||
            !df_add_i64(grown.dim[i], after[i], &grown.dim[i]))
            return df_error(cx, DEFT_E_SHAPE, "pad: axis %u overflows", i);
    }
    if (!df_check_shape(cx, "pad", &grown, &out)) return NULL;
    if (mode != DEFT_PAD_CONSTANT) {
        for (uint32_t i = 0; i < s.rank && a != DF_BAD; i++)
            if (before[i] || after[i])
                a = pad_axis(cx, a, i, s.dim[i], before[i], after[i], mode, site);
        return df_result(cx, a);
    }
    const uint32_t fill = df_number_f(cx, "pad", df_dtype_at(cx, a), value, site);
    return df_result(cx, df_surround(cx, a, before, fill, &out, site));
}

deft_tensor *deft_roll(deft_tensor *t, int64_t shift, int axis)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("roll", t, &a, &s);
    if (!cx) return NULL;
    const int at = df_check_axis(cx, "roll", axis, s.rank);
    if (at < 0) return NULL;
    const int64_t n = s.dim[at];
    if (n == 0) return df_result(cx, a);
    const int64_t by = ((shift % n) + n) % n;
    if (by == 0) return df_result(cx, a);
    const uintptr_t site = DF_SITE;
    const uint32_t piece[2] = { part(cx, a, (uint32_t)at, n - by, 1, by, site),
                                part(cx, a, (uint32_t)at, 0, 1, n - by, site) };
    if (piece[0] == DF_BAD || piece[1] == DF_BAD) return NULL;
    return df_result(cx, df_join(cx, piece, 2, (uint32_t)at, site));
}

static deft_tensor *triangle(const char *what, deft_tensor *t, int64_t diagonal, bool lower,
                             uintptr_t site)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin(what, t, &a, &s);
    if (!cx) return NULL;
    if (s.rank < 2)
        return df_error(cx, DEFT_E_SHAPE, "%s: needs at least 2 axes, has %u", what, s.rank);
    const df_shape m = { .rank = 2, .dim = { s.dim[s.rank - 2], s.dim[s.rank - 1] } };
    const uint32_t row = df_map2(cx, DF_OP_add, df_iota_node(cx, &m, 0, site),
                                 df_number_i(cx, what, DEFT_I64, diagonal, site), site);
    const uint32_t column = df_iota_node(cx, &m, 1, site);
    const uint32_t keep =
        lower ? df_map2(cx, DF_OP_le, column, row, site) : df_map2(cx, DF_OP_le, row, column, site);
    return df_result(cx, df_where(cx, keep, a, df_cst(cx, df_dtype_at(cx, a), 0, site), site));
}

deft_tensor *deft_tril(deft_tensor *t, int64_t diagonal)
{
    return triangle("tril", t, diagonal, true, DF_SITE);
}

deft_tensor *deft_triu(deft_tensor *t, int64_t diagonal)
{
    return triangle("triu", t, diagonal, false, DF_SITE);
}

/* ---- indexing ---- */

static deft_tensor *take(deft_ctx *cx, df_op op, uint32_t a, uint32_t i, int axis, uintptr_t site)
{
    const uint32_t src[2] = { a, df_to(cx, i, DEFT_I64, site) };
    return df_result(
        cx, df_append(cx, op, df_dtype_at(cx, a), (uint32_t)axis, src, NULL, 0, NULL, site));
}

static deft_tensor *index_op(df_op op, deft_tensor *t, deft_tensor *indices, int axis,
                             uintptr_t site)
{
    uint32_t a;
    df_shape s;
    const char *const what = df_op_infos[op].name;
    deft_ctx *const cx = df_begin(what, t, &a, &s);
    if (!cx) return NULL;
    const int at = df_check_axis(cx, what, axis, s.rank);
    const uint32_t i = at < 0 ? DF_BAD : more(cx, what, 2, indices);
    if (i == DF_BAD) return NULL;
    if (!df_is_int(df_dtype_at(cx, i)))
        return df_error(cx, DEFT_E_DTYPE, "%s: indices are %s, not integers", what,
                        deft_dtype_name(df_dtype_at(cx, i)));
    return take(cx, op, a, i, at, site);
}

deft_tensor *deft_take(deft_tensor *t, deft_tensor *indices, int axis)
{
    return index_op(DF_OP_take, t, indices, axis, DF_SITE);
}

deft_tensor *deft_gather(deft_tensor *t, deft_tensor *indices, int axis)
{
    return index_op(DF_OP_gather, t, indices, axis, DF_SITE);
}

deft_tensor *deft_embedding(deft_tensor *table, deft_tensor *indices)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("embedding", table, &a, &s);
    if (!cx) return NULL;
    const uint32_t i = more(cx, "embedding", 2, indices);
    if (i == DF_BAD) return NULL;
    if (s.rank && df_is_int(df_dtype_at(cx, i))) return take(cx, DF_OP_take, a, i, 0, DF_SITE);
    char text[DF_SHAPE_TEXT];
    return df_error(cx, DEFT_E_SHAPE,
                    "embedding: the table is %s, indices are %s; it takes a table [entries, ...] "
                    "and integers",
                    df_shape_text(&s, text, sizeof text), deft_dtype_name(df_dtype_at(cx, i)));
}

/* indices[...] == class, with a class axis of extent n appended; bool. */
static uint32_t one_hot(deft_ctx *cx, uint32_t indices, int64_t n, uintptr_t site)
{
    if (indices == DF_BAD) return DF_BAD;
    const deft_dtype t = df_dtype_at(cx, indices);
    const uint32_t rank = cx->rec.nodes[indices].rank;
    const uint32_t column =
        df_append(cx, DF_OP_unsqueeze, t, 1u << rank, &indices, NULL, 0, NULL, site);
    const df_shape classes = { .rank = 1, .dim = { n } };
    return df_map2(cx, DF_OP_eq, column, df_iota_node(cx, &classes, 0, site), site);
}

deft_tensor *deft_one_hot(deft_tensor *indices, int64_t n_classes, deft_dtype dtype)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("one_hot", indices, &a, &s);
    if (!cx) return NULL;
    if (!df_is_int(df_dtype_at(cx, a)) || s.rank == DEFT_MAX_RANK || n_classes < 0)
        return df_error(cx, DEFT_E_ARG, "one_hot: %lld classes of %u-d %s indices",
                        (long long)n_classes, s.rank, deft_dtype_name(df_dtype_at(cx, a)));
    return df_result(cx, df_to(cx, one_hot(cx, a, n_classes, DF_SITE), dtype, DF_SITE));
}

/* ---- products ---- */

deft_tensor *deft_matmul(deft_tensor *a, deft_tensor *b)
{
    uint32_t na;
    df_shape sa, sb, want;
    deft_ctx *const cx = df_begin("matmul", a, &na, &sa);
    if (!cx) return NULL;
    const uintptr_t site = DF_SITE;
    uint32_t nb = more(cx, "matmul", 2, b);
    if (nb == DF_BAD) return NULL;
    df_rec_shape(&cx->rec, nb, &sb);
    char ta[DF_SHAPE_TEXT], tb[DF_SHAPE_TEXT];
    if (!sa.rank || !sb.rank)
        return df_error(cx, DEFT_E_SHAPE, "matmul: a is %s, b is %s",
                        df_shape_text(&sa, ta, sizeof ta), df_shape_text(&sb, tb, sizeof tb));
    deft_dtype t = df_promote(df_dtype_at(cx, na), df_dtype_at(cx, nb));
    if (!df_is_float(t)) t = DEFT_F32;
    const deft_dtype to = t;
    t = df_arithmetic_dtype(t);
    uint32_t gone = 0;
    na = df_to(cx, na, t, site);
    nb = df_to(cx, nb, t, site);
    if (sa.rank == 1) na = df_append(cx, DF_OP_unsqueeze, t, 1, &na, NULL, 0, NULL, site);
    if (sb.rank == 1) nb = df_append(cx, DF_OP_unsqueeze, t, 2, &nb, NULL, 0, NULL, site);
    if (na == DF_BAD || nb == DF_BAD) return NULL;
    const bool row = sa.rank == 1, column = sb.rank == 1;
    df_rec_shape(&cx->rec, na, &sa);
    df_rec_shape(&cx->rec, nb, &sb);
    /* Batch axes broadcast; the products themselves see equal ones. */
    const uint32_t rank = sa.rank > sb.rank ? sa.rank : sb.rank;
    want.rank = rank;
    for (uint32_t i = 0; i + 2 < rank; i++) {
        const int64_t da = i + sa.rank >= rank ? sa.dim[i + sa.rank - rank] : 1;
        const int64_t db = i + sb.rank >= rank ? sb.dim[i + sb.rank - rank] : 1;
        if (da != db && da != 1 && db != 1)
            return df_error(cx, DEFT_E_SHAPE, "matmul: batch axes differ: a is %s, b is %s",
                            df_shape_text(&sa, ta, sizeof ta), df_shape_text(&sb, tb, sizeof tb));
        want.dim[i] = da == 1 ? db : da;
    }
    df_shape full = want;
    full.dim[rank - 2] = sa.dim[sa.rank - 2];
    full.dim[rank - 1] = sa.dim[sa.rank - 1];
    if (!df_shape_equal(&full, &sa)) na = df_expand_to(cx, na, &full, site);
    full.dim[rank - 2] = sb.dim[sb.rank - 2];
    full.dim[rank - 1] = sb.dim[sb.rank - 1];
    if (!df_shape_equal(&full, &sb)) nb = df_expand_to(cx, nb, &full, site);
    const uint32_t src[2] = { na, nb };
    uint32_t out = df_append(cx, DF_OP_matmul, t, 0, src, NULL, 0, NULL, site);
    if (row) gone |= 1u << (rank - 2);
    if (column) gone |= 1u << (rank - 1);
    if (gone && out != DF_BAD)
        out = df_append(cx, DF_OP_squeeze, t, gone, &out, NULL, 0, NULL, site);
    return rounded(cx, out, to, site);
}

/* ---- normalizations and losses ---- */

/* x - max(x) along the axes: what keeps exp in range. */
static uint32_t shifted(deft_ctx *cx, uint32_t a, uint32_t mask, uintptr_t site)
{
    a = as_float(cx, a, site);
    return df_map2(cx, DF_OP_sub, a, df_reduce(cx, DF_OP_max, a, mask, true, site), site);
}

static uint32_t log_softmax(deft_ctx *cx, uint32_t a, uint32_t mask, uintptr_t site)
{
    const uint32_t x = shifted(cx, a, mask, site);
    const uint32_t s = df_reduce(cx, DF_OP_sum, df_map1(cx, DF_OP_exp, x, site), mask, true, site);
    return df_map2(cx, DF_OP_sub, x, df_map1(cx, DF_OP_log, s, site), site);
}

deft_tensor *deft_softmax(deft_tensor *t, int axis)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("softmax", t, &a, &s);
    if (!cx) return NULL;
    const int at = df_check_axis(cx, "softmax", axis, s.rank);
    if (at < 0) return NULL;
    const uintptr_t site = DF_SITE;
    const uint32_t e = df_map1(cx, DF_OP_exp, shifted(cx, a, 1u << at, site), site);
    const uint32_t sum = df_reduce(cx, DF_OP_sum, e, 1u << at, true, site);
    return rounded(cx, df_map2(cx, DF_OP_div, e, sum, site), df_dtype_at(cx, a), site);
}

deft_tensor *deft_log_softmax(deft_tensor *t, int axis)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("log_softmax", t, &a, &s);
    if (!cx) return NULL;
    const int at = df_check_axis(cx, "log_softmax", axis, s.rank);
    if (at < 0) return NULL;
    return rounded(cx, log_softmax(cx, a, 1u << at, DF_SITE), df_dtype_at(cx, a), DF_SITE);
}

deft_tensor *deft_layer_norm(deft_tensor *t, uint32_t n_axes, deft_tensor *gain, deft_tensor *bias,
                             double eps)
{
    uint32_t a, centred;
    df_shape s;
    deft_ctx *const cx = df_begin("layer_norm", t, &a, &s);
    if (!cx) return NULL;
    if (n_axes == 0 || n_axes > s.rank)
        return df_error(cx, DEFT_E_RANGE, "layer_norm: over %u of %u axes", n_axes, s.rank);
    const uintptr_t site = DF_SITE;
    const uint32_t mask = ((1u << n_axes) - 1) << (s.rank - n_axes);
    deft_dtype met = df_dtype_at(cx, a);
    const uint32_t v = variance(cx, a, mask, true, 0, &centred, site);
    if (v == DF_BAD) return NULL;
    const uint32_t e = df_number_f(cx, "layer_norm", df_dtype_at(cx, v), eps, site);
    const uint32_t d = df_map1(cx, DF_OP_sqrt, df_map2(cx, DF_OP_add, v, e, site), site);
    uint32_t out = df_map2(cx, DF_OP_div, centred, d, site);
    deft_tensor *const last[2] = { gain, bias };
    for (unsigned i = 0; i < 2; i++) {
        if (!last[i]) continue;
        const uint32_t by = more(cx, "layer_norm", 3 + i, last[i]);
        if (by == DF_BAD) return NULL;
        met = df_promote(met, df_dtype_at(cx, by));
        out = df_map2(cx, i ? DF_OP_add : DF_OP_mul, out, lifted(cx, by, site), site);
    }
    return rounded(cx, out, met, site);
}

deft_tensor *deft_rms_norm(deft_tensor *t, uint32_t n_axes, deft_tensor *gain, double eps)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin("rms_norm", t, &a, &s);
    if (!cx) return NULL;
    if (n_axes == 0 || n_axes > s.rank)
        return df_error(cx, DEFT_E_RANGE, "rms_norm: over %u of %u axes", n_axes, s.rank);
    const uintptr_t site = DF_SITE;
    const uint32_t mask = ((1u << n_axes) - 1) << (s.rank - n_axes);
    a = as_float(cx, a, site);
    const uint32_t m = mean(cx, df_map1(cx, DF_OP_square, a, site), mask, true, site);
    if (m == DF_BAD) return NULL;
    const uint32_t e = df_number_f(cx, "rms_norm", df_dtype_at(cx, m), eps, site);
    const uint32_t d = df_map1(cx, DF_OP_sqrt, df_map2(cx, DF_OP_add, m, e, site), site);
    uint32_t out = df_map2(cx, DF_OP_div, a, d, site);
    if (gain) out = df_map2(cx, DF_OP_mul, out, more(cx, "rms_norm", 3, gain), site);
    return df_result(cx, out);
}

deft_tensor *deft_cross_entropy(deft_tensor *logits, deft_tensor *labels)
{
    uint32_t a;
    df_shape s, sl;
    deft_ctx *const cx = df_begin("cross_entropy", logits, &a, &s);
    if (!cx) return NULL;
    const uintptr_t site = DF_SITE;
    const uint32_t l = more(cx, "cross_entropy", 2, labels);
    if (l == DF_BAD) return NULL;
    df_rec_shape(&cx->rec, l, &sl);
    char ta[DF_SHAPE_TEXT], tb[DF_SHAPE_TEXT];
    if (s.rank != 2 || sl.rank != 1 || sl.dim[0] != s.dim[0] || !df_is_int(df_dtype_at(cx, l)))
        return df_error(cx, DEFT_E_SHAPE,
                        "cross_entropy: logits %s need integer labels [%lld], labels are %s %s",
                        df_shape_text(&s, ta, sizeof ta), (long long)(s.rank ? s.dim[0] : 0),
                        deft_dtype_name(df_dtype_at(cx, l)), df_shape_text(&sl, tb, sizeof tb));
    /* The chosen log-probability as a masked sum: it fuses into the row kernel. A row whose label
     * is no class has no true mask, so count the hits to give NaN there. */
    const uint32_t lp = log_softmax(cx, a, 2, site);
    const uint32_t hit = one_hot(cx, l, s.dim[1], site);
    if (lp == DF_BAD || hit == DF_BAD) return NULL;
    const deft_dtype t = df_dtype_at(cx, lp);
    const uint32_t zero = df_cst(cx, t, 0, site);
    const uint32_t picked =
        df_reduce(cx, DF_OP_sum, df_where(cx, hit, lp, zero, site), 2, false, site);
    const uint32_t found = df_reduce(cx, DF_OP_any, hit, 2, false, site);
    const uint32_t nan = df_map2(cx, DF_OP_div, zero, zero, site);
    const uint32_t row = df_where(cx, found, df_map1(cx, DF_OP_neg, picked, site), nan, site);
    return rounded(cx, mean(cx, row, 1, false, site), df_dtype_at(cx, a), site);
}
