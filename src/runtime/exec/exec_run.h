/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of the executor: one run of a plan.
 *
 *   exec.c           the order of the steps; launches
 *   exec_measure.c   how much work there is
 *   exec_divide.c    how work is divided
 *   exec_bind.c      the run layout; buffers; arguments of kernels (bind.h)
 *   exec_stream.c    which results go around the caches, and which loads prefetch
 *   exec_matmul.c    products and their epilogues
 *   exec_weights.c   packed copies of weights
 *   exec_routine.c   routines (routine.h)
 *   exec_rows.c      which rows of a loop do not depend on each other
 *   exec_blocks.c    loops that run block by block
 *   exec_masked.c    what causal attention leaves out there
 *   exec_notes.c     notes and times of launches
 *   flow.c           plans of parts: loops and branches (flow.h)
 */
#ifndef DF_RUNTIME_EXEC_RUN_H
#define DF_RUNTIME_EXEC_RUN_H

#include "base/bump.h"
#include "base/journal.h"
#include "base/limits.h"
#include "runtime/bind.h"
#include "runtime/exec/exec.h"
#include "runtime/interp/interp.h"

/* Estimated time per element and instruction, of compiled code and of the interpreter. */
#define DF_CODE_NS 0.015
#define DF_INTERP_NS 0.06
/* Estimated time per byte that one thread moves, where its caches do not hold the bytes. */
#define DF_MEMORY_NS 0.02

/* One segment in a run. */
typedef struct df_seg_run {
    const df_code *code;             /* NULL: interpret */
    const df_kernel *kernel;         /* NULL: a product without epilogue, or a routine */
    int64_t n_outer, n_inner, n_red; /* products of extents by role; n_inner is 1 in ROW */
    double elements;                 /* estimated work */
    double code_ns, ns;              /* estimated time: of the instructions; with that of memory */
    double bytes;                    /* moved between memory and registers */
    bool may_stream;                 /* results may go around the caches (exec_stream.c) */
    bool fetches;                    /* loads prefetch (exec_stream.c) */
    bool streams_lines;              /* but only if all their rows begin at a cache line */
    /* The division: an item is one of `groups` groups of rows times one of `parts` parts of a row.
     * Items have nearly equal sizes. A part is a range of part_extent elements of INNER, or of
     * part_extent blocks when `split` is set. It begins at a multiple of grain. */
    int64_t groups, parts, part_extent, grain;
    int64_t row_grain; /* groups of rows begin at multiples of it */
    bool split;        /* the reduction is divided into blocks: part, then fin */
    bool runs_whole;   /* it is not divided; of an interpreted segment: its code would not be */
    /* Co-scheduled segments, which run together with the rows of this one: the first of a list, and
     * the next in the list of which this segment is a member. DF_NONE ends the list. */
    uint32_t riders, next_rider;
    bool rides;                   /* this segment is co-scheduled with another one */
    bool copies_rows;             /* its rows are copied with those of others (row_copies.h) */
    bool copies_short_rows;       /* its rows are copied without its code (row_copies.h) */
    bool is_idle;                 /* all buffers that it writes are empty: it is skipped */
    bool is_zeroed;               /* it would write zeros over zeros: it is skipped in this run */
    bool parallel;                /* the launch that begins with this segment runs in parallel */
    bool is_short;                /* that launch does so only when df_pool_share says so */
    double launch_ns;             /* estimated time of that launch on one thread */
    uint32_t first_item, n_items; /* within its launch */
    uint64_t *partial;
    int64_t partial_row; /* words of `partial` per row */
    df_kargs args;
    char **ptr;               /* args.ptr; with SCRATCH accesses [thread][access] */
    bool per_thread;          /* the kernel has SCRATCH accesses: each thread has its own ptr */
    int64_t *epilogue_stride; /* products: [thread][access][axis] */
} df_seg_run;

/* Returns the time that code takes for the instructions of s, also when s is interpreted. */
static inline double df_seg_run_code_ns(const df_seg_run *s)
{
    return s->code ? s->code_ns : s->code_ns * (DF_CODE_NS / DF_INTERP_NS);
}

