/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops that run in blocks of rows, as in runtime/exec/exec_blocks.c: attention over many keys, for
 * example. What the library finds out in each run is found out here, where all extents are known.
 */
#include "aot/maker.h"

#include "runtime/bind.h"
#include "runtime/loop_rows.h"

#define PUSH DF_AOT_PUSH

/* Builds with checks divide all loops that may be divided, so that tests on small tensors meet
 * blocks. */
#ifdef DF_DEBUG
enum { DIVIDES_ALL = 1, ROW_UNIT = 1, LEAST_ROWS = 2 };
#else
enum {
    DIVIDES_ALL = 0,
    ROW_UNIT = 8,   /* for full tiles */
    LEAST_ROWS = 16 /* a block has at least as many rows, where there are as many */
};
#endif

#define LEAST_NS 60e3 /* a loop whose products take less is not divided */

static bool are_known(const maker *m, const df_plan *plan, uint32_t slot0)
{
    bool all = true;
    for (uint32_t i = 0; i < plan->n_slots; i++) all &= !m->p->is_open.at[m->slot[slot0 + i]];
    return all;
}

/* Fills in what causal attention leaves out. The values must lie row by row. */
static void find_mask(maker *m, const imported_loop *l, const df_loop_rows *rows, aot_blocks *out)
{
    const df_part_tag *const tag = l->part->tag;
    program *const p = m->p;
    if (!tag || tag->what.kind != DF_LOOP_ATTENTION || !tag->what.is_causal) return;
    const int64_t queries = df_slot_value(rows->slots, tag->n_queries);
    const int64_t width = df_slot_value(rows->slots, tag->value_width);
    const df_tag_matrix *const v = &tag->v;
    if (rows->group != queries || (df_slot_value(rows->slots, v->col) != 1 && width != 1)) return;
    out->keys = (uint32_t)df_slot_value(rows->slots, tag->block);
    out->width = (uint32_t)width;
    out->values = l->port[v->port];
    out->offset = m->slot[l->slot0 + v->offset.i];
    out->row = m->slot[l->slot0 + v->row.i];
    out->n_batch = tag->n_batch;
    out->batch = (uint32_t)p->list.n;
    for (uint32_t i = 0; i < tag->n_batch; i++) PUSH(p, list, m->slot[l->slot0 + tag->batch[i].i]);
    for (uint32_t i = 0; i < tag->n_batch; i++) PUSH(p, list, m->slot[l->slot0 + v->batch[i].i]);
}

static void add_blocks(maker *m, const imported_loop *l, const df_loop_rows *rows)
{
    program *const p = m->p;
    const df_plan *const plan = rows->plan;
    aot_loop *const loop = &p->loops.at[l->loop];
    aot_blocks out = { .n_rows = (uint32_t)rows->n_rows,
                       .group = (uint32_t)rows->group,
                       .unit = ROW_UNIT,
                       .least = LEAST_ROWS,
                       .piece = (uint32_t)p->pieces.n };
    for (uint32_t i = 0; i < plan->n_bufs; i++) {
        out.bytes += (uint32_t)rows->row_bytes[i];
        if (plan->bufs[i].kind != DF_BUF_TEMP) continue;
        PUSH(p, pieces, ((aot_piece){ l->buf[i], (uint32_t)rows->row_bytes[i] }));
        out.n_pieces++;
    }
    for (uint32_t i = 0; i < l->part->n_states; i++)
        p->roots.at[loop->root + i].row_bytes = (uint32_t)rows->row_bytes[plan->root_buf[i].i];
    for (uint32_t i = 0; i < plan->n_segs; i++) {
        aot_seg *const g = &p->segs.at[l->seg + i];
        g->per_row = (uint32_t)rows->segs[i].per_row;
        if (rows->segs[i].by_inner) g->flags |= AOT_BY_INNER;
    }
    find_mask(m, l, rows, &out);
    loop->blocks = (uint32_t)p->blocks.n;
    PUSH(p, blocks, out);
}

/* Whether all numbers of the blocks have room in the image. */
static bool is_small(const df_loop_rows *rows)
{
    bool all = rows->n_rows <= INT32_MAX;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < rows->plan->n_bufs; i++) bytes += rows->row_bytes[i];
    for (uint32_t i = 0; i < rows->plan->n_segs; i++) all &= rows->segs[i].per_row <= INT32_MAX;
    return all && bytes > 0 && bytes <= INT32_MAX;
}

deft_status by_rows_find(maker *m, const imported_loop *l)
{
    program *const p = m->p;
    const df_plan *const plan = l->part->body.plan;
    const uint32_t most = p->loops.at[l->loop].most;
    df_loop_rows rows = { .part = l->part, .plan = plan, .slots = m->value + l->slot0 };
    if (!are_known(m, plan, l->slot0) || p->is_open.at[most]) return p->st;
    const double ns = df_rows_estimate_ns(plan, rows.slots) * (double)p->values.at[most];
    if (ns == 0 || (!DIVIDES_ALL && ns < LEAST_NS)) return p->st;
    rows.segs = df_arena_zalloc(&p->arena, (plan->n_segs + 1u) * sizeof *rows.segs, 8);
    rows.row_bytes = df_arena_zalloc(&p->arena, (plan->n_bufs + 1u) * sizeof *rows.row_bytes, 8);
    if (!rows.segs || !rows.row_bytes) return df_fail_mem(p->d, "export", sizeof rows);
    if (df_rows_find(&rows) && is_small(&rows)) add_blocks(m, l, &rows);
    return p->st;
}
