/* SPDX-License-Identifier: Apache-2.0
 *
 * Batched matrix product: how one call is divided into blocks, packed, distributed over the pool,
 * and passed to the epilogue.
 *
 * The algorithm follows Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication"
 * (2008), and the BLIS papers (2015), with two changes. B is packed for all of K at once, by all
 * threads, before the region that multiplies. Small or flat products are not packed at all.
 *
 *       K          N = nc + nc + ..            task = (batch, mb rows, nb columns):
 *     +----+    +---------+---------+            for slices of kc along K:
 *  mb |    |    | panels  |         |              pack mb x kc of A                (L2)
 *     +----+  K | [k][nr] |         |              for panels of nr columns:        (L1)
 *  M  |    |    |         |         |                for rows of mr: micro-kernel
 *     +----+    +---------+---------+              last slice: epilogue over finished columns
 *
 * Each element is one chain acc = fma(a, b, acc) with k ascending from +0. Between two slices of K
 * the running value is stored and loaded again, which is exact. Threads never divide K. So no
 * choice in this file changes a result. In fast mode, tiles->split, a BLAS, deep.h, thirds.h and
 * winograd.h can give other bits, and products of bf16 can lose denormals.
 *
 * The division (`cut`) depends on the job, the micro-kernel and the number of threads. It does not
 * depend on the BLAS. So df_matmul_work_size and df_matmul_run compute the same division.
 *
 * Why this file is long: the division, packing and the tasks share one struct, `cut`, and change
 * together.
 */
#include "runtime/matmul.h"

#include "runtime/bf16/bf16.h"
#include "runtime/matmul/blas.h"
#include "runtime/matmul/deep.h"
#include "runtime/matmul/direct.h"
#include "runtime/matmul/parts.h"
#include "runtime/matmul/small.h"
#include "runtime/matmul/tile.h"
#include "runtime/matmul/turn.h"
#include "runtime/matmul/windows.h"
#include "runtime/thirds/thirds.h"
#include "runtime/winograd/winograd.h"

#include <stdalign.h>
#include <string.h>

/* Measured on Sapphire Rapids (48 KiB L1, 2 MiB L2) and Zen 5 (1 MiB L2, 32 MiB L3). Times change
 * little around these values. */
enum {
    KC_UNIT = 16,               /* a slice of K is a multiple, as tiles of AMX need */
    KC_BYTES = 768 * 4,         /* of a row of A in one slice. C is read and written per slice */
    A_BYTES = 288 << 10,        /* packed A of one task: a third of L2, with two panels of B */
    WHOLE_A_BYTES = 1 << 20,    /* packed A of one task that has all rows: B is read only once */
    B_BYTES = 32 << 20,         /* packed B that exists at once; A is packed again for each */
    TILE_BYTES = 256 << 10,     /* C of one task, when the job has no c */
    PANEL_BYTES = 24 << 10,     /* a panel of windows for few rows: stays in L1 until it is read */
    EPILOGUE_BYTES = 128 << 10, /* of C between product and epilogue: stays in L2 */
    FLAT_KC_BYTES = 16 * 4,     /* KC_BYTES for few rows: B is read by full rows */
    TALL_KC_BYTES = 128 * 4,    /* KC_BYTES for a few full tiles of rows: these find B in L2 */
    DOTS_KC_BYTES = 4 << 10,    /* KC_BYTES for tiles->dots: 64 rows of A and some columns fit L2 */
    DOTS_UNIT = 32,             /* steps of k that tiles->dots transposes at once, or a multiple */
    CHUNK = 512,                /* least rows of a panel that a thread packs */
    FAR_BYTES = 8 << 20,        /* a larger B is prefetched by the tiles that read it as it lies */
    SWEEP_BYTES = 4 << 10,      /* least part of a row of B per thread for tiles->sweep */
    TILED_ROWS = 256, /* of a task on tiles of AMX: its A, B and C of one slice stay in L2 */
    ALIGN = 64
};

/* How one call is divided. */
typedef struct cut {
    df_matmul_job job; /* the batch is folded into rows where this is possible */
    const df_tiles *tiles;
    const df_gemm_kernel *g; /* NULL: tiles->block multiplies */
    /* NULL, or how operands of bf16 are packed and multiplied. Then the k of this struct and of
     * `job` counts pairs of elements, and an element of the operands is a pair (bf16.h). */
    const df_bf16_code *pairs;
    int64_t n_halves; /* elements along k, when there are pairs */
    int64_t size;     /* bytes of an element of C and of packed operands */
    int64_t in_size;  /* bytes of which strides of A and B are multiples */
    int64_t mr, nr;   /* rows and columns of a tile */
    bool pack_a, pack_b;
    bool dots; /* the columns of B are contiguous, and `multiply` reads them so */
    void (*multiply)(const df_block *b); /* multiplies a block whose A is not packed */
    bool share_b;             /* B is packed before the tasks, else by each task for itself */
    bool share_a;             /* the same for A */
    bool shares_nothing;      /* one task per thread, which packs all of A and its columns of B */
    bool one_b;               /* all batch entries have the same B */
    int64_t kc, mb, nb, nc;   /* see above; a region covers nc columns, a task up to nb of these */
    int64_t unit, n_parts;    /* tasks begin at a multiple of `unit`; tasks for all columns */
    int64_t n_mb;             /* blocks of rows */
    int64_t group;            /* batch entries in one region */
    int64_t per_task;         /* batch entries in one task */
    int64_t epilogue_columns; /* columns per call of the epilogue */
    uint32_t n_threads;
    /* Bytes of packed B and A (of all threads when shared, else of one), and of C of one thread. */
    size_t b_bytes, a_bytes, tile_bytes;
} cut;

