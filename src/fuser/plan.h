/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan: what the fuser makes of a trace, and what every back end reads. A plan consists of
 * kernels, segments that run them, launches of independent segments, buffers, guards and slots.
 * Slots turn the extents of a run into loop bounds and strides. A plan is plain structs in one
 * arena. It outlives its trace and refers to nodes, inputs and arguments by number only.
 *
 * A *kernel* is what code is generated from, and what code is cached under: its bytes are its key.
 * So a kernel holds no extents, no strides but their class, no numbers and no pointers. A *segment*
 * binds one kernel to slots and buffers.
 *
 *            trace --df_fuse--> plan { kernels, segs, launches, bufs, slots, guards }
 *
 * A trace with loops or branches (trace/control.h) gives a plan of *parts* instead. Each part holds
 * plans without control, or with less of it. Values pass between parts in *cells*. When all loops
 * are kernels, the parts are joined, and the plan has none (fuser/control/flatten.c).
 *
 *            part 0 run     part 1 loop { test, body }     part 2 run
 *               |  cells        | cells, states, rows         | roots
 *
 * Loop structure of a kernel (df_kernel.mode). Axes are listed from the outermost to the innermost.
 * A * stands for any number of axes of that role, a + for one or more:
 *
 *   MAP  OUTER* INNER       for o: for i (vector): body
 *
 *   ROW  OUTER* RED+        for o: { row(0); for r (vector): elem(0); fold; row(1); ... }
 *
 *   COL  OUTER* RED+ INNER  for o: for i (vector): { row(0); for r: elem(0); fold; row(1); ... }
 *
 *   LOOP OUTER* RED INNER   for o: for i (vector): { row(0); for r in order: elem(0); row(1) }
 *
 * RED axes are nested row-major. The position within them, r = 0, 1, ... L-1, numbers the reduced
 * elements, and that numbering fixes the order of reductions (base/limits.h). The fuser merges
 * neighbouring axes when every access steps through them as through one axis.
 *
 * A ROW kernel with several RED axes goes run by run. A run is one pass along the last RED axis.
 * The operands of reductions are collected side by side, and reduced whenever a block of them is
 * full. Such a kernel has at most DF_MAX_RUN_REDS reductions, and no scan.
 *
 * Body: instructions in order of (stage, level). Instructions of level ROW run once per row, before
 * the RED loop of their stage; in COL and LOOP, once per vector of rows. Instructions of level ELEM
 * run inside the RED loop. A reduce instruction is at level ELEM of some stage s. Its value may be
 * used from level ROW of stage s + 1 on. In MAP all instructions have stage 0 and level ELEM. The
 * last stage may have no ELEM instructions, and then has no loop. The value of a scan instruction
 * may be used at level ELEM of its own stage, after the scan. A kernel with a scan is COL, or ROW
 * run in order by a scalar loop.
 *
 * LOOP: the RED axis numbers the iterations of a loop of the trace, whose states stay in registers.
 * The extent of the axis is the number of iterations. With a proceed instruction the extent is only
 * a bound, which no run need reach; it may be INT64_MAX.
 *
 *   carry    yields a state as it is at the start of the iteration.
 *   next     says what the state becomes at the end of the iteration. All states advance at once,
 *            so two states may be exchanged. Every carry has exactly one next. The value of a next
 *            may be used in row(1): it is the state after the last iteration, or the initial state
 *            when there was no iteration.
 *   proceed  leaves the loop when its operand is false. That iteration stores nothing, checks
 *            nothing and changes no state, so stores and checks must stand after the proceed. The
 *            operand must be the same for all lanes and rows: all that it depends on moves along
 *            RED alone.
 *
 * A LOOP kernel has stage 0, and stage 1 with level ROW only. It has no reductions and no scans.
 * Loads and stores of elem(0) may move along RED: each iteration has a slice of its own.
 */
#ifndef DF_FUSER_PLAN_H
#define DF_FUSER_PLAN_H

#include "guards/guard.h"
#include "ops/kop.h"
#include "trace/place.h"

