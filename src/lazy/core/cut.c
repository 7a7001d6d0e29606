/* SPDX-License-Identifier: Apache-2.0
 *
 * Closes a trace: extracts the records that the wanted records need, back to records with
 * values. The nodes are numbered anew in recording order, so that the same program gives
 * the same bytes, whatever was recorded around it.
 *
 * Two passes over the records between the lowest and the highest one needed:
 * 1. Backwards, mark the needed records. A record that has a value is an input, and its
 *    operands
 *    are not followed.
 * 2. Forwards, copy them. The pass also notes the origin of everything that may differ
 *    when
 *    the same records are cut again. df_extract_again updates only that.
 */
#include "lazy/core/devices.h"

#include <string.h>

/* What a cut needs of a record. A view through which an update writes is needed as a
 * record, even when it has a value, because the view names a place. */
enum { UNSEEN, VALUE, PLACE };

static bool is_input(const df_rec *r, const uint8_t *need, uint32_t i)
{
    return r->val[i] && need[i] != PLACE;
}

/* Marks the records that the marked ones need, down to inputs. Returns the number of
 * marked records. */
static uint32_t mark_needed_records(const df_rec *r, uint8_t *need, uint32_t high,
                                    uint32_t *low_out, uint32_t *n_input, uint32_t *n_args)
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

deft_status df_cut_where(deft_ctx *cx, uint32_t node, deft_device *out)
{
    const df_rec *const r = &cx->rec;
    uint32_t low, n_input = 0, n_args = 0;
    *out = cx->default_device;
    if (*out != DEFT_CPU || !cx->n_queues) return DEFT_OK;
    df_arena_reset(&cx->pass);
    uint8_t *const need = df_arena_new(&cx->pass, uint8_t, (size_t)node + 1);
    if (!need) return df_fail_mem(&cx->diag, "cut", node);
    need[node] = VALUE;
    mark_needed_records(r, need, node, &low, &n_input, &n_args);
    for (uint32_t i = low; i <= node && *out == DEFT_CPU; i++)
        if (need[i] && is_input(r, need, i)) *out = df_value_where(cx, r->vals.at[r->val[i]]);
    return DEFT_OK;
}

/* Whether the loop whose list of operands ends in record i is not nested in another loop. */
static bool is_outermost(const df_rec *r, uint32_t i)
{
    while (r->nodes[i].op != DF_OP_loop) i = r->nodes[i].src[r->nodes[i].n_src - 1].i;
    return r->nodes[r->nodes[i].src[0].i].op != DF_OP_loop;
}

/* Marks the record of a handle in `asked`, an array with an element for each record. */
static void mark_handle_record(deft_ctx *cx, deft_tensor *t, void *asked)
{
    if (t->epoch == cx->epoch && !(t->flags & DF_HANDLE_WEAK)) ((uint8_t *)asked)[t->node] = VALUE;
}

/* Marks the records that the marked ones need in any case: not those that only one branch or an
 * iteration of a loop needs. */
static void mark_needed_directly(const df_rec *r, uint8_t *need)
{
    for (uint32_t i = r->n; i-- > 0;) {
        const df_node *const node = &r->nodes[i];
        if (!need[i] || r->val[i] || node->op == DF_OP_final) continue;
        const uint32_t n = node->op == DF_OP_cond ? 1 : node->n_src;
        for (uint32_t k = 0; k < n; k++) need[node->src[k].i] = VALUE;
    }
}

/* Adds to cx->want the other results of each call of an opaque operator that cx->want needs. The
 * record of a call with several results never has a value (extend/opaque.c). */
static deft_status want_results(deft_ctx *cx)
{
    const df_rec *const r = &cx->rec;
    uint8_t *const need = df_arena_new(&cx->pass, uint8_t, (size_t)r->n + 1);
    uint8_t *const asked = df_arena_new(&cx->pass, uint8_t, (size_t)r->n + 1);
    if (!need || !asked) return df_fail_mem(&cx->diag, "cut", r->n);
    for (size_t i = 0; i < cx->want.n; i++) need[cx->want.at[i].node] = VALUE;
    mark_needed_directly(r, need);
    df_each_outer(cx, cx->depth + 1, mark_handle_record, asked);
    mark_needed_directly(r, asked);
    for (uint32_t i = 0; i < r->n; i++) {
        const df_node *const node = &r->nodes[i];
        const bool is_first = node->op == DF_OP_unsqueeze && node->attr == 0;
        if (need[i] || !asked[i] || r->val[i] || (!is_first && node->op != DF_OP_result) ||
            r->nodes[node->src[0].i].op != DF_OP_call || !need[node->src[0].i])
            continue;
        if (!df_vec_push(cx->mem, &cx->want, ((df_want){ .node = i })))
            return df_fail_mem(&cx->diag, "cut", sizeof(df_want));
    }
    return DEFT_OK;
}

