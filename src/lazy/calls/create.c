/* SPDX-License-Identifier: Apache-2.0
 *
 * Creation: values copied or borrowed from the caller, constants, sequences, random
 * numbers. Everything but deft_from and the wraps is itself a pending expression, so it
 * fuses into its users.
 */
#include "lazy/core/devices.h"
#include "lazy/core/meet.h"
#include "lazy/core/recorder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

deft_shape deft_shape_of(size_t rank, const int64_t *dim)
{
    deft_shape s = { .rank = rank > DEFT_MAX_RANK ? DEFT_MAX_RANK + 1 : (uint32_t)rank };
    for (size_t i = 0; i < rank && i < DEFT_MAX_RANK; i++) s.dim[i] = dim[i];
    return s;
}

deft_axes deft_axes_of(size_t n, const int *at)
{
    deft_axes a = { .n = n > DEFT_MAX_RANK ? DEFT_MAX_RANK + 1 : (uint32_t)n };
    for (size_t i = 0; i < n && i < DEFT_MAX_RANK; i++) a.at[i] = at[i];
    return a;
}

deft_range deft_range_of(int64_t start, int64_t stop, int64_t step)
{
    return (deft_range){ start, stop, step };
}

static bool check_dtype(deft_ctx *cx, const char *what, deft_dtype t)
{
    if ((unsigned)t < DEFT_N_DTYPES) return true;
    df_error(cx, DEFT_E_DTYPE, "%s: %d is no dtype", what, (int)t);
    return false;
}

/* ---- values of the caller ---- */

/* Copies the caller's row-major elements into the value v on the default device. */
static deft_status fill_value_from_caller(deft_ctx *cx, df_diag *d, df_value *v, const char *data,
                                          size_t bytes)
{
    deft_status st = DEFT_OK;
    df_buffer *clean = NULL;
    TRY(df_ctx_buffer(cx, d, cx->default_device, (int64_t)bytes, &v->buf));
    v->data = v->buf->data;
    if (v->dtype == DEFT_BOOL) { /* kernels rely on bools being one byte, 0 or 1 */
        TRY(df_ctx_buffer(cx, d, DEFT_CPU, (int64_t)bytes, &clean));
        for (size_t i = 0; i < bytes; i++) ((char *)clean->data)[i] = data[i] != 0;
        data = clean->data;
    }
    TRY(df_ctx_copy(cx, d, cx->default_device, v->data, DEFT_CPU, data, bytes));
done:
    df_buffer_drop(&clean);
    return st;
}

deft_tensor *deft_from(deft_ctx *cx, deft_shape shape, deft_dtype dtype, const void *data,
                       size_t bytes)
{
    df_enter_call(cx, DF_SITE);
    df_shape s;
    if (!cx || !check_dtype(cx, "from", dtype) || !df_check_shape(cx, "from", &shape, &s))
        return NULL;
    int64_t n;
    (void)df_shape_numel(&s, &n);
    const size_t want = (size_t)n * deft_dtype_size(dtype);
    char text[DF_SHAPE_TEXT];
    if (bytes != want)
        return df_error(cx, DEFT_E_ARG, "from: %s of %s needs %zu bytes, %zu were given",
                        df_shape_text(&s, text, sizeof text), deft_dtype_name(dtype), want, bytes);
    if (!data && want) return df_error(cx, DEFT_E_ARG, "from: data is NULL");
    df_value *v = df_value_new(cx, dtype, &s);
    if (!v) return df_error(cx, DEFT_E_MEMORY, "from: no memory for a value");
    df_diag d = { 0 };
    const deft_status st = fill_value_from_caller(cx, &d, v, data, want);
    if (st != DEFT_OK) {
        df_value_drop(cx, &v);
        return df_error(cx, st, "from: %s", d.text);
    }
    return df_tensor_of(cx, v);
}

/* The lowest and highest element offsets that strides reach. *high is -1 when there is no
 * element. Returns false on overflow. */
