/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring of pinned memory of a queue, through which its copies go. It is created with the
 * first copy and freed with the queue. All its pieces are free when all work of the queue
 * has ended. copy.c fills it.
 */
#include "jit_cuda/driver/gpu_internal.h"

void df_ring_rest(df_queue *q)
{
    for (uint32_t i = 0; i < DF_RING_PIECES; i++)
        q->piece[i].is_busy = q->piece[i].is_marked = false;
    q->filled = 0;
}

void df_ring_finish(df_queue *q)
{
    df_gpu *const g = q->g;
    pthread_mutex_lock(&g->lock);
    for (uint32_t i = 0; i < DF_RING_PIECES; i++) df_gpu_event_give(g, &q->piece[i].ev);
    pthread_mutex_unlock(&g->lock);
    if (q->ring) (void)g->dr->host_free(q->ring);
    q->ring = NULL;
}

deft_status df_ring_make(df_queue *q, df_diag *d)
{
    df_gpu *const g = q->g;
    df_cu_result r = 0;
    void *ring = NULL;
    if (q->ring) return DEFT_OK;
    pthread_mutex_lock(&g->lock);
    for (uint32_t i = 0; i < DF_RING_PIECES && !r; i++)
        if (!q->piece[i].ev) r = df_gpu_event_take(g, &q->piece[i].ev);
    pthread_mutex_unlock(&g->lock);
    if (r) return df_gpu_failed(g, q, d, r, false, "cuEventCreate");
    r = g->dr->host_alloc(&ring, q->piece_bytes * DF_RING_PIECES, 0);
    if (r) return df_gpu_failed(g, q, d, r, false, "cuMemHostAlloc of the copy buffer");
    q->ring = ring;
    df_ring_rest(q);
    return DEFT_OK;
}
