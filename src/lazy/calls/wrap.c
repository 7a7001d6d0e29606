/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of the caller: copied by deft_from, borrowed by deft_wrap and its relatives. The first
 * element of borrowed memory is not the lowest one where strides are negative.
 */
#include "lazy/calls/wrap.h"

#include <stdlib.h>
#include <string.h>

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
    if (!cx || !df_check_any_dtype(cx, "from", dtype) || !df_check_shape(cx, "from", &shape, &s))
        return NULL;
    int64_t n;
    df_shape inner = s;
    const df_face face = df_face_fitting(dtype, &s);
    if (!df_face_hide(cx, "from", face, &inner)) return NULL;
    (void)df_shape_numel(&inner, &n);
    const size_t want = (size_t)n * deft_dtype_size(df_record_dtype(dtype));
    char text[DF_SHAPE_TEXT];
    if (bytes != want)
        return df_error(cx, DEFT_E_ARG, "from: %s of %s needs %zu bytes, %zu were given",
                        df_shape_text(&s, text, sizeof text), deft_dtype_name(dtype), want, bytes);
    if (!data && want) return df_error(cx, DEFT_E_ARG, "from: data is NULL");
    df_value *v = df_value_new(cx, df_record_dtype(dtype), &inner);
    if (!v) return df_error(cx, DEFT_E_MEMORY, "from: no memory for a value");
    df_diag d = { 0 };
    const deft_status st = fill_value_from_caller(cx, &d, v, data, want);
    if (st != DEFT_OK) {
        df_value_drop(cx, &v);
        return df_error(cx, st, "from: %s", d.text);
    }
    return df_wear(df_tensor_of(cx, v), face);
}

/* ---- borrowed memory ---- */