static bool reach(const df_shape *s, const int64_t *stride, int64_t *low, int64_t *high)
{
    *low = *high = 0;
    for (uint32_t i = 0; i < s->rank; i++) {
        int64_t span;
        if (s->dim[i] == 0) {
            *low = 0;
            *high = -1;
            return true;
        }
        if (!df_mul_i64(s->dim[i] - 1, stride[i], &span)) return false;
        if (!df_add_i64(span < 0 ? *low : *high, span, span < 0 ? low : high)) return false;
    }
    return true;
}

/* Whether no two elements share memory: each stride, from the smallest, must exceed what
 * the smaller ones span. This is sufficient, and holds for every ordinary layout. */
static bool injective(const df_shape *s, const int64_t *stride)
{
    bool used[DEFT_MAX_RANK] = { false };
    int64_t span = 0;
    for (uint32_t k = 0; k < s->rank; k++) {
        uint32_t best = DF_NONE;
        for (uint32_t i = 0; i < s->rank; i++)
            if (!used[i] && (best == DF_NONE || llabs(stride[i]) < llabs(stride[best]))) best = i;
        used[best] = true;
        if (s->dim[best] <= 1) continue;
        if (llabs(stride[best]) <= span) return false;
        span += (s->dim[best] - 1) * llabs(stride[best]);
    }
    return true;
}

/* Wraps memory of the caller on device `where`. size: of an element. A GPU cannot read an
 * element that is not aligned to its size. */
static deft_status borrow(deft_ctx *cx, df_diag *d, deft_device where, void *data, size_t bytes,
                          size_t size, df_buffer **out)
{
    const deft_status st = df_ctx_use(cx, d, where, NULL);
    if (st != DEFT_OK) return st;
    df_device *const dev = df_ctx_device(cx, where);
    if (!dev->far) return df_buffer_wrap(d, dev->allocator, data, (int64_t)bytes, out);
    /* without bytes there is no address to wrap */
    if (bytes == 0) return df_ctx_buffer(cx, d, where, 0, out);
    if ((uintptr_t)data % size != 0)
        return df_fail(d, DEFT_E_ARG, "data lies %zu bytes past a multiple of an element's %zu",
                       (size_t)((uintptr_t)data % size), size);
    return dev->far->wrap(dev, d, data, (int64_t)bytes, out);
}

static deft_tensor *wrap_memory(deft_ctx *cx, const char *what, deft_device where,
                                const deft_shape *shape, deft_dtype dtype, void *data, size_t bytes,
                                const int64_t *strides, bool mut)
{
    df_shape s;
    if (!cx || !check_dtype(cx, what, dtype) || !df_check_shape(cx, what, shape, &s)) return NULL;
    df_value *v = df_value_new(cx, dtype, &s);
    if (!v) return df_error(cx, DEFT_E_MEMORY, "%s: no memory for a value", what);
    if (strides) memcpy(v->stride, strides, s.rank * sizeof *strides);
    const int64_t size = (int64_t)deft_dtype_size(dtype);
    int64_t low, high, last;
    char text[DF_SHAPE_TEXT];
    df_diag d = { 0 };
    deft_status st = DEFT_OK;
    if (!reach(&s, v->stride, &low, &high) || !df_mul_i64(high + 1, size, &last))
        st = df_fail(&d, DEFT_E_RANGE, "strides overflow");
    else if (low < 0)
        st = df_fail(
            &d, DEFT_E_RANGE,
            "strides reach %lld elements before data: pass the lowest address and flip instead",
            (long long)-low);
    else if ((uint64_t)last > bytes)
        st = df_fail(
            &d, DEFT_E_RANGE, "%s of %s with these strides needs %lld bytes, %zu were given",
            df_shape_text(&s, text, sizeof text), deft_dtype_name(dtype), (long long)last, bytes);
    else if (!data && last > 0)
        st = df_fail(&d, DEFT_E_ARG, "data is NULL");
    else if (mut && !injective(&s, v->stride))
        st = df_fail(&d, DEFT_E_ARG, "two elements would share memory");
    else
        st = borrow(cx, &d, where, data, bytes, (size_t)size, &v->buf);
    if (st != DEFT_OK) {
        df_value_drop(cx, &v);
        return df_error(cx, st, "%s: %s", what, d.text);
    }
    v->data = v->buf->data;
    v->flags = (uint8_t)(DF_VALUE_WRAPPED | (mut ? DF_VALUE_MUT : 0));
    return df_tensor_of(cx, v);
}

