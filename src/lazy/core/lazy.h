/* SPDX-License-Identifier: Apache-2.0
 *
 * Private structures of the front door.
 *
 *   deft_tensor   a 32-byte handle in a slab; names a pending record, a value, or both
 *   df_rec        the pending records of a context: append-only between cuts
 *   df_value      a computed (or wrapped) tensor: a buffer seen through strides
 *   scope         a run of slabs; at each depth two runs alternate, so that a handle of the
 * iteration before is still recognized as ended
 *
 *        record.c          cut.c              materialize.c
 *   calls -----> df_rec ---------> df_trace -----------------> plan -> device -> df_value
 * size: one context, whose parts every file here touches: handles, records, scopes.
 */
#ifndef DF_LAZY_LAZY_H
#define DF_LAZY_LAZY_H

#define DEFT_NO_GENERIC
#include <string.h>

#include "base/env.h"
#include "base/fork.h"
#include "base/journal.h"
#include "base/site.h"
#include "base/vec.h"
#include "cache/cache.h"
#include "deft/deft.h"
#include "guards/reason.h"
#include "lazy/layer.h"
#include "ops/shape.h"
#include "runtime/cpu.h"
#include "trace/control.h"

/* ---- values ---- */

enum {
    DF_VALUE_WRAPPED = 1, /* the caller's memory */
    DF_VALUE_MUT = 2,     /* and assignments write it */
    DF_VALUE_FUTURE = 4   /* of the step in flight: no memory yet */
};

/* Held by handles, by record entries, by undo entries, by mappings: refs counts them all. One
 * thread. */
typedef struct df_value {
    df_buffer *buf;
    char *data; /* element [0,..] */
    uint32_t refs;
    uint8_t dtype, rank, flags;
    uint32_t in_records; /* of refs, those held by pending records */
    uint32_t input;      /* its input ordinal in the trace of the cut numbered `cut` */
    uint64_t cut;
    df_shape shape;
    int64_t stride[DEFT_MAX_RANK];
    struct df_value *next; /* in the context's free list */
} df_value;

/* ---- handles ---- */

enum {
    DF_HANDLE_LIVE = 1,
    DF_HANDLE_UNDO = 2,     /* the running step's undo log has its earlier binding */
    DF_HANDLE_WEAK = 4,     /* a bare number: takes the dtype of what it meets; has no record */
    DF_HANDLE_MUT = 8,      /* of deft_wrap_mut: listed in deft_ctx.muts */
    DF_HANDLE_CONST = 16,   /* WEAK: may be used in a capture */
    DF_HANDLE_UNSEEN = 16,  /* not WEAK, in place of LIVE: to be told to the recording when used */
    DF_HANDLE_PARAM = 32,   /* WEAK: number is the index of a capture's parameter */
    DF_HANDLE_VIEWED = 32,  /* not WEAK: views of it were made */
    DF_HANDLE_ESCAPED = 64, /* its scope has ended: it lives while it is kept */
    DF_HANDLE_FLIGHT = 128  /* the undo log of the step in flight has its earlier binding */
};

struct deft_tensor {
    df_value *value; /* counted; NULL while only pending */
    union {
        deft_tensor *root; /* the handle this is a view of, or NULL: see df_root_of */
        int64_t number;    /* WEAK: bits of an f64, or an i64 (place says which dtype) */
    };
    uint32_t node; /* its record, when epoch is the context's */
    uint32_t epoch;
    uint32_t place; /* the view record that names its place in root */
    uint16_t keeps;
    uint8_t flags;
    uint8_t failure; /* what it lacks (missed.c, lost.c): DF_FAILURE_*, or an index into missed */
};
enum {
    DF_FAILURE_NOTHING = 0,
    DF_FAILURE_VALUE = 255 /* it could not be computed: node is the number of the fault */
};
_Static_assert(sizeof(deft_tensor) == 32, "handles are what a pending op costs most");

#define DF_SLAB_SIZE ((size_t)8192)
#define DF_SLAB_MAGIC 0x6465667473616c62u

typedef struct df_slab {
    uint64_t magic;
    deft_ctx *cx;
    struct df_slab *next; /* of the same run */
    uintptr_t site;       /* where the scope was opened */
    uint32_t serial;      /* of the scope */
    uint32_t depth;
    uint32_t n; /* slots handed out since the scope was opened */
    bool open;
} df_slab;

#define DF_SLAB_SLOTS ((uint32_t)((DF_SLAB_SIZE - 64) / sizeof(deft_tensor)))
_Static_assert(sizeof(df_slab) <= 64, "slots start at byte 64");

DF_INLINE df_slab *df_slab_of(const deft_tensor *t)
{
    return (df_slab *)((uintptr_t)t & ~(uintptr_t)(DF_SLAB_SIZE - 1));
}

DF_INLINE deft_tensor *df_slab_slot(df_slab *s, uint32_t i)
{
    return (deft_tensor *)(void *)((char *)s + 64) + i;
}

/* ---- pending records ---- */

typedef struct df_rec {
    df_node *nodes;
    uint32_t *shape; /* first extent in ext; records of one shape share it */
    uintptr_t *site;
    uint32_t *val; /* index into vals, 0: pending */
    uint32_t n, cap;
    int64_t *ext;
    uint32_t n_ext, cap_ext;
    int64_t *args;
    uint32_t n_args, cap_args;
    DF_VEC(df_value *) vals; /* [0] unused */
    uint32_t n_inputs;       /* of n: records that are no calls */

    /* history.h */
    uint32_t id;       /* of what records have stood here; never 0 */
    uint32_t n_known;  /* records that stood here in an earlier epoch */
    uint32_t limit;    /* n_known while all records of this epoch are as then, else 0 */
    uint32_t same;     /* limit while their extents are too, else 0 */
    uint32_t last_cut; /* id of the latest made cut of this epoch; 0: none yet */
    bool diverged, stretched;
    uint64_t used; /* serial of its latest use */
} df_rec;

