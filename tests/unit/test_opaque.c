/* SPDX-License-Identifier: Apache-2.0
 *
 * Opaque operators (deft/opaque.h): what their functions are given, that a call is one operation of
 * the program, in steps, captures, loops, branches, deft_vmap and gradients, and every failure.
 *
 * Why this file is long: each place where a call may be, and each mistake, needs a program.
 */
#include "support/harness.h"
#include "support/operator_functions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static rig r;

static int n_runs;     /* of any operator */
static int fails_from; /* the run with this number and later ones fail; 0: none */

static void set_up(void)
{
    rig_interpret(&r, 1);
    n_runs = fails_from = 0;
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(opaque, .init = set_up, .fini = tear_down);

#define VECTOR(...) RIG_VECTOR(&r, __VA_ARGS__)
#define EXPECT(t, ...) RIG_EXPECT(&r, t, __VA_ARGS__)
#define SHAPE_OF(name)                                                                             \
    static deft_status name(const deft_op_form *in, size_t n_in, deft_op_form *out, size_t n_out,  \
                            const deft_op_about *about)
#define RUN(name)                                                                                  \
    static deft_status name(const deft_op_input *in, size_t n_in, const deft_op_result *out,       \
                            size_t n_out, const deft_op_about *about)
#define UNUSED_FORM (void)in, (void)n_in, (void)out, (void)n_out, (void)about
#define DEF(...) (&(deft_op_def){ .size = sizeof(deft_op_def), .version = 1, __VA_ARGS__ })

static deft_op *define(const deft_op_def *d)
{
    char why[256];
    deft_op *op = NULL;
    cr_assert_eq(deft_op_define(r.rt, d, &op, why, sizeof why), DEFT_OK, "%s", why);
    return op;
}

static deft_tensor *call(const deft_op *op, deft_tensor *const *in, size_t n_in,
                         const void *attributes)
{
    deft_tensor *out = NULL;
    return deft_op_call(r.cx, op, in, n_in, attributes, &out, 1) ? out : NULL;
}
#define CALL(op, attributes, ...)                                                                  \
    call((op), (deft_tensor *const[]){ __VA_ARGS__ },                                              \
         sizeof((deft_tensor *const[]){ __VA_ARGS__ }) / sizeof(deft_tensor *), (attributes))

/* Computing t fails. */
static void expect_failure(deft_tensor *t, deft_status st, const char *part)
{
    cr_assert(t || deft_error(r.cx), "%s", deft_message(r.cx));
    cr_assert_eq(t ? deft_eval(&t, 1) : deft_error(r.cx), st, "%s", deft_message(r.cx));
    cr_assert(strstr(deft_message(r.cx), part), "%s", deft_message(r.cx));
    deft_clear(r.cx);
}

/* Begins a run. Fails when the test has asked for it. */
static deft_status begin(const deft_op_about *about)
{
    if (++n_runs < fails_from || !fails_from) return DEFT_OK;
    snprintf(about->why, about->n_why, "the library returned 42");
    return DEFT_E_RANGE;
}

/* ---- operators ---- */

static int64_t count(const deft_op_form *f)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < f->rank; i++) n *= f->extent[i];
    return n;
}

/* Element i of an f32 input, counted row-major. */
static float element(const deft_op_input *in, int64_t i)
{
    int64_t at = 0;
    for (uint32_t j = in->form.rank; j-- > 0;) {
        at += i % in->form.extent[j] * in->stride[j];
        i /= in->form.extent[j];
    }
    return ((const float *)in->data)[at];
}

/* in[0], then its elements in reverse order. attributes: a float that is added. */
SHAPE_OF(echo_shape)
{
    (void)n_out;
    if (in[0].dtype != DEFT_F32 || in[0].rank != 1)
        return snprintf(about->why, about->n_why, "it takes a vector of f32"), DEFT_E_SHAPE;
    cr_assert_eq(n_in, 1);
    out[0] = (deft_op_form){ .dtype = DEFT_F32, .rank = 1, .extent = { 2 * in[0].extent[0] } };
    return DEFT_OK;
}

RUN(echo_run)
{
    const int64_t n = in[0].form.extent[0];
    float *const to = out[0].data;
    (void)n_in, (void)n_out;
    cr_assert_eq(in[0].bytes, (size_t)n * 4);
    cr_assert_eq(out[0].bytes, (size_t)n * 8);
    cr_assert_eq(out[0].form.extent[0], 2 * n);
    for (int64_t i = 0; i < n; i++)
        to[i] = to[2 * n - 1 - i] = element(&in[0], i) + *(const float *)about->attributes;
    return begin(about);
}

#define ECHO                                                                                       \
    DEF(.name = "acme.echo", .n_in = 1, .n_out = 1, .attribute_bytes = sizeof(float),              \
        .shape = echo_shape, .run = echo_run)
static const float zero = 0, one = 1;

/* The same as a body. */
BODY(echo_body)
{
    UNUSED;
    deft_tensor *const x = deft_add(in[0], *(const float *)user);
    out[0] = deft_concat(((deft_tensor *[]){ x, deft_flip(x, DEFT_AXES(0)) }), 2, 0);
    return DEFT_OK;
}

/* The sorted elements of a vector, their positions, and their number. */
SHAPE_OF(order_shape)
{
    UNUSED_FORM;
    out[0] = in[0];
    out[1] = in[0];
    out[1].dtype = DEFT_I64;
    out[2] = (deft_op_form){ .dtype = DEFT_F32 };
    return DEFT_OK;
}

static const float *sorted;

static int by_value(const void *a, const void *b)
{
    const float x = sorted[*(const int64_t *)a], y = sorted[*(const int64_t *)b];
    return x < y ? -1 : x > y ? 1 : *(const int64_t *)a < *(const int64_t *)b ? -1 : 1;
}

