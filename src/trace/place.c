/* SPDX-License-Identifier: Apache-2.0
 *
 * Places of views: place.h. A place is composed from the view downwards, one view at a time, so
 * that a chain of any length needs no recursion. At most DF_PLACE_MOST_VIEWS views are followed.
 */
#include "trace/place.h"

#include <string.h>

/* ---- composition ---- */

/* Composes one axis. Along axis j, an index of the operand is off + coef * (index of the view along
 * axis `of`), or off alone when of < 0. `at` is the place relative to the view, `to` becomes the
 * place relative to its operand. */
static void drive(df_view_place *to, uint32_t j, const df_view_place *at, int of, int64_t off,
                  int64_t coef, const df_place_terms *s)
{
    const bool driven = of >= 0 && at->axis[of] >= 0;
    int64_t from = off;
    if (of >= 0) {
        const int64_t shift = coef == 1          ? at->off[of]
                              : at->off[of] == 0 ? 0
                                                 : s->op(s->user, DF_SLOT_mul, coef, at->off[of]);
        from = off == 0 ? shift : shift == 0 ? off : s->op(s->user, DF_SLOT_add, off, shift);
    }
    to->axis[j] = (int8_t)(driven ? at->axis[of] : -1);
    to->off[j] = from;
    to->coef[j] = !driven             ? 0
                  : coef == 1         ? at->coef[of]
                  : at->coef[of] == 1 ? coef
                                      : s->op(s->user, DF_SLOT_mul, coef, at->coef[of]);
}

_Static_assert(DF_N_VIEWS == 7, "a new view needs a case in through");

/* Turns a place relative to view x into a place relative to the operand of x. Returns false when x
 * cannot be followed: it is no view, or a reshape or an expand. */
static bool through(const df_trace *t, const df_node *x, const df_place_terms *s, df_view_place *at)
{
    if (df_op_infos[x->op].cls != DF_CLASS_view) return false;
    const df_view_place on = *at;
    const uint32_t rank = t->nodes[x->src[0].i].rank;
    uint32_t next = 0;
    switch (x->op) {
    case DF_OP_slice:
        for (uint32_t j = 0; j < rank; j++)
            drive(at, j, &on, (int)j, s->arg(s->user, x->arg + 2 * j),
                  s->arg(s->user, x->arg + 2 * j + 1), s);
        break;
    case DF_OP_permute:
        for (uint32_t i = 0; i < rank; i++) drive(at, x->attr >> 4 * i & 15, &on, (int)i, 0, 1, s);
        break;
    case DF_OP_squeeze:
        for (uint32_t j = 0; j < rank; j++)
            drive(at, j, &on, x->attr >> j & 1 ? -1 : (int)next++, 0, 1, s);
        break;
    case DF_OP_unsqueeze:
        for (uint32_t i = 0; i < x->rank; i++)
            if (!(x->attr >> i & 1)) drive(at, next++, &on, (int)i, 0, 1, s);
        break;
    case DF_OP_diagonal: {
        const uint32_t a = x->attr & 15, b = x->attr >> 4 & 15;
        const int64_t offset = s->arg(s->user, x->arg);
        for (uint32_t j = 0; j < rank; j++) {
            if (j != a && j != b) {
                drive(at, j, &on, (int)next++, 0, 1, s);
                continue;
            }
            const int64_t way = j == b ? offset : s->op(s->user, DF_SLOT_sub, 0, offset);
            drive(at, j, &on, x->rank - 1, s->op(s->user, DF_SLOT_max, way, 0), 1, s);
        }
        break;
    }
    case DF_OP_reshape:
    case DF_OP_expand: return false;
    }
    at->base = x->src[0].i;
    at->rank = rank;
    return true;
}

void df_place_of(const df_trace *t, uint32_t node, const uint8_t *is_updated,
                 const df_place_terms *terms, df_view_place *out)
{
    memset(out, 0, sizeof *out);
    out->base = node;
    out->rank = t->nodes[node].rank;
    for (uint32_t j = 0; j < DEFT_MAX_RANK; j++) {
        out->axis[j] = (int8_t)(j < out->rank ? (int)j : -1);
        out->coef[j] = j < out->rank;
    }
    for (uint32_t i = 0; i < DF_PLACE_MOST_VIEWS; i++) {
        if (!through(t, &t->nodes[out->base], terms, out)) return;
        for (uint32_t j = out->rank; j < DEFT_MAX_RANK; j++) {
            out->axis[j] = -1;
            out->off[j] = out->coef[j] = 0;
        }
        if (is_updated && is_updated[out->base]) return;
    }
}

void df_place_find_updated(const df_trace *t, uint8_t *is_updated)
{
    for (uint32_t k = 0; k < t->n_nodes; k++)
        if (t->nodes[k].op == DF_OP_update) is_updated[t->nodes[k].src[0].i] = 1;
}

/* ---- the numbers of this run ---- */

static int64_t arg_now(void *user, uint32_t arg)
{
    const df_trace *const t = user;
    return t->args[arg];
}

