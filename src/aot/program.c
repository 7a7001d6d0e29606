/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace becomes a plan, and the plan becomes the arrays of an image. See program.h and maker.h.
 */

#include <stdio.h>
#include <string.h>

#include "aot/extents.h"
#include "aot/facts.h"
#include "aot/maker.h"

#define PUSH DF_AOT_PUSH

/* ---- slots ---- */

/* A slot with the extent of `axis` of a node. */
static uint32_t extent_slot(program *p, uint32_t node, uint32_t axis)
{
    int64_t value;
    const uint32_t param = extents_find(p, node, axis, &value);
    if (param == DF_NONE) return program_constant(p, value);
    return program_computed(p, AOT_SLOT_EXTENT, param, 0);
}

/* A slot with the stride of an input along an axis. Where a later axis is open, the input is
 * row-major (extents.c). */
static uint32_t stride_slot(program *p, uint32_t input, uint32_t axis)
{
    const df_input *const in = &p->t->inputs[input];
    const uint32_t rank = p->t->nodes[in->node].rank;
    bool is_open = false;
    for (uint32_t x = axis + 1; x < rank; x++)
        is_open |= program_open_extent(p, in->node, x) != DF_NONE;
    if (!is_open) return program_constant(p, in->stride[axis]);
    uint32_t product = program_constant(p, 1);
    for (uint32_t x = axis + 1; x < rank; x++)
        product = program_combine(p, AOT_SLOT_MUL, product, extent_slot(p, in->node, x));
    return product;
}

static uint32_t slot_op(uint32_t op)
{
    switch ((df_slot_op)op) {
    case DF_SLOT_add: return AOT_SLOT_ADD;
    case DF_SLOT_sub: return AOT_SLOT_SUB;
    case DF_SLOT_mul: return AOT_SLOT_MUL;
    case DF_SLOT_max: return AOT_SLOT_MAX;
    case DF_SLOT_divup:
    case DF_SLOT_const:
    case DF_SLOT_extent:
    case DF_SLOT_arg:
    case DF_SLOT_stride: break;
    }
    return AOT_SLOT_DIVUP;
}

/* Whether an argument of the trace is a parameter. */
static bool program_is_number(const program *p, uint32_t arg)
{
    for (uint32_t i = 0; i < p->o->n_numbers; i++)
        if (p->o->number[i].arg == arg) return true;
    return false;
}

/* The slots of the plan in the image, by their numbers in the plan. NULL when memory runs out. */
static uint32_t *import_slots(program *p)
{
    const df_plan *const plan = p->plan;
    uint32_t *const at = df_arena_new(&p->arena, uint32_t, plan->n_slots + 1u);
    if (!at) {
        program_no_memory(p);
        return NULL;
    }
    for (uint32_t i = 0; i < plan->n_slots && p->st == DEFT_OK; i++) {
        const df_slot_def *const s = &plan->slots[i];
        switch ((df_slot_op)s->op) {
        case DF_SLOT_const: at[i] = program_constant(p, s->imm); break;
        case DF_SLOT_arg:
            if (program_is_number(p, s->a)) {
                p->st = df_fail(p->d, DEFT_E_ARG,
                                "export: argument %u is a bound, and cannot be a parameter", s->a);
                break;
            }
            at[i] = program_constant(p, p->t->args[s->a]);
            break;
        case DF_SLOT_extent: at[i] = extent_slot(p, s->a, s->b); break;
        case DF_SLOT_stride: at[i] = stride_slot(p, s->a, s->b); break;
        case DF_SLOT_add:
        case DF_SLOT_sub:
        case DF_SLOT_mul:
        case DF_SLOT_max:
        case DF_SLOT_divup: at[i] = program_combine(p, slot_op(s->op), at[s->a], at[s->b]); break;
        }
    }
    return at;
}

/* ---- guards ---- */

