/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over each dtype of numbers, as C programs have them; one table per compiler found. The
 * results are those of strict kernels of deft, bit for bit.
 */
#ifndef REF_DTYPES_H
#define REF_DTYPES_H

#include <stdint.h>

/* The dtypes of a table, in its order: REF_DTYPES(X) is X(name, type, type of sums). */
#define REF_DTYPES(X)                                                                              \
    X(i8, int8_t, uint64_t)                                                                        \
    X(u8, uint8_t, uint64_t)                                                                       \
    X(i16, int16_t, uint64_t)                                                                      \
    X(u16, uint16_t, uint64_t)                                                                     \
    X(i32, int32_t, uint64_t)                                                                      \
    X(u32, uint32_t, uint64_t)                                                                     \
    X(i64, int64_t, uint64_t)                                                                      \
    X(u64, uint64_t, uint64_t)                                                                     \
    X(f32, float, float)                                                                           \
    X(f64, double, double)

enum {
#define X(name, T, S) REF_DTYPE_##name,
    REF_DTYPES(X)
#undef X
        REF_N_DTYPES
};

typedef struct ref_dtype {
    void (*muladd)(void *out, const void *a, const void *b, int64_t n); /* a * b + a */
    void (*sum)(void *out, const void *a, int64_t n);     /* in 64 bits, floats in their dtype */
    void (*max)(void *out, const void *a, int64_t n);     /* n is at least 1 */
    void (*widen)(float *out, const void *a, int64_t n);  /* to f32 */
    void (*narrow)(void *out, const float *a, int64_t n); /* from f32; integers saturate */
    /* [m,k] by [k,n], all row-major; NULL for floats, which other benchmarks multiply */
    void (*product)(void *out, const void *a, const void *b, int64_t m, int64_t k, int64_t n);
} ref_dtype;

/* Loops over complex numbers, as two adjacent reals. */
typedef struct ref_complex {
    void (*muladd)(void *out, const void *a, const void *b, int64_t n); /* a * b + a */
    void (*sum)(void *out, const void *a, int64_t n);  /* each part in the order of strict sums */
    void (*cast)(void *out, const void *a, int64_t n); /* to the other complex dtype */
} ref_complex;

extern const ref_complex ref_dtypes_gcc_complex[2], ref_dtypes_clang_complex[2]; /* c64, c128 */

extern const ref_dtype ref_dtypes_gcc[REF_N_DTYPES], ref_dtypes_clang[REF_N_DTYPES];

#endif
