/* SPDX-License-Identifier: Apache-2.0
 *
 * LOOP kernels: lanes run along INNER. A vector of lanes goes through all iterations before the
 * next one begins, with its states in registers (phis) all the time. Stages, levels, and the
 * instructions carry, next and proceed are explained in fuser/plan.h. RED is the axis of the
 * iterations. The predicate is the operand of the proceed: the loop ends when the predicate is
 * false.
 *
 *   pre     row level of stage 0; no iteration at all? ---------------------------+
 *   enter   values that are the same in all iterations                            |
 *   head    states, addresses, the predicate of the proceed; is it false? --------+
 *   body    the rest of the iteration; r + 1 < extent: back to head; else --------+
 *   after   states at the end of the loop; row level of stage 1                 <-+
 *
 * A state that differs between lanes has one phi per copy of the body. Another state has one scalar
 * phi, and a broadcast of it if lanes read it.
 *
 * One iteration is a chain of dependent instructions and waits for the iteration before it. So a
 * single vector leaves the CPU idle, and bodies are written for several neighbouring vectors at
 * once (df_gen_copies). The vectors of a row that remain after that would take as long one by one
 * as several take together. So where masked loads and stores are instructions (native_masks), these
 * vectors are done together under a mask. Only a rest of one vector is done alone.
 */
#include "jit_llvm/gen.h"

/* A state of the loop. */
typedef struct state {
    uint32_t carry, next; /* indices of these two instructions */
    uint32_t n;           /* values of the three arrays: one per copy of the body, or one scalar */
    /* Values at the start of an iteration, before the loop, and at the end of an iteration. Once
     * the loop is written, phi is the value after the loop. */
    LLVMValueRef phi[DF_COPIES], init[DF_COPIES], last[DF_COPIES];
} state;

/* The loop over iterations while it is written. */
typedef struct iteration {
    /* left: the block that leaves the loop when the predicate is false; NULL: no proceed. latch:
     * the last block of an iteration. */
    LLVMBasicBlockRef pre, enter, head, left, latch, after;
    LLVMValueRef r;         /* index of the iteration */
    LLVMValueRef *inc, *at; /* stride and address of each access that moves along RED */
    state *states;
    uint32_t n_states;
} iteration;

/* ---- states ---- */

/* Whether instruction i has a value per lane. If not, it has one scalar. */
static bool is_lanes(const df_gen *g, uint32_t i)
{
    return g->val[i].place == PLACE_BODY || g->val[i].place == PLACE_LANES;
}

/* The value of `ins` for value number v of the state s: in copy v of the body, or the scalar. */
static LLVMValueRef value_of(df_gen *g, const state *s, uint32_t ins, uint32_t v)
{
    if (!is_lanes(g, s->carry)) return df_gen_sca(g, ins);
    df_gen_copy(g, v);
    return df_gen_vec(g, ins);
}

/* Makes value[] the values of `ins`, which has as many as the state s. */
static void define(df_gen *g, const state *s, uint32_t ins, const LLVMValueRef *value)
{
    if (!is_lanes(g, s->carry)) {
        df_gen_define(g, ins, value[0]);
        return;
    }
    for (uint32_t v = 0; v < s->n; v++) {
        df_gen_copy(g, v);
        df_gen_set_lanes(g, ins, value[v]);
    }
}

/* Fills in l->states, each with its values before the loop. */
static void find_states(df_gen *g, iteration *l)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) l->n_states += g->k->ins[i].op == DF_K_next;
    l->states = df_gen_array(g, sizeof *l->states * (l->n_states + 1u));
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (g->k->ins[i].op != DF_K_next) continue;
        state *const s = &l->states[n++];
        s->next = i;
        s->carry = g->k->ins[i].src[0];
        s->n = is_lanes(g, s->carry) ? g->n_copies : 1;
        for (uint32_t v = 0; v < s->n; v++)
            s->init[v] = value_of(g, s, g->k->ins[s->carry].src[0], v);
    }
}

/* ---- the loop ---- */

/* Whether each iteration touches other elements through the access. */
static bool moves_along_red(const df_gen *g, uint32_t access)
{
    const df_access *a = &g->k->access[access];
    return a->kind != DF_ACCESS_AT && a->step[g->red[0]] != DF_STEP_ZERO;
}

