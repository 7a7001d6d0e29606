/* SPDX-License-Identifier: Apache-2.0
 *
 * The structures of a runtime and of a context. A context belongs to one thread. What another
 * thread may touch says so.
 *
 *   deft_tensor   a handle of 32 bytes in a slab (handle.h): names a record, a value, or both
 *   df_rec        the records of the calls since the last epoch began (record.h)
 *   df_value      a computed or wrapped tensor (value.h)
 *   deft_ctx      all of these, and the state of scopes, steps, mistakes and budgets
 *
 *         record.c           cut.c                run/
 *   calls ---------> df_rec --------> df_trace ---------> plan -> device -> df_value
 *
 * Why this file is long: the members of one structure, in the order in which recording reads them.
 */
#ifndef DF_LAZY_CONTEXT_H
#define DF_LAZY_CONTEXT_H

#define DEFT_NO_GENERIC
#include "base/env.h"
#include "base/fork.h"
#include "base/journal.h"
#include "base/site.h"
#include "base/vec.h"
#include "cache/cache.h"
#include "deft/deft.h"
#include "guards/reason.h"
#include "lazy/core/value.h"
#include "lazy/layer.h"
#include "runtime/cpu.h"
#include "trace/opaque.h"
#include "trace/trace.h"

/* ---- records ---- */

/* A list of records: arrays of the same length, indexed by record number, and the arrays that
 * they refer to. */
typedef struct df_rec {
    df_node *nodes;
    uint32_t *shape; /* index in ext of the first extent; records of one shape share it */
    uintptr_t *site; /* return address of the call */
    uint32_t *val;   /* index into vals; 0: the record is pending */
    uint32_t n, cap;
    int64_t *ext;
    uint32_t n_ext, cap_ext;
    int64_t *args;
    uint32_t n_args, cap_args;
    DF_VEC(df_value *) vals; /* element 0 is not used */
    uint32_t n_inputs;       /* how many of the n records are inputs and not calls */

    /* history.h */
    uint32_t id;       /* identifies the sequence of records; never 0 */
    uint32_t n_known;  /* number of records of the earlier epoch */
    uint32_t limit;    /* n_known while all records of this epoch equal the earlier ones, else 0 */
    uint32_t same;     /* the same for records and their extents */
    uint32_t last_cut; /* df_cut.id of the latest cut of this epoch; 0: none yet */
    bool diverged, stretched;
    uint64_t used; /* serial of its latest use */
} df_rec;

#define DF_HISTORIES 4 /* histories besides the current one */
#define DF_MAX_CUTS 16

/* ---- scopes ---- */

/* An open scope, and its run of slabs. */
typedef struct df_scope_entry {
    struct df_slab *first, *cur;
    uintptr_t site; /* where it was opened */
    uint32_t serial;
    uint8_t n_labels; /* labels that were open when it was opened */
} df_scope_entry;
_Static_assert(sizeof(void *) != 8 || sizeof(df_scope_entry) == 32,
               "each record asks for the innermost: no product");

/* At each depth two runs of slabs take turns, so that a handle of the scope before is still
 * recognized as ended. */
typedef struct df_depth {
    struct df_slab *run[2];
    uint32_t turn;
} df_depth;

/* The binding that a handle had before the open step changed it. */
typedef struct df_undo {
    deft_tensor *t;
    df_value *value; /* counted */
    deft_tensor *root;
    uint32_t node, epoch, place;
    uint8_t failure;
} df_undo;

typedef DF_VEC(df_undo) df_undos; /* one entry for each handle that has flag UNDO, or FLIGHT */

/* A kept tensor, and the call that kept it first. */
typedef struct df_kept {
    deft_tensor *t;
    uintptr_t site;
} df_kept;

/* What a cut writes into memory of the caller. */
typedef struct df_write {
    df_value *what; /* counted: set when a cut inside a step has computed it already */
    uint32_t node;  /* the record, when `what` is NULL */
    bool due;       /* false: there is nothing to write */
} df_write;

