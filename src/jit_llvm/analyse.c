/* SPDX-License-Identifier: Apache-2.0
 *
 * Decisions about a kernel before its code is written: where each value is computed (gen.h,
 * "Values"), how many lanes vectors have, and which masks are instructions. The file also refuses
 * kernels that LLVM could not compile, because LLVM aborts the process on those.
 *
 * Lanes. All vectors of a kernel have the same number of lanes, w. It is the number of elements in
 * a native vector, for the element size that most instructions on lanes have: 4 or 8 bytes. Kernels
 * without such instructions count elements of 2 bytes, or of 1 byte. With AVX-512, f32 kernels get
 * 16 lanes, and f64 and 64-bit integer kernels get 8. A few i64 indices in an f32 kernel then take
 * two registers each, and a few floats in an f64 kernel take half a register each. A ROW kernel
 * with a scan is scalar (w = 1).
 */
#include "jit_llvm/gen.h"

enum {
    COPY_BODY = 16, /* instructions; the CPU overlaps shorter bodies of ROW and COL by itself */
    MAP_COPIES = 4, /* most copies of a body that is not long and has no masked loop */
    WINDOW = 192,   /* instructions that any CPU overlaps by itself */
};

/* ---- analysis ---- */

static const df_access *access_of(const df_gen *g, const df_ins *ins)
{
    return &g->k->access[ins->imm];
}

static bool has_access(df_kop op)
{
    return op == DF_K_load || op == DF_K_load_at || op == DF_K_load_if || op == DF_K_store ||
           op == DF_K_index;
}

static uint8_t access_moves(const df_kernel *k, const df_access *a)
{
    static const uint8_t of_role[] = { MOVES_OUTER, MOVES_RED, MOVES_INNER };
    if (a->kind == DF_ACCESS_SCRATCH) return MOVES_RED;
    if (a->kind == DF_ACCESS_AT) return 0; /* it depends on its offset, an operand, alone */
    uint8_t moves = 0;
    for (uint32_t x = 0; x < k->n_axes; x++) {
        const bool run = k->mode == DF_MODE_ROW && k->role[x] == DF_AXIS_RED && x + 1u < k->n_axes;
        if (a->step[x] != DF_STEP_ZERO) moves |= run ? MOVES_RUN : of_role[k->role[x]];
    }
    return moves;
}

/* ---- moves and levels ---- */

/* same_as names only one of the accesses that alias. So if a store aliases any access, every access
 * may be written: of two loads that alias the store, the second may not be named anywhere. */
bool df_gen_may_be_written(const df_gen *g, uint32_t access)
{
    if (g->k->access[access].same_as != access) return true;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        if (ins->op == DF_K_store && ins->level == DF_LEVEL_ELEM &&
            access_of(g, ins)->same_as != ins->imm)
            return true;
    }
    return false;
}

/* Whether ins must stay inside a LOOP even if its operands are the same in all iterations. That
 * holds for instructions with an effect and for loads from memory that the loop writes. If the loop
 * may be left, it also holds for load_at: its offset may be valid only while the loop continues.
 */
static bool stays_inside(const df_gen *g, const df_ins *ins)
{
    if (g->k->mode != DF_MODE_LOOP || ins->level != DF_LEVEL_ELEM) return false;
    if (ins->op == DF_K_store) return true;
    if (ins->op == DF_K_check) return g->may_leave;
    if ((ins->op == DF_K_load_at || ins->op == DF_K_load_if) && g->may_leave) return true;
    const bool reads = ins->op == DF_K_load || ins->op == DF_K_load_at || ins->op == DF_K_load_if;
    return reads && df_gen_may_be_written(g, (uint32_t)ins->imm);
}

/* Finds the instructions of an iteration that the predicate of the proceed depends on. */
static void find_deciding(df_gen *g)
{
    g->may_leave = false;
    for (uint32_t i = g->k->n_ins; i-- > 0;) {
        const df_ins *ins = &g->k->ins[i];
        g->may_leave |= ins->op == DF_K_proceed;
        g->val[i].decides |= ins->op == DF_K_proceed;
        if (!g->val[i].decides || ins->op == DF_K_carry) continue;
        for (uint32_t s = 0; s < df_gen_n_src(g, i); s++) g->val[ins->src[s]].decides = true;
    }
}

