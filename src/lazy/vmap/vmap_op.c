/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of operators with a batch rule (deft/extend.h): the rule of the program records the results
 * for all examples.
 */
#include "lazy/vmap/vmap.h"

#include "lazy/grad/grad.h"
#include "lazy/run/body.h"

/* What the rule gets, and what it has made. */
typedef struct rule_lists {
    deft_tensor *in[DEFT_OP_MAX_TENSORS], *out[DEFT_OP_MAX_TENSORS + 1];
    bool is_mapped[DEFT_OP_MAX_TENSORS];
    uint32_t made[DEFT_OP_MAX_TENSORS]; /* per result: its record */
} rule_lists;

/* Whether record k is one that the rule cannot see: it depends on an example, and was made outside
 * the body of c, whose records begin at `first`. */
static bool is_hidden(const df_vmap *w, const df_custom *c, uint32_t k, uint32_t first)
{
    if (k >= first || !df_vmap_is_batched(w, k)) return false;
    for (uint32_t i = 0; i < c->n_in; i++)
        if (c->record[i] == k) return false;
    return true;
}

/* Checks that the body has used nothing of an example but its inputs. */
static bool check_rule_body(df_vmap *w, const df_custom *c)
{
    const df_node *const nodes = w->cx->rec.nodes;
    for (uint32_t k = c->first; k < c->record[c->n_in] + c->n_out; k++)
        for (uint32_t i = 0; i < nodes[k].n_src; i++) {
            if (!is_hidden(w, c, nodes[k].src[i].i, c->first)) continue;
            df_error(w->cx, DEFT_E_STATE,
                     "%s: its body uses a tensor that depends on an example and is no input, which "
                     "its batch rule cannot see",
                     c->what);
            return false;
        }
    return true;
}

static bool fill_rule_lists(df_vmap *w, const df_custom *c, rule_lists *l)
{
    for (uint32_t i = 0; i < c->n_in; i++) {
        const uint32_t k = c->record[i];
        l->is_mapped[i] = df_vmap_is_batched(w, k);
        l->in[i] = df_result_faced(w->cx, df_vmap_now(w, k), df_custom_faces(c)[i]);
        if (!l->in[i]) return false;
    }
    return true;
}

/* The record of result i, which must have the axis of examples, and behind it the shape that it has
 * for one example. */
static uint32_t result_of_rule(df_vmap *w, const df_custom *c, const rule_lists *l, uint32_t i)
{
    deft_ctx *const cx = w->cx;
    deft_tensor *const t = l->out[i];
    const uint32_t one = c->record[c->n_in + i];
    const df_face face = df_custom_faces(c)[c->n_in + i];
    char a[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
    df_shape want = df_vmap_shape_for_all(w, one), have;
    if (!t) {
        df_error(cx, DEFT_E_ARG, "%s: its batch rule leaves result %u of %u NULL", c->what, i,
                 c->n_out);
        return DF_BAD;
    }
    if (!df_enter_more_of(cx, c->what, i + 1, t, DF_ALL_FACES)) return DF_BAD;
    const uint32_t k = df_node_of(cx, t);
    if (k == DF_BAD) return DF_BAD;
    df_rec_shape(&cx->rec, k, &have);
    if (df_dtype_at(cx, k) == df_dtype_at(cx, one) && df_face_of(t) == face &&
        df_shape_equal(&want, &have))
        return k;
    df_face_show(df_face_of(t), &have);
    df_face_show(face, &want);
    df_error(cx, DEFT_E_SHAPE, "%s: its batch rule makes result %u %s%s, it must be %s%s", c->what,
             i, deft_dtype_name(df_shown_dtype(cx, t)), df_shape_text(&have, a, sizeof a),
             deft_dtype_name(face ? df_face_dtype(face) : df_dtype_at(cx, one)),
             df_shape_text(&want, b, sizeof b));
    return DF_BAD;
}

static bool run_rule(df_vmap *w, const df_custom *c, rule_lists *l)
{
    deft_ctx *const cx = w->cx;
    const uint32_t before = cx->n_mistakes, refused = cx->n_refused;
    const uintptr_t call = cx->call;
    if (!fill_rule_lists(w, c, l)) return false;
    const deft_status st =
        c->batch(cx, w->extent, l->in, l->is_mapped, c->n_in, l->out, c->n_out, c->user);
    df_enter_call(cx, call);
    if (cx->n_mistakes != before) return false;
    if (cx->n_refused != refused)
        df_error(cx, DEFT_E_STATE, "%s: its batch rule asks for a value", c->what);
    else if (st != DEFT_OK)
        df_error(cx, st, "%s: its batch rule failed", c->what);
    for (uint32_t i = 0; i < c->n_out && cx->n_mistakes == before; i++)
        l->made[i] = result_of_rule(w, c, l, i);
    return cx->n_mistakes == before;
}

bool df_vmap_by_rule(df_vmap *w, const df_custom *c)
{
    deft_ctx *const cx = w->cx;
    rule_lists l = { .out = { NULL } };
    uint32_t was;
    if (!check_rule_body(w, c) || !df_body_open(cx, w->site, &was)) return false;
    /* A loop of the rule is within the loop that the call is in. */
    const uint32_t around = cx->body_loop;
    cx->body_loop = c->loop == DF_NONE ? DF_NONE : df_vmap_now(w, c->loop);
    cx->layer_nest++;
    const df_operator_call here = df_operator_begin(cx, c->what, w->site, w->site, 0);
    bool ok = run_rule(w, c, &l);
    df_operator_end(cx, here);
    cx->layer_nest--;
    cx->body_loop = around;
    df_body_close(cx, was);
    /* Results are adjacent records. */
    for (uint32_t i = 0; i < c->n_out && ok; i++) {
        const uint32_t k = df_grad_placeholder(cx, l.made[i], w->site);
        w->now[c->record[c->n_in + i] - w->from] = k;
        ok = k != DF_BAD;
    }
    return ok;
}

/* A call that was recorded in deft_vmap has an annotation, by which its rule is found. */
uint32_t df_batch_call(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    deft_ctx *const cx = w->cx;
    (void)src, (void)batched;
    while (cx->rec.nodes[k].op == DF_OP_result) k = cx->rec.nodes[k].src[0].i;
    const df_opaque *const x = cx->rec.nodes[k].op == DF_OP_call
                                   ? df_opaques_at(&cx->rt->opaques, cx->rec.nodes[k].attr)
                                   : NULL;
    df_error(
        cx, DEFT_E_STATE,
        "vmap: a call of %s, an opaque operator, depends on an example, and comes from a loaded "
        "program: call the operator itself",
        x ? x->name : "an operator");
    return DF_BAD;
}
