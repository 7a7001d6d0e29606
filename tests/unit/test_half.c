/* SPDX-License-Identifier: Apache-2.0
 *
 * base/half.h and the conversions of ops/shape.h against the definition of the formats: every
 * pattern, every tie and its neighbours, in any floating-point state.
 */
#include <criterion/criterion.h>

#include <fenv.h>
#include <float.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "ops/shape.h"
#include "support/half_ref.h"

static const deft_dtype both[] = { DEFT_F16, DEFT_BF16 };

static bool same(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && !signbit(a) == !signbit(b));
}

static bool is_nan(deft_dtype t, uint16_t h)
{
    return isnan(half_value(t, h));
}

static void expect_bits(deft_dtype t, double v, uint16_t got, const char *from)
{
    const uint16_t want = half_bits(t, v);
    cr_assert(got == want || (is_nan(t, got) && isnan(v)), "%s %a to %s: %04x, not %04x", from, v,
              deft_dtype_name(t), got, want);
}

Test(half, every_pattern_is_its_value_and_comes_back)
{
    for (size_t k = 0; k < 2; k++)
        for (uint32_t h = 0; h < 65536; h++) {
            const deft_dtype t = both[k];
            const float v = df_f32_of_half(t, (uint16_t)h);
            cr_assert(same((double)v, half_value(t, (uint16_t)h)), "%s %04x: %a",
                      deft_dtype_name(t), h, (double)v);
            const bool quiet_nan = df_f32_bits(v) & 0x400000u;
            cr_assert(quiet_nan || t == DEFT_BF16 || !is_nan(t, (uint16_t)h), "%04x", h);
            const uint16_t back = df_half_of_f32(t, v);
            const uint16_t quiet = t == DEFT_F16 ? 0x200 : 0x40;
            cr_assert(back == (is_nan(t, (uint16_t)h) ? h | quiet : h), "%s %04x came back as %04x",
                      deft_dtype_name(t), h, back);
        }
}

/* Between neighbours, and at the ends: the tie and what is next to it, in f32 and f64. */
Test(half, ties_and_their_neighbours)
{
    for (size_t k = 0; k < 2; k++)
        for (uint32_t h = 0; h < 32767; h++) {
            const deft_dtype t = both[k];
            const double low = half_value(t, (uint16_t)h), high = half_value(t, (uint16_t)(h + 1));
            if (isnan(high) || isinf(low)) continue;
            const double beyond = low + (low - half_value(t, (uint16_t)(h - 1)));
            const double tie = low + ((isinf(high) ? beyond : high) - low) / 2;
            for (int sign = -1; sign <= 1; sign += 2) {
                const float f = (float)(tie * sign);
                cr_assert((double)f == tie * sign);
                const float fs[] = { f, nextafterf(f, INFINITY), nextafterf(f, -INFINITY) };
                const double d = tie * sign;
                const double ds[] = { d, nextafter(d, (double)INFINITY),
                                      nextafter(d, -(double)INFINITY) };
                for (int i = 0; i < 3; i++) {
                    expect_bits(t, (double)fs[i], df_half_of_f32(t, fs[i]), "f32");
                    expect_bits(t, ds[i], df_half_of_f64(t, ds[i]), "f64");
                }
            }
        }
}

Test(half, floats_of_all_magnitudes)
{
    for (size_t k = 0; k < 2; k++) {
        for (uint64_t b = 0; b <= UINT32_MAX; b += 2099) {
            const float f = df_f32_of_bits((uint32_t)b);
            expect_bits(both[k], (double)f, df_half_of_f32(both[k], f), "f32");
        }
        for (uint64_t i = 0; i < 1000000; i++) {
            const uint64_t b = i * UINT64_C(0x9E3779B97F4A7C15);
            double v;
            memcpy(&v, &b, sizeof v);
            expect_bits(both[k], v, df_half_of_f64(both[k], v), "f64");
        }
        const double odd[] = { DBL_MAX, -DBL_MAX, DBL_MIN,  0x1p-1074, FLT_MAX,  0x1.ffffffp127,
                               0.0,     -0.0,     INFINITY, -INFINITY, 0x1p-149, 0x1.8p-150 };
        for (size_t i = 0; i < DF_LEN(odd); i++)
            expect_bits(both[k], odd[i], df_half_of_f64(both[k], odd[i]), "f64");
    }
}

Test(half, integers_round_once)
{
    for (size_t k = 0; k < 2; k++)
        for (int shift = 0; shift < 63; shift++)
            for (int64_t m = 1; m < 2048; m++)
                for (int64_t by = -1; by <= 1; by++) {
                    if (m >> (63 - shift) || (m << shift) + by < 0) continue;
                    const int64_t v = (m << shift) + by;
                    const uint16_t up = df_half_of_i64(both[k], v);
                    const uint16_t down = df_half_of_i64(both[k], -v);
                    cr_assert(up == half_bits_i(both[k], v), "%lld: %04x", (long long)v, up);
                    cr_assert(down == half_bits_i(both[k], -v), "-%lld: %04x", (long long)v, down);
                }
    cr_assert(df_half_of_i64(DEFT_BF16, INT64_MIN) == 0xDF00);
    cr_assert(df_half_of_i64(DEFT_BF16, INT64_MAX) == 0x5F00);
}

/* In a caller's odd floating-point state nothing changes. Volatile: each call is to be made. */
static volatile uint64_t start;

static uint64_t sum_of_all(void)
{
    uint64_t sum = start;
    for (size_t k = 0; k < 2; k++)
        for (uint32_t h = 0; h < 65536; h++) {
            const float f = df_f32_of_half(both[k], (uint16_t)h);
            const float off = df_f32_of_bits(df_f32_bits(f) + 0x8421u * (h & 1));
            sum = sum * 31 + df_f32_bits(f);
            sum = sum * 31 + df_half_of_f32(both[k], off);
            const uint64_t bits = (h + start) * UINT64_C(0x0001234567894321);
            double v;
            memcpy(&v, &bits, sizeof v);
            sum = sum * 31 + df_half_of_f64(both[k], v);
        }
    return sum;
}

Test(half, the_floating_point_state_does_not_matter)
{
    static const int modes[] = { FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO };
    const uint64_t want = sum_of_all();
    for (size_t i = 0; i < DF_LEN(modes); i++) {
        fesetround(modes[i]);
        const uint64_t got = sum_of_all();
        fesetround(FE_TONEAREST);
        cr_assert(got == want, "rounding mode %d", modes[i]);
    }
#ifdef __SSE2__
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040u); /* denormals are zeros, in and out */
    const uint64_t got = sum_of_all();
    _mm_setcsr(before);
    cr_assert(got == want, "flushing denormals");
#endif
}

#ifdef __FLT16_MANT_DIG__
Test(half, the_compiler_agrees_about_f16)
{
    for (uint64_t b = 0; b <= UINT32_MAX; b += 3001) {
        const float f = df_f32_of_bits((uint32_t)b);
        __extension__ const _Float16 want = (_Float16)f;
        uint16_t bits;
        memcpy(&bits, &want, sizeof bits);
        cr_assert(df_f16_of_f32(f) == bits, "%a", (double)f);
    }
}
#endif
