/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run needs before its first launch: places in the frame, buffers, and the arguments of
 * every kernel. See exec.c.
 */
#include "runtime/exec_run.h"

#include <string.h>

/* ---- lay out ---- */

/* Words of partial results per row of a split segment. */
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
    /* An epilogue's threads turn copies of their own, beside the original. */
    const size_t n_copies = matmul ? r->n_threads + 1u : s->per_thread ? r->n_threads : 1;
    const size_t n_strides = (size_t)k->n_access * k->n_axes;
    s->ptr = df_take(b, sizeof *s->ptr * k->n_access * n_copies);
    int64_t *const stride = df_take(b, sizeof *stride * n_strides);
    int64_t *const first = df_take(b, sizeof *first * k->n_access);
    int64_t *const extent = df_take(b, sizeof *extent * k->n_axes);
    uint64_t *const num = df_take(b, sizeof *num * k->n_num);
    if (matmul) s->epilogue_stride = df_take(b, sizeof *stride * n_strides * n_copies);
    if (s->split) {
        s->partial_row = partial_words(s);
        s->partial = df_take(b, sizeof *s->partial * (size_t)(s->partial_row * s->n_outer));
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
    r->base = df_take(b, sizeof *r->base * r->plan->n_bufs);
    r->own = df_take(b, sizeof *r->own * r->plan->n_bufs);
    r->task_begin = df_take(b, sizeof *r->task_begin * (r->max_items + 1u));
    for (uint32_t i = 0; i < r->plan->n_segs; i++)
        if (r->segs[i].kernel) lay_out_kernel(r, &r->plan->segs[i], &r->segs[i], b);
    r->interp_size = (r->interp_size + 63) & ~(size_t)63;
    r->thread_size = 64 + r->interp_size + r->scratch_size;
    r->threads = df_take(b, r->thread_size * r->n_threads);
    r->matmul_work = df_take(b, r->matmul_size);
    r->routine_work = df_take(b, r->routine_size);
}

/* ---- buffers ---- */

static df_buffer *donated(const df_run *r, const df_plan_buf *buf, const df_launch_io *io)
{
    /* Written while the run may still fail, it would be neither the old value nor the new one. */
    if (buf->donor == DF_NONE || buf->first < r->plan->n_checked || !io->input) return NULL;
    const df_input *const in = &r->t->inputs[buf->donor];
    df_buffer *const b = (df_buffer *)(uintptr_t)io->input[buf->donor]; /* ours to take over */
    const int64_t bytes = r->slots[buf->numel] * (int64_t)deft_dtype_size(buf->dtype);
    if (!(in->flags & DF_INPUT_SOLE) || (in->flags & DF_INPUT_WRAPPED) || !b || !b->from)
        return NULL;
    return b->data == in->data && b->bytes >= bytes ? df_buffer_ref(b) : NULL;
}

deft_status df_run_take_buffers(df_run *r, df_diag *d, df_launch_io *io, df_buffer **arena,
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
                /* The plan writes only a part and counts on finding the rest. */
                if (buf->keep)
                    memcpy(r->own[i]->data, r->t->inputs[buf->donor].data, (size_t)bytes);
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

void df_run_hand_out(df_run *r, df_launch_io *io)
{
    for (uint32_t i = 0; i < r->plan->n_roots; i++) {
        const uint32_t b = r->plan->root_buf[i];
        if (b == DF_NONE || r->plan->bufs[b].kind != DF_BUF_ROOT) continue;
        io->root[i] = df_buffer_ref(r->own[b]);
    }
}

void df_run_drop_buffers(df_run *r)
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
    case DEFT_F16: /* no slot is a half */
    case DEFT_BF16: break;
    }
    df_unreachable();
}

/* One copy of the pointers per thread, SCRATCH accesses pointing into the thread's own area. */
static void bind_scratch(const df_run *r, const df_seg *seg, df_seg_run *s)
{
    const df_kernel *const k = s->kernel;
    for (uint32_t thread = 0; thread < r->n_threads; thread++) {
        char **const ptr = s->ptr + (size_t)thread * k->n_access;
        char *at = df_run_thread_area(r, thread) + 64 + r->interp_size;
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

void df_run_bind_extents(const df_run *r, const df_seg *seg, df_seg_run *s)
{
    const df_kernel *const k = s->kernel;
    int64_t *const stride = (int64_t *)(uintptr_t)s->args.stride;
    int64_t *const first = (int64_t *)(uintptr_t)s->args.base;
    int64_t *const extent = (int64_t *)(uintptr_t)s->args.extent;
    for (uint32_t j = 0; j < k->n_axes; j++) extent[j] = df_run_slot(r, seg->extent[j]);
    for (uint32_t i = 0; i < k->n_access; i++) {
        const df_bind *const bind = &seg->bind[i];
        first[i] = k->access[i].kind == DF_ACCESS_INDEX ? df_run_slot(r, bind->offset) : 0;
        for (uint32_t j = 0; j < k->n_axes; j++)
            stride[i * k->n_axes + j] = df_run_slot(r, bind->stride[j]);
    }
}

void df_run_bind(const df_run *r, const df_seg *seg, df_seg_run *s)
{
    const df_kernel *const k = s->kernel;
    uint64_t *const num = (uint64_t *)(uintptr_t)s->args.num;
    for (uint32_t i = 0; i < k->n_access; i++) {
        const df_bind *const bind = &seg->bind[i];
        const int64_t size = (int64_t)deft_dtype_size((deft_dtype)k->access[i].dtype);
        s->ptr[i] = NULL;
        if (bind->buf != DF_NONE)
            s->ptr[i] = r->base[bind->buf] + df_run_slot(r, bind->offset) * size;
    }
    for (uint32_t i = 0; i < k->n_num; i++) {
        const uint32_t from = seg->num[i];
        num[i] = from & DF_NUM_IS_SLOT
                     ? number_bits(r->slots[from & ~DF_NUM_IS_SLOT], seg->num_dtype[i])
                     : (uint64_t)r->t->args[from];
    }
    if (s->per_thread) bind_scratch(r, seg, s);
}
