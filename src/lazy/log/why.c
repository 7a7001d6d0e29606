/* SPDX-License-Identifier: Apache-2.0
 *
 * Explains cuts: events of the context, recomputation, steps that grow, deft_explain.
 *
 * Known programs are the cached cuts of the context (history.h). The nearest one shares
 * the longest run of first records with the current program. Calls are recorded in order,
 * so at the first difference the two runs of the caller's code diverged.
 */
#include "lazy/log/notes.h"
#include "lazy/log/why.h"

#include <stdio.h>
#include <string.h>

enum { GROWS_FOR = 8, TEXT = 256 };

void df_why_log(deft_ctx *cx, df_event *e)
{
    e->owner = cx->id;
    df_events_add(&cx->events, e, cx->events_seen);
    df_event_log(&cx->rt->log, e);
}

/* ---- programs ---- */

static bool trace_nodes_equal(const df_trace *a, const df_trace *b, uint32_t k)
{
    return memcmp(&a->nodes[k], &b->nodes[k], sizeof *a->nodes) == 0;
}

/* The number of first records that a and b share. */
static uint32_t shared(const df_trace *a, const df_trace *b)
{
    const uint32_t most = a->n_nodes < b->n_nodes ? a->n_nodes : b->n_nodes;
    uint32_t k = 0;
    while (k < most && trace_nodes_equal(a, b, k)) k++;
    return k;
}

static bool same_roots(const df_trace *a, const df_trace *b)
{
    return a->n_roots == b->n_roots &&
           memcmp(a->roots, b->roots, a->n_roots * sizeof *a->roots) == 0;
}

/* How similar t and other are from record k on, where they differ: by the op there, then
 * by the roots. */
static int likeness(const df_trace *t, const df_trace *other, uint32_t k)
{
    const bool same_op =
        k < t->n_nodes && k < other->n_nodes && t->nodes[k].op == other->nodes[k].op;
    return 2 * same_op + same_roots(t, other);
}

/* Whether a is nearer to t than b is. Both share k records with t. */
static bool is_nearer(const df_trace *t, const df_cut *a, const df_cut *b, uint32_t k)
{
    const int like_a = likeness(t, a->t, k), like_b = likeness(t, b->t, k);
    return like_a != like_b ? like_a > like_b : a->used > b->used;
}

/* The trace of the cached cut, other than m, that is nearest to m's; NULL when there is
 * none. *n_shared: the number of records they share. */
static const df_trace *nearest(const deft_ctx *cx, const df_cut *m, uint32_t *n_shared)
{
    const df_cut *best = NULL;
    *n_shared = 0;
    for (uint32_t i = 0; i < DF_MAX_CUTS; i++) {
        const df_cut *const other = cx->cuts[i];
        if (!other || other == m || !other->t || !other->plan) continue;
        const uint32_t n = shared(m->t, other->t);
        if (best && (n < *n_shared || (n == *n_shared && !is_nearer(m->t, other, best, n))))
            continue;
        best = other;
        *n_shared = n;
    }
    return best ? best->t : NULL;
}

/* Writes the form "add f32[4,10]" into buf. */
static void short_text(const df_trace *t, uint32_t k, char *buf, size_t n)
{
    char shape[DF_SHAPE_TEXT];
    df_shape s = { .rank = t->nodes[k].rank };
    memcpy(s.dim, df_trace_extents(t, k), s.rank * sizeof *s.dim);
    snprintf(buf, n, "%s %s%s", df_op_infos[t->nodes[k].op].name,
             deft_dtype_name((deft_dtype)t->nodes[k].dtype),
             df_shape_text(&s, shape, sizeof shape));
}

static void long_text(const deft_ctx *cx, const df_trace *t, uint32_t k, char *buf, size_t n)
{
    df_str s;
    df_str_init(&s, cx->mem);
    df_trace_print_node(&s, t, k);
    if (s.ok)
        snprintf(buf, n, "%s", s.at);
    else
        short_text(t, k, buf, n);
    df_str_finish(&s);
}