/* The header of a thread's packed A. A task of other columns can use the same packed A again. */
typedef struct held {
    /* Number of (batch, block of rows) + 1 when all of K is packed; else 0. */
    alignas(ALIGN) int64_t block;
} held;

typedef struct region {
    const cut *w;
    char *b, *a, *tile;
    int64_t batch0, n_batch, n0, n1; /* what this region covers */
    int64_t n_nb;                    /* blocks of columns in [n0, n1) */
    int64_t n_chunks;                /* along K, of a panel that threads pack together */
} region;

/* ---- division ---- */

/* Makes the job one of pairs, when its operands are bf16. */
static void pair_halves(cut *w)
{
    df_matmul_job *const j = &w->job;
    w->in_size = w->size;
    if (!j->is_bf16) return;
    w->pairs = df_bf16_code_of(j);
    df_assert(w->pairs && j->dtype == DEFT_F32 && !j->images);
    w->in_size = (int64_t)sizeof(uint16_t);
    w->n_halves = j->k;
    j->k = df_bf16_pairs(w->pairs, j->k);
    j->a_col *= 2;
    j->b_row *= 2;
}

static bool same_b(const df_matmul_job *j)
{
    if (j->images) return j->n_batch == 1;
    for (uint32_t i = 0; i < j->batch_rank; i++)
        if (j->b_batch[i] != 0 && j->batch_extent[i] > 1) return false;
    return true;
}

/* Whether A is transposed and worth packing. Each tile would read a few elements of every cache
 * line of it. With packed weights and 256 rows, a product of 4096 steps takes 3.1 ms in place of
 * 4.1, on an Intel server. */
static bool is_transposed_a(const cut *w)
{
    const df_matmul_job *const j = &w->job;
    return j->a_row == 1 && j->a_col != 1 && j->m >= 4 * w->mr;
}

/* Decides what to pack. To pack B costs about as much as to multiply 4 rows of A. This does not pay
 * for few rows (all of a batch with one B count), nor for a B that fits a cache unpacked. */
static void choose_packing(cut *w, const df_gemm_kernel *g)
{
    const df_matmul_job *const j = &w->job;
    const int64_t b_bytes = j->k * j->n * w->size;
    const bool b_lies_well = df_matmul_b_lies_well(j);
    df_matmul_job all = *j; /* with all rows that are multiplied by one B */
    all.m *= w->one_b ? j->n_batch : 1;
    const bool few_rows = all.m <= (b_lies_well ? 8 : 4) * (int64_t)w->tiles->mr;
    if (w->pairs) {
        w->pack_a = w->pack_b = true;
        w->g = &w->pairs->kernel;
        w->mr = w->g->mr;
        w->nr = w->g->nr;
        return;
    }
    if (j->packed) {
        w->pack_b = true;
        w->multiply = w->tiles->block;
        w->mr = w->tiles->mr;
        w->nr = w->tiles->nr;
        w->pack_a = is_transposed_a(w);
        if (w->pack_a && g && g->nr == w->nr) {
            w->g = g;
            w->mr = g->mr;
        }
        return;
    }
    w->dots = df_matmul_wants_dots(&all, w->tiles);
    w->multiply = df_matmul_multiply_of(&all, w->tiles);
    if (w->multiply == w->tiles->sweep && j->n * w->size < SWEEP_BYTES * (int64_t)w->n_threads)
        w->multiply = w->tiles->block;
    w->pack_b = !w->dots && !(b_lies_well && (few_rows || b_bytes <= DF_MATMUL_WELL_BYTES));
    const bool one_tile = df_matmul_is_one_tile(j, w->tiles);
    w->pack_a = w->pack_b && !few_rows && !one_tile;
    w->g = w->pack_a && g ? g : NULL;
    w->mr = w->g ? w->g->mr : w->tiles->mr;
    w->nr = w->g ? w->g->nr : w->tiles->nr;
    if (j->images && !j->images->is_transposed && !w->g && !w->pack_a) {
        const int64_t row = df_max_i64(1, df_min_i64(j->k * w->size, KC_BYTES));
        w->nr = df_max_i64(w->nr, PANEL_BYTES / row / w->nr * w->nr);
        if (one_tile) w->nr = w->tiles->wide;
    }
}

/* Returns true when each task should take all rows of A and pack its own panels of B. This suits a
 * weight of megabytes times some hundred rows, as in a step on a small batch. A panel then stays in
 * L2 from packing to its last use. If B was packed before the tasks, it would pass through memory
 * twice more. Each task packs all of A, so B must be wider than A is tall. */
static bool has_whole_a(const cut *w, int64_t rows)
{
    const df_matmul_job *const j = &w->job;
    return w->g && j->n_batch == 1 && (j->m > rows || w->n_threads > 1) && j->n >= 2 * j->m &&
           j->m * w->kc * w->size <= WHOLE_A_BYTES;
}

