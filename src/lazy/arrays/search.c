/* SPDX-License-Identifier: Apache-2.0
 *
 * Searching: sorted vectors, sets, distinct values (deft/array.h).
 *
 * A search is binary and has no branch. `pos` is the number of elements that are known to be
 * before the value, and `left` is the number of positions that are possible. Each step looks at the
 * element in the middle of them, and goes over half of them or not. So it never leaves the vector.
 * All steps are one kernel of log2(n) loads per value, over vectors of values.
 */
#define DEFT_NO_GENERIC
#include "deft/array.h"
#include "deft/ops.h"
#include "lazy/arrays/arrays.h"
#include "lazy/calls/sizes.h"
#include "lazy/core/context.h"

enum { FEW_ELEMENTS = 16 }; /* of a set that is compared element by element */

static deft_tensor *search_whole(deft_ctx *cx, int64_t value)
{
    return df_array_whole(cx, DEFT_I64, value);
}

/* ---- sorted vectors ---- */

/* Whether element x is before value v: less, or with `right` not greater, where NaN is the
 * greatest. */
static deft_tensor *precedes(deft_tensor *x, deft_tensor *v, bool right)
{
    if (!df_is_float(deft_dtype_of(x))) return right ? deft_le(x, v) : deft_lt(x, v);
    deft_tensor *const is_less = deft_logical_not(right ? deft_lt(v, x) : deft_le(v, x));
    deft_tensor *const is_number = deft_eq(x, x);
    return deft_bitwise_and(is_less, right ? deft_bitwise_or(is_number, deft_ne(v, v)) : is_number);
}

/* The dtype of positions in n elements. Shorter integers are more lanes of a vector. */
static deft_dtype dtype_of_places(int64_t n)
{
    return n < INT32_MAX ? DEFT_I32 : DEFT_I64;
}

/* Positions in `sorted`, of its dtype_of_places. */
static deft_tensor *place_in(deft_ctx *cx, deft_tensor *sorted, deft_tensor *v, bool right)
{
    const int64_t n = deft_dim(sorted, 0);
    const deft_dtype t = dtype_of_places(n);
    deft_tensor *pos = deft_zeros(cx, deft_shape_get(v), t);
    for (int64_t left = n + 1; left > 1 && pos; left -= left / 2) {
        deft_tensor *const at = deft_add(pos, df_array_whole(cx, t, left / 2 - 1));
        deft_tensor *const goes = precedes(deft_take(sorted, at, 0), v, right);
        pos = deft_where(goes, deft_add(pos, df_array_whole(cx, t, left / 2)), pos);
    }
    return pos;
}

static deft_tensor *search(deft_ctx *cx, deft_tensor *sorted, deft_tensor *v, bool right)
{
    return deft_cast(place_in(cx, sorted, v, right), DEFT_I64);
}

/* Checks the vector that is searched. */
static bool check_vector(deft_ctx *cx, const char *what, deft_tensor *sorted)
{
    const uint32_t rank = deft_rank(sorted);
    const int64_t n = deft_numel(sorted);
    if (rank != 1) {
        df_error(cx, DEFT_E_SHAPE, "%s: the sorted tensor has %u axes, not 1", what, rank);
        return false;
    }
    if (n < (int64_t)1 << 32) return true;
    df_error(cx, DEFT_E_LIMIT, "%s: %lld elements, at most 2^32 - 1", what, (long long)n);
    return false;
}

deft_tensor *deft_searchsorted(deft_tensor *sorted, deft_tensor *values, bool right)
{
    deft_tensor *met[2];
    deft_dtype t;
    deft_ctx *const cx = df_array_meet("searchsorted", sorted, values, met, &t, DF_SITE);
    if (!cx || !check_vector(cx, "searchsorted", met[0])) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, search(cx, met[0], met[1], right));
}

deft_tensor *deft_count_nonzero(deft_tensor *t, deft_axes axes, bool keepdims)
{
    df_shape s;
    uint32_t mask;
    deft_ctx *const cx = df_array_begin_faced("count_nonzero", t, &s, DF_SITE);
    if (!cx || !df_check_axes(cx, "count_nonzero", &axes, s.rank, &mask)) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, deft_sum(deft_cast(t, DEFT_BOOL), axes, keepdims));
}

/* ---- distinct values ---- */

/* The vector in order, and the places where a value begins. */
typedef struct runs {
    deft_tensor *order; /* integers; stable, so the first of each run is the first in the vector */
    deft_tensor *sorted;
    deft_tensor *begins; /* bools */
} runs;

