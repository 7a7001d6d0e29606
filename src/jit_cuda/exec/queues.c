/* SPDX-License-Identifier: Apache-2.0
 *
 * The queues of a device, and the graph tree that each of them may have.
 */
#include "jit_cuda/exec/device_internal.h"

df_cuda_queue_entry *df_cuda_queue_entry_of(df_cuda_device *c, const df_queue *q)
{
    for (size_t i = 0; i < c->queues.n; i++)
        if (c->queues.at[i].q == q) return &c->queues.at[i];
    return NULL;
}

struct df_cuda_graphs *df_cuda_graphs_of(df_cuda_device *c, const df_queue *q)
{
    pthread_mutex_lock(&c->lock);
    const df_cuda_queue_entry *const lane = df_cuda_queue_entry_of(c, q);
    struct df_cuda_graphs *const graphs = lane ? lane->graphs : NULL;
    pthread_mutex_unlock(&c->lock);
    return graphs;
}
