/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory with a fence on each side, so that a test notices what is written beside it.
 */
#ifndef TEST_SUPPORT_FENCE_H
#define TEST_SUPPORT_FENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

/* The bytes of a fence. The memory begins after so many. */
#define GUARD_BYTES 64

/* `bytes` bytes with the value `fill`, between two fences. The caller frees. */
DF_INLINE char *fenced(int64_t bytes, int fill)
{
    char *const p = malloc((size_t)bytes + 2 * GUARD_BYTES);
    memset(p, fill, (size_t)bytes + 2 * GUARD_BYTES);
    memset(p, 0x5C, GUARD_BYTES);
    memset(p + GUARD_BYTES + bytes, 0x5C, GUARD_BYTES);
    return p;
}

/* Whether nothing was written to the fences of p. */
DF_INLINE bool fence_holds(const char *p, int64_t bytes)
{
    for (int i = 0; i < GUARD_BYTES; i++)
        if (p[i] != 0x5C || p[GUARD_BYTES + bytes + i] != 0x5C) return false;
    return true;
}

#endif
