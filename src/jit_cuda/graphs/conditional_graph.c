/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of a construct. One traversal visits its nodes in order, and does one of three
 * things. It creates the nodes (MAKE), checks whether a graph has the same nodes (COMPARE),
 * or updates what has changed (SET).
 *
 * Nodes within bodies are updated in the executable graph of the construct, like all
 * others. See "Graph Update Limitations" in CUDA's programming guide, and XLA's
 * ScopedGpuGraphExec. When a driver refuses that, the graph is recorded again.
 *
 * The nodes of one phase wait for all nodes of the phase before, and not for each other. A
 * phase is the launches of a plan (graph.c), or the copies of states together with the
 * kernel that counts, or the kernel that decides.
 */
#include "jit_cuda/graphs/conditional.h"

#include <string.h>

enum { CONDITIONAL = 13, IF = 0, WHILE = 1, DEVICE = 2, ASSIGN_DEFAULT = 1 };
enum { NODE_BYTES = 2048, N_PLANS = 3, N_HANDLES = 2, WORDS = 4, THREADS = 32 };

/* A node that is a kernel that decides or counts, with its parameters. Without fn it is a
 * copy, with to, from and bytes. */
typedef struct small {
    df_cu_node at;
    df_cu_fn fn;
    uint64_t word[WORDS];
} small;

struct df_cuda_conditional_graph {
    df_cuda_device *c;
    const df_part *part; /* only compared, never followed */
    df_cu_graph graph;
    df_cu_exec exec;
    df_cu_condition handle[N_HANDLES];
    df_cuda_graph *plan[N_PLANS];
    DF_VEC(small) small;
};

typedef enum purpose { MAKE, COMPARE, SET } purpose;

typedef struct walk {
    purpose what;
    df_cuda_conditional_graph *g;
    df_cuda_conditional *w;
    df_diag *d;
    bool is_like;       /* COMPARE: the result */
    df_cuda_updated *n; /* SET: counts of updated nodes */
    uint32_t n_plans, n_small;
    /* for MAKE: */
    df_cu_graph to;
    df_cu_node before; /* what the current phase waits for; NULL: nothing */
    DF_VEC(df_cu_node) group;
} walk;

static deft_status walk_fail(const walk *x, df_cu_result result, const char *call)
{
    return df_queue_fail(x->w->q, x->d, result, "%s", call);
}

/* ---- small nodes: kernels that decide or count, and copies ---- */

static df_cu_kernel_node small_kernel_params(small *s, void *params[WORDS])
{
    for (uint32_t i = 0; i < WORDS; i++) params[i] = &s->word[i];
    return (df_cu_kernel_node){ .func = s->fn,
                                .grid_x = 1,
                                .grid_y = 1,
                                .grid_z = 1,
                                .block_x = THREADS,
                                .block_y = 1,
                                .block_z = 1,
                                .params = params };
}

static df_cu_memcpy3d small_copy_params(const small *s)
{
    return (df_cu_memcpy3d){ .src_kind = DEVICE,
                             .src_device = s->word[1],
                             .dst_kind = DEVICE,
                             .dst_device = s->word[0],
                             .width = (size_t)s->word[2],
                             .height = 1,
                             .depth = 1 };
}

static deft_status make_small(walk *x, small *s)
{
    void *params[WORDS];
    df_cuda_conditional_graph *const g = x->g;
    const df_driver *const dr = g->c->driver;
    const df_cu_kernel_node k = small_kernel_params(s, params);
    const df_cu_memcpy3d c = small_copy_params(s);
    if (!df_vec_reserve(g->c->mem, &g->small, 1) || !df_vec_reserve(g->c->mem, &x->group, 1))
        return df_fail_mem(x->d, "graph", sizeof *s);
    const df_cu_result result =
        s->fn ? dr->graph_kernel(&s->at, x->to, &x->before, x->before != NULL, &k)
              : dr->graph_memcpy(&s->at, x->to, &x->before, x->before != NULL, &c,
                                 df_gpu_ctx(g->c->gpu));
    if (result)
        return walk_fail(x, result, s->fn ? "cuGraphAddKernelNode" : "cuGraphAddMemcpyNode");
    x->group.at[x->group.n++] = s->at;
    g->small.at[g->small.n++] = *s;
    return DEFT_OK;
}

