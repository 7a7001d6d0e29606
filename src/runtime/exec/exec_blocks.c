/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops whose rows do not depend on each other.
 *
 * In many loops, row i of each state, temporary and result of an iteration depends only on row i of
 * the others, and on what no iteration changes. Attention over blocks of keys is an example: a
 * query looks at keys and values, and at no other query. Such a loop runs block by block. A thread
 * takes some rows through all iterations, and then takes the next rows. Nothing waits at the end of
 * a launch, and the states and temporaries of a block stay in the thread's cache.
 *
 * A recurrent layer multiplies by the same weights in each iteration. Then there is one block for
 * each thread, and the weights are packed once for the loop.
 *
 * Kernels and products compute each row as they do otherwise, so no bit depends on the blocks.
 */
#include "runtime/exec/exec_blocks.h"

#include <stdatomic.h>
#include <string.h>

#include "runtime/exec/exec_masked.h"
#include "runtime/loop_rows.h"
#include "runtime/exec/exec_run.h"
#include "runtime/os.h"

enum {
    BLOCK_BYTES = 192 << 10, /* states and temporaries of a block: a part of the L2 cache */
    BLOCKS_PER_THREAD = 4,   /* wanted, so that threads end together */
    MASKED_ACC = 2,          /* the number of the state acc of attention */
    WEIGHT_ROWS = 256,       /* most rows of a block that reads packed weights */
    PACKED_USES = 3          /* fewer iterations than this do not pay for packing */
};

/* Builds with checks divide all loops that may be divided, so that tests on small tensors meet
 * blocks. */
#ifdef DF_DEBUG
#define LEAST_USE 0
enum { DIVIDES_ALL = 1, ROW_UNIT = 1, LEAST_ROWS = 2, THIRDS_UNIT = 1 };
#else
#define LEAST_USE 0.8 /* of the rows that the threads could compute in the time of the longest */
enum {
    DIVIDES_ALL = 0,
    ROW_UNIT = 8,    /* blocks have a multiple of this many rows, for full tiles */
    LEAST_ROWS = 16, /* a block has at least as many rows, where there are as many */
    THIRDS_UNIT = 16 /* the same as ROW_UNIT for products of thirds */
};
#endif

#define LEAST_NS 60e3 /* a loop whose products take less is not divided */

/* A thread's own run of the body, and its memory. */
typedef struct worker {
    df_run run;
    void *layout; /* the run layout and the workspace, which no bound on temporaries counts */
    size_t layout_size;
    df_buffer *memory; /* states and temporaries of a block */
    char **scratch;    /* per buffer of the plan: its piece of a block; NULL: not in blocks */
    char **states[2];  /* per state: memory of a block. The second is NULL where a state is
                        * replaced in place */
    int64_t iteration; /* what a NUMBER port reads */
} worker;

typedef struct block_loop {
    df_executor *x;
    const df_flow_construct *w;
    df_loop_rows rows;
    df_matmul_job *jobs; /* per segment: a product, without addresses */
    df_trace trace;
    uint32_t n_states;
    int64_t n_iterations;
    int64_t block, n_blocks; /* rows of a block, which lies within a group; blocks */
    worker *workers;         /* per thread of the pool */
    bool has_weights;        /* all iterations read the same weights */
    df_buffer **packed;      /* per segment: the packed weights of its product, or NULL */
    df_masked masked;
    bool is_masked; /* `masked` says which iterations a block needs */
    atomic_bool stopped;
} block_loop;

/* ---- blocks ---- */

static int64_t bytes_of_row(const block_loop *l)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < l->rows.plan->n_bufs; i++) sum += l->rows.row_bytes[i];
    return sum;
}

/* Chooses blocks of a loop with weights. Each block reads all weights in each iteration, so there
 * is one block for each thread, unless packed weights do not serve so many rows. Returns false when
 * threads would have unequal work, or when the weights do not stay in the cache of each thread. A
 * launch that divides its product by columns is then better. */
