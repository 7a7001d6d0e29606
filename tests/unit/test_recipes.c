/* SPDX-License-Identifier: Apache-2.0
 *
 * Recipes against hand-written special cases, published vectors, and sampled references. tools/ulp
 * measures all of f32; this is the part that fits into a quick suite.
 * Why this file is long: it has the special cases of all functions.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include "support/hard_inputs.h"
#include "support/recipe_eval.h"
#include "support/recipe_refs.h"

static recipe_prog prog;

static uint32_t bits_f32(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

/* Equal bits, all NaNs alike. */
static bool same_f32(float a, float b)
{
    return isnan(a) ? isnan(b) : bits_f32(a) == bits_f32(b);
}

static bool same_f64(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && !signbit(a) == !signbit(b);
}

/* ---- special cases ---- */

typedef uint32_t unary(df_emit *, deft_dtype, uint32_t);

#define INF INFINITY
#define HUGE_F 0x1.fffffep127
#define DENORMAL 0x1p-149

/* Exact results; of one table for both dtypes, so inputs are f32 and results exact in both. */
static const struct {
    const char *name;
    unary *recipe;
    double x, want;
} cases[] = {
#define CASE(name, x, want)                                                                        \
    {                                                                                              \
#name "(" #x ")", df_recipe_##name, x, want                                                \
    }
#define NAN_IN(name) CASE(name, NAN, NAN)
    NAN_IN(exp),
    CASE(exp, -INF, 0),
    CASE(exp, INF, INF),
    CASE(exp, 0., 1),
    CASE(exp, -0., 1),
    CASE(exp, HUGE_F, INF),
    CASE(exp, -HUGE_F, 0),
    CASE(exp, DENORMAL, 1),
    NAN_IN(exp2),
    CASE(exp2, -INF, 0),
    CASE(exp2, INF, INF),
    CASE(exp2, -0., 1),
    CASE(exp2, 10, 1024),
    CASE(exp2, -126, 0x1p-126),
    CASE(exp2, -149, DENORMAL),
    CASE(exp2, 127, 0x1p127),
    NAN_IN(expm1),
    CASE(expm1, -INF, -1),
    CASE(expm1, INF, INF),
    CASE(expm1, 0., 0.),
    CASE(expm1, -0., -0.),
    CASE(expm1, DENORMAL, DENORMAL),
    CASE(expm1, -HUGE_F, -1),
    NAN_IN(log),
    CASE(log, 1, 0.),
    CASE(log, 0., -INF),
    CASE(log, -0., -INF),
    CASE(log, -1, NAN),
    CASE(log, -INF, NAN),
    CASE(log, INF, INF),
    CASE(log, -DENORMAL, NAN),
    NAN_IN(log2),
    CASE(log2, 8, 3),
    CASE(log2, DENORMAL, -149),
    CASE(log2, 0x1p-126, -126),
    CASE(log2, 0., -INF),
    CASE(log2, -1, NAN),
    CASE(log2, INF, INF),
    CASE(log2, 1, 0.),
    NAN_IN(log10),
    CASE(log10, 1, 0.),
    CASE(log10, 1000, 3),
    CASE(log10, -0., -INF),
    CASE(log10, INF, INF),
    CASE(log10, -2, NAN),
    NAN_IN(log1p),
    CASE(log1p, 0., 0.),
    CASE(log1p, -0., -0.),
    CASE(log1p, -1, -INF),
    CASE(log1p, -2, NAN),
    CASE(log1p, INF, INF),
    CASE(log1p, DENORMAL, DENORMAL),
    CASE(log1p, -INF, NAN),
    NAN_IN(sin),
    CASE(sin, 0., 0.),
    CASE(sin, -0., -0.),
    CASE(sin, INF, NAN),
    CASE(sin, -INF, NAN),
    CASE(sin, DENORMAL, DENORMAL),
    NAN_IN(cos),
    CASE(cos, 0., 1),
    CASE(cos, -0., 1),
    CASE(cos, INF, NAN),
    CASE(cos, -INF, NAN),
    NAN_IN(tan),
    CASE(tan, 0., 0.),
    CASE(tan, -0., -0.),
    CASE(tan, INF, NAN),
    CASE(tan, -INF, NAN),
    CASE(tan, -DENORMAL, -DENORMAL),
    NAN_IN(asin),
    CASE(asin, 0., 0.),
    CASE(asin, -0., -0.),
    CASE(asin, 1.5, NAN),
    CASE(asin, -INF, NAN),
    CASE(asin, DENORMAL, DENORMAL),
    NAN_IN(acos),
    CASE(acos, 1, 0.),
    CASE(acos, -1.5, NAN),
    CASE(acos, INF, NAN),
    NAN_IN(atan),
    CASE(atan, 0., 0.),
    CASE(atan, -0., -0.),
    CASE(atan, -DENORMAL, -DENORMAL),
    NAN_IN(sinh),
    CASE(sinh, 0., 0.),
    CASE(sinh, -0., -0.),
    CASE(sinh, -INF, -INF),
    CASE(sinh, INF, INF),
    CASE(sinh, -DENORMAL, -DENORMAL),
    NAN_IN(cosh),
    CASE(cosh, 0., 1),
    CASE(cosh, -0., 1),
    CASE(cosh, -INF, INF),
    CASE(cosh, INF, INF),
    NAN_IN(tanh),
    CASE(tanh, 0., 0.),
    CASE(tanh, -0., -0.),
    CASE(tanh, -INF, -1),
    CASE(tanh, INF, 1),
    CASE(tanh, HUGE_F, 1),
    CASE(tanh, -DENORMAL, -DENORMAL),
    CASE(tanh, -30, -1),
    NAN_IN(asinh),
    CASE(asinh, 0., 0.),
    CASE(asinh, -0., -0.),
    CASE(asinh, INF, INF),
    CASE(asinh, -INF, -INF),
    CASE(asinh, -DENORMAL, -DENORMAL),
    NAN_IN(acosh),
    CASE(acosh, 1, 0.),
    CASE(acosh, 0.5, NAN),
    CASE(acosh, -INF, NAN),
    CASE(acosh, INF, INF),
    NAN_IN(atanh),
    CASE(atanh, 0., 0.),
    CASE(atanh, -0., -0.),
    CASE(atanh, 1, INF),
    CASE(atanh, -1, -INF),
    CASE(atanh, 1.5, NAN),
    CASE(atanh, -INF, NAN),
    CASE(atanh, DENORMAL, DENORMAL),
    NAN_IN(cbrt),
    CASE(cbrt, 0., 0.),
    CASE(cbrt, -0., -0.),
    CASE(cbrt, INF, INF),
    CASE(cbrt, -INF, -INF),
    CASE(cbrt, 27, 3),
    CASE(cbrt, -0x1p-147, -0x1p-49),
    CASE(cbrt, 1000, 10),
    NAN_IN(sigmoid),
    CASE(sigmoid, 0., 0.5),
    CASE(sigmoid, -0., 0.5),
    CASE(sigmoid, INF, 1),
    CASE(sigmoid, -INF, 0),
    CASE(sigmoid, -HUGE_F, 0),
    CASE(sigmoid, HUGE_F, 1),
    NAN_IN(lgamma),
    CASE(lgamma, 1, 0.),
    CASE(lgamma, 2, 0.),
    CASE(lgamma, 0., INF),
    CASE(lgamma, -0., INF),
    CASE(lgamma, -3, INF),
    CASE(lgamma, INF, INF),
    CASE(lgamma, -INF, INF),
    NAN_IN(digamma),
    CASE(digamma, 0., -INF),
    CASE(digamma, -0., INF),
    CASE(digamma, -2, NAN),
    CASE(digamma, INF, INF),
    CASE(digamma, -INF, NAN),
    NAN_IN(erfinv),
    CASE(erfinv, 0., 0.),
    CASE(erfinv, -0., -0.),
    CASE(erfinv, 1, INF),
    CASE(erfinv, -1, -INF),
    CASE(erfinv, 1.5, NAN),
    CASE(erfinv, -INF, NAN),
    NAN_IN(i0),
    CASE(i0, -0., 1),
    CASE(i0, INF, INF),
    CASE(i0, -INF, INF),
    NAN_IN(i0e),
    CASE(i0e, 0., 1),
    CASE(i0e, INF, 0.),
    CASE(i0e, -INF, 0.),
    NAN_IN(i1),
    CASE(i1, 0., 0.),
    CASE(i1, -0., -0.),
    CASE(i1, INF, INF),
    CASE(i1, -INF, -INF),
    NAN_IN(i1e),
    CASE(i1e, -0., -0.),
    CASE(i1e, INF, 0.),
    CASE(i1e, -INF, -0.),
    NAN_IN(erf),
    CASE(erf, 0., 0.),
    CASE(erf, -0., -0.),
    CASE(erf, INF, 1),
    CASE(erf, -INF, -1),
    CASE(erf, 7, 1),
    CASE(erf, -DENORMAL, -DENORMAL),
    NAN_IN(erfc),
    CASE(erfc, 0., 1),
    CASE(erfc, -0., 1),
    CASE(erfc, INF, 0.),
    CASE(erfc, -INF, 2),
    CASE(erfc, HUGE_F, 0.),
    CASE(erfc, -7, 2),
    NAN_IN(gelu),
    CASE(gelu, 0., 0.),
    CASE(gelu, -0., -0.),
    CASE(gelu, INF, INF),
    CASE(gelu, -INF, -0.),
    CASE(gelu, 40, 40),
    CASE(gelu, -40, -0.),
    CASE(gelu, HUGE_F, HUGE_F),
    NAN_IN(silu),
    CASE(silu, 0., 0.),
    CASE(silu, -0., -0.),
    CASE(silu, INF, INF),
    CASE(silu, -INF, -0.),
    CASE(silu, -HUGE_F, -0.),
    CASE(silu, HUGE_F, HUGE_F),
    NAN_IN(softplus),
    CASE(softplus, INF, INF),
    CASE(softplus, -INF, 0.),
    CASE(softplus, 800, 800),
    CASE(softplus, -HUGE_F, 0.),
    CASE(softplus, HUGE_F, HUGE_F),
    NAN_IN(rsqrt),
    CASE(rsqrt, 0., INF),
    CASE(rsqrt, -0., -INF),
    CASE(rsqrt, INF, 0.),
    CASE(rsqrt, -1, NAN),
    CASE(rsqrt, 4, 0.5),
    CASE(rsqrt, 0x1p-148, 0x1p74),
};