/* Returns true when each thread should pack all of A, and its own columns of B. Tiles of AMX
 * multiply so fast that to read what another processor has just packed takes longer than to pack it
 * again. On two threads of an Intel server, products of bf16 take, in us:
 *
 *   m, n, k          256, 256, 256   64, 768, 768   512, 512, 512
 *   packed once                 38             74             182
 *   by each thread              24             61             145
 *   on one thread               28            115             275
 *
 * A thread with few columns would pack longer than it multiplies. */
static bool has_own_a(const cut *w)
{
    enum { PANELS = 4 }; /* least panels of a thread */
    const df_matmul_job *const j = &w->job;
    return j->is_tiled && w->n_threads > 1 && j->n_batch == 1 && j->m <= 2 * TILED_ROWS &&
           j->n >= PANELS * w->nr * (int64_t)w->n_threads && j->m * j->k * w->size <= WHOLE_A_BYTES;
}

/* Returns how many tasks may pack all of A. All of them together pack at most a fourth of what
 * packing B takes, unless there are more threads than such tasks. */
static int64_t packs_of_a(const cut *w)
{
    const int64_t few = w->job.n / (4 * w->job.m) / w->n_threads * w->n_threads;
    return df_max_i64(few, w->n_threads);
}

/* Returns the rows of a task when C exists in tiles alone. There are few rows, so that there are
 * many columns: the epilogue reads rows of its other operands, which may come from memory. But a
 * task that can have all rows packs its own windows, once. */
static int64_t rows_of_tile(const cut *w, int64_t most)
{
    if (w->job.images && w->job.m <= most) return most;
    const int64_t rows = TILE_BYTES / (w->job.n * w->size) / w->mr * w->mr;
    return df_min_i64(most, df_max_i64(rows, A_BYTES / KC_BYTES / w->mr * w->mr));
}

/* Whether several tasks read the same panel of B. */
static bool has_common_panels(const cut *w)
{
    return w->n_mb > 1 || (w->one_b && w->job.n_batch > 1);
}

/* Returns what the columns of a task are a multiple of. Panels that are packed before the tasks are
 * read as a whole. A packed copy may be read from the middle of a panel, and all other panels begin
 * where their task does. Then parts of whole cache lines are more equal. */
static int64_t column_unit(const cut *w)
{
    const bool is_whole = w->job.images || (!w->job.packed && has_common_panels(w));
    if (!w->pack_b) return df_max_i64(w->nr / 3, 1);
    if (w->job.is_tiled) return w->nr; /* a part of a panel takes as long as all of it */
    return is_whole ? w->nr : df_min_i64(ALIGN / w->size, w->nr);
}

/* Evens out blocks of whole panels. Other blocks stay as they are. Most of their boundaries would
 * be within a panel, and parts of panels take longer. */
static void balance_columns(cut *w, int64_t unit)
{
    const bool is_whole = unit == w->nr && w->nb % w->nr == 0;
    w->unit = is_whole ? w->nr : w->nb;
    w->n_parts = df_div_up(w->job.n, w->nb);
    if (!is_whole) return;
    const int64_t n_units = df_div_up(w->job.n, w->nr);
    w->n_parts =
        df_matmul_balanced_parts(n_units, w->n_parts, w->n_mb * w->job.n_batch, w->n_threads);
    w->nb = df_div_up(n_units, w->n_parts) * w->nr;
}