static uint8_t ins_moves(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    uint8_t moves = 0;
    for (uint32_t s = 0; s < df_gen_n_src(g, i); s++) moves |= g->val[ins->src[s]].moves;
    if (has_access((df_kop)ins->op)) {
        moves |= g->acc[ins->imm].moves;
        if (ins->op != DF_K_index) moves |= MOVES_OUTER; /* memory is touched only inside rows */
    }
    if (ins->op == DF_K_check) moves |= MOVES_OUTER;
    if (stays_inside(g, ins)) moves |= MOVES_RED;
    if (df_gen_kind(g, i) == DF_KOP_loop) moves |= MOVES_OUTER | MOVES_RED;
    if (df_gen_kind(g, i) == DF_KOP_reduce)
        return MOVES_OUTER | (g->k->mode == DF_MODE_COL ? MOVES_INNER : 0);
    if (df_gen_kind(g, i) == DF_KOP_scan)
        return MOVES_OUTER | MOVES_RED | (g->k->mode == DF_MODE_COL ? MOVES_INNER : 0);
    return moves;
}

static df_gen_level ins_place(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    const uint8_t moves = g->val[i].moves;
    const bool is_lanes = moves & df_gen_vec_moves(g);
    if (df_gen_kind(g, i) == DF_KOP_reduce || df_gen_kind(g, i) == DF_KOP_scan) return PLACE_BODY;
    if (moves == 0) return PLACE_ENTRY;
    if (ins->level == DF_LEVEL_ROW) return is_lanes ? PLACE_LANES : PLACE_ROW;
    if (is_lanes && g->k->mode == DF_MODE_LOOP && !(moves & MOVES_RED)) return PLACE_LANES;
    if (is_lanes) return PLACE_BODY;
    return moves & (MOVES_RED | MOVES_RUN) ? PLACE_RED : PLACE_PRE;
}

/* ---- runs ----
 *
 * A run is an i64 value whose lane k is lane 0 plus k: an index along the lanes, to which scalars
 * may be added. A load_at at such offsets reads neighbouring elements, as gathers of whole rows do.
 * Its lanes are loaded as one vector. Offsets that nothing else reads are computed for lane 0 only.
 */

static bool is_run(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (g->val[i].place != PLACE_BODY || ins->dtype != DEFT_I64) return false;
    if (ins->op == DF_K_index) return df_gen_lane_step(g, (uint32_t)ins->imm) == DF_STEP_UNIT;
    if (ins->op != DF_K_add && ins->op != DF_K_sub) return false;
    const df_val *a = &g->val[ins->src[0]], *b = &g->val[ins->src[1]];
    return (a->is_run && b->place < PLACE_LANES) ||
           (ins->op == DF_K_add && a->place < PLACE_LANES && b->is_run);
}

static void find_runs(df_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        g->val[i].is_run = g->val[i].is_address = is_run(g, i);
        const df_ins *ins = &g->k->ins[i];
        if (ins->op == DF_K_load_at && g->val[i].place == PLACE_BODY)
            g->acc[ins->imm].has_run |= g->val[ins->src[0]].is_run;
    }
    for (uint32_t i = g->k->n_ins; i-- > 0;)
        for (uint32_t s = 0; s < df_gen_n_src(g, i); s++)
            if (g->k->ins[i].op != DF_K_load_at && !g->val[i].is_address)
                g->val[g->k->ins[i].src[s]].is_address = false;
}

/* ---- lanes ---- */

