/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference loops, one table per compiler found.
 */
#ifndef REF_LOOPS_H
#define REF_LOOPS_H

#include <stdint.h>

typedef struct ref_loops {
    /* steps of x = x r (1 - x), over n elements: time outside, elements outside */
    void (*logistic[2])(float *x, int64_t n, int64_t steps, float r);
    /* [steps,n] each: out[t] = a out[t - 1] + rows[t] */
    void (*smooth)(const float *rows, float *out, int64_t steps, int64_t n, float a);
} ref_loops;

extern const ref_loops ref_loops_gcc, ref_loops_clang;

#endif
