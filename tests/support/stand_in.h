/* SPDX-License-Identifier: Apache-2.0
 *
 * Micro-kernels in C with the ABI of compiled ones (runtime/matmul.h). Their sums are those of
 * chains.h, which has no sanitizer. So the rows of panels are read at their ends here, and rows of
 * C are copied here, where AddressSanitizer looks.
 */
#ifndef TEST_STAND_IN_H
#define TEST_STAND_IN_H

#include <string.h>

#include "support/chains.h"

/* Reads the first byte from `begin` on and the last one before `end`. */
static inline void stand_in_read_ends(const void *begin, const void *end)
{
    (void)*(const volatile char *)begin;
    (void)((const volatile char *)end)[-1];
}

/* Defines a micro-kernel for tiles of MR rows and NR columns. chains: the function of chains.h for
 * elements of this type. */
#define STAND_IN(name, type, chains, MR, NR)                                                       \
    static void name(int64_t k, const void *a_, const void *b_, void *c_, int64_t ldc, int64_t m,  \
                     int64_t n, int64_t first, const void *next)                                   \
    {                                                                                              \
        (void)next;                                                                                \
        const type *const a = a_, *const b = b_;                                                   \
        type *const c = c_, row[NR];                                                               \
        for (int64_t p = 0; p < k; p++) {                                                          \
            stand_in_read_ends(a + p * MR, a + p * MR + m);                                        \
            stand_in_read_ends(b + p * NR, b + p * NR + n);                                        \
        }                                                                                          \
        for (int64_t i = 0; i < m; i++) {                                                          \
            const size_t bytes = (size_t)n * sizeof *c;                                            \
            if (first)                                                                             \
                memset(row, 0, bytes);                                                             \
            else                                                                                   \
                memcpy(row, c + i * ldc, bytes);                                                   \
            chains(n, k, a + i, MR, b, NR, row);                                                   \
            memcpy(c + i * ldc, row, bytes);                                                       \
        }                                                                                          \
    }

#endif
