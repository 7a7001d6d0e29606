/* SPDX-License-Identifier: Apache-2.0
 *
 * Acting calls that give values to the program: eval, read, item, map.
 */
#include "lazy/core/devices.h"
#include "lazy/core/face.h"
#include "lazy/core/recorder.h"
#include "lazy/run/submit.h"
#include "lazy/run/materialize.h"

#include <string.h>

deft_status df_read_faced(const char *what, uintptr_t site, deft_tensor *t, deft_ctx **cx_out,
                          df_value **out)
{
    if (!t) return DEFT_E_ARG;
    const df_slab *const s = df_slab_of(t);
    if (s->magic != DF_SLAB_MAGIC) return DEFT_E_ARG;
    deft_ctx *const cx = *cx_out = s->cx;
    df_act(cx, what, site);
    deft_status st = df_may_act(cx);
    if (st != DEFT_OK) return st;
    if (!df_enter_of(what, 1, t, DF_ALL_FACES, site) || df_owes(cx, t)) return df_deliver(cx);
    df_recording_reads(cx);
    st = df_wait_for(cx, df_handle_value(cx, t));
    if (st != DEFT_OK) return st;
    if (!(*out = df_handle_value(cx, t))) {
        const uint32_t node = df_node_of(cx, t);
        if (node == DF_BAD) return df_deliver(cx);
        df_want w = { .node = node };
        st = df_sync(cx, &w, 1);
        if (st != DEFT_OK) return st;
        *out = w.result;
        df_value *mine = w.result; /* the record holds a reference of its own */
        df_value_drop(cx, &mine);
    }
    return DEFT_OK;
}

deft_status df_read_value(const char *what, uintptr_t site, deft_tensor *t, deft_ctx **cx_out,
                          df_value **out)
{
    const deft_status st = df_read_faced(what, site, t, cx_out, out);
    if (st != DEFT_OK || !df_face_of(t)) return st;
    return df_fail(&(*cx_out)->diag, DEFT_E_DTYPE, "%s: not for %s: use deft_%s", what,
                   deft_dtype_name(df_face_dtype(df_face_of(t))),
                   df_face_is_complex(df_face_of(t)) ? "view_as_real" : "cast, or deft_bitcast");
}

deft_status deft_eval(deft_tensor *const *list, size_t n)
{
    if (!list || !n || n > UINT32_MAX / sizeof(df_want)) return DEFT_E_ARG;
    deft_ctx *cx = NULL;
    for (size_t i = 0; i < n && !cx; i++)
        if (list[i] && df_slab_of(list[i])->magic == DF_SLAB_MAGIC) cx = df_slab_of(list[i])->cx;
    if (!cx) return DEFT_E_ARG;
    df_act(cx, "eval", DF_SITE);
    deft_status st = df_may_act(cx);
    if (st == DEFT_OK) st = df_wait_for_steps(cx);
    if (st != DEFT_OK) return st;
    df_want *const want = df_mem_zalloc(cx->mem, n * sizeof *want);
    if (!want) return df_fail_mem(&cx->diag, "eval: list", n * sizeof *want);
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (!df_enter_more_of(cx, "eval", (unsigned)i + 1, list[i], DF_ALL_FACES) ||
            df_owes(cx, list[i])) {
            st = df_deliver(cx);
            break;
        }
        if (df_handle_value(cx, list[i])) continue;
        const uint32_t node = df_node_of(cx, list[i]);
        if (node == DF_BAD) {
            st = df_deliver(cx);
            break;
        }
        bool again = false;
        for (uint32_t k = 0; k < count && !again; k++) again = want[k].node == node;
        if (!again) want[count++].node = node;
    }
    if (st == DEFT_OK && count) st = df_sync(cx, want, count);
    for (uint32_t i = 0; i < count; i++) df_value_drop(cx, &want[i].result);
    df_mem_free(cx->mem, want, n * sizeof *want);
    return st;
}

/* Writes the elements of v, the value of t, as dtype. A real number is read as a complex one with
 * the part 0; a complex number is not read as a real one. */
static deft_status read_as(deft_ctx *cx, const char *what, const deft_tensor *t, const df_value *v,
                           deft_dtype dtype, void *dst)
{
    const deft_dtype own = df_shown_dtype(cx, t);
    if (own != dtype && (df_is_stored(own) || df_is_stored(dtype)))
        return df_fail(&cx->diag, DEFT_E_DTYPE, "%s: %s as %s: cast it with deft_cast first", what,
                       deft_dtype_name(own), deft_dtype_name(dtype));
    if (df_is_complex(own) && !df_is_complex(dtype))
        return df_fail(&cx->diag, DEFT_E_DTYPE,
                       "%s: complex numbers as %s: take deft_real, deft_imag or deft_abs", what,
                       deft_dtype_name(dtype));
    const deft_dtype as = df_record_dtype(dtype);
    const deft_status st = df_value_read(cx, &cx->diag, v, as, dst);
    if (st != DEFT_OK || df_is_complex(own) || !df_is_complex(dtype)) return st;
    int64_t n;
    (void)df_shape_numel(&v->shape, &n);
    const size_t part = deft_dtype_size(as);
    for (int64_t i = n; i-- > 0;) { /* from the end: each element moves up */
        char *const at = (char *)dst + 2 * part * (size_t)i;
        memmove(at, (char *)dst + part * (size_t)i, part);
        memset(at + part, 0, part);
    }
    return DEFT_OK;
}

