/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that consist of pieces: of slices of one tensor, and of updates that write
 * adjacent parts of an array.
 */
#include "lazy/calls/compose.h"
#include "lazy/grad/grad.h"
#include "lazy/calls/views.h"

uint32_t df_grad_add_place(df_grad *w, uint32_t x, uint32_t sum, uint32_t k, uint32_t g)
{
    deft_ctx *const cx = w->cx;
    const uint32_t base = sum == DF_BAD ? df_grad_zeros(cx, x, w->site) : sum;
    const uint32_t place = base == DF_BAD ? DF_BAD : df_append_like(cx, k, &base, w->site);
    const uint32_t value = sum == DF_BAD ? g : df_map2(cx, DF_OP_add, place, g, w->site);
    const uint32_t src[3] = { base, value, place };
    if (place == DF_BAD || value == DF_BAD) return DF_BAD;
    return df_append(cx, DF_OP_update, df_dtype_at(cx, x), 0, src, NULL, 0, NULL, w->site);
}

/* start_of: where slice k begins along axis. size_of: how many elements it has there. */
static int64_t start_of(const df_rec *r, uint32_t k, uint32_t axis)
{
    return r->args[r->nodes[k].arg + 2 * axis];
}

static int64_t size_of(const df_rec *r, uint32_t k, uint32_t axis)
{
    return df_rec_extents(r, k)[axis];
}

/* The axis along which slice k of x may be a piece: the slice is full along every other
 * axis, with step 1. Returns the rank when there is no such axis, or when the slice shows
 * all of x. */
static uint32_t cut_axis(const df_rec *r, uint32_t k, uint32_t x)
{
    const uint32_t rank = r->nodes[k].rank;
    uint32_t axis = rank;
    for (uint32_t i = 0; i < rank; i++) {
        if (r->args[r->nodes[k].arg + 2 * i + 1] != 1) return rank;
        if (size_of(r, k, i) == df_rec_extents(r, x)[i]) continue;
        if (axis != rank || size_of(r, k, i) == 0) return rank;
        axis = i;
    }
    return axis;
}

/* Sorts n pieces of x by their start along axis. Returns false when they overlap or do
 * not cover x. */
static bool lie_side_by_side(const df_rec *r, df_grad_piece *piece, size_t n, uint32_t x,
                             uint32_t axis)
{
    const int64_t all = df_rec_extents(r, x)[axis];
    int64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        if (cut_axis(r, piece[i].k, x) != axis || size_of(r, piece[i].k, axis) > all - end)
            return false;
        end += size_of(r, piece[i].k, axis);
    }
    if (end != all) return false;
    for (size_t i = 1; i < n; i++) {
        const df_grad_piece p = piece[i];
        size_t j = i;
        for (; j > 0 && start_of(r, piece[j - 1].k, axis) > start_of(r, p.k, axis); j--)
            piece[j] = piece[j - 1];
        piece[j] = p;
    }
    end = 0;
    for (size_t i = 0; i < n; i++) {
        if (start_of(r, piece[i].k, axis) != end) return false;
        end += size_of(r, piece[i].k, axis);
    }
    return true;
}

/* More pieces than this are written one after another, because sorting takes a step per
 * pair. */
#define MOST_PIECES 1024

uint32_t df_grad_join(df_grad *w, uint32_t x)
{
    deft_ctx *const cx = w->cx;
    const uintptr_t site = w->site;
    uint32_t sum = w->sum[x - w->from], first = DF_BAD;
    size_t n = 0;
    w->flags[x - w->from] &= (uint8_t)~DF_GRAD_PIECES;
    const uint32_t axis = cut_axis(&cx->rec, w->piece.at[sum].k, x);
    for (uint32_t i = sum; i != DF_BAD; i = w->piece.at[i].next) n++;
    df_arena_reset(&cx->pass);
    df_grad_piece *const piece = df_arena_new(&cx->pass, df_grad_piece, n);
    uint32_t *const g = df_arena_new(&cx->pass, uint32_t, n);
    if (!piece || !g) {
        df_error(cx, DEFT_E_MEMORY, "%s: no memory for the gradients of %zu slices", w->what, n);
        return w->sum[x - w->from] = DF_BAD;
    }
    n = 0;
    for (uint32_t i = sum; i != DF_BAD; i = w->piece.at[i].next) piece[n++] = w->piece.at[i];
    if (axis < cx->rec.nodes[x].rank && n <= MOST_PIECES &&
        lie_side_by_side(&cx->rec, piece, n, x, axis)) {
        for (size_t i = 0; i < n; i++) g[i] = piece[i].g;
        return w->sum[x - w->from] = df_join(cx, g, n, axis, df_rec_site(cx, x));
    }
    /* Writes the pieces one after another, in the order in which they came, so the links
     * are reversed first. */
    for (uint32_t i = sum; i != DF_BAD;) {
        const uint32_t next = w->piece.at[i].next;
        w->piece.at[i].next = first;
        first = i;
        i = next;
    }
    sum = DF_BAD;
    for (uint32_t i = first; i != DF_BAD; i = w->piece.at[i].next) {
        const df_grad_piece p = w->piece.at[i];
        w->site = df_rec_site(cx, p.k);
        sum = df_grad_add_place(w, x, sum, p.k, p.g);
        if (sum == DF_BAD) break;
    }
    w->site = site;
    return w->sum[x - w->from] = sum;
}

/* Whether update k writes a slice of its base with step 1. Sets *at to the slice's
 * arguments, start and step for each axis, and *size to its extents. */
static bool box_of(const df_rec *r, uint32_t k, const int64_t **at, const int64_t **size)
{
    const df_node *const n = &r->nodes[k];
    if (n->op != DF_OP_update) return false;
    const df_node *const place = &r->nodes[n->src[2].i];
    if (place->op != DF_OP_slice || place->src[0].i != n->src[0].i) return false;
    *at = r->args + place->arg;
    *size = df_rec_extents(r, n->src[2].i);
    for (uint32_t i = 0; i < place->rank; i++)
        if ((*at)[2 * i + 1] != 1) return false;
    return true;
}

/* The only axis along which the slice does not start at 0; else the rank. */
static uint32_t axis_of(const int64_t *at, uint32_t rank)
{
    uint32_t axis = rank;
    for (uint32_t i = 0; i < rank; i++) {
        if (!at[2 * i]) continue;
        if (axis != rank) return rank;
        axis = i;
    }
    return axis;
}

/* Such updates write pieces one after another along an axis (deft_concat, deft_stack,
 * pads that repeat). No piece is overwritten. Each piece sees the gradient of its own
 * part, whatever is in the others. So the gradient passes down the chain unchanged. With
 * zeros in place of later pieces, each piece would cost a copy of the whole array. */
bool df_grad_is_joined(const df_grad *w, uint32_t k)
{
    const df_rec *const r = &w->cx->rec;
    const int64_t *at, *size, *at_below, *size_below;
    if (!box_of(r, k, &at, &size)) return false;
    const uint32_t base = r->nodes[k].src[0].i, rank = r->nodes[k].rank, axis = axis_of(at, rank);
    if (r->nodes[base].op == DF_OP_empty) return true;
    if (axis == rank || base - w->from >= w->n || !(w->flags[base - w->from] & DF_GRAD_JOINED) ||
        !box_of(r, base, &at_below, &size_below))
        return false;
    for (uint32_t i = 0; i < rank; i++)
        if (i != axis && at_below[2 * i]) return false;
    return at[2 * axis] >= at_below[2 * axis] + size_below[axis];
}
