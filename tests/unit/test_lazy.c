/* SPDX-License-Identifier: Apache-2.0
 *
 * The front door: handles, scopes, errors, views, assignment, steps, what is stored and what is
 * shared. Values are checked by hand; each Test groups checks, since each costs a process.
 * Why this file is long: each part of the front door in turn, with the few functions that they
 * share.
 */
#include "support/harness.h"

#include <math.h>
#include <string.h>

#define EXPECT(r, t, ...) RIG_EXPECT((r), (t), __VA_ARGS__)

Test(lazy, linspace_ends_with_its_last_number)
{
    rig r;
    rig_open(&r, NULL, NULL);
    for (int n = 2; n < 300; n += n < 150 ? 1 : 37) {
        const deft_scope s = deft_scope_begin(r.cx);
        float got[300];
        double wide[300];
        OK(&r, deft_read(deft_linspace(r.cx, 0.1, 0.7, n, DEFT_F32), DEFT_F32, got, (size_t)n * 4));
        OK(&r, deft_read(deft_linspace(r.cx, 0.7, -3, n, DEFT_F64), DEFT_F64, wide, (size_t)n * 8));
        cr_expect(got[0] == 0.1f && got[n - 1] == 0.7f, "%d numbers to %.9g", n,
                  (double)got[n - 1]);
        cr_expect(wide[0] == 0.7 && wide[n - 1] == -3, "%d numbers to %.17g", n, wide[n - 1]);
        OK(&r, deft_read(deft_linspace(r.cx, 0, 1, n, DEFT_F16), DEFT_F32, got, (size_t)n * 4));
        cr_expect(got[n - 1] == 1, "%d halves to %.9g", n, (double)got[n - 1]);
        OK(&r, deft_scope_end(s));
    }
    rig_close(&r);
}

Test(lazy, records_and_reads)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *a = rig_range(&r, 4, 1), *b = rig_range(&r, 4, 10);
    deft_stats s = rig_stats(&r);
    deft_tensor *c = deft_mul(deft_add(a, b), 2);
    cr_assert_eq(rig_stats(&r).cuts, s.cuts, "recording must not run anything");
    EXPECT(&r, c, 22, 26, 30, 34);
    cr_assert_eq(rig_stats(&r).cuts, s.cuts + 1);
    EXPECT(&r, c, 22, 26, 30, 34);
    cr_assert_eq(rig_stats(&r).cuts, s.cuts + 1, "a read value is kept");
    EXPECT(&r, deft_sub(deft_num(r.cx, 1), a), 0, -1, -2, -3);
    EXPECT(&r, deft_add(a, a), 2, 4, 6, 8);
    EXPECT(&r, deft_gt(a, 2), 0, 0, 1, 1);
    EXPECT(&r, deft_ge(a, 2), 0, 1, 1, 1);
    EXPECT(&r, deft_gt(b, a), 1, 1, 1, 1);
    EXPECT(&r, deft_pow(a, 3), 1, 8, 27, 64);
    EXPECT(&r,
           deft_add(deft_unsqueeze(deft_slice(a, DEFT_R(0, 2)), 1), deft_slice(b, DEFT_R(0, 2))),
           11, 12, 12, 13);
    int32_t i = 0;
    double d = 0;
    uint8_t u = 0;
    bool t = false;
    deft_tensor *x = deft_sum(a, DEFT_ALL_AXES, 0);
    OK(&r, deft_item(x, &i));
    OK(&r, deft_item(x, &d));
    OK(&r, deft_item(x, &u));
    OK(&r, deft_item(x, &t));
    cr_assert(i == 10 && d == 10 && u == 10 && t);
    deft_mapped m;
    OK(&r, deft_map(c, &m));
    cr_assert_eq(m.bytes, 16);
    cr_assert_eq(((const float *)m.data)[3], 34);
    deft_unmap(&m);
    cr_assert_null(m.data);
    rig_close(&r);
}

Test(lazy, errors_are_delivered_once)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *a = rig_range(&r, 4, 1), *b = rig_range(&r, 5, 1);
    float v;
    deft_tensor *bad = deft_add(a, b);
    cr_assert_null(bad);
    cr_assert_null(deft_mul(bad, a), "NULL passes through");
    cr_assert_eq(deft_error(r.cx), DEFT_E_SHAPE);
    cr_assert(strstr(deft_message(r.cx), "add") && strstr(deft_message(r.cx), "[4]") &&
                  strstr(deft_message(r.cx), "[5]"),
              "%s", deft_message(r.cx));
    cr_assert_eq(deft_eval((deft_tensor *[]){ a, bad }, 2), DEFT_E_SHAPE,
                 "the acting call delivers");
    cr_assert_eq(deft_error(r.cx), DEFT_OK);
    cr_assert_null(deft_add(a, b));
    cr_assert_eq(rig_item(&r, deft_sum(a, DEFT_ALL_AXES, 0)), 10, "another call has no part in it");
    cr_assert_eq(deft_error(r.cx), DEFT_E_SHAPE);
    deft_clear(r.cx);
    cr_assert_eq(rig_item(&r, deft_sum(a, DEFT_ALL_AXES, 0)), 10, "and the context goes on");

    cr_assert_null(deft_add(a, (deft_tensor *)NULL));
    cr_assert_eq(deft_error(r.cx), DEFT_E_ARG, "a NULL with no cause is one itself");
    deft_clear(r.cx);
    cr_assert_eq(deft_error(r.cx), DEFT_OK);

    cr_assert_null(deft_sum(a, DEFT_AXES(1), 0));
    cr_assert_eq(deft_error(r.cx), DEFT_E_RANGE);
    deft_clear(r.cx);
    cr_assert_null(deft_slice(a, DEFT_R(0, 9)));
    cr_assert_eq(deft_error(r.cx), DEFT_E_RANGE);
    deft_clear(r.cx);
    cr_assert_null(deft_zeros(r.cx, DEFT_SHAPE(INT64_MAX, 16), DEFT_F32));
    cr_assert_eq(deft_error(r.cx), DEFT_E_SHAPE);
    deft_clear(r.cx);
    cr_assert_null(deft_add(deft_cast(a, DEFT_U8), 300));
    cr_assert_eq(deft_error(r.cx), DEFT_E_RANGE, "a number that does not fit");
    deft_clear(r.cx);
    cr_assert_null(deft_assign(a, deft_cast(a, DEFT_F64)));
    cr_assert_eq(deft_error(r.cx), DEFT_E_DTYPE);
    deft_clear(r.cx);
    cr_assert_eq(deft_read(a, DEFT_F32, &v, sizeof v), DEFT_E_ARG);
    cr_assert(strstr(deft_message(r.cx), "16 bytes"), "%s", deft_message(r.cx));
    cr_assert_eq(deft_item(a, &v), DEFT_E_SHAPE);

    deft_ctx *other;
    OK(&r, deft_ctx_create(r.rt, NULL, &other));
    deft_tensor *o = deft_zeros(other, DEFT_SHAPE(4), DEFT_F32);
    cr_assert_null(deft_add(a, o));
    cr_assert_eq(deft_error(r.cx), DEFT_E_STATE, "two contexts");
    deft_clear(r.cx);
    cr_assert_null(deft_slice(o, DEFT_AT(77)));
    deft_ctx_destroy(&other);
    rig_close(&r);
}

