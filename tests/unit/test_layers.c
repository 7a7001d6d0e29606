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
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 2,
                                     .tier = DEFT_TIER_INTERPRET };
    rig_open(&r, &o, NULL);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(layers, .init = set_up, .fini = tear_down);

static deft_tensor *tensor(deft_shape s, const float *v)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < s.rank; i++) n *= s.dim[i];
    return deft_keep(deft_from(r.cx, s, DEFT_F32, v, (size_t)n * sizeof *v));
}

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

static void expect_error(deft_tensor *t, deft_status st, const char *part)
{
    cr_assert_null(t);
    cr_assert_eq(deft_error(r.cx), st, "%d: %s", (int)deft_error(r.cx), deft_message(r.cx));
    cr_assert(strstr(deft_message(r.cx), part), "\"%s\" lacks \"%s\"", deft_message(r.cx), part);
    deft_clear(r.cx);
}

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
                                          .bias = tensor(DEFT_SHAPE(c->out), bias) };
    deft_tensor *const y =
        deft_conv2d(tensor(DEFT_SHAPE(c->n, c->in, c->h, c->w), x),
                    tensor(DEFT_SHAPE(c->out, depth, c->kh, c->kw), w), &options);
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

/* Work space and results of a step must not grow with the square of the kernel beyond the windows
 * themselves and their gradient; launches: one for each place, and the rest. */
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
    cr_assert_leq(n, 9 + 6, "%d launches", (int)n);
}

Test(layers, mistakes_of_a_convolution)
{
    deft_tensor *const x = deft_ones(r.cx, DEFT_SHAPE(1, 4, 5, 6), DEFT_F32);
    deft_tensor *const w = deft_ones(r.cx, DEFT_SHAPE(6, 4, 3, 3), DEFT_F32);
    expect_error(deft_conv2d(deft_flatten(x), w, NULL), DEFT_E_SHAPE,
                 "conv2d: x is [120], w is [6,4,3,3]; it takes [N, in, H, W]");
    expect_error(deft_conv2d(x, w, DEFT_CONV2D(.groups = 2)), DEFT_E_SHAPE,
                 "conv2d: x is [1,4,5,6], w is [6,4,3,3]: 2 groups");
    expect_error(deft_conv2d(x, w, DEFT_CONV2D(.groups = -1)), DEFT_E_SHAPE, "-1 groups");
    expect_error(deft_conv2d(x, w, DEFT_CONV2D(.bias = deft_ones(r.cx, DEFT_SHAPE(4), DEFT_F32))),
                 DEFT_E_SHAPE, "conv2d: bias is [4], w is [6,4,3,3]; it must be [6]");
    expect_error(deft_conv2d(x, w, DEFT_CONV2D(.stride = { 1, -2 })), DEFT_E_ARG,
                 "conv2d: columns have kernel 3, stride -2");
    expect_error(deft_conv2d(x, w, DEFT_CONV2D(.dilation = { 3, 1 })), DEFT_E_SHAPE,
                 "conv2d: a window of 3 rows, dilation 3, does not fit into 5 with 0 of padding");
    expect_error(deft_conv2d(x, w, DEFT_CONV2D(.dilation = { INT64_MAX, 1 })), DEFT_E_SHAPE,
                 "does not fit");
    expect_error(deft_conv2d(x, w, &(const deft_conv2d_options){ 0 }), DEFT_E_ARG, "_options is 0");
    expect_error(deft_conv2d(deft_ones(r.cx, DEFT_SHAPE(1, 1, 300, 300), DEFT_F32),
                             deft_ones(r.cx, DEFT_SHAPE(1, 1, 300, 300), DEFT_F32), NULL),
                 DEFT_E_LIMIT, "conv2d: a window of 300 by 300, at most 65536");
}

/* ---- pooling ---- */

Test(layers, of_equal_elements_the_first_is_the_greatest)
{
    deft_tensor *const x =
        tensor(DEFT_SHAPE(1, 1, 2, 4), (const float[]){ 1, 3, 5, 5, 3, 3, 0, 5 });
    deft_tensor *const y = deft_max_pool2d(x, DEFT_POOL2D(.kernel = { 2, 2 }));
    EXPECT(y, 3, 5);
    EXPECT(rig_grad_of_sum(deft_mul(y, 7.0), x), 0, 7, 7, 0, 0, 0, 0, 0);
}

