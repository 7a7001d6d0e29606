/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides which values are stored. Vals are planned in node order. Each val first is the head of a
 * cone of its own (cone.c). Nodes that the cone cannot compute become vals and are planned before
 * it, on an explicit stack. Then the head joins a group or opens one (join.c).
 *
 * A value that several kernels would compute again is stored instead when computing it costs more
 * than a load (share.c). Only then is the grouping done again, with that value among the vals.
 * There are at most MAX_ROUNDS rounds.
 *
 * A joined array (pieces.c) may turn out to need a val when kernels that read its pieces have been
 * planned already. The writer of that val may depend on them, and they would read the val. So that
 * round is planned once more, with the val from the beginning.
 * Why this file is long: one algorithm, grouping, with its join rules side by side.
 */
#include "fuser/fuse.h"

#include <stdio.h>
#include <string.h>

#define MAX_ROUNDS 4

static const char many_times[] = "a product reads its operands many times, so they are stored";
static const char at_once[] = "a routine needs all of its operand at once";

/* ---- planning one val ---- */

deft_status df_fuse_update_dest(pass *p, uint32_t n, map_id map, map_id *dest)
{
    const df_node *const x = node_of(p, n);
    uint32_t node = x->src[2].i;
    while (node != x->src[0].i && p->st == DEFT_OK) {
        bool self;
        const map_id next =
            class_of_op(p, node) == DF_CLASS_view ? df_map_view(p, node, map, &self) : NO_MAP;
        if (IS_NONE(next))
            return df_fail(p->diag, DEFT_E_ARG,
                           "update: %%%u is no view of %%%u that can be written", x->src[2].i,
                           x->src[0].i);
        map = next;
        node = node_of(p, node)->src[0].i;
    }
    *dest = map;
    return p->st;
}

/* Makes sure that the base of update n can be stored, copied or computed where the update needs it.
 * Sets *progress if another val must be planned first. */
static deft_status plan_update_base(pass *p, uint32_t n, bool is_box, bool *progress)
{
    /* In a place of its own, the update computes the base again around the box. That is done only
     * when it costs no more than a load. */
    const uint32_t base = node_of(p, n)->src[0].i;
    uint32_t node = base;
    bool reshaped = false;
    if (!IS_NONE(p->node_val[base])) {
        if (IS_NONE(val_at(p, p->node_val[base])->group)) {
            df_fuse_push_val(p, p->node_val[base]);
            *progress = true;
        }
        return p->st;
    }
    while (class_of_op(p, node) == DF_CLASS_view && IS_NONE(p->node_val[node])) {
        reshaped |= node_of(p, node)->op == DF_OP_reshape;
        node = node_of(p, node)->src[0].i;
    }
    const bool stored = !IS_NONE(p->node_val[node]);
    if (reshaped || (stored ? !is_box : class_of_op(p, node) != DF_CLASS_leaf))
        *progress |= df_fuse_demand(p, base, n, "is written over");
    return p->st;
}

/* Whether node is a cast of halves to f32, which a product can do while reading. */
static bool is_lifted(const pass *p, uint32_t node)
{
    const df_node *const x = node_of(p, node);
    return x->op == DF_OP_cast && x->dtype == DEFT_F32 &&
           df_is_half((deft_dtype)node_of(p, x->src[0].i)->dtype);
}

/* The dtype in memory of an operand that a product reads through views: that of the halves when
 * their cast to f32 is not stored. */
static deft_dtype lifted_from(const pass *p, uint32_t node)
{
    while (IS_NONE(p->node_val[node]) && class_of_op(p, node) == DF_CLASS_view)
        node = node_of(p, node)->src[0].i;
    if (IS_NONE(p->node_val[node]) && is_lifted(p, node)) node = node_of(p, node)->src[0].i;
    return (deft_dtype)node_of(p, node)->dtype;
}

/* Whether product n reads halves as f32. Libraries that compute FAST products, and instructions for
 * bf16, need one dtype for both operands. */
