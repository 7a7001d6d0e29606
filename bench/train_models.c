/* SPDX-License-Identifier: Apache-2.0 */
#include "train_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../examples/transformer.h"

/* A convolution without a bias, and its batch normalization. */
typedef struct conv_norm {
    deft_tensor *weight; /* NULL: there is none */
    deft_nn_batch_norm norm;
    int64_t stride, padding;
} conv_norm;

/* Two convolutions beside a shortcut (He et al. 2016). */
typedef struct residual {
    conv_norm first, second, shortcut;
} residual;

enum { N_RESIDUALS = 8 };

typedef struct model_kind model_kind;

struct train_model {
    const model_kind *kind;
    deft_ctx *cx;
    deft_nn *nn;
    deft_tensor *x, *labels;
    deft_shape result; /* of one call */
    deft_nn_linear dense[3];
    deft_tensor *weight[2], *bias[2]; /* of convolutions */
    conv_norm stem;
    residual residuals[N_RESIDUALS];
    deft_nn_embedding words;
    deft_nn_rnn rnn;
    transformer net;
    transformer_memory memory;
    deft_tensor *token; /* [1]: the latest one; NULL: none is decoded */
};

struct model_kind {
    const char *name;
    train_work work;
    bool (*init)(train_model *m);
    deft_tensor *(*call)(train_model *m);
};

/* ---- batches ---- */

static deft_tensor *buffer(train_model *m, const char *name, deft_shape s, deft_dtype dtype,
                           deft_tensor *value)
{
    deft_tensor *const b =
        deft_nn_buffer(m->nn, name, s, dtype, (deft_init){ .kind = DEFT_INIT_ZEROS });
    return b && deft_assign(b, value) ? b : NULL;
}

static deft_tensor *normal(train_model *m, const char *name, deft_shape s)
{
    return buffer(m, name, s, DEFT_F32, deft_normal(m->cx, deft_nn_rng(m->nn), s, DEFT_F32, 0, 1));
}

/* Integers from 0 to n - 1, of the dtype that PyTorch takes. */
static deft_tensor *integers(train_model *m, const char *name, deft_shape s, int64_t n)
{
    return buffer(m, name, s, DEFT_I64, deft_randint(m->cx, deft_nn_rng(m->nn), s, DEFT_I64, 0, n));
}

static bool images_init(train_model *m, deft_shape s, int64_t classes)
{
    m->x = normal(m, "x", s);
    m->labels = integers(m, "labels", DEFT_SHAPE(s.dim[0]), classes);
    return m->x && m->labels;
}

/* Windows of a text, and the tokens that come after theirs. */
static bool windows_init(train_model *m, int64_t batch, int64_t length, int64_t n_tokens)
{
    m->x = integers(m, "x", DEFT_SHAPE(batch, length), n_tokens);
    m->labels = integers(m, "labels", DEFT_SHAPE(batch, length), n_tokens);
    return m->x && m->labels;
}

/* ---- layers in a row ---- */

static deft_tensor *mlp_loss(train_model *m)
{
    deft_tensor *x = m->x;
    for (int i = 0; i < 3; i++) {
        x = deft_nn_linear_call(&m->dense[i], x);
        if (i < 2) x = deft_relu(x);
    }
    return deft_cross_entropy(x, m->labels);
}

static bool mlp_of(train_model *m, int64_t rows)
{
    static const int64_t widths[] = { 784, 1024, 1024, 10 };
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        if (!deft_nn_linear_init(&m->dense[i], m->nn, name, widths[i], widths[i + 1], true))
            return false;
    }
    return images_init(m, DEFT_SHAPE(rows, 784), 10);
}

static bool mlp_init(train_model *m)
{
    return mlp_of(m, 64);
}

static bool mlp1_init(train_model *m)
{
    return mlp_of(m, 1);
}

static bool mlp8_init(train_model *m)
{
    return mlp_of(m, 8);
}

static deft_tensor *tiny_loss(train_model *m)
{
    deft_tensor *const x = deft_relu(deft_nn_embedding_call(&m->words, m->x));
    return deft_cross_entropy(deft_nn_linear_call(&m->dense[0], x), m->labels);
}

