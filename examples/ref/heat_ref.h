/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain C checks for the heat example.
 */
#ifndef EXAMPLES_REF_HEAT_REF_H
#define EXAMPLES_REF_HEAT_REF_H

#include <stdint.h>

/* Advances the interior of u (n x n, row-major, n >= 3) by steps of the explicit five-point scheme;
 * the boundary stays:
 *
 *   u' = c + ((above + below) + (left + right) - c * 4) * 0.2
 *
 * spare has room for n * n. Returns the greatest |u' - c| of the last step. In f32, each operation
 * rounded once in the order of the parentheses: a strict context gives the same bits. Build with
 * -ffp-contract=off. */
float heat_ref(float *u, float *spare, int64_t n, int64_t steps);

#endif
