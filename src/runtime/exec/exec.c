/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a plan on the CPU. The steps are in this order, so that everything that can fail has failed
 * before memory is written:
 *
 *   measure    extents, estimated time and code of each segment; may wait for the compiler
 *   divide     decide which launches run in parallel, and divide each segment into items
 *   lay out    place all arguments, partial results and areas of threads in one block of memory
 *   buffers    memory of roots (or of their donors), and one arena for all temporaries
 *   bind       addresses, strides and numbers; which results go around the caches
 *   choose     a variant of each kernel, where one fits
 *   launch     one fork-join for each launch; afterwards, the faults that checks have found
 *
 * The run layout is kept from run to run. A run with the same plan and the same sizes begins with
 * "buffers". It allocates nothing but its results, and makes no system call. When two runs overlap,
 * the second makes a run layout of its own.
 *
 * How work is divided changes no bit (runtime/device.h). So the division may depend on the number
 * of threads and on estimates. An *item* is a group of rows, a range of INNER within a row, or a
 * range of blocks of a split reduction. A *task* is one item, or several small neighbouring ones.
 */
#include "runtime/exec/exec_blocks.h"
#include "runtime/exec/exec_run.h"
#include "runtime/flow.h"

#include <string.h>

#include "base/bits.h"
#include "runtime/os.h"
#include "runtime/row_copies.h"

/* A run layout with more work memory than MAX_KEPT_FRAME bytes is not kept. */
enum { MAX_KEPT_FRAME = 64 << 20 };

/* Rows of co-scheduled segments are taken RIDE_ELEMENTS elements at a time. */
enum { RIDE_ELEMENTS = 8192 };

/* ---- run layouts ---- */

typedef struct block {
    char *at; /* 64-byte aligned within raw */
    void *raw;
    size_t size;
} block;

struct df_run_layout {
    block segs, work, slots;
    df_run run;      /* the latest run; its arrays are in the blocks above */
    uint64_t serial; /* df_plan.serial of its plan; 0: there is no run to reuse */
};

static bool block_reserve(const df_mem *mem, block *b, size_t size)
{
    if (b->size >= size && b->raw) return true;
    size += size / 4;
    df_mem_free(mem, b->raw, b->raw ? b->size + 64 : 0);
    *b = (block){ 0 };
    b->raw = df_mem_alloc(mem, size + 64);
    if (!b->raw) return false;
    b->size = size;
    b->at = (char *)(((uintptr_t)b->raw + 63) & ~(uintptr_t)63);
    return true;
}

static void frame_destroy(const df_mem *mem, df_run_layout *f)
{
    if (!f) return;
    if (f->segs.raw) df_mem_free(mem, f->segs.raw, f->segs.size + 64);
    if (f->work.raw) df_mem_free(mem, f->work.raw, f->work.size + 64);
    if (f->slots.raw) df_mem_free(mem, f->slots.raw, f->slots.size + 64);
    df_mem_free(mem, f, sizeof *f);
}

static df_run_layout *frame_take(df_executor *x)
{
    df_run_layout *const f = atomic_exchange_explicit(&x->frame, NULL, memory_order_acquire);
    return f ? f : df_mem_zalloc(x->mem, sizeof *f);
}

static void frame_give(df_executor *x, df_run_layout *f)
{
    if (f && f->work.size > MAX_KEPT_FRAME) {
        frame_destroy(x->mem, f);
        return;
    }
    frame_destroy(x->mem, atomic_exchange_explicit(&x->frame, f, memory_order_acq_rel));
}

void df_executor_finish(df_executor *x)
{
    frame_destroy(x->mem, atomic_exchange(&x->frame, NULL));
}

/* ---- choose ---- */

static df_call call_of(const df_seg_run *s, bool is_all)
{
    return (df_call){ .args = &s->args,
                      .rows = s->parts <= 1 || s->runs_whole,
                      .all = is_all,
                      .n_rows = s->n_outer,
                      .ns = df_seg_run_code_ns(s) };
}

/* Returns true when all rows of `under` and of its co-scheduled segments run in one call each. */
static bool rides_whole(const df_seg_run *under)
{
    return under->runs_whole && RIDE_ELEMENTS / under->n_inner >= under->n_outer;
}

/* Replaces the code of segment i by the variant that fits call c best, if there is one. A segment
 * that is interpreted stays so, and is counted when its code would run whole rows. */
