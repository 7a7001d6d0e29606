/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph tree of a queue. The policy (replay/tree.h) decides what is recorded and where
 * memory is. This file carries that out, with graphs (graph.c) in one pool (pool.h).
 *
 * A call is a run of a plan, a run of a construct, or external work (work.h). The signature
 * of a plan's call is a hash of what its launches depend on beyond the plan. That is slots,
 * alignments, and which roots have the memory of a donor. A hash proves nothing, so a graph
 * is compared with the layout before each launch. When its steps differ, it is recorded
 * again.
 *
 * A root in the pool is a buffer of df_gpu_borrower. When it is dropped, on any thread, its
 * ticket is given back to the tree. So the tree lives until the queue and the last such
 * buffer are gone. A graph that is dropped while it may still run waits behind an event
 * before it is destroyed.
 *
 * A failed check in the fault words is a failure of the program, not of a graph. Phases
 * behind a check run only when the check has passed. Only the last phase overwrites memory
 * that outlives a failed run. So when something else fails before the last phase, the run
 * can be repeated launch by launch.
 *
 * One thread uses the queue, and it holds the lock during a run, so that another thread may
 * trim between two runs. A trim that is requested during a run is done when the run ends.
 */
#include "jit_cuda/graphs/graphs.h"

#include <stdio.h>

/* ---- graphs that were dropped ---- */

static void kept_destroy(df_cuda_graphs *s, df_cuda_kept *k)
{
    pthread_mutex_lock(&s->c->gpu->lock);
    df_gpu_event_give(s->c->gpu, &k->ended);
    pthread_mutex_unlock(&s->c->gpu->lock);
    df_cuda_graph_destroy(&k->graph);
    df_cuda_captured_destroy(&k->work);
    df_cuda_conditional_graph_destroy(&k->whole);
    df_mem_free(s->c->mem, k, sizeof *k);
}

/* Destroys the dropped graphs that have ended. The context is current. */
static void kept_sweep(df_cuda_graphs *s)
{
    while (s->leaving && s->c->driver->event_query(s->leaving->ended) == 0) {
        df_cuda_kept *const k = s->leaving;
        s->leaving = k->next;
        kept_destroy(s, k);
    }
}

/* Records an event after all work that is now in the queue. The context is current. Returns
 * false when the driver refuses. */
static bool kept_record_event(df_cuda_graphs *s, df_cuda_kept *k)
{
    df_gpu *const g = s->c->gpu;
    pthread_mutex_lock(&g->lock);
    const bool has_event = !df_gpu_event_take(g, &k->ended);
    const bool is_marked = has_event && !g->dr->event_record(k->ended, df_queue_stream(s->q));
    if (has_event && !is_marked) df_gpu_event_give(g, &k->ended);
    pthread_mutex_unlock(&g->lock);
    return is_marked;
}

/* Destroys k when it has ended. The context is current. */
static void kept_retire(df_cuda_graphs *s, df_cuda_kept *k)
{
    df_cuda_kept **last = &s->leaving;
    k->next = NULL;
    kept_sweep(s);
    if (s->q && !kept_record_event(s, k)) (void)s->c->driver->stream_wait(df_queue_stream(s->q));
    if (!s->q || !k->ended) {
        kept_destroy(s, k);
        return;
    }
    while (*last) last = &(*last)->next;
    *last = k;
}

static void graphs_drop(void *self, void *graph)
{
    df_cuda_graphs *const s = self;
    const bool is_entered = df_gpu_enter_last(s->c->gpu);
    kept_retire(s, graph);
    if (is_entered) df_gpu_leave(s->c->gpu);
}

/* ---- functions of df_tree_device ---- */

static deft_status graphs_back_pool(void *self, df_diag *d, uint64_t bytes)
{
    df_cuda_graphs *const s = self;
    return df_cuda_pool_back(s->pool, d, s->q, bytes);
}

