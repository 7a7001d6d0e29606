/* SPDX-License-Identifier: Apache-2.0
 *
 * What lies between plans and machines: the kernel ABI, the compiler vtable a CPU code generator
 * fills in, and the device vtable that the front door calls.
 */
#ifndef DF_RUNTIME_DEVICE_H
#define DF_RUNTIME_DEVICE_H

#include "base/log.h"
#include "base/str.h"
#include "fuser/plan.h"
#include "runtime/buffer.h"
#include "runtime/facts.h"
#include "runtime/replay_event.h"
#include "runtime/waiter.h"
#include "runtime/work.h"

/* ---- kernel ABI (CPU) ---- */

/* Arguments of one segment, shared by all threads but for scratch, partial and fault. */
typedef struct df_kargs {
    char *const
        *ptr; /* per access: address at all indices 0; INDEX: NULL; SCRATCH: this thread's */
    const int64_t *stride; /* [access][n_axes], elements */
    const int64_t *base;   /* per access: INDEX base value */
    const int64_t *extent; /* per axis */
    const uint64_t *num;   /* per number slot, bits */
    uint64_t *partial;     /* split reductions: see below */
    int64_t *fault; /* {id + 1 or 0, index, extent}: written by a failing check; any one wins */
} df_kargs;

/* main: rows o in [o0, o1) of the linearized OUTER axes (1 when there are none); in MAP and COL, i
 * in [i0, i1) of INNER. i0 = 0, i1 = 1 in ROW.
 *
 * part (SPLIT kernels): row o0, blocks [i0, i1) of DF_BLOCK reduced elements: stage 0 for them.
 * Block results go to partial[(acc * n_blocks + block) * inner + i], n_blocks = ceil(L / DF_BLOCK),
 * inner = INNER extent (1 in ROW), acc counting 8-byte slots in order of the reduce instructions
 * (argmin and argmax take two: value bits, index). ROW-level instructions of stage 0 are evaluated
 * again.
 *
 * fin (SPLIT kernels): row o0, i in [i0, i1): joins the blocks, then the last stage.
 *
 * Any thread; ranges may be split anywhere (COL and MAP vector tails give equal bits). */
typedef void (*df_kernel_fn)(const df_kargs *args, int64_t o0, int64_t o1, int64_t i0, int64_t i1);

/* ---- compiled code ---- */

/* A matmul micro-kernel: C[mr x nr] (+)= A panel * B panel; k ascending, acc = fma(a, b, acc).
 * A is packed [k][mr], B [k][nr] (zero-padded to full mr, nr); c has row stride ldc in elements.
 * first: start from zero, else from C. m <= mr rows and n <= nr columns of C exist.
 * next: fetched into L2 meanwhile, DF_GEMM_FETCH_BYTES per DF_GEMM_FETCH_STEPS of k; any address.
 */
typedef void (*df_gemm_fn)(int64_t k, const void *a, const void *b, void *c, int64_t ldc, int64_t m,
                           int64_t n, int64_t first, const void *next);
#define DF_GEMM_FETCH_STEPS 4
#define DF_GEMM_FETCH_BYTES 64

typedef struct df_gemm_kernel {
    df_gemm_fn fn;
    uint32_t mr, nr;
    uint32_t size; /* of its code, in bytes; 0: unknown */
} df_gemm_kernel;

/* main, part, fin; and of SPLIT kernels what all three go on to, which nobody calls by itself. */
enum { DF_CODE_PIECES = 4 };

typedef struct df_code {
    df_kernel_fn main, part, fin; /* part and fin: SPLIT kernels only */
    size_t bytes;
    void *owner; /* the compiler's */
    const void *body;
    uint32_t size[DF_CODE_PIECES]; /* of main, part, fin and body, in bytes; 0: unknown */
    void *shown[DF_CODE_PIECES];   /* naming.c's: what debuggers know of them */
} df_code;

typedef enum df_opt { DF_OPT_O0, DF_OPT_O2 } df_opt;