static void exec_choose_variant(df_run *r, uint32_t i, const df_call *c)
{
    df_seg_run *const s = &r->segs[i];
    df_exec *const x = r->plan->execs[r->plan->segs[i].kernel.i];
    if (s->code)
        s->code = df_tiers_choose(r->x->tiers, x, s->code, c, &r->is_inside);
    else if (c->rows && (s->runs_whole || !s->split))
        df_tiers_watch(r->x->tiers, x, c, &r->is_inside);
}

static void exec_choose_variants(df_run *r)
{
    if (!r->x->tiers || !r->plan->execs) return;
    for (uint32_t i = 0; i < r->plan->n_segs; i++) {
        df_seg_run *const s = &r->segs[i];
        if (r->plan->segs[i].kind != DF_SEG_KERNEL || (s->code && s->split)) continue;
        if (s->rides || s->n_items == 0 || s->copies_rows || s->copies_short_rows) continue;
        const bool has_riders = s->riders != DF_NONE;
        const df_call c = call_of(s, has_riders ? rides_whole(s) : s->runs_whole);
        exec_choose_variant(r, i, &c);
        for (uint32_t j = s->riders; j != DF_NONE; j = r->segs[j].next_rider) {
            r->segs[j].runs_whole = s->runs_whole;
            const df_call d = call_of(&r->segs[j], c.all);
            exec_choose_variant(r, j, &d);
        }
    }
}

/* ---- launch ---- */

static df_kargs thread_args(const df_run *r, const df_seg_run *s, uint32_t thread)
{
    df_kargs a = s->args;
    a.fault = (int64_t *)(void *)df_run_thread_area(r, thread);
    a.work = df_run_thread_area(r, thread) + 64;
    if (s->per_thread) a.ptr = s->ptr + (size_t)thread * s->kernel->n_access;
    return a;
}

static df_row_copy row_copy(const df_seg_run *s)
{
    const int64_t *const stride = s->args.stride;
    return (df_row_copy){ .from = s->args.ptr[0],
                          .to = s->args.ptr[1],
                          .from_stride = stride,
                          .to_stride = stride + s->kernel->n_axes,
                          .n = (size_t)s->n_inner,
                          .size = deft_dtype_size((deft_dtype)s->kernel->access[0].dtype) };
}

/* Copies rows [row, end) of s and of the co-scheduled segments that copy rows, too. */
static void copy_rows_together(const df_run *r, const df_seg_run *s, int64_t row, int64_t end)
{
    df_row_copy list[DF_MOST_ROW_COPIES];
    uint32_t n = 0;
    list[n++] = row_copy(s);
    for (uint32_t i = s->riders; i != DF_NONE; i = r->segs[i].next_rider) {
        if (!r->segs[i].copies_rows) continue;
        df_assert(n < DF_MOST_ROW_COPIES);
        list[n++] = row_copy(&r->segs[i]);
    }
    df_copy_rows(list, n, s->args.extent, s->kernel->n_axes - 1u, row, end);
}

/* Runs rows [row, end) of s and of its co-scheduled segments, a few rows at a time. */
static void run_rows(const df_run *r, const df_seg_run *s, df_kargs *a, uint32_t thread,
                     int64_t row, int64_t end)
{
    const int64_t step = df_max_i64(RIDE_ELEMENTS / s->n_inner, 1);
    for (int64_t next; row < end; row = next) {
        next = df_min_i64(row + step, end);
        if (s->copies_rows)
            copy_rows_together(r, s, row, next);
        else
            df_run_main(r, s, a, thread, row, next, 0, s->n_inner);
        for (uint32_t i = s->riders; i != DF_NONE; i = r->segs[i].next_rider) {
            const df_seg_run *const rider = &r->segs[i];
            if (rider->copies_rows) continue;
            df_kargs b = thread_args(r, rider, thread);
            df_run_main(r, rider, &b, thread, row, next, 0, rider->n_inner);
        }
    }
}

