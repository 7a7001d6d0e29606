/* SPDX-License-Identifier: Apache-2.0
 *
 * A budget never changes a result. Each program here runs without one and under many, that cut it
 * at every place where a cut is possible, and must give the same bits, the same errors and the same
 * bytes in the caller's memory. How often budgets cut, and what they tell, is in test_why.c.
 * Why this file is long: a program for each kind of thing that a cut could lose.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/budget.h"
#include "support/harness.h"

#include "lazy/core/lazy.h" /* after the calls with plain numbers */
#include "lazy/run/materialize.h"

enum { N = 4, MOST = 64 };

/* What a program leaves: numbers, and what it was told. */
typedef struct outcome {
    float v[MOST];
    size_t n;
    deft_status st;
    char message[256];
} outcome;

typedef void (*program)(rig *r, outcome *o);

static deft_tensor *vec(rig *r, float first)
{
    float v[N];
    for (int i = 0; i < N; i++) v[i] = first + 0.25F * (float)i;
    return deft_keep(deft_from(r->cx, DEFT_SHAPE(N), DEFT_F32, v, sizeof v));
}

static void put(rig *r, outcome *o, deft_tensor *t, size_t n)
{
    if (o->st != DEFT_OK) return;
    o->st = t ? deft_read(t, DEFT_F32, o->v + o->n, n * sizeof(float)) : deft_error(r->cx);
    if (o->st != DEFT_OK) snprintf(o->message, sizeof o->message, "%s", deft_message(r->cx));
    o->n += n;
}

static void end(rig *r, outcome *o, deft_scope s)
{
    const deft_status st = deft_step_end(s);
    if (o->st != DEFT_OK) return;
    o->st = st;
    if (st != DEFT_OK) snprintf(o->message, sizeof o->message, "%s", deft_message(r->cx));
}

static outcome run(program p, const deft_ctx_options *options, uint64_t *cuts)
{
    rig r;
    outcome o = { 0 };
    rig_open(&r, NULL, options);
    p(&r, &o);
    *cuts = rig_stats(&r).cuts;
    deft_clear(r.cx);
    rig_close(&r);
    return o;
}

static void expect_same(const outcome *want, const outcome *got, const char *what, uint64_t n)
{
    cr_assert_eq(got->st, want->st, "%s %llu: %s, not %s: %s%s", what, (unsigned long long)n,
                 deft_status_text(got->st), deft_status_text(want->st), got->message,
                 want->message);
    cr_assert_str_eq(got->message, want->message, "%s %llu", what, (unsigned long long)n);
    for (size_t i = 0; i < want->n; i++)
        cr_assert(memcmp(&got->v[i], &want->v[i], sizeof(float)) == 0,
                  "%s %llu: number %zu is %.9g, not %.9g", what, (unsigned long long)n, i,
                  (double)got->v[i], (double)want->v[i]);
}

/* Under every max_nodes that can matter, and with a cut wherever the clock is looked at. */
static void never_changes(program p, deft_status st)
{
    uint64_t none, cuts, most = 0;
    const outcome want = run(p, NULL, &none);
    cr_assert_eq(want.st, st, "%s: %s", deft_status_text(want.st), want.message);
    for (uint32_t n = 1; n < 96; n++) {
        const deft_ctx_options o = { .size = sizeof o, .max_nodes = n };
        const outcome got = run(p, &o, &cuts);
        expect_same(&want, &got, "max_nodes", n);
        if (cuts > most) most = cuts;
    }
    const deft_ctx_options late = { .size = sizeof late, .max_latency_ns = 1 };
    outcome got = run(p, &late, &cuts);
    expect_same(&want, &got, "max_latency_ns", 1);
    cr_assert(most > none, "the budgets cut nothing");
    for (uint32_t n = 0; n < 24; n++) { /* what is not needed is forgotten each time */
        const deft_ctx_options small = { .size = sizeof small, .max_bytes = 1, .max_nodes = n };
        got = run(p, &small, &cuts);
        expect_same(&want, &got, "max_bytes 1, max_nodes", n);
    }
}

/* ---- gradients ---- */

static void chain(rig *r, outcome *o)
{
    deft_tensor *const k = vec(r, 1), *g[2];
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *y = deft_add(k, 1.0);
    for (int i = 0; i < 12; i++) y = deft_mul(deft_sin(deft_add(y, 1)), 0.9);
    deft_tensor *const l = deft_sum(y, DEFT_ALL_AXES, 0);
    const deft_grad_options zero = { .size = sizeof zero, .unused_is_zero = true };
    deft_tensor *const with[] = { k, y };
    if (!deft_grad(&l, NULL, 1, with, 2, &zero, g)) g[0] = g[1] = NULL;
    put(r, o, g[0], N);
    put(r, o, g[1], N);
    end(r, o, s);
}

Test(budget, gradient_of_a_chain)
{
    never_changes(chain, DEFT_OK);
}

/* The tensor was assigned since it was used: it stands for the value that was used. */
static void assigned(rig *r, outcome *o)
{
    deft_tensor *const k = vec(r, 1), *g;
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *y = deft_square(k);
    for (int i = 0; i < 6; i++) {
        y = deft_tanh(deft_mul(y, 1.5));
        deft_assign(k, deft_add(k, 1));
    }
    g = rig_grad_of_sum(y, k);
    put(r, o, g, N);
    deft_assign(k, deft_sub(k, g));
    end(r, o, s);
    put(r, o, k, N);
}

Test(budget, gradient_of_what_was_assigned)
{
    never_changes(assigned, DEFT_OK);
}

