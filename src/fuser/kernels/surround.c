/* SPDX-License-Identifier: Apache-2.0
 *
 * Values that are surrounded by one number. A padded array is recorded as an update of a part of an
 * array whose elements all are that number:
 *
 *   padded = update(expand(number), x, slice(expand(number)))
 *
 * Such an update need not be stored. A kernel that reads an element of it computes
 *
 *   is within x ? x[index - start] : number
 *
 * and loads only those elements of x that exist (load_if). So windows that slide over padded images
 * read the images, and neighbours of a cell read the grid. Whatever cannot compute an element in
 * this way, as a product or a reshape, demands that the update is stored. It is then stored as
 * every other update is.
 */
#include "fuser/fuse.h"

#include <string.h>

static bool surround_has_op(const pass *p, uint32_t n, df_op op)
{
    return node_of(p, n)->op == op;
}

uint32_t df_surround_number(const pass *p, uint32_t n)
{
    uint32_t number = node_of(p, n)->src[0].i;
    while (surround_has_op(p, number, DF_OP_expand)) number = node_of(p, number)->src[0].i;
    return number;
}

bool df_surround_is(const pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    if (!p->fuse || x->op != DF_OP_update || x->src[1].i == x->src[0].i) return false;
    const uint32_t place = x->src[2].i, all = (1u << x->rank) - 1u;
    const uint32_t number = df_surround_number(p, n);
    return surround_has_op(p, place, DF_OP_slice) && node_of(p, place)->src[0].i == x->src[0].i &&
           node_of(p, x->src[1].i)->rank == x->rank &&
           ((p->full[place] | p->unit[place]) & all) == all &&
           (surround_has_op(p, number, DF_OP_cst) || surround_has_op(p, number, DF_OP_num));
}

/* The number of a region equal to *r, which is added if it is new. */
static region_id region_intern(pass *p, const region *r)
{
    uint64_t h = df_mix(df_mix(r->outer.i, (uint64_t)r->driver), r->off.i);
    h = df_mix(df_mix(h, r->coef.i), r->extent.i);
    uint32_t pos = UINT32_MAX;
    region_id i;
    while (i.i = df_table_next(&p->region_index, h, &pos), !IS_NONE(i)) {
        const region *const q = region_at(p, i);
        if (same_region(q->outer, r->outer) && q->driver == r->driver &&
            df_same_slot(q->off, r->off) && df_same_slot(q->coef, r->coef) &&
            df_same_slot(q->extent, r->extent))
            return i;
    }
    i.i = (uint32_t)p->regions_of_loops.n;
    if (!df_vec_push(p->mem, &p->regions_of_loops, *r) ||
        !df_table_add(&p->region_index, p->mem, h, i.i)) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof *r);
        return NO_REGION;
    }
    return i;
}

/* Whether two slots have one value now. */
static bool equal_now(const pass *p, df_slot a, df_slot b)
{
    return p->now.at[a.i] == p->now.at[b.i];
}

static void guard_bound(pass *p, df_slot a, df_slot b)
{
    if (!df_same_slot(a, b)) df_fuse_guard_slots(p, DF_GUARD_same_bound, a, b);
}

/* Gives *r the slots of an earlier condition on the same loop whose values are equal now, and
 * guards that they stay equal. The slices of windows have bounds of their own, of which many are
 * equal. A kernel then computes each condition once. Bounds that are equal by chance cost one more
 * plan when they part: it shares no conditions, and serves all bounds (df_limits.bounds_part). */
static void region_share_slots(pass *p, region *r)
{
    for (uint32_t i = 0; i < p->regions_of_loops.n && p->st == DEFT_OK; i++) {
        const region q = p->regions_of_loops.at[i];
        if (q.driver != r->driver || !equal_now(p, q.off, r->off) ||
            !equal_now(p, q.coef, r->coef) || !equal_now(p, q.extent, r->extent))
            continue;
        guard_bound(p, q.off, r->off);
        guard_bound(p, q.coef, r->coef);
        guard_bound(p, q.extent, r->extent);
        r->off = q.off;
        r->coef = q.coef;
        r->extent = q.extent;
        return;
    }
}

map_id df_surround_enter(pass *p, uint32_t n, map_id map, region_id outer, region_id *inner)
{
    const df_node *const x = node_of(p, n);
    const uint32_t place = x->src[2].i;
    index_map m = *map_at(p, map);
    df_assert(!m.linear);
    *inner = outer;
    for (uint32_t j = 0; j < x->rank; j++) {
        if (p->full[place] >> j & 1) continue;
        df_assert(m.axis[j] < MAX_LOOPS);
        const df_slot start = df_fuse_arg(p, node_of(p, place)->arg + 2 * j);
        region r = { .outer = *inner,
                     .driver = m.axis[j],
                     .off = df_fuse_sub(p, m.off[j], start),
                     .coef = m.coef[j],
                     .extent = df_fuse_axis_extent(p, x->src[1].i, j) };
        if (p->st == DEFT_OK && !p->lim->bounds_part) region_share_slots(p, &r);
        m.off[j] = r.off;
        m.coef[j] = r.coef;
        *inner = region_intern(p, &r);
    }
    return df_map_intern(p, &m);
}

location df_region_location(const pass *p, region_id r)
{
    const region *const q = region_at(p, r);
    location at;
    memset(&at, 0, sizeof at);
    at.off = q->off;
    if (q->driver != FIXED) at.stride[q->driver] = q->coef;
    return at;
}

bool df_region_moves(const pass *p, region_id r, const bool *red)
{
    for (; !IS_NONE(r); r = region_at(p, r)->outer) {
        const int d = region_at(p, r)->driver;
        if (d != FIXED && red[d]) return true;
    }
    return false;
}
