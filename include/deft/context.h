/* SPDX-License-Identifier: Apache-2.0
 *
 * Runtimes, contexts, scopes, steps, errors, counters.
 *
 * Thread rule. Any thread may use a runtime. A context and its tensors belong to one thread
 * at a time. To hand them over, use synchronization of your own. Of the calls on a context
 * only deft_interrupt may come from another thread.
 *
 * Pointers. Arguments are borrowed, and texts are copied, unless a comment says otherwise. An
 * acting call gives DEFT_E_ARG for a NULL context, runtime or result, and a recording call
 * gives NULL or false for a NULL context. Other calls do nothing for NULL, or return the
 * value that their comment names.
 *
 * Calls. A recording call returns a deft_tensor * or, in some headers, a bool. It appends
 * an operation and computes nothing. An acting call returns a deft_status and may compute.
 *
 * Error rule. A recording call returns NULL on a mistake. A NULL operand passes through:
 * the result is NULL as well, so that calls chain. The context keeps the first mistake of
 * such a chain, undelivered. An acting call delivers the mistake when it cannot do its work
 * without the missing tensor. It then does nothing and returns the status of the mistake,
 * and deft_message gives the sentence. These calls deliver:
 *   - a call that is given NULL in a list of tensors (deft_eval, deft_save, ...);
 *   - deft_wait, which is about the complete context;
 *   - a call on a tensor that misses an assignment which failed outside steps, and a call
 *     on a tensor that was recorded from such a tensor since;
 *   - the end of the step in which the mistake was recorded, or in which its NULL was
 *     assigned. None of the step's assignments takes effect, because one of them may be
 *     missing. This is so even when another call has delivered the mistake before.
 *     deft_clear before the end forgets the mistake;
 *   - the end of the scope in which the mistake was recorded outside steps, unless the
 *     program has been told of it. What the scope computes is computed.
 *
 * All other calls work as if there were no mistake. A call whose only tensor is NULL, such
 * as deft_read, returns DEFT_E_ARG, because it cannot reach a context. deft_message then
 * gives the sentence of the mistake while this is undelivered. Otherwise it gives the
 * sentence of the latest call on the context that failed.
 *
 * Outside steps, a mistake is replaced by one that is recorded after the next acting call.
 * Calls on a tensor that misses an assignment by the older mistake still deliver the older
 * one.
 *
 * A failure of an acting call is returned and changes nothing else: the context goes on
 * working. When an index is out of range, a tensor that depends on it can never be
 * computed. The tensor loses its record when this is found. Reading it fails with the same
 * sentence; no other call does.
 */
#ifndef DEFT_CONTEXT_H
#define DEFT_CONTEXT_H

#include "deft/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What contexts share: devices, compiler, caches and memory. */
typedef struct deft_runtime deft_runtime;

/** Records calls and runs them. */
typedef struct deft_ctx deft_ctx;

/** A tensor of one context: an array, computed or still pending. tensor.h has the calls. */
typedef struct deft_tensor deft_tensor;

/** The version of these headers. deft_version() is that of the library. */
#define DEFT_VERSION_MAJOR 0
#define DEFT_VERSION_MINOR 1
#define DEFT_VERSION_PATCH 0

/** The version as "0.1.0", a static text. Any thread. */
DEFT_API const char *deft_version(void);

/** Where values live and work runs (device.h): DEFT_CPU, or a GPU by the number that the
 * driver gives it. */
typedef int32_t deft_device;
/** The CPU, and the GPU with a number from 0 on, as deft_device. */
#define DEFT_CPU ((deft_device)0)
#define DEFT_CUDA(n) ((deft_device)(n) + 1)

/* ---- runtime ---- */

/** How kernels are run. All tiers give the same bits; they differ in when code is ready. GPU
 * code is always compiled. In DEFT_TIER_AUTO a run on a GPU waits only for code that has no
 * fallback. */
typedef enum deft_tier {
    /** Starts at once with the interpreter or unoptimized code. A background thread compiles
     * optimized code. */
    DEFT_TIER_AUTO = 0,
    DEFT_TIER_INTERPRET = 1, /**< Never compiles. */
    DEFT_TIER_QUICK = 2,     /**< Compiles without optimization and waits for the code. */
    DEFT_TIER_FULL = 3       /**< Compiles with optimization and waits for the code. */
} deft_tier;

