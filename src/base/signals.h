/* SPDX-License-Identifier: Apache-2.0
 *
 * Signals of threads that the library starts. Such a thread blocks what the process is told, SIGINT
 * for example, because that is for a thread of the program. It does not block signals of what it
 * does itself, such as SIGSEGV: the system would end the process at once, without a call of the
 * program's handler.
 */
#ifndef DF_BASE_SIGNALS_H
#define DF_BASE_SIGNALS_H

#include <pthread.h>
#include <signal.h>

#include "base/compiler.h"

/* Blocks the signals of the process in the calling thread, whose new threads inherit that.
 * pthread_sigmask(SIG_SETMASK, before, NULL) undoes it. */
DF_INLINE void df_signals_block(sigset_t *before)
{
    static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

#endif