static deft_status import_guards(maker *m)
{
    program *const p = m->p;
    for (uint32_t i = 0; i < p->plan->n_guards; i++) {
        const df_guard *const g = &p->plan->guards[i];
        const uint32_t n = df_guard_n_slots((df_guard_kind)g->kind);
        if (n == 0) continue;
        const uint32_t a = m->slot[g->a], b = n == 2 ? m->slot[g->b] : 0;
        const uint32_t kind = n == 2                         ? AOT_GUARD_EQUAL
                              : g->kind == DF_GUARD_is_const ? AOT_GUARD_IS
                              : g->kind == DF_GUARD_at_least ? AOT_GUARD_AT_LEAST
                                                             : AOT_GUARD_AT_MOST;
        if (p->is_open.at[a] || (n == 2 && p->is_open.at[b])) {
            PUSH(p, guards, ((aot_guard){ .kind = kind, .a = a, .b = b, .want = g->want }));
            continue;
        }
        const int64_t x = p->values.at[a], y = p->values.at[b];
        const bool holds = kind == AOT_GUARD_EQUAL      ? x == y
                           : kind == AOT_GUARD_IS       ? x == g->want
                           : kind == AOT_GUARD_AT_LEAST ? x >= g->want
                                                        : x <= g->want;
        if (!holds)
            return df_fail(p->d, DEFT_E_INTERNAL,
                           "export: the plan refuses the program that it was made from");
    }
    return p->st;
}

/* Adds the bounds of extents. */
static void add_bounds(program *p)
{
    for (uint32_t i = 0; i < p->n_extents; i++) {
        const df_aot_bounds a = p->params.at[i].bounds;
        const uint32_t slot = program_computed(p, AOT_SLOT_EXTENT, i, 0);
        const aot_guard least = { .kind = AOT_GUARD_AT_LEAST, .a = slot, .want = a.least };
        const aot_guard most = { .kind = AOT_GUARD_AT_MOST, .a = slot, .want = a.most };
        if (a.least > 0) PUSH(p, guards, least);
        if (a.most > 0) PUSH(p, guards, most);
    }
}

/* ---- parameters ---- */

static bool is_identifier(const char *s)
{
    for (const char *c = s; *c; c++) {
        const bool is_letter = (*c | 32) >= 'a' && (*c | 32) <= 'z';
        if (!is_letter && *c != '_' && !(c > s && *c >= '0' && *c <= '9')) return false;
    }
    return *s != '\0';
}

static deft_status add_parameter(program *p, param_kind kind, const char *name, const char *prefix,
                                 uint32_t number, parameter **out)
{
    parameter a = { .kind = kind, .node = DF_NONE, .input = DF_NONE, .may_be = DF_NONE };
    const int n = name ? snprintf(a.name, sizeof a.name, "%s", name)
                       : snprintf(a.name, sizeof a.name, "%s%u", prefix, number);
    if (n >= (int)sizeof a.name || !is_identifier(a.name))
        return df_fail(p->d, DEFT_E_ARG, "export: '%.60s' is no name for a parameter",
                       name ? name : a.name);
    for (size_t i = 0; i < p->params.n; i++)
        if (strcmp(p->params.at[i].name, a.name) == 0)
            return df_fail(p->d, DEFT_E_ARG, "export: two parameters have the name '%s'", a.name);
    PUSH(p, params, a);
    if (p->st == DEFT_OK) *out = &p->params.at[p->params.n - 1];
    return p->st;
}

static deft_status add_extents(program *p)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < p->o->n_open; i++) {
        const df_aot_open_axis *const o = &p->o->open[i];
        parameter *a;
        if (o->input >= p->t->n_inputs || o->axis >= p->t->nodes[p->t->inputs[o->input].node].rank)
            return df_fail(p->d, DEFT_E_ARG, "export: input %u has no axis %u that could be open",
                           o->input, o->axis);
        bool is_known = false;
        for (size_t k = 0; k < p->params.n; k++)
            is_known |= o->name && strcmp(p->params.at[k].name, o->name) == 0;
        if (!is_known) TRY(add_parameter(p, PARAM_EXTENT, o->name, "n", i, &a));
    }
    p->n_extents = (uint32_t)p->params.n;
done:
    return st;
}

/* Adds the values of a linked input to the data. */
static deft_status link_input(maker *m, uint32_t i, const void *data)
{
    program *const p = m->p;
    const df_input *const in = &p->t->inputs[i];
    const size_t size = deft_dtype_size((deft_dtype)p->t->nodes[in->node].dtype);
    if (!(df_strides_contiguous(df_trace_extents(p->t, in->node), in->stride,
                                p->t->nodes[in->node].rank)))
        return df_fail(p->d, DEFT_E_ARG,
                       "export: input %u is not row-major, so its values cannot be linked", i);
    while (p->data.ok && p->data.n % 64 != 0) df_str_putc(&p->data, '\0');
    m->linked[i] = program_constant(p, (int64_t)p->data.n);
    df_str_putn(&p->data, data, (size_t)df_trace_numel(p->t, in->node) * size);
    return p->data.ok ? p->st : df_fail_mem(p->d, "export", p->data.n);
}

