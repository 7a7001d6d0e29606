/* SPDX-License-Identifier: Apache-2.0
 *
 * The conductor: closed trace -> key -> plan (found, or made and kept) -> run -> values.
 *
 * A plan is found by its key, all bytes compared, and by its guards on the trace at hand. On a miss
 * the trace is simplified, fused and compiled; the plan's references to nodes are then translated
 * back to the trace as recorded, so that the next run of the same program evaluates slots and
 * guards without simplifying anything.
 */
#include "lazy/device/devices.h"
#include "lazy/capture/recording.h"
#include "lazy/files/store.h"
#include "lazy/core/submit.h"
#include "lazy/log/tell.h"

#include <string.h>

#include "base/fp.h"
#include "base/size_class.h"
#include "runtime/os.h"

/* What the plan cache holds. */
typedef struct plan_entry {
    df_counted counted; /* first */
    deft_runtime *rt;   /* borrowed: the cache dies with it, and contexts hold it */
    df_device *dev;     /* of rt: the plan was prepared there */
    df_plan *plan;
} plan_entry;

static const df_plan *plan_of(const df_counted *c)
{
    return ((const plan_entry *)(const void *)c)->plan;
}

const df_plan *df_plan_held(const df_counted *c)
{
    return c ? plan_of(c) : NULL;
}

static void entry_destroy(df_counted *self)
{
    plan_entry *const e = (plan_entry *)(void *)self;
    deft_runtime *const rt = e->rt;
    if (e->plan) {
        e->dev->release(e->dev, e->plan);
        df_plan_destroy(&e->plan, rt->mem);
    }
    df_mem_free(rt->mem, e, sizeof *e);
}

static uint64_t now_ns(const deft_ctx *cx)
{
    return cx->rt->measure ? df_os_now_ns() : 0;
}

/* ---- finding ---- */

enum {
    MOST_LOST = 32
}; /* plans of a key beside the one that forwards; each is for one thing lost */

typedef struct finder {
    deft_ctx *cx;
    const df_trace *t;
    uint32_t n_misses; /* same key, guard failed */
    /* What the youngest of those took for one place, and what its key's plans forward by. */
    df_same_place *same, *forward;
    uint32_t n_same, n_forward;
    bool ok;
} finder;

static bool slots_for(deft_ctx *cx, const df_plan *p, const df_trace *t)
{
    cx->slots.n = 0;
    if (!df_vec_reserve(cx->mem, &cx->slots, p->n_slots)) return false;
    df_slots_eval(p->slots, p->n_slots, t, cx->slots.at);
    return true;
}

/* Under the cache's lock. */
static bool guards_hold(const df_counted *value, void *user)
{
    finder *const f = user;
    const df_plan *const p = plan_of(value);
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
    f->cx->stats.guard_misses++;
    df_str text;
    df_event event;
    df_str_init(&text, f->cx->mem);
    df_guard_explain(&text, miss, f->t, p->slots, f->cx->slots.at);
    df_event_make(&event, DF_WHY_guard_miss, f->cx->act_site, text.at ? text.at : "no memory", "",
                  "");
    df_why_tell(f->cx, &event);
    df_str_finish(&text);
    if (df_ring_on(f->cx->ring)) df_tell_miss(f->cx, p, miss, f->t, f->cx->slots.at);
    return false;
}

/* ---- making ---- */

static bool interrupted(void *user)
{
    deft_ctx *const cx = user;
    return atomic_exchange(&cx->interrupted, 0) != 0;
}

/* The compiler is waited for: tells the program, which may not want to. Any thread, as
 * df_made_launch. */
static bool goes_on(void *user, const df_waiting *now)
{
    deft_ctx *const cx = user;
    char site[DF_SITE_TEXT] = "";
    if (interrupted(cx)) return false;
    if (now->site) (void)df_ctx_site_text(cx, now->site, site, sizeof site);
    const deft_progress p = { .size = sizeof p,
                              .ops = now->ops,
                              .site = site,
                              .n_done = now->n_done,
                              .n_kernels = now->n,
                              .elapsed_ns = now->elapsed_ns };
    return cx->opt.progress(cx->opt.progress_user, &p) != 0;
}

/* One line of log for each decision. */
static void tell_why(deft_ctx *cx, const df_plan *p, const df_trace *t)
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

static deft_status tell_about(df_plan *plan, void *user)
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

