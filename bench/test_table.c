/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of peers describes inputs as table.h says, draws the same elements from the same seed,
 * and notices outputs that differ.
 */
#include "table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int n_faults;

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) printf("%d: not %s\n", __LINE__, #x), n_faults++;                                \
    } while (0)

static const int64_t sizes[TABLE_SIZES] = { 6, 50, 7 };

static const char *why_not(const char *text)
{
    table_inputs t;
    table_inputs_make(&t, text, sizes, 1);
    const char *const why = t.why;
    table_inputs_free(&t);
    return why;
}

static void texts_are_read(void)
{
    char text[128];
    table_inputs t;
    table_inputs_make(&t, "f32 ab *b!; i32 - <c; bf16 3a", sizes, 1);
    CHECK(!t.why && t.n == 3 && t.n_states == 1);
    table_inputs_text(&t, text, sizeof text);
    CHECK(!strcmp(text, "f32:6x50! i32: bf16:3x6"));
    table_inputs_free(&t);
    CHECK(why_not("f32 ax") && why_not("f33 a") && why_not("f32 a ?") && why_not("f32 a <f"));
    CHECK(why_not("u8 a") && why_not("f32 a; f32 b !") && !why_not(""));
}

static void elements_are_of_their_kind(void)
{
    table_inputs t;
    table_inputs_make(&t, "i32 ab <c; f32 ab +; f32 ab 0; f32 bb *b", sizes, 1);
    const int32_t *const i = t.at[0].data;
    const float *const positive = t.at[1].data, *const zero = t.at[2].data;
    const float *const weight = t.at[3].data;
    double square = 0;
    bool has_least = false, has_greatest = false;
    for (int k = 0; k < 300; k++) {
        CHECK(i[k] >= 0 && i[k] < 7 && positive[k] >= 0.1f && positive[k] <= 1.1f && zero[k] == 0);
        has_least |= i[k] == 0, has_greatest |= i[k] == 6;
    }
    for (int k = 0; k < 2500; k++) square += (double)weight[k] * (double)weight[k];
    CHECK(has_least && has_greatest && fabs(square / 2500 * 50 - 1) < 0.2);
    table_inputs_free(&t);
}

/* Halves are the nearest to the f32 that the same seed gives. */
static void halves_are_rounded(void)
{
    table_inputs t, f;
    table_inputs_make(&f, "f32 ab", sizes, 9);
    table_inputs_make(&t, "bf16 ab", sizes, 9);
    for (int k = 0; k < 300; k++) {
        const uint32_t bits = (uint32_t)((const uint16_t *)t.at[0].data)[k] << 16;
        float half;
        memcpy(&half, &bits, sizeof half);
        const float x = ((const float *)f.at[0].data)[k];
        CHECK(fabsf(half - x) <= fabsf(x) * 0x1p-8f);
    }
    table_inputs_free(&t);
    table_inputs_make(&t, "f16 ab", sizes, 9);
    for (int k = 0; k < 300; k++) {
        const uint16_t h = ((const uint16_t *)t.at[0].data)[k];
        const double magnitude = ldexp(1024 + (h & 1023), (h >> 10 & 31) - 25);
        const double x = ((const float *)f.at[0].data)[k];
        CHECK(h == 0 || fabs((h >> 15 ? -magnitude : magnitude) - x) <= fabs(x) * 0x1p-11);
    }
    table_inputs_free(&t);
    table_inputs_free(&f);
}

static void seeds_decide(void)
{
    table_inputs a, b, c;
    table_inputs_make(&a, "f32 ab; f32 ab", sizes, 5);
    table_inputs_make(&b, "f32 ab; f32 ab", sizes, 5);
    table_inputs_make(&c, "f32 ab; f32 ab", sizes, 6);
    CHECK(!memcmp(a.at[1].data, b.at[1].data, a.at[1].bytes));
    CHECK(memcmp(a.at[1].data, c.at[1].data, a.at[1].bytes));
    CHECK(memcmp(a.at[0].data, a.at[1].data, a.at[0].bytes));
    table_inputs_free(&a), table_inputs_free(&b), table_inputs_free(&c);
}