static void run_item(const df_run *r, const df_seg_run *s, uint32_t item, uint32_t thread)
{
    if (s->is_zeroed) return;
    df_kargs a = thread_args(r, s, thread);
    int64_t row = 0, end = s->n_outer, p0 = 0, p1 = s->part_extent;
    if (s->n_items > 1) { /* the divisions take 5 ns, and the shortest kernels 100 */
        const int64_t group = item / s->parts, part = item % s->parts;
        row = df_run_group_begin(s, group);
        end = df_run_group_begin(s, group + 1);
        p0 = df_run_part_begin(s, part);
        p1 = df_run_part_begin(s, part + 1);
    }
    if (s->riders != DF_NONE) {
        run_rows(r, s, &a, thread, row, end);
        return;
    }
    if (s->copies_short_rows) {
        const df_row_copy c = row_copy(s);
        df_copy_short_rows(&c, s->args.extent, s->kernel->n_axes - 1u, row, end);
        return;
    }
    if (!s->split) {
        df_run_main(r, s, &a, thread, row, end, p0, p1);
        return;
    }
    a.partial = s->partial + row * s->partial_row;
    if (s->code)
        s->code->part(&a, row, row + 1, p0, p1);
    else
        df_interp_part(s->kernel, df_run_thread_area(r, thread) + 64, &a, row, p0, p1);
}

static void run_task(void *user, uint32_t task, uint32_t thread)
{
    const df_run *const r = user;
    const uint32_t end = r->task_begin[task + 1];
    uint32_t item = r->task_begin[task];
    /* Find the last segment whose first item is at or before `item`. */
    uint32_t lo = 0, hi = r->launch->n - r->launch->n_after;
    while (hi - lo > 1) {
        const uint32_t mid = (lo + hi) / 2;
        if (r->segs[r->launch->first + mid].first_item <= item)
            lo = mid;
        else
            hi = mid;
    }
    for (const df_seg_run *s = &r->segs[r->launch->first + lo]; item < end; s++)
        for (; item < end && item - s->first_item < s->n_items; item++)
            run_item(r, s, item - s->first_item, thread);
}

static void finish_split(const df_run *r, const df_seg_run *s)
{
    df_kargs a = thread_args(r, s, 0);
    for (int64_t o = 0; o < s->n_outer; o++) {
        a.partial = s->partial + o * s->partial_row;
        if (s->code)
            s->code->fin(&a, o, o + 1, 0, s->n_inner);
        else
            df_interp_fin(s->kernel, df_run_thread_area(r, 0) + 64, &a, o, 0, s->n_inner);
    }
}

/* Runs the kernels of a launch together. Products and routines run one by one, each on all threads
 * of the pool. The small segments at the end (n_after) run last, on the calling thread. Fails when
 * a call of an opaque operator does. */
static deft_status run_launch(df_run *r, df_diag *d, const df_launch *l, df_run_stats *stats)
{
    deft_status st = DEFT_OK;
    r->launch = l;
    const df_seg_run *const first = &r->segs[l->first];
    const bool parallel =
        first->parallel && (!first->is_short || df_pool_share(r->x->pool, first->launch_ns) > 1);
    const uint32_t n_tasks = parallel ? df_run_make_tasks(r, l) : 0;
    if (n_tasks > 1) df_pool_run(r->x->pool, n_tasks, run_task, r);
    /* Whether short launches fork depends on the time, so they are not counted. */
    stats->forks += n_tasks > 1 && !first->is_short;
    for (uint32_t i = 0; i < l->n; i++) {
        const df_seg *const seg = &r->plan->segs[l->first + i];
        const df_seg_run *const s = &r->segs[l->first + i];
        if (n_tasks <= 1 || i >= l->n - l->n_after)
            for (uint32_t j = 0; j < s->n_items; j++) run_item(r, s, j, 0);
        if (s->n_items > 0 && s->split) finish_split(r, s);
        if (seg->kind == DF_SEG_MATMUL && !s->is_idle) df_run_matmul(r, seg, s);
        if (seg->kind == DF_SEG_ROUTINE && !s->is_idle) TRY(df_run_routine(r, d, seg));
        stats->forks += seg->kind != DF_SEG_KERNEL;
        stats->interpreted_segments += s->kernel && !s->code;
        stats->streamed_segments += s->args.streams;
        stats->fetched_segments += s->args.fetches;
        stats->copied_segments += s->copies_rows || s->copies_short_rows;
    }
    stats->launches++;
    stats->segments += l->n;
done:
    return st;
}

static deft_status report_fault(const df_run *r, df_diag *d)
{
    deft_status st = DEFT_OK;
    for (uint32_t i = 0; i < r->n_threads && st == DEFT_OK; i++)
        st = df_bind_fault(d, r->plan, r->t,
                           (const int64_t *)(const void *)df_run_thread_area(r, i));
    return st;
}