#define DF_HISTORIES 4 /* continuations besides the current one */
#define DF_MAX_CUTS 16

/* ---- scopes ---- */

typedef struct df_scope_entry {
    df_slab *first, *cur;
    uintptr_t site;
    uint32_t serial;
    uint8_t n_labels; /* open when it was opened */
} df_scope_entry;
_Static_assert(sizeof(df_scope_entry) == 32, "each record asks for the innermost: no product");

typedef struct df_depth {
    df_slab *run[2];
    uint32_t turn;
} df_depth;

typedef struct df_undo {
    deft_tensor *t;
    df_value *value; /* counted */
    deft_tensor *root;
    uint32_t node, epoch, place;
    uint8_t failure;
} df_undo;

/* A tensor that is the caller's, and the call that kept it first. */
typedef struct df_kept {
    deft_tensor *t;
    uintptr_t site;
} df_kept;

typedef DF_VEC(df_undo) df_undos; /* one entry for each handle that has flag UNDO, or FLIGHT */

/* What memory is to get. */
typedef struct df_write {
    df_value *what; /* counted: when a cut inside a step computed it already */
    uint32_t node;  /* else this record */
    bool due;
} df_write;

/* Memory to write. When its handle ends before what was assigned is written, the entry stays. */
typedef struct df_mut {
    deft_tensor *t;  /* NULL: ended */
    df_value *value; /* counted: the wrapped memory */
    df_write now;
    df_write before; /* the open step, when that has assigned */
    bool in_step;
} df_mut;

typedef struct df_want {
    uint32_t node;   /* record to compute */
    df_value *into;  /* wrapped memory to write, or NULL */
    df_value *donor; /* value this one replaces, or NULL; whether it is donated: df_may_donate */
    uint32_t
        donor_refs;   /* references to donor that die with the replacement; records' not counted */
    df_value *result; /* out: counted; `into` itself where there is one */
} df_want;

typedef DF_VEC(df_want) df_wants;
typedef DF_VEC(int64_t) df_ints;

/* What a step, or the context outside steps, may use: deft_step_options with nothing left open. */
typedef struct df_budget {
    deft_sync_policy syncs;
    uint32_t max_nodes;
    uint64_t max_bytes, max_latency_ns; /* 0: no bound */
    uint64_t max_temporary_bytes;       /* the same, of plans */
} df_budget;

/* How the latest steps opened at one site went. */
typedef struct df_growth {
    uintptr_t site;
    uint32_t n;      /* records of the latest */
    uint32_t streak; /* that were longer than the one before, in a row */
    bool told;
} df_growth;

#define DF_GROWTHS 8

typedef enum df_annotation_kind {
    DF_ANNOTATION_STOP,
    DF_ANNOTATION_HOOK,
    DF_ANNOTATION_CUSTOM,
    DF_ANNOTATION_BRANCHES
} df_annotation_kind;

/* Records fn for each example: df_vmap_call (vmap.h). */
typedef bool (*df_map_each_fn)(deft_ctx *cx, const char *what, deft_body_fn fn, void *user,
                               deft_tensor *const *in, const int *in_axes, size_t n_in,
                               deft_tensor **out, const int *out_axes, size_t n_out,
                               uintptr_t site);

/* What a record means for gradients beyond its op (annotations.h). */
typedef struct df_grad_annotation {
    uint32_t record;
    df_annotation_kind kind;
    deft_grad_hook_fn hook;
    void *user;
    struct df_custom *custom; /* owned by deft_ctx.customs */
    uint32_t then, otherwise; /* BRANCHES: first records of the two; the latter's end at record */
    uint32_t n_batches;       /* HOOK: so many axes of examples stand before those it knows of */
    df_map_each_fn map_each;  /* HOOK with n_batches: runs it for each example */
} df_grad_annotation;

#define DF_FAULTS 4 /* whose sentences are known */
#define DF_MAX_DEPTH 64
#define DF_MAX_LABELS 64 /* counted in 8 bits */

/* An assign that failed: records from `from` on may use the tensors that miss it, while that is the
 * epoch. In a later one all records may. */
typedef struct df_missed {
    uint32_t from, epoch;
} df_missed;

/* What holds for records from `from` on (site.c). */
typedef struct df_site_range {
    uint32_t from;
    uintptr_t line, label; /* names of df_sites, or 0 */
} df_site_range;

/* One recording call appends at most so many records beyond max_nodes. */
#define DF_SLACK_NODES (1u << 19)

/* What the note of a cut says that is no longer known when it has run. */
typedef struct df_cut_notes {
    const char *reason;
    uintptr_t site;
    uint64_t extract_ns, plan_ns;
    bool plan_hit, failed; /* failed: an error of the open step has been told */
} df_cut_notes;

/* ---- runtime and context ---- */

#define DF_MAX_GPUS 16

