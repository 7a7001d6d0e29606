/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps recorded again: the faults that runtimes with record and replay are known for, one test
 * each, by name. What was right the first time must be right when a spine and made cuts are in
 * effect, and the counters must show that they were.
 * Why this file is long: a test for each fault.
 */
#include "support/harness.h"

#include <string.h>
#include <sys/mman.h>

#include "lazy/core/lazy.h" /* after the calls with plain numbers */

typedef struct counts {
    uint64_t cuts, matched, plans, kernels;
} counts;

static counts count(const rig *r)
{
    const deft_stats s = rig_stats(r);
    return (counts){ s.cuts, s.cuts_matched, s.plans_built, s.kernels_compiled + s.kernels_known };
}

/* Since c: so many plans at most, no more kernels than plans allow, so many cuts matched at least.
 */
static void expect_since(const rig *r, counts c, uint64_t plans, uint64_t matched, int line)
{
    const counts n = count(r);
    cr_assert_leq(n.plans - c.plans, plans, "line %d: %d plans", line, (int)(n.plans - c.plans));
    cr_assert(plans || n.kernels == c.kernels, "line %d: new kernels", line);
    cr_assert_geq(n.matched - c.matched, matched, "line %d: %d of %d cuts matched", line,
                  (int)(n.matched - c.matched), (int)(n.cuts - c.cuts));
}
#define SINCE(c, plans, matched) expect_since(&r, (c), (plans), (matched), __LINE__)

static deft_scope begin(rig *r)
{
    return deft_step_begin(r->cx);
}

#define EXPECT(t, ...) RIG_EXPECT(&r, (t), __VA_ARGS__)

/* drjit frozen functions, LTC: a branch taken at another turn is replayed as it was. */
Test(replay, stale_branch)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 2, 1), *y = rig_range(&r, 2, 0);
    counts c = { 0 };
    for (int i = 0; i < 40; i++) {
        const int turn = i % 5 == 3 ? 1 : i % 7 == 5 ? 2 : 0;
        const deft_scope s = begin(&r);
        deft_tensor *t = deft_mul(x, 2);
        if (turn == 1) t = deft_add(t, 1);
        if (turn == 2) t = deft_sub(t, x);
        deft_assign(y, deft_neg(deft_square(t)));
        OK(&r, deft_step_end(s));
        if (turn == 0) EXPECT(y, -4, -16);
        if (turn == 1) EXPECT(y, -9, -25);
        if (turn == 2) EXPECT(y, -1, -4);
        if (i == 13) c = count(&r); /* all turns were seen, and have come back once */
    }
    SINCE(c, 0, 26);
    rig_close(&r);
}

/* tinygrad #6803, pytorch/xla #69634: a number is frozen into the replay; xla #3604: two numbers
 * that become equal. */
Test(replay, changed_constant)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 2, 1), *y = rig_range(&r, 2, 0);
    counts c = { 0 };
    for (int i = 0; i < 12; i++) {
        const float a = (float)(i % 5), b = (float)(i % 3);
        const deft_scope s = begin(&r);
        deft_assign(y, deft_add(deft_mul(x, (double)a), deft_clamp(x, (double)b, 9)));
        OK(&r, deft_step_end(s));
        EXPECT(y, a + (b > 1 ? b : 1), 2 * a + 2);
        if (i == 0) c = count(&r);
    }
    SINCE(c, 0, 11);
    rig_close(&r);
}

/* tinygrad footgun tests: inputs are exchanged between replays. */
Test(replay, swapped_inputs)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *a = rig_range(&r, 2, 1), *b = rig_range(&r, 2, 10), *y = rig_range(&r, 2, 0);
    counts c = { 0 };
    for (int i = 0; i < 9; i++) {
        deft_tensor *p = i % 2 ? b : a, *q = i % 2 ? a : b;
        const deft_scope s = begin(&r);
        deft_assign(y, deft_sub(p, deft_mul(q, 2)));
        OK(&r, deft_step_end(s));
        if (i % 2)
            EXPECT(y, 8, 7);
        else
            EXPECT(y, -19, -20);
        if (i == 0) c = count(&r);
    }
    SINCE(c, 0, 8);
    rig_close(&r);
}

