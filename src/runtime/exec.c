/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a plan. In this order, so that everything that can fail has failed before memory is written:
 *
 *   measure   extents, estimated time and code of each segment; may wait for the compiler
 *   divide    which launches go parallel, and how each segment is cut
 *   lay out   one frame holds all arguments, partial results and per-thread areas
 *   buffers   roots (or their donors' memory) and one arena for all temporaries
 *   bind      addresses, strides, numbers
 *   launch    one fork-join each; then faults of checks
 *
 * A frame is kept from run to run, so that a warm run takes no memory but that of its results and makes
 * no system call. Two runs at once: the second makes a frame of its own.
 *
 * Division changes no bit (runtime/device.h), so that it may depend on the number of threads and on
 * estimates. A launch is cut into *items*: rows, or ranges of INNER within a row, or ranges of blocks of
 * a split reduction. Neighbouring items that are too small for a task share one.
 */
#include "runtime/exec.h"

#include <string.h>

#include "base/limits.h"
#include "ops/op.h"
#include "runtime/interp.h"
#include "runtime/os.h"

/* A launch goes parallel above this; a task should not be shorter than the other. Waking a worker costs
 * up to 25 us. */
#define PARALLEL_NS 40e3
#define TASK_NS 12e3
#define TASKS_PER_THREAD 4
/* Per element and instruction. */
#define CODE_NS 0.015
#define INTERP_NS 0.1

/* INNER is cut at multiples of these, so that neighbours share no cache line. */
enum { MAP_GRAIN = 4096, COL_GRAIN = 256, MAX_KEPT_FRAME = 16 << 20 };

typedef struct seg_run {
    const df_code *code; /* NULL: interpret */
    const df_kernel *kernel; /* NULL: a matmul without epilogue */
    int64_t n_outer, n_inner, n_red; /* n_inner: 1 in ROW */
    double ns;
    /* how it is cut: items are (row group, part of a row) */
    int64_t rows_per_item, parts, per_part; /* per_part: elements of INNER, or blocks */
    bool split;
    bool parallel;       /* the launch that begins with this segment */
    uint32_t first_item, n_items; /* within its launch */
    uint64_t *partial;
    int64_t partial_row; /* words of partial per row */
    df_kargs args;
    char **ptr;          /* args.ptr; with SCRATCH: [thread][access] */
    bool per_thread;
    int64_t *epilogue_stride; /* matmul: [thread][access][axis] */
} seg_run;

typedef struct run {
    df_executor *x;
    const df_plan *plan;
    const df_trace *t;
    const int64_t *slots;
    seg_run *segs;
    char **base; /* per buffer: its origin */
    df_buffer **own; /* per buffer: the reference of a ROOT until it is handed out */
    uint32_t *task_begin; /* first item of each task of the current launch; one more at the end */
    uint32_t n_threads;   /* that any launch uses */
    uint32_t max_items;
    size_t interp_size, scratch_size, thread_size; /* per thread */
    char *threads;  /* per thread: fault words (64 bytes), interpreter's work space, scratch rows */
    size_t matmul_size;
    void *matmul_work;
    const df_launch *launch; /* the current one */
} run;

/* ---- frames ---- */

typedef struct block {
    char *at; /* 64-byte aligned within raw */
    void *raw;
    size_t size;
} block;

struct df_frame {
    block segs, work;
};

static bool block_reserve(const df_mem *mem, block *b, size_t size)
{
    if (b->size >= size && b->raw) return true;
    size += size / 4;
    df_mem_free(mem, b->raw, b->raw ? b->size + 64 : 0);
    *b = (block){ 0 };
    b->raw = df_mem_alloc(mem, size + 64);
    if (!b->raw) return false;
    b->size = size;
    b->at = (char *)(((uintptr_t)b->raw + 63) & ~(uintptr_t)63);
    return true;
}

static void frame_destroy(const df_mem *mem, df_frame *f)
{
    if (!f) return;
    if (f->segs.raw) df_mem_free(mem, f->segs.raw, f->segs.size + 64);
    if (f->work.raw) df_mem_free(mem, f->work.raw, f->work.size + 64);
    df_mem_free(mem, f, sizeof *f);
}

static df_frame *frame_take(df_executor *x)
{
    df_frame *const f = atomic_exchange_explicit(&x->frame, NULL, memory_order_acquire);
    return f ? f : df_mem_zalloc(x->mem, sizeof *f);
}

static void frame_give(df_executor *x, df_frame *f)
{
    if (f && f->work.size > MAX_KEPT_FRAME) {
        frame_destroy(x->mem, f);
        return;
    }
    frame_destroy(x->mem, atomic_exchange_explicit(&x->frame, f, memory_order_acq_rel));
}

void df_executor_finish(df_executor *x)
{
    frame_destroy(x->mem, atomic_exchange(&x->frame, NULL));
}

/* Hands out pieces; at NULL it only adds up. */
typedef struct bump {
    char *at;
    size_t used;
} bump;

static void *take(bump *b, size_t size)
{
    void *const p = b->at ? b->at + b->used : NULL;
    b->used += (size + 63) & ~(size_t)63;
    return p;
}

/* ---- measure ---- */

static int64_t slot_at(const run *r, df_slot slot)
{
    return slot == DF_NONE ? 0 : r->slots[slot];
}

static bool is_scratch(const df_kernel *k)
{
    for (uint32_t i = 0; i < k->n_access; i++)
        if (k->access[i].kind == DF_ACCESS_SCRATCH) return true;
    return false;
}

static void measure_kernel(run *r, const df_seg *seg, seg_run *s)
{
    const df_kernel *const k = s->kernel = &r->plan->kernels[seg->kernel];
    s->n_outer = s->n_inner = s->n_red = 1;
    for (uint32_t j = 0; j < k->n_axes; j++) {
        const int64_t extent = slot_at(r, seg->extent[j]);
        switch ((df_role)k->role[j]) {
        case DF_AXIS_OUTER: s->n_outer *= extent; break;
        case DF_AXIS_RED: s->n_red *= extent; break;
        case DF_AXIS_INNER: s->n_inner = extent; break;
        }
    }
    const double elements = (double)s->n_outer * (double)s->n_inner * (double)df_max_i64(s->n_red, 1);
    if (r->x->tiers && r->plan->execs)
        s->code = df_tiers_code(r->x->tiers, r->plan->execs[seg->kernel], elements);
    s->ns = elements * (k->cost > 1 ? k->cost : 1) * (s->code ? CODE_NS : INTERP_NS);
    s->per_thread = seg->kind == DF_SEG_KERNEL && is_scratch(k);
    if (s->code) return;
    const size_t work = df_interp_work_size(k);
    if (work > r->interp_size) r->interp_size = work;
}

static void measure(run *r)
{
    for (uint32_t i = 0; i < r->plan->n_segs; i++) {
        const df_seg *const seg = &r->plan->segs[i];
        seg_run *const s = &r->segs[i];
        *s = (seg_run){ .kernel = NULL };
        if (seg->kernel != DF_NONE) measure_kernel(r, seg, s);
    }
}

/* ---- divide ---- */

static int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Cuts the parts of a row: n of them wanted, each a multiple of grain. */
static void cut_row(seg_run *s, int64_t extent, int64_t want, int64_t grain)
{
    s->per_part = div_up(div_up(extent, df_max_i64(want, 1)), grain) * grain;
    s->parts = div_up(extent, s->per_part);
}

/* Cuts s into about `want` items. */
static void cut(seg_run *s, int64_t want)
{
    const uint8_t mode = s->kernel->mode;
    const bool may_split = (s->kernel->flags & DF_KERNEL_SPLIT) && s->n_red > DF_BLOCK;
    const int64_t per_row = want > s->n_outer ? div_up(want, s->n_outer) : 1;
    s->parts = 1;
    s->per_part = s->n_inner;
    s->split = false;
    s->rows_per_item = want < s->n_outer ? div_up(s->n_outer, want) : 1;
    if (per_row > 1 && mode != DF_MODE_ROW)
        cut_row(s, s->n_inner, per_row, mode == DF_MODE_MAP ? MAP_GRAIN : COL_GRAIN);
    if (per_row > 1 && may_split && s->parts < per_row / 2 + 1) {
        s->split = true;
        cut_row(s, div_up(s->n_red, DF_BLOCK), per_row, 1);
    }
    s->n_items = (uint32_t)(div_up(s->n_outer, s->rows_per_item) * s->parts);
}

static uint32_t divide_launch(run *r, const df_launch *l, uint32_t pool_threads)
{
    double total = 0;
    uint32_t n_items = 0;
    for (uint32_t i = 0; i < l->n; i++)
        if (r->plan->segs[l->first + i].kind == DF_SEG_KERNEL) total += r->segs[l->first + i].ns;
    const bool parallel = pool_threads > 1 && total > PARALLEL_NS;
    double target = total / (pool_threads * TASKS_PER_THREAD);
    if (target < TASK_NS) target = TASK_NS;
    for (uint32_t i = 0; i < l->n; i++) {
        seg_run *const s = &r->segs[l->first + i];
        s->first_item = n_items;
        if (r->plan->segs[l->first + i].kind != DF_SEG_KERNEL) continue;
        if (s->n_outer <= 0 || s->n_inner <= 0) continue; /* nothing to do */
        cut(s, parallel ? (int64_t)(s->ns / target) + 1 : 1);
        n_items += s->n_items;
    }
    if (l->n > 0) r->segs[l->first].parallel = parallel && n_items > 1;
    return parallel ? n_items : 0;
}

static void divide(run *r)
{
    const uint32_t pool_threads = df_pool_threads(r->x->pool);
    for (uint32_t i = 0; i < r->plan->n_launches; i++) {
        const uint32_t n = divide_launch(r, &r->plan->launches[i], pool_threads);
        if (n > 1) r->n_threads = pool_threads;
        if (n > r->max_items) r->max_items = n;
    }
}

/* ---- lay out ---- */

/* Words of partial results per row of a split segment. */
static int64_t partial_words(const seg_run *s)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < s->kernel->n_ins; i++) {
        const df_ins *const ins = &s->kernel->ins[i];
        if (df_kop_infos[ins->op].kind == DF_KOP_reduce)
            n += ins->op == DF_K_argmin || ins->op == DF_K_argmax ? 2 : 1;
    }
    return n * div_up(s->n_red, DF_BLOCK) * s->n_inner;
}

