/* SPDX-License-Identifier: Apache-2.0
 *
 * scatter_* and index_*: each value meets the element of the result that an index selects. The
 * text below says *added*; a value may also be multiplied, stored, or compared. Both are one walk
 * over a box of values, in row-major order. Some axes of the box are *kept*: they are axes of the
 * result. Values along the other axes may meet one element.
 *
 *      scatter_*     index [A, W]    result [n, W]   kept: W     an index for each value
 *      index_*       index [A]       result [n, W]   kept: W     an index for each row of W
 *
 * Each element of the result is a chain of additions in the order of that walk (base/limits.h). So
 * threads divide a kept axis, the longest one. Every thread walks over all indices, in order, for
 * its part of that axis. Caches of threads would exchange the lines of narrow parts all the time.
 * There the thread adds to a copy of its part of the result, a *strip*. When no kept axis is long,
 * one thread does all the work. There are two exceptions:
 *
 *   - The order of additions shows in no bit of an integer. When integers are added and the result
 *     is much smaller than the box, threads divide the box. Each adds to a table of its own. The
 *     tables are added up. A result of few elements has several tables for each thread, its
 *     *ways*, to which neighbouring values are added in turn. So an addition need not wait for the
 *     one before when both have the same index.
 *   - When the result is so large that most additions miss the caches, threads divide the indexed
 *     axis of the result, and each skips the indices of others. The same is done when each index
 *     stands for a long row of values: whole rows are read faster than parts of all rows. The
 *     pieces then get nearly equal numbers of indices. When one element has too many of them, a
 *     kept axis is divided.
 */
#include "runtime/exec/scatter_add.h"
#include "runtime/routine.h"

#include "base/compiler.h"

#include <stdatomic.h>
#include <string.h>

#define WORTH_WAKING ((int64_t)1 << 15)   /* values */
#define WORTH_SHARING ((int64_t)1 << 18)  /* values, where each thread looks at all indices */
#define BEYOND_CACHES ((int64_t)16 << 20) /* bytes of the result */
#define LEAST_PIECE 64 /* elements along the last axis, where there are enough for all threads */
#define PIECES_PER_THREAD 2
#define PIECES_WITH_TABLES 4 /* for each thread: tables belong to threads, not to pieces */
#define WORTH_A_PIECE ((int64_t)1 << 14) /* values */
#define NARROW_BYTES 512 /* of a piece of a row: processors fetch the line beside one in use */
#define WAY_BYTES 4096   /* of a table, so that the first cache holds all ways of a thread */
#define LONG_ROW 64      /* values of one index, so that the thread may look at indices of others */
#define LEAST_VALUES 8   /* of a piece, for each element of the table that the piece adds to */
enum { LINE = 64 };
enum { BUCKETS = 256, MOST_CUTS = 32, SAMPLES = 16 };

/* ---- the walk ---- */

static void drop_axis(df_scatter_job *j, uint32_t axis)
{
    const size_t size = (--j->rank - axis) * sizeof *j->extent;
    memmove(j->extent + axis, j->extent + axis + 1, size);
    memmove(j->out_step + axis, j->out_step + axis + 1, size);
    memmove(j->index_step + axis, j->index_step + axis + 1, size);
    memmove(j->value_step + axis, j->value_step + axis + 1, size);
}

/* Returns true when axes i and i + 1 can be merged into one axis. */
static bool is_one(const df_scatter_job *j, uint32_t i)
{
    const int64_t n = j->extent[i + 1];
    return j->out_step[i] == n * j->out_step[i + 1] &&
           j->index_step[i] == n * j->index_step[i + 1] &&
           j->value_step[i] == n * j->value_step[i + 1];
}

static void scatter_merge(df_scatter_job *j)
{
    for (uint32_t i = j->rank; i-- > 0;)
        if (j->extent[i] == 1) drop_axis(j, i);
    for (uint32_t i = j->rank; i-- > 1;)
        if (is_one(j, i - 1)) {
            j->extent[i] *= j->extent[i - 1];
            drop_axis(j, i - 1);
        }
}

