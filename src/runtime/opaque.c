/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of opaque operators (deft/opaque.h).
 *
 * The workspace of a call has the lists of its inputs and results. Then come copies of inputs that
 * must have no gaps, and memory for results that nothing reads. The forms of those are not in
 * the plan. So the shape rule is asked again, with the extents of the run. That also finds a rule
 * that is no function of its arguments.
 */
#include "runtime/exec/exec_run.h"
#include "trace/opaque.h"

#include <inttypes.h>
#include <string.h>

/* A call in a run. */
typedef struct call_run {
    const df_run *r;
    const df_seg *seg;
    const df_opaque *x;
    const df_opaque_code *code;
    deft_op_form in[DF_OPAQUE_MOST_TENSORS], out[DF_OPAQUE_MOST_TENSORS];
} call_run;

static size_t aligned(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static size_t form_bytes(const deft_op_form *f)
{
    size_t n = deft_dtype_size(f->dtype);
    for (uint32_t j = 0; j < f->rank; j++) n *= (size_t)f->extent[j];
    return n;
}

static deft_op_form operand_form(const df_run *r, const df_call_operand *x)
{
    deft_op_form f = { .dtype = x->dtype, .rank = x->rank };
    for (uint32_t j = 0; j < x->rank; j++) f.extent[j] = df_run_slot(r, x->extent[j]);
    return f;
}

static bool same_form(const deft_op_form *a, const deft_op_form *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (uint32_t j = 0; same && j < a->rank; j++) same = a->extent[j] == b->extent[j];
    return same;
}

static bool is_dense(const df_run *r, const df_call_operand *x)
{
    int64_t extent[DEFT_MAX_RANK], stride[DEFT_MAX_RANK];
    for (uint32_t j = 0; j < x->rank; j++) {
        extent[j] = df_run_slot(r, x->extent[j]);
        stride[j] = df_run_slot(r, x->bind.stride[j]);
    }
    return df_strides_contiguous(extent, stride, x->rank);
}

/* The operand that result `index` is stored in; NULL: nothing reads it. */
static const df_call_operand *stored_result(const df_seg_call *c, uint32_t index)
{
    for (uint32_t i = 0; i < c->n_out; i++)
        if (c->out[i].index == index) return &c->out[i];
    return NULL;
}

/* Finds the operator, and asks for the forms of its results. */
static deft_status begin_call(call_run *c, df_diag *d)
{
    const df_seg_call *const s = c->seg->call;
    c->x = df_opaques_at(c->r->t->opaques, c->seg->attr);
    c->code = c->x ? atomic_load(&c->x->code) : NULL;
    if (!c->x)
        return df_fail(d, DEFT_E_INTERNAL, "call: there is no operator %" PRIu32, c->seg->attr);
    if (!c->code)
        return df_fail(d, DEFT_E_STATE,
                       "%s: version %" PRIu32 " of this opaque operator is not defined here",
                       c->x->name, c->x->version);
    for (uint32_t i = 0; i < s->n_in; i++) c->in[i] = operand_form(c->r, &s->in[i]);
    const deft_status st = df_opaque_forms(d, c->x, c->code, c->in, c->out);
    for (uint32_t i = 0; i < s->n_out && st == DEFT_OK; i++) {
        const deft_op_form f = operand_form(c->r, &s->out[i]);
        if (!same_form(&f, &c->out[s->out[i].index]))
            return df_fail(d, DEFT_E_STATE,
                           "%s: its shape rule gives result %" PRIu32
                           " another form than when the call was recorded",
                           c->x->name, s->out[i].index);
    }
    return st;
}

static size_t call_work_size(const call_run *c)
{
    const df_seg_call *const s = c->seg->call;
    size_t size =
        aligned(c->x->n_in * sizeof(deft_op_input)) + aligned(c->x->n_out * sizeof(deft_op_result));
    for (uint32_t i = 0; i < s->n_in && c->code->dense; i++)
        if (!is_dense(c->r, &s->in[i])) size += aligned(form_bytes(&c->in[i]));
    for (uint32_t i = 0; i < c->x->n_out; i++)
        if (!stored_result(s, i)) size += aligned(form_bytes(&c->out[i]));
    return size;
}

size_t df_run_call_work_size(const df_run *r, const df_seg *seg)
{
    call_run c = { .r = r, .seg = seg };
    return begin_call(&c, NULL) == DEFT_OK ? call_work_size(&c) : 0;
}

/* Copies an input to `to`, row-major. */
static void pack_input(const deft_op_input *in, char *to)
{
    const deft_op_form *const f = &in->form;
    const size_t size = deft_dtype_size(f->dtype);
    int64_t at[DEFT_MAX_RANK] = { 0 };
    const int64_t row = f->rank ? f->extent[f->rank - 1] : 1;
    const int64_t step = f->rank ? in->stride[f->rank - 1] : 0;
    for (size_t done = 0; done < in->bytes;) {
        int64_t first = 0;
        for (uint32_t j = 0; j + 1 < f->rank; j++) first += at[j] * in->stride[j];
        for (int64_t k = 0; k < row; k++, done += size)
            memcpy(to + done, (const char *)in->data + (first + k * step) * (int64_t)size, size);
        for (uint32_t j = f->rank > 0 ? f->rank - 1 : 0; j-- > 0;) {
            if (++at[j] < f->extent[j]) break;
            at[j] = 0;
        }
    }
}

static void bind_input(const call_run *c, uint32_t i, deft_op_input *in, char **free_work)
{
    const df_run *const r = c->r;
    const df_call_operand *const x = &c->seg->call->in[i];
    const int64_t size = (int64_t)deft_dtype_size(x->dtype);
    *in = (deft_op_input){ .data = r->base[x->bind.buf.i] + df_run_slot(r, x->bind.offset) * size,
                           .form = c->in[i],
                           .bytes = form_bytes(&c->in[i]),
                           .is_dense = is_dense(r, x) };
    for (uint32_t j = 0; j < x->rank; j++) in->stride[j] = df_run_slot(r, x->bind.stride[j]);
    if (c->code->dense && !in->is_dense) {
        pack_input(in, *free_work);
        in->data = *free_work;
        in->is_dense = true;
        *free_work += aligned(in->bytes);
    }
    /* Strides of axes with one element, and of no elements, may be any number. */
    for (uint32_t j = x->rank, step = 0; in->is_dense && j-- > 0; step++)
        in->stride[j] = step ? in->stride[j + 1] * in->form.extent[j + 1] : 1;
}

static deft_status run_opaque(const call_run *c, df_diag *d)
{
    const df_run *const r = c->r;
    char *work = r->routine_work;
    if (call_work_size(c) > r->routine_size)
        return df_fail(d, DEFT_E_STATE, "%s: its shape rule gives larger results than before",
                       c->x->name);
    deft_op_input *const in = (deft_op_input *)(void *)work;
    work += aligned(c->x->n_in * sizeof *in);
    deft_op_result *const out = (deft_op_result *)(void *)work;
    work += aligned(c->x->n_out * sizeof *out);
    for (uint32_t i = 0; i < c->x->n_in; i++) bind_input(c, i, &in[i], &work);
    for (uint32_t i = 0; i < c->x->n_out; i++) {
        const df_call_operand *const x = stored_result(c->seg->call, i);
        out[i] = (deft_op_result){ .data = x ? r->base[x->bind.buf.i] : work,
                                   .form = c->out[i],
                                   .bytes = form_bytes(&c->out[i]) };
        if (!x) work += aligned(out[i].bytes);
    }
    df_opaque_saying said;
    df_opaque_begin(&said, c->x, c->code);
    const deft_status st = c->code->run(in, c->x->n_in, out, c->x->n_out, &said.about);
    return st == DEFT_OK ? st : df_opaque_fail(d, st, c->x, &said, "its function failed");
}

deft_status df_run_call(const df_run *r, df_diag *d, const df_seg *seg)
{
    call_run c = { .r = r, .seg = seg };
    deft_status st = begin_call(&c, d);
    if (st == DEFT_OK) st = run_opaque(&c, d);
    const df_plan_fault *const at =
        seg->fault < r->plan->n_faults ? &r->plan->faults[seg->fault] : NULL;
    if (st != DEFT_OK && d && at) {
        d->site = r->t->site ? r->t->site[at->node] : 0;
        /* Another run may find memory. */
        d->node = st == DEFT_E_MEMORY ? 0 : at->node + 1;
    }
    return st;
}
