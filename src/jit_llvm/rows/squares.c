/* SPDX-License-Identifier: Apache-2.0
 *
 * Squares of transposed operands, exchanged in registers.
 *
 * The network of a transposition is that of a perfect shuffle: within 16 bytes, step by step, row k
 * is interleaved with row k + n / 2. Between the 16-byte parts of wider vectors, even parts of two
 * vectors are joined, and odd ones. Each step is one instruction for two vectors of the result.
 *
 * Short MAP kernels with crossed loads (tiles.c) use no tile for most of their elements. A strip is
 * as many rows as a vector has lanes. It is computed square by square. One vector is loaded from
 * each of the lanes, and the square is transposed. Then the body is written once for each row. Its
 * crossed load has the transposed vector as its value.
 *
 *   memory of the operand           registers           rows of the result
 *
 *   lane i      a a a a a a ..      a b c d ..      row r      .. a b c d ..
 *   lane i + 1  b b b b b b ..  ->  a b c d ..  ->  row r + 1  .. a b c d ..
 *   lane i + 2  c c c c c c ..      a b c d ..      row r + 2  .. a b c d ..
 *
 * A strip takes a whole cache line of each lane. Other operands and results are read and written
 * along their rows, where the hardware prefetches them. The only stores are those of results. With
 * a tile, the loads of a row wait for stores to the tile, and these wait in order behind stores of
 * results that miss the caches. The same in C on one thread of Zen 5, f32, in microseconds:
 *
 *   result                      1808 x 2304   1800 x 2300   1000 x 1000   1024 x 1024
 *   x' + y, tiles                      2222          2278           171           191
 *   x' + y, squares                    1273          1216           126           327
 *   the same, around caches             861             -             -             -
 *
 * Lanes that are a multiple of SETS apart share few sets of the first cache, as the last column
 * shows. Then squares are used only for results that go around the caches, in kernels that read
 * other operands, too. Squares write around the caches only where all rows begin at a vector in
 * memory, because others would write their lines in two parts. Where rows do not, a kernel that
 * reads other operands is faster in squares, with ordinary stores. A copy is faster with tiles and
 * stores around the caches.
 *
 * On an Intel server a strip of an operand that is larger than the second cache is slow. It takes
 * one line from each lane, and nearly every line is in another page. There squares are used only
 * where the lanes of each crossed operand lie within NEAR bytes, and only with ordinary stores. In
 * microseconds, x' + y of f32 takes on one thread and on two:
 *
 *   result                   256 x 256   1001 x 1003   2048 x 2048   1600 x 2500   3001 x 4011
 *   squares                      8.9 9.0      966 529     4761 1861    13034 1943   32500 11300
 *   tiles                      13.2 13.1      585 277     2980 1370     2870 1350    13190 6620
 */
#include "jit_llvm/gen.h"

enum {
    PART = 16,       /* bytes within which x86 and AArch64 interleave elements */
    LINE = 64,       /* bytes of a cache line */
    SETS = 2048,     /* bytes */
    NEAR = 1 << 19,  /* bytes: a quarter of the second cache of an Intel server */
    SHORT_BODY = 16, /* instructions. The body is written once for each row of a square */
    MOST_CROSSED = 2 /* operands whose squares are in registers at once */
};

/* ---- the network ---- */

uint32_t df_square_side(const df_gen *g, uint32_t size)
{
    const uint32_t lanes = g->t->vector_bytes / size;
    return lanes < DF_SQUARE ? lanes : DF_SQUARE;
}

/* Of each part of `part` lanes, interleaves one half of a with the same half of b. */
static LLVMValueRef interleave(df_gen *g, LLVMValueRef a, LLVMValueRef b, uint32_t n, uint32_t part,
                               bool high)
{
    LLVMValueRef lane[DF_SQUARE];
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t from = i / part * part + (high ? part / 2 : 0) + i % part / 2;
        lane[i] = LLVMConstInt(g->i32, from + (i % 2 ? n : 0), 0);
    }
    return LLVMBuildShuffleVector(g->b, a, b, LLVMConstVector(lane, n), "");
}

/* The even parts of a, then those of b; or the odd ones. */
static LLVMValueRef join_parts(df_gen *g, LLVMValueRef a, LLVMValueRef b, uint32_t n, uint32_t part,
                               bool odd)
{
    LLVMValueRef lane[DF_SQUARE];
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = 2 * (i / part) + odd; /* the part, of those of a and b together */
        lane[i] = LLVMConstInt(g->i32, at * part + i % part, 0);
    }
    return LLVMBuildShuffleVector(g->b, a, b, LLVMConstVector(lane, n), "");
}

