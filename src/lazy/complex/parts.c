/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking complex records apart, and joining them (parts.h).
 */
#include "lazy/complex/parts.h"

#include "lazy/core/annotations.h"

#include <string.h>

enum { MOST_VIEWS = 32 }; /* views of views that are looked through */

static const df_node *node_at(const deft_ctx *cx, uint32_t k)
{
    return &cx->rec.nodes[k];
}

static int64_t last_extent(const deft_ctx *cx, uint32_t k)
{
    const uint32_t rank = node_at(cx, k)->rank;
    return rank ? df_rec_extents(&cx->rec, k)[rank - 1] : 0;
}

/* The record that update u writes to index `at` of the last axis, for all indices of the other
 * axes. DF_NONE when u is no such update. */
static uint32_t piece_of(const deft_ctx *cx, uint32_t u, int64_t at)
{
    const df_node *const n = node_at(cx, u);
    if (n->op != DF_OP_update) return DF_NONE;
    const df_node *const value = node_at(cx, n->src[1].i), *const place = node_at(cx, n->src[2].i);
    const uint32_t last = n->rank - 1u;
    if (value->op != DF_OP_unsqueeze || value->attr != 1u << last || place->op != DF_OP_slice ||
        place->src[0].i != n->src[0].i)
        return DF_NONE;
    const int64_t *const args = cx->rec.args + place->arg;
    const int64_t *const to = df_rec_extents(&cx->rec, u);
    const int64_t *const from = df_rec_extents(&cx->rec, n->src[1].i);
    for (uint32_t i = 0; i < last; i++)
        if (args[2 * i] != 0 || args[2 * i + 1] != 1 || to[i] != from[i]) return DF_NONE;
    return args[2 * last] == at && args[2 * last + 1] == 1 ? value->src[0].i : DF_NONE;
}

/* The pieces of `node` when it is a join of two. */
static bool joined_pieces(const deft_ctx *cx, uint32_t node, df_parts *out)
{
    const uint32_t im = piece_of(cx, node, 1);
    if (im == DF_NONE) return false;
    const uint32_t before = node_at(cx, node)->src[0].i;
    const uint32_t re = piece_of(cx, before, 0);
    if (re == DF_NONE || node_at(cx, node_at(cx, before)->src[0].i)->op != DF_OP_empty)
        return false;
    *out = (df_parts){ re, im, false };
    return true;
}

/* Whether view k leaves the last axis where it is, with its two elements. */
static bool keeps_pairs(const deft_ctx *cx, uint32_t k)
{
    const df_node *const n = node_at(cx, k);
    if (df_op_infos[n->op].cls != DF_CLASS_view || last_extent(cx, k) != 2 ||
        last_extent(cx, n->src[0].i) != 2)
        return false;
    const uint32_t last = n->rank - 1u, from = node_at(cx, n->src[0].i)->rank - 1u;
    const int64_t *const args = cx->rec.args + n->arg;
    if (n->op == DF_OP_slice) return args[2 * last] == 0 && args[2 * last + 1] == 1;
    if (n->op == DF_OP_permute) return (n->attr >> 4 * last & 15u) == from;
    if (n->op == DF_OP_unsqueeze) return !(n->attr >> last & 1u);
    return n->op == DF_OP_expand || n->op == DF_OP_squeeze || n->op == DF_OP_reshape;
}

/* View k of a record of pairs, recorded again on one part of that record. */
static uint32_t view_of_piece(deft_ctx *cx, uint32_t k, uint32_t piece, uintptr_t site)
{
    const df_node n = *node_at(cx, k);
    int64_t args[2 * DEFT_MAX_RANK];
    df_shape s;
    if (piece == DF_BAD) return DF_BAD;
    df_rec_shape(&cx->rec, k, &s);
    s.rank--;
    const uint32_t n_args = n.op == DF_OP_slice ? 2 * s.rank : 0;
    if (n_args) memcpy(args, cx->rec.args + n.arg, n_args * sizeof *args);
    const uint32_t attr = n.op == DF_OP_permute ? n.attr & ((1u << 4 * s.rank) - 1u) : n.attr;
    return df_append(cx, (df_op)n.op, (deft_dtype)n.dtype, attr, &piece, args, n_args, &s, site);
}

uint32_t df_part_view(deft_ctx *cx, uint32_t node, uint32_t which, uintptr_t site)
{
    if (node == DF_BAD) return DF_BAD;
    int64_t start[DEFT_MAX_RANK] = { 0 }, step[DEFT_MAX_RANK];
    df_shape s;
    df_rec_shape(&cx->rec, node, &s);
    const uint32_t last = s.rank - 1;
    for (uint32_t i = 0; i < s.rank; i++) step[i] = 1;
    start[last] = which;
    s.dim[last] = 1;
    const uint32_t part = df_slice_node(cx, node, start, step, &s, site);
    if (part == DF_BAD) return DF_BAD;
    return df_append(cx, DF_OP_squeeze, df_dtype_at(cx, part), 1u << last, &part, NULL, 0, NULL,
                     site);
}

