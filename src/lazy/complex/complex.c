/* SPDX-License-Identifier: Apache-2.0
 *
 * What operators mean for complex operands (complex.h).
 */
#include "lazy/complex/functions.h"

/* Until the end of a call, no policy of mixed precision is applied. */
static uint8_t mixed_off(deft_ctx *cx)
{
    const uint8_t was = cx->mixed;
    cx->mixed = 0;
    return was;
}

static deft_tensor *no_meaning(deft_ctx *cx, df_op op)
{
    return df_error(cx, DEFT_E_DTYPE, "%s: no meaning for complex numbers%s", df_op_infos[op].name,
                    df_op_infos[op].dtype_rule == DF_DTYPE_compare || op == DF_OP_minimum ||
                            op == DF_OP_maximum
                        ? ", which have no order"
                        : "");
}

/* ---- operands ---- */

df_parts df_complex_operand(deft_ctx *cx, deft_tensor *x, deft_dtype t, uintptr_t site)
{
    if (x->flags & DF_HANDLE_WEAK) return (df_parts){ df_weak_node(cx, x, t), DF_BAD, true };
    const uint32_t node = df_node_of(cx, x);
    if (!df_face_of(x)) return (df_parts){ node, DF_BAD, true };
    return df_parts_of(cx, node, site);
}

deft_dtype df_complex_meet(const deft_ctx *cx, deft_tensor *const *x, size_t n)
{
    deft_dtype t = DEFT_F32;
    for (size_t i = 0; i < n; i++)
        if (!(x[i]->flags & DF_HANDLE_WEAK)) t = df_promote(t, df_tensor_dtype(cx, x[i]));
    return t;
}

static df_parts in_dtype(deft_ctx *cx, df_parts x, deft_dtype t, uintptr_t site)
{
    x.re = df_to(cx, x.re, t, site);
    if (!x.is_real) x.im = df_to(cx, x.im, t, site);
    return x;
}

/* The float dtype to which the parts of a and b promote. */
static deft_dtype met_dtype(const deft_ctx *cx, df_parts a, df_parts b)
{
    return df_promote(df_promote(df_dtype_at(cx, a.re), df_dtype_at(cx, b.re)), DEFT_F32);
}

static bool is_bad(df_parts x)
{
    return x.re == DF_BAD || (!x.is_real && x.im == DF_BAD);
}

static deft_tensor *result(deft_ctx *cx, df_parts p, uintptr_t site)
{
    return p.is_real ? df_result(cx, p.re) : df_parts_result(cx, p, site);
}

/* ---- operators ---- */

deft_tensor *df_complex_unary(deft_ctx *cx, df_op op, uint32_t attr, deft_tensor *x, uintptr_t site)
{
    const uint8_t mixed = mixed_off(cx);
    const df_parts z = df_complex_operand(cx, x, DEFT_F32, site);
    deft_tensor *out = NULL;
    if (!is_bad(z)) {
        const df_cjob j = { cx, df_dtype_at(cx, z.re), site };
        df_parts made;
        if (op == DF_OP_powi)
            out = result(cx, df_complex_powi(&j, z, attr), site);
        else if (df_complex_map(&j, op, z, &made))
            out = result(cx, made, site);
        else
            no_meaning(cx, op);
    }
    cx->mixed = mixed;
    return out;
}

/* a + b, or a - b: op says which. */
static df_parts sum_of(deft_ctx *cx, df_op op, df_parts a, df_parts b, uintptr_t site)
{
    df_parts out = { df_map2(cx, op, a.re, b.re, site), a.im, false };
    if (!a.is_real && !b.is_real)
        out.im = df_map2(cx, op, a.im, b.im, site);
    else if (a.is_real)
        out.im = op == DF_OP_sub ? df_map1(cx, DF_OP_neg, b.im, site) : b.im;
    return out;
}

/* Whether a equals b; of `ne`, whether they differ. */
static uint32_t compared(const df_cjob *j, df_op op, df_parts a, df_parts b)
{
    const uint32_t zero = df_cst(j->cx, j->t, 0, j->site);
    const uint32_t re = df_map2(j->cx, op, a.re, b.re, j->site);
    const uint32_t im =
        df_map2(j->cx, op, a.is_real ? zero : a.im, b.is_real ? zero : b.im, j->site);
    return df_map2(j->cx, op == DF_OP_eq ? DF_OP_bitwise_and : DF_OP_bitwise_or, re, im, j->site);
}

static deft_tensor *operator_on(const df_cjob *j, df_op op, df_parts a, df_parts b)
{
    df_parts out;
    if (op == DF_OP_eq || op == DF_OP_ne) return df_result(j->cx, compared(j, op, a, b));
    if (op == DF_OP_add || op == DF_OP_sub)
        out = sum_of(j->cx, op, a, b, j->site);
    else if (op == DF_OP_mul)
        out = df_complex_mul(j->cx, a, b, j->site);
    else if (op == DF_OP_div)
        out = df_complex_div(j, a, b);
    else if (op == DF_OP_pow)
        out = df_complex_pow(j, a, b);
    else
        return no_meaning(j->cx, op);
    return df_parts_result(j->cx, out, j->site);
}

deft_tensor *df_complex_binary(deft_ctx *cx, df_op op, df_parts a, df_parts b, uintptr_t site)
{
    if (is_bad(a) || is_bad(b)) return NULL;
    const uint8_t mixed = mixed_off(cx);
    const df_cjob j = { cx, met_dtype(cx, a, b), site };
    a = in_dtype(cx, a, j.t, site);
    b = in_dtype(cx, b, j.t, site);
    deft_tensor *const out = is_bad(a) || is_bad(b) ? NULL : operator_on(&j, op, a, b);
    cx->mixed = mixed;
    return out;
}

deft_tensor *df_complex_binary_of(deft_ctx *cx, df_op op, deft_tensor *a, deft_tensor *b,
                                  uintptr_t site)
{
    const deft_dtype t = df_complex_meet(cx, (deft_tensor *const[]){ a, b }, 2);
    const df_parts pa = df_complex_operand(cx, a, t, site);
    return df_complex_binary(cx, op, pa, df_complex_operand(cx, b, t, site), site);
}

deft_tensor *df_complex_where(deft_ctx *cx, uint32_t condition, deft_tensor *a, deft_tensor *b,
                              uintptr_t site)
{
    const deft_dtype t = df_complex_meet(cx, (deft_tensor *const[]){ a, b }, 2);
    const df_parts pa = in_dtype(cx, df_complex_operand(cx, a, t, site), t, site);
    const df_parts pb = in_dtype(cx, df_complex_operand(cx, b, t, site), t, site);
    const uint32_t zero = df_cst(cx, t, 0, site);
    const df_parts out = {
        df_where(cx, condition, pa.re, pb.re, site),
        df_where(cx, condition, pa.is_real ? zero : pa.im, pb.is_real ? zero : pb.im, site), false
    };
    return is_bad(out) ? NULL : df_parts_result(cx, out, site);
}

deft_tensor *df_complex_cast(deft_ctx *cx, df_parts x, deft_dtype to, uintptr_t site)
{
    if (is_bad(x)) return NULL;
    if (df_is_complex(to))
        return df_parts_result(cx, in_dtype(cx, x, df_record_dtype(to), site), site);
    if (to == DEFT_BOOL) return df_result(cx, df_complex_truth(cx, x, site));
    return df_error(cx, DEFT_E_DTYPE,
                    "cast: from complex numbers to %s: take deft_real, deft_imag or deft_abs",
                    deft_dtype_name(to));
}