RUN(order_run)
{
    const int64_t n = count(&in[0].form);
    int64_t *const at = out[1].data;
    (void)n_in, (void)n_out;
    cr_assert(in[0].is_dense);
    for (uint32_t j = 0, step = 1; j < 1 && in[0].form.rank; j++)
        cr_assert_eq(in[0].stride[in[0].form.rank - 1], (int64_t)step);
    for (int64_t i = 0; i < n; i++) at[i] = i;
    sorted = in[0].data;
    qsort(at, (size_t)n, sizeof *at, by_value);
    for (int64_t i = 0; i < n; i++) ((float *)out[0].data)[i] = sorted[at[i]];
    *(float *)out[2].data = (float)n;
    return begin(about);
}

#define ORDER                                                                                      \
    DEF(.name = "acme.order", .n_in = 1, .n_out = 3, .shape = order_shape, .run = order_run,       \
        .dense = true)

/* The sum of the products of neighbours of five vectors, and whether user was passed. */
SHAPE_OF(mix_shape)
{
    UNUSED_FORM;
    out[0] = in[0];
    return DEFT_OK;
}

static int token;

RUN(mix_run)
{
    (void)n_out;
    cr_assert_eq(n_in, 5);
    cr_assert_eq(about->user, &token);
    cr_assert_null(about->attributes);
    for (int64_t i = 0; i < count(&in[0].form); i++)
        ((float *)out[0].data)[i] = element(&in[0], i) + 2 * element(&in[1], i) +
                                    3 * element(&in[2], i) + 4 * element(&in[3], i) +
                                    5 * element(&in[4], i);
    return begin(about);
}

#define MIX                                                                                        \
    DEF(.name = "acme.mix", .n_in = 5, .n_out = 1, .shape = mix_shape, .run = mix_run,             \
        .user = &token)

/* x^2 with a gradient that calls twice(x, g) = 2 x g. */
RUN(square_run)
{
    (void)n_in, (void)n_out;
    for (int64_t i = 0; i < count(&in[0].form); i++)
        ((float *)out[0].data)[i] = element(&in[0], i) * element(&in[0], i);
    return begin(about);
}

RUN(twice_run)
{
    (void)n_in, (void)n_out;
    for (int64_t i = 0; i < count(&in[0].form); i++)
        ((float *)out[0].data)[i] = 2 * element(&in[0], i) * element(&in[1], i);
    return begin(about);
}

static const deft_op *twice;

static deft_status square_back(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                               deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                               deft_tensor **grad_in, void *user)
{
    deft_tensor *const both[] = { in[0], grad_out[0] };
    (void)n_in, (void)out, (void)n_out, (void)user;
    return deft_op_call(cx, twice, both, 2, NULL, grad_in, 1) ? DEFT_OK : DEFT_E_STATE;
}

static deft_op *define_square(void)
{
    twice = define(
        DEF(.name = "acme.twice", .n_in = 2, .n_out = 1, .shape = mix_shape, .run = twice_run));
    return define(DEF(.name = "acme.square", .n_in = 1, .n_out = 1, .shape = mix_shape,
                      .run = square_run, .grad = square_back));
}

/* ---- what the functions are given ---- */

Test(opaque, computes_results_of_its_shape_rule)
{
    const deft_op *const echo = define(ECHO);
    deft_tensor *const y = CALL(echo, &one, VECTOR(1, 2, 3));
    cr_assert_eq(deft_rank(y), 1);
    cr_assert_eq(deft_dim(y, 0), 6);
    EXPECT(y, 2, 3, 4, 4, 3, 2);
    cr_assert_eq(n_runs, 1);
    cr_assert_str_eq(deft_op_name(echo), "acme.echo");
}

Test(opaque, has_strides_of_views_unless_it_wants_none)
{
    const deft_op *const echo = define(ECHO), *const order = define(ORDER);
    deft_tensor *const m = rig_tensor(&r, DEFT_SHAPE(2, 3), (float[]){ 3, 2, 1, 6, 5, 4 });
    deft_tensor *const column = deft_slice(m, DEFT_FULL, DEFT_AT(1));
    EXPECT(CALL(echo, &zero, column), 2, 5, 5, 2);
    EXPECT(CALL(echo, &zero, deft_flip(column, DEFT_AXES(0))), 5, 2, 2, 5);
    EXPECT(CALL(echo, &zero, deft_expand(VECTOR(7), DEFT_SHAPE(2))), 7, 7, 7, 7);
    deft_tensor *out[3], *const t = deft_transpose(m, 0, 1);
    cr_assert(deft_op_call(r.cx, order, &t, 1, NULL, out, 3));
    EXPECT(deft_reshape(out[0], DEFT_SHAPE(6)), 1, 2, 3, 4, 5, 6);
    EXPECT(deft_cast(deft_reshape(out[1], DEFT_SHAPE(6)), DEFT_F32), 4, 2, 0, 5, 3, 1);
    EXPECT(out[2], 6);
}

Test(opaque, takes_many_inputs_and_no_elements)
{
    const deft_op *const mix = define(MIX), *const echo = define(ECHO);
    deft_tensor *const x = VECTOR(1, 10), *const y = deft_add(x, 1);
    EXPECT(CALL(mix, NULL, x, y, x, deft_mul(y, 2), VECTOR(1, 1)), 29, 155);
    EXPECT(CALL(mix, NULL, x, x, x, x, x), 15, 150);
    deft_tensor *const none = deft_zeros(r.cx, DEFT_SHAPE(0), DEFT_F32);
    cr_assert_eq(deft_dim(CALL(echo, &one, none), 0), 0);
    OK(&r, deft_eval((deft_tensor *[]){ CALL(echo, &one, none) }, 1));
}