/** Options of a runtime. Members that are zero have the default that their comment names.
 * Texts are read during deft_runtime_create only. */
typedef struct deft_runtime_options {
    size_t size; /**< sizeof(deft_runtime_options) */
    /** Threads that compute, including the caller. 0: the variable DEFT_NUM_THREADS, else
     * all processors that the process may use. */
    uint32_t n_threads;
    /** In AUTO the variable DEFT_TIER decides: interp, 0, 1 or sync. Both 1 and sync mean
     * FULL. */
    deft_tier tier;
    /** Freed value memory that is kept for reuse, in bytes. Packed copies of weights may take as
     * much again. 0: 1 GiB. */
    uint64_t max_cached_bytes;
    uint64_t max_code_bytes; /**< Compiled kernels that are kept, in bytes. 0: 256 MiB. */
    uint64_t max_plan_bytes; /**< Plans that are kept, in bytes. 0: 256 MiB. */
    /** Width of vectors in bytes. 0: that of the machine. 16 or 32 narrow it, and 64 leaves out
     * what is particular to the processor's model; for tests. */
    uint32_t max_vector_bytes;
    /** Bits of hashes that count. 0: all 128. Fewer force collisions, for tests. */
    uint32_t hash_bits;
    bool measure; /**< true: the times of deft_stats are measured. */
    /** Topics as in the variable DEFT_LOG ("why,fusion,-cache"). NULL: the variable decides. */
    const char *log;
    /** Receives each line of the log. It is called from any thread, also by two at the same time:
     * a hook that keeps lines needs a lock of its own. It must not call deft. NULL: there is no
     * log. */
    void (*log_hook)(void *user, const char *topic, const char *line);
    void *log_user; /**< Passed to log_hook. */

    /** Replaces malloc, realloc and free: old NULL allocates, new_size 0 frees. It is called
     * from any thread. NULL: the C library's allocator. */
    void *(*resize)(void *user, void *old, size_t old_size, size_t new_size);
    void *resize_user; /**< Passed to resize. */

    /** After this many launches in a row with equal extents, a kernel is also compiled for
     * them. For equal numbers it takes 16 times as many. The general code stays for all
     * other launches.
     *
     * 0: the variable DEFT_VARIANTS, else 64 in tier AUTO, where this happens in the
     * background, and never in other tiers. Another number is valid in tier FULL too, where
     * the launch waits for the code; this is for tests. UINT32_MAX: never. */
    uint32_t variant_launches;

    /** The folder of the structured log (docs/trace-format.md), made with mode 0700 when it
     * is missing. This runtime writes files of its own there, with mode 0600.
     *
     * NULL: the variable DEFT_TRACE_DIR. When that is empty or missing, or this is "",
     * there is no structured log. A folder that cannot be made or written is no failure.
     * The log topic "error" and deft_message of new contexts then give the reason. */
    const char *trace_dir;
    /** Size at which the next file begins. 0: DEFT_TRACE_BYTES, else 256 MiB. */
    uint64_t trace_file_bytes;
    /** Files that are kept; the first one always is. 0: DEFT_TRACE_FILES, else 8. */
    uint32_t trace_files;

    /** true: before a plan runs for the first time, its trace and the values of its
     * inputs are stored beside the log, for `deft run` (docs/cli.md). This is slow. 0:
     * DEFT_TRACE_INPUTS. */
    bool trace_inputs;
    /** A bound on what is stored so, in bytes. What exceeds it is left out, and this is
     * logged. 0: DEFT_TRACE_INPUTS_BYTES, else 256 MiB. */
    uint64_t trace_input_bytes;

    /** A bound for each GPU on its value memory, in bytes. What is kept for reuse counts. 0:
     * no bound. */
    uint64_t max_device_bytes;
    /** A bound for each GPU on the memory that is kept for reuse, in bytes. 0: no bound. */
    uint64_t max_device_cached_bytes;

    /** Folders for compiled code, which later processes load instead of compiling: absolute paths,
     * separated by ':'. The first one is written to; the others are only read. "": no code is kept.
     * NULL: the variable DEFT_CACHE_DIR, else deft in $XDG_CACHE_HOME or in $HOME/.cache. A program
     * trusts what is in these folders as it trusts its own code (docs/cache.md). */
    const char *cache_dir;
    /** Bytes of files in the first of these folders, kept roughly. 0: 512 MiB. */
    uint64_t max_cache_dir_bytes;
} deft_runtime_options;

