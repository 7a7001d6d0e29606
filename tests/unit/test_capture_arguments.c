/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments of captures: which of them are one tensor, and memory of the caller's, whose address
 * is an argument too. A captured function sees what it would see if it were called itself.
 */
#include <stdlib.h>
#include <string.h>

#include "../support/harness.h"

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 1);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(capture_arguments, .init = set_up, .fini = tear_down);

#define FUNCTION(name)                                                                             \
    static deft_status name(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,  \
                            size_t n_out, void *user)

#define UNUSED (void)cx, (void)in, (void)n_in, (void)out, (void)n_out, (void)user

static void expect_counts(const deft_capture *c, uint64_t replayed, uint64_t recordings)
{
    deft_capture_stats s;
    deft_capture_stats_read(c, &s, sizeof s);
    cr_assert(s.replayed == replayed && s.recordings == recordings,
              "%llu replayed, %llu recordings: %s", (unsigned long long)s.replayed,
              (unsigned long long)s.recordings, deft_capture_reason(c));
}

static void expect_reason(const deft_capture *c, const char *part)
{
    const char *const is = deft_capture_reason(c);
    cr_assert(strstr(is, part), "\"%s\" has no \"%s\"", is, part);
}

/* ---- which of them are one ---- */

FUNCTION(assigns_first)
{
    UNUSED;
    deft_assign(in[0], deft_mul(in[0], deft_const_f(cx, 2)));
    out[0] = deft_add(in[1], deft_const_f(cx, 0));
    out[1] = in[1];
    return DEFT_OK;
}

static void call_two(deft_capture *c, deft_tensor *a, deft_tensor *b, float now_a, float now_b)
{
    deft_tensor *out[2];
    OK(&r, deft_capture_call(c, (deft_tensor *[]){ a, b }, 2, out, 2));
    RIG_EXPECT(&r, out[0], now_b);
    RIG_EXPECT(&r, out[1], now_b);
    RIG_EXPECT(&r, a, now_a);
    RIG_EXPECT(&r, b, now_b);
}

Test(capture_arguments, one_tensor_given_twice_is_one_inside)
{
    deft_capture *c = deft_capture_create(r.cx, assigns_first, NULL);
    deft_tensor *t = RIG_VECTOR(&r, 1);
    for (int i = 1; i <= 4; i++) call_two(c, t, t, (float)(1 << i), (float)(1 << i));
    expect_counts(c, 3, 1);
    deft_capture_destroy(&c);
}

/* Two tensors of one value are not one tensor. */
Test(capture_arguments, one_value_is_not_one_tensor)
{
    deft_capture *c = deft_capture_create(r.cx, assigns_first, NULL);
    deft_tensor *a = RIG_VECTOR(&r, 1), *b = RIG_VECTOR(&r, 3), *p = RIG_VECTOR(&r, 0);
    call_two(c, a, a, 2, 2);
    for (int i = 0; i < 3; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(p, b);
        OK(&r, deft_step_end(s));
        call_two(c, p, b, 6, 3); /* one value, two tensors */
        if (i == 0) expect_reason(c, "were one tensor");
        call_two(c, a, a, (float)(4 << i), (float)(4 << i));
        call_two(c, a, b, (float)(8 << i), 3);
        const deft_scope again = deft_step_begin(r.cx);
        deft_assign(a, deft_div(a, 2));
        OK(&r, deft_step_end(again));
    }
    expect_counts(c, 10 - 3, 3);
    deft_capture_destroy(&c);
}

typedef struct outside {
    deft_tensor *t;
    int how;
} outside;

FUNCTION(reaches_outside)
{
    const outside *const o = user;
    UNUSED;
    deft_tensor *const two = deft_const_f(cx, 2);
    switch (o->how) {
    case 0: /* assigned as an argument, read from outside */
        deft_assign(in[0], deft_mul(in[0], two));
        out[0] = deft_neg(o->t);
        break;
    case 1: /* the other way round */
        deft_assign(o->t, deft_mul(o->t, two));
        out[0] = deft_neg(in[0]);
        break;
    case 2: /* a part, then the whole */
        deft_assign(deft_slice(in[0], DEFT_R(0, 1)), deft_mul(deft_slice(o->t, DEFT_R(1, 2)), two));
        deft_assign(o->t, deft_add(in[0], o->t));
        out[0] = deft_neg(in[0]);
        break;
    case 3: /* returned, and not used otherwise */
        deft_assign(in[0], deft_mul(in[0], two));
        out[0] = o->t;
        break;
    default: /* assigned and never read */
        deft_assign(o->t, deft_mul(deft_const_f(cx, 5), deft_ones(cx, DEFT_SHAPE(2), DEFT_F32)));
        out[0] = deft_neg(in[0]);
        break;
    }
    return DEFT_OK;
}

