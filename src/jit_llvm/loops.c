/* SPDX-License-Identifier: Apache-2.0
 *
 * One kernel to functions: what depends on what (gen.h, "Values"), the entry points and the MAP and ROW
 * loop nests. COL nests are in col.c, reductions in reduce.c.
 *
 * Lanes. One count w for all vectors of a kernel: as many as the native vector has elements of the
 * width that most lane-wise instructions have, 4 or 8 bytes (kernels of bytes only: 1). f32 kernels get 16
 * lanes on AVX-512, f64 and 64-bit integer kernels 8; a few i64 indices in an f32 kernel take two
 * registers each, a few floats in an f64 kernel half of one. A ROW kernel with a scan is scalar (w = 1).
 *
 * Loops over lanes: a main loop without masks and one masked tail. Very long bodies, and all of codegen
 * level O0, where compile time counts most, get a single masked loop, half the code (measured in L1: 50 %
 * slower for 5 instructions, 12 % for 50, which compile in 2.4 instead of 3.0 ms; nothing from L2 on).
 * Where masks are not instructions, always main loop and tail.
 *
 * Order within an iteration: all loads stand before all stores, whatever the order of the body; so an output
 * may lie over an input that it replaces element by element, and no alias information is needed.
 */
#include "jit_llvm/gen.h"

#include <string.h>

/* ---- analysis ---- */

static const df_access *access_of(const df_gen *g, const df_ins *ins)
{
    return &g->k->access[ins->imm];
}

static bool has_access(df_kop op)
{
    return op == DF_K_load || op == DF_K_load_at || op == DF_K_store || op == DF_K_index;
}

static df_kop_kind kind_of(const df_gen *g, uint32_t i)
{
    return (df_kop_kind)g->host->kops[g->k->ins[i].op].kind;
}

static uint32_t n_src(const df_gen *g, uint32_t i) { return g->host->kops[g->k->ins[i].op].n_src; }

static uint8_t vec_moves(const df_gen *g)
{
    return g->k->mode == DF_MODE_ROW ? MOVES_RED : MOVES_INNER;
}

static uint8_t access_moves(const df_kernel *k, const df_access *a)
{
    static const uint8_t of_role[] = { MOVES_OUTER, MOVES_RED, MOVES_INNER };
    if (a->kind == DF_ACCESS_SCRATCH) return MOVES_RED;
    if (a->kind == DF_ACCESS_AT) return 0; /* the offset says it all */
    uint8_t moves = 0;
    for (uint32_t x = 0; x < k->n_axes; x++)
        if (a->step[x] != DF_STEP_ZERO) moves |= of_role[k->role[x]];
    return moves;
}

static uint8_t ins_moves(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    uint8_t moves = 0;
    for (uint32_t s = 0; s < n_src(g, i); s++) moves |= g->val[ins->src[s]].moves;
    if (has_access((df_kop)ins->op)) {
        moves |= g->acc[ins->imm].moves;
        if (ins->op != DF_K_index) moves |= MOVES_OUTER; /* memory is touched only inside rows */
    }
    if (ins->op == DF_K_check) moves |= MOVES_OUTER;
    if (kind_of(g, i) == DF_KOP_reduce)
        return MOVES_OUTER | (g->k->mode == DF_MODE_COL ? MOVES_INNER : 0);
    if (kind_of(g, i) == DF_KOP_scan)
        return MOVES_OUTER | MOVES_RED | (g->k->mode == DF_MODE_COL ? MOVES_INNER : 0);
    return moves;
}

static df_place ins_place(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    const uint8_t moves = g->val[i].moves;
    const bool is_lanes = moves & vec_moves(g);
    if (kind_of(g, i) == DF_KOP_reduce || kind_of(g, i) == DF_KOP_scan) return PLACE_BODY;
    if (moves == 0) return PLACE_ENTRY;
    if (ins->level == DF_LEVEL_ROW) return is_lanes ? PLACE_LANES : PLACE_ROW;
    if (is_lanes) return PLACE_BODY;
    return g->k->mode == DF_MODE_COL && moves & MOVES_RED ? PLACE_RED : PLACE_PRE;
}

