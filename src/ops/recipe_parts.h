/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of recipes that several files of recipes use. Internal header of recipes.
 */
#ifndef DF_OPS_RECIPE_PARTS_H
#define DF_OPS_RECIPE_PARTS_H

#include "ops/recipe_build.h"

/* 1 - exp(-y) for 0 <= y < 80 (f32) or 700 (f64), accurate near 0. The result for 0 is +0. In
 * recipes_exp.c. */
rid df_recipe_one_minus_exp_neg(rb f, rid y);

/* exp(r) - 1 for |r| <= 0.3475. In recipes_exp.c. */
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

/* Completes x^y with all special cases of the C standard. power must be |x|^y where neither x nor y
 * is 0 or NaN; elsewhere it may be anything. */
rid df_recipe_pow_special(rb f, rid x, rid y, rid power);

/* The last statements of a recipe for an operand x of dtype t. `call` computes with `wide`, which
 * is x as f64, and with the emitter `d`. The result is rounded to t once. */
#define R_IN_F64(e, t, x, call)                                                                    \
    const rb f = { e, t }, d = r_f64(e);                                                           \
    const rid wide = t == DEFT_F64 ? x : r_cast(d, x);                                             \
    const rid y = call;                                                                            \
    return t == DEFT_F64 ? y : r_cast(f, y)

/* ---- sums of two floats ---- */

/* hi + lo, where |lo| is at most half an ULP of hi. */
typedef struct r_pair {
    rid hi, lo;
} r_pair;

/* a + b exactly (Knuth, "The Art of Computer Programming", volume 2, 1969). */
static inline r_pair r_two_sum(rb f, rid a, rid b)
{
    const rid s = r_add(f, a, b), t = r_sub(f, s, a);
    return (r_pair){ s, r_add(f, r_sub(f, a, r_sub(f, s, t)), r_sub(f, b, t)) };
}

/* log(1 + w), or log(2 w) where `twice` is true. f is f64; w.hi is 0 or positive and normal.
 * is_short: with the polynomial of f32, whose relative error is 2^-27.8. In recipes_log.c. */
rid df_recipe_log1p_of_pair(rb f, r_pair w, rid twice, bool is_short);

#endif