Test(layers, a_window_with_a_nan_gives_nan_to_the_first_nan)
{
    deft_tensor *const x =
        tensor(DEFT_SHAPE(1, 1, 1, 5), (const float[]){ NAN, 9, NAN, 1, -INFINITY });
    const deft_pool2d_options o = { .size = sizeof o, .kernel = { 1, 3 }, .stride = { 1, 1 } };
    deft_tensor *const y = deft_max_pool2d(x, &o);
    EXPECT(y, NAN, NAN, NAN);
    EXPECT(rig_grad_of_sum(y, x), 1, 0, 2, 0, 0);
}

Test(layers, padding_is_below_everything_in_a_maximum_and_zero_in_a_mean)
{
    deft_tensor *const x = tensor(DEFT_SHAPE(1, 1, 2, 2), (const float[]){ -1, -2, -3, -4 });
    const deft_pool2d_options o = {
        .size = sizeof o, .kernel = { 2, 2 }, .stride = { 2, 2 }, .padding = { 1, 1 }
    };
    EXPECT(deft_max_pool2d(x, &o), -1, -2, -3, -4);
    EXPECT(deft_avg_pool2d(x, &o), -0.25f, -0.5f, -0.75f, -1);
}

Test(layers, windows_that_reach_over_the_end_are_left_out)
{
    deft_tensor *const x = tensor(DEFT_SHAPE(1, 1, 1, 5), (const float[]){ 1, 2, 3, 4, 5 });
    EXPECT(deft_avg_pool2d(x, DEFT_POOL2D(.kernel = { 1, 2 })), 1.5f, 3.5f);
    EXPECT(deft_max_pool2d(x, DEFT_POOL2D(.kernel = { 1, 3 }, .stride = { 1, 2 })), 3, 5);
}

Test(layers, mistakes_of_pools)
{
    deft_tensor *const x = deft_ones(r.cx, DEFT_SHAPE(1, 2, 5, 6), DEFT_F32);
    expect_error(deft_max_pool2d(x, NULL), DEFT_E_ARG, "max_pool2d: options are NULL");
    expect_error(deft_avg_pool2d(x, DEFT_POOL2D(.stride = { 1, 1 })), DEFT_E_ARG,
                 "avg_pool2d: rows have kernel 0");
    expect_error(deft_max_pool2d(x, DEFT_POOL2D(.kernel = { 3, 3 }, .padding = { 2, 0 })),
                 DEFT_E_ARG, "max_pool2d: padding 2 is more than half of kernel 3");
    expect_error(deft_max_pool2d(x, DEFT_POOL2D(.kernel = { 3, 7 })), DEFT_E_SHAPE,
                 "max_pool2d: a window of 7 columns, dilation 1, does not fit into 6");
    expect_error(deft_max_pool2d(deft_cast(x, DEFT_I32), DEFT_POOL2D(.kernel = { 2, 2 })),
                 DEFT_E_DTYPE, "max_pool2d: x is i32[1,2,5,6]; it takes floats");
    expect_error(deft_avg_pool2d(deft_flatten(x), DEFT_POOL2D(.kernel = { 2, 2 })), DEFT_E_SHAPE,
                 "avg_pool2d: x is f32[60]");
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
    deft_tensor *const in[] = { tensor(DEFT_SHAPE(2, 1, 20, 20), x),
                                tensor(DEFT_SHAPE(4, 1, 3, 3), w) };
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
    deft_tensor *const x = tensor(DEFT_SHAPE(2, 4), (const float[]){ 1, 1, 1, 1, 2, 4, 4, 8 });
    EXPECT(deft_rms_norm(x, 1, NULL, 3), 0.5f, 0.5f, 0.5f, 0.5f, 2 / sqrtf(28), 4 / sqrtf(28),
           4 / sqrtf(28), 8 / sqrtf(28));
    EXPECT(deft_rms_norm(deft_ones(r.cx, DEFT_SHAPE(1, 2), DEFT_F32), 2,
                         tensor(DEFT_SHAPE(2), (const float[]){ 3, 5 }), 0),
           3, 5);
    expect_error(deft_rms_norm(x, 3, NULL, 0), DEFT_E_RANGE, "rms_norm: over 3 of 2 axes");
    expect_error(deft_rms_norm(x, 0, NULL, 0), DEFT_E_RANGE, "rms_norm: over 0 of 2 axes");
}

