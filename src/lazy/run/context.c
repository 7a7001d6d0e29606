/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts: creation and destruction. A context holds the records, handles and scopes of one
 * program, and belongs to one thread at a time.
 */
#include "lazy/core/devices.h"
#include "lazy/files/store.h"
#include "lazy/run/submit.h"
#include "lazy/log/notes.h"
#include "lazy/log/summary.h"
#include "lazy/run/materialize.h"

#include <string.h>

static void fill_tables(deft_ctx *cx)
{
    for (int op = 0; op < DF_N_OPS; op++)
        for (int t = 0; t < DF_N_RECORDED; t++) {
            deft_dtype u;
            if (df_dtype_operand(NULL, (df_op)op, (deft_dtype)t, &u) == DEFT_OK &&
                u == (deft_dtype)t)
                cx->direct[op] |= 1u << t;
        }
}

deft_status deft_ctx_create(deft_runtime *rt, const deft_ctx_options *options, deft_ctx **out)
{
    if (!out) return DEFT_E_ARG;
    *out = NULL;
    if (options && options->size == 0) {
        if (rt)
            df_logf(&rt->log, error,
                    "context: the size of deft_ctx_options is 0, it must be "
                    "sizeof(deft_ctx_options)");
        return DEFT_E_ARG;
    }
    deft_runtime *own = NULL;
    if (!rt) {
        const deft_status st = deft_runtime_create(NULL, &own);
        if (st != DEFT_OK) return st;
        rt = own;
    } else {
        atomic_fetch_add(&rt->refs, 1);
    }
    deft_ctx *cx = df_mem_zalloc(rt->mem, sizeof *cx);
    if (!cx) {
        deft_runtime_destroy(&rt);
        return DEFT_E_MEMORY;
    }
    cx->rt = rt;
    cx->mem = rt->mem;
    cx->epoch = 1;
    cx->body_loop = DF_NONE;
    do cx->id = atomic_fetch_add(&rt->n_ctx, 1) + 1;
    while (cx->id == 0);
    df_take_options(&cx->opt, sizeof cx->opt, options, options ? options->size : 0);
    if (!cx->opt.max_nodes) cx->opt.max_nodes = 1u << 21;
    if (cx->opt.numerics == DEFT_FAST) cx->trace_flags |= DF_TRACE_FAST;
    if (cx->opt.no_fusion) cx->trace_flags |= DF_TRACE_NOFUSE;
    cx->rec.id = cx->history_id = 1;
    cx->make_room = df_make_room;
    df_budget_set(cx, NULL);
    cx->compiles.owner = cx->id;
    df_tiers_listen(df_cpu_tiers(rt->dev), &cx->compiles);
    cx->ring = df_ring_open(rt->journal, cx->id);
    if (df_ring_on(cx->ring) && df_journal_has_launches(rt->journal))
        cx->launch_ring = df_ring_open(rt->journal, cx->id);
    df_arena_init(&cx->pass, cx->mem);
    fill_tables(cx);
    df_diag d = { 0 };
    deft_status st = df_ctx_choose_device(cx, &d);
    if (st != DEFT_OK)
        df_logf(&rt->log, error, "context: %s", d.text);
    else if (!df_vec_push(cx->mem, &cx->rec.vals, NULL) || !df_scope_push(cx, 0))
        st = DEFT_E_MEMORY;
    if (st != DEFT_OK) {
        deft_ctx_destroy(&cx);
        return st;
    }
    /* not the failure of a call, but the first sentence of the context */
    cx->diag = rt->trace_problem;
    cx->diag.status = DEFT_OK;
    *out = cx;
    return DEFT_OK;
}

static void drop_kept(deft_ctx *cx, deft_tensor *t, void *user)
{
    (void)user;
    df_handle_unbind(cx, t);
    t->flags = 0;
}

void deft_ctx_destroy(deft_ctx **pcx)
{
    if (!pcx || !*pcx) return;
    deft_ctx *const cx = *pcx;
    *pcx = NULL;
    if (cx->pending != DEFT_OK && !cx->mistake_told)
        df_logf(&cx->rt->log, error, "never collected: %s: %s", deft_status_text(cx->pending),
                df_error_text(cx, &cx->mistake, cx->mistake.site));
    df_flight_finish(cx);
    df_summary_add(cx->rt->summary, cx);
    while (cx->undo.n) df_value_drop(cx, &cx->undo.at[--cx->undo.n].value);
    if (cx->scope[0].first) df_each_outer(cx, cx->depth + 1, drop_kept, NULL);
    while (cx->muts.n) {
        df_mut *const m = &cx->muts.at[--cx->muts.n];
        df_value_drop(cx, &m->value);
        df_value_drop(cx, &m->now.what);
        df_value_drop(cx, &m->before.what);
    }
    for (size_t i = 1; i < cx->rec.vals.n; i++) df_value_drop(cx, &cx->rec.vals.at[i]);
    for (df_value *v = cx->free_values, *next; v; v = next) {
        next = v->next;
        df_mem_free(cx->mem, v, sizeof *v);
    }
    df_ctx_drain(cx);
    for (uint32_t i = 0; i < DF_MAX_GPUS && df_journal_on(cx->rt->journal); i++)
        if (df_queue_replay(&cx->queues[i])) df_log_graphs(cx, i);
    df_ctx_leave(cx);
    df_tiers_unlisten(df_cpu_tiers(cx->rt->dev), &cx->compiles);
    df_counted_drop(&cx->last_plan);
    df_store_forget(cx);
    df_history_finish(cx);
    df_arena_finish(&cx->pass);
    df_rec_finish(cx, &cx->rec);
    df_vec_finish(cx->mem, &cx->rec.vals);
    for (size_t i = 0; i < cx->chunks.n; i += 2)
        df_mem_free(cx->mem, cx->chunks.at[i], (size_t)(uintptr_t)cx->chunks.at[i + 1]);
    df_vec_finish(cx->mem, &cx->chunks);
    df_vec_finish(cx->mem, &cx->kept);
    df_vec_finish(cx->mem, &cx->undo);
    df_vec_finish(cx->mem, &cx->want);
    df_vec_finish(cx->mem, &cx->who);
    df_vec_finish(cx->mem, &cx->muts);
    df_vec_finish(cx->mem, &cx->slots);
    df_vec_finish(cx->mem, &cx->again);
    df_vec_finish(cx->mem, &cx->site_ranges);
    df_grad_annotations_truncate(cx, 0);
    df_vec_finish(cx->mem, &cx->grad_annotations);
    df_vec_finish(cx->mem, &cx->part_reads);
    df_ring_end(&cx->ring);
    df_ring_end(&cx->launch_ring);
    deft_runtime *rt = cx->rt;
    df_mem_free(cx->mem, cx, sizeof *cx);
    deft_runtime_destroy(&rt);
}

deft_runtime *deft_ctx_runtime(deft_ctx *cx)
{
    return cx ? cx->rt : NULL;
}

const df_mem *df_ctx_mem(const deft_ctx *cx)
{
    return cx->mem;
}

bool df_ctx_in_step(const deft_ctx *cx)
{
    return cx->step_at != 0;
}

bool df_ctx_is_passing(const deft_ctx *cx)
{
    return cx->step_at || cx->recording || cx->body_at;
}

void deft_interrupt(deft_ctx *cx)
{
    if (cx) atomic_store(&cx->interrupted, 1);
}
