/* SPDX-License-Identifier: Apache-2.0 */
#include "mixed_values.h"

/* Extents at which orders, searches, sets and scatters take other code: pieces of 16 K elements for
 * threads, tables for 16 K values, radix sorts from 4096. */
static const int64_t extents[] = { 5000, 17000, 40000, 33000 };

static deft_shape line(int64_t n)
{
    return (deft_shape){ .rank = 1, .dim = { n } };
}

static deft_tensor *whole(deft_ctx *cx, int64_t v)
{
    return deft_const_i(cx, v);
}

static deft_ctx *ctx_of(deft_tensor *t)
{
    return deft_ctx_of(t);
}

static deft_tensor *floored_mod(deft_tensor *v, int64_t by)
{
    return deft_remainder(v, whole(ctx_of(v), by));
}

/* x as i64 from 0 to 12; NaN and infinities are somewhere among them. */
static deft_tensor *small_integers(deft_tensor *x)
{
    deft_tensor *const tamed = deft_clamp(x, -4, 4);
    return deft_cast(deft_mul(deft_add(tamed, whole(ctx_of(x), 4)), deft_const_f(ctx_of(x), 1.5)),
                     DEFT_I64);
}

deft_tensor *mixed_long_values(deft_tensor *x, deft_dtype t, int64_t n, unsigned p, bool wide)
{
    deft_ctx *const cx = ctx_of(x);
    deft_tensor *const flat = deft_flatten(small_integers(x));
    deft_tensor *const i = deft_iota(cx, line(n), 0);
    deft_tensor *const at = floored_mod(deft_mul(i, whole(cx, 5 + 2 * (p % 3))), deft_numel(x));
    deft_tensor *const noise =
        floored_mod(deft_mul(deft_add(i, whole(cx, p)), whole(cx, 7919)), 101 + p % 7);
    deft_tensor *v = deft_add(deft_mul(deft_take(flat, at, 0), whole(cx, 3)), noise);
    if (wide) v = deft_mul(deft_mul(v, v), whole(cx, 1 + (INT64_C(1) << (p & 1 ? 40 : 17))));
    return deft_cast(v, t);
}

static deft_dtype long_dtype(unsigned p)
{
    static const deft_dtype all[] = { DEFT_I32, DEFT_I64, DEFT_U64, DEFT_F32, DEFT_U8,
                                      DEFT_I16, DEFT_F64, DEFT_U32, DEFT_F16, DEFT_U16 };
    return all[p % (sizeof all / sizeof *all)];
}

/* A set of integers, with as many values or few. */
static deft_tensor *looked_up(deft_tensor *x, deft_tensor *v, unsigned p, unsigned q, bool wide)
{
    deft_tensor *const set = mixed_long_values(x, deft_dtype_of(v), q & 4 ? 40 : 3000, p + 1, wide);
    return deft_isin(v, set, q & 8);
}

/* Additions to a vector that is shorter than what is added, by chunks of the values. */
static deft_tensor *scattered(deft_tensor *v, unsigned q)
{
    deft_ctx *const cx = ctx_of(v);
    const int64_t n_out = q & 4 ? 64 : 3000;
    const deft_dtype t = q & 8 ? DEFT_I32 : q & 16 ? DEFT_F32 : DEFT_I64;
    deft_tensor *const at = floored_mod(deft_cast(v, DEFT_I64), n_out);
    deft_tensor *const value = deft_cast(floored_mod(at, 5), t);
    deft_tensor *const to = deft_zeros(cx, line(n_out), t);
    if (q & 32) return deft_index_reduce(to, at, value, 0, DEFT_SCATTER_AMAX, true);
    return deft_index_add(to, at, q & 2 ? value : deft_const_i(cx, 1), 0);
}

