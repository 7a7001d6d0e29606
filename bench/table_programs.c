/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the table of peers: steps of whole networks, simulations, and tiny operations.
 */
#include "table.h"

/* ---- whole networks ---- */

/* SGD: the first n inputs are parameters and states. */
static void descend(const table_call *c, deft_tensor *loss, int n)
{
    deft_tensor *g[TABLE_IN];
    if (!deft_grad(&loss, NULL, 1, c->in, (size_t)n, NULL, g)) return;
    for (int i = 0; i < n; i++)
        deft_assign(c->in[i], deft_sub(c->in[i], deft_mul(g[i], table_num(c, 0.01))));
}

static deft_tensor *linear(deft_tensor *x, deft_tensor *w, deft_tensor *bias)
{
    return deft_add(deft_matmul(x, deft_t(w)), bias);
}

static deft_tensor *mlp_of(const table_call *c, deft_tensor *x)
{
    deft_tensor *const h = deft_relu(linear(x, c->in[0], c->in[1]));
    return linear(deft_relu(linear(h, c->in[2], c->in[3])), c->in[4], c->in[5]);
}

static void mlp_step(const table_call *c)
{
    descend(c, deft_cross_entropy(mlp_of(c, c->in[6]), c->in[7]), 6);
}

static void mlp(const table_call *c)
{
    c->out[0] = mlp_of(c, c->in[6]);
}

/* Two convolutions with relu and a pool of 2x2, then a layer of all that is left. */
static void cnn_step(const table_call *c)
{
    deft_tensor *x = c->in[6];
    for (int i = 0; i < 2; i++) {
        x = deft_conv2d(x, c->in[2 * i],
                        DEFT_CONV2D(.padding = { 1, 1 }, .bias = c->in[2 * i + 1]));
        x = deft_max_pool2d(deft_relu(x), DEFT_POOL2D(.kernel = { 2, 2 }));
    }
    deft_tensor *const flat = deft_reshape(x, DEFT_SHAPE(c->n[0], -1));
    descend(c, deft_cross_entropy(linear(flat, c->in[4], c->in[5]), c->in[7]), 6);
}

/* A transformer block without biases: x [batch, time, width], n = batch, time, width, 3 width, 4
 * width, heads. */
static deft_tensor *block_of(const table_call *c)
{
    const int64_t batch = c->n[0], time = c->n[1], width = c->n[2], heads = c->n[5];
    deft_tensor *x = c->in[0], *part[3];
    deft_tensor *const normed = deft_layer_norm(x, 1, NULL, NULL, 1e-5);
    deft_tensor *const qkv = deft_matmul(normed, deft_t(c->in[1]));
    for (int i = 0; i < 3; i++) {
        const deft_range columns = DEFT_R(i * width, (i + 1) * width);
        deft_tensor *const one = deft_slice(qkv, DEFT_FULL, DEFT_FULL, columns);
        part[i] =
            deft_transpose(deft_reshape(one, DEFT_SHAPE(batch, time, heads, width / heads)), 1, 2);
    }
    deft_tensor *const y =
        deft_attention(part[0], part[1], part[2], DEFT_ATTENTION(.is_causal = true));
    deft_tensor *const joined =
        deft_reshape(deft_transpose(y, 1, 2), DEFT_SHAPE(batch, time, width));
    x = deft_add(x, deft_matmul(joined, deft_t(c->in[2])));
    deft_tensor *const after = deft_layer_norm(x, 1, NULL, NULL, 1e-5);
    deft_tensor *const up = deft_gelu(deft_matmul(after, deft_t(c->in[3])));
    return deft_add(x, deft_matmul(up, deft_t(c->in[4])));
}

static void block(const table_call *c)
{
    c->out[0] = block_of(c);
}

static void block_train(const table_call *c)
{
    deft_tensor *const loss = deft_sum(deft_mul(block_of(c), c->in[5]), DEFT_ALL_AXES, 0);
    c->out[0] = loss;
    deft_grad(&loss, NULL, 1, c->in, 5, NULL, c->out + 1);
}

