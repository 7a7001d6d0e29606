/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of arrays that are read and written: which numbers of a run a plan relies on, what is one
 * kernel, and what is right when the parts lie elsewhere the next time.
 */
#include "support/harness.h"

#include <math.h>
#include <string.h>

/* rows[1:] = rows[1:] - rows of y, the place and the value each by a slice of its own. */
static uint64_t kernels_of_difference(rig *r, float *x, bool nested)
{
    const deft_stats before = rig_stats(r);
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *whole = deft_wrap_mut(r->cx, DEFT_SHAPE(6, 3), DEFT_F32, x, 18 * sizeof *x, NULL);
    deft_tensor *from = nested ? deft_slice(whole, DEFT_R(1, DEFT_END)) : whole;
    const int64_t first = nested ? 1 : 2;
    deft_tensor *place = deft_slice(whole, DEFT_R(2, 6));
    deft_assign(place, deft_sub(deft_slice(from, DEFT_R(first, first + 4)), 1));
    OK(r, deft_step_end(s));
    return rig_stats(r).kernels_run - before.kernels_run;
}

Test(parts, two_slices_with_equal_bounds_are_two_places)
{
    rig r;
    rig_open(&r, NULL, NULL);
    for (int nested = 0; nested < 2; nested++) {
        float x[18];
        for (int i = 0; i < 18; i++) x[i] = (float)i;
        cr_assert_eq(kernels_of_difference(&r, x, nested), 1);
        for (int i = 0; i < 18; i++) cr_assert_eq(x[i], (float)(i < 6 ? i : i - 1), "%d", i);
    }
    rig_close(&r);
}

/* The sums of two windows of x at a and b, one of them scaled, and what two of one make. */
static void two_windows(rig *r, deft_tensor *x, int64_t a, int64_t b)
{
    float v[3], want[3];
    deft_tensor *u = deft_exp(deft_mul(deft_slice(x, DEFT_R(a, a + 3)), 0));
    deft_tensor *w = deft_mul(deft_slice(x, DEFT_R(b, b + 3)), 2);
    rig_read(r, deft_add(deft_mul(u, deft_slice(x, DEFT_R(a, a + 3))), w), v, 3);
    for (int i = 0; i < 3; i++) want[i] = (float)(a + i) + 2 * (float)(b + i);
    for (int i = 0; i < 3; i++) cr_assert_eq(v[i], want[i], "at %d, %d", (int)a, (int)b);
}

Test(parts, windows_that_move_together_recompile)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 40, 0);
    two_windows(&r, x, 0, 0);
    const deft_stats one = rig_stats(&r);
    for (int i = 1; i < 20; i++) two_windows(&r, x, i, i);
    cr_assert_eq(rig_stats(&r).plans_built, one.plans_built, "both move");
    for (int i = 0; i < 20; i++) two_windows(&r, x, i, (7 * i + 1) % 37);
    cr_assert_eq(rig_stats(&r).plans_built, one.plans_built + 1, "they part");
    for (int i = 0; i < 20; i++) two_windows(&r, x, i, i % 3 ? i : 2 * i);
    cr_assert_eq(rig_stats(&r).plans_built, one.plans_built + 1, "they meet now and then");
    rig_close(&r);
}

/* A part of the caller's memory that is read and written by slices of its own, beside the sum of
 * two windows of y. */
static uint64_t kernels_beside_windows(rig *r, float *x, deft_tensor *y, int64_t a, int64_t b)
{
    const uint64_t before = rig_stats(r).kernels_run;
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *whole = deft_wrap_mut(r->cx, DEFT_SHAPE(6), DEFT_F32, x, 6 * sizeof *x, NULL);
    deft_assign(deft_slice(whole, DEFT_R(2, 6)), deft_sub(deft_slice(whole, DEFT_R(2, 6)), 1));
    deft_assign(deft_slice(y, DEFT_R(0, 3)),
                deft_mul(deft_slice(y, DEFT_R(a, a + 3)), deft_slice(y, DEFT_R(b, b + 3))));
    OK(r, deft_step_end(s));
    return rig_stats(r).kernels_run - before;
}

