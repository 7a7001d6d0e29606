/* SPDX-License-Identifier: Apache-2.0
 *
 * Two queues of one GPU from two threads, buffers handed from one to the other and dropped there,
 * and a third thread that trims and reads: run under the thread sanitizer, too.
 *
 *   test_gpu_threads LIBCUDA-STANDIN
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "gpu_world.h"

enum { N_ROUNDS = 400, MOST = 3000 };

/* One buffer on its way to the other thread. */
typedef struct desk {
    pthread_mutex_t lock;
    df_buffer *b;
    uint32_t seed;
} desk;

typedef struct worker {
    df_queue *q;
    desk *to, *from;
    uint32_t seed;
    long n_wrong;
} worker;

static atomic_bool is_over;

static void expect(worker *k, bool good)
{
    k->n_wrong += !good;
}

static df_buffer *produce(worker *k, uint32_t seed)
{
    char bytes[MOST];
    df_buffer *b = NULL;
    const uint32_t n = 1 + draw(&k->seed, MOST);
    fill(bytes, n, seed);
    expect(k, df_gpu_buffer(k->q, NULL, n, &b) == DEFT_OK);
    expect(k, df_queue_put(k->q, NULL, at(b), bytes, n) == DEFT_OK);
    return b;
}

/* In this thread's queue, whoever made it. */
static void consume(worker *k, df_buffer *b, uint32_t seed)
{
    char bytes[MOST];
    df_buffer *c = NULL;
    expect(k, df_gpu_used(b, NULL, k->q) == DEFT_OK);
    expect(k, df_gpu_buffer(k->q, NULL, b->bytes, &c) == DEFT_OK);
    expect(k, df_queue_copy(k->q, NULL, at(c), at(b), (size_t)b->bytes) == DEFT_OK);
    df_buffer_drop(&b);
    expect(k, df_queue_get(k->q, NULL, bytes, at(c), (size_t)c->bytes) == DEFT_OK);
    expect(k, is_filled(bytes, (size_t)c->bytes, seed));
    df_buffer_drop(&c);
}

static df_buffer *leave_on(desk *x, df_buffer *b, uint32_t *seed)
{
    pthread_mutex_lock(&x->lock);
    df_buffer *const was = x->b;
    const uint32_t of = x->seed;
    x->b = b;
    x->seed = *seed;
    pthread_mutex_unlock(&x->lock);
    *seed = of;
    return was;
}

static void *go(void *user)
{
    worker *const k = user;
    for (uint32_t i = 1; i <= N_ROUNDS; i++) {
        uint32_t seed = k->seed + i, none = 0;
        df_buffer *b = produce(k, seed);
        consume(k, produce(k, i), i);
        /* All of its work is done before another thread sees it. */
        expect(k, df_queue_wait(k->q, NULL) == DEFT_OK);
        b = leave_on(k->to, b, &seed);
        if (b) consume(k, b, seed);
        b = leave_on(k->from, NULL, &none);
        if (b) consume(k, b, none);
    }
    return NULL;
}

static void *look(void *user)
{
    df_gpu *const g = user;
    while (!atomic_load(&is_over)) {
        df_gpu_trim(g);
        (void)df_gpu_read(g);
        sched_yield();
    }
    return NULL;
}

static void two_threads(uint32_t seed, const df_gpu_options *o)
{
    gpu_world w;
    df_queue *second = NULL;
    desk desks[2] = { { .lock = PTHREAD_MUTEX_INITIALIZER },
                      { .lock = PTHREAD_MUTEX_INITIALIZER } };
    pthread_t t[3];
    world_open(&w, STANDIN_RANDOM, seed, o);
    CHECK(df_queue_create(NULL, w.g[0], NULL, &second) == DEFT_OK);
    worker k[2] = { { w.q[0], &desks[0], &desks[1], 1000, 0 },
                    { second, &desks[1], &desks[0], 900000, 0 } };
    atomic_store(&is_over, false);
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&t[i], NULL, go, &k[i]) == 0);
    CHECK(pthread_create(&t[2], NULL, look, w.g[0]) == 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(t[i], NULL) == 0);
    atomic_store(&is_over, true);
    CHECK(pthread_join(t[2], NULL) == 0);
    CHECK(k[0].n_wrong == 0 && k[1].n_wrong == 0);
    for (int i = 0; i < 2; i++) df_buffer_drop(&desks[i].b);
    df_queue_destroy(&second);
    world_close(&w);
}

int main(int argc, char **argv)
{
    if (!worlds_begin(argc, argv)) return 2;
    two_threads(1, &(df_gpu_options){ .piece = 1024 });
    two_threads(2, &(df_gpu_options){ .piece = 1024, .max_cached = 4000 });
    two_threads(3, &(df_gpu_options){ .piece = 4096, .max_bytes = 200000 });
    return worlds_end();
}