#define DF_MAX_AXES 10
#define DF_MAX_STAGES 8
#define DF_MAX_RUN_REDS 4 /* each keeps a block of operands on the stack */
/* Trace nodes in one kernel by default. The body is longer: recipes are written out in it. */
#define DF_MAX_BODY 1000
/* df_limits.over_bytes of the devices. */
#define DF_OVER_BYTES (1 << 20)

/* The index of a buffer, and the index of a kernel, in the lists of their plan. */
typedef struct df_buf {
    uint32_t i;
} df_buf;
typedef struct df_kern {
    uint32_t i;
} df_kern;

#define DF_NO_BUF ((df_buf){ DF_NONE })
#define DF_NO_KERN ((df_kern){ DF_NONE })

typedef enum df_mode { DF_MODE_MAP, DF_MODE_ROW, DF_MODE_COL, DF_MODE_LOOP } df_mode;
typedef enum df_role { DF_AXIS_OUTER, DF_AXIS_RED, DF_AXIS_INNER } df_role;
typedef enum df_level { DF_LEVEL_ROW, DF_LEVEL_ELEM } df_level;

/* How an access moves along one axis. */
typedef enum df_step {
    DF_STEP_ZERO, /* not at all: the access is broadcast */
    DF_STEP_UNIT, /* by one element; along the last axis of the kernel, and in MAP along any axis */
    DF_STEP_ANY   /* by its stride, which the segment gives */
} df_step;

typedef enum df_access_kind {
    DF_ACCESS_LOAD,
    DF_ACCESS_STORE,
    DF_ACCESS_AT,     /* load_at: the pointer is the address of element offset 0 */
    DF_ACCESS_INDEX,  /* no memory: yields base + sum of index * stride over the axes, as i64 */
    DF_ACCESS_SCRATCH, /* a row buffer of the thread: element r at scratch[r]. Loads and stores, in
                        * ROW kernels only */
    DF_ACCESS_PART    /* load_if: as LOAD, but memory exists only where the condition holds */
} df_access_kind;

/* Whether an access of this df_access_kind touches one element for each point of the axes along
 * which it steps. */
DF_INLINE bool df_access_is_strided(uint8_t kind)
{
    return kind == DF_ACCESS_LOAD || kind == DF_ACCESS_STORE || kind == DF_ACCESS_PART;
}

typedef struct df_access {
    uint8_t kind;  /* df_access_kind */
    uint8_t dtype; /* deft_dtype */
    /* LOAD: another load, plus 1, whose elements may alternate in memory with those of this one,
     * each before one of these. It reads the same buffer with the same strides, and no third access
     * does. 0: none */
    uint16_t twin;
    uint32_t same_as; /* an earlier access index that may touch the same memory, or its own index */
    uint8_t step[DF_MAX_AXES]; /* df_step per axis */
    uint8_t pad2[2];
} df_access;

/* One instruction. ops/kops.def says what each kernel op does with src and imm. */
typedef struct df_ins {
    uint8_t op;      /* df_kop */
    uint8_t dtype;   /* of the result; for a store, of the value stored */
    uint8_t stage;   /* below df_kernel.n_stages */
    uint8_t level;   /* df_level */
    uint32_t src[3]; /* indices of earlier instructions */
    uint64_t imm;
} df_ins;
_Static_assert(sizeof(df_ins) == 24, "hashed and compared as bytes");

typedef struct df_kernel {
    uint8_t mode, n_axes, n_stages, flags; /* mode: df_mode; flags: DF_KERNEL_... */
    uint8_t role[DF_MAX_AXES];             /* df_role per axis */
    uint8_t pad[2];
    uint32_t n_access, n_num, n_ins;
    const df_access *access;
    const df_ins *ins;
    df_key key;  /* canonical bytes of all fields above */
    double cost; /* estimated vector instructions per element: for tier and thread decisions */
} df_kernel;

enum {
    DF_KERNEL_FAST = 1, /* contraction and reassociation are allowed */
    DF_KERNEL_SPLIT =
        2, /* two stages: the first reduces, the second has level ROW only. So the reduction may be
            * split between threads, in a PART and a FIN phase */
    DF_KERNEL_SCAN = 4,  /* has a scan instruction */
    DF_KERNEL_CHECKS = 8 /* has a check instruction */
};

/* ---- buffers ---- */

