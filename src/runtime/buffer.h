/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for values: counted buffers from a caching allocator. 64-byte aligned, sizes padded to 64
 * bytes; huge pages from 2 MiB up; freed blocks are kept by size class and reused (a fresh 64 MB
 * buffer costs 14 times its fill), bounded by max_cached. Any thread.
 */
#ifndef DF_RUNTIME_BUFFER_H
#define DF_RUNTIME_BUFFER_H

#include "base/diag.h"
#include "base/mem.h"

typedef struct df_allocator df_allocator;

typedef struct df_allocator_stats {
    uint64_t live_bytes, peak_bytes, cached_bytes;
    uint64_t requests, system_allocations; /* how many requests went to the system */
} df_allocator_stats;

/* mem: for bookkeeping and for blocks below 64 KiB; larger blocks are mapped (through mem when it
 * is not df_mem_system, so that tests can fail them). */
deft_status df_allocator_create(df_diag *d, const df_mem *mem, uint64_t max_cached,
                                df_allocator **out);
void df_allocator_destroy(df_allocator **a); /* every buffer must be gone */
df_allocator_stats df_allocator_read(df_allocator *a);
void df_allocator_trim(df_allocator *a); /* gives cached blocks back to the system */
/* In a forked child: a lost thread held buffers, which will never be gone. */
void df_allocator_lost(df_allocator *a);

struct df_buffer;

/* Memory that the host cannot read: a buffer's data is then an address of the device's. */
typedef struct df_buffer_owner {
    struct df_device *dev;
    void (*release)(struct df_buffer *b); /* the last reference is gone; any thread */
} df_buffer_owner;

/* Owned by every holder of a reference. data never moves. */
typedef struct df_buffer {
    void *data;
    int64_t bytes;               /* asked for */
    df_allocator *from;          /* NULL: the caller's memory, only borrowed; or it has a home */
    const df_buffer_owner *home; /* NULL: the host's memory */
    _Atomic uint32_t refs;
    uint32_t cls; /* the allocator's own */
} df_buffer;

/* refs = 1. bytes 0 gives a buffer with valid data. */
deft_status df_buffer_create(df_diag *d, df_allocator *a, int64_t bytes, df_buffer **out);
/* Borrows the caller's memory. */
deft_status df_buffer_wrap(df_diag *d, df_allocator *a, void *data, int64_t bytes, df_buffer **out);
df_buffer *df_buffer_ref(df_buffer *b);
void df_buffer_drop(df_buffer **b); /* NULL is fine; leaves *b NULL */

#endif
