/* SPDX-License-Identifier: Apache-2.0
 *
 * What a cut by a budget forgets, and the end of a scope. Only records stay that something can
 * still refer to:
 *
 *   - records of live handles, and of handles that are restored when the step fails, and what
 *     these are computed from when they are pending;
 *   - the views by which a live handle names its place in another tensor;
 *   - records between two live handles, because a gradient may be taken of the later one with
 *     respect to the earlier one, and what the gradient rules read: for products and the like,
 *     the operands and what those are computed from; for sums, differences and views, only the
 *     fact that they were recorded;
 *   - what the loops, branches and custom functions among those consist of.
 *
 * The other records are removed. Those that stay move down and get new numbers, so this
 * happens only where nobody holds a record number (df_walk_begin). A record that stays
 * only for its value becomes an input of that value. A record of which only dtype and
 * shape are needed becomes a hollow one: an input without a value. A cut that needs a
 * hollow record fails.
 *
 * A value to which only records refer is dropped when it can be computed again from what
 * stays, unless a pending handle is computed from it. The values of inputs stay while they
 * are needed, and so do values whose records have operands that an earlier cut by a budget
 * made hollow.
 */
#include "lazy/core/annotations.h"
#include "lazy/core/history.h"
#include "lazy/core/flight.h"

#include <string.h>

enum {
    BOUND = 1,     /* a handle or an undo log refers to the record */
    FROM = 2,      /* the record is BOUND and a float, or depends on such a record */
    DEPENDS = 4,   /* the record depends on another record that is FROM */
    TO = 8,        /* a BOUND record depends on the record, or is the record */
    KEEP = 16,     /* the record stays, perhaps hollow: only for its dtype and shape */
    VALUE = 32,    /* its value may be needed */
    AS_IT_IS = 64, /* its op and operands may be needed */
    CUSTOM = 128,  /* a result of a custom function */
    HOLLOW = 256,  /* hollow, or without a value and computed from such records */
    PENDING = 512  /* a handle that has no value yet is computed from the record, or refers to it */
};

typedef struct forgetter {
    deft_ctx *cx;
    uint32_t n;
    uint16_t *flags; /* per record */
    uint8_t *n_args; /* per record */
    uint32_t *map;   /* per record: its new number; DF_NONE: it is removed */
    uint32_t *below; /* per record, and at n: how many records before it stay */
    int64_t *was;    /* a copy of all extents before they move */
    uint32_t *ext;   /* per extent: its new index; DF_NONE: not moved yet */
    df_value **vals; /* the new list of values of records */
} forgetter;

/* ---- which records are needed ---- */

static df_value *value_of_record(const forgetter *f, uint32_t k)
{
    const df_rec *const r = &f->cx->rec;
    return r->val[k] ? r->vals.at[r->val[k]] : NULL;
}

static bool is_op_input(const forgetter *f, uint32_t k)
{
    return f->cx->rec.nodes[k].op == DF_OP_input;
}

/* Whether an operand of record k has neither a value nor records to compute it from. */
static bool has_hollow_operand(const forgetter *f, uint32_t k)
{
    const df_node *const node = &f->cx->rec.nodes[k];
    uint16_t of_operands = 0;
    for (uint32_t i = 0; i < node->n_src; i++) of_operands |= f->flags[node->src[i].i];
    return of_operands & HOLLOW;
}

/* Whether record k has a value that is kept when it is needed. */
static bool has_value(const forgetter *f, uint32_t k)
{
    const df_value *const v = value_of_record(f, k);
    return v && (is_op_input(f, k) || v->refs != v->in_records || f->flags[k] & PENDING ||
                 has_hollow_operand(f, k));
}

/* Needs the views from place down to base, or down to the first record that is no view. */
static void ask_place(forgetter *f, uint32_t place, uint32_t base)
{
    const df_node *const nodes = f->cx->rec.nodes;
    for (; place != base && df_op_infos[nodes[place].op].cls == DF_CLASS_view;
         place = nodes[place].src[0].i)
        f->flags[place] |= KEEP | AS_IT_IS;
    f->flags[place] |= KEEP;
}

static void ask_bound(forgetter *f, uint32_t k)
{
    df_assert(k < f->n);
    f->flags[k] |= BOUND | TO | KEEP | VALUE;
    if (df_is_float(df_dtype_at(f->cx, k))) f->flags[k] |= FROM;
}

static void ask_handle(deft_ctx *cx, deft_tensor *t, void *user)
{
    forgetter *const f = user;
    if (t->epoch != cx->epoch || t->flags & DF_HANDLE_WEAK) return;
    ask_bound(f, t->node);
    if (t->place == DF_NONE) return;
    const deft_tensor *const root = df_root_of(t);
    ask_place(f, t->place, root && root->epoch == cx->epoch ? root->node : DF_NONE);
}

