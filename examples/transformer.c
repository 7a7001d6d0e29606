/* SPDX-License-Identifier: Apache-2.0 */
#include "transformer.h"

#include <math.h>
#include <stdio.h>

transformer_options transformer_gpt2(void)
{
    return (transformer_options){
        .n_tokens = 50257, .length = 1024, .layers = 12, .width = 768, .heads = 12, .is_tied = true
    };
}

/* ---- parameters ---- */

static const double deviation = 0.02;

static bool fill(deft_nn *nn, const char *name, deft_init_kind kind, double b)
{
    return deft_nn_fill(nn, name, (deft_init){ kind, 0, b });
}

/* The four layers of a block that have weights. */
static bool fill_block(deft_nn *nn, int i, double residual)
{
    const struct {
        const char *weight, *bias;
        double deviation;
    } parts[] = {
        { "attention.in_proj_weight", "attention.in_proj_bias", deviation },
        { "attention.out_proj.weight", "attention.out_proj.bias", residual },
        { "up.weight", "up.bias", deviation },
        { "down.weight", "down.bias", residual },
    };
    char name[64];
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        snprintf(name, sizeof name, "blocks.%d.%s", i, parts[k].weight);
        if (!fill(nn, name, DEFT_INIT_NORMAL, parts[k].deviation)) return false;
        snprintf(name, sizeof name, "blocks.%d.%s", i, parts[k].bias);
        if (!fill(nn, name, DEFT_INIT_ZEROS, 0)) return false;
    }
    return true;
}

static bool block_init(transformer_block *b, deft_nn *nn, const transformer_options *o, int i)
{
    char name[32];
    snprintf(name, sizeof name, "blocks.%d", i);
    b->drop = (deft_nn_dropout){ nn, o->drop };
    if (!deft_nn_push(nn, name)) return false;
    const bool ok =
        deft_nn_norm_init_layer(&b->before, nn, "before", o->width) &&
        deft_nn_self_attention_init(&b->attention, nn, "attention", o->width, o->heads, o->drop) &&
        deft_nn_norm_init_layer(&b->after, nn, "after", o->width) &&
        deft_nn_linear_init(&b->up, nn, "up", o->width, 4 * o->width, true) &&
        deft_nn_linear_init(&b->down, nn, "down", 4 * o->width, o->width, true);
    deft_nn_pop(nn);
    return ok && fill_block(nn, i, deviation / sqrt(2 * (double)o->layers));
}

bool transformer_init(transformer *t, deft_nn *nn, const transformer_options *o)
{
    *t = (transformer){ .o = *o };
    bool ok = deft_nn_embedding_init(&t->tokens, nn, "tokens", o->n_tokens, o->width) &&
              deft_nn_embedding_init(&t->places, nn, "places", o->length, o->width) &&
              fill(nn, "tokens.weight", DEFT_INIT_NORMAL, deviation) &&
              fill(nn, "places.weight", DEFT_INIT_NORMAL, deviation);
    for (int i = 0; i < o->layers && ok; i++) ok = block_init(&t->blocks[i], nn, o, i);
    ok = ok && deft_nn_norm_init_layer(&t->last, nn, "last", o->width);
    t->head.weight = t->tokens.weight;
    if (!ok || o->is_tied) return ok;
    return deft_nn_linear_init(&t->head, nn, "head", o->width, o->n_tokens, false) &&
           fill(nn, "head.weight", DEFT_INIT_NORMAL, deviation);
}

/* ---- the network ---- */

/* x / 2 (1 + tanh(u)) is x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) (Hendrycks, Gimpel
 * 2016). */
static deft_tensor *gelu_tanh(deft_tensor *x)
{
    deft_ctx *const cx = deft_ctx_of(x);
    if (!cx) return NULL;
    deft_tensor *const cube = deft_mul(deft_square(x), deft_mul(x, deft_const_f(cx, 0.044715)));
    deft_tensor *const u = deft_add(x, cube);
    return deft_mul(x, deft_sigmoid(deft_mul(u, deft_const_f(cx, 1.5957691216057308))));
}

