/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans within plans: walking them, counting their bytes, making one a part of another. Nesting is
 * bounded (DF_MAX_NESTING), so these functions may recurse.
 */
#include "base/size_class.h"
#include "fuser/fuse.h"

void df_plan_destroy(df_plan **plan, const df_mem *mem)
{
    df_plan *const p = *plan;
    *plan = NULL;
    if (!p) return;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        df_plan_destroy(&p->parts[i].body.plan, mem);
        df_plan_destroy(&p->parts[i].other.plan, mem);
    }
    df_arena_finish(&p->arena);
    df_mem_free(mem, p, sizeof *p);
}

deft_status df_plan_each(df_plan *plan, deft_status (*f)(df_plan *plan, void *user), void *user)
{
    if (!plan) return DEFT_OK;
    deft_status st = f(plan, user);
    for (uint32_t i = 0; i < plan->n_parts && st == DEFT_OK; i++) {
        st = df_plan_each(plan->parts[i].body.plan, f, user);
        if (st == DEFT_OK) st = df_plan_each(plan->parts[i].other.plan, f, user);
    }
    return st;
}

static deft_status add_bytes(df_plan *plan, void *user)
{
    *(size_t *)user += plan->arena.total;
    return DEFT_OK;
}

size_t df_plan_bytes(df_plan *plan)
{
    size_t n = 0;
    df_plan_each(plan, add_bytes, &n);
    return n;
}

int64_t df_plan_root_bytes(const df_plan *plan, uint32_t r, const int64_t *slots)
{
    if (plan->root_cell) {
        const uint32_t c = plan->root_cell[r];
        return c == DF_NONE ? -1 : slots[plan->cells[c].bytes.i];
    }
    const df_buf b = plan->root_buf[r];
    if (IS_NONE(b) || plan->bufs[b.i].kind != DF_BUF_ROOT) return -1;
    return slots[plan->bufs[b.i].numel.i] * (int64_t)deft_dtype_size(plan->bufs[b.i].dtype);
}

/* ---- temporaries ---- */

/* Bytes of the states and rows of a loop while an iteration runs. 0 for other parts. */
static int64_t iteration_bytes(const df_part *part, const int64_t *slots)
{
    int64_t sum = 0;
    for (uint32_t r = 0; part->kind == DF_PART_LOOP && r < part->n_out; r++) {
        const int64_t one = df_plan_root_bytes(part->body.plan, r, slots + part->body.slot0);
        const int64_t n = r < part->n_states ? 1 : slots[part->most.i];
        sum += df_buffer_bytes(one);
        if (part->out[r] == DF_NONE) sum += df_buffer_bytes(n * one);
    }
    return sum;
}

/* Bytes of the cells that are live while part i runs. Roots do not count. */
static int64_t cell_bytes(const df_plan *plan, uint32_t i, const int64_t *slots)
{
    int64_t sum = 0;
    for (uint32_t k = 0; k <= i; k++)
        for (uint32_t o = 0; o < plan->parts[k].n_out; o++) {
            const uint32_t c = plan->parts[k].out[o];
            if (c == DF_NONE || plan->cells[c].last < i || plan->cells[c].is_root) continue;
            sum += df_buffer_bytes(slots[plan->cells[c].bytes.i]);
        }
    return sum;
}

int64_t df_fuse_around_bytes(const df_plan *plan, uint32_t i, const int64_t *slots)
{
    return cell_bytes(plan, i, slots) + iteration_bytes(&plan->parts[i], slots);
}

/* The bytes of the regions before `index` that lie beside each other in region `outer`, or in the
 * arena. */
static int64_t bytes_before(const df_plan *plan, const int64_t *slots, uint32_t index,
                            uint32_t outer)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < index; i++)
        if (plan->regions[i].outer == outer)
            bytes += df_region_rounded(slots[plan->regions[i].bytes.i]);
    return bytes;
}

int64_t df_plan_region_offset(const df_plan *plan, const int64_t *slots, uint32_t index)
{
    const uint32_t outer = plan->regions[index].outer;
    const int64_t at = bytes_before(plan, slots, index, outer);
    return outer == DF_NONE ? at : at + bytes_before(plan, slots, outer, DF_NONE);
}

int64_t df_plan_arena_bytes(const df_plan *plan, const int64_t *slots)
{
    return bytes_before(plan, slots, plan->n_regions, DF_NONE);
}

int64_t df_plan_temporary_bytes(const df_plan *plan, const int64_t *slots)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < plan->n_parts; i++) {
        const df_subplan *const side[2] = { &plan->parts[i].body, &plan->parts[i].other };
        const int64_t around = df_fuse_around_bytes(plan, i, slots);
        for (uint32_t k = 0; k < 2; k++) {
            if (!side[k]->plan) continue;
            const int64_t bytes =
                around + df_plan_temporary_bytes(side[k]->plan, slots + side[k]->slot0);
            if (bytes > most) most = bytes;
        }
    }
    return df_buffer_bytes(df_plan_arena_bytes(plan, slots)) + most;
}

