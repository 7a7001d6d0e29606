/* SPDX-License-Identifier: Apache-2.0
 *
 * One cache, several threads, small enough that entries are evicted while others hold their values.
 * A plain program, so that it also runs under the thread sanitizer.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/cache.h"

enum { N_THREADS = 4, N_ROUNDS = 5000, N_KEYS = 48 };

typedef struct value {
    df_counted ref;
    int id;
    int payload; /* written by the adder, read by finders: ordered by the cache alone */
} value;

static atomic_int n_made, n_destroyed, n_wrong;

static void value_destroy(df_counted *self)
{
    value *const v = (value *)self;
    if (v->payload != v->id * 3) atomic_fetch_add(&n_wrong, 1);
    v->payload = -1;
    atomic_fetch_add(&n_destroyed, 1);
    free(v);
}

static bool any(const df_counted *v, void *user)
{
    return ((const value *)v)->id == *(int *)user;
}

static void *work(void *user)
{
    df_cache *const c = user;
    uint32_t random = (uint32_t)(uintptr_t)&random;
    for (int i = 0; i < N_ROUNDS; i++) {
        random = random * 1664525u + 1013904223u;
        int id = (int)(random >> 16) % N_KEYS;
        const df_cache_key key = df_cache_key_make(&id, sizeof id);
        df_counted *found = df_cache_find(c, &key, any, &id);
        if (found) {
            if (((value *)found)->payload != id * 3) atomic_fetch_add(&n_wrong, 1);
            df_counted_drop(&found);
            if (random % 97 == 0) df_cache_remove(c, &key, any, &id);
        } else {
            value *const v = malloc(sizeof *v);
            if (!v) return NULL;
            df_counted_init(&v->ref, value_destroy);
            v->id = id;
            v->payload = id * 3;
            atomic_fetch_add(&n_made, 1);
            if (df_cache_add(c, &key, &v->ref, 100) != DEFT_OK) atomic_fetch_add(&n_wrong, 1);
        }
        if (random % 1009 == 0) df_cache_clear(c);
    }
    return NULL;
}

int main(void)
{
    df_cache *c = NULL;
    const df_cache_options o = { .max_bytes = 5000, .hash_bits = 3 };
    if (df_cache_create(&df_mem_system, &o, &c) != DEFT_OK) return 1;
    pthread_t thread[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        if (pthread_create(&thread[i], NULL, work, c) != 0) return 1;
    for (int i = 0; i < N_THREADS; i++) pthread_join(thread[i], NULL);
    const df_cache_stats s = df_cache_stats_get(c);
    df_cache_destroy(&c);
    printf("made %d destroyed %d wrong %d hits %llu evictions %llu\n", n_made, n_destroyed, n_wrong,
           (unsigned long long)s.hits, (unsigned long long)s.evictions);
    return n_wrong || n_made != n_destroyed || s.hits + s.misses != N_THREADS * N_ROUNDS ||
           s.hits == 0 || s.evictions == 0;
}