/* Advances `at` to the next position over the outer axes. Returns false after the last one. */
static bool scatter_advance(const df_scatter_job *j, uint32_t n_outer, int64_t at[DEFT_MAX_RANK])
{
    for (uint32_t i = n_outer; i-- > 0;) {
        if (++at[i] < j->extent[i]) return true;
        at[i] = 0;
    }
    return false;
}

static int64_t offset(const int64_t *step, const int64_t *at, uint32_t n)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += step[i] * at[i];
    return sum;
}

/* Combines the values whose index is in [low, end). Returns false when some index is out of range.
 * way: see df_scatter_nest. */
static bool walk(const df_scatter_job *j, int64_t low, int64_t end, int64_t way)
{
    const uint32_t n_outer = j->rank > 2 ? j->rank - 2 : 0;
    const int64_t size = (int64_t)deft_dtype_size(j->dtype);
    const int64_t index_size = (int64_t)deft_dtype_size(j->index_dtype);
    df_scatter_nest x = {
        .n = j->n, .step = j->step, .low = low, .end = end, .extent = { 1, 1 }, .way = way
    };
    x.how = j->how;
    x.index_dtype = j->index_dtype;
    x.dtype = j->dtype;
    x.ops = df_lane_ops_best();
    bool (*const run)(const df_scatter_nest *, char *, const char *) =
        j->how == DF_SCATTER_ADD ? df_scatter_nest_add : df_scatter_nest_combine;
    int64_t at[DEFT_MAX_RANK] = { 0 };
    bool ok = true;
    for (uint32_t k = 0; k < 2 && k < j->rank; k++) {
        x.extent[k] = j->extent[j->rank - 1 - k];
        x.out_step[k] = j->out_step[j->rank - 1 - k];
        x.index_step[k] = j->index_step[j->rank - 1 - k];
        x.value_step[k] = j->value_step[j->rank - 1 - k];
    }
    do {
        x.index = j->index + offset(j->index_step, at, n_outer) * index_size;
        ok &= run(&x, j->out + offset(j->out_step, at, n_outer) * size,
                  j->value + offset(j->value_step, at, n_outer) * size);
    } while (scatter_advance(j, n_outer, at));
    return ok;
}

/* ---- threads ---- */

/* How the threads divide a job. */
typedef struct share {
    const df_scatter_job *j;
    uint32_t axis; /* the axis of the box that is divided; j->rank: the indexed axis */
    int64_t n_pieces, grain;
    /* Threads add to tables, [n][kept axes] row-major: each to n_ways tables of its own. But with
     * one way thread 0 adds to the result. 0: there are no tables. */
    int64_t n_ways;
    uint32_t n_threads;
    int64_t table_size; /* bytes, a multiple of 64 */
    char *tables;       /* by thread and way. Behind the last is a flag for each thread: it used
                         * its tables */
    int64_t strip_size; /* bytes of the strip of a piece, a multiple of 64; 0: there are none */
    char *strips;
    /* Where pieces of the indexed axis begin, and the end. Used when has_cuts is set. */
    bool has_cuts;
    int64_t cut[MOST_CUTS + 1];
    atomic_bool has_bad;
} share;

static int64_t scatter_begin_of(const share *s, int64_t piece)
{
    if (s->has_cuts) return s->cut[piece];
    const int64_t extent = s->axis < s->j->rank ? s->j->extent[s->axis] : s->j->n;
    const int64_t grains = (extent + s->grain - 1) / s->grain;
    const int64_t whole = grains / s->n_pieces, rest = grains % s->n_pieces;
    return df_min_i64((whole * piece + rest * piece / s->n_pieces) * s->grain, extent);
}