/* Whether element `sorted` of a vector in order differs from the one before. All NaNs are equal. */
static deft_tensor *differs_from(deft_tensor *sorted, deft_tensor *before)
{
    const deft_dtype t = deft_dtype_of(sorted);
    deft_tensor *const differs = deft_ne(sorted, before);
    if (!df_is_float(t) && !df_is_complex(t)) return differs;
    return deft_bitwise_and(differs, deft_eq(before, before));
}

/* The stable order of complex numbers by their real parts, then by their imaginary parts. Numbers
 * that are NaN in either part count as equal, and come last. */
static deft_tensor *complex_order(deft_tensor *v)
{
    deft_tensor *const re = deft_real(v), *const im = deft_imag(v);
    deft_tensor *const is_nan = deft_isnan(v), *const sum = deft_add(re, im);
    deft_tensor *const by_im = deft_argsort(deft_where(is_nan, sum, im), 0, false);
    deft_tensor *const sorted = deft_take(deft_where(is_nan, sum, re), by_im, 0);
    return deft_take(by_im, deft_argsort(sorted, 0, false), 0);
}

/* Whether each element of a vector in order is the first of its value. There is an element. */
static deft_tensor *begins_of(deft_ctx *cx, deft_tensor *sorted)
{
    const deft_shape one = { .rank = 1, .dim = { 1 } };
    const int64_t n = deft_numel(sorted) - 1;
    deft_tensor *const both[2] = {
        deft_ones(cx, one, DEFT_BOOL),
        differs_from(df_array_part(sorted, 0, 1, n), df_array_part(sorted, 0, 0, n)),
    };
    return deft_concat(both, 2, 0);
}

/* Integers of 32 bits are sorted together with their indices, as the upper and the lower half of
 * words. So nothing has to be fetched in their order. */
static runs runs_of_words(deft_ctx *cx, deft_tensor *v)
{
    enum { HALF = 32 };
    const deft_dtype t = deft_dtype_of(v), as = df_is_signed(t) ? DEFT_I64 : DEFT_U64;
    deft_tensor *const half = df_array_whole(cx, as, HALF);
    deft_tensor *const index = deft_cast(deft_iota(cx, deft_shape_get(v), 0), as);
    deft_tensor *const upper = deft_shift_left(deft_cast(v, as), half);
    deft_tensor *const words = deft_sort(deft_bitwise_or(upper, index), 0, false);
    const deft_dtype place = dtype_of_places(deft_numel(v));
    runs r = { .order = deft_cast(deft_cast(words, DEFT_U32), place) };
    r.sorted = deft_cast(deft_shift_right(words, half), t);
    r.begins = begins_of(cx, r.sorted);
    return r;
}

static runs runs_of(deft_ctx *cx, deft_tensor *v)
{
    const bool is_complex = df_is_complex(deft_dtype_of(v));
    runs r = { .order = is_complex ? complex_order(v) : deft_argsort(v, 0, false) };
    r.sorted = deft_take(v, r.order, 0);
    deft_tensor *const i = deft_iota(cx, deft_shape_get(v), 0);
    /* The first element is compared with the last one, at -1, and begins a run anyway. Slices of
     * `sorted` would be fetched from v once more. */
    deft_tensor *const before = deft_take(r.sorted, deft_sub(i, search_whole(cx, 1)), 0);
    r.begins = deft_bitwise_or(differs_from(r.sorted, before), deft_eq(i, search_whole(cx, 0)));
    return r;
}

typedef struct distinct {
    deft_tensor *values, *indices, *inverse, *counts, *count;
} distinct;

static distinct no_values(deft_ctx *cx, deft_tensor *t, int64_t max)
{
    const deft_shape rows = { .rank = 1, .dim = { max } };
    return (distinct){ .values = deft_zeros(cx, rows, deft_dtype_of(t)),
                       .indices = deft_zeros(cx, rows, DEFT_I64),
                       .inverse = deft_zeros(cx, deft_shape_get(t), DEFT_I64),
                       .counts = deft_zeros(cx, rows, DEFT_I64),
                       .count = search_whole(cx, 0) };
}

