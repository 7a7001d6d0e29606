/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk of reverse mode.
 *
 * First a forward pass finds the records that depend, through floats, on tensors whose
 * gradients are wanted. Only those records get gradients, so nothing else is recorded.
 * Then the walk goes backwards from the last record that has a gradient. New records come
 * after all records of the walk and are not met. The walk gets the table of rules from
 * its caller (grad.c), so that the rules can start walks.
 */
#include "lazy/grad/grad.h"

#include <string.h>

bool df_grad_none(df_grad *w, uint32_t k, uint32_t g)
{
    (void)w, (void)k, (void)g;
    df_unreachable();
}

static size_t space_size(uint32_t n)
{
    return n * (sizeof(uint32_t) + 1) + 1;
}

bool df_grad_init(df_grad *w, deft_ctx *cx, const char *what, uint32_t from,
                  const df_grad_rules *rules)
{
    const uint32_t n = cx->rec.n - from;
    *w = (df_grad){

        .cx = cx,
        .rules = rules,
        .what = what,
        .from = from,
        .end = DF_BAD,
        .n_mistakes = df_mistakes(cx)
    };
    w->sum = df_mem_alloc(cx->mem, space_size(n));
    if (!w->sum) {
        df_error(cx, DEFT_E_MEMORY, "%s: no memory for the gradients of %u records", what, n);
        return false;
    }
    w->n = n;
    w->flags = (uint8_t *)(w->sum + n);
    memset(w->sum, 0xff, n * sizeof *w->sum);
    memset(w->flags, 0, n);
    w->mixed = cx->mixed;
    cx->mixed = 0; /* gradients use the dtypes of the forward pass */
    return true;
}

void df_grad_finish(df_grad *w)
{
    if (w->sum) {
        w->cx->mixed = w->mixed;
        df_mem_free(w->cx->mem, w->sum, space_size(w->n));
        df_vec_finish(w->cx->mem, &w->piece);
    }
    *w = (df_grad){ .cx = w->cx };
}

void df_grad_with(df_grad *w, uint32_t k)
{
    if (k - w->from < w->n) w->flags[k - w->from] |= DF_GRAD_ACTIVE | DF_GRAD_ASKED;
}

/* Whether a record in the list of the final record's loop is active. A state may come to
 * depend on a wanted tensor in a later iteration than the recorded one. So all results of
 * a loop are active when one record of its list is. */
static bool is_final_active(df_grad *w, uint32_t k)
{
    const df_rec *const r = &w->cx->rec;
    const uint32_t end = df_grad_src(w, k, 1);
    if (w->end == end) return w->end_is_active;
    w->end = end;
    w->end_is_active = false;
    for (uint32_t i = end; r->nodes[i].op == DF_OP_next || r->nodes[i].op == DF_OP_stack;
         i = r->nodes[i].src[r->nodes[i].n_src - 1].i)
        w->end_is_active |= df_grad_is_active(w, i);
    return w->end_is_active;
}

static bool is_record_active(df_grad *w, uint32_t k)
{
    const df_node *const n = &w->cx->rec.nodes[k];
    if (!df_is_float((deft_dtype)n->dtype) || w->rules->of_op[n->op] == df_grad_none) return false;
    if (n->op == DF_OP_final) return is_final_active(w, k);
    for (uint32_t i = 0; i < n->n_src; i++)
        if (df_grad_is_active(w, n->src[i].i)) return true;
    return false;
}

static void find_annotated(df_grad *w)
{
    for (size_t i = 0; i < w->cx->grad_annotations.n; i++) {
        const uint32_t k = w->cx->grad_annotations.at[i].record;
        if (k - w->from < w->n) w->flags[k - w->from] |= DF_GRAD_ANNOTATED;
    }
}

static bool annotation_is_active(const df_grad *w, uint32_t k, bool is_active)
{
    for (size_t i = 0; i < w->cx->grad_annotations.n; i++) {
        const df_grad_annotation *const m = &w->cx->grad_annotations.at[i];
        if (m->record != k || m->kind == DF_ANNOTATION_HOOK || m->kind == DF_ANNOTATION_BATCH ||
            m->kind == DF_ANNOTATION_BRANCHES)
            continue;
        bool any = false;
        if (m->kind == DF_ANNOTATION_CUSTOM)
            for (uint32_t j = 0; j < m->custom->n_in; j++)
                any |= df_grad_is_active(w, m->custom->record[j]);
        return any;
    }
    return is_active;
}

/* Whether record k is DF_GRAD_CARED. The flags of all earlier records have been computed. */
static bool is_cared_for(const df_grad *w, uint32_t k)
{
    const df_node *const n = &w->cx->rec.nodes[k];
    if (w->flags[k - w->from] & (DF_GRAD_ASKED | DF_GRAD_ANNOTATED)) return true;
    if (df_op_infos[n->op].cls != DF_CLASS_view) return false;
    const uint32_t at = n->src[0].i - w->from;
    return at < w->n && w->flags[at] & DF_GRAD_CARED;
}

