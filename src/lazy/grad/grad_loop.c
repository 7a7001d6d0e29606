/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of loops and branches.
 *
 * A loop over iterations 0 .. n-1 is differentiated by a loop over n-1 .. 0:
 *
 *   forward    s', y = body(s, x, w)      state s, row x, result row y, w from outside
 *   again      the same loop, which keeps each s; left out when there are no states, or when
 *              each s' is among the y, so that the y are the kept states
 *   backward   ds, dw = the gradients of body's results with respect to s and w,
 *                       with seeds ds' and dy; dw is summed
 *
 * The backward body records the forward body once more, from a kept s and x, and walks
 * back through it. Of each iteration, the states are kept, and those products that are among the y.
 * Such a product is recorded again for its rule, but its readers read the row that was kept. So it
 * is computed once.
 *
 * In fast mode, a weight w that the body reads only in one product s w is in no sum. The backward
 * loop keeps the gradients of that product as rows, and one product over all iterations makes dw.
 * In strict mode the order of the sum is the one above.
 *
 * trace/control.h explains the ops loop, carry, each, next, stack and final.
 *
 * A while loop is differentiated as a loop over all the iterations that its bound permits, which
 * has one more state: whether the loop still goes on.
 *
 *   goes_on' = goes_on and test(s)
 *   s'       = body(s) when goes_on', else s         within a branch
 *
 * So nothing of an iteration is computed that was not taken, and its gradient passes as it is.
 *
 * A branch is differentiated within a branch. So only the gradients of the branch that is taken
 * are computed. No gradient of 0 meets values of the other branch: 0 times an infinity is NaN.
 *
 * Why this file is long: loops and branches share how their records are recorded again.
 */
#include "lazy/grad/grad.h"

#include "lazy/calls/control.h"
#include "lazy/calls/views.h"

/* ---- captures ---- */

static bool grad_loop_no_memory(const df_grad *w)
{
    df_error(w->cx, DEFT_E_MEMORY, "%s: no memory for the gradient of a loop or branch", w->what);
    return false;
}

/* The custom function (deft_custom_grad) of which record k is a result. NULL: there is none, or
 * k is outside the range of the walk. */
static const df_custom *annotated_custom_of(const df_grad *w, uint32_t k)
{
    const bool is_marked = k - w->from < w->n && w->flags[k - w->from] & DF_GRAD_ANNOTATED;
    return is_marked ? df_grad_custom_of(w->cx, k) : NULL;
}

/* Initialises an empty list of captures, with memory from a. */
static bool captures_init(df_captures *c, const df_grad *w, df_arena *a)
{
    *c = (df_captures){ .w = w };
    c->slot = df_arena_new(a, uint32_t, w->n + 1);
    c->record = df_arena_new(a, uint32_t, w->n + 1);
    return (c->slot && c->record) || grad_loop_no_memory(w);
}

/* Appends record k, unless it is not active or is in the list already. */
static void capture_record(df_captures *c, uint32_t k)
{
    if (!df_grad_is_active(c->w, k) || c->slot[k - c->w->from]) return;
    c->record[c->n++] = k;
    c->slot[k - c->w->from] = c->n;
}

/* ---- recording again ---- */

/* Whether operand i of op only says in which loop the record is: the enclosing loop of a loop,
 * and the loop of a carry or each. */
static bool names_loop(df_op op, uint32_t i)
{
    return (op == DF_OP_loop && i == 0) || ((op == DF_OP_carry || op == DF_OP_each) && i == 1);
}

/* Records record k again, and notes the copy in p->map. An operand that names p->loop names
 * p->around in the copy. Returns false with the error recorded. */
static bool record_again(df_replay *p, uint32_t k)
{
    deft_ctx *const cx = p->cx;
    const df_node n = cx->rec.nodes[k];
    const df_op op = (df_op)n.op;
    uint32_t src[3] = { DF_BAD, DF_BAD, DF_BAD };
    for (uint32_t i = 0; i < n.n_src; i++)
        src[i] =
            n.src[i].i == p->loop && names_loop(op, i) ? p->around : df_grad_now(p, n.src[i].i);
    if (op == DF_OP_final) cx->finals++;
    p->map[k - p->low] = df_append_like(cx, k, src, cx->rec.site[k]);
    return p->map[k - p->low] != DF_BAD;
}

static bool is_float_record(const deft_ctx *cx, uint32_t k)
{
    return df_is_float(df_dtype_at(cx, k));
}

/* ---- the form of a loop ---- */

/* The parts of a loop, as the forward pass recorded them. */
typedef struct loop_form {
    df_grad *w; /* the walk that has met the loop's results */
    /* body_end: the first record of the list of next and stack records that ends the loop. end: the
     * last one. */
    uint32_t loop, body_end, end;
    uint32_t first_final; /* the first of the loop's results, which are adjacent final records */
    uint32_t *states, *stacks, *rows; /* its records of ops next, stack and each */
    uint32_t n_states, n_stacks, n_rows;
    uint32_t holds; /* what the test of a while loop makes; DF_BAD for other loops */
    int64_t length; /* iterations; the most of a while loop */
    df_captures outer;
    uint8_t *inside; /* per record from loop to body_end: whether it depends on the loop */
    uint32_t *map;   /* work space of a df_replay */
} loop_form;

static bool is_inside_loop(const loop_form *l, uint32_t k)
{
    return k >= l->loop && k < l->body_end && l->inside[k - l->loop];
}

/* The place of an update must be a view of its base. So when an update depends on the
 * loop, the views between base and place are recorded again, too. */
static void find_views_inside(loop_form *l, const df_node *update)
{
    const df_node *const nodes = l->w->cx->rec.nodes;
    for (uint32_t v = update->src[2].i; v > l->loop && v != update->src[0].i; v = nodes[v].src[0].i)
        l->inside[v - l->loop] = 1;
}

/* Gradients pass through a custom function in one call. So all its results are inside
 * when one result or one input is. All readers of any result come after all results. */
