/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots, guards and reasons. They are hash-consed: equal expressions have one number. Axis merging
 * relies on that: two strides are equal exactly when their slots are. So a product is kept in one
 * form, however it was built: the constant first, then the other factors in rising order.
 */
#include "fuser/fuse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_FACTORS 32

/* ---- hash index ---- */

void df_table_clear(table *t)
{
    t->epoch++;
    t->n = 0;
}

void df_table_finish(table *t, const df_mem *mem)
{
    df_mem_free(mem, t->at, t->cap * sizeof *t->at);
    *t = (table){ 0 };
}

static void table_put(table *t, uint64_t hash, uint32_t value)
{
    uint32_t i = (uint32_t)hash & (t->cap - 1);
    while (t->at[i].epoch == t->epoch) i = (i + 1) & (t->cap - 1);
    t->at[i] = (table_entry){ hash, value, t->epoch };
}

bool df_table_add(table *t, const df_mem *mem, uint64_t hash, uint32_t value)
{
    if (2 * (t->n + 1) > t->cap) {
        const table old = *t;
        const uint32_t cap = old.cap ? old.cap * 2 : 64;
        table_entry *const at = df_mem_zalloc(mem, cap * sizeof *at);
        if (!at) return false;
        *t = (table){ .at = at, .cap = cap, .n = old.n, .epoch = old.epoch ? old.epoch : 1 };
        for (uint32_t i = 0; i < old.cap; i++)
            if (old.at[i].epoch == old.epoch) table_put(t, old.at[i].hash, old.at[i].value);
        if (old.at) df_mem_free(mem, old.at, old.cap * sizeof *old.at);
    }
    table_put(t, hash, value);
    t->n++;
    return true;
}

uint32_t df_table_next(const table *t, uint64_t hash, uint32_t *pos)
{
    if (t->cap == 0) return DF_NONE;
    uint32_t i = *pos == UINT32_MAX ? (uint32_t)hash & (t->cap - 1) : (*pos + 1) & (t->cap - 1);
    for (; t->at[i].epoch == t->epoch; i = (i + 1) & (t->cap - 1)) {
        if (t->at[i].hash != hash) continue;
        *pos = i;
        return t->at[i].value;
    }
    return DF_NONE;
}

/* ---- slots ---- */

/* The value of an operation. Overflow wraps. */
static int64_t slot_apply_op(df_slot_op op, int64_t a, int64_t b)
{
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;
    switch (op) {
    case DF_SLOT_add: return (int64_t)(x + y);
    case DF_SLOT_sub: return (int64_t)(x - y);
    case DF_SLOT_mul: return (int64_t)(x * y);
    case DF_SLOT_max: return a > b ? a : b;
    case DF_SLOT_divup: return b > 0 ? a / b + (a % b > 0) : 0;
    case DF_SLOT_const:
    case DF_SLOT_extent:
    case DF_SLOT_arg:
    case DF_SLOT_stride: break;
    }
    df_unreachable();
}

/* The value of a slot on the current trace. */
static int64_t slot_now(const pass *p, const df_slot_def *s)
{
    switch ((df_slot_op)s->op) {
    case DF_SLOT_const: return s->imm;
    case DF_SLOT_extent: return df_trace_extents(p->t, s->a)[s->b];
    case DF_SLOT_arg: return p->t->args[s->a];
    case DF_SLOT_stride: return p->t->inputs[s->a].stride[s->b];
    case DF_SLOT_add:
    case DF_SLOT_sub:
    case DF_SLOT_mul:
    case DF_SLOT_max:
    case DF_SLOT_divup: break;
    }
    return slot_apply_op((df_slot_op)s->op, p->now.at[s->a], p->now.at[s->b]);
}

/* The slot with this definition, which is added if it is new. */
static df_slot slot_intern(pass *p, df_slot_op op, uint32_t a, uint32_t b, int64_t imm)
{
    if (p->st != DEFT_OK) return SLOT_ZERO;
    const df_slot_def s = { .op = op, .a = a, .b = b, .imm = imm };
    uint64_t h = df_mix(df_mix(df_mix(op, a), b), (uint64_t)imm);
    h ^= h >> 32;
    uint32_t pos = UINT32_MAX;
    df_slot i;
    while (i.i = df_table_next(&p->slot_index, h, &pos), !IS_NONE(i))
        if (memcmp(&p->slots.at[i.i], &s, sizeof s) == 0) return i;
    i.i = (uint32_t)p->slots.n;
    if (!df_vec_push(p->mem, &p->slots, s) || !df_vec_push(p->mem, &p->now, slot_now(p, &s)) ||
        !df_table_add(&p->slot_index, p->mem, h, i.i)) {
        p->st = df_fail_mem(p->diag, "fuser", sizeof s);
        return SLOT_ZERO;
    }
    return i;
}

