/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of the interpreter: the state of one call.
 *
 *   interp.c           the loops of the modes; execution of steps
 *   interp_prepare.c   workspace; makes steps from instructions
 *   interp_reduce.c    the order of reductions
 *   interp_fill.c      fills vectors with one value
 *   interp_ops.def     the loop of each kernel op
 */
#ifndef DF_RUNTIME_INTERP_RUN_H
#define DF_RUNTIME_INTERP_RUN_H

#include <string.h>

#include "runtime/interp/interp.h"
#include "runtime/interp/interp_ops.h"

/* One instruction, with the addresses of its operands and of its result. */
typedef struct df_istep {
    df_lane_fn fn; /* map ops: the loop */
    char *dst;     /* lanes of the result */
    const char *src[3];
    uint64_t imm;
    uint8_t op, kind, dtype, size; /* dtype and size of the value */
    bool splat;                    /* ROW: a row-level value that is read per element */
    uint32_t red;                  /* reduce and scan: index into reds */
    char *state;                   /* next: the lanes of its carry */
    int64_t by; /* memory and index: elements per position along the vectorized axis */
} df_istep;

/* A reduction or scan.
 *
 * In ROW, an accumulator and an entry of the stack have one lane; acc is DF_LANES accumulators side
 * by side. In COL, each of them has DF_CHUNK lanes. argmin and argmax have one accumulator per
 * lane: the best value in acc, its index in `index`. */
typedef struct df_red {
    /* Accumulators of the current block; results of blocks that are not joined yet; lanes of the
     * final value. */
    char *acc, *stack, *result;
    char *operand;  /* ROW with several RED axes: a chunk that is not folded yet; else NULL */
    int64_t *index; /* argmin, argmax; -1: no element yet */
    df_fold_fn fold, fold_row;
    df_before_fn before;
    df_scan_fn scan;
    uint64_t identity;
    uint8_t op, dtype, size;
    uint32_t slot; /* index of its first word per block in df_kargs.partial */
} df_red;

/* Steps [begin, end). */
typedef struct df_range {
    uint32_t begin, end;
} df_range;

typedef enum df_pass { DF_PASS_MAIN, DF_PASS_PART, DF_PASS_FIN } df_pass;

typedef struct df_interp {
    const df_kernel *k;
    const df_kargs *a;
    const df_lane_ops *ops;
    df_pass pass;
    df_istep *steps;
    df_red *reds;
    uint32_t n_reds;
    df_range row[DF_MAX_STAGES], elem[DF_MAX_STAGES]; /* steps per stage, by level */
    int64_t *stride; /* [access][axis], elements; 0 where the access does not depend on the axis */
    int64_t *off;    /* per access: offset from ptr at the current OUTER and RED position */
    int64_t *outer;  /* per access: offset at the current OUTER position alone */
    uint32_t n_outer, n_red;
    int vec;                   /* the vectorized axis; -1: none */
    uint32_t lane;             /* run_chunk: the lane at which the current run begins */
    uint32_t width;            /* the most lanes that this call uses */
    uint32_t depth;            /* entries on the stacks of blocks */
    bool no_store;             /* part: row-level stores of stage 0 are left to fin */
    bool leaves;               /* LOOP: a proceed was false, the loop ends */
    int64_t length;            /* product of the RED extents */
    int64_t n_blocks, n_inner; /* extents of df_kargs.partial */
} df_interp;

DF_INLINE bool df_is_arg(uint8_t op)
{
    return op == DF_K_argmin || op == DF_K_argmax;
}

/* Returns true for a ROW kernel with several RED axes. Its reduced elements are *runs* along the
 * last of these axes. */
DF_INLINE bool df_has_runs(const df_kernel *k)
{
    uint32_t n = 0;
    for (uint32_t j = 0; j < k->n_axes; j++) n += k->role[j] == DF_AXIS_RED;
    return k->mode == DF_MODE_ROW && n > 1;
}

/* Returns the lanes of one accumulator, or of one entry of a stack. */
DF_INLINE size_t df_red_lanes(const df_kernel *k)
{
    return k->mode == DF_MODE_ROW ? 1 : DF_CHUNK;
}

/* ---- interp_prepare.c ---- */

/* Prepares a call: fills in x, takes its memory from `work`, and evaluates uniform values. */
void df_interp_prepare(df_interp *x, df_pass p, const df_kernel *k, void *work, const df_kargs *a,
                       int64_t i0, int64_t i1);

/* ---- interp_fill.c ---- */

/* Writes n copies of the value of `size` bytes at `value`, which may be the first lane of dst. */
void df_splat(void *dst, const void *value, size_t size, uint32_t n);
/* The same for a value given as the low `size` bytes of bits. */
void df_splat_bits(void *dst, uint64_t bits, size_t size, uint32_t n);

/* ---- interp_reduce.c ---- */

/* In these functions `steps` are the steps of a stage, and n is a number of lanes (1 in ROW, except
 * for fold and scan). */

/* Begins a block of n_elements reduced elements, the first of which is element `first`. */
void df_red_begin_block(df_interp *x, df_range steps, int64_t first, int64_t n_elements,
                        uint32_t n);
/* Folds n values v into the accumulators. `at` is their reduced position; in ROW it is the position
 * of the first. */
void df_red_fold(df_interp *x, df_red *r, const char *v, int64_t at, uint32_t n);
/* Continues a scan by n values v in the same way, and writes its n results to dst. */
void df_red_scan(df_interp *x, df_red *r, char *dst, const char *v, int64_t at, uint32_t n);
/* Ends block number b. Its result is pushed on the stack. In DF_PASS_PART it is written to partial
 * instead, from lane i0 on. */
void df_red_end_block(df_interp *x, df_range steps, int64_t b, int64_t n_elements, int64_t i0,
                      uint32_t n);
/* Joins the blocks on the stacks into the results. */
void df_red_end_stage(df_interp *x, df_range steps, uint32_t n);
/* DF_PASS_FIN: joins the blocks of r from partial, for lanes [i0, i0 + n), into its result. */
void df_red_join_partial(df_interp *x, df_red *r, int64_t i0, uint32_t n);

#endif
