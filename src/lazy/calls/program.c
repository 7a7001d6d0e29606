/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that were loaded from text traces (deft/program.h). A call appends the nodes of the
 * trace as records. The parser has checked the trace, and appending checks each record again.
 */
#include "deft/program.h"

#include <string.h>

#include "lazy/core/annotations.h"
#include "lazy/core/lazy.h"
#include "lazy/core/operators.h"
#include "lazy/files/reader.h"
#include "lazy/run/materialize.h"
#include "ops/shape.h"
#include "trace/control.h"

#define MOST_BYTES ((uint64_t)256 << 20)

struct deft_program {
    deft_ctx *cx;
    df_arena arena; /* all of the following */
    const char *path;
    df_trace *t;
    uint32_t n_nested; /* the most loops in one another */
    uint32_t *record;  /* per node: its record in the call that runs */
};

/* ---- loading ---- */

/* Sets the depth of the loops. */
static deft_status find_loops(deft_program *p, df_diag *d)
{
    deft_status st = DEFT_OK;
    df_control control;
    df_arena tmp;
    df_arena_init(&tmp, p->cx->mem);
    if (df_has_control(p->t)) TRY(df_control_find(d, p->t, &tmp, &control));
    for (uint32_t i = 0; df_has_control(p->t) && i < control.n_loops; i++)
        if (control.loops[i].depth >= p->n_nested) p->n_nested = control.loops[i].depth + 1;
done:
    df_arena_finish(&tmp);
    return st;
}

/* Finds the operator that a call of the program names in this runtime. */
static deft_status find_operator(const deft_program *p, df_diag *d, const df_opaque *x,
                                 uint32_t *number)
{
    deft_op *const op = df_operator_find(p->cx->rt, x->name);
    if (!op || op->def.version != x->version || !op->def.run)
        return df_fail(
            d, DEFT_E_NOT_FOUND,
            "program_load: %s: it calls the opaque operator %s, version %u, which is not "
            "defined in this runtime",
            p->path, x->name, x->version);
    if (op->def.n_in != x->n_in || op->def.n_out != x->n_out ||
        op->def.attribute_bytes != x->attribute_bytes)
        return df_fail(d, DEFT_E_FORMAT,
                       "program_load: %s: %s has %u inputs, %u results and %zu bytes of attributes "
                       "there, and %u, %u and %zu in this runtime",
                       p->path, x->name, x->n_in, x->n_out, x->attribute_bytes, op->def.n_in,
                       op->def.n_out, op->def.attribute_bytes);
    return df_opaque_number(d, op, x->attributes, number);
}

/* Lets calls have the numbers of this runtime. */
static deft_status find_operators(const deft_program *p, df_diag *d)
{
    deft_status st = DEFT_OK;
    df_trace *const t = p->t;
    for (uint32_t k = 0; k < t->n_nodes && st == DEFT_OK; k++)
        if (t->nodes[k].op == DF_OP_call)
            st =
                find_operator(p, d, df_opaques_at(t->opaques, t->nodes[k].attr), &t->nodes[k].attr);
    t->opaques = &p->cx->rt->opaques;
    return st;
}

static deft_status read_program(deft_program *p, df_diag *d)
{
    deft_status st = DEFT_OK;
    df_reader r = { .d = d, .what = "program_load", .path = p->path, .fd = -1 };
    df_diag why = { 0 };
    char *text = NULL;
    TRY(df_reader_open(&r));
    if (r.size > MOST_BYTES)
        TRY(df_fail(d, DEFT_E_LIMIT,
                    "program_load: %s: it has %llu bytes, and at most %llu are read", p->path,
                    (unsigned long long)r.size, (unsigned long long)MOST_BYTES));
    text = df_mem_alloc(p->cx->mem, (size_t)r.size + 1);
    if (!text) TRY(df_fail_mem(d, "program_load", (size_t)r.size + 1));
    TRY(df_reader_at(&r, text, (size_t)r.size, 0));
    st = df_trace_parse(&why, text, (size_t)r.size, &p->arena, &p->t);
    if (st != DEFT_OK) TRY(df_fail(d, st, "program_load: %s: %s", p->path, why.text));
    TRY(find_loops(p, d));
    TRY(find_operators(p, d));
    p->record = df_arena_new(&p->arena, uint32_t, p->t->n_nodes + 1u);
    if (!p->record) TRY(df_fail_mem(d, "program_load", p->t->n_nodes * sizeof *p->record));
done:
    if (text) df_mem_free(p->cx->mem, text, (size_t)r.size + 1);
    df_reader_close(&r);
    return st;
}

