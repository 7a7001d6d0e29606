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
 * Rows are found as follows. Each buffer that an iteration writes, and each state, consists of
 * n_rows equal pieces, one after the other. Each segment is divided likewise: piece i of its outer
 * axes touches piece i of these buffers only. Other inputs are not written while the loop runs, so
 * any row may read them.
 *
 * Kernels and products compute each row as they do otherwise, so no bit depends on the blocks.
 */
#include "runtime/exec/exec_blocks.h"

#include <stdatomic.h>
#include <string.h>

#include "runtime/exec/exec_masked.h"
#include "runtime/exec/exec_run.h"
#include "runtime/os.h"

enum {
    BLOCK_BYTES = 192 << 10, /* states and temporaries of a block: a part of the L2 cache */
    BLOCKS_PER_THREAD = 4,   /* wanted, so that threads end together */
    MASKED_ACC = 2           /* the number of the state acc of attention */
};

/* Builds with checks divide all loops that may be divided, so that tests on small tensors meet
 * blocks. */
#ifdef DF_DEBUG
enum { DIVIDES_ALL = 1, ROW_UNIT = 1, LEAST_ROWS = 2 };
#else
enum {
    DIVIDES_ALL = 0,
    ROW_UNIT = 8,   /* blocks have a multiple of this many rows, for full tiles */
    LEAST_ROWS = 16 /* a block has at least as many rows, where there are as many */
};
#endif

#define LEAST_NS 60e3   /* a loop that takes less is not divided */
#define MACS_PER_NS 40. /* estimate for products on one thread */

/* ---- rows ---- */

/* The part of an array that one row of a segment touches. */
typedef struct window {
    int64_t left; /* rows that the axes so far do not divide; 1: all are divided */
    int64_t span; /* from the first to the last element that one row touches */
    int64_t piece;
    bool ok;
} window;

/* Takes one axis, from the outermost to the innermost. `divides`: rows are divided along it. */
static void take_axis(window *w, int64_t extent, int64_t stride, bool divides)
{
    if (extent == 1) return;
    if (stride < 0) w->ok = false;
    if (!divides || w->left == 1) {
        w->span += (extent - 1) * stride;
    } else if (w->left % extent == 0) {
        w->left /= extent;
        w->ok &= stride == w->piece * w->left;
    } else if (extent % w->left == 0) {
        const int64_t n = extent / w->left; /* neighbours along this axis that one row has */
        w->ok &= stride * n == w->piece;
        w->span += (n - 1) * stride;
        w->left = 1;
    } else {
        w->ok = false;
    }
}

/* What a block loop knows of a segment. */
typedef struct block_seg {
    int64_t per_row; /* outer positions (or elements of INNER) of a kernel that make up a row. Of a
                      * product: rows of C, counted over the batch */
    bool by_inner;   /* a MAP without outer axes: its INNER axis is divided */
    df_matmul_job job;
} block_seg;

/* A thread's own run of the body, and its memory. */
typedef struct worker {
    df_run run;
    df_seg_run *segs;
    char *memory;      /* what the members of `run` point into */
    char **scratch;    /* per buffer of the plan: its piece of a block; NULL: not in blocks */
    char **states[2];  /* per state: memory of a block. The second is NULL where a state is
                        * replaced in place */
    int64_t iteration; /* what a NUMBER port reads */
    size_t memory_size;
} worker;

typedef struct block_loop {
    df_executor *x;
    const df_flow_construct *w;
    const df_plan *plan; /* of an iteration */
    const df_subplan *body;
    const int64_t *slots;
    df_trace trace;
    uint32_t n_states;
    int64_t n_iterations, n_rows, block, group; /* a block lies within a group of rows */
    int64_t n_blocks;
    block_seg *segs;
    int64_t *row_bytes; /* per buffer of the plan: bytes of a row; 0: not divided into rows */
    df_pool *alone;     /* a pool without workers, for the products of a block */
    worker *workers;
    uint32_t n_workers;
    df_masked masked;
    bool is_masked; /* `masked` says which iterations a block needs */
    atomic_bool stopped;
} block_loop;

