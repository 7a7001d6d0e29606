/* SPDX-License-Identifier: Apache-2.0
 *
 * Inputs that are hard for functions of f64: published ones, and the f64 that lie nearest to
 * multiples of pi / 2.
 */
#ifndef TEST_HARD_INPUTS_H
#define TEST_HARD_INPUTS_H

#include <stddef.h>

/* Inputs at which some library was found to err most, and inputs that are hard to round correctly.
 * Each is meant for every function of one operand. */
extern const double hard_published[];
extern const size_t hard_n_published;

/* Binary exponents for which hard_near_half_pi has an answer: f64 from 1 up to the greatest. */
enum { HARD_FIRST_EXPONENT = 0, HARD_LAST_EXPONENT = 1023, HARD_PER_EXPONENT = 4 };

/* Writes up to HARD_PER_EXPONENT f64 of [2^exponent, 2^(exponent + 1)) to out and returns their
 * number. Among them is the f64 of that range whose distance to a multiple of pi / 2 is least. */
size_t hard_near_half_pi(int exponent, double out[HARD_PER_EXPONENT]);

#endif