static uint32_t choose_lanes(const df_gen *g)
{
    uint32_t n1 = 0, n4 = 0, n8 = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        if (ins->op == DF_K_cumsum && g->k->mode == DF_MODE_ROW) return 1;
        if (g->val[i].place != PLACE_BODY || kind_of(g, i) == DF_KOP_reduce) continue;
        const uint32_t size = df_dtype_bytes((deft_dtype)ins->dtype);
        n1 += size == 1;
        n4 += size == 4;
        n8 += size == 8;
    }
    if (n8 > n4) return g->t->vector_bytes / 8;
    if (n4 + n8 > 0 || n1 == 0) return g->t->vector_bytes / 4;
    return g->t->vector_bytes;
}

static void find_axes(df_gen *g)
{
    g->vec_axis = -1;
    g->n_outer = g->n_red = 0;
    for (int x = 0; x < g->k->n_axes; x++) {
        if (g->k->role[x] == DF_AXIS_OUTER) g->outer[g->n_outer++] = x;
        if (g->k->role[x] == DF_AXIS_RED) g->red[g->n_red++] = x;
        if (g->k->role[x] == (g->k->mode == DF_MODE_ROW ? DF_AXIS_RED : DF_AXIS_INNER))
            g->vec_axis = x;
    }
}

static bool masks_are_native(const df_gen *g)
{
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        const df_access *x = &g->k->access[a];
        const bool in_lanes = g->acc[a].moves & vec_moves(g);
        const bool is_word = df_dtype_bytes((deft_dtype)x->dtype) >= 4;
        if (x->kind == DF_ACCESS_INDEX || !in_lanes) continue; /* AT never moves in lanes by itself */
        if (!(is_word ? g->t->mask_words : g->t->mask_bytes)) return false;
        /* Strided accesses under a mask are cheap only as gathers. */
        if (x->kind != DF_ACCESS_SCRATCH && x->step[g->vec_axis] == DF_STEP_ANY) return false;
    }
    return g->t->mask_words && g->w > 1;
}

static void analyse(df_gen *g)
{
    find_axes(g);
    for (uint32_t a = 0; a < g->k->n_access; a++)
        g->acc[a].moves = access_moves(g->k, &g->k->access[a]);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        g->val[i].moves = ins_moves(g, i);
        g->val[i].place = (uint8_t)ins_place(g, i);
    }
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->val[i].place == PLACE_BODY || g->val[i].place == PLACE_LANES)
            for (uint32_t s = 0; s < n_src(g, i); s++) g->val[g->k->ins[i].src[s]].wants_vec = true;
    g->w = choose_lanes(g);
    g->native_masks = masks_are_native(g);
    df_reduce_plan(g);
}

/* ---- kernels that are refused ---- */

static deft_status refuse(const df_gen *g, uint32_t i, const char *what)
{
    const df_ins *ins = &g->k->ins[i];
    const char *name = ins->op < DF_N_KOPS ? g->host->kops[ins->op].name : "?";
    return g->host->fail(g->d, DEFT_E_COMPILE, "kernel instruction %u (%s, dtype %u): %s", i, name,
                         ins->dtype, what);
}

static deft_status check_ins(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (ins->op >= DF_N_KOPS || ins->dtype >= DEFT_N_DTYPES) return refuse(g, i, "no such op or dtype");
    if (ins->stage >= g->k->n_stages || ins->stage >= DF_MAX_STAGES)
        return refuse(g, i, "no such stage");
    for (uint32_t s = 0; s < n_src(g, i); s++)
        if (ins->src[s] >= i) return refuse(g, i, "an operand is not above its user");
    if (has_access((df_kop)ins->op) && ins->imm >= g->k->n_access)
        return refuse(g, i, "no such access");
    if (ins->op == DF_K_num && ins->imm >= g->k->n_num) return refuse(g, i, "no such number slot");
    const deft_dtype src = n_src(g, i) > 0 ? (deft_dtype)g->k->ins[ins->src[0]].dtype : DEFT_BOOL;
    if (!df_lower_knows((df_kop)ins->op, (deft_dtype)ins->dtype, src))
        return refuse(g, i, "no code for these dtypes");
    if (ins->op == DF_K_store && src != access_of(g, ins)->dtype)
        return refuse(g, i, "the access has another dtype");
    if ((ins->op == DF_K_load || ins->op == DF_K_load_at) && ins->dtype != access_of(g, ins)->dtype)
        return refuse(g, i, "the access has another dtype");
    return DEFT_OK;
}

