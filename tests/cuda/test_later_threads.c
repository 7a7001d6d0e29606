/* SPDX-License-Identifier: Apache-2.0
 *
 * Two queues of one GPU run one plan from two threads, their inputs now aligned, now not, while
 * entries are compiled beside them and arrive; plans and devices come and go. Results have the
 * interpreter's bits. Run under the thread sanitizer, too.
 *
 *   test_later_threads DRIVER NVRTC CUBLASLT
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "trial.h"

enum { N_THREADS = 2, N_DEVICES = 3, N_ROUNDS = 12, N_TEXTS = 3 };

static const char *const texts[N_TEXTS] = {
    "%0 = input f32[40]\n%1 = exp f32[40] %0\noutput %1\n",
    "%0 = input f32[40]\n%1 = sqrt f32[40] %0\n%2 = neg f32[40] %1\noutput %2\n",
    "%0 = input f32[9,24]\n%1 = sum f32[9] %0 axes=[1]\noutput %1\n",
};

typedef struct worker {
    bench b; /* a queue of its own */
    program p[N_TEXTS];
    df_plan *const *plan; /* everybody's */
    uint32_t seed;
} worker;

static void *work(void *user)
{
    worker *const w = user;
    for (uint32_t i = w->seed; i < w->seed + N_ROUNDS; i++) {
        program *const p = &w->p[i % N_TEXTS];
        if (i / 2 % 2)
            bench_run(p, &w->b, w->plan[i % N_TEXTS], false);
        else
            bench_run_shifted(p, &w->b, w->plan[i % N_TEXTS]);
        if (i % 7 == 3) w->b.dev->far->settle(w->b.dev);
    }
    return NULL;
}

static void run_all(df_device *cpu)
{
    fail_mem *mem = fail_mem_create();
    bench b = { .mem = mem };
    df_diag d = { 0 };
    worker w[N_THREADS];
    df_plan *plan[N_TEXTS];
    pthread_t thread[N_THREADS];
    if (bench_open(&b, &d) != DEFT_OK) trial_fault("device", "not opened", d.text);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        w[i] = (worker){ .b = { .mem = mem, .dev = b.dev }, .plan = plan, .seed = i };
        if (b.dev->far->queue_create(b.dev, &d, NULL, &w[i].b.q) != DEFT_OK)
            trial_fault("queue", "not made", d.text);
        for (uint32_t j = 0; j < N_TEXTS; j++)
            if (!program_parse(&w[i].p[j], "threads", texts[j], strlen(texts[j]), cpu))
                trial_fault("threads", "no program", w[i].p[j].d.text);
    }
    for (uint32_t j = 0; j < N_TEXTS; j++) plan[j] = bench_plan(&w[0].p[j], &b, &d);
    for (uint32_t i = 0; i < N_THREADS; i++)
        if (pthread_create(&thread[i], NULL, work, &w[i]) != 0) trial_fault("threads", "none", "");
    for (uint32_t i = 0; i < N_THREADS; i++) pthread_join(thread[i], NULL);
    for (uint32_t j = 0; j < N_TEXTS; j++) bench_drop(&b, &plan[j]);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        b.dev->far->queue_destroy(b.dev, &w[i].b.q);
        for (uint32_t j = 0; j < N_TEXTS; j++) program_finish(&w[i].p[j]);
    }
    bench_close(&b);
    if (fail_mem_count(mem).live_blocks) trial_fault("at the end", "memory leaks", "");
    fail_mem_destroy(&mem);
    trial_counts.cases++;
}

int main(int argc, char **argv)
{
    df_device *cpu = NULL;
    if (argc < 4 || !trial_begin(argv, &cpu)) return 2;
    for (int i = 0; i < N_DEVICES; i++) run_all(cpu);
    return trial_end(&cpu) ? 0 : 1;
}