deft_status df_want_siblings(deft_ctx *cx)
{
    const df_rec *const r = &cx->rec;
    uint32_t low, n_input = 0, n_args = 0;
    bool has_calls = false;
    df_arena_reset(&cx->pass);
    uint8_t *const need = df_arena_new(&cx->pass, uint8_t, (size_t)r->n + 1);
    uint8_t *const asked = df_arena_new(&cx->pass, uint8_t, (size_t)r->n + 1);
    if (!need || !asked) return df_fail_mem(&cx->diag, "cut", r->n);
    for (size_t i = 0; i < cx->want.n; i++) need[cx->want.at[i].node] = VALUE;
    mark_needed_records(r, need, r->n - 1, &low, &n_input, &n_args);
    df_each_outer(cx, cx->depth + 1, mark_handle_record, asked);
    mark_needed_records(r, asked, r->n - 1, &low, &n_input, &n_args);
    for (uint32_t i = 0; i < r->n; i++) {
        const df_node *const node = &r->nodes[i];
        const df_want w = { .node = i };
        has_calls |= node->op == DF_OP_result;
        if (node->op != DF_OP_final || need[i] || !asked[i] || r->val[i] || !need[node->src[1].i] ||
            !is_outermost(r, node->src[1].i))
            continue;
        if (!df_vec_push(cx->mem, &cx->want, w)) return df_fail_mem(&cx->diag, "cut", sizeof w);
    }
    return has_calls ? want_results(cx) : DEFT_OK;
}

typedef struct copier {
    const deft_ctx *cx;
    uint64_t cut;
    const df_rec *r;
    df_trace *t;
    uint32_t *map; /* per record: its node */
    df_cut *made;
} copier;

static uint32_t input_flags(const df_value *v)
{
    return (v->flags & DF_VALUE_WRAPPED ? DF_INPUT_WRAPPED : 0u) |
           (df_value_contiguous(v) ? DF_INPUT_CONTIGUOUS : 0u) |
           ((uintptr_t)v->data % 64 == 0 ? DF_INPUT_ALIGNED : 0u);
}

/* Makes input k of the trace read v. */
static void set_cut_input(df_cut *m, uint64_t cut, uint32_t k, df_value *v)
{
    df_input *const in = &m->t->inputs[k];
    in->data = v->data;
    in->bytes = v->buf ? v->buf->bytes : 0;
    memcpy(in->stride, v->stride, sizeof in->stride);
    in->flags = input_flags(v);
    m->inputs[k] = v;
    v->cut = cut;
    v->input = k;
}

static void add_cut_input(copier *c, df_node *node, uint32_t at, df_value *v)
{
    df_trace *const t = c->t;
    const uint32_t k = t->n_inputs++;
    *node = (df_node){ .op = DF_OP_input,
                       .dtype = v->dtype,
                       .rank = v->rank,
                       .src = { DF_NO_REF, DF_NO_REF, DF_NO_REF },
                       .attr = k };
    t->inputs[k].node = at;
    c->made->record[at] = DF_NONE;
    set_cut_input(c->made, c->cut, k, v);
}

static void note_use(copier *c, uint32_t record, uint32_t input)
{
    c->made->use[c->made->n_use++] = (df_input_use){ record, input };
}

/* Returns the first record that is hollow (forget.c), which is a defect: nothing can compute it.
 * DF_NONE: there is none. */
