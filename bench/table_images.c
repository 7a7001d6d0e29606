/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the table of peers: convolutions, pools, stencils, and simulations on grids.
 */
#include "table.h"

/* ---- networks of images ---- */

static deft_tensor *conv3x3_of(deft_tensor *x, deft_tensor *w)
{
    return deft_conv2d(x, w, DEFT_CONV2D(.padding = { 1, 1 }));
}

static void conv3x3(const table_call *c)
{
    c->out[0] = conv3x3_of(c->in[0], c->in[1]);
}

static void conv1x1(const table_call *c)
{
    c->out[0] = deft_conv2d(c->in[0], c->in[1], NULL);
}

static void depthwise(const table_call *c)
{
    c->out[0] =
        deft_conv2d(c->in[0], c->in[1], DEFT_CONV2D(.padding = { 1, 1 }, .groups = c->n[1]));
}

static void max_pool(const table_call *c)
{
    c->out[0] = deft_max_pool2d(
        c->in[0], DEFT_POOL2D(.kernel = { 3, 3 }, .stride = { 2, 2 }, .padding = { 1, 1 }));
}

static void avg_pool(const table_call *c)
{
    c->out[0] = deft_avg_pool2d(c->in[0], DEFT_POOL2D(.kernel = { 2, 2 }));
}

/* x scale + shift for each channel: a batch norm after training. */
static deft_tensor *affine(const table_call *c, deft_tensor *x, int scale)
{
    const deft_shape s = DEFT_SHAPE(c->n[1], 1, 1);
    return deft_add(deft_mul(x, deft_reshape(c->in[scale], s)), deft_reshape(c->in[scale + 1], s));
}

static deft_tensor *block_of(const table_call *c)
{
    deft_tensor *const x = c->in[0];
    deft_tensor *const h = deft_relu(affine(c, conv3x3_of(x, c->in[1]), 2));
    return deft_relu(deft_add(affine(c, conv3x3_of(h, c->in[4]), 5), x));
}

static void block(const table_call *c)
{
    c->out[0] = block_of(c);
}

/* The loss, and gradients with respect to the first n inputs. */
static void loss_and_grads(const table_call *c, deft_tensor *y, deft_tensor *g, int n)
{
    deft_tensor *const loss = deft_sum(deft_mul(y, g), DEFT_ALL_AXES, 0);
    c->out[0] = loss;
    deft_grad(&loss, NULL, 1, c->in, (size_t)n, NULL, c->out + 1);
}

static void block_train(const table_call *c)
{
    loss_and_grads(c, block_of(c), c->in[7], 7);
}

static void conv3x3_train(const table_call *c)
{
    loss_and_grads(c, conv3x3_of(c->in[0], c->in[1]), c->in[2], 2);
}

static void max_pool_train(const table_call *c)
{
    deft_tensor *const y = deft_max_pool2d(c->in[0], DEFT_POOL2D(.kernel = { 2, 2 }));
    loss_and_grads(c, y, c->in[1], 1);
}

/* ---- stencils ---- */

/* The part of a grid that is (i, j) beside its interior. */
static deft_tensor *beside2(deft_tensor *u, int i, int j)
{
    const int64_t rows = deft_dim(u, 0), columns = deft_dim(u, 1);
    return deft_slice(u, DEFT_R(1 + i, rows - 1 + i), DEFT_R(1 + j, columns - 1 + j));
}

static deft_tensor *beside3(deft_tensor *u, int i, int j, int k)
{
    const int64_t a = deft_dim(u, 0), b = deft_dim(u, 1), e = deft_dim(u, 2);
    return deft_slice(u, DEFT_R(1 + i, a - 1 + i), DEFT_R(1 + j, b - 1 + j),
                      DEFT_R(1 + k, e - 1 + k));
}

/* 1 2 1, 2 4 2, 1 2 1, divided by 16 */
static void blur2(const table_call *c)
{
    deft_tensor *sum = NULL;
    for (int i = -1; i <= 1; i++)
        for (int j = -1; j <= 1; j++) {
            const double weight = (i ? 1 : 2) * (j ? 1 : 2) / 16.;
            deft_tensor *const term = deft_mul(beside2(c->in[0], i, j), table_num(c, weight));
            sum = sum ? deft_add(sum, term) : term;
        }
    c->out[0] = sum;
}

static deft_tensor *neighbours3(deft_tensor *u)
{
    deft_tensor *const x = deft_add(beside3(u, -1, 0, 0), beside3(u, 1, 0, 0));
    deft_tensor *const y = deft_add(beside3(u, 0, -1, 0), beside3(u, 0, 1, 0));
    return deft_add(deft_add(x, y), deft_add(beside3(u, 0, 0, -1), beside3(u, 0, 0, 1)));
}

static void blur3(const table_call *c)
{
    deft_tensor *const centre = deft_mul(beside3(c->in[0], 0, 0, 0), table_num(c, 0.4));
    c->out[0] = deft_add(centre, deft_mul(neighbours3(c->in[0]), table_num(c, 0.1)));
}