deft_tensor *deft_wrap(deft_ctx *cx, deft_shape shape, deft_dtype dtype, const void *data,
                       size_t bytes, const int64_t *strides)
{
    df_enter_call(cx, DF_SITE);
    return wrap_memory(cx, "wrap", DEFT_CPU, &shape, dtype, (void *)(uintptr_t)data, bytes, strides,
                       false);
}

deft_tensor *deft_wrap_device(deft_ctx *cx, deft_device where, deft_shape shape, deft_dtype dtype,
                              const void *data, size_t bytes, const int64_t *strides)
{
    df_enter_call(cx, DF_SITE);
    return wrap_memory(cx, "wrap_device", where, &shape, dtype, (void *)(uintptr_t)data, bytes,
                       strides, false);
}

/* Makes the wrapped tensor t writable by assignments. t may be NULL. Returns t, or NULL
 * with the error recorded. */
static deft_tensor *to_write(deft_ctx *cx, const char *what, deft_tensor *t)
{
    if (!t) return NULL;
    const df_mut m = { .t = t, .value = df_value_ref(t->value) };
    if (!df_vec_push(cx->mem, &cx->muts, m)) {
        df_value *v = m.value;
        df_value_drop(cx, &v);
        df_handle_unbind(cx, t);
        t->flags = 0;
        return df_error(cx, DEFT_E_MEMORY, "%s: no memory", what);
    }
    t->flags |= DF_HANDLE_MUT;
    return t;
}

deft_tensor *deft_wrap_mut(deft_ctx *cx, deft_shape shape, deft_dtype dtype, void *data,
                           size_t bytes, const int64_t *strides)
{
    df_enter_call(cx, DF_SITE);
    const char *const what = "wrap_mut";
    return to_write(cx, what,
                    wrap_memory(cx, what, DEFT_CPU, &shape, dtype, data, bytes, strides, true));
}

deft_tensor *deft_wrap_device_mut(deft_ctx *cx, deft_device where, deft_shape shape,
                                  deft_dtype dtype, void *data, size_t bytes,
                                  const int64_t *strides)
{
    df_enter_call(cx, DF_SITE);
    const char *const what = "wrap_device_mut";
    return to_write(cx, what,
                    wrap_memory(cx, what, where, &shape, dtype, data, bytes, strides, true));
}

/* ---- constants ---- */

static deft_tensor *filled(deft_ctx *cx, const char *what, const deft_shape *shape,
                           deft_dtype dtype, int32_t cst, const df_literal *value, uintptr_t site)
{
    df_shape s;
    if (!cx || !check_dtype(cx, what, dtype) || !df_check_shape(cx, what, shape, &s)) return NULL;
    const uint32_t n =
        value ? df_literal_node(cx, what, dtype, *value, site) : df_cst(cx, dtype, cst, site);
    return df_result(cx, df_expand_to(cx, n, &s, site));
}

deft_tensor *deft_zeros(deft_ctx *cx, deft_shape shape, deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    return filled(cx, "zeros", &shape, dtype, 0, NULL, DF_SITE);
}

deft_tensor *deft_ones(deft_ctx *cx, deft_shape shape, deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    return filled(cx, "ones", &shape, dtype, 1, NULL, DF_SITE);
}

deft_tensor *deft_full(deft_ctx *cx, deft_shape shape, deft_dtype dtype, double value)
{
    df_enter_call(cx, DF_SITE);
    const df_literal v = df_literal_f(value);
    return filled(cx, "full", &shape, dtype, 0, &v, DF_SITE);
}