/* Dr.Jit freeze.h keeps an aliasing index; tinygrad #14689: one buffer in two places, then two. */
Test(replay, aliased_inputs)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *a = rig_range(&r, 2, 1), *b = rig_range(&r, 2, 10), *y = rig_range(&r, 2, 0);
    counts c = { 0 };
    for (int i = 0; i < 24; i++) {
        const deft_scope s = begin(&r);
        const float same = (float)(i % 3 == 0);
        deft_assign(b, i % 3 == 0 ? a : deft_full(r.cx, DEFT_SHAPE(2), DEFT_F32, 10));
        OK(&r, deft_step_end(s)); /* two handles: of one value, or of two */
        const deft_scope s2 = begin(&r);
        deft_assign(y, deft_sub(deft_mul(a, 100), b));
        OK(&r, deft_step_end(s2));
        EXPECT(y, same != 0 ? 99 : 90, same != 0 ? 198 : 190);
        if (i == 5) c = count(&r);
    }
    SINCE(c, 0, 24);
    /* Three operands, of which one or another two are the same. */
    for (int i = 0; i < 12; i++) {
        deft_tensor *p[3] = { a, b, y };
        OK(&r, deft_eval(&b, 1));
        p[i % 3] = p[(i + 1) % 3];
        float v[3][2], got[2];
        for (int k = 0; k < 3; k++) rig_read(&r, p[k], v[k], 2);
        const deft_scope s = begin(&r);
        deft_tensor *t = deft_keep(deft_add(deft_mul(deft_add(deft_mul(p[0], 7), p[1]), 5), p[2]));
        OK(&r, deft_step_end(s));
        rig_read(&r, t, got, 2);
        for (int k = 0; k < 2; k++)
            cr_assert_eq(got[k], (v[0][k] * 7 + v[1][k]) * 5 + v[2][k], "turn %d", i);
        deft_drop(&t);
    }
    rig_close(&r);
}

/* drjit docs/freeze.rst: made with n - 1 entries at n = 8, replayed with 7 of 15 at n = 16. */
Test(replay, sizes_n_minus_1)
{
    rig r;
    rig_open(&r, NULL, NULL);
    float data[64];
    for (int i = 0; i < 64; i++) data[i] = (float)(i * i);
    static const int64_t sizes[] = { 8, 16, 4, 2, 64, 9, 8, 3, 16, 1 };
    counts c = { 0 };
    for (int i = 0; i < 30; i++) {
        const int64_t n = sizes[i % 10];
        const deft_scope s = begin(&r);
        deft_tensor *x = deft_wrap(r.cx, DEFT_SHAPE(n), DEFT_F32, data, (size_t)n * 4, NULL);
        deft_tensor *d = deft_keep(
            deft_sub(deft_slice(x, DEFT_R(1, DEFT_END)), deft_slice(x, DEFT_R(0, n - 1))));
        OK(&r, deft_step_end(s));
        cr_assert_eq(deft_numel(d), n - 1);
        float got[64];
        rig_read(&r, d, got, n - 1);
        for (int64_t k = 0; k < n - 1; k++) cr_assert_eq(got[k], (float)(2 * k + 1));
        deft_drop(&d);
        if (i == 9) c = count(&r);
    }
    SINCE(c, 0, 15);
    rig_close(&r);
}

/* drjit ReplayVariable::init_from_input: 32-bit byte counts, 16 elements of 4 GiB + 64 B. */
Test(replay, more_than_4_gib)
{
    rig r;
    rig_open(&r, NULL, NULL);
    if (SIZE_MAX == UINT32_MAX) cr_skip_test("sizes have 32 bits");
    const size_t bytes = ((size_t)9 << 30) + 64;
    float *const big = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (big == MAP_FAILED) cr_skip_test("no %zu bytes of address space", bytes);
    const int64_t n = (int64_t)(bytes / 4), half = (int64_t)1 << 30; /* 4 GiB apart */
    big[3] = 1;
    big[3 + half] = 2;
    big[3 + 2 * half] = 3;
    big[n - 1] = 7;
    counts c = { 0 };
    for (int i = 0; i < 6; i++) {
        const int64_t len = i % 2 ? n : half + 16; /* bytes: 9 GiB + 64, 4 GiB + 64 */
        const int64_t at = i % 2 ? 3 + (i / 2 % 2 + 1) * half : 3 + (i / 2 % 2) * half;
        const deft_scope s = begin(&r);
        deft_tensor *x = deft_wrap(r.cx, DEFT_SHAPE(len), DEFT_F32, big, (size_t)len * 4, NULL);
        deft_tensor *last = deft_slice(x, DEFT_R(len - 1, len)); /* of a size of its own */
        deft_tensor *t = deft_keep(deft_mul(deft_slice(x, DEFT_R(at, at + 1)), 10));
        deft_tensor *grid = deft_wrap(r.cx, DEFT_SHAPE(2, 1), DEFT_F32, big + 3, bytes - 12,
                                      (int64_t[]){ (i % 2 + 1) * half, 1 });
        deft_tensor *g = deft_keep(deft_sum(grid, DEFT_ALL_AXES, 0));
        deft_tensor *e = deft_keep(deft_neg(last));
        OK(&r, deft_step_end(s));
        EXPECT(t, (float)(10 * (1 + (at - 3) / half)));
        EXPECT(g, (float)(1 + 2 + i % 2));
        EXPECT(e, i % 2 ? -7.0f : 0.0f);
        deft_drop(&t);
        deft_drop(&g);
        deft_drop(&e);
        if (i == 1) c = count(&r);
    }
    SINCE(c, 0, 4);
    rig_close(&r);
    munmap(big, bytes);
}

