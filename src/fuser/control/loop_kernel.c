/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops whose body is elementwise: a kernel of mode LOOP does all iterations, with the states in
 * registers.
 *
 * All values that a kernel stores have one shape S. They may depend only on values of shape S and
 * on single values. So each shape that the loop stores gets a kernel of its own; all of them run in
 * one launch. The loop over elements is outside, the loop over iterations inside. The condition of
 * proceed consists of single values, and the loop of every element computes it again.
 *
 *   kernel of shape S     ROW 0     load initial states and values that do not change
 *                         ELEM 0    operands of proceed; proceed; load rows; the other values;
 *                                   store rows; next
 *                         ROW 1     store the states
 *
 * ROW and ELEM are levels, followed by the stage (fuser/plan.h). A *row* is the part of an array
 * that one iteration reads or stores. A single value is a value of rank 0.
 */
#include "fuser/control/outline.h"

#include <string.h>

enum { ROWS = 2 }; /* in builder.use: an input of which each iteration reads one row */

/* The plan of one loop while it is made. */
typedef struct builder {
    const whole *w;         /* which loop, and how many iterations a run does */
    cut_trace cut;          /* the nodes of the loop and what they read */
    pass q;                 /* the pass that makes the plan of the kernels */
    body b;                 /* of the current kernel */
    uint8_t *use;           /* per node of the cut: the current kernel computes it; or ROWS */
    uint8_t *done;          /* per node: a kernel stores it */
    uint32_t *id;           /* per node: its instruction in the current kernel */
    uint32_t loop, proceed; /* nodes of the cut; proceed may be DF_NONE */
    df_slot most;           /* iterations */
    df_slot extent[DEFT_MAX_RANK]; /* of the shape of the current kernel */
    uint32_t rank;
} builder;

/* ---- what can be one kernel ---- */

/* Whether n is a single value that is expanded. */
static bool is_expanded(const df_trace *t, uint32_t n)
{
    return t->nodes[n].op == DF_OP_expand && t->nodes[t->nodes[n].src[0].i].rank == 0;
}

/* The reason why node n of the loop cannot be part of a kernel; NULL: it can. */
static const char *loop_kernel_refusal(const outline *o, uint32_t loop, uint32_t n)
{
    const df_op op = (df_op)o->t->nodes[n].op;
    if (o->c.inside[n] != loop) return "its body holds a loop";
    if (df_op_is_map(op) || op == DF_OP_cond || is_expanded(o->t, n)) return NULL;
    return df_op_infos[op].cls == DF_CLASS_control ? NULL : df_op_infos[op].name;
}

/* The reason why some live node of the loop cannot be part of a kernel; NULL: all can. */
static const char *loop_kernel_obstacle(const outline *o, uint32_t loop)
{
    const char *why = NULL;
    for (uint32_t n = o->c.loops[loop].node; n <= o->c.loops[loop].end && !why; n++)
        if (o->live[n] && df_outline_top_of(o, n) == loop) why = loop_kernel_refusal(o, loop, n);
    return why;
}

bool df_outline_is_elementwise(const outline *o, uint32_t loop)
{
    return !loop_kernel_obstacle(o, loop);
}

/* Whether all live nodes of the loop can be part of a kernel. If not, notes the reason. */
static bool loop_kernel_accepts_loop(outline *o, const whole *w)
{
    const uint32_t node = o->c.loops[w->loop].node;
    const char *const why = loop_kernel_obstacle(o, w->loop);
    if (why) df_fuse_why(o->p, node, node, "an iteration at a time", "not elementwise: %s", why);
    return !why;
}

/* ---- extracting the loop ---- */

/* Whether n is a number of the trace, which costs no input. */
static bool loop_kernel_is_number(const outline *o, uint32_t n)
{
    return o->t->nodes[n].op == DF_OP_num || o->t->nodes[n].op == DF_OP_cst;
}

/* Appends an input to the cut for node n, which is outside the loop. Sets *out to its node. */
static deft_status loop_kernel_add_input(outline *o, builder *w, uint32_t n, uint32_t *out)
{
    const df_node *const x = &o->t->nodes[n];
    df_port port = { .kind = DF_PORT_CELL };
    deft_status st = DEFT_OK;
    if (x->op == DF_OP_input)
        port = (df_port){ .kind = DF_PORT_INPUT, .index = x->attr };
    else
        st = df_outline_need_cell(o, n, &port.index);
    return st == DEFT_OK ? df_outline_add_port(o, &w->cut, n, &port, out) : st;
}

