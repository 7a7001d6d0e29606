/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors as text: "f32[2,3] [[1, 2, 3], [4, 5, 6]]". Floats are the shortest decimals
 * that read back to the same bits, whatever the caller's locale. Long axes show only
 * their ends.
 */
#include "lazy/core/devices.h"
#include "lazy/core/face.h"
#include "lazy/core/recorder.h"
#include "lazy/run/submit.h"
#include "lazy/run/materialize.h"
#include "base/bits.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An axis longer than LONG_AXIS shows only its first and last ENDS elements. */
enum { LONG_AXIS = 8, ENDS = 3 };

/* Appends a number that snprintf has written, with '.' in place of the locale's decimal
 * point, which may have several bytes. */
static void put_decimal(df_str *s, const char *text)
{
    bool in_point = false;
    for (; *text; text++) {
        const bool plain =
            (*text >= '0' && *text <= '9') || *text == '-' || *text == '+' || *text == 'e';
        if (plain || !in_point) df_str_putc(s, plain ? *text : '.');
        in_point = !plain;
    }
}

static void put_float(df_str *s, double x, bool is_f32)
{
    if (isnan(x)) {
        df_str_put(s, "nan");
        return;
    }
    if (isinf(x)) {
        df_str_put(s, x < 0 ? "-inf" : "inf");
        return;
    }
    char text[64];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (is_f32 ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x) break;
    }
    put_decimal(s, text);
}

/* Appends a half: as a whole number when that is short, else as the shortest decimal. */
static void put_half(df_str *s, deft_dtype t, uint16_t bits)
{
    const double x = (double)df_f32_of_half(t, bits);
    char text[64];
    if (!isfinite(x) || (fabs(x) < 0x1p17 && x == floor(x))) {
        put_float(s, x, true);
        return;
    }
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (df_half_of_f64(t, strtod(text, NULL)) == bits) break;
    }
    put_decimal(s, text);
}

static void put_element(df_str *s, deft_dtype dtype, const char *at)
{
    const uint64_t bits = df_bits_load(at, df_bytes_of(dtype));
    switch (df_kind_of(dtype)) {
    case DF_KIND_boolean: df_str_put(s, bits ? "true" : "false"); return;
    case DF_KIND_natural: df_str_fmt(s, "%" PRIu64, bits); return;
    case DF_KIND_integer: df_str_fmt(s, "%" PRId64, df_int_of_bits(dtype, bits)); return;
    case DF_KIND_half: put_half(s, dtype, (uint16_t)bits); return;
    case DF_KIND_real: break;
    case DF_KIND_complex:
    case DF_KIND_coded:
    case DF_KIND_packed: df_unreachable();
    }
    if (dtype == DEFT_F32) {
        float x;
        memcpy(&x, at, sizeof x);
        put_float(s, (double)x, true);
    } else {
        double x;
        memcpy(&x, at, sizeof x);
        put_float(s, x, false);
    }
}

/* Appends the number of a code of a storage dtype. */
static void put_code(df_str *s, deft_dtype t, int code)
{
    if (df_kind_of(t) == DF_KIND_packed) {
        df_str_fmt(s, "%d", t == DEFT_I4 && code > 7 ? code - 16 : code);
        return;
    }
    if (t == DEFT_E8M0) {
        put_float(s, code == 255 ? (double)NAN : ldexp(1, code - 127), true);
        return;
    }
    const int bits = t == DEFT_F8E5M2 ? 2 : 3, bias = t == DEFT_F8E5M2 ? 15 : 7;
    const int exponent = (code & 127) >> bits, fraction = code & ((1 << bits) - 1);
    double x =
        ldexp((exponent ? 1 << bits : 0) + fraction, (exponent ? exponent : 1) - bias - bits);
    if ((code & 127) == 127 || (t == DEFT_F8E5M2 && exponent == 31))
        x = fraction ? (double)NAN : (double)INFINITY;
    put_float(s, code & 128 ? -x : x, true);
}

/* Appends the element at data + offset, such as "1.5-2i". Of a packed dtype, offset counts halves
 * of bytes. */
static void put_shown(df_str *s, const df_value *v, int64_t offset, df_face face)
{
    const deft_dtype t = (deft_dtype)v->dtype;
    const bool is_packed = df_face_is_packed(face);
    const char *const at = v->data + (is_packed ? offset / 2 : offset);
    if (df_face_is_stored(face)) {
        const int byte = (unsigned char)*at;
        put_code(s, df_face_dtype(face), is_packed ? byte >> 4 * (int)(offset % 2) & 15 : byte);
        return;
    }
    put_element(s, t, at);
    if (!df_face_is_complex(face)) return;
    const char *const im = at + v->stride[v->rank - 1] * (int64_t)df_bytes_of(t);
    const uint64_t bits = df_bits_load(im, df_bytes_of(t));
    const bool is_nan = (bits & ~df_sign_bit(t)) > df_infinity_bits(t);
    if (is_nan || !(bits & df_sign_bit(t))) df_str_putc(s, '+');
    put_element(s, t, im);
    df_str_putc(s, 'i');
}

