/* SPDX-License-Identifier: Apache-2.0
 *
 * deft's side of the table of peers: a row as a program would run it again and again, which is a
 * capture, or a step that is recorded again.
 */
#include "table.h"

#include <stdlib.h>
#include <string.h>

struct table_side {
    const table_row *row;
    const table_inputs *inputs;
    const int64_t *sizes;
    deft_runtime *rt;
    deft_ctx *cx;
    deft_capture *capture;
    deft_tensor *in[TABLE_IN], *first[TABLE_IN]; /* first: of the states */
    deft_rng rng;
    table_bytes bytes;
    char why[256];
};

static void fails(table_side *s, const char *what, deft_status st)
{
    const char *const text = deft_message(s->cx);
    if (*s->why) return;
    snprintf(s->why, sizeof s->why, "%s: %.200s", what, *text ? text : deft_status_text(st));
}

static void record(table_side *s, deft_tensor *const *in, deft_tensor **out)
{
    s->row->record(&(table_call){ s->cx, in, out, s->sizes, &s->rng });
}

static deft_status captured(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out;
    record(user, in, out);
    return DEFT_OK;
}

/* One call in a scope that is open. */
static deft_status call(table_side *s, deft_tensor **out)
{
    const size_t n_in = (size_t)s->inputs->n, n_out = (size_t)s->row->n_out;
    if (!(s->row->flags & TABLE_AGAIN))
        return deft_capture_call(s->capture, n_in ? s->in : NULL, n_in, n_out ? out : NULL, n_out);
    record(s, s->in, out);
    return deft_eval(out, n_out);
}

void table_side_run(table_side *s, int calls)
{
    for (int i = 0; i < calls && !*s->why; i++) {
        deft_tensor *out[TABLE_OUT] = { NULL };
        const deft_scope scope = deft_scope_begin(s->cx);
        const deft_status st = call(s, out);
        if (st != DEFT_OK) fails(s, "call", st);
        const deft_status end = deft_scope_end(scope);
        if (end != DEFT_OK) fails(s, "end of the scope", end);
    }
}

/* ---- opening ---- */

static deft_tensor *copy_of(deft_ctx *cx, const table_input *in)
{
    return deft_keep(deft_from(cx, in->shape, in->dtype, in->data, in->bytes));
}

table_side *table_side_open(const table_row *row, deft_runtime *rt, deft_numerics numerics,
                            const table_inputs *inputs, const int64_t *sizes)
{
    table_side *const s = calloc(1, sizeof *s);
    if (!s) exit(1);
    s->row = row, s->inputs = inputs, s->sizes = sizes, s->rt = rt;
    s->cx = bench_ctx(rt, numerics);
    s->rng.seed = 1;
    for (int i = 0; i < inputs->n; i++) {
        s->in[i] = copy_of(s->cx, &inputs->at[i]);
        if (inputs->at[i].is_state) s->first[i] = copy_of(s->cx, &inputs->at[i]);
        s->bytes.read += (double)inputs->at[i].bytes;
    }
    s->capture = deft_capture_create(s->cx, captured, s);
    if (!s->capture) fails(s, "capture", deft_error(s->cx));
    return s;
}

void table_side_close(table_side **s)
{
    if (!*s) return;
    deft_capture_destroy(&(*s)->capture);
    deft_ctx_destroy(&(*s)->cx);
    free(*s);
    *s = NULL;
}

const char *table_side_why(const table_side *s)
{
    return s->why;
}

table_bytes table_side_bytes(const table_side *s)
{
    return s->bytes;
}

/* ---- warming up ---- */

enum { WARM_CALLS = 3 * TABLE_VARIANT_LAUNCHES, CALLS_IN_QUIET = 2 * TABLE_VARIANT_LAUNCHES };
static const double warm_seconds = 0.1, warm_seconds_at_most = 3;

/* The runtime waits for its code, so a while without a new kernel means that there is none to come,
 * but for kernels that are compiled for numbers, which takes many short calls. */
void table_side_warm_up(table_side *s)
{
    const double start = bench_now();
    uint64_t compiled = 0;
    for (int calls = 0, last = 0; !*s->why; calls++) {
        table_side_run(s, 1);
        const uint64_t now = bench_stats(s->cx).kernels_compiled;
        if (now != compiled) last = calls, compiled = now;
        const double t = bench_now() - start;
        if (t > warm_seconds && calls >= WARM_CALLS && calls - last > CALLS_IN_QUIET) break;
        if (t > warm_seconds_at_most) break;
    }
}

/* ---- outputs ---- */

static bool keep_outputs(table_side *s, deft_tensor *const *out, int n, table_outputs *o)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        o->n_each[i] = deft_numel(out[i]);
        at += o->n_each[i];
        s->bytes.written += (double)o->n_each[i] * (double)deft_dtype_size(deft_dtype_of(out[i]));
    }
    o->n = n;
    o->v = malloc((size_t)at * sizeof *o->v);
    if (!o->v) exit(1);
    at = 0;
    for (int i = 0; i < n; i++) {
        const size_t bytes = (size_t)o->n_each[i] * sizeof *o->v;
        const deft_status st = deft_read(out[i], DEFT_F64, o->v + at, bytes);
        if (st != DEFT_OK) fails(s, "read", st);
        at += o->n_each[i];
    }
    return !*s->why;
}

/* The states begin again. */
static void reset(table_side *s)
{
    const deft_scope scope = deft_step_begin(s->cx);
    for (int i = 0; i < s->inputs->n_states; i++) deft_assign(s->in[i], s->first[i]);
    const deft_status st = deft_step_end(scope);
    if (st != DEFT_OK) fails(s, "reset", st);
}

bool table_side_outputs(table_side *s, table_outputs *o)
{
    deft_tensor *out[TABLE_OUT] = { NULL };
    *o = (table_outputs){ 0 };
    if (*s->why) return false;
    if (s->inputs->n_states) {
        reset(s);
        table_side_run(s, TABLE_CHECK_CALLS);
        return !*s->why && keep_outputs(s, s->in, s->inputs->n_states, o);
    }
    const deft_scope scope = deft_scope_begin(s->cx);
    const deft_status st = call(s, out);
    if (st != DEFT_OK) fails(s, "call", st);
    const bool ok = !*s->why && keep_outputs(s, out, s->row->n_out, o);
    const deft_status end = deft_scope_end(scope);
    if (end != DEFT_OK) fails(s, "end of the scope", end);
    return ok;
}
