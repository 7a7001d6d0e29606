/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps over joined arrays (fuser/kernels/pieces.c): when the array is not stored, and what that
 * means for launches, bytes of temporaries, donated memory, updates of the map and bounds. Each
 * plan is also run, and compared with an evaluation node by node (support/fuse_check.h).
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "../support/fuse_check.h"

enum { TEXT = 4096, N = 64 };

/* A trace that grows by lines. All arrays are f32[64,64]. */
typedef struct text {
    char at[TEXT];
    size_t used;
    int n;
} text;

static int line(text *t, const char *what, const char *rest)
{
    t->used += (size_t)snprintf(t->at + t->used, TEXT - t->used, "%%%d = %s\n", t->n, what);
    if (*rest) t->used += (size_t)snprintf(t->at + t->used - 1, TEXT - t->used, " %s\n", rest) - 1;
    return t->n++;
}

static int input(text *t, const char *flags)
{
    return line(t, "input f32[64,64]", flags);
}

static int map(text *t, const char *op, int a, int b)
{
    char s[80];
    snprintf(s, sizeof s, b < 0 ? "%s f32[64,64] %%%d" : "%s f32[64,64] %%%d %%%d", op, a, b);
    return line(t, s, "");
}

static int transposed(text *t, int of)
{
    char s[64];
    snprintf(s, sizeof s, "permute f32[64,64] %%%d perm=[1,0]", of);
    return line(t, s, "");
}

static int columns(text *t, int of, int from, int n)
{
    char s[96];
    snprintf(s, sizeof s, "slice f32[64,%d] %%%d start=[0,%d] step=[1,1]", n, of, from);
    return line(t, s, "");
}

static int update(text *t, int base, int value, int from, int n)
{
    char s[80];
    const int place = columns(t, base, from, n);
    snprintf(s, sizeof s, "update f32[64,64] %%%d %%%d %%%d", base, value, place);
    return line(t, s, "");
}

/* Columns of x, moved by `by` to the right. */
static int roll(text *t, int x, int by)
{
    const int last = columns(t, x, N - by, by), first = columns(t, x, 0, N - by);
    const int base = line(t, "empty f32[64,64]", "");
    return update(t, update(t, base, last, 0, by), first, by, N - by);
}

static void output(text *t, int node, const char *rest)
{
    t->used += (size_t)snprintf(t->at + t->used, TEXT - t->used, "output %%%d %s\n", node, rest);
}

static fuse_result plan(const text *t)
{
    const fuse_result r = fuse_check(t->at, 4);
    cr_assert(r.ok, "%s\n%s", r.text, t->at);
    cr_assert(!r.retreated, "%s", r.text);
    return r;
}

static void expect(const fuse_result *r, unsigned launches, unsigned segments, int64_t arrays)
{
    cr_assert_eq(r->n_launches, launches, "%u launches", r->n_launches);
    cr_assert_eq(r->n_segs, segments, "%u segments", r->n_segs);
    cr_assert_eq(r->temporary_bytes, arrays * N * N * 4, "%lld bytes",
                 (long long)r->temporary_bytes);
}

Test(joined, a_map_over_a_rolled_array_stores_nothing_between)
{
    text t = { .n = 0 };
    const int x = input(&t, "");
    output(&t, map(&t, "add", roll(&t, x, 3), x), "");
    const fuse_result r = plan(&t);
    expect(&r, 1, 2, 0);
    cr_assert_eq(r.n_kernels, 1, "both parts are one kernel");
}

Test(joined, other_boundaries_divide_a_map_once_more)
{
    text t = { .n = 0 };
    const int x = input(&t, "");
    output(&t, map(&t, "sub", map(&t, "add", roll(&t, x, 1), roll(&t, x, N - 1)), x), "");
    const fuse_result r = plan(&t);
    expect(&r, 1, 3, 0);
}

Test(joined, maps_of_one_array_share_the_kernels_of_its_parts)
{
    text t = { .n = 0 };
    const int x = input(&t, ""), z = input(&t, ""), joined = roll(&t, x, 3);
    output(&t, map(&t, "add", joined, z), "");
    output(&t, map(&t, "sub", joined, z), "");
    const fuse_result r = plan(&t);
    expect(&r, 1, 2, 0);
}

Test(joined, an_operand_that_each_part_computes_for_itself_is_not_stored)
{
    text t = { .n = 0 };
    const int x = input(&t, ""), z = input(&t, "");
    const int dear = map(&t, "sin", map(&t, "exp", map(&t, "tanh", z, -1), -1), -1);
    output(&t, map(&t, "mul", roll(&t, x, 3), dear), "");
    const fuse_result r = plan(&t);
    expect(&r, 1, 2, 0);
}