/* ---- one operation of the program ---- */

Test(opaque, is_one_operation_of_one_plan)
{
    const deft_op *const echo = define(ECHO);
    char text[4096];
    deft_tensor *const x = VECTOR(1, 2);
    const uint64_t before = rig_stats(&r).cuts;
    EXPECT(deft_mul(CALL(echo, &one, deft_mul(x, 2)), 10), 30, 50, 50, 30);
    cr_assert_eq(rig_stats(&r).cuts, before + 1);
    cr_assert_lt(deft_show(r.cx, "trace", text, sizeof text), sizeof text);
    cr_assert(strstr(text, "call f32[4] %"), "%s", text);
    cr_assert(strstr(text, "acme.echo@1 attributes=0000803f\n"), "%s", text);
}

Test(opaque, equal_calls_run_once_and_dead_ones_not_at_all)
{
    const deft_op *const echo = define(ECHO);
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const x = VECTOR(1, 2);
    deft_tensor *const a = CALL(echo, &one, x), *const b = CALL(echo, &one, x);
    (void)CALL(echo, &zero, x);
    EXPECT(deft_add(a, b), 4, 6, 6, 4);
    cr_assert_eq(n_runs, 1);
    EXPECT(deft_add(CALL(echo, &one, x), CALL(echo, &zero, x)), 3, 5, 5, 3);
    OK(&r, deft_scope_end(s));
}

Test(opaque, results_that_nothing_reads_have_memory)
{
    const deft_op *const order = define(ORDER);
    deft_tensor *out[3], *const x = VECTOR(3, 1, 2);
    for (int i = 0; i < 3; i++) {
        cr_assert(deft_op_call(r.cx, order, &x, 1, NULL, out, 3));
        if (i == 0) EXPECT(out[2], 3);
        if (i == 1) EXPECT(deft_cast(out[1], DEFT_F32), 1, 2, 0);
        if (i == 2) EXPECT(deft_add(out[0], out[2]), 4, 5, 6);
    }
}

Test(opaque, results_that_are_read_one_by_one_need_one_run)
{
    const deft_op *const order = define(ORDER);
    deft_tensor *out[3], *const x = VECTOR(3, 1, 2);
    cr_assert(deft_op_call(r.cx, order, &x, 1, NULL, out, 3));
    deft_tensor *const at = deft_cast(out[1], DEFT_F32);
    EXPECT(out[0], 1, 2, 3);
    EXPECT(at, 1, 2, 0);
    EXPECT(out[2], 3);
    cr_assert_eq(n_runs, 1);
    cr_assert(deft_op_call(r.cx, order, &at, 1, NULL, out, 3));
    EXPECT(out[1] ? deft_cast(out[1], DEFT_F32) : NULL, 2, 0, 1);
    EXPECT(out[0], 0, 1, 2);
    cr_assert_eq(n_runs, 2);
}

Test(opaque, results_that_are_computed_apart_are_right)
{
    const deft_op *const order = define(ORDER);
    deft_tensor *out[3], *const x = VECTOR(3, 1, 2);
    const deft_step_options few = { .size = sizeof few, .max_nodes = 8 };
    const deft_scope s = deft_step_begin_with(r.cx, &few);
    cr_assert(deft_op_call(r.cx, order, &x, 1, NULL, out, 3));
    deft_tensor *y = out[0];
    for (int i = 0; i < 30; i++) y = deft_add(y, i); /* budgets compute what is pending */
    EXPECT(deft_add(y, out[2]), 439, 440, 441);
    EXPECT(deft_cast(out[1], DEFT_F32), 1, 2, 0);
    OK(&r, deft_step_end(s));
}

Test(opaque, other_extents_need_no_other_plan)
{
    const deft_op *const echo = define(ECHO);
    for (int n = 2; n < 6; n++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *const y = deft_mul(CALL(echo, &one, rig_range(&r, n, 0)), 2);
        float got[10];
        OK(&r, deft_read(y, DEFT_F32, got, sizeof *got * 2 * (size_t)n));
        for (int i = 0; i < n; i++)
            cr_assert(got[i] == 2.f * (float)(i + 1) && got[2 * n - 1 - i] == got[i]);
        OK(&r, deft_step_end(s));
    }
    cr_assert_eq(rig_stats(&r).plans_built, 1, "%llu",
                 (unsigned long long)rig_stats(&r).plans_built);
}

Test(opaque, assigns_and_keeps_in_steps)
{
    const deft_op *const order = define(ORDER);
    deft_tensor *const x = deft_keep(VECTOR(3, 1, 2));
    deft_tensor *const n = deft_keep(VECTOR(0));
    for (int i = 0; i < 3; i++) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *out[3], *const y = deft_neg(x);
        cr_assert(deft_op_call(r.cx, order, &y, 1, NULL, out, 3));
        cr_assert(deft_assign(x, out[0]));
        cr_assert(deft_assign(n, deft_add(n, out[2])));
        OK(&r, i == 1 ? deft_step_submit(s) : deft_step_end(s));
    }
    EXPECT(x, -3, -2, -1);
    EXPECT(n, 9);
    cr_assert_eq(n_runs, 3);
}

Test(opaque, writes_into_wrapped_memory)
{
    const deft_op *const echo = define(ECHO);
    float memory[4] = { 1, 2, 3, 4 };
    deft_tensor *const m =
        deft_wrap_mut(r.cx, DEFT_SHAPE(4), DEFT_F32, memory, sizeof memory, NULL);
    cr_assert(m);
    const deft_scope s = deft_step_begin(r.cx);
    cr_assert(deft_assign(m, CALL(echo, &one, deft_slice(m, DEFT_R(0, 2)))));
    OK(&r, deft_step_end(s));
    const float want[] = { 2, 3, 3, 2 };
    cr_assert_arr_eq(memory, want, sizeof want);
}

