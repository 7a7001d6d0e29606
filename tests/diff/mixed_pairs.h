/* SPDX-License-Identifier: Apache-2.0
 *
 * Which pairs of features the blocks of mixed_programs.c had. The features, and the pairs that
 * cannot be, are in mixed_pairs.def. Every other pair is a promise: mixed_pairs_check fails when it
 * was never drawn.
 */
#ifndef MIXED_PAIRS_H
#define MIXED_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum mixed_feature {
#define FEATURE(name, text) MIXED_##name,
#include "mixed_pairs.def"
    N_MIXED_FEATURES
} mixed_feature;

/* The bit of a feature in a set of features. */
#define MIXED(name) (UINT64_C(1) << MIXED_##name)

/* Counts all pairs of the features of one run of a block. */
void mixed_pairs_count(uint64_t features);

/* Prints each promised pair that was never counted, and returns how many there are. `without` has
 * features about which nothing is promised. */
int mixed_pairs_check(uint64_t without);

/* Prints the table of the documentation, or with counts how often each pair was counted. */
void mixed_pairs_print(bool with_counts);

#endif
