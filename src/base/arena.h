/* SPDX-License-Identifier: Apache-2.0
 *
 * Bump allocation: everything in an arena dies with it, nothing is freed alone.
 * A trace, a plan and all their strings each live in one arena. One thread at a time.
 */
#ifndef DF_BASE_ARENA_H
#define DF_BASE_ARENA_H

#include "base/mem.h"

typedef struct df_arena_chunk df_arena_chunk;

typedef struct df_arena {
    const df_mem *mem;
    df_arena_chunk *head; /* newest first */
    char *at, *end;       /* free part of the head chunk */
    size_t total;         /* bytes held from mem */
} df_arena;

void df_arena_init(df_arena *a, const df_mem *mem); /* takes no memory yet */
void df_arena_finish(df_arena *a);                  /* frees all; the arena may be used again */
void df_arena_reset(df_arena *a);                   /* forgets all, keeps the newest chunk */

/* size bytes at an address that is a multiple of align (a power of two); not zeroed. NULL when
 * memory is short. size 0 gives a valid pointer. */
void *df_arena_alloc(df_arena *a, size_t size, size_t align);
void *df_arena_zalloc(df_arena *a, size_t size, size_t align);
void *df_arena_copy(df_arena *a, const void *src, size_t size, size_t align);
char *df_arena_strdup(df_arena *a, const char *s);

/* n zeroed objects. n is ours, never a user's number: the product is not checked. */
#define df_arena_new(a, type, n)                                                                   \
    ((type *)df_arena_zalloc((a), sizeof(type) * (size_t)(n), _Alignof(type)))

#endif