/* ---- captures ---- */

static const deft_op *captured;

static deft_tensor *captured_fn(deft_ctx *cx, deft_tensor *const *in, size_t n, void *user)
{
    (void)cx, (void)n, (void)user;
    return deft_mul(CALL(captured, &one, deft_add(in[0], deft_const_f(cx, 1))),
                    deft_const_f(cx, 2));
}

BODY(captured_body)
{
    UNUSED;
    out[0] = captured_fn(cx, in, n_in, NULL);
    return DEFT_OK;
}

static deft_status call_capture(deft_capture *c, deft_tensor *x, deft_tensor **out)
{
    return deft_capture_call(c, &x, 1, out, 1);
}

Test(opaque, is_captured_and_replayed)
{
    captured = define(ECHO);
    deft_capture *c = deft_capture_create(r.cx, captured_body, NULL);
    deft_tensor *y = NULL;
    OK(&r, call_capture(c, VECTOR(1, 2), &y));
    EXPECT(y, 6, 8, 8, 6);
    OK(&r, call_capture(c, VECTOR(3, 4), &y));
    EXPECT(y, 10, 12, 12, 10);
    OK(&r, call_capture(c, VECTOR(3, 4, 5), &y));
    EXPECT(y, 10, 12, 14, 14, 12, 10);
    deft_capture_stats stats;
    deft_capture_stats_read(c, &stats, sizeof stats);
    cr_assert_gt(stats.replayed, 0);
    fails_from = n_runs + 1;
    cr_assert_eq(call_capture(c, VECTOR(3, 4), &y), DEFT_E_RANGE);
    cr_assert(strstr(deft_message(r.cx), "acme.echo: the library returned 42"), "%s",
              deft_message(r.cx));
    fails_from = 0;
    OK(&r, call_capture(c, VECTOR(5, 4), &y));
    EXPECT(y, 14, 12, 12, 14);
    deft_capture_destroy(&c);
}

Test(opaque, a_capture_of_a_destroyed_operator_fails_by_name)
{
    char why[256];
    deft_op *op = define(ECHO);
    captured = op;
    deft_capture *c = deft_capture_create(r.cx, captured_body, NULL);
    deft_tensor *y = NULL;
    OK(&r, call_capture(c, VECTOR(1, 2), &y));
    EXPECT(y, 6, 8, 8, 6);
    cr_assert_eq(deft_op_destroy(&op, why, sizeof why), DEFT_OK, "%s", why);
    captured = define(DEF(.name = "acme.echo", .n_in = 1, .n_out = 1,
                          .attribute_bytes = sizeof(float), .shape = echo_shape, .run = mix_run));
    cr_assert_eq(call_capture(c, VECTOR(1, 2), &y), DEFT_E_STATE);
    cr_assert(strstr(deft_message(r.cx),
                     "acme.echo: version 1 of this opaque operator is not defined here"),
              "%s", deft_message(r.cx));
    deft_capture_destroy(&c);
    EXPECT(deft_add(VECTOR(1), 1), 2);
}

/* ---- loops and branches ---- */

static const deft_op *inner;

/* A loop of n iterations over one state. */
static bool loop(deft_body_fn body, deft_tensor *const *x, size_t n_states, int64_t n,
                 deft_tensor **out)
{
    return deft_scan(r.cx, body, NULL, x, n_states, NULL, 0, n, 0, out);
}

BODY(sort_and_add)
{
    UNUSED;
    deft_tensor *got[3];
    if (!deft_op_call(cx, inner, in, 1, NULL, got, 3)) return DEFT_E_STATE;
    out[0] = deft_add(deft_mul(got[0], -1), got[2]);
    return DEFT_OK;
}

Test(opaque, is_called_in_each_iteration_of_a_loop)
{
    inner = define(ORDER);
    deft_tensor *y, *const x = VECTOR(3, 1, 2);
    cr_assert(loop(sort_and_add, &x, 1, 3, &y));
    EXPECT(y, 2, 1, 0);
    cr_assert_eq(n_runs, 3);
    fails_from = 5;
    cr_assert(loop(sort_and_add, &x, 1, 7, &y));
    expect_failure(y, DEFT_E_RANGE, "acme.order: the library returned 42");
    fails_from = 0;
    EXPECT(deft_add(x, 1), 4, 2, 3);
}

BODY(add_constant_call)
{
    UNUSED;
    deft_tensor *got[3];
    if (!deft_op_call(cx, inner, &in[1], 1, NULL, got, 3)) return DEFT_E_STATE;
    out[0] = deft_add(in[0], got[0]);
    out[1] = in[1];
    return DEFT_OK;
}

Test(opaque, an_equal_call_of_all_iterations_runs_once)
{
    inner = define(ORDER);
    deft_tensor *const x[] = { VECTOR(0, 0), VECTOR(2, 1) };
    deft_tensor *y[2];
    cr_assert(loop(add_constant_call, x, 2, 3, y));
    EXPECT(y[0], 3, 6);
    cr_assert_leq(n_runs, 3);
}

BODY(take_sorted)
{
    UNUSED;
    deft_tensor *got[3];
    if (!deft_op_call(cx, inner, in, 1, NULL, got, 3)) return DEFT_E_STATE;
    out[0] = deft_add(got[0], deft_cast(got[1], DEFT_F32));
    return DEFT_OK;
}

BODY(take_as_is)
{
    UNUSED;
    out[0] = deft_mul(in[0], 10);
    return DEFT_OK;
}

