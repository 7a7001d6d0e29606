/* SPDX-License-Identifier: Apache-2.0
 *
 * The launches of a run as CUDA graphs, one for each phase of the layout. A node is a copy,
 * a step, or what cuBLASLt enqueues for a step. A node depends on the nodes whose results
 * it reads or overwrites, and on those that read what it overwrites. It depends on no
 * others.
 *
 * Dependencies are found per piece of memory. A piece is an input together with the root
 * that it is donated to, a root, a region of temporaries, or all scratch memory. A region
 * that is a part of another is a piece, and shares its memory with that other. Memory that
 * is written through (INTO) is the caller's, and may overlap any input.
 *
 * The graph keeps the words that its nodes were last given. An update compares them with
 * the words of the layout, and updates the nodes whose words differ. So it need not know
 * which words are addresses or numbers. Tables are not part of the graph: they are uploaded
 * before it. A kernel that uses one (table.h) is updated only when the table has moved.
 */
#include "jit_cuda/graphs/graph.h"

#include <string.h>

enum { RELAXED = 2, DEVICE = 2, NODE_BYTES = 2048, NO_NODE = -1 };

typedef struct node {
    df_cu_node at;
    df_cu_graph child; /* the graph of a product of cuBLASLt; NULL: none */
    size_t words;      /* of a child: index of its words in child_words */
} node;

typedef struct phase {
    df_cu_graph graph;
    df_cu_exec exec; /* NULL: the phase has no nodes */
} phase;

struct df_cuda_graph {
    df_cuda_device *c;
    const df_plan *plan; /* only compared, never followed */
    uint32_t n_phases, n_roots;
    df_cuda_phase cut[DF_CUDA_PHASES];
    phase phase[DF_CUDA_PHASES];
    bool is_woven; /* its nodes are in another graph, whose executable is phase[0].exec */
    DF_VEC(df_cuda_step) steps;
    DF_VEC(df_cuda_use) uses;
    DF_VEC(df_cuda_copy) copies;
    DF_VEC(uint32_t) memory; /* per plan buffer: the first buffer in the same memory */
    DF_VEC(bool) taken;      /* per plan buffer: a root in its donor's memory */
    DF_VEC(node) nodes;      /* of copies, then of steps */
    DF_VEC(uint64_t) words;  /* as `params` of the layout */
    DF_VEC(uint64_t) child_words;
    DF_VEC(df_cuda_fn *) fns; /* references to functions of products and routines */
};

/* ---- pieces of memory ---- */

static uint32_t first_of_input(const df_plan *plan, uint32_t input, uint32_t otherwise)
{
    for (uint32_t i = 0; i < plan->n_bufs; i++) {
        const df_plan_buf *const b = &plan->bufs[i];
        if ((b->kind == DF_BUF_INPUT || b->kind == DF_BUF_INTO) && b->index == input) return i;
    }
    return otherwise;
}

static uint32_t first_of_region(const df_plan *plan, uint32_t region)
{
    uint32_t i = 0;
    while (plan->bufs[i].kind != DF_BUF_TEMP || plan->bufs[i].index != region) i++;
    return i;
}

static bool is_taken(const df_cuda_call *r, df_buf buf)
{
    const df_plan_buf *const b = &r->plan->bufs[buf.i];
    return b->kind == DF_BUF_ROOT && b->donor != DF_NONE &&
           r->f->origin[buf.i] == (char *)r->t->inputs[b->donor].data;
}

/* The first buffer in the memory of `buf`. A donor that the plan does not read has no
 * buffer. */
static uint32_t first_of_memory(const df_cuda_call *r, df_buf buf)
{
    const df_plan_buf *const b = &r->plan->bufs[buf.i];
    switch ((df_buf_kind)b->kind) {
    case DF_BUF_INPUT:
    case DF_BUF_INTO: return first_of_input(r->plan, b->index, buf.i);
    case DF_BUF_ROOT: return is_taken(r, buf) ? first_of_input(r->plan, b->donor, buf.i) : buf.i;
    case DF_BUF_TEMP: return first_of_region(r->plan, b->index);
    }
    df_unreachable();
}

/* ---- dependencies ---- */

