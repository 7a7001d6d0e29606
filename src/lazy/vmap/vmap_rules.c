/* SPDX-License-Identifier: Apache-2.0
 *
 * How each op takes an axis of examples, which is the first axis. An operand that is the
 * same for all examples is broadcast where the op broadcasts, else expanded with stride
 * 0. Nothing is copied. When each example has its own indices, slices become elements.
 * gather and scatter_add have the examples as one more axis, add in the same order, and
 * refuse the same indices.
 */
#include "lazy/vmap/vmap.h"
#include "lazy/calls/views.h"

#include <string.h>

/* ---- the table of rules ---- */

static const struct {
    df_batch_rule rule;
    const char *signature;
} rules[DF_N_OPS] = {
#define OP(name, n_src, class, facets) [DF_OP_##name] = { facets },
#define BATCH(how, what) DF_BATCH_##how(what)
#define DF_BATCH_rule(what) df_batch_##what, NULL
#define DF_BATCH_signature(what) df_batch_signature, what
#include "ops/ops.def"
#undef DF_BATCH_rule
#undef DF_BATCH_signature
};

df_batch_rule df_batch_rule_of(df_op op)
{
    return rules[op].rule;
}

uint32_t df_batch_none(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    (void)w, (void)k, (void)src, (void)batched;
    df_unreachable();
}

/* ---- short forms ---- */

/* Records record k again, with other operands, attribute and extents. */
static uint32_t with(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t attr,
                     const int64_t *args, uint32_t n_args, const df_shape *out)
{
    const df_node n = df_vmap_node_at(w, k);
    for (uint32_t i = 0; i < n.n_src; i++)
        if (src[i] == DF_BAD) return DF_BAD;
    return df_append(w->cx, (df_op)n.op, (deft_dtype)n.dtype, attr, src, args, n_args, out,
                     w->site);
}

static uint32_t with_attr(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t attr)
{
    return with(w, k, src, attr, NULL, 0, NULL);
}

/* Sets out[] to the operands with an axis of examples. */
static void spread_all(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched, uint32_t *out)
{
    for (uint32_t i = 0; i < df_vmap_node_at(w, k).n_src; i++)
        out[i] = batched >> i & 1 ? src[i] : df_vmap_spread(w, src[i]);
}

/* ---- signatures ---- */

/* The number of axes that a signature gives operand i. In "(m,k),(k,n)->(m,n)" number 2
 * is the result. */
static uint32_t core_axes(const char *signature, uint32_t i)
{
    uint32_t n = 0;
    const char *at = strchr(signature, '(');
    while (i--) at = strchr(at + 1, '(');
    for (at++; *at != ')'; at++) n += n == 0 || *at == ',';
    return n;
}

/* The matrix that record a broadcasts; DF_BAD when there is none. */
static uint32_t unmapped_matrix(const df_vmap *w, uint32_t a)
{
    const df_node n = df_vmap_node_at(w, a);
    if (n.rank == 2) return a;
    return n.op == DF_OP_expand && df_vmap_node_at(w, n.src[0].i).rank == 2 ? n.src[0].i : DF_BAD;
}

/* a [..., n] reshaped to [all rows, n]. A trailing axis of 1 may be dropped. */
static uint32_t flatten_mapped_rows(df_vmap *w, uint32_t a, int64_t n)
{
    const df_shape s = df_vmap_shape_of(w, a);
    df_shape flat = { .rank = 2, .dim = { 1, n } };
    const uint32_t last = s.dim[s.rank - 1] == n ? s.rank - 1 : s.rank - 2;
    for (uint32_t i = 0; i < last; i++) flat.dim[0] *= s.dim[i];
    return df_vmap_view(w, DF_OP_reshape, a, 0, &flat);
}

/* A product in which one factor is the same matrix for all examples becomes one product
 * of all their rows. For x w these are the rows of x. For w x they are the rows of x
 * transposed, when x is a column. The sums are the same, term for term. DF_NONE: it is no
 * such product. */
static uint32_t shared_product(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const df_shape all = df_vmap_shape_for_all(w, k);
    const bool from_left = batched == 2;
    if (batched == 3 || (from_left && all.dim[all.rank - 1] != 1)) return DF_NONE;
    uint32_t one = unmapped_matrix(w, src[!from_left]);
    if (one == DF_BAD) return DF_NONE;
    const df_shape s = df_vmap_shape_of(w, one);
    if (from_left) one = df_vmap_view(w, DF_OP_permute, one, 0x01, NULL);
    const uint32_t factors[2] = { flatten_mapped_rows(w, src[from_left], s.dim[from_left]), one };
    return df_vmap_view(w, DF_OP_reshape, with_attr(w, k, factors, 0), 0, &all);
}

