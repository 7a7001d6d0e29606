/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_vmap: the call, and its three passes over what the function recorded.
 *
 * 1. Backwards from the results: which records are needed.
 * 2. Forwards until nothing changes: which records depend on examples. The state of a
 *    loop may do so
 *    only in a later iteration.
 * 3. Forwards once more: record the records for all examples.
 */
#include "lazy/vmap/vmap.h"

#include "lazy/run/body.h"
#include "lazy/grad/grad.h"
#include "lazy/run/materialize.h"
#include "trace/control.h"

#include <string.h>

enum { MAX_WIDTH = 1 << 16 }; /* most tensors in or out */

/* ---- the walks ---- */

static bool walk_init(df_vmap *w, deft_ctx *cx, uint32_t from, int64_t extent, df_arena *a)
{
    const uint32_t n = cx->rec.n - from;
    *w = (df_vmap){ .cx = cx, .extent = extent, .from = from, .n = n };
    w->now = df_arena_new(a, uint32_t, n + 1);
    w->loop = df_arena_new(a, uint32_t, n + 1);
    w->value = df_arena_new(a, uint32_t, n + 1);
    w->flags = df_arena_new(a, uint8_t, n + 1);
    if (!w->now || !w->loop || !w->value || !w->flags) {
        df_error(cx, DEFT_E_MEMORY, "vmap: no memory for %u records again", n);
        return false;
    }
    memset(w->now, 0xff, n * sizeof *w->now);
    memset(w->loop, 0xff, n * sizeof *w->loop);
    return true;
}

static void need_mapped_record(df_vmap *w, uint32_t k)
{
    if (k - w->from < w->n) w->flags[k - w->from] |= DF_VMAP_NEEDED;
}

static void flag_mapped_customs(df_vmap *w)
{
    const deft_ctx *const cx = w->cx;
    for (size_t i = 0; i < cx->grad_annotations.n; i++) {
        const df_grad_annotation *const m = &cx->grad_annotations.at[i];
        if (df_is_of_custom(m) && m->record - w->from < w->n)
            w->flags[m->record - w->from] |= DF_VMAP_CUSTOM;
    }
}

/* The flags that any of n records has. */
static uint32_t flags_of_all(const df_vmap *w, const uint32_t *record, uint32_t n)
{
    uint32_t flags = 0;
    for (uint32_t i = 0; i < n; i++) flags |= df_vmap_flags(w, record[i]);
    return flags;
}

/* Gradients pass through a custom function in one call, so all its results are needed or
 * none is. All readers of any result come after all results. Returns whether result k has a batch
 * rule, which does not read the operand of k. */
static bool need_mapped_custom(df_vmap *w, uint32_t k)
{
    const df_custom *const c = df_mapped_custom_of(w->cx, k);
    if (!(flags_of_all(w, c->record + c->n_in, c->n_out) & DF_VMAP_NEEDED)) return false;
    for (uint32_t i = 0; i < c->n_in + c->n_out; i++) need_mapped_record(w, c->record[i]);
    return df_vmap_has_rule(w, c, k);
}

static void find_mapped_needs(df_vmap *w)
{
    const df_node *const nodes = w->cx->rec.nodes;
    for (uint32_t k = w->from + w->n; k-- > w->from;) {
        if (w->flags[k - w->from] & DF_VMAP_CUSTOM && need_mapped_custom(w, k)) continue;
        if (!(w->flags[k - w->from] & DF_VMAP_NEEDED)) continue;
        for (uint32_t i = 0; i < nodes[k].n_src; i++) need_mapped_record(w, nodes[k].src[i].i);
        /* A gradient may have to meet the complex record of which this one is a part. */
        const df_part_read *const r = w->cx->part_reads.n ? df_part_read_of(w->cx, k) : NULL;
        if (r) need_mapped_record(w, r->owner);
    }
}