typedef struct link {
    int32_t node, next;
} link;

typedef struct piece {
    int32_t writer;  /* the latest node that writes the piece; NO_NODE */
    int32_t readers; /* nodes that read it since then: a list in `links` */
    int32_t parts;   /* of a region: nodes that use a part of it since then: a list in `links` */
} piece;

typedef struct weaving {
    const df_cuda_graph *g;
    const df_mem *mem;
    piece *pieces; /* per plan buffer, then scratch memory, then the caller's memory */
    uint32_t n_pieces;
    bool has_into;
    df_cu_node before; /* what a node without other dependencies waits for; NULL: nothing */
    DF_VEC(link) links;
    DF_VEC(df_cu_node) after; /* dependencies of the current node */
    DF_VEC(int32_t) seen;     /* per node: the latest node that was made to depend on it */
    bool ok;
} weaving;

static void come_after(weaving *w, int32_t at, int32_t before)
{
    if (before == NO_NODE || before == at || w->seen.at[before] == at) return;
    w->seen.at[before] = at;
    w->ok = w->ok && df_vec_push(w->mem, &w->after, w->g->nodes.at[before].at);
}

/* The same for all nodes of a list. */
static void come_after_all(weaving *w, int32_t at, int32_t list)
{
    for (int32_t i = list; i != NO_NODE; i = w->links.at[i].next)
        come_after(w, at, w->links.at[i].node);
}

static void add_link(weaving *w, int32_t at, int32_t *list)
{
    w->ok = w->ok && df_vec_push(w->mem, &w->links, ((link){ at, *list }));
    if (w->ok) *list = (int32_t)w->links.n - 1;
}

static void reads(weaving *w, int32_t at, uint32_t which)
{
    piece *const p = &w->pieces[which];
    come_after(w, at, p->writer);
    add_link(w, at, &p->readers);
}

static void writes(weaving *w, int32_t at, uint32_t which)
{
    piece *const p = &w->pieces[which];
    come_after(w, at, p->writer);
    come_after_all(w, at, p->readers);
    come_after_all(w, at, p->parts);
    p->writer = at;
    p->readers = p->parts = NO_NODE;
}

/* Node `at` uses a part of the region `which`. Uses of parts do not wait for each other here, since
 * each part is a piece itself. */
static void uses_part(weaving *w, int32_t at, uint32_t which, bool is_written)
{
    piece *const p = &w->pieces[which];
    come_after(w, at, p->writer);
    if (is_written) come_after_all(w, at, p->readers);
    add_link(w, at, &p->parts);
}

static void touches(weaving *w, const df_plan *plan, int32_t at, df_buf buf, bool is_written)
{
    const uint32_t n = plan->n_bufs;
    if (buf.i < n && plan->bufs[buf.i].kind == DF_BUF_TEMP) {
        const uint32_t outer = plan->regions[plan->bufs[buf.i].index].outer;
        if (outer != DF_NONE) uses_part(w, at, first_of_region(plan, outer), is_written);
    }
    const bool is_theirs = buf.i < n && (plan->bufs[buf.i].kind == DF_BUF_INPUT ||
                                         plan->bufs[buf.i].kind == DF_BUF_INTO);
    const uint32_t which = buf.i < n ? w->g->memory.at[buf.i] : n;
    if (w->has_into && is_theirs && is_written) writes(w, at, n + 1);
    if (w->has_into && is_theirs && !is_written) reads(w, at, n + 1);
    if (is_written)
        writes(w, at, which);
    else
        reads(w, at, which);
}

static bool weaving_begin(weaving *w, const df_cuda_graph *g, const df_cuda_call *r)
{
    *w = (weaving){ .g = g, .mem = g->c->mem, .n_pieces = r->plan->n_bufs + 2, .ok = true };
    for (uint32_t i = 0; i < r->plan->n_bufs; i++)
        w->has_into = w->has_into || r->plan->bufs[i].kind == DF_BUF_INTO;
    w->pieces = df_mem_alloc(w->mem, w->n_pieces * sizeof *w->pieces);
    if (!w->pieces || !df_vec_reserve(w->mem, &w->seen, g->nodes.n)) return false;
    for (size_t i = 0; i < g->nodes.n; i++) w->seen.at[i] = NO_NODE;
    return true;
}

