/* SPDX-License-Identifier: Apache-2.0
 *
 * Each function from one formula that is well conditioned everywhere, in double and in a wider
 * type.
 */
#include "support/recipe_refs.h"

#include <math.h>

#ifdef ULP_QUADMATH
#include <quadmath.h>
#define W(name) name##q
#else
#define W(name) name##l
#endif

#define FORMULAS(T, prefix, M)                                                                     \
    static T prefix##sigmoid(double x)                                                             \
    {                                                                                              \
        const T e = M(exp)(-M(fabs)((T)x));                                                        \
        return x < 0 ? e / (1 + e) : 1 / (1 + e);                                                  \
    }                                                                                              \
    static T prefix##silu(double x)                                                                \
    {                                                                                              \
        if (x == -INFINITY) return -(T)0;                                                          \
        const T e = M(exp)(-M(fabs)((T)x));                                                        \
        return x < 0 ? (T)x * e / (1 + e) : (T)x / (1 + e);                                        \
    }                                                                                              \
    static T prefix##softplus(double x)                                                            \
    {                                                                                              \
        return (x < 0 ? (T)0 : (T)x) + M(log1p)(M(exp)(-M(fabs)((T)x)));                           \
    }                                                                                              \
    static T prefix##rsqrt(double x)                                                               \
    {                                                                                              \
        return 1 / M(sqrt)((T)x);                                                                  \
    }                                                                                              \
    static T prefix##exp2(double x)                                                                \
    {                                                                                              \
        return M(pow)((T)2, (T)x);                                                                 \
    }
#define D(name) name
#define L(name) name##l
FORMULAS(double, d_, D)
FORMULAS(ref_wide, w_, W)
FORMULAS(long double, l_, L)

static double d_gelu(double x)
{
    return x == -INFINITY ? -0.0 : x / 2 * erfc(-x * sqrt(0.5));
}

static ref_wide w_gelu(double x)
{
    return x == -INFINITY ? -(ref_wide)0
                          : (ref_wide)x / 2 * W(erfc)(-(ref_wide)x * W(sqrt)((ref_wide)0.5));
}

#define LIBRARY(X)                                                                                 \
    X(exp)                                                                                         \
    X(expm1)                                                                                       \
    X(log)                                                                                         \
    X(log2)                                                                                        \
    X(log10)                                                                                       \
    X(log1p)                                                                                       \
    X(sin)                                                                                         \
    X(cos)                                                                                         \
    X(tan)                                                                                         \
    X(asin)                                                                                        \
    X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(cbrt) X(erf) X(erfc)
#define X(name)                                                                                    \
    static ref_wide w_##name(double x)                                                             \
    {                                                                                              \
        return W(name)((ref_wide)x);                                                               \
    }                                                                                              \
    static long double l_##name(double x)                                                          \
    {                                                                                              \
        return name##l((long double)x);                                                            \
    }
LIBRARY(X)
#undef X

static ref_wide w_pow(double x, double y)
{
    return W(pow)((ref_wide)x, (ref_wide)y);
}

static ref_wide w_atan2(double y, double x)
{
    return W(atan2)((ref_wide)y, (ref_wide)x);
}

static ref_wide w_hypot(double x, double y)
{
    return W(hypot)((ref_wide)x, (ref_wide)y);
}

static long double l_pow(double x, double y)
{
    return powl((long double)x, (long double)y);
}

static long double l_atan2(double y, double x)
{
    return atan2l((long double)y, (long double)x);
}

static long double l_hypot(double x, double y)
{
    return hypotl((long double)x, (long double)y);
}

/* erfc multiplies the rounding error of its argument by twice the argument's square. */
static long double l_gelu(double x)
{
    const ref_wide exact = -(ref_wide)x * W(sqrt)((ref_wide)0.5);
    const long double z = (long double)exact, rest = (long double)(exact - (ref_wide)z);
    const long double slope = -1.128379167095512573896L * expl(-z * z);
    if (isinf(x)) return x < 0 ? -0.0L : (long double)x;
    return (long double)x / 2 * (erfcl(z) + slope * rest);
}

/* Bounds in ULP: f32, f64. docs/accuracy.md has what was measured.
 */
