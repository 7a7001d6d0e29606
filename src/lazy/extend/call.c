/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of operators of the program (deft/extend.h). A call runs the body of the operator in a body
 * (run/body.h), and gives the caller handles of its results. So its records are those of the same
 * calls without the operator.
 *
 * A model has thousands of such calls, so a call is to cost little more than what its body records.
 * Therefore the body opens no scope where the caller has one, a handle of the body becomes that of
 * a result, and names are written where call sites are.
 *
 * The call is annotated as a custom function (grad.h) when the operator has a gradient of its own.
 * In the function of a deft_vmap it is annotated for a batch rule, too.
 */
#include "deft/extend.h"

#include "lazy/core/operators.h"
#include "lazy/grad/grad.h"
#include "lazy/log/notes.h"
#include "lazy/run/body.h"
#include "lazy/run/materialize.h"
#include "trace/control.h"

/* One call. */
typedef struct op_call {
    const deft_op *op;
    const void *attributes;
    uintptr_t site;
} op_call;

/* ---- checks ---- */

/* Why the call c cannot begin. Returns false. */
DF_COLD static bool refuse_op_call(deft_ctx *cx, const op_call *c, size_t n_in, size_t n_out,
                                   bool has_lists)
{
    const deft_op *const op = c->op;
    if (!op)
        df_error(cx, DEFT_E_ARG, "op_call: the operator is NULL");
    else if (op->rt != cx->rt)
        df_error(cx, DEFT_E_STATE, "%s: it was defined in another runtime", op->name);
    else if (n_in != op->def.n_in || n_out != op->def.n_out)
        df_error(cx, DEFT_E_ARG, "%s: %zu inputs and %zu results, it has %u and %u", op->name, n_in,
                 n_out, op->def.n_in, op->def.n_out);
    else if (!has_lists)
        df_error(cx, DEFT_E_ARG, "%s: a list of its %zu inputs and %zu results is NULL", op->name,
                 n_in, n_out);
    else if (c->attributes && op->formula)
        df_error(cx, DEFT_E_ARG, "%s: a formula takes no attributes, and some are given", op->name);
    else if (!c->attributes != !op->def.attribute_bytes)
        df_error(cx, DEFT_E_ARG, "%s: it takes %zu bytes of attributes, and %s given", op->name,
                 op->def.attribute_bytes, c->attributes ? "some are" : "none are");
    else
        df_error(cx, DEFT_E_LIMIT, "%s: nested more than %d deep", op->name, DF_MAX_NESTING);
    return false;
}

/* A bare number of the program that would be fixed in a capture by accident. Returns false. */
DF_COLD static bool refuse_op_number(deft_ctx *cx, const op_call *c, const deft_tensor *t)
{
    double v = t->place == DEFT_U64 ? (double)(uint64_t)t->number : (double)t->number;
    if (t->place == DEFT_F64) memcpy(&v, &t->number, sizeof v);
    (void)df_recording_refuses(cx, c->op->name, v, c->site);
    return false;
}

/* What check_op_inputs finds only by looking closer. */
DF_COLD static bool check_op_input(deft_ctx *cx, const op_call *c, deft_tensor *const *in,
                                   uint32_t i)
{
    if (!df_enter_more_of(cx, c->op->name, i + 1, in[i], DF_ALL_FACES)) return false;
    if (!(in[i]->flags & DF_HANDLE_WEAK) || !df_recording_freezes(cx) ||
        in[i]->flags & (DF_HANDLE_CONST | DF_HANDLE_PARAM))
        return true;
    return refuse_op_number(cx, c, in[i]);
}

/* The calls of the body look at each input once more. So tensors of this context pass here, where
 * no capture has to see whether they are bare numbers. */
DF_INLINE bool check_op_inputs(deft_ctx *cx, const op_call *c, deft_tensor *const *in)
{
    const uint32_t n = c->op->def.n_in;
    const bool is_captured = cx->recording != NULL;
    for (uint32_t i = 0; i < n; i++) {
        const deft_tensor *const t = in[i];
        if (DF_UNLIKELY(!t || df_slab_of(t)->cx != cx || is_captured) &&
            !check_op_input(cx, c, in, i))
            return false;
    }
    return true;
}