static void outside_steps(rig *r, outcome *o)
{
    deft_tensor *const k = vec(r, 1);
    const deft_scope s = deft_scope_begin(r->cx);
    deft_tensor *y = k;
    for (int i = 0; i < 8; i++) y = deft_exp(deft_mul(y, 0.1));
    put(r, o, rig_grad_of_sum(y, k), N);
    if (deft_scope_end(s) != DEFT_OK) o->st = DEFT_E_STATE;
}

Test(budget, gradient_outside_steps)
{
    never_changes(outside_steps, DEFT_OK);
}

static void twice(rig *r, outcome *o)
{
    deft_tensor *const k = vec(r, 1);
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *y = k;
    for (int i = 0; i < 4; i++) y = deft_sin(deft_square(y));
    deft_tensor *g = rig_grad_of_sum(y, k);
    for (int i = 0; i < 4; i++) g = deft_cos(g);
    put(r, o, rig_grad_of_sum(g, k), N);
    end(r, o, s);
}

Test(budget, gradient_of_a_gradient)
{
    never_changes(twice, DEFT_OK);
}

static deft_tensor *halve(deft_ctx *cx, deft_tensor *g, void *user)
{
    (void)cx, (void)user;
    for (int i = 0; i < 5; i++) g = deft_mul(g, i ? 1.0 : 0.5);
    return g;
}

#define FN(name)                                                                                   \
    static deft_status name(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,  \
                            size_t n_out, void *user)
#define UNUSED (void)cx, (void)in, (void)n_in, (void)out, (void)n_out, (void)user

FN(cube)
{
    UNUSED;
    out[0] = deft_mul(in[0], deft_square(in[0]));
    return DEFT_OK;
}

static deft_status not_its_own(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                               deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                               deft_tensor **grad_in, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    deft_tensor *g = deft_mul(grad_out[0], deft_add(out[0], in[0]));
    for (int i = 0; i < 6; i++) g = deft_add(g, 0.5);
    grad_in[0] = g;
    return DEFT_OK;
}

/* Hooks, stops and functions with a gradient of their own are marks on records. */
static void marked(rig *r, outcome *o)
{
    deft_tensor *const k = vec(r, 1);
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *y = deft_square(k), *z = NULL;
    deft_grad_hook(y, halve, NULL);
    for (int i = 0; i < 4; i++) y = deft_sin(y);
    if (!deft_custom_grad(r->cx, cube, not_its_own, NULL, &y, 1, &z, 1)) z = NULL;
    for (int i = 0; i < 4 && z; i++) z = deft_mul(z, deft_add(deft_stop_gradient(z), k));
    put(r, o, z ? rig_grad_of_sum(z, k) : NULL, N);
    end(r, o, s);
}

Test(budget, gradients_through_marks)
{
    never_changes(marked, DEFT_OK);
}

/* ---- loops, branches and examples ---- */

FN(turn)
{
    UNUSED;
    deft_tensor *t = in[0];
    for (int i = 0; i < 3; i++) t = deft_tanh(deft_mul(t, 1.5));
    out[0] = t;
    if (n_out > 1) out[1] = deft_sin(t);
    return DEFT_OK;
}

static void looped(rig *r, outcome *o)
{
    deft_tensor *const k = vec(r, 0.1F), *out[2] = { 0 }, *j = NULL;
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *x = deft_mul(k, 1.5);
    for (int i = 0; i < 6; i++) x = deft_add(x, 0.01);
    deft_tensor *const ones = deft_ones(r->cx, DEFT_SHAPE(N), DEFT_F32);
    if (!deft_scan(r->cx, turn, NULL, &x, 1, NULL, 0, 3, 1, out)) out[0] = out[1] = NULL;
    put(r, o, out[0] ? rig_grad_of_sum(deft_square(out[0]), k) : NULL, N);
    put(r, o, out[1] ? rig_grad_of_sum(deft_square(out[1]), k) : NULL, N);
    if (!deft_jvp(&out[0], 1, &k, &ones, 1, NULL, &j)) j = NULL;
    put(r, o, j, N);
    end(r, o, s);
}

Test(budget, gradients_of_a_loop)
{
    never_changes(looped, DEFT_OK);
}

FN(with_a_loop)
{
    UNUSED;
    deft_tensor *x = in[0], *end_state[2] = { 0 };
    for (int i = 0; i < 4; i++) x = deft_add(x, 0.125);
    if (!deft_scan(cx, turn, NULL, &x, 1, NULL, 0, 2, 1, end_state)) return deft_error(cx);
    out[0] = deft_mul(end_state[0], deft_sum(end_state[1], DEFT_ALL_AXES, 0));
    return DEFT_OK;
}

static void batched(rig *r, outcome *o)
{
    deft_tensor *const k = vec(r, 0.1F), *y = NULL;
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *x = deft_reshape(deft_expand(k, DEFT_SHAPE(3, N)), DEFT_SHAPE(3, N));
    for (int i = 0; i < 5; i++) x = deft_mul(x, 1.125);
    if (!deft_vmap(r->cx, with_a_loop, NULL, &x, NULL, 1, &y, NULL, 1)) y = NULL;
    put(r, o, y, 3 * (size_t)N);
    put(r, o, y ? rig_grad_of_sum(deft_square(y), k) : NULL, N);
    end(r, o, s);
}

Test(budget, examples_of_a_loop_and_their_gradient)
{
    never_changes(batched, DEFT_OK);
}

FN(one_way)
{
    UNUSED;
    out[0] = deft_sin(deft_mul(in[0], in[1]));
    return DEFT_OK;
}

FN(other_way)
{
    UNUSED;
    out[0] = deft_exp(deft_sub(in[0], in[1]));
    return DEFT_OK;
}