deft_status deft_read(deft_tensor *t, deft_dtype dtype, void *dst, size_t bytes)
{
    deft_ctx *cx;
    df_value *v;
    const deft_status st = df_read_faced("read", DF_SITE, t, &cx, &v);
    if (st != DEFT_OK) return st;
    int64_t n;
    char text[DF_SHAPE_TEXT];
    if ((unsigned)dtype >= DEFT_N_DTYPES)
        return df_fail(&cx->diag, DEFT_E_DTYPE, "read: %d is no dtype", (int)dtype);
    df_shape s = v->shape;
    df_face_show(df_face_of(t), &s);
    (void)df_shape_numel(&s, &n);
    const bool is_packed = df_face_is_packed(df_face_of(t));
    const size_t want = is_packed ? df_value_size(v) : (size_t)n * deft_dtype_size(dtype);
    if (bytes != want || (!dst && want))
        return df_fail(&cx->diag, DEFT_E_ARG, "read: %s as %s is %zu bytes, dst has %zu",
                       df_shape_text(&s, text, sizeof text), deft_dtype_name(dtype), want, bytes);
    return read_as(cx, "read", t, v, dtype, dst);
}

static DF_NOINLINE deft_status item(deft_tensor *t, deft_dtype dtype, void *out, uintptr_t site)
{
    deft_ctx *cx;
    df_value *v;
    const deft_status st = df_read_faced("item", site, t, &cx, &v);
    if (st != DEFT_OK) return st;
    int64_t n;
    char text[DF_SHAPE_TEXT];
    df_shape s = v->shape;
    df_face_show(df_face_of(t), &s);
    (void)df_shape_numel(&s, &n);
    if (n != 1 || !out)
        return df_fail(&cx->diag, DEFT_E_SHAPE, "item: %s has %lld elements, not one",
                       df_shape_text(&s, text, sizeof text), (long long)n);
    return read_as(cx, "item", t, v, dtype, out);
}

#define DF_ITEM(t, NAME, T)                                                                        \
    deft_status deft_item_##t(deft_tensor *x, T *out)                                              \
    {                                                                                              \
        return item(x, DEFT_##NAME, out, DF_SITE);                                                 \
    }
DF_ITEM(f32, F32, float)
DF_ITEM(f64, F64, double)
DF_ITEM(i8, I8, int8_t)
DF_ITEM(i16, I16, int16_t)
DF_ITEM(i32, I32, int32_t)
DF_ITEM(i64, I64, int64_t)
DF_ITEM(u8, U8, uint8_t)
DF_ITEM(u16, U16, uint16_t)
DF_ITEM(u32, U32, uint32_t)
DF_ITEM(u64, U64, uint64_t)
#undef DF_ITEM

deft_status deft_item_c64(deft_tensor *t, float *parts)
{
    return item(t, DEFT_C64, parts, DF_SITE);
}

deft_status deft_item_c128(deft_tensor *t, double *parts)
{
    return item(t, DEFT_C128, parts, DF_SITE);
}

deft_status deft_item_bool(deft_tensor *t, bool *out)
{
    uint8_t b = 0;
    const deft_status st = item(t, DEFT_BOOL, out ? &b : NULL, DF_SITE);
    if (st == DEFT_OK) *out = b != 0;
    return st;
}

deft_status deft_map(deft_tensor *t, deft_mapped *out)
{
    deft_ctx *cx;
    df_value *v, *host;
    if (out) *out = (deft_mapped){ 0 };
    deft_status st = df_read_faced("map", DF_SITE, t, &cx, &v);
    if (st != DEFT_OK) return st;
    if (!out) return df_fail(&cx->diag, DEFT_E_ARG, "map: out is NULL");
    if (!df_value_contiguous(v))
        return df_fail(&cx->diag, DEFT_E_ARG,
                       "map: wrapped memory with gaps is the caller's own: read it there");
    st = v->flags & DF_VALUE_MUT ? df_value_moved(cx, &cx->diag, v, DEFT_CPU, &host)
                                 : df_value_host(cx, &cx->diag, v, &host);
    if (st != DEFT_OK) return st;
    int64_t n;
    (void)df_shape_numel(&v->shape, &n);
    out->data = host->data;
    out->bytes = (size_t)n * deft_dtype_size((deft_dtype)v->dtype);
    out->held = host;
    out->cx = cx;
    return DEFT_OK;
}

void deft_unmap(deft_mapped *m)
{
    if (!m || !m->held) return;
    df_value *v = m->held;
    df_value_drop(m->cx, &v);
    *m = (deft_mapped){ 0 };
}
