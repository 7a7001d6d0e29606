/* SPDX-License-Identifier: Apache-2.0
 *
 * Reverse-mode differentiation over the records. Records are in topological order. So one
 * walk from the last record to the first meets each record when its gradient is complete.
 * The rule of the record then adds to the gradients of its operands. Rules record
 * ordinary operations, with the call site of the record that they differentiate.
 *
 *   grad.c               the public calls, and the table of rules
 *   custom.c             custom functions, hooks, stops
 *   grad_maps.c          rules of elementwise ops
 *   grad_scatter.c       rules of scatters, but for those of additions
 *   grad_shape.c         rules of views, reductions, indexing and products
 *   grad_windows.c       gradients of images whose windows a product reads
 *   grad_loop.c          rules of loops and branches
 *   replay.c             records that are recorded again, with their annotations
 *   walk.c               the walk
 *   pieces.c             gradients of slices, which are joined when they are needed
 *   core/annotations.c   the list of gradient annotations
 *
 * A gradient always has the shape and dtype of its record. DF_BAD stands for a missing
 * gradient or for a failure, whose error is then recorded. All functions need the thread
 * of the context.
 */
#ifndef DF_LAZY_GRAD_H
#define DF_LAZY_GRAD_H

#include "deft/grad.h"
#include "lazy/core/annotations.h"
#include "lazy/core/recorder.h"

enum {
    /* the record depends, through floats, on a tensor whose gradient is wanted */
    DF_GRAD_ACTIVE = 1,
    DF_GRAD_ANNOTATED = 2, /* the record has gradient annotations */
    /* The record is an update in a chain that fills an empty tensor piece by piece, as deft_concat
     * records it. No piece is written twice, so the gradient passes to the base unchanged. */
    DF_GRAD_JOINED = 4,
    DF_GRAD_ASKED = 8,   /* the gradient of this record itself is wanted */
    DF_GRAD_PIECES = 16, /* its gradient so far is a list of pieces in df_grad.piece */
    /* The gradient of the record, or of one that it is a view of, is wanted or has annotations. */
    DF_GRAD_CARED = 32,
    /* The record is a part (df_part_read) of a record that is DF_GRAD_CARED, which gets its
     * gradient. */
    DF_GRAD_PART = 64,
    /* The record has the kept value of the record right before it, which gets its gradient. */
    DF_GRAD_KEPT = 128
};

/* A part of the gradient of a sliced record that is not recorded yet: slice k of it has
 * gradient g. */
typedef struct df_grad_piece {
    uint32_t k, g;
    uint32_t next; /* the earlier piece of the same operand, or DF_BAD */
} df_grad_piece;

struct df_grad;

/* The rule of one op: adds to the gradients of the operands of record k, whose gradient
 * is g. Returns false with the error recorded. df_grad_none marks ops without a gradient
 * and is never called. */
typedef bool (*df_grad_rule)(struct df_grad *w, uint32_t k, uint32_t g);

/* What a walk does at each record that has a gradient. */
typedef struct df_grad_rules {
    df_grad_rule of_op[DF_N_OPS];
    /* Called when the gradient of the annotated record k is complete, with *goes_on true. Sets
     * *goes_on to false when the rule of its op must not run. Returns false with the error
     * recorded. */
    bool (*meet_annotations)(struct df_grad *w, uint32_t k, bool *goes_on);
} df_grad_rules;

/* One walk. The lists are owned by the walk. */
typedef struct df_grad {
    deft_ctx *cx;
    const df_grad_rules *rules;
    const char *what; /* the public call, for messages */
    uint32_t from, n; /* records from .. from + n - 1 may have gradients */
    /* per record: its gradient so far, or DF_BAD; with DF_GRAD_PIECES: the index of the
     * latest piece */
    uint32_t *sum;
    uint8_t *flags; /* per record: DF_GRAD_* */
    DF_VEC(df_grad_piece) piece;
    uintptr_t site; /* call site of the record whose rule runs */
    /* A cache of df_grad_trace. A loop ends with a list of records of ops `next` and `stack`. The
     * last record of the list that was checked last is `end`, or DF_BAD. Whether a record of that
     * list is active is in end_is_active. */
    uint32_t end;
    bool end_is_active;
    uint32_t n_mistakes; /* df_mistakes when the walk began; later mistakes are its own */
    uint8_t mixed;       /* the context's policy of mixed precision, which is off during the walk */
} df_grad;

