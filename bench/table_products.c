/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the table of peers: matrix products, thin ones above all, and layers, forward alone and
 * with their gradients. A row with gradients has a loss, the sum of the products of the layer's
 * output with a given gradient, so that nothing is simpler than in the middle of a network.
 */
#include "table.h"

/* ---- products ---- */

static void product(const table_call *c)
{
    c->out[0] = deft_matmul(c->in[0], c->in[1]);
}

static void product_bt(const table_call *c)
{
    c->out[0] = deft_matmul(c->in[0], deft_t(c->in[1]));
}

static void product_at(const table_call *c)
{
    c->out[0] = deft_matmul(deft_t(c->in[0]), c->in[1]);
}

/* ---- layers ---- */

/* The loss and its gradients with respect to the first n inputs. */
static void loss_and_grads(const table_call *c, deft_tensor *loss, int n)
{
    c->out[0] = loss;
    deft_grad(&loss, NULL, 1, c->in, (size_t)n, NULL, c->out + 1);
}

static void loss_beside(const table_call *c, deft_tensor *y, deft_tensor *g, int n)
{
    loss_and_grads(c, deft_sum(deft_mul(y, g), DEFT_ALL_AXES, 0), n);
}

static deft_tensor *linear(deft_tensor *x, deft_tensor *w, deft_tensor *bias)
{
    return deft_add(deft_matmul(x, deft_t(w)), bias);
}

static void linear_gelu(const table_call *c)
{
    c->out[0] = deft_gelu(linear(c->in[0], c->in[1], c->in[2]));
}

static void linear_gelu_train(const table_call *c)
{
    loss_beside(c, deft_gelu(linear(c->in[0], c->in[1], c->in[2])), c->in[3], 3);
}

static deft_tensor *layer_norm_of(const table_call *c)
{
    return deft_layer_norm(c->in[0], 1, c->in[1], c->in[2], 1e-5);
}

static void layer_norm(const table_call *c)
{
    c->out[0] = layer_norm_of(c);
}

static void layer_norm_train(const table_call *c)
{
    loss_beside(c, layer_norm_of(c), c->in[3], 3);
}

/* Over the images and the pixels of each channel, by the statistics of the batch. */
static deft_tensor *batch_norm_of(const table_call *c)
{
    const deft_axes axes = DEFT_AXES(0, 2, 3);
    const deft_shape of_channels = DEFT_SHAPE(c->n[1], 1, 1);
    deft_tensor *const x = c->in[0];
    deft_tensor *const centred = deft_sub(x, deft_mean(x, axes, 1));
    deft_tensor *const var = deft_mean(deft_square(centred), axes, 1);
    deft_tensor *const unit = deft_mul(centred, deft_rsqrt(deft_add(var, table_num(c, 1e-5))));
    return deft_add(deft_mul(unit, deft_reshape(c->in[1], of_channels)),
                    deft_reshape(c->in[2], of_channels));
}

static void batch_norm(const table_call *c)
{
    c->out[0] = batch_norm_of(c);
}

static void batch_norm_train(const table_call *c)
{
    loss_beside(c, batch_norm_of(c), c->in[3], 3);
}

static void softmax_train(const table_call *c)
{
    loss_beside(c, deft_softmax(c->in[0], 1), c->in[1], 1);
}

static void cross_entropy_train(const table_call *c)
{
    loss_and_grads(c, deft_cross_entropy(c->in[0], c->in[1]), 1);
}

static void embedding_train(const table_call *c)
{
    loss_beside(c, deft_embedding(c->in[0], c->in[1]), c->in[2], 1);
}

static void rms_norm(const table_call *c)
{
    c->out[0] = deft_rms_norm(c->in[0], 1, c->in[1], 1e-6);
}

#define THIN(rows)                                                                                 \
    {                                                                                              \
        { rows, 1024, 4096 }, { rows, 768, 3072 },                                                 \
        {                                                                                          \
            rows, 2048, 2000                                                                       \
        }                                                                                          \
    }