static int64_t loop_slot(const block_loop *l, df_slot s)
{
    return df_slot_value(l->slots, s);
}

/* Whether the buffer is divided into rows: it is written in an iteration, or holds a state. */
static bool has_rows(const block_loop *l, df_buf buf)
{
    if (buf.i == DF_NONE) return false;
    const df_plan_buf *const b = &l->plan->bufs[buf.i];
    return b->kind != DF_BUF_INPUT || l->body->port[b->index].kind == DF_PORT_STATE;
}

static window window_of(const block_loop *l, df_buf buf)
{
    const int64_t numel = loop_slot(l, l->plan->bufs[buf.i].numel);
    return (window){ .left = l->n_rows,
                     .piece = numel / l->n_rows,
                     .ok = numel > 0 && numel % l->n_rows == 0 };
}

static bool window_fits(const window *w, int64_t offset)
{
    return w->ok && w->left == 1 && offset >= 0 && offset + w->span < w->piece;
}

static bool kernel_has_rows(const block_loop *l, const df_seg *seg, const df_kernel *k,
                            uint32_t skip, bool by_inner)
{
    if (k->flags & DF_KERNEL_CHECKS) return false;
    for (uint32_t i = 0; i < k->n_access; i++) {
        const df_bind *const b = &seg->bind[i];
        if (i == skip || !has_rows(l, b->buf)) continue;
        if (!df_access_is_strided(k->access[i].kind)) return false;
        window w = window_of(l, b->buf);
        for (uint32_t x = 0; x < k->n_axes; x++)
            take_axis(&w, loop_slot(l, seg->extent[x]), loop_slot(l, b->stride[x]),
                      k->role[x] == DF_AXIS_OUTER || (by_inner && k->role[x] == DF_AXIS_INNER));
        if (!window_fits(&w, loop_slot(l, b->offset))) return false;
    }
    return true;
}

/* Whether rows of a product touch only their pieces of an operand or of C. `rows` and `columns` are
 * the extents of the matrix. by_rows: rows are also divided along its rows, not only along the
 * batch. */
static bool matrix_has_rows(const block_loop *l, const df_seg *seg, const df_bind *b, int64_t rows,
                            int64_t columns, bool by_rows)
{
    if (!has_rows(l, b->buf)) return true;
    window w = window_of(l, b->buf);
    for (uint32_t i = 0; i < seg->n_batch; i++)
        take_axis(&w, loop_slot(l, seg->batch[i]), loop_slot(l, b->stride[i]), true);
    take_axis(&w, rows, loop_slot(l, b->stride[seg->n_batch]), by_rows);
    take_axis(&w, columns, loop_slot(l, b->stride[seg->n_batch + 1]), false);
    return window_fits(&w, loop_slot(l, b->offset));
}

static bool seg_has_rows(const block_loop *l, const df_seg *seg, block_seg *out)
{
    const df_kernel *const k = df_seg_kernel(l->plan, seg);
    int64_t n = 1;
    if (seg->kind == DF_SEG_KERNEL) {
        int64_t n_outer = 1, n_inner = 1;
        for (uint32_t x = 0; x < k->n_axes; x++) {
            const int64_t extent = loop_slot(l, seg->extent[x]);
            if (k->role[x] == DF_AXIS_OUTER) n_outer *= extent;
            if (k->role[x] == DF_AXIS_INNER) n_inner = extent;
        }
        out->by_inner = n_outer == 1 && k->mode == DF_MODE_MAP;
        n = out->by_inner ? n_inner : n_outer;
        out->per_row = n / l->n_rows;
        return n > 0 && n % l->n_rows == 0 && kernel_has_rows(l, seg, k, DF_NONE, out->by_inner);
    }
    if (seg->kind != DF_SEG_MATMUL || seg->windows || seg->a_dtype != seg->dtype ||
        seg->b_dtype != seg->dtype)
        return false;
    const int64_t rows = loop_slot(l, seg->m), columns = loop_slot(l, seg->n),
                  depth = loop_slot(l, seg->k);
    for (uint32_t i = 0; i < seg->n_batch; i++) n *= loop_slot(l, seg->batch[i]);
    n *= rows;
    out->per_row = n / l->n_rows;
    return n > 0 && columns > 0 && n % l->n_rows == 0 &&
           (!k || kernel_has_rows(l, seg, k, seg->c_access, false)) &&
           matrix_has_rows(l, seg, &seg->a, rows, depth, true) &&
           matrix_has_rows(l, seg, &seg->b, depth, columns, false) &&
           matrix_has_rows(l, seg, &seg->c, rows, columns, true);
}

