/* SPDX-License-Identifier: Apache-2.0
 *
 * DF_SEG_MATMUL: makes a df_matmul_job from a segment, and runs the epilogue kernel over its tiles.
 *
 * Plans for the CPU have operands of bf16 only where the machine multiplies bf16
 * (df_limits.lifts_bf16). A plan for a GPU may have any halves, and may run here as a fallback.
 * Halves that the machine cannot multiply, and bf16 that may give denormals in strict mode, are
 * converted to row-major f32, at the beginning of the workspace.
 */
#include "runtime/exec/exec_run.h"

#include <string.h>

#include "ops/shape.h"
#include "runtime/matmul/lift.h"
#include "runtime/matmul/windows.h"

enum { PAIRS_MACS = 6000 }; /* below, to cast bf16 to f32 is faster than to pack pairs of them */

typedef struct epilogue {
    const df_run *r;
    const df_seg_run *s;
    uint32_t c_access, n_column_axes;
    int64_t row0; /* of the kernel, for row 0 of the job */
} epilogue;

/* Sets the strides of the access to C, whose rows are ld elements apart in the tile. Returns the
 * rows of C in all entries of the batch. */
static int64_t set_tile_strides(const df_kernel *k, uint32_t n_column_axes, const int64_t *extent,
                                int64_t ld, int64_t *stride)
{
    const uint32_t inner = k->n_axes - 1u;
    int64_t column = extent[inner], n_rows = 1;
    stride[inner] = 1;
    for (uint32_t j = inner; j-- > n_column_axes; n_rows *= extent[j]) stride[j] = ld * n_rows;
    for (uint32_t j = n_column_axes; j-- > 0; column *= extent[j]) stride[j] = column;
    return n_rows;
}

/* Runs the epilogue kernel over a tile of C. Its access c_access is redirected to the tile. Row o
 * of the tile is row o of (batch, m). The kernel is called once for each piece of the columns that
 * INNER numbers, such as the pixels of one image. */
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
    o0 += e->row0;
    o1 += e->row0;
    memcpy(ptr, s->ptr, sizeof *ptr * k->n_access);
    memcpy(stride, s->args.stride, sizeof *stride * n_strides);
    const int64_t n_rows = set_tile_strides(k, e->n_column_axes, a.extent, ld, c);
    const int64_t piece = e->n_column_axes > 0 ? a.extent[k->n_axes - 1] : i1;
    /* The kernel counts rows from the start of C, which need not exist. Only the sum of this
     * pointer and the offset of an element in the tile is a valid address. */
    ptr[e->c_access] = (char *)((uintptr_t)tile - (uintptr_t)((o0 * ld + i0) * size));
    a.ptr = ptr;
    a.stride = stride;
    a.fault = (int64_t *)(void *)df_run_thread_area(e->r, thread);
    for (int64_t i = i0, end; i < i1; i = end) {
        const int64_t at = i / piece, row = at * n_rows, column = at * piece;
        end = df_min_i64(column + piece, i1);
        df_run_main(e->r, s, &a, thread, row + o0, row + o1, i - column, end - column);
    }
}

/* Computes the row-major strides of an operand that is converted to f32. Entries of the batch that
 * are the same matrix stay so. */
static void lay_dense(const df_matmul_job *j, int64_t rows, int64_t cols, int64_t *batch,
                      int64_t *row, int64_t *col)
{
    int64_t by = rows * cols;
    *row = cols;
    *col = 1;
    for (uint32_t i = j->batch_rank; i-- > 0;) {
        if (batch[i] == 0) continue;
        batch[i] = by;
        by *= j->batch_extent[i];
    }
}

/* Whether operand a (or b) is converted to f32 before the product. */
static bool is_converted(const df_matmul_job *j, const df_seg *seg, bool of_a)
{
    return !j->is_bf16 && (of_a ? seg->a_dtype : seg->b_dtype) != seg->dtype;
}

/* Lays out the operands that are converted. */
static void lay_converted(const df_seg *seg, df_matmul_job *job)
{
    if (is_converted(job, seg, true))
        lay_dense(job, job->m, job->k, job->a_batch, &job->a_row, &job->a_col);
    if (is_converted(job, seg, false))
        lay_dense(job, job->k, job->n, job->b_batch, &job->b_row, &job->b_col);
}

