/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions of ROW kernels: lanes run along the last reduced axis.
 *
 * The 64 accumulators are 64 / w vectors. A short body takes 64 elements per iteration, with the
 * accumulators in registers. The rest of a block, and all of it for a long body, is done vector by
 * vector with the accumulators in memory. The 64 / w chains are independent, and long bodies hide
 * their latency. An accumulator without elements holds the identity. x op identity has the bits of
 * x, which is why the identity of a float sum is -0.0. So rows shorter than 64 fold like any other.
 *
 *     r0             all groups of 64                  the rest, masked
 *     +---- 64 ----+---- 64 ----+ ... +---- 64 ----+-- w --+-- w --+ part |
 *     acc 0 1 2 3    0 1 2 3            0 1 2 3        0       1      2
 *                         fold: acc[j] op= acc[j + h], h = 32 .. 1
 *
 * A row of one block gives the fold. Only longer rows use the stack of block results.
 *
 * Reductions of integers have the same bits in any order. When a stage has no others, all blocks of
 * a call are reduced as one, with a single fold. Then short vectors also get more accumulators than
 * 64 elements take, because one or two chains are slower than the loads. The maximum of 256 K i8
 * takes 0.7 of the time.
 *
 * With several reduced axes, a run along the last of them may end at any lane. Then the body is
 * computed run by run; each run begins at lane 0. The operands of reductions are stored in memory,
 * contiguously and a block at a time, and the steps above are applied to them. That costs a store
 * and a load in L1 per element, but no lane needs an index of its own.
 */
#include "jit_llvm/gen.h"

enum {
    UNROLL_BODY = 96, /* most instructions in an iteration of 64 elements */
    UNROLL_REGS = 24, /* most registers for accumulators */
    FREE_VECTORS = 4, /* fewest vectors in an iteration whose order changes no bit */
};

/* Whether the order of elements changes no bit of any reduction of the stage, and a fold over all
 * of them needs no other index or memory than that of one block. */
static bool may_fold_once(df_gen *g, uint32_t stage)
{
    DF_FOR_REDS(r, g, stage)
    if (r->is_arg || df_is_real((deft_dtype)r->dtype)) return false;
    return !g->has_runs;
}

/* The number of vectors in an iteration of whole_groups. */
static uint32_t vectors_of_group(df_gen *g, uint32_t stage)
{
    const uint32_t n = DF_LANES / g->w;
    return n < FREE_VECTORS && may_fold_once(g, stage) ? FREE_VECTORS : n;
}

/* The result of a reduction without elements. */
static LLVMValueRef of_nothing(df_gen *g, const df_gen_red *r)
{
    const deft_dtype t = (deft_dtype)r->dtype;
    return df_gen_const(g, t, r->op == DF_K_sum ? 0 : df_kop_identity((df_kop)r->op, t));
}

/* ---- fold ---- */

/* Folds: acc[j] = acc[j] op acc[j + h] for h = 32 .. 1. As long as h >= w whole vectors are joined,
 * then the halves of the first vector. */
static df_pair row_fold_accumulators(df_gen *g, const df_gen_red *r, df_pair *acc)
{
    uint32_t h = DF_LANES / 2;
    for (; h >= g->w; h /= 2)
        for (uint32_t j = 0; j < h / g->w; j++)
            acc[j] = df_reduce_join(g, r, acc[j], acc[j + h / g->w]);
    for (; h >= 1; h /= 2) {
        df_pair low = { df_gen_take_lanes(g, acc[0].v, 0, h), NULL },
                high = { df_gen_take_lanes(g, acc[0].v, h, h), NULL };
        if (r->is_arg) {
            low.i = df_gen_take_lanes(g, acc[0].i, 0, h);
            high.i = df_gen_take_lanes(g, acc[0].i, h, h);
        }
        acc[0] = df_reduce_join(g, r, low, high);
    }
    return acc[0];
}

/* ---- one block ---- */

/* The positions of the elements that belong first to accumulator vector number `vector`. */
static LLVMValueRef first_positions(df_gen *g, LLVMValueRef r0, uint32_t vector)
{
    LLVMValueRef at = LLVMBuildAdd(g->b, r0, df_gen_i64(g, vector * g->w), "");
    at = df_gen_splat(g, at, g->w);
    return g->w == 1 ? at : LLVMBuildAdd(g->b, at, df_gen_iota(g, g->i64, g->w), "");
}

