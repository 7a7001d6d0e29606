/* SPDX-License-Identifier: Apache-2.0
 *
 * Guards as sentences, for people and for tests. A slot is named by what it reads; one that is
 * computed is spelled out one level deep, with the slots below it by number: expressions are as
 * deep as a plan makes them, and this does not recurse. Addresses are never printed.
 */
#include "guards/guard.h"

#include <inttypes.h>

static const struct {
    const char *name, *reason;
} kinds[DF_N_GUARDS] = {
#define DF_X(id, why) [DF_GUARD_##id] = { #id, why },
    DF_GUARDS(DF_X)
#undef DF_X
};

/* Reads something rather than being computed. */
static bool put_leaf(df_str *out, const df_slot_def *s)
{
    switch ((df_slot_op)s->op) {
    case DF_SLOT_const: df_str_fmt(out, "%" PRId64, s->imm); return true;
    case DF_SLOT_extent: df_str_fmt(out, "%%%" PRIu32 " axis %" PRIu32, s->a, s->b); return true;
    case DF_SLOT_arg: df_str_fmt(out, "argument %" PRIu32, s->a); return true;
    case DF_SLOT_stride:
        df_str_fmt(out, "input %" PRIu32 " stride %" PRIu32, s->a, s->b);
        return true;
    case DF_SLOT_add:
    case DF_SLOT_sub:
    case DF_SLOT_mul:
    case DF_SLOT_max:
    case DF_SLOT_divup: break;
    }
    return false;
}

static void put_operand(df_str *out, const df_slot_def *defs, uint32_t slot)
{
    if (!put_leaf(out, &defs[slot])) df_str_fmt(out, "slot %" PRIu32, slot);
}

static void put_slot(df_str *out, const df_slot_def *defs, uint32_t slot)
{
    static const char *const signs[] = { [DF_SLOT_add] = " + ",
                                         [DF_SLOT_sub] = " - ",
                                         [DF_SLOT_mul] = " * ",
                                         [DF_SLOT_max] = " max ",
                                         [DF_SLOT_divup] = " divup " };
    const df_slot_def *const s = &defs[slot];
    if (put_leaf(out, s)) return;
    df_str_putc(out, '(');
    put_operand(out, defs, s->a);
    df_str_put(out, signs[s->op]);
    put_operand(out, defs, s->b);
    df_str_putc(out, ')');
}

/* The guard without values of a run. */
static void put_guard(df_str *out, const df_guard *g, const df_slot_def *defs)
{
    const char *const not = g->want ? "" : "not ";
    df_str_fmt(out, "%s: ", kinds[g->kind].name);
    switch ((df_guard_kind)g->kind) {
    case DF_GUARD_equal:
        put_slot(out, defs, g->a);
        df_str_put(out, " == ");
        put_slot(out, defs, g->b);
        break;
    case DF_GUARD_is_const:
    case DF_GUARD_at_least:
    case DF_GUARD_at_most:
        put_slot(out, defs, g->a);
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
    case DF_N_GUARDS: df_unreachable();
    }
}

static void put_found(df_str *out, const df_slot_def *defs, uint32_t slot, const int64_t *slots)
{
    put_slot(out, defs, slot);
    df_str_fmt(out, " is %" PRId64, slots[slot]);
}

static void put_wanted(df_str *out, const df_guard *g, const df_slot_def *defs,
                       const int64_t *slots, const char *how)
{
    put_found(out, defs, g->a, slots);
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
        put_found(out, defs, g->a, slots);
        df_str_put(out, ", ");
        put_found(out, defs, g->b, slots);
        break;
    case DF_GUARD_is_const: put_wanted(out, g, defs, slots, ""); break;
    case DF_GUARD_at_least: put_wanted(out, g, defs, slots, "at least "); break;
    case DF_GUARD_at_most: put_wanted(out, g, defs, slots, "at most "); break;
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
    case DF_N_GUARDS: df_unreachable();
    }
}

void df_guard_print(df_str *out, const df_guard *g, uint32_t n, const df_slot_def *defs)
{
    for (uint32_t i = 0; i < n; i++) {
        put_guard(out, &g[i], defs);
        df_str_putc(out, '\n');
    }
}
