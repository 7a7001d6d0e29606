/* SPDX-License-Identifier: Apache-2.0
 *
 * What deft_vmap means beyond the rules of ops, which tests/diff/vmap_ops.c looks at: gradients of
 * each example of a network, second derivatives, how much is recorded and computed, draws,
 * captures, and what each mistake says.
 *
 * Why this file is long: a function of one example for each test.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

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

TestSuite(vmap, .init = set_up, .fini = tear_down);

#define EXPECT(t, ...) RIG_EXPECT(&r, t, __VA_ARGS__)
#define ALL DEFT_ALL_AXES

static void expect_error(deft_status st, const char *part)
{
    cr_assert_eq(deft_error(r.cx), st, "%d: %s", (int)deft_error(r.cx), deft_message(r.cx));
    cr_assert(strstr(deft_message(r.cx), part), "\"%s\" lacks \"%s\"", deft_message(r.cx), part);
    deft_clear(r.cx);
}

/* Normal numbers, the same for each seed. */
static deft_tensor *normal(uint64_t seed, deft_shape s)
{
    deft_rng rng = { seed, 0 };
    deft_tensor *const t = deft_keep(deft_normal(r.cx, &rng, s, DEFT_F32, 0, 1));
    OK(&r, deft_eval(&t, 1));
    return t;
}

/* in: as the function that is called. */
#define BODY(name)                                                                                 \
    static deft_status name(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,  \
                            size_t n_out, void *user)
#define UNUSED (void)cx, (void)in, (void)n_in, (void)out, (void)n_out, (void)user

static const int first_of_two[] = { 0, DEFT_NOT_MAPPED };

/* ---- gradients of each example ---- */

enum { B = 5, MOST = 4096 };

typedef struct net {
    deft_body_fn loss; /* in: the parameters */
    size_t n;
    deft_tensor *x, *label; /* of the example at hand */
} net;

BODY(gradients)
{
    net *const n = user;
    deft_tensor *value, *g[8];
    UNUSED;
    n->x = in[n->n];
    n->label = in[n->n + 1];
    if (deft_value_and_grad(cx, n->loss, n, in, n->n, &value, 1, g))
        memcpy(out, g, n->n * sizeof *g);
    return DEFT_OK;
}

static void expect_equals_a_loop(net n, deft_tensor *const *in)
{
    int axes[8];
    float all[MOST], alone[MOST];
    deft_tensor *out[8], *one[8], *g[8];
    for (size_t i = 0; i < n.n + 2; i++) axes[i] = i < n.n ? DEFT_NOT_MAPPED : 0;
    cr_assert(deft_vmap(r.cx, gradients, &n, in, axes, n.n + 2, out, NULL, n.n), "%s",
              deft_message(r.cx));
    for (size_t k = 0; k < n.n; k++) {
        const int64_t size = deft_numel(in[k]);
        cr_assert_eq(deft_numel(out[k]), B * size);
        rig_read(&r, out[k], all, B * size);
        for (int b = 0; b < B; b++) {
            for (size_t i = 0; i < n.n; i++) one[i] = in[i];
            for (size_t i = n.n; i < n.n + 2; i++) one[i] = deft_slice(in[i], DEFT_AT(b));
            (void)gradients(r.cx, one, n.n + 2, g, n.n, &n);
            rig_read(&r, g[k], alone, size);
            cr_assert_eq(memcmp(alone, all + b * size, (size_t)size * sizeof *all), 0,
                         "parameter %zu, example %d", k, b);
        }
    }
}

static deft_tensor *label_loss(deft_tensor *logits, deft_tensor *label)
{
    return deft_cross_entropy(deft_unsqueeze(logits, 0), deft_unsqueeze(label, 0));
}

BODY(mlp)
{
    const net *const n = user;
    UNUSED;
    deft_tensor *const h = deft_gelu(deft_add(deft_matmul(n->x, in[0]), in[1]));
    deft_tensor *const g = deft_layer_norm(h, 1, NULL, NULL, 1e-5);
    out[0] = label_loss(deft_add(deft_matmul(g, in[2]), in[3]), n->label);
    return DEFT_OK;
}

static deft_tensor *labels(void)
{
    return deft_keep(deft_from(r.cx, DEFT_SHAPE(B), DEFT_I64, (int64_t[]){ 2, 0, 1, 2, 1 },
                               B * sizeof(int64_t)));
}

