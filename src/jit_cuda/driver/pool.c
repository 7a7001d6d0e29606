/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory is mapped in pieces, one after the other from the front, and unmapped from the
 * end.
 *
 *   base |piece 0|piece 1|piece 2| addresses without memory ...          | reserved
 *
 * A piece counts as live memory of the GPU, within its max_bytes.
 *
 * Without virtual memory there is one piece, allocated by cuMemAlloc with the greatest size
 * that the pool may have. It is allocated when the first byte is needed, and freed when
 * none is.
 */
#include "jit_cuda/driver/pool.h"

#include "base/vec.h"
#include "jit_cuda/driver/gpu_internal.h"

enum { PIECE = 32 << 20, PINNED = 1, DEVICE = 1, READ_WRITE = 3 };

typedef struct piece {
    size_t size;
    df_cu_handle memory;
} piece;

struct df_cuda_pool {
    df_gpu *g;
    const df_mem *mem;
    df_cu_ptr base;
    size_t reserved, grain, bytes;
    bool is_block; /* without virtual memory: one block of `reserved` bytes, or none */
    DF_VEC(piece) pieces;
};

static size_t rounded(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static df_cu_alloc_prop memory_of(const df_gpu *g)
{
    return (df_cu_alloc_prop){ .type = PINNED, .location = { DEVICE, g->device } };
}

/* Reserves the addresses. The context is current. */
static deft_status reserve(df_cuda_pool *p, df_diag *d)
{
    df_gpu *const g = p->g;
    const df_cu_alloc_prop prop = memory_of(g);
    size_t grain = 0;
    df_cu_result r = g->dr->va_granularity(&grain, &prop, 0);
    if (r) return df_gpu_failed(g, NULL, d, r, false, "cuMemGetAllocationGranularity");
    p->grain = grain;
    p->reserved = rounded((size_t)g->facts.bytes, grain);
    r = g->dr->va_reserve(&p->base, p->reserved, 0, 0, 0);
    return r ? df_gpu_failed(g, NULL, d, r, false, "cuMemAddressReserve") : DEFT_OK;
}

deft_status df_cuda_pool_create(df_diag *d, const df_mem *mem, df_gpu *g, uint64_t most,
                                df_cuda_pool **out)
{
    if (!g->facts.has_va && most == 0)
        return df_fail(
            d, DEFT_E_BACKEND,
            "cuda: GPU %d (%s) has no virtual memory: graphs need replay_max_bytes there",
            g->ordinal, g->facts.name);
    df_cuda_pool *const p = df_mem_zalloc(mem, sizeof *p);
    if (!p) return df_fail_mem(d, "pool of graphs", sizeof *p);
    p->g = g;
    p->mem = mem;
    p->is_block = !g->facts.has_va;
    p->reserved = (size_t)most;
    deft_status st = p->is_block ? DEFT_OK : df_gpu_enter(g, d);
    if (st == DEFT_OK && !p->is_block) {
        st = reserve(p, d);
        df_gpu_leave(g);
    }
    if (st == DEFT_OK)
        *out = p;
    else
        df_mem_free(mem, p, sizeof *p);
    return st;
}

/* Frees the last piece, on which nothing runs. The context is current. */
static void drop_piece(df_cuda_pool *p)
{
    df_gpu *const g = p->g;
    const piece last = p->pieces.at[--p->pieces.n];
    p->bytes -= last.size;
    (void)g->dr->va_unmap(p->base + p->bytes, last.size);
    (void)g->dr->va_release(last.memory);
    df_memory_unclaim(g, last.size);
}

/* Maps the memory of k behind what is backed. The context is current. */
static df_cu_result map(df_cuda_pool *p, const piece *k)
{
    df_gpu *const g = p->g;
    const df_cu_ptr at = p->base + p->bytes;
    const df_cu_access access = { .location = { DEVICE, g->device }, .flags = READ_WRITE };
    df_cu_result r = g->dr->va_map(at, k->size, 0, k->memory, 0);
    if (r) return r;
    r = g->dr->va_access(at, k->size, &access, 1);
    if (r) (void)g->dr->va_unmap(at, k->size);
    return r;
}

/* Counts `size` bytes as live memory; frees cached memory when max_bytes would be exceeded.
 * The context is current. */
static deft_status claim(df_gpu *g, df_diag *d, uint64_t size)
{
    if (df_memory_claim(g, size)) return DEFT_OK;
    df_gpu_trim(g);
    if (df_memory_claim(g, size)) return DEFT_OK;
    return df_fail(d, DEFT_E_MEMORY,
                   "cuda: GPU %d: %llu bytes more for graphs would exceed max_bytes, %llu",
                   g->ordinal, (unsigned long long)size, (unsigned long long)g->o.max_bytes);
}

/* Backs `size` bytes more. The context is current. */
static deft_status add_piece(df_cuda_pool *p, df_diag *d, size_t size)
{
    df_gpu *const g = p->g;
    const df_cu_alloc_prop prop = memory_of(g);
    piece k = { .size = size };
    if (!df_vec_reserve(p->mem, &p->pieces, 1)) return df_fail_mem(d, "pool of graphs", sizeof k);
    const deft_status st = claim(g, d, size);
    if (st != DEFT_OK) return st;
    df_cu_result r = g->dr->va_create(&k.memory, size, &prop, 0);
    if (r == DF_CU_OUT_OF_MEMORY) {
        df_gpu_trim(g);
        r = g->dr->va_create(&k.memory, size, &prop, 0);
    }
    if (!r) {
        r = map(p, &k);
        if (r) (void)g->dr->va_release(k.memory);
    }
    if (r) {
        df_memory_unclaim(g, size);
        return df_gpu_failed(g, NULL, d, r, false, "mapping memory for graphs");
    }
    p->pieces.at[p->pieces.n++] = k;
    p->bytes += size;
    return DEFT_OK;
}

static deft_status grow(df_cuda_pool *p, df_diag *d, uint64_t bytes)
{
    const size_t before = p->pieces.n;
    const size_t most = rounded(PIECE, p->grain);
    deft_status st = DEFT_OK;
    if (bytes > p->reserved)
        return df_fail(d, DEFT_E_MEMORY, "cuda: GPU %d: %llu bytes for graphs are more than it has",
                       p->g->ordinal, (unsigned long long)bytes);
    while (p->bytes < bytes && st == DEFT_OK) {
        const size_t left = rounded((size_t)bytes - p->bytes, p->grain);
        st = add_piece(p, d, left < most ? left : most);
    }
    while (st != DEFT_OK && p->pieces.n > before) drop_piece(p);
    return st;
}

static bool has_spare(const df_cuda_pool *p, uint64_t bytes)
{
    return p->pieces.n > 0 && p->bytes - p->pieces.at[p->pieces.n - 1].size >= bytes;
}

static deft_status shrink(df_cuda_pool *p, df_diag *d, df_queue *q, uint64_t bytes)
{
    if (!has_spare(p, bytes)) return DEFT_OK;
    const df_cu_result r = q ? p->g->dr->stream_wait(df_queue_stream(q)) : 0;
    if (r) return df_gpu_failed(p->g, NULL, d, r, true, "cuStreamSynchronize");
    while (has_spare(p, bytes)) drop_piece(p);
    return DEFT_OK;
}

/* ---- without virtual memory; the context is current ---- */

static deft_status take_block(df_cuda_pool *p, df_diag *d)
{
    df_gpu *const g = p->g;
    const deft_status st = claim(g, d, p->reserved);
    if (st != DEFT_OK) return st;
    df_cu_result r = g->dr->mem_alloc(&p->base, p->reserved);
    if (r == DF_CU_OUT_OF_MEMORY) {
        df_gpu_trim(g);
        r = g->dr->mem_alloc(&p->base, p->reserved);
    }
    if (!r) {
        p->bytes = p->reserved;
        return DEFT_OK;
    }
    df_memory_unclaim(g, p->reserved);
    return df_gpu_failed(g, NULL, d, r, false, "cuMemAlloc for graphs");
}

static deft_status give_block(df_cuda_pool *p, df_diag *d, df_queue *q)
{
    const df_cu_result r = q ? p->g->dr->stream_wait(df_queue_stream(q)) : 0;
    if (r) return df_gpu_failed(p->g, NULL, d, r, true, "cuStreamSynchronize");
    (void)p->g->dr->mem_free(p->base);
    df_memory_unclaim(p->g, p->bytes);
    p->base = 0;
    p->bytes = 0;
    return DEFT_OK;
}

static deft_status back_block(df_cuda_pool *p, df_diag *d, df_queue *q, uint64_t bytes)
{
    df_assert(bytes <= p->reserved);
    if (bytes == 0) return p->bytes > 0 ? give_block(p, d, q) : DEFT_OK;
    return p->bytes > 0 ? DEFT_OK : take_block(p, d);
}

/* ---- with and without virtual memory ---- */

deft_status df_cuda_pool_back(df_cuda_pool *p, df_diag *d, df_queue *q, uint64_t bytes)
{
    deft_status st = df_gpu_enter(p->g, d);
    if (st != DEFT_OK) return st;
    if (p->is_block)
        st = back_block(p, d, q, bytes);
    else
        st = bytes > p->bytes ? grow(p, d, bytes) : shrink(p, d, q, bytes);
    df_gpu_leave(p->g);
    return st;
}

void df_cuda_pool_destroy(df_cuda_pool **out)
{
    df_cuda_pool *const p = *out;
    *out = NULL;
    if (!p) return;
    if (df_gpu_enter_last(p->g)) {
        while (p->pieces.n > 0) drop_piece(p);
        if (!p->is_block)
            (void)p->g->dr->va_free(p->base, p->reserved);
        else if (p->bytes > 0)
            (void)give_block(p, NULL, NULL);
        df_gpu_leave(p->g);
    }
    df_vec_finish(p->mem, &p->pieces);
    df_mem_free(p->mem, p, sizeof *p);
}

df_cu_ptr df_cuda_pool_base(const df_cuda_pool *p)
{
    return p->base;
}

uint64_t df_cuda_pool_bytes(const df_cuda_pool *p)
{
    return p->bytes;
}
