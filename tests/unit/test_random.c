/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers (deft/random.h): their distributions with fixed seeds, that they are the same in
 * whatever way a draw runs, and mistakes.
 *
 * Continuous numbers are compared by the test of Kolmogorov and Smirnov, counts by Pearson's. With
 * fixed seeds the tests give the same outcome each time; the bounds are those of a chance of one in
 * a million.
 */
#define DEFT_NO_GENERIC
#include "support/harness.h"

#include <math.h>

enum { N = 10000 };

static rig r;

static void open_rig(void)
{
    rig_open(&r, NULL, NULL);
}

static void close_rig(void)
{
    rig_close(&r);
}

TestSuite(random, .init = open_rig, .fini = close_rig);

static deft_tensor *full(double v)
{
    return deft_full(r.cx, DEFT_SHAPE(N), DEFT_F64, v);
}

static const double *read_all(deft_tensor *t)
{
    static double v[N];
    cr_assert_not_null(t, "%s", deft_message(r.cx));
    cr_assert_eq(deft_numel(t), N);
    OK(&r, deft_read(deft_cast(t, DEFT_F64), DEFT_F64, v, sizeof v));
    return v;
}

/* ---- distributions ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef double (*cdf_fn)(double x, double a, double b);

/* The greatest difference between the function and the share of numbers below. */
static void follows(const char *what, deft_tensor *t, cdf_fn cdf, double a, double b)
{
    static double v[N];
    memcpy(v, read_all(t), sizeof v);
    qsort(v, N, sizeof *v, by_value);
    double far = 0;
    for (int i = 0; i < N; i++) {
        const double f = cdf(v[i], a, b);
        far = fmax(far, fmax(f - (double)i / N, (double)(i + 1) / N - f));
    }
    cr_assert_lt(far * sqrt(N), 2.7, "%s: Kolmogorov-Smirnov %g", what, far * sqrt(N));
}

static double exponential_cdf(double x, double a, double b)
{
    (void)a, (void)b;
    return -expm1(-x);
}

static double laplace_cdf(double x, double a, double b)
{
    (void)a, (void)b;
    return x < 0 ? exp(x) / 2 : 1 - exp(-x) / 2;
}

static double gumbel_cdf(double x, double a, double b)
{
    (void)a, (void)b;
    return exp(-exp(-x));
}

static double normal_cdf(double x)
{
    return erfc(-x * sqrt(0.5)) / 2;
}

static double truncated_cdf(double x, double a, double b)
{
    const double from = normal_cdf(a), to = normal_cdf(b);
    return (normal_cdf(x) - from) / (to - from);
}

/* The regularized incomplete gamma function, by its series. */
static double gamma_cdf(double x, double a, double b)
{
    (void)b;
    if (x <= 0) return 0;
    double term = 1 / a, sum = term;
    for (int i = 1; i < 2000 && term > sum * 1e-16; i++) sum += term *= x / (a + i);
    return sum * exp(a * log(x) - x - lgamma(a));
}

/* That of a beta number whose parameters are whole: a sum of binomial probabilities. */
static double beta_cdf(double x, double a, double b)
{
    double sum = 0;
    const double n = a + b - 1;
    for (double k = a; k <= n; k++)
        sum +=
            exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) * pow(x, k) * pow(1 - x, n - k);
    return sum;
}

Test(random, exponential_laplace_and_gumbel_numbers_follow_their_distribution)
{
    deft_rng rng = { .seed = 11 };
    for (int i = 0; i < 2; i++) {
        const deft_dtype t = i ? DEFT_F64 : DEFT_F32;
        follows("exponential", deft_exponential(r.cx, &rng, DEFT_SHAPE(N), t), exponential_cdf, 0,
                0);
        follows("laplace", deft_laplace(r.cx, &rng, DEFT_SHAPE(N), t), laplace_cdf, 0, 0);
        follows("gumbel", deft_gumbel(r.cx, &rng, DEFT_SHAPE(N), t), gumbel_cdf, 0, 0);
    }
    cr_assert_eq(rng.next, 6);
}

