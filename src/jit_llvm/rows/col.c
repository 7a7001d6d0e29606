/* SPDX-License-Identifier: Apache-2.0
 *
 * COL kernels: lanes run along INNER, and each lane reduces (or scans) its own column.
 *
 * A chunk of up to DF_COL_GROUPS vectors, called groups, moves along the reduced axes together. So
 * memory is read row by row, several whole cache lines at a time. The 64 accumulators of every lane
 * do not fit in registers. They are an array of vectors on the stack: 4 KiB per vector and
 * reduction, at most 32 KiB for a chunk.
 *
 * One element costs a load, the op and a store, all in L1. Short bodies take four rows at once that
 * belong to the same accumulator: r, r + 64, r + 128 and r + 192. The accumulator then stays in a
 * register for four elements, and memory is read in four streams. In C, this reads 4096 rows of
 * 4 KiB at 41 GB/s, where a row at a time reaches 12 to 28 and a plain read 45.
 *
 *        lanes -->   group 0   group 1   group 2 ..         acc[r mod 64][group]
 *        r = 0       |---w---| |---w---| |---w---|
 *        r = 1       |---w---| ...                          pitch: groups in this chunk
 *
 * Only min(64, L) accumulators are set, used and folded, so that the cost of a short column depends
 * on its length. The fold leaves the block's result in its entry of the stack of results. The last
 * join leaves the reduction's result in entry 0. A reduction whose result does not depend on the
 * order keeps one accumulator. When all reductions of a stage are such, as in a product of matrices
 * of integers, the accumulators stay in registers for all rows. Vectors that row-level code
 * computes are kept in slots, which are arrays of one vector per group.
 */
#include "jit_llvm/gen.h"

enum {
    ACC_BYTES = 32 * 1024,
    UNROLL_SIZE = 24,   /* most instructions of a body that is written out for every group */
    SCAN_GROUPS = 4,    /* of a chunk without accumulators */
    ROWS = 4,           /* of one accumulator that are taken at once */
    ROWS_UNROLLED = 96, /* as UNROLL_SIZE, for so many rows */
    MOST_REGS = 16,     /* accumulators that stay in registers */
};

typedef struct chunk {
    LLVMValueRef from, end; /* its first lane; the end of the lanes of this call */
    LLVMValueRef is_whole;  /* it has c->groups groups, and all have w active lanes */
    LLVMValueRef r0, to;    /* the block's first element, and the one behind its last */
    LLVMValueRef m;         /* accumulators in use */
    LLVMValueRef r;         /* several rows at once: the first of their elements */
    LLVMValueRef skip;      /* for_groups begins with this group; NULL: with group 0 */
    LLVMValueRef top;       /* index of the block's first accumulator vector; NULL: no reduction */
    LLVMValueRef acc_base;  /* index of the accumulator vector of element r in group 0 */
    LLVMValueRef b;         /* the current block */
    df_blocks blocks;
    uint32_t stage;  /* the current stage */
    uint32_t groups; /* most groups of a chunk */
} chunk;

static LLVMTypeRef vec_type(const df_gen *g, const df_gen_red *r)
{
    return df_gen_lanes(df_gen_mem_type(g, (deft_dtype)r->dtype), g->w);
}

static LLVMTypeRef idx_type(const df_gen *g)
{
    return df_gen_lanes(g->i64, g->w);
}

static bool is_of_stage(const df_gen *g, const df_gen_red *r, uint32_t stage)
{
    return g->k->ins[r->ins].stage == stage;
}

/* ---- pairs in arrays of vectors ---- */

static df_pair col_load_pair(df_gen *g, const df_gen_red *r, LLVMValueRef v, LLVMValueRef idx,
                             LLVMValueRef at)
{
    LLVMTypeRef t = vec_type(g, r), ti = idx_type(g);
    df_pair p = { LLVMBuildLoad2(g->b, t, df_gen_at(g, t, v, at), ""), NULL };
    if (r->is_arg) p.i = LLVMBuildLoad2(g->b, ti, df_gen_at(g, ti, idx, at), "");
    return p;
}

static void col_store_pair(df_gen *g, const df_gen_red *r, LLVMValueRef v, LLVMValueRef idx,
                           LLVMValueRef at, df_pair p)
{
    LLVMBuildStore(g->b, p.v, df_gen_at(g, vec_type(g, r), v, at));
    if (r->is_arg) LLVMBuildStore(g->b, p.i, df_gen_at(g, idx_type(g), idx, at));
}