/* Forgets the nodes of the phase before, because a phase waits for all of it. */
static void weaving_reset(weaving *w)
{
    for (uint32_t i = 0; i < w->n_pieces; i++) w->pieces[i] = (piece){ NO_NODE, NO_NODE, NO_NODE };
    w->links.n = 0;
}

static void weaving_finish(weaving *w)
{
    df_mem_free(w->mem, w->pieces, w->n_pieces * sizeof *w->pieces);
    df_vec_finish(w->mem, &w->links);
    df_vec_finish(w->mem, &w->after);
    df_vec_finish(w->mem, &w->seen);
}

static void weaving_add_before(weaving *w)
{
    if (w->after.n == 0 && w->before) w->ok = w->ok && df_vec_push(w->mem, &w->after, w->before);
}

/* ---- nodes ---- */

static df_cu_kernel_node graph_kernel_params(const df_cuda_step *s, void **params)
{
    return (df_cu_kernel_node){ .func = s->fn,
                                .grid_x = s->n_blocks,
                                .grid_y = 1,
                                .grid_z = 1,
                                .block_x = s->n_threads,
                                .block_y = 1,
                                .block_z = 1,
                                .shared_bytes = s->shared,
                                .params = params };
}

static df_cu_memcpy3d graph_copy_params(const df_cuda_copy *c)
{
    return (df_cu_memcpy3d){ .src_kind = DEVICE,
                             .src_device = c->from,
                             .dst_kind = DEVICE,
                             .dst_device = c->to,
                             .width = c->bytes,
                             .height = 1,
                             .depth = 1 };
}

static deft_status graph_fail(const df_cuda_call *r, df_diag *d, df_cu_result result,
                              const char *call)
{
    return df_queue_fail(r->q, d, result, "%s", call);
}

/* Captures what cuBLASLt enqueues for a step, as a graph that the caller owns. */
static deft_status capture_step(const df_cuda_call *r, df_diag *d, const df_cuda_step *s,
                                df_cu_stream stream, df_cu_graph *out)
{
    const df_driver *const dr = r->c->driver;
    df_cu_graph graph = NULL;
    if (!stream) return df_fail(d, DEFT_E_BACKEND, "cuda: no stream to capture a product in");
    df_cu_result result = dr->capture_begin(stream, RELAXED);
    if (result) return graph_fail(r, d, result, "cuStreamBeginCapture");
    deft_status st = df_cuda_job_run_lt(r->f, d, r->c, s, stream);
    result = dr->capture_end(stream, &graph);
    if (st == DEFT_OK && result) st = graph_fail(r, d, result, "cuStreamEndCapture");
    if (st == DEFT_OK)
        *out = graph;
    else if (!result && graph)
        (void)dr->graph_destroy(graph);
    return st;
}

static uint64_t *child_words(df_cuda_graph *g, const df_cuda_call *r, const df_cuda_step *s)
{
    const uint32_t n = df_cuda_job_lt_words(r->f, s, NULL);
    if (!df_vec_reserve(g->c->mem, &g->child_words, n)) return NULL;
    uint64_t *const at = g->child_words.at + g->child_words.n;
    g->child_words.n += n;
    (void)df_cuda_job_lt_words(r->f, s, at);
    return at;
}

static deft_status graph_add_child(df_cuda_graph *g, df_diag *d, const df_cuda_call *r,
                                   const df_cuda_step *s, df_cu_stream capture, weaving *w,
                                   df_cu_graph to, node *x)
{
    x->words = g->child_words.n;
    if (!child_words(g, r, s)) return df_fail_mem(d, "graph", sizeof *x);
    const deft_status st = capture_step(r, d, s, capture, &x->child);
    if (st != DEFT_OK) return st;
    const df_cu_result result =
        g->c->driver->graph_child(&x->at, to, w->after.at, w->after.n, x->child);
    return result ? graph_fail(r, d, result, "cuGraphAddChildGraphNode") : DEFT_OK;
}

