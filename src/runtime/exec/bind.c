/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the arguments of kernels and routines from a plan, a trace and slots. This file knows no
 * device.
 */
#include "runtime/bind.h"

#include "ops/op.h"

/* ---- arguments of kernels ---- */

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
    const deft_dtype t = (deft_dtype)dtype;
    df_assert(!df_is_half(t)); /* no number slot has a half-precision dtype */
    if (!df_is_float(t)) return df_int_bits(t, v);
    if (t == DEFT_F32) return f32.f = (float)v, f32.u;
    return f64.f = (double)v, f64.u;
}

void df_bind_extents(const df_bound *b, const df_kernel *k, const df_seg *seg, const int64_t *slots)
{
    for (uint32_t j = 0; j < k->n_axes; j++) b->extent[j] = df_slot_value(slots, seg->extent[j]);
    for (uint32_t i = 0; i < k->n_access; i++) {
        const df_bind *const bind = &seg->bind[i];
        b->base[i] = k->access[i].kind == DF_ACCESS_INDEX ? df_slot_value(slots, bind->offset) : 0;
        for (uint32_t j = 0; j < k->n_axes; j++)
            b->stride[i * k->n_axes + j] = df_slot_value(slots, bind->stride[j]);
    }
}

void df_bind_addresses(const df_bound *b, const df_kernel *k, const df_seg *seg,
                       const int64_t *slots, char *const *origin)
{
    for (uint32_t i = 0; i < k->n_access; i++) {
        const df_bind *const bind = &seg->bind[i];
        const int64_t size = (int64_t)deft_dtype_size((deft_dtype)k->access[i].dtype);
        b->ptr[i] = NULL;
        if (bind->buf.i != DF_NONE)
            b->ptr[i] = origin[bind->buf.i] + df_slot_value(slots, bind->offset) * size;
    }
}

uint64_t df_bind_number(const df_seg *seg, uint32_t i, const int64_t *slots, const df_trace *t)
{
    const uint32_t from = seg->num[i];
    return from & DF_NUM_IS_SLOT ? number_bits(slots[from & ~DF_NUM_IS_SLOT], seg->num_dtype[i])
                                 : (uint64_t)t->args[from];
}

void df_bind_numbers(const df_bound *b, const df_kernel *k, const df_seg *seg, const int64_t *slots,
                     const df_trace *t)
{
    for (uint32_t i = 0; i < k->n_num; i++) b->num[i] = df_bind_number(seg, i, slots, t);
}

/* ---- buffers ---- */

int64_t df_bind_bytes(const df_plan_buf *b, const int64_t *slots)
{
    return slots[b->numel.i] * (int64_t)deft_dtype_size(b->dtype);
}

df_buffer *df_bind_donated(const df_plan *plan, const df_plan_buf *b, const df_trace *t,
                           const int64_t *slots, const df_launch_io *io)
{
    /* While the run can still fail, the memory of an input must not be written. */
    if (b->donor == DF_NONE || b->first < plan->n_checked || !io->input) return NULL;
    const df_input *const in = &t->inputs[b->donor];
    df_buffer *const from = (df_buffer *)(uintptr_t)io->input[b->donor]; /* may be donated */
    if (!(in->flags & DF_INPUT_SOLE) || !from) return NULL;
    df_assert(!(in->flags & DF_INPUT_WRAPPED) && (from->from || from->home));
    return from->data == in->data && from->bytes >= df_bind_bytes(b, slots) ? df_buffer_ref(from)
                                                                            : NULL;
}

/* ---- routines ---- */

bool df_bind_is_scatter(const df_seg *seg)
{
    return df_op_writes_over((df_op)seg->op);
}

static char *address(const df_bind *bind, deft_dtype t, const int64_t *slots, char *const *origin)
{
    return origin[bind->buf.i] + df_slot_value(slots, bind->offset) * (int64_t)deft_dtype_size(t);
}

deft_dtype df_bind_routine_dtype(const df_seg *seg)
{
    return seg->op == DF_OP_sort || seg->op == DF_OP_compress ? seg->dtype : DEFT_I64;
}

df_routine_job df_bind_routine(const df_seg *seg, const int64_t *slots, char *const *origin)
{
    df_routine_job job = { .op = (df_op)seg->op,
                           .attr = seg->attr,
                           .dtype = seg->dtype,
                           .n = df_slot_value(slots, seg->n),
                           .m = df_slot_value(slots, seg->m),
                           .in_step = df_slot_value(slots, seg->a.stride[seg->n_batch]),
                           .n_batch = 1,
                           .batch_rank = seg->n_batch };
    for (uint32_t i = 0; i < seg->n_batch; i++) {
        job.batch_extent[i] = df_slot_value(slots, seg->batch[i]);
        job.in_batch[i] = df_slot_value(slots, seg->a.stride[i]);
        job.n_batch *= job.batch_extent[i];
    }
    /* A trace that was written by hand may name a position behind the last one. */
    job.first = df_slot_value(slots, seg->k);
    job.first = df_max_i64(df_min_i64(job.first, job.n - job.m), 0);
    if (seg->op == DF_OP_compress) {
        job.mask_dtype = seg->b_dtype;
        job.mask_step = df_slot_value(slots, seg->b.stride[0]);
    }
    if (!origin) return job;
    job.in = address(&seg->a, seg->dtype, slots, origin);
    if (seg->op == DF_OP_compress) job.mask = address(&seg->b, seg->b_dtype, slots, origin);
    job.out = (int64_t *)(void *)address(&seg->c, df_bind_routine_dtype(seg), slots, origin);
    return job;
}

