/* SPDX-License-Identifier: Apache-2.0
 *
 * MAP kernels with transposed operands. Lanes run along one axis, but some accesses move by one
 * element along another. A *crossed* access is such a one: it moves by one element along the last
 * OUTER axis, and by its stride along the lanes. Vector by vector it would touch one cache line for
 * each lane, and use one element of the line.
 *
 * So the rows are divided into blocks along both axes. A block of each crossed access has a *tile*,
 * a part of the thread's workspace (df_kargs.work) in which the lanes lie side by side:
 *
 *   for each block:
 *       transpose the block of each crossed load into its tile
 *       for each row of the block: the loop over lanes, which finds crossed accesses in tiles
 *       transpose the tile of each crossed store into memory
 *
 * A transpose reads and writes whole vectors, and exchanges rows and columns of small squares in
 * registers (squares.c). If an extent of a block is no multiple of the side of a square, the last
 * square overlaps the one before. Blocks thinner than a square are copied element by element.
 *
 * On an Intel server the rows behind those of a square are prefetched while it is exchanged. A
 * transposed copy and x' + y of 1600 to 2300 rows and columns of f32 then take a twentieth less.
 *
 * Where squares.c can compute a strip of rows without a tile, blocks have as many rows as a square.
 * Tiles then serve what is left at the ends of rows, and strips that are not whole.
 *
 * All loads of a block precede its stores. That is safe for the reason that rows may be divided
 * between threads anywhere: no row reads what another row of the launch writes.
 */
#include "jit_llvm/gen.h"

enum {
    CHUNK = 256,     /* bytes of memory side by side that a block of a load has */
    MOST_SIDE = 128, /* most elements of a block along either axis */
    LEAST_SIDE = 16, /* least elements; also what the last block may have more than others */
    LINE = 64,       /* bytes; tiles begin at a cache line */
};

/* ---- which accesses ---- */

static bool is_crossed(const df_gen *g, uint32_t access)
{
    const df_access *a = &g->k->access[access];
    const int across = g->outer[g->n_outer - 1];
    return (a->kind == DF_ACCESS_LOAD || a->kind == DF_ACCESS_STORE) &&
           a->step[across] == DF_STEP_UNIT && a->step[g->vec_axis] == DF_STEP_ANY;
}

static uint32_t access_size(const df_gen *g, uint32_t access)
{
    return df_bytes_of((deft_dtype)g->k->access[access].dtype);
}

/* The lanes of a row of a tile. Rows that go around the caches may need one vector more than the
 * block has (stream.c). */
static uint32_t tile_pitch(const df_gen *g)
{
    return g->tile_lanes + LEAST_SIDE + g->w;
}

static uint64_t tile_bytes(const df_gen *g, uint32_t access)
{
    const uint64_t bytes =
        (uint64_t)(g->tile_rows + LEAST_SIDE) * tile_pitch(g) * access_size(g, access);
    return (bytes + LINE - 1) & ~(uint64_t)(LINE - 1);
}

static uint64_t all_tiles_bytes(const df_gen *g)
{
    uint64_t sum = 0;
    for (uint32_t a = 0; a < g->k->n_access; a++)
        if (g->acc[a].has_tile) sum += tile_bytes(g, a);
    return sum;
}

void df_tiles_find(df_gen *g)
{
    g->tile_rows = g->tile_lanes = 0;
    for (uint32_t a = 0; a < g->k->n_access; a++) g->acc[a].has_tile = false;
    if (g->k->mode != DF_MODE_MAP || g->n_outer == 0 || g->vec_axis < 0) return;
    if (g->level == DF_OPT_O0) return; /* squares are long code */
    uint32_t widest = 0;
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        g->acc[a].has_tile = is_crossed(g, a);
        if (g->acc[a].has_tile && access_size(g, a) > widest) widest = access_size(g, a);
    }
    if (widest == 0) return;
    g->tile_rows = CHUNK / widest < MOST_SIDE ? CHUNK / widest : MOST_SIDE;
    g->tile_lanes = 2 * g->tile_rows < MOST_SIDE ? 2 * g->tile_rows : MOST_SIDE;
    while (all_tiles_bytes(g) > DF_TILES_BYTES && g->tile_lanes > LEAST_SIDE) {
        uint32_t *side = g->tile_lanes >= g->tile_rows ? &g->tile_lanes : &g->tile_rows;
        *side /= 2;
    }
    for (uint32_t a = g->k->n_access; a-- > 0 && all_tiles_bytes(g) > DF_TILES_BYTES;)
        g->acc[a].has_tile = false;
}