static uint32_t choose_lanes(const df_gen *g)
{
    uint32_t n1 = 0, n2 = 0, n4 = 0, n8 = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        if (df_gen_kind(g, i) == DF_KOP_scan && g->k->mode == DF_MODE_ROW) return 1;
        const bool is_lanes = g->val[i].place == PLACE_BODY ||
                              (g->val[i].place == PLACE_LANES && g->k->mode == DF_MODE_LOOP);
        if (!is_lanes || g->val[i].is_address || df_gen_kind(g, i) == DF_KOP_reduce) continue;
        const uint32_t size = df_bytes_of((deft_dtype)ins->dtype);
        n1 += size == 1;
        n2 += size == 2;
        n4 += size == 4;
        n8 += size == 8;
    }
    if (n8 > n4) return g->t->vector_bytes / 8;
    if (n4 + n8 > 0 || n1 + n2 == 0) return g->t->vector_bytes / 4;
    return n2 > 0 ? g->t->vector_bytes / 2 : g->t->vector_bytes;
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
    g->has_runs = g->k->mode == DF_MODE_ROW && g->n_red > 1;
}

/* Whether a masked loop would store words by slow instructions, vector by vector. */
static bool stores_slowly(const df_gen *g)
{
    if (!g->t->slow_mask_stores) return false;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].op == DF_K_store && g->val[i].place == PLACE_BODY) return true;
    return false;
}

static bool masks_are_native(const df_gen *g)
{
    if (stores_slowly(g)) return false;
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        const df_access *x = &g->k->access[a];
        const bool in_lanes = g->acc[a].moves & df_gen_vec_moves(g) || g->acc[a].has_run;
        const bool is_word = df_bytes_of((deft_dtype)x->dtype) >= 4;
        if (x->kind == DF_ACCESS_INDEX || !in_lanes)
            continue; /* AT moves in lanes only with a run */
        if (!(is_word ? g->t->mask_words : g->t->mask_bytes)) return false;
        /* Strided accesses under a mask are cheap only as gathers. */
        if (df_gen_lane_step(g, a) == DF_STEP_ANY) return false;
    }
    return g->t->mask_words && g->w > 1;
}

/* Whether ins divides by a number that facts know and whose inverse is exact. */
static bool is_exact_division(const df_gen *g, const df_ins *ins)
{
    const uint32_t slot = df_facts_useful_slot(g->k, ins);
    return g->facts && slot != DF_NONE && g->facts->num_mask >> slot & 1 &&
           df_facts_is_exact_divisor((deft_dtype)ins->dtype, g->facts->num[slot]);
}

/* Whether lanes of f32 are divided by d itself although the kernel is FAST. That is so where d
 * changes from row to row of a ROW kernel, and the target divides fast. Each row would wait for the
 * inverse, and every quotient takes two products, of which one keeps the inverse finite. */
static bool divides_rows(const df_gen *g, uint32_t d)
{
    return g->t->fast_division && g->k->mode == DF_MODE_ROW && g->val[d].place != PLACE_ENTRY &&
           g->k->ins[d].dtype == DEFT_F32;
}

/* Finds the scalars that lanes are divided by. Such a division becomes a multiplication by the
 * inverse, which is computed next to the scalar. That is allowed in FAST kernels, and where it
 * changes no bit. */
static void find_inverses(df_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        if (ins->op != DF_K_div || g->val[i].place != PLACE_BODY) continue;
        if (!df_is_real((deft_dtype)ins->dtype)) continue;
        const uint32_t d = ins->src[1];
        const bool is_fast = g->k->flags & DF_KERNEL_FAST && !divides_rows(g, d);
        if (!is_fast && !is_exact_division(g, ins)) continue;
        const bool is_scalar = g->val[d].place < PLACE_LANES ||
                               (df_gen_kind(g, d) == DF_KOP_reduce && g->k->mode == DF_MODE_ROW);
        g->val[d].wants_inverse |= is_scalar;
    }
}

/* One pass over the instructions; returns whether it found anything new. A state of a LOOP depends
 * on the axes that its initial value and its next value depend on. */
static bool find_moves(df_gen *g)
{
    bool is_new = false;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        const uint8_t moves = g->val[i].moves | ins_moves(g, i);
        is_new |= moves != g->val[i].moves;
        g->val[i].moves = moves;
        if (ins->op != DF_K_next) continue;
        is_new |= (moves & ~g->val[ins->src[0]].moves) != 0;
        g->val[ins->src[0]].moves |= moves;
    }
    return is_new;
}