Test(opaque, runs_only_in_the_branch_that_is_taken)
{
    inner = define(ORDER);
    deft_tensor *const x = VECTOR(3, 1, 2);
    for (int i = 0; i < 2; i++) {
        deft_tensor *y, *const first = deft_slice(x, DEFT_AT(0));
        deft_tensor *const on = i ? deft_gt(first, 2) : deft_lt(first, 2);
        cr_assert(deft_cond(on, take_sorted, take_as_is, NULL, &x, 1, &y, 1));
        if (i)
            EXPECT(y, 2, 4, 3);
        else
            EXPECT(y, 30, 10, 20);
        cr_assert_eq(n_runs, i);
    }
}

Test(opaque, results_of_one_call_are_used_in_several_parts)
{
    inner = define(ORDER);
    deft_tensor *const x = VECTOR(3, 1, 2);
    deft_tensor *got[3], *y, *z;
    cr_assert(deft_op_call(r.cx, inner, &x, 1, NULL, got, 3));
    deft_tensor *const on = deft_gt(deft_sum(x, DEFT_ALL_AXES, false), 100);
    cr_assert(deft_cond(on, take_sorted, take_as_is, NULL, &got[0], 1, &y, 1));
    cr_assert(loop(sort_and_add, &y, 1, 2, &z));
    EXPECT(deft_add(z, deft_cast(got[1], DEFT_F32)), 31, 22, 10);
    cr_assert_eq(n_runs, 3);
}

/* ---- deft_vmap ---- */

static bool vmap1(deft_body_fn fn, deft_tensor *x, int axis, deft_tensor **out)
{
    return deft_vmap(r.cx, fn, NULL, &x, &axis, 1, out, NULL, 1);
}

BODY(echo_of_example)
{
    UNUSED;
    out[0] = deft_mul(CALL(inner, &one, in[0]), 2);
    return DEFT_OK;
}

Test(opaque, deft_vmap_calls_it_for_each_example)
{
    inner = define(ECHO);
    deft_tensor *const m = rig_tensor(&r, DEFT_SHAPE(2, 3), (float[]){ 1, 2, 3, 4, 5, 6 });
    deft_tensor *y;
    cr_assert(vmap1(echo_of_example, m, 0, &y));
    EXPECT(deft_reshape(y, DEFT_SHAPE(12)), 4, 6, 8, 8, 6, 4, 10, 12, 14, 14, 12, 10);
    cr_assert_eq(n_runs, 2);
    cr_assert(vmap1(echo_of_example, m, 1, &y));
    EXPECT(deft_reshape(y, DEFT_SHAPE(12)), 4, 10, 10, 4, 6, 12, 12, 6, 8, 14, 14, 8);
    cr_assert(vmap1(echo_of_example, deft_zeros(r.cx, DEFT_SHAPE(0, 3), DEFT_F32), 0, &y));
    cr_assert_eq(deft_dim(y, 0), 0);
    cr_assert_eq(deft_dim(y, 1), 6);
    OK(&r, deft_eval(&y, 1));
}

BODY(rows_of_example)
{
    UNUSED;
    const int axis = 0;
    return deft_vmap(cx, echo_of_example, NULL, in, &axis, 1, out, NULL, 1) ? DEFT_OK
                                                                            : DEFT_E_STATE;
}

Test(opaque, deft_vmap_nests)
{
    inner = define(ECHO);
    deft_tensor *const x = deft_reshape(rig_range(&r, 8, 0), DEFT_SHAPE(2, 2, 2));
    deft_tensor *y;
    cr_assert(vmap1(rows_of_example, x, 0, &y));
    EXPECT(deft_reshape(y, DEFT_SHAPE(16)), 2, 4, 4, 2, 6, 8, 8, 6, 10, 12, 12, 10, 14, 16, 16, 14);
    cr_assert_eq(n_runs, 4);
}

static deft_tensor *outer_x;

BODY(mix_of_example)
{
    UNUSED;
    out[0] = CALL(inner, NULL, in[0], outer_x, in[0], outer_x, in[1]);
    return DEFT_OK;
}

Test(opaque, deft_vmap_leaves_other_inputs_alone)
{
    inner = define(MIX);
    outer_x = VECTOR(1, 2);
    deft_tensor *const m = rig_tensor(&r, DEFT_SHAPE(2, 2), (float[]){ 1, 2, 3, 4 });
    deft_tensor *const in[] = { m, VECTOR(10, 20) };
    deft_tensor *y;
    cr_assert(
        deft_vmap(r.cx, mix_of_example, NULL, in, (int[]){ 0, DEFT_NOT_MAPPED }, 2, &y, NULL, 1));
    EXPECT(deft_reshape(y, DEFT_SHAPE(4)), 60, 120, 68, 128);
}

/* ---- gradients ---- */

Test(opaque, has_the_gradient_that_it_is_given)
{
    const deft_op *const square = define_square();
    deft_tensor *const x = VECTOR(1, 2, 3);
    EXPECT(rig_grad_of_sum(deft_mul(CALL(square, NULL, x), 3), x), 6, 12, 18);
}

Test(opaque, a_gradient_that_is_not_known_is_a_mistake)
{
    const deft_op *const mix = define(MIX);
    deft_tensor *const x = VECTOR(1, 2), *const i = deft_cast(x, DEFT_I32);
    (void)i;
    deft_tensor *const y = CALL(mix, NULL, VECTOR(1, 2), x, x, x, x);
    cr_assert_null(rig_grad_of_sum(y, x));
    cr_assert_eq(deft_error(r.cx), DEFT_E_STATE);
    cr_assert(strstr(deft_message(r.cx), "acme.mix"), "%s", deft_message(r.cx));
    deft_clear(r.cx);
    /* no gradient passes through it */
    deft_tensor *const z = deft_mul(deft_stop_gradient(CALL(mix, NULL, x, x, x, x, x)), x);
    EXPECT(rig_grad_of_sum(z, x), 15, 30);
}

