/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of images, norms, attention, losses and recurrent layers: what they promise beyond the
 * values of PyTorch, which tests/torch compares. Running statistics, averages of parameters, keys
 * and values that grow in place, gradients at edges, how often the fuser stores something, and
 * mistakes.
 */
#include "support/harness.h"

#include <math.h>
#include <string.h>

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 2);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(network_calls, .init = set_up, .fini = tear_down);

#define EXPECT(t, ...) RIG_EXPECT(&r, t, __VA_ARGS__)
#define MISTAKE(call, status, part) rig_expect_error(&r, (call), (status), (part))

static deft_tensor *ones(deft_shape s)
{
    return deft_ones(r.cx, s, DEFT_F32);
}

/* ---- images ---- */

Test(network_calls, a_convolution_of_one_or_three_sides_stores_no_window)
{
    deft_tensor *const x = deft_keep(ones(DEFT_SHAPE(2, 3, 40)));
    deft_tensor *const w = deft_keep(ones(DEFT_SHAPE(4, 3, 5)));
    deft_tensor *const v = deft_keep(ones(DEFT_SHAPE(2, 3, 4, 6, 9)));
    deft_tensor *const u = deft_keep(ones(DEFT_SHAPE(4, 3, 1, 3, 3)));
    OK(&r, deft_eval((deft_tensor *[]){ x, w, v, u }, 4));
    char plan[1 << 14];
    deft_tensor *const y[] = {
        deft_keep(deft_conv(x, w, DEFT_CONV(.padding = { 2 }))),
        deft_keep(deft_conv(v, u, DEFT_CONV(.padding = { 0, 1, 1 }))),
    };
    for (int i = 0; i < 2; i++) {
        OK(&r, deft_eval(&y[i], 1));
        deft_show(r.cx, "plan", plan, sizeof plan);
        cr_assert(strstr(plan, "    windows"), "%s", plan);
    }
}

Test(network_calls, a_pool_of_any_number_of_sides_is_one_launch)
{
    static const deft_shape shapes[] = { { 3, { 2, 3, 40 } },
                                         { 4, { 2, 3, 9, 20 } },
                                         { 5, { 1, 2, 6, 7, 8 } } };
    for (int i = 0; i < 3; i++) {
        deft_tensor *const x = deft_keep(ones(shapes[i]));
        OK(&r, deft_eval(&x, 1));
        const uint64_t before = rig_stats(&r).launches;
        deft_tensor *const y = deft_keep(deft_max_pool(
            x, DEFT_POOL(.kernel = { 3 }, .padding = { 1, 1, 1 }, .ceil_mode = true), NULL));
        OK(&r, deft_eval(&y, 1));
        cr_assert_eq(rig_stats(&r).launches - before, 1);
    }
}

Test(network_calls, equal_elements_and_nan_have_the_index_of_the_first)
{
    deft_tensor *const x =
        rig_tensor(&r, DEFT_SHAPE(1, 1, 8), (const float[]){ 1, 1, NAN, 5, NAN, -INFINITY, 2, 2 });
    deft_tensor *indices;
    deft_tensor *const y = deft_max_pool(x, DEFT_POOL(.kernel = { 4 }, .stride = { 2 }), &indices);
    EXPECT(y, NAN, NAN, NAN);
    EXPECT(deft_cast(indices, DEFT_F32), 2, 2, 4);
    const deft_pool_options pairs = { .size = sizeof pairs, .kernel = { 2 } };
    EXPECT(deft_max_pool(x, &pairs, &indices), 1, NAN, NAN, 2);
    EXPECT(deft_cast(indices, DEFT_F32), 0, 2, 4, 6);
}

