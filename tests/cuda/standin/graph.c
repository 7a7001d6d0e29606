/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs and capture. A graph is steps, each of them work or a child's steps, with the steps it
 * waits for; an exec is a copy of them, and a launch puts a copy of the exec's work into the
 * stream, in an order that chance picks among those allowed: what a dependency is missing for goes
 * wrong in some. Launches of one exec wait for one another.
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct node {
    object o;
    graph *in;
    uint32_t step;
} node;

typedef struct exec {
    object o;
    const graph *of;
    plan steps;
    mark *last; /* the end of its latest launch */
} exec;

/* ---- steps ---- */

static step *plan_add(plan *p)
{
    p->at = realloc(p->at, (p->n + 1) * sizeof *p->at);
    if (!p->at) abort();
    step *const s = &p->at[p->n++];
    *s = (step){ 0 };
    return s;
}

plan *inner_copy(const plan *p)
{
    plan *const c = p ? grab(sizeof *c) : NULL;
    if (c) *c = plan_copy(p);
    return c;
}

void inner_drop(plan *p)
{
    if (p) plan_finish(p);
    free(p);
}

plan plan_copy(const plan *p)
{
    plan c = { 0 };
    for (uint32_t i = 0; i < p->n; i++) {
        const step *const from = &p->at[i];
        step *const s = plan_add(&c);
        s->op = from->op ? op_copy(from->op) : NULL;
        s->n_after = from->n_after;
        s->after = grab(from->n_after * sizeof *s->after);
        memcpy(s->after, from->after, from->n_after * sizeof *s->after);
        s->child = inner_copy(from->child);
        s->body = from->body;
        s->inner = inner_copy(from->inner ? from->inner : from->body ? &from->body->steps : NULL);
    }
    return c;
}

void plan_finish(plan *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        step *const s = &p->at[i];
        op_free(s->op);
        free(s->after);
        inner_drop(s->child);
        inner_drop(s->inner);
    }
    free(p->at);
    *p = (plan){ 0 };
}

static bool is_alike(const plan *a, const plan *b)
{
    if (a->n != b->n) return false;
    for (uint32_t i = 0; i < a->n; i++) {
        const step *const x = &a->at[i], *const y = &b->at[i];
        if (x->body || y->body) return false; /* the stand-in updates no bodies so */
        if (x->n_after != y->n_after || !x->child != !y->child || !x->op != !y->op) return false;
        if (memcmp(x->after, y->after, x->n_after * sizeof *x->after) != 0) return false;
        if (x->op && x->op->kind != y->op->kind) return false;
        if (x->child && !is_alike(x->child, y->child)) return false;
    }
    return true;
}

static bool has_all(const step *s, const bool *is_done)
{
    for (uint32_t i = 0; i < s->n_after; i++)
        if (!is_done[s->after[i]]) return false;
    return true;
}

op **order_steps(op **end, const plan *p, run *r)
{
    bool *const is_done = grab(p->n);
    for (uint32_t left = p->n; left > 0; left--) {
        uint32_t n_ready = 0, at = 0;
        for (uint32_t i = 0; i < p->n; i++) n_ready += !is_done[i] && has_all(&p->at[i], is_done);
        uint32_t which = chance(n_ready);
        while (is_done[at] || !has_all(&p->at[at], is_done) || which-- > 0) at++;
        is_done[at] = true;
        const step *const x = &p->at[at];
        if (x->child) {
            end = order_steps(end, x->child, r);
            continue;
        }
        op *const o = *end = op_copy(x->op);
        o->in_run = run_keep(r);
        o->inner = inner_copy(x->inner);
        end = &o->next;
    }
    free(is_done);
    return end;
}

/* 0, or what the first that could not be put in gave. */
static int put_steps(stream *s, const exec *x)
{
    op *o = NULL;
    int r = 0;
    run *const now = run_new(x->of);
    *order_steps(&o, &x->steps, now) = NULL;
    run_drop(now);
    while (o) {
        op *const next = o->next;
        o->next = NULL;
        if (r)
            op_free(o);
        else
            r = put_work(s, o);
        o = next;
    }
    return r;
}

const op *plan_find(const plan *p, bool (*f)(const op *o, const void *user), const void *user)
{
    const op *found = NULL;
    for (uint32_t i = 0; p && i < p->n && !found; i++) {
        const step *const s = &p->at[i];
        if (s->op && s->op->kind != OP_DECIDE && f(s->op, user)) found = s->op;
        if (!found) found = plan_find(s->child, f, user);
        if (!found) found = plan_find(s->inner, f, user);
    }
    return found;
}

static bool is_dead(const op *o, const void *user)
{
    (void)user;
    return o->kind == OP_KERNEL && !o->fn->alive;
}

static const object *dead_kernel(const plan *p)
{
    const op *const o = plan_find(p, is_dead, NULL);
    return o ? o->fn : NULL;
}

