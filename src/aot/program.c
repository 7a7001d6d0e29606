/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace becomes a plan, and the plan becomes the arrays of an image. See program.h.
 *
 * Errors: p->st keeps the first failure. Functions that return a slot or an index then return 0,
 * which must not be used for anything but further such calls.
 */
#include "aot/program.h"

#include <stdio.h>
#include <string.h>

#include "aot/extents.h"
#include "aot/facts.h"
#include "runtime/bind.h"

/* ---- slots ---- */

static uint32_t no_memory(program *p)
{
    if (p->st == DEFT_OK) p->st = df_fail_mem(p->d, "export", sizeof(aot_seg));
    return 0;
}

/* Adds a row to one of the arrays of p. */
#define PUSH(p, v, value)                                                                          \
    do {                                                                                           \
        if (!df_vec_push((p)->mem, &(p)->v, value)) (void)no_memory(p);                            \
    } while (0)

static uint32_t new_slot(program *p, int64_t value, bool is_open)
{
    PUSH(p, values, value);
    PUSH(p, is_open, is_open);
    return p->st == DEFT_OK ? (uint32_t)p->values.n - 1 : 0;
}

static uint32_t program_constant(program *p, int64_t value)
{
    return new_slot(p, value, false);
}

/* Slot `to`, which exists, is computed by each call. */
static void program_compute(program *p, uint32_t to, uint32_t op, uint32_t a, uint32_t b)
{
    PUSH(p, slots, ((aot_slot){ .to = to, .op = op, .a = a, .b = b }));
}

static int64_t program_apply(uint32_t op, int64_t a, int64_t b)
{
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;
    if (op == AOT_SLOT_ADD) return (int64_t)(x + y);
    if (op == AOT_SLOT_SUB) return (int64_t)(x - y);
    if (op == AOT_SLOT_MUL) return (int64_t)(x * y);
    if (op == AOT_SLOT_MAX) return df_max_i64(a, b);
    return b > 0 ? df_div_up(a, b) : 0;
}

/* A slot that holds a (op) b. */
static uint32_t combine(program *p, uint32_t op, uint32_t a, uint32_t b)
{
    if (p->st != DEFT_OK) return 0;
    const bool is_open = p->is_open.at[a] || p->is_open.at[b];
    const int64_t value = program_apply(op, p->values.at[a], p->values.at[b]);
    const uint32_t to = new_slot(p, is_open ? 0 : value, is_open);
    if (is_open) program_compute(p, to, op, a, b);
    return to;
}

/* A slot with the extent of `axis` of a node. */
static uint32_t extent_slot(program *p, uint32_t node, uint32_t axis)
{
    int64_t value;
    const uint32_t param = extents_find(p, node, axis, &value);
    if (param == DF_NONE) return program_constant(p, value);
    const uint32_t to = new_slot(p, 0, true);
    program_compute(p, to, AOT_SLOT_EXTENT, param, 0);
    return to;
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
        product = combine(p, AOT_SLOT_MUL, product, extent_slot(p, in->node, x));
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
        (void)no_memory(p);
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
        case DF_SLOT_divup: at[i] = combine(p, slot_op(s->op), at[s->a], at[s->b]); break;
        }
    }
    return at;
}

/* The arrays of the image are being made from the plan. */
typedef struct maker {
    program *p;
    const uint32_t *slot; /* of the image, by slot of the plan */
    int64_t *value;       /* by slot of the plan; meaningless where it is open */
    uint32_t *input;      /* the parameter of each input; DF_NONE: it is linked */
    uint32_t *linked;     /* slot with the place of a linked input in the data */
    uint32_t *output;     /* the parameter of each root; DF_NONE: it is an input */
} maker;