static float run_f32(unary *recipe, float x)
{
    recipe_init(&prog);
    const uint32_t id = recipe(&prog.base, DEFT_F32, recipe_input(&prog, DEFT_F32));
    recipe_run(&prog, 1, (const void *[]){ &x });
    const float y = *(const float *)recipe_lanes(&prog, id);
    recipe_finish(&prog);
    return y;
}

static double run_f64(unary *recipe, double x)
{
    recipe_init(&prog);
    const uint32_t id = recipe(&prog.base, DEFT_F64, recipe_input(&prog, DEFT_F64));
    recipe_run(&prog, 1, (const void *[]){ &x });
    const double y = *(const double *)recipe_lanes(&prog, id);
    recipe_finish(&prog);
    return y;
}

/* In f64, what is HUGE_F or DENORMAL above is not at the edge: those rows are f32 only. */
Test(recipes, special_cases)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double x = cases[i].x, want = cases[i].want;
        const float y = run_f32(cases[i].recipe, (float)x);
        cr_assert(same_f32(y, (float)want), "f32 %s: %a, not %a", cases[i].name, (double)y, want);
        if (fabs(x) == HUGE_F || fabs(x) == DENORMAL) continue;
        const double z = run_f64(cases[i].recipe, x);
        cr_assert(same_f64(z, want), "f64 %s: %a, not %a", cases[i].name, z, want);
    }
}

