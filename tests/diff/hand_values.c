/* SPDX-License-Identifier: Apache-2.0
 *
 * Values from outside: what each op gives, against plain C written here. Nothing of the library's
 * own tables or recipes is used, so a fault that all paths share shows.
 *
 *   hand_values [--quick] [FILTER]
 *
 *   transcendentals     long double libm, with the tolerance that docs/accuracy.md promises
 *   everything exact    C expressions over the same bits
 *   reductions          the order of base/limits.h, written out naively
 *   views, joining      an array of source indices that each view rearranges
 *   matmul              acc = fma(a, b, acc), k ascending
 *   random numbers      Philox 4x32-10, itself checked against the vectors of Random123
 *
 * Why this file is long: an oracle of its own for each family of ops.
 */
#include "ops/dtype.h"
#include "../support/faces.h"
#include "../support/half_ref.h"
#include "../support/int_ref.h"
#include "../support/oracle.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define LEN(a) (sizeof(a) / sizeof *(a))

static long n_checks, n_failures;
static const char *path_name = "", *filter;
static bool quick;
static deft_ctx *cx;

static void fail(const char *fmt, ...)
{
    va_list ap;
    if (++n_failures > 200) return;
    printf("FAIL %s | ", path_name);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
}

static bool is_float(deft_dtype t)
{
    return t == DEFT_F32 || t == DEFT_F64;
}
static deft_shape shape1(int64_t a)
{
    return (deft_shape){ .rank = 1, .dim = { a } };
}
static deft_shape shape2(int64_t a, int64_t b)
{
    return (deft_shape){ .rank = 2, .dim = { a, b } };
}
static deft_shape shape3(int64_t a, int64_t b, int64_t c)
{
    return (deft_shape){ .rank = 3, .dim = { a, b, c } };
}

static deft_tensor *from(deft_dtype t, deft_shape s, const void *data)
{
    return deft_from(cx, s, t, data, (size_t)oracle_numel(&s) * deft_dtype_size(t));
}

/* Reads t, which must have n elements of dtype; NULL and a failure otherwise. The caller frees. */
static void *values(const char *what, deft_tensor *t, deft_dtype dtype, size_t n)
{
    n_checks++;
    if (!t) {
        fail("%s: %s", what, deft_message(cx));
        deft_clear(cx);
        return NULL;
    }
    if (deft_dtype_of(t) != dtype || (size_t)deft_numel(t) != n) {
        fail("%s: is %s of %lld elements, expected %s of %zu", what,
             deft_dtype_name(deft_dtype_of(t)), (long long)deft_numel(t), deft_dtype_name(dtype),
             n);
        return NULL;
    }
    const size_t bytes = n * deft_dtype_size(dtype);
    void *const p = oracle_alloc(bytes);
    if (deft_read(t, dtype, p, bytes) != DEFT_OK) {
        fail("%s: read: %s", what, deft_message(cx));
        free(p);
        return NULL;
    }
    return p;
}

/* t must hold exactly want. */
static void expect(const char *what, deft_tensor *t, deft_dtype dtype, const void *want, size_t n)
{
    void *const got = values(what, t, dtype, n);
    if (!got) return;
    char a[64], b[64];
    const size_t d = oracle_difference(dtype, want, got, n);
    if (d < n)
        fail("%s: element %zu of %zu is %s, expected %s", what, d, n,
             oracle_text(dtype, got, d, a, sizeof a), oracle_text(dtype, want, d, b, sizeof b));
    free(got);
}

static void expect_shape(const char *what, deft_tensor *t, deft_shape s)
{
    n_checks++;
    if (!t) {
        fail("%s: %s", what, deft_message(cx));
        deft_clear(cx);
        return;
    }
    const deft_shape g = deft_shape_get(t);
    char a[100], b[100];
    if (g.rank != s.rank || memcmp(g.dim, s.dim, s.rank * sizeof *s.dim))
        fail("%s: shape %s, expected %s", what, oracle_shape_text(&g, a, sizeof a),
             oracle_shape_text(&s, b, sizeof b));
}

static bool wanted(const char *name)
{
    return !filter || strstr(name, filter);
}

/* ---- transcendentals ---- */

typedef long double wide;

static wide w_sigmoid(wide x)
{
    return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}
static wide w_silu(wide x)
{
    if (x == -INFINITY) return -0.0L;
    return x < 0 ? x * expl(x) / (1 + expl(x)) : x / (1 + expl(-x));
}
static wide w_softplus(wide x)
{
    return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x)));
}
static wide w_gelu(wide x)
{
    if (x == -INFINITY) return -0.0L;
    return x / 2 * erfcl(-x * sqrtl(0.5L));
}
static wide w_rsqrt(wide x)
{
    return 1 / sqrtl(x);
}
static wide w_reciprocal(wide x)
{
    return 1 / x;
}

typedef struct real_row {
    const char *name;
    deft_tensor *(*f)(deft_tensor *);
    wide (*want)(wide);
    double ulp32, ulp64; /* what docs/accuracy.md states, rounded up */
    double low, high;    /* where most arguments lie */
} real_row;

static const real_row reals[] = {
    { "sqrt", deft_sqrt, sqrtl, 0.5, 0.5, 0, 100 },
    { "rsqrt", deft_rsqrt, w_rsqrt, 2, 2, 0, 100 },
    { "reciprocal", deft_reciprocal, w_reciprocal, 0.5, 0.5, -10, 10 },
    { "exp", deft_exp, expl, 2, 2, -220, 89 },
    { "exp2", deft_exp2, exp2l, 2, 2, -300, 129 },
    { "expm1", deft_expm1, expm1l, 2, 2, -20, 89 },
    { "log", deft_log, logl, 2, 2, 0, 4 },
    { "log2", deft_log2, log2l, 2, 2, 0, 4 },
    { "log10", deft_log10, log10l, 2, 2, 0, 4 },
    { "log1p", deft_log1p, log1pl, 2, 2, -1, 3 },
    { "sin", deft_sin, sinl, 2, 2, -40, 40 },
    { "cos", deft_cos, cosl, 2, 2, -40, 40 },
    { "tan", deft_tan, tanl, 2, 2, -40, 40 },
    { "asin", deft_asin, asinl, 2, 2, -1, 1 },
    { "acos", deft_acos, acosl, 2, 2, -1, 1 },
    { "atan", deft_atan, atanl, 2, 2, -9, 9 },
    { "sinh", deft_sinh, sinhl, 2, 2.5, -90, 90 },
    { "cosh", deft_cosh, coshl, 2, 2, -90, 90 },
    { "tanh", deft_tanh, tanhl, 2, 2, -10, 10 },
    { "asinh", deft_asinh, asinhl, 1, 2, -9, 9 },
    { "acosh", deft_acosh, acoshl, 1, 2, 1, 9 },
    { "atanh", deft_atanh, atanhl, 1, 2, -1, 1 },
    { "cbrt", deft_cbrt, cbrtl, 1, 1, -9, 9 },
    { "sigmoid", deft_sigmoid, w_sigmoid, 2, 2, -104, 20 },
    { "erf", deft_erf, erfl, 2, 2, -4, 4 },
    { "erfc", deft_erfc, erfcl, 2, 8, -4, 10 },
    { "gelu", deft_gelu, w_gelu, 2, 8, -14, 5 },
    { "silu", deft_silu, w_silu, 2.1, 2, -104, 20 },
    { "softplus", deft_softplus, w_softplus, 2, 2, -104, 20 },
};

/* The distance of got from want in units of the last place of want in the dtype. */
static double ulps(deft_dtype t, double got, wide want)
{
    const bool f32 = t == DEFT_F32;
    const wide top = f32 ? (wide)FLT_MAX : (wide)DBL_MAX;
    if (isnan(want)) return isnan(got) ? 0 : INFINITY;
    if (isnan(got)) return INFINITY;
    if (want == 0)
        return got == 0 && !signbit(got) == !signbit(want) ? 0 : got == 0 ? 1000 : INFINITY;
    const int least = f32 ? -149 : -1074, digits = f32 ? 24 : 53;
    int e;
    (void)frexpl(want, &e);
    if (isinf(want)) return isinf(got) && (got > 0) == (want > 0) ? 0 : INFINITY;
    int u = e - digits;
    if (u < least) u = least;
    const int highest = f32 ? 128 - 24 : 1024 - 53;
    if (u > highest) u = highest;
    if (isinf(got)) { /* counts as the number after the greatest */
        if ((got > 0) != (want > 0)) return INFINITY;
        const wide next = (got > 0 ? 1 : -1) * (top + ldexpl(1, highest));
        return fabsl(want) > fabsl(next) ? 0 : (double)fabsl(ldexpl(next - want, -u));
    }
    return (double)fabsl(ldexpl((wide)got - want, -u));
}

static double element(deft_dtype t, const void *p, size_t i)
{
    return t == DEFT_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

static void *arguments(deft_dtype t, size_t n, double low, double high, uint64_t seed)
{
    void *const x = oracle_alloc(n * deft_dtype_size(t));
    oracle_fill(t, x, n, seed, ORACLE_HARD);
    uint64_t s = seed;
    for (size_t i = n / 3; i < n; i++) {
        double u = low + (high - low) * ((double)(oracle_next(&s) >> 11) * 0x1p-53);
        if (i % 5 == 0) u *= 0x1p-12;
        if (t == DEFT_F32)
            ((float *)x)[i] = (float)u;
        else
            ((double *)x)[i] = u;
    }
    return x;
}

static void check_close(const char *name, deft_dtype t, deft_tensor *got_t, const wide *want,
                        const void *x, const void *y, size_t n, double most)
{
    void *const got = values(name, got_t, t, n);
    if (!got) return;
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = ulps(t, element(t, got, i), want[i]);
        if (d > worst) {
            worst = d;
            at = i;
        }
    }
    if (worst > most)
        fail("%s/%s: %.3g ulp at (%.17g%s%.17g): %.17g, expected %.20Lg", name, deft_dtype_name(t),
             worst, x ? element(t, x, at) : 0, y ? ", " : " ", y ? element(t, y, at) : 0,
             element(t, got, at), want[at]);
    free(got);
}

static void test_reals(void)
{
    const size_t n = quick ? 1200 : 30000;
    wide *const want = oracle_alloc(n * sizeof *want);
    for (size_t k = 0; k < LEN(reals); k++)
        for (int f64 = 0; f64 < 2; f64++) {
            const real_row *const r = &reals[k];
            const deft_dtype t = f64 ? DEFT_F64 : DEFT_F32;
            if (!wanted(r->name)) continue;
            void *const x = arguments(t, n, r->low, r->high, k + 1);
            for (size_t i = 0; i < n; i++) want[i] = r->want(element(t, x, i));
            check_close(r->name, t, r->f(from(t, shape1((int64_t)n), x)), want, x, NULL, n,
                        (f64 ? r->ulp64 : r->ulp32) + 0.01);
            free(x);
        }
    free(want);
}

static wide w_div(wide a, wide b)
{
    return a / b;
}

typedef struct real2_row {
    const char *name;
    deft_tensor *(*f)(deft_tensor *, deft_tensor *);
    wide (*want)(wide, wide);
    double ulp32, ulp64, low, high;
} real2_row;

static const real2_row reals2[] = {
    { "pow", (deft_pow), powl, 1, 1, 0, 9 },
    { "atan2", (deft_atan2), atan2l, 2, 2, -5, 5 },
    { "hypot", (deft_hypot), hypotl, 2, 2, -5, 5 },
    { "div", (deft_div), w_div, 0.5, 0.5, -9, 9 },
};