static bool program_is_written(const program *p, uint32_t input)
{
    for (uint32_t r = 0; r < p->t->n_roots; r++)
        if (p->t->roots[r].kind == DF_ROOT_INTO && p->t->roots[r].into == input) return true;
    return false;
}

static deft_status add_number_parameters(program *p)
{
    deft_status st = DEFT_OK;
    parameter *a;
    p->number = df_arena_new(&p->arena, uint32_t, p->o->n_numbers + 1u);
    if (!p->number) return df_fail_mem(p->d, "export", sizeof *p->number);
    for (uint32_t i = 0; i < p->o->n_numbers; i++) {
        const df_aot_number *const x = &p->o->number[i];
        uint32_t k = 0;
        while (k < i && strcmp(p->o->number[k].name, x->name) != 0) k++;
        if (k == i) {
            TRY(add_parameter(p, PARAM_NUMBER, x->name, "number", i, &a));
            a->is_integer = x->is_integer;
            a->n_draws = x->n_draws;
            p->number[i] = (uint32_t)p->params.n - 1;
            continue;
        }
        if (x->is_integer != p->o->number[k].is_integer)
            TRY(df_fail(p->d, DEFT_E_ARG, "export: %s is used as a float and as an integer",
                        x->name));
        p->number[i] = p->number[k];
    }
done:
    return st;
}

static deft_status add_arrays(maker *m)
{
    deft_status st = DEFT_OK;
    program *const p = m->p;
    parameter *a;
    for (uint32_t k = 0; k < p->t->n_inputs; k++) {
        const uint32_t i = p->o->input_order ? p->o->input_order[k] : k;
        const df_aot_input *const given = p->o->input ? &p->o->input[i] : NULL;
        m->input[i] = DF_NONE;
        if (given && given->data) {
            if (program_is_written(p, i))
                TRY(df_fail(p->d, DEFT_E_ARG,
                            "export: input %u is written, so its values cannot be linked", i));
            TRY(link_input(m, i, given->data));
            continue;
        }
        TRY(add_parameter(p, program_is_written(p, i) ? PARAM_INOUT : PARAM_INPUT,
                          given ? given->name : NULL, "in", i, &a));
        a->node = p->t->inputs[i].node;
        a->input = i;
        m->input[i] = (uint32_t)p->params.n - 1;
    }
    TRY(add_number_parameters(p));
    for (uint32_t k = 0; k < p->t->n_roots; k++) {
        const uint32_t r = p->o->root_order ? p->o->root_order[k] : k;
        m->output[r] = DF_NONE;
        if (p->t->roots[r].kind == DF_ROOT_INTO) continue;
        TRY(add_parameter(p, PARAM_OUTPUT, p->o->output ? p->o->output[r] : NULL, "out", r, &a));
        a->node = p->t->roots[r].node;
        m->output[r] = (uint32_t)p->params.n - 1;
    }
done:
    return st;
}

/* ---- exported ---- */

bool program_has_products(const program *p, bool of_f64)
{
    for (size_t i = 0; i < p->segs.n; i++)
        if (p->segs.at[i].kind == AOT_SEG_PRODUCT && p->segs.at[i].is_f64 == of_f64) return true;
    return false;
}

bool program_is_double(const parameter *a)
{
    return a->kind == PARAM_NUMBER && !a->is_integer;
}

/* Appends the steps of the plan, whose temporaries are the arena. */
static deft_status import_plan(maker *m)
{
    program *const p = m->p;
    uint32_t *const port = df_arena_new(&p->arena, uint32_t, p->t->n_inputs + 1u);
    uint32_t *const dest = df_arena_new(&p->arena, uint32_t, p->t->n_roots + 1u);
    if (!port || !dest) return df_fail_mem(p->d, "export", sizeof *port);
    for (uint32_t i = 0; i < p->t->n_inputs; i++)
        port[i] = m->input[i] == DF_NONE ? program_add_buf(p, AOT_BUF_DATA, m->linked[i])
                                         : program_add_buf(p, AOT_BUF_PARAMETER, m->input[i]);
    for (uint32_t r = 0; r < p->t->n_roots; r++)
        dest[r] = m->output[r] == DF_NONE ? AOT_NONE
                                          : program_add_buf(p, AOT_BUF_PARAMETER, m->output[r]);
    const block b = { .m = m,
                      .plan = p->plan,
                      .port = port,
                      .dest = dest,
                      .n_roots = p->t->n_roots,
                      .arena = program_constant(p, 0) };
    return parts_import(&b, &p->arena_slot);
}