static bool is_control(const df_node *n)
{
    return df_op_infos[n->op].cls == DF_CLASS_control && n->op != DF_OP_cond;
}

/* Sets the flags of record k from those of its operands. Returns whether they changed. */
static bool propagate_record_flags(df_vmap *w, uint32_t k)
{
    const df_node *const n = &w->cx->rec.nodes[k];
    uint8_t *const flags = &w->flags[k - w->from];
    const uint8_t was = *flags;
    uint32_t of_operands = 0;
    if (is_control(n)) return df_vmap_see_control(w, k);
    for (uint32_t i = 0; i < n->n_src; i++) of_operands |= df_vmap_flags(w, n->src[i].i);
    if (was & DF_VMAP_CUSTOM) { /* all its results are recorded again, or none is */
        const df_custom *const c = df_mapped_custom_of(w->cx, k);
        of_operands |= flags_of_all(w, c->record, c->n_in + c->n_out);
    }
    of_operands = (of_operands | was) & (DF_VMAP_BATCHED | DF_VMAP_MOVED);
    if (n->op == DF_OP_random) of_operands = DF_VMAP_BATCHED;
    if (n->op == DF_OP_count && of_operands) of_operands = DF_VMAP_MOVED | DF_VMAP_RULED;
    if (n->op == DF_OP_update && of_operands) of_operands |= DF_VMAP_RULED;
    *flags |= (uint8_t)of_operands;
    return *flags != was;
}

/* When a branch is recorded again, all its records are, except constants: its gradient
 * covers what is recorded within its annotation. Returns whether any flags changed. */
static bool propagate_branch_flags(df_vmap *w, const df_grad_annotation *m)
{
    const df_node *const nodes = w->cx->rec.nodes;
    uint32_t flags = 0;
    bool changed = false;
    for (uint32_t k = m->record; k < w->from + w->n && nodes[k].op == DF_OP_cond; k++)
        flags |= df_vmap_flags(w, k);
    if (!(flags & (DF_VMAP_BATCHED | DF_VMAP_MOVED))) return false;
    df_assert(m->then >= w->from);
    for (uint32_t k = m->then; k < m->record; k++) {
        uint8_t *const at = &w->flags[k - w->from];
        if (!(*at & DF_VMAP_NEEDED) || nodes[k].n_src == 0 || *at & DF_VMAP_MOVED) continue;
        *at |= DF_VMAP_MOVED;
        changed = true;
    }
    return changed;
}

static bool propagate_branches_flags(df_vmap *w)
{
    const deft_ctx *const cx = w->cx;
    bool changed = false;
    for (size_t i = 0; i < cx->grad_annotations.n; i++) {
        const df_grad_annotation *const m = &cx->grad_annotations.at[i];
        if (m->kind == DF_ANNOTATION_BRANCHES && m->record - w->from < w->n)
            changed |= propagate_branch_flags(w, m);
    }
    return changed;
}

static void find_batched(df_vmap *w)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t k = w->from; k < w->from + w->n; k++)
            if (w->flags[k - w->from] & DF_VMAP_NEEDED) changed |= propagate_record_flags(w, k);
        changed |= propagate_branches_flags(w);
    }
}

/* The results of an operator that depend on no example are recorded as its body has recorded them.
 * Returns whether anything changed. */
static bool need_inner_records(df_vmap *w)
{
    bool changed = false;
    for (uint32_t i = 0; i < w->n; i++) {
        const uint32_t flags = w->flags[i];
        if (!(flags & DF_VMAP_CUSTOM) || !(flags & DF_VMAP_NEEDED) ||
            flags & (DF_VMAP_BATCHED | DF_VMAP_INNER))
            continue;
        w->flags[i] |= DF_VMAP_INNER;
        changed = true;
    }
    return changed;
}

/* Finds the records that are needed, and which of them depend on examples. */
static void find_mapped_records(df_vmap *w)
{
    do {
        find_mapped_needs(w);
        find_batched(w);
    } while (need_inner_records(w));
}