/* The power of two for df_gen.multiple, from the facts. */
static uint32_t find_multiple(const df_gen *g)
{
    if (!g->facts || g->vec_axis < 0 || g->has_runs) return 1;
    const int64_t n = g->facts->extent[g->vec_axis];
    const bool is_exact_extent = n > 0 && (g->facts->rows || g->k->mode == DF_MODE_ROW);
    if (is_exact_extent && n % DF_FACT_MULTIPLE != 0) return (uint32_t)(n & -n);
    return is_exact_extent || g->facts->multiple ? DF_FACT_MULTIPLE : 1;
}

void df_gen_analyse(df_gen *g)
{
    find_axes(g);
    for (uint32_t a = 0; a < g->k->n_access; a++)
        g->acc[a].moves = access_moves(g->k, &g->k->access[a]);
    find_deciding(g);
    while (find_moves(g) && g->k->mode == DF_MODE_LOOP) {
    }
    for (uint32_t i = 0; i < g->k->n_ins; i++) g->val[i].place = (uint8_t)ins_place(g, i);
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->val[i].place == PLACE_BODY || g->val[i].place == PLACE_LANES)
            for (uint32_t s = 0; s < df_gen_n_src(g, i); s++)
                g->val[g->k->ins[i].src[s]].wants_vec = true;
    find_inverses(g);
    df_numbers_place(g);
    df_contract_find(g);
    find_runs(g);
    df_half_find_nans(g);
    g->w = choose_lanes(g);
    df_tiles_find(g);
    g->multiple = find_multiple(g);
    g->native_masks = masks_are_native(g);
    df_inside_find(g);
    df_reduce_plan(g);
}

/* ---- copies of loop bodies ----
 *
 * A body is mostly one chain of dependent instructions, and the CPU's instruction window holds a
 * limited number of them. If a body is long, the CPU begins the next vector only when the current
 * one is nearly done. So a long body is written for several neighbouring vectors at once,
 * instruction by instruction. The live vectors may exceed the registers by half, because loads and
 * last uses fold into other instructions. Time per element on Zen 5, where one copy takes 1:
 *
 *     body            instructions   copies   time
 *     gelu                      36        4   0.83
 *     Black-Scholes            139        4   0.65
 *     Mandelbrot               633        4   0.31   (three: 0.43)
 *
 * The body of a MAP kernel is copied even when it is short. Such a kernel waits for memory, and it
 * waits less when the loads of four neighbouring vectors come before their stores. With one copy,
 * x -= y on 8 MB takes 1.12 times as long as the C loop (Zen 3); with four it takes 1.01 times as
 * long. relu(a x + b) of bf16 in caches takes 0.82 of the time of one copy.
 *
 * An iteration of a LOOP waits for the iteration before it. So even short bodies are copied; the
 * shorter the body, the more copies. No more vectors may be live than there are registers. Copies
 * that together fit the window are written vector by vector. Then a copy needs no registers but
 * those of its states. Time of 1000 iterations of x = r x (1 - x) for 4096 f32, of which 105 us are
 * arithmetic:
 *
 *     4 copies                     158 us
 *     8 copies                     119 us
 *     8 copies, vector by vector   108 us
 */

/* Whether the marked body computes i, and not behind a branch only. */
static bool is_always_here(const df_gen *g, uint32_t i)
{
    return df_gen_is_here(g, i, PLACE_BODY) && !g->val[i].in_arm;
}

/* Whether vectors of the marked body read operand s of i. A next does not read its first operand,
 * which only names the state. */
static bool is_read_here(const df_gen *g, uint32_t i, uint32_t s)
{
    return is_always_here(g, i) && (g->k->ins[i].op != DF_K_next || s > 0);
}

/* The largest number of vectors that are live at once in one copy of the marked body. */
static uint32_t most_live(df_gen *g)
{
    uint32_t live = 0, most = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++) g->val[i].last_use = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        for (uint32_t s = 0; s < df_gen_n_src(g, i); s++)
            if (is_read_here(g, i, s)) g->val[g->k->ins[i].src[s]].last_use = i;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!is_always_here(g, i)) continue;
        for (uint32_t s = 0; s < df_gen_n_src(g, i); s++) {
            const uint32_t from = g->k->ins[i].src[s];
            if (!is_always_here(g, from) || g->val[from].last_use != i) continue;
            g->val[from].last_use = 0; /* counted once, though used twice */
            live--;
        }
        live += g->val[i].last_use > 0;
        if (live > most) most = live;
    }
    return most;
}

