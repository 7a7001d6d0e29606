/* SPDX-License-Identifier: Apache-2.0
 *
 * How a product of thirds is divided. A task computes a part of C, and packs what it reads into
 * memory of its own thread, which stays in L2. Packed operands are half as large again as the
 * operands, so to share them among threads through the last cache would take longer than to pack
 * them twice.
 *
 *     for blocks of nb columns of the task:
 *         for slices of k:
 *             for blocks of BLOCK_ROWS rows:       pack the slice of A
 *                 for panels of columns:           pack the slice of B, in the first block of rows
 *                     for panels of rows:          code->block
 *         copy C, epilogue
 */
#include "runtime/thirds/thirds.h"

#include "runtime/matmul/parts.h"
#include "runtime/matmul/tile.h"
#include "runtime/matmul/turn.h"
#include "runtime/winograd/winograd.h"

#include <string.h>

enum {
    LANES = DF_THIRDS_LANES,
    STEP = DF_THIRDS_STEP,
    ONLY_STEPS = 8,        /* most steps of the only slice of k: it needs no copy of C */
    STEPS = 4,             /* of each of several: a panel of A, 24 KiB, stays in L1 */
    BLOCK_ROWS = 128,      /* of A that are packed at a time */
    TASK_ROWS = 1024,      /* at most */
    PANELS = 32,           /* of B in a block, at most */
    L2_BYTES = 1300 << 10, /* of a block of B and of C */
    C_GAP = 16,            /* elements between rows of C, which else share sets of L1 */
    LEAST_MACS = 1 << 20,  /* of a product that is worth packing */
    TASKS = 4,             /* per thread, at most */
    TASK_MACS = 60 << 20,  /* of each when a thread has several */
    ALIGN = 64
};

typedef struct thirds {
    df_matmul_job job;  /* m counts the rows of all batch entries */
    int64_t entry_rows; /* the rows of one batch entry */
    const df_thirds_code *code;
    const df_tiles *tiles;
    int64_t n_steps, slice, n_slices; /* along k; steps of a slice */
    int64_t mb, nb, n_mb;             /* rows and columns of a task; tasks for all rows */
    int64_t block;                    /* columns of a block */
    bool has_tile; /* C of a block is computed apart, and copied if the job has a c */
    /* Of one thread: packed A and B, C, and a panel of f32. */
    size_t a_bytes, b_bytes, c_bytes, plain_bytes;
    char *memory; /* of all threads */
} thirds;

