/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan: what the fuser makes of a trace and every back end reads. Kernels, the segments that run
 * them, launches of independent segments, buffers, guards, and the slots that turn a run's extents
 * into loop bounds and strides. Plain structs in one arena: a plan outlives its trace and refers to
 * it by numbers only.
 *
 * A *kernel* is identity: code is generated from it and cached under its bytes. It holds no
 * extents, no strides but their class, no numbers, no pointers. A *segment* binds one kernel to
 * slots and buffers.
 *
 *            trace --df_fuse--> plan { kernels, segs, launches, bufs, slots, guards }
 *
 * A trace with loops or branches (trace/control.h) gives a plan of *parts* instead: each part holds
 * plans without control, or with less of it, and what passes between parts lies in *cells*.
 *
 *            part 0 run     part 1 loop { test, body }     part 2 run
 *               |  cells        | cells, states, rows         | roots
 *
 * Loop structure of a kernel (df_kernel.mode); axes are listed from the outermost to the innermost:
 *
 *   MAP  OUTER* INNER       for o: for i (vector): body
 *
 *   ROW  OUTER* RED+        for o: { row(0); for r (vector): elem(0); fold; row(1); ... }
 *
 *   COL  OUTER* RED+ INNER  for o: for i (vector): { row(0); for r: elem(0); fold; row(1); ... }
 *
 *   LOOP OUTER* RED INNER   for o: for i (vector): { row(0); for r in order: elem(0); row(1) }
 *
 * RED axes are nested row-major; the position within them, r = 0, 1, ... L-1, numbers the reduced
 * elements for the order of reductions (base/limits.h). The fuser merges neighbouring axes that
 * every access steps through alike. A ROW kernel with several RED axes goes run by run, a run being
 * one pass along the last of them: operands of reductions are put side by side until a block of
 * them is there, and are reduced from that. So it has at most DF_MAX_RUN_REDS reductions, and no
 * scan.
 *
 * Body: instructions in order of (stage, level). Level ROW instructions run once per row (per
 * vector of rows in COL and LOOP) before the RED loop of their stage; level ELEM run inside it. A
 * reduce instruction stands at level ELEM of stage s and its value may be used from level ROW of
 * stage s + 1 on. In MAP all instructions have stage 0, level ELEM. The last stage may have no ELEM
 * instructions: then it has no loop. A scan instruction's value is usable at level ELEM of its own
 * stage, after it; a kernel with a scan is COL, or ROW run in order by a scalar loop.
 *
 * LOOP: the RED axis numbers iterations, and states live in registers from one to the next. Its
 * extent is how many there are, or, with a proceed, a bound that no run need reach (INT64_MAX is
 * one). A carry is a state's value at the start of the iteration, a next what it becomes at the
 * end: all at once, so that two states may be exchanged. Every carry has one next, whose own value,
 * for row(1), is the state when the loop is left: the initial one after no iteration. A proceed
 * that is false leaves the loop: this iteration stores nothing, checks nothing and moves no state;
 * what must not happen stands after it. It is the same for all lanes and rows: what it comes from
 * steps along RED alone. Stages are 0 and, of row level alone, 1; there are no reductions and no
 * scans. Loads and stores of elem(0) may step along RED: one slice per iteration.
 */
#ifndef DF_FUSER_PLAN_H
#define DF_FUSER_PLAN_H

#include "guards/guard.h"
#include "ops/kop.h"
#include "trace/place.h"

#define DF_MAX_AXES 10
#define DF_MAX_STAGES 8
#define DF_MAX_RUN_REDS 4 /* each keeps a block of operands on the stack */
/* Trace nodes in one kernel by default; recipes are written out in the body. */
#define DF_MAX_BODY 1000

typedef enum df_mode { DF_MODE_MAP, DF_MODE_ROW, DF_MODE_COL, DF_MODE_LOOP } df_mode;
typedef enum df_role { DF_AXIS_OUTER, DF_AXIS_RED, DF_AXIS_INNER } df_role;
typedef enum df_level { DF_LEVEL_ROW, DF_LEVEL_ELEM } df_level;

