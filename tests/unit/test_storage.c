/* SPDX-License-Identifier: Apache-2.0
 *
 * Storage dtypes: f8e4m3fn, f8e5m2, e8m0, u4 and i4. Every code becomes its number, and every half
 * its code, beside tables that this file makes from the definitions alone: the code of a number is
 * the nearest of all, found by comparing with each. Then all that moves, takes in and gives out
 * codes, and the sentences of what refuses them.
 *
 * Why this file is long: each public call that takes codes is here once, and they share the tables
 * and the ways to compare.
 */
#include "deft/dlpack.h"
#include "deft/files.h"
#include "support/harness.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define S(...) DEFT_SHAPE(__VA_ARGS__)
#define LEN(a) (sizeof(a) / sizeof *(a))

enum { N_CODES = 256, N_HALVES = 65536 };

static const deft_dtype bytes8[] = { DEFT_F8E4M3FN, DEFT_F8E5M2, DEFT_E8M0 };
static const deft_dtype nibbles[] = { DEFT_U4, DEFT_I4 };

/* ---- the tables ---- */

static double number_of(deft_dtype t, int code)
{
    if (t == DEFT_E8M0) return code == 255 ? (double)NAN : ldexp(1, code - 127);
    const double sign = code < 128 ? 1 : -1;
    const int fraction = t == DEFT_F8E4M3FN ? 8 : 4; /* number of fractions */
    const int bias = t == DEFT_F8E4M3FN ? 7 : 15;
    const int e = code % 128 / fraction, f = code % fraction;
    if (t == DEFT_F8E4M3FN && code % 128 == 127) return copysign(NAN, sign);
    if (t == DEFT_F8E5M2 && e == 31) return f ? copysign(NAN, sign) : sign * (double)INFINITY;
    if (e == 0) return sign * ldexp((double)f / fraction, 1 - bias);
    return sign * ldexp(1 + (double)f / fraction, e - bias);
}

/* The code of x: of the two nearest, the even one. */
static int code_of(deft_dtype t, double x)
{
    const int most = t == DEFT_F8E4M3FN ? 0x7e : t == DEFT_F8E5M2 ? 0x7c : 0xfe;
    if (t == DEFT_E8M0) { /* a tie goes up; so does all between the two least */
        const double m = fabs(x);
        if (!(m < 1.5 * 0x1p127)) return 255;
        int c = 0;
        while (m >= (c ? 1.5 : 1) * ldexp(1, c - 127) && m != ldexp(1, c - 127)) c++;
        return c;
    }
    const int sign = signbit(x) ? 128 : 0;
    if (isnan(x)) return sign | 127;
    int best = 0;
    double least = INFINITY;
    for (int c = 0; c <= most; c++) {
        const double at = c == 0x7c && t == DEFT_F8E5M2 ? 65536 : number_of(t, c);
        const double away = fabs(fmin(fabs(x), 1e30) - at);
        if (away < least || (away == least && c % 2 == 0)) best = c, least = away;
    }
    return sign | best;
}

/* Conversions of RISC-V drop the sign of a NaN, those of f64 to f32 too. */
#ifdef __riscv
enum { KEEPS_SIGN_OF_NAN = 0 };
#else
enum { KEEPS_SIGN_OF_NAN = 1 };
#endif

static bool is_code_of(deft_dtype t, int code, double x)
{
    const bool either = !KEEPS_SIGN_OF_NAN && isnan(x) && t != DEFT_E8M0;
    return code == code_of(t, x) || (either && (code ^ code_of(t, x)) == 128);
}

/* ---- rigs ---- */

static rig r;

