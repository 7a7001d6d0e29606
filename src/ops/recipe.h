/* SPDX-License-Identifier: Apache-2.0
 *
 * Recipes: straight-line bodies of the transcendental ops (and of philox) over kernel ops. Every
 * back end takes them from here, which is why interpreter, CPU and GPU code agree bit for bit.
 *
 * A recipe appends instructions through an emitter and names values by the ids it gets back. It
 * never branches and never reads a value's contents. Errors are sticky in the emitter.
 */
#ifndef DF_OPS_RECIPE_H
#define DF_OPS_RECIPE_H

#include "ops/kop.h"

typedef struct df_emit {
    /* Appends one instruction of result dtype t and returns its id. imm as in kops.def. The emitter
     * may return an earlier id for an equal instruction. */
    uint32_t (*ins)(struct df_emit *e, df_kop op, deft_dtype t, uint32_t a, uint32_t b, uint32_t c,
                    uint64_t imm);
    bool fast; /* a recipe may give up its 2 ULP for speed */
} df_emit;

/* x and the result have dtype t, f32 or f64. Accuracy in docs/accuracy.md. */
/* clang-format off */
#define DF_RECIPES(X)                                                                          \
    X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p)                                   \
    X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh)                       \
    X(sigmoid) X(erf) X(erfc) X(gelu) X(silu) X(softplus) X(rsqrt)
/* clang-format on */

#define DF_X(name) uint32_t df_recipe_##name(df_emit *e, deft_dtype t, uint32_t x);
DF_RECIPES(DF_X)
#undef DF_X

uint32_t df_recipe_pow(df_emit *e, deft_dtype t, uint32_t x, uint32_t y);
uint32_t df_recipe_atan2(df_emit *e, deft_dtype t, uint32_t y, uint32_t x);
uint32_t df_recipe_hypot(df_emit *e, deft_dtype t, uint32_t x, uint32_t y);
uint32_t df_recipe_powi(df_emit *e, deft_dtype t, uint32_t x,
                        int32_t exponent); /* by squaring; any dtype */

/* Philox 4x32-10 (Salmon et al., SC 2011). Key: the 64-bit seed. Counter words: element (low,
 * high), draw (low, high). All ids are i64. Writes the four 32-bit words as i64 values in [0,
 * 2^32). */
void df_recipe_philox(df_emit *e, uint32_t seed, uint32_t draw, uint32_t element, uint32_t out[4]);

#endif
