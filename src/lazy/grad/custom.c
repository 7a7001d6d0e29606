/* SPDX-License-Identifier: Apache-2.0
 *
 * Custom functions, hooks and stops: the public calls, and what the walk does at their
 * records.
 */
#include "lazy/grad/grad.h"

#include <string.h>

#include "lazy/run/body.h"
#include "lazy/core/meet.h"

/* A record of bare number t with the dtype and shape of record `like`. */
static uint32_t number_like(deft_ctx *cx, deft_tensor *t, uint32_t like, uintptr_t site)
{
    df_shape want;
    const uint32_t number = df_weak_node(cx, t, df_dtype_at(cx, like));
    df_rec_shape(&cx->rec, like, &want);
    return number == DF_BAD || !want.rank ? number : df_expand_to(cx, number, &want, site);
}

/* The record of t, which must have the dtype and shape of record `like`. DF_BAD with the
 * error recorded. who: the call, for messages. */
static uint32_t checked(df_grad *w, const char *who, deft_tensor *t, uint32_t like, df_face face)
{
    deft_ctx *const cx = w->cx;
    df_shape want, have;
    char a[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
    if (!t || !df_enter_more_faced(cx, who, 1, t)) {
        if (!t) df_error(cx, DEFT_E_ARG, "%s: it returned NULL", who);
        return DF_BAD;
    }
    const deft_dtype dtype = df_dtype_at(cx, like);
    df_rec_shape(&cx->rec, like, &want);
    if (t->flags & DF_HANDLE_WEAK && !face) return number_like(cx, t, like, w->site);
    const uint32_t g = df_node_of(cx, t);
    if (g == DF_BAD) return DF_BAD;
    df_rec_shape(&cx->rec, g, &have);
    if (df_dtype_at(cx, g) == dtype && df_shape_equal(&want, &have) && df_face_of(t) == face)
        return g;
    df_face_show(df_face_of(t), &have);
    df_face_show(face, &want);
    df_error(cx, DEFT_E_SHAPE, "%s: it made %s%s, it must be %s%s", who,
             deft_dtype_name(df_shown_dtype(cx, t)), df_shape_text(&have, b, sizeof b),
             deft_dtype_name(face ? df_face_dtype(face) : dtype),
             df_shape_text(&want, a, sizeof a));
    return DF_BAD;
}

/* The result of a user's function for one example. A bare number takes dtype and shape of
 * `like`. */
static deft_tensor *made_like(deft_ctx *cx, deft_tensor *made, deft_tensor *like, uintptr_t site)
{
    if (!made || !(made->flags & DF_HANDLE_WEAK) || df_face_of(like)) return made;
    const uint32_t k = df_node_of(cx, like);
    return k == DF_BAD ? NULL : df_result(cx, number_like(cx, made, k, site));
}

/* ---- hooks ---- */

typedef struct hook {
    deft_grad_hook_fn fn;
    void *user;
    uint32_t n_batches;
    df_map_each_fn map_each;
    uintptr_t site;
} hook;

static deft_tensor *run_hook(deft_ctx *cx, const hook *h, deft_tensor *grad);

static deft_status hook_one(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    const hook *const h = user;
    (void)n_in, (void)n_out;
    out[0] = made_like(cx, run_hook(cx, h, in[0]), in[0], h->site);
    return DEFT_OK;
}

static deft_tensor *run_hook(deft_ctx *cx, const hook *h, deft_tensor *grad)
{
    hook one = *h;
    deft_tensor *made;
    if (one.n_batches-- == 0) return h->fn(cx, grad, h->user);
    return h->map_each(cx, "grad_hook", hook_one, &one, &grad, NULL, 1, &made, NULL, 1, h->site)
               ? made
               : NULL;
}

static bool call_hook(df_grad *w, const df_grad_annotation *m, uint32_t k)
{
    deft_ctx *const cx = w->cx;
    uint32_t was, g = DF_BAD;
    if (!df_body_open(cx, w->site, &was)) return false;
    deft_tensor *const grad = df_result_faced(cx, w->sum[k - w->from], m->face);
    const hook h = { m->hook, m->user, m->n_batches, m->map_each, w->site };
    deft_tensor *const made = grad ? run_hook(cx, &h, grad) : NULL;
    if (grad) g = checked(w, "grad_hook", made, k, m->face);
    df_body_close(cx, was);
    w->sum[k - w->from] = g;
    return g != DF_BAD;
}

/* ---- custom functions ---- */

static deft_status run_backward(deft_ctx *cx, const df_custom *c, deft_tensor *const *all,
                                deft_tensor **grad_in, uintptr_t site);

typedef struct one_of_many {
    const df_custom *c;
    uintptr_t site;
} one_of_many;

/* Runs the backward function for one example. in: inputs, results, and the results'
 * gradients. */
static deft_status backward_one(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                deft_tensor **out, size_t n_out, void *user)
{
    const one_of_many *const o = user;
    (void)n_in;
    const deft_status st = run_backward(cx, o->c, in, out, o->site);
    for (size_t i = 0; i < n_out && st == DEFT_OK; i++)
        out[i] = out[i] ? made_like(cx, out[i], in[i], o->site)
                        : df_result_faced(cx, df_grad_zeros(cx, df_node_of(cx, in[i]), o->site),
                                          df_face_of(in[i]));
    return st;
}

/* Runs the backward function for each example. An input that is the same for all examples
 * gets the sum of their gradients. */
static deft_status backward_all(deft_ctx *cx, const df_custom *c, deft_tensor *const *all,
                                deft_tensor **grad_in, uintptr_t site)
{
    const size_t n = c->n_in + 2 * (size_t)c->n_out;
    one_of_many o = { c->batch_of, site };
    int *const axes = df_mem_zalloc(cx->mem, n * sizeof *axes);
    if (!axes) {
        df_error(cx, DEFT_E_MEMORY, "%s: no memory for %zu tensors", c->what, n);
        return DEFT_E_MEMORY;
    }
    for (uint32_t i = 0; i < c->n_in; i++)
        if (cx->rec.nodes[c->record[i]].rank == cx->rec.nodes[c->batch_of->record[i]].rank)
            axes[i] = DEFT_NOT_MAPPED;
    const uint32_t before = df_mistakes(cx);
    if (c->n_in > 0)
        (void)c->map_each(cx, c->what, backward_one, &o, all, axes, n, grad_in, NULL, c->n_in,
                          site);
    for (uint32_t i = 0; i < c->n_in && df_mistakes(cx) == before; i++)
        if (axes[i] == DEFT_NOT_MAPPED)
            grad_in[i] = df_is_float(df_dtype_at(cx, c->record[i]))
                             ? deft_sum(grad_in[i], DEFT_AXES(0), 0)
                             : NULL;
    df_mem_free(cx->mem, axes, n * sizeof *axes);
    return df_mistakes(cx) == before ? DEFT_OK : DEFT_E_STATE;
}

/* all: inputs, results, and the results' gradients. */
static deft_status run_backward(deft_ctx *cx, const df_custom *c, deft_tensor *const *all,
                                deft_tensor **grad_in, uintptr_t site)
{
    deft_tensor *const *const out = all + c->n_in, *const *const grad_out = out + c->n_out;
    if (c->batch_of) return backward_all(cx, c, all, grad_in, site);
    return c->backward(cx, all, c->n_in, out, grad_out, c->n_out, grad_in, c->user);
}

typedef struct lists {
    deft_tensor **in, **out, **grad_out, **grad_in;
} lists;

static bool fill_backward_lists(df_grad *w, const df_custom *c, const lists *l)
{
    deft_ctx *const cx = w->cx;
    const uint8_t *const face = df_custom_faces(c);
    for (uint32_t i = 0; i < c->n_in; i++)
        if (!(l->in[i] = df_result_faced(cx, c->record[i], face[i]))) return false;
    for (uint32_t i = 0; i < c->n_out; i++) {
        const uint32_t k = c->record[c->n_in + i];
        uint32_t g = df_grad_of(w, k);
        if (g == DF_BAD) g = df_grad_zeros(cx, k, w->site);
        l->out[i] = df_result_faced(cx, k, face[c->n_in + i]);
        l->grad_out[i] = df_result_faced(cx, g, face[c->n_in + i]);
        if (!l->out[i] || !l->grad_out[i]) return false;
    }
    return true;
}

static bool collect_input_gradients(df_grad *w, const df_custom *c, const lists *l, uint32_t *made)
{
    for (uint32_t i = 0; i < c->n_in; i++) {
        const uint32_t k = c->record[i];
        made[i] = DF_BAD;
        if (!l->grad_in[i] || !df_grad_is_active(w, k)) continue;
        made[i] = checked(w, c->what, l->grad_in[i], k, df_custom_faces(c)[i]);
        if (made[i] == DF_BAD) return false;
    }
    return true;
}

static bool call_backward(df_grad *w, const df_custom *c)
{
    deft_ctx *const cx = w->cx;
    const size_t n = 2 * ((size_t)c->n_in + c->n_out);
    const size_t bytes = n * sizeof(deft_tensor *) + c->n_in * sizeof(uint32_t);
    uint32_t was;
    deft_tensor **const all = df_mem_zalloc(cx->mem, bytes);
    if (!all) {
        df_error(cx, DEFT_E_MEMORY, "%s: no memory for %zu tensors", c->what, n);
        return false;
    }
    const lists l = { all, all + c->n_in, all + c->n_in + c->n_out,
                      all + c->n_in + 2 * (size_t)c->n_out };
    uint32_t *const made = (uint32_t *)(void *)(all + n);
    const uint32_t first = cx->rec.n;
    bool ok = df_body_open(cx, w->site, &was);
    if (ok) {
        cx->work_nest += c->may_work;
        ok = fill_backward_lists(w, c, &l);
        const uint32_t before = df_mistakes(cx);
        const uint32_t refused = cx->n_refused;
        const uintptr_t call = cx->call;
        df_operator_call here = { 0 };
        cx->layer_nest += c->held != NULL;
        if (c->held) here = df_operator_begin(cx, c->what, w->site, w->site, 0);
        const deft_status st = ok ? run_backward(cx, c, all, l.grad_in, w->site) : DEFT_OK;
        df_enter_call(cx, call);
        if (st != DEFT_OK && df_mistakes(cx) == before)
            df_error(cx, st, "%s: its backward function failed", c->what);
        if (c->held && cx->n_refused != refused && df_mistakes(cx) == before)
            df_error(cx, DEFT_E_STATE, "%s: its backward function asks for a value", c->what);
        ok = ok && df_mistakes(cx) == before && collect_input_gradients(w, c, &l, made);
        if (c->held) df_operator_end(cx, here);
        cx->layer_nest -= c->held != NULL;
        cx->work_nest -= c->may_work;
        df_body_close(cx, was);
        if (c->is_ours) df_rec_sites_set(cx, first, w->site);
    }
    for (uint32_t i = 0; i < c->n_in && ok; i++)
        if (made[i] != DF_BAD) ok = df_grad_give(w, c->record[i], made[i]);
    df_mem_free(cx->mem, all, bytes);
    return ok;
}

/* The results of a custom function are adjacent records, so all their gradients are
 * complete at the first one. The walk stops only at records with a gradient, so the
 * function is called at the first of those. */
static bool meet_custom(df_grad *w, const df_custom *c, uint32_t k)
{
    for (uint32_t i = c->record[c->n_in]; i < k; i++)
        if (df_grad_of(w, i) != DF_BAD) return true;
    return call_backward(w, c);
}

bool df_grad_meet_annotations(df_grad *w, uint32_t k, bool *goes_on)
{
    const deft_ctx *const cx = w->cx;
    for (size_t i = 0; i < cx->grad_annotations.n; i++) {
        const df_grad_annotation m = cx->grad_annotations.at[i];
        if (m.record != k) continue;
        if (m.kind == DF_ANNOTATION_STOP || m.kind == DF_ANNOTATION_CUSTOM) *goes_on = false;
        if (m.kind == DF_ANNOTATION_HOOK && !call_hook(w, &m, k)) return false;
        if (m.kind == DF_ANNOTATION_CUSTOM && !meet_custom(w, m.custom, k)) return false;
    }
    return true;
}

/* ---- the calls ---- */

deft_tensor *deft_stop_gradient(deft_tensor *t)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_enter_faced("stop_gradient", 1, t, DF_SITE);
    if (!cx) return NULL;
    if (t->flags & DF_HANDLE_WEAK) return df_number_copy(cx, t); /* it is a constant anyway */
    if (!df_begin_faced("stop_gradient", t, &a, &s, DF_SITE)) return NULL;
    const uint32_t k = df_grad_placeholder(cx, a, DF_SITE);
    if (k == DF_BAD || !df_grad_annotation_add(
                           cx, (df_grad_annotation){ .record = k, .kind = DF_ANNOTATION_STOP }))
        return NULL;
    return df_result_faced(cx, k, df_face_of(t));
}