static bool lifts(const pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    const bool is_fast = p->t->flags & DF_TRACE_FAST;
    if (class_of_op(p, n) != DF_CLASS_contract) return false;
    if (p->lim->lifts && !is_fast) return true;
    const deft_dtype t = lifted_from(p, x->src[0].i);
    const bool takes_bf16 = is_fast ? p->lim->lifts_fast_bf16 : p->lim->lifts_bf16;
    return (p->lim->lifts || (takes_bf16 && t == DEFT_BF16)) && t == lifted_from(p, x->src[1].i);
}

/* Whether node makes integers i64, which a routine that adds at indices does while reading. */
static bool is_widened(const pass *p, uint32_t node)
{
    const df_node *const x = node_of(p, node);
    return x->op == DF_OP_cast && x->dtype == DEFT_I64 &&
           !df_is_float((deft_dtype)node_of(p, x->src[0].i)->dtype);
}

/* Plans operand number s of product or routine n, which is `node`. The operand is read through
 * strides on a val or an input; when that is impossible, a val is demanded and *progress is set. */
static deft_status plan_operand(pass *p, uint32_t n, uint32_t node, uint32_t s, group *g,
                                bool *progress)
{
    const bool matmul = class_of_op(p, n) == DF_CLASS_contract;
    const bool takes_halves = g->windows == DF_NONE && lifts(p, n);
    const bool takes_integers = s == 0 && df_op_writes_over((df_op)node_of(p, n)->op) && !matmul &&
                                class_of_op(p, n) == DF_CLASS_routine;
    windows *const w = s == 1 && g->windows != DF_NONE ? &p->windows.at[g->windows] : NULL;
    if (w) node = df_fuse_windows_begin(p, w);
    map_id map = df_map_identity(p, node_of(p, node)->rank);
    g->mm_val[s] = NO_VAL;
    while (p->st == DEFT_OK) {
        const val_id v = p->node_val[node];
        if (!IS_NONE(v)) {
            if (IS_NONE(val_at(p, v)->group)) {
                df_fuse_push_val(p, v);
                *progress = true;
                return p->st;
            }
            g->mm_val[s] = v;
            if (val_at(p, v)->level + 1 > g->level) g->level = val_at(p, v)->level + 1;
            break;
        }
        if (class_of_op(p, node) == DF_CLASS_view) {
            bool self;
            const uint32_t src = node_of(p, node)->src[0].i;
            const map_id next = df_map_view(p, node, map, &self);
            if (IS_NONE(next)) {
                *progress |=
                    df_fuse_demand(p, self ? node : src, n,
                                   matmul ? "a product reads operands through strides, and here "
                                            "is none"
                                          : at_once);
                return p->st;
            }
            df_fuse_why(p, node, n, "fused", "the %s reads its operand through strides",
                        matmul ? "product" : "routine");
            node = src;
            map = next;
            continue;
        }
        if (w && df_fuse_windows_padding(p, w, node, map)) {
            df_fuse_why(p, node, n, "fused", "the product reads zeros around its images");
            node = node_of(p, node)->src[1].i;
            continue;
        }
        if (takes_halves && is_lifted(p, node)) {
            df_fuse_why(p, node, n, "fused", "the product reads halves as f32");
            node = node_of(p, node)->src[0].i;
            continue;
        }
        if (takes_integers && is_widened(p, node)) {
            df_fuse_why(p, node, n, "fused", "the routine reads indices of any integer dtype");
            node = node_of(p, node)->src[0].i;
            continue;
        }
        const bool input = node_of(p, node)->op == DF_OP_input;
        const bool linear = map_at(p, map)->linear != 0;
        if (input && (!linear || p->t->inputs[node_of(p, node)->attr].flags & DF_INPUT_CONTIGUOUS))
            break;
        *progress |= df_fuse_demand(p, node, n, matmul ? many_times : at_once);
        return p->st;
    }
    g->mm_node[s] = node;
    g->mm_map[s] = map;
    return p->st;
}