static void set_up(void)
{
    rig_open(&r, NULL, NULL);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(storage, .init = set_up, .fini = tear_down);

static deft_tensor *codes(deft_shape s, deft_dtype t, const void *at)
{
    int64_t n = 1;
    if (t == DEFT_U4 || t == DEFT_I4) n = -1;
    for (uint32_t i = 0; i < s.rank; i++)
        n = n < 0 && i + 1 == s.rank ? -n * ((s.dim[i] + 1) / 2) : n * s.dim[i];
    deft_tensor *const out = deft_from(r.cx, s, t, at, (size_t)n);
    cr_assert_not_null(out, "%s", deft_message(r.cx));
    return out;
}

static const uint8_t *all_codes(void)
{
    static uint8_t all[N_CODES];
    for (int i = 0; i < N_CODES; i++) all[i] = (uint8_t)i;
    return all;
}

static void expect_bytes(const char *what, deft_tensor *t, deft_dtype dtype, size_t n,
                         const void *want)
{
    static uint8_t got[N_HALVES];
    cr_assert_not_null(t, "%s: %s", what, deft_message(r.cx));
    cr_assert_eq(deft_dtype_of(t), dtype, "%s: %s", what, deft_dtype_name(deft_dtype_of(t)));
    OK(&r, deft_read(t, dtype, got, n));
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(got[i], ((const uint8_t *)want)[i], "%s: byte %zu is %02x, not %02x", what, i,
                     got[i], ((const uint8_t *)want)[i]);
}
#define BYTES(what, t, dtype, ...)                                                                 \
    expect_bytes(what, t, dtype, sizeof((uint8_t[]){ __VA_ARGS__ }), (uint8_t[]){ __VA_ARGS__ })

/* ---- every code ---- */

static void check_numbers(void)
{
    static float got[N_CODES];
    static uint8_t back[N_CODES];
    for (size_t k = 0; k < LEN(bytes8); k++) {
        const deft_dtype t = bytes8[k];
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const c = codes(S(N_CODES), t, all_codes());
        OK(&r, deft_read(deft_cast(c, DEFT_F32), DEFT_F32, got, sizeof got));
        for (int i = 0; i < N_CODES; i++) {
            const float want = (float)number_of(t, i);
            cr_assert(isnan(want) ? isnan(got[i]) &&
                                        (signbit(got[i]) == signbit(want) || !KEEPS_SIGN_OF_NAN)
                                  : !memcmp(&got[i], &want, sizeof want),
                      "%s %02x is %a, not %a", deft_dtype_name(t), i, (double)got[i], (double)want);
        }
        /* each number becomes its code again; NaNs become one */
        OK(&r, deft_read(deft_cast(deft_cast(c, DEFT_F64), t), t, back, sizeof back));
        for (int i = 0; i < N_CODES; i++)
            cr_assert(isnan(number_of(t, i)) ? is_code_of(t, back[i], (double)got[i])
                                             : back[i] == i,
                      "%s %02x: %02x", deft_dtype_name(t), i, back[i]);
        OK(&r, deft_scope_end(s));
    }
}

Test(storage, every_code_is_its_number)
{
    check_numbers();
    rig_close(&r);
    rig_interpret(&r, 1);
    check_numbers();
}

static void check_halves(deft_dtype from)
{
    static uint16_t all[N_HALVES];
    static float wide[N_HALVES];
    static uint8_t got[N_HALVES];
    for (int i = 0; i < N_HALVES; i++) all[i] = (uint16_t)i;
    for (size_t k = 0; k < LEN(bytes8); k++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const x = deft_from(r.cx, S(N_HALVES), from, all, sizeof all);
        OK(&r, deft_read(x, DEFT_F32, wide, sizeof wide));
        OK(&r, deft_read(deft_cast(x, bytes8[k]), bytes8[k], got, sizeof got));
        for (int i = 0; i < N_HALVES; i++)
            cr_assert(is_code_of(bytes8[k], got[i], (double)wide[i]), "%s %04x: %s %02x, not %02x",
                      deft_dtype_name(from), i, deft_dtype_name(bytes8[k]), got[i],
                      code_of(bytes8[k], (double)wide[i]));
        OK(&r, deft_scope_end(s));
    }
}

Test(storage, every_half_has_the_nearest_code)
{
    check_halves(DEFT_F16);
    check_halves(DEFT_BF16);
    rig_close(&r);
    rig_interpret(&r, 1);
    check_halves(DEFT_F16);
    check_halves(DEFT_BF16);
}

/* Numbers where a rounding may go wrong: the middle between neighbours, what is just beside it, and
 * the ends of f32. */
static size_t hard_numbers(deft_dtype t, double *out)
{
    size_t n = 0;
    const int most = t == DEFT_F8E4M3FN ? 0x7e : t == DEFT_F8E5M2 ? 0x7b : 0xfe;
    const double others[] = { 0,       0x1p-149, 0x1.8p-149, 0x1p-126,  0x1p-128, FLT_MAX,
                              0x1p128, 1e300,    448,        464,       479.99,   480,
                              61440,   57344,    65536,      0x1p-1074, INFINITY, NAN };
    for (int c = 0; c < most; c++) {
        const double low = number_of(t, c), high = number_of(t, c + 1), middle = (low + high) / 2;
        const double some[] = { low,
                                middle,
                                (double)nextafterf((float)middle, INFINITY),
                                (double)nextafterf((float)middle, 0),
                                middle * (1 + 0x1p-50),
                                middle * (1 - 0x1p-50) };
        for (size_t i = 0; i < LEN(some); i++) out[n++] = some[i];
    }
    for (size_t i = 0; i < LEN(others); i++) out[n++] = others[i];
    for (size_t i = 0; i < n; i++) out[n + i] = -out[i];
    return 2 * n;
}

Test(storage, floats_are_rounded_once)
{
    static double x[4096];
    static float narrow[4096];
    static uint8_t got[4096];
    for (size_t k = 0; k < LEN(bytes8); k++) {
        const deft_dtype t = bytes8[k];
        const size_t n = hard_numbers(t, x);
        for (size_t i = 0; i < n; i++) narrow[i] = (float)x[i];
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const f64 = deft_from(r.cx, S((int64_t)n), DEFT_F64, x, n * sizeof *x);
        deft_tensor *const f32 = deft_from(r.cx, S((int64_t)n), DEFT_F32, narrow, n * 4);
        OK(&r, deft_read(deft_cast(f64, t), t, got, n));
        for (size_t i = 0; i < n; i++)
            cr_assert(is_code_of(t, got[i], x[i]), "f64 %a: %s %02x, not %02x", x[i],
                      deft_dtype_name(t), got[i], code_of(t, x[i]));
        OK(&r, deft_read(deft_cast(f32, t), t, got, n));
        for (size_t i = 0; i < n; i++)
            cr_assert(is_code_of(t, got[i], (double)narrow[i]), "f32 %a: %s %02x, not %02x",
                      (double)narrow[i], deft_dtype_name(t), got[i], code_of(t, (double)narrow[i]));
        OK(&r, deft_scope_end(s));
    }
}

Test(storage, the_sign_of_a_nan_is_kept)
{
    const uint32_t nans[] = { 0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff };
    deft_tensor *const x = deft_from(r.cx, S(5), DEFT_F32, nans, sizeof nans);
    BYTES("e4m3fn", deft_cast(x, DEFT_F8E4M3FN), DEFT_F8E4M3FN, 127, 255, 127, 255, 127);
    BYTES("e5m2", deft_cast(x, DEFT_F8E5M2), DEFT_F8E5M2, 127, 255, 127, 255, 127);
    BYTES("e8m0", deft_cast(x, DEFT_E8M0), DEFT_E8M0, 255, 255, 255, 255, 255);
}

Test(storage, integers_and_bools_become_codes)
{
    const int64_t wide[] = { 0, 1, -3, 17, 448, 465, 70000, (int64_t)3 << 40, INT64_MIN };
    const uint8_t truth[] = { 0, 1 };
    deft_tensor *const x = deft_from(r.cx, S(9), DEFT_I64, wide, sizeof wide);
    deft_tensor *const b = deft_from(r.cx, S(2), DEFT_BOOL, truth, sizeof truth);
    for (size_t k = 0; k < LEN(bytes8); k++) {
        uint8_t want[9];
        for (int i = 0; i < 9; i++) want[i] = (uint8_t)code_of(bytes8[k], (double)wide[i]);
        expect_bytes("i64", deft_cast(x, bytes8[k]), bytes8[k], 9, want);
        want[0] = (uint8_t)code_of(bytes8[k], 0);
        want[1] = (uint8_t)code_of(bytes8[k], 1);
        expect_bytes("bool", deft_cast(b, bytes8[k]), bytes8[k], 2, want);
    }
    /* a number keeps all its bits until it is rounded: 1.0625 is the middle of e4m3fn */
    BYTES("number", deft_cast(deft_num(r.cx, 1.0625 + 1e-12), DEFT_F8E4M3FN), DEFT_F8E4M3FN, 0x39);
}

/* ---- two codes in a byte ---- */

static void check_nibbles(void)
{
    static int8_t i8[512];
    static uint8_t u8[512];
    for (size_t k = 0; k < LEN(nibbles); k++) {
        const deft_dtype t = nibbles[k];
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const c = codes(S(2, 256), t, all_codes());
        OK(&r, deft_read(deft_cast(c, DEFT_I8), DEFT_I8, i8, 512));
        for (int i = 0; i < 512; i++) {
            const int code = i / 2 >> 4 * (i % 2) & 15;
            cr_assert_eq(i8[i], t == DEFT_I4 && code > 7 ? code - 16 : code, "%d", i);
        }
        expect_bytes("back", deft_cast(deft_cast(c, DEFT_F32), t), t, 256, all_codes());
        for (int i = 0; i < 512; i++) u8[i] = (uint8_t)(i * 7); /* wraps */
        uint8_t want[256];
        for (int i = 0; i < 256; i++)
            want[i] = (uint8_t)((u8[2 * i] & 15) | (u8[2 * i + 1] & 15) << 4);
        expect_bytes("u8", deft_cast(deft_from(r.cx, S(4, 128), DEFT_U8, u8, 512), t), t, 256,
                     want);
        OK(&r, deft_scope_end(s));
    }
}

Test(storage, two_codes_share_a_byte)
{
    check_nibbles();
    rig_close(&r);
    rig_interpret(&r, 1);
    check_nibbles();
    const float x[] = { -9, -8.9f, -1.5f, 0.99f, 7.9f, 15.9f, 1e9f, NAN };
    deft_tensor *const f = deft_from(r.cx, S(8), DEFT_F32, x, sizeof x);
    BYTES("u4", deft_cast(f, DEFT_U4), DEFT_U4, 0, 0, 0xf7, 0x0f);
    BYTES("i4", deft_cast(f, DEFT_I4), DEFT_I4, 0x88, 0x0f, 0x77, 0x07);
}

Test(storage, a_row_of_an_odd_length_ends_within_a_byte)
{
    const uint8_t x[] = { 0x21, 0xf3, 0x54, 0x06 }; /* 1 2 3 | 4 5 6, and padding */
    deft_tensor *const t = codes(S(2, 3), DEFT_U4, x);
    cr_assert_eq(deft_numel(t), 6);
    cr_assert_eq(deft_dim(t, 1), 3);
    RIG_EXPECT(&r, deft_cast(t, DEFT_F32), 1, 2, 3, 4, 5, 6);
    BYTES("kept", t, DEFT_U4, 0x21, 0xf3, 0x54, 0x06);
    BYTES("padded with 0", deft_cast(deft_cast(t, DEFT_U8), DEFT_U4), DEFT_U4, 0x21, 3, 0x54, 6);
    BYTES("a number", deft_cast(deft_full(r.cx, S(1), DEFT_F32, 5), DEFT_I4), DEFT_I4, 5);
    cr_assert_eq(deft_numel(codes(S(0), DEFT_I4, NULL)), 0);
    RIG_EXPECT(&r, deft_cast(deft_slice(t, DEFT_AT(1)), DEFT_F32), 4, 5, 6);
    RIG_EXPECT(&r, deft_cast(deft_slice(t, DEFT_R(0, 2), DEFT_R(2, 3)), DEFT_F32), 3, 6);
    RIG_EXPECT(&r, deft_cast(deft_slice(t, DEFT_R(0, 2), DEFT_R(0, 2)), DEFT_F32), 1, 2, 4, 5);
    rig_expect_error(&r, deft_slice(codes(S(8), DEFT_U4, x), DEFT_R(0, 3)), DEFT_E_DTYPE,
                     "share a byte");
}

/* ---- moving ---- */

Test(storage, codes_move_as_they_are)
{
    uint8_t x[6] = { 0x7f, 0x80, 0xff, 0x01, 0x7c, 0xfd };
    for (size_t k = 0; k < LEN(bytes8); k++) {
        const deft_dtype t = bytes8[k];
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const m = codes(S(2, 3), t, x);
        const int64_t last_two[] = { 2, 1 }, at[] = { 2, 0, 1 };
        deft_tensor *const i = deft_from(r.cx, S(2), DEFT_I64, last_two, sizeof last_two);
        deft_tensor *const g = deft_from(r.cx, S(1, 3), DEFT_I64, at, sizeof at);
        BYTES("t", deft_t(m), t, 0x7f, 1, 0x80, 0x7c, 0xff, 0xfd);
        BYTES("slice", deft_slice(m, DEFT_AT(1), DEFT_R(1, 3)), t, 0x7c, 0xfd);
        BYTES("flip", deft_flip(m, DEFT_AXES(0)), t, 1, 0x7c, 0xfd, 0x7f, 0x80, 0xff);
        BYTES("reshape", deft_reshape(m, S(3, -1)), t, 0x7f, 0x80, 0xff, 1, 0x7c, 0xfd);
        BYTES("expand", deft_expand(deft_slice(m, DEFT_R(0, 1)), S(2, 3)), t, 0x7f, 0x80, 0xff,
              0x7f, 0x80, 0xff);
        BYTES("diagonal", deft_diagonal(m, 1, 0, 1), t, 0x80, 0xfd);
        BYTES("squeeze", deft_squeeze(deft_unsqueeze(deft_slice(m, DEFT_AT(0)), 0), DEFT_AXES(0)),
              t, 0x7f, 0x80, 0xff);
        BYTES("concat", deft_concat((deft_tensor *[]){ m, m }, 2, 0), t, 0x7f, 0x80, 0xff, 1, 0x7c,
              0xfd, 0x7f, 0x80, 0xff, 1, 0x7c, 0xfd);
        cr_assert_eq(deft_rank(deft_stack((deft_tensor *[]){ m, m }, 2, 0)), 3);
        BYTES("take", deft_take(m, i, 1), t, 0xff, 0x80, 0xfd, 0x7c);
        BYTES("gather", deft_gather(m, g, 1), t, 0xff, 0x7f, 0x80);
        BYTES("embedding", deft_embedding(deft_t(m), i), t, 0xff, 0xfd, 0x80, 0x7c);
        BYTES("roll", deft_roll(m, 1, 1), t, 0xff, 0x7f, 0x80, 0xfd, 1, 0x7c);
        BYTES("repeat", deft_repeat(deft_slice(m, DEFT_AT(0)), 2, 0), t, 0x7f, 0x7f, 0x80, 0x80,
              0xff, 0xff);
        BYTES("cast to itself", deft_cast(m, t), t, 0x7f, 0x80, 0xff, 1, 0x7c, 0xfd);
        deft_tensor *w = deft_keep(deft_cast(deft_zeros(r.cx, S(2, 3), DEFT_F32), t));
        deft_assign(deft_slice(w, DEFT_AT(1)), deft_slice(m, DEFT_AT(0)));
        const uint8_t zero = 0;
        BYTES("assign", w, t, zero, zero, zero, 0x7f, 0x80, 0xff);
        deft_drop(&w);
        OK(&r, deft_scope_end(s));
    }
    rig_expect_error(
        &r,
        deft_concat((deft_tensor *[]){ codes(S(6), DEFT_E8M0, x), codes(S(6), DEFT_F8E5M2, x) }, 2,
                    0),
        DEFT_E_DTYPE, "part 0 is e8m0, part 1 is f8e5m2");
}

Test(storage, bytes_of_two_codes_move_whole)
{
    const uint8_t x[] = { 0x21, 0x43, 0x65, 0x87 }; /* 1 2 3 4 | 5 6 7 8 */
    const int64_t one[] = { 1 };
    deft_tensor *const m = codes(S(2, 4), DEFT_U4, x);
    deft_tensor *const i = deft_from(r.cx, S(1), DEFT_I64, one, sizeof one);
    BYTES("row", deft_slice(m, DEFT_AT(1)), DEFT_U4, 0x65, 0x87);
    BYTES("right", deft_slice(m, DEFT_R(0, 2), DEFT_R(2, 4)), DEFT_U4, 0x43, 0x87);
    BYTES("reshape", deft_reshape(m, S(4, 2)), DEFT_U4, 0x21, 0x43, 0x65, 0x87);
    cr_assert_eq(deft_dim(deft_flatten(m), 0), 8);
    BYTES("permute", deft_permute(deft_reshape(m, S(2, 2, 2)), DEFT_AXES(1, 0, 2)), DEFT_U4, 0x21,
          0x65, 0x43, 0x87);
    BYTES("unsqueeze", deft_squeeze(deft_unsqueeze(m, 1), DEFT_AXES(1)), DEFT_U4, 0x21, 0x43, 0x65,
          0x87);
    BYTES("expand", deft_expand(deft_slice(m, DEFT_R(0, 1)), S(2, 4)), DEFT_U4, 0x21, 0x43, 0x21,
          0x43);
    BYTES("take", deft_take(m, i, 0), DEFT_U4, 0x65, 0x87);
    BYTES("embedding", deft_embedding(m, i), DEFT_U4, 0x65, 0x87);
    BYTES("flip", deft_flip(m, DEFT_AXES(0)), DEFT_U4, 0x65, 0x87, 0x21, 0x43);
    RIG_EXPECT(&r, deft_cast(deft_slice(m, DEFT_R(0, 2), DEFT_R(2, 4)), DEFT_F32), 3, 4, 7, 8);
    deft_tensor *w = deft_keep(deft_cast(deft_zeros(r.cx, S(2, 4), DEFT_F32), DEFT_U4));
    deft_assign(w, deft_slice(m, DEFT_R(1, 2))); /* broadcast over rows */
    deft_assign(deft_slice(w, DEFT_AT(0), DEFT_R(2, 4)), codes(S(2), DEFT_U4, x));
    BYTES("assign", w, DEFT_U4, 0x65, 0x21, 0x65, 0x87);
#define DIVIDES(t) rig_expect_error(&r, t, DEFT_E_DTYPE, "two elements of which share a byte")
    DIVIDES(deft_slice(m, DEFT_R(0, 2), DEFT_R(1, 3)));
    DIVIDES(deft_slice(m, DEFT_R(0, 2), DEFT_AT(2)));
    DIVIDES(deft_slice(m, DEFT_R(0, 2), DEFT_RS(0, 4, 2)));
    DIVIDES(deft_t(m));
    DIVIDES(deft_flip(m, DEFT_AXES(1)));
    DIVIDES(deft_reshape(m, S(8, 1)));
    DIVIDES(deft_unsqueeze(m, 2));
    DIVIDES(deft_squeeze(codes(S(2, 1), DEFT_U4, x), DEFT_AXES(1)));
    DIVIDES(deft_expand(codes(S(2, 1), DEFT_U4, x), S(2, 4)));
    DIVIDES(deft_take(m, i, 1));
    DIVIDES(deft_assign(w, codes(S(1), DEFT_U4, x)));
    DIVIDES(deft_assign(deft_slice(w, DEFT_AT(0)), codes(S(3), DEFT_U4, x)));
    rig_expect_error(&r, deft_from(r.cx, S(), DEFT_U4, x, 1), DEFT_E_LIMIT, "1 to 7");
    rig_expect_error(&r, deft_cast(deft_num(r.cx, 3), DEFT_U4), DEFT_E_LIMIT, "1 to 7");
    deft_drop(&w);
}

Test(storage, bits_are_shown_as_other_dtypes)
{
    const uint8_t x[] = { 0x3f, 0x40, 0xff, 0x00 };
    deft_tensor *const u8 = deft_from(r.cx, S(4), DEFT_U8, x, sizeof x);
    BYTES("u8", deft_bitcast(codes(S(4), DEFT_E8M0, x), DEFT_U8), DEFT_U8, 0x3f, 0x40, 0xff, 0);
    BYTES("f8", deft_bitcast(u8, DEFT_F8E5M2), DEFT_F8E5M2, 0x3f, 0x40, 0xff, 0);
    BYTES("of another", deft_bitcast(deft_bitcast(u8, DEFT_E8M0), DEFT_F8E4M3FN), DEFT_F8E4M3FN,
          0x3f, 0x40, 0xff, 0);
    deft_tensor *const u4 = deft_bitcast(u8, DEFT_U4);
    cr_assert_eq(deft_dim(u4, 0), 8);
    BYTES("u4", u4, DEFT_U4, 0x3f, 0x40, 0xff, 0);
    BYTES("i4", deft_bitcast(u4, DEFT_I4), DEFT_I4, 0x3f, 0x40, 0xff, 0);
    BYTES("u8 again", deft_bitcast(u4, DEFT_U8), DEFT_U8, 0x3f, 0x40, 0xff, 0);
    uint32_t word;
    OK(&r, deft_read(deft_bitcast(u4, DEFT_U32), DEFT_U32, &word, sizeof word));
    cr_assert_eq(word, 0x00ff403f);
    BYTES("of f16", deft_bitcast(deft_bitcast(u8, DEFT_F16), DEFT_F8E5M2), DEFT_F8E5M2, 0x3f, 0x40,
          0xff, 0);
    rig_expect_error(&r, deft_bitcast(codes(S(3), DEFT_U4, x), DEFT_U8), DEFT_E_DTYPE,
                     "its rows end within a byte");
    rig_expect_error(&r, deft_bitcast(u8, DEFT_C64), DEFT_E_DTYPE, "not for c64");
}

/* ---- what is refused ---- */

#define CALLS(X)                                                                                   \
    X(deft_add(x, x))                                                                              \
    X(deft_add(x, 1))                                                                              \
    X(deft_add(f, x))                                                                              \
    X(deft_rsub(x, 2.0))                                                                           \
    X(deft_eq(x, x))                                                                               \
    X(deft_lt(f, x))                                                                               \
    X(deft_exp(x))                                                                                 \
    X(deft_neg(x))                                                                                 \
    X(deft_isnan(x))                                                                               \
    X(deft_conj(x))                                                                                \
    X(deft_real(x))                                                                                \
    X(deft_fma(f, f, x))                                                                           \
    X(deft_where(deft_lt(f, 2), x, x))                                                             \
    X(deft_where(x, f, f))                                                                         \
    X(deft_sum(x, DEFT_ALL_AXES, 0))                                                               \
    X(deft_max(x, DEFT_ALL_AXES, 0))                                                               \
    X(deft_mean(x, DEFT_ALL_AXES, 0))                                                              \
    X(deft_var(x, DEFT_ALL_AXES, 0, 0))                                                            \
    X(deft_std(x, DEFT_ALL_AXES, 0, 0))                                                            \
    X(deft_any(x, DEFT_ALL_AXES, 0))                                                               \
    X(deft_argmax(x, DEFT_AXES(0), 0))                                                             \
    X(deft_cumsum(x, 0))                                                                           \
    X(deft_sort(x, 0, 0))                                                                          \
    X(deft_matmul(x, x))                                                                           \
    X(deft_matmul(f, x))                                                                           \
    X(deft_softmax(x, 0))                                                                          \
    X(deft_tril(x, 0))                                                                             \
    X(deft_clamp(x, 0, 1))                                                                         \
    X(deft_count_nonzero(x, DEFT_ALL_AXES, 0))                                                     \
    X(deft_vector_norm(x, 2, DEFT_ALL_AXES, 0))                                                    \
    X(deft_diff(x, 1, 0, NULL, NULL))                                                              \
    X(deft_zeros_like(x))                                                                          \
    X(deft_full_like(x, 1))                                                                        \
    X(deft_view_as_real(x))                                                                        \
    X(deft_scatter_add(x, deft_cast(f, DEFT_I64), x, 0))                                           \
    X(deft_assign(y, 1.0))                                                                         \
    X(deft_assign(y, f))                                                                           \
    X(deft_assign(f, y))                                                                           \
    X(deft_zeros(r.cx, S(2), t))                                                                   \
    X(deft_ones(r.cx, S(2), t))                                                                    \
    X(deft_full(r.cx, S(2), t, 1))                                                                 \
    X(deft_arange(r.cx, 0., 4., 1., t))                                                            \
    X(deft_eye(r.cx, 2, 2, t))                                                                     \
    X(deft_uniform(r.cx, &rng, S(2), t, 0, 1))                                                     \
    X(deft_one_hot(deft_cast(f, DEFT_I32), 3, t))                                                  \
    X(deft_concat((deft_tensor *[]){ x, f }, 2, 0))

/* The call made nothing, and its sentence names the dtype. */
static void check_refused(const char *call, deft_dtype t, const deft_tensor *made)
{
    cr_assert_null(made, "%s made a tensor of %s", call, deft_dtype_name(t));
    cr_assert(strstr(deft_message(r.cx), deft_dtype_name(t)), "%s with %s: %s", call,
              deft_dtype_name(t), deft_message(r.cx));
    cr_assert(strstr(deft_message(r.cx), "cast"), "%s with %s: %s", call, deft_dtype_name(t),
              deft_message(r.cx));
    deft_clear(r.cx);
}

Test(storage, arithmetic_is_refused_with_a_sentence)
{
    const uint8_t bytes[] = { 1, 2, 3, 4 };
    deft_rng rng = { .seed = 3 };
    for (deft_dtype t = DEFT_F8E4M3FN; t < DEFT_N_DTYPES; t = (deft_dtype)(t + 1)) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const x = codes(S(2, 2), t, bytes), *const y = codes(S(2, 2), t, bytes);
        deft_tensor *const f = deft_full(r.cx, S(2, 2), DEFT_F32, 1);
#define X(call) check_refused(#call, t, call);
        CALLS(X)
#undef X
        deft_clear(r.cx);
        OK(&r, deft_scope_end(s));
        deft_clear(r.cx);
    }
    deft_tensor *const x = codes(S(2, 2), DEFT_F8E5M2, bytes);
    rig_expect_error(&r, deft_add(x, 1), DEFT_E_DTYPE,
                     "add: the first argument is f8e5m2, which only stores numbers: cast it to f32 "
                     "with deft_cast first");
    rig_expect_error(&r, deft_cast(deft_zeros(r.cx, S(2), DEFT_C64), DEFT_E8M0), DEFT_E_DTYPE,
                     "take deft_real");
    float got[4];
    cr_assert_eq(deft_read(x, DEFT_F32, got, sizeof got), DEFT_E_DTYPE);
    cr_assert(strstr(deft_message(r.cx), "f8e5m2 as f32: cast it"), "%s", deft_message(r.cx));
    cr_assert_eq(deft_read(x, DEFT_U8, (void *)got, 4), DEFT_E_DTYPE);
    cr_assert_eq(deft_item_f32(deft_slice(x, DEFT_AT(0), DEFT_AT(0)), got), DEFT_E_DTYPE);
    deft_view view;
    cr_assert_eq(deft_map_view(x, ~0u, false, &view), DEFT_E_DTYPE);
    cr_assert_eq(deft_save_npy(x, "/tmp/none.npy"), DEFT_E_DTYPE);
    cr_assert(strstr(deft_message(r.cx), "cast"), "%s", deft_message(r.cx));
    cr_assert_eq(deft_save_npz(r.cx, "/tmp/none.npz", (deft_named[]){ { "x", x } }, 1),
                 DEFT_E_DTYPE);
    cr_assert(strstr(deft_message(r.cx), "npy has no f8e5m2"), "%s", deft_message(r.cx));
}

