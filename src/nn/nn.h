/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of parameters, buffers and numbers in a deft_nn. Internal header of this folder. All
 * files record with public calls only. lazy/layer.h gives them memory and the sentences of
 * mistakes.
 *
 *   list.c        names, entries, which parameters are trained
 *   init.c        initial values of tensors
 *   checkpoint.c  saving and loading
 *   layers.c      linear, embedding, norms, dropout
 *   conv.c        convolutions
 *   attention.c   self-attention
 *   norms.c       norms of channels
 *   recurrent.c   layers that go through time
 *   losses.c      losses
 *   resample.c    images at other places than their elements
 *   random.c      random numbers of many distributions
 *   optim.c       updates of parameters, clipping of gradients
 *   optim_rules.c the rule of each optimizer
 *   schedule.c    factors of the learning rate
 *   scaler.c      scale of the loss
 */
#ifndef DF_NN_NN_H
#define DF_NN_NN_H

#include "base/str.h"
#include "base/vec.h"
#include "lazy/layer.h"

typedef enum df_nn_kind { DF_NN_PARAMETER, DF_NN_BUFFER, DF_NN_NUMBER } df_nn_kind;

typedef struct df_nn_entry {
    char *name; /* full name with all prefixes; owned */
    df_nn_kind kind;
    bool trainable;   /* only parameters can be */
    bool owns_number; /* otherwise the program owns `number` */
    deft_tensor *t;   /* a kept tensor; NULL for a number */
    int64_t *number;  /* NULL for a parameter or buffer */
} df_nn_entry;

struct deft_nn {
    deft_ctx *cx;              /* borrowed */
    const df_mem *mem;         /* borrowed from the context */
    deft_dtype dtype;          /* of parameters */
    deft_rng rng;              /* draws initial values and dropout */
    bool training;             /* whether layers such as dropout behave as in training */
    DF_VEC(df_nn_entry) list;  /* all entries in the order in which they were added */
    DF_VEC(size_t) parameters; /* indices in list of the parameters */
    df_str prefix;             /* current prefix of names: "a.b." */
    DF_VEC(size_t) marks;      /* the length of prefix before each push */
};

/* The state of the list at some moment. A call that fails returns to it with df_nn_truncate. */
typedef struct df_nn_mark {
    size_t n, n_parameters;
    uint64_t next; /* position in the random stream */
} df_nn_mark;

df_nn_mark df_nn_mark_of(const deft_nn *nn);
/* Removes all entries that were added since m, and resets the random stream. */
void df_nn_truncate(deft_nn *nn, df_nn_mark m);

/* Adds a tensor with the name prefix + middle + "." + name, or prefix + name when middle is NULL.
 * The list owns the returned tensor. `what` is the name of the public call, for messages. Returns
 * NULL on failure and records a mistake, unless nn is NULL. */
deft_tensor *df_nn_add(deft_nn *nn, const char *what, df_nn_kind kind, const char *prefix,
                       const char *middle, const char *name, const deft_shape *shape,
                       deft_dtype dtype, deft_init init);
/* Adds a number with the name prefix + name, which the list owns and which starts at 0. Returns its
 * address, or NULL on failure, and then records a mistake. */
int64_t *df_nn_own_number(deft_nn *nn, const char *what, const char *prefix, const char *name);
/* The entry with that full name, or NULL. It is valid until an entry is added. */
const df_nn_entry *df_nn_get(const deft_nn *nn, const char *name);

/* Makes a tensor with initial values in the innermost scope. Does not add it to the list. Returns
 * NULL on failure and records a mistake. */
deft_tensor *df_nn_begin(deft_nn *nn, const char *what, const deft_shape *shape, deft_dtype dtype,
                         deft_init init);

/* Writes dtype and shape, such as "f32[2,3]", into buf and returns buf. */
#define DF_NN_TEXT 96
const char *df_nn_text(const deft_tensor *t, char buf[DF_NN_TEXT]);

#endif
