/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a test goes on that draws at random or goes through a matrix.
 *
 * Such a test covers first what must be covered. Then it asks before each further case whether it
 * is to go on, and prints at its end how many cases it ran. `./dev test` sets DEFT_TEST_SECONDS,
 * the time that one program, or one test of Criterion, may take from its first question on. Without
 * it a test does all it has: that is the night.
 */
#ifndef DEFT_TEST_BUDGET_H
#define DEFT_TEST_BUDGET_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* Whether there is a limit at all. */
static inline bool test_is_limited(void)
{
    return getenv("DEFT_TEST_SECONDS") != NULL;
}

/* Whether less than the given share of the time is used up, 0 < share <= 1. A test of several parts
 * asks each part for its share, so that the last part has time as well. */
static inline bool test_time_left(double share)
{
    static double start, limit = -1;
    struct timespec t;
    const char *const seconds = getenv("DEFT_TEST_SECONDS");
    if (!seconds) return true;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const double now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    if (limit < 0) {
        limit = strtod(seconds, NULL);
        start = now;
    }
    return now - start < share * limit;
}

/* How large a test is that shows the same at many sizes: whole without a limit, brief with one. */
static inline int64_t test_size(int64_t whole, int64_t brief)
{
    return test_is_limited() ? brief : whole;
}

/* The case to run as the i-th of n, 0 <= i < n, n below 2^31: a fixed order in which neighbours are
 * far from each other, so that a test which stops early has seen all parts of what it goes through.
 */
static inline uint32_t test_scattered(uint32_t i, uint32_t n)
{
    uint32_t step = (uint32_t)(0.6180339887 * n) | 1, a, b; /* coprime to n, by the golden ratio */
    for (;; step += 2) {
        for (a = step, b = n; b;) {
            const uint32_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1 || n < 2) return n < 2 ? 0 : (uint32_t)((uint64_t)i * step % n);
    }
}

#endif