static deft_status graphs_run_plain(void *self, df_diag *d, df_tree_call *c)
{
    (void)self;
    if (df_cuda_is_work(c->fn)) return df_cuda_work_plain(c->user);
    df_cuda_call *const r = c->user;
    df_assert(r->d == d);
    if (r->whole) return DEFT_OK; /* the host decides when the tree has returned */
    deft_status st = df_cuda_call_plain(r);
    /* A run that may have changed memory that outlives it must not be repeated. */
    if (st == DEFT_E_MEMORY && r->has_begun) st = DEFT_E_BACKEND;
    if (d && st != DEFT_OK) d->status = st;
    return st;
}

/* Sets the addresses of roots and arena from p, and fills in all words. */
static deft_status aim(df_cuda_graphs *s, df_cuda_call *r, const df_tree_call *c,
                       const df_tree_placement *p)
{
    char *const base = (char *)(uintptr_t)df_cuda_pool_base(s->pool);
    uint32_t k = 0;
    if (r->whole) return df_cuda_conditional_aim(r->whole, base, p->out, base + p->arena);
    for (df_buf i = { 0 }; i.i < r->plan->n_bufs; i.i++) {
        if (!r->f->lent[i.i]) continue;
        if (p->out[k] != DF_TREE_OUTSIDE) {
            r->f->origin[i.i] = base + p->out[k];
        } else if (df_cuda_call_wants(r, i)) {
            const deft_status st = df_cuda_call_new_root(r, i);
            if (st != DEFT_OK) return st;
        }
        k++;
    }
    return df_cuda_call_fill(r, c->arena_bytes > 0 ? base + p->arena : NULL);
}

/* Creates the stream for captures. The context is current. */
static deft_status need_capture(df_cuda_graphs *s, df_diag *d)
{
    enum { NON_BLOCKING = 1 };
    if (s->capture) return DEFT_OK;
    const df_cu_result result = s->c->driver->stream_create(&s->capture, NON_BLOCKING);
    return result ? df_queue_fail(s->q, d, result, "cuStreamCreate") : DEFT_OK;
}

/* Records a graph of r into k. The context is current. */
static deft_status kept_create_graph(df_cuda_graphs *s, df_diag *d, df_cuda_call *r,
                                     df_cuda_kept *k)
{
    bool captures = false;
    if (r->whole) return df_cuda_conditional_graph_create(d, r->whole, &k->whole);
    for (uint32_t i = 0; i < r->f->steps.n; i++)
        captures = captures || r->f->steps.at[i].of_job == DF_NONE;
    const deft_status st = captures ? need_capture(s, d) : DEFT_OK;
    return st == DEFT_OK ? df_cuda_graph_create(d, r, s->capture, &k->graph) : st;
}

/* ---- external work ---- */

/* Sets the addresses of results from p. */
static deft_status aim_work(df_cuda_graphs *s, df_diag *d, df_cuda_work *r,
                            const df_tree_placement *p)
{
    deft_status st = DEFT_OK;
    char *const base = (char *)(uintptr_t)df_cuda_pool_base(s->pool);
    for (uint32_t i = 0; i < r->w->n_out; i++)
        if (p->out[i] != DF_TREE_OUTSIDE)
            r->at[i] = base + p->out[i];
        else
            TRY(df_cuda_work_new_result(r, d, i));
done:
    return st;
}

/* Captures one more graph for k. When there are many, the least recently used is dropped.
 * The context is current. */
static deft_status capture_work(df_cuda_graphs *s, df_diag *d, df_cuda_work *r, df_cuda_kept *k)
{
    deft_status st = DEFT_OK;
    df_cuda_captured *fresh = NULL;
    df_cuda_kept *old = df_mem_zalloc(s->c->mem, sizeof *old);
    if (!old) return df_fail_mem(d, "graph", sizeof *old);
    TRY(need_capture(s, d));
    TRY(df_cuda_capture(d, r, s->capture, &fresh));
    old->work = df_cuda_captured_add(&k->work, fresh);
    if (old->work) {
        kept_retire(s, old);
        old = NULL;
    }
done:
    if (st != DEFT_OK) df_logf(s->c->log, why, "%s is not captured: %s", r->w->name, d->text);
    df_mem_free(s->c->mem, old, sizeof *old);
    return st;
}