static bool choose_block_of_weights(block_loop *l, uint32_t n_threads)
{
    const int64_t group = l->rows.group, n_groups = l->rows.n_rows / group;
    double bytes = 0;
    int64_t unit = ROW_UNIT;
    for (uint32_t i = 0; i < l->rows.plan->n_segs; i++) {
        const df_matmul_job *const job = &l->jobs[i];
        if (!l->rows.segs[i].has_weights) continue;
        if (job->in_thirds) unit = THIRDS_UNIT;
        bytes +=
            (double)(job->k * job->n) * (job->in_thirds ? 6. : (double)deft_dtype_size(job->dtype));
    }
    const int64_t parts = df_div_up(n_threads, n_groups);
    l->block = df_div_up(df_div_up(group, parts), unit) * unit;
    l->block = df_min_i64(df_min_i64(l->block, group), WEIGHT_ROWS);
    l->n_blocks = n_groups * df_div_up(group, l->block);
    const int64_t turns = df_div_up(l->n_blocks, n_threads);
    return bytes <= l->x->near_bytes &&
           (double)l->rows.n_rows >= LEAST_USE * (double)(turns * n_threads * l->block);
}

static void choose_block(block_loop *l, uint32_t n_threads)
{
    const int64_t most = df_max_i64(BLOCK_BYTES / bytes_of_row(l), 1);
    const int64_t fair = df_max_i64(l->rows.n_rows / (n_threads * BLOCKS_PER_THREAD), LEAST_ROWS);
    const int64_t want = df_min_i64(df_min_i64(most, fair), l->rows.group);
    const int64_t even = df_div_up(l->rows.group, df_div_up(l->rows.group, want));
    l->block = df_min_i64(df_div_up(even, ROW_UNIT) * ROW_UNIT, l->rows.group);
    l->n_blocks = l->rows.n_rows / l->rows.group * df_div_up(l->rows.group, l->block);
}

/* ---- one thread ---- */

/* The bytes of a buffer's piece of a block. Rows of vectors may be read a little beyond. */
static size_t block_bytes(const block_loop *l, uint32_t buf)
{
    return ((size_t)(l->rows.row_bytes[buf] * l->block) + 127) & ~(size_t)63;
}

static bool is_stacked(const block_loop *l, uint32_t root)
{
    return root >= l->n_states && l->rows.part->out[root] != DF_NONE;
}

/* The state that replaces itself in place: the root is computed from the state at the same place.
 */
static bool is_in_place(const block_loop *l, uint32_t state)
{
    const df_plan_buf *const b = &l->rows.plan->bufs[l->rows.plan->root_buf[state].i];
    return b->donor != DF_NONE && l->rows.part->body.port[b->donor].kind == DF_PORT_STATE &&
           l->rows.part->body.port[b->donor].index == state;
}

/* Returns the stacked result whose latest row is the state; DF_NONE: the state has memory of its
 * own. */
static uint32_t row_of_state(const block_loop *l, uint32_t state)
{
    const df_plan *const p = l->rows.plan;
    for (uint32_t i = l->n_states; i < p->n_roots; i++)
        if (is_stacked(l, i) && p->root_buf[i].i == p->root_buf[state].i) return i;
    return DF_NONE;
}

/* Takes the run layout of a worker from b. The segments are those of the model, whose members are
 * set when there is memory. */
static void lay_out_worker(const block_loop *l, const df_run *model, worker *w, df_bump *b)
{
    const df_plan *const p = l->rows.plan;
    df_seg_run *const segs = df_bump_take(b, sizeof *segs * p->n_segs);
    if (b->at) memcpy(segs, model->segs, sizeof *segs * p->n_segs);
    w->run.segs = b->at ? segs : model->segs;
    df_run_lay_out(&w->run, b);
    w->scratch = df_bump_take(b, sizeof *w->scratch * p->n_bufs);
    for (int i = 0; i < 2; i++) w->states[i] = df_bump_take(b, sizeof *w->states[i] * l->n_states);
}