typedef enum df_buf_kind {
    DF_BUF_INPUT, /* index: input ordinal */
    DF_BUF_ROOT,  /* index: root ordinal. A new buffer, or that of the donor when it is SOLE */
    DF_BUF_INTO,  /* index: input ordinal. Memory of the caller that is written (DF_ROOT_INTO) */
    DF_BUF_TEMP   /* index: region of the arena of temporaries */
} df_buf_kind;

typedef struct df_plan_buf {
    uint32_t kind; /* df_buf_kind */
    uint32_t index;
    deft_dtype dtype;
    df_slot numel;  /* elements */
    uint32_t donor; /* ROOT: an input whose memory the root may reuse, or DF_NONE. A run reuses it
                     * only when the input is SOLE and `first` is at least the plan's n_checked. Set
                     * only where the plan reads each element of that input before it is written. */
    bool keep; /* the contents of the donor are part of the value (an update in place). When a run
                * does not reuse the donor's memory, it copies them into the new buffer before the
                * first launch. Only with a guard that the donor is contiguous. */
    uint32_t first, last; /* live range, in launches. ROOT: `first` is the launch that writes it
                           * first */
    df_buf over; /* TEMP: the temporary over which it is stored, or DF_NO_BUF. The segment that
                  * writes it reads each element of that one before, and nothing reads it after. The
                  * two have one region, though both live at one launch. */
} df_plan_buf;

/* ---- segments and launches ---- */

typedef struct df_bind { /* one access of a segment */
    df_buf buf;          /* DF_NO_BUF for INDEX and SCRATCH */
    df_slot offset;      /* elements from the buffer's origin. INDEX: the base value. SCRATCH: the
                          * number of elements that each thread needs */
    df_slot stride[DF_MAX_AXES];
} df_bind;

/* Operand B of a product that lies nowhere as a whole: it shows windows of images [C, N, H, W]
 * (docs/decisions/convolution.md). Its bind has the strides over these four axes. Row r of B,
 * counted through all batch entries, is (channel, tap), and column n is (image, y, x). The element
 * there is
 *
 *   images[channel, image, tap[0] + step[0] * y - before[0], tap[1] + step[1] * x - before[1]]
 *
 * or 0 when that row or column is outside of the image. */
typedef struct df_windows {
    bool is_transposed; /* the product reads the transposed matrix: rows are (image, y, x) */
    uint32_t n_taps;
    const df_slot *tap; /* per tap: its row, its column */
    /* Each for rows and for columns: */
    df_slot step[2];   /* from one window to the next */
    df_slot before[2]; /* padding before the image */
    df_slot extent[2]; /* of the image */
    df_slot out[2];    /* windows */
} df_windows;

typedef enum df_seg_kind { DF_SEG_KERNEL, DF_SEG_MATMUL, DF_SEG_ROUTINE } df_seg_kind;

/* An input or a result of a call of an opaque operator. The strides of `bind` are over its axes. */
typedef struct df_call_operand {
    df_bind bind;
    deft_dtype dtype;
    uint32_t rank;
    df_slot extent[DEFT_MAX_RANK];
    uint32_t index; /* which input, or which result */
} df_call_operand;

/* What a call reads and writes. Results that nothing reads are missing from `out`. */
typedef struct df_seg_call {
    df_call_operand *in, *out;
    uint32_t n_in, n_out;
} df_seg_call;

