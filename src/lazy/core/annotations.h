/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient annotations of a context, and what must happen to them when records move
 * or go. annotations.c says what an annotation is. All functions need the thread of the
 * context.
 */
#ifndef DF_LAZY_ANNOTATIONS_H
#define DF_LAZY_ANNOTATIONS_H

#include "lazy/core/lazy.h"

/* The attributes of a call of an operator (deft/extend.h), for its gradient and its batch rule. */
typedef struct df_op_held {
    uint32_t refs;
    uint32_t size;           /* in bytes */
    _Atomic uint32_t *users; /* of the operator: one for each df_op_held */
} df_op_held;
/* Bytes before the attributes, which are aligned like memory of malloc. */
#define DF_OP_HELD_HEAD 32
_Static_assert(sizeof(df_op_held) <= DF_OP_HELD_HEAD, "the attributes come after it");

/* A copy of `size` bytes of attributes, with one reference. NULL, with the error recorded, when
 * there is no memory. */
df_op_held *df_op_held_new(deft_ctx *cx, const void *attributes, size_t size,
                           _Atomic uint32_t *users);
/* Drops a reference, and sets *h to NULL. */
void df_op_held_drop(deft_ctx *cx, df_op_held **h);

DF_INLINE void *df_op_held_attributes(df_op_held *h)
{
    return (char *)h + DF_OP_HELD_HEAD;
}

/* A custom function: a function of the program with a gradient of its own
 * (deft_custom_grad), or a call of an operator with a gradient or a batch rule. */
typedef struct df_custom {
    struct df_custom *next;
    const char *what;          /* for messages */
    deft_backward_fn backward; /* NULL: its annotations are BATCH */
    deft_op_batch_fn batch;    /* NULL: it has no batch rule */
    void *user;
    df_op_held *held; /* of an operator: counted; `user` is in it. Else NULL */
    uint32_t n_in, n_out;
    uint32_t first; /* the first record of forward; used while the vmap that records it runs */
    uint32_t loop;  /* the loop in whose body the call is, or DF_NONE; used as `first` is */
    /* set by vmap: the function that this one runs for each example; NULL: not batched */
    const struct df_custom *batch_of;
    /* with batch_of: the function of vmap that runs another one for each example */
    df_map_each_fn map_each;
    /* the library's own function: records of its gradient get the site of the call */
    bool is_ours;
    bool may_work;     /* the call is in no loop, branch or vmap: external work is allowed in it */
    uint32_t record[]; /* the n_in inputs, then the n_out results; after them, their faces */
} df_custom;

/* The size of a custom function with n inputs and results. */
DF_INLINE size_t df_custom_size(size_t n)
{
    return sizeof(df_custom) + n * (sizeof(uint32_t) + 1);
}

/* The face of each input and each result. */
DF_INLINE uint8_t *df_custom_faces(const df_custom *c)
{
    return (uint8_t *)(uintptr_t)(c->record + c->n_in + c->n_out);
}

/* Appends a copy of m to the list. Returns false, with the error recorded, when there is
 * no memory. */
bool df_grad_annotation_add(deft_ctx *cx, df_grad_annotation m);
/* Adds the annotation of a deft_cond, whose first cond record is `record`; its others follow. The
 * records of the first branch begin at `then`. Those of the other begin at `otherwise` and end
 * before `record`. Returns false, with the error recorded, when there is no memory. */
bool df_grad_annotate_branches(deft_ctx *cx, uint32_t record, uint32_t then, uint32_t otherwise);
/* The annotation with the branches between which the cond record k chooses. NULL when
 * there is none. */
const df_grad_annotation *df_grad_branches(const deft_ctx *cx, uint32_t k);
/* Adds r, whose record is a view that changes nothing. Returns false, with the error recorded, when
 * there is no memory. */
bool df_part_read_add(deft_ctx *cx, df_part_read r);
/* The part that record k reads, or NULL. */
const df_part_read *df_part_read_of(const deft_ctx *cx, uint32_t k);
/* Called before the pending records move. Record i becomes record map[i], or is removed
 * where map[i] is DF_NONE; below[i] is the number of records before i that stay.
 * Annotations of removed records are removed. */
void df_grad_annotations_renumber(deft_ctx *cx, const uint32_t *map, const uint32_t *below);
/* The custom function of which record k is a result, or NULL. */
const df_custom *df_grad_custom_of(const deft_ctx *cx, uint32_t k);
/* The same, also for an operator that has a batch rule alone. */
const df_custom *df_mapped_custom_of(const deft_ctx *cx, uint32_t k);

DF_INLINE bool df_is_of_custom(const df_grad_annotation *m)
{
    return m->kind == DF_ANNOTATION_CUSTOM || m->kind == DF_ANNOTATION_BATCH;
}

#endif
