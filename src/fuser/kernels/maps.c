/* SPDX-License-Identifier: Apache-2.0
 *
 * Index maps: how an element of a node is found from loop indices. Views compose onto maps, so a
 * chain of views costs no instruction. At a leaf, only an offset and one stride per loop remain.
 *
 * A map has one of two forms:
 *
 *   per axis   index_j = off_j + coef_j * driver_j, with at most one driver for an axis. Slice,
 *              permute, expand, squeeze, unsqueeze and diagonal keep this form.
 *   linear     one row-major element number. An index passes a reshape in this form. A linear map
 *              passes every node that has the same elements in the same order: full slices,
 *              reshapes, elementwise operators. It must end at contiguous memory.
 *
 * A linear map on a node with at most one axis longer than 1 is turned back into the first form.
 *
 * Maps are interned: equal maps have one number. So a value that is needed twice is recognised.
 */
#include "fuser/fuse.h"

#include <string.h>

map_id df_map_intern(pass *p, const index_map *m)
{
    if (p->st != DEFT_OK) return (map_id){ 0 };
    uint64_t h = m->linear, words[sizeof *m / 8];
    _Static_assert(sizeof *m % 8 == 0, "hashed as words");
    memcpy(words, m, sizeof *m);
    for (size_t i = 0; i < DF_LEN(words); i++) h = df_mix(h, words[i]);
    uint32_t pos = UINT32_MAX;
    map_id i;
    while (i.i = df_table_next(&p->map_index, h, &pos), !IS_NONE(i))
        if (memcmp(map_at(p, i), m, sizeof *m) == 0) return i;
    i.i = (uint32_t)p->maps.n;
    if (!df_vec_push(p->mem, &p->maps, *m) || !df_table_add(&p->map_index, p->mem, h, i.i)) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof *m);
        return (map_id){ 0 };
    }
    return i;
}

index_map df_map_blank(uint32_t rank)
{
    index_map m;
    memset(&m, 0, sizeof m);
    m.rank = (uint8_t)rank;
    for (uint32_t j = 0; j < DEFT_MAX_RANK; j++) m.axis[j] = FIXED;
    return m;
}

map_id df_map_zero(pass *p, uint32_t rank)
{
    const index_map m = df_map_blank(rank);
    return df_map_intern(p, &m);
}

map_id df_map_identity(pass *p, uint32_t rank)
{
    index_map m = df_map_blank(rank);
    for (uint32_t j = 0; j < rank; j++) {
        m.axis[j] = (int8_t)j;
        m.coef[j] = SLOT_ONE;
    }
    return df_map_intern(p, &m);
}

/* Makes axis j of *to what axis i of *from is. */
static void map_copy_axis(index_map *to, uint32_t j, const index_map *from, uint32_t i)
{
    to->axis[j] = from->axis[i];
    to->off[j] = from->off[i];
    to->coef[j] = from->coef[i];
}

/* ---- linear maps ---- */

/* The number of axes that are not 1 by construction. *which: the last of them. */
static uint32_t n_long_axes(const pass *p, uint32_t node, uint32_t *which)
{
    uint32_t n = 0;
    for (uint32_t j = 0; j < node_of(p, node)->rank; j++)
        if (df_fuse_cls(p, node, j) != CLS_ONE) {
            *which = j;
            n++;
        }
    return n;
}

/* Interns linear map m on node, in the form per axis where that form can express it. */
static map_id map_intern_linear(pass *p, const index_map *m, uint32_t node)
{
    uint32_t axis = 0, n_drivers = 0, driver = 0;
    if (n_long_axes(p, node, &axis) <= 1) {
        for (uint32_t d = 0; d < N_DRIVERS; d++)
            if (!df_same_slot(m->lcoef[d], SLOT_ZERO)) {
                n_drivers++;
                driver = d;
            }
        index_map out = df_map_blank(node_of(p, node)->rank);
        if (n_long_axes(p, node, &axis) == 0) return df_map_intern(p, &out);
        if (n_drivers <= 1) {
            out.off[axis] = m->off[0];
            if (n_drivers == 1) {
                out.axis[axis] = (int8_t)driver;
                out.coef[axis] = m->lcoef[driver];
            }
            return df_map_intern(p, &out);
        }
    }
    return df_map_intern(p, m);
}

/* The linear form of map m on node. */
static index_map to_linear(pass *p, uint32_t node, const index_map *m)
{
    index_map out = df_map_blank(0);
    df_slot stride[DEFT_MAX_RANK];
    out.linear = 1;
    df_fuse_contiguous(p, node, stride);
    for (uint32_t j = 0; j < m->rank; j++) {
        out.off[0] = df_fuse_add(p, out.off[0], df_fuse_mul(p, m->off[j], stride[j]));
        if (m->axis[j] == FIXED) continue;
        df_slot *const c = &out.lcoef[m->axis[j]];
        *c = df_fuse_add(p, *c, df_fuse_mul(p, m->coef[j], stride[j]));
    }
    return out;
}

