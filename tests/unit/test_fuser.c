/* SPDX-License-Identifier: Apache-2.0
 *
 * The fuser: every plan here is verified, run by the interpreter in several orders, and held bit
 * for bit against an evaluation node by node (support/fuse_check.h). On top of values: how many
 * launches and kernels a program takes, what is donated, which other extents a plan serves and
 * which it must refuse, bounds on bodies, and each allocation failing in turn.
 * Why this file is long: programs as text, and beside each what its plan must be.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size_class.h"
#include "support/fail_mem.h"
#include "support/fuse_check.h"
#include "support/budget.h"

typedef struct want {
    const char *name, *trace;
    uint32_t threads, launches, segs, kernels;
} want;

static fuse_result expect(const want *w)
{
    const fuse_result r = fuse_check(w->trace, w->threads);
    cr_expect(r.ok, "%s: %s", w->name, r.text);
    cr_expect(!r.retreated, "%s: %s", w->name, r.text);
    cr_expect_eq(r.n_launches, w->launches, "%s: %u launches, not %u", w->name, r.n_launches,
                 w->launches);
    cr_expect_eq(r.n_segs, w->segs, "%s: %u segments, not %u", w->name, r.n_segs, w->segs);
    cr_expect_eq(r.n_kernels, w->kernels, "%s: %u kernels, not %u", w->name, r.n_kernels,
                 w->kernels);
    return r;
}

/* ---- programs ---- */

static const char map_bias[] = "%0 = input f32[7,33]\n"
                               "%1 = input f32[33]\n"
                               "%2 = mul f32[7,33] %0 %1\n"
                               "%3 = sigmoid f32[7,33] %2\n"
                               "%4 = num f32[] 0x1p-1\n"
                               "%5 = add f32[7,33] %3 %4\n"
                               "output %5\n";

static const char sum_of_map[] = "%0 = input f32[70,330]\n"
                                 "%1 = exp f32[70,330] %0\n"
                                 "%2 = sum f32[] %1 axes=[0,1]\n"
                                 "output %2\n";

static const char softmax[] = "%0 = input f32[64,300]\n"
                              "%1 = max f32[64,1] %0 axes=[1] keepdims\n"
                              "%2 = sub f32[64,300] %0 %1\n"
                              "%3 = exp f32[64,300] %2\n"
                              "%4 = sum f32[64,1] %3 axes=[1] keepdims\n"
                              "%5 = div f32[64,300] %3 %4\n"
                              "output %5\n";

static const char softmax_columns[] = "%0 = input f32[64,300]\n"
                                      "%1 = max f32[1,300] %0 axes=[0] keepdims\n"
                                      "%2 = sub f32[64,300] %0 %1\n"
                                      "%3 = exp f32[64,300] %2\n"
                                      "%4 = sum f32[1,300] %3 axes=[0] keepdims\n"
                                      "%5 = div f32[64,300] %3 %4\n"
                                      "output %5\n";

static const char layer_norm[] = "%0 = input f32[64,300]\n"
                                 "%1 = input f32[300]\n"
                                 "%2 = input f32[300]\n"
                                 "%3 = sum f32[64,1] %0 axes=[1] keepdims\n"
                                 "%4 = count f32[] %0 axes=[1]\n"
                                 "%5 = div f32[64,1] %3 %4\n"
                                 "%6 = sub f32[64,300] %0 %5\n"
                                 "%7 = square f32[64,300] %6\n"
                                 "%8 = sum f32[64,1] %7 axes=[1] keepdims\n"
                                 "%9 = div f32[64,1] %8 %4\n"
                                 "%10 = num f32[] 0x1p-17\n"
                                 "%11 = add f32[64,1] %9 %10\n"
                                 "%12 = sqrt f32[64,1] %11\n"
                                 "%13 = div f32[64,300] %6 %12\n"
                                 "%14 = mul f32[64,300] %13 %1\n"
                                 "%15 = add f32[64,300] %14 %2\n"
                                 "output %15\n"
                                 "output %5\n"
                                 "output %12\n";

static const char mse[] = "%0 = input f32[5000]\n"
                          "%1 = input f32[5000]\n"
                          "%2 = sub f32[5000] %0 %1\n"
                          "%3 = square f32[5000] %2\n"
                          "%4 = sum f32[] %3 axes=[0]\n"
                          "%5 = count f32[] %2 axes=[0]\n"
                          "%6 = div f32[] %4 %5\n"
                          "output %6\n";

/* The mean over rows reduces another axis than the rows do: a second kernel, after the first. */
static const char cross_entropy[] = "%0 = input f32[32,10]\n"
                                    "%1 = input i64[32]\n"
                                    "%2 = max f32[32,1] %0 axes=[1] keepdims\n"
                                    "%3 = sub f32[32,10] %0 %2\n"
                                    "%4 = exp f32[32,10] %3\n"
                                    "%5 = sum f32[32,1] %4 axes=[1] keepdims\n"
                                    "%6 = log f32[32,1] %5\n"
                                    "%7 = sub f32[32,10] %3 %6\n"
                                    "%8 = iota i64[10] axis=0\n"
                                    "%9 = unsqueeze i64[32,1] %1 axes=[1]\n"
                                    "%10 = eq bool[32,10] %8 %9\n"
                                    "%11 = cst f32[] 0\n"
                                    "%12 = where f32[32,10] %10 %7 %11\n"
                                    "%13 = sum f32[32] %12 axes=[1]\n"
                                    "%14 = neg f32[32] %13\n"
                                    "%15 = sum f32[] %14 axes=[0]\n"
                                    "%16 = count f32[] %14 axes=[0]\n"
                                    "%17 = div f32[] %15 %16\n"
                                    "output %14\n"
                                    "output %17\n";

static const char heat[] = "%0 = input f32[40,50] sole\n"
                           "%1 = slice f32[38,48] %0 start=[1,1] step=[1,1]\n"
                           "%2 = slice f32[38,48] %0 start=[0,1] step=[1,1]\n"
                           "%3 = slice f32[38,48] %0 start=[2,1] step=[1,1]\n"
                           "%4 = slice f32[38,48] %0 start=[1,0] step=[1,1]\n"
                           "%5 = slice f32[38,48] %0 start=[1,2] step=[1,1]\n"
                           "%6 = add f32[38,48] %2 %3\n"
                           "%7 = add f32[38,48] %4 %5\n"
                           "%8 = add f32[38,48] %6 %7\n"
                           "%9 = num f32[] 4\n"
                           "%10 = mul f32[38,48] %1 %9\n"
                           "%11 = sub f32[38,48] %8 %10\n"
                           "%12 = num f32[] 0x1p-3\n"
                           "%13 = mul f32[38,48] %11 %12\n"
                           "%14 = add f32[38,48] %1 %13\n"
                           "%15 = update f32[40,50] %0 %14 %1\n"
                           "output %15 donor %0\n";

static const char nbody[] = "%0 = input f32[50] sole\n"
                            "%1 = input f32[50] sole\n"
                            "%2 = unsqueeze f32[50,1] %0 axes=[1]\n"
                            "%3 = sub f32[50,50] %0 %2\n"
                            "%4 = square f32[50,50] %3\n"
                            "%5 = num f32[] 0x1p-7\n"
                            "%6 = add f32[50,50] %4 %5\n"
                            "%7 = rsqrt f32[50,50] %6\n"
                            "%8 = mul f32[50,50] %7 %3\n"
                            "%9 = sum f32[50] %8 axes=[1]\n"
                            "%10 = num f32[] 0x1p-5\n"
                            "%11 = mul f32[50] %9 %10\n"
                            "%12 = add f32[50] %1 %11\n"
                            "%13 = mul f32[50] %12 %10\n"
                            "%14 = add f32[50] %0 %13\n"
                            "output %12 donor %1\n"
                            "output %14 donor %0\n";

static const char dense[] = "%0 = input f32[8,16]\n"
                            "%1 = input f32[12,16]\n"
                            "%2 = input f32[12]\n"
                            "%3 = permute f32[16,12] %1 perm=[1,0]\n"
                            "%4 = matmul f32[8,12] %0 %3\n"
                            "%5 = add f32[8,12] %4 %2\n"
                            "%6 = relu f32[8,12] %5\n"
                            "output %6\n";

static const char concat[] = "%0 = input f32[4,5]\n"
                             "%1 = input f32[3,5]\n"
                             "%2 = input f32[2,5]\n"
                             "%3 = empty f32[9,5]\n"
                             "%4 = slice f32[4,5] %3 start=[0,0] step=[1,1]\n"
                             "%5 = exp f32[4,5] %0\n"
                             "%6 = update f32[9,5] %3 %5 %4\n"
                             "%7 = slice f32[3,5] %6 start=[4,0] step=[1,1]\n"
                             "%8 = update f32[9,5] %6 %1 %7\n"
                             "%9 = slice f32[2,5] %8 start=[7,0] step=[1,1]\n"
                             "%10 = update f32[9,5] %8 %2 %9\n"
                             "output %10\n";

static const char indexed[] = "%0 = input f32[10,6]\n"
                              "%1 = input i64[4]\n"
                              "%2 = take f32[4,6] %0 %1 axis=0\n"
                              "%3 = exp f32[4,6] %2\n"
                              "%4 = input i64[10,3]\n"
                              "%5 = gather f32[10,3] %0 %4 axis=1\n"
                              "output %3\n"
                              "output %5\n";

/* Adam over n parameters of different sizes. */
static char *adam(int n)
{
    char *const text = malloc(4096 * (size_t)n);
    size_t at = 0;
    int k = 5;
    at += (size_t)sprintf(
        text + at, "%%0 = num f32[] 0x1p-1\n%%1 = num f32[] 0x1p-20\n%%2 = num f32[] 0x1p-4\n"
                   "%%3 = num f32[] 0x1p-3\n%%4 = num f32[] 0x1p-6\n");
    for (int i = 0; i < n; i++, k += 18) {
        const int s = 10 + 7 * i;
#define LINE(j, what, ...)                                                                         \
    at += (size_t)sprintf(text + at, "%%%d = " what "\n", k + (j), __VA_ARGS__)
        LINE(0, "input f32[%d] sole", s);
        LINE(1, "input f32[%d] sole", s);
        LINE(2, "input f32[%d] sole", s);
        LINE(3, "input f32[%d]", s);
        LINE(4, "sub f32[%d] %%%d %%%d", s, k + 3, k + 1);
        LINE(5, "mul f32[%d] %%%d %%3", s, k + 4);
        LINE(6, "add f32[%d] %%%d %%%d", s, k + 1, k + 5);
        LINE(7, "square f32[%d] %%%d", s, k + 3);
        LINE(8, "sub f32[%d] %%%d %%%d", s, k + 7, k + 2);
        LINE(9, "mul f32[%d] %%%d %%4", s, k + 8);
        LINE(10, "add f32[%d] %%%d %%%d", s, k + 2, k + 9);
        LINE(11, "div f32[%d] %%%d %%0", s, k + 10);
        LINE(12, "abs f32[%d] %%%d", s, k + 11);
        LINE(13, "sqrt f32[%d] %%%d", s, k + 12);
        LINE(14, "add f32[%d] %%%d %%1", s, k + 13);
        LINE(15, "div f32[%d] %%%d %%%d", s, k + 6, k + 14);
        LINE(16, "mul f32[%d] %%%d %%2", s, k + 15);
        LINE(17, "sub f32[%d] %%%d %%%d", s, k, k + 16);
#undef LINE
    }
    for (int i = 0; i < n; i++) {
        const int b = 5 + 18 * i;
        at += (size_t)sprintf(
            text + at, "output %%%d donor %%%d\noutput %%%d donor %%%d\noutput %%%d donor %%%d\n",
            b + 6, b + 1, b + 10, b + 2, b + 17, b);
    }
    return text;
}

/* The cost of a kernel with one axis, which loads an element and does `op` with it. */
static double cost_of(df_mode mode, df_kop op)
{
    const df_access access = { .kind = DF_ACCESS_LOAD, .dtype = DEFT_F32 };
    const df_ins ins[] = {
        { .op = DF_K_load, .dtype = DEFT_F32, .level = DF_LEVEL_ELEM },
        { .op = (uint8_t)op, .dtype = DEFT_F32, .level = DF_LEVEL_ELEM },
    };
    df_kernel k = { .mode = (uint8_t)mode, .n_axes = 1, .n_stages = 1 };
    df_arena arena;
    df_diag d = { 0 };
    k.access = (df_access *)&access, k.n_access = 1;
    k.ins = (df_ins *)ins, k.n_ins = 2;
    df_arena_init(&arena, &df_mem_system);
    cr_assert_eq(df_kernel_seal(&d, &k, &arena), DEFT_OK);
    df_arena_finish(&arena);
    return k.cost;
}

/* The cost decides whether a launch is worth a second thread. */
Test(fuser, kernels_cost_more_where_an_element_takes_longer)
{
    cr_expect_geq(cost_of(DF_MODE_ROW, DF_K_argmax), 3 * cost_of(DF_MODE_ROW, DF_K_rmax));
    cr_expect_geq(cost_of(DF_MODE_ROW, DF_K_argmin), 3 * cost_of(DF_MODE_ROW, DF_K_rmin));
    cr_expect_geq(cost_of(DF_MODE_ROW, DF_K_cumsum), 10 * cost_of(DF_MODE_ROW, DF_K_sum));
    cr_expect_eq(cost_of(DF_MODE_COL, DF_K_cumsum), cost_of(DF_MODE_COL, DF_K_sum));
}

Test(fuser, launches)
{
    const want list[] = {
        { "map with bias", map_bias, 4, 1, 1, 1 },
        { "sum of a map", sum_of_map, 4, 1, 1, 1 },
        { "softmax", softmax, 4, 1, 1, 1 },
        { "softmax of columns", softmax_columns, 4, 1, 1, 1 },
        { "layer norm", layer_norm, 4, 1, 1, 1 },
        { "mean square error", mse, 4, 1, 1, 1 },
        { "cross entropy", cross_entropy, 4, 1, 2, 2 },
        { "n bodies", nbody, 4, 1, 1, 1 },
        { "dense layer", dense, 4, 1, 1, 1 },
        { "concatenation", concat, 4, 1, 3, 2 },
        { "take and gather", indexed, 4, 1, 2, 2 },
        /* The box and four frames; pairs of frames are alike. */
        { "heat", heat, 4, 1, 5, 3 },
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) expect(&list[i]);
    char *const text = adam(20);
    const want w = { "Adam over 20 parameters", text, 4, 1, 20, 1 };
    const fuse_result r = expect(&w);
    cr_expect_eq(r.n_donated, 60, "m, v and p are updated in place: %u", r.n_donated);
    free(text);
}

