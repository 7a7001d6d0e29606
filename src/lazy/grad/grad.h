/* SPDX-License-Identifier: Apache-2.0
 *
 * Reverse mode over the records. Records are in topological order, so one walk from the last to the
 * first meets each when its gradient is complete; its rule then adds to the gradients of its
 * operands. Rules record ordinary operations, with the call site of what they differentiate.
 *
 *   grad.c        the public calls, and the table of rules
 *   custom.c      functions with a gradient of their own, hooks, stops
 *   grad_maps.c   rules of elementwise ops
 *   grad_shape.c  rules of views, reductions, indexing and products
 *   grad_loop.c   rules of loops and branches
 *   replay.c      records that are recorded again, with their marks
 *   walk.c        the walk
 *   pieces.c      gradients of slices, which are put together when they are wanted
 *   core/annotations.c   the list of marks
 *
 * A gradient always has the shape and dtype of its record.
 */
#ifndef DF_LAZY_GRAD_H
#define DF_LAZY_GRAD_H

#include "deft/grad.h"
#include "lazy/core/annotations.h"
#include "lazy/core/recorder.h"

enum {
    DF_GRAD_ACTIVE = 1,    /* depends, as a float, on what gradients are asked for */
    DF_GRAD_ANNOTATED = 2, /* has marks */
    DF_GRAD_JOINED = 4, /* an update of memory that nothing else has filled yet, see grad_shape.c */
    DF_GRAD_ASKED = 8,  /* its own gradient is asked for */
    DF_GRAD_PIECES = 16 /* its gradient so far is a list of pieces, in df_grad.piece */
};

/* What slice k of its operand adds to the operand's gradient, not recorded yet. */
typedef struct df_grad_piece {
    uint32_t k, g;
    uint32_t next; /* the piece of the same operand before it, or DF_BAD */
} df_grad_piece;

struct df_grad;

/* One rule: gives what the operands of record k get when its gradient is g. df_grad_none stands for
 * a constant and is never called. */
typedef bool (*df_grad_rule)(struct df_grad *w, uint32_t k, uint32_t g);

/* What a walk does at a record. */
typedef struct df_grad_rules {
    df_grad_rule of_op[DF_N_OPS];
    /* The gradient of marked record k is complete. *goes_on says whether the rule of its op is
     * asked, too. */
    bool (*meet_annotations)(struct df_grad *w, uint32_t k, bool *goes_on);
} df_grad_rules;

typedef struct df_grad {
    deft_ctx *cx;
    const df_grad_rules *rules;
    const char *what; /* the public call, for messages */
    uint32_t from, n; /* records from .. from + n - 1 may have gradients */
    uint32_t *sum;    /* per record: its gradient so far, or DF_BAD; of pieces: the newest one */
    uint8_t *flags;   /* per record: DF_GRAD_* */
    DF_VEC(df_grad_piece) piece;
    uintptr_t site;      /* of the record whose rule runs */
    uint32_t end;        /* of the loop whose finals were looked at last, */
    bool end_is_active;  /* and whether anything in its list is active */
    uint32_t n_mistakes; /* of the context when the walk began: more are the walk's own */
    uint8_t mixed;       /* the context's policy, which rests meanwhile */
} df_grad;

/* Begins a walk over records [from, now). Returns false, with the error recorded, when it cannot
 * begin. Call df_grad_finish in any case. */
bool df_grad_init(df_grad *w, deft_ctx *cx, const char *what, uint32_t from,
                  const df_grad_rules *rules);
void df_grad_finish(df_grad *w);

/* Gradients are asked for with respect to record k: before df_grad_trace. */
void df_grad_with(df_grad *w, uint32_t k);
/* Finds what depends on those. */
void df_grad_trace(df_grad *w);
/* Adds g to the gradient of record k, unless that does not depend on what is asked for. false: an
 * error, which g DF_BAD is too. g has a shape that k's broadcasts to; it is summed down to k's. */
bool df_grad_give(df_grad *w, uint32_t k, uint32_t g);
/* Walks back. After it df_grad_of is complete. */
bool df_grad_walk(df_grad *w);

