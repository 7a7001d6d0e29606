/* SPDX-License-Identifier: Apache-2.0
 *
 * State while one kernel's entry is written. Private to lower.c, access.c, loops.c, reduce.c,
 * col.c, iterate.c.
 *
 * Values. Each instruction has a scalar value when it is the same for all lanes, a vector value of
 * w lanes when some lane-wise instruction wants it. Where it is computed follows from what it
 * depends on:
 *
 *   PLACE_ENTRY  numbers only: once per call
 *   PLACE_ROW    once per row of OUTER (ROW-level instructions of their stage)
 *   PLACE_PRE    ELEM level, the same for all reduced elements and lanes: before the stage's loop,
 *                and only when the loop runs at all
 *   PLACE_RED    moves with the reduced axes, the same for all lanes: scalar in COL's reduction
 * loop, and in ROW before each run along the last of several reduced axes PLACE_LANES  COL, ROW
 * level: one vector per group of lanes, kept in a slot in memory PLACE_BODY   the vectors of the
 * innermost loop
 *
 * LOOP: PLACE_RED moves with the iterations; PLACE_LANES are vectors at row level, and of ELEM
 * level those that are the same in all iterations; they need no slot.
 *
 * Vectors of PLACE_BODY belong to one writing of the loop body (an epoch), and there to one of its
 * copies; scalars and their broadcasts are valid wherever their place dominates.
 * size: the state of one code generation, shared by all its files.
 */
#ifndef DF_JIT_LLVM_GEN_H
#define DF_JIT_LLVM_GEN_H

#include <setjmp.h>

#include "base/arena.h"
#include "jit_llvm/emit.h"
#include "jit_llvm/flow.h"

typedef enum df_gen_level {
    PLACE_ENTRY,
    PLACE_ROW,
    PLACE_PRE,
    PLACE_RED,
    PLACE_LANES,
    PLACE_BODY
} df_gen_level;

/* MOVES_RUN: ROW, with reduced axes other than the last alone. */
enum { MOVES_OUTER = 1, MOVES_RED = 2, MOVES_INNER = 4, MOVES_RUN = 8 };
enum { DF_ROWS_AHEAD = 32 };
enum { DF_COPIES = 8 };      /* of a loop body, side by side; at most */
enum { DF_LONG_BODY = 160 }; /* instructions */

/* What a call of a SPLIT kernel is to do: its three functions pass one of these to the one body. */
typedef enum df_entry { ENTRY_MAIN, ENTRY_PART, ENTRY_FIN } df_entry;

/* One instruction's values. */
typedef struct df_val {
    uint8_t place;                 /* df_gen_level */
    uint8_t moves;                 /* axes roles that it depends on */
    bool wants_vec;                /* scalar with lane-wise users: broadcast where it is defined */
    bool wants_inverse;            /* FAST: a scalar that lanes are divided by */
    bool is_marked;                /* part of the loop body being written */
    bool decides;                  /* LOOP: the proceed comes from it */
    uint32_t epoch;                /* of lanes */
    uint32_t last_use;             /* analyse.c, while copies are counted */
    LLVMValueRef sca, vec;         /* vec: of a scalar, the same everywhere */
    LLVMValueRef inverse;          /* 1 / (vec lift), where wanted */
    LLVMValueRef lift;             /* FAST: a power of 2 that keeps inverse finite; NULL: 1 */
    LLVMValueRef lanes[DF_COPIES]; /* in each copy of the loop body */
    LLVMValueRef slot;             /* PLACE_LANES: array of vectors, one per group of lanes */
    LLVMValueRef scan;             /* scans: running values, one vector per group of lanes */
} df_val;

/* One reduce instruction. */
typedef struct df_gen_red {
    uint32_t ins;
    uint8_t op;                    /* df_kop */
    uint8_t dtype;                 /* of the accumulator; bool is held as u8 */
    bool is_arg;                   /* carries an index */
    uint32_t n_acc;                /* accumulators that the order of reductions asks of this op */
    uint32_t first_slot;           /* in args->partial */
    LLVMValueRef mem, mem_idx;     /* accumulator arrays */
    LLVMValueRef *reg, *reg_idx;   /* accumulators in registers, DF_LANES / w; only while in_regs */
    LLVMValueRef operands;         /* ROW run by run: those of a block, side by side */
    LLVMValueRef stack, stack_idx; /* block results waiting to be joined */
} df_gen_red;

/* What is known of one access. */
typedef struct df_acc_state {
    LLVMValueRef base; /* address, or i64 for INDEX, at all indices 0 */
    LLVMValueRef row;  /* at this row */
    LLVMValueRef at;   /* at this row and, in COL, this reduced element */
    LLVMValueRef step; /* along the vectorized axis, in bytes (INDEX: units), for DF_STEP_ANY */
    LLVMValueRef ramp; /* 0, 1, .. w-1 times step */
    /* Bytes to what will be read soon, along the innermost reduced axis (COL) or in the next row
     * (MAP), or NULL. */
    LLVMValueRef ahead;
    uint8_t moves;
} df_acc_state;

struct df_gen {
    const df_host *host;
    const df_llvm_target *t;
    const df_kernel *k;
    const df_facts *facts; /* NULL: none */
    df_diag *d;
    df_opt level;
    df_arena *arena;
    jmp_buf no_memory; /* where df_gen_values goes when there is none */

    LLVMContextRef ctx;
    LLVMModuleRef m;
    LLVMBuilderRef b;
    LLVMTypeRef i1, i8, i16, i32, i64, f32, f64, ptr, nothing;
    LLVMValueRef copy_fn; /* bytes from here to there, for tails; NULL until first wanted */

