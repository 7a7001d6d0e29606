/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds a trace node by node, and checks each node when it is added. Arrays grow by doubling
 * inside the arena, so outgrown copies take at most as much memory as the trace itself. A node
 * shares its extents with an operand of equal shape: a chain of elementwise operators stores its
 * shape once.
 */
#include "trace/node.h"

#include <inttypes.h>
#include <string.h>

static deft_status fail(df_builder *b, deft_status st)
{
    b->st = st;
    return st;
}

/* Makes room for n_more elements after the n elements of the array *at, whose capacity is *cap.
 * `at` is the address of a pointer. On success the array is not NULL, even when it is empty:
 * readers add offsets to it, and NULL + 0 is undefined in C. Returns false when memory runs out. */
static bool grow(df_builder *b, void *at, uint32_t n, uint32_t *cap, size_t size, uint32_t n_more)
{
    if (*cap > 0 && n_more <= *cap - n) return true;
    uint32_t wide = *cap ? *cap * 2 : 16;
    if (wide < n + n_more) wide = n + n_more;
    void *const fresh = df_arena_alloc(b->t->arena, wide * size, 16);
    if (!fresh) {
        fail(b, df_fail_mem(b->diag, "trace", wide * size));
        return false;
    }
    void *old;
    memcpy(&old, at, sizeof old);
    if (n) memcpy(fresh, old, n * size);
    memcpy(at, &fresh, sizeof fresh);
    *cap = wide;
    return true;
}

/* Makes room for one more node. nodes and shape share the capacity cap_nodes. */
static bool grow_nodes(df_builder *b)
{
    df_trace *const t = b->t;
    uint32_t cap = b->cap_nodes;
    return grow(b, &t->shape, t->n_nodes, &cap, sizeof *t->shape, 1) &&
           grow(b, &t->nodes, t->n_nodes, &b->cap_nodes, sizeof *t->nodes, 1);
}

/* Finds where the extents of s are stored: with those of an operand of equal shape, or appended.
 * Returns false when memory runs out. */
static bool place_shape(df_builder *b, const df_shape *s, const df_ref *src, uint32_t n_src,
                        uint32_t *out)
{
    df_trace *const t = b->t;
    for (uint32_t i = 0; i < n_src; i++) {
        const df_shape a = df_node_shape(t, src[i].i);
        if (df_shape_equal(&a, s)) {
            *out = t->shape[src[i].i];
            return true;
        }
    }
    if (!grow(b, &t->extents, t->n_extents, &b->cap_extents, sizeof *t->extents, s->rank))
        return false;
    *out = t->n_extents;
    for (uint32_t i = 0; i < s->rank; i++) t->extents[t->n_extents++] = s->dim[i];
    return true;
}

static df_ref append(df_builder *b, df_node node, const df_shape *s, const int64_t *args,
                     uint32_t n_args)
{
    df_trace *const t = b->t;
    uint32_t shape;
    if (t->n_nodes >= DF_TRACE_MAX_NODES) {
        fail(b,
             df_fail(b->diag, DEFT_E_LIMIT, "a trace holds at most %d nodes", DF_TRACE_MAX_NODES));
        return DF_NO_REF;
    }
    if (!grow_nodes(b) || !place_shape(b, s, node.src, node.n_src, &shape) ||
        !grow(b, &t->args, t->n_args, &b->cap_args, sizeof *t->args, n_args))
        return DF_NO_REF;
    node.rank = (uint8_t)s->rank;
    node.arg = n_args ? t->n_args : 0;
    for (uint32_t i = 0; i < n_args; i++) t->args[t->n_args++] = args[i];
    t->nodes[t->n_nodes] = node;
    t->shape[t->n_nodes] = shape;
    return (df_ref){ t->n_nodes++ };
}

static deft_status check_operands(df_builder *b, df_op op, const df_ref *src, uint32_t n_src,
                                  uint32_t n_args, uint32_t out_rank)
{
    const df_op_info *const info = &df_op_infos[op];
    if (n_src != info->n_src)
        return df_fail(b->diag, DEFT_E_ARG, "%s: %" PRIu32 " operands, must be %u", info->name,
                       n_src, info->n_src);
    for (uint32_t i = 0; i < n_src; i++)
        if (src[i].i >= b->t->n_nodes)
            return df_fail(b->diag, DEFT_E_ARG, "%s: operand %" PRIu32 " does not exist",
                           info->name, i + 1);
    const uint32_t want = df_op_n_args(op, n_src ? b->t->nodes[src[0].i].rank : out_rank);
    if (n_args != want)
        return df_fail(b->diag, DEFT_E_ARG, "%s: %" PRIu32 " arguments, must be %" PRIu32,
                       info->name, n_args, want);
    return DEFT_OK;
}

