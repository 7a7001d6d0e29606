/* SPDX-License-Identifier: Apache-2.0
 *
 * Queues: streams, the launches in them, and how one queue waits for another.
 *
 * Two things say how far a GPU is with the launches of a queue: waits, and a pending event.
 * The event is recorded behind every DF_QUEUE_NOTES_MARK-th launch and queried at the next
 * such launch. This costs two calls per sixteen launches, and an error can then be
 * attributed to few launches. After an error nothing more can be learned, because the
 * driver answers every query with the error.
 *
 * A destroyed queue keeps its struct, without a stream, while blocks refer to it
 * (memory.c).
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "jit_cuda/driver/gpu_internal.h"

/* ---- waiting ---- */

/* The work of the queue, and on its first n_dropped dropped blocks, has ended. */
static void all_ended(df_queue *q, uint64_t n_dropped)
{
    df_gpu *const g = q->g;
    q->n_ended = q->n_noted;
    df_ring_rest(q);
    pthread_mutex_lock(&g->lock);
    df_gpu_event_give(g, &q->mark);
    df_memory_settle(q, n_dropped);
    pthread_mutex_unlock(&g->lock);
}

static uint64_t dropped(df_queue *q)
{
    pthread_mutex_lock(&q->g->lock);
    const uint64_t n = q->n_dropped;
    pthread_mutex_unlock(&q->g->lock);
    return n;
}

deft_status df_queue_drain(df_queue *q, df_diag *d, const char *call)
{
    const uint64_t n_dropped = dropped(q); /* blocks dropped during the wait may still be in use */
    const df_cu_result r = q->g->dr->stream_wait(q->stream);
    if (r) return df_gpu_failed(q->g, q, d, r, true, call);
    all_ended(q, n_dropped);
    return DEFT_OK;
}

deft_status df_queue_wait(df_queue *q, df_diag *d)
{
    deft_status st = df_queue_enter(q, d);
    if (st != DEFT_OK) return st;
    st = df_queue_drain(q, d, "cuStreamSynchronize");
    df_gpu_leave(q->g);
    return st;
}

bool df_queue_is_idle(df_queue *q)
{
    if (q->late || df_gpu_enter(q->g, NULL) != DEFT_OK) return false;
    const uint64_t n_dropped = dropped(q);
    const df_cu_result r = q->g->dr->stream_query(q->stream);
    if (r == 0) all_ended(q, n_dropped);
    if (r != 0 && r != DF_CU_NOT_READY) q->late = r;
    df_gpu_leave(q->g);
    return r == 0;
}

/* ---- order between queues ---- */

/* Records an event behind all work that is in q. The caller gives the event back. */
static deft_status mark_now(df_queue *q, df_diag *d, df_cu_event *out)
{
    df_gpu *const g = q->g;
    deft_status st = df_queue_enter(q, d);
    if (st != DEFT_OK) return st;
    pthread_mutex_lock(&g->lock);
    df_cu_result r = df_gpu_event_take(g, out);
    pthread_mutex_unlock(&g->lock);
    if (r) {
        st = df_gpu_failed(g, q, d, r, false, "cuEventCreate");
    } else if ((r = g->dr->event_record(*out, q->stream)) != 0) {
        st = df_gpu_failed(g, q, d, r, false, "cuEventRecord");
        pthread_mutex_lock(&g->lock);
        df_gpu_event_give(g, out);
        pthread_mutex_unlock(&g->lock);
    }
    df_gpu_leave(g);
    return st;
}

deft_status df_queue_after(df_queue *q, df_diag *d, df_queue *other)
{
    df_cu_event ev = NULL;
    if (q == other) return DEFT_OK;
    deft_status st = mark_now(other, d, &ev);
    if (st != DEFT_OK) return st;
    st = df_queue_enter(q, d);
    if (st == DEFT_OK) {
        const df_cu_result r = q->g->dr->stream_wait_event(q->stream, ev, 0);
        if (r) st = df_gpu_failed(q->g, q, d, r, false, "cuStreamWaitEvent");
        df_gpu_leave(q->g);
    }
    /* A wait refers to what was recorded before it was enqueued, so the event may be
     * reused. */
    pthread_mutex_lock(&other->g->lock);
    df_gpu_event_give(other->g, &ev);
    pthread_mutex_unlock(&other->g->lock);
    return st;
}

/* ---- notes ---- */

static void note(df_queue *q, const df_launch_note *n)
{
    df_queue_noted *const to = &q->noted[q->n_noted++ % DF_QUEUE_NOTES];
    const char *const ops = n->ops ? n->ops : "a kernel";
    const size_t size = strnlen(ops, sizeof to->ops - 1);
    to->n = *n;
    memcpy(to->ops, ops, size);
    to->ops[size] = '\0';
}