static deft_status run_launches(df_run *r, df_diag *d, df_launch_io *io, df_run_stats *stats)
{
    deft_status st = DEFT_OK;
    const df_plan *const plan = r->plan;
    const bool kept = df_bind_has_kept(plan, r->t, r->base);
    const bool checks = plan->n_checked > 0 || plan->checks_first;
    bool may_stop = io->interrupted != NULL;
    for (uint32_t i = 0; checks && i < r->n_threads; i++)
        memset(df_run_thread_area(r, i), 0, 3 * sizeof(int64_t));
    uint32_t n_checked = plan->n_checked; /* only the first n_checked launches can find a fault */
    if (plan->checks_first && kept) {
        df_run_check_inputs(r);
        TRY(report_fault(r, d));
    } else if (plan->checks_first) {
        n_checked = plan->n_launches;
    }
    for (uint32_t i = 0; i < plan->n_launches; i++) {
        const df_launch *const l = &plan->launches[i];
        if (may_stop && ((io->waiter && io->waiter->stopped) || io->interrupted(io->user)))
            return df_fail(d, DEFT_E_INTERRUPTED, "interrupted before launch %u of %u", i,
                           plan->n_launches);
        if (l->n == 0) continue;
        const bool is_timed = df_ring_on(io->ring) || r->x->spent;
        const uint64_t start = is_timed ? df_os_now_ns() : 0;
        TRY(run_launch(r, d, l, stats));
        if (is_timed) df_run_log_launch(r, i, io->ring, df_os_now_ns() - start);
        if (i < n_checked) TRY(report_fault(r, d));
        if (may_stop && kept && df_bind_writes_kept(plan, l, r->t, r->base)) may_stop = false;
    }
done:
    return st;
}

/* ---- reuse of a run layout ---- */

/* Returns true when extents, strides and sizes are equal in a and b. Other slots, such as the start
 * of a moving window, change only addresses. */
static bool has_sizes(const df_plan *plan, const int64_t *a, const int64_t *b)
{
    if (!plan->sizes) return memcmp(a, b, plan->n_slots * sizeof *a) == 0;
    bool same = true;
    for (uint32_t i = 0; i < plan->n_sizes; i++) same &= a[plan->sizes[i].i] == b[plan->sizes[i].i];
    return same;
}

/* Fills in r from f, when f was made for the same plan and the same sizes. Only code, addresses and
 * numbers must then be looked up again. Returns false when f does not fit, when the micro-kernels
 * changed, or when a kernel that was interpreted has code, or the other way round. */
static bool is_laid_out(df_run *r, const df_run_layout *f)
{
    const df_plan *const plan = r->plan;
    if (f->serial == 0 || f->serial != plan->serial ||
        !has_sizes(plan, (const int64_t *)(const void *)f->slots.at, r->slots))
        return false;
    df_run again = f->run;
    again.t = r->t;
    again.slots = r->slots;
    again.inputs = r->inputs;
    again.waiter = r->waiter;
    for (int i = 0; i < 2; i++)
        if (again.gemm[i] != df_run_gemm(r->x, i)) return false;
    for (uint32_t i = 0; i < plan->n_segs; i++) {
        df_seg_run *const s = &again.segs[i];
        if (!s->kernel) continue;
        const df_code *const code = df_run_code(&again, &plan->segs[i], s);
        if (!code != !s->code) return false;
        s->code = code;
    }
    *r = again;
    return true;
}

static deft_status exec_build_layout(df_run *r, df_diag *d, df_run_layout *f)
{
    df_bump b = { 0 };
    const df_mem *const mem = r->x->mem;
    const size_t segs_size = sizeof *r->segs * r->plan->n_segs;
    f->serial = 0;
    if (!block_reserve(mem, &f->segs, segs_size)) return df_fail_mem(d, "run", segs_size);
    r->segs = (df_seg_run *)(void *)f->segs.at;
    df_run_measure(r);
    df_run_find_streams(r);
    df_run_divide_launches(r);
    df_run_find_fetches(r);
    df_run_measure_matmuls(r);
    df_run_measure_routines(r);
    df_run_lay_out(r, &b);
    if (!block_reserve(mem, &f->work, b.used)) {
        r->own = NULL;
        return df_fail_mem(d, "run", b.used);
    }
    b = (df_bump){ .at = f->work.at };
    df_run_lay_out(r, &b);
    return DEFT_OK;
}