/** Makes a runtime. options NULL means defaults. On failure *out is NULL.
 *
 * A runtime is counted: the maker has one reference, and so has each context. Failures:
 * DEFT_E_ARG, DEFT_E_MEMORY. A missing compiler is no failure: kernels are then interpreted
 * (log topic "plugin"). The first call that needs the compiler starts it, which takes some
 * 25 ms. In DEFT_TIER_AUTO the background thread does so in most cases. Any thread. */
DEFT_API DEFT_MUST_CHECK deft_status deft_runtime_create(const deft_runtime_options *options,
                                                         deft_runtime **out);

/** Gives the maker's reference back and sets *rt to NULL. NULL is allowed. Any thread. */
DEFT_API void deft_runtime_destroy(deft_runtime **rt);

/** The compiler: "llvm 19.1.7 znver5 64-byte vectors", or "interpreter: <why there is
 * none>". Starts the compiler when nothing has, and waits for it. The text lives as long as
 * rt. rt NULL gives "". Any thread. */
DEFT_API const char *deft_runtime_compiler(const deft_runtime *rt);

/** The number of threads that compute, including the caller; 0 for NULL. Any thread. */
DEFT_API uint32_t deft_runtime_threads(const deft_runtime *rt);

/** Waits until no kernel is being compiled in the background. Any thread. */
DEFT_API void deft_runtime_settle(deft_runtime *rt);

/** Gives cached free memory back to the system, and that of GPUs to their drivers. Any
 * thread.
 *
 * Graphs for replay are dropped, and are recorded again when their steps come again. The
 * graphs of a context that is within a step on another thread are dropped later: when the
 * run that it is executing has been enqueued. */
DEFT_API void deft_runtime_trim(deft_runtime *rt);

/* ---- context ---- */

/** How exact results are (docs/accuracy.md). */
typedef enum deft_numerics {
    /** The same bits whatever is fused, at any number of threads and any vector width. */
    DEFT_STRICT = 0,
    /** Allows contraction, reassociation, matrix products of other libraries, convolutions by the
     * method of Winograd, and estimates. */
    DEFT_FAST = 1
} deft_numerics;

/** What happens when a read, eval, print or save inside a step would have to compute. The
 * step is then computed in pieces. */
typedef enum deft_sync_policy {
    DEFT_SYNC_DEFAULT = 0, /**< As the options of the context say; in those, ALLOW. */
    DEFT_SYNC_ALLOW = 1,
    /** Computes, and reports it each time (deft_explain, log topic "why"). */
    DEFT_SYNC_WARN = 2,
    /** The call fails with DEFT_E_STATE. Nothing changes, and the step goes on. */
    DEFT_SYNC_REFUSE = 3
} deft_sync_policy;

/** The progress of a compilation for which a call waits. The texts are valid during the
 * callback only. */
typedef struct deft_progress {
    size_t size;      /**< sizeof(deft_progress) */
    const char *ops;  /**< Operators of a kernel that is being compiled: "mul, exp, sum"; or "". */
    const char *site; /**< Call site of the last of them: "mlp.c:41 (block)"; or "". */
    uint32_t n_done;  /**< Kernels that are ready. */
    uint32_t n_kernels;  /**< All kernels for which the call waits. */
    uint64_t elapsed_ns; /**< Time since the wait began. */
} deft_progress;

/** Whether runs on a GPU are replayed as graphs (docs/graphs.md). The results are the same. */
typedef enum deft_replay {
    DEFT_REPLAY_DEFAULT, /**< As the variable DEFT_REPLAY says, "off" or "graphs"; else off. */
    DEFT_REPLAY_OFF,     /**< Kernels are launched one by one. */
    DEFT_REPLAY_GRAPHS   /**< A run that the program repeats is launched as one graph. */
} deft_replay;