void df_square_transpose(df_gen *g, LLVMValueRef v[DF_SQUARE], uint32_t size)
{
    const uint32_t n = df_square_side(g, size), part = PART / size, n_parts = n / part;
    LLVMValueRef to[DF_SQUARE];
    for (uint32_t step = 1; step < part; step *= 2) {
        for (uint32_t group = 0; group < n; group += part)
            for (uint32_t k = 0; k < part; k++) {
                LLVMValueRef a = v[group + k / 2], b = v[group + k / 2 + part / 2];
                to[group + k] = interleave(g, a, b, n, part, k % 2);
            }
        for (uint32_t k = 0; k < n; k++) v[k] = to[k];
    }
    /* Now part p of v[q part + c] has rows q part and following of column p part + c. */
    for (uint32_t step = 1; step < n_parts; step *= 2) {
        for (uint32_t q = 0; q < n_parts; q++)
            for (uint32_t c = 0; c < part; c++) {
                const uint32_t pair = q % (n_parts / 2), odd = q / (n_parts / 2);
                LLVMValueRef a = v[2 * pair * part + c], b = v[(2 * pair + 1) * part + c];
                to[q * part + c] = join_parts(g, a, b, n, part, odd);
            }
        for (uint32_t k = 0; k < n; k++) v[k] = to[k];
    }
}

/* ---- which kernels ---- */

static uint32_t access_bytes(const df_gen *g, uint32_t access)
{
    return df_bytes_of((deft_dtype)g->k->access[access].dtype);
}

/* Whether the body may have instruction i: crossed loads, and loads and stores along the lanes. */
static bool square_takes(const df_gen *g, uint32_t i)
{
    const df_ins *ins = &g->k->ins[i];
    if (ins->op == DF_K_load_at || ins->op == DF_K_load_if || ins->op == DF_K_check) return false;
    if (ins->op != DF_K_load && ins->op != DF_K_store) return true;
    return df_gen_lane_step(g, (uint32_t)ins->imm) == DF_STEP_UNIT;
}

bool df_squares_pay(const df_gen *g)
{
    uint32_t n_crossed = 0, n_ins = 0;
    if (g->t->vector_bytes != LINE || g->w > DF_SQUARE || g->n_questions > 0) return false;
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        if (!g->acc[a].has_tile) continue;
        if (g->k->access[a].kind == DF_ACCESS_STORE || access_bytes(g, a) * g->w != LINE)
            return false;
        n_crossed++;
    }
    for (uint32_t i = 0; i < g->k->n_ins; i++) {
        if (!df_gen_is_here(g, i, PLACE_BODY)) continue;
        if (!square_takes(g, i)) return false;
        n_ins++;
    }
    return n_crossed > 0 && n_crossed <= MOST_CROSSED && n_ins <= SHORT_BODY;
}

/* Whether the bits of `v` below `size`, a power of two, are all 0 (i1). */
static LLVMValueRef bits_are_zero(df_gen *g, LLVMValueRef v, uint32_t size)
{
    v = LLVMBuildAnd(g->b, v, df_gen_i64(g, (int64_t)size - 1), "");
    return LLVMBuildICmp(g->b, LLVMIntEQ, v, df_gen_i64(g, 0), "");
}

/* Whether all rows of results that may stream begin at a vector of whole lines in memory. If the
 * first of such results does, the others do (runtime/exec/exec_stream.c). */
static LLVMValueRef rows_are_aligned(df_gen *g, int across)
{
    LLVMValueRef bits = NULL;
    uint32_t vector = 0;
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        if (!df_access_may_stream(g->k, a)) continue;
        const uint32_t size = access_bytes(g, a);
        if (size * g->w < LINE) return LLVMConstInt(g->i1, 0, 0);
        if (bits) continue;
        vector = size * g->w;
        LLVMValueRef lane = LLVMBuildMul(g->b, g->i0, df_gen_i64(g, size), "");
        bits = LLVMBuildPtrToInt(g->b, df_gen_offset(g, g->acc[a].row, lane), g->i64, "");
        bits = LLVMBuildOr(g->b, bits, df_gen_stride(g, a, across), "");
    }
    return bits_are_zero(g, bits, vector);
}

/* Whether the rows of all crossed operands lie within NEAR. */
static LLVMValueRef operands_are_near(df_gen *g)
{
    LLVMValueRef is = LLVMConstInt(g->i1, 1, 0), n = LLVMBuildSub(g->b, g->i1_, g->i0, "");
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        if (!g->acc[a].has_tile) continue;
        LLVMValueRef bytes = LLVMBuildMul(g->b, n, df_gen_stride(g, a, g->vec_axis), "");
        LLVMValueRef most = df_gen_i64(g, NEAR);
        LLVMValueRef fits = LLVMBuildICmp(g->b, LLVMIntULE, bytes, most, "");
        is = LLVMBuildAnd(g->b, is, fits, "");
    }
    return is;
}

/* Whether the body also reads memory along the rows. */
static bool reads_beside(const df_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].op == DF_K_load && df_gen_is_here(g, i, PLACE_BODY) &&
            !g->acc[g->k->ins[i].imm].has_tile)
            return true;
    return false;
}

