/* SPDX-License-Identifier: Apache-2.0
 *
 * COL kernels: lanes run along INNER, and each lane reduces (or scans) its own column.
 *
 * A chunk of some vectors, called groups, moves along the reduced axes together. So memory is read
 * row by row, several whole cache lines at a time:
 *
 *        lanes -->   group 0   group 1   group 2 ..
 *        r = 0       |---w---| |---w---| |---w---|
 *        r = 1       |---w---| ...                          pitch: groups in this chunk
 *
 * The 64 accumulators of every lane do not fit in registers. There are two ways to deal with that.
 *
 * Wide chunks finish one accumulator after the other, in registers. Accumulator j takes rows j,
 * j + 64, j + 128 and so on of its block, for all groups. Then it is pushed onto the stack of
 * results and folded. The fold of base/limits.h joins j to j + 32 first, then to j + 16 and so on.
 * When the accumulators come in the order of their reversed bits (0, 32, 16, 48, 8, ..), this is
 * the order of a binary counter, which needs at most seven entries. From L3 of Zen 5, two threads
 * read sums of 1024 columns of 4096 rows at 175 GB/s, the speed of a plain read, instead of at 100.
 * Wide chunks are for short bodies whose elements need not come in their order, and for 64 rows or
 * more.
 *
 * Narrow chunks go through the rows in their order. Their accumulators are an array of vectors on
 * the stack: 4 KiB per vector and reduction, at most 32 KiB for a chunk. One element costs a load,
 * the op and a store, all in L1. Short bodies take four rows at once that belong to the same
 * accumulator: r, r + 64, r + 128 and r + 192. The accumulator then stays in a register for four
 * elements, and memory is read in four streams. Only min(64, L) accumulators are set, used and
 * folded, so that the cost of a short column depends on its length.
 *
 * Both ways leave the block's result in its entry of the stack of results. The last join leaves the
 * reduction's result in entry 0. A reduction whose result does not depend on the order keeps one
 * accumulator. When all reductions of a stage are such, as in a product of matrices of integers,
 * the accumulators stay in registers for all rows, in chunks of both kinds. Where the elements come
 * from beyond the second cache, kernels have chunks of a third kind: long chunks and sheets, which
 * go along whole rows (col_long.c). Vectors that row-level code computes are kept in slots, which
 * are arrays of one vector per group.
 *
 * A kernel that scans and reduces nothing goes along whole rows, or along 8 KiB of them, with the
 * running values in memory. Chunks of 256 bytes would read and write short pieces, each in another
 * page. Running sums over 1024 rows of 1000 f32 take 344 us on an Intel server, and took 517 in
 * such chunks. Those over 256 rows of 256 f32 take 5 and took 16.
 */
#include "jit_llvm/rows/col.h"

enum {
    ACC_BYTES = 32 * 1024,
    NARROW_GROUPS = 8,  /* most groups of a narrow chunk */
    UNROLL_SIZE = 24,   /* most instructions of a body that is written out for every group */
    SCAN_GROUPS = 128,  /* most groups of a chunk without accumulators */
    FEWEST_GROUPS = 4,  /* of such a chunk that has much in memory */
    ROWS = 4,           /* of one accumulator that are taken at once */
    ROWS_UNROLLED = 96, /* as UNROLL_SIZE, for so many rows */
    FOLD_DEPTH = 7,     /* most entries that the fold of DF_LANES accumulators keeps */
};
_Static_assert(1 << (FOLD_DEPTH - 1) == DF_LANES, "one entry for each bit, and the newest");

/* ---- row-level values ---- */

static bool is_row_lane(const df_gen *g, uint32_t i, uint32_t stage)
{
    return g->val[i].place == PLACE_LANES && g->k->ins[i].stage == stage;
}