static void ask_log(forgetter *f, const df_undos *log)
{
    for (size_t i = 0; i < log->n; i++) {
        const df_undo *const u = &log->at[i];
        if (u->epoch != f->cx->epoch) continue;
        ask_bound(f, u->node);
        if (u->place != DF_NONE) ask_place(f, u->place, DF_NONE);
    }
}

/* Whether a record must still be computed and written into wrapped memory. */
static bool waits(const df_write *w)
{
    return w->due && !w->what;
}

static void ask_writes(forgetter *f)
{
    for (size_t i = 0; i < f->cx->muts.n; i++) {
        const df_mut *const m = &f->cx->muts.at[i];
        if (waits(&m->now)) ask_bound(f, m->now.node);
        if (waits(&m->before)) ask_bound(f, m->before.node);
    }
}

static const df_custom *flagged_custom_of(const forgetter *f, uint32_t k)
{
    return f->flags[k] & CUSTOM ? df_grad_custom_of(f->cx, k) : NULL;
}

static void flag_custom_records(forgetter *f)
{
    const deft_ctx *const cx = f->cx;
    for (size_t i = 0; i < cx->grad_annotations.n; i++)
        if (cx->grad_annotations.at[i].kind == DF_ANNOTATION_CUSTOM)
            f->flags[cx->grad_annotations.at[i].record] |= CUSTOM;
}

/* Forward pass: marks the records that cannot be computed from values. */
static void find_hollow(forgetter *f)
{
    for (uint32_t k = 0; k < f->n; k++)
        if (!value_of_record(f, k) && (is_op_input(f, k) || has_hollow_operand(f, k)))
            f->flags[k] |= HOLLOW;
}

/* The flags of the complex record of which record k is a part. */
static uint16_t flags_of_owner(const forgetter *f, uint32_t k)
{
    const df_part_read *const r = df_part_read_of(f->cx, k);
    return r ? f->flags[r->owner] : 0;
}

/* Forward pass: marks the records that depend on a bound float. */
static void find_from(forgetter *f)
{
    const df_node *const nodes = f->cx->rec.nodes;
    for (uint32_t k = 0; k < f->n; k++) {
        const df_custom *const c = flagged_custom_of(f, k);
        uint16_t of_operands = 0;
        for (uint32_t i = 0; i < nodes[k].n_src; i++) of_operands |= f->flags[nodes[k].src[i].i];
        for (uint32_t i = 0; c && i < c->n_in; i++) of_operands |= f->flags[c->record[i]];
        if (f->cx->part_reads.n) of_operands |= flags_of_owner(f, k);
        if (of_operands & FROM) f->flags[k] |= FROM | DEPENDS;
    }
}

/* Whether a gradient may pass through record k, rather than end there. */
static bool is_between(const forgetter *f, uint32_t k)
{
    return (f->flags[k] & (DEPENDS | TO)) == (DEPENDS | TO);
}

/* Operators whose gradient rule reads neither operands nor result. */
static const bool is_linear[DF_N_OPS] = {
    [DF_OP_neg] = true,      [DF_OP_cast] = true,      [DF_OP_add] = true,
    [DF_OP_sub] = true,      [DF_OP_sum] = true,       [DF_OP_cumsum] = true,
    [DF_OP_slice] = true,    [DF_OP_permute] = true,   [DF_OP_expand] = true,
    [DF_OP_squeeze] = true,  [DF_OP_unsqueeze] = true, [DF_OP_reshape] = true,
    [DF_OP_diagonal] = true, [DF_OP_update] = true,
};

/* When one result of a custom function is needed, all its results are. The pass goes
 * backwards, so it meets the last result first, and all readers of any result come after
 * that one. */
static void ask_custom(forgetter *f, const df_custom *c)
{
    uint16_t any = 0;
    for (uint32_t i = 0; i < c->n_out; i++) any |= f->flags[c->record[c->n_in + i]];
    if (!(any & TO) || !(any & DEPENDS)) return;
    for (uint32_t i = 0; i < c->n_in + c->n_out; i++) f->flags[c->record[i]] |= TO | KEEP | VALUE;
    for (uint32_t i = 0; i < c->n_out; i++) f->flags[c->record[c->n_in + i]] |= AS_IT_IS;
    /* only their ranks are needed */
    for (const df_custom *one = c->batch_of; one; one = one->batch_of)
        for (uint32_t i = 0; i < one->n_in + one->n_out; i++) f->flags[one->record[i]] |= KEEP;
}