/* A scalar made of many rows is work for all threads: a launch of its own. The limit is the plan's.
 */
Test(fuser, only_little_comes_after)
{
    static const char form[] = "%%0 = input f32[%d,2]\n"
                               "%%1 = sum f32[%d] %%0 axes=[1]\n"
                               "%%2 = exp f32[%d] %%1\n"
                               "%%3 = sum f32[] %%2 axes=[0]\n"
                               "output %%3\n";
    char text[3][400];
    static const int rows[3] = { 4096, 100, 4097 };
    for (int i = 0; i < 3; i++) {
        snprintf(text[i], sizeof text[i], form, rows[i], rows[i], rows[i]);
        const want w = { "a sum over rows", text[i], 4, rows[i] > 4096 ? 2 : 1, 2, 2 };
        expect(&w);
    }
    fuse_result r;
    cr_expect_eq(fuse_serves(text[0], text[1], 4, &r), 1, "%s", r.text);
    cr_expect_eq(fuse_serves(text[0], text[2], 4, &r), 0, "4097 rows are not little");
}

/* ---- updates and memory ---- */

Test(fuser, updates_write_where_they_may)
{
    const want fill = { "filling a row",
                        "%0 = input f32[40,50] sole\n"
                        "%1 = slice f32[1,50] %0 start=[3,0] step=[1,1]\n"
                        "%2 = squeeze f32[50] %1 axes=[0]\n"
                        "%3 = num f32[] 100\n"
                        "%4 = expand f32[50] %3\n"
                        "%5 = update f32[40,50] %0 %4 %2\n"
                        "output %5 donor %0\n",
                        4,
                        1,
                        1,
                        1 };
    cr_expect_eq(expect(&fill).n_kept, 1);

    const want add = { "adding to rows",
                       "%0 = input f32[40,50] sole\n"
                       "%1 = slice f32[10,50] %0 start=[3,0] step=[1,1]\n"
                       "%2 = num f32[] 1\n"
                       "%3 = add f32[10,50] %1 %2\n"
                       "%4 = update f32[40,50] %0 %3 %1\n"
                       "output %4 donor %0\n",
                       4,
                       1,
                       1,
                       1 };
    cr_expect_eq(expect(&add).n_kept, 1);

    const want edge = { "copying the neighbour row to the edge",
                        "%0 = input f32[40,50] sole\n"
                        "%1 = slice f32[1,50] %0 start=[1,0] step=[1,1]\n"
                        "%2 = slice f32[1,50] %0 start=[0,0] step=[1,1]\n"
                        "%3 = update f32[40,50] %0 %1 %2\n"
                        "output %3 donor %0\n",
                        4,
                        1,
                        1,
                        1 };
    cr_expect_eq(expect(&edge).n_kept, 1);

    /* Neighbours are read: a fresh buffer, of which the box and its frames are written. */
    const want h = { "heat", heat, 4, 1, 5, 3 };
    cr_expect_eq(expect(&h).n_donated, 0);

    /* The elements of another input that the step replaces are read where they are written: the box
     * and its frames are written into that input's memory. */
    static const char leap[] = "%%0 = input f32[40,50]\n"
                               "%%1 = input f32[40,50] sole\n"
                               "%%2 = slice f32[38,50] %%0 start=[1,0] step=[1,1]\n"
                               "%%3 = slice f32[38,50] %%0 start=[0,0] step=[1,1]\n"
                               "%%4 = slice f32[38,50] %%1 start=[%d,0] step=[1,1]\n"
                               "%%5 = sub f32[38,50] %%3 %%4\n"
                               "%%6 = update f32[40,50] %%0 %%5 %%2\n"
                               "output %%6 donor %%1\n";
    for (int at = 0; at < 3; at++) {
        char text[1024];
        snprintf(text, sizeof text, leap, at);
        const want w = { "a leapfrog", text, 4, 1, 3, 2 };
        cr_expect_eq(expect(&w).n_donated, at == 1, "%d", at);
    }

    /* The rows around every other row are copied first, so the donor is read too late. */
    const want step = { "a leapfrog of every other row",
                        "%0 = input f32[40,50]\n"
                        "%1 = input f32[40,50] sole\n"
                        "%2 = slice f32[20,50] %0 start=[0,0] step=[2,1]\n"
                        "%3 = slice f32[20,50] %1 start=[0,0] step=[2,1]\n"
                        "%4 = sub f32[20,50] %2 %3\n"
                        "%5 = update f32[40,50] %0 %4 %2\n"
                        "output %5 donor %1\n",
                        4,
                        2,
                        2,
                        2 };
    cr_expect_eq(expect(&step).n_donated, 0);

    /* What may be wrong is known before anything is written. */
    const want checked = { "adding rows of a table",
                           "%0 = input f32[40,50] sole\n"
                           "%1 = input i64[10]\n"
                           "%2 = input f32[9,50]\n"
                           "%3 = take f32[10,50] %2 %1 axis=0\n"
                           "%4 = slice f32[10,50] %0 start=[3,0] step=[1,1]\n"
                           "%5 = add f32[10,50] %3 %4\n"
                           "%6 = update f32[40,50] %0 %5 %4\n"
                           "output %6 donor %0\n",
                           4,
                           1,
                           1,
                           1 };
    cr_expect_eq(expect(&checked).n_kept, 1);

    /* Not the only holder: the same update goes to a fresh buffer. */
    const want held = { "filling a held row",
                        "%0 = input f32[40,50]\n"
                        "%1 = slice f32[1,50] %0 start=[3,0] step=[1,1]\n"
                        "%2 = num f32[] 100\n"
                        "%3 = expand f32[1,50] %2\n"
                        "%4 = update f32[40,50] %0 %3 %1\n"
                        "output %4 donor %0\n",
                        4,
                        1,
                        3,
                        2 };
    cr_expect_eq(expect(&held).n_kept, 0);

    /* A reader of the old contents runs first. */
    const want reader = { "reading the old value too",
                          "%0 = input f32[40] sole\n"
                          "%1 = slice f32[3] %0 start=[3] step=[1]\n"
                          "%2 = num f32[] 100\n"
                          "%3 = expand f32[3] %2\n"
                          "%4 = update f32[40] %0 %3 %1\n"
                          "%5 = sum f32[] %0 axes=[0]\n"
                          "output %4 donor %0\n"
                          "output %5\n",
                          4,
                          2,
                          2,
                          2 };
    cr_expect_eq(expect(&reader).n_kept, 1);

    /* Every other element: no box, so the base is copied first. */
    const want steps = { "every other element",
                         "%0 = input f32[40]\n"
                         "%1 = slice f32[20] %0 start=[0] step=[2]\n"
                         "%2 = neg f32[20] %1\n"
                         "%3 = update f32[40] %0 %2 %1\n"
                         "output %3\n",
                         4,
                         2,
                         2,
                         2 };
    expect(&steps);
}

/* As the allocator counts. */
static bool is_about(int64_t bytes, int64_t least)
{
    return bytes >= least && bytes <= least + least / 8 + 64;
}

/* Of one array, from other elements of it: a temporary of the size of the part, never of more. */
Test(fuser, parts_are_staged)
{
    const want beside = { "columns from the columns beside them, in the caller's memory",
                          "%0 = input f64[40,50] wrapped\n"
                          "%1 = slice f64[40,2] %0 start=[0,5] step=[1,1]\n"
                          "%2 = slice f64[40,2] %0 start=[0,4] step=[1,1]\n"
                          "%3 = add f64[40,2] %1 %2\n"
                          "%4 = update f64[40,50] %0 %3 %1\n"
                          "output %4 into %0\n",
                          4,
                          2,
                          2,
                          2 };
    fuse_result r = expect(&beside);
    cr_expect(is_about(r.temporary_bytes, 40 * 2 * 8), "%lld", (long long)r.temporary_bytes);
    cr_expect(r.n_staged == 1 && r.n_copied == 0);

    const want inside = { "the inside from its neighbours",
                          "%0 = input f64[40,50] wrapped\n"
                          "%1 = slice f64[38,48] %0 start=[1,1] step=[1,1]\n"
                          "%2 = slice f64[38,48] %0 start=[0,1] step=[1,1]\n"
                          "%3 = slice f64[38,48] %0 start=[1,2] step=[1,1]\n"
                          "%4 = add f64[38,48] %2 %3\n"
                          "%5 = update f64[40,50] %0 %4 %1\n"
                          "output %5 into %0\n",
                          4,
                          2,
                          2,
                          2 };
    r = expect(&inside);
    cr_expect(is_about(r.temporary_bytes, 38 * 48 * 8), "%lld", (long long)r.temporary_bytes);

    const want donated = { "every other row from the one behind it, donated",
                           "%0 = input f32[40,50] sole\n"
                           "%1 = slice f32[20,50] %0 start=[0,0] step=[2,1]\n"
                           "%2 = slice f32[20,50] %0 start=[1,0] step=[2,1]\n"
                           "%3 = add f32[20,50] %1 %2\n"
                           "%4 = update f32[40,50] %0 %3 %1\n"
                           "output %4 donor %0\n",
                           4,
                           2,
                           2,
                           2 };
    r = expect(&donated);
    cr_expect(r.n_kept == 1 && r.n_staged == 1);
    cr_expect(is_about(r.temporary_bytes, 20 * 50 * 4), "%lld", (long long)r.temporary_bytes);

    const want chain = { "one after the other, in a temporary",
                         "%0 = input f32[40,50]\n"
                         "%1 = neg f32[40,50] %0\n"
                         "%2 = slice f32[40,2] %1 start=[0,5] step=[1,1]\n"
                         "%3 = slice f32[40,2] %1 start=[0,4] step=[1,1]\n"
                         "%4 = update f32[40,50] %1 %3 %2\n"
                         "%5 = slice f32[40,2] %4 start=[0,6] step=[1,1]\n"
                         "%6 = slice f32[40,2] %4 start=[0,5] step=[1,1]\n"
                         "%7 = update f32[40,50] %4 %6 %5\n"
                         "output %7\n",
                         4,
                         5,
                         5,
                         2 };
    r = expect(&chain);
    cr_expect(r.n_staged == 2 && r.n_copied == 0);

    /* A part that is more than half of an array that may move: what is around it is copied. */
    const want most = { "more than half",
                        "%0 = input f32[40,50] sole\n"
                        "%1 = slice f32[39,50] %0 start=[1,0] step=[1,1]\n"
                        "%2 = slice f32[39,50] %0 start=[0,0] step=[1,1]\n"
                        "%3 = update f32[40,50] %0 %2 %1\n"
                        "output %3 donor %0\n",
                        4,
                        1,
                        3,
                        1 };
    r = expect(&most);
    cr_expect(r.n_staged == 0 && r.n_copied == 1 && r.temporary_bytes == 0);
}

/* An operand of a product is read over its own axes, not over those of the result. */
Test(fuser, operands_reach_beyond_the_result)
{
    const want product = { "a column from a product of all",
                           "%0 = input f32[8,8] wrapped\n"
                           "%1 = slice f32[8,6] %0 start=[0,0] step=[1,1]\n"
                           "%2 = input f32[6,2]\n"
                           "%3 = matmul f32[8,2] %1 %2\n"
                           "%4 = slice f32[8,2] %0 start=[0,3] step=[1,1]\n"
                           "%5 = add f32[8,2] %3 %4\n"
                           "%6 = update f32[8,8] %0 %5 %4\n"
                           "output %6 into %0\n",
                           4,
                           2,
                           2,
                           2 };
    cr_expect_eq(expect(&product).n_staged, 1);
    const want apart = { "a column from a product of the others",
                         "%0 = input f32[8,8] wrapped\n"
                         "%1 = slice f32[8,3] %0 start=[0,0] step=[1,1]\n"
                         "%2 = input f32[3,2]\n"
                         "%3 = matmul f32[8,2] %1 %2\n"
                         "%4 = slice f32[8,2] %0 start=[0,3] step=[1,1]\n"
                         "%5 = add f32[8,2] %3 %4\n"
                         "%6 = update f32[8,8] %0 %5 %4\n"
                         "output %6 into %0\n",
                         4,
                         1,
                         1,
                         1 };
    cr_expect_eq(expect(&apart).n_staged, 0);
}

/* Bounds are arguments: the plan for places that are apart refuses those that overlap, and the
 * other way round; windows that move together find their plan. */
Test(fuser, places_move)
{
    static const char form[] = "%%0 = input f32[40,50] wrapped\n"
                               "%%1 = slice f32[40,3] %%0 start=[0,%d] step=[1,1]\n"
                               "%%2 = slice f32[40,3] %%0 start=[0,%d] step=[1,1]\n"
                               "%%3 = neg f32[40,3] %%2\n"
                               "%%4 = update f32[40,50] %%0 %%3 %%1\n"
                               "output %%4 into %%0\n";
    static const struct {
        int to[2], from[2]; /* planned for, asked for */
        int serves;
    } moves[] = {
        { { 5, 10 }, { 2, 7 }, 1 },    { { 5, 10 }, { 2, 8 }, 0 }, { { 5, 10 }, { 3, 9 }, 1 },
        { { 5, 10 }, { 3, 7 }, 0 },    { { 5, 10 }, { 6, 9 }, 1 }, { { 20, 20 }, { 30, 23 }, 1 },
        { { 20, 20 }, { 30, 10 }, 0 },
    };
    char a[512], b[512];
    fuse_result r;
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        snprintf(a, sizeof a, form, moves[i].to[0], moves[i].from[0]);
        snprintf(b, sizeof b, form, moves[i].to[1], moves[i].from[1]);
        const int serves = fuse_serves(a, b, 4, &r);
        cr_expect_eq(serves, moves[i].serves, "%zu: %d: %s", i, serves, r.text);
        if (serves == 1) cr_expect(r.ok, "%zu: %s", i, r.text);
    }
}