static deft_status make_plan(deft_ctx *cx, df_device *dev, const df_trace *t, uint32_t number,
                             df_places *places, df_plan **out, df_phases *phases)
{
    deft_status st = DEFT_OK;
    df_trace *simple = NULL;
    uint32_t *from = NULL;
    df_plan *plan = NULL;
    deft_runtime *const rt = cx->rt;
    df_limits limits = dev->limits;
    limits.keep_why =
        t->n_nodes <= DF_WHY_NODES || df_log_on(&rt->log, DF_LOG_fusion) || df_ring_on(cx->ring);
    const uint64_t t0 = now_ns(cx);
    /* Verifiers need memory of their own; that they get none says nothing of what they verify. */
    df_assert_slow(df_trace_verify(NULL, t) % DEFT_E_MEMORY == 0);
    if (!cx->opt.no_simplify && !cx->opt.no_fusion) {
        TRY(df_trace_simplify_now(&cx->diag, t, DF_PASS_ALL, places, &cx->pass, &simple, &from));
        df_assert_slow(df_trace_verify(NULL, simple) % DEFT_E_MEMORY == 0);
    }
    const uint64_t t1 = now_ns(cx);
    TRY(df_fuse(&cx->diag, simple ? simple : t, &limits, rt->mem, &plan));
    /* It speaks of nodes of the simplified trace; runs will hand in traces as recorded. */
    if (simple) {
        df_plan_translate(plan, from, NULL);
        TRY(df_plan_guard_places(&cx->diag, plan, t, places, rt->mem));
    }
    df_assert_slow(df_plan_verify(NULL, plan) % DEFT_E_MEMORY == 0);
    about what = { .cx = cx, .t = t, .number = number };
    TRY(df_plan_each(plan, tell_about, &what));
    const uint64_t t2 = now_ns(cx);
    df_waiter waiter = { .go_on = goes_on, .user = cx };
    TRY(dev->prepare(dev, &cx->diag, plan, cx->opt.progress ? &waiter : NULL));
    *phases = (df_phases){ t1 - t0, t2 - t1, now_ns(cx) - t2 };
    *out = plan;
    plan = NULL;
done:
    df_plan_destroy(&plan, rt->mem);
    return st;
}