/* Takes the states and temporaries of a worker from b. */
static void lay_out_block(const block_loop *l, worker *w, df_bump *b)
{
    const df_plan *const p = l->rows.plan;
    for (uint32_t i = 0; i < p->n_bufs; i++)
        w->scratch[i] = p->bufs[i].kind == DF_BUF_TEMP ? df_bump_take(b, block_bytes(l, i)) : NULL;
    for (uint32_t i = 0; i < p->n_roots; i++) {
        const uint32_t buf = p->root_buf[i].i;
        if (is_stacked(l, i) || (i < l->n_states && row_of_state(l, i) != DF_NONE)) continue;
        w->scratch[buf] = df_bump_take(b, block_bytes(l, buf));
        if (i >= l->n_states) continue;
        const bool has_two = !is_in_place(l, i);
        w->states[0][i] = w->scratch[buf];
        w->states[1][i] = has_two ? df_bump_take(b, block_bytes(l, buf)) : NULL;
    }
}

/* The job of a product restricted to rows [m0, m1) of one entry of its batch. */
static df_matmul_job part_of_job(const df_matmul_job *job, int64_t entry, int64_t m0, int64_t m1)
{
    const int64_t size = (int64_t)deft_dtype_size(job->dtype);
    df_matmul_job j = *job;
    j.a += (df_matmul_batch_offset(job, job->a_batch, entry) + m0 * job->a_row) * size;
    j.b += df_matmul_batch_offset(job, job->b_batch, entry) * size;
    if (j.c) j.c += (df_matmul_batch_offset(job, job->c_batch, entry) + m0 * job->c_row) * size;
    j.m = m1 - m0;
    j.n_batch = 1;
    j.batch_rank = 0;
    return j;
}

static size_t most_work(const block_loop *l, const df_run *r)
{
    size_t most = 0;
    for (uint32_t i = 0; i < l->rows.plan->n_segs; i++) {
        const df_seg *const seg = &l->rows.plan->segs[i];
        if (seg->kind != DF_SEG_MATMUL) continue;
        const df_matmul_job *const job = &l->jobs[i];
        const int64_t rows = df_min_i64(l->block * l->rows.segs[i].per_row, job->m);
        const int64_t last = job->m % rows ? job->m % rows : rows;
        for (int k = 0; k < 2; k++) {
            const df_matmul_job part = part_of_job(job, 0, 0, k ? last : rows);
            const size_t size = df_matmul_work_size(&part, df_run_product_code(r, seg->dtype), 1);
            if (size > most) most = size;
        }
    }
    return most;
}

static deft_status make_worker(const block_loop *l, df_diag *d, const df_run *model, worker *w)
{
    deft_status st = DEFT_OK;
    df_bump b = { 0 };
    w->run = *model;
    w->run.matmul_size = most_work(l, model);
    lay_out_worker(l, model, w, &b);
    w->layout_size = b.used + 64;
    w->layout = df_mem_alloc(l->x->mem, w->layout_size);
    if (!w->layout) return df_fail_mem(d, "run", w->layout_size);
    b = (df_bump){ .at = (char *)(((uintptr_t)w->layout + 63) & ~(uintptr_t)63) };
    lay_out_worker(l, model, w, &b);
    b = (df_bump){ 0 };
    lay_out_block(l, w, &b);
    TRY(df_buffer_create(d, l->x->allocator, (int64_t)b.used, &w->memory));
    b = (df_bump){ .at = w->memory->data };
    lay_out_block(l, w, &b);
    for (uint32_t i = 0; i < l->rows.plan->n_segs; i++)
        if (w->run.segs[i].kernel)
            df_run_bind_extents(&w->run, &l->rows.plan->segs[i], &w->run.segs[i]);
done:
    return st;
}

/* ---- running ---- */

/* Returns the address at which row 0 would be, when row `first` is at `at`. It need not exist. */
static char *block_origin(const block_loop *l, uint32_t buf, char *at, int64_t first)
{
    return (char *)((uintptr_t)at - (uintptr_t)(first * l->rows.row_bytes[buf]));
}