static deft_status record_work(df_cuda_graphs *s, df_diag *d, df_tree_call *c,
                               const df_tree_placement *p, void **graph, uint64_t *bytes)
{
    df_cuda_work *const r = c->user;
    bool is_in = false;
    deft_status st = DEFT_OK;
    df_cuda_kept *k = df_mem_zalloc(s->c->mem, sizeof *k);
    if (!k) return df_fail_mem(d, "graph", sizeof *k);
    TRY(aim_work(s, d, r, p));
    TRY(df_gpu_enter(s->c->gpu, d));
    is_in = true;
    kept_sweep(s);
    TRY(capture_work(s, d, r, k));
    *bytes = df_cuda_captured_bytes(k->work);
    *graph = k;
    k = NULL;
done:
    if (is_in) df_gpu_leave(s->c->gpu);
    df_mem_free(s->c->mem, k, sizeof *k);
    return st;
}

/* Launches a captured graph for exactly this call. Addresses that change with each call are
 * not worth a capture each. So when many graphs are captured, a new call is enqueued
 * without a capture. It is captured when it comes twice in a row. */
static deft_status replay_work(df_cuda_graphs *s, df_diag *d, df_cuda_kept *k, df_tree_call *c,
                               const df_tree_placement *p)
{
    df_cuda_work *const r = c->user;
    bool is_in = false;
    deft_status st = DEFT_OK;
    TRY(aim_work(s, d, r, p));
    TRY(df_gpu_enter(s->c->gpu, d));
    is_in = true;
    if (!df_cuda_captured_find(&k->work, r)) {
        if (c->action == DF_TREE_REPLAY && !df_cuda_captured_is_due(k->work, r)) {
            df_cuda_work_enqueue(r);
            goto done;
        }
        TRY(capture_work(s, d, r, k));
    }
    TRY(df_cuda_captured_launch(k->work, d, r));
    s->launches++;
done:
    if (is_in) df_gpu_leave(s->c->gpu);
    return st;
}

static deft_status graphs_record(void *self, df_diag *d, df_tree_call *c,
                                 const df_tree_placement *p, void **graph, uint64_t *bytes)
{
    df_cuda_graphs *const s = self;
    if (df_cuda_is_work(c->fn)) return record_work(s, d, c, p, graph, bytes);
    df_cuda_call *const r = c->user;
    df_diag *const theirs = r->d;
    bool is_in = false;
    deft_status st = DEFT_OK;
    df_cuda_kept *k = df_mem_zalloc(s->c->mem, sizeof *k);
    if (!k) return df_fail_mem(d, "graph", sizeof *k);
    r->d = d;
    TRY(df_gpu_enter(s->c->gpu, d));
    is_in = true;
    kept_sweep(s);
    TRY(aim(s, r, c, p));
    TRY(kept_create_graph(s, d, r, k));
    k->table = r->table;
    *bytes = k->whole ? df_cuda_conditional_graph_bytes(k->whole) : df_cuda_graph_bytes(k->graph);
    *graph = k;
    k = NULL;
done:
    r->d = theirs;
    if (is_in) df_gpu_leave(s->c->gpu);
    df_mem_free(s->c->mem, k, sizeof *k);
    return st;
}

/* Replaces the graph of k by one for r, whose steps differ. The context is current. */
static deft_status kept_recreate_graph(df_cuda_graphs *s, df_diag *d, df_cuda_call *r,
                                       df_cuda_kept *k)
{
    df_cuda_kept fresh = { 0 };
    df_cuda_kept *const old = df_mem_zalloc(s->c->mem, sizeof *old);
    if (!old) return df_fail_mem(d, "graph", sizeof *old);
    const deft_status st = kept_create_graph(s, d, r, &fresh);
    if (st != DEFT_OK) {
        df_mem_free(s->c->mem, old, sizeof *old);
        return st;
    }
    old->graph = k->graph;
    old->whole = k->whole;
    k->graph = fresh.graph;
    k->whole = fresh.whole;
    kept_retire(s, old);
    return DEFT_OK;
}