static uint32_t program_slot_at(const maker *m, df_slot s)
{
    return s.i == DF_NONE ? AOT_NONE : m->slot[s.i];
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

/* ---- buffers ---- */

static uint32_t bytes_of_buf(maker *m, const df_plan_buf *b)
{
    return combine(m->p, AOT_SLOT_MUL, m->slot[b->numel.i],
                   program_constant(m->p, (int64_t)deft_dtype_size(b->dtype)));
}

/* Where each region begins, and the end of the last one that is in no other. */
static deft_status place_regions(maker *m, uint32_t *at)
{
    program *const p = m->p;
    const df_plan *const plan = p->plan;
    const uint32_t align = program_constant(p, DF_REGION_ALIGN);
    uint32_t end = program_constant(p, 0);
    /* A region lies behind those before it in the same outer region; the outer one comes first. */
    for (uint32_t i = 0; i < plan->n_regions && p->st == DEFT_OK; i++) {
        const df_region *const r = &plan->regions[i];
        uint32_t start = r->outer == DF_NONE ? end : DF_NONE;
        if (r->outer != DF_NONE) {
            start = DF_NONE;
            for (uint32_t k = i; k-- > 0 && start == DF_NONE;)
                if (plan->regions[k].outer == r->outer)
                    start = combine(p, AOT_SLOT_ADD, at[k],
                                    combine(p, AOT_SLOT_MUL, align,
                                            combine(p, AOT_SLOT_DIVUP,
                                                    m->slot[plan->regions[k].bytes.i], align)));
            if (start == DF_NONE) {
                if (r->outer > i)
                    return df_fail(p->d, DEFT_E_INTERNAL, "export: region %u lies in a later one",
                                   i);
                start = at[r->outer];
            }
        }
        at[i] = start;
        if (r->outer != DF_NONE) continue;
        end = combine(p, AOT_SLOT_ADD, end,
                      combine(p, AOT_SLOT_MUL, align,
                              combine(p, AOT_SLOT_DIVUP, m->slot[r->bytes.i], align)));
    }
    p->arena_slot = end;
    return p->st;
}

/* The parameter in which the caller passes the root that is stored in a buffer. */
static uint32_t root_parameter(const maker *m, df_buf buf)
{
    for (uint32_t r = 0; r < m->p->plan->n_roots; r++)
        if (m->p->plan->root_buf[r].i == buf.i && m->output[r] != DF_NONE) return m->output[r];
    return DF_NONE;
}

static deft_status import_buffer(maker *m, const df_plan_buf *b, df_buf at, const uint32_t *region)
{
    program *const p = m->p;
    aot_buf out = { .copied = AOT_NONE, .bytes = bytes_of_buf(m, b) };
    switch ((df_buf_kind)b->kind) {
    case DF_BUF_INPUT:
    case DF_BUF_INTO:
        out.kind = m->input[b->index] == DF_NONE ? AOT_BUF_DATA : AOT_BUF_PARAMETER;
        out.index = m->input[b->index] == DF_NONE ? m->linked[b->index] : m->input[b->index];
        break;
    case DF_BUF_ROOT: {
        const uint32_t param = root_parameter(m, at);
        if (param == DF_NONE)
            return df_fail(p->d, DEFT_E_INTERNAL, "export: a result has no parameter");
        out.kind = AOT_BUF_PARAMETER;
        out.index = param;
        if (b->donor == DF_NONE) break;
        if (m->input[b->donor] == DF_NONE)
            return df_fail(p->d, DEFT_E_ARG,
                           "export: output %s replaces input %u, whose values are linked",
                           p->params.at[param].name, b->donor);
        p->params.at[param].may_be = m->input[b->donor];
        if (b->keep) out.copied = m->input[b->donor];
        break;
    }
    case DF_BUF_TEMP:
        out.kind = AOT_BUF_TEMPORARY;
        out.index = region[b->index];
        break;
    }
    PUSH(p, bufs, out);
    return p->st;
}

/* The root before r that is the same value; DF_NONE: none. */
static uint32_t same_root(const maker *m, uint32_t r)
{
    const df_plan *const plan = m->p->plan;
    for (uint32_t k = 0; k < r; k++)
        if (m->output[k] != DF_NONE && plan->root_buf[k].i == plan->root_buf[r].i) return k;
    return DF_NONE;
}

/* Roots that are an input of the trace, or the same value as another root, are copied. */
static deft_status import_copies(maker *m)
{
    program *const p = m->p;
    const df_plan *const plan = p->plan;
    for (uint32_t r = 0; r < plan->n_roots; r++) {
        if (m->output[r] == DF_NONE) continue;
        const df_plan_buf *const b = &plan->bufs[plan->root_buf[r].i];
        aot_buf out = { .kind = AOT_BUF_COPY, .index = m->output[r], .bytes = bytes_of_buf(m, b) };
        out.copied = plan->root_buf[r].i;
        if (b->kind == DF_BUF_ROOT && same_root(m, r) == DF_NONE) continue;
        PUSH(p, bufs, out);
    }
    return p->st;
}

static deft_status import_buffers(maker *m)
{
    deft_status st = DEFT_OK;
    program *const p = m->p;
    uint32_t *const region = df_arena_new(&p->arena, uint32_t, p->plan->n_regions + 1u);
    if (!region) return df_fail_mem(p->d, "export", sizeof *region);
    TRY(place_regions(m, region));
    for (df_buf i = { 0 }; i.i < p->plan->n_bufs; i.i++)
        TRY(import_buffer(m, &p->plan->bufs[i.i], i, region));
    TRY(import_copies(m));
done:
    return st;
}

/* ---- segments ---- */

static uint32_t list_slots(maker *m, const df_slot *s, uint32_t n)
{
    const uint32_t first = (uint32_t)m->p->list.n;
    for (uint32_t i = 0; i < n; i++) PUSH(m->p, list, program_slot_at(m, s[i]));
    return first;
}

static void import_bind(maker *m, const df_bind *b, uint32_t n_axes, uint32_t kind, uint32_t same,
                        deft_dtype t)
{
    const aot_bind out = { .buf = b->buf.i,
                           .kind = kind,
                           .size = (uint32_t)deft_dtype_size(t),
                           .offset = program_slot_at(m, b->offset),
                           .stride = list_slots(m, b->stride, n_axes),
                           .same = same };
    PUSH(m->p, binds, out);
}

static uint32_t access_kind(uint8_t kind)
{
    return kind == DF_ACCESS_STORE     ? AOT_ACCESS_STORE
           : kind == DF_ACCESS_INDEX   ? AOT_ACCESS_INDEX
           : kind == DF_ACCESS_SCRATCH ? AOT_ACCESS_SCRATCH
                                       : AOT_ACCESS_LOAD;
}

/* The dtype of number slot i of a kernel. */
static deft_dtype number_dtype(const df_kernel *k, uint32_t i)
{
    for (uint32_t x = 0; x < k->n_ins; x++)
        if (k->ins[x].op == DF_K_num && k->ins[x].imm == i) return (deft_dtype)k->ins[x].dtype;
    return DEFT_I64;
}

/* The parameter that gives an argument of the trace; DF_NONE: it is a constant. */
static uint32_t number_parameter(const program *p, uint32_t arg)
{
    for (uint32_t i = 0; i < p->o->n_numbers; i++)
        if (p->o->number[i].arg == arg) return p->first_number + i;
    return DF_NONE;
}

static void import_numbers(maker *m, const df_seg *seg, const df_kernel *k)
{
    program *const p = m->p;
    for (uint32_t i = 0; i < k->n_num && p->st == DEFT_OK; i++) {
        aot_num out = { .slot = AOT_NONE, .parameter = AOT_NONE };
        const uint32_t slot = seg->num[i] & ~DF_NUM_IS_SLOT;
        const uint32_t given =
            seg->num[i] & DF_NUM_IS_SLOT ? DF_NONE : number_parameter(p, seg->num[i]);
        if ((seg->num[i] & DF_NUM_IS_SLOT) && p->is_open.at[m->slot[slot]]) {
            const deft_dtype t = (deft_dtype)seg->num_dtype[i];
            out.slot = m->slot[slot];
            out.is_float = df_is_float(t);
            out.bytes = (uint32_t)deft_dtype_size(t);
        } else if (given != DF_NONE) {
            const deft_dtype t = number_dtype(k, i);
            parameter *const a = &p->params.at[given];
            if (a->dtype != DEFT_N_DTYPES && df_is_float(a->dtype) != df_is_float(t))
                p->st = df_fail(p->d, DEFT_E_ARG, "export: %s is used as a float and as an integer",
                                a->name);
            a->dtype = t;
            out.parameter = given;
            out.is_float = df_is_float(t);
            out.bytes = (uint32_t)deft_dtype_size(t);
        } else {
            out.bits = df_bind_number(seg, i, m->value, p->t);
        }
        PUSH(p, nums, out);
    }
}

static uint32_t program_partial_words(const df_kernel *k)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_ins; i++)
        if (df_kop_infos[k->ins[i].op].kind == DF_KOP_reduce)
            n += k->ins[i].op == DF_K_argmin || k->ins[i].op == DF_K_argmax ? 2 : 1;
    return n;
}