/* Begins a walk over the records from index `from` to the last one. Returns false, with
 * the error recorded, when memory runs out. Call df_grad_finish in any case. The new
 * gradients are records after those, and are not walked over. */
bool df_grad_init(df_grad *w, deft_ctx *cx, const char *what, uint32_t from,
                  const df_grad_rules *rules);
/* Frees the lists of the walk, and restores the context's policy of mixed precision. */
void df_grad_finish(df_grad *w);

/* Asks for the gradient of record k. A record outside the range of the walk is ignored. Called
 * before df_grad_trace. */
void df_grad_with(df_grad *w, uint32_t k);
/* Marks the records that depend on those as active. Called before df_grad_give and
 * df_grad_walk. */
void df_grad_trace(df_grad *w);
/* Adds g to the gradient of record k, unless k is not active. k's shape must broadcast to
 * the shape of g. The call sums g down to that shape and casts g to k's dtype. Returns
 * false on an error, and when g is DF_BAD; else true, also when k is not active. */
bool df_grad_give(df_grad *w, uint32_t k, uint32_t g);
/* Walks from the last record to the first. After that df_grad_of gives complete
 * gradients. Returns false with the error recorded. */
bool df_grad_walk(df_grad *w);

/* Whether record k is DF_GRAD_ACTIVE. A record outside the range of the walk is not. */
DF_INLINE bool df_grad_is_active(const df_grad *w, uint32_t k)
{
    return k - w->from < w->n && (w->flags[k - w->from] & DF_GRAD_ACTIVE);
}

/* Records op on records a and b, with the call site of the walk. DF_BAD passes through. */
DF_INLINE uint32_t df_grad_map2(df_grad *w, df_op op, uint32_t a, uint32_t b)
{
    return df_map2(w->cx, op, a, b, w->site);
}

/* Returns the gradient of record x with g added at the elements that view k of x shows.
 * sum: the gradient of x so far, or DF_BAD. The first view writes into zeros, later ones
 * into the gradient so far. So a tensor with many views has one gradient, and not a sum
 * with a term for each view. The caller stores the result in w->sum. DF_BAD: an error. */
uint32_t df_grad_add_place(df_grad *w, uint32_t x, uint32_t sum, uint32_t k, uint32_t g);
/* Records the gradient of record k from its pieces, stores it in w->sum, and clears DF_GRAD_PIECES,
 * which k must have. Resets the arena cx->pass. DF_BAD: an error. */
uint32_t df_grad_join(df_grad *w, uint32_t k);

/* The gradient of record k so far. DF_BAD: it has none, or an error. May call df_grad_join. */
DF_INLINE uint32_t df_grad_of(df_grad *w, uint32_t k)
{
    if (k - w->from >= w->n) return DF_BAD;
    if (DF_UNLIKELY(w->flags[k - w->from] & DF_GRAD_PIECES)) return df_grad_join(w, k);
    return w->sum[k - w->from];
}

/* Operand i of record k. */
DF_INLINE uint32_t df_grad_src(const df_grad *w, uint32_t k, uint32_t i)
{
    return w->cx->rec.nodes[k].src[i].i;
}

/* Computes whether record k is DF_GRAD_JOINED. The flags of all earlier records have been
 * computed. */
bool df_grad_is_joined(const df_grad *w, uint32_t k);

/* Zeros of record k's shape and dtype. */
DF_INLINE uint32_t df_grad_zeros(deft_ctx *cx, uint32_t k, uintptr_t site)
{
    df_shape s;
    df_rec_shape(&cx->rec, k, &s);
    const uint32_t zero = df_cst(cx, df_dtype_at(cx, k), 0, site);
    return s.rank ? df_expand_to(cx, zero, &s, site) : zero;
}