struct deft_runtime {
    df_mem mem_hooks;
    const df_mem *mem;
    df_log log;
    df_sites *sites;       /* outlives all that has call sites */
    df_journal *journal;   /* NULL: none; also in log */
    df_diag trace_problem; /* why there is no structured log where one was asked for */
    char *plugin_dir;      /* DEFT_PLUGIN_DIR when the runtime was made, or NULL */
    df_device *dev;
    df_cache *plans;
    df_compiler compiler;
    void *plugin;
    df_fork_lock gpu_lock; /* guards the next three */
    df_gpu_plugin gpu_plugin;
    df_device *gpu[DF_MAX_GPUS]; /* NULL: not opened. Stay until the runtime goes */
    bool gpus_lost;              /* in a child: a lost thread was opening one */
    uint64_t max_device_bytes, max_device_cached;
    char compiler_text[192]; /* without a compiler */
    bool has_compiler, measure;
    bool gpus_wait;             /* df_gpu_request.waits */
    struct df_summary *summary; /* NULL: nobody asked for one */
    _Atomic uint32_t refs;
    _Atomic uint32_t n_ctx; /* made so far */
};

/* A GPU that a context has used. */
typedef struct df_ctx_queue {
    df_device *dev; /* NULL: not used */
    struct df_queue *queue;
} df_ctx_queue;

struct deft_ctx {
    deft_runtime *rt;
    const df_mem *mem;
    uint32_t epoch; /* of the records; never 0 */
    df_rec rec;

    df_scope_entry scope[DF_MAX_DEPTH];
    uint32_t depth;   /* innermost open frame; 0 is the root scope */
    uint32_t step_at; /* depth of the open step, 0: none */
    uint32_t serial;
    df_depth runs[DF_MAX_DEPTH];
    DF_VEC(void *) chunks;
    size_t chunk_left;
    char *chunk_at;
    DF_VEC(df_kept) kept; /* may hold entries dropped meanwhile */
    df_undos undo;
    DF_VEC(df_mut) muts;
    struct df_recording *recording;     /* of the capture whose function runs, else NULL */
    const struct df_recorder *recorder; /* its functions (recorder.h) */
    struct df_flight *flight;           /* submit.h; NULL: nothing was ever submitted */
    df_wants want;                      /* work space of a cut */
    DF_VEC(deft_tensor *) who;
    uint32_t step_n, step_args, step_ext; /* extent of the records when the step began */

    /* Mistakes (context.c). */
    df_diag diag;        /* what the latest acting call that failed said; OK: none since */
    df_diag mistake;     /* undelivered, when pending is not OK */
    df_diag own;         /* the first mistake since act_mark */
    deft_status pending; /* its status */
    uint32_t n_mistakes; /* recorded so far */
    uint32_t act_mark;   /* n_mistakes when the latest acting call began */
    uint32_t n_acts;     /* acting calls so far */
    uint32_t refused;    /* number of the mistake of a scope or step that could not begin */
    uint32_t mistake_number, mistake_act, mistake_serial; /* n_mistakes, n_acts, serial then */
    bool mistake_in_step; /* recorded in the open step, or assigned there */
    bool mistake_told;    /* deft_message has given it, or an acting call returned it */
    bool owes;            /* a mistake kept an assign from a tensor outside steps; it may be read */
    uint8_t owes_mark;    /* what tensors have in lacks by the undelivered mistake; 0: none has */
    uint8_t last_mark;    /* handed out last */
    bool budget_flushing; /* a budget cuts: what cannot be computed goes on waiting */
    uint32_t n_faults;    /* that made tensors lose their values (missed.c, lost.c) */
    uint32_t fault_record, fault_epoch;
    bool trying;               /* whether a record can be computed by itself is being found out: */
    uint32_t tried_fault;      /* the record that cannot, or DF_NONE */
    df_diag faults[DF_FAULTS]; /* the latest ones */
    char sentence[DF_DIAG_TEXT + DF_SITE_TEXT + 8]; /* what deft_message gives */
    _Atomic int interrupted;

    deft_ctx_options opt;
    deft_device
        default_device; /* where it computes; DEFT_CPU: or on a GPU that an operand lives on */
    uint32_t n_queues;  /* 0: no value of it lives on a GPU */
    df_ctx_queue queues[DF_MAX_GPUS];
    uint32_t trace_flags;     /* without the device */
    uint64_t cut_serial;      /* 0 is of no cut; does not come round */
    uint8_t direct[DF_N_OPS]; /* bit per dtype: operands of that dtype need no cast */
    uint8_t mixed;            /* deft_mixed_set: the low dtype; DEFT_BOOL: none */
    df_value *free_values;
    df_rec histories[DF_HISTORIES]; /* records of other continuations */
    struct df_cut *cuts[DF_MAX_CUTS];
    uint32_t history_id, cut_id;
    uint64_t history_serial;
    df_arena pass;         /* simplifier and other passing work */
    df_trace *last;        /* the latest closed trace, in a made cut */
    df_counted *last_plan; /* counted */
    df_ints slots;
    deft_stats stats;

    /* The structured log. Launches have a ring of their own, since a thread of a submitted step
     * tells them. */
    df_ring *ring, *launch_ring;
    df_cut_notes cut_notes;

    char *store_path; /* deft_store_next: of the next cut; NULL: not asked for */

    uint32_t layer_nest; /* calls of a layer above that are under way (layer.h) */
    uint32_t id;         /* in its runtime; never 0 */
    uint32_t n_walks;    /* that hold record numbers: budgets wait for them (df_walk_begin) */
    uint32_t body_at;    /* depth of the scope of the innermost function of a loop, ...; 0 */
    uint32_t body_nest;  /* how many of them run */
    uint32_t draw_nest;  /* of which so many may draw */
    uint32_t work_nest;  /* of which so many may have the caller's work done */
    uint32_t body_loop;  /* record of the loop whose function runs, or DF_NONE */
    uint32_t finals;     /* results of loops among the records of this epoch, or more */
    const char *act;     /* the acting call that is running: "read" */
    uintptr_t act_site;  /* and where it was called */
    bool matched;        /* the latest cut was made before */

