/* SPDX-License-Identifier: Apache-2.0
 *
 * Submitted steps: deft_step_submit, deft_wait.
 *
 * The end of such a step does everything that recording needs: handles are bound to
 * values without memory yet, and the step's records are removed. Whether the run succeeds
 * is unknown, so the undo log stays and grows. An assign outside steps, made before the
 * run is known to have succeeded, is rolled back with the step. A step that is open then
 * has an undo log of its own, and is aborted first.
 *
 * The program's thread (host) and the thread of the flight exchange one word:
 *
 *   host     IDLE ---> GO                            DONE ---> IDLE
 *   flight             GO ---> (runs) ---> DONE
 *
 * After a fork, the child has no such thread. What the thread was writing is partly
 * written, to an unknown degree. So in the child the step has failed, and memory that the
 * run was to overwrite holds no value.
 */
#include "lazy/run/submit.h"

#include "lazy/core/devices.h"
#include "lazy/run/scope.h"
#include "lazy/run/run.h"

#include "runtime/os.h"

enum { IDLE, GO, DONE, STOP };

/* ---- the thread ---- */

static void flight_signal(df_flight *f, uint32_t word)
{
    atomic_store(&f->word, word);
    df_os_wake(&f->word, 1);
}

static void *flight_thread_main(void *user)
{
    df_flight *const f = user;
    df_os_be_patient(); /* otherwise the program may be blocked while the step runs */
    for (;;) {
        const uint32_t word = atomic_load(&f->word);
        if (word == STOP) return NULL;
        if (word != GO) {
            df_os_wait(&f->word, word);
            continue;
        }
        f->status =
            df_cut_launch(f->cx, f->made, f->want.at, f->slots.at, &f->diag, &f->run, &f->ns);
        flight_signal(f, DONE);
    }
}

/* Called before the thread is used. In a forked child the thread is missing; if it was
 * running a step, that step has failed. */
static void see_fork(df_flight *f)
{
    if (!df_fork_detector_seen(&f->mark)) return;
    f->started = false;
    f->lost = atomic_load(&f->word) == GO;
    if (f->lost) {
        f->status = df_fail(&f->diag, DEFT_E_STATE, "it was running when this process was forked");
        df_allocator_lost(f->cx->rt->dev->allocator);
    }
    atomic_store(&f->word, IDLE);
    df_fork_detector_done(&f->mark);
}

static void await(df_flight *f)
{
    see_fork(f);
    while (atomic_load(&f->word) == GO) df_os_wait(&f->word, GO);
    atomic_store(&f->word, IDLE);
}

/* ---- beginning ---- */

static df_flight *flight_create(deft_ctx *cx)
{
    df_flight *const f = df_mem_zalloc(cx->mem, sizeof *f);
    if (!f) return NULL;
    f->cx = cx;
    df_fork_detector_init(&f->mark);
    return f;
}

deft_status df_flight_ready(deft_ctx *cx, size_t n, bool *ready)
{
    if (!cx->flight && !(cx->flight = flight_create(cx)))
        return df_fail_mem(&cx->diag, "step_submit", sizeof *cx->flight);
    df_flight *const f = cx->flight;
    if (!df_vec_reserve(cx->mem, &f->writes, n))
        return df_fail_mem(&cx->diag, "step_submit", n * sizeof *f->writes.at);
    see_fork(f);
    if (!f->started) f->started = df_os_thread(&f->thread, flight_thread_main, f, -1);
    *ready = f->started;
    return DEFT_OK;
}

void df_flight_write(deft_ctx *cx, df_value *to, df_value **from)
{
    df_flight *const f = cx->flight;
    f->writes.at[f->writes.n++] = (df_late_write){ df_value_ref(to), *from };
    *from = NULL;
}

static void flight_swap_lists(deft_ctx *cx, df_flight *f)
{
    const df_wants want = cx->want;
    const df_undos undo = cx->undo;
    const df_ints slots = cx->slots;
    cx->want = f->want;
    cx->undo = f->undo;
    cx->slots = f->slots;
    f->want = want;
    f->undo = undo;
    f->slots = slots;
}

