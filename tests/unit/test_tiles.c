/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of bf16 in fast mode, through the public calls, beside strict ones of the interpreter:
 * with the tiles of AMX where this machine has them, and without. Operands are small integers, so
 * that every order of the sums has the same bits.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "deft/deft.h"
#include "runtime/matmul.h"

enum { MOST = 1 << 18, USES = 3 };

typedef enum form {
    FORM_HALF,
    FORM_F32,
    FORM_BIAS_GELU,
    FORM_GRADIENT_A,
    FORM_GRADIENT_B,
    FORM_BATCH,
    FORM_ADDED,
    N_FORMS
} form;

enum { STRICT, TILES, TILES_2, VECTORS, N_PATHS };

static deft_runtime *rt[N_PATHS];
static deft_ctx *cx[N_PATHS];
static bool has_tiles;
static uint16_t a_half[MOST], b_half[MOST];

static void open_paths(void)
{
    static const uint32_t threads[N_PATHS] = { 1, 1, 2, 2 };
    has_tiles = df_matmul_enable_tiles();
    for (int i = 0; i < N_PATHS; i++) {
        const deft_runtime_options o = { .size = sizeof o,
                                         .n_threads = threads[i],
                                         .tier =
                                             i == STRICT ? DEFT_TIER_INTERPRET : DEFT_TIER_FULL };
        const deft_ctx_options c = { .size = sizeof c,
                                     .numerics = i == STRICT ? DEFT_STRICT : DEFT_FAST };
        setenv("DEFT_AMX", i == VECTORS ? "0" : "1", 1);
        cr_assert_eq(deft_runtime_create(&o, &rt[i]), DEFT_OK);
        cr_assert_eq(deft_ctx_create(rt[i], &c, &cx[i]), DEFT_OK);
    }
    unsetenv("DEFT_AMX");
}

static void close_paths(void)
{
    for (int i = 0; i < N_PATHS; i++) {
        deft_ctx_destroy(&cx[i]);
        deft_runtime_destroy(&rt[i]);
    }
}

TestSuite(tiles, .init = open_paths, .fini = close_paths);

static void fill(uint16_t *h, uint64_t state, int below)
{
    for (int i = 0; i < MOST; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        h[i] = df_bf16_of_f32((float)((int)(state >> 33) % below - below / 2));
    }
}

/* A matrix of bf16, or a batch of two. is_cut: a part of a larger one. */
static deft_tensor *operand(deft_ctx *c, const uint16_t *h, bool has_batch, int64_t rows,
                            int64_t columns, bool is_transposed, bool is_cut)
{
    const int64_t more = is_cut ? 3 : 0;
    const int64_t y = (is_transposed ? columns : rows) + more;
    const int64_t x = (is_transposed ? rows : columns) + more;
    const deft_shape s = has_batch ? DEFT_SHAPE(2, y, x) : DEFT_SHAPE(y, x);
    const size_t bytes = (size_t)(y * x * (has_batch ? 2 : 1)) * sizeof *h;
    cr_assert_leq(bytes, (MOST - USES) * sizeof *h);
    deft_tensor *t = deft_from(c, s, DEFT_BF16, h, bytes);
    if (is_cut && has_batch)
        t = deft_slice(t, DEFT_R(0, 2), DEFT_R(1, y - 2), DEFT_R(2, x - 1));
    else if (is_cut)
        t = deft_slice(t, DEFT_R(1, y - 2), DEFT_R(2, x - 1));
    return is_transposed ? deft_transpose(t, -1, -2) : t;
}

static deft_tensor *product(deft_ctx *c, form which, deft_tensor *a, deft_tensor *b, int64_t n)
{
    deft_tensor *const wide = deft_matmul(deft_cast(a, DEFT_F32), deft_cast(b, DEFT_F32));
    deft_tensor *g = NULL;
    switch (which) {
    case FORM_HALF:
    case FORM_BATCH:
    case N_FORMS: return deft_matmul(a, b);
    case FORM_F32: return wide;
    case FORM_BIAS_GELU:
        return deft_cast(deft_gelu(deft_add(wide, deft_arange(c, 0, n, 1, DEFT_F32))), DEFT_BF16);
    case FORM_ADDED: return deft_add(wide, deft_full(c, deft_shape_get(wide), DEFT_F32, 3.0));
    case FORM_GRADIENT_A:
    case FORM_GRADIENT_B: {
        deft_tensor *const sum = deft_sum(deft_matmul(a, b), DEFT_ALL_AXES, 0);
        deft_tensor *const of = which == FORM_GRADIENT_A ? a : b;
        return deft_grad(&sum, NULL, 1, &of, 1, NULL, &g) ? g : NULL;
    }
    }
    return NULL;
}