/* Backward pass: marks the needed records, and the operands that those need. */
static void mark_kept_records(forgetter *f)
{
    const df_node *const nodes = f->cx->rec.nodes;
    for (uint32_t k = f->n; k-- > 0;) {
        const df_node *const node = &nodes[k];
        const df_custom *const c = flagged_custom_of(f, k);
        uint16_t *const flags = &f->flags[k];
        if (c) ask_custom(f, c);
        if (*flags & BOUND && !value_of_record(f, k)) *flags |= PENDING;
        const bool between = is_between(f, k);
        const bool computed = *flags & VALUE && !has_value(f, k); /* or must be computed again */
        uint16_t operands = 0;
        if (*flags & TO) operands |= TO;
        if (between || computed) *flags |= KEEP | AS_IT_IS;
        if (*flags & AS_IT_IS) operands |= KEEP;
        if (between && !is_linear[node->op]) {
            *flags |= VALUE;
            operands |= VALUE;
        }
        if (computed || (*flags & VALUE && !has_value(f, k)))
            operands |= VALUE | (*flags & PENDING);
        for (uint32_t i = 0; i < node->n_src; i++) f->flags[node->src[i].i] |= operands;
        const df_part_read *const r =
            between && f->cx->part_reads.n ? df_part_read_of(f->cx, k) : NULL;
        if (r) f->flags[r->owner] |= TO | KEEP;
        if (node->op != DF_OP_update || !(*flags & AS_IT_IS)) continue;
        ask_place(f, node->src[2].i, node->src[0].i);
        /* The gradient rules look at a chain of updates to see whether they write
         * adjacent pieces. */
        if (nodes[node->src[0].i].op == DF_OP_update) f->flags[node->src[0].i] |= AS_IT_IS;
    }
}

/* ---- moving down ---- */

static uint32_t n_args_of(const df_rec *r, uint32_t k)
{
    const df_node *const n = &r->nodes[k];
    return df_op_n_args((df_op)n->op, n->n_src ? r->nodes[n->src[0].i].rank : 0);
}

static bool keeps_value(const forgetter *f, uint32_t k)
{
    return f->flags[k] & VALUE && has_value(f, k);
}

/* Gives new numbers to the records that stay. */
static bool number_kept_records(forgetter *f, df_arena *a)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < f->n; k++) {
        f->below[k] = n;
        f->map[k] = f->flags[k] & KEEP ? n++ : DF_NONE;
    }
    f->below[f->n] = n;
    f->vals = df_arena_new(a, df_value *, (size_t)n + 1);
    return f->vals != NULL;
}

/* The new form of record k. Its arguments move down to r->n_args, which is never behind
 * an argument that is still to be moved. n_args: the number of k's arguments before any
 * record moved. */
static df_node moved_node(forgetter *f, uint32_t k, uint32_t n_args)
{
    df_rec *const r = &f->cx->rec;
    df_node node = r->nodes[k];
    const bool value = keeps_value(f, k);
    /* a number or a similar record without operands */
    const bool bare = node.n_src == 0 && node.op != DF_OP_input;
    if (f->flags[k] & AS_IT_IS ? node.op != DF_OP_input || value : bare) {
        for (uint32_t i = 0; i < node.n_src; i++) node.src[i].i = f->map[node.src[i].i];
        if (n_args) {
            memmove(r->args + r->n_args, r->args + node.arg, n_args * sizeof *r->args);
            node.arg = r->n_args;
            r->n_args += n_args;
        }
        return node;
    }
    return (df_node){ .op = DF_OP_input, /* without a value: hollow */
                      .dtype = node.dtype,
                      .rank = node.rank,
                      .src = { DF_NO_REF, DF_NO_REF, DF_NO_REF } };
}

/* The new index of the extents of record k: the extents that an earlier record moved, or
 * moved down by this call. */
static uint32_t moved_extents(forgetter *f, uint32_t k, uint32_t rank)
{
    df_rec *const r = &f->cx->rec;
    const uint32_t from = r->shape[k];
    if (rank == 0) return r->n_ext;
    if (f->ext[from] == DF_NONE) {
        f->ext[from] = r->n_ext;
        memcpy(r->ext + r->n_ext, f->was + from, rank * sizeof *r->ext);
        r->n_ext += rank;
    }
    return f->ext[from];
}