Test(lazy, scopes_own_tensors)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *a = rig_range(&r, 3, 1);
    deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *stale = deft_add(a, 1);
    deft_tensor *kept = deft_keep(deft_mul(a, 3));
    OK(&r, deft_scope_end(s));
    cr_assert_null(deft_neg(stale));
    cr_assert_eq(deft_error(r.cx), DEFT_E_STATE);
    cr_assert(strstr(deft_message(r.cx), "has ended"), "%s", deft_message(r.cx));
    deft_clear(r.cx);
    s = deft_scope_begin(r.cx); /* the iteration after: the other run of slabs */
    cr_assert_null(deft_neg(stale), "last iteration's handle is still known as ended");
    deft_clear(r.cx);
    EXPECT(&r, kept, 3, 6, 9);
    deft_tensor *out = deft_scope_return(s, deft_add(kept, 1));
    EXPECT(&r, out, 4, 7, 10);
    deft_drop(&kept);
    cr_assert_null(kept);
    cr_assert_eq(deft_scope_end(s), DEFT_E_STATE, "ended already");

    deft_scope outer = deft_scope_begin(r.cx);
    (void)deft_scope_begin(r.cx);
    OK(&r, deft_scope_end(outer)); /* ends the inner one too */
    s = (deft_scope){ 0 };
    cr_assert_eq(deft_scope_end(s), DEFT_E_ARG);
    for (int i = 0; i < 3000; i++) { /* handles beyond one slab, kept ones in the middle */
        deft_scope in = deft_scope_begin(r.cx);
        deft_tensor *k = NULL;
        for (int j = 0; j < 20; j++) {
            deft_tensor *t = deft_add(a, j);
            if (j == i % 20) k = deft_keep(t);
        }
        OK(&r, deft_scope_end(in));
        if (i % 500 == 0)
            EXPECT(&r, k, 1 + (float)(i % 20), 2 + (float)(i % 20), 3 + (float)(i % 20));
        deft_drop(&k);
    }
    rig_close(&r);
}

/* A view whose root has ended is a tensor of its own: what later has the root's handle is none of
 * its business. */
Test(lazy, views_outlive_their_root_as_tensors)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *z = deft_zeros(r.cx, DEFT_SHAPE(4), DEFT_F32), *late, *view;
    for (int way = 0; way < 2; way++) {
        deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *x = deft_full(r.cx, DEFT_SHAPE(4), DEFT_F32, 1.5);
        const deft_tensor *const slot = x;
        deft_assign(z, x);
        if (way == 0) {
            view = deft_scope_return(s, deft_slice(x, DEFT_R(1, 3)));
        } else {
            deft_keep(x);
            OK(&r, deft_scope_end(s));
            deft_assign(z, x);
            view = deft_slice(x, DEFT_R(1, 3));
            deft_drop(&x);
        }
        s = deft_scope_begin(r.cx);
        OK(&r, deft_scope_end(s));
        s = deft_scope_begin(r.cx); /* on the slab of the first again */
        late = deft_zeros(r.cx, DEFT_SHAPE(4), DEFT_F32);
        cr_assert(late == slot, "the test wants the same slot");
        deft_assign(late, z);
        cr_assert(deft_assign(view, 7.0), "%s", deft_message(r.cx));
        EXPECT(&r, view, 7, 7);
        EXPECT(&r, late, 1.5f, 1.5f, 1.5f, 1.5f);
        /* A view of the view in that slot does not make a circle. */
        OK(&r, deft_scope_end(s));
        s = deft_scope_begin(r.cx);
        OK(&r, deft_scope_end(s));
        s = deft_scope_begin(r.cx);
        late = deft_slice(view, DEFT_R(0, 1));
        cr_assert(late == slot, "the test wants the same slot");
        deft_assign(late, 9.0);
        EXPECT(&r, view, 9, 7);
        OK(&r, deft_scope_end(s));
    }
    /* A step that is put back makes no view of what was kept meanwhile. */
    deft_scope outer = deft_scope_begin(r.cx);
    deft_tensor *x = deft_full(r.cx, DEFT_SHAPE(4), DEFT_F32, 1.5);
    view = deft_slice(x, DEFT_R(1, 3));
    const deft_scope step = deft_step_begin(r.cx);
    deft_assign(view, 3.0);
    deft_keep(view);
    deft_step_abort(step);
    deft_assign(view, 5.0);
    EXPECT(&r, view, 5, 5);
    EXPECT(&r, x, 1.5f, 1.5f, 1.5f, 1.5f);
    OK(&r, deft_scope_end(outer));
    deft_drop(&view);
    rig_close(&r);
}

/* A tensor that belongs to no scope ends when it is dropped, computed or not. */
Test(lazy, what_is_dropped_outside_scopes_is_no_more)
{
    for (int computed = 0; computed < 2; computed++) {
        rig r;
        rig_open(&r, NULL, NULL);
        deft_tensor *t = deft_neg(rig_range(&r, 3, 1)), *const gone = t;
        if (computed) OK(&r, deft_eval(&t, 1));
        deft_drop(&t);
        float v[3];
        cr_assert_eq(deft_read(gone, DEFT_F32, v, sizeof v), DEFT_E_STATE);
        cr_assert(strstr(deft_message(r.cx), "read: first argument was dropped"), "%s",
                  deft_message(r.cx));
        rig_close(&r);
    }
}

/* A step that is put back gives nothing to the slot of a tensor that was dropped in it, whatever
 * has that slot by then: neither the old value nor views. */
Test(lazy, what_is_dropped_in_a_step_stays_dropped)
{
    for (int reused = 0; reused < 2; reused++) {
        rig r;
        rig_open(&r, NULL, NULL);
        const deft_scope outer = deft_scope_begin(r.cx);
        deft_scope s = deft_step_begin(r.cx), deeper = deft_scope_begin(r.cx);
        deft_tensor *x = deft_full(r.cx, DEFT_SHAPE(4), DEFT_F32, 1.5), *late = NULL;
        const deft_tensor *const slot = deft_keep(x);
        OK(&r, deft_scope_end(deeper));
        OK(&r, deft_step_end(s)); /* x has its value */
        deft_tensor *const view = deft_slice(x, DEFT_R(1, 3));
        const uint64_t bytes = rig_stats(&r).live_bytes;
        const deft_scope step = deft_step_begin(r.cx);
        deft_assign(view, 3.0);
        deft_drop(&x);
        for (int i = 0; i < 2 && reused; i++) { /* on the slab of x again, the second time */
            deeper = deft_scope_begin(r.cx);
            if (i == 1) late = deft_keep(deft_zeros(r.cx, DEFT_SHAPE(4), DEFT_F32));
            OK(&r, deft_scope_end(deeper));
        }
        cr_assert(!reused || late == slot, "the test wants the same slot");
        deft_step_abort(step);
        if (reused) {
            deft_clear(r.cx);
            deft_drop(&late);
        }
        for (int i = 0; i < 2; i++) {
            s = deft_scope_begin(r.cx);
            deeper = deft_scope_begin(r.cx);
            late = deft_zeros(r.cx, DEFT_SHAPE(4), DEFT_F32);
            const bool is_it = late == slot;
            cr_assert(deft_assign(view, i + 7.0), "%s", deft_message(r.cx));
            EXPECT(&r, view, i + 7.0f, i + 7.0f);
            EXPECT(&r, late, 0, 0, 0, 0);
            OK(&r, deft_scope_end(deeper));
            OK(&r, deft_scope_end(s));
            if (is_it) late = NULL;
        }
        cr_assert_null(late, "the test wants the same slot");
        OK(&r, deft_scope_end(outer));
        const uint64_t left = rig_stats(&r).live_bytes;
        cr_assert_leq(left + 16, bytes, "%d: %llu bytes live, %llu before", reused,
                      (unsigned long long)left, (unsigned long long)bytes);
        rig_close(&r);
    }
}

static deft_status by_a_returned_number(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                        deft_tensor **out, size_t n_out, void *user)
{
    (void)n_in, (void)n_out, (void)user;
    const deft_scope s = deft_scope_begin(cx);
    out[0] = deft_mul(in[0], deft_scope_return(s, deft_const_f(cx, 0.5)));
    return DEFT_OK;
}