static deft_status set_small(walk *x, small *s, const small *was)
{
    void *params[WORDS];
    const df_driver *const dr = x->g->c->driver;
    s->at = was->at;
    const df_cu_kernel_node k = small_kernel_params(s, params);
    const df_cu_memcpy3d c = small_copy_params(s);
    const df_cu_result result =
        s->fn ? dr->exec_kernel(x->g->exec, s->at, &k)
              : dr->exec_memcpy(x->g->exec, s->at, &c, df_gpu_ctx(x->g->c->gpu));
    if (result)
        return walk_fail(
            x, result, s->fn ? "cuGraphExecKernelNodeSetParams" : "cuGraphExecMemcpyNodeSetParams");
    x->n->nodes++;
    return DEFT_OK;
}

static deft_status walk_small(walk *x, small s)
{
    if (x->what == MAKE) return make_small(x, &s);
    const uint32_t i = x->n_small++;
    if (x->what == COMPARE) return DEFT_OK;
    small *const was = &x->g->small.at[i];
    if (memcmp(was->word, s.word, sizeof s.word) == 0) return DEFT_OK;
    const deft_status st = set_small(x, &s, was);
    if (st == DEFT_OK) *was = s;
    return st;
}

static deft_status walk_kernel(walk *x, uint32_t which, uint64_t a, uint64_t b, uint64_t c,
                               uint64_t e)
{
    const df_cu_fn fn = df_cuda_deciding(x->w->c)[which]->fn;
    return walk_small(x, (small){ .fn = fn, .word = { a, b, c, e } });
}

static deft_status walk_copy(walk *x, const void *to, const void *from, int64_t bytes)
{
    const small s = { .word = { (uintptr_t)to, (uintptr_t)from, (uint64_t)bytes } };
    return to == from || bytes == 0 ? DEFT_OK : walk_small(x, s);
}

/* ---- phases, plans, bodies ---- */

/* Ends the phase: what comes next waits for all of its nodes. */
static deft_status end_group(walk *x)
{
    if (x->what != MAKE || x->group.n == 0) return DEFT_OK;
    df_cu_node end = x->group.at[0];
    if (x->group.n > 1) {
        const df_cu_result result =
            x->g->c->driver->graph_empty(&end, x->to, x->group.at, x->group.n);
        if (result) return walk_fail(x, result, "cuGraphAddEmptyNode");
    }
    x->before = end;
    x->group.n = 0;
    return DEFT_OK;
}

static deft_status walk_plan(walk *x, const df_cuda_side *side)
{
    df_cu_node end = NULL;
    df_cuda_graph **const g = &x->g->plan[x->n_plans++];
    if (x->what == SET) return df_cuda_graph_update(*g, x->d, &side->call, NULL, x->n);
    if (x->what == COMPARE) {
        x->is_like = x->is_like && df_cuda_graph_is_like(*g, &side->call);
        return DEFT_OK;
    }
    const deft_status st = df_cuda_graph_weave(x->d, &side->call, x->to, x->before, &end, g);
    if (st == DEFT_OK) x->before = end;
    return st;
}

/* Adds a conditional node behind the phase before. The traversal continues in its body. */
static deft_status walk_into_body(walk *x, int type, uint32_t handle)
{
    df_cu_node at = NULL;
    if (x->what != MAKE) return DEFT_OK;
    df_cu_node_params p = { .type = CONDITIONAL };
    p.is.conditional.handle = x->g->handle[handle];
    p.is.conditional.type = type;
    p.is.conditional.size = 1;
    p.is.conditional.ctx = df_gpu_ctx(x->g->c->gpu);
    const df_cu_result result =
        x->g->c->driver->graph_node(&at, x->to, &x->before, x->before != NULL, &p);
    if (result) return walk_fail(x, result, "cuGraphAddNode");
    x->to = p.is.conditional.bodies[0];
    x->before = NULL;
    return DEFT_OK;
}

