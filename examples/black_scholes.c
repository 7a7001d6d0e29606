/* SPDX-License-Identifier: Apache-2.0
 *
 * Prices European options (Black, Scholes 1973): plain calls of C, one kernel, two results.
 *
 *   black_scholes [OPTIONS]
 *
 * Prices are compared with plain C in f64.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "deft/deft.h"

#include "ref/black_scholes_ref.h"

static const double RATE = 0.03, VOLATILITY = 0.25;

/* The largest error allowed, as a part of the larger of spot and strike. */
static const double TOLERANCE = 3e-6;

/* The normal distribution. */
static deft_tensor *normal(deft_tensor *d)
{
    return deft_mul(deft_add(deft_erf(deft_mul(d, 0.70710678118654752)), 1), 0.5);
}

static deft_tensor *one_minus(deft_tensor *x)
{
    return deft_sub(deft_num(deft_ctx_of(x), 1), x);
}

static deft_status price(deft_ctx *cx, const float *spot, const float *strike, const float *years,
                         int64_t n, float *call, float *put)
{
    const size_t bytes = (size_t)n * sizeof *spot;
    const deft_shape shape = DEFT_SHAPE(n);
    const deft_scope scope = deft_scope_begin(cx);
    deft_tensor *const s = deft_wrap(cx, shape, DEFT_F32, spot, bytes, NULL);
    deft_tensor *const k = deft_wrap(cx, shape, DEFT_F32, strike, bytes, NULL);
    deft_tensor *const t = deft_wrap(cx, shape, DEFT_F32, years, bytes, NULL);

    deft_tensor *const w = deft_mul(deft_sqrt(t), VOLATILITY);
    deft_tensor *const drift = deft_mul(t, RATE + VOLATILITY * VOLATILITY / 2);
    deft_tensor *const d1 = deft_div(deft_add(deft_log(deft_div(s, k)), drift), w);
    deft_tensor *const n1 = normal(d1), *const n2 = normal(deft_sub(d1, w));
    deft_tensor *const later = deft_mul(k, deft_exp(deft_mul(t, -RATE)));
    deft_tensor *const both[] = {
        deft_sub(deft_mul(s, n1), deft_mul(later, n2)),
        deft_sub(deft_mul(later, one_minus(n2)), deft_mul(s, one_minus(n1))),
    };
    deft_status st = deft_eval(both, 2);
    if (st == DEFT_OK) st = deft_read(both[0], DEFT_F32, call, bytes);
    if (st == DEFT_OK) st = deft_read(both[1], DEFT_F32, put, bytes);
    const deft_status end = deft_scope_end(scope);
    return st != DEFT_OK ? st : end;
}

/* The largest error of both prices, relative to the larger of spot and strike. NaN counts as
 * infinite. */
static double worst_error(const float *call, const float *put, const double *exact_call,
                          const double *exact_put, const float *spot, const float *strike,
                          int64_t n)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        const double scale = (double)(spot[i] > strike[i] ? spot[i] : strike[i]);
        const double a = fabs((double)call[i] - exact_call[i]) / scale;
        const double b = fabs((double)put[i] - exact_put[i]) / scale;
        if (isnan(a) || isnan(b)) return INFINITY;
        worst = fmax(worst, fmax(a, b));
    }
    return worst;
}

int main(int argc, char **argv)
{
    const int64_t n = argc > 1 ? atol(argv[1]) : 1000000;
    int exit_code = 1;
    deft_ctx *cx = NULL;
    float *f = NULL;
    double *exact = NULL;
    if (n < 1 || n > 100000000) {
        fprintf(stderr, "usage: black_scholes [OPTIONS]\n");
        return 2;
    }
    f = malloc(5 * (size_t)n * sizeof *f);
    exact = malloc(2 * (size_t)n * sizeof *exact);
    if (!f || !exact || deft_ctx_create(NULL, NULL, &cx) != DEFT_OK) {
        fprintf(stderr, "black_scholes: no context, or out of memory\n");
        goto done;
    }
    float *const spot = f, *const strike = f + n, *const years = f + 2 * n, *const call = f + 3 * n,
                 *const put = f + 4 * n;
    for (int64_t i = 0; i < n; i++) { /* spread over all combinations, without a pattern */
        spot[i] = 20 + (float)(i * 7919 % 10007) / 100;
        strike[i] = 20 + (float)(i * 104729 % 10009) / 100;
        years[i] = 0.05f + (float)(i * 1299709 % 10037) / 4000;
    }
    if (price(cx, spot, strike, years, n, call, put) != DEFT_OK) {
        fprintf(stderr, "black_scholes: %s\n", deft_message(cx));
        goto done;
    }
    black_scholes_ref(exact, exact + n, spot, strike, years, RATE, VOLATILITY, n);
    const double worst = worst_error(call, put, exact, exact + n, spot, strike, n);
    printf("%lld options; spot %.2f, strike %.2f, %.2f years: call %.4f, put %.4f\n", (long long)n,
           (double)spot[n / 2], (double)strike[n / 2], (double)years[n / 2], (double)call[n / 2],
           (double)put[n / 2]);
    printf("largest error %.1e of the larger of spot and strike (allowed %.0e)\n", worst,
           TOLERANCE);
    if (!(worst <= TOLERANCE)) {
        fprintf(stderr, "black_scholes: differs from plain C\n");
        goto done;
    }
    exit_code = 0;
done:
    deft_ctx_destroy(&cx);
    free(f);
    free(exact);
    return exit_code;
}