void df_flight_begin(deft_ctx *cx, df_cut *m, uintptr_t site)
{
    df_flight *const f = cx->flight;
    df_assert(f->state == DF_FLIGHT_NONE && f->undo.n == 0 && f->want.n == 0);
    flight_swap_lists(cx, f);
    for (size_t i = 0; i < f->undo.n; i++) {
        df_undo *const u = &f->undo.at[i];
        u->epoch = 0; /* the value stays, but its record is removed by this cut */
        df_flags_change(u->t, DF_HANDLE_UNDO, DF_HANDLE_FLIGHT);
    }
    for (size_t i = 0; i < f->want.n; i++)
        if (!f->want.at[i].into) f->want.at[i].result->flags |= DF_VALUE_FUTURE;
    for (uint32_t k = 0; k < m->t->n_inputs; k++)
        /* only the reference count of the buffer changes */
        (void)df_buffer_ref((df_buffer *)(uintptr_t)m->in[k]);
    f->made = m;
    f->site = site;
    f->lost = false;
    f->run = (df_run_stats){ 0 };
    f->state = DF_FLIGHT_RUNNING;
    flight_signal(f, GO);
}

/* ---- ending ---- */

/* Drops what only the run needed. */
static void flight_drop_run(deft_ctx *cx, df_flight *f)
{
    for (uint32_t k = 0; k < f->made->t->n_inputs; k++) {
        df_buffer *b = (df_buffer *)(uintptr_t)f->made->in[k];
        df_buffer_drop(&b);
    }
    for (size_t i = 0; i < f->want.n; i++) df_value_drop(cx, &f->want.at[i].result);
    f->want.n = 0;
    while (f->writes.n) {
        df_late_write *const w = &f->writes.at[--f->writes.n];
        df_value_drop(cx, &w->to);
        df_value_drop(cx, &w->from);
    }
}

static void flight_publish(deft_ctx *cx, df_flight *f)
{
    df_cut_publish(cx, f->made, f->want.at, false, &f->run, f->ns);
    for (size_t i = 0; i < f->want.n; i++) {
        df_value *const v = f->want.at[i].result;
        if (!(v->flags & DF_VALUE_FUTURE)) continue;
        v->flags &= (uint8_t)~DF_VALUE_FUTURE;
        /* it had no memory when records began to refer to it */
        if (v->in_records) df_budget_pin(cx, v);
    }
    for (size_t i = 0; i < f->writes.n; i++)
        df_value_write(f->writes.at[i].to, f->writes.at[i].from->data);
    df_undo_forget(cx, &f->undo, DF_HANDLE_FLIGHT);
    flight_drop_run(cx, f);
    cx->stats.submitted++;
    f->state = DF_FLIGHT_NONE;
}

/* In a forked child: drops old values that were donated to the run. */
static void forget_overwritten(deft_ctx *cx, df_flight *f)
{
    const df_cut *const m = f->made;
    for (size_t i = 0; i < f->undo.n; i++)
        for (uint32_t k = 0; k < m->t->n_inputs; k++) {
            df_value **const v = &f->undo.at[i].value;
            if (*v && m->inputs[k] == *v && m->t->inputs[k].flags & DF_INPUT_SOLE)
                df_value_drop(cx, v);
        }
}

static void lose_future(deft_ctx *cx, deft_tensor *t, void *user)
{
    (void)user;
    if (!t->value || !(t->value->flags & DF_VALUE_FUTURE)) return;
    df_value_drop(cx, &t->value);
    t->epoch = 0;
}

void df_flight_roll_back(deft_ctx *cx)
{
    df_flight *const f = cx->flight;
    df_undo_all(cx, &f->undo, DF_HANDLE_FLIGHT);
    df_each_outer(cx, cx->depth + 1, lose_future, NULL);
    df_muts_forget(cx);
    df_rec_reset(cx);
    f->state = DF_FLIGHT_NONE;
}

/* Waits for the run to end and publishes its results. On failure the sentence is in
 * f->diag. */
static deft_status finish_run(deft_ctx *cx, df_flight *f)
{
    char site[DF_SITE_TEXT];
    await(f);
    if (f->status == DEFT_OK) {
        flight_publish(cx, f);
        return DEFT_OK;
    }
    if (f->lost) forget_overwritten(cx, f);
    df_cut_fail(cx, f->made, f->want.at, &f->run, f->ns, &f->diag);
    flight_drop_run(cx, f);
    const uintptr_t fault = f->diag.site;
    const deft_status st = df_fail(&f->diag, f->status, "step submitted at %s: %s",
                                   df_ctx_site_text(cx, f->site, site, sizeof site), f->diag.text);
    f->diag.site = fault ? fault : f->site;
    return st;
}