/* What the rest relies on; the fuser's own verifier has said more. */
static deft_status check_kernel(const df_gen *g)
{
    const df_kernel *k = g->k;
    uint32_t n_role[3] = { 0, 0, 0 };
    if (k->n_axes > DF_MAX_AXES || k->mode > DF_MODE_COL || k->n_stages == 0)
        return g->host->fail(g->d, DEFT_E_COMPILE, "kernel: %u axes, mode %u, %u stages", k->n_axes,
                             k->mode, k->n_stages);
    for (uint32_t x = 0; x < k->n_axes; x++)
        if (k->role[x] <= DF_AXIS_INNER) n_role[k->role[x]]++;
    const bool fits = k->mode == DF_MODE_MAP   ? n_role[1] == 0 && n_role[2] <= 1
                      : k->mode == DF_MODE_ROW ? n_role[1] == 1 && n_role[2] == 0
                                               : n_role[1] >= 1 && n_role[2] == 1;
    if (!fits || n_role[0] + n_role[1] + n_role[2] != k->n_axes)
        return g->host->fail(g->d, DEFT_E_COMPILE, "kernel: mode %u with %u outer, %u reduced, %u inner axes",
                             k->mode, n_role[0], n_role[1], n_role[2]);
    for (uint32_t a = 0; a < k->n_access; a++)
        if (k->access[a].dtype >= DEFT_N_DTYPES)
            return g->host->fail(g->d, DEFT_E_COMPILE, "kernel access %u: no such dtype", a);
    for (uint32_t i = 0; i < k->n_ins; i++) {
        const deft_status st = check_ins(g, i);
        if (st != DEFT_OK) return st;
    }
    return DEFT_OK;
}

/* After analyse: values that would be asked for where they are not computed. */
static deft_status check_places(const df_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        const df_val *v = &g->val[i];
        const bool is_scalar = v->place != PLACE_BODY && v->place != PLACE_LANES;
        if (ins->op == DF_K_store && !is_scalar && !(g->acc[ins->imm].moves & vec_moves(g)))
            return refuse(g, i, "many lanes into one element");
        for (uint32_t s = 0; s < n_src(g, i); s++) {
            const uint32_t from = ins->src[s];
            const bool is_reduce = kind_of(g, from) == DF_KOP_reduce;
            if (is_reduce && g->k->ins[from].stage >= ins->stage)
                return refuse(g, i, "a reduction is used in its own stage");
            if (ins->level == DF_LEVEL_ROW && g->k->ins[from].level == DF_LEVEL_ELEM &&
                !is_reduce && g->val[from].place != PLACE_ENTRY)
                return refuse(g, i, "an element is used at row level");
        }
    }
    return DEFT_OK;
}

/* ---- values ---- */

LLVMValueRef df_gen_sca(df_gen *g, uint32_t i) { return g->val[i].sca; }

LLVMValueRef df_gen_vec(df_gen *g, uint32_t i)
{
    df_val *v = &g->val[i];
    if (v->vec && (v->epoch == g->epoch || v->epoch == EPOCH_ALWAYS)) return v->vec;
    if (v->slot) {
        const deft_dtype t = (deft_dtype)g->k->ins[i].dtype;
        LLVMTypeRef type = df_gen_lanes(df_gen_mem_type(g, t), g->w);
        v->vec = LLVMBuildLoad2(g->b, type, df_gen_at(g, type, v->slot, g->group), "");
        if (t == DEFT_BOOL)
            v->vec = LLVMBuildICmp(g->b, LLVMIntNE, v->vec, LLVMConstNull(type), "");
    } else {
        v->vec = df_gen_splat(g, v->sca, g->w);
    }
    v->epoch = g->epoch;
    return v->vec;
}

void df_gen_define(df_gen *g, uint32_t i, LLVMValueRef scalar)
{
    df_val *v = &g->val[i];
    v->sca = scalar;
    v->vec = NULL;
    if (!v->wants_vec) return;
    v->vec = df_gen_splat(g, scalar, g->w);
    v->epoch = EPOCH_ALWAYS;
}

static deft_dtype src_dtype(const df_gen *g, uint32_t i)
{
    return n_src(g, i) > 0 ? (deft_dtype)g->k->ins[g->k->ins[i].src[0]].dtype : DEFT_BOOL;
}

static LLVMValueRef load_num(df_gen *g, const df_ins *ins)
{
    const deft_dtype t = (deft_dtype)ins->dtype;
    /* Little-endian: the first bytes of the slot are the number. */
    LLVMValueRef p = df_gen_at(g, g->i64, g->p_num, df_gen_i64(g, (int64_t)ins->imm));
    LLVMValueRef v = LLVMBuildLoad2(g->b, df_gen_mem_type(g, t), p, "");
    return t == DEFT_BOOL ? LLVMBuildICmp(g->b, LLVMIntNE, v, LLVMConstInt(g->i8, 0, 0), "") : v;
}