/* What a scope returns is what it was within: a view, wrapped memory, a number, something lost. */
Test(lazy, scope_return_keeps_what_a_tensor_is)
{
    rig r;
    rig_open(&r, NULL, NULL);
    float memory[3] = { 1, 2, 3 };
    deft_tensor *x = rig_range(&r, 3, 1);
    deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *t = deft_scope_return(s, deft_slice(x, DEFT_R(1, 3)));
    deft_assign(t, 7.0);
    EXPECT(&r, x, 1, 7, 7);

    s = deft_scope_begin(r.cx);
    t = deft_scope_return(
        s, deft_wrap_mut(r.cx, DEFT_SHAPE(3), DEFT_F32, memory, sizeof memory, NULL));
    deft_scope step = deft_step_begin(r.cx);
    deft_assign(t, 8.0);
    OK(&r, deft_step_end(step));
    cr_assert(memory[0] == 8 && memory[2] == 8, "%g", (double)memory[0]);

    deft_capture *c = deft_capture_create(r.cx, by_a_returned_number, NULL);
    for (int i = 0; i < 3; i++) {
        OK(&r, deft_capture_call(c, &x, 1, &t, 1));
        EXPECT(&r, t, 0.5f, 3.5f, 3.5f);
    }
    deft_capture_destroy(&c);

    s = deft_scope_begin(r.cx);
    t = deft_zeros(r.cx, DEFT_SHAPE(3), DEFT_F32);
    cr_assert_null(deft_assign(t, rig_range(&r, 2, 0)));
    t = deft_scope_return(s, t);
    float got[3];
    cr_assert_eq(deft_read(t, DEFT_F32, got, sizeof got), DEFT_E_SHAPE);
    rig_close(&r);
}

Test(lazy, views_are_snapshots)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *u = deft_keep(deft_reshape(rig_range(&r, 6, 0), DEFT_SHAPE(2, 3)));
    OK(&r, deft_eval(&u, 1));
    deft_tensor *row = deft_slice(u, DEFT_AT(0)), *old = deft_slice(u, DEFT_AT(0));
    deft_tensor *before = deft_add(u, 0);
    deft_assign(row, 9.0);
    EXPECT(&r, u, 9, 9, 9, 3, 4, 5);
    EXPECT(&r, row, 9, 9, 9);
    EXPECT(&r, old, 0, 1, 2);
    EXPECT(&r, before, 0, 1, 2, 3, 4, 5);
    cr_assert_null(deft_assign(old, 1.0));
    cr_assert_eq(deft_error(r.cx), DEFT_E_STATE);
    cr_assert(strstr(deft_message(r.cx), "stale"), "%s", deft_message(r.cx));
    deft_clear(r.cx);
    deft_assign(row, 7.0); /* the same view again: nobody else assigned in between */
    EXPECT(&r, u, 7, 7, 7, 3, 4, 5);
    deft_assign(deft_slice(deft_flatten(u), DEFT_R(1, 5)),
                deft_slice(rig_range(&r, 8, 10), DEFT_R(0, 4)));
    EXPECT(&r, u, 7, 10, 11, 12, 13, 5);
    deft_assign(deft_slice(deft_t(u), DEFT_R(0, 2), DEFT_AT(1)), rig_range(&r, 2, 100));
    EXPECT(&r, u, 7, 10, 11, 100, 101, 5);
    deft_assign(deft_slice(u, DEFT_FULL, DEFT_RS(-1, DEFT_END, -2)), rig_range(&r, 2, 1));
    EXPECT(&r, u, 2, 10, 1, 2, 101, 1);
    deft_assign(u, deft_add(u, deft_unsqueeze(deft_slice(u, DEFT_FULL, DEFT_AT(0)), 1)));
    EXPECT(&r, u, 4, 12, 3, 4, 103, 3);
    EXPECT(&r, deft_slice(u, DEFT_RS(1, DEFT_END, -1), DEFT_R(-2, DEFT_END)), 103, 3, 12, 3);
    EXPECT(&r, deft_diagonal(u, 1, 0, 1), 12, 3);
    rig_close(&r);
}

Test(lazy, steps_are_transactions)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *p = rig_range(&r, 3, 1), *q = rig_range(&r, 3, 5);
    deft_scope s = deft_step_begin(r.cx);
    deft_assign(p, deft_add(p, 1));
    deft_assign(q, deft_add(p, q));
    OK(&r, deft_step_end(s));
    EXPECT(&r, p, 2, 3, 4);
    EXPECT(&r, q, 7, 9, 11);

    s = deft_step_begin(r.cx); /* a mistake in the middle: nothing took effect */
    deft_assign(p, deft_mul(p, 100));
    deft_assign(q, deft_matmul(p, rig_range(&r, 2, 0)));
    cr_assert_eq(deft_step_end(s), DEFT_E_SHAPE);
    EXPECT(&r, p, 2, 3, 4);
    EXPECT(&r, q, 7, 9, 11);

    s = deft_step_begin(r.cx); /* a read inside, then an abort */
    deft_assign(p, deft_mul(p, 10));
    EXPECT(&r, p, 20, 30, 40);
    deft_assign(p, deft_mul(p, 10));
    deft_step_abort(s);
    EXPECT(&r, p, 2, 3, 4);

    s = deft_step_begin(r.cx);
    deft_assign(p, deft_add(p, 1));
    deft_interrupt(r.cx);
    cr_assert_eq(deft_step_end(s), DEFT_E_INTERRUPTED);
    EXPECT(&r, p, 2, 3, 4);

    s = deft_step_begin(r.cx);
    const deft_scope second = deft_step_begin(r.cx);
    cr_assert_eq(deft_error(r.cx), DEFT_E_STATE, "steps do not nest");
    cr_assert_eq(deft_step_end(second), DEFT_E_STATE);
    deft_assign(p, deft_add(p, 1));
    OK(&r, deft_step_end(s));
    EXPECT(&r, p, 3, 4, 5);
    cr_assert_eq(deft_step_end(s), DEFT_E_STATE, "ended already");
    const deft_scope ended = s;
    s = deft_step_begin(r.cx);
    deft_assign(p, deft_add(p, 1));
    deft_step_abort(ended); /* puts nothing back of the step that is open */
    OK(&r, deft_step_end(s));
    EXPECT(&r, p, 4, 5, 6);

    deft_tensor *made = NULL; /* a tensor kept inside a step has its value afterwards */
    s = deft_step_begin(r.cx);
    made = deft_keep(deft_mul(p, q));
    OK(&r, deft_step_end(s));
    const uint64_t cuts = rig_stats(&r).cuts;
    EXPECT(&r, made, 28, 45, 66);
    cr_assert_eq(rig_stats(&r).cuts, cuts);
    rig_close(&r);
}