/* ---- transposes ---- */

/* An array of which rows and columns are exchanged. Row r begins at `at` + r * pitch. */
typedef struct matrix {
    LLVMValueRef at, pitch;
} matrix;

static LLVMValueRef element_of(df_gen *g, matrix m, LLVMValueRef row, LLVMValueRef column,
                               uint32_t size)
{
    LLVMValueRef bytes = LLVMBuildMul(g->b, column, df_gen_i64(g, size), "");
    bytes = LLVMBuildAdd(g->b, LLVMBuildMul(g->b, row, m.pitch, ""), bytes, "");
    return df_gen_offset(g, m.at, bytes);
}

/* Prefetches what is one square behind p. */
static void fetch_behind(df_gen *g, LLVMValueRef p, LLVMValueRef ahead)
{
    LLVMValueRef args[4] = { df_gen_offset(g, p, ahead), LLVMConstInt(g->i32, 0, 0),
                             LLVMConstInt(g->i32, 3, 0),   /* kept in L1 */
                             LLVMConstInt(g->i32, 1, 0) }; /* data */
    df_gen_intrinsic(g, "llvm.prefetch", &g->ptr, 1, args, 4);
}

/* fetches: the next square behind the rows of this one is prefetched. */
static void copy_square(df_gen *g, matrix to, matrix from, LLVMValueRef row, LLVMValueRef column,
                        uint32_t size, bool fetches)
{
    const uint32_t n = df_square_side(g, size);
    LLVMTypeRef type = LLVMVectorType(LLVMIntTypeInContext(g->ctx, 8 * size), n);
    LLVMValueRef v[DF_SQUARE], p = element_of(g, from, row, column, size);
    LLVMValueRef ahead = LLVMBuildMul(g->b, from.pitch, df_gen_i64(g, n), "");
    for (uint32_t k = 0; k < n; k++) {
        if (k > 0) p = df_gen_offset(g, p, from.pitch);
        v[k] = LLVMBuildLoad2(g->b, type, p, "");
        LLVMSetAlignment(v[k], size);
        if (fetches) fetch_behind(g, p, ahead);
    }
    df_square_transpose(g, v, size);
    p = element_of(g, to, column, row, size);
    for (uint32_t k = 0; k < n; k++) {
        if (k > 0) p = df_gen_offset(g, p, to.pitch);
        LLVMSetAlignment(LLVMBuildStore(g->b, v[k], p), size);
    }
}

static void copy_squares(df_gen *g, matrix to, matrix from, LLVMValueRef n_rows,
                         LLVMValueRef n_columns, uint32_t size, bool fetches)
{
    LLVMValueRef zero = df_gen_i64(g, 0), n = df_gen_i64(g, df_square_side(g, size));
    LLVMValueRef last_row = LLVMBuildSub(g->b, n_rows, n, "");
    LLVMValueRef last_column = LLVMBuildSub(g->b, n_columns, n, "");
    df_loop rows, columns;
    df_loop_begin(g, &rows, zero, n_rows, n, 0);
    LLVMValueRef row = df_gen_min(g, rows.i, last_row);
    df_loop_begin(g, &columns, zero, n_columns, n, 0);
    copy_square(g, to, from, row, df_gen_min(g, columns.i, last_column), size, fetches);
    df_loop_end(g, &columns);
    df_loop_end(g, &rows);
}

static void copy_elements(df_gen *g, matrix to, matrix from, LLVMValueRef n_rows,
                          LLVMValueRef n_columns, uint32_t size)
{
    LLVMTypeRef type = LLVMIntTypeInContext(g->ctx, 8 * size);
    LLVMValueRef zero = df_gen_i64(g, 0), one = df_gen_i64(g, 1);
    df_loop rows, columns;
    df_loop_begin(g, &rows, zero, n_rows, one, 0);
    df_loop_begin(g, &columns, zero, n_columns, one, 0);
    LLVMValueRef x = LLVMBuildLoad2(g->b, type, element_of(g, from, rows.i, columns.i, size), "");
    LLVMSetAlignment(x, size);
    LLVMValueRef store = LLVMBuildStore(g->b, x, element_of(g, to, columns.i, rows.i, size));
    LLVMSetAlignment(store, size);
    df_loop_end(g, &columns);
    df_loop_end(g, &rows);
}

