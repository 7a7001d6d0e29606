/* SPDX-License-Identifier: Apache-2.0
 *
 * Guards as sentences, for people and for tests. A slot is named by the quantity that it reads, an
 * argument by its operator. A computed slot is printed as a formula, which is shortened when it is
 * long. Addresses are never printed.
 */
#include "guards/guard.h"
#include "ops/op.h"

#include <inttypes.h>

static const struct {
    const char *name, *reason;
} kinds[DF_N_GUARDS] = {
#define DF_X(id, why) [DF_GUARD_##id] = { #id, why },
    DF_GUARDS(DF_X)
#undef DF_X
};

static const char *sign_of(const df_slot_def *s)
{
    switch ((df_slot_op)s->op) {
    case DF_SLOT_add: return " + ";
    case DF_SLOT_sub: return " - ";
    case DF_SLOT_mul: return " * ";
    case DF_SLOT_max: return " max ";
    case DF_SLOT_divup: return " divup ";
    case DF_SLOT_const:
    case DF_SLOT_extent:
    case DF_SLOT_arg:
    case DF_SLOT_stride: break;
    }
    return NULL;
}

/* Uses an explicit stack, because slots may nest to any depth. After MOST_OPERATORS operations,
 * each further one is printed as "...". */
void df_slot_print(df_str *out, const df_slot_def *defs, uint32_t slot, bool spaces,
                   void (*put_leaf)(df_str *out, const df_slot_def *s, const df_trace *t),
                   const df_trace *t)
{
    enum { MOST_OPERATORS = 32 };
    struct {
        uint32_t slot;
        uint8_t at; /* number of operands that are printed */
    } stack[MOST_OPERATORS + 1];
    uint32_t n = 0, n_left = MOST_OPERATORS;
    stack[n].slot = slot;
    stack[n++].at = 0;
    while (n > 0) {
        const df_slot_def *const d = &defs[stack[n - 1].slot];
        const char *const sign = sign_of(d);
        const uint8_t at = stack[n - 1].at++;
        if (!sign) {
            put_leaf(out, d, t);
            n--;
        } else if (at == 0 && n_left == 0) {
            df_str_put(out, "...");
            n--;
        } else if (at == 2) {
            if (n > 1 || spaces) df_str_putc(out, ')');
            n--;
        } else {
            if (at == 0 && (n > 1 || spaces)) df_str_putc(out, '(');
            if (at == 1 && (spaces || d->op == DF_SLOT_max))
                df_str_put(out, sign);
            else if (at == 1 && d->op == DF_SLOT_divup)
                df_str_put(out, "/^");
            else if (at == 1)
                df_str_putc(out, sign[1]);
            n_left -= at == 0;
            stack[n].slot = at == 0 ? d->a : d->b;
            stack[n++].at = 0;
        }
    }
}

/* The name of an argument by its operator, or its number when t is NULL. */
static void put_arg(df_str *out, uint32_t arg, const df_trace *t)
{
    for (uint32_t n = 0; t && n < t->n_nodes; n++) {
        const df_node *const x = &t->nodes[n];
        const uint32_t k = arg - x->arg;
        const char *const op = df_op_infos[x->op].name;
        if (arg < x->arg) continue;
        switch (x->op) {
        case DF_OP_slice:
            if (k >= 2u * x->rank) continue;
            df_str_fmt(out, "%%%" PRIu32 " %s %s[%" PRIu32 "]", n, op, k % 2 ? "step" : "start",
                       k / 2);
            return;
        case DF_OP_random:
            if (k >= 2) continue;
            df_str_fmt(out, "%%%" PRIu32 " %s %s", n, op, k ? "draw" : "seed");
            return;
        case DF_OP_num:
        case DF_OP_diagonal:
            if (k > 0) continue;
            df_str_fmt(out, "%%%" PRIu32 " %s %s", n, op, x->op == DF_OP_num ? "value" : "offset");
            return;
        }
    }
    df_str_fmt(out, "argument %" PRIu32, arg);
}

static void put_leaf(df_str *out, const df_slot_def *s, const df_trace *t)
{
    switch ((df_slot_op)s->op) {
    case DF_SLOT_const: df_str_fmt(out, "%" PRId64, s->imm); return;
    case DF_SLOT_extent: df_str_fmt(out, "%%%" PRIu32 " axis %" PRIu32, s->a, s->b); return;
    case DF_SLOT_arg: put_arg(out, s->a, t); return;
    case DF_SLOT_stride: df_str_fmt(out, "input %" PRIu32 " stride %" PRIu32, s->a, s->b); return;
    case DF_SLOT_add:
    case DF_SLOT_sub:
    case DF_SLOT_mul:
    case DF_SLOT_max:
    case DF_SLOT_divup: return;
    }
}

