/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers of many distributions. tensor.h has deft_rng, and uniform, normal and integer
 * numbers.
 *
 * The rules of tensor.h hold. All numbers come from draws as of deft_uniform, so that they depend
 * on the seed, the number of the draw and the row-major index alone. A call takes as many numbers
 * of the deft_rng as it makes draws, which depends on nothing but the call. Inside deft_vmap, each
 * example has numbers of its own.
 *
 * Functions with a context and a shape give standard numbers. A program shifts and scales them, and
 * then gradients go to the shift and the scale. Functions with tensors of parameters give a number
 * for each element to which these broadcast; deft_expand makes more. Parameters are promoted,
 * integers become f32, and halves are computed in f32. A parameter that is out of its range gives
 * NaN.
 *
 * A NULL rng gives DEFT_E_ARG. Draws inside the function of a loop or branch give DEFT_E_STATE.
 */
#ifndef DEFT_RANDOM_H
#define DEFT_RANDOM_H

#include "deft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- standard numbers ----
 *
 * dtype is a float, else DEFT_E_DTYPE.
 */

/** Exponential numbers with mean 1. */
DEFT_API deft_tensor *deft_exponential(deft_ctx *cx, deft_rng *rng, deft_shape shape,
                                       deft_dtype dtype);

/** Laplace numbers with mean 0 and scale 1. */
DEFT_API deft_tensor *deft_laplace(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype);

/** Gumbel numbers with location 0 and scale 1. */
DEFT_API deft_tensor *deft_gumbel(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype);

/** Normal numbers with mean 0 and deviation 1 that are in [low, high], by inversion. A bound may be
 * infinite. low is less than high and at most 6, and high at least -6, else DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_truncated_normal(deft_ctx *cx, deft_rng *rng, deft_shape shape,
                                            deft_dtype dtype, double low, double high);

/* ---- numbers with parameters ---- */

/** true with probability p, as a bool. */
DEFT_API deft_tensor *deft_bernoulli(deft_rng *rng, deft_tensor *p);

/** Gamma numbers with shape alpha, above 0, and scale 1 (Marsaglia and Tsang 2000). Eight
 * candidates are drawn at once, of which the first that is accepted counts. With a probability
 * below 10^-9 none is accepted, and then the last one counts. There is no gradient. */
DEFT_API deft_tensor *deft_gamma(deft_rng *rng, deft_tensor *alpha);

/** Beta numbers with parameters above 0, from two gamma numbers. There is no gradient. */
DEFT_API deft_tensor *deft_beta(deft_rng *rng, deft_tensor *a, deft_tensor *b);

/** Dirichlet numbers: gamma numbers with shapes alpha, divided by their sum along the last axis.
 * alpha has an axis. There is no gradient. */
DEFT_API deft_tensor *deft_dirichlet(deft_rng *rng, deft_tensor *alpha);

/** Poisson numbers with the given mean, at least 0, in its dtype. They are found by a search that
 * begins at the most likely number, in f64. It takes some multiple of sqrt(mean) passes over all
 * elements. There is no gradient. */
DEFT_API deft_tensor *deft_poisson(deft_rng *rng, deft_tensor *mean);

/** Binomial numbers: successes of n trials with probability p, by the same search. They have the
 * dtype to which n and p are promoted. n is a whole number, at least 0. There is no gradient. */
DEFT_API deft_tensor *deft_binomial(deft_rng *rng, deft_tensor *n, deft_tensor *p);

/** Indices along axis with probabilities proportional to exp(logits), as i64: the place of the
 * greatest sum of logit and Gumbel number. The axis disappears. */
DEFT_API deft_tensor *deft_categorical(deft_rng *rng, deft_tensor *logits, int axis);

/* ---- orders and samples ---- */

/** The numbers 0 to n - 1 in random order, as i64 [n]. A negative n gives DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_permutation(deft_ctx *cx, deft_rng *rng, int64_t n);

/** k of the numbers 0 to n - 1, as i64 [k]. With `replaces` a number may occur several times;
 * otherwise k is at most n.
 *
 * weights NULL means equal probabilities. Otherwise they are [n], at least 0, and probabilities
 * are proportional to them (for samples without replacement, Efraimidis and Spirakis 2006). A
 * number with weight 0 is taken only when no other is left. n or k that does not fit gives
 * DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_choice(deft_ctx *cx, deft_rng *rng, int64_t n, int64_t k, bool replaces,
                                  deft_tensor *weights);

#ifdef __cplusplus
}
#endif
#endif