static uint32_t copy_needed_records(copier *c, const uint8_t *need, uint32_t low, uint32_t high)
{
    const df_rec *const r = c->r;
    df_trace *const t = c->t;
    for (uint32_t i = low; i <= high; i++) {
        if (!need[i]) continue;
        df_value *const v = is_input(r, need, i) ? r->vals.at[r->val[i]] : NULL;
        if (v && v->cut == c->cut) { /* several records of one value are one input */
            c->map[i] = t->inputs[v->input].node;
            note_use(c, i, v->input);
            continue;
        }
        const uint32_t at = t->n_nodes++;
        df_node *const node = &t->nodes[at];
        c->map[i] = at;
        t->shape[at] = r->shape[i];
        t->site[at] = df_rec_site(c->cx, i);
        if (v) {
            note_use(c, i, t->n_inputs);
            add_cut_input(c, node, at, v);
            continue;
        }
        *node = r->nodes[i];
        if (DF_UNLIKELY(node->op == DF_OP_input)) return i;
        c->made->record[at] = i;
        for (uint32_t k = 0; k < node->n_src; k++) node->src[k].i = c->map[node->src[k].i];
        const uint32_t n_args =
            df_op_n_args((df_op)node->op, node->n_src ? t->nodes[node->src[0].i].rank : 0);
        if (n_args) {
            memcpy(t->args + t->n_args, r->args + r->nodes[i].arg, n_args * sizeof *t->args);
            for (uint32_t k = 0; k < n_args; k++)
                c->made->arg_from[t->n_args + k] = r->nodes[i].arg + k;
            node->arg = t->n_args;
            t->n_args += n_args;
        }
    }
    return DF_NONE;
}

/* The input of the current trace that reads v; DF_NONE when there is none. */
static uint32_t cut_input_of(const deft_ctx *cx, const df_value *v)
{
    return v->cut == cx->cut_serial ? v->input : DF_NONE;
}

bool df_may_donate(const df_value *v, uint32_t dying)
{
    return !(v->flags & DF_VALUE_WRAPPED) && v->refs == dying && v->buf->refs == 1;
}

/* Whether the buffers of a and b overlap. Both are on one device. */
static bool buffers_overlap(const df_value *a, const df_value *b)
{
    const char *const pa = a->buf->data, *const pb = b->buf->data;
    return pa < pb + b->buf->bytes && pb < pa + a->buf->bytes;
}

/* The root of a wanted record. When `into` is not yet an input of the trace, root.into is
 * DF_NONE. */
static df_root cut_root_of(const deft_ctx *cx, const df_trace *t, uint32_t node, const df_want *w)
{
    df_root root = { .node = node, .into = DF_NONE, .donor = DF_NONE };
    if (w->into) {
        root.kind = DF_ROOT_INTO;
        root.into = cut_input_of(cx, w->into);
    } else if (w->donor && t->nodes[node].op != DF_OP_input) {
        root.donor = cut_input_of(cx, w->donor);
    }
    return root;
}

/* Sets DF_INPUT_SOLE when the run may donate the value that the root replaces. recorded:
 * the cut is made from records, whose references end with the replacement. */
static void see_sole(df_trace *t, const df_root *root, const df_want *w, bool recorded)
{
    if (root->donor == DF_NONE) return;
    uint32_t dying = w->donor_refs;
    if (recorded) dying += w->donor->in_records;
    if (df_may_donate(w->donor, dying)) t->inputs[root->donor].flags |= DF_INPUT_SOLE;
}

static void add_roots(deft_ctx *cx, copier *c, const df_want *want, uint32_t n)
{
    df_trace *const t = c->t;
    for (uint32_t i = 0; i < n; i++) {
        df_root root = cut_root_of(cx, t, c->map[want[i].node], &want[i]);
        if (want[i].into && root.into == DF_NONE) {
            const uint32_t at = t->n_nodes++;
            t->shape[at] = t->shape[root.node]; /* same extents: assign has checked that */
            t->site[at] = 0;
            root.into = t->n_inputs;
            add_cut_input(c, &t->nodes[at], at, want[i].into);
        }
        see_sole(t, &root, &want[i], true);
        t->roots[t->n_roots++] = root;
    }
}

/* Whether a root may write directly into the memory of input `into`. The memory must not
 * overlap the memory that other inputs read, and must be on the device of the run.
 * Otherwise the result goes to new memory and is copied afterwards. */
static bool safe_into(const deft_ctx *cx, const df_cut *m, uint32_t into)
{
    if (df_value_where(cx, m->inputs[into]) != m->where) return false;
    for (uint32_t k = 0; k < m->t->n_inputs; k++)
        if (k != into && df_value_where(cx, m->inputs[k]) == m->where &&
            buffers_overlap(m->inputs[k], m->inputs[into]))
            return false;
    return true;
}

/* Whether a run of t may find a fault. Writes into wrapped memory cannot be undone. So
 * the results of such a run go to new memory, and are copied when the run has succeeded. */
static bool may_fault(const df_trace *t)
{
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        const df_node *const n = &t->nodes[i];
        if (n->op == DF_OP_call) return true;
        if (!df_op_takes_indices((df_op)n->op)) continue;
        /* A routine checks indices that are an input before anything is written. */
        const bool first = df_op_infos[n->op].cls == DF_CLASS_routine;
        if (!first || t->nodes[n->src[1].i].op != DF_OP_input) return true;
    }
    return false;
}