Test(lazy, callers_memory)
{
    rig r;
    rig_open(&r, NULL, NULL);
    float src[2][4] = { { 1, 2, 3, -1 }, { 4, 5, 6, -1 } },
          dst[2][4] = { { 0, 0, 0, 8 }, { 0, 0, 0, 8 } };
    deft_tensor *a =
        deft_wrap(r.cx, DEFT_SHAPE(2, 3), DEFT_F32, src, sizeof src, (int64_t[]){ 4, 1 });
    deft_tensor *o =
        deft_wrap_mut(r.cx, DEFT_SHAPE(2, 3), DEFT_F32, dst, sizeof dst, (int64_t[]){ 4, 1 });
    deft_scope s = deft_step_begin(r.cx);
    deft_assign(o, deft_mul(a, 2));
    cr_assert_eq(dst[0][0], 0, "written at the cut");
    OK(&r, deft_step_end(s));
    cr_assert(dst[0][0] == 2 && dst[1][2] == 12 && dst[0][3] == 8 && dst[1][3] == 8);
    EXPECT(&r, o, 2, 4, 6, 8, 10, 12);
    s = deft_step_begin(r.cx); /* a part of it, and its old value read beside */
    deft_assign(deft_slice(o, DEFT_AT(1)), deft_slice(o, DEFT_AT(0)));
    OK(&r, deft_step_end(s));
    cr_assert(dst[1][0] == 2 && dst[1][1] == 4 && dst[1][2] == 6 && dst[0][0] == 2 &&
              dst[1][3] == 8);
    deft_tensor *over = deft_wrap(r.cx, DEFT_SHAPE(3), DEFT_F32, dst[0], 12, NULL);
    deft_tensor *into = deft_wrap_mut(r.cx, DEFT_SHAPE(3), DEFT_F32, &dst[0][1], 12, NULL);
    s = deft_step_begin(r.cx); /* overlapping memory: the values are those of before the step */
    deft_assign(into, deft_add(over, 1));
    OK(&r, deft_step_end(s));
    cr_assert(dst[0][0] == 2 && dst[0][1] == 3 && dst[0][2] == 5 && dst[0][3] == 7);
    float many[1001]; /* longer than what is loaded at once */
    for (int i = 0; i <= 1000; i++) many[i] = (float)i;
    over = deft_wrap(r.cx, DEFT_SHAPE(1000), DEFT_F32, many, 4000, NULL);
    into = deft_wrap_mut(r.cx, DEFT_SHAPE(1000), DEFT_F32, many + 1, 4000, NULL);
    s = deft_step_begin(r.cx);
    deft_assign(into, deft_mul(over, 3));
    OK(&r, deft_step_end(s));
    for (int i = 1; i <= 1000; i++) cr_assert_eq(many[i], (float)(i - 1) * 3, "element %d", i);
    cr_assert_null(
        deft_wrap(r.cx, DEFT_SHAPE(3, 3), DEFT_F32, src, sizeof src, (int64_t[]){ 4, 1 }));
    cr_assert_eq(deft_error(r.cx), DEFT_E_RANGE);
    deft_clear(r.cx);
    cr_assert_null(
        deft_wrap_mut(r.cx, DEFT_SHAPE(3, 2), DEFT_F32, src, sizeof src, (int64_t[]){ 1, 1 }));
    cr_assert_eq(deft_error(r.cx), DEFT_E_ARG, "elements would share memory");
    deft_clear(r.cx);
    cr_assert_null(deft_from(r.cx, DEFT_SHAPE(3), DEFT_F32, src, 8));
    deft_clear(r.cx);
    rig_close(&r);
}

Test(lazy, composites)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *a = rig_range(&r, 3, 1), *b = rig_range(&r, 2, 10);
    deft_tensor *both[2] = { a, b };
    EXPECT(&r, deft_concat(both, 2, 0), 1, 2, 3, 10, 11);
    deft_tensor *same[2] = { a, deft_neg(a) };
    EXPECT(&r, deft_stack(same, 2, 1), 1, -1, 2, -2, 3, -3);
    EXPECT(&r, deft_pad(a, (int64_t[]){ 2 }, (int64_t[]){ 1 }, DEFT_PAD_CONSTANT, 7), 7, 7, 1, 2, 3,
           7);
    EXPECT(&r, deft_pad(a, (int64_t[]){ 2 }, (int64_t[]){ 1 }, DEFT_PAD_EDGE, 0), 1, 1, 1, 2, 3, 3);
    EXPECT(&r, deft_pad(a, (int64_t[]){ 2 }, (int64_t[]){ 1 }, DEFT_PAD_REFLECT, 0), 3, 2, 1, 2, 3,
           2);
    EXPECT(&r, deft_pad(a, (int64_t[]){ 2 }, (int64_t[]){ 1 }, DEFT_PAD_WRAP, 0), 2, 3, 1, 2, 3, 1);
    EXPECT(&r, deft_roll(a, 1, 0), 3, 1, 2);
    EXPECT(&r, deft_roll(a, -1, 0), 2, 3, 1);
    EXPECT(&r, deft_cumsum(a, 0), 1, 3, 6);
    EXPECT(&r, deft_mean(a, DEFT_ALL_AXES, 0), 2);
    EXPECT(&r, deft_var(a, DEFT_ALL_AXES, 0, 1), 1);
    EXPECT(&r, deft_argmax(a, DEFT_ALL_AXES, 0), 2);
    EXPECT(&r, deft_eye(r.cx, 2, 3, DEFT_F32), 1, 0, 0, 0, 1, 0);
    EXPECT(&r, deft_arange(r.cx, 1, 2, 0.5, DEFT_F32), 1, 1.5);
    EXPECT(&r, deft_linspace(r.cx, 0, 1, 3, DEFT_F32), 0, 0.5, 1);
    EXPECT(&r,
           deft_matmul(deft_reshape(rig_range(&r, 4, 1), DEFT_SHAPE(2, 2)), rig_range(&r, 2, 1)), 5,
           11);
    const int32_t at[2] = { -1, 0 };
    deft_tensor *i = deft_from(r.cx, DEFT_SHAPE(2), DEFT_I32, at, sizeof at);
    EXPECT(&r, deft_take(a, i, 0), 3, 1);
    const int32_t out_of[1] = { 3 };
    deft_tensor *bad =
        deft_take(a, deft_from(r.cx, DEFT_SHAPE(1), DEFT_I32, out_of, sizeof out_of), 0);
    float v;
    cr_assert_eq(deft_item(bad, &v), DEFT_E_RANGE, "%s", deft_message(r.cx));
    cr_assert(strstr(deft_message(r.cx), "3"), "%s", deft_message(r.cx));
    EXPECT(&r, deft_one_hot(deft_cast(a, DEFT_I32), 3, DEFT_F32), 0, 1, 0, 0, 0, 1, 0, 0, 0);
    deft_tensor *x = deft_reshape(rig_range(&r, 9, 1), DEFT_SHAPE(3, 3));
    EXPECT(&r, deft_tril(x, 0), 1, 0, 0, 4, 5, 0, 7, 8, 9);
    EXPECT(&r, deft_triu(x, 1), 0, 2, 3, 0, 0, 6, 0, 0, 0);
    deft_tensor *halves[2];
    OK(&r, deft_split(x, (int64_t[]){ 1, 2 }, 2, 1, halves));
    EXPECT(&r, halves[1], 2, 3, 5, 6, 8, 9);
    EXPECT(&r, deft_clamp(a, 1.5, 2.5), 1.5, 2, 2.5);
    EXPECT(&r, deft_where(deft_gt(a, 1), a, deft_neg(a)), -1, 2, 3);
    EXPECT(&r, deft_lerp(a, deft_add(a, 4), 0.25), 2, 3, 4);
    EXPECT(&r, deft_round(deft_mul(deft_sum(deft_softmax(x, 1), DEFT_AXES(1), 0), 1e5)), 1e5, 1e5,
           1e5);
    const uint8_t label[3] = { 0, 1, 9 };
    deft_tensor *ce = deft_cross_entropy(x, deft_from(r.cx, DEFT_SHAPE(3), DEFT_U8, label, 3));
    cr_assert(isnan(rig_item(&r, ce)), "a label outside gives NaN");
    const uint8_t good[3] = { 2, 2, 2 };
    ce = deft_cross_entropy(x, deft_from(r.cx, DEFT_SHAPE(3), DEFT_U8, good, 3));
    cr_assert_float_eq(rig_item(&r, ce), 0.4076059f, 1e-6);
    rig_close(&r);
}

Test(lazy, numbers_outlive_steps)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *t = rig_range(&r, 2, 0), *one = deft_num(r.cx, 1), *three = deft_num_i(r.cx, 3);
    for (int i = 0; i < 3; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *zero = deft_mul(deft_add(t, 100), 0); /* other numbers come first */
        deft_assign(t, deft_add(deft_sub(one, t), zero));
        OK(&r, deft_step_end(s));
        EXPECT(&r, t, i % 2 ? 0 : 1, i % 2 ? 1 : 0);
    }
    EXPECT(&r, one, 1);
    EXPECT(&r, deft_div(three, deft_num(r.cx, 2)), 1.5);
    deft_assign(t, three);
    EXPECT(&r, t, 3, 3);
    rig_close(&r);
}