#define THIN_ROWS(rows, flags)                                                                     \
    { "products/thin_" #rows, "f32 ab; f32 bc *b", 1, 1e-5, flags, product, THIN(rows) },          \
    {                                                                                              \
        "products/thin_" #rows "_bt", "f32 ab; f32 cb *b", 1, 1e-5, flags, product_bt, THIN(rows)  \
    }
#define LINEAR                                                                                     \
    {                                                                                              \
        { 256, 512, 2048 }, { 200, 768, 1500 },                                                    \
        {                                                                                          \
            512, 300, 1200                                                                         \
        }                                                                                          \
    }
#define NORM                                                                                       \
    {                                                                                              \
        { 2048, 768 }, { 2000, 1000 },                                                             \
        {                                                                                          \
            4096, 512                                                                              \
        }                                                                                          \
    }
#define BATCH                                                                                      \
    {                                                                                              \
        { 16, 64, 56 }, { 32, 32, 50 },                                                            \
        {                                                                                          \
            8, 100, 60                                                                             \
        }                                                                                          \
    }
#define CLASSES                                                                                    \
    {                                                                                              \
        { 512, 1000 }, { 256, 2500 },                                                              \
        {                                                                                          \
            1024, 500                                                                              \
        }                                                                                          \
    }
#define TOKENS                                                                                     \
    {                                                                                              \
        { 10000, 256, 4096 }, { 20000, 128, 8192 },                                                \
        {                                                                                          \
            5000, 512, 2000                                                                        \
        }                                                                                          \
    }

const table_row table_products[] = {
    { "products/square",
      "f32 aa; f32 aa *a",
      1,
      1e-5,
      0,
      product,
      { { 1024 }, { 768 }, { 1000 } } },
    THIN_ROWS(1, TABLE_MEMORY),
    THIN_ROWS(4, TABLE_MEMORY),
    THIN_ROWS(8, 0),
    THIN_ROWS(64, 0),
    { "products/batched",
      "f32 abc; f32 acd *c",
      1,
      1e-5,
      0,
      product,
      { { 32, 128, 64, 128 }, { 50, 100, 80, 90 }, { 16, 256, 64, 64 } } },
    { "products/transposed_a",
      "f32 ba; f32 bc *b",
      1,
      3e-5, /* a chain of 4096 terms is that far from another order */
      0,
      product_at,
      { { 512, 1024, 768 }, { 700, 900, 500 }, { 256, 4096, 256 } } },
    { "halves/bf16_product",
      "bf16 ab; bf16 bc *b",
      1,
      0.05,
      0,
      product,
      { { 512, 512, 512 }, { 256, 1024, 512 }, { 400, 500, 600 } } },

    { "layers/linear_gelu", "f32 ab; f32 cb *b; f32 c", 1, 1e-5, 0, linear_gelu, LINEAR },
    { "layers/linear_gelu_train", "f32 ab; f32 cb *b; f32 c; f32 ac", 4, 1e-4, 0, linear_gelu_train,
      LINEAR },
    { "layers/layer_norm", "f32 ab; f32 b; f32 b", 1, 1e-5, 0, layer_norm, NORM },
    { "layers/layer_norm_train", "f32 ab; f32 b; f32 b; f32 ab", 4, 1e-3, 0, layer_norm_train,
      NORM },
    { "layers/rms_norm", "f32 ab; f32 b", 1, 1e-5, 0, rms_norm, NORM },
    { "layers/batch_norm", "f32 abcc; f32 b; f32 b", 1, 1e-5, 0, batch_norm, BATCH },
    { "layers/batch_norm_train", "f32 abcc; f32 b; f32 b; f32 abcc", 4, 1e-3, 0, batch_norm_train,
      BATCH },
    { "layers/softmax_train", "f32 ab; f32 ab", 2, 1e-3, 0, softmax_train, NORM },
    { "layers/cross_entropy_train", "f32 ab; i32 a <b", 2, 1e-4, 0, cross_entropy_train, CLASSES },
    { "layers/embedding_train", "f32 ab; i32 c <a; f32 cb", 2, 1e-3, 0, embedding_train, TOKENS },
    { 0 },
};
