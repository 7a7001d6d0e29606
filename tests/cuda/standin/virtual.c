/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses and memory apart: cuMemAddressReserve, cuMemCreate, cuMemMap and so on. Memory is a
 * file without a name, mapped where it is asked for; it keeps its bytes until it is released and
 * mapped nowhere.
 */
#include "state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GRANULE = 2 << 20, FRESH = 0xA5, FILLED_ENDS = GRANULE, MOST_RANGES = 256 };

typedef struct physical {
    object o;
    int file;
    size_t size;
    int n_maps;
} physical;

typedef struct range {
    uint64_t base, size;
} range;

static struct {
    range at[MOST_RANGES];
    uint32_t n, number;
} v;

static range *range_of(uint64_t p)
{
    for (uint32_t i = 0; i < v.n; i++)
        if (p - v.at[i].base < v.at[i].size) return &v.at[i];
    return NULL;
}

bool is_reserved(uint64_t p)
{
    return range_of(p) != NULL;
}

static bool is_granular(uint64_t n)
{
    return n > 0 && n % GRANULE == 0;
}

/* Gives the memory back when nothing holds it. */
static void drop_unused(physical *h)
{
    if (h->o.alive || h->n_maps) return;
    close(h->file);
    gpu_of(h->o.gpu)->used -= h->size;
}

static bool is_pinned_on(const df_cu_alloc_prop *p)
{
    return p->type == 1 && p->location.type == 1 && p->location.id >= 0 &&
           p->location.id < n_gpus();
}

/* ---- addresses ---- */

df_cu_result cuMemGetAllocationGranularity(size_t *n, const df_cu_alloc_prop *p, int which)
{
    const int r = enter(C_cuMemGetAllocationGranularity, BARE);
    if (r) return r;
    if (!is_pinned_on(p) || (which != 0 && which != 1))
        return leave(misuse(BAD_VALUE, "not pinned memory of a device"));
    *n = GRANULE;
    return leave(0);
}

df_cu_result cuMemAddressReserve(df_cu_ptr *out, size_t n, size_t align, df_cu_ptr wish,
                                 uint64_t flags)
{
    const int r = enter(C_cuMemAddressReserve, BARE);
    if (r) return r;
    (void)wish;
    record(" %zu", n);
    if (!is_granular(n) || flags || align & (align - 1))
        return leave(misuse(BAD_VALUE, "%zu bytes at multiples of %zu", n, align));
    if (v.n == MOST_RANGES) return leave(DF_CU_OUT_OF_MEMORY);
    const size_t room = align > GRANULE ? align : GRANULE;
    char *const map =
        mmap(NULL, n + room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return leave(DF_CU_OUT_OF_MEMORY);
    const uint64_t base = ((uint64_t)(uintptr_t)map + room - 1) / room * room;
    const uint64_t before = base - (uint64_t)(uintptr_t)map;
    if (before) munmap(map, before);
    if (room - before) munmap((void *)(uintptr_t)(base + n), room - before);
    v.at[v.n++] = (range){ base, n };
    *out = base;
    return leave(0);
}

static piece *first_in(uint64_t p, uint64_t n)
{
    for (uint64_t at = p; at < p + n; at += GRANULE) {
        piece *const m = piece_at(at);
        if (m) return m;
    }
    return NULL;
}

df_cu_result cuMemAddressFree(df_cu_ptr p, size_t n)
{
    const int r = enter(C_cuMemAddressFree, BARE);
    if (r) return r;
    record(" %zu", n);
    range *const at = range_of(p);
    if (!at || at->base != p || at->size != n)
        return leave(misuse(BAD_VALUE, "%zu bytes are not what was reserved", n));
    if (first_in(p, n))
        return leave(misuse(BAD_VALUE, "v%u is still mapped there", first_in(p, n)->number));
    munmap((void *)(uintptr_t)p, n);
    *at = v.at[--v.n];
    return leave(0);
}

/* ---- memory ---- */

static bool fill_part(int file, size_t from, size_t n)
{
    void *const at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)from);
    if (at == MAP_FAILED) return false;
    memset(at, FRESH, n);
    munmap(at, n);
    return true;
}

/* Of a large piece its two ends: the system takes a millisecond for each MiB. */
static bool fill(int file, size_t n)
{
    if (ftruncate(file, (off_t)n) != 0) return false;
    if (n <= 2 * (size_t)FILLED_ENDS) return fill_part(file, 0, n);
    return fill_part(file, 0, FILLED_ENDS) && fill_part(file, n - FILLED_ENDS, FILLED_ENDS);
}

df_cu_result cuMemCreate(df_cu_handle *out, size_t n, const df_cu_alloc_prop *p, uint64_t flags)
{
    const int r = enter(C_cuMemCreate, BARE);
    if (r) return r;
    if (!is_pinned_on(p) || flags || p->handle_types || !is_granular(n))
        return leave(misuse(BAD_VALUE, "%zu bytes, or not pinned memory of a device", n));
    gpu *const g = gpu_of(p->location.id);
    if (n > g->is.bytes - g->used) {
        record(" %zu: out of memory", n);
        return leave(DF_CU_OUT_OF_MEMORY);
    }
    const int file = memfd_create("standin", MFD_CLOEXEC);
    if (file < 0 || !fill(file, n)) {
        if (file >= 0) close(file);
        return leave(DF_CU_OUT_OF_MEMORY);
    }
    physical *const h = object_new(PHYSICAL, p->location.id, sizeof *h);
    h->file = file;
    h->size = n;
    g->used += n;
    *out = (df_cu_handle)(uintptr_t)handle_of(h);
    record(" %s %zu of gpu%d", object_name(h), n, h->o.gpu);
    return leave(0);
}

