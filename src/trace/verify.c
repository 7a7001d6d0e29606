/* SPDX-License-Identifier: Apache-2.0
 *
 * The verifier checks that a trace obeys the rules of trace.h. It trusts only the lengths of the
 * arrays, so it also accepts a trace that was read from a file or that a faulty pass produced. It
 * walks once over the nodes and once over inputs and roots. A trace with loops needs one more walk
 * over the nodes (control.c), the only one that allocates memory.
 *
 * Only the place of an update is not a local check: views must lead from the third operand of the
 * update to its first. That chain is short in ordinary traces, but a file can make it long for each
 * of a million updates. So all these walks together have a budget.
 */
#include "trace/control.h"
#include "trace/opaque.h"
#include "trace/node.h"

#include <inttypes.h>
#include <string.h>

/* Budget of views that the walks of all updates may visit, per node of the trace. */
#define WALKS_PER_NODE 64

typedef struct verifier {
    df_diag *d;
    const df_trace *t;
    uint32_t next_arg; /* first argument that no node has used: they are numbered in node order */
    uint32_t n_input_nodes;
    uint64_t walks_left;
} verifier;

static deft_status fail_node(verifier *v, uint32_t k, deft_status st, const char *what)
{
    return df_fail(v->d, st, "%%%" PRIu32 ": %s", k, what);
}

/* Prefixes the sentence of a failed rule with the node. */
static deft_status blame(verifier *v, uint32_t k, deft_status st)
{
    if (st == DEFT_OK || !v->d) return st;
    return df_fail(v->d, st, "%%%" PRIu32 ": %s", k, v->d->text);
}

static deft_status check_form(verifier *v, uint32_t k)
{
    const df_trace *const t = v->t;
    const df_node *const n = &t->nodes[k];
    if (n->op >= DF_N_OPS) return fail_node(v, k, DEFT_E_FORMAT, "no such op");
    if (n->dtype >= DF_N_RECORDED) return fail_node(v, k, DEFT_E_FORMAT, "no such dtype");
    if (n->rank > DEFT_MAX_RANK) return fail_node(v, k, DEFT_E_FORMAT, "rank above 8");
    if (n->n_src != df_op_infos[n->op].n_src)
        return fail_node(v, k, DEFT_E_FORMAT, "wrong number of operands");
    for (uint32_t i = 0; i < 3; i++) {
        if (i < n->n_src && n->src[i].i >= k)
            return df_fail(v->d, DEFT_E_FORMAT, "%%%" PRIu32 ": operand %%%" PRIu32 " is not below",
                           k, n->src[i].i);
        if (i >= n->n_src && n->src[i].i != DF_NONE)
            return fail_node(v, k, DEFT_E_FORMAT, "an unused operand is set");
    }
    if (t->shape[k] > t->n_extents || n->rank > t->n_extents - t->shape[k])
        return fail_node(v, k, DEFT_E_FORMAT, "extents out of range");
    return DEFT_OK;
}

static deft_status check_args(verifier *v, uint32_t k)
{
    const df_node *const n = &v->t->nodes[k];
    const uint32_t rank = n->n_src ? v->t->nodes[n->src[0].i].rank : n->rank;
    const uint32_t count = df_op_n_args((df_op)n->op, rank);
    if (count == 0)
        return n->arg == 0 ? DEFT_OK : fail_node(v, k, DEFT_E_FORMAT, "arguments of an op without");
    if (n->op == DF_OP_slice && n->arg + count <= v->next_arg)
        return DEFT_OK; /* shares the arguments of an earlier slice */
    if (n->arg < v->next_arg) return fail_node(v, k, DEFT_E_FORMAT, "argument slots overlap");
    if (n->arg > v->t->n_args || count > v->t->n_args - n->arg)
        return fail_node(v, k, DEFT_E_FORMAT, "argument slots out of range");
    v->next_arg = n->arg + count;
    return DEFT_OK;
}

