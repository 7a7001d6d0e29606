/* SPDX-License-Identifier: Apache-2.0
 *
 * Guards: each kind holding and missing, its sentence, and the list without values.
 */
#include <criterion/criterion.h>

#include <string.h>

#include "guards/guard.h"

static df_arena arena;

static void begin(void)
{
    df_arena_init(&arena, &df_mem_system);
}

static void end(void)
{
    df_arena_finish(&arena);
}

TestSuite(guards, .init = begin, .fini = end);

static const df_slot_def defs[] = {
    { DF_SLOT_extent, 0, 0, 0, 0 },                              /* 37 */
    { DF_SLOT_extent, 1, 0, 0, 0 },                              /* 64 */
    { DF_SLOT_const, 0, 0, 0, 64 }, { DF_SLOT_arg, 1, 0, 0, 0 }, /* 1 */
    { DF_SLOT_stride, 0, 1, 0, 0 },                              /* 1 */
    { DF_SLOT_mul, 0, 2, 0, 0 },                                 /* 37 * 64 */
    { DF_SLOT_sub, 5, 1, 0, 0 },
};

static char memory[65536];

/* Input 0: f32[37,8] at memory + 1024, 1184 bytes; input 1: f32[64] backwards, at and below memory
 * + 4096. */
static df_trace *trace(void)
{
    static const char text[] = "%0 = input f32[37,8]\n%1 = input f32[64] strides=[-1]\n"
                               "%2 = input f32[0]\n%3 = slice f32[5] %1 start=[0] step=[1]\n";
    df_trace *t;
    df_diag d = { .text = "" };
    cr_assert(df_trace_parse(&d, text, sizeof text - 1, &arena, &t) == DEFT_OK, "%s", d.text);
    t->inputs[0].data = memory + 1024;
    t->inputs[1].data = memory + 4096;
    t->inputs[2].data = memory + 1028;
    t->inputs[0].flags |= DF_INPUT_ALIGNED;
    return t;
}

static const df_guard *miss(const df_trace *t, df_guard g)
{
    static df_guard kept;
    int64_t slots[DF_LEN(defs)];
    kept = g;
    df_slots_eval(defs, DF_LEN(defs), t, slots);
    return df_guard_first_miss(&kept, 1, t, slots);
}

static void expect_explained(const df_trace *t, df_guard g, const char *sentence)
{
    int64_t slots[DF_LEN(defs)];
    df_str s;
    df_str_init(&s, &df_mem_system);
    cr_assert(miss(t, g), "holds: %s", sentence);
    df_slots_eval(defs, DF_LEN(defs), t, slots);
    df_guard_explain(&s, &g, t, defs, slots);
    cr_assert_str_eq(s.at, sentence);
    df_str_finish(&s);
}

Test(guards, each_kind_holds_and_misses_with_its_numbers)
{
    df_trace *const t = trace();
    cr_assert(!miss(t, (df_guard){ DF_GUARD_equal, 1, 2, 0, 0 }));
    expect_explained(t, (df_guard){ DF_GUARD_equal, 0, 1, 0, 0 },
                     "equal: extents that met in one op differ: %0 axis 0 is 37, %1 axis 0 is 64");
    cr_assert(!miss(t, (df_guard){ DF_GUARD_is_const, 0, 0, 0, 37 }));
    expect_explained(t, (df_guard){ DF_GUARD_is_const, 0, 0, 0, 36 },
                     "is_const: an extent taken as a constant changed: %0 axis 0 is 37, wanted 36");
    cr_assert(!miss(t, (df_guard){ DF_GUARD_at_least, 0, 0, 0, 37 }));
    expect_explained(t, (df_guard){ DF_GUARD_at_least, 5, 0, 0, 2369 },
                     "at_least: an extent fell below what the plan needs: (%0 axis 0 * 64) is "
                     "2368, wanted at least 2369");
    cr_assert(!miss(t, (df_guard){ DF_GUARD_at_most, 3, 0, 0, 1 }));
    expect_explained(
        t, (df_guard){ DF_GUARD_at_most, 6, 0, 0, 0 },
        "at_most: an extent outgrew what the plan allows: ((%0 axis 0 * 64) - %1 axis 0) "
        "is 2304, wanted at most 0");
    cr_assert(!miss(t, (df_guard){ DF_GUARD_contiguous, 0, 0, 0, 1 }));
    cr_assert(!miss(t, (df_guard){ DF_GUARD_contiguous, 1, 0, 0, 0 }));
    expect_explained(t, (df_guard){ DF_GUARD_contiguous, 1, 0, 0, 1 },
                     "contiguous: an input is no longer contiguous: input 1 is not contiguous, "
                     "wanted contiguous");
    cr_assert(!miss(t, (df_guard){ DF_GUARD_aligned, 0, 0, 0, 1 }));
    expect_explained(
        t, (df_guard){ DF_GUARD_aligned, 0, 0, 0, 0 },
        "aligned: an input's alignment changed: input 0 is aligned, wanted not aligned");
    cr_assert(!miss(t, (df_guard){ DF_GUARD_unit, 0, 1, 0, 1 }));
    cr_assert(!miss(t, (df_guard){ DF_GUARD_unit, 0, 0, 0, 0 }));
    expect_explained(
        t, (df_guard){ DF_GUARD_unit, 1, 0, 0, 1 },
        "unit: an input's innermost stride changed class: input 1 stride 0 is -1, wanted 1");
    expect_explained(t, (df_guard){ DF_GUARD_unit, 0, 1, 0, 0 },
                     "unit: an input's innermost stride changed class: input 0 stride 1 is 1, "
                     "wanted other than 1");
    cr_assert(!miss(t, (df_guard){ DF_GUARD_sole, 0, 0, 0, 0 }));
    t->inputs[0].flags |= DF_INPUT_SOLE;
    cr_assert(!miss(t, (df_guard){ DF_GUARD_sole, 0, 0, 0, 1 }));
    expect_explained(t, (df_guard){ DF_GUARD_sole, 0, 0, 0, 0 },
                     "sole: whether an input is needed after the run changed: input 0 is not "
                     "needed after the run, wanted one that is needed after the run");
    expect_explained(t, (df_guard){ DF_GUARD_sole, 1, 0, 0, 1 },
                     "sole: whether an input is needed after the run changed: input 1 is needed "
                     "after the run, wanted one that is not needed after the run");

    /* The first miss of many is the one that is told. */
    const df_guard many[] = { { DF_GUARD_equal, 1, 2, 0, 0 },
                              { DF_GUARD_is_const, 0, 0, 0, 1 },
                              { DF_GUARD_is_const, 0, 0, 0, 2 } };
    int64_t slots[DF_LEN(defs)];
    df_slots_eval(defs, DF_LEN(defs), t, slots);
    cr_assert(df_guard_first_miss(many, 3, t, slots) == &many[1]);
    cr_assert(df_guard_first_miss(many, 1, t, slots) == NULL);
    cr_assert(df_guard_first_miss(NULL, 0, t, slots) == NULL);
}

