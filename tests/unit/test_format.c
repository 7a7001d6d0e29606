/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors as text, against text written by hand.
 */
#include <criterion/criterion.h>

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deft/deft.h"
#include "support/half_ref.h"

static deft_ctx *cx;
static deft_runtime *rt;

static void set_up(void)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    cr_assert_eq(deft_runtime_create(&o, &rt), DEFT_OK);
    cr_assert_eq(deft_ctx_create(rt, NULL, &cx), DEFT_OK);
}

static void tear_down(void)
{
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}

TestSuite(format, .init = set_up, .fini = tear_down);

static void expect(deft_tensor *t, const char *want)
{
    char got[4096];
    size_t length = 0;
    const deft_status st = deft_format(t, got, sizeof got, &length);
    cr_assert_eq(st, DEFT_OK, "%s", deft_message(cx));
    cr_assert_str_eq(got, want);
    cr_assert_eq(length, strlen(want));
}

#define FROM(shape, dtype, ...) deft_from(cx, shape, dtype, __VA_ARGS__, sizeof __VA_ARGS__)

Test(format, each_dtype_has_its_form)
{
    expect(FROM(DEFT_SHAPE(2, 3), DEFT_F32, ((float[]){ 1, 2, 3, 4, 5, 6 })),
           "f32[2,3] [[1, 2, 3], [4, 5, 6]]");
    expect(FROM(DEFT_SHAPE(2), DEFT_BOOL, ((uint8_t[]){ 1, 0 })), "bool[2] [true, false]");
    expect(FROM(DEFT_SHAPE(3), DEFT_U8, ((uint8_t[]){ 0, 7, 255 })), "u8[3] [0, 7, 255]");
    expect(FROM(DEFT_SHAPE(2), DEFT_I32, ((int32_t[]){ INT32_MIN, INT32_MAX })),
           "i32[2] [-2147483648, 2147483647]");
    expect(FROM(DEFT_SHAPE(2), DEFT_I64, ((int64_t[]){ INT64_MIN, INT64_MAX })),
           "i64[2] [-9223372036854775808, 9223372036854775807]");
    expect(FROM(DEFT_SHAPE(1), DEFT_F64, ((double[]){ 0.1 })), "f64[1] [0.1]");
}

Test(format, floats_are_shortest_and_read_back)
{
    expect(FROM(DEFT_SHAPE(6), DEFT_F32,
                ((float[]){ 0.1f, -0.0f, 1e10f, 16777216, 0.333333343f, 1e-45f })),
           "f32[6] [0.1, -0, 1e+10, 16777216, 0.33333334, 1.4013e-45]");
    expect(FROM(DEFT_SHAPE(4), DEFT_F32, ((float[]){ NAN, -NAN, INFINITY, -INFINITY })),
           "f32[4] [nan, nan, inf, -inf]");
    expect(FROM(DEFT_SHAPE(4), DEFT_F64,
                ((double[]){ 1.0 / 3, 5e-324, 1.7976931348623157e308, 123456789 })),
           "f64[4] [0.3333333333333333, 4.94066e-324, 1.7976931348623157e+308, 123456789]");
    expect(FROM(DEFT_SHAPE(3), DEFT_F64, ((double[]){ NAN, INFINITY, -INFINITY })),
           "f64[3] [nan, inf, -inf]");
    uint32_t bits = 1;
    for (int i = 0; i < 2000; i++) {
        bits = bits * 1664525u + 1013904223u;
        float x, back;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x)) continue;
        char text[64];
        cr_assert_eq(deft_format(deft_from(cx, DEFT_SHAPE(), DEFT_F32, &x, sizeof x), text,
                                 sizeof text, NULL),
                     DEFT_OK);
        back = strtof(text + 6, NULL);
        cr_assert_eq(memcmp(&x, &back, sizeof x), 0, "%s", text);
    }
}

Test(format, halves_are_whole_numbers_or_shortest)
{
    expect(FROM(DEFT_SHAPE(8), DEFT_F16,
                ((uint16_t[]){ 0x2E66, 0x3555, 0x7BFF, 0x8001, 0x8000, 0x5640, 0x7C00, 0xFE00 })),
           "f16[8] [0.1, 0.3333, 65504, -6e-08, -0, 100, inf, nan]");
    expect(FROM(DEFT_SHAPE(7), DEFT_BF16,
                ((uint16_t[]){ 0x3DCD, 0x4049, 0x7F7F, 0x0001, 0x47C3, 0xFF80, 0x7F81 })),
           "bf16[7] [0.1, 3.14, 3.39e+38, 9e-41, 99840, -inf, nan]");
    for (uint32_t h = 0; h < 65536; h += 7)
        for (int t = DEFT_F16; t <= DEFT_BF16; t++) {
            const uint16_t bits = (uint16_t)h;
            char text[64];
            cr_assert_eq(deft_format(deft_from(cx, DEFT_SHAPE(), (deft_dtype)t, &bits, 2), text,
                                     sizeof text, NULL),
                         DEFT_OK);
            const double back = strtod(strchr(text, ' '), NULL);
            const uint16_t read = half_bits((deft_dtype)t, back);
            cr_assert(read == bits || isnan(half_value((deft_dtype)t, bits)), "%s", text);
        }
}

