/* SPDX-License-Identifier: Apache-2.0
 *
 * Instructions to IR, each at its level (gen.h, "Values"): scalars, lanes and row-level code. The
 * file also decides which instructions the loop of a stage contains.
 *
 * In each iteration, all loads of a vector precede all its stores, whatever their order in the
 * body. So an output may have the memory of an input that it replaces element by element, and no
 * alias information is needed.
 *
 * Why this file is long: each way to write a body ends in emit_lanes, and shares its helpers.
 */
#include "jit_llvm/gen.h"

#include <math.h>
#include <string.h>

LLVMValueRef df_gen_sca(df_gen *g, uint32_t i)
{
    return g->val[i].sca;
}

void df_gen_set_lanes(df_gen *g, uint32_t i, LLVMValueRef lanes)
{
    df_val *v = &g->val[i];
    if (v->epoch != g->epoch) memset(v->lanes, 0, sizeof v->lanes);
    v->epoch = g->epoch;
    v->lanes[g->copy] = lanes;
}

static LLVMValueRef load_num(df_gen *g, const df_ins *ins)
{
    const deft_dtype t = (deft_dtype)ins->dtype;
    if (g->facts && ins->imm < DF_FACT_NUMS && g->facts->num_mask >> ins->imm & 1)
        return df_gen_const(g, t, g->facts->num[ins->imm]);
    /* Little-endian: the first bytes of the slot are the number. */
    LLVMValueRef p = df_gen_at(g, g->i64, g->p_num, df_gen_i64(g, (int64_t)ins->imm));
    LLVMValueRef v = LLVMBuildLoad2(g->b, df_gen_mem_type(g, t), p, "");
    return t == DEFT_BOOL ? LLVMBuildICmp(g->b, LLVMIntNE, v, LLVMConstInt(g->i8, 0, 0), "") : v;
}

/* Whether v is a constant in the part of the row that code is written for. */
static bool is_known(const df_gen *g, const df_val *v)
{
    if (v->inside == DF_INSIDE_ANY || g->part == DF_ROW_ANY) return false;
    return g->part == DF_ROW_INSIDE || v->place < PLACE_LANES;
}

LLVMValueRef df_gen_vec(df_gen *g, uint32_t i)
{
    df_val *v = &g->val[i];
    if (is_known(g, v))
        return df_gen_splat(g, LLVMConstInt(g->i1, v->inside == DF_INSIDE_TRUE, 0), g->w);
    if (g->has_no_nan && v->asks_nan) return df_gen_splat(g, LLVMConstInt(g->i1, 0, 0), g->w);
    if (v->vec) return v->vec;
    if (v->is_read_in_place) return df_gen_splat(g, load_num(g, &g->k->ins[i]), g->w);
    if (v->epoch == g->epoch && v->lanes[g->copy]) return v->lanes[g->copy];
    LLVMValueRef lanes;
    if (v->slot) {
        const deft_dtype t = (deft_dtype)g->k->ins[i].dtype;
        LLVMTypeRef type = df_gen_lanes(df_gen_mem_type(g, t), g->w);
        lanes = LLVMBuildLoad2(g->b, type, df_gen_at(g, type, v->slot, g->group), "");
        if (t == DEFT_BOOL) lanes = LLVMBuildICmp(g->b, LLVMIntNE, lanes, LLVMConstNull(type), "");
    } else {
        lanes = df_gen_splat(g, v->sca, g->w);
    }
    df_gen_set_lanes(g, i, lanes);
    return lanes;
}

/* Computes the inverse of a scalar divisor. The inverse of a denormal number may overflow although
 * a quotient by that number does not, and 0 times infinity is NaN. So FAST code multiplies such a
 * divisor by a power of 2 that makes it normal, and later each dividend by the same. The inverses
 * of strict code are exact, so they are finite. */
static void define_inverse(df_gen *g, uint32_t i, LLVMValueRef scalar)
{
    df_val *v = &g->val[i];
    LLVMTypeRef type = LLVMTypeOf(scalar);
    LLVMValueRef one = LLVMConstReal(type, 1);
    if (g->k->flags & DF_KERNEL_FAST) {
        const bool is_f32 = g->k->ins[i].dtype == DEFT_F32;
        LLVMValueRef least = LLVMConstReal(type, is_f32 ? 0x1p-126 : 0x1p-1022);
        LLVMValueRef size = df_gen_intrinsic(g, "llvm.fabs", &type, 1, &scalar, 1);
        LLVMValueRef tiny = LLVMBuildFCmp(g->b, LLVMRealOLT, size, least, "");
        LLVMValueRef up = LLVMConstReal(type, is_f32 ? 0x1p24 : 0x1p53);
        LLVMValueRef lift = LLVMBuildSelect(g->b, tiny, up, one, "");
        scalar = LLVMBuildFMul(g->b, scalar, lift, "");
        v->lift = df_gen_splat(g, lift, g->w);
        v->bare_inverse = LLVMBuildSelect(g->b, tiny, LLVMConstReal(type, NAN), one, "");
    }
    LLVMValueRef inverse = LLVMBuildFDiv(g->b, one, scalar, "");
    v->inverse = df_gen_splat(g, inverse, g->w);
    if (v->bare_inverse)
        v->bare_inverse = df_gen_splat(g, LLVMBuildFMul(g->b, inverse, v->bare_inverse, ""), g->w);
}