bool deft_grad_hook(deft_tensor *t, deft_grad_hook_fn fn, void *user)
{
    uint32_t a;
    df_shape s;
    deft_ctx *const cx = df_begin_faced("grad_hook", t, &a, &s, DF_SITE);
    if (!cx) return false;
    if (fn)
        return df_grad_annotation_add(cx, (df_grad_annotation){ .record = a,
                                                                .kind = DF_ANNOTATION_HOOK,
                                                                .hook = fn,
                                                                .user = user,
                                                                .face = (uint8_t)df_face_of(t) });
    df_error(cx, DEFT_E_ARG, "grad_hook: the function is NULL");
    return false;
}

/* A call of an operator takes any tensor, for its functions to refuse. */
static df_faces faces_of(const df_op_held *operator_held)
{
    return operator_held ? DF_ALL_FACES : DF_COMPLEX_FACES;
}

static bool check_custom(deft_ctx *cx, const df_custom_call *f, deft_tensor *const *in, size_t n_in,
                         deft_tensor **out, size_t n_out)
{
    enum { MOST = 1 << 16 };
    if (!f->forward || (!f->backward && !f->batch) || !out || n_out == 0 || n_out > MOST ||
        n_in > MOST || (n_in && !in)) {
        df_error(cx, DEFT_E_ARG,
                 "custom_grad: %zu tensors, %zu results; it takes two functions, and at most %d "
                 "tensors and results, of which one at least",
                 n_in, n_out, (int)MOST);
        return false;
    }
    for (size_t i = 0; i < n_in; i++)
        if (!df_enter_more_of(cx, f->what, (unsigned)i + 1, in[i], faces_of(f->held))) return false;
    return true;
}