/* Dr.Jit's C interface: a recording of floats replayed with integers reinterprets their bits. */
Test(replay, dtype_change)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 2, 1);
    const int32_t whole[2] = { 1, 2 };
    deft_tensor *w = deft_keep(deft_from(r.cx, DEFT_SHAPE(2), DEFT_I32, whole, sizeof whole));
    counts c = { 0 };
    for (int i = 0; i < 12; i++) {
        const deft_scope s = begin(&r);
        deft_tensor *t = deft_keep(deft_neg(deft_square(i % 2 ? w : x)));
        OK(&r, deft_step_end(s));
        cr_assert_eq(deft_dtype_of(t), i % 2 ? DEFT_I32 : DEFT_F32);
        EXPECT(t, -1, -4);
        deft_drop(&t);
        if (i == 3) c = count(&r);
    }
    SINCE(c, 0, 8);
    rig_close(&r);
}

/* pytorch #148439, #144386: what the last replay gave is overwritten by the next. */
Test(replay, held_outputs)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 2, 1), *held[10];
    deft_mapped map[10];
    counts c = { 0 };
    for (int i = 0; i < 10; i++) {
        const deft_scope s = begin(&r);
        held[i] = deft_keep(deft_mul(x, i));
        deft_assign(x, deft_add(x, 1));
        OK(&r, deft_step_end(s));
        OK(&r, deft_map(held[i], &map[i]));
        if (i == 0) c = count(&r);
    }
    SINCE(c, 0, 9);
    for (int i = 0; i < 10; i++) {
        EXPECT(held[i], (float)(i * (1 + i)), (float)(i * (2 + i)));
        cr_assert_eq(((const float *)map[i].data)[0], (float)(i * (1 + i)));
        deft_unmap(&map[i]);
    }
    rig_close(&r);
}

/* RNG offsets that a graph froze: the same numbers each replay, or others than unreplayed. */
Test(replay, random_numbers)
{
    rig r, fresh;
    rig_open(&r, NULL, NULL);
    deft_rng rng = { 5, 0 };
    deft_tensor *y = rig_range(&r, 4, 0);
    float got[4], before[4] = { 0 }, want[4];
    counts c = { 0 };
    for (int i = 0; i < 8; i++) {
        if (i == 5) rng.seed = 6;
        deft_rng copy = rng;
        const deft_scope s = begin(&r);
        deft_tensor *u = deft_uniform(r.cx, &rng, DEFT_SHAPE(4), DEFT_F32, 0, 1);
        deft_assign(y, deft_sub(u, deft_uniform(r.cx, &rng, DEFT_SHAPE(4), DEFT_F32, 0, 1)));
        OK(&r, deft_step_end(s));
        rig_read(&r, y, got, 4);
        cr_assert(memcmp(got, before, sizeof got) != 0, "the same numbers in step %d", i);
        memcpy(before, got, sizeof got);
        rig_open(&fresh, NULL, NULL);
        u = deft_uniform(fresh.cx, &copy, DEFT_SHAPE(4), DEFT_F32, 0, 1);
        u = deft_sub(u, deft_uniform(fresh.cx, &copy, DEFT_SHAPE(4), DEFT_F32, 0, 1));
        rig_read(&fresh, u, want, 4);
        rig_close(&fresh);
        cr_assert(memcmp(got, want, sizeof got) == 0, "other numbers in step %d", i);
        if (i == 0) c = count(&r);
    }
    SINCE(c, 0, 7);
    rig_close(&r);
}

/* pytorch #169545, #96693: gradients accumulated under replay are 0.25, not 1. */
Test(replay, gradient_accumulation)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *g = rig_range(&r, 2, 0), *x = rig_range(&r, 2, 1);
    counts c = { 0 };
    float want = 0;
    for (int i = 0; i < 24; i++) {
        const deft_scope s = begin(&r);
        if (i % 4 == 0) deft_assign(g, 0.0);
        deft_assign(g, deft_add(g, deft_mul(x, 0.25)));
        OK(&r, deft_step_end(s));
        want = i % 4 == 0 ? 0.25f : want + 0.25f;
        EXPECT(g, want, 2 * want);
        if (i == 5) c = count(&r);
    }
    SINCE(c, 0, 18);
    cr_assert_gt(rig_stats(&r).donated, 10, "accumulated in place");
    rig_close(&r);
}

/* Dr.Jit #213: a label broke caching; the call site is none of the identity. */
Test(replay, call_site)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 2, 1), *y = rig_range(&r, 2, 0);
    counts c = { 0 };
    for (int i = 0; i < 6; i++) {
        const deft_scope s = begin(&r);
        if (i % 2)
            deft_assign(y, deft_exp(deft_mul(x, 0)));
        else
            deft_assign(y, deft_exp(deft_mul(x, 0)));
        OK(&r, deft_step_end(s));
        EXPECT(y, 1, 1);
        if (i == 0) c = count(&r);
    }
    SINCE(c, 0, 5);
    rig_close(&r);
}