/** Options of a context. Members that are zero have the default that their comment names. */
typedef struct deft_ctx_options {
    size_t size;            /**< sizeof(deft_ctx_options) */
    deft_numerics numerics; /**< How exact results are. */
    bool no_fusion;         /**< true: one kernel for each operator, for comparison. */
    bool no_simplify;       /**< true: traces are not simplified before fusion. */
    uint32_t max_nodes;     /**< Pending records at which a cut is forced and reported. 0: 2^21. */

    deft_sync_policy syncs; /**< The policy of steps whose own options leave it at the default. */
    /** The budget in bytes of steps whose own options leave it 0 (deft_step_options). It is
     * valid outside steps too. */
    uint64_t max_bytes;
    /** The budget in nanoseconds of steps whose own options leave it 0 (deft_step_options). */
    uint64_t max_latency_ns;

    /** Called while a call on the context waits for kernels to be compiled. The first call
     * comes after 100 ms, and then one every 100 ms, never more often. It comes on the
     * thread that waits. For a submitted step this may be the thread of the context.
     *
     * Return true to go on. false acts like deft_interrupt: the call, and a step with it,
     * fails completely with DEFT_E_INTERRUPTED. The compiler finishes the kernels that it
     * has begun, for the next attempt. The callback may call deft_interrupt, and any
     * function on other contexts.
     *
     * With a callback, the runtime's thread compiles kernels in all tiers. Micro-kernels of
     * matrix products are an exception: they are compiled elsewhere and are not reported.
     * NULL: none. */
    bool (*progress)(void *user, const deft_progress *now);
    void *progress_user; /**< Passed to progress. */
    /** For steps whose own options leave it 0, and outside steps. */
    uint64_t max_temporary_bytes;

    /** Where the context computes (device.h). DEFT_CPU: as the variable DEFT_DEVICE says
     * ("cpu", "cuda:0"); else on the CPU, and on a GPU what has an operand there. */
    deft_device device;

    /** true: where the GPU cannot be used, the context computes on the CPU, and the
     * reason goes to the log topic "plugin". */
    bool allow_cpu;

    /** A CUstream of the caller on that device. The context enqueues its work there, in
     * place of a stream of its own. The stream must exist until the context is destroyed.
     * NULL: none. */
    void *stream;

    /** For GPUs. A driver without graphs is no failure; the log topic "plugin" reports it. */
    deft_replay replay;
    /** Runs at one position of a step before a graph is made there. 0: 1. */
    uint32_t replay_warm_up;
    /** A bound on the memory that all graphs of a GPU share, in bytes. 0: no bound. Then
     * there are no graphs where the driver has no virtual memory, because the memory would
     * be taken at once. */
    uint64_t replay_max_bytes;
} deft_ctx_options;

/** Makes a context, which belongs to the calling thread. rt NULL means a runtime of its own;
 * otherwise the context holds a reference to rt. options NULL means defaults.
 *
 * DEFT_E_BACKEND: the device cannot be used. The reason goes to the log topic "error", and
 * deft_device_describe gives it as well. Other failures: DEFT_E_ARG, DEFT_E_MEMORY. */
DEFT_API DEFT_MUST_CHECK deft_status deft_ctx_create(deft_runtime *rt,
                                                     const deft_ctx_options *options,
                                                     deft_ctx **out);

/** Ends all scopes, drops all tensors, and sets *cx to NULL. NULL is allowed. A mistake that
 * the program was never told of goes to the log hook. */
DEFT_API void deft_ctx_destroy(deft_ctx **cx);

/** The runtime of cx, borrowed; NULL for NULL. */
DEFT_API deft_runtime *deft_ctx_runtime(deft_ctx *cx);

/** The status of the undelivered mistake, or DEFT_OK. The call does not deliver the mistake.
 * cx NULL gives DEFT_E_ARG. */
DEFT_API deft_status deft_error(const deft_ctx *cx);