/* Keeps r for the next run. At this point r depends on the plan and the slots alone. */
static void keep(df_run_layout *f, const df_run *r)
{
    const size_t size = r->plan->n_slots * sizeof *r->slots;
    if (r->plan->serial == 0 || !block_reserve(r->x->mem, &f->slots, size)) return;
    memcpy(f->slots.at, r->slots, size);
    f->run = *r;
    f->serial = r->plan->serial;
}

/* ---- plans of parts ---- */

static deft_status run_within(void *self, df_diag *d, const df_plan *plan, const df_trace *t,
                              const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    return df_executor_run(self, d, plan, t, slots, io, stats);
}

static deft_status run_loop_blocks(void *self, df_diag *d, const df_flow_construct *w, bool *done)
{
    return df_run_loop_by_blocks(self, d, w, done);
}

static deft_status create_buffer(void *self, df_diag *d, int64_t bytes, df_buffer **out)
{
    const df_executor *const x = self;
    return df_buffer_create(d, x->allocator, bytes, out);
}

static deft_status copy_bytes(void *self, df_diag *d, void *to, const void *from, size_t bytes)
{
    (void)self;
    (void)d;
    memcpy(to, from, bytes);
    return DEFT_OK;
}

static deft_status exec_write_number(void *self, df_diag *d, void *to, uint64_t bits, size_t bytes)
{
    (void)self;
    (void)d;
    df_bits_store(to, bits, bytes);
    return DEFT_OK;
}

static deft_status exec_read_condition(void *self, df_diag *d, const void *at, bool *out)
{
    (void)self;
    (void)d;
    *out = *(const uint8_t *)at != 0;
    return DEFT_OK;
}

/* ---- exported ---- */

deft_status df_executor_run(df_executor *x, df_diag *d, const df_plan *plan, const df_trace *t,
                            const int64_t *slots, df_launch_io *io, df_run_stats *stats)
{
    if (plan->root_cell) {
        const df_flow_ops ops = { .mem = x->mem,
                                  .run = run_within,
                                  .create = create_buffer,
                                  .copy = copy_bytes,
                                  .put = exec_write_number,
                                  .holds = exec_read_condition,
                                  .run_loop = run_loop_blocks,
                                  .donates = true,
                                  .reads_host = true };
        return df_flow_run(&ops, x, d, plan, t, slots, io, stats);
    }
    deft_status st = DEFT_OK;
    df_run_stats mine = { 0 };
    df_buffer *arena = NULL;
    df_run r = { .x = x,
                 .plan = plan,
                 .t = t,
                 .slots = slots,
                 .inputs = io->input,
                 .n_threads = 1,
                 .waiter = io->waiter };
    const uint64_t start = x->measure ? df_os_now_ns() : 0;
    df_run_layout *const f = frame_take(x);
    if (!f) return df_fail_mem(d, "run", sizeof *f);
    const bool again = is_laid_out(&r, f);
    if (!again) TRY(exec_build_layout(&r, d, f));
    for (uint32_t i = 0; i < plan->n_bufs; i++) r.own[i] = NULL;
    TRY(df_run_take_buffers(&r, d, io, &arena, &mine));
    for (uint32_t i = 0; i < plan->n_segs; i++) {
        if (!r.segs[i].kernel) continue;
        if (!again) df_run_bind_extents(&r, &plan->segs[i], &r.segs[i]);
        df_run_bind(&r, &plan->segs[i], &r.segs[i]);
        r.segs[i].args.streams =
            r.segs[i].may_stream && df_run_streams(&r, &plan->segs[i], &r.segs[i]);
        r.segs[i].args.fetches = r.segs[i].fetches;
        r.segs[i].is_zeroed = df_run_is_zeroed(&r, i);
    }
    if (!again) keep(f, &r);
    exec_choose_variants(&r);

    const uint64_t bound = x->measure ? df_os_now_ns() : 0;
    TRY(run_launches(&r, d, io, &mine));
    if (x->measure) {
        mine.t_bind_ns = bound - start;
        mine.t_run_ns = df_os_now_ns() - bound;
    }
    df_run_hand_out(&r, io);
done:
    if (r.is_inside) df_tiers_leave(x->tiers);
    if (r.own) df_run_drop_buffers(&r);
    df_buffer_drop(&arena);
    frame_give(x, f);
    if (stats) *stats = mine;
    return st;
}