/* Instruction i for one element, at the current position. */
static void emit_scalar(df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    LLVMValueRef s[3] = { NULL, NULL, NULL };
    for (uint32_t n = 0; n < n_src(g, i); n++) s[n] = df_gen_sca(g, ins->src[n]);
    const df_kop op = (df_kop)ins->op;
    LLVMValueRef v;
    if (op == DF_K_const)
        v = df_gen_const(g, (deft_dtype)ins->dtype, ins->imm);
    else if (op == DF_K_num)
        v = load_num(g, ins);
    else if (op == DF_K_index)
        v = g->acc[ins->imm].at;
    else if (op == DF_K_load || op == DF_K_load_at)
        v = df_access_load_one(g, (uint32_t)ins->imm, g->acc[ins->imm].at, s[0]);
    else if (op == DF_K_store) {
        df_access_store_one(g, (uint32_t)ins->imm, g->acc[ins->imm].at, s[0]);
        return;
    } else
        v = df_lower_op(g, ins, src_dtype(g, i), s, 1);
    df_gen_define(g, i, v);
}

/* Instruction i for w lanes. */
static void emit_lanes(df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    const df_kop op = (df_kop)ins->op;
    const uint32_t access = (uint32_t)ins->imm;
    LLVMValueRef s[3] = { NULL, NULL, NULL }, v;
    for (uint32_t n = 0; n < n_src(g, i); n++) s[n] = df_gen_vec(g, ins->src[n]);
    if (kind_of(g, i) == DF_KOP_reduce) {
        df_reduce_accumulate(g, i, s[0]);
        return;
    }
    if (op == DF_K_store) {
        df_access_store(g, access, s[0]);
        return;
    }
    if (op == DF_K_index)
        v = df_access_index(g, access);
    else if (op == DF_K_load)
        v = df_access_load(g, access);
    else if (op == DF_K_load_at)
        v = df_access_load_at(g, access, s[0]);
    else if (op == DF_K_cumsum)
        v = df_scan_step(g, i, s[0]);
    else
        v = df_lower_op(g, ins, src_dtype(g, i), s, g->w);
    g->val[i].vec = v;
    g->val[i].epoch = g->epoch;
}

void df_gen_mark(df_gen *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) g->val[i].is_marked = false;
    for (uint32_t i = g->k->n_ins; i-- > 0;) {
        const df_ins *ins = &g->k->ins[i];
        df_val *v = &g->val[i];
        if (ins->level != DF_LEVEL_ELEM || ins->stage > stage) continue;
        if (ins->stage == stage) v->is_marked = true;
        if (!v->is_marked) continue;
        /* Elements of an earlier stage are computed again. */
        for (uint32_t s = 0; s < n_src(g, i); s++)
            if (kind_of(g, ins->src[s]) != DF_KOP_reduce) g->val[ins->src[s]].is_marked = true;
    }
}

bool df_gen_has_elem(const df_gen *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].stage == stage && g->k->ins[i].level == DF_LEVEL_ELEM &&
            g->val[i].place != PLACE_ENTRY)
            return true;
    return false;
}

static bool is_here(const df_gen *g, uint32_t i, df_place place)
{
    return g->val[i].is_marked && g->val[i].place == place && g->k->ins[i].level == DF_LEVEL_ELEM;
}

void df_gen_place(df_gen *g, df_place place)
{
    for (int stores = 0; stores < 2; stores++)
        for (uint32_t i = 0; i < g->k->n_ins; i++) {
            if (!is_here(g, i, place) || (g->k->ins[i].op == DF_K_store) != stores) continue;
            if (place == PLACE_BODY)
                emit_lanes(g, i);
            else
                emit_scalar(g, i);
        }
}

uint32_t df_gen_body_size(const df_gen *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++) n += is_here(g, i, PLACE_BODY);
    return n;
}

static bool is_row_level(const df_gen *g, uint32_t i, uint32_t stage, df_place place, bool is_store)
{
    const df_ins *ins = &g->k->ins[i];
    return ins->level == DF_LEVEL_ROW && ins->stage == stage && g->val[i].place == place &&
           (ins->op == DF_K_store) == is_store;
}

