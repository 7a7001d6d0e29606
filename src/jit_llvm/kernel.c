/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the functions of one kernel: the entry points, what they load from their arguments, and
 * the rows of MAP and ROW. The rows of COL and LOOP are in col.c and iterate.c.
 */
#include "jit_llvm/gen.h"

#include <string.h>

enum {
    SHORT_BODY = 12,  /* instructions. Memory limits the speed of a body that is not longer */
    MOST_FETCHED = 2, /* most accesses that are prefetched a row ahead */
};

/* ---- rows ---- */

/* How the lanes of rows are divided. */
typedef struct map_lanes {
    df_lanes lanes;    /* of one row */
    df_jam_lanes pair; /* of two rows at a time */
    df_inside_lanes inside;
    bool jams;
} map_lanes;

static void map_row(df_gen *g, const map_lanes *m, const df_nest *rows)
{
    df_gen_mark(g, 0);
    df_gen_place(g, PLACE_PRE);
    if (g->has_inside) {
        df_inside_row(g, &m->inside);
        return;
    }
    if (m->jams)
        df_jam_row(g, rows, &m->lanes, &m->pair);
    else
        df_stream_lanes(g, &m->lanes, false);
}

/* One stage of a ROW kernel with a scan: element by element, in order. The running values are
 * carried in registers. */
static void scan_loop(df_gen *g)
{
    df_loop l;
    uint32_t n = 0;
    df_loop_begin(g, &l, df_gen_i64(g, 0), g->length, df_gen_i64(g, 1), g->k->n_ins);
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (df_gen_is_here(g, i, PLACE_BODY) && df_gen_kind(g, i) == DF_KOP_scan)
            g->val[i].scan = df_loop_carry(g, &l, df_scan_start(g, i));
    g->scans_in_regs = true;
    df_lanes_body(g, l.i, NULL, 1);
    g->scans_in_regs = false;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (df_gen_is_here(g, i, PLACE_BODY) && df_gen_kind(g, i) == DF_KOP_scan)
            l.next[n++] = g->val[i].scan;
    df_loop_end(g, &l);
}

static void plain_lanes(df_gen *g)
{
    const df_lanes l = df_lanes_cut(g, df_gen_i64(g, 0), g->length);
    df_stream_lanes(g, &l, false);
}

/* A stage of a ROW kernel without reductions. */
static void plain_stage(df_gen *g, uint32_t stage)
{
    df_if any;
    df_gen_mark(g, stage);
    df_if_begin(g, &any, LLVMBuildICmp(g->b, LLVMIntSGT, g->length, df_gen_i64(g, 0), ""));
    df_gen_place(g, PLACE_PRE);
    if (g->w == 1)
        scan_loop(g);
    else if (g->has_runs)
        df_gen_elements(g, df_gen_i64(g, 0), g->length, false);
    else
        plain_lanes(g);
    df_if_end(g, &any);
}

static void row_row(df_gen *g)
{
    df_if rest;
    for (uint32_t s = 0; s < g->k->n_stages; s++) {
        df_gen_row_level(g, s);
        const bool fetches = df_fetch_rows(g, s);
        if (df_reduce_count(g, s) > 0)
            df_reduce_row_stage(g, s);
        else if (df_gen_has_elem(g, s))
            plain_stage(g, s);
        if (fetches) df_fetch_end(g);
        if (s == 0 && g->is_part) df_if_begin(g, &rest, LLVMBuildNot(g->b, g->is_part, ""));
    }
    if (g->is_part) df_if_end(g, &rest);
}

/* ---- entries ---- */

static LLVMValueRef load_arg(df_gen *g, LLVMValueRef args, uint32_t field)
{
    /* df_kargs is eight pointers, and two numbers of the same size. */
    return LLVMBuildLoad2(g->b, g->ptr, df_gen_at(g, g->ptr, args, df_gen_i64(g, field)), "");
}
_Static_assert(sizeof(df_kargs) == 10 * sizeof(void *), "eight pointers and two numbers");
_Static_assert(offsetof(df_kargs, base) == 2 * sizeof(void *), "in this order");
_Static_assert(offsetof(df_kargs, fault) == 6 * sizeof(void *), "in this order");
_Static_assert(offsetof(df_kargs, work) == DF_WORK_WORD * sizeof(void *), "in this order");
_Static_assert(offsetof(df_kargs, streams) == DF_STREAMS_WORD * sizeof(void *), "in this order");
_Static_assert(offsetof(df_kargs, fetches) == DF_FETCHES_WORD * sizeof(void *), "in this order");

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
    if (df_gen_lane_step(g, a) != DF_STEP_ANY) return;
    const uint32_t size = df_bytes_of((deft_dtype)g->k->access[a].dtype);
    s->step = df_gen_is_second(g, a) ? df_gen_i64(g, 2 * (int64_t)size)
                                     : df_gen_stride(g, a, g->vec_axis);
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
    g->p_work = df_kernel_has_tiles(g->k) ? load_arg(g, args, DF_WORK_WORD) : NULL;
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