/* ---- simulations ---- */

/* in: x, y, z and their speeds, which are states, and masses. */
static void n_body(const table_call *c)
{
    deft_tensor *d[3], *r2 = NULL;
    for (int k = 0; k < 3; k++) { /* d[k][i][j]: from body i to body j */
        d[k] = deft_sub(deft_unsqueeze(c->in[k], 0), deft_unsqueeze(c->in[k], 1));
        r2 = k ? deft_add(r2, deft_square(d[k])) : deft_square(d[k]);
    }
    deft_tensor *const inv = deft_rsqrt(deft_add(r2, table_num(c, 0.01)));
    deft_tensor *const w = deft_mul(c->in[6], deft_mul(deft_mul(inv, inv), inv));
    for (int k = 0; k < 3; k++) {
        deft_tensor *const a = deft_sum(deft_mul(d[k], w), DEFT_AXES(1), 0);
        deft_assign(c->in[3 + k], deft_add(c->in[3 + k], deft_mul(a, table_num(c, 1e-6))));
        deft_assign(c->in[k], deft_add(c->in[k], deft_mul(c->in[3 + k], table_num(c, 1e-6))));
    }
}

enum { ITERATIONS = 50 };

/* How many of the iterations each point of the plane stays near 0. */
static void mandelbrot(const table_call *c)
{
    const deft_shape shape = DEFT_SHAPE(c->n[0], c->n[1]);
    deft_tensor *const re = deft_sub(deft_mul(c->in[1], table_num(c, 2.5)), table_num(c, 2));
    deft_tensor *const im =
        deft_unsqueeze(deft_sub(deft_mul(c->in[0], table_num(c, 2)), table_num(c, 1.2)), 1);
    deft_tensor *x = deft_zeros(c->cx, shape, DEFT_F32), *y = deft_zeros(c->cx, shape, DEFT_F32);
    deft_tensor *n = deft_zeros(c->cx, shape, DEFT_I32);
    for (int i = 0; i < ITERATIONS; i++) {
        deft_tensor *const xx = deft_square(x), *const yy = deft_square(y);
        deft_tensor *const near = deft_le(deft_add(xx, yy), table_num(c, 4));
        deft_tensor *const xy = deft_mul(deft_mul(x, y), table_num(c, 2));
        n = deft_add(n, deft_cast(near, DEFT_I32));
        x = deft_where(near, deft_add(deft_sub(xx, yy), re), x);
        y = deft_where(near, deft_add(xy, im), y);
    }
    c->out[0] = n;
}

static deft_tensor *normal_below(const table_call *c, deft_tensor *x)
{
    deft_tensor *const e = deft_erf(deft_mul(x, table_num(c, 0.70710678)));
    return deft_mul(deft_add(e, table_num(c, 1)), table_num(c, 0.5));
}

/* Calls and puts of Black and Scholes (1973): prices, strikes, times. */
static void black_scholes(const table_call *c)
{
    deft_tensor *const s = c->in[0], *const k = c->in[1], *const t = c->in[2];
    deft_tensor *const w = deft_mul(deft_sqrt(t), table_num(c, 0.3));
    deft_tensor *const drift = deft_mul(t, table_num(c, 0.065));
    deft_tensor *const d1 = deft_div(deft_add(deft_log(deft_div(s, k)), drift), w);
    deft_tensor *const n1 = normal_below(c, d1), *const n2 = normal_below(c, deft_sub(d1, w));
    deft_tensor *const discounted = deft_mul(k, deft_exp(deft_mul(t, table_num(c, -0.02))));
    c->out[0] = deft_sub(deft_mul(s, n1), deft_mul(discounted, n2));
    c->out[1] = deft_sub(deft_add(c->out[0], discounted), s);
}

/* ---- tiny operations ---- */

enum { PAIRS = 500 };