Test(vmap, gradients_of_each_example_of_an_mlp_equal_a_loop)
{
    deft_tensor *const in[] = { normal(1, DEFT_SHAPE(6, 7)), normal(2, DEFT_SHAPE(7)),
                                normal(3, DEFT_SHAPE(7, 3)), normal(4, DEFT_SHAPE(3)),
                                normal(5, DEFT_SHAPE(B, 6)), labels() };
    expect_equals_a_loop((net){ .loss = mlp, .n = 4 }, in);
}

BODY(cnn)
{
    const net *const n = user;
    UNUSED;
    deft_tensor *const x = deft_unsqueeze(n->x, 0);
    deft_tensor *const c =
        deft_relu(deft_conv2d(x, in[0], DEFT_CONV2D(.padding = { 1, 1 }, .bias = in[1])));
    deft_tensor *const p = deft_max_pool2d(c, DEFT_POOL2D(.kernel = { 2, 2 }));
    deft_tensor *const d = deft_relu(deft_conv2d(p, in[2], NULL));
    out[0] = label_loss(deft_matmul(deft_flatten(d), in[3]), n->label);
    return DEFT_OK;
}

Test(vmap, gradients_of_each_example_of_a_cnn_equal_a_loop)
{
    deft_tensor *const in[] = { normal(1, DEFT_SHAPE(3, 2, 3, 3)), normal(2, DEFT_SHAPE(3)),
                                normal(3, DEFT_SHAPE(4, 3, 2, 2)), normal(4, DEFT_SHAPE(16, 3)),
                                normal(5, DEFT_SHAPE(B, 2, 6, 6)), labels() };
    expect_equals_a_loop((net){ .loss = cnn, .n = 4 }, in);
}

/* ---- second derivatives ---- */

/* x0^2 x1 + x1^3 + x0 x2, whose Hessian at (1, 2, 3) is known. */
BODY(cubic)
{
    UNUSED;
    deft_tensor *const a = deft_slice(in[0], DEFT_AT(0)), *const b = deft_slice(in[0], DEFT_AT(1));
    deft_tensor *const c = deft_slice(in[0], DEFT_AT(2));
    out[0] = deft_add(deft_add(deft_mul(deft_square(a), b), deft_pow(b, 3)), deft_mul(a, c));
    return DEFT_OK;
}

/* A row of the Hessian: the gradient's derivative along in[0]. */
BODY(row_forward)
{
    UNUSED;
    deft_tensor *value, *g;
    deft_tensor *const x = user;
    if (deft_value_and_grad(cx, cubic, NULL, &x, 1, &value, 1, &g))
        deft_jvp(&g, 1, &x, in, 1, NULL, out);
    return DEFT_OK;
}

BODY(row_backward)
{
    UNUSED;
    deft_tensor *value, *g;
    deft_tensor *const x = user;
    if (!deft_value_and_grad(cx, cubic, NULL, &x, 1, &value, 1, &g)) return DEFT_OK;
    deft_tensor *const along = deft_sum(deft_mul(g, in[0]), ALL, 0);
    deft_grad(&along, NULL, 1, &x, 1, NULL, out);
    return DEFT_OK;
}

Test(vmap, a_hessian_is_its_rows_along_an_identity)
{
    const deft_body_fn ways[] = { row_forward, row_backward };
    for (int i = 0; i < 2; i++) {
        deft_tensor *const x = rig_range(&r, 3, 1), *const eye = deft_eye(r.cx, 3, 3, DEFT_F32);
        deft_tensor *h;
        cr_assert(deft_vmap(r.cx, ways[i], x, &eye, NULL, 1, &h, NULL, 1), "%s",
                  deft_message(r.cx));
        EXPECT(h, 4, 2, 1, 2, 12, 0, 1, 0, 0);
    }
}

BODY(hessian_of_one)
{
    UNUSED;
    deft_tensor *const eye = deft_eye(cx, 3, 3, DEFT_F32);
    deft_vmap(cx, row_forward, in[0], &eye, NULL, 1, out, NULL, 1);
    return DEFT_OK;
}

Test(vmap, hessians_of_many_points)
{
    deft_tensor *const x = deft_reshape(rig_range(&r, 6, 1), DEFT_SHAPE(2, 3));
    deft_tensor *h;
    cr_assert(deft_vmap(r.cx, hessian_of_one, NULL, &x, NULL, 1, &h, NULL, 1), "%s",
              deft_message(r.cx));
    EXPECT(h, 4, 2, 1, 2, 12, 0, 1, 0, 0, 10, 8, 1, 8, 30, 0, 1, 0, 0);
}

