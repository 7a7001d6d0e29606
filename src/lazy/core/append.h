/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner steps of appending a record. They are inline for the calls whose cost is the
 * cost of recording (record.c, calls/elementwise.c).
 */
#ifndef DF_LAZY_APPEND_H
#define DF_LAZY_APPEND_H

#include "lazy/core/lazy.h"

/* Like df_record_room, when the lists of records are full. */
bool df_record_grow(deft_ctx *cx) DF_COLD;

/* Makes room for one record. Returns false, with the error recorded, when there is no
 * room. */
DF_INLINE bool df_record_room(deft_ctx *cx)
{
    return DF_LIKELY(cx->rec.n < cx->rec.cap) || df_record_grow(cx);
}

/* Appends the record that the history has at this position, which must be equal to the
 * record that the caller wants. Returns the index of the record. */
DF_INLINE uint32_t df_record_again(deft_ctx *cx, uintptr_t site)
{
    df_rec *const r = &cx->rec;
    const uint32_t i = r->n++;
    /* the record has extents of its own */
    if (r->shape[i] == r->n_ext) r->n_ext += r->nodes[i].rank;
    r->site[i] = site;
    r->val[i] = 0;
    return i;
}

/* Appends a number and the record after it, both of which the history has here. Returns the index
 * of the second. */
DF_INLINE uint32_t df_record_pair_again(deft_ctx *cx, uintptr_t site)
{
    df_rec *const r = &cx->rec;
    const uint32_t i = r->n + 1;
    r->n = i + 1;
    df_assert(r->nodes[i - 1].rank == 0); /* so that only the second has extents */
    if (r->shape[i] == r->n_ext) r->n_ext += r->nodes[i].rank;
    r->site[i - 1] = r->site[i] = site;
    r->val[i - 1] = r->val[i] = 0;
    return i;
}

/* Appends node, whose extents begin at index `shape` of r->ext. The caller has called
 * df_record_room. Returns the index of the record. */
DF_INLINE uint32_t df_record_push(deft_ctx *cx, df_node node, uint32_t shape, uintptr_t site)
{
    df_rec *const r = &cx->rec;
    df_assert(r->n < r->cap);
    const uint32_t i = r->n++;
    r->nodes[i] = node;
    r->shape[i] = shape;
    r->site[i] = site;
    r->val[i] = 0;
    return i;
}

/* Whether the history has op on records a and b at this position. Then the operands need
 * no cast. */
DF_INLINE bool df_record_is_map(const df_rec *r, df_op op, uint32_t a, uint32_t b)
{
    const df_node *const n = &r->nodes[r->n];
    return r->n < r->same && n->op == op && n->src[0].i == a && n->src[1].i == b;
}

#endif
