/* SPDX-License-Identifier: Apache-2.0
 *
 * Recipes: the transcendental functions, powers and philox as straight-line sequences of kernel
 * ops. Every back end uses these recipes, so the results of interpreter, CPU and GPU agree bit for
 * bit.
 *
 * A recipe appends instructions through an emitter and refers to a value by the id that the emitter
 * returns. A recipe has no branches that depend on values. It does not check for errors: the
 * emitter remembers the first one.
 */
#ifndef DF_OPS_RECIPE_H
#define DF_OPS_RECIPE_H

#include "ops/kop.h"

/* The base of an emitter. The code that creates one embeds this struct. */
typedef struct df_emit {
    /* Appends one instruction with result dtype t and operands a, b, c, and returns its id. Unused
     * operands are 0. kops.def gives the meaning of imm. The emitter may return the id of an equal
     * earlier instruction. */
    uint32_t (*ins)(struct df_emit *e, df_kop op, deft_dtype t, uint32_t a, uint32_t b, uint32_t c,
                    uint64_t imm);
    bool fast; /* a recipe may exceed its error bound of 2 ULP to be faster */
    /* Operand and result of the function are bf16. A recipe may exceed its error bound when each of
     * the 2^16 operands gives a result that is rounded to the same bf16. */
    bool between_bf16;
    /* The half to which operands and result of the operator belong; DEFT_F32 when there is none. */
    deft_dtype half;
    /* FAST kernels: the f32 that the half x was rounded from, if x is a cast with DF_CAST_RESULT;
     * else x. NULL: operators read rounded operands. */
    uint32_t (*unrounded)(struct df_emit *e, uint32_t x);
    /* The f32 that the half x was cast from, if x is such a cast; else x. *exact is set for a cast:
     * whether it has DF_CAST_EXACT. NULL, as in FAST kernels: operators read what was rounded. */
    uint32_t (*before_cast)(struct df_emit *e, uint32_t x, bool *exact);
} df_emit;

/* x and the result have dtype t, which is f32 or f64. docs/accuracy.md gives the accuracy. */
/* clang-format off */
#define DF_RECIPES(X)                                                                          \
    X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p)                                   \
    X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh)                       \
    X(asinh) X(acosh) X(atanh) X(cbrt)                                                         \
    X(sigmoid) X(erf) X(erfc) X(gelu) X(silu) X(softplus) X(rsqrt)                             \
    X(lgamma) X(digamma) X(erfinv) X(i0) X(i0e) X(i1) X(i1e)
/* clang-format on */

#define DF_X(name) uint32_t df_recipe_##name(df_emit *e, deft_dtype t, uint32_t x);
DF_RECIPES(DF_X)
#undef DF_X

/* Recipes with two operands: x^y, the angle of the point (x, y), sqrt(x * x + y * y), and
 * log(exp(x) + exp(y)). */
uint32_t df_recipe_pow(df_emit *e, deft_dtype t, uint32_t x, uint32_t y);
uint32_t df_recipe_atan2(df_emit *e, deft_dtype t, uint32_t y, uint32_t x);
uint32_t df_recipe_hypot(df_emit *e, deft_dtype t, uint32_t x, uint32_t y);
uint32_t df_recipe_logaddexp(df_emit *e, deft_dtype t, uint32_t x, uint32_t y);
/* The derivative of digamma of that order, which is 1 to 20. */
uint32_t df_recipe_polygamma(df_emit *e, deft_dtype t, uint32_t x, uint32_t order);
/* x to a power, by squaring. t is an integer dtype. */
uint32_t df_recipe_pow_int(df_emit *e, deft_dtype t, uint32_t x, uint32_t y);
/* x to a constant power, by squaring. t is any dtype except the halves. */
uint32_t df_recipe_powi(df_emit *e, deft_dtype t, uint32_t x, int32_t exponent);

/* The random number generator Philox 4x32-10 (Salmon et al., SC 2011). The key is the 64-bit seed.
 * The words of the counter are element (low, high) and draw (low, high). All ids name i64 values.
 * out gets the ids of the four 32-bit words, as i64 values in [0, 2^32). */
void df_recipe_philox(df_emit *e, uint32_t seed, uint32_t draw, uint32_t element, uint32_t out[4]);

#endif