/* The root `asked`, changed to new memory where it must not write directly. */
static df_root allowed(const deft_ctx *cx, const df_cut *m, df_root asked)
{
    if (asked.kind != DF_ROOT_INTO || (!m->avoids && safe_into(cx, m, asked.into))) return asked;
    asked.kind = DF_ROOT_NEW;
    asked.into = DF_NONE;
    return asked;
}

/* The device on which m runs with its current inputs. */
static deft_device where_to_run(const deft_ctx *cx, const df_cut *m)
{
    deft_device where = cx->default_device;
    if (m->is_of_host) return DEFT_CPU;
    if (!cx->n_queues) return where;
    for (uint32_t k = 0; k < m->t->n_inputs && where == DEFT_CPU; k++)
        where = df_value_where(cx, m->inputs[k]);
    return where;
}

static bool allocate_cut(df_cut *m, uint32_t n_nodes, uint32_t n_input, uint32_t n_args, uint32_t n)
{
    df_arena *const a = &m->arena;
    df_trace *const t = m->t;
    /* Each root that is written into wrapped memory may need an input node of its own. */
    const size_t most = (size_t)n_nodes + n, most_inputs = (size_t)n_input + n;
    t->nodes = df_arena_alloc(a, most * sizeof *t->nodes, _Alignof(df_node));
    t->shape = df_arena_alloc(a, most * sizeof *t->shape, _Alignof(uint32_t));
    t->site = df_arena_alloc(a, most * sizeof *t->site, _Alignof(uintptr_t));
    t->args = df_arena_alloc(a, n_args * sizeof *t->args, _Alignof(int64_t));
    t->inputs = df_arena_new(a, df_input, most_inputs);
    t->roots = df_arena_new(a, df_root, n);
    m->asked = df_arena_new(a, df_root, n);
    m->want = df_arena_new(a, uint32_t, n);
    m->use = df_arena_new(a, df_input_use, n_input);
    m->arg_from = df_arena_alloc(a, n_args * sizeof *m->arg_from, _Alignof(uint32_t));
    m->record = df_arena_alloc(a, most * sizeof *m->record, _Alignof(uint32_t));
    m->inputs = df_arena_new(a, df_value *, most_inputs);
    m->in = df_arena_new(a, const df_buffer *, most_inputs);
    m->bufs = df_arena_new(a, df_buffer *, n);
    m->staged = df_arena_new(a, df_buffer *, most_inputs);
    m->back = df_arena_new(a, df_buffer *, n);
    return t->nodes && t->shape && t->site && t->args && t->inputs && t->roots && m->asked &&
           m->want && m->use && m->arg_from && m->record && m->inputs && m->in && m->bufs &&
           m->staged && m->back;
}

deft_status df_extract(deft_ctx *cx, const df_want *want, uint32_t n, df_cut *m)
{
    const df_rec *const r = &cx->rec;
    df_arena *const a = &m->arena;
    uint32_t high = 0, low, n_input = 0, n_args = 0;
    for (uint32_t i = 0; i < n; i++)
        if (want[i].node > high) high = want[i].node;
    df_arena_reset(&cx->pass);
    uint8_t *const need = df_arena_new(&cx->pass, uint8_t, (size_t)high + 1);
    copier c = { .cx = cx, .r = r, .made = m };
    c.map = df_arena_alloc(&cx->pass, ((size_t)high + 1) * sizeof *c.map, _Alignof(uint32_t));
    df_trace *const t = c.t = m->t = df_arena_new(a, df_trace, 1);
    if (!need || !c.map || !t) goto no_memory;
    for (uint32_t i = 0; i < n; i++) need[want[i].node] = VALUE;
    const uint32_t n_nodes = mark_needed_records(r, need, high, &low, &n_input, &n_args);

    df_new_cut_serial(cx);
    c.cut = cx->cut_serial;
    t->arena = a;
    t->opaques = &cx->rt->opaques;
    t->max_temporary_bytes = cx->budget.max_temporary_bytes;
    /* A copy, because the trace can be printed after the records have changed. */
    t->extents = df_arena_copy(a, r->ext, r->n_ext * sizeof *r->ext, _Alignof(int64_t));
    t->n_extents = r->n_ext;
    if (!t->extents || !allocate_cut(m, n_nodes, n_input, n_args, n)) goto no_memory;
    const uint32_t hollow = copy_needed_records(&c, need, low, high);
    if (hollow != DF_NONE)
        return df_fail(&cx->diag, DEFT_E_INTERNAL,
                       "cut: record %u is needed, and an earlier cut by a budget forgot it",
                       hollow);
    m->n_read = t->n_inputs;
    m->is_of_host = false;
    for (uint32_t i = 0; i < t->n_nodes; i++) m->is_of_host |= t->nodes[i].op == DF_OP_call;
    add_roots(cx, &c, want, n);
    m->where = where_to_run(cx, m);
    t->flags = cx->trace_flags | (uint32_t)m->where << DF_TRACE_DEVICE_SHIFT;
    m->avoids = may_fault(t);
    m->high = high;
    m->n_want = n;
    for (uint32_t i = 0; i < n; i++) m->want[i] = want[i].node;
    memcpy(m->asked, t->roots, n * sizeof *m->asked);
    for (uint32_t i = 0; i < n; i++) t->roots[i] = allowed(cx, m, m->asked[i]);
    return DEFT_OK;
no_memory:
    return df_fail(&cx->diag, DEFT_E_MEMORY, "cut: no memory for a trace of %u records", high + 1);
}