/* The square of the gradient of x^3 w: 9 x^4 w^2. */
BODY(penalty)
{
    UNUSED;
    deft_tensor *const y = deft_sum(deft_mul(deft_pow(in[0], 3), in[1]), ALL, 0);
    deft_tensor *g;
    if (deft_grad(&y, NULL, 1, in, 1, NULL, &g)) out[0] = deft_sum(deft_square(g), ALL, 0);
    return DEFT_OK;
}

Test(vmap, gradients_of_gradients_of_each_example)
{
    deft_tensor *const x = rig_range(&r, 3, 1), *const w = deft_keep(deft_num(r.cx, 2));
    deft_tensor *const weight = deft_keep(deft_mul(deft_ones(r.cx, DEFT_SHAPE(), DEFT_F32), w));
    deft_tensor *const in[] = { x, weight }, *out[1], *g[2];
    cr_assert(deft_vmap(r.cx, penalty, NULL, in, first_of_two, 2, out, NULL, 1), "%s",
              deft_message(r.cx));
    deft_tensor *const total = deft_sum(out[0], ALL, 0);
    cr_assert(deft_grad(&total, NULL, 1, in, 2, NULL, g), "%s", deft_message(r.cx));
    EXPECT(g[0], 36 * 4, 36 * 4 * 8, 36 * 4 * 27);
    EXPECT(g[1], 36 * (1 + 16 + 81));
}

BODY(cubed)
{
    UNUSED;
    out[0] = deft_pow(in[0], 3);
    return DEFT_OK;
}

Test(vmap, within_forward_mode)
{
    deft_tensor *const x = rig_range(&r, 3, 1), *const t = rig_range(&r, 3, 10);
    deft_tensor *y, *moved;
    cr_assert(deft_vmap(r.cx, cubed, NULL, &x, NULL, 1, &y, NULL, 1));
    cr_assert(deft_jvp(&y, 1, &x, &t, 1, NULL, &moved), "%s", deft_message(r.cx));
    EXPECT(moved, 30, 132, 324);
}

/* ---- how much is recorded, and what is computed ---- */

static const char *trace(void)
{
    static char text[1 << 15];
    cr_assert_lt(deft_show(r.cx, "trace", text, sizeof text), sizeof text);
    return text;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++) n++;
    return n;
}

BODY(linear_gradient)
{
    UNUSED;
    deft_tensor *const h = deft_tanh(deft_matmul(in[1], in[0]));
    deft_tensor *const y = deft_sum(deft_square(h), ALL, 0);
    deft_grad(&y, NULL, 1, in, 2, NULL, out);
    return DEFT_OK;
}

static uint64_t records_of(int64_t n)
{
    deft_tensor *const in[] = { normal(1, DEFT_SHAPE(4, 3)), normal(2, DEFT_SHAPE(n, 4)) };
    const int axes[] = { DEFT_NOT_MAPPED, 0 };
    deft_tensor *g[2];
    const uint64_t before = rig_stats(&r).ops_recorded;
    const deft_scope s = deft_step_begin(r.cx);
    cr_assert(deft_vmap(r.cx, linear_gradient, NULL, in, axes, 2, g, NULL, 2));
    deft_keep(g[0]);
    deft_keep(g[1]);
    OK(&r, deft_step_end(s));
    return rig_stats(&r).ops_recorded - before;
}

Test(vmap, as_many_operations_for_many_examples_as_for_few)
{
    const uint64_t few = records_of(2);
    cr_assert_eq(records_of(1000), few);
    cr_assert_lt(few, 60);
}

/* Of [1000,4] [4,3]: forwards and towards x one product of all rows each; of the weight one small
 * product for each example. */
Test(vmap, products_with_a_shared_matrix_are_one)
{
    (void)records_of(1000);
    const char *const text = trace();
    cr_assert_eq(count(text, "= matmul"), 3, "%s", text);
    cr_assert_eq(count(text, "= matmul f32[1000,3]"), 1, "%s", text);
    cr_assert_eq(count(text, "= matmul f32[1000,4]"), 1, "%s", text);
    cr_assert_eq(count(text, "= matmul f32[1000,4,3]"), 1, "%s", text);
}

BODY(matrix_by_vector)
{
    UNUSED;
    out[0] = deft_matmul(in[1], in[0]);
    return DEFT_OK;
}

Test(vmap, a_shared_matrix_by_vectors_is_one_product)
{
    deft_tensor *const in[] = { normal(1, DEFT_SHAPE(100, 4)), normal(2, DEFT_SHAPE(3, 4)) };
    deft_tensor *y;
    float v[300];
    cr_assert(deft_vmap(r.cx, matrix_by_vector, NULL, in, first_of_two, 2, &y, NULL, 1));
    rig_read(&r, y, v, 300);
    cr_assert_eq(count(trace(), "= matmul"), 1);
    cr_assert_eq(count(trace(), "= matmul f32[100,3]"), 1, "%s", trace());
}

