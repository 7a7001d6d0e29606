/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills: looked at when they are put in, and again when they are done.
 */
#include "state.h"

#include <string.h>

/* ---- done late ---- */

static uint64_t row_at(const side *s, uint64_t y, uint64_t z)
{
    return s->at + (z * s->height + y) * s->pitch;
}

static bool rows_are_there(const op *o, const side *s)
{
    if (s->is_host) return true;
    for (uint64_t z = 0; z < o->depth; z++)
        for (uint64_t y = 0; y < o->height; y++) {
            if (!is_there(row_at(s, y, z), o->width, NULL)) return false;
            open_range(row_at(s, y, z), o->width);
        }
    return true;
}

int run_copy(const op *o)
{
    if (!rows_are_there(o, &o->dst) || !rows_are_there(o, &o->src)) {
        misuse(0, "a queued %s ran over memory that was freed", op_name(o));
        return BAD_ADDRESS;
    }
    for (uint64_t z = 0; z < o->depth; z++)
        for (uint64_t y = 0; y < o->height; y++)
            memmove((void *)(uintptr_t)row_at(&o->dst, y, z),
                    (const void *)(uintptr_t)row_at(&o->src, y, z), o->width);
    return 0;
}

int run_set(const op *o)
{
    if (!rows_are_there(o, &o->dst)) {
        misuse(0, "a queued %s ran over memory that was freed", op_name(o));
        return BAD_ADDRESS;
    }
    for (uint64_t y = 0; y < o->height; y++) {
        char *const row = (char *)(uintptr_t)row_at(&o->dst, y, 0);
        for (uint64_t i = 0; i < o->width; i += o->element) memcpy(row + i, &o->value, o->element);
    }
    return 0;
}

/* ---- put in ---- */

/* 0, or misuse was told. of: the GPU whose memory it is, or -1: any. */
static int look(const char *what, uint64_t p, uint64_t n, int of)
{
    int is = 0;
    if (!is_there(p, n, &is))
        return misuse(BAD_VALUE, "%s of %llu bytes: %s has fewer", what, (unsigned long long)n,
                      address_name(p));
    if (of >= 0 && is != of && !(gpu_of(of)->peers >> is & 1))
        return misuse(BAD_VALUE, "%s %s is memory of gpu%d, not of gpu%d", what, address_name(p),
                      is, of);
    return 0;
}

static op *flat_copy(uint64_t dst, bool to_host, uint64_t src, bool from_host, uint64_t n)
{
    op *const o = grab(sizeof *o);
    *o = (op){ .kind = OP_COPY,
               .gpu = current(),
               .dst = { to_host, dst, n, 1 },
               .src = { from_host, src, n, 1 },
               .width = n,
               .height = 1,
               .depth = 1 };
    return o;
}

/* The device's side of a host copy, and the host's. */
static int look_both(uint64_t device, const void *host, uint64_t n)
{
    const int r = look("a copy", device, n, current());
    if (r) return r;
    if (in_device_range((uint64_t)(uintptr_t)host))
        return misuse(BAD_VALUE, "%s is no host memory", address_name((uint64_t)(uintptr_t)host));
    if (pinned_at(host, 1) && !pinned_at(host, n))
        return misuse(BAD_VALUE, "a copy of %llu bytes: %s has fewer", (unsigned long long)n,
                      host_name(host));
    return 0;
}

df_cu_result cuMemcpyHtoDAsync_v2(df_cu_ptr dst, const void *src, size_t n, df_cu_stream where)
{
    int r = enter(C_cuMemcpyHtoDAsync_v2, NEEDS_CONTEXT);
    if (r) return r;
    stream *const s = stream_get(where);
    if (!s) return leave(BAD_HANDLE);
    record(" %s %s %zu from %s", object_name(where ? s : NULL), address_name(dst), n,
           host_name(src));
    r = n ? look_both(dst, src, n) : 0;
    if (r || n == 0) return leave(r);
    op *const o = flat_copy(dst, false, (uint64_t)(uintptr_t)src, true, n);
    if (!pinned_at(src, n) && !s->capture) {
        o->bytes = grab(n);
        o->n_bytes = n;
        memcpy(o->bytes, src, n);
        o->src.at = (uint64_t)(uintptr_t)o->bytes;
    }
    return leave(put_work(s, o));
}

