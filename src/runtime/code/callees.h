/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of callees.def by number.
 */
#ifndef DF_RUNTIME_CODE_CALLEES_H
#define DF_RUNTIME_CODE_CALLEES_H

#include "base/compiler.h"

enum {
#define CALLEE(name, type) DF_CALLEE_##name,
#include "runtime/code/callees.def"
    DF_N_CALLEES
};

/* Returns the number of a function, or DF_N_CALLEES when code may not call it. */
uint32_t df_callee_find(const char *name);
/* Returns the address of function i, which must be below DF_N_CALLEES. */
uintptr_t df_callee_address(uint32_t i);

#endif
