/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain C checks for the Black-Scholes example (Black, Scholes 1973), in f64 with libm.
 */
#ifndef EXAMPLES_REF_BLACK_SCHOLES_REF_H
#define EXAMPLES_REF_BLACK_SCHOLES_REF_H

#include <stdint.h>

/* European call and put on n underlyings: spot s, strike k, years t; one rate and one volatility.
 *   d1 = (log(s / k) + (rate + vol^2 / 2) t) / (vol sqrt(t)),  d2 = d1 - vol sqrt(t)
 *   call = s N(d1) - k exp(-rate t) N(d2),  put = k exp(-rate t) N(-d2) - s N(-d1)
 * Computed in f64 from the f32 inputs, so it is the exact price for f32 purposes: an f32 program is
 * within a few 1e-6 of the larger of s and k. */
void black_scholes_ref(double *call, double *put, const float *s, const float *k, const float *t,
                       double rate, double vol, int64_t n);

#endif