/* Reads the fault words. DEFT_E_RANGE is reported to the caller's own d and in s->checked. */
static deft_status graphs_check_faults(df_cuda_graphs *s, df_cuda_call *r, df_diag *theirs)
{
    df_diag said = { 0 };
    df_diag *d = r->d;
    r->d = &said;
    const deft_status st = df_cuda_call_fault(r);
    r->d = d;
    if (st == DEFT_OK) return DEFT_OK;
    if (st == DEFT_E_RANGE) {
        s->checked = st;
        d = theirs;
    }
    if (d) *d = said;
    return s->checked == DEFT_OK ? st : DEFT_OK;
}

/* Notes the launch of a graph. An error that this finds is one of earlier work, and is
 * reported by a later call. */
static void graphs_note_launch(const df_cuda_kept *k, df_cuda_call *r)
{
    char ops[64];
    const size_t n =
        k->whole ? df_cuda_conditional_graph_nodes(k->whole) : df_cuda_graph_nodes(k->graph);
    (void)snprintf(ops, sizeof ops, "a graph of %zu launches", n);
    const df_launch_note note = {
        .owner = r->plan->owner, .number = r->plan->number, .site = r->plan->site, .ops = ops
    };
    (void)df_queue_launched(r->q, NULL, &note);
}

/* Launches the graph of a construct. The context is current. */
static deft_status launch_whole(df_cuda_graphs *s, df_diag *d, df_cuda_call *r,
                                const df_cuda_kept *k)
{
    deft_status st = DEFT_OK;
    TRY(df_cuda_conditional_put_tables(r->whole));
    TRY(df_cuda_conditional_graph_launch(k->whole, d, r->whole));
    s->launches++;
    graphs_note_launch(k, r);
done:
    return st;
}

/* Launches the graphs of a plan, and checks after each phase that has checks. The context
 * is current. */
static deft_status graphs_launch_phases(df_cuda_graphs *s, df_diag *d, df_cuda_call *r,
                                        const df_cuda_kept *k, df_diag *theirs)
{
    deft_status st = DEFT_OK;
    if (k->whole) return launch_whole(s, d, r, k);
    TRY(df_cuda_call_put_table(r));
    s->tables += r->f->by_table && r->f->table.word.n > 0;
    for (uint32_t i = 0; i < r->f->n_phases && s->checked == DEFT_OK; i++) {
        TRY(df_cuda_graph_launch(k->graph, d, r, i));
        s->launches++;
        graphs_note_launch(k, r);
        if (r->f->phase[i].is_checked) TRY(graphs_check_faults(s, r, theirs));
    }
done:
    return st;
}

/* Counts updates for the choice of a table. When the arena has moved, a table would have
 * needed the same updates, so they count as 0. */
static void weigh(const df_cuda_graphs *s, df_cuda_kept *k, const df_cuda_call *r,
                  uint64_t by_value)
{
    const bool is_there = k->table == r->table;
    k->table = r->table;
    if (df_cuda_table_weigh(&k->updates, is_there ? by_value : 0, s->table_from))
        df_cuda_table_choose(r->plan->attached);
}

/* Makes the graph fit r. Adds the number of updated nodes to *n. The context is current. */
static deft_status renew(df_cuda_graphs *s, df_diag *d, df_cuda_call *r, df_cuda_kept *k,
                         df_cuda_updated *n)
{
    deft_status st = DEFT_OK;
    if (r->whole) {
        if (df_cuda_conditional_graph_is_like(k->whole, r->whole) &&
            df_cuda_conditional_graph_update(k->whole, d, r->whole, n) == DEFT_OK)
            return DEFT_OK;
        return kept_recreate_graph(s, d, r, k);
    }
    if (!df_cuda_graph_is_like(k->graph, r)) TRY(kept_recreate_graph(s, d, r, k));
    TRY(df_cuda_graph_update(k->graph, d, r, s->capture, n));
done:
    return st;
}