static void lay_out_kernel(run *r, const df_seg *seg, seg_run *s, bump *b)
{
    const df_kernel *const k = s->kernel;
    const bool matmul = seg->kind == DF_SEG_MATMUL;
    /* An epilogue's threads turn copies of their own, beside the original. */
    const size_t n_copies = matmul ? r->n_threads + 1u : s->per_thread ? r->n_threads : 1;
    const size_t n_strides = (size_t)k->n_access * k->n_axes;
    s->ptr = take(b, sizeof *s->ptr * k->n_access * n_copies);
    int64_t *const stride = take(b, sizeof *stride * n_strides);
    int64_t *const first = take(b, sizeof *first * k->n_access);
    int64_t *const extent = take(b, sizeof *extent * k->n_axes);
    uint64_t *const num = take(b, sizeof *num * k->n_num);
    if (matmul) s->epilogue_stride = take(b, sizeof *stride * n_strides * n_copies);
    if (s->split) {
        s->partial_row = partial_words(s);
        s->partial = take(b, sizeof *s->partial * (size_t)(s->partial_row * s->n_outer));
    }
    s->args = (df_kargs){ .ptr = s->ptr, .stride = stride, .base = first, .extent = extent, .num = num };

    size_t scratch = 0;
    for (uint32_t i = 0; i < k->n_access; i++)
        if (k->access[i].kind == DF_ACCESS_SCRATCH && k->access[i].same_as == i) {
            const size_t size = deft_dtype_size((deft_dtype)k->access[i].dtype);
            scratch += ((size_t)slot_at(r, seg->bind[i].offset) * size + 127) & ~(size_t)63;
        }
    if (scratch > r->scratch_size) r->scratch_size = scratch;
}

