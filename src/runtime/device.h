/* SPDX-License-Identifier: Apache-2.0
 *
 * The interfaces between plans and machines: the ABI of CPU kernels, the vtable of a CPU code
 * generator, the interface of plug-ins, and the vtable of a device.
 *
 * Why this file is long: declarations alone; the four interfaces share their types.
 */
#ifndef DF_RUNTIME_DEVICE_H
#define DF_RUNTIME_DEVICE_H

#include <stdio.h>

#include "base/log.h"
#include "base/str.h"
#include "fuser/plan.h"
#include "runtime/buffer.h"
#include "runtime/facts.h"
#include "runtime/replay_event.h"
#include "runtime/waiter.h"
#include "runtime/work.h"

/* ---- kernel ABI (CPU) ---- */

/* Arguments of one segment. Arrays are indexed by access, axis or number slot of the kernel.
 * Threads may share the arrays, and a kernel does not write them. Each thread has its own `fault`,
 * its own `work` and its own scratch memory. A `ptr` array with SCRATCH accesses also belongs to
 * one thread. `partial` points to the results of the row that a call of part or fin works on.
 * Threads that work on the same row share these results. */
typedef struct df_kargs {
    /* Per access: the address at which all indices are 0. NULL for INDEX accesses. SCRATCH accesses
     * point into memory of the thread. */
    char *const *ptr;
    const int64_t *stride; /* [access][n_axes], in elements */
    const int64_t *base;   /* per access: base value of an INDEX access */
    const int64_t *extent; /* per axis */
    const uint64_t *num;   /* per number slot: the bits of the number */
    uint64_t *partial;     /* results of blocks, in SPLIT kernels: see df_kernel_fn */
    /* {id + 1, index, extent} of a check that failed; {0, ...} when none did. When several checks
     * fail, any of them is kept. */
    int64_t *fault;
    /* Workspace of the thread, aligned to 64 bytes: DF_TILES_BYTES for kernels with tiles
     * (df_kernel_has_tiles), DF_SHEET_BYTES for COL kernels where `fetches` is not 0. May be NULL
     * for others. */
    char *work;
    /* Not 0: stores for which df_access_may_stream holds go around the caches. Their addresses are
     * then aligned to elements, and they move in step: where the first of them is aligned to a
     * vector, all are, but to 64 bytes at most. Or the two stores of df_kernel_streamed_twos do:
     * their elements then alternate, and the first is aligned to two elements. The interpreter
     * ignores this. */
    uint64_t streams;
    /* Not 0: what the kernel reads comes from beyond the second cache. If df_kernel_only_reduces
     * holds, it then prefetches (ROW), or reads whole rows (COL). The interpreter ignores this. */
    uint64_t fetches;
} df_kargs;

/* An entry point of a kernel. Any thread may call any of them, and callers may split ranges
 * anywhere: the bits are the same.
 *
 *   main  computes rows [o0, o1) of the linearized OUTER axes (one row without such axes).
 *         In MAP, COL and LOOP, [i0, i1) is a range of INNER. In ROW, i0 = 0 and i1 = 1.
 *   part  runs stage 0 for blocks [i0, i1) of row o0. A block is DF_BLOCK reduced elements.
 *   fin   joins the blocks of row o0 for i in [i0, i1), and runs the last stage.
 *
 * fuser/plan.h describes modes, axes and stages. Only SPLIT kernels have part and fin, for which
 * o1 is o0 + 1. part evaluates ROW-level instructions of stage 0 again. The result of a block is
 * stored at
 *
 *     partial[(acc * n_blocks + block) * inner + i]
 *
 * Here n_blocks is ceil(L / DF_BLOCK), for L reduced elements. `inner` is the extent of INNER, or 1
 * in ROW. The index acc counts 8-byte words in the order of the reduce instructions. argmin and
 * argmax take two words: the bits of the value, then the index. */
typedef void (*df_kernel_fn)(const df_kargs *args, int64_t o0, int64_t o1, int64_t i0, int64_t i1);

/* ---- compiled code ---- */