/* Whether the loop has n independent rows. */
static bool has_n_rows(block_loop *l, int64_t n)
{
    l->n_rows = n;
    if (n < 2) return false;
    for (uint32_t i = 0; i < l->plan->n_segs; i++)
        if (!seg_has_rows(l, &l->plan->segs[i], &l->segs[i])) return false;
    for (uint32_t i = 0; i < l->plan->n_bufs; i++) {
        const df_buf buf = { i };
        if (!has_rows(l, buf)) continue;
        const window w = window_of(l, buf);
        if (!w.ok) return false;
        l->row_bytes[i] = w.piece * (int64_t)deft_dtype_size(l->plan->bufs[i].dtype);
    }
    return true;
}

/* Finds as many rows as possible. Where a product decides, these are the rows of C over the batch,
 * or else the entries of the batch. Rows of different entries must not be in one block. */
static bool find_rows(block_loop *l)
{
    int64_t most = 0, entries = 1;
    for (uint32_t i = 0; i < l->plan->n_segs; i++) {
        const df_seg *const seg = &l->plan->segs[i];
        int64_t n = 1;
        if (seg->kind != DF_SEG_MATMUL) continue;
        for (uint32_t j = 0; j < seg->n_batch; j++) n *= loop_slot(l, seg->batch[j]);
        if (most == 0 || n < entries) entries = n;
        most = df_max_i64(most, n * loop_slot(l, seg->m));
    }
    if (most == 0) return false;
    l->group = most / df_max_i64(entries, 1);
    if (has_n_rows(l, most)) return true;
    l->group = 1;
    return has_n_rows(l, entries);
}

/* ---- which loops ---- */

/* Whether the roots of an iteration are buffers of their own, and all else is of a kind that blocks
 * can have. */
static bool has_plain_buffers(const block_loop *l)
{
    const df_plan *const p = l->plan;
    for (uint32_t i = 0; i < p->n_bufs; i++) {
        const df_plan_buf *const b = &p->bufs[i];
        if (b->kind == DF_BUF_INTO || b->keep) return false;
    }
    for (uint32_t i = 0; i < p->n_roots; i++) {
        const df_buf b = p->root_buf[i];
        if (b.i == DF_NONE || p->bufs[b.i].kind != DF_BUF_ROOT) return false;
        for (uint32_t j = 0; j < i; j++)
            if (p->root_buf[j].i == b.i) return false;
    }
    return true;
}

/* Whether the right operands of all products are read anew in each iteration, or computed. What all
 * iterations read is better packed once for all of them (exec_weights.c). */
static bool has_changing_operands(const block_loop *l)
{
    for (uint32_t i = 0; i < l->plan->n_segs; i++) {
        const df_seg *const seg = &l->plan->segs[i];
        if (seg->kind != DF_SEG_MATMUL || seg->b.buf.i == DF_NONE) continue;
        const df_plan_buf *const b = &l->plan->bufs[seg->b.buf.i];
        if (b->kind != DF_BUF_INPUT) continue;
        const uint32_t kind = l->body->port[b->index].kind;
        if (kind == DF_PORT_ROW || seg->n_batch > 0) continue;
        return false;
    }
    return true;
}

