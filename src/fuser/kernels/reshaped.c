/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of products. Operators that follow a product run on its tiles when their loops are
 * those of the product (join.c). By itself, a product has a loop for each axis of its result. A
 * convolution is a product with one column for each window of each image, and its result is
 * recorded as a reshape:
 *
 *   product  [out, N * Ho * Wo]
 *   reshape  [out, N, Ho, Wo]       the bias, the activation and so on have these axes
 *
 * When a reshape alone reads a product, the product takes the axes of the reshape as its loops. The
 * first of them must number the rows of the product, and the others its columns. The rows of all
 * entries of a batch are numbered together, so that groups of a convolution are rows, too.
 */
#include "fuser/fuse.h"

#define NO_READER DF_NONE
#define MANY_READERS (DF_NONE - 1)

deft_status df_fuse_find_reshapes(pass *p)
{
    const uint32_t n = p->t->n_nodes;
    uint32_t *const reader = df_arena_alloc(&p->tmp, (n + 1) * sizeof *reader, _Alignof(uint32_t));
    if (!reader) return df_fail_mem(p->diag, "fuser", n * sizeof *reader);
    for (uint32_t i = 0; i < n; i++) reader[i] = NO_READER;
    for (uint32_t i = 0; i < n && p->fuse && p->lim->splits_columns; i++) {
        const df_node *const x = node_of(p, i);
        for (uint32_t s = 0; s < x->n_src && p->live[i] & 1; s++) {
            uint32_t *const by = &reader[x->src[s].i];
            *by = *by == NO_READER || *by == i ? i : MANY_READERS;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        if (class_of_op(p, i) != DF_CLASS_contract || reader[i] >= n ||
            node_of(p, reader[i])->op != DF_OP_reshape)
            reader[i] = DF_NONE;
    p->reshape_of = reader;
    return DEFT_OK;
}

/* The number of the first axes of `reshape` that number the rows of product n; 0 when there is no
 * such number. Guards keep it. */
static uint32_t n_row_axes(pass *p, uint32_t n, uint32_t reshape)
{
    const uint32_t rank = node_of(p, reshape)->rank;
    const df_slot want = df_fuse_axis_extent(p, n, node_of(p, n)->rank - 1u);
    for (uint32_t first = 1; first < rank; first++) {
        df_slot columns = SLOT_ONE;
        for (uint32_t j = first; j < rank; j++)
            columns = df_fuse_mul(p, columns, df_fuse_axis_extent(p, reshape, j));
        if (p->st != DEFT_OK) return 0;
        if (p->now.at[columns.i] != p->now.at[want.i]) continue;
        if (!df_same_slot(columns, want)) df_fuse_guard_slots(p, DF_GUARD_equal, columns, want);
        return first;
    }
    return 0;
}

map_id df_fuse_whole_loops(pass *p, group_id gi)
{
    const uint32_t n = val_at(p, group_at(p, gi)->product)->node;
    uint32_t shape = n, n_rows = node_of(p, n)->rank - 1u;
    if (p->reshape_of[n] != DF_NONE) {
        const uint32_t first = n_row_axes(p, n, p->reshape_of[n]);
        if (first > 0) shape = p->reshape_of[n], n_rows = first;
    }
    const uint32_t rank = node_of(p, shape)->rank;
    space sp = { .n = (uint8_t)rank };
    index_map m = df_map_blank(rank);
    for (uint32_t i = 0; i < rank; i++) {
        sp.cls[i] = df_fuse_cls(p, shape, i);
        sp.extent[i] = df_fuse_cls_extent(p, sp.cls[i]);
        sp.order[i] = (uint8_t)i;
        if (sp.cls[i] == CLS_ONE) continue;
        m.axis[i] = (int8_t)i;
        m.coef[i] = SLOT_ONE;
    }
    group_at(p, gi)->sp = sp;
    group_at(p, gi)->n_row_loops = n_rows;
    const map_id map = df_map_intern(p, &m);
    bool self;
    return shape == n ? map : df_map_view(p, shape, map, &self);
}