Test(layers, embedding_takes_rows_and_gives_back_their_gradients)
{
    const int32_t at[] = { 2, 0, -1 };
    deft_tensor *const table = tensor(DEFT_SHAPE(3, 2), (const float[]){ 1, 2, 3, 4, 5, 6 });
    deft_tensor *const i = deft_from(r.cx, DEFT_SHAPE(3, 1), DEFT_I32, at, sizeof at);
    deft_tensor *const y = deft_embedding(table, i);
    cr_assert_eq(deft_rank(y), 3);
    EXPECT(y, 5, 6, 1, 2, 5, 6);
    EXPECT(rig_grad_of_sum(y, table), 1, 1, 0, 0, 2, 2);
    expect_error(deft_embedding(table, table), DEFT_E_SHAPE,
                 "embedding: the table is [3,2], indices are f32");
    expect_error(deft_embedding(deft_sum(table, DEFT_ALL_AXES, 0), i), DEFT_E_SHAPE,
                 "embedding: the table is []");
}

/* ---- attention ---- */

typedef struct attention_case {
    int64_t batch, n_queries, n_keys, width, width_v;
    bool is_causal;
} attention_case;

static deft_tensor *drawn(uint64_t seed, deft_shape s)
{
    deft_rng rng = { seed, 0 };
    deft_tensor *const t = deft_keep(deft_normal(r.cx, &rng, s, DEFT_F64, 0, 1));
    OK(&r, deft_eval(&t, 1));
    return t;
}

/* Every score at once. */
static deft_tensor *all_scores(deft_tensor *const x[3], const attention_case *c)
{
    deft_tensor *s = deft_matmul(deft_mul(x[0], 1 / sqrt((double)c->width)), deft_t(x[1]));
    deft_tensor *const key = deft_iota(r.cx, DEFT_SHAPE(c->n_keys), 0);
    deft_tensor *const query = deft_iota(r.cx, DEFT_SHAPE(c->n_queries, 1), 0);
    if (c->is_causal) s = deft_where(deft_le(key, query), s, deft_num(r.cx, -INFINITY));
    return deft_matmul(deft_softmax(s, -1), x[2]);
}

/* The result, the gradients of its squares, and the gradients of the squares of those. */
static void derivatives(deft_tensor *y, deft_tensor *const x[3], deft_tensor *out[7])
{
    deft_tensor *const loss = deft_sum(deft_square(y), DEFT_ALL_AXES, 0);
    deft_tensor *more = NULL;
    out[0] = y;
    cr_assert(deft_grad(&loss, NULL, 1, x, 3, NULL, out + 1), "%s", deft_message(r.cx));
    for (int i = 1; i < 4; i++) {
        deft_tensor *const sum = deft_sum(deft_square(out[i]), DEFT_ALL_AXES, 0);
        more = more ? deft_add(more, sum) : sum;
    }
    cr_assert(deft_grad(&more, NULL, 1, x, 3, NULL, out + 4), "%s", deft_message(r.cx));
}

/* How far a and b are apart, over 1 + |b|. */
static double apart(deft_tensor *a, deft_tensor *b)
{
    deft_tensor *const d = deft_div(deft_abs(deft_sub(a, b)), deft_add(deft_abs(b), 1.0));
    double worst = INFINITY;
    OK(&r, deft_item(deft_max(d, DEFT_ALL_AXES, 0), &worst));
    return worst;
}