/* a / d, where d has an inverse, is the product of this and the inverse. */
static LLVMValueRef lifted_dividend(df_gen *g, LLVMValueRef a, const df_val *d)
{
    return d->lift && !g->is_bare_try ? LLVMBuildFMul(g->b, a, d->lift, "") : a;
}

static LLVMValueRef inverse_of(const df_gen *g, const df_val *d)
{
    return g->is_bare_try ? d->bare_inverse : d->inverse;
}

static LLVMValueRef times_inverse(df_gen *g, LLVMValueRef a, const df_val *d)
{
    return LLVMBuildFMul(g->b, lifted_dividend(g, a, d), inverse_of(g, d), "");
}

void df_gen_define(df_gen *g, uint32_t i, LLVMValueRef scalar)
{
    df_val *v = &g->val[i];
    v->sca = scalar;
    v->vec = NULL;
    if (v->wants_vec && !v->is_read_in_place) v->vec = df_gen_splat(g, scalar, g->w);
    if (v->wants_inverse) define_inverse(g, i, scalar);
}

void df_gen_others(df_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        if (ins->op != DF_K_load_if || g->val[i].place != PLACE_BODY || g->w == 1) continue;
        df_val *other = &g->val[ins->src[1]];
        if (other->place != PLACE_ENTRY || other->others || ins->dtype == DEFT_BOOL) continue;
        const uint32_t size = df_bytes_of((deft_dtype)ins->dtype);
        LLVMTypeRef t = df_gen_mem_type(g, (deft_dtype)ins->dtype);
        other->others = df_gen_alloca(g, t, 2 * (uint64_t)g->w, 64);
        for (uint32_t n = 0; n < 2; n++) {
            LLVMValueRef to = df_gen_at(g, t, other->others, df_gen_i64(g, n * g->w));
            LLVMSetAlignment(LLVMBuildStore(g->b, other->vec, to), size);
        }
    }
}

static deft_dtype src_dtype(const df_gen *g, uint32_t i)
{
    return df_gen_n_src(g, i) > 0 ? (deft_dtype)g->k->ins[g->k->ins[i].src[0]].dtype : DEFT_BOOL;
}

void df_gen_scalar(df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    LLVMValueRef s[3] = { NULL, NULL, NULL };
    if (g->val[i].is_contracted) return;
    for (uint32_t n = 0; n < df_gen_n_src(g, i); n++) s[n] = df_gen_sca(g, ins->src[n]);
    const df_kop op = (df_kop)ins->op;
    LLVMValueRef v;
    if (g->val[i].product != DF_NONE) {
        const df_ins *p = &g->k->ins[g->val[i].product];
        v = df_contract_into(g, i, df_gen_sca(g, p->src[0]), df_gen_sca(g, p->src[1]),
                             s[ins->src[0] == g->val[i].product]);
    } else if (op == DF_K_const)
        v = df_gen_const(g, (deft_dtype)ins->dtype, ins->imm);
    else if (op == DF_K_num)
        v = load_num(g, ins);
    else if (op == DF_K_index)
        v = g->acc[ins->imm].at;
    else if (op == DF_K_load_if)
        v = df_access_load_one_if(g, (uint32_t)ins->imm, s[0], s[1]);
    else if (op == DF_K_load || op == DF_K_load_at)
        v = df_access_load_one(g, (uint32_t)ins->imm, g->acc[ins->imm].at, s[0]);
    else if (op == DF_K_store) {
        df_access_store_one(g, (uint32_t)ins->imm, g->acc[ins->imm].at, s[0]);
        return;
    } else
        v = df_lower_op(g, ins, src_dtype(g, i), s, 1);
    df_gen_define(g, i, v);
}

/* If div is a / sqrt(x) and an estimate is used for it: the vector x in this copy of the body, or
 * NULL if the copy has none. Else NULL. */
static LLVMValueRef under_root(const df_gen *g, const df_ins *div)
{
    const df_ins *root = &g->k->ins[div->src[1]];
    if (root->op != DF_K_sqrt || !df_estimate_has(g, (deft_dtype)div->dtype, g->w)) return NULL;
    const df_val *x = &g->val[root->src[0]];
    return x->epoch == g->epoch ? x->lanes[g->copy] : NULL;
}

/* Lane 0 of a run. */
static LLVMValueRef lane0_of_run(df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    df_assert(g->val[i].is_run);
    if (ins->op == DF_K_index) return LLVMBuildAdd(g->b, g->acc[ins->imm].at, g->lane0, "");
    LLVMValueRef s[2];
    for (int n = 0; n < 2; n++)
        s[n] =
            g->val[ins->src[n]].is_run ? lane0_of_run(g, ins->src[n]) : df_gen_sca(g, ins->src[n]);
    return ins->op == DF_K_add ? LLVMBuildAdd(g->b, s[0], s[1], "")
                               : LLVMBuildSub(g->b, s[0], s[1], "");
}