/* a with the elements along one axis in reverse order. */
uint32_t df_grad_turned(df_grad *w, uint32_t a, uint32_t axis);

/* When operand 1 of product k shows windows of images, adds to the gradient of these images
 * (grad_windows.c), and sets *is_done. Operand 1 itself then needs no gradient. g is that of k.
 * Returns false with the error recorded. */
bool df_grad_windows(df_grad *w, uint32_t k, uint32_t g, bool *is_done);

/* Adds to the gradient of matrix b. Each matrix of the batch a was multiplied by b from the right,
 * and g has the gradients of these products. One product over all their rows is recorded. Returns
 * false with the error recorded. */
bool df_grad_shared_matrix(df_grad *w, uint32_t b, uint32_t a, uint32_t g);

/* Declares the rule of each op that has one, as a df_grad_rule. */
#define OP(name, n_src, class, facets) facets
#define GRAD(rule) bool df_grad_##rule(df_grad *w, uint32_t k, uint32_t g);
#include "ops/ops.def"

/* ---- custom functions and hooks (custom.c), records recorded again (replay.c) ---- */

/* A call of a custom function. */
typedef struct df_custom_call {
    const char *what; /* names it in messages; lives as long as its records */
    deft_body_fn forward;
    void *forward_user;
    deft_backward_fn backward; /* NULL: gradients pass through what forward records */
    deft_op_batch_fn batch;    /* NULL: no batch rule */
    void *user;                /* of the last two */
    df_op_held *held;          /* a counted reference is taken; NULL: not an operator */
    bool is_ours;              /* as below */
} df_custom_call;
/* Calls f->forward, which sets out[0..n_out), and annotates these results. Returns false with the
 * error recorded, and then all of out are NULL. */
bool df_custom_record(deft_ctx *cx, const df_custom_call *f, deft_tensor *const *in, size_t n_in,
                      deft_tensor **out, size_t n_out, uintptr_t site);

/* Does what deft_custom_grad does. site: return address of the user's call. is_ours: both functions
 * belong to the library, so the records that they make get the user's call site. Returns false with
 * the error recorded, and then all of out are NULL. */
bool df_custom_grad(deft_ctx *cx, deft_body_fn forward, deft_backward_fn backward, void *user,
                    deft_tensor *const *in, size_t n_in, deft_tensor **out, size_t n_out,
                    uintptr_t site, bool is_ours);

/* A new record with the value of a, for annotations, or for taking gradients with respect
 * to it. */
uint32_t df_grad_placeholder(deft_ctx *cx, uint32_t a, uintptr_t site);

/* The captures of a body or branch: active records that it uses and does not compute. */
typedef struct df_captures {
    const df_grad *w;
    uint32_t *slot; /* per record of w: 1 + its index in record[], or 0 */
    uint32_t *record;
    uint32_t n;
} df_captures;

/* A copy of the records [low, high), which are recorded again one by one. */
typedef struct df_replay {
    deft_ctx *cx;
    uint32_t low, high;
    uint32_t *map;   /* per record of the range: its copy, or DF_BAD: not recorded again */
    uint32_t loop;   /* the loop whose body is copied, or DF_BAD */
    uint32_t around; /* the new loop, which the copies name in its place; DF_BAD: no loop */
    /* captures that have replacements; NULL: records from outside are used themselves */
    const df_captures *outer;
    const uint32_t *local; /* per capture of outer: its replacement */
    /* df_vmap_call when the copies have one more axis, that of examples; else NULL */
    df_map_each_fn map_each;
} df_replay;

/* The record that a copy uses in place of record k: its copy, its replacement, or k
 * itself. */
uint32_t df_grad_now(const df_replay *p, uint32_t k);
/* Gives the copies the annotations of their originals. When a copy has an axis more, its
 * first axis numbers examples (vmap.h), and the user's functions see one example at a
 * time. Of a custom function, all results must be copied, or none. Returns false with the
 * error recorded. */
bool df_grad_copy_annotations(const df_replay *p);

/* The meet_annotations of the table of rules (df_grad_rules). */
bool df_grad_meet_annotations(df_grad *w, uint32_t k, bool *goes_on);

#endif