static deft_status graph_add_step(df_cuda_graph *g, df_diag *d, const df_cuda_call *r,
                                  uint32_t step, df_cu_stream capture, weaving *w, df_cu_graph to)
{
    const df_cuda_step *const s = &g->steps.at[step];
    const int32_t number = (int32_t)(g->copies.n + step);
    node *const x = &g->nodes.at[number];
    w->after.n = 0;
    for (uint32_t i = s->first_use; i < s->first_use + s->n_uses; i++)
        touches(w, r->plan, number, g->uses.at[i].what, g->uses.at[i].writes);
    weaving_add_before(w);
    if (!w->ok) return df_fail_mem(d, "graph", sizeof *x);
    if (s->of_job == DF_NONE) return graph_add_child(g, d, r, s, capture, w, to, x);
    void *params[1] = { g->words.at + s->param };
    const df_cu_kernel_node k = graph_kernel_params(s, params);
    const df_cu_result result = g->c->driver->graph_kernel(&x->at, to, w->after.at, w->after.n, &k);
    return result ? graph_fail(r, d, result, "cuGraphAddKernelNode") : DEFT_OK;
}

static deft_status graph_add_copies(df_cuda_graph *g, df_diag *d, const df_cuda_call *r, weaving *w,
                                    df_cu_graph to)
{
    for (uint32_t i = 0; i < g->copies.n; i++) {
        const df_cu_memcpy3d c = graph_copy_params(&g->copies.at[i]);
        const df_cu_result result = g->c->driver->graph_memcpy(
            &g->nodes.at[i].at, to, &w->before, w->before ? 1 : 0, &c, df_gpu_ctx(g->c->gpu));
        if (result) return graph_fail(r, d, result, "cuGraphAddMemcpyNode");
        const uint32_t donor = r->plan->bufs[g->copies.at[i].buf].donor;
        const uint32_t from = first_of_input(r->plan, donor, DF_NONE);
        if (from != DF_NONE) reads(w, (int32_t)i, from);
        if (w->has_into) reads(w, (int32_t)i, r->plan->n_bufs + 1);
        writes(w, (int32_t)i, g->memory.at[g->copies.at[i].buf]);
    }
    return w->ok ? DEFT_OK : df_fail_mem(d, "graph", sizeof(link));
}

/* ---- recording ---- */

static deft_status make_phase(df_cuda_graph *g, df_diag *d, const df_cuda_call *r, uint32_t i,
                              df_cu_stream capture, weaving *w)
{
    deft_status st = DEFT_OK;
    const df_driver *const dr = g->c->driver;
    phase *const p = &g->phase[i];
    const df_cuda_phase *const cut = &g->cut[i];
    if (cut->begin == cut->end && (i > 0 || g->copies.n == 0)) return DEFT_OK;
    weaving_reset(w);
    df_cu_result result = dr->graph_create(&p->graph, 0);
    if (result) return graph_fail(r, d, result, "cuGraphCreate");
    if (i == 0) TRY(graph_add_copies(g, d, r, w, p->graph));
    for (uint32_t k = cut->begin; k < cut->end; k++)
        TRY(graph_add_step(g, d, r, k, capture, w, p->graph));
    result = dr->graph_instantiate(&p->exec, p->graph, 0);
    if (result) TRY(graph_fail(r, d, result, "cuGraphInstantiate"));
done:
    return st;
}

#define COPY(mem, to, from)                                                                        \
    (!(from)->n ? true                                                                             \
                : df_vec_reserve((mem), (to), (from)->n) &&                                        \
                      (memcpy((to)->at, (from)->at, (from)->n * sizeof *(from)->at),               \
                       (to)->n = (from)->n, true))

/* Holds the functions of products and routines, which another layout of the plan may drop. */
static bool hold_functions(df_cuda_graph *g, const df_cuda_run_layout *f)
{
    if (!df_vec_reserve(g->c->mem, &g->fns, f->job_fns.n)) return false;
    for (uint32_t i = 0; i < f->job_fns.n; i++) {
        df_counted_ref(&f->job_fns.at[i]->counted);
        g->fns.at[g->fns.n++] = f->job_fns.at[i];
    }
    return true;
}