/* What one kernel writes of an array beside what another value of it writes needs no order, and
 * what reads neither may come when it likes. */
Test(fuser, disjoint_parts_need_no_order)
{
    static const char form[] = "%%0 = input f32[8,9,3] wrapped\n"
                               "%%1 = input f32[8,9]\n"
                               "%%2 = exp f32[8,9] %%1\n"
                               "%%3 = slice f32[8,9,1] %%0 start=[0,0,%d] step=[1,1,1]\n"
                               "%%4 = squeeze f32[8,9] %%3 axes=[2]\n"
                               "%%5 = add f32[8,9] %%2 %%%d\n"
                               "%%6 = update f32[8,9,3] %%0 %%5 %%4\n"
                               "%%7 = slice f32[8,9,1] %%6 start=[0,0,%d] step=[1,1,1]\n"
                               "%%8 = squeeze f32[8,9] %%7 axes=[2]\n"
                               "%%9 = mul f32[8,9] %%2 %%1\n"
                               "%%10 = update f32[8,9,3] %%6 %%9 %%8\n"
                               "output %%10 into %%0\n%s";
    /* Reads a third plane, between the two updates. */
    static const char third[] = "%11 = slice f32[8,9,1] %6 start=[0,0,2] step=[1,1,1]\n"
                                "%12 = sum f32[] %11 axes=[0,1,2]\noutput %12\n";
    char apart[1024], together[1024];
    for (int k = 0; k < 4; k++) {
        const int other = k & 1 ? 4 : 1; /* with and without a read of the first plane */
        snprintf(apart, sizeof apart, form, 0, other, 1, k & 2 ? third : "");
        snprintf(together, sizeof together, form, 1, other, 1, k & 2 ? third : "");
        const uint32_t n = 1 + (k >> 1);
        const want planes = { "two planes by one kernel", apart, 4, 1, n, n };
        fuse_result r = expect(&planes);
        cr_expect(r.n_staged == 0 && r.n_copied == 0 && r.temporary_bytes == 0);
        cr_expect_eq(fuse_serves(apart, together, 4, &r), 0, "%d: one plane: %s", k, r.text);
    }
}

/* A fresh array that goes to the caller's memory is written there piece by piece, unless a piece
 * still wants the old contents of another, or a result does. */
Test(fuser, pieces_go_to_the_callers_memory)
{
    static const char form[] = "%%0 = input f32[40,50]%s wrapped\n"
                               "%%1 = input f32[40,25]\n"
                               "%%2 = empty f32[40,50]\n"
                               "%%3 = slice f32[40,25] %%2 start=[0,0] step=[1,1]\n"
                               "%%4 = slice f32[40,25] %%0 start=[0,%d] step=[1,1]\n"
                               "%%5 = mul f32[40,25] %%1 %%%d\n"
                               "%%6 = update f32[40,50] %%2 %%5 %%3\n"
                               "%%7 = slice f32[40,25] %%6 start=[0,25] step=[1,1]\n"
                               "%%8 = neg f32[40,25] %%1\n"
                               "%%9 = update f32[40,50] %%6 %%8 %%7\n"
                               "output %%9 into %%0\n"
                               "%s";
    static const struct {
        const char *strides;
        int from, other; /* the factor: a part of the old contents, or the input itself */
        const char *rest;
        int64_t bytes;
    } rows[] = {
        { "", 0, 1, "", 0 },
        { " strides=[100,1]", 0, 1, "", 0 },
        { "", 0, 4, "", 40 * 50 * 4 }, /* the same elements: two arrays' places are not compared */
        { "", 3, 4, "", 40 * 50 * 4 },
        { "", 3, 1, "%10 = sum f32[] %0 axes=[0,1]\noutput %10\n", 0 },
        { "", 3, 1, "%10 = sub f32[40,50] %9 %0\noutput %10\n", 40 * 50 * 4 },
    };
    char text[1024];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, form, rows[i].strides, rows[i].from, rows[i].other,
                 rows[i].rest);
        const fuse_result r = fuse_check(text, 4);
        cr_expect(r.ok && !r.retreated, "%zu: %s", i, r.text);
        cr_expect(is_about(r.temporary_bytes, rows[i].bytes), "%zu: %lld", i,
                  (long long)r.temporary_bytes);
    }
}

/* A function of one row that many rows need: it is stored where that costs less. */
Test(fuser, what_rows_repeat_is_stored)
{
    static const struct {
        int rows, columns;
        const char *op;
        uint32_t n_segs;
    } rows[] = {
        { 400, 100, "sin", 2 },
        { 400, 100, "neg", 1 }, /* not worth a load */
        { 3, 30000, "sin", 1 }, /* hardly ever repeated */
        { 100, 40, "sin", 1 },  /* not worth a launch */
    };
    char text[2][512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text[i > 0], sizeof text[0],
                 "%%0 = input f32[%d,%d]\n%%1 = input f32[%d]\n%%2 = %s f32[%d] %%1\n"
                 "%%3 = mul f32[%d,%d] %%0 %%2\noutput %%3\n",
                 rows[i].rows, rows[i].columns, rows[i].columns, rows[i].op, rows[i].columns,
                 rows[i].rows, rows[i].columns);
        const fuse_result r = fuse_check(text[i > 0], 1);
        cr_expect(r.ok && r.n_segs == rows[i].n_segs, "%zu: %s, %u", i, r.text, r.n_segs);
        if (i < 2) continue;
        fuse_result other;
        cr_expect_eq(fuse_serves(text[0], text[1], 1, &other), 0, "%zu: %s", i, other.text);
    }
}

/* Memory that a result may replace, but of another shape or type, is none for it. */
Test(fuser, donors_fit)
{
    static const struct {
        const char *input;
        uint32_t n; /* donated */
    } rows[] = {
        { "f32[6,4] sole", 1 }, { "f64[6,4] sole", 0 },   { "f32[24] sole", 0 },
        { "f32[6,5] sole", 0 }, { "f32[6,1,4] sole", 0 }, { "f32[6,4] strides=[5,1] sole", 0 },
    };
    char text[512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(
            text, sizeof text,
            "%%0 = input %s\n%%1 = input f32[6,4]\n%%2 = neg f32[6,4] %%1\noutput %%2 donor %%0\n",
            rows[i].input);
        const fuse_result r = fuse_check(text, 4);
        cr_expect(r.ok && !r.retreated, "%s: %s", rows[i].input, r.text);
        cr_expect_eq(r.n_donated, rows[i].n, "%s: %u", rows[i].input, r.n_donated);
    }
    static const char scalar[] = "%0 = input f32[24] sole\n"
                                 "%1 = input f32[6,4]\n"
                                 "%2 = sum f32[] %1 axes=[0,1]\n"
                                 "output %2 donor %0\n";
    fuse_result r = fuse_check(scalar, 4);
    cr_expect(r.ok && !r.retreated && r.n_donated == 0, "%s", r.text);

    /* Two results that want one array's memory: the first that may have it. */
    static const char updated[] = "%0 = input f32[40,50] sole\n"
                                  "%1 = input f32[40,50]\n"
                                  "%2 = slice f32[10,50] %0 start=[3,0] step=[1,1]\n"
                                  "%3 = neg f32[10,50] %2\n"
                                  "%4 = update f32[40,50] %0 %3 %2\n"
                                  "%5 = exp f32[40,50] %1\n"
                                  "output %5 donor %0\n"
                                  "output %4 donor %0\n";
    r = fuse_check(updated, 4);
    cr_expect(r.ok && !r.retreated && r.n_donated == 1 && r.n_kept == 1, "%s", r.text);
    static const char computed[] = "%0 = input f32[6,4] sole\n"
                                   "%1 = input f32[6,4]\n"
                                   "%2 = neg f32[6,4] %1\n"
                                   "%3 = exp f32[6,4] %1\n"
                                   "output %2 donor %0\n"
                                   "output %3 donor %0\n";
    r = fuse_check(computed, 4);
    cr_expect(r.ok && !r.retreated && r.n_donated == 1, "%s", r.text);
}

/* The second piece is written over what its own kernel, or the other piece's, still reads. */
Test(fuser, pieces_are_written_when_all_is_read)
{
    static const char form[] = "%%0 = input f32[40,50] wrapped\n"
                               "%%1 = input f32[40,25]\n"
                               "%%2 = empty f32[40,50]\n"
                               "%%3 = slice f32[40,25] %%2 start=[0,0] step=[1,1]\n"
                               "%%4 = mul f32[40,25] %%1 %%1\n"
                               "%%5 = update f32[40,50] %%2 %%4 %%3\n"
                               "%%6 = slice f32[40,25] %%5 start=[0,25] step=[1,1]\n"
                               "%%7 = slice f32[40,25] %%0 start=[0,%d] step=[1,1]\n"
                               "%%8 = neg f32[40,25] %%7\n"
                               "%%9 = update f32[40,50] %%5 %%8 %%6\n"
                               "output %%9 into %%0\n";
    /* Pieces that want nothing of each other are one launch. */
    const want sizes = { "pieces of two sizes",
                         "%0 = input f32[40,50] wrapped\n"
                         "%1 = input f32[40,20]\n"
                         "%2 = input f32[40,30]\n"
                         "%3 = empty f32[40,50]\n"
                         "%4 = slice f32[40,20] %3 start=[0,0] step=[1,1]\n"
                         "%5 = exp f32[40,20] %1\n"
                         "%6 = update f32[40,50] %3 %5 %4\n"
                         "%7 = slice f32[40,30] %6 start=[0,20] step=[1,1]\n"
                         "%8 = neg f32[40,30] %2\n"
                         "%9 = update f32[40,50] %6 %8 %7\n"
                         "output %9 into %0\n",
                         4,
                         1,
                         2,
                         2 };
    expect(&sizes);
    char text[1024];
    for (int from = 0; from <= 25; from += 5) {
        snprintf(text, sizeof text, form, from);
        const fuse_result r = fuse_check(text, 4);
        cr_expect(r.ok && !r.retreated, "%d: %s", from, r.text);
    }
}

/* Rows of an array that come back in another order: what still reads the old contents beside a part
 * must not wait for a part that is staged behind it. */
Test(fuser, pieces_exchange_places)
{
    static const char rows[] = "%0 = input f16[3,5] wrapped\n"
                               "%1 = empty f16[3,5]\n"
                               "%2 = slice f16[1,5] %1 start=[0,0] step=[1,1]\n"
                               "%3 = slice f16[1,5] %0 start=[1,0] step=[1,1]\n"
                               "%4 = update f16[3,5] %1 %3 %2\n"
                               "%5 = slice f16[1,5] %4 start=[1,0] step=[1,1]\n"
                               "%6 = slice f16[1,5] %0 start=[2,0] step=[1,1]\n"
                               "%7 = update f16[3,5] %4 %6 %5\n"
                               "%8 = slice f16[1,5] %7 start=[2,0] step=[1,1]\n"
                               "%9 = slice f16[1,5] %0 start=[1,0] step=[1,1]\n"
                               "%10 = update f16[3,5] %7 %9 %8\n"
                               "output %10 into %0\n";
    const fuse_result r = fuse_check(rows, 4);
    cr_expect(r.ok && !r.retreated, "%s", r.text);
    cr_expect_eq(r.n_staged, 1);
    cr_expect(is_about(r.temporary_bytes, 5 * 2), "%lld", (long long)r.temporary_bytes);
}

/* What a routine stored is copied into the array by a kernel of its own, when the kernel that would
 * copy it has more to do and reads what is written over. */
Test(fuser, what_a_routine_stored_is_staged)
{
    static const char text[] = "%0 = input i64[80] wrapped\n"
                               "%1 = input f32[40]\n"
                               "%2 = argsort i64[40] %1\n"
                               "%3 = slice i64[40] %0 start=[2] step=[1]\n"
                               "%4 = slice i64[40] %0 start=[0] step=[1]\n"
                               "%5 = add i64[40] %2 %4\n"
                               "%6 = update i64[80] %0 %2 %3\n"
                               "output %5\n"
                               "output %6 into %0\n";
    fuse_result r = fuse_check(text, 4);
    cr_expect(r.ok && !r.retreated, "%s", r.text);
    cr_expect(r.n_staged == 1 && r.n_copied == 0, "%u staged, %u copied", r.n_staged, r.n_copied);
    cr_expect(is_about(r.temporary_bytes, 40 * 8), "%lld", (long long)r.temporary_bytes);

    /* A product's own kernel writes the part; its value is stored for the sum, which reads the old
     * contents. */
    static const char product[] = "%0 = input f32[40,50] wrapped\n"
                                  "%1 = input f32[20,7]\n"
                                  "%2 = input f32[7,50]\n"
                                  "%3 = matmul f32[20,50] %1 %2\n"
                                  "%4 = slice f32[20,50] %0 start=[2,0] step=[1,1]\n"
                                  "%5 = slice f32[20,50] %0 start=[0,0] step=[1,1]\n"
                                  "%6 = mul f32[20,50] %3 %5\n"
                                  "%7 = sum f32[] %6 axes=[0,1]\n"
                                  "%8 = update f32[40,50] %0 %3 %4\n"
                                  "output %7\n"
                                  "output %8 into %0\n";
    r = fuse_check(product, 4);
    cr_expect(r.ok && !r.retreated, "%s", r.text);
    cr_expect(r.n_staged == 1 && r.n_copied == 0, "%u staged, %u copied", r.n_staged, r.n_copied);
}

/* An update was to go into the caller's memory, which has gaps; a later one cannot follow it there,
 * since it reads other elements than it writes: the first then lies in memory without gaps. */