deft_tensor *deft_full_i(deft_ctx *cx, deft_shape shape, deft_dtype dtype, int64_t value)
{
    df_enter_call(cx, DF_SITE);
    const df_literal v = df_literal_i(value);
    return filled(cx, "full", &shape, dtype, 0, &v, DF_SITE);
}

deft_tensor *deft_full_u(deft_ctx *cx, deft_shape shape, deft_dtype dtype, uint64_t value)
{
    df_enter_call(cx, DF_SITE);
    const df_literal v = df_literal_u(value);
    return filled(cx, "full", &shape, dtype, 0, &v, DF_SITE);
}

deft_tensor *deft_num(deft_ctx *cx, double value)
{
    df_enter_call(cx, DF_SITE);
    return df_weak_f(cx, value, 0);
}

deft_tensor *deft_num_i(deft_ctx *cx, int64_t value)
{
    df_enter_call(cx, DF_SITE);
    return df_weak_i(cx, value, 0);
}

deft_tensor *deft_num_u(deft_ctx *cx, uint64_t value)
{
    df_enter_call(cx, DF_SITE);
    return df_weak_u(cx, value, 0);
}

/* ---- sequences ---- */

/* A number in the dtype in which creation computes, checked to fit `dtype`. */
static uint32_t literal_for(deft_ctx *cx, const char *what, deft_dtype dtype, df_literal v,
                            uintptr_t site)
{
    int64_t bits;
    if (!df_is_half(dtype)) return df_literal_node(cx, what, dtype, v, site);
    if (!df_number_bits(cx, what, dtype, v.f, &bits)) return DF_BAD;
    return df_number_f(cx, what, DEFT_F32, v.f, site);
}

static uint32_t number_for(deft_ctx *cx, const char *what, deft_dtype dtype, double v,
                           uintptr_t site)
{
    return literal_for(cx, what, dtype, df_literal_f(v), site);
}

/* first + iota * step in dtype. Halves are computed in f32 and rounded once. */
static uint32_t sequence(deft_ctx *cx, const char *what, int64_t n, df_literal first,
                         df_literal step, deft_dtype dtype, uintptr_t site)
{
    const df_shape s = { .rank = 1, .dim = { n } };
    const deft_dtype t = df_is_half(dtype) ? DEFT_F32 : dtype;
    const uint32_t i = df_to(cx, df_iota_node(cx, &s, 0, site), t, site);
    const uint32_t by = literal_for(cx, what, dtype, step, site);
    const uint32_t from = literal_for(cx, what, dtype, first, site);
    const uint32_t at = df_map2(cx, DF_OP_add, from, df_map2(cx, DF_OP_mul, i, by, site), site);
    return df_to(cx, at, dtype, site);
}

static bool check_arange(deft_ctx *cx, deft_dtype dtype)
{
    if (!cx || !check_dtype(cx, "arange", dtype)) return false;
    if (dtype != DEFT_BOOL) return true;
    df_error(cx, DEFT_E_DTYPE, "arange: not for bool");
    return false;
}

deft_tensor *deft_arange(deft_ctx *cx, double start, double stop, double step, deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    if (!check_arange(cx, dtype)) return NULL;
    const double n = ceil((stop - start) / step);
    if (!(step != 0) || !isfinite(start) || !isfinite(n) || n > 0x1p53)
        return df_error(cx, DEFT_E_RANGE, "arange: from %g to %g by %g has no length", start, stop,
                        step);
    const int64_t len = n > 0 ? (int64_t)n : 0;
    return df_result(
        cx, sequence(cx, "arange", len, df_literal_f(start), df_literal_f(step), dtype, DF_SITE));
}

