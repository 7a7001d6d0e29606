/* SPDX-License-Identifier: Apache-2.0
 *
 * The training step that benches time, on one batch again and again: a 64-256-10 network, f32,
 * relu, softmax and cross entropy summed over the batch, its gradient by hand, Adam without bias
 * correction (0.9, 0.999, 1e-8, rate 0.001).
 */
#ifndef BENCH_NETWORK_H
#define BENCH_NETWORK_H

#include <stdint.h>

#include "deft/deft.h"

enum {
    NETWORK_IN = 64,
    NETWORK_HIDDEN = 256,
    NETWORK_CLASSES = 10,
    NETWORK_PARAMS = 4,
    NETWORK_MAX_BATCH = 64
};

typedef struct network {
    deft_ctx *cx;
    deft_tensor *p[NETWORK_PARAMS]; /* weights [64, 256], bias, weights [256, 10], bias */
    deft_tensor *m[NETWORK_PARAMS], *v[NETWORK_PARAMS];
    deft_tensor *start[NETWORK_PARAMS], *zeros[NETWORK_PARAMS]; /* of p; of m and v */
    int64_t batch;                                              /* at most NETWORK_MAX_BATCH */
    deft_tensor *x, *labels;                                    /* f32 [batch, 64], i32 [batch] */
    deft_capture *c;
} network;

/* In a context of its own; the same numbers each time. */
void network_open(network *w, deft_runtime *rt, int64_t batch);
void network_close(network *w);

/* One step; user: the network. */
void network_train_captured(void *user);
void network_train_again(void *user);

/* Back to the numbers it was opened with. */
void network_reset(network *w);

/* Mean cross entropy of the batch. */
float network_loss(network *w);

/* What it was opened with, for another program: parameters, x, labels, as in memory. */
enum {
    NETWORK_PARAM_FLOATS =
        (NETWORK_IN + 1) * NETWORK_HIDDEN + (NETWORK_HIDDEN + 1) * NETWORK_CLASSES
};
typedef struct network_start {
    float p[NETWORK_PARAM_FLOATS];
    float x[NETWORK_MAX_BATCH * NETWORK_IN];
    int32_t labels[NETWORK_MAX_BATCH];
} network_start;
void network_read_start(network *w, network_start *out);

#endif