static bool tiny_init(train_model *m)
{
    enum { WORDS = 16 };
    m->x = integers(m, "x", DEFT_SHAPE(8), WORDS);
    m->labels = integers(m, "labels", DEFT_SHAPE(8), 10);
    return m->x && m->labels && deft_nn_embedding_init(&m->words, m->nn, "0", WORDS, 16) &&
           deft_nn_linear_init(&m->dense[0], m->nn, "1", 16, 10, true);
}

static deft_tensor *cnn_loss(train_model *m)
{
    deft_tensor *x = m->x;
    for (int i = 0; i < 2; i++) {
        x = deft_conv2d(x, m->weight[i], DEFT_CONV2D(.padding = { 1, 1 }, .bias = m->bias[i]));
        x = deft_max_pool2d(deft_relu(x), DEFT_POOL2D(.kernel = { 2, 2 }));
    }
    const int64_t n = deft_dim(x, 0);
    x = deft_reshape(x, DEFT_SHAPE(n, deft_numel(x) / n));
    return deft_cross_entropy(deft_nn_linear_call(&m->dense[0], x), m->labels);
}

static bool cnn_init(train_model *m)
{
    static const int64_t channels[] = { 1, 32, 64 };
    for (int i = 0; i < 2; i++) {
        char name[8];
        const double bound = 1 / sqrt(9 * (double)channels[i]);
        const deft_init init = { DEFT_INIT_UNIFORM, -bound, bound };
        snprintf(name, sizeof name, "%d", i);
        deft_nn_push(m->nn, name);
        m->weight[i] = deft_nn_parameter(m->nn, "weight",
                                         DEFT_SHAPE(channels[i + 1], channels[i], 3, 3), init);
        m->bias[i] = deft_nn_parameter(m->nn, "bias", DEFT_SHAPE(channels[i + 1]), init);
        deft_nn_pop(m->nn);
    }
    return deft_nn_linear_init(&m->dense[0], m->nn, "2", 64 * 7 * 7, 10, true) &&
           images_init(m, DEFT_SHAPE(64, 1, 28, 28), 10);
}

/* ---- ResNet-18 ----
 *
 * Names of parameters are those of torchvision.
 */

/* Running statistics are drawn, so that what is inferred depends on them. */
static bool draw_statistics(const deft_nn_batch_norm *l)
{
    deft_ctx *const cx = deft_ctx_of(l->mean);
    deft_rng *const rng = deft_nn_rng(l->nn);
    const deft_shape s = deft_shape_get(l->mean);
    return deft_assign(l->mean, deft_normal(cx, rng, s, DEFT_F32, 0, 0.1)) &&
           deft_assign(l->var, deft_uniform(cx, rng, s, DEFT_F32, 0.5, 1.5));
}

/* of: channels of the image and of the result, rows and columns of a window. */
static bool conv_norm_init(conv_norm *l, deft_nn *nn, const char *conv, const char *norm,
                           const int64_t of[3], int64_t stride)
{
    char name[64];
    const deft_init kaiming = { .kind = DEFT_INIT_KAIMING_NORMAL };
    snprintf(name, sizeof name, "%s.weight", conv);
    *l = (conv_norm){ .stride = stride, .padding = of[2] / 2 };
    l->weight = deft_nn_parameter(nn, name, DEFT_SHAPE(of[1], of[0], of[2], of[2]), kaiming);
    return l->weight && deft_nn_batch_norm_init(&l->norm, nn, norm, of[1]) &&
           draw_statistics(&l->norm);
}

static bool residual_init(residual *r, deft_nn *nn, const char *name, int64_t in, int64_t out)
{
    const int64_t stride = in == out ? 1 : 2;
    deft_nn_push(nn, name);
    const bool ok =
        conv_norm_init(&r->first, nn, "conv1", "bn1", (int64_t[]){ in, out, 3 }, stride) &&
        conv_norm_init(&r->second, nn, "conv2", "bn2", (int64_t[]){ out, out, 3 }, 1) &&
        (in == out || conv_norm_init(&r->shortcut, nn, "downsample.0", "downsample.1",
                                     (int64_t[]){ in, out, 1 }, stride));
    deft_nn_pop(nn);
    return ok;
}

