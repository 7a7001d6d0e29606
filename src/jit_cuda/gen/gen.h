/* SPDX-License-Identifier: Apache-2.0
 *
 * The state while the text of one kernel is written. Private to the generator:
 *
 *   text.c                        a kernel: what is refused, a function per phase, its entries
 *   writer.c                      lines and braces
 *   values.c                      instructions
 *   index.c                       positions along axes, and offsets of accesses
 *   reduce.c                      accumulators of one stage, shared memory, partial results
 *   map.c, row.c, col.c, loop.c   the loops of each mode
 *   kernels/gemm_text.c           a product, and MAP bodies that are its epilogue
 *
 * Names in the generated text:
 *
 *   v7      the value of instruction 7
 *   p3      the address of access 3
 *   s3_1    the stride of access 3 along axis 1
 *   a3      the part of the offset of access 3 that all elements of the thread share
 *   e1      the extent of axis 1
 *   x1      a position along axis 1 that all elements of the thread share
 *   m1[l]   a position along axis 1 that differs by element
 *   V       how many elements the thread has at once
 *   on[l]   whether element l exists
 *   L, W, H whether the entry has LONG, WIDE, HELD
 *   h3      ROW, with H: where the row of access 3 is kept
 *
 * In MAP with several packs, a3 and x1 are arrays with one value per pack. Values of
 * element level are arrays of V. An element that does not exist is computed with, but it is
 * never read, written or counted. In COL a thread has C columns, row by row among its V
 * elements, and values of row level are arrays of C.
 */
#ifndef DF_JIT_CUDA_GEN_H
#define DF_JIT_CUDA_GEN_H

#include "base/limits.h"
#include "base/str.h"
#include "jit_cuda/gen/held.h"

typedef struct df_cuda_gen {
    const df_kernel *k;
    const char *name;
    df_str *out;
    df_cuda_pass pass; /* the phase whose function is being written */
    bool lanes;        /* element level: values are arrays */
    bool groups;       /* MAP with U packs: o, r0, x and a are arrays */
    /* stacks of reductions are in local memory, because shared memory is too small */
    bool lean;
    uint32_t depth;   /* of indentation */
    const char *tile; /* an array of V that access tile_access reads in place of memory; or NULL */
    uint32_t tile_access;
    df_cuda_held held; /* rows that entries with HELD keep */
} df_cuda_gen;

/* ---- writer.c ---- */

/* Appends a line, indented. */
void df_cuda_line(df_cuda_gen *g, const char *fmt, ...) DF_PRINTF(2, 3);
/* Appends a line that opens a brace, or one that closes it. */
void df_cuda_open(df_cuda_gen *g, const char *fmt, ...) DF_PRINTF(2, 3);
void df_cuda_brace(df_cuda_gen *g); /* opens a brace on a line of its own */
void df_cuda_close(df_cuda_gen *g);

/* ---- properties of a kernel ---- */

/* The type of a dtype in the text. */
const char *df_cuda_type(uint8_t dtype);
bool df_cuda_is_reduce(const df_cuda_gen *g, uint32_t ins);
bool df_cuda_is_scan(const df_cuda_gen *g, uint32_t ins);
/* Whether a stage has instructions of element level. */
bool df_cuda_has_elem(const df_cuda_gen *g, uint32_t stage);
/* Whether the row level of a stage writes memory, which its elements may read. */
bool df_cuda_row_stores(const df_cuda_gen *g, uint32_t stage);
/* Whether a stage has a reduction, or a scan. */
bool df_cuda_reduces(const df_cuda_gen *g, uint32_t stage);
bool df_cuda_scans(const df_cuda_gen *g, uint32_t stage);

/* ---- text.c ---- */

/* Returns DEFT_E_COMPILE when g->k has something that cannot be generated. */
deft_status df_cuda_check(const df_cuda_gen *g, df_diag *d);

/* ---- values.c ---- */

/* Appends the instructions of a stage's row level, except reductions and what belongs to
 * loops. once: an expression for where stores take place; NULL omits stores. Values that
 * later stages read stay in scope. */