DF_INLINE bool may_call(deft_ctx *cx, op_call *c, deft_tensor *const *in, size_t n_in,
                        deft_tensor **out, size_t n_out)
{
    const deft_op *const op = c->op;
    if (DF_UNLIKELY(!op || op->rt != cx->rt || n_in != op->def.n_in || n_out != op->def.n_out ||
                    !out || (!in && n_in) || !c->attributes != !op->takes_attributes ||
                    cx->layer_nest >= DF_MAX_NESTING))
        return refuse_op_call(cx, c, n_in, n_out, out && (in || !n_in));
    if (op->formula) c->attributes = &op->formula;
    if (DF_UNLIKELY(cx->rec.n >= cx->look_at) && !df_make_room(cx)) return false;
    return check_op_inputs(cx, c, in);
}

/* ---- the name ---- */

DF_COLD static void name_op_call(deft_ctx *cx, const op_call *c, df_op_site *s)
{
    df_sites *const sites = cx->rt->sites;
    const uintptr_t label = df_sites_label(sites, cx->label, c->op->name);
    *s = (df_op_site){ .site = c->site, .line = cx->line, .outer = cx->label, .op = c->op->number };
    s->label = label ? label : cx->label;
    s->named = df_sites_within(sites, cx->line ? cx->line : c->site, s->label);
}

/* How c is named. */
DF_INLINE const df_op_site *op_site_of(deft_ctx *cx, const op_call *c)
{
    df_op_site *s = &cx->op_sites[(c->site ^ c->op->number) % DF_OP_SITES];
    DF_OPAQUE(s);
    if (DF_UNLIKELY(s->site != c->site || s->op != c->op->number || s->line != cx->line ||
                    s->outer != cx->label))
        name_op_call(cx, c, s);
    return s;
}

/* ---- the body ---- */

/* What the body has done wrong. */
DF_COLD static void refuse_op_body(deft_ctx *cx, const deft_op *op, deft_status st, bool has_acted,
                                   deft_tensor *const *out)
{
    uint32_t i = 0;
    while (i < op->def.n_out && out[i]) i++;
    if (has_acted)
        df_error(cx, DEFT_E_STATE,
                 "%s: its body asks for a value, but nothing can be computed in it", op->name);
    else if (st != DEFT_OK)
        df_error(cx, st, "%s: its body failed", op->name);
    else if (i < op->def.n_out)
        df_error(cx, DEFT_E_ARG, "%s: its body leaves result %u of %u NULL", op->name, i,
                 op->def.n_out);
    else
        df_error(cx, DEFT_E_ARG, "%s: its body sets more than its %u results", op->name,
                 op->def.n_out);
}

/* Whether the body, which has returned st, has set all results and made no mistake. troubles:
 * cx->n_troubles before it. */
static bool check_op_body(deft_ctx *cx, const deft_op *op, deft_status st, uint32_t troubles,
                          deft_tensor *const *out)
{
    const uint32_t n = op->def.n_out;
    bool ok = st == DEFT_OK && cx->n_troubles == troubles && !out[n];
    for (uint32_t i = 0; i < n; i++) ok = ok && out[i];
    return ok;
}

/* Runs the body in the body of run/body.h that is open. out has room for one result more. A
 * deft_body_fn, for df_custom_record. */
static deft_status run_op_body(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    const op_call *const c = user;
    const uint32_t mistakes = cx->n_mistakes, refused = cx->n_refused, troubles = cx->n_troubles;
    const uint32_t may_draw = cx->body_nest - 1 == cx->draw_nest;
    cx->draw_nest += may_draw;
    cx->layer_nest++;
    deft_status st;
    if (c->op->def.run)
        st = df_opaque_record(cx, c->op, c->attributes, in, out) ? DEFT_OK : DEFT_E_STATE;
    else
        st = c->op->def.body(cx, in, n_in, out, n_out, (void *)(uintptr_t)c->attributes);
    cx->layer_nest--;
    cx->draw_nest -= may_draw;
    if (check_op_body(cx, c->op, st, troubles, out)) return DEFT_OK;
    if (cx->n_mistakes == mistakes) refuse_op_body(cx, c->op, st, cx->n_refused != refused, out);
    return DEFT_E_STATE;
}

/* Whether the body has made handle t for a result alone: it is of this scope, and no view. */
DF_INLINE bool is_own_result(const deft_ctx *cx, const deft_tensor *t)
{
    return df_slab_of(t) == cx->body_slab && t >= df_slab_slot(cx->body_slab, cx->body_slot) &&
           t->flags == DF_HANDLE_LIVE && !t->keeps && !t->root;
}

