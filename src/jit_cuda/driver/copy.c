/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies. Memory of the host goes through a ring of pinned memory. A copy from memory that
 * is not pinned would either wait, or see what the caller writes later. An upload fills
 * pieces one after the other, and the GPU reads each piece while the next is filled:
 *
 *   piece 0         piece 1         piece 2         piece 3
 *   |ev busy ......|ev busy ......|filled ->       |ev busy ......|
 *                                  at_piece         is waited for before it is filled
 *
 * Small uploads share a piece, and an event is recorded only when the piece is full. A
 * download uses the pieces in the other direction. It waits for its end, so the ring is
 * empty after it.
 *
 * Within one queue the GPU may write a piece while an earlier upload from that piece is
 * still to be read, because the queue runs both in order.
 *
 * A large copy from or to memory that is already pinned goes directly and is waited for.
 */
#include <string.h>

#include "jit_cuda/driver/gpu_internal.h"

enum {
    /* pieces: for smaller copies it does not pay to query whether memory is pinned */
    DIRECT_FROM = 2,
    ATTR_MEMORY_TYPE = 2,        /* CUpointer_attribute */
    TYPE_HOST = 1,               /* CUmemorytype */
    PEERS_ENABLED_ALREADY = 704, /* CUresult */
    ALIGN = 64
};

/* ---- the ring ---- */

/* Marks all pieces as busy until all work of the queue has ended, so that nothing is filled
 * before. */
static void spoil(df_queue *q)
{
    for (uint32_t i = 0; i < DF_RING_PIECES; i++)
        q->piece[i] = (df_ring_piece){ .ev = q->piece[i].ev, .is_busy = true, .is_marked = false };
    q->filled = q->piece_bytes;
}

/* Waits until the GPU does not need the piece any more. */
static deft_status settle(df_queue *q, df_diag *d, df_ring_piece *p)
{
    if (!p->is_busy) return DEFT_OK;
    if (!p->is_marked) return df_queue_drain(q, d, "cuStreamSynchronize");
    const df_cu_result r = q->g->dr->event_wait(p->ev);
    if (r) return df_gpu_failed(q->g, q, d, r, true, "cuEventSynchronize");
    p->is_busy = p->is_marked = false;
    return DEFT_OK;
}

static deft_status mark(df_queue *q, df_diag *d, df_ring_piece *p)
/* Records the event of a piece. */
{
    const df_cu_result r = q->g->dr->event_record(p->ev, q->stream);
    if (r) return df_gpu_failed(q->g, q, d, r, false, "cuEventRecord");
    p->is_marked = true;
    return DEFT_OK;
}

/* Makes the next piece the one that is filled. Waits until it is free. */
static deft_status advance(df_queue *q, df_diag *d)
{
    deft_status st = DEFT_OK;
    df_ring_piece *const now = &q->piece[q->at_piece];
    const uint32_t next = (q->at_piece + 1) % DF_RING_PIECES;
    if (now->is_busy && !now->is_marked) TRY(mark(q, d, now));
    TRY(settle(q, d, &q->piece[next]));
    q->at_piece = next;
    q->filled = 0;
done:
    return st;
}

static bool is_pinned(const df_queue *q, const void *p)
{
    unsigned type = 0;
    return !q->g->dr->pointer_attribute(&type, ATTR_MEMORY_TYPE, (df_cu_ptr)(uintptr_t)p) &&
           type == TYPE_HOST;
}

/* ---- to the GPU ---- */

/* Uploads as much as fits into the rest of the current piece, at most n bytes. *done: how
 * many. */
static deft_status put_some(df_queue *q, df_diag *d, df_cu_ptr to, const void *from, size_t n,
                            size_t *done)
{
    const size_t m = n < q->piece_bytes - q->filled ? n : q->piece_bytes - q->filled;
    char *const via = q->ring + q->at_piece * q->piece_bytes + q->filled;
    memcpy(via, from, m);
    const df_cu_result r = q->g->dr->copy_in(to, via, m, q->stream);
    if (r) return df_gpu_failed(q->g, q, d, r, false, "cuMemcpyHtoDAsync");
    q->piece[q->at_piece].is_busy = true;
    q->filled = (q->filled + m + ALIGN - 1) / ALIGN * ALIGN;
    *done = m;
    return DEFT_OK;
}

