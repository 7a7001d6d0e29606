/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/aot: what the code of a kernel may rely on in an exported program, whose extents
 * are mostly known (runtime/facts.h).
 */
#ifndef DF_AOT_FACTS_H
#define DF_AOT_FACTS_H

#include "aot/program.h"

/* Sets AOT_WHOLE_ROWS of each segment whose rows need not be divided between threads. */
void facts_find_whole_rows(program *p);

/* Fills in facts that hold for each launch of kernel i. Returns false when there are none, or when
 * the kernel is the epilogue of a product. */
bool facts_find(const program *p, uint32_t i, df_facts *out);

/* Sets the extent of each axis of kernel i: DF_ANY when it is not known, or not the same in all
 * launches. */
void facts_extents(const program *p, uint32_t i, int64_t out[DF_MAX_AXES]);

#endif