BODY(with_shared_part)
{
    UNUSED;
    out[0] = deft_add(in[0], deft_sum(deft_exp(in[1]), ALL, 0));
    out[1] = deft_exp(in[1]);
    return DEFT_OK;
}

Test(vmap, what_depends_on_no_example_is_computed_once)
{
    deft_tensor *const in[] = { rig_range(&r, 4, 0),
                                deft_keep(deft_zeros(r.cx, DEFT_SHAPE(3), DEFT_F32)) };
    const int out_axes[] = { 0, DEFT_NOT_MAPPED };
    deft_tensor *out[2];
    cr_assert(deft_vmap(r.cx, with_shared_part, NULL, in, first_of_two, 2, out, out_axes, 2));
    EXPECT(out[0], 3, 4, 5, 6);
    cr_assert_eq(count(trace(), "exp f32[3]"), 1, "%s", trace());
    EXPECT(out[1], 1, 1, 1);
}

Test(vmap, a_result_that_is_the_same_for_all_is_there_for_each)
{
    deft_tensor *const in[] = { rig_range(&r, 2, 0),
                                deft_keep(deft_zeros(r.cx, DEFT_SHAPE(3), DEFT_F32)) };
    const int out_axes[] = { 0, 1 };
    deft_tensor *out[2];
    cr_assert(deft_vmap(r.cx, with_shared_part, NULL, in, first_of_two, 2, out, out_axes, 2));
    cr_assert_eq(deft_dim(out[1], 0), 3);
    EXPECT(out[1], 1, 1, 1, 1, 1, 1);
}

Test(vmap, the_same_step_again_builds_no_plan)
{
    (void)records_of(7);
    const deft_stats before = rig_stats(&r);
    (void)records_of(7);
    cr_assert_eq(rig_stats(&r).plans_built, before.plans_built);
}

Test(vmap, no_examples_are_as_good_as_many)
{
    deft_tensor *const x = deft_zeros(r.cx, DEFT_SHAPE(0, 3), DEFT_F32);
    deft_tensor *y;
    cr_assert(deft_vmap(r.cx, cubed, NULL, &x, NULL, 1, &y, NULL, 1));
    cr_assert_eq(deft_rank(y), 2);
    cr_assert_eq(deft_dim(y, 0), 0);
    cr_assert_eq(deft_dim(y, 1), 3);
    OK(&r, deft_eval(&y, 1));
}

BODY(joined)
{
    UNUSED;
    out[0] = deft_concat(in, 2, 0);
    return DEFT_OK;
}

Test(vmap, pieces_of_each_example_are_joined_in_fresh_memory)
{
    deft_tensor *const x = deft_keep(deft_reshape(rig_range(&r, 6, 1), DEFT_SHAPE(2, 3)));
    deft_tensor *const in[] = { x, x };
    deft_tensor *y;
    cr_assert(deft_vmap(r.cx, joined, NULL, in, NULL, 2, &y, NULL, 1));
    EXPECT(y, 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6);
    cr_assert_eq(count(trace(), "= empty f32[2,6]"), 1, "%s", trace());
    cr_assert_eq(count(trace(), "= expand"), 0, "%s", trace());
}

/* ---- hooks ---- */

static deft_tensor *ten_times(deft_ctx *cx, deft_tensor *grad, void *user)
{
    (void)cx;
    cr_assert_eq(deft_rank(grad), *(uint32_t *)user);
    return deft_mul(grad, 10.0);
}

BODY(hooked)
{
    UNUSED;
    deft_grad_hook(in[0], ten_times, user);
    out[0] = deft_square(in[0]);
    return DEFT_OK;
}

Test(vmap, a_hook_sees_one_example_and_is_none_on_the_callers_tensor)
{
    uint32_t rank = 1;
    deft_tensor *const x = deft_reshape(rig_range(&r, 4, 1), DEFT_SHAPE(2, 2));
    deft_tensor *y;
    cr_assert(deft_vmap(r.cx, hooked, &rank, &x, NULL, 1, &y, NULL, 1));
    EXPECT(rig_grad_of_sum(deft_add(y, deft_mul(x, 3.0)), x), 23, 43, 63, 83);
}

/* ---- numbers and handles ---- */

BODY(scaled)
{
    UNUSED;
    out[0] = deft_mul(in[0], in[1]);
    out[1] = deft_num(cx, 7);
    return DEFT_OK;
}