static size_t align_size(int64_t bytes)
{
    return ((size_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Makes one product of all batch entries, whose j->m counts the rows of all of them. Returns the
 * rows of one entry, or 0 when they cannot be one product: the entries must share B, and the rows
 * of C must follow each other. The entries of A may lie anywhere if no panel has rows of two
 * entries; the job then keeps the strides of the batch. */
static int64_t fold_rows(df_matmul_job *j)
{
    df_matmul_fold_batch(j);
    if (j->n_batch == 1) return j->m;
    const int64_t rows = j->m;
    int64_t c_next = rows * j->c_row;
    for (uint32_t i = j->batch_rank; i-- > 0; c_next *= j->batch_extent[i])
        if (j->batch_extent[i] > 1 && (j->b_batch[i] != 0 || (j->c && j->c_batch[i] != c_next)))
            return 0;
    if (rows % LANES != 0) return 0;
    j->m *= j->n_batch;
    return rows;
}

bool df_matmul_gains_by_thirds(const df_matmul_job *job)
{
    if (job->dtype != DEFT_F32 || job->is_bf16 || !df_thirds_pick()) return false;
    df_matmul_job j = *job;
    if (j.images) return df_winograd_gains_by_thirds(job) && j.m * j.n * j.k >= LEAST_MACS;
    return fold_rows(&j) > 0 && j.k >= STEP && j.m >= LANES && j.n >= LANES &&
           j.m * j.n * j.k >= LEAST_MACS && (j.a_row == 1 || j.a_col == 1) &&
           (j.b_row == 1 || j.b_col == 1);
}

/* Whether to double the parts of rows rather than those of columns. Each part of rows packs all
 * columns, and each part of columns all rows, so less is packed in one of these ways. The first
 * division counts `shared`, too: a product of few k mostly writes C, as an update of weights does.
 * The next product reads the weights by rows. Where C was divided by columns, half of each row
 * then comes from the cache of another processor. */
static bool gains_by_rows(const df_matmul_job *j, int64_t rows, int64_t columns)
{
    const int64_t shared = rows * columns == 1 ? j->m * j->n / 8 : 0;
    return j->m * columns * j->k + shared > j->n * rows * j->k;
}

/* Chooses the parts of C. Squares need the least packing. */
static void choose_tasks(thirds *t, uint32_t n_threads)
{
    const df_matmul_job *const j = &t->job;
    const int64_t each = j->m * j->n / n_threads * j->k / TASK_MACS;
    const int64_t tasks = df_max_i64(1, df_min_i64(each, TASKS)) * n_threads;
    int64_t rows = df_div_up(j->m, TASK_ROWS), columns = 1; /* parts */
    while (rows * columns < tasks) *(gains_by_rows(j, rows, columns) ? &rows : &columns) *= 2;
    t->mb = df_matmul_even_part(j->m, df_div_up(j->m, rows), LANES);
    t->nb = df_matmul_even_part(j->n, df_div_up(j->n, columns), LANES);
    t->n_mb = df_div_up(j->m, t->mb);
}

/* Returns the most steps in a slice. The slices are the same in each product with these k. */
static int64_t steps_of_slice(int64_t n_steps)
{
    return n_steps <= ONLY_STEPS ? n_steps : df_div_up(n_steps, df_div_up(n_steps, STEPS));
}

static void plan_thirds(thirds *t, const df_matmul_job *job, uint32_t n_threads)
{
    *t = (thirds){ .job = *job, .code = df_thirds_pick(), .tiles = df_tiles_pick(DEFT_F32) };
    df_matmul_job *const j = &t->job;
    const int64_t size = (int64_t)sizeof(float);
    t->entry_rows = fold_rows(j);
    t->n_steps = df_div_up(j->k, STEP);
    t->slice = steps_of_slice(t->n_steps);
    t->n_slices = df_div_up(t->n_steps, t->slice);
    t->has_tile = !j->c || t->n_slices > 1;
    choose_tasks(t, n_threads);
    const int64_t panel = t->slice * DF_THIRDS_BYTES;
    int64_t column = panel / LANES; /* bytes */
    if (t->has_tile) column += t->mb * size;
    const int64_t most = df_min_i64(PANELS * LANES, df_max_i64(L2_BYTES / column, LANES));
    t->block = df_matmul_even_part(t->nb, most, LANES);
    t->a_bytes = (size_t)(df_min_i64(t->mb, BLOCK_ROWS) / LANES * panel);
    if (!j->packed) t->b_bytes = (size_t)(t->block / LANES * panel);
    t->plain_bytes = (size_t)(t->slice * STEP * LANES * size);
    if (t->has_tile) t->c_bytes = align_size(t->mb * (t->block + C_GAP) * size);
}

static size_t bytes_of_thread(const thirds *t)
{
    return t->a_bytes + t->b_bytes + t->c_bytes + t->plain_bytes;
}

size_t df_thirds_work_size(const df_matmul_job *job, uint32_t n_threads)
{
    thirds t;
    plan_thirds(&t, job, n_threads);
    return bytes_of_thread(&t) * n_threads + ALIGN;
}

/* ---- one slice of one block of rows ---- */

/* What a task is doing. */
typedef struct thirds_block {
    const thirds *t;
    char *a, *b; /* packed */
    char *plain; /* room for a panel of f32 */
    float *c;    /* element (m0, n0) of the block */
    int64_t c_row;
    int64_t m0, m1, n0, n1; /* the task's rows, the block's columns */
    int64_t k0, k;          /* the slice */
    /* Bit i: the slice of panel i has elements that are no sums of thirds. */
    uint32_t a_large, b_large;
} thirds_block;

/* ---- kept weights ---- */

static int64_t bytes_of_panels(int64_t k, int64_t n)
{
    return df_div_up(n, LANES) * df_div_up(k, STEP) * DF_THIRDS_BYTES;
}

int64_t df_thirds_packed_size(int64_t k, int64_t n)
{
    const int64_t n_steps = df_div_up(k, STEP);
    return bytes_of_panels(k, n) +
           df_div_up(n, LANES) * df_div_up(n_steps, steps_of_slice(n_steps));
}

typedef struct thirds_packing {
    const df_weights *w;
    const float *from;
    char *to;
} thirds_packing;

static void pack_kept_panel(void *user, uint32_t i, uint32_t thread)
{
    (void)thread;
    const thirds_packing *const p = user;
    const df_weights *const w = p->w;
    const int64_t n_steps = df_div_up(w->k, STEP), slice = steps_of_slice(n_steps) * STEP;
    const int64_t n_slices = df_div_up(w->k, slice), x = (int64_t)i * LANES;
    char *to = p->to + i * n_steps * DF_THIRDS_BYTES;
    char *const is_large = p->to + bytes_of_panels(w->k, w->n) + i * n_slices;
    for (int64_t k = 0; k < w->k; k += slice, to += slice / STEP * DF_THIRDS_BYTES)
        is_large[k / slice] =
            !df_thirds_pick()->pack(to, true, p->from + k * w->row + x * w->col, w->row, w->col,
                                    df_min_i64(w->k - k, slice), df_min_i64(w->n - x, LANES));
}

void df_thirds_pack(const df_weights *w, const float *from, char *to, df_pool *pool)
{
    thirds_packing p = { w, from, to };
    df_pool_run(pool, (uint32_t)df_div_up(w->n, LANES), pack_kept_panel, &p);
}

/* Returns the slice of the panel of B that begins with column x. Bit i of b_large is set for it
 * when it has elements that are no sums of thirds. */
static const char *find_kept_panel(thirds_block *b, int64_t x, int64_t i)
{
    const thirds *const t = b->t;
    const df_matmul_job *const j = &t->job;
    const int64_t panel = x / LANES, step = b->k0 / STEP;
    const char *const is_large = j->packed + bytes_of_panels(j->k, j->n) + panel * t->n_slices;
    df_assert(x % LANES == 0);
    if (is_large[step / t->slice]) b->b_large |= (uint32_t)1 << i;
    return j->packed + (panel * t->n_steps + step) * DF_THIRDS_BYTES;
}

/* ---- the product of one slice of one block of rows ---- */

static const float *element(const char *base, int64_t offset)
{
    return (const float *)(const void *)base + offset;
}

/* Returns where row y of A begins, in elements. */
static int64_t row_of_a(const thirds *t, int64_t y)
{
    const df_matmul_job *const j = &t->job;
    return df_matmul_batch_offset(j, j->a_batch, y / t->entry_rows) + y % t->entry_rows * j->a_row;
}

/* Multiplies h rows from y on and w columns from x on without thirds. */
DF_COLD static void multiply_plainly(const thirds_block *b, int64_t y, int64_t h, int64_t x,
                                     int64_t w)
{
    const df_matmul_job *const j = &b->t->job;
    b->t->tiles->pack(b->plain, w, element(j->b, b->k0 * j->b_row + x * j->b_col), j->b_row,
                      j->b_col, b->k, w);
    const df_block g = { .m = h,
                         .n = w,
                         .k = b->k,
                         .a = element(j->a, row_of_a(b->t, y) + b->k0 * j->a_col),
                         .a_row = j->a_row,
                         .a_col = j->a_col,
                         .b = b->plain,
                         .b_row = w,
                         .c = b->c + (y - b->m0) * b->c_row + x - b->n0,
                         .c_row = b->c_row,
                         .first = b->k0 == 0 };
    b->t->tiles->block(&g);
}

/* Packs the panel of A that begins with row x, or of B that begins with column x. Returns false as
 * code->pack does. */
DF_NOINLINE static bool pack_panel_of(const thirds_block *b, bool of_b, char *to, int64_t x)
{
    const df_matmul_job *const j = &b->t->job;
    const char *const from = of_b ? j->b : j->a;
    const int64_t step = of_b ? j->b_row : j->a_col, stride = of_b ? j->b_col : j->a_row;
    const int64_t first = of_b ? x * stride : row_of_a(b->t, x), end = of_b ? b->n1 : b->m1;
    return b->t->code->pack(to, of_b, element(from, first + b->k0 * step), step, stride, b->k,
                            df_min_i64(end - x, LANES));
}

/* Returns part i of n of what is packed after the panel of B at column x: the next panel, or the
 * first one of the next slice. */
static df_thirds_ahead next_panel(const thirds_block *b, int64_t x, int64_t i, int64_t n)
{
    const df_matmul_job *const j = &b->t->job;
    const int64_t size = (int64_t)sizeof(float);
    const bool is_last = x + LANES >= b->n1, is_along_k = j->b_row == 1;
    const int64_t x0 = is_last ? b->n0 : x + LANES, k0 = is_last ? b->k0 + b->k : b->k0;
    if (k0 >= j->k) return (df_thirds_ahead){ 0 };
    const int64_t w = df_min_i64(b->n1 - x0, LANES), k = df_min_i64(j->k - k0, b->k);
    const int64_t n_rows = is_along_k ? w : k, row = n_rows * i / n;
    const int64_t stride = is_along_k ? j->b_col : j->b_row;
    const float *const at = element(j->b, k0 * j->b_row + x0 * j->b_col + row * stride);
    return (df_thirds_ahead){ .row = (const char *)at,
                              .stride = stride * size,
                              .bytes = (is_along_k ? k : w) * size,
                              .n_rows = n_rows * (i + 1) / n - row };
}

/* Multiplies a last panel of rows that fills half of its lanes at most, and the panel of columns
 * that begins with x. Two such panels of columns are multiplied together: the first one waits in
 * *waiting. */
static void multiply_few_rows(const thirds_block *b, const char *a, int64_t y, int64_t h, int64_t x,
                              const char *packed, bool is_large, const char **waiting)
{
    const df_thirds_code *const code = b->t->code;
    const int64_t n_steps = df_div_up(b->k, STEP), w = df_min_i64(b->n1 - x, LANES);
    float *const c = b->c + (y - b->m0) * b->c_row + x - b->n0;
    const bool is_far = b->t->job.packed != NULL;
    if (!*waiting && !is_large && x + LANES < b->n1) {
        *waiting = packed;
        return;
    }
    if (*waiting && is_large)
        code->half(n_steps, a, *waiting, NULL, c - LANES, b->c_row, h, LANES, b->k0 == 0, is_far);
    if (is_large)
        multiply_plainly(b, y, h, x, w);
    else if (*waiting)
        code->half(n_steps, a, *waiting, packed, c - LANES, b->c_row, h, LANES + w, b->k0 == 0,
                   is_far);
    else
        code->half(n_steps, a, packed, NULL, c, b->c_row, h, w, b->k0 == 0, is_far);
    *waiting = NULL;
}

/* Multiplies rows [y0, y1) and all columns of the block. */
DF_NOINLINE static void multiply_rows(thirds_block *b, int64_t y0, int64_t y1)
{
    const int64_t n_steps = df_div_up(b->k, STEP), panel = n_steps * DF_THIRDS_BYTES;
    const bool is_alone = b->m1 - b->m0 <= BLOCK_ROWS; /* each panel of B is read once */
    const int64_t n_panels = df_div_up(y1 - y0, LANES);
    const char *waiting = NULL;
    char *a = b->a;
    b->a_large = 0;
    for (int64_t y = y0; y < y1; y += LANES, a += panel)
        if (!pack_panel_of(b, false, a, y)) b->a_large |= (uint32_t)1 << (y - y0) / LANES;
    for (int64_t x = b->n0; x < b->n1; x += LANES) {
        const int64_t i = (x - b->n0) / LANES, w = df_min_i64(b->n1 - x, LANES);
        char *const own = b->b + (is_alone ? i % 2 : i) * panel;
        const char *const packed = b->t->job.packed ? find_kept_panel(b, x, i) : own;
        const bool packs = packed == own && y0 == b->m0;
        if (packs && !pack_panel_of(b, true, own, x)) b->b_large |= (uint32_t)1 << i;
        a = b->a;
        for (int64_t y = y0; y < y1; y += LANES, a += panel) {
            const int64_t h = df_min_i64(y1 - y, LANES);
            const bool is_large = (b->a_large >> (y - y0) / LANES | b->b_large >> i) & 1;
            df_thirds_ahead ahead = { 0 };
            if (packs) ahead = next_panel(b, x, (y - y0) / LANES, n_panels);
            if (h <= LANES / 2)
                multiply_few_rows(b, a, y, h, x, packed, is_large, &waiting);
            else if (is_large)
                multiply_plainly(b, y, h, x, w);
            else
                b->t->code->block(n_steps, a, packed, b->c + (y - b->m0) * b->c_row + x - b->n0,
                                  b->c_row, h, w, b->k0 == 0, packed != own && y == y0, ahead);
        }
    }
    df_assert(!waiting);
}

/* ---- one task ---- */

static void thirds_task(void *user, uint32_t i, uint32_t thread)
{
    const thirds *const t = user;
    const df_matmul_job *const j = &t->job;
    float *const to = (float *)(void *)j->c;
    char *const own = t->memory + thread * bytes_of_thread(t);
    thirds_block b = { .t = t, .a = own, .b = own + t->a_bytes };
    float *const tile = (float *)(void *)(own + t->a_bytes + t->b_bytes);
    b.plain = own + t->a_bytes + t->b_bytes + t->c_bytes;
    b.m0 = i % t->n_mb * t->mb;
    b.m1 = df_min_i64(b.m0 + t->mb, j->m);
    const int64_t n0 = i / t->n_mb * t->nb, n1 = df_min_i64(n0 + t->nb, j->n);
    b.c_row = t->has_tile ? t->block + C_GAP : j->c_row;
    for (b.n0 = n0; b.n0 < n1; b.n0 = b.n1) {
        b.n1 = df_min_i64(b.n0 + t->block, n1);
        b.c = t->has_tile ? tile : to + b.m0 * b.c_row + b.n0;
        t->code->begin();
        for (b.k0 = 0; b.k0 < j->k; b.k0 += b.k) {
            b.k = df_min_i64(j->k - b.k0, t->slice * STEP);
            b.b_large = 0;
            for (int64_t y = b.m0; y < b.m1; y += BLOCK_ROWS)
                multiply_rows(&b, y, df_min_i64(y + BLOCK_ROWS, b.m1));
        }
        t->code->end();
        for (int64_t y = b.m0; y < b.m1 && to && t->has_tile; y++)
            memcpy(to + y * j->c_row + b.n0, b.c + (y - b.m0) * b.c_row,
                   (size_t)(b.n1 - b.n0) * sizeof *to);
        if (j->epilogue)
            j->epilogue(j->user, thread, (const char *)b.c, b.c_row, b.m0, b.m1, b.n0, b.n1);
    }
}

bool df_thirds_run(const df_matmul_job *job, df_pool *pool, void *work)
{
    thirds t;
    if (!job->in_thirds || job->images) return false;
    plan_thirds(&t, job, df_pool_threads(pool));
    const int64_t n = t.n_mb * df_div_up(t.job.n, t.nb);
    t.memory = (char *)(((uintptr_t)work + ALIGN - 1) / ALIGN * ALIGN);
    df_assert(n <= UINT32_MAX);
    if (n == 1)
        thirds_task(&t, 0, 0);
    else
        df_pool_run(pool, (uint32_t)n, thirds_task, &t);
    return true;
}