/* A thousand operations, with numbers as a program writes them that records them again. */
static void tiny_again(const table_call *c)
{
    deft_tensor *x = c->in[0];
    for (int i = 0; i < PAIRS; i++) x = deft_add(deft_mul(x, 0.99), 0.01);
    c->out[0] = x;
}

static void tiny_captured(const table_call *c)
{
    deft_tensor *x = c->in[0];
    for (int i = 0; i < PAIRS; i++)
        x = deft_add(deft_mul(x, table_num(c, 0.99)), table_num(c, 0.01));
    c->out[0] = x;
}

#define MLP_STATES "f32 cb *b!; f32 c!; f32 cc *c!; f32 c!; f32 dc *c!; f32 d!"
#define MLP_INPUTS "f32 cb *b; f32 c; f32 cc *c; f32 c; f32 dc *c; f32 d; f32 ab"
#define CNN_INPUTS                                                                                 \
    "f32 b133 !; f32 b!; f32 cb33 *b!; f32 c!; f32 ed *d!; f32 e!; f32 a1ff; i32 a <e"
#define BLOCK_INPUTS "f32 abc; f32 dc *c; f32 cc *c; f32 ec *c; f32 ce *e"
#define BLOCK                                                                                      \
    {                                                                                              \
        { 2, 128, 256, 768, 1024, 4 }, { 4, 64, 384, 1152, 1536, 6 },                              \
        {                                                                                          \
            1, 256, 256, 768, 1024, 8                                                              \
        }                                                                                          \
    }

const table_row table_programs[] = {
    { "networks/mlp_step",
      MLP_STATES "; f32 ab; i32 a <d",
      0,
      1e-4,
      0,
      mlp_step,
      { { 64, 784, 512, 10 }, { 32, 512, 256, 20 }, { 128, 256, 512, 10 } } },
    { "networks/mlp_inference",
      MLP_INPUTS,
      1,
      1e-4,
      0,
      mlp,
      { { 64, 784, 512, 10 }, { 32, 512, 256, 20 }, { 128, 256, 512, 10 } } },
    { "networks/mlp_batch_1",
      MLP_INPUTS,
      1,
      1e-4,
      0,
      mlp,
      { { 1, 784, 512, 10 }, { 1, 512, 256, 20 }, { 1, 256, 512, 10 } } },
    { "networks/cnn_step",
      CNN_INPUTS,
      0,
      1e-3,
      0,
      cnn_step,
      { { 64, 16, 32, 1568, 10, 28 }, { 32, 16, 32, 2048, 10, 32 }, { 100, 8, 16, 400, 10, 20 } } },
    { "networks/transformer_block", BLOCK_INPUTS, 1, 1e-4, 0, block, BLOCK },
    { "networks/transformer_block_train", BLOCK_INPUTS "; f32 abc", 6, 1e-3, 0, block_train,
      BLOCK },

    { "simulations/n_body",
      "f32 a!; f32 a!; f32 a!; f32 a!; f32 a!; f32 a!; f32 a +",
      0,
      1e-4,
      0,
      n_body,
      { { 1024 }, { 1000 }, { 1500 } } },
    { "simulations/mandelbrot",
      "f32 a +; f32 b +",
      1,
      0.05,
      TABLE_ON_AVERAGE,
      mandelbrot,
      { { 400, 600 }, { 512, 512 }, { 300, 900 } } },
    { "simulations/black_scholes",
      "f32 a +; f32 a +; f32 a +",
      2,
      1e-5,
      0,
      black_scholes,
      { { 1 << 20 }, { 900000 }, { 1300000 } } },

    { "tiny/recorded_again", "f32 a", 1, 1e-4, TABLE_AGAIN, tiny_again, { { 8 }, { 7 }, { 10 } } },
    { "tiny/captured", "f32 a", 1, 1e-4, 0, tiny_captured, { { 8 }, { 7 }, { 10 } } },
    { 0 },
};