static void branched(rig *r, outcome *o)
{
    deft_tensor *const k = vec(r, 0.1F), *y = NULL;
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *x = k;
    for (int i = 0; i < 3; i++) {
        x = deft_add(deft_mul(x, 1.25), 0.5);
        deft_tensor *const in[] = { x, k };
        deft_tensor *const c = deft_gt(deft_sum(x, DEFT_ALL_AXES, 0), 4.0);
        if (!deft_cond(c, one_way, other_way, NULL, in, 2, &y, 1)) y = NULL;
        x = y;
        if (!x) break;
    }
    put(r, o, x ? rig_grad_of_sum(x, k) : NULL, N);
    end(r, o, s);
}

Test(budget, gradients_of_branches)
{
    never_changes(branched, DEFT_OK);
}

/* ---- views ---- */

static void through_views(rig *r, outcome *o)
{
    deft_tensor *const k = vec(r, 1);
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *const x = deft_add(k, 1), *const low = deft_slice(k, DEFT_R(0, 2));
    deft_tensor *const square = deft_reshape(k, DEFT_SHAPE(2, 2));
    deft_tensor *y = deft_slice(x, DEFT_R(0, 2));
    for (int i = 0; i < 9; i++) y = deft_mul(deft_add(y, 1), 1.5);
    deft_assign(low, y);
    for (int i = 0; i < 5; i++) y = deft_sub(y, 1);
    deft_assign(low, y); /* once more through the same view */
    deft_tensor *const column =
        deft_slice(deft_reshape(k, DEFT_SHAPE(2, 2)), DEFT_R(0, 2), DEFT_AT(1));
    for (int i = 0; i < 5; i++) y = deft_add(y, k ? 0.5 : 0);
    deft_assign(column, y);
    put(r, o, deft_sum(square, DEFT_ALL_AXES, 0), 1);
    end(r, o, s);
    put(r, o, k, N);
}

Test(budget, assigns_through_views)
{
    never_changes(through_views, DEFT_OK);
}

/* Records that nobody asks for, with a value that they alone hold: a bound on bytes has them
 * forgotten. */
static void waste_memory(rig *r)
{
    const float v[64] = { 1 };
    for (int i = 0; i < 3; i++) {
        const deft_scope s = deft_scope_begin(r->cx);
        deft_tensor *y = deft_from(r->cx, DEFT_SHAPE(64), DEFT_F32, v, sizeof v);
        for (int k = 0; k < 3; k++) y = deft_sin(y);
        OK(r, deft_scope_end(s));
    }
}

/* Two tensors have one record and a value each. When the tensor whose value the record has gets
 * another one, what was forgotten since cannot be computed again. */
static void one_record_of_two(rig *r, outcome *o)
{
    /* l is older, so its value becomes that of the record. */
    deft_tensor *const l = vec(r, 2), *const k = vec(r, 1);
    const deft_scope outer = deft_scope_begin(r->cx);
    deft_tensor *const x = deft_slice(k, DEFT_R(1, 3));
    deft_assign(deft_slice(k, DEFT_R(0, 2)), deft_mul(x, 0.75));
    deft_assign(l, k);
    for (int i = 0; i < 3; i++) {
        waste_memory(r);
        deft_assign(l, deft_add(l, 1));
    }
    put(r, o, deft_sum(k, DEFT_ALL_AXES, 0), 1);
    put(r, o, k, N);
    put(r, o, l, N);
    if (deft_scope_end(outer) != DEFT_OK) o->st = DEFT_E_STATE;
}

Test(budget, one_record_of_two_tensors)
{
    never_changes(one_record_of_two, DEFT_OK);
}

/* ---- memory of the caller's, and mistakes ---- */

/* Nobody asks for what cannot be computed: it is no mistake, whenever the rest is. */
static void not_asked_for(rig *r, outcome *o)
{
    const int32_t outside = N + 3;
    deft_tensor *const k = vec(r, 1), *bad = NULL;
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *const i = deft_from(r->cx, DEFT_SHAPE(1), DEFT_I32, &outside, sizeof outside);
    deft_tensor *y = deft_add(k, 1);
    bad = deft_take(y, i, 0);
    for (int j = 0; j < 8; j++) y = deft_sin(y);
    put(r, o, rig_grad_of_sum(y, k), N);
    deft_assign(k, y);
    end(r, o, s);
    put(r, o, k, N);
    (void)bad;
}

Test(budget, what_nobody_asks_for_is_no_mistake)
{
    never_changes(not_asked_for, DEFT_OK);
}

static deft_tensor *outside_index;

static deft_status takes_it(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add(in[0], deft_slice(outside_index, DEFT_AT(0)));
    return DEFT_OK;
}

static deft_status doubles(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(in[0], 2.0);
    return DEFT_OK;
}

/* What cannot be computed has a shape, is recorded from, and stands in the branch not taken. */
static void used_in_vain(rig *r, outcome *o)
{
    const int32_t outside = N + 3;
    deft_tensor *const k = vec(r, 1), *out = NULL;
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *const i = deft_from(r->cx, DEFT_SHAPE(1), DEFT_I32, &outside, sizeof outside);
    outside_index = deft_take(deft_add(k, 1), i, 0);
    deft_tensor *const less = deft_lt(deft_sum(k, DEFT_ALL_AXES, 0), 0);
    cr_assert(deft_cond(less, takes_it, doubles, NULL, &k, 1, &out, 1), "%s", deft_message(r->cx));
    deft_tensor *y = k;
    for (int j = 0; j < 8; j++) y = deft_sin(y);
    cr_assert_eq(deft_rank(outside_index), 1);
    cr_assert(deft_add(outside_index, outside_index), "%s", deft_message(r->cx));
    deft_assign(k, deft_add(out, y));
    end(r, o, s);
    put(r, o, k, N);
}