Test(lazy, wrapped_memory_made_inside)
{
    rig r;
    rig_open(&r, NULL, NULL);
    float a[2] = { 1, 2 }, b[2] = { 0 }, c[2] = { 0 }, d[2] = { 0 };
    deft_scope s = deft_step_begin(r.cx);
    const deft_scope in = deft_scope_begin(r.cx);
    deft_tensor *x = deft_wrap(r.cx, DEFT_SHAPE(2), DEFT_F32, a, sizeof a, NULL);
    deft_assign(deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, b, sizeof b, NULL), deft_add(x, 1));
    OK(&r, deft_scope_end(in));
    cr_assert_eq(b[0], 0, "a step writes at its end");
    x = deft_wrap(r.cx, DEFT_SHAPE(2), DEFT_F32, a, sizeof a, NULL);
    deft_assign(deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, c, sizeof c, NULL), deft_mul(x, 10));
    OK(&r, deft_step_end(s));
    cr_assert(b[0] == 2 && b[1] == 3 && c[0] == 10 && c[1] == 20);
    s = deft_step_begin(r.cx);
    deft_assign(deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, d, sizeof d, NULL), 7);
    deft_step_abort(s);
    s = deft_scope_begin(r.cx);
    OK(&r, deft_scope_end(s));
    cr_assert_eq(d[0], 0, "an aborted step writes nothing, later either");
    rig_close(&r);
}

/* What was assigned before a step that fails is still to be written, whatever the step did. */
Test(lazy, wrapped_memory_assigned_before_a_failed_step)
{
    for (int cuts = 0; cuts < 2; cuts++)
        for (int again = 0; again < 2; again++) {
            rig r;
            const deft_ctx_options c = { .size = sizeof c, .max_nodes = cuts ? 40 : 0 };
            rig_open(&r, NULL, &c);
            float m[2] = { 0 };
            deft_tensor *x = rig_range(&r, 2, 1);
            deft_tensor *o = deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, m, sizeof m, NULL);
            deft_assign(o, deft_mul(x, 7));
            deft_scope s = deft_step_begin(r.cx);
            if (again) deft_assign(o, deft_mul(x, 9));
            for (int i = 0; i < 100; i++) deft_assign(x, deft_add(x, 1));
            if (again) deft_assign(o, x);
            deft_step_abort(s);
            cr_assert_eq(m[0], 0, "not yet");
            s = deft_scope_begin(r.cx);
            OK(&r, deft_scope_end(s));
            cr_assert(m[0] == 7 && m[1] == 14, "cuts %d, again %d: %g", cuts, again, (double)m[0]);
            EXPECT(&r, o, 7, 14);
            rig_close(&r);
        }
}

Test(lazy, wrapped_memory_dropped_before_it_is_written)
{
    rig r;
    rig_open(&r, NULL, NULL);
    float m[2] = { 0 };
    deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *o = deft_keep(deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, m, sizeof m, NULL));
    OK(&r, deft_scope_end(s));
    s = deft_scope_begin(r.cx);
    OK(&r, deft_scope_end(s));
    deft_assign(o, 7);
    deft_drop(&o);
    for (int i = 0; i < 2; i++) { /* another handle takes its place */
        s = deft_scope_begin(r.cx);
        deft_tensor *t = deft_keep(deft_full(r.cx, DEFT_SHAPE(2), DEFT_F32, 3));
        OK(&r, deft_scope_end(s));
        EXPECT(&r, t, 3, 3);
        deft_drop(&t);
    }
    cr_assert(m[0] == 7 && m[1] == 7);
    rig_close(&r);
}

/* An outermost scope's end writes wrapped memory; what was recorded before reads it as it was. */
Test(lazy, wrapped_memory_read_before_it_is_written)
{
    rig r;
    rig_open(&r, NULL, NULL);
    float a[2] = { 1, 2 };
    deft_tensor *m = deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, a, sizeof a, NULL);
    deft_tensor *y = deft_mul(m, 10);
    deft_assign(m, 5);
    deft_scope s = deft_scope_begin(r.cx);
    OK(&r, deft_scope_end(s));
    cr_assert(a[0] == 5 && a[1] == 5);
    EXPECT(&r, y, 10, 20);
    rig_close(&r);
}

/* What a cut has computed already is copied: that takes no second cut. */
Test(lazy, wrapped_memory_of_a_value_that_was_computed)
{
    rig r;
    rig_open(&r, NULL, NULL);
    float a[2] = { 1, 2 };
    deft_tensor *m = deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, a, sizeof a, NULL);
    for (int i = 0; i < 3; i++) {
        const uint64_t before = rig_stats(&r).cuts;
        const float want[2] = { a[0] * 2 + 1, a[1] * 2 + 1 };
        const deft_scope s = i == 1 ? deft_step_begin(r.cx) : deft_scope_begin(r.cx);
        deft_assign(m, deft_add(deft_mul(m, 2), 1));
        OK(&r, deft_eval(&m, 1));
        cr_assert_neq(a[0], want[0], "not yet");
        OK(&r, i == 1 ? deft_step_end(s) : deft_scope_end(s));
        cr_assert_eq(rig_stats(&r).cuts - before, 1);
        cr_assert(a[0] == want[0] && a[1] == want[1], "%g, %g", (double)a[0], (double)a[1]);
        EXPECT(&r, m, want[0], want[1]);
    }
    rig_close(&r);
}

/* Memory of the caller's is no computed value, because the other assign writes it. */
Test(lazy, wrapped_memory_that_is_exchanged)
{
    rig r;
    rig_open(&r, NULL, NULL);
    float a[2] = { 1, 2 }, b[2] = { 3, 4 };
    deft_tensor *x = deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, a, sizeof a, NULL);
    deft_tensor *y = deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, b, sizeof b, NULL);
    for (int i = 0; i < 2; i++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const was = deft_cast(x, DEFT_F32);
        deft_assign(x, y);
        deft_assign(y, was);
        OK(&r, deft_scope_end(s));
        const float first = i ? 1 : 3;
        cr_assert(a[0] == first && a[1] == first + 1 && b[0] == 4 - first && b[1] == 5 - first);
    }
    rig_close(&r);
}

/* One element beside millions of instructions: its share of the threads' work rounds to none. */
Test(lazy, a_number_beside_a_large_kernel_is_stored)
{
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 2,
                                     .tier = DEFT_TIER_INTERPRET };
    deft_runtime *two;
    deft_ctx *c;
    cr_assert_eq(deft_runtime_create(&o, &two), DEFT_OK);
    cr_assert_eq(deft_ctx_create(two, NULL, &c), DEFT_OK);
    deft_tensor *x = deft_cast(deft_iota(c, DEFT_SHAPE(1 << 18), 0), DEFT_F32);
    for (int i = 0; i < 8; i++) x = deft_sin(x);
    deft_tensor *const both[] = { x, deft_full(c, DEFT_SHAPE(), DEFT_F32, 7) };
    float v = 0;
    cr_assert_eq(deft_eval(both, 2), DEFT_OK);
    cr_assert_eq(deft_item(both[1], &v), DEFT_OK);
    cr_assert_eq(v, 7);
    deft_ctx_destroy(&c);
    deft_runtime_destroy(&two);
}

/* Without fusion each op is a kernel: what other tests hold fused programs against. */
Test(lazy, without_fusion_each_op_is_a_kernel)
{
    for (int unfused = 0; unfused < 2; unfused++) {
        rig r;
        rig_open(&r, NULL,
                 &(deft_ctx_options){ .size = sizeof(deft_ctx_options), .no_fusion = unfused });
        deft_tensor *x = rig_range(&r, 4, 1);
        const uint64_t before = rig_stats(&r).kernels_run;
        RIG_EXPECT(&r, deft_neg(deft_add(deft_square(x), x)), -2, -6, -12, -20);
        cr_expect_eq(rig_stats(&r).kernels_run - before, unfused ? 3 : 1);
        rig_close(&r);
    }
}