/* Runs the forward function. Sets c->record to the inputs and to the results, which are
 * not yet records of their own. */
static bool run_forward(deft_ctx *cx, const df_custom_call *f, df_custom *c, deft_tensor *const *in,
                        deft_tensor **out, uintptr_t site)
{
    uint32_t was;
    if (!df_body_open(cx, site, &was)) return false;
    cx->work_nest += c->may_work;
    for (uint32_t i = 0; i < c->n_out; i++) out[i] = NULL;
    const uint32_t before = df_mistakes(cx);
    const deft_status st = f->forward(cx, in, c->n_in, out, c->n_out, f->forward_user);
    cx->work_nest -= c->may_work;
    df_enter_call(cx, site);
    if (st != DEFT_OK && df_mistakes(cx) == before)
        df_error(cx, st, "%s: its forward function failed", f->what);
    bool ok = df_mistakes(cx) == before;
    for (uint32_t i = 0; i < c->n_out && ok; i++) {
        if (!out[i])
            df_error(cx, DEFT_E_ARG, "%s: forward leaves result %u of %u NULL", f->what, i,
                     c->n_out);
        ok = out[i] && df_enter_more_of(cx, f->what, i + 1, out[i], faces_of(f->held)) &&
             (c->record[c->n_in + i] = df_node_of(cx, out[i])) != DF_BAD;
        if (ok) df_custom_faces(c)[c->n_in + i] = (uint8_t)df_face_of(out[i]);
    }
    df_body_close(cx, was);
    return ok;
}