uint32_t df_fuse_n_operands(const pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    if (x->op == DF_OP_result) return 0;
    if (x->op != DF_OP_call) return x->n_src - df_op_writes_over((df_op)x->op);
    const uint32_t n_in = df_opaque_count_inputs(p->t, x->src[0].i);
    df_assert(n_in <= DF_OPAQUE_MOST_TENSORS);
    return n_in;
}

uint32_t df_fuse_operand(const pass *p, uint32_t n, uint32_t s)
{
    const df_node *x = node_of(p, n);
    if (x->op != DF_OP_call) return x->src[s + df_op_writes_over((df_op)x->op)].i;
    x = node_of(p, x->src[0].i);
    while (s-- > 0) x = node_of(p, x->src[1].i);
    return x->src[0].i;
}

bool df_fuse_own_operands(pass *p, group *g)
{
    const uint32_t n = g->n_operands;
    g->mm_val = df_arena_copy(&p->tmp, g->mm_val, n * sizeof *g->mm_val, 8);
    g->mm_node = df_arena_copy(&p->tmp, g->mm_node, n * sizeof *g->mm_node, 8);
    g->mm_map = df_arena_copy(&p->tmp, g->mm_map, n * sizeof *g->mm_map, 8);
    return g->mm_val && g->mm_node && g->mm_map;
}

/* Plans the val of a product or a routine, whose operands and result are all stored. The base that
 * a routine adds to is not an operand: it is copied to the place of the result before (storage.c).
 */
static deft_status plan_whole(pass *p, val_id v, bool *progress)
{
    const uint32_t n = val_at(p, v)->node, n_operands = df_fuse_n_operands(p, n);
    val_id mm_val[DF_OPAQUE_MOST_TENSORS];
    uint32_t mm_node[DF_OPAQUE_MOST_TENSORS];
    map_id mm_map[DF_OPAQUE_MOST_TENSORS];
    group w = { .level = 0,
                .windows = df_fuse_windows_of(p, n),
                .mm_val = mm_val,
                .mm_node = mm_node,
                .mm_map = mm_map };
    *progress = false;
    if (node_of(p, n)->op == DF_OP_result) {
        const val_id call = p->node_val[node_of(p, n)->src[0].i];
        *progress = IS_NONE(val_at(p, call)->group);
        if (*progress) df_fuse_push_val(p, call);
        w.level = val_at(p, call)->level + 1;
    }
    for (uint32_t s = 0; s < n_operands; s++) {
        const deft_status st = plan_operand(p, n, df_fuse_operand(p, n, s), s, &w, progress);
        if (st != DEFT_OK) return st;
    }
    if (df_op_writes_over((df_op)node_of(p, n)->op)) {
        const val_id base = p->node_val[node_of(p, n)->src[0].i];
        const deft_status st = plan_update_base(p, n, false, progress);
        if (st != DEFT_OK) return st;
        if (!IS_NONE(base) && val_at(p, base)->level + 1 > w.level)
            w.level = val_at(p, base)->level + 1;
    }
    if (*progress) return p->st;
    const group_id g = df_fuse_new_group(
        p, class_of_op(p, n) == DF_CLASS_contract ? DF_SEG_MATMUL : DF_SEG_ROUTINE, n);
    if (p->st != DEFT_OK) return p->st;
    group *to = group_at(p, g);
    to->level = w.level;
    to->product = v;
    to->n_operands = n_operands;
    to->mm_val = mm_val;
    to->mm_node = mm_node;
    to->mm_map = mm_map;
    if (!df_fuse_own_operands(p, to))
        return df_fail_mem(p->diag, "fuser", n_operands * sizeof *mm_val);
    to->windows = w.windows;
    const map_id map = df_fuse_whole_loops(p, g);
    val *const x = val_at(p, v);
    x->group = g;
    x->level = w.level;
    x->map = map;
    return p->st;
}