static float run_fast_f32(unary *recipe, float x)
{
    recipe_init(&prog);
    prog.base.fast = true;
    const uint32_t id = recipe(&prog.base, DEFT_F32, recipe_input(&prog, DEFT_F32));
    recipe_run(&prog, 1, (const void *[]){ &x });
    const float y = *(const float *)recipe_lanes(&prog, id);
    recipe_finish(&prog);
    return y;
}

/* Exact results of f32 are exact in fast mode, too: the cases, the infinities among them, and the
 * ends of both tails. */
Test(recipes, fast_special_cases)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const float y = run_fast_f32(cases[i].recipe, (float)cases[i].x);
        cr_assert(same_f32(y, (float)cases[i].want), "fast %s: %a, not %a", cases[i].name,
                  (double)y, cases[i].want);
    }
    for (float x = 9; x < 20; x += 0.0625f) {
        const float tail = run_fast_f32(df_recipe_erfc, x), want = run_f32(df_recipe_erfc, x);
        cr_assert_leq(fabsf(tail - want), fmaxf(want * 0x1p-20f, 0x1p-149f), "erfc(%a)", (double)x);
        const float left = run_fast_f32(df_recipe_gelu, -x), exact = run_f32(df_recipe_gelu, -x);
        cr_assert_leq(fabsf(left - exact), fmaxf(-exact * 0x1p-20f, 0x1p-149f), "gelu(%a)",
                      (double)-x);
        cr_assert(signbit(left), "gelu(%a) is +0", (double)-x);
    }
}