static bool has_other_users(const df_gen *g, uint32_t i)
{
    for (uint32_t j = i + 1; j < g->k->n_ins; j++)
        for (uint32_t s = 0; s < g->host->kops[g->k->ins[j].op].n_src; s++)
            if (g->k->ins[j].src[s] == i && !is_row_lane(g, j, g->k->ins[i].stage)) return true;
    return false;
}

static void row_group(df_gen *g, df_chunk *c)
{
    df_gen_row_lanes(g, c->stage);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!is_row_lane(g, i, c->stage) || !g->val[i].slot) continue;
        const deft_dtype t = (deft_dtype)g->k->ins[i].dtype;
        LLVMTypeRef type = df_gen_lanes(df_gen_mem_type(g, t), g->w);
        LLVMValueRef v = df_gen_vec(g, i);
        if (t == DEFT_BOOL) v = LLVMBuildZExt(g->b, v, type, "");
        LLVMBuildStore(g->b, v, df_gen_at(g, type, g->val[i].slot, g->group));
    }
}

static void row_values(df_gen *g, df_chunk *c)
{
    bool any = false;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!is_row_lane(g, i, c->stage)) continue;
        any = true;
        if (g->k->ins[i].op == DF_K_store || g->val[i].slot || !has_other_users(g, i)) continue;
        LLVMTypeRef t = df_gen_mem_type(g, (deft_dtype)g->k->ins[i].dtype);
        /* wide and narrow chunks share the slot, and either may have more groups */
        g->val[i].slot = df_gen_alloca(g, df_gen_lanes(t, g->w), g->slot_groups, 64);
    }
    if (any) df_col_groups(g, c, row_group);
}

/* ---- accumulators ---- */

/* Allocates one array per reduction, for chunks of both kinds; wide: groups of a wide chunk, or 0.
 * The array holds the stack of block results, and above it the accumulators of the current block or
 * their fold, which leaves the block's result on top of the stack. The reduction's final result is
 * entry 0 of the stack, which serves as its slot. */
static void col_alloc_arrays(df_gen *g, uint32_t narrow, uint32_t wide)
{
    const uint32_t n_long = df_col_long_vectors(g);
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        const uint32_t n_wide = (DF_TREE_DEPTH + FOLD_DEPTH) * wide;
        const uint32_t n_narrow = (DF_TREE_DEPTH + r->n_acc) * narrow;
        uint32_t n = n_wide > n_narrow ? n_wide : n_narrow;
        n = n > n_long ? n : n_long;
        g->val[r->ins].slot = r->mem = df_gen_alloca(g, df_col_vector(g, r), n, 64);
        if (r->is_arg)
            g->val[r->ins].slot = r->mem_idx = df_gen_alloca(g, df_col_index_vector(g), n, 64);
    }
}

/* The value that accumulators start with. The sum of an empty column must be +0. Such a column has
 * one block, whose fold is this value. */
static LLVMValueRef identity_of(df_gen *g, const df_gen_red *r)
{
    const deft_dtype t = (deft_dtype)r->dtype;
    LLVMValueRef v = df_gen_const(g, t, df_kop_identity((df_kop)r->op, t));
    if (r->op == DF_K_sum && df_is_real(t)) {
        LLVMValueRef is_empty = LLVMBuildICmp(g->b, LLVMIntEQ, g->length, df_gen_i64(g, 0), "");
        v = LLVMBuildSelect(g->b, is_empty, df_gen_const(g, t, 0), v, "");
    }
    return df_gen_splat(g, v, g->w);
}

/* Sets the accumulators of all reductions of the stage that keep n_acc accumulators, in one loop.
 */
static void set_some(df_gen *g, df_chunk *c, uint32_t n_acc)
{
    df_pair p[DF_LANES];
    uint32_t n = 0;
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        if (!df_col_is_of_stage(g, r, c->stage) || r->n_acc != n_acc) continue;
        p[n].v = identity_of(g, r);
        p[n++].i = r->is_arg ? df_gen_splat(g, c->r0, g->w) : NULL;
    }
    if (n == 0) return;
    df_loop l;
    df_col_count(g, &l, n_acc == 1 ? g->pitch : df_col_mul(g, c->m, g->pitch));
    n = 0;
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++)
        if (df_col_is_of_stage(g, r, c->stage) && r->n_acc == n_acc)
            df_col_store(g, r, r->mem, r->mem_idx, df_col_add(g, c->top, l.i), p[n++]);
    df_loop_end(g, &l);
}