Test(fuser, a_place_in_the_callers_memory_is_given_up)
{
    static const char text[] = "%0 = input f16[4,7] strides=[9,1] wrapped\n"
                               "%1 = input f16[4,7]\n"
                               "%2 = slice f16[4,1] %0 start=[0,5] step=[1,1]\n"
                               "%3 = update f16[4,7] %0 %2 %2\n"
                               "%4 = slice f16[4,7] %3 start=[3,0] step=[-1,1]\n"
                               "%5 = slice f16[4,7] %3 start=[0,6] step=[1,-1]\n"
                               "%6 = maximum f16[4,7] %4 %5\n"
                               "%7 = update f16[4,7] %3 %6 %4\n"
                               "%8 = slice f16[1,7] %7 start=[0,0] step=[-1,1]\n"
                               "%9 = slice f16[1,7] %1 start=[2,0] step=[1,1]\n"
                               "%10 = update f16[4,7] %7 %9 %8\n"
                               "%11 = slice f16[4,2] %10 start=[0,4] step=[1,-1]\n"
                               "%12 = slice f16[4,2] %3 start=[0,5] step=[1,1]\n"
                               "%13 = add f16[4,2] %11 %12\n"
                               "%14 = update f16[4,7] %10 %13 %11\n"
                               "output %14 into %0\n";
    const fuse_result r = fuse_check(text, 4);
    cr_expect(r.ok && !r.retreated, "%s", r.text);
}

/* Who needs both the old contents and the new ones is the one reason for a copy that is left. */
Test(fuser, copies_name_their_reader)
{
    static const char both[] = "%0 = input f32[40,50] wrapped\n"
                               "%1 = slice f32[40,2] %0 start=[0,5] step=[1,1]\n"
                               "%2 = neg f32[40,2] %1\n"
                               "%3 = update f32[40,50] %0 %2 %1\n"
                               "%4 = slice f32[40,2] %0 start=[0,4] step=[1,1]\n"
                               "%5 = slice f32[40,2] %3 start=[0,4] step=[1,1]\n"
                               "%6 = div f32[40,2] %4 %5\n"
                               "output %3 into %0\n"
                               "output %6\n";
    fuse_result r = fuse_check(both, 4);
    cr_expect(r.ok, "%s", r.text);
    cr_expect(r.n_copied == 1 && r.copied_for[0] == 6, "%u, for %u", r.n_copied, r.copied_for[0]);

    /* Of two updates of one array each is in the other's way; one of another array is in nobody's.
     */
    static const char versions[] = "%0 = input f32[40,50] sole\n"
                                   "%1 = input f32[40,50] sole\n"
                                   "%2 = slice f32[20,50] %0 start=[0,0] step=[1,1]\n"
                                   "%3 = neg f32[20,50] %2\n"
                                   "%4 = slice f32[20,50] %1 start=[0,0] step=[1,1]\n"
                                   "%5 = update f32[40,50] %1 %3 %4\n"
                                   "%6 = update f32[40,50] %0 %3 %2\n"
                                   "%7 = slice f32[20,50] %0 start=[1,0] step=[1,1]\n"
                                   "%8 = exp f32[20,50] %7\n"
                                   "%9 = update f32[40,50] %0 %8 %7\n"
                                   "output %5 donor %1\n"
                                   "output %6 donor %0\n"
                                   "output %9\n";
    r = fuse_check(versions, 4);
    cr_expect(r.ok, "%s", r.text);
    cr_expect(r.n_copied == 2 && r.copied_for[0] == 9 && r.copied_for[1] == 6, "%u, for %u and %u",
              r.n_copied, r.copied_for[0], r.copied_for[1]);
}

Test(fuser, callers_memory)
{
    const want filter = { "into the caller's buffer",
                          "%0 = input u8[20,30,3] strides=[100,3,1] wrapped\n"
                          "%1 = cast f32[20,30,3] %0\n"
                          "%2 = num f32[] 0x1p-1\n"
                          "%3 = mul f32[20,30,3] %1 %2\n"
                          "%4 = round f32[20,30,3] %3\n"
                          "%5 = cast u8[20,30,3] %4\n"
                          "%6 = input u8[20,30,3] strides=[128,3,1] wrapped\n"
                          "output %5 into %6\n",
                          4,
                          1,
                          1,
                          1 };
    expect(&filter);
    const want shift = { "into memory that is read elsewhere",
                         "%0 = input f32[50] wrapped\n"
                         "%1 = slice f32[50] %0 start=[49] step=[-1]\n"
                         "%2 = exp f32[50] %1\n"
                         "output %2 into %0\n",
                         4,
                         2,
                         2,
                         2 };
    expect(&shift);
    /* A failing check must leave that memory alone: it is written last. */
    const want checked = { "into memory after a check",
                           "%0 = input f32[50]\n"
                           "%1 = input i64[7]\n"
                           "%2 = take f32[7] %0 %1 axis=0\n"
                           "%3 = input f32[7] wrapped\n"
                           "output %2 into %3\n",
                           4,
                           2,
                           2,
                           2 };
    expect(&checked);
    const want two = { "one value, two places",
                       "%0 = input f32[50]\n"
                       "%1 = exp f32[50] %0\n"
                       "%2 = input f32[50] wrapped\n"
                       "output %1\n"
                       "output %1 into %2\n"
                       "output %1\n",
                       4,
                       1,
                       1,
                       1 };
    expect(&two);
}

/* How many kernels write what `text` computes from its input b into its input a, whose memory
 * begins `ahead` elements of f32 before b's; and whether the plan of that serves when it begins
 * `other` elements before. Negative: the plan gives other values than each node does by itself. */
static int kernels_when_near(const char *text, int64_t ahead, int64_t other, bool *serves)
{
    static float memory[400];
    enum { MIDDLE = 150, N = 100 };
    df_arena arena;
    df_arena_init(&arena, &df_mem_system);
    df_trace *t = NULL;
    df_plan *plan = NULL;
    df_diag d = { 0 };
    const df_limits l = { .n_threads = 4, .max_body = 1000, .fuse = true };
    cr_assert_eq(df_trace_parse(&d, text, strlen(text), &arena, &t), DEFT_OK, "%s", d.text);
    t->inputs[0].data = memory + MIDDLE - ahead;
    t->inputs[1].data = memory + MIDDLE;
    cr_assert_eq(df_fuse(&d, t, &l, &df_mem_system, &plan), DEFT_OK, "%s", d.text);
    int n = (int)plan->n_kernels;
    for (int how = 0; how < 2; how++) {
        void *naive[1] = { NULL }, *have[1] = { NULL };
        char why[200] = "";
        for (int i = 0; i < 400; i++) memory[i] = (float)(i * i % 97) / 16;
        fuse_naive(t, naive);
        cr_expect(fuse_run(plan, t, how == 1, false, have, why, sizeof why), "%s", why);
        if (memcmp(naive[0], memory + MIDDLE - ahead, N * sizeof(float)) != 0) n = -1;
        free(naive[0]);
    }
    int64_t *const slots = calloc(plan->n_slots + 1, sizeof *slots);
    df_slots_eval(plan->slots, plan->n_slots, t, slots);
    t->inputs[0].data = memory + MIDDLE - other;
    const df_guard *const miss = df_guard_first_miss(plan->guards, plan->n_guards, t, slots);
    *serves = !miss;
    if (miss) {
        const char *kind;
        df_str field, expected, found;
        df_str_init(&field, &df_mem_system);
        df_str_init(&expected, &df_mem_system);
        df_str_init(&found, &df_mem_system);
        df_guard_parts(miss, t, plan->slots, slots, &kind, &field, &expected, &found);
        cr_expect_str_eq(kind, "disjoint");
        cr_expect_str_eq(field.at, "input 0 and input 1");
        cr_expect_str_eq(expected.at, "memory that does not overlap");
        cr_expect_str_eq(found.at, "400 and 400 bytes that do");
        df_str_finish(&field);
        df_str_finish(&expected);
        df_str_finish(&found);
    }
    free(slots);
    df_plan_destroy(&plan, &df_mem_system);
    df_arena_finish(&arena);
    return n;
}

/* Memory of the caller's under two names: what overlaps what is read is written last, and a plan
 * that writes at once serves only memory that lies apart. */
Test(fuser, callers_memory_under_two_names)
{
    static const char copied[] = "%0 = input f32[100] wrapped\n"
                                 "%1 = input f32[100] wrapped\n"
                                 "%2 = sqrt f32[100] %1\n"
                                 "output %2 into %0\n";
    static const char part[] = "%0 = input f32[100] wrapped\n"
                               "%1 = input f32[100] wrapped\n"
                               "%2 = slice f32[40] %1 start=[30] step=[1]\n"
                               "%3 = slice f32[40] %0 start=[30] step=[1]\n"
                               "%4 = sqrt f32[40] %2\n"
                               "%5 = update f32[100] %0 %4 %3\n"
                               "output %5 into %0\n";
    static const char pieces[] = "%0 = input f32[100] wrapped\n"
                                 "%1 = input f32[100] wrapped\n"
                                 "%2 = slice f32[40] %1 start=[30] step=[1]\n"
                                 "%3 = sqrt f32[40] %2\n"
                                 "%4 = empty f32[100]\n"
                                 "%5 = slice f32[40] %4 start=[0] step=[1]\n"
                                 "%6 = update f32[100] %4 %3 %5\n"
                                 "%7 = slice f32[60] %6 start=[40] step=[1]\n"
                                 "%8 = num f32[] 3\n"
                                 "%9 = expand f32[60] %8\n"
                                 "%10 = update f32[100] %6 %9 %7\n"
                                 "output %10 into %0\n";
    static const char *const text[] = { copied, part, pieces };
    for (size_t i = 0; i < DF_LEN(text); i++) {
        bool serves;
        const int alone = kernels_when_near(text[i], 100, 99, &serves);
        cr_expect_gt(alone, 0, "%zu", i);
        cr_expect(!serves, "%zu: a plan for memory apart serves memory that overlaps", i);
        for (int64_t ahead = -99; ahead < 100; ahead += 33) {
            const int n = kernels_when_near(text[i], ahead, ahead, &serves);
            cr_expect_gt(n, alone, "%zu, %lld ahead: %d kernels, alone %d", i, (long long)ahead, n,
                         alone);
            cr_expect(serves, "%zu, %lld ahead", i, (long long)ahead);
        }
        cr_expect_eq(kernels_when_near(text[i], 120, 100, &serves), alone, "%zu", i);
        cr_expect(serves, "%zu: memory that ends where the other begins", i);
        cr_expect_eq(kernels_when_near(text[i], -100, -120, &serves), alone, "%zu", i);
        cr_expect(serves, "%zu: memory that begins where the other ends", i);
    }
}

/* ---- structure ---- */

Test(fuser, shapes_of_reductions)
{
    const want list[] = {
        { "axes that do not merge",
          "%0 = input f32[6,7,8]\n%1 = sum f32[7] %0 axes=[0,2]\noutput %1\n", 4, 1, 1, 1 },
        { "two outer axes", "%0 = input f32[6,7,8]\n%1 = sum f32[8] %0 axes=[0,1]\noutput %1\n", 4,
          1, 1, 1 },
        { "a padded image",
          "%0 = input f32[6,7] strides=[9,1]\n%1 = sum f32[] %0 axes=[0,1]\noutput %1\n", 4, 1, 1,
          1 },
        { "no axes", "%0 = input f32[6,7]\n%1 = sum f32[6,7] %0 axes=[]\noutput %1\n", 4, 1, 1, 1 },
        { "nothing to sum", "%0 = input f32[6,0]\n%1 = sum f32[6] %0 axes=[1]\noutput %1\n", 4, 1,
          1, 1 },
        { "several of one domain",
          "%0 = input f32[6,70]\n%1 = sum f32[6] %0 axes=[1]\n%2 = max f32[6] %0 axes=[1]\n"
          "%3 = argmin i64[6] %0 axes=[1]\n%4 = exp f32[6,70] %0\noutput %1\noutput %2\noutput "
          "%3\noutput %4\n",
          4, 1, 1, 1 },
        { "through a reshape",
          "%0 = input f32[6,70]\n%1 = exp f32[6,70] %0\n%2 = reshape f32[2,3,70] %1\n"
          "%3 = sum f32[2,3] %2 axes=[2]\noutput %3\n",
          4, 1, 1, 1 },
        { "a running sum with neighbours",
          "%0 = input f32[6,70]\n%1 = exp f32[6,70] %0\n%2 = cumsum f32[6,70] %1 axis=1\n"
          "%3 = neg f32[6,70] %2\noutput %3\n",
          4, 1, 1, 1 },
        { "a running sum down columns",
          "%0 = input f32[6,70]\n%1 = cumsum f32[6,70] %0 axis=0\noutput %1\n", 4, 1, 1, 1 },
        { "a reshaped result",
          "%0 = input f32[6,70]\n%1 = exp f32[6,70] %0\n%2 = reshape f32[420] %1\noutput %2\n", 4,
          1, 1, 1 },
        { "an input as result", "%0 = input f32[6,70] strides=[1,6]\noutput %0\n", 4, 1, 1, 1 },
        { "random numbers",
          "%0 = random i64[5,9] word=1 seed=3 draw=8\n%1 = cast f32[5,9] %0\n"
          "%2 = slice f32[2,9] %1 start=[1,0] step=[2,1]\noutput %1\noutput %2\n",
          4, 2, 2, 2 },
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) expect(&list[i]);
}

/* What needs all of its operand at once: read through strides where it is stored, alone in its
 * segment. */
