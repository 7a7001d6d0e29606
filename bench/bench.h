/* SPDX-License-Identifier: Apache-2.0
 *
 * The benchmark driver's side: what a bench calls to report rows, and how it times. Each file
 * answers one question. Times are medians; comparisons run the two sides in turn, so that a machine
 * whose speed drifts moves both.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "deft/deft.h"

typedef struct bench {
    const char *name; /* of the running bench */
    bool json, quick;
    bool peers;       /* overhead, train: other libraries' whole step too; installs them */
    const char *only; /* in the labels of the cases to run; NULL: all */
    double until;     /* bench_now() by which train should end; 0: whenever */
    const char *more; /* members that the next row has in JSON beside the usual: ", \"a\": 1" */
    bool install;     /* peers, order, start: installs what is missing */
    /* an environment that has all other libraries; NULL: one for each in the build folder */
    const char *venv;
    /* peers, order: a pattern for their names; start: a part of the names of peers; NULL: all */
    const char *rows;
    uint64_t seed;    /* peers, order: of sizes and elements */
    unsigned threads; /* peers: 0 stands for 2; order: 0 stands for 1, then 2 */
    const char *argv0;
    int n_ok, n_not_ok;
} bench;

/* A row. goal_kind: what must hold for `ok`. */
typedef enum bench_goal {
    BENCH_VALUE_AT_MOST,
    BENCH_VALUE_AT_LEAST,
    BENCH_RATIO_AT_MOST,
    BENCH_RATIO_AT_LEAST
} bench_goal;

/* Whether the row of this label was asked for. */
bool bench_wants(const bench *b, const char *label);

/* ratio = value / reference_value. reference: what reference_value is of, measured in this run. A
 * value of NAN could not be measured, and is never ok. */
void bench_row(bench *b, const char *label, double value, const char *unit, const char *reference,
               double reference_value, bench_goal kind, double goal);

/* The row of a ratio whose reference, or whose value (NAN), could not be measured, or not fairly:
 * never ok. */
void bench_row_without(bench *b, const char *label, double value, const char *unit,
                       const char *reference, const char *why, double goal);

/* The option of the peers' scripts that says where their libraries are. */
void bench_environment_option(const bench *b, char *text, size_t size);

double bench_now(void);                   /* seconds */
double bench_median(double *v, size_t n); /* sorts v */
/* Memory as large buffers of deft are: in huge pages, where the system has them. The caller unmaps
 * it. */
char *bench_map(size_t size);

/* Seconds per call of f, and of g, taken in turn: medians of `rounds` rounds of `calls` calls. */
typedef void (*bench_fn)(void *user);
void bench_pair(bench_fn f, void *fu, bench_fn g, void *gu, int rounds, int calls, double *tf,
                double *tg);
double bench_one(bench_fn f, void *user, int rounds, int calls);

/* How many calls fill about `seconds`, from one trial. */
int bench_calls(bench_fn f, void *user, double seconds);

/* Runs two programs in turn, each as a process of its own, and returns the median milliseconds of
 * the first until it has ended; *other_ms: of the other. The first gets `argument`, unless this is
 * "". NAN: one of them failed. */
double bench_start_ms(const char *path, const char *argument, const char *other, double *other_ms);

/* Runtime and context, or a message and exit(1): benches have no use for a broken one. */
deft_runtime *bench_runtime(uint32_t threads, deft_tier tier, int measure);
deft_runtime *bench_runtime_with(uint32_t threads, deft_tier tier, int measure,
                                 uint32_t variant_launches); /* as in deft_runtime_options */
deft_ctx *bench_ctx(deft_runtime *rt, deft_numerics numerics);
void bench_must(deft_ctx *cx, deft_status st, const char *what);
deft_stats bench_stats(deft_ctx *cx);

void bench_replay(bench *b);
void bench_overhead(bench *b);
void bench_overhead_peers(bench *b);
void bench_record(bench *b);
void bench_cut(bench *b);
void bench_first(bench *b);
void bench_kept(bench *b);
void bench_export(bench *b);
void bench_start(bench *b);
void bench_kernels(bench *b);
void bench_matmul(bench *b);
void bench_variants(bench *b);
void bench_launches(bench *b);
void bench_memory(bench *b);
void bench_depth(bench *b);
void bench_threads(bench *b);
void bench_library(bench *b);
void bench_scatter(bench *b);
void bench_routines(bench *b);
void bench_updates(bench *b);
void bench_sizes(bench *b);
void bench_dtypes(bench *b);
void bench_halves(bench *b);
void bench_movement(bench *b);
void bench_images(bench *b);
void bench_graph_policy(bench *b);
void bench_graph_updates(bench *b);
void bench_cuda_codegen(bench *b);
void bench_gpu(bench *b);
void bench_optim(bench *b);
void bench_control(bench *b);
void bench_trace(bench *b);
void bench_train(bench *b);
void bench_peers(bench *b);
void bench_order(bench *b);
void bench_bound(bench *b);
void bench_build(bench *b);

#endif
