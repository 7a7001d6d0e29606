/* SPDX-License-Identifier: Apache-2.0
 *
 * The system allocator behind df_mem. malloc of glibc and of musl returns multiples of two
 * pointers, as df_mem requires. Arenas and device buffers provide larger alignments.
 */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static void *system_resize(void *user, void *old, size_t old_size, size_t new_size)
{
    (void)user;
    (void)old_size;
    if (new_size == 0) {
        free(old);
        return NULL;
    }
    return realloc(old, new_size);
}

const df_mem df_mem_system = { .resize = system_resize, .user = NULL };

void *df_mem_alloc(const df_mem *mem, size_t size)
{
    df_assert(size > 0);
    return mem->resize(mem->user, NULL, 0, size);
}

void *df_mem_zalloc(const df_mem *mem, size_t size)
{
    void *const p = df_mem_alloc(mem, size);
    if (p) memset(p, 0, size);
    return p;
}

void df_mem_free(const df_mem *mem, void *p, size_t size)
{
    if (p) mem->resize(mem->user, p, size, 0);
}