/* Whether the marked body has instructions that are written lane by lane. Such a body is long
 * enough without copies, and the number of its loads limits its speed. */
static bool has_single_lanes(const df_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        if (!df_gen_is_here(g, i, PLACE_BODY)) continue;
        if (ins->op == DF_K_load_at && !g->val[ins->src[0]].is_run) return true;
        if (ins->op == DF_K_check || ins->op == DF_K_rem) return true;
        if ((ins->op == DF_K_load || ins->op == DF_K_load_if || ins->op == DF_K_store) &&
            df_gen_lane_step(g, (uint32_t)ins->imm) != DF_STEP_UNIT)
            return true;
    }
    return false;
}

bool df_gen_goes_by_vector(const df_gen *g, uint32_t n)
{
    return n * df_gen_body_size(g) <= WINDOW;
}

/* The number of copies for the body of a LOOP. live: vectors that are live at once in one copy.
 * regs: vector registers. */
static uint32_t loop_copies(const df_gen *g, uint32_t live, uint32_t regs)
{
    /* Vectors that all copies share, vectors that each copy keeps, and states that change. */
    uint32_t all = 0, kept = 0, states = 0;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_val *v = &g->val[i];
        states += g->k->ins[i].op == DF_K_next && v->place == PLACE_BODY;
        if (v->last_use == 0 || v->place == PLACE_BODY || v->is_read_in_place) continue;
        if (v->place == PLACE_LANES)
            kept++;
        else
            all++;
    }
    for (uint32_t n = DF_COPIES; n > 1; n /= 2) {
        const bool by_vector = df_gen_goes_by_vector(g, n);
        if (!by_vector && n > (df_gen_body_size(g) < DF_LONG_BODY ? 4 : 2)) continue;
        const uint32_t moving = by_vector ? n * states + live : n * live;
        if (moving + n * kept + all <= regs) return n;
    }
    return 1;
}

uint32_t df_gen_copies(df_gen *g)
{
    const uint32_t size = df_gen_body_size(g);
    if (g->level == DF_OPT_O0 || g->w == 1 || has_single_lanes(g)) return 1;
    const uint32_t regs = df_gen_vector_registers(g);
    const uint32_t live = most_live(g);
    if (g->k->mode == DF_MODE_LOOP) return loop_copies(g, live, regs);
    if (size < COPY_BODY && g->k->mode != DF_MODE_MAP) return 1;
    /* A loop that is masked as a whole may step by three vectors. Others step by a power of two. */
    const bool one_loop = df_gen_one_loop(g);
    uint32_t n = one_loop || size < DF_LONG_BODY ? MAP_COPIES : 2;
    while (n > 1 && n * live > regs + regs / 2) n = one_loop ? n - 1 : n / 2;
    return g->is_jammed && n > 1 ? n / 2 : n; /* the other half is for the other row */
}

/* ---- two bf16 in a word (rows/words.c) ---- */

/* Whether an access of the body may have two elements in a word. */
static bool is_of_words(const df_gen *g, uint32_t access)
{
    return g->k->access[access].dtype == DEFT_BF16 && df_gen_lane_step(g, access) == DF_STEP_UNIT &&
           !g->acc[access].has_tile && g->k->access[access].kind != DF_ACCESS_SCRATCH;
}

/* Whether instruction i, which is part of the body, gives the same in any order of the lanes, and
 * touches bf16 in memory only as operand or result of a cast. */