/* A micro-kernel for products: C[mr x nr] (+)= panel of A * panel of B.
 *
 * Each element of C is a chain acc = fma(a, b, acc) with k ascending. `first` not 0: the chain
 * starts from zero, else from the element of C. Panels are packed, [k][mr] for a and [k][nr] for b,
 * and padded with zeros to full mr and nr. Rows of c are ldc elements apart. Only m <= mr rows and
 * n <= nr columns of C exist; nothing else of c is touched.
 *
 * The kernel prefetches memory from `next` on into the L2 cache: DF_GEMM_FETCH_BYTES for each
 * DF_GEMM_FETCH_STEPS of k. `next` may be any address.
 */
typedef void (*df_gemm_fn)(int64_t k, const void *a, const void *b, void *c, int64_t ldc, int64_t m,
                           int64_t n, int64_t first, const void *next);
#define DF_GEMM_FETCH_STEPS 4
#define DF_GEMM_FETCH_BYTES 64

#define DF_GEMM_SYMBOL "df_gemm" /* its name in an object */

typedef struct df_gemm_kernel {
    df_gemm_fn fn;
    uint32_t mr, nr;
    uint32_t size; /* of the machine code, in bytes; 0: unknown */
} df_gemm_kernel;

/* The functions of a kernel's code: main, part, fin and body. */
enum { DF_CODE_PIECES = 4, DF_CODE_NAME = 24 };

/* Writes the name that a piece of the code of kernel i of a module has in the object, the longest
 * of which is df_k4294967295_part. */
DF_INLINE void df_code_name(char name[DF_CODE_NAME], uint32_t i, int piece)
{
    static const char *const suffix[DF_CODE_PIECES] = { "", "_part", "_fin", "_body" };
    (void)snprintf(name, DF_CODE_NAME, "df_k%u%s", i, suffix[piece]);
}

/* Whether the code of the kernel has the functions part, fin and body. facts may be NULL. */
DF_INLINE bool df_code_has_parts(const df_kernel *k, const df_facts *facts)
{
    return (k->flags & DF_KERNEL_SPLIT) && !facts;
}

typedef struct df_code {
    df_kernel_fn main, part, fin; /* part and fin: NULL except in SPLIT kernels */
    size_t bytes;                 /* memory of all code */
    void *owner;                  /* for the compiler only */
    /* The function that main, part and fin of a SPLIT kernel call. Nobody else calls it. NULL in
     * other kernels. */
    const void *body;
    uint32_t size[DF_CODE_PIECES]; /* of main, part, fin and body, in bytes; 0: unknown */
    void *shown[DF_CODE_PIECES];   /* results of show_debugger; for naming.c only */
} df_code;

/* How much code is optimised: quickly compiled, or fast. */
typedef enum df_opt { DF_OPT_O0, DF_OPT_O2 } df_opt;

/* A CPU code generator. A plug-in fills this in. Any thread may call all functions, except destroy.
 *
 * A compiler may offer `start`, which loads the large libraries that compiling needs. compile,
 * specialize, show and gemm start the compiler by themselves when it has not started. The other
 * functions never start it. */
