/* SPDX-License-Identifier: Apache-2.0
 *
 * Conditional nodes. A condition is a word of each launch of the graph that it was made for;
 * kernels of that graph set it (cudaGraphSetConditional, by shim.h), late, as all kernels run. When
 * such a node's turn comes in the stream, the work of its body is put before all else there, and
 * behind it, of a loop, the node again. Without a value to begin with a condition holds what chance
 * says.
 */
#include <stdlib.h>
#include <string.h>

#include "plan.h"

enum { CONDITIONAL = 13, IF = 0, WHILE = 1, ASSIGN_DEFAULT = 1, MOST_TURNS = 1000000 };

/* ---- conditions ---- */

df_cu_result cuGraphConditionalHandleCreate(df_cu_condition *out, df_cu_graph of, df_cu_ctx context,
                                            unsigned first, unsigned flags)
{
    const int r = enter(C_cuGraphConditionalHandleCreate, NEEDS_CONTEXT);
    if (r) return r;
    graph *const g = object_get_any(GRAPH, of);
    if (!g) return leave(BAD_HANDLE);
    if (driver_version() < 12040) return leave(misuse(BAD_VALUE, "this driver has no conditions"));
    if (!context_is(context, g->o.gpu)) return leave(misuse(BAD_CONTEXT, "another context"));
    if (flags > ASSIGN_DEFAULT) return leave(misuse(BAD_VALUE, "flags %u", flags));
    condition *const c = object_new(CONDITION, current(), sizeof *c);
    c->of = g;
    c->has_first = flags == ASSIGN_DEFAULT;
    c->first = first;
    *out = (uintptr_t)handle_of(c);
    record(" %s of %s", object_name(c), object_name(g));
    return leave(0);
}

static condition *condition_of(uint64_t handle)
{
    condition *c;
    uint32_t at = 0;
    while ((c = object_next(CONDITION, &at)))
        if ((uintptr_t)handle_of(c) == handle) return c;
    return NULL;
}

bool conditions_are_used(const graph *g)
{
    const condition *c;
    uint32_t at = 0;
    while ((c = object_next(CONDITION, &at)))
        if (c->of == g && !c->is_used) {
            misuse(0, "no node has %s", object_name(c));
            return false;
        }
    return true;
}

void end_bodies(graph *g)
{
    condition *c;
    uint32_t at = 0;
    while ((c = object_next(CONDITION, &at)))
        if (c->of == g) c->o.alive = false;
    graph *body;
    at = 0;
    while ((body = object_next(GRAPH, &at))) {
        if (body->owner != g || !body->o.alive) continue;
        end_bodies(body);
        node_drop_all(&body->o);
        plan_finish(&body->steps);
        body->o.alive = false;
    }
}

/* ---- nodes ---- */

/* Or misuse was told. */
static condition *condition_for(const graph *g, const df_cu_node_params *p)
{
    condition *const c = condition_of(p->is.conditional.handle);
    const graph *top = g;
    while (c && top && c->of != top) top = top->owner;
    if (!c || !c->o.alive)
        misuse(0, "%llu is no condition", (unsigned long long)p->is.conditional.handle);
    else if (!top)
        misuse(0, "%s is of %s, not of %s", object_name(c), object_name(c->of), object_name(g));
    else if (c->is_used)
        misuse(0, "%s has a node", object_name(c));
    else
        return c;
    return NULL;
}

df_cu_result cuGraphAddNode(df_cu_node *out, df_cu_graph to, const df_cu_node *after, size_t n,
                            df_cu_node_params *p)
{
    static df_cu_graph bodies[1 << 10];
    static uint32_t n_bodies;
    static const df_cu_node_params none;
    const int r = enter(C_cuGraphAddNode, NEEDS_CONTEXT);
    if (r) return r;
    graph *const g = object_get_any(GRAPH, to);
    if (!g) return leave(BAD_HANDLE);
    if (driver_version() < 12040) return leave(misuse(BAD_VALUE, "this driver has no such nodes"));
    if (p->type != CONDITIONAL) return leave(misuse(BAD_VALUE, "a node of type %d", p->type));
    if (memcmp(p->reserved0, none.reserved0, sizeof none.reserved0) != 0 || p->reserved2)
        return leave(misuse(BAD_VALUE, "what is reserved is not 0"));
    const int type = p->is.conditional.type;
    if ((type != IF && type != WHILE) || p->is.conditional.size != 1)
        return leave(misuse(BAD_VALUE, "type %d, %u bodies", type, p->is.conditional.size));
    if (!context_is(p->is.conditional.ctx, g->o.gpu))
        return leave(misuse(BAD_CONTEXT, "another context"));
    condition *const c = condition_for(g, p);
    step *const s = c ? add_step(g, after, n, out) : NULL;
    if (!s) return leave(BAD_VALUE);
    graph *const body = object_new(GRAPH, g->o.gpu, sizeof *body);
    body->owner = g;
    body->owner_step = g->steps.n - 1;
    c->is_used = true;
    s->body = body;
    s->op = grab(sizeof *s->op);
    *s->op =
        (op){ .kind = OP_DECIDE, .gpu = current(), .condition = &c->o, .turns = type == WHILE };
    df_cu_graph *const room = &bodies[n_bodies++ % (sizeof bodies / sizeof *bodies)];
    *room = handle_of(body);
    p->is.conditional.bodies = room;
    return leave(0);
}

/* ---- runs ---- */

run *run_new(const graph *of)
{
    const condition *c;
    uint32_t at = 0;
    run *const r = grab(sizeof *r);
    r->refs = 1;
    r->of = of;
    while ((c = object_next(CONDITION, &at))) r->n_values = c->o.number + 1;
    r->value = grab((r->n_values + 1) * sizeof *r->value);
    at = 0;
    while ((c = object_next(CONDITION, &at)))
        r->value[c->o.number] = c->has_first ? c->first : chance(2);
    return r;
}

run *run_keep(run *r)
{
    if (r) r->refs++;
    return r;
}

void run_drop(run *r)
{
    if (!r || --r->refs > 0) return;
    free(r->value);
    free(r);
}

int set_condition(const op *by, unsigned long long handle, unsigned value)
{
    const condition *const c = condition_of(handle);
    if (!c) return misuse(BAD_ADDRESS, "%s: %llu is no condition", op_name(by), handle);
    if (!is_linked(by->fn))
        return misuse(BAD_LAUNCH, "%s: a cubin that nothing was linked to", op_name(by));
    if (!by->in_run || by->in_run->of != c->of)
        return misuse(BAD_ADDRESS, "%s: %s is not of the graph that runs", op_name(by),
                      object_name(c));
    by->in_run->value[c->o.number] = value;
    return 0;
}

int decide(stream *s, const op *o)
{
    op *first = NULL;
    if (!o->in_run || o->in_run->value[o->condition->number] == 0) return 0;
    if (++o->in_run->turns > MOST_TURNS) return misuse(BAD_LAUNCH, "a loop does not end");
    op **end = order_steps(&first, o->inner, o->in_run);
    if (o->turns) {
        *end = op_copy(o);
        end = &(*end)->next;
    }
    *end = s->first;
    if (!s->first) s->end = end;
    s->first = first;
    return 0;
}