/* ---- simulations ---- */

enum { HEAT_STEPS = 10 };

static void heat(const table_call *c)
{
    deft_tensor *const u = c->in[0];
    for (int i = 0; i < HEAT_STEPS; i++) {
        deft_tensor *const rows = deft_add(beside2(u, -1, 0), beside2(u, 1, 0));
        deft_tensor *const columns = deft_add(beside2(u, 0, -1), beside2(u, 0, 1));
        deft_tensor *const four = deft_mul(beside2(u, 0, 0), table_num(c, 4));
        deft_tensor *const change = deft_sub(deft_add(rows, columns), four);
        deft_tensor *const next = deft_add(beside2(u, 0, 0), deft_mul(change, table_num(c, 0.1)));
        deft_assign(beside2(u, 0, 0), next);
    }
}

/* u'' = 0.1 laplace(u); the edge stays as it is. */
static void wave(const table_call *c)
{
    deft_tensor *const u = c->in[0], *const before = c->in[1];
    deft_tensor *const six = deft_mul(beside3(u, 0, 0, 0), table_num(c, 6));
    deft_tensor *const laplace = deft_sub(neighbours3(u), six);
    deft_tensor *const twice = deft_mul(beside3(u, 0, 0, 0), table_num(c, 2));
    deft_tensor *const next =
        deft_add(deft_sub(twice, beside3(before, 0, 0, 0)), deft_mul(laplace, table_num(c, 0.1)));
    deft_assign(before, u);
    deft_assign(beside3(u, 0, 0, 0), next);
}

#define IMAGES                                                                                     \
    {                                                                                              \
        { 8, 64, 56, 64 }, { 16, 32, 64, 48 },                                                     \
        {                                                                                          \
            4, 128, 28, 128                                                                        \
        }                                                                                          \
    }
#define POOLED                                                                                     \
    {                                                                                              \
        { 8, 64, 56 }, { 16, 32, 64 },                                                             \
        {                                                                                          \
            4, 128, 60                                                                             \
        }                                                                                          \
    }
#define HALVED                                                                                     \
    {                                                                                              \
        { 8, 64, 56, 28 }, { 16, 32, 64, 32 },                                                     \
        {                                                                                          \
            4, 128, 60, 30                                                                         \
        }                                                                                          \
    }
#define BLOCK                                                                                      \
    {                                                                                              \
        { 4, 64, 56 }, { 8, 64, 28 },                                                              \
        {                                                                                          \
            2, 128, 28                                                                             \
        }                                                                                          \
    }
#define GRID                                                                                       \
    {                                                                                              \
        { 1024, 1024 }, { 900, 1300 },                                                             \
        {                                                                                          \
            1500, 800                                                                              \
        }                                                                                          \
    }
#define CUBE                                                                                       \
    {                                                                                              \
        { 128, 128, 128 }, { 100, 130, 160 },                                                      \
        {                                                                                          \
            90, 150, 150                                                                           \
        }                                                                                          \
    }
#define BLOCK_INPUTS "f32 abcc; f32 bb33 *b; f32 b +; f32 b; f32 bb33 *b; f32 b +; f32 b"

const table_row table_images[] = {
    { "images/conv3x3", "f32 abcc; f32 db33 *b", 1, 1e-5, 0, conv3x3, IMAGES },
    { "images/conv3x3_train", "f32 abcc; f32 db33 *b; f32 adcc", 3, 1e-3, 0, conv3x3_train,
      IMAGES },
    { "images/conv1x1", "f32 abcc; f32 db11 *b", 1, 1e-5, 0, conv1x1, IMAGES },
    { "images/depthwise", "f32 abcc; f32 b133", 1, 1e-5, 0, depthwise, POOLED },
    { "images/max_pool", "f32 abcc", 1, 2e-5, 0, max_pool, POOLED },
    { "images/max_pool_train", "f32 abcc; f32 abdd", 2, 1e-3, 0, max_pool_train, HALVED },
    { "images/avg_pool", "f32 abcc", 1, 2e-5, 0, avg_pool, POOLED },
    { "images/resnet_block", BLOCK_INPUTS, 1, 1e-5, 0, block, BLOCK },
    { "images/resnet_block_train", BLOCK_INPUTS "; f32 abcc", 8, 5e-3, TABLE_ON_AVERAGE,
      block_train, BLOCK },
    { "images/blur_2d", "f32 ab", 1, 1e-5, 0, blur2, GRID },
    { "images/blur_3d", "f32 abc", 1, 1e-5, 0, blur3, CUBE },
    { "simulations/heat", "f32 ab !", 0, 1e-5, 0, heat, GRID },
    { "simulations/wave_3d", "f32 abc !; f32 abc !", 0, 1e-5, 0, wave, CUBE },
    { 0 },
};