static bool mark_results(deft_ctx *cx, df_custom *c, uintptr_t site)
{
    for (uint32_t i = 0; i < c->n_out; i++) {
        uint32_t *const k = &c->record[c->n_in + i];
        if ((*k = df_grad_placeholder(cx, *k, site)) == DF_BAD) return false;
    }
    for (uint32_t i = 0; i < c->n_out; i++)
        if (!df_grad_annotation_add(cx,
                                    (df_grad_annotation){ .record = c->record[c->n_in + i],
                                                          .kind = c->backward ? DF_ANNOTATION_CUSTOM
                                                                              : DF_ANNOTATION_BATCH,
                                                          .custom = c }))
            return false;
    return true;
}

bool df_custom_record(deft_ctx *cx, const df_custom_call *f, deft_tensor *const *in, size_t n_in,
                      deft_tensor **out, size_t n_out, uintptr_t site)
{
    df_custom *c = NULL;
    bool ok = cx && check_custom(cx, f, in, n_in, out, n_out);
    if (ok) {
        c = df_mem_zalloc(cx->mem, df_custom_size(n_in + n_out));
        if (!c) df_error(cx, DEFT_E_MEMORY, "%s: no memory for %zu tensors", f->what, n_in + n_out);
        ok = c != NULL;
    }
    if (ok) {
        c->what = f->what;
        c->backward = f->backward;
        c->batch = f->batch;
        c->user = f->user;
        c->held = f->held;
        if (c->held) c->held->refs++;
        c->is_ours = f->is_ours;
        c->may_work = !c->held && cx->body_nest == cx->work_nest;
        c->loop = cx->body_loop;
        c->n_in = (uint32_t)n_in;
        c->n_out = (uint32_t)n_out;
        for (size_t i = 0; i < n_in && ok; i++) {
            ok = (c->record[i] = df_node_of(cx, in[i])) != DF_BAD;
            df_custom_faces(c)[i] = (uint8_t)df_face_of(in[i]);
        }
        const uint32_t first = c->first = cx->rec.n;
        ok = ok && run_forward(cx, f, c, in, out, site);
        if (f->is_ours) df_rec_sites_set(cx, first, site);
        for (size_t i = 0; i < n_out && !ok; i++) c->record[n_in + i] = 0;
        c->next = cx->customs;
        cx->customs = c;
        ok = ok && mark_results(cx, c, site);
        for (size_t i = 0; i < n_out && ok; i++)
            ok = (out[i] = df_result_faced(cx, c->record[n_in + i],
                                           df_custom_faces(c)[n_in + i])) != NULL;
    }
    for (size_t i = 0; i < n_out && !ok && out; i++) out[i] = NULL;
    return ok;
}

bool df_custom_grad(deft_ctx *cx, deft_body_fn forward, deft_backward_fn backward, void *user,
                    deft_tensor *const *in, size_t n_in, deft_tensor **out, size_t n_out,
                    uintptr_t site, bool is_ours)
{
    const df_custom_call f = { .what = "custom_grad",
                               .forward = forward,
                               .forward_user = user,
                               .backward = backward,
                               .user = user,
                               .is_ours = is_ours };
    return df_custom_record(cx, &f, in, n_in, out, n_out, site);
}

bool deft_custom_grad(deft_ctx *cx, deft_body_fn forward, deft_backward_fn backward, void *user,
                      deft_tensor *const *in, size_t n_in, deft_tensor **out, size_t n_out)
{
    df_enter_call(cx, DF_SITE);
    return df_custom_grad(cx, forward, backward, user, in, n_in, out, n_out, DF_SITE, false);
}
