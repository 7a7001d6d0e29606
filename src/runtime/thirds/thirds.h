/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal header of products: f32 in fast mode on processors whose tiles multiply bf16 (AMX).
 *
 * An f32 is the sum of three bf16, its *thirds*: the number rounded to bf16, then the rest rounded
 * to bf16, then what is left, which is exact. Of the nine products of thirds, six are computed:
 *
 *     a b  =  a1 b1 + (a1 b2 + a2 b1) + (a1 b3 + a2 b2 + a3 b1)      less at most 2^-25 of it
 *
 * A tile sums 32 steps of k before it adds them to the element of C. So C is rounded six times for
 * 32 steps, and 32 times by a chain. Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial
 * Intelligence Datatype For Higher-Precision Computations" (2019), describe the method.
 *
 * Tiles read denormals as 0 and make denormal results 0. So a term can lose up to 2^-126 times the
 * other operand. Infinities, NaN, and numbers of 2^24 and more are no sums of thirds here. Panels
 * that have them are multiplied by the tiles in C (matmul/tile.h).
 */
#ifndef DF_RUNTIME_THIRDS_H
#define DF_RUNTIME_THIRDS_H

#include "runtime/matmul.h"

enum {
    DF_THIRDS_LANES = 32, /* rows of A and columns of B in a panel */
    DF_THIRDS_STEP = 32,  /* steps of k that are packed together */
    /* Bytes of a panel for DF_THIRDS_STEP steps: three thirds of two tiles of 1 KiB. */
    DF_THIRDS_BYTES = 3 * 2 * 1024
};

/* Memory that is read soon: n_rows rows of `bytes` bytes, `stride` bytes apart. The first `done`
 * bytes of the first row need nothing. */
typedef struct df_thirds_ahead {
    const char *row;
    int64_t stride, bytes, n_rows, done;
} df_thirds_ahead;

typedef struct df_thirds_code {
    /* Packs a panel of A, or of B when of_b: element (k, x) is from[k * step + x * stride], for
     * k < n and x < w. One of the strides is 1. The padding gets +0, but the second half of a panel
     * of A that has only padding there is not written. Returns false when an element
     * is no sum of thirds. */
    bool (*pack)(void *to, bool of_b, const float *from, int64_t step, int64_t stride, int64_t n,
                 int64_t w);
    /* Multiplies panels of n_steps times DF_THIRDS_STEP steps. C [m x n] begins with +0 when
     * `first`. is_far: B comes from beyond the L1 cache, and perhaps from memory, so that its next
     * step is prefetched. All of `ahead` is prefetched into the L2 cache meanwhile. */
    void (*block)(int64_t n_steps, const void *a, const void *b, float *c, int64_t c_row, int64_t m,
                  int64_t n, bool first, bool is_far, df_thirds_ahead ahead);
    /* The same for m <= DF_THIRDS_LANES / 2, and the columns of two panels of B, one after the
     * other: n <= 2 * DF_THIRDS_LANES. next_b NULL: there is only one. */
    void (*half)(int64_t n_steps, const void *a, const void *b, const void *next_b, float *c,
                 int64_t c_row, int64_t m, int64_t n, bool first, bool is_far);
    /* Called on a thread before and after it calls `block`. */
    void (*begin)(void);
    void (*end)(void);
} df_thirds_code;

/* NULL: built without it. It says nothing of the machine. */
const df_thirds_code *df_thirds_pick(void);

/* Kept weights: B packed as thirds once, panel after panel, each with all of its steps. A byte for
 * each slice of each panel follows; it is 1 where an element is no sum of thirds. */
int64_t df_thirds_packed_size(int64_t k, int64_t n);
/* Packs w->k x w->n elements at `from` to `to`, on the threads of the pool. */
void df_thirds_pack(const df_weights *w, const float *from, char *to, df_pool *pool);

/* What df_matmul_work_size and df_matmul_run do, for a job whose in_thirds is set and which has no
 * images. df_thirds_run returns false, and does nothing, for any other. Results do not depend on
 * the number of threads. */
size_t df_thirds_work_size(const df_matmul_job *j, uint32_t n_threads);
bool df_thirds_run(const df_matmul_job *j, df_pool *pool, void *work);

#endif