static deft_tensor *distinct(deft_tensor *v, unsigned q)
{
    deft_tensor *inverse, *counts, *indices, *count;
    deft_tensor *const values = deft_unique_all(v, 700, &indices, &inverse, &counts, &count);
    switch (q / 4 % 4) {
    case 0: return inverse;
    case 1: return deft_add(deft_cast(counts, DEFT_I64), count);
    case 2: return indices;
    default: return deft_unique(v, 700, NULL) ? values : NULL;
    }
}

/* Rows that are long enough for stages of their own, of whole numbers. */
static deft_tensor *rows(deft_tensor *v, unsigned q)
{
    deft_ctx *const cx = ctx_of(v);
    const int64_t n = deft_numel(v) / 4;
    deft_tensor *const x = deft_cast(floored_mod(deft_cast(v, DEFT_I64), 9), DEFT_F32);
    deft_tensor *const r = deft_reshape(deft_slice(x, DEFT_R(0, 4 * n)), DEFT_SHAPE(4, n));
    deft_tensor *const best = deft_max(r, DEFT_AXES(1), true);
    deft_tensor *const far = deft_sub(best, r);
    switch (q / 4 % 4) {
    case 0: return deft_sort(r, 1, q & 16);
    case 1: return deft_add(far, deft_max(deft_square(far), DEFT_AXES(1), true));
    case 2:
        return deft_mul(
            far, deft_sum(deft_cast(deft_eq(far, whole(cx, 1)), DEFT_F32), DEFT_AXES(1), true));
    default: return deft_cumsum(far, 1);
    }
}

deft_tensor *mixed_long_work(deft_tensor *x, unsigned p, unsigned q)
{
    deft_ctx *const cx = ctx_of(x);
    const int64_t n = extents[q % 4];
    const bool wide = p & 32;
    const deft_dtype t = long_dtype(p / 2 + q);
    deft_tensor *const v = mixed_long_values(x, t, n, p, wide);
    deft_tensor *at = NULL, *r;
    switch (p % 12) {
    case 0:
    case 1: r = looked_up(x, v, p, q, wide); break;
    case 2: r = deft_sort(v, 0, q & 4); break;
    case 3: r = deft_gather(v, deft_argsort(v, 0, q & 4), 0); break;
    case 4:
        deft_topk(v, q & 8 ? n / 3 : 50, 0, q & 4, &at);
        r = deft_take(v, at, 0);
        break;
    case 5:
        r = deft_searchsorted(deft_sort(mixed_long_values(x, t, 3000, p + 2, wide), 0, false), v,
                              q & 4);
        break;
    case 6: r = distinct(v, q); break;
    case 7: {
        deft_tensor *const whole_v = floored_mod(deft_cast(v, DEFT_I64), 256);
        r = deft_histc(deft_cast(whole_v, DEFT_F32), q & 4 ? 8 : 64, 0, 256);
        break;
    }
    case 8: r = scattered(v, q); break;
    case 9:
        r = deft_compress(v, deft_ne(floored_mod(deft_cast(v, DEFT_I64), 3), whole(cx, 1)),
                          q & 4 ? n : 500, NULL);
        break;
    case 10: r = deft_cumsum(floored_mod(deft_cast(v, DEFT_I64), 100), 0); break;
    default: r = rows(v, q); break;
    }
    return r ? deft_cast(deft_flatten(r), DEFT_I64) : NULL;
}

deft_tensor *mixed_long_digest(deft_tensor *v, deft_shape shape)
{
    const int64_t n = shape.rank ? shape.dim[0] * (shape.rank > 1 ? shape.dim[1] : 1) : 1;
    const int64_t k = deft_numel(v) / n;
    deft_tensor *const weight =
        deft_add(floored_mod(deft_iota(ctx_of(v), line(k), 0), 13), whole(ctx_of(v), 1));
    deft_tensor *const parts = deft_reshape(deft_slice(v, DEFT_R(0, n * k)), DEFT_SHAPE(n, k));
    deft_tensor *const sum = deft_sum(deft_mul(parts, weight), DEFT_AXES(1), false);
    deft_tensor *const small = deft_sub(floored_mod(sum, 9), whole(ctx_of(v), 4));
    return deft_reshape(deft_cast(small, DEFT_F32), shape);
}

