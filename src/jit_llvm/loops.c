/* SPDX-License-Identifier: Apache-2.0
 *
 * One kernel to functions: the entry points and the loop nests of MAP and ROW.
 *
 * Loops over lanes: a main loop without masks and one masked tail. Bodies that are long enough to
 * be bound by latency are written for several vectors at once (analyse.c); the rest is then a
 * masked loop. Very long bodies, and all of codegen level O0, where compile time counts most, get a
 * single masked loop, and no tail (measured in L1, one copy: 50 % slower for 5 instructions, 12 %
 * for 50, which compile in 2.4 instead of 3.0 ms; nothing from L2 on). Where masks are not
 * instructions, always main loop and tail.
 */
#include "jit_llvm/gen.h"

#include <string.h>

enum {
    STRAIGHT_BODY = 128, /* instructions, over all vectors */
    SHORT_BODY = 12,     /* instructions of one vector: memory decides how long it takes */
    MOST_FETCHED = 2,    /* accesses that are fetched a row ahead */
};

/* ---- loops over lanes ---- */

void df_gen_copy(df_gen *g, uint32_t copy)
{
    g->copy = copy;
    g->lane0 = g->lane0s[copy];
    g->n_active = g->n_actives[copy];
    g->mask = g->masks[copy];
}

void df_gen_copies_begin(df_gen *g, LLVMValueRef lane0, LLVMValueRef end, uint32_t n)
{
    g->epoch++;
    g->n_copies = n;
    for (uint32_t c = 0; c < n; c++) {
        if (c > 0) lane0 = LLVMBuildAdd(g->b, lane0, df_gen_i64(g, g->w), "");
        g->lane0s[c] = lane0;
        g->masks[c] = g->n_actives[c] = NULL;
        if (!end || g->w == 1) continue;
        LLVMValueRef left = LLVMBuildSub(g->b, end, lane0, "");
        int64_t n_left;
        if (df_gen_known(left, &n_left) && n_left >= g->w) continue; /* all lanes */
        g->n_actives[c] = df_gen_min(g, left, df_gen_i64(g, g->w));
        /* Signed: of later copies nothing may be left, or less. */
        LLVMValueRef active = LLVMBuildTrunc(g->b, g->n_actives[c], g->i32, "");
        g->masks[c] = LLVMBuildICmp(g->b, LLVMIntSLT, df_gen_iota(g, g->i32, g->w),
                                    df_gen_splat(g, active, g->w), "");
    }
    df_gen_copy(g, 0);
}

void df_gen_lanes_begin(df_gen *g, LLVMValueRef lane0, LLVMValueRef end)
{
    df_gen_copies_begin(g, lane0, end, 1);
}

/* Where the whole vectors of [from, to) end. Both are multiples of g->multiple. */
LLVMValueRef df_gen_whole(df_gen *g, LLVMValueRef from, LLVMValueRef to, uint32_t lanes)
{
    if (g->multiple % lanes == 0) return to;
    LLVMValueRef n = LLVMBuildSub(g->b, to, from, "");
    n = LLVMBuildAnd(g->b, n, df_gen_i64(g, -(int64_t)lanes), "");
    return LLVMBuildAdd(g->b, from, n, "");
}

bool df_gen_one_loop(const df_gen *g)
{
    const bool is_long = df_gen_body_size(g) >= DF_LONG_BODY;
    return g->native_masks && (g->level == DF_OPT_O0 || is_long);
}

/* A short body of several results is written one vector after the other, not instruction by
 * instruction: the update of AdamW, four arrays read and three of them written in place, takes 1.03
 * instead of 1.16 ns an element where they lie in memory, and as long as before in caches. */
static bool by_vector(const df_gen *g)
{
    uint32_t n_stores = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        n_stores += g->k->ins[i].op == DF_K_store && df_gen_is_here(g, i, PLACE_BODY);
    return g->k->mode == DF_MODE_MAP && n_stores > 1 && df_gen_goes_by_vector(g, g->n_copies);
}

static void loop_body(df_gen *g, LLVMValueRef lane0, LLVMValueRef end, uint32_t n_copies)
{
    df_gen_copies_begin(g, lane0, end, n_copies);
    if (by_vector(g))
        for (uint32_t c = 0; c < n_copies; c++) df_gen_place_copies(g, PLACE_BODY, c, c + 1);
    else
        df_gen_place(g, PLACE_BODY);
}

