/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/packs.h"

#include <stdatomic.h>
#include <string.h>

#include "base/fork.h"

/* A copy is old when it was not used while each copy could have been used OLD_ROUNDS times. */
enum { N_BUCKETS = 64, OLD_ROUNDS = 16 };

typedef struct pack {
    struct pack *next; /* in its bucket, or in a chain of packs that are destroyed */
    const df_buffer *owner;
    df_buffer *copy;
    df_pack_key key;
    uint64_t used; /* the time of the latest use, on df_packs.now */
} pack;

struct df_packs {
    const df_mem *mem;
    df_allocator *allocator;
    uint64_t max_bytes;
    df_fork_lock lock; /* guards the rest */
    pack *bucket[N_BUCKETS];
    uint64_t n, bytes;
    uint64_t now; /* counts uses */
};

_Static_assert(sizeof(df_pack_key) == 48, "keys are compared as bytes");

/* In a forked child the lists may be damaged, so the child never uses these copies. */
static void packs_lock(df_packs *p)
{
    if (!df_fork_lock_take(&p->lock)) return;
    memset(p->bucket, 0, sizeof p->bucket);
    p->n = p->bytes = 0;
}

static uint32_t packs_bucket(const df_buffer *owner)
{
    return (uint32_t)((uintptr_t)owner / sizeof *owner * 0x9e3779b1u >> 16) % N_BUCKETS;
}

static uint32_t packs_hash(const df_pack_key *key)
{
    uint64_t words[sizeof *key / 8], sum = 0;
    memcpy(words, key, sizeof words);
    for (size_t i = 0; i < DF_LEN(words); i++) sum = (sum ^ words[i]) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(sum >> 32) | 1; /* 0 means none */
}

/* Takes the pack at `at` out of its bucket, and adds it to a chain. The caller holds the lock. */
static void packs_take(df_packs *p, pack **at, pack **chain)
{
    pack *const old = *at;
    *at = old->next;
    old->next = *chain;
    *chain = old;
    p->n--;
    p->bytes -= (uint64_t)old->copy->bytes;
}

/* To be called without the lock, because buffers are dropped. */
static void packs_destroy_chain(df_packs *p, pack *chain)
{
    while (chain) {
        pack *const next = chain->next;
        df_buffer_drop(&chain->copy);
        df_mem_free(p->mem, chain, sizeof *chain);
        chain = next;
    }
}

static void packs_forget(void *self, const df_buffer *b)
{
    df_packs *const p = self;
    pack *chain = NULL;
    packs_lock(p);
    for (pack **at = &p->bucket[packs_bucket(b)]; *at;)
        if ((*at)->owner == b)
            packs_take(p, at, &chain);
        else
            at = &(*at)->next;
    df_fork_lock_give(&p->lock);
    packs_destroy_chain(p, chain);
}

static void packs_trim(void *self)
{
    df_packs *const p = self;
    pack *chain = NULL;
    packs_lock(p);
    for (uint32_t i = 0; i < N_BUCKETS; i++)
        while (p->bucket[i]) packs_take(p, &p->bucket[i], &chain);
    df_fork_lock_give(&p->lock);
    packs_destroy_chain(p, chain);
}

/* Makes room for `bytes` bytes by taking out old copies. Returns false when that does not suffice.
 * The caller holds the lock. */
static bool packs_make_room(df_packs *p, uint64_t bytes, pack **chain)
{
    if (bytes > p->max_bytes) return false;
    for (uint32_t i = 0; i < N_BUCKETS && p->bytes > p->max_bytes - bytes; i++)
        for (pack **at = &p->bucket[i]; *at;)
            if (p->now - (*at)->used > OLD_ROUNDS * (p->n + 1))
                packs_take(p, at, chain);
            else
                at = &(*at)->next;
    return p->bytes <= p->max_bytes - bytes;
}

deft_status df_packs_create(df_diag *d, const df_mem *mem, df_allocator *a, uint64_t max_bytes,
                            df_packs **out)
{
    df_packs *const p = df_mem_zalloc(mem, sizeof *p);
    if (!p) return df_fail_mem(d, "packed copies", sizeof *p);
    if (!df_fork_lock_init(&p->lock)) {
        df_mem_free(mem, p, sizeof *p);
        return df_fail(d, DEFT_E_MEMORY, "packed copies: no mutex could be had");
    }
    p->mem = mem;
    p->allocator = a;
    p->max_bytes = max_bytes;
    df_allocator_watch(a, &(df_buffer_watcher){ p, packs_forget, packs_trim });
    *out = p;
    return DEFT_OK;
}

void df_packs_destroy(df_packs **out)
{
    df_packs *const p = *out;
    if (!p) return;
    *out = NULL;
    packs_trim(p);
    df_allocator_watch(p->allocator, NULL);
    df_fork_lock_finish(&p->lock);
    df_mem_free(p->mem, p, sizeof *p);
}

df_buffer *df_packs_find(df_packs *p, df_buffer *owner, const df_pack_key *key, int64_t bytes,
                         bool *make)
{
    const uint32_t hash = packs_hash(key);
    const bool again = atomic_exchange_explicit(&owner->wanted, hash, memory_order_relaxed) == hash;
    df_buffer *found = NULL;
    pack *chain = NULL;
    *make = false;
    if (!again && !atomic_load_explicit(&owner->has_derived, memory_order_acquire)) return NULL;
    packs_lock(p);
    p->now++;
    for (pack *at = p->bucket[packs_bucket(owner)]; at && !found; at = at->next) {
        if (at->owner != owner || memcmp(&at->key, key, sizeof *key) != 0) continue;
        at->used = p->now;
        found = df_buffer_ref(at->copy);
    }
    if (again && !found) *make = packs_make_room(p, (uint64_t)bytes, &chain);
    df_fork_lock_give(&p->lock);
    packs_destroy_chain(p, chain);
    return found;
}

void df_packs_add(df_packs *p, df_buffer *owner, const df_pack_key *key, df_buffer *copy)
{
    pack *const new = df_mem_alloc(p->mem, sizeof *new);
    if (!new) return;
    pack **const bucket = &p->bucket[packs_bucket(owner)];
    *new = (pack){ .owner = owner, .key = *key, .copy = df_buffer_ref(copy) };
    packs_lock(p);
    atomic_store_explicit(&owner->has_derived, true, memory_order_release);
    new->used = p->now;
    new->next = *bucket;
    *bucket = new;
    p->n++;
    p->bytes += (uint64_t)copy->bytes;
    df_fork_lock_give(&p->lock);
}
