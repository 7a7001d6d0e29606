/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots: the integers that a run computes. This code runs for every cut, whether the cache has a
 * plan or not, so it is one pass without calls. Sums and products wrap, in unsigned arithmetic.
 */
#include "trace/trace.h"

void df_slots_eval(const df_slot_def *defs, uint32_t n, const df_trace *t, int64_t *out)
{
    for (uint32_t i = 0; i < n; i++) {
        const df_slot_def s = defs[i];
        int64_t v = 0;
        switch ((df_slot_op)s.op) {
        case DF_SLOT_const: v = s.imm; break;
        case DF_SLOT_extent: v = t->extents[t->shape[s.a] + s.b]; break;
        case DF_SLOT_arg: v = t->args[s.a]; break;
        case DF_SLOT_stride: v = t->inputs[s.a].stride[s.b]; break;
        case DF_SLOT_add: v = (int64_t)((uint64_t)out[s.a] + (uint64_t)out[s.b]); break;
        case DF_SLOT_sub: v = (int64_t)((uint64_t)out[s.a] - (uint64_t)out[s.b]); break;
        case DF_SLOT_mul: v = (int64_t)((uint64_t)out[s.a] * (uint64_t)out[s.b]); break;
        case DF_SLOT_max: v = df_max_i64(out[s.a], out[s.b]); break;
        case DF_SLOT_divup:
            df_assert(out[s.b] > 0);
            v = out[s.a] / out[s.b] + (out[s.a] % out[s.b] > 0);
            break;
        }
        out[i] = v;
    }
}