/* ---- loops ---- */

static int64_t loop_state_bytes(const df_cuda_conditional *w, uint32_t state)
{
    return w->w->slots[w->w->plan->cells[w->w->part->init[state]].bytes.i];
}

static char *side_root_address(const df_cuda_side *side, uint32_t root)
{
    return side->call.f->origin[side->call.plan->root_buf[root].i];
}

/* Adds the test and the kernel that decides. */
static deft_status decide(walk *x)
{
    deft_status st = DEFT_OK;
    const df_cuda_conditional *const w = x->w;
    TRY(walk_plan(x, &w->other));
    TRY(walk_kernel(x, DF_CUDA_LOOP, x->g->handle[0], (uintptr_t)w->holds, (uintptr_t)w->count,
                    (uint64_t)w->w->slots[w->w->part->most.i]));
    TRY(end_group(x));
done:
    return st;
}

static deft_status walk_loop(walk *x)
{
    deft_status st = DEFT_OK;
    const df_cuda_conditional *const w = x->w;
    for (uint32_t i = 0; i < w->n_dest; i++)
        TRY(walk_copy(x, w->dest[i], w->w->init[i], loop_state_bytes(w, i)));
    TRY(walk_kernel(x, DF_CUDA_COUNT, (uintptr_t)w->count, 1, 0, 0));
    TRY(end_group(x));
    TRY(decide(x));
    TRY(walk_into_body(x, WHILE, 0));
    TRY(walk_plan(x, &w->body));
    for (uint32_t i = 0; i < w->n_dest; i++)
        TRY(walk_copy(x, w->dest[i], side_root_address(&w->body, i), loop_state_bytes(w, i)));
    TRY(walk_kernel(x, DF_CUDA_COUNT, (uintptr_t)w->count, 0, 0, 0));
    TRY(end_group(x));
    TRY(decide(x));
done:
    return st;
}

/* ---- branches ---- */

static deft_status walk_side(walk *x, const df_cuda_side *side, uint32_t handle)
{
    deft_status st = DEFT_OK;
    const df_cu_graph to = x->to;
    const df_cu_node before = x->before;
    TRY(walk_into_body(x, IF, handle));
    TRY(walk_plan(x, side));
    for (uint32_t i = 0; i < x->w->n_dest; i++) {
        const df_plan *const plan = side->call.plan;
        const int64_t bytes = df_bind_bytes(&plan->bufs[plan->root_buf[i].i], side->call.slots);
        TRY(walk_copy(x, x->w->dest[i], side_root_address(side, i), bytes));
    }
    x->group.n = 0;
    x->to = to;
    x->before = before;
done:
    return st;
}

static deft_status walk_branch(walk *x)
{
    deft_status st = DEFT_OK;
    TRY(walk_kernel(x, DF_CUDA_BRANCH, x->g->handle[0], x->g->handle[1], (uintptr_t)x->w->w->cond,
                    0));
    TRY(end_group(x));
    TRY(walk_side(x, &x->w->body, 0));
    TRY(walk_side(x, &x->w->other, 1));
done:
    return st;
}

/* ---- the construct ---- */

static deft_status go(walk *x)
{
    const deft_status st = x->w->is_loop ? walk_loop(x) : walk_branch(x);
    df_vec_finish(x->g->c->mem, &x->group);
    return st;
}