Test(layers, attention_is_that_of_all_scores_with_its_derivatives)
{
    static const attention_case cases[] = {
        { 1, 5, 128, 4, 3, true },   { 2, 7, 128, 4, 3, false },  { 2, 40, 129, 4, 3, false },
        { 1, 200, 256, 3, 5, true }, { 2, 300, 260, 2, 2, true }, { 1, 3, 400, 5, 1, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attention_case *const c = &cases[i];
        deft_tensor *const x[] = { drawn(1, DEFT_SHAPE(c->batch, c->n_queries, c->width)),
                                   drawn(2, DEFT_SHAPE(c->batch, c->n_keys, c->width)),
                                   drawn(3, DEFT_SHAPE(c->batch, c->n_keys, c->width_v)) };
        deft_tensor *got[7], *want[7];
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const y =
            deft_attention(x[0], x[1], x[2], DEFT_ATTENTION(.is_causal = c->is_causal));
        cr_assert(y, "%s", deft_message(r.cx));
        derivatives(y, x, got);
        derivatives(all_scores(x, c), x, want);
        for (int k = 0; k < 7; k++) {
            const double d = apart(got[k], want[k]);
            cr_assert(d < 1e-11, "case %zu, %d: %g", i, k, d);
        }
        OK(&r, deft_scope_end(s));
    }
}

Test(layers, attention_of_one_block_is_its_operations_bit_for_bit)
{
    const attention_case c = { 2, 9, DEFT_ATTENTION_BLOCK, 4, 4, true };
    deft_tensor *const x[] = { drawn(1, DEFT_SHAPE(2, 9, 4)), drawn(2, DEFT_SHAPE(2, c.n_keys, 4)),
                               drawn(3, DEFT_SHAPE(2, c.n_keys, 4)) };
    cr_assert_eq(apart(deft_attention(x[0], x[1], x[2], DEFT_ATTENTION(.is_causal = true)),
                       all_scores(x, &c)),
                 0);
}

/* Expects the first rows of `of_many` to have the bits of `of_few`. */
static void expect_first_rows(deft_tensor *of_few, deft_tensor *of_many, const char *what)
{
    enum { ROOM = 4096 };
    static float few[ROOM], many[ROOM];
    const size_t size = (size_t)deft_numel(of_few) * sizeof *few;
    cr_assert_leq(size, sizeof few);
    deft_tensor *const rows = deft_slice(of_many, DEFT_FULL, DEFT_R(0, deft_dim(of_few, -2)));
    OK(&r, deft_read(of_few, DEFT_F32, few, size));
    OK(&r, deft_read(rows, DEFT_F32, many, size));
    cr_assert(memcmp(few, many, size) == 0, "%s", what);
}

/* Up to 16 queries, all scores are stored; beyond, those of a block of keys. */
Test(layers, attention_of_few_queries_has_the_bits_of_many)
{
    static const int64_t n_keys[] = { 129, 256, 300, 1000 }, n_few[] = { 1, 3, 16 };
    enum { MANY = 17, WIDTH = 7, BATCH = 2 };
    for (int i = 0; i < 2 * 4 * 3; i++) {
        const int64_t t = n_keys[i / 2 % 4], few = n_few[i / 8];
        const deft_attention_options *const o = DEFT_ATTENTION(.is_causal = i % 2 != 0);
        char what[64];
        snprintf(what, sizeof what, "%d of %d queries, %d keys, causal %d", (int)few, MANY, (int)t,
                 o->is_causal);
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *x[3], *q[2], *y[2], *g[2];
        const deft_shape shape[] = { DEFT_SHAPE(BATCH, MANY, WIDTH), DEFT_SHAPE(BATCH, t, WIDTH),
                                     DEFT_SHAPE(BATCH, t, 5) };
        for (unsigned k = 0; k < 3; k++) {
            deft_rng rng = { k, 0 };
            x[k] = deft_normal(r.cx, &rng, shape[k], DEFT_F32, 0, 4);
        }
        q[0] = deft_slice(x[0], DEFT_FULL, DEFT_R(0, few)), q[1] = x[0];
        for (int k = 0; k < 2; k++) {
            y[k] = deft_attention(q[k], x[1], x[2], o);
            deft_tensor *const loss = deft_sum(deft_sin(y[k]), DEFT_ALL_AXES, 0);
            cr_assert(deft_grad(&loss, NULL, 1, &q[k], 1, NULL, &g[k]), "%s", deft_message(r.cx));
        }
        expect_first_rows(y[0], y[1], what);
        expect_first_rows(g[0], g[1], what);
        OK(&r, deft_scope_end(s));
    }
}

/* The sum of the first block becomes -0 when it is scaled, and that of the last block is -0 after
 * its last key. Padding adds 0 to the latter. */
Test(layers, attention_of_few_queries_has_the_zeros_of_many)
{
    enum { T = DEFT_ATTENTION_BLOCK + 2, MANY = 17 };
    float key[T], value[T] = { 0 };
    for (int i = 0; i < T; i++) key[i] = -200;
    key[0] = 0, value[0] = -1e-45f;
    key[T - 2] = 3, value[T - 2] = -0.0f;
    key[T - 1] = 0, value[T - 1] = -1e-45f;
    deft_tensor *const k = tensor(DEFT_SHAPE(1, T, 1), key);
    deft_tensor *const v = tensor(DEFT_SHAPE(1, T, 1), value);
    deft_tensor *const q = deft_full(r.cx, DEFT_SHAPE(1, MANY, 1), DEFT_F32, 1);
    deft_tensor *const one = deft_slice(q, DEFT_FULL, DEFT_R(0, 1));
    expect_first_rows(deft_attention(one, k, v, NULL), deft_attention(q, k, v, NULL), "zeros");
}

Test(layers, attention_of_few_queries_copies_neither_keys_nor_values)
{
    enum { HEADS = 4, KEYS = 1000, WIDTH = 64 };
    rig own;
    rig_open(&own, NULL, NULL);
    deft_tensor *x[3];
    for (int i = 0; i < 3; i++)
        x[i] = deft_keep(deft_zeros(own.cx, DEFT_SHAPE(HEADS, i == 0 ? 1 : KEYS, WIDTH), DEFT_F32));
    OK(&own, deft_eval(x, 3));
    const uint64_t before = rig_stats(&own).peak_bytes;
    deft_tensor *y = deft_attention(x[0], x[1], x[2], NULL);
    OK(&own, deft_eval(&y, 1));
    const uint64_t more = rig_stats(&own).peak_bytes - before;
    cr_assert_lt(more, HEADS * KEYS * WIDTH * sizeof(float), "%llu", (unsigned long long)more);
    rig_close(&own);
}

Test(layers, batch_axes_of_attention_broadcast)
{
    deft_tensor *const q = drawn(1, DEFT_SHAPE(2, 3, 5, 4)), *const k =
                                                                 drawn(2, DEFT_SHAPE(130, 4));
    deft_tensor *const v = drawn(3, DEFT_SHAPE(3, 130, 2));
    deft_tensor *const y = deft_attention(q, k, v, NULL);
    cr_assert_eq(deft_rank(y), 4);
    const deft_range part[] = { DEFT_AT(1), DEFT_AT(2) };
    deft_tensor *const one = deft_attention(
        deft_slice_n(q, 2, part), k, deft_slice_n(v, 1, part + 1), DEFT_ATTENTION(.scale = 0.5));
    cr_assert_eq(apart(deft_slice_n(y, 2, part), one), 0);
}

/* The gradients of a long attention, f32, on n threads, and the peak of memory. */
static uint64_t long_attention(uint32_t n_threads, int64_t n, float *out)
{
    rig own;
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = n_threads,
                                     .tier = DEFT_TIER_INTERPRET };
    rig_open(&own, &o, NULL);
    deft_rng rng = { 5, 0 };
    deft_tensor *g[3], *x[3];
    const deft_scope s = deft_step_begin(own.cx);
    for (int i = 0; i < 3; i++) x[i] = deft_normal(own.cx, &rng, DEFT_SHAPE(n, 4), DEFT_F32, 0, 1);
    deft_tensor *const y = deft_attention(x[0], x[1], x[2], DEFT_ATTENTION(.is_causal = true));
    deft_tensor *const loss = deft_sum(deft_square(y), DEFT_ALL_AXES, 0);
    cr_assert(deft_grad(&loss, NULL, 1, x, 3, NULL, g), "%s", deft_message(own.cx));
    deft_tensor *const all = deft_keep(deft_stack(g, 3, 0));
    OK(&own, deft_step_end(s));
    OK(&own, deft_read(all, DEFT_F32, out, (size_t)n * 12 * sizeof *out));
    const uint64_t peak = rig_stats(&own).peak_bytes;
    rig_close(&own);
    return peak;
}

