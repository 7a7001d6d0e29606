/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of products: bf16 on machines that multiply pairs of bf16 and add both products
 * to an f32 (vdpbf16ps).
 *
 * Packed operands consist of pairs: elements 2p and 2p + 1 along k, in the upper and the lower half
 * of a word. So matmul.c divides such a product like one of f32 with half the k, whose elements are
 * pairs. A pair beyond the end of an odd k has +0 in its lower half.
 *
 * The instruction adds the product of the upper halves first, and rounds after each addition. As
 * products of two bf16 are exact in f32, a step equals two steps of the strict chain:
 *     acc = fma(a[2p], b[2p], acc), then acc = fma(a[2p + 1], b[2p + 1], acc).
 * No manual promises that for all processors, so df_bf16_is_chain tries it.
 *
 * The instruction differs in denormals only: it reads denormal operands as 0, and makes denormal
 * sums 0. None occurs when all elements other than 0 are large enough (bf16_exact.c). In fast mode,
 * denormals may be lost. That changes a sum by at most 2^-126 for each step, and by its product for
 * each denormal operand.
 */
#ifndef DF_RUNTIME_BF16_H
#define DF_RUNTIME_BF16_H

#include <string.h>

#include "runtime/device.h"
#include "runtime/matmul.h"
#include "runtime/pool.h"

/* Packs a panel of pairs: that of from[2 p * step + x * stride] and
 * from[(2 p + 1) * step + x * stride], for x < w, is pair x of step p. There are n elements along
 * k. The padding, w <= x < width, gets +0. width is a multiple of 8. */
typedef void (*df_bf16_pack_fn)(uint32_t *to, int64_t width, const uint16_t *from, int64_t step,
                                int64_t stride, int64_t n, int64_t w);

typedef struct df_bf16_code {
    /* The micro-kernel. Its k counts pairs. */
    df_gemm_kernel kernel;
    int64_t unit;  /* of the pairs of a slice of k: the last one is padded with +0 */
    int64_t slice; /* most pairs in a slice of k; 0: as for f32 */
    /* The instruction, which does two multiply-adds, takes as long as four of f32. Intel's
     * processors are like that. */
    bool is_slow;
    /* Pack panels of A and of B. Pair x of step p is to[p * width + x]. With tiles, a panel of A
     * has another order, which the micro-kernel knows. */
    df_bf16_pack_fn pack_a, pack;
    /* Called on each thread before and after it multiplies; NULL: not needed. */
    void (*begin)(void);
    void (*end)(void);
    /* Returns the smallest magnitude other than 0 among n contiguous bf16, as bits without a sign;
     * 0xffff: all of them are 0. */
    uint16_t (*least)(const uint16_t *from, int64_t n);
} df_bf16_code;

/* NULL: this machine has no such instruction. */
const df_bf16_code *df_bf16_pick(void);

/* The code for df_matmul_job.is_tiled. Only after df_matmul_enable_tiles was true. */
const df_bf16_code *df_bf16_tiles(void);

DF_INLINE const df_bf16_code *df_bf16_code_of(const df_matmul_job *j)
{
    return j->is_tiled ? df_bf16_tiles() : df_bf16_pick();
}

/* Returns the pairs that are packed for k elements along k. */
DF_INLINE int64_t df_bf16_pairs(const df_bf16_code *code, int64_t k)
{
    return (k + 2 * code->unit - 1) / (2 * code->unit) * code->unit;
}

/* Packs a panel of B, of df_bf16_pairs(code, n) or n_pairs steps. */
DF_INLINE void df_bf16_pack_b(const df_bf16_code *code, uint32_t *to, int64_t width,
                              const uint16_t *from, int64_t step, int64_t stride, int64_t n,
                              int64_t n_pairs, int64_t w)
{
    const int64_t used = (n + 1) / 2;
    if (n > 0) code->pack(to, width, from, step, stride, n, w);
    if (n_pairs > used)
        memset(to + used * width, 0, (size_t)((n_pairs - used) * width) * sizeof *to);
}

/* Tries whether the micro-kernel computes the strict chain, on some thousand pairs. */
bool df_bf16_is_chain(const df_bf16_code *code);

/* Elements of an array of bf16. Strides count elements. */
typedef struct df_bf16_view {
    const uint16_t *at;
    uint32_t rank;
    int64_t extent[DEFT_MAX_RANK + 2], stride[DEFT_MAX_RANK + 2];
} df_bf16_view;

/* Returns the smallest magnitude of the elements, as df_bf16_code.least does. Runs on the threads
 * of the pool. */
uint16_t df_bf16_least(const df_bf16_view *v, df_pool *pool);

#endif