/* The estimated time of an element in ps, as in runtime/exec/exec_measure.c. */
#define CODE_PS 15

static void import_kernel(maker *m, const df_seg *seg, aot_seg *out)
{
    program *const p = m->p;
    const df_kernel *const k = &p->plan->kernels[seg->kernel.i];
    out->kernel = seg->kernel.i;
    out->mode = k->mode;
    out->n_axes = k->n_axes;
    out->n_access = k->n_access;
    out->n_num = k->n_num;
    for (uint32_t x = 0; x < k->n_axes; x++) out->roles |= (uint32_t)k->role[x] << (2 * x);
    if (k->flags & DF_KERNEL_SPLIT) {
        out->flags |= AOT_SPLIT;
        out->n_partial = program_partial_words(k);
    }
    if (df_kernel_has_tiles(k)) out->flags |= AOT_TILES;
    out->picoseconds = (uint32_t)(CODE_PS * (k->cost > 1 ? k->cost : 1));
    out->extent = list_slots(m, seg->extent, k->n_axes);
    out->bind = (uint32_t)p->binds.n;
    for (uint32_t i = 0; i < k->n_access; i++) {
        const df_access *const a = &k->access[i];
        if (a->kind == DF_ACCESS_SCRATCH) out->flags |= AOT_SCRATCH;
        import_bind(m, &seg->bind[i], k->n_axes, access_kind(a->kind), a->same_as,
                    (deft_dtype)a->dtype);
    }
    out->num = (uint32_t)p->nums.n;
    import_numbers(m, seg, k);
}