/* for (i = from; i < to; i += w n_copies): end NULL: only whole vectors. */
static void body_loop(df_gen *g, LLVMValueRef from, LLVMValueRef to, LLVMValueRef end, uint32_t n)
{
    df_loop l;
    df_loop_begin(g, &l, from, to, df_gen_i64(g, g->w * n), 0);
    loop_body(g, l.i, end, n);
    df_loop_end(g, &l);
}

/* Known counts of vectors are written out, when that is short. */
static bool straight(df_gen *g, LLVMValueRef from, LLVMValueRef to, uint32_t n)
{
    int64_t a, b;
    if (!df_gen_known(from, &a) || !df_gen_known(to, &b)) return false;
    const int64_t n_vec = (b - a + g->w - 1) / g->w;
    if (g->w == 1 || n_vec * df_gen_body_size(g) > STRAIGHT_BODY) return false;
    for (int64_t v = 0; v < n_vec; v += n) {
        const int64_t left = n_vec - v;
        loop_body(g, df_gen_i64(g, a + v * g->w), to, left < n ? (uint32_t)left : n);
    }
    return true;
}

/* So many copies, at most n, that a masked loop over a known count computes the fewest idle ones.
 */
static uint32_t fitting_copies(df_gen *g, LLVMValueRef from, LLVMValueRef to, uint32_t n)
{
    int64_t a, b;
    if (!df_gen_known(from, &a) || !df_gen_known(to, &b)) return n;
    const int64_t n_vec = (b - a + g->w - 1) / g->w;
    uint32_t best = n;
    for (uint32_t c = n; c > 1; c--)
        if ((n_vec + c - 1) / c * c < (n_vec + best - 1) / best * best) best = c;
    return best;
}

/* How [from, to) is cut: vectors n at a time up to `several`, one at a time up to `whole`, then the
 * tail. What does not depend on the row is said before the walk over rows: for rows of few elements
 * it is most of the work. */
typedef struct lanes {
    LLVMValueRef from, to, several, whole;
    LLVMValueRef has_tail, mask, n_active; /* NULL: no tail by itself */
    uint32_t n;
    bool one_loop;
} lanes;

static lanes cut_lanes(df_gen *g, LLVMValueRef from, LLVMValueRef to)
{
    lanes l = { .from = from, .to = to, .several = from, .n = df_gen_copies(g) };
    l.one_loop = df_gen_one_loop(g);
    if (l.one_loop) {
        l.n = fitting_copies(g, from, to, l.n);
        return l;
    }
    if (l.n > 1) l.several = df_gen_whole(g, from, to, g->w * l.n);
    if (g->native_masks && l.n > 1) return l;
    l.whole = g->w == 1 ? to : df_gen_whole(g, l.several, to, g->w);
    if (g->w == 1 || l.whole == to) return l;
    l.has_tail = LLVMBuildICmp(g->b, LLVMIntSLT, l.whole, to, "");
    df_gen_lanes_begin(g, l.whole, to);
    l.mask = g->mask;
    l.n_active = g->n_active;
    return l;
}

/* Whether [from, to) is cut into n vectors at a time without rest. */
static bool is_whole(const df_gen *g, const lanes *l, uint32_t n)
{
    int64_t a, b;
    if (g->multiple % (g->w * n) == 0) return true;
    return df_gen_known(l->from, &a) && df_gen_known(l->to, &b) && (b - a) % (g->w * n) == 0;
}

/* The marked body for the elements of l along the vectorized axis. */
static void lanes_loop(df_gen *g, const lanes *l)
{
    if (df_gen_body_size(g) == 0 || straight(g, l->from, l->to, l->n)) return;
    if (l->one_loop) {
        body_loop(g, l->from, l->to, is_whole(g, l, l->n) ? NULL : l->to, l->n);
        return;
    }
    if (l->n > 1) body_loop(g, l->from, l->several, NULL, l->n);
    if (l->several == l->to) return;
    if (!l->whole) {
        body_loop(g, l->several, l->to, is_whole(g, l, 1) ? NULL : l->to, 1);
        return;
    }
    body_loop(g, l->several, l->whole, NULL, 1);
    if (!l->has_tail) return;
    df_if tail;
    df_if_begin(g, &tail, l->has_tail);
    df_gen_copies_begin(g, l->whole, NULL, 1);
    g->masks[0] = l->mask;
    g->n_actives[0] = l->n_active;
    df_gen_copy(g, 0);
    df_gen_place(g, PLACE_BODY);
    df_if_end(g, &tail);
}