/* Begins the block `head`: phis for the index, the addresses and the states. */
static void begin_loop(df_gen *g, iteration *l)
{
    LLVMValueRef zero = df_gen_i64(g, 0);
    LLVMPositionBuilderAtEnd(g->b, l->head);
    l->r = LLVMBuildPhi(g->b, g->i64, "r");
    LLVMAddIncoming(l->r, &zero, &l->enter, 1);
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        if (!moves_along_red(g, a)) continue;
        LLVMValueRef first = g->acc[a].row;
        l->at[a] = g->acc[a].at = LLVMBuildPhi(g->b, LLVMTypeOf(first), "");
        LLVMAddIncoming(l->at[a], &first, &l->enter, 1);
    }
    for (state *s = l->states; s < l->states + l->n_states; s++)
        for (uint32_t v = 0; v < s->n; v++) {
            s->phi[v] = LLVMBuildPhi(g->b, LLVMTypeOf(s->init[v]), "");
            LLVMAddIncoming(s->phi[v], &s->init[v], &l->enter, 1);
        }
    for (state *s = l->states; s < l->states + l->n_states; s++) define(g, s, s->carry, s->phi);
}

/* Marks the instructions of an iteration that the predicate depends on, or all others. */
static void mark_deciding(df_gen *g, bool decides)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        g->val[i].is_marked = g->k->ins[i].level == DF_LEVEL_ELEM && g->val[i].decides == decides;
}

/* Leaves the loop if there is a proceed and its predicate is false. */
static void test_proceed(df_gen *g, iteration *l)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (g->k->ins[i].op != DF_K_proceed) continue;
        mark_deciding(g, true);
        df_gen_place(g, PLACE_RED);
        l->left = LLVMGetInsertBlock(g->b);
        LLVMBasicBlockRef body = df_gen_block(g, "proceed");
        LLVMBuildCondBr(g->b, df_gen_sca(g, g->k->ins[i].src[0]), body, l->after);
        LLVMPositionBuilderAtEnd(g->b, body);
        mark_deciding(g, false);
    }
}

/* Ends the iteration: completes the phis, and branches to the next iteration or out of the loop. */
static void end_loop(df_gen *g, iteration *l)
{
    LLVMValueRef r = LLVMBuildAdd(g->b, l->r, df_gen_i64(g, 1), "");
    for (state *s = l->states; s < l->states + l->n_states; s++)
        for (uint32_t v = 0; v < s->n; v++)
            s->last[v] = value_of(g, s, g->k->ins[s->next].src[1], v);
    l->latch = LLVMGetInsertBlock(g->b);
    LLVMAddIncoming(l->r, &r, &l->latch, 1);
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        if (!moves_along_red(g, a)) continue;
        LLVMValueRef at = g->k->access[a].kind == DF_ACCESS_INDEX
                              ? LLVMBuildAdd(g->b, l->at[a], l->inc[a], "")
                              : df_gen_offset(g, l->at[a], l->inc[a]);
        LLVMAddIncoming(l->at[a], &at, &l->latch, 1);
        g->acc[a].at = g->acc[a].row;
    }
    for (state *s = l->states; s < l->states + l->n_states; s++)
        for (uint32_t v = 0; v < s->n; v++) LLVMAddIncoming(s->phi[v], &s->last[v], &l->latch, 1);
    LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, r, g->length, ""), l->head, l->after);
}

/* Defines the states after the loop, from each of the blocks that leave it. */
static void define_results(df_gen *g, iteration *l)
{
    LLVMPositionBuilderAtEnd(g->b, l->after);
    LLVMValueRef result[DF_COPIES];
    for (state *s = l->states; s < l->states + l->n_states; s++)
        for (uint32_t v = 0; v < s->n; v++) {
            LLVMValueRef phi = LLVMBuildPhi(g->b, LLVMTypeOf(s->init[v]), "");
            LLVMAddIncoming(phi, &s->init[v], &l->pre, 1);
            if (l->left) LLVMAddIncoming(phi, &s->phi[v], &l->left, 1);
            LLVMAddIncoming(phi, &s->last[v], &l->latch, 1);
            s->phi[v] = phi;
        }
    for (state *s = l->states; s < l->states + l->n_states; s++) {
        for (uint32_t v = 0; v < s->n; v++) result[v] = s->phi[v];
        define(g, s, s->next, result);
    }
}