/* Filled in by a code generator plug-in. All calls: any thread. */
typedef struct df_compiler {
    const char *name; /* "llvm 19.1.7 znver5 64-byte vectors"; NULL where start is not */
    void *self;
    uint32_t vector_bytes; /* 16, 32 or 64; 0 where start is not NULL */
    /* Loads what compiling takes, which the calls below do too. A refusal is final: each later call
     * gets the same status and sentence. NULL: it has started. */
    deft_status (*start)(void *self, df_diag *d);
    /* The compiler's name, or "interpreter: <why it was refused>", which stays until destroy; NULL
     * before the start. vector_bytes may be NULL; it gets 0 unless the compiler has started. The
     * call is NULL where start is. */
    const char *(*describe)(void *self, uint32_t *vector_bytes);
    deft_status (*compile)(void *self, df_diag *d, const df_kernel *const *k, uint32_t n,
                           df_opt level, df_code *out); /* a batch in one module; all or none */
    /* A variant of k under facts: main alone, optimized. NULL: not offered. */
    deft_status (*specialize)(void *self, df_diag *d, const df_kernel *k, const df_facts *facts,
                              df_code *out);
    void (*release)(void *self, df_code *code); /* no thread may be running it */
    /* Text of the IR or assembly for a named target ("x86-64-v4"), for dumps. */
    deft_status (*show)(void *self, df_diag *d, const df_kernel *k, const char *target,
                        bool assembly, df_str *out);
    deft_status (*gemm)(void *self, df_diag *d, deft_dtype t,
                        df_gemm_kernel *out); /* compiled once, kept */
    /* Makes `size` bytes of code at start known to debuggers under name, which is copied, until
     * they are hidden again. NULL: no memory. The code must still be there when it is hidden. Both
     * NULL: not offered. */
    void *(*show_debugger)(void *self, const char *name, const void *start, size_t size);
    void (*hide_debugger)(void *self, void *shown); /* NULL is fine */
    void (*destroy)(void *self);
} df_compiler;

/* ---- plug-ins ---- */

/* What a plug-in may use of the host: it links nothing of libdeft. */
typedef struct df_host {
    uint32_t size;
    const char *build_id; /* must equal the plug-in's */
    const df_mem *mem;
    const df_log *log;
    deft_status (*fail)(df_diag *d, deft_status status, const char *fmt, ...);
    void (*str_putn)(df_str *s, const char *text, size_t n);
    const df_kop_info *kops;
    uint32_t max_vector_bytes; /* 0: the host's own width; tests force 16 or 32 */
    bool keep_frames;          /* profilers and debuggers walk stacks: code keeps frame pointers */
} df_host;

/* The one symbol of a CPU code generator: `df_plugin_cpu`. Refuses a host of another build. */
typedef deft_status (*df_plugin_cpu_fn)(const df_host *host, const char *build_id, df_diag *d,
                                        df_compiler *out);
#define DF_PLUGIN_CPU_SYMBOL "df_plugin_cpu"

/* ---- device ---- */

/* What a launch gets beside the plan and the trace. */
typedef struct df_launch_io {
    df_buffer **root; /* per root: NULL on entry; a new reference on success (NEW roots only) */
    const df_buffer *const
        *input; /* per trace input: its buffer, to take over when donated; may be NULL */
    bool (*interrupted)(void *user); /* asked before each launch that could still be undone */
    void *user;
    struct df_ring *ring; /* is told of each launch; NULL: not */
    df_replay_event_fn
        decided;       /* is told, with user, of each run that was no mere replay; NULL: not */
    df_waiter *waiter; /* when the run waits for code; NULL: nobody asks. Stopped, the run fails as
                        * if interrupted before its first launch */
    struct df_queue *queue; /* of a device with memory of its own: where the work goes; else NULL */
} df_launch_io;

typedef struct df_run_stats {
    uint64_t forks; /* launches that more than one thread took part in, or may have */
    uint64_t launches, segments, bytes_allocated, donated, interpreted_segments;
    uint64_t t_bind_ns, t_run_ns; /* only measured when asked for */
} df_run_stats;

typedef struct df_device df_device;

/* How a queue's runs are replayed as graphs (docs/graphs.md). 0: the default. */
typedef struct df_replay_options {
    uint32_t warm_after; /* runs at a place before one is recorded: 1 */
    uint64_t max_pool_bytes;
} df_replay_options;

/* What a device offers whose memory the host cannot read: addresses in buffers, df_value and
 * df_input are then its own. A run there is *put in*: `run` returns before its results are there,
 * and what is put into the same queue later comes after it; but a plan with checks has been checked
 * when `run` returns. What fails later comes out of the calls that wait. Calls: any thread, those
 * with a queue one at a time for each queue. A buffer may be dropped while work on it is under way.
 */
