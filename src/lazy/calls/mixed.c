/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixed precision. While a policy is set, operations take their float operands in the
 * dtype that the operator table says (MIXED in ops.def). The casts are ordinary records,
 * so they fuse, and their gradients convert back to the dtype of a parameter. Gradients
 * are recorded without a policy: they use the dtypes of the forward pass.
 */
#include "lazy/core/lazy.h"

deft_dtype deft_mixed_set(deft_ctx *cx, deft_dtype low)
{
    df_enter_call(cx, DF_SITE);
    if (!cx) return DEFT_F32;
    const deft_dtype was = cx->mixed ? (deft_dtype)cx->mixed : DEFT_F32;
    if (low != DEFT_F32 && !df_is_half(low))
        df_error(cx, DEFT_E_DTYPE, "mixed_set: %s is neither f16, bf16 nor f32",
                 (unsigned)low < DF_N_RECORDED ? deft_dtype_name(low) : "that");
    else
        cx->mixed = low == DEFT_F32 ? 0 : (uint8_t)low;
    return was;
}

bool df_ctx_is_mixed(const deft_ctx *cx)
{
    return cx->mixed != 0;
}