Test(vmap, a_number_takes_the_dtype_of_what_it_meets)
{
    deft_tensor *in[] = { deft_ones(r.cx, DEFT_SHAPE(2), DEFT_F64), deft_num(r.cx, 2.5) };
    cr_assert(deft_vmap(r.cx, scaled, NULL, in, first_of_two, 2, in, NULL, 2));
    cr_assert_eq(deft_dtype_of(in[0]), DEFT_F64);
    EXPECT(in[0], 2.5, 2.5);
    EXPECT(in[1], 7, 7);
}

BODY(overwritten)
{
    UNUSED;
    deft_assign(deft_slice(in[1], DEFT_AT(0)), in[0]);
    out[0] = in[1];
    return DEFT_OK;
}

Test(vmap, assigning_what_it_sees_leaves_the_callers_tensor)
{
    deft_tensor *const in[] = { rig_range(&r, 2, 10), rig_range(&r, 3, 1) };
    deft_tensor *out;
    cr_assert(deft_vmap(r.cx, overwritten, NULL, in, first_of_two, 2, &out, NULL, 1), "%s",
              deft_message(r.cx));
    EXPECT(out, 10, 2, 3, 11, 2, 3);
    EXPECT(in[1], 1, 2, 3);
}

/* ---- loops and branches around it ---- */

BODY(turn)
{
    UNUSED;
    return deft_vmap(cx, cubed, NULL, in, NULL, 1, out, NULL, 1) ? DEFT_OK : DEFT_E_STATE;
}

Test(vmap, within_a_loop_and_its_gradient)
{
    deft_tensor *const x = rig_range(&r, 2, 1);
    deft_tensor *y;
    cr_assert(deft_scan(r.cx, turn, NULL, &x, 1, NULL, 0, 2, 0, &y), "%s", deft_message(r.cx));
    EXPECT(y, 1, 512);
    EXPECT(rig_grad_of_sum(y, x), 9, 9 * 256);
}

BODY(is_even)
{
    UNUSED;
    out[0] = deft_mul_f(in[0], 10);
    return DEFT_OK;
}

BODY(looked_up)
{
    UNUSED;
    deft_tensor *const table = user;
    out[0] = deft_take(table, deft_cast(in[0], DEFT_I64), 0);
    return DEFT_OK;
}

BODY(chosen)
{
    UNUSED;
    deft_tensor *const is = deft_lt(in[0], 2.0);
    return deft_cond(is, looked_up, is_even, user, in, 1, out, 1) ? DEFT_OK : DEFT_E_STATE;
}

Test(vmap, a_branch_of_each_example_is_a_choice)
{
    deft_tensor *const x = rig_range(&r, 4, 0), *const table = rig_range(&r, 4, 5);
    deft_tensor *y;
    cr_assert(deft_vmap(r.cx, chosen, table, &x, NULL, 1, &y, NULL, 1), "%s", deft_message(r.cx));
    EXPECT(y, 5, 6, 20, 30);
}

Test(vmap, and_an_index_out_of_range_in_either_is_an_error)
{
    deft_tensor *const x = rig_range(&r, 4, 0), *const table = rig_range(&r, 2, 5);
    deft_tensor *y;
    float v[4];
    cr_assert(deft_vmap(r.cx, chosen, table, &x, NULL, 1, &y, NULL, 1), "%s", deft_message(r.cx));
    cr_assert_eq(deft_read(y, DEFT_F32, v, sizeof v), DEFT_E_RANGE, "%s", deft_message(r.cx));
}

BODY(squared_second)
{
    UNUSED;
    out[0] = in[0];
    out[1] = deft_square(in[0]);
    return DEFT_OK;
}

BODY(rooted_second)
{
    UNUSED;
    out[0] = in[0];
    out[1] = deft_sqrt(in[0]);
    return DEFT_OK;
}

BODY(second_of_branch)
{
    deft_tensor *made[2];
    UNUSED;
    if (deft_cond(user, squared_second, rooted_second, NULL, in, 1, made, 2)) out[0] = made[1];
    return DEFT_OK;
}

/* The derivative of the root is NaN there, and must not be looked at. */
Test(vmap, a_branch_of_all_examples_has_the_gradient_of_what_was_taken)
{
    deft_tensor *const x = rig_range(&r, 2, -2);
    deft_tensor *const is = deft_keep(deft_lt(deft_sum(x, ALL, 0), 0.0));
    deft_tensor *y;
    cr_assert(deft_vmap(r.cx, second_of_branch, is, &x, NULL, 1, &y, NULL, 1), "%s",
              deft_message(r.cx));
    EXPECT(y, 4, 1);
    EXPECT(rig_grad_of_sum(y, x), -4, -2);
}

