/* SPDX-License-Identifier: Apache-2.0
 *
 * What a context remembers of earlier epochs, so that a step recorded again costs a comparison.
 *
 * The spine. The records of the last epoch stay where they are. While every record of this epoch
 * equals the one that stood at its place (op, dtype, operands, attribute; extents and arguments may
 * differ), recording writes nothing but call sites and arguments; and while the extents are equal
 * too, the dtype and shape rules need not be asked again, because the answer stands there.
 *
 *   records   0 1 2 3 . . . n  . . . . n_known
 *             equal so far     | of the earlier epoch; next is compared with record n
 *
 * Where an epoch takes another turn, what it has so far goes on in a spine of its own, and the old
 * one is kept: a context holds a few such continuations and looks among them whenever it leaves
 * one.
 *
 * Made cuts. A cut that wants the records that an earlier one wanted, from records equal up to
 * there, has the same trace: it is refreshed (arguments, extents, addresses) instead of extracted,
 * keyed and looked up. Guards are checked as ever.
 */
#ifndef DF_LAZY_HISTORY_H
#define DF_LAZY_HISTORY_H

#include "lazy/core/lazy.h"

/* node at place n with that shape index: equal to what stands there? If not, the epoch leaves the
 * spine: cx->rec is then one where record n may be written. Never fails. */
void df_history_diverge(deft_ctx *cx, df_node node, uint32_t shape);
/* All records go, and with them what no later epoch may rely on. */
void df_history_rewind(deft_ctx *cx, df_rec *r);
/* cx->look_at has changed. */
void df_history_look(deft_ctx *cx);
/* Records from n on go in the middle of an epoch. */
void df_history_truncate(deft_ctx *cx, uint32_t n);
/* Records are numbered afresh: this epoch is one that has never been. */
void df_history_renumber(deft_ctx *cx);
void df_history_finish(deft_ctx *cx);

/* ---- made cuts ---- */

/* df_rec.last_cut: which records have values is not on record. */
#define DF_CUT_UNKNOWN UINT32_MAX

typedef struct df_input_use {
    uint32_t record, input; /* a record that has a value, and the trace's input that reads it */
} df_input_use;

typedef struct df_cut {
    uint32_t history, before; /* df_rec.id and df_rec.last_cut when it was made; spine 0: none */
    uint32_t id;
    uint32_t high;  /* the last record it needs */
    uint64_t used;  /* serial of its latest use */
    df_arena arena; /* all below but plan */
    df_trace *t;
    df_key key;     /* n 0: not asked for yet */
    df_root *asked; /* t->roots before overlaps were looked at */
    bool avoids;    /* faults are possible: no root is written in place */
    uint32_t *want; /* wanted records */
    uint32_t n_want;
    df_input_use *use;
    uint32_t n_use;
    uint32_t *arg_from;            /* per argument of t: its place in the records */
    uint32_t *record;              /* per node of t: the record it computes; DF_NONE: an input */
    uint32_t n_again, first_again; /* nodes that earlier cuts computed too; the first of them */
    deft_device where;             /* it runs there */
    uint32_t n_read;               /* inputs from here on are only written */
    bool logged_staged;
    const char *differs; /* why it was not made again when that was last tried; NULL: it was */
    df_value **inputs;   /* per input, of the latest run */
    df_buffer **staged;  /* per input: its copy where it is read, for a run; NULL: none */
    df_buffer **back;    /* per root: room on the host, for a run; NULL: not needed */
    df_buffer **bufs;
    const df_buffer **in;
    df_counted *plan; /* counted; NULL: not found yet */
} df_cut;

/* The cut for these wanted records as it was made before, refreshed; NULL when there is none that
 * fits. */
df_cut *df_cut_again(deft_ctx *cx, const df_want *want, uint32_t n);
/* A cut to be made: the least recently used one, empty. NULL when there is no memory. */
df_cut *df_cut_new(deft_ctx *cx);
/* What the plan cache holds. */
typedef struct df_plan_entry {
    df_counted counted; /* first */
    deft_runtime *rt;   /* borrowed: the cache dies with it, and contexts hold it */
    df_device *dev;     /* of rt: the plan was prepared there */
    df_plan *plan;
} df_plan_entry;

/* The plan of the entry that c is part of. NULL for c NULL. */
DF_INLINE const df_plan *df_plan_held(const df_counted *c)
{
    return c ? ((const df_plan_entry *)(const void *)c)->plan : NULL;
}

/* The guards of the latest cut's plan, checked once more (bench). */
bool df_last_guards_hold(deft_ctx *cx);
/* m has run: later cuts of this epoch come after it. */
void df_cut_done(deft_ctx *cx, df_cut *m);

/* ---- what is told of cuts (why.c) ---- */

/* Before a cut is made that may take another's place: what those of this epoch computed is noted.
 */
void df_again_note(deft_ctx *cx);
/* Looks which records of m were computed before. */
void df_again_count(deft_ctx *cx, df_cut *m);
DF_INLINE bool df_is_work(const df_node *n)
{
    const int cls = df_op_infos[n->op].cls;
    return cls != DF_CLASS_view && (cls != DF_CLASS_leaf || n->op == DF_OP_random);
}

/* m has run, and which records its epoch's cuts computed is no longer known from the chain of cuts:
 * its records are noted one by one. Nothing happens when the chain is known. */
void df_again_add(deft_ctx *cx, const df_cut *m);
/* m has run. */
void df_again_ran(deft_ctx *cx, const df_cut *m);

/* No plan was found for m: of n_misses that have its key a guard did not hold. */
void df_why_miss(deft_ctx *cx, const df_cut *m, uint32_t n_misses);
/* p was made for m. */
void df_why_plan(deft_ctx *cx, const df_cut *m, uint32_t n_misses, const df_plan *p);
/* Says in the plan what its kernels stand for. false: no memory. */
bool df_why_kernels(df_plan *p, const df_trace *t);

#endif