/* A lookup may fail when it runs, and the caller's memory is written when none can any more: the
 * result is copied there by the binding, and not by another kernel. */
Test(lazy, lookups_into_the_callers_memory_are_one_kernel)
{
    rig r;
    float o[3] = { 0 };
    rig_open(&r, NULL, NULL);
    static const int32_t at[3] = { 3, 0, 2 };
    deft_tensor *x = rig_range(&r, 4, 1), *i = RIG_VECTOR(&r, 3, 0, 2);
    deft_tensor *const known = deft_keep(deft_from(r.cx, DEFT_SHAPE(3), DEFT_I32, at, sizeof at));
    deft_tensor *const wide = deft_keep(deft_cast(known, DEFT_I64));
    OK(&r, deft_eval((deft_tensor *[]){ wide }, 1));
    deft_tensor *const out =
        deft_keep(deft_wrap_mut(r.cx, DEFT_SHAPE(3), DEFT_F32, o, sizeof o, NULL));
    for (int how = 0; how < 3; how++) {
        const uint64_t before = rig_stats(&r).kernels_run;
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *const from = how == 0 ? deft_cast(i, DEFT_I32) : how == 1 ? known : wide;
        deft_assign(out, deft_neg(deft_take(x, from, 0)));
        OK(&r, deft_step_end(s));
        cr_expect(o[0] == -4 && o[1] == -1 && o[2] == -3, "%g %g %g", (double)o[0], (double)o[1],
                  (double)o[2]);
        cr_expect_eq(rig_stats(&r).kernels_run - before, 1);
        o[0] = o[1] = o[2] = 0;
    }
    rig_close(&r);
}

/* What a step will hand out: what it keeps, but not what it has computed already. */
Test(lazy, memory_of_results_is_foreseen)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 1000, 1);
    deft_step_memory m;
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *y = deft_keep(deft_neg(x)), *z = deft_keep(deft_sqrt(x));
    OK(&r, deft_step_memory_read(s, &m, sizeof m));
    cr_expect_geq(m.result_bytes, 8000u);
    OK(&r, deft_eval(&y, 1));
    OK(&r, deft_step_memory_read(s, &m, sizeof m));
    cr_expect(m.result_bytes >= 4000 && m.result_bytes < 8000, "%llu",
              (unsigned long long)m.result_bytes);
    OK(&r, deft_eval(&z, 1));
    OK(&r, deft_step_memory_read(s, &m, sizeof m));
    cr_expect_eq(m.result_bytes, 0);
    OK(&r, deft_step_end(s));
    rig_close(&r);
}

/* A step is planned beforehand as its end would plan it: a value that it replaces is written over
 * only when nobody else has it then. */
Test(lazy, who_else_has_a_value_is_foreseen)
{
    uint64_t kernels[2];
    for (int foreseen = 0; foreseen < 2; foreseen++) {
        rig r;
        rig_open(&r, NULL, NULL);
        deft_tensor *p = rig_range(&r, 1000, 1), *q = rig_range(&r, 1000, 5);
        deft_step_memory m;
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *const part = deft_slice(p, DEFT_R(0, 10));
        deft_assign(q, p);
        deft_assign(part, deft_mul(part, 2));
        if (foreseen) OK(&r, deft_step_memory_read(s, &m, sizeof m));
        OK(&r, deft_step_end(s));
        kernels[foreseen] = rig_stats(&r).kernels_run;
        cr_expect(rig_stats(&r).plans_built == 1 && rig_stats(&r).donated == 0);
        RIG_EXPECT(&r, deft_slice(p, DEFT_R(8, 12)), 18, 20, 11, 12);
        RIG_EXPECT(&r, deft_slice(q, DEFT_R(8, 12)), 9, 10, 11, 12);
        rig_close(&r);
    }
    cr_expect_eq(kernels[1], kernels[0], "%d kernels, not %d", (int)kernels[1], (int)kernels[0]);
}

/* Slices of as many elements from one start on are two places when their steps differ. */
Test(lazy, slices_of_other_steps_are_other_places)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *x = rig_range(&r, 8, 1);
    for (int i = 0; i < 2; i++) {
        deft_tensor *const wide = deft_slice(x, DEFT_RS(0, 8, 2)),
                           *near = deft_slice(x, DEFT_R(0, 4));
        RIG_EXPECT(&r, deft_sub(wide, near), 0, 1, 2, 3);
        RIG_EXPECT(&r, deft_sub(near, deft_slice(x, DEFT_RS(0, 8, 2))), 0, -1, -2, -3);
    }
    rig_close(&r);
}

/* One place by views of several kinds is one place: what is written there is read there. */
Test(lazy, a_part_of_itself_through_other_views_is_written_in_place)
{
    for (int how = 0; how < 3; how++) {
        rig r;
        rig_open(&r, NULL, NULL);
        deft_tensor *x = rig_range(&r, 8, 1), *from;
        const uint64_t before = rig_stats(&r).kernels_run;
        const deft_scope s = deft_step_begin(r.cx);
        if (how == 0)
            from = deft_slice(deft_slice(x, DEFT_R(1, 8)), DEFT_R(2, 6));
        else if (how == 1)
            from = deft_slice(deft_unsqueeze(x, 0), DEFT_AT(0), DEFT_R(3, 7));
        else
            from = deft_slice(deft_t(deft_unsqueeze(x, 0)), DEFT_R(3, 7), DEFT_AT(0));
        deft_assign(deft_slice(x, DEFT_R(3, 7)), deft_neg(from));
        OK(&r, deft_step_end(s));
        cr_expect_eq(rig_stats(&r).kernels_run - before, 1, "%d", how);
        RIG_EXPECT(&r, x, 1, 2, 3, -4, -5, -6, -7, 8);
        rig_close(&r);
    }
}

/* The interior's rows are no single axis; still the largest change over all of them comes out of
 * the launch that makes the step, in the bits of the one order of reductions. */
Test(lazy, heat_step_with_its_residual_is_one_launch)
{
    enum { H = 300, W = 277 };
    static float plate[2][H * W];
    float worst[2] = { 0, 0 }, sum[2] = { 0, 0 };
    for (int unfused = 0; unfused < 2; unfused++) {
        rig r;
        const deft_runtime_options o = { .size = sizeof o, .n_threads = 4 };
        rig_open(&r, &o,
                 &(deft_ctx_options){ .size = sizeof(deft_ctx_options), .no_fusion = unfused });
        deft_rng rng = { 5, 0 };
        deft_tensor *u = deft_uniform(r.cx, &rng, DEFT_SHAPE(H, W), DEFT_F32, 0, 100);
        deft_tensor *w = deft_zeros(r.cx, DEFT_SHAPE(), DEFT_F32);
        deft_tensor *total = deft_zeros(r.cx, DEFT_SHAPE(), DEFT_F32);
        OK(&r, deft_eval((deft_tensor *[]){ u, w, total }, 3));
        for (int step = 0; step < 3; step++) {
            const deft_stats before = rig_stats(&r);
            const deft_scope s = deft_step_begin(r.cx);
            deft_tensor *c = deft_slice(u, DEFT_R(1, -1), DEFT_R(1, -1));
            deft_tensor *up = deft_slice(u, DEFT_R(0, -2), DEFT_R(1, -1));
            deft_tensor *down = deft_slice(u, DEFT_R(2, DEFT_END), DEFT_R(1, -1));
            deft_tensor *next = deft_lerp(c, deft_mul(deft_add(up, down), 0.5), 0.2);
            deft_tensor *change = deft_abs(deft_sub(next, c));
            deft_assign(w, deft_max(change, DEFT_ALL_AXES, 0));
            deft_assign(total, deft_sum(change, DEFT_ALL_AXES, 0));
            deft_assign(c, next);
            OK(&r, deft_step_end(s));
            if (!unfused) cr_expect_eq(rig_stats(&r).launches - before.launches, 1);
        }
        worst[unfused] = rig_item(&r, w);
        sum[unfused] = rig_item(&r, total);
        rig_read(&r, u, plate[unfused], H * W);
        rig_close(&r);
    }
    cr_expect_eq(memcmp(&worst[0], &worst[1], sizeof worst[0]), 0);
    cr_expect_eq(memcmp(&sum[0], &sum[1], sizeof sum[0]), 0);
    cr_expect_eq(memcmp(plate[0], plate[1], sizeof plate[0]), 0);
}

