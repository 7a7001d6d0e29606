/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two programs that learn to read digits have in common beside their networks: options,
 * the order of the training set, checkpoints.
 */
#ifndef EXAMPLES_LEARNING_H
#define EXAMPLES_LEARNING_H

#include <stdbool.h>

#include "deft/deft.h"

/* ---- the command line ---- */

typedef struct learning_options {
    int64_t n_epochs;
    const char *data, *checkpoint;
    bool keep; /* the checkpoint: it was asked for */
} learning_options;

/* Reads [--epochs N] [--data FILE] [--checkpoint FILE] into *o; an option that is not given keeps
 * the value that stands there. Returns false, with the usage printed, when the program is to end
 * with *exit_code: 0 after --help, 2 after a mistake. */
bool learning_parse(int argc, char **argv, learning_options *o, int *exit_code);

/* ---- the training set ---- */

/* 0 .. n - 1 in an order that depends on the epoch alone, so that a resumed training has the same.
 */
void learning_shuffle(int64_t epoch, int32_t *order, uint32_t n);

/* ---- what is learned ---- */

enum { LEARNING_MOST = 6 };

typedef struct learned {
    int n_params;
    deft_tensor *p[LEARNING_MOST];                    /* parameters: a weight, its bias, ... */
    deft_tensor *m[LEARNING_MOST], *v[LEARNING_MOST]; /* running means of gradients and squares */
    int64_t n_steps, n_epochs;                        /* done */
} learned;

deft_status learning_save(deft_ctx *cx, const char *path, const learned *l);
/* Into tensors of the same shapes. */
deft_status learning_resume(deft_ctx *cx, const char *path, learned *l);
/* Whether every parameter has the same bits. */
deft_status learning_equal(const learned *a, const learned *b, bool *equal);

#endif