static distinct distinct_of(deft_ctx *cx, deft_tensor *t, int64_t max)
{
    distinct d = { 0 };
    const int64_t n = deft_numel(t);
    const deft_shape rows = { .rank = 1, .dim = { max } }, line = { .rank = 1, .dim = { n } };
    if (n == 0) return no_values(cx, t, max);
    const bool is_half = df_is_int(deft_dtype_of(t)) && deft_dtype_size(deft_dtype_of(t)) == 4;
    deft_tensor *const v = deft_flatten(t);
    const runs r = is_half ? runs_of_words(cx, v) : runs_of(cx, v);
    d.values = deft_compress(r.sorted, r.begins, max, &d.count);
    d.indices = deft_cast(deft_compress(r.order, r.begins, max, NULL), DEFT_I64);
    /* One row more than is wanted: the last run ends where the next one begins. */
    deft_tensor *const starts = deft_flatten(deft_nonzero(r.begins, max + 1, NULL));
    deft_tensor *const at = df_array_part(starts, 0, 0, max);
    deft_tensor *const next = df_array_part(starts, 0, 1, max);
    deft_tensor *const row = deft_iota(cx, rows, 0), *const zero = search_whole(cx, 0);
    deft_tensor *const is = deft_lt(row, d.count);
    deft_tensor *const is_followed = deft_lt(deft_add(row, search_whole(cx, 1)), d.count);
    d.counts =
        deft_where(is, deft_sub(deft_where(is_followed, next, search_whole(cx, n)), at), zero);
    /* Memory is what limits these: short integers are half of it. */
    const deft_dtype as = dtype_of_places(n);
    deft_tensor *const rank =
        deft_sub(deft_cast(deft_cumsum(r.begins, 0), as), df_array_whole(cx, as, 1));
    deft_tensor *const inverse = deft_index_add(deft_zeros(cx, line, as), r.order, rank, 0);
    d.inverse = deft_reshape(deft_cast(inverse, DEFT_I64), deft_shape_get(t));
    return d;
}

/* Hands out what is wanted of d: all or nothing. */
static deft_tensor *distinct_hand_out(const distinct *d, deft_tensor **indices,
                                      deft_tensor **inverse, deft_tensor **counts,
                                      deft_tensor **count)
{
    if (!d->values || !d->indices || !d->inverse || !d->counts || !d->count) return NULL;
    if (indices) *indices = d->indices;
    if (inverse) *inverse = d->inverse;
    if (counts) *counts = d->counts;
    if (count) *count = d->count;
    return d->values;
}

static deft_tensor *unique_all(deft_ctx *cx, deft_tensor *t, int64_t max, deft_tensor **indices,
                               deft_tensor **inverse, deft_tensor **counts, deft_tensor **count)
{
    const distinct d = distinct_of(cx, t, max);
    return distinct_hand_out(&d, indices, inverse, counts, count);
}

static deft_tensor *values_alone(deft_ctx *cx, deft_tensor *t, int64_t max, deft_tensor **count)
{
    if (df_face_of(t) || deft_numel(t) == 0) return unique_all(cx, t, max, NULL, NULL, NULL, count);
    deft_tensor *const sorted = deft_sort(deft_flatten(t), 0, false);
    return deft_compress(sorted, begins_of(cx, sorted), max, count);
}

deft_tensor *deft_unique(deft_tensor *t, int64_t max, deft_tensor **count)
{
    df_shape s, room;
    if (count) *count = NULL;
    deft_ctx *const cx = df_array_begin_faced("unique", t, &s, DF_SITE);
    if (!cx || !df_check_room(cx, "unique", max, &room)) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, values_alone(cx, t, max, count));
}

deft_tensor *deft_unique_all(deft_tensor *t, int64_t max, deft_tensor **indices,
                             deft_tensor **inverse, deft_tensor **counts, deft_tensor **count)
{
    df_shape s;
    if (indices) *indices = NULL;
    if (inverse) *inverse = NULL;
    if (counts) *counts = NULL;
    if (count) *count = NULL;
    deft_ctx *const cx = df_array_begin_faced("unique_all", t, &s, DF_SITE);
    if (!cx) return NULL;
    if (max < 0 || max == INT64_MAX)
        return df_error(cx, DEFT_E_RANGE, "unique_all: room for %lld", (long long)max);
    const deft_shape rows = { .rank = 1, .dim = { max } };
    df_shape checked;
    if (!df_check_shape(cx, "unique_all", &rows, &checked)) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, unique_all(cx, t, max, indices, inverse, counts, count));
}

/* ---- sets ---- */

/* A set of integers of a small range is a table of flags, with a row for each integer of the range.
 * Whether the range is small is known when the set is. Then a branch decides, which costs the step
 * the donation of its inputs. The integers of 8 and 16 bits all have a row and need no branch. */
enum { MOST_ROOM = 1 << 22, ROWS_PER_VALUE = 4 }; /* rows that a value pays for */

typedef struct set {
    deft_tensor *list; /* not sorted */
    deft_tensor *least;
    int64_t room; /* rows of the table */
} set;