static void test_reals2(void)
{
    const size_t n = quick ? 3000 : 40000;
    wide *const want = oracle_alloc(n * sizeof *want);
    for (size_t k = 0; k < LEN(reals2); k++)
        for (int f64 = 0; f64 < 2; f64++) {
            const real2_row *const r = &reals2[k];
            const deft_dtype t = f64 ? DEFT_F64 : DEFT_F32;
            if (!wanted(r->name)) continue;
            void *const x = arguments(t, n, r->low, r->high, k + 100), *const y = arguments(
                                                                           t, n, -8, 8, k + 200);
            for (size_t i = 0; i < n; i++) want[i] = r->want(element(t, x, i), element(t, y, i));
            check_close(r->name, t,
                        r->f(from(t, shape1((int64_t)n), x), from(t, shape1((int64_t)n), y)), want,
                        x, y, n, (f64 ? r->ulp64 : r->ulp32) + 0.01);
            free(x);
            free(y);
        }
    free(want);
}

/* ---- exact elementwise ops, stamped per dtype ---- */

enum { EXACT_N = 900 };

static deft_tensor *one(deft_tensor *(*f)(deft_tensor *), deft_tensor *a)
{
    return f(a);
}
static deft_tensor *two(deft_tensor *(*f)(deft_tensor *, deft_tensor *), deft_tensor *a,
                        deft_tensor *b)
{
    return f(a, b);
}

