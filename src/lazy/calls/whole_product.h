/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of matrices of integers.
 */
#ifndef DF_LAZY_WHOLE_PRODUCT_H
#define DF_LAZY_WHOLE_PRODUCT_H

#include "lazy/core/lazy.h"

/* The product of records a [..., M, K] and b [..., K, N], whose batch axes are equal, in their
 * integer dtype. Sums and products wrap. DF_BAD on a failure. */
uint32_t df_whole_product(deft_ctx *cx, uint32_t a, uint32_t b, uintptr_t site);

#endif