static void lay_out(run *r, bump *b)
{
    r->base = take(b, sizeof *r->base * r->plan->n_bufs);
    r->own = take(b, sizeof *r->own * r->plan->n_bufs);
    r->task_begin = take(b, sizeof *r->task_begin * (r->max_items + 1u));
    for (uint32_t i = 0; i < r->plan->n_segs; i++)
        if (r->segs[i].kernel) lay_out_kernel(r, &r->plan->segs[i], &r->segs[i], b);
    r->interp_size = (r->interp_size + 63) & ~(size_t)63;
    r->thread_size = 64 + r->interp_size + r->scratch_size;
    r->threads = take(b, r->thread_size * r->n_threads);
    r->matmul_work = take(b, r->matmul_size);
}

/* ---- buffers ---- */

static df_buffer *donated(const run *r, const df_plan_buf *buf, const df_launch_io *io)
{
    if (buf->donor == DF_NONE || r->plan->has_checks || !io->input) return NULL;
    const df_input *const in = &r->t->inputs[buf->donor];
    df_buffer *const b = (df_buffer *)(uintptr_t)io->input[buf->donor]; /* ours to take over */
    const int64_t bytes = r->slots[buf->numel] * (int64_t)deft_dtype_size(buf->dtype);
    if (!(in->flags & DF_INPUT_SOLE) || (in->flags & DF_INPUT_WRAPPED) || !b || !b->from) return NULL;
    return b->data == in->data && b->bytes >= bytes ? df_buffer_ref(b) : NULL;
}