static bool resnet18_of(train_model *m, int64_t batch)
{
    enum { SIZE = 224, CLASSES = 1000 };
    bool ok = conv_norm_init(&m->stem, m->nn, "conv1", "bn1", (int64_t[]){ 3, 64, 7 }, 2);
    for (int i = 0; i < N_RESIDUALS && ok; i++) {
        const int64_t out = 64 << i / 2, in = i < 2 || i % 2 ? out : out / 2;
        char name[32];
        snprintf(name, sizeof name, "layer%d.%d", 1 + i / 2, i % 2);
        ok = residual_init(&m->residuals[i], m->nn, name, in, out);
    }
    if (m->kind->work == INFERS) m->result = DEFT_SHAPE(batch, CLASSES);
    return ok && deft_nn_linear_init(&m->dense[0], m->nn, "fc", 512, CLASSES, true) &&
           images_init(m, DEFT_SHAPE(batch, 3, SIZE, SIZE), CLASSES);
}

static bool resnet18_init(train_model *m)
{
    return resnet18_of(m, 4);
}

static bool resnet18_infer1_init(train_model *m)
{
    return resnet18_of(m, 1);
}

static bool resnet18_infer8_init(train_model *m)
{
    return resnet18_of(m, 8);
}

static deft_tensor *conv_norm_call(const conv_norm *l, deft_tensor *x)
{
    const deft_conv2d_options o = { .size = sizeof o,
                                    .stride = { l->stride, l->stride },
                                    .padding = { l->padding, l->padding } };
    return deft_nn_batch_norm_call(&l->norm, deft_conv2d(x, l->weight, &o));
}

static deft_tensor *resnet18_scores(train_model *m)
{
    deft_tensor *x = deft_relu(conv_norm_call(&m->stem, m->x));
    x = deft_max_pool2d(x,
                        DEFT_POOL2D(.kernel = { 3, 3 }, .stride = { 2, 2 }, .padding = { 1, 1 }));
    for (int i = 0; i < N_RESIDUALS; i++) {
        const residual *const r = &m->residuals[i];
        deft_tensor *const y = conv_norm_call(&r->second, deft_relu(conv_norm_call(&r->first, x)));
        x = deft_relu(deft_add(y, r->shortcut.weight ? conv_norm_call(&r->shortcut, x) : x));
    }
    return deft_nn_linear_call(&m->dense[0], deft_mean(x, DEFT_AXES(2, 3), false));
}

static deft_tensor *resnet18_loss(train_model *m)
{
    return deft_cross_entropy(resnet18_scores(m), m->labels);
}

/* ---- language models ---- */

enum { LSTM_WORDS = 10000, LSTM_WIDTH = 512, LSTM_LAYERS = 2 };

/* The table of words is the head, too. */
static bool lstm_init(train_model *m)
{
    const deft_nn_rnn_options o = { .size = sizeof o,
                                    .kind = DEFT_RNN_LSTM,
                                    .input = LSTM_WIDTH,
                                    .hidden = LSTM_WIDTH,
                                    .n_layers = LSTM_LAYERS };
    const deft_init uniform = { DEFT_INIT_UNIFORM, -0.1, 0.1 };
    if (!deft_nn_embedding_init(&m->words, m->nn, "words", LSTM_WORDS, LSTM_WIDTH)) return false;
    m->dense[0].weight = m->words.weight;
    return deft_nn_fill(m->nn, "words.weight", uniform) &&
           deft_nn_rnn_init(&m->rnn, m->nn, "lstm", &o) && windows_init(m, 16, 32, LSTM_WORDS);
}

static deft_tensor *lstm_loss(train_model *m)
{
    deft_tensor *const x = deft_nn_embedding_call(&m->words, m->x);
    deft_tensor *const y = deft_nn_rnn_call(&m->rnn, x, NULL, NULL, NULL, NULL);
    deft_tensor *const scores = deft_nn_linear_call(&m->dense[0], y);
    return deft_cross_entropy(deft_reshape(scores, DEFT_SHAPE(-1, LSTM_WORDS)),
                              deft_reshape(m->labels, DEFT_SHAPE(-1)));
}