/* Sets *out to the node of the cut that stands for n, a node outside the loop. rows: each iteration
 * reads one row of n, which then is an input of its own. */
static deft_status loop_kernel_add_outer(outline *o, builder *w, uint32_t n, bool rows,
                                         uint32_t *out)
{
    deft_status st = DEFT_OK;
    if (is_expanded(o->t, n)) /* the same in each row, too */
        n = o->t->nodes[n].src[0].i;
    else if (rows && !loop_kernel_is_number(o, n))
        return loop_kernel_add_input(o, w, n, out);
    if (!o->need[n]) {
        if (loop_kernel_is_number(o, n))
            o->at[n] = df_outline_append(o, &w->cut, n, o->t->nodes[n]);
        else
            TRY(loop_kernel_add_input(o, w, n, &o->at[n]));
        o->need[n] = NEED_VALUE;
    }
    *out = o->at[n];
done:
    return st;
}

/* Sets *out to the value from which state k, which is carry n, starts. With a chunk, a run does
 * only some of the iterations, and starts from the state that the run before has left. */
static deft_status loop_kernel_add_start(outline *o, builder *w, uint32_t n, uint32_t k,
                                         uint32_t *out)
{
    const df_port state = { .kind = DF_PORT_STATE, .index = k };
    if (w->w->chunk) return df_outline_add_port(o, &w->cut, n, &state, out);
    return loop_kernel_add_outer(o, w, o->t->nodes[n].src[0].i, false, out);
}

/* Appends node n of the loop to the cut, with its operands replaced by nodes of the cut. The
 * operand that is the initial value of a carry is left to cut_loop(). */
static deft_status loop_kernel_copy_node(outline *o, builder *w, uint32_t n)
{
    deft_status st = DEFT_OK;
    df_node x = o->t->nodes[n];
    for (uint32_t s = 0; s < x.n_src; s++) {
        const uint32_t src = x.src[s].i;
        if (x.op == DF_OP_loop || (x.op == DF_OP_carry && s == 0)) continue;
        if (df_outline_top_of(o, src) == w->w->loop)
            x.src[s].i = o->at[src];
        else
            TRY(loop_kernel_add_outer(o, w, src, x.op == DF_OP_each && s == 0, &x.src[s].i));
    }
    o->at[n] = df_outline_append(o, &w->cut, n, x);
    if (x.op == DF_OP_loop) w->loop = o->at[n];
    if (x.op == DF_OP_proceed) w->proceed = o->at[n];
done:
    return st;
}

/* Makes the trace w->cut of all nodes of the loop and what they read. */
static deft_status cut_loop(outline *o, builder *w)
{
    deft_status st = DEFT_OK;
    const df_loop_info *const l = &o->c.loops[w->w->loop];
    uint32_t n_nodes = 0;
    for (uint32_t n = l->node; n <= l->end; n++)
        if (o->live[n] && df_outline_top_of(o, n) == w->w->loop) n_nodes++;
    /* Each node has at most three operands from outside, and a state has an initial value. */
    TRY(df_outline_begin_cut(o, 5 * n_nodes, (uint32_t)o->roots.n, &w->cut));
    memset(o->need, 0, o->t->n_nodes);
    for (uint32_t k = 0; k < l->n_states; k++) {
        const uint32_t state = o->t->nodes[l->list[k]].src[0].i;
        TRY(loop_kernel_add_start(o, w, state, k, &o->at[state]));
    }
    for (uint32_t n = l->node; n <= l->end; n++) {
        if (!o->live[n] || df_outline_top_of(o, n) != w->w->loop) continue;
        const uint32_t start = o->at[n];
        TRY(loop_kernel_copy_node(o, w, n));
        if (o->t->nodes[n].op == DF_OP_carry) w->cut.t.nodes[o->at[n]].src[0].i = start;
    }
    for (uint32_t r = 0; r < (uint32_t)o->roots.n; r++)
        w->cut.t.roots[r] =
            (df_root){ .node = o->at[o->roots.at[r]], .into = DF_NONE, .donor = DF_NONE };
done:
    return st;
}

