/* SPDX-License-Identifier: Apache-2.0
 *
 * For os_linux.c: where a new thread runs.
 */
#ifndef DF_RUNTIME_OS_PLACE_H
#define DF_RUNTIME_OS_PLACE_H

#include <pthread.h>
#include <stdbool.h>

/* Asks that a thread which is made with attr runs on this processor alone. When the system refuses
 * the processor, making the thread fails. Returns false when attributes cannot hold that. */
bool df_os_place(pthread_attr_t *attr, int cpu);

#endif