static LLVMValueRef col_mul(df_gen *g, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildMul(g->b, a, b, "");
}

static LLVMValueRef col_add(df_gen *g, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildAdd(g->b, a, b, "");
}

/* for (x = 0; x < n; x++) */
static void begin_count(df_gen *g, df_loop *l, LLVMValueRef n)
{
    df_loop_begin(g, l, df_gen_i64(g, 0), n, df_gen_i64(g, 1), 0);
}

/* ---- groups ---- */

typedef void (*group_fn)(df_gen *g, chunk *c);

/* Writes a loop that does fn for every group of the chunk, with lane0 and mask set. Where masks are
 * not instructions, fn is written twice: for whole vectors and for the last, partial one. */
static void for_groups(df_gen *g, chunk *c, group_fn fn)
{
    df_loop l;
    df_loop_begin(g, &l, c->skip ? c->skip : df_gen_i64(g, 0), g->pitch, df_gen_i64(g, 1), 0);
    LLVMValueRef lane0 = col_add(g, c->from, col_mul(g, l.i, df_gen_i64(g, g->w)));
    g->group = l.i;
    const bool is_all_whole = g->multiple % g->w == 0; /* w may be 1 */
    if (g->native_masks || is_all_whole) {
        df_gen_lanes_begin(g, lane0, is_all_whole ? NULL : c->end);
        fn(g, c);
    } else {
        LLVMValueRef past = col_add(g, lane0, df_gen_i64(g, g->w));
        LLVMValueRef is_whole = LLVMBuildICmp(g->b, LLVMIntSLE, past, c->end, "");
        df_if whole, part;
        df_if_begin(g, &whole, is_whole);
        df_gen_lanes_begin(g, lane0, NULL);
        fn(g, c);
        df_if_end(g, &whole);
        df_if_begin(g, &part, LLVMBuildNot(g->b, is_whole, ""));
        df_gen_lanes_begin(g, lane0, c->end);
        fn(g, c);
        df_if_end(g, &part);
    }
    df_loop_end(g, &l);
    g->epoch++; /* nothing of a group is valid outside */
    g->mask = NULL;
}

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

static void row_group(df_gen *g, chunk *c)
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

static void row_values(df_gen *g, chunk *c)
{
    bool any = false;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!is_row_lane(g, i, c->stage)) continue;
        any = true;
        if (g->k->ins[i].op == DF_K_store || g->val[i].slot || !has_other_users(g, i)) continue;
        LLVMTypeRef t = df_gen_mem_type(g, (deft_dtype)g->k->ins[i].dtype);
        g->val[i].slot = df_gen_alloca(g, df_gen_lanes(t, g->w), c->groups, 64);
    }
    if (any) for_groups(g, c, row_group);
}

/* ---- accumulators ---- */

/* Allocates one array per reduction. It holds the stack of block results, and above it the
 * accumulators of the current block. Their fold leaves the block's result on top of the stack. The
 * reduction's final result is entry 0 of the stack, which serves as its slot. */
static void col_alloc_arrays(df_gen *g, chunk *c)
{
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        if (!is_of_stage(g, r, c->stage)) continue;
        const uint64_t n = (uint64_t)(DF_TREE_DEPTH + r->n_acc) * c->groups;
        g->val[r->ins].slot = r->mem = df_gen_alloca(g, vec_type(g, r), n, 64);
        if (r->is_arg) g->val[r->ins].slot = r->mem_idx = df_gen_alloca(g, idx_type(g), n, 64);
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
static void set_some(df_gen *g, chunk *c, uint32_t n_acc)
{
    df_pair p[DF_LANES];
    uint32_t n = 0;
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        if (!is_of_stage(g, r, c->stage) || r->n_acc != n_acc) continue;
        p[n].v = identity_of(g, r);
        p[n++].i = r->is_arg ? df_gen_splat(g, c->r0, g->w) : NULL;
    }
    if (n == 0) return;
    df_loop l;
    begin_count(g, &l, n_acc == 1 ? g->pitch : col_mul(g, c->m, g->pitch));
    n = 0;
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++)
        if (is_of_stage(g, r, c->stage) && r->n_acc == n_acc)
            col_store_pair(g, r, r->mem, r->mem_idx, col_add(g, c->top, l.i), p[n++]);
    df_loop_end(g, &l);
}

