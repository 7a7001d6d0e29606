/* SPDX-License-Identifier: Apache-2.0
 *
 * Guards on places of views. Views that the simplifier took for one (trace/place.h) must show one
 * place in every run of the plan. Their places are composed again here, as slots instead of
 * numbers. So two windows that move together keep their plan, however they were written.
 */
#include "fuser/fuse.h"

#include <string.h>

/* A term of a place (df_place_terms) is the index of a slot here. */
static df_slot slot_at(int64_t term)
{
    return (df_slot){ (uint32_t)term };
}

static int64_t slot_of_arg(void *user, uint32_t arg)
{
    return df_fuse_arg(user, arg).i;
}

static int64_t slot_of(void *user, df_slot_op op, int64_t a, int64_t b)
{
    const df_slot x = slot_at(a), y = slot_at(b);
    switch (op) {
    case DF_SLOT_add: return df_fuse_add(user, x, y).i;
    case DF_SLOT_sub: return df_fuse_sub(user, x, y).i;
    case DF_SLOT_mul: return df_fuse_mul(user, x, y).i;
    case DF_SLOT_max: return df_fuse_max(user, x, y).i;
    case DF_SLOT_const:
    case DF_SLOT_extent:
    case DF_SLOT_arg:
    case DF_SLOT_stride:
    case DF_SLOT_divup: break;
    }
    df_unreachable();
}

static void must_agree(pass *p, df_slot a, df_slot b)
{
    if (df_same_slot(a, b) || p->st != DEFT_OK) return;
    df_assert(p->now.at[a.i] == p->now.at[b.i]);
    df_fuse_guard_slots(p, DF_GUARD_same_place, a, b);
}

/* Guards that a and b, which differ in this run, differ in the same direction in every run. */
static void must_differ(pass *p, df_slot a, df_slot b)
{
    const df_slot d = df_fuse_sub(p, a, b);
    if (p->st != DEFT_OK) return;
    if (p->now.at[d.i] > 0)
        df_fuse_guard_slot(p, DF_GUARD_at_least, d, 1);
    else
        df_fuse_guard_slot(p, DF_GUARD_at_most, d, -1);
}

/* Where view `node` ends along axis j of its base. */
static df_slot end_of(pass *p, uint32_t node, const df_view_place *at, uint32_t j)
{
    if (at->axis[j] < 0) return df_fuse_add(p, slot_at(at->off[j]), SLOT_ONE);
    return df_fuse_add(p, slot_at(at->off[j]), df_fuse_node_extent(p, node, (uint32_t)at->axis[j]));
}

/* The elements between the two views of a pair that must not overlap. Negative: they overlap. */
static df_slot gap_of(pass *p, const df_same_place *pair, const df_view_place *node,
                      const df_view_place *as)
{
    const uint32_t j = (pair->gap - 1) / 2;
    if (pair->gap % 2) return df_fuse_sub(p, slot_at(as->off[j]), end_of(p, pair->node, node, j));
    return df_fuse_sub(p, slot_at(node->off[j]), end_of(p, pair->as, as, j));
}

/* Calls f for each two slots that must be equal for the pair to hold, until a call returns false.
 * Without a gap, extents and places must be equal. With a gap, both views must have step 1. */
static bool each_two(pass *p, const df_same_place *pair, const df_view_place *a,
                     const df_view_place *b, bool (*f)(pass *p, df_slot a, df_slot b))
{
    const df_node *const x = node_of(p, pair->node);
    if (pair->gap) {
        for (uint32_t j = 0; j < a->rank; j++) {
            if (a->axis[j] >= 0 && !f(p, slot_at(a->coef[j]), SLOT_ONE)) return false;
            if (b->axis[j] >= 0 && !f(p, slot_at(b->coef[j]), SLOT_ONE)) return false;
        }
        return true;
    }
    for (uint32_t i = 0; i < x->rank; i++)
        if (!f(p, df_fuse_node_extent(p, pair->node, i), df_fuse_node_extent(p, pair->as, i)))
            return false;
    if (x->op == DF_OP_reshape || x->op == DF_OP_expand) return true;
    df_assert(a->rank == b->rank && memcmp(a->axis, b->axis, sizeof a->axis) == 0);
    for (uint32_t j = 0; j < a->rank; j++)
        if (!f(p, slot_at(a->off[j]), slot_at(b->off[j])) ||
            !f(p, slot_at(a->coef[j]), slot_at(b->coef[j])))
            return false;
    return true;
}

static bool agree(pass *p, df_slot a, df_slot b)
{
    must_agree(p, a, b);
    return true;
}

static bool unless_they_differ(pass *p, df_slot a, df_slot b)
{
    if (p->st != DEFT_OK || p->now.at[a.i] == p->now.at[b.i]) return true;
    must_differ(p, a, b);
    return false;
}