/* Writes record k of a and of b, which differ, in a form that shows the difference. */
static void spell(const deft_ctx *cx, const df_trace *a, const df_trace *b, uint32_t k, char *in_a,
                  char *in_b, size_t n)
{
    const df_node *const x = k < a->n_nodes ? &a->nodes[k] : NULL;
    const df_node *const y = k < b->n_nodes ? &b->nodes[k] : NULL;
    const bool brief = !x || !y || x->op != y->op || x->dtype != y->dtype || x->rank != y->rank;
    snprintf(in_a, n, "the end");
    snprintf(in_b, n, "the end");
    if (x && brief) short_text(a, k, in_a, n);
    if (x && !brief) long_text(cx, a, k, in_a, n);
    if (y && brief) short_text(b, k, in_b, n);
    if (y && !brief) long_text(cx, b, k, in_b, n);
}

static void root_text(const df_trace *t, uint32_t k, char *buf, size_t n)
{
    const df_root *const r = k < t->n_roots ? &t->roots[k] : NULL;
    if (!r)
        snprintf(buf, n, "the end");
    else if (r->into != DF_NONE)
        snprintf(buf, n, "%%%u into %%%u", r->node, t->inputs[r->into].node);
    else if (r->donor != DF_NONE)
        snprintf(buf, n, "%%%u in place of %%%u", r->node, t->inputs[r->donor].node);
    else
        snprintf(buf, n, "%%%u", r->node);
}

static uint32_t first_other_root(const df_trace *a, const df_trace *b)
{
    uint32_t k = 0;
    while (k < a->n_roots && k < b->n_roots &&
           !memcmp(&a->roots[k], &b->roots[k], sizeof *a->roots))
        k++;
    return k;
}

static void bound_text(const df_trace *t, char *buf, size_t n)
{
    if (t->max_temporary_bytes)
        snprintf(buf, n, "at most %llu bytes of temporaries",
                 (unsigned long long)t->max_temporary_bytes);
    else
        snprintf(buf, n, "no bound on temporaries");
}

static const char *plural(uint32_t n)
{
    return n == 1 ? "" : "s";
}

static void program_text(const df_trace *t, const char *before, char *buf, size_t n)
{
    snprintf(buf, n, "%s program of %u record%s and %u result%s", before, t->n_nodes,
             plural(t->n_nodes), t->n_roots, plural(t->n_roots));
}

void df_why_miss(deft_ctx *cx, const df_cut *m, uint32_t n_misses)
{
    char field[TEXT], found[TEXT];
    df_event e;
    program_text(m->t, "a", field, sizeof field);
    if (n_misses)
        snprintf(found, sizeof found, "%u that miss%s a guard", n_misses,
                 n_misses == 1 ? "es" : "");
    else
        snprintf(found, sizeof found, "none with its key");
    df_event_make(&e, DF_WHY_plan_miss, cx->act_site, field, "a plan that fits", found);
    df_why_log(cx, &e);
}

static void log_repeats(deft_ctx *cx, const df_plan *p, const df_trace *t)
{
    df_event e;
    char field[TEXT], expected[TEXT], found[64];
    program_text(t, "a", field, sizeof field);
    bound_text(t, expected, sizeof expected);
    snprintf(found, sizeof found, "%u kernel%s or products done again", p->n_repeated,
             plural(p->n_repeated));
    df_event_make(&e, DF_WHY_plan_repeats, cx->act_site, field, expected, found);
    e.n = p->number;
    df_why_log(cx, &e);
}

static void log_unfused(deft_ctx *cx, const df_plan *p, const df_trace *t)
{
    df_event e;
    char found[64];
    df_logf(&cx->rt->log, error, "a program of %u records runs one kernel per op: %s", t->n_nodes,
            df_plan_retreat(p));
    snprintf(found, sizeof found, "one per op, %u in all", p->n_segs);
    df_event_make(&e, DF_WHY_plan_unfused, cx->act_site, df_plan_retreat(p), "fused kernels",
                  found);
    e.n = p->number;
    df_why_log(cx, &e);
}

/* Logs the arrays of which more is copied than the written part, with the reader that
 * prevents writing in place. */
static void log_copies(deft_ctx *cx, const df_plan *p, const df_trace *t)
{
    enum { MOST_TOLD = 8 };
    for (uint32_t i = 0; i < p->n_copied && i < MOST_TOLD; i++) {
        const df_copied *const c = &p->copied[i];
        const bool named = c->reader != DF_NONE;
        char field[TEXT], reader[TEXT] = "", found[2 * TEXT];
        df_event e;
        short_text(t, c->update, field, sizeof field);
        if (named) short_text(t, c->reader, reader, sizeof reader);
        snprintf(found, sizeof found, "%s%s%s", reader, named ? ", which " : "", c->why);
        df_event_make(&e, DF_WHY_array_copied, t->site[c->update], field, "it written in place",
                      found);
        e.other = t->site[named ? c->reader : c->update];
        e.n = p->number;
        df_why_log(cx, &e);
    }
}

