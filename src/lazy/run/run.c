/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a cut: prepares its plan and the memory of its results, launches its kernels, and
 * turns the results into values.
 */
#include "lazy/run/run.h"

#include <string.h>

#include "base/fp.h"
#include "lazy/core/devices.h"
#include "lazy/files/store.h"
#include "lazy/log/notes.h"

/* Makes the values of all roots before anything runs, so that nothing can fail
 * afterwards. */
static deft_status make_values(deft_ctx *cx, const df_cut *m, df_want *want)
{
    const df_trace *const t = m->t;
    for (uint32_t i = 0; i < m->n_want; i++) {
        const uint32_t node = t->roots[i].node;
        df_shape s = { .rank = t->nodes[node].rank };
        memcpy(s.dim, t->extents + t->shape[node], s.rank * sizeof *s.dim);
        want[i].result = want[i].into ? df_value_ref(want[i].into)
                                      : df_value_new(cx, (deft_dtype)t->nodes[node].dtype, &s);
        if (!want[i].result)
            return df_fail(&cx->diag, DEFT_E_MEMORY, "cut: no memory for %u values", m->n_want);
    }
    if (!df_vec_reserve(cx->mem, &cx->rec.vals, m->n_want))
        return df_fail(&cx->diag, DEFT_E_MEMORY, "cut: no memory for %u values", m->n_want);
    return DEFT_OK;
}

static void take_results(deft_ctx *cx, const df_cut *m, const df_want *want, bool recorded)
{
    df_buffer **const bufs = m->bufs;
    for (uint32_t i = 0; i < m->n_want; i++) {
        const df_want *const w = &want[i];
        if (!w->into) {
            w->result->buf = bufs[i];
            w->result->data = bufs[i]->data;
            if (recorded) df_rec_resolve(cx, w->node, w->result);
            /* it overlapped an input or was computed on another device: copied here */
        } else if (bufs[i]) {
            df_value_write(w->into, bufs[i]->data);
            df_buffer_drop(&bufs[i]);
        }
    }
}

static void drop_results(deft_ctx *cx, const df_cut *m, df_want *want)
{
    for (uint32_t i = 0; i < m->n_want; i++) df_value_drop(cx, &want[i].result);
}

deft_status df_cut_prepare(deft_ctx *cx, df_cut *m, df_want *want)
{
    deft_status st = DEFT_OK;
    const uint64_t start = df_ctx_now_ns(cx), built = cx->stats.plans_built;
    TRY(df_cut_stage(cx, m));
    TRY(df_cut_find_plan(cx, m));
    const uint64_t ns = df_ctx_now_ns(cx) - start;
    cx->stats.ns_plan += ns;
    if (df_ring_on(cx->ring)) {
        const bool is_new = cx->stats.plans_built != built;
        df_log_prepared(cx, !is_new, ns);
        if (is_new && df_journal_has_inputs(cx->rt->journal)) df_log_inputs(cx, m);
    }
    if (DF_UNLIKELY(cx->store_path)) TRY(df_store_asked(cx, m));
    TRY(make_values(cx, m, want));
    TRY(df_cut_ready(cx, m, want));
    memset(m->bufs, 0, m->n_want * sizeof *m->bufs);
    for (uint32_t i = 0; i < m->t->n_inputs; i++)
        m->in[i] = m->staged[i] ? m->staged[i] : m->inputs[i]->buf;
    return DEFT_OK;
done:
    df_cut_unstage(m);
    drop_results(cx, m, want);
    return st;
}

deft_status df_cut_launch(deft_ctx *cx, df_cut *m, const df_want *want, const int64_t *slots,
                          df_diag *d, df_run_stats *stats, uint64_t *ns)
{
    const uint64_t start = df_ctx_now_ns(cx);
    df_device *const dev = df_ctx_device(cx, m->where);
    df_waiter waiter = { .go_on = df_ctx_goes_on, .user = cx };
    df_launch_io io = { .root = m->bufs,
                        .input = m->in,
                        .interrupted = df_ctx_interrupted,
                        .user = cx,
                        .ring = cx->launch_ring,
                        .decided = df_journal_on(cx->rt->journal) ? df_log_graph : NULL,
                        .waiter = cx->opt.progress ? &waiter : NULL,
                        .queue = dev->far ? cx->queues[m->where - 1].queue : NULL };
    const df_fp_state fp = df_fp_enter();
    deft_status st = dev->run(dev, d, df_plan_held(m->plan), m->t, slots, &io, stats);
    df_fp_leave(fp);
    if (st == DEFT_OK) st = df_cut_bring(cx, m, want, d);
    *ns = df_ctx_now_ns(cx) - start;
    return st;
}

void df_cut_publish(deft_ctx *cx, df_cut *m, df_want *want, bool recorded,
                    const df_run_stats *stats, uint64_t ns)
{
    take_results(cx, m, want, recorded);
    df_cut_unstage(m);
    cx->stats.cuts++;
    cx->stats.cuts_unfused += df_plan_held(m->plan)->retreated;
    cx->stats.launches += stats->launches;
    cx->stats.kernels_run += stats->segments;
    cx->stats.interpreted += stats->interpreted_segments;
    cx->stats.donated += stats->donated;
    cx->stats.ns_run += ns;
    cx->stats.ns_kernels += stats->t_run_ns;
    if (cx->last_plan != m->plan) {
        df_counted_drop(&cx->last_plan);
        cx->last_plan = df_counted_ref(m->plan);
    }
    cx->last = m->t;
    if (df_ring_on(cx->ring)) df_log_cut(cx, m, stats, ns, NULL);
}

void df_cut_fail(deft_ctx *cx, df_cut *m, df_want *want, const df_run_stats *stats, uint64_t ns,
                 const df_diag *d)
{
    if (df_ring_on(cx->ring)) df_log_cut(cx, m, stats, ns, d);
    df_cut_unstage(m);
    df_cut_unready(m);
    drop_results(cx, m, want);
}