deft_tensor *deft_arange_i(deft_ctx *cx, int64_t start, int64_t stop, int64_t step,
                           deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    if (!check_arange(cx, dtype)) return NULL;
    /* The distance of two i64 may need all 64 bits of an unsigned number. */
    const bool is_up = step > 0, is_empty = is_up ? start >= stop : start <= stop;
    const uint64_t way =
        is_up ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    const uint64_t by = is_up ? (uint64_t)step : 0 - (uint64_t)step;
    const uint64_t n = is_empty || !by ? 0 : way / by + (way % by != 0);
    if (step == 0 || n > (uint64_t)1 << 53)
        return df_error(cx, DEFT_E_RANGE, "arange: from %lld to %lld by %lld has no length",
                        (long long)start, (long long)stop, (long long)step);
    int64_t bits;
    const uint64_t last = (uint64_t)start + (n - 1) * (uint64_t)step;
    if (n > 0 && !df_is_float(dtype) &&
        !df_number_bits_i(cx, "arange", dtype, (int64_t)last, &bits))
        return NULL;
    return df_result(cx, sequence(cx, "arange", (int64_t)n, df_literal_i(start), df_literal_i(step),
                                  dtype, DF_SITE));
}

deft_tensor *deft_linspace(deft_ctx *cx, double first, double last, int64_t n, deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    if (!cx || !check_dtype(cx, "linspace", dtype)) return NULL;
    if (!df_is_float(dtype))
        return df_error(cx, DEFT_E_DTYPE, "linspace: not for %s", deft_dtype_name(dtype));
    if (n < 0) return df_error(cx, DEFT_E_RANGE, "linspace: %lld values", (long long)n);
    const double step = n > 1 ? (last - first) / (double)(n - 1) : 0;
    return df_result(
        cx, sequence(cx, "linspace", n, df_literal_f(first), df_literal_f(step), dtype, DF_SITE));
}

deft_tensor *deft_eye(deft_ctx *cx, int64_t rows, int64_t columns, deft_dtype dtype)
{
    df_enter_call(cx, DF_SITE);
    if (!cx || !check_dtype(cx, "eye", dtype)) return NULL;
    const deft_shape shape = { .rank = 2, .dim = { rows, columns } };
    df_shape s;
    if (!df_check_shape(cx, "eye", &shape, &s)) return NULL;
    const uintptr_t site = DF_SITE;
    const uint32_t same =
        df_map2(cx, DF_OP_eq, df_iota_node(cx, &s, 0, site), df_iota_node(cx, &s, 1, site), site);
    return df_result(cx, df_to(cx, same, dtype, site));
}

deft_tensor *deft_iota(deft_ctx *cx, deft_shape shape, int axis)
{
    df_enter_call(cx, DF_SITE);
    df_shape s;
    if (!cx || !df_check_shape(cx, "iota", &shape, &s)) return NULL;
    const int a = df_check_axis(cx, "iota", axis, s.rank);
    return a < 0 ? NULL : df_result(cx, df_iota_node(cx, &s, (uint32_t)a, DF_SITE));
}

/* ---- random numbers ---- */

/* Word number `word` of the draw's Philox block, as i64 in [0, 2^32). */
static uint32_t random_word(deft_ctx *cx, deft_rng *rng, uint64_t draw, uint32_t word,
                            const df_shape *s, uintptr_t site)
{
    const int64_t args[2] = { (int64_t)rng->seed, (int64_t)draw };
    df_recording_draw(cx, cx->rec.n_args, rng, draw);
    return df_append(cx, DF_OP_random, DEFT_I64, word, NULL, args, 2, s, site);
}

/* The number of random bits of a uniform number in [0, 1): those of the significand of t,
 * so that every value is exact. */
static int unit_bits(deft_dtype t)
{
    return (int)df_fraction_of(t) + 1;
}

/* A structural constant that is exact in t, which is f32 or f64. */
static uint32_t structural(deft_ctx *cx, deft_dtype t, float value, uintptr_t site)
{
    uint32_t attr; /* the bits of an f32 in both dtypes */
    memcpy(&attr, &value, sizeof attr);
    const df_shape scalar = { .rank = 0 };
    return df_append(cx, DF_OP_cst, t, attr, NULL, NULL, 0, &scalar, site);
}

/* Uniform numbers in [0, 1) with `keep` bits, in t, which is f32 or f64. plus_one: in (0,
 * 1]. */