BODY(times_ten)
{
    UNUSED;
    out[0] = deft_mul(in[0], 10.0);
    return DEFT_OK;
}

BODY(times_root)
{
    UNUSED;
    out[0] = deft_mul(in[0], deft_sqrt(deft_slice(in[1], DEFT_AT(0))));
    return DEFT_OK;
}

BODY(scaled_by_branch)
{
    UNUSED;
    deft_cond(user, times_ten, times_root, NULL, in, 2, out, 1);
    return DEFT_OK;
}

Test(vmap, nor_of_what_depends_on_no_example_in_a_branch_not_taken)
{
    deft_tensor *const in[] = { rig_range(&r, 2, 1), rig_range(&r, 1, -1) };
    deft_tensor *const is = deft_keep(deft_lt(deft_sum(in[1], ALL, 0), 0.0));
    deft_tensor *y, *g[2];
    cr_assert(deft_vmap(r.cx, scaled_by_branch, is, in, first_of_two, 2, &y, NULL, 1), "%s",
              deft_message(r.cx));
    deft_tensor *const of = deft_sum(y, ALL, 0);
    cr_assert(deft_grad(&of, NULL, 1, in, 2, NULL, g), "%s", deft_message(r.cx));
    EXPECT(g[0], 10, 10);
    EXPECT(g[1], 0);
}

BODY(second_by_sign)
{
    deft_tensor *made[2];
    UNUSED;
    deft_tensor *const is = deft_lt(in[0], 0.0);
    if (deft_cond(is, squared_second, rooted_second, NULL, in, 1, made, 2)) out[0] = made[1];
    return DEFT_OK;
}

BODY(slope_by_sign)
{
    deft_tensor *value;
    UNUSED;
    deft_value_and_grad(cx, second_by_sign, NULL, in, 1, &value, 1, out);
    return DEFT_OK;
}

Test(vmap, a_gradient_inside_does_not_look_at_what_was_not_chosen)
{
    const float at[] = { -4, 4 };
    deft_tensor *const y = deft_from(r.cx, DEFT_SHAPE(2), DEFT_F32, at, sizeof at);
    deft_tensor *g;
    cr_assert(deft_vmap(r.cx, slope_by_sign, NULL, &y, NULL, 1, &g, NULL, 1), "%s",
              deft_message(r.cx));
    EXPECT(g, -8, 0.25);
}

BODY(picked)
{
    UNUSED;
    out[0] = deft_take(in[0], in[1], 0);
    return DEFT_OK;
}

Test(vmap, an_index_of_one_example_does_not_reach_the_next)
{
    deft_tensor *const x = deft_reshape(rig_range(&r, 6, 0), DEFT_SHAPE(2, 3));
    deft_tensor *const in[] = { x, deft_from(r.cx, DEFT_SHAPE(2), DEFT_I64, (int64_t[]){ 3, 0 },
                                             2 * sizeof(int64_t)) };
    deft_tensor *y;
    float v[2];
    cr_assert(deft_vmap(r.cx, picked, NULL, in, NULL, 2, &y, NULL, 1), "%s", deft_message(r.cx));
    cr_assert_eq(deft_read(y, DEFT_F32, v, sizeof v), DEFT_E_RANGE);
    cr_assert(strstr(deft_message(r.cx), "3"), "%s", deft_message(r.cx));
}

/* ---- draws ---- */

BODY(noisy)
{
    UNUSED;
    out[0] = deft_add(in[0], deft_uniform(cx, user, DEFT_SHAPE(2), DEFT_F32, 0, 1));
    return DEFT_OK;
}

Test(vmap, each_example_draws_numbers_of_its_own)
{
    deft_rng rng = { 3, 0 }, same = { 3, 0 };
    deft_tensor *const x = deft_zeros(r.cx, DEFT_SHAPE(3, 1), DEFT_F32);
    deft_tensor *y;
    float got[6], want[6];
    cr_assert(deft_vmap(r.cx, noisy, &rng, &x, NULL, 1, &y, NULL, 1), "%s", deft_message(r.cx));
    cr_assert_eq(rng.next, 1);
    rig_read(&r, y, got, 6);
    rig_read(&r, deft_uniform(r.cx, &same, DEFT_SHAPE(3, 2), DEFT_F32, 0, 1), want, 6);
    cr_assert_eq(memcmp(got, want, sizeof got), 0);
}