    df_budget budget;   /* of now */
    uintptr_t call;     /* return address of the recording call that runs */
    uint32_t n_before;  /* records that stood there at the latest cut by a budget: not pending */
    uint32_t n_left;    /* records that the latest df_forget left, */
    uint64_t held_left; /* and bytes of values that nothing but records held then */
    /* Computes what is pending when a budget is used up: df_make_room. */
    bool (*make_room)(deft_ctx *cx);
    uint32_t look_at;    /* records at which the next recording call looks at the budget */
    uint32_t first_look; /* look_at of an epoch that begins */
    uint64_t since_ns;   /* when the step began to record, or its latest forced cut */
    uint64_t pinned;     /* bytes of deft's own memory that pending records refer to */

    DF_VEC(uint8_t) again;            /* per record of again_epoch: a cut has computed it */
    uint32_t again_epoch, again_upto; /* id of the latest made cut whose records are marked */

    df_growth growth[DF_GROWTHS];
    uint32_t next_growth;
    uint64_t events_seen, compiles_seen; /* by deft_explain */
    df_events events;
    df_listener compiles;

    uintptr_t line, label; /* of now: of deft_site, and the innermost label; 0: none */
    uintptr_t labels[DF_MAX_LABELS];
    uint8_t n_labels;
    DF_VEC(df_site_range) site_ranges; /* ascending */
    bool site_ranges_lost;             /* there was no memory for one */

    DF_VEC(df_grad_annotation) grad_annotations; /* grad.h */
    struct df_custom *customs;

    /* Assigns that failed outside steps (missed.c, lost.c); large, and seldom looked at. */
    df_missed missed[DF_FAILURE_VALUE]; /* by mark */
    df_diag missed_said[DF_FAULTS];     /* the latest mistakes that have marks, */
    uint8_t missed_mark[DF_FAULTS];     /* and those marks; 0: none */
    uint32_t n_missed;                  /* marks handed out so far */
};

/* false, and a mistake: the caller's options have size 0. what: "conv2d", name: their type. */
bool df_check_options(deft_ctx *cx, const char *what, const char *name, size_t size);
/* Copies a caller's options. The options of a caller that was built against an older header are
 * shorter; what they lack is zero, which is the default. from may be NULL. */
DF_INLINE void df_take_options(void *to, size_t to_size, const void *from, size_t from_size)
{
    memset(to, 0, to_size);
    if (from) memcpy(to, from, from_size < to_size ? from_size : to_size);
}

/* ---- handles (handle.c) ---- */

/* The call that returns to site begins: mistakes that it records name its line. cx may be NULL. */
DF_INLINE void df_enter_call(deft_ctx *cx, uintptr_t site)
{
    if (cx) cx->call = site;
}

/* The context of t when t is usable, else NULL; records nothing. */
deft_ctx *df_look(const deft_tensor *t);
/* The same for the call that begins, with the error recorded where that is possible. what: "add",
 * which: 1... */
deft_ctx *df_peek(const char *what, unsigned which, const deft_tensor *t, uintptr_t site);
/* The same at the start of a recording call: makes room first when max_nodes records are pending.
 */
deft_ctx *df_enter(const char *what, unsigned which, const deft_tensor *t, uintptr_t site);
/* Context, record and shape of the first operand; NULL on any error. */
deft_ctx *df_begin(const char *what, deft_tensor *t, uint32_t *node, df_shape *s, uintptr_t site);
/* For operands after the first: usable and of cx. */
bool df_enter_more(deft_ctx *cx, const char *what, unsigned which, const deft_tensor *t);
deft_tensor *df_handle_new_slow(deft_ctx *cx, uint32_t node);

DF_INLINE bool df_usable(const deft_tensor *t, const df_slab *s)
{
    return t->flags & DF_HANDLE_LIVE && (s->open || t->keeps);
}

DF_INLINE deft_tensor *df_handle_init(const deft_ctx *cx, deft_tensor *t, uint32_t node)
{
    t->value = NULL;
    t->root = NULL;
    t->node = node;
    t->epoch = cx->epoch;
    t->place = DF_NONE;
    t->flags = DF_HANDLE_LIVE;
    t->failure = DF_FAILURE_NOTHING;
    return t;
}

/* NULL with DEFT_E_MEMORY recorded. */
DF_INLINE deft_tensor *df_handle_new(deft_ctx *cx, uint32_t node)
{
    df_slab *const s = cx->scope[cx->depth].cur;
    deft_tensor *const t = df_slab_slot(s, s->n);
    if (DF_UNLIKELY(s->n >= DF_SLAB_SLOTS || t->keeps)) return df_handle_new_slow(cx, node);
    s->n++;
    return df_handle_init(cx, t, node);
}

/* Whether t is bound to a record and to no value. */
DF_INLINE bool df_is_pending(const deft_ctx *cx, const deft_tensor *t)
{
    return !t->value && t->epoch == cx->epoch;
}

/* The value of a record as a tensor may keep it, or NULL. Borrowed memory does not count: it is the
 * caller's again once the step has ended, and is copied before. */
DF_INLINE df_value *df_own_value(const deft_ctx *cx, uint32_t node)
{
    const uint32_t i = cx->rec.val[node];
    df_value *const v = i ? cx->rec.vals.at[i] : NULL;
    return v && !(v->flags & DF_VALUE_WRAPPED) ? v : NULL;
}

