/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of matmul.c: products of bf16 in fast mode, on machines that multiply pairs of
 * bf16 and add both products to an f32 (vdpbf16ps).
 *
 * Packed operands consist of pairs: elements 2p and 2p + 1 along k, in the lower and the upper half
 * of a word. So matmul.c divides such a product like one of f32 with half the k, whose elements are
 * pairs. A pair beyond the end of an odd k has +0 in its upper half.
 *
 * Each product of two bf16 is exact in f32, and only sums are rounded, at most k times each. So an
 * element is within k * 2^-23 * sum(|a b|) of the exact sum, unless denormals occur. The
 * instruction reads denormal operands as 0 and makes denormal sums 0. That adds at most 2^-126 for
 * each step, and for each denormal operand its product.
 */
#ifndef DF_RUNTIME_BF16_H
#define DF_RUNTIME_BF16_H

#include "runtime/device.h"

typedef struct df_bf16_code {
    /* The micro-kernel. Its k counts pairs. */
    df_gemm_kernel kernel;
    /* Packs a panel: to[p * width + x] = the pair of from[2 p * step + x * stride] and
     * from[(2 p + 1) * step + x * stride], for x < w. There are n elements along k. The padding,
     * w <= x < width, gets +0. width is a multiple of 8. */
    void (*pack)(uint32_t *to, int64_t width, const uint16_t *from, int64_t step, int64_t stride,
                 int64_t n, int64_t w);
} df_bf16_code;

/* NULL: this machine has no such instruction. */
const df_bf16_code *df_bf16_pick(void);

#endif
