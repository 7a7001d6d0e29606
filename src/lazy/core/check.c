/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the shapes and axes that the program passes.
 */
#include "lazy/core/lazy.h"

bool df_check_any_dtype(deft_ctx *cx, const char *what, deft_dtype t)
{
    if ((unsigned)t < DEFT_N_DTYPES) return true;
    df_error(cx, DEFT_E_DTYPE, "%s: %d is no dtype", what, (int)t);
    return false;
}

bool df_check_dtype(deft_ctx *cx, const char *what, deft_dtype t)
{
    if (!df_check_any_dtype(cx, what, t)) return false;
    if (!df_is_stored(t)) return true;
    df_error(cx, DEFT_E_DTYPE, "%s: %s only stores numbers: make f32, and cast it with deft_cast",
             what, deft_dtype_name(t));
    return false;
}

bool df_check_shape(deft_ctx *cx, const char *what, const deft_shape *in, df_shape *out)
{
    if (in->rank > DEFT_MAX_RANK) {
        df_error(cx, DEFT_E_SHAPE, "%s: more than %d axes", what, DEFT_MAX_RANK);
        return false;
    }
    out->rank = in->rank;
    for (uint32_t i = 0; i < in->rank; i++) {
        out->dim[i] = in->dim[i];
        if (in->dim[i] < 0) {
            df_error(cx, DEFT_E_SHAPE, "%s: extent %lld of axis %u is negative", what,
                     (long long)in->dim[i], i);
            return false;
        }
    }
    int64_t n;
    if (!df_shape_numel(out, &n)) {
        char text[DF_SHAPE_TEXT];
        df_error(cx, DEFT_E_SHAPE, "%s: %s has more elements than can be counted", what,
                 df_shape_text(out, text, sizeof text));
        return false;
    }
    return true;
}

int df_check_axis(deft_ctx *cx, const char *what, int axis, uint32_t rank)
{
    const int a = axis < 0 ? axis + (int)rank : axis;
    if (a >= 0 && a < (int)rank) return a;
    df_error(cx, DEFT_E_RANGE, "%s: axis %d of a tensor with %u axes", what, axis, rank);
    return -1;
}

bool df_check_axes(deft_ctx *cx, const char *what, const deft_axes *axes, uint32_t rank,
                   uint32_t *mask)
{
    *mask = 0;
    if (axes->n == UINT32_MAX) {
        *mask = (1u << rank) - 1;
        return true;
    }
    if (axes->n > DEFT_MAX_RANK) {
        df_error(cx, DEFT_E_RANGE, "%s: more than %d axes", what, DEFT_MAX_RANK);
        return false;
    }
    for (uint32_t i = 0; i < axes->n; i++) {
        const int a = df_check_axis(cx, what, axes->at[i], rank);
        if (a < 0) return false;
        if (*mask & (1u << a)) {
            df_error(cx, DEFT_E_RANGE, "%s: axis %d is named twice", what, a);
            return false;
        }
        *mask |= 1u << a;
    }
    return true;
}