bool df_strides_reach(const df_shape *s, const int64_t *stride, int64_t *low, int64_t *high)
{
    *low = 0;
    *high = -1;
    for (uint32_t i = 0; i < s->rank; i++)
        if (s->dim[i] == 0) return true;
    *high = 0;
    for (uint32_t i = 0; i < s->rank; i++) {
        int64_t span;
        if (!df_mul_i64(s->dim[i] - 1, stride[i], &span)) return false;
        int64_t *const side = span < 0 ? low : high;
        if (!df_add_i64(*side, span, side)) return false;
    }
    return *low > -INT64_MAX;
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

/* Where the elements are of an array that has none. Offsets are added to its address, which must
 * not be NULL then. */
static const char nothing[1];

/* Wraps the memory in a buffer. A GPU cannot read an element that is not aligned to its size. */
static deft_status borrow(deft_ctx *cx, df_diag *d, const df_wrapping *w, df_buffer **out)
{
    const size_t size = deft_dtype_size(df_record_dtype(w->dtype)),
                 past = (uintptr_t)w->data % size;
    const deft_status st = df_ctx_use(cx, d, w->where, NULL);
    if (st != DEFT_OK) return st;
    df_device *const dev = df_ctx_device(cx, w->where);
    if (!dev->far)
        return df_buffer_wrap(d, dev->allocator, w->data ? w->data : (void *)(uintptr_t)nothing,
                              (int64_t)w->bytes, out);
    /* without bytes there is no address to wrap */
    if (w->bytes == 0) return df_ctx_buffer(cx, d, w->where, 0, out);
    if (past)
        return df_fail(d, DEFT_E_ARG, "data lies %zu bytes past a multiple of an element's %zu",
                       past, size);
    return dev->far->wrap(dev, d, w->data, (int64_t)w->bytes, out);
}

/* Gives v the memory, after checking that all elements lie in it. s is the shape that the program
 * sees. Its strides count elements, and those of v count the elements of the record. */
static deft_status bind_memory(deft_ctx *cx, df_diag *d, const df_wrapping *w, const df_shape *s,
                               df_value *v)
{
    const int64_t size = (int64_t)deft_dtype_size(w->dtype);
    const int64_t parts = size / (int64_t)deft_dtype_size((deft_dtype)v->dtype);
    int64_t low, high, reach, stride[DEFT_MAX_RANK];
    char text[DF_SHAPE_TEXT];
    bool fits = true;
    /* without elements, or with one along an axis, a stride has no meaning and may be any number */
    for (uint32_t i = 0; i < s->rank; i++) {
        const bool means = w->strides && df_value_size(v) > 0 && s->dim[i] > 1;
        stride[i] = means ? w->strides[i] : v->stride[i] / parts;
        fits &= df_mul_i64(stride[i], parts, &v->stride[i]);
    }
    if (!fits || !df_strides_reach(s, stride, &low, &high) || !df_add_i64(high, -low, &reach) ||
        !df_add_i64(reach, 1, &reach) || !df_mul_i64(reach, size, &reach))
        return df_fail(d, DEFT_E_RANGE, "strides overflow");
    if ((uint64_t)reach > w->bytes)
        return df_fail(d, DEFT_E_RANGE,
                       "%s of %s with these strides needs %lld bytes, %zu were given",
                       df_shape_text(s, text, sizeof text), deft_dtype_name(w->dtype),
                       (long long)reach, w->bytes);
    if (!w->data && reach > 0) return df_fail(d, DEFT_E_ARG, "data is NULL");
    if (w->is_mutable && !injective(s, stride))
        return df_fail(d, DEFT_E_ARG, "two elements would share memory");
    const deft_status st = borrow(cx, d, w, &v->buf);
    if (st == DEFT_OK) v->data = (char *)v->buf->data - low * size;
    return st;
}

/* Sets `out` to strides that count bytes, for strides that count elements, two of which share a
 * byte. Returns false when a row would not begin where a byte does, or has gaps. */
static bool byte_strides(const df_shape *s, const int64_t *stride, int64_t *out)
{
    bool fits = true;
    for (uint32_t i = 0; i < s->rank; i++) {
        fits = fits && (i + 1 < s->rank ? stride[i] % 2 == 0 : stride[i] == 1);
        out[i] = i + 1 < s->rank ? stride[i] / 2 : 1;
    }
    return fits;
}

deft_tensor *df_wrap(deft_ctx *cx, const df_wrapping *asked)
{
    df_shape s;
    df_diag d = { 0 };
    df_wrapping own = *asked, *const w = &own;
    int64_t stride[DEFT_MAX_RANK];
    if (!cx || !df_check_any_dtype(cx, w->what, w->dtype) ||
        !df_check_shape(cx, w->what, w->shape, &s))
        return NULL;
    df_shape inner = s;
    const df_face face = df_face_fitting(w->dtype, &s);
    if (!df_face_hide(cx, w->what, face, &inner)) return NULL;
    if (df_face_is_packed(face)) {
        s = inner;
        if (w->strides && !byte_strides(&s, w->strides, stride))
            return df_error(cx, DEFT_E_ARG,
                            "%s: of %s, the stride of the last axis is 1, and others are even",
                            w->what, deft_dtype_name(w->dtype));
        if (w->strides) w->strides = stride;
    }
    df_value *v = df_value_new(cx, df_record_dtype(w->dtype), &inner);
    if (!v) return df_error(cx, DEFT_E_MEMORY, "%s: no memory for a value", w->what);
    const deft_status st = bind_memory(cx, &d, w, &s, v);
    if (st != DEFT_OK) {
        df_value_drop(cx, &v);
        return df_error(cx, st, "%s: %s", w->what, d.text);
    }
    v->flags = (uint8_t)(DF_VALUE_WRAPPED | (w->is_mutable ? DF_VALUE_MUT : 0));
    deft_tensor *const t = df_wear(df_tensor_of(cx, v), face);
    if (t && w->is_mutable && !df_mut_begin(cx, t))
        return df_error(cx, DEFT_E_MEMORY, "%s: no memory", w->what);
    if (t) v->buf->release = w->release; /* only now: nothing fails any more */
    return t;
}

static df_wrapping plainly(const char *what, deft_device where, deft_dtype dtype, const void *data,
                           size_t bytes, const int64_t *strides)
{
    return (df_wrapping){ .what = what,
                          .where = where,
                          .dtype = dtype,
                          .data = (void *)(uintptr_t)data,
                          .bytes = bytes,
                          .strides = strides };
}

deft_tensor *deft_wrap(deft_ctx *cx, deft_shape shape, deft_dtype dtype, const void *data,
                       size_t bytes, const int64_t *strides)
{
    df_enter_call(cx, DF_SITE);
    df_wrapping w = plainly("wrap", DEFT_CPU, dtype, data, bytes, strides);
    w.shape = &shape;
    return df_wrap(cx, &w);
}

deft_tensor *deft_wrap_device(deft_ctx *cx, deft_device where, deft_shape shape, deft_dtype dtype,
                              const void *data, size_t bytes, const int64_t *strides)
{
    df_enter_call(cx, DF_SITE);
    df_wrapping w = plainly("wrap_device", where, dtype, data, bytes, strides);
    w.shape = &shape;
    return df_wrap(cx, &w);
}

deft_tensor *deft_wrap_mut(deft_ctx *cx, deft_shape shape, deft_dtype dtype, void *data,
                           size_t bytes, const int64_t *strides)
{
    df_enter_call(cx, DF_SITE);
    df_wrapping w = plainly("wrap_mut", DEFT_CPU, dtype, data, bytes, strides);
    w.shape = &shape;
    w.is_mutable = true;
    return df_wrap(cx, &w);
}

deft_tensor *deft_wrap_device_mut(deft_ctx *cx, deft_device where, deft_shape shape,
                                  deft_dtype dtype, void *data, size_t bytes,
                                  const int64_t *strides)
{
    df_enter_call(cx, DF_SITE);
    df_wrapping w = plainly("wrap_device_mut", where, dtype, data, bytes, strides);
    w.shape = &shape;
    w.is_mutable = true;
    return df_wrap(cx, &w);
}

deft_tensor *deft_wrap_with(deft_ctx *cx, deft_shape shape, deft_dtype dtype, void *data,
                            size_t bytes, const deft_wrap_options *options)
{
    df_enter_call(cx, DF_SITE);
    deft_wrap_options o;
    df_take_options(&o, sizeof o, options, options ? options->size : 0);
    if (!cx) return NULL;
    if (options && !df_check_options(cx, "wrap_with", "deft_wrap_options", options->size))
        return NULL;
    df_wrapping w = plainly("wrap_with", o.device, dtype, data, bytes, o.strides);
    w.shape = &shape;
    w.is_mutable = o.is_mutable;
    w.release = (df_buffer_release){ o.release, o.release_user };
    return df_wrap(cx, &w);
}
