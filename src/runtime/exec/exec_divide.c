/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides which launches of a run are executed in parallel, and divides segments into items and
 * tasks (exec.c).
 */
#include "runtime/exec/exec_run.h"
#include "runtime/row_copies.h"

#include <math.h>

/* A launch that takes more than DF_POOL_LONG_NS runs in parallel. A task should take at least
 * TASK_NS. */
#define TASK_NS 12e3
/* The same for a launch in a plan that wakes the workers in other launches. Such a launch runs in
 * parallel when df_pool_share says so. */
#define AWAKE_NS 10e3
#define AWAKE_TASK_NS 4e3
#define TASKS_PER_THREAD 8

/* INNER is divided at multiples of these, so that neighbouring items share no cache line. COL_GRAIN
 * also serves LOOP. */
enum { MAP_GRAIN = 4096, COL_GRAIN = 256 };

enum { LONG_PART = 1024 }; /* elements of a row that reads of columns take in one run */

/* A thin segment, with at most THIN elements per row, is co-scheduled with a wide one that has as
 * many rows. An example are the border columns of an array whose inside is written. The ends of a
 * row are then written by the same thread as the rest of the row, while its cache lines are
 * in the cache. */
enum { THIN = 16 };

/* Segments that only copy, and into the same rows, are co-scheduled, too (row_copies.h). The pieces
 * of a concatenation do so, and those of rolled and of padded arrays. Fewer rows than FEW_ROWS are
 * not divided evenly, and longer ones than LONG_ROW_BYTES share few lines. */
enum { FEW_ROWS = 64, LONG_ROW_BYTES = 65536 };

enum { FROM, TO }; /* the accesses of a kernel that copies */

/* Rows of a kernel with transposed operands are computed in strips of so many rows
 * (jit_llvm/rows/squares.c), and strips of fewer rows much more slowly. Where each thread has
 * MANY_STRIPS of them, they are taken two at a time. Processors read lines in pairs, and both lines
 * of a pair of transposed f32 are then read by one thread. Where strips are fewer than the tasks,
 * rows are divided, at multiples of TILE_GRAIN. */
enum { STRIP = 16, MANY_STRIPS = 8, TILE_GRAIN = 512 };

/* Divides a row into about `want` parts. Each is a multiple of grain, except the last. */
static void divide_row(df_seg_run *s, int64_t extent, int64_t want, int64_t grain)
{
    s->part_extent = extent;
    s->grain = grain;
    s->parts = df_min_i64(want, df_div_up(extent, grain));
}

/* The rows of s that stay together. */
static int64_t rows_together(const df_seg_run *s, uint32_t n_threads)
{
    if (!df_kernel_has_tiles(s->kernel) || s->n_outer < STRIP) return 1;
    return s->n_outer >= (int64_t)STRIP * MANY_STRIPS * n_threads ? 2 * STRIP : STRIP;
}

/* The most parts of the rows of s, which reduces columns. A part of a row is in memory a run of its
 * own. Longer runs are read faster, but each thread gets a part. */
static int64_t most_parts(const df_seg_run *s, uint32_t n_threads)
{
    const int64_t for_all = df_div_up(n_threads, s->n_outer), n = s->n_inner / LONG_PART;
    return n > for_all ? n / for_all * for_all : for_all;
}

/* How much longer the work takes than it would, divided evenly between threads. n: equal shares. */
static double unevenness(double n, uint32_t n_threads)
{
    return ceil(n / n_threads) * n_threads / n;
}

/* Whether threads that share the blocks of the reduced axes are done as soon as those that share
 * the row. The last block may be short. */
static bool split_is_even(const df_seg_run *s, uint32_t n_threads)
{
    const double blocks = (double)s->n_red / DF_BLOCK, n = ceil(blocks / n_threads) * n_threads;
    return s->parts == 1 || n / blocks <= unevenness((double)s->parts, n_threads);
}

/* Divides s into about `want` items, and at least one. `want` is 0 for a segment that is small
 * beside the others of its launch. */
