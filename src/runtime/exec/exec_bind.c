/* SPDX-License-Identifier: Apache-2.0
 *
 * Prepares a run for its first launch: the run layout, buffers, and the arguments of every kernel.
 * See exec.c.
 */
#include "runtime/exec/exec_run.h"

#include <string.h>

#include "runtime/os.h"

/* ---- lay out ---- */

/* Returns how many words of partial results a row of a split segment has. */
static int64_t partial_words(const df_seg_run *s)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < s->kernel->n_ins; i++) {
        const df_ins *const ins = &s->kernel->ins[i];
        if (df_kop_infos[ins->op].kind == DF_KOP_reduce)
            n += ins->op == DF_K_argmin || ins->op == DF_K_argmax ? 2 : 1;
    }
    return n * df_div_up(s->n_red, DF_BLOCK) * s->n_inner;
}

static void lay_out_kernel(df_run *r, const df_seg *seg, df_seg_run *s, df_bump *b)
{
    const df_kernel *const k = s->kernel;
    const bool matmul = seg->kind == DF_SEG_MATMUL;
    /* Each thread of an epilogue changes a copy of its own. The original is kept beside them. */
    const size_t n_copies = matmul ? r->n_threads + 1u : s->per_thread ? r->n_threads : 1;
    const size_t n_strides = (size_t)k->n_access * k->n_axes;
    s->ptr = df_bump_take(b, sizeof *s->ptr * k->n_access * n_copies);
    int64_t *const stride = df_bump_take(b, sizeof *stride * n_strides);
    int64_t *const first = df_bump_take(b, sizeof *first * k->n_access);
    int64_t *const extent = df_bump_take(b, sizeof *extent * k->n_axes);
    uint64_t *const num = df_bump_take(b, sizeof *num * k->n_num);
    if (matmul) s->epilogue_stride = df_bump_take(b, sizeof *stride * n_strides * n_copies);
    if (s->split) {
        s->partial_row = partial_words(s);
        s->partial = df_bump_take(b, sizeof *s->partial * (size_t)(s->partial_row * s->n_outer));
    }
    s->args =
        (df_kargs){ .ptr = s->ptr, .stride = stride, .base = first, .extent = extent, .num = num };

    size_t scratch = 0;
    for (uint32_t i = 0; i < k->n_access; i++)
        if (k->access[i].kind == DF_ACCESS_SCRATCH && k->access[i].same_as == i) {
            const size_t size = deft_dtype_size((deft_dtype)k->access[i].dtype);
            scratch += ((size_t)df_run_slot(r, seg->bind[i].offset) * size + 127) & ~(size_t)63;
        }
    if (scratch > r->scratch_size) r->scratch_size = scratch;
}

void df_run_lay_out(df_run *r, df_bump *b)
{
    r->base = df_bump_take(b, sizeof *r->base * r->plan->n_bufs);
    r->own = df_bump_take(b, sizeof *r->own * r->plan->n_bufs);
    r->task_begin = df_bump_take(b, sizeof *r->task_begin * (r->max_items + 1u));
    for (uint32_t i = 0; i < r->plan->n_segs; i++)
        if (r->segs[i].kernel) lay_out_kernel(r, &r->plan->segs[i], &r->segs[i], b);
    r->work_size = (r->work_size + 63) & ~(size_t)63;
    r->thread_size = 64 + r->work_size + r->scratch_size;
    r->threads = df_bump_take(b, r->thread_size * r->n_threads);
    r->matmul_work = df_bump_take(b, r->matmul_size);
    r->routine_work = df_bump_take(b, r->routine_size);
}

/* ---- buffers ---- */

/* Returns the memory of the caller that root buffer i is to be stored in, or NULL. */
static char *caller_memory(const df_plan *plan, const df_launch_io *io, uint32_t i)
{
    for (uint32_t k = 0; io->into && k < plan->n_roots; k++)
        if (plan->root_buf[k].i == i && io->into[k]) return io->into[k];
    return NULL;
}

/* Populates huge page i of a buffer, or what there is of it. */
static void populate_page(void *user, uint32_t i, uint32_t thread)
{
    const df_buffer *const b = user;
    const size_t at = i * DF_OS_HUGE, left = (size_t)b->bytes - at;
    (void)thread;
    df_os_populate((char *)b->data + at, left < DF_OS_HUGE ? left : DF_OS_HUGE);
}