static void row_body(df_gen *g, uint32_t stage)
{
    if (g->has_runs)
        df_reduce_gathered(g, stage);
    else
        df_gen_place(g, PLACE_BODY);
}

/* Whether whole_groups is used for this stage. */
static bool unrolls(df_gen *g, uint32_t stage)
{
    const uint32_t n_vec = vectors_of_group(g, stage);
    uint32_t regs = 0;
    if (g->level == DF_OPT_O0 || g->w == 1 || n_vec > 8) return false;
    DF_FOR_REDS(r, g, stage) regs += n_vec * (r->is_arg ? 3 : 1);
    const uint32_t size = g->has_runs ? df_reduce_count(g, stage) : df_gen_body_size(g);
    return regs <= UNROLL_REGS && size * n_vec <= UNROLL_BODY;
}

/* Sets the accumulators of the stage, which a loop has carried, to from[]. */
static void take_accumulators(df_gen *g, uint32_t stage, uint32_t n_vec, LLVMValueRef *from)
{
    uint32_t n = 0;
    DF_FOR_REDS(r, g, stage)
    for (uint32_t j = 0; j < n_vec; j++) {
        r->reg[j] = from[n++];
        if (r->is_arg) r->reg_idx[j] = from[n++];
    }
}

/* Writes the body for one group of vectors from `at` on. */
static void one_group(df_gen *g, uint32_t stage, LLVMValueRef at, uint32_t n_vec)
{
    for (uint32_t j = 0; j < n_vec; j++) {
        g->reg = j;
        g->red_at = LLVMBuildAdd(g->b, at, df_gen_i64(g, j * g->w), "");
        df_gen_lanes_begin(g, g->red_at, NULL);
        if (g->is_fetching) df_fetch_vector(g, j, n_vec);
        row_body(g, stage);
    }
}

/* Reduces the whole groups of vectors in [r0, to), with the accumulators in registers. They stay
 * there, or are stored to memory. Accumulators beyond 64 elements are joined to the others. */
static void whole_groups(df_gen *g, uint32_t stage, LLVMValueRef r0, LLVMValueRef to, bool stores)
{
    const uint32_t n_vec = vectors_of_group(g, stage), n_kept = DF_LANES / g->w;
    df_loop l;
    df_ahead ahead;
    const bool is_ahead = df_ahead_find(g, r0, to, n_vec, &ahead);
    if (is_ahead) {
        df_ahead_begin(g, &ahead, r0);
        to = df_ahead_until(g, to);
    }
    df_loop_begin(g, &l, r0, to, df_gen_i64(g, n_vec * g->w),
                  2 * n_vec * df_reduce_count(g, stage) + (is_ahead ? DF_COPIES : 0));
    /* Positions are computed before the loop. */
    LLVMBasicBlockRef body = LLVMGetInsertBlock(g->b);
    DF_FOR_REDS(r, g, stage)
    {
        r->reg = df_gen_values(g, n_vec);
        r->reg_idx = df_gen_values(g, n_vec);
        for (uint32_t j = 0; j < n_vec; j++) {
            LLVMValueRef first = NULL;
            if (r->is_arg) {
                LLVMPositionBuilderBefore(g->b, LLVMGetBasicBlockTerminator(l.pre));
                first = first_positions(g, r0, j);
                LLVMPositionBuilderAtEnd(g->b, body);
            }
            r->reg[j] = df_loop_carry(g, &l, df_reduce_identity(g, r, g->w));
            if (r->is_arg) r->reg_idx[j] = df_loop_carry(g, &l, first);
        }
    }
    for (uint32_t c = 0; c < DF_COPIES && is_ahead; c++)
        ahead.value[c] = df_loop_carry(g, &l, ahead.value[c]);
    g->in_regs = true;
    g->are_as_loaded = g->are_twos && df_twos_reduce_as_loaded(g, stage);
    if (is_ahead)
        df_ahead_step(g, &ahead, l.i);
    else
        one_group(g, stage, l.i, n_vec);
    uint32_t n = 0;
    DF_FOR_REDS(r, g, stage)
    for (uint32_t j = 0; j < n_vec; j++) {
        l.next[n++] = r->reg[j];
        if (r->is_arg) l.next[n++] = r->reg_idx[j];
    }
    for (uint32_t c = 0; c < DF_COPIES && is_ahead; c++) l.next[n + c] = ahead.value[c];
    df_loop_end(g, &l);
    take_accumulators(g, stage, n_vec, l.out);
    if (is_ahead) {
        for (uint32_t c = 0; c < DF_COPIES; c++) ahead.value[c] = l.out[n + c];
        df_ahead_end(g, &ahead, to);
    }
    g->in_regs = false;
    DF_FOR_REDS(r, g, stage)
    {
        for (uint32_t j = n_vec; j-- > n_kept;) {
            const df_pair into = { r->reg[j - n_kept], NULL }, from = { r->reg[j], NULL };
            r->reg[j - n_kept] = df_reduce_join(g, r, into, from).v;
        }
    }
    if (g->are_as_loaded) df_twos_part_accumulators(g, stage, n_kept);
    g->are_as_loaded = false;
    DF_FOR_REDS(r, g, stage)
    {
        for (uint32_t j = 0; j < n_kept && stores; j++) {
            LLVMValueRef at = df_gen_i64(g, j);
            LLVMBuildStore(g->b, r->reg[j], df_reduce_at(g, r->mem, df_reduce_type(g, r), at));
            if (r->is_arg)
                LLVMBuildStore(g->b, r->reg_idx[j], df_reduce_at(g, r->mem_idx, g->i64, at));
        }
    }
}

