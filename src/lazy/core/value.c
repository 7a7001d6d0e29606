/* SPDX-License-Identifier: Apache-2.0
 *
 * Computed and wrapped tensors: a counted buffer seen through strides, and the
 * conversions that reads need. These copies run on the calling thread. They are for
 * results that leave the library, not for computing.
 */
#include "lazy/core/lazy.h"
#include "base/bits.h"

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
    return df_size_or_most((uint64_t)n * df_bytes_of((deft_dtype)v->dtype));
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

/* Returns the bits. Saturates; NaN gives 0. t is an integer dtype. */
static uint64_t to_int(deft_dtype t, double x)
{
    if (x != x) return 0;
    /* least is exact as a double, and greatest + 1 is */
    if (x < (double)df_int_least(t)) return df_int_bits(t, df_int_least(t));
    if (x >= (double)df_int_greatest(t) + 1) return df_int_greatest(t);
    return x < 0x1p63 ? df_int_bits(t, (int64_t)x) : (uint64_t)x;
}

/* An element widened: signed integers and bools to i64, unsigned integers to u64, whose bits are in
 * i, and floats to f64. All are exact. */
typedef struct wide {
    bool is_float, is_unsigned;
    int64_t i;
    double f;
} wide;

static wide load(deft_dtype t, const char *p)
{
    const uint64_t bits = df_bits_load(p, df_bytes_of(t));
    if (!df_is_float(t))
        return (wide){ .i = df_int_of_bits(t, bits), .is_unsigned = df_is_unsigned(t) };
    wide w = { .is_float = true };
    if (df_is_half(t)) {
        w.f = (double)df_f32_of_half(t, (uint16_t)bits);
    } else if (t == DEFT_F32) {
        w.f = (double)df_f32_of_bits((uint32_t)bits);
    } else {
        memcpy(&w.f, p, sizeof w.f);
    }
    return w;
}

static float to_f32(wide w)
{
    return w.is_float ? (float)w.f : w.is_unsigned ? (float)(uint64_t)w.i : (float)w.i;
}

static double to_f64(wide w)
{
    return w.is_float ? w.f : w.is_unsigned ? (double)(uint64_t)w.i : (double)w.i;
}

static uint16_t to_half(deft_dtype t, wide w)
{
    if (w.is_float) return df_half_of_f64(t, w.f);
    return w.is_unsigned ? df_half_of_u64(t, (uint64_t)w.i) : df_half_of_i64(t, w.i);
}

static void store(deft_dtype t, char *p, wide w)
{
    uint64_t bits = 0;
    switch (df_kind_of(t)) {
    case DF_KIND_boolean: bits = w.is_float ? w.f != 0 : w.i != 0; break;
    case DF_KIND_natural:
    case DF_KIND_integer: bits = w.is_float ? to_int(t, w.f) : df_int_bits(t, w.i); break;
    case DF_KIND_half: bits = to_half(t, w); break;
    case DF_KIND_real:
        if (t == DEFT_F32) {
            bits = df_f32_bits(to_f32(w));
        } else {
            const double x = to_f64(w);
            memcpy(&bits, &x, sizeof x);
        }
        break;
    case DF_KIND_complex:
    case DF_KIND_coded:
    case DF_KIND_packed: df_unreachable(); /* no value has it */
    }
    df_bits_store(p, bits, df_bytes_of(t));
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
    if (stride == (int64_t)w->size) {
        memcpy(at, w->src, (size_t)n * w->size);
        w->src += (size_t)n * w->size;
        return;
    }
    for (int64_t i = 0; i < n; i++, at += stride, w->src += w->size) memcpy(at, w->src, w->size);
}

void df_value_write(const df_value *v, const void *src)
{
    writer w = { deft_dtype_size((deft_dtype)v->dtype), src };
    df_value_rows(v, write_row, &w);
}
