/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of reductions: the constants every back end shares, in one place.
 *
 * Reduced elements are numbered r = 0 .. L-1 in row-major order over the reduced axes and cut into
 * blocks of DF_BLOCK. Within a block DF_LANES accumulators start at the op's identity; element r
 * goes to accumulator r mod DF_LANES, in increasing r; then the upper half is folded onto the
 * lower, acc[j] = acc[j] op acc[j + h] for h = 32, 16, .. 1. Block results are joined by a binary
 * counter: after block number b (from 0) is pushed, as many times as b + 1 has trailing zero bits,
 * the two newest entries are joined, older op newer; at the end the stack is joined from its newest
 * entry down, older op newer. The shape depends on L alone. Identities: sum -0.0 (integers 0), prod
 * 1, rmin +inf or the greatest integer, rmax -inf or the least, any false, all true. The sum of
 * nothing is +0. argmin, argmax: the result is independent of order: of equal elements the least r,
 * and NaN before all. A scan is one chain in increasing r, starting from its first element.
 *
 * scatter_add and index_add: each element of the result is one chain of additions, which starts
 * from the base's element and takes its values in row-major order of the indices.
 */
#ifndef DF_BASE_LIMITS_H
#define DF_BASE_LIMITS_H

enum { DF_LANES = 64, DF_BLOCK = 4096, DF_TREE_DEPTH = 52 };

#endif