static deft_status find_or_make(deft_ctx *cx, df_made *m, plan_entry **out)
{
    deft_status st = DEFT_OK;
    deft_runtime *const rt = cx->rt;
    const df_trace *const t = m->t;
    plan_entry *e = NULL;
    if (m->key.n == 0) TRY(df_trace_key(&cx->diag, t, &m->key));
    const df_cache_key ck = { m->key.hash, m->key.bytes, m->key.n };
    finder f = { .cx = cx, .t = t, .ok = true };
    df_phases phases;
    df_arena_reset(&cx->pass);
    *out = (plan_entry *)(void *)df_cache_find(rt->plans, &ck, guards_hold, &f);
    if (!f.ok && !*out) TRY(df_fail_mem(&cx->diag, "cut: launch integers", sizeof(int64_t)));
    if (*out) { /* it has its slots, though memory may have been short for another's */
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
    /* Views that have differed once are not taken for one again: windows which meet now and then
     * cost one plan more, not one for each way in which they meet. What could not be forwarded once
     * is a plan for runs in which that is so; after some of these one plan is for all. */
    df_places places = { .known = f.same,
                         .n_known = f.n_same,
                         .known_forward = f.forward,
                         .n_known_forward = f.n_misses < MOST_LOST ? f.n_forward : 0,
                         .is_bounded = f.n_misses > 0,
                         .lost = DF_NONE };
    TRY(make_plan(cx, e->dev, t, (uint32_t)cx->stats.plans_built + 1, &places, &e->plan, &phases));
    cx->stats.plans_built++;
    if (df_log_on(&rt->log, DF_LOG_fusion)) tell_why(cx, e->plan, t);
    if (e->plan->retreated)
        df_logf(&rt->log, error, "a program of %u records runs one kernel per op: %s", t->n_nodes,
                df_plan_retreat(e->plan));
    df_why_plan(cx, m, f.n_misses, e->plan);
    if (!slots_for(cx, e->plan, t))
        TRY(df_fail_mem(&cx->diag, "cut: launch integers", e->plan->n_slots * sizeof(int64_t)));
    if (df_ring_on(cx->ring)) df_tell_plan(cx, m, e->plan, f.n_misses, &phases);
    /* A plan that holds all references of its own may be larger than the cache: it is then used
     * once. */
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
    return still_fits(cx, plan_of(cx->last_plan), cx->last);
}

/* The plan of m, with the slots of now: that of its latest run when the guards still hold. */
static deft_status find_plan(deft_ctx *cx, df_made *m)
{
    deft_status st = DEFT_OK;
    plan_entry *e = NULL;
    if (m->plan && still_fits(cx, plan_of(m->plan), m->t)) {
        cx->stats.plan_hits++;
        return DEFT_OK;
    }
    TRY(find_or_make(cx, m, &e));
    df_counted_drop(&m->plan);
    m->plan = &e->counted;
done:
    return st;
}

/* ---- running ---- */

/* Values for every root, made before anything runs so that nothing can fail afterwards. */
static deft_status make_values(deft_ctx *cx, const df_made *m, df_want *want)
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

static void take_results(deft_ctx *cx, const df_made *m, const df_want *want, bool recorded)
{
    df_buffer **const bufs = m->bufs;
    for (uint32_t i = 0; i < m->n_want; i++) {
        const df_want *const w = &want[i];
        if (!w->into) {
            w->result->buf = bufs[i];
            w->result->data = bufs[i]->data;
            if (recorded) df_rec_resolve(cx, w->node, w->result);
        } else if (bufs[i]) { /* overlapped an input, or was computed elsewhere: copied now */
            df_value_write(w->into, bufs[i]->data);
            df_buffer_drop(&bufs[i]);
        }
    }
}

static void drop_results(deft_ctx *cx, const df_made *m, df_want *want)
{
    for (uint32_t i = 0; i < m->n_want; i++) df_value_drop(cx, &want[i].result);
}

deft_status df_made_prepare(deft_ctx *cx, df_made *m, df_want *want)
{
    deft_status st = DEFT_OK;
    const uint64_t start = now_ns(cx), built = cx->stats.plans_built;
    TRY(df_made_stage(cx, m));
    TRY(find_plan(cx, m));
    const uint64_t ns = now_ns(cx) - start;
    cx->stats.ns_plan += ns;
    if (df_ring_on(cx->ring)) {
        const bool is_new = cx->stats.plans_built != built;
        df_tell_prepared(cx, !is_new, ns);
        if (is_new && df_journal_has_inputs(cx->rt->journal)) df_tell_inputs(cx, m);
    }
    if (DF_UNLIKELY(cx->store_path)) TRY(df_store_asked(cx, m));
    TRY(make_values(cx, m, want));
    TRY(df_made_ready(cx, m, want));
    memset(m->bufs, 0, m->n_want * sizeof *m->bufs);
    for (uint32_t i = 0; i < m->t->n_inputs; i++)
        m->in[i] = m->staged[i] ? m->staged[i] : m->inputs[i]->buf;
    return DEFT_OK;
done:
    df_made_unstage(m);
    drop_results(cx, m, want);
    return st;
}

deft_status df_made_launch(deft_ctx *cx, df_made *m, const df_want *want, const int64_t *slots,
                           df_diag *d, df_run_stats *stats, uint64_t *ns)
{
    const uint64_t start = now_ns(cx);
    df_device *const dev = df_ctx_device(cx, m->where);
    df_waiter waiter = { .go_on = goes_on, .user = cx };
    df_launch_io io = { .root = m->bufs,
                        .input = m->in,
                        .interrupted = interrupted,
                        .user = cx,
                        .ring = cx->launch_ring,
                        .decided = df_journal_on(cx->rt->journal) ? df_tell_graph : NULL,
                        .waiter = cx->opt.progress ? &waiter : NULL,
                        .queue = dev->far ? cx->queues[m->where - 1].queue : NULL };
    const df_fp_state fp = df_fp_enter();
    deft_status st = dev->run(dev, d, plan_of(m->plan), m->t, slots, &io, stats);
    df_fp_leave(fp);
    if (st == DEFT_OK) st = df_made_bring(cx, m, want, d);
    *ns = now_ns(cx) - start;
    return st;
}

void df_made_land(deft_ctx *cx, df_made *m, df_want *want, bool recorded, const df_run_stats *stats,
                  uint64_t ns)
{
    take_results(cx, m, want, recorded);
    df_made_unstage(m);
    cx->stats.cuts++;
    cx->stats.cuts_unfused += plan_of(m->plan)->retreated;
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
    if (df_ring_on(cx->ring)) df_tell_cut(cx, m, stats, ns, NULL);
}

void df_made_fail(deft_ctx *cx, df_made *m, df_want *want, const df_run_stats *stats, uint64_t ns,
                  const df_diag *d)
{
    if (df_ring_on(cx->ring)) df_tell_cut(cx, m, stats, ns, d);
    df_made_unstage(m);
    df_made_unready(m);
    drop_results(cx, m, want);
}

deft_status df_made_run(deft_ctx *cx, df_made *m, df_want *want, bool recorded)
{
    df_run_stats run = { 0 };
    uint64_t ns = 0;
    deft_status st = df_made_prepare(cx, m, want);
    if (st != DEFT_OK) return st;
    st = df_made_launch(cx, m, want, cx->slots.at, &cx->diag, &run, &ns);
    if (st == DEFT_OK) {
        df_made_land(cx, m, want, recorded, &run, ns);
        return DEFT_OK;
    }
    df_made_fail(cx, m, want, &run, ns, &cx->diag);
    const uint32_t node = cx->diag.node ? cx->diag.node - 1 : DF_NONE;
    if (recorded && node < m->t->n_nodes && m->record[node] != DF_NONE)
        df_lose(cx, m->record[node], &cx->diag);
    return st;
}

/* The closed trace of the wants; *own: it is that of a capture. */
static deft_status find_made(deft_ctx *cx, df_want *want, uint32_t n, df_made **out, bool *own)
{
    const uint64_t t0 = now_ns(cx);
    const deft_status waited = df_wait(cx);
    if (waited != DEFT_OK) return waited;
    if (interrupted(cx)) return df_fail(&cx->diag, DEFT_E_INTERRUPTED, "interrupted before it ran");
    df_made *m = cx->recording ? df_recording_cut(cx) : NULL;
    *own = m != NULL;
    if (!*own) m = df_made_again(cx, want, n);
    cx->matched = !*own && m;
    if (!cx->matched) {
        df_again_note(cx);
        if (!m) m = df_made_new(cx);
        if (!m) return df_fail_mem(&cx->diag, "cut", sizeof *m);
        const deft_status st = df_extract(cx, want, n, m);
        if (st != DEFT_OK) return st;
        df_again_count(cx, m);
    }
    const uint64_t ns = now_ns(cx) - t0;
    cx->stats.ns_record_to_key += ns;
    if (df_ring_on(cx->ring)) cx->told.extract_ns = ns;
    *out = m;
    return DEFT_OK;
}

static void note_made(deft_ctx *cx, df_made *m, bool own)
{
    cx->stats.cuts_matched += cx->matched;
    if (!own) df_made_done(cx, m);
    df_again_ran(cx, m);
}

deft_status df_materialize(deft_ctx *cx, df_want *want, uint32_t n)
{
    df_made *m = NULL;
    bool own = false;
    deft_status st = find_made(cx, want, n, &m, &own);
    if (st == DEFT_OK) st = df_made_run(cx, m, want, true);
    if (st == DEFT_OK) note_made(cx, m, own);
    return st;
}

/* A loop makes all its results at once: what is read of it brings the others along, for whom it
 * would have to run again. */
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

deft_status df_materialize_later(deft_ctx *cx, df_want *want, uint32_t n, df_made **out)
{
    bool own = false;
    deft_status st = find_made(cx, want, n, out, &own);
    if (st == DEFT_OK) st = df_made_prepare(cx, *out, want);
    if (st == DEFT_OK) note_made(cx, *out, own);
    return st;
}

deft_status df_materialize_foresee(deft_ctx *cx, df_want *want, uint32_t n, deft_step_memory *out)
{
    bool own = false;
    df_made *m = NULL;
    deft_status st = find_made(cx, want, n, &m, &own);
    if (st == DEFT_OK) st = df_made_stage(cx, m);
    if (st != DEFT_OK) return st;
    st = find_plan(cx, m);
    df_made_unstage(m);
    if (st != DEFT_OK) return st;
    const df_plan *const p = plan_of(m->plan);
    const int64_t *const slots = cx->slots.at;
    *out = (deft_step_memory){ .temporary_bytes = (uint64_t)df_plan_temporary_bytes(p, slots),
                               .repeated = p->n_repeated };
    for (uint32_t r = 0; r < m->t->n_roots; r++) {
        const int64_t bytes = df_plan_root_bytes(p, r, slots);
        out->result_bytes += (uint64_t)df_buffer_bytes(bytes);
    }
    return DEFT_OK;
}