/* Results that are denormal, and the last ones before 0 and infinity. */
Test(recipes, f32_edges)
{
    static const struct {
        unary *recipe;
        float x, want;
    } edge[] = {
        { df_recipe_exp, -103.9f, 0x1p-149f },
        { df_recipe_exp, -104, 0 },
        { df_recipe_exp, 88.72283f, 0x1.ffff08p127f },
        { df_recipe_exp, 88.72284f, INFINITY },
        { df_recipe_exp, -177, 0 },
        { df_recipe_exp, -1e30f, 0 },
        { df_recipe_exp2, -149, 0x1p-149f },
        { df_recipe_exp2, -150, 0 },
        { df_recipe_exp2, -255, 0 },
        { df_recipe_exp2, -1e30f, 0 },
        { df_recipe_sigmoid, -103.9f, 0x1p-149f },
        { df_recipe_sigmoid, -105, 0 },
        { df_recipe_gelu, -14.3f, -0x1p-149f },
        { df_recipe_gelu, -14.4f, -0.f },
        { df_recipe_silu, -108.5f, -0x1p-149f },
        { df_recipe_silu, -109, -0.f },
        { df_recipe_erfc, 10.05f, 0x1p-149f },
        { df_recipe_erfc, 10.06f, 0 },
        { df_recipe_softplus, -103.9f, 0x1p-149f },
        { df_recipe_sinh, 89.5f, INFINITY },
    };
    for (size_t i = 0; i < sizeof edge / sizeof *edge; i++) {
        const float y = run_f32(edge[i].recipe, edge[i].x);
        cr_assert(same_f32(y, edge[i].want), "edge %zu at %a: %a, not %a", i, (double)edge[i].x,
                  (double)y, (double)edge[i].want);
    }
}

/* ---- two operands ---- */

static void expect_pow(double x, double y, double want)
{
    const float xf = (float)x, yf = (float)y;
    recipe_init(&prog);
    const uint32_t a = recipe_input(&prog, DEFT_F32), b = recipe_input(&prog, DEFT_F32);
    const uint32_t c = recipe_input(&prog, DEFT_F64), d = recipe_input(&prog, DEFT_F64);
    const uint32_t f32 = df_recipe_pow(&prog.base, DEFT_F32, a, b);
    const uint32_t f64 = df_recipe_pow(&prog.base, DEFT_F64, c, d);
    recipe_run(&prog, 1, (const void *[]){ &xf, &yf, &x, &y });
    const float got = *(const float *)recipe_lanes(&prog, f32);
    const double wide = *(const double *)recipe_lanes(&prog, f64);
    recipe_finish(&prog);
    cr_assert(same_f32(got, (float)want), "f32 pow(%a, %a): %a, not %a", x, y, (double)got, want);
    cr_assert(same_f64(wide, want), "f64 pow(%a, %a): %a, not %a", x, y, wide, want);
}