static void element_group(df_gen *g, df_chunk *c)
{
    if (c->top) {
        g->acc_at = df_col_add(g, c->acc_base, g->group);
        g->acc_one = df_col_add(g, c->top, g->group);
    }
    df_gen_place(g, PLACE_BODY);
}

/* Writes the body for a whole chunk, group after group and without a loop. Each load instruction
 * then moves by one stride from row to row, a pattern that the hardware's prefetchers follow. */
static void unrolled_groups(df_gen *g, df_chunk *c, df_col_fn fn)
{
    g->prefetches = fn == element_group; /* several rows at once are faster without */
    for (uint32_t u = 0; u < c->groups; u++) {
        g->group = df_gen_i64(g, u);
        df_gen_lanes_begin(g, df_col_add(g, c->from, df_gen_i64(g, u * g->w)), NULL);
        fn(g, c);
    }
    g->prefetches = false;
    g->epoch++;
}

/* Writes fn for all groups of the chunk. unrolls: also without a loop, for whole chunks. */
static void all_groups(df_gen *g, df_chunk *c, df_col_fn fn, bool unrolls)
{
    df_if whole, part;
    if (!unrolls) {
        df_col_groups(g, c, fn);
        return;
    }
    df_if_begin(g, &whole, c->is_whole);
    unrolled_groups(g, c, fn);
    df_if_end(g, &whole);
    df_if_begin(g, &part, LLVMBuildNot(g->b, c->is_whole, ""));
    df_col_groups(g, c, fn);
    df_if_end(g, &part);
}

static LLVMValueRef acc_base_of(df_gen *g, const df_chunk *c, LLVMValueRef r)
{
    LLVMValueRef j = LLVMBuildAnd(g->b, r, df_gen_i64(g, DF_LANES - 1), "");
    return df_col_add(g, c->top, df_col_mul(g, j, g->pitch));
}

/* ---- several rows at once ---- */

/* Elements c->r, c->r + 64, .. of one group. */
static void rows_group(df_gen *g, df_chunk *c)
{
    for (uint32_t k = 0; k < ROWS; k++) {
        g->red_at = df_col_add(g, c->r, df_gen_i64(g, k * DF_LANES));
        df_nest_at(g, g->red[0], g->red_at);
        df_gen_place(g, PLACE_RED);
        element_group(g, c);
        g->epoch++; /* nothing of this row is valid in the next */
    }
}

/* The body for as many elements from `from` on as can be taken several rows at once. Returns the
 * first element that is left. */
static LLVMValueRef build_rows(df_gen *g, df_chunk *c, LLVMValueRef from, LLVMValueRef to)
{
    enum { STEP = ROWS * DF_LANES };
    df_if any;
    df_loop steps, lanes;
    LLVMValueRef n = LLVMBuildAnd(g->b, LLVMBuildSub(g->b, to, from, ""), df_gen_i64(g, -STEP), "");
    LLVMValueRef end = df_col_add(g, from, n);
    df_if_begin(g, &any, LLVMBuildICmp(g->b, LLVMIntSLT, from, end, ""));
    df_gen_place(g, PLACE_PRE);
    df_loop_begin(g, &steps, from, end, df_gen_i64(g, STEP), 0);
    df_col_count(g, &lanes, df_gen_i64(g, DF_LANES));
    c->r = df_col_add(g, steps.i, lanes.i);
    c->acc_base = acc_base_of(g, c, c->r);
    all_groups(g, c, rows_group, ROWS * c->groups * df_gen_body_size(g) <= ROWS_UNROLLED);
    df_loop_end(g, &lanes);
    df_loop_end(g, &steps);
    df_if_end(g, &any);
    return end;
}
/* ---- all elements ---- */