/* Returns where the row of stacked result `root` begins that this iteration writes. */
static char *stacked_row(const block_loop *l, uint32_t root, int64_t iteration)
{
    return (char *)l->w->made[root]->data +
           iteration * l->w->slots[l->rows.part->row_bytes[root - l->n_states].i];
}

/* Returns the address of row 0 of a state, as iteration w->iteration of the block that begins with
 * row `first` reads it. Row 0 need not exist there. */
static char *state_before(const block_loop *l, const worker *w, uint32_t state, int64_t first)
{
    const uint32_t row = row_of_state(l, state);
    if (row != DF_NONE)
        return w->iteration > 0 ? stacked_row(l, row, w->iteration - 1)
                                : (char *)(uintptr_t)l->w->init[state];
    const bool second = (w->iteration & 1) && w->states[1][state];
    return block_origin(l, l->rows.plan->root_buf[state].i, w->states[second][state], first);
}

/* Sets the addresses of all buffers for iteration w->iteration of the block that begins with row
 * `first`. */
static void find_buffers(const block_loop *l, worker *w, int64_t first)
{
    const df_plan *const p = l->rows.plan;
    const bool odd = w->iteration & 1;
    for (uint32_t i = 0; i < p->n_bufs; i++) {
        const df_plan_buf *const b = &p->bufs[i];
        if (b->kind != DF_BUF_INPUT) {
            if (w->scratch[i]) w->run.base[i] = block_origin(l, i, w->scratch[i], first);
            continue;
        }
        const df_port *const port = &l->rows.part->body.port[b->index];
        w->run.base[i] = l->w->body[b->index].data;
        if (port->kind == DF_PORT_ROW)
            w->run.base[i] += w->iteration * l->w->slots[port->row_bytes.i];
        else if (port->kind == DF_PORT_NUMBER)
            w->run.base[i] = (char *)&w->iteration;
        else if (port->kind == DF_PORT_STATE)
            w->run.base[i] = state_before(l, w, port->index, first);
    }
    for (uint32_t i = 0; i < p->n_roots; i++) {
        const uint32_t buf = p->root_buf[i].i;
        if (is_stacked(l, i))
            w->run.base[buf] = stacked_row(l, i, w->iteration);
        else if (i < l->n_states && row_of_state(l, i) == DF_NONE)
            w->run.base[buf] = block_origin(l, buf, w->states[!odd && w->states[1][i]][i], first);
    }
}

static void run_block_kernel(const block_loop *l, worker *w, uint32_t i, int64_t first, int64_t end)
{
    const df_seg_run *const s = &w->run.segs[i];
    const int64_t per_row = l->rows.segs[i].per_row;
    df_kargs a = s->args;
    a.fault = (int64_t *)(void *)df_run_thread_area(&w->run, 0);
    a.work = df_run_thread_area(&w->run, 0) + 64;
    if (l->rows.segs[i].by_inner)
        df_run_main(&w->run, s, &a, 0, 0, 1, first * per_row, end * per_row);
    else
        df_run_main(&w->run, s, &a, 0, first * per_row, end * per_row, 0, s->n_inner);
}

static void run_block_product(const block_loop *l, worker *w, uint32_t i, int64_t first,
                              int64_t end)
{
    const df_matmul_job *const job = &l->jobs[i];
    const int64_t row = first * l->rows.segs[i].per_row, last = end * l->rows.segs[i].per_row;
    df_matmul_job all = *job;
    df_run_place_product(&w->run, &l->rows.plan->segs[i], &all);
    for (int64_t at = row, next; at < last; at = next) {
        const int64_t entry = at / job->m, m0 = at % job->m;
        next = df_min_i64(last, (entry + 1) * job->m);
        df_matmul_job part = part_of_job(&all, entry, m0, m0 + next - at);
        df_run_product_rows(&w->run, &l->rows.plan->segs[i], &w->run.segs[i], &part, at);
    }
}