uint32_t df_batch_signature(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const df_node n = df_vmap_node_at(w, k);
    const char *const signature = rules[n.op].signature;
    const uint32_t loops = n.rank - core_axes(signature, n.n_src);
    uint32_t out[3], cores = 0;
    for (uint32_t i = 0; i < n.n_src; i++) cores += core_axes(signature, i);
    if (n.op == DF_OP_matmul) {
        const uint32_t product = shared_product(w, k, src, batched);
        if (product != DF_NONE) return product;
    }
    for (uint32_t i = 0; i < n.n_src; i++) {
        const uint32_t mine = df_vmap_node_at(w, n.src[i].i).rank - core_axes(signature, i);
        out[i] = batched >> i & 1 ? df_vmap_lift(w, src[i], loops - mine)
                 : cores          ? df_vmap_spread(w, src[i])
                                  : src[i];
    }
    return with_attr(w, k, out, n.attr);
}

/* ---- axes in attributes ---- */

uint32_t df_batch_axes(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const uint32_t attr = df_vmap_node_at(w, k).attr, keep = attr & DF_REDUCE_KEEPDIMS;
    (void)batched;
    return with_attr(w, k, src, (attr & 255u) << 1 | keep);
}

/* The attribute is one axis, which all operands have. */
uint32_t df_batch_axis(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    uint32_t all[3];
    spread_all(w, k, src, batched, all);
    return with_attr(w, k, all, df_vmap_node_at(w, k).attr + 1);
}

/* The number is the same for all examples, and follows from the extents of one. */
uint32_t df_batch_count(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const df_shape s = df_vmap_shape_of(w, k);
    return with(w, k, src, df_vmap_node_at(w, k).attr << batched, NULL, 0, &s);
}

/* One draw for all examples, in which each example has its own elements. */
uint32_t df_batch_random(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const df_shape all = df_vmap_shape_for_all(w, k);
    const df_node n = df_vmap_node_at(w, k);
    int64_t args[2];
    (void)batched;
    memcpy(args, w->cx->rec.args + n.arg, sizeof args);
    df_recording_draw_again(w->cx, n.arg, w->cx->rec.n_args);
    return with(w, k, src, n.attr, args, 2, &all);
}

/* ---- views ---- */

uint32_t df_batch_slice(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const df_shape all = df_vmap_shape_for_all(w, k);
    const df_node n = df_vmap_node_at(w, k);
    int64_t args[2 * DEFT_MAX_RANK] = { 0, 1 };
    (void)batched;
    memcpy(args + 2, w->cx->rec.args + n.arg, 2 * (size_t)n.rank * sizeof *args);
    return with(w, k, src, 0, args, 2 * all.rank, &all);
}

uint32_t df_batch_permute(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const df_node n = df_vmap_node_at(w, k);
    uint32_t attr = 0;
    (void)batched;
    for (uint32_t i = 0; i < n.rank; i++) attr |= ((n.attr >> 4 * i & 15u) + 1) << 4 * (i + 1);
    return with_attr(w, k, src, attr);
}

uint32_t df_batch_expand(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const df_shape all = df_vmap_shape_for_all(w, k);
    const uint32_t lifted = df_vmap_lift(w, src[0], all.rank - df_vmap_node_at(w, src[0]).rank);
    (void)batched;
    return with(w, k, &lifted, 0, NULL, 0, &all);
}

uint32_t df_batch_reshape(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const df_shape all = df_vmap_shape_for_all(w, k);
    (void)batched;
    return with(w, k, src, 0, NULL, 0, &all);
}

uint32_t df_batch_diagonal(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const df_shape all = df_vmap_shape_for_all(w, k);
    const df_node n = df_vmap_node_at(w, k);
    const int64_t offset = w->cx->rec.args[n.arg];
    (void)batched;
    return with(w, k, src, n.attr + 0x11, &offset, 1, &all);
}

/* ---- indexing ---- */

/* Indices [examples, ...] into axis `axis` of record a, which is for all examples, in the
 * form that gather takes. Their axes behind the examples become one axis at `axis`, and
 * they are broadcast along the others. */