static bool copy_frame(df_cuda_graph *g, const df_cuda_call *r)
{
    const df_mem *const mem = g->c->mem;
    const df_cuda_run_layout *const f = r->f;
    g->n_phases = f->n_phases;
    memcpy(g->cut, f->phase, sizeof g->cut);
    if (!COPY(mem, &g->steps, &f->steps) || !COPY(mem, &g->uses, &f->uses) ||
        !COPY(mem, &g->copies, &f->copies) || !COPY(mem, &g->words, &f->params.word) ||
        !df_vec_reserve(mem, &g->memory, r->plan->n_bufs) ||
        !df_vec_reserve(mem, &g->taken, r->plan->n_bufs) ||
        !df_vec_reserve(mem, &g->nodes, f->copies.n + f->steps.n))
        return false;
    for (df_buf i = { 0 }; i.i < r->plan->n_bufs; i.i++) {
        g->memory.at[g->memory.n++] = first_of_memory(r, i);
        g->taken.at[g->taken.n++] = is_taken(r, i);
    }
    g->nodes.n = f->copies.n + f->steps.n;
    if (g->nodes.n > 0) memset(g->nodes.at, 0, g->nodes.n * sizeof *g->nodes.at);
    return hold_functions(g, f);
}

/* Creates a graph and copies into it what it depends on in the layout. The caller finishes
 * *w in any case. */
static deft_status begin_graph(df_diag *d, const df_cuda_call *r, weaving *w, df_cuda_graph **out)
{
    df_cuda_graph *const g = *out = df_mem_zalloc(r->c->mem, sizeof *g);
    if (!g) return df_fail_mem(d, "graph", sizeof *g);
    g->c = r->c;
    g->plan = r->plan;
    w->mem = g->c->mem;
    return copy_frame(g, r) && weaving_begin(w, g, r) ? DEFT_OK
                                                      : df_fail_mem(d, "graph", sizeof *g);
}

deft_status df_cuda_graph_create(df_diag *d, const df_cuda_call *r, df_cu_stream capture,
                                 df_cuda_graph **out)
{
    deft_status st = DEFT_OK;
    weaving w = { .mem = r->c->mem };
    df_cuda_graph *g = NULL;
    TRY(begin_graph(d, r, &w, &g));
    for (uint32_t i = 0; i < g->n_phases; i++) TRY(make_phase(g, d, r, i, capture, &w));
    *out = g;
    g = NULL;
done:
    weaving_finish(&w);
    df_cuda_graph_destroy(&g);
    return st;
}

/* Sets *end to a node behind all nodes of g: the only node, or an empty one. */
static deft_status graph_add_end(const df_cuda_graph *g, df_diag *d, const df_cuda_call *r,
                                 weaving *w, df_cu_graph to, df_cu_node *end)
{
    w->after.n = 0;
    *end = g->nodes.n == 1 ? g->nodes.at[0].at : NULL;
    if (*end) return DEFT_OK;
    for (size_t i = 0; i < g->nodes.n; i++)
        w->ok = w->ok && df_vec_push(w->mem, &w->after, g->nodes.at[i].at);
    weaving_add_before(w);
    if (!w->ok) return df_fail_mem(d, "graph", sizeof *end);
    const df_cu_result result = g->c->driver->graph_empty(end, to, w->after.at, w->after.n);
    return result ? graph_fail(r, d, result, "cuGraphAddEmptyNode") : DEFT_OK;
}

deft_status df_cuda_graph_weave(df_diag *d, const df_cuda_call *r, df_cu_graph to,
                                df_cu_node before, df_cu_node *end, df_cuda_graph **out)
{
    deft_status st = DEFT_OK;
    weaving w = { .mem = r->c->mem };
    df_cuda_graph *g = NULL;
    df_assert(r->f->n_phases <= 1);
    TRY(begin_graph(d, r, &w, &g));
    g->is_woven = true;
    w.before = before;
    weaving_reset(&w);
    TRY(graph_add_copies(g, d, r, &w, to));
    for (uint32_t k = 0; k < g->steps.n; k++) TRY(graph_add_step(g, d, r, k, NULL, &w, to));
    TRY(graph_add_end(g, d, r, &w, to, end));
    *out = g;
    g = NULL;
done:
    weaving_finish(&w);
    df_cuda_graph_destroy(&g);
    return st;
}

