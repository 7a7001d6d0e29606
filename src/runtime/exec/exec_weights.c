/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of products: inputs of a plan that many runs, or many iterations of a loop, multiply
 * with. They are packed when they are used again (packs.h).
 */
#include "runtime/exec/exec_run.h"

/* Returns the buffer of an operand that is an input of the plan, in memory that is ours. Memory of
 * the caller may change between two runs without our notice. NULL: there is none. */
static df_buffer *weights_buffer(const df_run *r, const df_bind *bind)
{
    if (!r->inputs || bind->buf.i == DF_NONE) return NULL;
    const df_plan_buf *const buf = &r->plan->bufs[bind->buf.i];
    if (buf->kind != DF_BUF_INPUT) return NULL;
    df_buffer *const b = (df_buffer *)(uintptr_t)r->inputs[buf->index];
    return b && b->from == r->x->allocator ? b : NULL;
}

static df_buffer *pack_weights(const df_run *r, const df_weights *w, deft_dtype t, const char *from)
{
    df_diag d = { 0 };
    df_buffer *copy = NULL;
    if (df_buffer_create_derived(&d, r->x->allocator, w->bytes, &copy) != DEFT_OK) return NULL;
    df_matmul_pack(w, t, from, copy->data, r->x->pool);
    return copy;
}

/* Returns the bytes that an element takes in the packed copy. */
static uint32_t bytes_of_element(const df_weights *w, deft_dtype t)
{
    if (w->in_thirds) return 3 * (uint32_t)deft_dtype_size(DEFT_BF16);
    return (uint32_t)deft_dtype_size(w->has_pairs ? DEFT_BF16 : t);
}

df_buffer *df_run_find_weights(const df_run *r, const df_seg *seg, df_matmul_job *job)
{
    df_weights w;
    bool make;
    if (seg->windows || !df_matmul_find_weights(job, &w)) return NULL;
    df_buffer *const owner = weights_buffer(r, w.is_a ? &seg->a : &seg->b);
    if (!owner) return NULL;
    const char *const from = w.is_a ? job->a : job->b;
    const df_pack_key key = { .offset = from - (const char *)owner->data,
                              .k = w.k,
                              .n = w.n,
                              .row = w.row,
                              .column = w.col,
                              .size = bytes_of_element(&w, job->dtype),
                              .width = w.width };
    df_buffer *copy = df_packs_find(r->x->packs, owner, &key, w.bytes, &make);
    if (make) {
        copy = pack_weights(r, &w, job->dtype, from);
        if (copy) df_packs_add(r->x->packs, owner, &key, copy);
    }
    if (!copy) return NULL;
    job->packed = copy->data;
    if (w.has_pairs) job->least[w.is_a ? 0 : 1] = df_matmul_packed_least(&w, copy->data);
    return copy;
}