static void set_identities(df_gen *g, uint32_t stage, LLVMValueRef r0)
{
    DF_FOR_REDS(r, g, stage)
    for (uint32_t j = 0; j < DF_LANES / g->w; j++) {
        LLVMValueRef at = df_gen_i64(g, j);
        LLVMBuildStore(g->b, df_reduce_identity(g, r, g->w),
                       df_reduce_at(g, r->mem, df_reduce_type(g, r), at));
        if (r->is_arg)
            LLVMBuildStore(g->b, first_positions(g, r0, j),
                           df_reduce_at(g, r->mem_idx, g->i64, at));
    }
}

static void one_vector(df_gen *g, uint32_t stage, LLVMValueRef at, LLVMValueRef end)
{
    /* Blocks start at multiples of 64, so the position determines the accumulator. */
    LLVMValueRef vector = LLVMBuildUDiv(g->b, at, df_gen_i64(g, g->w), "");
    g->acc_at = LLVMBuildAnd(g->b, vector, df_gen_i64(g, DF_LANES / g->w - 1), "");
    g->red_at = at;
    df_gen_lanes_begin(g, at, end);
    row_body(g, stage);
}

/* Reduces [from, to) vector by vector, with the accumulators in memory. are_few: these are less
 * than a group of vectors. */
static void row_reduce_vectors(df_gen *g, uint32_t stage, LLVMValueRef from, LLVMValueRef to,
                               bool are_few)
{
    df_loop l;
    if (g->w == 1 || (g->native_masks && (are_few || df_gen_one_loop(g)))) {
        df_loop_begin(g, &l, from, to, df_gen_i64(g, g->w), 0);
        one_vector(g, stage, l.i, g->w == 1 ? NULL : to);
        df_loop_end(g, &l);
        return;
    }
    LLVMValueRef whole = df_gen_whole(g, from, to, g->w);
    df_loop_begin(g, &l, from, whole, df_gen_i64(g, g->w), 0);
    one_vector(g, stage, l.i, NULL);
    df_loop_end(g, &l);
    if (whole == to) return;
    df_if tail;
    df_if_begin(g, &tail, LLVMBuildICmp(g->b, LLVMIntSLT, whole, to, ""));
    one_vector(g, stage, whole, to);
    df_if_end(g, &tail);
}

/* Two versions of the code for the groups of a block, of which a branch takes one. */
typedef struct versions {
    LLVMBasicBlockRef second, done, end_of_first;
    LLVMValueRef *of_first[2 * DF_LANES]; /* its accumulators: values and positions in turn */
} versions;

