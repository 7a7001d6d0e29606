/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a test has the results that it had on x86-64. With DEFT_TEST_BITS=FILE in the
 * environment, a test runs its reference alone, and adds all results. Each group of them gives a
 * line of FILE, a hash, so that a difference is found in one group. With DEFT_TEST_BITS_NEW set,
 * FILE is written instead of read.
 *
 * Bytes that depend on the order of bytes of the machine are not added; elements are
 * (test_bits_add). All NaNs are one.
 */
#ifndef TEST_BITS_H
#define TEST_BITS_H

#include "deft/deft.h"

/* Whether DEFT_TEST_BITS is set. */
bool test_bits_are_asked(void);
/* Adds n elements of dtype t. Does nothing when bits are not asked for. */
void test_bits_add(deft_dtype t, const void *data, size_t n);
/* Ends a group. */
void test_bits_next(void);
/* Ends the last group and the file. Prints how many groups were compared. Returns false when a
 * group differs, and when FILE has more or fewer groups. */
bool test_bits_end(void);

#endif