static deft_status take_buffers(run *r, df_diag *d, df_launch_io *io, df_buffer **arena,
                                df_run_stats *stats)
{
    deft_status st = DEFT_OK;
    const df_plan *const plan = r->plan;
    int64_t arena_size = 0;
    for (uint32_t i = 0; i < plan->n_regions; i++)
        arena_size += (r->slots[plan->regions[i].bytes] + 63) & ~(int64_t)63;
    if (arena_size > 0) {
        TRY(df_buffer_create(d, r->x->allocator, arena_size, arena));
        stats->bytes_allocated += (uint64_t)arena_size;
    }
    for (uint32_t i = 0; i < plan->n_bufs; i++) {
        const df_plan_buf *const buf = &plan->bufs[i];
        switch ((df_buf_kind)buf->kind) {
        case DF_BUF_INPUT:
        case DF_BUF_INTO: r->base[i] = r->t->inputs[buf->index].data; break;
        case DF_BUF_ROOT:
            r->own[i] = donated(r, buf, io);
            if (r->own[i]) {
                stats->donated++;
            } else {
                const int64_t bytes = r->slots[buf->numel] * (int64_t)deft_dtype_size(buf->dtype);
                TRY(df_buffer_create(d, r->x->allocator, bytes, &r->own[i]));
                stats->bytes_allocated += (uint64_t)bytes;
            }
            r->base[i] = r->own[i]->data;
            break;
        case DF_BUF_TEMP: {
            int64_t at = 0;
            for (uint32_t j = 0; j < buf->index; j++)
                at += (r->slots[plan->regions[j].bytes] + 63) & ~(int64_t)63;
            r->base[i] = (*arena ? (char *)(*arena)->data : (char *)r->threads) + at;
            break;
        }
        }
    }
done:
    return st;
}

static void hand_out_roots(run *r, df_launch_io *io)
{
    for (uint32_t i = 0; i < r->plan->n_roots; i++) {
        const uint32_t b = r->plan->root_buf[i];
        if (b == DF_NONE || r->plan->bufs[b].kind != DF_BUF_ROOT) continue;
        io->root[i] = df_buffer_ref(r->own[b]);
    }
}

static void drop_buffers(run *r)
{
    for (uint32_t i = 0; i < r->plan->n_bufs; i++) df_buffer_drop(&r->own[i]);
}

/* ---- bind ---- */

static uint64_t number_bits(int64_t v, uint8_t dtype)
{
    union {
        float f;
        uint32_t u;
    } f32;
    union {
        double f;
        uint64_t u;
    } f64;
    switch ((deft_dtype)dtype) {
    case DEFT_BOOL: return v != 0;
    case DEFT_U8: return (uint8_t)v;
    case DEFT_I32: return (uint32_t)v;
    case DEFT_I64: return (uint64_t)v;
    case DEFT_F32: f32.f = (float)v; return f32.u;
    case DEFT_F64: f64.f = (double)v; return f64.u;
    }
    df_unreachable();
}

