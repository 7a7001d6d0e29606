/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of MAP whose results go around the caches. Which launches write in this way, the executor
 * decides (runtime/exec/exec_stream.c). The code here is the other half of a branch on
 * df_kargs.streams.
 *
 * An ordinary store first reads the cache line that it changes a part of, even when the code
 * writes all of the line. So a result that is larger than the caches costs a read beside its write,
 * and it displaces what is read. A non-temporal store collects the line in a buffer of the core,
 * and sends it to memory.
 *
 *   row       |..|xxxxxxxx|xxxxxxxx|xxxxxxxx|xxxxxxxx|xx......|
 *             from        first                      whole    to
 *             masked      non-temporal stores        masked
 *
 * Rows of blocks (tiles.c) end at such vectors, too, unless the row itself ends there. Otherwise
 * one block would write the first part of a line, and the next block the rest. That takes 5 times
 * as long.
 *
 * Non-temporal stores write aligned vectors. The elements before the first of them and after the
 * last are computed by one masked vector each, in one loop of two iterations. The body is not
 * written several times for neighbouring vectors, because such a loop waits for memory. Only where
 * two elements share a word (words.c), it is written twice. Results that alternate, as the parts of
 * complex numbers do (twos.c), are stored as two vectors. Their operands are prefetched: a b + a of
 * 16 M c64 takes 16.8 instead of 20.7 ms on an Intel server, and 25.6 through the caches.
 *
 * On x86 these stores are not ordered with later ones. So each call ends with a fence, and whoever
 * learns that the call has returned also finds its results. On AArch64 the instruction is a mere
 * hint, and no more was measured there, so no code for it is written.
 */
#include "jit_llvm/gen.h"

enum {
    LONG_BODY = 48, /* instructions. A longer body does not wait for memory */
};

/* The first store that may stream, but as one of two results that alternate; DF_NONE: there is
 * none. */
static uint32_t first_plain(const df_gen *g)
{
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        if (g->k->ins[i].op == DF_K_store && df_access_may_stream(g->k, (uint32_t)g->k->ins[i].imm))
            return (uint32_t)g->k->ins[i].imm;
    return DF_NONE;
}

/* Whether a tile is copied to memory behind the rows of a block, which then have to fill it. */
static bool stores_tiles(const df_gen *g)
{
    for (uint32_t a = 0; a < g->k->n_access; a++)
        if (g->acc[a].has_tile && g->k->access[a].kind == DF_ACCESS_STORE) return true;
    return false;
}

static bool body_waits(const df_gen *g)
{
    return g->level != DF_OPT_O0 && g->w > 1 && g->t->arch == DF_ARCH_X86_64 && !g->has_inside &&
           g->vec_axis >= 0 && df_gen_body_size(g) <= LONG_BODY;
}

void df_stream_begin(df_gen *g)
{
    if (!body_waits(g)) return;
    g->streams_twos = df_twos_may_stream(g);
    if (!g->streams_twos && (stores_tiles(g) || first_plain(g) == DF_NONE)) return;
    LLVMValueRef at = df_gen_at(g, g->i64, LLVMGetParam(g->fn, 0), df_gen_i64(g, DF_STREAMS_WORD));
    LLVMValueRef word = LLVMBuildLoad2(g->b, g->i64, at, "");
    g->streams = LLVMBuildICmp(g->b, LLVMIntNE, word, df_gen_i64(g, 0), "");
}

/* The 16-bit words v, as the result of an empty piece of assembly. LLVM knows of v that it was made
 * from halves, would store these, and has no non-temporal store of halves: it would write an
 * ordinary one. Of the result it knows nothing. v fills a register at least: shorter vectors came
 * out of the assembly with wrong elements. */
static LLVMValueRef from_nowhere(df_gen *g, LLVMValueRef v)
{
    static const char in_place[] = "=v,0";
    LLVMTypeRef type = LLVMTypeOf(v), fn = LLVMFunctionType(type, &type, 1, 0);
    LLVMValueRef none = LLVMGetInlineAsm(fn, "", 0, in_place, sizeof in_place - 1, 0, 0,
                                         LLVMInlineAsmDialectATT, 0);
    return LLVMBuildCall2(g->b, fn, none, &v, 1, "");
}

void df_stream_store(df_gen *g, LLVMValueRef v, LLVMValueRef p, uint32_t size)
{
    static const char kind[] = "nontemporal";
    LLVMValueRef one = LLVMConstInt(g->i32, 1, 0);
    const uint32_t bytes = g->w * size;
    const bool may_be_halves = g->t->has_f16_math && size == 2 && bytes >= 16;
    LLVMValueRef store = LLVMBuildStore(g->b, may_be_halves ? from_nowhere(g, v) : v, p);
    LLVMSetAlignment(store, bytes < g->t->vector_bytes ? bytes : g->t->vector_bytes);
    LLVMSetMetadata(store, LLVMGetMDKindIDInContext(g->ctx, kind, sizeof kind - 1),
                    LLVMMDNodeInContext(g->ctx, &one, 1));
}

/* How many copies of the body compute what is stored at once. */
static uint32_t stream_copies(const df_gen *g)
{
    return df_gen_may_have_words(g) ? 2 : 1;
}

/* The masked vectors at both ends of the row. */
static void write_ends(df_gen *g, LLVMValueRef from, LLVMValueRef first, LLVMValueRef whole,
                       LLVMValueRef to)
{
    df_loop l;
    df_if any;
    df_loop_begin(g, &l, df_gen_i64(g, 0), df_gen_i64(g, 2), df_gen_i64(g, 1), 0);
    LLVMValueRef is_front = LLVMBuildICmp(g->b, LLVMIntEQ, l.i, df_gen_i64(g, 0), "");
    LLVMValueRef begin = LLVMBuildSelect(g->b, is_front, from, whole, "");
    LLVMValueRef end = LLVMBuildSelect(g->b, is_front, first, to, "");
    df_if_begin(g, &any, LLVMBuildICmp(g->b, LLVMIntSLT, begin, end, ""));
    df_lanes_body(g, begin, end, stream_copies(g));
    df_if_end(g, &any);
    df_loop_end(g, &l);
}