/* The body for elements [from, to) of the reduced axes and all groups. Reductions accumulate only
 * when c->top is set. */
static void col_build_elements(df_gen *g, df_chunk *c, LLVMValueRef from, LLVMValueRef to)
{
    const uint32_t size = df_gen_body_size(g);
    if (df_col_may_stay_in_registers(g, c)) {
        df_col_narrow_block(g, c, from, to);
        return;
    }
    const bool is_ahead = c->is_sheet && df_fetch_scan(g);
    if (g->level != DF_OPT_O0 && ROWS * size <= ROWS_UNROLLED &&
        df_col_may_leave_order(g, c->stage))
        from = build_rows(g, c, from, to);
    df_nest w = { .axes = g->red, .n = g->n_red, .from = from, .to = to };
    df_nest_guard(g, &w);
    df_gen_place(g, PLACE_PRE);
    df_nest_begin(g, &w);
    g->red_at = w.o;
    if (c->top) c->acc_base = acc_base_of(g, c, w.o);
    df_gen_place(g, PLACE_RED);
    const bool fetches = is_ahead || (g->n_reds == 0 && df_fetch_scan(g));
    all_groups(g, c, element_group, g->level != DF_OPT_O0 && size * c->groups <= UNROLL_SIZE);
    if (fetches) df_fetch_end(g);
    df_nest_end(g, &w);
}

/* Folds: acc[j] = acc[j] op acc[j + h] for h = 32, 16, .. 1 where both accumulators are in use. One
 * loop serves all j and groups, because their vectors are contiguous. */
static void col_fold_accumulators(df_gen *g, df_chunk *c)
{
    bool any = false;
    for (uint32_t k = 0; k < g->n_reds; k++)
        any |= df_col_is_of_stage(g, &g->reds[k], c->stage) && g->reds[k].n_acc > 1;
    if (!any) return;
    df_loop levels;
    df_loop_begin(g, &levels, df_gen_i64(g, 0), df_gen_i64(g, 6), df_gen_i64(g, 1), 0);
    LLVMValueRef h = LLVMBuildLShr(g->b, df_gen_i64(g, DF_LANES / 2), levels.i, "");
    LLVMValueRef n = df_gen_min(g, LLVMBuildSub(g->b, c->m, h, ""), h); /* may be negative */
    LLVMValueRef far = df_col_mul(g, h, g->pitch);
    df_loop l;
    df_col_count(g, &l, df_col_mul(g, n, g->pitch));
    LLVMValueRef at = df_col_add(g, c->top, l.i);
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        if (!df_col_is_of_stage(g, r, c->stage) || r->n_acc == 1) continue;
        const df_pair low = df_col_load(g, r, r->mem, r->mem_idx, at);
        const df_pair high = df_col_load(g, r, r->mem, r->mem_idx, df_col_add(g, at, far));
        df_col_store(g, r, r->mem, r->mem_idx, at, df_reduce_join(g, r, low, high));
    }
    df_loop_end(g, &l);
    df_loop_end(g, &levels);
}

/* ---- blocks ---- */

static void col_reduce_block(df_gen *g, df_chunk *c)
{
    c->r0 = df_col_mul(g, c->b, df_gen_i64(g, DF_BLOCK));
    LLVMValueRef end = df_gen_min(g, df_col_add(g, c->r0, df_gen_i64(g, DF_BLOCK)), g->length);
    c->m = df_gen_min(g, LLVMBuildSub(g->b, end, c->r0, ""), df_gen_i64(g, DF_LANES));
    if (c->is_wide) {
        df_col_wide_block(g, c, c->r0, end);
        return;
    }
    LLVMValueRef one = df_gen_i64(g, 1); /* accumulator 0 is the result even of no element */
    c->m = LLVMBuildSelect(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, c->m, one, ""), one, c->m, "");
    set_some(g, c, DF_LANES);
    set_some(g, c, 1);
    col_build_elements(g, c, c->r0, end);
    col_fold_accumulators(g, c);
}

