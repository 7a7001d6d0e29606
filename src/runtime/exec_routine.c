/* SPDX-License-Identifier: Apache-2.0
 *
 * DF_SEG_ROUTINE: from a segment to a df_routine_job.
 */
#include "runtime/exec_run.h"
#include "runtime/routine.h"

static bool is_scatter(const df_seg *seg)
{
    return df_op_writes_over((df_op)seg->op);
}

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
        if (r->plan->segs[i].kind != DF_SEG_ROUTINE || is_scatter(&r->plan->segs[i])) continue;
        const df_routine_job job = job_of(r, &r->plan->segs[i]);
        const size_t size = df_routine_work_size(&job, df_pool_threads(r->x->pool));
        if (size > r->routine_size) r->routine_size = size;
    }
}

/* Axes of the values: the index's stand in place of the result's indexed one (index_add), or are
 * the same (scatter_add). */
static df_scatter_job scatter_of(const df_run *r, const df_seg *seg)
{
    const int64_t size = (int64_t)deft_dtype_size(seg->dtype);
    const uint32_t axis = seg->attr, n_index = seg->n_index;
    const bool slices = seg->op == DF_OP_index_add;
    df_scatter_job job = { .dtype = seg->dtype,
                           .n = df_run_slot(r, seg->n),
                           .step = df_run_slot(r, seg->c.stride[axis]),
                           .rank = seg->n_batch };
    job.out = r->base[seg->c.buf] + df_run_slot(r, seg->c.offset) * size;
    job.value = r->base[seg->b.buf] + df_run_slot(r, seg->b.offset) * size;
    job.index = (const int64_t *)(const void *)r->base[seg->a.buf] + df_run_slot(r, seg->a.offset);
    for (uint32_t i = 0; i < seg->n_batch; i++) {
        const bool indexed = slices ? i >= axis && i < axis + n_index : i == axis;
        const uint32_t at = !slices || i < axis ? i : i + 1 - n_index; /* in the result */
        job.extent[i] = df_run_slot(r, seg->batch[i]);
        job.value_step[i] = df_run_slot(r, seg->b.stride[i]);
        job.out_step[i] = indexed ? 0 : df_run_slot(r, seg->c.stride[at]);
        if (!slices) job.index_step[i] = df_run_slot(r, seg->a.stride[i]);
        if (slices && indexed) job.index_step[i] = df_run_slot(r, seg->a.stride[i - axis]);
    }
    return job;
}

static void note_fault(const df_run *r, const df_seg *seg, const df_scatter_job *job, int64_t bad)
{
    int64_t *const fault = (int64_t *)(void *)df_run_thread_area(r, 0);
    fault[0] = (int64_t)seg->fault + 1;
    fault[1] = bad < 0 ? bad + job->n : bad;
    fault[2] = job->n;
}

static void run_scatter(const df_run *r, const df_seg *seg)
{
    const df_scatter_job job = scatter_of(r, seg);
    int64_t bad;
    if (!df_scatter(&job, r->x->pool, &bad)) note_fault(r, seg, &job, bad);
}

void df_run_check_inputs(const df_run *r)
{
    for (uint32_t i = 0; i < r->plan->n_segs; i++) {
        const df_seg *const seg = &r->plan->segs[i];
        if (seg->kind != DF_SEG_ROUTINE || !is_scatter(seg)) continue;
        if (r->plan->bufs[seg->a.buf].kind != DF_BUF_INPUT) continue;
        const df_scatter_job job = scatter_of(r, seg);
        int64_t bad;
        if (df_scatter_check(&job, &bad)) continue;
        note_fault(r, seg, &job, bad);
        return;
    }
}

void df_run_routine(const df_run *r, const df_seg *seg)
{
    if (is_scatter(seg)) {
        run_scatter(r, seg);
        return;
    }
    df_routine_job job = job_of(r, seg);
    const int64_t size = (int64_t)deft_dtype_size(seg->dtype);
    job.in = r->base[seg->a.buf] + df_run_slot(r, seg->a.offset) * size;
    job.out = (int64_t *)(void *)(r->base[seg->c.buf] +
                                  df_run_slot(r, seg->c.offset) * (int64_t)sizeof(int64_t));
    df_routine_run(&job, r->x->pool, r->routine_work);
}
