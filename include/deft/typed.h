/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays of C with their types. Macros take shape and dtype from an array, and lend the elements
 * of a tensor under a type of C. docs/data.md has examples.
 *
 *   double a[3][4];
 *   deft_tensor *x = DEFT_WRAP(cx, a);          f64 [3,4], no copy
 *   DEFT_TRY(DEFT_READ(deft_mul(x, 2), a));     back into the array
 *   DEFT_MAP(double, v, x);                     the elements of x
 *   if (v.status == DEFT_OK) sum += DEFT_EL(v, 2, 3);
 *   DEFT_TRY(DEFT_UNMAP(v));
 *
 * The macros exist in C only, and not with DEFT_NO_GENERIC; deft.hpp has templates for C++. An
 * array has 1 to 4 axes and elements that are numbers. A pointer is no array, and does not compile:
 * deft_wrap and deft_read take pointers.
 *
 * float, double and bool are the dtypes of that name, and an integer is the dtype of its size and
 * sign. uint16_t is u16: halves need deft_wrap and deft_read.
 */
#ifndef DEFT_TYPED_H
#define DEFT_TYPED_H

#include <assert.h>
#include <limits.h>

#include "deft/eval.h"

/** Returns the status of an expression from the calling function, unless it is DEFT_OK. */
#define DEFT_TRY(...)                                                                              \
    do {                                                                                           \
        const deft_status deft_tried = (__VA_ARGS__);                                              \
        if (deft_tried != DEFT_OK) return deft_tried;                                              \
    } while (0)

/** The position of an element of v in its memory, in elements from v->data. n is the number of
 * indices, which must be the rank. Without NDEBUG an index out of range ends the program, as
 * assert() does. */
static inline int64_t deft_view_at(const deft_view *v, size_t n, const int64_t *index)
{
    int64_t at = 0;
    assert(n == v->rank);
    for (size_t i = 0; i < n; i++) {
        assert(index[i] >= 0 && index[i] < v->dim[i]);
        at += index[i] * v->stride[i];
    }
    return at;
}

#if !defined(__cplusplus) && !defined(DEFT_NO_GENERIC)

/* ---- types of C ---- */

/* What comes after the elements of an array: it has no elements itself. */
typedef struct deft_no_array {
    char nothing;
} deft_no_array;

/* The associations of _Generic for all numbers. */
/* clang-format off */
#define DEFT_NUMBERS(of_float, of_double, of_bool, of_char, of_schar, of_uchar, of_short,          \
                     of_ushort, of_int, of_uint, of_long, of_ulong, of_llong, of_ullong)           \
    float: of_float, double: of_double, _Bool: of_bool, char: of_char, signed char: of_schar,      \
    unsigned char: of_uchar, short: of_short, unsigned short: of_ushort, int: of_int,              \
    unsigned: of_uint, long: of_long, unsigned long: of_ulong, long long: of_llong,                \
    unsigned long long: of_ullong
/* clang-format on */
#define DEFT_ALL_NUMBERS(x) DEFT_NUMBERS(x, x, x, x, x, x, x, x, x, x, x, x, x, x)

/* One more than the dtype of a number; 0 for what is no number. */
#define DEFT_DTYPE_AFTER(x)                                                                        \
    _Generic((x),                                                                                  \
             DEFT_NUMBERS(DEFT_F32 + 1, DEFT_F64 + 1, DEFT_BOOL + 1,                               \
                          (CHAR_MIN < 0 ? DEFT_I8 : DEFT_U8) + 1, DEFT_I8 + 1, DEFT_U8 + 1,        \
                          DEFT_I16 + 1, DEFT_U16 + 1, DEFT_I32 + 1, DEFT_U32 + 1,                  \
                          (sizeof(long) == 8 ? DEFT_I64 : DEFT_I32) + 1,                           \
                          (sizeof(long) == 8 ? DEFT_U64 : DEFT_U32) + 1, DEFT_I64 + 1,             \
                          DEFT_U64 + 1),                                                           \
             default : 0)

/* The first element of an array, which may be an array. Of a number, and of what this macro gives
 * for a number, deft_no_array. No value is ever computed. */
#define DEFT_FIRST(x)                                                                              \
    (*_Generic((x), DEFT_ALL_NUMBERS((deft_no_array *)0), deft_no_array                            \
               : (deft_no_array *)0, default                                                       \
               : (x)))
#define DEFT_FIRST_2(x) DEFT_FIRST(DEFT_FIRST(x))
#define DEFT_FIRST_3(x) DEFT_FIRST(DEFT_FIRST_2(x))
#define DEFT_FIRST_4(x) DEFT_FIRST(DEFT_FIRST_3(x))
#define DEFT_IS_ARRAY(x) _Generic((x), DEFT_ALL_NUMBERS(0), deft_no_array : 0, default : 1)