static int64_t n_tables(const share *s)
{
    if (s->n_ways == 0) return 0;
    return s->n_ways == 1 ? (int64_t)s->n_threads - 1 : (int64_t)s->n_threads * s->n_ways;
}

static size_t share_work_size(const share *s)
{
    if (s->n_ways == 0) return (size_t)(s->n_pieces * s->strip_size);
    return (size_t)(n_tables(s) * s->table_size) + (s->n_threads + LINE - 1) / LINE * LINE;
}

static char *used_flag(const share *s, uint32_t thread)
{
    return s->tables + n_tables(s) * s->table_size + thread;
}

/* The first table of a thread. NULL: the thread adds to the result. */
static char *table_of(const share *s, uint32_t thread)
{
    if (s->n_ways == 1) return thread == 0 ? NULL : s->tables + (thread - 1) * s->table_size;
    return s->tables + thread * s->n_ways * s->table_size;
}

/* Makes j add to a table of the thread. The first time, the tables are filled with zeros. */
static void add_to_table(df_scatter_job *j, const share *s, uint32_t thread)
{
    int64_t step = 1;
    char *const table = table_of(s, thread);
    if (!table) return;
    if (!*used_flag(s, thread)) memset(table, 0, (size_t)(s->n_ways * s->table_size));
    *used_flag(s, thread) = 1;
    for (uint32_t i = j->rank; i-- > 0;) {
        if (j->out_step[i] == 0) continue;
        j->out_step[i] = step;
        step *= j->extent[i];
    }
    j->step = step;
    j->out = table;
}

/* Copies the part of the result that j adds to into a strip, or back. */
static void copy_strip(const df_scatter_job *j, char *strip, bool back)
{
    const int64_t size = (int64_t)deft_dtype_size(j->dtype), row = j->extent[1] * size;
    for (int64_t i = 0; i < j->n; i++) {
        char *const at = j->out + i * j->step * size;
        memcpy(back ? at : strip + i * row, back ? strip + i * row : at, (size_t)row);
    }
}

static bool walk_strip(const df_scatter_job *given, char *strip)
{
    df_scatter_job j = *given;
    copy_strip(&j, strip, false);
    j.out = strip;
    j.step = j.extent[1];
    const bool ok = walk(&j, 0, j.n, 0);
    copy_strip(given, strip, true);
    return ok;
}

static void walk_piece(void *user, uint32_t piece, uint32_t thread)
{
    share *const s = user;
    const int64_t begin = scatter_begin_of(s, piece), end = scatter_begin_of(s, piece + 1);
    df_scatter_job j = *s->j;
    bool ok;
    if (s->axis < j.rank) {
        const int64_t size = (int64_t)deft_dtype_size(j.dtype);
        if (s->n_ways > 0) add_to_table(&j, s, thread);
        j.extent[s->axis] = end - begin;
        j.out += begin * j.out_step[s->axis] * size;
        j.index += begin * j.index_step[s->axis] * (int64_t)deft_dtype_size(j.index_dtype);
        j.value += begin * j.value_step[s->axis] * size;
        ok = s->strip_size > 0 ? walk_strip(&j, s->strips + piece * s->strip_size)
                               : walk(&j, 0, j.n, s->n_ways > 1 ? s->table_size / size : 0);
    } else {
        ok = walk(&j, begin, end, 0);
    }
    if (!ok) atomic_store_explicit(&s->has_bad, true, memory_order_relaxed);
}

