/* SPDX-License-Identifier: Apache-2.0
 *
 * Polynomials, by Horner's rule. All of it is elementwise, so it is one kernel.
 */
#include "lazy/arrays/arrays.h"

static deft_tensor *run_polyval(deft_ctx *cx, deft_tensor *x, deft_tensor *c)
{
    const int64_t n = deft_dim(c, 0);
    deft_tensor *y = NULL;
    for (int64_t i = 0; i < n; i++) {
        const deft_range one = DEFT_AT(i);
        deft_tensor *const of = deft_slice_n(c, 1, &one);
        y = y ? deft_add(deft_mul(y, x), of) : of;
        if (!y) return NULL;
    }
    if (n > 1) return y;
    /* The shape and dtype of the other cases. */
    deft_tensor *const zero = deft_zeros_like(x);
    return deft_add(zero, n ? y : deft_zeros(cx, (deft_shape){ 0 }, deft_dtype_of(c)));
}

deft_tensor *deft_polyval(deft_tensor *x, deft_tensor *coefficients)
{
    df_shape s;
    deft_ctx *const cx = df_array_begin_faced("polyval", x, &s, DF_SITE);
    if (!cx || !df_enter_more_faced(cx, "polyval", 2, coefficients)) return NULL;
    if (deft_rank(coefficients) == 0)
        return df_error(cx, DEFT_E_SHAPE, "polyval: the coefficients have no axis");
    if (deft_dtype_of(x) == DEFT_BOOL || deft_dtype_of(coefficients) == DEFT_BOOL)
        return df_error(cx, DEFT_E_DTYPE, "polyval: bool: arithmetic needs numbers");
    DF_LAYER_RETURN(deft_tensor *, cx, run_polyval(cx, x, coefficients));
}

static deft_tensor *run_polyval_f(deft_tensor *x, const double *c, size_t n)
{
    deft_tensor *y = n > 1 ? deft_mul_f(x, c[0]) : deft_zeros_like(x);
    for (size_t i = 1; y && i + 1 < n; i++) y = deft_mul(deft_add_f(y, c[i]), x);
    return y && n ? deft_add_f(y, c[n - 1]) : y;
}

/* Each number is an argument of its own. They are the program's: a capture refuses them. */
deft_tensor *deft_polyval_f(deft_tensor *x, const double *coefficients, size_t n)
{
    df_shape s;
    deft_ctx *const cx = df_array_begin_faced("polyval", x, &s, DF_SITE);
    if (!cx) return NULL;
    if (!coefficients && n)
        return df_error(cx, DEFT_E_ARG, "polyval: %zu coefficients that are NULL", n);
    if (deft_dtype_of(x) == DEFT_BOOL)
        return df_error(cx, DEFT_E_DTYPE, "polyval: bool: arithmetic needs numbers");
    const bool began = df_caller_begin(cx, DF_SITE);
    deft_tensor *const y = run_polyval_f(x, coefficients, n);
    df_caller_end(cx, began);
    return y;
}