/* 1 when a is an array, and 0 when it is a pointer to numbers. a must have an address. */
#define DEFT_IS_NO_POINTER(a)                                                                      \
    _Generic(&(a), float ** : 0, double ** : 0, _Bool ** : 0, char ** : 0, signed char ** : 0,     \
             unsigned char ** : 0, short ** : 0, unsigned short ** : 0, int ** : 0,                \
             unsigned ** : 0, long ** : 0, unsigned long ** : 0, long long ** : 0,                 \
             unsigned long long ** : 0, const float ** : 0, const double ** : 0,                   \
             const _Bool ** : 0, const char ** : 0, const signed char ** : 0,                      \
             const unsigned char ** : 0, const short ** : 0, const unsigned short ** : 0,          \
             const int ** : 0, const unsigned ** : 0, const long ** : 0,                           \
             const unsigned long ** : 0, const long long ** : 0, const unsigned long long ** : 0,  \
             void ** : 0, const void ** : 0, default : 1)

/* The number of axes of an array. */
#define DEFT_ARRAY_RANK(a)                                                                         \
    (1 + DEFT_IS_ARRAY(DEFT_FIRST(a)) + DEFT_IS_ARRAY(DEFT_FIRST_2(a)) +                           \
     DEFT_IS_ARRAY(DEFT_FIRST_3(a)))

/* One more than the dtype of the elements; 0 when they are no numbers, or lie deeper than 4. */
#define DEFT_ELEMENT_AFTER(a)                                                                      \
    (DEFT_DTYPE_AFTER(DEFT_FIRST(a)) + DEFT_DTYPE_AFTER(DEFT_FIRST_2(a)) +                         \
     DEFT_DTYPE_AFTER(DEFT_FIRST_3(a)) + DEFT_DTYPE_AFTER(DEFT_FIRST_4(a)))

/** The dtype and the shape of an array of C. The array is not evaluated. */
#define DEFT_DTYPE_OF(a) ((deft_dtype)(DEFT_ELEMENT_AFTER(a) - 1))
#define DEFT_SHAPE_OF(a)                                                                           \
    deft_shape_of(DEFT_ARRAY_RANK(a),                                                              \
                  (const int64_t[]){ sizeof(a) / sizeof(DEFT_FIRST(a)),                            \
                                     sizeof(DEFT_FIRST(a)) / sizeof(DEFT_FIRST_2(a)),              \
                                     sizeof(DEFT_FIRST_2(a)) / sizeof(DEFT_FIRST_3(a)),            \
                                     sizeof(DEFT_FIRST_3(a)) / sizeof(DEFT_FIRST_4(a)) })

/* The size of an array in bytes. What is no array of numbers does not compile. */
#define DEFT_ARRAY_BYTES(a)                                                                        \
    (sizeof(a) +                                                                                   \
     DEFT_REQUIRE(DEFT_IS_NO_POINTER(a), "a pointer has no shape: an array of C is "               \
                                         "expected, or deft_wrap, deft_read") +                    \
     DEFT_REQUIRE(DEFT_ELEMENT_AFTER(a) > 0, "an array of 1 to 4 axes of numbers is expected"))

/* ---- arrays ---- */

/** A tensor of an array of C: borrowed (deft_wrap), borrowed and written by assignments
 * (deft_wrap_mut), or copied (deft_from). */
#define DEFT_WRAP(cx, a)                                                                           \
    deft_wrap((cx), DEFT_SHAPE_OF(a), DEFT_DTYPE_OF(a), (a), DEFT_ARRAY_BYTES(a), NULL)
#define DEFT_WRAP_MUT(cx, a)                                                                       \
    deft_wrap_mut((cx), DEFT_SHAPE_OF(a), DEFT_DTYPE_OF(a), (a), DEFT_ARRAY_BYTES(a), NULL)
#define DEFT_FROM(cx, a)                                                                           \
    deft_from((cx), DEFT_SHAPE_OF(a), DEFT_DTYPE_OF(a), (a), DEFT_ARRAY_BYTES(a))

/** Computes t and writes its elements into the array a, converted to its type (deft_read). The
 * numbers of elements must be equal. */
#define DEFT_READ(t, a) (deft_read)((t), DEFT_DTYPE_OF(a), (a), DEFT_ARRAY_BYTES(a))

/* ---- views ---- */

/** Declares v and maps t: DEFT_MAP to read, DEFT_MAP_MUT to write as well (deft_map_view).
 * v.status has the status. v.at points to the first element, and v.view has extents and strides.
 * The dtype of t must be one whose elements `type` can hold; uint16_t holds halves, too.
 * DEFT_UNMAP(v) ends the loan, and has the result of deft_unmap_view. */
#define DEFT_MAP(type, v, t) DEFT_MAP_NOW(const type, type, v, t, false)
#define DEFT_MAP_MUT(type, v, t) DEFT_MAP_NOW(type, type, v, t, true)
#define DEFT_MAP_NOW(element, type, v, t, is_writable)                                             \
    struct {                                                                                       \
        deft_view view;                                                                            \
        element *at;                                                                               \
        deft_status status;                                                                        \
    } v;                                                                                           \
    v.status = deft_map_view((t), DEFT_BITS_AT((type *)0), is_writable, &v.view);                  \
    v.at = v.view.data
#define DEFT_UNMAP(v) deft_unmap_view(&(v).view)

/** The element of a mapped tensor with these indices, one for each axis; of rank 0 it is *v.at. It
 * can be assigned after DEFT_MAP_MUT. Without NDEBUG an index out of range ends the program. */
#define DEFT_EL(v, ...)                                                                            \
    (v).at[deft_view_at(&(v).view, sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t),     \
                        (const int64_t[]){ __VA_ARGS__ })]

#endif
#endif
