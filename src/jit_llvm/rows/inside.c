/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of rows. A kernel that reads elements around its own, of which some do not exist
 * (load_if), tests for each of them whether it exists. Nearly all tests hold: those of a padded
 * image fail at its edge alone. So rows of a MAP kernel are divided, and each part has its code:
 *
 *   row within the image?   no:    general code for all lanes
 *                           yes:   edge | code that tests nothing | edge
 *                                  i0     first                     end    i1
 *
 * A *condition* is a comparison of an index with a number, both of which are the same in all rows,
 * or in all lanes of a row. Inside, the conditions of load_if hold, and no index equals a number
 * that it is compared with. What follows from that is a constant inside (df_val.inside). So the
 * code there has plain loads, and the selections for the first element of a window are gone, too.
 *
 * The inside begins at i0, or one vector after it. It ends at i1, or after whole vectors that leave
 * less than one. So rows have as many vectors as without it, and each edge is one vector, at the
 * same lanes in all rows. What depends on lanes alone, as the masks of its loads, is computed for
 * an edge before the walk over rows. Rows with thicker edges have no inside.
 */
#include "jit_llvm/gen.h"

#include <string.h>

enum {
    MOST_SPLIT = 400, /* most instructions of a body that is written several times */
    LARGEST_LOG2 = 61 /* beyond this power of 2, indices and numbers might overflow */
};

/* ---- what is known inside ---- */

static bool is_comparison(const df_ins *ins)
{
    return ins->op == DF_K_lt || ins->op == DF_K_le || ins->op == DF_K_eq || ins->op == DF_K_ne;
}

/* The operand, 0 or 1, of comparison i that is an index, if i is a condition; else -1. */
static int index_operand(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (!is_comparison(ins)) return -1;
    for (int n = 0; n < 2; n++) {
        const uint32_t from = ins->src[n];
        if (g->k->ins[from].op != DF_K_index) continue;
        const uint8_t moves = g->acc[g->k->ins[from].imm].moves;
        if (moves != MOVES_INNER && moves != MOVES_OUTER) continue;
        if (g->val[ins->src[1 - n]].place == PLACE_ENTRY) return n;
    }
    return -1;
}

/* Marks the comparisons that condition i of a load_if is a conjunction of. They hold inside. */
static void must_hold(df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (ins->op == DF_K_and) {
        must_hold(g, ins->src[0]);
        must_hold(g, ins->src[1]);
    } else if (index_operand(g, i) >= 0 && ins->op != DF_K_eq && ins->op != DF_K_ne) {
        g->val[i].inside = DF_INSIDE_TRUE;
    }
}

static df_inside not_of(df_inside a)
{
    return a == DF_INSIDE_ANY ? a : a == DF_INSIDE_TRUE ? DF_INSIDE_FALSE : DF_INSIDE_TRUE;
}

/* What follows for instruction i from what is known of its operands. */
static df_inside follows(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    const uint32_t n = df_gen_n_src(g, i);
    const df_inside a = n > 0 ? (df_inside)g->val[ins->src[0]].inside : DF_INSIDE_ANY;
    const df_inside b = n > 1 ? (df_inside)g->val[ins->src[1]].inside : DF_INSIDE_ANY;
    const df_inside strong = ins->op == DF_K_or ? DF_INSIDE_TRUE : DF_INSIDE_FALSE;
    if (ins->dtype != DEFT_BOOL || g->val[i].place == PLACE_ENTRY) return DF_INSIDE_ANY;
    if (ins->op == DF_K_not) return not_of(a);
    if (ins->op == DF_K_and || ins->op == DF_K_or)
        return a == strong || b == strong ? strong : a == b ? a : DF_INSIDE_ANY;
    if (index_operand(g, i) < 0) return DF_INSIDE_ANY;
    return ins->op == DF_K_eq   ? DF_INSIDE_FALSE
           : ins->op == DF_K_ne ? DF_INSIDE_TRUE
                                : DF_INSIDE_ANY;
}

void df_inside_find(df_gen *g)
{
    g->has_inside = false;
    if (g->k->mode != DF_MODE_MAP || g->vec_axis < 0 || g->w == 1 || g->tile_rows > 0) return;
    if (g->level == DF_OPT_O0 || g->k->n_ins > MOST_SPLIT) return;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].op == DF_K_load_if) must_hold(g, g->k->ins[i].src[0]);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        if (g->val[i].inside == DF_INSIDE_ANY) g->val[i].inside = (uint8_t)follows(g, i);
        g->has_inside |= ins->op == DF_K_load_if && g->val[ins->src[0]].inside == DF_INSIDE_TRUE;
    }
}