static char *thread_area(const run *r, uint32_t thread)
{
    return r->threads + r->thread_size * thread;
}

/* One copy of the pointers per thread, SCRATCH accesses pointing into the thread's own area. */
static void bind_scratch(const run *r, const df_seg *seg, seg_run *s)
{
    const df_kernel *const k = s->kernel;
    for (uint32_t thread = 0; thread < r->n_threads; thread++) {
        char **const ptr = s->ptr + (size_t)thread * k->n_access;
        char *at = thread_area(r, thread) + 64 + r->interp_size;
        if (thread > 0) memcpy(ptr, s->ptr, sizeof *ptr * k->n_access);
        for (uint32_t i = 0; i < k->n_access; i++) {
            if (k->access[i].kind != DF_ACCESS_SCRATCH) continue;
            ptr[i] = at;
            if (k->access[i].same_as != i) {
                ptr[i] = ptr[k->access[i].same_as];
                continue;
            }
            const size_t size = deft_dtype_size((deft_dtype)k->access[i].dtype);
            at += ((size_t)slot_at(r, seg->bind[i].offset) * size + 127) & ~(size_t)63;
        }
    }
}

static void bind_kernel(const run *r, const df_seg *seg, seg_run *s)
{
    const df_kernel *const k = s->kernel;
    int64_t *const stride = (int64_t *)(uintptr_t)s->args.stride;
    int64_t *const first = (int64_t *)(uintptr_t)s->args.base;
    int64_t *const extent = (int64_t *)(uintptr_t)s->args.extent;
    uint64_t *const num = (uint64_t *)(uintptr_t)s->args.num;
    for (uint32_t j = 0; j < k->n_axes; j++) extent[j] = slot_at(r, seg->extent[j]);
    for (uint32_t i = 0; i < k->n_access; i++) {
        const df_bind *const bind = &seg->bind[i];
        const int64_t size = (int64_t)deft_dtype_size((deft_dtype)k->access[i].dtype);
        first[i] = k->access[i].kind == DF_ACCESS_INDEX ? slot_at(r, bind->offset) : 0;
        s->ptr[i] = NULL;
        if (bind->buf != DF_NONE)
            s->ptr[i] = r->base[bind->buf] + slot_at(r, bind->offset) * size;
        for (uint32_t j = 0; j < k->n_axes; j++)
            stride[i * k->n_axes + j] = slot_at(r, bind->stride[j]);
    }
    for (uint32_t i = 0; i < k->n_num; i++) {
        const uint32_t from = seg->num[i];
        num[i] = from & DF_NUM_IS_SLOT
                     ? number_bits(r->slots[from & ~DF_NUM_IS_SLOT], seg->num_dtype[i])
                     : (uint64_t)r->t->args[from];
    }
    if (s->per_thread) bind_scratch(r, seg, s);
}

/* ---- matmul ---- */

typedef struct epilogue {
    const run *r;
    const seg_run *s;
    uint32_t c_access;
} epilogue;

static void call_main(const run *r, const seg_run *s, const df_kargs *a, uint32_t thread, int64_t o0,
                      int64_t o1, int64_t i0, int64_t i1)
{
    if (s->code)
        s->code->main(a, o0, o1, i0, i1);
    else
        df_interp_main(s->kernel, thread_area(r, thread) + 64, a, o0, o1, i0, i1);
}

/* The epilogue kernel over a tile of C: its access c_access is turned to where the tile lies. Row o of
 * the kernel is row o of (batch, m), so that the OUTER strides follow from ld. */
static void run_epilogue(void *user, uint32_t thread, const char *tile, int64_t ld, int64_t o0,
                         int64_t o1, int64_t i0, int64_t i1)
{
    const epilogue *const e = user;
    const seg_run *const s = e->s;
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
    /* Rows are counted from the start of C, which need not exist: only the sum is an address. */
    ptr[e->c_access] = (char *)((uintptr_t)tile - (uintptr_t)((o0 * ld + i0) * size));
    a.ptr = ptr;
    a.stride = stride;
    a.fault = (int64_t *)(void *)thread_area(e->r, thread);
    call_main(e->r, s, &a, thread, o0, o1, i0, i1);
}