Test(fuser, routines)
{
    const want list[] = {
        { "rows turned and flipped",
          "%0 = input f32[3,40,6]\n%1 = permute f32[6,3,40] %0 perm=[2,0,1]\n"
          "%2 = slice f32[6,3,20] %1 start=[5,0,39] step=[-1,1,-2]\n"
          "%3 = argsort i64[6,3,20] %2\noutput %3\n",
          4, 1, 1, 0 },
        { "one element", "%0 = input f64[1,1]\n%1 = argsort i64[1,1] %0 descending\noutput %1\n", 4,
          1, 1, 0 },
        { "what is sorted and what follows",
          "%0 = input i32[50]\n%1 = neg i32[50] %0\n%2 = argsort i64[50] %1 descending\n"
          "%3 = take i32[50] %1 %2 axis=0\n%4 = neg i32[50] %3\noutput %4\noutput %2\n",
          4, 3, 3, 2 },
        { "found in an image",
          "%0 = input u8[6,7] strides=[9,1]\n%1 = reshape u8[42] %0\n%2 = which i64[10] %1 zeros\n"
          "%3 = which i64[70] %1\noutput %2\noutput %3\n",
          4, 2, 3, 1 },
        { "into memory that is read",
          "%0 = input i64[9] wrapped\n%1 = argsort i64[9] %0\noutput %1 into %0\n", 4, 2, 2, 1 },
        { "into memory with gaps",
          "%0 = input f32[9]\n%1 = input i64[9] strides=[2] wrapped\n"
          "%2 = argsort i64[9] %0\noutput %2 into %1\n",
          4, 2, 2, 1 },
        { "over its own operand",
          "%0 = input i64[9] sole\n%1 = argsort i64[9] %0\noutput %1 donor %0\n", 4, 1, 1, 0 },
        { "elements under a mask, both through strides",
          "%0 = input f32[9] strides=[2]\n%1 = input u8[18]\n"
          "%2 = slice u8[9] %1 start=[17] step=[-2]\n%3 = compress f32[5] %0 %2\n"
          "%4 = compress u8[20] %2 %2\noutput %3\noutput %4\n",
          4, 1, 2, 0 },
        { "elements and mask are made",
          "%0 = input f32[9]\n%1 = neg f32[9] %0\n%2 = lt bool[9] %0 %1\n"
          "%3 = compress f32[5] %1 %2\n%4 = neg f32[5] %3\noutput %4\n",
          4, 3, 3, 2 },
        { "beside what it reads",
          "%0 = input i64[9] sole\n%1 = which i64[9] %0\n%2 = neg i64[9] %0\n"
          "output %2 donor %0\noutput %1\n",
          4, 1, 2, 1 },
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) expect(&list[i]);
    fuse_result r;
    const char *const some = "%0 = input f32[5,40]\n%1 = argsort i64[5,40] %0\noutput %1\n",
                      *const more =
                          "%0 = input f32[17,300]\n%1 = argsort i64[17,300] %0\noutput %1\n",
                      *const down =
                          "%0 = input f32[5,40]\n%1 = argsort i64[5,40] %0 descending\noutput %1\n";
    cr_expect_eq(fuse_serves(some, more, 4, &r), 1, "%s", r.text);
    cr_expect_lt(fuse_serves(some, down, 4, &r), 0, "the direction is part of the identity");
}

/* What adds to its base: the base stands in the result's memory before, made there or copied. */
Test(fuser, scatters)
{
    const want list[] = {
        { "zeros are filled in",
          "%0 = cst f32[40,6] 0\n%1 = input i64[5]\n%2 = input f32[5,6]\n"
          "%3 = index_add f32[40,6] %0 %1 %2 axis=0\noutput %3\n",
          4, 2, 2, 1 },
        { "operands through strides",
          "%0 = input f32[4,9] strides=[1,4]\n%1 = input i64[3,5]\n%2 = permute i64[5,3] %1 "
          "perm=[1,0]\n%3 = input f32[8,5,3]\n%4 = slice f32[4,5,3] %3 start=[7,0,0] "
          "step=[-2,1,1]\n%5 = index_add f32[4,9] %0 %2 %4 axis=1\noutput %5\n",
          4, 2, 2, 1 },
        { "over what is made, twice",
          "%0 = input f32[8,40]\n%1 = exp f32[8,40] %0\n%2 = input i64[8,3]\n"
          "%3 = input f32[8,3]\n%4 = scatter_add f32[8,40] %1 %2 %3 axis=1\n"
          "%5 = scatter_add f32[8,40] %4 %2 %3 axis=1\noutput %5\n",
          4, 3, 3, 1 },
        { "what is added to is read as well",
          "%0 = input f32[40]\n%1 = exp f32[40] %0\n%2 = input i64[7]\n%3 = input f32[7]\n"
          "%4 = index_add f32[40] %1 %2 %3 axis=0\n%5 = sub f32[40] %4 %1\noutput %5\n",
          4, 4, 4, 3 },
        { "values from the base",
          "%0 = input f32[40]\n%1 = exp f32[40] %0\n%2 = input i64[7]\n"
          "%3 = slice f32[7] %1 start=[39] step=[-2]\n"
          "%4 = index_add f32[40] %1 %2 %3 axis=0\noutput %4\n",
          4, 3, 3, 2 },
        { "values from what lies under the base, which is replaced",
          "%0 = input f32[40]\n%1 = exp f32[40] %0\n%2 = input f32[5]\n"
          "%3 = slice f32[5] %1 start=[3] step=[1]\n%4 = update f32[40] %1 %2 %3\n"
          "%5 = neg f32[40] %4\n%6 = input i64[40]\n"
          "%7 = index_add f32[40] %5 %6 %1 axis=0\noutput %7\n",
          4, 4, 6, 3 },
        { "values from the base, again and again",
          "%0 = input f32[40]\n%1 = exp f32[40] %0\n%2 = input i64[2,3]\n"
          "%3 = slice f32[3] %1 start=[0] step=[1]\n%4 = expand f32[2,3] %3\n"
          "%5 = index_add f32[40] %1 %2 %4 axis=0\noutput %5\n",
          4, 3, 3, 2 },
        { "a part is replaced, then added to",
          "%0 = input f32[40]\n%1 = input f32[5]\n%2 = slice f32[5] %0 start=[3] step=[1]\n"
          "%3 = update f32[40] %0 %1 %2\n%4 = input i64[7]\n%5 = input f32[7]\n"
          "%6 = index_add f32[40] %3 %4 %5 axis=0\n"
          "%7 = slice f32[5] %6 start=[9] step=[1]\n%8 = update f32[40] %6 %1 %7\noutput %8\n",
          4, 3, 5, 2 },
        { "a whole row of one element",
          "%0 = input f32[1]\n%1 = input i64[1]\n%2 = num f32[1] 5\n"
          "%3 = neg i64[1] %1\n%4 = sub i64[1] %3 %3\n"
          "%5 = index_add f32[1] %0 %4 %2 axis=0\noutput %5\n",
          4, 2, 4, 3 },
        { "into memory that is read",
          "%0 = input f32[9] wrapped\n%1 = input i64[4]\n%2 = input f32[4]\n"
          "%3 = index_add f32[9] %0 %1 %2 axis=0\noutput %3 into %0\n",
          4, 1, 1, 0 },
        { "into memory, at indices that are computed",
          "%0 = input f32[9] wrapped\n%1 = iota i64[4] axis=0\n%2 = input f32[4]\n"
          "%3 = index_add f32[9] %0 %1 %2 axis=0\noutput %3 into %0\n",
          4, 3, 4, 2 },
        { "into memory, with values from it",
          "%0 = input f32[9] wrapped\n%1 = input i64[4]\n"
          "%2 = slice f32[4] %0 start=[5] step=[1]\n"
          "%3 = index_add f32[9] %0 %1 %2 axis=0\noutput %3 into %0\n",
          4, 3, 3, 1 },
        { "over what is given up",
          "%0 = input f32[9] sole\n%1 = input i64[4]\n%2 = input f32[4]\n"
          "%3 = index_add f32[9] %0 %1 %2 axis=0\noutput %3 donor %0\n",
          4, 1, 1, 0 },
        { "over what is given up, twice",
          "%0 = input f32[9] sole\n%1 = input i64[4]\n%2 = input f32[4]\n"
          "%3 = index_add f32[9] %0 %1 %2 axis=0\n%4 = index_add f32[9] %3 %1 %2 axis=0\n"
          "output %4 donor %0\n",
          4, 2, 2, 0 },
        { "over what is given up and is the indices",
          "%0 = input i64[9] sole\n%1 = cst i64[9] 1\n"
          "%2 = index_add i64[9] %0 %0 %1 axis=0\noutput %2 donor %0\n",
          4, 2, 3, 2 },
        { "over what is given up, at indices that are computed",
          "%0 = input f32[9] sole\n%1 = iota i64[4] axis=0\n%2 = input f32[4]\n"
          "%3 = index_add f32[9] %0 %1 %2 axis=0\noutput %3 donor %0\n",
          4, 2, 3, 2 },
        { "beside what is given up",
          "%0 = input f32[9] sole\n%1 = input i64[4]\n%2 = input f32[4]\n%3 = cst f32[9] 1\n"
          "%4 = index_add f32[9] %3 %1 %2 axis=0\n%5 = add f32[9] %4 %0\n"
          "output %4 donor %0\noutput %5\n",
          4, 3, 3, 2 },
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) expect(&list[i]);
    fuse_result r;
    const char *const some = "%0 = cst f32[40,6] 0\n%1 = input i64[5]\n%2 = input f32[5,6]\n"
                             "%3 = index_add f32[40,6] %0 %1 %2 axis=0\noutput %3\n",
                      *const more = "%0 = cst f32[7,60] 0\n%1 = input i64[50]\n"
                                    "%2 = input f32[50,60]\n"
                                    "%3 = index_add f32[7,60] %0 %1 %2 axis=0\noutput %3\n",
                      *const other = "%0 = cst f32[40,6] 0\n%1 = input i64[5]\n"
                                     "%2 = input f32[40,5]\n"
                                     "%3 = index_add f32[40,6] %0 %1 %2 axis=1\noutput %3\n";
    cr_expect_eq(fuse_serves(some, more, 4, &r), 1, "%s", r.text);
    cr_expect_lt(fuse_serves(some, other, 4, &r), 0, "the axis is part of the identity");
}

/* ---- values of one element ---- */

/* A place that an unsqueeze or a reshape makes one element long gives the value no loop to run
 * over, so what is written there may not keep one, whatever stands beside it in the unit. */
static void one_element(const char *shape, const char *view, const char *beside)
{
    char text[1200];
    snprintf(text, sizeof text,
             "%%0 = input f32[%s]\n"
             "%%1 = input f32[%s]\n"
             "%%2 = input f32[] sole\n"
             "%%3 = %s f32[%s] %%2%s\n"
             "%%4 = add f32[%s] %%0 %%1\n"
             "%%5 = exp f32[%s] %%4\n"
             "%%6 = update f32[] %%2 %%5 %%3\n"
             "%%7 = %s\n"
             "output %%6 donor %%2\n"
             "output %%7\n",
             shape, shape, view, shape,
             strcmp(view, "reshape") == 0 ? ""
             : strchr(shape, ',')         ? " axes=[0,1]"
                                          : " axes=[0]",
             shape, shape, beside);
    const fuse_result r = fuse_check(text, 4);
    cr_expect(r.ok, "%s\n%s", text, r.text);
    cr_expect(!r.retreated, "%s\n%s", text, r.text);
    cr_expect_eq(r.n_launches, 1, "%u launches of %s", r.n_launches, text);
}

Test(fuser, one_element_beside_reductions)
{
    static const char *const view[] = { "unsqueeze", "reshape" };
    static const char *const beside1[] = { "sum f32[] %0 axes=[0]",
                                           "sum f32[1] %0 axes=[0] keepdims",
                                           "max f32[] %4 axes=[0]", "cumsum f32[1] %0 axis=0",
                                           "cumsum f32[1] %5 axis=0" };
    static const char *const beside2[] = { "sum f32[] %0 axes=[0,1]", "sum f32[1] %0 axes=[0]",
                                           "sum f32[1] %5 axes=[1]", "cumsum f32[1,1] %0 axis=1" };
    for (size_t v = 0; v < DF_LEN(view); v++) {
        for (size_t i = 0; i < DF_LEN(beside1); i++) one_element("1", view[v], beside1[i]);
        for (size_t i = 0; i < DF_LEN(beside2); i++) one_element("1,1", view[v], beside2[i]);
    }
}

/* The first update had taken the caller's memory, the second can't be written over it: the first
 * gives it up, or it is read from there after the second came. */
Test(fuser, callers_memory_is_given_up)
{
    static const char text[] = "%0 = input f64[] wrapped\n"
                               "%1 = add f64[] %0 %0\n"
                               "%2 = slice f64[] %0 start=[] step=[]\n"
                               "%3 = num f64[] 0x1.99999ap-4\n"
                               "%4 = update f64[] %0 %3 %2\n"
                               "%5 = slice f64[] %4 start=[] step=[]\n"
                               "%6 = num f64[] 0x0p+0\n"
                               "%7 = le bool[] %6 %5\n"
                               "%8 = update f64[] %4 %1 %5\n"
                               "output %8 into %0\n"
                               "output %1\n"
                               "output %3\n"
                               "output %1\n"
                               "output %7\n";
    fuse_result r = fuse_check(text, 4);
    cr_expect(r.ok, "%s", r.text);
    cr_expect(!r.retreated, "%s", r.text);
    /* The temporary that it gets is laid out without the gaps of that memory. */
    static const char gaps[] = "%0 = input f64[7,5] strides=[9,1] wrapped\n"
                               "%1 = add f64[7,5] %0 %0\n"
                               "%2 = slice f64[7,5] %0 start=[0,0] step=[1,1]\n"
                               "%3 = exp f64[7,5] %2\n"
                               "%4 = update f64[7,5] %0 %3 %2\n"
                               "%5 = slice f64[7,5] %4 start=[0,0] step=[1,1]\n"
                               "%6 = num f64[] 0x0p+0\n"
                               "%7 = le bool[7,5] %6 %5\n"
                               "%8 = update f64[7,5] %4 %1 %5\n"
                               "output %8 into %0\n"
                               "output %1\n"
                               "output %7\n";
    r = fuse_check(gaps, 4);
    cr_expect(r.ok, "%s", r.text);
    cr_expect(!r.retreated, "%s", r.text);
}

/* An update that covers its base may be computed before the base is written: the second of two such
 * covers waits for the first alone. */