/* Memory of the caller that assignments write (deft_wrap_mut). If its handle ends before an
 * assignment is written, the entry stays until then. */
typedef struct df_mut {
    deft_tensor *t;  /* NULL: the handle has ended */
    df_value *value; /* counted: the memory */
    df_write now;
    df_write before; /* what was due when the open step assigned for the first time */
    bool in_step;
} df_mut;

/* A record to compute. */
typedef struct df_want {
    uint32_t node;
    df_value *into;  /* wrapped memory to write, or NULL */
    df_value *donor; /* a value that the step replaces, or NULL. df_may_donate decides whether its
                        memory is reused */
    /* references to donor that end with the replacement; records' references are not counted */
    uint32_t donor_refs;
    deft_tensor *giver; /* the tensor whose value donor was; NULL where donor is */
    df_value *result;   /* out: counted; `into` itself when there is one */
} df_want;

typedef DF_VEC(df_want) df_wants;
typedef DF_VEC(int64_t) df_ints;

/* ---- budgets ---- */

/* The bounds of a step, or of a context outside steps: deft_step_options with all defaults filled
 * in. */
typedef struct df_budget {
    deft_sync_policy syncs;
    uint32_t max_nodes;
    uint64_t max_bytes, max_latency_ns; /* 0: no bound */
    uint64_t max_temporary_bytes;       /* of a plan; 0: no bound */
} df_budget;

/* A recording call may append this many records beyond max_nodes. */
#define DF_SLACK_NODES (1u << 19)

/* How the latest steps that were opened at one call site went. */
typedef struct df_growth {
    uintptr_t site;
    uint32_t n;      /* records of the latest step */
    uint32_t streak; /* steps in a row that were longer than the step before */
    bool told;
} df_growth;

#define DF_GROWTHS 8

/* ---- annotations of gradients (annotations.h) ---- */

typedef enum df_annotation_kind {
    DF_ANNOTATION_STOP,
    DF_ANNOTATION_HOOK,
    DF_ANNOTATION_CUSTOM,
    DF_ANNOTATION_BATCH, /* a result of an operator with a batch rule and no gradient of its own */
    DF_ANNOTATION_BRANCHES
} df_annotation_kind;

/* Records fn once for each example: df_vmap_call (vmap.h). */
typedef bool (*df_map_each_fn)(deft_ctx *cx, const char *what, deft_body_fn fn, void *user,
                               deft_tensor *const *in, const int *in_axes, size_t n_in,
                               deft_tensor **out, const int *out_axes, size_t n_out,
                               uintptr_t site);

/* What a record means for gradients beyond its operator. */
typedef struct df_grad_annotation {
    uint32_t record;
    df_annotation_kind kind;
    bool in_step; /* made in the open step: it ends with the step, also where the record stays */
    deft_grad_hook_fn hook;
    void *user;
    struct df_custom *custom; /* owned by deft_ctx.customs */
    /* BRANCHES: the first records of the two branches. The second branch ends at `record`. */
    uint32_t then, otherwise;
    uint8_t face;            /* HOOK: that of the gradient */
    uint32_t n_batches;      /* HOOK: number of leading axes of examples that the hook ignores */
    df_map_each_fn map_each; /* HOOK with n_batches: runs the hook for each example */
} df_grad_annotation;

/* A record that has the value of one part of a complex record, its `owner`, without reading the
 * owner (lazy/complex/parts.h). */
typedef struct df_part_read {
    uint32_t record, owner;
    uint32_t which; /* 0: the real part; 1: the imaginary part */
} df_part_read;

/* ---- mistakes ---- */

#define DF_FAULTS 4 /* latest faults and mistakes whose sentences are kept */

enum {
    DF_FAILURE_NOTHING = 0,
    DF_FAILURE_VALUE = 255 /* it could not be computed: deft_tensor.node is the fault's number */
};

