/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the fuser: how a trace with loops or branches is divided into parts.
 *
 *   outline.c        makes the parts
 *   assign_parts.c   decides in which part each node is computed
 *   extract_part.c   makes the trace of a part, with ports for what comes from other parts
 *   loop_kernel.c    makes one kernel of all iterations of a loop
 *   tagged.c         finds the operands of loops of which it is known what they compute
 *   flatten.c        joins the plans of parts into one plan, when all loops are kernels
 *
 * A *run part* is a part without control. Loops and groups of branches are *units*. Units stand
 * between run parts. Only the outermost loops and branches become parts of this plan: the plans
 * within the parts deal with the inner ones in the same way.
 */
#ifndef DF_FUSER_OUTLINE_H
#define DF_FUSER_OUTLINE_H

#include "fuser/fuse.h"
#include "trace/control.h"

typedef enum where_kind { NOWHERE, IN_RUN, IN_SIDE, IN_LOOP } where_kind;

/* Where a node is computed. NOWHERE: no reader has been found yet. IN_RUN: in run part number `at`.
 * IN_SIDE: on a side of the group of branches whose first cond is node `at`; side 0 is taken when
 * the condition holds. IN_LOOP: in an iteration of loop number `at`. IN_LOOP occurs only in
 * questions: a node within a loop has no home of its own. */
typedef struct where {
    uint32_t kind, at, side; /* kind: where_kind */
} where;

/* What a trace that is being extracted needs of a node. */
enum { NEED_VALUE = 1, NEED_EXTENTS = 2 };

typedef struct outline {
    pass *p;
    const df_trace *t;
    df_control c;
    uint8_t *live;        /* per node: a root needs it */
    uint32_t *top;        /* per loop: the outermost loop it is part of */
    uint32_t *level;      /* per node: the number of its run part, or of the one after its unit */
    uint32_t *loop_level; /* per outermost loop: the number of the run part before it */
    where *home;          /* per node outside loops: its assigned part */
    where *loop_home;     /* per outermost loop: its assigned part */
    uint32_t *group;      /* per cond: the first cond of its group */
    uint32_t *cell;       /* per node: its cell or DF_NONE */
    uint8_t *need;        /* per node: NEED_ bits, for the trace being extracted */
    uint32_t *at;         /* per node: its number in that trace */
    DF_VEC(df_cell) cells;
    DF_VEC(uint32_t) makers; /* per cell: the node whose value it holds */
    DF_VEC(df_part) parts;   /* in reverse order */
    DF_VEC(df_port) ports;   /* of the trace being extracted */
    DF_VEC(uint32_t) roots;  /* nodes of t that are to be the roots of the trace being extracted */
    uint32_t n_levels;       /* run parts */
    bool is_flat;          /* the parts are to become one plan without parts, so they may donate */
    bool last_replaces;    /* otherwise: the last part may store roots in the memory of inputs that
                            * they replace */
    uint32_t n_root_cells; /* so many cells, the first ones, are results of the run */
    uint32_t *donor_of;    /* per node: the input that it replaces as a root, or that a root
                              * replaces which updates it in place; else DF_NONE */
    uint8_t *read_later;   /* per input of t: a part that has been made reads it */
} outline;

/* A trace being extracted from o->t. */
typedef struct cut_trace {
    df_trace t;
    uint32_t *from;  /* per node: its node in o->t */
    uint32_t *input; /* per input: the input of o->t, or DF_NONE when it is none */
} cut_trace;

/* Reports that memory ran out. Returns DEFT_E_MEMORY. */
DF_INLINE deft_status df_outline_no_memory(const outline *o)
{
    return df_fail_mem(o->p->diag, "fuser", o->t->n_nodes * sizeof(uint32_t));
}

/* ---- what a node is ---- */

/* Node n of the trace with control. */
DF_INLINE const df_node *df_at(const outline *o, uint32_t n)
{
    return &o->t->nodes[n];
}

/* The outermost loop that n is part of; DF_NONE: no loop. */
DF_INLINE uint32_t df_outline_top_of(const outline *o, uint32_t n)
{
    const uint32_t in = o->c.inside[n];
    return in == DF_NONE ? DF_NONE : o->top[in];
}

/* The outermost loop whose result n is; DF_NONE: n is no result of an outermost loop. */
DF_INLINE uint32_t df_ended_loop(const outline *o, uint32_t n)
{
    if (df_at(o, n)->op != DF_OP_final || o->c.inside[n] != DF_NONE) return DF_NONE;
    return o->top[o->c.inside[df_at(o, n)->src[1].i]];
}

/* Whether n is a branch outside of all loops. */
DF_INLINE bool df_is_outer_cond(const outline *o, uint32_t n)
{
    return df_at(o, n)->op == DF_OP_cond && o->c.inside[n] == DF_NONE;
}