void df_fuse_put_slot(pass *p, df_slot_def s)
{
    if (p->st != DEFT_OK) return;
    if (!df_vec_push(p->mem, &p->slots, s) || !df_vec_push(p->mem, &p->now, slot_now(p, &s)))
        p->st = df_fail_mem(p->diag, "fuser", sizeof s);
}

bool df_fuse_slots_init(pass *p)
{
    const df_slot zero = df_fuse_const(p, 0), one = df_fuse_const(p, 1);
    return p->st == DEFT_OK && df_same_slot(zero, SLOT_ZERO) && df_same_slot(one, SLOT_ONE);
}

df_slot df_fuse_const(pass *p, int64_t v)
{
    return slot_intern(p, DF_SLOT_const, 0, 0, v);
}

df_slot df_fuse_node_extent(pass *p, uint32_t node, uint32_t axis)
{
    return slot_intern(p, DF_SLOT_extent, node, axis, 0);
}

df_slot df_fuse_arg(pass *p, uint32_t arg)
{
    return slot_intern(p, DF_SLOT_arg, arg, 0, 0);
}

df_slot df_fuse_stride(pass *p, uint32_t input, uint32_t axis)
{
    return slot_intern(p, DF_SLOT_stride, input, axis, 0);
}

static bool is_const(const pass *p, df_slot s)
{
    return p->st == DEFT_OK && p->slots.at[s.i].op == DF_SLOT_const;
}

/* The slot of a commutative operation, with the operands in rising order. */
static df_slot commute(pass *p, df_slot_op op, df_slot a, df_slot b)
{
    return a.i < b.i ? slot_intern(p, op, a.i, b.i, 0) : slot_intern(p, op, b.i, a.i, 0);
}

df_slot df_fuse_add(pass *p, df_slot a, df_slot b)
{
    if (df_same_slot(a, SLOT_ZERO)) return b;
    if (df_same_slot(b, SLOT_ZERO)) return a;
    if (is_const(p, a) && is_const(p, b))
        return df_fuse_const(p, slot_apply_op(DF_SLOT_add, p->now.at[a.i], p->now.at[b.i]));
    return commute(p, DF_SLOT_add, a, b);
}

df_slot df_fuse_sub(pass *p, df_slot a, df_slot b)
{
    if (df_same_slot(b, SLOT_ZERO)) return a;
    if (df_same_slot(a, b)) return SLOT_ZERO;
    if (is_const(p, a) && is_const(p, b))
        return df_fuse_const(p, slot_apply_op(DF_SLOT_sub, p->now.at[a.i], p->now.at[b.i]));
    return slot_intern(p, DF_SLOT_sub, a.i, b.i, 0);
}

df_slot df_fuse_round_up(pass *p, df_slot a, int64_t unit)
{
    if (is_const(p, a)) return df_fuse_const(p, (p->now.at[a.i] + unit - 1) / unit * unit);
    const df_slot by = df_fuse_const(p, unit);
    return df_fuse_mul(p, slot_intern(p, DF_SLOT_divup, a.i, by.i, 0), by);
}

df_slot df_fuse_max(pass *p, df_slot a, df_slot b)
{
    if (df_same_slot(a, b)) return a;
    if (is_const(p, a) && is_const(p, b))
        return df_fuse_const(p, slot_apply_op(DF_SLOT_max, p->now.at[a.i], p->now.at[b.i]));
    return commute(p, DF_SLOT_max, a, b);
}

/* Divides a product into its factors: appends the slots to out and multiplies *k by the constants.
 * Returns the new number of slots; MAX_FACTORS + 1: too many. Products are left-deep chains, so
 * this needs no stack. */
static uint32_t factors(const pass *p, df_slot s, df_slot out[MAX_FACTORS], uint32_t n, int64_t *k)
{
    for (;;) {
        const df_slot_def *const d = &p->slots.at[s.i];
        df_slot last = s;
        bool more = false;
        if (d->op == DF_SLOT_mul) {
            last.i = d->b;
            s.i = d->a;
            more = true;
        }
        if (is_const(p, last))
            *k = slot_apply_op(DF_SLOT_mul, *k, p->now.at[last.i]);
        else if (n < MAX_FACTORS)
            out[n++] = last;
        else
            return MAX_FACTORS + 1;
        if (!more) return n;
    }
}