/* Begins the first version, which is taken where `is` holds. */
static void versions_begin(df_gen *g, versions *v, LLVMValueRef is)
{
    LLVMBasicBlockRef first = df_gen_block(g, "first");
    v->second = df_gen_block(g, "second");
    v->done = df_gen_block(g, "grouped");
    LLVMBuildCondBr(g->b, is, first, v->second);
    LLVMPositionBuilderAtEnd(g->b, first);
}

/* Ends the first version and begins the second. */
static void versions_next(df_gen *g, versions *v, uint32_t stage)
{
    uint32_t n = 0;
    DF_FOR_REDS(r, g, stage) v->of_first[n++] = r->reg, v->of_first[n++] = r->reg_idx;
    v->end_of_first = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, v->done);
    LLVMPositionBuilderAtEnd(g->b, v->second);
}

/* Ends the second version. Accumulators in registers are then those of the version that ran. */
static void versions_end(df_gen *g, versions *v, uint32_t stage, bool stores)
{
    LLVMBasicBlockRef end_of_second = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, v->done);
    LLVMPositionBuilderAtEnd(g->b, v->done);
    uint32_t n = 0;
    DF_FOR_REDS(r, g, stage)
    {
        LLVMValueRef *const both[2] = { r->reg, r->is_arg ? r->reg_idx : NULL };
        for (uint32_t k = 0; k < 2; k++, n++)
            for (uint32_t j = 0; !stores && both[k] && j < DF_LANES / g->w; j++) {
                LLVMValueRef phi = LLVMBuildPhi(g->b, LLVMTypeOf(both[k][j]), "");
                LLVMAddIncoming(phi, &v->of_first[n][j], &v->end_of_first, 1);
                LLVMAddIncoming(phi, &both[k][j], &end_of_second, 1);
                both[k][j] = phi;
            }
    }
}

/* whole_groups, with a version for operands that alternate. */
static void groups_or_twos(df_gen *g, uint32_t stage, LLVMValueRef r0, LLVMValueRef to, bool stores)
{
    versions v;
    const bool has_twos = df_twos_pay(g);
    if (has_twos) {
        versions_begin(g, &v, df_twos_hold(g));
        g->are_twos = true;
        whole_groups(g, stage, r0, to, stores);
        g->are_twos = false;
        versions_next(g, &v, stage);
    }
    whole_groups(g, stage, r0, to, stores);
    if (has_twos) versions_end(g, &v, stage, stores);
}

/* The same, with a version whose loads prefetch. */
static void groups_fetched(df_gen *g, uint32_t stage, LLVMValueRef r0, LLVMValueRef to, bool stores)
{
    versions v;
    if (g->fetches) {
        versions_begin(g, &v, g->fetches);
        g->is_fetching = true;
        groups_or_twos(g, stage, r0, to, stores);
        g->is_fetching = false;
        df_fetch_end(g);
        versions_next(g, &v, stage);
    }
    groups_or_twos(g, stage, r0, to, stores);
    if (g->fetches) versions_end(g, &v, stage, stores);
}

/* Reduces the elements [r0, end), which are one block or may be folded at once. out[] gets the
 * results in order of the reduce instructions. */
static void row_reduce_block(df_gen *g, uint32_t stage, LLVMValueRef r0, LLVMValueRef end,
                             df_pair *out)
{
    LLVMValueRef from = r0;
    const bool is_unrolled = unrolls(g, stage);
    bool has_rest = true; /* and so accumulators are in memory */
    if (g->has_runs) df_gen_elements(g, r0, end, true);
    g->gathered = r0;
    if (is_unrolled) {
        from = df_gen_whole(g, r0, end, vectors_of_group(g, stage) * g->w);
        has_rest = from != end;
        groups_fetched(g, stage, r0, from, has_rest);
    } else {
        set_identities(g, stage, r0);
    }
    if (has_rest) row_reduce_vectors(g, stage, from, end, is_unrolled);
    uint32_t n = 0;
    DF_FOR_REDS(r, g, stage)
    {
        df_pair acc[DF_LANES];
        for (uint32_t j = 0; j < DF_LANES / g->w; j++) {
            acc[j] = (df_pair){ NULL, NULL };
            if (!has_rest) {
                acc[j] = (df_pair){ r->reg[j], r->is_arg ? r->reg_idx[j] : NULL };
                continue;
            }
            acc[j].v = df_reduce_load(g, r->mem, df_reduce_type(g, r), df_gen_i64(g, j));
            acc[j].i = r->is_arg ? df_reduce_load(g, r->mem_idx, g->i64, df_gen_i64(g, j)) : NULL;
        }
        out[n++] = row_fold_accumulators(g, r, acc);
    }
}

