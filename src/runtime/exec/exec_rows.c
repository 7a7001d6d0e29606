/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the independent rows of a loop.
 *
 * Each buffer that an iteration writes, and each state, must consist of n_rows equal pieces, one
 * after the other. Each segment must be divided likewise: piece i of its outer axes touches piece i
 * of these buffers only. Other inputs are not written while the loop runs, so any row may read
 * them. Extents and strides of the plan show all of that.
 */
#include "runtime/loop_rows.h"

#include "runtime/bind.h"

#define MACS_PER_NS 40. /* estimate for products on one thread */

/* ---- windows ---- */

/* The part of an array that one row of a segment touches. */
typedef struct window {
    int64_t left; /* rows that the axes so far do not divide; 1: all are divided */
    int64_t span; /* from the first to the last element that one row touches */
    int64_t piece;
    bool ok;
} window;

/* Takes one axis, from the outermost to the innermost. `divides`: rows are divided along it. */
static void take_axis(window *w, int64_t extent, int64_t stride, bool divides)
{
    if (extent == 1) return;
    if (stride < 0) w->ok = false;
    if (!divides || w->left == 1) {
        w->span += (extent - 1) * stride;
    } else if (w->left % extent == 0) {
        w->left /= extent;
        w->ok &= stride == w->piece * w->left;
    } else if (extent % w->left == 0) {
        const int64_t n = extent / w->left; /* neighbours along this axis that one row has */
        w->ok &= stride * n == w->piece;
        w->span += (n - 1) * stride;
        w->left = 1;
    } else {
        w->ok = false;
    }
}

static int64_t loop_slot(const df_loop_rows *l, df_slot s)
{
    return df_slot_value(l->slots, s);
}

/* Whether the buffer is divided into rows: it is written in an iteration, or holds a state. */
static bool has_rows(const df_loop_rows *l, df_buf buf)
{
    if (buf.i == DF_NONE) return false;
    const df_plan_buf *const b = &l->plan->bufs[buf.i];
    return b->kind != DF_BUF_INPUT || l->part->body.port[b->index].kind == DF_PORT_STATE;
}

static window window_of(const df_loop_rows *l, df_buf buf)
{
    const int64_t numel = loop_slot(l, l->plan->bufs[buf.i].numel);
    return (window){ .left = l->n_rows,
                     .piece = numel / l->n_rows,
                     .ok = numel > 0 && numel % l->n_rows == 0 };
}

static bool window_fits(const window *w, int64_t offset)
{
    return w->ok && w->left == 1 && offset >= 0 && offset + w->span < w->piece;
}

static bool kernel_has_rows(const df_loop_rows *l, const df_seg *seg, const df_kernel *k,
                            uint32_t skip, bool by_inner)
{
    if (k->flags & DF_KERNEL_CHECKS) return false;
    for (uint32_t i = 0; i < k->n_access; i++) {
        const df_bind *const b = &seg->bind[i];
        if (i == skip || !has_rows(l, b->buf)) continue;
        if (!df_access_is_strided(k->access[i].kind)) return false;
        window w = window_of(l, b->buf);
        for (uint32_t x = 0; x < k->n_axes; x++)
            take_axis(&w, loop_slot(l, seg->extent[x]), loop_slot(l, b->stride[x]),
                      k->role[x] == DF_AXIS_OUTER || (by_inner && k->role[x] == DF_AXIS_INNER));
        if (!window_fits(&w, loop_slot(l, b->offset))) return false;
    }
    return true;
}

/* Whether rows of a product touch only their pieces of an operand or of C. `rows` and `columns` are
 * the extents of the matrix. by_rows: rows are also divided along its rows, not only along the
 * batch. */
static bool matrix_has_rows(const df_loop_rows *l, const df_seg *seg, const df_bind *b,
                            int64_t rows, int64_t columns, bool by_rows)
{
    if (!has_rows(l, b->buf)) return true;
    window w = window_of(l, b->buf);
    for (uint32_t i = 0; i < seg->n_batch; i++)
        take_axis(&w, loop_slot(l, seg->batch[i]), loop_slot(l, b->stride[i]), true);
    take_axis(&w, rows, loop_slot(l, b->stride[seg->n_batch]), by_rows);
    take_axis(&w, columns, loop_slot(l, b->stride[seg->n_batch + 1]), false);
    return window_fits(&w, loop_slot(l, b->offset));
}

static bool seg_has_rows(const df_loop_rows *l, const df_seg *seg, df_seg_rows *out)
{
    const df_kernel *const k = df_seg_kernel(l->plan, seg);
    int64_t n = 1;
    if (seg->kind == DF_SEG_KERNEL) {
        int64_t n_outer = 1, n_inner = 1;
        for (uint32_t x = 0; x < k->n_axes; x++) {
            const int64_t extent = loop_slot(l, seg->extent[x]);
            if (k->role[x] == DF_AXIS_OUTER) n_outer *= extent;
            if (k->role[x] == DF_AXIS_INNER) n_inner = extent;
        }
        out->by_inner = n_outer == 1 && k->mode == DF_MODE_MAP;
        n = out->by_inner ? n_inner : n_outer;
        out->per_row = n / l->n_rows;
        return n > 0 && n % l->n_rows == 0 && kernel_has_rows(l, seg, k, DF_NONE, out->by_inner);
    }
    if (seg->kind != DF_SEG_MATMUL || seg->windows || seg->n_column_axes > 0 ||
        seg->a_dtype != seg->dtype || seg->b_dtype != seg->dtype)
        return false;
    const int64_t rows = loop_slot(l, seg->m), columns = loop_slot(l, seg->n),
                  depth = loop_slot(l, seg->k);
    for (uint32_t i = 0; i < seg->n_batch; i++) n *= loop_slot(l, seg->batch[i]);
    n *= rows;
    out->per_row = n / l->n_rows;
    return n > 0 && columns > 0 && n % l->n_rows == 0 &&
           (!k || kernel_has_rows(l, seg, k, seg->c_access, false)) &&
           matrix_has_rows(l, seg, &seg->a, rows, depth, true) &&
           matrix_has_rows(l, seg, &seg->b, depth, columns, false) &&
           matrix_has_rows(l, seg, &seg->c, rows, columns, true);
}

