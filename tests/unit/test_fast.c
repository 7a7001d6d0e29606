/* SPDX-License-Identifier: Apache-2.0
 *
 * Fast mode: how far it may be from the strict result, and that infinities, zeros and NaN come out
 * as in strict mode all the same.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include "deft/deft.h"

enum { N = 1 << 16, SPECIAL = 10 };

typedef deft_tensor *(*build_fn)(deft_tensor *x, deft_tensor *y);

static deft_runtime *rt;
static deft_ctx *cx[2]; /* strict, fast */
static float x[N], y[N], got[2][N];

/* Bits of a linear congruential sequence: every exponent but those of denormals and of infinity,
 * or, in every other element, magnitudes from 2^-27 to 2^36. */
static void fill(void)
{
    static const float special[SPECIAL] = { 0,   -0.0f,  INFINITY, -INFINITY, NAN,
                                            1.f, 1e-40f, -1e-40f,  3e38f,     -3e38f };
    uint64_t state = 7;
    for (int i = 0; i < N; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint32_t bits = (uint32_t)(state >> 32);
        const uint32_t narrow = (bits & 0x80ffffff) | (100 + (bits >> 24 & 63)) << 23;
        const uint32_t wide = (bits & 0x80ffffff) | (1 + (bits >> 23) % 252) << 23;
        memcpy(&x[i], i % 2 ? &narrow : &wide, sizeof x[i]);
        y[i] = 1 + (float)(bits % 1000) / 500;
    }
    memcpy(x, special, sizeof special);
}

static void set_up(void)
{
    const deft_runtime_options o = { .size = sizeof o, .n_threads = 1, .tier = DEFT_TIER_FULL };
    cr_assert_eq(deft_runtime_create(&o, &rt), DEFT_OK);
    for (int fast = 0; fast < 2; fast++) {
        const deft_ctx_options c = { .size = sizeof c, .numerics = fast ? DEFT_FAST : DEFT_STRICT };
        cr_assert_eq(deft_ctx_create(rt, &c, &cx[fast]), DEFT_OK);
    }
    fill();
}

static void tear_down(void)
{
    for (int i = 0; i < 2; i++) deft_ctx_destroy(&cx[i]);
    deft_runtime_destroy(&rt);
}

TestSuite(fast, .init = set_up, .fini = tear_down);

static deft_tensor *over(deft_tensor *a, deft_tensor *b)
{
    return deft_div(b, a);
}

static deft_tensor *root(deft_tensor *a, deft_tensor *b)
{
    (void)b;
    return deft_sqrt(a);
}

static deft_tensor *over_root(deft_tensor *a, deft_tensor *b)
{
    return deft_div(b, deft_sqrt(a));
}

static deft_tensor *sigmoid(deft_tensor *a, deft_tensor *b)
{
    (void)b;
    return deft_sigmoid(a);
}

static deft_tensor *gelu(deft_tensor *a, deft_tensor *b)
{
    (void)b;
    return deft_gelu(a);
}

static deft_tensor *erfc_of(deft_tensor *a, deft_tensor *b)
{
    (void)b;
    return deft_erfc(a);
}

static deft_tensor *tanh_of(deft_tensor *a, deft_tensor *b)
{
    return deft_mul(deft_tanh(a), b);
}

/* Whether a division by x is one by zero: fast mode takes divisors below 2^-126 for 0. */
static bool is_tiny(float v)
{
    return v != 0 && fabsf(v) < 0x1p-126f;
}

static void check(const char *name, build_fn build, double max_ulp, double floor, bool divides)
{
    for (int fast = 0; fast < 2; fast++) {
        deft_tensor *const a = deft_from(cx[fast], DEFT_SHAPE(N), DEFT_F32, x, sizeof x);
        deft_tensor *const b = deft_from(cx[fast], DEFT_SHAPE(N), DEFT_F32, y, sizeof y);
        cr_assert_eq(deft_read(build(a, b), DEFT_F32, got[fast], sizeof got[fast]), DEFT_OK, "%s",
                     deft_message(cx[fast]));
    }
    for (int i = 0; i < N; i++) {
        const float want = got[0][i], have = got[1][i];
        if (divides && is_tiny(x[i])) continue;
        cr_assert_eq(isnan(want), isnan(have), "%s(%a): %a, strict %a", name, (double)x[i],
                     (double)have, (double)want);
        if (isnan(want) || want == have) continue;
        cr_assert(!isinf(want) && !isinf(have), "%s(%a): %a, strict %a", name, (double)x[i],
                  (double)have, (double)want);
        const double ulp = fmax(fabs((double)want) * 0x1p-23, floor);
        cr_assert_leq(fabs((double)want - (double)have), max_ulp * ulp, "%s(%a): %a, strict %a",
                      name, (double)x[i], (double)have, (double)want);
    }
}

Test(fast, is_near_strict_and_has_the_same_infinities_and_nans)
{
    check("div", over, 2, 0, true);
    check("sqrt", root, 2, 0, false);
    check("div by sqrt", over_root, 3, 0, false);
    check("sigmoid", sigmoid, 4, 0x1p-126, false);
    check("tanh", tanh_of, 4, 0x1p-126, false);
    check("erfc", erfc_of, 8, 0x1p-126, false);
    check("gelu", gelu, 8, 0x1p-124, false);
}
