/* SPDX-License-Identifier: Apache-2.0
 *
 * Recording records again, with their annotations.
 */
#include "lazy/grad/grad.h"

uint32_t df_grad_placeholder(deft_ctx *cx, uint32_t a, uintptr_t site)
{
    if (a == DF_BAD) return DF_BAD;
    return df_append(cx, DF_OP_unsqueeze, df_dtype_at(cx, a), 0, &a, NULL, 0, NULL, site);
}

/* The copy of record k; DF_BAD: it has none. */
static uint32_t again(const df_replay *p, uint32_t k)
{
    return k >= p->low && k < p->high ? p->map[k - p->low] : DF_BAD;
}

uint32_t df_grad_now(const df_replay *p, uint32_t k)
{
    const df_captures *const c = p->outer;
    if (again(p, k) != DF_BAD) return again(p, k);
    const uint32_t slot = c && k - c->w->from < c->w->n ? c->slot[k - c->w->from] : 0;
    return slot ? p->local[slot - 1] : k;
}

/* The first copy of the records from k on. At least one of them has a copy. */
static uint32_t begins_at(const df_replay *p, uint32_t k)
{
    df_assert(k >= p->low);
    while (k < p->high && p->map[k - p->low] == DF_BAD) k++;
    df_assert(k < p->high);
    return p->map[k - p->low];
}

/* The copy of the first record of annotation m that has one; DF_BAD: none. The results of
 * a cond are adjacent records, and perhaps not all have copies. */
static uint32_t marked(const df_replay *p, const df_grad_annotation *m)
{
    const df_node *const nodes = p->cx->rec.nodes;
    uint32_t k = m->record;
    if (m->kind == DF_ANNOTATION_BRANCHES && k >= p->low)
        while (k + 1 < p->high && again(p, k) == DF_BAD && nodes[k + 1].op == DF_OP_cond) k++;
    return again(p, k);
}

static df_custom *copy_custom(const df_replay *p, const df_custom *c, bool is_batched)
{
    deft_ctx *const cx = p->cx;
    const uint32_t n = c->n_in + c->n_out;
    df_custom *const to = df_mem_alloc(cx->mem, df_custom_size(n));
    if (!to) return df_error(cx, DEFT_E_MEMORY, "no memory for a custom gradient again");
    *to = *c;
    if (to->held) to->held->refs++;
    if (c->loop != DF_NONE) to->loop = c->loop == p->loop ? p->around : df_grad_now(p, c->loop);
    df_assert(!is_batched || p->map_each);
    if (is_batched) {
        to->batch_of = c;
        to->map_each = p->map_each;
    }
    for (uint32_t i = 0; i < n; i++) {
        to->record[i] = df_grad_now(p, c->record[i]);
        df_custom_faces(to)[i] = df_custom_faces(c)[i];
    }
    to->next = cx->customs;
    cx->customs = to;
    return to;
}

static bool copy_part_reads(const df_replay *p)
{
    deft_ctx *const cx = p->cx;
    for (uint32_t k = p->low; k < p->high && cx->part_reads.n; k++) {
        const df_part_read *const r = df_part_read_of(cx, k);
        const uint32_t record = again(p, k);
        if (!r || record == DF_BAD) continue;
        const df_part_read copy = { record, df_grad_now(p, r->owner), r->which };
        if (!df_part_read_add(cx, copy)) return false;
    }
    return true;
}

/* The results of a custom function are adjacent records, and so are their annotations. */
bool df_grad_copy_annotations(const df_replay *p)
{
    deft_ctx *const cx = p->cx;
    const df_custom *from = NULL;
    df_custom *to = NULL;
    const size_t n = cx->grad_annotations.n;
    for (size_t i = 0; i < n; i++) {
        df_grad_annotation m = cx->grad_annotations.at[i];
        const uint32_t record = marked(p, &m);
        if (record == DF_BAD) continue;
        /* The copy has an axis of examples more than the original. */
        const bool is_batched = cx->rec.nodes[record].rank != cx->rec.nodes[m.record].rank;
        if (m.kind == DF_ANNOTATION_BATCH && is_batched) continue; /* its rule has been used */
        if (df_is_of_custom(&m) && m.custom != from) {
            from = m.custom;
            if (!(to = copy_custom(p, from, is_batched))) return false;
        }
        if (df_is_of_custom(&m)) m.custom = to;
        if (m.kind == DF_ANNOTATION_HOOK && is_batched) {
            m.n_batches++;
            m.map_each = p->map_each;
        }
        m.record = record;
        if (m.kind == DF_ANNOTATION_BRANCHES) {
            m.then = begins_at(p, m.then);
            m.otherwise = begins_at(p, m.otherwise);
        }
        if (!df_grad_annotation_add(cx, m)) return false;
    }
    return copy_part_reads(p);
}