/* Whether instruction i is lt of a and b. */
static bool is_lt_of(const df_gen *g, uint32_t i, uint32_t a, uint32_t b)
{
    const df_ins *ins = &g->k->ins[i];
    return ins->op == DF_K_lt && ins->src[0] == a && ins->src[1] == b;
}

/* Writes `(a < b or c) ? b : a` as `c ? b : (a < b ? b : a)`, in lanes: the inner selection is one
 * instruction, the maximum of x86, and c need not wait for it. Running maxima that treat some
 * elements apart are chains of such selections. Returns NULL for other selections. */
static LLVMValueRef maximum_or(df_gen *g, const df_ins *ins, LLVMValueRef s[3])
{
    const df_ins *either = &g->k->ins[ins->src[0]];
    if (ins->op != DF_K_select || either->op != DF_K_or) return NULL;
    if (g->val[ins->src[0]].place != PLACE_BODY) return NULL;
    for (int n = 0; n < 2; n++) /* other vectors might be made here first, within an arm */
        if (g->val[either->src[n]].place != PLACE_BODY) return NULL;
    for (int n = 0; n < 2; n++) {
        if (!is_lt_of(g, either->src[n], ins->src[2], ins->src[1])) continue;
        LLVMValueRef lt = df_gen_vec(g, either->src[n]), c = df_gen_vec(g, either->src[1 - n]);
        return LLVMBuildSelect(g->b, c, s[1], LLVMBuildSelect(g->b, lt, s[1], s[2], ""), "");
    }
    return NULL;
}

/* Writes an integer plus `condition ? 1 : 0` as an addition of 1 under a mask. Where the CPU has
 * masks, this is one instruction and needs no vector for the condition. Returns NULL for other
 * instructions. */
static LLVMValueRef count_if(df_gen *g, const df_ins *ins, LLVMValueRef s[3])
{
    if (!g->native_masks || ins->op != DF_K_add || df_is_real((deft_dtype)ins->dtype)) return NULL;
    for (int n = 0; n < 2; n++) {
        const df_ins *const cast = &g->k->ins[ins->src[n]];
        if (cast->op != DF_K_cast || g->val[ins->src[n]].place != PLACE_BODY) continue;
        const uint32_t condition = cast->src[0];
        if (g->k->ins[condition].dtype != DEFT_BOOL || g->val[condition].place != PLACE_BODY)
            continue;
        LLVMValueRef other = s[1 - n];
        LLVMValueRef one = LLVMConstInt(df_gen_type(g, (deft_dtype)ins->dtype), 1, 0);
        LLVMValueRef more = LLVMBuildAdd(g->b, other, df_gen_splat(g, one, g->w), "");
        return LLVMBuildSelect(g->b, df_gen_vec(g, condition), more, other, "");
    }
    return NULL;
}

/* Whether a part of condition i, which may be a conjunction, is the same for all lanes. */
static bool has_row_part(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (g->val[i].place < PLACE_LANES) return true;
    return ins->op == DF_K_and && g->val[i].place == PLACE_BODY &&
           (has_row_part(g, ins->src[0]) || has_row_part(g, ins->src[1]));
}

/* Splits condition i, which may be a conjunction, into what is the same for all lanes and what
 * differs between them. *row and *is: both so far, or NULL. Loads that differ in the first alone
 * get the same *is, so that they share masks. */
static void split_condition(df_gen *g, uint32_t i, LLVMValueRef *row, LLVMValueRef *is)
{
    const df_ins *ins = &g->k->ins[i];
    const bool is_scalar = g->val[i].place < PLACE_LANES;
    if (is_known(g, &g->val[i]) && g->val[i].inside == DF_INSIDE_TRUE) return;
    if (!is_scalar && has_row_part(g, i)) {
        split_condition(g, ins->src[0], row, is);
        split_condition(g, ins->src[1], row, is);
        return;
    }
    LLVMValueRef *to = is_scalar ? row : is;
    LLVMValueRef v = is_scalar ? df_gen_sca(g, i) : df_gen_vec(g, i);
    *to = *to ? LLVMBuildAnd(g->b, *to, v, "") : v;
}

/* The condition of a load_if. is, other: its operands in lanes. */
static df_condition condition_of(df_gen *g, const df_ins *ins, LLVMValueRef is, LLVMValueRef other)
{
    df_condition c = { .other = other, .others = g->val[ins->src[1]].others };
    split_condition(g, ins->src[0], &c.row, &c.is);
    return c.is ? c : (df_condition){ .is = is, .other = other };
}

static LLVMValueRef load_if(df_gen *g, const df_ins *ins, LLVMValueRef s[3])
{
    const df_val *is = &g->val[ins->src[0]];
    if (is_known(g, is) && is->inside == DF_INSIDE_TRUE)
        return df_access_load(g, (uint32_t)ins->imm);
    const df_condition c = condition_of(g, ins, s[0], s[1]);
    return df_access_load_if(g, (uint32_t)ins->imm, &c);
}