/* ---- one kernel: its nodes ---- */

static const df_node *loop_kernel_node(const builder *w, uint32_t n)
{
    return &w->cut.t.nodes[n];
}

/* The first axis of n that belongs to the shape of the kernel: 1 for the rows of a stack, of which
 * each iteration stores one, else 0. */
static uint32_t first_axis(const builder *w, uint32_t n)
{
    return loop_kernel_node(w, n)->op == DF_OP_stack;
}

/* Whether n is an entry of the list of the loop. */
static bool is_list(const builder *w, uint32_t n)
{
    const uint8_t op = loop_kernel_node(w, n)->op;
    return op == DF_OP_proceed || op == DF_OP_next || op == DF_OP_stack;
}

/* How many operands of n are values; the others only say to which loop or list n belongs. */
static uint32_t n_values(const builder *w, uint32_t n)
{
    const uint8_t op = loop_kernel_node(w, n)->op;
    if (op == DF_OP_loop) return 0;
    return loop_kernel_node(w, n)->n_src - (is_list(w, n) || op == DF_OP_carry || op == DF_OP_each);
}

/* Marks all nodes that the marked ones need within an iteration. With `states`, a state also needs
 * its initial value and its next. */
static void close_use(const builder *w, uint8_t *use, bool states)
{
    for (bool more = true; more;) {
        more = false;
        for (uint32_t n = w->cut.t.n_nodes; n-- > 0;) {
            if (states && loop_kernel_node(w, n)->op == DF_OP_next &&
                use[loop_kernel_node(w, n)->src[0].i] && !use[n])
                use[n] = 1, more = true;
            if (!use[n] || (!states && loop_kernel_node(w, n)->op == DF_OP_carry)) continue;
            for (uint32_t s = 0; s < n_values(w, n); s++) {
                uint8_t *const u = &use[loop_kernel_node(w, n)->src[s].i];
                more |= !*u;
                *u = 1;
            }
        }
    }
}

/* Whether n has the shape of the kernel that stores `like`. */
static bool has_extents(const builder *w, uint32_t n, uint32_t like)
{
    const uint32_t i = first_axis(w, n), j = first_axis(w, like),
                   rank = loop_kernel_node(w, like)->rank - j;
    const int64_t *const a = df_trace_extents(&w->cut.t, n) + i;
    const int64_t *const b = df_trace_extents(&w->cut.t, like) + j;
    return loop_kernel_node(w, n)->rank == i + rank && memcmp(a, b, rank * sizeof *a) == 0;
}

/* Guards that the extents of n from axis `from` on are those of the kernel. */
static void guard_extents(builder *w, uint32_t n, uint32_t from)
{
    for (uint32_t j = 0; j < w->rank; j++) {
        const df_slot a = df_fuse_node_extent(&w->q, n, from + j);
        if (!df_same_slot(a, w->extent[j]))
            df_fuse_guard_slots(&w->q, DF_GUARD_equal, w->extent[j], a);
    }
}

/* Whether each node n reads another row in each iteration. If not, it reads a single value. */
static bool loop_kernel_reads_rows(const builder *w, uint32_t n)
{
    const df_node *const rows = loop_kernel_node(w, loop_kernel_node(w, n)->src[0].i);
    return rows->op == DF_OP_input && rows->rank > 0;
}

/* Whether n needs a guard for its extents, because they may not follow from its operands. This
 * is so for every node with a single value among its operands. All of them may be single values,
 * because loop_kernel_add_outer() replaces an expand by its operand. */
static bool brings_extents(const builder *w, uint32_t n)
{
    const df_node *const x = loop_kernel_node(w, n);
    bool any = x->n_src == 0 || df_op_infos[x->op].cls == DF_CLASS_control || x->op == DF_OP_expand;
    for (uint32_t s = 0; s < x->n_src; s++) any |= loop_kernel_node(w, x->src[s].i)->rank == 0;
    return any;
}

/* Marks in w->use the nodes of the kernel that stores root `first` and all roots of its shape.
 * Returns false when values of other shapes would be in that kernel. */