deft_status df_build_init(df_builder *b, df_arena *arena, df_diag *d)
{
    *b = (df_builder){ .diag = d, .t = df_arena_new(arena, df_trace, 1) };
    if (!b->t) return fail(b, df_fail_mem(d, "trace", sizeof *b->t));
    b->t->arena = arena;
    return DEFT_OK;
}

df_ref df_build_op(df_builder *b, df_op op, deft_dtype t, uint32_t attr, const df_ref *src,
                   uint32_t n_src, const int64_t *args, uint32_t n_args, const df_shape *out_shape)
{
    if (b->st != DEFT_OK) return DF_NO_REF;
    deft_status st = DEFT_OK;
    df_ref r = DF_NO_REF;
    df_shape in[3], out = { .rank = 0 };
    deft_dtype dtypes[3];
    if ((unsigned)op >= DF_N_OPS || op == DF_OP_input)
        TRY(df_fail(b->diag, DEFT_E_ARG, "no op that a record can have: %d", (int)op));
    if (out_shape) out = *out_shape;
    TRY(check_operands(b, op, src, n_src, n_args, out.rank));
    df_node node = { .op = (uint8_t)op,
                     .n_src = (uint8_t)n_src,
                     .attr = attr,
                     .src = { DF_NO_REF, DF_NO_REF, DF_NO_REF } };
    for (uint32_t i = 0; i < n_src; i++) {
        node.src[i] = src[i];
        in[i] = df_node_shape(b->t, src[i].i);
        dtypes[i] = (deft_dtype)b->t->nodes[src[i].i].dtype;
    }
    TRY(df_dtype_check(b->diag, op, dtypes, t));
    node.dtype = (uint8_t)t;
    TRY(df_shape_infer(b->diag, op, attr, args, in, n_src, &out));
    TRY(df_node_check_values(b->diag, op, t, attr, args));
    if (out_shape && !df_shape_equal(&out, out_shape)) {
        char x[DF_SHAPE_TEXT], y[DF_SHAPE_TEXT];
        TRY(df_fail(b->diag, DEFT_E_SHAPE, "%s: the result is %s, not %s", df_op_infos[op].name,
                    df_shape_text(&out, x, sizeof x), df_shape_text(out_shape, y, sizeof y)));
    }
    r = append(b, node, &out, args, n_args);
    st = b->st;
done:
    b->st = st;
    return r;
}

df_ref df_build_input(df_builder *b, deft_dtype t, const df_shape *s, const int64_t *strides)
{
    if (b->st != DEFT_OK) return DF_NO_REF;
    deft_status st = DEFT_OK;
    df_ref r = DF_NO_REF;
    df_trace *const tr = b->t;
    df_shape out = *s;
    df_input in = { .data = NULL };
    int64_t low, step = 1;
    TRY(df_dtype_check(b->diag, DF_OP_input, NULL, t));
    TRY(df_shape_infer(b->diag, DF_OP_input, tr->n_inputs, NULL, NULL, 0, &out));
    for (uint32_t i = s->rank; i-- > 0;) {
        in.stride[i] = strides ? strides[i] : step;
        step *= s->dim[i] ? s->dim[i] : 1;
    }
    if (df_strides_contiguous(s->dim, in.stride, s->rank)) in.flags |= DF_INPUT_CONTIGUOUS;
    const df_node node = { .op = DF_OP_input,
                           .dtype = (uint8_t)t,
                           .attr = tr->n_inputs,
                           .src = { DF_NO_REF, DF_NO_REF, DF_NO_REF } };
    if (!grow(b, &tr->inputs, tr->n_inputs, &b->cap_inputs, sizeof *tr->inputs, 1)) return r;
    r = append(b, node, &out, NULL, 0);
    TRY(b->st);
    in.node = r.i;
    tr->inputs[tr->n_inputs] = in;
    if (!df_input_reach(tr, tr->n_inputs, &low, &tr->inputs[tr->n_inputs].bytes)) {
        tr->n_nodes = r.i;
        TRY(df_fail(b->diag, DEFT_E_RANGE, "input: strides reach too far"));
    }
    tr->n_inputs++;
done:
    b->st = st;
    return st == DEFT_OK ? r : DF_NO_REF;
}

void df_build_root(df_builder *b, df_ref r, uint32_t kind, uint32_t into, uint32_t donor)
{
    if (b->st != DEFT_OK) return;
    df_trace *const t = b->t;
    if (r.i >= t->n_nodes || kind > DF_ROOT_INTO) {
        fail(b, df_fail(b->diag, DEFT_E_ARG, "output: no such node or kind"));
        return;
    }
    if (!grow(b, &t->roots, t->n_roots, &b->cap_roots, sizeof *t->roots, 1)) return;
    t->roots[t->n_roots++] =
        (df_root){ .node = r.i, .kind = (uint16_t)kind, .into = into, .donor = donor };
}