static void element_group(df_gen *g, chunk *c)
{
    if (c->top) {
        g->acc_at = col_add(g, c->acc_base, g->group);
        g->acc_one = col_add(g, c->top, g->group);
    }
    df_gen_place(g, PLACE_BODY);
}

/* Writes the body for a whole chunk, group after group and without a loop. Each load instruction
 * then moves by one stride from row to row, a pattern that the hardware's prefetchers follow. */
static void unrolled_groups(df_gen *g, chunk *c, group_fn fn)
{
    g->prefetches = fn == element_group; /* several rows at once are faster without */
    for (uint32_t u = 0; u < c->groups; u++) {
        g->group = df_gen_i64(g, u);
        df_gen_lanes_begin(g, col_add(g, c->from, df_gen_i64(g, u * g->w)), NULL);
        fn(g, c);
    }
    g->prefetches = false;
    g->epoch++;
}

/* Writes fn for all groups of the chunk. unrolls: also without a loop, for whole chunks. */
static void all_groups(df_gen *g, chunk *c, group_fn fn, bool unrolls)
{
    df_if whole, part;
    if (!unrolls) {
        for_groups(g, c, fn);
        return;
    }
    df_if_begin(g, &whole, c->is_whole);
    unrolled_groups(g, c, fn);
    df_if_end(g, &whole);
    df_if_begin(g, &part, LLVMBuildNot(g->b, c->is_whole, ""));
    for_groups(g, c, fn);
    df_if_end(g, &part);
}

static LLVMValueRef acc_base_of(df_gen *g, const chunk *c, LLVMValueRef r)
{
    LLVMValueRef j = LLVMBuildAnd(g->b, r, df_gen_i64(g, DF_LANES - 1), "");
    return col_add(g, c->top, col_mul(g, j, g->pitch));
}

/* ---- several rows at once ---- */

/* Whether elements need not come in their order, as long as those of each accumulator do. */
static bool may_leave_order(const df_gen *g, const chunk *c)
{
    if (!c->top || g->n_red != 1) return false;
    for (uint32_t k = 0; k < g->n_reds; k++)
        if (is_of_stage(g, &g->reds[k], c->stage) && g->reds[k].is_arg) return false;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_kop op = (df_kop)g->k->ins[i].op;
        if ((op == DF_K_store || df_gen_kind(g, i) == DF_KOP_scan) &&
            df_gen_is_here(g, i, PLACE_BODY))
            return false;
    }
    return true;
}

/* Elements c->r, c->r + 64, .. of one group. */
static void rows_group(df_gen *g, chunk *c)
{
    for (uint32_t k = 0; k < ROWS; k++) {
        g->red_at = col_add(g, c->r, df_gen_i64(g, k * DF_LANES));
        df_nest_at(g, g->red[0], g->red_at);
        df_gen_place(g, PLACE_RED);
        element_group(g, c);
        g->epoch++; /* nothing of this row is valid in the next */
    }
}

/* The body for as many elements from `from` on as can be taken several rows at once. Returns the
 * first element that is left. */
static LLVMValueRef build_rows(df_gen *g, chunk *c, LLVMValueRef from, LLVMValueRef to)
{
    enum { STEP = ROWS * DF_LANES };
    df_if any;
    df_loop steps, lanes;
    LLVMValueRef n = LLVMBuildAnd(g->b, LLVMBuildSub(g->b, to, from, ""), df_gen_i64(g, -STEP), "");
    LLVMValueRef end = col_add(g, from, n);
    df_if_begin(g, &any, LLVMBuildICmp(g->b, LLVMIntSLT, from, end, ""));
    df_gen_place(g, PLACE_PRE);
    df_loop_begin(g, &steps, from, end, df_gen_i64(g, STEP), 0);
    begin_count(g, &lanes, df_gen_i64(g, DF_LANES));
    c->r = col_add(g, steps.i, lanes.i);
    c->acc_base = acc_base_of(g, c, c->r);
    all_groups(g, c, rows_group, ROWS * c->groups * df_gen_body_size(g) <= ROWS_UNROLLED);
    df_loop_end(g, &lanes);
    df_loop_end(g, &steps);
    df_if_end(g, &any);
    return end;
}

/* ---- accumulators in registers ---- */

