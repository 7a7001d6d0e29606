/* SPDX-License-Identifier: Apache-2.0
 *
 * Products that read windows of images. A convolution is recorded as a product with a matrix of all
 * windows, and that matrix is recorded as slices of the padded images that are joined
 * (lazy/calls/window.c):
 *
 *   padded  = update(zeros, x, the inside)          [N, C, H, W], or [C, N, H, W]
 *   images  = permute(padded), or padded            [C, N, H, W]
 *   joined  = update(.. update(empty, slice 0) .., slice T - 1)   [C, T, N, Ho, Wo]
 *   matrix  = reshape(joined)                       [C * T, N * Ho * Wo], or with groups before
 *   product = matmul(w, matrix) or matmul(dy, permute(matrix))
 *
 * The matrix is many times as large as x. Such a product can read x itself (df_windows), while it
 * packs its operand. Then neither the joined windows nor the padded images are stored, unless
 * something else reads them too. A window of one element has no joined windows: the matrix is a
 * reshape of a slice, or of the images. It is read in this way only when strides cannot show it.
 *
 * Everything is found by structure. What extents and slice bounds must be for it is guarded. Starts
 * of slices and the padding are slots, so they may change from run to run.
 */
#include "fuser/fuse.h"

#include <string.h>

/* A gradient of weights that has more rows than FEW, up to SOME, is faster with a stored matrix: to
 * pack the transposed windows takes as long as the product. It takes 1.3 times as long for two
 * groups of 16 rows. Few rows are computed without packing (runtime/matmul/direct.c). */
enum { FEW_ROWS = 4, SOME_ROWS = 32 };

/* Counts for each node. */
typedef struct readers {
    uint32_t *all;   /* live nodes that read its value, and roots */
    uint32_t *taken; /* those of them that are part of windows */
} readers;

static bool windows_has_op(const pass *p, uint32_t n, df_op op)
{
    return node_of(p, n)->op == op;
}

static deft_status count_readers(pass *p, readers *r)
{
    const uint32_t n = p->t->n_nodes;
    r->all = df_arena_new(&p->tmp, uint32_t, n + 1);
    r->taken = df_arena_new(&p->tmp, uint32_t, n + 1);
    if (!r->all || !r->taken) return df_fail_mem(p->diag, "fuser", n * sizeof *r->all);
    for (uint32_t i = 0; i < p->t->n_roots; i++) r->all[p->t->roots[i].node]++;
    for (uint32_t i = 0; i < n; i++) {
        const df_node *const x = node_of(p, i);
        for (uint32_t s = 0; s < x->n_src && p->live[i] & 1; s++)
            if (x->op != DF_OP_update || s != 2) r->all[x->src[s].i]++;
    }
    return DEFT_OK;
}

/* ---- what a product reads ---- */

static df_slot start_of(pass *p, uint32_t slice, uint32_t axis)
{
    if (slice == DF_NONE || p->full[slice] >> axis & 1) return SLOT_ZERO;
    return df_fuse_arg(p, node_of(p, slice)->arg + 2 * axis);
}

static df_slot step_of(pass *p, uint32_t slice, uint32_t axis)
{
    if (slice == DF_NONE || (p->full[slice] | p->unit[slice]) >> axis & 1) return SLOT_ONE;
    return df_fuse_arg(p, node_of(p, slice)->arg + 2 * axis + 1);
}

static bool equal_now(const pass *p, df_slot a, df_slot b)
{
    return p->now.at[a.i] == p->now.at[b.i];
}

static void guard_equal(pass *p, df_slot a, df_slot b)
{
    if (!df_same_slot(a, b)) df_fuse_guard_slots(p, DF_GUARD_equal, a, b);
}

/* Whether update n writes row t of the taps of its base, and n's value is a slice of all channels
 * and images. Sets *slice. */