Test(fuser, covers_wait_for_no_base)
{
    static const char *const text[] = {
        "%0 = input f64[2]\n"
        "%1 = num f64[] 1\n"
        "%2 = add f64[2] %0 %1\n"
        "%3 = slice f64[1] %2 start=[1] step=[1]\n"
        "%4 = squeeze f64[] %3 axes=[0]\n"
        "%5 = update f64[2] %2 %1 %4\n"
        "%6 = slice f64[1] %5 start=[1] step=[1]\n"
        "%7 = update f64[2] %5 %6 %6\n"
        "%8 = slice f64[2] %7 start=[0] step=[1]\n"
        "%9 = slice f64[2] %2 start=[0] step=[1]\n"
        "%10 = update f64[2] %7 %9 %8\n"
        "%11 = slice f64[2] %10 start=[0] step=[1]\n"
        "%12 = update f64[2] %10 %9 %11\n"
        "output %12\n"
        "output %9\n"
        "output %6\n",
        "%0 = input f32[16]\n"
        "%1 = num f32[] 0x1p-3\n"
        "%2 = copysign f32[16] %0 %1\n"
        "%3 = isfinite bool[16] %2\n"
        "%4 = num f32[] 0x1p-1\n"
        "%5 = eq bool[16] %0 %4\n"
        "%6 = cast f32[16] %5\n"
        "%7 = tan f32[16] %6\n"
        "%8 = slice bool[1] %3 start=[9] step=[1]\n"
        "%9 = squeeze bool[] %8 axes=[0]\n"
        "%10 = cast f32[] %9\n"
        "%11 = slice f32[8] %7 start=[7] step=[1]\n"
        "%12 = expand f32[8] %10\n"
        "%13 = update f32[16] %7 %12 %11\n"
        "%14 = slice f32[16] %13 start=[0] step=[1]\n"
        "%15 = update f32[16] %13 %2 %14\n"
        "%16 = slice f32[1] %15 start=[7] step=[1]\n"
        "%17 = squeeze f32[] %16 axes=[0]\n"
        "%18 = update f32[16] %15 %10 %17\n"
        "output %18\n"
        "output %2\n"
        "output %3\n"
        "output %5\n"
        "output %10\n",
    };
    for (size_t i = 0; i < DF_LEN(text); i++) {
        const fuse_result r = fuse_check(text[i], 4);
        cr_expect(r.ok, "%s", r.text);
        cr_expect(!r.retreated, "%s", r.text);
    }
}

/* One row of a million elements would keep one thread busy: the sum goes first, over all threads.
 */
Test(fuser, stages_only_where_rows_are_enough)
{
    static const char big[] = "%0 = input f32[100000]\n"
                              "%1 = sum f32[1] %0 axes=[0] keepdims\n"
                              "%2 = div f32[100000] %0 %1\n"
                              "output %2\n";
    static const char small[] = "%0 = input f32[1000]\n"
                                "%1 = sum f32[1] %0 axes=[0] keepdims\n"
                                "%2 = div f32[1000] %0 %1\n"
                                "output %2\n";
    const want one = { "one thread", big, 1, 1, 1, 1 }, many = { "eight threads", big, 8, 2, 2, 2 },
               few = { "a short row", small, 8, 1, 1, 1 };
    expect(&one);
    expect(&many);
    expect(&few);
    fuse_result r;
    cr_expect_eq(fuse_serves(small, big, 8, &r), 0, "a plan for short rows is not for long ones");
    cr_expect_eq(fuse_serves(big, small, 8, &r), 0);
    cr_expect_eq(fuse_serves(small, big, 1, &r), 1, "%s", r.text);
}

Test(fuser, small_temporaries_take_no_large_memory)
{
    /* Of 16384 bytes are %2, which is done with before %4 is there, and %6, which comes after it.
     */
    const fuse_result r = fuse_check("%0 = input f32[64,64]\n"
                                     "%1 = input f32[64,2]\n"
                                     "%2 = matmul f32[64,64] %0 %0\n"
                                     "%3 = matmul f32[64,2] %2 %1\n"
                                     "%4 = matmul f32[64,2] %0 %3\n"
                                     "%5 = permute f32[2,64] %4 perm=[1,0]\n"
                                     "%6 = matmul f32[64,64] %4 %5\n"
                                     "%7 = matmul f32[64,2] %6 %3\n"
                                     "%8 = add f32[64,2] %7 %4\n"
                                     "output %8\n",
                                     4);
    cr_expect(r.ok, "%s", r.text);
    cr_expect_eq(r.temporary_bytes, df_buffer_bytes(16384 + 2 * 512), "%lld bytes",
                 (long long)r.temporary_bytes);
}

static void expect_temporaries(const char *trace, int64_t bytes)
{
    const fuse_result r = fuse_check(trace, 4);
    cr_expect(r.ok, "%s", r.text);
    cr_expect_eq(r.temporary_bytes, df_buffer_bytes(bytes), "%lld bytes, not %lld",
                 (long long)r.temporary_bytes, (long long)df_buffer_bytes(bytes));
}

/* %2 could be computed first. It is read last, and its operands are inputs. */
#define READ_LATE                                                                                  \
    "%0 = input f32[64,64]\n"                                                                      \
    "%1 = input f32[64,2]\n"                                                                       \
    "%2 = matmul f32[64,64] %0 %0\n"                                                               \
    "%3 = permute f32[64,64] %0 perm=[1,0]\n"                                                      \
    "%4 = matmul f32[64,64] %0 %3\n"                                                               \
    "%5 = matmul f32[64,64] %4 %0\n"                                                               \
    "%6 = matmul f32[64,2] %5 %1\n"                                                                \
    "%7 = matmul f32[64,2] %2 %6\n"                                                                \
    "output %7\n"

Test(fuser, what_is_read_late_is_computed_late)
{
    expect_temporaries(READ_LATE, 2 * 16384 + 512);
    /* Its group may not wait for an update of what it reads. */
    expect_temporaries("%0 = input f32[64,64] sole\n"
                       "%1 = input f32[64,2]\n"
                       "%2 = matmul f32[64,64] %0 %0\n"
                       "%3 = permute f32[64,64] %0 perm=[1,0]\n"
                       "%4 = matmul f32[64,64] %0 %3\n"
                       "%5 = matmul f32[64,64] %4 %4\n"
                       "%6 = slice f32[1,64] %0 start=[0,0] step=[1,1]\n"
                       "%7 = slice f32[1,64] %5 start=[2,0] step=[1,1]\n"
                       "%8 = update f32[64,64] %0 %7 %6\n"
                       "%9 = matmul f32[64,2] %5 %1\n"
                       "%10 = matmul f32[64,2] %2 %9\n"
                       "output %8 donor %0\n"
                       "output %10\n",
                       3 * 16384);
}

Test(fuser, a_value_is_stored_over_an_operand_that_ends_with_it)
{
    static const struct {
        const char *name, *program;
        int64_t bytes;
    } cases[] = {
        { "the same elements",
          "%2 = max f32[64,1] %1 axes=[1] keepdims\n%3 = sub f32[64,64] %1 %2\n"
          "%4 = matmul f32[64,64] %3 %0\noutput %4\n",
          16384 },
        { "the transposed ones",
          "%2 = permute f32[64,64] %1 perm=[1,0]\n%3 = max f32[64,1] %2 axes=[1] keepdims\n"
          "%4 = sub f32[64,64] %2 %3\n%5 = matmul f32[64,64] %4 %0\noutput %5\n",
          2 * 16384 },
        { "another row, too",
          "%2 = slice f32[64,64] %1 start=[63,0] step=[-1,1]\n"
          "%3 = max f32[64,1] %1 axes=[1] keepdims\n%4 = sub f32[64,64] %1 %3\n"
          "%5 = add f32[64,64] %4 %2\n%6 = matmul f32[64,64] %5 %0\noutput %6\n",
          2 * 16384 },
        { "another reader, later",
          "%2 = max f32[64,1] %1 axes=[1] keepdims\n%3 = sub f32[64,64] %1 %2\n"
          "%4 = matmul f32[64,64] %3 %0\n%5 = matmul f32[64,64] %4 %1\noutput %5\n",
          3 * 16384 },
    };
    for (size_t i = 0; i < DF_LEN(cases); i++) {
        char text[1000];
        snprintf(text, sizeof text, "%%0 = input f32[64,64]\n%%1 = matmul f32[64,64] %%0 %%0\n%s",
                 cases[i].program);
        const fuse_result r = fuse_check(text, 4);
        cr_expect(r.ok, "%s: %s", cases[i].name, r.text);
        cr_expect_eq(r.temporary_bytes, df_buffer_bytes(cases[i].bytes), "%s: %lld bytes",
                     cases[i].name, (long long)r.temporary_bytes);
    }
}

Test(fuser, small_temporaries_lie_side_by_side_in_the_memory_of_a_large_one)
{
    expect_temporaries("%0 = input f32[64,64]\n"
                       "%1 = input f32[64,16]\n"
                       "%2 = matmul f32[64,64] %0 %0\n"
                       "%3 = matmul f32[64,16] %2 %1\n"
                       "%4 = matmul f32[64,16] %0 %3\n"
                       "%5 = matmul f32[64,16] %0 %4\n"
                       "%6 = matmul f32[64,16] %0 %5\n"
                       "%7 = add f32[64,16] %6 %5\n"
                       "%8 = add f32[64,16] %7 %4\n"
                       "%9 = add f32[64,16] %8 %3\n"
                       "output %9\n",
                       16384 + 4096);
}

/* %3 is a sigmoid of the product %2. Then come n_between products, all of the same depth. The last
 * reads %3, and %2 too when reads_both is set. */
static fuse_result read_late(int depth, int n_between, bool reads_both, int64_t over_bytes)
{
    char text[2000];
    const df_limits l = {
        .n_threads = 4, .max_body = DF_MAX_BODY, .fuse = true, .over_bytes = over_bytes
    };
    int n = snprintf(text, sizeof text,
                     "trace v1\n"
                     "%%0 = input f32[4,%d]\n"
                     "%%1 = input f32[%d,%d]\n"
                     "%%2 = matmul f32[4,%d] %%0 %%1\n"
                     "%%3 = sigmoid f32[4,%d] %%2\n"
                     "%%4 = mul f32[4,%d] %%2 %%3\n",
                     depth, depth, depth, depth, depth, depth);
    int last = 4;
    for (int i = 0; i < n_between; i++, last++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%%%d = matmul f32[4,%d] %%%d %%1\n",
                      last + 1, depth, last);
    snprintf(text + n, sizeof text - (size_t)n,
             "%%%d = mul f32[4,%d] %%%d %%3\n"
             "%%%d = mul f32[4,%d] %%%d %%%d\n"
             "output %%%d\n",
             last + 1, depth, last, last + 2, depth, last + 1, reads_both ? 2 : 0, last + 2);
    return fuse_check_limits(text, &l);
}

Test(fuser, large_values_that_are_read_much_later_are_computed_again)
{
    static const struct {
        int depth, n_between;
        bool reads_both, is_again;
    } cases[] = { { 384, 9, true, true },
                  { 384, 2, true, false },
                  { 384, 9, false, false },
                  { 320, 9, true, false } };
    for (size_t i = 0; i < DF_LEN(cases); i++) {
        const int depth = cases[i].depth, n_between = cases[i].n_between;
        const int64_t bytes = 4 * depth * (int64_t)sizeof(float);
        const fuse_result stored = read_late(depth, n_between, cases[i].reads_both, bytes + 1);
        const fuse_result r = read_late(depth, n_between, cases[i].reads_both, bytes);
        cr_expect(stored.ok && !stored.retreated, "%zu: %s", i, stored.text);
        cr_expect(r.ok && !r.retreated, "%zu: %s", i, r.text);
        cr_expect_eq(r.n_ins > stored.n_ins + 10, cases[i].is_again, "%zu: %u and %u instructions",
                     i, r.n_ins, stored.n_ins);
        cr_expect_eq(r.n_launches, stored.n_launches, "%zu", i);
        if (cases[i].is_again)
            cr_expect_leq(r.temporary_bytes + bytes, stored.temporary_bytes, "%zu", i);
    }
}

/* %2 and %3 are read first and last; in between up to four others live at once. */
#define LATE                                                                                       \
    "%0 = input f32[64,64] sole\n"                                                                 \
    "%1 = input f32[64,64]\n"                                                                      \
    "%2 = matmul f32[64,64] %1 %0\n"                                                               \
    "%3 = sigmoid f32[64,64] %1\n"                                                                 \
    "%4 = matmul f32[64,64] %2 %3\n"                                                               \
    "%5 = matmul f32[64,64] %4 %1\n"                                                               \
    "%6 = matmul f32[64,64] %5 %4\n"                                                               \
    "%7 = matmul f32[64,64] %6 %5\n"                                                               \
    "%8 = add f32[64,64] %7 %4\n"                                                                  \
    "%9 = matmul f32[64,64] %8 %1\n"                                                               \
    "%10 = matmul f32[64,64] %9 %3\n"                                                              \
    "%11 = add f32[64,64] %10 %2\n"                                                                \
    "output %11\n"

/* over_bytes: df_limits.over_bytes */
static fuse_result bounded_over(int n_values, const char *program, const char *more,
                                int64_t over_bytes)
{
    char text[2000];
    const df_limits l = { .n_threads = 4,
                          .max_body = DF_MAX_BODY,
                          .fuse = true,
                          .keep_why = true,
                          .over_bytes = over_bytes };
    snprintf(text, sizeof text, "trace v1 temporaries=%d\n%s%s", n_values * 16384, program, more);
    return fuse_check_limits(text, &l);
}

/* No value is stored over an operand. */
static fuse_result bounded(int n_values, const char *program, const char *more)
{
    return bounded_over(n_values, program, more, INT64_MAX);
}

static uint32_t count_words(const char *text, const char *word)
{
    uint32_t n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) n++;
    return n;
}

