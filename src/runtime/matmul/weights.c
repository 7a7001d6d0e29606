/* SPDX-License-Identifier: Apache-2.0
 *
 * Which products gain by packed weights, and how weights are packed.
 *
 * With few rows, a product takes the time of reading B. A panel is one stream of memory, which the
 * hardware prefetches, and its rows hold neighbouring outputs. Rows of B in memory lie pages apart.
 * A transposed B needs a transposition in registers for one chain per output. On Zen 4 a packed
 * copy is read 1.4 to 2 times as fast. With some hundred rows, a product gains 5 to 8 %, because
 * neither operand is packed in the call: rows of A are read where they lie.
 *
 * A product with few columns is computed as rows (turn.h). Then A is the weights.
 */
#include "runtime/matmul.h"
#include "runtime/bf16/bf16.h"
#include "runtime/matmul/small.h"
#include "runtime/matmul/tile.h"
#include "runtime/matmul/turn.h"
#include "runtime/thirds/thirds.h"

#include <string.h>

enum {
    MOST_ROWS = 256,          /* with 512 rows the gain is 3 %, not worth the memory */
    LEAST_ELEMENTS = 8 << 10, /* of B: below, a product takes less than a microsecond or two */
    SPLIT_BYTES = 1 << 20,    /* of B that stays in L2, so that tiles->split gains by packing */
    PAD_BYTES = 64            /* the micro-kernel of pairs may read one vector too far, and the
                               * smallest magnitude is stored here */
};

/* Builds with checks pack all weights with few rows, so that tests on small tensors meet packed
 * copies. */
#ifdef DF_DEBUG
enum { PACKS_ALL = 1 };
#else
enum { PACKS_ALL = 0 };
#endif

/* Whether the product is faster with packed weights. B is read as fast where it lies when it is
 * small and its rows are contiguous. In fast mode, tiles->split reads B as fast for one or two
 * rows, from memory but not from L2: with 640 KiB of weights, 50 steps of an LSTM of 200 elements
 * take 350 us packed and 452 in place, on an Intel server. */
static bool gains_by_packing(const df_matmul_job *j, const df_tiles *t)
{
    const int64_t n_elements = j->n * j->k;
    const int64_t bytes = n_elements * (int64_t)deft_dtype_size(j->dtype);
    if (j->n < t->nr || n_elements < LEAST_ELEMENTS) return false;
    if (j->is_bf16) return true; /* pairs are packed in each call */
    if (df_matmul_b_lies_well(j)) return bytes > DF_MATMUL_WELL_BYTES / 2;
    const bool splits = j->fast && t->split && df_matmul_wants_dots(j, t) && j->m <= 2;
    return !splits || bytes <= SPLIT_BYTES;
}

static const df_bf16_code *weights_code(const df_weights *w)
{
    return w->is_tiled ? df_bf16_tiles() : df_bf16_pick();
}

static int64_t weights_panel_size(const df_weights *w, deft_dtype t)
{
    const int64_t rows = w->has_pairs ? df_bf16_pairs(weights_code(w), w->k) : w->k;
    return rows * w->width * (int64_t)deft_dtype_size(t);
}

bool df_matmul_find_weights(const df_matmul_job *job, df_weights *out)
{
    df_matmul_turned turned;
    if (job->images || job->k <= 0) return false;
    const bool is_a = df_matmul_turn(job, &turned);
    if (!is_a) turned.job = *job;
    df_matmul_job *const j = &turned.job;
    const df_tiles *const t = df_tiles_pick(j->dtype);
    df_matmul_fold_batch(j);
    if (j->n_batch != 1 || j->m <= 0 || j->m > MOST_ROWS || j->n <= 0) return false;
    if (!job->in_thirds && !PACKS_ALL && !gains_by_packing(j, t)) return false;
    *out = (df_weights){ .is_a = is_a,
                         .has_pairs = j->is_bf16,
                         .is_tiled = j->is_tiled,
                         .in_thirds = j->in_thirds,
                         .k = j->k,
                         .n = j->n,
                         .row = j->b_row,
                         .col = j->b_col,
                         .width = j->is_bf16 ? df_bf16_code_of(j)->kernel.nr : t->nr };
    if (out->in_thirds) {
        out->width = DF_THIRDS_LANES;
        out->bytes = df_thirds_packed_size(j->k, j->n);
        return true;
    }
    out->bytes = weights_panel_size(out, j->dtype) * df_div_up(j->n, out->width);
    if (out->has_pairs) out->bytes += PAD_BYTES;
    return true;
}

typedef struct packing {
    const df_weights *w;
    deft_dtype dtype;
    const char *from;
    char *to;
} packing;

static void pack_weights_panel(void *user, uint32_t i, uint32_t thread)
{
    (void)thread;
    const packing *const p = user;
    const df_weights *const w = p->w;
    const int64_t j0 = (int64_t)i * w->width, columns = df_min_i64(w->width, w->n - j0);
    const size_t size = deft_dtype_size(w->has_pairs ? DEFT_BF16 : p->dtype);
    const char *const from = p->from + j0 * w->col * (int64_t)size;
    char *const to = p->to + i * weights_panel_size(w, p->dtype);
    if (w->has_pairs)
        df_bf16_pack_b(weights_code(w), (uint32_t *)(void *)to, w->width,
                       (const uint16_t *)(const void *)from, w->row, w->n == 1 ? 1 : w->col, w->k,
                       df_bf16_pairs(weights_code(w), w->k), columns);
    else
        df_tiles_pick(p->dtype)->pack(to, w->width, from, w->row, w->n == 1 ? 1 : w->col, w->k,
                                      columns);
}

void df_matmul_pack(const df_weights *w, deft_dtype t, const char *from, char *to, df_pool *pool)
{
    packing p = { w, t, from, to };
    if (w->in_thirds) {
        df_thirds_pack(w, (const float *)(const void *)from, to, pool);
        return;
    }
    df_pool_run(pool, (uint32_t)df_div_up(w->n, w->width), pack_weights_panel, &p);
    if (!w->has_pairs) return;
    const df_bf16_view view = { .at = (const uint16_t *)(const void *)from,
                                .rank = 2,
                                .extent = { w->k, w->n },
                                .stride = { w->row, w->col } };
    const uint16_t least = w->is_tiled ? 0 : df_bf16_least(&view, pool);
    char *const tail = to + w->bytes - PAD_BYTES;
    memset(tail, 0, PAD_BYTES);
    memcpy(tail, &least, sizeof least);
}

uint16_t df_matmul_packed_least(const df_weights *w, const char *packed)
{
    uint16_t least;
    df_assert(w->has_pairs);
    memcpy(&least, packed + w->bytes - PAD_BYTES, sizeof least);
    return least;
}
