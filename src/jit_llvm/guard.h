/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls into LLVM that always end with a status. A call has the stack that it needs, and it returns
 * to its caller where LLVM would end the process. guard.c explains how.
 */
#ifndef DF_JIT_LLVM_GUARD_H
#define DF_JIT_LLVM_GUARD_H

#include <stddef.h>

#include "runtime/device.h"

/* How many bytes of stack a call needs that compiles, and one that releases code. */
#define DF_LLVM_STACK_COMPILE ((size_t)4 << 20)
#define DF_LLVM_STACK_RELEASE ((size_t)32 << 10)

/* Enters the gate of gate.h and calls fn(user) with at least `stack` bytes of stack. This may
 * be another thread, which ends with the call, so fn must not rely on thread-local data.
 * Before fn runs, the call checks that `room` more bytes of memory could be had; 0 skips the check.
 * In a process with a memory limit, only one thread at a time is in such a call, and others wait.
 *
 * Returns the status of fn, or:
 *
 *   DEFT_E_MEMORY   there is no such room or no such stack, or LLVM ran out of memory
 *   DEFT_E_COMPILE  LLVM gave up for another reason
 *   DEFT_E_BACKEND  LLVM may not be used in this process, see df_llvm_gate_enter
 *
 * d may be NULL; it gets the reason. When LLVM runs out of memory or gives up, all locks and memory
 * of the call stay taken, and every later call fails with DEFT_E_BACKEND. Any thread. fn must not
 * call df_llvm_call. */
deft_status df_llvm_call(const df_host *host, df_diag *d, size_t stack, size_t room,
                         deft_status (*fn)(void *user), void *user);

#endif
