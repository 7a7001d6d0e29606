/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans and kernels as text. The same trace and limits give the same bytes.
 */
#include <inttypes.h>

#include "fuser/plan.h"
#include "ops/op.h"

static const char *const mode_name[] = { "map", "row", "col", "loop" };
static const char *const role_name[] = { "outer", "red", "inner" };
static const char *const access_name[] = { "load", "store", "at", "index", "scratch", "part" };
static const char *const buf_name[] = { "input", "root", "into", "temp" };
static const char step_name[] = { '0', '1', '*' };

static void plan_print_instruction(df_str *out, const df_ins *x, uint32_t i)
{
    const df_kop_info *const op = &df_kop_infos[x->op];
    df_str_fmt(out, "      v%" PRIu32 " = %s %s", i, op->name,
               deft_dtype_name((deft_dtype)x->dtype));
    for (uint32_t s = 0; s < op->n_src; s++) df_str_fmt(out, " v%" PRIu32, x->src[s]);
    switch (x->op) {
    case DF_K_const: df_str_fmt(out, " 0x%" PRIx64, x->imm); break;
    case DF_K_num: df_str_fmt(out, " n%" PRIu64, x->imm); break;
    case DF_K_index:
    case DF_K_load:
    case DF_K_load_at:
    case DF_K_load_if:
    case DF_K_store: df_str_fmt(out, " a%" PRIu64, x->imm); break;
    case DF_K_cast: df_str_put(out, x->imm & DF_CAST_EXACT ? " exact" : ""); break;
    case DF_K_check: df_str_fmt(out, " fault=%" PRIu64, x->imm); break;
    }
    df_str_putc(out, '\n');
}

void df_kernel_print(df_str *out, const df_kernel *k)
{
    df_str_fmt(out, "%s axes=[", mode_name[k->mode]);
    for (uint32_t i = 0; i < k->n_axes; i++)
        df_str_fmt(out, "%s%s", i ? "," : "", role_name[k->role[i]]);
    df_str_fmt(out, "] stages=%u", k->n_stages);
    if (k->flags & DF_KERNEL_FAST) df_str_put(out, " fast");
    if (k->flags & DF_KERNEL_SPLIT) df_str_put(out, " split");
    if (k->flags & DF_KERNEL_SCAN) df_str_put(out, " scan");
    if (k->flags & DF_KERNEL_CHECKS) df_str_put(out, " checks");
    df_str_putc(out, '\n');
    for (uint32_t i = 0; i < k->n_access; i++) {
        const df_access *const a = &k->access[i];
        df_str_fmt(out, "    a%" PRIu32 " = %s %s step=", i, access_name[a->kind],
                   deft_dtype_name((deft_dtype)a->dtype));
        for (uint32_t x = 0; x < k->n_axes; x++) df_str_putc(out, step_name[a->step[x]]);
        if (a->same_as != i) df_str_fmt(out, " same_as=a%" PRIu32, a->same_as);
        if (a->twin) df_str_fmt(out, " twin=a%u", a->twin - 1u);
        df_str_putc(out, '\n');
    }
    for (uint32_t i = 0; i < k->n_ins; i++) {
        const df_ins *const x = &k->ins[i];
        if (k->mode != DF_MODE_MAP &&
            (i == 0 || x->stage != k->ins[i - 1].stage || x->level != k->ins[i - 1].level))
            df_str_fmt(out, "    %s %u:\n", x->level == DF_LEVEL_ROW ? "row" : "elem", x->stage);
        plan_print_instruction(out, x, i);
    }
}

/* ---- slots as formulas ---- */

static void plan_print_leaf(df_str *out, const df_slot_def *d, const df_trace *t)
{
    (void)t;
    switch ((df_slot_op)d->op) {
    case DF_SLOT_const: df_str_fmt(out, "%" PRId64, d->imm); return;
    case DF_SLOT_extent: df_str_fmt(out, "%%%" PRIu32 ".%" PRIu32, d->a, d->b); return;
    case DF_SLOT_arg: df_str_fmt(out, "arg%" PRIu32, d->a); return;
    case DF_SLOT_stride: df_str_fmt(out, "in%" PRIu32 ".stride%" PRIu32, d->a, d->b); return;
    case DF_SLOT_add:
    case DF_SLOT_sub:
    case DF_SLOT_mul:
    case DF_SLOT_max:
    case DF_SLOT_divup: return;
    }
}