static deft_status look_how_far(df_queue *q, df_diag *d)
/* Queries the pending event, and records the next one when it is done. */
{
    df_gpu *const g = q->g;
    df_cu_result r = 0;
    if (q->mark) {
        r = g->dr->event_query(q->mark);
        if (r == DF_CU_NOT_READY) return DEFT_OK;
        if (r) return df_gpu_failed(g, q, d, r, true, "cuEventQuery");
        q->n_ended = q->mark_covers;
    } else {
        pthread_mutex_lock(&g->lock);
        r = df_gpu_event_take(g, &q->mark);
        pthread_mutex_unlock(&g->lock);
        if (r) return df_gpu_failed(g, q, d, r, false, "cuEventCreate");
    }
    q->mark_covers = q->n_noted;
    r = g->dr->event_record(q->mark, q->stream);
    if (!r) return DEFT_OK;
    pthread_mutex_lock(&g->lock);
    df_gpu_event_give(g, &q->mark);
    pthread_mutex_unlock(&g->lock);
    return df_gpu_failed(g, q, d, r, false, "cuEventRecord");
}

deft_status df_queue_launched(df_queue *q, df_diag *d, const df_launch_note *n)
{
    note(q, n);
    if (!q->is_blocking && q->n_noted % DF_QUEUE_NOTES_MARK != 0) return DEFT_OK;
    deft_status st = df_queue_enter(q, d);
    if (st != DEFT_OK) return st;
    st = q->is_blocking ? df_queue_drain(q, d, "cuStreamSynchronize") : look_how_far(q, d);
    df_gpu_leave(q->g);
    return st;
}

deft_status df_queue_fail(df_queue *q, df_diag *d, df_cu_result r, const char *what, ...)
{
    char call[128];
    va_list args;
    va_start(args, what);
    if (vsnprintf(call, sizeof call, what, args) < 0) call[0] = '\0';
    va_end(args);
    return df_gpu_failed(q->g, q, d, r, false, call);
}

/* ---- creating, destroying ---- */

df_cu_stream df_queue_stream(const df_queue *q)
{
    return q->stream;
}

df_gpu *df_queue_gpu(const df_queue *q)
{
    return q->g;
}

deft_status df_queue_create(df_diag *d, df_gpu *g, void *theirs, df_queue **out)
{
    enum { NON_BLOCKING = 1, PIECE = 1 << 20 };
    deft_status st = df_gpu_enter(g, d);
    if (st != DEFT_OK) return st;
    df_queue *q = df_mem_zalloc(g->mem, sizeof *q);
    if (!q) TRY(df_fail_mem(d, "queue", sizeof *q));
    q->g = g;
    q->refs = 1;
    q->is_theirs = theirs != NULL;
    q->is_blocking = g->o.blocking;
    q->piece_bytes = g->o.piece ? ((size_t)g->o.piece + 63) / 64 * 64 : PIECE;
    q->stream = theirs;
    if (!theirs) {
        const df_cu_result r = g->dr->stream_create(&q->stream, NON_BLOCKING);
        if (r) TRY(df_gpu_failed(g, NULL, d, r, false, "cuStreamCreate"));
    }
    pthread_mutex_lock(&g->lock);
    q->next = g->queues;
    g->queues = q;
    pthread_mutex_unlock(&g->lock);
    *out = q;
    q = NULL;
done:
    df_mem_free(g->mem, q, sizeof *q);
    df_gpu_leave(g);
    return st;
}

/* Needs the lock. */
static void unlink_queue(df_queue *q)
{
    df_queue **at = &q->g->queues;
    while (*at != q) at = &(*at)->next;
    *at = q->next;
}

void df_queue_destroy(df_queue **out)
{
    df_queue *const q = *out;
    *out = NULL;
    if (!q) return;
    df_gpu *const g = q->g;
    if (df_driver_usable(g->dr, NULL) != DEFT_OK) {
        df_mem_free(g->mem, q, sizeof *q);
        return;
    }
    const bool is_entered = df_gpu_enter_last(g);
    /* A wait may report the error of earlier work, and then does not say whether the work
     * has ended. A second wait does. */
    const bool has_ended =
        is_entered && (!g->dr->stream_wait(q->stream) || !g->dr->stream_wait(q->stream));
    if (is_entered) df_ring_finish(q);
    pthread_mutex_lock(&g->lock);
    unlink_queue(q);
    q->is_ended = true;
    q->is_unsure = !has_ended;
    df_gpu_event_give(g, &q->mark);
    df_gpu_event_give(g, &q->drop_mark);
    df_memory_leave(q);
    if (!q->is_theirs && is_entered) (void)g->dr->stream_destroy(q->stream);
    q->stream = NULL;
    df_queue_unref(q);
    pthread_mutex_unlock(&g->lock);
    if (is_entered) df_gpu_leave(g);
}