static bool loop_kernel_choose_nodes(builder *w, uint32_t first)
{
    const df_trace *const t = &w->cut.t;
    const uint32_t like = t->roots[first].node, axis = first_axis(w, like);
    memset(w->use, 0, t->n_nodes);
    for (uint32_t r = 0; r < t->n_roots; r++)
        if (has_extents(w, t->roots[r].node, like)) w->use[t->roots[r].node] = 1;
    if (w->proceed != DF_NONE) w->use[w->proceed] = 1;
    close_use(w, w->use, true);
    w->rank = loop_kernel_node(w, like)->rank - axis;
    for (uint32_t j = 0; j < w->rank; j++)
        w->extent[j] = df_fuse_node_extent(&w->q, like, j + axis);
    for (uint32_t n = 0; n < t->n_nodes; n++) {
        const uint8_t op = loop_kernel_node(w, n)->op;
        if (!w->use[n] || op != DF_OP_each || !loop_kernel_reads_rows(w, n)) continue;
        if (loop_kernel_node(w, n)->rank > 0) guard_extents(w, loop_kernel_node(w, n)->src[0].i, 1);
        w->use[loop_kernel_node(w, n)->src[0].i] = ROWS;
    }
    for (uint32_t n = 0; n < t->n_nodes; n++) {
        const uint8_t op = loop_kernel_node(w, n)->op;
        if (!w->use[n] || w->use[n] == ROWS || loop_kernel_node(w, n)->rank == 0) continue;
        if (!has_extents(w, n, like)) return false;
        if (op == DF_OP_stack ? loop_kernel_node(w, loop_kernel_node(w, n)->src[0].i)->rank == 0
                              : brings_extents(w, n))
            guard_extents(w, n, first_axis(w, n));
    }
    return true;
}

/* ---- one kernel: instructions ---- */

/* Instructions that follow belong to this stage and level. */
static void go_to(builder *w, uint8_t stage, df_level level)
{
    w->b.stage = stage;
    w->b.level = (uint8_t)level;
}

/* Row-major strides of the shape of the kernel. by_iteration: with one row for each iteration. */
static location contiguous(builder *w, bool by_iteration)
{
    location l = { 0 };
    df_slot step = SLOT_ONE;
    for (uint32_t j = w->rank; j-- > 0;) {
        l.stride[j] = step;
        step = df_fuse_mul(&w->q, step, w->extent[j]);
    }
    if (by_iteration) l.stride[w->rank] = step;
    return l;
}

/* The number of elements of n. */
static df_slot numel(builder *w, uint32_t n)
{
    df_slot k = SLOT_ONE;
    for (uint32_t j = 0; j < loop_kernel_node(w, n)->rank; j++)
        k = df_fuse_mul(&w->q, k, df_fuse_node_extent(&w->q, n, j));
    return k;
}

/* The buffer of input or root `index`, which has the elements of `node`. Added on first use. When
 * memory runs out, q->st is set. */
static df_buf buffer(builder *w, uint32_t kind, uint32_t index, uint32_t node)
{
    pass *const q = &w->q;
    for (uint32_t i = 0; i < q->bufs.n; i++)
        if (q->bufs.at[i].kind == kind && q->bufs.at[i].index == index) return (df_buf){ i };
    const df_plan_buf b = { .kind = kind,
                            .index = index,
                            .dtype = (deft_dtype)loop_kernel_node(w, node)->dtype,
                            .numel = numel(w, node),
                            .donor = DF_NONE,
                            .over = DF_NO_BUF };
    if (!df_vec_push(q->mem, &q->bufs, b)) q->st = df_fail_mem(q->diag, "fuser", sizeof b);
    return (df_buf){ (uint32_t)q->bufs.n - 1 };
}

