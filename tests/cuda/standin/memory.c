/* SPDX-License-Identifier: Apache-2.0
 *
 * What is at an address. A piece of device memory is a mapping of its own, inaccessible but while a
 * call has opened it; it ends where its last page does, and a page that is never accessible
 * follows. So whoever runs over its end faults, and the bytes up to the next 256 are watched.
 */
#include "state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, ALIGN = 256, FRESH = 0xA5, FILLED_WHOLE = 64 << 20, FILLED_ENDS = 1 << 20 };

static struct {
    piece **at; /* by address */
    uint32_t n, cap, n_open;
    uint32_t number;
    pinned *pinned;
    uint32_t n_pinned, cap_pinned, pinned_number;
} m;

/* ---- pieces ---- */

/* How many begin at p or before. */
static uint32_t rank_of(uint64_t p)
{
    uint32_t low = 0, high = m.n;
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        if (m.at[mid]->base <= p)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

piece *piece_at(uint64_t p)
{
    const uint32_t rank = rank_of(p);
    if (rank == 0 || p - m.at[rank - 1]->base >= m.at[rank - 1]->size) return NULL;
    return m.at[rank - 1];
}

void piece_add(const piece *p)
{
    if (m.n == m.cap) {
        m.cap = m.cap ? 2 * m.cap : 64;
        m.at = realloc(m.at, m.cap * sizeof(piece *));
        if (!m.at) abort();
    }
    const uint32_t rank = rank_of(p->base);
    memmove(m.at + rank + 1, m.at + rank, (m.n - rank) * sizeof(piece *));
    m.at[rank] = grab(sizeof *p);
    *m.at[rank] = *p;
    m.n++;
}

void piece_drop(piece *p)
{
    const uint32_t rank = rank_of(p->base);
    m.n_open -= p->is_open;
    memmove(m.at + rank - 1, m.at + rank, (m.n - rank) * sizeof(piece *));
    m.n--;
    free(p);
}

bool is_there(uint64_t p, uint64_t n, int *of)
{
    while (n > 0) {
        const piece *const at = piece_at(p);
        if (!at || !at->is_access) return false;
        if (of) *of = at->gpu;
        const uint64_t rest = at->base + at->size - p;
        if (rest >= n) return true;
        p += rest;
        n -= rest;
    }
    return true;
}

bool in_device_range(uint64_t p)
{
    return piece_at(p) || is_reserved(p);
}

static void set_open(piece *p, bool open)
{
    if (p->is_open == open || !p->is_access) return;
    if (mprotect(p->map, p->map_size, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) abort();
    p->is_open = open;
    m.n_open += open ? 1 : -1u;
}

void open_range(uint64_t p, uint64_t n)
{
    for (uint64_t done = 0; done < n;) {
        piece *const at = piece_at(p + done);
        set_open(at, true);
        done = at->base + at->size - p;
    }
}

bool open_at(uint64_t p, int ordinal)
{
    const uint32_t with = gpu_of(ordinal)->peers | 1u << ordinal;
    piece *const at = piece_at(p);
    if (!at || !at->is_access || at->is_open || !(with >> at->gpu & 1)) return false;
    set_open(at, true);
    return true;
}

void close_all(void)
{
    for (uint32_t i = 0; m.n_open && i < m.n; i++) set_open(m.at[i], false);
}

/* ---- pinned memory ---- */

pinned *pinned_at(const void *p, size_t n)
{
    for (uint32_t i = 0; i < m.n_pinned; i++) {
        pinned *const h = &m.pinned[i];
        const size_t off = (size_t)((const char *)p - h->at);
        if ((const char *)p >= h->at && off < h->size && n <= h->size - off) return h;
    }
    return NULL;
}

/* ---- the library ---- */

df_cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    const int r = enter(C_cuMemGetInfo_v2, NEEDS_CONTEXT);
    if (r) return r;
    const gpu *const g = gpu_of(current());
    *total = g->is.bytes;
    *free_bytes = g->is.bytes - g->used;
    return leave(0);
}

static void fill_fresh(char *at, size_t n)
{
    if (n <= FILLED_WHOLE) {
        memset(at, FRESH, n);
        return;
    }
    memset(at, FRESH, FILLED_ENDS);
    memset(at + n - FILLED_ENDS, FRESH, FILLED_ENDS);
}

df_cu_result cuMemAlloc_v2(df_cu_ptr *out, size_t n)
{
    const int r = enter(C_cuMemAlloc_v2, NEEDS_CONTEXT);
    if (r) return r;
    gpu *const g = gpu_of(current());
    if (n == 0) return leave(misuse(BAD_VALUE, "of 0 bytes"));
    if (n > g->is.bytes - g->used || n + ALIGN > g->is.bytes - g->used + ALIGN) {
        record(" %zu: out of memory", n);
        return leave(DF_CU_OUT_OF_MEMORY);
    }
    const size_t size = (n + ALIGN - 1) / ALIGN * ALIGN;
    const size_t pages = (size + PAGE - 1) / PAGE * PAGE;
    char *const map =
        mmap(NULL, pages + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED || mprotect(map, pages, PROT_READ | PROT_WRITE) != 0)
        return leave(DF_CU_OUT_OF_MEMORY);
    piece p = { .base = (uint64_t)(uintptr_t)(map + pages - size),
                .size = size,
                .asked = n,
                .map = map,
                .map_size = pages,
                .gpu = current(),
                .number = ++m.number,
                .is_access = true };
    fill_fresh((char *)(uintptr_t)p.base, size);
    if (mprotect(map, pages, PROT_NONE) != 0) abort();
    piece_add(&p);
    g->used += n;
    *out = p.base;
    record(" m%u %zu", p.number, n);
    return leave(0);
}

/* What lies between the bytes asked for and the end is as it was. */
static void look_at_end(const piece *p)
{
    const unsigned char *const at = (const unsigned char *)(uintptr_t)p->base;
    open_range(p->base, p->size);
    for (uint64_t i = p->asked; i < p->size; i++) {
        if (at[i] == FRESH) continue;
        misuse(0, "m%u, of %llu bytes, was written at byte %llu", p->number,
               (unsigned long long)p->asked, (unsigned long long)i);
        return;
    }
}

static void unmap(piece *p)
{
    gpu_of(p->gpu)->used -= p->asked;
    munmap(p->map, p->map_size + PAGE);
    piece_drop(p);
}

df_cu_result cuMemFree_v2(df_cu_ptr at)
{
    const int r = enter(C_cuMemFree_v2, NEEDS_CONTEXT);
    if (r) return r;
    piece *const p = piece_at(at);
    record(" %s", address_name(at));
    if (!p || p->base != at || p->is_mapped)
        return leave(misuse(BAD_VALUE, "%s is not what cuMemAlloc gave%s", address_name(at),
                            p ? "" : ", or was freed"));
    if (p->gpu != current())
        return leave(misuse(BAD_VALUE, "m%u is of gpu%d, the current context of gpu%d", p->number,
                            p->gpu, current()));
    const op *const user = work_on(p->base, p->size, false);
    if (user) {
        misuse(0, "m%u may still be used by a queued %s", p->number, op_name(user));
        run_gpu(p->gpu);
    }
    look_at_end(p);
    unmap(p);
    return leave(0);
}

df_cu_result cuMemHostAlloc(void **out, size_t n, unsigned flags)
{
    const int r = enter(C_cuMemHostAlloc, NEEDS_CONTEXT);
    if (r) return r;
    if (n == 0) return leave(misuse(BAD_VALUE, "of 0 bytes"));
    if (flags & ~7u) return leave(misuse(BAD_VALUE, "flags %u", flags));
    char *const at =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return leave(DF_CU_OUT_OF_MEMORY);
    fill_fresh(at, n);
    if (m.n_pinned == m.cap_pinned) {
        m.cap_pinned = m.cap_pinned ? 2 * m.cap_pinned : 16;
        m.pinned = realloc(m.pinned, m.cap_pinned * sizeof *m.pinned);
        if (!m.pinned) abort();
    }
    m.pinned[m.n_pinned++] = (pinned){ at, n, ++m.pinned_number };
    *out = at;
    record(" h%u %zu", m.pinned_number, n);
    return leave(0);
}

df_cu_result cuMemFreeHost(void *at)
{
    const int r = enter(C_cuMemFreeHost, NEEDS_CONTEXT);
    if (r) return r;
    pinned *const h = pinned_at(at, 1);
    record(" %s", host_name(at));
    if (!h || h->at != at)
        return leave(misuse(BAD_VALUE, "%s is not what cuMemHostAlloc gave%s", host_name(at),
                            h ? "" : ", or was freed"));
    const op *const user = work_on((uint64_t)(uintptr_t)h->at, h->size, true);
    if (user) {
        misuse(0, "h%u may still be used by a queued %s", h->number, op_name(user));
        for (int i = 0; i < n_gpus(); i++) run_gpu(i);
    }
    munmap(h->at, h->size);
    *h = m.pinned[--m.n_pinned];
    return leave(0);
}

df_cu_result cuPointerGetAttribute(void *out, int attribute, df_cu_ptr at)
{
    const int r = enter(C_cuPointerGetAttribute, NEEDS_CONTEXT);
    if (r) return r;
    const piece *const p = piece_at(at);
    const pinned *const h = pinned_at((const void *)(uintptr_t)at, 1);
    record(" %d %s", attribute, p ? address_name(at) : host_name((const void *)(uintptr_t)at));
    if (!p && !h) return leave(BAD_VALUE);
    const uint64_t base = p ? p->base : (uint64_t)(uintptr_t)h->at;
    switch (attribute) {
    case 2: *(unsigned *)out = p ? 2 : 1; break;
    case 3: *(df_cu_ptr *)out = at; break;
    case 4:
        if (p) return leave(BAD_VALUE);
        memcpy(out, &at, sizeof(void *));
        break;
    case 8: *(unsigned *)out = 0; break; /* managed */
    case 9: *(int *)out = p ? p->gpu : 0; break;
    case 11: *(df_cu_ptr *)out = base; break;
    case 12: *(size_t *)out = p ? p->asked : h->size; break;
    default: return leave(misuse(BAD_VALUE, "the stand-in knows no attribute %d", attribute));
    }
    return leave(0);
}

/* ---- control ---- */

void memory_reset(void)
{
    while (m.n) {
        piece *const p = m.at[m.n - 1];
        if (p->is_mapped) abort();
        unmap(p);
    }
    for (uint32_t i = 0; i < m.n_pinned; i++) munmap(m.pinned[i].at, m.pinned[i].size);
    free(m.pinned);
    free(m.at);
    memset(&m, 0, sizeof m);
}

void memory_leaks(standin_alive *out)
{
    for (uint32_t i = 0; i < m.n; i++) {
        out->mapped += m.at[i]->is_mapped;
        out->memory += !m.at[i]->is_mapped;
    }
    out->pinned = (int)m.n_pinned;
    for (int i = 0; i < n_gpus(); i++) out->bytes += gpu_of(i)->used;
}