/* ---- where it is ---- */

/* The lanes that are inside: from `first` up to but excluding `end`. */
typedef struct lanes_inside {
    LLVMValueRef first, end;
    LLVMValueRef is_safe; /* nothing overflows, and all indices grow */
} lanes_inside;

static LLVMValueRef larger(df_gen *g, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildSelect(g->b, LLVMBuildICmp(g->b, LLVMIntSGT, a, b, ""), a, b, "");
}

static void requires(df_gen *g, lanes_inside *in, LLVMValueRef is)
{
    in->is_safe = LLVMBuildAnd(g->b, in->is_safe, is, "");
}

static void requires_small(df_gen *g, lanes_inside *in, LLVMValueRef x)
{
    const int64_t most = (int64_t)1 << LARGEST_LOG2;
    LLVMValueRef up = LLVMBuildAdd(g->b, x, df_gen_i64(g, most), "");
    requires(g, in, LLVMBuildICmp(g->b, LLVMIntULE, up, df_gen_i64(g, 2 * most), ""));
}

/* The first lane, from 0 on, whose index is at least x. */
static LLVMValueRef first_lane(df_gen *g, uint32_t access, LLVMValueRef x, lanes_inside *in)
{
    LLVMValueRef at = g->acc[access].base, step = g->acc[access].step, one = df_gen_i64(g, 1);
    requires_small(g, in, x);
    requires_small(g, in, at);
    LLVMValueRef left = larger(g, LLVMBuildSub(g->b, x, at, ""), df_gen_i64(g, 0));
    if (!step) return left;
    requires(g, in, LLVMBuildICmp(g->b, LLVMIntSGT, step, df_gen_i64(g, 0), ""));
    requires_small(g, in, step);
    step = larger(g, step, one);
    left = LLVMBuildAdd(g->b, left, LLVMBuildSub(g->b, step, one, ""), "");
    return LLVMBuildUDiv(g->b, left, step, "");
}

/* Takes away the lanes up to p, or those from p on, whichever are fewer. */
static void exclude(df_gen *g, lanes_inside *in, LLVMValueRef p)
{
    LLVMValueRef middle = LLVMBuildAdd(g->b, g->i0, g->i1_, "");
    middle = LLVMBuildAShr(g->b, middle, df_gen_i64(g, 1), "");
    LLVMValueRef is_low = LLVMBuildICmp(g->b, LLVMIntSLT, p, middle, "");
    LLVMValueRef past = LLVMBuildAdd(g->b, p, df_gen_i64(g, 1), "");
    in->first = LLVMBuildSelect(g->b, is_low, larger(g, in->first, past), in->first, "");
    in->end = LLVMBuildSelect(g->b, is_low, in->end, df_gen_min(g, in->end, p), "");
}

/* Takes away the lanes in which condition i is not what it is inside. */
static void narrow(df_gen *g, lanes_inside *in, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    const int n = index_operand(g, i);
    const uint32_t access = (uint32_t)g->k->ins[ins->src[n]].imm;
    LLVMValueRef x = df_gen_sca(g, ins->src[1 - n]);
    /* x <= index and index < x begin to differ at x; x < index and index <= x behind it. */
    if ((ins->op == DF_K_le && n == 0) || (ins->op == DF_K_lt && n == 1))
        x = LLVMBuildAdd(g->b, x, df_gen_i64(g, 1), "");
    LLVMValueRef p = first_lane(g, access, x, in);
    if (ins->op == DF_K_eq || ins->op == DF_K_ne)
        exclude(g, in, p);
    else if (n == 0)
        in->end = df_gen_min(g, in->end, p);
    else
        in->first = larger(g, in->first, p);
}

static bool is_condition(const df_gen *g, uint32_t i, df_gen_level place)
{
    return g->val[i].inside != DF_INSIDE_ANY && g->val[i].place == place &&
           index_operand(g, i) >= 0;
}

/* ---- edges ---- */

/* Writes what all rows share of the vector from lane0 on; lanes from `end` on are masked off. */
static df_edge edge_of(df_gen *g, LLVMValueRef lane0, LLVMValueRef end)
{
    df_gen_lanes_begin(g, lane0, end);
    df_edge e = { lane0, g->n_active, g->mask, g->epoch, df_gen_values(g, g->k->n_ins), { { 0 } } };
    g->part = DF_ROW_EDGE;
    df_gen_same_in_rows(g);
    g->part = DF_ROW_ANY;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->val[i].epoch == g->epoch) e.lanes[i] = g->val[i].lanes[0];
    memcpy(e.pair_mask, g->pair_mask, sizeof e.pair_mask);
    return e;
}