/* An assign that failed. In epoch `epoch`, records from number `from` on may use the tensors that
 * miss the assign; in later epochs all records may. */
typedef struct df_missed {
    uint32_t from, epoch;
} df_missed;

/* ---- call sites ---- */

#define DF_MAX_DEPTH 64
#define DF_MAX_LABELS 64 /* counted in 8 bits */

/* The line and label of the records from `from` on, up to the next range (site.h). */
typedef struct df_site_range {
    uint32_t from;
    uintptr_t line, label; /* names of df_sites; 0: none */
} df_site_range;

/* What the structured log says of a cut, collected while the cut runs. */
typedef struct df_cut_notes {
    const char *reason;
    uintptr_t site;
    uint64_t extract_ns, plan_ns;
    bool plan_hit;
    bool failed; /* an error of the open step has been logged */
} df_cut_notes;

/* ---- the runtime ---- */

#define DF_MAX_GPUS 16

/* Contexts of several threads share a runtime. Members without a remark do not change after the
 * runtime is created. */
struct deft_runtime {
    df_mem mem_hooks;
    const df_mem *mem;
    df_log log;
    df_sites *sites;       /* destroyed after everything that holds call sites */
    df_journal *journal;   /* the structured log, or NULL; also in `log` */
    df_diag trace_problem; /* why the structured log that was asked for could not be opened */
    char *plugin_dir;      /* DEFT_PLUGIN_DIR when the runtime was created, or NULL */
    df_device *dev;        /* the CPU */
    df_cache *plans;
    df_compiler compiler;
    struct df_disk *disk; /* the cache of compiled code; NULL: none */
    void *plugin;
    df_fork_lock gpu_lock; /* guards gpu_plugin, gpu and gpus_lost */
    df_gpu_plugin gpu_plugin;
    df_device *gpu[DF_MAX_GPUS]; /* NULL: not opened. An open GPU stays until the runtime ends */
    bool gpus_lost;              /* in a forked child: a thread of the parent was opening a GPU */
    uint64_t max_device_bytes, max_device_cached;
    char compiler_text[192]; /* why there is no compiler */
    bool has_compiler, measure;
    bool gpus_wait;             /* df_gpu_request.waits */
    struct df_summary *summary; /* NULL: no summary was asked for */
    df_fork_lock op_lock;       /* guards ops and n_ops */
    deft_op *ops;               /* the operators of the program, the latest first */
    uint32_t n_ops;             /* defined so far */
    /* Opaque operators, each with the attributes of some calls. op_lock guards adding to them, and
     * the arena. */
    df_opaques opaques;
    df_arena opaque_arena;
    _Atomic uint32_t refs;  /* contexts, and the program's own reference */
    _Atomic uint32_t n_ctx; /* contexts created so far */
};

/* How calls of the operator with the number `op` (0: no operator) are named that return to `site`,
 * with that line and that label open. */
typedef struct df_op_site {
    uintptr_t site, line, outer;
    uint32_t op;
    uintptr_t label; /* the name of the operator, as a label within `outer` */
    uintptr_t named; /* the call site, within the label */
    uintptr_t unused[sizeof(void *) == 8 ? 2 : 1]; /* so that the size is a power of two */
} df_op_site;
#define DF_OP_SITES 64

/* A GPU that a context has used. */
typedef struct df_ctx_queue {
    df_device *dev; /* NULL: not used */
    struct df_queue *queue;
} df_ctx_queue;

/* ---- the context ---- */

struct deft_ctx {
    deft_runtime *rt;
    const df_mem *mem;
    uint32_t epoch; /* of the records; never 0 */
    df_rec rec;

