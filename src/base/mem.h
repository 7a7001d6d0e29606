/* SPDX-License-Identifier: Apache-2.0
 *
 * The one door to the system's allocator. Every structure of deft grows through a df_mem, so that
 * an application can supply its own allocator and tests can fail the n-th call.
 */
#ifndef DF_BASE_MEM_H
#define DF_BASE_MEM_H

#include "base/compiler.h"

/* resize(user, old, old_size, new_size): realloc semantics with sizes; new_size 0 frees and returns
 * NULL; NULL on failure, old untouched. Must be callable from any thread. Alignment 16. */
typedef struct df_mem {
    void *(*resize)(void *user, void *old, size_t old_size, size_t new_size);
    void *user;
} df_mem;

/* malloc, realloc and free. Static, immutable. */
extern const df_mem df_mem_system;

void *df_mem_alloc(const df_mem *mem, size_t size);        /* NULL on failure; size > 0 */
void *df_mem_zalloc(const df_mem *mem, size_t size);       /* the same, zeroed */
void df_mem_free(const df_mem *mem, void *p, size_t size); /* p may be NULL */

#endif
