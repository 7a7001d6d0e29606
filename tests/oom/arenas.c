/* SPDX-License-Identifier: Apache-2.0
 *
 * Linked with --wrap around the functions of base/arena.h. An arena asks for memory only when its
 * chunk is full, which depends on all that was allocated before, so failing each allocation in
 * turn leaves most calls of arenas unfailed. Here each of them first takes a byte from the
 * allocator, and fails when there is none: every caller of an arena sees a failure in its turn.
 * steps.c tells these requests from others by their size.
 */
#include "base/arena.h"

void *__real_df_arena_alloc(df_arena *a, size_t size, size_t align);
void *__real_df_arena_zalloc(df_arena *a, size_t size, size_t align);
void *__real_df_arena_copy(df_arena *a, const void *src, size_t size, size_t align);
char *__real_df_arena_strdup(df_arena *a, const char *s);
void *__wrap_df_arena_alloc(df_arena *a, size_t size, size_t align);
void *__wrap_df_arena_zalloc(df_arena *a, size_t size, size_t align);
void *__wrap_df_arena_copy(df_arena *a, const void *src, size_t size, size_t align);
char *__wrap_df_arena_strdup(df_arena *a, const char *s);

static bool has_memory(const df_arena *a)
{
    void *const p = df_mem_alloc(a->mem, 1);
    if (p) df_mem_free(a->mem, p, 1);
    return p != NULL;
}

void *__wrap_df_arena_alloc(df_arena *a, size_t size, size_t align)
{
    return has_memory(a) ? __real_df_arena_alloc(a, size, align) : NULL;
}

void *__wrap_df_arena_zalloc(df_arena *a, size_t size, size_t align)
{
    return has_memory(a) ? __real_df_arena_zalloc(a, size, align) : NULL;
}

void *__wrap_df_arena_copy(df_arena *a, const void *src, size_t size, size_t align)
{
    return has_memory(a) ? __real_df_arena_copy(a, src, size, align) : NULL;
}

char *__wrap_df_arena_strdup(df_arena *a, const char *s)
{
    return has_memory(a) ? __real_df_arena_strdup(a, s) : NULL;
}