df_cu_result cuMemcpyHtoD_v2(df_cu_ptr dst, const void *src, size_t n)
{
    int r = enter(C_cuMemcpyHtoD_v2, NEEDS_CONTEXT);
    if (r) return r;
    stream *const s = stream_get(NULL);
    if (!s) return leave(BAD_HANDLE);
    record(" %s %zu from %s", address_name(dst), n, host_name(src));
    r = n ? look_both(dst, src, n) : 0;
    if (r || n == 0) return leave(r);
    r = put_work(s, flat_copy(dst, false, (uint64_t)(uintptr_t)src, true, n));
    if (!r) run_stream(s);
    return leave(r ? r : gpu_of(current())->poison);
}

df_cu_result cuMemcpyDtoHAsync_v2(void *dst, df_cu_ptr src, size_t n, df_cu_stream where)
{
    int r = enter(C_cuMemcpyDtoHAsync_v2, NEEDS_CONTEXT);
    if (r) return r;
    stream *const s = stream_get(where);
    if (!s) return leave(BAD_HANDLE);
    record(" %s %zu from %s to %s", object_name(where ? s : NULL), n, address_name(src),
           host_name(dst));
    r = n ? look_both(src, dst, n) : 0;
    if (r || n == 0) return leave(r);
    const bool waits = !pinned_at(dst, n) && !s->capture;
    r = put_work(s, flat_copy((uint64_t)(uintptr_t)dst, true, src, false, n));
    if (!r && waits) {
        run_stream(s);
        r = gpu_of(current())->poison;
    }
    return leave(r);
}

df_cu_result cuMemcpyDtoDAsync_v2(df_cu_ptr dst, df_cu_ptr src, size_t n, df_cu_stream where)
{
    int r = enter(C_cuMemcpyDtoDAsync_v2, NEEDS_CONTEXT);
    if (r) return r;
    stream *const s = stream_get(where);
    if (!s) return leave(BAD_HANDLE);
    record(" %s %s %zu from %s", object_name(where ? s : NULL), address_name(dst), n,
           address_name(src));
    if (n == 0) return leave(0);
    r = look("a copy to", dst, n, current());
    if (!r) r = look("a copy from", src, n, current());
    if (!r && dst < src + n && src < dst + n)
        r = misuse(0, "a copy of %zu bytes from %s to %s overlaps", n, address_name(src),
                   address_name(dst));
    if (r) return leave(r);
    return leave(put_work(s, flat_copy(dst, false, src, false, n)));
}

static int gpu_of_memory(const char *what, uint64_t p, uint64_t n, df_cu_ctx context)
{
    int is = 0;
    if (!is_there(p, n, &is)) return look(what, p, n, -1);
    if (context_is(context, is)) return 0;
    return misuse(BAD_CONTEXT, "%s %s: it is not of that context", what, address_name(p));
}

df_cu_result cuMemcpyPeerAsync(df_cu_ptr dst, df_cu_ctx dst_context, df_cu_ptr src,
                               df_cu_ctx src_context, size_t n, df_cu_stream where)
{
    int r = enter(C_cuMemcpyPeerAsync, NEEDS_CONTEXT);
    if (r) return r;
    stream *const s = stream_get(where);
    if (!s) return leave(BAD_HANDLE);
    record(" %s %s %zu from %s", object_name(where ? s : NULL), address_name(dst), n,
           address_name(src));
    if (n == 0) return leave(0);
    r = gpu_of_memory("a copy to", dst, n, dst_context);
    if (!r) r = gpu_of_memory("a copy from", src, n, src_context);
    return leave(r ? r : put_work(s, flat_copy(dst, false, src, false, n)));
}

static int put_set(call c, df_cu_ptr dst, uint32_t value, uint32_t element, size_t n,
                   df_cu_stream where)
{
    int r = enter(c, NEEDS_CONTEXT);
    if (r) return r;
    stream *const s = stream_get(where);
    if (!s) return leave(BAD_HANDLE);
    record(" %s %s %zu of %#x", object_name(where ? s : NULL), address_name(dst), n, value);
    if (n == 0) return leave(0);
    r = look("a fill", dst, n * element, current());
    if (!r && dst % element) r = misuse(BAD_VALUE, "%s is not aligned", address_name(dst));
    if (r) return leave(r);
    op *const o = flat_copy(dst, false, 0, true, n * element);
    o->kind = OP_SET;
    o->value = value;
    o->element = element;
    return leave(put_work(s, o));
}