/* Loads input node n. rows: one row of it for each iteration. */
static uint32_t load_input(builder *w, uint32_t n, bool rows)
{
    pass *const q = &w->q;
    const uint32_t input = loop_kernel_node(w, n)->attr;
    access a = { .kind = DF_ACCESS_LOAD,
                 .dtype = loop_kernel_node(w, n)->dtype,
                 .buf = buffer(w, DF_BUF_INPUT, input, n),
                 .memory = input };
    const bool one = loop_kernel_node(w, n)->rank == rows; /* a single value */
    if (q->t->inputs[input].flags & DF_INPUT_CONTIGUOUS) {
        df_fuse_guard_input(q, DF_GUARD_contiguous, input, 0, 1);
        if (!one) a.at = contiguous(w, rows);
        if (one && rows) a.at.stride[w->rank] = SLOT_ONE;
    } else {
        for (uint32_t j = 0; j < w->rank && !one; j++)
            a.at.stride[j] = df_fuse_stride(q, input, j + rows);
        if (rows) a.at.stride[w->rank] = df_fuse_stride(q, input, 0);
    }
    return df_body_ins(&w->b, DF_K_load, (deft_dtype)a.dtype, 0, 0, 0, df_body_access(&w->b, a));
}

/* Stores root r. rows: one row of it for each iteration. */
static uint32_t store_root(builder *w, uint32_t r, uint32_t value, bool rows)
{
    const uint32_t n = w->cut.t.roots[r].node;
    const access a = { .kind = DF_ACCESS_STORE,
                       .dtype = loop_kernel_node(w, n)->dtype,
                       .buf = buffer(w, DF_BUF_ROOT, r, n),
                       .memory = w->cut.t.n_inputs + r,
                       .at = contiguous(w, rows) };
    w->done[n] = 1;
    return df_body_ins(&w->b, DF_K_store, (deft_dtype)a.dtype, value, 0, 0,
                       df_body_access(&w->b, a));
}

/* The number of the iteration. */
static uint32_t iteration(builder *w)
{
    access a = { .kind = DF_ACCESS_INDEX, .dtype = DEFT_I64, .buf = DF_NO_BUF };
    a.at.stride[w->rank] = SLOT_ONE;
    return df_body_ins(&w->b, DF_K_index, DEFT_I64, 0, 0, 0, df_body_access(&w->b, a));
}

/* Emits elementwise node n, a branch as a select, or an expand, which costs no instruction. */
static uint32_t loop_kernel_emit_map(builder *w, uint32_t n)
{
    const df_node *const x = loop_kernel_node(w, n);
    const df_op_info *const o = &df_op_infos[x->op];
    const deft_dtype t = (deft_dtype)x->dtype;
    uint32_t src[3] = { 0 };
    for (uint32_t s = 0; s < x->n_src; s++) src[s] = w->id[x->src[s].i];
    if (x->op == DF_OP_expand) return src[0];
    if (x->op == DF_OP_cond) return df_body_ins(&w->b, DF_K_select, t, src[0], src[1], src[2], 0);
    const uint32_t typed = o->cls == DF_CLASS_ternary ? 1 : 0;
    return df_op_emit(&w->b.emit, (df_op)x->op,
                      (deft_dtype)loop_kernel_node(w, x->src[typed].i)->dtype, t, src, x->attr);
}

/* Emits level ROW of stage 0: numbers, initial states, and values that do not change. Rows of
 * arrays are loaded in the loop. */
static void emit_start(builder *w)
{
    go_to(w, 0, DF_LEVEL_ROW);
    for (uint32_t n = 0; n < w->cut.t.n_nodes; n++) {
        const df_node *const x = loop_kernel_node(w, n);
        if (!w->use[n] || w->use[n] == ROWS) continue;
        if (x->op == DF_OP_input) w->id[n] = load_input(w, n, false);
        if (x->op == DF_OP_num) w->id[n] = df_body_number(&w->b, x->arg, (deft_dtype)x->dtype);
        if (x->op == DF_OP_cst) w->id[n] = df_body_constant(&w->b, (deft_dtype)x->dtype, x->attr);
    }
}

/* Emits the values of an iteration that `use` marks and that are not marked in `there` yet. */
static void emit_values(builder *w, const uint8_t *use, uint8_t *there)
{
    for (uint32_t n = 0; n < w->cut.t.n_nodes; n++) {
        const uint8_t op = loop_kernel_node(w, n)->op;
        if (!use[n] || !w->use[n] || there[n] || is_list(w, n)) continue;
        there[n] = 1;
        if (op == DF_OP_loop)
            w->id[n] = iteration(w);
        else if (op == DF_OP_each)
            w->id[n] = loop_kernel_reads_rows(w, n)
                           ? load_input(w, loop_kernel_node(w, n)->src[0].i, true)
                           : w->id[loop_kernel_node(w, n)->src[0].i];
        else if (df_op_is_map((df_op)op) || op == DF_OP_cond || op == DF_OP_expand)
            w->id[n] = loop_kernel_emit_map(w, n);
    }
}

