/* SPDX-License-Identifier: Apache-2.0
 *
 * f16 and bf16: values from outside, against plain C on f32 with one rounding by half_ref.h.
 *
 *   hand_halves [--quick] [FILTER]
 *
 *   casts            all 65,536 patterns to every dtype; back from all ties and their neighbours;
 *                    NaN of f32 by several ways
 *   exact ops        the f32 operation of C, rounded once; all patterns, against others
 *   functions        of all patterns, by libm in f64, give or take what f32 may be off
 *   chains           a rounding after each public op, fused or not
 *   before rounding  ops that may take what a product is rounded from
 *   lengths          vectors of any length that begin anywhere
 *   sums, products   whole numbers, exact in f32: rounded once, whatever the order
 *   composites       one rounding, from f32
 *
 * Why this file is long: each family of operators has plain C beside it.
 */
#include "ops/dtype.h"
#include "../support/faces.h"
#include "../support/half_ref.h"
#include "../support/int_ref.h"
#include "../support/oracle.h"
#include "../support/budget.h"

#include <float.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))
enum { ALL = 65536 };

static long n_checks, n_failures;
static const char *path_name = "", *filter;
static bool quick;
static deft_ctx *cx;
static deft_dtype t; /* f16 or bf16: each test runs for both */
static uint16_t all[ALL], others[ALL];

static void fail(const char *fmt, ...)
{
    va_list ap;
    if (++n_failures > 200) return;
    printf("FAIL %s | %s | ", path_name, deft_dtype_name(t));
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
}

static deft_shape shape1(int64_t n)
{
    return (deft_shape){ .rank = 1, .dim = { n } };
}

static deft_tensor *from(deft_dtype d, deft_shape s, const void *data)
{
    return deft_from(cx, s, d, data, (size_t)oracle_numel(&s) * deft_dtype_size(d));
}

static deft_tensor *halves(const uint16_t *h, size_t n)
{
    return from(t, shape1((int64_t)n), h);
}

static float value(uint16_t h)
{
    return (float)half_value(t, h);
}

static uint16_t rounded(double v)
{
    return half_bits(t, v);
}

static bool read_all(const char *what, deft_tensor *x, deft_dtype d, void *out, size_t n)
{
    n_checks++;
    if (x && deft_dtype_of(x) == d && (size_t)deft_numel(x) == n &&
        deft_read(x, d, out, n * deft_dtype_size(d)) == DEFT_OK)
        return true;
    fail("%s: %s, %s", what, x ? deft_dtype_name(deft_dtype_of(x)) : "none", deft_message(cx));
    deft_clear(cx);
    return false;
}

/* x must hold exactly want. */
static void expect(const char *what, deft_tensor *x, deft_dtype d, const void *want, size_t n)
{
    void *const got = oracle_alloc(n * deft_dtype_size(d) + 1);
    char a[64], b[64];
    if (read_all(what, x, d, got, n)) {
        const size_t k = oracle_difference(d, want, got, n);
        if (k < n)
            fail("%s: element %zu (of %04x, %04x) is %s, expected %s", what, k, all[k % ALL],
                 others[k % ALL], oracle_text(d, got, k, a, sizeof a),
                 oracle_text(d, want, k, b, sizeof b));
    }
    free(got);
}

/* x must hold want but for what f32 may be off: `slack` of it, before the one rounding. */
static void expect_near(const char *what, deft_tensor *x, const double *want, size_t n,
                        double slack)
{
    uint16_t *const got = oracle_alloc(n * sizeof *got);
    if (read_all(what, x, t, got, n)) {
        for (size_t i = 0; i < n; i++) {
            const double off = fabs(want[i]) * slack + 0x1p-147, w = want[i];
            const double low = half_value(t, rounded(w - off)), g = half_value(t, got[i]);
            const double high = half_value(t, rounded(w + off));
            const bool ok = isnan(w) ? isnan(g) : isinf(w) ? g == w : low <= g && g <= high;
            if (ok) continue;
            fail("%s: element %zu (of %a) is %a, expected %a", what, i, (double)value(all[i % ALL]),
                 g, w);
            break;
        }
    }
    free(got);
}

/* ---- casts ---- */