static deft_status put_pieces(df_queue *q, df_diag *d, df_cu_ptr to, const char *from, size_t bytes)
{
    deft_status st = DEFT_OK;
    TRY(df_ring_make(q, d));
    for (size_t i = 0, n = 0; i < bytes; i += n) {
        if (q->filled == q->piece_bytes) TRY(advance(q, d));
        TRY(put_some(q, d, to + i, from + i, bytes - i, &n));
    }
done:
    return st;
}

deft_status df_queue_put(df_queue *q, df_diag *d, df_cu_ptr to, const void *from, size_t bytes)
{
    if (bytes == 0) return DEFT_OK;
    deft_status st = df_queue_enter(q, d);
    if (st != DEFT_OK) return st;
    if (bytes < DIRECT_FROM * q->piece_bytes || !is_pinned(q, from)) {
        TRY(put_pieces(q, d, to, from, bytes));
    } else {
        const df_cu_result r = q->g->dr->copy_in(to, from, bytes, q->stream);
        if (r) TRY(df_gpu_failed(q->g, q, d, r, false, "cuMemcpyHtoDAsync"));
        TRY(df_queue_drain(q, d, "cuStreamSynchronize"));
    }
done:
    df_gpu_leave(q->g);
    return st;
}

/* ---- to the host ---- */

static deft_status get_one(df_queue *q, df_diag *d, char *to, df_cu_ptr from, size_t bytes)
{
    deft_status st = DEFT_OK;
    TRY(df_ring_make(q, d));
    spoil(q); /* on failure the copy may still be running */
    const df_cu_result r = q->g->dr->copy_out(q->ring, from, bytes, q->stream);
    if (r) TRY(df_gpu_failed(q->g, q, d, r, false, "cuMemcpyDtoHAsync"));
    TRY(df_queue_drain(q, d, "cuStreamSynchronize"));
    memcpy(to, q->ring, bytes);
done:
    return st;
}

/* Enqueues the download of piece i of `bytes` into its piece of the ring, and its event. */
static deft_status fetch(df_queue *q, df_diag *d, size_t i, df_cu_ptr from, size_t bytes)
{
    const size_t at = i * q->piece_bytes,
                 n = bytes - at < q->piece_bytes ? bytes - at : q->piece_bytes;
    const uint32_t p = (uint32_t)(i % DF_RING_PIECES);
    const df_cu_result r =
        q->g->dr->copy_out(q->ring + p * q->piece_bytes, from + at, n, q->stream);
    if (r) return df_gpu_failed(q->g, q, d, r, false, "cuMemcpyDtoHAsync");
    return mark(q, d, &q->piece[p]);
}

static deft_status get_pieces(df_queue *q, df_diag *d, char *to, df_cu_ptr from, size_t bytes)
{
    deft_status st = DEFT_OK;
    const size_t n = (bytes + q->piece_bytes - 1) / q->piece_bytes;
    size_t asked = 0;
    TRY(df_ring_make(q, d));
    spoil(q); /* on failure copies may still be running */
    for (size_t i = 0; i < n; i++) {
        for (; asked < n && asked < i + DF_RING_PIECES; asked++)
            TRY(fetch(q, d, asked, from, bytes));
        df_ring_piece *const p = &q->piece[i % DF_RING_PIECES];
        const df_cu_result r = q->g->dr->event_wait(p->ev);
        if (r) TRY(df_gpu_failed(q->g, q, d, r, true, "cuEventSynchronize"));
        const size_t at = i * q->piece_bytes;
        memcpy(to + at, q->ring + (i % DF_RING_PIECES) * q->piece_bytes,
               bytes - at < q->piece_bytes ? bytes - at : q->piece_bytes);
    }
done:
    return st;
}

