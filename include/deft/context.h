/* SPDX-License-Identifier: Apache-2.0
 *
 * Runtimes, contexts, scopes, steps, errors, counters.
 *
 * Thread rule. A runtime may be used by any thread. A context and its tensors belong to one thread
 * at a time; hand them over with your own synchronization. Only deft_interrupt may be called from
 * elsewhere.
 *
 * Error rule. A recording call (one that returns a deft_tensor *) returns NULL on a mistake. NULL
 * operands pass through: what is recorded of them is NULL, so that calls chain. The context keeps
 * the first mistake of such a chain, undelivered. An acting call (one that returns a deft_status)
 * delivers it when the call cannot do what it is asked for without the missing tensor: it does
 * nothing, returns the status of the mistake, and deft_message has the sentence. These do:
 *   - a call that is given NULL in a list of tensors (deft_eval, deft_save, ...);
 *   - deft_wait, which is about the whole context;
 *   - a call on a tensor that misses an assign which failed outside steps, or on what was recorded
 *     from that tensor since;
 *   - the end of the step in which the mistake was recorded, or in which its NULL was assigned:
 *     none of the step's assigns takes effect, even where another call delivered the mistake
 * before, since one of them may be missing. deft_clear before the end forgets the mistake;
 *   - the end of the scope in which it was recorded outside steps, unless the program was told of
 *     it; what the scope computes is computed.
 * All other calls work as if there were no mistake. A call that is given NULL alone, such as
 * deft_read, returns DEFT_E_ARG: it cannot reach a context, so that deft_message gives the sentence
 * of the mistake while that is undelivered, else that of the latest call on the context that
 * failed.
 *
 * Outside steps a mistake gives way to one that is recorded after the next acting call; calls on a
 * tensor that misses an assign by the older one still deliver that. Failures of acting calls are
 * returned, and nothing else changes: the context goes on working. A tensor that can never be
 * computed, since an index lies outside, loses its value when that is found: reading it fails with
 * the same sentence, and no other call does.
 */
#ifndef DEFT_CONTEXT_H
#define DEFT_CONTEXT_H

#include "deft/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct deft_runtime deft_runtime;
typedef struct deft_ctx deft_ctx;
typedef struct deft_tensor deft_tensor;

#define DEFT_VERSION_MAJOR 0
#define DEFT_VERSION_MINOR 1
#define DEFT_VERSION_PATCH 0

/* "0.1.0". Static. Any thread. */
DEFT_API const char *deft_version(void);

/* Where values live and work runs: device.h. The number of a GPU is the driver's. */
typedef int32_t deft_device;
#define DEFT_CPU ((deft_device)0)
#define DEFT_CUDA(n) ((deft_device)(n) + 1)

/* ---- runtime ---- */

/* How kernels come to run. All tiers give the same bits; they differ in when code is ready. On a
 * GPU code is always compiled: in AUTO a run waits only for what no other code can stand in for. */
typedef enum deft_tier {
    DEFT_TIER_AUTO =
        0, /* interpreter or quick code at once, optimized code from a background thread */
    DEFT_TIER_INTERPRET = 1, /* never compile */
    DEFT_TIER_QUICK = 2,     /* compile without optimization, and wait for it */
    DEFT_TIER_FULL = 3       /* compile with optimization, and wait for it */
} deft_tier;

