/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions with a derivative of their own, and attention, which is one: by themselves, and within
 * branches, loops and calls for many examples that capture what goes into them.
 */
#include <criterion/criterion.h>

#include "support/harness.h"

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 1);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(custom_grad, .init = set_up, .fini = tear_down);

#define VECTOR(...) RIG_VECTOR(&r, __VA_ARGS__)
#define EXPECT(t, ...) RIG_EXPECT(&r, t, __VA_ARGS__)

static deft_status clipped(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_round(in[0]);
    out[1] = deft_mul(in[0], in[1]);
    return DEFT_OK;
}

/* Straight through the rounding; of the product only what belongs to the second. */
static deft_status straight(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                            deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                            deft_tensor **grad_in, void *user)
{
    (void)cx, (void)n_in, (void)out, (void)n_out;
    ++*(int *)user;
    grad_in[0] = grad_out[0];
    grad_in[1] = deft_mul(grad_out[1], in[0]);
    return DEFT_OK;
}

Test(custom_grad, is_what_its_function_says)
{
    int calls = 0;
    deft_tensor *const x = VECTOR(1.25f, 2.5f), *const y = VECTOR(3, 4);
    deft_tensor *const in[] = { deft_mul(x, 2.0), y };
    deft_tensor *out[2], *g[2];
    cr_assert(deft_custom_grad(r.cx, clipped, straight, &calls, in, 2, out, 2), "%s",
              deft_message(r.cx));
    cr_assert_eq(calls, 0);
    deft_tensor *const loss = deft_sum(deft_add(deft_mul(out[0], 3.0), out[1]), DEFT_ALL_AXES, 0);
    deft_tensor *const with[] = { x, y };
    cr_assert(deft_grad(&loss, NULL, 1, with, 2, NULL, g), "%s", deft_message(r.cx));
    cr_assert_eq(calls, 1, "called %d times", calls);
    EXPECT(g[0], 6, 6);
    EXPECT(g[1], 2.5f, 5);
}

Test(custom_grad, one_of_its_results_is_enough)
{
    int calls = 0;
    deft_tensor *const x = VECTOR(1.25f, 2.5f), *const y = VECTOR(3, 4);
    deft_tensor *const in[] = { x, y };
    deft_tensor *out[2];
    cr_assert(deft_custom_grad(r.cx, clipped, straight, &calls, in, 2, out, 2));
    EXPECT(rig_grad_of_sum(out[0], x), 1, 1);
    cr_assert(deft_custom_grad(r.cx, clipped, straight, &calls, in, 2, out, 2));
    EXPECT(rig_grad_of_sum(out[1], y), 1.25f, 2.5f);
}

static deft_status custom_cell(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    deft_tensor *made[2];
    (void)n_in, (void)n_out;
    if (!deft_custom_grad(cx, clipped, straight, user, in, 2, made, 2)) return DEFT_E_STATE;
    out[0] = made[1];
    return DEFT_OK;
}

/* The states are 2, 6, 24; of each product only the row's part flows, and none to the state. */
Test(custom_grad, within_a_loop)
{
    int calls = 0;
    deft_tensor *const x = VECTOR(2), *const w = VECTOR(3, 4);
    deft_tensor *const rows = deft_reshape(w, DEFT_SHAPE(2, 1));
    deft_tensor *out, *g;
    cr_assert(deft_scan(r.cx, custom_cell, &calls, &x, 1, &rows, 1, 2, 0, &out));
    cr_assert(deft_grad(&out, NULL, 1, &w, 1, NULL, &g), "%s", deft_message(r.cx));
    EXPECT(g, 0, 6);
}

/* What a function of a loop or branch uses besides its operands. */
typedef struct around {
    int calls; /* of straight() */
    deft_tensor *t;
} around;

/* round(t) + t x. */
static deft_status custom_of_around(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                    deft_tensor **out, size_t n_out, void *user)
{
    around *const a = user;
    deft_tensor *const both[] = { a->t, in[0] };
    deft_tensor *made[2];
    (void)n_in, (void)n_out;
    if (!deft_custom_grad(cx, clipped, straight, &a->calls, both, 2, made, 2)) return DEFT_E_STATE;
    out[0] = deft_add(made[0], made[1]);
    return DEFT_OK;
}

/* a a and a + 1, without b. */
static deft_status loose(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_square(in[0]);
    out[1] = deft_add(in[0], 1);
    return DEFT_OK;
}