void df_cuda_graph_woven(df_cuda_graph *g, df_cu_exec exec)
{
    g->phase[0].exec = exec;
}

void df_cuda_graph_destroy(df_cuda_graph **out)
{
    df_cuda_graph *const g = *out;
    *out = NULL;
    if (!g) return;
    const df_mem *const mem = g->c->mem;
    const df_driver *const dr = g->c->driver;
    for (uint32_t i = 0; i < DF_CUDA_PHASES && !g->is_woven; i++) {
        if (g->phase[i].exec) (void)dr->exec_destroy(g->phase[i].exec);
        if (g->phase[i].graph) (void)dr->graph_destroy(g->phase[i].graph);
    }
    for (size_t i = 0; i < g->nodes.n; i++)
        if (g->nodes.at[i].child) (void)dr->graph_destroy(g->nodes.at[i].child);
    for (size_t i = 0; i < g->fns.n; i++) df_cuda_fn_drop(&g->fns.at[i]);
    df_vec_finish(mem, &g->steps);
    df_vec_finish(mem, &g->uses);
    df_vec_finish(mem, &g->copies);
    df_vec_finish(mem, &g->memory);
    df_vec_finish(mem, &g->taken);
    df_vec_finish(mem, &g->nodes);
    df_vec_finish(mem, &g->words);
    df_vec_finish(mem, &g->child_words);
    df_vec_finish(mem, &g->fns);
    df_mem_free(mem, g, sizeof *g);
}

size_t df_cuda_graph_bytes(const df_cuda_graph *g)
{
    return sizeof *g + g->nodes.n * NODE_BYTES + g->words.n * sizeof *g->words.at;
}

size_t df_cuda_graph_nodes(const df_cuda_graph *g)
{
    return g->nodes.n;
}

/* ---- replaying ---- */

static bool is_same_step(const df_cuda_step *a, const df_cuda_step *b)
{
    return a->seg == b->seg && a->kernel.i == b->kernel.i && a->job == b->job &&
           a->of_job == b->of_job && a->param == b->param && a->n_words == b->n_words &&
           a->first_use == b->first_use && a->n_uses == b->n_uses && a->fn == b->fn &&
           a->n_threads == b->n_threads && a->shared == b->shared;
}

static bool is_same_phase(const df_cuda_phase *a, const df_cuda_phase *b)
{
    return a->begin == b->begin && a->end == b->end && a->is_checked == b->is_checked;
}

bool df_cuda_graph_is_like(const df_cuda_graph *g, const df_cuda_call *r)
{
    const df_cuda_run_layout *const f = r->f;
    if (g->plan != r->plan || g->n_phases != f->n_phases || g->steps.n != f->steps.n ||
        g->copies.n != f->copies.n || g->uses.n != f->uses.n || g->words.n != f->params.word.n)
        return false;
    for (uint32_t i = 0; i < g->n_phases; i++)
        if (!is_same_phase(&g->cut[i], &f->phase[i])) return false;
    for (size_t i = 0; i < g->steps.n; i++)
        if (!is_same_step(&g->steps.at[i], &f->steps.at[i])) return false;
    for (size_t i = 0; i < g->uses.n; i++)
        if (g->uses.at[i].what.i != f->uses.at[i].what.i ||
            g->uses.at[i].writes != f->uses.at[i].writes)
            return false;
    for (size_t i = 0; i < g->copies.n; i++)
        if (g->copies.at[i].buf != f->copies.at[i].buf) return false;
    for (df_buf i = { 0 }; i.i < r->plan->n_bufs; i.i++)
        if (g->taken.at[i.i] != is_taken(r, i)) return false;
    return true;
}

static df_cu_exec exec_of(const df_cuda_graph *g, uint32_t step)
{
    uint32_t i = 0;
    while (step < g->cut[i].begin || step >= g->cut[i].end) i++;
    return g->phase[i].exec;
}