static void find_results_inside(loop_form *l, const df_custom *c)
{
    bool any = false;
    for (uint32_t i = 0; i < c->n_in + c->n_out; i++) any |= is_inside_loop(l, c->record[i]);
    for (uint32_t i = 0; i < c->n_out && any; i++) l->inside[c->record[c->n_in + i] - l->loop] = 1;
}

static void find_records_inside(loop_form *l)
{
    const df_node *const nodes = l->w->cx->rec.nodes;
    l->inside[0] = 1;
    for (uint32_t k = l->loop + 1; k < l->body_end; k++) {
        const df_custom *const c = annotated_custom_of(l->w, k);
        for (uint32_t i = 0; i < nodes[k].n_src; i++)
            if (is_inside_loop(l, nodes[k].src[i].i)) l->inside[k - l->loop] = 1;
        if (nodes[k].op == DF_OP_update && is_inside_loop(l, k)) find_views_inside(l, &nodes[k]);
        if (c) find_results_inside(l, c);
    }
}

/* Reads the list that ends the loop, and sorts its records by kind, first to last. */
static bool read_list(loop_form *l, df_arena *a)
{
    const deft_ctx *const cx = l->w->cx;
    const df_node *const nodes = cx->rec.nodes;
    uint32_t k = l->end;
    for (; nodes[k].op == DF_OP_next || nodes[k].op == DF_OP_stack;
         k = nodes[k].src[nodes[k].n_src - 1].i)
        ++*(nodes[k].op == DF_OP_next ? &l->n_states : &l->n_stacks);
    const uint32_t head = k; /* the list begins after it */
    l->holds = nodes[k].op == DF_OP_proceed ? nodes[k].src[0].i : DF_BAD;
    l->loop = l->holds != DF_BAD ? nodes[k].src[1].i : k;
    l->length = cx->rec.args[nodes[l->loop].arg];
    l->states = df_arena_new(a, uint32_t, l->n_states + 1);
    l->stacks = df_arena_new(a, uint32_t, l->n_stacks + 1);
    if (!l->states || !l->stacks) return grad_loop_no_memory(l->w);
    uint32_t state = l->n_states, stack = l->n_stacks;
    l->body_end = l->end + 1;
    for (k = l->end; k != head; k = nodes[k].src[nodes[k].n_src - 1].i) {
        if (nodes[k].op == DF_OP_next)
            l->states[--state] = k;
        else
            l->stacks[--stack] = k;
        l->body_end = k;
    }
    if (head != l->loop) l->body_end = head;
    return true;
}

/* The carry record of state i. */
static uint32_t carry_record(const loop_form *l, uint32_t i)
{
    return l->w->cx->rec.nodes[l->states[i]].src[0].i;
}

/* The next value of state i (next_state_value), and the value that is stacked as rows i
 * (stacked_row_value). */
static uint32_t next_state_value(const loop_form *l, uint32_t i)
{
    return l->w->cx->rec.nodes[l->states[i]].src[1].i;
}

static uint32_t stacked_row_value(const loop_form *l, uint32_t i)
{
    return l->w->cx->rec.nodes[l->stacks[i]].src[0].i;
}

/* Whether record k is a carry or each of this loop. */
static bool is_loop_entry(const loop_form *l, uint32_t k)
{
    const df_node *const n = &l->w->cx->rec.nodes[k];
    return (n->op == DF_OP_carry || n->op == DF_OP_each) && n->src[1].i == l->loop;
}

static void capture_if_outside(loop_form *l, uint32_t k)
{
    if (!is_inside_loop(l, k)) capture_record(&l->outer, k);
}

/* Fills in the rest of *l from w, end and first_final, with memory from a. Returns false with
 * the error recorded. */
static bool read_form(loop_form *l, df_arena *a)
{
    if (!read_list(l, a)) return false;
    const df_node *const nodes = l->w->cx->rec.nodes;
    const uint32_t n = l->body_end - l->loop;
    l->inside = df_arena_new(a, uint8_t, n);
    l->map = df_arena_new(a, uint32_t, n);
    l->rows = df_arena_new(a, uint32_t, n);
    if (!l->inside || !l->map || !l->rows) return grad_loop_no_memory(l->w);
    if (!captures_init(&l->outer, l->w, a)) return false;
    find_records_inside(l);
    for (uint32_t k = l->loop + 1; k < l->body_end; k++) {
        if (!is_inside_loop(l, k)) continue;
        if (is_loop_entry(l, k)) {
            if (nodes[k].op == DF_OP_each) l->rows[l->n_rows++] = k;
            continue;
        }
        const df_custom *const c = annotated_custom_of(l->w, k);
        for (uint32_t i = 0; i < nodes[k].n_src; i++) capture_if_outside(l, nodes[k].src[i].i);
        for (uint32_t i = 0; c && i < c->n_in; i++) capture_if_outside(l, c->record[i]);
    }
    for (uint32_t i = 0; i < l->n_states; i++) capture_if_outside(l, next_state_value(l, i));
    for (uint32_t i = 0; i < l->n_stacks; i++) capture_if_outside(l, stacked_row_value(l, i));
    return true;
}

/* The final of list record `of`; DF_BAD: none. */
static uint32_t final_record(const loop_form *l, uint32_t of)
{
    const df_rec *const r = &l->w->cx->rec;
    for (uint32_t k = l->first_final; k < l->w->from + l->w->n && r->nodes[k].op == DF_OP_final &&
                                      r->nodes[k].src[1].i == l->end;
         k++)
        if (r->nodes[k].src[0].i == of) return k;
    return DF_BAD;
}

/* The gradient of the final of list record `of`; DF_BAD: none. */
static uint32_t final_gradient(const loop_form *l, uint32_t of)
{
    const uint32_t k = final_record(l, of);
    return k == DF_BAD ? DF_BAD : df_grad_of(l->w, k);
}