/* Whether the loop has n independent rows. */
static bool has_n_rows(df_loop_rows *l, int64_t n)
{
    l->n_rows = n;
    if (n < 2) return false;
    for (uint32_t i = 0; i < l->plan->n_segs; i++)
        if (!seg_has_rows(l, &l->plan->segs[i], &l->segs[i])) return false;
    for (uint32_t i = 0; i < l->plan->n_bufs; i++) {
        const df_buf buf = { i };
        if (!has_rows(l, buf)) continue;
        const window w = window_of(l, buf);
        if (!w.ok) return false;
        l->row_bytes[i] = w.piece * (int64_t)deft_dtype_size(l->plan->bufs[i].dtype);
    }
    return true;
}

/* Finds as many rows as possible. Where a product decides, these are the rows of C over the batch,
 * or else the entries of the batch. Rows of different entries must not be in one block. */
static bool find_rows(df_loop_rows *l)
{
    int64_t most = 0, entries = 1;
    for (uint32_t i = 0; i < l->plan->n_segs; i++) {
        const df_seg *const seg = &l->plan->segs[i];
        int64_t n = 1;
        if (seg->kind != DF_SEG_MATMUL) continue;
        for (uint32_t j = 0; j < seg->n_batch; j++) n *= loop_slot(l, seg->batch[j]);
        if (most == 0 || n < entries) entries = n;
        most = df_max_i64(most, n * loop_slot(l, seg->m));
    }
    if (most == 0) return false;
    l->group = most / df_max_i64(entries, 1);
    if (has_n_rows(l, most)) return true;
    l->group = 1;
    return has_n_rows(l, entries);
}

/* ---- which loops ---- */

/* Whether roots j and i, which share a buffer, are a state and a stacked result that the caller
 * takes so. */
static bool is_state_in_row(const df_loop_rows *l, uint32_t j, uint32_t i)
{
    return l->takes_recurrences && j < l->part->n_states && i >= l->part->n_states;
}

/* Whether the roots of an iteration are buffers of their own, and all else is of a kind that blocks
 * can have. A state may share its buffer with one stacked result. */
static bool has_plain_buffers(const df_loop_rows *l)
{
    const df_plan *const p = l->plan;
    for (uint32_t i = 0; i < p->n_bufs; i++) {
        const df_plan_buf *const b = &p->bufs[i];
        if (b->kind == DF_BUF_INTO || b->keep) return false;
    }
    for (uint32_t i = 0; i < p->n_roots; i++) {
        const df_buf b = p->root_buf[i];
        if (b.i == DF_NONE || p->bufs[b.i].kind != DF_BUF_ROOT) return false;
        uint32_t n_same = 0;
        for (uint32_t j = 0; j < i; j++)
            if (p->root_buf[j].i == b.i && (n_same++ > 0 || !is_state_in_row(l, j, i)))
                return false;
    }
    return true;
}

/* Whether the right operand of a product is neither read anew in each iteration, nor computed, nor
 * a state, nor a batch of matrices. A single matrix that all iterations read is better packed once
 * (exec_weights.c). */
static bool has_weights(const df_loop_rows *l, const df_seg *seg)
{
    if (seg->kind != DF_SEG_MATMUL || seg->b.buf.i == DF_NONE || seg->n_batch > 0) return false;
    const df_plan_buf *const b = &l->plan->bufs[seg->b.buf.i];
    if (b->kind != DF_BUF_INPUT) return false;
    const uint32_t kind = l->part->body.port[b->index].kind;
    return kind != DF_PORT_ROW && kind != DF_PORT_STATE;
}

/* Finds the products that have weights. Returns false when the caller does not take them. */
static bool find_weights(df_loop_rows *l)
{
    bool any = false;
    for (uint32_t i = 0; i < l->plan->n_segs; i++)
        any |= l->segs[i].has_weights = has_weights(l, &l->plan->segs[i]);
    return !any || l->takes_recurrences;
}

/* ---- exported ---- */

double df_rows_estimate_ns(const df_plan *plan, const int64_t *slots)
{
    double macs = 0;
    for (uint32_t i = 0; i < plan->n_segs; i++) {
        const df_seg *const seg = &plan->segs[i];
        if (seg->kind != DF_SEG_MATMUL) continue;
        double n = (double)df_slot_value(slots, seg->m) * (double)df_slot_value(slots, seg->n) *
                   (double)df_slot_value(slots, seg->k);
        for (uint32_t j = 0; j < seg->n_batch; j++)
            n *= (double)df_slot_value(slots, seg->batch[j]);
        macs += n;
    }
    return macs / MACS_PER_NS;
}

bool df_rows_find(df_loop_rows *l)
{
    return !l->plan->root_cell && l->plan->n_checked == 0 && !l->plan->checks_first &&
           has_plain_buffers(l) && find_weights(l) && find_rows(l);
}
