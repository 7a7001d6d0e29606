/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of which it is known what they compute (df_loop_tag). A device learns here where the
 * operands are, so that it can compute the loop as a whole.
 *
 * Whether the loop really computes what its attribute says is not checked: the code that recorded
 * the loop vouches for that. Only the roles of the nodes must be found. They are found by the
 * matrix products: simplification drops and merges nodes, but keeps the order of products.
 *
 * A matrix is described as the plan of an iteration reads it: by strides, through a port. When
 * another operator stands between the port and the product, the fuser has stored a copy there. Then
 * the loop has no tag.
 */
#include "fuser/control/outline.h"

#include <string.h>

enum { N_FORWARD = 2, N_BACKWARD = 5 };

/* The products of an iteration, in their order. Forward: scores, p v. Backward: scores, dout v^T,
 * dscore k, dscore^T q, p^T dout. */
enum { SCORES, P_V, BY_P = P_V, DQ, DK, DV };

typedef struct finder {
    const outline *o;
    const df_subplan *body;
    uint32_t loop;
    uint32_t product[N_BACKWARD]; /* nodes of o->t, in order */
    const df_seg *seg[N_BACKWARD];
    df_part_tag tag;
} finder;

static uint32_t src(const finder *f, uint32_t n, uint32_t i)
{
    return df_at(f->o, n)->src[i].i;
}

/* Whether n is an op within the loop itself. */
static bool is(const finder *f, uint32_t n, df_op op)
{
    return df_at(f->o, n)->op == op && f->o->c.inside[n] == f->loop;
}

/* The segment that computes product n, or NULL. */
static const df_seg *seg_of(const finder *f, uint32_t n)
{
    const df_plan *const p = f->body->plan;
    for (uint32_t s = 0; s < p->n_segs; s++) {
        const df_seg *const seg = &p->segs[s];
        if (seg->kind != DF_SEG_MATMUL) continue;
        for (uint32_t i = 0; i < seg->n_from; i++)
            if (p->from[seg->from + i] == n) return seg;
    }
    return NULL;
}

static bool is_f32(const df_seg *s)
{
    return s->dtype == DEFT_F32 && s->a_dtype == DEFT_F32 && s->b_dtype == DEFT_F32;
}

/* Finds the products of the iteration. Returns false unless there are exactly `want`, each is a
 * segment of f32, and all have the same number of batch axes. */
static bool find_products(finder *f, uint32_t want)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->o->t->n_nodes; i++) {
        if (!f->o->live[i] || !is(f, i, DF_OP_matmul)) continue;
        if (n == want) return false;
        f->product[n] = i;
        f->seg[n] = seg_of(f, i);
        if (!f->seg[n] || !is_f32(f->seg[n]) || f->seg[n]->n_batch != f->seg[0]->n_batch)
            return false;
        n++;
    }
    return n == want;
}

static df_slot stride(const df_bind *b, uint32_t axis)
{
    return b->stride[axis];
}

/* Describes operand b of a product. is_row: it must be read through a port of kind ROW, else
 * through a cell or an input. transposed: its rows are columns for the product. Returns false when
 * it is read in another way. */
static bool matrix(const finder *f, const df_bind *b, bool is_row, bool transposed,
                   df_tag_matrix *out)
{
    const df_plan *const p = f->body->plan;
    const uint32_t n_batch = f->tag.n_batch;
    if (IS_NONE(b->buf) || p->bufs[b->buf.i].kind != DF_BUF_INPUT) return false;
    *out = (df_tag_matrix){ .port = p->bufs[b->buf.i].index,
                            .offset = b->offset,
                            .row = stride(b, n_batch + transposed),
                            .col = stride(b, n_batch + !transposed) };
    memcpy(out->batch, b->stride, n_batch * sizeof *out->batch);
    const uint32_t kind = f->body->port[out->port].kind;
    return is_row ? kind == DF_PORT_ROW : kind == DF_PORT_CELL || kind == DF_PORT_INPUT;
}

/* Finds the port of n, which has one element for each query. Returns false unless n is a full cell
 * from outside the loop. */
static bool column(const finder *f, uint32_t n, uint32_t *port)
{
    const df_node *const x = &f->body->trace.nodes[f->o->at[n]];
    if (x->op != DF_OP_input || x->rank != f->tag.n_batch + 2 || f->o->c.inside[n] == f->loop)
        return false;
    *port = x->attr;
    return f->body->port[*port].kind == DF_PORT_CELL;
}

/* Finds log_sum and less: p = exp(scores - log_sum), which is transposed in p^T dout, and
 * dscore = p * (by_p - less). */
static bool find_columns(finder *f)
{
    uint32_t p = src(f, f->product[DV], 0);
    if (is(f, p, DF_OP_permute)) p = src(f, p, 0);
    if (!is(f, p, DF_OP_exp) || !is(f, src(f, p, 0), DF_OP_sub)) return false;
    const uint32_t dscore = src(f, f->product[DQ], 0);
    if (!is(f, dscore, DF_OP_mul)) return false;
    const uint32_t by_p = src(f, dscore, src(f, dscore, 0) == p);
    return is(f, by_p, DF_OP_sub) && src(f, by_p, 0) == f->product[BY_P] &&
           column(f, src(f, src(f, p, 0), 1), &f->tag.log_sum) &&
           column(f, src(f, by_p, 1), &f->tag.less);
}

static bool find(finder *f, const df_part *part)
{
    df_part_tag *const tag = &f->tag;
    const bool is_grad = tag->what.kind == DF_LOOP_ATTENTION_GRAD;
    if (part->body.plan->root_cell || part->body.trace.n_roots != 3 ||
        f->o->c.loops[f->loop].n_states != (is_grad ? 1u : 3u))
        return false;
    if (!find_products(f, is_grad ? N_BACKWARD : N_FORWARD)) return false;
    const df_seg *const s = f->seg[SCORES];
    tag->n_batch = s->n_batch;
    memcpy(tag->batch, s->batch, s->n_batch * sizeof *s->batch);
    tag->n_queries = s->m;
    tag->block = s->n;
    tag->width = s->k;
    tag->value_width = is_grad ? f->seg[BY_P]->k : f->seg[P_V]->n;
    if (!matrix(f, &s->a, false, false, &tag->q) || !matrix(f, &s->b, true, true, &tag->k) ||
        !matrix(f, &f->seg[P_V]->b, true, is_grad, &tag->v))
        return false;
    return !is_grad || (matrix(f, &f->seg[BY_P]->a, false, false, &tag->dout) && find_columns(f));
}

deft_status df_outline_tag(outline *o, uint32_t loop, df_part *part)
{
    const df_loop_info *const l = &o->c.loops[loop];
    finder f = { .o = o, .body = &part->body, .loop = loop };
    if (!df_loop_tag_of(df_at(o, l->node)->attr, &f.tag.what)) return DEFT_OK;
    if (f.tag.what.kind == DF_LOOP_PLAIN || l->proceed != DF_NONE) return DEFT_OK;
    f.tag.is_free = (o->t->flags & DF_TRACE_FAST) && !f.tag.what.is_padded;
    if (!find(&f, part)) return DEFT_OK;
    part->tag = df_arena_copy(&o->p->plan->arena, &f.tag, sizeof f.tag, _Alignof(df_part_tag));
    return part->tag ? DEFT_OK : df_outline_no_memory(o);
}