static void divide_segment(df_seg_run *s, int64_t want, uint32_t n_threads)
{
    if (want < 1) want = 1;
    const uint8_t mode = s->kernel->mode;
    const bool may_split = (s->kernel->flags & DF_KERNEL_SPLIT) && s->n_red > DF_BLOCK;
    const bool has_tiles = df_kernel_has_tiles(s->kernel);
    s->row_grain = rows_together(s, n_threads);
    const int64_t most = has_tiles && s->n_outer < STRIP ? 1 : s->n_outer / s->row_grain;
    const int64_t wanted = has_tiles ? (want + most / 2) / most : df_div_up(want, most);
    const bool whole_rows = wanted <= 1 || s->riders != DF_NONE;
    const int64_t per_row = whole_rows            ? 1
                            : mode == DF_MODE_COL ? df_min_i64(wanted, most_parts(s, n_threads))
                                                  : wanted;
    const int64_t grain = mode != DF_MODE_MAP ? COL_GRAIN : has_tiles ? TILE_GRAIN : MAP_GRAIN;
    s->split = false;
    s->groups = df_min_i64(want, most);
    divide_row(s, s->n_inner, 1, s->n_inner);
    if (per_row > 1 && mode != DF_MODE_ROW) divide_row(s, s->n_inner, per_row, grain);
    if (per_row > 1 && may_split && s->parts < per_row / 2 + 1 && split_is_even(s, n_threads)) {
        s->split = true;
        divide_row(s, df_div_up(s->n_red, DF_BLOCK), per_row, 1);
    }
    s->n_items = (uint32_t)(s->groups * s->parts);
}

static bool segment_has_rows(const df_seg_run *s)
{
    return s->kernel && s->kernel->mode == DF_MODE_MAP && s->n_outer > 1 && s->n_inner > 0;
}

/* The latest wide segment from `first` up to but excluding i that has as many rows as segment i, or
 * NULL. The faces of a cube come between its inside and its border columns. */
static df_seg_run *wide_segment(df_run *r, uint32_t first, uint32_t i)
{
    for (uint32_t k = i; k-- > first;) {
        df_seg_run *const u = &r->segs[k];
        if (r->plan->segs[k].kind == DF_SEG_KERNEL && u->n_inner > THIN && !u->rides &&
            u->n_outer == r->segs[i].n_outer && segment_has_rows(u))
            return u;
    }
    return NULL;
}

static uint32_t count_riders(const df_run *r, const df_seg_run *s)
{
    uint32_t n = 0;
    for (uint32_t i = s->riders; i != DF_NONE; i = r->segs[i].next_rider) n++;
    return n;
}

static int64_t copy_stride(const df_run *r, const df_seg *seg, uint32_t access, uint32_t axis)
{
    return df_run_slot(r, seg->bind[access].stride[axis]);
}

/* Whether the kernel stores what it loads. A bool is stored as 0 or 1, whatever it was. */
static bool kernel_copies(const df_kernel *k)
{
    return k->mode == DF_MODE_MAP && k->n_ins == 2 && k->n_access == 2 &&
           k->ins[0].op == DF_K_load && k->ins[0].imm == FROM && k->ins[1].op == DF_K_store &&
           k->ins[1].imm == TO && k->access[FROM].kind == DF_ACCESS_LOAD &&
           k->access[FROM].dtype == k->access[TO].dtype && k->access[TO].dtype != DEFT_BOOL;
}

/* Whether segment i only copies rows, which are short, through the caches. */
static bool copies_rows(const df_run *r, uint32_t i)
{
    const df_seg *const seg = &r->plan->segs[i];
    const df_seg_run *const s = &r->segs[i];
    if (seg->kind != DF_SEG_KERNEL || !segment_has_rows(s) || !kernel_copies(s->kernel) ||
        s->may_stream)
        return false;
    const uint32_t inner = s->kernel->n_axes - 1u;
    const int64_t size = (int64_t)deft_dtype_size((deft_dtype)s->kernel->access[TO].dtype);
    const int64_t pitch = copy_stride(r, seg, TO, inner - 1);
    return copy_stride(r, seg, TO, inner) == 1 && pitch > 0 && pitch <= LONG_ROW_BYTES / size &&
           (copy_stride(r, seg, FROM, inner) == 1 || s->n_inner <= THIN);
}

/* Whether segment i copies short rows whose elements are no neighbours in the array that is read.
 * The code of the kernel would load each element by itself. */