/* ---- partial results ---- */

static LLVMValueRef col_partial_at(df_gen *g, df_chunk *c, uint32_t slot)
{
    LLVMValueRef at = df_col_add(g, df_col_mul(g, df_gen_i64(g, slot), c->blocks.n), c->b);
    at = df_col_add(g, df_col_mul(g, at, g->extent[g->vec_axis]), g->lane0);
    return df_gen_at(g, g->i64, g->p_partial, at);
}

static LLVMTypeRef col_bits_type(const df_gen *g, const df_gen_red *r)
{
    const uint32_t bits = 8 * df_bytes_of((deft_dtype)r->dtype);
    return df_gen_lanes(LLVMIntTypeInContext(g->ctx, bits), g->w);
}

static void store_partial(df_gen *g, df_chunk *c)
{
    LLVMValueRef at = df_col_add(g, c->top, g->group);
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        if (!df_col_is_of_stage(g, r, 0)) continue;
        const df_pair p = df_col_load(g, r, r->mem, r->mem_idx, at);
        LLVMValueRef bits = LLVMBuildBitCast(g->b, p.v, col_bits_type(g, r), "");
        bits = LLVMBuildZExtOrBitCast(g->b, bits, df_col_index_vector(g), "");
        df_access_store_unit(g, bits, col_partial_at(g, c, r->first_slot), 8);
        if (r->is_arg) df_access_store_unit(g, p.i, col_partial_at(g, c, r->first_slot + 1), 8);
    }
}

static void load_partial(df_gen *g, df_chunk *c)
{
    LLVMValueRef at = df_col_add(g, c->top, g->group);
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        if (!df_col_is_of_stage(g, r, 0)) continue;
        LLVMValueRef bits = df_access_load_unit(g, g->i64, col_partial_at(g, c, r->first_slot), 8);
        bits = LLVMBuildTruncOrBitCast(g->b, bits, col_bits_type(g, r), "");
        df_pair p = { LLVMBuildBitCast(g->b, bits, df_col_vector(g, r), ""), NULL };
        if (r->is_arg)
            p.i = df_access_load_unit(g, g->i64, col_partial_at(g, c, r->first_slot + 1), 8);
        df_col_store(g, r, r->mem, r->mem_idx, at, p);
    }
}

/* ---- stages ---- */

/* Leaves the block's result on top of the stack. main and part compute it; fin loads it from
 * args->partial. */
static void col_reduce_or_load(df_gen *g, df_chunk *c, bool is_split)
{
    df_if take, compute;
    if (!is_split) {
        col_reduce_block(g, c);
        return;
    }
    LLVMValueRef any = LLVMBuildICmp(g->b, LLVMIntSGT, g->length, df_gen_i64(g, 0), "");
    LLVMValueRef takes = LLVMBuildAnd(g->b, g->is_fin, any, "");
    df_if_begin(g, &take, takes);
    df_col_groups(g, c, load_partial);
    df_if_end(g, &take);
    df_if_begin(g, &compute, LLVMBuildNot(g->b, takes, ""));
    col_reduce_block(g, c);
    df_if_end(g, &compute);
}

