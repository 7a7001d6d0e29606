/* SPDX-License-Identifier: Apache-2.0
 *
 * Operands of halves as f32. See lift.h.
 */
#include "runtime/matmul/lift.h"

#include "base/half.h"

void df_matmul_lift_row(void *lifting, uint32_t i, uint32_t thread)
{
    const df_lifting *const l = lifting;
    const df_matmul_job *const j = l->job;
    const uint16_t *from = l->from + i % l->rows * l->row;
    float *const to = l->to + i * l->columns;
    int64_t left = i / l->rows;
    (void)thread;
    for (uint32_t x = j->batch_rank; x-- > 0;) {
        if (l->batch[x] == 0) continue;
        from += left % j->batch_extent[x] * l->from_batch[x];
        left /= j->batch_extent[x];
    }
    if (l->dtype == DEFT_BF16)
        for (int64_t x = 0; x < l->columns; x++) to[x] = df_f32_of_bf16(from[x * l->column]);
    else
        for (int64_t x = 0; x < l->columns; x++) to[x] = df_f32_of_f16(from[x * l->column]);
}