static bool copies_short_rows(const df_run *r, uint32_t i)
{
    const df_seg *const seg = &r->plan->segs[i];
    const df_seg_run *const s = &r->segs[i];
    int64_t extent[DF_MAX_AXES], from[DF_MAX_AXES], to[DF_MAX_AXES];
    if (!segment_has_rows(s) || s->n_inner > THIN || s->n_outer < FEW_ROWS ||
        !kernel_copies(s->kernel) || df_kernel_has_tiles(s->kernel))
        return false;
    const uint32_t inner = s->kernel->n_axes - 1u;
    for (uint32_t x = 0; x <= inner; x++) {
        extent[x] = df_run_slot(r, seg->extent[x]);
        from[x] = copy_stride(r, seg, FROM, x);
        to[x] = copy_stride(r, seg, TO, x);
    }
    const df_row_copy c = { .from_stride = from,
                            .to_stride = to,
                            .n = (size_t)s->n_inner,
                            .size = deft_dtype_size((deft_dtype)s->kernel->access[TO].dtype) };
    return to[inner] == 1 && from[inner] != 0 && from[inner] != 1 &&
           df_has_short_rows(&c, extent, inner);
}

/* Whether segments i and j, which copy rows, copy into the same rows. */
static bool have_same_rows(const df_run *r, uint32_t i, uint32_t j)
{
    const df_seg *const a = &r->plan->segs[i], *const b = &r->plan->segs[j];
    const uint32_t n_axes = r->segs[i].kernel->n_axes;
    if (r->segs[j].kernel->n_axes != n_axes || a->bind[TO].buf.i != b->bind[TO].buf.i) return false;
    for (uint32_t x = 0; x + 1 < n_axes; x++)
        if (df_run_slot(r, a->extent[x]) != df_run_slot(r, b->extent[x]) ||
            copy_stride(r, a, TO, x) != copy_stride(r, b, TO, x))
            return false;
    return true;
}

/* The segment with which segment i, which copies rows, is co-scheduled: the first wide one from
 * `first` up to but excluding `end` that copies into the same rows, else the first thin one before
 * i. A wide segment looks only before itself. NULL: there is none, or others are co-scheduled with
 * segment i. */
static df_seg_run *joined_segment(df_run *r, uint32_t first, uint32_t end, uint32_t i)
{
    df_seg_run *const s = &r->segs[i], *thin = NULL;
    if (s->riders != DF_NONE || s->n_outer < FEW_ROWS || !copies_rows(r, i)) return NULL;
    if (s->n_inner > THIN) end = i;
    for (uint32_t k = first; k < end; k++) {
        df_seg_run *const u = &r->segs[k];
        if (k == i || u->rides || !copies_rows(r, k) || !have_same_rows(r, i, k) ||
            count_riders(r, u) + 1 >= DF_MOST_ROW_COPIES)
            continue;
        if (u->n_inner > THIN) return u;
        if (k < i && !thin) thin = u;
    }
    return thin;
}

static void add_rider(df_run *r, df_seg_run *under, uint32_t i)
{
    df_seg_run *const s = &r->segs[i];
    df_assert(under != s && !under->rides && s->riders == DF_NONE);
    uint32_t *last = &under->riders;
    while (*last != DF_NONE) last = &r->segs[*last].next_rider;
    *last = i;
    s->rides = true;
    s->next_rider = DF_NONE;
    under->ns += s->ns;
    under->code_ns += s->code_ns;
}

static void find_riders(df_run *r, const df_launch *l, uint32_t n)
{
    const uint32_t end = l->first + n;
    for (uint32_t i = l->first; i < end; i++) {
        df_seg_run *const s = &r->segs[i];
        if (r->plan->segs[i].kind != DF_SEG_KERNEL || !segment_has_rows(s)) continue;
        df_seg_run *u = joined_segment(r, l->first, end, i);
        if (u)
            u->copies_rows = s->copies_rows = true;
        else if (s->n_inner <= THIN)
            u = wide_segment(r, l->first, i);
        if (u) add_rider(r, u, i);
    }
}

/* Returns the estimated time of s, or with `by_code` that of code, which s may not have yet. */
static double segment_ns(const df_seg_run *s, bool by_code)
{
    return by_code ? fmax(df_seg_run_code_ns(s), s->bytes * DF_MEMORY_NS) : s->ns;
}

/* Returns the estimated time of the kernels of a launch that run side by side. */
static double sum_launch_ns(const df_run *r, const df_launch *l, bool by_code)
{
    double total = 0;
    for (uint32_t i = l->first; i < l->first + l->n - l->n_after; i++)
        if (r->plan->segs[i].kind == DF_SEG_KERNEL && !r->segs[i].rides)
            total += segment_ns(&r->segs[i], by_code);
    return total;
}

