/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a program on given or generated inputs, and holding one way of running it against
 * another, or against results of before: what `run` and `minimize` share.
 */
#ifndef TOOL_EXECUTE_H
#define TOOL_EXECUTE_H

#include "cli.h"
#include "data.h"
#include "runtime/cpu.h"

enum { TIER_ALL = -1, N_TIERS = 3 };

typedef struct tier_name {
    const char *name;
    df_tier tier;
} tier_name;

extern const tier_name tiers[N_TIERS]; /* the first one needs no compiler */

/* What a run left behind, in the program's arena. */
typedef struct run_results {
    char **root; /* row-major elements of each root */
    uint32_t launches, segments, kernels;
} run_results;

/* How a program is asked to be run. */
typedef struct run_options {
    cli_passes passes;
    int tier;       /* of tiers, or TIER_ALL */
    uint32_t flags; /* DF_TRACE_*, set in the program */
    uint64_t threads;
    data_source data;
    const run_results *expected; /* of a check; NULL: what the interpreter makes */
    uint64_t ulp;                /* by which floats may be off what is expected */
} run_options;

#define RUN_OPTIONS ((run_options){ .passes = { DF_PASS_ALL, true }, .data = { .seed = 1 } })

/* Takes argument when it is one of --tier, --passes, --fast, --nofuse, --threads, --seed.
 * CLI_USAGE, told on stderr: its value has no meaning; *known is false when it is none of these. */
int run_option(run_options *o, const char *argument, bool *known);

/* One way of running a program. */
typedef struct run_way {
    df_tier tier;
    cli_passes passes;
    uint32_t threads;
    const df_compiler *compiler; /* NULL: interpreter */
    const df_limits *limits;     /* what the fuser is told but for `fuse`; NULL: of the device */
} run_way;

/* Runs p once; the sentence of a failure is in p->diag. */
deft_status run_once(cli_program *p, const data_source *data, const run_way *w, run_results *out);

/* All inputs as data gives them, into out->input, in the program's arena. */
deft_status run_inputs(cli_program *p, const data_source *data, data_source *out);

typedef struct bench_result {
    double median, least; /* seconds of one run */
    uint32_t runs;
    uint64_t launches, segments; /* of one run */
    int64_t bytes;               /* elements of all inputs and outputs, each once */
} bench_result;

/* Plans and compiles p once, then runs it until half a second is over, 5 times at least; what the
 * first run does, with caches cold, is left out. */
deft_status run_bench(cli_program *p, const data_source *data, const run_way *w, bench_result *out);

typedef enum check_verdict {
    CHECK_EQUAL,
    CHECK_DIFFERS, /* some element of some tier */
    CHECK_FAILED,  /* some tier failed where the reference did not */
    CHECK_UNRUN    /* the reference failed: nothing is known of the tiers */
} check_verdict;

/* Holds every tier that o names against what is expected, else against the interpreter with one
 * kernel per op on one thread, bit for bit but for o->ulp; NaNs are equal. A line per tier goes to
 * stdout, failures to stderr. *code: the exit code for it. */
check_verdict run_check(cli_program *p, const run_options *o, const df_compiler *compiler,
                        int *code);

#endif