/* What is left to do when the body has returned st. Results that are not handles of their own get
 * such handles, once the scopes that the body has left open have ended. */
static bool finish_op_in_scope(deft_ctx *cx, const op_call *c, deft_status st, uint32_t troubles,
                               uint32_t refused, uint32_t depth, deft_tensor **made)
{
    const deft_op *const op = c->op;
    uint32_t node[DEFT_OP_MAX_TENSORS];
    uint8_t face[DEFT_OP_MAX_TENSORS];
    bool ok = check_op_body(cx, op, st, troubles, made);
    if (!ok && cx->n_troubles - troubles == cx->n_refused - refused)
        refuse_op_body(cx, op, st, cx->n_refused != refused, made);
    for (uint32_t i = 0; i < op->def.n_out && ok; i++) {
        bool is_own = is_own_result(cx, made[i]);
        for (uint32_t k = 0; k < i; k++) is_own = is_own && made[k] != made[i];
        node[i] = DF_BAD;
        if (is_own) continue;
        ok = df_enter_more_of(cx, op->name, i + 1, made[i], DF_ALL_FACES) &&
             (node[i] = df_node_of(cx, made[i])) != DF_BAD;
        face[i] = ok ? (uint8_t)df_face_of(made[i]) : 0;
    }
    if (cx->depth != depth) df_scope_pop(cx, depth + 1);
    for (uint32_t i = 0; i < op->def.n_out && ok; i++)
        if (node[i] != DF_BAD) ok = (made[i] = df_result_faced(cx, node[i], face[i])) != NULL;
    return ok;
}

/* Records the call without annotations, in the scope of the caller, which is not the root scope.
 * Handles that the body makes end with that scope, as if the program had made the calls. */
DF_INLINE bool record_op_in_scope(deft_ctx *cx, const op_call *c, deft_tensor *const *in,
                                  deft_tensor **made)
{
    const deft_op *const op = c->op;
    const uint32_t at = cx->body_at, slot = cx->body_slot, depth = cx->depth;
    const uint32_t troubles = cx->n_troubles, refused = cx->n_refused;
    df_slab *const slab = cx->body_slab;
    cx->body_slab = cx->scope[depth].cur;
    cx->body_slot = cx->body_slab->n;
    cx->body_at = depth;
    cx->layer_nest++;
    df_walk_begin(cx);
    const deft_status st =
        op->def.body(cx, in, op->def.n_in, made, op->def.n_out, (void *)(uintptr_t)c->attributes);
    cx->call = c->site;
    bool ok = true;
    if (DF_UNLIKELY(st != DEFT_OK || cx->n_troubles != troubles || cx->depth != depth ||
                    op->def.n_out != 1 || made[1] || !made[0] || !is_own_result(cx, made[0])))
        ok = finish_op_in_scope(cx, c, st, troubles, refused, depth, made);
    df_walk_end(cx);
    cx->layer_nest--;
    cx->body_at = at;
    cx->body_slot = slot;
    cx->body_slab = slab;
    return ok;
}

/* The same in the root scope, whose handles stay: the body has a scope of its own. */
DF_COLD static bool record_op_in_root(deft_ctx *cx, const op_call *c, deft_tensor *const *in,
                                      deft_tensor **made)
{
    const deft_op *const op = c->op;
    uint32_t node[DEFT_OP_MAX_TENSORS], was;
    uint8_t face[DEFT_OP_MAX_TENSORS];
    if (!df_body_open(cx, c->site, &was)) return false;
    const deft_status st =
        run_op_body(cx, in, op->def.n_in, made, op->def.n_out, (void *)(uintptr_t)c);
    bool ok = st == DEFT_OK;
    df_enter_call(cx, c->site);
    for (uint32_t i = 0; i < op->def.n_out && ok; i++) {
        ok = df_enter_more_of(cx, op->name, i + 1, made[i], DF_ALL_FACES) &&
             (node[i] = df_node_of(cx, made[i])) != DF_BAD;
        face[i] = ok ? (uint8_t)df_face_of(made[i]) : 0;
    }
    df_body_close(cx, was);
    for (uint32_t i = 0; i < op->def.n_out && ok; i++)
        ok = (made[i] = df_result_faced(cx, node[i], face[i])) != NULL;
    return ok;
}