/* Chooses the blocks of C. Large products get several tasks per thread. */
static void choose_blocks(cut *w)
{
    const df_matmul_job *const j = &w->job;
    const double macs = (double)j->m * (double)j->n * (double)j->k;
    const bool is_large = j->k * j->n * w->size > DF_MATMUL_WELL_BYTES;
    const bool is_stream = is_large && !w->pack_b; /* B is read from memory, as it lies there */
    const bool packs_b_alone = w->pack_b && !w->pack_a && !j->packed && !j->images;
    const int64_t kc_bytes = w->pairs && w->pairs->slice                ? w->pairs->slice * w->size
                             : packs_b_alone                            ? TALL_KC_BYTES
                             : w->pack_b || (j->m > w->mr && !is_large) ? KC_BYTES
                             : j->m <= 2                                ? FLAT_KC_BYTES
                             : j->m <= 4 * w->mr                        ? TALL_KC_BYTES
                                                                        : 2 * TALL_KC_BYTES;
    if (w->dots && j->m > w->tiles->mr) /* all of A is read for each part of the columns */
        w->kc = df_matmul_even_part(df_max_i64(j->k, 1), DOTS_KC_BYTES / w->size, DOTS_UNIT);
    else if (w->dots || w->multiply == w->tiles->sweep)
        w->kc = df_max_i64(j->k, 1);
    else
        w->kc = j->k > 0 ? df_matmul_even_part(j->k, kc_bytes / w->size, KC_UNIT) : 1;

    int64_t rows = df_max_i64(w->mr, A_BYTES / (w->size * w->kc) / w->mr * w->mr);
    if (j->is_tiled) rows = TILED_ROWS;
    if (!w->pack_a) rows = df_max_i64(rows, 256);
    w->shares_nothing = has_own_a(w);
    const bool whole = w->shares_nothing || has_whole_a(w, rows);
    if (whole)
        rows = j->m;
    else if (!j->c && w->g && !j->is_tiled)
        rows = rows_of_tile(w, rows);
    int64_t blocks = df_div_up(j->m, rows), columwides = 1;
    const double all = df_matmul_cost(j) * (double)j->n_batch;
    int64_t wanted = 1;
    if (w->n_threads > 1 && all > (double)DF_MATMUL_REGION_MACS) {
        wanted = (int64_t)(all / 5e5);
        wanted = df_min_i64(wanted, 4 * (int64_t)w->n_threads);
        wanted = df_div_up(wanted, j->n_batch);
    }
    if (w->shares_nothing)
        wanted = df_min_i64(wanted, w->n_threads);
    else if (whole && j->k > w->kc && !j->images)
        wanted = df_min_i64(wanted, packs_of_a(w));
    if (whole) {
        columwides = df_min_i64(wanted, df_div_up(j->n, w->nr));
    } else if (j->images && blocks == 1) { /* each task packs its own windows, once */
        columwides = df_min_i64(wanted, df_div_up(j->n, w->nr));
    } else if (blocks < wanted) {
        blocks = is_stream ? 1 : df_min_i64(wanted, df_div_up(j->m, 4 * w->mr));
        columwides = df_min_i64(df_div_up(wanted, blocks), df_div_up(j->n, w->nr));
    }
    /* With few panels, threads would have nothing to do. */
    if (df_min_i64(wanted, w->n_threads) > blocks * columwides * j->n_batch)
        blocks = df_min_i64(w->n_threads, df_div_up(j->m, w->mr));
    /* Long runs of memory, rather than many parts for threads that are late. */
    if (is_stream && !w->dots) columwides = df_min_i64(columwides, 2 * (int64_t)w->n_threads);
    w->mb = df_matmul_fair_part(j->m, df_div_up(j->m, blocks), 0, w->mr, columwides * j->n_batch,
                                w->n_threads);
    w->n_mb = df_div_up(j->m, w->mb);
    const int64_t unit = column_unit(w);
    w->nb = df_matmul_fair_part(j->n, df_div_up(j->n, columwides), df_div_up(j->n, w->n_threads),
                                unit, w->n_mb * j->n_batch, w->n_threads);
    if (!j->c) {
        const int64_t most = TILE_BYTES / (w->mb * w->size) / w->nr * w->nr;
        w->nb = df_min_i64(w->nb, df_matmul_even_part(j->n, df_max_i64(most, w->nr), w->nr));
    }
    balance_columns(w, unit);
    w->epilogue_columns =
        df_max_i64(w->nr, EPILOGUE_BYTES / (df_min_i64(w->mb, j->m) * w->size) / w->nr * w->nr);
    w->per_task = macs < 2.5e5 ? (int64_t)(2.5e5 / (macs + 256)) + 1 : 1;
    if (w->n_threads > 1)
        w->per_task = df_min_i64(w->per_task, df_div_up(j->n_batch, 4 * (int64_t)w->n_threads));
}

static void choose_b(cut *w)
{
    const df_matmul_job *const j = &w->job;
    const bool is_narrow = w->one_b && !w->g && j->n < w->nr; /* the only panel needs no padding */
    const int64_t panel = j->k * (is_narrow ? j->n : w->nr) * w->size;
    w->nc = j->n;
    w->group = j->n_batch;
    w->share_b = j->packed != NULL;
    if (!w->pack_b || w->share_b) return;
    w->share_b = has_common_panels(w) && panel <= B_BYTES;
    if (!w->share_b) {
        w->b_bytes = (size_t)(w->kc * w->nr * w->size);
        return;
    }
    const int64_t panels = df_max_i64(1, B_BYTES / df_max_i64(panel, 1));
    w->nc = df_matmul_even_part(j->n, panels * w->nr, w->nr);
    if (w->nc < j->n) {
        w->nb = df_min_i64(w->nb, w->nc);
        w->unit = w->nb;
    }
    const int64_t each = df_div_up(w->nc, w->nr) * panel;
    if (!w->one_b) w->group = df_min_i64(j->n_batch, df_max_i64(1, B_BYTES / df_max_i64(each, 1)));
    w->b_bytes = (size_t)(each * (w->one_b ? 1 : w->group));
}

/* Tasks that have all rows would each pack all of A again, slice by slice. */
static bool has_common_rows(const cut *w)
{
    const df_matmul_job *const j = &w->job;
    if (w->shares_nothing) return false;
    if (j->is_tiled) return j->n_batch == 1 && j->n > w->nb;
    return w->pack_a && !w->pairs && w->n_mb == 1 && j->n_batch == 1 && j->k > w->kc &&
           df_div_up(j->n, w->nb) > (int64_t)w->n_threads;
}

static size_t matmul_align_size(int64_t bytes)
{
    return (size_t)df_matmul_round_up(bytes, ALIGN);
}

static cut plan(const df_matmul_job *job, const df_gemm_kernel *g, uint32_t n_threads)
{
    cut w = { .job = *job, .n_threads = n_threads, .size = (int64_t)deft_dtype_size(job->dtype) };
    w.tiles = df_tiles_pick(job->dtype);
    df_matmul_fold_batch(&w.job);
    pair_halves(&w);
    w.one_b = same_b(&w.job);
    choose_packing(&w, g);
    choose_blocks(&w);
    choose_b(&w);
    w.share_a = has_common_rows(&w);
    if (w.share_a)
        w.a_bytes = matmul_align_size(df_matmul_round_up(w.job.m, w.mr) * w.job.k * w.size);
    else if (w.pack_a)
        w.a_bytes = sizeof(held) + matmul_align_size(w.mb * w.kc * w.size);
    if (!job->c) w.tile_bytes = matmul_align_size(w.mb * w.nb * w.size);
    w.b_bytes = matmul_align_size((int64_t)w.b_bytes);
    return w;
}

