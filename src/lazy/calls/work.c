/* SPDX-License-Identifier: Apache-2.0
 *
 * External work in the middle of a program: deft_device_work.
 *
 * The call is a cut. One run computes all operands, which are passed as addresses, and
 * the results are values from then on. The call acts at once and in the order of the
 * queue. So no record of it exists, and a step has nothing to undo. The functions of
 * deft_custom_grad may use it where each of them runs once (deft_ctx.work_nest), because
 * what they have recorded so far is complete, unlike in a loop.
 */
#include "lazy/core/devices.h"
#include "lazy/log/notes.h"
#include "lazy/run/submit.h"
#include "lazy/run/materialize.h"

enum { MOST = 1 << 16 }; /* most operands, or results, of one call */

static const char what[] = "device_work";

/* One call. Its lists are one allocation. */
typedef struct call {
    deft_ctx *cx;
    const deft_work *w;
    deft_tensor *const *in;
    const deft_work_result *results;
    uint32_t n_in, n_out, n_want;
    deft_device where;
    df_want *want;      /* room for n_in wants */
    df_value **operand; /* per operand: counted */
    df_value **result;  /* per result: counted */
    df_buffer **made;   /* per result: its buffer when it is on a GPU */
    const void **from;  /* per operand: its address */
    void **to;          /* per result, on the host */
    int64_t *bytes;     /* per result */
    int64_t *form;      /* dtypes and extents of all operands and results */
    uint32_t n_form;
    size_t list_bytes;
    void *lists;
} call;

/* ---- checks ---- */

/* Like df_may_act, but also allows functions in which external work is allowed. */
static deft_status may_act(deft_ctx *cx)
{
    if (!cx->recording && cx->body_nest == cx->work_nest && !cx->op_name) return DEFT_OK;
    return df_fail(&cx->diag, DEFT_E_STATE,
                   "%s: inside a captured function, a loop, branch, hook or vmap nothing can be "
                   "computed: have work done before it or after",
                   what);
}

static deft_status check_lists(deft_ctx *cx, const deft_work *w, deft_tensor *const *in,
                               size_t n_in, const deft_work_result *results, deft_tensor **out,
                               size_t n_out)
{
    if (w && w->size == 0)
        return df_fail(&cx->diag, DEFT_E_ARG,
                       "%s: the size of deft_work is 0, it must be sizeof(deft_work)", what);
    if (!w || w->size < offsetof(deft_work, user) || !w->fn)
        return df_fail(&cx->diag, DEFT_E_ARG, "%s: no function", what);
    if (n_in > MOST || n_out > MOST)
        return df_fail(&cx->diag, DEFT_E_LIMIT, "%s: %zu tensors, %zu results; at most %d of each",
                       what, n_in, n_out, (int)MOST);
    if ((n_in && !in) || (n_out && (!results || !out)))
        return df_fail(&cx->diag, DEFT_E_ARG, "%s: a list of %zu tensors, %zu results is NULL",
                       what, n_in, n_out);
    return DEFT_OK;
}

static deft_status check_operand(const call *c, uint32_t i)
{
    deft_tensor *const t = c->in[i];
    if (!df_enter_more(c->cx, what, i + 1, t) || df_owes(c->cx, t)) return df_deliver(c->cx);
    if (!(t->flags & DF_HANDLE_WEAK)) return DEFT_OK;
    return df_fail(&c->cx->diag, DEFT_E_ARG,
                   "%s: argument %u is a bare number, which has no memory", what, i + 1);
}

static deft_status make_result(const call *c, uint32_t i)
{
    df_shape s;
    int64_t n;
    const deft_work_result *const r = &c->results[i];
    if ((unsigned)r->dtype >= DF_N_RECORDED)
        return df_fail(&c->cx->diag, DEFT_E_DTYPE, "%s: result %u: %d is no dtype", what, i,
                       (int)r->dtype);
    if (!df_check_shape(c->cx, what, &r->shape, &s)) return df_deliver(c->cx);
    (void)df_shape_numel(&s, &n);
    if (!df_mul_i64(n, (int64_t)deft_dtype_size(r->dtype), &c->bytes[i]))
        return df_fail(&c->cx->diag, DEFT_E_LIMIT, "%s: result %u has too many bytes", what, i);
    c->result[i] = df_value_new(c->cx, r->dtype, &s);
    return c->result[i] ? DEFT_OK : df_fail_mem(&c->cx->diag, what, sizeof(df_value));
}