/* torch dynamo: a window of a data set that moves is another program each step. */
Test(replay, moving_window)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 40, 0), *y = rig_range(&r, 2, 0);
    counts c = { 0 };
    for (int i = 0; i < 39; i++) {
        const deft_scope s = begin(&r);
        deft_assign(y, deft_mul(deft_slice(x, DEFT_R(i, i + 2)), 3));
        OK(&r, deft_step_end(s));
        EXPECT(y, (float)(3 * i), (float)(3 * i + 3));
        if (i == 0) c = count(&r);
    }
    SINCE(c, 0, 38);
    rig_close(&r);
}

/* Dynamo's recompile limit, MLX #4464: more programs than a context remembers must stay right, and
 * must find their plans. */
Test(replay, recompile_limit)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 2, 1);
    counts c = { 0 };
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 64; i++) {
            const deft_scope s = begin(&r);
            deft_tensor *t = x;
            float want = 1;
            for (int k = 0; k < 6; k++) {
                t = i >> k & 1 ? deft_add(t, 1) : deft_mul(t, 2);
                want = i >> k & 1 ? want + 1 : want * 2;
            }
            t = deft_keep(deft_slice(t, DEFT_R(0, 1)));
            OK(&r, deft_step_end(s));
            EXPECT(t, want);
            deft_drop(&t);
            if (round == 0 && i == 63) c = count(&r);
        }
    SINCE(c, 0, 0);
    rig_close(&r);
}

/* LTC disables donation in the middle of a step: a reader that is pending sees the new value. On
 * some steps somebody else holds the old one. */
Test(replay, donation_with_a_pending_reader)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *w = rig_range(&r, 2, 1), *old = NULL;
    counts c = { 0 };
    float at = 1;
    for (int i = 0; i < 20; i++) {
        deft_mapped m = { 0 };
        if (i % 3 == 0) OK(&r, deft_map(w, &m)); /* not the only owner */
        const deft_scope s = begin(&r);
        deft_tensor *reader = deft_mul(w, 10); /* of the value before */
        if (i % 4 == 1) old = deft_keep(reader);
        deft_assign(w, deft_add(w, 1));
        if (i % 5 == 2) EXPECT(reader, at * 10, (at + 1) * 10);
        OK(&r, deft_step_end(s));
        if (i % 3 == 0) {
            cr_assert(((const float *)m.data)[0] == at && ((const float *)m.data)[1] == at + 1);
            deft_unmap(&m);
        }
        if (i % 4 == 1) EXPECT(old, at * 10, (at + 1) * 10);
        deft_drop(&old);
        at++;
        EXPECT(w, at, at + 1);
        if (i == 8) c = count(&r);
    }
    SINCE(c, 0, 11);
    rig_close(&r);
}

/* Half an optimizer step after a failure; and the next whole step is none the worse. */
Test(replay, half_a_step_after_failure)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *w = rig_range(&r, 3, 1), *m = rig_range(&r, 3, 0);
    deft_tensor *bad = rig_range(&r, 4, 0);
    counts c = { 0 };
    float at = 0;
    for (int i = 0; i < 30; i++) {
        const int how = i % 2 ? (i / 2) % 5 : 0;
        const deft_scope s = begin(&r);
        deft_assign(m, deft_add(m, 1));
        if (how == 1) (void)deft_add(m, bad);
        if (how == 2) { /* found when it runs */
            deft_tensor *at3 = deft_add(deft_iota(r.cx, DEFT_SHAPE(3), 0), 1);
            deft_assign(m, deft_take(m, at3, 0));
        }
        if (how == 4) { /* other extents than ever, then away with them */
            (void)deft_sum(deft_mul(deft_zeros(r.cx, DEFT_SHAPE(2, i), DEFT_F32), 2), DEFT_ALL_AXES,
                           0);
        }
        deft_assign(w, deft_sub(w, deft_mul(m, 2)));
        if (how == 3 || how == 4) {
            deft_step_abort(s);
        } else {
            const deft_status st = deft_step_end(s);
            cr_assert_eq(st, how == 1 ? DEFT_E_SHAPE : how == 2 ? DEFT_E_RANGE : DEFT_OK);
        }
        if (how == 0) at++;
        EXPECT(m, at, at + 1, at + 2);
        const float down = at * (at + 1);
        EXPECT(w, 1 - down, 2 - down - 2 * at, 3 - down - 4 * at);
        if (i == 12) c = count(&r);
    }
    SINCE(c, 0, 8);
    rig_close(&r);
}