#define EXACT1(T, name, deft_t, out_t, TOUT, expression)                                           \
    do {                                                                                           \
        if (!wanted(#name)) break;                                                                 \
        TOUT *const w = oracle_alloc(EXACT_N * sizeof(TOUT));                                      \
        for (size_t i = 0; i < EXACT_N; i++) {                                                     \
            const T a = x[i];                                                                      \
            w[i] = (TOUT)(expression);                                                             \
        }                                                                                          \
        char what[60];                                                                             \
        snprintf(what, sizeof what, "%s/%s", #name, deft_dtype_name(deft_t));                      \
        expect(what, one(deft_##name, tx), out_t, w, EXACT_N);                                     \
        free(w);                                                                                   \
    } while (0)
#define EXACT2(T, name, deft_t, out_t, TOUT, expression)                                           \
    do {                                                                                           \
        if (!wanted(#name)) break;                                                                 \
        TOUT *const w = oracle_alloc(EXACT_N * sizeof(TOUT));                                      \
        for (size_t i = 0; i < EXACT_N; i++) {                                                     \
            const T a = x[i], b = y[i];                                                            \
            w[i] = (TOUT)(expression);                                                             \
        }                                                                                          \
        char what[60];                                                                             \
        snprintf(what, sizeof what, "%s/%s", #name, deft_dtype_name(deft_t));                      \
        expect(what, two((deft_##name), tx, ty), out_t, w, EXACT_N);                               \
        free(w);                                                                                   \
    } while (0)

#define COMPARISONS(T, deft_t)                                                                     \
    EXACT2(T, eq, deft_t, DEFT_BOOL, uint8_t, a == b);                                             \
    EXACT2(T, ne, deft_t, DEFT_BOOL, uint8_t, a != b);                                             \
    EXACT2(T, lt, deft_t, DEFT_BOOL, uint8_t, a < b);                                              \
    EXACT2(T, le, deft_t, DEFT_BOOL, uint8_t, a <= b);                                             \
    EXACT2(T, gt, deft_t, DEFT_BOOL, uint8_t, a > b);                                              \
    EXACT2(T, ge, deft_t, DEFT_BOOL, uint8_t, a >= b);                                             \
    EXACT2(T, logical_and, deft_t, DEFT_BOOL, uint8_t, a != 0 && b != 0);                          \
    EXACT2(T, logical_or, deft_t, DEFT_BOOL, uint8_t, a != 0 || b != 0);                           \
    EXACT2(T, logical_xor, deft_t, DEFT_BOOL, uint8_t, (a != 0) != (b != 0));                      \
    EXACT1(T, logical_not, deft_t, DEFT_BOOL, uint8_t, a == 0);

/* Python's float floor division (CPython Objects/floatobject.c), but a zero remainder keeps a's
 * sign. */
static double floor_div64(double a, double b)
{
    if (b == 0) return a / b;
    const double mod = fmod(a, b);
    double div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
    if (div == 0) return copysign(0, a / b);
    double low = floor(div);
    if (div - low > 0.5) low += 1;
    return low;
}
static float floor_div32(float a, float b)
{
    if (b == 0) return a / b;
    const float mod = fmodf(a, b);
    float div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
    if (div == 0) return copysignf(0, a / b);
    float low = floorf(div);
    if (div - low > 0.5f) low += 1;
    return low;
}
static double remainder64(double a, double b)
{
    const double r = fmod(a, b);
    return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}
static float remainder32(float a, float b)
{
    const float r = fmodf(a, b);
    return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}

#define FLOATS(T, fn, deft_t, suffix, bits)                                                        \
    static void fn(void)                                                                           \
    {                                                                                              \
        T x[EXACT_N], y[EXACT_N];                                                                  \
        oracle_fill(deft_t, x, EXACT_N, 1, ORACLE_HARD);                                           \
        oracle_fill(deft_t, y, EXACT_N, 2, ORACLE_HARD);                                           \
        deft_tensor *const tx = from(deft_t, shape1(EXACT_N), x), *const ty = from(                \
                                                                      deft_t, shape1(EXACT_N), y); \
        EXACT1(T, neg, deft_t, deft_t, T, -a);                                                     \
        EXACT1(T, abs, deft_t, deft_t, T, fabs##suffix(a));                                        \
        EXACT1(T, sign, deft_t, deft_t, T, a > 0 ? 1 : a < 0 ? -1 : a);                            \
        EXACT1(T, square, deft_t, deft_t, T, a *a);                                                \
        EXACT1(T, relu, deft_t, deft_t, T, a > 0 || a != a ? a : 0);                               \
        EXACT1(T, floor, deft_t, deft_t, T, floor##suffix(a));                                     \
        EXACT1(T, ceil, deft_t, deft_t, T, ceil##suffix(a));                                       \
        EXACT1(T, trunc, deft_t, deft_t, T, trunc##suffix(a));                                     \
        EXACT1(T, round, deft_t, deft_t, T, nearbyint##suffix(a));                                 \
        EXACT1(T, sqrt, deft_t, deft_t, T, sqrt##suffix(a));                                       \
        EXACT1(T, reciprocal, deft_t, deft_t, T, 1 / a);                                           \
        EXACT1(T, isnan, deft_t, DEFT_BOOL, uint8_t, isnan(a));                                    \
        EXACT1(T, isinf, deft_t, DEFT_BOOL, uint8_t, isinf(a) != 0);                               \
        EXACT1(T, isfinite, deft_t, DEFT_BOOL, uint8_t, isfinite(a));                              \
        EXACT2(T, add, deft_t, deft_t, T, a + b);                                                  \
        EXACT2(T, sub, deft_t, deft_t, T, a - b);                                                  \
        EXACT2(T, mul, deft_t, deft_t, T, a *b);                                                   \
        EXACT2(T, div, deft_t, deft_t, T, a / b);                                                  \
        EXACT2(T, fmod, deft_t, deft_t, T, fmod##suffix(a, b));                                    \
        EXACT2(T, remainder, deft_t, deft_t, T, remainder##bits(a, b));                            \
        EXACT2(T, floor_div, deft_t, deft_t, T, floor_div##bits(a, b));                            \
        EXACT2(T, minimum, deft_t, deft_t, T, a < b || a != a ? a : b);                            \
        EXACT2(T, maximum, deft_t, deft_t, T, a > b || a != a ? a : b);                            \
        EXACT2(T, copysign, deft_t, deft_t, T, copysign##suffix(a, b));                            \
        COMPARISONS(T, deft_t)                                                                     \
    }
FLOATS(float, test_f32, DEFT_F32, f, 32)
FLOATS(double, test_f64, DEFT_F64, , 64)

/* The unsigned type of the same width makes arithmetic wrap. */
#define INTS(T, UT, fn, deft_t, LOW, width, is_signed)                                             \
    static void fn(void)                                                                           \
    {                                                                                              \
        T x[EXACT_N], y[EXACT_N];                                                                  \
        oracle_fill(deft_t, x, EXACT_N, 3, ORACLE_HARD);                                           \
        oracle_fill(deft_t, y, EXACT_N, 4, ORACLE_HARD);                                           \
        for (size_t i = 0; i < EXACT_N; i += 7)                                                    \
            y[i] = (T)((int64_t)(i / 7 % (width + 6)) - (is_signed ? 3 : 0));                      \
        x[0] = LOW, y[0] = (T)-1;                                                                  \
        deft_tensor *const tx = from(deft_t, shape1(EXACT_N), x), *const ty = from(                \
                                                                      deft_t, shape1(EXACT_N), y); \
        EXACT1(T, neg, deft_t, deft_t, T, 0 - (UT)a);                                              \
        EXACT1(T, abs, deft_t, deft_t, T, is_signed && (int64_t)a < 0 ? (UT)(0 - (UT)a) : (UT)a);  \
        EXACT1(T, sign, deft_t, deft_t, T, a > 0 ? 1 : a == 0 ? 0 : -1);                           \
        EXACT1(T, square, deft_t, deft_t, T, (UT)((uint64_t)a * (uint64_t)a));                     \
        EXACT1(T, relu, deft_t, deft_t, T, a > 0 ? a : 0);                                         \
        EXACT1(T, bitwise_not, deft_t, deft_t, T, ~a);                                             \
        EXACT2(T, add, deft_t, deft_t, T, (UT)a + (UT)b);                                          \
        EXACT2(T, sub, deft_t, deft_t, T, (UT)a - (UT)b);                                          \
        EXACT2(T, mul, deft_t, deft_t, T, (uint64_t)a *(uint64_t)b);                               \
        EXACT2(T, minimum, deft_t, deft_t, T, a < b ? a : b);                                      \
        EXACT2(T, maximum, deft_t, deft_t, T, a > b ? a : b);                                      \
        EXACT2(T, fmod, deft_t, deft_t, T, b == 0 ? a : is_signed && b == (T)-1 ? 0 : a % b);      \
        EXACT2(T, remainder, deft_t, deft_t, T, remainder_int(a, b, is_signed));                   \
        EXACT2(T, floor_div, deft_t, deft_t, T, floor_div_int(a, b, is_signed));                   \
        EXACT2(T, bitwise_and, deft_t, deft_t, T, a &b);                                           \
        EXACT2(T, bitwise_or, deft_t, deft_t, T, a | b);                                           \
        EXACT2(T, bitwise_xor, deft_t, deft_t, T, a ^ b);                                          \
        EXACT2(T, shift_left, deft_t, deft_t, T,                                                   \
               (int64_t)b < 0 || (int64_t)b >= width ? 0 : (uint64_t)a << b);                      \
        EXACT2(T, shift_right, deft_t, deft_t, T,                                                  \
               (int64_t)b < 0 || (int64_t)b >= width ? (a < (T)0 ? -1 : 0) : a >> b);              \
        COMPARISONS(T, deft_t)                                                                     \
    }

static int64_t floor_div_int(int64_t a, int64_t b, bool is_signed)
{
    if (b == 0) return 0;
    if (is_signed && b == -1) return (int64_t)(0 - (uint64_t)a);
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}
static int64_t remainder_int(int64_t a, int64_t b, bool is_signed)
{
    if (b == 0) return a;
    if (is_signed && b == -1) return 0;
    return a % b != 0 && (a % b < 0) != (b < 0) ? a % b + b : a % b;
}
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtype-limits"
#endif
INTS(int32_t, uint32_t, test_i32, DEFT_I32, INT32_MIN, 32, true)
INTS(int64_t, uint64_t, test_i64, DEFT_I64, INT64_MIN, 64, true)
INTS(uint8_t, uint8_t, test_u8, DEFT_U8, 0, 8, false)
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/* ---- cast ---- */

static void cast_one(deft_dtype to, deft_dtype t, const void *x, size_t i, void *out)
{
    int64_t k = 0;
    double d = 0;
    float f = 0;
    if (t == DEFT_F32)
        d = (double)((const float *)x)[i];
    else if (t == DEFT_F64)
        d = ((const double *)x)[i];
    else if (half_is(t))
        d = half_value(t, ((const uint16_t *)x)[i]);
    else
        k = int_ref_get(t, x, i);
    const bool is_real = is_float(t) || half_is(t);
    f = is_real ? (float)d : int_ref_float(t, k);
    const int64_t whole = is_real ? int_ref_of_double(to, d) : k;
    if (!is_real) d = int_ref_double(t, k);
    switch (to) {
    CASES_OF_FACES:
        break;
    case DEFT_BOOL:
    INT_REF_CASES:
        int_ref_put(to, out, i, whole);
        break;
    case DEFT_F32: ((float *)out)[i] = f; break;
    case DEFT_F64: ((double *)out)[i] = d; break;
    case DEFT_F16:
    case DEFT_BF16:
        ((uint16_t *)out)[i] = is_real         ? half_bits(to, d)
                               : t != DEFT_U64 ? half_bits_i(to, k)
                                               : half_bits_u(to, (uint64_t)k);
        break;
    }
}

static void test_cast(void)
{
    int64_t x[EXACT_N], w[EXACT_N];
    for (int t = 0; t < DF_N_RECORDED && wanted("cast"); t++)
        for (int to = 0; to < DF_N_RECORDED; to++) {
            char what[60];
            oracle_fill((deft_dtype)t, x, EXACT_N, 5, ORACLE_HARD);
            for (size_t i = 0; i < EXACT_N; i++) cast_one((deft_dtype)to, (deft_dtype)t, x, i, w);
            snprintf(what, sizeof what, "cast %s to %s", deft_dtype_name((deft_dtype)t),
                     deft_dtype_name((deft_dtype)to));
            deft_tensor *const tx = from((deft_dtype)t, shape1(EXACT_N), x);
            expect(what, deft_cast(tx, (deft_dtype)to), (deft_dtype)to, w, EXACT_N);
            /* deft_read converts as deft_cast does */
            int64_t r[EXACT_N];
            n_checks++;
            if (deft_read(tx, (deft_dtype)to, r, EXACT_N * deft_dtype_size((deft_dtype)to)) !=
                DEFT_OK)
                fail("read as %s: %s", deft_dtype_name((deft_dtype)to), deft_message(cx));
            else if (oracle_difference((deft_dtype)to, w, r, EXACT_N) < EXACT_N)
                fail("read of %s: converts otherwise than cast", what);
        }
}

/* ---- reductions: the order of base/limits.h ---- */

/* T op over x[0..n): blocks of 4096, 64 accumulators, folded, blocks joined by a binary counter. */
#define ORDERED(T, name, identity, OP, nothing)                                                    \
    static T name##_block(const T *x, size_t n)                                                    \
    {                                                                                              \
        T acc[64];                                                                                 \
        for (size_t j = 0; j < 64; j++) acc[j] = identity;                                         \
        for (size_t r = 0; r < n; r++) acc[r % 64] = OP(acc[r % 64], x[r]);                        \
        for (size_t h = 32; h; h /= 2)                                                             \
            for (size_t j = 0; j < h; j++) acc[j] = OP(acc[j], acc[j + h]);                        \
        return acc[0];                                                                             \
    }                                                                                              \
    static T name(const T *x, size_t n)                                                            \
    {                                                                                              \
        T stack[64];                                                                               \
        size_t top = 0;                                                                            \
        if (n == 0) return nothing;                                                                \
        for (size_t b = 0; b * 4096 < n; b++) {                                                    \
            stack[top++] = name##_block(x + b * 4096, n - b * 4096 < 4096 ? n - b * 4096 : 4096);  \
            for (size_t k = b + 1; k % 2 == 0; k /= 2) {                                           \
                stack[top - 2] = OP(stack[top - 2], stack[top - 1]);                               \
                top--;                                                                             \
            }                                                                                      \
        }                                                                                          \
        while (top > 1) {                                                                          \
            stack[top - 2] = OP(stack[top - 2], stack[top - 1]);                                   \
            top--;                                                                                 \
        }                                                                                          \
        return stack[0];                                                                           \
    }
#define PLUS(a, b) ((a) + (b))
#define TIMES(a, b) ((a) * (b))
ORDERED(float, sum32, -0.0f, PLUS, 0.0f)
ORDERED(double, sum64, -0.0, PLUS, 0.0)
ORDERED(float, prod32, 1, TIMES, 1)
ORDERED(double, prod64, 1, TIMES, 1)

static const size_t lengths[] = { 0,    1,    2,     3,     17,    63,    64,   65,
                                  127,  128,  129,   1000,  4095,  4096,  4097, 8191,
                                  8192, 8193, 12288, 12289, 20480, 28673, 40000 };

static deft_tensor *along(deft_tensor *t, int how, size_t n, deft_shape *s)
{
    /* the same elements in order, reduced as a vector, as rows, as columns, over two axes */
    *s = how == 0 ? shape1((int64_t)n) : how == 1 ? shape2(1, (int64_t)n) : shape2((int64_t)n, 1);
    return deft_reshape(t, *s);
}

static void test_sums(void)
{
    static float f[40000];
    static double d[40000];
    for (size_t k = 0; k < LEN(lengths) && wanted("sum"); k++) {
        const size_t n = lengths[k];
        if (quick && n > 13000) continue;
        for (int hard = 0; hard < 2; hard++) {
            oracle_fill(DEFT_F32, f, n, 50 + k, hard ? ORACLE_HARD : ORACLE_TAME);
            oracle_fill(DEFT_F64, d, n, 60 + k, hard ? ORACLE_HARD : ORACLE_TAME);
            if (hard) /* infinities and NaN would hide the order */
                for (size_t i = 0; i < n; i++) {
                    if (!isfinite(f[i]) || fabsf(f[i]) > 1e30f) f[i] = -0.0f;
                    if (!isfinite(d[i]) || fabs(d[i]) > 1e300) d[i] = -0.0;
                }
            float pf[40000 / 100];
            for (int how = 0; how < 3; how++) {
                char what[80];
                deft_shape s;
                deft_tensor *const tf = along(from(DEFT_F32, shape1((int64_t)n), f), how, n, &s);
                deft_tensor *const td = along(from(DEFT_F64, shape1((int64_t)n), d), how, n, &s);
                const deft_axes ax = how == 0   ? DEFT_ALL_AXES
                                     : how == 1 ? DEFT_AXES(1)
                                                : DEFT_AXES(0);
                const float wf = sum32(f, n);
                const double wd = sum64(d, n);
                snprintf(what, sizeof what, "sum of %zu, form %d", n, how);
                expect(what, deft_sum(tf, ax, 0), DEFT_F32, &wf, 1);
                expect(what, deft_sum(td, ax, 1), DEFT_F64, &wd, 1);
                /* a prologue and an epilogue change nothing of the order */
                const double we = (wd + 1) * 2;
                expect("2 (sum + 1)",
                       deft_mul(deft_add(deft_sum(deft_neg(deft_neg(td)), ax, 0), 1.0), 2.0),
                       DEFT_F64, &we, 1);
                const float mf = wf / (float)n;
                snprintf(what, sizeof what, "mean of %zu, form %d", n, how);
                expect(what, deft_mean(tf, ax, 0), DEFT_F32, &mf, 1);
                if (!hard) {
                    for (size_t i = 0; i < n; i++) f[i] = 1 + f[i] * 0x1p-14f;
                    deft_tensor *const tp =
                        along(from(DEFT_F32, shape1((int64_t)n), f), how, n, &s);
                    const float wp = prod32(f, n);
                    snprintf(what, sizeof what, "prod of %zu, form %d", n, how);
                    expect(what, deft_prod(tp, ax, 0), DEFT_F32, &wp, 1);
                    for (size_t i = 0; i < n; i++) d[i] = 1 + d[i] * 0x1p-14;
                    const double wq = prod64(d, n);
                    expect(
                        what,
                        deft_prod(along(from(DEFT_F64, shape1((int64_t)n), d), how, n, &s), ax, 0),
                        DEFT_F64, &wq, 1);
                    oracle_fill(DEFT_F32, f, n, 50 + k, ORACLE_TAME);
                    oracle_fill(DEFT_F64, d, n, 60 + k, ORACLE_TAME);
                }
                (void)pf;
            }
        }
    }
}

/* Many columns side by side, of which vectors take as many as there are registers. A column is part
 * of one random sequence, so that each has elements of its own. */
static void test_columns(void)
{
    enum { COLUMNS = 300, ROWS = 8300 };
    static const size_t rows[] = { 63, 64, 65, 100, 1000, 4096, 4097, 8200, ROWS };
    static float seq[ROWS + COLUMNS], f[ROWS * COLUMNS], want[COLUMNS], both[COLUMNS], buf[ROWS];
    static double d[ROWS * COLUMNS], want_d[COLUMNS], buf_d[ROWS];
    oracle_fill(DEFT_F32, seq, LEN(seq), 77, ORACLE_TAME);
    for (size_t k = 0; k < LEN(rows) && wanted("columns"); k++) {
        const size_t n = rows[k];
        char what[80];
        if (quick && n > 1000) continue;
        for (size_t j = 0; j < COLUMNS; j++) {
            for (size_t r = 0; r < n; r++)
                buf_d[r] = d[r * COLUMNS + j] = buf[r] = f[r * COLUMNS + j] = seq[r + j];
            want[j] = sum32(buf, n);
            want_d[j] = sum64(buf_d, n);
            for (size_t r = 0; r < n; r++) buf[r] = buf[r] * buf[r];
            both[j] = want[j] + sum32(buf, n);
        }
        for (int64_t c = COLUMNS; c > 100; c -= 43) { /* whole chunks, and some vectors more */
            const deft_shape s = shape2((int64_t)n, COLUMNS);
            deft_tensor *const tf = deft_slice(from(DEFT_F32, s, f), DEFT_FULL, DEFT_R(0, c));
            deft_tensor *const td = deft_slice(from(DEFT_F64, s, d), DEFT_FULL, DEFT_R(0, c));
            snprintf(what, sizeof what, "sums of %d columns of %zu", (int)c, n);
            expect(what, deft_sum(tf, DEFT_AXES(0), 0), DEFT_F32, want, (size_t)c);
            expect(what, deft_sum(td, DEFT_AXES(0), 0), DEFT_F64, want_d, (size_t)c);
            deft_tensor *same = tf; /* by a long body */
            for (int i = 0; i < 40; i++) same = deft_sub(deft_mul(same, 2.0), same);
            expect(what, deft_sum(same, DEFT_AXES(0), 0), DEFT_F32, want, (size_t)c);
            deft_tensor *const squares = deft_sum(deft_mul(tf, tf), DEFT_AXES(0), 0);
            snprintf(what, sizeof what, "two sums of %d columns of %zu", (int)c, n);
            expect(what, deft_add(deft_sum(tf, DEFT_AXES(0), 0), squares), DEFT_F32, both,
                   (size_t)c);
        }
    }
}

/* Rows, columns, middles: each result over its own elements in row-major order of the reduced axes.
 */
static void test_axes(void)
{
    enum { A = 7, B = 67, C = 19, N = A * B * C };
    static float x[N], want[N], buf[N];
    static int64_t index[N];
    if (!wanted("axes")) return;
    oracle_fill(DEFT_F32, x, N, 9, ORACLE_TAME);
    deft_tensor *const t = from(DEFT_F32, shape3(A, B, C), x);
    const size_t dim[3] = { A, B, C }, stride[3] = { B * C, C, 1 };
    for (unsigned mask = 0; mask < 8; mask++) {
        deft_axes axes = { 0 };
        for (int i = 0; i < 3; i++)
            if (mask >> i & 1) axes.at[axes.n++] = i;
        float least[N], most[N];
        int64_t arg[N];
        size_t n_out = 0;
        size_t o[3];
#define KEPT(i) (mask >> (i)&1 ? 1 : dim[i])
#define GONE(i) (mask >> (i)&1 ? dim[i] : 1)
        for (o[0] = 0; o[0] < KEPT(0); o[0]++)
            for (o[1] = 0; o[1] < KEPT(1); o[1]++)
                for (o[2] = 0; o[2] < KEPT(2); o[2]++) {
                    size_t n = 0, best = 0, r[3];
                    for (r[0] = 0; r[0] < GONE(0); r[0]++)
                        for (r[1] = 0; r[1] < GONE(1); r[1]++)
                            for (r[2] = 0; r[2] < GONE(2); r[2]++) {
                                size_t at = 0;
                                for (int i = 0; i < 3; i++) at += (o[i] + r[i]) * stride[i];
                                buf[n++] = x[at];
                            }
                    want[n_out] = sum32(buf, n);
                    least[n_out] = most[n_out] = buf[0];
                    for (size_t i = 0; i < n; i++) {
                        if (buf[i] < least[n_out]) least[n_out] = buf[i];
                        if (buf[i] > most[n_out]) most[n_out] = buf[i], best = i;
                    }
                    arg[n_out++] = (int64_t)best;
                }
        char what[60];
        snprintf(what, sizeof what, "sum over axes mask %u", mask);
        expect(what, deft_sum(t, axes, 0), DEFT_F32, want, n_out);
        snprintf(what, sizeof what, "min over axes mask %u", mask);
        expect(what, deft_min(t, axes, 1), DEFT_F32, least, n_out);
        snprintf(what, sizeof what, "max over axes mask %u", mask);
        expect(what, deft_max(t, axes, 0), DEFT_F32, most, n_out);
        snprintf(what, sizeof what, "argmax over axes mask %u", mask);
        expect(what, deft_argmax(t, axes, 0), DEFT_I64, arg, n_out);
        /* the transposed operand: reduced elements come in the order of the operand's axes */
        if (mask == 1) {
            snprintf(what, sizeof what, "sum over the last axis of a permuted tensor");
            expect(what, deft_sum(deft_permute(t, DEFT_AXES(1, 2, 0)), DEFT_AXES(2), 0), DEFT_F32,
                   want, n_out);
        }
    }
    (void)index;
    /* special values */
    const float s[] = { 3, NAN, -INFINITY, -0.0f, 0.0f, 7, NAN };
    const float nan = NAN;
    const int64_t first_nan = 1, five = 5, two_ = 2;
    deft_tensor *const ts = from(DEFT_F32, shape1(7), s);
    expect("min with NaN", deft_min(ts, DEFT_ALL_AXES, 0), DEFT_F32, &nan, 1);
    expect("max with NaN", deft_max(ts, DEFT_ALL_AXES, 0), DEFT_F32, &nan, 1);
    expect("argmin with NaN", deft_argmin(ts, DEFT_ALL_AXES, 0), DEFT_I64, &first_nan, 1);
    expect("argmax with NaN", deft_argmax(ts, DEFT_ALL_AXES, 0), DEFT_I64, &first_nan, 1);
    deft_tensor *const from2 = deft_slice(ts, DEFT_R(2, 6)); /* -inf -0 0 7 */
    const int64_t zero = 0, three = 3;
    expect("argmin of -inf", deft_argmin(from2, DEFT_ALL_AXES, 0), DEFT_I64, &zero, 1);
    expect("argmax of 7", deft_argmax(from2, DEFT_ALL_AXES, 0), DEFT_I64, &three, 1);
    (void)five, (void)two_;
}

static void test_int_reductions(void)
{
    enum { N = 10000 };
    static int32_t x[N];
    static int64_t y[N], run[N];
    static uint8_t b[N], z[N];
    if (!wanted("int_reductions")) return;
    oracle_fill(DEFT_I32, x, N, 5, ORACLE_HARD);
    oracle_fill(DEFT_I64, y, N, 6, ORACLE_HARD);
    oracle_fill(DEFT_BOOL, b, N, 7, ORACLE_HARD);
    uint64_t s = 0, sy = 0, p = 1, pb = 0;
    int32_t low = x[0], high = x[0];
    for (size_t i = 0; i < N; i++) {
        s += (uint64_t)(int64_t)x[i];
        sy += (uint64_t)y[i];
        run[i] = (int64_t)s;
        p *= (uint64_t)(int64_t)(x[i] | 1);
        pb += b[i];
        if (x[i] < low) low = x[i];
        if (x[i] > high) high = x[i];
    }
    for (size_t i = 0; i < N; i++) z[i] = 0;
    deft_tensor *const tx = from(DEFT_I32, shape1(N), x);
    expect("sum of i32", deft_sum(tx, DEFT_ALL_AXES, 0), DEFT_I64, &s, 1);
    expect("sum of i64", deft_sum(from(DEFT_I64, shape1(N), y), DEFT_ALL_AXES, 0), DEFT_I64, &sy,
           1);
    expect("prod of i32", deft_prod(deft_bitwise_or(tx, 1), DEFT_ALL_AXES, 0), DEFT_I64, &p, 1);
    expect("sum of bool", deft_sum(from(DEFT_BOOL, shape1(N), b), DEFT_ALL_AXES, 0), DEFT_I64, &pb,
           1);
    expect("min of i32", deft_min(tx, DEFT_ALL_AXES, 0), DEFT_I32, &low, 1);
    expect("max of i32", deft_max(tx, DEFT_ALL_AXES, 0), DEFT_I32, &high, 1);
    expect("cumsum of i32", deft_cumsum(tx, 0), DEFT_I64, run, N);
    const uint8_t yes = 1, no = 0;
    expect("any of zeros", deft_any(from(DEFT_U8, shape1(N), z), DEFT_ALL_AXES, 0), DEFT_BOOL, &no,
           1);
    z[N - 1] = 9;
    expect("any of one", deft_any(from(DEFT_U8, shape1(N), z), DEFT_ALL_AXES, 0), DEFT_BOOL, &yes,
           1);
    expect("all of one", deft_all(from(DEFT_U8, shape1(N), z), DEFT_ALL_AXES, 0), DEFT_BOOL, &no,
           1);
    deft_tensor *const none = deft_zeros(cx, shape2(0, 3), DEFT_F32);
    const uint8_t no3[3] = { 0, 0, 0 }, yes3[3] = { 1, 1, 1 };
    const float zero3[3] = { 0, 0, 0 }, one3[3] = { 1, 1, 1 }, nan3[3] = { NAN, NAN, NAN };
    expect("sum of nothing", deft_sum(none, DEFT_AXES(0), 0), DEFT_F32, zero3, 3);
    expect("prod of nothing", deft_prod(none, DEFT_AXES(0), 0), DEFT_F32, one3, 3);
    expect("mean of nothing", deft_mean(none, DEFT_AXES(0), 0), DEFT_F32, nan3, 3);
    expect("any of nothing", deft_any(none, DEFT_AXES(0), 0), DEFT_BOOL, no3, 3);
    expect("all of nothing", deft_all(none, DEFT_AXES(0), 0), DEFT_BOOL, yes3, 3);
}

static void test_cumsum(void)
{
    enum { R = 37, C = 130 };
    static float x[R * C], w[R * C];
    if (!wanted("cumsum")) return;
    oracle_fill(DEFT_F32, x, R * C, 15, ORACLE_TAME);
    deft_tensor *const t = from(DEFT_F32, shape2(R, C), x);
    for (size_t i = 0; i < R; i++)
        for (size_t j = 0; j < C; j++)
            w[i * C + j] = j ? w[i * C + j - 1] + x[i * C + j] : x[i * C + j];
    expect("cumsum of rows", deft_cumsum(t, 1), DEFT_F32, w, R * C);
    for (size_t i = 0; i < R; i++)
        for (size_t j = 0; j < C; j++)
            w[i * C + j] = i ? w[(i - 1) * C + j] + x[i * C + j] : x[i * C + j];
    expect("cumsum of columns", deft_cumsum(t, 0), DEFT_F32, w, R * C);
    for (size_t i = 0; i < R; i++)
        for (size_t j = 0; j < C; j++)
            w[i * C + j] = j ? w[i * C + j - 1] * x[i * C + j] : x[i * C + j];
    expect("cumprod of rows", deft_cumprod(t, 1), DEFT_F32, w, R * C);
    for (size_t i = 0; i < R; i++)
        for (size_t j = 0; j < C; j++)
            w[i * C + j] = i ? w[(i - 1) * C + j] * x[i * C + j] : x[i * C + j];
    expect("cumprod of columns", deft_cumprod(t, 0), DEFT_F32, w, R * C);
    for (size_t i = 0; i < R; i++)
        for (size_t j = 0; j < C; j++)
            w[i * C + j] = j ? fmaxf(w[i * C + j - 1], x[i * C + j]) : x[i * C + j];
    expect("cummax of rows", deft_cummax(t, 1), DEFT_F32, w, R * C);
    for (size_t i = 0; i < R; i++)
        for (size_t j = 0; j < C; j++)
            w[i * C + j] = i ? fminf(w[(i - 1) * C + j], x[i * C + j]) : x[i * C + j];
    expect("cummin of columns", deft_cummin(t, 0), DEFT_F32, w, R * C);
    const float odd[5] = { 1, -2, NAN, 9, -9 }, odd_max[5] = { 1, 1, NAN, NAN, NAN };
    expect("cummax with NaN", deft_cummax(from(DEFT_F32, shape1(5), odd), 0), DEFT_F32, odd_max, 5);
    const int32_t whole[4] = { 3, -7, 5, 2 }, least[4] = { 3, -7, -7, -7 };
    const int64_t products[4] = { 3, -21, -105, -210 };
    deft_tensor *const i32 = from(DEFT_I32, shape1(4), whole);
    expect("cummin of i32", deft_cummin(i32, 0), DEFT_I32, least, 4);
    expect("cumprod of i32", deft_cumprod(i32, 0), DEFT_I64, products, 4);
    const float z[3] = { -0.0f, -0.0f, 1 };
    expect("cumsum starts from its first element", deft_cumsum(from(DEFT_F32, shape1(3), z), 0),
           DEFT_F32, z, 3);
}

static void test_sorting(void)
{
    const float x[6] = { 2, -1, NAN, 2, -0.0f, 5 }, up[6] = { -1, -0.0f, 2, 2, 5, NAN };
    const int64_t at[6] = { 1, 4, 0, 3, 5, 2 }, down[6] = { 2, 5, 0, 3, 4, 1 };
    const int64_t where[8] = { 0, 0, 0, 1, 0, 2, 1, 0 }, n = 5, values = 5;
    const float odd[4] = { -1, 2, 5, 0 }, once[6] = { -1, -0.0f, 2, 5, NAN, 0 };
    const bool is[6] = { false, true, false, true, false, true };
    if (!wanted("sort")) return;
    deft_tensor *const t = from(DEFT_F32, shape1(6), x), *count;
    expect("sort", deft_sort(t, 0, 0), DEFT_F32, up, 6);
    expect("argsort", deft_argsort(t, 0, 0), DEFT_I64, at, 6);
    expect("argsort down", deft_argsort(t, 0, 1), DEFT_I64, down, 6);
    deft_tensor *least;
    expect("topk", deft_topk(t, 3, 0, 1, NULL), DEFT_F32, (const float[]){ NAN, 5, 2 }, 3);
    expect("topk least", deft_topk(t, 4, 0, 0, &least), DEFT_F32, up, 4);
    expect("topk's indices", least, DEFT_I64, at, 4);
    expect("nonzero", deft_nonzero(from(DEFT_F32, shape2(2, 3), x), 4, &count), DEFT_I64, where, 8);
    expect("nonzero's count", count, DEFT_I64, &n, 1);
    expect("compress", deft_compress(t, from(DEFT_BOOL, shape1(6), is), 4, NULL), DEFT_F32, odd, 4);
    expect("unique", deft_unique(t, 6, &count), DEFT_F32, once, 6);
    expect("unique's count", count, DEFT_I64, &values, 1);
}

static void test_var(void)
{
    enum { R = 5, C = 100 };
    static float x[R * C];
    float w[R], m[R];
    if (!wanted("var")) return;
    oracle_fill(DEFT_F32, x, R * C, 16, ORACLE_TAME);
    for (size_t i = 0; i < R; i++) {
        float sq[C];
        m[i] = sum32(x + i * C, C) / C;
        for (size_t j = 0; j < C; j++) sq[j] = (x[i * C + j] - m[i]) * (x[i * C + j] - m[i]);
        w[i] = sum32(sq, C) / (C - 1);
    }
    deft_tensor *const t = from(DEFT_F32, shape2(R, C), x);
    expect("mean of rows", deft_mean(t, DEFT_AXES(1), 0), DEFT_F32, m, R);
    expect("var of rows", deft_var(t, DEFT_AXES(-1), 0, 1), DEFT_F32, w, R);
    const float all = sum32(x, R * C) / (R * C);
    expect("mean of all", deft_mean(t, DEFT_ALL_AXES, 0), DEFT_F32, &all, 1);
    const uint8_t bytes[4] = { 1, 2, 3, 5 };
    const float q = 2.75f;
    expect("mean of u8", deft_mean(from(DEFT_U8, shape1(4), bytes), DEFT_ALL_AXES, 0), DEFT_F32, &q,
           1);
}

/* ---- views, joining, indexing: a model of source indices ---- */

enum { MODEL = 5000 };
typedef struct model {
    deft_shape s;
    int32_t at[MODEL]; /* index into the root, -1: filled in */
} model;

/* Row-major coordinates of element i. */
static void coordinates(const deft_shape *s, int64_t i, int64_t *c)
{
    for (uint32_t k = s->rank; k-- > 0;) {
        c[k] = i % s->dim[k];
        i /= s->dim[k];
    }
}
static int64_t offset(const deft_shape *s, const int64_t *c)
{
    int64_t o = 0;
    for (uint32_t k = 0; k < s->rank; k++) o = o * s->dim[k] + c[k];
    return o;
}

/* out[c] = in[f(c)]; f maps coordinates, false: filled in. */
typedef bool map_fn(const int64_t *c, int64_t *in, const void *user);
static void remap(model *m, const deft_shape *s, map_fn *f, const void *user)
{
    static model out;
    out.s = *s;
    const int64_t n = oracle_numel(s);
    for (int64_t i = 0; i < n; i++) {
        int64_t c[DEFT_MAX_RANK], in[DEFT_MAX_RANK];
        coordinates(s, i, c);
        out.at[i] = f(c, in, user) ? m->at[offset(&m->s, in)] : -1;
    }
    *m = out;
}

typedef struct view_args {
    const deft_shape *in;
    const deft_range *range;
    bool gone[DEFT_MAX_RANK];
    const int32_t *order;
    uint32_t a, b;
    int64_t k;
} view_args;

static bool by_range(const int64_t *c, int64_t *in, const void *user)
{
    const view_args *const v = user;
    uint32_t k = 0;
    for (uint32_t i = 0; i < v->in->rank; i++)
        in[i] = v->range[i].step == 0 ? v->range[i].start
                                      : v->range[i].start + c[k++] * v->range[i].step;
    return true;
}
static bool by_order(const int64_t *c, int64_t *in, const void *user)
{
    const view_args *const v = user;
    for (uint32_t i = 0; i < v->in->rank; i++) in[v->order[i]] = c[i];
    return true;
}
static bool by_expand(const int64_t *c, int64_t *in, const void *user)
{
    const view_args *const v = user;
    for (uint32_t i = 0; i < v->in->rank; i++) in[i] = v->in->dim[i] == 1 ? 0 : c[i + v->a];
    return true;
}
static bool by_diagonal(const int64_t *c, int64_t *in, const void *user)
{
    const view_args *const v = user;
    uint32_t k = 0;
    const int64_t d = c[v->in->rank - 2];
    for (uint32_t i = 0; i < v->in->rank; i++)
        in[i] = i == v->a   ? d + (v->k < 0 ? -v->k : 0)
                : i == v->b ? d + (v->k > 0 ? v->k : 0)
                            : c[k++];
    return true;
}

static uint64_t rnd;
static unsigned roll_dice(unsigned n)
{
    return (unsigned)(oracle_next(&rnd) >> 33) % n;
}

/* One random view of t and of its model; returns the new tensor. */
static deft_tensor *random_view(deft_tensor *t, model *m, char *text, size_t n)
{
    const deft_shape in = m->s;
    deft_shape out = in;
    view_args v = { .in = &in };
    switch (roll_dice(8)) {
    case 0: {
        deft_range r[DEFT_MAX_RANK], real[DEFT_MAX_RANK];
        out.rank = 0;
        for (uint32_t i = 0; i < in.rank; i++) {
            const int64_t d = in.dim[i];
            const unsigned form = roll_dice(6);
            int64_t count = d;
            r[i] = real[i] = DEFT_FULL;
            if (form == 0 && d > 0) {
                const int64_t at = roll_dice((unsigned)d);
                r[i] = DEFT_AT(roll_dice(2) ? at : at - d);
                real[i] = DEFT_AT(at);
                count = -1;
            } else if (form == 1) {
                const int64_t a = roll_dice((unsigned)d + 1),
                              b = a + roll_dice((unsigned)(d - a) + 1);
                r[i] = real[i] = DEFT_R(a, b);
                if (a && a < d && roll_dice(2)) r[i].start = a - d;
                if (b < d && roll_dice(2)) r[i].stop = b - d;
                count = b - a;
            } else if (form == 2) {
                const int64_t s = 2 + roll_dice(3), a = roll_dice((unsigned)d + 1);
                r[i] = real[i] = DEFT_RS(a, DEFT_END, s);
                count = (d - a + s - 1) / s;
            } else if (form == 3 && d > 0) {
                const int64_t s = 1 + roll_dice(3), a = roll_dice((unsigned)d);
                r[i] = real[i] = DEFT_RS(a, DEFT_END, -s);
                count = a / s + 1;
            }
            if (count >= 0) out.dim[out.rank++] = count;
        }
        v.range = real;
        snprintf(text, n, "slice");
        t = deft_slice_n(t, in.rank, r);
        remap(m, &out, by_range, &v);
        return t;
    }
    case 1: {
        deft_axes order = { .n = in.rank };
        for (uint32_t i = 0; i < in.rank; i++) order.at[i] = (int32_t)i;
        for (uint32_t i = in.rank; i > 1; i--) {
            const unsigned k = roll_dice(i);
            const int32_t x = order.at[i - 1];
            order.at[i - 1] = order.at[k];
            order.at[k] = x;
        }
        for (uint32_t i = 0; i < in.rank; i++) out.dim[i] = in.dim[order.at[i]];
        v.order = order.at;
        snprintf(text, n, "permute");
        t = deft_permute(t, order);
        remap(m, &out, by_order, &v);
        return t;
    }
    case 2: {
        const int64_t all = oracle_numel(&in);
        if (all % 2 == 0)
            out = shape2(all / 2, 2);
        else
            out = roll_dice(2) ? shape1(all) : shape3(1, all, 1);
        snprintf(text, n, "reshape");
        m->s = out;
        return deft_reshape(t, out);
    }
    case 3: {
        if (in.rank > 3 || oracle_numel(&in) * 3 > MODEL) return t;
        v.a = 1;
        memmove(out.dim + 1, out.dim, in.rank * sizeof *out.dim);
        out.dim[0] = roll_dice(4);
        out.rank++;
        for (uint32_t i = 0; i < in.rank; i++)
            if (in.dim[i] == 1 && oracle_numel(&out) * 3 <= MODEL) out.dim[i + 1] = roll_dice(4);
        snprintf(text, n, "expand");
        t = deft_expand(t, out);
        remap(m, &out, by_expand, &v);
        return t;
    }
    case 4: {
        if (in.rank < 2) return t;
        v.a = roll_dice(in.rank);
        v.b = (v.a + 1 + roll_dice(in.rank - 1)) % in.rank;
        v.k = (int64_t)roll_dice(7) - 3;
        out.rank = 0;
        for (uint32_t i = 0; i < in.rank; i++)
            if (i != v.a && i != v.b) out.dim[out.rank++] = in.dim[i];
        int64_t rows = in.dim[v.a] - (v.k < 0 ? -v.k : 0), cols = in.dim[v.b] - (v.k > 0 ? v.k : 0);
        const int64_t d = rows < cols ? rows : cols;
        out.dim[out.rank++] = d < 0 ? 0 : d;
        snprintf(text, n, "diagonal");
        t = deft_diagonal(t, v.k, (int)v.a, (int)v.b);
        remap(m, &out, by_diagonal, &v);
        return t;
    }
    case 5: {
        if (in.rank > 4) return t;
        const unsigned at = roll_dice(in.rank + 1);
        memmove(out.dim + at + 1, out.dim + at, (in.rank - at) * sizeof *out.dim);
        out.dim[at] = 1;
        out.rank++;
        m->s = out;
        snprintf(text, n, "unsqueeze");
        return deft_unsqueeze(t, (int)at);
    }
    case 6: {
        out.rank = 0;
        for (uint32_t i = 0; i < in.rank; i++)
            if (in.dim[i] != 1) out.dim[out.rank++] = in.dim[i];
        m->s = out;
        snprintf(text, n, "squeeze");
        return deft_squeeze(t, DEFT_ALL_AXES);
    }
    default: {
        deft_range r[DEFT_MAX_RANK];
        deft_axes axes = { 0 };
        for (uint32_t i = 0; i < in.rank; i++) {
            const bool f = roll_dice(2);
            r[i] = f ? (deft_range){ in.dim[i] - 1, 0, -1 } : (deft_range){ 0, 0, 1 };
            if (f) axes.at[axes.n++] = (int32_t)i;
        }
        v.range = r;
        snprintf(text, n, "flip");
        t = deft_flip(t, axes);
        remap(m, &out, by_range, &v);
        return t;
    }
    }
}

static deft_shape random_shape(void)
{
    static const int64_t dims[] = { 1, 2, 3, 5, 8, 17, 4, 0 };
    deft_shape s = { .rank = roll_dice(4) };
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = dims[roll_dice(roll_dice(6) ? 7 : 8)];
    return s;
}

static void test_views(void)
{
    if (!wanted("views")) return;
    static model m;
    static int32_t root[MODEL], want[MODEL];
    rnd = 4711;
    for (int round = 0; round < (quick ? 300 : 3000); round++) {
        const deft_scope scope = deft_scope_begin(cx);
        const deft_shape s = random_shape();
        const int64_t n = oracle_numel(&s);
        for (int64_t i = 0; i < n; i++) root[i] = (int32_t)(i * 7 + 1);
        m.s = s;
        for (int64_t i = 0; i < n; i++) m.at[i] = (int32_t)i;
        deft_tensor *const base = from(DEFT_I32, s, root);
        deft_tensor *t = base;
        char text[300], one_text[40], where[100];
        size_t at = (size_t)snprintf(text, sizeof text, "round %d of %s:", round,
                                     oracle_shape_text(&s, where, sizeof where));
        const bool pending = roll_dice(2);
        if (pending) t = deft_add(t, 1);
        bool expanded = false;
        for (unsigned k = 1 + roll_dice(4); k-- && t;) {
            one_text[0] = 0;
            t = random_view(t, &m, one_text, sizeof one_text);
            expanded |= !strcmp(one_text, "expand");
            at += (size_t)snprintf(text + at, sizeof text - at, " %s", one_text);
        }
        const int64_t count = oracle_numel(&m.s);
        for (int64_t i = 0; i < count; i++) want[i] = root[m.at[i]] + pending;
        const bool read_first = roll_dice(2);
        expect_shape(text, t, m.s);
        if (read_first) expect(text, t, DEFT_I32, want, (size_t)count);
        if (t && !pending && t != base && !expanded) {
            /* write through it: every place once */
            int32_t v[MODEL];
            for (int64_t i = 0; i < count; i++) v[i] = (int32_t)(-1000 - i);
            deft_tensor *const before = deft_add(base, 5);
            deft_tensor *const copy = deft_mul(t, 1);
            char what[400];
            snprintf(what, sizeof what, "assign through (%s)%s", text,
                     read_first ? " after a read" : "");
            n_checks++;
            if (!deft_assign(t, from(DEFT_I32, m.s, v))) {
                fail("%s: %s", what, deft_message(cx));
                deft_clear(cx);
            } else {
                for (int64_t i = 0; i < n; i++) root[i] += 5;
                expect("a pending reader of the old value", before, DEFT_I32, root, (size_t)n);
                expect("a pending reader of the old view", copy, DEFT_I32, want, (size_t)count);
                for (int64_t i = 0; i < n; i++) root[i] -= 5;
                for (int64_t i = 0; i < count; i++) root[m.at[i]] = v[i];
                expect(what, base, DEFT_I32, root, (size_t)n);
                expect(what, t, DEFT_I32, v, (size_t)count);
                /* and once more through the same view, with a number */
                n_checks++;
                if (roll_dice(2) && !deft_assign(t, 77)) {
                    fail("second %s: %s", what, deft_message(cx));
                    deft_clear(cx);
                } else if (count) {
                    int32_t one_value = 0;
                    deft_tensor *const flat = deft_slice(deft_flatten(t), DEFT_AT(0));
                    if (deft_item(flat, &one_value) != DEFT_OK)
                        fail("%s: item: %s", what, deft_message(cx));
                    else if (one_value == 77)
                        for (int64_t i = 0; i < count; i++) root[m.at[i]] = 77;
                    expect(what, base, DEFT_I32, root, (size_t)n);
                }
            }
        } else if (t && !read_first) {
            expect(text, t, DEFT_I32, want, (size_t)count);
        }
        if (deft_scope_end(scope) != DEFT_OK) fail("%s: scope_end: %s", text, deft_message(cx));
    }
}

typedef struct join_args {
    const deft_shape *in;
    uint32_t axis;
    int64_t before[DEFT_MAX_RANK], shift;
    deft_pad_mode mode;
} join_args;

static bool by_pad(const int64_t *c, int64_t *in, const void *user)
{
    const join_args *const j = user;
    for (uint32_t i = 0; i < j->in->rank; i++) {
        const int64_t n = j->in->dim[i];
        int64_t k = c[i] - j->before[i];
        if (k < 0 || k >= n) {
            switch (j->mode) {
            case DEFT_PAD_CONSTANT: return false;
            case DEFT_PAD_EDGE: k = k < 0 ? 0 : n - 1; break;
            case DEFT_PAD_REFLECT: k = k < 0 ? -k : 2 * (n - 1) - k; break;
            case DEFT_PAD_WRAP: k = k < 0 ? k + n : k - n; break;
            }
        }
        in[i] = k;
    }
    return true;
}
static bool by_roll(const int64_t *c, int64_t *in, const void *user)
{
    const join_args *const j = user;
    for (uint32_t i = 0; i < j->in->rank; i++) {
        const int64_t n = j->in->dim[i];
        in[i] = i == j->axis ? (((c[i] - j->shift) % n) + n) % n : c[i];
    }
    return true;
}
static bool by_tril(const int64_t *c, int64_t *in, const void *user)
{
    const join_args *const j = user;
    const uint32_t r = j->in->rank;
    for (uint32_t i = 0; i < r; i++) in[i] = c[i];
    return c[r - 1] - c[r - 2] <= j->shift;
}
static bool by_triu(const int64_t *c, int64_t *in, const void *user)
{
    const join_args *const j = user;
    const uint32_t r = j->in->rank;
    for (uint32_t i = 0; i < r; i++) in[i] = c[i];
    return c[r - 1] - c[r - 2] >= j->shift;
}

static void expect_model(const char *what, deft_tensor *t, const model *m, const int32_t *root,
                         int32_t fill)
{
    static int32_t want[MODEL];
    const int64_t n = oracle_numel(&m->s);
    for (int64_t i = 0; i < n; i++) want[i] = m->at[i] < 0 ? fill : root[m->at[i]];
    expect_shape(what, t, m->s);
    expect(what, t, DEFT_I32, want, (size_t)n);
}

static void fresh_model(model *m, deft_shape s, int32_t *root)
{
    m->s = s;
    const int64_t n = oracle_numel(&s);
    for (int64_t i = 0; i < n; i++) {
        m->at[i] = (int32_t)i;
        root[i] = (int32_t)(i * 3 + 2);
    }
}

static void test_joins(void)
{
    if (!wanted("joins")) return;
    static model m;
    static int32_t root[MODEL];
    rnd = 99;
    for (int round = 0; round < (quick ? 300 : 2000); round++) {
        const deft_scope scope = deft_scope_begin(cx);
        const deft_shape s = random_shape();
        join_args j = { .in = &s };
        char what[200], where[100];
        oracle_shape_text(&s, where, sizeof where);
        fresh_model(&m, s, root);
        deft_tensor *const t = from(DEFT_I32, s, root);
        deft_shape out = s;
        switch (roll_dice(4)) {
        case 0: {
            int64_t after[DEFT_MAX_RANK];
            j.mode = (deft_pad_mode)roll_dice(4);
            for (uint32_t i = 0; i < s.rank; i++) {
                int64_t most = j.mode == DEFT_PAD_REFLECT ? s.dim[i] - 1
                               : j.mode == DEFT_PAD_WRAP  ? s.dim[i]
                                                          : 3;
                if (most > 3) most = 3;
                if (most < 0 || (j.mode != DEFT_PAD_CONSTANT && s.dim[i] == 0)) most = 0;
                j.before[i] = roll_dice((unsigned)most + 1);
                after[i] = roll_dice((unsigned)most + 1);
                out.dim[i] += j.before[i] + after[i];
            }
            if (oracle_numel(&out) > MODEL) break;
            remap(&m, &out, by_pad, &j);
            snprintf(what, sizeof what, "pad mode %d of %s, round %d", (int)j.mode, where, round);
            expect_model(what, deft_pad(t, j.before, after, j.mode, -9), &m, root, -9);
            break;
        }
        case 1:
            if (!s.rank) break;
            j.axis = roll_dice(s.rank);
            j.shift = (int64_t)roll_dice(41) - 20;
            if (oracle_numel(&s)) remap(&m, &s, by_roll, &j);
            snprintf(what, sizeof what, "roll of %s by %lld along %u", where, (long long)j.shift,
                     j.axis);
            expect_model(what, deft_roll(t, j.shift, (int)j.axis), &m, root, 0);
            break;
        case 2:
            if (s.rank < 2) break;
            j.shift = (int64_t)roll_dice(7) - 3;
            snprintf(what, sizeof what, "tri of %s at %lld", where, (long long)j.shift);
            if (roll_dice(2)) {
                remap(&m, &s, by_tril, &j);
                expect_model(what, deft_tril(t, j.shift), &m, root, 0);
            } else {
                remap(&m, &s, by_triu, &j);
                expect_model(what, deft_triu(t, j.shift), &m, root, 0);
            }
            break;
        default: { /* split, and what was split put together again in another order */
            if (!s.rank) break;
            const uint32_t axis = roll_dice(s.rank);
            const int64_t n = s.dim[axis], a = roll_dice((unsigned)n + 1),
                          b = roll_dice((unsigned)(n - a) + 1);
            const int64_t sizes[3] = { a, b, n - a - b };
            deft_tensor *out_t[3], *back[3];
            n_checks++;
            if (deft_split(t, sizes, 3, (int)axis, out_t) != DEFT_OK) {
                fail("split of %s: %s", where, deft_message(cx));
                deft_clear(cx);
                break;
            }
            back[0] = out_t[2], back[1] = out_t[0], back[2] = out_t[1];
            j.axis = axis;
            j.shift = n - a - b;
            if (oracle_numel(&s)) remap(&m, &s, by_roll, &j);
            snprintf(what, sizeof what, "split and concat of %s along %u at %lld, %lld", where,
                     axis, (long long)a, (long long)b);
            expect_model(what, deft_concat(back, 3, (int)axis), &m, root, 0);
            break;
        }
        }
        if (deft_scope_end(scope) != DEFT_OK) fail("joins: scope_end: %s", deft_message(cx));
    }
    /* stack, concat of two dtypes, one_hot, take, gather */
    const int32_t a[6] = { 1, 2, 3, 4, 5, 6 };
    const float f[6] = { .5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f };
    deft_tensor *const ta = from(DEFT_I32, shape2(2, 3), a), *const tf =
                                                                 from(DEFT_F32, shape2(2, 3), f);
    deft_tensor *const both[2] = { ta, tf };
    const float st0[12] = { 1, 2, 3, 4, 5, 6, .5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f };
    const float st1[12] = { 1, 2, 3, .5f, 1.5f, 2.5f, 4, 5, 6, 3.5f, 4.5f, 5.5f };
    const float st2[12] = { 1, .5f, 2, 1.5f, 3, 2.5f, 4, 3.5f, 5, 4.5f, 6, 5.5f };
    expect_shape("stack 0", deft_stack(both, 2, 0), shape3(2, 2, 3));
    expect("stack 0", deft_stack(both, 2, 0), DEFT_F32, st0, 12);
    expect("stack 1", deft_stack(both, 2, 1), DEFT_F32, st1, 12);
    expect_shape("stack -1", deft_stack(both, 2, -1), shape3(2, 3, 2));
    expect("stack -1", deft_stack(both, 2, -1), DEFT_F32, st2, 12);
    expect("concat 1", deft_concat(both, 2, 1), DEFT_F32, st1, 12);
    const int64_t ix[4] = { 2, -1, 0, -3 };
    deft_tensor *const ti = from(DEFT_I64, shape2(2, 2), ix);
    const int32_t tk[8] = { 3, 3, 1, 1, 6, 6, 4, 4 };
    expect_shape("take", deft_take(ta, ti, 1), shape3(2, 2, 2));
    expect("take", deft_take(ta, ti, 1), DEFT_I32, tk, 8);
    const int32_t rows[4] = { 1, 0, 1, -2 };
    const int32_t tr[12] = { 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3 };
    expect("take rows", deft_take(ta, from(DEFT_I32, shape1(4), rows), 0), DEFT_I32, tr, 12);
    const int32_t g1[4] = { 3, 3, 4, 4 };
    expect("gather 1", deft_gather(ta, ti, 1), DEFT_I32, g1, 4);
    const uint8_t gi[3] = { 1, 0, 1 };
    const int32_t g0[3] = { 4, 2, 6 };
    expect("gather 0", deft_gather(ta, from(DEFT_U8, shape2(1, 3), gi), 0), DEFT_I32, g0, 3);
    const float oh[9] = { 0, 1, 0, 1, 0, 0, 0, 1, 0 };
    expect("one_hot", deft_one_hot(from(DEFT_U8, shape1(3), gi), 3, DEFT_F32), DEFT_F32, oh, 9);
    /* [1,2,3] [4,5,6] with 10, 20, .. at columns 2, 2, 0, 0 of each row; and one by one */
    const int32_t add[8] = { 10, 20, 30, 40, 50, 60, 70, 80 };
    const int32_t ia[6] = { 71, 2, 33, 154, 5, 116 };
    expect("index_add", deft_index_add(ta, ti, from(DEFT_I32, shape3(2, 2, 2), add), 1), DEFT_I32,
           ia, 6);
    const int32_t sa[6] = { 1, 2, 33, 74, 5, 6 };
    expect("scatter_add", deft_scatter_add(ta, ti, from(DEFT_I32, shape2(2, 2), add), 1), DEFT_I32,
           sa, 6);
    const int32_t ic[6] = { 40, 2, 20, 80, 5, 60 }, sc[6] = { 1, 2, 20, 40, 5, 6 };
    const int32_t ip[6] = { 1200, 2, 600, 22400, 5, 18000 };
    deft_tensor *const all_added = from(DEFT_I32, shape3(2, 2, 2), add);
    expect("index_copy", deft_index_copy(ta, ti, all_added, 1), DEFT_I32, ic, 6);
    expect("scatter", deft_scatter(ta, ti, from(DEFT_I32, shape2(2, 2), add), 1), DEFT_I32, sc, 6);
    expect("index_reduce", deft_index_reduce(ta, ti, all_added, 1, DEFT_SCATTER_PROD, true),
           DEFT_I32, ip, 6);
    expect("index_reduce", deft_index_reduce(ta, ti, all_added, 1, DEFT_SCATTER_AMAX, true),
           DEFT_I32, ic, 6);
    expect("scatter_reduce",
           deft_scatter_reduce(ta, ti, from(DEFT_I32, shape2(2, 2), add), 1, DEFT_SCATTER_AMIN, 0),
           DEFT_I32, (int32_t[6]){ 1, 2, 10, 30, 5, 6 }, 6);
    const int64_t bad[2] = { 0, 3 };
    n_checks++;
    int32_t six_values[6];
    const deft_status st3 =
        deft_read(deft_index_add(ta, from(DEFT_I64, shape1(2), bad), deft_num_i(cx, 1), 1),
                  DEFT_I32, six_values, sizeof six_values);
    if (st3 != DEFT_E_RANGE) fail("index_add at the index 3 of 3: %s", deft_status_text(st3));
    n_checks++;
    int32_t two_values[4];
    const deft_status st = deft_read(deft_take(ta, from(DEFT_I64, shape1(2), bad), 1), DEFT_I32,
                                     two_values, sizeof two_values);
    if (st != DEFT_E_RANGE) fail("take with the index 3 of 3: %s", deft_status_text(st));
    n_checks++;
    const int64_t low[2] = { 0, -4 };
    const deft_status st2_ = deft_read(deft_take(ta, from(DEFT_I64, shape1(2), low), 1), DEFT_I32,
                                       two_values, sizeof two_values);
    if (st2_ != DEFT_E_RANGE) fail("take with the index -4 of 3: %s", deft_status_text(st2_));
}

/* ---- creation ---- */

static void test_creation(void)
{
    if (!wanted("creation")) return;
    float f[12];
    double d[12];
    int64_t k[12];
    for (size_t i = 0; i < 12; i++) f[i] = 0;
    expect("zeros", deft_zeros(cx, shape2(3, 4), DEFT_F32), DEFT_F32, f, 12);
    for (size_t i = 0; i < 12; i++) f[i] = 1;
    expect("ones", deft_ones(cx, shape2(3, 4), DEFT_F32), DEFT_F32, f, 12);
    for (size_t i = 0; i < 12; i++) d[i] = -2.5;
    expect("full", deft_full(cx, shape2(3, 4), DEFT_F64, -2.5), DEFT_F64, d, 12);
    for (size_t i = 0; i < 10; i++) f[i] = 0.1f + (float)i * 0.3f;
    expect("arange", deft_arange(cx, 0.1, 3.0, 0.3, DEFT_F32), DEFT_F32, f, 10);
    for (size_t i = 0; i < 5; i++) k[i] = 10 - 3 * (int64_t)i;
    expect("arange down", deft_arange(cx, 10, -4, -3, DEFT_I64), DEFT_I64, k, 5);
    for (size_t i = 0; i < 7; i++) d[i] = -1 + (double)i * (3.0 / 6);
    expect("linspace", deft_linspace(cx, -1, 2, 7, DEFT_F64), DEFT_F64, d, 7);
    for (size_t i = 0; i < 12; i++) k[i] = i / 4 == i % 4;
    expect("eye", deft_eye(cx, 3, 4, DEFT_I64), DEFT_I64, k, 12);
    for (size_t i = 0; i < 12; i++) k[i] = (int64_t)(i % 4);
    expect("iota", deft_iota(cx, shape2(3, 4), -1), DEFT_I64, k, 12);
    const float x[4] = { -1, 0.25f, 2, NAN };
    const float cl[4] = { 0, 0.25f, 1, NAN };
    deft_tensor *const tx = from(DEFT_F32, shape1(4), x);
    expect("clamp", deft_clamp(tx, 0, 1), DEFT_F32, cl, 4);
    const float b[4] = { 3, 1, -2, 0 }, w[4] = { 0.5f, 2, 0, 1 };
    float lw[4];
    for (size_t i = 0; i < 4; i++) lw[i] = x[i] + w[i] * (b[i] - x[i]);
    expect("lerp", (deft_lerp)(tx, from(DEFT_F32, shape1(4), b), from(DEFT_F32, shape1(4), w)),
           DEFT_F32, lw, 4);
    for (size_t i = 0; i < 4; i++) lw[i] = x[i] + 0.3f * (b[i] - x[i]);
    expect("lerp_f", deft_lerp_f(tx, from(DEFT_F32, shape1(4), b), 0.3), DEFT_F32, lw, 4);
    const uint8_t c[4] = { 1, 0, 0, 1 };
    const float wh[4] = { -1, 1, -2, NAN };
    expect("where", deft_where(from(DEFT_BOOL, shape1(4), c), tx, from(DEFT_F32, shape1(4), b)),
           DEFT_F32, wh, 4);
    /* numbers: left, right, whole, fractional */
    const int32_t i3[3] = { 1, 2, -7 };
    deft_tensor *const ti = from(DEFT_I32, shape1(3), i3);
    const int32_t r1[3] = { 9, 8, 17 };
    const float r2[3] = { 1.5f, 2.5f, -6.5f }, r3[3] = { 0.5f, 1, -3.5f };
    expect("10 - i", deft_sub(deft_num_i(cx, 10), ti), DEFT_I32, r1, 3);
    expect("i + 0.5", deft_add(ti, 0.5), DEFT_F32, r2, 3);
    expect("i / 2", deft_div(ti, 2), DEFT_F32, r3, 3);
    const int32_t p3[3] = { 1, 8, -343 };
    expect("i ^ 3", deft_pow(ti, 3), DEFT_I32, p3, 3);
    const int32_t p0[3] = { 1, 1, 1 };
    expect("i ^ 0", deft_pow(ti, 0), DEFT_I32, p0, 3);
}

/* ---- matmul ---- */

#define MATMUL(T, name, FMA)                                                                       \
    static void name(const T *a, const T *b, T *c, size_t m, size_t k, size_t n)                   \
    {                                                                                              \
        for (size_t i = 0; i < m; i++)                                                             \
            for (size_t j = 0; j < n; j++) {                                                       \
                T acc = 0;                                                                         \
                for (size_t l = 0; l < k; l++) acc = FMA(a[i * k + l], b[l * n + j], acc);         \
                c[i * n + j] = acc;                                                                \
            }                                                                                      \
    }
MATMUL(float, matmul32, fmaf)
MATMUL(double, matmul64, fma)

static void test_matmul(void)
{
    static const size_t sizes[][3] = { { 1, 1, 1 },     { 2, 3, 4 },    { 5, 0, 3 },
                                       { 0, 3, 2 },     { 1, 17, 1 },   { 17, 16, 15 },
                                       { 33, 65, 31 },  { 64, 64, 64 }, { 6, 300, 16 },
                                       { 70, 129, 50 }, { 3, 5, 130 },  { 130, 7, 3 },
                                       { 65, 33, 2 },   { 300, 70, 4 }, { 100, 40, 7 },
                                       { 97, 513, 101 } };
    if (!wanted("matmul")) return;
    enum { MAX = 97 * 513 + 513 * 101 };
    static float a[2 * MAX], b[2 * MAX], c[2 * MAX];
    static double da[MAX], db[MAX], dc[MAX];
    for (size_t k = 0; k < LEN(sizes) - (quick ? 1 : 0); k++) {
        const size_t M = sizes[k][0], K = sizes[k][1], N = sizes[k][2];
        char what[80];
        oracle_fill(DEFT_F32, a, 2 * M * K, k, ORACLE_TAME);
        oracle_fill(DEFT_F32, b, 2 * K * N, k + 50, ORACLE_TAME);
        oracle_fill(DEFT_F64, da, M * K, k, ORACLE_TAME);
        oracle_fill(DEFT_F64, db, K * N, k + 50, ORACLE_TAME);
        const int64_t m = (int64_t)M, kk = (int64_t)K, n = (int64_t)N;
        matmul32(a, b, c, M, K, N);
        snprintf(what, sizeof what, "matmul %zux%zux%zu", M, K, N);
        deft_tensor *const ta = from(DEFT_F32, shape2(m, kk), a), *const tb = from(
                                                                      DEFT_F32, shape2(kk, n), b);
        expect(what, deft_matmul(ta, tb), DEFT_F32, c, M * N);
        matmul64(da, db, dc, M, K, N);
        expect(what,
               deft_matmul(from(DEFT_F64, shape2(m, kk), da), from(DEFT_F64, shape2(kk, n), db)),
               DEFT_F64, dc, M * N);
        /* transposed operands, given as views */
        for (size_t i = 0; i < M; i++)
            for (size_t l = 0; l < K; l++) da[l * M + i] = (double)a[i * K + l];
        float *const at = oracle_alloc(M * K * sizeof *at);
        for (size_t i = 0; i < M * K; i++) at[i] = (float)da[i];
        snprintf(what, sizeof what, "matmul of a transposed, %zux%zux%zu", M, K, N);
        expect(what, deft_matmul(deft_t(from(DEFT_F32, shape2(kk, m), at)), tb), DEFT_F32, c,
               M * N);
        free(at);
        /* an epilogue */
        for (size_t i = 0; i < M * N; i++) c[i] = c[i] * 2 + 1;
        snprintf(what, sizeof what, "2 matmul + 1, %zux%zux%zu", M, K, N);
        expect(what, deft_add(deft_mul(deft_matmul(ta, tb), 2), 1), DEFT_F32, c, M * N);
        /* a batch of two; vectors */
        matmul32(a, b, c, M, K, N);
        matmul32(a + M * K, b, c + M * N, M, K, N);
        snprintf(what, sizeof what, "batched matmul 2x%zux%zux%zu", M, K, N);
        expect(what, deft_matmul(from(DEFT_F32, shape3(2, m, kk), a), tb), DEFT_F32, c, 2 * M * N);
        matmul32(a, b, c, 1, K, N);
        if (M) {
            expect("vector by matrix", deft_matmul(from(DEFT_F32, shape1(kk), a), tb), DEFT_F32, c,
                   N);
            matmul32(a, b, c, M, K, 1);
            expect("matrix by vector", deft_matmul(ta, from(DEFT_F32, shape1(kk), b)), DEFT_F32, c,
                   M);
            matmul32(a, b, c, 1, K, 1);
            expect("vector by vector",
                   deft_matmul(from(DEFT_F32, shape1(kk), a), from(DEFT_F32, shape1(kk), b)),
                   DEFT_F32, c, 1);
        }
    }
    const int32_t x[4] = { 1, 2, 3, 4 };
    const int32_t xx[4] = { 7, 10, 15, 22 };
    deft_tensor *const t = from(DEFT_I32, shape2(2, 2), x);
    expect("matmul of integers", deft_matmul(t, t), DEFT_I32, xx, 4);
}

/* ---- composites, within a tolerance ---- */

static void expect_near(const char *what, deft_tensor *t, const double *want, size_t n,
                        double tolerance)
{
    float *const got = values(what, t, DEFT_F32, n);
    if (!got) return;
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * (1 + fabs(want[i]))) &&
            !(isnan(got[i]) && isnan(want[i]))) {
            fail("%s: element %zu is %.9g, expected %.9g", what, i, (double)got[i], want[i]);
            break;
        }
    free(got);
}

static void test_composites(void)
{
    enum { R = 9, C = 37 };
    float x[R * C];
    double sm[R * C], ls[R * C], ln[R * C], ce = 0;
    int32_t label[R];
    if (!wanted("composites")) return;
    oracle_fill(DEFT_F32, x, R * C, 3, ORACLE_TAME);
    for (size_t i = 0; i < R; i++) {
        double top = -INFINITY, sum = 0, mean = 0, var = 0;
        for (size_t j = 0; j < C; j++) {
            if ((double)x[i * C + j] > top) top = (double)x[i * C + j];
            mean += (double)x[i * C + j] / C;
        }
        for (size_t j = 0; j < C; j++) {
            sum += exp((double)x[i * C + j] - top);
            var += ((double)x[i * C + j] - mean) * ((double)x[i * C + j] - mean) / C;
        }
        for (size_t j = 0; j < C; j++) {
            ls[i * C + j] = (double)x[i * C + j] - top - log(sum);
            sm[i * C + j] = exp(ls[i * C + j]);
            ln[i * C + j] = ((double)x[i * C + j] - mean) / sqrt(var + 1e-5) * 2 + 0.5;
        }
        label[i] = (int32_t)(i * 5 % C);
        ce -= ls[i * C + (size_t)label[i]] / R;
    }
    deft_tensor *const t = from(DEFT_F32, shape2(R, C), x);
    expect_near("softmax", deft_softmax(t, 1), sm, R * C, 1e-6);
    expect_near("softmax of columns", deft_t(deft_softmax(deft_t(t), 0)), sm, R * C, 1e-6);
    expect_near("log_softmax", deft_log_softmax(t, -1), ls, R * C, 2e-6);
    expect_near("layer_norm",
                deft_layer_norm(t, 1, deft_full(cx, shape1(C), DEFT_F32, 2),
                                deft_full(cx, shape1(C), DEFT_F32, 0.5), 1e-5),
                ln, R * C, 3e-6);
    deft_tensor *const tl = from(DEFT_I32, shape1(R), label);
    expect_near("cross_entropy", deft_cross_entropy(t, tl), &ce, 1, 2e-6);
    label[3] = C;
    ce = NAN;
    expect_near("cross_entropy with a label outside",
                deft_cross_entropy(t, from(DEFT_I32, shape1(R), label)), &ce, 1, 0);
    const float big[3] = { 1000, 1001, -INFINITY };
    const double bw[3] = { 0.2689414213699951, 0.7310585786300049, 0 };
    expect_near("softmax of large numbers", deft_softmax(from(DEFT_F32, shape1(3), big), 0), bw, 3,
                1e-6);
}

/* ---- random numbers ---- */

/* Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011), as in Random123's philox.h. */
static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4], k[2] = { key[0], key[1] };
    memcpy(c, counter, sizeof c);
    for (int round = 0; round < 10; round++) {
        const uint64_t p = (uint64_t)0xD2511F53u * c[0], q = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t next[4] = { (uint32_t)(q >> 32) ^ c[1] ^ k[0], (uint32_t)q,
                                   (uint32_t)(p >> 32) ^ c[3] ^ k[1], (uint32_t)p };
        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

/* The words of one element of one draw. */
static void words(uint64_t seed, uint64_t draw, uint64_t element_index, uint32_t out[4])
{
    const uint32_t c[4] = { (uint32_t)element_index, (uint32_t)(element_index >> 32),
                            (uint32_t)draw, (uint32_t)(draw >> 32) };
    const uint32_t k[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    philox(c, k, out);
}

static void test_random(void)
{
    if (!wanted("random")) return;
    static const struct {
        uint32_t c[4], k[2], want[4];
    } known[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { ~0u, ~0u, ~0u, ~0u },
          { ~0u, ~0u },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    uint32_t w[4];
    for (size_t i = 0; i < LEN(known); i++) {
        n_checks++;
        philox(known[i].c, known[i].k, w);
        if (memcmp(w, known[i].want, sizeof w))
            fail("the test's own Philox is wrong at vector %zu", i);
    }
    enum { N = 700 };
    static const uint64_t seeds[][2] = { { 0, 0 },
                                         { 1, 7 },
                                         { 0xffffffffffffffffu, 0xffffffff12345678u },
                                         { 0x299f31d0a4093822u, 0x0370734413198a2eu } };
    for (size_t k = 0; k < LEN(seeds); k++) {
        int64_t top[N];
        int32_t die[N];
        float uf[N];
        double ud[N], nd[N];
        for (size_t i = 0; i < N; i++) {
            words(seeds[k][0], seeds[k][1], i, w);
            top[i] = (int64_t)(w[0] >> 1);
            die[i] = (int32_t)((uint64_t)w[0] * 6 >> 32) + 1;
            uf[i] = -1.0f + (float)(w[0] >> 8) * 0x1p-24f * 3.0f;
            ud[i] = (double)((uint64_t)w[0] << 21 | w[1] >> 11) * 0x1p-53;
            const double u1 = (double)((w[0] >> 8) + 1) * 0x1p-24,
                         u2 = (double)(w[2] >> 8) * 0x1p-24;
            nd[i] = 5 + 0.5 * sqrt(-2 * log(u1)) * cos(6.283185307179586 * u2);
        }
        deft_rng rng = { seeds[k][0], seeds[k][1] };
        const deft_shape s = k & 1 ? shape2(N / 7, 7) : shape1(N);
        expect("randint of 2^31", deft_randint(cx, &rng, s, DEFT_I64, 0, (int64_t)1 << 31),
               DEFT_I64, top, N);
        n_checks++;
        if (rng.next != seeds[k][1] + 1) fail("a draw did not advance the generator");
        rng.next = seeds[k][1];
        expect("a die", deft_randint(cx, &rng, s, DEFT_I32, 1, 7), DEFT_I32, die, N);
        rng.next = seeds[k][1];
        expect("uniform f32", deft_uniform(cx, &rng, s, DEFT_F32, -1, 2), DEFT_F32, uf, N);
        rng.next = seeds[k][1];
        expect("uniform f64", deft_uniform(cx, &rng, s, DEFT_F64, 0, 1), DEFT_F64, ud, N);
        rng.next = seeds[k][1];
        expect_near("normal f32", deft_normal(cx, &rng, s, DEFT_F32, 5, 0.5), nd, N, 2e-6);
    }
}

/* ---- running ---- */

int main(int argc, char **argv)
{
    oracle_path paths[] = {
        { .name = "interp unfused", .tier = DEFT_TIER_INTERPRET, .n_threads = 1, .no_fusion = 1 },
        { .name = "interp fused", .tier = DEFT_TIER_INTERPRET, .n_threads = 2 },
        { .name = "llvm O2", .tier = DEFT_TIER_FULL, .n_threads = 2 },
    };
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick"))
            quick = true;
        else if (strcmp(argv[i], "--full"))
            filter = argv[i];
    }
    const double t0 = oracle_now();
    const size_t n = oracle_open(paths, LEN(paths));
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        { "reals", test_reals },
        { "reals2", test_reals2 },
        { "f32", test_f32 },
        { "f64", test_f64 },
        { "i32", test_i32 },
        { "i64", test_i64 },
        { "u8", test_u8 },
        { "cast", test_cast },
        { "creation", test_creation },
        { "sum", test_sums },
        { "columns", test_columns },
        { "axes", test_axes },
        { "int_reductions", test_int_reductions },
        { "cumsum", test_cumsum },
        { "sort", test_sorting },
        { "var", test_var },
        { "views", test_views },
        { "joins", test_joins },
        { "matmul", test_matmul },
        { "composites", test_composites },
        { "random", test_random },
    };
    for (size_t i = 0; i < n; i++) {
        path_name = paths[i].name;
        cx = paths[i].cx;
        const double start = oracle_now();
        for (size_t k = 0; k < LEN(tests); k++) {
            const deft_scope s = deft_scope_begin(cx);
            tests[k].run();
            deft_clear(cx);
            if (deft_scope_end(s) != DEFT_OK)
                fail("%s: scope_end: %s", tests[k].name, deft_message(cx));
        }
        printf("%-16s %.1f s\n", path_name, oracle_now() - start);
    }
    printf("%ld checks, %ld failures, %.1f s\n", n_checks, n_failures, oracle_now() - t0);
    oracle_close(paths, n);
    return n_failures ? 1 : 0;
}