typedef struct df_seg {
    uint32_t kind;  /* df_seg_kind */
    df_kern kernel; /* DF_SEG_KERNEL: its kernel. DF_SEG_MATMUL: epilogue kernel or DF_NO_KERN.
                     * DF_SEG_ROUTINE: DF_NO_KERN */
    df_slot extent[DF_MAX_AXES]; /* per kernel axis */
    const df_bind *bind;         /* per kernel access */
    const uint32_t *num;         /* per number slot of the kernel: index into trace.args. With
                          * DF_NUM_IS_SLOT set: a slot, whose integer value is converted to the
                          * dtype in num_dtype */
    const uint8_t *num_dtype;

    /* DF_SEG_MATMUL: C[b,m,n] = sum_k A[b,m,k] B[b,k,n]. Axes of the strides of a, b and c:
     * batch..., row, column. An epilogue kernel is a MAP over rows and columns of C. Its access
     * `c_access` reads C. When c.buf is DF_NONE, C has no buffer: each thread keeps its part of C in
     * a tile. The axes of the kernel are [column axes..., row axes..., INNER]. The row axes number
     * the rows of all entries of the batch, row-major. The n_column_axes axes before them and INNER
     * number the columns, row-major: after a reshape these may be an image and a pixel. */
    df_bind a, b, c;
    uint32_t n_batch;
    uint32_t n_column_axes; /* 0: columns are INNER alone; else only with df_limits.splits_columns */
    deft_dtype dtype; /* of the product */
    /* MATMUL: dtypes of A and B in memory. Either `dtype`, or, where that is f32, f16 or bf16: the
     * product then reads each half as an f32 (df_limits.lifts). */
    deft_dtype a_dtype, b_dtype;
    df_slot m, n, k;
    df_slot batch[DEFT_MAX_RANK];
    uint32_t c_access; /* index of a kernel access, or DF_NONE */
    const df_windows *windows; /* MATMUL: what B shows, when `b` binds images; else NULL */

    /* DF_SEG_ROUTINE: work that the runtime does without a kernel (runtime/routine.h).
     *
     * Sorting and finding positions: reads a, whose dtype is `dtype`, and writes c, which is
     * row-major, and i64 or, after `sort`, of that dtype. Axes of the strides: batch..., last. The
     * extents of the last axis are n in a and m in c. After `topk`, c has the positions from k on.
     * `compress` writes the elements of a where b, which has b_dtype and the extent n, is not 0.
     *
     * scatter_* and index_*: combines the values b with c at the indices a. Values and c have dtype
     * `dtype`, indices have a_dtype, which is no float, and c already holds the base. The strides of a, b and c are over
     * their own axes. Rank and extents of b are n_batch and batch, and n_index is the rank of a.
     * Both n and m are the extent of c along axis attr.
     *
     * call: an opaque operator (trace/opaque.h), whose number is attr. `call` has all operands, and c
     * is result 0. The segments of op `result` do nothing: their c is written by the call, in an
     * earlier launch. */
    uint32_t op, attr; /* df_op, and the attribute of the node */
    const df_seg_call *call; /* op `call`; else NULL */
    uint32_t n_index;
    uint32_t fault; /* the node that is reported when an index is out of range, as in a check */
    uint32_t from,
        n_from; /* nodes of the trace that this segment computes: plan.from[from .. +n_from] */
} df_seg;

#define DF_NUM_IS_SLOT 0x80000000u

/* One fork-join. The last n_after segments are small. The calling thread runs them one by one when
 * all other segments have ended, so they may read the results of those. */
typedef struct df_launch {
    uint32_t first, n; /* segments first .. first + n; all but the last n_after are independent */
    uint32_t n_after;
} df_launch;

/* A piece of the arena of temporaries. It is lent to one buffer at a time; or it has parts, regions
 * themselves, which lie in it one after the other. No buffer of a part lives while one of the region
 * itself does. Parts have no parts. */
typedef struct df_region {
    df_slot bytes;  /* size of the largest of its buffers, or of all its parts together */
    uint32_t outer; /* the region that it is a part of; DF_NONE: none */
} df_region;

/* Arena and parts begin at multiples of this. */
#define DF_REGION_ALIGN 64
/* Returns the bytes that a region of `bytes` takes. */
DF_INLINE int64_t df_region_rounded(int64_t bytes)
{
    return (bytes + DF_REGION_ALIGN - 1) & ~(int64_t)(DF_REGION_ALIGN - 1);
}

/* One decision of the fuser, for people. */
typedef struct df_why {
    uint32_t a, b;      /* two nodes. Equal: a decision on one node. DF_NONE: on the whole plan */
    const char *what;   /* static: "fused", "kept apart" */
    const char *reason; /* in the plan's arena, or static */
} df_why;

/* An update of a part of an array that is not done in place: the elements around the part are
 * copied into memory of its own. */
typedef struct df_copied {
    uint32_t update; /* node */
    uint32_t reader; /* the node that prevents writing in place; DF_NONE: no node does */
    const char
        *why; /* static; continues a sentence that begins with the reader, where there is one */
} df_copied;

