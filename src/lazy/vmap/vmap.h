/* SPDX-License-Identifier: Apache-2.0
 *
 * Many examples at once. A function is recorded once, on stand-ins for one example; then its
 * records that depend on one are recorded again, one by one, with an axis of examples before all
 * others, as the BATCH facets of ops.def say.
 *
 *   vmap.c        the public call; what depends on examples; the walk
 *   vmap_rules.c  rules of all ops but control
 *   vmap_loop.c   loops and branches
 *
 * What the walk leaves behind, the function's own records on stand-ins, no result depends on.
 */
#ifndef DF_LAZY_VMAP_H
#define DF_LAZY_VMAP_H

#include "deft/vmap.h"
#include <string.h>

#include "lazy/core/recorder.h"

enum {
    DF_VMAP_NEEDED = 1,  /* by a result */
    DF_VMAP_BATCHED = 2, /* one for each example */
    DF_VMAP_MOVED = 4,   /* the same for all, but part of a loop or branch that is recorded again */
    DF_VMAP_RULED = 8,   /* its rule is asked though it is not BATCHED */
    DF_VMAP_MASKED = 16, /* a loop that ends at another turn for each example */
    DF_VMAP_CUSTOM = 32  /* a result of a custom function */
};

typedef struct df_vmap {
    deft_ctx *cx;
    int64_t extent;   /* number of examples */
    uint32_t from, n; /* records from .. from + n - 1 are the function's */
    uint32_t *now;    /* per record: what stands for it, or DF_BAD: itself */
    uint32_t *loop;   /* per record in a loop's list, or entering one: that loop */
    uint32_t *value;  /* work space of df_batch_list */
    uint8_t *flags;   /* per record: DF_VMAP_* */
    uintptr_t site;   /* of the record whose rule runs */
} df_vmap;

/* deft_vmap, for the call at site; what: the public call, for messages. */
bool df_vmap_call(deft_ctx *cx, const char *what, deft_body_fn fn, void *user,
                  deft_tensor *const *in, const int *in_axes, size_t n_in, deft_tensor **out,
                  const int *out_axes, size_t n_out, uintptr_t site);

/* Flags of record k: none for what is from outside. */
DF_INLINE uint32_t df_vmap_flags(const df_vmap *w, uint32_t k)
{
    return k - w->from < w->n ? w->flags[k - w->from] : 0;
}

DF_INLINE bool df_vmap_is_batched(const df_vmap *w, uint32_t k)
{
    return (df_vmap_flags(w, k) & DF_VMAP_BATCHED) != 0;
}

/* What stands for record k: with the axis of examples when it is BATCHED. */
DF_INLINE uint32_t df_vmap_now(const df_vmap *w, uint32_t k)
{
    if (k - w->from >= w->n || w->now[k - w->from] == DF_BAD) return k;
    return w->now[k - w->from];
}

/* Record a, the same for all examples, once for each. DF_BAD passes through, here and below. */
uint32_t df_vmap_spread(df_vmap *w, uint32_t a);
/* The two together. */
uint32_t df_vmap_for_each(df_vmap *w, uint32_t k);
/* a, whose examples have `rank` axes fewer than they should, with axes of 1 behind that of the
 * examples. */
uint32_t df_vmap_lift(df_vmap *w, uint32_t a, uint32_t n_axes);
/* a with axis `from` where `to` is, and the others in order. */
uint32_t df_vmap_move(df_vmap *w, uint32_t a, uint32_t from, uint32_t to);
/* Record k once more on src. */
uint32_t df_vmap_again(df_vmap *w, uint32_t k, const uint32_t *src);

/* One rule: record k for all examples. src: what stands for its operands; bit i of batched: operand
 * i is BATCHED. df_batch_none is never called. */
typedef uint32_t (*df_batch_rule)(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched);

#define OP(name, n_src, class, facets) facets
#define BATCH(how, what) DF_BATCH_##how(what)
#define DF_BATCH_rule(what)                                                                        \
    uint32_t df_batch_##what(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched);
#define DF_BATCH_signature(what)
#include "ops/ops.def"
#undef DF_BATCH_rule
#undef DF_BATCH_signature

uint32_t df_batch_signature(df_vmap *w, uint32_t k, const uint32_t *src, uint32_t batched);
/* The rule of an op. */
df_batch_rule df_batch_rule_of(df_op op);

/* What of a loop depends on examples: flags of control record k, its operands' being known. Says
 * whether any other record's flags changed. */
bool df_vmap_see_control(df_vmap *w, uint32_t k);

/* ---- short forms ---- */

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

/* Of record k for all examples. */
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
