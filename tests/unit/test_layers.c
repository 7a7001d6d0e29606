/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers against plain C written here: convolution bit for bit, what pools do with equal elements,
 * NaN and padding, attention beside all of its scores at once, what gradients cost, and what each
 * mistake says. Formulas of gradients are tests/diff/gradcheck.c's.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/budget.h"
#include "support/harness.h"

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 2);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(layers, .init = set_up, .fini = tear_down);

static float *noise(int64_t n, uint64_t seed)
{
    float *const v = malloc((size_t)n * sizeof *v);
    cr_assert(v);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        v[i] = (float)(seed >> 40) * 0x1p-23f - 1;
    }
    return v;
}

#define EXPECT(t, ...) RIG_EXPECT(&r, t, __VA_ARGS__)

/* ---- convolution ---- */

typedef struct conv_case {
    int64_t n, in, h, w, out, kh, kw, groups, stride[2], padding[2], dilation[2];
} conv_case;

/* One element: a chain of fma over (channel, row, column). */
static float conv_at(const conv_case *c, const float *x, const float *w, int64_t n, int64_t o,
                     int64_t y0, int64_t x0)
{
    const int64_t depth = c->in / c->groups, first = o / (c->out / c->groups) * depth;
    float acc = 0;
    for (int64_t ch = 0; ch < depth; ch++)
        for (int64_t i = 0; i < c->kh; i++)
            for (int64_t j = 0; j < c->kw; j++) {
                const int64_t row = y0 * c->stride[0] + i * c->dilation[0] - c->padding[0];
                const int64_t column = x0 * c->stride[1] + j * c->dilation[1] - c->padding[1];
                const bool inside = row >= 0 && row < c->h && column >= 0 && column < c->w;
                const float v =
                    inside ? x[((n * c->in + first + ch) * c->h + row) * c->w + column] : 0;
                acc = fmaf(w[((o * depth + ch) * c->kh + i) * c->kw + j], v, acc);
            }
    return acc;
}

static int64_t extent(int64_t size, int64_t k, int64_t stride, int64_t padding, int64_t dilation)
{
    return (size + 2 * padding - dilation * (k - 1) - 1) / stride + 1;
}

static void conv_is_right(const conv_case *c)
{
    const int64_t ho = extent(c->h, c->kh, c->stride[0], c->padding[0], c->dilation[0]);
    const int64_t wo = extent(c->w, c->kw, c->stride[1], c->padding[1], c->dilation[1]);
    const int64_t n_out = c->n * c->out * ho * wo, depth = c->in / c->groups;
    float *const x = noise(c->n * c->in * c->h * c->w, 1), *const bias = noise(c->out, 3);
    float *const w = noise(c->out * depth * c->kh * c->kw, 2), *const want = noise(n_out, 4);
    for (int64_t k = 0; k < n_out; k++) {
        const int64_t o = k / (ho * wo) % c->out;
        want[k] = conv_at(c, x, w, k / (ho * wo * c->out), o, k / wo % ho, k % wo) + bias[o];
    }
    const deft_conv2d_options options = { .size = sizeof options,
                                          .stride = { c->stride[0], c->stride[1] },
                                          .padding = { c->padding[0], c->padding[1] },
                                          .dilation = { c->dilation[0], c->dilation[1] },
                                          .groups = c->groups,
                                          .bias = rig_tensor(&r, DEFT_SHAPE(c->out), bias) };
    deft_tensor *const y =
        deft_conv2d(rig_tensor(&r, DEFT_SHAPE(c->n, c->in, c->h, c->w), x),
                    rig_tensor(&r, DEFT_SHAPE(c->out, depth, c->kh, c->kw), w), &options);
    cr_assert(y, "%s", deft_message(r.cx));
    cr_assert_eq(deft_dim(y, 2), ho);
    cr_assert_eq(deft_dim(y, 3), wo);
    rig_expect(&r, y, n_out, want);
    free(x), free(w), free(bias), free(want);
}