Test(fuser, what_is_read_late_is_computed_again)
{
    static const char program[] = LATE;
    const fuse_result free_one = bounded(9, program, "");
    cr_expect(free_one.ok, "%s", free_one.text);
    cr_expect_eq(free_one.n_segs, 8, "%u", free_one.n_segs);
    cr_expect_eq(free_one.temporary_bytes, 6 * 16384);
    for (int n = 5; n >= 4; n--) {
        const fuse_result r = bounded(n, program, "");
        cr_expect(r.ok, "%d: %s", n, r.text);
        cr_expect(!r.retreated, "%d: %s", n, r.text);
        cr_expect_eq(r.temporary_bytes, n * 16384, "%d: %lld", n, (long long)r.temporary_bytes);
        cr_expect_eq(r.n_segs, 8u + 6u - (uint32_t)n, "%d: %u segments", n, r.n_segs);
        cr_expect_eq(r.n_kernels, free_one.n_kernels, "%d: %u kernels", n, r.n_kernels);
        cr_expect_eq(r.n_launches, free_one.n_launches, "%d: %u launches", n, r.n_launches);
    }
    const fuse_result no = bounded(3, program, "");
    cr_expect(!no.ok && strstr(no.text, "at most 49152 bytes of temporaries"), "%s", no.text);
    cr_expect(strstr(no.text, "is 65536; the largest is of 16384 bytes: matmul"), "%s", no.text);
}

/* Programs pass UINT64_MAX to lift the bound of a context. */
Test(fuser, bounds_beyond_all_sizes_refuse_no_size)
{
    static const char *const bounds[] = { "18446744073709551615", "9223372036854775808",
                                          "9223372036854775807" };
    static const char form[] = "trace v1 temporaries=%s\n"
                               "%%0 = input f32[%d,%d]\n"
                               "%%1 = matmul f32[%d,%d] %%0 %%0\n"
                               "%%2 = matmul f32[%d,%d] %%1 %%0\n"
                               "output %%2\n";
    char text[2][400];
    fuse_result r;
    for (size_t i = 0; i < DF_LEN(bounds); i++) {
        for (int k = 0; k < 2; k++) {
            const int n = k ? 90 : 20;
            snprintf(text[k], sizeof text[k], form, bounds[i], n, n, n, n, n, n);
        }
        cr_expect_eq(fuse_serves(text[0], text[0], 4, &r), 1, "%s: %s", bounds[i], r.text);
        cr_expect_eq(fuse_serves(text[0], text[1], 4, &r), 1, "%s: %s", bounds[i], r.text);
    }
}

Test(fuser, products_are_repeated_last)
{
    char text[2000];
    snprintf(text, sizeof text, "trace v1 temporaries=%d\n%s", 4 * 16384, LATE);
    char *const plan = fuse_plan_text(text, 4), *const all = fuse_plan_text(LATE, 4);
    cr_assert(plan && all);
    cr_expect(!strstr(plan, "segments=8 ") && strstr(all, "segments=8 "), "%s", plan);
    cr_expect_eq(count_words(plan, "matmul"), count_words(all, "matmul"), "%s", plan);
    free(plan);
    free(all);
}

/* %4 and %5 are scans of the product %2, and read late; %3 is the epilogue of %2, and read early.
 */
#define SCANNED                                                                                    \
    "%0 = input f32[64,64]\n"                                                                      \
    "%1 = input f32[64,64]\n"                                                                      \
    "%2 = matmul f32[64,64] %0 %1\n"                                                               \
    "%3 = sigmoid f32[64,64] %2\n"                                                                 \
    "%4 = cumsum f32[64,64] %2 axis=0\n"                                                           \
    "%5 = cumsum f32[64,64] %2 axis=1\n"                                                           \
    "%6 = matmul f32[64,64] %3 %1\n"                                                               \
    "%7 = matmul f32[64,64] %6 %1\n"                                                               \
    "%8 = matmul f32[64,64] %7 %6\n"                                                               \
    "%9 = matmul f32[64,64] %8 %7\n"                                                               \
    "%10 = matmul f32[64,64] %9 %8\n"                                                              \
    "%11 = add f32[64,64] %10 %7\n"                                                                \
    "%12 = add f32[64,64] %11 %6\n"                                                                \
    "%13 = matmul f32[64,64] %12 %1\n"                                                             \
    "%14 = matmul f32[64,64] %13 %1\n"                                                             \
    "%15 = matmul f32[64,64] %14 %1\n"                                                             \
    "%16 = matmul f32[64,64] %15 %4\n"                                                             \
    "%17 = matmul f32[64,64] %16 %1\n"                                                             \
    "%18 = matmul f32[64,64] %17 %5\n"                                                             \
    "output %18\n"

Test(fuser, product_done_again_is_stored_for_copies_that_read_it)
{
    /* With one value less, %4 and its product are done again, and the epilogue of that product has
     * no reader behind the peak. With two less, %5 reads the product that was done again, too. */
    const fuse_result free_one = bounded(9, SCANNED, "");
    cr_expect(free_one.ok && !free_one.retreated, "%s", free_one.text);
    cr_expect_eq(free_one.temporary_bytes, 7 * 16384);
    for (int n = 6; n >= 5; n--) {
        const fuse_result r = bounded(n, SCANNED, "");
        cr_expect(r.ok, "%d: %s", n, r.text);
        cr_expect(!r.retreated, "%d: %s", n, r.text);
        cr_expect_eq(r.temporary_bytes, n * 16384, "%d: %lld", n, (long long)r.temporary_bytes);
        cr_expect_eq(r.n_segs, free_one.n_segs + 8u - (uint32_t)n, "%d: %u segments", n, r.n_segs);
        cr_expect_eq(r.n_launches, free_one.n_launches, "%d: %u launches", n, r.n_launches);
    }
}

/* Of 6 values that live at once, one is stored over an operand. So one less is computed again under
 * each bound, and a bound that the plan without a bound meets changes nothing. */
Test(fuser, bounded_values_are_stored_over_operands)
{
    static const char *const programs[] = { LATE, SCANNED };
    for (size_t i = 0; i < DF_LEN(programs); i++) {
        const fuse_result apart = bounded(20, programs[i], "");
        const fuse_result over = fuse_check(programs[i], 4);
        const int n_apart = (int)(apart.temporary_bytes / 16384);
        const int n_over = (int)(over.temporary_bytes / 16384);
        cr_expect(apart.ok && over.ok, "%s%s", apart.text, over.text);
        cr_expect_eq(n_over, n_apart - 1, "%zu: %d and %d", i, n_over, n_apart);
        cr_expect_eq(over.n_segs, apart.n_segs);
        for (int n = n_over + 2; n >= n_over - 1; n--) {
            const fuse_result r = bounded_over(n, programs[i], "", 0);
            const int again = n < n_over ? n_over - n : 0;
            cr_expect(r.ok && !r.retreated, "%zu, %d: %s", i, n, r.text);
            cr_expect_eq(r.temporary_bytes, (n_over - again) * 16384, "%zu, %d: %lld bytes", i, n,
                         (long long)r.temporary_bytes);
            cr_expect_eq(r.n_segs, bounded(n + 1, programs[i], "").n_segs, "%zu, %d: %u", i, n,
                         r.n_segs);
        }
    }
}

Test(fuser, what_is_overwritten_is_not_read_again)
{
    /* %0 is written in place when %2 has read it, so that %2 cannot be had again. */
    static const char update[] = "%12 = slice f32[1,64] %0 start=[0,0] step=[1,1]\n"
                                 "%13 = slice f32[1,64] %1 start=[2,0] step=[1,1]\n"
                                 "%14 = update f32[64,64] %0 %13 %12\n"
                                 "output %14 donor %0\n";
    const fuse_result one = bounded(5, LATE, update);
    cr_expect(one.ok, "%s", one.text);
    cr_expect_eq(one.n_kept, 1);
    const fuse_result both = bounded(4, LATE, update);
    cr_expect(!both.ok && strstr(both.text, "of temporaries are allowed"), "%s", both.text);
}

/* Two temporaries that live at once, put into one region: one is written over the other one
 * before that is read, in the same launch, or with it. */
Test(fuser, temporaries_that_meet_are_no_plan)
{
    df_arena arena;
    df_arena_init(&arena, &df_mem_system);
    df_trace *t = NULL;
    df_diag d = { 0 };
    cr_assert_eq(df_trace_parse(&d, LATE, strlen(LATE), &arena, &t), DEFT_OK, "%s", d.text);
    const df_limits l = { .n_threads = 4, .max_body = DF_MAX_BODY, .fuse = true };
    df_plan *plan = NULL;
    cr_assert_eq(df_fuse(&d, t, &l, &df_mem_system, &plan), DEFT_OK, "%s", d.text);
    cr_expect_eq(df_plan_verify(&d, plan), DEFT_OK, "%s", d.text);
    uint32_t n_same = 0, n_written = 0, n_before = 0;
    for (uint32_t i = 0; i < plan->n_bufs; i++)
        for (uint32_t k = 0; k < plan->n_bufs; k++) {
            df_plan_buf *const a = &plan->bufs[i], *const b = &plan->bufs[k];
            if (i == k || a->kind != DF_BUF_TEMP || b->kind != DF_BUF_TEMP) continue;
            if (a->last < b->first || b->last < a->first) continue;
            if (a->over.i == k || b->over.i == i) continue; /* stored over it on purpose */
            const uint32_t was = b->index;
            b->index = a->index;
            df_diag_clear(&d);
            cr_expect_neq(df_plan_verify(&d, plan), DEFT_OK, "buffers %u and %u", i, k);
            n_same += strstr(d.text, "a launch reads what it writes") != NULL;
            n_written += strstr(d.text, "two temporaries are written to one place") != NULL;
            n_before += strstr(d.text, "a temporary is read that is not there") != NULL;
            b->index = was;
        }
    cr_expect(n_same > 0 && n_written > 0 && n_before > 0, "%u, %u, %u", n_same, n_written,
              n_before);
    df_plan_destroy(&plan, &df_mem_system);
    df_arena_finish(&arena);
}

Test(fuser, dear_values_are_not_computed_twice)
{
    /* Both results need the matmul and the exp; the exp lies in the epilogue's reach of one only.
     */
    const want w = {
        "shared exp",
        "%0 = input f32[30,40]\n%1 = exp f32[30,40] %0\n%2 = permute f32[40,30] %1 perm=[1,0]\n"
        "%3 = sum f32[30] %1 axes=[1]\n%4 = sum f32[30] %2 axes=[0]\n%5 = sum f32[40] %1 axes=[0]\n"
        "output %3\noutput %4\noutput %5\n",
        4,
        2,
        3,
        3
    };
    const fuse_result r = fuse_check(w.trace, 4);
    cr_expect(r.ok, "%s", r.text);
    cr_expect_leq(r.n_launches, 2);
}

/* ---- reuse ---- */

static void serves(const char *name, const char *a, const char *b, int answer)
{
    fuse_result r;
    const int have = fuse_serves(a, b, 4, &r);
    cr_expect_eq(have, answer, "%s: %d: %s", name, have, r.text);
    if (answer == 1) cr_expect(r.ok, "%s: %s", name, r.text);
}

Test(fuser, plans_serve_other_extents)
{
    static const char square[] =
        "%0 = input f32[64,64]\n%1 = input f32[64]\n%2 = add f32[64,64] %0 %1\n"
        "%3 = sum f32[64] %2 axes=[1]\noutput %3\n";
    static const char oblong[] =
        "%0 = input f32[3,17]\n%1 = input f32[17]\n%2 = add f32[3,17] %0 %1\n"
        "%3 = sum f32[3] %2 axes=[1]\noutput %3\n";
    static const char single[] =
        "%0 = input f32[3,17]\n%1 = input f32[1]\n%2 = add f32[3,17] %0 %1\n"
        "%3 = sum f32[3] %2 axes=[1]\noutput %3\n";
    static const char lone[] =
        "%0 = input f32[1,17]\n%1 = input f32[17]\n%2 = add f32[1,17] %0 %1\n"
        "%3 = sum f32[1] %2 axes=[1]\noutput %3\n";
    static const char none[] =
        "%0 = input f32[0,17]\n%1 = input f32[17]\n%2 = add f32[0,17] %0 %1\n"
        "%3 = sum f32[0] %2 axes=[1]\noutput %3\n";
    serves("a batch that equals the width", square, oblong, 1);
    serves("a batch of one", square, lone, 1);
    serves("from a batch of one", lone, oblong, 1);
    serves("an empty batch", oblong, none, 1);
    serves("a bias of one element", oblong, single, 0);

    /* Windows move and numbers change without a new plan; steps and kept axes are facts. */
    static const char at0[] =
        "%0 = input f32[20,6]\n%1 = slice f32[5,6] %0 start=[0,0] step=[1,1]\n"
        "%2 = num f32[] 3\n%3 = mul f32[5,6] %1 %2\noutput %3\n";
    static const char at9[] =
        "%0 = input f32[31,4]\n%1 = slice f32[8,4] %0 start=[9,0] step=[1,1]\n"
        "%2 = num f32[] 5\n%3 = mul f32[8,4] %1 %2\noutput %3\n";
    static const char cut[] =
        "%0 = input f32[31,4]\n%1 = slice f32[8,3] %0 start=[9,1] step=[1,1]\n"
        "%2 = num f32[] 5\n%3 = mul f32[8,3] %1 %2\noutput %3\n";
    serves("a moving window", at0, at9, 1);
    serves("a window cut in width", at0, cut, 0);
    serves("the whole width under a plan for windows", cut, at0, 1);

    static const char padded[] =
        "%0 = input f32[20,6] strides=[8,1]\n%1 = exp f32[20,6] %0\noutput %1\n";
    static const char wider[] =
        "%0 = input f32[21,5] strides=[9,1]\n%1 = exp f32[21,5] %0\noutput %1\n";
    static const char dense_rows[] = "%0 = input f32[20,6]\n%1 = exp f32[20,6] %0\noutput %1\n";
    static const char turned[] =
        "%0 = input f32[20,6] strides=[1,20]\n%1 = exp f32[20,6] %0\noutput %1\n";
    serves("other padding", padded, wider, 1);
    serves("no padding under a padded plan", padded, dense_rows, 1);
    serves("padding under a dense plan", dense_rows, padded, 0);
    serves("a transposed input", padded, turned, 0);

    serves("heat of another size", heat, heat, 1);
    char *const a = strdup(heat);
    for (char *at = a; (at = strstr(at, "40,50")) != NULL;) memcpy(at, "31,60", 5);
    for (char *at = a; (at = strstr(at, "38,48")) != NULL;) memcpy(at, "29,58", 5);
    serves("heat of another size", heat, a, 1);
    free(a);
}