/* ---- joining blocks ---- */

static df_pair stack_at(df_gen *g, const df_gen_red *r, LLVMValueRef at)
{
    LLVMTypeRef t = df_reduce_type(g, r);
    df_pair p = { LLVMBuildLoad2(g->b, t, df_gen_at(g, t, r->stack, at), ""), NULL };
    if (r->is_arg) p.i = LLVMBuildLoad2(g->b, g->i64, df_gen_at(g, g->i64, r->stack_idx, at), "");
    return p;
}

static void stack_put(df_gen *g, const df_gen_red *r, LLVMValueRef at, df_pair p)
{
    LLVMBuildStore(g->b, p.v, df_gen_at(g, df_reduce_type(g, r), r->stack, at));
    if (r->is_arg) LLVMBuildStore(g->b, p.i, df_gen_at(g, g->i64, r->stack_idx, at));
}

/* Pushes a block's result and joins the two newest entries n times. Returns the number of entries
 * afterwards. */
static LLVMValueRef push(df_gen *g, uint32_t stage, LLVMValueRef height, const df_pair *result,
                         LLVMValueRef n)
{
    uint32_t at = 0;
    DF_FOR_REDS(r, g, stage) stack_put(g, r, height, result[at++]);
    df_loop l;
    df_loop_begin(g, &l, df_gen_i64(g, 0), n, df_gen_i64(g, 1), 1);
    LLVMValueRef newer = df_loop_carry(g, &l, height);
    LLVMValueRef older = LLVMBuildSub(g->b, newer, df_gen_i64(g, 1), "");
    DF_FOR_REDS(r, g, stage)
    stack_put(g, r, older, df_reduce_join(g, r, stack_at(g, r, older), stack_at(g, r, newer)));
    l.next[0] = older;
    df_loop_end(g, &l);
    return LLVMBuildAdd(g->b, l.out[0], df_gen_i64(g, 1), "");
}

/* ---- entries ---- */

static void row_alloc_arrays(df_gen *g, uint32_t stage)
{
    DF_FOR_REDS(r, g, stage)
    {
        LLVMTypeRef t = df_reduce_type(g, r);
        r->stack = df_gen_alloca(g, t, DF_TREE_DEPTH, 8);
        r->mem = df_gen_alloca(g, t, DF_LANES, 64);
        if (g->has_runs) r->operands = df_gen_alloca(g, t, DF_BLOCK, 64);
        if (!r->is_arg) continue;
        r->stack_idx = df_gen_alloca(g, g->i64, DF_TREE_DEPTH, 8);
        r->mem_idx = df_gen_alloca(g, g->i64, DF_LANES, 64);
    }
}

/* The value of the reduce instruction whose reduction ended as p. */
static LLVMValueRef result_of(df_gen *g, const df_gen_red *r, df_pair p)
{
    if (r->is_arg) return p.i;
    const bool is_bool = g->k->ins[r->ins].dtype == DEFT_BOOL;
    return is_bool ? LLVMBuildICmp(g->b, LLVMIntNE, p.v, LLVMConstInt(g->i8, 0, 0), "") : p.v;
}

static LLVMValueRef block_end(df_gen *g, LLVMValueRef r0)
{
    return df_gen_min(g, LLVMBuildAdd(g->b, r0, df_gen_i64(g, DF_BLOCK), ""), g->length);
}

static LLVMValueRef row_partial_at(df_gen *g, uint32_t slot, LLVMValueRef n_blocks, LLVMValueRef b)
{
    LLVMValueRef at = LLVMBuildMul(g->b, df_gen_i64(g, slot), n_blocks, "");
    return df_gen_at(g, g->i64, g->p_partial, LLVMBuildAdd(g->b, at, b, ""));
}

