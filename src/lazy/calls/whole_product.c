/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of matrices of integers: the sum over K of a[..., m, k, 1] * b[..., 1, k, n]. All is
 * computed in the dtype of the factors: the low bits of sums and products are right whatever
 * wraps. The fuser makes one kernel of this, in which lanes are columns of b, and nothing is stored
 * but the result.
 */
#include "lazy/calls/whole_product.h"

static uint32_t with_axis(deft_ctx *cx, uint32_t a, uint32_t axis, uintptr_t site)
{
    return df_append(cx, DF_OP_unsqueeze, df_dtype_at(cx, a), 1u << axis, &a, NULL, 0, NULL, site);
}

uint32_t df_whole_product(deft_ctx *cx, uint32_t a, uint32_t b, uintptr_t site)
{
    const uint32_t rank = cx->rec.nodes[a].rank;
    df_assert(df_is_int(df_dtype_at(cx, a)) && rank >= 2 && cx->rec.nodes[b].rank == rank);
    const uint32_t left = with_axis(cx, a, rank, site), right = with_axis(cx, b, rank - 2, site);
    const uint32_t terms = df_map2(cx, DF_OP_mul, left, right, site);
    return df_reduce(cx, DF_OP_wrapped_sum, terms, 1u << (rank - 1), false, site);
}
