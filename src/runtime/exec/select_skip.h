/* SPDX-License-Identifier: Apache-2.0
 *
 * The scan of select.c for rows whose elements are neighbours, once per instruction set.
 */
#ifndef DF_RUNTIME_EXEC_SELECT_SKIP_H
#define DF_RUNTIME_EXEC_SELECT_SKIP_H

#include "runtime/sort/order.h"

enum { DF_SELECT_BLOCK = 64 }; /* elements */

/* Goes from element `at` of the row at `in` over blocks in which no element has a key below
 * `bound`. Returns the first element of a block that has one, or of the rest, which is shorter than
 * a block. */
typedef int64_t (*df_select_skip_fn)(deft_dtype t, const char *in, uint64_t flip, uint64_t bound,
                                     int64_t at, int64_t end);

int64_t df_select_skip_plain(deft_dtype t, const char *in, uint64_t flip, uint64_t bound,
                             int64_t at, int64_t end);
int64_t df_select_skip_avx2(deft_dtype t, const char *in, uint64_t flip, uint64_t bound, int64_t at,
                            int64_t end);
int64_t df_select_skip_avx512(deft_dtype t, const char *in, uint64_t flip, uint64_t bound,
                              int64_t at, int64_t end);

/* The fastest on this machine. All give the same results. */
df_select_skip_fn df_select_skip_best(void);

#endif
