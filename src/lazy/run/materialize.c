/* SPDX-License-Identifier: Apache-2.0
 *
 * The stages of a materialization in order:
 *
 *   closed trace -> plan (plan.c) -> run (run.c) -> values
 */
#include "lazy/core/devices.h"
#include "lazy/core/recorder.h"
#include "lazy/run/run.h"
#include "lazy/run/submit.h"
#include "lazy/log/notes.h"
#include "lazy/run/materialize.h"

#include "base/size_class.h"

deft_status df_cut_run(deft_ctx *cx, df_cut *m, df_want *want, bool recorded)
{
    df_run_stats run = { 0 };
    uint64_t ns = 0;
    deft_status st = df_cut_prepare(cx, m, want);
    if (st != DEFT_OK) return st;
    st = df_cut_launch(cx, m, want, cx->slots.at, &cx->diag, &run, &ns);
    if (st == DEFT_OK) {
        df_cut_publish(cx, m, want, recorded, &run, ns);
        return DEFT_OK;
    }
    df_cut_fail(cx, m, want, &run, ns, &cx->diag);
    const uint32_t node = cx->diag.node ? cx->diag.node - 1 : DF_NONE;
    if (recorded && node < m->t->n_nodes && m->record[node] != DF_NONE)
        df_lose(cx, m->record[node], &cx->diag, df_materialize);
    return st;
}

/* Finds or makes the cut of the n wants, with its closed trace. Waits for the step in
 * flight first. *own: the cut belongs to the recording of a capture. */
static deft_status find_made(deft_ctx *cx, df_want *want, uint32_t n, df_cut **out, bool *own)
{
    const uint64_t t0 = df_ctx_now_ns(cx);
    const deft_status waited = df_wait_for_steps(cx);
    if (waited != DEFT_OK) return waited;
    if (df_ctx_interrupted(cx))
        return df_fail(&cx->diag, DEFT_E_INTERRUPTED, "interrupted before it ran");
    df_cut *m = cx->recording ? cx->recorder->cut(cx) : NULL;
    *own = m != NULL;
    if (!*own) m = df_cut_again(cx, want, n);
    cx->matched = !*own && m;
    if (!cx->matched) {
        df_again_note(cx);
        if (!m) m = df_cut_new(cx);
        if (!m) return df_fail_mem(&cx->diag, "cut", sizeof *m);
        const deft_status st = df_extract(cx, want, n, m);
        if (st != DEFT_OK) return st;
        if (*own && cx->recorder->stops(cx))
            return df_fail(&cx->diag, DEFT_E_STATE, "the function was recorded and is not run");
        df_again_count(cx, m);
    }
    const uint64_t ns = df_ctx_now_ns(cx) - t0;
    cx->stats.ns_record_to_key += ns;
    if (df_ring_on(cx->ring)) cx->cut_notes.extract_ns = ns;
    *out = m;
    return DEFT_OK;
}

static void note_made(deft_ctx *cx, df_cut *m, bool own)
{
    cx->stats.cuts_matched += cx->matched;
    if (!own) df_cut_done(cx, m);
    df_again_ran(cx, m);
}

deft_status df_materialize(deft_ctx *cx, df_want *want, uint32_t n)
{
    df_cut *m = NULL;
    bool own = false;
    deft_status st = find_made(cx, want, n, &m, &own);
    if (st == DEFT_OK) st = df_cut_run(cx, m, want, true);
    if (st == DEFT_OK) note_made(cx, m, own);
    return st;
}

/* A loop computes all its results in one run. A read of one result also gives the others
 * their values if handles need them, because the loop would have to run again for them. */
static deft_status with_siblings(deft_ctx *cx, df_want *want, uint32_t n)
{
    deft_status st = DEFT_OK;
    df_assert(cx->want.n == 0);
    for (uint32_t i = 0; i < n; i++)
        if (!df_vec_push(cx->mem, &cx->want, want[i])) TRY(df_fail_mem(&cx->diag, "cut", n));
    TRY(df_want_siblings(cx));
    TRY(df_materialize(cx, cx->want.at, (uint32_t)cx->want.n));
    for (uint32_t i = 0; i < n; i++) want[i].result = cx->want.at[i].result;
    for (size_t i = n; i < cx->want.n; i++) df_value_drop(cx, &cx->want.at[i].result);
done:
    cx->want.n = 0;
    return st;
}

deft_status df_materialize_read(deft_ctx *cx, df_want *want, uint32_t n)
{
    return cx->finals ? with_siblings(cx, want, n) : df_materialize(cx, want, n);
}

deft_status df_materialize_prepare(deft_ctx *cx, df_want *want, uint32_t n, df_cut **out)
{
    bool own = false;
    deft_status st = find_made(cx, want, n, out, &own);
    if (st == DEFT_OK) st = df_cut_prepare(cx, *out, want);
    if (st == DEFT_OK) note_made(cx, *out, own);
    return st;
}

deft_status df_materialize_estimate(deft_ctx *cx, df_want *want, uint32_t n, deft_step_memory *out)
{
    bool own = false;
    df_cut *m = NULL;
    deft_status st = find_made(cx, want, n, &m, &own);
    if (st == DEFT_OK) st = df_cut_stage(cx, m);
    if (st != DEFT_OK) return st;
    st = df_cut_find_plan(cx, m);
    df_cut_unstage(m);
    if (st != DEFT_OK) return st;
    const df_plan *const p = df_plan_held(m->plan);
    const int64_t *const slots = cx->slots.at;
    *out = (deft_step_memory){ .temporary_bytes = (uint64_t)df_plan_temporary_bytes(p, slots),
                               .repeated = p->n_repeated };
    for (uint32_t r = 0; r < m->t->n_roots; r++) {
        const int64_t bytes = df_plan_root_bytes(p, r, slots);
        out->result_bytes += (uint64_t)df_buffer_bytes(bytes);
    }
    return DEFT_OK;
}