/* Whether a and b have axes of the same classes in the same order, without axes of class ONE. */
static bool same_axes(const pass *p, uint32_t a, uint32_t b)
{
    const uint32_t ra = node_of(p, a)->rank, rb = node_of(p, b)->rank;
    uint32_t i = 0, j = 0;
    for (;;) {
        while (i < ra && df_fuse_cls(p, a, i) == CLS_ONE) i++;
        while (j < rb && df_fuse_cls(p, b, j) == CLS_ONE) j++;
        if (i == ra || j == rb) return i == ra && j == rb;
        if (df_fuse_cls(p, a, i++) != df_fuse_cls(p, b, j++)) return false;
    }
}

/* Whether a permute keeps the order of the axes that are longer than 1. Classes cannot decide that:
 * two axes of one class may change places. */
static bool keeps_order(const pass *p, uint32_t node)
{
    const df_node *const x = node_of(p, node);
    uint32_t next = 0;
    for (uint32_t i = 0; i < x->rank; i++) {
        const uint32_t from = x->attr >> 4 * i & 15;
        if (df_fuse_cls(p, node, i) == CLS_ONE) continue;
        if (from < next) return false;
        next = from + 1;
    }
    return true;
}

/* Whether a slice of contiguous memory is contiguous: it restricts only the outermost axis, with
 * step 1. Adds the offset of the slice to *m. */
static bool linear_slice(pass *p, uint32_t node, index_map *m)
{
    const df_node *const x = node_of(p, node);
    df_slot stride[DEFT_MAX_RANK];
    uint32_t j = 0;
    while (j < x->rank && df_fuse_cls(p, x->src[0].i, j) == CLS_ONE) j++;
    if (j == x->rank) return true;
    for (uint32_t k = j + 1; k < x->rank; k++)
        if (!(p->full[node] >> k & 1)) return false;
    if (p->full[node] >> j & 1) return true;
    if (!(p->unit[node] >> j & 1)) return false;
    df_fuse_contiguous(p, x->src[0].i, stride);
    m->off[0] =
        df_fuse_add(p, m->off[0], df_fuse_mul(p, df_fuse_arg(p, x->arg + 2 * j), stride[j]));
    return true;
}

_Static_assert(DF_N_VIEWS == 7, "a new view needs a case in view_linear");

/* df_map_view for a linear map. */
static map_id view_linear(pass *p, uint32_t node, const index_map *m, bool *self)
{
    const df_node *const x = node_of(p, node);
    const uint32_t src = x->src[0].i;
    index_map out = *m;
    uint32_t axis;
    bool ok = false;
    switch (x->op) {
    case DF_OP_reshape:
    case DF_OP_squeeze:
    case DF_OP_unsqueeze: ok = true; break;
    case DF_OP_slice: ok = linear_slice(p, node, &out); break;
    case DF_OP_permute: ok = keeps_order(p, node); break;
    case DF_OP_expand:
    case DF_OP_diagonal:
        ok = same_axes(p, node, src);
        if (!ok && x->op == DF_OP_expand && n_long_axes(p, src, &axis) == 0)
            return df_map_zero(p, node_of(p, src)->rank);
        break;
    }
    if (ok) return map_intern_linear(p, &out, src);
    *self = true;
    return NO_MAP;
}

/* ---- composition ---- */

static void view_slice(pass *p, uint32_t node, const index_map *m, index_map *out)
{
    const df_node *const x = node_of(p, node);
    for (uint32_t j = 0; j < x->rank; j++) {
        map_copy_axis(out, j, m, j);
        if (p->full[node] >> j & 1) continue;
        const df_slot start = df_fuse_arg(p, x->arg + 2 * j);
        const df_slot step = p->unit[node] >> j & 1 ? SLOT_ONE : df_fuse_arg(p, x->arg + 2 * j + 1);
        out->off[j] = df_fuse_add(p, start, df_fuse_mul(p, step, m->off[j]));
        out->coef[j] = df_fuse_mul(p, step, m->coef[j]);
    }
}

static void view_expand(const pass *p, uint32_t node, const index_map *m, index_map *out)
{
    const uint32_t src = node_of(p, node)->src[0].i, rank = out->rank;
    for (uint32_t j = 0; j < rank; j++) {
        const uint32_t i = j + node_of(p, node)->rank - rank;
        if (df_fuse_cls(p, src, j) == df_fuse_cls(p, node, i)) map_copy_axis(out, j, m, i);
    }
}

static void view_diagonal(pass *p, uint32_t node, const index_map *m, index_map *out)
{
    const df_node *const x = node_of(p, node);
    const uint32_t a = x->attr & 15, b = x->attr >> 4 & 15, last = x->rank - 1u;
    const df_slot offset = df_fuse_arg(p, x->arg);
    uint32_t at = 0;
    for (uint32_t j = 0; j < out->rank; j++) {
        if (j != a && j != b) {
            map_copy_axis(out, j, m, at++);
            continue;
        }
        const df_slot shift =
            df_fuse_max(p, j == b ? offset : df_fuse_sub(p, SLOT_ZERO, offset), SLOT_ZERO);
        map_copy_axis(out, j, m, last);
        out->off[j] = df_fuse_add(p, m->off[last], shift);
    }
}