typedef struct df_compiler {
    const char *name; /* "llvm 19.1.7 znver5 64-byte vectors"; NULL when start is not NULL */
    /* Names what code depends on beside the kernel and the machine: the version of LLVM, and a hash
     * of the sources of the code generator. Known before the start. */
    const char *version;
    void *self;
    uint32_t vector_bytes; /* 16, 32 or 64; 0 when start is not NULL */
    /* Starts the compiler. A refusal is final: each later call returns the same status and
     * sentence. NULL: the compiler has started. */
    deft_status (*start)(void *self, df_diag *d);
    /* Returns the compiler's name, or "interpreter: <why it was refused>". The text lives until
     * destroy. Returns NULL before the start. vector_bytes may be NULL; *vector_bytes is 0 unless
     * the compiler has started. The member is NULL when start is NULL. */
    const char *(*describe)(void *self, uint32_t *vector_bytes);
    /* Compiles n kernels as one module. out has n entries, and is unchanged on failure. The caller
     * releases each entry. */
    deft_status (*compile)(void *self, df_diag *d, const df_kernel *const *k, uint32_t n,
                           df_opt level, df_code *out);
    /* Compiles a variant of k that relies on facts: only `main`, at O2. NULL: not offered. */
    deft_status (*specialize)(void *self, df_diag *d, const df_kernel *k, const df_facts *facts,
                              df_code *out);
    /* Compiles n kernels as one module, and appends the relocatable object to *elf. Each kernel is
     * in sections of its own. facts, which may be NULL, hold for all. The members `object` and
     * `gemm_object` are NULL when this is not offered. */
    deft_status (*object)(void *self, df_diag *d, const df_kernel *const *k, const df_facts *facts,
                          uint32_t n, df_opt level, df_str *elf);
    /* The same for the micro-kernel of gemm, DF_GEMM_SYMBOL. Fills in mr and nr of *out. */
    deft_status (*gemm_object)(void *self, df_diag *d, deft_dtype t, df_gemm_kernel *out,
                               df_str *elf);
    /* Gives the code of a level that an earlier process made of k, or with facts, of this variant
     * of k. Does not start the compiler. Returns false when there is none. recall_gemm gives a NULL
     * fn when an earlier process found that the machine has no micro-kernel for t. Both members are
     * NULL when no code is kept. */
    bool (*recall)(void *self, const df_kernel *k, const df_facts *facts, df_opt level,
                   df_code *out);
    bool (*recall_gemm)(void *self, deft_dtype t, df_gemm_kernel *out);
    /* Frees the code of one kernel. No thread may be running it. */
    void (*release)(void *self, df_code *code);
    /* Appends the IR or the assembly of k for a named target ("x86-64-v4") to out, for dumps. */
    deft_status (*show)(void *self, df_diag *d, const df_kernel *k, const char *target,
                        bool assembly, df_str *out);
    /* Gives the micro-kernel for products of dtype t. It is compiled once and lives until
     * destroy. */
    deft_status (*gemm)(void *self, df_diag *d, deft_dtype t, df_gemm_kernel *out);
    /* Shows `size` bytes of code at `start` to debuggers under a name, which is copied. Returns
     * what hide_debugger needs, or NULL on failure. The code must exist until hide_debugger has
     * returned. Both members are NULL when this is not offered. */
    void *(*show_debugger)(void *self, const char *name, const void *start, size_t size);
    void (*hide_debugger)(void *self, void *shown); /* shown may be NULL */
    /* Gives memory that compiling has left unused back to the system. Takes about a millisecond.
     * Any thread, also while others compile. NULL: not offered. */
    void (*give_back)(void *self);
    void (*destroy)(void *self);
} df_compiler;

/* ---- plug-ins ---- */

/* What libdeft passes to a plug-in, which does not link against libdeft. */
typedef struct df_host {
    uint32_t size;        /* sizeof(df_host) */
    const char *build_id; /* must equal that of the plug-in */
    const df_mem *mem;
    const df_log *log;
    deft_status (*fail)(df_diag *d, deft_status status, const char *fmt, ...); /* df_fail */
    void (*str_putn)(df_str *s, const char *text, size_t n);                   /* df_str_putn */
    const df_kop_info *kops;                                                   /* df_kop_infos */
    uint32_t max_vector_bytes; /* 0: this machine; tests force 16, 32 or 64 */
    bool keep_frames;          /* code keeps frame pointers, for profilers and debuggers */
    const char *target;        /* code is for this target (as in `show`); NULL: this machine */
} df_host;

/* The only symbol of a CPU code generator, `df_plugin_cpu`. Fills in *out. The plug-in copies
 * *host. What the members of *host point to must outlive the compiler. Returns DEFT_E_BACKEND for a
 * host of another build: build_id and host->build_id must both equal the id of the plug-in. */
typedef deft_status (*df_plugin_cpu_fn)(const df_host *host, const char *build_id, df_diag *d,
                                        df_compiler *out);
#define DF_PLUGIN_CPU_SYMBOL "df_plugin_cpu"

/* ---- device ---- */

/* What a run gets in addition to the plan and the trace. */
typedef struct df_launch_io {
    /* Per root: NULL on entry. On success, each root that was not written into memory of the caller
     * gets a new reference. The others stay NULL. Roots may share a buffer. */
    df_buffer **root;
    /* Per root: memory of the caller that the root is to be stored in, row-major, or NULL. Roots
     * that share its buffer are stored there, too, and get no reference. A device may ignore the
     * wish: the root then gets a buffer. The array may be NULL. */
    void *const *into;
    /* Per trace input: its buffer, which a root may reuse when the input is donated. The array, or
     * an entry, may be NULL: that input is then not donated. */
    const df_buffer *const *input;
    /* Called with `user` before each launch, while the run can still be undone. When it returns
     * true, the run fails with DEFT_E_INTERRUPTED. May be NULL. */
    bool (*interrupted)(void *user);
    void *user;
    struct df_ring *ring; /* gets a note for each launch; NULL: no notes */
    /* Called with `user` for each run in a replayed queue that was not a simple replay. May be
     * NULL. */
    df_replay_event_fn decided;
    /* Used while the run waits for code; may be NULL. When the waiter stops the wait, the run fails
     * as if it was interrupted before its first launch. */
    df_waiter *waiter;
    struct df_queue *queue; /* where a device with device memory enqueues the run; else NULL */
} df_launch_io;