Test(network_calls, mistakes_of_images)
{
    deft_tensor *const x = ones(DEFT_SHAPE(1, 4, 5, 6)), *const w = ones(DEFT_SHAPE(6, 4, 3, 3));
    deft_tensor *const flat = deft_flatten(x);
    MISTAKE(deft_conv(flat, w, NULL), DEFT_E_SHAPE, "conv: x is [120], w is [6,4,3,3]; it takes");
    MISTAKE(deft_conv(x, w, DEFT_CONV(.groups = 2)), DEFT_E_SHAPE, "in 2 groups");
    const deft_conv_options bare = { .size = sizeof bare,
                                     .padding = { 1 },
                                     .written = ".padding = 1" };
    MISTAKE(deft_conv(x, w, &bare), DEFT_E_ARG, "conv: .padding = 1 is of rows alone");
    MISTAKE(deft_conv(x, w, DEFT_CONV(.output_padding = { 1 })), DEFT_E_ARG, "output_padding");
    MISTAKE(deft_conv(x, w, DEFT_CONV(.dilation = { 4 })), DEFT_E_SHAPE, "does not fit");
    MISTAKE(deft_conv(x, w, DEFT_CONV(.bias = flat)), DEFT_E_SHAPE, "it must be [6]");
    MISTAKE(deft_conv(x, w, &(deft_conv_options){ 0 }), DEFT_E_ARG, "_options is 0");
    MISTAKE(deft_conv_transpose(x, w, NULL), DEFT_E_SHAPE, "[in, out / groups, ...]");
    deft_tensor *const turned = deft_transpose(w, 0, 1);
    MISTAKE(deft_conv_transpose(x, turned, DEFT_CONV(.output_padding = { 1, 0 })), DEFT_E_ARG,
            "conv_transpose: rows have output_padding 1");
    MISTAKE(deft_conv_transpose(x, turned, DEFT_CONV(.padding = { 9, 9 })), DEFT_E_SHAPE,
            "leave no element");
    MISTAKE(deft_max_pool(x, NULL, NULL), DEFT_E_ARG, "max_pool: options are NULL");
    MISTAKE(deft_max_pool(flat, DEFT_POOL(.kernel = { 2 }), NULL), DEFT_E_SHAPE,
            "[N, C, W] to [N, C, D, H, W]");
    MISTAKE(deft_avg_pool(deft_cast(x, DEFT_I32), DEFT_POOL(.kernel = { 2 })), DEFT_E_DTYPE,
            "avg_pool: x is i32");
    MISTAKE(deft_avg_pool(x, DEFT_POOL(.kernel = { 2 }, .padding = { 2, 2 })), DEFT_E_ARG, "half");
    MISTAKE(deft_adaptive_avg_pool(x, DEFT_SHAPE(2)), DEFT_E_SHAPE, "a number of parts for each");
    MISTAKE(deft_adaptive_max_pool(x, DEFT_SHAPE(2, 0)), DEFT_E_SHAPE, "adaptive_max_pool");
    MISTAKE(deft_max_unpool(x, x, DEFT_SHAPE(9, 9)), DEFT_E_SHAPE, "max_unpool: x is [1,4,5,6]");
    MISTAKE(deft_unfold(flat, DEFT_POOL(.kernel = { 2 })), DEFT_E_SHAPE, "unfold: x is [120]");
    MISTAKE(deft_fold(flat, DEFT_SHAPE(5, 6), DEFT_POOL(.kernel = { 2 })), DEFT_E_SHAPE,
            "fold: x is [120]; windows of 4 elements, 20 of them");
    MISTAKE(deft_fold(deft_cast(x, DEFT_I32), DEFT_SHAPE(5), DEFT_POOL(.kernel = { 2 })),
            DEFT_E_DTYPE, "fold: x is i32");
}

Test(network_calls, a_place_that_is_nan_or_far_away_takes_no_element_beyond_the_image)
{
    deft_tensor *const x = rig_tensor(&r, DEFT_SHAPE(1, 1, 1, 2), (const float[]){ 3, 5 });
    deft_tensor *const grid =
        rig_tensor(&r, DEFT_SHAPE(1, 1, 3, 2), (const float[]){ NAN, NAN, 1e30f, 0, -1, 0 });
    const deft_sampling_options nearest = { .size = sizeof nearest,
                                            .border = DEFT_BORDER_NEAREST,
                                            .is_aligned = true };
    EXPECT(deft_grid_sample(x, grid, &nearest), 3, 5, 3);
    const deft_sampling_options zeros = { .size = sizeof zeros, .is_aligned = true };
    EXPECT(deft_grid_sample(x, grid, &zeros), 3, 0, 3);
}