Test(budget, what_is_used_in_vain_is_no_mistake)
{
    never_changes(used_in_vain, DEFT_OK);
}

static deft_status many_sines(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = in[0];
    for (int i = 0; i < 300; i++) out[0] = deft_sin(out[0]);
    return DEFT_OK;
}

/* An outermost step that is aborted removes all records, those too that a budget has cut. */
static void after_an_abort(rig *r, outcome *o)
{
    deft_tensor *const k = vec(r, 1);
    for (int turn = 0; turn < 4; turn++) {
        deft_tensor *y = k, *each = NULL;
        const deft_scope s = deft_step_begin(r->cx);
        for (int i = 0; i < 30 * (turn % 2); i++) y = deft_sin(deft_add(y, 1));
        if (!deft_vmap(r->cx, many_sines, NULL, &y, NULL, 1, &each, NULL, 1)) each = NULL;
        put(r, o, each, N);
        deft_step_abort(s);
    }
}

Test(budget, an_aborted_step_leaves_nothing_that_counts)
{
    never_changes(after_an_abort, DEFT_OK);
}

static void asked_for(rig *r, outcome *o)
{
    const int32_t outside = N + 3;
    deft_tensor *const k = vec(r, 1), *bad = NULL;
    const deft_scope s = deft_step_begin(r->cx);
    deft_tensor *const i = deft_from(r->cx, DEFT_SHAPE(1), DEFT_I32, &outside, sizeof outside);
    deft_tensor *y = deft_add(k, 1);
    bad = deft_take(y, i, 0);
    for (int j = 0; j < 8; j++) y = deft_sin(y);
    put(r, o, y, N);
    put(r, o, bad, 1);
    deft_step_abort(s);
}

Test(budget, a_mistake_comes_when_it_is_asked_for)
{
    uint64_t cuts;
    const outcome want = run(asked_for, NULL, &cuts);
    cr_assert_eq(want.st, DEFT_E_RANGE);
    for (uint32_t n = 1; n < 20; n++) {
        const deft_ctx_options o = { .size = sizeof o, .max_nodes = n };
        const outcome got = run(asked_for, &o, &cuts);
        cr_assert_eq(got.st, want.st, "max_nodes %u: %s", n, deft_status_text(got.st));
        cr_assert(memcmp(got.v, want.v, N * sizeof *got.v) == 0, "max_nodes %u", n);
    }
}

static void written(rig *r, outcome *o)
{
    float memory[N] = { 1, 2, 3, 4 };
    const deft_scope s = deft_scope_begin(r->cx);
    deft_tensor *const m =
        deft_wrap_mut(r->cx, DEFT_SHAPE(N), DEFT_F32, memory, sizeof memory, NULL);
    deft_tensor *y = deft_mul(m, 2);
    for (int i = 0; i < 5; i++) {
        deft_assign(m, deft_add(m, y));
        y = deft_sub(y, m);
    }
    for (int i = 0; i < N; i++) o->v[o->n++] = memory[i]; /* not before the scope ends */
    put(r, o, rig_grad_of_sum(deft_square(y), y), N);
    put(r, o, m, N);
    put(r, o, y, N);
    if (deft_scope_end(s) != DEFT_OK) o->st = DEFT_E_STATE;
    for (int i = 0; i < N; i++) o->v[o->n++] = memory[i];
}

Test(budget, memory_of_the_caller)
{
    never_changes(written, DEFT_OK);
}

static void put_back(rig *r, outcome *o)
{
    deft_tensor *const k = vec(r, 1), *const l = vec(r, 2);
    const deft_scope outer = deft_scope_begin(r->cx);
    deft_assign(l, deft_mul(l, k)); /* pending when the step begins */
    for (int bad = 1; bad >= 0; bad--) {
        const deft_scope s = deft_step_begin(r->cx);
        for (int i = 0; i < 6; i++) {
            deft_assign(l, deft_add(l, k));
            deft_assign(deft_slice(k, DEFT_R(1, 3)), deft_slice(l, DEFT_R(0, 2)));
        }
        if (bad)
            deft_step_abort(s);
        else
            end(r, o, s);
        put(r, o, l, N);
        put(r, o, k, N);
    }
    if (deft_scope_end(outer) != DEFT_OK) o->st = DEFT_E_STATE;
}

Test(budget, a_step_that_is_put_back)
{
    never_changes(put_back, DEFT_OK);
}

/* Records that nothing asks for any more, in front of what a program goes on with. */
static void waste(rig *r, deft_tensor *k)
{
    const deft_scope s = deft_scope_begin(r->cx);
    deft_tensor *y = deft_mul(k, 0.5);
    for (int i = 0; i < 7; i++) y = deft_sin(y);
    OK(r, deft_scope_end(s));
}

static void put_back_renumbered(rig *r, outcome *o)
{
    deft_tensor *const k = vec(r, 1), *const l = vec(r, 2);
    const deft_scope outer = deft_scope_begin(r->cx);
    waste(r, k);
    deft_tensor *const part = deft_slice(k, DEFT_R(1, 3));
    deft_assign(l, deft_mul(l, k));
    for (int turn = 0; turn < 2; turn++) {
        const deft_scope s = deft_step_begin(r->cx);
        waste(r, l);
        deft_assign(l, deft_neg(k));
        deft_assign(part, deft_slice(l, DEFT_R(0, 2)));
        waste(r, l);
        deft_step_abort(s);
        put(r, o, l, N);
        put(r, o, part, 2);
        deft_assign(part, deft_neg(part)); /* a view still */
        put(r, o, k, N);
        deft_assign(l, deft_add(l, 1));
    }
    if (deft_scope_end(outer) != DEFT_OK) o->st = DEFT_E_STATE;
}