/* Writes all iterations, for all copies of the body. has_lanes: the body has vectors. */
static void iterate(df_gen *g, bool has_lanes)
{
    iteration l = { .pre = LLVMGetInsertBlock(g->b) };
    l.inc = df_gen_values(g, g->k->n_access);
    l.at = df_gen_values(g, g->k->n_access);
    find_states(g, &l);
    l.enter = df_gen_block(g, "enter");
    l.head = df_gen_block(g, "iteration");
    l.after = df_gen_block(g, "left");
    LLVMValueRef any = LLVMBuildICmp(g->b, LLVMIntSGT, g->length, df_gen_i64(g, 0), "");
    LLVMBuildCondBr(g->b, any, l.enter, l.after);

    LLVMPositionBuilderAtEnd(g->b, l.enter);
    df_gen_mark(g, 0);
    df_gen_place(g, PLACE_PRE);
    if (has_lanes) df_gen_place(g, PLACE_LANES);
    for (uint32_t a = 0; a < g->k->n_access; a++)
        if (moves_along_red(g, a)) l.inc[a] = df_gen_stride(g, a, g->red[0]);
    LLVMBuildBr(g->b, l.head);
    l.enter = LLVMGetInsertBlock(g->b);

    begin_loop(g, &l);
    test_proceed(g, &l);
    df_gen_place(g, PLACE_RED);
    if (df_gen_goes_by_vector(g, g->n_copies))
        for (uint32_t c = 0; c < g->n_copies; c++) df_gen_place_copies(g, PLACE_BODY, c, c + 1);
    else
        df_gen_place(g, PLACE_BODY);
    end_loop(g, &l);
    define_results(g, &l);
    df_gen_mark(g, 0);
}

/* ---- lanes ---- */

/* Whether an instruction of the kernel has this place (gen.h). */
static bool has_place(const df_gen *g, df_gen_level place)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->val[i].place == place) return true;
    return false;
}

/* Writes the row-level instructions of a stage that have lanes, for all copies of the body. */
static void row_lanes(df_gen *g, uint32_t stage)
{
    for (uint32_t c = 0; c < g->n_copies; c++) {
        df_gen_copy(g, c);
        df_gen_row_lanes(g, stage);
    }
}

/* Writes a row for the lanes of n vectors from lane0 on: row level, iterations, row level. Lanes
 * from `end` on are masked; end NULL: all lanes are valid. */
static void vectors(df_gen *g, LLVMValueRef lane0, LLVMValueRef end, uint32_t n)
{
    df_gen_copies_begin(g, lane0, end, n);
    row_lanes(g, 0);
    if (has_place(g, PLACE_BODY)) {
        iterate(g, true);
        df_gen_row_level(g, 1);
    }
    row_lanes(g, 1);
}

/* Writes a loop over the lanes [from, to) in steps of n vectors. end: as for vectors(). */
static void vectors_loop(df_gen *g, LLVMValueRef from, LLVMValueRef to, LLVMValueRef end,
                         uint32_t n)
{
    df_loop l;
    df_loop_begin(g, &l, from, to, df_gen_i64(g, g->w * n), 0);
    vectors(g, l.i, end, n);
    df_loop_end(g, &l);
}

/* Divides the lanes [i0, i1_) into groups of copies, single vectors and a tail. */
static void all_lanes(df_gen *g)
{
    const uint32_t n = df_gen_copies(g);
    LLVMValueRef from = g->i0, to = g->i1_, several = from;
    if (n > 1) several = df_gen_whole(g, from, to, g->w * n);
    if (g->native_masks) {
        LLVMValueRef rest = LLVMBuildSub(g->b, to, several, "");
        LLVMValueRef is_one = LLVMBuildICmp(g->b, LLVMIntSLE, rest, df_gen_i64(g, g->w), "");
        several = LLVMBuildSelect(g->b, is_one, several, to, "");
        if (n > 1) vectors_loop(g, from, several, to, n);
        vectors_loop(g, n > 1 ? several : from, to, to, 1);
        return;
    }
    if (n > 1) vectors_loop(g, from, several, NULL, n);
    LLVMValueRef whole = df_gen_whole(g, several, to, g->w);
    vectors_loop(g, several, whole, NULL, 1);
    df_if tail;
    df_if_begin(g, &tail, LLVMBuildICmp(g->b, LLVMIntSLT, whole, to, ""));
    vectors(g, whole, to, 1);
    df_if_end(g, &tail);
}

/* Called inside the loop over rows. g->red[0] is the axis of the iterations, and g->length is their
 * number. A loop whose body has no vectors runs once per row. Lanes may read its results at row
 * level. */
void df_iterate_row(df_gen *g)
{
    df_gen_mark(g, 0);
    df_gen_row_level(g, 0);
    g->n_copies = 1;
    if (!has_place(g, PLACE_BODY)) {
        iterate(g, false);
        df_gen_row_level(g, 1);
    }
    if (has_place(g, PLACE_BODY) || has_place(g, PLACE_LANES)) all_lanes(g);
}