/* ---- parts ---- */

typedef enum df_cell_kind {
    DF_CELL_PART,  /* a part computes it */
    DF_CELL_INPUT, /* it is an input of the trace */
    DF_CELL_ARG,   /* one number: an argument of the trace */
    DF_CELL_CONST  /* one number: a constant */
} df_cell_kind;

/* A value that passes from one part to others. It is contiguous. */
typedef struct df_cell {
    uint32_t kind; /* df_cell_kind */
    uint32_t from; /* INPUT: ordinal of the trace's input; ARG: index into trace.args */
    uint64_t bits; /* CONST: the number, as the bits of its dtype */
    uint32_t last; /* the last part that reads it */
    bool is_root;  /* it is also a result of the run, and lives to the end */
    df_slot bytes;
} df_cell;

typedef enum df_port_kind {
    DF_PORT_INPUT,  /* index: ordinal of the trace's input, which is read with its own strides */
    DF_PORT_CELL,   /* index: cell */
    DF_PORT_STATE,  /* index: state of the loop, as it is when the iteration starts */
    DF_PORT_ROW,    /* index: cell. The row with the number of the iteration is read */
    DF_PORT_NUMBER, /* the number of the iteration, i64 */
    DF_PORT_EXTENTS /* only the extents matter: nothing is read */
} df_port_kind;

/* Where a plan within a part finds one of its inputs. */
typedef struct df_port {
    uint32_t kind, index; /* kind: df_port_kind */
    df_slot first_bytes; /* ROW: from the beginning of the cell to the first row; slot 0: no slice */
    df_slot row_bytes;   /* ROW: from each row to the next; negative: the last row is read first */
} df_port;

/* A plan within a part. */
typedef struct df_subplan {
    struct df_plan *plan; /* owned; NULL: the part has no such plan */
    uint32_t slot0;       /* its first slot is slot number slot0 of the enclosing plan */
    uint32_t serial;      /* its index among the plans that df_fuse made for parts; DF_NONE: it was
                           * made without df_fuse (fuser/control/loop_kernel.c) */
    const df_port *port;  /* per input of its trace */
    df_trace trace;       /* the trace that it was made for, as a run needs it: nodes and roots. The
                           * run fills in inputs, extents and arguments */
} df_subplan;

typedef enum df_part_kind {
    DF_PART_RUN,  /* runs body once */
    DF_PART_LOOP, /* runs body once per iteration, while `other` yields true. A loop kernel as body
                   * may do several iterations at once */
    DF_PART_COND  /* runs body when cell `cond` holds true, else other */
} df_part_kind;

/* A matrix for each entry of a batch, read through a port of the loop's iteration. Where the loop
 * runs over blocks of rows, it is a port of kind ROW. Offset and strides are in elements. */
typedef struct df_tag_matrix {
    uint32_t port;
    df_slot offset, row, col;
    df_slot batch[DEFT_MAX_RANK];
} df_tag_matrix;

/* What a loop computes (df_loop_tag), and on which operands. A device may then leave out what is
 * masked. All slots are those of the iteration's plan. */
typedef struct df_part_tag {
    df_loop_tag what;
    bool is_free; /* the loop may be computed as a whole, in another way, instead of iterating. Only
                   * in FAST traces, and without padding */
    uint32_t n_batch;
    df_slot batch[DEFT_MAX_RANK];
    df_slot n_queries, block, width, value_width; /* block: keys per iteration; width: of a query */
    df_tag_matrix q, k, v; /* rows of q: queries; rows of k and v: the keys of the block */
    /* attention_grad */
    df_tag_matrix dout;     /* rows: queries */
    uint32_t log_sum, less; /* ports, one element for each query, row-major */
} df_part_tag;