/* ---- lists ---- */

static deft_status take_lists(call *c)
{
    const size_t n_form = ((size_t)c->n_in + c->n_out) * (DEFT_MAX_RANK + 1);
    c->list_bytes =
        c->n_in * (sizeof *c->want + sizeof *c->operand + sizeof *c->from) +
        c->n_out * (sizeof *c->result + sizeof *c->made + sizeof *c->to + sizeof *c->bytes) +
        n_form * sizeof *c->form + 1;
    c->lists = df_mem_zalloc(c->cx->mem, c->list_bytes);
    if (!c->lists) return df_fail_mem(&c->cx->diag, what, c->list_bytes);
    c->want = c->lists;
    c->operand = (df_value **)(void *)(c->want + c->n_in);
    c->from = (const void **)(void *)(c->operand + c->n_in);
    c->result = (df_value **)(void *)(c->from + c->n_in);
    c->made = (df_buffer **)(void *)(c->result + c->n_out);
    c->to = (void **)(void *)(c->made + c->n_out);
    c->bytes = (int64_t *)(void *)(c->to + c->n_out);
    c->form = c->bytes + c->n_out;
    return DEFT_OK;
}

static void give_lists(call *c)
{
    if (!c->lists) return;
    for (uint32_t i = 0; i < c->n_want; i++) df_value_drop(c->cx, &c->want[i].result);
    for (uint32_t i = 0; i < c->n_in; i++) df_value_drop(c->cx, &c->operand[i]);
    for (uint32_t i = 0; i < c->n_out; i++) df_value_drop(c->cx, &c->result[i]);
    for (uint32_t i = 0; i < c->n_out; i++) df_buffer_drop(&c->made[i]);
    df_mem_free(c->cx->mem, c->lists, c->list_bytes);
}

/* ---- operands ---- */

static void want(call *c, uint32_t node)
{
    for (uint32_t i = 0; i < c->n_want; i++)
        if (c->want[i].node == node) return;
    c->want[c->n_want++].node = node;
}

static deft_status compute(call *c)
{
    deft_ctx *const cx = c->cx;
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (df_handle_value(cx, c->in[i])) continue;
        const uint32_t node = df_node_of(cx, c->in[i]);
        if (node == DF_BAD) return df_deliver(cx);
        want(c, node);
    }
    const deft_status st = c->n_want ? df_sync(cx, c->want, c->n_want) : DEFT_OK;
    if (st != DEFT_OK) c->n_want = 0;
    return st;
}

/* Chooses the device like a plan does: that of the first operand on a GPU. */
static void choose_device(call *c)
{
    c->where = c->cx->default_device;
    for (uint32_t i = 0; i < c->n_in && c->where == DEFT_CPU; i++)
        c->where = df_value_where(c->cx, df_handle_value(c->cx, c->in[i]));
}

static deft_status take_operand(call *c, uint32_t i)
{
    deft_ctx *const cx = c->cx;
    df_value *const v = df_handle_value(cx, c->in[i]);
    if (df_value_where(cx, v) == c->where && df_value_contiguous(v)) {
        c->operand[i] = df_value_ref(v);
    } else {
        const deft_status st = df_value_moved(cx, &cx->diag, v, c->where, &c->operand[i]);
        if (st != DEFT_OK) return st;
    }
    c->from[i] = c->operand[i]->data;
    return DEFT_OK;
}

/* ---- the work ---- */

static void describe(call *c, const df_value *v)
{
    c->form[c->n_form++] = v->dtype | (int64_t)v->rank << 8;
    for (uint32_t i = 0; i < v->rank; i++) c->form[c->n_form++] = v->shape.dim[i];
}

