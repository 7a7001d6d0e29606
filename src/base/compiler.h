/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiler differences, assertions and small arithmetic functions. This is the only header that may
 * use extensions of C.
 */
#ifndef DF_BASE_COMPILER_H
#define DF_BASE_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DF_LIKELY(x) __builtin_expect(!!(x), 1)
#define DF_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Whether two string literals are equal, as a constant for static assertions. */
#define DF_SAME_TEXT(a, b) (__builtin_strcmp(a, b) == 0)
#define DF_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define DF_LEN(array) (sizeof(array) / sizeof *(array))
#define DF_RETURN_ADDRESS() __builtin_return_address(0)
#define DF_INLINE static inline __attribute__((always_inline))
/* Hides the origin of a variable's value from the compiler. The value stays in a register and is
 * not computed again from other values. */
#define DF_OPAQUE(x) __asm__("" : "+r"(x))
#define DF_COLD __attribute__((cold, noinline))

/* Assertions on the library's own reasoning, never on mistakes of a program. Debug and test builds
 * check them, release builds do not evaluate them. df_assert_slow is for the verification of a
 * complete structure. */
#ifdef DF_DEBUG
#define df_assert(x) ((x) ? (void)0 : __builtin_trap())
#define df_assert_slow(x) df_assert(x)
#define df_unreachable() __builtin_trap()
#else
#define df_assert(x) ((void)sizeof(x))
#define df_assert_slow(x) ((void)sizeof(x))
#define df_unreachable() __builtin_unreachable()
#endif

/* Checked arithmetic. Returns false when the result overflows. */
DF_INLINE bool df_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

DF_INLINE bool df_add_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Whether n words of 8 bytes are equal. For small n, where the call of memcmp alone would cost as
 * much as the comparison. */
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

/* a / b, rounded up. a is not negative, and b is positive. No sum overflows. */
DF_INLINE int64_t df_div_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

DF_INLINE int64_t df_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

DF_INLINE int64_t df_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Evaluates a call that returns a status, and goes to `done:` on failure. This is the only macro
 * with control flow. It needs a variable `deft_status st` and a label `done:` in scope. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        st = (expr);                                                                               \
        if (DF_UNLIKELY(st != DEFT_OK)) goto done;                                                 \
    } while (0)

#endif