    /* Scopes and handles. */
    df_scope_entry scope[DF_MAX_DEPTH];
    uint32_t depth;   /* index of the innermost open scope; 0: the root scope */
    uint32_t step_at; /* depth of the open step; 0: none */
    uint32_t serial;
    df_depth runs[DF_MAX_DEPTH];
    DF_VEC(void *) chunks;
    size_t chunk_left;
    char *chunk_at;
    DF_VEC(df_kept) kept; /* may hold entries of tensors that were dropped */
    df_undos undo;
    DF_VEC(df_mut) muts;
    struct df_recording *recording;     /* of the capture whose function runs, or NULL */
    const struct df_recorder *recorder; /* the functions of `recording` (recorder.h) */
    struct df_flight *flight;           /* submit.h; NULL: no step was ever submitted */
    df_wants want;                      /* working memory of a cut */
    DF_VEC(deft_tensor *) who;
    uint32_t step_n, step_args, step_ext; /* lengths of the records when the step began */

    /* Mistakes (errors.h). */
    df_diag diag;        /* of the latest acting call that failed; DEFT_OK: none since */
    df_diag mistake;     /* the undelivered mistake, while `pending` is not DEFT_OK */
    df_diag own;         /* the first mistake since act_mark */
    deft_status pending; /* the status of `mistake` */
    uint32_t n_mistakes; /* recorded so far */
    uint32_t act_mark;   /* n_mistakes when the latest acting call began */
    uint32_t n_acts;     /* acting calls so far */
    uint32_t refused;    /* number of the mistake of a scope or step that could not begin */
    uint32_t mistake_number, mistake_act, mistake_serial; /* n_mistakes, n_acts, serial then */
    bool mistake_in_step; /* recorded in the open step, or assigned there */
    bool mistake_told;    /* deft_message has shown it, or an acting call has returned it */
    bool owes;            /* some tensor outside steps misses an assign that failed */
    uint8_t owes_mark;    /* deft_tensor.failure of the tensors that miss the assign of the
                             undelivered mistake; 0: none */
    uint8_t last_mark;    /* the mark that was given out last */
    bool budget_flushing; /* a budget forces a cut: what cannot be computed stays pending */
    uint32_t n_faults;    /* faults so far that made tensors lose their values (lost.c) */
    uint32_t fault_record, fault_epoch;
    bool trying;               /* records are computed one by one to find the faulty one */
    uint32_t tried_fault;      /* the faulty record that was found, or DF_NONE */
    df_diag faults[DF_FAULTS]; /* the latest faults */
    char sentence[DF_DIAG_TEXT + DF_SITE_TEXT + 8]; /* the text that deft_message returns */
    _Atomic int interrupted;                        /* set by deft_interrupt, on any thread */

    /* Options and devices. */
    deft_ctx_options opt;
    /* where the context computes. DEFT_CPU: also on a GPU on which an operand lives */
    deft_device default_device;
    uint32_t n_queues; /* 0: no value of the context lives on a GPU */
    df_ctx_queue queues[DF_MAX_GPUS];
    uint32_t trace_flags;      /* without the bits of the device */
    uint64_t cut_serial;       /* number of the latest cut; never 0 in a cut */
    uint32_t direct[DF_N_OPS]; /* per operator, a bit per dtype: operands need no cast */
    uint8_t mixed;             /* deft_mixed_set: the low dtype; DEFT_BOOL: none */
    df_value *free_values;

    /* Histories, cuts and the latest plan. */
    df_rec histories[DF_HISTORIES];
    struct df_cut *cuts[DF_MAX_CUTS];
    uint32_t history_id, cut_id;
    uint64_t history_serial;
    df_arena pass;         /* working memory of the simplifier and of other passes */
    df_trace *last;        /* the latest closed trace; a cached cut owns it */
    df_counted *last_plan; /* counted */
    df_ints slots;
    deft_stats stats;

    /* The structured log. Launches have a ring of their own, because the thread of a submitted
     * step logs them. */
    df_ring *ring, *launch_ring;
    df_cut_notes cut_notes;

    char *store_path; /* deft_store_next: where to save the next cut; NULL: not asked for */

