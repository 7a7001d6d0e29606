/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans on the stand-in GPU when something goes wrong (trial.h): runs that are stopped, a compiler
 * that refuses, a GPU newer than it, every driver call and every allocation failing in turn. A
 * failed run leaves no root and changes no input, nothing leaks, and the next run is right.
 *
 *   device_failing DRIVER NVRTC CUBLASLT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trial.h"
#include "../support/budget.h"

static const char taking[] =
    "%0 = input f32[20,3]\n%1 = input i64[7]\n%2 = take f32[7,3] %0 %1 axis=0\n"
    "%3 = exp f32[7,3] %2\n%4 = sum f32[7] %3 axes=[1]\noutput %4\noutput %3\n";

/* ---- being stopped ---- */

typedef struct stopper {
    uint32_t n, at; /* calls so far; which says stop */
} stopper;

static bool says_stop(void *user)
{
    stopper *const s = user;
    return ++s->n == s->at;
}

static void check_interrupted(bench *b, df_device *cpu)
{
    program p;
    df_diag d = { 0 };
    df_plan *plan = NULL;
    if (!program_parse(&p, "interrupted", taking, strlen(taking), cpu) ||
        !(plan = bench_plan(&p, b, &d)))
        trial_fault("interrupted", "no plan", d.text);
    for (uint32_t at = 1; plan && at < 100; at++) {
        trial x;
        stopper s = { .at = at };
        trial_open(&x, &p, b);
        df_launch_io io = { .root = x.root, .queue = b->q, .interrupted = says_stop, .user = &s };
        if (trial_put(&x, &d) != DEFT_OK) trial_fault(p.where, "inputs", d.text);
        const deft_status st =
            b->dev->run(b->dev, &d, plan, &x.t, program_slots(&p, plan, &x.t), &io, NULL);
        if (st != (s.n >= at ? DEFT_E_INTERRUPTED : DEFT_OK))
            trial_fault(p.where, "status", d.text);
        if (st != DEFT_OK) trial_untouched(&x);
        trial_close(&x);
        bench_run(&p, b, plan, false);
        if (st == DEFT_OK) break;
        if (at == 99) trial_fault(p.where, "is asked without end", "");
    }
    bench_drop(b, &plan);
    program_finish(&p);
}

/* ---- the compiler ---- */

/* A program that NVRTC refuses: the sentence says which kernel it is. Then it is compiled. */
static void check_compiler(df_device *cpu)
{
    program p;
    df_diag d = { 0 };
    trial x;
    bench b = { .mem = fail_mem_create() };
    static const char text[] = "%0 = input f32[5]\n%1 = exp f32[5] %0\noutput %1\n";
    if (!program_parse(&p, "compiler", text, strlen(text), cpu) || bench_open(&b, &d) != DEFT_OK)
        trial_fault("compiler", "no program", d.text);
    df_plan *plan = bench_plan(&p, &b, &d);
    df_kernel_about *const about = df_arena_new(&p.arena, df_kernel_about, plan->n_kernels);
    for (uint32_t i = 0; i < plan->n_kernels; i++) about[i].ops = "exp";
    plan->about = about;
    trial_open(&x, &p, &b);
    (void)trial_put(&x, &d);
    nvrtc_fail(1, 6);
    const deft_status st = trial_run(&x, &d, plan, false, NULL);
    if (st != DEFT_E_COMPILE || !strstr(d.text, "fails, as asked (a kernel of exp)"))
        trial_fault(p.where, "no word of it", d.text);
    bench_run(&p, &b, plan, false);
    bench_drop(&b, &plan);
    trial_close(&x);
    bench_close(&b);
    fail_mem_destroy(&b.mem);
    program_finish(&p);
}

/* For a GPU newer than the compiler PTX is made. */
static void check_newer(df_device *cpu)
{
    static const standin_gpu newer = { .major = 99, .bytes = 1 << 28, .n_sms = 2 };
    program p;
    df_diag d = { 0 };
    bench b = { .mem = fail_mem_create() };
    gpu.reset();
    gpu.set_gpus(1, &newer);
    if (!program_parse(&p, "newer", taking, strlen(taking), cpu) || bench_open(&b, &d) != DEFT_OK)
        trial_fault("newer", "no program", d.text);
    else
        bench_check(&p, &b);
    bench_close(&b);
    fail_mem_destroy(&b.mem);
    program_finish(&p);
    gpu.reset();
}

/* ---- failures ---- */

static const char *const fragile[] = {
    "%0 = input f32[600,3]\n%1 = input f32[40]\n%2 = exp f32[600,3] %0\n%3 = exp f32[40] %1\n"
    "%4 = sum f32[3] %2 axes=[0]\noutput %2\noutput %3\noutput %4\n",
    "%0 = input f32[1,70000]\n%1 = sum f32[1] %0 axes=[1]\noutput %1\n",
    "%0 = input f32[9,20]\n%1 = input f32[20,7]\n%2 = matmul f32[9,7] %0 %1\n"
    "%3 = exp f32[9,7] %2\n%4 = input i64[9]\n%5 = input f32[5,7]\n"
    "%6 = index_add f32[5,7] %5 %4 %3 axis=0\noutput %6\n",
};

typedef enum failing { BY_DRIVER, BY_MEMORY } failing;

static void ask_to_fail(failing by, bench *b, long n)
{
    static const int out_of_memory = 2;
    if (by == BY_DRIVER) gpu.fail(NULL, n, out_of_memory);
    if (by == BY_MEMORY) fail_mem_at(b->mem, (size_t)n, false);
}