Test(storage, they_promote_with_nothing)
{
    for (int a = DEFT_F8E4M3FN; a < DEFT_N_DTYPES; a++)
        for (int b = 0; b < DEFT_N_DTYPES; b++) {
            cr_assert_eq((int)deft_promote((deft_dtype)a, (deft_dtype)b),
                         a == b ? a : DEFT_N_DTYPES);
            cr_assert_eq(deft_can_cast((deft_dtype)b, (deft_dtype)a), a == b);
        }
    cr_assert_not(deft_isdtype(DEFT_F8E5M2, ~0u));
    cr_assert_str_eq(deft_dtype_name(DEFT_F8E4M3FN), "f8e4m3fn");
    cr_assert_str_eq(deft_dtype_name(DEFT_I4), "i4");
    cr_assert_eq(deft_dtype_size(DEFT_E8M0), 1);
    cr_assert_eq(deft_dtype_size(DEFT_U4), 1);
    const uint8_t x[2] = { 0 };
    deft_tensor *const two[] = { codes(S(2), DEFT_E8M0, x), deft_num(r.cx, 1.5) };
    cr_assert_eq(deft_result_type(two, 2), DEFT_N_DTYPES);
}

/* ---- memory and files ---- */

Test(storage, memory_of_the_caller_is_wrapped)
{
    uint8_t x[] = { 0x21, 0x43, 0x65, 0x87, 0xa9, 0xcb, 0xed, 0x0f };
    deft_tensor *const f8 =
        deft_wrap(r.cx, S(2, 3), DEFT_F8E4M3FN, x, sizeof x, (int64_t[]){ 4, 1 });
    BYTES("with gaps", f8, DEFT_F8E4M3FN, 0x21, 0x43, 0x65, 0xa9, 0xcb, 0xed);
    deft_tensor *const u4 = deft_wrap(r.cx, S(2, 3), DEFT_U4, x, 6, (int64_t[]){ 8, 1 });
    RIG_EXPECT(&r, deft_cast(u4, DEFT_F32), 1, 2, 3, 9, 10, 11);
    BYTES("rows in whole bytes", u4, DEFT_U4, 0x21, 0x43, 0xa9, 0xcb);
    rig_expect_error(&r, deft_wrap(r.cx, S(2, 3), DEFT_U4, x, 6, (int64_t[]){ 3, 1 }), DEFT_E_ARG,
                     "others are even");
    rig_expect_error(&r, deft_wrap(r.cx, S(4), DEFT_U4, x, 8, (int64_t[]){ 2 }), DEFT_E_ARG,
                     "of the last axis is 1");
    rig_expect_error(&r, deft_wrap(r.cx, S(2, 4), DEFT_I4, x, 3, NULL), DEFT_E_RANGE, "needs 4");
    rig_expect_error(&r, deft_from(r.cx, S(2, 3), DEFT_I4, x, 3), DEFT_E_ARG, "needs 4 bytes");
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const w = deft_wrap_mut(r.cx, S(8), DEFT_U4, x, 4, NULL);
    deft_assign(deft_slice(w, DEFT_R(2, 4)), deft_cast(RIG_VECTOR(&r, 5, 6), DEFT_U4));
    OK(&r, deft_step_end(s));
    cr_assert_eq(x[1], 0x65);
    deft_mapped m;
    OK(&r, deft_map(deft_cast(RIG_VECTOR(&r, 1, -2), DEFT_F8E4M3FN), &m));
    cr_assert_eq(m.bytes, 2);
    cr_assert_eq(((const uint8_t *)m.data)[1], 0xc0);
    deft_unmap(&m);
}