/* Whether each reduction of the stage keeps one accumulator, and the body is short. */
static bool may_stay_in_registers(const df_gen *g, const chunk *c)
{
    const uint32_t size = df_gen_body_size(g);
    if (g->level == DF_OPT_O0 || size * c->groups > UNROLL_SIZE || !may_leave_order(g, c))
        return false;
    for (uint32_t k = 0; k < g->n_reds; k++)
        if (is_of_stage(g, &g->reds[k], c->stage) && g->reds[k].n_acc != 1) return false;
    return df_reduce_count(g, c->stage) * c->groups <= MOST_REGS;
}

/* Element r of `groups` groups. The first is group `group` of the chunk; its lanes begin at
 * `first`. */
static void groups_in_registers(df_gen *g, LLVMValueRef group, LLVMValueRef first, uint32_t groups)
{
    for (g->reg = 0; g->reg < groups; g->reg++) {
        if (groups > 1) {
            g->group = col_add(g, group, df_gen_i64(g, g->reg));
            df_gen_lanes_begin(g, col_add(g, first, df_gen_i64(g, g->reg * g->w)), NULL);
        }
        df_gen_place(g, PLACE_BODY);
    }
}

/* The body for elements [from, to) of `groups` groups. The first is group `group` of the chunk; its
 * lanes begin at `first`. One group may be partial: its mask is set. */
static void rows_in_registers(df_gen *g, chunk *c, LLVMValueRef from, LLVMValueRef to,
                              LLVMValueRef group, LLVMValueRef first, uint32_t groups)
{
    LLVMValueRef at = col_add(g, c->top, group);
    df_loop l;
    LLVMValueRef init[MOST_REGS];
    uint32_t n = 0;
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        if (!is_of_stage(g, r, c->stage)) continue;
        r->reg = df_gen_values(g, groups);
        for (uint32_t u = 0; u < groups; u++)
            init[n++] = col_load_pair(g, r, r->mem, NULL, col_add(g, at, df_gen_i64(g, u))).v;
    }
    df_loop_begin(g, &l, from, to, df_gen_i64(g, 1), n);
    n = 0;
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++)
        for (uint32_t u = 0; is_of_stage(g, r, c->stage) && u < groups; u++)
            r->reg[u] = df_loop_carry(g, &l, init[n++]);
    g->red_at = l.i;
    df_nest_at(g, g->red[0], l.i);
    df_gen_place(g, PLACE_RED);
    g->in_regs = true;
    groups_in_registers(g, group, first, groups);
    g->in_regs = false;
    n = 0;
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++)
        for (uint32_t u = 0; is_of_stage(g, r, c->stage) && u < groups; u++)
            l.next[n++] = r->reg[u];
    df_loop_end(g, &l);
    n = 0;
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++)
        for (uint32_t u = 0; is_of_stage(g, r, c->stage) && u < groups; u++) {
            const df_pair p = { l.out[n++], NULL };
            col_store_pair(g, r, r->mem, NULL, col_add(g, at, df_gen_i64(g, u)), p);
        }
    g->epoch++; /* nothing of a row is valid outside */
}

static void one_group_in_registers(df_gen *g, chunk *c)
{
    rows_in_registers(g, c, c->r0, c->to, g->group, g->lane0, 1);
}

/* The groups of a chunk that is not whole: halves, quarters and so on of a whole chunk, as many as
 * there are, and the others one after the other. */
static void part_in_registers(df_gen *g, chunk *c, LLVMValueRef from, LLVMValueRef to)
{
    LLVMValueRef done = df_gen_i64(g, 0);
    for (uint32_t n = c->groups / 2; n > 1; n /= 2) {
        df_if some;
        LLVMValueRef after = col_add(g, done, df_gen_i64(g, n)), w = df_gen_i64(g, g->w);
        LLVMValueRef first = col_add(g, c->from, col_mul(g, done, w));
        LLVMValueRef end = col_add(g, c->from, col_mul(g, after, w));
        LLVMValueRef fits = LLVMBuildICmp(g->b, LLVMIntSLE, end, c->end, "");
        df_if_begin(g, &some, fits);
        rows_in_registers(g, c, from, to, done, first, n);
        df_if_end(g, &some);
        done = LLVMBuildSelect(g->b, fits, after, done, "");
    }
    c->skip = done;
    c->to = to;
    for_groups(g, c, one_group_in_registers);
    c->skip = NULL;
}

