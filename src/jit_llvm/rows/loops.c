/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over the elements of a row, for MAP and ROW. There are three forms:
 *
 * - A main loop without masks, and one masked tail. This is the usual form, and the only one where
 *   masks are not instructions.
 * - A main loop of several vectors at once, for bodies that analyse.c gives several copies. If
 *   masks are instructions, a masked loop of single vectors does the rest.
 * - A single masked loop, for long bodies and at codegen level O0, where compile time matters most.
 *   Measured in L1 with one copy, a body of 5 instructions is 50 % slower than with a tail. A body
 *   of 50 instructions is 12 % slower, and compiles in 2.4 instead of 3.0 ms. From L2 on there is
 *   no difference.
 */
#include "jit_llvm/gen.h"

enum {
    STRAIGHT_BODY = 128, /* most instructions, over all vectors, that are written without a loop */
    IN_CACHES = 256 * 1024, /* arrays of this many bytes are in the second cache, if in any */
};

/* ---- loops over lanes ---- */

/* Whether all arrays are known to be as small as IN_CACHES. */
static bool fits_caches(const df_gen *g)
{
    int64_t n, bytes = 0;
    for (uint32_t x = 0; x < g->k->n_axes; x++)
        if (!df_gen_known(g->extent[x], &n) || n > IN_CACHES) return false;
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        int64_t size = df_bytes_of((deft_dtype)g->k->access[a].dtype);
        for (uint32_t x = 0; x < g->k->n_axes && size <= IN_CACHES; x++)
            if (df_gen_known(g->extent[x], &n) && g->k->access[a].step[x] != DF_STEP_ZERO)
                size *= n;
        bytes += size;
    }
    return bytes <= IN_CACHES;
}

/* Whether the copies of the body are written one after the other, not instruction by instruction.
 * That is so for a short body with several results. The update of AdamW reads four arrays and
 * writes three of them in place. Written in this way it takes 1.03 instead of 1.16 ns per element
 * when the arrays are in memory, and the same time when they are in caches. With estimates, the
 * chains of several copies side by side are faster in caches: 0.94 instead of 0.99 us for the
 * update of Adam on 4096 elements. */
static bool by_vector(const df_gen *g)
{
    uint32_t n_stores = 0;
    if (g->has_bare && fits_caches(g)) return false;
    for (uint32_t i = 0; i < g->k->n_ins; i++)
        n_stores += g->k->ins[i].op == DF_K_store && df_gen_is_here(g, i, PLACE_BODY);
    return g->k->mode == DF_MODE_MAP && n_stores > 1 && df_gen_goes_by_vector(g, g->n_copies);
}

/* Whether the copies that have begun are an even number of whole vectors. */
static bool are_whole_pairs(const df_gen *g)
{
    for (uint32_t c = 0; c < g->n_copies; c++)
        if (g->masks[c]) return false;
    return g->n_copies % 2 == 0;
}

void df_lanes_body(df_gen *g, LLVMValueRef lane0, LLVMValueRef end, uint32_t n_copies)
{
    df_gen_copies_begin(g, lane0, end, n_copies);
    g->has_words = are_whole_pairs(g) && df_gen_may_have_words(g);
    const uint32_t n = !by_vector(g) ? g->n_copies : g->has_words ? 2 : 1;
    for (uint32_t c = 0; c < g->n_copies; c += n) df_gen_place_copies(g, PLACE_BODY, c, c + n);
    g->has_words = false;
}

/* Writes for (i = from; i < to; i += w * n) around n copies of the body. Lanes from `end` on are
 * masked off; NULL: all vectors are whole. */
static void body_loop(df_gen *g, LLVMValueRef from, LLVMValueRef to, LLVMValueRef end, uint32_t n)
{
    df_loop l;
    df_loop_begin(g, &l, from, to, df_gen_i64(g, g->w * n), 0);
    const bool fetches = n > 1 && df_fetch_map(g);
    df_lanes_body(g, l.i, end, n);
    if (fetches) df_fetch_end(g);
    df_loop_end(g, &l);
}

/* Writes the body without a loop if the number of vectors is known and the code is short. Else
 * returns false. */
static bool straight(df_gen *g, LLVMValueRef from, LLVMValueRef to, uint32_t n)
{
    int64_t a, b;
    if (!df_gen_known(from, &a) || !df_gen_known(to, &b)) return false;
    const int64_t n_vec = (b - a + g->w - 1) / g->w;
    if (g->w == 1 || n_vec * df_gen_body_size(g) > STRAIGHT_BODY) return false;
    for (int64_t v = 0; v < n_vec; v += n) {
        const int64_t left = n_vec - v;
        df_lanes_body(g, df_gen_i64(g, a + v * g->w), to, left < n ? (uint32_t)left : n);
    }
    return true;
}

/* The number of copies, at most n, with which a masked loop computes the fewest vectors that have
 * no active lane. n, if the number of vectors is not known. */
