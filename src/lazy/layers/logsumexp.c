/* SPDX-License-Identifier: Apache-2.0
 *
 * The logarithm of a sum of exponentials (deft/array.h). The greatest element is subtracted first,
 * and is a constant of the gradient: the result does not depend on it.
 */
#define DEFT_NO_GENERIC
#include "deft/array.h"
#include "deft/grad.h"
#include "deft/ops.h"
#include "lazy/arrays/arrays.h"

static deft_tensor *logarithm_of_sum(deft_tensor *t, deft_axes axes, bool keepdims, bool is_empty)
{
    const deft_dtype own = deft_dtype_of(t);
    t = df_is_float(own) ? df_array_lift(t) : deft_cast(t, DEFT_F32);
    deft_tensor *shift = NULL;
    if (!is_empty) {
        deft_tensor *const most = deft_stop_gradient(deft_max(t, axes, true));
        shift = deft_where(deft_isfinite(most), most, deft_zeros_like(most));
        t = deft_sub(t, shift);
    }
    t = deft_log(deft_sum(deft_exp(t), axes, true));
    if (shift) t = deft_add(t, shift);
    if (!keepdims) t = deft_squeeze(t, axes);
    return df_array_round(t, own);
}

deft_tensor *deft_logsumexp(deft_tensor *t, deft_axes axes, bool keepdims)
{
    df_shape s;
    uint32_t mask;
    if (!df_enter("logsumexp", 1, t, DF_SITE)) return NULL; /* not for complex numbers */
    deft_ctx *const cx = df_array_begin_faced("logsumexp", t, &s, DF_SITE);
    if (!cx || !df_check_axes(cx, "logsumexp", &axes, s.rank, &mask)) return NULL;
    bool is_empty = false;
    for (uint32_t i = 0; i < s.rank; i++) is_empty |= s.dim[i] == 0;
    DF_LAYER_RETURN(deft_tensor *, cx, logarithm_of_sum(t, axes, keepdims, is_empty));
}