Test(random, truncated_normal_numbers_follow_their_distribution_and_keep_their_bounds)
{
    static const double bounds[][2] = {
        { -2, 2 }, { -INFINITY, 0.5 }, { 1, 3 }, { 4, 5 }, { -5.5, -4 }
    };
    deft_rng rng = { .seed = 12 };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const double low = bounds[i][0], high = bounds[i][1];
        deft_tensor *const t =
            deft_truncated_normal(r.cx, &rng, DEFT_SHAPE(N), DEFT_F64, low, high);
        follows("truncated_normal", t, truncated_cdf, low, high);
        const double *const v = read_all(t);
        for (int k = 0; k < N; k++) cr_assert(v[k] >= low && v[k] <= high);
    }
}

Test(random, gamma_and_beta_numbers_follow_their_distribution)
{
    static const double shapes[] = { 0.05, 0.7, 1, 2.5, 40 };
    deft_rng rng = { .seed = 13 };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        follows("gamma", deft_gamma(&rng, full(shapes[i])), gamma_cdf, shapes[i], 0);
    follows("beta", deft_beta(&rng, full(2), full(5)), beta_cdf, 2, 5);
    follows("beta", deft_beta(&rng, deft_num(r.cx, 1), full(3)), beta_cdf, 1, 3);
}

/* ---- counts ---- */

/* Pearson's test of N counts from 0 on. probability sets p[0..n), and all that follow are one
 * class. */
static void counts_follow(const char *what, deft_tensor *t, const double *p, int n)
{
    enum { MOST_COUNTS = 4096 };
    static double seen[MOST_COUNTS];
    cr_assert_leq(n, MOST_COUNTS);
    memset(seen, 0, sizeof seen);
    const double *const v = read_all(t);
    for (int i = 0; i < N; i++) {
        cr_assert(v[i] >= 0 && v[i] == floor(v[i]), "%s: %g", what, v[i]);
        seen[v[i] < n ? (int)v[i] : n - 1]++;
    }
    double chi = 0, rest_p = 0, rest = 0;
    int classes = 0;
    for (int k = 0; k < n; k++) {
        rest_p += p[k];
        rest += seen[k];
        if (rest_p * N < 20 && k + 1 < n) continue;
        if (rest_p * N >= 5) {
            chi += (rest - rest_p * N) * (rest - rest_p * N) / (rest_p * N);
            classes++;
        }
        rest_p = rest = 0;
    }
    const double free = classes - 1; /* Wilson and Hilferty: nearly normal */
    const double z =
        free > 0 ? (cbrt(chi / free) - (1 - 2 / (9 * free))) / sqrt(2 / (9 * free)) : 0;
    cr_assert_lt(z, 4.75, "%s: chi squared %g with %g degrees of freedom", what, chi, free);
}

static void poisson_follows(deft_rng *rng, double mean, deft_dtype t)
{
    static double p[4096];
    double left = 1;
    const int n = (int)(mean + 12 * sqrt(mean) + 20);
    for (int k = 0; k < n; k++) {
        p[k] = exp(k * log(mean) - mean - lgamma(k + 1.0));
        left -= p[k];
    }
    p[n - 1] += left;
    counts_follow("poisson", deft_poisson(rng, deft_cast(full(mean), t)), p, n);
}

Test(random, poisson_numbers_follow_their_distribution)
{
    deft_rng rng = { .seed = 14 };
    poisson_follows(&rng, 0.3, DEFT_F64);
    poisson_follows(&rng, 1, DEFT_F32);
    poisson_follows(&rng, 7.5, DEFT_F64);
    poisson_follows(&rng, 900, DEFT_F64);
    const double *const v = read_all(deft_poisson(&rng, full(0)));
    for (int i = 0; i < N; i++) cr_assert_eq(v[i], 0);
}

static void binomial_follows(deft_rng *rng, int n, double q)
{
    static double p[4096];
    for (int k = 0; k <= n; k++)
        p[k] = exp(lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0) + k * log(q) +
                   (n - k) * log1p(-q));
    counts_follow("binomial", deft_binomial(rng, full(n), full(q)), p, n + 1);
}

Test(random, binomial_numbers_follow_their_distribution)
{
    deft_rng rng = { .seed = 15 };
    binomial_follows(&rng, 1, 0.3);
    binomial_follows(&rng, 12, 0.5);
    binomial_follows(&rng, 50, 0.93);
    binomial_follows(&rng, 3000, 0.2);
    deft_tensor *const some =
        deft_add(deft_binomial(&rng, full(5), full(0)), deft_binomial(&rng, full(7), full(1)));
    const double *const v = read_all(some);
    for (int i = 0; i < N; i++) cr_assert_eq(v[i], 7);
}

