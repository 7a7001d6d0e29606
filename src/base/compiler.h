/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiler differences, assertions and small arithmetic. The only header that may use extensions.
 */
#ifndef DF_BASE_COMPILER_H
#define DF_BASE_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DF_LIKELY(x) __builtin_expect(!!(x), 1)
#define DF_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define DF_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define DF_LEN(array) (sizeof(array) / sizeof *(array))
#define DF_RETURN_ADDRESS() __builtin_return_address(0)
#define DF_INLINE static inline __attribute__((always_inline))
/* Hides from the compiler where the value of a variable comes from: it stays in a register as it is
 * and is not put together anew from others. */
#define DF_OPAQUE(x) __asm__("" : "+r"(x))
#define DF_COLD __attribute__((cold, noinline))

/* Checks of our own reasoning: on in debug and test builds, absent from release builds.
 * Never for what a user can get wrong. df_assert_slow guards whole-structure verification. */
#ifdef DF_DEBUG
#define df_assert(x) ((x) ? (void)0 : __builtin_trap())
#define df_assert_slow(x) df_assert(x)
#define df_unreachable() __builtin_trap()
#else
#define df_assert(x) ((void)sizeof(x))
#define df_assert_slow(x) ((void)sizeof(x))
#define df_unreachable() __builtin_unreachable()
#endif

/* Checked arithmetic: false when the result does not fit. */
DF_INLINE bool df_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

DF_INLINE bool df_add_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Whether n words of 8 bytes are equal. For a few: a call of memcmp costs as much as all of it. */
DF_INLINE bool df_same_words(const void *a, const void *b, size_t n)
{
    uint64_t other = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t x, y;
        __builtin_memcpy(&x, (const char *)a + 8 * i, 8);
        __builtin_memcpy(&y, (const char *)b + 8 * i, 8);
        other |= x ^ y;
    }
    return other == 0;
}

DF_INLINE unsigned df_ctz64(uint64_t x)
{
    return (unsigned)__builtin_ctzll(x);
}

DF_INLINE unsigned df_popcount(uint64_t x)
{
    return (unsigned)__builtin_popcountll(x);
}

DF_INLINE int64_t df_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

DF_INLINE int64_t df_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The only control-flow macro: needs `deft_status st` and a label `done:` in scope. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        st = (expr);                                                                               \
        if (DF_UNLIKELY(st != DEFT_OK)) goto done;                                                 \
    } while (0)

#endif
