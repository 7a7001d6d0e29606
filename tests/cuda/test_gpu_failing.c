/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU through gpu.h, with a stand-in for its driver, where things fail: every call of the driver
 * and of the host's allocator in turn, calls that end things, and all of them in a forked child.
 *
 *   test_gpu_failing LIBCUDA-STANDIN
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu_world.h"
#include "jit_cuda/driver/gpu_internal.h"

enum { PIECE = 4096, NOT_SUPPORTED = 801 };

static const df_gpu_options small = { .piece = PIECE };

/* ---- forks ---- */

static int in_child(gpu_world *w, df_buffer *b, df_buffer *cached, df_queue *second)
{
    df_diag d = { 0 };
    df_gpu *g = NULL;
    df_queue *q = NULL;
    df_buffer *c = NULL;
    char byte;
    const char *const words = "forked from one that had used CUDA";
    const deft_status bad = DEFT_E_BACKEND;
    const long calls = in.count(NULL);
    CHECK_SAYS(df_queue_wait(w->q[0], &d), &d, bad, words);
    CHECK_SAYS(df_queue_put(w->q[0], &d, at(b), "x", 1), &d, bad, words);
    CHECK_SAYS(df_queue_get(w->q[0], &d, &byte, at(b), 1), &d, bad, words);
    CHECK_SAYS(df_queue_copy(w->q[0], &d, at(b), at(b) + 8, 1), &d, bad, words);
    CHECK_SAYS(df_queue_after(w->q[0], &d, w->q[1]), &d, bad, words);
    CHECK_SAYS(df_gpu_buffer(w->q[0], &d, 8, &c), &d, bad, words);
    CHECK_SAYS(df_gpu_wrap(w->g[0], &d, b->data, 8, &c), &d, bad, words);
    CHECK_SAYS(df_gpu_used(b, &d, second), &d, bad, words);
    CHECK_SAYS(df_queue_create(&d, w->g[0], NULL, &q), &d, bad, words);
    CHECK_SAYS(df_gpu_open(&d, w->dr, NULL, 1, NULL, &g), &d, bad, words);
    CHECK(!df_queue_is_idle(w->q[0]));
    CHECK(df_gpu_read(w->g[0]).requests == 0);
    df_gpu_trim(w->g[0]);
    df_buffer_drop(&b);
    df_buffer_drop(&cached);
    df_queue_destroy(&second);
    world_abandon(w);
    CHECK(in.count(NULL) == calls && in.n_misuse() == 0);
    CHECK(fail_mem_count(w->mem).faults == 0);
    fflush(stdout);
    return n_faults ? 1 : 0;
}

/* is_locked: as if another thread had been in the allocator. */
static void forks(bool is_locked)
{
    gpu_world w;
    df_diag d = { 0 };
    df_queue *second = NULL;
    char back[4] = "";
    int status = 1;
    world_open(&w, STANDIN_LATE, 1, NULL);
    CHECK(df_queue_create(&d, w.g[0], NULL, &second) == DEFT_OK);
    df_buffer *b = make(w.q[0], 64), *c = make(w.q[0], 64), *e = make(w.q[0], 64);
    CHECK(df_gpu_used(b, &d, second) == DEFT_OK);
    CHECK(df_queue_put(w.q[0], &d, at(b), "abc", 4) == DEFT_OK);
    df_buffer_drop(&e);
    fflush(stdout);
    if (is_locked) pthread_mutex_lock(&w.g[0]->lock);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(20);
        _exit(in_child(&w, b, c, second));
    }
    if (is_locked) pthread_mutex_unlock(&w.g[0]->lock);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(df_queue_get(w.q[0], &d, back, at(b), 4) == DEFT_OK && strcmp(back, "abc") == 0);
    df_buffer_drop(&b);
    df_buffer_drop(&c);
    df_queue_destroy(&second);
    world_close(&w);
}

/* ---- everything fails once ---- */

#define DO(call)                                                                                   \
    do {                                                                                           \
        st = (call);                                                                               \
        if (st != DEFT_OK) goto done;                                                              \
    } while (0)

