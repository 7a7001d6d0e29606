/* SPDX-License-Identifier: Apache-2.0
 *
 * The keyed store: full comparison under a truncated hash, several entries per key, eviction by
 * bytes in order of use, ownership on every path, and each allocation failing in turn.
 */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cache/cache.h"
#include "support/fail_mem.h"

typedef struct value {
    df_counted ref;
    const df_mem *mem;
    int id;
    atomic_int *destroyed;
} value;

static void value_destroy(df_counted *self)
{
    value *const v = (value *)self;
    atomic_fetch_add(v->destroyed, 1);
    df_mem_free(v->mem, v, sizeof *v);
}

static atomic_int n_destroyed;

static df_counted *value_new(const df_mem *mem, int id)
{
    value *const v = df_mem_alloc(mem, sizeof *v);
    if (!v) return NULL;
    df_counted_init(&v->ref, value_destroy);
    v->mem = mem;
    v->id = id;
    v->destroyed = &n_destroyed;
    return &v->ref;
}

static df_cache_key key_of(const char *text)
{
    return df_cache_key_make(text, strlen(text));
}

static deft_status add(df_cache *c, const df_mem *mem, const char *key, int id, size_t size)
{
    const df_cache_key k = key_of(key);
    return df_cache_add(c, &k, value_new(mem, id), size);
}

static bool id_is(const df_counted *v, void *user)
{
    return ((const value *)v)->id == *(int *)user;
}

/* The id found under key, or -1. want: the id that must match; NULL: any. */
static int find(df_cache *c, const char *key, int *want)
{
    const df_cache_key k = key_of(key);
    df_counted *v = df_cache_find(c, &k, want ? id_is : NULL, want);
    const int id = v ? ((const value *)v)->id : -1;
    df_counted_drop(&v);
    return id;
}

static void finish(fail_mem **f)
{
    const fail_mem_counts n = fail_mem_count(*f);
    cr_assert(n.faults == 0, "%s", fail_mem_fault(*f));
    cr_assert(n.live_blocks == 0, "%zu blocks leaked", n.live_blocks);
    fail_mem_destroy(f);
}

Test(cache, finds_what_was_added_and_counts)
{
    fail_mem *f = fail_mem_create();
    const df_mem *const m = fail_mem_get(f);
    df_cache *c = NULL;
    cr_assert(df_cache_create(m, NULL, &c) == DEFT_OK);
    cr_assert(find(c, "a", NULL) == -1);
    char text[] = "a"; /* the key is copied: changing the caller's bytes changes nothing */
    cr_assert(add(c, m, text, 1, 10) == DEFT_OK);
    text[0] = 'z';
    cr_assert(add(c, m, "ab", 2, 10) == DEFT_OK && add(c, m, "", 3, 10) == DEFT_OK);
    cr_assert(find(c, "a", NULL) == 1 && find(c, "ab", NULL) == 2 && find(c, "", NULL) == 3);
    cr_assert(find(c, "b", NULL) == -1 && find(c, "z", NULL) == -1);
    df_cache_stats s = df_cache_stats_get(c);
    cr_assert(s.hits == 3 && s.misses == 3 && s.rejected == 0 && s.entries == 3);
    cr_assert(s.bytes > 33 && s.evictions == 0 && s.collisions == 0);

    /* A reference outlives its entry and the cache. */
    const df_cache_key k = key_of("ab");
    df_counted *held = df_cache_find(c, &k, NULL, NULL);
    cr_assert(df_cache_remove(c, &k, NULL, NULL) == 1 && df_cache_remove(c, &k, NULL, NULL) == 0);
    cr_assert(find(c, "ab", NULL) == -1 && n_destroyed == 0);
    df_cache_clear(c);
    s = df_cache_stats_get(c);
    cr_assert(n_destroyed == 2 && s.entries == 0 && s.bytes == 0 && s.hits == 4);
    cr_assert(add(c, m, "a", 4, 10) == DEFT_OK && find(c, "a", NULL) == 4);
    df_cache_destroy(&c);
    cr_assert(!c && n_destroyed == 3 && ((value *)held)->id == 2);
    df_counted_drop(&held);
    cr_assert(n_destroyed == 4);
    df_cache_destroy(&c);
    finish(&f);
}

