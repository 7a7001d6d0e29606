/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixed precision: while a policy is set, operations take their float operands in the dtype that
 * the operator table says (MIXED in ops.def). The casts are records like others, so that they fuse,
 * and their gradients bring what comes back into the dtype of a parameter. Gradients are recorded
 * without a policy: they follow the dtypes that the forward pass took.
 */
#include "lazy/core/lazy.h"

deft_dtype deft_mixed_set(deft_ctx *cx, deft_dtype low)
{
    df_enter_call(cx, DF_SITE);
    if (!cx) return DEFT_F32;
    const deft_dtype was = cx->mixed ? (deft_dtype)cx->mixed : DEFT_F32;
    if (low != DEFT_F32 && !df_is_half(low))
        df_error(cx, DEFT_E_DTYPE, "mixed_set: %s is neither f16, bf16 nor f32",
                 (unsigned)low < DEFT_N_DTYPES ? deft_dtype_name(low) : "that");
    else
        cx->mixed = low == DEFT_F32 ? 0 : (uint8_t)low;
    return was;
}

uint32_t df_mixed_cast(deft_ctx *cx, df_op op, uint32_t a, uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    const deft_dtype t = df_dtype_at(cx, a);
    switch ((df_mixed)df_op_infos[op].mixed) {
    case DF_MIXED_low: return t == DEFT_F32 ? df_to(cx, a, (deft_dtype)cx->mixed, site) : a;
    case DF_MIXED_high: return df_is_half(t) ? df_to(cx, a, DEFT_F32, site) : a;
    case DF_MIXED_widest:
    case DF_MIXED_same: return a;
    }
    df_unreachable();
}