/* Gives a buffer of zeros its pages before it is written. The system clears them, at 2 to 10 GB/s
 * on each thread that asks. */
static void fill_pages(const df_run *r, df_buffer *b)
{
    if (!df_buffer_wants_pages(b)) return;
    const uint32_t n = (uint32_t)(((size_t)b->bytes + DF_OS_HUGE - 1) / DF_OS_HUGE);
    df_pool_run(n > 1 ? r->x->pool : r->x->alone, n, populate_page, b);
}

/* Finds memory for root buffer i. */
static deft_status take_root(df_run *r, df_diag *d, uint32_t i, const df_launch_io *io,
                             df_run_stats *stats)
{
    deft_status st = DEFT_OK;
    const df_plan_buf *const buf = &r->plan->bufs[i];
    const int64_t bytes = df_bind_bytes(buf, r->slots);
    r->base[i] = caller_memory(r->plan, io, i);
    if (!r->base[i]) {
        r->own[i] = df_bind_donated(r->plan, buf, r->t, r->slots, io);
        if (r->own[i]) {
            stats->donated++;
            if (!buf->keep) fill_pages(r, r->own[i]);
            r->base[i] = r->own[i]->data;
            return DEFT_OK;
        }
        TRY(df_buffer_create(d, r->x->allocator, bytes, &r->own[i]));
        stats->bytes_allocated += (uint64_t)bytes;
        r->base[i] = r->own[i]->data;
    }
    /* The plan writes only a part of the root. The rest keeps the donor's values. */
    if (buf->keep) memcpy(r->base[i], r->t->inputs[buf->donor].data, (size_t)bytes);
done:
    return st;
}

deft_status df_run_take_buffers(df_run *r, df_diag *d, df_launch_io *io, df_buffer **arena,
                                df_run_stats *stats)
{
    deft_status st = DEFT_OK;
    const df_plan *const plan = r->plan;
    const int64_t arena_size = df_plan_arena_bytes(plan, r->slots);
    if (arena_size > 0) {
        TRY(df_buffer_create(d, r->x->allocator, arena_size, arena));
        stats->bytes_allocated += (uint64_t)arena_size;
    }
    for (uint32_t i = 0; i < plan->n_bufs; i++) {
        const df_plan_buf *const buf = &plan->bufs[i];
        switch ((df_buf_kind)buf->kind) {
        case DF_BUF_INPUT:
        case DF_BUF_INTO: r->base[i] = r->t->inputs[buf->index].data; break;
        case DF_BUF_ROOT: TRY(take_root(r, d, i, io, stats)); break;
        case DF_BUF_TEMP:
            r->base[i] = (*arena ? (char *)(*arena)->data : (char *)r->threads) +
                         df_plan_region_offset(plan, r->slots, buf->index);
            break;
        }
    }
done:
    return st;
}

void df_run_hand_out(df_run *r, df_launch_io *io)
{
    for (uint32_t i = 0; i < r->plan->n_roots; i++) {
        const df_buf b = r->plan->root_buf[i];
        if (b.i == DF_NONE || r->plan->bufs[b.i].kind != DF_BUF_ROOT) continue;
        if (r->own[b.i]) io->root[i] = df_buffer_ref(r->own[b.i]);
    }
}

void df_run_drop_buffers(df_run *r)
{
    for (uint32_t i = 0; i < r->plan->n_bufs; i++) {
        if (!r->own[i]) continue;
        if (r->plan->bufs[i].donor != DF_NONE) df_buffer_changed(r->own[i]);
        df_buffer_drop(&r->own[i]);
    }
}

/* ---- bind ---- */

/* Makes one copy of the pointers per thread. SCRATCH accesses point into the area of the thread. */
static void bind_scratch(const df_run *r, const df_seg *seg, df_seg_run *s)
{
    const df_kernel *const k = s->kernel;
    for (uint32_t thread = 0; thread < r->n_threads; thread++) {
        char **const ptr = s->ptr + (size_t)thread * k->n_access;
        char *at = df_run_thread_area(r, thread) + 64 + r->work_size;
        if (thread > 0) memcpy(ptr, s->ptr, sizeof *ptr * k->n_access);
        for (uint32_t i = 0; i < k->n_access; i++) {
            if (k->access[i].kind != DF_ACCESS_SCRATCH) continue;
            ptr[i] = at;
            if (k->access[i].same_as != i) {
                ptr[i] = ptr[k->access[i].same_as];
                continue;
            }
            const size_t size = deft_dtype_size((deft_dtype)k->access[i].dtype);
            at += ((size_t)df_run_slot(r, seg->bind[i].offset) * size + 127) & ~(size_t)63;
        }
    }
}