Test(network_calls, mistakes_of_resampling)
{
    deft_tensor *const x = ones(DEFT_SHAPE(1, 1, 4, 5)), *const grid = ones(DEFT_SHAPE(1, 2, 2, 2));
    MISTAKE(deft_interpolate(deft_flatten(x), DEFT_SHAPE(3), NULL), DEFT_E_SHAPE,
            "interpolate: x is f32[20]; it takes [N, C, ...]");
    MISTAKE(deft_interpolate(deft_cast(x, DEFT_I32), DEFT_SHAPE(3, 3), NULL), DEFT_E_DTYPE,
            "interpolate: x is i32[1,1,4,5]");
    MISTAKE(deft_interpolate(x, DEFT_SHAPE(3), NULL), DEFT_E_SHAPE, "for its 2 sides");
    MISTAKE(deft_interpolate(x, DEFT_SHAPE(), NULL), DEFT_E_SHAPE, "or a scale");
    MISTAKE(deft_interpolate(x, DEFT_SHAPE(), DEFT_SAMPLING(.scale = { -1 })), DEFT_E_SHAPE,
            "scale");
    MISTAKE(deft_interpolate(x, DEFT_SHAPE(3, 3), DEFT_SAMPLING(.is_aligned = true)), DEFT_E_ARG,
            "interpolate: mode 0, border 0, aligned 1");
    MISTAKE(deft_grid_sample(x, x, NULL), DEFT_E_SHAPE,
            "grid_sample: x is f32[1,1,4,5], the grid is f32[1,1,4,5]");
    MISTAKE(deft_grid_sample(x, grid, DEFT_SAMPLING(.mode = DEFT_AREA)), DEFT_E_ARG,
            "the modes nearest, linear and cubic");
}

/* ---- norms ---- */

static deft_status norm_in_training(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                    deft_tensor **out, size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out;
    out[0] = deft_nn_batch_norm_call(user, in[0]);
    return DEFT_OK;
}

Test(network_calls, running_statistics_move_in_training_and_are_used_afterwards)
{
    deft_nn *nn;
    deft_nn_batch_norm l;
    OK(&r, deft_nn_create(r.cx, NULL, &nn));
    cr_assert(deft_nn_batch_norm_init(&l, nn, "bn", 1));
    cr_assert_eq(deft_nn_n_parameters(nn), 2);
    cr_assert_eq(deft_nn_find(nn, "bn.running_var"), l.var);
    deft_tensor *const x = rig_tensor(&r, DEFT_SHAPE(2, 1, 2), (const float[]){ 1, 3, 5, 7 });
    deft_capture *c = deft_capture_create(r.cx, norm_in_training, &l);
    double mean = 0, var = 1;
    for (int i = 0; i < 3; i++) {
        deft_tensor *y;
        OK(&r, deft_capture_call(c, &x, 1, &y, 1));
        mean += 0.1 * (4 - mean);
        var += 0.1 * (20.0 / 3 - var); /* of 1, 3, 5, 7 with ddof 1 */
        cr_assert_float_eq(rig_item(&r, l.mean), mean, 1e-6);
        cr_assert_float_eq(rig_item(&r, l.var), var, 1e-6);
    }
    deft_capture_destroy(&c);
    deft_nn_set_training(nn, false);
    deft_tensor *const y = deft_nn_batch_norm_call(&l, x);
    float got[4];
    rig_read(&r, y, got, 4);
    for (int i = 0; i < 4; i++)
        cr_assert_float_eq(got[i], (1 + 2 * i - mean) / sqrt(var + 1e-5), 1e-5);
    cr_assert_float_eq(rig_item(&r, l.mean), mean, 1e-6);
    deft_nn_destroy(&nn);
}

Test(network_calls, mistakes_of_norms)
{
    deft_tensor *const x = ones(DEFT_SHAPE(2, 4, 3)), *const c = ones(DEFT_SHAPE(3));
    MISTAKE(deft_batch_norm(deft_flatten(x), NULL), DEFT_E_SHAPE, "it takes [N, C, ...]");
    MISTAKE(deft_batch_norm(x, DEFT_NORM(.weight = c)), DEFT_E_SHAPE,
            "batch_norm: x is f32[2,4,3], a tensor of options is f32[3], not [4]");
    MISTAKE(deft_batch_norm(x, DEFT_NORM(.mean = c)), DEFT_E_ARG,
            "mean and var are given together");
    MISTAKE(deft_group_norm(x, 3, NULL), DEFT_E_SHAPE, "group_norm: 4 channels in 3 groups");
    MISTAKE(deft_group_norm(x, 2, DEFT_NORM(.training = true)), DEFT_E_ARG, "weight, bias and eps");
    MISTAKE(deft_instance_norm(x, DEFT_NORM(.eps = NAN)), DEFT_E_ARG, "instance_norm: eps");
}