static uint32_t unit(deft_ctx *cx, deft_rng *rng, uint64_t draw, uint32_t word, bool plus_one,
                     const df_shape *s, int keep, deft_dtype t, uintptr_t site)
{
    uint32_t bits = random_word(cx, rng, draw, word, s, site);
    if (keep <= 32) {
        bits = df_map2(cx, DF_OP_shift_right, bits, df_cst(cx, DEFT_I64, 32 - keep, site), site);
    } else {
        const uint32_t high =
            df_map2(cx, DF_OP_shift_left, bits, df_cst(cx, DEFT_I64, 21, site), site);
        const uint32_t low =
            df_map2(cx, DF_OP_shift_right, random_word(cx, rng, draw, word + 1, s, site),
                    df_cst(cx, DEFT_I64, 11, site), site);
        bits = df_map2(cx, DF_OP_bitwise_or, high, low, site);
    }
    if (plus_one) bits = df_map2(cx, DF_OP_add, bits, df_cst(cx, DEFT_I64, 1, site), site);
    const uint32_t by = structural(cx, t, ldexpf(1.0f, -keep), site);
    return df_map2(cx, DF_OP_mul, df_to(cx, bits, t, site), by, site);
}

/* cos(2 pi u) for f32 u in [0, 1): with a = 1/4 - |u - 1/2|, which is exact, it is -sin(2 pi a) =
 * a P(a^2). P has a relative error of 2^-24.5 with the rounded coefficients. So a draw needs no
 * reduction of a large argument, which costs most of a cosine
 * (docs/decisions/normal-numbers.md). */
static uint32_t cos_of_turn(deft_ctx *cx, uint32_t u, uintptr_t site)
{
    static const float p[] = { -0x1.921fb6p+2f, 0x1.4abbc2p+5f, -0x1.4668bp+6f, 0x1.324ccap+6f,
                               -0x1.3daff6p+5f };
    const uint32_t half = structural(cx, DEFT_F32, 0.5f, site);
    const uint32_t far = df_map1(cx, DF_OP_abs, df_map2(cx, DF_OP_sub, u, half, site), site);
    const uint32_t a = df_map2(cx, DF_OP_sub, structural(cx, DEFT_F32, 0.25f, site), far, site);
    const uint32_t square = df_map2(cx, DF_OP_mul, a, a, site);
    uint32_t y = structural(cx, DEFT_F32, p[4], site);
    for (int i = 3; i >= 0; i--)
        y = df_map2(cx, DF_OP_add, df_map2(cx, DF_OP_mul, y, square, site),
                    structural(cx, DEFT_F32, p[i], site), site);
    return df_map2(cx, DF_OP_mul, a, y, site);
}

static uint32_t cos_of_f64_turn(deft_ctx *cx, uint32_t u, uintptr_t site)
{
    const uint32_t turn = df_number_f(cx, "normal", DEFT_F64, 6.283185307179586476925, site);
    return df_map1(cx, DF_OP_cos, df_map2(cx, DF_OP_mul, u, turn, site), site);
}

static bool check_draw(deft_ctx *cx, const char *what, const deft_rng *rng, const deft_shape *shape,
                       deft_dtype t, bool floating, df_shape *s)
{
    if (!cx) return false;
    if (!rng) {
        df_error(cx, DEFT_E_ARG, "%s: rng is NULL", what);
        return false;
    }
    if (cx->body_nest != cx->draw_nest) {
        df_error(cx, DEFT_E_STATE,
                 "%s: inside a loop or branch each iteration would draw the same: draw before, and "
                 "pass the numbers as rows",
                 what);
        return false;
    }
    if (!check_dtype(cx, what, t) || !df_check_shape(cx, what, shape, s)) return false;
    if (floating ? df_is_float(t) : df_is_int(t)) return true;
    df_error(cx, DEFT_E_DTYPE, "%s: not for %s", what, deft_dtype_name(t));
    return false;
}