static deft_status work_far(call *c, const char *name)
{
    deft_ctx *const cx = c->cx;
    df_device *const dev = df_ctx_device(cx, c->where);
    for (uint32_t i = 0; i < c->n_in; i++) describe(c, c->operand[i]);
    for (uint32_t i = 0; i < c->n_out; i++) describe(c, c->result[i]);
    const df_work w = { .name = name,
                        .fn = c->w->fn,
                        .user = c->w->user,
                        .key = c->w->key,
                        .in = c->from,
                        .n_in = c->n_in,
                        .n_out = c->n_out,
                        .out_bytes = c->bytes,
                        .form = c->form,
                        .n_form = c->n_form,
                        .owner = cx->id,
                        .site = cx->act_site,
                        .decided = df_journal_on(cx->rt->journal) ? df_log_graph : NULL,
                        .listener = cx };
    const deft_status st =
        dev->far->work(dev, &cx->diag, cx->queues[c->where - 1].queue, &w, c->made);
    for (uint32_t i = 0; i < c->n_out && st == DEFT_OK; i++) {
        c->result[i]->buf = c->made[i];
        c->result[i]->data = c->made[i]->data;
        c->made[i] = NULL;
    }
    return st;
}

static deft_status work_near(call *c, const char *name)
{
    deft_ctx *const cx = c->cx;
    for (uint32_t i = 0; i < c->n_out; i++) {
        df_value *const v = c->result[i];
        const deft_status st = df_ctx_buffer(cx, &cx->diag, DEFT_CPU, c->bytes[i], &v->buf);
        if (st != DEFT_OK) return st;
        c->to[i] = v->data = v->buf->data;
    }
    const deft_status st = c->w->fn(NULL, c->from, c->to, c->w->user);
    return st == DEFT_OK ? st : df_fail(&cx->diag, st, "%s: its function failed", name);
}

static deft_status run(call *c)
{
    deft_status st = DEFT_OK;
    const char *const name = c->w->name ? c->w->name : "work";
    TRY(take_lists(c));
    for (uint32_t i = 0; i < c->n_in; i++) TRY(check_operand(c, i));
    for (uint32_t i = 0; i < c->n_out; i++) TRY(make_result(c, i));
    TRY(df_wait_for_steps(c->cx));
    TRY(compute(c));
    choose_device(c);
    for (uint32_t i = 0; i < c->n_in; i++) TRY(take_operand(c, i));
    TRY(c->where == DEFT_CPU ? work_near(c, name) : work_far(c, name));
done:
    return st;
}

static deft_status hand_out(call *c, deft_tensor **out)
{
    for (uint32_t i = 0; i < c->n_out; i++) {
        df_value *const v = c->result[i];
        c->result[i] = NULL;
        out[i] = df_tensor_of(c->cx, v);
        if (!out[i]) return df_deliver(c->cx);
    }
    return DEFT_OK;
}

deft_status deft_device_work(deft_ctx *cx, const deft_work *w, deft_tensor *const *in, size_t n_in,
                             const deft_work_result *results, deft_tensor **out, size_t n_out)
{
    if (!cx) return DEFT_E_ARG;
    deft_work mine = { 0 };
    call c = { .cx = cx, .w = &mine, .in = in, .results = results };
    df_act(cx, what, DF_SITE);
    deft_status st = may_act(cx);
    if (st == DEFT_OK) st = check_lists(cx, w, in, n_in, results, out, n_out);
    if (st == DEFT_OK) {
        df_take_options(&mine, sizeof mine, w, w->size);
        c.n_in = (uint32_t)n_in;
        c.n_out = (uint32_t)n_out;
        st = run(&c);
    }
    if (st == DEFT_OK) st = hand_out(&c, out);
    for (size_t i = 0; i < n_out && out && n_out <= MOST && st != DEFT_OK; i++) out[i] = NULL;
    give_lists(&c);
    /* for the call that runs the body */
    if (st != DEFT_OK && cx->body_at) (void)df_error_keep(cx, st);
    return st;
}