static void run_block_iteration(const block_loop *l, worker *w, int64_t first, int64_t end)
{
    find_buffers(l, w, first);
    for (uint32_t i = 0; i < l->rows.plan->n_segs; i++) {
        const df_seg *const seg = &l->rows.plan->segs[i];
        if (w->run.segs[i].kernel) df_run_bind(&w->run, seg, &w->run.segs[i]);
        if (seg->kind == DF_SEG_KERNEL)
            run_block_kernel(l, w, i, first, end);
        else
            run_block_product(l, w, i, first, end);
    }
}

/* Returns how many iterations rows [first, end) need. */
static int64_t iterations_of(const block_loop *l, int64_t first, int64_t end)
{
    if (!l->is_masked) return l->n_iterations;
    const int64_t entry = first / l->rows.group, before = entry * l->rows.group;
    return df_masked_iterations(&l->masked, entry, end - before);
}

static bool is_interrupted(const block_loop *l)
{
    const df_launch_io *const io = l->w->io;
    return io->interrupted && ((io->waiter && io->waiter->stopped) || io->interrupted(io->user));
}

static void run_block_task(void *user, uint32_t task, uint32_t thread)
{
    block_loop *const l = user;
    worker *const w = &l->workers[thread];
    const int64_t per_group = df_div_up(l->rows.group, l->block);
    const int64_t in_group = task % per_group * l->block;
    const int64_t first = task / per_group * l->rows.group + in_group;
    const int64_t end = first + df_min_i64(l->block, l->rows.group - in_group);
    const df_plan *const p = l->rows.plan;
    for (uint32_t i = 0; i < l->n_states; i++) {
        const int64_t bytes = l->rows.row_bytes[p->root_buf[i].i];
        if (row_of_state(l, i) != DF_NONE) continue; /* read where it lies */
        memcpy(w->states[0][i], (const char *)l->w->init[i] + first * bytes,
               (size_t)((end - first) * bytes));
    }
    const int64_t n = iterations_of(l, first, end);
    for (w->iteration = 0; w->iteration < n; w->iteration++) {
        if (thread == 0 && is_interrupted(l)) atomic_store(&l->stopped, true);
        if (atomic_load_explicit(&l->stopped, memory_order_relaxed)) return;
        run_block_iteration(l, w, first, end);
    }
    for (uint32_t i = 0; i < l->n_states; i++) {
        const int64_t bytes = l->rows.row_bytes[p->root_buf[i].i];
        char *const at =
            (char *)((uintptr_t)state_before(l, w, i, first) + (uintptr_t)(first * bytes));
        if (n < l->n_iterations && i == MASKED_ACC)
            df_masked_finish((float *)(void *)at, (end - first) * bytes / (int64_t)sizeof(float));
        if (l->w->made[i])
            memcpy((char *)l->w->made[i]->data + first * bytes, at,
                   (size_t)((end - first) * bytes));
    }
}

/* ---- the loop ---- */

static deft_status make_results(block_loop *l, df_diag *d)
{
    deft_status st = DEFT_OK;
    const df_part *const part = l->rows.part;
    for (uint32_t i = 0; i < part->n_out; i++) {
        if (part->out[i] == DF_NONE) continue;
        const int64_t bytes = l->w->slots[l->w->plan->cells[part->out[i]].bytes.i];
        TRY(df_buffer_create(d, l->x->allocator, bytes, &l->w->made[i]));
        l->w->stats->bytes_allocated += (uint64_t)bytes;
    }
done:
    return st;
}

/* Counts every segment of every iteration once, as when the iterations run one by one. */
static void count_work(const block_loop *l, const df_run *model)
{
    df_run_stats *const stats = l->w->stats;
    const uint64_t n = (uint64_t)l->n_iterations;
    stats->forks += l->n_blocks > 1;
    stats->segments += n * model->plan->n_segs;
    for (uint32_t i = 0; i < model->plan->n_segs; i++)
        stats->interpreted_segments += model->segs[i].kernel && !model->segs[i].code ? n : 0;
}