/* All groups of a whole chunk move along the rows together. */
static void build_in_registers(df_gen *g, chunk *c, LLVMValueRef from, LLVMValueRef to)
{
    df_if any, whole, part;
    df_if_begin(g, &any, LLVMBuildICmp(g->b, LLVMIntSLT, from, to, ""));
    df_gen_place(g, PLACE_PRE);
    df_if_begin(g, &whole, c->is_whole);
    rows_in_registers(g, c, from, to, df_gen_i64(g, 0), c->from, c->groups);
    df_if_end(g, &whole);
    df_if_begin(g, &part, LLVMBuildNot(g->b, c->is_whole, ""));
    part_in_registers(g, c, from, to);
    df_if_end(g, &part);
    df_if_end(g, &any);
}

/* ---- all elements ---- */

/* The body for elements [from, to) of the reduced axes and all groups. Reductions accumulate only
 * when c->top is set. */
static void col_build_elements(df_gen *g, chunk *c, LLVMValueRef from, LLVMValueRef to)
{
    const uint32_t size = df_gen_body_size(g);
    if (may_stay_in_registers(g, c)) {
        build_in_registers(g, c, from, to);
        return;
    }
    if (g->level != DF_OPT_O0 && ROWS * size <= ROWS_UNROLLED && may_leave_order(g, c))
        from = build_rows(g, c, from, to);
    df_nest w = { .axes = g->red, .n = g->n_red, .from = from, .to = to };
    df_nest_guard(g, &w);
    df_gen_place(g, PLACE_PRE);
    df_nest_begin(g, &w);
    g->red_at = w.o;
    if (c->top) c->acc_base = acc_base_of(g, c, w.o);
    df_gen_place(g, PLACE_RED);
    all_groups(g, c, element_group, g->level != DF_OPT_O0 && size * c->groups <= UNROLL_SIZE);
    df_nest_end(g, &w);
}

/* Folds: acc[j] = acc[j] op acc[j + h] for h = 32, 16, .. 1 where both accumulators are in use. One
 * loop serves all j and groups, because their vectors are contiguous. */
static void col_fold_accumulators(df_gen *g, chunk *c)
{
    bool any = false;
    for (uint32_t k = 0; k < g->n_reds; k++)
        any |= is_of_stage(g, &g->reds[k], c->stage) && g->reds[k].n_acc > 1;
    if (!any) return;
    df_loop levels;
    df_loop_begin(g, &levels, df_gen_i64(g, 0), df_gen_i64(g, 6), df_gen_i64(g, 1), 0);
    LLVMValueRef h = LLVMBuildLShr(g->b, df_gen_i64(g, DF_LANES / 2), levels.i, "");
    LLVMValueRef n = df_gen_min(g, LLVMBuildSub(g->b, c->m, h, ""), h); /* may be negative */
    LLVMValueRef far = col_mul(g, h, g->pitch);
    df_loop l;
    begin_count(g, &l, col_mul(g, n, g->pitch));
    LLVMValueRef at = col_add(g, c->top, l.i);
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        if (!is_of_stage(g, r, c->stage) || r->n_acc == 1) continue;
        const df_pair low = col_load_pair(g, r, r->mem, r->mem_idx, at);
        const df_pair high = col_load_pair(g, r, r->mem, r->mem_idx, col_add(g, at, far));
        col_store_pair(g, r, r->mem, r->mem_idx, at, df_reduce_join(g, r, low, high));
    }
    df_loop_end(g, &l);
    df_loop_end(g, &levels);
}

/* ---- blocks ---- */

static void col_reduce_block(df_gen *g, chunk *c)
{
    c->r0 = col_mul(g, c->b, df_gen_i64(g, DF_BLOCK));
    LLVMValueRef end = df_gen_min(g, col_add(g, c->r0, df_gen_i64(g, DF_BLOCK)), g->length);
    c->m = df_gen_min(g, LLVMBuildSub(g->b, end, c->r0, ""), df_gen_i64(g, DF_LANES));
    LLVMValueRef one = df_gen_i64(g, 1); /* accumulator 0 is the result even of no element */
    c->m = LLVMBuildSelect(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, c->m, one, ""), one, c->m, "");
    set_some(g, c, DF_LANES);
    set_some(g, c, 1);
    col_build_elements(g, c, c->r0, end);
    col_fold_accumulators(g, c);
}