static void expect_text(deft_tensor *t, const char *want)
{
    char text[256];
    OK(&r, deft_format(t, text, sizeof text, NULL));
    cr_assert_str_eq(text, want);
}

Test(storage, numbers_are_printed)
{
    const uint8_t x[] = { 0x01, 0x7e, 0x7f, 0x80, 0xb8, 0x7c, 0xfc, 0x38 };
    expect_text(codes(S(2, 4), DEFT_F8E4M3FN, x),
                "f8e4m3fn[2,4] [[0.001953125, 448, nan, -0], [-1, 384, -384, 1]]");
    expect_text(codes(S(8), DEFT_F8E5M2, x),
                "f8e5m2[8] [1.5258789e-05, nan, nan, -0, -0.5, inf, -inf, 0.5]");
    expect_text(codes(S(3), DEFT_E8M0, (uint8_t[]){ 127, 255, 120 }),
                "e8m0[3] [1, nan, 0.0078125]");
    expect_text(codes(S(2, 3), DEFT_U4, x), "u4[2,3] [[1, 0, 14], [15, 7, 0]]");
    expect_text(codes(S(4), DEFT_I4, x), "i4[4] [1, 0, -2, 7]");
    expect_text(deft_slice(codes(S(2, 4), DEFT_I4, x), DEFT_R(0, 2), DEFT_R(2, 4)),
                "i4[2,2] [[-2, 7], [0, -8]]");
}

