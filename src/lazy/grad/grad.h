/* SPDX-License-Identifier: Apache-2.0
 *
 * Reverse mode over the records. Records are in topological order, so one walk from the last to the
 * first meets each when its gradient is complete; its rule then adds to the gradients of its
 * operands. Rules record ordinary operations, with the call site of what they differentiate.
 *
 *   grad.c        the walk, and the public calls
 *   grad_marks.c  records that the walk treats otherwise: stopped, hooked, custom
 *   grad_maps.c   rules of elementwise ops
 *   grad_shape.c  rules of views, reductions, indexing and products
 *   grad_loop.c   loops and branches
 *
 * A gradient always has the shape and dtype of its record.
 */
#ifndef DF_LAZY_GRAD_H
#define DF_LAZY_GRAD_H

#include "deft/grad.h"
#include "lazy/capture/recording.h"

enum {
    DF_GRAD_ACTIVE = 1, /* depends, as a float, on what gradients are asked for */
    DF_GRAD_MARKED = 2, /* has marks */
    DF_GRAD_JOINED = 4, /* an update of memory that nothing else has filled yet, see grad_shape.c */
    DF_GRAD_ASKED = 8,  /* its own gradient is asked for */
    DF_GRAD_PIECES = 16 /* its gradient so far is a list of pieces, in df_grad.piece */
};

/* What slice k of its operand adds to the operand's gradient, not recorded yet. */
typedef struct df_grad_piece {
    uint32_t k, g;
    uint32_t next; /* the piece of the same operand before it, or DF_BAD */
} df_grad_piece;

typedef struct df_grad {
    deft_ctx *cx;
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

/* A walk over records [from, now). false: an error; finish it in any case. */
bool df_grad_init(df_grad *w, deft_ctx *cx, const char *what, uint32_t from);
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
uint32_t df_grad_zeros(deft_ctx *cx, uint32_t k, uintptr_t site);

/* a with one axis turned round. */
uint32_t df_grad_turned(df_grad *w, uint32_t a, uint32_t axis);

/* One rule: gives what the operands of record k get when its gradient is g. df_grad_none stands for
 * a constant and is never called. */
typedef bool (*df_grad_rule)(df_grad *w, uint32_t k, uint32_t g);

#define OP(name, n_src, class, facets) facets
#define GRAD(rule) bool df_grad_##rule(df_grad *w, uint32_t k, uint32_t g);
#include "ops/ops.def"

/* ---- marks (grad_marks.c) ---- */

typedef struct df_custom {
    struct df_custom *next;
    deft_backward_fn backward;
    void *user;
    uint32_t n_in, n_out;
    const struct df_custom *batch_of; /* what this is for many examples of; NULL: nothing */
    bool is_ours;      /* its functions are deft's: what they record belongs to the call's site */
    bool may_work;     /* each runs once: in no loop, branch or vmap, and not for one either */
    uint32_t record[]; /* n_in records, then n_out */
} df_custom;

/* deft_custom_grad, for the call at site. */
bool df_custom_grad(deft_ctx *cx, deft_body_fn forward, deft_backward_fn backward, void *user,
                    deft_tensor *const *in, size_t n_in, deft_tensor **out, size_t n_out,
                    uintptr_t site, bool is_ours);

/* A record of its own for a, of the same value: to bear marks, or to take gradients with respect
 * to.
 */
uint32_t df_grad_stand_in(deft_ctx *cx, uint32_t a, uintptr_t site);

/* deft_cond has recorded its first branch from `then` on, the other from `otherwise` to now; the
 * conds follow. false: an error. */
bool df_grad_mark_branches(deft_ctx *cx, uint32_t record, uint32_t then, uint32_t otherwise);
/* The branches that cond k chooses between. */
const df_grad_mark *df_grad_branches(const deft_ctx *cx, uint32_t k);
/* Record i becomes map[i], or goes: DF_NONE; of i records below[i] stay. Before they move. */
void df_grad_marks_renumber(deft_ctx *cx, const uint32_t *map, const uint32_t *below);
/* The custom function of which record k is a result; NULL: none. */
const df_custom *df_grad_custom_of(const deft_ctx *cx, uint32_t k);

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
    const uint32_t *local;    /* what stands for each of them */
} df_replay;

/* What stands for record k. */
uint32_t df_grad_now(const df_replay *p, uint32_t k);
/* What was recorded again gets the same marks; where a record has an axis more, the first numbers
 * examples (vmap.h), and functions of the user see one at a time. All results of a custom function
 * were, or none. false: an error. */
bool df_grad_copy_marks(const df_replay *p);

/* Flags the records of w that have marks. */
void df_grad_find_marks(df_grad *w);
/* Whether a marked record passes on what its operands depend on: of a custom function, what went
 * into it; a stop nothing. is_active: whether its own operands do. */
bool df_grad_mark_is_active(const df_grad *w, uint32_t k, bool is_active);
/* The gradient of marked record k is complete. *goes_on: whether its op's rule is to be asked. */
bool df_grad_meet_marks(df_grad *w, uint32_t k, bool *goes_on);

#endif