/* Writes instruction i, which takes in a product, for w lanes. */
static void emit_contraction(df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i], *p = &g->k->ins[g->val[i].product];
    const df_val *d = &g->val[p->src[1]];
    df_assert(g->val[g->val[i].product].arm == g->val[i].arm);
    LLVMValueRef a = df_gen_vec(g, p->src[0]);
    LLVMValueRef b = p->op == DF_K_div ? inverse_of(g, d) : df_gen_vec(g, p->src[1]);
    if (p->op == DF_K_div) a = lifted_dividend(g, a, d);
    if (df_gen_kind(g, i) == DF_KOP_reduce) {
        df_reduce_accumulate_product(g, i, a, b);
        return;
    }
    LLVMValueRef other = df_gen_vec(g, ins->src[ins->src[0] == g->val[i].product]);
    df_gen_set_lanes(g, i, df_contract_into(g, i, a, b, other));
}

static void emit_lanes(df_gen *g, uint32_t i);

/* The lanes of load i in the next row, if another load reads the same elements in this row. */
static LLVMValueRef lanes_of_this_row(df_gen *g, uint32_t i)
{
    const uint32_t below = g->acc[g->k->ins[i].imm].below, copy = g->copy;
    if (!df_jam_is_next(g) || below == DF_NONE) return NULL;
    df_gen_copy(g, copy - g->n_copies / 2);
    emit_lanes(g, below);
    LLVMValueRef v = df_gen_vec(g, below);
    df_gen_copy(g, copy);
    return v;
}

/* If instruction i loads through one of two accesses that alternate, writes the loads through both
 * and returns true. A vector of an arm is known in that arm only. */
static bool load_two(df_gen *g, uint32_t i)
{
    LLVMValueRef both[2];
    const df_ins *ins = g->k->ins;
    if (ins[i].op != DF_K_load) return false;
    const uint32_t first = df_access_first_of_two(g, (uint32_t)ins[i].imm);
    if (first == DF_NONE) return false;
    for (uint32_t j = 0; j < g->k->n_ins; j++)
        if (ins[j].op == DF_K_load && df_access_first_of_two(g, (uint32_t)ins[j].imm) == first &&
            g->val[j].arm != g->val[i].arm)
            return false;
    if (!df_access_load_two(g, first, both)) return false;
    for (uint32_t j = 0; j < g->k->n_ins; j++)
        if (ins[j].op == DF_K_load && df_gen_is_here(g, j, PLACE_BODY) &&
            df_access_first_of_two(g, (uint32_t)ins[j].imm) == first)
            df_gen_set_lanes(g, j, both[ins[j].imm != first]);
    return true;
}

/* Writes load or store i for the even and the odd elements of a vector of words, that is for this
 * copy and the next. An odd copy has nothing left to do. Returns false for other instructions. */
static bool access_words(df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    const uint32_t access = (uint32_t)ins->imm, copy = g->copy;
    LLVMValueRef v[2];
    if (ins->op != DF_K_load && ins->op != DF_K_store) return false;
    if (copy % 2 == 1) return true;
    if (ins->op == DF_K_load) df_words_load(g, access, v);
    for (uint32_t n = 0; n < 2; n++) {
        df_gen_copy(g, copy + n);
        if (ins->op == DF_K_load)
            df_gen_set_lanes(g, i, v[n]);
        else
            v[n] = df_gen_vec(g, ins->src[0]);
    }
    df_gen_copy(g, copy);
    if (ins->op == DF_K_store) df_words_store(g, access, v[0], v[1]);
    return true;
}