/* What one run did. */
typedef struct df_run_stats {
    uint64_t forks; /* launches in which more than one thread took part, or could have */
    uint64_t launches, segments, bytes_allocated, donated, interpreted_segments;
    uint64_t streamed_segments; /* whose results were to go around the caches (df_kargs.streams) */
    uint64_t fetched_segments;  /* whose loads were to prefetch (df_kargs.fetches) */
    uint64_t copied_segments;   /* whose rows were copied without their code (row_copies.h) */
    uint64_t t_bind_ns, t_run_ns; /* 0 unless the device measures them (df_cpu_options.measure) */
} df_run_stats;

typedef struct df_device df_device;

/* How the runs of a queue are replayed as graphs (docs/graphs.md). 0 is the default of a field. */
typedef struct df_replay_options {
    uint32_t warm_after;     /* runs at a position of the tree before a graph is recorded; 0: 1 */
    uint64_t max_pool_bytes; /* of the graph pool; 0: no bound */
} df_replay_options;

/* The functions of a device with device memory, which the host cannot read. Addresses in its
 * buffers, and in values and inputs that live there, are addresses of the device.
 *
 * Work is only enqueued: `run` returns before the results exist. Work of one queue runs in order.
 * A plan with checks is an exception: the checks have been made when `run` returns. A failure that
 * comes later is returned by the next function that waits. A buffer may be dropped while work in
 * flight uses it.
 *
 * Any thread may call these functions. Calls with the same queue must not overlap.
 */
typedef struct df_device_memory_ops {
    /* Creates a queue on the stream `theirs`, a CUstream that is borrowed. NULL: on a new stream
     * that the queue owns. */
    deft_status (*queue_create)(df_device *dev, df_diag *d, void *theirs, struct df_queue **out);
    void (*queue_destroy)(df_device *dev, struct df_queue **q); /* waits for the queue */
    /* Waits until all work in the queue is done. DEFT_E_BACKEND: some work failed, and d names the
     * failure and the work. */
    deft_status (*wait)(df_device *dev, df_diag *d, struct df_queue *q);
    void *(*stream)(df_device *dev, struct df_queue *q); /* returns the CUstream of q */
    /* Creates a buffer of `bytes` bytes, for use in q. */
    deft_status (*create)(df_device *dev, df_diag *d, struct df_queue *q, int64_t bytes,
                          df_buffer **out);
    /* Creates a buffer that borrows device memory of the caller. DEFT_E_ARG: data is not an address
     * of this device. When the caller sets `release` of the buffer, the drop of the last reference
     * waits until no work in flight uses the memory. */
    deft_status (*wrap)(df_device *dev, df_diag *d, void *data, int64_t bytes, df_buffer **out);
    /* Enqueues a copy from the host. The host may change `from` when this has returned. */
    deft_status (*put)(df_device *dev, df_diag *d, struct df_queue *q, void *to, const void *from,
                       size_t bytes);
    /* Copies to the host, and waits for the copy. */
    deft_status (*get)(df_device *dev, df_diag *d, struct df_queue *q, void *to, const void *from,
                       size_t bytes);
    /* Enqueues a copy within the device. */
    deft_status (*copy)(df_device *dev, df_diag *d, struct df_queue *q, void *to, const void *from,
                        size_t bytes);
    /* Enqueues in q a copy from `other`, another device of this kind. The copy waits for the work
     * that is now in `others`, a queue of that device. Later work of `others` waits for the copy.
     * This call uses both queues. */
    deft_status (*copy_peer)(df_device *dev, df_diag *d, struct df_queue *q, void *to,
                             df_device *other, struct df_queue *others, const void *from,
                             size_t bytes);
    /* Runs external work: calls w->fn, or enqueues again what an equal call has enqueued (see
     * df_work.key). out gets w->n_out new references. */
    deft_status (*work)(df_device *dev, df_diag *d, struct df_queue *q, const df_work *w,
                        df_buffer **out);
    df_allocator_stats (*read)(df_device *dev); /* returns how much memory is in use */
    /* Gives back cached memory and the memory of graphs. Graphs that are in flight are freed after
     * they have ended. */
    void (*trim)(df_device *dev);
    /* Waits until no background compilation is in progress. NULL: the device never compiles in the
     * background. */
    void (*settle)(df_device *dev);

    /* The members from here to each_replay are all NULL when the device offers no graphs. All but
     * `replay` may be called for a queue without replay. Then they do nothing. read_replay returns
     * zeros, and show_replay returns true. */

    /* Replays the runs of q as graphs from now on. To be called at most once, before the first run
     * of q. DEFT_E_BACKEND: the device cannot do this, and q is unchanged. */
    deft_status (*replay)(df_device *dev, df_diag *d, struct df_queue *q,
                          const df_replay_options *wish);
    void (*begin_generation)(df_device *dev, struct df_queue *q); /* called when a step begins */
    void (*trim_replay)(df_device *dev, struct df_queue *q);      /* drops all graphs */
    df_replay_stats (*read_replay)(df_device *dev, struct df_queue *q);
    /* Appends the graph tree of q as text. Returns false when memory runs out. */
    bool (*show_replay)(df_device *dev, struct df_queue *q, df_str *out);
    /* Calls `tell` with each node of the graph tree, in its current state. */
    void (*each_replay)(df_device *dev, struct df_queue *q, df_replay_event_fn tell, void *user);

    void (*destroy)(df_device **dev); /* all queues and buffers must be gone */
} df_device_memory_ops;

