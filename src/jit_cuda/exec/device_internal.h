/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the GPU device: the device, what it attaches to plans, and how a plan is run.
 *
 *   device.c               the df_device: creation, plans, memory calls
 *   queues.c               the queues of a device
 *   run.c                  one run: buffers, run layout, then launches or a graph; plans of parts
 *   call.c                 the launches of a run
 *   run_layout.h           what follows from a plan, its slots and alignments: kept for later runs
 *   layout.h               used while a run layout is built; jobs
 *   jobs.c                 products and routines, which are not launches of kernels
 *   functions.c            the loaded functions of a run layout
 *   fallback.c             which entry is used while another is being compiled
 *   table.h                when the argument words of kernels are in a table
 *   tagged.c               loops that one routine computes: attention
 *   host.c                 plans that a GPU has no code for
 *   work.h                 external work
 *   exec/choose.c           which entry of a kernel, and how many thread blocks
 *   graphs/graph.h         a run as a graph; graph trees
 *   graphs/conditional.h   a loop or a branch as one graph
 */
#ifndef DF_JIT_CUDA_OWN_H
#define DF_JIT_CUDA_OWN_H

#include <pthread.h>

#include "base/vec.h"
#include "base/arena.h"
#include "jit_cuda/kernels/cublaslt.h"
#include "jit_cuda/exec/device.h"
#include "jit_cuda/driver/gpu.h"
#include "jit_cuda/driver/module.h"
#include "jit_cuda/driver/nvtx.h"
#include "jit_cuda/kernels/routine.h"
#include "runtime/bind.h"

typedef struct df_cuda_queue_entry {
    df_queue *q;
    struct df_cuda_graphs *graphs; /* NULL: its runs are launch by launch */
} df_cuda_queue_entry;

typedef struct df_cuda_device {
    df_device dev; /* first, so that a df_device can be cast to its df_cuda_device */
    const df_mem *mem;
    const df_log *log;
    df_driver *driver;
    df_gpu *gpu;
    df_nvrtc *nvrtc;
    df_modules *modules;
    df_cuda_background *later; /* NULL: runs wait for the code that they need */
    df_nvtx nvtx;
    bool measure;                /* time the runs (df_run_stats) */
    _Atomic uint64_t n_prepared; /* plans prepared so far */
    pthread_mutex_t lock;        /* guards the fields below, but not `conditionals` */
    DF_VEC(df_cuda_queue_entry) queues;
    df_device *host; /* a CPU device; NULL until a plan needs it */
    df_cublaslt *lt; /* opened before the first product of a FAST trace; NULL: not available */
    bool lt_is_tried;
    /* Owned by conditional.c; NULL until one is needed */
    struct df_cuda_conditionals *_Atomic conditionals;
    char name[96];
} df_cuda_device;

DF_INLINE df_cuda_device *df_cuda_device_of(df_device *dev)
{
    return (df_cuda_device *)(void *)dev;
}

/* ---- queues.c ---- */

/* The entry of queue q, or NULL when q is not a queue of the device. The caller holds
 * c->lock. */
df_cuda_queue_entry *df_cuda_queue_entry_of(df_cuda_device *c, const df_queue *q);
/* The graph tree of a queue, or NULL when it has none. Takes c->lock. */
struct df_cuda_graphs *df_cuda_graphs_of(df_cuda_device *c, const df_queue *q);

/* What kernel k of plan computes, for example "mul, exp". NULL: unknown. k may be DF_NO_KERN. */
DF_INLINE const char *df_cuda_ops(const df_plan *plan, df_kern k)
{
    return plan->about && k.i != DF_NONE ? plan->about[k.i].ops : NULL;
}

/* ---- what is attached to a plan (df_plan.attached) ---- */

typedef struct df_cuda_run_layout df_cuda_run_layout;

/* run layouts kept per plan: so many sets of extents may alternate at no cost */
enum { DF_CUDA_FRAMES = 4 };
enum { DF_CUDA_ENTRIES = DF_CUDA_N_PASSES * DF_CUDA_N_FLAGS };

/* The index of an entry among those of a kernel. */
DF_INLINE uint32_t df_cuda_entry_number(df_cuda_entry e)
{
    return e.pass * (uint32_t)DF_CUDA_N_FLAGS + e.flags;
}

typedef struct df_cuda_plan {
    bool on_host; /* the plan, or one within it, has a segment that a GPU has no code for */
    uint32_t n_kernels;
    /* [kernel][DF_CUDA_ENTRIES], a reference each; NULL: not needed so far */
    df_cuda_fn *_Atomic *fn;
    /* run layouts of earlier runs, for later ones; NULL: free */
    df_cuda_run_layout *_Atomic frame[DF_CUDA_FRAMES];
    /* logged why the construct of which it is the body is run by the host */
    _Atomic bool is_told;
    _Atomic uint32_t n_taken; /* run layouts that were built in place of others */
    _Atomic uint32_t table;   /* DF_CUDA_BY_VALUE and so on (table.h) */
} df_cuda_plan;

/* ---- choose.c ---- */

typedef struct df_cuda_choice {
    uint8_t flags; /* flags of MAIN: NARROW, WIDE, LONG, HELD */
    bool split;    /* PART and FIN are launched in place of MAIN */
} df_cuda_choice;

/* The limits by which plans for this GPU are fused. */
df_limits df_cuda_limits(const df_gpu_properties *g);
/* Chooses the entry for a segment. A segment with few rows is split so that it uses all of
 * the GPU. */
df_cuda_choice df_cuda_choose(const df_gpu_properties *g, const df_kernel *k, const df_kargs *a);
/* A bound on the thread blocks of a launch, each of n_threads: so many fill the GPU a few times.
 * With row_bytes, the bytes of one team's SCRATCH rows, it is also what has room in memory. */
int64_t df_cuda_most_blocks(const df_gpu_properties *g, df_cuda_entry e, uint32_t n_threads,
                            int64_t row_bytes);
/* Reduces n_blocks, the thread blocks that have work, so that each thread has all the packs
 * that it processes side by side (df_cuda_packs). Returns n_blocks when fewer would not
 * fill the GPU. */
int64_t df_cuda_fewer_blocks(const df_gpu_properties *g, const df_kernel *k, df_cuda_entry e,
                             int64_t n_blocks);

/* ---- run.c ---- */

/* Runs a plan: df_device.run. */
deft_status df_cuda_run(df_cuda_device *c, df_diag *d, const df_plan *plan, const df_trace *t,
                        const int64_t *slots, df_launch_io *io, df_run_stats *stats);

/* ---- tagged.c ---- */

/* Runs a tagged loop, when the GPU has a routine for it: df_flow_ops.run_tagged. */
deft_status df_cuda_run_tagged(df_cuda_device *c, df_queue *q, df_diag *d, const df_plan *plan,
                               const df_part *part, const int64_t *slots, void *const *in,
                               void *const *out, bool *done);

/* ---- host.c ---- */

/* Whether a GPU has no code for the plan. The reason is in why. */
bool df_cuda_needs_host(const df_plan *plan, df_diag *why);
/* Runs a plan on the host like df_cuda_run: downloads its inputs, uploads its results, and
 * waits for both. */
deft_status df_cuda_run_on_host(df_cuda_device *c, df_diag *d, const df_plan *plan,
                                const df_trace *t, const int64_t *slots, df_launch_io *io,
                                df_run_stats *stats);

#endif