/* A replay of the body into the loop that is being recorded (cx->body_loop). */
static df_replay start_replay(const loop_form *l)
{
    deft_ctx *const cx = l->w->cx;
    df_replay p = { .cx = cx, .low = l->loop, .high = l->body_end, .map = l->map };
    p.loop = l->loop;
    p.around = cx->body_loop;
    for (uint32_t i = 0; i < p.high - p.low; i++) p.map[i] = DF_BAD;
    return p;
}

/* Records the body again. The caller has set the copies of its inputs in p->map. */
static bool record_body_again(const loop_form *l, df_replay *p)
{
    for (uint32_t k = l->loop + 1; k < l->body_end; k++)
        if (is_inside_loop(l, k) && p->map[k - p->low] == DF_BAD && !record_again(p, k))
            return false;
    return df_grad_copy_annotations(p);
}

/* ---- keeping the states ---- */

/* The body of the loop that runs again (deft_body_fn). Its results are the next states, then the
 * states at the start of the iteration. */
static deft_status keep_states(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    const loop_form *const l = user;
    const uint32_t before = df_mistakes(cx);
    df_replay p = start_replay(l);
    (void)n_in, (void)n_out;
    for (uint32_t i = 0; i < l->n_states; i++)
        p.map[carry_record(l, i) - p.low] = df_node_of(cx, in[i]);
    for (uint32_t i = 0; i < l->n_rows; i++)
        p.map[l->rows[i] - p.low] = df_node_of(cx, in[l->n_states + i]);
    p.map[0] = cx->body_loop;
    if (!record_body_again(l, &p)) return DEFT_E_STATE;
    for (uint32_t i = 0; i < l->n_states; i++) {
        out[i] = df_result(cx, df_grad_now(&p, next_state_value(l, i)));
        out[l->n_states + i] = in[i];
    }
    return df_mistakes(cx) == before ? DEFT_OK : DEFT_E_STATE;
}

/* Makes handles of the operands of the states, then of the rows. */
static bool entries(const loop_form *l, deft_tensor **in)
{
    deft_ctx *const cx = l->w->cx;
    for (uint32_t i = 0; i < l->n_states; i++)
        if (!(in[i] = df_result(cx, df_grad_src(l->w, carry_record(l, i), 0)))) return false;
    for (uint32_t i = 0; i < l->n_rows; i++)
        if (!(in[l->n_states + i] = df_result(cx, df_grad_src(l->w, l->rows[i], 0)))) return false;
    return true;
}

/* The rows that are the next values of state i. DF_BAD: the loop stacks no such rows. */
static uint32_t rows_of_state(const loop_form *l, uint32_t i)
{
    for (uint32_t k = 0; k < l->n_stacks; k++)
        if (stacked_row_value(l, k) == next_state_value(l, i)) return final_record(l, l->stacks[k]);
    return DF_BAD;
}

/* State i at the start of each iteration, as rows: the initial state, then all of `rows`, its next
 * values, but the last. */
static uint32_t shifted_rows(const loop_form *l, uint32_t i, uint32_t rows)
{
    deft_ctx *const cx = l->w->cx;
    const uint32_t init = df_grad_src(l->w, carry_record(l, i), 0);
    const int64_t start[DEFT_MAX_RANK] = { 0 };
    int64_t step[DEFT_MAX_RANK];
    df_shape s;
    if (l->length == 0) return rows;
    df_rec_shape(&cx->rec, rows, &s);
    s.dim[0] = l->length - 1;
    for (uint32_t k = 0; k < s.rank; k++) step[k] = 1;
    const uint32_t piece[] = { df_append(cx, DF_OP_unsqueeze, df_dtype_at(cx, init), 1, &init, NULL,
                                         0, NULL, l->w->site),
                               df_slice_node(cx, rows, start, step, &s, l->w->site) };
    if (piece[0] == DF_BAD || piece[1] == DF_BAD) return DF_BAD;
    return df_join(cx, piece, 2, 0, l->w->site);
}

/* Sets kept[i] to state i at the start of each iteration, as rows, when the loop has stacked the
 * next values of all states. *is_done: whether it has. Returns false with the error recorded. */
static bool states_from_results(const loop_form *l, deft_tensor **kept, bool *is_done)
{
    *is_done = false;
    for (uint32_t i = 0; i < l->n_states; i++)
        if (rows_of_state(l, i) == DF_BAD) return true;
    *is_done = true;
    for (uint32_t i = 0; i < l->n_states; i++)
        if (!(kept[i] = df_result(l->w->cx, shifted_rows(l, i, rows_of_state(l, i))))) return false;
    return true;
}

/* Sets kept[i] to state i at the start of each iteration, as rows. */
static bool states_of_all(loop_form *l, df_arena *a, deft_tensor **kept)
{
    bool is_done;
    if (!states_from_results(l, kept, &is_done)) return false;
    if (is_done) return true;
    const uint32_t n = l->n_states;
    deft_tensor **const in = df_arena_new(a, deft_tensor *, n + l->n_rows + 1);
    deft_tensor **const out = df_arena_new(a, deft_tensor *, 2 * (size_t)n + 1);
    if (!in || !out) return grad_loop_no_memory(l->w);
    if (!entries(l, in) || !df_scan(l->w->cx, keep_states, l, in, n, in + n, l->n_rows, l->length,
                                    n, out, 0, l->w->site))
        return false;
    for (uint32_t i = 0; i < n; i++) kept[i] = out[n + i];
    return true;
}

/* ---- walking back ---- */

/* One backward loop.
 *   states    gradients of the float states, then sums for the captures that are not shared
 *   rows      kept states, rows, gradients of the result rows, the number of
 *             the iteration, kept products
 *   results   gradients of the float rows that come from active records; for each shared
 *             capture, the gradient of its product, and the other operand of the product unless
 *             that is an entry of the loop */
typedef struct backward {
    loop_form *l;
    /* indices of l's states that are floats, stacks that have a gradient, rows that are
     * floats, stacks whose values are products within the loop */
    uint32_t *states, *made, *rows, *products;
    uint32_t n_states, n_made, n_rows, n_products;
    uint32_t *local; /* in the body: the placeholder of each of l's states, rows and captures */
    uint32_t *kept;  /* in the body: per product, the record that its readers read */
    /* per capture: the product of the loop in whose one gradient it is shared (only_product), or
     * DF_BAD: its gradient is summed in the loop */
    uint32_t *shared;
    uint32_t n_sums, n_results; /* captures that are not shared; results of the backward loop */
} backward;

