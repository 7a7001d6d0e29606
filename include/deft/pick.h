/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of macros in other headers. Those macros choose a function by the type of an
 * argument, or refuse an argument when the program is compiled. Programs do not use this
 * header directly.
 *
 * The macros exist in C only. In C++ the functions are called by their own names, and the
 * compiler checks no more than their prototypes. The same holds in C when DEFT_NO_GENERIC is
 * defined before the first header of deft is included.
 */
#ifndef DEFT_PICK_H
#define DEFT_PICK_H

#include "deft/dtype.h"

#ifndef __cplusplus

/* An expression that is 0, of type size_t. condition is an integer constant. When condition is
 * 0 the program does not compile, and the compiler prints the sentence. */
#define DEFT_REQUIRE(condition, sentence)                                                          \
    (0 * sizeof(struct {                                                                           \
         _Static_assert(condition, sentence);                                                      \
         char deft_one;                                                                            \
     }))

/* The arguments as a string literal. Macros among them are expanded. */
#define DEFT_TEXT(...) DEFT_TEXT_NOW(__VA_ARGS__)
#define DEFT_TEXT_NOW(...) #__VA_ARGS__

/* Chooses a function by the type of b. This is name_f for a float or double, name_i for an
 * integer or bool, and name for any other type. An unsigned long, which int64_t may not hold,
 * chooses name_u. DEFT_PICK_OF does the same for four given functions. */
#define DEFT_PICK(name, b) DEFT_PICK_OF((b), name##_f, name##_i, name##_u, name)
#define DEFT_PICK_OF(b, of_float, of_int, of_large, of_other)                                      \
    _Generic((b), float                                                                            \
             : of_float, double                                                                    \
             : of_float, _Bool                                                                     \
             : of_int, char                                                                        \
             : of_int, signed char                                                                 \
             : of_int, unsigned char                                                               \
             : of_int, short                                                                       \
             : of_int, unsigned short                                                              \
             : of_int, int                                                                         \
             : of_int, unsigned                                                                    \
             : of_int, long                                                                        \
             : of_int, unsigned long                                                               \
             : of_large, long long                                                                 \
             : of_int, unsigned long long                                                          \
             : of_large, default                                                                   \
             : of_other)

/* DEFT_COUNT gives the number of its arguments, and DEFT_LAST the last of them. There are 1 to
 * 24 arguments. A braced list counts as one argument for each of its elements. Therefore
 * calls that take braced lists look at their last argument only. */
#define DEFT_COUNT(...)                                                                            \
    DEFT_COUNT_AT(__VA_ARGS__, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8,   \
                  7, 6, 5, 4, 3, 2, 1, 0)
#define DEFT_COUNT_AT(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17,  \
                      a18, a19, a20, a21, a22, a23, a24, n, ...)                                   \
    n
#define DEFT_JOIN(a, b) DEFT_JOIN_NOW(a, b)
#define DEFT_JOIN_NOW(a, b) a##b
#define DEFT_LAST(...) DEFT_JOIN(DEFT_LAST_OF_, DEFT_COUNT(__VA_ARGS__))(__VA_ARGS__)
#define DEFT_LAST_OF_1(a) a
#define DEFT_LAST_OF_2(a, ...) DEFT_LAST_OF_1(__VA_ARGS__)
#define DEFT_LAST_OF_3(a, ...) DEFT_LAST_OF_2(__VA_ARGS__)
#define DEFT_LAST_OF_4(a, ...) DEFT_LAST_OF_3(__VA_ARGS__)
#define DEFT_LAST_OF_5(a, ...) DEFT_LAST_OF_4(__VA_ARGS__)
#define DEFT_LAST_OF_6(a, ...) DEFT_LAST_OF_5(__VA_ARGS__)
#define DEFT_LAST_OF_7(a, ...) DEFT_LAST_OF_6(__VA_ARGS__)
#define DEFT_LAST_OF_8(a, ...) DEFT_LAST_OF_7(__VA_ARGS__)
#define DEFT_LAST_OF_9(a, ...) DEFT_LAST_OF_8(__VA_ARGS__)
#define DEFT_LAST_OF_10(a, ...) DEFT_LAST_OF_9(__VA_ARGS__)
#define DEFT_LAST_OF_11(a, ...) DEFT_LAST_OF_10(__VA_ARGS__)
#define DEFT_LAST_OF_12(a, ...) DEFT_LAST_OF_11(__VA_ARGS__)
#define DEFT_LAST_OF_13(a, ...) DEFT_LAST_OF_12(__VA_ARGS__)
#define DEFT_LAST_OF_14(a, ...) DEFT_LAST_OF_13(__VA_ARGS__)
#define DEFT_LAST_OF_15(a, ...) DEFT_LAST_OF_14(__VA_ARGS__)
#define DEFT_LAST_OF_16(a, ...) DEFT_LAST_OF_15(__VA_ARGS__)
#define DEFT_LAST_OF_17(a, ...) DEFT_LAST_OF_16(__VA_ARGS__)
#define DEFT_LAST_OF_18(a, ...) DEFT_LAST_OF_17(__VA_ARGS__)
#define DEFT_LAST_OF_19(a, ...) DEFT_LAST_OF_18(__VA_ARGS__)
#define DEFT_LAST_OF_20(a, ...) DEFT_LAST_OF_19(__VA_ARGS__)
#define DEFT_LAST_OF_21(a, ...) DEFT_LAST_OF_20(__VA_ARGS__)
#define DEFT_LAST_OF_22(a, ...) DEFT_LAST_OF_21(__VA_ARGS__)
#define DEFT_LAST_OF_23(a, ...) DEFT_LAST_OF_22(__VA_ARGS__)
#define DEFT_LAST_OF_24(a, ...) DEFT_LAST_OF_23(__VA_ARGS__)

