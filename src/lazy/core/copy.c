/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of values between devices. All bytes go through df_ctx_copy.
 *
 * Values in the library's own memory have no gaps. Wrapped memory may have gaps. It is
 * then gathered on the host, and written on a GPU one run of adjacent elements at a time.
 * That is slow, but does not touch the memory between the elements.
 */
#include "lazy/core/devices.h"

#include <string.h>

static struct df_queue *queue_of(const deft_ctx *cx, deft_device where)
{
    return cx->queues[where - 1].queue;
}

deft_status df_ctx_buffer(deft_ctx *cx, df_diag *d, deft_device where, int64_t bytes,
                          df_buffer **out)
{
    if (where == DEFT_CPU) return df_buffer_create(d, cx->rt->dev->allocator, bytes, out);
    df_device *const dev = df_ctx_device(cx, where);
    return dev->far->create(dev, d, queue_of(cx, where), bytes, out);
}

deft_status df_ctx_copy(deft_ctx *cx, df_diag *d, deft_device to_where, void *to,
                        deft_device from_where, const void *from, size_t n)
{
    if (!n) return DEFT_OK;
    if (to_where == DEFT_CPU && from_where == DEFT_CPU) {
        memcpy(to, from, n);
        return DEFT_OK;
    }
    const deft_device far_where = to_where != DEFT_CPU ? to_where : from_where;
    df_device *const dev = df_ctx_device(cx, far_where);
    struct df_queue *const q = queue_of(cx, far_where);
    if (from_where == DEFT_CPU) return dev->far->put(dev, d, q, to, from, n);
    if (to_where == DEFT_CPU) return dev->far->get(dev, d, q, to, from, n);
    if (to_where == from_where) return dev->far->copy(dev, d, q, to, from, n);
    return dev->far->copy_peer(dev, d, q, to, df_ctx_device(cx, from_where),
                               queue_of(cx, from_where), from, n);
}

/* Number of bytes from the lowest byte of v's elements to the end of the highest. *below gets
 * how many of them lie before the first element. */
static size_t span_bytes(const df_value *v, size_t *below)
{
    const size_t size = deft_dtype_size((deft_dtype)v->dtype);
    int64_t low = 0, high = 0;
    *below = 0;
    for (uint32_t i = 0; i < v->rank; i++) {
        if (v->shape.dim[i] == 0) return 0;
        *(v->stride[i] < 0 ? &low : &high) += (v->shape.dim[i] - 1) * v->stride[i];
    }
    *below = (size_t)-low * size;
    return (size_t)(high - low + 1) * size;
}

/* A copy has the address of its original modulo ALIGN, so that code for aligned addresses
 * fits both. On a GPU the address of an element is always a multiple of its size,
 * whatever it was on the host. */
enum { ALIGN = 64 };

deft_status df_value_span(deft_ctx *cx, df_diag *d, const df_value *v, deft_device where,
                          df_buffer **buf, char **data)
{
    size_t below;
    const size_t n = span_bytes(v, &below);
    const char *const lowest = v->data - below;
    const size_t at = (uintptr_t)lowest % ALIGN;
    const size_t low = at - at % deft_dtype_size((deft_dtype)v->dtype);
    deft_status st = df_ctx_buffer(cx, d, where, (int64_t)(n + low), buf);
    if (st != DEFT_OK) return st;
    char *const copy = (char *)(*buf)->data + low;
    *data = copy + below;
    st = df_ctx_copy(cx, d, where, copy, df_value_where(cx, v), lowest, n);
    if (st != DEFT_OK) df_buffer_drop(buf);
    return st;
}

/* Sets *out to v, or to a copy of v on the host with v's strides. The caller drops
 * out->buf, which is NULL when v is on the host already. */
static deft_status span_on_host(deft_ctx *cx, df_diag *d, const df_value *v, df_value *out)
{
    *out = *v;
    out->buf = NULL;
    if (df_value_where(cx, v) == DEFT_CPU) return DEFT_OK;
    return df_value_span(cx, d, v, DEFT_CPU, &out->buf, &out->data);
}