void df_why_plan(deft_ctx *cx, const df_cut *m, uint32_t n_misses, const df_plan *p)
{
    char field[TEXT], found[TEXT + 32], expected[TEXT], text[TEXT];
    df_event e;
    uint32_t k;
    const df_trace *const t = m->t, *const known = nearest(cx, m, &k);
    df_reason reason = DF_WHY_plan_new;
    program_text(t, n_misses || !known ? "a" : "a new", field, sizeof field);
    found[0] = expected[0] = '\0';
    if (n_misses) {
        reason = DF_WHY_plan_guards;
        snprintf(expected, sizeof expected, "one whose guards hold");
        snprintf(found, sizeof found, "%u known plan%s did not fit", n_misses, plural(n_misses));
    } else if (!known) {
        reason = DF_WHY_plan_first;
    } else if (k < t->n_nodes || k < known->n_nodes) {
        spell(cx, t, known, k, text, expected, sizeof text);
        snprintf(found, sizeof found, "record %u: %s", k, text);
    } else if (!same_roots(t, known)) {
        const uint32_t root = first_other_root(t, known);
        root_text(t, root, text, sizeof text);
        root_text(known, root, expected, sizeof expected);
        snprintf(found, sizeof found, "result %u: %s", root, text);
    } else if (known->max_temporary_bytes != t->max_temporary_bytes) {
        bound_text(t, found, sizeof found);
        bound_text(known, expected, sizeof expected);
    } else {
        reason = DF_WHY_plan_given_up;
        program_text(t, "a", field, sizeof field);
        snprintf(expected, sizeof expected, "it in the cache");
        snprintf(found, sizeof found, "it gone");
    }
    df_event_make(&e, reason, cx->act_site, field, expected, found);
    if (!n_misses && df_ring_on(cx->ring)) df_log_key_miss(cx, field, expected, found);
    e.n = p->number;
    df_why_log(cx, &e);
    if (p->retreated) log_unfused(cx, p, t);
    if (p->n_repeated) log_repeats(cx, p, t);
    log_copies(cx, p, t);
}

/* ---- kernels ---- */

static bool describe_kernel(df_plan *p, const df_trace *t, const df_seg *seg, df_kernel_about *out)
{
    char text[128] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < seg->n_from; i++) {
        const uint32_t k = p->from[seg->from + i];
        if (t->site && t->site[k]) out->site = t->site[k];
        if (!df_is_work(&t->nodes[k]) || used >= sizeof text) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : "",
                                 df_op_infos[t->nodes[k].op].name);
    }
    if (used >= sizeof text) memcpy(text + sizeof text - 4, "...", 4);
    return (out->ops = df_arena_strdup(&p->arena, used ? text : "copy")) != NULL;
}

bool df_why_kernels(df_plan *p, const df_trace *t)
{
    df_kernel_about *const all = df_arena_new(&p->arena, df_kernel_about, p->n_kernels);
    if (!all) return p->n_kernels == 0;
    for (uint32_t i = 0; i < p->n_segs; i++) {
        const df_seg *const seg = &p->segs[i];
        if (seg->kernel.i == DF_NONE || all[seg->kernel.i].ops) continue;
        if (!describe_kernel(p, t, seg, &all[seg->kernel.i])) return false;
    }
    p->about = all;
    return true;
}

/* ---- recomputation ---- */

void df_again_ran(deft_ctx *cx, const df_cut *m)
{
    cx->stats.recomputed += m->n_again;
    df_again_add(cx, m);
    if (m->n_again && df_ring_on(cx->ring)) df_log_recompute(cx, m);
    if (!m->n_again || cx->matched) return;
    df_event e;
    char field[TEXT], found[64];
    short_text(m->t, m->first_again, field, sizeof field);
    snprintf(found, sizeof found, "computed and not stored by an earlier cut");
    df_event_make(&e, DF_WHY_recomputed, cx->act_site, field, "a stored value", found);
    e.n = m->n_again;
    e.other = m->t->site[m->first_again];
    df_why_log(cx, &e);
}

/* ---- steps that grow ---- */