static void cast_from(deft_dtype to, void *out, size_t i, double v)
{
    switch (to) {
    CASES_OF_FACES:
        break;
    case DEFT_BOOL:
        ((uint8_t *)out)[i] = v != 0;
        break;
    INT_REF_CASES:
        int_ref_put(to, out, i, int_ref_of_double(to, v));
        break;
    case DEFT_F32: ((float *)out)[i] = (float)v; break;
    case DEFT_F64: ((double *)out)[i] = v; break;
    case DEFT_F16:
    case DEFT_BF16: ((uint16_t *)out)[i] = half_bits(to, v); break;
    }
}

static void test_casts(void)
{
    char what[60];
    static int64_t want[ALL], got[ALL];
    for (int to = 0; to < DF_N_RECORDED; to++) {
        const deft_dtype d = (deft_dtype)to;
        for (size_t i = 0; i < ALL; i++) cast_from(d, want, i, half_value(t, all[i]));
        if (d == t) memcpy(want, all, sizeof all);
        snprintf(what, sizeof what, "all to %s", deft_dtype_name(d));
        deft_tensor *const x = halves(all, ALL);
        expect(what, deft_cast(x, d), d, want, ALL);
        n_checks++;
        if (deft_read(x, d, got, ALL * deft_dtype_size(d)) != DEFT_OK ||
            oracle_difference(d, want, got, ALL) < ALL)
            fail("%s: reading converts otherwise", what);
    }
}

/* Every tie between two neighbours, and what is next to it on both sides. */
static void test_ties(void)
{
    enum { MOST = 6 * 32768 };
    float *const f = oracle_alloc(MOST * sizeof *f);
    double *const d = oracle_alloc(MOST * sizeof *d);
    uint16_t *const wf = oracle_alloc(MOST * sizeof *wf), *const wd =
                                                              oracle_alloc(MOST * sizeof *wd);
    size_t n = 0;
    for (uint32_t h = 0; h < 32767; h++) {
        const double low = half_value(t, (uint16_t)h), high = half_value(t, (uint16_t)(h + 1));
        if (!isfinite(low) || isnan(high)) continue;
        const double step = isinf(high) ? low - half_value(t, (uint16_t)(h - 1)) : high - low;
        for (int k = 0; k < 6; k++, n++) {
            const double tie = (k < 3 ? 1 : -1) * (low + step / 2);
            const double way = k % 3 == 0 ? tie : k % 3 == 1 ? (double)INFINITY : -(double)INFINITY;
            f[n] = nextafterf((float)tie, (float)way);
            d[n] = nextafter(tie, way);
            wf[n] = rounded((double)f[n]);
            wd[n] = rounded(d[n]);
        }
    }
    expect("ties of f32", deft_cast(from(DEFT_F32, shape1((int64_t)n), f), t), t, wf, n);
    expect("ties of f64", deft_cast(from(DEFT_F64, shape1((int64_t)n), d), t), t, wd, n);
    free(f), free(d), free(wf), free(wd);
}

/* The low half of a NaN of f32 may carry into the upper half when it is rounded. */
static void test_nans(void)
{
    static const uint32_t pattern[] = {
        0x7f800001, 0x7f80ffff, 0x7fffffff, 0xffffffff, 0x7fff8000,
        0xffff8001, 0x7fc00000, 0xff80ffff, 0x7fbfffff, 0x3f800000
    };
    enum { N = 70 };
    uint32_t bits[N];
    float f[N], want[N];
    uint16_t half[N], f16[N];
    double d[N];
    bool is_odd[N];
    for (size_t i = 0; i < N; i++) {
        const uint64_t wide = 0x7fffffffffffffff;
        memcpy(&d[i], &wide, sizeof d[i]);
        bits[i] = pattern[i % LEN(pattern)];
        memcpy(&f[i], &bits[i], sizeof f[i]);
        want[i] = isnan(f[i]) ? NAN : 1;
        half[i] = rounded(1);
        f16[i] = 0x7fff;
        if (!isnan(f[i])) d[i] = 1, f16[i] = 0x3c00;
        is_odd[i] = i % 2;
    }
    for (size_t n = 1; n <= N; n += N - 1) {
        const deft_shape s = shape1((int64_t)n);
        deft_tensor *const x = from(DEFT_F32, s, f), *const one = from(t, s, half);
        deft_tensor *const wide = deft_cast(one, DEFT_F32), *const odd = from(DEFT_BOOL, s, is_odd);
        deft_tensor *const of_f64 = deft_cast(from(DEFT_F64, s, d), DEFT_F32);
        deft_tensor *const of_f16 = deft_cast(from(DEFT_F16, s, f16), DEFT_F32);
        deft_tensor *const made[] = { x,
                                      deft_mul(of_f64, wide),
                                      deft_mul(of_f16, wide),
                                      deft_mul(x, wide),
                                      deft_div(wide, x),
                                      deft_sqrt(x),
                                      deft_abs(x),
                                      deft_minimum(x, wide),
                                      deft_maximum(wide, x),
                                      deft_where(odd, x, deft_mul(wide, x)),
                                      deft_neg(deft_neg(x)) };
        for (size_t k = 0; k < LEN(made); k++) {
            char what[32];
            snprintf(what, sizeof what, "NaN, way %zu, %zu elements", k, n);
            expect(what, deft_cast(deft_cast(made[k], t), DEFT_F32), DEFT_F32, want, n);
        }
    }
}