/* Copies v, which has gaps, row-major into `to` on device `where`, through the host. */
static deft_status gather(deft_ctx *cx, df_diag *d, const df_value *v, df_value *to,
                          deft_device where)
{
    deft_status st = DEFT_OK;
    df_value span = { 0 };
    df_buffer *packed = NULL;
    const size_t n = df_value_size(v);
    TRY(span_on_host(cx, d, v, &span));
    TRY(df_ctx_buffer(cx, d, DEFT_CPU, (int64_t)n, &packed));
    df_value_pack(&span, (deft_dtype)v->dtype, packed->data);
    TRY(df_ctx_copy(cx, d, where, to->data, DEFT_CPU, packed->data, n));
done:
    df_buffer_drop(&span.buf);
    df_buffer_drop(&packed);
    return st;
}

deft_status df_value_moved(deft_ctx *cx, df_diag *d, const df_value *v, deft_device where,
                           df_value **out)
{
    deft_status st = DEFT_OK;
    const size_t n = df_value_size(v);
    df_value *to = df_value_new(cx, (deft_dtype)v->dtype, &v->shape);
    if (!to) return df_fail_mem(d, "value", sizeof *to);
    TRY(df_ctx_buffer(cx, d, where, (int64_t)n, &to->buf));
    to->data = to->buf->data;
    if (df_value_contiguous(v))
        TRY(df_ctx_copy(cx, d, where, to->data, df_value_where(cx, v), v->data, n));
    else
        TRY(gather(cx, d, v, to, where));
    *out = to;
    to = NULL;
done:
    df_value_drop(cx, &to);
    return st;
}

deft_status df_value_host(deft_ctx *cx, df_diag *d, df_value *v, df_value **out)
{
    if (df_value_where(cx, v) != DEFT_CPU) return df_value_moved(cx, d, v, DEFT_CPU, out);
    *out = df_value_ref(v);
    return DEFT_OK;
}

deft_status df_value_read(deft_ctx *cx, df_diag *d, const df_value *v, deft_dtype dtype, void *dst)
{
    const deft_device where = df_value_where(cx, v);
    df_value span;
    if (where == DEFT_CPU) {
        df_value_pack(v, dtype, dst);
        return DEFT_OK;
    }
    if (v->dtype == dtype && df_value_contiguous(v))
        return df_ctx_copy(cx, d, DEFT_CPU, dst, where, v->data, df_value_size(v));
    const deft_status st = span_on_host(cx, d, v, &span);
    if (st == DEFT_OK) df_value_pack(&span, dtype, dst);
    df_buffer_drop(&span.buf);
    return st;
}

typedef struct writer {
    deft_ctx *cx;
    df_diag *d;
    deft_device to, from_where;
    const char *from;
    size_t size;
    deft_status status;
} writer;

static void write_row(void *user, char *at, int64_t n, int64_t stride)
{
    writer *const w = user;
    const bool dense = stride == (int64_t)w->size;
    const size_t step = dense ? (size_t)n * w->size : w->size;
    for (int64_t i = 0; i < (dense ? 1 : n) && w->status == DEFT_OK; i++) {
        w->status = df_ctx_copy(w->cx, w->d, w->to, at, w->from_where, w->from, step);
        at += stride;
        w->from += step;
    }
}

deft_status df_value_assign(deft_ctx *cx, df_diag *d, const df_value *v, deft_device where,
                            const void *from)
{
    const deft_device to = df_value_where(cx, v);
    df_assert(to != DEFT_CPU || where == DEFT_CPU);
    if (df_value_contiguous(v))
        return df_ctx_copy(cx, d, to, v->data, where, from, df_value_size(v));
    writer w = { cx, d, to, where, from, deft_dtype_size((deft_dtype)v->dtype), DEFT_OK };
    df_value_rows(v, write_row, &w);
    return w.status;
}