/* Computes the product USES times with the same weights, and returns its elements as f32. */
static float *compute(int path, form which, int64_t m, int64_t n, int64_t k, uint32_t layout,
                      size_t *count)
{
    deft_ctx *const c = cx[path];
    const deft_scope s = deft_scope_begin(c);
    const bool has_batch = which == FORM_BATCH;
    float *out = NULL;
    deft_tensor *const b =
        operand(c, b_half, has_batch && layout & 16, k, n, layout & 1, layout & 2);
    for (size_t i = 0; i < USES; i++) {
        deft_tensor *const a = operand(c, a_half + i, has_batch, m, k, layout & 4, layout & 8);
        deft_tensor *const z = product(c, which, a, b, n);
        cr_assert(z, "%s", deft_message(c));
        *count = (size_t)deft_numel(z);
        if (!out) out = malloc(USES * *count * sizeof *out);
        cr_assert_eq(
            deft_read(deft_cast(z, DEFT_F32), DEFT_F32, out + i * *count, *count * sizeof *out),
            DEFT_OK, "%s", deft_message(c));
    }
    *count *= USES;
    cr_assert_eq(deft_scope_end(s), DEFT_OK);
    return out;
}

Test(tiles, exact_sums_have_the_strict_bits)
{
    static const int64_t shapes[][3] = { { 1, 300, 257 }, { 300, 1, 64 },  { 33, 97, 258 },
                                         { 16, 32, 31 },  { 70, 65, 100 }, { 128, 64, 512 },
                                         { 31, 33, 15 },  { 5, 260, 130 }, { 90, 7, 33 } };
    fill(a_half, 3, 17);
    fill(b_half, 5, 9);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t layout = 0; layout < 32; layout += 1 + (uint32_t)i % 3)
            for (form which = 0; which < N_FORMS; which++) {
                const int64_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
                size_t count = 0;
                float *const want = compute(STRICT, which, m, n, k, layout, &count);
                for (int path = TILES; path < N_PATHS; path++) {
                    float *const got = compute(path, which, m, n, k, layout, &count);
                    for (size_t x = 0; x < count; x++) {
                        const float most = which == FORM_BIAS_GELU ? fabsf(want[x]) / 128 : 0;
                        cr_assert(fabsf(got[x] - want[x]) <= most,
                                  "path %d form %d layout %u %d x %d x %d at %zu: %a, strict %a",
                                  path, (int)which, layout, (int)m, (int)n, (int)k, x,
                                  (double)got[x], (double)want[x]);
                    }
                    free(got);
                }
                free(want);
            }
}

/* Draws operands whose sums round. */
static void fill_rounding(void)
{
    uint64_t state = 9;
    for (int i = 0; i < MOST; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        a_half[i] = (uint16_t)((state >> 40 & 0x807f) | (120 + (state >> 56 & 15)) << 7);
        b_half[i] = (uint16_t)((state >> 20 & 0x807f) | (120 + (state >> 32 & 15)) << 7);
    }
}

/* Tiles sum in an order of their own, so that bits tell whether they are used. DEFT_AMX=0 leaves
 * them out. Numbers of threads change no bit. */
Test(tiles, are_used_where_they_exist_and_allowed)
{
    size_t n = 0;
    fill_rounding();
    float *const want = compute(STRICT, FORM_F32, 64, 64, 300, 0, &n);
    float *const tiles = compute(TILES, FORM_F32, 64, 64, 300, 0, &n);
    float *const two = compute(TILES_2, FORM_F32, 64, 64, 300, 0, &n);
    float *const vectors = compute(VECTORS, FORM_F32, 64, 64, 300, 0, &n);
    const bool chains = df_matmul_try_bf16() == DF_BF16_CHAINS;
    if (chains) cr_expect_arr_eq(vectors, want, n * sizeof *want);
    if (chains) cr_expect_eq(memcmp(tiles, want, n * sizeof *want) != 0, has_tiles);
    cr_expect_arr_eq(two, tiles, n * sizeof *tiles);
    free(want);
    free(tiles);
    free(two);
    free(vectors);
}