static bool matmul_is_empty(const df_matmul_job *j)
{
    return j->m == 0 || j->n == 0 || j->n_batch == 0;
}

static size_t work_size_of(const df_matmul_job *job, const df_gemm_kernel *g, uint32_t n_threads)
{
    const size_t whole = job->c ? 0 : (size_t)(job->m * job->n) * deft_dtype_size(job->dtype);
    if (df_matmul_is_small(job)) return whole;
    if (df_direct_wants(job)) return df_direct_work_size(job, n_threads);
    const cut w = plan(job, g, n_threads);
    const size_t b = w.share_b ? w.b_bytes : w.b_bytes * n_threads;
    const size_t a = w.share_a ? w.a_bytes : w.a_bytes * n_threads;
    const size_t bytes = b + a + w.tile_bytes * n_threads;
    size_t all = bytes ? bytes + ALIGN : 0;
    if (df_winograd_wants(job)) { /* which may have to be computed directly after all */
        const size_t here = df_winograd_work_size(job, g, n_threads);
        all = here > all ? here : all;
    }
    return df_matmul_wants_blas(job) && whole > all ? whole : all;
}

static size_t plan_work_size(const df_matmul_job *job, const df_gemm_kernel *g, uint32_t n_threads)
{
    df_matmul_deep d;
    if (!df_matmul_divide_deep(job, (char *)ALIGN, &d)) return work_size_of(job, g, n_threads);
    const size_t parts = work_size_of(&d.parts, g, n_threads);
    const size_t rest = d.rest.k > 0 ? work_size_of(&d.rest, g, n_threads) : 0;
    return d.bytes + ALIGN + (parts > rest ? parts : rest);
}

size_t df_matmul_work_size(const df_matmul_job *job, const df_gemm_kernel *g, uint32_t n_threads)
{
    df_matmul_turned t;
    df_weights weights;
    if (matmul_is_empty(job)) return 0;
    if (job->in_thirds && !job->images) return df_thirds_work_size(job, n_threads);
    const bool is_turned = df_matmul_turn(job, &t);
    df_matmul_job j = is_turned ? t.job : *job;
    size_t most = plan_work_size(&j, g, n_threads);
    /* The workspace suffices whether the weights turn out to be packed or not. */
    if (!job->packed && df_matmul_find_weights(job, &weights)) {
        j.packed = (const char *)job; /* any address: only NULL matters here */
        const size_t packed = plan_work_size(&j, g, n_threads);
        most = packed > most ? packed : most;
    }
    return most + (is_turned ? df_matmul_turned_work_size(&t) : 0);
}

/* ---- one task ---- */

/* Returns the width of the panel of columns [j0, j1), which is stored as [k][width]. Only the
 * micro-kernel needs padding, and packed copies have it. */
static int64_t panel_width(const cut *w, int64_t j0, int64_t j1)
{
    return w->g || w->job.packed ? w->nr : j1 - j0;
}

/* Packs pairs [k0, k1) of n_lanes lanes. `from` is the first half, and step leads from pair to
 * pair. */
static void pack_pairs(const cut *w, bool of_a, char *to, const char *from, int64_t step,
                       int64_t stride, int64_t k0, int64_t k1, int64_t n_lanes)
{
    const uint16_t *const halves = (const uint16_t *)(const void *)from;
    const int64_t n = df_min_i64(2 * k1, w->n_halves) - 2 * k0;
    if (of_a)
        w->pairs->pack_a((uint32_t *)(void *)to, w->mr, halves, step / 2, stride, n, n_lanes);
    else
        df_bf16_pack_b(w->pairs, (uint32_t *)(void *)to, w->nr, halves, step / 2, stride, n,
                       k1 - k0, n_lanes);
}

static void pack_panel(const cut *w, char *to, int64_t batch, int64_t k0, int64_t k1, int64_t j0,
                       int64_t j1)
{
    const df_matmul_job *const j = &w->job;
    const char *const b = j->b + df_matmul_batch_offset(j, j->b_batch, batch) * w->in_size;
    if (w->pairs) {
        pack_pairs(w, false, to, b + (k0 * j->b_row + j0 * j->b_col) * w->in_size, j->b_row,
                   j->n == 1 ? 1 : j->b_col, k0, k1, j1 - j0);
        return;
    }
    if (j->images) {
        df_images_pack(j->images, j->dtype, to, panel_width(w, j0, j1), j->b, batch,
                       j->images->is_transposed ? j->n : j->k, k0, k1, j0, j1);
        return;
    }
    w->tiles->pack(to, panel_width(w, j0, j1), b + (k0 * j->b_row + j0 * j->b_col) * w->size,
                   j->b_row, j->n == 1 ? 1 : j->b_col, k1 - k0, j1 - j0);
}

