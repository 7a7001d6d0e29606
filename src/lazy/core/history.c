/* SPDX-License-Identifier: Apache-2.0
 *
 * Histories and cached cuts: history.h.
 *
 * Invariant: records [0, n_known) of a history were once recorded together, with extents
 * that fitted them. A later epoch that ends early leaves the remaining records as they
 * were. When the extents of the later epoch differed, the remaining records are forgotten
 * instead. So the extents of a known history always fit its records.
 */
#include "lazy/core/history.h"

#include <string.h>

/* Longer histories are not kept beside others: their memory is worth more than the time
 * saved. */
#define MAX_KEPT_RECORDS (1u << 16)
#define MAX_KEPT_ARENA ((size_t)4 << 20)

static bool equal(const df_node *a, const df_node *b)
{
    return df_same_words(a, b, sizeof *a / 8);
}

static void set_limits(const deft_ctx *cx, df_rec *r)
{
    r->limit = r->diverged ? 0 : r->n_known;
    r->same = r->stretched ? 0 : r->limit;
    if (r->same > cx->look_at) r->same = cx->look_at; /* there the budget must be checked */
}

static uint32_t new_id(deft_ctx *cx)
{
    if (++cx->history_id == 0) cx->history_id = 1;
    return cx->history_id;
}

/* Records from n on are not those from which cuts of history `id` were made. Such cuts
 * cannot be used again. */
static void forget_made(deft_ctx *cx, uint32_t id, uint32_t n)
{
    for (uint32_t i = 0; i < DF_MAX_CUTS; i++) {
        df_cut *const m = cx->cuts[i];
        if (m && m->history == id && m->high >= n) m->history = 0;
    }
}

/* ---- histories ---- */

/* Whether s has the n records of r, followed by `node` with that shape. */
static bool continues(const df_rec *s, const df_rec *r, const df_node *node, uint32_t shape)
{
    const uint32_t n = r->n;
    return s->n_known > n && equal(&s->nodes[n], node) && s->shape[n] == shape &&
           memcmp(s->nodes, r->nodes, n * sizeof *s->nodes) == 0 &&
           memcmp(s->shape, r->shape, n * sizeof *s->shape) == 0;
}

static bool make_room(deft_ctx *cx, df_rec *s, const df_rec *like)
{
    if (s->cap >= like->cap && s->cap_ext >= like->cap_ext && s->cap_args >= like->cap_args)
        return true;
    df_rec_finish(cx, s);
    const df_mem *const m = cx->mem;
    s->cap = like->cap;
    s->cap_ext = like->cap_ext;
    s->cap_args = like->cap_args;
    s->nodes = df_mem_alloc(m, s->cap * sizeof *s->nodes);
    s->shape = df_mem_alloc(m, s->cap * sizeof *s->shape);
    s->site = df_mem_alloc(m, s->cap * sizeof *s->site);
    s->val = df_mem_alloc(m, s->cap * sizeof *s->val);
    if (s->cap_ext) s->ext = df_mem_alloc(m, s->cap_ext * sizeof *s->ext);
    if (s->cap_args) s->args = df_mem_alloc(m, s->cap_args * sizeof *s->args);
    if (s->nodes && s->shape && s->site && s->val && (s->ext || !s->cap_ext) &&
        (s->args || !s->cap_args))
        return true;
    df_rec_finish(cx, s);
    return false;
}

/* Continues this epoch in s: copies the state of cx->rec into s and exchanges the two.
 * The first n records of s are equal to those of the epoch or are overwritten. */
static void go_on_in(deft_ctx *cx, df_rec *s)
{
    df_rec *const r = &cx->rec;
    const df_rec old = *r;
    df_assert(r->n <= s->cap && r->n_ext <= s->cap_ext && r->n_args <= s->cap_args);
    if (s->diverged) {
        memcpy(s->nodes, r->nodes, r->n * sizeof *s->nodes);
        memcpy(s->shape, r->shape, r->n * sizeof *s->shape);
    }
    memcpy(s->site, r->site, r->n * sizeof *s->site);
    memcpy(s->val, r->val, r->n * sizeof *s->val);
    if (r->n_ext) memcpy(s->ext, r->ext, r->n_ext * sizeof *s->ext);
    if (r->n_args) memcpy(s->args, r->args, r->n_args * sizeof *s->args);
    s->n = r->n;
    s->n_ext = r->n_ext;
    s->n_args = r->n_args;
    s->vals = r->vals;
    s->n_inputs = r->n_inputs;
    s->last_cut = r->last_cut;
    *r = *s;
    *s = old;
    memset(&s->vals, 0, sizeof s->vals);
    df_history_rewind(cx, s);
}

static df_rec *oldest(deft_ctx *cx)
{
    df_rec *s = &cx->histories[0];
    for (uint32_t i = 1; i < DF_HISTORIES; i++)
        if (cx->histories[i].used < s->used) s = &cx->histories[i];
    return s;
}

/* The history that has the records of this epoch followed by `node`. NULL: there is none. */
static df_rec *continuation(deft_ctx *cx, const df_node *node, uint32_t shape)
{
    const df_rec *const r = &cx->rec;
    for (uint32_t i = 0; i < DF_HISTORIES; i++) {
        df_rec *const s = &cx->histories[i];
        if (!continues(s, r, node, shape)) continue;
        s->stretched = r->n_ext > 0 && memcmp(s->ext, r->ext, r->n_ext * sizeof *s->ext) != 0;
        return s;
    }
    return NULL;
}

/* Empties the least recently used history and returns it. NULL when memory runs out. */
static df_rec *fresh(deft_ctx *cx)
{
    df_rec *const s = oldest(cx);
    if (!make_room(cx, s, &cx->rec)) return NULL;
    forget_made(cx, s->id, 0);
    s->id = new_id(cx);
    s->n_known = 0;
    s->diverged = true;
    return s;
}