static LLVMValueRef stack_base(df_gen *g, const chunk *c, LLVMValueRef height)
{
    return col_mul(g, height, df_gen_i64(g, c->groups));
}

/* The entry at `height` of the stack is new. Joins the two newest entries n times and returns the
 * number of entries afterwards. */
static LLVMValueRef col_join_newest(df_gen *g, chunk *c, LLVMValueRef height, LLVMValueRef n)
{
    df_loop times;
    df_loop_begin(g, &times, df_gen_i64(g, 0), n, df_gen_i64(g, 1), 1);
    LLVMValueRef newer = df_loop_carry(g, &times, height);
    LLVMValueRef older = LLVMBuildSub(g->b, newer, df_gen_i64(g, 1), "");
    LLVMValueRef newer_at = stack_base(g, c, newer), older_at = stack_base(g, c, older);
    df_loop l;
    begin_count(g, &l, g->pitch);
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        if (!is_of_stage(g, r, c->stage)) continue;
        LLVMValueRef at = col_add(g, older_at, l.i);
        const df_pair a = col_load_pair(g, r, r->mem, r->mem_idx, at);
        const df_pair b = col_load_pair(g, r, r->mem, r->mem_idx, col_add(g, newer_at, l.i));
        col_store_pair(g, r, r->mem, r->mem_idx, at, df_reduce_join(g, r, a, b));
    }
    df_loop_end(g, &l);
    times.next[0] = older;
    df_loop_end(g, &times);
    return col_add(g, times.out[0], df_gen_i64(g, 1));
}

/* ---- partial results ---- */

static LLVMValueRef col_partial_at(df_gen *g, chunk *c, uint32_t slot)
{
    LLVMValueRef at = col_add(g, col_mul(g, df_gen_i64(g, slot), c->blocks.n), c->b);
    at = col_add(g, col_mul(g, at, g->extent[g->vec_axis]), g->lane0);
    return df_gen_at(g, g->i64, g->p_partial, at);
}

static LLVMTypeRef col_bits_type(const df_gen *g, const df_gen_red *r)
{
    const uint32_t bits = 8 * df_bytes_of((deft_dtype)r->dtype);
    return df_gen_lanes(LLVMIntTypeInContext(g->ctx, bits), g->w);
}

static void store_partial(df_gen *g, chunk *c)
{
    LLVMValueRef at = col_add(g, c->top, g->group);
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        if (!is_of_stage(g, r, 0)) continue;
        const df_pair p = col_load_pair(g, r, r->mem, r->mem_idx, at);
        LLVMValueRef bits = LLVMBuildBitCast(g->b, p.v, col_bits_type(g, r), "");
        bits = LLVMBuildZExtOrBitCast(g->b, bits, idx_type(g), "");
        df_access_store_unit(g, bits, col_partial_at(g, c, r->first_slot), 8);
        if (r->is_arg) df_access_store_unit(g, p.i, col_partial_at(g, c, r->first_slot + 1), 8);
    }
}

static void load_partial(df_gen *g, chunk *c)
{
    LLVMValueRef at = col_add(g, c->top, g->group);
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        if (!is_of_stage(g, r, 0)) continue;
        LLVMValueRef bits = df_access_load_unit(g, g->i64, col_partial_at(g, c, r->first_slot), 8);
        bits = LLVMBuildTruncOrBitCast(g->b, bits, col_bits_type(g, r), "");
        df_pair p = { LLVMBuildBitCast(g->b, bits, vec_type(g, r), ""), NULL };
        if (r->is_arg)
            p.i = df_access_load_unit(g, g->i64, col_partial_at(g, c, r->first_slot + 1), 8);
        col_store_pair(g, r, r->mem, r->mem_idx, at, p);
    }
}

/* ---- stages ---- */

/* Leaves the block's result on top of the stack. main and part compute it; fin loads it from
 * args->partial. */
static void col_reduce_or_load(df_gen *g, chunk *c, bool is_split)
{
    df_if take, compute;
    if (!is_split) {
        col_reduce_block(g, c);
        return;
    }
    LLVMValueRef any = LLVMBuildICmp(g->b, LLVMIntSGT, g->length, df_gen_i64(g, 0), "");
    LLVMValueRef takes = LLVMBuildAnd(g->b, g->is_fin, any, "");
    df_if_begin(g, &take, takes);
    for_groups(g, c, load_partial);
    df_if_end(g, &take);
    df_if_begin(g, &compute, LLVMBuildNot(g->b, takes, ""));
    col_reduce_block(g, c);
    df_if_end(g, &compute);
}

