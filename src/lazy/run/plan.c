/* SPDX-License-Identifier: Apache-2.0
 *
 * From a closed trace to its plan, which is found in the cache or made.
 *
 * A plan is found by its key, with all bytes compared, and by its guards, which must hold
 * for the current trace. On a miss the trace is simplified, fused and compiled. The
 * plan's references to nodes are then translated back to the trace as recorded. So the
 * next run of the same program evaluates slots and guards without simplifying anything.
 */
#include "lazy/core/devices.h"
#include "lazy/run/run.h"
#include "lazy/log/notes.h"
#include "lazy/log/why.h"

#include <string.h>

bool df_ctx_interrupted(void *user)
{
    deft_ctx *const cx = user;
    /* The load keeps the locked exchange out of every evaluation that nobody interrupts. */
    return atomic_load_explicit(&cx->interrupted, memory_order_relaxed) != 0 &&
           atomic_exchange(&cx->interrupted, 0) != 0;
}

bool df_ctx_goes_on(void *user, const df_waiting *now)
{
    deft_ctx *const cx = user;
    char site[DF_SITE_TEXT] = "";
    if (df_ctx_interrupted(cx)) return false;
    if (now->site) (void)df_ctx_site_text(cx, now->site, site, sizeof site);
    const deft_progress p = { .size = sizeof p,
                              .ops = now->ops,
                              .site = site,
                              .n_done = now->n_done,
                              .n_kernels = now->n,
                              .elapsed_ns = now->elapsed_ns };
    return cx->opt.progress(cx->opt.progress_user, &p) != 0;
}

static void entry_destroy(df_counted *self)
{
    df_plan_entry *const e = (df_plan_entry *)(void *)self;
    deft_runtime *const rt = e->rt;
    if (e->plan) {
        e->dev->release(e->dev, e->plan);
        df_plan_destroy(&e->plan, rt->mem);
    }
    df_mem_free(rt->mem, e, sizeof *e);
}

enum {
    MOST_LOST = 32
    /* Maximum number of plans of one key that each do without one forwarding. After that, one
 * plan does without all. */
};

typedef struct finder {
    deft_ctx *cx;
    const df_trace *t;
    uint32_t n_misses; /* plans with the same key of which a guard failed */
    /* The views that the latest such plan takes for one place, and those that it forwards
     * between. */
    df_same_place *same, *forward;
    uint32_t n_same, n_forward;
    bool was_held;    /* a plan missed that copies an input, which this run may overwrite */
    bool have_parted; /* a plan missed for which bounds of slices were equal that differ now */
    bool ok;
} finder;

static bool slots_for(deft_ctx *cx, const df_plan *p, const df_trace *t)
{
    cx->slots.n = 0;
    if (!df_vec_reserve(cx->mem, &cx->slots, p->n_slots)) return false;
    df_slots_eval(p->slots, p->n_slots, t, cx->slots.at);
    return true;
}

/* Called by the cache, under its lock, for each plan with the key. Explains the first
 * guard that fails. */
static bool guards_hold(const df_counted *value, void *user)
{
    finder *const f = user;
    const df_plan *const p = df_plan_held(value);
    if (!slots_for(f->cx, p, f->t)) {
        f->ok = false;
        return false;
    }
    const df_guard *const miss = df_guard_first_miss(p->guards, p->n_guards, f->t, f->cx->slots.at);
    if (!miss) return true;
    if (f->n_misses++ == 0) {
        f->n_same = p->n_same;
        f->same = df_arena_copy(&f->cx->pass, p->same, p->n_same * sizeof *f->same,
                                _Alignof(df_same_place));
        f->n_forward = p->n_forward;
        f->forward = df_arena_copy(&f->cx->pass, p->forward, p->n_forward * sizeof *f->forward,
                                   _Alignof(df_same_place));
        f->ok &= f->same && f->forward;
    }
    f->was_held |= miss->kind == DF_GUARD_sole;
    f->have_parted |= miss->kind == DF_GUARD_same_bound;
    f->cx->stats.guard_misses++;
    df_str text;
    df_event event;
    df_str_init(&text, f->cx->mem);
    df_guard_explain(&text, miss, f->t, p->slots, f->cx->slots.at);
    df_event_make(&event, DF_WHY_guard_miss, f->cx->act_site, text.at ? text.at : "no memory", "",
                  "");
    df_why_log(f->cx, &event);
    df_str_finish(&text);
    if (df_ring_on(f->cx->ring)) df_log_miss(f->cx, p, miss, f->t, f->cx->slots.at);
    return false;
}