typedef struct deft_runtime_options {
    size_t size;        /* sizeof(deft_runtime_options) */
    uint32_t n_threads; /* counting the caller; 0: DEFT_NUM_THREADS, else all the process may use */
    deft_tier tier;     /* DEFT_TIER=interp|0|1|sync overrides AUTO (sync = 1 = full) */
    uint64_t max_cached_bytes; /* freed value memory kept for reuse; 0: 1 GiB */
    uint64_t max_code_bytes;   /* compiled kernels kept; 0: 256 MiB */
    uint64_t max_plan_bytes;   /* plans kept; 0: 256 MiB */
    uint32_t max_vector_bytes; /* 0: the machine's; 16 or 32 narrow it (tests) */
    uint32_t hash_bits;        /* 0: all 128; fewer force collisions (tests) */
    int measure;               /* non-zero: fill in the times of deft_stats */
    const char *log;           /* topics as in DEFT_LOG ("why,fusion,-cache"); NULL: the variable */
    void (*log_hook)(void *user, const char *topic, const char *line); /* NULL: no log */
    void *log_user;
    /* realloc with sizes: new_size 0 frees. NULL: the C library's. Called from any thread. */
    void *(*resize)(void *user, void *old, size_t old_size, size_t new_size);
    void *resize_user;
    /* Launches alike, in a row, after which a kernel is also compiled for what they have in common
     * (extents; numbers after 16 times as many); the general code stays for all others. 0:
     * DEFT_VARIANTS, else 64 in tier AUTO, where that happens in the background, and never in
     * others. Any other number holds in tier FULL too, where the launch waits for the code (tests).
     * UINT32_MAX: never. */
    uint32_t variant_launches;
    /* The structured log (docs/trace-format.md): a folder, made with mode 0700 when it is not
     * there, where this runtime writes what it does, into files of its own with mode 0600. NULL:
     * DEFT_TRACE_DIR; "" or neither: none. A folder that cannot be made or written is no failure:
     * the log topic "error" and deft_message of new contexts tell why. */
    const char *trace_dir;
    uint64_t trace_file_bytes; /* before the next file begins; 0: DEFT_TRACE_BYTES, else 256 MiB */
    uint32_t trace_files;      /* kept, the first among them; 0: DEFT_TRACE_FILES, else 8 */
    /* Non-zero: when a plan runs for the first time, its trace and the values of its inputs are
     * stored beside the log, for `deft run` (docs/cli.md). They are written out before the plan
     * runs, which is slow. 0: DEFT_TRACE_INPUTS. What would be over trace_input_bytes is left out,
     * and told; 0: DEFT_TRACE_INPUTS_BYTES, else 256 MiB. */
    int trace_inputs;
    uint64_t trace_input_bytes;
    /* Of each GPU: its memory that values may take, those freed and kept for reuse among them; and
     * of those alone. 0: no bound. */
    uint64_t max_device_bytes, max_device_cached_bytes;
} deft_runtime_options;

/* Makes a runtime; options NULL for defaults. Counted: destroy drops the maker's reference, each
 * context holds one. Failures: DEFT_E_MEMORY, DEFT_E_ARG. A missing compiler is no failure: kernels
 * are then interpreted (log topic "plugin"). The compiler is started, which takes some 25 ms, by
 * the first call that needs it: in DEFT_TIER_AUTO mostly by the background thread. */
DEFT_API DEFT_MUST_CHECK deft_status deft_runtime_create(const deft_runtime_options *options,
                                                         deft_runtime **out);
DEFT_API void deft_runtime_destroy(deft_runtime **rt); /* NULL is fine; leaves *rt NULL */

/* "llvm 19.1.7 znver5 64-byte vectors" or "interpreter: <why there is no compiler>". Starts the
 * compiler when nothing has, and waits for that. Any thread. The text lives as long as rt; rt NULL:
 * "". */
DEFT_API const char *deft_runtime_compiler(const deft_runtime *rt);
DEFT_API uint32_t deft_runtime_threads(const deft_runtime *rt);
/* Waits until no kernel is being compiled in the background. */
DEFT_API void deft_runtime_settle(deft_runtime *rt);
/* Gives cached free memory back to the system, and that of GPUs to their drivers: recorded graphs
 * are dropped, and recorded again when their steps come; those of a context that is within a step
 * on another thread, when what it is running has been put in. Any thread. */
DEFT_API void deft_runtime_trim(deft_runtime *rt);

/* ---- context ---- */

typedef enum deft_numerics {
    DEFT_STRICT = 0, /* the same bits whatever is fused, at any thread count and vector width */
    DEFT_FAST = 1    /* contraction, reassociation, library matrix products, estimates:
                      * docs/accuracy.md */
} deft_numerics;

/* What becomes of a read, eval, print or save inside a step that would have to compute: the step is
 * then computed in pieces. */
typedef enum deft_sync_policy {
    DEFT_SYNC_DEFAULT = 0, /* as the context's options say, and there: allow */
    DEFT_SYNC_ALLOW = 1,
    DEFT_SYNC_WARN = 2,  /* told each time: deft_explain and the log topic "why" */
    DEFT_SYNC_REFUSE = 3 /* fails with DEFT_E_STATE; nothing changed, and the step goes on */
} deft_sync_policy;

