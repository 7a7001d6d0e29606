/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of the runtime: services of the operating system beyond POSIX threads. They are
 * implemented in os_linux.c.
 */
#ifndef DF_RUNTIME_OS_H
#define DF_RUNTIME_OS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/compiler.h"

/* ---- memory ---- */

/* The size of a huge page. */
#define DF_OS_HUGE ((size_t)2 << 20)

/* Maps zeroed pages. From DF_OS_HUGE up the address is a multiple of it. Returns NULL on
 * failure. */
void *df_os_map(size_t size);
void df_os_unmap(void *p, size_t size); /* p and size as of df_os_map */
/* Makes pages of df_os_map executable, and no longer writable. Returns false when the system does
 * not permit it. */
bool df_os_make_code(void *p, size_t size);
/* Asks for huge pages in a part of a mapping. p and size must be multiples of DF_OS_HUGE. The
 * system may refuse. */
void df_os_use_huge_pages(void *p, size_t size);
/* Takes that back for pages that have not been written. */
void df_os_use_small_pages(void *p, size_t size);
/* Makes the pages of a part of a mapping that begins at a page take memory now, as writes would.
 * The system may refuse. */
void df_os_populate(void *p, size_t size);

/* Returns true when `size` bytes could be mapped in one piece. Nothing stays mapped, so another
 * thread may use up that memory first. */
bool df_os_has_room(size_t size);
/* Returns true when the process has a limit on its address space or data, or when this cannot be
 * found out. */
bool df_os_is_limited(void);
/* Returns the bytes of the cache of this level, 2 or 3; infinity when they cannot be found out. */
double df_os_cache(int level);

/* ---- threads ---- */

/* Sleeps while *word == value (a futex). May return early. */
void df_os_wait(_Atomic uint32_t *word, uint32_t value);
/* Wakes at most n threads that sleep on word. */
void df_os_wake(_Atomic uint32_t *word, uint32_t n);

/* Makes a condition for df_os_cond_wait_until, which pthread_cond_wait takes, too. */
void df_os_cond_init(pthread_cond_t *c);
/* Waits as pthread_cond_wait does, but no longer than until df_os_now_ns is until_ns. */
void df_os_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns);

/* Returns how many processors the process may use, at least 1. Both the affinity mask and the
 * quota of the control group count. */
uint32_t df_os_n_cpus(void);

/* Writes the numbers of the processors that the process may use to cpus, at most n of them. The
 * processor of the calling thread comes last. Returns how many were written. */
uint32_t df_os_cpus(int *cpus, uint32_t n);

/* Starts a thread in which signals are blocked as base/signals.h says. Its stack has DF_OS_STACK
 * bytes, whatever the limits of the process are. cpu >= 0: the thread is pinned to that processor,
 * where this is allowed. Returns false when the system refuses. */
bool df_os_thread(pthread_t *out, void *(*run)(void *), void *user, int cpu);

/* The stack size that main has on Linux. LLVM is written for this size. */
#define DF_OS_STACK ((size_t)8 << 20)

/* Calls run(user) and returns true after that call has ended. When the calling thread has less than
 * `stack` bytes of stack left, run is called on a new thread, as df_os_thread makes it. So `stack`
 * must not exceed DF_OS_STACK. The main thread is assumed to have 128 KiB left, which is not
 * checked. Returns false, without a call of run, when no thread can be started. */
bool df_os_call(size_t stack, void (*run)(void *user), void *user);

int df_os_cpu(void);                       /* processor of the calling thread; -1: unknown */
void df_os_pin(pthread_t thread, int cpu); /* the system may refuse; this is not reported */
/* Asks that the calling thread does not preempt the thread that wakes it. The system may refuse. */
void df_os_be_patient(void);

uint64_t df_os_now_ns(void); /* time of the monotonic clock */

/* Appends n bytes to the file at path. A new file is readable and writable by its owner only.
 * Returns false on failure. */
bool df_os_append(const char *path, const char *text, size_t n);

/* For spin loops: lets the other hardware thread of the core run. */
#if defined(__x86_64__) || defined(__i386__)
#define df_os_relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define df_os_relax() __asm__ volatile("yield")
#else
#define df_os_relax() ((void)0)
#endif

#endif
