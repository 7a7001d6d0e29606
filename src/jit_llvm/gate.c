/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of the process. A program may leave main while the background thread compiles; exit()
 * then destroys libLLVM's static objects under its feet. So every use of LLVM passes a gate, and a
 * handler that runs before those destructors waits for what is inside and lets nothing more in.
 *
 * Handlers run in the opposite order of their registration, and LLVM registers destructors of what
 * it makes on first use: so the handler is registered once libLLVM is loaded and again after each
 * of the first uses. What remains is a process that ends within its very first compilation.
 */
#include "jit_llvm/gate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static pthread_rwlock_t gate = PTHREAD_RWLOCK_INITIALIZER;
static atomic_bool closed;
static atomic_uint n_uses;

#define FIRST_USES 64

static void close_gate(void)
{
    if (!atomic_exchange(&closed, true)) (void)pthread_rwlock_wrlock(&gate);
}

void df_llvm_gate_open(void)
{
    (void)atexit(close_gate);
}

bool df_llvm_gate_enter(void)
{
    return pthread_rwlock_tryrdlock(&gate) == 0;
}

void df_llvm_gate_leave(void)
{
    (void)pthread_rwlock_unlock(&gate);
    if (atomic_fetch_add(&n_uses, 1) < FIRST_USES) (void)atexit(close_gate);
}
