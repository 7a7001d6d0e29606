/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the runtime: what it asks of the operating system beyond POSIX threads. os_linux.c.
 */
#ifndef DF_RUNTIME_OS_H
#define DF_RUNTIME_OS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/compiler.h"

/* ---- memory ---- */

/* Zeroed pages whose address is a multiple of 64; from 2 MiB up of 2 MiB, and asked to be huge.
 * NULL when there are none. */
void *df_os_map(size_t size);
void df_os_unmap(void *p, size_t size);

/* Whether so much more memory could be had in one piece. Takes none: another thread may take it
 * first. */
bool df_os_has_room(size_t size);
/* Whether the process has a limit on its address space or data. */
bool df_os_is_limited(void);

/* ---- threads ---- */

/* Sleeps while *word == value; may return early. */
void df_os_wait(_Atomic uint32_t *word, uint32_t value);
void df_os_wake(_Atomic uint32_t *word, uint32_t n);

/* How many processors the process may use: affinity mask and control group quota. At least 1. */
uint32_t df_os_n_cpus(void);

/* Numbers of the processors the process may use, the one we are on last; at most n. Returns how
 * many. */
uint32_t df_os_cpus(int *cpus, uint32_t n);

/* Starts a thread in which every signal is blocked, with a stack of DF_OS_STACK whatever the limits
 * of the process say. cpu >= 0: pinned there, if that is allowed. false when the system refuses. */
bool df_os_thread(pthread_t *out, void *(*run)(void *), void *user, int cpu);

/* As main has it on Linux, which is what LLVM is made for. */
#define DF_OS_STACK ((size_t)8 << 20)

/* Calls run(user), and returns true when that has ended. When the calling thread has less than
 * `stack` bytes of stack left (main counts as having 128 KiB), run is called in a thread as above,
 * which ends with it. Returns false when there is no such thread: nothing was called. */
bool df_os_call(size_t stack, void (*run)(void *user), void *user);

int df_os_cpu(void);                       /* the processor we are on; -1: unknown */
void df_os_pin(pthread_t thread, int cpu); /* only a wish */
void df_os_be_patient(void); /* this thread does not push aside whoever wakes it; only a wish */

uint64_t df_os_now_ns(void);

/* Appends n bytes to the file at path, which is made for its owner alone when there is none. */
bool df_os_append(const char *path, const char *text, size_t n);

/* In a spin loop: leaves the core to its other thread. */
#if defined(__x86_64__) || defined(__i386__)
#define df_os_relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define df_os_relax() __asm__ volatile("yield")
#else
#define df_os_relax() ((void)0)
#endif

#endif