static deft_status import_product(maker *m, const df_seg *seg, aot_seg *out)
{
    program *const p = m->p;
    if (seg->windows || seg->a_dtype != seg->dtype || seg->b_dtype != seg->dtype ||
        !df_is_real(seg->dtype))
        return df_fail(p->d, DEFT_E_INTERNAL, "export: a product has operands of another kind");
    out->is_f64 = seg->dtype == DEFT_F64;
    out->n_batch = seg->n_batch;
    out->n_column_axes = seg->n_column_axes;
    out->m = program_slot_at(m, seg->m);
    out->n = program_slot_at(m, seg->n);
    out->k = program_slot_at(m, seg->k);
    out->batch = list_slots(m, seg->batch, seg->n_batch);
    out->c_access = seg->c_access;
    out->operand = (uint32_t)p->binds.n;
    const df_bind *const operand[3] = { &seg->a, &seg->b, &seg->c };
    for (int i = 0; i < 3; i++)
        import_bind(m, operand[i], seg->n_batch + 2, AOT_ACCESS_LOAD, 0, seg->dtype);
    return p->st;
}

static deft_status import_segments(maker *m)
{
    deft_status st = DEFT_OK;
    program *const p = m->p;
    for (uint32_t i = 0; i < p->plan->n_segs; i++) {
        const df_seg *const seg = &p->plan->segs[i];
        aot_seg out = { .kind = AOT_SEG_KERNEL, .kernel = AOT_NONE, .c_access = AOT_NONE };
        if (seg->kind == DF_SEG_ROUTINE)
            return df_fail(p->d, DEFT_E_ARG,
                           "export: %s needs libdeft, and cannot be part of an exported program",
                           df_op_infos[seg->op].name);
        if (seg->kernel.i != DF_NONE) import_kernel(m, seg, &out);
        if (seg->kind == DF_SEG_MATMUL) {
            out.kind = AOT_SEG_PRODUCT;
            TRY(import_product(m, seg, &out));
        }
        PUSH(p, segs, out);
        TRY(p->st);
    }
    for (uint32_t i = 0; i < p->plan->n_launches; i++) {
        const df_launch *const l = &p->plan->launches[i];
        PUSH(p, launches,
             ((aot_launch){ .first = l->first,
                            .n = l->n,
                            .n_after = l->n_after,
                            .checks = i < p->plan->n_checked }));
    }
    st = p->st;
done:
    return st;
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
            TRY(link_input(m, i, given->data));
            continue;
        }
        TRY(add_parameter(p, program_is_written(p, i) ? PARAM_INOUT : PARAM_INPUT,
                          given ? given->name : NULL, "in", i, &a));
        a->node = p->t->inputs[i].node;
        a->input = i;
        m->input[i] = (uint32_t)p->params.n - 1;
    }
    p->first_number = (uint32_t)p->params.n;
    for (uint32_t i = 0; i < p->o->n_numbers; i++) {
        TRY(add_parameter(p, PARAM_NUMBER, p->o->number[i].name, "number", i, &a));
        a->dtype = DEFT_N_DTYPES;
    }
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
    return a->kind == PARAM_NUMBER && a->dtype != DEFT_N_DTYPES && df_is_float(a->dtype);
}