/* Plans val v. Sets *progress instead if other vals must be planned first. */
static deft_status plan_val(pass *p, val_id v, bool *progress)
{
    const val w = *val_at(p, v);
    const bool update = w.visible && node_of(p, w.node)->op == DF_OP_update;
    deft_status st;
    *progress = false;
    if (w.visible &&
        (class_of_op(p, w.node) == DF_CLASS_contract || class_of_op(p, w.node) == DF_CLASS_routine))
        return plan_whole(p, v, progress);
    head h = { .expr = update ? node_of(p, w.node)->src[1].i : w.node, .val = v };
    space sp;
    df_space_of_head(p, h.expr, &sp, &h.map);
    h.dest = h.map;
    val_id after = NO_VAL;
    if (update) {
        st = df_fuse_update_dest(p, w.node, h.map, &h.dest);
        if (st != DEFT_OK) return st;
        const bool is_box = df_map_is_box(map_at(p, h.dest));
        st = plan_update_base(p, w.node, is_box, progress);
        if (st != DEFT_OK || *progress) return st;
        if (!is_box) after = p->node_val[node_of(p, w.node)->src[0].i];
    }
    st = df_fuse_run_alone(p, &h, &sp, progress);
    if (st != DEFT_OK || *progress) return st;
    if (p->c.joined == DF_NONE) return df_fuse_join_or_open(p, h, &sp, after);
    if (w.visible && !update) return df_fuse_plan_parts(p, &h, &sp, progress);
    *progress = df_fuse_demand(p, p->c.joined, h.expr, "its pieces are not written apart here");
    return p->st;
}

/* Plans val v and all vals that it needs. */
static deft_status plan_vals(pass *p, val_id v)
{
    df_fuse_push_val(p, v);
    while (p->val_stack.n > 0 && p->st == DEFT_OK) {
        const val_id top = p->val_stack.at[p->val_stack.n - 1];
        if (!IS_NONE(val_at(p, top)->group)) {
            p->val_stack.n--;
            continue;
        }
        bool progress;
        const deft_status st = plan_val(p, top, &progress);
        if (st != DEFT_OK) return st;
        df_assert(progress || !IS_NONE(val_at(p, top)->group));
    }
    return p->st;
}

/* ---- rounds ---- */

static void costs(pass *p)
{
    for (uint32_t n = 0; n < p->t->n_nodes; n++) {
        if (!(p->live[n] & 1)) continue;
        const df_node *const x = node_of(p, n);
        const bool is_joined = df_joined_is(p, n); /* an element is in one piece only */
        float sum = is_joined ? 0 : df_fuse_own_cost(p, n);
        if (df_op_infos[x->op].cls != DF_CLASS_leaf)
            for (uint32_t s = 0; s < x->n_src; s++) {
                const uint32_t src = x->src[s].i;
                const float of_src = !IS_NONE(p->node_val[src]) ? 1 : p->cost[src];
                sum = !is_joined ? sum + of_src : of_src > sum ? of_src : sum;
            }
        p->cost[n] = sum < 1e9f ? sum : 1e9f;
    }
}

/* Whether node n is always stored. */
static bool stored_by_nature(const pass *p, uint32_t n)
{
    const df_op op = (df_op)node_of(p, n)->op;
    switch ((df_op_class)df_op_infos[op].cls) {
    case DF_CLASS_update: return !df_surround_is(p, n);
    case DF_CLASS_contract:
    case DF_CLASS_control: return true;
    case DF_CLASS_routine: return op != DF_OP_pass;
    case DF_CLASS_leaf:
    case DF_CLASS_view: return false;
    case DF_CLASS_unary:
    case DF_CLASS_binary:
    case DF_CLASS_ternary:
    case DF_CLASS_reduce:
    case DF_CLASS_scan:
    case DF_CLASS_index: return !p->fuse;
    }
    df_unreachable();
}

/* The node that is computed into the memory of root n. When n is a chain of reshapes of a computed
 * node, that is the computed node, else n itself. */
static uint32_t behind_reshapes(const pass *p, uint32_t n)
{
    uint32_t src = n;
    while (node_of(p, src)->op == DF_OP_reshape) src = node_of(p, src)->src[0].i;
    const uint8_t cls = class_of_op(p, src);
    return cls == DF_CLASS_leaf || cls == DF_CLASS_view ? n : src;
}

