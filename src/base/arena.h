/* SPDX-License-Identifier: Apache-2.0
 *
 * Bump allocation: all memory of an arena is freed together, never an object alone. A trace, or a
 * plan, has one arena for all its parts and strings. One thread at a time may use an arena.
 */
#ifndef DF_BASE_ARENA_H
#define DF_BASE_ARENA_H

#include "base/mem.h"

typedef struct df_arena_chunk df_arena_chunk;

typedef struct df_arena {
    const df_mem *mem;    /* borrowed */
    df_arena_chunk *head; /* list of chunks, newest first */
    char *at, *end;       /* free part of the head chunk */
    size_t total;         /* bytes allocated from mem */
} df_arena;

/* Initialises an empty arena without allocating memory. */
void df_arena_init(df_arena *a, const df_mem *mem);
/* Frees all memory. The arena is then empty and may be used again. */
void df_arena_finish(df_arena *a);
/* Invalidates all objects, but keeps the newest chunk for the next ones. */
void df_arena_reset(df_arena *a);

/* Returns size bytes at an address that is a multiple of align, a power of two. The bytes are not
 * zeroed. Returns NULL when memory runs out. A size of 0 gives a valid pointer. */
void *df_arena_alloc(df_arena *a, size_t size, size_t align);
/* The same, zeroed. */
void *df_arena_zalloc(df_arena *a, size_t size, size_t align);
/* The same, with a copy of size bytes at src, which may be NULL when size is 0. */
void *df_arena_copy(df_arena *a, const void *src, size_t size, size_t align);
/* A copy of a string, or NULL when memory runs out. */
char *df_arena_strdup(df_arena *a, const char *s);

/* n zeroed objects, or NULL when memory runs out. The product of n and the size is not checked for
 * overflow, so n must not come from the program's input. */
#define df_arena_new(a, type, n)                                                                   \
    ((type *)df_arena_zalloc((a), sizeof(type) * (size_t)(n), _Alignof(type)))

#endif
