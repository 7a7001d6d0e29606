/* SPDX-License-Identifier: Apache-2.0
 *
 * New vals, groups, heads and places. Every pass of the fuser adds them through these functions.
 */
#include "fuser/fuse.h"

#include <string.h>

val_id df_fuse_new_val(pass *p, uint32_t node, bool visible)
{
    const val_id v = { (uint32_t)p->vals.n };
    const val w = { .node = node,
                    .group = NO_GROUP,
                    .place = NO_PLACE,
                    .root = DF_NONE,
                    .over = NO_VAL,
                    .over_by = NO_VAL,
                    .frames = NO_GROUP,
                    .readers = NO_LOAD,
                    .visible = visible,
                    .plain = !visible || !df_op_writes_over((df_op)node_of(p, node)->op) };
    if (!df_vec_push(p->mem, &p->vals, w)) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof w);
        return (val_id){ 0 };
    }
    if (visible) p->node_val[node] = v;
    return v;
}

group_id df_fuse_new_group(pass *p, uint32_t kind, uint32_t node)
{
    const group_id g = { (uint32_t)p->groups.n };
    const group w = { .kind = kind,
                      .first_head = NO_HEAD,
                      .last_head = NO_HEAD,
                      .node = node,
                      .product = NO_VAL,
                      .windows = DF_NONE,
                      .first_edge = DF_NONE,
                      .next_frame = NO_GROUP };
    if (!df_vec_push(p->mem, &p->groups, w)) p->st = df_fail_mem(p->diag, "fuser", sizeof w);
    return p->st == DEFT_OK ? g : (group_id){ 0 };
}

void df_fuse_append_head(pass *p, group_id g, head h)
{
    const head_id i = { (uint32_t)p->heads.n };
    h.next = NO_HEAD;
    if (!df_vec_push(p->mem, &p->heads, h)) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof h);
        return;
    }
    group *const w = group_at(p, g);
    if (IS_NONE(w->last_head))
        w->first_head = i;
    else
        head_at(p, w->last_head)->next = i;
    w->last_head = i;
    w->n_heads++;
}

place_id df_fuse_new_place(pass *p, uint32_t kind, uint32_t index, uint32_t node)
{
    storage w = { .kind = kind,
                  .index = index,
                  .node = node,
                  .donor = DF_NONE,
                  .buf = DF_NO_BUF,
                  .over = NO_PLACE };
    if (kind == STORAGE_INTO)
        memcpy(w.stride, df_fuse_input_strides(p, index), sizeof w.stride);
    else
        df_fuse_contiguous(p, node, w.stride);
    if (!df_vec_push(p->mem, &p->places, w)) p->st = df_fail_mem(p->diag, "fuser", sizeof w);
    return (place_id){ (uint32_t)p->places.n - 1 };
}
