/* SPDX-License-Identifier: Apache-2.0
 *
 * The public functions of complex numbers (deft/complex.h).
 */
#define DEFT_NO_GENERIC
#include "deft/complex.h"
#include "lazy/complex/complex.h"
#include "lazy/core/recorder.h"

/* The context of a call with two real operands, and their records. */
static deft_ctx *begin_two(const char *what, deft_tensor *a, deft_tensor *b, uint32_t node[2],
                           uintptr_t site)
{
    deft_tensor *const list[2] = { a, b };
    deft_ctx *const cx = df_enter(what, 1, a, site);
    const df_meeting m = { .what = what, .first = 1, .op = DF_OP_eq, .lifts = true, .site = site };
    deft_dtype t;
    if (!cx || !df_meet(cx, &m, list, 2, node, &t)) return NULL;
    t = df_arithmetic_dtype(t);
    for (int i = 0; i < 2; i++)
        if ((node[i] = df_to(cx, node[i], t, site)) == DF_BAD) return NULL;
    return cx;
}

deft_tensor *deft_complex(deft_tensor *re, deft_tensor *im)
{
    uint32_t node[2];
    deft_ctx *const cx = begin_two("complex", re, im, node, DF_SITE);
    return cx ? df_parts_result(cx, (df_parts){ node[0], node[1], false }, DF_SITE) : NULL;
}

deft_tensor *deft_polar(deft_tensor *r, deft_tensor *angle)
{
    uint32_t node[2];
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = begin_two("polar", r, angle, node, site);
    if (!cx) return NULL;
    const df_parts p = {
        df_map2(cx, DF_OP_mul, node[0], df_map1(cx, DF_OP_cos, node[1], site), site),
        df_map2(cx, DF_OP_mul, node[0], df_map1(cx, DF_OP_sin, node[1], site), site), false
    };
    return df_parts_result(cx, p, site);
}

deft_tensor *deft_full_c(deft_ctx *cx, deft_shape shape, deft_dtype dtype, double re, double im)
{
    const uintptr_t site = DF_SITE;
    df_shape s;
    df_enter_call(cx, site);
    if (!cx) return NULL;
    if ((unsigned)dtype >= DEFT_N_DTYPES || !df_is_complex(dtype))
        return df_error(cx, DEFT_E_DTYPE, "full_c: %s is not complex", deft_dtype_name(dtype));
    if (!df_check_shape(cx, "full_c", &shape, &s)) return NULL;
    const deft_dtype t = df_record_dtype(dtype);
    const df_parts p = { df_expand_to(cx, df_number_f(cx, "full_c", t, re, site), &s, site),
                         df_expand_to(cx, df_number_f(cx, "full_c", t, im, site), &s, site),
                         false };
    return df_parts_result(cx, p, site);
}

/* ---- parts ---- */

/* A new handle for what t is bound to: the tensor itself. */
static deft_tensor *itself(deft_ctx *cx, deft_tensor *t)
{
    if (t->flags & DF_HANDLE_WEAK) return df_number_copy(cx, t);
    return df_result_view(cx, df_node_of(cx, t), t);
}

/* Its place is the place of the part in t, and its value that of the piece, if t is joined of
 * pieces. */
static deft_tensor *part_of(deft_ctx *cx, deft_tensor *t, uint32_t which, uintptr_t site)
{
    const uint32_t node = df_node_of(cx, t);
    const uint32_t place = df_part_view(cx, node, which, site);
    if (place == DF_BAD) return NULL;
    const df_parts p = df_parts_of(cx, node, site);
    deft_tensor *const out = df_result_view(cx, place, t);
    const uint32_t piece = which ? p.im : p.re;
    if (out && piece != DF_BAD) out->node = piece;
    return out;
}

deft_tensor *deft_real(deft_tensor *t)
{
    deft_ctx *const cx = df_enter_faced("real", 1, t, DF_SITE);
    if (!cx) return NULL;
    return df_face_of(t) ? part_of(cx, t, 0, DF_SITE) : itself(cx, t);
}

deft_tensor *deft_imag(deft_tensor *t)
{
    deft_ctx *const cx = df_enter_faced("imag", 1, t, DF_SITE);
    if (!cx) return NULL;
    if (df_face_of(t)) return part_of(cx, t, 1, DF_SITE);
    return df_error(cx, DEFT_E_DTYPE, "imag: the tensor is %s, not complex",
                    deft_dtype_name(df_tensor_dtype(cx, t)));
}

deft_tensor *deft_conj(deft_tensor *t)
{
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = df_enter_faced("conj", 1, t, site);
    if (!cx) return NULL;
    if (!df_face_of(t)) return itself(cx, t);
    const df_parts z = df_parts_of(cx, df_node_of(cx, t), site);
    if (z.re == DF_BAD || z.im == DF_BAD) return NULL;
    return df_parts_result(cx, df_complex_conj(cx, z, site), site);
}

deft_tensor *deft_angle(deft_tensor *t)
{
    const uintptr_t site = DF_SITE;
    deft_ctx *const cx = df_enter_faced("angle", 1, t, site);
    if (!cx) return NULL;
    const df_parts z = df_complex_operand(cx, t, DEFT_F32, site);
    if (z.re == DF_BAD) return NULL;
    const deft_dtype own = df_dtype_at(cx, z.re), as = df_arithmetic_dtype(own);
    const uint32_t re = df_to(cx, z.re, as, site);
    /* without atan2(0, x): a positive zero for the imaginary part, also where x is -0 */
    const uint32_t im = z.is_real ? df_cst(cx, as, 0, site) : z.im;
    const uint32_t x = z.is_real ? df_map2(cx, DF_OP_add, re, im, site) : re;
    return df_result(
        cx, df_to(cx, df_map2(cx, DF_OP_atan2, im, x, site), df_is_half(own) ? own : as, site));
}

deft_tensor *deft_view_as_real(deft_tensor *t)
{
    deft_ctx *const cx = df_enter_faced("view_as_real", 1, t, DF_SITE);
    if (!cx) return NULL;
    if (df_face_is_complex(df_face_of(t))) return itself(cx, t);
    return df_error(cx, DEFT_E_DTYPE, "view_as_real: the tensor is %s, not complex",
                    deft_dtype_name(df_tensor_dtype(cx, t)));
}

deft_tensor *deft_view_as_complex(deft_tensor *t)
{
    uint32_t node;
    df_shape s;
    deft_ctx *const cx = df_begin("view_as_complex", t, &node, &s, DF_SITE);
    if (!cx) return NULL;
    const deft_dtype own = df_dtype_at(cx, node);
    char text[DF_SHAPE_TEXT];
    if (!df_is_real(own) || s.rank == 0 || s.dim[s.rank - 1] != 2)
        return df_error(cx, DEFT_E_DTYPE,
                        "view_as_complex: the tensor is %s%s: it takes f32 or f64, with a last "
                        "axis of extent 2",
                        deft_dtype_name(own), df_shape_text(&s, text, sizeof text));
    if (t->flags & DF_HANDLE_WEAK) return NULL;
    return df_wear(itself(cx, t), df_face_for(df_complex_of(own)));
}