/* A batch that is as large as something else for once: extents are shared by other records then. */
Test(replay, batch_equal_to_another_extent)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 12, 0), *w = rig_range(&r, 3, 1);
    static const int64_t batch[] = { 2, 2, 3, 1, 2, 0, 3, 1, 4, 2, 0, 4 };
    counts c = { 0 };
    for (int i = 0; i < 36; i++) {
        const int64_t b = batch[i % 12];
        const deft_scope s = begin(&r);
        deft_tensor *in = deft_reshape(deft_slice(x, DEFT_R(0, 3 * b)), DEFT_SHAPE(b, 3));
        deft_tensor *y = deft_sum(deft_mul(in, w), DEFT_AXES(1), 0);   /* [b] */
        deft_tensor *z = deft_keep(deft_add(deft_unsqueeze(y, 1), w)); /* [b,3] */
        OK(&r, deft_step_end(s));
        cr_assert_eq(deft_dim(z, 0), b);
        float got[12];
        rig_read(&r, z, got, 3 * b);
        for (int64_t k = 0; k < b; k++)
            for (int64_t j = 0; j < 3; j++)
                cr_assert_eq(got[3 * k + j], (float)(18 * k + 8 + j + 1));
        deft_drop(&z);
        if (i == 11) c = count(&r);
    }
    SINCE(c, 0, 6);
    rig_close(&r);
}

/* Only one field of one record is another one: the operand of a unary op, a dtype, an axis. */
Test(replay, one_field_differs)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 4, 1);
    for (int i = 0; i < 16; i++) {
        const deft_scope s = begin(&r);
        deft_tensor *q = deft_reshape(x, DEFT_SHAPE(2, 2)), *a = deft_mul(q, 10),
                    *b = deft_sub(q, a);
        deft_tensor *u = deft_keep(deft_neg(i % 3 ? a : b));
        deft_tensor *t = deft_keep(deft_cast(q, i % 2 ? DEFT_F64 : DEFT_I32));
        deft_tensor *m = deft_keep(deft_sum(q, DEFT_AXES(i % 4 == 1), 0));
        OK(&r, deft_step_end(s));
        if (i % 3)
            EXPECT(u, -10, -20, -30, -40);
        else
            EXPECT(u, 9, 18, 27, 36);
        cr_assert_eq(deft_dtype_of(t), i % 2 ? DEFT_F64 : DEFT_I32);
        EXPECT(t, 1, 2, 3, 4);
        if (i % 4 == 1)
            EXPECT(m, 3, 7);
        else
            EXPECT(m, 4, 6);
        deft_drop(&u);
        deft_drop(&t);
        deft_drop(&m);
    }
    rig_close(&r);
}

/* Which records share their extents is another thing each time two sizes happen to be equal. */
Test(replay, shared_extents)
{
    rig r;
    rig_open(&r, NULL, NULL);
    float data[16];
    for (int i = 0; i < 16; i++) data[i] = (float)(i % 7 - 3);
    uint32_t h = 1;
    for (int i = 0; i < 300; i++) {
        h = h * 1664525u + 1013904223u;
        const int64_t b = 1 + (h >> 20) % 4, k = 2 + (h >> 24) % 2, m = 1 + (h >> 28) % 4;
        const deft_scope s = begin(&r);
        deft_tensor *x =
            deft_wrap(r.cx, DEFT_SHAPE(b, k), DEFT_F32, data, (size_t)(b * k) * 4, NULL);
        deft_tensor *w =
            deft_wrap(r.cx, DEFT_SHAPE(k, m), DEFT_F32, data, (size_t)(k * m) * 4, NULL);
        deft_tensor *y = deft_matmul(x, w); /* extents of its own, or x's, or w's */
        deft_tensor *t = deft_keep(deft_neg(deft_t(deft_add(y, 1))));
        deft_tensor *n = deft_keep(deft_sum(deft_abs(deft_t(x)), DEFT_AXES(0), 0));
        OK(&r, deft_step_end(s));
        cr_assert(deft_dim(t, 0) == m && deft_dim(t, 1) == b && deft_dim(n, 0) == b);
        float got[16], sums[4];
        rig_read(&r, t, got, m * b);
        rig_read(&r, n, sums, b);
        for (int64_t p = 0; p < b; p++) {
            float sum = 0;
            for (int64_t q = 0; q < k; q++)
                sum += data[p * k + q] < 0 ? -data[p * k + q] : data[p * k + q];
            cr_assert_eq(sums[p], sum, "step %d", i);
            for (int64_t o = 0; o < m; o++) {
                float v = 0;
                for (int64_t q = 0; q < k; q++) v += data[p * k + q] * data[q * m + o];
                cr_assert_eq(got[o * b + p], -(v + 1), "step %d", i);
            }
        }
        deft_drop(&t);
        deft_drop(&n);
    }
    rig_close(&r);
}

/* More records than are kept beside others: the epoch that takes another turn ends them. */
Test(replay, long_records_take_another_turn)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 2, 1);
    for (int i = 0; i < 3; i++) {
        const deft_scope s = begin(&r);
        deft_tensor *t = x;
        for (int k = 0; k < 10; k++) t = deft_neg(t);
        if (i) t = deft_sum(t, DEFT_ALL_AXES, 0);
        for (int k = 0; k < (i == 0 ? 70000 : i == 1 ? 5 : 12); k++) t = deft_neg(t);
        cr_assert_eq(deft_rank(t), i ? 0 : 1);
        if (i == 2) cr_assert_eq(rig_item(&r, t), 3);
        deft_step_abort(s);
    }
    rig_close(&r);
}