/* How an access steps along one axis. */
typedef enum df_step {
    DF_STEP_ZERO, /* does not move: broadcast */
    DF_STEP_UNIT, /* one element; only promised along the vectorized axis */
    DF_STEP_ANY   /* by its stride argument */
} df_step;

typedef enum df_access_kind {
    DF_ACCESS_LOAD,
    DF_ACCESS_STORE,
    DF_ACCESS_AT,     /* load_at: ptr is the address of element offset 0 */
    DF_ACCESS_INDEX,  /* no memory: base + sum idx * stride, as i64 */
    DF_ACCESS_SCRATCH /* per-thread row buffer, element r at scratch[r]: load and store, ROW only */
} df_access_kind;

typedef struct df_access {
    uint8_t kind;  /* df_access_kind */
    uint8_t dtype; /* deft_dtype */
    uint8_t pad[2];
    uint32_t same_as; /* an earlier access index that may touch the same memory, or its own index */
    uint8_t step[DF_MAX_AXES]; /* df_step per axis */
    uint8_t pad2[2];
} df_access;

typedef struct df_ins {
    uint8_t op;    /* df_kop */
    uint8_t dtype; /* of the result; of the value for store */
    uint8_t stage;
    uint8_t level;   /* df_level */
    uint32_t src[3]; /* earlier instructions */
    uint64_t imm;
} df_ins;
_Static_assert(sizeof(df_ins) == 24, "hashed and compared as bytes");

typedef struct df_kernel {
    uint8_t mode, n_axes, n_stages, flags;
    uint8_t role[DF_MAX_AXES];
    uint8_t pad[2];
    uint32_t n_access, n_num, n_ins;
    const df_access *access;
    const df_ins *ins;
    df_key key;  /* canonical bytes of all of the above */
    double cost; /* estimated vector instructions per element: for tier and thread decisions */
} df_kernel;

enum {
    DF_KERNEL_FAST = 1, /* contraction and reassociation allowed */
    DF_KERNEL_SPLIT =
        2, /* exactly one reducing stage, then a row-level stage: part and fin exist */
    DF_KERNEL_SCAN = 4,
    DF_KERNEL_CHECKS = 8 /* holds a check instruction */
};

/* ---- buffers ---- */

typedef enum df_buf_kind {
    DF_BUF_INPUT, /* index = input ordinal */
    DF_BUF_ROOT,  /* index = root ordinal: a new buffer, or its donor's when the input is SOLE */
    DF_BUF_INTO,  /* index = input ordinal written through (DF_ROOT_INTO) */
    DF_BUF_TEMP   /* index = region of the step's arena */
} df_buf_kind;

typedef struct df_plan_buf {
    uint32_t kind;
    uint32_t index;
    deft_dtype dtype;
    df_slot numel;
    uint32_t donor; /* DF_BUF_ROOT: input ordinal whose memory may be taken over if SOLE, and first
                     * is no less than the plan's n_checked; or DF_NONE. Set only where the plan
                     * reads that input at or before the writing element. */
    bool keep; /* the donor's contents are part of the value (an update in place): when its memory
                * is not taken over, they are copied into the new buffer before the first launch.
                * Only with a guard that the donor is contiguous. */
    uint32_t first, last; /* launches in which it is live; ROOT: first writes it */
} df_plan_buf;

/* ---- segments and launches ---- */

typedef struct df_bind { /* one access of a segment */
    uint32_t buf;        /* buffer index; DF_NONE for INDEX and SCRATCH */
    df_slot offset;      /* elements from the buffer's origin; INDEX: the base value;
                          * SCRATCH: elements needed per thread */
    df_slot stride[DF_MAX_AXES];
} df_bind;

typedef enum df_seg_kind { DF_SEG_KERNEL, DF_SEG_MATMUL, DF_SEG_ROUTINE } df_seg_kind;