deft_status df_flight_wait(deft_ctx *cx)
{
    df_flight *const f = cx->flight;
    char site[DF_SITE_TEXT];
    const uintptr_t step = cx->step_at ? cx->scope[cx->step_at].site : 0;
    if (f->state == DF_FLIGHT_FAILED) {
        df_fail(&cx->diag, f->status, "%s: the step opened at %s is void: %s", cx->act,
                df_ctx_site_text(cx, step, site, sizeof site), f->diag.text);
        cx->diag.site = f->diag.site;
        return f->status;
    }
    const deft_status st = finish_run(cx, f);
    if (st == DEFT_OK) return st;
    cx->diag = f->diag;
    if (!cx->step_at) {
        df_flight_roll_back(cx);
        return st;
    }
    f->state = DF_FLIGHT_FAILED;
    return df_fail_more(&cx->diag, " (and with it the step opened at %s is void)",
                        df_ctx_site_text(cx, step, site, sizeof site));
}

deft_status deft_wait(deft_ctx *cx)
{
    if (!cx) return DEFT_E_ARG;
    df_act(cx, "wait", DF_SITE);
    deft_status st = df_may_act(cx);
    if (st == DEFT_OK) st = df_deliver(cx);
    if (st == DEFT_OK) st = df_wait_for_steps(cx);
    return st == DEFT_OK ? df_ctx_wait(cx, &cx->diag) : st;
}

void df_flight_finish(deft_ctx *cx)
{
    df_flight *const f = cx->flight;
    if (!f) return;
    if (f->state == DF_FLIGHT_RUNNING && finish_run(cx, f) != DEFT_OK)
        df_logf(&cx->rt->log, error, "never collected: %s: %s", deft_status_text(f->status),
                f->diag.text);
    df_undo_forget(cx, &f->undo, DF_HANDLE_FLIGHT);
    see_fork(f);
    if (f->started) {
        flight_signal(f, STOP);
        pthread_join(f->thread, NULL);
    }
    df_fork_detector_finish(&f->mark);
    df_vec_finish(cx->mem, &f->want);
    df_vec_finish(cx->mem, &f->undo);
    df_vec_finish(cx->mem, &f->writes);
    df_vec_finish(cx->mem, &f->slots);
    df_mem_free(cx->mem, f, sizeof *f);
    cx->flight = NULL;
}

/* ---- assigns outside steps while a step is in flight ---- */

bool df_flight_save(deft_ctx *cx, deft_tensor *t)
{
    if (t->flags & DF_HANDLE_FLIGHT) return true;
    const df_undo u = { t, t->value, t->root, t->node, t->epoch, t->place, t->failure };
    if (!df_vec_push(cx->mem, &cx->flight->undo, u)) {
        df_error(cx, DEFT_E_MEMORY, "assign: no memory for the undo log");
        return false;
    }
    t->value = NULL; /* its reference moved to the log */
    t->flags |= DF_HANDLE_FLIGHT;
    return true;
}

bool df_flight_take(deft_ctx *cx, deft_tensor *t, df_undo *out)
{
    *out = (df_undo){ 0 };
    if (!(t->flags & DF_HANDLE_FLIGHT)) return true;
    df_undos *const log = &cx->flight->undo;
    if (!df_vec_reserve(cx->mem, log, 1)) {
        df_error(cx, DEFT_E_MEMORY, "scope_return: no memory for the undo log");
        return false;
    }
    for (size_t i = 0; i < log->n; i++)
        if (log->at[i].t == t) *out = log->at[i];
    (void)df_value_ref(out->value);
    return true;
}

void df_flight_give(deft_ctx *cx, deft_tensor *t, df_undo *u)
{
    if (!u->t) return;
    if (!t) {
        df_value_drop(cx, &u->value);
        return;
    }
    u->t = t;
    cx->flight->undo.at[cx->flight->undo.n++] = *u;
    t->flags |= DF_HANDLE_FLIGHT;
}