/* ---- attention ---- */

enum { ROOM = 300, WIDTH = 4 };

/* One position after another, with keys and values that grow in place, against all at once. */
Test(network_calls, keys_and_values_grow_in_place_with_one_plan)
{
    static float v[3][ROOM * WIDTH];
    for (int i = 0; i < 3 * ROOM * WIDTH; i++)
        v[i / (ROOM * WIDTH)][i % (ROOM * WIDTH)] = sinf(1.3f * (float)i);
    deft_tensor *all[3];
    for (int i = 0; i < 3; i++) all[i] = rig_tensor(&r, DEFT_SHAPE(1, ROOM, WIDTH), v[i]);
    deft_tensor *const keys = deft_keep(deft_zeros(r.cx, DEFT_SHAPE(1, ROOM, WIDTH), DEFT_F32));
    deft_tensor *const values = deft_keep(deft_zeros(r.cx, DEFT_SHAPE(1, ROOM, WIDTH), DEFT_F32));
    static float want[ROOM * WIDTH];
    rig_read(&r, deft_attention(all[0], all[1], all[2], DEFT_ATTENTION(.is_causal = true)), want,
             ROOM * WIDTH);
    uint64_t plans = 0;
    for (int t = 130; t < ROOM; t += t < 140 ? 1 : 31) {
        const deft_scope s = deft_step_begin(r.cx);
        deft_assign(deft_slice(keys, DEFT_FULL, DEFT_R(0, t + 1)),
                    deft_slice(all[1], DEFT_FULL, DEFT_R(0, t + 1)));
        deft_assign(deft_slice(values, DEFT_FULL, DEFT_R(0, t + 1)),
                    deft_slice(all[2], DEFT_FULL, DEFT_R(0, t + 1)));
        deft_tensor *const y =
            deft_keep(deft_attention(deft_slice(all[0], DEFT_FULL, DEFT_R(t, t + 1)),
                                     deft_slice(keys, DEFT_FULL, DEFT_R(0, t + 1)),
                                     deft_slice(values, DEFT_FULL, DEFT_R(0, t + 1)),
                                     DEFT_ATTENTION(.is_causal = true, .is_at_end = true)));
        OK(&r, deft_step_end(s));
        float got[WIDTH];
        rig_read(&r, y, got, WIDTH);
        for (int i = 0; i < WIDTH; i++)
            cr_assert_float_eq(got[i], want[t * WIDTH + i], 1e-5, "%d: %g %g", t, got[i],
                               want[t * WIDTH + i]);
        if (t == 131) plans = rig_stats(&r).plans_built;
        if (t > 131 && t < 140) cr_assert_eq(rig_stats(&r).plans_built, plans, "at %d", t);
    }
}

Test(network_calls, a_query_that_sees_no_key_has_the_result_and_the_gradient_0)
{
    for (int64_t n = 3; n < 300; n += 200)
        for (int64_t queries = 2; queries < 30; queries += 20) {
            deft_tensor *const q = deft_keep(deft_mul(ones(DEFT_SHAPE(queries, 2)), 0.5));
            deft_tensor *const k = deft_keep(deft_sin(deft_reshape(
                deft_arange(r.cx, 0., 2. * (double)n, 1., DEFT_F32), DEFT_SHAPE(n, 2))));
            deft_tensor *const sees = deft_ne(deft_iota(r.cx, DEFT_SHAPE(queries, 1), 0), 1);
            deft_tensor *const y = deft_attention(q, k, k, DEFT_ATTENTION(.mask = sees));
            float v[4];
            rig_read(&r, deft_slice(y, DEFT_R(0, 2)), v, 4);
            cr_assert(v[0] != 0 && v[2] == 0 && v[3] == 0);
            deft_tensor *const g = rig_grad_of_sum(deft_square(y), q);
            rig_read(&r, deft_slice(g, DEFT_R(0, 2)), v, 4);
            cr_assert(v[0] != 0 && isfinite(v[0]) && v[2] == 0 && v[3] == 0);
        }
}

