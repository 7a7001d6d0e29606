/* SPDX-License-Identifier: Apache-2.0
 *
 * Assignment, also through views: a view is assigned by writing its place in the tensor it is a
 * view of, which then has a new value. All other handles keep theirs.
 */
#include "lazy/complex/complex.h"
#include "lazy/core/meet.h"
#include "lazy/core/recorder.h"
#include "lazy/run/submit.h"
#include "lazy/calls/views.h"

#include <string.h>

/* Saves the binding of t before an assign. In a step: before the first assign, when t
 * outlives the step. Outside steps: while a step is in flight, which would roll t back. */
static bool save_binding(deft_ctx *cx, deft_tensor *t)
{
    if (!cx->step_at && df_in_flight(cx)) return df_flight_save(cx, t);
    if (!cx->step_at || (t->flags & DF_HANDLE_UNDO) || !df_is_outer(cx, t)) return true;
    const df_undo u = { t, t->value, t->root, t->node, t->epoch, t->place, t->failure };
    if (!df_vec_push(cx->mem, &cx->undo, u)) {
        df_error(cx, DEFT_E_MEMORY, "assign: no memory for the undo log");
        return false;
    }
    t->value = NULL; /* its reference moved to the log */
    t->flags |= DF_HANDLE_UNDO;
    return true;
}

static bool bind_to_record(deft_ctx *cx, deft_tensor *t, uint32_t node)
{
    if (!save_binding(cx, t)) return false;
    if (t->value) df_value_drop(cx, &t->value);
    t->node = node;
    t->epoch = cx->epoch;
    df_mut *const m = df_mut_of(cx, t);
    if (m) {
        if (cx->step_at && !m->in_step) {
            m->before = m->now;
            m->now.what = NULL;
            m->in_step = true;
        }
        df_value_drop(cx, &m->now.what);
        m->now.node = node;
        m->now.due = true;
    }
    return true;
}

DF_INLINE bool is_view(const deft_ctx *cx, uint32_t node)
{
    return df_op_infos[cx->rec.nodes[node].op].cls == DF_CLASS_view;
}

/* The record under a chain of views: `stop` when the chain reaches it, else the first
 * record that is no view. */
static uint32_t chain_base(const deft_ctx *cx, uint32_t node, uint32_t stop)
{
    while (node != stop && is_view(cx, node)) node = cx->rec.nodes[node].src[0].i;
    return node;
}

uint32_t df_append_like(deft_ctx *cx, uint32_t k, const uint32_t *src, uintptr_t site)
{
    const df_node n = cx->rec.nodes[k];
    const uint32_t n_args = df_op_n_args((df_op)n.op, n.n_src ? cx->rec.nodes[n.src[0].i].rank : 0);
    int64_t args[2 * DEFT_MAX_RANK] = { 0 };
    df_shape s;
    if (n_args) memcpy(args, cx->rec.args + n.arg, n_args * sizeof *args);
    df_rec_shape(&cx->rec, k, &s);
    return df_append(cx, (df_op)n.op, (deft_dtype)n.dtype, n.attr, src, args, n_args, &s, site);
}

/* The chain is followed to the base and then recorded again in reverse. Longer chains
 * than the small array are refused. */
uint32_t df_rebase(deft_ctx *cx, uint32_t place, uint32_t base, uint32_t onto)
{
    uint32_t chain[32], n = 0;
    for (uint32_t v = place; v != base; v = cx->rec.nodes[v].src[0].i) {
        if (n == DF_LEN(chain)) {
            df_error(cx, DEFT_E_LIMIT, "assign: more than %zu views of views", DF_LEN(chain));
            return DF_BAD;
        }
        chain[n++] = v;
    }
    while (n-- && onto != DF_BAD)
        onto = df_append_like(cx, chain[n], &onto, cx->rec.site[chain[n]]);
    return onto;
}

/* base with the place of the view chain via..base replaced by value. A reshape in the
 * chain splits it. The part above the reshape is written into the reshaped tensor, which
 * is then reshaped back and written below. */