static void plan_print_slot(df_str *out, const df_plan *p, df_slot s)
{
    df_slot_print(out, p->slots, s.i, false, plan_print_leaf, NULL);
}

static void plan_print_bind(df_str *out, const df_plan *p, const df_bind *b, uint32_t n_axes)
{
    if (b->buf.i != DF_NONE)
        df_str_fmt(out, "b%" PRIu32, b->buf.i);
    else
        df_str_putc(out, '-');
    df_str_put(out, " + ");
    plan_print_slot(out, p, b->offset);
    df_str_put(out, " [");
    for (uint32_t x = 0; x < n_axes; x++) {
        if (x) df_str_putc(out, ',');
        plan_print_slot(out, p, b->stride[x]);
    }
    df_str_put(out, "]\n");
}

static void plan_print_checks(df_str *out, const df_plan *p)
{
    if (p->n_checked > 0)
        df_str_fmt(out, " checks=%" PRIu32, p->n_checked);
    else if (p->checks_first)
        df_str_put(out, " checks=first");
}

static void plan_print_extents(df_str *out, const df_plan *p, const df_slot *s, uint32_t n)
{
    df_str_putc(out, '[');
    for (uint32_t i = 0; i < n; i++) {
        if (i) df_str_putc(out, ',');
        plan_print_slot(out, p, s[i]);
    }
    df_str_putc(out, ']');
}

/* The inputs or the results of a call. */
static void plan_print_call(df_str *out, const df_plan *p, const df_call_operand *x, uint32_t n,
                            const char *what)
{
    for (uint32_t i = 0; i < n; i++) {
        df_str_fmt(out, "    %s%" PRIu32 ": %s", what, x[i].index, deft_dtype_name(x[i].dtype));
        plan_print_extents(out, p, x[i].extent, x[i].rank);
        df_str_putc(out, ' ');
        plan_print_bind(out, p, &x[i].bind, x[i].rank);
    }
}

/* What operand B of a product shows. Taps are in pairs: row, column. */
static void plan_print_windows(df_str *out, const df_plan *p, const df_windows *w)
{
    const struct {
        const char *name;
        const df_slot *slot;
        uint32_t n;
    } list[] = { { "step", w->step, 2 },
                 { "before", w->before, 2 },
                 { "extent", w->extent, 2 },
                 { "out", w->out, 2 },
                 { "taps", w->tap, 2 * w->n_taps } };
    df_str_fmt(out, "    windows%s", w->is_transposed ? " transposed" : "");
    for (uint32_t i = 0; i < DF_LEN(list); i++) {
        df_str_fmt(out, " %s=", list[i].name);
        plan_print_extents(out, p, list[i].slot, list[i].n);
    }
    df_str_putc(out, '\n');
}