static deft_status make_handles(df_cuda_conditional_graph *g, df_diag *d,
                                const df_cuda_conditional *w)
{
    for (uint32_t i = 0; i < (w->is_loop ? 1u : 2u); i++) {
        const df_cu_result result = g->c->driver->graph_condition(
            &g->handle[i], g->graph, df_gpu_ctx(g->c->gpu), 0, ASSIGN_DEFAULT);
        if (result) return df_queue_fail(w->q, d, result, "cuGraphConditionalHandleCreate");
    }
    return DEFT_OK;
}

deft_status df_cuda_conditional_graph_create(df_diag *d, df_cuda_conditional *w,
                                             df_cuda_conditional_graph **out)
{
    deft_status st = DEFT_OK;
    const df_driver *const dr = w->c->driver;
    df_cuda_conditional_graph *g = df_mem_zalloc(w->c->mem, sizeof *g);
    if (!g) return df_fail_mem(d, "graph", sizeof *g);
    g->c = w->c;
    g->part = w->w->part;
    df_cu_result result = dr->graph_create(&g->graph, 0);
    if (result) TRY(df_queue_fail(w->q, d, result, "cuGraphCreate"));
    TRY(make_handles(g, d, w));
    walk x = { .what = MAKE, .g = g, .w = w, .d = d, .to = g->graph };
    TRY(go(&x));
    result = dr->graph_instantiate(&g->exec, g->graph, 0);
    if (result) TRY(df_queue_fail(w->q, d, result, "cuGraphInstantiate"));
    for (uint32_t i = 0; i < N_PLANS; i++)
        if (g->plan[i]) df_cuda_graph_woven(g->plan[i], g->exec);
    *out = g;
    g = NULL;
done:
    df_cuda_conditional_graph_destroy(&g);
    return st;
}

void df_cuda_conditional_graph_destroy(df_cuda_conditional_graph **out)
{
    df_cuda_conditional_graph *const g = *out;
    *out = NULL;
    if (!g) return;
    if (g->exec) (void)g->c->driver->exec_destroy(g->exec);
    if (g->graph) (void)g->c->driver->graph_destroy(g->graph);
    for (uint32_t i = 0; i < N_PLANS; i++) df_cuda_graph_destroy(&g->plan[i]);
    df_vec_finish(g->c->mem, &g->small);
    df_mem_free(g->c->mem, g, sizeof *g);
}

size_t df_cuda_conditional_graph_nodes(const df_cuda_conditional_graph *g)
{
    size_t n = g->small.n;
    for (uint32_t i = 0; i < N_PLANS; i++)
        if (g->plan[i]) n += df_cuda_graph_nodes(g->plan[i]);
    return n;
}

size_t df_cuda_conditional_graph_bytes(const df_cuda_conditional_graph *g)
{
    size_t n = sizeof *g + g->small.n * NODE_BYTES;
    for (uint32_t i = 0; i < N_PLANS; i++)
        if (g->plan[i]) n += df_cuda_graph_bytes(g->plan[i]);
    return n;
}

bool df_cuda_conditional_graph_is_like(const df_cuda_conditional_graph *g, df_cuda_conditional *w)
{
    walk x = {
        .what = COMPARE, .g = (df_cuda_conditional_graph *)(uintptr_t)g, .w = w, .is_like = true
    };
    return g->part == w->w->part && go(&x) == DEFT_OK && x.is_like && x.n_small == g->small.n;
}

deft_status df_cuda_conditional_graph_update(df_cuda_conditional_graph *g, df_diag *d,
                                             df_cuda_conditional *w, df_cuda_updated *n)
{
    walk x = { .what = SET, .g = g, .w = w, .d = d, .n = n };
    return go(&x);
}

deft_status df_cuda_conditional_graph_launch(df_cuda_conditional_graph *g, df_diag *d,
                                             const df_cuda_conditional *w)
{
    const df_cu_result result = g->c->driver->exec_launch(g->exec, df_queue_stream(w->q));
    return result ? df_queue_fail(w->q, d, result, "cuGraphLaunch") : DEFT_OK;
}
