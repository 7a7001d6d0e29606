/* SPDX-License-Identifier: Apache-2.0
 *
 * The list behind a deft_nn, for the files of this folder. Everything here records by public calls;
 * lazy/layer.h adds memory and sentences.
 *
 *   list.c        names, entries, what is trained
 *   init.c        how a tensor begins
 *   checkpoint.c  saving and loading
 *   layers.c      linear, embedding, norms, dropout; attention.c
 *   optim.c       updates, clipping; schedule.c
 *   scaler.c      scale of the loss
 */
#ifndef DF_NN_NN_H
#define DF_NN_NN_H

#include "base/str.h"
#include "base/vec.h"
#include "lazy/layer.h"

typedef enum df_nn_kind { DF_NN_PARAMETER, DF_NN_BUFFER, DF_NN_NUMBER } df_nn_kind;

typedef struct df_nn_entry {
    char *name; /* whole; owned */
    df_nn_kind kind;
    bool trainable;
    bool owns_number;
    deft_tensor *t;  /* kept; NULL for a number */
    int64_t *number; /* NULL for tensors */
} df_nn_entry;

struct deft_nn {
    deft_ctx *cx;
    const df_mem *mem;
    deft_dtype dtype;
    deft_rng rng;
    bool training;
    DF_VEC(df_nn_entry) list;
    DF_VEC(size_t) parameters; /* of list */
    df_str prefix;             /* "a.b." */
    DF_VEC(size_t) marks;      /* its lengths before each push */
};

/* How far the list is: what is added by a call that then fails goes again. */
typedef struct df_nn_mark {
    size_t n, n_parameters;
    uint64_t next; /* of the random stream */
} df_nn_mark;

df_nn_mark df_nn_mark_of(const deft_nn *nn);
void df_nn_truncate(deft_nn *nn, df_nn_mark m);

/* Adds under prefix, middle (NULL: none) and name. NULL, and an error. what: the call. */
deft_tensor *df_nn_add(deft_nn *nn, const char *what, df_nn_kind kind, const char *prefix,
                       const char *middle, const char *name, const deft_shape *shape,
                       deft_dtype dtype, deft_init init);
/* A number of the list's own, 0. NULL, and an error. */
int64_t *df_nn_own_number(deft_nn *nn, const char *what, const char *prefix, const char *name);
const df_nn_entry *df_nn_get(const deft_nn *nn, const char *name); /* NULL: none */

/* A tensor of the innermost scope. */
deft_tensor *df_nn_begin(deft_nn *nn, const char *what, const deft_shape *shape, deft_dtype dtype,
                         deft_init init);

/* The end of a public function, which returns what call makes, told as the line that called the
 * function, and whose numbers may stay in captures; cx may be NULL. A macro, as DF_SITE means the
 * function it stands in. */
#define DF_NN_RETURN(type, cx, call)                                                               \
    do {                                                                                           \
        deft_ctx *const df_cx = (cx);                                                              \
        const bool df_began = df_caller_begin(df_cx, DF_SITE);                                     \
        df_layer_enter(df_cx);                                                                     \
        type const df_result = (call);                                                             \
        df_layer_leave(df_cx);                                                                     \
        df_caller_end(df_cx, df_began);                                                            \
        return df_result;                                                                          \
    } while (0)

/* "f32[2,3]", for sentences. */
#define DF_NN_TEXT 96
const char *df_nn_text(const deft_tensor *t, char buf[DF_NN_TEXT]);

#endif
