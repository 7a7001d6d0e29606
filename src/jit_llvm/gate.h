/* SPDX-License-Identifier: Apache-2.0
 *
 * The gate that every use of LLVM passes. It keeps LLVM from being used while the process ends, and
 * after a state from which LLVM cannot continue. gate.c explains why.
 */
#ifndef DF_JIT_LLVM_GATE_H
#define DF_JIT_LLVM_GATE_H

#include <stdbool.h>

/* Called when this library and all libraries that it needs are loaded, before any thread enters.
 * The first call registers a handler of exit(), which waits without limit until no thread is
 * inside, so a thread that is inside must not call exit(). Each call
 * returns whether threads may still enter. The answer is false when the process is ending, or when
 * the handler could not be registered. */
bool df_llvm_gate_open(void);
/* Called in a forked child, by the thread that forked, before any thread enters. When any thread
 * was inside at the fork, including the calling thread, no thread can enter. */
void df_llvm_gate_forked(void);

/* Enters the gate. Returns false after the handler of exit() has found no thread inside, after a
 * fork while a thread was inside, or after df_llvm_gate_abandon. The caller must not use LLVM then,
 * nor call df_llvm_gate_leave. While the handler waits, threads may still enter. With `alone`,
 * first waits until no other thread that entered with `alone` is inside. Any thread. A thread
 * may enter again while it is inside, but with `alone` only once. */
bool df_llvm_gate_enter(bool alone);
/* Leaves the gate. alone: as in the call of df_llvm_gate_enter, which returned true. */
void df_llvm_gate_leave(bool alone);

/* Called when a thread has jumped out of LLVM before a call had ended. No thread can enter from
 * then on. Other threads that are inside may continue, but may wait for ever for a lock of LLVM.
 * The caller must still call df_llvm_gate_leave. */
void df_llvm_gate_abandon(void);

#endif
