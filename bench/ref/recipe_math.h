/* SPDX-License-Identifier: Apache-2.0
 *
 * The seam between the reference kernels and their transcendentals. With REF_STRICT they are the
 * library's own recipes, printed as C by tools/gen_recipe_c; otherwise libm, which gcc vectorizes
 * through libmvec.
 */
#ifndef BENCH_REF_RECIPE_MATH_H
#define BENCH_REF_RECIPE_MATH_H

#ifdef REF_STRICT

#include "recipes_gen.h"

#define rm_exp dr_exp_f32
#define rm_log dr_log_f32
#define rm_erf dr_erf_f32
#define rm_gelu dr_gelu_f32

/* Many quotients by one divisor: strict divides each time, fast multiplies by the inverse. */
#define rm_divisor(s) (s)
#define rm_over(x, divisor) ((x) / (divisor))

#else

#include <math.h>

#define rm_exp expf
#define rm_log logf
#define rm_erf erff
#define rm_gelu(x) (0.5f * (x) * (1.0f + erff((x)*0.70710678118654752f)))
#define rm_divisor(s) (1.0f / (s))
#define rm_over(x, divisor) ((x) * (divisor))

#endif
#endif
