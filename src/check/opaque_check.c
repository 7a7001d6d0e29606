/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the functions of an opaque operator, which are called here on memory of the check.
 *
 * Around each result are bytes that must stay as they are. The memory of a result is filled with
 * other bytes for each call, so that elements which `run` leaves alone differ. A further call gets
 * the same inputs with gaps between their elements, in reverse order in memory.
 */
#include "check/check.h"

#include <string.h>

enum { GUARD = 64, PATTERN = 0xa5 };

/* An input on the host: its elements without gaps, and with them. */
typedef struct host_input {
    size_t bytes, wide_bytes;
    char *dense, *wide, *saved; /* saved: what is in dense, or in wide */
    deft_op_input as_dense, as_wide;
} host_input;

typedef struct opaque_run {
    df_check *c;
    const deft_op_def *def;
    const void *attributes;
    deft_op_form in[DF_CHECK_INPUTS], out[DF_CHECK_INPUTS];
    host_input input[DF_CHECK_INPUTS];
    deft_op_input bound[DF_CHECK_INPUTS];
    deft_op_result result[DF_CHECK_INPUTS];
    char *memory[DF_CHECK_INPUTS], *first[DF_CHECK_INPUTS]; /* of results; of those of call 1 */
    char why[256];
} opaque_run;

static size_t bytes_of_form(const deft_op_form *f)
{
    size_t n = deft_dtype_size(f->dtype);
    for (uint32_t j = 0; j < f->rank; j++) n *= (size_t)f->extent[j];
    return n;
}

static void *take(opaque_run *r, size_t bytes)
{
    void *const p = df_mem_zalloc(df_ctx_mem(r->c->cx), bytes + 1);
    if (!p) (void)df_check_fails(r->c, DEFT_E_MEMORY, "op_check: no memory for inputs and results");
    return p;
}

static void give(opaque_run *r, void *p, size_t bytes)
{
    if (p) df_mem_free(df_ctx_mem(r->c->cx), p, bytes + 1);
}

static deft_op_about about_of(opaque_run *r)
{
    r->why[0] = '\0';
    return (deft_op_about){
        .attributes = r->attributes, .user = r->def->user, .why = r->why, .n_why = sizeof r->why
    };
}

/* ---- inputs ---- */

/* Copies the elements to memory where each axis is twice as far apart, and runs backwards. */
static void widen_input(host_input *h, const deft_op_form *f)
{
    const size_t size = deft_dtype_size(f->dtype);
    int64_t step = 1, last = 0, at[DEFT_MAX_RANK] = { 0 };
    h->as_wide = h->as_dense;
    h->as_wide.is_dense = false;
    for (uint32_t j = f->rank; j-- > 0;) {
        h->as_wide.stride[j] = -2 * step;
        last += 2 * step * (f->extent[j] > 0 ? f->extent[j] - 1 : 0);
        step = 2 * step * (f->extent[j] > 0 ? f->extent[j] : 1);
    }
    /* There is memory around it for an operator that ignores strides. */
    char *const origin = h->wide + h->bytes;
    h->as_wide.data = origin + last * (int64_t)size;
    memset(h->wide, PATTERN, h->wide_bytes);
    for (size_t done = 0; done < h->bytes; done += size) {
        int64_t from = last;
        for (uint32_t j = 0; j < f->rank; j++) from += at[j] * h->as_wide.stride[j];
        memcpy(origin + from * (int64_t)size, h->dense + done, size);
        for (uint32_t j = f->rank; j-- > 0;) {
            if (++at[j] < f->extent[j]) break;
            at[j] = 0;
        }
    }
}