BODY(draws_in_a_loop)
{
    UNUSED;
    return deft_scan(cx, noisy, user, in, 1, NULL, 0, 2, 0, out) ? DEFT_OK : DEFT_E_STATE;
}

Test(vmap, a_loop_within_still_must_not_draw)
{
    deft_rng rng = { 3, 0 };
    deft_tensor *const x = deft_zeros(r.cx, DEFT_SHAPE(3, 2), DEFT_F32);
    deft_tensor *y = x;
    cr_assert(!deft_vmap(r.cx, draws_in_a_loop, &rng, &x, NULL, 1, &y, NULL, 1));
    cr_assert_null(y);
    expect_error(DEFT_E_STATE, "uniform: inside a loop");
}

static deft_status captured(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    deft_tensor *noise;
    (void)n_in, (void)n_out;
    if (!deft_vmap(cx, noisy, user, in, NULL, 1, &noise, NULL, 1)) return DEFT_E_STATE;
    out[0] = deft_mul(noise, deft_param_f(cx, "by"));
    return DEFT_OK;
}

Test(vmap, a_capture_draws_anew)
{
    deft_rng a = { 5, 0 }, b = { 5, 0 };
    deft_tensor *const x = deft_keep(deft_zeros(r.cx, DEFT_SHAPE(3, 2), DEFT_F32));
    OK(&r, deft_eval(&x, 1));
    deft_capture *c = deft_capture_create(r.cx, captured, &a);
    for (int i = 0; i < 4; i++) {
        deft_tensor *out;
        float got[6], want[6];
        OK(&r, deft_capture_set_f(c, "by", 1 << i));
        OK(&r, deft_capture_call(c, &x, 1, &out, 1));
        rig_read(&r, out, got, 6);
        rig_read(&r, deft_mul(deft_uniform(r.cx, &b, DEFT_SHAPE(3, 2), DEFT_F32, 0, 1), 1 << i),
                 want, 6);
        cr_assert_eq(memcmp(got, want, sizeof got), 0, "call %d", i);
    }
    deft_capture_stats s;
    deft_capture_stats_read(c, &s, sizeof s);
    cr_assert_eq(s.replayed, 3, "%s", deft_capture_reason(c));
    deft_capture_destroy(&c);
}

/* ---- mistakes ---- */

typedef struct mistake {
    const char *says;
    deft_status st;
    deft_body_fn fn;
    int in_axes[2], out_axis;
    size_t n_in, n_out;
} mistake;

BODY(nothing)
{
    UNUSED;
    return DEFT_OK;
}

BODY(fails)
{
    UNUSED;
    return DEFT_E_LIMIT;
}

BODY(reads)
{
    UNUSED;
    float v;
    const deft_status st = deft_item(deft_sum(in[0], ALL, 0), &v);
    out[0] = in[0];
    return st;
}

BODY(keeps)
{
    UNUSED;
    out[0] = deft_keep(deft_neg(in[0]));
    return DEFT_OK;
}

BODY(assigns_outside)
{
    UNUSED;
    out[0] = deft_assign(user, in[0]);
    return DEFT_OK;
}

BODY(grows)
{
    UNUSED;
    out[0] = deft_expand(in[0], DEFT_SHAPE(1, 1, 1, 1, 1, 1, 1, 3));
    return DEFT_OK;
}

BODY(shared_and_big)
{
    UNUSED;
    out[0] =
        deft_expand(deft_ones(cx, DEFT_SHAPE(1), DEFT_F32), DEFT_SHAPE(1, 1, 1, 1, 1, 1, 1, 3));
    return DEFT_OK;
}