static void plan_print_segment(df_str *out, const df_plan *p, uint32_t i)
{
    const df_seg *const s = &p->segs[i];
    df_str_fmt(out, "  s%" PRIu32 " ", i);
    if (s->kind == DF_SEG_MATMUL) {
        df_str_fmt(out, "matmul %s m=", deft_dtype_name(s->dtype));
        plan_print_slot(out, p, s->m);
        df_str_put(out, " n=");
        plan_print_slot(out, p, s->n);
        df_str_put(out, " k=");
        plan_print_slot(out, p, s->k);
        df_str_put(out, " batch=");
        plan_print_extents(out, p, s->batch, s->n_batch);
        if (s->a_dtype != s->dtype) df_str_fmt(out, " a=%s", deft_dtype_name(s->a_dtype));
        if (s->b_dtype != s->dtype) df_str_fmt(out, " b=%s", deft_dtype_name(s->b_dtype));
        if (s->kernel.i != DF_NONE)
            df_str_fmt(out, " epilogue=k%" PRIu32 " c=a%" PRIu32, s->kernel.i, s->c_access);
        if (s->n_column_axes > 0) df_str_fmt(out, " columns=%" PRIu32, s->n_column_axes + 1);
    } else if (s->kind == DF_SEG_ROUTINE && (s->op == DF_OP_call || s->op == DF_OP_result)) {
        df_str_fmt(out, "%s %s", df_op_infos[s->op].name, deft_dtype_name(s->dtype));
        if (s->op == DF_OP_result) df_str_fmt(out, " index=%" PRIu32, s->attr);
    } else if (s->kind == DF_SEG_ROUTINE) {
        const char *const how = s->op == DF_OP_which ? " zeros" : " descending";
        df_str_put(out, df_op_infos[s->op].name);
        const bool over = df_op_writes_over((df_op)s->op);
        if (over) df_str_fmt(out, " axis=%" PRIu32, s->attr);
        if (over && s->a_dtype != DEFT_I64)
            df_str_fmt(out, " indices=%s", deft_dtype_name(s->a_dtype));
        if (!over && s->attr) df_str_put(out, how);
        df_str_fmt(out, " %s n=", deft_dtype_name(s->dtype));
        plan_print_slot(out, p, s->n);
        df_str_put(out, " m=");
        plan_print_slot(out, p, s->m);
        df_str_put(out, " batch=");
        plan_print_extents(out, p, s->batch, s->n_batch);
    } else {
        df_str_fmt(out, "k%" PRIu32, s->kernel.i);
    }
    df_str_put(out, " from");
    for (uint32_t k = 0; k < s->n_from; k++) df_str_fmt(out, " %%%" PRIu32, p->from[s->from + k]);
    df_str_putc(out, '\n');
    if (s->kind == DF_SEG_MATMUL) {
        const df_bind *const b[] = { &s->a, &s->b, &s->c };
        for (uint32_t k = 0; k < 3; k++) {
            df_str_fmt(out, "    %c: ", "abc"[k]);
            plan_print_bind(out, p, b[k], k == 1 && s->windows ? 4 : s->n_batch + 2);
        }
        if (s->windows) plan_print_windows(out, p, s->windows);
    }
    if (s->kind == DF_SEG_ROUTINE && s->op == DF_OP_result) {
        df_str_put(out, "    c: ");
        plan_print_bind(out, p, &s->c, s->n_batch);
    } else if (s->call) {
        plan_print_call(out, p, s->call->in, s->call->n_in, "in");
        plan_print_call(out, p, s->call->out, s->call->n_out, "out");
    } else if (s->kind == DF_SEG_ROUTINE) {
        const bool over = df_op_writes_over((df_op)s->op);
        df_str_put(out, "    a: ");
        plan_print_bind(out, p, &s->a, over ? s->n_index : s->n_batch + 1);
        if (s->b.buf.i != DF_NONE) {
            df_str_put(out, "    b: ");
            plan_print_bind(out, p, &s->b, over ? s->n_batch : 1);
        }
        df_str_put(out, "    c: ");
        plan_print_bind(out, p, &s->c,
                        df_op_scatters_slices((df_op)s->op) ? s->n_batch + 1 - s->n_index
                                                            : s->n_batch + !over);
    }
    if (s->kernel.i == DF_NONE) return;
    const df_kernel *const k = &p->kernels[s->kernel.i];
    df_str_put(out, "    extents ");
    plan_print_extents(out, p, s->extent, k->n_axes);
    df_str_putc(out, '\n');
    for (uint32_t a = 0; a < k->n_access; a++) {
        df_str_fmt(out, "    a%" PRIu32 ": ", a);
        plan_print_bind(out, p, &s->bind[a], k->n_axes);
    }
    for (uint32_t n = 0; n < k->n_num; n++) {
        df_str_fmt(out, "    n%" PRIu32 ": ", n);
        if (s->num[n] & DF_NUM_IS_SLOT)
            plan_print_slot(out, p, (df_slot){ s->num[n] & ~DF_NUM_IS_SLOT });
        else
            df_str_fmt(out, "arg%" PRIu32, s->num[n]);
        df_str_fmt(out, " as %s\n", deft_dtype_name((deft_dtype)s->num_dtype[n]));
    }
}

static void plan_print_buffer(df_str *out, const df_plan *p, uint32_t i)
{
    const df_plan_buf *const b = &p->bufs[i];
    df_str_fmt(out, "  b%" PRIu32 " %s %" PRIu32 " %s[", i, buf_name[b->kind], b->index,
               deft_dtype_name(b->dtype));
    plan_print_slot(out, p, b->numel);
    df_str_putc(out, ']');
    if (b->donor != DF_NONE) df_str_fmt(out, " donor=in%" PRIu32, b->donor);
    if (b->keep) df_str_put(out, " keep");
    if (b->over.i != DF_NONE) df_str_fmt(out, " over=b%" PRIu32, b->over.i);
    if (b->kind == DF_BUF_TEMP) df_str_fmt(out, " live=%" PRIu32 "..%" PRIu32, b->first, b->last);
    df_str_putc(out, '\n');
}