/* ---- runs ----
 *
 * Several reduced axes: a run is a pass along the last of them, elements [o L, o L + L) of the row
 * for run number o and length L. A block may begin and end inside a run; only its first position is
 * divided, all else is added up by the walk.
 */

static void scratch_at(df_gen *g, LLVMValueRef start)
{
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        const df_access *x = &g->k->access[a];
        if (x->kind != DF_ACCESS_SCRATCH) continue;
        LLVMTypeRef t = df_gen_mem_type(g, (deft_dtype)x->dtype);
        g->acc[a].at = df_gen_at(g, t, g->acc[a].row, start);
    }
}

void df_gen_elements(df_gen *g, LLVMValueRef from, LLVMValueRef to, bool gathers)
{
    if (!g->has_runs) {
        const lanes l = cut_lanes(g, from, to);
        lanes_loop(g, &l);
        return;
    }
    LLVMValueRef length = g->extent[g->vec_axis], one = df_gen_i64(g, 1), zero = df_gen_i64(g, 0);
    LLVMValueRef last = LLVMBuildUDiv(g->b, LLVMBuildSub(g->b, to, one, ""), length, "");
    df_walk runs = { .axes = g->red, .n = g->n_red - 1 };
    runs.from = LLVMBuildUDiv(g->b, from, length, "");
    runs.to = LLVMBuildAdd(g->b, last, one, "");
    df_walk_guard(g, &runs);
    df_walk_begin(g, &runs);
    LLVMValueRef start = LLVMBuildMul(g->b, runs.o, length, "");
    LLVMValueRef skip = LLVMBuildSub(g->b, from, start, "");
    LLVMValueRef is_inside = LLVMBuildICmp(g->b, LLVMIntSGT, skip, zero, "");
    LLVMValueRef i0 = LLVMBuildSelect(g->b, is_inside, skip, zero, "");
    LLVMValueRef i1 = df_gen_min(g, length, LLVMBuildSub(g->b, to, start, ""));
    scratch_at(g, start);
    if (gathers) g->gather = LLVMBuildNeg(g->b, skip, "");
    df_gen_place(g, PLACE_RED);
    const lanes l = cut_lanes(g, i0, i1);
    lanes_loop(g, &l);
    g->gather = NULL;
    df_walk_end(g, &runs);
}

/* ---- rows ---- */

static void map_row(df_gen *g, const lanes *l)
{
    df_gen_mark(g, 0);
    df_gen_place(g, PLACE_PRE);
    lanes_loop(g, l);
}

/* A row in order, element by element; running values are carried in registers. */
static void scan_loop(df_gen *g)
{
    df_loop l;
    uint32_t n = 0;
    df_loop_begin(g, &l, df_gen_i64(g, 0), g->length, df_gen_i64(g, 1), g->k->n_ins);
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (df_gen_is_here(g, i, PLACE_BODY) && g->k->ins[i].op == DF_K_cumsum)
            g->val[i].scan = df_loop_carry(g, &l, df_scan_start(g, i));
    g->scans_in_regs = true;
    loop_body(g, l.i, NULL, 1);
    g->scans_in_regs = false;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (df_gen_is_here(g, i, PLACE_BODY) && g->k->ins[i].op == DF_K_cumsum)
            l.next[n++] = g->val[i].scan;
    df_loop_end(g, &l);
}

static void plain_stage(df_gen *g, uint32_t stage)
{
    df_if any;
    df_gen_mark(g, stage);
    df_if_begin(g, &any, LLVMBuildICmp(g->b, LLVMIntSGT, g->length, df_gen_i64(g, 0), ""));
    df_gen_place(g, PLACE_PRE);
    if (g->w == 1)
        scan_loop(g);
    else
        df_gen_elements(g, df_gen_i64(g, 0), g->length, false);
    df_if_end(g, &any);
}