/* Records the call with an annotation for gradients and for deft_vmap. */
DF_COLD static bool record_op_annotated(deft_ctx *cx, const op_call *c, deft_tensor *const *in,
                                        deft_tensor **made)
{
    const deft_op *const op = c->op;
    df_op_held *held = df_op_held_new(cx, c->attributes, op->def.attribute_bytes,
                                      &((deft_op *)(uintptr_t)op)->users);
    if (!held) return false;
    const df_custom_call f = { .what = op->name,
                               .forward = run_op_body,
                               .forward_user = (void *)(uintptr_t)c,
                               .backward = op->def.grad,
                               .batch = op->batch,
                               .user = df_op_held_attributes(held),
                               .held = held };
    const bool ok = df_custom_record(cx, &f, in, op->def.n_in, made, op->def.n_out, c->site);
    df_op_held_drop(cx, &held);
    return ok;
}

/* ---- the calls ---- */

/* A call with an annotation, or in the root scope, or for the structured log. */
DF_COLD static bool record_op_otherwise(deft_ctx *cx, const op_call *c, deft_tensor *const *in,
                                        deft_tensor **made, uintptr_t named)
{
    const deft_op *const op = c->op;
    const bool is_logged = df_ring_on(cx->ring);
    if (is_logged) df_log_label(cx, named, true);
    const bool ok = op->def.grad || (op->batch && cx->map_nest)
                        ? record_op_annotated(cx, c, in, made)
                    : cx->depth > 0 && !op->def.run ? record_op_in_scope(cx, c, in, made)
                                                    : record_op_in_root(cx, c, in, made);
    if (is_logged) df_log_label(cx, 0, false);
    return ok;
}

DF_INLINE bool call_operator(deft_ctx *cx, const deft_op *op, deft_tensor *const *in, size_t n_in,
                             const void *attributes, deft_tensor **out, size_t n_out,
                             uintptr_t site)
{
    op_call c = { op, attributes, site };
    df_enter_call(cx, c.site);
    bool ok = may_call(cx, &c, in, n_in, out, n_out);
    if (DF_LIKELY(ok)) {
        deft_tensor *made[DEFT_OP_MAX_TENSORS + 1];
        made[0] = NULL;
        made[1] = NULL;
        for (size_t i = 2; DF_UNLIKELY(i <= n_out); i++) made[i] = NULL;
        const df_op_site *const s = op_site_of(cx, &c);
        const uintptr_t named = s->named;
        const df_operator_call was =
            df_operator_begin(cx, op->name, named, cx->line ? cx->line : c.site, s->label);
        if (DF_LIKELY(op->is_simple && cx->depth > 0 && !df_ring_on(cx->ring)))
            ok = record_op_in_scope(cx, &c, in, made);
        else
            ok = record_op_otherwise(cx, &c, in, made, named);
        df_operator_end(cx, was);
        if (DF_LIKELY(ok)) out[0] = made[0];
        for (size_t i = 1; DF_UNLIKELY(i < n_out) && ok; i++) out[i] = made[i];
    }
    for (size_t i = 0; DF_UNLIKELY(!ok) && out && i < n_out && i < DEFT_OP_MAX_TENSORS; i++)
        out[i] = NULL;
    return ok;
}

bool deft_op_call(deft_ctx *cx, const deft_op *op, deft_tensor *const *in, size_t n_in,
                  const void *attributes, deft_tensor **out, size_t n_out)
{
    return cx && call_operator(cx, op, in, n_in, attributes, out, n_out, DF_SITE);
}

deft_tensor *deft_apply_list(const deft_op *op, deft_tensor *const *in, size_t n)
{
    deft_tensor *out = NULL;
    const uintptr_t site = DF_SITE;
    size_t i = 0;
    while (in && i < n && !in[i]) i++;
    deft_ctx *const cx =
        in && i < n ? df_enter_faced(op ? op->name : "apply", (uint32_t)i + 1, in[i], site) : NULL;
    return cx && call_operator(cx, op, in, n, NULL, &out, 1, site) ? out : NULL;
}

deft_status deft_op_fail(deft_ctx *cx, deft_status status, const char *sentence)
{
    if (status == DEFT_OK) status = DEFT_E_ARG;
    if (!cx) return status;
    df_enter_call(cx, DF_SITE);
    df_error(cx, status, "%s%s%s", cx->op_name ? cx->op_name : "", cx->op_name ? ": " : "",
             sentence ? sentence : "it failed");
    return status;
}