/* The mean over rows comes after the rows, in their launch, however many threads made them. */
Test(lazy, cross_entropy_is_one_launch)
{
    enum { N = 300, C = 700 };
    float loss[3] = { 0 };
    for (int how = 0; how < 3; how++) { /* unfused; one thread; four */
        rig r;
        const deft_runtime_options o = { .size = sizeof o, .n_threads = how == 2 ? 4 : 1 };
        rig_open(&r, &o,
                 &(deft_ctx_options){ .size = sizeof(deft_ctx_options), .no_fusion = how == 0 });
        deft_rng rng = { 5, 0 };
        deft_tensor *x = deft_uniform(r.cx, &rng, DEFT_SHAPE(N, C), DEFT_F32, -3, 3);
        deft_tensor *label = deft_randint(r.cx, &rng, DEFT_SHAPE(N), DEFT_I64, 0, C);
        OK(&r, deft_eval((deft_tensor *[]){ x, label }, 2));
        const deft_stats before = rig_stats(&r);
        deft_tensor *y = deft_cross_entropy(x, label);
        OK(&r, deft_eval(&y, 1));
        if (how) cr_expect_eq(rig_stats(&r).launches - before.launches, 1);
        loss[how] = rig_item(&r, y);
        rig_close(&r);
    }
    cr_expect(loss[0] > 0 && loss[0] == loss[1] && loss[0] == loss[2], "%a %a %a", loss[0], loss[1],
              loss[2]);
}

/* Every decision of the fuser is logged once, with ops by name, under the topic "fusion". */
/* Where time goes is counted when that is asked for, each part by itself. */
Test(lazy, time_is_measured_on_request)
{
    for (int measure = 0; measure < 2; measure++) {
        const deft_runtime_options o = { .size = sizeof o, .n_threads = 1, .measure = measure };
        rig r;
        rig_open(&r, &o, NULL);
        deft_tensor *const x = rig_range(&r, 3, 1);
        EXPECT(&r, deft_add(deft_mul(x, 2), 1), 3, 5, 7);
        const deft_stats s = rig_stats(&r);
        cr_assert_eq(s.ns_record_to_key > 0, measure);
        cr_assert_eq(s.ns_plan > 0, measure);
        cr_assert_eq(s.ns_run > 0, measure);
        rig_close(&r);
    }
}

Test(lazy, decisions_are_logged)
{
    rig r;
    const deft_runtime_options o = { .size = sizeof o, .log = "fusion" };
    rig_open(&r, &o, NULL);
    deft_tensor *x = rig_range(&r, 64, 0);
    deft_tensor *y = deft_sum(deft_exp(x), DEFT_ALL_AXES, 0);
    OK(&r, deft_eval(&y, 1));
    static const char line[] =
        "exp, %2 sum fused: each element is folded as soon as it is computed\n";
    char *const first = strstr(r.log, line);
    cr_expect(first && !strstr(first + 1, line), "%s", r.log);
    char why[200];
    deft_show(r.cx, "why", why, sizeof why);
    cr_expect(strstr(why, line) != NULL, "%s", why);
    rig_close(&r);
}

/* An aborted step takes back its own assignments to wrapped memory, not those before it. */
Test(lazy, aborted_steps_leave_earlier_writes)
{
    for (int computed = 0; computed < 2; computed++) {
        rig r;
        rig_open(&r, NULL, NULL);
        float a[2] = { 1, 2 };
        deft_tensor *m = deft_wrap_mut(r.cx, DEFT_SHAPE(2), DEFT_F32, a, sizeof a, NULL);
        deft_assign(m, deft_mul(m, 3));
        deft_scope s = deft_step_begin(r.cx);
        if (computed) OK(&r, deft_eval(&m, 1));
        deft_assign(m, 5);
        if (computed) OK(&r, deft_eval(&m, 1));
        deft_step_abort(s);
        s = deft_step_begin(r.cx);
        OK(&r, deft_step_end(s));
        EXPECT(&r, m, 3, 6);
        cr_expect(a[0] == 3 && a[1] == 6, "%d: %g %g", computed, a[0], a[1]);
        rig_close(&r);
    }
}

Test(lazy, max_nodes_cuts)
{
    rig r;
    const deft_runtime_options o = {
        .size = sizeof o, .n_threads = 1, .tier = DEFT_TIER_INTERPRET, .log = "why"
    };
    const deft_ctx_options c = { .size = sizeof c, .max_nodes = 300 };
    rig_open(&r, &o, &c);
    deft_tensor *z = rig_range(&r, 1, 0);
    for (int i = 0; i < 1000; i++) deft_assign(z, deft_add(z, 1));
    EXPECT(&r, z, 1000);
    cr_assert(strstr(r.log, "reached max_nodes"), "a forced cut is logged");
    const deft_scope s = deft_step_begin(r.cx); /* inside a step it may still be undone */
    for (int i = 0; i < 1000; i++) deft_assign(z, deft_add(z, 1));
    deft_step_abort(s);
    EXPECT(&r, z, 1000);
    rig_close(&r);
}

/* ---- integer dtypes ---- */

/* Both names and both casts are in the sentence. */
static void refuses_u64(rig *r, const char *what, deft_tensor *t, const char *other)
{
    cr_assert_null(t, "%s", what);
    cr_assert_eq(deft_error(r->cx), DEFT_E_DTYPE, "%s", what);
    const char *const text = deft_message(r->cx);
    cr_assert(strncmp(text, what, strlen(what)) == 0 && strstr(text, "u64") &&
                  strstr(text, other) && strstr(text, "deft_cast(t, DEFT_I64)") &&
                  strstr(text, "deft_cast(t, DEFT_U64)"),
              "%s", text);
    deft_clear(r->cx);
}

Test(lazy, u64_and_signed_integers_have_no_common_dtype)
{
    static const deft_dtype with[] = { DEFT_I8, DEFT_I16, DEFT_I32, DEFT_I64 };
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const u = deft_full(r.cx, DEFT_SHAPE(2, 2), DEFT_U64, 5);
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        deft_tensor *const x = deft_full(r.cx, DEFT_SHAPE(2, 2), with[i], 3);
        const char *const name = deft_dtype_name(with[i]);
        deft_tensor *const both[] = { x, u };
        refuses_u64(&r, "add", deft_add(u, x), name);
        refuses_u64(&r, "lt", deft_lt(x, u), name);
        refuses_u64(&r, "div", deft_div(x, u), name);
        refuses_u64(&r, "where", deft_where(deft_lt(x, 4), x, u), name);
        refuses_u64(&r, "matmul", deft_matmul(x, u), name);
        refuses_u64(&r, "concat", deft_concat(both, 2, 0), name);
        cr_assert_eq(rig_item(&r, deft_sum(deft_sub(x, deft_cast(u, DEFT_I64)), DEFT_ALL_AXES, 0)),
                     -8);
    }
    /* floats, bools, unsigned integers and numbers are no signed integers */
    cr_assert_eq(deft_dtype_of(deft_add(u, deft_full(r.cx, DEFT_SHAPE(), DEFT_F16, 1))), DEFT_F16);
    cr_assert_eq(deft_dtype_of(deft_add(u, deft_lt(u, 1))), DEFT_U64);
    cr_assert_eq(deft_dtype_of(deft_add(deft_cast(u, DEFT_U8), u)), DEFT_U64);
    cr_assert_eq(deft_dtype_of(deft_sub(u, 1)), DEFT_U64);
    rig_close(&r);
}