static bool roots_again(deft_ctx *cx, const df_want *want, df_cut *m, bool recorded)
{
    df_trace *const t = m->t;
    m->differs = "what it assigns is read in another way than when it was recorded";
    for (uint32_t i = 0; i < m->n_want; i++) {
        df_root root = cut_root_of(cx, t, m->asked[i].node, &want[i]);
        /* one is wanted for a handle, the other for wrapped memory */
        if (root.kind != m->asked[i].kind) return false;
        if (want[i].into && root.into == DF_NONE) {
            root.into = m->asked[i].into;
            for (uint32_t k = 0; k < m->n_use; k++) /* it was read then, and is not read now */
                if (m->use[k].input == root.into) return false;
            set_cut_input(m, cx->cut_serial, root.into, want[i].into);
        }
        if (!df_same_words(&root, &m->asked[i], sizeof root / 8)) return false;
        see_sole(t, &root, &want[i], recorded);
    }
    m->differs = "what it reads lives on another device than it did";
    if (where_to_run(cx, m) != m->where) return false;
    for (uint32_t i = 0; i < m->n_want; i++) {
        const df_root root = allowed(cx, m, m->asked[i]);
        if (df_same_words(&root, &t->roots[i], sizeof root / 8)) continue;
        m->differs = root.kind == DF_ROOT_NEW
                         ? "memory that it writes overlaps memory that it reads, and did not when "
                           "it was recorded"
                         : "memory that it writes overlapped memory that it reads when it was "
                           "recorded, and does not";
        return false;
    }
    m->differs = NULL;
    return true;
}

bool df_extract_values(deft_ctx *cx, const df_want *want, df_value *const *values, df_cut *m)
{
    df_new_cut_serial(cx);
    m->differs = "two of the tensors it uses are one tensor now";
    for (uint32_t k = 0; k < m->t->n_inputs; k++) {
        if (!values[k]) continue;
        /* two earlier inputs are one value now */
        if (values[k]->cut == cx->cut_serial) return false;
        set_cut_input(m, cx->cut_serial, k, values[k]);
    }
    return roots_again(cx, want, m, false);
}

static bool inputs_again(deft_ctx *cx, df_cut *m)
{
    const df_rec *const r = &cx->rec;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < m->n_use; i++) {
        const df_input_use u = m->use[i];
        if (!r->val[u.record]) return false;
        df_value *const v = r->vals.at[r->val[u.record]];
        if (v->cut == cx->cut_serial) { /* one value is one input: was it the same input then? */
            if (v->input != u.input) return false;
            continue;
        }
        if (u.input != seen++) return false;
        set_cut_input(m, cx->cut_serial, u.input, v);
    }
    return true;
}

bool df_extract_again(deft_ctx *cx, const df_want *want, uint32_t n, df_cut *m)
{
    const df_rec *const r = &cx->rec;
    df_trace *const t = m->t;
    (void)n;
    df_new_cut_serial(cx);
    if (t->n_extents > r->n_ext || !inputs_again(cx, m) || !roots_again(cx, want, m, true))
        return false;
    memcpy(t->extents, r->ext, t->n_extents * sizeof *t->extents);
    for (uint32_t i = 0; i < t->n_args; i++) t->args[i] = r->args[m->arg_from[i]];
    return true;
}
