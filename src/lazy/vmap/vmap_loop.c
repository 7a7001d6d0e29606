/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops and branches for many examples.
 *
 * When anything in a loop depends on examples, the whole loop is recorded again. States
 * that do not depend on examples keep their shape. Rows have the iterations first, then
 * the examples. A loop whose test depends on examples runs as long as the test holds for
 * any example. Where the test does not hold, a state keeps its value, and so the test
 * stays false. A branch whose condition depends on examples becomes a choice between
 * elements.
 *
 * The values that a loop's list names are recorded before the list, and its results are
 * adjacent records. Gradients rely on both (grad_loop.c).
 */
#include "lazy/vmap/vmap.h"

#include <string.h>

static df_node node_at(const df_vmap *w, uint32_t k)
{
    return w->cx->rec.nodes[k];
}

static uint32_t operand(const df_vmap *w, uint32_t k, uint32_t i)
{
    return w->cx->rec.nodes[k].src[i].i;
}

/* The record that precedes record k in a loop's list. */
static uint32_t before(const df_vmap *w, uint32_t k)
{
    const df_node n = node_at(w, k);
    return n.src[n.n_src - 1].i;
}

static bool in_list(const df_vmap *w, uint32_t k)
{
    const uint8_t op = w->cx->rec.nodes[k].op;
    return op == DF_OP_proceed || op == DF_OP_next || op == DF_OP_stack;
}

/* ---- what depends on examples ---- */

static uint32_t loop_of(const df_vmap *w, uint32_t k)
{
    return w->cx->rec.nodes[k].op == DF_OP_loop ? k : w->loop[k - w->from];
}

/* Adds flags to record k. Returns whether that changed any. */
static bool flag(df_vmap *w, uint32_t k, uint32_t flags)
{
    uint8_t *const at = &w->flags[k - w->from];
    const uint8_t was = *at;
    *at |= (uint8_t)flags;
    return *at != was;
}

/* Whether record k is BATCHED by its operands. A `next` is BATCHED by its state only;
 * when its new value is BATCHED, the state becomes so. */
static bool is_batched(df_vmap *w, uint32_t k, bool *changed)
{
    const df_node n = node_at(w, k);
    const bool first = df_vmap_is_batched(w, n.src[0].i);
    if (n.op == DF_OP_loop) return false;
    if (n.op == DF_OP_carry) {
        const uint32_t masked = df_vmap_flags(w, n.src[1].i) & DF_VMAP_MASKED;
        return first || masked || df_vmap_is_batched(w, k);
    }
    if (n.op == DF_OP_next && !first && df_vmap_is_batched(w, n.src[1].i)) {
        *changed = flag(w, n.src[0].i, DF_VMAP_BATCHED);
        return true;
    }
    if (n.op == DF_OP_proceed) {
        if (first) *changed |= flag(w, n.src[1].i, DF_VMAP_MASKED | DF_VMAP_MOVED);
        return false;
    }
    return first;
}

bool df_vmap_see_control(df_vmap *w, uint32_t k)
{
    const df_node n = node_at(w, k);
    bool changed = false;
    uint32_t flags = in_list(w, k) || n.op == DF_OP_final ? DF_VMAP_RULED : 0;
    for (uint32_t i = 0; i < n.n_src; i++)
        if (df_vmap_flags(w, n.src[i].i) & (DF_VMAP_BATCHED | DF_VMAP_MOVED))
            flags |= DF_VMAP_MOVED;
    if (is_batched(w, k, &changed)) flags |= DF_VMAP_BATCHED;
    if (n.op == DF_OP_carry || n.op == DF_OP_each) w->loop[k - w->from] = n.src[1].i;
    if (in_list(w, k)) w->loop[k - w->from] = loop_of(w, before(w, k));
    /* A loop has one list, so what is recorded again needs a loop of its own. */
    if (w->loop[k - w->from] != DF_BAD && flags & (DF_VMAP_BATCHED | DF_VMAP_MOVED))
        changed |= flag(w, w->loop[k - w->from], DF_VMAP_MOVED);
    return flag(w, k, flags) || changed;
}

/* ---- loops ---- */

uint32_t df_batch_carry(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const uint32_t on[2] = { batched & 1 ? src[0] : df_vmap_spread(w, src[0]), src[1] };
    if (on[0] == DF_BAD) return DF_BAD;
    return df_append(w->cx, DF_OP_carry, df_dtype_at(w->cx, k), 0, on, NULL, 0, NULL, w->site);
}

uint32_t df_batch_each(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const uint32_t on[2] = { df_vmap_move(w, src[0], 1, 0), src[1] };
    (void)batched;
    if (on[0] == DF_BAD) return DF_BAD;
    return df_append(w->cx, DF_OP_each, df_dtype_at(w->cx, k), 0, on, NULL, 0, NULL, w->site);
}

/* The new value of the state of `next` record k. test: for each example, whether its loop
 * still runs, or DF_BAD. */