static deft_status program_make_plan(program *p, const df_trace *t)
{
    deft_status st = DEFT_OK;
    if (!is_identifier(p->o->name) || strlen(p->o->name) > 60)
        return df_fail(p->d, DEFT_E_ARG, "export: '%.60s' is no name for a function", p->o->name);
    /* Numbers that do not depend on this machine. Windows of images would need more code in the
     * runtime part, so they are stored. */
    const df_limits limits = { .n_threads = 8,
                               .l1_bytes = 32 << 10,
                               .l2_bytes = 1 << 20,
                               .over_bytes = DF_OVER_BYTES,
                               .fuse = true,
                               .splits_columns = true };
    TRY(df_trace_simplify(p->d, t, DF_PASS_ALL, &p->arena, &p->t, &p->from));
    if (p->o->gpu && p->o->n_open > 0)
        TRY(df_fail(p->d, DEFT_E_ARG, "export: GPU code has no open extents, and %s is one",
                    p->o->open[0].name ? p->o->open[0].name : "an axis"));
    if (p->o->gpu) goto done; /* the plug-in for GPUs makes the plan */
    TRY(df_fuse(p->d, p->t, &limits, p->mem, &p->plan));
    TRY(df_plan_verify(p->d, p->plan));
done:
    return st;
}

deft_status program_make(program *p, df_diag *d, const df_mem *mem, const df_trace *t,
                         const df_aot_options *o)
{
    deft_status st = DEFT_OK;
    *p = (program){ .mem = mem, .d = d, .o = o };
    maker m = { .p = p };
    df_arena_init(&p->arena, mem);
    df_str_init(&p->data, mem);
    TRY(program_make_plan(p, t));
    TRY(add_extents(p));
    TRY(extents_spread(p));
    m.input = df_arena_new(&p->arena, uint32_t, p->t->n_inputs + 1u);
    m.linked = df_arena_new(&p->arena, uint32_t, p->t->n_inputs + 1u);
    m.output = df_arena_new(&p->arena, uint32_t, p->t->n_roots + 1u);
    if (!m.input || !m.linked || !m.output) return df_fail_mem(d, "export", sizeof *m.input);
    if (o->gpu) {
        TRY(add_arrays(&m));
        return gpu_import(&m);
    }
    m.value = df_arena_new(&p->arena, int64_t, p->plan->n_slots + 1u);
    if (!m.value) return df_fail_mem(d, "export", p->plan->n_slots * sizeof *m.value);
    df_slots_eval(p->plan->slots, p->plan->n_slots, p->t, m.value);
    m.slot = import_slots(p);
    TRY(p->st);
    TRY(add_arrays(&m));
    TRY(import_guards(&m));
    add_bounds(p);
    TRY(import_plan(&m));
    facts_find_whole_rows(p);
done:
    return st;
}

void program_finish(program *p)
{
    df_plan_destroy(&p->plan, p->mem);
    if (p->has_gpu) df_arena_finish(&p->gpu.arena);
    df_vec_finish(p->mem, &p->params);
    df_vec_finish(p->mem, &p->values);
    df_vec_finish(p->mem, &p->is_open);
    df_vec_finish(p->mem, &p->slots);
    df_vec_finish(p->mem, &p->guards);
    df_vec_finish(p->mem, &p->bufs);
    df_vec_finish(p->mem, &p->binds);
    df_vec_finish(p->mem, &p->nums);
    df_vec_finish(p->mem, &p->list);
    df_vec_finish(p->mem, &p->segs);
    df_vec_finish(p->mem, &p->launches);
    df_vec_finish(p->mem, &p->steps);
    df_vec_finish(p->mem, &p->loops);
    df_vec_finish(p->mem, &p->roots);
    df_vec_finish(p->mem, &p->rows);
    df_vec_finish(p->mem, &p->blocks);
    df_vec_finish(p->mem, &p->pieces);
    df_vec_finish(p->mem, &p->routines);
    df_vec_finish(p->mem, &p->kernels);
    df_str_finish(&p->data);
    df_arena_finish(&p->arena);
}