static LLVMTypeRef row_bits_type(const df_gen *g, const df_gen_red *r)
{
    return LLVMIntTypeInContext(g->ctx, 8 * df_bytes_of((deft_dtype)r->dtype));
}

static void store_partials(df_gen *g, LLVMValueRef n_blocks, LLVMValueRef b, const df_pair *result)
{
    uint32_t n = 0;
    DF_FOR_REDS(r, g, 0)
    {
        LLVMValueRef bits = LLVMBuildBitCast(g->b, result[n].v, row_bits_type(g, r), "");
        LLVMBuildStore(g->b, LLVMBuildZExtOrBitCast(g->b, bits, g->i64, ""),
                       row_partial_at(g, r->first_slot, n_blocks, b));
        if (r->is_arg)
            LLVMBuildStore(g->b, result[n].i, row_partial_at(g, r->first_slot + 1, n_blocks, b));
        n++;
    }
}

static void load_partials(df_gen *g, LLVMValueRef n_blocks, LLVMValueRef b, df_pair *out)
{
    uint32_t n = 0;
    DF_FOR_REDS(r, g, 0)
    {
        LLVMValueRef bits =
            LLVMBuildLoad2(g->b, g->i64, row_partial_at(g, r->first_slot, n_blocks, b), "");
        bits = LLVMBuildTruncOrBitCast(g->b, bits, row_bits_type(g, r), "");
        out[n] = (df_pair){ LLVMBuildBitCast(g->b, bits, df_reduce_type(g, r), ""), NULL };
        if (r->is_arg)
            out[n].i =
                LLVMBuildLoad2(g->b, g->i64, row_partial_at(g, r->first_slot + 1, n_blocks, b), "");
        n++;
    }
}

/* Sets out[] to phis: a[] if control comes from block from_a, b[] if it comes from from_b. The
 * current block must contain nothing but phis. */
static void row_merge_results(df_gen *g, uint32_t stage, const df_pair *a, LLVMBasicBlockRef from_a,
                              const df_pair *b, LLVMBasicBlockRef from_b, df_pair *out)
{
    uint32_t n = 0;
    DF_FOR_REDS(r, g, stage)
    {
        out[n].v = LLVMBuildPhi(g->b, df_reduce_type(g, r), "");
        LLVMAddIncoming(out[n].v, (LLVMValueRef *)&a[n].v, &from_a, 1);
        LLVMAddIncoming(out[n].v, (LLVMValueRef *)&b[n].v, &from_b, 1);
        out[n].i = NULL;
        if (r->is_arg) {
            out[n].i = LLVMBuildPhi(g->b, g->i64, "");
            LLVMAddIncoming(out[n].i, (LLVMValueRef *)&a[n].i, &from_a, 1);
            LLVMAddIncoming(out[n].i, (LLVMValueRef *)&b[n].i, &from_b, 1);
        }
        n++;
    }
}

/* The result of block b. main and part compute it; fin loads it from args->partial. */
static void row_reduce_or_load(df_gen *g, uint32_t stage, const df_blocks *blocks, LLVMValueRef b,
                               bool is_split, df_pair *out)
{
    df_pair computed[DF_LANES], taken[DF_LANES];
    LLVMBasicBlockRef compute = NULL, done = NULL, from_taken = NULL;
    if (is_split) {
        LLVMBasicBlockRef take = df_gen_block(g, "take");
        compute = df_gen_block(g, "compute");
        done = df_gen_block(g, "have");
        LLVMBuildCondBr(g->b, g->is_fin, take, compute);
        LLVMPositionBuilderAtEnd(g->b, take);
        load_partials(g, blocks->n, b, taken);
        from_taken = LLVMGetInsertBlock(g->b);
        LLVMBuildBr(g->b, done);
        LLVMPositionBuilderAtEnd(g->b, compute);
    }
    LLVMValueRef r0 = LLVMBuildShl(g->b, b, df_gen_i64(g, DF_BLOCK_LOG2), "");
    row_reduce_block(g, stage, r0, block_end(g, r0), is_split ? computed : out);
    if (!is_split) return;
    LLVMBasicBlockRef from_computed = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, done);
    LLVMPositionBuilderAtEnd(g->b, done);
    row_merge_results(g, stage, computed, from_computed, taken, from_taken, out);
}