/* Whether each part has an n of its own: computing n costs no more than reading it, or n has no
 * value. That holds for views, for leaves other than inputs and random numbers, and for `pass`. */
DF_INLINE bool df_is_free(const outline *o, uint32_t n)
{
    const uint8_t cls = df_op_infos[df_at(o, n)->op].cls, op = df_at(o, n)->op;
    return cls == DF_CLASS_view || op == DF_OP_pass ||
           (cls == DF_CLASS_leaf && op != DF_OP_input && op != DF_OP_random);
}

/* Raises *to to value, if that is more. */
DF_INLINE void df_raise(uint32_t *to, uint32_t value)
{
    if (value > *to) *to = value;
}

/* Run part number `level`. */
DF_INLINE where df_in_run(uint32_t level)
{
    return (where){ IN_RUN, level, 0 };
}

DF_INLINE bool df_same_where(where a, where b)
{
    return a.kind == b.kind && a.at == b.at && a.side == b.side;
}

/* ---- assign_parts.c ---- */

/* Fills in level, loop_level, group, home, loop_home and n_levels. Changes o->at. */
void df_outline_assign_parts(outline *o);

/* ---- extract_part.c ---- */

/* Whether node n is computed at w. */
bool df_is_part_of(const outline *o, uint32_t n, where w);
/* Bytes of node n over its axes from from_axis on. */
df_slot df_outline_bytes(const outline *o, uint32_t n, uint32_t from_axis);
/* Sets *out to the cell that holds the value of n, which is added on first use. Parts are made in
 * reverse order, so the part that is first to ask is the last that reads the cell. */
deft_status df_outline_need_cell(outline *o, uint32_t n, uint32_t *out);

/* Begins a trace of at most n_nodes nodes and n_roots roots. Empties o->ports, its list of ports.
 */
deft_status df_outline_begin_cut(outline *o, uint32_t n_nodes, uint32_t n_roots, cut_trace *cut);
/* Appends x, which takes shape and call site of node n of o->t. The cut must have room for x.
 * Returns its number in the cut. */
uint32_t df_outline_append(const outline *o, cut_trace *cut, uint32_t n, df_node x);
/* Appends an input that stands for node n and is read through *port. *out: its node in the cut. */
deft_status df_outline_add_port(outline *o, cut_trace *cut, uint32_t n, const df_port *port,
                                uint32_t *out);
/* Fuses the cut. *out receives the plan, translated to o->t. */
deft_status df_outline_fuse(outline *o, const cut_trace *cut, df_subplan *out);
/* Extracts and fuses the trace whose roots are the nodes in o->roots. Nodes that are not computed
 * at w become inputs with ports. *out receives the plan. The first n_next roots are the next values
 * of the states of the loop in w: root k may be stored in the memory of state k. */
deft_status df_outline_extract(outline *o, where w, uint32_t n_next, df_subplan *out);
/* Makes *out own plan, which was made for the cut, and adds its slots and guards to the enclosing
 * plan. *out owns the plan even on failure. */
deft_status df_outline_take_plan(outline *o, const cut_trace *cut, df_plan *plan, df_subplan *out);

/* ---- loop_kernel.c ---- */

/* Which loop becomes a kernel, and how many iterations it does. */
typedef struct whole {
    uint32_t loop;
    int64_t chunk; /* the most iterations that one run of the kernel does. The kernel then is the
                    * body of a LOOP part, and reads the current states. 0: all iterations, from the
                    * initial states in cells */
} whole;
/* Makes a plan that runs the iterations of a loop as kernels, one for each shape that is stored,
 * when the body of the loop is elementwise. Its roots are the nodes in o->roots, which are of the
 * list of the loop. With a chunk they must name all states. *out owns the plan.
 *
 * Returns DEFT_OK also when there is no such plan. out->plan then stays NULL, and the reason is
 * noted (df_fuse_why). */
deft_status df_outline_loop_kernel(outline *o, const whole *w, df_subplan *out);

/* Whether the body of a loop has only operations that a kernel of all iterations can have. */
bool df_outline_is_elementwise(const outline *o, uint32_t loop);

/* ---- flatten.c ---- */

/* Whether the parts that were made can become one plan without parts. */
bool df_outline_may_flatten(const outline *o);
/* Joins the plans of all parts into the plan of o->p, which then has no parts. The plans of the
 * parts are not needed afterwards. */
deft_status df_outline_flatten(outline *o);

/* ---- tagged.c ---- */

/* Sets part->tag when the attribute of the loop says what it computes, and the iteration reads the
 * operands in place. The iteration, part->body, must just have been extracted. */
deft_status df_outline_tag(outline *o, uint32_t loop, df_part *part);

#endif
