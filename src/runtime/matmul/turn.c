/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/matmul/turn.h"

#include <string.h>

bool df_matmul_wants_turn(const df_matmul_job *j)
{
    return !j->images && j->n == 1 && j->m > 1 && (!j->c || j->c_row == 1);
}

/* Rows [o0, o1) of the turned job are batch entries, and its columns are rows of the original. */
static void turned_epilogue(void *user, uint32_t thread, const char *tile, int64_t ld, int64_t o0,
                            int64_t o1, int64_t i0, int64_t i1)
{
    const df_matmul_job *const j = ((const df_matmul_turned *)user)->original;
    const int64_t row_size = ld * (int64_t)deft_dtype_size(j->dtype);
    for (int64_t o = o0; o < o1; o++, tile += row_size)
        j->epilogue(j->user, thread, tile, 1, o * j->m + i0, o * j->m + i1, 0, 1);
}

void df_matmul_turn(const df_matmul_job *j, df_matmul_turned *out)
{
    out->original = j;
    out->job = *j;
    df_matmul_job *const t = &out->job;
    t->m = 1;
    t->n = j->m;
    t->a = j->b;
    t->b = j->a;
    memcpy(t->a_batch, j->b_batch, sizeof t->a_batch);
    memcpy(t->b_batch, j->a_batch, sizeof t->b_batch);
    t->a_row = j->k; /* of no meaning: there is one row */
    t->a_col = j->b_row;
    t->b_row = j->a_col;
    t->b_col = j->a_row;
    t->c_row = j->m;
    t->user = out;
    if (j->epilogue) t->epilogue = turned_epilogue;
}

void df_matmul_fold_batch(df_matmul_job *j)
{
    int64_t a_next = j->m * j->a_row, c_next = j->m * j->c_row;
    if (j->images) return;
    for (uint32_t i = j->batch_rank; i-- > 0;) {
        const int64_t n = j->batch_extent[i];
        if (n == 1) continue;
        if (j->b_batch[i] != 0 || j->a_batch[i] != a_next || (j->c && j->c_batch[i] != c_next))
            return;
        a_next *= n;
        c_next *= n;
    }
    j->m *= j->n_batch;
    j->n_batch = 1;
    j->batch_rank = 0;
}