/* Adds up the tables. They are boxes of values whose axes are all kept. */
static void add_tables(const share *s)
{
    const int64_t zero = 0;
    df_scatter_job sum = { .dtype = s->j->dtype,
                           .index_dtype = DEFT_I64,
                           .out = s->j->out,
                           .index = (const char *)&zero,
                           .n = 1 };
    int64_t step = 1;
    sum.rank = 1;
    for (uint32_t i = 0; i < s->j->rank; i++) sum.rank += s->j->out_step[i] != 0;
    for (uint32_t i = s->j->rank, k = sum.rank; i-- > 0;) {
        if (s->j->out_step[i] == 0) continue;
        k--;
        sum.extent[k] = s->j->extent[i];
        sum.out_step[k] = s->j->out_step[i];
        sum.value_step[k] = step;
        step *= s->j->extent[i];
    }
    sum.extent[0] = s->j->n;
    sum.out_step[0] = s->j->step;
    sum.value_step[0] = step;
    scatter_merge(&sum);
    for (uint32_t thread = 0; thread < s->n_threads; thread++) {
        const char *const first = table_of(s, thread);
        if (!first || !*used_flag(s, thread)) continue;
        for (int64_t k = 0; k < s->n_ways; k++) {
            sum.value = first + k * s->table_size;
            walk(&sum, 0, 1, 0);
        }
    }
}

/* Returns true when s divides the box along an axis that is not kept, with tables. */
static bool divide_by_tables(share *s, int64_t total, uint32_t n_threads)
{
    const df_scatter_job *const j = s->j;
    int64_t n_table = j->n;
    uint32_t axis = j->rank;
    if (df_is_float(j->dtype) || j->how != DF_SCATTER_ADD) return false;
    for (uint32_t i = 0; i < j->rank; i++) {
        if (j->out_step[i] != 0)
            n_table *= j->extent[i];
        else if (axis == j->rank || j->extent[i] > j->extent[axis])
            axis = i;
    }
    if (axis == j->rank || n_table <= 0) return false;
    const int64_t bytes = n_table * (int64_t)deft_dtype_size(j->dtype);
    const int64_t most = df_min_i64(j->extent[axis], total / WORTH_A_PIECE);
    const int64_t threads = df_min_i64(n_threads, df_min_i64(most, total / LEAST_VALUES / n_table));
    const bool has_ways = j->rank == 1 && j->index_step[0] != 0 && bytes <= WAY_BYTES &&
                          threads > 0 &&
                          total / LEAST_VALUES / DF_SCATTER_WAYS / n_table >= threads;
    if (threads < (has_ways ? 1 : 2)) return false;
    s->n_pieces = threads < 2 ? 1 : df_min_i64(most, threads * PIECES_WITH_TABLES);
    s->axis = axis;
    s->grain = 1;
    s->n_ways = has_ways ? DF_SCATTER_WAYS : 1;
    s->n_threads = n_threads;
    s->table_size = (bytes + LINE - 1) / LINE * LINE;
    return true;
}

/* Gives each piece a strip, where pieces of rows are narrow and many values meet in an element. */
static void divide_into_strips(share *s)
{
    const df_scatter_job *const j = s->j;
    const int64_t size = (int64_t)deft_dtype_size(j->dtype);
    if (j->rank != 2 || s->axis != 1 || s->n_pieces < 2 || j->out_step[0] != 0 ||
        j->out_step[1] != 1 || j->extent[0] / LEAST_VALUES < j->n)
        return;
    const int64_t grains = (j->extent[1] + s->grain - 1) / s->grain;
    const int64_t widest = (grains + s->n_pieces - 1) / s->n_pieces * s->grain * size;
    if (widest >= NARROW_BYTES) return;
    s->strip_size = (j->n * widest + LINE - 1) / LINE * LINE;
}