static const deft_op *squared;

BODY(square_example)
{
    UNUSED;
    out[0] = CALL(squared, NULL, in[0]);
    return DEFT_OK;
}

BODY(gradient_of_example)
{
    UNUSED;
    out[0] = rig_grad_of_sum(CALL(squared, NULL, in[0]), in[0]);
    return out[0] ? DEFT_OK : DEFT_E_STATE;
}

Test(opaque, gradients_and_deft_vmap_meet)
{
    squared = define_square();
    deft_tensor *const m = rig_tensor(&r, DEFT_SHAPE(2, 2), (float[]){ 1, 2, 3, 4 });
    deft_tensor *y;
    cr_assert(vmap1(square_example, m, 0, &y));
    EXPECT(deft_reshape(rig_grad_of_sum(y, m), DEFT_SHAPE(4)), 2, 4, 6, 8);
    cr_assert(vmap1(gradient_of_example, m, 0, &y));
    EXPECT(deft_reshape(y, DEFT_SHAPE(4)), 2, 4, 6, 8);
}

BODY(square_state)
{
    UNUSED;
    out[0] = deft_mul(CALL(squared, NULL, in[0]), 0.5f);
    return DEFT_OK;
}

Test(opaque, gradients_pass_through_loops)
{
    squared = define_square();
    deft_tensor *y, *const x = VECTOR(1, 2);
    cr_assert(loop(square_state, &x, 1, 2, &y)); /* x^4 / 8 */
    EXPECT(y, 0.125f, 2);
    EXPECT(rig_grad_of_sum(y, x), 0.5f, 4);
}

/* ---- failures ---- */

Test(opaque, a_failing_call_fails_the_step_and_nothing_else)
{
    const deft_op *const echo = define(ECHO);
    deft_tensor *const x = deft_keep(VECTOR(1, 2)), *const y = deft_keep(VECTOR(5, 6, 7, 8));
    const deft_scope s = deft_step_begin(r.cx);
    fails_from = 1;
    cr_assert(deft_assign(y, CALL(echo, &one, x)));
    cr_assert(deft_assign(x, deft_add(x, 1)));
    cr_assert_eq(deft_step_end(s), DEFT_E_RANGE);
    cr_assert(strstr(deft_message(r.cx), "acme.echo: the library returned 42"), "%s",
              deft_message(r.cx));
    cr_assert(strstr(deft_message(r.cx), " in acme.echo"), "%s", deft_message(r.cx));
    EXPECT(x, 1, 2);
    EXPECT(y, 5, 6, 7, 8);
    fails_from = 0;
    EXPECT(CALL(echo, &one, x), 2, 3, 3, 2);
}

Test(opaque, a_tensor_of_a_failed_call_never_gets_a_value)
{
    const deft_op *const echo = define(ECHO);
    fails_from = 1;
    deft_tensor *const bad = CALL(echo, &one, VECTOR(1, 2));
    expect_failure(bad, DEFT_E_RANGE, "the library returned 42");
    fails_from = 0;
    expect_failure(deft_add(bad, 1), DEFT_E_RANGE, "the library returned 42");
    EXPECT(deft_add(VECTOR(1), 1), 2);
    cr_assert_eq(n_runs, 1);
}

Test(opaque, a_submitted_step_fails_when_it_is_waited_for)
{
    const deft_op *const echo = define(ECHO);
    deft_tensor *const y = deft_keep(VECTOR(5, 6, 7, 8));
    const deft_scope s = deft_step_begin(r.cx);
    fails_from = 1;
    cr_assert(deft_assign(y, CALL(echo, &one, VECTOR(1, 2))));
    deft_status st = deft_step_submit(s); /* a context of a GPU makes the call at once */
    if (st == DEFT_OK) st = deft_wait(r.cx);
    cr_assert_eq(st, DEFT_E_RANGE);
    cr_assert(strstr(deft_message(r.cx), "the library returned 42"), "%s", deft_message(r.cx));
    EXPECT(y, 5, 6, 7, 8);
}

Test(opaque, the_shape_rule_refuses_inputs)
{
    const deft_op *const echo = define(ECHO);
    cr_assert_null(CALL(echo, &one, rig_tensor(&r, DEFT_SHAPE(1, 1), (float[]){ 1 })));
    cr_assert_eq(deft_error(r.cx), DEFT_E_SHAPE);
    cr_assert(strstr(deft_message(r.cx), "acme.echo: it takes a vector of f32"), "%s",
              deft_message(r.cx));
    deft_clear(r.cx);
    deft_tensor *const c = deft_complex(VECTOR(1), VECTOR(2));
    cr_assert_null(CALL(echo, &one, c));
    cr_assert_eq(deft_error(r.cx), DEFT_E_DTYPE);
    deft_clear(r.cx);
    EXPECT(deft_add(VECTOR(1), 1), 2);
}

static deft_op_form bad_form;

SHAPE_OF(bad_shape)
{
    UNUSED_FORM;
    out[0] = bad_form;
    return DEFT_OK;
}

