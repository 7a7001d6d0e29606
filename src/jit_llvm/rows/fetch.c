/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads of reductions that prefetch. Which launches do so, the executor decides
 * (runtime/exec/exec_stream.c). The code here is for the other half of a branch on
 * df_kargs.fetches, which row.c writes.
 *
 * The hardware prefetches from the third cache, but stops at the end of each page. Loads that run
 * ahead out of order cover the next page in part. With an instruction for each line, DISTANCE bytes
 * ahead, a core of Zen 5 reads as fast as its third cache permits. The distance hardly matters
 * between 1 and 4 KiB, and 512 bytes are too few. With these instructions, data in the first two
 * caches is read up to a third more slowly.
 */
#include "jit_llvm/gen.h"

enum {
    DISTANCE = 1024,
    LINE = 64,
    LONG_BODY = 48, /* instructions. A longer body does not wait for the third cache */
};

/* Whether facts know that all rows are single blocks, for which no launch prefetches. */
static bool has_short_rows(const df_gen *g)
{
    int64_t n;
    return g->k->mode == DF_MODE_ROW && df_gen_known(g->length, &n) && n <= DF_BLOCK;
}

void df_fetch_begin(df_gen *g)
{
    if (!df_kernel_only_reduces(g->k) || g->level == DF_OPT_O0 || g->w == 1 || g->has_runs ||
        g->vec_axis < 0 || g->t->arch != DF_ARCH_X86_64 || has_short_rows(g))
        return;
    df_gen_mark(g, 0);
    if (df_gen_body_size(g) > LONG_BODY) return;
    LLVMValueRef at = df_gen_at(g, g->i64, LLVMGetParam(g->fn, 0), df_gen_i64(g, DF_FETCHES_WORD));
    LLVMValueRef word = LLVMBuildLoad2(g->b, g->i64, at, "");
    g->fetches = LLVMBuildICmp(g->b, LLVMIntNE, word, df_gen_i64(g, 0), "");
}

void df_fetch_vector(df_gen *g, uint32_t vector)
{
    g->prefetches = true;
    for (uint32_t a = 0; a < g->k->n_access; a++) {
        const uint32_t size = df_bytes_of((deft_dtype)g->k->access[a].dtype);
        const bool is_first = vector * g->w * size % LINE == 0;
        g->acc[a].ahead = is_first ? df_gen_i64(g, DISTANCE) : NULL;
    }
}

void df_fetch_end(df_gen *g)
{
    g->prefetches = false;
    for (uint32_t a = 0; a < g->k->n_access; a++) g->acc[a].ahead = NULL;
}