/* Finds the packed weights of all products, or packs them, for blocks of l->block rows. Returns
 * false when a product gains by packed weights and cannot have them. */
static bool find_packed(block_loop *l, const df_run *model)
{
    for (uint32_t i = 0; i < l->rows.plan->n_segs; i++) {
        df_weights weights;
        const df_seg *const seg = &l->rows.plan->segs[i];
        if (!l->rows.segs[i].has_weights) continue;
        df_matmul_job job = l->jobs[i];
        job.m = df_min_i64(l->block * l->rows.segs[i].per_row, job.m);
        if (!df_matmul_find_weights(&job, &weights)) continue;
        job.b = (const char *)l->w->body[l->rows.plan->bufs[seg->b.buf.i].index].data +
                df_run_slot(model, seg->b.offset) * (int64_t)deft_dtype_size(job.dtype);
        /* The iterations are many uses. */
        for (int use = 0; use < 2 && !l->packed[i] && !weights.is_a; use++)
            l->packed[i] = df_run_find_weights(model, seg, &job);
        if (!l->packed[i]) return false;
        l->jobs[i].packed = job.packed;
    }
    return true;
}

/* Whether the rows are divided into blocks, of which each thread has one. Packs weights. */
static bool divide_loop(block_loop *l, df_run *model)
{
    const uint32_t n_threads = df_pool_threads(l->x->pool);
    for (int i = 0; i < 2; i++) model->gemm[i] = df_run_gemm(l->x, i);
    for (uint32_t i = 0; i < l->rows.plan->n_segs; i++) {
        l->has_weights |= l->rows.segs[i].has_weights;
        if (l->rows.plan->segs[i].kind == DF_SEG_MATMUL)
            df_run_describe_product(model, &l->rows.plan->segs[i], &l->jobs[i]);
    }
    if (!l->has_weights)
        choose_block(l, n_threads);
    else if (l->n_iterations < PACKED_USES || !choose_block_of_weights(l, n_threads))
        return false;
    return l->n_blocks >= n_threads && l->n_blocks <= UINT32_MAX &&
           (!l->has_weights || find_packed(l, model));
}

/* Chooses the variants of kernels, which all blocks use. Each iteration counts as a launch. */
static void choose_variants(const block_loop *l, df_run *model)
{
    const df_plan *const p = l->rows.plan;
    worker *const w = &l->workers[0];
    if (!l->x->tiers || !p->execs) return;
    w->iteration = 0;
    find_buffers(l, w, 0);
    for (uint32_t i = 0; i < p->n_segs; i++) {
        const df_code *const code = model->segs[i].code;
        df_seg_run *const s = &w->run.segs[i];
        if (p->segs[i].kind != DF_SEG_KERNEL || l->rows.segs[i].by_inner) continue;
        df_run_bind(&w->run, &p->segs[i], s);
        const df_call c = { .args = &s->args,
                            .rows = true,
                            .all = l->n_blocks == 1,
                            .n_rows = s->n_outer,
                            .ns = df_seg_run_code_ns(s) };
        df_exec *const x = p->execs[p->segs[i].kernel.i];
        for (int64_t k = 0; k < l->n_iterations && s->code == code; k++)
            if (code)
                s->code = df_tiers_choose(l->x->tiers, x, code, &c, &model->is_inside);
            else
                df_tiers_watch(l->x->tiers, x, &c, &model->is_inside);
        for (uint32_t t = 1; t < df_pool_threads(l->x->pool); t++)
            l->workers[t].run.segs[i].code = s->code;
    }
}