df_squares df_squares_fit(df_gen *g, int across)
{
    LLVMValueRef is_apart = LLVMConstInt(g->i1, 1, 0); /* lanes do not share sets */
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        if (!g->acc[a].has_tile) continue;
        LLVMValueRef shares = bits_are_zero(g, df_gen_stride(g, a, g->vec_axis), SETS);
        is_apart = LLVMBuildAnd(g->b, is_apart, LLVMBuildNot(g->b, shares, ""), "");
    }
    if (g->t->is_intel_server) {
        LLVMValueRef fit = LLVMBuildAnd(g->b, is_apart, operands_are_near(g), "");
        if (g->streams) fit = LLVMBuildAnd(g->b, fit, LLVMBuildNot(g->b, g->streams, ""), "");
        return (df_squares){ .fit = fit };
    }
    df_squares s = { .fit = is_apart };
    if (!g->streams) return s;
    s.around = LLVMBuildAnd(g->b, g->streams, rows_are_aligned(g, across), "");
    if (reads_beside(g)) {
        s.fit = LLVMBuildOr(g->b, is_apart, s.around, "");
    } else {
        LLVMValueRef through = LLVMBuildNot(g->b, g->streams, "");
        s.fit = LLVMBuildAnd(g->b, is_apart, LLVMBuildOr(g->b, through, s.around, ""), "");
    }
    return s;
}

/* ---- strips ---- */

/* Addresses of all accesses in the rows of a strip, and the strides of crossed ones. */
typedef struct strip {
    LLVMValueRef *at[DF_SQUARE], *pitch;
} strip;

/* Strides are loaded here, because the code cannot know that stores leave them as they are. */
static strip strip_begin(df_gen *g, int across, LLVMValueRef row)
{
    strip s = { .pitch = df_gen_values(g, g->k->n_access) };
    for (uint32_t k = 0; k < g->w; k++) {
        s.at[k] = df_gen_values(g, g->k->n_access);
        df_nest_at(g, across, LLVMBuildAdd(g->b, row, df_gen_i64(g, k), ""));
        for (uint32_t a = 0; a < g->k->n_access; a++) s.at[k][a] = g->acc[a].at;
    }
    for (uint32_t a = 0; a < g->k->n_access; a++)
        if (g->acc[a].has_tile) s.pitch[a] = df_gen_stride(g, a, g->vec_axis);
    return s;
}

/* Loads the square of an access that begins at `lane`, and transposes it. */
static void square_load(df_gen *g, const strip *s, uint32_t access, LLVMValueRef lane,
                        LLVMValueRef v[DF_SQUARE])
{
    const uint32_t size = access_bytes(g, access);
    LLVMTypeRef type = LLVMVectorType(LLVMIntTypeInContext(g->ctx, 8 * size), g->w);
    LLVMTypeRef lanes = df_gen_lanes(df_gen_mem_type(g, g->k->access[access].dtype), g->w);
    LLVMValueRef p = LLVMBuildMul(g->b, lane, s->pitch[access], "");
    p = df_gen_offset(g, s->at[0][access], p);
    for (uint32_t k = 0; k < g->w; k++) {
        if (k > 0) p = df_gen_offset(g, p, s->pitch[access]);
        v[k] = LLVMBuildLoad2(g->b, type, p, "");
        LLVMSetAlignment(v[k], size);
    }
    df_square_transpose(g, v, size);
    for (uint32_t k = 0; k < g->w; k++) v[k] = LLVMBuildBitCast(g->b, v[k], lanes, "");
}

static void one_square(df_gen *g, const strip *s, LLVMValueRef lane)
{
    LLVMValueRef v[MOST_CROSSED][DF_SQUARE];
    uint32_t n = 0;
    for (uint32_t a = 0; a < g->k->n_access; a++)
        if (g->acc[a].has_tile) square_load(g, s, a, lane, v[n++]);
    for (uint32_t k = 0; k < g->w; k++) {
        n = 0;
        for (uint32_t a = 0; a < g->k->n_access; a++) {
            g->acc[a].at = s->at[k][a];
            if (g->acc[a].has_tile) g->acc[a].turned = v[n++][k];
        }
        df_gen_place(g, PLACE_PRE);
        df_lanes_body(g, lane, NULL, 1);
    }
}

static void all_squares(df_gen *g, const strip *s, LLVMValueRef to, bool is_streaming)
{
    df_loop l;
    g->is_streaming = is_streaming;
    df_loop_begin(g, &l, g->i0, to, df_gen_i64(g, g->w), 0);
    one_square(g, s, l.i);
    df_loop_end(g, &l);
    g->is_streaming = false;
}

void df_squares_strip(df_gen *g, int across, LLVMValueRef row, LLVMValueRef to, LLVMValueRef around)
{
    const strip s = strip_begin(g, across, row);
    df_if streams, through;
    if (around) {
        df_if_begin(g, &streams, around);
        all_squares(g, &s, to, true);
        df_if_end(g, &streams);
        df_if_begin(g, &through, LLVMBuildNot(g->b, around, ""));
    }
    all_squares(g, &s, to, false);
    if (around) df_if_end(g, &through);
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        g->acc[a].at = g->acc[a].row;
        g->acc[a].turned = NULL;
    }
}