/* Rows that are neighbours share cache lines, so all of them are packed for a few steps of k at a
 * time. A slice of 656 steps of 256 such rows takes 34 us in place of 64, on an Intel server. */
static void pack_rows(const cut *w, char *to, const char *a, int64_t k0, int64_t k1, int64_t m0,
                      int64_t m1)
{
    enum { FEW_STEPS = 8 };
    const df_matmul_job *const j = &w->job;
    const int64_t steps = j->a_row == 1 && !w->pairs ? FEW_STEPS : df_max_i64(k1 - k0, 1);
    for (int64_t k = k0; k < k1; k += steps) {
        const int64_t end = df_min_i64(k + steps, k1);
        for (int64_t i = m0; i < m1; i += w->mr) {
            const char *const from = a + (i * j->a_row + k * j->a_col) * w->in_size;
            char *const at = to + ((i - m0) * (k1 - k0) + (k - k0) * w->mr) * w->size;
            const int64_t rows = df_min_i64(w->mr, m1 - i);
            if (w->pairs)
                pack_pairs(w, true, at, from, j->a_col, j->a_row, k, end, rows);
            else
                w->tiles->pack(at, w->mr, from, j->a_col, j->a_row, end - k, rows);
        }
    }
}

/* Returns where rows from m0 on of the slice from k0 on are in a packed A that tasks share. */
static char *rows_in(const cut *w, char *a, int64_t k0, int64_t m0)
{
    const int64_t k = df_min_i64(w->kc, w->job.k - k0);
    return a + (k0 * df_matmul_round_up(w->job.m, w->mr) + m0 * k) * w->size;
}

/* Prefetches C of the next tile, whose chains cannot start before it is loaded. */
static void fetch_below(const cut *w, const df_block *g, const char *c)
{
    const int64_t rows = df_min_i64(w->mr, g->m), bytes = g->n * w->size;
    for (int64_t i = 0; i < rows; i++, c += g->c_row * w->size)
        for (int64_t x = 0; x < bytes; x += ALIGN) __builtin_prefetch(c + x, 1);
}

/* Prefetches part `i` of `n` of the rows of B that are packed next: n_rows rows of one panel. The
 * hardware does not, because rows of a large B lie pages apart. */
static void fetch_rows(const cut *w, const char *rows, int64_t n_rows, int64_t i, int64_t n)
{
    const int64_t row_size = w->job.b_row * w->size, panel = w->nr * w->size;
    for (int64_t y = n_rows * i / n; y < n_rows * (i + 1) / n; y++)
        for (int64_t x = 0; x < panel; x += ALIGN)
            __builtin_prefetch(rows + y * row_size + x, 0, 2);
}

/* What the tiles of a panel prefetch, piece by piece. */
typedef struct next_panel {
    const char
        *packed;      /* the next panel, which was packed long ago or by another thread; or NULL */
    const char *rows; /* the rows of B that are packed next; or NULL */
} next_panel;

/* Multiplies all rows of the block and one panel. g->a is packed A, or A itself. */
static void matmul_multiply_panel(const cut *w, const df_block *g, next_panel after)
{
    const char *next = after.packed;
    if (!w->pack_a) {
        w->multiply(g);
        return;
    }
    df_block tile = *g;
    const char *const next_end = next ? next + g->k * w->nr * w->size : NULL;
    for (int64_t i = 0; i < g->m; i += w->mr) {
        tile.m = df_min_i64(w->mr, g->m - i);
        if (i + 2 * w->mr <= g->m && !w->job.is_tiled)
            fetch_below(w, g, (const char *)tile.c + w->mr * g->c_row * w->size);
        if (after.rows) fetch_rows(w, after.rows, g->k, i / w->mr, df_div_up(g->m, w->mr));
        if (w->g)
            w->g->fn(g->k, tile.a, g->b, tile.c, g->c_row, tile.m, g->n, g->first,
                     next < next_end ? next : tile.a);
        else
            w->tiles->block(&tile);
        if (next < next_end) next += g->k / DF_GEMM_FETCH_STEPS * DF_GEMM_FETCH_BYTES;
        tile.a = (const char *)tile.a + w->mr * g->k * w->size;
        tile.c = (char *)tile.c + w->mr * g->c_row * w->size;
    }
}