Test(recipes, pow_special_cases)
{
    static const double values[] = { 0., -0., 1,   -1,        2,   -2,  0.5, -0.5,
                                     3,  -3,  INF, -INFINITY, NAN, 1.5, 4,   -1.5 };
    const size_t n = sizeof values / sizeof *values;
    size_t checked = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            const double want = pow(values[i], values[k]);
            const bool exact = isnan(want) || want == (double)(float)want;
            if (exact) expect_pow(values[i], values[k], want);
            checked += exact;
        }
    }
    cr_assert(checked > 150, "only %zu", checked);
    expect_pow(-1, 0x1p24, 1);
    expect_pow(-1, 0x1.fffffep23, -1);
    expect_pow(2, -149, 0x1p-149);
    expect_pow(4, 63.5, 0x1p127);
}

static float run_atan2(float y, float x)
{
    recipe_init(&prog);
    const uint32_t a = recipe_input(&prog, DEFT_F32), b = recipe_input(&prog, DEFT_F32);
    const uint32_t id = df_recipe_atan2(&prog.base, DEFT_F32, a, b);
    recipe_run(&prog, 1, (const void *[]){ &y, &x });
    const float got = *(const float *)recipe_lanes(&prog, id);
    recipe_finish(&prog);
    return got;
}

Test(recipes, atan2_special_cases)
{
    static const float values[] = { 0.f, -0.f, 1, -1, INFINITY, -INFINITY, 0x1p-149f, 0x1p127f };
    const size_t n = sizeof values / sizeof *values;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            const float got = run_atan2(values[i], values[k]);
            const double want = atan2((double)values[i], (double)values[k]);
            cr_assert(ref_error_f32(got, want) <= 1, "atan2(%a, %a): %a, not %a", (double)values[i],
                      (double)values[k], (double)got, want);
        }
        cr_assert(isnan(run_atan2(values[i], NAN)) && isnan(run_atan2(NAN, values[i])));
    }
}

/* ---- accuracy, sampled ---- */

Test(recipes, f32_errors_stay_below_their_bounds)
{
    static float x[RECIPE_LANES];
    for (size_t r = 0; r < ref_n_rows; r++) {
        if (!ref_rows[r].recipe) continue;
        recipe_init(&prog);
        const uint32_t id = ref_rows[r].recipe(&prog.base, DEFT_F32, recipe_input(&prog, DEFT_F32));
        for (uint64_t bits = 0; bits < (uint64_t)1 << 32;) {
            size_t n = 0;
            for (; n < RECIPE_LANES && bits < (uint64_t)1 << 32; n++, bits += 65537) {
                const uint32_t b = (uint32_t)bits;
                memcpy(&x[n], &b, sizeof b);
            }
            recipe_run(&prog, n, (const void *[]){ x });
            const float *got = recipe_lanes(&prog, id);
            for (size_t k = 0; k < n; k++) {
                const double ulp = ref_error_f32(got[k], ref_rows[r].f32((double)x[k]));
                cr_assert(ulp <= ref_rows[r].bound_f32, "%s(%a): %a is off by %.3f ULP",
                          ref_rows[r].name, (double)x[k], (double)got[k], ulp);
            }
        }
        recipe_finish(&prog);
    }
}

/* The f32 nearest to n pi/2, where a reduction with too few bits of pi shows. */
Test(recipes, f32_trigonometry_near_multiples_of_half_pi)
{
    static float x[RECIPE_LANES];
    for (size_t r = 0; r < ref_n_rows; r++) {
        unary *const recipe = ref_rows[r].recipe;
        if (recipe != df_recipe_sin && recipe != df_recipe_cos && recipe != df_recipe_tan) continue;
        recipe_init(&prog);
        const uint32_t id = recipe(&prog.base, DEFT_F32, recipe_input(&prog, DEFT_F32));
        for (uint64_t batch = 0; batch < 160; batch++) {
            for (uint64_t k = 0; k < RECIPE_LANES; k++) {
                const uint64_t n = batch * RECIPE_LANES + k;
                const double far = (double)(n * 0x9e3779b97f4a7c15u >> n % 60);
                x[k] = (float)((batch < 100 ? (double)n : far) * 0x1.921fb54442d18p0);
            }
            recipe_run(&prog, RECIPE_LANES, (const void *[]){ x });
            const float *got = recipe_lanes(&prog, id);
            for (size_t k = 0; k < RECIPE_LANES; k++) {
                const double ulp = ref_error_f32(got[k], ref_rows[r].f32((double)x[k]));
                cr_assert(ulp <= ref_rows[r].bound_f32, "%s(%a): %a is off by %.3f ULP",
                          ref_rows[r].name, (double)x[k], (double)got[k], ulp);
            }
        }
        recipe_finish(&prog);
    }
}