static void matmul_job(const run *r, const df_seg *seg, df_matmul_job *job)
{
    const uint32_t row = seg->n_batch, col = seg->n_batch + 1;
    *job = (df_matmul_job){ .dtype = seg->dtype, .m = slot_at(r, seg->m), .n = slot_at(r, seg->n),
                            .k = slot_at(r, seg->k), .n_batch = 1, .batch_rank = seg->n_batch,
                            .fast = (r->t->flags & DF_TRACE_FAST) != 0 };
    for (uint32_t i = 0; i < seg->n_batch; i++) {
        job->batch_extent[i] = slot_at(r, seg->batch[i]);
        job->n_batch *= job->batch_extent[i];
        job->a_batch[i] = slot_at(r, seg->a.stride[i]);
        job->b_batch[i] = slot_at(r, seg->b.stride[i]);
        job->c_batch[i] = seg->c.buf == DF_NONE ? 0 : slot_at(r, seg->c.stride[i]);
    }
    job->a_row = slot_at(r, seg->a.stride[row]);
    job->a_col = slot_at(r, seg->a.stride[col]);
    job->b_row = slot_at(r, seg->b.stride[row]);
    job->b_col = slot_at(r, seg->b.stride[col]);
    job->c_row = seg->c.buf == DF_NONE ? 0 : slot_at(r, seg->c.stride[row]);
}

static const df_gemm_kernel *gemm_of(const run *r, deft_dtype t)
{
    return atomic_load_explicit(&r->x->gemm[t == DEFT_F64], memory_order_acquire);
}

static char *operand(const run *r, const df_bind *bind, deft_dtype t)
{
    if (bind->buf == DF_NONE) return NULL;
    return r->base[bind->buf] + slot_at(r, bind->offset) * (int64_t)deft_dtype_size(t);
}

static void run_matmul(run *r, const df_seg *seg, const seg_run *s)
{
    df_matmul_job job;
    epilogue e = { r, s, seg->c_access };
    matmul_job(r, seg, &job);
    job.a = operand(r, &seg->a, seg->dtype);
    job.b = operand(r, &seg->b, seg->dtype);
    job.c = operand(r, &seg->c, seg->dtype);
    if (s->kernel) {
        job.epilogue = run_epilogue;
        job.user = &e;
    }
    df_blas *const blas = atomic_load_explicit(&r->x->blas, memory_order_acquire);
    df_matmul_run(&job, gemm_of(r, seg->dtype), blas, r->x->pool, r->matmul_work);
}

/* Before the frame is laid out: matmuls use every thread of the pool. */
static void measure_matmuls(run *r)
{
    const uint32_t n_threads = df_pool_threads(r->x->pool);
    for (uint32_t i = 0; i < r->plan->n_segs; i++) {
        const df_seg *const seg = &r->plan->segs[i];
        df_matmul_job job;
        if (seg->kind != DF_SEG_MATMUL) continue;
        r->n_threads = n_threads;
        matmul_job(r, seg, &job);
        if (seg->c.buf != DF_NONE) job.c = (char *)r; /* only whether there is one counts here */
        if (seg->kernel != DF_NONE) job.epilogue = run_epilogue;
        const size_t size = df_matmul_work_size(&job, gemm_of(r, seg->dtype), n_threads);
        if (size > r->matmul_size) r->matmul_size = size;
    }
}

/* ---- launch ---- */

static df_kargs thread_args(const run *r, const seg_run *s, uint32_t thread)
{
    df_kargs a = s->args;
    a.fault = (int64_t *)(void *)thread_area(r, thread);
    if (s->per_thread) a.ptr = s->ptr + (size_t)thread * s->kernel->n_access;
    return a;
}