static bool is_tap(pass *p, uint32_t n, int64_t t, uint32_t *slice)
{
    const df_node *const x = node_of(p, n);
    if (x->op != DF_OP_update || x->rank != 5) return false;
    const uint32_t place = x->src[2].i, value = x->src[1].i;
    const bool fits =
        windows_has_op(p, place, DF_OP_slice) && node_of(p, place)->src[0].i == x->src[0].i &&
        windows_has_op(p, value, DF_OP_unsqueeze) && node_of(p, value)->attr == 1u << 1;
    if (!fits || ((p->full[place] | 1u << 1) & 31u) != 31u) return false;
    const df_slot at = start_of(p, place, 1);
    *slice = node_of(p, value)->src[0].i;
    return p->now.at[at.i] == t && windows_has_op(p, *slice, DF_OP_slice) &&
           (p->full[*slice] & 3u) == 3u;
}

/* Fills in the taps of joined windows. Returns false when node is something else. */
static bool match_join(pass *p, uint32_t node, windows *w)
{
    int64_t n_taps = 0;
    uint32_t base = node;
    for (; windows_has_op(p, base, DF_OP_update); base = node_of(p, base)->src[0].i) n_taps++;
    const df_node *const x = node_of(p, node);
    if (n_taps < 1 || x->rank != 5 || !windows_has_op(p, base, DF_OP_empty)) return false;
    const df_slot rows = df_fuse_node_extent(p, base, 1);
    w->n_taps = (uint32_t)n_taps;
    w->slice = df_arena_new(&p->tmp, uint32_t, w->n_taps);
    if (!w->slice || p->now.at[rows.i] != n_taps) return false;
    uint32_t at = node;
    for (uint32_t t = w->n_taps; t-- > 0; at = node_of(p, at)->src[0].i)
        if (!is_tap(p, at, t, &w->slice[t])) return false;
    w->images = node_of(p, w->slice[0])->src[0].i;
    for (uint32_t t = 0; t < w->n_taps; t++) {
        if (node_of(p, w->slice[t])->src[0].i != w->images) return false;
        for (uint32_t j = 2; j < 4; j++)
            if (!equal_now(p, step_of(p, w->slice[t], j), step_of(p, w->slice[0], j))) return false;
    }
    /* Everything fits now. These keep it so: */
    df_fuse_guard_slot(p, DF_GUARD_is_const, rows, n_taps);
    at = node;
    for (uint32_t t = w->n_taps; t-- > 0; at = node_of(p, at)->src[0].i) {
        const df_slot row = start_of(p, node_of(p, at)->src[2].i, 1);
        if (p->slots.at[row.i].op != DF_SLOT_const)
            df_fuse_guard_slot(p, DF_GUARD_is_const, row, t);
        for (uint32_t j = 2; j < 4; j++)
            guard_equal(p, step_of(p, w->slice[t], j), step_of(p, w->slice[0], j));
    }
    return true;
}

/* Whether update n surrounds an image with zeros on its last two axes. */
static bool is_padding(const pass *p, uint32_t n)
{
    if (!df_surround_is(p, n) || node_of(p, n)->rank != 4) return false;
    const uint32_t place = node_of(p, n)->src[2].i, number = df_surround_number(p, n);
    if ((p->full[place] & 3u) != 3u) return false;
    return windows_has_op(p, number, DF_OP_cst) && node_of(p, number)->attr == 0;
}

/* Whether strides on whatever `node` is a view of can show it. */
static bool has_strides(pass *p, uint32_t node)
{
    map_id map = df_map_identity(p, node_of(p, node)->rank);
    for (; class_of_op(p, node) == DF_CLASS_view; node = node_of(p, node)->src[0].i) {
        bool self;
        map = df_map_view(p, node, map, &self);
        if (IS_NONE(map)) return false;
    }
    return true;
}

