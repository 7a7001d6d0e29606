/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which compile threads take kernels.
 *
 * O0 code comes first, because kernels without code are interpreted or waited for. It is made in
 * the order of the plan, in which the kernels will be launched. O2 code is made for the kernel with
 * the most work first.
 *
 * Kernels of one plan share a module, which is a third cheaper than a module for each. But no
 * kernel has code before all of its module have. So a module of O2 code ends when it has three
 * quarters of the work that waits: a kernel that dominates a step does not wait for its
 * neighbours. With several threads, a module has no more kernels than the share of one of them.
 *
 * Last come kernels that were launched often enough for O2 code, but only before they had code, and
 * not since. This process may never need that code. A later process loads O0 code before the first
 * launch, and would then ask for O2 code. So an idle thread makes it here, when code is kept.
 */
#include "runtime/tiers/tier_store.h"

void df_tier_queue_add(df_tier_queue *q, entry *e, df_opt level)
{
    entry **at = &q->head;
    if (q->head && (level == DF_OPT_O0 || e->work <= q->tail->work))
        at = &q->tail->next[level];
    else
        while (*at && (*at)->work >= e->work) at = &(*at)->next[level];
    e->next[level] = *at;
    *at = e;
    if (!e->next[level]) q->tail = e;
    q->n++;
}

/* Takes *at out of the queue. `before` is the entry before it, or NULL. */
static entry *take_out(df_tier_queue *q, df_opt level, entry **at, entry *before)
{
    entry *const e = *at;
    *at = e->next[level];
    if (q->tail == e) q->tail = before;
    q->n--;
    return e;
}

uint32_t df_tier_queue_take(df_tier_queue *q, df_opt level, uint32_t n_threads,
                            entry *out[DF_MAX_MODULE])
{
    uint32_t n = 0;
    double waiting = 0, taken = 0;
    entry *before = NULL;
    for (const entry *e = q->head; e; e = e->next[level]) waiting += e->work;
    uint32_t most = (q->n + n_threads - 1) / n_threads;
    if (most < DF_LEAST_MODULE) most = DF_LEAST_MODULE;
    if (most > DF_MAX_MODULE) most = DF_MAX_MODULE;
    for (entry **at = &q->head; *at && n < most;) {
        if (n > 0 && (*at)->batch != out[0]->batch) {
            before = *at;
            at = &before->next[level];
            continue;
        }
        out[n] = take_out(q, level, at, before);
        taken += out[n++]->work;
        if (level == DF_OPT_O2 && taken > 0 && taken >= 0.75 * waiting) break;
    }
    return n;
}

/* ---- idle threads ---- */

void df_tier_add_idle(df_tiers *t, entry *e)
{
    if (!e->wants_o2 || !e->has_code[DF_OPT_O0] || df_exec_state(&e->exec, DF_OPT_O2) != STATE_NONE)
        return;
    df_counted_ref(&e->ref);
    e->next_idle = NULL;
    if (t->first_idle)
        t->last_idle->next_idle = e;
    else
        t->first_idle = e;
    t->last_idle = e;
    t->n_pending++;
}

void df_tier_want_o2(df_tiers *t, entry *e)
{
    if (e->wants_o2 || !t->compiler || !t->compiler->recall) return;
    e->wants_o2 = true;
    df_tier_add_idle(t, e);
}

entry *df_tier_take_idle(df_tiers *t)
{
    entry *const e = t->first_idle;
    if (e) t->first_idle = e->next_idle;
    return e;
}