/* Appends the shown elements, counting indices like an odometer. `axis` is the innermost
 * open bracket. */
static void put_elements(df_str *s, const df_value *v, df_face face)
{
    const int64_t size = (int64_t)deft_dtype_size((deft_dtype)v->dtype);
    df_shape shown = v->shape;
    df_face_show(face, &shown);
    const uint32_t rank = shown.rank;
    int64_t at[DEFT_MAX_RANK] = { 0 }, stride[DEFT_MAX_RANK], offset = 0;
    for (uint32_t i = 0; i < rank; i++)
        stride[i] = !df_face_is_packed(face) ? v->stride[i] : i + 1 < rank ? 2 * v->stride[i] : 1;
    if (rank == 0) {
        put_shown(s, v, 0, face);
        return;
    }
    df_str_putc(s, '[');
    for (uint32_t axis = 0;;) {
        const int64_t dim = shown.dim[axis], i = at[axis];
        if (i == dim) {
            df_str_putc(s, ']');
            offset -= dim * stride[axis];
            if (axis == 0 || !s->ok) return;
            axis--;
            at[axis]++;
            offset += stride[axis];
            continue;
        }
        if (i > 0) df_str_put(s, ", ");
        if (i == ENDS && dim > LONG_AXIS) {
            df_str_put(s, "..., ");
            at[axis] = dim - ENDS;
            offset += (dim - ENDS - i) * stride[axis];
        }
        if (axis + 1 == rank) {
            put_shown(s, v, offset * size, face);
            at[axis]++;
            offset += stride[axis];
        } else {
            axis++;
            at[axis] = 0;
            df_str_putc(s, '[');
        }
    }
}

/* Checks and computes t, and writes its text into *out. */
static deft_status text_of(const char *what, uintptr_t site, deft_tensor *t, deft_ctx **cx_out,
                           df_str *out)
{
    *out = (df_str){ 0 };
    if (!t || df_slab_of(t)->magic != DF_SLAB_MAGIC) return DEFT_E_ARG;
    deft_ctx *const cx = *cx_out = df_slab_of(t)->cx;
    df_str_init(out, cx->mem);
    df_act(cx, what, site);
    deft_status st = df_may_act(cx);
    if (st != DEFT_OK) return st;
    if (!df_enter_of(what, 1, t, DF_ALL_FACES, site) || df_owes(cx, t)) return df_deliver(cx);
    df_recording_reads(cx);
    st = df_wait_for(cx, df_handle_value(cx, t));
    if (st != DEFT_OK) return st;
    df_value *found = df_value_ref(df_handle_value(cx, t)), *v = NULL;
    if (!found) {
        df_want w = { .node = df_node_of(cx, t) };
        if (w.node == DF_BAD) return df_deliver(cx);
        TRY(df_sync(cx, &w, 1));
        found = w.result;
    }
    TRY(df_value_host(cx, &cx->diag, found, &v));
    char shape[DF_SHAPE_TEXT];
    df_shape shown = v->shape;
    df_face_show(df_face_of(t), &shown);
    df_str_fmt(out, "%s%s ", deft_dtype_name(df_shown_dtype(cx, t)),
               df_shape_text(&shown, shape, sizeof shape));
    put_elements(out, v, df_face_of(t));
    if (!out->ok) st = df_fail(&cx->diag, DEFT_E_MEMORY, "%s: no memory for the text", what);
done:
    df_value_drop(cx, &found);
    df_value_drop(cx, &v);
    return st;
}

deft_status deft_format(deft_tensor *t, char *buf, size_t n, size_t *length)
{
    if (n && buf) buf[0] = '\0';
    deft_ctx *cx = NULL;
    df_str s;
    deft_status st = text_of("format", DF_SITE, t, &cx, &s);
    if (!cx) return st;
    if (st == DEFT_OK && n && !buf)
        st = df_fail(&cx->diag, DEFT_E_ARG, "format: buf is NULL, with room for %zu characters", n);
    if (st == DEFT_OK) {
        const size_t take = s.n < n ? s.n : n ? n - 1 : 0;
        if (n) {
            memcpy(buf, s.at, take);
            buf[take] = '\0';
        }
        if (length) *length = s.n;
    }
    df_str_finish(&s);
    return st;
}

deft_status deft_print(deft_tensor *t, FILE *stream)
{
    deft_ctx *cx = NULL;
    df_str s;
    deft_status st = text_of("print", DF_SITE, t, &cx, &s);
    if (!cx) return st;
    if (st == DEFT_OK && !stream) st = df_fail(&cx->diag, DEFT_E_ARG, "print: stream is NULL");
    if (st == DEFT_OK) {
        df_str_putc(&s, '\n');
        if (!s.ok)
            st = df_fail(&cx->diag, DEFT_E_MEMORY, "print: no memory for the text");
        else if (fwrite(s.at, 1, s.n, stream) != s.n)
            st = df_fail(&cx->diag, DEFT_E_IO, "print: %zu bytes could not be written", s.n);
    }
    df_str_finish(&s);
    return st;
}
