/* SPDX-License-Identifier: Apache-2.0
 *
 * A df_mem for tests: fails the n-th allocation, counts what is live, and notices a block that is
 * freed or resized twice, was never given out, is returned with a wrong size, or was written past
 * its end. Freed blocks are overwritten; growing always moves, so that stale pointers show. Any
 * thread.
 */
#ifndef TEST_FAIL_MEM_H
#define TEST_FAIL_MEM_H

#include "base/mem.h"

typedef struct fail_mem fail_mem;

typedef struct fail_mem_counts {
    size_t calls;       /* allocations and resizes asked for, failed ones included */
    size_t failed;      /* of these, made to fail */
    size_t live_blocks; /* given out and not returned */
    size_t live_bytes;
    size_t peak_bytes;
    size_t faults; /* misuse noticed, see above */
} fail_mem_counts;

/* Never fails; a test that cannot get memory for its own tables ends the program. */
fail_mem *fail_mem_create(void);
void fail_mem_destroy(fail_mem **f);

/* Valid as long as f. */
const df_mem *fail_mem_get(fail_mem *f);

/* The n-th call from now fails, and every later one while keep_failing; 0: none does. */
void fail_mem_at(fail_mem *f, size_t n, bool keep_failing);

/* Only requests of this many bytes fail, and count for fail_mem_at; 0, as at first: all do. */
void fail_mem_only(fail_mem *f, size_t size);

fail_mem_counts fail_mem_count(fail_mem *f);

/* What the first fault was, for a message; "none". */
const char *fail_mem_fault(fail_mem *f);

#endif
