/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the GPU device: what it holds, what it attaches to plans, and one run of a plan.
 *
 *   device.c    the df_device: made, prepared, released; queues; copies
 *   run.c       one run: buffers, words, launches, checks; plans of parts
 *   frame.c     what follows from a plan, its slots and alignments: kept from run to run
 *   jobs.c      products and routines, whose launches are not of kernels
 *   tagged.c    loops in one go: attention
 *   choose.c    which entry of a kernel, and how many thread blocks
 *   lay.h       while a frame is laid out; jobs
 *   conditional.h  loops and branches as one graph
 *   graph.h     a run as launches or as a graph; graph trees
 *   host.c      what a GPU has no code for
 */
#ifndef DF_JIT_CUDA_OWN_H
#define DF_JIT_CUDA_OWN_H

#include <pthread.h>

#include "base/vec.h"
#include "base/arena.h"
#include "jit_cuda/cublaslt.h"
#include "jit_cuda/device.h"
#include "jit_cuda/gpu.h"
#include "jit_cuda/module.h"
#include "jit_cuda/nvtx.h"
#include "jit_cuda/routine.h"
#include "runtime/bind.h"

typedef struct df_cuda_lane {
    df_queue *q;
    struct df_cuda_graphs *graphs; /* NULL: its work is put in launch by launch */
} df_cuda_lane;

typedef struct df_cuda_device {
    df_device dev; /* first: a device is its df_cuda_device */
    const df_mem *mem;
    const df_log *log;
    df_driver *driver;
    df_gpu *gpu;
    df_nvrtc *nvrtc;
    df_modules *modules;
    df_nvtx nvtx;
    bool measure;
    _Atomic uint64_t n_prepared; /* plans, so far */
    pthread_mutex_t lock;        /* guards the rest */
    DF_VEC(df_cuda_lane) queues;
    df_device *host; /* made when a plan first needs it */
    df_cublaslt *lt; /* opened before the first product of a FAST trace */
    bool lt_is_tried;
    struct df_cuda_conditionals *_Atomic conditionals; /* conditional.c's; NULL: not wanted yet */
    char name[96];
} df_cuda_device;

DF_INLINE df_cuda_device *df_cuda_device_of(df_device *dev)
{
    return (df_cuda_device *)(void *)dev;
}

/* Of a queue; NULL: it has none. */
struct df_cuda_graphs *df_cuda_graphs_of(df_cuda_device *c, const df_queue *q);

/* What kernel k of plan computes: "mul, exp"; NULL: unknown. k may be DF_NONE. */
DF_INLINE const char *df_cuda_ops(const df_plan *plan, uint32_t k)
{
    return plan->about && k != DF_NONE ? plan->about[k].ops : NULL;
}

/* ---- what is attached to a plan (df_plan.attached) ---- */

typedef struct df_cuda_frame df_cuda_frame;

enum { DF_CUDA_FRAMES = 4 }; /* kept of a plan: so many sets of extents alternate at no cost */
enum { DF_CUDA_ENTRIES = DF_CUDA_N_PASSES * 16 }; /* of a kernel: pass * 16 + flags */

typedef struct df_cuda_plan {
    bool on_host; /* it, or a plan within it, holds what a GPU has no code for */
    uint32_t n_kernels;
    df_cuda_fn *_Atomic *fn; /* [kernel][DF_CUDA_ENTRIES]; NULL: not wanted as yet */
    df_cuda_frame *_Atomic frame[DF_CUDA_FRAMES]; /* of runs before, for those to come; or NULL */
    _Atomic bool is_told;     /* why the loop or branch that it is the body of turns on the host */
    _Atomic uint32_t n_taken; /* frames that were laid out anew in place of others */
} df_cuda_plan;

/* ---- choose.c ---- */

typedef struct df_cuda_choice {
    uint8_t flags; /* of MAIN: NARROW, WIDE, LONG */
    bool split;    /* PART and FIN in place of MAIN */
} df_cuda_choice;

/* How plans for such a GPU are fused. */
df_limits df_cuda_limits(const df_gpu_facts *g);
/* How a segment goes best: few rows are split among all of the GPU. */
df_cuda_choice df_cuda_choose(const df_gpu_facts *g, const df_kernel *k, const df_kargs *a);
/* So many thread blocks fill the GPU a few times over; of SCRATCH kernels, whose rows take
 * row_bytes each, as many as have room. */
int64_t df_cuda_most_blocks(const df_gpu_facts *g, const df_kernel *k, df_cuda_entry e,
                            int64_t row_bytes);

/* ---- frame.c ---- */

/* Where words that are addresses are counted from: plan buffers, then these. */
enum { DF_CUDA_ORIGIN_TABLE, DF_CUDA_ORIGIN_TEMPS, DF_CUDA_ORIGIN_SCRATCH, DF_CUDA_N_ORIGINS };

/* What has no address while a frame is laid out is taken to be here: aligned, and not NULL. */
#define DF_CUDA_NOWHERE ((uintptr_t)1 << 20)

typedef struct df_cuda_fix { /* a word: an address */
    uint32_t at, origin;
    int64_t add;
} df_cuda_fix;

typedef struct df_cuda_num { /* a word: an argument of the trace */
    uint32_t at, arg;
} df_cuda_num;

typedef struct df_cuda_words {
    DF_VEC(uint64_t) word;
    DF_VEC(df_cuda_fix) fix;
    DF_VEC(df_cuda_num) num;
} df_cuda_words;