/* Numbers beside infinities and NaN do not meet the padding of tiles. Elements of other rows and
 * columns stay numbers. */
Test(tiles, infinities_and_nan_are_those_of_strict_mode)
{
    enum { M = 37, N = 50, K = 45 };
    static const uint16_t special[] = { 0x7f80, 0xff80, 0x7fc0, 0x8000 };
    for (uint32_t layout = 0; layout < 16; layout++) {
        size_t n = 0;
        fill(a_half, 3, 17);
        fill(b_half, 5, 9);
        for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
            a_half[(i * 7 + 2) * K + i * 11] = special[i];
            b_half[(i * 9 + 3) * N + i * 12] = special[i];
        }
        a_half[M * K - 1] = 0x7f80; /* the last element before the end of the operand */
        b_half[N * K - 1] = 0x7fc0;
        float *const want = compute(STRICT, FORM_F32, M, N, K, layout, &n);
        for (int path = TILES; path < N_PATHS; path++) {
            float *const got = compute(path, FORM_F32, M, N, K, layout, &n);
            for (size_t x = 0; x < n; x++)
                cr_assert(isnan(want[x]) ? isnan(got[x]) : got[x] == want[x],
                          "path %d layout %u at %zu: %a, strict %a", path, layout, x,
                          (double)got[x], (double)want[x]);
            free(got);
        }
        free(want);
    }
}

/* Denormal operands count as 0, and denormal sums become 0, which is within the bound of
 * docs/decisions/strict-numerics.md. */
Test(tiles, denormals_are_lost_within_the_bound)
{
    enum { M = 40, N = 40, K = 64 };
    size_t n = 0;
    for (int i = 0; i < MOST; i++) {
        a_half[i] = (uint16_t)(i % 3 ? 0x3f80 : 0x0001 + i % 127); /* 1, or a denormal */
        b_half[i] = (uint16_t)(i % 5 ? 0x0080 + i % 90 : 0x0003);
    }
    float *const want = compute(STRICT, FORM_F32, M, N, K, 0, &n);
    for (int path = TILES; path < N_PATHS; path++) {
        float *const got = compute(path, FORM_F32, M, N, K, 0, &n);
        for (size_t x = 0; x < n; x++)
            cr_assert(fabs((double)got[x] - (double)want[x]) <=
                          2 * K * 0x1p-126 + K * 0x1p-24 * fabs((double)want[x]),
                      "path %d at %zu: %a, strict %a", path, x, (double)got[x], (double)want[x]);
        free(got);
    }
    free(want);
}

/* A captured step is replayed with the bits of a recorded one. */
Test(tiles, replays_have_the_bits_of_recorded_steps)
{
    enum { M = 64, N = 96, K = 80 };
    static float first[M * N], again[M * N];
    fill_rounding();
    deft_ctx *const c = cx[TILES];
    deft_tensor *const a =
        deft_keep(deft_from(c, DEFT_SHAPE(M, K), DEFT_BF16, a_half, M * K * sizeof *a_half));
    deft_tensor *const b =
        deft_keep(deft_from(c, DEFT_SHAPE(K, N), DEFT_BF16, b_half, K * N * sizeof *b_half));
    for (int i = 0; i < 5; i++) {
        const deft_scope s = deft_step_begin(c);
        deft_tensor *z = deft_keep(deft_matmul(deft_cast(a, DEFT_F32), deft_cast(b, DEFT_F32)));
        cr_assert_eq(deft_step_end(s), DEFT_OK);
        cr_assert_eq(deft_read(z, DEFT_F32, i ? again : first, sizeof first), DEFT_OK);
        if (i) cr_assert_arr_eq(again, first, sizeof first);
        deft_drop(&z);
    }
    deft_tensor *drop[] = { a, b };
    for (int i = 0; i < 2; i++) deft_drop(&drop[i]);
}