Test(layers, attention_never_keeps_all_scores_and_has_the_same_bits_on_any_threads)
{
    const int64_t n = test_size(2048, 1024);
    const size_t bytes = (size_t)n * 12 * sizeof(float);
    float *const one = malloc(bytes), *const four = malloc(bytes);
    cr_assert(one && four);
    const uint64_t peak = long_attention(1, n, one);
    const uint64_t of_block = (uint64_t)n * DEFT_ATTENTION_BLOCK * 4; /* all scores are 8 or more */
    cr_assert_lt(peak, 6 * of_block, "%llu bytes", (unsigned long long)peak);
    long_attention(4, n, four);
    cr_assert(memcmp(one, four, bytes) == 0);
    free(one), free(four);
}

/* The plan of an attention of dtype t over n keys and the gradients of its squares, with heads as
 * networks have them: results are seen through views. */
static char *attention_plan(deft_numerics numerics, deft_dtype t, int64_t n,
                            const deft_attention_options *options)
{
    enum { ROOM = 1 << 20, BATCH = 2, HEADS = 3, WIDTH = 4 };
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    const deft_ctx_options c = { .size = sizeof c, .numerics = numerics };
    static const int32_t heads[] = { 0, 2, 1, 3 };
    const deft_axes order = { 4, { heads[0], heads[1], heads[2], heads[3] } };
    rig own;
    rig_open(&own, &o, &c);
    deft_rng rng = { 5, 0 };
    deft_tensor *x[3], *h[3], *g[3];
    char *const text = calloc(ROOM, 1);
    cr_assert(text);
    const deft_scope s = deft_step_begin(own.cx);
    for (int i = 0; i < 3; i++) {
        x[i] = deft_normal(own.cx, &rng, DEFT_SHAPE(BATCH, n, HEADS * WIDTH), t, 0, 1);
        h[i] = deft_permute(deft_reshape(x[i], DEFT_SHAPE(BATCH, n, HEADS, WIDTH)), order);
    }
    deft_tensor *const y = deft_attention(h[0], h[1], h[2], options);
    deft_tensor *const all = deft_reshape(deft_permute(y, order), DEFT_SHAPE(BATCH, n, 12));
    deft_tensor *const loss = deft_sum(deft_square(all), DEFT_ALL_AXES, 0);
    cr_assert(deft_grad(&loss, NULL, 1, x, 3, NULL, g), "%s", deft_message(own.cx));
    for (int i = 0; i < 3; i++) g[i] = deft_keep(g[i]);
    OK(&own, deft_step_end(s));
    cr_assert_lt(deft_show(own.cx, "trace", text, ROOM), ROOM);
    strcat(text, "--- plan\n");
    const size_t n_trace = strlen(text);
    cr_assert_lt(deft_show(own.cx, "plan", text + n_trace, ROOM - n_trace), ROOM - n_trace);
    rig_close(&own);
    return text;
}