Test(storage, files_of_safetensors_hold_them)
{
    char dir[] = "/tmp/deft-storage-XXXXXX", path[64];
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/codes", dir);
    deft_named list[4], back[4];
    for (size_t k = 0; k < LEN(bytes8); k++) {
        const char *const name = deft_dtype_name(bytes8[k]);
        list[k] = (deft_named){ name, codes(S(2, 3), bytes8[k], all_codes() + 0x7d) };
        back[k] = (deft_named){ name, codes(S(2, 3), bytes8[k], all_codes()) };
    }
    const float _Complex z[2] = { 1, 2 }, none[2] = { 0 };
    list[3] = (deft_named){ "z", deft_from(r.cx, S(2), DEFT_C64, z, sizeof z) };
    back[3] = (deft_named){ "z", deft_from(r.cx, S(2), DEFT_C64, none, sizeof none) };
    OK(&r, deft_save(r.cx, path, list, 4));
    OK(&r, deft_load(r.cx, path, back, 4));
    for (size_t k = 0; k < LEN(bytes8); k++)
        expect_bytes("loaded", back[k].tensor, bytes8[k], 6, all_codes() + 0x7d);
    float _Complex got[2];
    OK(&r, deft_read(back[3].tensor, DEFT_C64, got, sizeof got));
    cr_assert_arr_eq(got, z, sizeof z);
    deft_file *f;
    OK(&r, deft_file_open(r.cx, path, &f));
    cr_assert_eq(deft_file_count(f), 4);
    for (size_t k = 0; k < LEN(bytes8); k++) {
        const char *const name = deft_dtype_name(bytes8[k]);
        expect_bytes("file_load", deft_file_load(f, name), bytes8[k], 6, all_codes() + 0x7d);
        expect_bytes("file_map", deft_file_map(f, name), bytes8[k], 6, all_codes() + 0x7d);
    }
    OK(&r, deft_read(deft_file_load(f, "z"), DEFT_C64, got, sizeof got));
    cr_assert_arr_eq(got, z, sizeof z);
    deft_file_close(&f);
    const deft_named u4 = { "w", codes(S(4), DEFT_U4, all_codes()) };
    cr_assert_eq(deft_save(r.cx, path, &u4, 1), DEFT_E_DTYPE);
    cr_assert(strstr(deft_message(r.cx), "\"w\" is u4, for which the format has no name: save "
                                         "deft_bitcast of it to u8"),
              "%s", deft_message(r.cx));
    unlink(path);
    rmdir(dir);
}