/** The sentence of the latest failure, with the source line of the call that made the
 * mistake. It is the first of these that exists:
 *   - the sentence of the latest acting call, when that call failed;
 *   - the sentence of the undelivered mistake;
 *   - the sentence of the latest acting call that failed;
 *   - in a new context, why there is no structured log although one was asked for;
 *   - "".
 *
 * The text is valid until the next call on cx. cx NULL gives "". */
DEFT_API const char *deft_message(const deft_ctx *cx);

/** Forgets the undelivered mistake, the assignments that tensors miss, and the latest
 * sentence. */
DEFT_API void deft_clear(deft_ctx *cx);

/** Makes the running or the next step, read or eval of cx fail with DEFT_E_INTERRUPTED. That
 * call then has no effect. Any thread; safe in signal handlers. cx must exist during the
 * call. */
DEFT_API void deft_interrupt(deft_ctx *cx);

/* ---- scopes and steps ---- */

/** A token of an open scope or step: plain data of 16 bytes that may be copied. When a scope or
 * step cannot be opened, its depth is 0, and its end returns the status of the mistake. */
typedef struct deft_scope {
    deft_ctx *cx;    /**< The context of the scope. */
    uint32_t serial; /**< Private to deft. */
    uint32_t depth;  /**< Private to deft, but 0 when the scope could not be opened. */
} deft_scope;

/** Opens a scope. Tensors that are made while it is the innermost one end with it. Scopes
 * nest: up to 63 scopes and steps may be open, else DEFT_E_LIMIT. */
DEFT_API deft_scope deft_scope_begin(deft_ctx *cx);

/** Ends s, and every scope that is still open inside it. At the end of an outermost scope,
 * the pending values of kept tensors are computed. The error rule above says when a mistake
 * is delivered.
 *
 * DEFT_E_STATE: s is not open, is a step, or has an open step inside. Other statuses are
 * those of a delivered mistake and of a computation (eval.h). */
DEFT_API DEFT_MUST_CHECK deft_status deft_scope_end(deft_scope s);

/** Ends s and moves t to the scope around it. Returns the new handle of the tensor, or NULL.
 *
 * The tensor keeps what it is: its pending work, a number without a dtype, an assignment
 * that it misses. Memory of deft_wrap_mut moves along too, unless deft_keep made t the
 * caller's: then the kept handle goes on writing there. A view whose tensor ends with s
 * becomes a tensor of its own. DEFT_E_STATE: s is not open, or is a step. */
DEFT_API deft_tensor *deft_scope_return(deft_scope s, deft_tensor *t);

/** Opens a step: a scope that is also a transaction. Its end computes as one unit every
 * assignment and every pending tensor that lives on outside it.
 *
 * When anything fails (a recording mistake, memory, an interrupt), none of its assignments
 * takes effect. Steps do not nest: DEFT_E_STATE. Scopes may be opened inside. */
DEFT_API deft_scope deft_step_begin(deft_ctx *cx);

/** Ends the step s, and every scope that is still open inside it, and computes it. On failure
 * the tensors assigned in it have their former values, and the step has ended.
 *
 * DEFT_E_STATE: s is no open step. Other statuses are those of a delivered mistake and of a
 * computation (eval.h). */
DEFT_API DEFT_MUST_CHECK deft_status deft_step_end(deft_scope s);

/** Ends the step as deft_step_end does, but a thread of the context runs its kernels while
 * the program goes on. That thread is started by the first submit.
 *
 * DEFT_OK means that all is recorded, planned and compiled. Tensors may be used, assigned
 * and dropped at once. One step is in flight at a time. The next call that computes, or
 * that reads its values or the caller's memory, waits for it first. So do deft_load,
 * deft_capture_call and deft_ctx_destroy. Recording, and reading other values, do not wait.
 * Until then memory of deft_wrap must not change, and memory of deft_wrap_mut is being
 * written. The step runs at once when tensors from before it are pending, or when no thread
 * can be started.
 *
 * When the run fails (an index out of range, memory, an interrupt), the acting call that
 * waits does nothing else and returns that status. Its sentence begins with "step submitted
 * at". All tensors then have their values from before that step. What was recorded since is
 * gone, and what was computed since has no value. A step that is open at that moment is
 * void: its reads and its end fail too. Nothing that it assigns takes effect, and its
 * changes are undone when it ends or is aborted.
 *
 * In a child process that was forked with a step in flight, the step has failed
 * (DEFT_E_STATE). There, tensors whose memory it was about to overwrite have no value.
 * Memory of deft_wrap_mut may be half written. */
