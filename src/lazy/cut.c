/* SPDX-License-Identifier: Apache-2.0
 *
 * Closing a trace: from the wanted records back to values, numbered afresh in recording order, so
 * that the same program gives the same bytes whatever was recorded around it.
 *
 * Two passes over the records between the lowest and the highest one needed. Backwards: mark what
 * is needed; a record that has a value is an input and its operands are not followed. Forwards:
 * copy.
 */
#include "lazy/lazy.h"

#include <string.h>

/* What a cut needs of a record. A view that an update writes through is needed as the record it is,
 * even when it was read and has a value: it names a place. */
enum { UNSEEN, VALUE, PLACE };

static bool is_input(const df_rec *r, const uint8_t *need, uint32_t i)
{
    return r->val[i] && need[i] != PLACE;
}

/* Marks what the wanted records need. Returns how many that are. */
static uint32_t mark(const df_rec *r, uint8_t *need, uint32_t high, uint32_t *low_out,
                     uint32_t *n_input, uint32_t *n_args)
{
    uint32_t open = 0, n = 0, low = high;
    for (uint32_t i = 0; i <= high; i++) open += need[i];
    for (uint32_t i = high + 1; i-- > 0 && open;) {
        if (!need[i]) continue;
        open--;
        n++;
        low = i;
        const df_node *const node = &r->nodes[i];
        if (is_input(r, need, i)) {
            ++*n_input;
            continue;
        }
        *n_args += df_op_n_args((df_op)node->op, node->n_src ? r->nodes[node->src[0].i].rank : 0);
        for (uint32_t k = 0; k < node->n_src; k++) {
            uint8_t *const at = &need[node->src[k].i];
            open += !*at;
            if (!*at) *at = VALUE;
        }
        if (node->op == DF_OP_update)
            for (uint32_t v = node->src[2].i; v != node->src[0].i; v = r->nodes[v].src[0].i) {
                open += !need[v];
                need[v] = PLACE;
            }
    }
    *low_out = low;
    return n;
}

typedef struct copier {
    uint32_t cut;
    const df_rec *r;
    df_trace *t;
    df_value **inputs;
    uint32_t *map; /* record -> node */
} copier;

static uint32_t input_flags(const df_value *v)
{
    return (v->flags & DF_VALUE_WRAPPED ? DF_INPUT_WRAPPED : 0u) |
           (df_value_contiguous(v) ? DF_INPUT_CONTIGUOUS : 0u) |
           ((uintptr_t)v->data % 64 == 0 ? DF_INPUT_ALIGNED : 0u);
}

static void add_input(copier *c, df_node *node, uint32_t at, df_value *v)
{
    df_trace *const t = c->t;
    const uint32_t k = t->n_inputs++;
    *node = (df_node){ .op = DF_OP_input,
                       .dtype = v->dtype,
                       .rank = v->rank,
                       .src = { DF_NO_REF, DF_NO_REF, DF_NO_REF },
                       .attr = k };
    df_input *const in = &t->inputs[k];
    in->data = v->data;
    in->bytes = v->buf ? v->buf->bytes : 0;
    memcpy(in->stride, v->stride, sizeof in->stride);
    in->node = at;
    in->flags = input_flags(v);
    c->inputs[k] = v;
    v->cut = c->cut;
    v->input = k;
}

static void copy(copier *c, const uint8_t *need, uint32_t low, uint32_t high)
{
    const df_rec *const r = c->r;
    df_trace *const t = c->t;
    for (uint32_t i = low; i <= high; i++) {
        if (!need[i]) continue;
        df_value *const v = is_input(r, need, i) ? r->vals.at[r->val[i]] : NULL;
        if (v && v->cut == c->cut) { /* several records of one value are one input */
            c->map[i] = t->inputs[v->input].node;
            continue;
        }
        const uint32_t at = t->n_nodes++;
        df_node *const node = &t->nodes[at];
        c->map[i] = at;
        t->shape[at] = r->shape[i];
        t->site[at] = r->site[i];
        if (v) {
            add_input(c, node, at, v);
            continue;
        }
        *node = r->nodes[i];
        for (uint32_t k = 0; k < node->n_src; k++) node->src[k].i = c->map[node->src[k].i];
        const uint32_t n_args =
            df_op_n_args((df_op)node->op, node->n_src ? t->nodes[node->src[0].i].rank : 0);
        if (n_args) {
            memcpy(t->args + t->n_args, r->args + r->nodes[i].arg, n_args * sizeof *t->args);
            node->arg = t->n_args;
            t->n_args += n_args;
        }
    }
}

/* The input that reads v; DF_NONE when the trace has none. */
static uint32_t input_of(const deft_ctx *cx, const df_value *v)
{
    return v->cut == cx->cut_serial ? v->input : DF_NONE;
}