/* ---- nodes ---- */

step *add_step(graph *g, const df_cu_node *after, size_t n, df_cu_node *out)
{
    uint32_t *const list = grab(n * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        const node *const x = after ? object_get_any(NODE, after[i]) : NULL;
        if (x && x->in != g)
            misuse(0, "%s is a node of %s, not of %s", object_name(x), object_name(x->in),
                   object_name(g));
        if (!after) misuse(0, "%zu dependencies at NULL", n);
        if (!x || x->in != g) {
            free(list);
            return NULL;
        }
        list[i] = x->step;
    }
    step *const s = plan_add(&g->steps);
    s->after = list;
    s->n_after = (uint32_t)n;
    node *const x = object_new(NODE, g->o.gpu, sizeof *x);
    x->in = g;
    x->step = g->steps.n - 1;
    if (out) *out = handle_of(x);
    record(" %s of %s", object_name(x), object_name(g));
    return s;
}

/* Takes o. */
static int add_op(df_cu_node *out, df_cu_graph to, const df_cu_node *after, size_t n, op *o)
{
    graph *const g = object_get_any(GRAPH, to);
    const bool is_host = g && g->owner && o->kind == OP_COPY && (o->dst.is_host || o->src.is_host);
    if (is_host) misuse(0, "a copy of the host's memory in %s, a body", object_name(g));
    step *const s = g && !is_host ? add_step(g, after, n, out) : NULL;
    if (s)
        s->op = o;
    else
        op_free(o);
    return g ? s ? 0 : BAD_VALUE : BAD_HANDLE;
}

df_cu_result cuGraphCreate(df_cu_graph *out, unsigned flags)
{
    const int r = enter(C_cuGraphCreate, NEEDS_CONTEXT);
    if (r) return r;
    if (flags) return leave(misuse(BAD_VALUE, "flags %u", flags));
    graph *const g = object_new(GRAPH, current(), sizeof *g);
    *out = handle_of(g);
    record(" %s", object_name(g));
    return leave(0);
}

void node_drop_all(const object *g)
{
    node *x;
    uint32_t at = 0;
    while ((x = object_next(NODE, &at)))
        if (&x->in->o == g) x->o.alive = false;
}

static void end_graph(graph *g)
{
    end_bodies(g);
    node_drop_all(&g->o);
    plan_finish(&g->steps);
    g->o.alive = false;
}

df_cu_result cuGraphDestroy(df_cu_graph handle)
{
    const int r = enter(C_cuGraphDestroy, NEEDS_CONTEXT);
    if (r) return r;
    graph *const g = object_get_any(GRAPH, handle);
    if (!g) return leave(BAD_HANDLE);
    record(" %s", object_name(g));
    if (g->owner) return leave(misuse(BAD_VALUE, "%s is a node's", object_name(g)));
    end_graph(g);
    return leave(0);
}

df_cu_result cuGraphAddEmptyNode(df_cu_node *out, df_cu_graph to, const df_cu_node *after, size_t n)
{
    const int r = enter(C_cuGraphAddEmptyNode, NEEDS_CONTEXT);
    if (r) return r;
    op *const o = grab(sizeof *o);
    *o = (op){ .kind = OP_EMPTY, .gpu = current() };
    return leave(add_op(out, to, after, n, o));
}

df_cu_result cuGraphAddKernelNode(df_cu_node *out, df_cu_graph to, const df_cu_node *after,
                                  size_t n, const df_cu_kernel_node *k)
{
    op *o = NULL;
    int r = enter(C_cuGraphAddKernelNode, NEEDS_CONTEXT);
    if (r) return r;
    r = kernel_op(k, &o);
    return leave(r ? r : add_op(out, to, after, n, o));
}

df_cu_result cuGraphAddMemcpyNode(df_cu_node *out, df_cu_graph to, const df_cu_node *after,
                                  size_t n, const df_cu_memcpy3d *c, df_cu_ctx context)
{
    op *o = NULL;
    int r = enter(C_cuGraphAddMemcpyNode, NEEDS_CONTEXT);
    if (r) return r;
    r = copy_op(c, context, &o);
    return leave(r ? r : add_op(out, to, after, n, o));
}

df_cu_result cuGraphAddMemsetNode(df_cu_node *out, df_cu_graph to, const df_cu_node *after,
                                  size_t n, const df_cu_memset_node *m, df_cu_ctx context)
{
    op *o = NULL;
    int r = enter(C_cuGraphAddMemsetNode, NEEDS_CONTEXT);
    if (r) return r;
    r = set_op(m, context, &o);
    return leave(r ? r : add_op(out, to, after, n, o));
}

static bool has_bodies(const graph *g)
{
    for (uint32_t i = 0; i < g->steps.n; i++)
        if (g->steps.at[i].body) return true;
    return false;
}