/* The gradient of attention over several blocks of keys, with a cap, in a captured function. */
static deft_status capped_gradient(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                   deft_tensor **out, size_t n_out, void *user)
{
    const deft_attention_options o = { .size = sizeof o, .cap = 2 };
    deft_tensor *const y = deft_attention(in[0], in[0], in[0], &o);
    (void)n_in, (void)n_out, (void)user;
    if (!y || !deft_grad(&y, &y, 1, in, 1, NULL, out)) return deft_error(cx);
    return DEFT_OK;
}

Test(network_calls, capped_attention_is_differentiated_in_a_capture)
{
    const deft_shape s = DEFT_SHAPE(DEFT_ATTENTION_BLOCK + 40, 4);
    deft_tensor *const x = deft_keep(deft_sin(deft_add(ones(s), deft_iota(r.cx, s, 0))));
    deft_tensor *at_once, *captured;
    OK(&r, capped_gradient(r.cx, &x, 1, &at_once, 1, NULL));
    (void)deft_keep(at_once);
    deft_capture *c = deft_capture_create(r.cx, capped_gradient, NULL);
    OK(&r, deft_capture_call(c, &x, 1, &captured, 1));
    static float want[(DEFT_ATTENTION_BLOCK + 40) * 4], have[(DEFT_ATTENTION_BLOCK + 40) * 4];
    OK(&r, deft_read(at_once, DEFT_F32, want, sizeof want));
    OK(&r, deft_read(captured, DEFT_F32, have, sizeof have));
    cr_assert(memcmp(want, have, sizeof want) == 0 && want[0] != 0);
    deft_capture_destroy(&c);
}

Test(network_calls, mistakes_of_attention)
{
    deft_tensor *const q = ones(DEFT_SHAPE(4, 3, 2)), *const k = ones(DEFT_SHAPE(2, 5, 2));
    MISTAKE(deft_attention(q, q, q, DEFT_ATTENTION(.mask = ones(DEFT_SHAPE(3, 4)))), DEFT_E_SHAPE,
            "attention: the mask is f32[3,4], which does not broadcast to scores [4,3,3]");
    MISTAKE(deft_attention(q, q, q, DEFT_ATTENTION(.mask = deft_cast(q, DEFT_I32))), DEFT_E_SHAPE,
            "is neither bool nor float");
    MISTAKE(deft_attention(q, q, q, DEFT_ATTENTION(.window = -1)), DEFT_E_ARG, "window -1");
    MISTAKE(deft_attention(q, q, q, DEFT_ATTENTION(.cap = NAN)), DEFT_E_ARG, "cap nan");
    MISTAKE(deft_attention(q, k, k, NULL), DEFT_E_SHAPE, "attention: q is [4,3,2], k is [2,5,2]");
    MISTAKE(deft_attention(k, q, q, DEFT_ATTENTION(.has_grouped_heads = true)), DEFT_E_SHAPE,
            "attention: 2 heads of queries do not share 4 heads of keys");
}

/* ---- losses ---- */

/* Value and gradient of loss y with respect to x are finite. */
static void is_finite(deft_tensor *y, deft_tensor *x, const char *what)
{
    float v[16];
    deft_tensor *const g = rig_grad_of_sum(y, x);
    const int64_t n = deft_numel(g);
    cr_assert(isfinite(rig_item(&r, deft_sum(y, DEFT_ALL_AXES, 0))), "%s", what);
    rig_read(&r, g, v, n);
    for (int64_t i = 0; i < n; i++)
        cr_assert(isfinite(v[i]), "%s, gradient %d: %g", what, (int)i, v[i]);
}