/* Computes rows [m0, m1) and columns [n0, n1) of one batch entry, and runs the epilogue on them. */
static void matmul_compute_block(const region *r, uint32_t thread, int64_t batch, int64_t m0,
                                 int64_t m1, int64_t n0, int64_t n1)
{
    const cut *const w = r->w;
    const df_matmul_job *const j = &w->job;
    const char *const a = j->a + df_matmul_batch_offset(j, j->a_batch, batch) * w->in_size;
    const char *const b = j->b + df_matmul_batch_offset(j, j->b_batch, batch) * w->in_size;
    held *const h = w->share_a ? NULL : (held *)(void *)(r->a + thread * w->a_bytes);
    char *packed_a = h ? (char *)(h + 1) : NULL;
    const int64_t block = w->kc >= j->k ? batch * w->n_mb + m0 / w->mb + 1 : 0;
    char *const packed_b = w->share_b ? r->b : r->b + thread * w->b_bytes;
    const int64_t n_panels = df_div_up(r->n1 - r->n0, w->nr);
    const int64_t first_panel = w->one_b ? 0 : (batch - r->batch0) * n_panels;

    df_block g = { .m = m1 - m0,
                   .c_row = j->c ? j->c_row : w->nb,
                   .is_far = !w->pack_b && j->k * j->n * w->size > FAR_BYTES };
    char *const c =
        j->c ? j->c + (df_matmul_batch_offset(j, j->c_batch, batch) + m0 * j->c_row + n0) * w->size
             : r->tile + thread * w->tile_bytes;
    const int64_t step = w->pack_b ? w->nr : j->epilogue ? w->epilogue_columns : n1 - n0;
    int64_t k0 = 0;
    do {
        const int64_t k1 = df_min_i64(k0 + w->kc, j->k);
        g.k = k1 - k0;
        g.first = k0 == 0;
        if (w->share_a) {
            packed_a = rows_in(w, r->a, k0, m0);
        } else if (w->pack_a && (block == 0 || h->block != block)) {
            pack_rows(w, packed_a, a, k0, k1, m0, m1);
            h->block = block;
        }
        int64_t finished = n0;
        for (int64_t j0 = n0, j1; j0 < n1; j0 = j1) {
            const int64_t in_panel =
                j->packed ? j0 % w->nr : 0; /* columns before j0 in its panel */
            j1 = df_min_i64(j0 - in_panel + step, n1);
            g.n = j1 - j0;
            g.c = c + (j0 - n0) * w->size;
            g.a = packed_a;
            g.a_row = 1;
            g.a_col = w->mr;
            if (!w->pack_a) {
                g.a = a + (m0 * j->a_row + k0 * j->a_col) * w->size;
                g.a_row = j->a_row;
                g.a_col = j->a_col;
            }
            if (!w->pack_b) {
                g.b = b + (k0 * j->b_row + j0 * (w->dots ? j->b_col : 1)) * w->size;
                g.b_row = w->dots ? j->b_col : j->b_row;
            } else if (w->share_b) {
                g.b_row = panel_width(w, j0, j1);
                const int64_t panel = first_panel + (j0 - r->n0) / w->nr;
                g.b = packed_b + (panel * w->nr * j->k + k0 * g.b_row + in_panel) * w->size;
            } else {
                pack_panel(w, packed_b, batch, k0, k1, j0, j1);
                g.b = packed_b;
                g.b_row = panel_width(w, j0, j1);
            }
            next_panel next = { 0 };
            if (w->share_b && j1 < n1)
                next.packed = (const char *)g.b + w->nr * j->k * w->size;
            else if (w->pack_b && !w->share_b && !w->pairs && j->b_col == 1 && j1 + w->nr <= n1)
                next.rows = b + (k0 * j->b_row + j1) * w->size;
            matmul_multiply_panel(w, &g, next);
            if (!j->epilogue || k1 < j->k) continue;
            if (j1 - finished < w->epilogue_columns && j1 < n1) continue;
            j->epilogue(j->user, thread, c + (finished - n0) * w->size, g.c_row, batch * j->m + m0,
                        batch * j->m + m1, finished, j1);
            finished = j1;
        }
        k0 = k1;
    } while (k0 < j->k);
}

/* Returns the first column of a block of columns. The blocks differ by at most one unit. */
static int64_t task_column(const region *r, int64_t n)
{
    const int64_t n_units = df_div_up(r->n1 - r->n0, r->w->unit);
    return df_min_i64(r->n0 + n_units * n / r->n_nb * r->w->unit, r->n1);
}

static void compute_task(void *user, uint32_t i, uint32_t thread)
{
    const region *const r = user;
    const cut *const w = r->w;
    const int64_t m0 = i % w->n_mb * w->mb, n = i / w->n_mb % r->n_nb;
    const int64_t batch = r->batch0 + i / w->n_mb / r->n_nb * w->per_task;
    const int64_t end = df_min_i64(batch + w->per_task, r->batch0 + r->n_batch);
    const int64_t n0 = task_column(r, n), n1 = task_column(r, n + 1);
    if (w->pairs && w->pairs->begin) w->pairs->begin();
    for (int64_t b = batch; b < end; b++)
        matmul_compute_block(r, thread, b, m0, df_min_i64(m0 + w->mb, w->job.m), n0, n1);
    if (w->pairs && w->pairs->end) w->pairs->end();
}

/* ---- packing before the tasks ---- */

static void pack_task(void *user, uint32_t i, uint32_t thread)
{
    (void)thread;
    const region *const r = user;
    const cut *const w = r->w;
    const df_matmul_job *const j = &w->job;
    const int64_t n_panels = df_div_up(r->n1 - r->n0, w->nr);
    const int64_t panel = i / r->n_chunks, chunk = i % r->n_chunks;
    const int64_t batch = r->batch0 + panel / n_panels, j0 = r->n0 + panel % n_panels * w->nr;
    const int64_t j1 = df_min_i64(j0 + w->nr, r->n1), part = df_div_up(j->k, r->n_chunks);
    const int64_t k0 = df_min_i64(chunk * part, j->k), k1 = df_min_i64(k0 + part, j->k);
    char *const to = r->b + (panel * w->nr * j->k + k0 * panel_width(w, j0, j1)) * w->size;
    pack_panel(w, to, batch, k0, k1, j0, j1);
}