static deft_status get_directly(df_queue *q, df_diag *d, void *to, df_cu_ptr from, size_t bytes)
{
    const df_cu_result r = q->g->dr->copy_out(to, from, bytes, q->stream);
    return r ? df_gpu_failed(q->g, q, d, r, false, "cuMemcpyDtoHAsync") : DEFT_OK;
}

deft_status df_queue_get(df_queue *q, df_diag *d, void *to, df_cu_ptr from, size_t bytes)
{
    if (bytes == 0) return df_queue_wait(q, d);
    deft_status st = df_queue_enter(q, d);
    if (st != DEFT_OK) return st;
    if (bytes <= q->piece_bytes) {
        TRY(get_one(q, d, to, from, bytes));
    } else {
        const bool directly = bytes >= DIRECT_FROM * q->piece_bytes && is_pinned(q, to);
        TRY(directly ? get_directly(q, d, to, from, bytes) : get_pieces(q, d, to, from, bytes));
        TRY(df_queue_drain(q, d, "cuStreamSynchronize"));
    }
done:
    df_gpu_leave(q->g);
    return st;
}

/* ---- between GPUs, and within one ---- */

deft_status df_queue_copy(df_queue *q, df_diag *d, df_cu_ptr to, df_cu_ptr from, size_t bytes)
{
    if (bytes == 0) return DEFT_OK;
    const deft_status st = df_queue_enter(q, d);
    if (st != DEFT_OK) return st;
    const df_cu_result r = q->g->dr->copy(to, from, bytes, q->stream);
    df_gpu_leave(q->g);
    return r ? df_gpu_failed(q->g, q, d, r, false, "cuMemcpyDtoDAsync") : DEFT_OK;
}

/* Enables direct access of g to other's memory, once for each pair. Without it copies are
 * only slower. */
static void enable_peer(df_gpu *g, const df_gpu *other)
{
    const uint64_t bit = (uint64_t)1 << (other->ordinal & 63);
    pthread_mutex_lock(&g->lock);
    const bool asked = (g->peers & bit) != 0;
    g->peers |= bit;
    pthread_mutex_unlock(&g->lock);
    int can = 0;
    if (asked || !g->dr->peer_can || !g->dr->peer_enable ||
        g->dr->peer_can(&can, g->device, other->device) || !can)
        return;
    const df_cu_result r = g->dr->peer_enable(other->ctx, 0);
    if (r && r != PEERS_ENABLED_ALREADY)
        df_logf(g->log, memory, "cuda: GPU %d cannot reach the memory of GPU %d: error %d",
                g->ordinal, other->ordinal, r);
}

static deft_status copy_over(df_queue *q, df_diag *d, df_cu_ptr to, const df_gpu *other,
                             df_cu_ptr from, size_t bytes)
{
    const deft_status st = df_queue_enter(q, d);
    if (st != DEFT_OK) return st;
    enable_peer(q->g, other);
    const df_cu_result r = q->g->dr->copy_peer(to, q->g->ctx, from, other->ctx, bytes, q->stream);
    df_gpu_leave(q->g);
    return r ? df_gpu_failed(q->g, q, d, r, false, "cuMemcpyPeerAsync") : DEFT_OK;
}

deft_status df_queue_copy_peer(df_queue *q, df_diag *d, df_cu_ptr to, df_queue *other,
                               df_cu_ptr from, size_t bytes)
{
    deft_status st = DEFT_OK;
    if (bytes == 0) return DEFT_OK;
    TRY(df_queue_after(q, d, other));
    if (q->g == other->g)
        TRY(df_queue_copy(q, d, to, from, bytes));
    else
        TRY(copy_over(q, d, to, other->g, from, bytes));
    st = df_queue_after(other, d, q);
    if (st != DEFT_OK) (void)df_queue_wait(q, NULL); /* `from` may be dropped all the same */
done:
    return st;
}