/* Whether the failure has come; none is left waiting. */
static bool has_come(failing by, bench *b, size_t failed_before)
{
    const bool came =
        by == BY_DRIVER ? gpu.fails_waiting() == 0 : fail_mem_count(b->mem).failed > failed_before;
    fail_mem_at(b->mem, 0, false);
    while (by == BY_DRIVER && gpu.fails_waiting() > 0) (void)b->dev->far->wait(b->dev, NULL, b->q);
    return came;
}

/* A device, a queue, a plan and a run, in which the n-th call fails; then one in which none does.
 * false: it was not reached. */
static bool fail_cold(program *p, failing by, long n)
{
    bench b = { .mem = fail_mem_create() };
    df_diag d = { 0 };
    trial x;
    df_plan *plan = NULL;
    ask_to_fail(by, &b, n);
    deft_status st = bench_open(&b, &d);
    if (st == DEFT_OK) {
        trial_open(&x, p, &b);
        st = trial_put(&x, &d);
        if (st == DEFT_OK && !(plan = bench_plan(p, &b, &d))) st = d.status;
        if (st == DEFT_OK) st = trial_run(&x, &d, plan, false, NULL);
        if (st == DEFT_OK) st = b.dev->far->wait(b.dev, &d, b.q);
        const bool came = has_come(by, &b, 0);
        if (st != DEFT_OK && !came) trial_fault(p->where, "failed by itself", d.text);
        trial_close(&x);
        if (plan) bench_run(p, &b, plan, false);
        bench_drop(&b, &plan);
        bench_close(&b);
        if (st != DEFT_OK && !d.text[0]) trial_fault(p->where, "failed without a sentence", "");
        if (st == DEFT_OK && !came) n = 0;
    } else {
        fail_mem_at(b.mem, 0, false);
        if (!d.text[0]) trial_fault(p->where, "failed without a sentence", "");
        bench_close(&b);
    }
    standin_alive alive;
    gpu.leaks(&alive);
    if (alive.contexts || alive.memory || alive.pinned || alive.streams || alive.events ||
        alive.modules)
        trial_fault(p->where, "something of the driver's is left", d.text);
    const fail_mem_counts c = fail_mem_count(b.mem);
    if (c.live_blocks) trial_fault(p->where, "memory leaks", d.text);
    if (c.faults) trial_fault(p->where, "memory is misused", fail_mem_fault(b.mem));
    fail_mem_destroy(&b.mem);
    trial_misuse(p->where);
    return n != 0;
}

/* Where time is limited every third call fails; the night goes through all. */
static long stride(void)
{
    return test_is_limited() ? 3 : 1;
}

/* In a run that is warm. */
static void fail_warm(program *p, failing by)
{
    bench b = { .mem = fail_mem_create() };
    df_diag d = { 0 };
    df_plan *plan = NULL;
    if (bench_open(&b, &d) != DEFT_OK || !(plan = bench_plan(p, &b, &d)))
        trial_fault(p->where, "no plan", d.text);
    if (plan) bench_run(p, &b, plan, false);
    for (long n = 1; plan; n += stride()) {
        trial x;
        trial_open(&x, p, &b);
        if (trial_put(&x, &d) != DEFT_OK) trial_fault(p->where, "inputs", d.text);
        const size_t before = fail_mem_count(b.mem).failed;
        ask_to_fail(by, &b, n);
        deft_status st = trial_run(&x, &d, plan, false, NULL);
        const bool ran = st == DEFT_OK;
        if (ran) st = b.dev->far->wait(b.dev, &d, b.q);
        const bool came = has_come(by, &b, before);
        if (!ran) trial_untouched(&x);
        if (st != DEFT_OK && !came) trial_fault(p->where, "failed by itself", d.text);
        if (st == DEFT_OK)
            for (uint32_t r = 0; r < p->t->n_roots; r++) trial_check_root(&x, r);
        trial_close(&x);
        bench_run(p, &b, plan, false);
        if (!came) break;
    }
    bench_drop(&b, &plan);
    bench_close(&b);
    fail_mem_destroy(&b.mem);
}

static void check_failures(df_device *cpu)
{
    for (size_t i = 0; i < DF_LEN(fragile); i++) {
        program p;
        long n = 0;
        if (!program_parse(&p, "failures", fragile[i], strlen(fragile[i]), cpu))
            trial_fault("failures", "no program", p.d.text);
        for (failing by = BY_DRIVER; by <= BY_MEMORY; by++) {
            for (n = 1; fail_cold(&p, by, n) && n < 2000;) n += stride();
            printf("failures: up to call %ld of %s\n", n - 1,
                   by == BY_DRIVER ? "the driver" : "memory");
            fail_warm(&p, by);
        }
        program_finish(&p);
    }
}

/* ---- all ---- */

int main(int argc, char **argv)
{
    df_diag d = { 0 };
    df_device *cpu = NULL;
    bench b = { .mem = fail_mem_create() };
    if (argc < 4 || !trial_begin(argv, &cpu)) return 2;
    if (bench_open(&b, &d) != DEFT_OK) {
        printf("%s\n", d.text);
        return 1;
    }
    check_interrupted(&b, cpu);
    bench_close(&b);
    fail_mem_destroy(&b.mem);
    if (!getenv("DEFT_CUDA_TABLE")) check_compiler(cpu); /* else it would go by value */
    check_newer(cpu);
    check_failures(cpu);
    return trial_end(&cpu) ? 0 : 1;
}