/* One launch of the driver, or a product of cuBLASLt's. */
typedef struct df_cuda_step {
    uint32_t seg;    /* of the plan: the first */
    uint32_t kernel; /* of the plan; DF_NONE: of `job` */
    df_cuda_entry entry;
    uint32_t job;            /* whose; DF_NONE */
    uint32_t of_job;         /* which entry of it; DF_NONE: cuBLASLt */
    uint32_t param, n_words; /* where its parameter is among params; cuBLASLt: none */
    uint32_t first_use, n_uses;
    uint32_t n_blocks, n_threads;
    df_cu_fn fn;
} df_cuda_step;

/* What a step reads or writes: a buffer of the plan, or n_bufs: scratch memory. */
typedef struct df_cuda_use {
    uint32_t what;
    bool writes; /* and may read */
} df_cuda_use;

/* What is there before the first step: the donor's contents, in a root of its own. */
typedef struct df_cuda_copy {
    uint32_t buf;
    size_t bytes;
    df_cu_ptr to, from;
} df_cuda_copy;

/* Steps [begin, end), after which the words of fault are looked at, or not. */
typedef struct df_cuda_phase {
    uint32_t begin, end;
    bool is_checked;
} df_cuda_phase;

enum { DF_CUDA_PHASES = 3 };

/* A product or a routine. */
typedef struct df_cuda_job {
    const df_seg *seg;
    bool is_check;         /* of a scatter's indices alone */
    int64_t c_at, work_at; /* within the scratch memory: C, where it must be made; work space */
    uint32_t param;        /* of its first launch, the others follow */
    /* a product: */
    df_cuda_gemm_job product;
    df_cuda_gemm choice;
    const df_kernel *epilogue; /* NULL: none */
    df_bound bound;            /* arguments of the epilogue */
    df_kargs args;
    uint32_t words; /* of an epilogue by itself, among params, or in the table; DF_NONE */
    bool in_table;
    /* a routine: */
    df_cuda_launches *list;
} df_cuda_job;

struct df_cuda_frame {
    uint32_t n_bufs, n_slots, n_launches; /* of its plan */
    bool is_laid_out;
    int64_t *slots; /* that it was laid out for */
    uint8_t *low;   /* and of each buffer its address modulo `align`: 16 or 256 */
    uint32_t align;
    char **origin;    /* per buffer, then DF_CUDA_ORIGIN_* */
    df_buffer **own;  /* per buffer: the reference of a root until it is handed out */
    df_buffer **lent; /* per buffer, while a graph is launched: what a root in the pool will be */
    struct df_tree_out *out; /* per buffer: room for what a graph tree wants to know */
    DF_VEC(df_cuda_step) steps;
    DF_VEC(df_cuda_use) uses;
    DF_VEC(df_cuda_copy) copies; /* of the run at hand, as phases are */
    df_cuda_phase phase[DF_CUDA_PHASES];
    uint32_t n_phases;
    uint32_t n_first; /* steps that look at indices, before the first launch */
    uint32_t *end;    /* per launch: past the last of its steps */
    DF_VEC(df_cuda_job) jobs;
    DF_VEC(df_cuda_fn *) job_fns; /* references, as jobs have entries */
    df_arena arena;               /* of jobs */
    df_cuda_words table;          /* goes to the device: words of fault, tables of MANY */
    df_cuda_words params;         /* goes with launches */
    int64_t temps_bytes, scratch_bytes;
};

enum { DF_CUDA_FAULT_WORDS = 4 }; /* at the front of the table: three, and one unused */

df_cuda_frame *df_cuda_frame_create(const df_mem *mem, const df_plan *plan); /* NULL: no memory */
void df_cuda_frame_destroy(const df_mem *mem, df_cuda_frame **f);            /* NULL is fine */
/* Whether it stands as it is for these slots and f->origin. */
bool df_cuda_frame_fits(const df_cuda_frame *f, const df_plan *plan, const int64_t *slots);
/* Steps and words of a run on these slots and f->origin; of temporaries these are offsets. */
deft_status df_cuda_frame_lay_out(df_cuda_frame *f, df_diag *d, df_cuda_device *c,
                                  const df_plan *plan, const df_trace *t, const int64_t *slots);
/* Functions of all steps; what is missing is compiled. */
deft_status df_cuda_frame_load(df_cuda_frame *f, df_diag *d, df_cuda_device *c, const df_plan *plan,
                               df_waiter *w);

/* ---- run.c ---- */

/* df_device.run */
deft_status df_cuda_run(df_cuda_device *c, df_diag *d, const df_plan *plan, const df_trace *t,
                        const int64_t *slots, df_launch_io *io, df_run_stats *stats);

/* ---- tagged.c ---- */

/* df_flow_ops.run_tagged */
deft_status df_cuda_run_tagged(df_cuda_device *c, df_queue *q, df_diag *d, const df_plan *plan,
                               const df_part *part, const int64_t *slots, void *const *in,
                               void *const *out, bool *done);

/* ---- host.c ---- */

/* Whether a GPU has no code for plan, and why. */
bool df_cuda_needs_host(const df_plan *plan, df_diag *why);
/* df_cuda_run on the host: inputs are read, results put. Waits for both. */
deft_status df_cuda_run_on_host(df_cuda_device *c, df_diag *d, const df_plan *plan,
                                const df_trace *t, const int64_t *slots, df_launch_io *io,
                                df_run_stats *stats);

#endif