/* Goes through all calls; the first failure ends it. */
static deft_status scenario(gpu_world *w, df_diag *d)
{
    enum { BIG = 5 * PIECE + 3 };
    static char big[BIG], back[BIG];
    deft_status st = DEFT_OK;
    df_queue *second = NULL;
    df_buffer *b = NULL, *c = NULL, *e = NULL, *far = NULL, *theirs = NULL;
    fill(big, BIG, 1);
    DO(df_queue_create(d, w->g[0], NULL, &second));
    DO(df_gpu_buffer(w->q[0], d, BIG, &b));
    DO(df_gpu_buffer(w->q[0], d, BIG, &c));
    DO(df_queue_put(w->q[0], d, at(b), big, BIG));
    DO(df_queue_copy(w->q[0], d, at(c), at(b), BIG));
    DO(df_queue_get(w->q[0], d, back, at(c), BIG));
    CHECK(is_filled(back, BIG, 1));
    DO(df_gpu_used(c, d, second));
    DO(df_gpu_used(b, d, second));
    DO(df_queue_after(second, d, w->q[0]));
    DO(df_queue_copy(second, d, at(c), at(b), 64));
    df_buffer_drop(&c);
    DO(df_gpu_buffer(second, d, BIG, &c));
    DO(df_gpu_buffer(second, d, BIG, &e));
    for (uint32_t i = 0; i < 2 * DF_QUEUE_NOTES_MARK; i++)
        DO(df_queue_launched(w->q[0], d, &(df_launch_note){ .number = i }));
    DO(df_gpu_buffer(w->q[1], d, 100, &far));
    DO(df_queue_copy_peer(w->q[1], d, at(far), w->q[0], at(b), 100));
    DO(df_queue_get(w->q[1], d, back, at(far), 100));
    CHECK(is_filled(back, 100, 1));
    DO(df_gpu_wrap(w->g[0], d, b->data, 100, &theirs));
    (void)df_queue_is_idle(second);
    DO(df_queue_wait(second, d));
done:
    df_buffer_drop(&theirs);
    df_buffer_drop(&b);
    df_buffer_drop(&c);
    df_buffer_drop(&e);
    df_buffer_drop(&far);
    df_gpu_trim(w->g[0]);
    df_queue_destroy(&second);
    return st;
}

static void every_call_fails(int code, standin_mode mode)
{
    long n = 0, n_seen = 0;
    for (bool was_reached = true; was_reached && n < 1000; n++) {
        gpu_world w;
        df_diag d = { 0 };
        world_open(&w, mode, (uint32_t)n, &small);
        in.fail(NULL, n + 1, code);
        const deft_status st = scenario(&w, &d);
        was_reached = in.fails_waiting() == 0;
        in.fail(NULL, 0, 0);
        if (st != DEFT_OK) {
            n_seen++;
            CHECK(st == (code == DF_CU_OUT_OF_MEMORY ? DEFT_E_MEMORY : DEFT_E_BACKEND));
            if (!CHECK(d.status == st && strstr(d.text, "cuda: GPU ")))
                printf("call %ld, %d: %d %s\n", n, code, st, d.text);
        }
        const deft_status again = scenario(&w, &d);
        if (was_reached && !CHECK(again == DEFT_OK)) printf("call %ld, %d: %s\n", n, code, d.text);
        world_close(&w);
    }
    CHECK(n > 50 && n < 1000 && n_seen > 40);
}

static void every_open_fails(void)
{
    bool opened = false;
    for (long n = 1; !opened && n < 200; n++) {
        gpu_world w = { .mem = fail_mem_create() };
        df_diag d = { 0 };
        standin_alive l;
        in.reset();
        in.fail(NULL, n, NOT_SUPPORTED);
        opened = world_try(&w, &d, NULL);
        if (!opened) CHECK_SAYS(d.status, &d, DEFT_E_BACKEND, "NOT_SUPPORTED");
        if (opened) CHECK(n > 15);
        if (opened) world_abandon(&w);
        in.leaks(&l);
        if (!CHECK(l.contexts == 0 && l.streams == 0 && in.n_misuse() == 0))
            printf("call %ld: %s\n", n, in.misuse());
        CHECK(fail_mem_count(w.mem).live_blocks == 0);
        fail_mem_destroy(&w.mem);
    }
    CHECK(opened);
}

