/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaves vectors in registers, for results in turn (rows/turns.c).
 *
 * An even number of vectors is interleaved in steps. First vector k is interleaved with the k-th of
 * the upper half. Then all lower halves of the results are interleaved, and all upper ones:
 *
 *   a b c d   ->   a0 c0 a1 c1   b0 d0 b1 d1   ->   a0 b0 c0 d0   a1 b1 c1 d1
 *                  a2 c2 a3 c3   b2 d2 b3 d3   ->   a2 b2 c2 d2   a3 b3 c3 d3
 *
 * Of an odd number, each result takes some lanes of each vector, one vector after the other. Eight
 * vectors take 24 instructions that take lanes of two vectors, and seven take 42.
 */
#include "jit_llvm/gen.h"

/* Vector `out` of a, b, c and so on in turn: its lane j is element out * w + j. */
static LLVMValueRef one_of_odd(df_gen *g, LLVMValueRef *v, uint32_t n, uint32_t out)
{
    LLVMValueRef lane[DF_LANES], to = v[0], any = LLVMGetUndef(g->i32);
    for (uint32_t k = 1; k < n; k++) {
        for (uint32_t j = 0; j < g->w; j++) {
            const uint32_t at = out * g->w + j, from = at % n;
            const uint32_t kept = k == 1 ? at / n : j; /* the lane of what is there already */
            const uint32_t i = from < k ? kept : g->w + at / n;
            lane[j] = from > k ? any : LLVMConstInt(g->i32, i, 0);
        }
        to = LLVMBuildShuffleVector(g->b, to, v[k], LLVMConstVector(lane, g->w), "");
    }
    return to;
}

/* The lanes of one half of a and of b in turn. */
static LLVMValueRef half_of_two(df_gen *g, LLVMValueRef a, LLVMValueRef b, uint32_t half)
{
    LLVMValueRef lane[DF_LANES];
    for (uint32_t j = 0; j < g->w; j++) {
        const uint32_t at = half * g->w + j;
        lane[j] = LLVMConstInt(g->i32, at / 2 + (at % 2 ? g->w : 0), 0);
    }
    return LLVMBuildShuffleVector(g->b, a, b, LLVMConstVector(lane, g->w), "");
}

void df_interleave(df_gen *g, LLVMValueRef *v, uint32_t n)
{
    LLVMValueRef to[DF_MOST_TURNS];
    df_assert(n <= DF_MOST_TURNS);
    if (n % 2 == 1) {
        for (uint32_t k = 0; k < n; k++) to[k] = one_of_odd(g, v, n, k);
        for (uint32_t k = 0; k < n; k++) v[k] = to[k];
        return;
    }
    for (uint32_t k = 0; k < n; k++)
        to[k] = half_of_two(g, v[k % (n / 2)], v[k % (n / 2) + n / 2], k / (n / 2));
    for (uint32_t k = 0; k < n; k++) v[k] = to[k];
    df_interleave(g, v, n / 2);
    df_interleave(g, v + n / 2, n / 2);
}
