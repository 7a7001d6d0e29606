/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of chunks, newest first. Allocation advances a pointer through the newest chunk.
 *
 *   head -> [ prev | size | used ... | at  free  end ]
 *             |
 *             v
 *           [ prev | size | used .................. ]
 *
 * A new chunk is about as large as all chunks so far, within [CHUNK_MIN, CHUNK_MAX]. So a small
 * trace costs one allocation, and a large one a logarithmic number of them up to CHUNK_MAX. The
 * free part of the old chunk is wasted.
 */
#include "base/arena.h"

#include <string.h>

#define CHUNK_MIN ((size_t)4096)
#define CHUNK_MAX ((size_t)1 << 20)

struct df_arena_chunk {
    df_arena_chunk *prev;
    size_t size; /* bytes of the chunk with this header */
};

static void free_chunks(df_arena *a, df_arena_chunk *c)
{
    while (c) {
        df_arena_chunk *const prev = c->prev;
        a->total -= c->size;
        df_mem_free(a->mem, c, c->size);
        c = prev;
    }
}

static bool add_chunk(df_arena *a, size_t size, size_t align)
{
    size_t least;
    if (__builtin_add_overflow(size, sizeof(df_arena_chunk) + align, &least)) return false;
    size_t bytes = a->total < CHUNK_MIN ? CHUNK_MIN : a->total;
    if (bytes > CHUNK_MAX) bytes = CHUNK_MAX;
    if (bytes < least) bytes = least;

    df_arena_chunk *const c = df_mem_alloc(a->mem, bytes);
    if (!c) return false;
    *c = (df_arena_chunk){ .prev = a->head, .size = bytes };
    a->head = c;
    a->at = (char *)(c + 1);
    a->end = (char *)c + bytes;
    a->total += bytes;
    return true;
}

/* Bytes to skip so that p becomes a multiple of align. */
static size_t padding(const char *p, size_t align)
{
    return (size_t)(-(uintptr_t)p & (align - 1));
}

void df_arena_init(df_arena *a, const df_mem *mem)
{
    *a = (df_arena){ .mem = mem };
}

void df_arena_finish(df_arena *a)
{
    free_chunks(a, a->head);
    df_assert(a->total == 0);
    df_arena_init(a, a->mem);
}

void df_arena_reset(df_arena *a)
{
    if (!a->head) return;
    free_chunks(a, a->head->prev);
    a->head->prev = NULL;
    a->at = (char *)(a->head + 1);
    df_assert(a->total == a->head->size);
}

void *df_arena_alloc(df_arena *a, size_t size, size_t align)
{
    df_assert(align > 0 && (align & (align - 1)) == 0);
    if (DF_LIKELY(a->head != NULL)) {
        const size_t skip = padding(a->at, align);
        const size_t room = (size_t)(a->end - a->at);
        if (DF_LIKELY(skip <= room && size <= room - skip)) {
            char *const p = a->at + skip;
            a->at = p + size;
            return p;
        }
    }
    if (!add_chunk(a, size, align)) return NULL;
    char *const p = a->at + padding(a->at, align);
    a->at = p + size;
    return p;
}

void *df_arena_zalloc(df_arena *a, size_t size, size_t align)
{
    void *const p = df_arena_alloc(a, size, align);
    if (p) memset(p, 0, size);
    return p;
}

void *df_arena_copy(df_arena *a, const void *src, size_t size, size_t align)
{
    void *const p = df_arena_alloc(a, size, align);
    if (p && size) memcpy(p, src, size);
    return p;
}

char *df_arena_strdup(df_arena *a, const char *s)
{
    return df_arena_copy(a, s, strlen(s) + 1, 1);
}
