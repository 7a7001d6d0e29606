/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces of recipes that several of src/ops/recipes_*.c use. Private to them.
 */
#ifndef DF_OPS_RECIPE_PARTS_H
#define DF_OPS_RECIPE_PARTS_H

#include "ops/recipe_build.h"

/* 1 - exp(-y) for 0 <= y < 80 (f32) or 700 (f64), accurate near 0; +0 for 0. In recipes_exp.c. */
rid df_recipe_one_minus_exp_neg(rb f, rid y);

/* exp r - 1 for |r| <= 0.3475. In recipes_exp.c. */
rid df_recipe_expm1_of_rest(rb f, rid r);

/* In recipes_trig.c and recipes_trig_f64.c. */
rid df_recipe_sin_f32(rb f, rid x);
rid df_recipe_cos_f32(rb f, rid x);
rid df_recipe_tan_f32(rb f, rid x);
rid df_recipe_sin_f64(rb f, rid x);
rid df_recipe_cos_f64(rb f, rid x);
rid df_recipe_tan_f64(rb f, rid x);

/* In recipes_pow.c and recipes_pow_f64.c. */
rid df_recipe_pow_f32(rb f, rid x, rid y);
rid df_recipe_pow_f64(rb f, rid x, rid y);

/* power: |x|^y for x, y neither 0 nor NaN; the result with all of the C standard's special cases.
 */
rid df_recipe_pow_special(rb f, rid x, rid y, rid power);

#endif
