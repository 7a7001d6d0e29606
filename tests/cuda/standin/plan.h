/* SPDX-License-Identifier: Apache-2.0
 *
 * What graph.c and conditional.c share: steps of graphs, and graphs within graphs.
 */
#ifndef TEST_CUDA_STANDIN_PLAN_H
#define TEST_CUDA_STANDIN_PLAN_H

#include "state.h"

typedef struct plan plan;
typedef struct run run;

typedef struct step {
    op *op;             /* of a child: NULL */
    plan *child;        /* owned; else NULL */
    struct graph *body; /* of a conditional node; else NULL */
    plan *inner;        /* of an exec's: its body's steps, owned */
    uint32_t *after;
    uint32_t n_after;
} step;

struct plan {
    step *at;
    uint32_t n;
};

typedef struct graph {
    object o;
    plan steps;
    struct graph *owner; /* of a body: it is a step of this; NULL */
    uint32_t owner_step;
} graph;

typedef struct condition {
    object o;
    graph *of;
    bool is_used; /* by a node */
    bool has_first;
    uint32_t first;
} condition;

/* One launch of an exec, while its work is in a queue. Counted. */
struct run {
    int refs;
    const graph *of;
    uint32_t *value; /* per condition: by its number */
    uint32_t n_values;
    long turns;
};

plan plan_copy(const plan *p);
void plan_finish(plan *p);
/* A step of g after what `after` names; NULL: misuse was told. */
step *add_step(graph *g, const df_cu_node *after, size_t n, df_cu_node *out);
/* Copies of all work of p, in one of the orders allowed, behind *end; returns the new end. */
op **order_steps(op **end, const plan *p, run *r);
run *run_new(const graph *of);
/* With a graph go those within it, and its conditions. */
void end_bodies(graph *g);
/* Each condition of g has a node. False: misuse was told. */
bool conditions_are_used(const graph *g);

/* A launch; what its kernels set, 0 or a result; what decides. */
run *run_keep(run *r);
void run_drop(run *r);
int set_condition(const op *by, unsigned long long handle, unsigned value);
int decide(stream *s, const op *o);
plan *inner_copy(const plan *p);
void inner_drop(plan *p);
/* The first of its work, bodies' too, that f is true of; NULL: none. */
const op *plan_find(const plan *p, bool (*f)(const op *o, const void *user), const void *user);
void node_drop_all(const object *graph);
bool is_linked(const object *fn);

#endif
