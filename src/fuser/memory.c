/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers and regions. A buffer lives from the first launch that writes it to the last that reads
 * it; two temporaries whose lives do not meet share a region of the step's arena, whose size is the
 * larger of what they need at run time. Regions are handed out in order of first launch, the best
 * fitting free one at the sizes at hand.
 */
#include "fuser/fuse.h"

#define MAX_TRIED 64 /* free regions looked at for a fit */

static uint32_t add_buf(pass *p, df_plan_buf b)
{
    if (!df_vec_push(p->mem, &p->bufs, b)) p->st = df_fail_mem(p->diag, "fuser", sizeof b);
    return p->st == DEFT_OK ? (uint32_t)p->bufs.n - 1 : 0;
}

uint32_t df_fuse_place_buf(pass *p, uint32_t at)
{
    place *const q = &p->places.at[at];
    if (q->buf != DF_NONE) return q->buf;
    const uint32_t kind = q->kind == PLACE_ROOT   ? DF_BUF_ROOT
                          : q->kind == PLACE_INTO ? DF_BUF_INTO
                                                  : DF_BUF_TEMP;
    const df_slot numel = df_fuse_numel(p, q->node);
    q->buf = add_buf(p, (df_plan_buf){ .kind = kind,
                                       .index = kind == DF_BUF_TEMP ? DF_NONE : q->index,
                                       .dtype = (deft_dtype)node_of(p, q->node)->dtype,
                                       .numel = numel,
                                       .donor = q->donor,
                                       .keep = q->keep,
                                       .first = q->first,
                                       .last = q->last });
    return q->buf;
}

uint32_t df_fuse_input_buf(pass *p, uint32_t input)
{
    if (p->in_buf[input] != DF_NONE) return p->in_buf[input];
    const uint32_t node = p->t->inputs[input].node;
    return p->in_buf[input] =
               add_buf(p, (df_plan_buf){ .kind = DF_BUF_INPUT,
                                         .index = input,
                                         .dtype = (deft_dtype)node_of(p, node)->dtype,
                                         .numel = df_fuse_numel(p, node),
                                         .donor = DF_NONE });
}

static void lives_at(place *q, uint32_t launch)
{
    if (launch < q->first) q->first = launch;
    if (launch > q->last) q->last = launch;
}

static void live_ranges(pass *p)
{
    for (uint32_t i = 0; i < p->places.n; i++) {
        p->places.at[i].first = UINT32_MAX;
        p->places.at[i].last = 0;
    }
    for (uint32_t v = 0; v < p->vals.n; v++) {
        const val *const w = &p->vals.at[v];
        place *const q = &p->places.at[w->place];
        lives_at(q, p->groups.at[w->group].level);
        for (uint32_t f = w->frames; f != DF_NONE; f = p->groups.at[f].next_frame)
            lives_at(q, p->groups.at[f].level);
        for (uint32_t l = w->readers; l != DF_NONE; l = p->loads.at[l].next)
            lives_at(q, p->groups.at[p->loads.at[l].group].level);
    }
}

deft_status df_fuse_memory(pass *p)
{
    p->in_buf =
        df_arena_alloc(&p->tmp, (p->t->n_inputs + 1) * sizeof *p->in_buf, _Alignof(uint32_t));
    if (!p->in_buf) return df_fail_mem(p->diag, "fuser", p->t->n_inputs * sizeof *p->in_buf);
    for (uint32_t i = 0; i <= p->t->n_inputs; i++) p->in_buf[i] = DF_NONE;
    live_ranges(p);
    return p->st;
}

/* ---- regions: after the bodies have named the buffers ---- */

static int64_t bytes_now(const pass *p, const df_plan_buf *b)
{
    return p->now.at[b->numel] * (int64_t)deft_dtype_size(b->dtype);
}

static df_slot bytes_slot(pass *p, const df_plan_buf *b)
{
    return df_fuse_mul(p, b->numel, df_fuse_const(p, (int64_t)deft_dtype_size(b->dtype)));
}

/* The free region that fits best: the smallest that is large enough, else the largest. */
static size_t best_fit(const pass *p, int64_t bytes)
{
    const size_t from = p->stack.n > MAX_TRIED ? p->stack.n - MAX_TRIED : 0;
    size_t best = from;
    for (size_t i = from; i < p->stack.n; i++) {
        const int64_t a = p->now.at[p->regions.at[p->stack.at[i]].bytes];
        const int64_t b = p->now.at[p->regions.at[p->stack.at[best]].bytes];
        if (a >= bytes ? b < bytes || a < b : b < bytes && a > b) best = i;
    }
    return best;
}

static void take_region(pass *p, df_plan_buf *b)
{
    const df_slot bytes = bytes_slot(p, b);
    if (p->st != DEFT_OK) return;
    if (p->stack.n > 0) {
        const size_t i = best_fit(p, bytes_now(p, b));
        b->index = p->stack.at[i];
        p->stack.at[i] = p->stack.at[--p->stack.n];
        df_region *const r = &p->regions.at[b->index];
        const df_slot larger = df_fuse_max(p, r->bytes, bytes);
        p->regions.at[b->index].bytes = larger;
        return;
    }
    b->index = (uint32_t)p->regions.n;
    if (!df_vec_push(p->mem, &p->regions, ((df_region){ bytes })))
        p->st = df_fail_mem(p->diag, "fuser", sizeof(df_region));
}

/* Buffers by a launch, as lists: head per launch, next per buffer. */
static deft_status by_launch(pass *p, bool last, uint32_t **head_out, uint32_t **next_out)
{
    uint32_t *const head_of = df_arena_alloc(&p->tmp, (p->n_levels + 1) * sizeof *head_of, 4);
    uint32_t *const next = df_arena_alloc(&p->tmp, (p->bufs.n + 1) * sizeof *next, 4);
    if (!head_of || !next) return df_fail_mem(p->diag, "fuser", p->bufs.n * sizeof *next);
    for (uint32_t l = 0; l <= p->n_levels; l++) head_of[l] = DF_NONE;
    for (uint32_t b = (uint32_t)p->bufs.n; b-- > 0;) {
        const df_plan_buf *const w = &p->bufs.at[b];
        if (w->kind != DF_BUF_TEMP) continue;
        const uint32_t at = last ? w->last : w->first;
        next[b] = head_of[at];
        head_of[at] = b;
    }
    *head_out = head_of;
    *next_out = next;
    return DEFT_OK;
}

deft_status df_fuse_regions(pass *p)
{
    uint32_t *begin, *begin_next, *end, *end_next;
    deft_status st = by_launch(p, false, &begin, &begin_next);
    if (st == DEFT_OK) st = by_launch(p, true, &end, &end_next);
    if (st != DEFT_OK) return st;
    p->stack.n = 0; /* free regions */
    for (uint32_t l = 0; l < p->n_levels && p->st == DEFT_OK; l++) {
        for (uint32_t b = begin[l]; b != DF_NONE; b = begin_next[b]) take_region(p, &p->bufs.at[b]);
        for (uint32_t b = end[l]; b != DF_NONE && p->st == DEFT_OK; b = end_next[b])
            if (!df_vec_push(p->mem, &p->stack, p->bufs.at[b].index))
                p->st = df_fail_mem(p->diag, "fuser", sizeof b);
    }
    return p->st;
}
