/* SPDX-License-Identifier: Apache-2.0
 *
 * Extensions of C, assertions and small arithmetic functions. Extensions that several files need
 * are wrapped here. A few files use others directly: a builtin for one purpose, an attribute of
 * public functions, or inline assembly.
 */
#ifndef DF_BASE_COMPILER_H
#define DF_BASE_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The value of condition x, which nearly always or hardly ever holds. */
#define DF_LIKELY(x) __builtin_expect(!!(x), 1)
#define DF_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Whether two string literals are equal, as a constant for static assertions. */
#define DF_SAME_TEXT(a, b) (__builtin_strcmp(a, b) == 0)
/* Lets the compiler check the arguments of a function like printf. The format is parameter number
 * fmt, counted from 1. The arguments that it uses begin with number `first`. */
#define DF_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
/* The number of elements of an array. The argument must not be a pointer. */
#define DF_LEN(array) (sizeof(array) / sizeof *(array))
/* The address to which the function that contains this returns. */
#define DF_RETURN_ADDRESS() __builtin_return_address(0)
#define DF_INLINE static inline __attribute__((always_inline))
/* Hides the origin of a variable's value from the compiler. The value stays in a register and is
 * not computed again from other values. */
#define DF_OPAQUE(x) __asm__("" : "+r"(x))
/* In a typedef: objects of the type may have any address. Some processors need other instructions
 * for these. */
#define DF_ANYWHERE __attribute__((aligned(1)))
typedef float df_any_f32 DF_ANYWHERE;
typedef double df_any_f64 DF_ANYWHERE;
typedef int32_t df_any_i32 DF_ANYWHERE;
typedef int64_t df_any_i64 DF_ANYWHERE;
/* For functions that are hardly ever called, such as those that report failures, and for those that
 * prepare a long call. They are compiled for size. */
#define DF_COLD __attribute__((cold, noinline))
/* For the long rest of a function whose short part should save no registers, and for long functions
 * with several callers, where a call costs nothing. */
#define DF_NOINLINE __attribute__((noinline))

/* Assertions check the library's own reasoning, never the arguments of public functions. Debug and
 * test builds end the process when one does not hold. Release builds do not evaluate them, and
 * reaching df_unreachable is undefined there. df_assert_slow is for the verification of a complete
 * structure. */
#ifdef DF_DEBUG
#define df_assert(x) ((x) ? (void)0 : __builtin_trap())
#define df_assert_slow(x) df_assert(x)
#define df_unreachable() __builtin_trap()
#else
#define df_assert(x) ((void)sizeof(x))
#define df_assert_slow(x) ((void)sizeof(x))
#define df_unreachable() __builtin_unreachable()
#endif

/* Checked arithmetic. Returns false when the result overflows; *out then has its low 64 bits. */
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

/* n as a size. SIZE_MAX when this machine cannot address so much: no allocation succeeds then. */
DF_INLINE size_t df_size_or_most(uint64_t n)
{
    const size_t size = (size_t)n;
    return size == n ? size : SIZE_MAX;
}

/* The number of zero bits below the lowest bit that is set. x must not be 0. */
DF_INLINE unsigned df_ctz64(uint64_t x)
{
    return (unsigned)__builtin_ctzll(x);
}

/* The number of bits that are set. */
DF_INLINE unsigned df_popcount(uint64_t x)
{
    return (unsigned)__builtin_popcountll(x);
}

/* a / b, rounded up. a is not negative, and b is positive. The computation cannot overflow. */
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

/* Evaluates a call that returns a status, and goes to `done:` on failure. It needs a variable
 * `deft_status st`, which gets the status, and a label `done:` in scope. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        st = (expr);                                                                               \
        if (DF_UNLIKELY(st != DEFT_OK)) goto done;                                                 \
    } while (0)

#endif