/* Handles outside depth `below` whose records have values get references of their own. */
void df_handles_resolve_outer(deft_ctx *cx, uint32_t below);
/* The same for all handles. */
void df_handles_resolve(deft_ctx *cx);
void df_handle_unbind(deft_ctx *cx, deft_tensor *t); /* drops value and binding */
/* The value of t when it has one, looking through resolved records; NULL while pending. */
df_value *df_handle_value(deft_ctx *cx, const deft_tensor *t);
/* Calls f on every live handle owned outside depth `below` (frames 0..below-1 and kept ones). */
void df_each_outer(deft_ctx *cx, uint32_t below, void (*f)(deft_ctx *, deft_tensor *, void *),
                   void *u);
void df_scope_free_handles(deft_ctx *cx, df_scope_entry *f);
bool df_scope_push(deft_ctx *cx, uintptr_t site);
void df_scope_pop(deft_ctx *cx, uint32_t depth); /* that one and all inside it */
/* Whether t was made outside the innermost function of a loop or branch that runs. */
bool df_is_outside_body(const deft_ctx *cx, const deft_tensor *t);
deft_status df_step_end(deft_scope s); /* for the acting call that is under way */
bool df_has_pending(deft_ctx *cx);     /* something that a flush would compute */
bool df_is_outer(const deft_ctx *cx, const deft_tensor *t); /* outlives the open step */
/* What t is a view of; NULL for no view, and when that has ended. A view ends before its root's
 * slot is used again, or is no view any more: deft_keep, deft_scope_return and the last deft_drop
 * of a tensor whose scope has ended see to that. */
deft_tensor *df_root_of(const deft_tensor *t);
/* The entry of wrapped memory; NULL when t is none. */
df_mut *df_mut_of(deft_ctx *cx, const deft_tensor *t);
void df_mut_end(deft_ctx *cx, deft_tensor *t);        /* its handle t ends */
void df_undo_end(deft_ctx *cx, const deft_tensor *t); /* t ends: what the logs have of it goes */
/* Restores the bindings in the log, or forgets them; flag: its handles have that one. */
void df_undo_all(deft_ctx *cx, df_undos *log, uint8_t flag);
void df_undo_forget(deft_ctx *cx, df_undos *log, uint8_t flag);
/* What is to be written into the caller's memory is not. */
void df_muts_forget(deft_ctx *cx);
/* Drops entry i of cx->muts. The last entry takes its place. */
void df_mut_forget(deft_ctx *cx, size_t i);

/* ---- mistakes (errors.c; more in lazy/layer.h) ---- */

/* Begins an acting call: after it, deft_message no longer speaks of the call before. */
void df_said(deft_ctx *cx) DF_COLD;
/* The sentence of d with the line of its call, unless the sentence has that line already. site 0
 * stands for no line. Valid until the next call. */
const char *df_error_text(deft_ctx *cx, const df_diag *d, uintptr_t site);
/* The acting call that runs fails as d says. The undelivered mistake stays. */
void df_error_older(deft_ctx *cx, const df_diag *d) DF_COLD;
/* Records why t, which has neither value nor record, cannot be used by the call `what`. */
void df_error_lost(deft_ctx *cx, const char *what, const deft_tensor *t) DF_COLD;
bool df_owes_some(deft_ctx *cx, deft_tensor *t) DF_COLD;
/* Whether t misses an assign, so that an acting call cannot use it. When it does, df_deliver gives
 * the mistake that made the assign fail. */
DF_INLINE bool df_owes(deft_ctx *cx, deft_tensor *t)
{
    return DF_UNLIKELY(cx->owes) && df_owes_some(cx, t);
}

/* ---- assigns that failed (missed.c) ---- */

/* An assign to dst failed. dst has a context; what is computed from dst misses the assign. */
void df_owe(deft_ctx *cx, deft_tensor *dst) DF_COLD;
/* Marks dst, and what it is a view of: it is bound to a value that misses the assign of `mark`. */
void df_owe_value(deft_tensor *dst, uint8_t mark) DF_COLD;
/* Called before dst, which may miss an assign, is bound to another record. What was recorded from
 * dst in the meantime goes on missing the assign. */
void df_owe_bound(deft_ctx *cx, const deft_tensor *dst) DF_COLD;
/* Called before records or tensors go. Tensors go on missing what their records miss. */
void df_owe_recorded(deft_ctx *cx) DF_COLD;
/* The undelivered mistake has been delivered: its assign is no longer missed by any tensor. */
void df_owe_delivered(deft_ctx *cx) DF_COLD;
/* No tensor misses the assign of `mark` any more. DF_FAILURE_NOTHING stands for every assign. */
void df_owe_forgive(deft_ctx *cx, uint8_t mark) DF_COLD;
/* No tensor misses any assign any more. */
void df_owe_nothing(deft_ctx *cx) DF_COLD;
uint8_t df_missing_some(deft_ctx *cx, const deft_tensor *t) DF_COLD;
/* The mark of an assign that t misses, or that a tensor misses from which t is computed.
 * DF_FAILURE_NOTHING when there is none. */
DF_INLINE uint8_t df_missing(deft_ctx *cx, const deft_tensor *t)
{
    return DF_UNLIKELY(cx->owes) ? df_missing_some(cx, t) : (uint8_t)DF_FAILURE_NOTHING;
}

/* ---- tensors that lose their values (lost.c) ---- */