/* Makes a placeholder for each input of the body. */
static bool enter_body(const backward *b, df_replay *p, deft_tensor *const *rows)
{
    const loop_form *const l = b->l;
    const uint32_t n = l->n_states + l->n_rows;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t k = i < l->n_states ? carry_record(l, i) : l->rows[i - l->n_states];
        b->local[i] = df_grad_placeholder(p->cx, df_node_of(p->cx, rows[i]), l->w->site);
        if (b->local[i] == DF_BAD) return false;
        p->map[k - p->low] = b->local[i];
    }
    for (uint32_t i = 0; i < l->outer.n; i++)
        if ((b->local[n + i] = df_grad_placeholder(p->cx, l->outer.record[i], l->w->site)) ==
            DF_BAD)
            return false;
    p->outer = &l->outer;
    p->local = b->local + n;
    p->map[0] = df_node_of(p->cx, rows[n + b->n_made]);
    return p->map[0] != DF_BAD;
}

/* Records the body again. Right after a product that was kept, a record with the kept value follows
 * (DF_GRAD_KEPT), which stands for the product. rows: the rows of kept products. */
static bool record_body_on_products(const backward *b, df_replay *p, deft_tensor *const *rows)
{
    const loop_form *const l = b->l;
    for (uint32_t k = l->loop + 1; k < l->body_end; k++) {
        if (!is_inside_loop(l, k) || p->map[k - p->low] != DF_BAD) continue;
        if (!record_again(p, k)) return false;
        for (uint32_t i = 0; i < b->n_products; i++) {
            if (stacked_row_value(l, b->products[i]) != k) continue;
            const uint32_t row = df_node_of(p->cx, rows[i]);
            b->kept[i] = df_grad_placeholder(p->cx, row, l->w->site);
            if (b->kept[i] == DF_BAD) return false;
            df_assert(b->kept[i] == p->map[k - p->low] + 1);
            p->map[k - p->low] = b->kept[i];
        }
    }
    return df_grad_copy_annotations(p);
}

/* Gives the results of the body their gradients as seeds. */
static bool seed_body_results(const backward *b, df_grad *w, const df_replay *p,
                              deft_tensor *const *states, deft_tensor *const *made)
{
    const loop_form *const l = b->l;
    for (uint32_t i = 0; i < b->n_states; i++)
        if (!df_grad_give(w, df_grad_now(p, next_state_value(l, b->states[i])),
                          df_node_of(w->cx, states[i])))
            return false;
    for (uint32_t i = 0; i < b->n_made; i++)
        if (!df_grad_give(w, df_grad_now(p, stacked_row_value(l, b->made[i])),
                          df_node_of(w->cx, made[i])))
            return false;
    return true;
}

/* The gradient of record k; zeros when it has none. DF_BAD: an error. */
static uint32_t gradient_or_zero(df_grad *w, uint32_t k)
{
    const uint32_t g = df_grad_of(w, k);
    return g == DF_BAD ? df_grad_zeros(w->cx, k, w->site) : g;
}

/* Makes handles of the results of the backward body, in the order of `backward`. sums: the sums
 * for the captures before this iteration. */
static bool collect_body_gradients(const backward *b, df_grad *w, const df_replay *p,
                                   deft_tensor *const *sums, deft_tensor **out)
{
    const loop_form *const l = b->l;
    deft_ctx *const cx = w->cx;
    const uint32_t n = l->n_states + l->n_rows, before = df_mistakes(cx);
    for (uint32_t i = 0; i < b->n_states; i++)
        *out++ = df_result(cx, gradient_or_zero(w, b->local[b->states[i]]));
    for (uint32_t i = 0; i < l->outer.n; i++) {
        if (b->shared[i] != DF_BAD) continue;
        const uint32_t g = df_grad_of(w, b->local[n + i]), sum = df_node_of(cx, *sums);
        *out++ = g == DF_BAD ? *sums : df_result(cx, df_map2(cx, DF_OP_add, sum, g, w->site));
        sums++;
    }
    for (uint32_t i = 0; i < b->n_rows; i++)
        *out++ = df_result(cx, gradient_or_zero(w, b->local[l->n_states + b->rows[i]]));
    for (uint32_t i = 0; i < l->outer.n; i++) {
        const uint32_t k = b->shared[i];
        if (k == DF_BAD) continue;
        const uint32_t read = df_grad_now(p, k), a = df_grad_src(l->w, k, 0);
        const uint32_t product = w->flags[read - w->from] & DF_GRAD_KEPT ? read - 1 : read;
        *out++ = df_result(cx, gradient_or_zero(w, product));
        if (!is_loop_entry(l, a)) *out++ = df_result(cx, df_grad_now(p, a));
    }
    return df_mistakes(cx) == before;
}

/* The body of the backward loop (deft_body_fn). */
static deft_status walk_back(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    const backward *const b = user;
    const loop_form *const l = b->l;
    const uint32_t from = cx->rec.n, n = l->n_states + l->n_rows;
    deft_tensor *const *const rows = in + b->n_states + b->n_sums;
    df_replay p = start_replay(l);
    df_grad w = { .cx = cx };
    (void)n_in, (void)n_out;
    bool ok = enter_body(b, &p, rows) && record_body_on_products(b, &p, rows + n + b->n_made + 1) &&
              df_grad_init(&w, cx, l->w->what, from, l->w->rules);
    for (uint32_t i = 0; i < b->n_products && ok; i++) w.flags[b->kept[i] - from] |= DF_GRAD_KEPT;
    for (uint32_t i = 0; i < n + l->outer.n && ok; i++)
        if (is_float_record(cx, b->local[i])) df_grad_with(&w, b->local[i]);
    if (ok) df_grad_trace(&w);
    w.site = l->w->site;
    ok = ok && seed_body_results(b, &w, &p, in, rows + n) && df_grad_walk(&w);
    w.site = l->w->site;
    ok = ok && collect_body_gradients(b, &w, &p, in + b->n_states, out);
    df_grad_finish(&w);
    return ok ? DEFT_OK : DEFT_E_STATE;
}

