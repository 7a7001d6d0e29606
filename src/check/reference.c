/* SPDX-License-Identifier: Apache-2.0
 *
 * The check of formulas against the same functions in C (deft_formula_def.reference).
 */
#include "check/check.h"
#include "lazy/extend/formula.h"

#include <float.h>
#include <math.h>

/* The distance of two numbers, in units of the last place of b. */
static double distance_in_ulps(double a, double b)
{
    if (a == b || (isnan(a) && isnan(b))) return 0;
    if (!isfinite(a) || !isfinite(b)) return INFINITY;
    int exponent;
    (void)frexp(b, &exponent);
    if (b == 0 || exponent < DBL_MIN_EXP) exponent = DBL_MIN_EXP;
    return ldexp(fabs(a - b), DBL_MANT_DIG - exponent);
}

/* Compares n elements. in and out: one pointer for each input and each result. */
static void compare_elements(df_check *c, const df_formula *f, const deft_mapped *in,
                             const deft_mapped *out, int64_t n)
{
    double x[DF_CHECK_INPUTS], want[DF_CHECK_INPUTS], worst[DF_CHECK_INPUTS] = { 0 };
    for (int64_t e = 0; e < n; e++) {
        for (size_t i = 0; i < c->n_in; i++) x[i] = ((const double *)in[i].data)[e];
        for (size_t k = 0; k < c->n_out; k++) want[k] = NAN;
        f->reference(x, want);
        for (size_t k = 0; k < c->n_out; k++) {
            const double found = ((const double *)out[k].data)[e];
            const double ulps = distance_in_ulps(found, want[k]);
            const bool is_first = !(worst[k] > f->ulps) && ulps > f->ulps;
            if (ulps > worst[k]) worst[k] = ulps;
            if (is_first)
                df_check_fault(c, "reference",
                               "result %zu of element %lld is %.17g, the reference says %.17g: "
                               "%.3g units in the last place, and at most %g are allowed",
                               k, (long long)e, found, want[k], ulps, f->ulps);
        }
    }
}

static bool are_all_real(const df_check *c)
{
    for (size_t i = 0; i < c->n_in; i++)
        if (!deft_isdtype(deft_dtype_of(c->in[i]), DEFT_KIND_REAL)) return false;
    return true;
}

/* The results of the formula for inputs of one shape, in f64. Both lists are mapped, in[] first. */
static deft_status map_values(df_check *c, deft_mapped *in, deft_mapped *out)
{
    deft_tensor *x[DF_CHECK_INPUTS], *y[DF_CHECK_INPUTS];
    deft_status st = deft_broadcast_tensors(c->in, c->n_in, x);
    for (size_t i = 0; i < c->n_in && st == DEFT_OK; i++) {
        x[i] = deft_cast(x[i], DEFT_F64);
        st = deft_map(x[i], &in[i]);
    }
    if (st != DEFT_OK || !df_check_run(c, "call", "in f64: ", x, y)) return st;
    for (size_t k = 0; k < c->n_out && st == DEFT_OK; k++)
        st = deft_map(deft_cast(y[k], DEFT_F64), &out[k]);
    return st;
}

deft_status df_check_reference(df_check *c, const deft_op *op)
{
    const df_formula *const f = op->formula;
    if (!f || !f->reference || !are_all_real(c)) return DEFT_OK;
    const uint32_t faults = c->n_faults;
    deft_mapped in[DF_CHECK_INPUTS] = { { 0 } }, out[DF_CHECK_INPUTS] = { { 0 } };
    const deft_scope s = deft_scope_begin(c->cx);
    deft_status st = map_values(c, in, out);
    if (st == DEFT_OK && c->n_faults == faults)
        compare_elements(c, f, in, out, (int64_t)(in[0].bytes / sizeof(double)));
    for (size_t i = 0; i < c->n_in; i++) deft_unmap(&in[i]);
    for (size_t k = 0; k < c->n_out; k++) deft_unmap(&out[k]);
    const deft_status end = deft_scope_end(s);
    return st == DEFT_OK ? end : st;
}
