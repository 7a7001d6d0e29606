/* SPDX-License-Identifier: Apache-2.0
 *
 * DF_SEG_MATMUL: makes a df_matmul_job from a segment, and runs the epilogue kernel over its tiles.
 *
 * Plans for the CPU have operands of bf16 only in fast mode, where the machine multiplies bf16
 * (df_limits.lifts). A plan for a GPU may have any halves, and may run here as a fallback. Other
 * operands of halves are converted to row-major f32, at the beginning of the workspace.
 */
#include "runtime/exec/exec_run.h"

#include <string.h>

#include "ops/shape.h"
#include "runtime/matmul/windows.h"

typedef struct epilogue {
    const df_run *r;
    const df_seg_run *s;
    uint32_t c_access;
} epilogue;

/* Runs the epilogue kernel over a tile of C. Its access c_access is redirected to the tile. Row o
 * of the kernel is row o of (batch, m), so that the OUTER strides follow from ld. */
static void run_epilogue(void *user, uint32_t thread, const char *tile, int64_t ld, int64_t o0,
                         int64_t o1, int64_t i0, int64_t i1)
{
    const epilogue *const e = user;
    const df_seg_run *const s = e->s;
    const df_kernel *const k = s->kernel;
    const int64_t size = (int64_t)deft_dtype_size((deft_dtype)k->access[e->c_access].dtype);
    const size_t n_strides = (size_t)k->n_access * k->n_axes;
    char **const ptr = s->ptr + (thread + 1u) * (size_t)k->n_access;
    int64_t *const stride = s->epilogue_stride + thread * n_strides;
    int64_t *const c = stride + (size_t)e->c_access * k->n_axes;
    df_kargs a = s->args;
    memcpy(ptr, s->ptr, sizeof *ptr * k->n_access);
    memcpy(stride, s->args.stride, sizeof *stride * n_strides);
    int64_t by = ld;
    for (uint32_t j = k->n_axes; j-- > 0;) {
        if (k->role[j] == DF_AXIS_INNER) {
            c[j] = 1;
        } else {
            c[j] = by;
            by *= a.extent[j];
        }
    }
    /* The kernel counts rows from the start of C, which need not exist. Only the sum of this
     * pointer and the offset of an element in the tile is a valid address. */
    ptr[e->c_access] = (char *)((uintptr_t)tile - (uintptr_t)((o0 * ld + i0) * size));
    a.ptr = ptr;
    a.stride = stride;
    a.fault = (int64_t *)(void *)df_run_thread_area(e->r, thread);
    df_run_main(e->r, s, &a, thread, o0, o1, i0, i1);
}

/* Computes the row-major strides of an operand that is converted to f32. */
static void lay_dense(const df_matmul_job *j, int64_t rows, int64_t cols, int64_t *batch,
                      int64_t *row, int64_t *col)
{
    int64_t by = rows * cols;
    *row = cols;
    *col = 1;
    for (uint32_t i = j->batch_rank; i-- > 0;) {
        batch[i] = by;
        by *= j->batch_extent[i];
    }
}

/* Whether operand a (or b) is converted to f32 before the product. */
static bool is_converted(const df_matmul_job *j, const df_seg *seg, bool of_a)
{
    return !j->is_bf16 && (of_a ? seg->a_dtype : seg->b_dtype) != seg->dtype;
}

static void matmul_job(const df_run *r, const df_seg *seg, df_matmul_job *job)
{
    const uint32_t row = seg->n_batch, col = seg->n_batch + 1;
    *job = (df_matmul_job){ .dtype = seg->dtype,
                            .m = df_run_slot(r, seg->m),
                            .n = df_run_slot(r, seg->n),
                            .k = df_run_slot(r, seg->k),
                            .n_batch = 1,
                            .batch_rank = seg->n_batch,
                            .fast = (r->t->flags & DF_TRACE_FAST) != 0 };
    job->is_bf16 = job->fast && seg->a_dtype == DEFT_BF16 && seg->b_dtype == DEFT_BF16 &&
                   !seg->windows && df_matmul_has_bf16();
    for (uint32_t i = 0; i < seg->n_batch; i++) {
        job->batch_extent[i] = df_run_slot(r, seg->batch[i]);
        job->n_batch *= job->batch_extent[i];
        job->a_batch[i] = df_run_slot(r, seg->a.stride[i]);
        if (!seg->windows) job->b_batch[i] = df_run_slot(r, seg->b.stride[i]);
        job->c_batch[i] = seg->c.buf.i == DF_NONE ? 0 : df_run_slot(r, seg->c.stride[i]);
    }
    job->a_row = df_run_slot(r, seg->a.stride[row]);
    job->a_col = df_run_slot(r, seg->a.stride[col]);
    if (!seg->windows) {
        job->b_row = df_run_slot(r, seg->b.stride[row]);
        job->b_col = df_run_slot(r, seg->b.stride[col]);
    }
    job->c_row = seg->c.buf.i == DF_NONE ? 0 : df_run_slot(r, seg->c.stride[row]);
    if (is_converted(job, seg, true))
        lay_dense(job, job->m, job->k, job->a_batch, &job->a_row, &job->a_col);
    if (is_converted(job, seg, false))
        lay_dense(job, job->k, job->n, job->b_batch, &job->b_row, &job->b_col);
}