static void compact_kept_records(forgetter *f)
{
    deft_ctx *const cx = f->cx;
    df_rec *const r = &cx->rec;
    const uint32_t step_n = cx->step_n;
    uint32_t n_vals = 1;
    cx->stats.ops_recorded += r->n - r->n_inputs; /* all records so far are counted here */
    r->n_args = r->n_ext = 0;
    for (uint32_t k = 0; k < f->n; k++) {
        const uint32_t to = f->map[k], val = r->val[k];
        if (k == step_n) {
            cx->step_args = r->n_args;
            cx->step_ext = r->n_ext;
        }
        if (to == DF_NONE || !keeps_value(f, k)) {
            if (val) df_rec_release(cx, &r->vals.at[val]);
            if (to == DF_NONE) continue;
        }
        const uint32_t rank = r->nodes[k].rank;
        r->nodes[to] = moved_node(f, k, f->n_args[k]);
        r->shape[to] = moved_extents(f, k, rank);
        r->site[to] = r->site[k];
        r->val[to] = 0;
        if (val && r->vals.at[val]) {
            f->vals[n_vals] = r->vals.at[val];
            r->val[to] = n_vals++;
        }
    }
    if (step_n == f->n) {
        cx->step_args = r->n_args;
        cx->step_ext = r->n_ext;
    }
    memcpy(r->vals.at + 1, f->vals + 1, (n_vals - 1) * sizeof *f->vals);
    r->vals.n = n_vals;
    r->n = r->n_inputs = f->below[f->n];
    cx->step_n = f->below[step_n];
}

/* ---- what refers to records by number ---- */

static void rename_handle(deft_ctx *cx, deft_tensor *t, void *user)
{
    const forgetter *const f = user;
    if (t->epoch != cx->epoch || t->flags & DF_HANDLE_WEAK) return;
    t->node = f->map[t->node];
    if (t->place != DF_NONE) t->place = f->map[t->place];
}

static void rename_log(const forgetter *f, df_undos *log)
{
    for (size_t i = 0; i < log->n; i++) {
        df_undo *const u = &log->at[i];
        if (u->epoch != f->cx->epoch) continue;
        u->node = f->map[u->node];
        if (u->place != DF_NONE) u->place = f->map[u->place];
    }
}

static void rename_writes(const forgetter *f)
{
    for (size_t i = 0; i < f->cx->muts.n; i++) {
        df_mut *const m = &f->cx->muts.at[i];
        m->now.node = waits(&m->now) ? f->map[m->now.node] : 0;
        m->before.node = waits(&m->before) ? f->map[m->before.node] : 0;
    }
}

/* Renumbers the records that missed.c and lost.c refer to. */
static void rename_mistakes(const forgetter *f)
{
    deft_ctx *const cx = f->cx;
    for (uint32_t i = 0; i < DF_LEN(cx->missed) && cx->owes; i++) {
        df_missed *const m = &cx->missed[i];
        if (m->epoch == cx->epoch && m->from <= f->n) m->from = f->below[m->from];
    }
    if (cx->fault_epoch != cx->epoch || cx->fault_record >= f->n) return;
    cx->fault_record = f->map[cx->fault_record];
    if (cx->fault_record == DF_NONE) cx->fault_epoch = 0;
}

static bool allocate_forgetter(forgetter *f, df_arena *a)
{
    const df_rec *const r = &f->cx->rec;
    const size_t n = (size_t)f->n + 1;
    f->flags = df_arena_new(a, uint16_t, n);
    f->n_args = df_arena_new(a, uint8_t, n);
    f->map = df_arena_new(a, uint32_t, n);
    f->below = df_arena_new(a, uint32_t, n);
    f->ext = df_arena_new(a, uint32_t, (size_t)r->n_ext + 1);
    f->was = df_arena_copy(a, r->ext, r->n_ext * sizeof *r->ext, _Alignof(int64_t));
    if (!f->flags || !f->n_args || !f->map || !f->below || !f->ext || !f->was) return false;
    memset(f->ext, 0xff, ((size_t)r->n_ext + 1) * sizeof *f->ext);
    for (uint32_t k = 0; k < f->n; k++) f->n_args[k] = (uint8_t)n_args_of(r, k);
    return true;
}

void df_forget(deft_ctx *cx)
{
    forgetter f = { .cx = cx, .n = cx->rec.n };
    df_assert(cx->n_walks == 0);
    if (DF_UNLIKELY(cx->owes)) df_owe_recorded(cx);
    df_arena_reset(&cx->pass);
    if (!allocate_forgetter(&f, &cx->pass)) return; /* all records stay */
    df_handles_resolve(cx);
    flag_custom_records(&f);
    find_hollow(&f);
    df_each_outer(cx, cx->depth + 1, ask_handle, &f);
    ask_log(&f, &cx->undo);
    ask_writes(&f);
    if (cx->flight) ask_log(&f, &cx->flight->undo);
    find_from(&f);
    mark_kept_records(&f);
    if (!number_kept_records(&f, &cx->pass)) return;
    df_again_renumber(cx, f.map);
    df_history_renumber(cx);
    df_grad_annotations_renumber(cx, f.map, f.below);
    df_site_ranges_renumber(cx, f.below);
    compact_kept_records(&f);
    df_each_outer(cx, cx->depth + 1, rename_handle, &f);
    rename_log(&f, &cx->undo);
    rename_writes(&f);
    rename_mistakes(&f);
    if (cx->flight) rename_log(&f, &cx->flight->undo);
}
