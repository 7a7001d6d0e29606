/* SPDX-License-Identifier: Apache-2.0
 *
 * Outputs of a graph tree that die on other threads, some of them twice, while calls go on. Each
 * output has a counter for each unit of the pool, raised while it is held: two in one place show.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "replay/tree.h"

enum { N_DROPPERS = 3, N_CALLS = 30000, N_OUT = 3, QUEUE = 64, UNITS = 4096 };

typedef struct handed {
    df_tree_ticket ticket;
    uint64_t offset, bytes;
} handed;

static df_tree *tree;
static atomic_int owners[UNITS];
static atomic_int n_wrong;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static handed queue[QUEUE];
static int n_queue, done;

static deft_status plain(void *self, df_diag *d, df_tree_call *c)
{
    (void)self, (void)d, (void)c;
    return DEFT_OK;
}

static deft_status record(void *self, df_diag *d, df_tree_call *c, const df_tree_placement *p,
                          void **graph, uint64_t *bytes)
{
    (void)self, (void)d, (void)c, (void)p;
    *graph = &tree;
    *bytes = 1;
    return DEFT_OK;
}

static deft_status replay(void *self, df_diag *d, void *graph, df_tree_call *c,
                          const df_tree_placement *p)
{
    (void)self, (void)d, (void)graph, (void)c, (void)p;
    return DEFT_OK;
}

static void drop(void *self, void *graph)
{
    (void)self, (void)graph;
}

static deft_status back(void *self, df_diag *d, uint64_t bytes)
{
    (void)self, (void)d;
    return bytes <= (uint64_t)UNITS * DF_TREE_ALIGN ? DEFT_OK : DEFT_E_MEMORY;
}

static void own(const handed *h, int more)
{
    for (uint64_t i = h->offset; i < h->offset + h->bytes; i += DF_TREE_ALIGN)
        if (atomic_fetch_add(&owners[i / DF_TREE_ALIGN], more) != (more > 0 ? 0 : 1))
            atomic_fetch_add(&n_wrong, 1);
}

static void give_up(const handed *h, uint32_t *random)
{
    *random = *random * 1664525u + 1013904223u;
    if (!df_tree_is_held(tree, h->ticket)) atomic_fetch_add(&n_wrong, 1);
    own(h, -1);
    df_tree_drop(tree, h->ticket);
    if (*random >> 16 & 1) df_tree_drop(tree, h->ticket);
    if (df_tree_is_held(tree, h->ticket)) atomic_fetch_add(&n_wrong, 1);
}

static void *drop_all(void *user)
{
    uint32_t random = (uint32_t)(uintptr_t)user;
    for (bool more = true; more;) {
        handed some[QUEUE / N_DROPPERS];
        int n = 0;
        (void)pthread_mutex_lock(&lock);
        while (n_queue && n < QUEUE / N_DROPPERS) some[n++] = queue[--n_queue];
        more = n || !done;
        (void)pthread_mutex_unlock(&lock);
        while (n) give_up(&some[--n], &random);
    }
    return NULL;
}

static void hand(const df_tree_out *o, uint32_t *random)
{
    const handed h = { o->ticket, o->offset, o->bytes };
    if (!h.ticket) return;
    own(&h, 1);
    (void)pthread_mutex_lock(&lock);
    const bool taken = n_queue < QUEUE;
    if (taken) queue[n_queue++] = h;
    (void)pthread_mutex_unlock(&lock);
    if (!taken) give_up(&h, random);
}

int main(void)
{
    const df_tree_device dev = { NULL, plain, record, replay, drop, back };
    const df_tree_options o = { .learn_after = UINT32_MAX, .window = 1, .pause = 1 };
    pthread_t thread[N_DROPPERS];
    uint32_t random = 1;
    df_diag d = { 0 };
    if (df_tree_create(&d, &df_mem_system, &dev, &o, &tree) != DEFT_OK) return 1;
    for (uintptr_t i = 0; i < N_DROPPERS; i++)
        if (pthread_create(&thread[i], NULL, drop_all, (void *)i) != 0) return 1;
    for (int i = 0; i < N_CALLS; i++) {
        df_tree_out out[N_OUT] = { { .bytes = 256 }, { .bytes = 512 }, { .bytes = 1024 } };
        df_tree_call c = { .fn = i % 4, .arena_bytes = 2048, .out = out, .n_out = N_OUT };
        if (i % 8 == 0) df_tree_begin(tree);
        if (df_tree_run(tree, &d, &c) != DEFT_OK) return 1;
        for (int k = 0; k < N_OUT; k++) hand(&out[k], &random);
    }
    (void)pthread_mutex_lock(&lock);
    done = 1;
    (void)pthread_mutex_unlock(&lock);
    for (int i = 0; i < N_DROPPERS; i++) (void)pthread_join(thread[i], NULL);
    const df_tree_stats s = df_tree_read(tree);
    df_tree_destroy(&tree);
    printf("replayed %llu, placed %llu, held %llu, wrong %d\n",
           (unsigned long long)s.by_action[DF_TREE_REPLAY],
           (unsigned long long)s.by_action[DF_TREE_PLACE], (unsigned long long)s.held, n_wrong);
    return n_wrong || s.held || !s.by_action[DF_TREE_REPLAY] || !s.by_action[DF_TREE_PLACE];
}