static bool fits_words(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    const df_kop op = (df_kop)ins->op;
    if (g->val[i].arm != 0) return false;
    if (op == DF_K_store)
        return is_of_words(g, (uint32_t)ins->imm) && g->k->ins[ins->src[0]].op == DF_K_cast;
    if (op == DF_K_load) return is_of_words(g, (uint32_t)ins->imm);
    for (uint32_t s = 0; s < df_gen_n_src(g, i); s++)
        if (g->k->ins[ins->src[s]].op == DF_K_load && df_gen_is_here(g, ins->src[s], PLACE_BODY) &&
            op != DF_K_cast)
            return false;
    return df_gen_kind(g, i) == DF_KOP_map && op != DF_K_index && op != DF_K_load_at &&
           op != DF_K_load_if && op != DF_K_check;
}

bool df_gen_may_have_words(const df_gen *g)
{
    bool has_load = false;
    if (g->k->mode != DF_MODE_MAP || g->w == 1 || g->level == DF_OPT_O0 || g->is_jammed ||
        g->has_inside || g->n_questions > 0 || g->are_twos)
        return false;
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!df_gen_is_here(g, i, PLACE_BODY)) continue;
        if (!fits_words(g, i)) return false;
        has_load |= g->k->ins[i].op == DF_K_load;
    }
    return has_load;
}

/* ---- kernels that are refused ---- */

static deft_status refuse_kernel_ins(const df_gen *g, uint32_t i, const char *what)
{
    const df_ins *ins = &g->k->ins[i];
    const char *name = ins->op < DF_N_KOPS ? g->host->kops[ins->op].name : "?";
    return g->host->fail(g->d, DEFT_E_COMPILE, "kernel instruction %u (%s, dtype %u): %s", i, name,
                         ins->dtype, what);
}

static deft_status check_kernel_ins(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (ins->op >= DF_N_KOPS || ins->dtype >= DF_N_RECORDED)
        return refuse_kernel_ins(g, i, "no such op or dtype");
    if (ins->stage >= g->k->n_stages || ins->stage >= DF_MAX_STAGES)
        return refuse_kernel_ins(g, i, "no such stage");
    for (uint32_t s = 0; s < df_gen_n_src(g, i); s++)
        if (ins->src[s] >= i) return refuse_kernel_ins(g, i, "an operand is not above its user");
    if (has_access((df_kop)ins->op) && ins->imm >= g->k->n_access)
        return refuse_kernel_ins(g, i, "no such access");
    if (ins->op == DF_K_num && ins->imm >= g->k->n_num)
        return refuse_kernel_ins(g, i, "no such number slot");
    const deft_dtype src =
        df_gen_n_src(g, i) > 0 ? (deft_dtype)g->k->ins[ins->src[0]].dtype : DEFT_BOOL;
    if (!df_kop_takes((df_kop_types)g->host->kops[ins->op].types, (deft_dtype)ins->dtype, src))
        return refuse_kernel_ins(g, i, "no code for these dtypes");
    if (ins->op == DF_K_next && g->k->ins[ins->src[1]].dtype != ins->dtype)
        return refuse_kernel_ins(g, i, "no code for these dtypes");
    if (ins->op == DF_K_load_if && g->k->ins[ins->src[1]].dtype != ins->dtype)
        return refuse_kernel_ins(g, i, "the other value has another dtype");
    if (ins->op == DF_K_store && src != access_of(g, ins)->dtype)
        return refuse_kernel_ins(g, i, "the access has another dtype");
    if ((ins->op == DF_K_load || ins->op == DF_K_load_at || ins->op == DF_K_load_if) &&
        ins->dtype != access_of(g, ins)->dtype)
        return refuse_kernel_ins(g, i, "the access has another dtype");
    return DEFT_OK;
}

