/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache in memory from key bytes to reference-counted values. It does not depend on traces. Its
 * size in bytes is bounded, and the least recently used entry is evicted first. Any thread may
 * call any function except df_cache_destroy; one mutex protects a cache.
 *
 * A hash only finds candidates. A hit needs equal key bytes and a match callback that accepts the
 * value. Several entries may have the same key, one for each set of guards. The newest entry is
 * tried first.
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

/* A key that borrows n bytes, with their hash. bytes may be NULL when n is 0. */
df_cache_key df_cache_key_make(const void *bytes, size_t n);

typedef struct df_cache_options {
    uint64_t max_bytes; /* bound on df_cache_stats.bytes; 0 means no bound */
    unsigned hash_bits; /* for tests: use only so many bits of each hash, 1..64; 0 uses all 128 */
} df_cache_options;

typedef struct df_cache_stats {
    uint64_t hits;       /* calls of df_cache_find that returned a value */
    uint64_t misses;     /* calls of df_cache_find that returned NULL, rejected ones included */
    uint64_t rejected;   /* misses whose key was present, but whose callback matched no entry */
    uint64_t collisions; /* candidates with an equal hash and other key bytes */
    uint64_t evictions;  /* entries that were removed because of max_bytes */
    size_t entries;      /* current number of entries */
    size_t bytes; /* current sum over the entries of the caller's size, the key and bookkeeping */
} df_cache_stats;

/* Creates an empty cache. options may be NULL for the defaults. mem is borrowed and must outlive
 * the cache. Fails with DEFT_E_MEMORY, or with DEFT_E_ARG when hash_bits is above 64. */
deft_status df_cache_create(const df_mem *mem, const df_cache_options *options,
                            DEFT_OWN df_cache **out);

/* Drops the cache's reference to every value and frees the cache. No other thread may use it. *c
 * may be NULL, and is NULL afterwards. */
void df_cache_destroy(df_cache **c);

/* Whether value can be used for this lookup. Runs under the lock of the cache, so it must be short
 * and must not call the cache. */
typedef bool (*df_cache_match)(const df_counted *value, void *user);

/* Returns the newest entry with this key that matches, or NULL when there is none. match NULL
 * accepts every entry. The caller owns the returned reference, which remains valid when the entry
 * is evicted. */
DEFT_OWN df_counted *df_cache_find(df_cache *c, const df_cache_key *key, df_cache_match match,
                                   void *user);

/* Adds value under a copy of key. size is the memory in bytes that value needs. Takes the caller's
 * reference, also on failure; a caller that goes on using value must first take another one. An
 * equal entry is not searched for: two threads that compile the same key both succeed, and the
 * older entry is evicted with time. Fails with DEFT_E_MEMORY, or with DEFT_E_LIMIT when the entry
 * alone exceeds max_bytes. */
deft_status df_cache_add(df_cache *c, const df_cache_key *key, DEFT_OWN df_counted *value,
                         size_t size);

/* Removes all entries with this key that match and returns their number. match NULL accepts every
 * entry. */
size_t df_cache_remove(df_cache *c, const df_cache_key *key, df_cache_match match, void *user);

/* Removes all entries. The counters of df_cache_stats do not change. */
void df_cache_clear(df_cache *c);

/* The statistics at one moment. */
df_cache_stats df_cache_stats_get(df_cache *c);

#endif
