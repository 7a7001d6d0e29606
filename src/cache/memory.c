/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache of cache.h: a hash table of chains to find entries, and a ring for the order of use.
 *
 *   table[hash & mask] -> entry -> entry -> NULL       newest first
 *   lru.next = most recently used ... lru.prev = least recently used
 *
 * Invariants: an entry is in exactly one chain and in the ring. It owns a copy of its key and one
 * reference to its value. While the lock is free, stats.bytes is the sum of the charges of all
 * entries and does not exceed max_bytes.
 *
 * Values are dropped after the lock is released, since their destroy callback may be slow
 * (unmapping code) or call the cache. The table grows with the number of entries. When there is no
 * memory for a larger table, the old table remains and its chains get longer.
 */
#include "cache/cache.h"

#include <string.h>

#include "base/fork.h"

#define TABLE_MIN 64

typedef struct lru_link {
    struct lru_link *prev, *next;
} lru_link;

typedef struct entry {
    lru_link lru; /* must be the first member: a pointer to it is cast to its entry */
    struct entry *next;
    df_hash hash; /* as truncated by hash_bits */
    df_counted *value;
    size_t charge; /* its part of df_cache_stats.bytes */
    size_t key_size;
    unsigned char key[];
} entry;

struct df_cache {
    const df_mem *mem;
    df_fork_lock lock; /* guards all below */
    uint64_t mask_lo, mask_hi;
    uint64_t max_bytes;
    entry **table;
    size_t n_slots; /* a power of two */
    entry *first_table[TABLE_MIN];
    lru_link lru;
    df_cache_stats stats;
};

/* Makes the cache empty without freeing entries. In a forked child, the entries of the parent stay
 * allocated, since a thread that the child does not have may have been changing them. */
static void start(df_cache *c)
{
    memset(c->first_table, 0, sizeof c->first_table);
    c->table = c->first_table;
    c->n_slots = TABLE_MIN;
    c->lru = (lru_link){ &c->lru, &c->lru };
    c->stats.entries = c->stats.bytes = 0;
}

static void lock(df_cache *c)
{
    if (df_fork_lock_take(&c->lock)) start(c);
}

static void free_table(df_cache *c)
{
    if (c->table != c->first_table) df_mem_free(c->mem, c->table, c->n_slots * sizeof *c->table);
}

static void link_remove(lru_link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
}

static void link_first(lru_link *ring, lru_link *l)
{
    l->prev = ring;
    l->next = ring->next;
    ring->next->prev = l;
    ring->next = l;
}

static df_hash truncated(const df_cache *c, df_hash h)
{
    return (df_hash){ .lo = h.lo & c->mask_lo, .hi = h.hi & c->mask_hi };
}

static entry **slot_of(const df_cache *c, df_hash h)
{
    return &c->table[h.lo & (c->n_slots - 1)];
}

static bool key_is(df_cache *c, const entry *e, df_hash hash, const df_cache_key *key)
{
    if (!df_hash_equal(e->hash, hash)) return false;
    if (e->key_size == key->n && (key->n == 0 || memcmp(e->key, key->bytes, key->n) == 0))
        return true;
    c->stats.collisions++;
    return false;
}

/* Moves entry *at from its chain and from the ring to the list *dead. */
static void take_out(df_cache *c, entry **at, entry **dead)
{
    entry *const e = *at;
    *at = e->next;
    link_remove(&e->lru);
    c->stats.entries--;
    c->stats.bytes -= e->charge;
    e->next = *dead;
    *dead = e;
}

/* Drops the values of a list and frees its entries. The lock must not be held. */
static void bury(df_cache *c, entry *dead)
{
    while (dead) {
        entry *const next = dead->next;
        df_counted_drop(&dead->value);
        df_mem_free(c->mem, dead, sizeof *dead + dead->key_size);
        dead = next;
    }
}

static void evict_oldest(df_cache *c, entry **dead)
{
    entry *const oldest = (entry *)c->lru.prev;
    entry **at = slot_of(c, oldest->hash);
    while (*at != oldest) at = &(*at)->next;
    take_out(c, at, dead);
    c->stats.evictions++;
}

/* Doubles the table. Each chain splits into two that keep its order, so that the newest entry of a
 * key remains first. Does nothing when memory runs out. */
static void grow_table(df_cache *c)
{
    const size_t n_new = c->n_slots * 2;
    entry **const table = df_mem_zalloc(c->mem, n_new * sizeof *table);
    if (!table) return;
    for (size_t i = 0; i < c->n_slots; i++) {
        entry **tail[2] = { &table[i], &table[i + c->n_slots] };
        for (entry *e = c->table[i], *next; e; e = next) {
            next = e->next;
            entry ***const t = &tail[(e->hash.lo & c->n_slots) != 0];
            e->next = NULL;
            **t = e;
            *t = &e->next;
        }
    }
    free_table(c);
    c->table = table;
    c->n_slots = n_new;
}