void df_cuda_row_level(df_cuda_gen *g, uint32_t stage, const char *once);
/* Appends one instruction of element level. */
void df_cuda_elem(df_cuda_gen *g, uint32_t ins);
/* ROW: whether an entry with HELD and WIDE copies this row before the first stage. */
bool df_cuda_comes_ahead(const df_cuda_gen *g, const df_cuda_held_row *row);
/* Writes the value of instruction i as an operand at the current level. */
void df_cuda_ref(df_cuda_gen *g, uint32_t i, char out[24]);
/* Declares all constants. */
void df_cuda_consts(df_cuda_gen *g);

/* ---- index.c ---- */

/* Declares addresses, strides, extents, numbers and the like, read from the words w. */
void df_cuda_gen_words(df_cuda_gen *g);
/* Declares x: positions along OUTER axes, from the row o. */
void df_cuda_outer(df_cuda_gen *g);
/* Declares a: offsets along OUTER axes, and along INNER where all elements share the
 * position. */
void df_cuda_offsets(df_cuda_gen *g);
/* Declares m: positions along the axes that differ by element, from r[l]. */
void df_cuda_moving(df_cuda_gen *g);
/* Appends the offset of an access. At element level it includes what differs by element. */
void df_cuda_offset(df_cuda_gen *g, uint32_t access, df_str *out);
int df_cuda_axis(const df_kernel *k, df_role role); /* the last axis of a role; -1: none */
/* Writes the product of the extents of a role as an expression, "(I)1" for no axes. */
void df_cuda_extents(df_cuda_gen *g, df_role role, char *out, size_t cap);

/* ---- reduce.c ---- */

/* Writes the name of the struct of reduction i in the prelude. */
void df_cuda_red_type(const df_cuda_gen *g, uint32_t i, char out[32]);
size_t df_cuda_red_size(const df_cuda_gen *g, uint32_t i); /* bytes of an accumulator */
/* Appends the join of the current elements into acc, the accumulators of reduction i. There are A,
 * and lane l has the one of number l % A. */
void df_cuda_accumulate(df_cuda_gen *g, uint32_t i);
/* The first of a reduction's slots in `partial`; the number of slots of all reductions. */
uint32_t df_cuda_slot(const df_cuda_gen *g, uint32_t i);
uint32_t df_cuda_n_slots(const df_cuda_gen *g);
/* Calls f for each reduction of a stage. */
void df_cuda_each_red(df_cuda_gen *g, uint32_t stage, void (*f)(df_cuda_gen *g, uint32_t ins));
/* FIN: declares the results of all reductions of stage 0, read from `partial`. join: a
 * function of the prelude. */
void df_cuda_from_partial(df_cuda_gen *g, const char *join, const char *by);
void df_cuda_accumulators(df_cuda_gen *g, uint32_t stage); /* declares acc[A] of each reduction */
/* Offset in shared memory of reduction `of` of a stage, or, for DF_NONE, the bytes that the
 * stage needs. each: accumulators per reduction; common: bytes at the front. */
size_t df_cuda_shared(const df_cuda_gen *g, uint32_t stage, size_t each, size_t common,
                      uint32_t of);

/* ---- modes: each writes the function of g->pass ---- */

void df_cuda_map(df_cuda_gen *g);
/* The body of MAP, for V neighbours from r0 on in row o. With g->groups, for U full packs
 * of G. */
void df_cuda_map_body(df_cuda_gen *g);
void df_cuda_row(df_cuda_gen *g);
void df_cuda_col(df_cuda_gen *g);
void df_cuda_loop(df_cuda_gen *g);
/* Bytes of shared memory of a thread block: of COL with so many columns per thread, and of
 * ROW. When they would be too many, the kernel is made lean, and then they fit. */
size_t df_cuda_col_shared(const df_cuda_gen *g, uint32_t columns);
size_t df_cuda_row_shared(const df_cuda_gen *g, bool is_long);

#endif
