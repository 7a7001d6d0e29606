/* SPDX-License-Identifier: Apache-2.0
 *
 * Bare numbers among the operands of a call. One rule holds for every call whose operands
 * meet in one dtype, whatever the position of the number: it takes the dtype to which the
 * tensors among the operands promote. A fractional number that meets integers or bools
 * makes f32 of them. An integer that meets bools makes i64. When all operands are
 * numbers, each has its own dtype, f32 or i64. Of an integer above the range of i64, that
 * is u64 instead of i64.
 *
 * A number keeps its kind: it stays the parameter of a capture, or the constant that it
 * was marked as (df_weak_node).
 */
#include "lazy/core/meet.h"

#include <string.h>

static bool is_number(const deft_tensor *t)
{
    return t->flags & DF_HANDLE_WEAK;
}

bool df_meet(deft_ctx *cx, const df_meeting *m, deft_tensor *const *t, size_t n, uint32_t *node,
             deft_dtype *met)
{
    deft_dtype tensors = DEFT_BOOL, all = DEFT_BOOL;
    bool has_tensor = false;
    for (size_t i = 0; i < n; i++) {
        if (!df_enter_more(cx, m->what, m->first + (unsigned)i, t[i])) return false;
        if (is_number(t[i])) continue;
        node[i] = df_mixed_operand(cx, m->op, df_node_of(cx, t[i]), m->site);
        if (node[i] == DF_BAD) return false;
        const deft_dtype own = df_dtype_at(cx, node[i]);
        if (!has_tensor)
            tensors = own;
        else if (!df_common_dtype(cx, m->what, tensors, own, &tensors))
            return false;
        has_tensor = true;
    }
    all = tensors;
    for (size_t i = 0; i < n; i++) {
        if (!is_number(t[i])) continue;
        const deft_dtype as = df_weak_dtype(t[i], has_tensor ? tensors : df_tensor_dtype(cx, t[i]));
        if (i == 0 && !has_tensor)
            all = as;
        else if (!df_common_dtype(cx, m->what, all, as, &all))
            return false;
        node[i] = df_weak_node(cx, t[i], m->lifts && df_is_half(as) ? DEFT_F32 : as);
        if (node[i] == DF_BAD) return false;
    }
    if (met) *met = all;
    return true;
}

uint32_t df_literal_node(deft_ctx *cx, const char *what, deft_dtype t, df_literal v, uintptr_t site)
{
    if (!v.is_int) return df_number_f(cx, what, t, v.f, site);
    return v.is_unsigned ? df_number_u(cx, what, t, (uint64_t)v.i, site)
                         : df_number_i(cx, what, t, v.i, site);
}

uint32_t df_number_exact(deft_ctx *cx, const deft_tensor *t)
{
    df_assert(is_number(t));
    return df_weak_node(cx, t, (deft_dtype)t->place);
}

deft_tensor *df_number_copy(deft_ctx *cx, const deft_tensor *t)
{
    deft_tensor *const copy = df_handle_new(cx, 0);
    df_assert(is_number(t));
    if (!copy) return NULL;
    df_number_move(copy, t);
    return copy;
}

void df_number_move(deft_tensor *to, const deft_tensor *t)
{
    to->flags = DF_HANDLE_LIVE | (t->flags & (DF_HANDLE_WEAK | DF_HANDLE_CONST | DF_HANDLE_PARAM));
    to->value = NULL;
    to->epoch = 0;
    to->number = t->number;
    to->node = t->node;
    to->place = t->place;
}