/* Writes the function df_transpose(ptr to, i64 to_pitch, ptr from, i64 from_pitch, i64 n_rows,
 * i64 n_columns) for elements of `size` bytes. Rows and columns are those of `from`. fetches: the
 * rows that follow those of a square are prefetched. */
static LLVMValueRef make_transpose(df_gen *g, uint32_t size, bool fetches)
{
    LLVMTypeRef params[6] = { g->ptr, g->i64, g->ptr, g->i64, g->i64, g->i64 };
    LLVMTypeRef type = LLVMFunctionType(g->nothing, params, 6, 0);
    LLVMValueRef fn = LLVMAddFunction(g->m, "df_transpose", type);
    LLVMSetLinkage(fn, LLVMInternalLinkage);
    df_llvm_set_attributes(g->ctx, g->t, fn);

    LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
    LLVMValueRef outer_fn = g->fn, p[6];
    g->fn = fn;
    LLVMGetParams(fn, p);
    LLVMPositionBuilderAtEnd(g->b, LLVMAppendBasicBlockInContext(g->ctx, fn, "entry"));
    const matrix to = { p[0], p[1] }, from = { p[2], p[3] };
    LLVMValueRef n = df_gen_i64(g, df_square_side(g, size));
    LLVMValueRef is_high = LLVMBuildICmp(g->b, LLVMIntSGE, p[4], n, "");
    LLVMValueRef is_wide = LLVMBuildICmp(g->b, LLVMIntSGE, p[5], n, "");
    LLVMValueRef has_squares = LLVMBuildAnd(g->b, is_high, is_wide, "");
    df_if squares, thin;
    df_if_begin(g, &squares, has_squares);
    copy_squares(g, to, from, p[4], p[5], size, fetches);
    df_if_end(g, &squares);
    df_if_begin(g, &thin, LLVMBuildNot(g->b, has_squares, ""));
    copy_elements(g, to, from, p[4], p[5], size);
    df_if_end(g, &thin);
    LLVMBuildRetVoid(g->b);
    g->fn = outer_fn;
    LLVMPositionBuilderAtEnd(g->b, here);
    return fn;
}

/* is_load: `from` is in memory, and `to` is a tile. */
static void call_transpose(df_gen *g, matrix to, matrix from, LLVMValueRef n_rows,
                           LLVMValueRef n_columns, uint32_t size, bool is_load)
{
    const bool fetches = is_load && g->t->is_intel_server;
    LLVMValueRef *fn = &g->transpose_fn[fetches][size == 8 ? 3 : size / 2];
    if (!*fn) *fn = make_transpose(g, size, fetches);
    LLVMValueRef args[6] = { to.at, to.pitch, from.at, from.pitch, n_rows, n_columns };
    LLVMBuildCall2(g->b, LLVMGlobalGetValueType(*fn), *fn, args, 6, "");
}

/* ---- blocks ---- */

/* A loop over blocks of `by` elements of [from, to). A rest of less than LEAST_SIDE elements
 * belongs to the last block. */
typedef struct blocks {
    df_loop loop;
    LLVMValueRef begin, end, n; /* of the current block */
} blocks;

/* aligned: blocks begin at multiples of `by`, a power of two, so that threads whose ranges begin
 * elsewhere read whole cache lines. */
static void blocks_begin(df_gen *g, blocks *x, LLVMValueRef from, LLVMValueRef to, LLVMValueRef by,
                         bool aligned)
{
    LLVMValueRef first = from, rest = df_gen_i64(g, LEAST_SIDE);
    if (aligned) first = LLVMBuildAnd(g->b, from, LLVMBuildNeg(g->b, by, ""), "");
    LLVMValueRef past_first = LLVMBuildAdd(g->b, first, df_gen_i64(g, 1), "");
    LLVMValueRef stop = LLVMBuildSub(g->b, to, df_gen_i64(g, LEAST_SIDE - 1), "");
    LLVMValueRef is_one = LLVMBuildICmp(g->b, LLVMIntSLT, stop, past_first, "");
    stop = LLVMBuildSelect(g->b, is_one, past_first, stop, "");
    df_loop_begin(g, &x->loop, first, stop, by, 0);
    LLVMValueRef is_late = LLVMBuildICmp(g->b, LLVMIntSGT, x->loop.i, from, "");
    x->begin = LLVMBuildSelect(g->b, is_late, x->loop.i, from, "");
    LLVMValueRef end = LLVMBuildAdd(g->b, x->loop.i, by, "");
    LLVMValueRef left = LLVMBuildSub(g->b, to, end, "");
    LLVMValueRef is_last = LLVMBuildICmp(g->b, LLVMIntSLT, left, rest, "");
    x->end = LLVMBuildSelect(g->b, is_last, to, end, "");
    x->n = LLVMBuildSub(g->b, x->end, x->begin, "");
}

