/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a construct as one graph where that is possible. Otherwise the host decides and each
 * plan of the construct runs by itself; a line of the log says why.
 */
#include "jit_cuda/graphs/conditional.h"

static const char *refusal_of(const df_subplan *b)
{
    const df_plan *const plan = b->plan;
    if (plan->root_cell) return "there is a loop or a branch within it";
    if (plan->n_checked > 0 || plan->checks_first) return "an index within it may be outside";
    for (uint32_t i = 0; i < b->trace.n_inputs; i++)
        if (b->port[i].kind == DF_PORT_ROW) return "each iteration reads a row of its own";
    for (uint32_t i = 0; i < b->trace.n_roots; i++) {
        const df_buf buf = plan->root_buf[i];
        if (buf.i == DF_NONE || plan->bufs[buf.i].kind != DF_BUF_ROOT)
            return "it writes into the caller's memory";
    }
    return NULL;
}

static const char *refusal(df_cuda_device *c, const df_part *part)
{
    const char *why = NULL;
    if (!df_gpu_facts_of(c->gpu)->has_conditionals)
        return "the driver has no conditional nodes, which are of CUDA 12.4";
    if (part->kind == DF_PART_LOOP && part->n_out > part->n_states)
        return "it keeps a row of each iteration";
    why = refusal_of(&part->body);
    if (!why) why = refusal_of(&part->other);
    if (why) return why;
    if (!atomic_load_explicit(&c->conditionals, memory_order_acquire)) df_cuda_deciding_make(c);
    return df_cuda_deciding(c) ? NULL : "the driver does not take the kernels that decide";
}

/* The reasons that are known only when the layout is built. */
static const char *refusal_of_frame(const df_cuda_run_layout *f)
{
    for (uint32_t i = 0; i < f->steps.n; i++)
        if (f->steps.at[i].of_job == DF_NONE) return "a product within it is cuBLASLt's";
    return NULL;
}

/* Logs the reason, once per construct. */
static void tell(const df_cuda_device *c, const df_part *part, const char *why)
{
    df_cuda_plan *const p = part->body.plan->attached;
    if (atomic_exchange_explicit(&p->is_told, true, memory_order_relaxed)) return;
    df_logf(c->log, why, "%s: the %s at node %u asks the host: %s", c->name,
            part->kind == DF_PART_LOOP ? "loop" : "branch", part->node, why);
}

static deft_status run(df_cuda_conditional *w, df_diag *d, df_arena *arena, df_cuda_graphs *graphs,
                       bool *done)
{
    deft_status st = DEFT_OK;
    const df_part *const part = w->w->part;
    TRY(df_cuda_conditional_open(w, d, arena));
    const char *why = refusal_of_frame(w->body.call.f);
    if (!why) why = refusal_of_frame(w->other.call.f);
    if (why) {
        tell(w->c, part, why);
        goto done;
    }
    df_cuda_conditional_assign(w);
    TRY(df_cuda_graphs_run_whole(graphs, w, done));
    for (uint32_t i = 0; *done && i < w->n_dest; i++) {
        w->w->made[i] = w->own[i];
        w->own[i] = NULL;
    }
done:
    return st;
}

deft_status df_cuda_run_conditional(df_cuda_device *c, df_queue *q, df_diag *d,
                                    const df_flow_construct *f, bool *done)
{
    df_arena arena;
    df_cuda_graphs *const graphs = df_cuda_graphs_of(c, q);
    const char *const why = graphs ? refusal(c, f->part) : NULL;
    *done = false;
    if (why) tell(c, f->part, why);
    if (why || !graphs) return DEFT_OK;
    df_cuda_conditional w = {
        .w = f, .c = c, .q = q, .is_loop = f->part->kind == DF_PART_LOOP, .n_dest = f->part->n_out
    };
    df_arena_init(&arena, c->mem);
    const deft_status st = run(&w, d, &arena, graphs, done);
    df_cuda_conditional_close(&w);
    df_arena_finish(&arena);
    return st;
}