static void pack_a_task(void *user, uint32_t i, uint32_t thread)
{
    (void)thread;
    const region *const r = user;
    const cut *const w = r->w;
    const int64_t n_panels = df_div_up(w->job.m, w->mr);
    const int64_t k0 = i / n_panels * w->kc, m0 = i % n_panels * w->mr;
    pack_rows(w, rows_in(w, r->a, k0, m0), w->job.a, k0, df_min_i64(k0 + w->kc, w->job.k), m0,
              df_min_i64(m0 + w->mr, w->job.m));
}

/* ---- the call ---- */

static void matmul_run_tasks(df_pool *pool, bool alone, int64_t n,
                             void (*task)(void *, uint32_t, uint32_t), region *r)
{
    df_assert(n <= UINT32_MAX);
    if (alone || n == 1)
        for (int64_t i = 0; i < n; i++) task(r, (uint32_t)i, 0);
    else
        df_pool_run(pool, (uint32_t)n, task, r);
}

static void matmul_run_whole(const df_matmul_job *job, const df_gemm_kernel *g, df_blas *blas,
                             df_pool *pool, void *work)
{
    const bool small = df_matmul_is_small(job), library = df_matmul_wants_blas(job) && blas;
    if (small || library) {
        char *const c = job->c ? job->c : work;
        const int64_t c_row = job->c ? job->c_row : job->n;
        const bool done = library && df_blas_multiply(blas, job, c, c_row);
        if (!done && small) df_matmul_run_small(job, c, c_row, pool);
        if ((done || small) && job->epilogue)
            job->epilogue(job->user, 0, c, c_row, 0, job->m, 0, job->n);
        if (done || small) return;
    }
    const uint32_t n_threads = df_pool_threads(pool);
    const cut w = plan(job, g, n_threads);
    const df_matmul_job *const j = &w.job;
    const double macs = df_matmul_cost(j) * (double)j->n_batch;
    const bool alone = n_threads == 1 || macs <= (double)DF_MATMUL_REGION_MACS ||
                       df_pool_share(pool, df_matmul_ns(macs, w.tiles)) == 1;

    region r = { .w = &w };
    char *const aligned = (char *)(((uintptr_t)work + ALIGN - 1) / ALIGN * ALIGN);
    r.b = j->packed ? (char *)(uintptr_t)j->packed : aligned; /* only read, when it is packed */
    r.a = aligned + (w.share_b ? w.b_bytes : w.b_bytes * n_threads);
    r.tile = r.a + (w.share_a ? w.a_bytes : w.a_bytes * n_threads);
    for (uint32_t i = 0; i < n_threads && w.pack_a && !w.share_a; i++)
        ((held *)(void *)(r.a + i * w.a_bytes))->block = 0;
    if (w.share_a)
        matmul_run_tasks(pool, alone, df_div_up(j->k, w.kc) * df_div_up(j->m, w.mr), pack_a_task,
                         &r);
    for (r.batch0 = 0; r.batch0 < j->n_batch; r.batch0 += w.group) {
        r.n_batch = df_min_i64(w.group, j->n_batch - r.batch0);
        for (r.n0 = 0; r.n0 < j->n; r.n0 = r.n1) {
            r.n1 = df_min_i64(r.n0 + w.nc, j->n);
            r.n_nb = r.n1 - r.n0 == j->n ? w.n_parts : df_div_up(r.n1 - r.n0, w.nb);
            const int64_t n_panels = df_div_up(r.n1 - r.n0, w.nr) * (w.one_b ? 1 : r.n_batch);
            r.n_chunks = df_min_i64(df_div_up(n_threads, n_panels), df_div_up(j->k, CHUNK));
            if (w.share_b && !j->packed && j->k > 0)
                matmul_run_tasks(pool, alone, n_panels * r.n_chunks, pack_task, &r);
            matmul_run_tasks(pool, alone, w.n_mb * r.n_nb * df_div_up(r.n_batch, w.per_task),
                             compute_task, &r);
        }
    }
}

static void matmul_run_job(const df_matmul_job *job, const df_gemm_kernel *g, df_blas *blas,
                           df_pool *pool, void *work)
{
    df_matmul_deep d;
    char *const aligned = (char *)(((uintptr_t)work + ALIGN - 1) / ALIGN * ALIGN);
    if (!df_matmul_divide_deep(job, aligned, &d)) {
        matmul_run_whole(job, g, blas, pool, work);
        return;
    }
    matmul_run_whole(&d.parts, g, blas, pool, aligned + d.bytes);
    if (d.rest.k > 0) matmul_run_whole(&d.rest, g, blas, pool, aligned + d.bytes);
    df_matmul_join_deep(job, &d);
}

void df_matmul_run(const df_matmul_job *job, const df_gemm_kernel *g, df_blas *blas, df_pool *pool,
                   void *work)
{
    if (matmul_is_empty(job) || df_thirds_run(job, pool, work)) return;
    if (df_direct_wants(job)) {
        df_direct_run(job, pool, work);
        return;
    }
    if (df_winograd_wants(job) && df_winograd_run(job, g, pool, work)) return;
    df_matmul_turned t;
    if (!df_matmul_turn(job, &t)) {
        matmul_run_job(job, g, blas, pool, work);
        return;
    }
    df_matmul_prepare_turned(&t, pool, work);
    matmul_run_job(&t.job, g, blas, pool, (char *)work + df_matmul_turned_work_size(&t));
}