typedef struct df_part {
    uint32_t kind;       /* df_part_kind */
    df_subplan body;     /* LOOP: its roots are the next states, then one row for each stack */
    df_subplan other;    /* LOOP: yields one bool, whether the iteration takes place; no plan: it
                          * does */
    const uint32_t *out; /* per root of body: the cell that receives it, for a LOOP when the loop
                          * has ended; or DF_NONE */
    uint32_t n_out;
    uint32_t cond; /* COND: a cell; else DF_NONE */
    /* LOOP */
    df_slot most; /* bound on the number of iterations */
    uint32_t n_states;
    const uint32_t *init;     /* per state: the cell with its initial value */
    const df_slot *row_bytes; /* per root of body beyond the states: bytes of one row */
    const df_part_tag *tag;   /* NULL: it is not known what the loop computes */
    uint32_t node;            /* the loop or cond, for people; DF_NONE for RUN without a loop */
    bool stores;              /* RUN, the last part: writes into the caller's memory */
} df_part;

/* What a check instruction reports: the operator, and its node in the trace that runs are given. A
 * kernel is the same for many plans, so the imm of a check numbers nodes as the fuser saw them. It
 * is an index into df_plan.faults. */
typedef struct df_plan_fault {
    uint32_t node;
    uint32_t op; /* df_op */
} df_plan_fault;

/* What a kernel computes, for explanations only. */
typedef struct df_kernel_about {
    uintptr_t site;  /* call site of its last record; 0: unknown */
    const char *ops; /* "mul, exp, sum" */
} df_kernel_about;

typedef struct df_plan {
    df_arena arena;
    df_part *parts; /* in a plan of parts. It has no kernels, segs, launches, bufs and regions */
    uint32_t n_parts;
    df_cell *cells;
    uint32_t n_cells;
    uint32_t *root_cell; /* per root of the trace: its cell; DF_NONE: written into the caller's
                          * memory. NULL: this is not a plan of parts */
    df_slot_def *slots;
    uint32_t n_slots;
    /* The slots that are an extent, a stride or a size, each once. Slots that only say where a
     * segment reads and writes, or give it a number, are not among them. Runs that agree in these
     * slots have the same run layout. NULL in a plan written by hand: then all slots must agree. */
    df_slot *sizes;
    uint32_t n_sizes;
    df_guard *guards;
    uint32_t n_guards;
    df_kernel *kernels;
    uint32_t n_kernels;
    df_seg *segs; /* in order of launches */
    uint32_t n_segs;
    df_launch *launches;
    uint32_t n_launches;
    df_plan_buf *bufs;
    uint32_t n_bufs;
    df_region *regions;
    uint32_t n_regions;
    uint32_t *from; /* nodes: see df_seg.from */
    uint32_t n_from;
    df_buf *root_buf; /* per root of the trace: buffer that holds it */
    uint32_t n_roots;
    df_why *why;
    uint32_t n_why;
    uint32_t n_staged; /* updates whose part is computed into a temporary first */
    df_copied *copied; /* in a plan of parts: those of all plans within it */
    uint32_t n_copied;
    uint32_t n_inputs;
    uint32_t n_repeated; /* segments that compute values again to keep within
                          * df_trace.max_temporary_bytes */
    uint32_t n_postponed; /* groups that were moved to later launches (fuser/memory/postpone.c) */
    df_same_place *same; /* pairs of views that the plan takes for one; each pair is guarded */
    uint32_t n_same;
    df_same_place
        *forward; /* pairs on which forwarding relied. When it relies on no pair in this plan: those
                   * of the earlier plan of the same key */
    uint32_t n_forward;
    bool retreated;     /* grouping failed: one kernel per operator, and why[0] gives the reason */
    uint32_t n_checked; /* launches after which every index has been checked. Until then the run
                         * may fail, so what is written before lies in memory of its own */
    struct df_plan_fault *faults; /* by the numbers that checks report */
    uint32_t n_faults;            /* 0 in a plan without indices */
    bool checks_first; /* the indices of some routine are an input. They can be checked before the
                        * first launch, and then report no fault */
    void **execs;      /* per kernel, filled in by the runtime (runtime/tier.h); NULL at first */
    void *attached;    /* what the device attaches to the plan as a whole; NULL at first */
    uint64_t serial;   /* given by the device that prepares the plan, never twice; 0 at first */

    /* Filled in by the caller of df_fuse, before the plan is prepared. 0 and NULL: unknown. */
    uintptr_t site;               /* of the call that cut the trace */
    uint32_t owner, number;       /* the context, and the index of the plan among its plans */
    uint32_t block;               /* the index among the plans within it that have launches */
    const df_kernel_about *about; /* per kernel */
} df_plan;