Test(random, bernoulli_and_categorical_numbers_follow_their_probabilities)
{
    deft_rng rng = { .seed = 16 };
    counts_follow("bernoulli", deft_bernoulli(&rng, full(0.3)), (const double[]){ 0.7, 0.3 }, 2);
    static const double p[] = { 0.1, 0.25, 0.05, 0.6 };
    deft_tensor *const logits = deft_log(deft_from(r.cx, DEFT_SHAPE(4), DEFT_F64, p, sizeof p));
    for (int axis = 0; axis < 2; axis++) {
        deft_tensor *const rows = axis ? deft_expand(logits, DEFT_SHAPE(N, 4))
                                       : deft_expand(deft_unsqueeze(logits, 1), DEFT_SHAPE(4, N));
        counts_follow("categorical", deft_categorical(&rng, rows, axis), p, 4);
    }
}

Test(random, dirichlet_numbers_sum_to_one_and_have_their_mean)
{
    deft_rng rng = { .seed = 17 };
    static const double alpha[] = { 0.5, 1, 2.5 };
    deft_tensor *const a = deft_from(r.cx, DEFT_SHAPE(3), DEFT_F64, alpha, sizeof alpha);
    deft_tensor *const x = deft_dirichlet(&rng, deft_expand(a, DEFT_SHAPE(N, 3)));
    const double *const sums = read_all(deft_sum(x, DEFT_AXES(1), false));
    for (int i = 0; i < N; i++) cr_assert_float_eq(sums[i], 1, 1e-14);
    double mean[3];
    OK(&r, deft_read(deft_mean(x, DEFT_AXES(0), false), DEFT_F64, mean, sizeof mean));
    for (int i = 0; i < 3; i++) cr_assert_float_eq(mean[i], alpha[i] / 4, 0.012);
}

Test(random, integers_of_all_dtypes_are_as_likely)
{
    static const deft_dtype all[] = { DEFT_U8,  DEFT_I8,  DEFT_U16, DEFT_I16,
                                      DEFT_U32, DEFT_I32, DEFT_U64, DEFT_I64 };
    static const double p[] = { 0.2, 0.2, 0.2, 0.2, 0.2 };
    deft_rng rng = { .seed = 26 };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int64_t low = (int64_t)(deft_iinfo(all[i]).max / 4);
        deft_tensor *const t = deft_randint(r.cx, &rng, DEFT_SHAPE(N), all[i], low, low + 5);
        cr_assert_eq(deft_dtype_of(t), all[i]);
        counts_follow("randint", deft_sub_i(deft_cast(t, DEFT_I64), low), p, 5);
    }
}

/* ---- orders and samples ---- */

Test(random, a_permutation_has_each_number_once_and_all_orders_are_as_likely)
{
    deft_rng rng = { .seed = 18 };
    int64_t v[1000];
    bool seen[1000] = { false };
    OK(&r, deft_read(deft_permutation(r.cx, &rng, 1000), DEFT_I64, v, sizeof v));
    for (int i = 0; i < 1000; i++) {
        cr_assert(v[i] >= 0 && v[i] < 1000 && !seen[v[i]]);
        seen[v[i]] = true;
    }
    double orders[6] = { 0 };
    for (int i = 0; i < 300; i++) {
        OK(&r, deft_read(deft_permutation(r.cx, &rng, 3), DEFT_I64, v, 3 * sizeof *v));
        orders[v[0] * 2 + (v[1] > v[2])]++;
    }
    double chi = 0;
    for (int i = 0; i < 6; i++) chi += (orders[i] - 50) * (orders[i] - 50) / 50;
    cr_assert_lt(chi, 36);
    cr_assert_eq(deft_numel(deft_permutation(r.cx, &rng, 0)), 0);
}

Test(random, samples_with_replacement_follow_their_weights)
{
    deft_rng rng = { .seed = 19 };
    static const double w[] = { 2, 0, 1, 5 }, p[] = { 0.25, 0, 0.125, 0.625 },
                        even[] = { 0.25, 0.25, 0.25, 0.25 };
    deft_tensor *const weights = deft_from(r.cx, DEFT_SHAPE(4), DEFT_F64, w, sizeof w);
    deft_tensor *const some = deft_choice(r.cx, &rng, 4, N, true, weights);
    counts_follow("choice", some, p, 4);
    const double *const v = read_all(some);
    for (int i = 0; i < N; i++) cr_assert_neq(v[i], 1);
    counts_follow("choice", deft_choice(r.cx, &rng, 4, N, true, NULL), even, 4);
}

