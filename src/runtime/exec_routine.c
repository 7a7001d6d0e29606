/* SPDX-License-Identifier: Apache-2.0
 *
 * DF_SEG_ROUTINE: from a segment to a df_routine_job.
 */
#include "runtime/exec_run.h"
#include "runtime/routine.h"

static df_routine_job job_of(const df_run *r, const df_seg *seg)
{
    df_routine_job job = { .op = (df_op)seg->op,
                           .attr = seg->attr,
                           .dtype = seg->dtype,
                           .n = df_run_slot(r, seg->n),
                           .m = df_run_slot(r, seg->m),
                           .in_step = df_run_slot(r, seg->a.stride[seg->n_batch]),
                           .n_batch = 1,
                           .batch_rank = seg->n_batch };
    for (uint32_t i = 0; i < seg->n_batch; i++) {
        job.batch_extent[i] = df_run_slot(r, seg->batch[i]);
        job.in_batch[i] = df_run_slot(r, seg->a.stride[i]);
        job.n_batch *= job.batch_extent[i];
    }
    return job;
}

/* One after the other, so that they share their work space. */
void df_run_measure_routines(df_run *r)
{
    for (uint32_t i = 0; i < r->plan->n_segs; i++) {
        if (r->plan->segs[i].kind != DF_SEG_ROUTINE) continue;
        const df_routine_job job = job_of(r, &r->plan->segs[i]);
        const size_t size = df_routine_work_size(&job, df_pool_threads(r->x->pool));
        if (size > r->routine_size) r->routine_size = size;
    }
}

void df_run_routine(const df_run *r, const df_seg *seg)
{
    df_routine_job job = job_of(r, seg);
    const int64_t size = (int64_t)deft_dtype_size(seg->dtype);
    job.in = r->base[seg->a.buf] + df_run_slot(r, seg->a.offset) * size;
    job.out = (int64_t *)(void *)(r->base[seg->c.buf] +
                                  df_run_slot(r, seg->c.offset) * (int64_t)sizeof(int64_t));
    df_routine_run(&job, r->x->pool, r->routine_work);
}