/* ---- other dtypes ---- */

deft_dtype mixed_dtype(unsigned p)
{
    static const deft_dtype all[] = { DEFT_I8,  DEFT_U8,  DEFT_I16, DEFT_U16, DEFT_I32,
                                      DEFT_U32, DEFT_I64, DEFT_U64, DEFT_F16, DEFT_BF16,
                                      DEFT_F64, DEFT_C64, DEFT_C128 };
    return all[p % (sizeof all / sizeof *all)];
}

static bool is_complex(deft_dtype t)
{
    return t == DEFT_C64 || t == DEFT_C128;
}

deft_tensor *mixed_typed(deft_tensor *x, deft_dtype t)
{
    deft_tensor *const small = deft_round(deft_clamp(x, -4, 4));
    if (!is_complex(t)) return deft_cast(small, t);
    const deft_dtype part = t == DEFT_C64 ? DEFT_F32 : DEFT_F64;
    deft_tensor *const other = deft_round(deft_clamp(deft_neg(x), -1, 2));
    return deft_complex(deft_cast(small, part), deft_cast(other, part));
}

deft_tensor *mixed_untyped(deft_tensor *v)
{
    const deft_dtype t = deft_dtype_of(v);
    if (is_complex(t)) v = deft_sub(deft_real(v), deft_imag(v));
    if (deft_isdtype(t, DEFT_KIND_INTEGRAL))
        v = deft_sub(floored_mod(deft_cast(v, DEFT_I64), 9), whole(ctx_of(v), 4));
    return deft_clamp(deft_cast(v, DEFT_F32), -4, 4);
}

/* Small again: integers may be anything, as they wrap. */
static deft_tensor *bounded(deft_tensor *v)
{
    const deft_dtype t = deft_dtype_of(v);
    if (deft_isdtype(t, DEFT_KIND_INTEGRAL)) return v;
    if (!is_complex(t)) return deft_clamp(v, -4, 4);
    return deft_complex(deft_clamp(deft_real(v), -4, 4), deft_clamp(deft_imag(v), -4, 4));
}

static deft_status typed_turn(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    deft_tensor *const outside = user;
    (void)n_in;
    out[0] = bounded(deft_add(in[0], n_in > 1 ? in[1] : outside));
    if (n_out > 1) out[1] = deft_mul(in[0], whole(cx, 2));
    return out[0] ? DEFT_OK : deft_error(cx);
}

static deft_status typed_other(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    (void)n_in, (void)n_out;
    out[0] = bounded(deft_sub(deft_mul(in[0], whole(cx, 3)), (deft_tensor *)user));
    return out[0] ? DEFT_OK : deft_error(cx);
}

static deft_status typed_goes_on(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                 deft_tensor **out, size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_lt(in[1], whole(cx, 3));
    return DEFT_OK;
}

static deft_status typed_counted(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                 deft_tensor **out, size_t n_out, void *user)
{
    (void)n_in, (void)n_out;
    out[0] = bounded(deft_sub(in[0], (deft_tensor *)user));
    out[1] = deft_add(in[1], whole(cx, 1));
    return out[0] ? DEFT_OK : deft_error(cx);
}