/* How far the compiler is with what a call waits for. Texts are there during the call only. */
typedef struct deft_progress {
    size_t size;      /* sizeof(deft_progress) */
    const char *ops;  /* of a kernel that is in the compiler now: "mul, exp, sum"; "": of none */
    const char *site; /* where the last of them was recorded: "mlp.c:41 (block)"; or "" */
    uint32_t n_done, n_kernels; /* of the kernels that are waited for: there by now, and all */
    uint64_t elapsed_ns;        /* since the wait began */
} deft_progress;

/* Whether what runs on a GPU is replayed (docs/graphs.md). */
typedef enum deft_replay {
    DEFT_REPLAY_DEFAULT, /* as DEFT_REPLAY says, "off" or "graphs", else off */
    DEFT_REPLAY_OFF,     /* launched kernel by kernel */
    DEFT_REPLAY_GRAPHS   /* what a program does again is launched as one graph; results are the same
                          */
} deft_replay;

typedef struct deft_ctx_options {
    size_t size; /* sizeof(deft_ctx_options) */
    deft_numerics numerics;
    int no_fusion;      /* non-zero: one kernel per op, for comparison */
    int no_simplify;    /* non-zero: traces are fused as recorded */
    uint32_t max_nodes; /* pending records before a cut is forced and told; 0: 2^21 */
    /* Of steps whose own options leave them 0; max_bytes holds outside steps too. */
    deft_sync_policy syncs;
    uint64_t max_bytes, max_latency_ns;
    /* Called while a call on the context waits for kernels to be compiled: on the thread that waits
     * (of a submitted step that may be the context's own), when 100 ms have passed and every 100 ms
     * from then on, never more often. 0 is as deft_interrupt: the call, and a step with it, fails
     * whole with DEFT_E_INTERRUPTED; the compiler finishes what it has begun, for the next try. Of
     * deft it may call deft_interrupt, and whatever uses other contexts. With it kernels are
     * compiled by the runtime's thread in all tiers; micro-kernels of matrix products are not, and
     * not told of. NULL: none. */
    int (*progress)(void *user, const deft_progress *now);
    void *progress_user;
    uint64_t max_temporary_bytes; /* of steps whose own options leave it 0, and outside steps */
    /* Where the context computes (device.h). DEFT_CPU: as DEFT_DEVICE says ("cpu", "cuda:0"), else
     * on the CPU, and on a GPU what has an operand there. */
    deft_device device;
    /* Non-zero: where that GPU can't be used, the context computes on the CPU, and the reason goes
     * to the log topic "plugin". */
    int allow_cpu;
    /* A CUstream of the caller's on that device, which the context puts its work into, in place of
     * one of its own. It must stay until the context has gone. NULL: none. */
    void *stream;
    /* On GPUs. Where a driver has no graphs all goes without; the log topic "plugin" tells. */
    deft_replay replay;
    uint32_t replay_warm_up;   /* runs at a place in a step before a graph is made there; 0: 1 */
    uint64_t replay_max_bytes; /* of memory that all graphs of a GPU share; 0: no bound, and no
                                * graphs where the driver has no virtual memory, as all of it is
                                * then taken at once */
} deft_ctx_options;

/* rt NULL: the context makes a runtime of its own. options NULL: defaults. DEFT_E_BACKEND: its
 * device can't be used; why goes to the log topic "error", and deft_device_describe has it. */
DEFT_API DEFT_MUST_CHECK deft_status deft_ctx_create(deft_runtime *rt,
                                                     const deft_ctx_options *options,
                                                     deft_ctx **out);
/* Ends all scopes, drops all tensors. A mistake that nobody was told of goes to the log hook. NULL
 * is fine. */
DEFT_API void deft_ctx_destroy(deft_ctx **cx);
DEFT_API deft_runtime *deft_ctx_runtime(deft_ctx *cx); /* borrowed */

/* The status of the undelivered mistake, DEFT_OK when there is none. Does not deliver it. */
DEFT_API deft_status deft_error(const deft_ctx *cx);
/* The sentence of the latest failure, with the source line of the call that made the mistake: that
 * of the latest acting call when it failed, else of the undelivered mistake, else of the latest
 * acting call that failed; "" when there was none. In a new context: why there is no structured log
 * where one was asked for. Valid until the next call on cx. */