static void edge_body(df_gen *g, const df_edge *e)
{
    df_gen_lanes_begin(g, e->lane0, NULL);
    g->masks[0] = e->mask;
    g->n_actives[0] = e->n_active;
    df_gen_copy(g, 0);
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (e->lanes[i]) df_gen_set_lanes(g, i, e->lanes[i]);
    memcpy(g->pair_mask, e->pair_mask, sizeof e->pair_mask);
    for (uint32_t i = 0; i < DF_PAIR_MASKS; i++)
        if (g->pair_mask[i].epoch == e->epoch) g->pair_mask[i].epoch = g->epoch;
    g->part = DF_ROW_EDGE;
    df_gen_place(g, PLACE_BODY);
    g->part = DF_ROW_ANY;
}

df_inside_lanes df_inside_cut(df_gen *g)
{
    lanes_inside in = { g->i0, g->i1_, LLVMConstInt(g->i1, 1, 0) };
    df_inside_lanes out;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (is_condition(g, i, PLACE_BODY)) narrow(g, &in, i);
    LLVMValueRef w = df_gen_i64(g, g->w), whole = df_gen_i64(g, -(int64_t)g->w);
    LLVMValueRef is_thick = LLVMBuildICmp(g->b, LLVMIntSGT, in.first, g->i0, "");
    out.has_left = is_thick;
    out.first = LLVMBuildAdd(g->b, g->i0, w, "");
    requires(g, &in, LLVMBuildICmp(g->b, LLVMIntSLE, in.first, out.first, ""));
    out.first = LLVMBuildSelect(g->b, is_thick, out.first, g->i0, "");
    LLVMValueRef n = LLVMBuildAnd(g->b, LLVMBuildSub(g->b, in.end, out.first, ""), whole, "");
    out.end = LLVMBuildAdd(g->b, out.first, n, "");
    out.has_right = LLVMBuildICmp(g->b, LLVMIntSLT, in.end, g->i1_, "");
    out.end = LLVMBuildSelect(g->b, out.has_right, out.end, g->i1_, "");
    LLVMValueRef rest = LLVMBuildSub(g->b, g->i1_, out.end, "");
    requires(g, &in, LLVMBuildICmp(g->b, LLVMIntSLT, rest, w, ""));
    requires(g, &in, LLVMBuildICmp(g->b, LLVMIntSLT, out.first, out.end, ""));
    out.is_any = in.is_safe;
    out.left = edge_of(g, g->i0, NULL);
    out.right = edge_of(g, out.end, g->i1_);
    out.others = df_lanes_cut(g, g->i0, g->i1_);
    const uint32_t multiple = g->multiple;
    if (g->multiple > g->w) g->multiple = g->w; /* it begins and ends at any vector */
    out.lanes = df_lanes_cut(g, out.first, out.end);
    g->multiple = multiple;
    return out;
}

/* ---- rows ---- */

/* Whether the row is inside, as far as conditions on outer axes tell. */
static LLVMValueRef is_row_inside(df_gen *g, const df_inside_lanes *in)
{
    LLVMValueRef is = in->is_any;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!is_condition(g, i, PLACE_PRE)) continue;
        LLVMValueRef holds = df_gen_sca(g, i);
        if (g->val[i].inside == DF_INSIDE_FALSE) holds = LLVMBuildNot(g->b, holds, "");
        is = LLVMBuildAnd(g->b, is, holds, "");
    }
    return is;
}

static void edge_if(df_gen *g, LLVMValueRef has, const df_edge *e)
{
    df_if edge;
    df_if_begin(g, &edge, has);
    edge_body(g, e);
    df_if_end(g, &edge);
}

void df_inside_row(df_gen *g, const df_inside_lanes *in)
{
    const uint32_t multiple = g->multiple;
    LLVMValueRef is_inside = is_row_inside(g, in);
    df_if inside, outside;
    df_if_begin(g, &inside, is_inside);
    edge_if(g, in->has_left, &in->left);
    if (g->multiple > g->w) g->multiple = g->w;
    g->part = DF_ROW_INSIDE;
    df_lanes_loop(g, &in->lanes);
    g->part = DF_ROW_ANY;
    g->multiple = multiple;
    edge_if(g, in->has_right, &in->right);
    df_if_end(g, &inside);
    df_if_begin(g, &outside, LLVMBuildNot(g->b, is_inside, ""));
    df_lanes_loop(g, &in->others);
    df_if_end(g, &outside);
}