Test(joined, memory_of_an_operand_is_donated_to_all_parts)
{
    text t = { .n = 0 };
    const int x = input(&t, ""), z = input(&t, "sole");
    output(&t, map(&t, "add", roll(&t, x, 3), z), "donor %1");
    const fuse_result r = plan(&t);
    expect(&r, 1, 2, 0);
    cr_assert_eq(r.n_donated, 1);
}

Test(joined, memory_that_another_part_reads_is_not_donated)
{
    text t = { .n = 0 };
    const int x = input(&t, "sole");
    output(&t, map(&t, "add", roll(&t, x, 32), x), "donor %0");
    const fuse_result r = plan(&t);
    expect(&r, 1, 2, 0);
    cr_assert_eq(r.n_donated, 0);
}

Test(joined, parts_are_written_to_memory_of_the_caller)
{
    text t = { .n = 0 };
    const int x = input(&t, ""), z = input(&t, "wrapped");
    output(&t, map(&t, "add", roll(&t, x, 3), z), "into %1");
    const fuse_result r = plan(&t);
    expect(&r, 1, 2, 0);
}

/* Each half is read where the other is written. */
Test(joined, halves_that_change_places_go_to_memory_of_the_caller_by_a_copy)
{
    text t = { .n = 0 };
    const int x = input(&t, "wrapped");
    output(&t, map(&t, "add", roll(&t, x, 32), x), "into %0");
    const fuse_result r = plan(&t);
    expect(&r, 2, 3, 1);
}

Test(joined, a_map_is_updated_in_place_after_its_parts)
{
    text t = { .n = 0 };
    const int x = input(&t, ""), z = input(&t, "");
    const int y = map(&t, "add", roll(&t, x, 3), z);
    output(&t, update(&t, y, columns(&t, z, 7, 9), 1, 9), "");
    const fuse_result r = plan(&t);
    expect(&r, 2, 3, 0);
    cr_assert_eq(r.n_copied, 0);
}

Test(joined, an_array_that_is_a_result_is_read_from_there)
{
    text t = { .n = 0 };
    const int x = input(&t, ""), joined = roll(&t, x, 3);
    output(&t, joined, "");
    output(&t, map(&t, "add", joined, x), "");
    const fuse_result r = plan(&t);
    expect(&r, 2, 3, 0);
}

Test(joined, an_array_that_is_reduced_is_stored)
{
    text t = { .n = 0 };
    const int x = input(&t, ""), y = map(&t, "mul", roll(&t, x, 3), x);
    char s[64];
    snprintf(s, sizeof s, "sum f32[64] %%%d axes=[1]", y);
    output(&t, line(&t, s, ""), "");
    const fuse_result r = plan(&t);
    expect(&r, 2, 3, 1);
}

/* The first map is planned before it turns out that the array must be stored, for the result that
 * shows it in another order. Its parts would then wait for the array, which waits for nothing. */
Test(joined, an_array_that_is_stored_for_a_later_reader_is_read_by_all)
{
    text t = { .n = 0 };
    const int x = input(&t, ""), z = input(&t, ""), joined = roll(&t, x, 3);
    output(&t, map(&t, "add", joined, z), "");
    output(&t, transposed(&t, joined), "");
    const fuse_result r = plan(&t);
    expect(&r, 2, 4, 1);
}

/* Other arrays are not stored then. */
Test(joined, an_array_that_is_stored_late_leaves_others_in_pieces)
{
    text t = { .n = 0 };
    const int x = input(&t, ""), z = input(&t, "");
    const int joined = roll(&t, x, 3), other = roll(&t, z, 7);
    output(&t, map(&t, "add", joined, z), "");
    output(&t, map(&t, "sub", other, x), "");
    output(&t, transposed(&t, joined), "");
    const fuse_result r = plan(&t);
    expect(&r, 2, 6, 1);
}

/* Along the last axis of many short rows, parts would load and store the same lines. */
Test(joined, short_rows_are_stored)
{
    const fuse_result r = fuse_check("%0 = input f32[4000,1]\n"
                                     "%1 = input f32[4000,2]\n"
                                     "%2 = empty f32[4000,2]\n"
                                     "%3 = slice f32[4000,1] %2 start=[0,0] step=[1,1]\n"
                                     "%4 = update f32[4000,2] %2 %0 %3\n"
                                     "%5 = slice f32[4000,1] %4 start=[0,1] step=[1,1]\n"
                                     "%6 = update f32[4000,2] %4 %0 %5\n"
                                     "%7 = add f32[4000,2] %6 %1\n"
                                     "output %7\n",
                                     4);
    cr_assert(r.ok, "%s", r.text);
    cr_assert_eq(r.n_launches, 2);
    cr_assert_eq(r.temporary_bytes, 32768, "%lld bytes", (long long)r.temporary_bytes);
}