/* a with its rows in reverse order. */
static deft_tensor *turned(const loop_form *l, uint32_t a)
{
    return df_result(l->w->cx, df_grad_turned(l->w, a, 0));
}

/* Makes handles of the rows of the backward loop, each in reverse order. */
static bool backward_rows(const backward *b, deft_tensor *const *kept, deft_tensor **rows)
{
    const loop_form *const l = b->l;
    deft_ctx *const cx = l->w->cx;
    const df_shape all = { .rank = 1, .dim = { l->length } };
    for (uint32_t i = 0; i < l->n_states; i++)
        if (!(*rows++ = turned(l, df_node_of(cx, kept[i])))) return false;
    for (uint32_t i = 0; i < l->n_rows; i++)
        if (!(*rows++ = turned(l, df_grad_src(l->w, l->rows[i], 0)))) return false;
    for (uint32_t i = 0; i < b->n_made; i++)
        if (!(*rows++ = turned(l, final_gradient(l, l->stacks[b->made[i]])))) return false;
    if (!(*rows++ = turned(l, df_iota_node(cx, &all, 0, l->w->site)))) return false;
    for (uint32_t i = 0; i < b->n_products; i++)
        if (!(*rows++ = turned(l, final_record(l, l->stacks[b->products[i]])))) return false;
    return true;
}

/* Makes handles of the initial states of the backward loop. */
static bool backward_states(const backward *b, deft_tensor **states)
{
    const loop_form *const l = b->l;
    deft_ctx *const cx = l->w->cx;
    const uint32_t before = df_mistakes(cx);
    for (uint32_t i = 0; i < b->n_states; i++) {
        const uint32_t k = l->states[b->states[i]], g = final_gradient(l, k);
        *states++ = df_result(cx, g == DF_BAD ? df_grad_zeros(cx, k, l->w->site) : g);
    }
    for (uint32_t i = 0; i < l->outer.n; i++)
        if (b->shared[i] == DF_BAD)
            *states++ = df_result(cx, df_grad_zeros(cx, l->outer.record[i], l->w->site));
    return df_mistakes(cx) == before;
}

/* The rows of entry `a` of the loop in all iterations, the last first. kept: the states as rows. */
static uint32_t turned_entry(const loop_form *l, uint32_t a, deft_tensor *const *kept)
{
    for (uint32_t i = 0; i < l->n_states; i++)
        if (carry_record(l, i) == a) return df_grad_turned(l->w, df_node_of(l->w->cx, kept[i]), 0);
    return df_grad_turned(l->w, df_grad_src(l->w, a, 0), 0);
}

/* Adds the gradients of the shared captures. out: the last results of the backward loop. */
static bool give_shared(const backward *b, deft_tensor *const *kept, deft_tensor *const *out)
{
    const loop_form *const l = b->l;
    deft_ctx *const cx = l->w->cx;
    for (uint32_t i = 0; i < l->outer.n; i++) {
        if (b->shared[i] == DF_BAD) continue;
        const uint32_t a = df_grad_src(l->w, b->shared[i], 0), g = df_node_of(cx, *out++);
        const uint32_t rows =
            is_loop_entry(l, a) ? turned_entry(l, a, kept) : df_node_of(cx, *out++);
        if (rows == DF_BAD || g == DF_BAD) return false;
        if (!df_grad_shared_matrix(l->w, l->outer.record[i], rows, g)) return false;
    }
    return true;
}

/* Adds the results of the backward loop to the gradients of initial states, captures and
 * rows. */
static bool give_all(const backward *b, deft_tensor *const *kept, deft_tensor *const *out)
{
    const loop_form *const l = b->l;
    df_grad *const w = l->w;
    deft_ctx *const cx = w->cx;
    for (uint32_t i = 0; i < b->n_states; i++) {
        const uint32_t init = df_grad_src(w, carry_record(l, b->states[i]), 0);
        if (!df_grad_give(w, init, df_node_of(cx, *out++))) return false;
    }
    for (uint32_t i = 0; i < l->outer.n; i++)
        if (b->shared[i] == DF_BAD && !df_grad_give(w, l->outer.record[i], df_node_of(cx, *out++)))
            return false;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const uint32_t rows = df_grad_src(w, l->rows[b->rows[i]], 0);
        if (!df_grad_give(w, rows, df_grad_turned(w, df_node_of(cx, *out++), 0))) return false;
    }
    return give_shared(b, kept, out);
}

/* The product of the loop that is the only reader of record c, a matrix from outside the loop, as
 * its second operand. DF_BAD: there is none, the context is strict, or there are loops or branches
 * in the body, which have walks of their own. */
static uint32_t only_product(const loop_form *l, uint32_t c)
{
    const deft_ctx *const cx = l->w->cx;
    const df_node *const nodes = cx->rec.nodes;
    uint32_t found = DF_BAD;
    if (!(cx->trace_flags & DF_TRACE_FAST) || nodes[c].rank != 2) return DF_BAD;
    for (uint32_t k = l->loop + 1; k < l->body_end; k++) {
        const df_custom *const custom = annotated_custom_of(l->w, k);
        if (!is_inside_loop(l, k)) continue;
        if (nodes[k].op == DF_OP_loop || nodes[k].op == DF_OP_cond) return DF_BAD;
        for (uint32_t i = 0; custom && i < custom->n_in + custom->n_out; i++)
            if (custom->record[i] == c || custom->record[i] == found) return DF_BAD;
        for (uint32_t i = 0; i < nodes[k].n_src; i++) {
            if (nodes[k].src[i].i != c) continue;
            if (found != DF_BAD || nodes[k].op != DF_OP_matmul || i != 1) return DF_BAD;
            if (custom || nodes[k].rank != 2 || nodes[k].dtype != nodes[c].dtype) return DF_BAD;
            found = k;
        }
    }
    for (uint32_t i = 0; i < l->n_states; i++)
        if (next_state_value(l, i) == c) return DF_BAD;
    for (uint32_t i = 0; i < l->n_stacks; i++)
        if (stacked_row_value(l, i) == c) return DF_BAD;
    return found;
}

