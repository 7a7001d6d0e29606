/* SPDX-License-Identifier: Apache-2.0
 *
 * DF_SEG_ROUTINE: makes jobs of routine.h from segments, and runs them.
 */
#include "runtime/exec/exec_run.h"
#include "runtime/routine.h"

static size_t routine_work_size(const df_run *r, const df_seg *seg)
{
    const uint32_t n_threads = df_pool_threads(r->x->pool);
    if (seg->op == DF_OP_call) return df_run_call_work_size(r, seg);
    if (seg->op == DF_OP_result) return 0;
    if (df_bind_is_scatter(seg)) {
        const df_scatter_job job = df_bind_scatter(seg, r->slots, NULL);
        return df_scatter_work_size(&job, n_threads);
    }
    const df_routine_job job = df_bind_routine(seg, r->slots, NULL);
    return df_routine_work_size(&job, n_threads);
}

/* Routines run one after another and share one workspace. */
void df_run_measure_routines(df_run *r)
{
    for (uint32_t i = 0; i < r->plan->n_segs; i++) {
        if (r->plan->segs[i].kind != DF_SEG_ROUTINE) continue;
        const size_t size = routine_work_size(r, &r->plan->segs[i]);
        if (size > r->routine_size) r->routine_size = size;
    }
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
    const df_scatter_job job = df_bind_scatter(seg, r->slots, r->base);
    int64_t bad;
    if (!df_scatter(&job, r->x->pool, r->routine_work, &bad)) note_fault(r, seg, &job, bad);
}

void df_run_check_inputs(const df_run *r)
{
    for (uint32_t i = 0; i < r->plan->n_segs; i++) {
        const df_seg *const seg = &r->plan->segs[i];
        if (seg->kind != DF_SEG_ROUTINE || !df_bind_is_scatter(seg)) continue;
        if (r->plan->bufs[seg->a.buf.i].kind != DF_BUF_INPUT) continue;
        const df_scatter_job job = df_bind_scatter(seg, r->slots, r->base);
        int64_t bad;
        if (df_scatter_check(&job, &bad)) continue;
        note_fault(r, seg, &job, bad);
        return;
    }
}

deft_status df_run_routine(const df_run *r, df_diag *d, const df_seg *seg)
{
    if (seg->op == DF_OP_call) return df_run_call(r, d, seg);
    if (seg->op == DF_OP_result) return DEFT_OK; /* the call has written it */
    if (df_bind_is_scatter(seg)) {
        run_scatter(r, seg);
        return DEFT_OK;
    }
    const df_routine_job job = df_bind_routine(seg, r->slots, r->base);
    df_routine_run(&job, r->x->pool, r->routine_work);
    return DEFT_OK;
}
