/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes what is pending when a recording call finds that a budget is used up. Forgets records
 * then, and when a scope ends while others are open or tensors are pending.
 *
 * All budgets depend on one comparison that each recording call makes: the number of
 * records with look_at. With only a budget of records, look_at is the budget. With a
 * budget of bytes or time, look_at is the number of records at which to check more
 * closely. The bytes that only pending records hold are found by visiting their values.
 * That is done only when the bytes of all values to which records refer, which are
 * counted all the time, exceed the budget.
 */
#include "lazy/core/budget.h"

#include <stdio.h>

#include "lazy/core/flight.h"
#include "lazy/core/history.h"
#include "lazy/run/collect.h"
#include "lazy/run/materialize.h"
#include "lazy/log/why.h"
#include "runtime/os.h"

enum { MANY_RECORDS = 1 << 12, FEW_RECORDS = 1 << 9, MUCH_MEMORY = 16 << 20 };

/* Bytes of memory of the values to which only records refer. */
static uint64_t held_by_records(deft_ctx *cx)
{
    uint64_t sum = 0;
    df_new_cut_serial(cx);
    for (size_t i = 1; i < cx->rec.vals.n; i++) {
        df_value *const v = cx->rec.vals.at[i];
        if (!v || v->cut == cx->cut_serial) continue;
        v->cut = cx->cut_serial; /* several records of one value count once */
        if (v->refs == v->in_records) sum += df_budget_bytes(v);
    }
    return sum;
}

/* Finds the first budget that is used up, and describes it in *e. Returns false when
 * there is none. */
static bool is_used_up(deft_ctx *cx, df_event *e)
{
    const df_budget *const b = &cx->budget;
    const uint32_t n = df_n_pending(cx);
    const uintptr_t site = cx->rec.n ? df_rec_site(cx, cx->rec.n - 1) : 0;
    char want[64], found[64];
    if (n >= b->max_nodes) {
        snprintf(want, sizeof want, "%u", b->max_nodes);
        snprintf(found, sizeof found, "%u", n);
        df_event_make(e, DF_WHY_cut_nodes, site, "pending records", want, found);
        return true;
    }
    if (b->max_bytes && cx->pinned > b->max_bytes) {
        const uint64_t all = held_by_records(cx);
        const uint64_t held = all > cx->held_left ? all - cx->held_left : 0;
        snprintf(want, sizeof want, "%llu bytes", (unsigned long long)b->max_bytes);
        snprintf(found, sizeof found, "%llu bytes in %u records", (unsigned long long)held, n);
        df_event_make(e, DF_WHY_cut_bytes, site, "what only pending records hold", want, found);
        if (held > b->max_bytes) return true;
    }
    if (b->max_latency_ns && cx->step_at) {
        const uint64_t ns = df_os_now_ns() - cx->since_ns;
        snprintf(want, sizeof want, "%llu ns", (unsigned long long)b->max_latency_ns);
        snprintf(found, sizeof found, "%llu ns and %u records", (unsigned long long)ns, n);
        df_event_make(e, DF_WHY_cut_latency, site, "recording", want, found);
        if (ns > b->max_latency_ns) return true;
    }
    return false;
}

/* Whether to forget records after the cut: when many records are left, twice as many as
 * the last time, or when memory is short. As long as nothing is forgotten, a step that is
 * recorded again finds its cached cuts. */
static bool is_worth_it(deft_ctx *cx, const df_event *e)
{
    return e->reason == DF_WHY_cut_bytes || cx->rec.n / 2 > MANY_RECORDS + cx->n_left ||
           (cx->pinned > MUCH_MEMORY && held_by_records(cx) / 2 > MUCH_MEMORY + cx->held_left);
}

static void forget(deft_ctx *cx)
{
    df_forget(cx);
    cx->n_left = cx->rec.n;
    cx->held_left = held_by_records(cx);
    cx->cuts_left = cx->stats.cuts;
    cx->vals_seen = (uint32_t)cx->rec.vals.n;
}

/* The number of records that are left and have no value. */
static uint32_t n_without_value(const deft_ctx *cx)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < cx->rec.n; k++)
        n += !cx->rec.val[k] && cx->rec.nodes[k].op != DF_OP_input;
    return n;
}

/* Budgets count from the current records on, of which so many are pending. */
static void count_from_here(deft_ctx *cx, uint32_t n_pending)
{
    cx->n_before = cx->rec.n - n_pending;
    df_budget_look_at(cx, df_budget_is_close(&cx->budget) ? cx->rec.n + DF_LOOK_EVERY
                                                          : df_budget_last_look(cx));
}

/* Whether values of records hold much memory that nothing but records refers to. Values are visited
 * when their number has grown by half, so that a value is visited twice on average. */
static bool holds_much(deft_ctx *cx)
{
    const uint32_t n = (uint32_t)cx->rec.vals.n;
    if (cx->pinned / 2 <= MUCH_MEMORY + cx->held_left || n - n / 3 <= cx->vals_seen) return false;
    cx->vals_seen = n;
    return held_by_records(cx) / 2 > MUCH_MEMORY + cx->held_left;
}

/* Each cut visits the records back to the oldest one that it needs. So a loop of cuts within an
 * open scope, or after a tensor that stays pending, would take time that grows with the square of
 * its turns, and its values would stay. Records of an epoch with few cuts stay: when they are
 * recorded again, they find their cached cuts. */
void df_forget_ended(deft_ctx *cx)
{
    const bool are_many =
        cx->stats.cuts - cx->cuts_left > DF_MAX_CUTS && cx->rec.n / 2 > FEW_RECORDS + cx->n_left;
    if (DF_LIKELY(!are_many && cx->pinned / 2 <= MUCH_MEMORY + cx->held_left)) return;
    if (cx->n_walks || cx->recording || df_in_flight(cx) != DF_FLIGHT_NONE) return;
    if (!are_many && !holds_much(cx)) return;
    forget(cx);
    count_from_here(cx, df_needs_cut(cx) ? n_without_value(cx) : 0);
}

bool df_make_room(deft_ctx *cx)
{
    df_event e;
    if (cx->n_walks || !is_used_up(cx, &e)) {
        /* Visiting many values costs time, so the next check waits for more records. */
        df_budget_look_at(cx, cx->rec.n + DF_LOOK_EVERY + (uint32_t)(cx->rec.vals.n / 4));
        return true;
    }
    df_why_log(cx, &e);
    const char *const act = cx->act;
    const uintptr_t act_site = cx->act_site;
    cx->act = "cut";
    cx->act_site = e.site;
    const deft_status st = df_budget_flush(cx);
    cx->act = act;
    cx->act_site = act_site;
    if (st == DEFT_OK) {
        if (is_worth_it(cx, &e)) forget(cx);
        count_from_here(cx, 0);
    }
    if (cx->budget.max_latency_ns) cx->since_ns = df_os_now_ns();
    if (st == DEFT_OK) return true;
    df_error_keep(cx, st);
    return false;
}
