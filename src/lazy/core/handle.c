/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles and the slabs they live in.
 *
 * A slab is 8 KiB, aligned to its size, and stays mapped until the context dies: from any handle,
 * live or stale, the slab's header tells context, scope and whether that scope is still open.
 * Within a scope handles are handed out in address order; slots of kept handles from an earlier use
 * are stepped over.
 */
#include "lazy/capture/recording.h"

#include <string.h>

static df_slab *slab_create(deft_ctx *cx)
{
    if (cx->chunk_left < DF_SLAB_SIZE) {
        /* Chunks double from 64 KiB to 1 MiB: small programs stay small. */
        const size_t n = df_min_i64((int64_t)cx->chunks.n, 4) < 4 ? cx->chunks.n : 4;
        const size_t size = ((size_t)65536 << n) + DF_SLAB_SIZE;
        if (!df_vec_reserve(cx->mem, &cx->chunks, 2)) return NULL;
        char *const p = df_mem_alloc(cx->mem, size);
        if (!p) return NULL;
        cx->chunks.at[cx->chunks.n++] = p;
        cx->chunks.at[cx->chunks.n++] = (void *)(uintptr_t)size;
        const uintptr_t up = ((uintptr_t)p + DF_SLAB_SIZE - 1) & ~(uintptr_t)(DF_SLAB_SIZE - 1);
        cx->chunk_at = (char *)up;
        cx->chunk_left = size - (size_t)(up - (uintptr_t)p);
    }
    df_slab *const s = (df_slab *)(void *)cx->chunk_at;
    cx->chunk_at += DF_SLAB_SIZE;
    cx->chunk_left -= DF_SLAB_SIZE;
    memset(s, 0, DF_SLAB_SIZE);
    s->magic = DF_SLAB_MAGIC;
    s->cx = cx;
    return s;
}

static void slab_open(df_slab *s, const df_scope_frame *f, uint32_t depth)
{
    s->site = f->site;
    s->serial = f->serial;
    s->depth = depth;
    s->n = 0;
    s->open = true;
}

bool df_scope_push(deft_ctx *cx, uintptr_t site)
{
    const uint32_t depth = cx->frame[0].first ? cx->depth + 1 : 0;
    if (depth >= DF_MAX_DEPTH) {
        df_error(cx, DEFT_E_LIMIT, "scope_begin: %d scopes are open already", DF_MAX_DEPTH);
        return false;
    }
    df_depth *const d = &cx->runs[depth];
    df_slab **const run = &d->run[d->turn ^= 1u];
    if (!*run && !(*run = slab_create(cx))) {
        df_error(cx, DEFT_E_MEMORY, "scope_begin: could not get %zu bytes", DF_SLAB_SIZE);
        return false;
    }
    df_scope_frame *const f = &cx->frame[depth];
    *f = (df_scope_frame){
        .first = *run, .cur = *run, .site = site, .serial = ++cx->serial, .n_labels = cx->n_labels
    };
    cx->depth = depth;
    slab_open(*run, f, depth);
    return true;
}

static bool next_slab(deft_ctx *cx, df_scope_frame *f)
{
    if (!f->cur->next && !(f->cur->next = slab_create(cx))) return false;
    f->cur = f->cur->next;
    slab_open(f->cur, f, cx->depth);
    return true;
}

deft_tensor *df_handle_new_slow(deft_ctx *cx, uint32_t node)
{
    df_scope_frame *const f = &cx->frame[cx->depth];
    for (;;) {
        df_slab *const s = f->cur;
        while (s->n < DF_SLAB_SLOTS) {
            deft_tensor *const t = df_slab_slot(s, s->n++);
            if (!t->keeps) return df_handle_init(cx, t, node);
        }
        if (!next_slab(cx, f))
            return df_error(cx, DEFT_E_MEMORY, "could not get %zu bytes for handles", DF_SLAB_SIZE);
    }
}

df_mut *df_mut_of(deft_ctx *cx, const deft_tensor *t)
{
    if (!(t->flags & DF_HANDLE_MUT)) return NULL;
    for (size_t i = 0; i < cx->muts.n; i++)
        if (cx->muts.at[i].t == t) return &cx->muts.at[i];
    df_unreachable();
}

void df_mut_end(deft_ctx *cx, deft_tensor *t)
{
    df_mut *const m = df_mut_of(cx, t);
    if (!m) return;
    if (m->now.due || m->in_step) {
        m->t = NULL;
    } else {
        df_value_drop(cx, &m->value);
        *m = cx->muts.at[--cx->muts.n];
    }
}

void df_handle_unbind(deft_ctx *cx, deft_tensor *t)
{
    if (t->value) df_value_drop(cx, &t->value);
    t->epoch = 0;
    t->root = NULL;
    t->place = DF_NONE;
}

static void handle_end(deft_ctx *cx, deft_tensor *t)
{
    if (DF_UNLIKELY(t->flags & DF_HANDLE_MUT)) df_mut_end(cx, t);
    if (DF_UNLIKELY(t->flags & (DF_HANDLE_UNDO | DF_HANDLE_FLIGHT))) df_undo_end(cx, t);
    if (t->value) df_value_drop(cx, &t->value);
    t->flags = 0;
}