/* Bits of doubles in a stride that meets every exponent, and larger steps near 1. */
static double sample_f64(uint64_t i)
{
    uint64_t b = i * 0x9e3779b97f4a7c15u;
    if (i % 2) b = (b & 0x800fffffffffffffu) | (uint64_t)(1015 + i % 16) << 52;
    double x;
    memcpy(&x, &b, sizeof x);
    return x;
}

Test(recipes, f64_errors_stay_below_their_bounds)
{
    static double x[RECIPE_LANES], y[RECIPE_LANES];
    for (size_t r = 0; r < ref_n_rows; r++) {
        const ref_row *const row = &ref_rows[r];
        recipe_init(&prog);
        const uint32_t a = recipe_input(&prog, DEFT_F64);
        const uint32_t id =
            row->recipe ? row->recipe(&prog.base, DEFT_F64, a)
                        : row->recipe2(&prog.base, DEFT_F64, a, recipe_input(&prog, DEFT_F64));
        for (uint64_t batch = 0; batch < 8; batch++) {
            for (size_t k = 0; k < RECIPE_LANES; k++) {
                x[k] = sample_f64(batch * RECIPE_LANES + k);
                y[k] = sample_f64(batch * RECIPE_LANES + k + 100001);
            }
            recipe_run(&prog, RECIPE_LANES, (const void *[]){ x, y });
            const double *got = recipe_lanes(&prog, id);
            for (size_t k = 0; k < RECIPE_LANES; k++) {
                const ref_wide want = row->f64 ? row->f64(x[k]) : row->f64_2(x[k], y[k]);
                const double ulp = ref_error_f64(got[k], want);
                cr_assert(ulp <= row->bound_f64, "%s(%a, %a): %a is off by %.3f ULP", row->name,
                          x[k], y[k], got[k], ulp);
            }
        }
        recipe_finish(&prog);
    }
}