/* What a step makes of it that calls the function with the tensor itself. */
static void reach(const outside *o, float *t, float *other, bool is_one)
{
    float *const in = is_one ? t : other;
    switch (o->how) {
    case 0:
    case 3:
        in[0] *= 2;
        in[1] *= 2;
        break;
    case 1:
        t[0] *= 2;
        t[1] *= 2;
        break;
    case 2: {
        in[0] = t[1] * 2;
        const float sum[2] = { in[0] + t[0], in[1] + t[1] };
        memcpy(t, sum, sizeof sum);
        break;
    }
    default: t[0] = t[1] = 5; break;
    }
}

Test(capture_arguments, an_argument_may_be_reached_from_outside)
{
    for (int how = 0; how < 5; how++)
        for (int first = 0; first < 2; first++) {
            outside o = { RIG_VECTOR(&r, 1, 2), how };
            deft_tensor *other = RIG_VECTOR(&r, 3, 4);
            float t[2] = { 1, 2 }, u[2] = { 3, 4 };
            deft_capture *c = deft_capture_create(r.cx, reaches_outside, &o);
            for (int i = 0; i < 6; i++) {
                const bool is_one = (i / 2 + first) % 2;
                deft_tensor *out[1];
                OK(&r, deft_capture_call(c, is_one ? &o.t : &other, 1, out, 1));
                reach(&o, t, u, is_one);
                const float *const in = is_one ? t : u, *const seen = how % 3 == 0 ? t : in;
                RIG_EXPECT(&r, o.t, t[0], t[1]);
                RIG_EXPECT(&r, other, u[0], u[1]);
                const float sign = how == 3 ? 1 : -1;
                RIG_EXPECT(&r, out[0], sign * seen[0], sign * seen[1]);
            }
            expect_counts(c, 4, 2);
            deft_capture_destroy(&c);
        }
}

FUNCTION(adds_outside)
{
    UNUSED;
    deft_tensor *const *const t = user;
    out[0] = deft_add(deft_add(in[0], t[0]), deft_mul(t[1], deft_const_f(cx, 2)));
    return DEFT_OK;
}

/* Two tensors from outside that have one value are no arguments: which of those are one says
 * nothing about them. */
Test(capture_arguments, what_is_reached_from_outside_may_be_one_value)
{
    deft_tensor *t[2] = { RIG_VECTOR(&r, 1, 2), RIG_VECTOR(&r, 3, 4) }, *x = RIG_VECTOR(&r, 5, 6);
    deft_assign(t[1], t[0]);
    OK(&r, deft_eval(t, 2));
    deft_capture *c = deft_capture_create(r.cx, adds_outside, t);
    for (int i = 0; i < 4; i++) {
        deft_tensor *out[1];
        OK(&r, deft_capture_call(c, &x, 1, out, 1));
        RIG_EXPECT(&r, out[0], 8, 12);
    }
    expect_counts(c, 3, 1);
    deft_capture_destroy(&c);
}

FUNCTION(fails_after_assigning)
{
    UNUSED;
    deft_assign(in[0], deft_neg(in[0]));
    return *(int *)user ? DEFT_E_RANGE : DEFT_OK;
}

Test(capture_arguments, a_failed_function_leaves_its_arguments)
{
    int fails = 1;
    deft_capture *c = deft_capture_create(r.cx, fails_after_assigning, &fails);
    deft_tensor *t = RIG_VECTOR(&r, 1, 2);
    cr_assert_eq(deft_capture_call(c, (deft_tensor *[]){ t, t }, 2, NULL, 0), DEFT_E_RANGE);
    RIG_EXPECT(&r, t, 1, 2);
    fails = 0;
    OK(&r, deft_capture_call(c, (deft_tensor *[]){ t, t }, 2, NULL, 0));
    RIG_EXPECT(&r, t, -1, -2);
    deft_capture_destroy(&c);
}

