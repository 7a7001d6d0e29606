/* SPDX-License-Identifier: Apache-2.0
 *
 * Software pipelining of ROW: the slow part of a body, which ends in a division or a square root,
 * is computed eight vectors ahead of the rest.
 *
 *     vector     0 1 .. 7     8     9    ..     n-1
 *     early      0 1 .. 7     8     9    ..     n-1
 *     late                    0     1    ..     n-9     n-8 .. n-1
 *
 * The CPU's schedulers hold about a hundred vector instructions that wait for operands. What
 * follows a division waits for about 60 cycles, so that these instructions soon fill the
 * schedulers, and the divider is idle until they leave. Written in this way, they begin to wait
 * when the quotient is nearly known. An N-body step of 1024 bodies takes 131 us on Zen 5 instead of
 * 161 in strict mode, and 116 instead of 143 in fast mode. The divider alone needs 107 us.
 *
 * One value per vector is carried from the early to the late part. Other values of the early part
 * that the late part reads must be cheap, and are computed again. Accumulators get their operands
 * in the same order as without pipelining, so no bit changes. Only variants are written in this
 * way, because general code would need both forms.
 */
#include "jit_llvm/gen.h"

enum {
    AHEAD = DF_COPIES, /* vectors between the two parts of one vector */
    FEWEST_GROUPS = 4, /* in rows that are pipelined; half of them begin and end the pipeline */
    MOST_AGAIN = 2,    /* instructions of a value that is computed again, without loads */
    FEWEST_LATE = 3,   /* instructions that wait for the carried value, without reductions */
    FREE_REGS = 6,     /* registers for the values of one vector */
};

/* The parts that an instruction belongs to, as a set of bits. */
enum { IN_BODY = 1, IN_EARLY = 2, IN_LATE = 4, IN_VALUE = 8 };

/* ---- the two parts ---- */

/* Whether i is a division or root of the body that takes long. */
static bool is_slow(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (!df_is_real((deft_dtype)ins->dtype) || g->val[i].is_contracted) return false;
    if (ins->op == DF_K_div)
        return !g->val[ins->src[1]].wants_inverse && !df_gen_inverts_root(g, i);
    return ins->op == DF_K_sqrt;
}

/* Whether instruction i of the body may be in a pipeline. */
static bool may_be_ahead(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    const df_kop op = (df_kop)ins->op;
    if (g->val[i].arm != 0) return false;
    if (op == DF_K_load) return df_gen_lane_step(g, (uint32_t)ins->imm) == DF_STEP_UNIT;
    if (df_gen_kind(g, i) == DF_KOP_reduce) return true;
    return df_gen_kind(g, i) == DF_KOP_map && op != DF_K_store && op != DF_K_index &&
           op != DF_K_load_at && op != DF_K_load_if && op != DF_K_check;
}

/* Adds `bit` to value i, and to all that it depends on within the body. No instruction above i has
 * the bit. Returns the number of these instructions, without loads. */
static uint32_t add_with_operands(const df_gen *g, uint8_t *part, uint32_t i, uint8_t bit)
{
    uint32_t n = 0;
    part[i] |= bit;
    for (uint32_t j = i + 1; j-- > 0;) {
        const df_ins *ins = &g->k->ins[j];
        if (!(part[j] & bit)) continue;
        n += ins->op != DF_K_load;
        for (uint32_t s = 0; s < df_gen_n_src(g, j); s++)
            if (part[ins->src[s]] & IN_BODY) part[ins->src[s]] |= bit;
    }
    return n;
}

/* Adds value i, which the early part computes, to the late part. Returns false if it is not
 * cheap. */
static bool compute_again(const df_gen *g, uint8_t *part, uint32_t i)
{
    const bool is_cheap = add_with_operands(g, part, i, IN_VALUE) <= MOST_AGAIN && !is_slow(g, i);
    for (uint32_t j = 0; j <= i; j++) {
        if (is_cheap && part[j] & IN_VALUE) part[j] |= IN_LATE;
        part[j] &= (uint8_t)~IN_VALUE;
    }
    return is_cheap;
}

/* Divides the body into its parts. Returns false if it has no early part, or no value, or more than
 * one, is carried. */
static bool find_parts(const df_gen *g, df_ahead *a)
{
    uint8_t *const part = a->part;
    uint32_t n_early = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!df_gen_is_here(g, i, PLACE_BODY)) continue;
        if (!may_be_ahead(g, i)) return false;
        part[i] = IN_BODY;
        if (is_slow(g, i)) n_early = add_with_operands(g, part, i, IN_EARLY);
    }
    a->carried = DF_NONE;
    for (uint32_t i = 0; i < g->k->n_ins && n_early > 0; i++) {
        if (part[i] != IN_BODY) continue;
        part[i] |= IN_LATE;
        for (uint32_t s = 0; s < df_gen_n_src(g, i); s++) {
            const uint32_t from = g->k->ins[i].src[s];
            if (!(part[from] & IN_EARLY) || from == a->carried) continue;
            if (part[from] & IN_LATE || compute_again(g, part, from)) continue;
            if (a->carried != DF_NONE) return false;
            a->carried = from;
        }
    }
    return a->carried != DF_NONE;
}