/* How far the integers of t are above the least one of the set, as unsigned integers. */
static deft_tensor *above_least(const set *x, deft_tensor *t)
{
    static const uint8_t natural[] = {
        [1] = DEFT_U8, [2] = DEFT_U16, [4] = DEFT_U32, [8] = DEFT_U64
    };
    return deft_cast(deft_sub(t, x->least), natural[deft_dtype_size(deft_dtype_of(t))]);
}

/* Whether the table has a row for each of these distances. NULL: for all of their dtype. */
static deft_tensor *has_row(deft_ctx *cx, const set *x, deft_tensor *above)
{
    const deft_dtype t = deft_dtype_of(above);
    return deft_dtype_size(t) < 4 ? NULL : deft_lt(above, df_array_whole(cx, t, x->room));
}

/* The rows of these distances. Those without a row get row 0, which the least integer has. */
static deft_tensor *set_row(deft_ctx *cx, deft_tensor *above, deft_tensor *is)
{
    deft_tensor *const row = deft_cast(above, DEFT_I32);
    return is ? deft_where(is, row, df_array_whole(cx, DEFT_I32, 0)) : row;
}

/* When both branches of a deft_vmap are computed, elements of the set may be without a row. */
static deft_tensor *is_in_table(deft_ctx *cx, const set *x, deft_tensor *t)
{
    const deft_shape rows = { .rank = 1, .dim = { x->room } };
    deft_tensor *const list = above_least(x, x->list), *const above = above_least(x, t);
    deft_tensor *const is = has_row(cx, x, above);
    deft_tensor *const table =
        deft_index_copy(deft_zeros(cx, rows, DEFT_I32), set_row(cx, list, has_row(cx, x, list)),
                        deft_const_i(cx, 1), 0);
    deft_tensor *const found =
        deft_ne(deft_take(table, set_row(cx, above, is), 0), df_array_whole(cx, DEFT_I32, 0));
    return is ? deft_bitwise_and(is, found) : found;
}

static deft_tensor *is_found(deft_ctx *cx, deft_tensor *list, deft_tensor *t)
{
    const int64_t n = deft_numel(list);
    deft_tensor *const sorted = deft_sort(list, 0, false);
    deft_tensor *const last = df_array_whole(cx, dtype_of_places(n), n - 1);
    deft_tensor *const at = deft_minimum(place_in(cx, sorted, t, false), last);
    return deft_eq(deft_take(sorted, at, 0), t);
}

static deft_status by_table(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    df_assert(n_in == 1 && n_out == 1);
    out[0] = is_in_table(cx, user, in[0]);
    return DEFT_OK;
}

static deft_status by_search(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    df_assert(n_in == 1 && n_out == 1);
    out[0] = is_found(cx, ((const set *)user)->list, in[0]);
    return DEFT_OK;
}

/* The rows of a table for a search of n values of dtype t. */
static int64_t set_room(deft_dtype t, int64_t n)
{
    int64_t room = deft_dtype_size(t) == 1 ? 1 << 8 : 1 << 16;
    while (deft_dtype_size(t) > 2 && room < n && room < MOST_ROOM) room *= 2;
    return room;
}

/* Looks integers up in a table when the range of the set is small, and else by a search. */
static deft_tensor *is_among_integers(deft_ctx *cx, deft_tensor *t, deft_tensor *list, int64_t room)
{
    const deft_axes all = { .n = UINT32_MAX };
    set x = { .list = list, .least = deft_min(list, all, false), .room = room };
    deft_tensor *const is_small = has_row(cx, &x, above_least(&x, deft_max(list, all, false)));
    deft_tensor *found;
    if (!is_small) return is_in_table(cx, &x, t);
    return deft_cond(is_small, by_table, by_search, &x, &t, 1, &found, 1) ? found : NULL;
}

static deft_tensor *is_among(deft_ctx *cx, deft_tensor *t, deft_tensor *elements)
{
    const int64_t n = deft_numel(elements);
    deft_tensor *const list = deft_flatten(elements);
    deft_tensor *found = deft_zeros(cx, deft_shape_get(t), DEFT_BOOL);
    if (n <= FEW_ELEMENTS) {
        for (int64_t i = 0; i < n && found; i++)
            found =
                deft_bitwise_or(found, deft_eq(t, deft_slice_n(list, 1, &(deft_range){ i, i, 0 })));
        return found;
    }
    const deft_dtype dtype = deft_dtype_of(t);
    const int64_t room = set_room(dtype, deft_numel(t));
    /* With a branch the host would wait for a GPU. */
    const bool may_decide = deft_dtype_size(dtype) <= 2 || cx->default_device == DEFT_CPU;
    return df_is_int(dtype) && may_decide && deft_numel(t) >= room / ROWS_PER_VALUE
               ? is_among_integers(cx, t, list, room)
               : is_found(cx, list, t);
}