Test(opaque, the_shape_rule_gives_forms)
{
    const struct {
        deft_op_form form;
        const char *part;
    } bad[] = {
        { { .dtype = (deft_dtype)77 }, "acme.bad: its shape rule gives result 0 no dtype" },
        { { .dtype = DEFT_F32, .rank = 9 }, "9 axes" },
        { { .dtype = DEFT_F32, .rank = 1, .extent = { -1 } }, "the extent -1" },
        { { .dtype = DEFT_F32, .rank = 2, .extent = { INT64_MAX, 2 } }, "too many elements" },
    };
    const deft_op *const op = define(
        DEF(.name = "acme.bad", .n_in = 1, .n_out = 1, .shape = bad_shape, .run = square_run));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bad_form = bad[i].form;
        cr_assert_null(CALL(op, NULL, VECTOR(1)));
        cr_assert(strstr(deft_message(r.cx), bad[i].part), "%s", deft_message(r.cx));
        deft_clear(r.cx);
    }
    /* A rule that is no function: found before memory is written. */
    bad_form = (deft_op_form){ .dtype = DEFT_F32, .rank = 1, .extent = { 1 } };
    deft_tensor *const y = CALL(op, NULL, VECTOR(1));
    bad_form.extent[0] = 2;
    expect_failure(y, DEFT_E_STATE, "acme.bad: its shape rule gives result 0 another form");
    cr_assert_eq(n_runs, 0);
}

Test(opaque, a_definition_has_a_body_or_functions)
{
    deft_op *op;
    char why[256];
    const deft_op_def bad[] = {
        *DEF(.name = "acme.a", .n_in = 1, .n_out = 1),
        *DEF(.name = "acme.a", .n_in = 1, .n_out = 1, .body = echo_body, .run = echo_run,
             .shape = echo_shape),
        *DEF(.name = "acme.a", .n_in = 1, .n_out = 1, .run = echo_run),
        *DEF(.name = "acme.a", .n_in = 1, .n_out = 1, .body = echo_body, .shape = echo_shape),
        *DEF(.name = "acme.a", .n_in = 1, .n_out = 1, .body = echo_body, .dense = true),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(deft_op_define(r.rt, &bad[i], &op, why, sizeof why), DEFT_E_ARG, "%zu", i);
        cr_assert(strstr(why, "acme.a"), "%s", why);
    }
    define(ECHO);
    deft_op_def other = *ECHO;
    other.user = &token;
    cr_assert_eq(deft_op_define(r.rt, &other, &op, why, sizeof why), DEFT_E_STATE);
}

RUN(root_run)
{
    (void)n_in, (void)n_out;
    for (int64_t i = 0; i < count(&in[0].form); i++)
        ((float *)out[0].data)[i] = sqrtf(element(&in[0], i) + element(&in[1], i));
    return begin(about);
}

Test(opaque, nan_check_names_what_makes_a_nan)
{
    const deft_op *const root = define(
        DEF(.name = "acme.root", .n_in = 2, .n_out = 1, .shape = mix_shape, .run = root_run));
    deft_tensor *y = deft_mul(CALL(root, NULL, VECTOR(1, -5), VECTOR(3, 4)), 2);
    cr_assert_eq(deft_nan_check(&y, 1), DEFT_E_NAN);
    cr_assert(strstr(deft_message(r.cx), "acme.root at "), "%s", deft_message(r.cx));
    cr_assert(strstr(deft_message(r.cx), "makes NaN in 1 of 2"), "%s", deft_message(r.cx));
    y = CALL(root, NULL, VECTOR(1, 2), deft_sqrt(VECTOR(3, -4)));
    cr_assert_eq(deft_nan_check(&y, 1), DEFT_E_NAN);
    cr_assert(strstr(deft_message(r.cx), "nan_check: sqrt at "), "%s", deft_message(r.cx));
    y = CALL(root, NULL, VECTOR(1, 2), VECTOR(3, 4));
    OK(&r, deft_nan_check(&y, 1));
    deft_clear(r.cx);
}

/* ---- files ---- */

Test(opaque, is_stored_and_loaded_by_name)
{
    char name[] = "/tmp/deft-opaque-XXXXXX", trace[64], tensors[64], why[256];
    const int fd = mkstemp(name);
    cr_assert_geq(fd, 0);
    close(fd);
    snprintf(trace, sizeof trace, "%s.trace", name);
    snprintf(tensors, sizeof tensors, "%s.safetensors", name);
    deft_op *op = define(ORDER);
    deft_tensor *out[3], *x = VECTOR(3, 1, 2);
    OK(&r, deft_store_next(r.cx, name));
    cr_assert(deft_op_call(r.cx, op, &x, 1, NULL, out, 3));
    EXPECT(deft_add(out[0], deft_cast(out[1], DEFT_F32)), 2, 4, 3);
    deft_program *p;
    OK(&r, deft_program_load(r.cx, trace, &p));
    deft_tensor *y[2]; /* the sum, and the number, which a handle names */
    x = VECTOR(5, 7, 6);
    cr_assert(deft_program_call(p, &x, 1, y, 2), "%s", deft_message(r.cx));
    EXPECT(y[0], 5, 8, 8);
    EXPECT(y[1], 3);
    cr_assert(deft_program_call(p, &x, 1, y, 2), "%s", deft_message(r.cx));
    EXPECT(y[1], 3);
    EXPECT(y[0], 5, 8, 8);
    deft_program_destroy(&p);
    cr_assert_eq(deft_op_destroy(&op, why, sizeof why), DEFT_OK, "%s", why);
    cr_assert_eq(deft_program_load(r.cx, trace, &p), DEFT_E_NOT_FOUND);
    cr_assert(strstr(deft_message(r.cx), "acme.order, version 1"), "%s", deft_message(r.cx));
    unlink(name);
    unlink(trace);
    unlink(tensors);
}

Test(opaque, an_export_refuses_it_by_name)
{
    captured = define(ECHO);
    deft_capture *c = deft_capture_create(r.cx, captured_body, NULL);
    deft_tensor *y = NULL;
    OK(&r, call_capture(c, VECTOR(1, 2), &y));
    const deft_export_options as_c = { .size = sizeof as_c, .as_c = true };
    cr_assert_eq(deft_export(c, "/tmp/deft-opaque", &as_c), DEFT_E_ARG);
    cr_assert(strstr(deft_message(r.cx), "acme.echo, an opaque operator"), "%s",
              deft_message(r.cx));
    deft_capture_destroy(&c);
}

