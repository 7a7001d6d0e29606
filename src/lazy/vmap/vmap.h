/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_vmap: a function for many examples at once. The function is recorded once, on
 * placeholders for one example. Then those of its records that depend on an example are
 * recorded again, one by one. The new records have an axis of examples before all others,
 * as the BATCH facets of ops.def say.
 *
 *   vmap.c        the public call, what depends on examples, the walk
 *   vmap_rules.c  rules of all ops but control
 *   vmap_loop.c   loops and branches
 *   vmap_op.c     operators with a batch rule (deft/extend.h)
 *   vmap_move.c   short forms for the rules
 *
 * The records that the function made on placeholders stay, but no result depends on them.
 * All functions need the thread of the context. Functions that return a record return
 * DF_BAD, with the error recorded, on failure.
 */
#ifndef DF_LAZY_VMAP_H
#define DF_LAZY_VMAP_H

#include "deft/vmap.h"
#include <string.h>

#include "lazy/core/annotations.h"
#include "lazy/core/recorder.h"

enum {
    DF_VMAP_NEEDED = 1, /* a result depends on the record */
    /* the record differs from example to example: its copy has the axis of examples */
    DF_VMAP_BATCHED = 2,
    /* the record is the same for all examples, but belongs to a loop or branch that is
     * recorded again */
    DF_VMAP_MOVED = 4,
    DF_VMAP_RULED = 8, /* the rule of its op is used although it is not BATCHED */
    /* a loop that ends after a different number of iterations for each example */
    DF_VMAP_MASKED = 16,
    DF_VMAP_CUSTOM = 32, /* a result of a custom function */
    DF_VMAP_INNER = 64   /* with CUSTOM: what the body of the operator has recorded is needed */
};

typedef struct df_vmap {
    deft_ctx *cx;
    int64_t extent;   /* number of examples */
    uint32_t from, n; /* records from .. from + n - 1 are the function's */
    uint32_t *now;    /* per record: its copy, or DF_BAD: the record itself is used */
    /* per record that is in a loop's list or enters a loop: that loop; else DF_BAD */
    uint32_t *loop;
    uint32_t *value; /* per record: work space of df_batch_list */
    uint8_t *flags;  /* per record: DF_VMAP_* */
    uintptr_t site;  /* call site of the record whose rule runs */
} df_vmap;

/* ---- operators with a batch rule (vmap_op.c) ---- */

/* Whether record k, which is a result of custom function c, is recorded for all examples by the
 * batch rule of its operator. What its body has recorded is then not needed. */
DF_INLINE bool df_vmap_has_rule(const df_vmap *w, const df_custom *c, uint32_t k)
{
    return c->batch && !c->batch_of && !(w->flags[k - w->from] & DF_VMAP_INNER);
}
/* Records all results of c for all examples. Sets w->now of each. Returns false with the error
 * recorded. */
bool df_vmap_by_rule(df_vmap *w, const df_custom *c);

/* deft_vmap for the call that returns to `site`. what: the public call, for messages.
 * Returns false, with the error recorded and out[] set to NULL, on failure. */
bool df_vmap_call(deft_ctx *cx, const char *what, deft_body_fn fn, void *user,
                  deft_tensor *const *in, const int *in_axes, size_t n_in, deft_tensor **out,
                  const int *out_axes, size_t n_out, uintptr_t site);

/* The flags of record k; 0 for a record from outside the function. */
DF_INLINE uint32_t df_vmap_flags(const df_vmap *w, uint32_t k)
{
    return k - w->from < w->n ? w->flags[k - w->from] : 0;
}

/* Whether record k is BATCHED. */
DF_INLINE bool df_vmap_is_batched(const df_vmap *w, uint32_t k)
{
    return (df_vmap_flags(w, k) & DF_VMAP_BATCHED) != 0;
}

/* The copy of record k, which has the axis of examples when k is BATCHED. k itself when
 * it has no copy. */
DF_INLINE uint32_t df_vmap_now(const df_vmap *w, uint32_t k)
{
    if (k - w->from >= w->n || w->now[k - w->from] == DF_BAD) return k;
    return w->now[k - w->from];
}

/* Broadcasts record a, which is the same for all examples, to an axis of examples. DF_BAD
 * passes through, here and below. */
uint32_t df_vmap_spread(df_vmap *w, uint32_t a);
/* The copy of record k with an axis of examples, whether k is BATCHED or not. */
uint32_t df_vmap_for_each(df_vmap *w, uint32_t k);
/* Inserts n_axes axes of extent 1 behind the axis of examples of record a. */
uint32_t df_vmap_lift(df_vmap *w, uint32_t a, uint32_t n_axes);
/* Moves axis `from` of record a to position `to`. The other axes keep their order. */
uint32_t df_vmap_move(df_vmap *w, uint32_t a, uint32_t from, uint32_t to);
/* Records record k again, on the operands src. */
uint32_t df_vmap_again(df_vmap *w, uint32_t k, const uint32_t *src);

/* The rule of one op: records record k for all examples. src: the copies of its operands.
 * Bit i of batched: operand i is BATCHED. df_batch_none marks ops without a rule and is
 * never called. */
typedef uint32_t (*df_batch_rule)(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched);

#define OP(name, n_src, class, facets) facets
#define BATCH(how, what) DF_BATCH_##how(what)
#define DF_BATCH_rule(what)                                                                        \
    uint32_t df_batch_##what(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched);
#define DF_BATCH_signature(what)
#include "ops/ops.def"
#undef DF_BATCH_rule
#undef DF_BATCH_signature

/* The rule of all ops that have a signature in ops.def. */
uint32_t df_batch_signature(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched);
/* The rule of an op. */
df_batch_rule df_batch_rule_of(df_op op);

/* Sets the flags of control record k from those of its operands. Returns whether any
 * flags changed, also those of other records. */
bool df_vmap_see_control(df_vmap *w, uint32_t k);

/* ---- short forms ---- */

/* Record k, its shape, and a view of record a (DF_BAD passes through). */
DF_INLINE df_node df_vmap_node_at(const df_vmap *w, uint32_t k)
{
    return w->cx->rec.nodes[k];
}

DF_INLINE df_shape df_vmap_shape_of(const df_vmap *w, uint32_t k)
{
    df_shape s = { 0 };
    df_rec_shape(&w->cx->rec, k, &s);
    return s;
}

/* The shape of record k with an axis of examples. */
DF_INLINE df_shape df_vmap_shape_for_all(const df_vmap *w, uint32_t k)
{
    const df_shape s = df_vmap_shape_of(w, k);
    df_shape all = { .rank = s.rank + 1, .dim = { w->extent } };
    df_assert(s.rank < DEFT_MAX_RANK);
    memcpy(all.dim + 1, s.dim, s.rank * sizeof *s.dim);
    return all;
}

DF_INLINE uint32_t df_vmap_view(df_vmap *w, df_op op, uint32_t a, uint32_t attr,
                                const df_shape *out)
{
    if (a == DF_BAD) return DF_BAD;
    return df_append(w->cx, op, df_dtype_at(w->cx, a), attr, &a, NULL, 0, out, w->site);
}

#endif