Test(budget, a_step_that_is_put_back_behind_what_is_forgotten)
{
    never_changes(put_back_renumbered, DEFT_OK);
}

/* What cannot be computed is for the caller's memory, which keeps what it holds. */
static void written_in_vain(rig *r, outcome *o)
{
    const int32_t outside = N + 3;
    float memory[1] = { 7 };
    deft_tensor *const k = vec(r, 1);
    const deft_scope outer = deft_scope_begin(r->cx);
    deft_tensor *const i = deft_from(r->cx, DEFT_SHAPE(1), DEFT_I32, &outside, sizeof outside);
    deft_tensor *const m =
        deft_wrap_mut(r->cx, DEFT_SHAPE(1), DEFT_F32, memory, sizeof memory, NULL);
    for (int bad = 1; bad >= 0; bad--) {
        outcome step = { 0 };
        const deft_scope s = deft_step_begin(r->cx);
        waste(r, k);
        deft_assign(m, deft_take(deft_add(k, 1), bad ? i : deft_sub(i, 4), 0));
        waste(r, k);
        waste(r, k);
        end(r, &step, s);
        o->v[o->n++] = (float)step.st;
        o->v[o->n++] = memory[0];
    }
    if (deft_scope_end(outer) != DEFT_OK) o->st = DEFT_E_STATE;
}

Test(budget, memory_that_is_written_in_vain)
{
    rig r;
    outcome o = { 0 };
    rig_open(&r, NULL, NULL);
    written_in_vain(&r, &o);
    rig_close(&r);
    cr_assert(o.v[0] == DEFT_E_RANGE && o.v[1] == 7 && o.v[2] == DEFT_OK, "%g %g %g",
              (double)o.v[0], (double)o.v[1], (double)o.v[2]);
    never_changes(written_in_vain, DEFT_OK);
}

/* A write that waited when the step began is put back, under the number that its record has then:
 * another one cannot be computed, which keeps a cut from computing this one. */
static void written_before(rig *r, outcome *o)
{
    const int32_t outside = N + 3;
    float lost[1] = { 7 }, memory[N] = { 0 };
    deft_tensor *const k = vec(r, 1);
    const deft_scope outer = deft_scope_begin(r->cx);
    deft_tensor *const i = deft_from(r->cx, DEFT_SHAPE(1), DEFT_I32, &outside, sizeof outside);
    deft_tensor *const never =
        deft_wrap_mut(r->cx, DEFT_SHAPE(1), DEFT_F32, lost, sizeof lost, NULL);
    deft_tensor *const m =
        deft_wrap_mut(r->cx, DEFT_SHAPE(N), DEFT_F32, memory, sizeof memory, NULL);
    waste(r, k);
    deft_assign(never, deft_full(r->cx, DEFT_SHAPE(1), DEFT_F32, 5));
    deft_assign(m, deft_mul(k, 2));
    const deft_scope s = deft_step_begin(r->cx);
    deft_assign(never, deft_take(deft_add(k, 1), i, 0));
    deft_assign(m, deft_neg(k));
    waste_memory(r);
    deft_step_abort(s);
    put(r, o, m, N);
    if (deft_scope_end(outer) != DEFT_OK) o->st = DEFT_E_STATE;
    for (int j = 0; j < N; j++) o->v[o->n++] = memory[j];
    o->v[o->n++] = lost[0];
}

Test(budget, writes_that_waited_are_put_back)
{
    never_changes(written_before, DEFT_OK);
}

/* What is put back may hang on what cannot be computed: that is told to whoever asks for it alone.
 */
static void lost_and_put_back(rig *r, outcome *o)
{
    const int32_t outside = N + 3;
    deft_tensor *const k = vec(r, 1);
    float v;
    const deft_scope outer = deft_scope_begin(r->cx);
    waste(r, k);
    deft_tensor *const i = deft_from(r->cx, DEFT_SHAPE(1), DEFT_I32, &outside, sizeof outside);
    deft_tensor *const bad = deft_take(deft_add(k, 1), i, 0), *const held = deft_neg(bad);
    const deft_scope s = deft_step_begin(r->cx);
    deft_assign(held, deft_sum(k, DEFT_AXES(0), 1));
    o->v[o->n++] = deft_read(bad, DEFT_F32, &v, sizeof v) != DEFT_OK;
    waste(r, k);
    waste_memory(r);
    deft_step_abort(s);
    const deft_scope next = deft_step_begin(r->cx);
    deft_assign(k, deft_add(k, 1));
    end(r, o, next);
    put(r, o, k, N);
    o->v[o->n++] = deft_read(held, DEFT_F32, &v, sizeof v) != DEFT_OK; /* NULL after an early cut */
    if (deft_scope_end(outer) != DEFT_OK) deft_clear(r->cx); /* held may be asked for at its end */
}

Test(budget, what_is_lost_stays_lost_when_it_is_put_back)
{
    never_changes(lost_and_put_back, DEFT_OK);
}

/* ---- what is forgotten ---- */