static deft_status update_copy(df_cuda_graph *g, df_diag *d, const df_cuda_call *r, size_t i,
                               df_cuda_updated *n)
{
    const df_cuda_copy *const now = &r->f->copies.at[i];
    df_cuda_copy *const was = &g->copies.at[i];
    if (was->to == now->to && was->from == now->from && was->bytes == now->bytes) return DEFT_OK;
    const df_cu_memcpy3d c = graph_copy_params(now);
    const df_cu_result result =
        g->c->driver->exec_memcpy(g->phase[0].exec, g->nodes.at[i].at, &c, df_gpu_ctx(g->c->gpu));
    if (result) return graph_fail(r, d, result, "cuGraphExecMemcpyNodeSetParams");
    *was = *now;
    n->nodes++;
    return DEFT_OK;
}

static deft_status update_child(df_cuda_graph *g, df_diag *d, const df_cuda_call *r, uint32_t step,
                                df_cu_stream capture, df_cuda_updated *n)
{
    deft_status st = DEFT_OK;
    const df_cuda_step *const s = &r->f->steps.at[step];
    node *const x = &g->nodes.at[g->copies.n + step];
    const size_t at = g->child_words.n;
    const uint64_t *const now = child_words(g, r, s);
    df_cu_graph child = NULL;
    if (!now) return df_fail_mem(d, "graph", sizeof *x);
    const size_t size = (g->child_words.n - at) * sizeof *now;
    if (memcmp(now, g->child_words.at + x->words, size) == 0) goto done;
    TRY(capture_step(r, d, s, capture, &child));
    const df_cu_result result = g->c->driver->exec_child(exec_of(g, step), x->at, child);
    if (result) TRY(graph_fail(r, d, result, "cuGraphExecChildGraphNodeSetParams"));
    memcpy(g->child_words.at + x->words, now, size);
    n->nodes++;
done:
    if (child) (void)g->c->driver->graph_destroy(child);
    g->child_words.n = at;
    return st;
}

static deft_status update_step(df_cuda_graph *g, df_diag *d, const df_cuda_call *r, uint32_t step,
                               df_cuda_updated *n)
{
    const df_cuda_step *const now = &r->f->steps.at[step];
    uint64_t *const words = r->f->params.word.at + now->param;
    const size_t size = now->n_words * sizeof *words;
    df_cuda_step *const was = &g->steps.at[step];
    if (was->n_blocks == now->n_blocks && memcmp(words, g->words.at + now->param, size) == 0)
        return DEFT_OK;
    void *params[1] = { words };
    const df_cu_kernel_node k = graph_kernel_params(now, params);
    const df_cu_result result =
        g->c->driver->exec_kernel(exec_of(g, step), g->nodes.at[g->copies.n + step].at, &k);
    if (result) return graph_fail(r, d, result, "cuGraphExecKernelNodeSetParams");
    n->nodes++;
    n->by_value += now->kernel.i != DF_NONE && !(now->entry.flags & DF_CUDA_MANY);
    return DEFT_OK;
}

deft_status df_cuda_graph_update(df_cuda_graph *g, df_diag *d, const df_cuda_call *r,
                                 df_cu_stream capture, df_cuda_updated *n)
{
    deft_status st = DEFT_OK;
    for (size_t i = 0; i < g->copies.n; i++) TRY(update_copy(g, d, r, i, n));
    for (uint32_t p = 0; p < g->n_phases; p++)
        for (uint32_t i = g->cut[p].begin; i < g->cut[p].end; i++)
            TRY(g->steps.at[i].of_job == DF_NONE ? update_child(g, d, r, i, capture, n)
                                                 : update_step(g, d, r, i, n));
    if (g->words.n > 0) memcpy(g->words.at, r->f->params.word.at, g->words.n * sizeof *g->words.at);
    for (size_t i = 0; i < g->steps.n; i++) g->steps.at[i].n_blocks = r->f->steps.at[i].n_blocks;
done:
    return st;
}

deft_status df_cuda_graph_launch(df_cuda_graph *g, df_diag *d, const df_cuda_call *r, uint32_t i)
{
    if (!g->phase[i].exec) return DEFT_OK;
    const df_cu_result result = g->c->driver->exec_launch(g->phase[i].exec, df_queue_stream(r->q));
    return result ? graph_fail(r, d, result, "cuGraphLaunch") : DEFT_OK;
}
