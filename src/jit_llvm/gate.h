/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps LLVM from being used while the process ends. See gate.c.
 */
#ifndef DF_JIT_LLVM_GATE_H
#define DF_JIT_LLVM_GATE_H

#include <stdbool.h>

void df_llvm_gate_open(void); /* once, after libLLVM was loaded */

/* false: the process is ending, or was forked while a thread was inside. Any thread; uses may be
 * nested. */
bool df_llvm_gate_enter(void);
void df_llvm_gate_leave(void);

#endif