/* Logs one line for each decision of the fuser. */
static void log_why(deft_ctx *cx, const df_plan *p, const df_trace *t)
{
    df_str s;
    df_str_init(&s, cx->mem);
    df_why_print(&s, p, t);
    for (char *at = s.at, *end; at && (end = strchr(at, '\n')) != NULL; at = end + 1)
        df_logf(&cx->rt->log, fusion, "%.*s", (int)(end - at), at);
    df_str_finish(&s);
}

typedef struct about {
    deft_ctx *cx;
    const df_trace *t;
    uint32_t number, n_blocks;
} about;

static deft_status set_about(df_plan *plan, void *user)
{
    about *const a = user;
    plan->site = a->cx->act_site;
    plan->owner = a->cx->id;
    plan->number = a->number;
    plan->block = a->n_blocks;
    a->n_blocks += plan->n_parts == 0;
    if (df_why_kernels(plan, a->t)) return DEFT_OK;
    return df_fail_mem(&a->cx->diag, "plan", plan->n_kernels * sizeof *plan->about);
}

/* takes_held, bounds_part: see df_limits. */
static deft_status make_plan(deft_ctx *cx, df_device *dev, const df_trace *t, uint32_t number,
                             bool takes_held, bool bounds_part, df_places *places, df_plan **out,
                             df_phases *phases)
{
    deft_status st = DEFT_OK;
    df_trace *simple = NULL;
    uint32_t *from = NULL;
    df_plan *plan = NULL;
    deft_runtime *const rt = cx->rt;
    df_limits limits = dev->limits;
    limits.takes_held = takes_held;
    limits.bounds_part = bounds_part;
    limits.keep_why =
        t->n_nodes <= DF_WHY_NODES || df_log_on(&rt->log, DF_LOG_fusion) || df_ring_on(cx->ring);
    const uint64_t t0 = df_ctx_now_ns(cx);
    df_assert_slow(df_verify_passed(df_trace_verify(NULL, t)));
    if (!cx->opt.no_simplify && !cx->opt.no_fusion) {
        TRY(df_trace_simplify_now(&cx->diag, t, DF_PASS_ALL, places, &cx->pass, &simple, &from));
        df_assert_slow(df_verify_passed(df_trace_verify(NULL, simple)));
    }
    const uint64_t t1 = df_ctx_now_ns(cx);
    TRY(df_fuse(&cx->diag, simple ? simple : t, &limits, rt->mem, &plan));
    /* The plan refers to nodes of the simplified trace, but runs pass traces as recorded. */
    if (simple) {
        df_plan_translate(plan, from, NULL);
        TRY(df_plan_guard_places(&cx->diag, plan, t, places, rt->mem));
    }
    df_assert_slow(df_verify_passed(df_plan_verify(NULL, plan)));
    about what = { .cx = cx, .t = t, .number = number };
    TRY(df_plan_each(plan, set_about, &what));
    const uint64_t t2 = df_ctx_now_ns(cx);
    df_waiter waiter = { .go_on = df_ctx_goes_on, .user = cx };
    TRY(dev->prepare(dev, &cx->diag, plan, cx->opt.progress ? &waiter : NULL));
    *phases = (df_phases){ t1 - t0, t2 - t1, df_ctx_now_ns(cx) - t2 };
    *out = plan;
    plan = NULL;
done:
    df_plan_destroy(&plan, rt->mem);
    return st;
}

