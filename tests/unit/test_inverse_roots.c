/* SPDX-License-Identifier: Apache-2.0
 *
 * 1 / sqrt(x) of f32 in strict mode has the bits of IEEE 754, whatever units compute it
 * (src/jit_llvm/estimate.c). The numbers of [1/2, 2) have all roots but for their exponents.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include "deft/deft.h"

enum { ALL = 1 << 24, CHUNK = 1 << 20, PER_EXPONENT = 8, EDGES = 512 * PER_EXPONENT };

static float x[CHUNK], got[CHUNK];

static void compare(deft_ctx *cx, int64_t n)
{
    const deft_scope scope = deft_scope_begin(cx);
    deft_tensor *const t = deft_wrap(cx, DEFT_SHAPE(n), DEFT_F32, x, (size_t)n * sizeof *x, NULL);
    cr_assert_eq(deft_read(deft_rsqrt(t), DEFT_F32, got, (size_t)n * sizeof *got), DEFT_OK);
    cr_assert_eq(deft_scope_end(scope), DEFT_OK);
    for (int64_t i = 0; i < n; i++) {
        const float want = 1 / sqrtf(x[i]);
        if (isnan(want) ? !isnan(got[i]) : memcmp(&want, &got[i], sizeof want) != 0)
            cr_assert_fail("1 / sqrt(%a) is %a and not %a", (double)x[i], (double)got[i],
                           (double)want);
    }
}

static void set_bits(int64_t i, uint32_t bits)
{
    memcpy(&x[i], &bits, sizeof bits);
}

/* Every sign and exponent with some fractions. Among them are zeros, denormal numbers, infinities
 * and NaN. The length is no multiple of a vector's. */
static int64_t fill_edges(void)
{
    static const uint32_t fractions[PER_EXPONENT] = { 0,        1,        2,        0x3fffff,
                                                      0x400000, 0x5a5a5a, 0x7ffffe, 0x7fffff };
    for (uint32_t i = 0; i < EDGES; i++)
        set_bits(i, i / PER_EXPONENT << 23 | fractions[i % PER_EXPONENT]);
    set_bits(EDGES, 0x407fffff); /* the root is the largest number below 2 */
    return EDGES + 1;
}

static void compare_all(uint32_t max_vector_bytes)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_FULL,
                                     .max_vector_bytes = max_vector_bytes };
    deft_runtime *rt;
    deft_ctx *cx;
    cr_assert_eq(deft_runtime_create(&o, &rt), DEFT_OK);
    cr_assert_eq(deft_ctx_create(rt, NULL, &cx), DEFT_OK);
    compare(cx, fill_edges());
    for (uint32_t from = 0; from < ALL; from += CHUNK) {
        for (uint32_t i = 0; i < CHUNK; i++) set_bits(i, 0x3f000000 + from + i);
        compare(cx, CHUNK);
    }
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}

Test(inverse_roots, of_all_numbers_have_the_bits_of_ieee_754)
{
    compare_all(0);
}

/* The generic target has the estimates on every machine with vectors of 64 bytes. */
Test(inverse_roots, have_them_whatever_model_has_vectors_of_64_bytes)
{
    compare_all(64);
}