Test(storage, dlpack_has_them_where_they_are)
{
    static const struct {
        deft_dtype t;
        uint8_t code, bits;
    } rows[] = { { DEFT_F8E4M3FN, 10, 8 },
                 { DEFT_F8E5M2, 12, 8 },
                 { DEFT_E8M0, 14, 8 },
                 { DEFT_U4, 1, 4 },
                 { DEFT_I4, 0, 4 } };
    for (size_t k = 0; k < LEN(rows); k++) {
        deft_tensor *x = deft_keep(codes(S(2, 6), rows[k].t, all_codes() + 0x70));
        struct DLManagedTensorVersioned *m;
        OK(&r, deft_to_dlpack(x, 0, &m));
        deft_dlpack_versioned *const v = (void *)m;
        cr_assert_eq(v->tensor.code, rows[k].code);
        cr_assert_eq(v->tensor.bits, rows[k].bits);
        cr_assert_eq(v->tensor.lanes, 1);
        cr_assert_eq(v->tensor.shape[1], 6);
        cr_assert_eq(v->tensor.strides[0], 6);
        const void *const data = v->tensor.data;
        deft_tensor *const y = deft_from_dlpack(r.cx, m, 0);
        expect_bytes("back", y, rows[k].t, rows[k].bits == 4 ? 6 : 12, all_codes() + 0x70);
        deft_mapped at;
        OK(&r, deft_map(y, &at));
        cr_assert_eq(at.data, data, "%s was copied", deft_dtype_name(rows[k].t));
        deft_unmap(&at);
        deft_drop(&x);
    }
    struct DLManagedTensorVersioned *m;
    deft_tensor *const odd = codes(S(2, 3), DEFT_U4, all_codes());
    cr_assert_eq(deft_to_dlpack(odd, 0, &m), DEFT_E_DTYPE);
    cr_assert(strstr(deft_message(r.cx), "end within a byte"), "%s", deft_message(r.cx));
    /* rows that end within a byte, gaps, and elements in bytes of their own */
    static int64_t shape[] = { 2, 3 }, strides[] = { 6, 1 };
    static uint8_t bytes[] = { 0x21, 0x43, 0x65, 0x87, 0xa9, 0xcb };
    static deft_dlpack_versioned in, back; /* the tensors outlive this function */
    in = (deft_dlpack_versioned){ .major = 1,
                                  .tensor = { .data = bytes,
                                              .device_type = 1,
                                              .ndim = 2,
                                              .code = 1,
                                              .bits = 4,
                                              .lanes = 1,
                                              .shape = shape } };
    rig_expect_error(&r, deft_from_dlpack(r.cx, (void *)&in, 0), DEFT_E_DTYPE, "end within a byte");
    in.flags = 4;
    rig_expect_error(&r, deft_from_dlpack(r.cx, (void *)&in, 0), DEFT_E_DTYPE, "byte of its own");
    in.flags = 0;
    in.tensor.strides = strides;
    RIG_EXPECT(&r, deft_cast(deft_from_dlpack(r.cx, (void *)&in, 0), DEFT_F32), 1, 2, 3, 7, 8, 9);
    back = in;
    back.deleter = NULL;
    strides[0] = -6;
    back.tensor.data = bytes + 3;
    RIG_EXPECT(&r, deft_cast(deft_from_dlpack(r.cx, (void *)&back, 0), DEFT_F32), 7, 8, 9, 1, 2, 3);
}