static void run_item(const run *r, const seg_run *s, uint32_t item, uint32_t thread)
{
    df_kargs a = thread_args(r, s, thread);
    const int64_t row = item / s->parts * s->rows_per_item, part = item % s->parts;
    const int64_t end = df_min_i64(row + s->rows_per_item, s->n_outer);
    const int64_t p0 = part * s->per_part;
    if (!s->split) {
        call_main(r, s, &a, thread, row, end, p0, df_min_i64(p0 + s->per_part, s->n_inner));
        return;
    }
    const int64_t p1 = df_min_i64(p0 + s->per_part, div_up(s->n_red, DF_BLOCK));
    a.partial = s->partial + row * s->partial_row;
    if (s->code)
        s->code->part(&a, row, row + 1, p0, p1);
    else
        df_interp_part(s->kernel, thread_area(r, thread) + 64, &a, row, p0, p1);
}

static void run_task(void *user, uint32_t task, uint32_t thread)
{
    const run *const r = user;
    const uint32_t end = r->task_begin[task + 1];
    uint32_t item = r->task_begin[task];
    /* The last segment that begins at or before item. */
    uint32_t lo = 0, hi = r->launch->n;
    while (hi - lo > 1) {
        const uint32_t mid = (lo + hi) / 2;
        if (r->segs[r->launch->first + mid].first_item <= item)
            lo = mid;
        else
            hi = mid;
    }
    for (const seg_run *s = &r->segs[r->launch->first + lo]; item < end; s++)
        for (; item < end && item - s->first_item < s->n_items; item++)
            run_item(r, s, item - s->first_item, thread);
}

/* Groups items into tasks; returns how many. */
static uint32_t make_tasks(run *r, const df_launch *l)
{
    uint32_t n = 0, item = 0;
    double ns = TASK_NS;
    for (uint32_t i = 0; i < l->n; i++) {
        const seg_run *const s = &r->segs[l->first + i];
        for (uint32_t j = 0; j < s->n_items; j++, item++) {
            if (ns >= TASK_NS) {
                r->task_begin[n++] = item;
                ns = 0;
            }
            ns += s->ns / s->n_items;
        }
    }
    r->task_begin[n] = item;
    return n;
}

static void finish_split(const run *r, const seg_run *s)
{
    df_kargs a = thread_args(r, s, 0);
    for (int64_t o = 0; o < s->n_outer; o++) {
        a.partial = s->partial + o * s->partial_row;
        if (s->code)
            s->code->fin(&a, o, o + 1, 0, s->n_inner);
        else
            df_interp_fin(s->kernel, thread_area(r, 0) + 64, &a, o, 0, s->n_inner);
    }
}

/* Kernels first, together; then matmuls, each of which takes the whole pool. */
static void run_launch(run *r, const df_launch *l, df_run_stats *stats)
{
    r->launch = l;
    const uint32_t n_tasks = r->segs[l->first].parallel ? make_tasks(r, l) : 0;
    if (n_tasks > 1) df_pool_run(r->x->pool, n_tasks, run_task, r);
    for (uint32_t i = 0; i < l->n; i++) {
        const df_seg *const seg = &r->plan->segs[l->first + i];
        const seg_run *const s = &r->segs[l->first + i];
        if (n_tasks <= 1)
            for (uint32_t j = 0; j < s->n_items; j++) run_item(r, s, j, 0);
        if (s->n_items > 0 && s->split) finish_split(r, s);
        if (seg->kind == DF_SEG_MATMUL) run_matmul(r, seg, s);
        stats->interpreted_segments += s->kernel && !s->code;
    }
    stats->launches++;
    stats->segments += l->n;
}

/* Whether memory that outlives a failed run is written: then the run can no longer be undone. */
static bool is_kept(const run *r, uint32_t buf)
{
    if (buf == DF_NONE) return false;
    const df_plan_buf *const b = &r->plan->bufs[buf];
    if (b->kind == DF_BUF_INTO) return true;
    return b->kind == DF_BUF_ROOT && b->donor != DF_NONE && b->donor < r->t->n_inputs &&
           r->base[buf] == (char *)r->t->inputs[b->donor].data;
}

static bool has_kept(const run *r)
{
    for (uint32_t i = 0; i < r->plan->n_bufs; i++)
        if (is_kept(r, i)) return true;
    return false;
}

