/* SPDX-License-Identifier: Apache-2.0
 *
 * A code generator for tests: it writes kernels as C (aot/c.h), has the C compiler make a shared
 * library of them, and opens that library. Warnings of the compiler are errors.
 */
#ifndef TEST_AOT_C_COMPILER_H
#define TEST_AOT_C_COMPILER_H

#include "runtime/device.h"

/* Fills in *out. The environment may name the compiler (DEFT_TEST_CC, by default cc) and options
 * that follow those of the test (DEFT_TEST_CFLAGS, by default -O1). Sentences of failures are
 * written by `fail`, which is df_fail. */
void c_compiler_open(deft_status (*fail)(df_diag *d, deft_status status, const char *fmt, ...),
                     df_compiler *out);

/* From now on kernel i of a text is written for extents[i] (df_aot_c_kernel), which must stay
 * valid. NULL: none is known. */
void c_compiler_extents(df_compiler *c, const int64_t (*extents)[DF_MAX_AXES]);

#endif