Test(joined, a_product_reads_a_map_that_its_parts_store)
{
    text t = { .n = 0 };
    const int x = input(&t, ""), y = map(&t, "add", roll(&t, x, 3), x);
    output(&t, map(&t, "matmul", y, x), "");
    const fuse_result r = plan(&t);
    expect(&r, 2, 3, 1);
}

/* A plan that serves one shift serves another, since boundaries are slots. */
Test(joined, a_plan_serves_other_boundaries)
{
    text t[2] = { { .n = 0 }, { .n = 0 } };
    for (int i = 0; i < 2; i++) {
        const int x = input(&t[i], "");
        output(&t[i], map(&t[i], "add", roll(&t[i], x, 3 + 17 * i), x), "");
    }
    fuse_result r;
    cr_assert_eq(fuse_serves(t[0].at, t[1].at, 4, &r), 1, "%s", r.text);
    cr_assert(r.ok, "%s", r.text);
}

/* A part of one column is computed in the rows of the sums, whatever their length. */
Test(joined, pieces_of_one_element_are_computed_behind_their_reduction)
{
    for (int n = 0; n < 6; n++) {
        char s[1024];
        snprintf(s, sizeof s,
                 "%%0 = input f32[16,%d]\n"
                 "%%1 = sum f32[16,1] %%0 axes=[1] keepdims\n"
                 "%%2 = empty f32[16,3]\n"
                 "%%3 = slice f32[16,1] %%2 start=[0,0] step=[1,1]\n"
                 "%%4 = update f32[16,3] %%2 %%1 %%3\n"
                 "%%5 = slice f32[16,1] %%4 start=[0,1] step=[1,1]\n"
                 "%%6 = update f32[16,3] %%4 %%1 %%5\n"
                 "%%7 = slice f32[16,1] %%6 start=[0,2] step=[1,1]\n"
                 "%%8 = update f32[16,3] %%6 %%1 %%7\n"
                 "%%9 = neg f32[16,3] %%8\n"
                 "output %%9\n",
                 n);
        const fuse_result r = fuse_check(s, 4);
        cr_assert(r.ok, "%s", r.text);
        cr_assert(!r.retreated, "%s", r.text);
        expect(&r, 1, 1, 0);
    }
}

/* Columns `from` .. `from` + 20 of a rolled array, of which the pieces meet at column 3. */
static text sliced(int from)
{
    text t = { .n = 0 };
    char s[64];
    const int x = input(&t, ""), part = columns(&t, roll(&t, x, 3), from, 20);
    snprintf(s, sizeof s, "neg f32[64,20] %%%d", part);
    output(&t, line(&t, s, ""), "");
    return t;
}

Test(joined, a_slice_of_one_piece_moves_within_it)
{
    const text a = sliced(3), b = sliced(40), c = sliced(2);
    fuse_result r = plan(&a);
    expect(&r, 1, 1, 0);
    cr_assert_eq(fuse_serves(a.at, b.at, 4, &r), 1, "%s", r.text);
    cr_assert(r.ok, "%s", r.text);
    cr_assert_eq(fuse_serves(a.at, c.at, 4, &r), 0, "two pieces have elements of it");
}

Test(joined, a_slice_of_two_pieces_moves_across_their_boundary)
{
    const text a = sliced(0), b = sliced(2), c = sliced(3);
    fuse_result r = plan(&a);
    expect(&r, 1, 2, 0);
    cr_assert_eq(fuse_serves(a.at, b.at, 4, &r), 1, "%s", r.text);
    cr_assert(r.ok, "%s", r.text);
    cr_assert_eq(fuse_serves(a.at, c.at, 4, &r), 1, "%s", r.text);
    cr_assert(r.ok, "%s", r.text);
}

/* Four maps are read before and after the peak. With the array beside them the least is eight
 * arrays. */
Test(joined, a_bound_is_met_that_a_stored_array_exceeds)
{
    static const char *const ops[] = { "add", "sub", "maximum", "minimum" };
    text t = { .n = 0 };
    t.used = (size_t)snprintf(t.at, TEXT, "trace v1 temporaries=%d\n", 7 * N * N * 4);
    const int x = input(&t, ""), z = input(&t, ""), joined = roll(&t, x, 3);
    int maps[4], p = x;
    for (int k = 0; k < 4; k++) maps[k] = map(&t, ops[k], joined, z);
    for (int k = 0; k < 4; k++) p = map(&t, "matmul", p, maps[k]);
    for (int k = 0; k < 4; k++) p = map(&t, "matmul", p, p);
    p = map(&t, "matmul", p, map(&t, "maximum", joined, p));
    for (int k = 0; k < 4; k++) p = map(&t, "matmul", p, maps[k]);
    output(&t, p, "");
    const fuse_result r = plan(&t);
    cr_assert_eq(r.temporary_bytes, 7 * N * N * 4, "%lld bytes", (long long)r.temporary_bytes);
}