static bool writes_kept(const run *r, const df_launch *l)
{
    for (uint32_t i = l->first; i < l->first + l->n; i++) {
        const df_seg *const seg = &r->plan->segs[i];
        if (seg->kind == DF_SEG_MATMUL && is_kept(r, seg->c.buf)) return true;
        const df_kernel *const k = r->segs[i].kernel;
        for (uint32_t j = 0; k && j < k->n_access; j++)
            if (k->access[j].kind == DF_ACCESS_STORE && is_kept(r, seg->bind[j].buf)) return true;
    }
    return false;
}

static deft_status report_fault(const run *r, df_diag *d)
{
    for (uint32_t i = 0; i < r->n_threads; i++) {
        const int64_t *const fault = (const int64_t *)(const void *)thread_area(r, i);
        if (fault[0] == 0) continue;
        const uint64_t node = (uint64_t)fault[0] - 1;
        const char *const op = node < r->t->n_nodes ? df_op_infos[r->t->nodes[node].op].name : "index";
        return df_fail(d, DEFT_E_RANGE, "%s: index %lld is outside [0,%lld) (%%%llu)", op,
                       (long long)fault[1], (long long)fault[2], (unsigned long long)node);
    }
    return DEFT_OK;
}

static deft_status run_launches(run *r, df_diag *d, df_launch_io *io, df_run_stats *stats)
{
    deft_status st = DEFT_OK;
    const df_plan *const plan = r->plan;
    const bool kept = has_kept(r);
    bool may_stop = io->interrupted != NULL;
    for (uint32_t i = 0; plan->has_checks && i < r->n_threads; i++)
        memset(thread_area(r, i), 0, 3 * sizeof(int64_t));
    for (uint32_t i = 0; i < plan->n_launches; i++) {
        const df_launch *const l = &plan->launches[i];
        if (may_stop && io->interrupted(io->user))
            return df_fail(d, DEFT_E_INTERRUPTED, "interrupted before launch %u of %u", i,
                           plan->n_launches);
        if (l->n == 0) continue;
        run_launch(r, l, stats);
        if (plan->has_checks) TRY(report_fault(r, d));
        if (may_stop && kept && writes_kept(r, l)) may_stop = false;
    }
done:
    return st;
}

deft_status df_executor_run(df_executor *x, df_diag *d, const df_plan *plan, const df_trace *t,
                            const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    deft_status st = DEFT_OK;
    df_run_stats mine = { 0 };
    df_buffer *arena = NULL;
    run r = { .x = x, .plan = plan, .t = t, .slots = slots, .n_threads = 1 };
    const uint64_t start = x->measure ? df_os_now_ns() : 0;
    df_frame *const f = frame_take(x);
    if (!f) return df_fail_mem(d, "run", sizeof *f);
    const size_t segs_size = sizeof *r.segs * plan->n_segs;
    if (!block_reserve(x->mem, &f->segs, segs_size)) {
        st = df_fail_mem(d, "run", segs_size);
        goto done;
    }
    r.segs = (seg_run *)(void *)f->segs.at;
    measure(&r);
    divide(&r);
    measure_matmuls(&r);

    bump b = { 0 };
    lay_out(&r, &b);
    if (!block_reserve(x->mem, &f->work, b.used)) {
        st = df_fail_mem(d, "run", b.used);
        r.own = NULL;
        goto done;
    }
    b = (bump){ .at = f->work.at };
    lay_out(&r, &b);
    for (uint32_t i = 0; i < plan->n_bufs; i++) r.own[i] = NULL;
    TRY(take_buffers(&r, d, io, &arena, &mine));
    for (uint32_t i = 0; i < plan->n_segs; i++)
        if (r.segs[i].kernel) bind_kernel(&r, &plan->segs[i], &r.segs[i]);

    const uint64_t bound = x->measure ? df_os_now_ns() : 0;
    TRY(run_launches(&r, d, io, &mine));
    if (x->measure) {
        mine.t_bind_ns = bound - start;
        mine.t_run_ns = df_os_now_ns() - bound;
    }
    hand_out_roots(&r, io);
done:
    if (r.own) drop_buffers(&r);
    df_buffer_drop(&arena);
    frame_give(x, f);
    if (stats) *stats = mine;
    return st;
}
