/* SPDX-License-Identifier: Apache-2.0 */
#include "black_scholes_ref.h"

#include <math.h>

static double normal_cdf(double x)
{
    return erfc(-x * 0.70710678118654752) / 2;
}

void black_scholes_ref(double *call, double *put, const float *s, const float *k, const float *t,
                       double rate, double vol, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double w = vol * sqrt(t[i]);
        const double d1 = (log((double)s[i] / k[i]) + (rate + vol * vol / 2) * t[i]) / w,
                     d2 = d1 - w;
        const double discounted = k[i] * exp(-rate * t[i]);
        call[i] = s[i] * normal_cdf(d1) - discounted * normal_cdf(d2);
        put[i] = discounted * normal_cdf(-d2) - s[i] * normal_cdf(-d1);
    }
}
