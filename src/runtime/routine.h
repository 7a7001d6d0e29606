/* SPDX-License-Identifier: Apache-2.0
 *
 * Routines: the code for DF_SEG_ROUTINE segments, written by hand in C.
 *
 * Each result of a routine depends on all elements of its operand, so that no kernel over a loop
 * space can compute it. Sorting and finding positions give integers, whose bits depend on the
 * operand alone, or elements of the operand. Their operand needs no alignment, and their result is
 * row-major. The routines that combine values at indices have a job type of their own.
 */
#ifndef DF_RUNTIME_ROUTINE_H
#define DF_RUNTIME_ROUTINE_H

#include "ops/op.h"
#include "runtime/pool.h"

typedef struct df_routine_job {
    df_op op;
    uint32_t attr;
    deft_dtype dtype; /* of the operand */
    const char *in;
    int64_t *out;    /* `sort` and `compress`: elements of dtype; else indices */
    int64_t n, m;    /* extent of the last axis of the operand, and of the result */
    int64_t first;   /* topk: position in the order of the first element of the result */
    int64_t in_step; /* stride of the operand along that axis, in elements */
    int64_t n_batch; /* rows, row-major over batch_extent */
    uint32_t batch_rank;
    int64_t batch_extent[DEFT_MAX_RANK], in_batch[DEFT_MAX_RANK]; /* in_batch: strides */
    /* compress: the vector that says which elements are written. It has n elements. */
    const char *mask;
    deft_dtype mask_dtype;
    int64_t mask_step; /* in elements */
} df_routine_job;

/* Returns the bytes of workspace that df_routine_run needs on a pool of n_threads. */
size_t df_routine_work_size(const df_routine_job *job, uint32_t n_threads);
/* Runs the job on the threads of the pool: df_argsort or df_which, by job->op. */
void df_routine_run(const df_routine_job *job, df_pool *pool, void *work); /* work: aligned to 64 */

/* ---- sort.c: argsort, sort, topk ---- */

size_t df_argsort_work_size(const df_routine_job *job, uint32_t n_threads);
void df_argsort(const df_routine_job *job, df_pool *pool, void *work);

/* ---- which.c: which, compress ---- */

size_t df_which_work_size(const df_routine_job *job, uint32_t n_threads);
void df_which(const df_routine_job *job, df_pool *pool, void *work);

/* ---- scatter.c: scatter_*, index_* ---- */

/* Combines each value with one element of out. The values form a box of `rank` axes, in row-major
 * order.
 *
 * For the value at position p, let i be the index at p. The value meets the element of out at
 * p * out_step + i * step, which becomes their sum, product, least or greatest, or the value.
 * Several values may meet one element, in row-major order. All steps are strides in elements, and
 * may be 0. */
typedef struct df_scatter_job {
    df_scatter_how how;
    deft_dtype dtype;       /* of values and out; neither bool nor a half, unless values are set */
    deft_dtype index_dtype; /* an integer, or bool */
    char *out;              /* holds initial values; overlaps neither index nor value */
    const char *index;
    const char *value;
    int64_t n, step; /* extent and stride of the indexed axis of out; an index i < 0 means i + n */
    uint32_t rank;
    int64_t extent[DEFT_MAX_RANK], out_step[DEFT_MAX_RANK], index_step[DEFT_MAX_RANK],
        value_step[DEFT_MAX_RANK];
} df_scatter_job;

/* Returns true when all indices are in [-n, n). Otherwise *bad is the first that is not. */
bool df_scatter_check(const df_scatter_job *job, int64_t *bad);
/* Returns the bytes of workspace that df_scatter needs on a pool of n_threads. The addresses of the
 * job may still be NULL. */
size_t df_scatter_work_size(const df_scatter_job *job, uint32_t n_threads);
/* Runs the job. work is aligned to 64. The bits do not depend on the number of threads. Returns
 * false when an index is outside [-n, n): *bad is then the first such index, and the content of out
 * is undefined. */
bool df_scatter(const df_scatter_job *job, df_pool *pool, void *work, int64_t *bad);

#endif