/* `piece` as part `which` of `node`: a record of its own, a view that changes nothing. Gradients
 * find `node` by it. */
static uint32_t part_read(deft_ctx *cx, uint32_t node, uint32_t which, uint32_t piece,
                          uintptr_t site)
{
    if (piece == DF_BAD) return DF_BAD;
    const deft_dtype t = df_dtype_at(cx, piece);
    const uint32_t k = df_append(cx, DF_OP_unsqueeze, t, 0, &piece, NULL, 0, NULL, site);
    const df_part_read r = { .record = k, .owner = node, .which = which };
    return k != DF_BAD && df_part_read_add(cx, r) ? k : DF_BAD;
}

df_parts df_parts_of(deft_ctx *cx, uint32_t node, uintptr_t site)
{
    df_parts p = { DF_BAD, DF_BAD, false };
    if (node == DF_BAD) return p;
    df_assert(last_extent(cx, node) == 2);
    uint32_t chain[MOST_VIEWS], n = 0, k = node;
    while (n < MOST_VIEWS && keeps_pairs(cx, k)) {
        chain[n++] = k;
        k = node_at(cx, k)->src[0].i;
    }
    if (!joined_pieces(cx, k, &p))
        return (df_parts){ df_part_view(cx, node, 0, site), df_part_view(cx, node, 1, site),
                           false };
    while (n--) {
        p.re = view_of_piece(cx, chain[n], p.re, site);
        p.im = view_of_piece(cx, chain[n], p.im, site);
    }
    p.re = part_read(cx, node, 0, p.re, site);
    p.im = part_read(cx, node, 1, p.im, site);
    return p;
}

/* The shape to which the shapes of two records broadcast. Returns false with the error recorded. */
static bool common_shape(deft_ctx *cx, uint32_t a, uint32_t b, df_shape *out)
{
    df_shape s[2];
    char text[2][DF_SHAPE_TEXT];
    df_rec_shape(&cx->rec, a, &s[0]);
    df_rec_shape(&cx->rec, b, &s[1]);
    const bool longer = s[1].rank > s[0].rank;
    *out = s[longer];
    const df_shape *const other = &s[!longer];
    for (uint32_t i = 0; i < other->rank; i++) {
        int64_t *const dim = &out->dim[out->rank - 1 - i];
        const int64_t d = other->dim[other->rank - 1 - i];
        if (d != *dim && d != 1 && *dim != 1) {
            df_error(cx, DEFT_E_SHAPE, "complex: the parts are %s and %s",
                     df_shape_text(&s[0], text[0], sizeof text[0]),
                     df_shape_text(&s[1], text[1], sizeof text[1]));
            return false;
        }
        if (d != 1) *dim = d;
    }
    return true;
}

uint32_t df_parts_join(deft_ctx *cx, df_parts p, uintptr_t site)
{
    if (p.re == DF_BAD) return DF_BAD;
    if (p.is_real) p.im = df_cst(cx, df_dtype_at(cx, p.re), 0, site);
    if (p.im == DF_BAD) return DF_BAD;
    const deft_dtype t = df_promote(df_dtype_at(cx, p.re), df_dtype_at(cx, p.im));
    df_shape s, own;
    if (!common_shape(cx, p.re, p.im, &s)) return DF_BAD;
    if (s.rank == DEFT_MAX_RANK) {
        df_error(cx, DEFT_E_LIMIT, "complex: %d axes; a complex tensor has at most %d",
                 DEFT_MAX_RANK, DEFT_MAX_RANK - 1);
        return DF_BAD;
    }
    uint32_t piece[2] = { df_to(cx, p.re, t, site), df_to(cx, p.im, t, site) };
    for (int i = 0; i < 2; i++) {
        if (piece[i] == DF_BAD) return DF_BAD;
        df_rec_shape(&cx->rec, piece[i], &own);
        if (!df_shape_equal(&own, &s)) piece[i] = df_expand_to(cx, piece[i], &s, site);
        if (piece[i] == DF_BAD) return DF_BAD;
        piece[i] = df_append(cx, DF_OP_unsqueeze, t, 1u << s.rank, &piece[i], NULL, 0, NULL, site);
        if (piece[i] == DF_BAD) return DF_BAD;
    }
    return df_join(cx, piece, 2, s.rank, site);
}

deft_tensor *df_parts_result(deft_ctx *cx, df_parts p, uintptr_t site)
{
    const uint32_t node = df_parts_join(cx, p, site);
    if (node == DF_BAD) return NULL;
    return df_result_faced(cx, node, df_face_for(df_complex_of(df_dtype_at(cx, node))));
}
