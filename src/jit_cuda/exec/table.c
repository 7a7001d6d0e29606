/* SPDX-License-Identifier: Apache-2.0
 *
 * Counting for table.h, and the choice that is kept with a plan.
 */
#include "jit_cuda/exec/table.h"

#include "base/env.h"

uint32_t df_cuda_table_from(void)
{
    const int64_t n = df_env_int("DEFT_CUDA_TABLE", DF_CUDA_TABLE_FROM);
    return n < 0 || n > UINT32_MAX ? DF_CUDA_TABLE_FROM : (uint32_t)n;
}

bool df_cuda_table_weigh(df_cuda_weighing *w, uint64_t nodes, uint32_t from)
{
    uint64_t sum = 0;
    w->nodes[w->n++ % DF_CUDA_TABLE_REPLAYS] = nodes < UINT32_MAX ? (uint32_t)nodes : UINT32_MAX;
    if (from == 0 || w->n < DF_CUDA_TABLE_REPLAYS) return false;
    for (uint32_t i = 0; i < DF_CUDA_TABLE_REPLAYS; i++) sum += w->nodes[i];
    if (sum < (uint64_t)from * DF_CUDA_TABLE_REPLAYS) return false;
    *w = (df_cuda_weighing){ 0 };
    return true;
}

bool df_cuda_table_is_wanted(const df_cuda_plan *p, uint32_t from)
{
    const uint32_t now = atomic_load_explicit(&p->table, memory_order_relaxed);
    return from > 0 && now != DF_CUDA_TABLE_REFUSED && (from == 1 || now == DF_CUDA_BY_TABLE);
}

static void change(df_cuda_plan *p, uint32_t from, uint32_t to)
{
    (void)atomic_compare_exchange_strong_explicit(&p->table, &from, to, memory_order_relaxed,
                                                  memory_order_relaxed);
}

void df_cuda_table_choose(df_cuda_plan *p)
{
    change(p, DF_CUDA_BY_VALUE, DF_CUDA_BY_TABLE);
}

void df_cuda_table_refuse(df_cuda_plan *p, const df_log *log, const df_diag *why)
{
    const bool is_for_now = why->status == DEFT_E_MEMORY || why->status == DEFT_E_INTERRUPTED;
    df_logf(log, why, "kernels go by value, not by a table: %s", why->text);
    if (is_for_now)
        change(p, DF_CUDA_BY_TABLE, DF_CUDA_BY_VALUE);
    else
        atomic_store_explicit(&p->table, DF_CUDA_TABLE_REFUSED, memory_order_relaxed);
}