df_slot df_fuse_mul(pass *p, df_slot a, df_slot b)
{
    if (df_same_slot(a, SLOT_ZERO) || df_same_slot(b, SLOT_ZERO)) return SLOT_ZERO;
    if (df_same_slot(a, SLOT_ONE)) return b;
    if (df_same_slot(b, SLOT_ONE)) return a;
    if (p->st != DEFT_OK) return SLOT_ZERO;
    df_slot f[MAX_FACTORS];
    int64_t k = 1;
    uint32_t n = factors(p, a, f, 0, &k);
    if (n <= MAX_FACTORS) n = factors(p, b, f, n, &k);
    if (n > MAX_FACTORS) return commute(p, DF_SLOT_mul, a, b);
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t j = i; j > 0 && f[j].i < f[j - 1].i; j--) {
            const df_slot x = f[j];
            f[j] = f[j - 1];
            f[j - 1] = x;
        }
    df_slot s = k == 1 && n > 0 ? f[0] : df_fuse_const(p, k);
    for (uint32_t i = k == 1 && n > 0 ? 1 : 0; i < n; i++)
        s = slot_intern(p, DF_SLOT_mul, s.i, f[i].i, 0);
    return s;
}

/* ---- guards and reasons ---- */

void df_fuse_guard(pass *p, df_guard g)
{
    if (p->st != DEFT_OK) return;
    const uint64_t h = df_mix(df_mix(df_mix(g.kind, g.a), g.b), (uint64_t)g.want);
    uint32_t pos = UINT32_MAX, i;
    while ((i = df_table_next(&p->guard_index, h, &pos)) != DF_NONE)
        if (memcmp(&p->guards.at[i], &g, sizeof g) == 0) return;
    i = (uint32_t)p->guards.n;
    if (!df_vec_push(p->mem, &p->guards, g) || !df_table_add(&p->guard_index, p->mem, h, i))
        p->st = df_fail_mem(p->diag, "fuser", sizeof g);
}

void df_fuse_guard_slots(pass *p, df_guard_kind kind, df_slot a, df_slot b)
{
    df_assert(df_guard_n_slots(kind) == 2);
    df_fuse_guard(p, (df_guard){ .kind = kind, .a = a.i, .b = b.i });
}

void df_fuse_guard_slot(pass *p, df_guard_kind kind, df_slot a, int64_t want)
{
    df_assert(df_guard_n_slots(kind) == 1);
    df_fuse_guard(p, (df_guard){ .kind = kind, .a = a.i, .want = want });
}

void df_fuse_guard_input(pass *p, df_guard_kind kind, uint32_t input, uint32_t other, int64_t want)
{
    df_assert(df_guard_n_slots(kind) == 0);
    df_fuse_guard(p, (df_guard){ .kind = kind, .a = input, .b = other, .want = want });
}

const char *df_fuse_name(const pass *p, uint32_t node)
{
    return df_op_infos[node_of(p, node)->op].name;
}

/* The reason that is noted for this pair, or NULL. */
static df_why *known_why(pass *p, uint64_t hash, uint32_t a, uint32_t b)
{
    uint32_t pos = UINT32_MAX, i;
    while ((i = df_table_next(&p->why_index, hash, &pos)) != DF_NONE)
        if (p->whys.at[i].a == a && p->whys.at[i].b == b) return &p->whys.at[i];
    return NULL;
}

void df_fuse_why(pass *p, uint32_t a, uint32_t b, const char *what, const char *fmt, ...)
{
    if (!p->lim->keep_why || p->st != DEFT_OK) return;
    uint64_t hash = df_mix(df_mix(0, a), b);
    hash ^= hash >> 32;
    df_why *const old = known_why(p, hash, a, b);
    if (old && strcmp(old->what, what) == 0) return;
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const df_why w = { a, b, what, df_arena_strdup(&p->plan->arena, text) };
    if (old)
        *old = w;
    else if (!df_table_add(&p->why_index, p->mem, hash, (uint32_t)p->whys.n) ||
             !df_vec_push(p->mem, &p->whys, w))
        p->st = df_fail_mem(p->diag, "fuser", sizeof w);
    if (!w.reason) p->st = df_fail_mem(p->diag, "fuser", sizeof text);
}