/* The fault this guards against: a colliding hash taken for equality replays another program. */
Test(cache, colliding_hashes_never_mix_values)
{
    fail_mem *f = fail_mem_create();
    const df_mem *const m = fail_mem_get(f);
    df_cache *c = NULL;
    cr_assert(df_cache_create(m, &(df_cache_options){ .hash_bits = 65 }, &c) == DEFT_E_ARG && !c);
    for (unsigned bits = 1; bits <= 64; bits += 21) {
        cr_assert(df_cache_create(m, &(df_cache_options){ .hash_bits = bits }, &c) == DEFT_OK);
        char key[16];
        for (int i = 0; i < 300; i++) {
            snprintf(key, sizeof key, "key %03d", i); /* all of one length */
            cr_assert(add(c, m, key, i, 1) == DEFT_OK);
        }
        for (int i = 0; i < 300; i++) {
            snprintf(key, sizeof key, "key %03d", i);
            cr_assert(find(c, key, NULL) == i, "%u bits: %s gave another value", bits, key);
        }
        for (int i = 300; i < 400; i++) {
            snprintf(key, sizeof key, "key %03d", i);
            cr_assert(find(c, key, NULL) == -1, "%u bits: %s was never added", bits, key);
        }
        /* Keys that differ in length alone. */
        cr_assert(find(c, "key 00", NULL) == -1 && find(c, "key 0000", NULL) == -1);
        const df_cache_stats s = df_cache_stats_get(c);
        cr_assert(bits > 1 ? s.collisions == 0 : s.collisions > 10000, "%u bits: %llu collisions",
                  bits, (unsigned long long)s.collisions);
        df_cache_destroy(&c);
    }
    finish(&f);
}

Test(cache, several_entries_under_one_key)
{
    fail_mem *f = fail_mem_create();
    const df_mem *const m = fail_mem_get(f);
    df_cache *c = NULL;
    cr_assert(df_cache_create(m, NULL, &c) == DEFT_OK);
    for (int i = 0; i < 5; i++) cr_assert(add(c, m, "same", i, 1) == DEFT_OK);
    char key[16];
    for (int i = 0; i < 1000; i++) { /* the table grows several times around them */
        snprintf(key, sizeof key, "%d", i);
        cr_assert(add(c, m, key, 100 + i, 1) == DEFT_OK);
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "%d", i);
        cr_assert(find(c, key, NULL) == 100 + i);
    }
    for (int i = 0; i < 5; i++) cr_assert(find(c, "same", &i) == i);
    cr_assert(find(c, "same", NULL) == 4, "the youngest is tried first");
    int none = 9;
    cr_assert(find(c, "same", &none) == -1 && find(c, "other", &none) == -1);
    df_cache_stats s = df_cache_stats_get(c);
    cr_assert(s.rejected == 1 && s.misses == 2 && s.hits == 1006 && s.entries == 1005);
    const df_cache_key k = key_of("same");
    int two = 2;
    cr_assert(df_cache_remove(c, &k, id_is, &two) == 1 && find(c, "same", &two) == -1);
    cr_assert(df_cache_remove(c, &k, NULL, NULL) == 4 && n_destroyed == 5);
    df_cache_destroy(&c);
    finish(&f);
}

Test(cache, evicts_the_least_recently_used_by_bytes)
{
    fail_mem *f = fail_mem_create();
    const df_mem *const m = fail_mem_get(f);
    df_cache *c = NULL;
    cr_assert(df_cache_create(m, NULL, &c) == DEFT_OK);
    cr_assert(add(c, m, "x", 0, 1000) == DEFT_OK);
    const size_t one = df_cache_stats_get(c).bytes;
    cr_assert(one > 1000 && one < 1200);
    df_cache_destroy(&c);

    cr_assert(df_cache_create(m, &(df_cache_options){ .max_bytes = 3 * one }, &c) == DEFT_OK);
    cr_assert(!add(c, m, "a", 1, 1000) && !add(c, m, "b", 2, 1000) && !add(c, m, "c", 3, 1000));
    cr_assert(df_cache_stats_get(c).bytes == 3 * one && df_cache_stats_get(c).evictions == 0);
    cr_assert(find(c, "a", NULL) == 1); /* now b is the oldest in use */
    cr_assert(!add(c, m, "d", 4, 1000));
    cr_assert(find(c, "b", NULL) == -1 && find(c, "a", NULL) == 1 && find(c, "c", NULL) == 3 &&
              find(c, "d", NULL) == 4);
    /* A larger one pushes out as many as it takes, oldest first: a and c. */
    cr_assert(!add(c, m, "e", 5, 1500));
    df_cache_stats s = df_cache_stats_get(c);
    cr_assert(find(c, "a", NULL) == -1 && find(c, "c", NULL) == -1 && find(c, "d", NULL) == 4 &&
              find(c, "e", NULL) == 5);
    cr_assert(s.evictions == 3 && s.entries == 2 && s.bytes <= 3 * one);
    /* Exactly the bound fits, one byte more does not and costs nobody his place. */
    const size_t room = 3 * one - (one - 1000);
    n_destroyed = 0;
    cr_assert(add(c, m, "f", 6, room + 1) == DEFT_E_LIMIT && n_destroyed == 1);
    cr_assert(add(c, m, "f", 6, SIZE_MAX) == DEFT_E_LIMIT && n_destroyed == 2);
    cr_assert(find(c, "d", NULL) == 4 && find(c, "e", NULL) == 5);
    cr_assert(add(c, m, "f", 6, room) == DEFT_OK && find(c, "f", NULL) == 6);
    s = df_cache_stats_get(c);
    cr_assert(s.entries == 1 && s.bytes == 3 * one && n_destroyed == 4);
    df_cache_destroy(&c);
    finish(&f);
}