static double estimate_ns(const block_loop *l)
{
    double macs = 0;
    for (uint32_t i = 0; i < l->plan->n_segs; i++) {
        const df_seg *const seg = &l->plan->segs[i];
        if (seg->kind != DF_SEG_MATMUL) continue;
        macs += (double)(l->segs[i].per_row * l->n_rows) * (double)loop_slot(l, seg->n) *
                (double)loop_slot(l, seg->k);
    }
    return macs / MACS_PER_NS * (double)l->n_iterations;
}

/* ---- blocks ---- */

static int64_t bytes_of_row(const block_loop *l)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < l->plan->n_bufs; i++) sum += l->row_bytes[i];
    return sum;
}

static void choose_block(block_loop *l, uint32_t n_threads)
{
    const int64_t most = df_max_i64(BLOCK_BYTES / bytes_of_row(l), 1);
    const int64_t fair = df_max_i64(l->n_rows / (n_threads * BLOCKS_PER_THREAD), LEAST_ROWS);
    const int64_t want = df_min_i64(df_min_i64(most, fair), l->group);
    const int64_t even = df_div_up(l->group, df_div_up(l->group, want));
    l->block = df_min_i64(df_div_up(even, ROW_UNIT) * ROW_UNIT, l->group);
    l->n_blocks = l->n_rows / l->group * df_div_up(l->group, l->block);
}

/* ---- one thread ---- */

/* The bytes of a buffer's piece of a block. Rows of vectors may be read a little beyond. */
static size_t block_bytes(const block_loop *l, uint32_t buf)
{
    return ((size_t)(l->row_bytes[buf] * l->block) + 127) & ~(size_t)63;
}

static bool is_stacked(const block_loop *l, uint32_t root)
{
    return root >= l->n_states && l->w->part->out[root] != DF_NONE;
}

/* The state that replaces itself in place: the root is computed from the state at the same place.
 */
static bool is_in_place(const block_loop *l, uint32_t state)
{
    const df_plan_buf *const b = &l->plan->bufs[l->plan->root_buf[state].i];
    return b->donor != DF_NONE && l->body->port[b->donor].kind == DF_PORT_STATE &&
           l->body->port[b->donor].index == state;
}