DEFT_API const char *deft_message(const deft_ctx *cx);
/* Forgets the undelivered mistake, the assigns that tensors miss, and the latest sentence. */
DEFT_API void deft_clear(deft_ctx *cx);

/* Makes the next or running step, read or eval of cx fail whole with DEFT_E_INTERRUPTED. Any
 * thread; async-signal-safe. */
DEFT_API void deft_interrupt(deft_ctx *cx);

/* ---- scopes and steps ---- */

/* A token: plain data, 16 bytes. */
typedef struct deft_scope {
    deft_ctx *cx;
    uint32_t serial;
    uint32_t depth;
} deft_scope;

/* Tensors made while a scope is innermost end with it. Scopes nest. */
DEFT_API deft_scope deft_scope_begin(deft_ctx *cx);
/* Ends s, and any scope still open inside it. When it was the outermost one, pending values of kept
 * tensors are computed. */
DEFT_API DEFT_MUST_CHECK deft_status deft_scope_end(deft_scope s);
/* Ends s and hands t to the scope around it; returns the tensor's new handle, NULL on error. The
 * tensor takes along what it is: pending work, a number without a dtype, memory of deft_wrap_mut
 * (unless deft_keep made t the caller's too, whose handle then goes on writing there), an assign
 * that it misses. A view whose tensor ends with s becomes a tensor of its own. DEFT_E_STATE: s is
 * not open, or is a step. */
DEFT_API deft_tensor *deft_scope_return(deft_scope s, deft_tensor *t);

/* A step is a scope and a transaction: at its end every assign and every pending tensor that lives
 * on outside it is computed as one unit. When anything fails (a recording mistake, memory, an
 * interrupt) none of its assigns took effect. Steps do not nest; scopes may be opened inside. */
DEFT_API deft_scope deft_step_begin(deft_ctx *cx);
DEFT_API DEFT_MUST_CHECK deft_status deft_step_end(deft_scope s);

/* Ends the step as deft_step_end does, but for running its kernels: a thread of the context's does
 * that, started here the first time, while the program goes on. DEFT_OK: all is recorded, planned
 * and compiled, and tensors may be used, assigned and dropped at once. One step is in flight at a
 * time: the next call that computes, reads its values or the caller's memory waits for it first,
 * and so do deft_load, deft_capture_call and deft_ctx_destroy; recording and reading other values
 * do not. Until then memory of deft_wrap must not change, and that of deft_wrap_mut is being
 * written. A step is run at once when tensors of before it are pending, or no thread can be had.
 *
 * The acting call that waits and finds that the run failed (bad index, memory, interrupt) does
 * nothing else and returns that status; its sentence begins "step submitted at". All tensors have
 * then their values of before that step, and what was recorded since is gone: what was computed
 * since has no value. A step that is open then is void: its reads and its end fail too, nothing it
 * assigns takes effect, and all is put back when it ends or is aborted.
 *
 * A child forked with a step in flight finds it failed (DEFT_E_STATE): there, tensors whose memory
 * it was about to overwrite have no value, and memory of deft_wrap_mut may be half written. */
DEFT_API DEFT_MUST_CHECK deft_status deft_step_submit(deft_scope s);
/* Delivers the undelivered mistake, whatever tensors it is of. When there is none: waits for the
 * step in flight and for all that was put in on GPUs: DEFT_OK when there is none, or its values are
 * there. What failed on a GPU comes out here, or from whatever waits earlier. */
DEFT_API DEFT_MUST_CHECK deft_status deft_wait(deft_ctx *cx);

/* Budgets of a step. The recording call that finds one used up computes all that is pending, tells
 * so (deft_explain, log topic "why") and goes on: results do not change, and the step stays one
 * transaction. What cannot be computed, an index out of range say, goes on waiting for whoever asks
 * for it. Inside deft_grad, deft_vmap and the functions of loops and branches nothing is cut; the
 * next call after them is.
 *
 * What has been computed is forgotten unless something can ask for it: a live tensor, a view that
 * can be assigned through, a gradient of a live tensor with respect to another. For the last, what
 * lies between the two stays on record, some 40 bytes for each operation, with the values that went
 * into it from outside; values in between are given back, and computed again if a gradient is
 * taken. So a budget bounds what is pending; a step in which everything can still be differentiated
 * grows with its length. */