/* Up to a length they are kept: the first turn, taken again, is compared and not checked anew. */
Test(replay, records_of_some_length_are_kept_beside_others)
{
    enum { LONGEST = 1 << 16 };
    for (uint32_t n = LONGEST - 1; n <= LONGEST + 1; n++) {
        rig r;
        rig_open(&r, NULL, NULL);
        deft_tensor *x = rig_range(&r, 2, 1);
        for (int turn = 0; turn < 2; turn++) {
            const deft_scope s = begin(&r);
            deft_tensor *t = x;
            for (int k = 0; k < 10; k++) t = deft_neg(t);
            t = turn ? deft_sum(t, DEFT_ALL_AXES, 0) : deft_neg(t);
            while (turn == 0 && r.cx->rec.n < n) t = deft_neg(t);
            deft_step_abort(s);
        }
        bool kept = false;
        for (int i = 0; i < DF_HISTORIES; i++) kept |= r.cx->histories[i].n_known == n;
        cr_assert_eq(kept, n <= LONGEST, "%u records", n);
        rig_close(&r);
    }
}

/* The same record, written to one memory and then to another; read or not read; overlapping or not.
 */
Test(replay, written_to_another_memory)
{
    rig r;
    rig_open(&r, NULL, NULL);
    float ma[2] = { 1, 2 }, mb[2] = { 10, 20 }, mc[2] = { 5, 5 };
    deft_tensor *const a = deft_keep(deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, ma, 8, NULL));
    deft_tensor *const b = deft_keep(deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, mb, 8, NULL));
    deft_tensor *const c = deft_keep(deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, mc, 8, NULL));
    for (int i = 0; i < 9; i++) {
        float want[3][2] = { { ma[0], ma[1] }, { mb[0], mb[1] }, { mc[0], mc[1] } };
        for (int k = 0; k < 2; k++) want[i % 3][k] = ma[k] - mb[k] * 2;
        const deft_scope s = begin(&r);
        deft_tensor *t = deft_sub(a, deft_mul(b, 2));
        deft_assign(i % 3 == 0 ? a : i % 3 == 1 ? b : c, t);
        OK(&r, deft_step_end(s));
        cr_assert_eq(memcmp(ma, want[0], 8), 0, "first, step %d", i);
        cr_assert_eq(memcmp(mb, want[1], 8), 0, "second, step %d", i);
        cr_assert_eq(memcmp(mc, want[2], 8), 0, "third, step %d", i);
    }
    float line[12];
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 12; k++) line[k] = (float)k;
        const int from = i % 4 == 2 ? 3 : i % 4 == 3 ? 5 : 8;
        const deft_scope s = begin(&r);
        deft_tensor *m = deft_wrap_mut(r.cx, DEFT_SHAPE(4), DEFT_F32, line + 4, 16, NULL);
        deft_assign(m,
                    deft_mul(deft_wrap(r.cx, DEFT_SHAPE(4), DEFT_F32, line + from, 16, NULL), 2));
        OK(&r, deft_step_end(s));
        for (int k = 0; k < 4; k++) cr_assert_eq(line[4 + k], (float)(2 * (from + k)));
    }
    rig_close(&r);
}

/* What was read in the middle is an input of the rest, and only then. */
Test(replay, reads_in_the_middle)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 2, 1);
    static char trace[1 << 14];
    counts c = { 0 };
    for (int i = 0; i < 64; i++) {
        const deft_scope s = begin(&r);
        deft_tensor *a = deft_mul(deft_sqrt(deft_square(x)), deft_div(deft_mul(x, i), x)),
                    *b = deft_add(a, 1), *d = deft_sub(b, a);
        if (i % 4 == 1) EXPECT(a, (float)i, (float)(2 * i));
        if (i % 4 == 2) EXPECT(b, (float)(i + 1), (float)(2 * i + 1));
        if (i % 4 == 3) {
            EXPECT(d, 1, 1);
            EXPECT(a, (float)i, (float)(2 * i));
        }
        deft_tensor *t = deft_add(deft_mul(d, 100), b);
        if (i % 5 == 4) t = deft_abs(t); /* another turn after the read */
        deft_keep(t);
        OK(&r, deft_step_end(s));
        EXPECT(t, (float)(101 + i), (float)(101 + 2 * i));
        (void)deft_show(r.cx, "trace", trace, sizeof trace);
        cr_assert_eq(strstr(trace, "sqrt") == NULL, i % 2 == 1, "step %d:\n%s", i, trace);
        deft_drop(&t);
        if (i == 23) c = count(&r);
    }
    SINCE(c, 0, 40);
    rig_close(&r);
}