static physical *physical_of(df_cu_handle handle)
{
    return object_get_any(PHYSICAL, (const void *)(uintptr_t)handle);
}

df_cu_result cuMemRelease(df_cu_handle handle)
{
    const int r = enter(C_cuMemRelease, BARE);
    if (r) return r;
    physical *const h = physical_of(handle);
    if (!h) return leave(BAD_HANDLE);
    record(" %s", object_name(h));
    h->o.alive = false;
    drop_unused(h);
    return leave(0);
}

df_cu_result cuMemMap(df_cu_ptr p, size_t n, size_t offset, df_cu_handle handle, uint64_t flags)
{
    const int r = enter(C_cuMemMap, BARE);
    if (r) return r;
    physical *const h = physical_of(handle);
    const range *const in = range_of(p);
    if (!h) return leave(BAD_HANDLE);
    record(" %s %zu", object_name(h), n);
    if (offset || flags || n != h->size)
        return leave(misuse(BAD_VALUE, "%zu bytes from %zu: %s has %zu", n, offset, object_name(h),
                            h->size));
    if (!in || n > in->base + in->size - p || p % GRANULE)
        return leave(misuse(BAD_VALUE, "%zu bytes at addresses that were not reserved", n));
    if (first_in(p, n))
        return leave(misuse(BAD_VALUE, "v%u is mapped there", first_in(p, n)->number));
    if (mmap((void *)(uintptr_t)p, n, PROT_NONE, MAP_SHARED | MAP_FIXED, h->file, 0) == MAP_FAILED)
        return leave(DF_CU_OUT_OF_MEMORY);
    h->n_maps++;
    piece_add(&(piece){ .base = p,
                        .size = n,
                        .asked = n,
                        .map = (char *)(uintptr_t)p,
                        .map_size = n,
                        .gpu = h->o.gpu,
                        .number = ++v.number,
                        .is_mapped = true,
                        .physical = &h->o });
    return leave(0);
}

static void unmap(piece *m)
{
    physical *const h = (physical *)m->physical;
    if (mmap(m->map, m->map_size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        abort();
    h->n_maps--;
    drop_unused(h);
    piece_drop(m);
}

/* 0 when [p, p + n) is whole pieces that are mapped. */
static int look_whole(uint64_t p, uint64_t n)
{
    for (uint64_t at = p; at < p + n;) {
        const piece *const m = piece_at(at);
        if (!m || !m->is_mapped || m->base != at || m->base + m->size > p + n)
            return misuse(BAD_VALUE, "%llu bytes are not what was mapped", (unsigned long long)n);
        at += m->size;
    }
    return n ? 0 : misuse(BAD_VALUE, "0 bytes");
}

df_cu_result cuMemUnmap(df_cu_ptr p, size_t n)
{
    int r = enter(C_cuMemUnmap, BARE);
    if (r) return r;
    record(" %s %zu", address_name(p), n);
    r = look_whole(p, n);
    if (r) return leave(r);
    const op *const user = work_on(p, n, false);
    if (user) {
        misuse(0, "%s may still be used by a queued %s", address_name(p), op_name(user));
        run_gpu(piece_at(p)->gpu);
    }
    for (piece *m; (m = piece_at(p)) && n > 0;) {
        n -= m->size;
        p += m->size;
        unmap(m);
    }
    return leave(0);
}

df_cu_result cuMemSetAccess(df_cu_ptr p, size_t n, const df_cu_access *access, size_t n_access)
{
    int r = enter(C_cuMemSetAccess, BARE);
    if (r) return r;
    record(" %s %zu", address_name(p), n);
    r = look_whole(p, n);
    if (r) return leave(r);
    for (uint64_t at = p; at < p + n; at += piece_at(at)->size)
        for (size_t i = 0; i < n_access; i++) {
            piece *const m = piece_at(at);
            if (access[i].location.type != 1 || access[i].flags != 3)
                return leave(misuse(BAD_VALUE, "access other than a device's reads and writes"));
            if (access[i].location.id == m->gpu) m->is_access = true;
        }
    return leave(0);
}

/* ---- control ---- */

void virtual_reset(void)
{
    physical *h;
    uint32_t at = 0;
    for (uint32_t i = 0; i < v.n; i++) {
        piece *m;
        while ((m = first_in(v.at[i].base, v.at[i].size))) unmap(m);
        munmap((void *)(uintptr_t)v.at[i].base, v.at[i].size);
    }
    while ((h = object_next(PHYSICAL, &at))) {
        if (!h->o.alive) continue;
        h->o.alive = false;
        drop_unused(h);
    }
    memset(&v, 0, sizeof v);
}

void virtual_leaks(standin_alive *out)
{
    out->reserved = (int)v.n;
}
