/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether numbers are finite. Exported programs contain this text, so it includes nothing of deft.
 */
#ifndef DF_RUNTIME_FINITE_H
#define DF_RUNTIME_FINITE_H

#include <stdint.h>
#include <string.h>

/* Returns 1 when n contiguous numbers are finite, else 0. */
static inline int df_are_finite(const float *x, int64_t n)
{
    enum { LANES = 16 };
    const uint32_t infinite = 0x7f800000u;
    uint32_t top[LANES] = { 0 }, all = 0, bits;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        uint32_t word[LANES];
        memcpy(word, x + i, sizeof word);
        for (int k = 0; k < LANES; k++) {
            const uint32_t magnitude = word[k] & 0x7fffffffu;
            top[k] = top[k] > magnitude ? top[k] : magnitude;
        }
    }
    for (int k = 0; k < LANES; k++) all = top[k] > all ? top[k] : all;
    for (; i < n; i++) {
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        all = bits > all ? bits : all;
    }
    return all < infinite;
}

#endif
