/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs external work: through the graph tree of the queue, or directly when the queue has
 * none.
 */
#include "jit_cuda/device/work_run.h"
#include "jit_cuda/graphs/graph.h"

#include "replay/tree.h"

/* Bytes of the lists of a df_cuda_work, which have n_out elements each. */
static size_t lists_bytes(const df_work *w)
{
    return w->n_out * (sizeof(df_tree_out) + 2 * sizeof(df_buffer *) + sizeof(void *));
}

deft_status df_cuda_work_run(df_cuda_device *c, df_diag *d, df_queue *q, const df_work *w,
                             df_buffer **out)
{
    deft_status st = DEFT_OK;
    df_cuda_graphs *const graphs = df_cuda_graphs_of(c, q);
    df_tree_out *const lists = df_mem_zalloc(c->mem, lists_bytes(w) + 1);
    if (!lists) return df_fail_mem(d, "work", lists_bytes(w));
    df_buffer **const own = (df_buffer **)(void *)(lists + w->n_out);
    df_cuda_work r = { .c = c,
                       .q = q,
                       .d = d,
                       .w = w,
                       .own = own,
                       .lent = own + w->n_out,
                       .out = lists,
                       .at = (void **)(own + 2 * (size_t)w->n_out) };
    if (graphs) {
        TRY(df_cuda_graphs_work(graphs, &r));
    } else {
        TRY(df_cuda_work_plain(&r));
        TRY(r.status);
    }
    for (uint32_t i = 0; i < w->n_out; i++) {
        out[i] = own[i];
        own[i] = NULL;
    }
done:
    for (uint32_t i = 0; i < w->n_out; i++) {
        df_buffer_drop(&r.own[i]);
        df_buffer_drop(&r.lent[i]);
    }
    df_mem_free(c->mem, lists, lists_bytes(w) + 1);
    return st;
}