Test(network_calls, losses_and_their_gradients_are_finite_at_the_edges)
{
    deft_tensor *const p = RIG_VECTOR(&r, 0, 1, 0, 1), *const t = RIG_VECTOR(&r, 0, 0, 1, 1);
    deft_tensor *const far = RIG_VECTOR(&r, -1e4f, 1e4f, -80, 80);
    deft_tensor *const equal = deft_mul(ones(DEFT_SHAPE(2, 2)), 3.0);
    EXPECT(deft_bce_loss(p, t, DEFT_LOSS(.reduction = DEFT_REDUCTION_NONE)), 0, 100, 100, 0);
    is_finite(deft_bce_loss(p, t, NULL), p, "bce");
    is_finite(deft_bce_logits_loss(far, t, NULL), far, "bce of logits");
    is_finite(deft_soft_margin_loss(far, RIG_VECTOR(&r, 1, -1, 1, -1), NULL), far, "soft margin");
    is_finite(deft_kl_div(far, p, NULL), far, "kl_div");
    is_finite(deft_kl_div(far, p, NULL), p, "kl_div of the target");
    is_finite(deft_mse_loss(equal, equal, NULL), equal, "mse");
    is_finite(deft_huber_loss(equal, equal, NULL), equal, "huber");
    is_finite(deft_triplet_margin_loss(equal, equal, equal, NULL), equal, "triplet");
    deft_tensor *const zeros = deft_keep(deft_mul(ones(DEFT_SHAPE(2, 2)), 0.0));
    is_finite(deft_cosine_embedding_loss(zeros, equal, deft_num(r.cx, 1), NULL), zeros, "cosine");
    deft_tensor *const logits = deft_reshape(far, DEFT_SHAPE(1, 4));
    is_finite(deft_cross_entropy_loss(logits, deft_zeros(r.cx, DEFT_SHAPE(1), DEFT_I64),
                                      DEFT_LOSS(.smoothing = 0.1)),
              logits, "cross entropy");
}

Test(network_calls, a_label_that_is_no_class_gives_nan_unless_it_is_left_out)
{
    deft_tensor *const logits = ones(DEFT_SHAPE(2, 3));
    deft_tensor *const labels =
        deft_from(r.cx, DEFT_SHAPE(2), DEFT_I32, (const int32_t[]){ -100, 1 }, 8);
    cr_assert(isnan(rig_item(&r, deft_cross_entropy_loss(logits, labels, NULL))));
    deft_tensor *const y =
        deft_cross_entropy_loss(logits, labels, DEFT_LOSS(.ignores = true, .ignored = -100));
    cr_assert_float_eq(rig_item(&r, y), logf(3), 1e-6);
    deft_tensor *const rows = deft_cross_entropy_loss(
        logits, labels,
        DEFT_LOSS(.reduction = DEFT_REDUCTION_NONE, .ignores = true, .ignored = -100));
    EXPECT(deft_gt(rows, 1.0), 0, 1);
}

Test(network_calls, losses_of_halves_are_rounded_once)
{
    deft_tensor *const x = deft_cast(RIG_VECTOR(&r, 1, 2, 3, 4), DEFT_F16);
    deft_tensor *const y = deft_mse_loss(x, deft_num_i(r.cx, 0), NULL);
    cr_assert_eq(deft_dtype_of(y), DEFT_F16);
    EXPECT(y, 7.5);
    deft_mixed_set(r.cx, DEFT_F16);
    cr_assert_eq(deft_dtype_of(deft_mse_loss(x, deft_num_i(r.cx, 0), NULL)), DEFT_F32);
    deft_mixed_set(r.cx, DEFT_F32);
}

Test(network_calls, mistakes_of_losses)
{
    deft_tensor *const x = ones(DEFT_SHAPE(2, 3)), *const t = ones(DEFT_SHAPE(4));
    deft_tensor *const labels = deft_zeros(r.cx, DEFT_SHAPE(3), DEFT_I64);
    MISTAKE(deft_mse_loss(x, x, DEFT_LOSS(.smoothing = 0.1)), DEFT_E_ARG,
            "mse_loss: it takes no option smoothing");
    MISTAKE(deft_mse_loss(x, x, DEFT_LOSS(.reduction = DEFT_REDUCTION_BATCH_MEAN)), DEFT_E_ARG,
            "mse_loss: 3 is no reduction");
    MISTAKE(deft_huber_loss(x, x, DEFT_LOSS(.beta = -1)), DEFT_E_ARG, "beta -1");
    MISTAKE(deft_mse_loss(x, t, NULL), DEFT_E_SHAPE, "[2,3]");
    MISTAKE(deft_cross_entropy_loss(x, labels, NULL), DEFT_E_SHAPE,
            "cross_entropy_loss: x is f32[2,3], the target is i64[3]");
    MISTAKE(deft_nll_loss(x, x, NULL), DEFT_E_SHAPE, "nll_loss: x is f32[2,3]");
    MISTAKE(deft_cross_entropy_loss(x, x, DEFT_LOSS(.weight = t)), DEFT_E_SHAPE,
            "weight has 4 elements, there are 3 classes");
    MISTAKE(deft_cross_entropy_loss(x, x, DEFT_LOSS(.ignores = true)), DEFT_E_ARG,
            "no label to leave out");
    MISTAKE(deft_l1_loss(x, x, &(deft_loss_options){ 0 }), DEFT_E_ARG, "_options is 0");
}