typedef struct df_seg {
    uint32_t kind;
    uint32_t kernel; /* DF_SEG_KERNEL: its kernel. DF_SEG_MATMUL: epilogue kernel or DF_NONE.
                      * DF_SEG_ROUTINE: DF_NONE */
    df_slot extent[DF_MAX_AXES]; /* per kernel axis */
    const df_bind *bind;         /* per kernel access */
    const uint32_t *num; /* per number slot of the kernel: index into trace.args. Bit 31 set: a slot
                          * whose integer value is converted to the dtype in num_dtype */
    const uint8_t *num_dtype;

    /* DF_SEG_MATMUL: C[b,m,n] = sum_k A[b,m,k] B[b,k,n]; axes of bind strides: batch..., row,
     * column. With an epilogue kernel (a MAP over [batch..., M, N], N innermost), its access
     * `c_access` reads C; C then needs no buffer of its own when c.buf is DF_NONE: it lives in a
     * per-thread tile. */
    df_bind a, b, c;
    uint32_t n_batch;
    deft_dtype dtype;
    /* MATMUL: of A and B in memory: dtype or, where that is f32, f16 or bf16, which the product
     * reads as the f32 that they are (df_limits.lifts). */
    deft_dtype a_dtype, b_dtype;
    df_slot m, n, k;
    df_slot batch[DEFT_MAX_RANK];
    uint32_t c_access;

    /* DF_SEG_ROUTINE: what the runtime does by itself (runtime/routine.h). Reads a, of dtype, and
     * writes c, row-major i64; axes of bind strides: batch..., last; n and m are the extents of the
     * last axis of a and of c.
     * scatter_add, index_add: adds b to c, both of dtype, at the indices a, i64, where c holds the
     * base; axes of bind strides are those of the operands and of the result. n_batch and batch are
     * b's rank and extents, n_index is a's rank, n is c's extent along axis attr. */
    uint32_t op, attr; /* df_op, and the node's attribute */
    uint32_t n_index;
    uint32_t fault; /* the node that an index outside is reported for, as in a check */
    uint32_t from,
        n_from; /* nodes of the trace this segment stands for: plan.from[from .. +n_from] */
} df_seg;

#define DF_NUM_IS_SLOT 0x80000000u

/* One fork-join. The last n_after segments are small, run one by one on the calling thread when all
 * others have ended, and may read what those wrote. */
typedef struct df_launch {
    uint32_t first, n; /* segments, independent of each other */
    uint32_t n_after;
} df_launch;

typedef struct df_region {
    df_slot bytes; /* slot: largest of its buffers, in bytes */
} df_region;

/* One decision of the fuser, for people. */
typedef struct df_why {
    uint32_t a, b;      /* nodes, the same for a decision on one; DF_NONE: on all */
    const char *what;   /* static: "fused", "kept apart" */
    const char *reason; /* in the plan's arena, or static */
} df_why;

/* An update of a part of an array that is not written in place: what is around the part is copied
 * into memory of its own. */
typedef struct df_copied {
    uint32_t update;
    uint32_t reader; /* the node that stands against writing in place; DF_NONE: no node does */
    const char
        *why; /* static; continues a sentence that begins with the reader, where there is one */
} df_copied;

/* ---- parts ---- */

typedef enum df_cell_kind {
    DF_CELL_PART,  /* a part makes it */
    DF_CELL_INPUT, /* it is an input of the trace */
    DF_CELL_ARG,   /* one number, an argument */
    DF_CELL_CONST  /* one number */
} df_cell_kind;

/* A value that passes from one part to others, contiguous. */
typedef struct df_cell {
    uint32_t kind; /* df_cell_kind */
    uint32_t from; /* INPUT: ordinal of the trace's input; ARG: argument slot */
    uint64_t bits; /* CONST */
    uint32_t last; /* the last part that reads it */
    bool is_root;  /* handed out at the end */
    df_slot bytes;
} df_cell;

typedef enum df_port_kind {
    DF_PORT_INPUT,  /* index: ordinal of the trace's input, strides and all */
    DF_PORT_CELL,   /* index: cell */
    DF_PORT_STATE,  /* index: state of the loop, as it is when the iteration starts */
    DF_PORT_ROW,    /* index: cell, whose row of this iteration is read */
    DF_PORT_NUMBER, /* the number of the iteration, i64 */
    DF_PORT_EXTENTS /* nothing is read */
} df_port_kind;

typedef struct df_port {
    uint32_t kind, index;
    df_slot row_bytes; /* ROW */
} df_port;