static bool read_input(opaque_run *r, uint32_t i)
{
    host_input *const h = &r->input[i];
    deft_op_form *const f = &r->in[i];
    deft_tensor *const t = r->c->in[i];
    const deft_shape s = deft_shape_get(t);
    int64_t step = 1;
    *f = (deft_op_form){ .dtype = deft_dtype_of(t), .rank = s.rank };
    memcpy(f->extent, s.dim, s.rank * sizeof *s.dim);
    h->bytes = bytes_of_form(f);
    h->wide_bytes = ((h->bytes + 16) << s.rank) + 2 * h->bytes;
    h->dense = take(r, h->bytes);
    h->wide = take(r, h->wide_bytes);
    h->saved = take(r, h->wide_bytes);
    if (!h->dense || !h->wide || !h->saved) return false;
    const deft_status st = deft_read(t, f->dtype, h->dense, h->bytes);
    if (st != DEFT_OK) {
        if (!df_check_fails(r->c, st, deft_message(r->c->cx)))
            df_check_fault(r->c, "call", "%s", deft_message(r->c->cx));
        return false;
    }
    h->as_dense =
        (deft_op_input){ .data = h->dense, .form = *f, .bytes = h->bytes, .is_dense = true };
    for (uint32_t j = s.rank; j-- > 0;) {
        h->as_dense.stride[j] = step;
        step *= s.dim[j];
    }
    widen_input(h, f);
    return true;
}

/* ---- calls ---- */

static bool ask_forms(opaque_run *r)
{
    deft_op_form again[DF_CHECK_INPUTS];
    deft_op_about about = about_of(r);
    memset(r->out, 0, sizeof r->out);
    memset(again, 0, sizeof again);
    const deft_status st = r->def->shape(r->in, r->c->n_in, r->out, r->c->n_out, &about);
    if (st != DEFT_OK) {
        df_check_fault(r->c, "call", "its shape rule refuses the inputs: %s", r->why);
        return false;
    }
    about = about_of(r);
    (void)r->def->shape(r->in, r->c->n_in, again, r->c->n_out, &about);
    for (size_t k = 0; k < r->c->n_out; k++) {
        bool same = again[k].dtype == r->out[k].dtype && again[k].rank == r->out[k].rank;
        for (uint32_t j = 0; same && j < again[k].rank; j++)
            same = again[k].extent[j] == r->out[k].extent[j];
        if (same) continue;
        df_check_fault(r->c, "state", "a second call of its shape rule: another form of result %zu",
                       k);
        return false;
    }
    return true;
}

/* Calls `run`, with results filled with `fill`. Compares what surrounds them, and the inputs. */
static bool call_run(opaque_run *r, bool wide, int fill, const char *where)
{
    df_check *const c = r->c;
    const uint32_t faults = c->n_faults;
    for (size_t i = 0; i < c->n_in; i++) {
        const host_input *const h = &r->input[i];
        memcpy(h->saved, wide ? h->wide : h->dense, wide ? h->wide_bytes : h->bytes);
        r->bound[i] = wide ? h->as_wide : h->as_dense;
    }
    for (size_t k = 0; k < c->n_out; k++) {
        const size_t bytes = bytes_of_form(&r->out[k]);
        memset(r->memory[k], PATTERN, bytes + 2 * (size_t)GUARD);
        memset(r->memory[k] + GUARD, fill, bytes);
        r->result[k] =
            (deft_op_result){ .data = r->memory[k] + GUARD, .form = r->out[k], .bytes = bytes };
    }
    const deft_op_about about = about_of(r);
    const deft_status st = r->def->run(r->bound, c->n_in, r->result, c->n_out, &about);
    if (st != DEFT_OK) {
        if (!df_check_fails(c, st, r->why)) df_check_fault(c, "call", "%s%s", where, r->why);
        return false;
    }
    for (size_t i = 0; i < c->n_in; i++) {
        const host_input *const h = &r->input[i];
        if (memcmp(h->saved, wide ? h->wide : h->dense, wide ? h->wide_bytes : h->bytes))
            df_check_fault(c, "input", "%sit writes to input %zu", where, i);
    }
    for (size_t k = 0; k < c->n_out; k++) {
        const size_t bytes = r->result[k].bytes;
        bool is_whole = true;
        for (size_t b = 0; b < GUARD; b++)
            is_whole &= (unsigned char)r->memory[k][b] == PATTERN &&
                        (unsigned char)r->memory[k][GUARD + bytes + b] == PATTERN;
        if (!is_whole) df_check_fault(c, "result", "%sit writes outside of result %zu", where, k);
    }
    return c->n_faults == faults;
}