/* ---- whole programs ---- */

/* Weights of 4 bits with a scale for each row. */
static deft_status dequantize(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(deft_cast(in[0], DEFT_F32), deft_cast(in[1], DEFT_F32));
    return DEFT_OK;
}

static deft_status narrow(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_cast(deft_mul(deft_cast(in[0], DEFT_F32), 2), *(const deft_dtype *)user);
    return DEFT_OK;
}

Test(storage, captures_loops_and_vmap_take_codes)
{
    const uint8_t x[] = { 0x21, 0x43, 0x65, 0x07 };
    const uint8_t scale[] = { 127, 128 };
    deft_tensor *in[2] = { deft_keep(codes(S(2, 3), DEFT_U4, x)),
                           deft_keep(codes(S(2, 1), DEFT_E8M0, scale)) };
    deft_tensor *out = NULL;
    cr_assert(deft_vmap(r.cx, dequantize, NULL, in, NULL, 2, &out, NULL, 1), "%s",
              deft_message(r.cx));
    RIG_EXPECT(&r, out, 1, 2, 3, 10, 12, 14);
    deft_capture *c = deft_capture_create(r.cx, dequantize, NULL);
    for (int k = 0; k < 3; k++) {
        OK(&r, deft_capture_call(c, in, 2, &out, 1));
        RIG_EXPECT(&r, out, 1, 2, 3, 10, 12, 14);
    }
    deft_tensor *const even[2] = { codes(S(2, 4), DEFT_U4, x), in[1] };
    OK(&r, deft_capture_call(c, even, 2, &out, 1)); /* as many bytes, and another face */
    RIG_EXPECT(&r, out, 1, 2, 3, 4, 10, 12, 14, 0);
    deft_capture_destroy(&c);
    for (deft_dtype t = DEFT_F8E4M3FN; t < DEFT_N_DTYPES; t = (deft_dtype)(t + 1)) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const m = deft_cast(deft_reshape(RIG_VECTOR(&r, 1, 2, 0.5f, 3), S(2, 2)), t);
        deft_tensor *const want = deft_mul(deft_cast(m, DEFT_F32), 2);
        float numbers[4];
        rig_read(&r, deft_cast(deft_cast(want, t), DEFT_F32), numbers, 4);
        cr_assert(deft_vmap(r.cx, narrow, &t, &m, NULL, 1, &out, NULL, 1), "%s",
                  deft_message(r.cx));
        cr_assert_eq(deft_dtype_of(out), t);
        rig_expect(&r, deft_cast(out, DEFT_F32), 4, numbers);
        cr_assert(deft_scan(r.cx, narrow, &t, &m, 1, NULL, 0, 3, 0, &out), "%s",
                  deft_message(r.cx));
        cr_assert_eq(deft_dtype_of(out), t);
        OK(&r, deft_eval(&out, 1));
        OK(&r, deft_scope_end(s));
    }
    rig_expect_error(
        &r, deft_vmap(r.cx, dequantize, NULL, in, (int[]){ 1, 1 }, 2, &out, NULL, 1) ? in[0] : NULL,
        DEFT_E_DTYPE, "share a byte");
    deft_drop(&in[0]);
    deft_drop(&in[1]);
}

