/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/aot: which extents of a program are parameters of the exported function.
 */
#ifndef DF_AOT_EXTENTS_H
#define DF_AOT_EXTENTS_H

#include "aot/program.h"

/* Finds the extents of all nodes of p->t, from the axes that are open. Its plan must exist, and the
 * parameters that are extents. Fails with DEFT_E_ARG when an operator takes its extents from the
 * program, and nothing says how they follow from those that are open. */
deft_status extents_spread(program *p);

/* Returns the parameter that is the extent of `axis` of a node. Returns DF_NONE where the extent is
 * a number, which is then in *value. An extent that follows from parameters in another way is a
 * failure (p->st). */
uint32_t extents_find(program *p, uint32_t node, uint32_t axis, int64_t *value);

#endif
