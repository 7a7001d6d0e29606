/* SPDX-License-Identifier: Apache-2.0
 *
 * A transformer that expects the next token of a text (as GPT-2: Radford et al. 2019; layer norms
 * before attention and after it, learned positions). Weights begin normal with deviation 0.02,
 * those that add to the residual with 0.02 / sqrt(2 layers), biases at 0.
 */
#ifndef TRANSFORMER_H
#define TRANSFORMER_H

#include "deft/deft.h"

enum { TRANSFORMER_MAX_LAYERS = 48 };

typedef struct transformer_options {
    int64_t n_tokens, length; /* tokens there are; the longest window */
    int64_t layers, width, heads;
    double drop;  /* probability; of attention's weights and of what is added to the residual */
    bool is_tied; /* the table of tokens is the head, too */
} transformer_options;

typedef struct transformer_block {
    deft_nn_norm before, after;
    deft_nn_self_attention attention;
    deft_nn_linear up, down;
    deft_nn_dropout drop;
} transformer_block;

typedef struct transformer {
    transformer_options o;
    deft_nn_embedding tokens, places;
    transformer_block blocks[TRANSFORMER_MAX_LAYERS];
    deft_nn_norm last;
    deft_nn_linear head;
} transformer;

/* The keys and values of the tokens of one text, so that each token is computed once. */
typedef struct transformer_memory {
    deft_tensor *keys, *values; /* [layers, heads, length, width / heads], kept */
    int64_t n;                  /* tokens so far, at most length */
} transformer_memory;

/* GPT-2 with 124,439,808 parameters. */
transformer_options transformer_gpt2(void);

/* Adds the parameters to nn. False: an error, as of every recording call (deft/nn.h). */
bool transformer_init(transformer *t, deft_nn *nn, const transformer_options *o);

/* Integers [batch, at most length] -> scores of the token after each, [batch, .., n_tokens]. */
deft_tensor *transformer_call(const transformer *t, deft_tensor *tokens);

/* The mean cross entropy of scores with the tokens that came: integers [batch, ..]. */
deft_tensor *transformer_loss(const transformer *t, deft_tensor *tokens, deft_tensor *next);

/* Makes an empty memory for one text. False: an error. */
bool transformer_memory_init(transformer_memory *m, deft_ctx *cx, const transformer_options *o);

/* Drops the tensors of the memory. */
void transformer_memory_finish(transformer_memory *m);

/* One more token, an integer [1], at place m->n, which must be below the length -> scores of the
 * token after it, [1, n_tokens]. Inside a step, which writes key and value into the memory. */
deft_tensor *transformer_next(const transformer *t, transformer_memory *m, deft_tensor *token);

#endif
