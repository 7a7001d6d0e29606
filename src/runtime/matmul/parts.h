/* SPDX-License-Identifier: Apache-2.0
 *
 * How rows and columns of a product are divided into parts, so that threads end together. `others`
 * tasks belong to each part. The tasks are of about the same length, and a thread computes as many
 * of them as another, or one more. A *unit* is what no part divides, such as a panel.
 */
#ifndef DF_RUNTIME_PARTS_H
#define DF_RUNTIME_PARTS_H

#include "base/compiler.h"

DF_INLINE int64_t df_matmul_round_up(int64_t a, int64_t b)
{
    return df_div_up(a, b) * b;
}

/* Divides n into as few parts of at most `most` as possible, and returns the size of equal parts,
 * rounded up to a multiple of unit. */
int64_t df_matmul_even_part(int64_t n, int64_t most, int64_t unit);

/* Returns the size of all parts but the last. The size is df_matmul_even_part(n, most, unit), or
 * another one with which the threads end earlier. That is a smaller one, or one of up to `largest`
 * where it saves an eighth of the time. */
int64_t df_matmul_fair_part(int64_t n, int64_t most, int64_t largest, int64_t unit, int64_t others,
                            int64_t n_threads);

/* Returns the number of parts of n_units, when the sizes of parts differ by at most one unit. The
 * number is n_parts, or a few more where the threads then end earlier by more than a 32nd. */
int64_t df_matmul_balanced_parts(int64_t n_units, int64_t n_parts, int64_t others,
                                 int64_t n_threads);

#endif