DF_INLINE bool df_grad_is_active(const df_grad *w, uint32_t k)
{
    return k - w->from < w->n && (w->flags[k - w->from] & DF_GRAD_ACTIVE);
}

/* The gradient of x with g added at the elements that view k of x shows. sum is what there is of
 * the gradient, or DF_BAD. Beyond the first view of one tensor this writes over what there is. So
 * a tensor with many views gets one gradient, and not one for each view to be summed. */
uint32_t df_grad_add_place(df_grad *w, uint32_t x, uint32_t sum, uint32_t k, uint32_t g);
/* Records what the pieces of record k add up to. DF_BAD: an error. */
uint32_t df_grad_join(df_grad *w, uint32_t k);

/* The gradient of record k; DF_BAD: none, or an error. */
DF_INLINE uint32_t df_grad_of(df_grad *w, uint32_t k)
{
    if (k - w->from >= w->n) return DF_BAD;
    if (DF_UNLIKELY(w->flags[k - w->from] & DF_GRAD_PIECES)) return df_grad_join(w, k);
    return w->sum[k - w->from];
}

/* Record k's operand i. */
DF_INLINE uint32_t df_grad_src(const df_grad *w, uint32_t k, uint32_t i)
{
    return w->cx->rec.nodes[k].src[i].i;
}

/* Whether record k is DF_GRAD_JOINED, those before it being known. */
bool df_grad_is_joined(const df_grad *w, uint32_t k);

/* Zeros of record k's shape and dtype. */
DF_INLINE uint32_t df_grad_zeros(deft_ctx *cx, uint32_t k, uintptr_t site)
{
    df_shape s;
    df_rec_shape(&cx->rec, k, &s);
    const uint32_t zero = df_cst(cx, df_dtype_at(cx, k), 0, site);
    return s.rank ? df_expand_to(cx, zero, &s, site) : zero;
}

/* a with one axis turned round. */
uint32_t df_grad_turned(df_grad *w, uint32_t a, uint32_t axis);

#define OP(name, n_src, class, facets) facets
#define GRAD(rule) bool df_grad_##rule(df_grad *w, uint32_t k, uint32_t g);
#include "ops/ops.def"

/* ---- custom functions and hooks (custom.c), records recorded again (replay.c) ---- */

/* deft_custom_grad, for the call at site. */
bool df_custom_grad(deft_ctx *cx, deft_body_fn forward, deft_backward_fn backward, void *user,
                    deft_tensor *const *in, size_t n_in, deft_tensor **out, size_t n_out,
                    uintptr_t site, bool is_ours);

/* A record of its own for a, of the same value: to bear marks, or to take gradients with respect
 * to.
 */
uint32_t df_grad_placeholder(deft_ctx *cx, uint32_t a, uintptr_t site);

/* Active records of a walk that a body or branch uses and does not make. */
typedef struct df_captures {
    const df_grad *w;
    uint32_t *slot; /* per record of w: 1 + its place in record, or 0 */
    uint32_t *record;
    uint32_t n;
} df_captures;

/* Records [low, high), recorded again one by one. */
typedef struct df_replay {
    deft_ctx *cx;
    uint32_t low, high;
    uint32_t *map;            /* what stands for each, or DF_BAD: itself */
    uint32_t loop, around;    /* the loop whose body it is, or DF_BAD; and the loop of now */
    const df_captures *outer; /* NULL: what comes from outside stands for itself */
    df_map_each_fn map_each;  /* df_vmap_call, where records get an axis of examples; else NULL */
    const uint32_t *local;    /* what stands for each of them */
} df_replay;

/* What stands for record k. */
uint32_t df_grad_now(const df_replay *p, uint32_t k);
/* What was recorded again gets the same marks; where a record has an axis more, the first numbers
 * examples (vmap.h), and functions of the user see one at a time. All results of a custom function
 * were, or none. false: an error. */
bool df_grad_copy_annotations(const df_replay *p);

/* The gradient of marked record k is complete. *goes_on: whether its op's rule is to be asked. */
bool df_grad_meet_annotations(df_grad *w, uint32_t k, bool *goes_on);

#endif