static uint32_t write_place(deft_ctx *cx, uint32_t base, uint32_t via, uint32_t value,
                            uintptr_t site)
{
    while (via != base) {
        uint32_t low = via; /* the lowest record of the run of strided views that ends in via */
        while (low != base && cx->rec.nodes[low].op != DF_OP_reshape)
            low = cx->rec.nodes[low].src[0].i;
        if (low == via) { /* via itself is a reshape */
            const uint32_t under = cx->rec.nodes[via].src[0].i;
            df_shape s;
            df_rec_shape(&cx->rec, under, &s);
            value =
                df_append(cx, DF_OP_reshape, df_dtype_at(cx, value), 0, &value, NULL, 0, &s, site);
            if (value == DF_BAD) return DF_BAD;
            via = under;
            continue;
        }
        const uint32_t src[3] = { low, value, via };
        value = df_append(cx, DF_OP_update, (deft_dtype)cx->rec.nodes[low].dtype, 0, src, NULL, 0,
                          NULL, site);
        if (value == DF_BAD) return DF_BAD;
        via = low;
    }
    return value;
}

/* The value that dst's root gets when dst gets `value`. *place_out is dst's place in that
 * value, for the next assignment through dst. DF_BAD with the error recorded. */
static uint32_t root_value(deft_ctx *cx, const deft_tensor *dst, uint32_t value,
                           uint32_t *place_out, uintptr_t site)
{
    const deft_tensor *const root = dst->root;
    char viewed[DF_SITE_TEXT], assigned[DF_SITE_TEXT];
    if (dst->epoch != cx->epoch || dst->place == DF_NONE) {
        df_error(cx, DEFT_E_STATE,
                 "assign: the view was taken outside this scope or step: take it again inside, or "
                 "keep it to make "
                 "it a tensor of its own");
        return DF_BAD;
    }
    const bool root_here = root->epoch == cx->epoch;
    const uint32_t base = chain_base(cx, dst->place, root_here ? root->node : DF_NONE);
    if (!root_here || root->node != base) {
        df_error(cx, DEFT_E_STATE,
                 "assign: the view taken at %s is stale: its root was assigned at %s since",
                 df_ctx_site_text(cx, df_rec_site(cx, dst->place), viewed, sizeof viewed),
                 df_ctx_site_text(cx, root_here ? df_rec_site(cx, root->node) : 0, assigned,
                                  sizeof assigned));
        return DF_BAD;
    }
    for (uint32_t v = dst->place; v != base; v = cx->rec.nodes[v].src[0].i)
        if (cx->rec.nodes[v].op == DF_OP_expand) {
            df_error(cx, DEFT_E_ARG,
                     "assign: through the expanded view taken at %s, whose elements share "
                     "memory",
                     df_ctx_site_text(cx, df_rec_site(cx, v), viewed, sizeof viewed));
            return DF_BAD;
        }
    const uint32_t u = write_place(cx, base, dst->place, value, site);
    *place_out = u == DF_BAD ? DF_BAD : df_rebase(cx, dst->place, base, u);
    return *place_out == DF_BAD ? DF_BAD : u;
}

/* Binds dst, its root, the root of that, and so on. All values are recorded before the
 * first handle changes. */
