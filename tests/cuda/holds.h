/* SPDX-License-Identifier: Apache-2.0
 *
 * EXPECT of the programs that compare kernels with the interpreter: a condition that does not hold
 * is printed and counted, and the program goes on.
 */
#ifndef DF_TESTS_CUDA_HOLDS_H
#define DF_TESTS_CUDA_HOLDS_H

#include <stdbool.h>
#include <stdio.h>

static long n_faults; /* of this program */

static inline void expect_holds(bool holds, const char *what)
{
    if (holds) return;
    printf("does not hold: %s\n", what);
    n_faults++;
}
#define EXPECT(x) expect_holds(x, #x)

#endif