static void row_row(df_gen *g)
{
    df_if rest;
    for (uint32_t s = 0; s < g->k->n_stages; s++) {
        df_gen_row_level(g, s);
        if (df_reduce_count(g, s) > 0)
            df_reduce_row_stage(g, s);
        else if (df_gen_has_elem(g, s))
            plain_stage(g, s);
        if (s == 0 && g->is_part) df_if_begin(g, &rest, LLVMBuildNot(g->b, g->is_part, ""));
    }
    if (g->is_part) df_if_end(g, &rest);
}

/* ---- entries ---- */

static LLVMValueRef load_arg(df_gen *g, LLVMValueRef args, uint32_t field)
{
    /* df_kargs is seven pointers. */
    return LLVMBuildLoad2(g->b, g->ptr, df_gen_at(g, g->ptr, args, df_gen_i64(g, field)), "");
}
_Static_assert(sizeof(df_kargs) == 7 * sizeof(void *), "seven pointers");
_Static_assert(offsetof(df_kargs, base) == 2 * sizeof(void *), "in this order");
_Static_assert(offsetof(df_kargs, fault) == 6 * sizeof(void *), "in this order");

static void load_access(df_gen *g, uint32_t a)
{
    const df_access *x = &g->k->access[a];
    df_acc_state *s = &g->acc[a];
    const bool is_index = x->kind == DF_ACCESS_INDEX;
    LLVMTypeRef type = is_index ? g->i64 : g->ptr;
    LLVMValueRef from = is_index ? g->p_base : g->p_ptr;
    s->base = LLVMBuildLoad2(g->b, type, df_gen_at(g, type, from, df_gen_i64(g, a)), "");
    s->row = s->at = s->base;
    s->step = s->ramp = NULL;
    if (x->kind == DF_ACCESS_SCRATCH || x->kind == DF_ACCESS_AT || g->vec_axis < 0 ||
        x->step[g->vec_axis] != DF_STEP_ANY)
        return;
    s->step = df_gen_stride(g, a, g->vec_axis);
    if (g->w > 1)
        s->ramp =
            LLVMBuildMul(g->b, df_gen_iota(g, g->i64, g->w), df_gen_splat(g, s->step, g->w), "");
}

static bool has_op(const df_gen *g, df_kop op)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].op == op) return true;
    return false;
}

static void load_args(df_gen *g)
{
    LLVMValueRef args = LLVMGetParam(g->fn, 0);
    g->o0 = LLVMGetParam(g->fn, 1);
    g->o1 = LLVMGetParam(g->fn, 2);
    g->i0 = LLVMGetParam(g->fn, 3);
    g->i1_ = LLVMGetParam(g->fn, 4);
    g->p_ptr = load_arg(g, args, 0);
    g->p_stride = load_arg(g, args, 1);
    g->p_base = has_op(g, DF_K_index) ? load_arg(g, args, 2) : NULL;
    g->p_extent = load_arg(g, args, 3);
    g->p_num = has_op(g, DF_K_num) ? load_arg(g, args, 4) : NULL;
    g->p_partial = df_gen_splits(g) ? load_arg(g, args, 5) : NULL;
    g->p_fault = has_op(g, DF_K_check) ? load_arg(g, args, 6) : NULL;
    g->is_part = g->is_fin = NULL;
    if (!df_gen_splits(g)) return;
    LLVMValueRef entry = LLVMGetParam(g->fn, 5);
    g->is_part = LLVMBuildICmp(g->b, LLVMIntEQ, entry, LLVMConstInt(g->i32, ENTRY_PART, 0), "");
    g->is_fin = LLVMBuildICmp(g->b, LLVMIntEQ, entry, LLVMConstInt(g->i32, ENTRY_FIN, 0), "");
    LLVMValueRef one_row = LLVMBuildOr(g->b, g->is_part, g->is_fin, "");
    g->o1 =
        LLVMBuildSelect(g->b, one_row, LLVMBuildAdd(g->b, g->o0, df_gen_i64(g, 1), ""), g->o1, "");
}

static LLVMValueRef load_extent(df_gen *g, uint32_t x)
{
    if (g->facts && g->facts->extent[x] != DF_ANY) return df_gen_i64(g, g->facts->extent[x]);
    return LLVMBuildLoad2(g->b, g->i64, df_gen_at(g, g->i64, g->p_extent, df_gen_i64(g, x)), "");
}