static bool assign_chain(deft_ctx *cx, deft_tensor *dst, uint32_t value, uintptr_t site)
{
    deft_tensor *who[32];
    uint32_t what[32], place[32], n = 0;
    for (;; dst = dst->root) {
        if (n == DF_LEN(who)) {
            df_error(cx, DEFT_E_LIMIT, "assign: more than %zu views of views", DF_LEN(who));
            return false;
        }
        who[n] = dst;
        what[n] = value;
        place[n++] = DF_NONE;
        if (!df_root_of(dst)) break;
        value = root_value(cx, dst, value, &place[n - 1], site);
        if (value == DF_BAD) return false;
    }
    for (uint32_t i = 0; i < n; i++)
        if (df_is_outside_body(cx, who[i])) {
            df_error(cx, DEFT_E_STATE,
                     "assign: a tensor from outside a loop, branch or vmap cannot be assigned "
                     "inside: make it a state or a result");
            return false;
        }
    for (uint32_t i = 0; i < n; i++) {
        deft_tensor *const twin = df_recording_twin(cx, who[i]);
        if (twin && (df_root_of(twin) || (df_root_of(who[i])))) {
            df_error(cx, DEFT_E_ARG,
                     "assign: an argument of the captured function is a view of another tensor: "
                     "keep it before the call, to make it a tensor of its own");
            return false;
        }
        if (!bind_to_record(cx, who[i], what[i]) || (twin && !bind_to_record(cx, twin, what[i])))
            return false;
        who[i]->place = place[i];
        if (twin) twin->place = DF_NONE;
    }
    return true;
}