/* In one step, work whose results end with their scope; x goes on, and depends on k. */
static float endless(rig *r, uint32_t max_nodes, int turns, bool accumulates, uint32_t *most)
{
    deft_tensor *const k = vec(r, 1), *const x = vec(r, 0);
    const deft_step_options o = { .size = sizeof o, .max_nodes = max_nodes };
    const deft_scope s = deft_step_begin_with(r->cx, &o);
    *most = 0;
    for (int i = 0; i < turns; i++) {
        const deft_scope one = deft_scope_begin(r->cx);
        deft_tensor *y = deft_mul(k, 0.5);
        for (int j = 0; j < 20; j++) y = deft_sin(deft_mul(y, k));
        if (accumulates || i + 1 == turns) deft_assign(x, deft_add(x, y));
        OK(r, deft_scope_end(one));
        if (r->cx->rec.n > *most) *most = r->cx->rec.n;
    }
    const float g = rig_item(r, deft_sum(rig_grad_of_sum(x, k), DEFT_ALL_AXES, 0));
    OK(r, deft_step_end(s));
    return g;
}

Test(budget, an_endless_step_forgets_what_nobody_can_ask_for)
{
    rig r;
    uint32_t most, all;
    rig_open(&r, NULL, NULL);
    const float want = endless(&r, 0, 500, false, &all);
    cr_assert_gt(all, 20000);
    const float got = endless(&r, 64, 500, false, &most);
    cr_assert(got == want, "%.9g, not %.9g", (double)got, (double)want);
    cr_assert_lt(most, 10000, "%u records", most);
    (void)endless(&r, 64, 2000, false, &most);
    cr_assert_lt(most, 10000, "%u records", most);
    rig_close(&r);
}

Test(budget, what_a_gradient_can_ask_for_stays)
{
    rig r;
    uint32_t most, all;
    rig_open(&r, NULL, NULL);
    const int rounds = (int)test_size(300, 100);
    const float want = endless(&r, 0, rounds, true, &all);
    const float got = endless(&r, 64, rounds, true, &most);
    cr_assert(got == want, "%.9g, not %.9g", (double)got, (double)want);
    cr_assert_gt(most, 40 * (uint32_t)rounds, "%u records", most);
    rig_close(&r);
}

/* Large tensors that only records hold are given back. */
Test(budget, memory_of_an_endless_step)
{
    enum { LARGE = 1 << 18 };
    static float v[LARGE];
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const k = vec(&r, 1), *const sum = vec(&r, 0);
    const deft_step_options o = { .size = sizeof o, .max_nodes = 16 };
    const deft_scope s = deft_step_begin_with(r.cx, &o);
    for (int i = 0; i < 200; i++) {
        const deft_scope one = deft_scope_begin(r.cx);
        deft_tensor *const a = deft_from(r.cx, DEFT_SHAPE(LARGE), DEFT_F32, v, sizeof v);
        deft_tensor *const y = deft_mul(a, deft_sum(k, DEFT_ALL_AXES, 0));
        for (int j = 0; j < 4; j++) deft_assign(sum, deft_add(sum, (double)j));
        (void)deft_sin(y);
        OK(&r, deft_scope_end(one));
    }
    cr_assert_lt(rig_stats(&r).live_bytes, UINT64_C(100) << 20);
    OK(&r, deft_step_end(s));
    rig_close(&r);
}

/* The greatest numbers of records and of bytes that scopes leave at their ends. */
typedef struct most_left {
    uint32_t records;
    uint64_t bytes;
} most_left;

static void note_left(const rig *r, most_left *m)
{
    const uint64_t held = rig_stats(r).live_bytes;
    if (r->cx->rec.n > m->records) m->records = r->cx->rec.n;
    if (held > m->bytes) m->bytes = held;
}

/* Scopes end within one that stays open. Each computes what lives on, of n integers: nobody can
 * ask for a gradient of theirs. */
static most_left loop_within_a_scope(rig *r, int64_t n, int turns)
{
    const size_t size = (size_t)n * sizeof(int32_t);
    int32_t *const memory = calloc(1, size), first = 0;
    const deft_scope outer = deft_scope_begin(r->cx);
    deft_tensor *const a = deft_full(r->cx, DEFT_SHAPE(n), DEFT_I32, 3);
    deft_tensor *const x = deft_full(r->cx, DEFT_SHAPE(n), DEFT_I32, 0);
    deft_tensor *const out = deft_wrap_mut(r->cx, DEFT_SHAPE(n), DEFT_I32, memory, size, NULL);
    OK(r, deft_eval((deft_tensor *[]){ a, x }, 2));
    most_left most = { 0 };
    for (int i = 0; i < turns; i++) {
        const deft_scope s = deft_scope_begin(r->cx);
        deft_assign(x, deft_add(x, a));
        deft_assign(out, deft_neg(x));
        OK(r, deft_eval((deft_tensor *[]){ x, out }, 2));
        OK(r, deft_scope_end(s));
        note_left(r, &most);
    }
    OK(r, deft_item_i32(deft_slice(x, DEFT_AT(0)), &first));
    cr_assert_eq(first, 3 * turns);
    OK(r, deft_scope_end(outer));
    cr_assert_eq(memory[0], -3 * turns);
    free(memory);
    return most;
}

/* So the work of a cut does not grow with the turns: it visits all records. */
Test(budget, a_loop_of_cuts_within_an_open_scope_forgets_its_records)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const most_left most = loop_within_a_scope(&r, 4, 3000);
    cr_assert_lt(most.records, 3000, "%u records", most.records);
    rig_close(&r);
}

Test(budget, a_loop_of_cuts_within_an_open_scope_gives_memory_back)
{
    enum { LARGE = 1 << 18 };
    rig r;
    rig_open(&r, NULL, NULL);
    const most_left most = loop_within_a_scope(&r, LARGE, 200);
    cr_assert_lt(most.bytes, UINT64_C(100) << 20, "%llu bytes", (unsigned long long)most.bytes);
    rig_close(&r);
}