/* Computes the n wanted records: df_materialize. */
typedef deft_status (*df_compute_fn)(deft_ctx *cx, df_want *want, uint32_t n);

/* Record k can never be computed, as d says. Tensors that wait for it have no value from now on,
 * except those that the open step has assigned. A tensor that needs k only in one branch of a cond
 * is computed with `compute` to find out. */
void df_lose(deft_ctx *cx, uint32_t k, const df_diag *d, df_compute_fn compute) DF_COLD;
/* The same for the fault of the step that was just rolled back. */
void df_lose_again(deft_ctx *cx, df_compute_fn compute) DF_COLD;

/* ---- values (value.c) ---- */

/* From here on df_value.input means something only where df_value.cut is cx->cut_serial. */
DF_INLINE void df_new_cut_serial(deft_ctx *cx)
{
    cx->cut_serial++;
}

df_value *df_value_new(deft_ctx *cx, deft_dtype t,
                       const df_shape *s); /* contiguous strides, no buffer */
df_value *df_value_ref(df_value *v);
void df_value_drop(deft_ctx *cx, df_value **v);
bool df_value_contiguous(const df_value *v);
/* The bytes that the elements of v take without gaps. */
size_t df_value_size(const df_value *v);
/* Visits v's elements in row-major order, one innermost row at a time; looks at no memory. */
void df_value_rows(const df_value *v,
                   void (*f)(void *user, char *at, int64_t n, int64_t stride_bytes), void *user);
/* Of values on the host (devices.h: of any): copies v's elements row-major into dst as dtype. */
void df_value_pack(const df_value *v, deft_dtype dtype, void *dst);
/* The reverse, same dtype: writes row-major src through v's strides. */
void df_value_write(const df_value *v, const void *src);

/* ---- recording (record.c) ---- */

#define DF_BAD UINT32_MAX

/* The record of t in this epoch (an input record is made when it only has a value). DF_BAD on
 * failure. */
uint32_t df_node_of(deft_ctx *cx, deft_tensor *t);
/* The dtype that the weak handle t takes where it meets dtype: a fractional number makes f32 of
 * integers, an integer makes i64 of bools. */
DF_INLINE deft_dtype df_weak_dtype(const deft_tensor *t, deft_dtype dtype)
{
    if (t->place == DEFT_I64) return dtype == DEFT_BOOL ? DEFT_I64 : dtype;
    return df_is_float(dtype) ? dtype : DEFT_F32;
}
/* A record of the weak handle t in df_weak_dtype of dtype. */
uint32_t df_weak_node(deft_ctx *cx, const deft_tensor *t, deft_dtype dtype);
/* The bits of a number argument; false with the error recorded when it does not fit t. */
bool df_number_bits(deft_ctx *cx, const char *what, deft_dtype t, double v, int64_t *bits);
bool df_number_bits_i(deft_ctx *cx, const char *what, deft_dtype t, int64_t v, int64_t *bits);
/* Made by a step that failed, and kept: it has neither value nor record. */
DF_INLINE bool df_is_lost(const deft_ctx *cx, const deft_tensor *t)
{
    return !t->value && t->epoch != cx->epoch && !(t->flags & DF_HANDLE_WEAK);
}

/* Of a lost tensor: bool, and no axes. */
deft_dtype df_tensor_dtype(const deft_ctx *cx, const deft_tensor *t);
void df_tensor_shape(const deft_ctx *cx, const deft_tensor *t, df_shape *out);

DF_INLINE const int64_t *df_rec_extents(const df_rec *r, uint32_t node)
{
    return r->ext + r->shape[node];
}
void df_rec_shape(const df_rec *r, uint32_t node, df_shape *out);

DF_INLINE deft_dtype df_dtype_at(const deft_ctx *cx, uint32_t node)
{
    return (deft_dtype)cx->rec.nodes[node].dtype;
}

/* Appends a record after checking it against ops.def. src are records; out_shape as df_shape_infer
 * takes it (NULL where the rule derives it). DF_BAD with the error recorded. */
uint32_t df_append(deft_ctx *cx, df_op op, deft_dtype t, uint32_t attr, const uint32_t *src,
                   const int64_t *args, uint32_t n_args, const df_shape *out_shape, uintptr_t site);
/* Record k once more, with other operands, of which the first has the rank of k's (views.c). */
uint32_t df_append_like(deft_ctx *cx, uint32_t k, const uint32_t *src, uintptr_t site);
/* The views of `place` down to base, recorded again on top of another record of base's shape. */
uint32_t df_rebase(deft_ctx *cx, uint32_t place, uint32_t base, uint32_t onto);
/* Convenience forms on records, used by the composites; DF_BAD passes through. */
uint32_t df_map1(deft_ctx *cx, df_op op, uint32_t a, uintptr_t site);
uint32_t df_map2(deft_ctx *cx, df_op op, uint32_t a, uint32_t b, uintptr_t site); /* promotes */
uint32_t df_where(deft_ctx *cx, uint32_t c, uint32_t a, uint32_t b, uintptr_t site);
uint32_t df_reduce(deft_ctx *cx, df_op op, uint32_t a, uint32_t axes, bool keep, uintptr_t site);
uint32_t df_to(deft_ctx *cx, uint32_t a, deft_dtype t, uintptr_t site); /* cast when needed */
/* Operand a of op as the policy of the context wants it (deft_mixed_set). */
uint32_t df_mixed_cast(deft_ctx *cx, df_op op, uint32_t a, uintptr_t site) DF_COLD;
DF_INLINE uint32_t df_mixed_operand(deft_ctx *cx, df_op op, uint32_t a, uintptr_t site)
{
    return DF_LIKELY(!cx->mixed) ? a : df_mixed_cast(cx, op, a, site);
}
uint32_t df_cst(deft_ctx *cx, deft_dtype t, int32_t value, uintptr_t site);
/* A 0-d number argument; DF_BAD and an error when it does not fit t. */
uint32_t df_number_f(deft_ctx *cx, const char *what, deft_dtype t, double v, uintptr_t site);
uint32_t df_number_i(deft_ctx *cx, const char *what, deft_dtype t, int64_t v, uintptr_t site);
uint32_t df_expand_to(deft_ctx *cx, uint32_t a, const df_shape *s, uintptr_t site);
uint32_t df_iota_node(deft_ctx *cx, const df_shape *s, uint32_t axis, uintptr_t site);
uint32_t df_slice_node(deft_ctx *cx, uint32_t a, const int64_t *start, const int64_t *step,
                       const df_shape *out, uintptr_t site);