Test(layers, fast_plans_know_loops_that_are_attention)
{
    char *text = attention_plan(DEFT_FAST, DEFT_F16, 256, DEFT_ATTENTION(.is_causal = true));
    cr_assert(strstr(text, "most=2 attention from=f16 causal scaled\n"), "%s", text);
    cr_assert(strstr(text, "most=2 attention_grad from=f16 causal scaled\n"), "%s", text);
    cr_assert(strstr(text, " which is causal attention of f16 scaled, "), "%s", text);
    cr_assert(strstr(text, " which is causal attention_grad of f16 scaled, "), "%s", text);
    free(text);
    text = attention_plan(DEFT_FAST, DEFT_F32, 384, DEFT_ATTENTION(.scale = 1));
    cr_assert(strstr(text, "most=3 attention from=f32\n"), "%s", text);
    cr_assert(strstr(text, " which is attention of f32, "), "%s", text);
    cr_assert(strstr(text, " which is attention_grad of f32, "), "%s", text);
    free(text);
    /* Strict traces turn; of padded keys nothing is said; f64 has no code. */
    text = attention_plan(DEFT_STRICT, DEFT_F32, 256, NULL);
    cr_assert(strstr(text, "most=2 attention from=f32 scaled\n"), "%s", text);
    cr_assert_not(strstr(text, " which is "), "%s", text);
    free(text);
    text = attention_plan(DEFT_FAST, DEFT_F32, 300, NULL);
    cr_assert_not(strstr(text, " attention"), "%s", text);
    cr_assert_not(strstr(text, " which is "), "%s", text);
    free(text);
    text = attention_plan(DEFT_FAST, DEFT_F64, 256, NULL);
    cr_assert_not(strstr(text, " which is "), "%s", text);
    free(text);
}