static bool has_room(df_vmap *w, uint32_t k)
{
    df_shape s;
    char text[DF_SHAPE_TEXT];
    const df_node *const n = &w->cx->rec.nodes[k];
    if (n->rank < DEFT_MAX_RANK) return true;
    df_rec_shape(&w->cx->rec, k, &s);
    df_error(w->cx, DEFT_E_LIMIT,
             "vmap: %s makes %s%s, which leaves no axis for %lld examples: %d axes are the most",
             df_op_infos[n->op].name, deft_dtype_name((deft_dtype)n->dtype),
             df_shape_text(&s, text, sizeof text), (long long)w->extent, DEFT_MAX_RANK);
    return false;
}

static uint32_t record_for_all(df_vmap *w, uint32_t k)
{
    const df_node n = w->cx->rec.nodes[k];
    const uint32_t flags = df_vmap_flags(w, k);
    uint32_t src[3] = { DF_BAD, DF_BAD, DF_BAD }, batched = 0;
    for (uint32_t i = 0; i < n.n_src; i++) {
        src[i] = df_vmap_now(w, n.src[i].i);
        batched |= (uint32_t)df_vmap_is_batched(w, n.src[i].i) << i;
    }
    if (flags & DF_VMAP_BATCHED && !has_room(w, k)) return DF_BAD;
    /* A result of a custom function that is BATCHED only because another result is. */
    if (flags & DF_VMAP_CUSTOM && !batched && flags & DF_VMAP_BATCHED) {
        src[0] = df_vmap_spread(w, src[0]);
        batched = 1;
    }
    if (src[0] == DF_BAD && n.n_src) return DF_BAD;
    if (!(flags & (DF_VMAP_BATCHED | DF_VMAP_RULED))) return df_vmap_again(w, k, src);
    return df_batch_rule_of((df_op)n.op)(w, k, src, batched);
}

static bool record_all(df_vmap *w)
{
    for (uint32_t k = w->from; k < w->from + w->n; k++) {
        const uint32_t flags = df_vmap_flags(w, k);
        if (!(flags & DF_VMAP_NEEDED) || !(flags & (DF_VMAP_BATCHED | DF_VMAP_MOVED))) continue;
        if (w->now[k - w->from] != DF_BAD) continue;
        w->site = df_rec_site(w->cx, k);
        const df_custom *const c = flags & DF_VMAP_CUSTOM ? df_mapped_custom_of(w->cx, k) : NULL;
        if (c && flags & DF_VMAP_BATCHED && df_vmap_has_rule(w, c, k)) {
            if (!df_vmap_by_rule(w, c)) return false;
            continue;
        }
        const uint32_t now = record_for_all(w, k);
        if (now == DF_BAD) return false;
        w->now[k - w->from] = now;
    }
    return true;
}

/* ---- the call ---- */

typedef struct call {
    deft_ctx *cx;
    const char *what;
    uintptr_t site;
    deft_tensor *const *in;
    const int *in_axes, *out_axes;
    size_t n_in, n_out;
    int64_t extent; /* number of examples; -1: not known yet */
    df_arena arena;
    /* per tensor: its axis of examples, counted from 0, or DEFT_NOT_MAPPED */
    int *axis;
    uint32_t *node, *stand; /* per tensor: its record, and the record that the function sees */
    uint32_t *made;         /* per result: its record */
    deft_tensor **seen, **out;
    uint8_t *made_face; /* per result */
} call;