/* Nobody but records and what dies with the replacement holds v: its memory may be taken over. */
static bool is_sole(const df_value *v, uint32_t dying)
{
    return !(v->flags & DF_VALUE_WRAPPED) && v->refs == v->in_records + dying && v->buf->refs == 1;
}

static bool overlap(const df_value *a, const df_value *b)
{
    const char *const pa = a->buf->data, *const pb = b->buf->data;
    return pa < pb + b->buf->bytes && pb < pa + a->buf->bytes;
}

static void add_roots(deft_ctx *cx, copier *c, const df_want *want, uint32_t n)
{
    df_trace *const t = c->t;
    for (uint32_t i = 0; i < n; i++) {
        df_root root = { .node = c->map[want[i].node], .into = DF_NONE, .donor = DF_NONE };
        if (want[i].into) {
            root.kind = DF_ROOT_INTO;
            root.into = input_of(cx, want[i].into);
            if (root.into == DF_NONE) {
                const uint32_t at = t->n_nodes++;
                t->shape[at] = t->shape[root.node]; /* same extents: assign saw to it */
                t->site[at] = 0;
                root.into = t->n_inputs;
                add_input(c, &t->nodes[at], at, want[i].into);
            }
        } else if (want[i].donor && !(want[i].donor->flags & DF_VALUE_WRAPPED) &&
                   t->nodes[root.node].op != DF_OP_input) {
            root.donor = input_of(cx, want[i].donor);
            if (root.donor != DF_NONE && is_sole(want[i].donor, want[i].donor_refs))
                t->inputs[root.donor].flags |= DF_INPUT_SOLE;
        }
        t->roots[t->n_roots++] = root;
    }
}

/* Memory written through a root must not overlap what other inputs read: then the result goes to
 * memory of its own and is copied afterwards. */
static bool safe_into(const df_trace *t, df_value *const *inputs, uint32_t into)
{
    for (uint32_t k = 0; k < t->n_inputs; k++)
        if (k != into && overlap(inputs[k], inputs[into])) return false;
    return true;
}

deft_status df_extract(deft_ctx *cx, const df_want *want, uint32_t n, df_trace **out,
                       df_value ***inputs_out)
{
    const df_rec *const r = &cx->rec;
    df_arena *const a = &cx->cut;
    df_arena_reset(a);
    cx->last = NULL;
    uint32_t high = 0, low, n_input = 0, n_args = 0;
    for (uint32_t i = 0; i < n; i++)
        if (want[i].node > high) high = want[i].node;
    uint8_t *const need = df_arena_new(a, uint8_t, (size_t)high + 1);
    df_trace *const t = df_arena_new(a, df_trace, 1);
    if (!need || !t) goto no_memory;
    for (uint32_t i = 0; i < n; i++) need[want[i].node] = VALUE;
    const uint32_t n_nodes = mark(r, need, high, &low, &n_input, &n_args);

    if (++cx->cut_serial == 0) cx->cut_serial = 1;
    copier c = { .cut = cx->cut_serial, .r = r, .t = t };
    t->arena = a;
    t->flags = cx->trace_flags;
    /* A copy: the trace can be shown after the records have moved on. */
    t->extents = df_arena_copy(a, r->ext, r->n_ext * sizeof *r->ext, _Alignof(int64_t));
    t->n_extents = r->n_ext;
    /* Each root written into wrapped memory may need an input record of its own. */
    const size_t most = (size_t)n_nodes + n;
    t->nodes = df_arena_alloc(a, most * sizeof *t->nodes, _Alignof(df_node));
    t->shape = df_arena_alloc(a, most * sizeof *t->shape, _Alignof(uint32_t));
    t->site = df_arena_alloc(a, most * sizeof *t->site, _Alignof(uintptr_t));
    t->args = df_arena_alloc(a, n_args * sizeof *t->args, _Alignof(int64_t));
    t->inputs = df_arena_new(a, df_input, (size_t)n_input + n);
    t->roots = df_arena_new(a, df_root, n);
    c.inputs = df_arena_new(a, df_value *, (size_t)n_input + n);
    c.map = df_arena_alloc(a, ((size_t)high + 1) * sizeof *c.map, _Alignof(uint32_t));
    if (!t->extents || !t->nodes || !t->shape || !t->site || !t->args || !t->inputs || !t->roots ||
        !c.inputs || !c.map)
        goto no_memory;
    copy(&c, need, low, high);
    add_roots(cx, &c, want, n);
    for (uint32_t i = 0; i < t->n_roots; i++)
        if (t->roots[i].kind == DF_ROOT_INTO && !safe_into(t, c.inputs, t->roots[i].into)) {
            t->roots[i].kind = DF_ROOT_NEW;
            t->roots[i].into = DF_NONE;
        }
    cx->last = t;
    *out = t;
    *inputs_out = c.inputs;
    return DEFT_OK;
no_memory:
    return df_fail(&cx->diag, DEFT_E_MEMORY, "cut: no memory for a trace of %u records", high + 1);
}