Test(random, samples_without_replacement_have_no_number_twice)
{
    deft_rng rng = { .seed = 20 };
    static const double w[] = { 1, 1, 0, 2 };
    deft_tensor *const weights = deft_from(r.cx, DEFT_SHAPE(4), DEFT_F64, w, sizeof w);
    int64_t v[4];
    double firsts[4] = { 0 };
    for (int i = 0; i < 300; i++) {
        OK(&r, deft_read(deft_choice(r.cx, &rng, 4, 4, false, weights), DEFT_I64, v, sizeof v));
        cr_assert_eq(1 << v[0] | 1 << v[1] | 1 << v[2] | 1 << v[3], 15);
        cr_assert_eq(v[3], 2);
        firsts[v[0]]++;
    }
    cr_assert_float_eq(firsts[3] / 300, 0.5, 0.14);
    cr_assert_float_eq(firsts[0] / 300, 0.25, 0.12);
    OK(&r, deft_read(deft_choice(r.cx, &rng, 9, 4, false, NULL), DEFT_I64, v, sizeof v));
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++) cr_assert_neq(v[i], v[k]);
}

/* ---- the same numbers in whatever way ---- */

/* A capture of many draws; each needs its own state of the generator. */
static deft_status draw_all(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    deft_rng *const rng = user;
    (void)n_in, (void)n_out;
    out[0] = deft_poisson(rng, in[0]);
    out[1] = deft_gamma(rng, in[0]);
    out[2] = deft_categorical(rng, in[0], 0);
    out[3] = deft_add(deft_mul(in[0], deft_laplace(cx, rng, DEFT_SHAPE(6), DEFT_F64)),
                      deft_binomial(rng, deft_num_i(cx, 9), deft_sigmoid(in[0])));
    out[4] = deft_choice(cx, rng, 9, 6, false, NULL);
    return DEFT_OK;
}

static void read_five(deft_tensor *const *t, double v[5][6])
{
    memset(v, 0, 5 * sizeof *v);
    for (int i = 0; i < 5; i++)
        OK(&r, deft_read(deft_cast(t[i], DEFT_F64), DEFT_F64, v[i],
                         (size_t)deft_numel(t[i]) * sizeof(double)));
}

Test(random, a_replay_and_an_unfused_run_draw_the_same)
{
    static const double means[] = { 0.2, 1, 3, 10, 40, 100 };
    deft_rng a = { .seed = 21 }, b = a;
    deft_tensor *const in[] = { deft_from(r.cx, DEFT_SHAPE(6), DEFT_F64, means, sizeof means) };
    deft_capture *c = deft_capture_create(r.cx, draw_all, &a);
    for (int i = 0; i < 3; i++) {
        deft_tensor *x[5], *y[5] = { 0 };
        double v[5][6], w[5][6];
        OK(&r, deft_capture_call(c, in, 1, x, 5));
        cr_assert_eq(draw_all(r.cx, in, 1, y, 5, &b), DEFT_OK);
        cr_assert_eq(a.next, b.next);
        read_five(x, v);
        read_five(y, w);
        cr_assert_arr_eq(v, w, sizeof v);
    }
    deft_capture_stats st;
    deft_capture_stats_read(c, &st, sizeof st);
    cr_assert_eq(st.replayed, 2, "%s", deft_capture_reason(c));
    deft_capture_destroy(&c);
}

static deft_status draw_row(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_poisson(user, in[0]);
    out[1] = deft_gamma(user, in[0]);
    return DEFT_OK;
}