static void expect_parts(const df_trace *t, df_guard g, const char *kind, const char *field,
                         const char *expected, const char *found)
{
    int64_t slots[DF_LEN(defs)];
    df_str s[3];
    const char *k = NULL;
    for (int i = 0; i < 3; i++) df_str_init(&s[i], &df_mem_system);
    df_slots_eval(defs, DF_LEN(defs), t, slots);
    df_guard_parts(&g, t, defs, slots, &k, &s[0], &s[1], &s[2]);
    cr_assert_str_eq(k, kind);
    cr_assert_str_eq(s[0].at, field);
    cr_assert_str_eq(s[1].at, expected);
    cr_assert_str_eq(s[2].at, found);
    for (int i = 0; i < 3; i++) df_str_finish(&s[i]);
}

Test(guards, the_parts_of_a_miss)
{
    df_trace *const t = trace();
    expect_parts(t, (df_guard){ DF_GUARD_equal, 0, 1, 0, 0 }, "equal", "%0 axis 0",
                 "%1 axis 0 = 64", "37");
    expect_parts(t, (df_guard){ DF_GUARD_same_place, 0, 3, 0, 0 }, "same_place", "%0 axis 0",
                 "%3 slice step[0] = 1", "37");
    expect_parts(t, (df_guard){ DF_GUARD_is_const, 0, 0, 0, 36 }, "is_const", "%0 axis 0", "36",
                 "37");
    expect_parts(t, (df_guard){ DF_GUARD_at_least, 5, 0, 0, 2369 }, "at_least", "(%0 axis 0 * 64)",
                 "at least 2369", "2368");
    expect_parts(t, (df_guard){ DF_GUARD_at_most, 0, 0, 0, 36 }, "at_most", "%0 axis 0",
                 "at most 36", "37");
    expect_parts(t, (df_guard){ DF_GUARD_contiguous, 1, 0, 0, 1 }, "contiguous", "input 1",
                 "contiguous", "not contiguous");
    expect_parts(t, (df_guard){ DF_GUARD_aligned, 0, 0, 0, 0 }, "aligned", "input 0", "not aligned",
                 "aligned");
    expect_parts(t, (df_guard){ DF_GUARD_unit, 1, 0, 0, 1 }, "unit", "input 1 stride 0", "1", "-1");
    expect_parts(t, (df_guard){ DF_GUARD_unit, 0, 0, 0, 0 }, "unit", "input 0 stride 0",
                 "other than 1", "8");
    expect_parts(t, (df_guard){ DF_GUARD_sole, 0, 0, 0, 1 }, "sole", "input 0",
                 "not needed after the run", "needed after the run");
    t->inputs[1].data = memory + 1500;
    expect_parts(t, (df_guard){ DF_GUARD_disjoint, 0, 1, 0, 0 }, "disjoint", "input 0 and input 1",
                 "memory that does not overlap", "1184 and 256 bytes that do");
}