/* Emits level ELEM of stage 0: one iteration. */
static deft_status emit_iteration(builder *w)
{
    const df_trace *const t = &w->cut.t;
    uint8_t *const first = df_arena_new(&w->q.tmp, uint8_t, t->n_nodes);
    uint8_t *const there = df_arena_new(&w->q.tmp, uint8_t, t->n_nodes);
    if (!first || !there) return df_fail_mem(w->q.diag, "fuser", t->n_nodes);
    go_to(w, 0, DF_LEVEL_ELEM);
    for (uint32_t n = 0; n < t->n_nodes; n++)
        if (w->use[n] && loop_kernel_node(w, n)->op == DF_OP_carry)
            w->id[n] = df_body_ins(&w->b, DF_K_carry, (deft_dtype)loop_kernel_node(w, n)->dtype,
                                   w->id[loop_kernel_node(w, n)->src[0].i], 0, 0, 0);
    if (w->proceed != DF_NONE) {
        first[w->proceed] = 1;
        close_use(w, first, false);
        emit_values(w, first, there);
        df_body_ins(&w->b, DF_K_proceed, DEFT_BOOL,
                    w->id[loop_kernel_node(w, w->proceed)->src[0].i], 0, 0, 0);
    }
    emit_values(w, w->use, there);
    for (uint32_t r = 0; r < t->n_roots; r++) {
        const uint32_t n = t->roots[r].node;
        if (w->use[n] && loop_kernel_node(w, n)->op == DF_OP_stack)
            store_root(w, r, w->id[loop_kernel_node(w, n)->src[0].i], true);
    }
    for (uint32_t n = 0; n < t->n_nodes; n++)
        if (w->use[n] && loop_kernel_node(w, n)->op == DF_OP_next)
            w->id[n] = df_body_ins(&w->b, DF_K_next, (deft_dtype)loop_kernel_node(w, n)->dtype,
                                   w->id[loop_kernel_node(w, n)->src[0].i],
                                   w->id[loop_kernel_node(w, n)->src[1].i], 0, 0);
    return w->q.st;
}

/* Emits level ROW of stage 1: stores the states that have the shape of the kernel, which stores
 * root `first`. Returns the number of stages. */
static uint8_t emit_end(builder *w, uint32_t first)
{
    const df_trace *const t = &w->cut.t;
    uint8_t stages = 1;
    go_to(w, 1, DF_LEVEL_ROW);
    for (uint32_t r = 0; r < t->n_roots; r++) {
        const uint32_t n = t->roots[r].node;
        if (loop_kernel_node(w, n)->op != DF_OP_next || !has_extents(w, n, t->roots[first].node))
            continue;
        store_root(w, r, w->id[n], false);
        stages = 2;
    }
    return stages;
}

/* Notes in the plan which nodes the kernel of seg computes. */
static deft_status loop_kernel_list_nodes(builder *w, df_seg *seg)
{
    pass *const q = &w->q;
    seg->from = (uint32_t)q->from.n;
    for (uint32_t n = 0; n < w->cut.t.n_nodes; n++) {
        if (!w->use[n] || loop_kernel_node(w, n)->op == DF_OP_input) continue;
        if (!df_vec_push(q->mem, &q->from, n)) return df_fail_mem(q->diag, "fuser", 4);
    }
    seg->n_from = (uint32_t)q->from.n - seg->from;
    return DEFT_OK;
}