static int64_t op_now(void *user, df_slot_op op, int64_t a, int64_t b)
{
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;
    (void)user;
    if (op == DF_SLOT_mul) return (int64_t)(x * y);
    if (op == DF_SLOT_max) return a > b ? a : b;
    return (int64_t)(op == DF_SLOT_sub ? x - y : x + y);
}

void df_place_now(const df_trace *t, uint32_t node, const uint8_t *is_updated, df_view_place *out)
{
    df_trace *const user = (df_trace *)(uintptr_t)t; /* arg_now only reads it */
    const df_place_terms now = { arg_now, op_now, user };
    df_place_of(t, node, is_updated, &now, out);
}

/* ---- finding ---- */

deft_status df_place_table_init(df_diag *d, df_place_table *s, const df_trace *t,
                                const uint8_t *is_updated, df_places *places, df_arena *arena)
{
    uint32_t n_views = 0;
    for (uint32_t k = 0; k < t->n_nodes; k++)
        n_views += df_op_infos[t->nodes[k].op].cls == DF_CLASS_view;
    *s = (df_place_table){ .t = t, .is_updated = is_updated, .places = places, .mask = 15 };
    while (s->mask < 2 * n_views) s->mask = 2 * s->mask + 1;
    s->entry = df_arena_new(arena, df_place_entry, n_views + 1u);
    s->index = df_arena_new(arena, uint32_t, s->mask + 1u);
    places->pair = df_arena_new(arena, df_same_place, n_views + 1u);
    places->n = 0;
    if (places->is_bounded) s->first = df_arena_new(arena, uint32_t, t->n_nodes + 1u);
    if (!s->entry || !s->index || !places->pair || (places->is_bounded && !s->first))
        return df_fail_mem(d, "places", n_views * sizeof *s->entry);
    if (places->is_bounded) {
        for (uint32_t k = 0; k < t->n_nodes; k++) s->first[k] = k;
        for (uint32_t i = 0; i < places->n_known; i++) {
            const df_same_place p = places->known[i];
            df_assert(p.as < p.node && p.node < t->n_nodes);
            s->first[p.node] = s->first[p.as];
        }
    }
    return DEFT_OK;
}

static df_place_entry entry_of(const df_place_table *s, uint32_t k, const uint32_t *map)
{
    const df_trace *const t = s->t;
    const df_node *const x = &t->nodes[k];
    df_place_entry e = { .from = k };
    if (x->op == DF_OP_reshape || x->op == DF_OP_expand) {
        e.op = x->op;
        e.place.base = x->src[0].i;
    } else {
        df_place_now(t, k, s->is_updated, &e.place);
    }
    e.place.base = map[e.place.base];
    uint64_t h = df_mix((uint64_t)e.op << 8 | x->rank, e.place.base);
    for (uint32_t j = 0; j < e.place.rank; j++) {
        h = df_mix(h, (uint64_t)e.place.off[j]);
        h = df_mix(h, (uint64_t)e.place.coef[j] << 8 | (uint8_t)e.place.axis[j]);
    }
    for (uint32_t i = 0; i < x->rank; i++) h = df_mix(h, (uint64_t)df_trace_extents(t, k)[i]);
    e.hash = h;
    return e;
}

static bool is_same(const df_place_table *s, const df_place_entry *a, const df_place_entry *b)
{
    const df_trace *const t = s->t;
    const uint32_t rank = t->nodes[a->from].rank;
    const df_view_place *const p = &a->place, *const q = &b->place;
    if (a->hash != b->hash || a->op != b->op || p->base != q->base || p->rank != q->rank ||
        rank != t->nodes[b->from].rank)
        return false;
    if (s->first && s->first[a->from] != s->first[b->from]) return false;
    return memcmp(p->axis, q->axis, sizeof p->axis) == 0 &&
           memcmp(p->off, q->off, sizeof p->off) == 0 &&
           memcmp(p->coef, q->coef, sizeof p->coef) == 0 &&
           memcmp(df_trace_extents(t, a->from), df_trace_extents(t, b->from),
                  rank * sizeof(int64_t)) == 0;
}

uint32_t df_place_find(df_place_table *s, uint32_t k, const uint32_t *map)
{
    const df_place_entry e = entry_of(s, k, map);
    for (uint32_t i = (uint32_t)e.hash & s->mask; s->index[i]; i = (i + 1) & s->mask) {
        const df_place_entry *const known = &s->entry[s->index[i] - 1];
        if (!is_same(s, &e, known)) continue;
        s->places->pair[s->places->n++] = (df_same_place){ k, known->from, 0 };
        return known->node;
    }
    return DF_NONE;
}

void df_place_add(df_place_table *s, uint32_t k, uint32_t copy, const uint32_t *map)
{
    df_place_entry e = entry_of(s, k, map);
    e.node = copy;
    uint32_t i = (uint32_t)e.hash & s->mask;
    while (s->index[i]) i = (i + 1) & s->mask;
    s->entry[s->n++] = e;
    s->index[i] = s->n;
}