/* Assigned inside, a view would write what it is a view of: as a step that it was taken before. */
Test(capture_arguments, a_view_is_not_assigned)
{
    deft_capture *c = deft_capture_create(r.cx, assigns_first, NULL);
    deft_tensor *t = RIG_VECTOR(&r, 1, 2), *b = RIG_VECTOR(&r, 3);
    call_two(c, RIG_VECTOR(&r, 7), b, 14, 3);
    for (int i = 0; i < 2; i++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *v = deft_slice(t, DEFT_R(0, 1)), *out[2];
        if (i == 0) {
            cr_assert_eq(deft_capture_call(c, (deft_tensor *[]){ v, b }, 2, out, 2), DEFT_E_ARG);
            cr_assert(strstr(deft_message(r.cx), "view"), "%s", deft_message(r.cx));
        } else {
            v = deft_keep(v);
            OK(&r, deft_capture_call(c, (deft_tensor *[]){ v, b }, 2, out, 2));
            RIG_EXPECT(&r, v, 2);
        }
        OK(&r,
           deft_capture_call(c, (deft_tensor *[]){ b, deft_slice(t, DEFT_R(1, 2)) }, 2, out, 2));
        RIG_EXPECT(&r, out[1], 2);
        RIG_EXPECT(&r, t, 1, 2);
        OK(&r, deft_scope_end(s));
    }
    deft_capture_destroy(&c);
}

Test(capture_arguments, the_lists_are_apart)
{
    deft_capture *c = deft_capture_create(r.cx, assigns_first, NULL);
    deft_tensor *t[2] = { RIG_VECTOR(&r, 1), RIG_VECTOR(&r, 2) };
    cr_assert_eq(deft_capture_call(c, t, 2, t, 2), DEFT_E_ARG);
    RIG_EXPECT(&r, t[0], 1);
    deft_capture_destroy(&c);
}

/* ---- gradients ---- */

typedef enum gradient_how {
    FROM_OUTSIDE, /* what was used is the caller's handle, what is asked for is the argument */
    TO_OUTSIDE,   /* the other way round */
    OF_EARLIER,   /* the argument was assigned since */
    OF_EARLIER_OUTSIDE,
    THROUGH_VIEW, /* the same, a part of it */
    FORWARDS,     /* deft_jvp */
    N_GRADIENTS
} gradient_how;

/* 3 times the gradient of sum(2 * t * t), which is 12 t. */
FUNCTION(takes_gradient)
{
    UNUSED;
    const outside *const o = user;
    const gradient_how how = (gradient_how)o->how;
    deft_tensor *used = how == FROM_OUTSIDE ? o->t : in[0], *with = in[0], *g = NULL;
    deft_tensor *const two = deft_const_f(cx, 2), *const three = deft_const_f(cx, 3);
    if (how == TO_OUTSIDE || how == OF_EARLIER_OUTSIDE) with = o->t;
    deft_tensor *of = deft_mul(deft_square(used), two);
    if (how == OF_EARLIER || how == OF_EARLIER_OUTSIDE) deft_assign(in[0], deft_neg(in[0]));
    if (how == THROUGH_VIEW)
        deft_assign(deft_slice(in[0], DEFT_R(1, 2)), deft_neg(deft_slice(in[0], DEFT_R(1, 2))));
    if (how == FORWARDS) {
        if (!deft_jvp(&of, 1, &with, &three, 1, NULL, &g)) return deft_error(cx);
        out[0] = g;
        return DEFT_OK;
    }
    of = deft_sum(of, DEFT_ALL_AXES, 0);
    if (!deft_grad(&of, NULL, 1, &with, 1, NULL, &g)) return deft_error(cx);
    out[0] = deft_mul(g, three);
    return DEFT_OK;
}

Test(capture_arguments, gradients_are_those_of_the_function_itself)
{
    for (int how = 0; how < N_GRADIENTS; how++) {
        outside o = { RIG_VECTOR(&r, 1, 2), how };
        float t[2] = { 1, 2 };
        deft_capture *c = deft_capture_create(r.cx, takes_gradient, &o);
        for (int i = 0; i < 4; i++) {
            deft_tensor *out[1];
            OK(&r, deft_capture_call(c, &o.t, 1, out, 1));
            RIG_EXPECT(&r, out[0], 12 * t[0], 12 * t[1]);
            if (how == OF_EARLIER || how == OF_EARLIER_OUTSIDE) t[0] = -t[0];
            if (how == OF_EARLIER || how == OF_EARLIER_OUTSIDE || how == THROUGH_VIEW) t[1] = -t[1];
            RIG_EXPECT(&r, o.t, t[0], t[1]);
        }
        expect_counts(c, 3, 1);
        deft_capture_destroy(&c);
    }
}

