/* SPDX-License-Identifier: Apache-2.0
 *
 * Computed and wrapped tensors: a counted buffer seen through strides, and the
 * conversions that reads need. These copies run on the calling thread. They are for
 * results that leave the library, not for computing.
 */
#include "lazy/core/lazy.h"

#include <math.h>
#include <string.h>

df_value *df_value_new(deft_ctx *cx, deft_dtype t, const df_shape *s)
{
    df_value *v = cx->free_values;
    if (v)
        cx->free_values = v->next;
    else if (!(v = df_mem_alloc(cx->mem, sizeof *v)))
        return NULL;
    memset(v, 0, sizeof *v);
    v->refs = 1;
    v->dtype = (uint8_t)t;
    v->rank = (uint8_t)s->rank;
    v->shape = *s;
    int64_t step = 1;
    for (uint32_t i = s->rank; i-- > 0;) {
        v->stride[i] = step;
        step *= df_max_i64(s->dim[i], 1);
    }
    return v;
}

df_value *df_value_ref(df_value *v)
{
    if (v) v->refs++;
    return v;
}

void df_value_drop(deft_ctx *cx, df_value **v)
{
    df_value *const p = *v;
    *v = NULL;
    if (!p || --p->refs) return;
    df_buffer_drop(&p->buf);
    p->next = cx->free_values;
    cx->free_values = p;
}

size_t df_value_size(const df_value *v)
{
    int64_t n;
    (void)df_shape_numel(&v->shape, &n);
    return (size_t)n * deft_dtype_size((deft_dtype)v->dtype);
}

bool df_value_contiguous(const df_value *v)
{
    int64_t step = 1;
    for (uint32_t i = v->rank; i-- > 0;) {
        if (v->shape.dim[i] == 0) return true;
        if (v->shape.dim[i] != 1 && v->stride[i] != step) return false;
        step *= v->shape.dim[i];
    }
    return true;
}

/* ---- conversions, as the cast kernel op defines them ---- */

static int64_t to_i64(double x)
{
    if (x != x) return 0;
    if (x >= 0x1p63) return INT64_MAX;
    if (x < -0x1p63) return INT64_MIN;
    return (int64_t)x;
}

static int32_t to_i32(double x)
{
    if (x != x) return 0;
    if (x >= 2147483647.0) return INT32_MAX;
    if (x <= -2147483648.0) return INT32_MIN;
    return (int32_t)x;
}

static uint8_t to_u8(double x)
{
    if (!(x > 0)) return 0;
    return x >= 255 ? 255 : (uint8_t)x;
}

/* An element widened: integers to i64, floats to f64 (both exact). */
typedef struct wide {
    bool is_float;
    int64_t i;
    double f;
} wide;

static wide load(deft_dtype t, const char *p)
{
    wide w = { 0 };
    switch (t) {
    case DEFT_BOOL:
    case DEFT_U8: w.i = *(const uint8_t *)p; break;
    case DEFT_I32: {
        int32_t x;
        memcpy(&x, p, sizeof x);
        w.i = x;
        break;
    }
    case DEFT_I64: memcpy(&w.i, p, sizeof w.i); break;
    case DEFT_F32: {
        float x;
        memcpy(&x, p, sizeof x);
        w.f = (double)x;
        w.is_float = true;
        break;
    }
    case DEFT_F64:
        memcpy(&w.f, p, sizeof w.f);
        w.is_float = true;
        break;
    case DEFT_F16:
    case DEFT_BF16: {
        uint16_t x;
        memcpy(&x, p, sizeof x);
        w.f = (double)df_f32_of_half(t, x);
        w.is_float = true;
        break;
    }
    }
    return w;
}

static void store(deft_dtype t, char *p, wide w)
{
    switch (t) {
    case DEFT_BOOL: *(uint8_t *)p = w.is_float ? w.f != 0 : w.i != 0; break;
    case DEFT_U8: *(uint8_t *)p = w.is_float ? to_u8(w.f) : (uint8_t)w.i; break;
    case DEFT_I32: {
        const int32_t x = w.is_float ? to_i32(w.f) : (int32_t)(uint32_t)w.i;
        memcpy(p, &x, sizeof x);
        break;
    }
    case DEFT_I64: {
        const int64_t x = w.is_float ? to_i64(w.f) : w.i;
        memcpy(p, &x, sizeof x);
        break;
    }
    case DEFT_F32: {
        const float x = w.is_float ? (float)w.f : (float)w.i;
        memcpy(p, &x, sizeof x);
        break;
    }
    case DEFT_F64: {
        const double x = w.is_float ? w.f : (double)w.i;
        memcpy(p, &x, sizeof x);
        break;
    }
    case DEFT_F16:
    case DEFT_BF16: {
        const uint16_t x = w.is_float ? df_half_of_f64(t, w.f) : df_half_of_i64(t, w.i);
        memcpy(p, &x, sizeof x);
        break;
    }
    }
}

void df_value_rows(const df_value *v,
                   void (*f)(void *user, char *at, int64_t n, int64_t stride_bytes), void *user)
{
    const int64_t size = (int64_t)deft_dtype_size((deft_dtype)v->dtype);
    int64_t idx[DEFT_MAX_RANK] = { 0 };
    for (uint32_t i = 0; i < v->rank; i++)
        if (v->shape.dim[i] == 0) return;
    if (v->rank == 0) {
        f(user, v->data, 1, size);
        return;
    }
    const uint32_t last = v->rank - 1u;
    char *at = v->data;
    for (;;) {
        f(user, at, v->shape.dim[last], v->stride[last] * size);
        uint32_t axis = last;
        while (axis-- > 0) {
            at += v->stride[axis] * size;
            if (++idx[axis] < v->shape.dim[axis]) break;
            at -= idx[axis] * v->stride[axis] * size;
            idx[axis] = 0;
        }
        if (axis == UINT32_MAX) return;
    }
}

typedef struct reader {
    deft_dtype from, to;
    char *dst;
} reader;

static void read_row(void *user, char *at, int64_t n, int64_t stride)
{
    reader *const r = user;
    const size_t size = deft_dtype_size(r->to);
    if (r->from == r->to && stride == (int64_t)size) {
        memcpy(r->dst, at, (size_t)n * size);
        r->dst += (size_t)n * size;
        return;
    }
    for (int64_t i = 0; i < n; i++, at += stride, r->dst += size)
        if (r->from == r->to)
            memcpy(r->dst, at, size);
        else
            store(r->to, r->dst, load(r->from, at));
}

void df_value_pack(const df_value *v, deft_dtype dtype, void *dst)
{
    reader r = { (deft_dtype)v->dtype, dtype, dst };
    df_value_rows(v, read_row, &r);
}

typedef struct writer {
    size_t size;
    const char *src;
} writer;

static void write_row(void *user, char *at, int64_t n, int64_t stride)
{
    writer *const w = user;
    for (int64_t i = 0; i < n; i++, at += stride, w->src += w->size) memcpy(at, w->src, w->size);
}

void df_value_write(const df_value *v, const void *src)
{
    writer w = { deft_dtype_size((deft_dtype)v->dtype), src };
    df_value_rows(v, write_row, &w);
}