static deft_status attend_each(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_attention(in[0], in[1], in[2], NULL);
    return out[0] ? DEFT_OK : DEFT_E_STATE;
}

/* The plan of attention for each of many examples; q and k, v: 0, or DEFT_NOT_MAPPED. */
static char *plan_for_examples(int qk, int v)
{
    enum { ROOM = 1 << 20, N = 3 };
    const deft_ctx_options c = { .size = sizeof c, .numerics = DEFT_FAST };
    const int axes[] = { qk, qk, v };
    rig own;
    rig_open(&own, NULL, &c);
    deft_rng rng = { 5, 0 };
    deft_tensor *x[3], *y;
    char *const text = calloc(ROOM, 1);
    cr_assert(text);
    const deft_scope s = deft_step_begin(own.cx);
    for (int i = 0; i < 3; i++)
        x[i] = deft_normal(own.cx, &rng, axes[i] == 0 ? DEFT_SHAPE(N, 256, 4) : DEFT_SHAPE(256, 4),
                           DEFT_F32, 0, 1);
    cr_assert(deft_vmap(own.cx, attend_each, NULL, x, axes, 3, &y, NULL, 1), "%s",
              deft_message(own.cx));
    (void)deft_keep(y);
    OK(&own, deft_step_end(s));
    cr_assert_lt(deft_show(own.cx, "plan", text, ROOM), ROOM);
    rig_close(&own);
    return text;
}

/* Where only values are of examples, products are over different batches. */
Test(layers, attention_of_examples_is_known_where_products_have_one_batch)
{
    char *text = plan_for_examples(0, 0);
    cr_assert(strstr(text, " which is attention of f32 scaled, "), "%s", text);
    free(text);
    text = plan_for_examples(DEFT_NOT_MAPPED, 0);
    cr_assert(strstr(text, " loop most "), "%s", text);
    cr_assert_not(strstr(text, " which is "), "%s", text);
    free(text);
}

Test(layers, what_attention_records_belongs_to_the_line_of_the_call)
{
    char text[16384];
    deft_tensor *const q = drawn(1, DEFT_SHAPE(3, 2)), *const k = drawn(2, DEFT_SHAPE(300, 2));
    deft_tensor *const y = deft_attention(q, k, k, NULL);
    deft_tensor *g;
    cr_assert(deft_grad(&y, &y, 1, &q, 1, NULL, &g), "%s", deft_message(r.cx));
    OK(&r, deft_eval(&g, 1));
    cr_assert_lt(deft_show(r.cx, "sites", text, sizeof text), sizeof text);
    const char *site = NULL;
    size_t length = 0;
    int n = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        const char *const at = strstr(line, " # ");
        if (!at || strstr(line, " = input ")) continue;
        if (!site) site = at, length = strlen(at);
        cr_assert(strlen(at) == length && !memcmp(site, at, length), "%s; before: %s", line, site);
        n++;
    }
    cr_assert_gt(n, 20);
}

Test(layers, mistakes_of_attention)
{
    deft_tensor *const q = deft_ones(r.cx, DEFT_SHAPE(2, 3, 4), DEFT_F32);
    deft_tensor *const k = deft_ones(r.cx, DEFT_SHAPE(2, 5, 4), DEFT_F32);
    expect_error(deft_attention(q, deft_t(k), k, NULL), DEFT_E_SHAPE,
                 "attention: q is [2,3,4], k is [2,4,5], v is [2,5,4]; it takes");
    expect_error(deft_attention(q, k, deft_ones(r.cx, DEFT_SHAPE(3, 5, 4), DEFT_F32), NULL),
                 DEFT_E_SHAPE, "v is [3,5,4]");
    deft_tensor *const none = deft_ones(r.cx, DEFT_SHAPE(2, 0, 4), DEFT_F32);
    expect_error(deft_attention(q, none, none, NULL), DEFT_E_SHAPE, "T at least 1");
    expect_error(deft_attention(q, k, deft_cast(k, DEFT_F64), NULL), DEFT_E_DTYPE,
                 "attention: q is f32, k is f32, v is f64; it takes floats of one dtype");
    expect_error(deft_attention(q, k, k, &(const deft_attention_options){ 0 }), DEFT_E_ARG,
                 "_options is 0");
}

/* ---- halves ---- */

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