/* The second argument is the first one, which the function reaches by itself as well. */
FUNCTION(takes_gradient_of_second)
{
    UNUSED;
    const outside *const o = user;
    deft_tensor *of = deft_sum(deft_square(o->t), DEFT_ALL_AXES, 0), *with = in[1], *g = NULL;
    const deft_grad_options zero = { .size = sizeof zero, .unused_is_zero = true };
    if (!deft_grad(&of, NULL, 1, &with, 1, &zero, &g)) return deft_error(cx);
    out[0] = g;
    return DEFT_OK;
}

Test(capture_arguments, gradients_of_one_tensor_given_twice)
{
    outside o = { RIG_VECTOR(&r, 1, 2), 0 };
    deft_tensor *other = RIG_VECTOR(&r, 5, 6), *out[1];
    deft_capture *c = deft_capture_create(r.cx, takes_gradient_of_second, &o);
    for (int i = 0; i < 6; i++) {
        deft_tensor *const in[2] = { o.t, i % 2 ? o.t : other };
        OK(&r, deft_capture_call(c, in, 2, out, 1));
        if (i % 2)
            RIG_EXPECT(&r, out[0], 2, 4);
        else
            RIG_EXPECT(&r, out[0], 0, 0);
    }
    expect_counts(c, 4, 2);
    deft_capture_destroy(&c);
}

/* ---- memory of the caller's ---- */

FUNCTION(writes_first)
{
    UNUSED;
    deft_assign(in[0], deft_add(in[n_in - 1], deft_const_f(cx, 1)));
    return DEFT_OK;
}

static deft_tensor *wrapped(float *memory, const int64_t *strides)
{
    return deft_wrap_mut(r.cx, DEFT_SHAPE(4), DEFT_F32, memory, 64, strides);
}

Test(capture_arguments, memory_wrapped_anew_is_replayed)
{
    float memory[3][16] = { { 0 } };
    deft_capture *c = deft_capture_create(r.cx, writes_first, NULL);
    for (int i = 0; i < 9; i++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *t = wrapped(memory[i % 3], NULL);
        OK(&r, deft_capture_call(c, &t, 1, NULL, 0));
        cr_assert_eq(memory[i % 3][3], (float)(i / 3 + 1));
        OK(&r, deft_scope_end(s));
    }
    expect_counts(c, 8, 1);
    deft_capture_destroy(&c);
}

Test(capture_arguments, memory_may_change_places)
{
    float memory[2][16] = { { 0 } };
    deft_tensor *t[2] = { wrapped(memory[0], NULL), wrapped(memory[1], NULL) };
    deft_capture *c = deft_capture_create(r.cx, writes_first, NULL);
    for (int i = 0; i < 6; i++) {
        OK(&r, deft_capture_call(c, (deft_tensor *[]){ t[i % 2], t[1 - i % 2] }, 2, NULL, 0));
        cr_assert_eq(memory[i % 2][0], (float)(i + 1));
    }
    expect_counts(c, 5, 1);
    deft_capture_destroy(&c);
}

/* Gaps and bad alignment are other plans of one recording, or guards that one plan has. */
Test(capture_arguments, memory_may_lie_otherwise)
{
    const int64_t gaps[1] = { 2 };
    float memory[16];
    deft_capture *c = deft_capture_create(r.cx, writes_first, NULL);
    for (int i = 0; i < 9; i++) {
        const int kind = i % 3;
        for (int k = 0; k < 16; k++) memory[k] = (float)k;
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *t = kind == 0 ? wrapped(memory, NULL)
                         : kind == 1
                             ? wrapped(memory, gaps)
                             : deft_wrap_mut(r.cx, DEFT_SHAPE(4), DEFT_F32, memory + 1, 16, NULL);
        OK(&r, deft_capture_call(c, &t, 1, NULL, 0));
        for (int k = 0; k < 16; k++) {
            const bool is_hit = kind == 0   ? k < 4
                                : kind == 1 ? k < 8 && k % 2 == 0
                                            : k > 0 && k < 5;
            cr_assert_eq(memory[k], (float)(k + is_hit), "call %d, element %d", i, k);
        }
        OK(&r, deft_scope_end(s));
    }
    expect_counts(c, 8, 1);
    deft_capture_destroy(&c);
}