Test(format, no_axes_no_elements_long_axes)
{
    expect(deft_full(cx, DEFT_SHAPE(), DEFT_F32, 2.5), "f32[] 2.5");
    expect(deft_zeros(cx, DEFT_SHAPE(0), DEFT_F32), "f32[0] []");
    expect(deft_zeros(cx, DEFT_SHAPE(2, 0), DEFT_I32), "i32[2,0] [[], []]");
    expect(deft_zeros(cx, DEFT_SHAPE(0, 2), DEFT_I32), "i32[0,2] []");
    expect(deft_arange(cx, 0, 8, 1, DEFT_I32), "i32[8] [0, 1, 2, 3, 4, 5, 6, 7]");
    expect(deft_arange(cx, 0, 9, 1, DEFT_I32), "i32[9] [0, 1, 2, ..., 6, 7, 8]");
    expect(deft_reshape(deft_arange(cx, 0, 90, 1, DEFT_I32), DEFT_SHAPE(9, 10)),
           "i32[9,10] [[0, 1, 2, ..., 7, 8, 9], [10, 11, 12, ..., 17, 18, 19], "
           "[20, 21, 22, ..., 27, 28, 29], ..., [60, 61, 62, ..., 67, 68, 69], "
           "[70, 71, 72, ..., 77, 78, 79], [80, 81, 82, ..., 87, 88, 89]]");
    expect(deft_zeros(cx, DEFT_SHAPE(1, 1, 1, 1, 1, 1, 1, 2), DEFT_U8),
           "u8[1,1,1,1,1,1,1,2] [[[[[[[[0, 0]]]]]]]]");
}

Test(format, strides_of_every_kind)
{
    float memory[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    deft_tensor *const w =
        deft_wrap(cx, DEFT_SHAPE(2, 3), DEFT_F32, memory, sizeof memory, (const int64_t[]){ 4, 1 });
    expect(w, "f32[2,3] [[0, 1, 2], [4, 5, 6]]");
    expect(deft_t(w), "f32[3,2] [[0, 4], [1, 5], [2, 6]]");
    expect(deft_slice(w, DEFT_FLIP, DEFT_AT(1)), "f32[2] [5, 1]");
    expect(deft_expand(deft_slice(w, DEFT_AT(0)), DEFT_SHAPE(2, 3)),
           "f32[2,3] [[0, 1, 2], [0, 1, 2]]");
    deft_tensor *const one = deft_wrap(cx, DEFT_SHAPE(12, 2), DEFT_F32, memory, sizeof memory,
                                       (const int64_t[]){ 0, 1 });
    expect(one, "f32[12,2] [[0, 1], [0, 1], [0, 1], ..., [0, 1], [0, 1], [0, 1]]");
}

Test(format, text_is_cut_and_always_ends)
{
    deft_tensor *const t = deft_arange(cx, 0, 3, 1, DEFT_I32);
    char buf[32];
    size_t length = 0;
    for (size_t n = 1; n < 20; n++) {
        memset(buf, 'x', sizeof buf);
        cr_assert_eq(deft_format(t, buf, n, &length), DEFT_OK);
        cr_assert_eq(length, 16);
        cr_assert_eq(strncmp(buf, "i32[3] [0, 1, 2]", n - 1), 0);
        cr_assert_eq(strlen(buf), n - 1 < 16 ? n - 1 : 16);
        cr_assert_eq(buf[n], 'x', "nothing past n is touched");
    }
    cr_assert_eq(deft_format(t, NULL, 0, &length), DEFT_OK);
    cr_assert_eq(length, 16);
    cr_assert_eq(deft_format(t, NULL, 5, &length), DEFT_E_ARG);
    cr_assert_eq(deft_format(t, buf, sizeof buf, NULL), DEFT_OK);
}

Test(format, a_missed_assign_comes_first_and_nothing_else_happens)
{
    char buf[32] = "before";
    cr_assert_eq(deft_format(NULL, buf, sizeof buf, NULL), DEFT_E_ARG);
    deft_tensor *const t = deft_arange(cx, 0, 3, 1, DEFT_I32);
    deft_assign(t, deft_zeros(cx, DEFT_SHAPE(7), DEFT_I32));
    cr_assert_eq(deft_format(t, buf, sizeof buf, NULL), DEFT_E_SHAPE);
    cr_assert_str_empty(buf);
    cr_assert_eq(deft_print(t, NULL), DEFT_E_ARG);
    expect(t, "i32[3] [0, 1, 2]");
}

Test(format, another_locale_changes_nothing)
{
    static const char *const names[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE" };
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
        found = setlocale(LC_ALL, names[i]) != NULL;
    expect(deft_full(cx, DEFT_SHAPE(1), DEFT_F32, 2.5), "f32[1] [2.5]");
    setlocale(LC_ALL, "C");
    if (!found) cr_skip("no locale with another decimal point is installed");
}

Test(format, print_writes_a_line_or_says_why_not)
{
    char *text = NULL;
    size_t n = 0;
    FILE *stream = open_memstream(&text, &n);
    cr_assert(stream);
    cr_assert_eq(deft_print(deft_ones(cx, DEFT_SHAPE(2), DEFT_F32), stream), DEFT_OK);
    fclose(stream);
    cr_assert_str_eq(text, "f32[2] [1, 1]\n");
    free(text);
    stream = fopen("/dev/null", "r");
    cr_assert(stream);
    cr_assert_eq(deft_print(deft_ones(cx, DEFT_SHAPE(2), DEFT_F32), stream), DEFT_E_IO);
    fclose(stream);
}
