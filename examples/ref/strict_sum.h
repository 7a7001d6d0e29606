/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which a strict context sums, spelled out as simply as possible: elements are
 * numbered in row-major order and cut into blocks of 4096; in a block element i is added to
 * accumulator i mod 64, which started at -0.0; the upper half of the accumulators is folded onto
 * the lower until one is left; block sums are joined like a binary counter, two neighbours of equal
 * size at a time, and what is left at the end from the newest down.
 *
 *     strict_sum s;
 *     strict_sum_start(&s);
 *     for (...) strict_sum_add(&s, value);
 *     total = strict_sum_end(&s);
 */
#ifndef EXAMPLES_REF_STRICT_SUM_H
#define EXAMPLES_REF_STRICT_SUM_H

#include <stdint.h>

typedef struct strict_sum {
    float acc[64];
    float stack[52];
    int top;
    int64_t count; /* elements added */
} strict_sum;

/* Begins an empty sum. */
void strict_sum_start(strict_sum *s);
/* Adds the next element. */
void strict_sum_add(strict_sum *s, float value);
/* The sum of all elements added; +0 when there were none. Adding more needs a new start. */
float strict_sum_end(strict_sum *s);

#endif