/* Fills in the only tap of windows of one element. */
static bool match_single(pass *p, uint32_t node, windows *w)
{
    if (node_of(p, node)->rank != 4 || has_strides(p, w->reshaped)) return false;
    const bool sliced = windows_has_op(p, node, DF_OP_slice);
    if (sliced && (p->full[node] & 3u) != 3u) return false;
    w->n_taps = 1;
    w->slice = df_arena_new(&p->tmp, uint32_t, 1);
    if (!w->slice) return false;
    w->slice[0] = sliced ? node : DF_NONE;
    w->images = sliced ? node_of(p, node)->src[0].i : node;
    return windows_has_op(p, w->images, DF_OP_permute) || is_padding(p, w->images);
}

/* Whether permute n exchanges the last two axes alone. */
static bool is_transposition(const pass *p, uint32_t n)
{
    const df_node *const x = node_of(p, n);
    return x->op == DF_OP_permute && x->attr == (x->rank == 2 ? 0x01u : 0x120u);
}

static bool has_some_rows(pass *p, uint32_t n)
{
    const df_slot rows = df_fuse_axis_extent(p, n, node_of(p, n)->rank - 2u);
    return p->now.at[rows.i] > FEW_ROWS && p->now.at[rows.i] <= SOME_ROWS;
}

/* Whether operand 1 of product n shows windows. */
static bool windows_match(pass *p, uint32_t n, windows *w)
{
    uint32_t node = node_of(p, n)->src[1].i;
    const uint32_t rank = node_of(p, node)->rank;
    if (rank != 2 && rank != 3) return false;
    *w = (windows){ .product = n, .is_transposed = is_transposition(p, node) };
    if (w->is_transposed && has_some_rows(p, n)) return false;
    if (w->is_transposed) node = node_of(p, node)->src[0].i;
    if (!windows_has_op(p, node, DF_OP_reshape)) return false;
    w->reshaped = node;
    w->joined = node_of(p, node)->src[0].i;
    const uint32_t last = node_of(p, w->joined)->rank - 1u;
    if (last + 1 != 4 && last + 1 != 5) return false;
    df_slot columns = SLOT_ONE;
    for (uint32_t j = last - 2; j <= last; j++)
        columns = df_fuse_mul(p, columns, df_fuse_axis_extent(p, w->joined, j));
    const df_slot given = df_fuse_axis_extent(p, node, rank - 1);
    if (p->st != DEFT_OK || !equal_now(p, columns, given)) return false;
    if (!(last == 4 ? match_join(p, w->joined, w) : match_single(p, w->joined, w))) return false;
    guard_equal(p, columns, given);
    return p->st == DEFT_OK;
}

/* ---- what need not be stored ---- */

/* Notes one reader of node that is part of windows. Returns true when all of them are. */
static bool take(readers *r, uint32_t node, uint32_t n)
{
    r->taken[node] += n;
    return r->taken[node] == r->all[node];
}

/* Notes that windows read images. When all readers of the padding do, it is absorbed. */
static void take_padding(pass *p, readers *r, uint32_t images)
{
    uint32_t padded = images;
    if (windows_has_op(p, padded, DF_OP_permute)) {
        if (node_of(p, padded)->attr != 0x3201) return;
        padded = node_of(p, padded)->src[0].i;
        if (!take(r, padded, 1)) return;
    }
    if (is_padding(p, padded)) p->absorbed[padded] = 1;
}

/* Notes that a product reads windows w. When all readers of the joined windows do, they are
 * absorbed. Windows of several products may share slices. */
static void take_matrix(pass *p, readers *r, const windows *w)
{
    const uint32_t read = node_of(p, w->product)->src[1].i;
    if (w->is_transposed && !take(r, read, 1)) return;
    if (!take(r, w->reshaped, 1) || !take(r, w->joined, 1)) return;
    if (!windows_has_op(p, w->joined, DF_OP_update)) {
        if (w->joined == w->images || take(r, w->images, 1)) take_padding(p, r, w->images);
        return;
    }
    for (uint32_t at = w->joined; windows_has_op(p, at, DF_OP_update);
         at = node_of(p, at)->src[0].i)
        if (at != w->joined && r->all[at] != 1) return;
    for (uint32_t at = w->joined; windows_has_op(p, at, DF_OP_update);
         at = node_of(p, at)->src[0].i) {
        const uint32_t value = node_of(p, at)->src[1].i, slice = node_of(p, value)->src[0].i;
        p->absorbed[at] = 1;
        if (take(r, value, 1) && take(r, slice, 1) && take(r, w->images, 1))
            take_padding(p, r, w->images);
    }
}