static deft_status check_plan(const program *p)
{
    if (!is_identifier(p->o->name) || strlen(p->o->name) > 60)
        return df_fail(p->d, DEFT_E_ARG, "export: '%.60s' is no name for a function", p->o->name);
    for (uint32_t i = 0; i < p->plan->n_parts; i++) {
        const uint32_t node = p->plan->parts[i].node;
        if (node != DF_NONE)
            return df_fail(p->d, DEFT_E_ARG,
                           "export: %%%u is a %s whose body is more than one kernel, and cannot be "
                           "part of an exported program",
                           node, df_op_infos[p->t->nodes[node].op].name);
    }
    return DEFT_OK;
}

static deft_status program_make_plan(program *p, const df_trace *t)
{
    deft_status st = DEFT_OK;
    /* Numbers that do not depend on this machine. Windows of images would need more code in the
     * runtime part, so they are stored. */
    const df_limits limits = { .n_threads = 8,
                               .l1_bytes = 32 << 10,
                               .l2_bytes = 1 << 20,
                               .over_bytes = DF_OVER_BYTES,
                               .fuse = true,
                               .splits_columns = true };
    TRY(df_trace_simplify(p->d, t, DF_PASS_ALL, &p->arena, &p->t, NULL));
    TRY(df_fuse(p->d, p->t, &limits, p->mem, &p->plan));
    TRY(df_plan_verify(p->d, p->plan));
    TRY(check_plan(p));
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
    m.value = df_arena_new(&p->arena, int64_t, p->plan->n_slots + 1u);
    if (!m.input || !m.linked || !m.output || !m.value)
        return df_fail_mem(d, "export", p->plan->n_slots * sizeof *m.value);
    df_slots_eval(p->plan->slots, p->plan->n_slots, p->t, m.value);
    m.slot = import_slots(p);
    TRY(p->st);
    TRY(add_arrays(&m));
    TRY(import_guards(&m));
    TRY(import_buffers(&m));
    TRY(import_segments(&m));
    facts_find_whole_rows(p);
done:
    return st;
}

void program_finish(program *p)
{
    df_plan_destroy(&p->plan, p->mem);
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
    df_str_finish(&p->data);
    df_arena_finish(&p->arena);
}