Test(parts, windows_that_part_part_no_others)
{
    uint64_t kernels[2];
    for (int met = 0; met < 2; met++) {
        float v[6] = { 0, 1, 2, 3, 4, 5 };
        rig r;
        rig_open(&r, NULL, NULL);
        deft_tensor *const y = rig_range(&r, 8, 1);
        if (met) kernels_beside_windows(&r, v, y, 3, 3);
        kernels[met] = kernels_beside_windows(&r, v, y, 3, 4);
        for (int i = 0; i < 6; i++) cr_assert_eq(v[i], (float)(i < 2 ? i : i - 1 - met), "%d", i);
        cr_assert_eq(rig_stats(&r).plans_built, 1u + (unsigned)met);
        rig_close(&r);
    }
    cr_assert_eq(kernels[0], kernels[1], "%d kernels, after others have parted %d", (int)kernels[0],
                 (int)kernels[1]);
}

/* Column after column of x, each from the one before; now and then one comes of another. */
static uint64_t kernels_of_sweep(rig *r, deft_tensor *x, const int64_t *at)
{
    const uint64_t before = rig_stats(r).kernels_run;
    const deft_scope s = deft_step_begin(r->cx);
    for (int i = 0; i < 3; i++)
        deft_assign(deft_slice(x, DEFT_FULL, DEFT_AT(at[2 * i])),
                    deft_add(deft_slice(x, DEFT_FULL, DEFT_AT(at[2 * i + 1])), 1));
    OK(r, deft_step_end(s));
    return rig_stats(r).kernels_run - before;
}

Test(parts, a_sweep_that_was_interrupted_goes_on_as_one_kernel)
{
    static const int64_t along[] = { 1, 0, 2, 1, 3, 2 }, back[] = { 1, 0, 2, 1, 3, 0 };
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = deft_keep(deft_zeros(r.cx, DEFT_SHAPE(5, 4), DEFT_F32));
    OK(&r, deft_eval(&x, 1));
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(kernels_of_sweep(&r, x, along), 1, "turn %d", i);
        kernels_of_sweep(&r, x, back);
    }
    const uint64_t plans = rig_stats(&r).plans_built;
    cr_assert_leq(plans, 3, "%d plans", (int)plans); /* of them one for the zeros */
    RIG_EXPECT(&r, deft_slice(x, DEFT_AT(4)), 0, 1, 2, 1);
    rig_close(&r);
}

/* Rows taken by number, as of tokens in a sentence: each step another few are equal. */
/* Two elements of x, and two others computed of these and of two further on; those that are written
 * first, or those further on, are `step` apart. */
static uint64_t kernels_of_elements_apart(rig *r, deft_tensor *x, bool writes, int64_t step)
{
    const uint64_t before = rig_stats(r).kernels_run;
    const int64_t by = writes ? step : 1, read_by = writes ? 1 : step;
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *const first = deft_slice(x, DEFT_RS(0, 2 * by, by));
    deft_assign(first, deft_add(first, 1));
    deft_tensor *const read = deft_slice(x, DEFT_RS(6, 6 + 2 * read_by, read_by));
    deft_assign(deft_slice(x, DEFT_R(4, 6)), deft_add(read, deft_slice(x, DEFT_RS(0, 2 * by, by))));
    OK(r, deft_step_end(s));
    return rig_stats(r).kernels_run - before;
}

Test(parts, elements_that_were_apart_are_so_again)
{
    for (int writes = 0; writes < 2; writes++) {
        rig r;
        rig_open(&r, NULL, NULL);
        deft_tensor *x = rig_range(&r, 10, 0);
        OK(&r, deft_eval(&x, 1));
        for (int i = 0; i < 3; i++) {
            cr_assert_eq(kernels_of_elements_apart(&r, x, writes, 1), 1, "turn %d", i);
            kernels_of_elements_apart(&r, x, writes, 2);
        }
        if (writes)
            RIG_EXPECT(&r, x, 6, 4, 5, 3, 12, 12, 6, 7, 8, 9);
        else
            RIG_EXPECT(&r, x, 6, 7, 2, 3, 12, 15, 6, 7, 8, 9);
        rig_close(&r);
    }
}

enum { PARTS = 8 };