typedef struct deft_step_options {
    size_t size; /* sizeof(deft_step_options) */
    deft_sync_policy syncs;
    uint32_t max_nodes; /* records pending since the latest cut by a budget, those from before the
                         * step with them; 0: the context's */
    /* Memory that nothing but pending records holds: values whose handles have ended or were
     * assigned since. A cut gives it back, but for what a gradient may read. 0: the context's, and
     * there: no bound */
    uint64_t max_bytes;
    /* Measured since the step began to record, or since its last cut by a budget; looked at every
     * few records. 0: the context's, and there: no bound */
    uint64_t max_latency_ns;
    /* What the step may take while it runs beside inputs, results and memory written in place, in
     * bytes: its temporaries, in memory of one piece. What would be more is not kept, but computed
     * again where it is read late: the same bits, random numbers too, at the price of that work. A
     * lower bound never takes more memory than a higher one, nor computes less again
     * (docs/memory.md). That the bound cannot be met is found when the step is planned:
     * DEFT_E_MEMORY, with the numbers; nothing has run then. 0: the context's, and there: no bound.
     * The step of a capture has the context's. */
    uint64_t max_temporary_bytes;
} deft_step_options;

/* deft_step_begin with options, which are copied; NULL: none. size 0 is an error. */
DEFT_API deft_scope deft_step_begin_with(deft_ctx *cx, const deft_step_options *options);
/* What a step takes while it runs. */
typedef struct deft_step_memory {
    uint64_t temporary_bytes; /* at the peak; what max_temporary_bytes bounds */
    uint64_t result_bytes;    /* of results in new memory: those that may take over memory of before
                               * are counted, too */
    uint64_t repeated;        /* kernels and products that are done again since they are not kept */
} deft_step_memory;

/* What the end of s would take if it came now: the step is planned, and its kernels are compiled,
 * but nothing runs; the end then finds the plan. size = sizeof(deft_step_memory). The step goes on
 * whatever comes. Failures: those of planning at its end, DEFT_E_MEMORY where a bound cannot be
 * met; DEFT_E_STATE: s is not open, or inside a captured function, a loop or a branch; DEFT_E_ARG.
 */
DEFT_API DEFT_MUST_CHECK deft_status deft_step_memory_read(deft_scope s, deft_step_memory *out,
                                                           size_t size);

/* Ends the step as if it had never been; a mistake recorded in it is forgotten. */
DEFT_API void deft_step_abort(deft_scope s);

/* t stays the caller's beyond its scope, until dropped once per keep. A kept view is a tensor of
 * its own: assigning to it no longer writes what it was a view of. Returns t. */
DEFT_API deft_tensor *deft_keep(deft_tensor *t);
/* NULL and *t NULL are fine; leaves *t NULL. A tensor of no scope that was never kept, and has not
 * been computed, ends with it. */
DEFT_API void deft_drop(deft_tensor **t);

/* ---- call sites ---- */

/* Sentences and deft_explain name calls by their place in the caller's program, and never by what
 * is below: neither lines nor labels are part of what makes a program the same. Their texts are
 * copied; a runtime keeps 65536 different ones, and what comes then, or when there is no memory, is
 * left out. cx NULL: nothing happens. */

/* For bindings, whose own calls say nothing: the calls on cx that follow come from this line of
 * their user's program, until told otherwise. file: without folders in texts, 63 bytes of it; NULL:
 * from where they are called, as before the first deft_site. */
DEFT_API void deft_site(deft_ctx *cx, const char *file, int line);

/* The calls that follow belong to `name` ("encoder"; 63 bytes of it), until its end. Labels nest,
 * 64 deep: "mlp.c:41 (block) in encoder/attention". The end of a scope or step ends those begun
 * inside it. Mistakes are recorded as those of recording calls are: a NULL name (DEFT_E_ARG), a
 * label too many (DEFT_E_LIMIT), an end without a begin in the innermost scope (DEFT_E_STATE). */
DEFT_API void deft_label_begin(deft_ctx *cx, const char *name);
DEFT_API void deft_label_end(deft_ctx *cx);

