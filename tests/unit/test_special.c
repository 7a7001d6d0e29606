/* SPDX-License-Identifier: Apache-2.0
 *
 * Recipes of functions that no C library has, against values that mpmath computed
 * (tools/fit_special). docs/accuracy.md has what was measured with more of them.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "support/recipe_eval.h"

static recipe_prog prog;

static uint32_t trigamma(df_emit *e, deft_dtype t, uint32_t x)
{
    return df_recipe_polygamma(e, t, x, 1);
}

static const struct {
    const char *name;
    uint32_t (*recipe)(df_emit *, deft_dtype, uint32_t);
    double bound; /* ULP of the scale, in f64 */
} special[] = {
    { "lgamma", df_recipe_lgamma, 4 }, { "digamma", df_recipe_digamma, 4 },
    { "trigamma", trigamma, 4 },       { "erfinv", df_recipe_erfinv, 3 },
    { "i0", df_recipe_i0, 5 },         { "i0e", df_recipe_i0e, 4 },
    { "i1", df_recipe_i1, 5 },         { "i1e", df_recipe_i1e, 4 },
};

static const struct {
    const char *name;
    double x, value, rest, scale;
} special_values[] = {
#include "support/special_values.inc"
};

/* The spacing of f64 at x. */
static double spacing(double x)
{
    int e;
    (void)frexp(x, &e);
    return ldexp(1, e < -1021 ? -1074 : e - 53);
}

/* Against values that mpmath computed. f32 results are those of f64, rounded. */
Test(special, functions_are_within_their_bounds)
{
    size_t n = 0;
    for (size_t k = 0; k < DF_LEN(special); k++) {
        double worst = 0, at = 0;
        recipe_init(&prog);
        const uint32_t f64 = special[k].recipe(&prog.base, DEFT_F64, recipe_input(&prog, DEFT_F64));
        const uint32_t f32 = special[k].recipe(&prog.base, DEFT_F32, recipe_input(&prog, DEFT_F32));
        for (size_t i = 0; i < DF_LEN(special_values); i++) {
            if (strcmp(special_values[i].name, special[k].name)) continue;
            const double x = special_values[i].x, want = special_values[i].value;
            const float narrow = (float)x;
            recipe_run(&prog, 1, (const void *[]){ &x, &narrow });
            const double got = *(const double *)recipe_lanes(&prog, f64);
            const double error =
                fabs(got - want - special_values[i].rest) / spacing(special_values[i].scale);
            if (got != want && !(error <= worst)) {
                worst = error;
                at = x;
            }
            if ((double)narrow == x)
                cr_assert_eq(*(const float *)recipe_lanes(&prog, f32), (float)got, "%s(%a) in f32",
                             special[k].name, x);
            n++;
        }
        recipe_finish(&prog);
        cr_assert(worst <= special[k].bound, "%s(%a) is off by %.3f ULP", special[k].name, at,
                  worst);
    }
    cr_assert_eq(n, DF_LEN(special_values));
}