/* Records that were cut off in the middle of an epoch, and others in their place. */
Test(replay, other_records_after_an_abort)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 2, 1);
    for (int i = 0; i < 12; i++) {
        const deft_scope outer = deft_scope_begin(r.cx);
        deft_tensor *a = deft_mul(x, 2); /* pending when the step begins */
        if (i % 4 != 3) {
            deft_scope s = begin(&r);
            deft_tensor *b = deft_add(a, i);
            EXPECT(b, (float)(2 + i), (float)(4 + i));
            deft_step_abort(s);
        }
        deft_tensor *t = i % 2 ? deft_sub(a, i) : deft_add(a, 100);
        EXPECT(t, i % 2 ? (float)(2 - i) : 102, i % 2 ? (float)(4 - i) : 104);
        OK(&r, deft_scope_end(outer));
    }
    rig_close(&r);
}

/* More than one forced cut in a step: each part is a turn of its own. */
Test(replay, forced_cuts)
{
    rig r;
    const deft_ctx_options o = { .size = sizeof o, .max_nodes = 16 };
    rig_open(&r, NULL, &o);
    deft_tensor *x = rig_range(&r, 2, 1), *y = rig_range(&r, 2, 0);
    counts c = { 0 };
    for (int i = 0; i < 10; i++) {
        const deft_scope s = begin(&r);
        deft_tensor *t = x;
        for (int k = 0; k < 20; k++) t = deft_add(t, i + k);
        deft_assign(y, t);
        OK(&r, deft_step_end(s));
        EXPECT(y, (float)(1 + 20 * i + 190), (float)(2 + 20 * i + 190));
        if (i == 2) c = count(&r);
    }
    SINCE(c, 0, 14);
    rig_close(&r);
}

/* Equal records whose results share the extents of different operands. A continuation is looked for
 * where the steps part: at the result itself, with a cut of it that was made, and behind it. */
Test(replay, a_result_shares_the_extents_of_another_operand)
{
    for (int reads = 0; reads < 2; reads++) {
        rig r;
        rig_open(&r, NULL, NULL);
        deft_tensor *const row = deft_keep(deft_reshape(rig_range(&r, 2, 1), DEFT_SHAPE(1, 2)));
        deft_tensor *const all = deft_keep(deft_reshape(rig_range(&r, 4, 10), DEFT_SHAPE(2, 2)));
        deft_tensor *const y = deft_keep(deft_zeros(r.cx, DEFT_SHAPE(2, 2), DEFT_F32));
        deft_tensor *const z = deft_keep(deft_ones(r.cx, DEFT_SHAPE(2, 2), DEFT_F32));
        OK(&r, deft_eval((deft_tensor *[]){ row, all, y, z }, 4));
        for (int i = 0; i < 12; i++) {
            const int turn = i % 4;
            const deft_scope s = begin(&r);
            deft_tensor *t = turn == 0   ? deft_add(all, row)
                             : turn == 1 ? deft_sub(all, row)
                                         : deft_add(row, all);
            if (reads && turn != 1) OK(&r, deft_eval(&t, 1));
            deft_assign(y, turn == 1 ? t : turn == 2 ? deft_neg(t) : deft_mul(t, z));
            OK(&r, deft_step_end(s));
            if (turn == 1)
                EXPECT(y, 9, 9, 11, 11);
            else if (turn == 2)
                EXPECT(y, -11, -13, -13, -15);
            else
                EXPECT(y, 11, 13, 13, 15);
        }
        rig_close(&r);
    }
}

/* The same record wanted for a handle once and for the caller's memory the next time. */
Test(replay, wanted_for_a_handle_then_for_memory)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 2, 1), *y = rig_range(&r, 2, 0);
    float memory[2] = { 0, 0 };
    deft_tensor *m =
        deft_keep(deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, memory, sizeof memory, NULL));
    for (int i = 1; i < 12; i++) {
        const deft_scope s = begin(&r);
        deft_assign(i % 3 ? y : m, deft_mul(x, i));
        OK(&r, deft_step_end(s));
        if (i % 3)
            EXPECT(y, (float)i, (float)(2 * i));
        else
            cr_assert(memory[0] == (float)i && memory[1] == (float)(2 * i));
    }
    rig_close(&r);
}

/* A tensor that was assigned borrowed memory has the value of that time for good. */
Test(replay, assigned_borrowed_memory)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *y = rig_range(&r, 2, 0);
    for (int i = 0; i < 4; i++) {
        float window[4] = { (float)i, 0, (float)(i + 1), 0 };
        const deft_scope s = i % 2 ? begin(&r) : deft_scope_begin(r.cx);
        deft_assign(
            y, deft_wrap(r.cx, DEFT_SHAPE(2), DEFT_F32, window, sizeof window, (int64_t[]){ 2 }));
        OK(&r, i % 2 ? deft_step_end(s) : deft_scope_end(s));
        memset(window, 0xff, sizeof window);
        EXPECT(y, (float)i, (float)(i + 1));
    }
    rig_close(&r);
}