/* Whether some launch of the plan surely wakes the workers. */
static bool wakes_workers(const df_run *r, bool by_code)
{
    for (uint32_t i = 0; i < r->plan->n_launches; i++) {
        const df_launch *const l = &r->plan->launches[i];
        if (sum_launch_ns(r, l, by_code) > DF_POOL_LONG_NS) return true;
        for (uint32_t j = l->first; j < l->first + l->n; j++)
            if (r->plan->segs[j].kind == DF_SEG_MATMUL) return true;
    }
    return false;
}

/* Whether a launch that takes `ns` is divided. `wakes`: the workers may be awake when it begins. */
static bool runs_in_parallel(double ns, uint32_t pool_threads, bool wakes)
{
    return pool_threads > 1 && (ns > DF_POOL_LONG_NS || (wakes && ns > AWAKE_NS));
}

/* Finds the segments of a launch that are not divided. Those that are interpreted count as if they
 * had code. */
static void find_whole_segments(df_run *r, const df_launch *l, uint32_t pool_threads)
{
    bool has_code = true;
    for (uint32_t i = l->first; i < l->first + l->n; i++) {
        df_seg_run *const s = &r->segs[i];
        s->runs_whole = s->n_items == 1;
        has_code &= s->code || r->plan->segs[i].kind != DF_SEG_KERNEL;
    }
    if (has_code) return;
    const double ns = sum_launch_ns(r, l, true);
    const bool is_whole =
        !runs_in_parallel(ns, pool_threads, ns > AWAKE_NS && wakes_workers(r, true));
    for (uint32_t i = l->first; i < l->first + l->n; i++)
        if (!r->segs[i].code) r->segs[i].runs_whole = is_whole;
}

/* `wakes`: the workers may be awake when the launch begins. */
static uint32_t divide_launch(df_run *r, const df_launch *l, uint32_t pool_threads, bool wakes)
{
    uint32_t n_items = 0;
    const uint32_t n_beside = l->n - l->n_after;
    if (n_beside > 1) find_riders(r, l, n_beside);
    const double total = sum_launch_ns(r, l, false);
    const bool is_short = total <= DF_POOL_LONG_NS;
    const bool parallel = runs_in_parallel(total, pool_threads, wakes);
    const double least = is_short ? AWAKE_TASK_NS : TASK_NS;
    double target = total / (pool_threads * TASKS_PER_THREAD);
    /* The number of tasks is a multiple of the number of threads, so that all end together. */
    if (target < least)
        target = total / (pool_threads * fmax(1, floor(total / least / pool_threads)));
    for (uint32_t i = 0; i < l->n; i++) {
        df_seg_run *const s = &r->segs[l->first + i];
        s->first_item = n_items;
        if (r->plan->segs[l->first + i].kind != DF_SEG_KERNEL) continue;
        if (s->n_outer <= 0 || s->n_inner <= 0 || s->rides) continue; /* no items of its own */
        s->copies_short_rows = s->riders == DF_NONE && copies_short_rows(r, l->first + i);
        divide_segment(s, parallel && i < n_beside ? (int64_t)ceil(s->ns / target - 1e-6) : 1,
                       pool_threads);
        if (i < n_beside) n_items += s->n_items;
    }
    find_whole_segments(r, l, pool_threads);
    if (l->n > 0) {
        r->segs[l->first].parallel = parallel && n_items > 1;
        r->segs[l->first].is_short = is_short;
        r->segs[l->first].launch_ns = total;
    }
    return parallel ? n_items : 0;
}

void df_run_divide_launches(df_run *r)
{
    const uint32_t pool_threads = df_pool_threads(r->x->pool);
    const bool wakes = pool_threads > 1 && wakes_workers(r, false);
    for (uint32_t i = 0; i < r->plan->n_launches; i++) {
        const uint32_t n = divide_launch(r, &r->plan->launches[i], pool_threads, wakes);
        if (n > 1) r->n_threads = pool_threads;
        if (n > r->max_items) r->max_items = n;
    }
}

uint32_t df_run_make_tasks(df_run *r, const df_launch *l)
{
    uint32_t n = 0, item = 0;
    const double least = 0.99 * (r->segs[l->first].is_short ? AWAKE_TASK_NS : TASK_NS);
    double ns = least;
    for (uint32_t i = 0; i < l->n - l->n_after; i++) {
        const df_seg_run *const s = &r->segs[l->first + i];
        for (uint32_t j = 0; j < s->n_items; j++, item++) {
            if (ns >= least) {
                r->task_begin[n++] = item;
                ns = 0;
            }
            ns += s->ns / s->n_items;
        }
    }
    r->task_begin[n] = item;
    return n;
}