/* Whether two results are equal. Elements that are NaN in both are. */
static size_t count_differences(const deft_op_form *f, const char *a, const char *b, size_t bytes)
{
    const size_t size = deft_dtype_size(f->dtype);
    size_t n = 0;
    for (size_t at = 0; at < bytes; at += size) {
        float x[2];
        double y[2];
        if (!memcmp(a + at, b + at, size)) continue;
        if (f->dtype == DEFT_F32) {
            memcpy(&x[0], a + at, size), memcpy(&x[1], b + at, size);
            if (x[0] != x[0] && x[1] != x[1]) continue;
        } else if (f->dtype == DEFT_F64) {
            memcpy(&y[0], a + at, size), memcpy(&y[1], b + at, size);
            if (y[0] != y[0] && y[1] != y[1]) continue;
        }
        n++;
    }
    return n;
}

static bool compare_with_first(const opaque_run *r, const char *name, const char *what)
{
    bool same = true;
    for (size_t k = 0; k < r->c->n_out; k++) {
        const size_t n =
            count_differences(&r->out[k], r->first[k], r->memory[k] + GUARD, r->result[k].bytes);
        if (n) df_check_fault(r->c, name, "%s: result %zu differs in %zu elements", what, k, n);
        same = same && n == 0;
    }
    return same;
}

static void check_calls(opaque_run *r)
{
    df_check *const c = r->c;
    if (!ask_forms(r)) return;
    for (size_t k = 0; k < c->n_out; k++) {
        const size_t bytes = bytes_of_form(&r->out[k]);
        r->memory[k] = take(r, bytes + 2 * (size_t)GUARD);
        r->first[k] = take(r, bytes);
        if (!r->memory[k] || !r->first[k]) return;
    }
    if (!call_run(r, false, 0, "")) return;
    for (size_t k = 0; k < c->n_out; k++)
        memcpy(r->first[k], r->memory[k] + GUARD, r->result[k].bytes);
    if (!call_run(r, false, 0, "the second call: ")) return;
    if (!compare_with_first(r, "state", "the second call")) return;
    if (!call_run(r, false, 0xff, "on other memory: ")) return;
    if (!compare_with_first(r, "result", "it leaves elements as they were")) return;
    if (r->def->dense || !c->n_in || !call_run(r, true, 0, "inputs with gaps: ")) return;
    (void)compare_with_first(r, "stride", "inputs with gaps");
}

void df_check_opaque(df_check *c, const deft_op_def *def, const void *attributes)
{
    opaque_run *const r = df_mem_zalloc(df_ctx_mem(c->cx), sizeof *r);
    bool ok = r != NULL;
    if (!r) {
        (void)df_check_fails(c, DEFT_E_MEMORY, "op_check: no memory");
        return;
    }
    r->c = c;
    r->def = def;
    r->attributes = def->attribute_bytes ? attributes : NULL;
    for (uint32_t i = 0; i < c->n_in && ok; i++) ok = read_input(r, i);
    if (ok) check_calls(r);
    for (size_t i = 0; i < c->n_in; i++) {
        give(r, r->input[i].dense, r->input[i].bytes);
        give(r, r->input[i].wide, r->input[i].wide_bytes);
        give(r, r->input[i].saved, r->input[i].wide_bytes);
    }
    for (size_t k = 0; k < c->n_out; k++) {
        const size_t bytes = bytes_of_form(&r->out[k]);
        give(r, r->memory[k], bytes + 2 * (size_t)GUARD);
        give(r, r->first[k], bytes);
    }
    df_mem_free(df_ctx_mem(c->cx), r, sizeof *r);
}