static void places_of(pass *p, const df_same_place *pair, const uint8_t *is_updated,
                      df_view_place *a, df_view_place *b)
{
    const df_place_terms slots = { slot_of_arg, slot_of, p };
    df_place_of(p->t, pair->node, is_updated, &slots, a);
    df_place_of(p->t, pair->as, is_updated, &slots, b);
}

static void guard_pair(pass *p, const df_same_place *pair, const uint8_t *is_updated)
{
    df_view_place a, b;
    places_of(p, pair, is_updated, &a, &b);
    each_two(p, pair, &a, &b, agree);
    if (pair->gap) df_fuse_guard_slot(p, DF_GUARD_at_least, gap_of(p, pair, &a, &b), 0);
}

/* Guards that the pair does not hold. In a run where it holds, a better plan is possible. */
static void guard_lost(pass *p, const df_same_place *pair, const uint8_t *is_updated)
{
    df_view_place a, b;
    places_of(p, pair, is_updated, &a, &b);
    if (each_two(p, pair, &a, &b, unless_they_differ))
        df_fuse_guard_slot(p, DF_GUARD_at_most, gap_of(p, pair, &a, &b), -1);
}

/* Appends the slots and guards of the pass to those of the plan. */
static deft_status append(const pass *p, df_plan *plan)
{
    const uint32_t n = plan->n_slots, n_guards = plan->n_guards;
    df_arena *const a = &plan->arena;
    df_slot_def *const slots =
        df_arena_alloc(a, (n + p->slots.n) * sizeof *slots, _Alignof(df_slot_def));
    df_guard *const guards =
        df_arena_alloc(a, (n_guards + p->guards.n) * sizeof *guards, _Alignof(df_guard));
    if (!slots || !guards) return df_fail_mem(p->diag, "plan", p->slots.n * sizeof *slots);
    if (n) memcpy(slots, plan->slots, n * sizeof *slots);
    if (n_guards) memcpy(guards, plan->guards, n_guards * sizeof *guards);
    for (uint32_t i = 0; i < p->slots.n; i++) {
        slots[n + i] = p->slots.at[i];
        if (slots[n + i].op < DF_SLOT_add) continue;
        slots[n + i].a += n;
        slots[n + i].b += n;
    }
    for (uint32_t i = 0; i < p->guards.n; i++) {
        guards[n_guards + i] = p->guards.at[i];
        const uint32_t n_of = df_guard_n_slots((df_guard_kind)p->guards.at[i].kind);
        if (n_of >= 1) guards[n_guards + i].a += n;
        if (n_of == 2) guards[n_guards + i].b += n;
    }
    plan->slots = slots;
    plan->guards = guards;
    plan->n_slots += (uint32_t)p->slots.n;
    plan->n_guards += (uint32_t)p->guards.n;
    return DEFT_OK;
}

deft_status df_plan_guard_places(df_diag *d, df_plan *plan, const df_trace *t,
                                 const df_places *places, const df_mem *mem)
{
    deft_status st = DEFT_OK;
    uint8_t *is_updated = NULL;
    pass p;
    const uint32_t n_forward = places->n_forward ? places->n_forward : places->n_known_forward;
    const df_same_place *const forward =
        places->n_forward ? places->forward : places->known_forward;
    if (places->n + n_forward == 0) return DEFT_OK;
    memset(&p, 0, sizeof p);
    p.diag = d;
    p.t = t;
    p.mem = mem;
    df_arena_init(&p.tmp, mem);
    plan->same =
        df_arena_copy(&plan->arena, places->pair, places->n * sizeof *plan->same, sizeof(uint32_t));
    plan->forward =
        df_arena_copy(&plan->arena, forward, n_forward * sizeof *forward, sizeof(uint32_t));
    is_updated = df_arena_zalloc(&p.tmp, t->n_nodes + 1u, 1);
    if (!plan->same || !plan->forward || !is_updated) TRY(df_fail_mem(d, "plan", t->n_nodes));
    plan->n_same = places->n;
    plan->n_forward = n_forward;
    df_place_find_updated(t, is_updated);
    if (!df_fuse_slots_init(&p)) TRY(p.st);
    for (uint32_t i = 0; i < places->n; i++) guard_pair(&p, &places->pair[i], is_updated);
    for (uint32_t i = 0; i < places->n_forward; i++)
        guard_pair(&p, &places->forward[i], is_updated);
    if (places->lost != DF_NONE) guard_lost(&p, &forward[places->lost], is_updated);
    TRY(p.st);
    TRY(append(&p, plan));
done:
    df_fuse_end(&p);
    return st;
}