static void set_child(step *s, const plan *steps)
{
    s->child = grab(sizeof *s->child);
    *s->child = plan_copy(steps);
}

df_cu_result cuGraphAddChildGraphNode(df_cu_node *out, df_cu_graph to, const df_cu_node *after,
                                      size_t n, df_cu_graph child)
{
    const int r = enter(C_cuGraphAddChildGraphNode, NEEDS_CONTEXT);
    if (r) return r;
    graph *const g = object_get_any(GRAPH, to);
    const graph *const c = object_get_any(GRAPH, child);
    if (!g || !c) return leave(BAD_HANDLE);
    if (g == c) return leave(misuse(BAD_VALUE, "%s in itself", object_name(g)));
    if (has_bodies(c)) return leave(misuse(BAD_VALUE, "%s decides", object_name(c)));
    step *const s = add_step(g, after, n, out);
    if (!s) return leave(BAD_VALUE);
    set_child(s, &c->steps);
    return leave(0);
}

/* ---- execs ---- */

/* The next step of the graph that s is captured into, after the one before. */
static step *capture_step(stream *s)
{
    graph *const g = (graph *)s->capture;
    step *const x = add_step(g, NULL, 0, NULL);
    if (g->steps.n == 1) return x;
    free(x->after);
    x->after = grab(sizeof *x->after);
    x->after[0] = g->steps.n - 2;
    x->n_after = 1;
    return x;
}

df_cu_result cuGraphInstantiateWithFlags(df_cu_exec *out, df_cu_graph of, uint64_t flags)
{
    const int r = enter(C_cuGraphInstantiateWithFlags, NEEDS_CONTEXT);
    if (r) return r;
    const graph *const g = object_get_any(GRAPH, of);
    if (!g) return leave(BAD_HANDLE);
    if (flags) return leave(misuse(BAD_VALUE, "flags %llu", (unsigned long long)flags));
    if (g->owner) return leave(misuse(BAD_VALUE, "%s is a node's", object_name(g)));
    if (!conditions_are_used(g)) return leave(BAD_VALUE);
    exec *const x = object_new(EXEC, current(), sizeof *x);
    x->of = g;
    x->steps = plan_copy(&g->steps);
    *out = handle_of(x);
    record(" %s of %s", object_name(x), object_name(g));
    return leave(0);
}

df_cu_result cuGraphExecDestroy(df_cu_exec handle)
{
    const int r = enter(C_cuGraphExecDestroy, NEEDS_CONTEXT);
    if (r) return r;
    exec *const x = object_get_any(EXEC, handle);
    if (!x) return leave(BAD_HANDLE);
    record(" %s", object_name(x));
    if (x->last && !x->last->is_done) misuse(0, "%s is in a queue", object_name(x));
    plan_finish(&x->steps);
    mark_drop(x->last);
    x->last = NULL;
    x->o.alive = false;
    return leave(0);
}

static int launch_exec(stream *s, exec *x)
{
    int r = 0;
    if (x->last && !x->last->is_done) r = put_work(s, mark_op(OP_WAIT, x->last));
    if (!r) r = put_steps(s, x);
    mark_drop(x->last);
    x->last = mark_new(s);
    return r ? r : put_work(s, mark_op(OP_RECORD, x->last));
}

df_cu_result cuGraphLaunch(df_cu_exec handle, df_cu_stream where)
{
    const int r = enter(C_cuGraphLaunch, NEEDS_CONTEXT);
    if (r) return r;
    stream *const s = stream_get(where);
    exec *const x = object_get(EXEC, handle);
    if (!s || !x) return leave(BAD_HANDLE);
    record(" %s in %s", object_name(x), object_name(where ? s : NULL));
    const object *const dead = dead_kernel(&x->steps);
    if (dead) return leave(misuse(BAD_HANDLE, "kernel %s was destroyed", object_name(dead)));
    if (!s->capture) return leave(launch_exec(s, x));
    set_child(capture_step(s), &x->steps);
    return leave(0);
}

/* The steps of x that were made of g's; NULL: it is no part of it. */
static plan *steps_of(exec *x, const graph *g)
{
    if (g == x->of) return &x->steps;
    plan *const around = g->owner ? steps_of(x, g->owner) : NULL;
    return around && g->owner_step < around->n ? around->at[g->owner_step].inner : NULL;
}

/* The exec's own step for a node of the graph it was made of; NULL: misuse was told. */
static step *step_of(df_cu_exec handle, df_cu_node at)
{
    exec *const x = object_get(EXEC, handle);
    const node *const i = x ? object_get_any(NODE, at) : NULL;
    if (!i) return NULL;
    record(" %s of %s", object_name(i), object_name(x));
    plan *const in = steps_of(x, i->in);
    if (in && i->step < in->n) return &in->at[i->step];
    misuse(0, "%s is no node of %s", object_name(i), object_name(x));
    return NULL;
}