/* Checks that each carry has one next, and that both are in the one loop of a LOOP kernel. */
static deft_status check_kernel_loop(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    const df_kop_kind kind = df_gen_kind(g, i);
    uint32_t n_next = 0;
    if (g->k->mode != DF_MODE_LOOP)
        return kind == DF_KOP_loop ? refuse_kernel_ins(g, i, "not in a loop") : DEFT_OK;
    if (kind == DF_KOP_reduce || kind == DF_KOP_scan) return refuse_kernel_ins(g, i, "in a loop");
    if (ins->level == DF_LEVEL_ELEM && ins->stage > 0)
        return refuse_kernel_ins(g, i, "a second loop");
    if (kind != DF_KOP_loop) return DEFT_OK;
    if (ins->level != DF_LEVEL_ELEM) return refuse_kernel_ins(g, i, "outside of the loop");
    if (ins->op == DF_K_next && g->k->ins[ins->src[0]].op != DF_K_carry)
        return refuse_kernel_ins(g, i, "of no state");
    for (uint32_t j = i + 1; j < g->k->n_ins; j++) {
        n_next += g->k->ins[j].op == DF_K_next && g->k->ins[j].src[0] == i;
        if (ins->op == DF_K_proceed && g->k->ins[j].op == DF_K_proceed)
            return refuse_kernel_ins(g, j, "a second one");
    }
    return ins->op != DF_K_carry || n_next == 1 ? DEFT_OK
                                                : refuse_kernel_ins(g, i, "without one next");
}

deft_status df_gen_check(const df_gen *g)
{
    const df_kernel *k = g->k;
    uint32_t n_role[3] = { 0, 0, 0 };
    if (k->n_axes > DF_MAX_AXES || k->mode > DF_MODE_LOOP || k->n_stages == 0)
        return g->host->fail(g->d, DEFT_E_COMPILE, "kernel: %u axes, mode %u, %u stages", k->n_axes,
                             k->mode, k->n_stages);
    for (uint32_t x = 0; x < k->n_axes; x++)
        if (k->role[x] <= DF_AXIS_INNER) n_role[k->role[x]]++;
    const bool fits = k->mode == DF_MODE_MAP    ? n_role[1] == 0 && n_role[2] <= 1
                      : k->mode == DF_MODE_ROW  ? n_role[1] >= 1 && n_role[2] == 0
                      : k->mode == DF_MODE_LOOP ? n_role[1] == 1 && n_role[2] == 1
                                                : n_role[1] >= 1 && n_role[2] == 1;
    if (!fits || n_role[0] + n_role[1] + n_role[2] != k->n_axes)
        return g->host->fail(g->d, DEFT_E_COMPILE,
                             "kernel: mode %u with %u outer, %u reduced, %u inner axes", k->mode,
                             n_role[0], n_role[1], n_role[2]);
    for (uint32_t a = 0; a < k->n_access; a++)
        if (k->access[a].dtype >= DF_N_RECORDED)
            return g->host->fail(g->d, DEFT_E_COMPILE, "kernel access %u: no such dtype", a);
    for (uint32_t i = 0; i < k->n_ins; i++) {
        deft_status st = check_kernel_ins(g, i);
        if (st == DEFT_OK) st = check_kernel_loop(g, i);
        if (st != DEFT_OK) return st;
    }
    return DEFT_OK;
}

deft_status df_gen_check_places(const df_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        const df_ins *ins = &g->k->ins[i];
        const df_val *v = &g->val[i];
        const bool is_scalar = v->place != PLACE_BODY && v->place != PLACE_LANES;
        if (ins->op == DF_K_store && !is_scalar && !(g->acc[ins->imm].moves & df_gen_vec_moves(g)))
            return refuse_kernel_ins(g, i, "many lanes into one element");
        if (ins->op == DF_K_proceed && !is_scalar)
            return refuse_kernel_ins(g, i, "lanes may differ");
        for (uint32_t s = 0; s < df_gen_n_src(g, i); s++) {
            const uint32_t from = ins->src[s];
            const bool is_reduce =
                df_gen_kind(g, from) == DF_KOP_reduce || g->k->ins[from].op == DF_K_next;
            if (is_reduce && g->k->ins[from].stage >= ins->stage)
                return refuse_kernel_ins(g, i, "a reduction is used in its own stage");
            if (ins->level == DF_LEVEL_ROW && g->k->ins[from].level == DF_LEVEL_ELEM &&
                !is_reduce && g->val[from].place != PLACE_ENTRY)
                return refuse_kernel_ins(g, i, "an element is used at row level");
        }
    }
    return DEFT_OK;
}

bool df_gen_one_loop(const df_gen *g)
{
    const bool is_long = df_gen_body_size(g) >= DF_LONG_BODY;
    return g->native_masks && (g->level == DF_OPT_O0 || is_long);
}