/* Decides how n_threads divide j. With n_pieces == 1 it is not divided. */
static share scatter_divide(const df_scatter_job *j, uint32_t n_threads)
{
    share s = { .j = j, .axis = j->rank, .n_pieces = 1, .grain = 1 };
    int64_t total = 1;
    for (uint32_t i = 0; i < j->rank; i++) {
        total *= j->extent[i];
        if (j->out_step[i] == 0) continue;
        if (s.axis == j->rank || j->extent[i] > j->extent[s.axis]) s.axis = i;
    }
    if (total < WORTH_WAKING) return s;
    int64_t most = 0, pieces = (int64_t)n_threads * PIECES_PER_THREAD;
    const int64_t size = (int64_t)deft_dtype_size(j->dtype), bytes = j->n * size;
    if (s.axis < j->rank) {
        /* Pieces share no cache line. */
        const bool is_last = s.axis + 1 == j->rank;
        s.grain = is_last ? LINE / size : 1;
        most = (j->extent[s.axis] + s.grain - 1) / s.grain;
        if (is_last && j->extent[s.axis] / pieces < LEAST_PIECE) pieces = n_threads;
    }
    if (most < n_threads || n_threads < 2) {
        share by_tables = s;
        if (divide_by_tables(&by_tables, total, n_threads)) return by_tables;
        if (n_threads < 2) return s;
        if (total >= WORTH_SHARING && bytes >= BEYOND_CACHES) {
            s.axis = j->rank;
            s.grain = 1;
            most = n_threads;
        }
    }
    s.n_pieces = df_max_i64(df_min_i64(most, pieces), 1);
    divide_into_strips(&s);
    return s;
}

/* Returns true when each index of j stands for a long row of neighbouring values. */
static bool has_long_rows(const df_scatter_job *j)
{
    return j->rank == 2 && j->index_step[0] != 0 && j->index_step[1] == 0 && j->out_step[1] == 1 &&
           j->value_step[1] == 1 && j->extent[1] >= LONG_ROW;
}

/* Counts the indices of each bucket, which is 2^shift elements of the indexed axis, and returns how
 * many were looked at. Indices that are out of range are left out. The threads wait meanwhile, so
 * that at most SAMPLES parts of all indices are looked at, at equal distances. */
static int64_t count_indices(const df_scatter_job *j, int shift, int64_t n_in[BUCKETS])
{
    const df_lane_ops *const ops = df_lane_ops_best();
    const int64_t bytes = j->index_step[0] * (int64_t)deft_dtype_size(j->index_dtype);
    const int64_t n_parts = (j->extent[0] + DF_SCATTER_CHUNK - 1) / DF_SCATTER_CHUNK;
    const int64_t n_samples = df_min_i64(n_parts, SAMPLES);
    int64_t copy[DF_SCATTER_CHUNK], looked_at = 0;
    for (int64_t sample = 0; sample < n_samples; sample++) {
        const int64_t begin = sample * n_parts / n_samples * DF_SCATTER_CHUNK;
        const int64_t n = df_min_i64(j->extent[0] - begin, DF_SCATTER_CHUNK);
        const df_any_i64 *const index = df_scatter_indices(
            ops, j->index_dtype, j->index + begin * bytes, j->index_step[0], n, copy);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = index[i];
            if (df_scatter_resolve(&at, j->n)) n_in[at >> shift]++;
        }
        looked_at += n;
    }
    return looked_at;
}

/* Divides the indexed axis so that each piece has about as many indices. Returns false, and changes
 * nothing, when j has no long rows or when one piece would have much more than its share. */
static bool divide_by_rows(share *s, uint32_t n_threads)
{
    const df_scatter_job *const j = s->j;
    const int64_t n = n_threads < MOST_CUTS ? n_threads : MOST_CUTS;
    if (!has_long_rows(j) || j->n < n) return false;
    int64_t n_in[BUCKETS] = { 0 }, cut[MOST_CUTS + 1] = { 0 }, n_before = 0, n_at_cut = 0;
    int64_t piece = 1;
    int shift = 0;
    while ((j->n - 1) >> shift >= BUCKETS) shift++;
    const int64_t n_all = count_indices(j, shift, n_in), fair = n_all / n;
    for (int64_t b = 0; b < BUCKETS && piece < n; b++) {
        n_before += n_in[b];
        if (n_before < fair * piece) continue;
        if (n_before - n_at_cut > fair + fair / 4) return false;
        cut[piece++] = df_min_i64((b + 1) << shift, j->n);
        n_at_cut = n_before;
    }
    if (piece < n || n_all - n_at_cut > fair + fair / 4) return false;
    cut[n] = j->n;
    memcpy(s->cut, cut, sizeof cut);
    s->has_cuts = true;
    s->strip_size = 0;
    s->axis = j->rank;
    s->n_pieces = n;
    return true;
}