static uint32_t fitting_copies(df_gen *g, LLVMValueRef from, LLVMValueRef to, uint32_t n)
{
    int64_t a, b;
    if (!df_gen_known(from, &a) || !df_gen_known(to, &b)) return n;
    const int64_t n_vec = (b - a + g->w - 1) / g->w;
    uint32_t best = n;
    for (uint32_t c = n; c > 1; c--)
        if ((n_vec + c - 1) / c * c < (n_vec + best - 1) / best * best) best = c;
    return best;
}

df_lanes df_lanes_cut(df_gen *g, LLVMValueRef from, LLVMValueRef to)
{
    df_lanes l = { .from = from, .to = to, .several = from, .n = df_gen_copies(g) };
    l.one_loop = df_gen_one_loop(g);
    if (l.one_loop) {
        l.n = fitting_copies(g, from, to, l.n);
        return l;
    }
    if (l.n > 1) l.several = df_gen_whole(g, from, to, g->w * l.n);
    if (g->native_masks && l.n > 1) return l;
    l.whole = g->w == 1 ? to : df_gen_whole(g, l.several, to, g->w);
    if (g->w == 1 || l.whole == to) return l;
    l.has_tail = LLVMBuildICmp(g->b, LLVMIntSLT, l.whole, to, "");
    df_gen_lanes_begin(g, l.whole, to);
    l.mask = g->mask;
    l.n_active = g->n_active;
    return l;
}

/* Whether [from, to) is known to be divided by n vectors without rest. */
static bool is_whole(const df_gen *g, const df_lanes *l, uint32_t n)
{
    int64_t a, b;
    if (g->multiple % (g->w * n) == 0) return true;
    return df_gen_known(l->from, &a) && df_gen_known(l->to, &b) && (b - a) % (g->w * n) == 0;
}

void df_lanes_loop(df_gen *g, const df_lanes *l)
{
    if (df_gen_body_size(g) == 0 || straight(g, l->from, l->to, l->n)) return;
    if (l->one_loop) {
        body_loop(g, l->from, l->to, is_whole(g, l, l->n) ? NULL : l->to, l->n);
        return;
    }
    if (l->n > 1) body_loop(g, l->from, l->several, NULL, l->n);
    if (l->several == l->to) return;
    if (!l->whole) {
        body_loop(g, l->several, l->to, is_whole(g, l, 1) ? NULL : l->to, 1);
        return;
    }
    body_loop(g, l->several, l->whole, NULL, 1);
    if (!l->has_tail) return;
    df_if tail;
    df_if_begin(g, &tail, l->has_tail);
    df_gen_copies_begin(g, l->whole, NULL, 1);
    df_gen_mask(g, l->mask, l->n_active);
    df_gen_place(g, PLACE_BODY);
    df_if_end(g, &tail);
}

/* ---- runs ----
 *
 * A ROW kernel with several reduced axes: a run is a pass along the last of them. Run number o of
 * length L has the elements [o L, o L + L) of the row. A block may begin and end inside a run. Only
 * its first position is divided into indices; the nest computes the others by addition.
 */

/* Sets the addresses of scratch accesses to those of element `start` of the row. */
static void scratch_at(df_gen *g, LLVMValueRef start)
{
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        const df_access *x = &g->k->access[a];
        if (x->kind != DF_ACCESS_SCRATCH) continue;
        LLVMTypeRef t = df_gen_mem_type(g, (deft_dtype)x->dtype);
        g->acc[a].at = df_gen_at(g, t, g->acc[a].row, start);
    }
}

void df_gen_elements(df_gen *g, LLVMValueRef from, LLVMValueRef to, bool gathers)
{
    df_assert(g->has_runs);
    LLVMValueRef length = g->extent[g->vec_axis], one = df_gen_i64(g, 1), zero = df_gen_i64(g, 0);
    LLVMValueRef last = LLVMBuildUDiv(g->b, LLVMBuildSub(g->b, to, one, ""), length, "");
    df_nest runs = { .axes = g->red, .n = g->n_red - 1 };
    runs.from = LLVMBuildUDiv(g->b, from, length, "");
    runs.to = LLVMBuildAdd(g->b, last, one, "");
    df_nest_guard(g, &runs);
    df_nest_begin(g, &runs);
    LLVMValueRef start = LLVMBuildMul(g->b, runs.o, length, "");
    LLVMValueRef skip = LLVMBuildSub(g->b, from, start, "");
    LLVMValueRef is_inside = LLVMBuildICmp(g->b, LLVMIntSGT, skip, zero, "");
    LLVMValueRef i0 = LLVMBuildSelect(g->b, is_inside, skip, zero, "");
    LLVMValueRef i1 = df_gen_min(g, length, LLVMBuildSub(g->b, to, start, ""));
    scratch_at(g, start);
    if (gathers) g->gather = LLVMBuildNeg(g->b, skip, "");
    df_gen_place(g, PLACE_RED);
    const df_lanes l = df_lanes_cut(g, i0, i1);
    df_lanes_loop(g, &l);
    g->gather = NULL;
    df_nest_end(g, &runs);
}
