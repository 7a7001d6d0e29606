/* SPDX-License-Identifier: Apache-2.0
 *
 * Two contexts of one runtime, each on a thread of its own, whose steps run on a third and a fourth
 * while they go on recording; an interrupter hits both. Every step has taken effect whole or not at
 * all, and when it was reported to: so that a program which counts knows each value.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "deft/deft.h"

enum { N_THREADS = 2, N_STEPS = 5000, N = 5000 };

typedef struct thread {
    pthread_t handle;
    deft_ctx *cx;
    uint64_t random;
    int n_interrupted, n_submitted;
} thread;

static float ones[N];
static deft_runtime *rt;
static thread threads[N_THREADS];
static atomic_bool stop;
static atomic_int n_wrong;

static uint32_t draw(uint64_t *random, uint32_t n)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*random >> 33) % n);
}

static void wrong(const char *what, long n)
{
    if (atomic_fetch_add(&n_wrong, 1) < 10) printf("wrong: %s (%ld)\n", what, n);
}

/* Counters a and b go up by one in each step; known: their value before the step in flight, and
 * whether there is one. */
typedef struct counters {
    deft_tensor *a, *b;
    float known;
    bool in_flight;
} counters;

/* A call that waits has given st. */
static bool settled(thread *t, counters *c, deft_status st)
{
    if (st != DEFT_OK && st != DEFT_E_INTERRUPTED) wrong(deft_message(t->cx), (long)st);
    t->n_interrupted += st != DEFT_OK;
    const bool was_in_flight =
        st == DEFT_OK || strncmp(deft_message(t->cx), "step submitted at ", 18) == 0;
    if (!was_in_flight) return false; /* it was the call itself */
    if (c->in_flight && st == DEFT_OK) c->known += 1;
    c->in_flight = false;
    return st == DEFT_OK;
}

static void look(thread *t, counters *c)
{
    float v[2][N];
    for (int i = 0; i < 2; i++) {
        deft_tensor *const x = i ? c->b : c->a;
        deft_status st;
        do {
            st = deft_read(x, DEFT_F32, v[i], sizeof v[i]);
            (void)settled(t, c, st);
        } while (st == DEFT_E_INTERRUPTED);
    }
    if (v[0][0] != c->known || v[0][N - 1] != c->known) wrong("a", (long)v[0][0]);
    if (v[1][0] != 2 * c->known || v[1][N - 1] != 2 * c->known) wrong("b", (long)v[1][0]);
}

static void step(thread *t, counters *c)
{
    const deft_scope s = deft_step_begin(t->cx);
    /* Ends with the step, while it is being read. */
    deft_tensor *const one = deft_from(t->cx, DEFT_SHAPE(N), DEFT_F32, ones, sizeof ones);
    deft_assign(c->a, deft_add(c->a, one));
    deft_assign(c->b, deft_add(c->a, c->a));
    for (uint32_t n = draw(&t->random, 8); n > 0; n--) {
        deft_tensor *x = deft_keep(deft_mul(c->b, 2));
        deft_drop(&x);
    }
    if (draw(&t->random, 20) == 0) {
        (void)settled(t, c, deft_wait(t->cx));
        /* Whether it failed or not: nothing of this one. */
        deft_step_abort(s);
        return;
    }
    if (settled(t, c, deft_step_submit(s))) c->in_flight = true;
}

static void *work(void *user)
{
    thread *const t = user;
    static const float zeros[N];
    counters c = { deft_keep(deft_from(t->cx, DEFT_SHAPE(N), DEFT_F32, zeros, sizeof zeros)),
                   deft_keep(deft_from(t->cx, DEFT_SHAPE(N), DEFT_F32, zeros, sizeof zeros)), 0,
                   false };
    for (int i = 0; i < N_STEPS; i++) {
        step(t, &c);
        if (draw(&t->random, 7) == 0) look(t, &c);
        if (draw(&t->random, 50) == 0) {
            char text[512];
            deft_stats stats;
            deft_stats_read(t->cx, &stats, sizeof stats);
            (void)deft_explain(t->cx, text, sizeof text);
            (void)deft_show(t->cx, "plan", text, sizeof text);
            deft_runtime_trim(rt);
        }
    }
    look(t, &c);
    deft_stats stats;
    deft_stats_read(t->cx, &stats, sizeof stats);
    t->n_submitted = (int)stats.submitted;
    deft_drop(&c.a);
    deft_drop(&c.b);
    return NULL;
}

static void *interrupt(void *user)
{
    uint64_t random = 7;
    (void)user;
    while (!atomic_load(&stop)) {
        deft_interrupt(threads[draw(&random, N_THREADS)].cx);
        nanosleep(&(struct timespec){ .tv_nsec = draw(&random, 2000000) }, NULL);
    }
    return NULL;
}

int main(void)
{
    const deft_runtime_options o = { .size = sizeof o, .n_threads = 2 };
    pthread_t interrupter;
    int n_interrupted = 0, n_submitted = 0;
    for (int i = 0; i < N; i++) ones[i] = 1;
    if (deft_runtime_create(&o, &rt) != DEFT_OK) return 1;
    for (int i = 0; i < N_THREADS; i++) {
        threads[i].random = (uint64_t)i + 1;
        if (deft_ctx_create(rt, NULL, &threads[i].cx) != DEFT_OK) return 1;
    }
    for (int i = 0; i < N_THREADS; i++)
        if (pthread_create(&threads[i].handle, NULL, work, &threads[i]) != 0) return 1;
    if (pthread_create(&interrupter, NULL, interrupt, NULL) != 0) return 1;
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i].handle, NULL);
    atomic_store(&stop, true);
    pthread_join(interrupter, NULL);
    for (int i = 0; i < N_THREADS; i++) {
        n_interrupted += threads[i].n_interrupted;
        n_submitted += threads[i].n_submitted;
        deft_ctx_destroy(&threads[i].cx);
    }
    deft_runtime_destroy(&rt);
    printf("%d steps, %d interrupted, %d wrong\n", n_submitted, n_interrupted,
           atomic_load(&n_wrong));
    if (n_interrupted == 0 || n_submitted == 0) printf("something never happened\n");
    return atomic_load(&n_wrong) != 0 || n_interrupted == 0 || n_submitted == 0;
}