static bool check_map_call(call *c, deft_body_fn fn, deft_tensor **out)
{
    deft_ctx *const cx = c->cx;
    if (!cx) return false;
    if (cx->rec.n >= cx->look_at && !df_make_room(cx)) return false;
    if (!fn || !c->in || !out || c->n_in == 0 || c->n_out == 0 || c->n_in > MAX_WIDTH ||
        c->n_out > MAX_WIDTH) {
        df_error(cx, DEFT_E_ARG,
                 "%s: %zu tensors, %zu results; it takes a function, and 1 to %d of each", c->what,
                 c->n_in, c->n_out, MAX_WIDTH);
        return false;
    }
    if (cx->body_nest >= DF_MAX_NESTING) {
        df_error(cx, DEFT_E_LIMIT, "%s: nested more than %d deep", c->what, DF_MAX_NESTING);
        return false;
    }
    for (size_t i = 0; i < c->n_in; i++)
        if (!df_enter_more_of(cx, c->what, (unsigned)i + 1, c->in[i], DF_ALL_FACES)) return false;
    return true;
}

static bool allocate_map_call(call *c)
{
    df_arena *const a = &c->arena;
    c->axis = df_arena_new(a, int, c->n_in);
    c->node = df_arena_new(a, uint32_t, c->n_in);
    c->stand = df_arena_new(a, uint32_t, c->n_in);
    c->made = df_arena_new(a, uint32_t, c->n_out);
    c->seen = df_arena_new(a, deft_tensor *, c->n_in);
    c->out = df_arena_new(a, deft_tensor *, c->n_out);
    c->made_face = df_arena_new(a, uint8_t, c->n_out);
    if (c->made_face && c->axis && c->node && c->stand && c->made && c->seen && c->out) return true;
    df_error(c->cx, DEFT_E_MEMORY, "%s: no memory for %zu tensors and %zu results", c->what,
             c->n_in, c->n_out);
    return false;
}

/* Checks that tensor i has the axis of examples, with the extent that the others have. */
static bool enter_mapped(call *c, size_t i, int axis)
{
    deft_ctx *const cx = c->cx;
    df_shape s;
    char text[DF_SHAPE_TEXT];
    df_shown_shape(cx, c->in[i], &s);
    c->axis[i] = axis < 0 ? axis + (int)s.rank : axis;
    if (c->axis[i] < 0 || c->axis[i] >= (int)s.rank) {
        df_error(cx, DEFT_E_RANGE, "%s: tensor %zu is %s%s, and has no axis %d", c->what, i,
                 deft_dtype_name(df_shown_dtype(cx, c->in[i])),
                 df_shape_text(&s, text, sizeof text), axis);
        return false;
    }
    if (df_face_is_packed(df_face_of(c->in[i])) && c->axis[i] == (int)s.rank - 1)
        return df_refuse_stored(cx, c->what, df_face_of(c->in[i]), DF_SHARED_BYTES);
    const int64_t n = s.dim[c->axis[i]];
    if (c->extent < 0) c->extent = n;
    if (c->extent == n) return true;
    df_error(cx, DEFT_E_SHAPE,
             "%s: tensor %zu is %s%s, of which axis %d numbers %lld examples; those before it have "
             "%lld",
             c->what, i, deft_dtype_name(df_shown_dtype(cx, c->in[i])),
             df_shape_text(&s, text, sizeof text), c->axis[i], (long long)n, (long long)c->extent);
    return false;
}

static bool enter_all(call *c)
{
    for (size_t i = 0; i < c->n_in; i++) {
        const int axis = c->in_axes ? c->in_axes[i] : 0;
        c->axis[i] = DEFT_NOT_MAPPED;
        c->node[i] = DF_BAD;
        if (axis == DEFT_NOT_MAPPED && c->in[i]->flags & DF_HANDLE_WEAK) continue;
        if ((c->node[i] = df_node_of(c->cx, c->in[i])) == DF_BAD) return false;
        if (axis != DEFT_NOT_MAPPED && !enter_mapped(c, i, axis)) return false;
    }
    if (c->extent >= 0) return true;
    df_error(c->cx, DEFT_E_ARG,
             "%s: none of %zu tensors is mapped: how many examples there are is not known", c->what,
             c->n_in);
    return false;
}

/* Sets what the function sees for tensor i. A placeholder is a constant, which is never
 * computed. A bare number stays one, and takes its dtype in the function. */