/* Assigns to parts of x, which have two elements each. Each new part is half the sum of the two
 * parts before it; every other part also adds its own old content. The parts before are read either
 * by the handles that were assigned or by new slices. */
static uint64_t kernels_of_parts(rig *r, deft_tensor *x, const int64_t *from, bool by_handle,
                                 uint64_t *bytes)
{
    deft_step_memory m = { 0 };
    deft_tensor *part[PARTS];
    const uint64_t before = rig_stats(r).kernels_run;
    const deft_scope s = deft_step_begin(r->cx);
    for (int i = 0; i < PARTS; i++) {
        part[i] = deft_slice(x, DEFT_R(from[i], from[i] + 2));
        if (i < 2) continue;
        deft_tensor *b[2], *sum;
        for (int k = 0; k < 2; k++)
            b[k] = by_handle ? part[i - 2 + k]
                             : deft_slice(x, DEFT_R(from[i - 2 + k], from[i - 2 + k] + 2));
        sum = deft_add(b[0], b[1]);
        deft_assign(part[i], deft_mul(i % 2 ? sum : deft_add(sum, part[i]), 0.5));
    }
    OK(r, deft_step_memory_read(s, &m, sizeof m));
    *bytes = m.temporary_bytes;
    OK(r, deft_step_end(s));
    return rig_stats(r).kernels_run - before;
}

/* The same in C: a handle shows what was assigned by it, whatever is written over that. */
static void parts_in_c(float *x, const int64_t *from)
{
    float part[PARTS][2];
    for (int i = 0; i < PARTS; i++)
        for (int j = 0; j < 2; j++) {
            float *const at = &x[from[i] + j];
            const float sum = i < 2 ? 0 : part[i - 2][j] + part[i - 1][j];
            part[i][j] = i < 2 ? *at : (i % 2 ? sum : sum + *at) * 0.5f;
            if (j == 1 && i > 1) memcpy(&x[from[i]], part[i], sizeof part[i]);
        }
}

/* Parts side by side; every second time one of them moves over others. */
static void lay_out(int64_t *from, unsigned turn)
{
    const unsigned r = (turn + 1) * 2654435761u >> 8;
    for (int i = 0; i < PARTS; i++) from[i] = 2 * i;
    if (turn % 2) from[r % PARTS] = r / PARTS % (2 * PARTS - 1);
}

Test(parts, parts_are_read_by_their_handles_as_by_views)
{
    enum { N = 2 * PARTS, TURNS = 320, LIFE = 16 };
    int64_t from[PARTS];
    float want[N], got[N];
    uint64_t bytes;
    rig r;
    for (unsigned turn = 0; turn < TURNS; turn++) {
        if (turn % LIFE == 0) rig_open(&r, NULL, NULL);
        for (int i = 0; i < N; i++) want[i] = (float)(i * i + 1);
        deft_tensor *x = rig_vector(&r, N, want);
        OK(&r, deft_eval(&x, 1));
        lay_out(from, turn % LIFE ? turn : 0);
        const uint64_t kernels = kernels_of_parts(&r, x, from, true, &bytes);
        if (turn % LIFE == 0) /* four parts to a kernel */
            cr_assert(kernels == 2 && bytes == 0, "%d kernels, %d bytes", (int)kernels, (int)bytes);
        parts_in_c(want, from);
        rig_read(&r, x, got, N);
        for (int i = 0; i < N; i++)
            cr_assert_eq(got[i], want[i], "turn %u, %d: %g, not %g", turn, i, (double)got[i],
                         (double)want[i]);
        deft_drop(&x);
        if (turn % LIFE == LIFE - 1) rig_close(&r);
    }
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, N, 0);
    OK(&r, deft_eval(&x, 1));
    lay_out(from, 0);
    cr_assert(kernels_of_parts(&r, x, from, false, &bytes) == 2 && bytes == 0);
    rig_close(&r);
}

/* x and z start from one version of an array and are then updated differently. A sum of two handles
 * is assigned to both: it must not be read from the version of the other. */