deft_status df_fuse_find_windows(pass *p)
{
    readers r;
    p->absorbed = df_arena_new(&p->tmp, uint8_t, p->t->n_nodes + 1);
    if (!p->absorbed) return df_fail_mem(p->diag, "fuser", p->t->n_nodes);
    if (!p->fuse || !p->lim->windows) return DEFT_OK;
    for (uint32_t n = 0; n < p->t->n_nodes && p->st == DEFT_OK; n++) {
        windows w;
        if (!(p->live[n] & 1) || class_of_op(p, n) != DF_CLASS_contract) continue;
        if (!windows_match(p, n, &w)) continue;
        if (!df_vec_push(p->mem, &p->windows, w)) return df_fail_mem(p->diag, "fuser", sizeof w);
    }
    if (p->st != DEFT_OK || p->windows.n == 0) return p->st;
    const deft_status st = count_readers(p, &r);
    for (size_t i = 0; i < p->windows.n && st == DEFT_OK; i++)
        take_matrix(p, &r, &p->windows.at[i]);
    /* Windows that are stored for another reader are read as they lie. */
    size_t kept = 0;
    for (size_t i = 0; i < p->windows.n && st == DEFT_OK; i++) {
        const windows w = p->windows.at[i];
        if (windows_has_op(p, w.joined, DF_OP_update) && !p->absorbed[w.joined]) continue;
        p->windows.at[kept++] = w;
    }
    p->windows.n = kept;
    return st;
}

/* ---- the operand ---- */

uint32_t df_fuse_windows_of(const pass *p, uint32_t n)
{
    for (uint32_t i = 0; i < p->windows.n; i++)
        if (p->windows.at[i].product == n) return i;
    return DF_NONE;
}

uint32_t df_fuse_windows_begin(pass *p, windows *w)
{
    for (uint32_t j = 0; j < 2; j++) {
        w->before[j] = SLOT_ZERO;
        w->extent[j] = df_fuse_axis_extent(p, w->images, 2 + j);
    }
    return w->images;
}

bool df_fuse_windows_padding(pass *p, windows *w, uint32_t node, map_id map)
{
    if (!p->absorbed[node]) return false;
    const df_node *const x = node_of(p, node);
    (void)map;
    df_assert(map_at(p, map)->axis[2] == 2 && map_at(p, map)->axis[3] == 3);
    for (uint32_t j = 0; j < 2; j++) {
        w->before[j] = start_of(p, x->src[2].i, 2 + j);
        w->extent[j] = df_fuse_axis_extent(p, x->src[1].i, 2 + j);
    }
    return true;
}

deft_status df_fuse_windows_seg(pass *p, const windows *w, df_seg *seg)
{
    df_windows *const to = df_arena_new(&p->plan->arena, df_windows, 1);
    df_slot *const tap = df_arena_new(&p->plan->arena, df_slot, 2 * (size_t)w->n_taps);
    if (!to || !tap) return df_fail_mem(p->diag, "plan", 2 * w->n_taps * sizeof *tap);
    const uint32_t last = node_of(p, w->joined)->rank - 1u;
    *to = (df_windows){ .is_transposed = w->is_transposed, .n_taps = w->n_taps, .tap = tap };
    for (uint32_t j = 0; j < 2; j++) {
        to->step[j] = step_of(p, w->slice[0], 2 + j);
        to->before[j] = w->before[j];
        to->extent[j] = w->extent[j];
        to->out[j] = df_fuse_axis_extent(p, w->joined, last - 1 + j);
        for (uint32_t t = 0; t < w->n_taps; t++) tap[2 * t + j] = start_of(p, w->slice[t], 2 + j);
    }
    seg->windows = to;
    return p->st;
}
