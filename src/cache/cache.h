/* SPDX-License-Identifier: Apache-2.0
 *
 * A keyed store in memory that knows no traces: key bytes -> counted values, bounded by bytes, the
 * least recently used entry leaves first. Any thread may call; one mutex inside.
 *
 * A hash only finds candidates. A hit needs equal key bytes, all of them, and the match callback.
 * Several entries may stand under one key (one per set of guards); the youngest is tried first.
 */
#ifndef DF_CACHE_CACHE_H
#define DF_CACHE_CACHE_H

#include "base/counted.h"
#include "base/hash.h"
#include "base/mem.h"
#include "deft/status.h"

typedef struct df_cache df_cache;

/* Borrowed bytes and their hash. */
typedef struct df_cache_key {
    df_hash hash;
    const void *bytes;
    size_t n;
} df_cache_key;

df_cache_key df_cache_key_make(const void *bytes, size_t n); /* hashes; n may be 0 */

typedef struct df_cache_options {
    size_t max_bytes;   /* bound on df_cache_stats.bytes; 0: none */
    unsigned hash_bits; /* for tests: use only so many bits of each hash, 1..64; 0: all 128 */
} df_cache_options;

typedef struct df_cache_stats {
    uint64_t hits;
    uint64_t misses;     /* finds that returned NULL, rejected ones included */
    uint64_t rejected;   /* misses whose key was known, but no entry matched */
    uint64_t collisions; /* candidates with an equal hash and other key bytes */
    uint64_t evictions;  /* entries that left because of max_bytes */
    size_t entries;
    size_t bytes; /* per entry: the caller's size, the key and the bookkeeping */
} df_cache_stats;

/* options may be NULL for the defaults. DEFT_E_MEMORY, DEFT_E_ARG. */
deft_status df_cache_create(const df_mem *mem, const df_cache_options *options,
                            DEFT_OWN df_cache **out);

/* Drops every value. No other thread may be inside. NULL is fine; leaves *c NULL. */
void df_cache_destroy(df_cache **c);

/* Whether value may be used now. Runs under the cache's lock: short, and no call into the cache. */
typedef bool (*df_cache_match)(const df_counted *value, void *user);

/* The youngest entry under key that matches (match NULL: any), as a reference of the caller's own,
 * which stays valid when the entry is evicted; NULL when there is none. */
DEFT_OWN df_counted *df_cache_find(df_cache *c, const df_cache_key *key, df_cache_match match,
                                   void *user);

/* Adds value under a copy of key; size is what value costs, in bytes. Takes the caller's reference,
 * also on failure: who wants to go on using value takes a reference first. Does not look for an
 * equal entry: two threads that compile the same key both succeed, and the older entry ages out.
 * DEFT_E_MEMORY; DEFT_E_LIMIT when the entry alone exceeds max_bytes. */
deft_status df_cache_add(df_cache *c, const df_cache_key *key, DEFT_OWN df_counted *value,
                         size_t size);

/* Removes what matches under key (match NULL: all) and returns how many entries that were. */
size_t df_cache_remove(df_cache *c, const df_cache_key *key, df_cache_match match, void *user);

void df_cache_clear(df_cache *c); /* removes all; counters stay */

df_cache_stats df_cache_stats_get(df_cache *c);

#endif