static void reduce_stage(df_gen *g, chunk *c)
{
    const bool is_split = c->stage == 0 && g->is_part;
    LLVMValueRef zero = df_gen_i64(g, 0), one = df_gen_i64(g, 1);
    col_alloc_arrays(g, c);
    df_scan_begin(g, c->stage);
    c->blocks = df_reduce_blocks(g, is_split);
    LLVMValueRef is_empty = LLVMBuildICmp(g->b, LLVMIntEQ, g->length, zero, "");
    LLVMValueRef to = LLVMBuildSelect(g->b, is_empty, one, c->blocks.to, "");
    df_loop l;
    df_loop_begin(g, &l, c->blocks.from, to, one, 1);
    LLVMValueRef height = df_loop_carry(g, &l, zero);
    c->b = l.i;
    c->top = stack_base(g, c, height);
    col_reduce_or_load(g, c, is_split);
    LLVMValueRef n = df_reduce_joins(g, &c->blocks, l.i, height);
    if (is_split) {
        df_if part;
        df_if_begin(g, &part, g->is_part);
        for_groups(g, c, store_partial);
        df_if_end(g, &part);
        /* A part call works at the bottom of the stack and joins nothing. */
        n = LLVMBuildSelect(g->b, g->is_part, zero, n, "");
    }
    LLVMValueRef after = col_join_newest(g, c, height, n);
    if (is_split) after = LLVMBuildSelect(g->b, g->is_part, zero, after, "");
    l.next[0] = after;
    df_loop_end(g, &l);
    c->top = NULL;
}

static void one_chunk(df_gen *g, chunk *c)
{
    df_if rest;
    for (uint32_t s = 0; s < g->k->n_stages; s++) {
        c->stage = s;
        row_values(g, c);
        df_gen_mark(g, s);
        if (df_reduce_count(g, s) > 0) {
            reduce_stage(g, c);
        } else if (df_gen_has_elem(g, s)) {
            df_scan_begin(g, s);
            col_build_elements(g, c, df_gen_i64(g, 0), g->length);
        }
        if (s == 0 && g->is_part) df_if_begin(g, &rest, LLVMBuildNot(g->b, g->is_part, ""));
    }
    if (g->is_part) df_if_end(g, &rest);
}

static uint32_t choose_groups(const df_gen *g)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < g->n_reds; k++) {
        const df_gen_red *r = &g->reds[k];
        bytes +=
            (uint64_t)r->n_acc * g->w * (df_bytes_of((deft_dtype)r->dtype) + (r->is_arg ? 8u : 0u));
    }
    const uint64_t n = bytes > 0 ? ACC_BYTES / bytes : SCAN_GROUPS;
    return n < 1 ? 1 : n > DF_COL_GROUPS ? DF_COL_GROUPS : (uint32_t)n;
}

void df_col_row(df_gen *g)
{
    chunk c = { .groups = choose_groups(g), .end = g->i1_ };
    LLVMValueRef from = g->i0;
    for (uint32_t s = 0; s < g->k->n_stages; s++) df_gen_row_level(g, s);
    if (g->is_part) { /* a call of part handles some blocks of all lanes */
        from = LLVMBuildSelect(g->b, g->is_part, df_gen_i64(g, 0), from, "");
        c.end = LLVMBuildSelect(g->b, g->is_part, g->extent[g->vec_axis], c.end, "");
    }
    df_loop l;
    df_loop_begin(g, &l, from, c.end, df_gen_i64(g, (int64_t)c.groups * g->w), 0);
    c.from = l.i;
    LLVMValueRef left = LLVMBuildSub(g->b, c.end, l.i, "");
    left = LLVMBuildUDiv(g->b, col_add(g, left, df_gen_i64(g, g->w - 1)), df_gen_i64(g, g->w), "");
    g->pitch = df_gen_min(g, left, df_gen_i64(g, c.groups));
    c.is_whole = LLVMBuildICmp(g->b, LLVMIntSLE,
                               col_add(g, l.i, df_gen_i64(g, (int64_t)c.groups * g->w)), c.end, "");
    one_chunk(g, &c);
    df_loop_end(g, &l);
}