struct df_device {
    /* For people. With device memory the name includes the ordinal: "cuda:0 (NVIDIA H100 PCIe)". */
    const char *name;
    df_limits limits;
    /* Finds or compiles the code of every kernel of a new plan; the compilation may continue in the
     * background. w is used while the call waits, and may be NULL. Returns DEFT_E_INTERRUPTED when
     * w stopped the wait. */
    deft_status (*prepare)(df_device *dev, df_diag *d, df_plan *plan, df_waiter *w);
    /* Runs a plan whose guards hold; slots are evaluated. In a plan without parts, all memory is
     * allocated before the first launch; a plan with parts also allocates between launches. On
     * failure no root exists, and no input was changed. stats may be NULL. Otherwise *stats is
     * overwritten on success, and may be on failure. */
    deft_status (*run)(df_device *dev, df_diag *d, const df_plan *plan, const df_trace *t,
                       const int64_t *slots, df_launch_io *io, df_run_stats *stats);
    void (*release)(df_device *dev, df_plan *plan); /* undoes prepare */
    df_allocator *allocator;                        /* NULL for a device with device memory */
    const df_device_memory_ops *far;                /* NULL: values live in memory of the host */
};

/* What a GPU device is created with. */
typedef struct df_gpu_request {
    uint32_t size; /* sizeof(df_gpu_request) */
    int ordinal;
    uint64_t max_bytes, max_cached; /* bounds on device memory; 0: no bound */
    bool measure;                   /* fill in the times of df_run_stats */
    /* Runs wait for all code. Otherwise they use a fallback while code is compiled in the
     * background, where there is one; see settle. */
    bool waits;
} df_gpu_request;
/* A symbol of a plug-in for GPUs, `df_plugin_gpu`. Creates the device with the ordinal of wish. The
 * device must be destroyed before the plug-in is closed, and host must outlive the device. Fails
 * for a host of another build. */
typedef deft_status (*df_plugin_gpu_fn)(const df_host *host, const char *build_id, df_diag *d,
                                        const df_gpu_request *wish, df_device **out);
#define DF_PLUGIN_GPU_SYMBOL "df_plugin_gpu"

/* The other symbol, `df_plugin_gpu_count`. Gives the number of GPUs, without opening one. Returns
 * DEFT_E_BACKEND, with the reason, when there is no driver or the driver finds no GPU. Fails for a
 * host of another build. */
typedef deft_status (*df_plugin_gpu_count_fn)(const df_host *host, const char *build_id, df_diag *d,
                                              int *out);
#define DF_PLUGIN_GPU_COUNT_SYMBOL "df_plugin_gpu_count"

#endif