/* u64 takes all 64 bits, and only what it holds. */
Test(lazy, numbers_of_u64_keep_all_bits)
{
    const uint64_t most = UINT64_MAX;
    uint64_t got = 0, two[2];
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = deft_keep(deft_full(r.cx, DEFT_SHAPE(2), DEFT_U64, most));
    OK(&r, deft_read(x, DEFT_U64, two, sizeof two));
    cr_assert(two[0] == most && two[1] == most);
    OK(&r, deft_item(deft_max(deft_sub(x, most - 1), DEFT_ALL_AXES, 0), &got));
    cr_assert_eq(got, 1);
    OK(&r, deft_item(deft_sub(deft_num_u(r.cx, most), deft_slice(x, DEFT_AT(0))), &got));
    cr_assert_eq(got, 0);
    OK(&r, deft_item(deft_cast(deft_num_u(r.cx, most), DEFT_U64), &got));
    cr_assert_eq(got, most);
    cr_assert_eq(deft_dtype_of(deft_num_u(r.cx, most)), DEFT_U64);
    cr_assert_eq(deft_dtype_of(deft_num_u(r.cx, 7)), DEFT_I64, "what i64 holds is as before");
    cr_assert_eq(deft_dtype_of(deft_add(deft_lt(x, most), most)), DEFT_U64, "bools make u64");
    cr_assert_eq(
        rig_item(&r, deft_sum(deft_cast(deft_gt(x, most - 1), DEFT_F32), DEFT_ALL_AXES, 0)), 2);
    cr_assert_eq(rig_item(&r, deft_mul(deft_full(r.cx, DEFT_SHAPE(), DEFT_F64, 0.5), most)),
                 0x1p63);
    deft_assign(x, most - 7);
    OK(&r, deft_item(deft_min(x, DEFT_ALL_AXES, 0), &got));
    cr_assert_eq(got, most - 7);
    /* reading converts as a cast does */
    double d = 0;
    float f = 0;
    OK(&r, deft_item(deft_slice(x, DEFT_AT(0)), &d));
    OK(&r, deft_item(deft_slice(x, DEFT_AT(0)), &f));
    cr_assert(d == 0x1p64 && f == 0x1p64f);
    OK(&r, deft_item(deft_full(r.cx, DEFT_SHAPE(), DEFT_F64, 0x1.8p63), &got));
    cr_assert_eq(got, (uint64_t)3 << 62);

    struct {
        deft_tensor *t;
        const char *sentence;
    } refused[] = {
        { deft_add(x, -1), "add: the number -1 does not fit u64" },
        { deft_full(r.cx, DEFT_SHAPE(2), DEFT_U64, 0x1p64), "full: the number" },
        { deft_add(deft_cast(x, DEFT_I64), most), "num: the number 18446744073709551615 does not" },
        { deft_full(r.cx, DEFT_SHAPE(2), DEFT_U32, (uint64_t)1 << 32), "full: the number" },
        { deft_full(r.cx, DEFT_SHAPE(2), DEFT_I8, 128), "full: the number 128 does not fit i8" },
        { deft_full(r.cx, DEFT_SHAPE(2), DEFT_I16, -32769), "full: the number -32769" },
        { deft_full(r.cx, DEFT_SHAPE(2), DEFT_U16, 65536), "full: the number 65536" },
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        cr_expect_null(refused[i].t, "%s", refused[i].sentence);
    cr_assert_eq(deft_error(r.cx), DEFT_E_RANGE);
    cr_assert(strstr(deft_message(r.cx), refused[0].sentence), "%s", deft_message(r.cx));
    deft_clear(r.cx);
    deft_drop((deft_tensor **)&(deft_tensor *){ x });
    rig_close(&r);
}

Test(lazy, items_of_every_c_type)
{
    rig r;
    rig_open(&r, NULL, NULL);
    int8_t i8 = 0;
    int16_t i16 = 0;
    uint16_t u16 = 0;
    uint32_t u32 = 0;
    uint64_t u64 = 0;
    deft_tensor *const x = deft_full(r.cx, DEFT_SHAPE(), DEFT_I16, -2);
    OK(&r, deft_item(x, &i8));
    OK(&r, deft_item(x, &i16));
    OK(&r, deft_item(x, &u16));
    OK(&r, deft_item(x, &u32));
    OK(&r, deft_item(x, &u64));
    cr_assert(i8 == -2 && i16 == -2 && u16 == 65534 && u32 == 4294967294u && u64 == UINT64_MAX - 1);
    rig_close(&r);
}

/* An index that i64 cannot hold is out of range, and no index from the end. */
Test(lazy, indices_of_u64)
{
    const uint64_t good[] = { 2, 0 }, bad[] = { 1, UINT64_MAX };
    const float v[] = { 10, 20, 30 };
    float got[2];
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const x = deft_from(r.cx, DEFT_SHAPE(3), DEFT_F32, v, sizeof v);
    deft_tensor *const at = deft_from(r.cx, DEFT_SHAPE(2), DEFT_U64, good, sizeof good);
    deft_tensor *const off = deft_from(r.cx, DEFT_SHAPE(2), DEFT_U64, bad, sizeof bad);
    OK(&r, deft_read(deft_take(x, at, 0), DEFT_F32, got, sizeof got));
    cr_assert(got[0] == 30 && got[1] == 10);
    cr_assert_eq(deft_read(deft_take(x, off, 0), DEFT_F32, got, sizeof got), DEFT_E_RANGE);
    cr_assert(strstr(deft_message(r.cx), "9223372036854775807"), "%s", deft_message(r.cx));
    deft_clear(r.cx);
    cr_assert_eq(deft_dtype_of(deft_one_hot(at, 3, DEFT_U8)), DEFT_U8);
    cr_assert_eq(rig_item(&r, deft_sum(deft_one_hot(off, 3, DEFT_F32), DEFT_ALL_AXES, 0)), 1);
    rig_close(&r);
}

/* Whether a tensor that was made outside all scopes is pending or not. */
Test(lazy, the_end_of_a_scope_forgets_where_values_came_from)
{
    for (int is_pending = 0; is_pending < 2; is_pending++) {
        rig r;
        rig_open(&r, NULL, NULL);
        deft_tensor *const x = RIG_VECTOR(&r, 1, 2), *const y = RIG_VECTOR(&r, 3, 4), *g = NULL;
        deft_tensor *const beside = deft_cos(x);
        if (!is_pending) OK(&r, deft_eval((deft_tensor *[]){ beside }, 1));
        deft_scope s = deft_scope_begin(r.cx);
        deft_assign(y, deft_mul(x, 2));
        OK(&r, deft_scope_end(s));
        s = deft_step_begin(r.cx);
        deft_tensor *const sum = deft_sum(y, DEFT_ALL_AXES, 0);
        const deft_grad_options o = { .size = sizeof o, .unused_is_zero = true };
        cr_assert(deft_grad(&sum, NULL, 1, (deft_tensor *[]){ x }, 1, &o, &g));
        RIG_EXPECT(&r, g, 0, 0);
        OK(&r, deft_step_end(s));
        RIG_EXPECT(&r, y, 2, 4);
        cr_expect_float_eq(rig_item(&r, deft_max(beside, DEFT_ALL_AXES, 0)), 0.5403023f, 1e-6);
        rig_close(&r);
    }
}
