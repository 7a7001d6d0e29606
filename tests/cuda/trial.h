/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs on the stand-in GPU (standin/standin.h) against the interpreter with one kernel per op,
 * bit for bit, all NaNs being equal. What goes wrong is said on stdout and counted.
 */
#ifndef TEST_CUDA_TRIAL_H
#define TEST_CUDA_TRIAL_H

#include "jit_cuda/exec/device.h"
#include "jit_cuda/driver/gpu.h"
#include "runtime/cpu.h"
#include "standin/standin.h"
#include "support/fail_mem.h"

extern standin gpu;
extern void (*nvrtc_fail)(long n, int code); /* standin_nvrtc_fail */

typedef struct trial_counts_type {
    long cases, refused, on_host;
    _Atomic long runs, failed_runs, faults; /* threads may run */
} trial_counts_type;
extern trial_counts_type trial_counts;

extern bool trial_by_graphs; /* --graphs among the arguments: runs are replayed */

/* argv: DRIVER NVRTC CUBLASLT after the program's name; NULL at its end. cpu: what programs are
 * compared with. */
bool trial_begin(char **argv, df_device **cpu);
bool trial_end(df_device **cpu); /* says how it went */

void trial_fault(const char *where, const char *what, const char *more);
void trial_misuse(const char *where); /* is there any? */

/* A GPU with a queue; mem is there before. */
typedef struct bench {
    fail_mem *mem;
    df_device *dev;
    df_queue *q;
} bench;

deft_status bench_open(bench *b, df_diag *d);
void bench_close(bench *b);

/* A program, its inputs, and what it gives. */
typedef struct program {
    const char *where;
    bool is_spoilt; /* the last index lies outside */
    bool is_fast;   /* f32 results may be off by rounding: */
    float most_off; /* how far, over the greatest of a result; 0: sums of few */
    df_arena arena;
    df_diag d;
    df_trace *whole, *t; /* as read; simplified, with inputs on the host */
    df_buffer **host;    /* of inputs */
    deft_status st;      /* of the reference, its sentence in d */
    char **want;         /* per root: its elements, row-major */
    df_device *cpu;
} program;

/* p->whole is there. false: the program has no meaning, as some of tests/expect. */
bool program_open(program *p, df_device *cpu);
/* From text; it is to be finished in any case. */
bool program_parse(program *p, const char *where, const char *text, size_t n, df_device *cpu);
void program_finish(program *p);
int64_t *program_slots(program *p, const df_plan *plan, const df_trace *t);

/* One run on the GPU. */
typedef struct trial {
    program *p;
    bench *b;
    df_trace t; /* with inputs on the device */
    df_buffer **in, **root;
    int64_t shift; /* bytes before inputs in their buffers: 0, or 8 */
    char *copy;    /* of device memory */
} trial;

void trial_open(trial *x, program *p, bench *b);
void trial_close(trial *x);
deft_status trial_put(trial *x, df_diag *d); /* inputs */
deft_status trial_run(trial *x, df_diag *d, const df_plan *plan, bool donates, df_run_stats *stats);
void trial_check_root(trial *x, uint32_t r);
void trial_untouched(trial *x); /* after a failed run */

df_plan *bench_plan(program *p, bench *b, df_diag *d); /* prepared; NULL: it failed */
void bench_drop(bench *b, df_plan **plan);
/* A run that is to go as the reference went. */
void bench_run(program *p, bench *b, const df_plan *plan, bool donates);
void bench_run_shifted(program *p, bench *b, const df_plan *plan);
/* A plan is made; runs cold, warm, with inputs that are taken over, with inputs at other addresses,
 * warm again. */
void bench_check(program *p, bench *b);

#endif