/* Whether products in fast mode may use tiles. Answers alike each time. */
static bool may_use_tiles(df_executor *x)
{
    df_tiles_state now = atomic_load_explicit(&x->tiles, memory_order_relaxed);
    if (now == DF_TILES_UNKNOWN) {
        const df_tiles_state found = df_matmul_enable_tiles() ? DF_TILES_ALLOWED : DF_TILES_NONE;
        if (atomic_compare_exchange_strong(&x->tiles, &now, found)) now = found;
    }
    return now == DF_TILES_ALLOWED;
}

/* The answer depends on what operand B is: the images, if there are any, must be set. */
static void choose_thirds(const df_run *r, df_matmul_job *job)
{
    job->in_thirds = job->fast && df_matmul_gains_by_thirds(job) && may_use_tiles(r->x);
}

DF_NOINLINE static void matmul_job(const df_run *r, const df_seg *seg, df_matmul_job *job)
{
    const uint32_t row = seg->n_batch, col = seg->n_batch + 1;
    *job = (df_matmul_job){ .dtype = seg->dtype,
                            .m = df_run_slot(r, seg->m),
                            .n = df_run_slot(r, seg->n),
                            .k = df_run_slot(r, seg->k),
                            .n_batch = 1,
                            .batch_rank = seg->n_batch,
                            .fast = (r->t->flags & DF_TRACE_FAST) != 0 };
    job->is_bf16 = r->x->bf16 >= (job->fast ? DF_BF16_FAST : DF_BF16_CHAINS) &&
                   seg->a_dtype == DEFT_BF16 && seg->b_dtype == DEFT_BF16 && !seg->windows &&
                   job->m * job->n * job->k >= PAIRS_MACS &&
                   (job->fast || df_matmul_pairs_pay(job));
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
    job->is_tiled = job->is_bf16 && job->fast && may_use_tiles(r->x);
    lay_converted(seg, job);
    if (!seg->windows) choose_thirds(r, job);
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

/* Returns the different matrices of the batch, for operand a or b. */
static int64_t n_matrices(const df_matmul_job *j, bool of_a)
{
    const int64_t *const batch = of_a ? j->a_batch : j->b_batch;
    int64_t n = 1;
    for (uint32_t i = 0; i < j->batch_rank; i++)
        if (batch[i] != 0) n *= j->batch_extent[i];
    return n;
}

/* Returns the bytes that the f32 copy of operand a (or b) takes; 0 when it needs no copy. */
static size_t lifted_size(const df_matmul_job *j, const df_seg *seg, bool of_a)
{
    const int64_t numel = n_matrices(j, of_a) * j->k * (of_a ? j->m : j->n);
    return is_converted(j, seg, of_a) ? ((size_t)numel * sizeof(float) + 63) & ~(size_t)63 : 0;
}

/* The workspace was measured for this one. Another one may have been published since. */
const df_gemm_kernel *df_run_product_code(const df_run *r, deft_dtype t)
{
    return r->gemm[t == DEFT_F64];
}

static char *operand_address(const df_run *r, const df_bind *bind, deft_dtype t)
{
    if (bind->buf.i == DF_NONE) return NULL;
    return r->base[bind->buf.i] + df_run_slot(r, bind->offset) * (int64_t)deft_dtype_size(t);
}

/* Writes the f32 copy of operand a (or b) to `to`, and returns `to`. */
DF_NOINLINE static const char *lift(const df_run *r, const df_matmul_job *j, const df_seg *seg,
                                    bool of_a, char *to)
{
    const df_bind *const bind = of_a ? &seg->a : &seg->b;
    df_lifting l = { .job = j,
                     .batch = of_a ? j->a_batch : j->b_batch,
                     .to = (float *)(void *)to,
                     .dtype = of_a ? seg->a_dtype : seg->b_dtype,
                     .rows = of_a ? j->m : j->k,
                     .columns = of_a ? j->k : j->n,
                     .row = df_run_slot(r, bind->stride[j->batch_rank]),
                     .column = df_run_slot(r, bind->stride[j->batch_rank + 1]) };
    l.from = (const uint16_t *)(const void *)operand_address(r, bind, l.dtype);
    for (uint32_t i = 0; i < j->batch_rank; i++) l.from_batch[i] = df_run_slot(r, bind->stride[i]);
    df_pool_run(r->x->pool, (uint32_t)(n_matrices(j, of_a) * l.rows), df_matmul_lift_row, &l);
    return to;
}

/* Sets the operands of the job, whose layout is known, and converts those that are converted. The
 * copies are stored at `work`. Returns where they end. */
static char *find_operands(const df_run *r, const df_seg *seg, df_matmul_job *j, char *work)
{
    char *const lifted_b = work + lifted_size(j, seg, true);
    j->a = is_converted(j, seg, true) ? lift(r, j, seg, true, work)
                                      : operand_address(r, &seg->a, seg->a_dtype);
    j->b = is_converted(j, seg, false) ? lift(r, j, seg, false, lifted_b)
                                       : operand_address(r, &seg->b, seg->b_dtype);
    return lifted_b + lifted_size(j, seg, false);
}

/* Makes a job of pairs of bf16 one of f32. */
static void leave_pairs(const df_seg *seg, df_matmul_job *j)
{
    j->is_bf16 = false;
    j->packed = NULL;
    lay_converted(seg, j);
}

void df_run_matmul(df_run *r, const df_seg *seg, const df_seg_run *s)
{
    df_matmul_job job;
    epilogue e = { r, s, seg->c_access, seg->n_column_axes, 0 };
    matmul_job(r, seg, &job);
    df_images images;
    if (seg->windows) {
        show_images(r, seg, &images, (int64_t *)r->matmul_work);
        job.images = &images;
        choose_thirds(r, &job);
    }
    char *const begin = (char *)r->matmul_work + taps_size(seg);
    char *work = find_operands(r, seg, &job, begin);
    job.c = operand_address(r, &seg->c, seg->dtype);
    if (s->kernel) {
        job.epilogue = run_epilogue;
        job.user = &e;
    }
    df_buffer *weights = work == begin ? df_run_find_weights(r, seg, &job) : NULL;
    if (job.is_bf16 && !job.fast && !df_matmul_pairs_are_exact(&job, r->x->pool)) {
        leave_pairs(seg, &job);
        work = find_operands(r, seg, &job, begin);
    }
    df_blas *const blas = atomic_load_explicit(&r->x->blas, memory_order_acquire);
    df_matmul_run(&job, df_run_product_code(r, seg->dtype), blas, r->x->pool, work);
    df_buffer_drop(&weights);
}

void df_run_describe_product(const df_run *r, const df_seg *seg, df_matmul_job *job)
{
    matmul_job(r, seg, job);
    if (seg->c.buf.i != DF_NONE) job->c = (char *)(uintptr_t)r; /* only NULL matters here */
    if (seg->kernel.i != DF_NONE) job->epilogue = run_epilogue;
}

void df_run_place_product(const df_run *r, const df_seg *seg, df_matmul_job *job)
{
    job->a = operand_address(r, &seg->a, seg->a_dtype);
    job->b = operand_address(r, &seg->b, seg->b_dtype);
    job->c = operand_address(r, &seg->c, seg->dtype);
}

void df_run_product_rows(const df_run *r, const df_seg *seg, const df_seg_run *s,
                         df_matmul_job *part, int64_t row0)
{
    epilogue e = { r, s, seg->c_access, seg->n_column_axes, row0 };
    if (part->epilogue) part->user = &e;
    df_matmul_run(part, df_run_product_code(r, seg->dtype), NULL, r->x->alone, r->matmul_work);
}

/* Returns the workspace of a product, with the copies of its operands. */
static size_t product_work_size(const df_run *r, const df_seg *seg, const df_matmul_job *j)
{
    return taps_size(seg) + lifted_size(j, seg, true) + lifted_size(j, seg, false) +
           df_matmul_work_size(j, df_run_product_code(r, seg->dtype), df_pool_threads(r->x->pool));
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
        df_run_describe_product(r, seg, &job);
        df_images images;
        int64_t tap[2 * DF_DIRECT_TAPS];
        if (seg->windows) {
            show_images(r, seg, &images, seg->windows->n_taps <= DF_DIRECT_TAPS ? tap : NULL);
            job.images = &images;
            choose_thirds(r, &job);
        }
        size_t size = product_work_size(r, seg, &job);
        if (job.is_bf16 && !job.fast) {
            leave_pairs(seg, &job);
            const size_t other = product_work_size(r, seg, &job);
            if (other > size) size = other;
        }
        if (size > r->matmul_size) r->matmul_size = size;
    }
}