DEFT_API DEFT_MUST_CHECK deft_status deft_step_submit(deft_scope s);

/** Delivers the undelivered mistake, whichever tensors it concerns. When there is none,
 * waits for the step in flight and for all work that was enqueued on GPUs.
 *
 * DEFT_OK means that the values are there, or that nothing was in flight. A failure on a
 * GPU is returned here, or by a call that waits earlier. */
DEFT_API DEFT_MUST_CHECK deft_status deft_wait(deft_ctx *cx);

/** Budgets of a step. When a recording call finds a budget used up, it computes all that is
 * pending and reports it (deft_explain, log topic "why"). Results do not change, and the
 * step stays one transaction. A tensor that cannot be computed, for example for an index
 * out of range, stays pending until a call asks for it. Inside deft_grad, deft_vmap and the
 * functions of loops and branches nothing is computed; the next call after them does it.
 *
 * Computed records are forgotten unless something can still ask for them. That is a live
 * tensor, a view that can be assigned through, or a gradient of a live tensor with respect
 * to another. For a gradient the records between the two tensors stay, some 40 bytes for each
 * operation, together with their inputs. Values in between are freed, and computed again if
 * a gradient is taken. So a budget bounds what is pending. A step in which everything can
 * still be differentiated grows with its length. */
typedef struct deft_step_options {
    size_t size;            /**< sizeof(deft_step_options) */
    deft_sync_policy syncs; /**< DEFT_SYNC_DEFAULT: the policy of the context. */
    /** Pending records since the latest cut by a budget, including those from before the
     * step. 0: the limit of the context. */
    uint32_t max_nodes;

    /** Bytes of memory that only pending records hold: values whose handles have ended or
     * were assigned since. A cut frees this memory, except what a gradient may read. 0: the
     * limit of the context; a context whose limit is 0 has none. */
    uint64_t max_bytes;

    /** Nanoseconds since the step began to record, or since its latest cut by a budget. The
     * clock is read every few records. 0: the limit of the context; a context whose limit
     * is 0 has none. */
    uint64_t max_latency_ns;

    /** Bytes of temporaries while the step runs, in one piece of memory. Inputs, results and
     * memory that is written in place do not count. Values beyond the bound are not kept,
     * but computed again where they are read late. The bits are the same, those of random
     * numbers too. A lower bound never takes more memory than a higher one, and never
     * computes less again (docs/memory.md).
     *
     * When the bound cannot be met, planning fails with DEFT_E_MEMORY, and nothing has run.
     * The sentence has the numbers. 0: the limit of the context; a context whose limit is 0
     * has none. The step of a capture has the limit of the context. */
    uint64_t max_temporary_bytes;
} deft_step_options;

/** deft_step_begin with options, which are copied. NULL means none. A size of 0 is a mistake
 * (DEFT_E_ARG). */
DEFT_API deft_scope deft_step_begin_with(deft_ctx *cx, const deft_step_options *options);

/** The memory that a step takes while it runs, in bytes. */
typedef struct deft_step_memory {
    uint64_t temporary_bytes; /**< At the peak. max_temporary_bytes bounds this. */
    /** Results in new memory, including those that may take over older memory. */
    uint64_t result_bytes;
    /** Kernels and products that run again because their values are not kept. */
    uint64_t repeated;
} deft_step_memory;

/** What the end of s would take if it came now. size is sizeof(deft_step_memory). The step
 * is planned and its kernels are compiled, but nothing runs; the end then finds the plan.
 * The step goes on, also after a failure.
 *
 * Failures: those of planning, such as DEFT_E_MEMORY where a bound cannot be met.
 * DEFT_E_STATE: s is not open, or the call is inside a captured function, a loop or a
 * branch. DEFT_E_ARG: a wrong argument. */
