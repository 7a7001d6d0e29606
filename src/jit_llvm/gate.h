/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps LLVM from being used while the process ends. See gate.c.
 */
#ifndef DF_JIT_LLVM_GATE_H
#define DF_JIT_LLVM_GATE_H

#include <stdbool.h>

/* After this library and all that it needs were loaded; again is fine. false: the process is
 * ending, and nobody enters. */
bool df_llvm_gate_open(void);
/* In a child, by the thread that forked, before anybody enters. */
void df_llvm_gate_forked(void);

/* false: the process is ending, was forked while a thread was inside, or the gate was lost. Any
 * thread; uses may be nested. */
bool df_llvm_gate_enter(bool alone); /* waits until no other that is alone is inside */
void df_llvm_gate_leave(bool alone); /* as it entered */

/* LLVM was left in the middle of a call: from now on nobody enters. */
void df_llvm_gate_abandon(void);

#endif