/* Two outputs: the second is small, and differs where it is small. */
static void differences_are_noticed(void)
{
    double r[] = { 100, -100, 1e-3, 1e-3 }, v[] = { 100, -100, 1e-3, 1.1e-3 };
    const table_outputs a = { v, 2, { 2, 2 } }, b = { r, 2, { 2, 2 } };
    CHECK(table_apart(&b, &b, false) == 0);
    CHECK(fabs(table_apart(&a, &b, false) - 0.1) < 1e-9);
    CHECK(fabs(table_apart(&a, &b, true) - 0.1 / sqrt(2)) < 1e-9);
    v[3] = NAN;
    CHECK(isinf(table_apart(&a, &b, false)) && isinf(table_apart(&a, &b, true)));
    r[3] = NAN;
    CHECK(table_apart(&a, &b, false) == 0);
}

static void moments_are_noticed(void)
{
    enum { N = 4096 };
    static double v[N];
    const table_outputs o = { v, 1, { N } };
    for (int i = 0; i < N; i++) v[i] = (i + 0.5) / N;
    CHECK(table_moments_apart(&o, false) < 1 && table_moments_apart(&o, true) > 1);
    for (int i = 0; i < N; i++) v[i] *= 0.8;
    CHECK(table_moments_apart(&o, false) > 1);
    for (int i = 0; i < N; i++) v[i] = 0.5; /* the right mean alone */
    CHECK(table_moments_apart(&o, false) > 1);
}

/* A file with one number too few, or too many, holds no such outputs. */
static void files_of_another_size_are_refused(const char *path)
{
    const double v[3] = { 1, 2, 3 };
    for (int64_t n = 1; n <= 3; n++) {
        const table_outputs like = { NULL, 1, { n } };
        table_outputs o;
        FILE *const f = fopen(path, "wb");
        CHECK(f && fwrite(v, sizeof *v, 2, f) == 2 && fclose(f) == 0);
        CHECK(table_outputs_load(&o, &like, path) == (n == 2));
        if (n == 2) CHECK(o.v[1] == 2);
        table_outputs_free(&o);
    }
    remove(path);
    CHECK(!table_outputs_load(&(table_outputs){ 0 }, &(table_outputs){ NULL, 1, { 2 } }, path));
}

static void elements_are_in_the_order_of_their_kind(void)
{
    table_inputs t;
    table_inputs_make(&t, "i32 ab u; f64 ab ^; i64 ab v; i64 ab u; f32 ab u", sizes, 1);
    const int32_t *const whole = t.at[0].data;
    const double *const up = t.at[1].data;
    const int64_t *const down = t.at[2].data, *const wide = t.at[3].data;
    const float *const any = t.at[4].data;
    bool is_greater = false, is_less = false, is_wide = false, is_mixed = false;
    CHECK(!t.why);
    for (int k = 1; k < 300; k++) {
        CHECK(up[k - 1] <= up[k] && down[k - 1] >= down[k]);
        is_greater |= whole[k] > 1 << 30, is_less |= whole[k] < -(1 << 30);
        is_wide |= wide[k] > (int64_t)1 << 50, is_mixed |= any[k] < any[k - 1];
    }
    CHECK(is_greater && is_less && is_wide && is_mixed && up[0] < 0 && up[299] > 0);
    table_inputs_free(&t);
}

int main(int argc, char **argv)
{
    texts_are_read();
    elements_are_of_their_kind();
    elements_are_in_the_order_of_their_kind();
    halves_are_rounded();
    seeds_decide();
    differences_are_noticed();
    moments_are_noticed();
    if (argc > 1) files_of_another_size_are_refused(argv[1]);
    return n_faults != 0;
}