static void reduce_stage(df_gen *g, df_chunk *c)
{
    const bool is_split = c->stage == 0 && g->is_part;
    LLVMValueRef zero = df_gen_i64(g, 0), one = df_gen_i64(g, 1);
    df_scan_begin(g, c->stage);
    c->blocks = df_reduce_blocks(g, is_split);
    LLVMValueRef is_empty = LLVMBuildICmp(g->b, LLVMIntEQ, g->length, zero, "");
    LLVMValueRef to = LLVMBuildSelect(g->b, is_empty, one, c->blocks.to, "");
    df_loop l;
    df_loop_begin(g, &l, c->blocks.from, to, one, 1);
    LLVMValueRef height = df_loop_carry(g, &l, zero);
    c->b = l.i;
    c->height = height;
    c->top = df_col_entry(g, c, height);
    col_reduce_or_load(g, c, is_split);
    LLVMValueRef n = df_reduce_joins(g, &c->blocks, l.i, height);
    if (is_split) {
        df_if part;
        df_if_begin(g, &part, g->is_part);
        df_col_groups(g, c, store_partial);
        df_if_end(g, &part);
        /* A part call works at the bottom of the stack and joins nothing. */
        n = LLVMBuildSelect(g->b, g->is_part, zero, n, "");
    }
    LLVMValueRef after = df_col_join_newest(g, c, height, n);
    if (is_split) after = LLVMBuildSelect(g->b, g->is_part, zero, after, "");
    l.next[0] = after;
    df_loop_end(g, &l);
    c->top = NULL;
}

static void one_chunk(df_gen *g, df_chunk *c)
{
    df_if rest;
    for (uint32_t s = 0; s < g->k->n_stages; s++) {
        c->stage = s;
        row_values(g, c);
        df_gen_mark(g, s);
        if (df_reduce_count(g, s) > 0 && c->is_long) {
            df_col_long_stage(g, c);
        } else if (df_reduce_count(g, s) > 0) {
            reduce_stage(g, c);
        } else if (df_gen_has_elem(g, s)) {
            df_scan_begin(g, s);
            col_build_elements(g, c, df_gen_i64(g, 0), g->length);
        }
        if (s == 0 && g->is_part && !c->is_long)
            df_if_begin(g, &rest, LLVMBuildNot(g->b, g->is_part, ""));
    }
    if (g->is_part && !c->is_long) df_if_end(g, &rest);
}

static uint32_t choose_narrow(const df_gen *g)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < g->n_reds; k++) {
        const df_gen_red *r = &g->reds[k];
        bytes +=
            (uint64_t)r->n_acc * g->w * (df_bytes_of((deft_dtype)r->dtype) + (r->is_arg ? 8u : 0u));
    }
    const uint64_t n = ACC_BYTES / bytes;
    return n < 1 ? 1 : n > NARROW_GROUPS ? NARROW_GROUPS : (uint32_t)n;
}

/* The most groups of a chunk of a kernel that reduces nothing. */
static uint32_t choose_scanned(const df_gen *g)
{
    uint64_t bytes = 1; /* of vectors in memory, for each group */
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (df_gen_kind(g, i) == DF_KOP_scan || g->val[i].place == PLACE_LANES)
            bytes += (uint64_t)g->w * df_bytes_of((deft_dtype)g->k->ins[i].dtype);
    const uint64_t n = ACC_BYTES / bytes;
    return n < FEWEST_GROUPS ? FEWEST_GROUPS : n > SCAN_GROUPS ? SCAN_GROUPS : (uint32_t)n;
}

/* Long chunks from lane `from` on. Returns the first lane that is left. */
static LLVMValueRef long_chunks(df_gen *g, LLVMValueRef from, LLVMValueRef to)
{
    df_loop l;
    df_chunk c = { .groups = 1, .end = to, .is_long = true };
    const uint32_t most = df_col_long_vectors(g);
    if (most == 0) return from;
    LLVMValueRef step = df_gen_i64(g, (int64_t)most * g->w), end = df_col_long_end(g, from, to);
    df_loop_begin(g, &l, from, end, step, 0);
    c.from = l.i;
    LLVMValueRef lanes = df_gen_min(g, LLVMBuildSub(g->b, end, l.i, ""), step);
    g->pitch = LLVMBuildUDiv(g->b, lanes, df_gen_i64(g, g->w), "");
    one_chunk(g, &c);
    df_loop_end(g, &l);
    return end;
}