static matrix crossed_tile(df_gen *g, uint32_t access)
{
    const int64_t pitch = (int64_t)tile_pitch(g) * access_size(g, access);
    return (matrix){ g->acc[access].tile, df_gen_i64(g, pitch) };
}

/* The block of a crossed access in memory. Its rows are lanes. */
static matrix crossed_block(df_gen *g, uint32_t access, const blocks *rows, const blocks *lanes)
{
    const uint32_t size = access_size(g, access);
    matrix m = { g->acc[access].row, df_gen_stride(g, access, g->vec_axis) };
    m.at = element_of(g, m, lanes->begin, rows->begin, size);
    return m;
}

/* The lanes of a block that are loaded. */
static LLVMValueRef loaded_lanes(df_gen *g, const blocks *lanes)
{
    if (!g->streams) return lanes->n;
    LLVMValueRef more = LLVMBuildAdd(g->b, lanes->n, df_gen_i64(g, g->w), "");
    more = df_gen_min(g, more, LLVMBuildSub(g->b, g->i1_, lanes->begin, ""));
    return LLVMBuildSelect(g->b, g->streams, more, lanes->n, "");
}

/* Transposes the blocks of crossed loads into tiles, or the tiles of crossed stores into memory. */
static void move_tiles(df_gen *g, df_access_kind kind, const blocks *rows, const blocks *lanes)
{
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        if (!g->acc[a].has_tile || g->k->access[a].kind != kind) continue;
        const matrix tile = crossed_tile(g, a), block = crossed_block(g, a, rows, lanes);
        if (kind == DF_ACCESS_LOAD)
            call_transpose(g, tile, block, loaded_lanes(g, lanes), rows->n, access_size(g, a),
                           true);
        else
            call_transpose(g, block, tile, rows->n, lanes->n, access_size(g, a), false);
    }
}

/* Exchanges `at` of each crossed access with the address of the current row of its tile. Addresses
 * are those of lane 0 of the kernel's row, not of the block. A second call undoes the first. */
static void exchange_tile_rows(df_gen *g, LLVMValueRef *tile_row)
{
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        if (!g->acc[a].has_tile) continue;
        LLVMValueRef at = g->acc[a].at;
        g->acc[a].at = tile_row[a];
        tile_row[a] = at;
    }
}

static void find_tile_rows(df_gen *g, LLVMValueRef row, const blocks *rows, const blocks *lanes,
                           LLVMValueRef *tile_row)
{
    LLVMValueRef in_tile = LLVMBuildSub(g->b, row, rows->begin, "");
    LLVMValueRef before = LLVMBuildNeg(g->b, lanes->begin, "");
    for (uint32_t a = 0; a < g->k->n_access; a++)
        if (g->acc[a].has_tile)
            tile_row[a] = element_of(g, crossed_tile(g, a), in_tile, before, access_size(g, a));
}

static void one_block(df_gen *g, const int *across, const blocks *rows, const blocks *lanes)
{
    LLVMValueRef *tile_row = df_gen_values(g, g->k->n_access);
    move_tiles(g, DF_ACCESS_LOAD, rows, lanes);
    const df_lanes l = df_lanes_cut(g, lanes->begin, lanes->end);
    df_nest nest = { .axes = across, .n = 1, .from = rows->begin, .to = rows->end };
    df_nest_guard(g, &nest);
    df_nest_begin(g, &nest);
    find_tile_rows(g, nest.o, rows, lanes, tile_row);
    exchange_tile_rows(g, tile_row);
    df_gen_place(g, PLACE_PRE);
    df_stream_lanes(g, &l, true);
    exchange_tile_rows(g, tile_row); /* the end of a nest reads what its beginning has set */
    df_nest_end(g, &nest);
    move_tiles(g, DF_ACCESS_STORE, rows, lanes);
}

