/* SPDX-License-Identifier: Apache-2.0
 *
 * The only access to the system's allocator. Every structure of deft allocates through a df_mem, so
 * that a program can supply its own allocator, and tests can make the n-th call fail.
 */
#ifndef DF_BASE_MEM_H
#define DF_BASE_MEM_H

#include "base/compiler.h"

/* resize(user, old, old_size, new_size) behaves like realloc, and also receives the old size. With
 * old NULL it allocates. With new_size 0 it frees old and returns NULL. On failure it returns NULL
 * and leaves old unchanged. Addresses are multiples of 16, or of 8 where pointers have 4 bytes. Any
 * thread may call it. */
typedef struct df_mem {
    void *(*resize)(void *user, void *old, size_t old_size, size_t new_size);
    void *user;
} df_mem;

/* malloc, realloc and free. */
extern const df_mem df_mem_system;

/* Allocates size bytes; size is above 0. Returns NULL on failure. */
void *df_mem_alloc(const df_mem *mem, size_t size);
/* The same, zeroed. */
void *df_mem_zalloc(const df_mem *mem, size_t size);
/* Frees p, which was allocated with that mem and size. p may be NULL. */
void df_mem_free(const df_mem *mem, void *p, size_t size);

#endif