/* A bare number; flags: CONST or PARAM. */
deft_tensor *df_weak_f(deft_ctx *cx, double value, uint8_t flags);
deft_tensor *df_weak_i(deft_ctx *cx, int64_t value, uint8_t flags);
deft_tensor *df_result(deft_ctx *cx, uint32_t node);                       /* NULL for DF_BAD */
deft_tensor *df_result_view(deft_ctx *cx, uint32_t node, deft_tensor *of); /* a view of `of` */

deft_tensor *df_tensor_of(deft_ctx *cx, DEFT_OWN df_value *v); /* of its own; NULL: no memory */

/* Checks a shape a user gave: rank, no negative extent, no overflow. */
bool df_check_shape(deft_ctx *cx, const char *what, const deft_shape *in, df_shape *out);
/* A normalized axis in [0, rank), or -1 with the error recorded. */
int df_check_axis(deft_ctx *cx, const char *what, int axis, uint32_t rank);
/* A bit mask of axes; false with the error recorded. */
bool df_check_axes(deft_ctx *cx, const char *what, const deft_axes *axes, uint32_t rank,
                   uint32_t *mask);

/* ---- cuts (cut.c, materialize.c) ---- */

/* Whether a run may write a result over the memory of v, the value that the result replaces.
 * `dying` references to v end with the replacement. This is the one proof that donation needs,
 * for steps, submitted steps, replays of captures, and graphs, which all get its answer as
 * DF_INPUT_SOLE:
 *
 *   1. The memory is deft's own: v is not wrapped, here or on a GPU.
 *   2. Nobody names v after the run. Every owner that outlives the run counts in v->refs: handles,
 *      undo entries, mappings, what is still to be written to the caller's memory. So whoever cuts
 *      must count those that would refer to v only after the run, before the cut is made: handles
 *      that look through a record (resolve_one in scope.c), and tensors to which a replay hands v
 *      unchanged (hold_passed in capture.c). Then v->refs is `dying`.
 *   3. No other value and no run in flight uses the buffer: its count is 1.
 *
 * That all reads of v within the run come before the write is left to the plan
 * (fuser/memory/storage.c). States of a loop, which nobody outside the run can name, are judged
 * by their buffers (runtime/exec/flow.c). */
bool df_may_donate(const df_value *v, uint32_t dying);

/* The closed trace of the wanted records, with the value behind each input. */
deft_status df_extract(deft_ctx *cx, const df_want *want, uint32_t n, struct df_cut *out);
/* Where the record `node` would be computed by itself. */
deft_status df_cut_where(deft_ctx *cx, uint32_t node, deft_device *out);
/* Adds to cx->want the other results of each loop that it needs. */
deft_status df_want_siblings(deft_ctx *cx);
/* Fits the trace of m to the records and values of now; false when it is no longer theirs. */
bool df_extract_again(deft_ctx *cx, const df_want *want, uint32_t n, struct df_cut *m);
/* The same for a trace without records: input k reads values[k] (NULL: memory that is only
 * written); arguments and extents are as they are. */
bool df_extract_values(deft_ctx *cx, const df_want *want, df_value *const *values,
                       struct df_cut *m);
/* Computes the wants of m; recorded: they are records of now, which get their values. */
deft_status df_cut_run(deft_ctx *cx, struct df_cut *m, df_want *want, bool recorded);
/* Its three parts. First what may fail: the plan and its slots (cx->slots), values without memory.
 * What runs reads of cx only what stays, and `interrupted`: any thread. Last, results become
 * values. */
deft_status df_cut_prepare(deft_ctx *cx, struct df_cut *m, df_want *want);
deft_status df_cut_launch(deft_ctx *cx, struct df_cut *m, const df_want *want, const int64_t *slots,
                          df_diag *d, df_run_stats *stats, uint64_t *ns);
void df_cut_publish(deft_ctx *cx, struct df_cut *m, df_want *want, bool recorded,
                    const df_run_stats *stats, uint64_t ns);
/* In place of the last: it could not, d says why. */
void df_cut_fail(deft_ctx *cx, struct df_cut *m, df_want *want, const df_run_stats *stats,
                 uint64_t ns, const df_diag *d);
/* Computes the wanted records. On success each has its result, and records in the trace that were
 * stored are resolved. On failure nothing changed; the sentence is in cx->diag. */
deft_status df_materialize(deft_ctx *cx, df_want *want, uint32_t n);
/* The same for a call that reads: results of loops that are computed on the way get values too. */
deft_status df_materialize_read(deft_ctx *cx, df_want *want, uint32_t n);
/* The same without running it: df_cut_launch of *out is left. No records are resolved: their epoch
 * ends. */