static deft_status check_rules(verifier *v, uint32_t k)
{
    const df_trace *const t = v->t;
    const df_node *const n = &t->nodes[k];
    const df_op op = (df_op)n->op;
    deft_status st = DEFT_OK;
    df_shape src[3], out = df_node_shape(t, k);
    deft_dtype dtype[3];
    for (uint32_t i = 0; i < n->n_src; i++) {
        src[i] = df_node_shape(t, n->src[i].i);
        dtype[i] = (deft_dtype)t->nodes[n->src[i].i].dtype;
    }
    const df_shape found = out;
    const int64_t *const args = t->args ? t->args + n->arg : NULL;
    TRY(df_dtype_check(v->d, op, dtype, (deft_dtype)n->dtype));
    TRY(df_shape_infer(v->d, op, n->attr, args, src, n->n_src, &out));
    TRY(df_node_check_values(v->d, op, (deft_dtype)n->dtype, n->attr, args));
    if (!df_shape_equal(&found, &out)) {
        char a[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
        st = df_fail(v->d, DEFT_E_SHAPE, "%s: the result is %s, not %s", df_op_infos[op].name,
                     df_shape_text(&out, a, sizeof a), df_shape_text(&found, b, sizeof b));
    }
done:
    return blame(v, k, st);
}

/* Checks the nodes of calls of opaque operators (trace/opaque.h). */
static deft_status check_opaque(verifier *v, uint32_t k)
{
    const df_trace *const t = v->t;
    const df_node *const n = &t->nodes[k];
    const uint32_t last = n->op == DF_OP_pass ? 1 : 0; /* the operand that may be a list */
    for (uint32_t i = 0; i < n->n_src; i++) {
        const bool takes_list = (n->op == DF_OP_pass || n->op == DF_OP_call) && i == last;
        const uint8_t op = t->nodes[n->src[i].i].op;
        if (op == DF_OP_pass && !takes_list)
            return fail_node(v, k, DEFT_E_FORMAT, "an operand is a list of inputs of a call");
        if (takes_list && op != DF_OP_pass && op != DF_OP_cst)
            return fail_node(v, k, DEFT_E_FORMAT, "its last operand is no list of inputs");
    }
    if (n->op == DF_OP_pass && (n->rank != 0 || n->dtype != DEFT_F32))
        return fail_node(v, k, DEFT_E_FORMAT, "a list of inputs is no f32[]");
    if (n->op == DF_OP_call) {
        const df_opaque *const x = df_opaques_at(t->opaques, n->attr);
        const uint32_t n_in = df_opaque_count_inputs(t, n->src[0].i);
        if (!x) return fail_node(v, k, DEFT_E_FORMAT, "no such opaque operator");
        if (n_in > DF_OPAQUE_MOST_TENSORS)
            return fail_node(v, k, DEFT_E_LIMIT, "a call has more than 64 inputs");
        if (n_in != x->n_in)
            return df_fail(v->d, DEFT_E_FORMAT,
                           "%%%" PRIu32 ": %s gets %" PRIu32 " inputs, it has %" PRIu32, k, x->name,
                           n_in, x->n_in);
    }
    if (n->op == DF_OP_result) {
        const df_node *const call = &t->nodes[n->src[0].i];
        const df_opaque *const x =
            call->op == DF_OP_call ? df_opaques_at(t->opaques, call->attr) : NULL;
        if (!x || n->attr == 0 || n->attr >= x->n_out)
            return fail_node(v, k, DEFT_E_FORMAT, "no such result of a call");
    }
    return DEFT_OK;
}

static deft_status check_place(verifier *v, uint32_t k)
{
    const df_trace *const t = v->t;
    const uint32_t whole = t->nodes[k].src[0].i;
    uint32_t at = t->nodes[k].src[2].i;
    while (at > whole) {
        const df_node *const n = &t->nodes[at];
        if (df_op_infos[n->op].cls != DF_CLASS_view || n->op == DF_OP_expand) break;
        if (v->walks_left-- == 0)
            return fail_node(v, k, DEFT_E_LIMIT,
                             "update: too many views between values and places");
        at = n->src[0].i;
    }
    if (at == whole) return DEFT_OK;
    return df_fail(v->d, DEFT_E_FORMAT,
                   "%%%" PRIu32 ": update: place %%%" PRIu32 " is no view of %%%" PRIu32, k,
                   t->nodes[k].src[2].i, whole);
}

static deft_status check_node(verifier *v, uint32_t k)
{
    const df_node *const n = &v->t->nodes[k];
    deft_status st = DEFT_OK;
    TRY(check_form(v, k));
    TRY(check_args(v, k));
    TRY(check_rules(v, k));
    TRY(check_opaque(v, k));
    if (n->op == DF_OP_update) TRY(check_place(v, k));
    if (n->op == DF_OP_input) {
        v->n_input_nodes++;
        if (n->attr >= v->t->n_inputs || v->t->inputs[n->attr].node != k)
            st = fail_node(v, k, DEFT_E_FORMAT, "input: its ordinal names another node");
    }
done:
    return st;
}

static deft_status check_inputs(verifier *v)
{
    const df_trace *const t = v->t;
    const uint32_t known =
        DF_INPUT_WRAPPED | DF_INPUT_SOLE | DF_INPUT_CONTIGUOUS | DF_INPUT_ALIGNED;
    if (v->n_input_nodes != t->n_inputs)
        return df_fail(v->d, DEFT_E_FORMAT, "%" PRIu32 " inputs are named by %" PRIu32 " nodes",
                       t->n_inputs, v->n_input_nodes);
    for (uint32_t i = 0; i < t->n_inputs; i++) {
        int64_t low, bytes;
        if (t->inputs[i].flags & ~known)
            return df_fail(v->d, DEFT_E_FORMAT, "input %" PRIu32 ": unknown flags", i);
        if ((t->inputs[i].flags & DF_INPUT_WRAPPED) && (t->inputs[i].flags & DF_INPUT_SOLE))
            return df_fail(v->d, DEFT_E_FORMAT,
                           "input %" PRIu32 ": wrapped memory is never sole: it is the caller's",
                           i);
        if (!df_input_reach(t, i, &low, &bytes))
            return df_fail(v->d, DEFT_E_RANGE, "input %" PRIu32 ": strides reach too far", i);
        if (t->inputs[i].bytes < bytes)
            return df_fail(v->d, DEFT_E_RANGE,
                           "input %" PRIu32 ": strides reach over %" PRId64
                           " bytes, it has %" PRId64,
                           i, bytes, t->inputs[i].bytes);
    }
    return DEFT_OK;
}

static deft_status check_root(verifier *v, uint32_t i)
{
    const df_trace *const t = v->t;
    const df_root *const r = &t->roots[i];
    if (r->node >= t->n_nodes)
        return df_fail(v->d, DEFT_E_FORMAT, "output %" PRIu32 ": no node %%%" PRIu32, i, r->node);
    if (t->nodes[r->node].op == DF_OP_pass)
        return df_fail(v->d, DEFT_E_FORMAT, "output %" PRIu32 ": a list of inputs", i);
    if (r->kind > DF_ROOT_INTO || r->pad != 0)
        return df_fail(v->d, DEFT_E_FORMAT, "output %" PRIu32 ": no such kind", i);
    if ((r->into != DF_NONE) != (r->kind == DF_ROOT_INTO) ||
        (r->into != DF_NONE && r->into >= t->n_inputs) ||
        (r->donor != DF_NONE && r->donor >= t->n_inputs))
        return df_fail(v->d, DEFT_E_FORMAT, "output %" PRIu32 ": no such input", i);
    if (r->kind == DF_ROOT_NEW) return DEFT_OK;

    const uint32_t target = t->inputs[r->into].node;
    const df_shape a = df_node_shape(t, r->node), b = df_node_shape(t, target);
    const uint8_t have = t->nodes[r->node].dtype, want = t->nodes[target].dtype;
    char c[2][DF_SHAPE_TEXT];
    if (have != want || !df_shape_equal(&a, &b))
        return df_fail(v->d, DEFT_E_SHAPE, "output %" PRIu32 ": %s%s into %s%s", i,
                       deft_dtype_name((deft_dtype)have), df_shape_text(&a, c[0], sizeof c[0]),
                       deft_dtype_name((deft_dtype)want), df_shape_text(&b, c[1], sizeof c[1]));
    return DEFT_OK;
}

deft_status df_node_check_values(df_diag *d, df_op op, deft_dtype t, uint32_t attr,
                                 const int64_t *args)
{
    if (op == DF_OP_cst && !df_is_float(t)) {
        const int64_t value = (int32_t)attr;
        if (!df_int_holds(t, value))
            return df_fail(d, DEFT_E_RANGE, "cst: %" PRId64 " does not fit %s", value,
                           deft_dtype_name(t));
    }
    if (op == DF_OP_cst && df_is_half(t)) {
        const float value = df_f32_of_bits(attr);
        if (value == value && !df_half_holds(t, value))
            return df_fail(d, DEFT_E_RANGE, "cst: %a does not fit %s", (double)value,
                           deft_dtype_name(t));
    }
    if (op == DF_OP_num && deft_dtype_size(t) < 8) {
        /* Bits are zero-extended. */
        const uint64_t most = t == DEFT_BOOL ? 1 : df_all_bits(t);
        if ((uint64_t)args[0] > most)
            return df_fail(d, DEFT_E_RANGE, "num: bits 0x%" PRIx64 " do not fit %s",
                           (uint64_t)args[0], deft_dtype_name(t));
    }
    if (op == DF_OP_powi && !df_is_float(t) && (int32_t)attr < 0)
        return df_fail(d, DEFT_E_RANGE, "powi: %s to the power %" PRId32, deft_dtype_name(t),
                       (int32_t)attr);
    return DEFT_OK;
}

static deft_status check_control(verifier *v)
{
    df_control c;
    df_arena tmp;
    if (!df_has_control(v->t)) return DEFT_OK;
    df_arena_init(&tmp, v->t->arena->mem);
    const deft_status st = df_control_find(v->d, v->t, &tmp, &c);
    df_arena_finish(&tmp);
    return st;
}

deft_status df_trace_verify(df_diag *d, const df_trace *t)
{
    verifier v = { .d = d, .t = t, .walks_left = (uint64_t)WALKS_PER_NODE * t->n_nodes };
    deft_status st = DEFT_OK;
    const uint32_t known =
        DF_TRACE_FAST | DF_TRACE_NOFUSE | (uint32_t)DF_TRACE_DEVICE_MASK << DF_TRACE_DEVICE_SHIFT;
    if (t->n_nodes > DF_TRACE_MAX_NODES)
        return df_fail(d, DEFT_E_LIMIT, "%" PRIu32 " nodes, at most %d are possible", t->n_nodes,
                       DF_TRACE_MAX_NODES);
    if (t->flags & ~known)
        return df_fail(d, DEFT_E_FORMAT, "unknown trace flags 0x%" PRIx32, t->flags);
    for (uint32_t k = 0; k < t->n_nodes; k++) TRY(check_node(&v, k));
    TRY(check_inputs(&v));
    for (uint32_t i = 0; i < t->n_roots; i++) TRY(check_root(&v, i));
    TRY(check_control(&v));
done:
    return st;
}