void df_history_diverge(deft_ctx *cx, df_node node, uint32_t shape)
{
    df_rec *const r = &cx->rec;
    r->used = ++cx->history_serial;
    df_rec *s = NULL;
    if (r->n_known <= MAX_KEPT_RECORDS) {
        s = continuation(cx, &node, shape);
        if (!s) s = fresh(cx);
    }
    if (s) {
        go_on_in(cx, s);
        r->used = ++cx->history_serial;
    } else {
        forget_made(cx, r->id, r->n);
        r->diverged = true;
    }
    set_limits(cx, r);
}

void df_history_rewind(deft_ctx *cx, df_rec *r)
{
    if (r->diverged || r->n > r->n_known) {
        r->n_known = r->n;
    } else if (r->stretched && r->n < r->n_known) {
        forget_made(cx, r->id, r->n);
        r->n_known = r->n;
    }
    r->n = r->n_args = r->n_ext = r->n_inputs = 0;
    r->last_cut = 0;
    r->diverged = r->stretched = false;
    set_limits(cx, r);
}

void df_history_look(deft_ctx *cx)
{
    set_limits(cx, &cx->rec);
}

void df_history_truncate(deft_ctx *cx, uint32_t n)
{
    df_rec *const r = &cx->rec;
    forget_made(cx, r->id, n);
    if (r->n_known > n) r->n_known = n;
    r->last_cut = DF_CUT_UNKNOWN; /* values are gone: no cached cut fits */
    set_limits(cx, r);
}

void df_history_renumber(deft_ctx *cx)
{
    df_rec *const r = &cx->rec;
    forget_made(cx, r->id, 0);
    r->id = new_id(cx);
    r->n_known = 0;
    r->diverged = true;
    r->stretched = false;
    r->last_cut = DF_CUT_UNKNOWN;
    set_limits(cx, r);
}

void df_history_finish(deft_ctx *cx)
{
    for (uint32_t i = 0; i < DF_HISTORIES; i++) df_rec_finish(cx, &cx->histories[i]);
    for (uint32_t i = 0; i < DF_MAX_CUTS; i++) {
        df_cut *const m = cx->cuts[i];
        if (!m) continue;
        df_counted_drop(&m->plan);
        df_arena_finish(&m->arena);
        df_mem_free(cx->mem, m, sizeof *m);
    }
}

/* ---- cached cuts ---- */

static bool wants(const deft_ctx *cx, const df_cut *m, const df_want *want, uint32_t n)
{
    if (m->n_want != n || m->t->max_temporary_bytes != cx->budget.max_temporary_bytes) return false;
    for (uint32_t i = 0; i < n; i++)
        if (m->want[i] != want[i].node) return false;
    return true;
}

df_cut *df_cut_again(deft_ctx *cx, const df_want *want, uint32_t n)
{
    const df_rec *const r = &cx->rec;
    if (r->last_cut == DF_CUT_UNKNOWN) return NULL;
    for (uint32_t i = 0; i < DF_MAX_CUTS; i++) {
        df_cut *const m = cx->cuts[i];
        if (!m || m->history != r->id || m->before != r->last_cut) continue;
        if (!wants(cx, m, want, n)) continue;
        df_assert(m->high < r->n); /* the highest wanted record */
        if (!df_extract_again(cx, want, n, m)) continue;
        m->used = ++cx->history_serial;
        return m;
    }
    return NULL;
}

static df_cut *slot(deft_ctx *cx)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < DF_MAX_CUTS; i++) {
        if (!cx->cuts[i]) {
            at = i;
            break;
        }
        if (cx->cuts[i]->used < cx->cuts[at]->used) at = i;
    }
    if (!cx->cuts[at]) {
        df_cut *const m = df_mem_zalloc(cx->mem, sizeof *m);
        if (!m) return NULL;
        df_arena_init(&m->arena, cx->mem);
        cx->cuts[at] = m;
    }
    return cx->cuts[at];
}

df_cut *df_cut_new(deft_ctx *cx)
{
    df_cut *const m = slot(cx);
    if (!m) return NULL;
    if (cx->last && cx->last == m->t) cx->last = NULL; /* it is in the arena that is reused */
    df_counted_drop(&m->plan);
    df_arena a = m->arena;
    if (a.total > MAX_KEPT_ARENA)
        df_arena_finish(&a);
    else
        df_arena_reset(&a);
    if (++cx->cut_id == 0 || cx->cut_id == DF_CUT_UNKNOWN) cx->cut_id = 1;
    *m = (df_cut){ .arena = a, .id = cx->cut_id, .used = ++cx->history_serial };
    return m;
}

void df_cut_done(deft_ctx *cx, df_cut *m)
{
    df_rec *const r = &cx->rec;
    if (r->last_cut == DF_CUT_UNKNOWN) return;
    if (m->history == 0) {
        m->history = r->id;
        m->before = r->last_cut;
    }
    r->last_cut = m->id;
}

void df_rec_finish(deft_ctx *cx, df_rec *r)
{
    df_mem_free(cx->mem, r->nodes, r->cap * sizeof *r->nodes);
    df_mem_free(cx->mem, r->shape, r->cap * sizeof *r->shape);
    df_mem_free(cx->mem, r->site, r->cap * sizeof *r->site);
    df_mem_free(cx->mem, r->val, r->cap * sizeof *r->val);
    df_mem_free(cx->mem, r->ext, r->cap_ext * sizeof *r->ext);
    df_mem_free(cx->mem, r->args, r->cap_args * sizeof *r->args);
    *r = (df_rec){ .vals = r->vals, .id = r->id, .used = r->used };
}