/* Scopes end while tensors that were made outside all scopes are pending. Each scope computes n
 * floats. */
static most_left loop_beside_what_is_pending(rig *r, int64_t n, int turns)
{
    deft_tensor *const a = deft_keep(deft_full(r->cx, DEFT_SHAPE(n), DEFT_F32, 3));
    OK(r, deft_eval((deft_tensor *[]){ a }, 1));
    deft_tensor *const twice = deft_mul(a, 2), *const pending = deft_add(twice, 1);
    most_left most = { 0 };
    for (int i = 0; i < turns; i++) {
        const deft_scope s = deft_scope_begin(r->cx);
        deft_tensor *const y = deft_mul(deft_sin(twice), (double)i);
        OK(r, deft_eval((deft_tensor *[]){ y }, 1));
        OK(r, deft_scope_end(s));
        note_left(r, &most);
    }
    cr_assert(rig_item(r, deft_slice(pending, DEFT_AT(0))) == 7);
    cr_assert(rig_item(r, deft_slice(twice, DEFT_AT(0))) == 6);
    return most;
}

Test(budget, a_loop_of_cuts_beside_what_is_pending_forgets_its_records)
{
    rig r;
    rig_open(&r, NULL, NULL);
    const most_left most = loop_beside_what_is_pending(&r, 4, 3000);
    cr_assert_lt(most.records, 3000, "%u records", most.records);
    rig_close(&r);
}

Test(budget, a_loop_of_cuts_beside_what_is_pending_gives_memory_back)
{
    enum { LARGE = 1 << 18 };
    rig r;
    rig_open(&r, NULL, NULL);
    const most_left most = loop_beside_what_is_pending(&r, LARGE, 200);
    cr_assert_lt(most.bytes, UINT64_C(100) << 20, "%llu bytes", (unsigned long long)most.bytes);
    rig_close(&r);
}

/* Values that a gradient may ask for are given back, too. They are computed once more. */
Test(budget, memory_of_what_a_gradient_can_ask_for)
{
    enum { LARGE = 1 << 16, TURNS = 64, VALUE = LARGE * sizeof(float) };
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const k = deft_keep(deft_full(r.cx, DEFT_SHAPE(LARGE), DEFT_F32, 0.5)),
                       *const x = deft_keep(deft_full(r.cx, DEFT_SHAPE(LARGE), DEFT_F32, 1));
    OK(&r, deft_eval((deft_tensor *[]){ k, x }, 2));
    const deft_step_options o = { .size = sizeof o, .max_bytes = 4 * VALUE };
    const deft_scope s = deft_step_begin_with(r.cx, &o);
    for (int i = 0; i < TURNS; i++) {
        const deft_scope one = deft_scope_begin(r.cx);
        deft_assign(x, deft_sin(deft_mul(deft_add(x, 1), k)));
        OK(&r, deft_scope_end(one));
        OK(&r, deft_eval((deft_tensor *[]){ x }, 1));
    }
    const uint64_t held = rig_stats(&r).live_bytes;
    cr_assert_lt(held, UINT64_C(24) * VALUE, "%llu bytes", (unsigned long long)held);
    OK(&r, deft_step_end(s));
    rig_close(&r);
}

/* The records of a step that assigns to the caller's memory and to what was there before, turn by
 * turn; never: with something among it that cannot be computed and that nobody asks for. */
static uint32_t most_records(bool never)
{
    const int32_t outside = N + 3;
    int32_t memory[2][N] = { { 0 } }, v[N], first[N] = { 1, 2, 3, 4 };
    rig r;
    uint32_t most = 0;
    rig_open(&r, NULL, NULL);
    /* Integers: nobody can ask for a gradient of theirs. */
    deft_tensor *const k = deft_keep(deft_from(r.cx, DEFT_SHAPE(N), DEFT_I32, first, sizeof first)),
                       *const x = deft_keep(deft_zeros(r.cx, DEFT_SHAPE(N), DEFT_I32));
    const deft_scope outer = deft_scope_begin(r.cx);
    deft_tensor *m[2];
    for (int i = 0; i < 2; i++)
        m[i] = deft_wrap_mut(r.cx, DEFT_SHAPE(N), DEFT_I32, memory[i], sizeof memory[i], NULL);
    deft_tensor *const at = deft_from(r.cx, DEFT_SHAPE(1), DEFT_I32, &outside, sizeof outside);
    const deft_step_options o = { .size = sizeof o, .max_nodes = 64 };
    const deft_scope s = deft_step_begin_with(r.cx, &o);
    deft_tensor *const bad = never ? deft_take(k, at, 0) : NULL;
    for (int turn = 0; turn < 5000; turn++) {
        const deft_scope one = deft_scope_begin(r.cx);
        for (int i = 0; i < 2; i++) deft_assign(m[i], deft_add(m[i], k));
        deft_assign(x, deft_sub(x, k));
        OK(&r, deft_scope_end(one));
        if (r.cx->rec.n > most) most = r.cx->rec.n;
    }
    for (int i = 0; i < 3; i++) {
        OK(&r, deft_read(i == 2 ? x : m[i], DEFT_I32, v, sizeof v));
        cr_assert(v[3] == (i == 2 ? -20000 : 20000), "%d: %d", i, v[3]);
    }
    if (bad) cr_assert_eq(deft_read(bad, DEFT_I32, v, sizeof *v), DEFT_E_RANGE);
    deft_step_abort(s);
    OK(&r, deft_scope_end(outer));
    rig_close(&r);
    return most;
}