static uint32_t next_value(df_vmap *w, uint32_t k, uint32_t test)
{
    const uint32_t state = operand(w, k, 0), value = operand(w, k, 1);
    if (!df_vmap_is_batched(w, k)) return df_vmap_now(w, value);
    if (test == DF_BAD) return df_vmap_for_each(w, value);
    const uint32_t on = df_vmap_lift(w, test, node_at(w, k).rank);
    return df_where(w->cx, on, df_vmap_for_each(w, value), df_vmap_now(w, state), w->site);
}

/* The value that record k of the list names, for all examples. */
static uint32_t list_value(df_vmap *w, uint32_t k, uint32_t test)
{
    const df_node n = node_at(w, k);
    if (n.op == DF_OP_next) return next_value(w, k, test);
    if (n.op == DF_OP_stack || test == DF_BAD) return df_vmap_now(w, n.src[0].i);
    return df_reduce(w->cx, DF_OP_any, test, 1, false, w->site);
}

static uint32_t append_list(df_vmap *w, uint32_t k)
{
    deft_ctx *const cx = w->cx;
    const df_node n = node_at(w, k);
    const uint32_t value = w->value[k - w->from], last = df_vmap_now(w, before(w, k));
    const deft_dtype t = (deft_dtype)n.dtype;
    df_shape row, all = { 0 };
    if (n.op == DF_OP_next) {
        const uint32_t src[3] = { df_vmap_now(w, n.src[0].i), value, last };
        return df_append(cx, DF_OP_next, t, 0, src, NULL, 0, NULL, w->site);
    }
    const uint32_t src[3] = { value, last, DF_BAD };
    if (n.op == DF_OP_proceed)
        return df_append(cx, DF_OP_proceed, t, 0, src, NULL, 0, NULL, w->site);
    df_rec_shape(&cx->rec, value, &row);
    all.rank = row.rank + 1;
    all.dim[0] = df_rec_extents(&cx->rec, k)[0];
    memcpy(all.dim + 1, row.dim, row.rank * sizeof *row.dim);
    return df_append(cx, DF_OP_stack, t, 0, src, NULL, 0, &all, w->site);
}

/* The last record of the list that contains record k. */
static uint32_t list_end(const df_vmap *w, uint32_t k)
{
    while (k + 1 < w->from + w->n && in_list(w, k + 1) && before(w, k + 1) == k) k++;
    return k;
}

/* Records a whole list again, when the walk is at its first record. */
uint32_t df_batch_list(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const uint32_t end = list_end(w, k);
    const uint32_t test = node_at(w, k).op == DF_OP_proceed && batched & 1 ? src[0] : DF_BAD;
    df_assert(node_at(w, k).op == DF_OP_proceed || before(w, k) == loop_of(w, k));
    for (uint32_t i = k; i <= end; i++)
        if ((w->value[i - w->from] = list_value(w, i, test)) == DF_BAD) return DF_BAD;
    for (uint32_t i = k; i <= end; i++)
        if ((w->now[i - w->from] = append_list(w, i)) == DF_BAD) return DF_BAD;
    return w->now[k - w->from];
}

static bool is_result(const df_vmap *w, uint32_t k, uint32_t end)
{
    return k < w->from + w->n && node_at(w, k).op == DF_OP_final && operand(w, k, 1) == end;
}

/* Records all needed results of a loop, when the walk is at the first one. After that,
 * the examples are moved before the iterations of rows. */
uint32_t df_batch_final(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    deft_ctx *const cx = w->cx;
    const uint32_t end = operand(w, k, 1);
    (void)src, (void)batched;
    for (uint32_t i = k; is_result(w, i, end); i++) {
        if (!(df_vmap_flags(w, i) & DF_VMAP_NEEDED)) continue;
        const uint32_t on[2] = { df_vmap_now(w, operand(w, i, 0)), df_vmap_now(w, end) };
        w->now[i - w->from] =
            df_append(cx, DF_OP_final, df_dtype_at(cx, i), 0, on, NULL, 0, NULL, w->site);
        if (w->now[i - w->from] == DF_BAD) return DF_BAD;
        cx->finals++;
    }
    for (uint32_t i = k; is_result(w, i, end); i++) {
        if (!df_vmap_is_batched(w, i) || node_at(w, operand(w, i, 0)).op != DF_OP_stack) continue;
        w->now[i - w->from] = df_vmap_move(w, w->now[i - w->from], 0, 1);
        if (w->now[i - w->from] == DF_BAD) return DF_BAD;
    }
    return w->now[k - w->from];
}

/* ---- branches ---- */

uint32_t df_batch_cond(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const deft_dtype t = df_dtype_at(w->cx, k);
    if (!(batched & 1)) {
        const uint32_t on[3] = { src[0], batched & 2 ? src[1] : df_vmap_spread(w, src[1]),
                                 batched & 4 ? src[2] : df_vmap_spread(w, src[2]) };
        if (on[1] == DF_BAD || on[2] == DF_BAD) return DF_BAD;
        return df_append(w->cx, DF_OP_cond, t, 0, on, NULL, 0, NULL, w->site);
    }
    return df_where(w->cx, df_vmap_lift(w, src[0], node_at(w, k).rank), src[1], src[2], w->site);
}