/* Values first, then stores. A part call only needs the values: fin stores. */
static void row_level(df_gen *g, uint32_t stage, df_place place,
                      void (*emit)(df_gen *g, uint32_t i))
{
    bool has_stores = false;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (is_row_level(g, i, stage, place, false)) emit(g, i);
        has_stores |= is_row_level(g, i, stage, place, true);
    }
    if (!has_stores) return;
    df_if stores;
    const bool is_guarded = stage == 0 && g->is_part;
    if (is_guarded) df_if_begin(g, &stores, LLVMBuildNot(g->b, g->is_part, ""));
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (is_row_level(g, i, stage, place, true)) emit(g, i);
    if (is_guarded) df_if_end(g, &stores);
}

void df_gen_row_level(df_gen *g, uint32_t stage) { row_level(g, stage, PLACE_ROW, emit_scalar); }

void df_gen_row_lanes(df_gen *g, uint32_t stage) { row_level(g, stage, PLACE_LANES, emit_lanes); }

/* ---- loops over lanes ---- */

void df_gen_lanes_begin(df_gen *g, LLVMValueRef lane0, LLVMValueRef end)
{
    g->epoch++;
    g->lane0 = lane0;
    g->mask = g->n_active = NULL;
    if (!end || g->w == 1) return;
    LLVMValueRef left = LLVMBuildSub(g->b, end, lane0, "");
    g->n_active = df_gen_min(g, left, df_gen_i64(g, g->w));
    LLVMValueRef n = LLVMBuildTrunc(g->b, g->n_active, g->i32, "");
    g->mask = LLVMBuildICmp(g->b, LLVMIntULT, df_gen_iota(g, g->i32, g->w),
                            df_gen_splat(g, n, g->w), "");
}

/* Where the whole vectors of [from, to) end. */
LLVMValueRef df_gen_whole(df_gen *g, LLVMValueRef from, LLVMValueRef to, uint32_t lanes)
{
    LLVMValueRef n = LLVMBuildSub(g->b, to, from, "");
    n = LLVMBuildAnd(g->b, n, df_gen_i64(g, -(int64_t)lanes), "");
    return LLVMBuildAdd(g->b, from, n, "");
}

bool df_gen_one_loop(const df_gen *g)
{
    const bool is_long = df_gen_body_size(g) >= 160;
    return g->native_masks && (g->level == DF_OPT_O0 || is_long);
}

static LLVMValueRef loop_body(df_gen *g, LLVMValueRef lane0, LLVMValueRef end)
{
    df_gen_lanes_begin(g, lane0, end);
    df_gen_place(g, PLACE_BODY);
    return lane0;
}

/* The marked body for elements [from, to) along the vectorized axis. */
static void lanes_loop(df_gen *g, LLVMValueRef from, LLVMValueRef to)
{
    df_loop l;
    if (df_gen_body_size(g) == 0) return;
    if (df_gen_one_loop(g)) {
        df_loop_begin(g, &l, from, to, df_gen_i64(g, g->w), 0);
        loop_body(g, l.i, to);
        df_loop_end(g, &l);
        return;
    }
    LLVMValueRef whole = g->w == 1 ? to : df_gen_whole(g, from, to, g->w);
    df_loop_begin(g, &l, from, whole, df_gen_i64(g, g->w), 0);
    loop_body(g, l.i, NULL);
    df_loop_end(g, &l);
    if (g->w == 1) return;
    df_if tail;
    df_if_begin(g, &tail, LLVMBuildICmp(g->b, LLVMIntSLT, whole, to, ""));
    loop_body(g, whole, to);
    df_if_end(g, &tail);
}

/* ---- rows ---- */

static void map_row(df_gen *g)
{
    df_gen_mark(g, 0);
    df_gen_place(g, PLACE_PRE);
    lanes_loop(g, g->i0, g->i1_);
}