/* The kernel of a segment of plan, or NULL when the segment has none. */
DF_INLINE const df_kernel *df_seg_kernel(const df_plan *plan, const df_seg *seg)
{
    if (seg->kernel.i == DF_NONE) return NULL;
    df_assert(seg->kernel.i < plan->n_kernels);
    return &plan->kernels[seg->kernel.i];
}

/* What the fuser may know of a device. */
typedef struct df_limits {
    uint32_t n_threads;
    uint32_t max_body; /* trace nodes in one kernel, where expensive operators count for several;
                        * 0: DF_MAX_BODY */
    int64_t l1_bytes, l2_bytes; /* sizes of the caches, for `deft about` */
    int64_t over_bytes; /* temporaries of at least so many bytes may be stored over an operand. In
                         * caches, loads that may be overwritten cost more than memory does. */
    bool saves_all;     /* for tests: temporaries of any size are stored over operands, at any
                         * launch, and groups are postponed for any gain */
    bool fuse;          /* false: one kernel per operator (the oracle's plan) */
    bool lifts;    /* products read f16 and bf16 as f32, so a cast to f32 before them needs no
                    * kernel */
    bool lifts_bf16; /* the same, for products of two operands of bf16 alone */
    bool lifts_fast_bf16; /* the same, in FAST traces */
    bool windows;  /* products read windows of images, so these need not be stored as a matrix */
    bool splits_columns; /* an epilogue may have several axes for the columns of its product */
    bool takes_held; /* plan an update in place even when its input is needed after this run. Such a
                      * plan serves all runs: where the input is needed, the run copies it first */
    bool bounds_part; /* rely on no bounds of slices that only happen to be equal: they differed in
                       * another run */
    bool keep_why; /* fill in df_plan.why */
} df_limits;

/* Makes a plan for t, which must be simplified. The plan is valid for every trace of the same key on
 * which its guards hold. *out is owned by the caller, and NULL on failure. A trace that cannot be
 * fused gets one kernel per operator instead of an error (df_plan.retreated). Returns
 * DEFT_E_MEMORY when memory runs out, or when t bounds its temporaries and the bound cannot be met.
 * Returns DEFT_E_ARG when an update writes to something that is not a view of its base. Any thread
 * may call it. */
deft_status df_fuse(df_diag *d, const df_trace *t, const df_limits *limits, const df_mem *mem,
                    DEFT_OWN df_plan **out);
/* Frees the plan and all plans within it. *plan may be NULL, and is NULL afterwards. `mem` must be
 * that of df_fuse. The runtime must have released execs and attached before. */
void df_plan_destroy(df_plan **plan, const df_mem *mem);

/* Calls f on plan and on all plans within its parts, the outer ones first, until one call fails.
 * Returns the status of that call. plan may be NULL: then there is no call. */
deft_status df_plan_each(df_plan *plan, deft_status (*f)(df_plan *plan, void *user), void *user);
/* Makes a plan refer to another trace. The plan was made for trace A. Trace B has the same extents
 * and arguments. Node k of A is node[k] of B, and input k of A is input[k] of B. DF_NONE in
 * input: B has no such input. input NULL: the inputs are the same. */
void df_plan_translate(df_plan *plan, const uint32_t *node, const uint32_t *input);
/* Adds the guards that the plan needs for what simplification assumed of places. The plan was made
 * for a copy of t in which view `as` of each pair stands for both views. Its references must be
 * those of t (df_plan_translate). The guards say that:
 *
 *   - the views of each pair still show one place;
 *   - the pairs on which forwarding relied still are as they say;
 *   - the pair places->lost, if there is one, still is not: else a better plan is possible.
 *
 * Sets plan->same and plan->forward. Returns DEFT_E_MEMORY when memory runs out. */
deft_status df_plan_guard_places(df_diag *d, df_plan *plan, const df_trace *t,
                                 const df_places *places, const df_mem *mem);
/* Bytes of memory that the plan and all plans within it take. */
size_t df_plan_bytes(df_plan *plan);
/* Bytes of a new buffer for root r. Returns -1 when the root is written into the caller's memory.
 * `slots` holds the value of each slot of the plan in a run. */