/* A plan within a part. */
typedef struct df_subplan {
    struct df_plan *plan; /* NULL: none */
    df_slot slot0;        /* the first of its slots among those of the plan around it */
    uint32_t serial;      /* its how-manieth of those that were fused; DF_NONE: it was written */
    const df_port *port;  /* per input of its trace */
    df_trace trace;       /* what it was made for, for runs: nodes, roots, no inputs, no extents */
} df_subplan;

typedef enum df_part_kind {
    DF_PART_RUN,
    DF_PART_LOOP,
    DF_PART_COND /* does body when cell `cond` holds true, else other */
} df_part_kind;

/* A matrix for each entry of a batch, read through a port of the loop's iterations, which is one
 * for rows where they go by in blocks; offset and strides in elements. */
typedef struct df_tag_matrix {
    uint32_t port;
    df_slot offset, row, col;
    df_slot batch[DEFT_MAX_RANK];
} df_tag_matrix;

/* What a loop computes (df_loop_tag), and on what, so that a device may do it without turning: only
 * of FAST traces. All slots are those of the iteration's plan. */
typedef struct df_part_tag {
    df_loop_tag what;
    uint32_t n_batch;
    df_slot batch[DEFT_MAX_RANK];
    df_slot n_queries, block, width, value_width;
    df_tag_matrix q, k, v; /* rows: queries, keys of the block, keys of the block */
    /* attention_grad */
    df_tag_matrix dout;     /* rows: queries */
    uint32_t log_sum, less; /* ports, one element for each query, row-major */
} df_part_tag;

typedef struct df_part {
    uint32_t kind;
    df_subplan body;     /* LOOP: its roots are the next states, then a row for each stack */
    df_subplan other;    /* LOOP: has one root, a bool: whether the iteration takes place */
    const uint32_t *out; /* per root of body: the cell it makes (LOOP: at the end), or DF_NONE */
    uint32_t n_out;
    uint32_t cond;
    /* LOOP */
    df_slot most; /* iterations */
    uint32_t n_states;
    const uint32_t *init;     /* per state: cell */
    const df_slot *row_bytes; /* per root of body beyond the states */
    const df_part_tag *tag;   /* NULL: nothing is known of what it computes */
    uint32_t node;            /* the loop or cond, for people */
    bool stores;              /* RUN, the last part: writes into the caller's memory */
} df_part;

/* What a check reports: the operator, and its node of the trace that runs are given. A check is
 * part of its kernel, which is the same for many plans, so that it counts nodes as the fuser saw
 * them. */
typedef struct df_plan_fault {
    uint32_t node;
    uint32_t op;
} df_plan_fault;

/* What a kernel stands for, for explanations only. */
typedef struct df_kernel_about {
    uintptr_t site;  /* call site of its last record; 0: unknown */
    const char *ops; /* "mul, exp, sum" */
} df_kernel_about;

typedef struct df_plan {
    df_arena arena;
    df_part *parts; /* then there are no kernels, segs, launches, bufs, regions of its own */
    uint32_t n_parts;
    df_cell *cells;
    uint32_t n_cells;
    uint32_t *root_cell; /* per root of the trace; NULL: this is no plan of parts */
    df_slot_def *slots;
    uint32_t n_slots;
    /* The slots that are an extent, a stride or a size, each once, and not those that only say where
     * a segment reads and writes, or give it a number: runs in which these are equal are laid out
     * alike. NULL in a plan written by hand, of which nothing is known. */
    df_slot *sizes;
    uint32_t n_sizes;
    df_guard *guards;
    uint32_t n_guards;
    df_kernel *kernels;
    uint32_t n_kernels;
    df_seg *segs;
    uint32_t n_segs;
    df_launch *launches;
    uint32_t n_launches;
    df_plan_buf *bufs;
    uint32_t n_bufs;
    df_region *regions;
    uint32_t n_regions;
    uint32_t *from;
    uint32_t n_from;
    uint32_t *root_buf; /* per root of the trace: buffer that holds it */
    uint32_t n_roots;
    df_why *why;
    uint32_t n_why;
    uint32_t n_staged; /* updates whose part is computed into a temporary first */
    df_copied *copied; /* of a plan of parts: those of all plans within it */
    uint32_t n_copied;
    uint32_t n_inputs;
    uint32_t n_repeated; /* segments that do again what another did: df_trace.max_temporary_bytes */
    df_same_place *same; /* views that it takes for one; each pair is guarded */
    uint32_t n_same;
    df_same_place
        *forward; /* what a plan of its key relied on to forward what updates had written */
    uint32_t n_forward;
    bool retreated;     /* grouping failed: one kernel per op, and why[0] says what was unsound */
    uint32_t n_checked; /* after so many launches no index can be found to be outside any more: what
                         * is written before then lies in memory of its own */
    struct df_plan_fault *faults; /* what the numbers that checks report stand for */
    uint32_t n_faults;            /* 0 in a plan without indices */
    bool checks_first; /* some routine's indices lie in an input: they can be looked at before the
                        * first launch, and then report no fault */
    void **execs;      /* per kernel, filled in by the runtime (runtime/tier.h); NULL at first */
    void *attached;    /* by the runtime, of the plan as a whole; NULL at first */
    uint64_t serial;   /* of the device that has prepared it, never given twice; 0 at first */

    /* Filled in by who asked for the plan, before it is prepared. 0 and NULL: unknown. */
    uintptr_t site;               /* of the call that cut the trace */
    uint32_t owner, number;       /* the context, and its how-manieth plan this is */
    uint32_t block;               /* its how-manieth among the plans within it that have launches */
    const df_kernel_about *about; /* per kernel */
} df_plan;