static bool make_shown_example(call *c, size_t i)
{
    deft_ctx *const cx = c->cx;
    df_shape s, one = { 0 };
    c->stand[i] = c->node[i];
    if (c->node[i] == DF_BAD) return (c->seen[i] = c->in[i]) != NULL;
    if (c->axis[i] != DEFT_NOT_MAPPED) {
        df_rec_shape(&cx->rec, c->node[i], &s);
        for (uint32_t k = 0; k < s.rank; k++)
            if ((int)k != c->axis[i]) one.dim[one.rank++] = s.dim[k];
        c->stand[i] =
            df_append(cx, DF_OP_cst, df_dtype_at(cx, c->node[i]), 0, NULL, NULL, 0, &one, c->site);
    }
    return (c->seen[i] = df_result_faced(cx, c->stand[i], df_face_of(c->in[i]))) != NULL;
}

static bool run_mapped_function(call *c, deft_body_fn fn, void *user)
{
    deft_ctx *const cx = c->cx;
    for (size_t i = 0; i < c->n_in; i++)
        if (!make_shown_example(c, i)) return false;
    const uint32_t before = df_mistakes(cx);
    const deft_status st = fn(cx, c->seen, c->n_in, c->out, c->n_out, user);
    df_enter_call(cx, c->site);
    if (st != DEFT_OK && df_mistakes(cx) == before)
        df_error(cx, st, "%s: its function failed", c->what);
    if (df_mistakes(cx) != before) return false;
    for (size_t i = 0; i < c->n_out; i++) {
        if (!c->out[i]) {
            df_error(cx, DEFT_E_ARG, "%s: its function leaves result %zu of %zu NULL", c->what, i,
                     c->n_out);
            return false;
        }
        if (!df_enter_more_of(cx, c->what, (unsigned)i + 1, c->out[i], DF_ALL_FACES) ||
            (c->made[i] = df_node_of(cx, c->out[i])) == DF_BAD)
            return false;
        c->made_face[i] = (uint8_t)df_face_of(c->out[i]);
    }
    return true;
}

static bool run_in_scope(call *c, deft_body_fn fn, void *user)
{
    uint32_t was;
    if (!df_body_open(c->cx, c->site, &was)) return false;
    c->cx->draw_nest++;
    c->cx->map_nest++;
    const bool ok = run_mapped_function(c, fn, user);
    c->cx->map_nest--;
    c->cx->draw_nest--;
    df_body_close(c->cx, was);
    return ok;
}

static bool has_marks(const deft_ctx *cx, uint32_t k)
{
    for (size_t i = 0; i < cx->grad_annotations.n; i++)
        if (cx->grad_annotations.at[i].record == k) return true;
    return false;
}

/* Tensor i with the axis of examples first: the copy of its placeholder. A hook on the
 * placeholder must not become a hook on the caller's tensor. */
static uint32_t examples_of(const call *c, df_vmap *w, size_t i)
{
    const uint32_t moved = df_vmap_move(w, c->node[i], (uint32_t)c->axis[i], 0);
    return has_marks(c->cx, c->stand[i]) ? df_grad_placeholder(c->cx, moved, c->site) : moved;
}

/* Makes the mapped tensors the copies of their placeholders. */
static bool enter_walk(const call *c, df_vmap *w)
{
    w->site = c->site;
    for (size_t i = 0; i < c->n_in; i++) {
        if (c->axis[i] == DEFT_NOT_MAPPED) continue;
        const uint32_t k = c->stand[i] - w->from;
        w->flags[k] |= DF_VMAP_BATCHED;
        w->now[k] = examples_of(c, w, i);
        if (w->now[k] == DF_BAD) return false;
    }
    for (size_t i = 0; i < c->n_out; i++) need_mapped_record(w, c->made[i]);
    return true;
}

