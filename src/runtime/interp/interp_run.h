/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the interpreter: one call's state.
 *
 *   interp.c           the loops of the modes, and the running of steps
 *   interp_prepare.c   work space; from instructions to steps
 *   interp_reduce.c    the order of reductions
 *   interp_ops.def     the loop of each op
 */
#ifndef DF_RUNTIME_INTERP_RUN_H
#define DF_RUNTIME_INTERP_RUN_H

#include <string.h>

#include "runtime/interp/interp.h"
#include "runtime/interp/interp_ops.h"

typedef struct df_istep {
    df_lane_fn fn; /* map ops */
    char *dst;     /* reduce and scan: DF_CHUNK lanes of the result */
    const char *src[3];
    uint64_t imm;
    uint8_t op, kind, dtype, size; /* of the value moved, folded or tested */
    bool splat;                    /* ROW mode: a row-level value that the inner loop reads */
    uint32_t red;                  /* reduce and scan: index into reds */
    char *state;                   /* next: its carry's lanes */
    int64_t by;                    /* memory and index: elements per step of the vectorized axis */
} df_istep;

/* A reduction or scan. In ROW, acc and stack entries have one lane (acc: DF_LANES of them side by
 * side); in COL, DF_CHUNK lanes each. argmin and argmax keep one best value and its index instead.
 */
typedef struct df_red {
    char *acc, *stack, *result;
    char *operand; /* ROW run by run: DF_CHUNK lanes that wait to be folded; else NULL */
    int64_t *index;
    df_fold_fn fold, fold_row;
    df_before_fn before;
    df_scan_fn scan;
    uint64_t identity;
    uint8_t op, dtype, size;
    uint32_t slot; /* first of its 8-byte partial slots */
} df_red;

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
    df_range row[DF_MAX_STAGES], elem[DF_MAX_STAGES];
    int64_t *stride; /* [access][axis], elements; 0 where the access does not step */
    int64_t *off;    /* per access: elements from ptr at the current OUTER and RED position */
    int64_t *outer;  /* the same without RED */
    uint32_t n_outer, n_red;
    int vec;                   /* the vectorized axis, -1: none */
    uint32_t lane;             /* ROW run by run: where in the chunk this part of it begins */
    uint32_t width;            /* lanes that can ever be in use */
    uint32_t depth;            /* of the stacks of joined blocks */
    bool no_store;             /* row-level stores of stage 0 are left to main or fin */
    bool leaves;               /* LOOP: a proceed was false */
    int64_t length;            /* product of the RED extents */
    int64_t n_blocks, n_inner; /* layout of partial */
} df_interp;

DF_INLINE bool df_is_arg(uint8_t op)
{
    return op == DF_K_argmin || op == DF_K_argmax;
}

/* Whether a ROW kernel has several RED axes. */
DF_INLINE bool df_has_runs(const df_kernel *k)
{
    uint32_t n = 0;
    for (uint32_t j = 0; j < k->n_axes; j++) n += k->role[j] == DF_AXIS_RED;
    return k->mode == DF_MODE_ROW && n > 1;
}

/* Lanes of one accumulator or stack entry. */
DF_INLINE size_t df_red_lanes(const df_kernel *k)
{
    return k->mode == DF_MODE_ROW ? 1 : DF_CHUNK;
}

/* ---- interp_prepare.c ---- */

/* Lays work out for a call and evaluates what is uniform. */
void df_interp_prepare(df_interp *x, df_pass p, const df_kernel *k, void *work, const df_kargs *a,
                       int64_t i0, int64_t i1);

/* ---- interp_fill.c ---- */

/* Writes n copies of the value of `size` bytes at `value`, which may be the first lane of dst. */
void df_splat(void *dst, const void *value, size_t size, uint32_t n);
/* The same for a value given as the low `size` bytes of bits. */
void df_splat_bits(void *dst, uint64_t bits, size_t size, uint32_t n);

/* ---- interp_reduce.c ---- */

/* A block of n_elements that starts at element `first`; n lanes (1 in ROW). */
void df_red_begin_block(df_interp *x, df_range steps, int64_t first, int64_t n_elements,
                        uint32_t n);
/* Values v of reduced position at (ROW: its first lane's) into the accumulators; n lanes of v. */
void df_red_fold(df_interp *x, df_red *r, const char *v, int64_t at, uint32_t n);
void df_red_scan(df_interp *x, df_red *r, char *dst, const char *v, int64_t at, uint32_t n);
/* Block number b is complete: pushed, or in DF_PASS_PART written to partial from lane i0 on. */
void df_red_end_block(df_interp *x, df_range steps, int64_t b, int64_t n_elements, int64_t i0,
                      uint32_t n);
/* Joins what was pushed into the results. */
void df_red_end_stage(df_interp *x, df_range steps, uint32_t n);
/* DF_PASS_FIN: the blocks of reduction r from partial, lanes i0 .. i0 + n, into its result. */
void df_red_join_partial(df_interp *x, df_red *r, int64_t i0, uint32_t n);

#endif