int64_t df_plan_root_bytes(const df_plan *plan, uint32_t r, const int64_t *slots);
/* Returns the size in bytes of the arena that holds all regions of the plan, without those of plans
 * within it. */
int64_t df_plan_arena_bytes(const df_plan *plan, const int64_t *slots);
/* Returns the offset in bytes of region `index` in that arena. */
int64_t df_plan_region_offset(const df_plan *plan, const int64_t *slots, uint32_t index);
/* Bytes of temporaries that a run with these slots takes at once, as the allocator counts them.
 * Inputs, roots and memory written in place do not count. In a plan of parts: the largest sum of
 * any part. */
int64_t df_plan_temporary_bytes(const df_plan *plan, const int64_t *slots);
/* Why the plan runs one kernel per operator (plan.retreated). Returns "" for other plans. The text
 * belongs to the plan. */
const char *df_plan_retreat(const df_plan *plan);

/* Checks what back ends rely on. Operands come in order, stages and levels ascend, and accesses and
 * axes are in range. Stores are only in loops that they move along, and the segments of a launch do
 * not depend on each other. Returns DEFT_E_INTERNAL with a sentence when the plan is unsound, and
 * DEFT_E_MEMORY when memory runs out. */
deft_status df_plan_verify(df_diag *d, const df_plan *plan);

/* Appends the plan as text. Equal plans give equal bytes. t may be NULL. */
void df_plan_print(df_str *out, const df_plan *plan, const df_trace *t);
/* Appends one line for each entry of plan->why. t names the nodes and may be NULL. */
void df_why_print(df_str *out, const df_plan *plan, const df_trace *t);
/* Appends the kernel as text. */
void df_kernel_print(df_str *out, const df_kernel *k);
/* Fills in key and cost of *k from its other fields. The bytes of the key are in `arena`. Returns
 * DEFT_E_MEMORY when memory runs out. */
deft_status df_kernel_seal(df_diag *d, df_kernel *k, df_arena *arena);
/* The bytes of storage that a copy of k needs for its arrays. */
size_t df_kernel_storage_size(const df_kernel *k);
/* Makes *to a copy of k that outlives the plan of k. Its arrays are in `storage`, which is aligned
 * to 16 bytes, has df_kernel_storage_size(k) bytes, and stays the caller's. */
void df_kernel_copy(df_kernel *to, const df_kernel *k, void *storage);

/* Whether an access of a MAP kernel moves by one element along an OUTER axis. Code may transpose
 * blocks of such accesses, in a workspace of DF_TILES_BYTES for each thread. */
bool df_kernel_has_tiles(const df_kernel *k);

/* Whether results that go through the access may be written around the caches, where a run asks for
 * it (df_kargs.streams): they lie side by side along INNER. */
DF_INLINE bool df_access_may_stream(const df_kernel *k, uint32_t access)
{
    const df_access *const a = &k->access[access];
    const int last = k->n_axes - 1;
    return k->mode == DF_MODE_MAP && a->kind == DF_ACCESS_STORE && last >= 0 &&
           k->role[last] == DF_AXIS_INNER && a->step[last] == DF_STEP_UNIT;
}
enum { DF_TILES_BYTES = 64 << 10 };
/* The same for a kernel that reduces columns, where a run asks it to go along whole rows. */
enum { DF_SHEET_BYTES = 512 << 10 };
/* The first of the two results of a kernel whose elements may alternate in memory, as the parts of
 * complex numbers do; DF_NONE: its results are of other kinds. Where the addresses of a run show
 * that they alternate, and the run asks for it, they are written around the caches. */
uint32_t df_kernel_streamed_twos(const df_kernel *k);

/* Whether the kernel only reduces rows or columns: it reads each element once, and stores none. Its
 * loads may prefetch or go along whole rows, where a run asks for it (df_kargs.fetches). */
DF_INLINE bool df_kernel_only_reduces(const df_kernel *k)
{
    for (uint32_t i = 0; i < k->n_ins; i++)
        if (k->ins[i].level == DF_LEVEL_ELEM && (k->ins[i].stage > 0 || k->ins[i].op == DF_K_store))
            return false;
    return k->mode == DF_MODE_ROW || k->mode == DF_MODE_COL;
}

#endif