static df_bound bound_of(const df_seg_run *s)
{
    return (df_bound){ .ptr = s->ptr,
                       .stride = (int64_t *)(uintptr_t)s->args.stride,
                       .base = (int64_t *)(uintptr_t)s->args.base,
                       .extent = (int64_t *)(uintptr_t)s->args.extent,
                       .num = (uint64_t *)(uintptr_t)s->args.num };
}

uint64_t df_run_access_bytes(const df_run *r, const df_seg *seg, const df_kernel *k, uint32_t i)
{
    const df_bind *const b = &seg->bind[i];
    uint64_t n = deft_dtype_size((deft_dtype)k->access[i].dtype);
    if (b->buf.i == DF_NONE) return 0;
    for (uint32_t x = 0; x < k->n_axes; x++)
        if (df_run_slot(r, b->stride[x]) != 0) n *= (uint64_t)df_run_slot(r, seg->extent[x]);
    return n;
}

void df_run_bind_extents(const df_run *r, const df_seg *seg, df_seg_run *s)
{
    const df_bound b = bound_of(s);
    df_bind_extents(&b, s->kernel, seg, r->slots);
}

void df_run_bind(const df_run *r, const df_seg *seg, df_seg_run *s)
{
    const df_bound b = bound_of(s);
    df_bind_addresses(&b, s->kernel, seg, r->slots, r->base);
    df_bind_numbers(&b, s->kernel, seg, r->slots, r->t);
    if (s->per_thread) bind_scratch(r, seg, s);
}

/* ---- zeros ---- */

/* The system maps new memory as zeros, and a page of it takes memory when it is written first. So a
 * segment that would write zeros into a new mapping is skipped. Programs make zeros and then write
 * a part at a time: the keys and values of earlier tokens, of which most never come.
 *
 * Pages of such a result are small, because a huge page would take memory for elements that are not
 * written. A run that writes all of it in place gets its pages before (take_root). Else a load
 * would map a page of zeros, and the store after it would copy that page. */

/* Whether kernel k stores the number 0, and does nothing else. */
static bool stores_zero(const df_kernel *k, const df_kargs *a)
{
    if (k->n_ins != 2 || k->n_access != 1 || k->access[0].kind != DF_ACCESS_STORE) return false;
    const df_ins *const from = &k->ins[0];
    if (from->dtype != k->access[0].dtype || k->ins[1].op != DF_K_store) return false;
    return from->op == DF_K_num     ? a->num[from->imm] == 0
           : from->op == DF_K_const ? from->imm == 0
                                    : false;
}

/* Whether one of the first n segments writes buffer b. */
static bool is_written_before(const df_plan *plan, uint32_t n, df_buf b)
{
    for (uint32_t i = 0; i < n; i++) {
        const df_seg *const seg = &plan->segs[i];
        const uint32_t n_access =
            seg->kernel.i == DF_NONE ? 0 : plan->kernels[seg->kernel.i].n_access;
        if (seg->kind != DF_SEG_KERNEL && seg->c.buf.i == b.i) return true;
        for (uint32_t k = 0; k < n_access; k++)
            if (seg->bind[k].buf.i == b.i) return true;
    }
    return false;
}

bool df_run_is_zeroed(const df_run *r, uint32_t i)
{
    const df_seg *const seg = &r->plan->segs[i];
    const df_seg_run *const s = &r->segs[i];
    if (seg->kind != DF_SEG_KERNEL || !stores_zero(s->kernel, &s->args)) return false;
    if (s->is_idle || s->rides || s->riders != DF_NONE) return false;
    const df_buf b = seg->bind[0].buf;
    df_buffer *const own = r->own[b.i];
    if (!own || r->plan->bufs[b.i].donor != DF_NONE || is_written_before(r->plan, i, b))
        return false;
    return df_run_access_bytes(r, seg, s->kernel, 0) == (uint64_t)own->bytes &&
           df_buffer_use_zeros(own);
}
