/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for values: reference-counted buffers from a caching allocator.
 *
 * Data is aligned to 64 bytes, and sizes are padded to 64 bytes. Buffers of 2 MiB and more ask
 * for huge pages, but for a last page that they would not fill. Freed blocks are kept by size class
 * and reused, up to max_cached bytes in all; a fresh buffer of 64 MB costs 14 times what filling it
 * costs. Any thread may call all functions.
 */
#ifndef DF_RUNTIME_BUFFER_H
#define DF_RUNTIME_BUFFER_H

#include "base/diag.h"
#include "base/mem.h"

typedef struct df_allocator df_allocator;

typedef struct df_allocator_stats {
    uint64_t live_bytes, peak_bytes, cached_bytes;
    uint64_t derived_bytes; /* of buffers of df_buffer_create_derived; no part of live_bytes */
    uint64_t requests,
        system_allocations; /* requests in all; those that the cache could not serve */
} df_allocator_stats;

/* mem serves bookkeeping and blocks below 64 KiB. Larger blocks are mapped by the system. When mem
 * is not df_mem_system, they too come from mem, so that tests can make them fail. */
deft_status df_allocator_create(df_diag *d, const df_mem *mem, uint64_t max_cached,
                                df_allocator **out);
/* All buffers must have been dropped. NULL in *a is ignored. */
void df_allocator_destroy(df_allocator **a);
df_allocator_stats df_allocator_read(df_allocator *a);
void df_allocator_trim(df_allocator *a); /* gives cached blocks back to the system */
/* For a forked child in which a missing thread held references: their buffers are never dropped.
 * After this call, df_allocator_destroy accepts buffers that are still alive. */
void df_allocator_lost(df_allocator *a);

struct df_buffer;

/* Keeps what was derived from the elements of buffers (packs.h). The functions are called on any
 * thread, without a lock of the allocator. */
typedef struct df_buffer_watcher {
    void *self;
    /* Called for a buffer with has_derived, when its elements have changed or its last reference
     * was dropped. */
    void (*forget)(void *self, const struct df_buffer *b);
    void (*trim)(void *self); /* called when memory is short */
} df_buffer_watcher;

/* To be called before any buffer has has_derived. NULL: no watcher any more. */
void df_allocator_watch(df_allocator *a, const df_buffer_watcher *w);

/* The owner of a buffer in device memory. `data` of such a buffer is an address of the device. */
typedef struct df_buffer_owner {
    struct df_device *dev;
    /* Called when the last reference is dropped, on any thread. */
    void (*release)(struct df_buffer *b);
} df_buffer_owner;

/* Whom a buffer of borrowed memory informs that nothing uses the memory any more. */
typedef struct df_buffer_release {
    void (*fn)(void *user); /* NULL: nobody. Called once, on any thread, without a lock held */
    void *user;
} df_buffer_release;

/* Shared by all holders of a reference. `data` never changes. */
typedef struct df_buffer {
    void *data;
    int64_t bytes; /* as requested, without padding */
    /* The allocator of the memory. NULL when the memory is borrowed, or belongs to `home`. */
    df_allocator *from;
    const df_buffer_owner *home; /* NULL: memory of the host */
    /* Of borrowed memory only. Whoever wraps the memory sets it, before anyone else has the
     * buffer. */
    df_buffer_release release;
    _Atomic uint32_t refs;
    uint32_t cls; /* size class; for the allocator only */
    /* For packs.c only. Which layout of the elements was wanted last: a hash, or 0. */
    _Atomic uint32_t wanted;
    _Atomic bool has_derived; /* the watcher of `from` keeps something for this buffer */
} df_buffer;

/* Creates a buffer with one reference. bytes may be 0; `data` is then not NULL. */
deft_status df_buffer_create(df_diag *d, df_allocator *a, int64_t bytes, df_buffer **out);
/* The same for elements that can be derived again. They are counted in derived_bytes alone. */
deft_status df_buffer_create_derived(df_diag *d, df_allocator *a, int64_t bytes, df_buffer **out);
/* Creates a buffer with one reference that borrows `data`. The caller's memory must outlive it. */
deft_status df_buffer_wrap(df_diag *d, df_allocator *a, void *data, int64_t bytes, df_buffer **out);
df_buffer *df_buffer_ref(df_buffer *b); /* adds a reference; returns b */
void df_buffer_drop(df_buffer **b);     /* *b may be NULL, and is NULL afterwards */
/* Returns true when all bytes of a buffer are 0 because nobody wrote them since the system mapped
 * its memory. Pages of the buffer then take memory only when they are written, and are small, so
 * that a page that is written takes little. */
bool df_buffer_use_zeros(df_buffer *b);
/* Undoes df_buffer_use_zeros, if it was called, for a buffer that is going to be written
 * completely: its pages may be huge from now on. The contents stay. Returns true when it did so;
 * the caller then calls df_os_populate for all parts of the buffer, on any threads. */
bool df_buffer_wants_pages(df_buffer *b);
/* To be called when elements of a buffer were written that somebody may have read before. Nothing
 * that was derived from the elements is used after the call. */
void df_buffer_changed(df_buffer *b);

#endif