static void plan_print_node(df_str *out, const df_trace *t, uint32_t n)
{
    df_str_fmt(out, "%%%" PRIu32, n);
    if (t && n < t->n_nodes) df_str_fmt(out, " %s", df_op_infos[t->nodes[n].op].name);
}

void df_why_print(df_str *out, const df_plan *p, const df_trace *t)
{
    for (uint32_t i = 0; i < p->n_why; i++) {
        const df_why *const w = &p->why[i];
        if (w->a != DF_NONE) plan_print_node(out, t, w->a);
        if (w->b != w->a) df_str_put(out, ", ");
        if (w->b != w->a) plan_print_node(out, t, w->b);
        df_str_fmt(out, "%s%s: %s\n", w->a != DF_NONE ? " " : "", w->what, w->reason);
    }
}

static void plan_print_subplan(df_str *out, const char *what, const df_subplan *b,
                               const df_trace *t)
{
    if (!b->plan) return;
    df_str_fmt(out, "%s reads", what);
    for (uint32_t i = 0; i < b->trace.n_inputs; i++) {
        static const char *const names[] = { "in", "c", "s", "row c", "iteration", "extents" };
        df_str_fmt(out, "%s %s", i ? "," : "", names[b->port[i].kind]);
        if (b->port[i].kind < DF_PORT_NUMBER) df_str_fmt(out, "%" PRIu32, b->port[i].index);
        if (b->port[i].first_bytes.i != 0) df_str_put(out, " of a slice");
    }
    df_str_putc(out, '\n');
    df_plan_print(out, b->plan, t);
}

static void plan_print_matrix(df_str *out, const df_part *part, const char *name,
                              const df_tag_matrix *m)
{
    const df_plan *const p = part->body.plan;
    df_str_fmt(out, "\n  %s: read %" PRIu32 " + ", name, m->port);
    plan_print_slot(out, p, m->offset);
    df_str_put(out, " [");
    for (uint32_t i = 0; i < part->tag->n_batch; i++) {
        plan_print_slot(out, p, m->batch[i]);
        df_str_putc(out, ',');
    }
    plan_print_slot(out, p, m->row);
    df_str_putc(out, ',');
    plan_print_slot(out, p, m->col);
    df_str_putc(out, ']');
}

static void plan_print_tag(df_str *out, const df_part *part)
{
    const df_part_tag *const tag = part->tag;
    const bool is_grad = tag->what.kind == DF_LOOP_ATTENTION_GRAD;
    df_str_fmt(out, " which is %s%s of %s%s%s, queries ", tag->what.is_causal ? "causal " : "",
               df_loop_kind_name(tag->what.kind), deft_dtype_name(tag->what.from),
               tag->what.is_scaled ? " scaled" : "", tag->what.is_padded ? " padded" : "");
    plan_print_slot(out, part->body.plan, tag->n_queries);
    df_str_put(out, " width ");
    plan_print_slot(out, part->body.plan, tag->width);
    plan_print_matrix(out, part, "q", &tag->q);
    plan_print_matrix(out, part, "k", &tag->k);
    plan_print_matrix(out, part, "v", &tag->v);
    if (is_grad) {
        plan_print_matrix(out, part, "dout", &tag->dout);
        df_str_fmt(out, "\n  log sum: read %" PRIu32 ", less: read %" PRIu32, tag->log_sum,
                   tag->less);
    }
    df_str_put(out, "\n ");
}