/* What came out takes part in what a gets, and b gets something though nothing depends on it. */
static deft_status loose_back(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                              deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                              deft_tensor **grad_in, void *user)
{
    (void)cx, (void)in, (void)n_in, (void)n_out;
    ++*(int *)user;
    grad_in[0] = deft_mul(grad_out[1], out[0]);
    grad_in[1] = deft_mul(grad_out[1], 2);
    return DEFT_OK;
}

/* Of a loose function of t and x the second result alone. */
static deft_status second_of_loose(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                   deft_tensor **out, size_t n_out, void *user)
{
    around *const a = user;
    deft_tensor *const both[] = { a->t, in[0] };
    deft_tensor *made[2];
    (void)n_in, (void)n_out;
    if (!deft_custom_grad(cx, loose, loose_back, &a->calls, both, 2, made, 2)) return DEFT_E_STATE;
    out[0] = made[1];
    return DEFT_OK;
}

static deft_status around_alone(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                deft_tensor **out, size_t n_out, void *user)
{
    (void)cx, (void)in, (void)n_in, (void)n_out;
    out[0] = ((around *)user)->t;
    return DEFT_OK;
}

/* branch(x) with t around it, when it is taken; the gradients with respect to x and z. */
static void through_branch(deft_body_fn branch, deft_tensor *x, deft_tensor *z, deft_tensor *t,
                           deft_tensor **g)
{
    static const bool yes = true;
    around a = { 0, t };
    deft_tensor *const is_taken = deft_from(r.cx, DEFT_SHAPE(), DEFT_BOOL, &yes, sizeof yes);
    deft_tensor *const with[] = { x, z }, *out;
    cr_assert(deft_cond(is_taken, branch, around_alone, &a, &x, 1, &out, 1));
    deft_tensor *const sum = deft_sum(out, DEFT_ALL_AXES, 0);
    cr_assert(deft_grad(&sum, NULL, 1, with, 2, NULL, g), "%s", deft_message(r.cx));
    cr_assert_eq(a.calls, 1, "called %d times", a.calls);
}

Test(custom_grad, of_a_captured_tensor_within_a_branch)
{
    deft_tensor *const x = VECTOR(3, 4), *const z = VECTOR(1.25f, 2.5f), *g[2];
    through_branch(custom_of_around, x, z, z, g);
    EXPECT(g[0], 1.25f, 2.5f);
    EXPECT(g[1], 1, 1);
    through_branch(custom_of_around, x, z, deft_mul(z, 2), g);
    EXPECT(g[0], 2.5f, 5);
    EXPECT(g[1], 2, 2);
}

Test(custom_grad, one_of_its_results_is_enough_within_a_branch)
{
    deft_tensor *const x = VECTOR(3, 4), *const z = VECTOR(1, 2), *g[2];
    through_branch(second_of_loose, x, z, deft_mul(z, 2), g);
    EXPECT(g[0], 2, 2);
    EXPECT(g[1], 8, 32);
}

/* x = fn(x) twice, with t = 2 z around it; the gradients with respect to x and z. */
static void through_loop(deft_body_fn fn, deft_tensor *x, deft_tensor *z, deft_tensor **g)
{
    deft_tensor *const with[] = { x, z }, *out;
    around a = { 0, deft_mul(z, 2) };
    cr_assert(deft_scan(r.cx, fn, &a, &x, 1, NULL, 0, 2, 0, &out));
    deft_tensor *const sum = deft_sum(out, DEFT_ALL_AXES, 0);
    cr_assert(deft_grad(&sum, NULL, 1, with, 2, NULL, g), "%s", deft_message(r.cx));
}

/* Neither the rounding nor anything that the loose function makes depends on the loop. */
Test(custom_grad, of_a_captured_tensor_within_a_loop)
{
    deft_tensor *const x = VECTOR(3, 4), *const z = VECTOR(0.625f, 1.25f), *g[2];
    through_loop(custom_of_around, x, z, g);
    EXPECT(g[0], 1.5625f, 6.25f);
    EXPECT(g[1], 4.5f, 7);
    through_loop(second_of_loose, x, z, g);
    EXPECT(g[0], 4, 4);
    EXPECT(g[1], 9.375f, 37.5f);
}