typedef struct df_run {
    df_executor *x;
    const df_plan *plan;
    const df_trace *t;
    const int64_t *slots;
    const df_buffer *const *inputs; /* df_launch_io.input */
    df_seg_run *segs;
    char **base;          /* per buffer: the address of its first element */
    df_buffer **own;      /* per buffer: the reference to a ROOT, until df_run_hand_out */
    uint32_t *task_begin; /* first item of each task of the current launch, and the end */
    uint32_t n_threads;   /* the most threads that any launch uses */
    uint32_t max_items;   /* the most items of any launch */
    size_t work_size, scratch_size, thread_size; /* bytes per thread */
    char *threads;                 /* per thread: fault words (64 bytes), workspace, scratch rows */
    const df_gemm_kernel *gemm[2]; /* f32, f64: read once, when the workspace is measured */
    size_t matmul_size, routine_size;
    void *matmul_work, *routine_work;
    const df_launch *launch; /* the current launch */
    bool is_inside;          /* of df_tiers_choose */
    df_waiter *waiter;       /* of df_launch_io; may be NULL */
} df_run;

DF_INLINE int64_t df_run_slot(const df_run *r, df_slot slot)
{
    return df_slot_value(r->slots, slot);
}

DF_INLINE char *df_run_thread_area(const df_run *r, uint32_t thread)
{
    return r->threads + r->thread_size * thread;
}

DF_INLINE void df_run_main(const df_run *r, const df_seg_run *s, const df_kargs *a, uint32_t thread,
                           int64_t o0, int64_t o1, int64_t i0, int64_t i1)
{
    if (s->code)
        s->code->main(a, o0, o1, i0, i1);
    else
        df_interp_main(s->kernel, df_run_thread_area(r, thread) + 64, a, o0, o1, i0, i1);
}

/* ---- exec_measure.c ---- */

/* Fills in what r knows of each segment before its work is divided: code, extents, estimates. */
void df_run_measure(df_run *r);
/* Returns the current code of a kernel; NULL: interpret it. May wait for the compiler. */
const df_code *df_run_code(const df_run *r, const df_seg *seg, const df_seg_run *s);

/* ---- exec_divide.c ---- */

/* Returns where share i begins when extent is divided into n nearly equal shares. */
DF_INLINE int64_t df_run_share_begin(int64_t extent, int64_t i, int64_t n)
{
    return extent / n * i + extent % n * i / n;
}

/* Returns the first row of a group of rows. */
DF_INLINE int64_t df_run_group_begin(const df_seg_run *s, int64_t group)
{
    const int64_t row = df_run_share_begin(s->n_outer, group, s->groups);
    return group < s->groups ? row - row % s->row_grain : row;
}

DF_INLINE int64_t df_run_part_begin(const df_seg_run *s, int64_t part)
{
    const int64_t grains = df_div_up(s->part_extent, s->grain);
    return df_min_i64(df_run_share_begin(grains, part, s->parts) * s->grain, s->part_extent);
}

/* Divides all launches of a run whose segments are measured. */
void df_run_divide_launches(df_run *r);
/* Groups the items of a launch into tasks (r->task_begin). Returns how many. */
uint32_t df_run_make_tasks(df_run *r, const df_launch *l);

/* ---- exec_bind.c ---- */

/* Takes the memory of every array and area of the run from b. */
void df_run_lay_out(df_run *r, df_bump *b);
/* Allocates roots and the arena of temporaries, or reuses the memory of donors, and fills in
 * r->base. On failure the references so far are in r->own and *arena, for the caller to drop. */
deft_status df_run_take_buffers(df_run *r, df_diag *d, df_launch_io *io, df_buffer **arena,
                                df_run_stats *stats);
void df_run_hand_out(df_run *r, df_launch_io *io); /* fills in io->root with new references */
/* Drops the references in r->own. Values whose memory the run may have written are marked as
 * changed. */
