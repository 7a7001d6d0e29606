/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks of a COL kernel: the arrays of vectors, the loop over groups and the stack of results.
 */
#include "jit_llvm/rows/col.h"

LLVMTypeRef df_col_vector(const df_gen *g, const df_gen_red *r)
{
    return df_gen_lanes(df_gen_mem_type(g, (deft_dtype)r->dtype), g->w);
}

LLVMTypeRef df_col_index_vector(const df_gen *g)
{
    return df_gen_lanes(g->i64, g->w);
}

bool df_col_is_of_stage(const df_gen *g, const df_gen_red *r, uint32_t stage)
{
    return g->k->ins[r->ins].stage == stage;
}

/* ---- pairs in arrays of vectors ---- */

df_pair df_col_load(df_gen *g, const df_gen_red *r, LLVMValueRef v, LLVMValueRef idx,
                    LLVMValueRef at)
{
    LLVMTypeRef t = df_col_vector(g, r), ti = df_col_index_vector(g);
    df_pair p = { LLVMBuildLoad2(g->b, t, df_gen_at(g, t, v, at), ""), NULL };
    if (r->is_arg) p.i = LLVMBuildLoad2(g->b, ti, df_gen_at(g, ti, idx, at), "");
    return p;
}

void df_col_store(df_gen *g, const df_gen_red *r, LLVMValueRef v, LLVMValueRef idx, LLVMValueRef at,
                  df_pair p)
{
    LLVMBuildStore(g->b, p.v, df_gen_at(g, df_col_vector(g, r), v, at));
    if (r->is_arg) LLVMBuildStore(g->b, p.i, df_gen_at(g, df_col_index_vector(g), idx, at));
}

/* ---- groups ---- */

void df_col_groups(df_gen *g, df_chunk *c, df_col_fn fn)
{
    df_loop l;
    df_loop_begin(g, &l, c->skip ? c->skip : df_gen_i64(g, 0), g->pitch, df_gen_i64(g, 1), 0);
    LLVMValueRef lane0 = df_col_add(g, c->from, df_col_mul(g, l.i, df_gen_i64(g, g->w)));
    g->group = l.i;
    const bool is_all_whole = g->multiple % g->w == 0; /* w may be 1 */
    if (g->native_masks || is_all_whole) {
        df_gen_lanes_begin(g, lane0, is_all_whole ? NULL : c->end);
        fn(g, c);
    } else {
        LLVMValueRef past = df_col_add(g, lane0, df_gen_i64(g, g->w));
        LLVMValueRef is_whole = LLVMBuildICmp(g->b, LLVMIntSLE, past, c->end, "");
        df_if whole, part;
        df_if_begin(g, &whole, is_whole);
        df_gen_lanes_begin(g, lane0, NULL);
        fn(g, c);
        df_if_end(g, &whole);
        df_if_begin(g, &part, LLVMBuildNot(g->b, is_whole, ""));
        df_gen_lanes_begin(g, lane0, c->end);
        fn(g, c);
        df_if_end(g, &part);
    }
    df_loop_end(g, &l);
    g->epoch++; /* nothing of a group is valid outside */
    g->mask = NULL;
}

/* ---- the stack of results ---- */

LLVMValueRef df_col_entry(df_gen *g, const df_chunk *c, LLVMValueRef height)
{
    return df_col_mul(g, height, df_gen_i64(g, c->groups));
}

LLVMValueRef df_col_join_newest(df_gen *g, df_chunk *c, LLVMValueRef height, LLVMValueRef n)
{
    df_loop times;
    df_loop_begin(g, &times, df_gen_i64(g, 0), n, df_gen_i64(g, 1), 1);
    LLVMValueRef newer = df_loop_carry(g, &times, height);
    LLVMValueRef older = LLVMBuildSub(g->b, newer, df_gen_i64(g, 1), "");
    LLVMValueRef newer_at = df_col_entry(g, c, newer), older_at = df_col_entry(g, c, older);
    df_loop l;
    df_col_count(g, &l, g->pitch);
    for (df_gen_red *r = g->reds; r < g->reds + g->n_reds; r++) {
        if (!df_col_is_of_stage(g, r, c->stage)) continue;
        LLVMValueRef at = df_col_add(g, older_at, l.i);
        const df_pair a = df_col_load(g, r, r->mem, r->mem_idx, at);
        const df_pair b = df_col_load(g, r, r->mem, r->mem_idx, df_col_add(g, newer_at, l.i));
        df_col_store(g, r, r->mem, r->mem_idx, at, df_reduce_join(g, r, a, b));
    }
    df_loop_end(g, &l);
    times.next[0] = older;
    df_loop_end(g, &times);
    return df_col_add(g, times.out[0], df_gen_i64(g, 1));
}
