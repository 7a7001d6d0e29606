/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the guards of a plan. This runs at every cut, before a plan is used, so it is one pass.
 * Only guards on memory ranges call functions.
 */
#include "guards/guard.h"

typedef struct range {
    uintptr_t from;
    uint64_t bytes;
} range;

static range range_of(const df_trace *t, uint32_t input)
{
    int64_t low, bytes;
    /* Recording refuses strides that overflow. If they occur nevertheless, all addresses are the
     * safe answer. */
    if (!df_input_reach(t, input, &low, &bytes)) return (range){ 0, UINTPTR_MAX };
    return (range){ (uintptr_t)t->inputs[input].data + (uintptr_t)low, (uint64_t)bytes };
}

/* Ranges, not elements: two interleaved column views of one matrix count as overlapping. */
static bool are_disjoint(const df_trace *t, uint32_t a, uint32_t b)
{
    const range x = range_of(t, a), y = range_of(t, b);
    if (x.bytes == 0 || y.bytes == 0) return true;
    return x.from < y.from ? y.from - x.from >= x.bytes : x.from - y.from >= y.bytes;
}

static bool has_flag(const df_trace *t, uint32_t input, uint32_t flag)
{
    return (t->inputs[input].flags & flag) != 0;
}

static bool holds(const df_guard *g, const df_trace *t, const int64_t *slots)
{
    switch ((df_guard_kind)g->kind) {
    case DF_GUARD_same_place:
    case DF_GUARD_same_bound:
    case DF_GUARD_equal: return slots[g->a] == slots[g->b];
    case DF_GUARD_is_const: return slots[g->a] == g->want;
    case DF_GUARD_at_least: return slots[g->a] >= g->want;
    case DF_GUARD_at_most: return slots[g->a] <= g->want;
    case DF_GUARD_contiguous: return has_flag(t, g->a, DF_INPUT_CONTIGUOUS) == (g->want != 0);
    case DF_GUARD_aligned: return has_flag(t, g->a, DF_INPUT_ALIGNED) == (g->want != 0);
    case DF_GUARD_unit: return (t->inputs[g->a].stride[g->b] == 1) == (g->want != 0);
    case DF_GUARD_disjoint: return are_disjoint(t, g->a, g->b);
    case DF_GUARD_sole: return has_flag(t, g->a, DF_INPUT_SOLE) == (g->want != 0);
    case DF_N_GUARDS: break;
    }
    df_unreachable();
}

const df_guard *df_guard_first_miss(const df_guard *g, uint32_t n, const df_trace *t,
                                    const int64_t *slots)
{
    for (uint32_t i = 0; i < n; i++)
        if (DF_UNLIKELY(!holds(&g[i], t, slots))) return &g[i];
    return NULL;
}