static bool find_shared(backward *b, df_arena *a)
{
    const loop_form *const l = b->l;
    b->shared = df_arena_new(a, uint32_t, l->outer.n + 1);
    if (!b->shared) return grad_loop_no_memory(l->w);
    b->n_results = b->n_rows;
    for (uint32_t i = 0; i < l->outer.n; i++) {
        const uint32_t k = b->shared[i] = only_product(l, l->outer.record[i]);
        if (k == DF_BAD)
            b->n_sums++;
        else
            b->n_results += is_loop_entry(l, df_grad_src(l->w, k, 0)) ? 1 : 2;
    }
    return true;
}

/* Whether the loop has kept a product as its stack i. Of equal stacks, the first counts. */
static bool keeps_product(const loop_form *l, uint32_t i)
{
    const uint32_t k = stacked_row_value(l, i);
    if (!is_inside_loop(l, k) || l->w->cx->rec.nodes[k].op != DF_OP_matmul) return false;
    if (annotated_custom_of(l->w, k) || final_record(l, l->stacks[i]) == DF_BAD) return false;
    for (uint32_t j = 0; j < i; j++)
        if (stacked_row_value(l, j) == k) return false;
    return true;
}

/* Selects the states, stacks and rows that take part in the backward loop. */
static bool choose_differentiable(backward *b, df_arena *a)
{
    const loop_form *const l = b->l;
    const deft_ctx *const cx = l->w->cx;
    b->states = df_arena_new(a, uint32_t, l->n_states + 1);
    b->made = df_arena_new(a, uint32_t, l->n_stacks + 1);
    b->rows = df_arena_new(a, uint32_t, l->n_rows + 1);
    b->products = df_arena_new(a, uint32_t, l->n_stacks + 1);
    b->kept = df_arena_new(a, uint32_t, l->n_stacks + 1);
    b->local = df_arena_new(a, uint32_t, l->n_states + l->n_rows + l->outer.n + 1);
    if (!b->states || !b->made || !b->rows || !b->products || !b->kept || !b->local)
        return grad_loop_no_memory(l->w);
    for (uint32_t i = 0; i < l->n_states; i++)
        if (is_float_record(cx, l->states[i])) b->states[b->n_states++] = i;
    for (uint32_t i = 0; i < l->n_stacks; i++)
        if (final_gradient(l, l->stacks[i]) != DF_BAD) b->made[b->n_made++] = i;
    for (uint32_t i = 0; i < l->n_rows; i++)
        if (is_float_record(cx, l->rows[i]) &&
            df_grad_is_active(l->w, df_grad_src(l->w, l->rows[i], 0)))
            b->rows[b->n_rows++] = i;
    for (uint32_t i = 0; i < l->n_stacks; i++)
        if (keeps_product(l, i)) b->products[b->n_products++] = i;
    return true;
}

/* ---- while loops ---- */

/* A while loop that is recorded again as a loop over all iterations. */
typedef struct bounded {
    loop_form *l;
    uint32_t *state, *outer; /* placeholders of the initial states, and of the captures */
} bounded;

/* A replay of the while loop on the states in[0..n), with placeholders for the captures. */
static df_replay bounded_replay(const bounded *b, deft_tensor *const *in)
{
    const loop_form *const l = b->l;
    df_replay p = start_replay(l);
    p.outer = &l->outer;
    p.local = b->outer;
    p.map[0] = p.around;
    for (uint32_t i = 0; i < l->n_states; i++)
        p.map[carry_record(l, i) - p.low] = df_node_of(p.cx, in[i]);
    return p;
}

/* The branch of an iteration that is taken (deft_body_fn). */
static deft_status take_iteration(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                  deft_tensor **out, size_t n_out, void *user)
{
    const bounded *const b = user;
    const uint32_t before = df_mistakes(cx);
    df_replay p = bounded_replay(b, in);
    (void)n_in;
    if (!record_body_again(b->l, &p)) return DEFT_E_STATE;
    for (uint32_t i = 0; i < n_out; i++)
        out[i] = df_result(cx, df_grad_now(&p, next_state_value(b->l, i)));
    return df_mistakes(cx) == before ? DEFT_OK : DEFT_E_STATE;
}

/* The branch of the others (deft_body_fn). */
static deft_status leave_states(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                deft_tensor **out, size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)user;
    for (size_t i = 0; i < n_out; i++) out[i] = in[i];
    return DEFT_OK;
}

/* One iteration (deft_body_fn). The last state is whether the loop has gone on so far. The test was
 * recorded before the body. */
static deft_status bounded_iteration(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                     deft_tensor **out, size_t n_out, void *user)
{
    const bounded *const b = user;
    const loop_form *const l = b->l;
    const size_t n = l->n_states;
    df_replay p = bounded_replay(b, in);
    (void)n_in, (void)n_out;
    for (uint32_t k = l->loop + 1; k <= l->holds && k < l->body_end; k++)
        if (is_inside_loop(l, k) && p.map[k - p.low] == DF_BAD && !record_again(&p, k))
            return DEFT_E_STATE;
    if (!df_grad_copy_annotations(&p)) return DEFT_E_STATE;
    const uint32_t goes_on = df_map2(cx, DF_OP_bitwise_and, df_node_of(cx, in[n]),
                                     df_grad_now(&p, l->holds), l->w->site);
    if (!(out[n] = df_result(cx, goes_on))) return DEFT_E_STATE;
    return df_cond(cx, goes_on, take_iteration, leave_states, user, in, n, out, n, l->w->site)
               ? DEFT_OK
               : DEFT_E_STATE;
}

/* Records the while loop again, over all iterations, on placeholders. out gets the states, and
 * whether the loop would go on. */
