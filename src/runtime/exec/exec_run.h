/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the executor: one run of a plan.
 *
 *   exec.c         the order of things; how work is divided; launches
 *   exec_bind.c    the frame's layout; buffers; arguments of kernels (bind.h)
 *   exec_matmul.c  products and their epilogues
 *   exec_routine.c what the runtime does by itself
 *   flow.c         plans of parts: loops, branches (flow.h)
 *   exec_notes.c    what the structured log hears of launches
 */
#ifndef DF_RUNTIME_EXEC_RUN_H
#define DF_RUNTIME_EXEC_RUN_H

#include "base/journal.h"
#include "base/limits.h"
#include "runtime/bind.h"
#include "runtime/exec/exec.h"
#include "runtime/interp/interp.h"

typedef struct df_seg_run {
    const df_code *code;             /* NULL: interpret */
    const df_kernel *kernel;         /* NULL: a matmul without epilogue, a routine */
    int64_t n_outer, n_inner, n_red; /* n_inner: 1 in ROW */
    double elements, ns;
    /* how it is cut: items are (group of rows, part of a row), all but equal in size */
    int64_t groups, parts, part_extent, grain; /* a part: elements of INNER, or blocks */
    bool split;
    uint32_t riders, next_rider; /* segments run along with this one's rows, a list; DF_NONE */
    bool rides;
    bool is_idle;  /* nothing of what it computes is stored anywhere: it is left out */
    bool parallel; /* the launch that begins with this segment */
    uint32_t first_item, n_items; /* within its launch */
    uint64_t *partial;
    int64_t partial_row; /* words of partial per row */
    df_kargs args;
    char **ptr; /* args.ptr; with SCRATCH: [thread][access] */
    bool per_thread;
    int64_t *epilogue_stride; /* matmul: [thread][access][axis] */
} df_seg_run;

typedef struct df_run {
    df_executor *x;
    const df_plan *plan;
    const df_trace *t;
    const int64_t *slots;
    df_seg_run *segs;
    char **base;          /* per buffer: its origin */
    df_buffer **own;      /* per buffer: the reference of a ROOT until it is handed out */
    uint32_t *task_begin; /* first item of each task of the current launch; one more at the end */
    uint32_t n_threads;   /* that any launch uses */
    uint32_t max_items;
    size_t interp_size, scratch_size, thread_size; /* per thread */
    char *threads; /* per thread: fault words (64 bytes), interpreter's work space, scratch rows */
    const df_gemm_kernel *gemm[2]; /* f32, f64: read once, when the work space is measured */
    size_t matmul_size, routine_size;
    void *matmul_work, *routine_work;
    const df_launch *launch; /* the current one */
    bool is_inside;          /* df_tiers_choose */
    df_waiter *waiter;       /* of df_launch_io */
} df_run;

/* Hands out pieces; at NULL it only adds up. */
typedef struct df_bump {
    char *at;
    size_t used;
} df_bump;

DF_INLINE void *df_take(df_bump *b, size_t size)
{
    void *const p = b->at ? b->at + b->used : NULL;
    b->used += (size + 63) & ~(size_t)63;
    return p;
}

DF_INLINE int64_t df_run_slot(const df_run *r, df_slot slot)
{
    return df_slot_value(r->slots, slot);
}

DF_INLINE int64_t df_div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
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

/* ---- exec_bind.c ---- */

/* Gives every array and area of the run its place; at NULL it only counts. */
void df_run_lay_out(df_run *r, df_bump *b);
/* Roots and the arena of temporaries. What was had on failure is in r->own and *arena. */
deft_status df_run_take_buffers(df_run *r, df_diag *d, df_launch_io *io, df_buffer **arena,
                                df_run_stats *stats);
void df_run_hand_out(df_run *r, df_launch_io *io); /* the roots: new references */
void df_run_drop_buffers(df_run *r);
/* What follows from slots; and addresses and numbers. */
void df_run_bind_extents(const df_run *r, const df_seg *seg, df_seg_run *s);
void df_run_bind(const df_run *r, const df_seg *seg, df_seg_run *s);

/* ---- exec_matmul.c ---- */

/* The micro-kernel of now: i is 0 for f32, 1 for f64. */
DF_INLINE const df_gemm_kernel *df_run_gemm(df_executor *x, int i)
{
    return atomic_load_explicit(&x->gemm[i], memory_order_acquire);
}

/* Before the layout: work space and threads that products need. */
void df_run_measure_matmuls(df_run *r);
void df_run_matmul(df_run *r, const df_seg *seg, const df_seg_run *s);

/* ---- exec_routine.c ---- */

void df_run_measure_routines(df_run *r); /* before the layout: work space */
void df_run_routine(const df_run *r, const df_seg *seg);
/* The indices that lie in inputs, before anything is written; a fault is noted as by a check. */
void df_run_check_inputs(const df_run *r);

/* ---- exec_notes.c ---- */

/* Launch `index` of the plan took ns. */
void df_run_log_launch(const df_run *r, uint32_t index, df_ring *ring, uint64_t ns);

#endif