/* The range of a call, where facts say it. */
static void know_range(df_gen *g)
{
    LLVMValueRef n = df_gen_i64(g, 1);
    for (int i = 0; i < g->n_outer; i++) n = LLVMBuildMul(g->b, n, g->extent[g->outer[i]], "");
    if (g->facts->all) {
        g->o0 = df_gen_i64(g, 0);
        g->o1 = n;
    }
    if (!g->facts->rows) return;
    g->i0 = df_gen_i64(g, 0);
    g->i1_ =
        g->k->mode == DF_MODE_ROW || g->vec_axis < 0 ? df_gen_i64(g, 1) : g->extent[g->vec_axis];
}

static void prologue(df_gen *g)
{
    load_args(g);
    g->length = NULL;
    for (uint32_t x = 0; x < g->k->n_axes; x++) {
        g->extent[x] = load_extent(g, x);
        if (g->k->role[x] == DF_AXIS_RED)
            g->length = g->length ? LLVMBuildMul(g->b, g->length, g->extent[x], "") : g->extent[x];
    }
    if (g->facts) know_range(g);
    for (uint32_t a = 0; a < g->k->n_access; a++) load_access(g, a);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        df_val *v = &g->val[i];
        v->sca = v->vec = v->inverse = v->lift = v->slot = v->scan = NULL;
        v->epoch = 0;
        if (v->place == PLACE_ENTRY) df_gen_scalar(g, i);
    }
    g->epoch = 0;
    g->n_copies = 1;
    g->copy = 0;
    g->tail_buf = NULL;
    g->gather = g->gathered = NULL;
    g->in_regs = false;
}

/* What an update in place loads, vector by vector, from its rows: at most n accesses, or none. */
static uint32_t loads_of_rows(const df_gen *g, uint32_t *access, uint32_t n)
{
    uint32_t n_found = 0;
    if (g->k->mode != DF_MODE_MAP || g->n_outer == 0 || g->vec_axis < 0) return 0;
    for (uint32_t i = 0; i < g->k->n_ins && n_found <= n; i++) {
        const df_ins *ins = &g->k->ins[i];
        if (ins->op != DF_K_load || g->val[i].place != PLACE_BODY) continue;
        const df_access *a = &g->k->access[ins->imm];
        if (a->step[g->vec_axis] != DF_STEP_UNIT) continue;
        if (a->step[g->outer[g->n_outer - 1]] == DF_STEP_ZERO) continue;
        if (!df_gen_may_be_written(g, (uint32_t)ins->imm)) continue;
        if (n_found < n) access[n_found] = (uint32_t)ins->imm;
        n_found++;
    }
    return n_found <= n ? n_found : 0;
}

/* The hardware's prefetcher stops at a gap between rows. So what is updated in place is fetched a
 * row ahead: a[k:, k:] -= l[k:] r[k:] takes 0.7 of the time for 1000 x 1000 f64, as long as before
 * from memory, 1.1 times as long in L1. Rows without gaps gain nothing, and results that lie
 * elsewhere lose a tenth. */
static void fetch_next_rows(df_gen *g)
{
    uint32_t access[MOST_FETCHED];
    const bool is_short = df_gen_body_size(g) <= SHORT_BODY;
    const uint32_t n =
        is_short && g->level != DF_OPT_O0 ? loads_of_rows(g, access, MOST_FETCHED) : 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t size = df_dtype_bytes((deft_dtype)g->k->access[access[i]].dtype);
        LLVMValueRef pitch = df_gen_stride(g, access[i], g->outer[g->n_outer - 1]);
        LLVMValueRef row = LLVMBuildMul(g->b, g->extent[g->vec_axis], df_gen_i64(g, size), "");
        LLVMValueRef has_gap = LLVMBuildICmp(g->b, LLVMIntNE, pitch, row, "");
        g->acc[access[i]].ahead = LLVMBuildSelect(g->b, has_gap, pitch, df_gen_i64(g, 0), "");
    }
    g->prefetches = n > 0;
}