Test(capture_arguments, whether_memory_overlaps_is_a_guard)
{
    float memory[32];
    deft_capture *c = deft_capture_create(r.cx, writes_first, NULL);
    for (int i = 0; i < 8; i++) {
        const int by = i % 2 ? 2 : 16; /* in[0] reaches into in[1], or not */
        for (int k = 0; k < 32; k++) memory[k] = (float)(k * k);
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *in[2] = {
            deft_wrap_mut(r.cx, DEFT_SHAPE(8), DEFT_F32, memory + by, 32, NULL),
            deft_wrap(r.cx, DEFT_SHAPE(8), DEFT_F32, memory, 32, NULL),
        };
        OK(&r, deft_capture_call(c, in, 2, NULL, 0));
        if (i == 1) expect_reason(c, "overlaps");
        for (int k = 0; k < 8; k++) cr_assert_eq(memory[by + k], (float)(k * k + 1));
        OK(&r, deft_scope_end(s));
    }
    expect_counts(c, 6, 2);
    deft_capture_destroy(&c);
}

Test(capture_arguments, whether_memory_is_written_is_a_guard)
{
    float memory[16] = { 1, 2, 3, 4 };
    deft_capture *c = deft_capture_create(r.cx, writes_first, NULL);
    deft_tensor *own = RIG_VECTOR(&r, 1, 2, 3, 4);
    for (int i = 0; i < 3; i++) {
        deft_tensor *t = wrapped(memory, NULL);
        OK(&r, deft_capture_call(c, &t, 1, NULL, 0));
        OK(&r, deft_capture_call(c, &own, 1, NULL, 0));
        if (i == 0) expect_reason(c, "is no memory to write");
        cr_assert_eq(memory[0], (float)(i + 2));
        RIG_EXPECT(&r, own, (float)(i + 2), (float)(i + 3), (float)(i + 4), (float)(i + 5));
    }
    expect_counts(c, 4, 2);
    deft_capture_destroy(&c);
}

Test(capture_arguments, memory_given_twice_is_one)
{
    float memory[16] = { 1 }, more[16] = { 5 };
    deft_capture *c = deft_capture_create(r.cx, assigns_first, NULL);
    for (int i = 0; i < 4; i++) {
        float *const m = i % 2 ? more : memory;
        const float was = m[0];
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *t = deft_wrap_mut(r.cx, DEFT_SHAPE(1), DEFT_F32, m, 4, NULL), *out[2];
        OK(&r, deft_capture_call(c, (deft_tensor *[]){ t, t }, 2, out, 2));
        cr_assert_eq(m[0], 2 * was);
        RIG_EXPECT(&r, out[0], 2 * was);
        m[0] += 100; /* what was returned is not this memory */
        RIG_EXPECT(&r, out[1], 2 * was);
        m[0] -= 100;
        OK(&r, deft_scope_end(s));
    }
    expect_counts(c, 3, 1);
    deft_capture_destroy(&c);
}

/* ---- the capture's end ---- */

static deft_capture *mine;

FUNCTION(destroys)
{
    UNUSED;
    deft_capture_destroy(&mine);
    deft_assign(in[0], deft_neg(in[0]));
    out[0] = deft_add(in[0], deft_const_f(cx, 1));
    return *(int *)user ? DEFT_E_RANGE : DEFT_OK;
}

Test(capture_arguments, a_capture_may_be_destroyed_by_its_function)
{
    for (int fails = 0; fails < 2; fails++) {
        deft_tensor *t = RIG_VECTOR(&r, 1, 2), *out[1];
        mine = deft_capture_create(r.cx, destroys, &fails);
        deft_capture *const c = mine;
        cr_assert_eq(deft_capture_call(c, &t, 1, out, 1), fails ? DEFT_E_RANGE : DEFT_OK);
        cr_assert_null(mine);
        if (fails) {
            cr_assert_null(out[0]);
            RIG_EXPECT(&r, t, 1, 2);
        } else {
            RIG_EXPECT(&r, t, -1, -2);
            RIG_EXPECT(&r, out[0], 0, -1);
        }
    }
}
