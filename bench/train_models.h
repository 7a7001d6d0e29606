/* SPDX-License-Identifier: Apache-2.0
 *
 * The networks of `deft-bench train`, and their batches. bench/peers/train_models.py has the same
 * networks for the peers, with parameters of the same names.
 */
#ifndef TRAIN_MODELS_H
#define TRAIN_MODELS_H

#include "deft/deft.h"

typedef struct train_model train_model;

/* What one run of a network is. */
typedef enum train_work {
    TRAINS,  /* a training step */
    INFERS,  /* scores of the batch, which is not learnt */
    DECODES, /* one more token of a text, the most probable one after the latest */
} train_work;

/* Makes the model of that name, with parameters and batch in nn: the batch is its buffers "x" and
 * "labels". NULL: there is no such model, it could not be recorded, or memory is out. */
train_model *train_model_create(deft_ctx *cx, deft_nn *nn, const char *name);
void train_model_destroy(train_model **m);

train_work train_model_work(const train_model *m);

/* The shape of what a run returns. */
deft_shape train_model_result(const train_model *m);

/* Records one run, inside a step: the mean loss over the batch, the scores, or the score of the
 * token that it decodes. */
deft_tensor *train_model_call(train_model *m);

/* The integers that scores are compared with. */
deft_tensor *train_model_labels(const train_model *m);

/* The token that was decoded last, an i64 [1]. NULL: the model decodes none. */
deft_tensor *train_model_token(const train_model *m);

#endif
