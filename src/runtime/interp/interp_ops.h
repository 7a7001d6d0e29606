/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of the interpreter: the table of loops, one per kernel op and dtype, over at most
 * DF_CHUNK lanes.
 *
 * The loops are in interp_ops.def, which is compiled once per instruction set. Without the
 * instruction, an exact fma is some 50 times slower.
 */
#ifndef DF_RUNTIME_INTERP_OPS_H
#define DF_RUNTIME_INTERP_OPS_H

#include "base/half.h"
#include "base/limits.h"
#include "ops/kop.h"

enum {
    DF_CHUNK = DF_BLOCK / 16,
    /* Tables of reductions have a row for each kernel op from DF_K_sum to DF_K_cummax. Tables of
     * map ops have one for each up to DF_K_check. */
    DF_N_FOLDS = DF_K_cummax - DF_K_sum + 1,
    DF_N_MAPS = DF_K_check + 1
};

/* dst overlaps no operand; operands may be equal. n may be 0. */
typedef void (*df_lane_fn)(void *dst, const void *a, const void *b, const void *c, uint32_t n);
/* acc[i] = acc[i] op v[i] */
typedef void (*df_fold_fn)(void *acc, const void *v, uint32_t n);
/* Returns true when argmin or argmax prefers value a to value b; false when they are equal. */
typedef bool (*df_before_fn)(const void *a, const void *b);
/* dst[i] = state = first && i == 0 ? a[i] : state op a[i] */
typedef void (*df_scan_fn)(void *dst, void *state, const void *a, uint32_t n, bool first);

/* The scans are the last reducing ops of kops.def. */
enum { DF_N_SCANS = DF_K_cummax - DF_K_cumsum + 1 };

/* The index of a scan op in tables of scans. */
DF_INLINE uint32_t df_scan_of(df_kop op)
{
    df_assert(op >= DF_K_cumsum && op <= DF_K_cummax);
    return (uint32_t)(op - DF_K_cumsum);
}

typedef struct df_lane_ops {
    const char *name;
    /* By the dtype of the first operand; for select, of the second. NULL where the op does not take
     * that dtype. */
    df_lane_fn map[DF_N_MAPS][DF_N_RECORDED];
    df_lane_fn cast[DF_N_RECORDED][DF_N_RECORDED]; /* [from][to] */
    /* By kernel op minus DF_K_sum. A scan folds as its reduction does. */
    df_fold_fn fold[DF_N_FOLDS][DF_N_RECORDED];
    /* acc has DF_LANES lanes: acc[i % DF_LANES] = acc[i % DF_LANES] op v[i] */
    df_fold_fn fold_row[DF_N_FOLDS][DF_N_RECORDED];
    df_before_fn before[2][DF_N_RECORDED];      /* argmin, argmax */
    df_scan_fn scan[DF_N_SCANS][DF_N_RECORDED]; /* along the lanes; by df_scan_of(op) */
} df_lane_ops;

extern const df_lane_ops df_lane_ops_plain;
extern const df_lane_ops df_lane_ops_avx2;   /* x86 only */
extern const df_lane_ops df_lane_ops_avx512; /* x86 only */

/* Returns the fastest table for this machine. All tables give equal bits. A call costs a few loads.
 */
const df_lane_ops *df_lane_ops_best(void);

#endif