/* The first lane from `from` on at which a vector of results may be stored, but `to` at most. A
 * lane of results that alternate has two elements, and fills its share of two vectors. */
static LLVMValueRef first_whole(df_gen *g, LLVMValueRef from, LLVMValueRef to)
{
    const uint32_t parts = g->streams_twos ? 2 : 1;
    const uint32_t lanes = g->w * stream_copies(g) / parts;
    const uint32_t access = parts == 2 ? df_kernel_streamed_twos(g->k) : first_plain(g);
    const uint32_t size = parts * df_bytes_of((deft_dtype)g->k->access[access].dtype);
    LLVMValueRef at = LLVMBuildPtrToInt(g->b, g->acc[access].at, g->i64, "");
    LLVMValueRef past = LLVMBuildUDiv(g->b, at, df_gen_i64(g, size), ""); /* in lanes */
    past = LLVMBuildAdd(g->b, past, from, "");
    LLVMValueRef rest =
        LLVMBuildAnd(g->b, LLVMBuildNeg(g->b, past, ""), df_gen_i64(g, lanes - 1), "");
    return df_gen_min(g, LLVMBuildAdd(g->b, from, rest, ""), to);
}

/* Writes the marked body for the elements [from, to) of a row. */
static void stream_row(df_gen *g, LLVMValueRef from, LLVMValueRef to)
{
    const uint32_t n_copies = stream_copies(g), lanes = g->w * n_copies;
    LLVMValueRef first = first_whole(g, from, to);
    LLVMValueRef n = LLVMBuildSub(g->b, to, first, "");
    n = LLVMBuildAnd(g->b, n, df_gen_i64(g, -(int64_t)lanes), "");
    LLVMValueRef whole = LLVMBuildAdd(g->b, first, n, "");
    df_loop l;
    df_loop_begin(g, &l, first, whole, df_gen_i64(g, lanes), 0);
    g->is_streaming = true;
    const bool fetches = df_fetch_streamed(g);
    df_lanes_body(g, l.i, NULL, n_copies);
    if (fetches) df_fetch_end(g);
    g->is_streaming = false;
    df_loop_end(g, &l);
    write_ends(g, from, first, whole, to);
}

/* Moves one end of a block to a whole vector, unless it is that of the row. */
static LLVMValueRef whole_end(df_gen *g, LLVMValueRef end, LLVMValueRef of_row)
{
    LLVMValueRef is_last = LLVMBuildICmp(g->b, LLVMIntEQ, end, of_row, "");
    return LLVMBuildSelect(g->b, is_last, end, first_whole(g, end, g->i1_), "");
}

/* The loop for a body in twos. */
static void loop_in_twos(df_gen *g, const df_lanes *l)
{
    if (!g->streams_twos) {
        df_lanes_loop(g, l);
        return;
    }
    df_if around, through;
    df_if_begin(g, &around, g->streams);
    stream_row(g, l->from, l->to);
    df_if_end(g, &around);
    df_if_begin(g, &through, LLVMBuildNot(g->b, g->streams, ""));
    df_lanes_loop(g, l);
    df_if_end(g, &through);
}

/* The loop over the lanes: in twos where df_twos_hold is true, and one by one where it is not. */
static void twos_or_ones(df_gen *g, const df_lanes *l)
{
    if (!df_twos_pay(g)) {
        df_lanes_loop(g, l);
        return;
    }
    df_if twos, other;
    LLVMValueRef is = df_twos_hold(g);
    df_if_begin(g, &twos, is);
    g->are_twos = true;
    loop_in_twos(g, l);
    g->are_twos = false;
    df_if_end(g, &twos);
    df_if_begin(g, &other, LLVMBuildNot(g->b, is, ""));
    df_lanes_loop(g, l);
    df_if_end(g, &other);
}

/* The same, with a loop of its own for results in turn. */
static void turns_or_others(df_gen *g, const df_lanes *l)
{
    if (!df_turns_pay(g)) {
        twos_or_ones(g, l);
        return;
    }
    df_if turns, other;
    LLVMValueRef is = df_turns_hold(g);
    df_if_begin(g, &turns, is);
    g->are_turns = true;
    df_lanes_loop(g, l);
    g->are_turns = false;
    df_if_end(g, &turns);
    df_if_begin(g, &other, LLVMBuildNot(g->b, is, ""));
    twos_or_ones(g, l);
    df_if_end(g, &other);
}

void df_stream_lanes(df_gen *g, const df_lanes *l, bool is_block)
{
    if (!g->streams || g->streams_twos) {
        turns_or_others(g, l);
        return;
    }
    df_if around, through;
    df_if_begin(g, &around, g->streams);
    if (is_block)
        stream_row(g, whole_end(g, l->from, g->i0), whole_end(g, l->to, g->i1_));
    else
        stream_row(g, l->from, l->to);
    df_if_end(g, &around);
    df_if_begin(g, &through, LLVMBuildNot(g->b, g->streams, ""));
    turns_or_others(g, l);
    df_if_end(g, &through);
}

void df_stream_end(df_gen *g)
{
    if (!g->streams) return;
    df_if fence;
    df_if_begin(g, &fence, g->streams);
    df_gen_intrinsic(g, "llvm.x86.sse.sfence", NULL, 0, NULL, 0);
    df_if_end(g, &fence);
}