/* Takes o, which replaces what the step does. */
static int set_step(step *s, op *o)
{
    const bool is_same = s->op && s->op->kind == o->kind && s->op->dst.is_host == o->dst.is_host &&
                         s->op->src.is_host == o->src.is_host && s->op->gpu == o->gpu;
    if (!is_same) {
        op_free(o);
        return misuse(BAD_VALUE, "the node is of another kind, or of other memory");
    }
    op_free(s->op);
    s->op = o;
    return 0;
}

df_cu_result cuGraphExecKernelNodeSetParams(df_cu_exec handle, df_cu_node at,
                                            const df_cu_kernel_node *k)
{
    op *o = NULL;
    int r = enter(C_cuGraphExecKernelNodeSetParams, NEEDS_CONTEXT);
    if (r) return r;
    step *const s = step_of(handle, at);
    if (!s) return leave(BAD_HANDLE);
    r = kernel_op(k, &o);
    return leave(r ? r : set_step(s, o));
}

df_cu_result cuGraphExecMemcpyNodeSetParams(df_cu_exec handle, df_cu_node at,
                                            const df_cu_memcpy3d *c, df_cu_ctx context)
{
    op *o = NULL;
    int r = enter(C_cuGraphExecMemcpyNodeSetParams, NEEDS_CONTEXT);
    if (r) return r;
    step *const s = step_of(handle, at);
    if (!s) return leave(BAD_HANDLE);
    r = copy_op(c, context, &o);
    return leave(r ? r : set_step(s, o));
}

df_cu_result cuGraphExecMemsetNodeSetParams(df_cu_exec handle, df_cu_node at,
                                            const df_cu_memset_node *m, df_cu_ctx context)
{
    op *o = NULL;
    int r = enter(C_cuGraphExecMemsetNodeSetParams, NEEDS_CONTEXT);
    if (r) return r;
    step *const s = step_of(handle, at);
    if (!s) return leave(BAD_HANDLE);
    r = set_op(m, context, &o);
    return leave(r ? r : set_step(s, o));
}

df_cu_result cuGraphExecChildGraphNodeSetParams(df_cu_exec handle, df_cu_node at, df_cu_graph child)
{
    const int r = enter(C_cuGraphExecChildGraphNodeSetParams, NEEDS_CONTEXT);
    if (r) return r;
    step *const s = step_of(handle, at);
    const graph *const c = object_get_any(GRAPH, child);
    if (!s || !c) return leave(BAD_HANDLE);
    if (!s->child || !is_alike(s->child, &c->steps))
        return leave(misuse(910, "%s is not like the child that is there", object_name(c)));
    plan_finish(s->child);
    *s->child = plan_copy(&c->steps);
    return leave(0);
}

/* ---- capture ---- */

int capture_work(stream *s, op *o)
{
    capture_step(s)->op = o;
    return 0;
}

df_cu_result cuStreamBeginCapture_v2(df_cu_stream handle, int how)
{
    const int r = enter(C_cuStreamBeginCapture_v2, NEEDS_CONTEXT);
    if (r) return r;
    if (!handle) return leave(misuse(BAD_CAPTURE, "the default stream"));
    stream *const s = stream_get(handle);
    if (!s) return leave(BAD_HANDLE);
    record(" %s", object_name(s));
    if (how < 0 || how > 2) return leave(misuse(BAD_VALUE, "mode %d", how));
    if (s->capture) return leave(misuse(BAD_VALUE, "%s is being captured", object_name(s)));
    s->capture = object_new(GRAPH, current(), sizeof(graph));
    s->capture_mode = how;
    return leave(0);
}

df_cu_result cuStreamEndCapture(df_cu_stream handle, df_cu_graph *out)
{
    const int r = enter(C_cuStreamEndCapture, NEEDS_CONTEXT);
    if (r) return r;
    stream *const s = stream_get(handle);
    if (!s) return leave(BAD_HANDLE);
    record(" %s", object_name(s));
    if (!s->capture) return leave(misuse(BAD_VALUE, "%s is not captured", object_name(s)));
    graph *const g = (graph *)s->capture;
    const bool is_broken = s->is_broken;
    s->capture = NULL;
    s->is_broken = false;
    if (is_broken) end_graph(g);
    *out = is_broken ? NULL : handle_of(g);
    return leave(is_broken ? BROKEN_CAPTURE : 0);
}

/* ---- control ---- */

void graph_reset(void)
{
    graph *g;
    exec *x;
    uint32_t at = 0;
    while ((g = object_next(GRAPH, &at))) plan_finish(&g->steps);
    at = 0;
    while ((x = object_next(EXEC, &at))) {
        plan_finish(&x->steps);
        mark_drop(x->last);
    }
}