/* `value` is the record of a value of dtype `own`. */
static deft_tensor *assign(deft_ctx *cx, deft_tensor *dst, uint32_t value, deft_dtype own,
                           uintptr_t site)
{
    if (value == DF_BAD) return NULL;
    df_shape want, have;
    df_tensor_shape(cx, dst, &want);
    df_rec_shape(&cx->rec, value, &have);
    if (dst->flags & DF_HANDLE_WEAK) return df_error(cx, DEFT_E_ARG, "assign: to a number");
    if (df_is_lost(cx, dst)) {
        df_error_lost(cx, "assign", dst);
        return NULL;
    }
    const deft_dtype t = df_shown_dtype(cx, dst);
    if (own != t)
        return df_error(cx, DEFT_E_DTYPE, "assign: a value of %s to a tensor of %s: cast it first",
                        deft_dtype_name(own), deft_dtype_name(t));
    if (!df_shape_equal(&want, &have)) {
        char a[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
        bool fits = have.rank <= want.rank;
        for (uint32_t i = 0; fits && i < have.rank; i++)
            fits = have.dim[i] == 1 || have.dim[i] == want.dim[i + want.rank - have.rank];
        if (!fits)
            return df_error(cx, DEFT_E_SHAPE, "assign: a value of %s does not broadcast to %s",
                            df_shape_text(&have, a, sizeof a), df_shape_text(&want, b, sizeof b));
        value = df_expand_to(cx, value, &want, site);
        if (value == DF_BAD) return NULL;
    }
    if (DF_UNLIKELY(cx->owes)) df_owe_bound(cx, dst);
    return assign_chain(cx, dst, value, site) ? dst : NULL;
}

/* Called after an assign. When it failed, dst or the open step misses it. When it
 * succeeded, dst misses the assigns that its value misses. */
static deft_tensor *assigned(deft_ctx *cx, deft_tensor *dst, deft_tensor *done, uint8_t missing)
{
    if (DF_LIKELY(done != NULL)) {
        dst->failure = DF_FAILURE_NOTHING;
        if (DF_UNLIKELY(missing)) df_owe_value(dst, missing);
    } else if (cx) {
        df_owe(cx, dst);
    }
    return done;
}

/* The record of a number that is assigned to dst. */
static uint32_t as_whole(deft_ctx *cx, const deft_tensor *dst, uint32_t number, uintptr_t site)
{
    if (!df_face_is_complex(df_face_of(dst))) return number;
    return df_parts_join(cx, (df_parts){ number, DF_BAD, true }, site);
}

/* Whether src may be assigned to dst, for all that a storage dtype of dst asks. A number has no
 * code before it is cast, and no byte is assigned in part. src is NULL for a number. */
static bool fits_codes(deft_ctx *cx, const deft_tensor *dst, const deft_tensor *src)
{
    df_shape to, from;
    const df_face face = df_face_of(dst);
    if (!df_face_is_stored(face)) return true;
    if (!src || src->flags & DF_HANDLE_WEAK)
        return df_refuse_stored(cx, "assign", face, "which takes no number: cast one to it");
    if (!df_face_is_packed(face)) return true;
    df_shown_shape(cx, dst, &to);
    df_shown_shape(cx, src, &from);
    if (from.rank && to.dim[to.rank - 1] == from.dim[from.rank - 1]) return true;
    return df_refuse_stored(cx, "assign", face, DF_SHARED_BYTES);
}

static deft_tensor *assign_tensor(deft_ctx *cx, deft_tensor *dst, deft_tensor *src, uintptr_t site,
                                  uint8_t *missing)
{
    if (!cx || !df_enter_more_of(cx, "assign", 2, src, DF_ALL_FACES)) return NULL;
    *missing = df_missing(cx, src);
    if (!fits_codes(cx, dst, src)) return NULL;
    if (src->flags & DF_HANDLE_WEAK) {
        const deft_dtype t = df_tensor_dtype(cx, dst), own = df_weak_dtype(src, t);
        const uint32_t value = as_whole(cx, dst, df_weak_node(cx, src, t), site);
        return assign(cx, dst, value, own == t ? df_shown_dtype(cx, dst) : own, site);
    }
    return assign(cx, dst, df_node_of(cx, src), df_shown_dtype(cx, src), site);
}

/* An assign to NULL, which is the result of an earlier mistake. The open step misses the
 * assign. */
static deft_tensor *assign_nowhere(const deft_tensor *src, uintptr_t site)
{
    deft_ctx *const cx = df_peek_faced("assign", 2, src, site);
    if (!cx) return NULL;
    if (cx->pending == DEFT_OK) df_error(cx, DEFT_E_ARG, "assign: argument 1 is NULL");
    cx->mistake_in_step = cx->mistake_in_step || cx->step_at;
    return NULL;
}

deft_tensor *deft_assign(deft_tensor *dst, deft_tensor *src)
{
    if (DF_UNLIKELY(!dst)) return assign_nowhere(src, DF_SITE);
    deft_ctx *const cx = df_enter_of("assign", 1, dst, DF_ALL_FACES, DF_SITE);
    uint8_t missing = DF_FAILURE_NOTHING;
    deft_tensor *const done = assign_tensor(cx, dst, src, DF_SITE, &missing);
    return assigned(cx, dst, done, missing);
}

static deft_tensor *assign_number(deft_tensor *dst, df_literal value, uintptr_t site)
{
    deft_ctx *const cx = df_enter_of("assign", 1, dst, DF_ALL_FACES, site);
    if (!cx) return NULL;
    if (!fits_codes(cx, dst, NULL)) return assigned(cx, dst, NULL, DF_FAILURE_NOTHING);
    if (df_recording_freezes(cx))
        return df_result(cx, df_recording_refuses(cx, "assign", value.f, site));
    const deft_dtype t = df_shown_dtype(cx, dst);
    const uint32_t node =
        as_whole(cx, dst, df_literal_node(cx, "assign", df_record_dtype(t), value, site), site);
    return assigned(cx, dst, assign(cx, dst, node, t, site), DF_FAILURE_NOTHING);
}

deft_tensor *deft_assign_f(deft_tensor *dst, double value)
{
    return assign_number(dst, df_literal_f(value), DF_SITE);
}

deft_tensor *deft_assign_i(deft_tensor *dst, int64_t value)
{
    return assign_number(dst, df_literal_i(value), DF_SITE);
}

deft_tensor *deft_assign_u(deft_tensor *dst, uint64_t value)
{
    return assign_number(dst, df_literal_u(value), DF_SITE);
}

/* The temporary handle is the newest of its slab, so its slot is given back. */
deft_status df_assign_value(deft_ctx *cx, deft_tensor *dst, df_value *v)
{
    deft_tensor *const t = df_handle_new(cx, 0);
    if (!t) return df_deliver(cx);
    t->epoch = 0;
    t->value = df_value_ref(v);
    df_wear(t, df_face_of(dst));
    const deft_tensor *const done = deft_assign(dst, t);
    df_handle_unbind(cx, t);
    t->flags = 0;
    df_slab_of(t)->n--;
    return done ? DEFT_OK : df_deliver(cx);
}