DEFT_API DEFT_MUST_CHECK deft_status deft_step_memory_read(deft_scope s, deft_step_memory *out,
                                                           size_t size);

/** Ends the step as if it had never been. A mistake that was recorded in it is forgotten. When
 * s is no open step, the call does nothing. Inside the function of a loop, a branch or
 * deft_vmap it is a mistake, DEFT_E_STATE. */
DEFT_API void deft_step_abort(deft_scope s);

/** Makes t outlive its scope, until deft_drop has been called once for each keep. Returns t,
 * or NULL for a mistake. A kept view is a tensor of its own: assigning to it no longer
 * writes the tensor that it showed.
 *
 * DEFT_E_STATE: t was made inside the function of a loop, a branch or deft_vmap.
 * DEFT_E_LIMIT: one tensor has more than 65535 keeps. DEFT_E_MEMORY is possible. */
DEFT_API deft_tensor *deft_keep(deft_tensor *t);

/** Gives back one keep and sets *t to NULL. NULL and *t NULL are allowed. A tensor that
 * belongs to no scope, was never kept and is not computed ends with the call. */
DEFT_API void deft_drop(deft_tensor **t);

/* ---- call sites ----
 *
 * Sentences and deft_explain name calls by their place in the caller's program. Lines and
 * labels never decide whether two programs are the same. Texts are copied. A runtime keeps
 * 65536 different ones; further ones, and those for which there is no memory, are left out.
 * cx NULL does nothing.
 */

/** For bindings, whose own call sites mean nothing. The following calls on cx are attributed
 * to this line of their user's program, until the next deft_site. Texts show the file
 * without folders, and at most 63 bytes of it. file NULL returns to the place of the call
 * itself. */
DEFT_API void deft_site(deft_ctx *cx, const char *file, int line);

/** Attributes the following calls to `name` ("encoder", at most 63 bytes), until its end.
 * Labels nest, 64 deep: "mlp.c:41 (block) in encoder/attention". The end of a scope or step
 * ends the labels that began inside it.
 *
 * Mistakes are recorded as those of recording calls are: DEFT_E_ARG for a NULL name,
 * DEFT_E_LIMIT for a label too many, DEFT_E_STATE for an end without a begin in the
 * innermost scope. */
DEFT_API void deft_label_begin(deft_ctx *cx, const char *name);
DEFT_API void deft_label_end(deft_ctx *cx);

/* ---- counters ---- */

/** Counters. Those of the context begin when it is made. A comment names those of the
 * runtime. */
typedef struct deft_stats {
    uint64_t ops_recorded; /**< Operators that were recorded. */
    uint64_t cuts;         /**< Materializations. */
    /** Cuts whose records equalled earlier ones, so that nothing was extracted again. */
    uint64_t cuts_matched;
    uint64_t plans_built;      /**< Plans that were made. */
    uint64_t plan_hits;        /**< Plans that were found by key and guards. */
    uint64_t plan_misses;      /**< Plans that were looked for and not found. */
    uint64_t guard_misses;     /**< Plans that were found by key and refused by a guard. */
    uint64_t kernels_compiled; /**< Of the runtime: in all tiers. */
    uint64_t kernels_known;    /**< Of the runtime: distinct kernels. */
    uint64_t launches;         /**< Fork-joins. */
    uint64_t kernels_run;      /**< Segments over all launches. */
    uint64_t interpreted;      /**< Segments that the interpreter ran. */
    /** Records that a later cut computed again. Views and leaves are not counted, except
     * random numbers. */
    uint64_t recomputed;
    uint64_t donated; /**< Results that were stored in the memory of the value they replace. */
    uint64_t syncs;   /**< Reads that had to compute. */
    uint64_t system_allocations; /**< Of the runtime: blocks that the system gave for values. */
    uint64_t live_bytes;         /**< Of the runtime: bytes of values in use. */
    uint64_t peak_bytes;         /**< Of the runtime: the most bytes in use at once. */

    /** Nanoseconds from records to the key of a trace. This and the next four are counted with
     * the option `measure` of the runtime. */
    uint64_t ns_record_to_key;
    uint64_t ns_plan;    /**< Nanoseconds of making plans. */
    uint64_t ns_compile; /**< Nanoseconds of compiling kernels. */
    uint64_t ns_run;     /**< Nanoseconds of running plans. */
    uint64_t ns_kernels; /**< Nanoseconds in kernels; a part of ns_run. */
    /** Cuts that ran one kernel for each operator, because the fuser found no sound plan.
     * This is a defect of deft; the log topic "error" reports it once for each program. */
    uint64_t cuts_unfused;
    /** Steps that the context's thread ran; counted when they are waited for. */
    uint64_t submitted;

    /** Of the runtime: kernels that were compiled for launches that were alike.
     * kernels_compiled includes them. */
    uint64_t variants_made;
    /** Of the runtime: those of variants_made that were dropped because launches changed. */
    uint64_t variants_dropped;
    /** Of the runtime: bytes of packed copies of weights (docs/memory.md). They are no part of
     * live_bytes. */
    uint64_t packed_bytes;
    /** Of the runtime: kernels and variants whose code an earlier process had kept
     * (docs/cache.md). They are no part of kernels_compiled. */
    uint64_t kernels_loaded;
} deft_stats;