/* The kernel's one body: void (args, o0, o1, i0, i1), and the df_entry for SPLIT kernels. */
static LLVMValueRef body_fn(df_gen *g, const char *name)
{
    LLVMTypeRef params[6] = { g->ptr, g->i64, g->i64, g->i64, g->i64, g->i32 };
    const unsigned n = df_gen_splits(g) ? 6 : 5;
    g->fn = LLVMAddFunction(g->m, name, LLVMFunctionType(g->nothing, params, n, 0));
    df_llvm_set_attributes(g->ctx, g->t, g->fn);
    g->first = df_gen_block(g, "entry");
    LLVMPositionBuilderAtEnd(g->b, g->first);
    prologue(g);

    df_if any;
    const bool has_inner = g->k->mode != DF_MODE_ROW;
    if (has_inner) df_if_begin(g, &any, LLVMBuildICmp(g->b, LLVMIntSLT, g->i0, g->i1_, ""));
    lanes l = { .n = 0 };
    if (g->k->mode == DF_MODE_MAP) {
        df_gen_mark(g, 0);
        l = cut_lanes(g, g->i0, g->i1_);
        fetch_next_rows(g);
    }
    df_walk rows = {
        .axes = g->outer, .n = g->n_outer, .is_outer = true, .from = g->o0, .to = g->o1
    };
    df_walk_guard(g, &rows);
    df_walk_begin(g, &rows);
    for (uint32_t a = 0; a < g->k->n_access; a++) g->acc[a].at = g->acc[a].row;
    if (g->k->mode == DF_MODE_MAP)
        map_row(g, &l);
    else if (g->k->mode == DF_MODE_ROW)
        row_row(g);
    else if (g->k->mode == DF_MODE_LOOP)
        df_iterate_row(g);
    else
        df_col_row(g);
    df_walk_end(g, &rows);
    if (has_inner) df_if_end(g, &any);
    LLVMBuildRetVoid(g->b);
    return g->fn;
}

/* A function that jumps to the body. */
static void entry_fn(df_gen *g, LLVMValueRef body, df_entry entry, const char *name)
{
    LLVMTypeRef params[5] = { g->ptr, g->i64, g->i64, g->i64, g->i64 };
    LLVMValueRef args[6];
    g->fn = LLVMAddFunction(g->m, name, LLVMFunctionType(g->nothing, params, 5, 0));
    df_llvm_set_attributes(g->ctx, g->t, g->fn);
    LLVMPositionBuilderAtEnd(g->b, df_gen_block(g, "entry"));
    for (unsigned i = 0; i < 5; i++) args[i] = LLVMGetParam(g->fn, i);
    args[5] = LLVMConstInt(g->i32, entry, 0);
    LLVMSetTailCall(LLVMBuildCall2(g->b, LLVMGlobalGetValueType(body), body, args, 6, ""), 1);
    LLVMBuildRetVoid(g->b);
}

static void write_functions(df_gen *g, const char *name, char *other)
{
    if (!df_gen_splits(g)) {
        body_fn(g, name);
        return;
    }
    static const char *const suffix[] = { "", "_part", "_fin" };
    const size_t n = strlen(name);
    memcpy(other, name, n);
    memcpy(other + n, "_body", sizeof "_body");
    LLVMValueRef body = body_fn(g, other);
    LLVMSetLinkage(body, LLVMInternalLinkage);
    for (int e = ENTRY_MAIN; e <= ENTRY_FIN; e++) {
        memcpy(other + n, suffix[e], strlen(suffix[e]) + 1);
        entry_fn(g, body, (df_entry)e, other);
    }
}

deft_status df_gen_kernel(df_gen *g, const char *name)
{
    deft_status st = df_gen_check(g);
    if (st != DEFT_OK) return st;
    g->val = df_arena_new(g->arena, df_val, g->k->n_ins + 1);
    g->acc = df_arena_new(g->arena, df_acc_state, g->k->n_access + 1);
    g->reds = df_arena_new(g->arena, df_gen_red, g->k->n_ins + 1);
    char *other = df_arena_alloc(g->arena, strlen(name) + sizeof "_part", 1);
    if (!g->val || !g->acc || !g->reds || !other || setjmp(g->no_memory) != 0)
        return g->host->fail(g->d, DEFT_E_MEMORY, "code for %s: memory is short", name);
    df_gen_analyse(g);
    if (g->n_reds > DF_LANES)
        return g->host->fail(g->d, DEFT_E_COMPILE, "kernel: %u reductions, at most %d", g->n_reds,
                             DF_LANES);
    st = df_gen_check_places(g);
    if (st == DEFT_OK) write_functions(g, name, other);
    return st;
}
