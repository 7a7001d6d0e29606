/* SPDX-License-Identifier: Apache-2.0
 *
 * Batched matrix product for DF_SEG_MATMUL: packing, cache blocking, micro-kernel, epilogue.
 *
 * Strict mode: each output is one chain acc = fma(a, b, acc) with k ascending. Threads share out
 * M, N and the batch only, so that results do not depend on their number.
 * Fast mode: with few rows and a transposed B, or few columns and a row-major A, each output is
 * summed in several chains along k.
 * Products of a few other shapes go to a BLAS that is opened at run time. It runs on the calling
 * thread alone. Convolutions with windows of 3 x 3 elements, and the gradients of their weights,
 * need fewer multiplications (winograd/winograd.h). Where the processor has the tiles of AMX, large
 * products of f32 are sums of products of bf16 (thirds/thirds.h). All other products are computed
 * as in strict mode.
 *
 * On machines that multiply pairs of bf16, products of bf16 use that (bf16/bf16.h). In strict
 * mode they do so when no denormal can occur, as the bits are equal then.
 */
#ifndef DF_RUNTIME_MATMUL_H
#define DF_RUNTIME_MATMUL_H

#include "runtime/device.h"
#include "runtime/pool.h"

typedef struct df_blas df_blas; /* opened library; NULL when there is none */

struct df_images;

typedef struct df_matmul_job {
    deft_dtype dtype;         /* f32 or f64 */
    int64_t m, n, k, n_batch; /* batch linearized row-major over batch_extent */
    uint32_t batch_rank;
    int64_t batch_extent[DEFT_MAX_RANK];
    const char *a, *b;
    char *c; /* NULL: tiles only, the epilogue consumes them */
    /* Strides in elements. Columns of c are contiguous. */
    int64_t a_batch[DEFT_MAX_RANK], b_batch[DEFT_MAX_RANK], c_batch[DEFT_MAX_RANK];
    int64_t a_row, a_col, b_row, b_col, c_row;
    /* B shows windows of the images at b (matmul/windows.h), and its own strides are 0. NULL: B is
     * a matrix. */
    const struct df_images *images;
    /* The elements of A and B are bf16, and dtype is f32. Only without images, and in strict mode
     * only where df_matmul_pairs_are_exact is true. */
    bool is_bf16;
    /* bf16 in fast mode are multiplied by the tiles of AMX (bf16/bf16_amx.c). Only after
     * df_matmul_enable_tiles was true. */
    bool is_tiled;
    /* f32 in fast mode are multiplied as sums of bf16 by these tiles (thirds/thirds.h). With
     * images, these are the products of winograd/winograd.h. Only after df_matmul_enable_tiles was
     * true, and where df_matmul_gains_by_thirds is. */
    bool in_thirds;
    /* The smallest magnitudes other than 0 in A and in B, as bits, when they are bf16; 0: not yet
     * known. */
    uint16_t least[2];
    /* The weights as df_matmul_pack stores them, which are then not read where they lie. NULL: they
     * are not packed. */
    const char *packed;
    /* Called for each finished tile of C, on any thread of the pool; NULL: no epilogue. The tile
     * covers rows [o0, o1) of (batch, m) linearized, and columns [i0, i1). Element (o0, i0) is at
     * `tile`, and rows are ld elements apart. */
    void (*epilogue)(void *user, uint32_t thread, const char *tile, int64_t ld, int64_t o0,
                     int64_t o1, int64_t i0, int64_t i1);
    void *user;
    bool fast;
} df_matmul_job;

/* Returns where a batch entry begins, in elements. `stride` is a_batch, b_batch or c_batch. */
DF_INLINE int64_t df_matmul_batch_offset(const df_matmul_job *j, const int64_t *stride,
                                         int64_t entry)
{
    int64_t offset = 0;
    for (uint32_t i = j->batch_rank; i-- > 0; entry /= j->batch_extent[i])
        offset += entry % j->batch_extent[i] * stride[i];
    return offset;
}

/* What this machine's instructions for bf16 can do. */
typedef enum df_bf16_use {
    DF_BF16_NONE,  /* there are none */
    DF_BF16_FAST,  /* they compute sums in an order of their own: for fast mode */
    DF_BF16_CHAINS /* they compute the strict chain, but for denormals */
} df_bf16_use;

/* Tries the instructions, which takes some microseconds. */
df_bf16_use df_matmul_try_bf16(void);

/* Asks the system for the tiles of AMX, on behalf of the whole process, and for good. Returns false
 * when the processor or the system has none, or when a thread has an alternate stack for signals
 * that is too small for their contents. Takes some microseconds. */
bool df_matmul_enable_tiles(void);

/* Whether this product in fast mode is faster as one of sums of bf16 in tiles. The answer depends
 * on extents, strides and dtypes alone. */
bool df_matmul_gains_by_thirds(const df_matmul_job *job);

/* Whether a strict product of bf16 is faster by pairs than by f32 after a conversion. */
bool df_matmul_pairs_pay(const df_matmul_job *job);

/* Whether the product of these two arrays of bf16 has the strict bits when pairs are multiplied.
 * Needs DF_BF16_CHAINS. Reads both operands, on the threads of the pool, but for those whose
 * job.least is known. */
bool df_matmul_pairs_are_exact(const df_matmul_job *job, df_pool *pool);

/* The operand of a product whose elements a packed copy has (packs.h): B, or A of a product with
 * few columns, which is computed as rows. */
typedef struct df_weights {
    bool is_a;
    bool has_pairs;         /* the elements are bf16, and are packed as pairs (bf16/bf16.h) */
    bool is_tiled;          /* for the tiles of AMX */
    bool in_thirds;         /* packed as thirds (thirds/thirds.h) */
    int64_t k, n, row, col; /* rows, columns and strides of the product's B */
    int64_t bytes;          /* of the packed copy */
    uint32_t width;         /* columns of a panel */
} df_weights;

/* Returns false when the product gains nothing by a packed copy, and leaves *out undefined. The
 * answer depends on the extents, strides and flags of the job alone. */
bool df_matmul_find_weights(const df_matmul_job *job, df_weights *out);

/* Packs the weights at `from` to w->bytes bytes at `to`: panels of `width` columns one after the
 * other, each stored as [k][width]. The last one is padded with +0. Pairs of bf16 are followed by
 * their smallest magnitude. */
void df_matmul_pack(const df_weights *w, deft_dtype t, const char *from, char *to, df_pool *pool);

/* Returns job.least of weights that are packed as pairs at `packed`. */
uint16_t df_matmul_packed_least(const df_weights *w, const char *packed);

/* Returns the bytes of workspace for one call: the packing buffers of all threads. */
size_t df_matmul_work_size(const df_matmul_job *job, const df_gemm_kernel *g, uint32_t n_threads);

/* Computes the product on the threads of the pool. g NULL: the micro-kernels in C. blas NULL: no
 * BLAS. `work` is workspace of df_matmul_work_size bytes for the same g. */
void df_matmul_run(const df_matmul_job *job, const df_gemm_kernel *g, df_blas *blas, df_pool *pool,
                   void *work);

/* Opens a BLAS library of the system. Returns DEFT_E_BACKEND when there is none. */
deft_status df_blas_open(df_diag *d, const df_mem *mem, df_blas **out);
void df_blas_close(df_blas **b); /* *b may be NULL */

#endif
