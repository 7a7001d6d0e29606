/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors whose value can never be computed.
 *
 * A record whose indices are out of range can never be computed, because values do not
 * change. A tensor that needs such a record would make every later step fail that
 * computes what outlives the step. So such a tensor loses its record when the fault is
 * found. The sentence is kept for calls that use the tensor again.
 *
 * Which branch a cond takes is known only after a run. So a tensor that needs such a
 * record only in a branch is computed by itself, and loses its record when the same
 * record fails again.
 */
#include "lazy/run/submit.h"
#include "lazy/run/run.h"

#include <string.h>

enum {
    TAINT_SURE = 1, /* the record cannot be computed */
    TAINT_TAKEN = 2 /* it cannot be computed when a cond takes a certain branch */
};

/* A search for the records that need the record `fault`, which cannot be computed. */
typedef struct taint {
    deft_ctx *cx;
    uint8_t *is;    /* per record: TAINT_*, or 0 */
    uint32_t fault; /* the record that cannot be computed */
    df_compute_fn compute;
} taint;

/* Marks the records from `from` on that use tainted ones. */
static void spread(taint *s, uint32_t from)
{
    const df_rec *const r = &s->cx->rec;
    for (uint32_t i = from; i < r->n; i++)
        for (uint32_t k = 0; k < 3 && s->is[i] != TAINT_SURE; k++) {
            const uint32_t src = r->nodes[i].src[k].i;
            if (src >= i || !s->is[src]) continue;
            const bool in_branch = k > 0 && r->nodes[i].op == DF_OP_cond;
            s->is[i] = in_branch || s->is[src] == TAINT_TAKEN ? TAINT_TAKEN : TAINT_SURE;
        }
}

/* Whether computing `node` alone finds the fault. Nothing else may be in progress.
 * Returns false when there is no answer; then the next cut that fails asks again. */
static bool needs_fault(const taint *s, uint32_t node)
{
    deft_ctx *const cx = s->cx;
    const df_diag said = cx->diag;
    df_want w = { .node = node };
    cx->trying = true;
    cx->tried_fault = DF_NONE;
    const deft_status st = s->compute(cx, &w, 1);
    df_value_drop(cx, &w.result); /* the record holds a reference of its own */
    cx->trying = false;
    cx->diag = said;
    if (st == DEFT_E_INTERRUPTED) atomic_store(&cx->interrupted, 1); /* the next call sees it */
    return st != DEFT_OK && cx->tried_fault == s->fault;
}

/* Whether `node` can never be computed. A tensor that belongs to the open step is not
 * computed to find out, because the step may be ending. */
static bool is_lost(taint *s, uint32_t node, bool is_outer)
{
    deft_ctx *const cx = s->cx;
    if (!s->is[node] || cx->rec.val[node]) return false;
    if (s->is[node] == TAINT_SURE) return true;
    if (cx->recording || (cx->step_at && !is_outer)) return false;
    if (!needs_fault(s, node)) return false;
    s->is[node] = TAINT_SURE;
    spread(s, node + 1);
    return true;
}

static void lose_one(deft_ctx *cx, deft_tensor *t, void *user)
{
    if (t->value || t->epoch != cx->epoch || t->flags & (DF_HANDLE_UNDO | DF_HANDLE_WEAK) ||
        !is_lost(user, t->node, df_is_outer(cx, t)))
        return;
    df_handle_unbind(cx, t);
    t->failure = DF_FAILURE_VALUE;
    t->node = cx->n_faults;
}

/* Cancels writes into wrapped memory that can never be computed. The tensor keeps the
 * values that the memory holds. */
static void lose_writes(deft_ctx *cx, taint *s)
{
    for (size_t i = cx->muts.n; i-- > 0;) {
        df_mut *const m = &cx->muts.at[i];
        if (m->in_step || !m->now.due || m->now.what || !is_lost(s, m->now.node, true)) continue;
        m->now = (df_write){ 0 };
        if (m->t) {
            df_handle_unbind(cx, m->t);
            m->t->value = df_value_ref(m->value);
        } else {
            df_value_drop(cx, &m->value);
            *m = cx->muts.at[--cx->muts.n];
        }
    }
}

static void lose(deft_ctx *cx, uint32_t k, df_compute_fn compute)
{
    taint s = { .cx = cx, .is = df_mem_zalloc(cx->mem, cx->rec.n), .fault = k, .compute = compute };
    if (!s.is) return; /* without memory: the next cut finds the fault again */
    s.is[k] = TAINT_SURE;
    spread(&s, k + 1);
    lose_writes(cx, &s);
    df_each_outer(cx, cx->depth + 1, lose_one, &s);
    df_mem_free(cx->mem, s.is, cx->rec.n);
}

void df_lose(deft_ctx *cx, uint32_t k, const df_diag *d, df_compute_fn compute)
{
    /* no call needs it; a call that does will find the fault again */
    if (cx->budget_flushing) return;
    if (cx->trying) {
        cx->tried_fault = k;
        return;
    }
    cx->faults[++cx->n_faults % DF_FAULTS] = *d;
    cx->fault_record = k;
    cx->fault_epoch = cx->epoch;
    lose(cx, k, compute);
}

void df_lose_again(deft_ctx *cx, df_compute_fn compute)
{
    if (cx->n_faults && cx->fault_epoch == cx->epoch && cx->fault_record < cx->rec.n)
        lose(cx, cx->fault_record, compute);
    cx->fault_epoch = 0; /* another record may get this index */
}