static bool record_bounded(bounded *b, df_arena *a, deft_tensor **out)
{
    const loop_form *const l = b->l;
    deft_ctx *const cx = l->w->cx;
    const uintptr_t site = l->w->site;
    deft_tensor **const in = df_arena_new(a, deft_tensor *, l->n_states + 1);
    if (!in) return grad_loop_no_memory(l->w);
    for (uint32_t i = 0; i < l->n_states; i++) {
        b->state[i] = df_grad_placeholder(cx, df_grad_src(l->w, carry_record(l, i), 0), site);
        if (!(in[i] = df_result(cx, b->state[i]))) return false;
    }
    for (uint32_t i = 0; i < l->outer.n; i++)
        if ((b->outer[i] = df_grad_placeholder(cx, l->outer.record[i], site)) == DF_BAD)
            return false;
    in[l->n_states] = df_result(cx, df_cst(cx, DEFT_BOOL, 1, site));
    return in[l->n_states] && df_scan(cx, bounded_iteration, b, in, l->n_states + 1, NULL, 0,
                                      l->length, 0, out, 0, site);
}

/* Walks back through the loop over all iterations, from the gradients of the results of the while
 * loop. */
static bool walk_bounded(const bounded *b, df_grad *w, deft_tensor *const *out)
{
    const loop_form *const l = b->l;
    for (uint32_t i = 0; i < l->n_states; i++)
        if (is_float_record(w->cx, b->state[i])) df_grad_with(w, b->state[i]);
    for (uint32_t i = 0; i < l->outer.n; i++) df_grad_with(w, b->outer[i]);
    df_grad_trace(w);
    w->site = l->w->site;
    for (uint32_t i = 0; i < l->n_states; i++) {
        const uint32_t g = final_gradient(l, l->states[i]);
        if (g != DF_BAD && !df_grad_give(w, df_node_of(w->cx, out[i]), g)) return false;
    }
    return df_grad_walk(w);
}

/* Adds the gradient of record `placeholder` of the inner walk to that of record k. */
static bool pass_gradient(df_grad *w, uint32_t k, df_grad *inner, uint32_t placeholder)
{
    const uint32_t g = df_grad_of(inner, placeholder);
    return g == DF_BAD || df_grad_give(w, k, g);
}

/* All states of all iterations are kept: there must be an address for each of their bytes. */
static bool check_bound(const loop_form *l)
{
    for (uint32_t i = 0; i < l->n_states; i++) {
        df_shape s;
        int64_t n = l->length;
        df_rec_shape(&l->w->cx->rec, l->states[i], &s);
        bool fits = df_mul_i64(n, 16, &n);
        for (uint32_t k = 0; k < s.rank && fits; k++)
            fits = s.dim[k] == 0 || df_mul_i64(n, s.dim[k], &n);
        if (fits) continue;
        df_error(l->w->cx, DEFT_E_LIMIT,
                 "%s: through a while loop of at most %lld iterations: the states of all of them "
                 "are kept, so the loop needs a smaller bound",
                 l->w->what, (long long)l->length);
        return false;
    }
    return true;
}

static bool differentiate_while(loop_form *l, df_arena *a)
{
    df_grad *const w = l->w;
    df_grad inner = { .cx = w->cx };
    bounded b = { l, df_arena_new(a, uint32_t, l->n_states + 1),
                  df_arena_new(a, uint32_t, l->outer.n + 1) };
    deft_tensor **const out = df_arena_new(a, deft_tensor *, l->n_states + 1);
    const uint32_t from = w->cx->rec.n;
    if (!b.state || !b.outer || !out) return grad_loop_no_memory(w);
    bool ok = check_bound(l) && record_bounded(&b, a, out) &&
              df_grad_init(&inner, w->cx, w->what, from, w->rules) && walk_bounded(&b, &inner, out);
    for (uint32_t i = 0; i < l->n_states && ok; i++)
        ok = pass_gradient(w, df_grad_src(w, carry_record(l, i), 0), &inner, b.state[i]);
    for (uint32_t i = 0; i < l->outer.n && ok; i++)
        ok = pass_gradient(w, l->outer.record[i], &inner, b.outer[i]);
    df_grad_finish(&inner);
    return ok;
}

/* Records the backward loop, and adds its results to the gradients. Returns false with the error
 * recorded. */
static bool differentiate(loop_form *l, df_arena *a)
{
    backward b = { .l = l };
    if (!read_form(l, a)) return false;
    if (l->holds != DF_BAD) return differentiate_while(l, a);
    if (!choose_differentiable(&b, a) || !find_shared(&b, a)) return false;
    const uint32_t n_states = b.n_states + b.n_sums;
    const uint32_t n_rows = l->n_states + l->n_rows + b.n_made + 1 + b.n_products;
    deft_tensor **const kept = df_arena_new(a, deft_tensor *, l->n_states + 1);
    deft_tensor **const in = df_arena_new(a, deft_tensor *, n_states + n_rows);
    deft_tensor **const out = df_arena_new(a, deft_tensor *, n_states + b.n_results + 1);
    if (!kept || !in || !out) return grad_loop_no_memory(l->w);
    if (n_states + b.n_results == 0) return true;
    return states_of_all(l, a, kept) && backward_states(&b, in) &&
           backward_rows(&b, kept, in + n_states) &&
           df_scan(l->w->cx, walk_back, &b, in, n_states, in + n_states, n_rows, l->length,
                   b.n_results, out, 0, l->w->site) &&
           give_all(&b, kept, out);
}

/* The results of a loop are adjacent records. The walk goes from the last record to the first,
 * so it meets the lowest result that has a gradient last. Then the gradients of all results are
 * complete. */