void df_scope_free_handles(deft_ctx *cx, df_scope_frame *f)
{
    for (df_slab *s = f->first;; s = s->next) {
        for (uint32_t i = 0; i < s->n; i++) {
            deft_tensor *const t = df_slab_slot(s, i);
            if (t->keeps)
                t->flags |= DF_HANDLE_ADRIFT;
            else if (t->flags)
                handle_end(cx, t);
        }
        s->open = false;
        if (s == f->cur) break;
    }
}

df_value *df_handle_value(deft_ctx *cx, const deft_tensor *t)
{
    if (t->value) return t->value;
    if (t->epoch == cx->epoch && cx->rec.val[t->node]) return cx->rec.vals.at[cx->rec.val[t->node]];
    return NULL;
}

deft_tensor *df_root_of(const deft_tensor *t)
{
    deft_tensor *const root = t->flags & DF_HANDLE_WEAK ? NULL : t->root;
    return root && root->flags && (root->keeps || df_slab_of(root)->open) ? root : NULL;
}

bool df_is_outer(const deft_ctx *cx, const deft_tensor *t)
{
    const df_slab *const s = df_slab_of(t);
    return t->keeps || (s->open && s->depth < cx->step_at);
}

bool df_is_outside_body(const deft_ctx *cx, const deft_tensor *t)
{
    const df_slab *const s = df_slab_of(t);
    return cx->body_at && (t->keeps || s->depth < cx->body_at);
}

void df_each_outer(deft_ctx *cx, uint32_t below, void (*f)(deft_ctx *, deft_tensor *, void *),
                   void *user)
{
    for (uint32_t d = 0; d < below && d <= cx->depth; d++)
        for (df_slab *s = cx->frame[d].first;; s = s->next) {
            for (uint32_t i = 0; i < s->n; i++) {
                deft_tensor *const t = df_slab_slot(s, i);
                if (t->flags && !t->keeps) f(cx, t, user);
            }
            if (s == cx->frame[d].cur) break;
        }
    size_t n = 0;
    for (size_t i = 0; i < cx->kept.n; i++) {
        const df_kept k = cx->kept.at[i];
        if (!k.t->keeps) continue; /* dropped since: the list is swept here */
        cx->kept.at[n++] = k;
        f(cx, k.t, user);
    }
    cx->kept.n = n;
}

/* ---- checks on entry ---- */

static DF_COLD bool refuse(deft_ctx *cx, const char *what, unsigned which, const deft_tensor *t)
{
    static const char *const nth[] = { "?", "first", "second", "third", "fourth" };
    char site[DF_SITE_TEXT];
    const df_slab *const s = df_slab_of(t);
    const char *const argument = nth[which < DF_LEN(nth) ? which : 0];
    if (s->open) /* now of another scope, or of none */
        df_error(cx, DEFT_E_STATE, "%s: %s argument was dropped, or its scope has ended", what,
                 argument);
    else
        df_error(cx, DEFT_E_STATE,
                 "%s: %s argument belonged to the scope opened at %s, which has ended", what,
                 argument, df_ctx_site_text(cx, s->site, site, sizeof site));
    return false;
}

/* A handle that is asleep is used: the caller's, of an argument of the captured function that
 * runs. */
static DF_COLD bool wakes(const df_slab *s, const deft_tensor *t)
{
    if (!(t->flags & DF_HANDLE_ASLEEP) || t->flags & (DF_HANDLE_LIVE | DF_HANDLE_WEAK))
        return false;
    df_recording_reached(s->cx, (deft_tensor *)(uintptr_t)t);
    return df_usable(t, s);
}

deft_ctx *df_look(const deft_tensor *t)
{
    if (!t) return NULL;
    const df_slab *const s = df_slab_of(t);
    return s->magic == DF_SLAB_MAGIC && (df_usable(t, s) || wakes(s, t)) ? s->cx : NULL;
}

deft_ctx *df_peek(const char *what, unsigned which, const deft_tensor *t, uintptr_t site)
{
    if (DF_UNLIKELY(!t)) return NULL;
    const df_slab *const s = df_slab_of(t);
    if (DF_UNLIKELY(s->magic != DF_SLAB_MAGIC)) return NULL;
    df_enter_call(s->cx, site);
    if (DF_UNLIKELY(!df_usable(t, s)) && !wakes(s, t)) {
        refuse(s->cx, what, which, t);
        return NULL;
    }
    return s->cx;
}

deft_ctx *df_enter(const char *what, unsigned which, const deft_tensor *t, uintptr_t site)
{
    deft_ctx *const cx = df_peek(what, which, t, site);
    if (DF_UNLIKELY(cx && cx->rec.n >= cx->look_at) && !df_make_room(cx)) return NULL;
    return cx;
}

bool df_enter_more(deft_ctx *cx, const char *what, unsigned which, const deft_tensor *t)
{
    if (DF_UNLIKELY(!t)) {
        /* NULL stands for an earlier error; when there is none, it is one itself. */
        if (cx->pending == DEFT_OK)
            df_error(cx, DEFT_E_ARG, "%s: argument %u is NULL", what, which);
        return false;
    }
    const df_slab *const s = df_slab_of(t);
    if (DF_UNLIKELY(s->magic != DF_SLAB_MAGIC || s->cx != cx)) {
        df_error(cx, DEFT_E_STATE, "%s: argument %u belongs to another context", what, which);
        return false;
    }
    return DF_LIKELY(df_usable(t, s)) || wakes(s, t) || refuse(cx, what, which, t);
}