/* ---- recurrent layers ---- */

Test(network_calls, recurrent_layers_have_the_names_and_shapes_of_pytorch)
{
    deft_nn *nn;
    deft_nn_rnn l;
    OK(&r, deft_nn_create(r.cx, NULL, &nn));
    const deft_nn_rnn_options o = { .size = sizeof o,
                                    .kind = DEFT_RNN_GRU,
                                    .input = 5,
                                    .hidden = 4,
                                    .n_layers = 2,
                                    .is_bidirectional = true };
    cr_assert(deft_nn_rnn_init(&l, nn, "gru", &o));
    cr_assert_eq(deft_nn_n_parameters(nn), 16);
    cr_assert_str_eq(deft_nn_name_at(nn, 4), "gru.weight_ih_l0_reverse");
    deft_tensor *const w = deft_nn_find(nn, "gru.weight_ih_l1");
    cr_assert(deft_dim(w, 0) == 12 && deft_dim(w, 1) == 8);
    deft_tensor *h;
    deft_tensor *const y = deft_nn_rnn_call(&l, ones(DEFT_SHAPE(3, 7, 5)), NULL, NULL, &h, NULL);
    cr_assert(deft_dim(y, 0) == 3 && deft_dim(y, 1) == 7 && deft_dim(y, 2) == 8);
    cr_assert(deft_dim(h, 0) == 4 && deft_dim(h, 1) == 3 && deft_dim(h, 2) == 4);
    MISTAKE(deft_nn_rnn_call(&l, ones(DEFT_SHAPE(3, 7, 4)), NULL, NULL, NULL, NULL), DEFT_E_SHAPE,
            "rnn: x is f32[3,7,4]; it takes [batch, time, 5]");
    MISTAKE(deft_nn_rnn_call(&l, ones(DEFT_SHAPE(3, 7, 5)), h, h, NULL, NULL), DEFT_E_ARG,
            "only an LSTM has a state c");
    MISTAKE(deft_nn_rnn_call(&l, ones(DEFT_SHAPE(2, 7, 5)), h, NULL, NULL, NULL), DEFT_E_SHAPE,
            "a first state is f32[4,3,4], not [4,2,4]");
    const deft_nn_rnn_options bad = { .size = sizeof bad, .input = 5, .hidden = 0 };
    cr_assert_not(deft_nn_rnn_init(&l, nn, "bad", &bad));
    MISTAKE(NULL, DEFT_E_ARG, "rnn: kind 0, input 5, hidden 0");
    deft_nn_destroy(&nn);
}

static double train(deft_nn *nn, const deft_nn_rnn *l, deft_optim *o, deft_tensor *x)
{
    deft_tensor *g[8];
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const y = deft_nn_rnn_call(l, x, NULL, NULL, NULL, NULL);
    deft_tensor *const loss = deft_keep(deft_mse_loss(y, deft_mul(x, -0.5), NULL));
    (void)nn;
    cr_assert(deft_grad(&loss, NULL, 1, deft_optim_parameters(o), deft_optim_n(o), NULL, g));
    cr_assert(deft_clip_grad_value(g, deft_optim_n(o), 1));
    cr_assert(deft_optim_step(o, g, 0.05));
    OK(&r, deft_step_end(s));
    deft_tensor *kept = loss;
    const double v = rig_item(&r, loss);
    deft_drop(&kept);
    return v;
}