    /* Calls and bodies. */
    uint32_t layer_nest; /* nesting of calls of a module above this one (layer.h) */
    uint32_t id;         /* in its runtime; never 0 */
    uint32_t n_walks;    /* walks that hold record numbers: budgets wait for them */
    uint32_t body_at;    /* depth of the scope of the innermost body (run/body.h); 0: none */
    uint32_t body_nest;  /* number of open bodies */
    /* The innermost body of an operator shares the scope of its caller where body_slab is in the
     * scope at body_at. Handles in slots from body_slot on, and in later slabs, were made in it. */
    uint32_t body_slot;
    struct df_slab *body_slab; /* NULL: none */
    uint32_t draw_nest;        /* how many of them may draw random numbers */
    uint32_t work_nest;        /* how many of them may have the caller's work done */
    uint32_t map_nest;         /* number of functions of deft_vmap that run */
    uint32_t n_refused;        /* acting calls that df_may_act has refused so far */
    uint32_t n_troubles;       /* n_mistakes and n_refused together */
    const char *op_name;       /* of the operator whose function runs, or NULL (deft/extend.h) */
    uint32_t body_loop;        /* record of the loop whose body is open, or DF_NONE */
    uint32_t
        finals; /* no fewer than the records that are one of several results of a loop or call */
    const char *act;    /* name of the acting call that runs: "read" */
    uintptr_t act_site; /* and its call site */
    bool matched;       /* the latest cut was refreshed, not made */

    /* Budgets. */
    df_budget budget;   /* of the open step, or of the context */
    uintptr_t call;     /* return address of the recording call that runs */
    uint32_t n_before;  /* records at the latest cut that a budget forced: they are not pending */
    uint32_t n_left;    /* records that the latest df_forget left */
    uint64_t held_left; /* bytes of values that only records held then */
    uint64_t cuts_left; /* stats.cuts then, or when the epoch began */
    uint32_t vals_seen; /* rec.vals.n when the end of a scope looked at their bytes */
    /* Computes what is pending when a budget is used up: df_make_room. */
    bool (*make_room)(deft_ctx *cx);
    uint32_t look_at;    /* number of records at which the budget is checked next */
    uint32_t first_look; /* look_at of an epoch that begins */
    uint64_t since_ns;   /* when the step began to record, or its latest forced cut */
    uint64_t pinned;     /* bytes of deft's own memory that pending records refer to */

    /* Explanation. */
    DF_VEC(uint8_t) again; /* per record of again_epoch: a cut has computed it */
    uint32_t again_epoch;
    uint32_t again_upto; /* id of the latest cut whose records are noted in `again` */
    df_growth growth[DF_GROWTHS];
    uint32_t next_growth;
    uint64_t events_seen, compiles_seen; /* by deft_explain */
    df_events events;
    df_listener compiles;

    /* Call sites (site.h). */
    uintptr_t line, label; /* that hold at this moment: of deft_site, and the innermost label */
    uintptr_t labels[DF_MAX_LABELS];
    uint8_t n_labels;
    DF_VEC(df_site_range) site_ranges; /* ascending */
    bool site_ranges_lost;             /* memory for a range ran out: lines may be wrong */
    uint32_t n_marks;                  /* ranges begun so far */
    df_op_site op_sites[DF_OP_SITES];  /* a cache */

    DF_VEC(df_grad_annotation) grad_annotations; /* annotations.h */
    struct df_custom *customs;
    DF_VEC(df_part_read) part_reads; /* annotations.h; ascending by record */

    /* Assigns that failed outside steps (errors.h). Large, and seldom read. */
    df_missed missed[DF_FAILURE_VALUE]; /* by mark */
    df_diag missed_said[DF_FAULTS];     /* the latest mistakes that have marks */
    uint8_t missed_mark[DF_FAULTS];     /* the marks of missed_said; 0: none */
    uint32_t n_missed;                  /* marks given out so far */
};

/* From here on, df_value.input counts only where df_value.cut is the new serial. */
DF_INLINE void df_new_cut_serial(deft_ctx *cx)
{
    cx->cut_serial++;
}

#endif