static deft_status run_in_blocks(block_loop *l, df_diag *d, df_run *model)
{
    deft_status st = DEFT_OK;
    const uint32_t n_threads = df_pool_threads(l->x->pool);
    df_run_measure(model);
    for (uint32_t i = 0; i < n_threads; i++) TRY(make_worker(l, d, model, &l->workers[i]));
    TRY(make_results(l, d));
    choose_variants(l, model);
    const bool is_timed = df_ring_on(l->w->io->ring) || l->x->spent;
    const uint64_t start = is_timed ? df_os_now_ns() : 0;
    df_pool_run(l->x->pool, (uint32_t)l->n_blocks, run_block_task, l);
    if (is_timed) df_run_log_loop(&l->workers[0].run, l->w->io->ring, df_os_now_ns() - start);
    count_work(l, model);
    if (atomic_load(&l->stopped))
        st = df_fail(d, DEFT_E_INTERRUPTED, "interrupted within a loop of %lld iterations",
                     (long long)l->n_iterations);
done:
    for (uint32_t i = 0; st != DEFT_OK && i < l->rows.part->n_out; i++)
        df_buffer_drop(&l->w->made[i]);
    if (model->is_inside) df_tiers_leave(l->x->tiers);
    for (uint32_t i = 0; i < n_threads; i++) {
        worker *const w = &l->workers[i];
        df_buffer_drop(&w->memory);
        if (w->layout) df_mem_free(l->x->mem, w->layout, w->layout_size);
    }
    return st;
}

/* Takes the arrays of the loop, and the segments of the model, from b. */
static void lay_out_loop(block_loop *l, df_run *model, df_bump *b)
{
    const df_plan *const p = l->rows.plan;
    l->rows.segs = df_bump_take(b, sizeof *l->rows.segs * p->n_segs);
    l->rows.row_bytes = df_bump_take(b, sizeof *l->rows.row_bytes * p->n_bufs);
    l->jobs = df_bump_take(b, sizeof *l->jobs * p->n_segs);
    l->packed = df_bump_take(b, sizeof(df_buffer *) * p->n_segs);
    l->workers = df_bump_take(b, sizeof *l->workers * df_pool_threads(l->x->pool));
    model->segs = df_bump_take(b, sizeof *model->segs * p->n_segs);
}

deft_status df_run_loop_by_blocks(df_executor *x, df_diag *d, const df_flow_construct *w,
                                  bool *done)
{
    deft_status st = DEFT_OK;
    const df_subplan *const body = &w->part->body;
    const int64_t *const slots = w->slots + body->slot0;
    block_loop l = {
        .x = x,
        .w = w,
        .rows = { .part = w->part, .plan = body->plan, .slots = slots, .takes_recurrences = true },
        .trace = body->trace,
        .n_states = w->part->n_states,
        .n_iterations = w->slots[w->part->most.i]
    };
    *done = false;
    if (l.n_iterations < 1 || body->plan->root_cell) return DEFT_OK;
    const double ns = df_rows_estimate_ns(body->plan, slots) * (double)l.n_iterations;
    if (ns == 0 || (!DIVIDES_ALL && ns < LEAST_NS)) return DEFT_OK;
    l.trace.site = w->t->site;
    l.trace.extents = w->t->extents;
    l.trace.n_extents = w->t->n_extents;
    l.trace.args = w->t->args;
    l.trace.n_args = w->t->n_args;
    df_run model = { .x = x,
                     .plan = body->plan,
                     .t = &l.trace,
                     .slots = slots,
                     .inputs = w->bufs,
                     .n_threads = 1,
                     .waiter = w->io->waiter };
    df_bump b = { 0 };
    lay_out_loop(&l, &model, &b);
    const size_t size = b.used + 64;
    char *const memory = df_mem_zalloc(x->mem, size);
    if (!memory) return df_fail_mem(d, "run", size);
    b = (df_bump){ .at = (char *)(((uintptr_t)memory + 63) & ~(uintptr_t)63) };
    lay_out_loop(&l, &model, &b);
    if (!df_rows_find(&l.rows)) goto done;
    l.is_masked = df_masked_find(w, &l.masked) && l.rows.group == l.masked.n_queries;
    if (!divide_loop(&l, &model)) goto done;
    TRY(run_in_blocks(&l, d, &model));
    *done = true;
done:
    for (uint32_t i = 0; i < body->plan->n_segs; i++) df_buffer_drop(&l.packed[i]);
    df_mem_free(x->mem, memory, size);
    return st;
}
