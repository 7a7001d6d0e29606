/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of gradient annotations: what a record means for gradients beyond its
 * operator. A stop, and each result of a custom function, is a record of its own: a view
 * that changes nothing (unsqueeze of no axis), which the simplifier removes. The
 * annotation with the index of that record says what the record means. An annotation is
 * removed with its record, and with the step in which it was made: a hook may be set there
 * on an older record.
 */
#include "lazy/core/annotations.h"

#include <string.h>

df_op_held *df_op_held_new(deft_ctx *cx, const void *attributes, size_t size,
                           _Atomic uint32_t *users)
{
    df_op_held *const h = df_mem_alloc(cx->mem, DF_OP_HELD_HEAD + size);
    if (!h) return df_error(cx, DEFT_E_MEMORY, "no memory for %zu bytes of attributes", size);
    *h = (df_op_held){ .refs = 1, .size = (uint32_t)size, .users = users };
    if (size) memcpy(df_op_held_attributes(h), attributes, size);
    atomic_fetch_add(users, 1);
    return h;
}

void df_op_held_drop(deft_ctx *cx, df_op_held **at)
{
    df_op_held *const h = *at;
    *at = NULL;
    if (!h || --h->refs) return;
    atomic_fetch_sub(h->users, 1);
    df_mem_free(cx->mem, h, DF_OP_HELD_HEAD + h->size);
}

static void custom_destroy(deft_ctx *cx, df_custom *c)
{
    df_op_held_drop(cx, &c->held);
    df_mem_free(cx->mem, c, df_custom_size((size_t)c->n_in + c->n_out));
}

static void truncate_part_reads(deft_ctx *cx, uint32_t n)
{
    while (cx->part_reads.n && cx->part_reads.at[cx->part_reads.n - 1].record >= n)
        cx->part_reads.n--;
}

void df_grad_annotations_truncate(deft_ctx *cx, uint32_t n)
{
    size_t kept = 0;
    truncate_part_reads(cx, n);
    for (size_t i = 0; i < cx->grad_annotations.n; i++) {
        const df_grad_annotation *const m = &cx->grad_annotations.at[i];
        if (m->record < n && !m->in_step) cx->grad_annotations.at[kept++] = *m;
    }
    cx->grad_annotations.n = kept;
    for (df_custom **at = &cx->customs; *at;) {
        df_custom *const c = *at;
        if (c->record[c->n_in] < n) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        custom_destroy(cx, c);
    }
}

static void renumber_part_reads(deft_ctx *cx, const uint32_t *map)
{
    size_t kept = 0;
    for (size_t i = 0; i < cx->part_reads.n; i++) {
        df_part_read r = cx->part_reads.at[i];
        r.record = map[r.record];
        r.owner = map[r.owner];
        if (r.record != DF_NONE && r.owner != DF_NONE) cx->part_reads.at[kept++] = r;
    }
    cx->part_reads.n = kept;
}

bool df_part_read_add(deft_ctx *cx, df_part_read r)
{
    df_assert(r.owner < r.record);
    if (!df_vec_push(cx->mem, &cx->part_reads, r)) {
        df_error(cx, DEFT_E_MEMORY, "no memory for the part of record %u", r.owner);
        return false;
    }
    /* A copy of earlier records may come after a later record has been added. */
    df_part_read *const at = cx->part_reads.at;
    size_t i = cx->part_reads.n - 1;
    for (; i > 0 && at[i - 1].record > r.record; i--) at[i] = at[i - 1];
    at[i] = r;
    return true;
}

const df_part_read *df_part_read_of(const deft_ctx *cx, uint32_t k)
{
    size_t low = 0, high = cx->part_reads.n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (cx->part_reads.at[middle].record < k)
            low = middle + 1;
        else
            high = middle;
    }
    const df_part_read *const r = cx->part_reads.at + low;
    return low < cx->part_reads.n && r->record == k ? r : NULL;
}

/* Whether all inputs and results of c stay. Only then can gradients pass through c. */
static bool stays(const df_custom *c, const uint32_t *map)
{
    for (uint32_t i = 0; i < c->n_in + c->n_out; i++)
        if (map[c->record[i]] == DF_NONE) return false;
    return true;
}

/* Whether one of the conds that m annotates stays. They are the records from m->record
 * on. */
static bool a_cond_stays(const deft_ctx *cx, const df_grad_annotation *m, const uint32_t *map)
{
    for (uint32_t k = m->record; k < cx->rec.n && cx->rec.nodes[k].op == DF_OP_cond; k++)
        if (map[k] != DF_NONE) return true;
    return false;
}

void df_grad_annotations_renumber(deft_ctx *cx, const uint32_t *map, const uint32_t *below)
{
    size_t kept = 0;
    renumber_part_reads(cx, map);
    for (size_t i = 0; i < cx->grad_annotations.n; i++) {
        df_grad_annotation m = cx->grad_annotations.at[i];
        if (m.kind == DF_ANNOTATION_BRANCHES ? !a_cond_stays(cx, &m, map)
            : df_is_of_custom(&m)            ? !stays(m.custom, map)
                                             : map[m.record] == DF_NONE)
            continue;
        m.record = below[m.record];
        m.then = below[m.then];
        m.otherwise = below[m.otherwise];
        cx->grad_annotations.at[kept++] = m;
    }
    cx->grad_annotations.n = kept;
    for (df_custom **at = &cx->customs; *at;) {
        df_custom *const c = *at;
        if (!stays(c, map)) {
            *at = c->next;
            custom_destroy(cx, c);
            continue;
        }
        for (uint32_t i = 0; i < c->n_in + c->n_out; i++) c->record[i] = map[c->record[i]];
        at = &c->next;
    }
}

bool df_grad_annotation_add(deft_ctx *cx, df_grad_annotation m)
{
    m.in_step = cx->step_at != 0;
    if (df_vec_push(cx->mem, &cx->grad_annotations, m)) return true;
    df_error(cx, DEFT_E_MEMORY, "no memory for a mark on record %u", m.record);
    return false;
}

bool df_grad_annotate_branches(deft_ctx *cx, uint32_t record, uint32_t then, uint32_t otherwise)
{
    df_assert(cx->rec.nodes[record].op == DF_OP_cond);
    return df_grad_annotation_add(cx, (df_grad_annotation){ .record = record,
                                                            .kind = DF_ANNOTATION_BRANCHES,
                                                            .then = then,
                                                            .otherwise = otherwise });
}

const df_grad_annotation *df_grad_branches(const deft_ctx *cx, uint32_t k)
{
    const df_grad_annotation *best = NULL;
    for (size_t i = 0; i < cx->grad_annotations.n; i++) {
        const df_grad_annotation *const m = &cx->grad_annotations.at[i];
        if (m->kind == DF_ANNOTATION_BRANCHES && m->record <= k &&
            (!best || m->record >= best->record))
            best = m;
    }
    return best;
}

const df_custom *df_mapped_custom_of(const deft_ctx *cx, uint32_t k)
{
    for (size_t i = 0; i < cx->grad_annotations.n; i++)
        if (cx->grad_annotations.at[i].record == k && df_is_of_custom(&cx->grad_annotations.at[i]))
            return cx->grad_annotations.at[i].custom;
    return NULL;
}

const df_custom *df_grad_custom_of(const deft_ctx *cx, uint32_t k)
{
    const df_custom *const c = df_mapped_custom_of(cx, k);
    return c && c->backward ? c : NULL;
}