/* A loop whose state has the dtype, over rows of b or until a test says no. */
static deft_tensor *typed_loop(deft_tensor *a, deft_tensor *b, unsigned p)
{
    deft_ctx *const cx = ctx_of(a);
    deft_tensor *out[2] = { NULL }, *state[2] = { a, NULL };
    if (p & 1) {
        state[1] = deft_zeros(cx, line(1), DEFT_I32);
        state[1] = deft_reshape(state[1], (deft_shape){ .rank = 0 });
        return deft_while(cx, typed_goes_on, typed_counted, b, state, 2, 4, out) ? out[0] : NULL;
    }
    deft_tensor *const row = deft_slice(a, DEFT_AT(0));
    deft_tensor *first = row;
    if (!deft_scan(cx, typed_turn, row, &first, 1, &b, 1, deft_dim(b, 0), 1, out)) return NULL;
    return bounded(deft_add(out[1], deft_unsqueeze(out[0], 0)));
}

static deft_tensor *typed_branch(deft_tensor *a, deft_tensor *b)
{
    deft_ctx *const cx = ctx_of(a);
    deft_tensor *const sum = deft_sum(mixed_untyped(b), DEFT_ALL_AXES, false);
    deft_tensor *out = NULL;
    return deft_cond(deft_gt(sum, deft_const_i(cx, 0)), typed_turn, typed_other, b, &a, 1, &out, 1)
               ? out
               : NULL;
}

static deft_tensor *typed_examples(deft_tensor *a, deft_tensor *b)
{
    deft_tensor *out = NULL;
    deft_tensor *const row = deft_slice(b, DEFT_AT(0));
    return deft_vmap(ctx_of(a), typed_other, row, &a, NULL, 1, &out, NULL, 1) ? out : NULL;
}

/* Places from 0 to n - 1, one for each row. */
static deft_tensor *row_places(deft_tensor *b)
{
    const int64_t n = deft_dim(b, 0);
    deft_tensor *const first = deft_slice(mixed_untyped(b), DEFT_FULL, DEFT_AT(0));
    return floored_mod(deft_cast(first, DEFT_I64), n);
}

static deft_tensor *typed_gradient(deft_tensor *a, deft_tensor *b)
{
    const deft_dtype t = deft_dtype_of(a);
    const deft_grad_options o = { .size = sizeof o, .unused_is_zero = true };
    deft_tensor *g = NULL;
    if (deft_isdtype(t, DEFT_KIND_INTEGRAL)) return bounded(deft_add(a, b));
    deft_tensor *y = deft_mul(a, b);
    if (is_complex(t)) y = deft_add(deft_real(y), deft_imag(deft_mul(y, a)));
    deft_tensor *const sum = deft_sum(y, DEFT_ALL_AXES, false);
    return deft_grad(&sum, NULL, 1, &a, 1, &o, &g) ? bounded(deft_cast(g, t)) : NULL;
}

deft_tensor *mixed_typed_work(deft_tensor *a, deft_tensor *b, unsigned p)
{
    const deft_dtype t = deft_dtype_of(a);
    deft_tensor *r;
    switch (p % 12) {
    case 0: r = deft_sub(deft_mul(a, b), b); break;
    case 1: r = typed_loop(a, b, p / 12); break;
    case 2: r = typed_branch(a, b); break;
    case 3: r = typed_examples(a, b); break;
    case 4: r = typed_gradient(a, b); break;
    case 5: r = deft_index_add(a, row_places(b), b, 0); break;
    case 6: r = deft_take(b, row_places(a), 0); break;
    case 7: r = deft_add(b, deft_sum(a, DEFT_AXES(0), true)); break;
    case 8: r = is_complex(t) ? deft_conj(a) : deft_sort(a, p & 16 ? 0 : 1, p & 32); break;
    case 9:
        r = deft_roll(deft_concat((deft_tensor *[]){ deft_slice(a, DEFT_R(1, DEFT_END)),
                                                     deft_slice(b, DEFT_R(0, 1)) },
                                  2, 0),
                      1, 1);
        break;
    case 10: r = deft_where(deft_eq(a, b), deft_neg(a), b); break;
    default: r = deft_index_copy(b, row_places(b), a, 0); break;
    }
    return r ? bounded(deft_cast(r, t)) : NULL; /* sums of short integers are longer ones */
}