deft_status deft_program_load(deft_ctx *cx, const char *path, deft_program **out)
{
    deft_status st = DEFT_OK;
    deft_program *p = NULL;
    if (out) *out = NULL;
    if (!cx) return DEFT_E_ARG;
    df_act(cx, "program_load", DF_SITE);
    if (!path || !*path) return df_fail(&cx->diag, DEFT_E_ARG, "program_load: no path");
    if (!out) return df_fail(&cx->diag, DEFT_E_ARG, "program_load: out is NULL");
    p = df_mem_zalloc(cx->mem, sizeof *p);
    if (!p) return df_fail_mem(&cx->diag, "program_load", sizeof *p);
    p->cx = cx;
    df_arena_init(&p->arena, cx->mem);
    p->path = df_arena_strdup(&p->arena, path);
    if (!p->path) TRY(df_fail_mem(&cx->diag, "program_load", strlen(path)));
    TRY(read_program(p, &cx->diag));
    *out = p;
    p = NULL;
done:
    deft_program_destroy(&p);
    return st;
}

void deft_program_destroy(deft_program **out)
{
    if (!out || !*out) return;
    deft_program *const p = *out;
    *out = NULL;
    df_arena_finish(&p->arena);
    df_mem_free(p->cx->mem, p, sizeof *p);
}

/* ---- what it has ---- */

size_t deft_program_inputs(const deft_program *p)
{
    return p ? p->t->n_inputs : 0;
}

size_t deft_program_outputs(const deft_program *p)
{
    return p ? p->t->n_roots : 0;
}

static bool describe(const deft_program *p, uint32_t node, deft_dtype *dtype, deft_shape *shape)
{
    const df_node *const n = &p->t->nodes[node];
    if (dtype) *dtype = (deft_dtype)n->dtype;
    if (shape) *shape = deft_shape_of(n->rank, df_trace_extents(p->t, node));
    return true;
}

bool deft_program_input(const deft_program *p, size_t i, deft_dtype *dtype, deft_shape *shape)
{
    return i < deft_program_inputs(p) && describe(p, p->t->inputs[i].node, dtype, shape);
}

bool deft_program_output(const deft_program *p, size_t i, deft_dtype *dtype, deft_shape *shape)
{
    return i < deft_program_outputs(p) && describe(p, p->t->roots[i].node, dtype, shape);
}

/* ---- calling ---- */

static void program_shape(const deft_program *p, uint32_t node, df_shape *out)
{
    out->rank = p->t->nodes[node].rank;
    memcpy(out->dim, df_trace_extents(p->t, node), out->rank * sizeof *out->dim);
}

/* The record of input i, which is t. DF_BAD with the mistake recorded: it has another dtype or
 * shape. A bare number takes the dtype. */
static uint32_t bind_input(const deft_program *p, size_t i, deft_tensor *t)
{
    deft_ctx *const cx = p->cx;
    const uint32_t node = p->t->inputs[i].node;
    const deft_dtype want = (deft_dtype)p->t->nodes[node].dtype;
    df_shape wanted, found;
    char a[DF_SHAPE_TEXT], b[DF_SHAPE_TEXT];
    program_shape(p, node, &wanted);
    const bool is_number = t->flags & DF_HANDLE_WEAK && wanted.rank == 0;
    const uint32_t k = is_number ? df_weak_node(cx, t, want) : df_node_of(cx, t);
    if (k == DF_BAD) return DF_BAD;
    const deft_dtype have = df_dtype_at(cx, k);
    df_rec_shape(&cx->rec, k, &found);
    if (have == want && df_shape_equal(&wanted, &found)) return k;
    df_error(cx, have == want ? DEFT_E_SHAPE : DEFT_E_DTYPE,
             "program_call: %s: input %zu is %s%s, it must be %s%s", p->path, i,
             deft_dtype_name(have), df_shape_text(&found, b, sizeof b), deft_dtype_name(want),
             df_shape_text(&wanted, a, sizeof a));
    return DF_BAD;
}

