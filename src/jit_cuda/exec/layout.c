/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run layout is made of: scratch memory, words, uses of memory and steps. run_layout.c adds
 * them for kernels, and jobs.c for products and routines.
 */
#include "jit_cuda/exec/layout.h"

#include <string.h>

enum { SCRATCH_ALIGN = 256 };

int64_t df_cuda_scratch_aligned(int64_t bytes)
{
    return (bytes + SCRATCH_ALIGN - 1) & ~(int64_t)(SCRATCH_ALIGN - 1);
}

int64_t df_cuda_take_scratch(df_cuda_layout_builder *l, int64_t bytes)
{
    const int64_t at = l->scratch;
    l->scratch += df_cuda_scratch_aligned(bytes);
    if (l->scratch > l->f->scratch_bytes) l->f->scratch_bytes = l->scratch;
    return at;
}

uint32_t df_cuda_origin_of(const df_cuda_layout_builder *l, uint32_t which)
{
    return l->f->n_bufs + which;
}

deft_status df_cuda_more_words(const df_cuda_layout_builder *l, df_diag *d, df_cuda_words *to,
                               size_t n)
{
    if (!df_vec_reserve(l->c->mem, &to->word, n)) return df_fail_mem(d, "run", n * 8);
    memset(to->word.at + to->word.n, 0, n * sizeof *to->word.at);
    to->word.n += n;
    return DEFT_OK;
}

deft_status df_cuda_param_fix(const df_cuda_layout_builder *l, df_diag *d, uint32_t at,
                              uint32_t which, int64_t add)
{
    const df_cuda_fix x = { at, df_cuda_origin_of(l, which), add };
    if (df_vec_push(l->c->mem, &l->f->params.fix, x)) return DEFT_OK;
    return df_fail_mem(d, "run", sizeof x);
}

deft_status df_cuda_use_buffer(const df_cuda_layout_builder *l, df_diag *d, df_buf buf, bool writes)
{
    const df_cuda_use u = { buf, writes };
    if (buf.i == DF_NONE || df_vec_push(l->c->mem, &l->f->uses, u)) return DEFT_OK;
    return df_fail_mem(d, "run", sizeof u);
}

deft_status df_cuda_use_scratch(const df_cuda_layout_builder *l, df_diag *d)
{
    return df_cuda_use_buffer(l, d, (df_buf){ l->f->n_bufs }, true);
}

deft_status df_cuda_use_accesses(const df_cuda_layout_builder *l, df_diag *d, const df_seg *seg,
                                 const df_kernel *k)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < k->n_access && st == DEFT_OK; i++)
        st = k->access[i].kind == DF_ACCESS_SCRATCH
                 ? df_cuda_use_scratch(l, d)
                 : df_cuda_use_buffer(l, d, seg->bind[i].buf, k->access[i].kind == DF_ACCESS_STORE);
    return st;
}

deft_status df_cuda_add_step(const df_cuda_layout_builder *l, df_diag *d, const df_cuda_step *s)
{
    df_cuda_run_layout *const f = l->f;
    df_cuda_step at = *s;
    at.first_use = 0;
    if (f->steps.n > 0) {
        const df_cuda_step *const before = &f->steps.at[f->steps.n - 1];
        at.first_use = before->first_use + before->n_uses;
    }
    at.n_uses = (uint32_t)f->uses.n - at.first_use;
    if (df_vec_push(l->c->mem, &f->steps, at)) return DEFT_OK;
    return df_fail_mem(d, "run", sizeof at);
}