static deft_status graphs_replay(void *self, df_diag *d, void *graph, df_tree_call *c,
                                 const df_tree_placement *p)
{
    df_cuda_graphs *const s = self;
    if (df_cuda_is_work(c->fn)) return replay_work(s, d, graph, c, p);
    df_cuda_call *const r = c->user;
    df_cuda_kept *const k = graph;
    df_diag *const theirs = r->d;
    df_cuda_updated n = { 0 };
    deft_status st = DEFT_OK;
    bool is_in = false;
    r->d = d;
    TRY(aim(s, r, c, p));
    TRY(df_gpu_enter(s->c->gpu, d));
    is_in = true;
    TRY(renew(s, d, r, k, &n));
    if (k->graph && c->action != DF_TREE_RECORD) weigh(s, k, r, n.by_value);
    TRY(graphs_launch_phases(s, d, r, k, theirs));
done:
    s->updates += n.nodes;
    if (is_in) df_gpu_leave(s->c->gpu);
    r->d = theirs;
    return st;
}

/* ---- a call ---- */

static uint64_t graphs_signature_of(const df_cuda_call *r)
{
    const df_cuda_run_layout *const f = r->f;
    uint64_t h = f->n_phases;
    for (uint32_t i = 0; i < f->n_slots; i++) h = df_mix(h, (uint64_t)r->slots[i]);
    for (uint32_t i = 0; i < f->n_bufs; i++)
        h = df_mix(h, f->low[i] | (uint64_t)(f->lent[i] != NULL) << 8);
    return h;
}

static void unref(df_cuda_graphs *s)
{
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) > 1) return;
    const df_mem *const mem = s->c->mem;
    df_tree_destroy(&s->tree);
    df_cuda_pool_destroy(&s->pool);
    pthread_mutex_destroy(&s->lock);
    df_mem_free(mem, s, sizeof *s);
}

/* The end of a loan: a buffer in the pool was dropped. Any thread. */
static void return_loan(void *user, uint64_t ticket)
{
    df_cuda_graphs *const s = user;
    df_tree_drop(s->tree, ticket);
    unref(s);
}

/* Creates buffers for the roots that need memory, without memory so far. */
static deft_status prepare_roots(df_cuda_call *r, df_tree_call *c)
{
    deft_status st = DEFT_OK;
    for (df_buf i = { 0 }; i.i < r->plan->n_bufs; i.i++) {
        if (!df_cuda_call_wants(r, i)) continue;
        TRY(df_gpu_borrower(r->q, r->d, &r->f->lent[i.i]));
        const int64_t bytes = df_bind_bytes(&r->plan->bufs[i.i], r->slots);
        c->out[c->n_out++] = (df_tree_out){ .bytes = (uint64_t)bytes };
    }
done:
    return st;
}

/* Gives *lent its memory in the pool, and moves it to *own. */
static void lend(df_cuda_graphs *s, const df_tree_out *out, df_buffer **lent, df_buffer **own)
{
    char *const base = (char *)(uintptr_t)df_cuda_pool_base(s->pool);
    const df_gpu_loan loan = { return_loan, s, out->ticket };
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    df_gpu_lend(*lent, base + out->offset, (int64_t)out->bytes, &loan);
    df_buffer_drop(own);
    *own = *lent;
    *lent = NULL;
}

/* Replaces the roots that the tree has placed in the pool by the buffers that are lent. */
static void take_roots(df_cuda_graphs *s, df_cuda_call *r, const df_tree_call *c)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < r->plan->n_bufs; i++) {
        if (!r->f->lent[i]) continue;
        const df_tree_out *const out = &c->out[k++];
        if (out->offset != DF_TREE_OUTSIDE) lend(s, out, &r->f->lent[i], &r->f->own[i]);
    }
}

static void graphs_count_launches(df_cuda_call *r, const df_tree_call *c)
{
    if (c->action == DF_TREE_PLAIN) return;
    for (uint32_t i = 0; i < r->plan->n_launches; i++) {
        r->stats.launches += r->plan->launches[i].n > 0;
        r->stats.segments += r->plan->launches[i].n;
    }
}

void df_cuda_graphs_lock(df_cuda_graphs *s)
{
    pthread_mutex_lock(&s->lock);
}

void df_cuda_graphs_unlock(df_cuda_graphs *s)
{
    if (atomic_exchange_explicit(&s->trim_wanted, false, memory_order_relaxed) && s->q)
        df_tree_trim(s->tree);
    pthread_mutex_unlock(&s->lock);
}