static void root_vals(pass *p)
{
    for (uint32_t r = 0; r < p->t->n_roots; r++) {
        const df_root *const root = &p->t->roots[r];
        const bool into = root->kind == DF_ROOT_INTO;
        const uint32_t n = into ? root->node : behind_reshapes(p, root->node);
        const uint8_t cls = class_of_op(p, n);
        const bool bare = cls == DF_CLASS_leaf || cls == DF_CLASS_view;
        val_id v = bare ? NO_VAL : p->node_val[n];
        if (bare || (!IS_NONE(v) && val_at(p, v)->root != DF_NONE)) {
            /* The root gets a copy of the value. But a second new root of one node shares the
             * buffer of the first. */
            if (!bare && !into && p->t->roots[val_at(p, v)->root].kind == DF_ROOT_NEW) {
                p->root_val[r] = v;
                continue;
            }
            v = df_fuse_new_val(p, n, false);
        } else if (IS_NONE(v)) {
            v = df_fuse_new_val(p, n, true);
        }
        if (p->st != DEFT_OK) return;
        val_at(p, v)->root = r;
        p->root_val[r] = v;
    }
}

static deft_status try_round(pass *p)
{
    const uint32_t n_nodes = p->t->n_nodes;
    p->vals.n = p->heads.n = p->groups.n = p->val_stack.n = 0;
    for (uint32_t n = 0; n < n_nodes; n++) {
        p->node_val[n] = NO_VAL;
        p->touch[n] = NO_GROUP;
    }
    for (uint32_t n = 0; n < n_nodes; n++)
        if ((p->live[n] & 1) && !p->absorbed[n] && !df_joined_is(p, n) &&
            (p->must[n] || stored_by_nature(p, n)))
            df_fuse_new_val(p, n, true);
    root_vals(p);
    if (p->st != DEFT_OK) return p->st;
    costs(p);
    for (uint32_t n = 0; n < n_nodes; n++) {
        if (IS_NONE(p->node_val[n])) continue;
        const deft_status st = plan_vals(p, p->node_val[n]);
        if (st != DEFT_OK) return st;
    }
    for (val_id v = { 0 }; v.i < p->vals.n; v.i++) {
        if (val_at(p, v)->visible) continue;
        const deft_status st = plan_vals(p, v);
        if (st != DEFT_OK) return st;
    }
    return p->st;
}

/* Plans all vals. Every joined array that is stored has its val before any group reads it, so its
 * readers come after it. Each try stores more of these arrays than the one before. */
static deft_status plan_round(pass *p)
{
    for (;;) {
        const deft_status st = try_round(p);
        if (st != DEFT_OK || !p->stored_late) return st;
        df_joined_again(p);
    }
}

deft_status df_fuse_groups(pass *p)
{
    const uint32_t n = p->t->n_nodes;
    p->node_val = df_arena_alloc(&p->tmp, (n + 1) * sizeof *p->node_val, _Alignof(val_id));
    p->touch = df_arena_alloc(&p->tmp, (n + 1) * sizeof *p->touch, _Alignof(group_id));
    p->cost = df_arena_new(&p->tmp, float, n + 1);
    p->must = df_arena_new(&p->tmp, uint8_t, n + 1);
    p->root_val = df_arena_new(&p->tmp, val_id, p->t->n_roots + 1);
    if (!p->node_val || !p->touch || !p->cost || !p->must || !p->root_val)
        return df_fail_mem(p->diag, "fuser", n * sizeof *p->node_val);
    for (uint32_t round = 0;; round++) {
        bool again = false;
        p->has_checks = p->checks_first = false;
        deft_status st = plan_round(p);
        if (st == DEFT_OK) st = df_fuse_final_cones(p);
        if (st == DEFT_OK && p->fuse && round + 1 < MAX_ROUNDS) st = df_fuse_find_shared(p, &again);
        if (st != DEFT_OK) return st;
        if (again) continue;
        df_fuse_explain(p);
        return p->st;
    }
}
