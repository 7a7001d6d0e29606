/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of a long test is run. DEFT_TEST_PART=N asks for one Nth of what tests draw at random or
 * pick from a table; `./dev test` sets it where a run under a sanitizer repeats one without.
 */
#ifndef DEFT_TEST_PART_H
#define DEFT_TEST_PART_H

#include <stdlib.h>

/* N, at least 1. */
static inline unsigned test_part(void)
{
    const char *const s = getenv("DEFT_TEST_PART");
    const unsigned long n = s ? strtoul(s, NULL, 10) : 1;
    return n >= 1 && n <= 1000 ? (unsigned)n : 1;
}

/* How many of n: at least one. */
static inline unsigned test_some(unsigned n)
{
    const unsigned some = n / test_part();
    return some ? some : 1;
}

#endif