/* ---- bounds ---- */

static df_trace *chain(df_arena *arena, uint32_t n)
{
    df_builder b;
    df_diag d = { 0 };
    cr_assert_eq(df_build_init(&b, arena, &d), DEFT_OK);
    const df_shape s = { .rank = 1, .dim = { 8 } };
    const df_ref x = df_build_input(&b, DEFT_F32, &s, NULL),
                 y = df_build_input(&b, DEFT_F32, &s, NULL);
    df_ref at = x;
    for (uint32_t i = 0; i < n; i++) {
        const df_ref src[2] = { at, i % 3 ? at : y };
        at = df_build_op(&b, i % 2 ? DF_OP_sub : DF_OP_mul, DEFT_F32, 0, src, 2, NULL, 0, NULL);
    }
    df_build_root(&b, at, DF_ROOT_NEW, DF_NONE, DF_NONE);
    cr_assert_eq(b.st, DEFT_OK, "%s", d.text);
    return b.t;
}

/* Where a window stands and what a number is change nothing of how a run is laid out; an extent, a
 * stride, and the base of an index do. */
Test(fuser, runs_are_laid_out_by_sizes)
{
    static const char form[] =
        "%%0 = input f32[%d,6] strides=[%d,1]\n%%1 = slice f32[5,6] %%0 start=[%d,0] step=[1,1]\n"
        "%%2 = num f32[] %d\n%%3 = mul f32[5,6] %%1 %%2\n%%4 = input f32[6,7]\n"
        "%%5 = slice f32[6,3] %%4 start=[0,%d] step=[1,1]\n%%6 = matmul f32[5,3] %%3 %%5\n"
        "output %%6\n";
    static const struct {
        int rows, stride, at, number, column;
        bool same;
    } to[] = { { 20, 8, 9, 3, 1, true },
               { 20, 8, 2, 7, 4, true },
               { 31, 8, 2, 3, 1, false },
               { 20, 9, 2, 3, 1, false } };
    char first[600], other[600];
    snprintf(first, sizeof first, form, 20, 8, 2, 3, 1);
    for (size_t i = 0; i < DF_LEN(to); i++) {
        fuse_result r;
        snprintf(other, sizeof other, form, to[i].rows, to[i].stride, to[i].at, to[i].number,
                 to[i].column);
        cr_expect_eq(fuse_serves(first, other, 4, &r), 1, "%zu: %s", i, r.text);
        cr_expect(r.ok, "%zu: %s", i, r.text);
        cr_expect_eq(r.same_sizes, to[i].same, "%zu", i);
    }
    static const char count[] =
        "%%0 = input f32[%d]\n%%1 = iota i64[%d] axis=0\n%%2 = cast f32[%d] %%1\n"
        "%%3 = add f32[%d] %%0 %%2\noutput %%3\n";
    fuse_result r;
    snprintf(first, sizeof first, count, 9, 9, 9, 9);
    snprintf(other, sizeof other, count, 10, 10, 10, 10);
    cr_expect_eq(fuse_serves(first, other, 4, &r), 1, "%s", r.text);
    cr_expect(r.ok && !r.same_sizes, "%s", r.text);
}

Test(fuser, long_chains_are_cut)
{
    df_arena arena;
    df_arena_init(&arena, &df_mem_system);
    const df_trace *const t = chain(&arena, 200000);
    const df_limits l = { .n_threads = 4, .max_body = 1000, .fuse = true };
    df_diag d = { 0 };
    df_plan *plan = NULL;
    cr_assert_eq(df_fuse(&d, t, &l, &df_mem_system, &plan), DEFT_OK, "%s", d.text);
    cr_expect_eq(df_plan_verify(&d, plan), DEFT_OK, "%s", d.text);
    cr_expect_eq(plan->n_segs, 200);
    cr_expect_leq(plan->n_kernels, 8, "equal bodies share code: %u", plan->n_kernels);
    cr_expect_eq(plan->n_regions, 2, "two temporaries live at a time");
    df_plan_destroy(&plan, &df_mem_system);
    df_arena_finish(&arena);

    const df_limits tight = { .n_threads = 4, .max_body = 3, .fuse = true };
    const char *const all[] = { map_bias, softmax, layer_norm, mse,    cross_entropy,
                                heat,     nbody,   dense,      concat, indexed };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const fuse_result r = fuse_check_limits(all[i], &tight);
        cr_expect(r.ok, "program %zu: %s", i, r.text);
    }
}

/* Two kernels need the end of a long chain of sums. How deep it is costs no stack. */
Test(fuser, long_chains_are_shared)
{
    const int n = (int)test_size(200000, 40000);
    const df_limits wide = { .n_threads = 4, .max_body = 2 * (uint32_t)n, .fuse = true };
    df_str s;
    df_str_init(&s, &df_mem_system);
    df_str_fmt(&s, "%%0 = input f32[40,50]\n");
    for (int i = 1; i <= n; i++) df_str_fmt(&s, "%%%d = add f32[40,50] %%%d %%0\n", i, i - 1);
    for (int i = 0; i < 2; i++)
        df_str_fmt(&s, "%%%d = sum f32[%d] %%%d axes=[%d]\n", n + 1 + i, i ? 40 : 50, n, i);
    df_str_fmt(&s, "output %%%d\noutput %%%d\n", n + 1, n + 2);
    const fuse_result r = fuse_check_limits(s.at, &wide);
    cr_expect(r.ok, "%s", r.text);
    df_str_finish(&s);
}

/* Where products take halves, their casts to f32 are read through: strides, halves that other
 * kernels round to, two products of one operand. FAST ones only where both are of one dtype. */
Test(fuser, products_of_halves)
{
    static const char step[] = "%0 = input f16[8,16]\n"
                               "%1 = input f16[12,16]\n"
                               "%2 = cast f32[8,16] %0\n"
                               "%3 = cast f32[12,16] %1\n"
                               "%4 = permute f32[16,12] %3 perm=[1,0]\n"
                               "%5 = matmul f32[8,12] %2 %4\n"
                               "%6 = cast f16[8,12] %5\n"
                               "%7 = cast f32[8,12] %6\n"
                               "%8 = sin f32[8,12] %7\n"
                               "%9 = cast f16[8,12] %8\n"
                               "%10 = cast f32[8,12] %9\n"
                               "%11 = matmul f32[8,16] %10 %3\n"
                               "output %11\n";
    static const char both[] = "%0 = input f16[8,16]\n"
                               "%1 = input bf16[16,12]\n"
                               "%2 = cast f32[8,16] %0\n"
                               "%3 = cast f32[16,12] %1\n"
                               "%4 = matmul f32[8,12] %2 %3\n"
                               "output %4\n";
    const df_limits f32 = { .n_threads = 4, .max_body = 1000, .fuse = true };
    const df_limits halves = { .n_threads = 4, .max_body = 1000, .fuse = true, .lifts = true };
    fuse_result r = fuse_check_limits(step, &f32);
    cr_expect(r.ok && r.n_segs == 4, "%s, %u", r.text, r.n_segs);
    r = fuse_check_limits(step, &halves);
    cr_expect(r.ok && r.n_segs == 2 && r.n_kernels == 1, "%s, %u", r.text, r.n_segs);
    r = fuse_check_limits(both, &halves);
    cr_expect(r.ok && r.n_segs == 1, "%s, %u", r.text, r.n_segs);
    char fast[512];
    (void)snprintf(fast, sizeof fast, "trace v1 fast\n%s", both);
    r = fuse_check_limits(fast, &halves);
    cr_expect(r.ok && r.n_segs > 1, "%s, %u", r.text, r.n_segs);
}

/* A CPU with instructions for bf16 reads both operands of a product as they are: in FAST traces,
 * and where the instructions have the strict bits also in others. */
Test(fuser, products_of_bf16)
{
    static const char form[] = "%s%%0 = input %s[8,16]\n"
                               "%%1 = input %s[16,12]\n"
                               "%%2 = cast f32[8,16] %%0\n"
                               "%%3 = cast f32[16,12] %%1\n"
                               "%%4 = matmul f32[8,12] %%2 %%3\n"
                               "output %%4\n";
    static const struct {
        const char *flags, *a, *b;
        bool has_chains, is_read;
    } cases[] = { { "trace v1 fast\n", "bf16", "bf16", false, true },
                  { "trace v1 fast\n", "f16", "f16", true, false },
                  { "trace v1 fast\n", "bf16", "f16", true, false },
                  { "", "bf16", "bf16", false, false },
                  { "", "bf16", "bf16", true, true },
                  { "", "f16", "f16", true, false },
                  { "", "bf16", "f16", true, false } };
    for (size_t i = 0; i < DF_LEN(cases); i++) {
        char text[512];
        const df_limits limits = { .n_threads = 4,
                                   .max_body = 1000,
                                   .fuse = true,
                                   .lifts_bf16 = cases[i].has_chains,
                                   .lifts_fast_bf16 = true };
        (void)snprintf(text, sizeof text, form, cases[i].flags, cases[i].a, cases[i].b);
        const fuse_result r = fuse_check_limits(text, &limits);
        cr_expect(r.ok && (r.n_segs == 1) == cases[i].is_read, "%s, %u", r.text, r.n_segs);
    }
}

/* Sums over rows and over columns of what `%s` makes of the rows, less their sums, divided by the
 * sums of their squares. */
static const char of_rows[] = "%%0 = input f32[40,50]\n"
                              "%%1 = sum f32[40,1] %%0 axes=[1] keepdims\n"
                              "%%2 = sub f32[40,50] %%0 %%1\n"
                              "%%3 = square f32[40,50] %%2\n"
                              "%%4 = sum f32[40,1] %%3 axes=[1] keepdims\n"
                              "%%5 = div f32[40,50] %%2 %%4\n"
                              "%%6 = %s f32[40,50] %%5\n"
                              "%%7 = mul f32[40,50] %%6 %%0\n"
                              "%%8 = sum f32[50] %%7 axes=[0]\n"
                              "%%9 = mul f32[40,50] %%6 %%6\n"
                              "%%10 = sum f32[40] %%9 axes=[1]\n"
                              "output %%8\n"
                              "output %%10\n";

/* What several kernels need is stored as the values of rows from which it is quickly computed, not
 * as all of its elements. */
Test(fuser, values_of_rows_are_stored_in_place_of_elements)
{
    enum { ELEMENTS = 40 * 50 * 4, ROWS = 2 * 64 * 4 };
    static const struct {
        const char *op;
        bool stores_elements;
    } cases[] = { { "neg", false }, { "abs", false }, { "exp", true } };
    for (size_t i = 0; i < DF_LEN(cases); i++) {
        char text[1024];
        (void)snprintf(text, sizeof text, of_rows, cases[i].op);
        const fuse_result r = fuse_check(text, 4);
        cr_expect(r.ok && !r.retreated, "%s", r.text);
        cr_expect_eq(r.temporary_bytes >= ELEMENTS, cases[i].stores_elements, "%s: %lld",
                     cases[i].op, (long long)r.temporary_bytes);
        cr_expect(cases[i].stores_elements || r.temporary_bytes <= ROWS);
    }
}

Test(fuser, text_is_stable)
{
    char *const a = fuse_plan_text(layer_norm, 4), *const b = fuse_plan_text(layer_norm, 4);
    cr_expect_str_eq(a, b);
    cr_expect_not_null(strstr(a, "kernel k0 row axes=[outer,red] stages=3\n"));
    cr_expect_not_null(strstr(a, "launch 0\n"));
    cr_expect_not_null(strstr(a, "contiguous: input 0"));
    free(a);
    free(b);
}

/* Sums of rows, each with a part of it replaced: a place of its own, and an update in it. */
static void put_updated_sums(char *text, size_t size, int n)
{
    size_t used = (size_t)snprintf(text, size, "%%0 = input f32[40,50]\n");
    for (int i = 0, at = 1; i < n; i++, at += 4)
        used +=
            (size_t)snprintf(text + used, size - used,
                             "%%%d = sum f32[40] %%0 axes=[1]\n"
                             "%%%d = slice f32[3] %%%d start=[%d] step=[1]\n"
                             "%%%d = neg f32[3] %%%d\n"
                             "%%%d = update f32[40] %%%d %%%d %%%d\n",
                             at, at + 1, at, i % 37, at + 2, at + 1, at + 3, at, at + 2, at + 1);
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, size - used, "output %%%d\n", 4 * i + 4);
    cr_assert_lt(used, size);
}

/* Each allocation fails once: always the same status, nothing is left behind. */
Test(fuser, memory_may_be_short)
{
    char sums[8192];
    put_updated_sums(sums, sizeof sums, 40);
    const char *const all[] = { layer_norm, heat, dense, concat, cross_entropy, sums };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fail_mem *f = fail_mem_create();
        df_arena arena;
        df_arena_init(&arena, &df_mem_system);
        df_trace *t = NULL;
        df_diag d = { 0 };
        cr_assert_eq(df_trace_parse(&d, all[i], strlen(all[i]), &arena, &t), DEFT_OK, "%s", d.text);
        const df_limits l = { .n_threads = 4, .max_body = 1000, .fuse = true, .keep_why = true };
        deft_status st = DEFT_E_MEMORY;
        size_t n = 1;
        for (; st != DEFT_OK && n < 2000; n++) {
            df_plan *plan = NULL;
            fail_mem_at(f, n, false);
            st = df_fuse(&d, t, &l, fail_mem_get(f), &plan);
            fail_mem_at(f, 0, false);
            cr_expect(st == DEFT_OK || st == DEFT_E_MEMORY, "program %zu, allocation %zu: %s", i, n,
                      d.text);
            cr_expect_eq(st == DEFT_OK, plan != NULL);
            df_plan_destroy(&plan, fail_mem_get(f));
            const fail_mem_counts c = fail_mem_count(f);
            cr_expect_eq(c.live_blocks, 0, "program %zu, allocation %zu", i, n);
            cr_expect_eq(c.faults, 0, "%s", fail_mem_fault(f));
        }
        cr_expect_eq(st, DEFT_OK);
        cr_expect_gt(n, 10);
        df_arena_finish(&arena);
        fail_mem_destroy(&f);
    }
}
