/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference functions that recipes are compared with, the error that each is allowed, and how
 * an error is counted.
 *
 * One ULP is the spacing of the format at the exact result: 2^-149 for denormal f32 results. A
 * result of infinity counts as 2^128 (2^1024), and so does an exact result beyond. A NaN on one
 * side only, or the wrong sign of a zero, is an infinite error.
 */
#ifndef TEST_RECIPE_REFS_H
#define TEST_RECIPE_REFS_H

#include "ops/recipe.h"

/* At least 11 bits more than double; binary128 where the compiler has it. */
#ifdef ULP_QUADMATH
__extension__ typedef __float128 ref_wide;
#else
typedef long double ref_wide;
#endif

typedef struct ref_row {
    const char *name;
    double bound_f32, bound_f64; /* ULP */
    uint32_t (*recipe)(df_emit *, deft_dtype, uint32_t);
    uint32_t (*recipe2)(df_emit *, deft_dtype, uint32_t, uint32_t);
    double (*f32)(double);
    double (*f32_2)(double, double);
    ref_wide (*f64)(double);
    ref_wide (*f64_2)(double, double);
    long double (*filter)(double); /* the same, sooner and to fewer bits */
    long double (*filter_2)(double, double);
} ref_row;

extern const ref_row ref_rows[];
extern const size_t ref_n_rows;

/* In ULP. */
double ref_error_f32(float got, double want);
double ref_error_f64(double got, ref_wide want);

/* The same within 1/64 of an ULP of what ref_error_f64 says, for a want from filter or filter_2
 * that is a normal f64; infinite where want is no such number. Quick. */
double ref_error_filtered(double got, long double want);

#endif