void df_run_drop_buffers(df_run *r);
/* The bytes of the elements that access i of a segment touches, each counted once. */
uint64_t df_run_access_bytes(const df_run *r, const df_seg *seg, const df_kernel *k, uint32_t i);
/* Fills in extents and strides of a kernel's arguments. They depend on slots alone. */
void df_run_bind_extents(const df_run *r, const df_seg *seg, df_seg_run *s);
/* Fills in addresses and numbers. */
void df_run_bind(const df_run *r, const df_seg *seg, df_seg_run *s);
/* Whether segment i, whose arguments are bound, would fill a result with zeros whose memory is 0
 * already. Must be called before anything runs: it may change the pages of the result. */
bool df_run_is_zeroed(const df_run *r, uint32_t i);

/* ---- exec_stream.c ---- */

/* Sets may_stream of every segment, from sizes alone. */
void df_run_find_streams(df_run *r);
/* Sets `fetches` of every segment, from sizes and the division of the launches. */
void df_run_find_fetches(df_run *r);
/* Whether the results of a segment that may stream go around the caches in this run, whose
 * addresses are bound. */
bool df_run_streams(const df_run *r, const df_seg *seg, const df_seg_run *s);

/* ---- exec_matmul.c ---- */

/* Returns the current micro-kernel; i is 0 for f32, 1 for f64. NULL: use the tiles in C. */
DF_INLINE const df_gemm_kernel *df_run_gemm(df_executor *x, int i)
{
    return atomic_load_explicit(&x->gemm[i], memory_order_acquire);
}

/* Determines the workspace and the threads that products need. Called before df_run_lay_out. */
void df_run_measure_matmuls(df_run *r);
void df_run_matmul(df_run *r, const df_seg *seg, const df_seg_run *s);
/* Returns the micro-kernel of this run for products of dtype t. */
const df_gemm_kernel *df_run_product_code(const df_run *r, deft_dtype t);

/* The next three are for rows of products that one thread computes. Operands must have the dtype of
 * the product. The first makes the job of the whole product, without addresses. The second sets the
 * addresses in this run. The third computes a part of it on the calling thread: rows of the batch
 * from row0 on, of which `part` is the job. */
void df_run_describe_product(const df_run *r, const df_seg *seg, df_matmul_job *job);
void df_run_place_product(const df_run *r, const df_seg *seg, df_matmul_job *job);
void df_run_product_rows(const df_run *r, const df_seg *seg, const df_seg_run *s,
                         df_matmul_job *part, int64_t row0);

/* ---- exec_weights.c ---- */

/* Sets job->packed when the weights of the product are packed, or are packed now. The job has no
 * operand that is converted. Returns a reference that must be dropped after the product; may be
 * NULL. */
df_buffer *df_run_find_weights(const df_run *r, const df_seg *seg, df_matmul_job *job);

/* ---- exec_routine.c ---- */

/* Determines the workspace that routines need. Called before df_run_lay_out. */
void df_run_measure_routines(df_run *r);
/* Runs a routine. Only a call of an opaque operator may fail. */
deft_status df_run_routine(const df_run *r, df_diag *d, const df_seg *seg);
/* Checks the indices of scatter_add and index_add that are inputs of the trace, before anything is
 * written. The first fault is stored in the fault words of thread 0. */
void df_run_check_inputs(const df_run *r);

/* ---- runtime/opaque.c ---- */

/* Returns the bytes of workspace that a call of an opaque operator needs. */
size_t df_run_call_work_size(const df_run *r, const df_seg *seg);
/* Runs the call. Fails with what the operator says, or when it is not defined here. d then has the
 * node and the call site. */
deft_status df_run_call(const df_run *r, df_diag *d, const df_seg *seg);

/* ---- exec_notes.c ---- */

/* Logs that launch `index` of the plan took ns. Adds its time by call site, too. */
void df_run_log_launch(const df_run *r, uint32_t index, df_ring *ring, uint64_t ns);
/* The same for all launches, which took ns together. */
void df_run_log_loop(const df_run *r, df_ring *ring, uint64_t ns);

#endif
