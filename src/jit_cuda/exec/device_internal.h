/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the GPU device: what it holds, what it attaches to plans, and one run of a plan.
 *
 *   device.c    the df_device: made, prepared, released; queues; copies
 *   run.c       one run: buffers, words, launches, checks; plans of parts
 *   run_layout.h     what follows from a plan, its slots and alignments: kept from run to run
 *   jobs.c      products and routines, whose launches are not of kernels
 *   tagged.c    loops in one go: attention
 *   choose.c    which entry of a kernel, and how many thread blocks
 *   fallback.c     which goes in its place until it is there
 *   layout.h       while a frame is laid out; jobs
 *   conditional.h  loops and branches as one graph
 *   graph.h     a run as launches or as a graph; graph trees
 *   table.h     when kernels' words go by a table
 *   host.c      what a GPU has no code for
 *   work.h      work of the caller's among runs
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
    struct df_cuda_graphs *graphs; /* NULL: its work is put in launch by launch */
} df_cuda_queue_entry;

typedef struct df_cuda_device {
    df_device dev; /* first: a device is its df_cuda_device */
    const df_mem *mem;
    const df_log *log;
    df_driver *driver;
    df_gpu *gpu;
    df_nvrtc *nvrtc;
    df_modules *modules;
    df_cuda_background *later; /* NULL: runs wait for what they lack */
    df_nvtx nvtx;
    bool measure;
    _Atomic uint64_t n_prepared; /* plans, so far */
    pthread_mutex_t lock;        /* guards the rest */
    DF_VEC(df_cuda_queue_entry) queues;
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

/* ---- queues.c ---- */

/* The entry of queue q. NULL: q is no queue of the device. The caller holds c->lock. */
df_cuda_queue_entry *df_cuda_queue_entry_of(df_cuda_device *c, const df_queue *q);
/* The graph tree of a queue; NULL: it has none. */
struct df_cuda_graphs *df_cuda_graphs_of(df_cuda_device *c, const df_queue *q);

/* What kernel k of plan computes: "mul, exp"; NULL: unknown. k may be DF_NONE. */
DF_INLINE const char *df_cuda_ops(const df_plan *plan, uint32_t k)
{
    return plan->about && k != DF_NONE ? plan->about[k].ops : NULL;
}

/* ---- what is attached to a plan (df_plan.attached) ---- */

typedef struct df_cuda_run_layout df_cuda_run_layout;

enum { DF_CUDA_FRAMES = 4 }; /* kept of a plan: so many sets of extents alternate at no cost */
enum { DF_CUDA_ENTRIES = DF_CUDA_N_PASSES * 16 }; /* of a kernel: pass * 16 + flags */

typedef struct df_cuda_plan {
    bool on_host; /* it, or a plan within it, holds what a GPU has no code for */
    uint32_t n_kernels;
    df_cuda_fn *_Atomic *fn; /* [kernel][DF_CUDA_ENTRIES]; NULL: not wanted as yet */
    df_cuda_run_layout
        *_Atomic frame[DF_CUDA_FRAMES]; /* of runs before, for those to come; or NULL */
    _Atomic bool is_told;     /* why the loop or branch that it is the body of turns on the host */
    _Atomic uint32_t n_taken; /* frames that were laid out anew in place of others */
    _Atomic uint32_t table;   /* DF_CUDA_BY_VALUE and so on (table.h) */
} df_cuda_plan;

/* ---- choose.c ---- */

typedef struct df_cuda_choice {
    uint8_t flags; /* of MAIN: NARROW, WIDE, LONG */
    bool split;    /* PART and FIN in place of MAIN */
} df_cuda_choice;

/* How plans for such a GPU are fused. */
df_limits df_cuda_limits(const df_gpu_properties *g);
/* How a segment goes best: few rows are split among all of the GPU. */
df_cuda_choice df_cuda_choose(const df_gpu_properties *g, const df_kernel *k, const df_kargs *a);
/* So many thread blocks fill the GPU a few times over; of SCRATCH kernels, whose rows take
 * row_bytes each, as many as have room. */
int64_t df_cuda_most_blocks(const df_gpu_properties *g, const df_kernel *k, df_cuda_entry e,
                            int64_t row_bytes);
/* Of n_blocks that have something to do, so many as leave each thread all the groups that it takes
 * side by side (df_cuda_packs), if those are enough for the GPU. */
int64_t df_cuda_fewer_blocks(const df_gpu_properties *g, const df_kernel *k, df_cuda_entry e,
                             int64_t n_blocks);

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