static void put_slot(df_str *out, const df_slot_def *defs, uint32_t slot, const df_trace *t)
{
    df_slot_print(out, defs, slot, true, put_leaf, t);
}

static const char *need_of(bool sole)
{
    return sole ? "not needed after the run" : "needed after the run";
}

/* Appends the guard without values of a run. */
static void put_guard(df_str *out, const df_guard *g, const df_slot_def *defs, const df_trace *t)
{
    const char *const not = g->want ? "" : "not ";
    df_str_fmt(out, "%s: ", kinds[g->kind].name);
    switch ((df_guard_kind)g->kind) {
    case DF_GUARD_equal:
    case DF_GUARD_same_place:
    case DF_GUARD_same_bound:
        put_slot(out, defs, g->a, t);
        df_str_put(out, " == ");
        put_slot(out, defs, g->b, t);
        break;
    case DF_GUARD_is_const:
    case DF_GUARD_at_least:
    case DF_GUARD_at_most:
        put_slot(out, defs, g->a, t);
        df_str_fmt(out, " %s %" PRId64,
                   g->kind == DF_GUARD_is_const   ? "=="
                   : g->kind == DF_GUARD_at_least ? ">="
                                                  : "<=",
                   g->want);
        break;
    case DF_GUARD_contiguous: df_str_fmt(out, "input %" PRIu32 " %scontiguous", g->a, not ); break;
    case DF_GUARD_aligned: df_str_fmt(out, "input %" PRIu32 " %saligned", g->a, not ); break;
    case DF_GUARD_unit:
        df_str_fmt(out, "input %" PRIu32 " stride %" PRIu32 " %s 1", g->a, g->b,
                   g->want ? "==" : "!=");
        break;
    case DF_GUARD_disjoint:
        df_str_fmt(out, "input %" PRIu32 " and input %" PRIu32, g->a, g->b);
        break;
    case DF_GUARD_sole: df_str_fmt(out, "input %" PRIu32 " %s", g->a, need_of(g->want != 0)); break;
    case DF_N_GUARDS: df_unreachable();
    }
}

static void put_found(df_str *out, const df_slot_def *defs, uint32_t slot, const int64_t *slots,
                      const df_trace *t)
{
    put_slot(out, defs, slot, t);
    df_str_fmt(out, " is %" PRId64, slots[slot]);
}

static void put_wanted(df_str *out, const df_guard *g, const df_slot_def *defs,
                       const int64_t *slots, const char *how, const df_trace *t)
{
    put_found(out, defs, g->a, slots, t);
    df_str_fmt(out, ", wanted %s%" PRId64, how, g->want);
}

static void put_flag(df_str *out, const df_guard *g, const df_trace *t, const char *what,
                     uint32_t flag)
{
    const bool found = (t->inputs[g->a].flags & flag) != 0;
    df_str_fmt(out, "input %" PRIu32 " is %s%s, wanted %s%s", g->a, found ? "" : "not ", what,
               g->want ? "" : "not ", what);
}

void df_guard_explain(df_str *out, const df_guard *g, const df_trace *t, const df_slot_def *defs,
                      const int64_t *slots)
{
    df_str_fmt(out, "%s: %s: ", kinds[g->kind].name, kinds[g->kind].reason);
    switch ((df_guard_kind)g->kind) {
    case DF_GUARD_equal:
    case DF_GUARD_same_place:
    case DF_GUARD_same_bound:
        put_found(out, defs, g->a, slots, t);
        df_str_put(out, ", ");
        put_found(out, defs, g->b, slots, t);
        break;
    case DF_GUARD_is_const: put_wanted(out, g, defs, slots, "", t); break;
    case DF_GUARD_at_least: put_wanted(out, g, defs, slots, "at least ", t); break;
    case DF_GUARD_at_most: put_wanted(out, g, defs, slots, "at most ", t); break;
    case DF_GUARD_contiguous: put_flag(out, g, t, "contiguous", DF_INPUT_CONTIGUOUS); break;
    case DF_GUARD_aligned: put_flag(out, g, t, "aligned", DF_INPUT_ALIGNED); break;
    case DF_GUARD_unit:
        df_str_fmt(out, "input %" PRIu32 " stride %" PRIu32 " is %" PRId64 ", wanted %s1", g->a,
                   g->b, t->inputs[g->a].stride[g->b], g->want ? "" : "other than ");
        break;
    case DF_GUARD_disjoint: {
        int64_t low, bytes[2] = { 0, 0 };
        (void)df_input_reach(t, g->a, &low, &bytes[0]);
        (void)df_input_reach(t, g->b, &low, &bytes[1]);
        df_str_fmt(out,
                   "input %" PRIu32 " spans %" PRId64 " bytes, input %" PRIu32 " spans %" PRId64,
                   g->a, bytes[0], g->b, bytes[1]);
        break;
    }
    case DF_GUARD_sole:
        df_str_fmt(out, "input %" PRIu32 " is %s, wanted one that is %s", g->a,
                   need_of((t->inputs[g->a].flags & DF_INPUT_SOLE) != 0), need_of(g->want != 0));
        break;
    case DF_N_GUARDS: df_unreachable();
    }
}