/* Writes instruction i for w lanes. */
static void emit_lanes(df_gen *g, uint32_t i)
{
    const df_val *is = &g->val[i];
    if (is->is_address || is->is_contracted || is_known(g, is)) return;
    if (g->has_words && access_words(g, i)) return;
    const bool may_be_here = g->is_jammed || g->is_rest || g->are_twos || g->part == DF_ROW_EDGE;
    if (may_be_here && is->epoch == g->epoch && is->lanes[g->copy]) return;
    if (g->has_no_nan && is->asks_nan) return;
    if (is->product != DF_NONE) {
        emit_contraction(g, i);
        return;
    }
    if (g->are_twos && load_two(g, i)) return;
    if (g->k->ins[i].op == DF_K_load_at && g->val[g->k->ins[i].src[0]].is_run) {
        LLVMValueRef start = lane0_of_run(g, g->k->ins[i].src[0]);
        df_gen_set_lanes(g, i, df_access_load_run(g, (uint32_t)g->k->ins[i].imm, start));
        return;
    }
    const df_ins *ins = &g->k->ins[i];
    const df_kop op = (df_kop)ins->op;
    const uint32_t access = (uint32_t)ins->imm;
    LLVMValueRef s[3] = { NULL, NULL, NULL }, v, x;
    for (uint32_t n = 0; n < df_gen_n_src(g, i); n++) s[n] = df_gen_vec(g, ins->src[n]);
    if (df_gen_kind(g, i) == DF_KOP_reduce) {
        df_reduce_accumulate(g, i, s[0]);
        return;
    }
    if (op == DF_K_store) {
        if (g->are_twos && df_access_begins_twos(g, i))
            return; /* the next instruction stores both */
        if (g->are_twos && i > 0 && df_access_begins_twos(g, i - 1))
            df_access_store_two(g, access - 1, df_gen_vec(g, ins[-1].src[0]), s[0]);
        else
            df_access_store(g, access, s[0]);
        return;
    }
    if (op == DF_K_index)
        v = df_access_index(g, access);
    else if (op == DF_K_load && (x = lanes_of_this_row(g, i)))
        v = x;
    else if (op == DF_K_load)
        v = df_access_load(g, access);
    else if (op == DF_K_load_if)
        v = load_if(g, ins, s);
    else if (op == DF_K_load_at)
        v = df_access_load_at(g, access, s[0]);
    else if (df_gen_kind(g, i) == DF_KOP_scan)
        v = df_scan_step(g, i, s[0]);
    else if (op == DF_K_div && g->val[ins->src[1]].inverse)
        v = times_inverse(g, s[0], &g->val[ins->src[1]]);
    else if (op == DF_K_select && (x = maximum_or(g, ins, s)))
        v = x;
    else if ((x = count_if(g, ins, s)))
        v = x;
    else if (op == DF_K_div && (x = under_root(g, ins)))
        v = df_estimate_over_sqrt(g, s[0], x);
    else
        v = df_lower_op(g, ins, src_dtype(g, i), s, g->w);
    df_gen_set_lanes(g, i, v);
}

void df_gen_same_in_rows(df_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        if (!df_gen_is_here(g, i, PLACE_BODY)) continue;
        if (g->val[i].moves == MOVES_INNER && df_gen_kind(g, i) != DF_KOP_reduce) emit_lanes(g, i);
        if (ins->op != DF_K_load_if || g->val[ins->src[0]].inside != DF_INSIDE_TRUE) continue;
        const df_condition c = condition_of(g, ins, NULL, NULL);
        if (c.is) df_access_prepare_if(g, (uint32_t)ins->imm, &c);
    }
}

/* ---- arms (arms.c) ---- */

/* Whether no lane of any copy takes the arm of the select `end`. */
static LLVMValueRef skips_arm(df_gen *g, uint32_t end, uint32_t first, uint32_t n)
{
    const uint32_t condition = g->k->ins[end].src[0];
    LLVMValueRef takes = NULL;
    for (uint32_t c = first; c < n; c++) {
        df_gen_copy(g, c);
        LLVMValueRef lanes = df_gen_vec(g, condition);
        if (g->val[end].arm_side == 2) lanes = LLVMBuildNot(g->b, lanes, "");
        if (g->mask) lanes = LLVMBuildAnd(g->b, lanes, g->mask, "");
        takes = takes ? LLVMBuildOr(g->b, takes, lanes, "") : lanes;
    }
    if (g->w > 1) takes = LLVMBuildBitCast(g->b, takes, LLVMIntTypeInContext(g->ctx, g->w), "");
    return LLVMBuildICmp(g->b, LLVMIntEQ, takes, LLVMConstNull(LLVMTypeOf(takes)), "");
}

/* Writes the vectors that the arm reads and that were not needed before. They are written outside
 * of the arm, because later code may read them, too. */
static void need_operands(df_gen *g, uint32_t end)
{
    for (uint32_t i = 0; i <= end; i++)
        for (uint32_t s = 0; g->val[i].arm == end && s < df_gen_n_src(g, i); s++)
            if (g->val[g->k->ins[i].src[s]].arm != end) df_gen_vec(g, g->k->ins[i].src[s]);
}

/* Writes the arm whose last select is `end`, for the copies from `first` up to but excluding n. */
static void write_arm(df_gen *g, uint32_t end, uint32_t first, uint32_t n)
{
    LLVMValueRef skips = skips_arm(g, end, first, n);
    for (uint32_t c = first; c < n; c++) {
        df_gen_copy(g, c);
        need_operands(g, end);
    }
    LLVMBasicBlockRef from[2] = { LLVMGetInsertBlock(g->b), df_gen_block(g, "arm") };
    LLVMBasicBlockRef after = df_gen_block(g, "arm_end");
    LLVMBuildCondBr(g->b, skips, after, from[1]);
    LLVMPositionBuilderAtEnd(g->b, from[1]);
    for (uint32_t i = 0; i <= end; i++)
        for (uint32_t c = first; c < n && g->val[i].arm == end; c++) {
            df_gen_copy(g, c);
            emit_lanes(g, i);
        }
    from[1] = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, after);
    LLVMPositionBuilderAtEnd(g->b, after);
    for (uint32_t i = 0; i <= end; i++)
        for (uint32_t c = first; c < n && g->val[i].arm == end && !g->val[i].in_arm; c++) {
            df_gen_copy(g, c);
            const uint32_t other = g->k->ins[i].src[3 - g->val[i].arm_side];
            LLVMValueRef v[2] = { df_gen_vec(g, other), df_gen_vec(g, i) };
            LLVMValueRef either = LLVMBuildPhi(g->b, LLVMTypeOf(v[0]), "");
            LLVMAddIncoming(either, v, from, 2);
            df_gen_set_lanes(g, i, either);
        }
}

