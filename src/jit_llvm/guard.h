/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls into LLVM that end with a status whatever happens: each has the stack that it needs, and
 * comes back when LLVM would end the process. See guard.c.
 */
#ifndef DF_JIT_LLVM_GUARD_H
#define DF_JIT_LLVM_GUARD_H

#include <stddef.h>

#include "runtime/device.h"

/* How much stack a call takes: of compiling; of giving code back. */
#define DF_LLVM_STACK_COMPILE ((size_t)4 << 20)
#define DF_LLVM_STACK_RELEASE ((size_t)32 << 10)

/* Calls fn(user), through the gate, with `stack` bytes of stack, where `room` more bytes of memory
 * could be had (0: not asked). Returns fn's status; DEFT_E_MEMORY when there is no such memory, no
 * such stack, or LLVM found no memory; DEFT_E_COMPILE when LLVM gave up for another reason;
 * DEFT_E_BACKEND when LLVM may not be used (any more) in this process. d (may be NULL) has a
 * sentence. Once LLVM was left in the middle, what that call held is never given back, and every
 * later call fails. Any thread; not nested. */
deft_status df_llvm_call(const df_host *host, df_diag *d, size_t stack, size_t room,
                         deft_status (*fn)(void *user), void *user);

#endif