bool df_grad_final(df_grad *w, uint32_t k, uint32_t g)
{
    const df_node *const nodes = w->cx->rec.nodes;
    const uint32_t end = nodes[k].src[1].i;
    uint32_t first = k;
    (void)g;
    while (first > w->from && nodes[first - 1].op == DF_OP_final &&
           nodes[first - 1].src[1].i == end)
        if (df_grad_of(w, --first) != DF_BAD) return true;
    df_arena a;
    loop_form l = { .w = w, .end = end, .first_final = first };
    df_arena_init(&a, w->cx->mem);
    const bool ok = differentiate(&l, &a);
    df_arena_finish(&a);
    return ok;
}

/* ---- branches ---- */

/* One branch: records [low, high). Its result is the record `result`, with gradient g. */
typedef struct branch {
    df_grad *w;
    uint32_t low, high, result, g;
    uint8_t *need; /* per record: whether the result depends on it */
} branch;

/* Whether record k is computed in the branch. The input record of a tensor that the
 * branch is the first to use is in the range, but is not computed there. */
static bool is_of_branch(const branch *b, uint32_t k)
{
    return k >= b->low && k < b->high && b->w->cx->rec.nodes[k].op != DF_OP_input;
}

/* Notes that record k is needed: it is recorded again, or captured. */
static void need_branch_record(const branch *b, df_captures *c, uint32_t k)
{
    if (is_of_branch(b, k))
        b->need[k - b->low] = 1;
    else
        capture_record(c, k);
}

/* When a result of a custom function is needed, all its inputs and results are. */
static void need_branch_custom(const branch *b, df_captures *c, const df_custom *f)
{
    bool any = false;
    for (uint32_t i = 0; i < f->n_out; i++) any |= b->need[f->record[f->n_in + i] - b->low] != 0;
    for (uint32_t i = 0; i < f->n_in + f->n_out && any; i++) need_branch_record(b, c, f->record[i]);
}

/* Finds what the result depends on. Other results of the same branches may depend on
 * more. */
static bool find_branch_needs(branch *b, df_captures *c, df_arena *a)
{
    const df_node *const nodes = b->w->cx->rec.nodes;
    b->need = df_arena_new(a, uint8_t, b->high - b->low + 1);
    if (!b->need) return grad_loop_no_memory(b->w);
    need_branch_record(b, c, b->result);
    for (uint32_t k = b->high; k-- > b->low;) {
        const df_custom *const f = annotated_custom_of(b->w, k);
        if (f) need_branch_custom(b, c, f);
        for (uint32_t i = 0; b->need[k - b->low] && i < nodes[k].n_src; i++)
            need_branch_record(b, c, nodes[k].src[i].i);
    }
    return true;
}

/* Records the branch again and walks back through it. Sets made[i] to the gradient of
 * capture i. */
static bool through_branch(const branch *b, const df_captures *c, df_arena *a, uint32_t *made)
{
    deft_ctx *const cx = b->w->cx;
    const uint32_t from = cx->rec.n, n = b->high - b->low;
    uint32_t *const local = df_arena_new(a, uint32_t, c->n + 1);
    df_replay p = { .cx = cx, .low = b->low, .high = b->high, .loop = DF_BAD, .around = DF_BAD };
    df_grad w = { .cx = cx };
    p.map = df_arena_new(a, uint32_t, n + 1);
    if (!local || !p.map) return grad_loop_no_memory(b->w);
    for (uint32_t i = 0; i < n; i++) p.map[i] = DF_BAD;
    for (uint32_t i = 0; i < c->n; i++)
        if ((local[i] = df_grad_placeholder(cx, c->record[i], b->w->site)) == DF_BAD) return false;
    p.outer = c;
    p.local = local;
    for (uint32_t k = b->low; k < b->high; k++)
        if (b->need[k - b->low] && !record_again(&p, k)) return false;
    bool ok = df_grad_copy_annotations(&p) && df_grad_init(&w, cx, b->w->what, from, b->w->rules);
    for (uint32_t i = 0; i < c->n && ok; i++) df_grad_with(&w, local[i]);
    if (ok) df_grad_trace(&w);
    w.site = b->w->site;
    ok = ok && df_grad_give(&w, df_grad_now(&p, b->result), b->g) && df_grad_walk(&w);
    w.site = b->w->site;
    for (uint32_t i = 0; i < c->n && ok; i++)
        ok = (made[i] = gradient_or_zero(&w, local[i])) != DF_BAD;
    df_grad_finish(&w);
    return ok;
}

/* A record that only one branch needs is used only by one side of a cond. So the gradient
 * of each capture is a cond of the two branches' gradients, and everything that leads to
 * it is computed only in its branch. */
bool df_grad_cond(df_grad *w, uint32_t k, uint32_t g)
{
    deft_ctx *const cx = w->cx;
    const df_node n = cx->rec.nodes[k];
    const df_grad_annotation *const m = df_grad_branches(cx, k);
    df_assert(m);
    branch then = { .w = w, .low = m->then, .high = m->otherwise, .result = n.src[1].i, .g = g };
    branch other = { .w = w, .low = m->otherwise, .high = m->record, .result = n.src[2].i, .g = g };
    df_arena a;
    df_captures c;
    df_arena_init(&a, cx->mem);
    bool ok = captures_init(&c, w, &a) && find_branch_needs(&then, &c, &a) &&
              find_branch_needs(&other, &c, &a);
    uint32_t *const made = ok ? df_arena_new(&a, uint32_t, 2 * (size_t)c.n + 1) : NULL;
    const uint32_t first = cx->rec.n;
    ok = ok && (made || grad_loop_no_memory(w)) && through_branch(&then, &c, &a, made);
    const uint32_t middle = cx->rec.n;
    ok = ok && through_branch(&other, &c, &a, made + c.n);
    for (uint32_t i = 0; i < c.n && ok; i++) {
        const uint32_t src[3] = { n.src[0].i, made[i], made[c.n + i] };
        const uint32_t to =
            df_append(cx, DF_OP_cond, df_dtype_at(cx, made[i]), 0, src, NULL, 0, NULL, w->site);
        if (i == 0 && to != DF_BAD) ok = df_grad_annotate_branches(cx, to, first, middle);
        ok = ok && df_grad_give(w, c.record[i], to);
    }
    df_arena_finish(&a);
    return ok;
}
