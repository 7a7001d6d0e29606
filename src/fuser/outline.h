/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the fuser: a trace with control on its way to parts.
 *
 *   outline.c   what is computed where; parts
 *   whole.c     loops that are one kernel
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

deft_status df_outline_no_memory(const outline *o);
/* The outermost loop n is part of, DF_NONE: none. */
uint32_t df_outline_top_of(const outline *o, uint32_t n);
/* The cell of n, read by the part that is being made. */
deft_status df_outline_need_cell(outline *o, uint32_t n, uint32_t *out);

/* Begins a trace of at most n_nodes nodes; o->ports is its list of ports. */
deft_status df_outline_begin_cut(outline *o, uint32_t n_nodes, uint32_t n_roots, cut_trace *cut);
/* x where node n of o->t stood; returns its number. */
uint32_t df_outline_append(const outline *o, cut_trace *cut, uint32_t n, df_node x);
/* An input that stands for node n. */
deft_status df_outline_add_port(outline *o, cut_trace *cut, uint32_t n, const df_port *port,
                                uint32_t *out);
/* plan, made for the cut, becomes out's: also when this fails. */
deft_status df_outline_take_plan(outline *o, const cut_trace *cut, df_plan *plan, df_subplan *out);

/* ---- whole.c ---- */

/* A plan in which all iterations of a loop are one kernel, when its body is elementwise: out->plan,
 * else NULL. Its roots are what o->roots names of the loop's list. With a chunk it does so many
 * iterations at most and reads the states as they are, of which o->roots then names all: an
 * iteration of a part that is a loop. */
typedef struct whole {
    uint32_t loop;
    int64_t chunk; /* 0: all, from cells */
} whole;
deft_status df_outline_whole(outline *o, const whole *w, df_subplan *out);

#endif