/** Copies the counters to *out. size is sizeof(deft_stats). When cx or out is NULL, the call
 * does nothing. */
DEFT_API void deft_stats_read(const deft_ctx *cx, deft_stats *out, size_t size);

/** Writes a text about cx into buf, cut at n bytes and always terminated. Returns the full
 * length. It returns 0 for an unknown `what`, when there is nothing to show, when there was
 * no memory, and for NULL. buf may be NULL to measure.
 *
 * `what` names the text. About the latest materialization:
 *   - "plan": kernels, launches, buffers;
 *   - "trace", "key", "guards": the trace, its key, and the guards of the plan;
 *   - "sites": the trace, each record with its call site and labels as a comment;
 *   - "why": what the fuser decided and for what reason, then the events that deft_explain
 *     keeps. The decisions exist for programs of at most 1024 records, or with the log
 *     topic "fusion". No event is forgotten by this call.
 *
 * About the context:
 *   - "graphs": what is replayed on the GPUs in use;
 *   - "kept": the tensors that deft_keep made the caller's, with dtype, shape, bytes,
 *     count, and the line of the first deft_keep. */
DEFT_API size_t deft_show(deft_ctx *cx, const char *what, char *buf, size_t n);

/** Stores what cx computes next, before it runs, for `deft run path.trace
 * --inputs=path.safetensors` (docs/cli.md). The trace goes to path.trace and the values of
 * its inputs to path.safetensors, which are new files with mode 0600.
 *
 * It applies to one cut, whichever call makes it. A later call replaces an earlier one;
 * path NULL cancels all. When a file exists or cannot be written, the cut fails with
 * DEFT_E_IO before it runs, and may be asked for again. Failures of this call: DEFT_E_ARG
 * for an empty path, DEFT_E_MEMORY. */
DEFT_API DEFT_MUST_CHECK deft_status deft_store_next(deft_ctx *cx, const char *path);

/** Writes why something took time into buf. There is one line for each plan built, kernel
 * compiled, plan or guard miss, read that had to compute, recomputation, and cut by a
 * budget. Each line has the field, the expected and the found value, the line of the
 * program, and what to change. docs/why.md lists all reasons. The log topic "why" has the
 * same lines as they happen.
 *
 * The lines are those since cx was made, or since the last deft_explain that returned all
 * of them. When n has no room for the complete text and its terminator, the text is cut and
 * no line is forgotten. So deft_explain(cx, NULL, 0) only measures. 128 events and 128
 * compilations are kept; a first line says how many older ones were dropped. Kernels that
 * other contexts of the runtime asked for are not reported here. A program that repeats
 * itself makes no event, and then this costs nothing.
 *
 * Returns the full length. It takes no memory from the runtime's allocator. The first line
 * that names a call opens the plug-in that knows source lines (docs/why.md). */
DEFT_API size_t deft_explain(deft_ctx *cx, char *buf, size_t n);

#ifdef __cplusplus
}
#endif
#endif
