/* SPDX-License-Identifier: Apache-2.0
 *
 * Elementwise functions of one complex number, on parts.
 */
#ifndef DF_LAZY_COMPLEX_FUNCTIONS_H
#define DF_LAZY_COMPLEX_FUNCTIONS_H

#include "lazy/complex/complex.h"

/* A call: its context, the dtype of its parts, and its line. */
typedef struct df_cjob {
    deft_ctx *cx;
    deft_dtype t;
    uintptr_t site;
} df_cjob;

/* The quotient a / b of complex numbers. */
df_parts df_complex_div(const df_cjob *j, df_parts a, df_parts b);
/* a to the power b. */
df_parts df_complex_pow(const df_cjob *j, df_parts a, df_parts b);
/* a to a power from 0 to 16. */
df_parts df_complex_powi(const df_cjob *j, df_parts a, uint32_t power);
/* Function op of x; of a real-valued op, the result is real. Returns false, and records nothing,
 * when op has no meaning for complex numbers. */
bool df_complex_map(const df_cjob *j, df_op op, df_parts x, df_parts *out);

#endif
