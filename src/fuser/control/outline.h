/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the fuser: a trace with control on its way to parts.
 *
 *   outline.c   parts
 *   assign_parts.c     what is computed where
 *   extract_part.c   a part's trace; what passes between parts
 *   loop_kernel.c     loops that are one kernel
 *   tagged.c    loops of which it is known what they compute
 */
#ifndef DF_FUSER_OUTLINE_H
#define DF_FUSER_OUTLINE_H

#include "fuser/fuse.h"
#include "trace/control.h"

typedef enum where_kind { NOWHERE, IN_RUN, IN_SIDE, IN_LOOP } where_kind;

/* Where a node is computed. IN_RUN: at is the level. IN_SIDE: at is the group's first cond, side 0
 * what is done when it holds. IN_LOOP: at is the loop's index; only of what is asked for. */
typedef struct where {
    uint32_t kind, at, side;
} where;

enum { NEED_VALUE = 1, NEED_EXTENTS = 2 };

typedef struct outline {
    pass *p;
    const df_trace *t;
    df_control c;
    uint8_t *live;
    uint32_t *top;        /* per loop: the outermost loop it is part of */
    uint32_t *level;      /* per node */
    uint32_t *loop_level; /* per outermost loop: of the run part before it */
    where *home;          /* per node outside loops */
    where *loop_home;     /* per outermost loop */
    uint32_t *group;      /* per cond: the first of its group */
    uint32_t *cell;       /* per node: its cell or DF_NONE */
    uint8_t *need;        /* per node, of the trace being cut out */
    uint32_t *at;         /* per node: its number there */
    DF_VEC(df_cell) cells;
    DF_VEC(uint32_t) makers;
    DF_VEC(df_part) parts; /* last first */
    DF_VEC(df_port) ports; /* of the trace being cut out */
    DF_VEC(uint32_t) roots;
    uint32_t n_levels;
} outline;

/* A trace being cut out of o->t. */
typedef struct cut_trace {
    df_trace t;
    uint32_t *from;  /* per node */
    uint32_t *input; /* per input: that of o->t, or DF_NONE */
} cut_trace;

/* Reports that memory ran out. Returns DEFT_E_MEMORY. */
DF_INLINE deft_status df_outline_no_memory(const outline *o)
{
    return df_fail_mem(o->p->diag, "fuser", o->t->n_nodes * sizeof(uint32_t));
}

/* ---- what a node is ---- */

DF_INLINE const df_node *df_at(const outline *o, uint32_t n)
{
    return &o->t->nodes[n];
}

/* The outermost loop n is part of, DF_NONE: none. */
DF_INLINE uint32_t df_outline_top_of(const outline *o, uint32_t n)
{
    const uint32_t in = o->c.inside[n];
    return in == DF_NONE ? DF_NONE : o->top[in];
}

/* The outermost loop whose result n is; DF_NONE: of none. */
DF_INLINE uint32_t df_ended_loop(const outline *o, uint32_t n)
{
    if (df_at(o, n)->op != DF_OP_final || o->c.inside[n] != DF_NONE) return DF_NONE;
    return o->top[o->c.inside[df_at(o, n)->src[1].i]];
}

DF_INLINE bool df_is_outer_cond(const outline *o, uint32_t n)
{
    return df_at(o, n)->op == DF_OP_cond && o->c.inside[n] == DF_NONE;
}

/* Costs nothing, or no more than reading it would. */
DF_INLINE bool df_is_free(const outline *o, uint32_t n)
{
    const uint8_t cls = df_op_infos[df_at(o, n)->op].cls, op = df_at(o, n)->op;
    return cls == DF_CLASS_view ||
           (cls == DF_CLASS_leaf && op != DF_OP_input && op != DF_OP_random);
}

DF_INLINE void df_raise(uint32_t *to, uint32_t value)
{
    if (value > *to) *to = value;
}

DF_INLINE where df_in_run(uint32_t level)
{
    return (where){ IN_RUN, level, 0 };
}

DF_INLINE bool df_same_where(where a, where b)
{
    return a.kind == b.kind && a.at == b.at && a.side == b.side;
}

/* ---- assign_parts.c ---- */

/* Fills in level, loop_level, group, home, loop_home and n_levels. */
void df_outline_assign_parts(outline *o);

/* ---- extract_part.c ---- */

bool df_is_part_of(const outline *o, uint32_t n, where w);
/* Of node n from that axis on. */
df_slot df_outline_bytes(const outline *o, uint32_t n, uint32_t from_axis);
/* The cell of n, read by the part that is being made. */
deft_status df_outline_need_cell(outline *o, uint32_t n, uint32_t *out);

/* Begins a trace of at most n_nodes nodes; o->ports is its list of ports. */
deft_status df_outline_begin_cut(outline *o, uint32_t n_nodes, uint32_t n_roots, cut_trace *cut);
/* x where node n of o->t stood; returns its number. */
uint32_t df_outline_append(const outline *o, cut_trace *cut, uint32_t n, df_node x);
/* An input that stands for node n. */
deft_status df_outline_add_port(outline *o, cut_trace *cut, uint32_t n, const df_port *port,
                                uint32_t *out);
/* Fuses the cut; out is its plan. */
deft_status df_outline_fuse(outline *o, const cut_trace *cut, df_subplan *out);
/* A trace whose roots are the nodes in o->roots, as far as it is in w, and its plan. */
deft_status df_outline_extract(outline *o, where w, df_subplan *out);
/* plan, made for the cut, becomes out's: also when this fails. */
deft_status df_outline_take_plan(outline *o, const cut_trace *cut, df_plan *plan, df_subplan *out);

/* ---- loop_kernel.c ---- */

/* A plan in which all iterations of a loop are one kernel, when its body is elementwise: out->plan,
 * else NULL. Its roots are what o->roots names of the loop's list. With a chunk it does so many
 * iterations at most and reads the states as they are, of which o->roots then names all: an
 * iteration of a part that is a loop. */
typedef struct whole {
    uint32_t loop;
    int64_t chunk; /* 0: all, from cells */
} whole;
deft_status df_outline_loop_kernel(outline *o, const whole *w, df_subplan *out);

/* ---- tagged.c ---- */

/* Fills in part->tag, when the loop's attribute says what it computes and the iteration, which has
 * just been cut out, reads the operands as they are. */
deft_status df_outline_tag(outline *o, uint32_t loop, df_part *part);

#endif
