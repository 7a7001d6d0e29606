/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of reductions. All back ends share these constants and this order, so that their
 * results agree bit for bit.
 *
 * The L elements that a reduction joins are numbered r = 0 .. L-1, in row-major order over the
 * reduced axes. The order of operations depends on L alone:
 *
 *   1. The elements are divided into blocks of DF_BLOCK.
 *   2. In each block, DF_LANES accumulators start at the identity of the operator. Element r is
 *      joined to accumulator r mod DF_LANES, in increasing r.
 *   3. The upper half of the accumulators is joined to the lower half:
 *      acc[j] = acc[j] op acc[j + h] for h = 32, 16, .. 1.
 *   4. The results of blocks are joined by a binary counter. After block b (from 0) is pushed, the
 *      two newest entries are joined, older op newer, as often as b + 1 has trailing zero bits.
 *   5. At the end, the stack is joined from its newest entry down, older op newer. It never has
 *      more than DF_TREE_DEPTH entries.
 *
 * Identities: sum -0.0 (integers 0), prod 1, rmin +inf or the greatest integer, rmax -inf or the
 * least integer, any false, all true. The sum of no elements is +0. The results of argmin and
 * argmax do not depend on the order: among equal elements the least r wins, and NaN wins against
 * all numbers. A scan is one chain in increasing r, which starts with its first element.
 *
 * scatter_* and index_*: each element of the result is one chain of additions, products, minima,
 * maxima or replacements. The chain starts
 * with the element of the base and takes values in row-major order of the indices.
 */
#ifndef DF_BASE_LIMITS_H
#define DF_BASE_LIMITS_H

enum { DF_LANES = 64, DF_BLOCK = 4096, DF_TREE_DEPTH = 52 };

#endif