/* Needs the lock. */
static void graphs_report_run(df_cuda_graphs *s, const df_cuda_call *r, const df_tree_call *c)
{
    if (!r->io->decided) return;
    const df_cuda_teller by = { r->io->decided,  r->io->user,   r->plan->owner,
                                r->plan->number, r->plan->site, df_cuda_graphs_device(s) };
    df_cuda_tree_notes_run(&s->told, s->tree, &by, c, s->updates);
}

static deft_status graphs_run_plan(df_cuda_graphs *s, df_cuda_call *r)
{
    deft_status st = DEFT_OK;
    df_tree_call c = { .fn = r->plan->serial, .out = r->f->out, .user = r };
    if (df_cuda_call_is_interrupted(r))
        return df_fail(r->d, DEFT_E_INTERRUPTED, "interrupted before launch 0 of %u",
                       r->plan->n_launches);
    TRY(prepare_roots(r, &c));
    df_cuda_call_divide(r);
    c.variant = graphs_signature_of(r);
    c.arena_bytes = (uint64_t)df_cuda_call_arena_bytes(r);
    c.unfit = r->f->steps.n == 0;
    s->checked = DEFT_OK;
    TRY(df_tree_run(s->tree, r->d, &c));
    take_roots(s, r, &c);
    graphs_count_launches(r, &c);
    graphs_report_run(s, r, &c);
    st = s->checked;
done:
    for (uint32_t i = 0; i < r->plan->n_bufs; i++) df_buffer_drop(&r->f->lent[i]);
    return st;
}

static deft_status run_work(df_cuda_graphs *s, df_cuda_work *r)
{
    deft_status st = DEFT_OK;
    const df_work *const w = r->w;
    df_tree_call c = { .fn = df_cuda_work_id(w),
                       .variant = df_cuda_work_variant(w),
                       .out = r->out,
                       .n_out = w->n_out,
                       .unfit = w->key == 0,
                       .user = r };
    for (uint32_t i = 0; i < w->n_out; i++) {
        TRY(df_gpu_borrower(r->q, r->d, &r->lent[i]));
        r->out[i] = (df_tree_out){ .bytes = (uint64_t)w->out_bytes[i] };
    }
    st = df_tree_run(s->tree, r->d, &c);
    s->works++;
    s->work_calls += r->n_calls;
    if (st != DEFT_OK) goto done;
    if (w->decided) {
        const df_cuda_teller by = {
            w->decided, w->listener, 0, 0, w->site, df_cuda_graphs_device(s)
        };
        df_cuda_tree_notes_run(&s->told, s->tree, &by, &c, s->updates);
    }
    for (uint32_t i = 0; i < w->n_out; i++)
        if (r->out[i].offset != DF_TREE_OUTSIDE) lend(s, &r->out[i], &r->lent[i], &r->own[i]);
    st = r->status;
done:
    return st;
}

static deft_status run_whole(df_cuda_graphs *s, df_cuda_conditional *w, bool *done)
{
    deft_status st = DEFT_OK;
    df_cuda_call *const r = &w->body.call;
    df_tree_call c = { .fn = r->plan->serial | DF_CUDA_WHOLE, .out = w->out, .user = r };
    uint32_t k = 0;
    if (df_cuda_call_is_interrupted(r))
        return df_fail(r->d, DEFT_E_INTERRUPTED, "interrupted before a %s",
                       w->is_loop ? "loop" : "branch");
    TRY(df_cuda_conditional_prepare(w));
    c.n_out = w->n_out;
    c.variant = df_cuda_conditional_variant(w);
    c.arena_bytes = (uint64_t)w->arena_bytes;
    s->checked = DEFT_OK;
    TRY(df_tree_run(s->tree, r->d, &c));
    graphs_report_run(s, r, &c);
    *done = c.action != DF_TREE_PLAIN;
    for (uint32_t i = 0; *done && i < w->n_dest; i++) {
        if (!w->lent[i]) continue;
        const df_tree_out *const out = &c.out[k++];
        if (out->offset != DF_TREE_OUTSIDE) lend(s, out, &w->lent[i], &w->own[i]);
    }
done:
    return st;
}

