/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a loop that do not depend on each other (exec/exec_rows.c).
 */
#ifndef DF_RUNTIME_LOOP_ROWS_H
#define DF_RUNTIME_LOOP_ROWS_H

#include "fuser/plan.h"

/* The rows of a segment. */
typedef struct df_seg_rows {
    /* Outer positions of a kernel (or elements of INNER) that make up a row of the loop. Of a
     * product: rows of C, counted over the batch. */
    int64_t per_row;
    bool by_inner;    /* a MAP without outer axes: its INNER axis is divided */
    bool has_weights; /* a product: B is one matrix, which all iterations read */
} df_seg_rows;

typedef struct df_loop_rows {
    const df_part *part;
    const df_plan *plan;  /* of an iteration */
    const int64_t *slots; /* of that plan */
    /* The caller packs weights, and takes states that are the latest row of a stacked result. Else
     * loops that have either are refused. */
    bool takes_recurrences;
    /* Found by df_rows_find. The caller provides the arrays, filled with 0. */
    int64_t n_rows, group; /* the rows of one entry of a batch are a group */
    df_seg_rows *segs;     /* per segment of the plan */
    int64_t *row_bytes;    /* per buffer of the plan: bytes of a row; 0: it has no rows */
} df_loop_rows;

/* Returns the estimated time of the products of one iteration, on one thread. */
double df_rows_estimate_ns(const df_plan *plan, const int64_t *slots);

/* Fills in *l. Returns false when the loop has no independent rows, or when it should not run block
 * by block. */
bool df_rows_find(df_loop_rows *l);

#endif
