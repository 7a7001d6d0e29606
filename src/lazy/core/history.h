/* SPDX-License-Identifier: Apache-2.0
 *
 * What a context remembers of earlier epochs, so that a step that is recorded again costs
 * only comparisons.
 *
 * Histories. The records of the last epoch stay in memory. Each new record is compared
 * with the record at the same position of the earlier epoch. Two records are equal when
 * op, dtype, operands and attribute are; extents and arguments may differ. While all
 * records are equal, recording writes nothing but call sites and arguments. While the
 * extents are equal too, the rules of dtypes and shapes are not evaluated, because the
 * stored record has their results.
 *
 *   position  0 . . . . . . . . n . . . . . . . n_known
 *             equal so far      | records of the earlier epoch; the next
 *                               | record is compared with the one at n
 *
 * When an epoch diverges, its records so far are copied to another history, and the old
 * history is kept. A context holds a few histories. Whenever it diverges it searches them
 * for one that has the records of the current epoch and the next record.
 *
 * Cached cuts. Two cuts have the same trace when they want the same records and all
 * records up to there are equal. The earlier cut is then refreshed (arguments, extents,
 * addresses) instead of extracted, keyed and looked up again. Guards are checked every
 * time.
 *
 * All functions need the thread of the context.
 */
#ifndef DF_LAZY_HISTORY_H
#define DF_LAZY_HISTORY_H

#include "lazy/core/lazy.h"

/* Called before a record is appended that differs from the history at its position rec.n:
 * node, whose extents begin at `shape`. Replaces cx->rec by a history where `node` may be
 * appended to the records of this epoch. That history has either the same node or no
 * known record at that position. Never fails. */
void df_history_diverge(deft_ctx *cx, df_node node, uint32_t shape);
/* Removes all records of r, at the end of an epoch. Forgets the records and cuts of the
 * history on which no later epoch may rely. */
void df_history_rewind(deft_ctx *cx, df_rec *r);
/* Called after cx->look_at has changed. */
void df_history_look(deft_ctx *cx);
/* Called before the records from index n on are removed in the middle of an epoch. */
void df_history_truncate(deft_ctx *cx, uint32_t n);
/* Called when the records get new numbers. This epoch then has no history. */
void df_history_renumber(deft_ctx *cx);
/* Frees the histories and the cached cuts, when the context ends. */
void df_history_finish(deft_ctx *cx);

/* ---- cached cuts ---- */

/* Value of df_rec.last_cut: the chain of cuts does not tell which records have values. */
#define DF_CUT_UNKNOWN UINT32_MAX

typedef struct df_input_use {
    /* a record that has a value, and the input of the trace that reads the value */
    uint32_t record, input;
} df_input_use;

typedef struct df_cut {
    /* df_rec.id and df_rec.last_cut when the cut was made; history 0: cannot be used
     * again */
    uint32_t history, before;
    uint32_t id;
    uint32_t high;  /* the highest record that the cut needs */
    uint64_t used;  /* serial of its latest use */
    df_arena arena; /* owns everything below but the plan */
    df_trace *t;
    df_key key; /* n is 0 until the key has been computed */
    /* the roots before overlaps of memory were considered; t->roots are the final ones */
    df_root *asked;
    bool is_of_host; /* it calls an opaque operator, so it runs on the CPU */
    bool avoids;     /* faults are possible: no root is written directly into wrapped memory */
    uint32_t *want;  /* the wanted records */
    uint32_t n_want;
    df_input_use *use;
    uint32_t n_use;
    uint32_t *arg_from; /* per argument of t: its index in df_rec.args */
    /* per node of t: the record that it computes; DF_NONE: an input */
    uint32_t *record;
    /* number of nodes that earlier cuts of the epoch also computed; the first such node */
    uint32_t n_again, first_again;
    deft_device where; /* the device on which the cut runs */
    /* number of inputs that are read; the inputs after those are only written */
    uint32_t n_read;
    bool logged_staged;
    /* why the last attempt to refresh the cut failed; NULL: it was refreshed */
    const char *differs;
    df_value **inputs;  /* per input: its value in the latest run, borrowed */
    df_buffer **staged; /* per input: its copy on device `where` during a run; NULL: not copied */
    df_buffer **back;   /* per root: host buffer for the result during a run; NULL: not needed */
    df_buffer **bufs;
    const df_buffer **in;
    df_counted *plan; /* a df_plan_entry, counted; NULL: not found yet */
} df_cut;

/* The cached cut for the n wanted records, refreshed. NULL when no cached cut fits. The
 * context owns the cut. */
df_cut *df_cut_again(deft_ctx *cx, const df_want *want, uint32_t n);
/* An empty cut for the caller to fill, which replaces the least recently used one. NULL
 * when there is no memory. The context owns the cut. */
df_cut *df_cut_new(deft_ctx *cx);
/* An entry of the plan cache. */
typedef struct df_plan_entry {
    df_counted counted; /* must be the first member */
    deft_runtime *rt;   /* borrowed: contexts hold a reference to it, and the cache ends with it */
    df_device *dev;     /* a device of rt, for which the plan is prepared */
    df_plan *plan;
} df_plan_entry;

/* The plan of the entry whose first member is c. NULL when c is NULL. */
DF_INLINE const df_plan *df_plan_held(const df_counted *c)
{
    return c ? ((const df_plan_entry *)(const void *)c)->plan : NULL;
}

/* Checks the guards of the latest cut's plan once more. For benchmarks. */
bool df_last_guards_hold(deft_ctx *cx);
/* Called after m has run. Later cuts of this epoch depend on m having run before them. */
void df_cut_done(deft_ctx *cx, df_cut *m);

/* ---- records that are computed again (recompute.c) ---- */

/* Called before the records from index n on are removed in the middle of an epoch. */
void df_again_truncate(deft_ctx *cx, uint32_t n);
/* Called before records get new numbers. map[i] is the new number of record i, or DF_NONE when
 * the record is removed. */
void df_again_renumber(deft_ctx *cx, const uint32_t *map);

/* Called before a new cut is made, which may replace a cached cut of this epoch. Notes
 * for each record whether the cuts of this epoch have computed it. */
void df_again_note(deft_ctx *cx);
/* Sets n_again and first_again of m: the nodes that earlier cuts of this epoch computed
 * too. */
void df_again_count(deft_ctx *cx, df_cut *m);
/* Whether computing node n takes time: a view, a leaf or a `pass` does not, but a random draw. */
DF_INLINE bool df_is_work(const df_node *n)
{
    const int cls = df_op_infos[n->op].cls;
    return cls != DF_CLASS_view && n->op != DF_OP_pass &&
           (cls != DF_CLASS_leaf || n->op == DF_OP_random);
}

/* Called after m has run. When the chain of cuts does not tell which records this epoch's
 * cuts have computed (DF_CUT_UNKNOWN), notes the records of m one by one. Else does
 * nothing. */
void df_again_add(deft_ctx *cx, const df_cut *m);
/* Called after m has run: df_again_add, and an event when m has computed records again. */
void df_again_ran(deft_ctx *cx, const df_cut *m);

#endif