/* ---- the marked body ---- */

void df_gen_mark(df_gen *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) g->val[i].is_marked = false;
    for (uint32_t i = g->k->n_ins; i-- > 0;) {
        const df_ins *ins = &g->k->ins[i];
        df_val *v = &g->val[i];
        if (ins->level != DF_LEVEL_ELEM || ins->stage > stage) continue;
        if (ins->stage == stage) v->is_marked = true;
        if (!v->is_marked) continue;
        /* Elements of an earlier stage are rematerialized. */
        for (uint32_t s = 0; s < df_gen_n_src(g, i); s++)
            if (df_gen_kind(g, ins->src[s]) != DF_KOP_reduce) g->val[ins->src[s]].is_marked = true;
    }
    df_arms_find(g);
    df_nans_find(g);
    df_bare_find(g);
}

bool df_gen_has_elem(const df_gen *g, uint32_t stage)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].stage == stage && g->k->ins[i].level == DF_LEVEL_ELEM &&
            g->val[i].place != PLACE_ENTRY)
            return true;
    return false;
}

/* A body of more instructions keeps the units for products as busy as the divider. */
enum { MOST_BESIDE_ROOTS = 32 };

bool df_gen_inverts_root(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (ins->op != DF_K_div || g->level == DF_OPT_O0) return false;
    const df_ins *one = &g->k->ins[ins->src[0]], *root = &g->k->ins[ins->src[1]];
    return one->op == DF_K_const && one->imm == 0x3f800000 && root->op == DF_K_sqrt &&
           g->val[ins->src[1]].place == PLACE_BODY &&
           df_estimate_inverts_roots(g, (deft_dtype)ins->dtype, g->w) &&
           df_gen_body_size(g) <= MOST_BESIDE_ROOTS;
}

/* Writes 1 / sqrt(x) for the copies from `first` up to but excluding n. The divider, which is idle
 * while products invert, takes every fourth copy. */
static void write_inverse_roots(df_gen *g, uint32_t i, uint32_t first, uint32_t n)
{
    const df_ins *ins = &g->k->ins[i];
    LLVMValueRef root[DF_COPIES], inverse[DF_COPIES], one = df_gen_vec(g, ins->src[0]);
    uint32_t of[DF_COPIES], n_inverted = 0;
    for (uint32_t c = first; c < n; c++) {
        df_gen_copy(g, c);
        if (c % 4 == 3) {
            emit_lanes(g, i);
        } else {
            root[n_inverted] = df_gen_vec(g, ins->src[1]);
            of[n_inverted++] = c;
        }
    }
    if (n_inverted > 0) df_estimate_inverse_roots(g, one, root, n_inverted, inverse);
    for (uint32_t k = 0; k < n_inverted; k++) {
        df_gen_copy(g, of[k]);
        df_gen_set_lanes(g, i, inverse[k]);
    }
}

/* ---- estimates without guards (bare.c) ---- */

static bool has_lanes(const df_gen *g, uint32_t i, uint32_t copy)
{
    return g->val[i].epoch == g->epoch && g->val[i].lanes[copy];
}

/* Whether the body is written in this way: all vectors are whole, and no bare value is there. */
static bool begins_bare(const df_gen *g, uint32_t first, uint32_t end)
{
    if (!g->has_bare) return false;
    for (uint32_t c = first; c < end; c++) {
        if (g->masks[c]) return false;
        for (uint32_t i = 0; i < g->k->n_ins; i++)
            if (g->val[i].is_bare && has_lanes(g, i, c)) return false;
    }
    return true;
}

/* Writes the estimate i without guards for some copies. */
static void emit_estimates(df_gen *g, uint32_t i, uint32_t first, uint32_t end)
{
    const df_ins *ins = &g->k->ins[i];
    LLVMValueRef s[2][DF_COPIES], v[DF_COPIES];
    for (uint32_t c = first; c < end; c++) {
        df_gen_copy(g, c);
        for (uint32_t k = 0; k < df_gen_n_src(g, i); k++)
            s[k][c - first] = df_gen_vec(g, ins->src[k]);
    }
    if (ins->op == DF_K_sqrt)
        df_estimate_bare_sqrt(g, s[0], end - first, v);
    else
        df_estimate_bare_div(g, s[0], s[1], end - first, v);
    for (uint32_t c = first; c < end; c++) {
        df_gen_copy(g, c);
        df_gen_set_lanes(g, i, v[c - first]);
    }
}

static void emit_bare(df_gen *g, uint32_t first, uint32_t end)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (g->is_bare_try && df_bare_is_estimate(g, i)) {
            emit_estimates(g, i, first, end);
            continue;
        }
        for (uint32_t c = first; c < end; c++) {
            if (df_gen_kind(g, i) == DF_KOP_loop) continue; /* iterate.c */
            const bool is_here = g->val[i].is_bare || (g->val[i].is_before && !has_lanes(g, i, c));
            if (!is_here || !df_gen_is_here(g, i, PLACE_BODY)) continue;
            df_gen_copy(g, c);
            emit_lanes(g, i);
        }
    }
}

