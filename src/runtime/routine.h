/* SPDX-License-Identifier: Apache-2.0
 *
 * What the runtime does by itself for DF_SEG_ROUTINE: work in which every result depends on all of
 * the operand, so that no kernel over a loop space fits. Plain C; integers, so that the bits depend
 * on nothing but the operand. The operand may lie at any address; the result is row-major i64. What
 * adds values at indices has a job of its own.
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
    int64_t *out;
    int64_t n, m;    /* extent of the last axis of the operand, of the result */
    int64_t in_step; /* elements, along that axis */
    int64_t n_batch; /* rows, row-major over batch_extent */
    uint32_t batch_rank;
    int64_t batch_extent[DEFT_MAX_RANK], in_batch[DEFT_MAX_RANK];
} df_routine_job;

/* Bytes of work space for a call on a pool of n_threads. */
size_t df_routine_work_size(const df_routine_job *job, uint32_t n_threads);
void df_routine_run(const df_routine_job *job, df_pool *pool, void *work);

/* ---- sort.c: argsort ---- */

size_t df_argsort_work_size(const df_routine_job *job, uint32_t n_threads);
void df_argsort(const df_routine_job *job, df_pool *pool, void *work);

/* ---- which.c ---- */

size_t df_which_work_size(const df_routine_job *job, uint32_t n_threads);
void df_which(const df_routine_job *job, df_pool *pool, void *work);

/* ---- scatter.c: scatter_add, index_add ---- */

/* Over a box of values, row-major: the element of out at the position and its index gets a value
 * added. Along axes where out does not step, values meet. Steps are in elements. */
typedef struct df_scatter_job {
    deft_dtype dtype; /* of values and out; not bool */
    char *out;        /* holds what is added to; overlaps neither index nor value */
    const int64_t *index;
    const char *value;
    int64_t n, step; /* of the indexed axis of out; negative indices count from n */
    uint32_t rank;
    int64_t extent[DEFT_MAX_RANK], out_step[DEFT_MAX_RANK], index_step[DEFT_MAX_RANK],
        value_step[DEFT_MAX_RANK];
} df_scatter_job;

/* Whether all indices lie in [-n, n); else *bad is the first that does not. */
bool df_scatter_check(const df_scatter_job *job, int64_t *bad);
/* The same bits on any number of threads. false: *bad is the first index outside [-n, n), and out
 * has no meaning. */
bool df_scatter(const df_scatter_job *job, df_pool *pool, int64_t *bad);

#endif