/* Reduces all blocks of this call, of which there is at least one. */
static void all_blocks(df_gen *g, uint32_t stage, const df_blocks *blocks, bool is_split,
                       df_pair *out)
{
    df_pair result[DF_LANES], joined[DF_LANES];
    LLVMBasicBlockRef pre = LLVMGetInsertBlock(g->b);
    LLVMBasicBlockRef loop = df_gen_block(g, "block"), more = df_gen_block(g, "more");
    LLVMBasicBlockRef last = df_gen_block(g, "last"), done = df_gen_block(g, "reduced");
    LLVMValueRef zero = df_gen_i64(g, 0), one = df_gen_i64(g, 1);
    LLVMValueRef is_single = LLVMBuildICmp(g->b, LLVMIntEQ, blocks->n, one, "");
    if (is_split) is_single = LLVMBuildAnd(g->b, is_single, LLVMBuildNot(g->b, g->is_part, ""), "");
    LLVMBuildBr(g->b, loop);
    LLVMPositionBuilderAtEnd(g->b, loop);
    LLVMValueRef b = LLVMBuildPhi(g->b, g->i64, "block"), height = LLVMBuildPhi(g->b, g->i64, "");
    LLVMAddIncoming(b, (LLVMValueRef *)&blocks->from, &pre, 1);
    LLVMAddIncoming(height, &zero, &pre, 1);
    row_reduce_or_load(g, stage, blocks, b, is_split, result);
    LLVMBasicBlockRef folded = LLVMGetInsertBlock(g->b);
    LLVMBuildCondBr(g->b, is_single, done, more);

    LLVMPositionBuilderAtEnd(g->b, more);
    LLVMValueRef n = df_reduce_joins(g, blocks, b, height);
    if (is_split) {
        df_if part;
        df_if_begin(g, &part, g->is_part);
        store_partials(g, blocks->n, b, result);
        df_if_end(g, &part);
        /* A part call leaves its results at the bottom of the stack, unjoined and unread. */
        n = LLVMBuildSelect(g->b, g->is_part, zero, n, "");
    }
    LLVMValueRef now = push(g, stage, height, result, n);
    if (is_split) now = LLVMBuildSelect(g->b, g->is_part, zero, now, "");
    LLVMValueRef next = LLVMBuildAdd(g->b, b, one, "");
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(g->b);
    LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, next, blocks->to, ""), loop, last);
    LLVMAddIncoming(b, &next, &latch, 1);
    LLVMAddIncoming(height, &now, &latch, 1);

    LLVMPositionBuilderAtEnd(g->b, last);
    uint32_t k = 0;
    DF_FOR_REDS(r, g, stage) joined[k++] = stack_at(g, r, zero);
    LLVMBuildBr(g->b, done);
    LLVMPositionBuilderAtEnd(g->b, done);
    row_merge_results(g, stage, result, folded, joined, last, out);
}

/* ---- all blocks as one (may_fold_once) ---- */

/* Stores the result of all blocks of a part call as that of the first of them. The others get the
 * identity, which changes nothing when fin joins them. */
static void store_as_first(df_gen *g, const df_blocks *blocks, const df_pair *result)
{
    df_pair identity[DF_LANES];
    uint32_t n = 0;
    DF_FOR_REDS(r, g, 0) identity[n++] = (df_pair){ df_reduce_identity(g, r, 1), NULL };
    store_partials(g, blocks->n, blocks->from, result);
    df_loop l;
    LLVMValueRef one = df_gen_i64(g, 1);
    df_loop_begin(g, &l, LLVMBuildAdd(g->b, blocks->from, one, ""), blocks->to, one, 0);
    store_partials(g, blocks->n, l.i, identity);
    df_loop_end(g, &l);
}