Test(parts, versions_that_part_keep_their_own)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 8, 0), *z = rig_range(&r, 8, 0);
    OK(&r, deft_eval((deft_tensor *[]){ x, z }, 2));
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const first = deft_slice(x, DEFT_R(0, 2));
    deft_assign(first, deft_add(first, 1));
    deft_assign(z, x);
    deft_tensor *const of_x = deft_slice(x, DEFT_R(4, 6)), *const of_z =
                                                               deft_slice(z, DEFT_R(1, 3));
    deft_assign(of_x, deft_mul(of_x, 2));
    deft_assign(of_z, deft_mul(of_z, 3));
    deft_tensor *const sum = deft_add(first, of_z);
    deft_assign(deft_slice(x, DEFT_R(6, 8)), sum);
    deft_assign(deft_slice(z, DEFT_R(6, 8)), sum);
    OK(&r, deft_step_end(s));
    RIG_EXPECT(&r, x, 1, 2, 2, 3, 8, 10, 7, 8);
    RIG_EXPECT(&r, z, 1, 6, 6, 3, 4, 5, 7, 8);
    rig_close(&r);
}

/* A formula that uses an intermediate value twice still runs in one kernel with the update before.
 */
Test(parts, what_a_formula_needs_twice_is_no_other_reader)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 5, 0);
    OK(&r, deft_eval(&x, 1));
    const uint64_t before = rig_stats(&r).kernels_run;
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const a = deft_slice(x, DEFT_R(0, 2));
    deft_assign(a, deft_add(a, 1));
    deft_tensor *const b = deft_slice(x, DEFT_R(2, 4)), *const w = deft_sub(b, a);
    deft_assign(b, deft_mul(w, w));
    OK(&r, deft_step_end(s));
    cr_assert_eq(rig_stats(&r).kernels_run - before, 1);
    RIG_EXPECT(&r, x, 1, 2, 1, 1, 4);
    rig_close(&r);
}

Test(parts, windows_that_meet_by_chance_recompile)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 12, 0);
    uint32_t at = 1;
    for (int t = 0; t < 60; t++) {
        deft_tensor *sum = NULL;
        float v, want = 0;
        for (int i = 0; i < 8; i++) {
            at = at * 1664525 + 1013904223;
            const int64_t k = at >> 16 & 7;
            deft_tensor *row = deft_slice(x, DEFT_AT(k));
            sum = sum ? deft_add(deft_mul(sum, 3), row) : row;
            want = i ? want * 3 + (float)k : (float)k;
        }
        rig_read(&r, sum, &v, 1);
        cr_assert_eq(v, want, "step %d", t);
    }
    cr_assert_leq(rig_stats(&r).plans_built, 5, "%d plans", (int)rig_stats(&r).plans_built);
    rig_close(&r);
}

/* The sum of windows of a padded array, one below the other at first. Their columns are apart. */
static void padded_windows(rig *r, deft_tensor *x, const int64_t row[4])
{
    float v[2], want[2] = { 0 };
    deft_tensor *sum = NULL;
    deft_tensor *const padded =
        deft_pad(x, (int64_t[]){ 2, 1 }, (int64_t[]){ 2, 1 }, DEFT_PAD_CONSTANT, 0);
    for (int i = 0; i < 4; i++) {
        deft_tensor *const w =
            deft_slice(padded, DEFT_R(row[i], row[i] + 2), DEFT_R(2 * i, 2 * i + 1));
        sum = sum ? deft_add(deft_mul(sum, 3), w) : w;
        for (int k = 0; k < 2; k++) {
            const int64_t y = row[i] + k - 2, z = 2 * i - 1;
            const bool is_within = y >= 0 && y < 6 && z >= 0 && z < 6;
            want[k] = want[k] * 3 + (is_within ? (float)(y * 6 + z) : 0);
        }
    }
    rig_read(r, sum, v, 2);
    for (int k = 0; k < 2; k++) cr_assert_eq(v[k], want[k], "%d: %g, not %g", k, v[k], want[k]);
}

Test(parts, windows_of_a_padded_array_that_part_take_one_more_plan)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = deft_reshape(rig_range(&r, 36, 0), DEFT_SHAPE(6, 6));
    OK(&r, deft_eval((deft_tensor *[]){ x }, 1));
    const uint64_t before = rig_stats(&r).plans_built;
    uint32_t at = 1;
    for (int t = 0; t < 40; t++) {
        int64_t row[4];
        for (int i = 0; i < 4; i++) {
            at = at * 1664525 + 1013904223;
            row[i] =
                t < 2 ? 3 + t : (int)(at >> 16 & 7); /* the windows move together, and then apart */
        }
        padded_windows(&r, x, row);
        cr_assert_eq(rig_stats(&r).plans_built - before, t < 2 ? 1 : 2, "step %d", t);
    }
    rig_close(&r);
}