/* A destroy callback may come back to the cache: it must not hold its lock. */
typedef struct reentrant {
    df_counted ref;
    df_cache *cache;
    int found;
} reentrant;

static void reentrant_destroy(df_counted *self)
{
    reentrant *const r = (reentrant *)self;
    r->found = find(r->cache, "b", NULL);
}

Test(cache, destroy_callbacks_run_without_the_lock, .timeout = 10)
{
    df_cache *c = NULL;
    cr_assert(df_cache_create(&df_mem_system, &(df_cache_options){ .max_bytes = 1500 }, &c) == 0);
    reentrant r = { .cache = c, .found = -2 };
    df_counted_init(&r.ref, reentrant_destroy);
    const df_cache_key k = key_of("a");
    cr_assert(df_cache_add(c, &k, &r.ref, 1000) == DEFT_OK);
    cr_assert(add(c, &df_mem_system, "b", 2, 1000) == DEFT_OK);
    cr_assert(r.found == 2, "destroyed before the new entry was in place, or not at all");
    df_cache_destroy(&c);
}

Test(cache, survives_each_failed_allocation)
{
    fail_mem *f = fail_mem_create();
    const df_mem *const m = fail_mem_get(f);
    size_t n = 0;
    for (bool whole = false; !whole;) {
        cr_assert(++n < 1000);
        fail_mem_at(f, n, false);
        df_cache *c = NULL;
        deft_status st = df_cache_create(m, NULL, &c);
        cr_assert(st == DEFT_OK ? c != NULL : st == DEFT_E_MEMORY && !c);
        whole = st == DEFT_OK;
        char key[16];
        for (int i = 0; c && i < 100; i++) { /* more than the first table holds */
            snprintf(key, sizeof key, "%d", i);
            const df_cache_key k = key_of(key);
            df_counted *const v = value_new(m, i);
            if (!v) {
                whole = false;
                continue;
            }
            st = df_cache_add(c, &k, v, 1);
            cr_assert(st == DEFT_OK || st == DEFT_E_MEMORY);
            cr_assert(find(c, key, NULL) == (st == DEFT_OK ? i : -1));
            if (st) whole = false;
        }
        /* A table that could not grow is no failure: all entries stay reachable. */
        if (c) {
            size_t reachable = 0;
            for (int i = 0; i < 100; i++) {
                snprintf(key, sizeof key, "%d", i);
                reachable += find(c, key, NULL) == i;
            }
            cr_assert(reachable == df_cache_stats_get(c).entries);
            cr_assert(reachable >= 99);
        }
        if (whole && fail_mem_count(f).failed == n) whole = false; /* only the growth failed */
        df_cache_destroy(&c);
        cr_assert(fail_mem_count(f).live_blocks == 0, "leak when call %zu fails", n);
    }
    cr_assert(n > 200, "only %zu calls were failed", n);
    finish(&f);
}

enum { N_THREADS = 4, N_ROUNDS = 2000, N_KEYS = 32 };

static void *hammer(void *user)
{
    df_cache *const c = user;
    uint32_t random = (uint32_t)(uintptr_t)&random;
    intptr_t wrong = 0;
    for (int i = 0; i < N_ROUNDS; i++) {
        random = random * 1664525u + 1013904223u;
        const int id = (int)(random >> 16) % N_KEYS;
        char key[16];
        snprintf(key, sizeof key, "%d", id);
        const int got = find(c, key, NULL);
        wrong += got != -1 && got != id;
        if (got == -1 && add(c, &df_mem_system, key, id, 100) != DEFT_OK) wrong++;
    }
    return (void *)wrong;
}

Test(cache, threads_share_it)
{
    df_cache *c = NULL;
    const df_cache_options o = { .max_bytes = 4000, .hash_bits = 2 };
    cr_assert(df_cache_create(&df_mem_system, &o, &c) == DEFT_OK);
    pthread_t thread[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) cr_assert(pthread_create(&thread[i], NULL, hammer, c) == 0);
    for (int i = 0; i < N_THREADS; i++) {
        void *wrong = NULL;
        pthread_join(thread[i], &wrong);
        cr_assert(wrong == NULL);
    }
    const df_cache_stats s = df_cache_stats_get(c);
    cr_assert(s.hits + s.misses == N_THREADS * N_ROUNDS && s.bytes <= 4000 && s.evictions > 0);
    const uint64_t added = s.misses;
    df_cache_destroy(&c);
    cr_assert((uint64_t)n_destroyed == added, "%d of %llu destroyed", (int)n_destroyed,
              (unsigned long long)added);
}