/* States x + round(t) + t y and t y. */
static deft_status two_states(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    around *const a = user;
    deft_tensor *const both[] = { a->t, in[1] };
    deft_tensor *made[2];
    (void)n_in, (void)n_out;
    if (!deft_custom_grad(cx, clipped, straight, &a->calls, both, 2, made, 2)) return DEFT_E_STATE;
    out[0] = deft_add(in[0], deft_add(made[0], made[1]));
    out[1] = made[1];
    return DEFT_OK;
}

static deft_status scan_of_two_states(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                      deft_tensor **out, size_t n_out, void *user)
{
    deft_tensor *made[2];
    (void)n_in, (void)n_out;
    if (!deft_scan(cx, two_states, user, in, 2, NULL, 0, 2, 0, made)) return DEFT_E_STATE;
    out[0] = made[0];
    return DEFT_OK;
}

/* The loop is recorded again for all examples of x, with y in it, though of that there is one; the
 * rounding depends on neither. */
Test(custom_grad, within_a_loop_for_many_examples)
{
    deft_tensor *const x = VECTOR(1, 2, 3), *const t = VECTOR(2), *const y = VECTOR(3), *out, *g[2];
    deft_tensor *const in[] = { x, deft_sum(y, DEFT_ALL_AXES, 0) }, *const with[] = { t, y };
    const int axes[] = { 0, DEFT_NOT_MAPPED };
    around a = { 0, deft_sum(t, DEFT_ALL_AXES, 0) };
    cr_assert(deft_vmap(r.cx, scan_of_two_states, &a, in, axes, 2, &out, NULL, 1), "%s",
              deft_message(r.cx));
    deft_tensor *const sum = deft_sum(out, DEFT_ALL_AXES, 0);
    cr_assert(deft_grad(&sum, NULL, 1, with, 2, NULL, g), "%s", deft_message(r.cx));
    EXPECT(out, 1 + 4 + 18, 2 + 4 + 18, 3 + 4 + 18);
    EXPECT(g[0], 6);
    EXPECT(g[1], 18);
}

static deft_status attention_of_around(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                       deft_tensor **out, size_t n_out, void *user)
{
    const around *const a = user;
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_attention(in[0], a->t, deft_sin(a->t), NULL);
    return DEFT_OK;
}

static deft_status unchanged(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = in[0];
    return DEFT_OK;
}

/* Of one block of keys, and of several. */
Test(custom_grad, attention_within_a_branch)
{
    static const bool yes = true;
    for (int64_t n_keys = 5; n_keys < 3 * DEFT_ATTENTION_BLOCK; n_keys += DEFT_ATTENTION_BLOCK) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const q = deft_reshape(rig_range(&r, 12, 0), DEFT_SHAPE(3, 4));
        deft_tensor *const k = deft_reshape(rig_range(&r, n_keys * 4, 0), DEFT_SHAPE(n_keys, 4));
        deft_tensor *const x = deft_sin(q), *const y = deft_cos(k);
        deft_tensor *const is_taken = deft_from(r.cx, DEFT_SHAPE(), DEFT_BOOL, &yes, sizeof yes);
        deft_tensor *const with[] = { q, k }, *out, *got[2], *want[2];
        around a = { 0, y };
        cr_assert(deft_cond(is_taken, attention_of_around, unchanged, &a, &x, 1, &out, 1));
        deft_tensor *const taken = deft_sum(deft_square(out), DEFT_ALL_AXES, 0);
        attention_of_around(r.cx, &x, 1, &out, 1, &a);
        deft_tensor *const plain = deft_sum(deft_square(out), DEFT_ALL_AXES, 0);
        cr_assert(deft_grad(&taken, NULL, 1, with, 2, NULL, got), "%s", deft_message(r.cx));
        cr_assert(deft_grad(&plain, NULL, 1, with, 2, NULL, want), "%s", deft_message(r.cx));
        for (int i = 0; i < 2; i++) {
            const float most = rig_item(&r, deft_max(deft_abs(want[i]), DEFT_ALL_AXES, 0));
            deft_tensor *const d = deft_abs(deft_sub(got[i], want[i]));
            const float apart = rig_item(&r, deft_max(d, DEFT_ALL_AXES, 0));
            cr_assert(most > 0 && apart <= 1e-6F * most, "%lld keys, %d: %g, of %g",
                      (long long)n_keys, i, (double)apart, (double)most);
        }
        OK(&r, deft_scope_end(s));
    }
}