/* The record that gets the gradient of record k in place of the operand of k. DF_BAD: none. */
static uint32_t owner_of_part(const df_grad *w, uint32_t k)
{
    const df_part_read *const r = df_part_read_of(w->cx, k);
    const uint32_t at = r ? r->owner - w->from : DF_BAD;
    return at < w->n && w->flags[at] & DF_GRAD_CARED ? r->owner : DF_BAD;
}

void df_grad_trace(df_grad *w)
{
    const bool has_parts = w->cx->part_reads.n != 0;
    find_annotated(w);
    for (uint32_t i = 0; i < w->n; i++) {
        bool active = is_record_active(w, w->from + i);
        const uint32_t owner = has_parts ? owner_of_part(w, w->from + i) : DF_BAD;
        if (owner != DF_BAD) {
            active = df_grad_is_active(w, owner);
            w->flags[i] |= DF_GRAD_PART;
        }
        if (w->flags[i] & DF_GRAD_KEPT) active = df_grad_is_active(w, w->from + i - 1);
        if (has_parts && is_cared_for(w, w->from + i)) w->flags[i] |= DF_GRAD_CARED;
        if (w->flags[i] & DF_GRAD_ANNOTATED) active = annotation_is_active(w, w->from + i, active);
        if (active) w->flags[i] |= DF_GRAD_ACTIVE;
        if (df_grad_is_joined(w, w->from + i)) w->flags[i] |= DF_GRAD_JOINED;
    }
}

/* g summed over the axes along which s was broadcast to it. */
static uint32_t unbroadcast(df_grad *w, uint32_t g, const df_shape *s)
{
    deft_ctx *const cx = w->cx;
    df_shape have;
    df_rec_shape(&cx->rec, g, &have);
    const uint32_t more = have.rank - s->rank;
    uint32_t gone = (1u << more) - 1, ones = 0;
    for (uint32_t i = 0; i < s->rank; i++)
        if (s->dim[i] == 1 && have.dim[i + more] != 1) ones |= 1u << i;
    if (!gone && !ones) return g;
    gone |= ones << more;
    const bool keep = more == 0;
    g = df_reduce(cx, DF_OP_sum, g, gone, keep, w->site);
    if (keep || !ones || g == DF_BAD) return g;
    return df_append(cx, DF_OP_unsqueeze, df_dtype_at(cx, g), ones, &g, NULL, 0, NULL, w->site);
}

static bool has_failed(const df_grad *w)
{
    return df_mistakes(w->cx) != w->n_mistakes;
}

bool df_grad_give(df_grad *w, uint32_t k, uint32_t g)
{
    deft_ctx *const cx = w->cx;
    df_shape s;
    if (g == DF_BAD) return false;
    if (!df_grad_is_active(w, k)) return true;
    df_rec_shape(&cx->rec, k, &s);
    g = df_to(cx, unbroadcast(w, g, &s), df_dtype_at(cx, k), w->site);
    const uint32_t so_far = df_grad_of(w, k);
    uint32_t *const sum = &w->sum[k - w->from];
    *sum = so_far == DF_BAD || g == DF_BAD ? g : df_map2(cx, DF_OP_add, so_far, g, w->site);
    return *sum != DF_BAD && !has_failed(w);
}

/* Gives g, the gradient of record k, to the complex record of which k is a part. */
static bool give_part(df_grad *w, uint32_t k, uint32_t g)
{
    deft_ctx *const cx = w->cx;
    const df_part_read r = *df_part_read_of(cx, k);
    int64_t start[DEFT_MAX_RANK] = { 0 }, step[DEFT_MAX_RANK];
    df_shape s;
    df_rec_shape(&cx->rec, r.owner, &s);
    const uint32_t last = s.rank - 1;
    for (uint32_t i = 0; i < s.rank; i++) step[i] = 1;
    start[last] = r.which;
    s.dim[last] = 1;
    const uint32_t part = df_slice_node(cx, r.owner, start, step, &s, w->site);
    if (part == DF_BAD) return false;
    g = df_append(cx, DF_OP_unsqueeze, df_dtype_at(cx, g), 1u << last, &g, NULL, 0, NULL, w->site);
    return g != DF_BAD && w->rules->of_op[DF_OP_slice](w, part, g);
}

bool df_grad_walk(df_grad *w)
{
    deft_ctx *const cx = w->cx;
    for (uint32_t k = w->from + w->n; k-- > w->from;) {
        const uint8_t flags = w->flags[k - w->from];
        if (df_grad_of(w, k) == DF_BAD) {
            if (has_failed(w)) return false;
            continue;
        }
        bool goes_on = true;
        w->site = df_rec_site(cx, k);
        if (flags & DF_GRAD_ANNOTATED && !w->rules->meet_annotations(w, k, &goes_on)) return false;
        if (flags & DF_GRAD_PART) {
            if (!give_part(w, k, df_grad_of(w, k))) return false;
            continue;
        }
        if (flags & DF_GRAD_KEPT) {
            if (goes_on && !df_grad_give(w, k - 1, df_grad_of(w, k))) return false;
            continue;
        }
        const df_grad_rule rule = w->rules->of_op[cx->rec.nodes[k].op];
        if (goes_on && rule != df_grad_none && !rule(w, k, df_grad_of(w, k))) return false;
    }
    return true;
}