static void test_integers(void)
{
    enum { N = 63 * 300 * 3 };
    static int64_t k[N];
    static int32_t s[N];
    static uint8_t b[256];
    static uint16_t wk[N], ws[N], wb[256];
    size_t n = 0;
    uint64_t state = 3;
    for (int shift = 0; shift < 63; shift++)
        for (int i = 0; i < 300; i++)
            for (int by = -1; by <= 1; by++, n++) {
                const uint64_t m = oracle_next(&state) % 4096;
                const int64_t v = (int64_t)(m << shift & (uint64_t)INT64_MAX) + (i % 7 ? by : 0);
                k[n] = i & 1 ? -v : v;
                s[n] = (int32_t)(uint32_t)(uint64_t)k[n];
                wk[n] = half_bits_i(t, k[n]);
                ws[n] = half_bits_i(t, s[n]);
            }
    for (int i = 0; i < 256; i++) b[i] = (uint8_t)i, wb[i] = half_bits_i(t, i);
    expect("i64", deft_cast(from(DEFT_I64, shape1(N), k), t), t, wk, N);
    expect("i32", deft_cast(from(DEFT_I32, shape1(N), s), t), t, ws, N);
    expect("u8", deft_cast(from(DEFT_U8, shape1(256), b), t), t, wb, 256);
}

/* ---- exact ops ---- */