Test(storage, a_chain_is_one_kernel)
{
    static float got[1024], want[1024];
    deft_tensor *x = deft_keep(deft_sin(rig_range(&r, 1024, 0)));
    rig_read(&r, x, want, 1024);
    for (int i = 0; i < 1024; i++)
        want[i] = (float)number_of(DEFT_F8E4M3FN, code_of(DEFT_F8E4M3FN, (double)want[i])) + 1;
    const deft_stats before = rig_stats(&r);
    deft_tensor *const y = deft_add(deft_cast(deft_cast(x, DEFT_F8E4M3FN), DEFT_F32), 1);
    rig_read(&r, y, got, 1024);
    cr_assert_eq(rig_stats(&r).launches - before.launches, 1);
    cr_assert_arr_eq(got, want, sizeof want);
    deft_drop(&x);
}

Test(storage, gradients_end_at_codes)
{
    deft_tensor *x = deft_keep(RIG_VECTOR(&r, 1, 2, 3));
    deft_tensor *const q = deft_cast(deft_cast(x, DEFT_F8E5M2), DEFT_F32);
    RIG_EXPECT(&r, rig_grad_of_sum(deft_mul(q, x), x), 1, 2, 3);
    /* the estimator that goes straight through */
    deft_tensor *const through = deft_add(x, deft_stop_gradient(deft_sub(q, x)));
    RIG_EXPECT(&r, rig_grad_of_sum(deft_mul(through, through), x), 2, 4, 6);
    deft_drop(&x);
}