/* Writes the lanes from `from` on of the rows of a block. */
static void lane_blocks(df_gen *g, const int *across, const blocks *rows, LLVMValueRef from)
{
    blocks lanes;
    blocks_begin(g, &lanes, from, g->i1_, df_gen_i64(g, g->tile_lanes), false);
    one_block(g, across, rows, &lanes);
    df_loop_end(g, &lanes.loop);
}

/* Writes the rows of a block: in squares where they fit and the block is a strip, and the rest with
 * tiles. A rest beside squares that store through the caches does so, too. */
static void one_strip(df_gen *g, const int *across, const blocks *rows, const df_squares *s)
{
    LLVMValueRef streams = g->streams, whole = df_gen_whole(g, g->i0, g->i1_, g->w);
    LLVMValueRef is_strip = LLVMBuildICmp(g->b, LLVMIntEQ, rows->n, df_gen_i64(g, g->w), "");
    df_if squares, rest;
    is_strip = LLVMBuildAnd(g->b, s->fit, is_strip, "");
    df_if_begin(g, &squares, is_strip);
    df_squares_strip(g, *across, rows->begin, whole, s->around);
    df_if_end(g, &squares);
    LLVMValueRef from = LLVMBuildSelect(g->b, is_strip, whole, g->i0, "");
    if (s->around) g->streams = LLVMBuildSelect(g->b, is_strip, s->around, streams, "");
    df_if_begin(g, &rest, LLVMBuildICmp(g->b, LLVMIntSLT, from, g->i1_, ""));
    lane_blocks(g, across, rows, from);
    df_if_end(g, &rest);
    g->streams = streams;
}

/* Writes the rows [from, to) of one position on the other OUTER axes. */
static void row_blocks(df_gen *g, const int *across, LLVMValueRef from, LLVMValueRef to)
{
    LLVMValueRef side = df_gen_i64(g, g->tile_rows);
    const bool has_squares = df_squares_pay(g);
    df_squares s;
    if (has_squares) {
        s = df_squares_fit(g, *across);
        side = LLVMBuildSelect(g->b, s.fit, df_gen_i64(g, g->w), side, "");
    }
    blocks rows;
    blocks_begin(g, &rows, from, to, side, true);
    if (has_squares)
        one_strip(g, across, &rows, &s);
    else
        lane_blocks(g, across, &rows, g->i0);
    df_loop_end(g, &rows.loop);
}

void df_tiles_rows(df_gen *g)
{
    const int *across = &g->outer[g->n_outer - 1];
    LLVMValueRef extent = g->extent[*across], zero = df_gen_i64(g, 0), one = df_gen_i64(g, 1);
    uint64_t used = 0;
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        if (!g->acc[a].has_tile) continue;
        g->acc[a].tile = df_gen_offset(g, g->p_work, df_gen_i64(g, (int64_t)used));
        used += tile_bytes(g, a);
    }
    df_gen_mark(g, 0);
    g->prefetches = false;
    df_stream_begin(g);
    df_if any;
    df_if_begin(g, &any, LLVMBuildICmp(g->b, LLVMIntSLT, g->o0, g->o1, ""));
    LLVMValueRef last = LLVMBuildUDiv(g->b, LLVMBuildSub(g->b, g->o1, one, ""), extent, "");
    df_nest runs = { .axes = g->outer, .n = g->n_outer - 1, .is_outer = true };
    runs.from = LLVMBuildUDiv(g->b, g->o0, extent, "");
    runs.to = LLVMBuildAdd(g->b, last, one, "");
    df_nest_guard(g, &runs);
    df_nest_begin(g, &runs);
    LLVMValueRef start = LLVMBuildMul(g->b, runs.o, extent, "");
    LLVMValueRef skip = LLVMBuildSub(g->b, g->o0, start, "");
    LLVMValueRef is_inside = LLVMBuildICmp(g->b, LLVMIntSGT, skip, zero, "");
    LLVMValueRef from = LLVMBuildSelect(g->b, is_inside, skip, zero, "");
    LLVMValueRef to = df_gen_min(g, extent, LLVMBuildSub(g->b, g->o1, start, ""));
    row_blocks(g, across, from, to);
    df_nest_end(g, &runs);
    df_if_end(g, &any);
    df_stream_end(g);
}
