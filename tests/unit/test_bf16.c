/* SPDX-License-Identifier: Apache-2.0
 *
 * When products of pairs of bf16 have the strict bits.
 */
#include <criterion/criterion.h>

#include <math.h>

#include "base/half.h"
#include "runtime/matmul.h"
#include "runtime/bf16/bf16.h"

static uint32_t draw(uint64_t *random, uint32_t below)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*random >> 33) % below;
}

/* Returns the smallest magnitude of an operand, found one by one; 0xffff: all are 0. */
static uint16_t least_of(const df_matmul_job *j, bool is_a)
{
    uint32_t least = 0xffff;
    for (int64_t b = 0; b < j->n_batch; b++)
        for (int64_t y = 0; y < (is_a ? j->m : j->k); y++)
            for (int64_t x = 0; x < (is_a ? j->k : j->n); x++) {
                const int64_t at = df_matmul_batch_offset(j, is_a ? j->a_batch : j->b_batch, b) +
                                   y * (is_a ? j->a_row : j->b_row) +
                                   x * (is_a ? j->a_col : j->b_col);
                const uint16_t *const all = (const void *)(is_a ? j->a : j->b);
                const uint32_t bits = all[at] & 0x7fffu;
                if (bits && bits < least) least = bits;
            }
    return (uint16_t)least;
}

/* Pairs are multiplied in strict mode just when no sum of any products can be a denormal, however
 * the operands lie in memory. */
Test(bf16, pairs_are_exact_without_denormals)
{
    enum { ROOM = 4096 };
    static uint16_t a[ROOM], b[ROOM];
    int n_exact = 0, n_inexact = 0;
    uint64_t f = 12345;
    df_pool *pool[2] = { NULL };
    if (df_matmul_try_bf16() == DF_BF16_NONE) cr_skip_test("no instructions for bf16 here");
    for (uint32_t i = 0; i < 2; i++)
        cr_assert(df_pool_create(NULL, &df_mem_system, 1 + 2 * i, &pool[i]) == DEFT_OK);
    for (int i = 0; i < 600; i++) {
        df_matmul_job j = { .dtype = DEFT_F32,
                            .is_bf16 = true,
                            .m = 1 + draw(&f, 24),
                            .n = 1 + draw(&f, 24),
                            .k = 1 + draw(&f, 24),
                            .batch_rank = 1,
                            .n_batch = 1 + draw(&f, 2) };
        j.batch_extent[0] = j.n_batch;
        j.a = (const char *)(a + ROOM / 2);
        j.b = (const char *)(b + ROOM / 2);
        j.a_row = draw(&f, 2) ? j.k : 1, j.a_col = j.a_row == 1 ? j.m : 1;
        j.b_row = draw(&f, 2) ? j.n : 1, j.b_col = j.b_row == 1 ? j.k : 1;
        j.a_batch[0] = draw(&f, 2) ? j.m * j.k % (ROOM / 8) : 0;
        if (!draw(&f, 8)) j.a_row = -j.a_row, j.b_col = -j.b_col;
        if (!draw(&f, 8)) j.a_col = 0, j.b_row = 3;
        const uint32_t low_a = draw(&f, 4) ? 40 + draw(&f, 60) : draw(&f, 3);
        const uint32_t low_b = low_a < 3 ? 127 : 139 + draw(&f, 6) - low_a;
        for (int x = 0; x < ROOM; x++) {
            a[x] = (uint16_t)(draw(&f, 2) << 15 | (low_a + draw(&f, 9)) << 7 | draw(&f, 128));
            b[x] = (uint16_t)(draw(&f, 2) << 15 | (low_b + draw(&f, 9)) << 7 | draw(&f, 128));
            if (!draw(&f, 4)) a[x] &= 0x8000;
            if (!draw(&f, 4)) b[x] &= 0x8000;
        }
        const uint32_t least_a = least_of(&j, true), least_b = least_of(&j, false);
        const bool all_zero = least_a == 0xffff || least_b == 0xffff;
        const bool is_normal = least_a >> 7 > 0 && least_b >> 7 > 0;
        const bool want =
            all_zero || (is_normal && (int)(least_a >> 7) + (int)(least_b >> 7) - 2 * 134 >= -126);
        const bool got = df_matmul_pairs_are_exact(&j, pool[i % 2]);
        cr_assert_eq(got, want, "%d: %04x, %04x", i, least_a, least_b);
        *(want ? &n_exact : &n_inexact) += 1;
    }
    cr_assert(n_exact > 100 && n_inexact > 100, "%d, %d", n_exact, n_inexact);
    for (int i = 0; i < 2; i++) df_pool_destroy(&pool[i]);
}

/* The trial finds that a micro-kernel adds in another order. */
static void even_sums(int64_t k, const void *a, const void *b, void *c, int64_t ldc, int64_t m,
                      int64_t n, int64_t first, const void *next)
{
    const uint32_t *const left = a, *const right = b;
    (void)first;
    (void)next;
    for (int64_t y = 0; y < m; y++)
        for (int64_t x = 0; x < n; x++) {
            float sum = 0;
            for (int64_t p = 0; p < k; p++)
                for (int by = 0; by <= 16; by += 16)
                    sum = fmaf(df_f32_of_bf16((uint16_t)(left[p * m + y] >> by)),
                               df_f32_of_bf16((uint16_t)(right[p * n + x] >> by)), sum);
            ((float *)c)[y * ldc + x] = sum;
        }
}

Test(bf16, another_order_is_no_chain)
{
    const df_bf16_code other = { .kernel = { even_sums, 8, 48, 0 } };
    cr_assert_not(df_bf16_is_chain(&other));
    cr_assert_not(df_bf16_is_chain(NULL));
}