/* Joins the results that part calls have stored. */
static void join_partials(df_gen *g, const df_blocks *blocks, df_pair *out)
{
    df_pair now[DF_LANES], next[DF_LANES];
    uint32_t n = 0;
    df_loop l;
    df_loop_begin(g, &l, df_gen_i64(g, 0), blocks->n, df_gen_i64(g, 1), df_reduce_count(g, 0));
    DF_FOR_REDS(r, g, 0) now[n++].v = df_loop_carry(g, &l, df_reduce_identity(g, r, 1));
    load_partials(g, blocks->n, l.i, next);
    n = 0;
    DF_FOR_REDS(r, g, 0)
    {
        now[n].i = next[n].i = NULL;
        l.next[n] = df_reduce_join(g, r, now[n], next[n]).v;
        n++;
    }
    df_loop_end(g, &l);
    for (uint32_t k = 0; k < n; k++) out[k] = (df_pair){ l.out[k], NULL };
}

/* Reduces all blocks of this call, of which there is at least one, by one fold. */
static void all_at_once(df_gen *g, uint32_t stage, const df_blocks *blocks, bool is_split,
                        df_pair *out)
{
    df_pair computed[DF_LANES], taken[DF_LANES];
    LLVMBasicBlockRef done = NULL, from_taken = NULL;
    LLVMValueRef log2 = df_gen_i64(g, DF_BLOCK_LOG2);
    if (is_split) {
        LLVMBasicBlockRef take = df_gen_block(g, "take"), compute = df_gen_block(g, "compute");
        done = df_gen_block(g, "have");
        LLVMBuildCondBr(g->b, g->is_fin, take, compute);
        LLVMPositionBuilderAtEnd(g->b, take);
        join_partials(g, blocks, taken);
        from_taken = LLVMGetInsertBlock(g->b);
        LLVMBuildBr(g->b, done);
        LLVMPositionBuilderAtEnd(g->b, compute);
    }
    LLVMValueRef r0 = LLVMBuildShl(g->b, blocks->from, log2, "");
    LLVMValueRef end = df_gen_min(g, LLVMBuildShl(g->b, blocks->to, log2, ""), g->length);
    row_reduce_block(g, stage, r0, end, is_split ? computed : out);
    if (!is_split) return;
    df_if part;
    df_if_begin(g, &part, g->is_part);
    store_as_first(g, blocks, computed);
    df_if_end(g, &part);
    LLVMBasicBlockRef from_computed = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, done);
    LLVMPositionBuilderAtEnd(g->b, done);
    row_merge_results(g, stage, computed, from_computed, taken, from_taken, out);
}

/* A stage whose length is known from facts and fits one block. Nothing is joined or tested. */
static void row_reduce_single_block(df_gen *g, uint32_t stage)
{
    df_pair out[DF_LANES];
    uint32_t n = 0;
    df_gen_place(g, PLACE_PRE);
    df_scan_begin(g, stage);
    row_reduce_block(g, stage, df_gen_i64(g, 0), g->length, out);
    DF_FOR_REDS(r, g, stage)
    {
        df_gen_define(g, r->ins, result_of(g, r, out[n]));
        n++;
    }
}

void df_reduce_row_stage(df_gen *g, uint32_t stage)
{
    const bool is_split = stage == 0 && g->is_part;
    df_gen_mark(g, stage);
    row_alloc_arrays(g, stage);
    const df_blocks blocks = df_reduce_blocks(g, is_split);
    df_pair out[DF_LANES], empty[DF_LANES], merged[DF_LANES];
    if (df_gen_is(blocks.n, 1)) {
        row_reduce_single_block(g, stage);
        return;
    }
    df_if any;
    df_if_begin(g, &any, LLVMBuildICmp(g->b, LLVMIntSLT, blocks.from, blocks.to, ""));
    df_gen_place(g, PLACE_PRE);
    df_scan_begin(g, stage);
    if (may_fold_once(g, stage))
        all_at_once(g, stage, &blocks, is_split, out);
    else
        all_blocks(g, stage, &blocks, is_split, out);
    LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b);
    df_if_end(g, &any);
    uint32_t n = 0;
    DF_FOR_REDS(r, g, stage) empty[n++] = (df_pair){ of_nothing(g, r), df_gen_i64(g, 0) };
    row_merge_results(g, stage, out, from, empty, any.before, merged);
    n = 0;
    DF_FOR_REDS(r, g, stage)
    {
        df_gen_define(g, r->ins, result_of(g, r, merged[n]));
        n++;
    }
}