    /* the function being written */
    LLVMValueRef fn, o0, o1, i0, i1_; /* parameters */
    LLVMValueRef is_part, is_fin;     /* i1; NULL when the kernel is not SPLIT */
    LLVMBasicBlockRef first;          /* allocas go to its start */
    LLVMValueRef p_ptr, p_stride, p_base, p_extent, p_num, p_partial, p_fault;

    uint32_t w;        /* lanes */
    uint32_t multiple; /* the vectorized extent, i0 and i1 are multiples of this power of two */
    int vec_axis;      /* -1: none */
    int outer[DF_MAX_AXES], red[DF_MAX_AXES];
    int n_outer, n_red;
    LLVMValueRef extent[DF_MAX_AXES];
    LLVMValueRef length; /* number of reduced elements */

    df_val *val;
    df_acc_state *acc;
    df_gen_red *reds;
    uint32_t n_reds;

    /* the loop body being written */
    uint32_t epoch;
    uint32_t n_copies;     /* of the body, for neighbouring vectors */
    uint32_t copy;         /* the one being written; its lanes: */
    LLVMValueRef lane0;    /* i64: index of lane 0 along the vectorized axis */
    LLVMValueRef n_active; /* i64; with mask */
    LLVMValueRef mask;     /* NULL: all lanes */
    LLVMValueRef lane0s[DF_COPIES], n_actives[DF_COPIES], masks[DF_COPIES];
    LLVMValueRef group;    /* COL: i64, which group of lanes of the chunk */
    LLVMValueRef pitch;    /* COL: groups in this chunk */
    bool prefetches;       /* unit-stride loads also fetch from s->ahead */
    bool scans_in_regs;    /* df_val.scan is the running value itself */
    bool has_runs;         /* ROW with several reduced axes */
    LLVMValueRef gather;   /* operands of reductions are put aside: where lane 0's axis begins */
    LLVMValueRef gathered; /* the body is to take them from there: the block's first element */
    bool in_regs;          /* accumulators in registers */
    uint32_t reg;          /* which */
    LLVMValueRef acc_at;   /* accumulators in memory: i64, which vector */
    LLVMValueRef acc_one;  /* COL: of reductions that keep one */
    LLVMValueRef red_at;   /* position within the reduction of lane 0 */
    LLVMValueRef tail_buf;
    bool native_masks; /* for every unit-stride access of the kernel */
    bool may_leave;    /* LOOP: there is a proceed */
};

#include "jit_llvm/build.h"

/* ---- lower.c ---- */

/* The value of a map op; s: operands of w lanes (1: scalars). */
LLVMValueRef df_lower_op(df_gen *g, const df_ins *ins, deft_dtype src, LLVMValueRef s[3],
                         uint32_t w);
/* acc op x, of dtype t, of whatever width the values have. */
LLVMValueRef df_lower_join(df_gen *g, df_kop op, deft_dtype t, LLVMValueRef a, LLVMValueRef b);

/* ---- halves.c ---- */

/* x, w lanes of t's bits, as f32; and an f32 as the bits of t, rounded to nearest even, or exact:
 * t holds it. */
LLVMValueRef df_half_to_f32(df_gen *g, deft_dtype t, LLVMValueRef x, uint32_t w);
LLVMValueRef df_half_of_f32(df_gen *g, deft_dtype t, LLVMValueRef x, uint32_t w, bool exact);

/* ---- estimate.c: FAST ---- */

bool df_estimate_has(const df_gen *g, deft_dtype t, uint32_t w);
LLVMValueRef df_estimate_div(df_gen *g, LLVMValueRef a, LLVMValueRef d);
LLVMValueRef df_estimate_sqrt(df_gen *g, LLVMValueRef x);
LLVMValueRef df_estimate_over_sqrt(df_gen *g, LLVMValueRef a, LLVMValueRef x); /* a / sqrt(x) */

/* ---- access.c ---- */

LLVMValueRef df_access_load(df_gen *g, uint32_t access); /* w lanes at lane0 */
LLVMValueRef df_access_load_at(df_gen *g, uint32_t access, LLVMValueRef offset); /* w offsets */
LLVMValueRef df_access_index(df_gen *g, uint32_t access);
void df_access_store(df_gen *g, uint32_t access, LLVMValueRef v);
LLVMValueRef df_access_load_one(df_gen *g, uint32_t access, LLVMValueRef p, LLVMValueRef offset);
void df_access_store_one(df_gen *g, uint32_t access, LLVMValueRef p, LLVMValueRef v);
/* w lanes of a plain array; the mask of g applies. */
LLVMValueRef df_access_load_unit(df_gen *g, LLVMTypeRef t, LLVMValueRef p, uint32_t align);
void df_access_store_unit(df_gen *g, LLVMValueRef v, LLVMValueRef p, uint32_t align);

DF_INLINE df_kop_kind df_gen_kind(const df_gen *g, uint32_t i)
{
    return (df_kop_kind)g->host->kops[g->k->ins[i].op].kind;
}

DF_INLINE uint32_t df_gen_n_src(const df_gen *g, uint32_t i)
{
    return g->host->kops[g->k->ins[i].op].n_src;
}

/* The role of the vectorized axis. */
DF_INLINE uint8_t df_gen_vec_moves(const df_gen *g)
{
    return g->k->mode == DF_MODE_ROW ? MOVES_RED : MOVES_INNER;
}

#include "jit_llvm/lanes.h"
#include "jit_llvm/reduce.h"

#endif