/* The handle of a draw. A draw that fails does not advance the generator. */
static deft_tensor *drawn(deft_ctx *cx, deft_rng *rng, uint32_t node)
{
    deft_tensor *const t = df_result(cx, node);
    rng->next += t != NULL;
    return t;
}

deft_tensor *deft_uniform(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype,
                          double low, double high)
{
    df_enter_call(cx, DF_SITE);
    df_shape s;
    if (!check_draw(cx, "uniform", rng, &shape, dtype, true, &s)) return NULL;
    const uintptr_t site = DF_SITE;
    const deft_dtype t = df_arithmetic_dtype(dtype);
    const uint32_t u = unit(cx, rng, rng->next, 0, false, &s, unit_bits(dtype), t, site);
    const uint32_t span = number_for(cx, "uniform", dtype, high - low, site);
    const uint32_t from = number_for(cx, "uniform", dtype, low, site);
    const uint32_t at = df_map2(cx, DF_OP_add, from, df_map2(cx, DF_OP_mul, u, span, site), site);
    return drawn(cx, rng, df_to(cx, at, dtype, site));
}

deft_tensor *deft_normal(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype,
                         double mean, double deviation)
{
    df_enter_call(cx, DF_SITE);
    df_shape s;
    if (!check_draw(cx, "normal", rng, &shape, dtype, true, &s)) return NULL;
    const uintptr_t site = DF_SITE;
    const uint64_t draw = rng->next;
    /* Box-Muller: sqrt(-2 log u1) cos(2 pi u2), with u1 in (0, 1]. */
    const deft_dtype t = df_arithmetic_dtype(dtype);
    const int keep = unit_bits(t);
    const uint32_t u1 = unit(cx, rng, draw, 0, true, &s, keep, t, site);
    const uint32_t u2 = unit(cx, rng, draw, 2, false, &s, keep, t, site);
    const uint32_t r = df_map1(
        cx, DF_OP_sqrt,
        df_map2(cx, DF_OP_mul, df_map1(cx, DF_OP_log, u1, site), df_cst(cx, t, -2, site), site),
        site);
    const uint32_t c = t == DEFT_F32 ? cos_of_turn(cx, u2, site) : cos_of_f64_turn(cx, u2, site);
    const uint32_t z = df_map2(cx, DF_OP_mul, r, c, site);
    const uint32_t by = number_for(cx, "normal", dtype, deviation, site);
    const uint32_t from = number_for(cx, "normal", dtype, mean, site);
    const uint32_t at = df_map2(cx, DF_OP_add, from, df_map2(cx, DF_OP_mul, z, by, site), site);
    return drawn(cx, rng, df_to(cx, at, dtype, site));
}

deft_tensor *deft_randint(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype,
                          int64_t low, int64_t high)
{
    df_enter_call(cx, DF_SITE);
    df_shape s;
    if (!check_draw(cx, "randint", rng, &shape, dtype, false, &s)) return NULL;
    int64_t range;
    if (__builtin_sub_overflow(high, low, &range) || range < 1 || range > (int64_t)1 << 31)
        return df_error(cx, DEFT_E_RANGE, "randint: [%lld, %lld) must hold 1 to 2^31 integers",
                        (long long)low, (long long)high);
    const uintptr_t site = DF_SITE;
    const uint32_t word = random_word(cx, rng, rng->next, 0, &s, site);
    const uint32_t by = df_number_i(cx, "randint", DEFT_I64, range, site);
    const uint32_t at = df_map2(cx, DF_OP_shift_right, df_map2(cx, DF_OP_mul, word, by, site),
                                df_cst(cx, DEFT_I64, 32, site), site);
    const uint32_t from = df_number_i(cx, "randint", DEFT_I64, low, site);
    /* Both ends must fit the dtype, or values would wrap. */
    if (df_number_i(cx, "randint", dtype, low, site) == DF_BAD ||
        df_number_i(cx, "randint", dtype, high - 1, site) == DF_BAD)
        return NULL;
    return drawn(cx, rng, df_to(cx, df_map2(cx, DF_OP_add, from, at, site), dtype, site));
}