/* ---- counters ---- */

typedef struct deft_stats {
    uint64_t ops_recorded;
    uint64_t cuts;         /* materializations */
    uint64_t cuts_matched; /* of those, of records that equalled earlier ones: not extracted anew */
    uint64_t plans_built, plan_hits, plan_misses, guard_misses;
    uint64_t kernels_compiled; /* runtime-wide, all tiers */
    uint64_t kernels_known;    /* distinct kernels seen, runtime-wide */
    uint64_t launches;         /* fork-joins */
    uint64_t kernels_run;      /* segments over all launches */
    uint64_t interpreted;      /* of those, by the interpreter */
    uint64_t recomputed;       /* records computed again by a later cut; leaves but random numbers,
                                * and views, which cost nothing, are not counted */
    uint64_t donated;          /* results stored in place of their predecessor */
    uint64_t syncs;            /* reads that had to compute */
    uint64_t system_allocations, live_bytes, peak_bytes; /* value memory, runtime-wide */
    /* With the runtime's option measure. ns_run holds ns_kernels. */
    uint64_t ns_record_to_key, ns_plan, ns_compile, ns_run, ns_kernels;
    uint64_t cuts_unfused; /* of cuts: run one kernel per op, since the fuser found no sound plan; a
                            * defect of deft, told once per program under the log topic "error" */
    uint64_t submitted; /* steps that were left to the context's thread; counted when waited for */
    /* Runtime-wide: kernels compiled for launches that were alike, of kernels_compiled; of those,
     * given up since, because launches changed. */
    uint64_t variants_made, variants_dropped;
} deft_stats;

/* Counters since the context was made. size = sizeof(deft_stats). */
DEFT_API void deft_stats_read(const deft_ctx *cx, deft_stats *out, size_t size);

/* The plan of the latest materialization as text (kernels, launches, buffers), into buf, cut at n
 * and always terminated. Returns the full length, 0 when there was no memory for it. What decides:
 * "trace", "key", "guards", "plan", "sites" (the trace, each record with its call site and
 * labels as a comment), "why" (what the fuser decided and for what reason, for programs of at most
 * 1024 records or with the log topic "fusion"; then the events of deft_explain that are kept, none
 * of which is forgotten). Not of the latest alone: "graphs" (what is replayed on the GPUs in use),
 * "kept" (the tensors that deft_keep made the caller's: dtype and shape, bytes, how often, and the
 * line of the first deft_keep). */
DEFT_API size_t deft_show(deft_ctx *cx, const char *what, char *buf, size_t n);

/* What cx computes next is stored before it runs: its trace as path.trace and the values of its
 * inputs as path.safetensors, new files with mode 0600, for
 * `deft run path.trace --inputs=path.safetensors` (docs/cli.md). It counts for one cut, whatever
 * call makes it; a later call takes the place of an earlier one, path NULL of all. A cut that could
 * not be stored, since a file is there or could not be written, fails as for want of memory, with
 * DEFT_E_IO, and may be asked for again. Failures: DEFT_E_ARG for an empty path, DEFT_E_MEMORY. */
DEFT_API DEFT_MUST_CHECK deft_status deft_store_next(deft_ctx *cx, const char *path);

/* Why something took time: one line for each plan built, kernel compiled, plan or guard miss, read
 * that had to compute, recomputation, cut by a budget; each with field, expected, found, the line
 * of the program ("mlp.c:41 (train_step)", else module+offset), and what to change. docs/why.md
 * lists all reasons. The log topic "why" has the same lines as they happen.
 *
 * The lines are those since cx was made or since the last deft_explain that gave all of them: when
 * n has no room for the whole text and its terminator, the text is cut and no line is forgotten, so
 * that deft_explain(cx, NULL, 0) only measures. 128 events are kept, and 128 compiles; a first line
 * tells how many older ones were dropped. Kernels that other contexts of the runtime asked for are
 * theirs to tell. A program that repeats itself makes no event, and then this costs nothing.
 *
 * Returns the full length; takes none of the runtime's memory. The first line that names a call
 * opens the plug-in that knows source lines (docs/why.md). */
DEFT_API size_t deft_explain(deft_ctx *cx, char *buf, size_t n);

#ifdef __cplusplus
}
#endif
#endif