/* Makes the kernel that loop_kernel_choose_nodes() marked for root `first`, and its segment. */
static deft_status make_kernel(builder *w, uint32_t first)
{
    deft_status st = DEFT_OK;
    pass *const q = &w->q;
    df_kernel shape = { 0 };
    uint8_t order[MAX_LOOPS + 1];
    df_slot extent[MAX_LOOPS + 1];
    df_seg seg;
    memset(&seg, 0, sizeof seg);
    seg.kind = DF_SEG_KERNEL;
    seg.c_access = DF_NONE;
    df_body_reset(&w->b);
    emit_start(w);
    TRY(emit_iteration(w));
    shape.n_stages = emit_end(w, first);
    df_body_drop_unread_casts(&w->b);
    TRY(q->st);
    space sp = { .n = (uint8_t)(w->rank + 1) };
    for (uint32_t j = 0; j < w->rank && j < DEFT_MAX_RANK; j++) {
        sp.order[j] = (uint8_t)j;
        sp.extent[j] = w->extent[j];
    }
    sp.order[w->rank] = (uint8_t)w->rank;
    sp.extent[w->rank] = w->most;
    sp.red[w->rank] = true;
    df_fuse_loop_axes(q, &sp, w->b.access.at, (uint32_t)w->b.access.n, &shape, order, extent);
    TRY(df_fuse_seal_body(q, &w->b, shape, order, extent, &seg));
    TRY(loop_kernel_list_nodes(w, &seg));
    if (!df_vec_push(q->mem, &q->segs, seg)) TRY(df_fail_mem(q->diag, "fuser", sizeof seg));
done:
    return st;
}

/* ---- the plan ---- */

/* Makes all kernels of the loop. *why: the reason why some kernel is impossible, or NULL. */
static deft_status make_kernels(builder *w, const char **why)
{
    deft_status st = DEFT_OK;
    pass *const q = &w->q;
    const df_trace *const t = &w->cut.t;
    df_plan *const plan = q->plan;
    if (!df_fuse_slots_init(q)) return q->st;
    w->use = df_arena_new(&q->tmp, uint8_t, t->n_nodes);
    w->done = df_arena_new(&q->tmp, uint8_t, t->n_nodes);
    w->id = df_arena_new(&q->tmp, uint32_t, t->n_nodes);
    plan->root_buf = df_arena_new(&plan->arena, df_buf, t->n_roots);
    if (!w->use || !w->done || !w->id || !plan->root_buf)
        TRY(df_fail_mem(q->diag, "fuser", t->n_nodes));
    w->most = w->w->chunk ? df_fuse_const(q, w->w->chunk)
                          : df_fuse_arg(q, loop_kernel_node(w, w->loop)->arg);
    *why = NULL;
    for (uint32_t r = 0; r < t->n_roots && !*why; r++) {
        if (w->done[t->roots[r].node]) continue;
        if (!loop_kernel_choose_nodes(w, r))
            *why = "values of several shapes meet in its body";
        else if (w->w->chunk && w->use[w->loop])
            *why = "endless, and asks for the number of the iteration";
        else
            TRY(make_kernel(w, r));
    }
    const df_launch all = { .n = (uint32_t)q->segs.n };
    if (!df_vec_push(q->mem, &q->launches, all)) TRY(df_fail_mem(q->diag, "fuser", sizeof all));
    plan->n_roots = t->n_roots;
    for (uint32_t r = 0; r < t->n_roots && !*why; r++)
        plan->root_buf[r] = buffer(w, DF_BUF_ROOT, r, t->roots[r].node);
    TRY(q->st);
done:
    return st;
}

deft_status df_outline_loop_kernel(outline *o, const whole *w, df_subplan *out)
{
    deft_status st = DEFT_OK;
    const char *why = NULL;
    df_plan *plan = NULL;
    builder b = { .w = w, .loop = DF_NONE, .proceed = DF_NONE };
    if (!loop_kernel_accepts_loop(o, w)) return DEFT_OK;
    TRY(cut_loop(o, &b));
    TRY(df_fuse_begin(&b.q, o->p->diag, &b.cut.t, o->p->lim, o->p->mem, true, &plan));
    df_body_init(&b.b, &b.q);
    st = make_kernels(&b, &why);
    if (st == DEFT_OK && !why) st = df_fuse_copy_out(&b.q);
    if (st == DEFT_OK && !why) st = df_plan_verify(o->p->diag, plan);
    df_body_finish(&b.b);
    df_fuse_end(&b.q);
    if (st == DEFT_OK && !why) {
        st = df_outline_take_plan(o, &b.cut, plan, out);
        plan = NULL;
    } else if (st == DEFT_OK) {
        const uint32_t node = o->c.loops[w->loop].node;
        df_fuse_why(o->p, node, node, "an iteration at a time", "%s", why);
    }
done:
    df_plan_destroy(&plan, o->p->mem);
    return st;
}