/* Calls that give back fail: nothing crashes, and what can be given back later is. */
static void ends_fail(void)
{
    static const char *const symbols[] = { "cuCtxPushCurrent_v2", "cuStreamSynchronize",
                                           "cuEventSynchronize",  "cuMemFree_v2",
                                           "cuEventRecord",       "cuStreamWaitEvent",
                                           "cuEventCreate" };
    for (size_t i = 0; i < DF_LEN(symbols); i++) {
        gpu_world w;
        df_diag d = { 0 };
        df_queue *second = NULL;
        world_open(&w, STANDIN_LATE, 1, NULL);
        CHECK(df_queue_create(&d, w.g[0], NULL, &second) == DEFT_OK);
        df_buffer *b = make(w.q[0], 4096), *c = make(w.q[0], 4096);
        CHECK(df_gpu_used(b, &d, second) == DEFT_OK);
        CHECK(df_queue_copy(second, &d, at(b), at(c), 4096) == DEFT_OK);
        in.fail_always(symbols[i], NOT_SUPPORTED);
        df_buffer_drop(&b);
        df_buffer_drop(&c);
        df_gpu_trim(w.g[0]);
        if (strcmp(symbols[i], "cuCtxPushCurrent_v2") != 0) df_queue_destroy(&second);
        in.fail_always(symbols[i], 0);
        df_queue_destroy(&second);
        world_close(&w);
    }
}

/* The process ends, and the driver is gone before we are. */
static void driver_is_gone(void)
{
    gpu_world w;
    df_diag d = { 0 };
    df_queue *second = NULL;
    char byte = 0;
    world_open(&w, STANDIN_LATE, 1, NULL);
    CHECK(df_queue_create(&d, w.g[0], NULL, &second) == DEFT_OK);
    df_buffer *b = make(w.q[0], 4096), *c = make(w.q[0], 4096);
    CHECK(df_gpu_used(b, &d, second) == DEFT_OK);
    CHECK(df_queue_put(w.q[0], &d, at(b), &byte, 1) == DEFT_OK);
    df_buffer_drop(&c);
    in.fail_always(NULL, DF_CU_DEINITIALIZED);
    CHECK_SAYS(df_queue_wait(w.q[0], &d), &d, DEFT_E_BACKEND, "CUDA_ERROR_DEINITIALIZED (4)");
    df_buffer_drop(&b);
    df_gpu_trim(w.g[0]);
    df_queue_destroy(&second);
    world_abandon(&w);
    CHECK(fail_mem_count(w.mem).live_blocks == 0 && fail_mem_count(w.mem).faults == 0);
    fail_mem_destroy(&w.mem);
    in.reset();
}

static void every_allocation_fails(void)
{
    bool was_reached = true;
    size_t n = 1, n_failed = 0;
    for (; was_reached && n < 1000; n++) {
        gpu_world w = { .mem = fail_mem_create() };
        df_diag d = { 0 };
        in.reset();
        in.when(STANDIN_LATE, 1);
        fail_mem_at(w.mem, n, false);
        deft_status st = DEFT_OK;
        if (!world_try(&w, &d, &small))
            st = d.status;
        else
            st = scenario(&w, &d);
        was_reached = fail_mem_count(w.mem).failed > 0;
        n_failed += st != DEFT_OK;
        if (st != DEFT_OK) CHECK(st == DEFT_E_MEMORY && d.status == st && d.text[0]);
        fail_mem_at(w.mem, 0, false);
        if (w.dr) CHECK(scenario(&w, &d) == DEFT_OK);
        world_close(&w);
    }
    CHECK(n > 10 && n < 1000 && n_failed > 8);
}

int main(int argc, char **argv)
{
    if (!worlds_begin(argc, argv)) return 2;
    forks(false);
    forks(true);
    every_open_fails();
    every_call_fails(NOT_SUPPORTED, STANDIN_LATE);
    every_call_fails(NOT_SUPPORTED, STANDIN_RANDOM);
    every_call_fails(DF_CU_OUT_OF_MEMORY, STANDIN_LATE);
    ends_fail();
    driver_is_gone();
    every_allocation_fails();
    return worlds_end();
}
