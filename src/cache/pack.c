/* SPDX-License-Identifier: Apache-2.0
 *
 * Packs of pack.h.
 */
#include "cache/pack.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The index must fit in memory, and its size in a uint32_t. */
#define MAX_ENTRIES (1u << 22)

static bool pack_read_at(int fd, uint64_t at, void *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t k = pread(fd, (char *)to + done, n - done, (off_t)(at + done));
        if (k > 0)
            done += (size_t)k;
        else if (k == 0 || errno != EINTR)
            return false;
    }
    return true;
}

/* Reads head and index. */
static bool pack_read_index(df_pack *p)
{
    df_pack_head h;
    if (!pack_read_at(p->fd, 0, &h, sizeof h)) return false;
    if (memcmp(h.magic, DF_PACK_MAGIC, sizeof h.magic) != 0 || h.version != DF_PACK_VERSION ||
        h.n == 0 || h.n > MAX_ENTRIES)
        return false;
    p->n = (uint32_t)h.n;
    p->index = df_mem_alloc(p->mem, p->n * sizeof *p->index);
    if (!p->index) return false;
    return pack_read_at(p->fd, sizeof h, p->index, p->n * sizeof *p->index) &&
           df_hash_equal(h.hash, df_hash_bytes(p->index, p->n * sizeof *p->index));
}

df_pack *df_pack_open(const df_mem *mem, int fd)
{
    df_pack *p = df_mem_zalloc(mem, sizeof *p);
    if (!p) {
        close(fd);
        return NULL;
    }
    p->mem = mem;
    p->fd = fd;
    if (!pack_read_index(p)) df_pack_close(&p);
    return p;
}

void df_pack_close(df_pack **out)
{
    df_pack *const p = *out;
    *out = NULL;
    if (!p) return;
    close(p->fd);
    df_mem_free(p->mem, p->index, p->n * sizeof *p->index);
    df_mem_free(p->mem, p, sizeof *p);
}

df_folder_result df_pack_read(const df_pack *p, const char *name, void **bytes, size_t *n)
{
    uint32_t low = 0, high = p->n;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (memcmp(p->index[middle].name, name, DF_PACK_NAME) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const df_pack_entry *const e = &p->index[low];
    if (low == p->n || memcmp(e->name, name, DF_PACK_NAME) != 0) return DF_FOLDER_MISSING;
    if (e->size == 0 || e->size > DF_FOLDER_MAX_FILE) return DF_FOLDER_REFUSED;
    const size_t size = (size_t)e->size;
    void *const block = df_mem_alloc(p->mem, size);
    if (!block) return DF_FOLDER_REFUSED;
    if (!pack_read_at(p->fd, e->at, block, size)) {
        df_mem_free(p->mem, block, size);
        return DF_FOLDER_REFUSED;
    }
    *bytes = block;
    *n = size;
    return DF_FOLDER_OK;
}