const char *df_plan_retreat(const df_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_why; i++)
        if (plan->why[i].a == DF_NONE) return plan->why[i].reason;
    return "";
}

/* ---- translation ---- */

/* Arguments of df_plan_translate. */
typedef struct maps {
    const uint32_t *node, *input;
} maps;

static uint32_t input_at(const maps *m, uint32_t input)
{
    return m->input ? m->input[input] : input;
}

static void translate_guard(df_guard *g, const maps *m)
{
    if (df_guard_n_slots((df_guard_kind)g->kind) > 0) return;
    g->a = input_at(m, g->a);
    if (g->kind == DF_GUARD_disjoint) g->b = input_at(m, g->b);
}

static deft_status translate(df_plan *p, void *user)
{
    const maps *const m = user;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        df_slot_def *const s = &p->slots[i];
        if (s->op == DF_SLOT_extent) s->a = m->node[s->a];
        if (s->op == DF_SLOT_stride) s->a = input_at(m, s->a);
    }
    for (uint32_t i = 0; i < p->n_guards; i++) translate_guard(&p->guards[i], m);
    for (uint32_t i = 0; i < p->n_from; i++) p->from[i] = m->node[p->from[i]];
    for (uint32_t i = 0; i < p->n_faults; i++) p->faults[i].node = m->node[p->faults[i].node];
    for (uint32_t i = 0; i < p->n_why; i++) {
        if (p->why[i].a == DF_NONE) continue;
        p->why[i].a = m->node[p->why[i].a];
        p->why[i].b = m->node[p->why[i].b];
    }
    for (uint32_t i = 0; i < p->n_copied; i++) {
        df_copied *const c = &p->copied[i];
        c->update = m->node[c->update];
        if (c->reader != DF_NONE) c->reader = m->node[c->reader];
    }
    for (uint32_t i = 0; i < p->n_parts; i++)
        if (p->parts[i].node != DF_NONE) p->parts[i].node = m->node[p->parts[i].node];
    return DEFT_OK;
}

void df_plan_translate(df_plan *plan, const uint32_t *node, const uint32_t *input)
{
    maps m = { node, input };
    df_plan_each(plan, translate, &m);
}

/* ---- splicing ---- */

/* Whether a guard must be checked. A guard on something that is no input of the enclosing trace
 * holds by construction: that is memory of the enclosing plan, contiguous and disjoint from all
 * other. */
static bool must_check(const df_guard *g)
{
    return df_guard_n_slots((df_guard_kind)g->kind) > 0 ||
           (g->a != DF_NONE && (g->kind != DF_GUARD_disjoint || g->b != DF_NONE));
}

deft_status df_fuse_splice(pass *p, df_plan *plan, uint32_t *slot0)
{
    const uint32_t base = *slot0 = (uint32_t)p->slots.n;
    for (uint32_t i = 0; i < plan->n_slots; i++) {
        df_slot_def s = plan->slots[i];
        if (s.op >= DF_SLOT_add) {
            s.a += base;
            s.b += base;
        }
        df_fuse_put_slot(p, s);
    }
    for (uint32_t i = 0; i < plan->n_guards; i++) {
        df_guard g = plan->guards[i];
        const uint32_t n_slots = df_guard_n_slots((df_guard_kind)g.kind);
        /* Only a plan that becomes flat (control/flatten.c) offers an input of the trace to a part.
         * Other inputs of a part that may be overwritten are the same in every run. */
        df_assert(g.kind != DF_GUARD_sole || g.a != DF_NONE);
        if (n_slots >= 1) g.a += base;
        if (n_slots == 2) g.b += base;
        if (must_check(&plan->guards[i])) df_fuse_guard(p, g);
    }
    plan->n_guards = 0; /* the enclosing plan has them */
    for (uint32_t i = 0; i < plan->n_why && p->st == DEFT_OK; i++)
        if (!df_vec_push(p->mem, &p->whys, plan->why[i]))
            p->st = df_fail_mem(p->diag, "fuser", sizeof *plan->why);
    for (uint32_t i = 0; i < plan->n_copied && p->st == DEFT_OK; i++)
        if (!df_vec_push(p->mem, &p->copied, plan->copied[i]))
            p->st = df_fail_mem(p->diag, "fuser", sizeof *plan->copied);
    plan->n_copied = 0; /* the enclosing plan has them */
    p->plan->retreated |= plan->retreated;
    p->plan->n_repeated += plan->n_repeated;
    p->plan->n_staged += plan->n_staged;
    if (plan->n_checked > p->plan->n_checked) p->plan->n_checked = plan->n_checked;
    p->plan->checks_first |= plan->checks_first;
    return p->st;
}