static void plan_print_part(df_str *out, const df_plan *p, uint32_t i, const df_trace *t)
{
    static const char *const names[] = { "run", "loop", "cond" };
    const df_part *const part = &p->parts[i];
    df_str_fmt(out, "part %" PRIu32 " %s", i, names[part->kind]);
    if (part->kind == DF_PART_COND) df_str_fmt(out, " c%" PRIu32, part->cond);
    if (part->kind == DF_PART_LOOP) {
        df_str_put(out, " most ");
        plan_print_slot(out, p, part->most);
        df_str_put(out, " states from");
        for (uint32_t k = 0; k < part->n_states; k++) df_str_fmt(out, " c%" PRIu32, part->init[k]);
        if (part->tag) plan_print_tag(out, part);
    }
    df_str_put(out, " makes");
    for (uint32_t k = 0; k < part->n_out; k++)
        if (part->out[k] == DF_NONE)
            df_str_put(out, " -");
        else
            df_str_fmt(out, " c%" PRIu32, part->out[k]);
    df_str_putc(out, '\n');
    plan_print_subplan(out, part->kind == DF_PART_LOOP ? "iteration" : "body", &part->body, t);
    plan_print_subplan(out, part->kind == DF_PART_LOOP ? "test" : "otherwise", &part->other, t);
}

static void plan_print_parts(df_str *out, const df_plan *p, const df_trace *t)
{
    df_str_fmt(out, "plan parts=%" PRIu32 " cells=%" PRIu32, p->n_parts, p->n_cells);
    plan_print_checks(out, p);
    df_str_putc(out, '\n');
    for (uint32_t i = 0; i < p->n_parts; i++) plan_print_part(out, p, i, t);
    df_str_put(out, "cells\n");
    for (uint32_t c = 0; c < p->n_cells; c++) {
        df_str_fmt(out, "  c%" PRIu32 " bytes ", c);
        plan_print_slot(out, p, p->cells[c].bytes);
        if (p->cells[c].kind == DF_CELL_INPUT) df_str_fmt(out, " = in%" PRIu32, p->cells[c].from);
        if (p->cells[c].kind == DF_CELL_ARG) df_str_fmt(out, " = arg%" PRIu32, p->cells[c].from);
        if (p->cells[c].kind == DF_CELL_CONST) df_str_fmt(out, " = 0x%" PRIx64, p->cells[c].bits);
        df_str_fmt(out, " until part %" PRIu32 "\n", p->cells[c].last);
    }
    df_str_put(out, "roots");
    for (uint32_t r = 0; t && r < t->n_roots; r++)
        if (p->root_cell[r] != DF_NONE) df_str_fmt(out, " c%" PRIu32, p->root_cell[r]);
    df_str_put(out, "\nguards\n");
    df_guard_print(out, p->guards, p->n_guards, p->slots, t);
}

void df_plan_print(df_str *out, const df_plan *p, const df_trace *t)
{
    if (p->root_cell) {
        plan_print_parts(out, p, t);
        return;
    }
    df_str_fmt(out, "plan kernels=%" PRIu32 " segments=%" PRIu32 " launches=%" PRIu32, p->n_kernels,
               p->n_segs, p->n_launches);
    plan_print_checks(out, p);
    df_str_putc(out, '\n');
    for (uint32_t k = 0; k < p->n_kernels; k++) {
        df_str_fmt(out, "kernel k%" PRIu32 " ", k);
        df_kernel_print(out, &p->kernels[k]);
    }
    for (uint32_t l = 0; l < p->n_launches; l++) {
        df_str_fmt(out, "launch %" PRIu32 "\n", l);
        for (uint32_t i = 0; i < p->launches[l].n; i++) {
            if (i + p->launches[l].n_after == p->launches[l].n && p->launches[l].n_after)
                df_str_put(out, "  after that\n");
            plan_print_segment(out, p, p->launches[l].first + i);
        }
    }
    df_str_put(out, "buffers\n");
    for (uint32_t b = 0; b < p->n_bufs; b++) plan_print_buffer(out, p, b);
    for (uint32_t r = 0; r < p->n_regions; r++) {
        df_str_fmt(out, "  region %" PRIu32 " bytes ", r);
        plan_print_slot(out, p, p->regions[r].bytes);
        if (p->regions[r].outer != DF_NONE)
            df_str_fmt(out, ", part of region %" PRIu32, p->regions[r].outer);
        df_str_putc(out, '\n');
    }
    df_str_put(out, "roots");
    for (uint32_t r = 0; r < p->n_roots; r++) df_str_fmt(out, " b%" PRIu32, p->root_buf[r].i);
    df_str_put(out, "\nguards\n");
    df_guard_print(out, p->guards, p->n_guards, p->slots, t);
}
