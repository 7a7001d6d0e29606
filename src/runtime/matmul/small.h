/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of matmul.c: which function multiplies blocks of a product whose A is not packed,
 * and small products, which are computed without a plan.
 */
#ifndef DF_RUNTIME_MATMUL_SMALL_H
#define DF_RUNTIME_MATMUL_SMALL_H

#include "runtime/matmul.h"
#include "runtime/matmul/tile.h"

enum {
    DF_MATMUL_WELL_BYTES = 512 << 10, /* a B up to this size stays in L2, beside A and C */
    DF_MATMUL_REGION_MACS = 1000000   /* least product that is planned for several threads */
};

/* Returns true when the rows of B are contiguous, so that B can be read without packing. */
DF_INLINE bool df_matmul_b_lies_well(const df_matmul_job *j)
{
    return !j->images && (j->b_col == 1 || j->n == 1);
}

/* Whether the columns of windows are one tile. Then each row of A is read once, so that to pack A
 * would take longer than to read it where it lies. */
bool df_matmul_is_one_tile(const df_matmul_job *j, const df_tiles *t);

/* Returns true for few rows times a transposed B, which tiles->dots and tiles->split read as it
 * lies in memory. */
bool df_matmul_wants_dots(const df_matmul_job *j, const df_tiles *t);

/* Returns the function that multiplies blocks of this product, when A is not packed: block, sweep,
 * dots or split of the tiles. */
void (*df_matmul_multiply_of(const df_matmul_job *j, const df_tiles *t))(const df_block *);

/* Returns true for shapes at which a BLAS is faster than the tiles here, in fast mode. These are
 * few rows or columns with a transposed B. A BLAS sums along the contiguous columns of B in several
 * chains, while the tiles must transpose them and have one chain per element. For the fewest rows,
 * tiles->split does the same. */
bool df_matmul_wants_blas(const df_matmul_job *j);

/* Returns the multiply-adds that take as long as one batch entry of this product. Reading an
 * element of B takes as long as some multiply-adds, which matters for few rows. */
double df_matmul_cost(const df_matmul_job *j);

/* Returns the estimated time of so many multiply-adds on one thread. */
double df_matmul_ns(double macs, const df_tiles *t);

/* Returns true for a product that is one block without packing. To plan its division would take as
 * long as to compute it. */
bool df_matmul_is_small(const df_matmul_job *j);

/* Divides `extent` rows or columns among the caller and parts - 1 workers, which start so late that
 * the caller does `head` of them meanwhile. Returns how many each worker gets: a multiple of unit,
 * with which the last of them ends soonest. The rest, at least one, is the caller's. */
int64_t df_matmul_part_of_worker(int64_t extent, int64_t unit, int64_t parts, int64_t head);

/* Computes a small product into c, whose rows are c_row elements apart. Runs no epilogue. */
void df_matmul_run_small(const df_matmul_job *j, char *c, int64_t c_row, df_pool *pool);

#endif