/* Kept over several openings of its slab, then dropped: in all of them its memory goes. */
Test(replay, dropped_when_its_slab_is_open_again)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 2, 1), *at = NULL;
    uint64_t live = 0;
    for (int i = 0; i < 64; i++) {
        const deft_scope s = begin(&r);
        for (int k = 0; k < (i * 7) % 5; k++) (void)deft_mul(x, k); /* slots before, or after */
        const deft_scope in = deft_scope_begin(r.cx);
        for (int k = 0; k < (i * 3) % 4; k++) (void)deft_mul(x, k);
        if (at && i % 3 == 0) deft_assign(at, 7.0); /* the undo log knows it too */
        if (i % 2) deft_drop(&at);
        if (!at) at = deft_keep(deft_mul(x, i));
        OK(&r, deft_scope_end(in));
        OK(&r, deft_step_end(s));
        if (i == 7) live = rig_stats(&r).live_bytes;
    }
    deft_drop(&at);
    deft_tensor *none = NULL;
    deft_drop(&none);
    cr_assert_leq(rig_stats(&r).live_bytes, live);
    rig_close(&r); /* asserts that no value memory is left */
}

/* Assigned and dropped inside a scope of the step: the undo log must not bind the dead handle. */
Test(replay, assigned_and_dropped_in_a_scope)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 2, 1);
    for (int i = 0; i < 8; i++) {
        const deft_scope s = begin(&r);
        const deft_scope in = deft_scope_begin(r.cx);
        deft_tensor *t = deft_keep(deft_mul(x, 2));
        deft_assign(t, deft_add(t, 1));
        deft_drop(&t);
        OK(&r, deft_scope_end(in));
        const uint64_t cuts = rig_stats(&r).cuts;
        if (i % 2) {
            deft_step_abort(s);
        } else {
            OK(&r, deft_step_end(s));
        }
        cr_assert_eq(rig_stats(&r).cuts, cuts, "nobody is left to compute for");
    }
    rig_close(&r);
}

/* The same operations with numbers of another kind than at the last turn. A number that does not
 * fit is refused, whatever number was there before. */
Test(replay, numbers_of_other_kinds)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = rig_range(&r, 2, 1), *const y = rig_range(&r, 2, 0);
    deft_tensor *const n = deft_keep(deft_cast(rig_range(&r, 2, 4), DEFT_I32));
    deft_tensor *const z = rig_range(&r, 2, 0), *const p = rig_range(&r, 2, 0);
    for (int i = 0; i < 24; i++) {
        const int turn = i < 6 ? 0 : i % 4;
        const deft_scope s = begin(&r);
        deft_tensor *const a = deft_neg(x), *const m = deft_neg(n), *const b = deft_neg(a);
        deft_tensor *const half = turn == 1 ? deft_mul(m, 0.5) : deft_mul(m, 3);
        deft_assign(y, turn == 2 ? deft_mul(a, 2) : deft_mul(a, 2.5 + i));
        deft_assign(z, deft_cast(half, DEFT_F32));
        deft_assign(p, turn == 3 ? deft_pow(b, 2) : deft_pow(b, 17));
        OK(&r, deft_step_end(s));
        if (turn == 2)
            EXPECT(y, -2, -4);
        else
            EXPECT(y, -2.5F - (float)i, -5 - 2 * (float)i);
        if (turn == 1)
            EXPECT(z, -2, -2.5F);
        else
            EXPECT(z, -12, -15);
        if (turn == 3)
            EXPECT(p, 1, 4);
        else
            EXPECT(p, 1, 131072);
    }
    for (int i = 0; i < 2; i++) {
        const deft_scope s = begin(&r);
        deft_tensor *const a = deft_neg(x), *const m = deft_neg(n);
        deft_tensor *const b = deft_neg(a), *const c = deft_mul(m, i ? INT64_C(1) << 40 : 3);
        (void)b;
        deft_assign(y, i ? deft_mul(a, 2) : deft_mul(a, 1e39));
        deft_assign(z, deft_cast(c, DEFT_F32));
        cr_assert_eq(deft_step_end(s), DEFT_E_RANGE);
    }
    rig_close(&r);
}

/* A cut that failed is not shown as though its trace were the last plan's; and is none of those
 * counted. */
Test(replay, shown_after_a_failure)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 3, 1), *t = x;
    for (int k = 0; k < 20; k++) t = deft_sub(deft_exp(t), deft_sum(t, DEFT_ALL_AXES, 0));
    OK(&r, deft_eval(&t, 1));
    static char before[1 << 16], after[1 << 16];
    (void)deft_show(r.cx, "trace", before, sizeof before);
    for (int i = 0; i < 3; i++) {
        const deft_scope s = begin(&r);
        deft_assign(x, deft_take(x, deft_add(deft_iota(r.cx, DEFT_SHAPE(3), 0), 1), 0));
        cr_assert_eq(deft_step_end(s), DEFT_E_RANGE);
        (void)deft_show(r.cx, "plan", after, sizeof after); /* of numbers that are there */
        (void)deft_show(r.cx, "trace", after, sizeof after);
        cr_assert_str_eq(before, after);
    }
    cr_assert_leq(rig_stats(&r).cuts_matched, rig_stats(&r).cuts);
    rig_close(&r);
}