Test(vmap, each_mistake_says_what_it_is)
{
    static const int none = DEFT_NOT_MAPPED;
    const mistake list[] = {
        { "vmap: 0 tensors, 1 results", DEFT_E_ARG, cubed, { 0, 0 }, 0, 0, 1 },
        { "vmap: 2 tensors, 0 results", DEFT_E_ARG, cubed, { 0, 0 }, 0, 2, 0 },
        { "vmap: none of 2 tensors is mapped", DEFT_E_ARG, cubed, { none, none }, 0, 2, 1 },
        { "vmap: tensor 1 is f32[4,3], of which axis 1 numbers 3 examples; those before it have 2",
          DEFT_E_SHAPE,
          cubed,
          { 0, 1 },
          0,
          2,
          1 },
        { "vmap: tensor 1 is f32[4,3], and has no axis 2", DEFT_E_RANGE, cubed, { 0, 2 }, 0, 2, 1 },
        { "vmap: tensor 0 is f32[2,3], and has no axis -3",
          DEFT_E_RANGE,
          cubed,
          { -3, 2 },
          0,
          2,
          1 },
        { "vmap: result 0 has 2 axes, and none is 2", DEFT_E_RANGE, cubed, { 0, none }, 2, 2, 1 },
        { "vmap: result 0 depends on an example, and is not mapped",
          DEFT_E_ARG,
          cubed,
          { 0, none },
          DEFT_NOT_MAPPED,
          2,
          1 },
        { "vmap: its function leaves result 0 of 1 NULL",
          DEFT_E_ARG,
          nothing,
          { 0, none },
          0,
          2,
          1 },
        { "vmap: its function failed", DEFT_E_LIMIT, fails, { 0, none }, 0, 2, 1 },
        { "vmap: its function failed", DEFT_E_STATE, reads, { 0, none }, 0, 2, 1 },
        { "keep: a tensor made inside a loop, branch or vmap",
          DEFT_E_STATE,
          keeps,
          { 0, none },
          0,
          2,
          1 },
        { "assign: a tensor from outside a loop, branch or vmap",
          DEFT_E_STATE,
          assigns_outside,
          { 0, none },
          0,
          2,
          1 },
        { "vmap: expand makes f32[1,1,1,1,1,1,1,3], which leaves no axis for 2 examples: 8 axes",
          DEFT_E_LIMIT,
          grows,
          { 0, none },
          0,
          2,
          1 },
        { "vmap: a tensor of 8 axes leaves none for 2 examples",
          DEFT_E_LIMIT,
          shared_and_big,
          { 0, none },
          0,
          2,
          1 },
    };
    deft_tensor *const other = deft_keep(deft_zeros(r.cx, DEFT_SHAPE(3), DEFT_F32));
    deft_tensor *const in[] = { normal(1, DEFT_SHAPE(2, 3)), normal(2, DEFT_SHAPE(4, 3)) };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const mistake *const m = &list[i];
        deft_tensor *out[1] = { other };
        cr_assert(
            !deft_vmap(r.cx, m->fn, other, in, m->in_axes, m->n_in, out, &m->out_axis, m->n_out),
            "%s", m->says);
        cr_assert(m->n_out == 0 || !out[0]);
        expect_error(m->st, m->says);
    }
    EXPECT(other, 0, 0, 0);
}

Test(vmap, a_number_cannot_be_mapped)
{
    deft_tensor *const x = deft_num(r.cx, 2);
    deft_tensor *y;
    cr_assert(!deft_vmap(r.cx, cubed, NULL, &x, NULL, 1, &y, NULL, 1));
    expect_error(DEFT_E_RANGE, "vmap: tensor 0 is f32[], and has no axis 0");
}

BODY(deeper)
{
    UNUSED;
    return deft_vmap(cx, deeper, user, in, NULL, 1, out, NULL, 1) ? DEFT_OK : DEFT_E_STATE;
}

Test(vmap, calls_nest_as_deep_as_there_are_axes)
{
    deft_tensor *const x = deft_zeros(r.cx, DEFT_SHAPE(1, 1, 1, 1, 1, 1, 1, 1), DEFT_F32);
    deft_tensor *y;
    cr_assert(!deft_vmap(r.cx, deeper, NULL, &x, NULL, 1, &y, NULL, 1));
    expect_error(DEFT_E_RANGE, "vmap: tensor 0 is f32[], and has no axis 0");
}

/* ---- after a branch ---- */

BODY(doubled)
{
    UNUSED;
    out[0] = deft_add(in[0], in[0]);
    return DEFT_OK;
}

/* The gradient of a choice with respect to its own result leaves no record of a choice. What is
 * recorded next must not be taken for one. */
Test(vmap, after_a_branch_that_left_no_record)
{
    deft_tensor *const x = RIG_VECTOR(&r, 2, 3), *y = NULL, *g = NULL, *twice = NULL;
    deft_tensor *const is_positive = deft_gt(deft_sum(x, ALL, 0), 0);
    cr_assert(deft_cond(is_positive, doubled, doubled, NULL, &x, 1, &y, 1));
    deft_tensor *const loss = deft_sum(y, ALL, 0);
    cr_assert(deft_grad(&loss, NULL, 1, &y, 1, NULL, &g), "%s", deft_message(r.cx));
    cr_assert(deft_vmap(r.cx, doubled, NULL, &x, NULL, 1, &twice, NULL, 1), "%s",
              deft_message(r.cx));
    EXPECT(twice, 4, 6);
    EXPECT(g, 1, 1);
}
