/* SPDX-License-Identifier: Apache-2.0
 *
 * New vals, groups, heads and places. Every pass of the fuser adds them through these functions.
 */
#include "fuser/fuse.h"

#include <string.h>

uint32_t df_fuse_new_val(pass *p, uint32_t node, bool visible)
{
    const uint32_t v = (uint32_t)p->vals.n;
    const val w = { .node = node,
                    .group = DF_NONE,
                    .place = DF_NONE,
                    .root = DF_NONE,
                    .over = DF_NONE,
                    .over_by = DF_NONE,
                    .frames = DF_NONE,
                    .readers = DF_NONE,
                    .visible = visible,
                    .plain = !visible || !df_op_writes_over((df_op)node_of(p, node)->op) };
    if (!df_vec_push(p->mem, &p->vals, w)) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof w);
        return 0;
    }
    if (visible) p->node_val[node] = v;
    return v;
}

uint32_t df_fuse_new_group(pass *p, uint32_t kind, uint32_t node)
{
    const uint32_t g = (uint32_t)p->groups.n;
    const group w = { .kind = kind,
                      .first_head = DF_NONE,
                      .last_head = DF_NONE,
                      .node = node,
                      .product = DF_NONE,
                      .first_edge = DF_NONE,
                      .next_frame = DF_NONE };
    if (!df_vec_push(p->mem, &p->groups, w)) p->st = df_fail_mem(p->diag, "fuser", sizeof w);
    return p->st == DEFT_OK ? g : 0;
}

void df_fuse_append_head(pass *p, uint32_t g, head h)
{
    const uint32_t i = (uint32_t)p->heads.n;
    h.next = DF_NONE;
    if (!df_vec_push(p->mem, &p->heads, h)) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof h);
        return;
    }
    group *const w = &p->groups.at[g];
    if (w->last_head == DF_NONE)
        w->first_head = i;
    else
        p->heads.at[w->last_head].next = i;
    w->last_head = i;
    w->n_heads++;
}

uint32_t df_fuse_new_place(pass *p, uint32_t kind, uint32_t index, uint32_t node)
{
    storage w = { .kind = kind, .index = index, .node = node, .donor = DF_NONE, .buf = DF_NONE };
    if (kind == STORAGE_INTO)
        memcpy(w.stride, df_fuse_input_strides(p, index), sizeof w.stride);
    else
        df_fuse_contiguous(p, node, w.stride);
    if (!df_vec_push(p->mem, &p->places, w)) p->st = df_fail_mem(p->diag, "fuser", sizeof w);
    return (uint32_t)p->places.n - 1;
}