/* Takes the memory of a worker from b. */
static void lay_out_worker(const block_loop *l, worker *w, df_bump *b)
{
    const df_plan *const p = l->plan;
    df_run_lay_out(&w->run, b);
    w->scratch = df_bump_take(b, sizeof *w->scratch * p->n_bufs);
    for (int i = 0; i < 2; i++) w->states[i] = df_bump_take(b, sizeof *w->states[i] * l->n_states);
    for (uint32_t i = 0; i < p->n_bufs; i++) {
        char *const at = p->bufs[i].kind == DF_BUF_TEMP ? df_bump_take(b, block_bytes(l, i)) : NULL;
        if (b->at) w->scratch[i] = at;
    }
    for (uint32_t i = 0; i < p->n_roots; i++) {
        const uint32_t buf = p->root_buf[i].i;
        if (is_stacked(l, i)) continue;
        char *const first = df_bump_take(b, block_bytes(l, buf));
        const bool has_two = i < l->n_states && !is_in_place(l, i);
        char *const second = has_two ? df_bump_take(b, block_bytes(l, buf)) : NULL;
        if (!b->at) continue;
        w->scratch[buf] = first;
        if (i >= l->n_states) continue;
        w->states[0][i] = first;
        w->states[1][i] = second;
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
    for (uint32_t i = 0; i < l->plan->n_segs; i++) {
        const df_seg *const seg = &l->plan->segs[i];
        if (seg->kind != DF_SEG_MATMUL) continue;
        const df_matmul_job *const job = &l->segs[i].job;
        const int64_t rows = df_min_i64(l->block * l->segs[i].per_row, job->m);
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
    df_bump b = { 0 };
    const df_mem *const mem = l->x->mem;
    const size_t segs_size = sizeof *w->segs * l->plan->n_segs;
    w->run = *model;
    w->run.n_threads = 1;
    w->run.matmul_size = most_work(l, model);
    w->segs = w->run.segs = df_mem_alloc(mem, segs_size);
    if (!w->segs) return df_fail_mem(d, "run", segs_size);
    memcpy(w->segs, model->segs, segs_size);
    lay_out_worker(l, w, &b);
    w->memory_size = b.used + 64;
    w->memory = df_mem_alloc(mem, w->memory_size);
    if (!w->memory) return df_fail_mem(d, "run", w->memory_size);
    b = (df_bump){ .at = (char *)(((uintptr_t)w->memory + 63) & ~(uintptr_t)63) };
    lay_out_worker(l, w, &b);
    for (uint32_t i = 0; i < l->plan->n_segs; i++)
        if (w->segs[i].kernel) {
            df_run_bind_extents(&w->run, &l->plan->segs[i], &w->segs[i]);
            w->segs[i].args.streams = 0;
        }
    return DEFT_OK;
}

static void drop_worker(const block_loop *l, worker *w)
{
    df_mem_free(l->x->mem, w->segs, w->segs ? sizeof *w->segs * l->plan->n_segs : 0);
    df_mem_free(l->x->mem, w->memory, w->memory ? w->memory_size : 0);
}

/* ---- running ---- */

/* Returns the address at which row 0 would be, when row `first` is at `at`. It need not exist. */
static char *block_origin(const block_loop *l, uint32_t buf, char *at, int64_t first)
{
    return (char *)((uintptr_t)at - (uintptr_t)(first * l->row_bytes[buf]));
}

/* Sets the addresses of all buffers for iteration w->iteration of the block that begins with row
 * `first`. */
static void find_buffers(const block_loop *l, worker *w, int64_t first)
{
    const df_plan *const p = l->plan;
    const bool odd = w->iteration & 1;
    for (uint32_t i = 0; i < p->n_bufs; i++) {
        const df_plan_buf *const b = &p->bufs[i];
        if (b->kind != DF_BUF_INPUT) {
            if (w->scratch[i]) w->run.base[i] = block_origin(l, i, w->scratch[i], first);
            continue;
        }
        const df_port *const port = &l->body->port[b->index];
        w->run.base[i] = l->w->body[b->index].data;
        if (port->kind == DF_PORT_ROW)
            w->run.base[i] += w->iteration * l->w->slots[port->row_bytes.i];
        else if (port->kind == DF_PORT_NUMBER)
            w->run.base[i] = (char *)&w->iteration;
        else if (port->kind == DF_PORT_STATE)
            w->run.base[i] =
                block_origin(l, i, w->states[odd && w->states[1][port->index]][port->index], first);
    }
    for (uint32_t i = 0; i < p->n_roots; i++) {
        const uint32_t buf = p->root_buf[i].i;
        if (is_stacked(l, i))
            w->run.base[buf] = (char *)l->w->made[i]->data +
                               w->iteration * l->w->slots[l->w->part->row_bytes[i - l->n_states].i];
        else if (i < l->n_states)
            w->run.base[buf] = block_origin(l, buf, w->states[!odd && w->states[1][i]][i], first);
    }
}

static void run_block_kernel(const block_loop *l, worker *w, uint32_t i, int64_t first, int64_t end)
{
    const df_seg_run *const s = &w->segs[i];
    const int64_t per_row = l->segs[i].per_row;
    df_kargs a = s->args;
    a.fault = (int64_t *)(void *)df_run_thread_area(&w->run, 0);
    a.work = df_run_thread_area(&w->run, 0) + 64;
    if (l->segs[i].by_inner)
        df_run_main(&w->run, s, &a, 0, 0, 1, first * per_row, end * per_row);
    else
        df_run_main(&w->run, s, &a, 0, first * per_row, end * per_row, 0, s->n_inner);
}

static void run_block_product(const block_loop *l, worker *w, uint32_t i, int64_t first,
                              int64_t end)
{
    const df_matmul_job *const job = &l->segs[i].job;
    const int64_t row = first * l->segs[i].per_row, last = end * l->segs[i].per_row;
    df_matmul_job all = *job;
    df_run_place_product(&w->run, &l->plan->segs[i], &all);
    for (int64_t at = row, next; at < last; at = next) {
        const int64_t entry = at / job->m, m0 = at % job->m;
        next = df_min_i64(last, (entry + 1) * job->m);
        df_matmul_job part = part_of_job(&all, entry, m0, m0 + next - at);
        df_run_product_rows(&w->run, &l->plan->segs[i], &w->segs[i], &part, at, l->alone);
    }
}

static void run_block_iteration(const block_loop *l, worker *w, int64_t first, int64_t end)
{
    find_buffers(l, w, first);
    for (uint32_t i = 0; i < l->plan->n_segs; i++) {
        const df_seg *const seg = &l->plan->segs[i];
        if (w->segs[i].kernel) df_run_bind(&w->run, seg, &w->segs[i]);
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
    const int64_t entry = first / l->group, before = entry * l->group;
    return df_masked_iterations(&l->masked, entry, end - before);
}

static void run_block_task(void *user, uint32_t task, uint32_t thread)
{
    block_loop *const l = user;
    worker *const w = &l->workers[thread];
    const int64_t per_group = df_div_up(l->group, l->block);
    const int64_t in_group = task % per_group * l->block;
    const int64_t first = task / per_group * l->group + in_group;
    const int64_t end = first + df_min_i64(l->block, l->group - in_group);
    const df_plan *const p = l->plan;
    for (uint32_t i = 0; i < l->n_states; i++) {
        const int64_t bytes = l->row_bytes[p->root_buf[i].i];
        memcpy(w->states[0][i], (const char *)l->w->init[i] + first * bytes,
               (size_t)((end - first) * bytes));
    }
    const int64_t n = iterations_of(l, first, end);
    for (w->iteration = 0; w->iteration < n; w->iteration++) {
        const bool asks = thread == 0 && l->w->io->interrupted;
        if (asks && l->w->io->interrupted(l->w->io->user)) atomic_store(&l->stopped, true);
        if (atomic_load_explicit(&l->stopped, memory_order_relaxed)) return;
        run_block_iteration(l, w, first, end);
    }
    for (uint32_t i = 0; i < l->n_states; i++) {
        const int64_t bytes = l->row_bytes[p->root_buf[i].i];
        const bool second = (n & 1) && w->states[1][i];
        if (n < l->n_iterations && i == MASKED_ACC)
            df_masked_finish((float *)(void *)w->states[second][i],
                             (end - first) * bytes / (int64_t)sizeof(float));
        if (l->w->made[i])
            memcpy((char *)l->w->made[i]->data + first * bytes, w->states[second][i],
                   (size_t)((end - first) * bytes));
    }
}

/* ---- the loop ---- */

static deft_status make_results(block_loop *l, df_diag *d)
{
    deft_status st = DEFT_OK;
    const df_part *const part = l->w->part;
    for (uint32_t i = 0; i < part->n_out; i++) {
        if (part->out[i] == DF_NONE) continue;
        const int64_t bytes = l->w->slots[l->w->plan->cells[part->out[i]].bytes.i];
        TRY(df_buffer_create(d, l->x->allocator, bytes, &l->w->made[i]));
    }
done:
    return st;
}

/* Whether the loop runs block by block. Fills in l. */
static bool takes_blocks(block_loop *l, uint32_t n_threads)
{
    if (l->plan->root_cell || l->plan->n_checked > 0 || l->plan->checks_first ||
        l->n_iterations < 1 || !has_plain_buffers(l) || !find_rows(l) || !has_changing_operands(l))
        return false;
    if (!DIVIDES_ALL && estimate_ns(l) < LEAST_NS) return false;
    l->is_masked = df_masked_find(l->w, &l->masked) && l->group == l->masked.n_queries;
    choose_block(l, n_threads);
    return l->n_blocks >= n_threads && l->n_blocks <= UINT32_MAX;
}

static deft_status run_in_blocks(block_loop *l, df_diag *d, df_run *model)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < l->plan->n_segs; i++)
        if (l->plan->segs[i].kind == DF_SEG_MATMUL)
            df_run_describe_product(model, &l->plan->segs[i], &l->segs[i].job);
    TRY(df_pool_create(d, l->x->mem, 1, &l->alone));
    for (uint32_t i = 0; i < l->n_workers; i++) TRY(make_worker(l, d, model, &l->workers[i]));
    TRY(make_results(l, d));
    const bool is_timed = df_ring_on(l->w->io->ring) || l->x->spent;
    const uint64_t start = is_timed ? df_os_now_ns() : 0;
    df_pool_run(l->x->pool, (uint32_t)l->n_blocks, run_block_task, l);
    if (is_timed) df_run_log_loop(&l->workers[0].run, l->w->io->ring, df_os_now_ns() - start);
    if (atomic_load(&l->stopped))
        st = df_fail(d, DEFT_E_INTERRUPTED, "interrupted within a loop of %lld iterations",
                     (long long)l->n_iterations);
done:
    for (uint32_t i = 0; st != DEFT_OK && i < l->w->part->n_out; i++)
        df_buffer_drop(&l->w->made[i]);
    for (uint32_t i = 0; i < l->n_workers; i++) drop_worker(l, &l->workers[i]);
    df_pool_destroy(&l->alone);
    return st;
}

deft_status df_run_loop_by_blocks(df_executor *x, df_diag *d, const df_flow_construct *w,
                                  bool *done)
{
    deft_status st = DEFT_OK;
    const df_subplan *const body = &w->part->body;
    const df_plan *const plan = body->plan;
    const uint32_t n_threads = df_pool_threads(x->pool);
    block_loop l = { .x = x,
                     .w = w,
                     .plan = plan,
                     .body = body,
                     .slots = w->slots + body->slot0,
                     .trace = body->trace,
                     .n_states = w->part->n_states,
                     .n_iterations = w->slots[w->part->most.i],
                     .n_workers = n_threads };
    df_bump b = { 0 };
    char *memory = NULL;
    size_t size = 0;
    *done = false;
    l.trace.site = w->t->site;
    l.trace.extents = w->t->extents;
    l.trace.n_extents = w->t->n_extents;
    l.trace.args = w->t->args;
    l.trace.n_args = w->t->n_args;
    df_run model = { .x = x,
                     .plan = plan,
                     .t = &l.trace,
                     .slots = l.slots,
                     .n_threads = 1,
                     .waiter = w->io->waiter };
    for (int pass = 0; pass < 2; pass++) {
        l.segs = df_bump_take(&b, sizeof *l.segs * plan->n_segs);
        l.row_bytes = df_bump_take(&b, sizeof *l.row_bytes * plan->n_bufs);
        l.workers = df_bump_take(&b, sizeof *l.workers * n_threads);
        model.segs = df_bump_take(&b, sizeof *model.segs * plan->n_segs);
        if (pass > 0) break;
        size = b.used + 64;
        memory = df_mem_zalloc(x->mem, size);
        if (!memory) return df_fail_mem(d, "run", size);
        b = (df_bump){ .at = (char *)(((uintptr_t)memory + 63) & ~(uintptr_t)63) };
    }
    if (!takes_blocks(&l, n_threads)) goto done;
    df_run_measure(&model);
    for (int i = 0; i < 2; i++) model.gemm[i] = df_run_gemm(x, i);
    TRY(run_in_blocks(&l, d, &model));
    *done = true;
done:
    df_mem_free(x->mem, memory, size);
    return st;
}