static void plain_stage(df_gen *g, uint32_t stage)
{
    df_if any;
    df_gen_mark(g, stage);
    df_if_begin(g, &any, LLVMBuildICmp(g->b, LLVMIntSGT, g->length, df_gen_i64(g, 0), ""));
    df_gen_place(g, PLACE_PRE);
    df_scan_begin(g, stage);
    lanes_loop(g, df_gen_i64(g, 0), g->length);
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
        s->ramp = LLVMBuildMul(g->b, df_gen_iota(g, g->i64, g->w), df_gen_splat(g, s->step, g->w), "");
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
    g->p_partial = g->k->flags & DF_KERNEL_SPLIT ? load_arg(g, args, 5) : NULL;
    g->p_fault = has_op(g, DF_K_check) ? load_arg(g, args, 6) : NULL;
    g->is_part = g->is_fin = NULL;
    if (!(g->k->flags & DF_KERNEL_SPLIT)) return;
    LLVMValueRef entry = LLVMGetParam(g->fn, 5);
    g->is_part = LLVMBuildICmp(g->b, LLVMIntEQ, entry, LLVMConstInt(g->i32, ENTRY_PART, 0), "");
    g->is_fin = LLVMBuildICmp(g->b, LLVMIntEQ, entry, LLVMConstInt(g->i32, ENTRY_FIN, 0), "");
    LLVMValueRef one_row = LLVMBuildOr(g->b, g->is_part, g->is_fin, "");
    g->o1 = LLVMBuildSelect(g->b, one_row, LLVMBuildAdd(g->b, g->o0, df_gen_i64(g, 1), ""), g->o1, "");
}

static void prologue(df_gen *g)
{
    load_args(g);
    g->length = NULL;
    for (uint32_t x = 0; x < g->k->n_axes; x++) {
        g->extent[x] = LLVMBuildLoad2(
            g->b, g->i64, df_gen_at(g, g->i64, g->p_extent, df_gen_i64(g, x)), "");
        if (g->k->role[x] == DF_AXIS_RED)
            g->length = g->length ? LLVMBuildMul(g->b, g->length, g->extent[x], "") : g->extent[x];
    }
    for (uint32_t a = 0; a < g->k->n_access; a++) load_access(g, a);
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        df_val *v = &g->val[i];
        v->sca = v->vec = v->slot = v->scan = NULL;
        if (v->place == PLACE_ENTRY) emit_scalar(g, i);
    }
    g->epoch = 0;
    g->tail_buf = NULL;
    g->in_regs = false;
}

/* The kernel's one body: void (args, o0, o1, i0, i1), and the df_entry for SPLIT kernels. */
static LLVMValueRef body_fn(df_gen *g, const char *name)
{
    LLVMTypeRef params[6] = { g->ptr, g->i64, g->i64, g->i64, g->i64, g->i32 };
    const unsigned n = g->k->flags & DF_KERNEL_SPLIT ? 6 : 5;
    g->fn = LLVMAddFunction(g->m, name, LLVMFunctionType(g->nothing, params, n, 0));
    df_llvm_set_attributes(g->ctx, g->t, g->fn);
    g->first = df_gen_block(g, "entry");
    LLVMPositionBuilderAtEnd(g->b, g->first);
    prologue(g);

    df_if any;
    const bool has_inner = g->k->mode != DF_MODE_ROW;
    if (has_inner) df_if_begin(g, &any, LLVMBuildICmp(g->b, LLVMIntSLT, g->i0, g->i1_, ""));
    df_walk rows = { .axes = g->outer, .n = g->n_outer, .is_outer = true, .from = g->o0, .to = g->o1 };
    df_walk_guard(g, &rows);
    df_walk_begin(g, &rows);
    for (uint32_t a = 0; a < g->k->n_access; a++) g->acc[a].at = g->acc[a].row;
    if (g->k->mode == DF_MODE_MAP)
        map_row(g);
    else if (g->k->mode == DF_MODE_ROW)
        row_row(g);
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
    if (!(g->k->flags & DF_KERNEL_SPLIT)) {
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
    deft_status st = check_kernel(g);
    if (st != DEFT_OK) return st;
    g->val = df_arena_new(g->arena, df_val, g->k->n_ins + 1);
    g->acc = df_arena_new(g->arena, df_acc_state, g->k->n_access + 1);
    g->reds = df_arena_new(g->arena, df_red, g->k->n_ins + 1);
    char *other = df_arena_alloc(g->arena, strlen(name) + sizeof "_part", 1);
    if (!g->val || !g->acc || !g->reds || !other)
        return g->host->fail(g->d, DEFT_E_MEMORY, "kernel of %u instructions: memory is short",
                             g->k->n_ins);
    analyse(g);
    if (g->n_reds > DF_LANES)
        return g->host->fail(g->d, DEFT_E_COMPILE, "kernel: %u reductions, at most %d", g->n_reds,
                             DF_LANES);
    st = check_places(g);
    if (st != DEFT_OK) return st;
    write_functions(g, name, other);
    if (g->short_of_memory)
        return g->host->fail(g->d, DEFT_E_MEMORY, "code for %s: memory is short", name);
    return DEFT_OK;
}