/* Fills in what operand B shows. `tap` has room for its taps; NULL: they are not wanted. */
static void show_images(const df_run *r, const df_seg *seg, df_images *m, int64_t *tap)
{
    const df_windows *const w = seg->windows;
    *m = (df_images){ .tap = tap, .n_taps = w->n_taps, .is_transposed = w->is_transposed };
    m->channel = df_run_slot(r, seg->b.stride[0]);
    m->image = df_run_slot(r, seg->b.stride[1]);
    m->row = df_run_slot(r, seg->b.stride[2]);
    m->column = df_run_slot(r, seg->b.stride[3]);
    for (uint32_t i = 0; i < 2; i++) {
        m->step[i] = df_run_slot(r, w->step[i]);
        m->extent[i] = df_run_slot(r, w->extent[i]);
        m->out[i] = df_run_slot(r, w->out[i]);
        for (uint32_t t = 0; t < w->n_taps && tap; t++)
            tap[2 * t + i] = df_run_slot(r, w->tap[2 * t + i]) - df_run_slot(r, w->before[i]);
    }
}

static size_t taps_size(const df_seg *seg)
{
    const size_t n = seg->windows ? 2 * (size_t)seg->windows->n_taps : 0;
    return (n * sizeof(int64_t) + 63) & ~(size_t)63;
}

/* Returns the bytes that the f32 copy of operand a (or b) takes; 0 when it needs no copy. */
static size_t lifted_size(const df_matmul_job *j, const df_seg *seg, bool of_a)
{
    const int64_t numel = j->n_batch * j->k * (of_a ? j->m : j->n);
    return is_converted(j, seg, of_a) ? ((size_t)numel * sizeof(float) + 63) & ~(size_t)63 : 0;
}

/* Returns the micro-kernel of this run: the one for which the workspace was measured. Another one
 * may have been published since. */
static const df_gemm_kernel *gemm_of(const df_run *r, deft_dtype t)
{
    return r->gemm[t == DEFT_F64];
}

static char *operand(const df_run *r, const df_bind *bind, deft_dtype t)
{
    if (bind->buf.i == DF_NONE) return NULL;
    return r->base[bind->buf.i] + df_run_slot(r, bind->offset) * (int64_t)deft_dtype_size(t);
}

/* Converts an operand of halves to f32, which is exact. Returns `to`. */
static const char *lift(const df_run *r, const df_matmul_job *j, const df_bind *bind, deft_dtype t,
                        int64_t rows, int64_t cols, float *to)
{
    const uint16_t *const from = (const uint16_t *)(const void *)operand(r, bind, t);
    const int64_t by_row = df_run_slot(r, bind->stride[j->batch_rank]),
                  by_col = df_run_slot(r, bind->stride[j->batch_rank + 1]);
    float *out = to;
    for (int64_t b = 0; b < j->n_batch; b++) {
        int64_t at = 0, left = b;
        for (uint32_t i = j->batch_rank; i-- > 0; left /= j->batch_extent[i])
            at += left % j->batch_extent[i] * df_run_slot(r, bind->stride[i]);
        for (int64_t y = 0; y < rows; y++)
            for (int64_t x = 0; x < cols; x++)
                *out++ = df_f32_of_half(t, from[at + y * by_row + x * by_col]);
    }
    return (const char *)to;
}

void df_run_matmul(df_run *r, const df_seg *seg, const df_seg_run *s)
{
    df_matmul_job job;
    epilogue e = { r, s, seg->c_access };
    matmul_job(r, seg, &job);
    df_images images;
    if (seg->windows) {
        show_images(r, seg, &images, (int64_t *)r->matmul_work);
        job.images = &images;
    }
    char *const lifted_a = (char *)r->matmul_work + taps_size(seg);
    char *const lifted_b = lifted_a + lifted_size(&job, seg, true);
    char *const work = lifted_b + lifted_size(&job, seg, false);
    const bool lifts_a = is_converted(&job, seg, true), lifts_b = is_converted(&job, seg, false);
    job.a = lifts_a ? lift(r, &job, &seg->a, seg->a_dtype, job.m, job.k, (float *)(void *)lifted_a)
                    : operand(r, &seg->a, seg->a_dtype);
    job.b = lifts_b ? lift(r, &job, &seg->b, seg->b_dtype, job.k, job.n, (float *)(void *)lifted_b)
                    : operand(r, &seg->b, seg->b_dtype);
    job.c = operand(r, &seg->c, seg->dtype);
    if (s->kernel) {
        job.epilogue = run_epilogue;
        job.user = &e;
    }
    df_buffer *weights = lifts_a || lifts_b ? NULL : df_run_find_weights(r, seg, &job);
    df_blas *const blas = atomic_load_explicit(&r->x->blas, memory_order_acquire);
    df_matmul_run(&job, gemm_of(r, seg->dtype), blas, r->x->pool, work);
    df_buffer_drop(&weights);
}

/* Products use all threads of the pool. */
void df_run_measure_matmuls(df_run *r)
{
    const uint32_t n_threads = df_pool_threads(r->x->pool);
    for (int i = 0; i < 2; i++) r->gemm[i] = df_run_gemm(r->x, i);
    for (uint32_t i = 0; i < r->plan->n_segs; i++) {
        const df_seg *const seg = &r->plan->segs[i];
        df_matmul_job job;
        if (seg->kind != DF_SEG_MATMUL) continue;
        r->n_threads = n_threads;
        matmul_job(r, seg, &job);
        if (seg->c.buf.i != DF_NONE) job.c = (char *)r; /* any address: only NULL matters here */
        if (seg->kernel.i != DF_NONE) job.epilogue = run_epilogue;
        df_images images;
        int64_t tap[2 * DF_DIRECT_TAPS];
        if (seg->windows) {
            show_images(r, seg, &images, seg->windows->n_taps <= DF_DIRECT_TAPS ? tap : NULL);
            job.images = &images;
        }
        const size_t size = taps_size(seg) + lifted_size(&job, seg, true) +
                            lifted_size(&job, seg, false) +
                            df_matmul_work_size(&job, gemm_of(r, seg->dtype), n_threads);
        if (size > r->matmul_size) r->matmul_size = size;
    }
}