Test(random, each_example_of_vmap_draws_as_the_row_of_one_draw)
{
    static const double means[] = { 0.2, 1, 3, 10, 40, 100 };
    deft_rng a = { .seed = 22 }, b = a;
    deft_tensor *const in = deft_from(r.cx, DEFT_SHAPE(2, 3), DEFT_F64, means, sizeof means);
    deft_tensor *x[2], *y[2];
    double v[2][6], w[2][6];
    cr_assert(deft_vmap(r.cx, draw_row, &a, &in, NULL, 1, x, NULL, 2), "%s", deft_message(r.cx));
    cr_assert_eq(draw_row(r.cx, &in, 1, y, 2, &b), DEFT_OK);
    for (int i = 0; i < 2; i++) {
        OK(&r, deft_read(x[i], DEFT_F64, v[i], sizeof v[i]));
        OK(&r, deft_read(y[i], DEFT_F64, w[i], sizeof w[i]));
    }
    cr_assert_arr_eq(v, w, sizeof v);
}

Test(random, shift_and_scale_of_standard_numbers_have_gradients)
{
    deft_rng rng = { .seed = 23 };
    deft_tensor *const scale = deft_full(r.cx, DEFT_SHAPE(), DEFT_F64, 3);
    deft_tensor *const e = deft_exponential(r.cx, &rng, DEFT_SHAPE(N), DEFT_F64);
    deft_tensor *const mean = deft_mean(deft_mul(e, scale), DEFT_ALL_AXES, false);
    deft_tensor *g;
    double v;
    cr_assert(deft_grad(&mean, NULL, 1, &scale, 1, NULL, &g));
    OK(&r, deft_read(g, DEFT_F64, &v, sizeof v));
    cr_assert_float_eq(v, 1, 0.05);
}

/* ---- mistakes ---- */

Test(random, parameters_out_of_range_give_nan)
{
    deft_rng rng = { .seed = 24 };
    deft_tensor *const bad[] = {
        deft_poisson(&rng, deft_full(r.cx, DEFT_SHAPE(), DEFT_F64, -1)),
        deft_poisson(&rng, deft_full(r.cx, DEFT_SHAPE(), DEFT_F64, NAN)),
        deft_gamma(&rng, deft_full(r.cx, DEFT_SHAPE(), DEFT_F64, 0)),
        deft_binomial(&rng, deft_full(r.cx, DEFT_SHAPE(), DEFT_F64, 2.5), deft_num(r.cx, 0.5)),
        deft_binomial(&rng, deft_full(r.cx, DEFT_SHAPE(), DEFT_F64, 2), deft_num(r.cx, 1.5)),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double v = 0;
        OK(&r, deft_read(bad[i], DEFT_F64, &v, sizeof v));
        cr_assert(isnan(v), "%zu: %g", i, v);
    }
}

Test(random, mistakes_name_the_call_and_its_numbers)
{
    deft_rng rng = { .seed = 25 };
    deft_tensor *const p = deft_ones(r.cx, DEFT_SHAPE(3), DEFT_F32);
    rig_expect_error(&r, deft_exponential(r.cx, NULL, DEFT_SHAPE(3), DEFT_F32), DEFT_E_ARG,
                     "exponential: rng is NULL");
    rig_expect_error(&r, deft_laplace(r.cx, &rng, DEFT_SHAPE(3), DEFT_I32), DEFT_E_DTYPE,
                     "laplace: not for i32");
    rig_expect_error(&r, deft_truncated_normal(r.cx, &rng, DEFT_SHAPE(3), DEFT_F32, 2, 1),
                     DEFT_E_RANGE, "truncated_normal: bounds 2 and 1");
    rig_expect_error(&r, deft_bernoulli(NULL, p), DEFT_E_ARG, "bernoulli: rng is NULL");
    rig_expect_error(&r, deft_beta(&rng, p, deft_ones(r.cx, DEFT_SHAPE(4), DEFT_F32)), DEFT_E_SHAPE,
                     "beta: parameters f32[3] and f32[4]");
    rig_expect_error(&r, deft_choice(r.cx, &rng, 3, 4, false, NULL), DEFT_E_RANGE,
                     "choice: 4 of 3 numbers, without replacement");
    rig_expect_error(&r, deft_choice(r.cx, &rng, 4, 2, false, p), DEFT_E_SHAPE,
                     "choice: weights are f32[3], not [4]");
    rig_expect_error(&r, deft_permutation(r.cx, &rng, -1), DEFT_E_RANGE, "permutation: of -1");
    rig_expect_error(&r, deft_dirichlet(&rng, deft_num(r.cx, 1)), DEFT_E_SHAPE,
                     "dirichlet: alpha has no axis");
    cr_assert_eq(rng.next, 0);
}