static df_growth *growth_of(deft_ctx *cx, uintptr_t site)
{
    for (uint32_t i = 0; i < DF_GROWTHS; i++)
        if (cx->growth[i].site == site) return &cx->growth[i];
    df_growth *const g = &cx->growth[cx->next_growth++ % DF_GROWTHS];
    *g = (df_growth){ .site = site, .n = UINT32_MAX };
    return g;
}

/* The cut that ran last; NULL when it is not cached. */
static const df_cut *latest(const deft_ctx *cx)
{
    for (uint32_t i = 0; i < DF_MAX_CUTS; i++)
        if (cx->cuts[i] && cx->cuts[i]->t && cx->cuts[i]->t == cx->last) return cx->cuts[i];
    return NULL;
}

void df_why_step(deft_ctx *cx)
{
    df_growth *const g = growth_of(cx, cx->scope[cx->step_at].site);
    const uint32_t n = cx->rec.n, before = g->n;
    g->streak = n > before ? g->streak + 1 : 0;
    g->n = n;
    if (g->streak < GROWS_FOR || g->told) return;
    g->told = true;
    char field[TEXT] = "a record", expected[64], found[64];
    df_event e;
    uintptr_t other = 0;
    uint32_t k;
    const df_cut *const m = latest(cx);
    const df_trace *const known = m ? nearest(cx, m, &k) : NULL;
    if (known && k < m->t->n_nodes) {
        /* Prefers a record of a call of the program to an input. */
        while (k + 1 < m->t->n_nodes && !m->t->site[k]) k++;
        short_text(m->t, k, field, sizeof field);
        other = m->t->site[k];
    }
    snprintf(expected, sizeof expected, "%u records as in the step before", before);
    snprintf(found, sizeof found, "%u", n);
    df_event_make(&e, DF_WHY_trace_grows, g->site, field, expected, found);
    e.other = other;
    e.n = g->streak;
    df_why_log(cx, &e);
}

/* ---- deft_explain ---- */

typedef struct page {
    char *buf;
    size_t room, n; /* n: length of the full text */
} page;

static void write_page_line(page *p, const char *text, size_t length)
{
    const char *const parts[] = { text, "\n" };
    const size_t sizes[] = { length, 1 };
    for (int i = 0; i < 2; i++) {
        if (p->n < p->room) {
            const size_t left = p->room - p->n;
            memcpy(p->buf + p->n, parts[i], sizes[i] < left ? sizes[i] : left);
        }
        p->n += sizes[i];
    }
}

static void write_page_event(page *p, df_sites *sites, const df_event *e)
{
    char text[1024];
    const size_t length = df_event_text(e, sites, text, sizeof text);
    write_page_line(p, text, length < sizeof text ? length : sizeof text - 1);
}

void df_why_events_print(const deft_ctx *cx, df_str *out)
{
    uint64_t seen = 0, n_dropped = 0;
    df_event e;
    while (df_events_next(&cx->events, &seen, &n_dropped, &e)) {
        char text[1024];
        (void)df_event_text(&e, cx->rt->sites, text, sizeof text);
        df_str_fmt(out, "%s\n", text);
    }
}

size_t deft_explain(deft_ctx *cx, char *buf, size_t n)
{
    if (n && buf) buf[0] = '\0';
    if (!cx) return 0;
    page p = { .buf = buf, .room = buf ? n : 0 };
    df_tiers *const tiers = df_cpu_tiers(cx->rt->dev);
    uint64_t own = cx->events_seen, compiles = cx->compiles_seen, n_dropped = 0, later = 0;
    df_event event, compile;
    bool has = df_events_next(&cx->events, &own, &n_dropped, &event);
    bool compiled = df_tiers_event(tiers, &cx->compiles, &compiles, &n_dropped, &compile);
    if (n_dropped) {
        char text[64];
        write_page_line(&p, text,
                        (size_t)snprintf(text, sizeof text, "%llu earlier events were dropped",
                                         (unsigned long long)n_dropped));
    }
    while (has || compiled) {
        if (has && (!compiled || event.ns < compile.ns)) {
            write_page_event(&p, cx->rt->sites, &event);
            has = df_events_next(&cx->events, &own, &later, &event);
        } else {
            write_page_event(&p, cx->rt->sites, &compile);
            compiled = df_tiers_event(tiers, &cx->compiles, &compiles, &later, &compile);
        }
    }
    if (p.room) p.buf[p.n < p.room ? p.n : p.room - 1] = '\0';
    if (p.n < p.room) {
        cx->events_seen = own;
        cx->compiles_seen = compiles;
    }
    return p.n;
}