/* 1 when every argument is a deft_range, else 0. There are at most 8 arguments. */
#define DEFT_IS_RANGE(r) _Generic((r), deft_range : 1, default : 0)
#define DEFT_ARE_RANGES(...) DEFT_JOIN(DEFT_ARE_RANGES_, DEFT_COUNT(__VA_ARGS__))(__VA_ARGS__)
#define DEFT_ARE_RANGES_1(r) DEFT_IS_RANGE(r)
#define DEFT_ARE_RANGES_2(r, ...) DEFT_IS_RANGE(r) && DEFT_ARE_RANGES_1(__VA_ARGS__)
#define DEFT_ARE_RANGES_3(r, ...) DEFT_IS_RANGE(r) && DEFT_ARE_RANGES_2(__VA_ARGS__)
#define DEFT_ARE_RANGES_4(r, ...) DEFT_IS_RANGE(r) && DEFT_ARE_RANGES_3(__VA_ARGS__)
#define DEFT_ARE_RANGES_5(r, ...) DEFT_IS_RANGE(r) && DEFT_ARE_RANGES_4(__VA_ARGS__)
#define DEFT_ARE_RANGES_6(r, ...) DEFT_IS_RANGE(r) && DEFT_ARE_RANGES_5(__VA_ARGS__)
#define DEFT_ARE_RANGES_7(r, ...) DEFT_IS_RANGE(r) && DEFT_ARE_RANGES_6(__VA_ARGS__)
#define DEFT_ARE_RANGES_8(r, ...) DEFT_IS_RANGE(r) && DEFT_ARE_RANGES_7(__VA_ARGS__)

/* DEFT_BIT_OF_CONSTANT gives the bit of a dtype when the argument is an integer constant that
 * names a dtype, else 0.
 *
 * The test works because (void *)0 with a constant 0 is a null pointer constant. The
 * conditional then has the type of its other branch, int *. Otherwise it is void *. */
#define DEFT_BIT(dtype) (1u << (dtype))
#define DEFT_BIT_OF_CONSTANT(dtype)                                                                \
    _Generic((1 ? (void *)((intptr_t)(dtype) * 0) : (int *)0),                                     \
        int *: (unsigned)(dtype) < DEFT_N_DTYPES ? DEFT_BIT((dtype) & 31) : 0u,                    \
        default: 0u)

/* DEFT_BITS_AT gives the bits of all dtypes whose elements p may point to. These are the
 * integer dtypes of that size, signed or not, and both halves for uint16_t. Pointers to void, to
 * characters, and to types that are no number (structs, rows of an array) may point to
 * elements of any dtype.
 *
 * Pointers to reals may also point to complex numbers of two such reals.
 *
 * DEFT_MAY_HOLD is 1 when p may point to elements of dtype, or when dtype is no constant. */
#define DEFT_INTEGERS(size)                                                                        \
    ((size) == 8 ? DEFT_BIT(DEFT_I64) | DEFT_BIT(DEFT_U64)                                         \
                 : DEFT_BIT(DEFT_I32) | DEFT_BIT(DEFT_U32))
#define DEFT_SHORTS                                                                                \
    (DEFT_BIT(DEFT_I16) | DEFT_BIT(DEFT_U16) | DEFT_BIT(DEFT_F16) | DEFT_BIT(DEFT_BF16))
#define DEFT_BITS_AT(p)                                                                            \
    _Generic((p),                                                                                  \
        float *: DEFT_BIT(DEFT_F32) | DEFT_BIT(DEFT_C64),                                          \
        double *: DEFT_BIT(DEFT_F64) | DEFT_BIT(DEFT_C128), _Bool *: DEFT_BIT(DEFT_BOOL),          \
        short *: DEFT_SHORTS, unsigned short *: DEFT_SHORTS, int *: DEFT_INTEGERS(4),              \
        unsigned *: DEFT_INTEGERS(4), long *: DEFT_INTEGERS(sizeof(long)),                         \
        unsigned long *: DEFT_INTEGERS(sizeof(long)), long long *: DEFT_INTEGERS(8),               \
        unsigned long long *: DEFT_INTEGERS(8), default: ~0u)
#define DEFT_MAY_HOLD(p, dtype) ((DEFT_BIT_OF_CONSTANT(dtype) & ~DEFT_BITS_AT(p)) == 0)

#endif
#endif
