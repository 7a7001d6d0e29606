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

#include "runtime/device.h"
#include "runtime/pool.h"

typedef struct df_bf16_code {
    /* The micro-kernel. Its k counts pairs. */
    df_gemm_kernel kernel;
    /* Packs a panel: to[p * width + x] = the pair of from[2 p * step + x * stride] and
     * from[(2 p + 1) * step + x * stride], for x < w. There are n elements along k. The padding,
     * w <= x < width, gets +0. width is a multiple of 8. */
    void (*pack)(uint32_t *to, int64_t width, const uint16_t *from, int64_t step, int64_t stride,
                 int64_t n, int64_t w);
    /* Returns the smallest magnitude other than 0 among n contiguous bf16, as bits without a sign;
     * 0xffff: all of them are 0. */
    uint16_t (*least)(const uint16_t *from, int64_t n);
} df_bf16_code;

/* NULL: this machine has no such instruction. */
const df_bf16_code *df_bf16_pick(void);

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