typedef struct df_device_memory_ops {
    /* theirs: a stream of the caller's, as the device has them (CUstream), which is used and not
     * owned; NULL: one of its own. */
    deft_status (*queue_create)(df_device *dev, df_diag *d, void *theirs, struct df_queue **out);
    void (*queue_destroy)(df_device *dev, struct df_queue **q); /* waits */
    /* Until all that was put in is done. DEFT_E_BACKEND: something failed; d says what, where. */
    deft_status (*wait)(df_device *dev, df_diag *d, struct df_queue *q);
    void *(*stream)(df_device *dev, struct df_queue *q); /* its CUstream */
    deft_status (*create)(df_device *dev, df_diag *d, struct df_queue *q, int64_t bytes,
                          df_buffer **out);
    /* Borrows memory of the device. DEFT_E_ARG: data is not there. */
    deft_status (*wrap)(df_device *dev, df_diag *d, void *data, int64_t bytes, df_buffer **out);
    /* From the host, which may change it as soon as this returns. */
    deft_status (*put)(df_device *dev, df_diag *d, struct df_queue *q, void *to, const void *from,
                       size_t bytes);
    /* To the host; waits. */
    deft_status (*get)(df_device *dev, df_diag *d, struct df_queue *q, void *to, const void *from,
                       size_t bytes);
    deft_status (*copy)(df_device *dev, df_diag *d, struct df_queue *q, void *to, const void *from,
                        size_t bytes);
    /* From another device of this kind, after what is in its queue now; what comes into that one
     * later comes after the copy. */
    deft_status (*copy_peer)(df_device *dev, df_diag *d, struct df_queue *q, void *to,
                             df_device *other, struct df_queue *others, const void *from,
                             size_t bytes);
    /* Has it put in, or what was put in for an equal one. out: of n_out, new references. */
    deft_status (*work)(df_device *dev, df_diag *d, struct df_queue *q, const df_work *w,
                        df_buffer **out);
    df_allocator_stats (*read)(df_device *dev);
    /* Gives back what is cached, and the memory of graphs: of those in a run when that has ended.
     */
    void (*trim)(df_device *dev);
    void (*settle)(df_device *dev); /* until no code is made beside runs; NULL: none ever is */
    /* NULL, as the five that follow: not offered.
     * Runs in q are replayed as graphs from now on. Before the first of them; once. DEFT_E_BACKEND:
     * the device cannot, and q is as before. The rest does nothing, or gives zeros, where they
     * are not. */
    deft_status (*replay)(df_device *dev, df_diag *d, struct df_queue *q,
                          const df_replay_options *wish);
    void (*begin_generation)(df_device *dev, struct df_queue *q); /* a step begins */
    void (*trim_replay)(df_device *dev, struct df_queue *q);      /* drops all graphs */
    df_replay_stats (*read_replay)(df_device *dev, struct df_queue *q);
    bool (*show_replay)(df_device *dev, struct df_queue *q, df_str *out); /* false: no memory */
    /* Each node of the tree as it is. */
    void (*each_replay)(df_device *dev, struct df_queue *q, df_replay_event_fn tell, void *user);
    void (*destroy)(df_device **dev); /* all queues and buffers are gone */
} df_device_memory_ops;

struct df_device {
    const char *name; /* for people; with `far` it says which it is: "cuda:0 (NVIDIA H100 PCIe)" */
    df_limits limits;
    /* Looks up or starts the compilation of every kernel of a new plan. w: when that waits, NULL:
     * nobody asks; DEFT_E_INTERRUPTED when it was stopped. */
    deft_status (*prepare)(df_device *dev, df_diag *d, df_plan *plan, df_waiter *w);
    /* Runs a plan whose guards hold. slots: evaluated. All allocation precedes the first launch. On
     * failure no root exists and no input was changed. */
    deft_status (*run)(df_device *dev, df_diag *d, const df_plan *plan, const df_trace *t,
                       const int64_t *slots, df_launch_io *io, df_run_stats *stats);
    void (*release)(df_device *dev, df_plan *plan); /* drops what prepare attached */
    df_allocator *allocator;                        /* NULL with `far` */
    const df_device_memory_ops *far;                /* NULL: its memory is the host's */
};

/* The symbols of a plug-in for GPUs. `df_plugin_gpu` makes the device with that ordinal, which must
 * be destroyed before the plug-in is closed. Both refuse a host of another build. host lasts as
 * long as the devices. */
typedef struct df_gpu_request {
    uint32_t size;
    int ordinal;
    uint64_t max_bytes, max_cached; /* of its memory; 0: no bound */
    bool measure;
    bool waits; /* runs wait for all code; else for what they cannot do without, see settle */
} df_gpu_request;
typedef deft_status (*df_plugin_gpu_fn)(const df_host *host, const char *build_id, df_diag *d,
                                        const df_gpu_request *wish, df_device **out);
#define DF_PLUGIN_GPU_SYMBOL "df_plugin_gpu"

/* How many it could make, without making one: `df_plugin_gpu_count`. DEFT_E_BACKEND, with the
 * reason: the driver is not there, or gives none. */
typedef deft_status (*df_plugin_gpu_count_fn)(const df_host *host, const char *build_id, df_diag *d,
                                              int *out);
#define DF_PLUGIN_GPU_COUNT_SYMBOL "df_plugin_gpu_count"

#endif