static uint32_t slots(df_vmap *w, uint32_t indices, uint32_t a, uint32_t axis)
{
    const df_shape at = df_vmap_shape_of(w, indices);
    df_shape thin = { .rank = df_vmap_node_at(w, a).rank }, all = df_vmap_shape_of(w, a);
    for (uint32_t i = 0; i < thin.rank; i++) thin.dim[i] = 1;
    for (uint32_t i = 1; i < at.rank; i++) thin.dim[axis] *= at.dim[i];
    thin.dim[0] = w->extent;
    all.dim[axis] = thin.dim[axis];
    return df_expand_to(w->cx, df_vmap_view(w, DF_OP_reshape, indices, 0, &thin), &all, w->site);
}

static uint32_t on_slots(df_vmap *w, df_op op, const uint32_t *src, uint32_t axis)
{
    for (uint32_t i = 0; i < df_op_infos[op].n_src; i++)
        if (src[i] == DF_BAD) return DF_BAD;
    return df_append(w->cx, op, df_dtype_at(w->cx, src[0]), axis, src, NULL, 0, NULL, w->site);
}

uint32_t df_batch_take(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const uint32_t axis = df_vmap_node_at(w, k).attr;
    if (batched == 1) return with_attr(w, k, src, axis + 1);
    if (batched == 2) return df_vmap_move(w, with_attr(w, k, src, axis), axis, 0);
    const df_shape all = df_vmap_shape_for_all(w, k);
    const uint32_t from[2] = { src[0], slots(w, src[1], src[0], axis + 1) };
    return df_vmap_view(w, DF_OP_reshape, on_slots(w, DF_OP_gather, from, axis + 1), 0, &all);
}

uint32_t df_batch_index_add(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const uint32_t axis = df_vmap_node_at(w, k).attr + 1;
    const uint32_t to = batched & 1 ? src[0] : df_vmap_spread(w, src[0]);
    const uint32_t values = batched & 4 ? src[2] : df_vmap_spread(w, src[2]);
    if (to == DF_BAD || values == DF_BAD) return DF_BAD;
    if (!(batched & 2)) return with_attr(w, k, (const uint32_t[]){ to, src[1], values }, axis);
    const uint32_t at = slots(w, src[1], to, axis);
    if (at == DF_BAD) return DF_BAD;
    const df_shape s = df_vmap_shape_of(w, at);
    const uint32_t parts[3] = { to, at, df_vmap_view(w, DF_OP_reshape, values, 0, &s) };
    const df_scatter_how how = df_scatter_how_of((df_op)df_vmap_node_at(w, k).op);
    return on_slots(w, df_scatter_op(false, how), parts, axis);
}

/* Records the views from record `low` up to `place` again, on a, which is `low` for all
 * examples. */
static uint32_t place_on(df_vmap *w, uint32_t low, uint32_t place, uint32_t a)
{
    uint32_t chain[32], n = 0;
    for (uint32_t v = place; v != low; v = df_vmap_node_at(w, v).src[0].i) {
        if (n == DF_LEN(chain)) {
            df_error(w->cx, DEFT_E_LIMIT, "vmap: more than %zu views of views", DF_LEN(chain));
            return DF_BAD;
        }
        chain[n++] = v;
    }
    while (n-- && a != DF_BAD) a = rules[df_vmap_node_at(w, chain[n]).op].rule(w, chain[n], &a, 1);
    return a;
}

/* The base of an update, for all examples. Memory that updates will fill stays empty. */
static uint32_t base_for_all(df_vmap *w, uint32_t a)
{
    const df_node n = df_vmap_node_at(w, a);
    if (n.op != DF_OP_empty) return df_vmap_spread(w, a);
    const df_shape all = df_vmap_shape_for_all(w, a);
    return df_append(w->cx, DF_OP_empty, (deft_dtype)n.dtype, 0, NULL, NULL, 0, &all, w->site);
}

uint32_t df_batch_update(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const df_node n = df_vmap_node_at(w, k);
    const uint32_t place_flags = df_vmap_flags(w, n.src[2].i);
    uint32_t out[3] = { src[0], src[1], src[2] };
    /* The gradients of loops and branches need the place of an update to be among the
     * copies. */
    if (!batched && !(place_flags & (DF_VMAP_BATCHED | DF_VMAP_MOVED)))
        out[2] = df_rebase(w->cx, n.src[2].i, n.src[0].i, src[0]);
    if (batched && !(batched & 2)) out[1] = df_vmap_spread(w, src[1]);
    if (batched && !(batched & 1)) {
        out[0] = base_for_all(w, src[0]);
        out[2] = place_on(w, n.src[0].i, n.src[2].i, out[0]);
    }
    return with_attr(w, k, out, 0);
}