df_cu_result cuMemsetD8Async(df_cu_ptr dst, unsigned char value, size_t n, df_cu_stream where)
{
    return put_set(C_cuMemsetD8Async, dst, value, 1, n, where);
}

df_cu_result cuMemsetD32Async(df_cu_ptr dst, unsigned value, size_t n, df_cu_stream where)
{
    return put_set(C_cuMemsetD32Async, dst, value, 4, n, where);
}

/* ---- nodes of graphs ---- */

static side side_of(uint64_t base, size_t x, size_t y, size_t z, size_t pitch, size_t height,
                    bool is_host)
{
    return (side){ is_host, base + (z * height + y) * pitch + x, pitch, height };
}

static int look_rows(const op *o, const side *s)
{
    int r = 0;
    for (uint64_t z = 0; z < o->depth && !r; z++)
        for (uint64_t y = 0; y < o->height && !r; y++) {
            const uint64_t row = row_at(s, y, z);
            if (!s->is_host)
                r = look("a node", row, o->width, -1);
            else if (in_device_range(row))
                r = misuse(BAD_VALUE, "a node: %s is no host memory", address_name(row));
        }
    return r;
}

static int take(op *o, df_cu_ctx context, op **out)
{
    int r = context_is(context, current())
                ? 0
                : misuse(BAD_CONTEXT, "the node's context is not the current one");
    if (!r) r = look_rows(o, &o->dst);
    if (!r && o->kind == OP_COPY) r = look_rows(o, &o->src);
    if (r)
        op_free(o);
    else
        *out = o;
    return r;
}

int copy_op(const df_cu_memcpy3d *c, df_cu_ctx context, op **out)
{
    if (!c->width || !c->height || !c->depth)
        return misuse(BAD_VALUE, "a node copies %zu x %zu x %zu", c->width, c->height, c->depth);
    if (c->src_lod || c->dst_lod || c->src_kind < 1 || c->src_kind > 2 || c->dst_kind < 1 ||
        c->dst_kind > 2 || c->reserved0 || c->reserved1)
        return misuse(BAD_VALUE, "a node copies from kind %u to kind %u", c->src_kind, c->dst_kind);
    if ((c->height > 1 || c->depth > 1) && (c->src_pitch < c->width || c->dst_pitch < c->width))
        return misuse(BAD_VALUE, "a node's rows overlap");
    const uint64_t src = c->src_kind == 1 ? (uint64_t)(uintptr_t)c->src_host : c->src_device;
    const uint64_t dst = c->dst_kind == 1 ? (uint64_t)(uintptr_t)c->dst_host : c->dst_device;
    op *const o = grab(sizeof *o);
    *o = (op){ .kind = OP_COPY,
               .gpu = current(),
               .dst = side_of(dst, c->dst_x, c->dst_y, c->dst_z, c->dst_pitch, c->dst_height,
                              c->dst_kind == 1),
               .src = side_of(src, c->src_x, c->src_y, c->src_z, c->src_pitch, c->src_height,
                              c->src_kind == 1),
               .width = c->width,
               .height = c->height,
               .depth = c->depth };
    return take(o, context, out);
}

int set_op(const df_cu_memset_node *m, df_cu_ctx context, op **out)
{
    const unsigned e = m->element_bytes;
    if ((e != 1 && e != 2 && e != 4) || !m->width || !m->height ||
        (m->height > 1 && m->pitch < m->width * e))
        return misuse(BAD_VALUE, "a node fills %zu x %zu elements of %u bytes", m->width, m->height,
                      e);
    if (m->dst % e) return misuse(BAD_VALUE, "%s is not aligned", address_name(m->dst));
    op *const o = grab(sizeof *o);
    *o = (op){ .kind = OP_SET,
               .gpu = current(),
               .dst = { false, m->dst, m->pitch, 1 },
               .src = { .is_host = true },
               .width = m->width * e,
               .height = m->height,
               .depth = 1,
               .value = m->value,
               .element = e };
    return take(o, context, out);
}