Test(network_calls, an_lstm_learns_and_the_average_follows_its_parameters)
{
    deft_nn *nn;
    deft_nn_rnn l;
    deft_optim *o;
    const deft_nn_options seeded = { .size = sizeof seeded, .seed = 3 };
    OK(&r, deft_nn_create(r.cx, &seeded, &nn));
    const deft_nn_rnn_options lstm = {
        .size = sizeof lstm, .kind = DEFT_RNN_LSTM, .input = 2, .hidden = 2
    };
    cr_assert(deft_nn_rnn_init(&l, nn, NULL, &lstm));
    deft_optim_options adam = deft_optim_defaults(DEFT_OPTIM_ADAM);
    adam.average_decay = 0.5;
    OK(&r, deft_optim_create(nn, &adam, &o));
    deft_tensor *const x = deft_keep(
        deft_sin(deft_reshape(deft_arange(r.cx, 0., 24., 1., DEFT_F32), DEFT_SHAPE(3, 4, 2))));
    float before[16], after[16], average[16];
    rig_read(&r, deft_optim_averages(o)[0], before, 16);
    rig_read(&r, l.at[0].weight_ih, after, 16);
    cr_assert_arr_eq(before, after, sizeof before);
    const double first = train(nn, &l, o, x);
    rig_read(&r, l.at[0].weight_ih, after, 16);
    rig_read(&r, deft_optim_averages(o)[0], average, 16);
    for (int i = 0; i < 16; i++) cr_assert_float_eq(average[i], (before[i] + after[i]) / 2, 1e-6);
    double last = first;
    for (int i = 0; i < 60; i++) last = train(nn, &l, o, x);
    cr_assert_lt(last, first / 4);
    cr_assert_eq(deft_nn_find(nn, "optim.average.weight_ih_l0"), deft_optim_averages(o)[0]);
    deft_optim_destroy(&o);
    deft_nn_destroy(&nn);
}

/* ---- learning rates, clipping ---- */

Test(network_calls, learning_rates)
{
    cr_assert_eq(deft_schedule_steps(9, 5, 0.5), 0.5);
    cr_assert_eq(deft_schedule_steps(10, 5, 0.5), 0.25);
    cr_assert_eq(deft_schedule_steps(2, 0, 0.5), 0.25);
    cr_assert_eq(deft_schedule_polynomial(5, 10, 2), 0.25);
    cr_assert_eq(deft_schedule_polynomial(11, 10, 2), 0);
    cr_assert_eq(deft_schedule_inverse_sqrt(1, 4), 0.5);
    cr_assert_eq(deft_schedule_inverse_sqrt(3, 4), 1);
    cr_assert_eq(deft_schedule_inverse_sqrt(15, 4), 0.5);
    cr_assert_eq(deft_schedule_restarts(0, 4, 2, 0.1), 1);
    cr_assert_float_eq(deft_schedule_restarts(2, 4, 2, 0), 0.5, 1e-15);
    cr_assert_eq(deft_schedule_restarts(4, 4, 2, 0), 1);
    cr_assert_float_eq(deft_schedule_restarts(8, 4, 2, 0), 0.5, 1e-15);
    cr_assert_eq(deft_schedule_restarts(12, 4, 2, 0), 1);
    cr_assert_eq(deft_schedule_restarts(400, 4, 0, 0), 1);
    cr_assert_eq(deft_schedule_one_cycle(0, 10, 4, 0.1, 0), 0.1);
    cr_assert_float_eq(deft_schedule_one_cycle(2, 10, 4, 0.1, 0), 0.55, 1e-15);
    cr_assert_eq(deft_schedule_one_cycle(4, 10, 4, 0.1, 0), 1);
    cr_assert_float_eq(deft_schedule_one_cycle(7, 10, 4, 0.1, 0), 0.5, 1e-15);
    cr_assert_eq(deft_schedule_one_cycle(99, 10, 4, 0.1, 0.01), 0.01);
}

Test(network_calls, gradients_are_limited_by_value)
{
    deft_tensor *g[] = { RIG_VECTOR(&r, -3, 0.5, NAN, 2), NULL };
    cr_assert(deft_clip_grad_value(g, 2, 1));
    EXPECT(g[0], -1, 0.5, NAN, 1);
    cr_assert_not(deft_clip_grad_value(g, 2, 0));
    MISTAKE(NULL, DEFT_E_RANGE, "clip_grad_value: the limit is 0");
    cr_assert_not(deft_clip_grad_value(NULL, 2, 1));
}