/* Sets the parts of the call's range that facts know. */
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
        v->sca = v->vec = v->inverse = v->lift = v->others = v->slot = v->scan = NULL;
        v->epoch = 0;
        if (v->place == PLACE_ENTRY) df_gen_scalar(g, i);
    }
    df_gen_others(g);
    g->epoch = 0;
    g->n_copies = 1;
    g->copy = 0;
    g->tail_buf = g->anywhere = NULL;
    memset(g->pair_mask, 0, sizeof g->pair_mask);
    g->gather = g->gathered = NULL;
    g->streams = g->fetches = NULL;
    g->streams_twos = false;
    g->is_streaming = g->is_fetching = g->is_jammed = g->are_twos = g->are_turns = false;
    g->in_regs = false;
}

/* Finds the accesses that an update in place loads from its rows, vector by vector. Returns their
 * number; 0 if there are more than n. */
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

/* Prefetches one row ahead what is updated in place, because the hardware's prefetcher stops at a
 * gap between rows. With prefetching, a[k:, k:] -= l[k:] r[k:] for 1000 x 1000 f64 takes 0.7 of the
 * time. From memory it takes as long as without, and in L1 1.1 times as long. Rows without gaps
 * gain nothing. Kernels that store elsewhere lose a tenth, so they do not prefetch. */
static void fetch_next_rows(df_gen *g)
{
    uint32_t access[MOST_FETCHED];
    const bool is_short = df_gen_body_size(g) <= SHORT_BODY;
    const uint32_t n =
        is_short && g->level != DF_OPT_O0 ? loads_of_rows(g, access, MOST_FETCHED) : 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t size = df_bytes_of((deft_dtype)g->k->access[access[i]].dtype);
        LLVMValueRef pitch = df_gen_stride(g, access[i], g->outer[g->n_outer - 1]);
        LLVMValueRef row = LLVMBuildMul(g->b, g->extent[g->vec_axis], df_gen_i64(g, size), "");
        LLVMValueRef has_gap = LLVMBuildICmp(g->b, LLVMIntNE, pitch, row, "");
        g->acc[access[i]].ahead = LLVMBuildSelect(g->b, has_gap, pitch, df_gen_i64(g, 0), "");
    }
    g->prefetches = n > 0;
}

static void all_rows(df_gen *g)
{
    map_lanes m = { .jams = false };
    if (g->k->mode == DF_MODE_MAP) {
        df_gen_mark(g, 0);
        if (g->has_inside)
            m.inside = df_inside_cut(g);
        else
            m.lanes = df_lanes_cut(g, g->i0, g->i1_);
        m.jams = df_jam_find(g);
        if (m.jams) m.pair = df_jam_cut(g);
        fetch_next_rows(g);
        df_stream_begin(g);
    }
    df_fetch_begin(g);
    df_nest rows = {
        .axes = g->outer, .n = g->n_outer, .is_outer = true, .from = g->o0, .to = g->o1
    };
    df_nest_guard(g, &rows);
    df_nest_begin(g, &rows);
    for (uint32_t a = 0; a < g->k->n_access; a++) g->acc[a].at = g->acc[a].row;
    if (g->k->mode == DF_MODE_MAP)
        map_row(g, &m, &rows);
    else if (g->k->mode == DF_MODE_ROW)
        row_row(g);
    else if (g->k->mode == DF_MODE_LOOP)
        df_iterate_row(g);
    else
        df_col_row(g);
    df_nest_end(g, &rows);
    df_stream_end(g);
}

/* Writes the function that holds the kernel's body: void (args, o0, o1, i0, i1). If df_gen_splits,
 * its sixth parameter is the df_entry. */
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
    if (g->tile_rows > 0)
        df_tiles_rows(g);
    else
        all_rows(g);
    if (has_inner) df_if_end(g, &any);
    LLVMBuildRetVoid(g->b);
    return g->fn;
}

/* Writes the function `name`, which calls the body with this df_entry. */
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

/* other: room for the longest of the other names. */
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