deft_status df_materialize_prepare(deft_ctx *cx, df_want *want, uint32_t n, struct df_cut **out);
/* Plans alone, and tells what running would take. */
deft_status df_materialize_estimate(deft_ctx *cx, df_want *want, uint32_t n, deft_step_memory *out);
/* Computes all live pending handles and starts a new epoch. */
deft_status df_flush(deft_ctx *cx);
/* Of records whose values have been computed, only those stay that something can still ask for
 * (forget.c). */
void df_forget(deft_ctx *cx);
/* Computes what is pending as deft_eval of every live handle would: gradients, views and what a
 * step puts back need the records, which stay; nothing is written into the caller's memory. */
deft_status df_budget_flush(deft_ctx *cx);
void df_rec_reset(deft_ctx *cx); /* forgets all records: a new epoch */
void df_rec_truncate(deft_ctx *cx, uint32_t n, uint32_t n_args, uint32_t n_ext);
void df_rec_finish(deft_ctx *cx, df_rec *r);
void df_rec_resolve(deft_ctx *cx, uint32_t node, df_value *v); /* takes a reference of its own */
void df_rec_release(deft_ctx *cx, df_value **v);               /* gives that back */

/* ---- budgets (budget.c) ---- */

/* Those of a step that opens, NULL: of the context alone; from now on. */
void df_budget_set(deft_ctx *cx, const deft_step_options *o);
/* A recording call finds rec.n at look_at: computes everything pending when a budget is used up.
 * false, with the error recorded, when that failed. */
bool df_make_room(deft_ctx *cx);
/* Records from n on go. */
void df_budget_truncate(deft_ctx *cx, uint32_t n);
/* Whoever holds record numbers across a call that may find a budget used up says so. Budgets wait
 * until the outermost walk has ended. Functions of loops, branches and the like are walks. */
DF_INLINE void df_walk_begin(deft_ctx *cx)
{
    cx->n_walks++;
}

DF_INLINE void df_walk_end(deft_ctx *cx)
{
    df_assert(cx->n_walks > 0);
    cx->n_walks--;
}

/* Records that a budget counts: those since its latest cut. */
DF_INLINE uint32_t df_n_pending(const deft_ctx *cx)
{
    return cx->rec.n - cx->n_before;
}

/* Pending records begin, or cease, to refer to v. */
void df_budget_pin(deft_ctx *cx, const df_value *v);
void df_budget_unpin(deft_ctx *cx, const df_value *v);

/* ---- call sites (site.c) ---- */

uintptr_t df_rec_site_named(const deft_ctx *cx, uint32_t i);
/* Records from `first` on are of the call at site, a return address or a name. */
void df_rec_sites_set(deft_ctx *cx, uint32_t first, uintptr_t site);
uintptr_t df_here_named(const deft_ctx *cx, uintptr_t site);

/* Where record i comes from: the line and labels that held then, else its return address. */
DF_INLINE uintptr_t df_rec_site(const deft_ctx *cx, uint32_t i)
{
    return DF_LIKELY(!cx->site_ranges.n) ? cx->rec.site[i] : df_rec_site_named(cx, i);
}

/* The return address of a call of now, as the line and labels that hold now. */
DF_INLINE uintptr_t df_here(const deft_ctx *cx, uintptr_t site)
{
    return DF_LIKELY(!cx->line && !cx->label) ? site : df_here_named(cx, site);
}

const char *df_ctx_site_text(const deft_ctx *cx, uintptr_t site, char *buf, size_t n);
/* t as text, each record with its call site as a comment. */
void df_sites_print(const deft_ctx *cx, df_str *out, const df_trace *t);
/* The records that follow have the line and label of now. */
void df_site_ranges_begin(deft_ctx *cx);
void df_site_ranges_truncate(deft_ctx *cx, uint32_t n); /* records from n on go */
void df_site_ranges_renumber(deft_ctx *cx,
                             const uint32_t *below); /* below[i]: of i records, those that stay */
void df_labels_end(deft_ctx *cx, uint32_t n);        /* all but the n outermost */
void df_grad_annotations_truncate(deft_ctx *cx,
                                  uint32_t n); /* annotations.c: the same for its marks */

/* ---- why (why.c) ---- */

/* Programs of more records keep what the fuser decided only for a log. */
#define DF_WHY_NODES 1024

/* An acting call begins; its site is that of what it causes. */
DF_INLINE void df_act(deft_ctx *cx, const char *what, uintptr_t site)
{
    if (DF_UNLIKELY(cx->diag.status != DEFT_OK)) df_said(cx);
    cx->act = what;
    cx->call = site;
    cx->act_site = df_here(cx, site);
    cx->act_mark = cx->n_mistakes;
    cx->n_acts++;
}

/* The events that are kept, as lines; deft_explain gives them all the same. */
void df_why_events_print(const deft_ctx *cx, df_str *out);
/* Keeps the event, and logs it. */
void df_why_log(deft_ctx *cx, df_event *e);
/* df_materialize for a call that reads: the policy of the step decides, and it counts as a sync. */
deft_status df_sync(deft_ctx *cx, df_want *want, uint32_t n);
/* Before the end of a step that succeeded: has the trace grown again? */
void df_why_step(deft_ctx *cx);
/* Before records from n on go in the middle of an epoch. */
void df_again_truncate(deft_ctx *cx, uint32_t n);
/* Before record i becomes map[i], or goes: DF_NONE. */
void df_again_renumber(deft_ctx *cx, const uint32_t *map);

#endif
