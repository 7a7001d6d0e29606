/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to handles: their values, roots and undo entries, and their end. Where
 * handles are stored is in slab.c.
 */
#include "lazy/core/flight.h"

#include <string.h>

df_mut *df_mut_of(deft_ctx *cx, const deft_tensor *t)
{
    if (!(t->flags & DF_HANDLE_MUT)) return NULL;
    for (size_t i = 0; i < cx->muts.n; i++)
        if (cx->muts.at[i].t == t) return &cx->muts.at[i];
    df_unreachable();
}

bool df_mut_begin(deft_ctx *cx, deft_tensor *t)
{
    const df_mut m = { .t = t, .value = df_value_ref(t->value) };
    if (df_vec_push(cx->mem, &cx->muts, m)) {
        t->flags |= DF_HANDLE_MUT;
        return true;
    }
    df_value *v = m.value;
    df_value_drop(cx, &v);
    df_handle_unbind(cx, t);
    t->flags = 0;
    return false;
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

static void undo_end(deft_ctx *cx, df_undos *log, const deft_tensor *t)
{
    for (size_t i = 0; i < log->n; i++) {
        df_undo *const u = &log->at[i];
        if (u->t != t) continue;
        df_value_drop(cx, &u->value);
        *u = log->at[--log->n];
        return;
    }
}

void df_undo_end(deft_ctx *cx, const deft_tensor *t)
{
    if (t->flags & DF_HANDLE_UNDO) undo_end(cx, &cx->undo, t);
    if (t->flags & DF_HANDLE_FLIGHT) undo_end(cx, &cx->flight->undo, t);
}

static void handle_end(deft_ctx *cx, deft_tensor *t)
{
    if (DF_UNLIKELY(t->flags & DF_HANDLE_MUT)) df_mut_end(cx, t);
    if (DF_UNLIKELY(t->flags & (DF_HANDLE_UNDO | DF_HANDLE_FLIGHT))) df_undo_end(cx, t);
    if (t->value) df_value_drop(cx, &t->value);
    t->flags = 0;
}

void df_scope_free_handles(deft_ctx *cx, df_scope_entry *f)
{
    for (df_slab *s = f->first;; s = s->next) {
        for (uint32_t i = 0; i < s->n; i++) {
            deft_tensor *const t = df_slab_slot(s, i);
            if (t->keeps)
                t->flags |= DF_HANDLE_ESCAPED;
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

/* Whether t is in the scope that the body of an operator shares with its caller, and was made
 * before the body began. */
static bool is_of_caller(const deft_ctx *cx, const deft_tensor *t)
{
    const df_slab *const slab = df_slab_of(t), *s = cx->body_slab;
    if (!s || s->depth != cx->body_at || slab->depth != cx->body_at) return false;
    if (slab == s) return t < df_slab_slot(cx->body_slab, cx->body_slot);
    while (s && s != slab) s = s->next;
    return !s;
}

bool df_is_outside_body(const deft_ctx *cx, const deft_tensor *t)
{
    const df_slab *const s = df_slab_of(t);
    if (!cx->body_at) return false;
    return t->keeps || s->depth < cx->body_at || is_of_caller(cx, t);
}

void df_each_outer(deft_ctx *cx, uint32_t below, void (*f)(deft_ctx *, deft_tensor *, void *),
                   void *user)
{
    for (uint32_t d = 0; d < below && d <= cx->depth; d++)
        for (df_slab *s = cx->scope[d].first;; s = s->next) {
            for (uint32_t i = 0; i < s->n; i++) {
                deft_tensor *const t = df_slab_slot(s, i);
                if (t->flags && !t->keeps) f(cx, t, user);
            }
            if (s == cx->scope[d].cur) break;
        }
    size_t n = 0;
    for (size_t i = 0; i < cx->kept.n; i++) {
        const df_kept k = cx->kept.at[i];
        if (!k.t->keeps) continue; /* dropped meanwhile: its entry is removed here */
        cx->kept.at[n++] = k;
        f(cx, k.t, user);
    }
    cx->kept.n = n;
}

static void resolve_one(deft_ctx *cx, deft_tensor *t, void *user)
{
    (void)user;
    if (df_is_pending(cx, t) && !(t->flags & DF_HANDLE_MUT))
        t->value = df_value_ref(df_own_value(cx, t->node));
}

void df_handles_resolve_outer(deft_ctx *cx, uint32_t below)
{
    df_each_outer(cx, below, resolve_one, NULL);
}

void df_handles_resolve(deft_ctx *cx)
{
    df_each_outer(cx, cx->depth + 1, resolve_one, NULL);
}