static void flag_parts(const df_guard *g, const df_trace *t, const char *what, uint32_t flag,
                       df_str *field, df_str *expected, df_str *found)
{
    const bool is = (t->inputs[g->a].flags & flag) != 0;
    df_str_fmt(field, "input %" PRIu32, g->a);
    df_str_fmt(expected, "%s%s", g->want ? "" : "not ", what);
    df_str_fmt(found, "%s%s", is ? "" : "not ", what);
}

static void disjoint_parts(const df_guard *g, const df_trace *t, df_str *field, df_str *expected,
                           df_str *found)
{
    int64_t low, bytes[2] = { 0, 0 };
    (void)df_input_reach(t, g->a, &low, &bytes[0]);
    (void)df_input_reach(t, g->b, &low, &bytes[1]);
    df_str_fmt(field, "input %" PRIu32 " and input %" PRIu32, g->a, g->b);
    df_str_put(expected, "memory that does not overlap");
    df_str_fmt(found, "%" PRId64 " and %" PRId64 " bytes that do", bytes[0], bytes[1]);
}

void df_guard_parts(const df_guard *g, const df_trace *t, const df_slot_def *defs,
                    const int64_t *slots, const char **kind, df_str *field, df_str *expected,
                    df_str *found)
{
    *kind = kinds[g->kind].name;
    switch ((df_guard_kind)g->kind) {
    case DF_GUARD_equal:
    case DF_GUARD_same_place:
    case DF_GUARD_same_bound:
        put_slot(field, defs, g->a, t);
        put_slot(expected, defs, g->b, t);
        df_str_fmt(expected, " = %" PRId64, slots[g->b]);
        df_str_fmt(found, "%" PRId64, slots[g->a]);
        return;
    case DF_GUARD_is_const:
    case DF_GUARD_at_least:
    case DF_GUARD_at_most:
        put_slot(field, defs, g->a, t);
        df_str_fmt(expected, "%s%" PRId64,
                   g->kind == DF_GUARD_is_const   ? ""
                   : g->kind == DF_GUARD_at_least ? "at least "
                                                  : "at most ",
                   g->want);
        df_str_fmt(found, "%" PRId64, slots[g->a]);
        return;
    case DF_GUARD_contiguous:
        flag_parts(g, t, "contiguous", DF_INPUT_CONTIGUOUS, field, expected, found);
        return;
    case DF_GUARD_aligned:
        flag_parts(g, t, "aligned", DF_INPUT_ALIGNED, field, expected, found);
        return;
    case DF_GUARD_unit:
        df_str_fmt(field, "input %" PRIu32 " stride %" PRIu32, g->a, g->b);
        df_str_put(expected, g->want ? "1" : "other than 1");
        df_str_fmt(found, "%" PRId64, t->inputs[g->a].stride[g->b]);
        return;
    case DF_GUARD_disjoint: disjoint_parts(g, t, field, expected, found); return;
    case DF_GUARD_sole:
        df_str_fmt(field, "input %" PRIu32, g->a);
        df_str_put(expected, need_of(g->want != 0));
        df_str_put(found, need_of((t->inputs[g->a].flags & DF_INPUT_SOLE) != 0));
        return;
    case DF_N_GUARDS: df_unreachable();
    }
}

void df_guard_print(df_str *out, const df_guard *g, uint32_t n, const df_slot_def *defs,
                    const df_trace *t)
{
    for (uint32_t i = 0; i < n; i++) {
        put_guard(out, &g[i], defs, t);
        df_str_putc(out, '\n');
    }
}