/* The f64 nearest to a multiple of pi/2 of all, and other arguments that need all bits of pi. */
Test(recipes, f64_trigonometry_of_huge_arguments)
{
    static const struct {
        unary *recipe;
        double x, want;
    } rows[] = {
        { df_recipe_cos, 0x1.6ac5b262ca1ffp+849, -0x1.14ae72e6ba22fp-61 },
        { df_recipe_sin, 0x1.6ac5b262ca1ffp+849, 1 },
        { df_recipe_sin, 0x1p1023, 0x1.205248cbdb760p-1 },
        { df_recipe_sin, 1e22, -0x1.b453ab76bf397p-1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double y = run_f64(rows[i].recipe, rows[i].x);
        cr_assert(ref_error_f64(y, (ref_wide)rows[i].want) <= 2.5, "row %zu: %a, not %a", i, y,
                  rows[i].want);
    }
}

/* n <= RECIPE_LANES */
static void check_f64(const ref_row *row, const double *x, size_t n)
{
    recipe_init(&prog);
    const uint32_t id = row->recipe(&prog.base, DEFT_F64, recipe_input(&prog, DEFT_F64));
    recipe_run(&prog, n, (const void *[]){ x });
    const double *got = recipe_lanes(&prog, id);
    for (size_t k = 0; k < n; k++) {
        const double ulp = ref_error_f64(got[k], row->f64(x[k]));
        cr_assert(ulp <= row->bound_f64, "%s(%a): %a is off by %.3f ULP", row->name, x[k], got[k],
                  ulp);
    }
    recipe_finish(&prog);
}

/* Every exponent's f64 that lies nearest to a multiple of pi/2: some are just below it, and then a
 * reduction that takes the rest apart into a negative whole number and a fraction loses all bits.
 */
Test(recipes, f64_trigonometry_next_to_multiples_of_half_pi)
{
    for (size_t r = 0; r < ref_n_rows; r++) {
        unary *const recipe = ref_rows[r].recipe;
        if (recipe != df_recipe_sin && recipe != df_recipe_cos && recipe != df_recipe_tan) continue;
        size_t n_checked = 0;
        for (int e = HARD_FIRST_EXPONENT; e <= HARD_LAST_EXPONENT;) {
            static double x[RECIPE_LANES];
            size_t n = 0;
            for (; e <= HARD_LAST_EXPONENT && n + HARD_PER_EXPONENT <= RECIPE_LANES; e++)
                n += hard_near_half_pi(e, x + n);
            check_f64(&ref_rows[r], x, n);
            n_checked += n;
        }
        cr_assert(n_checked > 3000, "only %zu", n_checked);
    }
}

/* The nearest of all is among them: 2^-61 from an odd multiple (Muller, chapter 11). */
Test(recipes, hard_inputs_have_the_nearest_to_half_pi)
{
    double x[HARD_PER_EXPONENT];
    const size_t n = hard_near_half_pi(849, x);
    bool found = false;
    for (size_t i = 0; i < n; i++) found |= x[i] == 0x1.6ac5b262ca1ffp849;
    cr_assert(found);
}

Test(recipes, f64_published_inputs)
{
    cr_assert_leq(hard_n_published, RECIPE_LANES);
    for (size_t r = 0; r < ref_n_rows; r++) {
        cr_assert_leq(ref_rows[r].bound_f64, 2, "%s promises no 2 ULP", ref_rows[r].name);
        if (ref_rows[r].recipe) check_f64(&ref_rows[r], hard_published, hard_n_published);
    }
}

/* ---- philox, powi ---- */

/* Vectors of the authors' Random123 distribution (kat_vectors, philox4x32-10). */
Test(recipes, philox_known_answers)
{
    static const struct {
        uint64_t seed, draw, element;
        int64_t want[4];
    } vectors[] = {
        { 0, 0, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { UINT64_MAX, UINT64_MAX, UINT64_MAX, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { 0x299f31d0a4093822,
          0x0370734413198a2e,
          0x85a308d3243f6a88,
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    recipe_init(&prog);
    const uint32_t seed = recipe_input(&prog, DEFT_I64), draw = recipe_input(&prog, DEFT_I64);
    uint32_t out[4];
    df_recipe_philox(&prog.base, seed, draw, recipe_input(&prog, DEFT_I64), out);
    for (size_t i = 0; i < 3; i++) {
        recipe_run(&prog, 1,
                   (const void *[]){ &vectors[i].seed, &vectors[i].draw, &vectors[i].element });
        for (int k = 0; k < 4; k++)
            cr_assert_eq(*(const int64_t *)recipe_lanes(&prog, out[k]), vectors[i].want[k],
                         "vector %zu word %d", i, k);
    }
    recipe_finish(&prog);
}

static void run_powi(deft_dtype t, const void *x, int32_t exponent, void *y, size_t size)
{
    recipe_init(&prog);
    const uint32_t id = df_recipe_powi(&prog.base, t, recipe_input(&prog, t), exponent);
    recipe_run(&prog, 1, (const void *[]){ x });
    memcpy(y, recipe_lanes(&prog, id), size);
    recipe_finish(&prog);
}

static int32_t powi_i32(int32_t x, int32_t exponent)
{
    int32_t y;
    run_powi(DEFT_I32, &x, exponent, &y, sizeof y);
    return y;
}

static float powi_f32(float x, int32_t exponent)
{
    float y;
    run_powi(DEFT_F32, &x, exponent, &y, sizeof y);
    return y;
}

Test(recipes, powi)
{
    cr_assert_eq(powi_i32(3, 0), 1);
    cr_assert_eq(powi_i32(-3, 5), -243);
    cr_assert_eq(powi_i32(3, 21), (int32_t)10460353203u);
    cr_assert_eq(powi_i32(3, -1), 0);
    cr_assert_eq(powi_i32(2, -32), 0);
    cr_assert_eq(powi_i32(-1, -3), -1);
    cr_assert_eq(powi_i32(-1, INT32_MIN), 1);
    cr_assert_eq(powi_i32(0, -1), 0);
    cr_assert_eq(powi_f32(1.5f, 7), 17.0859375f);
    cr_assert_eq(powi_f32(2, -149), 0x1p-149f);
    cr_assert_eq(powi_f32(-0.f, -3), -INFINITY);
    cr_assert_eq(powi_f32(NAN, 0), 1);
    cr_assert_eq(powi_f32(-2, 127), -0x1p127f);
    double y, x = 3;
    run_powi(DEFT_F64, &x, 33, &y, sizeof y);
    cr_assert_eq(y, 5559060566555523.0);
    uint8_t b = 200, c;
    run_powi(DEFT_U8, &b, 2, &c, sizeof c);
    cr_assert_eq(c, 64);
    int64_t i = -7, k;
    run_powi(DEFT_I64, &i, 13, &k, sizeof k);
    cr_assert_eq(k, -96889010407);
    bool off = false, p;
    run_powi(DEFT_BOOL, &off, 0, &p, sizeof p);
    cr_assert(p);
    run_powi(DEFT_BOOL, &off, 3, &p, sizeof p);
    cr_assert(!p);
}

/* ---- the evaluator means what kops.def says ---- */

static float binary_f32(df_kop op, float x, float y)
{
    recipe_init(&prog);
    const uint32_t a = recipe_input(&prog, DEFT_F32), b = recipe_input(&prog, DEFT_F32);
    const uint32_t id = prog.base.ins(&prog.base, op, DEFT_F32, a, b, 0, 0);
    recipe_run(&prog, 1, (const void *[]){ &x, &y });
    const float z = *(const float *)recipe_lanes(&prog, id);
    recipe_finish(&prog);
    return z;
}

static int32_t binary_i32(df_kop op, int32_t x, int32_t y)
{
    recipe_init(&prog);
    const uint32_t a = recipe_input(&prog, DEFT_I32), b = recipe_input(&prog, DEFT_I32);
    const uint32_t id = prog.base.ins(&prog.base, op, DEFT_I32, a, b, 0, 0);
    recipe_run(&prog, 1, (const void *[]){ &x, &y });
    const int32_t z = *(const int32_t *)recipe_lanes(&prog, id);
    recipe_finish(&prog);
    return z;
}

static int32_t to_i32(float x)
{
    recipe_init(&prog);
    const uint32_t a = recipe_input(&prog, DEFT_F32);
    const uint32_t id = prog.base.ins(&prog.base, DF_K_cast, DEFT_I32, a, 0, 0, 0);
    recipe_run(&prog, 1, (const void *[]){ &x });
    const int32_t z = *(const int32_t *)recipe_lanes(&prog, id);
    recipe_finish(&prog);
    return z;
}

Test(recipes, evaluator)
{
    cr_assert(isnan(binary_f32(DF_K_min, NAN, 1)) && isnan(binary_f32(DF_K_max, 1, NAN)));
    cr_assert(signbit(binary_f32(DF_K_max, 0.f, -0.f)) &&
              !signbit(binary_f32(DF_K_max, -0.f, 0.f)));
    cr_assert_eq(binary_f32(DF_K_rem, -7.5f, 2), -1.5f);
    cr_assert_eq(binary_i32(DF_K_div, INT32_MIN, -1), INT32_MIN);
    cr_assert_eq(binary_i32(DF_K_div, 7, 0), 0);
    cr_assert_eq(binary_i32(DF_K_rem, 7, 0), 7);
    cr_assert_eq(binary_i32(DF_K_rem, -7, -1), 0);
    cr_assert_eq(binary_i32(DF_K_shl, 1, 32), 0);
    cr_assert_eq(binary_i32(DF_K_shl, 1, -1), 0);
    cr_assert_eq(binary_i32(DF_K_shr, -8, 40), -1);
    cr_assert_eq(binary_i32(DF_K_shr, -8, 2), -2);
    cr_assert_eq(binary_i32(DF_K_lshr, -1, 28), 15);
    cr_assert_eq(binary_i32(DF_K_lshr, -1, 32), 0);
    cr_assert_eq(to_i32(NAN), 0);
    cr_assert_eq(to_i32(3e9f), INT32_MAX);
    cr_assert_eq(to_i32(-INFINITY), INT32_MIN);
    cr_assert_eq(to_i32(-1.9f), -1);
}