Test(budget, writes_into_the_callers_memory_are_computed_and_forgotten)
{
    const uint32_t without = most_records(false), with = most_records(true); /* of 15000 */
    cr_assert_lt(without, 8300, "%u records", without);
    cr_assert_lt(with, 8300, "with what cannot be computed: %u records", with);
}

/* What was written is asked for no more: under its number there is another record, or none. */
static void written_long_ago(rig *r, outcome *o)
{
    float memory[N] = { 1, 1, 1, 1 };
    deft_tensor *const k = vec(r, 1);
    const deft_scope outer = deft_scope_begin(r->cx);
    deft_tensor *const m =
        deft_wrap_mut(r->cx, DEFT_SHAPE(N), DEFT_F32, memory, sizeof memory, NULL);
    deft_scope s = deft_step_begin(r->cx);
    deft_tensor *y = k;
    for (int i = 0; i < 200; i++) y = deft_sin(y);
    deft_assign(m, y);
    end(r, o, s);
    s = deft_step_begin(r->cx);
    for (int i = 0; i < 3; i++) waste(r, k);
    deft_assign(k, deft_neg(k));
    waste(r, k);
    end(r, o, s);
    put(r, o, k, N);
    put(r, o, m, N);
    if (deft_scope_end(outer) != DEFT_OK) o->st = DEFT_E_STATE;
}

Test(budget, memory_that_was_written_long_ago)
{
    never_changes(written_long_ago, DEFT_OK);
}

/* A step that is put back leaves the place where the budget looks next as it found it. */
Test(budget, of_nodes_is_looked_at_as_before_when_a_step_was_put_back)
{
    enum { MOST_NODES = 64 };
    const deft_ctx_options c = { .size = sizeof c, .max_nodes = MOST_NODES };
    rig r;
    rig_open(&r, NULL, &c);
    deft_tensor *const k = vec(&r, 1), *const x = vec(&r, 0);
    const deft_scope outer = deft_scope_begin(r.cx);
    deft_assign(x, deft_add(x, k));
    const deft_scope s = deft_step_begin(r.cx);
    for (int i = 0; i < 1000; i++) deft_assign(x, deft_sin(deft_add(x, k)));
    cr_assert_gt(r.cx->rec.n, 2 * MOST_NODES, "the test wants records that stay");
    deft_step_abort(s);
    cr_assert_leq(r.cx->look_at, r.cx->rec.n + MOST_NODES, "looks at %u, at %u records",
                  r.cx->look_at, r.cx->rec.n);
    RIG_EXPECT(&r, x, 1, 1.5f, 2, 2.5f);
    OK(&r, deft_scope_end(outer));
    rig_close(&r);
}

/* How many records the gradient of three pieces laid side by side takes, with a cut that forgets
 * what it can between the pieces and their gradient, or without. */
static uint32_t records_of_gradient(bool cut)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const k = vec(&r, 1);
    const deft_scope s = deft_step_begin(r.cx);
    waste_memory(&r);
    const deft_scope inner = deft_scope_begin(r.cx); /* nobody can ask for the first piece */
    deft_tensor *const first = deft_full(r.cx, DEFT_SHAPE(N), DEFT_F32, 0.5);
    deft_tensor *const all = deft_scope_return(
        inner, deft_concat((deft_tensor *[]){ first, deft_sin(k), deft_square(k) }, 3, 0));
    deft_tensor *const sum = deft_sum(deft_square(all), DEFT_ALL_AXES, 0);
    const uint32_t n = r.cx->rec.n;
    if (cut) {
        OK(&r, df_budget_flush(r.cx));
        df_forget(r.cx);
        cr_assert_lt(r.cx->rec.n, n, "the test wants records that are forgotten");
    }
    const uint32_t before = r.cx->rec.n;
    deft_tensor *const g = rig_grad_of_sum(sum, k);
    const uint32_t took = r.cx->rec.n - before;
    float v[N];
    OK(&r, deft_read(g, DEFT_F32, v, sizeof v));
    cr_assert_float_eq(v[0], 4 + 2 * sinf(1) * cosf(1), 1e-5);
    OK(&r, deft_step_end(s));
    rig_close(&r);
    return took;
}

Test(budget, pieces_laid_side_by_side_stay_so)
{
    const uint32_t without = records_of_gradient(false), with = records_of_gradient(true);
    cr_assert_leq(with, without, "%u records, without a cut %u", with, without);
}

/* What is forgotten by the first call of a step lies before the step, all of it. */
Test(budget, a_step_that_begins_with_a_cut_is_put_back)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const k = vec(&r, 1), *const x = vec(&r, 0);
    const deft_scope outer = deft_scope_begin(r.cx);
    for (int i = 0; i < 5000; i++) {
        const deft_scope one = deft_scope_begin(r.cx);
        (void)deft_neg(deft_slice(k, DEFT_R(1, 3)));
        OK(&r, deft_scope_end(one));
    }
    deft_assign(x, deft_add(x, k));
    const uint32_t before = r.cx->rec.n;
    const deft_step_options o = { .size = sizeof o, .max_nodes = 1 };
    const deft_scope s = deft_step_begin_with(r.cx, &o);
    deft_tensor *const y = deft_neg(x);
    cr_assert_lt(r.cx->rec.n, before, "the test wants records that are forgotten");
    RIG_EXPECT(&r, y, -1, -1.5f, -2, -2.5f);
    deft_step_abort(s);
    RIG_EXPECT(&r, deft_slice(x, DEFT_R(1, 3)), 1.5f, 2);
    OK(&r, deft_scope_end(outer));
    rig_close(&r);
}