df_cache_key df_cache_key_make(const void *bytes, size_t n)
{
    return (df_cache_key){ .bytes = bytes, .n = n, .hash = df_hash_bytes(n ? bytes : "", n) };
}

deft_status df_cache_create(const df_mem *mem, const df_cache_options *options, df_cache **out)
{
    const df_cache_options o = options ? *options : (df_cache_options){ 0 };
    if (o.hash_bits > 64) return DEFT_E_ARG;
    df_cache *const c = df_mem_zalloc(mem, sizeof *c);
    if (!c || !df_fork_lock_init(&c->lock)) {
        df_mem_free(mem, c, sizeof *c);
        return DEFT_E_MEMORY;
    }
    c->mem = mem;
    c->mask_lo = o.hash_bits == 0 || o.hash_bits == 64 ? UINT64_MAX : (1ull << o.hash_bits) - 1;
    c->mask_hi = o.hash_bits == 0 ? UINT64_MAX : 0;
    c->max_bytes = o.max_bytes ? o.max_bytes : UINT64_MAX;
    start(c);
    *out = c;
    return DEFT_OK;
}

void df_cache_destroy(df_cache **out)
{
    df_cache *c = *out;
    if (!c) return;
    *out = NULL;
    df_cache_clear(c);
    df_fork_lock_finish(&c->lock);
    free_table(c);
    df_mem_free(c->mem, c, sizeof *c);
}

df_counted *df_cache_find(df_cache *c, const df_cache_key *key, df_cache_match match, void *user)
{
    const df_hash hash = truncated(c, key->hash);
    df_counted *found = NULL;
    bool known = false;
    lock(c);
    for (entry *e = *slot_of(c, hash); e; e = e->next) {
        if (!key_is(c, e, hash, key)) continue;
        known = true;
        if (match && !match(e->value, user)) continue;
        found = df_counted_ref(e->value);
        link_remove(&e->lru);
        link_first(&c->lru, &e->lru);
        break;
    }
    c->stats.hits += found != NULL;
    c->stats.misses += found == NULL;
    c->stats.rejected += found == NULL && known;
    df_fork_lock_give(&c->lock);
    return found;
}

deft_status df_cache_add(df_cache *c, const df_cache_key *key, df_counted *value, size_t size)
{
    entry *dead = NULL;
    size_t bytes, charge;
    if (__builtin_add_overflow(sizeof(entry), key->n, &bytes) ||
        __builtin_add_overflow(bytes, size, &charge) || charge > c->max_bytes) {
        df_counted_drop(&value);
        return DEFT_E_LIMIT;
    }
    entry *const e = df_mem_alloc(c->mem, bytes);
    if (!e) {
        df_counted_drop(&value);
        return DEFT_E_MEMORY;
    }
    *e = (entry){ .hash = truncated(c, key->hash), .value = value, .charge = charge };
    e->key_size = key->n;
    if (key->n) memcpy(e->key, key->bytes, key->n);

    lock(c);
    while (c->stats.bytes > c->max_bytes - charge) evict_oldest(c, &dead);
    if (c->stats.entries >= c->n_slots) grow_table(c);
    entry **const slot = slot_of(c, e->hash);
    e->next = *slot;
    *slot = e;
    link_first(&c->lru, &e->lru);
    c->stats.entries++;
    c->stats.bytes += charge;
    df_fork_lock_give(&c->lock);
    bury(c, dead);
    return DEFT_OK;
}

size_t df_cache_remove(df_cache *c, const df_cache_key *key, df_cache_match match, void *user)
{
    const df_hash hash = truncated(c, key->hash);
    entry *dead = NULL;
    lock(c);
    const size_t before = c->stats.entries;
    for (entry **at = slot_of(c, hash); *at;) {
        if (key_is(c, *at, hash, key) && (!match || match((*at)->value, user)))
            take_out(c, at, &dead);
        else
            at = &(*at)->next;
    }
    const size_t removed = before - c->stats.entries;
    df_fork_lock_give(&c->lock);
    bury(c, dead);
    return removed;
}

void df_cache_clear(df_cache *c)
{
    entry *dead = NULL;
    lock(c);
    for (size_t i = 0; i < c->n_slots; i++)
        while (c->table[i]) take_out(c, &c->table[i], &dead);
    df_fork_lock_give(&c->lock);
    bury(c, dead);
}

df_cache_stats df_cache_stats_get(df_cache *c)
{
    lock(c);
    const df_cache_stats stats = c->stats;
    df_fork_lock_give(&c->lock);
    return stats;
}