/* ---- deft_op_check ---- */

static char report[2048];

static deft_status check(const deft_op *op, deft_tensor *x, const void *attributes)
{
    return deft_op_check(r.cx, op, &x, 1, attributes, NULL, report, sizeof report);
}

static deft_status recorded_back(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                 deft_tensor *const *out, deft_tensor *const *grad_out,
                                 size_t n_out, deft_tensor **grad_in, void *user)
{
    (void)cx, (void)n_in, (void)out, (void)n_out, (void)user;
    grad_in[0] = deft_mul(deft_mul(grad_out[0], in[0]), 2);
    return DEFT_OK;
}

static deft_status wrong_back(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                              deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                              deft_tensor **grad_in, void *user)
{
    (void)cx, (void)n_in, (void)out, (void)n_out, (void)user;
    grad_in[0] = deft_mul(deft_mul(grad_out[0], in[0]), 3);
    return DEFT_OK;
}

static deft_status own_batch(deft_ctx *cx, int64_t n, deft_tensor *const *in, const bool *is_mapped,
                             size_t n_in, deft_tensor **out, size_t n_out, void *attributes)
{
    (void)cx, (void)n, (void)is_mapped, (void)n_in, (void)n_out, (void)attributes;
    out[0] = deft_mul(in[0], in[0]);
    return DEFT_OK;
}

static deft_status wrong_batch(deft_ctx *cx, int64_t n, deft_tensor *const *in,
                               const bool *is_mapped, size_t n_in, deft_tensor **out, size_t n_out,
                               void *attributes)
{
    (void)cx, (void)n, (void)is_mapped, (void)n_in, (void)n_out, (void)attributes;
    out[0] = deft_mul(in[0], in[0] /* of another example */ ? deft_roll(in[0], 1, 0) : in[0]);
    return DEFT_OK;
}

Test(opaque, op_check_finds_nothing_in_good_operators)
{
    deft_tensor *const x = VECTOR(1, 2, 3), *const m =
                                                deft_reshape(rig_range(&r, 6, 1), DEFT_SHAPE(2, 3));
    cr_assert_eq(check(define(ECHO), x, &one), DEFT_OK, "%s", report);
    cr_assert_eq(check(define(ORDER), m, NULL), DEFT_OK, "%s", report);
    deft_op_def d = *DEF(.name = "acme.good", .n_in = 1, .n_out = 1, .shape = mix_shape,
                         .run = square_run, .grad = recorded_back);
    cr_assert_eq(check(define(&d), m, NULL), DEFT_OK, "%s", report);
    d.name = "acme.batched";
    d.batch = own_batch;
    cr_assert_eq(check(define(&d), m, NULL), DEFT_OK, "%s", report);
}

static int how;

enum { OUTSIDE, BEFORE, INPUT, STATE, SPARSE, STRIDES, N_FAULTS };

/* x^2, with a fault. */
RUN(faulty_run)
{
    static int calls;
    const int64_t n = count(&in[0].form);
    float *const to = out[0].data;
    (void)n_in, (void)n_out, (void)about;
    calls++;
    for (int64_t i = 0; i < n; i++) {
        const float x = how == STRIDES ? ((const float *)in[0].data)[i] : element(&in[0], i);
        if (how != SPARSE || i != 1) to[i] = x * x;
    }
    if (how == OUTSIDE) to[n] = 0;
    if (how == BEFORE) to[-1] = 0;
    if (how == INPUT) ((float *)(uintptr_t)in[0].data)[0] += 1;
    if (how == STATE) to[0] += (float)calls;
    return DEFT_OK;
}

Test(opaque, op_check_finds_planted_faults)
{
    static const char *const want[N_FAULTS] = {
        [OUTSIDE] = "result: it writes outside of result 0",
        [BEFORE] = "result: it writes outside of result 0",
        [INPUT] = "input: it writes to input 0",
        [STATE] = "state: the second call: result 0 differs in 1 elements",
        [SPARSE] = "result: it leaves elements as they were: result 0 differs in 1 elements",
        [STRIDES] = "stride: inputs with gaps: result 0 differs in",
    };
    const deft_op *const op = define(
        DEF(.name = "acme.faulty", .n_in = 1, .n_out = 1, .shape = mix_shape, .run = faulty_run));
    deft_tensor *const m = deft_reshape(rig_range(&r, 6, 1), DEFT_SHAPE(2, 3));
    for (how = 0; how < N_FAULTS; how++) {
        /* inputs with gaps are read backwards, within the memory of the check */
        cr_assert_eq(check(op, m, NULL), DEFT_E_CHECK, "%d", how);
        cr_assert(strstr(report, want[how]), "%d: %s", how, report);
    }
    how = N_FAULTS;
    cr_assert_eq(check(op, m, NULL), DEFT_OK, "%s", report);
}

Test(opaque, op_check_finds_wrong_rules)
{
    deft_tensor *const m = deft_reshape(rig_range(&r, 6, 1), DEFT_SHAPE(2, 3));
    deft_op_def d = *DEF(.name = "acme.steep", .n_in = 1, .n_out = 1, .shape = mix_shape,
                         .run = square_run, .grad = wrong_back);
    cr_assert_eq(check(define(&d), m, NULL), DEFT_E_CHECK);
    cr_assert(strstr(report, "reverse: input 0"), "%s", report);
    d = *DEF(.name = "acme.shifted", .n_in = 1, .n_out = 1, .shape = mix_shape, .run = square_run,
             .batch = wrong_batch);
    cr_assert_eq(check(define(&d), m, NULL), DEFT_E_CHECK);
    cr_assert(strstr(report, "batch: all inputs along axis 0: result 0 differs"), "%s", report);
}