/* The second half of a block: x and what two layers make of it. */
static deft_tensor *with_layers(const transformer_block *b, deft_tensor *x)
{
    deft_tensor *y = deft_nn_linear_call(&b->up, deft_nn_norm_call(&b->after, x));
    y = deft_nn_linear_call(&b->down, gelu_tanh(y));
    return deft_add(x, deft_nn_dropout_call(&b->drop, y));
}

static deft_tensor *block_call(const transformer_block *b, deft_tensor *x)
{
    deft_tensor *y = deft_nn_self_attention_call(&b->attention, deft_nn_norm_call(&b->before, x));
    return with_layers(b, deft_add(x, deft_nn_dropout_call(&b->drop, y)));
}

deft_tensor *transformer_call(const transformer *t, deft_tensor *tokens)
{
    deft_tensor *const places = deft_slice(t->places.weight, DEFT_R(0, deft_dim(tokens, -1)));
    deft_tensor *x = deft_add(deft_nn_embedding_call(&t->tokens, tokens), places);
    for (int64_t i = 0; i < t->o.layers; i++) x = block_call(&t->blocks[i], x);
    return deft_nn_linear_call(&t->head, deft_nn_norm_call(&t->last, x));
}

deft_tensor *transformer_loss(const transformer *t, deft_tensor *tokens, deft_tensor *next)
{
    const int64_t rows = deft_numel(tokens);
    deft_tensor *const scores = transformer_call(t, tokens);
    return deft_cross_entropy(deft_reshape(scores, DEFT_SHAPE(rows, t->o.n_tokens)),
                              deft_reshape(next, DEFT_SHAPE(rows)));
}

/* ---- one token after the other ---- */

bool transformer_memory_init(transformer_memory *m, deft_ctx *cx, const transformer_options *o)
{
    const deft_shape s = DEFT_SHAPE(o->layers, o->heads, o->length, o->width / o->heads);
    *m = (transformer_memory){ .keys = deft_keep(deft_zeros(cx, s, DEFT_F32)),
                               .values = deft_keep(deft_zeros(cx, s, DEFT_F32)) };
    return m->keys && m->values;
}

void transformer_memory_finish(transformer_memory *m)
{
    deft_drop(&m->keys);
    deft_drop(&m->values);
    m->n = 0;
}

/* Part k of the query, key and value of a token, [1, 3 width], head by head: [heads, 1, ..]. */
static deft_tensor *of_heads(const transformer *t, deft_tensor *all, int64_t k)
{
    const int64_t width = t->o.width, heads = t->o.heads;
    return deft_reshape(deft_slice(all, DEFT_FULL, DEFT_R(k * width, (k + 1) * width)),
                        DEFT_SHAPE(heads, 1, width / heads));
}

/* Writes the key or value of token n of a layer. Returns those of all tokens up to it. */
static deft_tensor *remember(deft_tensor *all, int64_t layer, int64_t n, deft_tensor *one)
{
    deft_assign(deft_slice(all, DEFT_AT(layer), DEFT_FULL, DEFT_R(n, n + 1)), one);
    return deft_slice(all, DEFT_AT(layer), DEFT_FULL, DEFT_R(0, n + 1));
}

deft_tensor *transformer_next(const transformer *t, transformer_memory *m, deft_tensor *token)
{
    deft_tensor *const place = deft_slice(t->places.weight, DEFT_R(m->n, m->n + 1));
    deft_tensor *x = deft_add(deft_nn_embedding_call(&t->tokens, token), place);
    for (int64_t i = 0; i < t->o.layers; i++) {
        const transformer_block *const b = &t->blocks[i];
        deft_tensor *const all =
            deft_nn_linear_call(&b->attention.in, deft_nn_norm_call(&b->before, x));
        deft_tensor *const k = remember(m->keys, i, m->n, of_heads(t, all, 1));
        deft_tensor *const v = remember(m->values, i, m->n, of_heads(t, all, 2));
        deft_tensor *const y = deft_attention(of_heads(t, all, 0), k, v, NULL);
        x = deft_add(
            x, deft_nn_linear_call(&b->attention.out, deft_reshape(y, DEFT_SHAPE(1, t->o.width))));
        x = with_layers(b, x);
    }
    m->n++;
    return deft_nn_linear_call(&t->head, deft_nn_norm_call(&t->last, x));
}
