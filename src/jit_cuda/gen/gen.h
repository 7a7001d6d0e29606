/* SPDX-License-Identifier: Apache-2.0
 *
 * State while one kernel's text is written. Private to the generator:
 *
 *   text.c    a kernel: what is refused, the functions of its passes, its entries
 *   values.c  instructions
 *   index.c   positions along axes, and offsets of accesses
 *   reduce.c  accumulators of one stage, their places in shared memory, partial results
 *   map.c, row.c, col.c, loop.c   the loops of each mode
 *   gemm_text.c   a product, and MAP bodies that are its epilogue
 *
 * Names in the text: v7 the value of instruction 7, p3 the address of access 3, s3_1 its stride
 * along axis 1, a3 its offset where all of this thread's elements have it in common, e1 the extent
 * of axis 1, x1 a position along it, m1[l] one that moves with the elements. In MAP with groups a3
 * and x1 are arrays, of each group of neighbours one. Element-level values are arrays of V, one for
 * each element that a thread has at hand; on[l] says which of these exist: the others are
 * calculated with, but never read, write or count. In COL a thread has C columns, row by row among
 * its V elements: row-level values are arrays of C.
 */
#ifndef DF_JIT_CUDA_GEN_H
#define DF_JIT_CUDA_GEN_H

#include "base/limits.h"
#include "base/str.h"
#include "jit_cuda/gen/cuda_abi.h"

typedef struct df_cuda_gen {
    const df_kernel *k;
    const char *name;
    df_str *out;
    df_cuda_pass pass; /* whose function is being written */
    bool lanes;        /* element level: values are arrays */
    bool groups;       /* MAP: of U groups, positions o and r0, x and a being arrays */
    bool lean;         /* stacks of reductions are in local memory: the shared one is too small */
    uint32_t depth;    /* of indentation */
    const char *tile;  /* an array of V that access tile_access reads in place of memory; NULL */
    uint32_t tile_access;
} df_cuda_gen;

/* ---- writer.c ---- */

void df_cuda_line(df_cuda_gen *g, const char *fmt, ...) DF_PRINTF(2, 3);
/* A line that opens a brace, or closes it. */
void df_cuda_open(df_cuda_gen *g, const char *fmt, ...) DF_PRINTF(2, 3);
void df_cuda_brace(df_cuda_gen *g); /* opens one by itself */
void df_cuda_close(df_cuda_gen *g);

/* ---- what a kernel has ---- */

const char *df_cuda_type(uint8_t dtype);
bool df_cuda_is_reduce(const df_cuda_gen *g, uint32_t ins);
bool df_cuda_is_scan(const df_cuda_gen *g, uint32_t ins);
bool df_cuda_has_elem(const df_cuda_gen *g, uint32_t stage);
/* Whether its row level writes memory, which its elements may read. */
bool df_cuda_row_stores(const df_cuda_gen *g, uint32_t stage);
/* Whether some reduction, or some scan, stands in stage. */
bool df_cuda_reduces(const df_cuda_gen *g, uint32_t stage);
bool df_cuda_scans(const df_cuda_gen *g, uint32_t stage);

/* ---- text.c ---- */

/* DEFT_E_COMPILE: g->k holds what cannot be generated. */
deft_status df_cuda_check(const df_cuda_gen *g, df_diag *d);

/* ---- values.c ---- */

/* Whether op is known for these dtypes, src being that of the first operand. */
bool df_cuda_knows(df_kop op, uint8_t t, uint8_t src);
/* Instructions of (stage, level), but reductions and what belongs to loops. What acts at row level
 * does so where `once` holds, an expression; NULL: stores do not act. Values of row level that
 * later stages read stay visible. */
void df_cuda_row_level(df_cuda_gen *g, uint32_t stage, const char *once);
/* One instruction of element level. */
void df_cuda_elem(df_cuda_gen *g, uint32_t ins);
/* The value of instruction i as an operand where we are. */
void df_cuda_ref(df_cuda_gen *g, uint32_t i, char out[24]);
void df_cuda_consts(df_cuda_gen *g);

/* ---- index.c ---- */

/* Addresses, strides, extents, numbers and the like from the words w. */
void df_cuda_words(df_cuda_gen *g);
/* x positions of OUTER from the row `o`. */
void df_cuda_outer(df_cuda_gen *g);
/* a offsets: those of OUTER, and of INNER where that is `i`. */
void df_cuda_offsets(df_cuda_gen *g);
/* m positions of RED from r[l]. */
void df_cuda_moving(df_cuda_gen *g);
/* The offset of an access; at element level with what moves. */
void df_cuda_offset(df_cuda_gen *g, uint32_t access, df_str *out);
int df_cuda_axis(const df_kernel *k, df_role role); /* the last of a role; -1 */
/* " * "-joined extents of a role, "1" for none. */
void df_cuda_extents(df_cuda_gen *g, df_role role, char *out, size_t cap);

/* ---- reduce.c ---- */

/* The struct of reduction i in the prelude. */
void df_cuda_red_type(const df_cuda_gen *g, uint32_t i, char out[32]);
size_t df_cuda_red_size(const df_cuda_gen *g, uint32_t i); /* of an accumulator */
/* Joins the elements of reduction i into its accumulators acc, one for each lane. */
void df_cuda_accumulate(df_cuda_gen *g, uint32_t i);
/* First of its slots in partial; of n reductions in all. */
uint32_t df_cuda_slot(const df_cuda_gen *g, uint32_t i);
uint32_t df_cuda_n_slots(const df_cuda_gen *g);
/* Calls f for each reduction of stage. */
void df_cuda_each_red(df_cuda_gen *g, uint32_t stage, void (*f)(df_cuda_gen *g, uint32_t ins));
/* FIN: all reductions of stage 0 from partial, by join, a function of the prelude. */
void df_cuda_from_partial(df_cuda_gen *g, const char *join, const char *by);
void df_cuda_accumulators(df_cuda_gen *g, uint32_t stage); /* each acc[V] at its identity */
/* Bytes of shared memory that a stage needs at `each` accumulators for a reduction, and the offset
 * of those of reduction `of` (DF_NONE: the sum), `common` at the front. */
size_t df_cuda_shared(const df_cuda_gen *g, uint32_t stage, size_t each, size_t common,
                      uint32_t of);

/* ---- modes: the function of g->pass ---- */

void df_cuda_map(df_cuda_gen *g);
/* Its body, for V neighbours from r0 on in row o; with g->groups for U whole groups of G. */
void df_cuda_map_body(df_cuda_gen *g);
void df_cuda_row(df_cuda_gen *g);
void df_cuda_col(df_cuda_gen *g);
void df_cuda_loop(df_cuda_gen *g);
/* Bytes of shared memory of a COL thread block, each thread having so many columns; of a ROW's.
 * Where they are lean, they fit. */
size_t df_cuda_col_shared(const df_cuda_gen *g, uint32_t columns);
size_t df_cuda_row_shared(const df_cuda_gen *g, bool is_long);

#endif