/* Rows are along the last axis, so each example has more rows. */
uint32_t df_batch_topk(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    const df_shape all = df_vmap_shape_for_all(w, k);
    const df_node n = df_vmap_node_at(w, k);
    const int64_t first = w->cx->rec.args[n.arg];
    (void)batched;
    return df_append(w->cx, DF_OP_topk, DEFT_I64, n.attr, src, &first, 1, &all, w->site);
}

/* Positions in many vectors. Each element that is not 0 gets a position of its own, by
 * counting, to which its index is added. The other elements, and those beyond the room,
 * go to a last position, which is sliced off. */
uint32_t df_batch_which(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    deft_ctx *const cx = w->cx;
    const uintptr_t site = w->site;
    const bool zeros = df_vmap_node_at(w, k).attr & DF_WHICH_ZEROS;
    const df_shape all = df_vmap_shape_for_all(w, k), in = df_vmap_shape_of(w, src[0]);
    const int64_t start[2] = { 0, 0 }, step[2] = { 1, 1 };
    df_shape room = all;
    (void)batched;
    room.dim[1]++;
    const uint32_t is = df_to(cx, src[0], DEFT_BOOL, site), as_int = df_to(cx, is, DEFT_I64, site);
    const uint32_t one = df_cst(cx, DEFT_I64, 1, site), zero = df_cst(cx, DEFT_I64, 0, site);
    const uint32_t end = df_number_i(cx, "vmap", DEFT_I64, all.dim[1], site);
    if (as_int == DF_BAD || one == DF_BAD || zero == DF_BAD || end == DF_BAD) return DF_BAD;
    const uint32_t so_far = df_append(cx, DF_OP_cumsum, DEFT_I64, 1, &as_int, NULL, 0, NULL, site);
    const uint32_t at = df_map2(cx, DF_OP_sub, so_far, one, site);
    const uint32_t fits =
        df_map2(cx, DF_OP_bitwise_and, is, df_map2(cx, DF_OP_lt, at, end, site), site);
    uint32_t index = df_iota_node(cx, &in, 1, site);
    if (!zeros) index = df_map2(cx, DF_OP_add, index, one, site);
    const uint32_t parts[3] = {
        df_expand_to(cx, zeros ? zero : df_cst(cx, DEFT_I64, -1, site), &room, site),
        df_where(cx, fits, at, end, site), df_where(cx, fits, index, zero, site)
    };
    return df_slice_node(cx, on_slots(w, DF_OP_scatter_add, parts, 1), start, step, &all, site);
}

/* The elements at the positions of each example. Unused rows have the position -1. */
uint32_t df_batch_compress(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched)
{
    deft_ctx *const cx = w->cx;
    const df_shape n = df_vmap_shape_of(w, src[1]), all = df_vmap_shape_for_all(w, k);
    const df_shape room = { .rank = 1, .dim = { all.dim[1] } };
    const bool each = batched & 2; /* each example has a mask */
    const uint32_t zero = df_cst(cx, df_dtype_at(cx, src[0]), 0, w->site);
    const uint32_t at =
        each ? df_batch_which(w, k, src + 1, 1)
             : df_append(cx, DF_OP_which, DEFT_I64, 0, src + 1, NULL, 0, &room, w->site);
    if (at == DF_BAD || zero == DF_BAD) return DF_BAD;
    if (n.dim[n.rank - 1] == 0) return df_expand_to(cx, zero, &all, w->site);
    const uint32_t both[2] = { batched & 1 ? src[0] : df_vmap_spread(w, src[0]), at };
    if (both[0] == DF_BAD) return DF_BAD;
    const uint32_t found = df_append(cx, each ? DF_OP_gather : DF_OP_take, df_dtype_at(cx, src[0]),
                                     1, both, NULL, 0, NULL, w->site);
    const uint32_t is = df_map2(cx, DF_OP_le, df_cst(cx, DEFT_I64, 0, w->site), at, w->site);
    if (found == DF_BAD || is == DF_BAD) return DF_BAD;
    return df_where(cx, is, found, zero, w->site);
}