deft_status df_cuda_graphs_run(df_cuda_graphs *s, df_cuda_call *r)
{
    df_cuda_graphs_lock(s);
    const deft_status st = graphs_run_plan(s, r);
    df_cuda_graphs_unlock(s);
    return st;
}

deft_status df_cuda_graphs_work(df_cuda_graphs *s, df_cuda_work *r)
{
    df_cuda_graphs_lock(s);
    const deft_status st = run_work(s, r);
    df_cuda_graphs_unlock(s);
    return st;
}

deft_status df_cuda_graphs_run_whole(df_cuda_graphs *s, df_cuda_conditional *w, bool *done)
{
    df_cuda_graphs_lock(s);
    const deft_status st = run_whole(s, w, done);
    df_cuda_graphs_unlock(s);
    return st;
}

/* ---- the graph tree of a queue ---- */

deft_status df_cuda_graphs_create(df_diag *d, df_cuda_device *c, df_queue *q,
                                  const df_replay_options *wish, df_cuda_graphs **out)
{
    deft_status st = DEFT_OK;
    if (!df_gpu_facts_of(c->gpu)->has_graphs)
        return df_fail(d, DEFT_E_BACKEND, "%s: its driver has no graphs", c->name);
    df_cuda_graphs *s = df_mem_zalloc(c->mem, sizeof *s);
    if (!s) return df_fail_mem(d, "graphs", sizeof *s);
    atomic_init(&s->refs, 1);
    atomic_init(&s->trim_wanted, false);
    pthread_mutex_init(&s->lock, NULL);
    s->c = c;
    s->q = q;
    s->table_from = df_cuda_table_from();
    const df_tree_device dev = { s,           graphs_run_plain, graphs_record, graphs_replay,
                                 graphs_drop, graphs_back_pool };
    const df_tree_options o = { .warm_after = wish->warm_after,
                                .max_pool_bytes = wish->max_pool_bytes };
    TRY(df_cuda_pool_create(d, c->mem, c->gpu, wish->max_pool_bytes, &s->pool));
    TRY(df_tree_create(d, c->mem, &dev, &o, &s->tree));
    *out = s;
    s = NULL;
done:
    if (s) unref(s);
    return st;
}

void df_cuda_graphs_close(df_cuda_graphs **out)
{
    df_cuda_graphs *const s = *out;
    *out = NULL;
    if (!s || df_driver_usable(s->c->driver, NULL) != DEFT_OK) return;
    df_cuda_graphs_lock(s);
    const bool is_entered = df_gpu_enter_last(s->c->gpu);
    const df_cu_stream stream = df_queue_stream(s->q);
    if (is_entered && s->c->driver->stream_wait(stream)) (void)s->c->driver->stream_wait(stream);
    s->q = NULL;
    df_tree_trim(s->tree);
    while (s->leaving) {
        df_cuda_kept *const k = s->leaving;
        s->leaving = k->next;
        kept_destroy(s, k);
    }
    if (s->capture && is_entered) (void)s->c->driver->stream_destroy(s->capture);
    if (is_entered) df_gpu_leave(s->c->gpu);
    df_cuda_graphs_unlock(s);
    unref(s);
}

bool df_cuda_graphs_want_table(const df_cuda_graphs *s, const df_plan *plan)
{
    return df_cuda_table_is_wanted(plan->attached, s->table_from);
}

void df_cuda_graphs_begin(df_cuda_graphs *s)
{
    df_cuda_graphs_lock(s);
    s->told.paths++;
    df_tree_begin(s->tree);
    df_cuda_graphs_unlock(s);
}

void df_cuda_graphs_trim(df_cuda_graphs *s)
{
    df_cuda_graphs_lock(s);
    df_tree_trim(s->tree);
    df_cuda_graphs_unlock(s);
}

df_cuda_graphs *df_cuda_graphs_ref(df_cuda_graphs *s)
{
    if (s) atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void df_cuda_graphs_trim_from_outside(df_cuda_graphs *s)
{
    atomic_store_explicit(&s->trim_wanted, true, memory_order_relaxed);
    if (pthread_mutex_trylock(&s->lock) == 0) df_cuda_graphs_unlock(s);
    unref(s);
}