/* What the fuser may know of a device. */
typedef struct df_limits {
    uint32_t n_threads;
    uint32_t max_body; /* instructions in one kernel */
    int64_t l1_bytes, l2_bytes;
    bool fuse;  /* false: one kernel per op (the oracle's plan) */
    bool lifts; /* products take f16 and bf16 in place of their casts to f32 */
    bool keep_why;
} df_limits;

/* Makes a plan for t (already simplified). The plan is valid for every trace of the same key on
 * which its guards hold. *out is owned by the caller; NULL on failure. Any thread. */
deft_status df_fuse(df_diag *d, const df_trace *t, const df_limits *limits, const df_mem *mem,
                    DEFT_OWN df_plan **out);
void df_plan_destroy(df_plan **plan, const df_mem *mem);

/* Calls f on plan and on all plans within its parts, the outer ones first, until one fails. */
deft_status df_plan_each(df_plan *plan, deft_status (*f)(df_plan *plan, void *user), void *user);
/* The plan was made for a trace whose node k is node[k] of another trace of equal extents and
 * arguments, and whose input k is input[k] there (NULL: the same; DF_NONE: none): turns all its
 * references to the latter. */
void df_plan_translate(df_plan *plan, const uint32_t *node, const uint32_t *input);
/* The plan was made for a copy of t in which the second view of each pair stands for the first: adds
 * the guards that they still show one place, those of what was forwarded, and one that what was lost
 * of that is not found again. Notes the pairs in plan->same and plan->forward. The plan's references
 * are those of t. DEFT_E_MEMORY. */
deft_status df_plan_guard_places(df_diag *d, df_plan *plan, const df_trace *t,
                                 const df_places *places, const df_mem *mem);
size_t df_plan_bytes(df_plan *plan); /* of memory, with what is within */
/* Of a new buffer for root r; -1: it is written into memory that is there. */
int64_t df_plan_root_bytes(const df_plan *plan, uint32_t r, const int64_t *slots);
/* Of temporaries that a run with these slots has at once, as the allocator counts them: what is
 * neither an input, a root nor memory written in place. Of a plan of parts: the most at one. */
int64_t df_plan_temporary_bytes(const df_plan *plan, const int64_t *slots);
/* Why it runs one kernel per op (plan.retreated). */
const char *df_plan_retreat(const df_plan *plan);

/* Operands in order, stages and levels ascending, accesses and axes in range, stores only in loops
 * that they move along, launches free of dependencies within. */
deft_status df_plan_verify(df_diag *d, const df_plan *plan);

void df_plan_print(df_str *out, const df_plan *plan, const df_trace *t); /* byte-stable */
void df_why_print(df_str *out, const df_plan *plan, const df_trace *t);  /* a line each */
void df_kernel_print(df_str *out, const df_kernel *k);
deft_status df_kernel_seal(df_diag *d, df_kernel *k, df_arena *arena); /* fills key and cost */

#endif