/* clang-format off */
#define ROW(name, f32, f64)                                                                        \
    { #name, f32, f64, df_recipe_##name, NULL, name, NULL, w_##name, NULL, l_##name, NULL }
#define OWN(name, f32, f64)                                                                        \
    { #name, f32, f64, df_recipe_##name, NULL, d_##name, NULL, w_##name, NULL, l_##name, NULL }
#define TWO(name, f32, f64)                                                                        \
    { #name, f32, f64, NULL, df_recipe_##name, NULL, name, NULL, w_##name, NULL, l_##name }

const ref_row ref_rows[] = {
    ROW(exp, 1, 1),
    OWN(exp2, 1, 1),
    ROW(expm1, 1.75, 2),
    ROW(log, 1, 1.5),
    ROW(log2, 1.25, 1),
    ROW(log10, 1, 1.25),
    ROW(log1p, 1.5, 2),
    ROW(sin, 2, 2),
    ROW(cos, 2, 2),
    ROW(tan, 1, 2),
    ROW(asin, 1.5, 2),
    ROW(acos, 1.25, 1.25),
    ROW(atan, 2, 2),
    ROW(sinh, 2, 2),
    ROW(cosh, 1.75, 2),
    ROW(tanh, 1.5, 2),
    ROW(asinh, 1, 2),
    ROW(acosh, 1, 2),
    ROW(atanh, 1, 2),
    ROW(cbrt, 1, 1),
    OWN(sigmoid, 2, 2),
    ROW(erf, 2, 2),
    ROW(erfc, 2, 1.75),
    OWN(gelu, 2, 1.75),
    OWN(silu, 2.25, 2),
    OWN(softplus, 2, 2),
    OWN(rsqrt, 1.5, 1.5),
    TWO(pow, 1, 1),
    TWO(atan2, 2, 2),
    TWO(hypot, 1, 1),
};
/* clang-format on */
const size_t ref_n_rows = sizeof ref_rows / sizeof *ref_rows;

double ref_error_f32(float got, double want)
{
    if (isnan(want)) return isnan(got) ? 0 : INFINITY;
    if (isnan(got)) return INFINITY;
    if (got == (float)want) return got == 0 && !signbit(got) != !signbit(want) ? INFINITY : 0;
    double g = got;
    if (isinf(g)) g = copysign(0x1p128, g);
    if (fabs(want) > 0x1p128) want = copysign(0x1p128, want);
    int e;
    frexp(want, &e);
    e = e > 128 ? 128 : e < -125 || want == 0 ? -125 : e;
    return fabs(g - want) / ldexp(1, e - 24);
}

double ref_error_f64(double got, ref_wide want)
{
    const double narrow = (double)want;
    if (isnan(narrow)) return isnan(got) ? 0 : INFINITY;
    if (isnan(got)) return INFINITY;
    if (got == narrow) {
        if (got == 0 && !signbit(got) != !signbit(narrow)) return INFINITY;
        if (isinf(got) || got == 0) return 0;
    }
    ref_wide g = got;
    if (isinf(got)) g = got < 0 ? -(ref_wide)0x1p1023 * 2 : (ref_wide)0x1p1023 * 2;
    if (want > (ref_wide)0x1p1023 * 2) want = (ref_wide)0x1p1023 * 2;
    if (want < -(ref_wide)0x1p1023 * 2) want = -(ref_wide)0x1p1023 * 2;
    int e = 1024;
    if (isfinite(narrow)) frexp(narrow, &e);
    if (e < -1021 || narrow == 0) e = -1021;
    const ref_wide d = g > want ? g - want : want - g;
    /* In two steps: the reciprocal of the least spacing overflows. */
    return (double)(d * (ref_wide)ldexp(1, 500 - e / 2) * (ref_wide)ldexp(1, -447 - (e - e / 2)));
}

double ref_error_filtered(double got, long double want)
{
    const long double size = fabsl(want);
    int e;
    if (!(size >= 0x1p-1021L && size < 0x1p1023L)) return INFINITY; /* NaN, too */
    frexp((double)want, &e);
    return (double)ldexpl(fabsl((long double)got - want), 53 - e);
}