/* Whether a lane of a watched value is NaN (i1). One comparison asks two vectors. */
static LLVMValueRef is_any_nan(df_gen *g, uint32_t first, uint32_t end)
{
    LLVMValueRef any = NULL, one = NULL; /* one: a vector that has no partner yet */
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        for (uint32_t c = first; c < end && g->val[i].is_watched; c++) {
            LLVMValueRef x = g->val[i].lanes[c];
            if (one) {
                LLVMValueRef is = LLVMBuildFCmp(g->b, LLVMRealUNO, one, x, "");
                any = any ? LLVMBuildOr(g->b, any, is, "") : is;
            }
            one = one ? NULL : x;
        }
    if (one) {
        LLVMValueRef is = LLVMBuildFCmp(g->b, LLVMRealUNO, one, one, "");
        any = any ? LLVMBuildOr(g->b, any, is, "") : is;
    }
    any = LLVMBuildBitCast(g->b, any, LLVMIntTypeInContext(g->ctx, g->w), "");
    return LLVMBuildICmp(g->b, LLVMIntNE, any, LLVMConstNull(LLVMTypeOf(any)), "");
}

/* Tells LLVM that the branch is hardly ever taken, so that its target is written out of the way. */
static void mark_rare(df_gen *g, LLVMValueRef branch)
{
    static const char name[] = "branch_weights";
    LLVMMetadataRef parts[3] = {
        LLVMMDStringInContext2(g->ctx, name, sizeof name - 1),
        LLVMValueAsMetadata(LLVMConstInt(g->i32, 1, 0)),
        LLVMValueAsMetadata(LLVMConstInt(g->i32, 1 << 16, 0)),
    };
    LLVMMetadataRef weights = LLVMMDNodeInContext2(g->ctx, parts, 3);
    LLVMSetMetadata(branch, LLVMGetMDKindIDInContext(g->ctx, "prof", 4),
                    LLVMMetadataAsValue(g->ctx, weights));
}

/* Writes the bare values and what they depend on, first without guards. */
static void place_bare(df_gen *g, uint32_t first, uint32_t end)
{
    const uint32_t n = g->k->n_ins;
    LLVMValueRef *const tried = df_gen_values(g, n * DF_COPIES);
    g->is_bare_try = true;
    emit_bare(g, first, end);
    g->is_bare_try = false;
    LLVMBasicBlockRef from[2] = { NULL, df_gen_block(g, "guarded") };
    LLVMBasicBlockRef after = df_gen_block(g, "after_estimates");
    LLVMValueRef any = is_any_nan(g, first, end);
    from[0] = LLVMGetInsertBlock(g->b);
    mark_rare(g, LLVMBuildCondBr(g->b, any, from[1], after));
    LLVMPositionBuilderAtEnd(g->b, from[1]);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = first; c < end && g->val[i].is_bare; c++) {
            tried[i * DF_COPIES + c] = g->val[i].lanes[c];
            g->val[i].lanes[c] = NULL;
        }
    emit_bare(g, first, end);
    from[1] = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, after);
    LLVMPositionBuilderAtEnd(g->b, after);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = first; c < end && g->val[i].is_watched; c++) {
            LLVMValueRef v[2] = { tried[i * DF_COPIES + c], g->val[i].lanes[c] };
            LLVMValueRef either = LLVMBuildPhi(g->b, LLVMTypeOf(v[0]), "");
            LLVMAddIncoming(either, v, from, 2);
            df_gen_copy(g, c);
            df_gen_set_lanes(g, i, either);
        }
}

static void place_copies(df_gen *g, df_gen_level place, uint32_t first, uint32_t end)
{
    const bool has_begun = place == PLACE_BODY && begins_bare(g, first, end);
    if (has_begun) place_bare(g, first, end);
    const bool are_lanes = place == PLACE_BODY || place == PLACE_LANES;
    for (int stores = 0; stores < 2; stores++)
        for (uint32_t i = 0; i < g->k->n_ins; i++) {
            if (!df_gen_is_here(g, i, place) || (g->k->ins[i].op == DF_K_store) != stores) continue;
            if (df_gen_kind(g, i) == DF_KOP_loop) continue; /* iterate.c */
            if (has_begun && (g->val[i].is_bare || g->val[i].is_before)) continue;
            if (!are_lanes) df_gen_scalar(g, i);
            if (are_lanes && g->val[i].arm != 0) {
                if (g->val[i].arm == i) write_arm(g, i, first, end);
                continue;
            }
            if (are_lanes && df_gen_inverts_root(g, i)) {
                write_inverse_roots(g, i, first, end);
                continue;
            }
            for (uint32_t c = first; c < end && are_lanes; c++) {
                df_gen_copy(g, c);
                emit_lanes(g, i);
            }
        }
}

/* ---- vectors without NaN (nans.c) ---- */

