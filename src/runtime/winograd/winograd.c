/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/winograd/winograd.h"

#include "runtime/thirds/thirds.h"
#include "runtime/winograd/winograd_parts.h"

enum {
    POSITIONS = DF_WINOGRAD_POSITIONS,
    TAPS = DF_WINOGRAD_TAPS,
    LEAST_ROWS = 8 /* of A: with fewer, the micro-kernel has nothing to multiply a vector with */
};

/* Builds with checks transform all convolutions, so that tests on small tensors do. */
#ifdef DF_DEBUG
enum { TRANSFORMS_ALL = 1 };
#else
enum { TRANSFORMS_ALL = 0 };
#endif

/* Whether the 16 products and the transformations take less time than the direct product. The unit
 * is a multiply-add of a micro-kernel. */
static bool gains_by_tiles(const df_matmul_job *j)
{
    const df_images *const i = j->images;
    const bool is_gradient = i->is_transposed;
    /* To transform a tile of one channel; for the gradient of the weights, also to transpose it. */
    const double each_tile = is_gradient ? 240 : 120;
    const double each_weight = 500; /* to transform 9 weights, which become 16 in memory */
    const double m = (double)j->m, channels = (double)((is_gradient ? j->n : j->k) / TAPS);
    const double images = (double)((is_gradient ? j->k : j->n) / (i->out[0] * i->out[1]));
    const double tiles = images * (double)(df_div_up(i->out[0], 2) * df_div_up(i->out[1], 2));
    const double direct = m * (double)j->k * (double)j->n;
    const double here = tiles * ((double)POSITIONS * m * channels + each_tile * (m + channels)) +
                        each_weight * m * channels;
    return TRANSFORMS_ALL || (j->m >= LEAST_ROWS && 1.2 * here < direct);
}

DF_NOINLINE bool df_winograd_wants(const df_matmul_job *j)
{
    const df_images *const m = j->images;
    df_winograd_square square;
    if (!j->fast || !m || j->dtype != DEFT_F32) return false;
    if (m->step[0] != 1 || m->step[1] != 1 || m->column != 1) return false;
    if (m->out[0] <= 0 || m->out[1] <= 0 || j->k <= 0) return false;
    if ((m->is_transposed ? j->n : j->k) % TAPS != 0) return false;
    if (m->is_transposed && (j->n_batch != 1 || j->a_col != 1)) return false;
    return df_winograd_pick() && df_winograd_find_square(m, &square) && gains_by_tiles(j);
}

/* Thirds of the weights must stay in L2, or be read once: where a task has all tiles for a few
 * filters (winograd_results.c). */
bool df_winograd_gains_by_thirds(const df_matmul_job *j)
{
    enum { LEAST = DF_THIRDS_LANES, WEIGHTS = 64 * 64 };
    if (!df_winograd_wants(j) || j->images->is_transposed || !df_thirds_pick()) return false;
    const int64_t channels = j->k / TAPS;
    return j->m >= LEAST && channels >= LEAST && j->n >= 4 * LEAST &&
           (j->m * channels <= WEIGHTS || df_winograd_is_by_filters(j));
}

size_t df_winograd_work_size(const df_matmul_job *j, const df_gemm_kernel *g, uint32_t n_threads)
{
    return j->images->is_transposed ? df_winograd_gradient_work_size(j, g, n_threads)
                                    : df_winograd_results_work_size(j, g, n_threads);
}

bool df_winograd_run(const df_matmul_job *j, const df_gemm_kernel *g, df_pool *pool, void *work)
{
    if (j->images->is_transposed) return df_winograd_run_gradient(j, g, pool, work);
    df_winograd_run_results(j, g, pool, work);
    return true;
}