/* The record of result i with the axis of examples where the caller wants it. */
static uint32_t leave(const call *c, df_vmap *w, size_t i)
{
    deft_ctx *const cx = c->cx;
    const int asked = c->out_axes ? c->out_axes[i] : 0;
    const bool batched = df_vmap_is_batched(w, c->made[i]);
    const uint32_t rank = cx->rec.nodes[c->made[i]].rank - df_face_axes(c->made_face[i]);
    const int axis = asked < 0 && asked != DEFT_NOT_MAPPED ? asked + (int)rank + 1 : asked;
    if (asked == DEFT_NOT_MAPPED && batched) {
        df_error(cx, DEFT_E_ARG, "%s: result %zu depends on an example, and is not mapped", c->what,
                 i);
        return DF_BAD;
    }
    if (asked == DEFT_NOT_MAPPED) return df_vmap_now(w, c->made[i]);
    if (df_face_is_packed(c->made_face[i]) && axis == (int)rank)
        return df_refuse_stored(cx, c->what, c->made_face[i], DF_SHARED_BYTES), DF_BAD;
    if (axis < 0 || axis > (int)rank) {
        df_error(cx, DEFT_E_RANGE, "%s: result %zu has %u axes, and none is %d", c->what, i,
                 rank + 1, asked);
        return DF_BAD;
    }
    return df_vmap_move(w, df_vmap_for_each(w, c->made[i]), 0, (uint32_t)axis);
}

static bool for_all(call *c, uint32_t from)
{
    df_vmap w;
    if (!walk_init(&w, c->cx, from, c->extent, &c->arena) || !enter_walk(c, &w)) return false;
    flag_mapped_customs(&w);
    find_mapped_records(&w);
    const df_replay again = {
        .cx = c->cx, .low = w.from, .high = w.from + w.n, .map = w.now, .map_each = df_vmap_call
    };
    if (!record_all(&w) || !df_grad_copy_annotations(&again)) return false;
    w.site = c->site;
    for (size_t i = 0; i < c->n_out; i++)
        if ((c->made[i] = leave(c, &w, i)) == DF_BAD) return false;
    return true;
}

static bool make_mapped_results(const call *c, deft_tensor **out)
{
    for (size_t i = 0; i < c->n_out; i++)
        if (!(c->out[i] = df_result_faced(c->cx, c->made[i], c->made_face[i]))) return false;
    memcpy(out, c->out, c->n_out * sizeof *out);
    return true;
}

bool df_vmap_call(deft_ctx *cx, const char *what, deft_body_fn fn, void *user,
                  deft_tensor *const *in, const int *in_axes, size_t n_in, deft_tensor **out,
                  const int *out_axes, size_t n_out, uintptr_t site)
{
    call c = { .cx = cx,
               .what = what,
               .site = site,
               .in = in,
               .in_axes = in_axes,
               .out_axes = out_axes,
               .n_in = n_in,
               .n_out = n_out,
               .extent = -1 };
    bool ok = check_map_call(&c, fn, out);
    if (ok) {
        df_walk_begin(cx);
        df_arena_init(&c.arena, cx->mem);
        ok = allocate_map_call(&c) && enter_all(&c);
        const uint32_t from = cx->rec.n;
        ok = ok && run_in_scope(&c, fn, user) && for_all(&c, from) && make_mapped_results(&c, out);
        df_arena_finish(&c.arena);
        df_walk_end(cx);
    }
    for (size_t i = 0; !ok && out && n_out <= MAX_WIDTH && i < n_out; i++) out[i] = NULL;
    return ok;
}

bool deft_vmap(deft_ctx *cx, deft_body_fn fn, void *user, deft_tensor *const *in,
               const int *in_axes, size_t n_in, deft_tensor **out, const int *out_axes,
               size_t n_out)
{
    df_enter_call(cx, DF_SITE);
    return df_vmap_call(cx, "vmap", fn, user, in, in_axes, n_in, out, out_axes, n_out, DF_SITE);
}