/* Few records with many numbers each, in ways that differ from the first record on. */
static void few_records(rig *r, int way)
{
    deft_tensor *y = deft_keep(deft_full(r->cx, DEFT_SHAPE(2, 2, 2, 2, 2, 2), DEFT_F32, way));
    const deft_scope s = deft_scope_begin(r->cx);
    deft_tensor *z = way & 1 ? deft_neg(y) : deft_abs(y);
    if (way & 2) z = deft_sqrt(deft_abs(z));
    for (int i = 0; i < 200; i++)
        z = deft_slice(z, DEFT_R(0, 2), DEFT_FULL, DEFT_R(0, 2), DEFT_FULL, DEFT_R(0, 2),
                       DEFT_FULL);
    float v[64], want = (float)(way & 1 ? -way : way);
    if (way & 2) want = sqrtf(fabsf(want));
    OK(r, deft_read(z, DEFT_F32, v, sizeof v));
    cr_assert_eq(v[63], want, "%d: %g, not %g", way, (double)v[63], (double)want);
    OK(r, deft_scope_end(s));
    deft_drop(&y);
}

/* Many records with no numbers, which differ from each other at their end. */
static void many_records(rig *r, deft_tensor *x, int way)
{
    const deft_scope s = deft_scope_begin(r->cx);
    deft_tensor *y = x;
    for (int i = 0; i < 3000; i++) y = deft_neg(y);
    if (way & 1) y = deft_neg(y);
    y = way & 2 ? deft_abs(y) : deft_square(y);
    RIG_EXPECT(r, deft_sub(y, x), way & 2 ? 0 : 6);
    OK(r, deft_scope_end(s));
}

/* Where a program parts from what it repeated, its records go on beside those of another one, which
 * may have been shorter. */
Test(parts, long_programs_part_beside_short_ones)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    const deft_ctx_options plain = { .size = sizeof plain, .no_fusion = 1 };
    rig r;
    rig_open(&r, &o, &plain);
    deft_tensor *const x = RIG_VECTOR(&r, 3);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 16; i++) few_records(&r, i);
        for (int i = 0; i < 4; i++) many_records(&r, x, i);
    }
    rig_close(&r);
}

/* The inside of a cube is computed, and its faces are copied because the old value has another
 * owner. Faces of one column have as many rows as the inside, but come after faces that have
 * fewer. */
Test(parts, faces_of_a_cube_are_copied_beside_its_inside)
{
    enum { A = 8, B = 40, C = 24, N = A * B * C };
    static float x[N], y[N];
    const deft_runtime_options o = { .size = sizeof o, .n_threads = 2, .tier = DEFT_TIER_FULL };
    rig r;
    rig_open(&r, &o, NULL);
    for (int i = 0; i < N; i++) x[i] = (float)i;
    const deft_shape shape = DEFT_SHAPE(A, B, C);
    deft_tensor *cube = deft_keep(deft_from(r.cx, shape, DEFT_F32, x, sizeof x));
    deft_tensor *before = deft_keep(deft_from(r.cx, shape, DEFT_F32, x, sizeof x));
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const inside =
        deft_slice(cube, DEFT_R(1, A - 1), DEFT_R(1, B - 1), DEFT_R(1, C - 1));
    deft_assign(before, cube);
    deft_assign(inside, deft_neg(inside));
    OK(&r, deft_step_end(s));
    rig_read(&r, cube, y, N);
    for (int i = 0; i < N; i++) {
        const int a = i / C / B, b = i / C % B, c = i % C;
        const bool in = a > 0 && a < A - 1 && b > 0 && b < B - 1 && c > 0 && c < C - 1;
        cr_assert_eq(y[i], in ? -x[i] : x[i], "at %d %d %d", a, b, c);
    }
    deft_drop(&cube);
    deft_drop(&before);
    rig_close(&r);
}