/* The lanes of `lanes` (NULL: all) in which neither a nor b is NaN. */
static LLVMValueRef and_ordered(df_gen *g, LLVMValueRef lanes, LLVMValueRef a, LLVMValueRef b)
{
    LLVMValueRef is = LLVMBuildFCmp(g->b, LLVMRealORD, a, b, "");
    return lanes ? LLVMBuildAnd(g->b, lanes, is, "") : is;
}

/* The lanes of this copy that are inactive, or in which nothing that is asked for NaN is one. */
static LLVMValueRef lanes_without_nan(df_gen *g)
{
    LLVMValueRef without = NULL, one = NULL; /* one: a value that has no partner yet */
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!g->val[i].asks_nan) continue;
        LLVMValueRef x = df_gen_vec(g, g->k->ins[i].src[0]);
        const bool is_pair = one && LLVMTypeOf(one) == LLVMTypeOf(x);
        if (one) without = and_ordered(g, without, one, is_pair ? x : one);
        one = is_pair ? NULL : x;
    }
    if (one) without = and_ordered(g, without, one, one);
    return g->mask ? LLVMBuildOr(g->b, without, LLVMBuildNot(g->b, g->mask, ""), "") : without;
}

static LLVMValueRef are_without_nan(df_gen *g, uint32_t first, uint32_t end)
{
    LLVMValueRef all = NULL;
    for (uint32_t c = first; c < end; c++) {
        df_gen_copy(g, c);
        LLVMValueRef without = lanes_without_nan(g);
        all = all ? LLVMBuildAnd(g->b, all, without, "") : without;
    }
    all = LLVMBuildBitCast(g->b, all, LLVMIntTypeInContext(g->ctx, g->w), "");
    return LLVMBuildICmp(g->b, LLVMIntEQ, all, LLVMConstAllOnes(LLVMTypeOf(all)), "");
}

/* Writes the loads, and both versions of the rest. Vectors that one version makes are not there in
 * the other one. */
static void place_versions(df_gen *g, uint32_t first, uint32_t end)
{
    df_pair_mask masks[DF_PAIR_MASKS];
    df_val *const kept = df_gen_array(g, g->k->n_ins * sizeof *kept);
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        for (uint32_t c = first; c < end && g->val[i].is_asked; c++) {
            df_gen_copy(g, c);
            if (df_gen_is_here(g, i, PLACE_BODY)) emit_lanes(g, i);
        }
    LLVMValueRef without = are_without_nan(g, first, end);
    LLVMBasicBlockRef version[2] = { df_gen_block(g, "no_nan"), df_gen_block(g, "any") };
    LLVMBasicBlockRef after = df_gen_block(g, "after_versions");
    LLVMBuildCondBr(g->b, without, version[0], version[1]);
    memcpy(kept, g->val, g->k->n_ins * sizeof *kept);
    memcpy(masks, g->pair_mask, sizeof masks);
    g->is_rest = true;
    for (int v = 0; v < 2; v++) {
        LLVMPositionBuilderAtEnd(g->b, version[v]);
        g->has_no_nan = v == 0;
        place_copies(g, PLACE_BODY, first, end);
        LLVMBuildBr(g->b, after);
        memcpy(g->val, kept, g->k->n_ins * sizeof *kept);
        memcpy(g->pair_mask, masks, sizeof masks);
    }
    g->is_rest = g->has_no_nan = false;
    LLVMPositionBuilderAtEnd(g->b, after);
}

/* Where rows are divided, lanes outside of the inside and its edges are few. */
static bool has_versions(const df_gen *g, df_gen_level place)
{
    return place == PLACE_BODY && g->n_questions > 0 && !g->is_jammed &&
           (!g->has_inside || g->part != DF_ROW_ANY);
}

void df_gen_place_copies(df_gen *g, df_gen_level place, uint32_t first, uint32_t end)
{
    if (has_versions(g, place))
        place_versions(g, first, end);
    else
        place_copies(g, place, first, end);
}

void df_gen_place(df_gen *g, df_gen_level place)
{
    df_gen_place_copies(g, place, 0, g->n_copies);
}

uint32_t df_gen_body_size(const df_gen *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        n += df_gen_is_here(g, i, PLACE_BODY) && !g->val[i].is_address && !g->val[i].in_arm &&
             !g->val[i].is_contracted;
    return n;
}

static bool is_row_level(const df_gen *g, uint32_t i, uint32_t stage, df_gen_level place,
                         bool is_store)
{
    const df_ins *ins = &g->k->ins[i];
    return ins->level == DF_LEVEL_ROW && ins->stage == stage && g->val[i].place == place &&
           (ins->op == DF_K_store) == is_store;
}

/* Emits the values first, then the stores. A call of part needs only the values; fin stores. */
static void row_level(df_gen *g, uint32_t stage, df_gen_level place,
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

void df_gen_row_level(df_gen *g, uint32_t stage)
{
    row_level(g, stage, PLACE_ROW, df_gen_scalar);
}

void df_gen_row_lanes(df_gen *g, uint32_t stage)
{
    row_level(g, stage, PLACE_LANES, emit_lanes);
}