static deft_status find_or_make(deft_ctx *cx, df_cut *m, df_plan_entry **out)
{
    deft_status st = DEFT_OK;
    deft_runtime *const rt = cx->rt;
    const df_trace *const t = m->t;
    df_plan_entry *e = NULL;
    if (m->key.n == 0) TRY(df_trace_key(&cx->diag, t, &m->key));
    const df_cache_key ck = { m->key.hash, m->key.bytes, m->key.n };
    finder f = { .cx = cx, .t = t, .ok = true };
    df_phases phases;
    df_arena_reset(&cx->pass);
    *out = (df_plan_entry *)(void *)df_cache_find(rt->plans, &ck, guards_hold, &f);
    if (!f.ok && !*out) TRY(df_fail_mem(&cx->diag, "cut: launch integers", sizeof(int64_t)));
    if (*out) { /* its slots are evaluated, even if memory ran out for those of another plan */
        cx->stats.plan_hits++;
        return DEFT_OK;
    }
    cx->stats.plan_misses++;
    df_why_miss(cx, m, f.n_misses);
    if (!(e = df_mem_zalloc(rt->mem, sizeof *e)))
        TRY(df_fail_mem(&cx->diag, "cut: plan entry", sizeof *e));
    df_counted_init(&e->counted, entry_destroy);
    e->rt = rt;
    e->dev = df_ctx_device(cx, m->where);
    /* Views that once turned out to be different places are not taken for one place
     * again. So windows that coincide now and then need one more plan, not one for each
     * way in which they coincide. A forwarding that once failed gets a plan for such
     * runs. After MOST_LOST of them one plan serves all runs. */
    df_places places = { .known = f.same,
                         .n_known = f.n_same,
                         .known_forward = f.forward,
                         .n_known_forward = f.n_misses < MOST_LOST ? f.n_forward : 0,
                         .is_bounded = f.n_misses > 0,
                         .lost = DF_NONE };
    TRY(make_plan(cx, e->dev, t, (uint32_t)cx->stats.plans_built + 1, f.was_held, f.have_parted,
                  &places, &e->plan, &phases));
    cx->stats.plans_built++;
    if (df_log_on(&rt->log, DF_LOG_fusion)) log_why(cx, e->plan, t);
    if (e->plan->retreated)
        df_logf(&rt->log, error, "a program of %u records runs one kernel per op: %s", t->n_nodes,
                df_plan_retreat(e->plan));
    df_why_plan(cx, m, f.n_misses, e->plan);
    if (!slots_for(cx, e->plan, t))
        TRY(df_fail_mem(&cx->diag, "cut: launch integers", e->plan->n_slots * sizeof(int64_t)));
    if (df_ring_on(cx->ring)) df_log_plan(cx, m, e->plan, f.n_misses, &phases);
    /* A plan may be larger than the cache. It is then used once. */
    const size_t bytes = df_plan_bytes(e->plan);
    st = df_cache_add(rt->plans, &ck, df_counted_ref(&e->counted), bytes);
    if (st == DEFT_E_LIMIT) {
        df_logf(&rt->log, cache, "a plan of %zu bytes is too large to keep", bytes);
        st = DEFT_OK;
    }
    if (st != DEFT_OK) TRY(df_fail_mem(&cx->diag, "cut: plan cache", bytes));
    *out = e;
    return DEFT_OK;
done:
    if (e) {
        df_counted *c = &e->counted;
        df_counted_drop(&c);
    }
    return st;
}

static bool still_fits(deft_ctx *cx, const df_plan *p, const df_trace *t)
{
    return slots_for(cx, p, t) && !df_guard_first_miss(p->guards, p->n_guards, t, cx->slots.at);
}

bool df_last_guards_hold(deft_ctx *cx)
{
    return still_fits(cx, df_plan_held(cx->last_plan), cx->last);
}

deft_status df_cut_find_plan(deft_ctx *cx, df_cut *m)
{
    deft_status st = DEFT_OK;
    df_plan_entry *e = NULL;
    if (m->plan && still_fits(cx, df_plan_held(m->plan), m->t)) {
        cx->stats.plan_hits++;
        return DEFT_OK;
    }
    TRY(find_or_make(cx, m, &e));
    df_counted_drop(&m->plan);
    m->plan = &e->counted;
done:
    return st;
}
