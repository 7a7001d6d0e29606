/* SPDX-License-Identifier: Apache-2.0
 *
 * The gate that every use of LLVM passes. It keeps LLVM from being used while the process ends, and
 * after a state from which LLVM cannot continue. gate.c explains why.
 */
#ifndef DF_JIT_LLVM_GATE_H
#define DF_JIT_LLVM_GATE_H

#include <stdbool.h>

/* Called once this library and all libraries that it needs are loaded; later calls only return the
 * result. Returns false when the process is ending or a handler of exit() could not be registered.
 * Then no thread can enter. */
bool df_llvm_gate_open(void);
/* Called in a forked child, by the thread that forked, before any thread enters. */
void df_llvm_gate_forked(void);

/* Enters the gate. Returns false when the process is ending, when it was forked while a thread was
 * inside, or after df_llvm_gate_abandon; the caller must not use LLVM then. With `alone`, first
 * waits until no other thread that entered with `alone` is inside. Any thread. A thread may enter
 * again while it is inside, but with `alone` only once. */
bool df_llvm_gate_enter(bool alone);
/* Leaves the gate. alone: as in the call of df_llvm_gate_enter, which returned true. */
void df_llvm_gate_leave(bool alone);

/* Called when a thread has left LLVM in the middle of a call. No thread can enter from then on. */
void df_llvm_gate_abandon(void);

#endif