static deft_tensor *text_loss(train_model *m)
{
    return transformer_loss(&m->net, m->x, m->labels);
}

static transformer_options small_gpt(void)
{
    return (transformer_options){
        .n_tokens = 1024, .length = 64, .layers = 4, .width = 256, .heads = 4, .is_tied = true
    };
}

static bool gpt_init(train_model *m)
{
    const transformer_options o = small_gpt();
    return transformer_init(&m->net, m->nn, &o) && windows_init(m, 16, 64, o.n_tokens);
}

static bool gpt2_init(train_model *m)
{
    const transformer_options o = transformer_gpt2();
    return transformer_init(&m->net, m->nn, &o) && windows_init(m, 4, 64, o.n_tokens);
}

/* ---- decoding ---- */

static bool decode_of(train_model *m, const transformer_options *o)
{
    m->x = integers(m, "x", DEFT_SHAPE(1), o->n_tokens);
    m->labels = integers(m, "labels", DEFT_SHAPE(1), o->n_tokens);
    m->token = m->x;
    return m->x && m->labels && transformer_init(&m->net, m->nn, o) &&
           transformer_memory_init(&m->memory, m->cx, o);
}

static bool gpt_decode_init(train_model *m)
{
    transformer_options o = small_gpt();
    o.length = 1024;
    return decode_of(m, &o);
}

static bool gpt2_decode_init(train_model *m)
{
    const transformer_options o = transformer_gpt2();
    return decode_of(m, &o);
}

static deft_tensor *decode(train_model *m)
{
    if (m->memory.n == m->net.o.length) m->memory.n = 0; /* another text begins */
    deft_tensor *const scores = transformer_next(&m->net, &m->memory, m->token);
    deft_assign(m->token, deft_argmax(scores, DEFT_AXES(-1), false));
    return deft_max(scores, DEFT_ALL_AXES, false);
}

/* ---- all of them ---- */

static const model_kind kinds[] = {
    { "mlp", TRAINS, mlp_init, mlp_loss },
    { "mlp1", TRAINS, mlp1_init, mlp_loss },
    { "mlp8", TRAINS, mlp8_init, mlp_loss },
    { "tiny", TRAINS, tiny_init, tiny_loss },
    { "cnn", TRAINS, cnn_init, cnn_loss },
    { "gpt", TRAINS, gpt_init, text_loss },
    { "gpt2", TRAINS, gpt2_init, text_loss },
    { "gpt2-forward", INFERS, gpt2_init, text_loss },
    { "resnet18", TRAINS, resnet18_init, resnet18_loss },
    { "resnet18-infer1", INFERS, resnet18_infer1_init, resnet18_scores },
    { "resnet18-infer8", INFERS, resnet18_infer8_init, resnet18_scores },
    { "lstm", TRAINS, lstm_init, lstm_loss },
    { "gpt-decode", DECODES, gpt_decode_init, decode },
    { "gpt2-decode", DECODES, gpt2_decode_init, decode },
};

train_model *train_model_create(deft_ctx *cx, deft_nn *nn, const char *name)
{
    train_model *m = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) != 0 || !(m = calloc(1, sizeof *m))) continue;
        *m = (train_model){ .kind = &kinds[i], .nn = nn, .cx = cx };
        deft_nn_set_training(nn, m->kind->work == TRAINS);
        if (!m->kind->init(m)) train_model_destroy(&m);
        break;
    }
    return m;
}

void train_model_destroy(train_model **m)
{
    if (!*m) return;
    transformer_memory_finish(&(*m)->memory);
    free(*m);
    *m = NULL;
}

train_work train_model_work(const train_model *m)
{
    return m->kind->work;
}

deft_shape train_model_result(const train_model *m)
{
    return m->result;
}

deft_tensor *train_model_call(train_model *m)
{
    return m->kind->call(m);
}

deft_tensor *train_model_labels(const train_model *m)
{
    return m->labels;
}

deft_tensor *train_model_token(const train_model *m)
{
    return m->token;
}