Test(layers, convolution_is_a_chain_of_fma_for_each_element)
{
    static const conv_case cases[] = {
        { 2, 3, 8, 7, 5, 3, 3, 1, { 1, 1 }, { 1, 1 }, { 1, 1 } },
        { 1, 4, 9, 6, 6, 3, 2, 2, { 2, 1 }, { 1, 2 }, { 2, 1 } },
        { 3, 2, 5, 5, 4, 5, 5, 1, { 1, 3 }, { 2, 2 }, { 1, 1 } },
        { 2, 6, 4, 4, 6, 3, 1, 6, { 1, 1 }, { 0, 0 }, { 1, 1 } },
        { 2, 5, 6, 6, 7, 1, 1, 1, { 2, 2 }, { 0, 0 }, { 1, 1 } },
        { 2, 5, 6, 6, 7, 1, 1, 1, { 1, 1 }, { 1, 0 }, { 1, 1 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) conv_is_right(&cases[i]);
}

Test(layers, convolution_of_no_images)
{
    deft_tensor *const x = deft_zeros(r.cx, DEFT_SHAPE(0, 2, 4, 4), DEFT_F32);
    deft_tensor *const w = deft_ones(r.cx, DEFT_SHAPE(3, 2, 3, 3), DEFT_F32);
    deft_tensor *const y = deft_conv2d(x, w, NULL), *const g = rig_grad_of_sum(y, w);
    cr_assert_eq(deft_numel(y), 0);
    OK(&r, deft_eval((deft_tensor *[]){ y, g }, 2));
    rig_expect(&r, g, 54, (const float[54]){ 0 });
}

Test(layers, integers_are_convolved_as_f32)
{
    const int32_t v[] = { 1, 2, 3, 4 };
    deft_tensor *const x = deft_from(r.cx, DEFT_SHAPE(1, 1, 2, 2), DEFT_I32, v, sizeof v);
    deft_tensor *const y = deft_conv2d(x, deft_ones(r.cx, DEFT_SHAPE(1, 1, 2, 2), DEFT_F32), NULL);
    cr_assert_eq(deft_dtype_of(y), DEFT_F32);
    EXPECT(y, 10);
}

/* Launches must not grow with the size of the window. */
Test(layers, both_gradients_of_a_convolution_are_a_few_launches)
{
    deft_tensor *const x = deft_keep(deft_ones(r.cx, DEFT_SHAPE(4, 3, 8, 8), DEFT_F32));
    deft_tensor *const w = deft_keep(deft_ones(r.cx, DEFT_SHAPE(5, 3, 3, 3), DEFT_F32));
    OK(&r, deft_eval((deft_tensor *[]){ x, w }, 2));
    const deft_stats before = rig_stats(&r);
    const deft_scope s = deft_step_begin(r.cx);
    deft_tensor *const y = deft_square(deft_conv2d(x, w, DEFT_CONV2D(.padding = { 1, 1 })));
    deft_tensor *const loss = deft_sum(y, DEFT_ALL_AXES, 0), *const with[] = { x, w };
    deft_tensor *g[2];
    cr_assert(deft_grad(&loss, NULL, 1, with, 2, NULL, g), "%s", deft_message(r.cx));
    deft_keep(g[0]);
    deft_keep(g[1]);
    OK(&r, deft_step_end(s));
    const uint64_t n = rig_stats(&r).launches - before.launches;
    cr_assert_leq(n, 6, "%d launches", (int)n);
}

Test(layers, a_padded_image_is_not_stored_for_a_pool)
{
    deft_tensor *const x = deft_keep(deft_ones(r.cx, DEFT_SHAPE(2, 3, 9, 20), DEFT_F32));
    OK(&r, deft_eval((deft_tensor *[]){ x }, 1));
    for (int is_max = 0; is_max < 2; is_max++) {
        const deft_pool2d_options *const o =
            DEFT_POOL2D(.kernel = { 3, 3 }, .stride = { 2, 2 }, .padding = { 1, 1 });
        const deft_stats before = rig_stats(&r);
        const deft_scope s = deft_step_begin(r.cx);
        deft_keep(is_max ? deft_max_pool2d(x, o) : deft_avg_pool2d(x, o));
        OK(&r, deft_step_end(s));
        cr_assert_eq(rig_stats(&r).launches - before.launches, 1);
    }
}

Test(layers, mistakes_of_a_convolution)
{
    deft_tensor *const x = deft_ones(r.cx, DEFT_SHAPE(1, 4, 5, 6), DEFT_F32);
    deft_tensor *const w = deft_ones(r.cx, DEFT_SHAPE(6, 4, 3, 3), DEFT_F32);
    rig_expect_error(&r, deft_conv2d(deft_flatten(x), w, NULL), DEFT_E_SHAPE,
                     "conv2d: x is [120], w is [6,4,3,3]; it takes [N, in, H, W]");
    rig_expect_error(&r, deft_conv2d(x, w, DEFT_CONV2D(.groups = 2)), DEFT_E_SHAPE,
                     "conv2d: x is [1,4,5,6], w is [6,4,3,3]: 2 groups");
    rig_expect_error(&r, deft_conv2d(x, w, DEFT_CONV2D(.groups = -1)), DEFT_E_SHAPE, "-1 groups");
    rig_expect_error(
        &r, deft_conv2d(x, w, DEFT_CONV2D(.bias = deft_ones(r.cx, DEFT_SHAPE(4), DEFT_F32))),
        DEFT_E_SHAPE, "conv2d: bias is [4], w is [6,4,3,3]; it must be [6]");
    rig_expect_error(&r, deft_conv2d(x, w, DEFT_CONV2D(.stride = { 1, -2 })), DEFT_E_ARG,
                     "conv2d: columns have kernel 3, stride -2");
    rig_expect_error(
        &r, deft_conv2d(x, w, DEFT_CONV2D(.dilation = { 3, 1 })), DEFT_E_SHAPE,
        "conv2d: a window of 3 rows, dilation 3, does not fit into 5 with 0 of padding");
    rig_expect_error(&r, deft_conv2d(x, w, DEFT_CONV2D(.dilation = { INT64_MAX, 1 })), DEFT_E_SHAPE,
                     "does not fit");
    rig_expect_error(&r, deft_conv2d(x, w, &(const deft_conv2d_options){ 0 }), DEFT_E_ARG,
                     "_options is 0");
    rig_expect_error(&r,
                     deft_conv2d(deft_ones(r.cx, DEFT_SHAPE(1, 1, 300, 300), DEFT_F32),
                                 deft_ones(r.cx, DEFT_SHAPE(1, 1, 300, 300), DEFT_F32), NULL),
                     DEFT_E_LIMIT, "conv2d: a window of 300 by 300, at most 65536");
}

/* ---- pooling ---- */

Test(layers, of_equal_elements_the_first_is_the_greatest)
{
    deft_tensor *const x =
        rig_tensor(&r, DEFT_SHAPE(1, 1, 2, 4), (const float[]){ 1, 3, 5, 5, 3, 3, 0, 5 });
    deft_tensor *const y = deft_max_pool2d(x, DEFT_POOL2D(.kernel = { 2, 2 }));
    EXPECT(y, 3, 5);
    EXPECT(rig_grad_of_sum(deft_mul(y, 7.0), x), 0, 7, 7, 0, 0, 0, 0, 0);
}

Test(layers, a_window_with_a_nan_gives_nan_to_the_first_nan)
{
    deft_tensor *const x =
        rig_tensor(&r, DEFT_SHAPE(1, 1, 1, 5), (const float[]){ NAN, 9, NAN, 1, -INFINITY });
    const deft_pool2d_options o = { .size = sizeof o, .kernel = { 1, 3 }, .stride = { 1, 1 } };
    deft_tensor *const y = deft_max_pool2d(x, &o);
    EXPECT(y, NAN, NAN, NAN);
    EXPECT(rig_grad_of_sum(y, x), 1, 0, 2, 0, 0);
}

Test(layers, padding_is_below_everything_in_a_maximum_and_zero_in_a_mean)
{
    deft_tensor *const x =
        rig_tensor(&r, DEFT_SHAPE(1, 1, 2, 2), (const float[]){ -1, -2, -3, -4 });
    const deft_pool2d_options o = {
        .size = sizeof o, .kernel = { 2, 2 }, .stride = { 2, 2 }, .padding = { 1, 1 }
    };
    EXPECT(deft_max_pool2d(x, &o), -1, -2, -3, -4);
    EXPECT(deft_avg_pool2d(x, &o), -0.25f, -0.5f, -0.75f, -1);
}

Test(layers, windows_that_reach_over_the_end_are_left_out)
{
    deft_tensor *const x = rig_tensor(&r, DEFT_SHAPE(1, 1, 1, 5), (const float[]){ 1, 2, 3, 4, 5 });
    EXPECT(deft_avg_pool2d(x, DEFT_POOL2D(.kernel = { 1, 2 })), 1.5f, 3.5f);
    EXPECT(deft_max_pool2d(x, DEFT_POOL2D(.kernel = { 1, 3 }, .stride = { 1, 2 })), 3, 5);
}

Test(layers, mistakes_of_pools)
{
    deft_tensor *const x = deft_ones(r.cx, DEFT_SHAPE(1, 2, 5, 6), DEFT_F32);
    rig_expect_error(&r, deft_max_pool2d(x, NULL), DEFT_E_ARG, "max_pool2d: options are NULL");
    rig_expect_error(&r, deft_avg_pool2d(x, DEFT_POOL2D(.stride = { 1, 1 })), DEFT_E_ARG,
                     "avg_pool2d: rows have kernel 0");
    rig_expect_error(&r, deft_max_pool2d(x, DEFT_POOL2D(.kernel = { 3, 3 }, .padding = { 2, 0 })),
                     DEFT_E_ARG, "max_pool2d: padding 2 is more than half of kernel 3");
    rig_expect_error(&r, deft_max_pool2d(x, DEFT_POOL2D(.kernel = { 3, 7 })), DEFT_E_SHAPE,
                     "max_pool2d: a window of 7 columns, dilation 1, does not fit into 6");
    rig_expect_error(&r, deft_max_pool2d(deft_cast(x, DEFT_I32), DEFT_POOL2D(.kernel = { 2, 2 })),
                     DEFT_E_DTYPE, "max_pool2d: x is i32[1,2,5,6]; it takes floats");
    rig_expect_error(&r, deft_avg_pool2d(deft_flatten(x), DEFT_POOL2D(.kernel = { 2, 2 })),
                     DEFT_E_SHAPE, "avg_pool2d: x is f32[60]");
}

/* ---- captures ---- */

/* Pooled convolution, long attention, and the gradient of both. */
static deft_status network(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    deft_tensor *const y = deft_conv2d(in[0], in[1], DEFT_CONV2D(.padding = { 1, 1 }));
    deft_tensor *const pooled = deft_max_pool2d(y, DEFT_POOL2D(.kernel = { 2, 2 }));
    deft_tensor *const rows = deft_reshape(pooled, DEFT_SHAPE(200, -1));
    deft_tensor *const t = deft_attention(rows, rows, rows, DEFT_ATTENTION(.is_causal = true));
    out[0] = rig_grad_of_sum(deft_rms_norm(t, 1, NULL, 1e-3), in[1]);
    return out[0] ? DEFT_OK : DEFT_E_STATE;
}

Test(layers, layers_and_their_gradients_are_captured)
{
    float *const x = noise(800, 1), *const w = noise(36, 2);
    deft_tensor *const in[] = { rig_tensor(&r, DEFT_SHAPE(2, 1, 20, 20), x),
                                rig_tensor(&r, DEFT_SHAPE(4, 1, 3, 3), w) };
    deft_tensor *direct, *again;
    float want[36], got[36];
    OK(&r, network(r.cx, in, 2, &direct, 1, NULL));
    rig_read(&r, direct, want, 36);
    deft_capture *c = deft_capture_create(r.cx, network, NULL);
    for (int i = 0; i < 2; i++) {
        const deft_stats before = rig_stats(&r);
        OK(&r, deft_capture_call(c, in, 2, &again, 1));
        const uint64_t recorded = rig_stats(&r).ops_recorded - before.ops_recorded;
        cr_assert(i == 0 ? recorded > 0 : recorded == 0, "call %d: %d recorded", i, (int)recorded);
        rig_read(&r, again, got, 36);
        cr_assert(memcmp(got, want, sizeof want) == 0);
    }
    deft_capture_destroy(&c);
    free(x), free(w);
}

/* ---- rows ---- */

Test(layers, rms_norm_divides_by_the_root_of_the_mean_square)
{
    deft_tensor *const x =
        rig_tensor(&r, DEFT_SHAPE(2, 4), (const float[]){ 1, 1, 1, 1, 2, 4, 4, 8 });
    EXPECT(deft_rms_norm(x, 1, NULL, 3), 0.5f, 0.5f, 0.5f, 0.5f, 2 / sqrtf(28), 4 / sqrtf(28),
           4 / sqrtf(28), 8 / sqrtf(28));
    EXPECT(deft_rms_norm(deft_ones(r.cx, DEFT_SHAPE(1, 2), DEFT_F32), 2,
                         rig_tensor(&r, DEFT_SHAPE(2), (const float[]){ 3, 5 }), 0),
           3, 5);
    rig_expect_error(&r, deft_rms_norm(x, 3, NULL, 0), DEFT_E_RANGE, "rms_norm: over 3 of 2 axes");
    rig_expect_error(&r, deft_rms_norm(x, 0, NULL, 0), DEFT_E_RANGE, "rms_norm: over 0 of 2 axes");
}

Test(layers, embedding_takes_rows_and_gives_back_their_gradients)
{
    const int32_t at[] = { 2, 0, -1 };
    deft_tensor *const table =
        rig_tensor(&r, DEFT_SHAPE(3, 2), (const float[]){ 1, 2, 3, 4, 5, 6 });
    deft_tensor *const i = deft_from(r.cx, DEFT_SHAPE(3, 1), DEFT_I32, at, sizeof at);
    deft_tensor *const y = deft_embedding(table, i);
    cr_assert_eq(deft_rank(y), 3);
    EXPECT(y, 5, 6, 1, 2, 5, 6);
    EXPECT(rig_grad_of_sum(y, table), 1, 1, 0, 0, 2, 2);
    rig_expect_error(&r, deft_embedding(table, table), DEFT_E_SHAPE,
                     "embedding: the table is [3,2], indices are f32");
    rig_expect_error(&r, deft_embedding(deft_sum(table, DEFT_ALL_AXES, 0), i), DEFT_E_SHAPE,
                     "embedding: the table is []");
}

/* Calculated in f32 and rounded once. */
static void expect_rounded(deft_tensor *got, deft_tensor *wide, deft_dtype t)
{
    enum { MOST = 64 };
    float a[MOST], b[MOST];
    cr_assert(got && wide, "%s", deft_message(r.cx));
    cr_assert_eq(deft_dtype_of(got), t);
    const int64_t n = deft_numel(got);
    cr_assert_leq(n, MOST);
    rig_read(&r, got, a, n);
    rig_read(&r, deft_cast(wide, t), b, n);
    cr_assert_arr_eq(a, b, (size_t)n * sizeof *a);
}

Test(layers, halves_round_once)
{
    enum { T = DEFT_ATTENTION_BLOCK + 2, D = 4 };
    static float x[T * D];
    for (int i = 0; i < T * D; i++) x[i] = sinf((float)i);
    for (int i = 0; i < 2; i++) {
        const deft_dtype t = i ? DEFT_BF16 : DEFT_F16;
        deft_tensor *const all = deft_from(r.cx, DEFT_SHAPE(T, D), DEFT_F32, x, sizeof x);
        deft_tensor *const k = deft_cast(all, t), *const k32 = deft_cast(k, DEFT_F32);
        deft_tensor *const q = deft_slice(k, DEFT_R(0, 4)), *const q32 =
                                                                deft_slice(k32, DEFT_R(0, 4));
        expect_rounded(deft_attention(q, k, k, NULL), deft_attention(q32, k32, k32, NULL), t);
        expect_rounded(deft_attention(q, q, q, NULL), deft_attention(q32, q32, q32, NULL), t);
        deft_tensor *const image = deft_reshape(q, DEFT_SHAPE(1, 1, 4, 4));
        deft_tensor *const image32 = deft_cast(image, DEFT_F32);
        deft_tensor *const w = deft_slice(image, DEFT_FULL, DEFT_FULL, DEFT_R(0, 3), DEFT_R(0, 3));
        deft_tensor *const w32 = deft_cast(w, DEFT_F32);
        expect_rounded(deft_conv2d(image, w, NULL), deft_conv2d(image32, w32, NULL), t);
    }
}