/* Of a long formula the first operators are printed, each with both operands. */
Test(guards, long_formulas_are_cut)
{
    enum { N = 100, MOST_OPERATORS = 32 };
    df_slot_def deep[N + 1] = { { DF_SLOT_extent, 0, 0, 0, 0 } }, wide[8] = { deep[0] };
    const df_guard g[] = { { DF_GUARD_is_const, N, 0, 0, 0 }, { DF_GUARD_is_const, 7, 0, 0, 0 } };
    df_trace *const t = trace();
    for (uint32_t i = 1; i <= N; i++) deep[i] = (df_slot_def){ DF_SLOT_add, i - 1, 0, 0, 0 };
    for (uint32_t i = 1; i < 8; i++) wide[i] = (df_slot_def){ DF_SLOT_add, i - 1, i - 1, 0, 0 };
    for (int i = 0; i < 2; i++) {
        int n_open = 0, n_closed = 0, n_signs = 0, n_cut = 0;
        df_str s;
        df_str_init(&s, &df_mem_system);
        df_guard_print(&s, &g[i], 1, i ? wide : deep, t);
        for (const char *c = s.at; *c; c++) {
            n_open += *c == '(';
            n_closed += *c == ')';
            n_signs += *c == '+';
            n_cut += strncmp(c, "...", 3) == 0;
        }
        cr_assert(n_open == MOST_OPERATORS && n_closed == n_open && n_signs == n_open, "%s", s.at);
        cr_assert(i ? n_cut > 1 : n_cut == 1, "%s", s.at);
        df_str_finish(&s);
    }
}

Test(guards, disjoint_knows_strides_that_run_backwards)
{
    const df_guard g = { DF_GUARD_disjoint, 0, 1, 0, 0 }, back = { DF_GUARD_disjoint, 1, 0, 0, 0 };
    df_trace *const t = trace();
    /* Input 1 covers [data - 252, data + 4). */
    const struct {
        int at;
        bool disjoint;
    } rows[] = { { 4096, true },
                 { 1024, false },
                 { 1020, true },
                 { 1021, false },
                 { 1024 + 1184 + 252, true },
                 { 1024 + 1183 + 252, false },
                 { 1500, false } };
    for (size_t i = 0; i < DF_LEN(rows); i++) {
        t->inputs[1].data = memory + rows[i].at;
        cr_assert((miss(t, g) == NULL) == rows[i].disjoint, "%d", rows[i].at);
        cr_assert((miss(t, back) == NULL) == rows[i].disjoint, "%d", rows[i].at);
    }
    t->inputs[1].data = memory + 1500;
    expect_explained(
        t, g, "disjoint: two memory ranges overlap: input 0 spans 1184 bytes, input 1 spans 256");
    /* What is empty overlaps nothing, not even at the same place; a range overlaps itself. */
    cr_assert(!miss(t, (df_guard){ DF_GUARD_disjoint, 0, 2, 0, 0 }));
    cr_assert(miss(t, (df_guard){ DF_GUARD_disjoint, 0, 0, 0, 0 }));
}

Test(guards, the_list_is_stable_and_has_no_values_of_a_run)
{
    static const df_guard all[] = {
        { DF_GUARD_equal, 0, 1, 0, 0 },      { DF_GUARD_is_const, 3, 0, 0, 8 },
        { DF_GUARD_at_least, 5, 0, 0, 1 },   { DF_GUARD_at_most, 6, 0, 0, 2147483647 },
        { DF_GUARD_contiguous, 0, 0, 0, 1 }, { DF_GUARD_aligned, 1, 0, 0, 0 },
        { DF_GUARD_unit, 0, 1, 0, 1 },       { DF_GUARD_unit, 0, 1, 0, 0 },
        { DF_GUARD_disjoint, 0, 1, 0, 0 },   { DF_GUARD_sole, 0, 0, 0, 0 },
        { DF_GUARD_sole, 1, 0, 0, 1 },
    };
    df_str s;
    df_str_init(&s, &df_mem_system);
    df_guard_print(&s, all, DF_LEN(all), defs, trace());
    cr_assert_str_eq(s.at, "equal: %0 axis 0 == %1 axis 0\n"
                           "is_const: %3 slice step[0] == 8\n"
                           "at_least: (%0 axis 0 * 64) >= 1\n"
                           "at_most: ((%0 axis 0 * 64) - %1 axis 0) <= 2147483647\n"
                           "contiguous: input 0 contiguous\n"
                           "aligned: input 1 not aligned\n"
                           "unit: input 0 stride 1 == 1\n"
                           "unit: input 0 stride 1 != 1\n"
                           "disjoint: input 0 and input 1\n"
                           "sole: input 0 needed after the run\n"
                           "sole: input 1 not needed after the run\n");
    df_str_finish(&s);
}
