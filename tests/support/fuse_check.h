/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans a trace written as text, runs the plan with the interpreter on one thread, and holds it
 * against an evaluation node by node and against the plan with one kernel per op, bit for bit (NaNs
 * equal). The runner is built to catch what a lucky order hides: segments of a launch also run in
 * reverse, temporaries start as garbage, split reductions also run by blocks, donated memory is
 * really taken over.
 */
#ifndef TEST_SUPPORT_FUSE_CHECK_H
#define TEST_SUPPORT_FUSE_CHECK_H

#include "fuser/plan.h"

typedef struct fuse_result {
    bool ok;
    char text[600]; /* what went wrong */
    uint32_t n_launches, n_segs, n_kernels, n_regions, n_guards, n_ins, n_donated, n_kept;
    uint32_t n_staged,
        n_copied; /* updates: written by a copy of the part; of which the base is copied */
    uint32_t copied_for[2];  /* what the first of these are copied for: a node */
    int64_t temporary_bytes; /* on the trace at hand */
    bool retreated;          /* the fuser gave up and planned one kernel per op */
    bool same_sizes;         /* fuse_serves: a run of b is laid out like one of a */
} fuse_result;

/* n_threads: what the plan is told. */
fuse_result fuse_check(const char *trace, uint32_t n_threads);
/* The same with a bound on bodies. */
fuse_result fuse_check_limits(const char *trace, const df_limits *limits);

/* Whether the plan made from trace a may serve trace b (equal keys), and serves it with right
 * values. Negative: the keys differ; 0: a guard missed (its sentence in *r); 1: it serves. */
int fuse_serves(const char *a, const char *b, uint32_t n_threads, fuse_result *r);

/* The printed plan of a trace; the caller frees. */
char *fuse_plan_text(const char *trace, uint32_t n_threads);

/* Every root of t, evaluated node by node without a plan, contiguous, malloc'ed. Inputs must have
 * data. */
void fuse_naive(const df_trace *t, void **roots);

/* The elements of in where the elements of mask are not 0, the plain way: n elements of each to at
 * most m of out, then zeros. */
void fuse_compress(deft_dtype t, const char *in, int64_t step, deft_dtype mask_t, const char *mask,
                   int64_t mask_step, int64_t n, char *out, int64_t m);

/* One row of a routine, the plain way: n elements of in, `step` apart, to m of out. */
void fuse_routine_row(uint32_t op, uint32_t attr, deft_dtype t, const char *in, int64_t step,
                      int64_t n, int64_t *out, int64_t m);

/* Element i of memory `to` meets element k of `value`. */
void fuse_combine(df_scatter_how how, deft_dtype t, char *to, int64_t i, const char *value,
                  int64_t k);

/* Runs plan on t; roots get malloc'ed memory each (roots into inputs: NULL). Inputs must have data.
 */
bool fuse_run(const df_plan *plan, const df_trace *t, bool reverse, bool split, void **roots,
              char *why, size_t why_size);

#endif