#define EXACT1(name, expression)                                                                   \
    do {                                                                                           \
        for (size_t i = 0; i < ALL; i++) {                                                         \
            const float a = value(all[i]);                                                         \
            want[i] = rounded((double)(expression));                                               \
        }                                                                                          \
        expect(#name, (deft_##name)(x), t, want, ALL);                                             \
    } while (0)
#define EXACT2(name, expression)                                                                   \
    do {                                                                                           \
        for (size_t i = 0; i < ALL; i++) {                                                         \
            const float a = value(all[i]), b = value(others[i]);                                   \
            want[i] = rounded((double)(expression));                                               \
        }                                                                                          \
        expect(#name, (deft_##name)(x, y), t, want, ALL);                                          \
    } while (0)
#define TEST2(name, expression)                                                                    \
    do {                                                                                           \
        for (size_t i = 0; i < ALL; i++) {                                                         \
            const float a = value(all[i]), b = value(others[i]);                                   \
            yes[i] = (expression);                                                                 \
            (void)b;                                                                               \
        }                                                                                          \
        expect(#name, name, DEFT_BOOL, yes, ALL);                                                  \
    } while (0)

static void test_exact(void)
{
    static uint16_t want[ALL];
    static uint8_t yes[ALL];
    deft_tensor *const x = halves(all, ALL), *const y = halves(others, ALL);
    EXACT1(neg, -a);
    EXACT1(abs, fabsf(a));
    EXACT1(square, a * a);
    EXACT1(relu, a > 0 || a != a ? a : 0);
    EXACT1(sign, a > 0 ? 1 : a < 0 ? -1 : a);
    EXACT1(floor, floorf(a));
    EXACT1(round, nearbyintf(a));
    EXACT1(sqrt, sqrtf(a));
    EXACT1(reciprocal, 1 / a);
    EXACT2(add, a + b);
    EXACT2(sub, a - b);
    EXACT2(mul, a * b);
    EXACT2(div, a / b);
    EXACT2(fmod, fmodf(a, b));
    EXACT2(minimum, a < b || a != a ? a : b);
    EXACT2(maximum, a > b || a != a ? a : b);
    EXACT2(copysign, copysignf(a, b));
    TEST2(deft_isnan(x), isnan(a));
    TEST2(deft_isinf(x), isinf(a) != 0);
    TEST2((deft_lt)(x, y), a < b);
    TEST2((deft_eq)(x, y), a == b);
    TEST2((deft_ge)(x, y), a >= b);
    /* moved as they are, NaN and all */
    for (size_t i = 0; i < ALL; i++)
        want[i] = value(all[i]) < value(others[i]) ? all[i] : others[i];
    expect("where", deft_where((deft_lt)(x, y), x, y), t, want, ALL);
    /* a number is rounded first */
    const float tenth = value(rounded(0.1));
    for (size_t i = 0; i < ALL; i++) want[i] = rounded((double)(value(all[i]) * tenth));
    expect("times 0.1", deft_mul(x, 0.1), t, want, ALL);
    for (size_t i = 0; i < ALL; i++) {
        const float a = value(all[i]);
        want[i] = rounded((double)(a * a * a));
    }
    expect("cube", deft_pow(x, 3), t, want, ALL);
    n_checks++;
    if (deft_mul(x, t == DEFT_F16 ? 65520.0 : 3.4e38 * 1.01) || deft_error(cx) != DEFT_E_RANGE ||
        !strstr(deft_message(cx), "does not fit"))
        fail("a number beyond the greatest was taken: %s", deft_message(cx));
    deft_clear(cx);
}

/* ---- functions ---- */

static double f_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double f_silu(double x)
{
    return x == -(double)INFINITY ? -0.0 : x / (1 + exp(-x));
}
static double f_gelu(double x)
{
    return x == -(double)INFINITY ? -0.0 : x / 2 * erfc(-x * sqrt(0.5));
}
static double f_softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}
static double f_rsqrt(double x)
{
    return 1 / sqrt(x);
}

static void test_functions(void)
{
    static const struct {
        const char *name;
        deft_tensor *(*f)(deft_tensor *);
        double (*want)(double);
    } rows[] = {
        { "exp", deft_exp, exp },
        { "exp2", deft_exp2, exp2 },
        { "expm1", deft_expm1, expm1 },
        { "log", deft_log, log },
        { "log2", deft_log2, log2 },
        { "log10", deft_log10, log10 },
        { "log1p", deft_log1p, log1p },
        { "sin", deft_sin, sin },
        { "cos", deft_cos, cos },
        { "tan", deft_tan, tan },
        { "asin", deft_asin, asin },
        { "acos", deft_acos, acos },
        { "atan", deft_atan, atan },
        { "sinh", deft_sinh, sinh },
        { "cosh", deft_cosh, cosh },
        { "tanh", deft_tanh, tanh },
        { "asinh", deft_asinh, asinh },
        { "acosh", deft_acosh, acosh },
        { "atanh", deft_atanh, atanh },
        { "cbrt", deft_cbrt, cbrt },
        { "sigmoid", deft_sigmoid, f_sigmoid },
        { "erf", deft_erf, erf },
        { "erfc", deft_erfc, erfc },
        { "gelu", deft_gelu, f_gelu },
        { "silu", deft_silu, f_silu },
        { "softplus", deft_softplus, f_softplus },
        { "rsqrt", deft_rsqrt, f_rsqrt },
    };
    static double want[ALL];
    deft_tensor *const x = halves(all, ALL);
    for (size_t k = 0; k < LEN(rows); k++) {
        const bool has_cheap = rows[k].f == (deft_gelu) || rows[k].f == (deft_erfc);
        if (quick && (k + (t == DEFT_F16)) % 8 && !has_cheap) continue;
        if (k > 4 && !test_time_left(1)) break;
        for (size_t i = 0; i < ALL; i++) want[i] = rows[k].want((double)value(all[i]));
        expect_near(rows[k].name, rows[k].f(x), want, ALL, 0x1p-21);
        /* It is the function of f32, rounded once. */
        static uint16_t rounded_once[ALL];
        deft_tensor *const wide = rows[k].f(deft_cast(x, DEFT_F32));
        if (!read_all(rows[k].name, deft_cast(wide, t), t, rounded_once, ALL)) return;
        expect(rows[k].name, rows[k].f(x), t, rounded_once, ALL);
    }
}

/* ---- chains ---- */

/* Six ops in one kernel, each rounded. */
static void test_chains(void)
{
    static uint16_t want[ALL];
    deft_tensor *const x = halves(all, ALL), *const y = halves(others, ALL);
#define R(v) value(rounded((double)(v)))
    for (size_t i = 0; i < ALL; i++) {
        const float a = value(all[i]), b = value(others[i]);
        const float p = R(a * b), q = R(p + a), r = R(q - b), s = R(r / R(sqrtf(fabsf(b))));
        want[i] = rounded((double)(s * s));
    }
#undef R
    deft_tensor *const r = deft_sub(deft_add(deft_mul(x, y), x), y);
    expect("chain", deft_square(deft_div(r, deft_sqrt(deft_abs(y)))), t, want, ALL);
}

/* relu, neg and abs of a product, which may be computed before its rounding. Products of all
 * patterns include NaN, both zeros, and numbers that are rounded to zeros and infinities. */
static void test_before_rounding(void)
{
    static uint16_t relu[ALL], neg[ALL], abs[ALL], several[ALL], twice[ALL];
    for (size_t i = 0; i < ALL; i++) {
        const float p = value(rounded((double)(value(all[i]) * value(others[i]))));
        const float up = p > 0 || isnan(p) ? p : 0, down = -p > 0 || isnan(p) ? -p : 0;
        relu[i] = rounded((double)up);
        neg[i] = rounded((double)-p);
        abs[i] = rounded((double)fabsf(p));
        several[i] = rounded((double)(value(rounded((double)(up + p))) * fabsf(p)));
        twice[i] = rounded((double)down);
    }
    deft_tensor *const x = halves(all, ALL), *const y = halves(others, ALL);
    expect("relu of a product", deft_relu(deft_mul(x, y)), t, relu, ALL);
    expect("neg of a product", deft_neg(deft_mul(x, y)), t, neg, ALL);
    expect("abs of a product", deft_abs(deft_mul(x, y)), t, abs, ALL);
    deft_tensor *const p = deft_mul(x, y);
    expect("three uses of a product", deft_mul(deft_add(deft_relu(p), p), deft_abs(p)), t, several,
           ALL);
    expect("relu of neg of a product", deft_relu(deft_neg(deft_mul(x, y))), t, twice, ALL);
}

/* Two results of n elements, which begin `skip` elements into an array. Whole vectors may be
 * computed in another order than the elements behind them. */
static void check_length(size_t n, size_t skip)
{
    static uint16_t product[ALL], difference[ALL];
    char what[60];
    for (size_t i = 0; i < n; i++) {
        const float x = value(all[i + skip]), y = value(others[i + skip]);
        product[i] = rounded((double)(x * y));
        difference[i] = rounded((double)(value(product[i]) - y));
    }
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *const x = deft_slice(halves(all, n + skip), DEFT_R((int64_t)skip, DEFT_END));
    deft_tensor *const y = deft_slice(halves(others, n + skip), DEFT_R((int64_t)skip, DEFT_END));
    deft_tensor *both[2] = { deft_mul(x, y) };
    both[1] = deft_sub(both[0], y);
    n_checks++;
    if (deft_eval(both, 2) != DEFT_OK) fail("%zu from %zu: %s", n, skip, deft_message(cx));
    snprintf(what, sizeof what, "%zu products from %zu", n, skip);
    expect(what, both[0], t, product, n);
    snprintf(what, sizeof what, "%zu differences from %zu", n, skip);
    expect(what, both[1], t, difference, n);
    expect("one result", deft_sub(deft_mul(x, y), y), t, difference, n);
    if (deft_scope_end(s) != DEFT_OK) fail("scope: %s", deft_message(cx));
}

static void test_lengths(void)
{
    static const size_t lengths[] = {
        1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129, 1000, 20001
    };
    for (size_t k = 0; k < LEN(lengths); k++)
        for (size_t skip = 0; skip < 3; skip++) check_length(lengths[k], skip);
}

/* ---- reductions ---- */

/* Whole numbers of the half whose sums are exact in f32. */
static void whole_numbers(uint16_t *h, size_t n, int most, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        h[i] = rounded((double)(oracle_next(&seed) % (uint64_t)(2 * most + 1)) - most / 2);
}

static void test_reductions(void)
{
    static const size_t lengths[] = { 1, 7, 64, 65, 1000, 4097, 20000 };
    static uint16_t h[20000], run[20000];
    for (size_t k = 0; k < LEN(lengths); k++) {
        const size_t n = lengths[k];
        const deft_shape forms[] = { { 1, { (int64_t)n } }, { 2, { (int64_t)n, 1 } } };
        whole_numbers(h, n, 100, k);
        float sum = 0, most = -INFINITY, least = INFINITY;
        int64_t arg = 0;
        for (size_t i = 0; i < n; i++) {
            const float v = value(h[i]);
            sum += v;
            run[i] = rounded((double)sum);
            least = v < least ? v : least;
            if (v > most) most = v, arg = (int64_t)i;
        }
        const uint16_t s = rounded((double)sum), m = rounded((double)(sum / (float)n));
        const uint16_t top = rounded((double)most), low = rounded((double)least);
        for (size_t f = 0; f < LEN(forms); f++) {
            deft_tensor *const x = deft_reshape(halves(h, n), forms[f]);
            const deft_axes axes = DEFT_AXES(0);
            expect("sum", deft_sum(x, axes, 0), t, &s, 1);
            expect("mean", deft_mean(x, axes, 0), t, &m, 1);
            expect("max", deft_max(x, axes, 0), t, &top, 1);
            expect("min", deft_min(x, axes, 1), t, &low, 1);
            expect("argmax", deft_argmax(x, axes, 0), DEFT_I64, &arg, 1);
            expect("cumsum", deft_cumsum(x, 0), t, run, n);
            /* the sum is rounded before what follows, though that is in the same kernel */
            const uint16_t less = rounded((double)(value(s) - value(rounded(1000))));
            expect("sum - 1000", deft_sub(deft_sum(x, axes, 0), 1000), t, &less, 1);
        }
    }
    const uint16_t odd[] = { rounded(3), rounded((double)NAN), rounded(-(double)INFINITY) };
    const uint16_t nan = rounded((double)NAN);
    const int64_t first = 1;
    deft_tensor *const x = halves(odd, 3);
    expect("min with NaN", deft_min(x, DEFT_ALL_AXES, 0), t, &nan, 1);
    expect("argmin with NaN", deft_argmin(x, DEFT_ALL_AXES, 0), DEFT_I64, &first, 1);
    expect("argmin of -inf", deft_argmin(deft_slice(x, DEFT_RS(0, 3, 2)), DEFT_ALL_AXES, 0),
           DEFT_I64, &first, 1);
    expect("nonzero", deft_nonzero(deft_neg(deft_sub(x, 3)), 1, NULL), DEFT_I64, &first, 1);
}

static void test_matmul(void)
{
    enum { M = 33, K = 129, N = 17 };
    static uint16_t a[M * K], b[K * N], want[M * N];
    whole_numbers(a, M * K, 20, 1);
    whole_numbers(b, K * N, 20, 2);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float acc = 0;
            for (int k = 0; k < K; k++) acc += value(a[i * K + k]) * value(b[k * N + j]);
            want[i * N + j] = rounded((double)acc);
        }
    deft_tensor *const x = from(t, DEFT_SHAPE(M, K), a), *const y = from(t, DEFT_SHAPE(K, N), b);
    expect("matmul", deft_matmul(x, y), t, want, M * N);
    expect("matmul with f32", deft_cast(deft_matmul(x, deft_cast(y, DEFT_F32)), t), t, want, M * N);
}

/* Added up in f32 at one place, and rounded once; and what take gives back to where it read. */
static void test_scatter(void)
{
    enum { N = 3000, PLACES = 3 };
    static uint16_t h[N], want[PLACES];
    static int64_t at[N];
    float sum[PLACES] = { 0 };
    whole_numbers(h, N, 100, 6);
    for (int i = 0; i < N; i++) {
        at[i] = i * 7 % PLACES;
        sum[at[i]] += value(h[i]);
    }
    for (int k = 0; k < PLACES; k++) want[k] = rounded((double)sum[k]);
    deft_tensor *const zeros = deft_zeros(cx, shape1(PLACES), t);
    deft_tensor *const where = from(DEFT_I64, shape1(N), at), *const x = halves(h, N);
    expect("index_add", deft_index_add(zeros, where, x, 0), t, want, PLACES);
    expect("scatter_add", deft_scatter_add(zeros, where, x, 0), t, want, PLACES);
    deft_tensor *const taken = deft_take(zeros, where, 0);
    deft_tensor *g = NULL;
    (void)deft_grad(&taken, &x, 1, &zeros, 1, NULL, &g);
    expect("gradient of take", g, t, want, PLACES);
}

static void test_gradients(void)
{
    enum { M = 5, K = 40 };
    static uint16_t h[M * K], want[M * K];
    whole_numbers(h, M * K, 20, 8);
    deft_tensor *const x = from(t, DEFT_SHAPE(M, K), h);
    deft_tensor *const square = deft_sum(deft_square(x), DEFT_ALL_AXES, 0);
    deft_tensor *const product =
        deft_sum(deft_matmul(x, deft_ones(cx, DEFT_SHAPE(K, 3), t)), DEFT_ALL_AXES, 0);
    deft_tensor *const mean = deft_mean(x, DEFT_ALL_AXES, 0);
    deft_tensor *g = NULL;
    for (int i = 0; i < M * K; i++) want[i] = rounded((double)(2 * value(h[i])));
    (void)deft_grad(&square, NULL, 1, &x, 1, NULL, &g);
    expect("gradient of a square", g, t, want, M * K);
    for (int i = 0; i < M * K; i++) want[i] = rounded(3);
    (void)deft_grad(&product, NULL, 1, &x, 1, NULL, &g);
    expect("gradient of matmul", g, t, want, M * K);
    for (int i = 0; i < M * K; i++) want[i] = rounded((double)(1.0f / (M * K)));
    (void)deft_grad(&mean, NULL, 1, &x, 1, NULL, &g);
    expect("gradient of mean", g, t, want, M * K);
}

/* ---- order ---- */

static void test_order(void)
{
    static uint16_t got[ALL], h[ALL];
    static int64_t first[ALL];
    for (size_t i = 0; i < ALL; i++) h[i] = (uint16_t)(i * 40503u);
    if (!read_all("sort", deft_sort(halves(h, ALL), 0, 0), t, got, ALL)) return;
    for (size_t i = 1; i < ALL; i++) {
        const float a = value(got[i - 1]), b = value(got[i]);
        if (!(a <= b || isnan(b))) {
            fail("sort: %a before %a", (double)a, (double)b);
            break;
        }
    }
    if (!read_all("argsort", deft_argsort(halves(h, ALL), 0, 1), DEFT_I64, first, ALL)) return;
    n_checks++;
    if (!isnan(value(h[first[0]])) || value(h[first[ALL - 1]]) != -INFINITY)
        fail("argsort descending: from %04x to %04x", h[first[0]], h[first[ALL - 1]]);
    deft_tensor *count;
    int64_t n = 0, numbers = 1; /* one NaN */
    for (size_t i = 0; i < ALL; i++) numbers += !isnan(value(h[i])) && h[i] != 0x8000;
    deft_tensor *const u = deft_unique(halves(h, ALL), ALL, &count);
    if (!u || deft_item(count, &n) != DEFT_OK || n != numbers)
        fail("unique: %lld values, not %lld", (long long)n, (long long)numbers);
}

/* ---- composites ---- */

static void test_composites(void)
{
    enum { ROWS = 9, N = 70 };
    static uint16_t h[ROWS * N], g[ROWS * N], lerped[ROWS * N];
    static double soft[ROWS * N], logs[ROWS * N], norm[ROWS * N], var[ROWS];
    oracle_fill(t, h, ROWS * N, 4, ORACLE_TAME);
    oracle_fill(t, g, ROWS * N, 5, ORACLE_TAME);
    for (size_t r = 0; r < ROWS; r++) {
        double sum = 0, total = 0, square = 0;
        for (size_t i = 0; i < N; i++) {
            const double v = half_value(t, h[r * N + i]);
            sum += exp(v);
            total += v;
        }
        for (size_t i = 0; i < N; i++) {
            const double v = half_value(t, h[r * N + i]);
            square += (v - total / N) * (v - total / N);
            soft[r * N + i] = exp(v) / sum;
            logs[r * N + i] = v - log(sum);
        }
        var[r] = square / (N - 1);
        for (size_t i = 0; i < N; i++) {
            const size_t k = r * N + i;
            const float a = value(h[k]), b = value(g[k]);
            norm[k] = (half_value(t, h[k]) - total / N) / sqrt(square / N + 1e-5);
            lerped[k] = rounded((double)(a + 0.3f * (b - a)));
        }
    }
    deft_tensor *const x = from(t, DEFT_SHAPE(ROWS, N), h), *const y =
                                                                from(t, DEFT_SHAPE(ROWS, N), g);
    expect_near("softmax", deft_softmax(x, 1), soft, ROWS * N, 1e-5);
    expect_near("log_softmax", deft_log_softmax(x, 1), logs, ROWS * N, 1e-5);
    expect_near("layer_norm", deft_layer_norm(x, 1, NULL, NULL, 1e-5), norm, ROWS * N, 1e-4);
    expect_near("var", deft_var(x, DEFT_AXES(1), 0, 1), var, ROWS, 1e-5);
    expect("lerp", deft_lerp(x, y, 0.3), t, lerped, ROWS * N);
}

static void test_creation(void)
{
    enum { N = 3000 };
    static uint16_t want[N];
    static int64_t words[N];
    for (size_t i = 0; i < N; i++) want[i] = rounded((double)(0.1f + (float)i * 0.7f));
    expect("arange", deft_arange(cx, 0.1, 0.1 + 0.7 * (N - 0.5), 0.7, t), t, want, N);
    const uint16_t third = rounded(1.0 / 3);
    expect("full", deft_full(cx, shape1(1), t, 1.0 / 3), t, &third, 1);
    const int bits = t == DEFT_F16 ? 11 : 8;
    deft_rng rng = { 7, 1 };
    if (!read_all("words", deft_randint(cx, &rng, shape1(N), DEFT_I64, 0, (int64_t)1 << 31),
                  DEFT_I64, words, N))
        return;
    for (size_t i = 0; i < N; i++)
        want[i] = rounded(ldexp((double)(words[i] >> (31 - bits)), -bits));
    rng.next = 1;
    expect("uniform", deft_uniform(cx, &rng, shape1(N), t, 0, 1), t, want, N);
    float mean = 0, deviation = 0;
    deft_tensor *const z = deft_cast(deft_normal(cx, &rng, shape1(N), t, 2, 0.5), DEFT_F32);
    n_checks++;
    if (deft_item(deft_mean(z, DEFT_ALL_AXES, 0), &mean) != DEFT_OK || fabsf(mean - 2) > 0.05f ||
        deft_item(deft_sqrt(deft_var(z, DEFT_ALL_AXES, 0, 0)), &deviation) != DEFT_OK ||
        fabsf(deviation - 0.5f) > 0.03f)
        fail("normal: mean %g, deviation %g", (double)mean, (double)deviation);
}

/* ---- running ---- */

int main(int argc, char **argv)
{
    oracle_path paths[] = {
        { .name = "interp unfused", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
        { .name = "interp fused", .tier = DEFT_TIER_INTERPRET, .n_threads = 2 },
        { .name = "llvm O2", .tier = DEFT_TIER_FULL, .n_threads = 2 },
        { .name = "llvm O2 16 bytes",
          .tier = DEFT_TIER_FULL,
          .n_threads = 1,
          .max_vector_bytes = 16 },
        { .name = "llvm O0 32 bytes",
          .tier = DEFT_TIER_QUICK,
          .n_threads = 1,
          .max_vector_bytes = 32 },
    };
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        { "casts", test_casts },
        { "ties", test_ties },
        { "integers", test_integers },
        { "exact", test_exact },
        { "functions", test_functions },
        { "chains", test_chains },
        { "before rounding", test_before_rounding },
        { "lengths", test_lengths },
        { "reductions", test_reductions },
        { "matmul", test_matmul },
        { "scatter", test_scatter },
        { "gradients", test_gradients },
        { "order", test_order },
        { "composites", test_composites },
        { "creation", test_creation },
        { "nans", test_nans },
    };
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick"))
            quick = true;
        else if (strcmp(argv[i], "--full"))
            filter = argv[i];
    }
    uint64_t seed = 11;
    for (size_t i = 0; i < ALL; i++) {
        all[i] = (uint16_t)i;
        others[i] = (uint16_t)oracle_next(&seed);
        /* half of them near the first, so that sums and differences round */
        if (i & 1) others[i] = (uint16_t)(i ^ (others[i] & 0x87FF));
    }
    const double t0 = oracle_now();
    const size_t n = oracle_open(paths, LEN(paths));
    for (size_t i = 0; i < n; i++) {
        path_name = paths[i].name;
        cx = paths[i].cx;
        const double start = oracle_now();
        for (size_t k = 0; k < 2 * LEN(tests); k++) {
            if (filter && !strstr(tests[k / 2].name, filter)) continue;
            /* Narrow vectors: by day, one of the two types each. */
            if (test_is_limited() && paths[i].max_vector_bytes && k % 2 != i % 2) continue;
            t = k % 2 ? DEFT_BF16 : DEFT_F16;
            const deft_scope s = deft_scope_begin(cx);
            tests[k / 2].run();
            deft_clear(cx);
            if (deft_scope_end(s) != DEFT_OK)
                fail("%s: scope_end: %s", tests[k / 2].name, deft_message(cx));
        }
        printf("%-16s %.1f s\n", path_name, oracle_now() - start);
    }
    printf("%ld checks, %ld failures, %.1f s\n", n_checks, n_failures, oracle_now() - t0);
    oracle_close(paths, n);
    return n_failures ? 1 : 0;
}