/* ---- routine.h ---- */

static bool scatter_is_empty(const df_scatter_job *j)
{
    for (uint32_t i = 0; i < j->rank; i++)
        if (j->extent[i] == 0) return true;
    return false;
}

/* Looks for an index that is out of range among n neighbours along one axis. */
static bool check_line(const df_scatter_job *j, const char *from, int64_t step, int64_t n,
                       int64_t *bad)
{
    const df_lane_ops *const ops = df_lane_ops_best();
    const uint64_t extent = (uint64_t)j->n;
    int64_t copy[DF_SCATTER_CHUNK];
    for (int64_t begin = 0; begin < n; begin += DF_SCATTER_CHUNK) {
        const int64_t here = df_min_i64(n - begin, DF_SCATTER_CHUNK);
        const int64_t bytes = begin * step * (int64_t)deft_dtype_size(j->index_dtype);
        const df_any_i64 *const index =
            df_scatter_indices(ops, j->index_dtype, from + bytes, step, here, copy);
        int64_t n_bad = 0;
        for (int64_t i = 0; i < here; i++) n_bad += (uint64_t)index[i] + extent >= 2 * extent;
        for (int64_t i = 0; n_bad > 0 && i < here; i++) {
            *bad = index[i];
            int64_t resolved = *bad;
            if (!df_scatter_resolve(&resolved, j->n)) return false;
        }
    }
    return true;
}

bool df_scatter_check(const df_scatter_job *given, int64_t *bad)
{
    df_scatter_job j = *given;
    if (scatter_is_empty(&j)) return true;
    for (uint32_t i = j.rank; i-- > 0;)
        if (j.index_step[i] == 0) drop_axis(&j, i);
    memset(j.out_step, 0, sizeof j.out_step);
    memset(j.value_step, 0, sizeof j.value_step);
    scatter_merge(&j);
    const uint32_t last = j.rank > 0 ? j.rank - 1 : 0;
    const int64_t n = j.rank > 0 ? j.extent[last] : 1, step = j.rank > 0 ? j.index_step[last] : 0;
    const int64_t size = (int64_t)deft_dtype_size(j.index_dtype);
    int64_t at[DEFT_MAX_RANK] = { 0 };
    do {
        const char *const line = j.index + offset(j.index_step, at, last) * size;
        if (!check_line(&j, line, step, n, bad)) return false;
    } while (scatter_advance(&j, last, at));
    return true;
}

size_t df_scatter_work_size(const df_scatter_job *given, uint32_t n_threads)
{
    df_scatter_job j = *given;
    if (scatter_is_empty(&j)) return 0;
    scatter_merge(&j);
    const share s = scatter_divide(&j, n_threads);
    return share_work_size(&s);
}

bool df_scatter(const df_scatter_job *given, df_pool *pool, void *work, int64_t *bad)
{
    df_scatter_job j = *given;
    if (scatter_is_empty(&j)) return true;
    scatter_merge(&j);
    share s = scatter_divide(&j, df_pool_threads(pool));
    s.tables = s.strips = work;
    if (s.n_ways > 0) memset(used_flag(&s, 0), 0, s.n_threads);
    if (s.n_pieces > 1 && s.n_ways == 0) (void)divide_by_rows(&s, df_pool_threads(pool));
    if (s.n_pieces > 1 || s.n_ways > 0)
        df_pool_run(pool, (uint32_t)s.n_pieces, walk_piece, &s);
    else if (!walk(&j, 0, j.n, 0))
        s.has_bad = true;
    if (s.has_bad) return df_scatter_check(&j, bad);
    if (s.n_ways > 0) add_tables(&s);
    return true;
}