/* The axes of the job are those of the values. In index_* they are the axes of the result, with
 * the indexed axis replaced by the axes of the index. In scatter_* they are the axes of the
 * index. */
df_scatter_job df_bind_scatter(const df_seg *seg, const int64_t *slots, char *const *origin)
{
    const uint32_t axis = seg->attr, n_index = seg->n_index;
    const bool slices = df_op_scatters_slices((df_op)seg->op);
    df_scatter_job job = { .how = df_scatter_how_of((df_op)seg->op),
                           .dtype = seg->dtype,
                           .index_dtype = seg->a_dtype,
                           .n = df_slot_value(slots, seg->n),
                           .step = df_slot_value(slots, seg->c.stride[axis]),
                           .rank = seg->n_batch };
    if (origin) {
        job.out = address(&seg->c, seg->dtype, slots, origin);
        job.value = address(&seg->b, seg->dtype, slots, origin);
        job.index = address(&seg->a, seg->a_dtype, slots, origin);
    }
    for (uint32_t i = 0; i < seg->n_batch; i++) {
        const bool indexed = slices ? i >= axis && i < axis + n_index : i == axis;
        const uint32_t at = !slices || i < axis ? i : i + 1 - n_index; /* in the result */
        job.extent[i] = df_slot_value(slots, seg->batch[i]);
        job.value_step[i] = df_slot_value(slots, seg->b.stride[i]);
        job.out_step[i] = indexed ? 0 : df_slot_value(slots, seg->c.stride[at]);
        if (!slices) job.index_step[i] = df_slot_value(slots, seg->a.stride[i]);
        if (slices && indexed) job.index_step[i] = df_slot_value(slots, seg->a.stride[i - axis]);
    }
    return job;
}

/* ---- memory that outlives a failed run ---- */

static bool is_kept(const df_plan *plan, const df_trace *t, char *const *origin, df_buf buf)
{
    if (buf.i == DF_NONE) return false;
    const df_plan_buf *const b = &plan->bufs[buf.i];
    if (b->kind == DF_BUF_INTO) return true;
    return b->kind == DF_BUF_ROOT && b->donor != DF_NONE && b->donor < t->n_inputs &&
           origin[buf.i] == (char *)t->inputs[b->donor].data;
}

bool df_bind_has_kept(const df_plan *plan, const df_trace *t, char *const *origin)
{
    for (df_buf i = { 0 }; i.i < plan->n_bufs; i.i++)
        if (is_kept(plan, t, origin, i)) return true;
    return false;
}

bool df_bind_writes_kept(const df_plan *plan, const df_launch *l, const df_trace *t,
                         char *const *origin)
{
    for (uint32_t i = l->first; i < l->first + l->n; i++) {
        const df_seg *const seg = &plan->segs[i];
        if (seg->kind != DF_SEG_KERNEL && is_kept(plan, t, origin, seg->c.buf)) return true;
        const df_kernel *const k = df_seg_kernel(plan, seg);
        for (uint32_t j = 0; k && j < k->n_access; j++)
            if (k->access[j].kind == DF_ACCESS_STORE && is_kept(plan, t, origin, seg->bind[j].buf))
                return true;
    }
    return false;
}

deft_status df_bind_fault(df_diag *d, const df_plan *plan, const df_trace *t,
                          const int64_t fault[3])
{
    if (fault[0] == 0) return DEFT_OK;
    const uint64_t k = (uint64_t)fault[0] - 1;
    const df_plan_fault *const at = k < plan->n_faults ? &plan->faults[k] : NULL;
    const uint64_t node = at ? at->node : k;
    /* A plan that was written by hand has no list of faults. */
    const char *const op = at               ? df_op_infos[at->op].name
                           : k < t->n_nodes ? df_op_infos[t->nodes[k].op].name
                                            : "index";
    const deft_status st =
        df_fail(d, DEFT_E_RANGE, "%s: index %lld is outside [0,%lld) (%%%llu)", op,
                (long long)fault[1], (long long)fault[2], (unsigned long long)node);
    if (d && at) {
        d->node = at->node + 1;
        d->site = t->site ? t->site[at->node] : 0;
    }
    return st;
}