_Static_assert(DF_N_VIEWS == 7, "a new view needs a case in df_map_view");

map_id df_map_view(pass *p, uint32_t node, map_id map, bool *self)
{
    const df_node *const x = node_of(p, node);
    const index_map m = *map_at(p, map);
    const uint32_t src = x->src[0].i, rank = node_of(p, src)->rank;
    index_map out = df_map_blank(rank);
    uint32_t at = 0;
    *self = false;
    if (m.linear) return view_linear(p, node, &m, self);
    switch (x->op) {
    case DF_OP_slice: view_slice(p, node, &m, &out); break;
    case DF_OP_expand: view_expand(p, node, &m, &out); break;
    case DF_OP_diagonal: view_diagonal(p, node, &m, &out); break;
    case DF_OP_permute:
        for (uint32_t i = 0; i < rank; i++) map_copy_axis(&out, x->attr >> 4 * i & 15, &m, i);
        break;
    case DF_OP_squeeze:
        for (uint32_t j = 0; j < rank; j++)
            if (!(x->attr >> j & 1)) map_copy_axis(&out, j, &m, at++);
        break;
    case DF_OP_unsqueeze:
        for (uint32_t i = 0; i < x->rank; i++)
            if (!(x->attr >> i & 1)) map_copy_axis(&out, at++, &m, i);
        break;
    case DF_OP_reshape:
        if (same_axes(p, node, src)) {
            uint32_t i = 0;
            for (uint32_t j = 0; j < rank; j++) {
                if (df_fuse_cls(p, src, j) == CLS_ONE) continue;
                while (df_fuse_cls(p, node, i) == CLS_ONE) i++;
                map_copy_axis(&out, j, &m, i++);
            }
            break;
        }
        out = to_linear(p, node, &m);
        return map_intern_linear(p, &out, src);
    }
    return df_map_intern(p, &out);
}

map_id df_map_operand(pass *p, uint32_t node, uint32_t operand, map_id map)
{
    const uint32_t rank = node_of(p, operand)->rank, lead = node_of(p, node)->rank - rank;
    bool same = lead == 0, any = false;
    for (uint32_t j = 0; j < rank; j++) {
        const uint32_t c = df_fuse_cls(p, operand, j);
        const bool equal = c == df_fuse_cls(p, node, j + lead);
        same &= equal;
        any |= equal && c != CLS_ONE;
    }
    if (same) return map;
    const index_map m = *map_at(p, map);
    if (m.linear) {
        if (!any) return df_map_zero(p, rank);
        return same_axes(p, node, operand) ? map_intern_linear(p, &m, operand) : NO_MAP;
    }
    index_map out = df_map_blank(rank);
    for (uint32_t j = 0; j < rank; j++)
        if (df_fuse_cls(p, operand, j) == df_fuse_cls(p, node, j + lead))
            map_copy_axis(&out, j, &m, j + lead);
    return df_map_intern(p, &out);
}

map_id df_map_rename(pass *p, map_id map, const uint8_t to[MAX_LOOPS])
{
    index_map m = *map_at(p, map);
    df_slot lcoef[N_DRIVERS] = { 0 };
    for (uint32_t j = 0; j < m.rank; j++)
        if (m.axis[j] != FIXED && m.axis[j] < MAX_LOOPS) m.axis[j] = (int8_t)to[m.axis[j]];
    for (uint32_t d = 0; d < N_DRIVERS; d++)
        if (!df_same_slot(m.lcoef[d], SLOT_ZERO)) lcoef[d < MAX_LOOPS ? to[d] : d] = m.lcoef[d];
    memcpy(m.lcoef, lcoef, sizeof lcoef);
    return df_map_intern(p, &m);
}

location df_map_locate(pass *p, map_id map, const df_slot *stride)
{
    const index_map m = *map_at(p, map);
    location at = { .off = SLOT_ZERO };
    if (m.linear) {
        at.off = m.off[0];
        memcpy(at.stride, m.lcoef, sizeof at.stride);
        return at;
    }
    for (uint32_t j = 0; j < m.rank; j++) {
        at.off = df_fuse_add(p, at.off, df_fuse_mul(p, m.off[j], stride[j]));
        if (m.axis[j] == FIXED) continue;
        df_slot *const s = &at.stride[m.axis[j]];
        *s = df_fuse_add(p, *s, df_fuse_mul(p, m.coef[j], stride[j]));
    }
    return at;
}

bool df_map_is_box(const index_map *m)
{
    uint32_t used = 0;
    if (m->linear) return false;
    for (uint32_t j = 0; j < m->rank; j++) {
        if (m->axis[j] == FIXED) continue;
        if (!df_same_slot(m->coef[j], SLOT_ONE) || used >> m->axis[j] & 1) return false;
        used |= 1u << m->axis[j];
    }
    return true;
}