/* Appends node k, whose operands have their records. */
static uint32_t append_node(const deft_program *p, uint32_t k, uintptr_t site)
{
    deft_ctx *const cx = p->cx;
    const df_node *const n = &p->t->nodes[k];
    uint32_t src[3] = { DF_BAD, DF_BAD, DF_BAD };
    df_shape s;
    for (uint32_t i = 0; i < n->n_src; i++) src[i] = p->record[n->src[i].i];
    if (n->op == DF_OP_result)
        src[0] = cx->rec.nodes[src[0]].src[0].i; /* of the view of the call */
    /* A loop of the program is in the loop in whose body the program is called. */
    const bool is_outermost = n->op == DF_OP_loop && p->t->nodes[n->src[0].i].op != DF_OP_loop;
    if (is_outermost && cx->body_loop != DF_NONE) src[0] = cx->body_loop;
    const uint32_t rank = n->n_src ? p->t->nodes[n->src[0].i].rank : n->rank;
    program_shape(p, k, &s);
    cx->finals += n->op == DF_OP_final;
    const uint32_t made =
        df_append(cx, (df_op)n->op, (deft_dtype)n->dtype, n->attr, src, p->t->args + n->arg,
                  df_op_n_args((df_op)n->op, rank), &s, site);
    if (n->op == DF_OP_result) cx->finals++;
    /* A call with several results gets no value of its own (extend/opaque.c). */
    if (n->op == DF_OP_call && made != DF_BAD && df_opaques_at(p->t->opaques, n->attr)->n_out > 1)
        return df_append(cx, DF_OP_unsqueeze, (deft_dtype)n->dtype, 0, &made, NULL, 0, NULL, site);
    /* Which records are in a branch alone is not known. For gradients, none is. */
    if (n->op == DF_OP_cond && made != DF_BAD && !df_grad_annotate_branches(cx, made, made, made))
        return DF_BAD;
    return made;
}

static bool record_program(const deft_program *p, deft_tensor *const *in, deft_tensor **out,
                           uintptr_t site)
{
    const df_trace *const t = p->t;
    for (uint32_t i = 0; i < t->n_inputs; i++)
        if ((p->record[t->inputs[i].node] = bind_input(p, i, in[i])) == DF_BAD) return false;
    for (uint32_t k = 0; k < t->n_nodes; k++)
        if (t->nodes[k].op != DF_OP_input && (p->record[k] = append_node(p, k, site)) == DF_BAD)
            return false;
    for (uint32_t r = 0; r < t->n_roots; r++)
        if (!(out[r] = df_result(p->cx, p->record[t->roots[r].node]))) return false;
    return true;
}

static bool check_program_call(const deft_program *p, deft_tensor *const *in, size_t n_in,
                               deft_tensor *const *out, size_t n_out)
{
    deft_ctx *const cx = p->cx;
    const df_trace *const t = p->t;
    if (n_in != t->n_inputs || n_out != t->n_roots || (n_in && !in) || (n_out && !out)) {
        df_error(cx, DEFT_E_ARG,
                 "program_call: %s: %zu inputs and %zu results%s, it has %u inputs and %u results",
                 p->path, n_in, n_out, (n_in && !in) || (n_out && !out) ? " (a list is NULL)" : "",
                 t->n_inputs, t->n_roots);
        return false;
    }
    if (cx->body_nest + p->n_nested > DF_MAX_NESTING) {
        df_error(cx, DEFT_E_LIMIT, "program_call: %s: its loops are nested more than %d deep here",
                 p->path, DF_MAX_NESTING);
        return false;
    }
    for (size_t i = 0; i < n_in; i++)
        if (!df_enter_more(cx, "program_call", (unsigned)i + 1, in[i])) return false;
    return true;
}

bool deft_program_call(deft_program *p, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                       size_t n_out)
{
    if (!p) return false;
    deft_ctx *const cx = p->cx;
    df_enter_call(cx, DF_SITE);
    bool ok = cx->rec.n < cx->look_at || df_make_room(cx);
    ok = ok && check_program_call(p, in, n_in, out, n_out);
    if (ok) {
        df_walk_begin(cx);
        ok = record_program(p, in, out, DF_SITE);
        df_walk_end(cx);
    }
    for (size_t i = 0; !ok && out && i < n_out; i++) out[i] = NULL;
    return ok;
}
