/* SPDX-License-Identifier: Apache-2.0
 *
 * The loaded functions of a run layout's steps. Functions that a plan does not have are
 * compiled, and one thread's function is published for all runs of the plan.
 */
#include "jit_cuda/exec/layout.h"

static uint32_t entry_number(const df_cuda_step *s)
{
    return s->kernel.i * DF_CUDA_ENTRIES + df_cuda_entry_number(s->entry);
}

/* Lists the entries for which is_wanted is true, kernel by kernel. */
static uint32_t list_wants(const df_plan *plan, const df_cuda_plan *p, const bool *is_wanted,
                           df_cuda_want *want)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_kernels * DF_CUDA_ENTRIES; i++) {
        const uint32_t k = i / DF_CUDA_ENTRIES, e = i % DF_CUDA_ENTRIES;
        if (!is_wanted[i]) continue;
        want[n++] = (df_cuda_want){ .kernel = &plan->kernels[k],
                                    .entry = { (uint8_t)(e / DF_CUDA_N_FLAGS),
                                               (uint8_t)(e % DF_CUDA_N_FLAGS) },
                                    .ops = df_cuda_ops(plan, (df_kern){ k }),
                                    .site = plan->about ? plan->about[k].site : 0 };
    }
    return n;
}

void df_cuda_publish(df_cuda_fn *_Atomic *at, df_cuda_fn *fn)
{
    df_cuda_fn *none = NULL;
    if (atomic_compare_exchange_strong_explicit(at, &none, fn, memory_order_acq_rel,
                                                memory_order_acquire))
        return;
    df_cuda_fn_drop(&fn);
}

static deft_status get_missing(df_cuda_device *c, df_diag *d, const df_plan *plan, df_cuda_plan *p,
                               const bool *is_wanted, uint32_t n, df_waiter *w)
{
    deft_status st = DEFT_OK;
    df_cuda_want *const want = df_mem_alloc(c->mem, n * sizeof *want);
    if (!want) return df_fail_mem(d, "run", n * sizeof *want);
    (void)list_wants(plan, p, is_wanted, want);
    TRY(df_modules_get(c->modules, d, want, n, 0, w));
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t k = (uint32_t)(want[i].kernel - plan->kernels);
        df_cuda_publish(&p->fn[k * DF_CUDA_ENTRIES + df_cuda_entry_number(want[i].entry)],
                        want[i].fn);
    }
done:
    df_mem_free(c->mem, want, n * sizeof *want);
    return st;
}

deft_status df_cuda_run_layout_load(df_cuda_run_layout *f, df_diag *d, df_cuda_device *c,
                                    const df_plan *plan, df_waiter *w)
{
    deft_status st = DEFT_OK;
    df_cuda_plan *const p = plan->attached;
    const size_t size = p->n_kernels * (size_t)DF_CUDA_ENTRIES + 1;
    bool *const is_wanted = df_mem_zalloc(c->mem, size);
    uint32_t n = 0;
    if (!is_wanted) return df_fail_mem(d, "run", size);
    for (uint32_t i = 0; i < f->steps.n; i++) {
        if (f->steps.at[i].kernel.i == DF_NONE) continue;
        const uint32_t at = entry_number(&f->steps.at[i]);
        if (is_wanted[at] || atomic_load_explicit(&p->fn[at], memory_order_acquire)) continue;
        is_wanted[at] = true;
        n++;
    }
    if (n > 0) TRY(get_missing(c, d, plan, p, is_wanted, n, w));
    for (uint32_t i = 0; i < f->steps.n; i++) {
        df_cuda_step *const s = &f->steps.at[i];
        if (s->kernel.i == DF_NONE) continue;
        s->fn = atomic_load_explicit(&p->fn[entry_number(s)], memory_order_acquire)->fn;
    }
    TRY(df_cuda_jobs_load(f, d, c));
    f->is_laid_out = true;
done:
    df_mem_free(c->mem, is_wanted, size);
    return st;
}
