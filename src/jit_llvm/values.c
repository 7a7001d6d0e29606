/* SPDX-License-Identifier: Apache-2.0
 *
 * Instructions to IR, each at its level (gen.h, "Values"): scalars and lanes.
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

/* The lanes of load i in the next row, if another load reads the same elements in this row. */
static LLVMValueRef lanes_of_this_row(df_gen *g, uint32_t i)
{
    const uint32_t below = g->acc[g->k->ins[i].imm].below, copy = g->copy;
    if (!df_jam_is_next(g) || below == DF_NONE) return NULL;
    df_gen_copy(g, copy - g->n_copies / 2);
    df_gen_emit_lanes(g, below);
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

/* Whether store i is of a result in turn. The last of these stores the vectors of all. */
static bool store_of_turn(df_gen *g, uint32_t i)
{
    LLVMValueRef v[DF_MOST_TURNS];
    for (uint32_t behind = 0; behind < DF_MOST_TURNS && behind <= i; behind++) {
        const uint32_t first = i - behind, n = df_access_stores_in_turn(g, first);
        if (n <= behind) continue;
        if (n > behind + 1) return true;
        for (uint32_t k = 0; k < n; k++) v[k] = df_gen_vec(g, g->k->ins[first + k].src[0]);
        df_access_store_in_turn(g, (uint32_t)g->k->ins[first].imm, v, n);
        return true;
    }
    return false;
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

void df_gen_emit_lanes(df_gen *g, uint32_t i)
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
        if (g->are_turns && store_of_turn(g, i)) return;
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
        if (g->val[i].moves == MOVES_INNER && df_gen_kind(g, i) != DF_KOP_reduce)
            df_gen_emit_lanes(g, i);
        if (ins->op != DF_K_load_if || g->val[ins->src[0]].inside != DF_INSIDE_TRUE) continue;
        const df_condition c = condition_of(g, ins, NULL, NULL);
        if (c.is) df_access_prepare_if(g, (uint32_t)ins->imm, &c);
    }
}