/* ---- whether it pays ---- */

/* The number of values outside of the body that the body reads in all lanes. */
static uint32_t count_shared(df_gen *g, const uint8_t *part)
{
    uint32_t n = 0;
    bool *const is_read = df_gen_array(g, g->k->n_ins * sizeof *is_read);
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        for (uint32_t s = 0; s < df_gen_n_src(g, i); s++)
            if (part[i] && !part[g->k->ins[i].src[s]]) is_read[g->k->ins[i].src[s]] = true;
    for (uint32_t i = 0; i < g->k->n_ins; i++) n += is_read[i];
    return n;
}

/* The number of instructions that wait for the carried value, without reductions. */
static uint32_t count_late(const df_gen *g, const uint8_t *part)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        n += part[i] == (IN_BODY | IN_LATE) && df_gen_kind(g, i) == DF_KOP_map &&
             g->k->ins[i].op != DF_K_load && !g->val[i].is_contracted;
    return n;
}

bool df_ahead_find(df_gen *g, LLVMValueRef from, LLVMValueRef to, uint32_t n_vec, df_ahead *a)
{
    int64_t first, end;
    if (!df_gen_known(from, &first) || !df_gen_known(to, &end)) return false;
    if (end - first < FEWEST_GROUPS * (int64_t)(n_vec * g->w)) return false;
    if (n_vec > AHEAD / 2 || AHEAD % n_vec != 0 || g->has_runs || g->are_twos) return false;
    if (g->n_questions > 0) return false;
    *a = (df_ahead){ .n_vec = n_vec, .part = df_gen_array(g, g->k->n_ins) };
    if (!find_parts(g, a) || count_late(g, a->part) < FEWEST_LATE) return false;
    const uint32_t regs = g->n_reds * n_vec + AHEAD + count_shared(g, a->part) + FREE_REGS;
    return regs <= df_gen_vector_registers(g);
}

/* ---- code ---- */

/* Writes one part of the body for one copy. */
static void write_part(df_gen *g, const df_ahead *a, uint8_t part, uint32_t copy)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (a->part[i]) g->val[i].is_marked = a->part[i] & part;
    df_gen_copy(g, copy);
    df_gen_place_copies(g, PLACE_BODY, copy, copy + 1);
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (a->part[i]) g->val[i].is_marked = true;
}

static LLVMValueRef write_early(df_gen *g, const df_ahead *a, uint32_t copy)
{
    write_part(g, a, IN_EARLY, copy);
    return df_gen_vec(g, a->carried);
}

/* value: the carried value of the vector that this copy is for. */
static void write_late(df_gen *g, const df_ahead *a, uint32_t copy, LLVMValueRef value)
{
    df_gen_copy(g, copy);
    g->reg = copy % a->n_vec;
    g->red_at = g->lane0;
    df_gen_set_lanes(g, a->carried, value);
    write_part(g, a, IN_LATE, copy);
}

void df_ahead_begin(df_gen *g, df_ahead *a, LLVMValueRef from)
{
    df_gen_copies_begin(g, from, NULL, AHEAD);
    for (uint32_t c = 0; c < AHEAD; c++) a->value[c] = write_early(g, a, c);
}

void df_ahead_step(df_gen *g, df_ahead *a, LLVMValueRef at)
{
    LLVMValueRef early[DF_COPIES];
    df_gen_copies_begin(g, at, NULL, 2 * a->n_vec);
    for (uint32_t c = 0; c < a->n_vec; c++)
        g->lane0s[a->n_vec + c] = LLVMBuildAdd(g->b, at, df_gen_i64(g, (AHEAD + c) * g->w), "");
    for (uint32_t c = 0; c < a->n_vec; c++) {
        write_late(g, a, c, a->value[c]);
        early[c] = write_early(g, a, a->n_vec + c);
    }
    for (uint32_t c = 0; c < AHEAD; c++)
        a->value[c] = c + a->n_vec < AHEAD ? a->value[c + a->n_vec] : early[c + a->n_vec - AHEAD];
}

void df_ahead_end(df_gen *g, df_ahead *a, LLVMValueRef at)
{
    df_gen_copies_begin(g, at, NULL, AHEAD);
    for (uint32_t c = 0; c < AHEAD; c++) write_late(g, a, c, a->value[c]);
}

LLVMValueRef df_ahead_until(const df_gen *g, LLVMValueRef to)
{
    int64_t end = 0;
    df_gen_known(to, &end);
    return df_gen_i64(g, end - (int64_t)AHEAD * g->w);
}