/* Whole chunks of `groups` groups from lane `from` on, if columns have as many elements as there
 * are accumulators. Returns the first lane that is left. */
static LLVMValueRef wide_chunks(df_gen *g, LLVMValueRef from, LLVMValueRef to, uint32_t groups)
{
    df_loop l;
    df_chunk c = {
        .groups = groups, .end = to, .is_whole = LLVMConstInt(g->i1, 1, 0), .is_wide = true
    };
    LLVMValueRef width = df_gen_i64(g, (int64_t)groups * g->w);
    LLVMValueRef is_long = LLVMBuildICmp(g->b, LLVMIntSGE, g->length, df_gen_i64(g, DF_LANES), "");
    LLVMValueRef n = LLVMBuildUDiv(g->b, LLVMBuildSub(g->b, to, from, ""), width, "");
    n = LLVMBuildSelect(g->b, is_long, n, df_gen_i64(g, 0), "");
    LLVMValueRef end = df_col_add(g, from, df_col_mul(g, n, width));
    df_loop_begin(g, &l, from, end, width, 0);
    c.from = l.i;
    g->pitch = df_gen_i64(g, groups);
    one_chunk(g, &c);
    df_loop_end(g, &l);
    return end;
}

/* The lanes from `from` on, in chunks of up to `groups` groups. */
static void narrow_chunks(df_gen *g, LLVMValueRef from, LLVMValueRef to, uint32_t groups,
                          bool are_sheets)
{
    df_loop l;
    df_chunk c = { .groups = groups, .end = to, .is_sheet = are_sheets };
    LLVMValueRef width = df_gen_i64(g, (int64_t)groups * g->w);
    df_loop_begin(g, &l, from, to, width, 0);
    c.from = l.i;
    LLVMValueRef left = LLVMBuildSub(g->b, to, l.i, "");
    left =
        LLVMBuildUDiv(g->b, df_col_add(g, left, df_gen_i64(g, g->w - 1)), df_gen_i64(g, g->w), "");
    g->pitch = df_gen_min(g, left, df_gen_i64(g, groups));
    c.is_whole = LLVMBuildICmp(g->b, LLVMIntSLE, df_col_add(g, l.i, width), to, "");
    one_chunk(g, &c);
    df_loop_end(g, &l);
}

/* Sheets from lane `from` on. Returns the first lane that is left. */
static LLVMValueRef sheets(df_gen *g, LLVMValueRef from, LLVMValueRef to)
{
    const uint32_t groups = df_col_sheet_groups(g);
    LLVMValueRef *const mem = df_gen_values(g, g->n_reds);
    if (groups == 0) return from;
    LLVMValueRef end = df_col_sheet_end(g, from, to);
    df_col_sheet_exchange(g, mem, groups);
    narrow_chunks(g, from, end, groups, true);
    df_col_sheet_exchange(g, mem, groups);
    return end;
}

void df_col_row(df_gen *g)
{
    LLVMValueRef from = g->i0, to = g->i1_;
    for (uint32_t s = 0; s < g->k->n_stages; s++) df_gen_row_level(g, s);
    if (g->is_part) { /* a call of part handles some blocks of all lanes */
        from = LLVMBuildSelect(g->b, g->is_part, df_gen_i64(g, 0), from, "");
        to = LLVMBuildSelect(g->b, g->is_part, g->extent[g->vec_axis], to, "");
    }
    const uint32_t narrow = g->n_reds > 0 ? choose_narrow(g) : choose_scanned(g);
    const uint32_t wide = df_col_wide_groups(g);
    g->slot_groups = narrow > DF_COL_GROUPS ? narrow : DF_COL_GROUPS;
    col_alloc_arrays(g, narrow, wide);
    from = long_chunks(g, from, to);
    from = sheets(g, from, to);
    if (wide > 0) from = wide_chunks(g, from, to, wide);
    narrow_chunks(g, from, to, narrow, false);
}