/* Complex numbers are compared by their places among the distinct ones. */
static deft_tensor *is_complex_among(deft_ctx *cx, deft_tensor *t, deft_tensor *list)
{
    deft_tensor *const both[2] = { list, deft_flatten(t) };
    const int64_t n = deft_numel(list);
    deft_tensor *const place = distinct_of(cx, deft_concat(both, 2, 0), 0).inverse;
    deft_tensor *const own = df_array_part(place, 0, n, deft_numel(t));
    deft_tensor *const found = is_among(cx, own, df_array_part(place, 0, 0, n));
    return deft_bitwise_and(deft_reshape(found, deft_shape_get(t)), deft_eq(t, t));
}

static deft_tensor *isin(deft_ctx *cx, deft_tensor *const *met, bool invert)
{
    const bool by_place = df_is_complex(deft_dtype_of(met[0])) && deft_numel(met[1]) > FEW_ELEMENTS;
    deft_tensor *const found = by_place ? is_complex_among(cx, met[0], deft_flatten(met[1]))
                                        : is_among(cx, met[0], met[1]);
    return invert ? deft_logical_not(found) : found;
}

deft_tensor *deft_isin(deft_tensor *t, deft_tensor *elements, bool invert)
{
    deft_tensor *met[2];
    deft_dtype as;
    deft_ctx *const cx = df_array_meet_faced("isin", t, elements, met, &as, DF_SITE);
    if (!cx) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, isin(cx, met, invert));
}

/* ---- repetition by data ---- */

static deft_tensor *search_repeat(deft_ctx *cx, deft_tensor *t, deft_tensor *repeats, int axis,
                                  int64_t total)
{
    deft_shape s = deft_shape_get(t), line = { .rank = 1, .dim = { total } };
    deft_shape own = { .rank = 1, .dim = { s.dim[axis] } }, out = s, across = { .rank = s.rank };
    out.dim[axis] = total;
    if (s.dim[axis] == 0) return deft_zeros(cx, out, deft_dtype_of(t));
    deft_tensor *const n = deft_maximum(deft_cast(repeats, DEFT_I64), search_whole(cx, 0));
    deft_tensor *const ends = deft_cumsum(deft_expand(n, own), 0);
    deft_tensor *const row = deft_iota(cx, line, 0);
    deft_tensor *const at = search(cx, ends, row, true);
    deft_tensor *const rows =
        deft_take(t, deft_minimum(at, search_whole(cx, s.dim[axis] - 1)), axis);
    for (uint32_t i = 0; i < s.rank; i++) across.dim[i] = i == (uint32_t)axis ? total : 1;
    deft_tensor *const is = deft_reshape(deft_lt(at, search_whole(cx, s.dim[axis])), across);
    return deft_where(is, rows, deft_zeros(cx, deft_shape_of(0, NULL), deft_dtype_of(t)));
}

deft_tensor *deft_repeat_t(deft_tensor *t, deft_tensor *repeats, int axis, int64_t total)
{
    df_shape s, n;
    deft_ctx *const cx = df_array_begin_faced("repeat_t", t, &s, DF_SITE);
    if (!cx || !df_enter_more(cx, "repeat_t", 2, repeats)) return NULL;
    const int at = df_check_axis(cx, "repeat_t", axis, s.rank);
    if (at < 0) return NULL;
    df_tensor_shape(cx, repeats, &n);
    char text[DF_SHAPE_TEXT];
    if (!df_is_int(deft_dtype_of(repeats)))
        return df_error(cx, DEFT_E_DTYPE, "repeat_t: repeats are %s, not integers",
                        deft_dtype_name(deft_dtype_of(repeats)));
    if (n.rank > 1 || (n.rank == 1 && n.dim[0] != s.dim[at] && n.dim[0] != 1))
        return df_error(cx, DEFT_E_SHAPE, "repeat_t: repeats are %s, axis %d has %lld elements",
                        df_shape_text(&n, text, sizeof text), at, (long long)s.dim[at]);
    if (total < 0) return df_error(cx, DEFT_E_RANGE, "repeat_t: room for %lld", (long long)total);
    deft_shape out = df_array_shape(&s);
    out.dim[at] = total;
    if (!df_check_shape(cx, "repeat_t", &out, &n)) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, search_repeat(cx, t, repeats, at, total));
}
