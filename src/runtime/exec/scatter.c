/* SPDX-License-Identifier: Apache-2.0
 *
 * scatter_add and index_add: each value is added to the element of the result that an index
 * selects. Both are one walk over a box of values, in row-major order. Some axes of the box are
 * *kept*: they are axes of the result. Values along the other axes may be added to one element.
 *
 *      scatter_add   index [A, W]    result [n, W]   kept: W     an index for each value
 *      index_add     index [A]       result [n, W]   kept: W     an index for each row of W
 *
 * Each element of the result is a chain of additions in the order of that walk (base/limits.h). So
 * threads divide a kept axis, the longest one. Every thread walks over all indices, in order, for
 * its part of that axis. When no kept axis is long, one thread does all the work. There are two
 * exceptions:
 *
 *   - The order of additions shows in no bit of an integer. When the result is much smaller than
 *     the box, threads divide the box. Each adds to a table of its own. The tables are added up.
 *   - When the result is so large that most additions miss the caches, threads divide the indexed
 *     axis of the result, and each skips the indices of others. The same is done when each index
 *     stands for a long row of values: whole rows are read faster than parts of all rows. The
 *     pieces then get nearly equal numbers of indices. When one element has too many of them, a
 *     kept axis is divided.
 */
#include "runtime/interp/interp_ops.h"
#include "runtime/routine.h"

#include "base/compiler.h"

#include <stdatomic.h>
#include <string.h>

#define WORTH_WAKING ((int64_t)1 << 15)  /* values */
#define WORTH_SHARING ((int64_t)1 << 18) /* values, where each thread looks at all indices */
#define BEYOND_CACHES ((int64_t)4 << 20) /* bytes of the result */
#define LEAST_PIECE 64 /* elements along the last axis, so that pieces share no cache line */
#define PIECES_PER_THREAD 2
#define LONG_ROW 64    /* values of one index, so that the thread may look at indices of others */
#define LEAST_VALUES 8 /* of a piece, for each element of the table that the piece adds to */
enum { CHUNK = 256 };  /* indices that are made i64 at a time */
enum { BUCKETS = 256, MOST_CUTS = 32 };

/* The two innermost axes of the box. Axis 0 here is the last one. */
typedef struct nest {
    int64_t n, step;  /* extent and stride of the indexed axis of out */
    int64_t low, end; /* only indices in [low, end) are added */
    int64_t extent[2], out_step[2], index_step[2], value_step[2];
    const char *index;
    deft_dtype index_dtype;
    df_fold_fn add; /* adds neighbours, by the instructions of this machine */
} nest;

/* Makes n <= CHUNK indices i64. Floats are no indices. */
static void widen(deft_dtype t, const char *from, int64_t step, int64_t n, int64_t *to)
{
#define WIDEN_integer(T)                                                                           \
    for (int64_t i = 0; i < n; i++) {                                                              \
        T v;                                                                                       \
        memcpy(&v, from + (int64_t)sizeof v * i * step, sizeof v);                                 \
        to[i] = (int64_t)v;                                                                        \
    }                                                                                              \
    return
#define WIDEN_natural(T) WIDEN_integer(T)
#define WIDEN_boolean(T) WIDEN_integer(T)
#define WIDEN_real(T) break
#define WIDEN_half(T) break
    switch (t) {
/* clang-format off */
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    case DEFT_##NAME: WIDEN_##kind(c_type);
#include "ops/dtypes.def"
        /* clang-format on */
    }
    df_unreachable();
}

/* Returns n <= CHUNK indices as neighbours: those in memory, or a copy in `copy`. */
DF_INLINE const int64_t *indices(deft_dtype t, const char *from, int64_t step, int64_t n,
                                 int64_t *copy)
{
    if (t == DEFT_I64 && step == 1) return (const int64_t *)(const void *)from;
    widen(t, from, step, n, copy);
    return copy;
}

/* Makes a negative index count from 0. Returns false when the index is outside [-n, n). */
DF_INLINE bool resolve(int64_t *index, int64_t n)
{
    *index += *index < 0 ? n : 0;
    return (uint64_t)*index < (uint64_t)n;
}

/* Returns true when this walk adds to `index`. Clears *ok when the index is out of range. */
DF_INLINE bool is_mine(const nest *x, int64_t *index, bool *ok)
{
    if (DF_UNLIKELY(!resolve(index, x->n))) return *ok = false;
    return *index >= x->low && *index < x->end;
}

static void add_line(df_fold_fn add, void *out, const void *value, int64_t n, size_t size)
{
    enum { MOST = 1 << 30 };
    for (int64_t i = 0; i < n; i += MOST)
        add((char *)out + (size_t)i * size, (const char *)value + (size_t)i * size,
            (uint32_t)df_min_i64(n - i, MOST));
}

#define ADD(name, T)                                                                               \
    static void name##_slice(const nest *x, T *restrict out, const T *restrict value)              \
    {                                                                                              \
        const int64_t n = x->extent[0], out_step = x->out_step[0], value_step = x->value_step[0];  \
        if (out_step == 1 && value_step == 1) {                                                    \
            add_line(x->add, out, value, n, sizeof *out);                                          \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < n; i++)                                                            \
            out[i * out_step] = (T)(out[i * out_step] + value[i * value_step]);                    \
    }                                                                                              \
    /* Most indices are not negative and are added by this walk: one comparison finds out. */      \
    DF_INLINE void name##_line(const nest *x, T *out, const T *value, const int64_t *index,        \
                               int64_t n, int64_t step, int64_t out_step, int64_t value_step,      \
                               bool *ok)                                                           \
    {                                                                                              \
        const uint64_t low = (uint64_t)x->low, span = (uint64_t)(x->end - x->low);                 \
        for (int64_t i = 0; i < n; i++) {                                                          \
            int64_t at = index[i];                                                                 \
            if (DF_UNLIKELY((uint64_t)at - low >= span) && !is_mine(x, &at, ok)) continue;         \
            T *const to = &out[at * step + i * out_step];                                          \
            *to = (T)(*to + value[i * value_step]);                                                \
        }                                                                                          \
    }                                                                                              \
    static void name##_each(const nest *x, T *out, const char *index, const T *value, bool *ok)    \
    {                                                                                              \
        const int64_t bytes = (int64_t)deft_dtype_size(x->index_dtype) * x->index_step[0];         \
        const int64_t os = x->out_step[0], vs = x->value_step[0];                                  \
        int64_t copy[CHUNK];                                                                       \
        for (int64_t begin = 0; begin < x->extent[0]; begin += CHUNK) {                            \
            const int64_t n = df_min_i64(x->extent[0] - begin, CHUNK);                             \
            const int64_t *const some =                                                            \
                indices(x->index_dtype, index + begin * bytes, x->index_step[0], n, copy);         \
            T *const to = out + begin * os;                                                        \
            const T *const from = value + begin * vs;                                              \
            if (x->step == 1 && os == 0 && vs == 0)                                                \
                name##_line(x, to, from, some, n, 1, 0, 0, ok);                                    \
            else                                                                                   \
                name##_line(x, to, from, some, n, x->step, os, vs, ok);                            \
        }                                                                                          \
    }                                                                                              \
    static bool name(const nest *x, char *out_at, const char *value_at)                            \
    {                                                                                              \
        T *const out = (T *)(void *)out_at;                                                        \
        const T *const value = (const T *)(const void *)value_at;                                  \
        bool ok = true;                                                                            \
        for (int64_t i = 0; i < x->extent[1]; i++) {                                               \
            const int64_t bytes = (int64_t)deft_dtype_size(x->index_dtype) * x->index_step[1];     \
            const char *const index = x->index + i * bytes;                                        \
            T *const to = out + i * x->out_step[1];                                                \
            const T *const from = value + i * x->value_step[1];                                    \
            int64_t at;                                                                            \
            if (x->index_step[0] != 0) {                                                           \
                name##_each(x, to, index, from, &ok);                                              \
                continue;                                                                          \
            }                                                                                      \
            widen(x->index_dtype, index, 1, 1, &at);                                               \
            if (is_mine(x, &at, &ok)) name##_slice(x, to + at * x->step, from);                    \
        }                                                                                          \
        return ok;                                                                                 \
    }

/* Integers wrap, so they are added as unsigned integers. Halves do not get here: plans add them up
 * as f32. */
#define ADD_boolean(name, bits, T)
#define ADD_natural(name, bits, T) ADD(add_##name, T)
#define ADD_integer(name, bits, T) ADD(add_##name, uint##bits##_t)
#define ADD_real(name, bits, T) ADD(add_##name, T)
#define ADD_half(name, bits, T)
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file) ADD_##kind(name, bits, c_type)
#include "ops/dtypes.def"
#undef ADD

static bool scatter_values(deft_dtype t, const nest *x, char *out, const char *value)
{
#define CALL_boolean(name) break
#define CALL_natural(name) return add_##name(x, out, value)
#define CALL_integer(name) return add_##name(x, out, value)
#define CALL_real(name) return add_##name(x, out, value)
#define CALL_half(name) break
    switch (t) {
/* clang-format off */
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    case DEFT_##NAME: CALL_##kind(name);
#include "ops/dtypes.def"
        /* clang-format on */
    }
    df_unreachable();
}

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

/* Adds the values whose index is in [low, end). Returns false when some index is out of range. */
static bool walk(const df_scatter_job *j, int64_t low, int64_t end)
{
    const uint32_t n_outer = j->rank > 2 ? j->rank - 2 : 0;
    const int64_t size = (int64_t)deft_dtype_size(j->dtype);
    const int64_t index_size = (int64_t)deft_dtype_size(j->index_dtype);
    nest x = { .n = j->n, .step = j->step, .low = low, .end = end, .extent = { 1, 1 } };
    x.index_dtype = j->index_dtype;
    x.add = df_lane_ops_best()->fold[DF_K_sum][j->dtype];
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
        ok &= scatter_values(j->dtype, &x, j->out + offset(j->out_step, at, n_outer) * size,
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
    /* Each piece but the first adds to a table of its own, [n][kept axes] row-major. */
    bool has_tables;
    int64_t table_size; /* bytes, a multiple of 64 */
    char *tables;
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

/* Makes j add to a table that holds zeros. */
static void add_to_table(df_scatter_job *j, char *table, int64_t size)
{
    int64_t step = 1;
    memset(table, 0, (size_t)size);
    for (uint32_t i = j->rank; i-- > 0;) {
        if (j->out_step[i] == 0) continue;
        j->out_step[i] = step;
        step *= j->extent[i];
    }
    j->step = step;
    j->out = table;
}

static void walk_piece(void *user, uint32_t piece, uint32_t thread)
{
    share *const s = user;
    const int64_t begin = scatter_begin_of(s, piece), end = scatter_begin_of(s, piece + 1);
    df_scatter_job j = *s->j;
    bool ok;
    (void)thread;
    if (s->axis < j.rank) {
        const int64_t size = (int64_t)deft_dtype_size(j.dtype);
        if (s->has_tables && piece > 0)
            add_to_table(&j, s->tables + (piece - 1) * s->table_size, s->table_size);
        j.extent[s->axis] = end - begin;
        j.out += begin * j.out_step[s->axis] * size;
        j.index += begin * j.index_step[s->axis] * (int64_t)deft_dtype_size(j.index_dtype);
        j.value += begin * j.value_step[s->axis] * size;
        ok = walk(&j, 0, j.n);
    } else {
        ok = walk(&j, begin, end);
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
    for (int64_t k = 0; k + 1 < s->n_pieces; k++) {
        sum.value = s->tables + k * s->table_size;
        walk(&sum, 0, 1);
    }
}

/* Returns true when s divides the box along an axis that is not kept, with tables. */
static bool divide_by_tables(share *s, int64_t total, uint32_t n_threads)
{
    const df_scatter_job *const j = s->j;
    int64_t n_table = j->n;
    uint32_t axis = j->rank;
    if (df_is_float(j->dtype)) return false;
    for (uint32_t i = 0; i < j->rank; i++) {
        if (j->out_step[i] != 0)
            n_table *= j->extent[i];
        else if (axis == j->rank || j->extent[i] > j->extent[axis])
            axis = i;
    }
    if (axis == j->rank || n_table <= 0) return false;
    const int64_t most = df_min_i64(j->extent[axis], total / LEAST_VALUES / n_table);
    s->n_pieces = df_min_i64(most, df_min_i64(n_threads, total / (WORTH_WAKING / 2)));
    if (s->n_pieces < 2) return false;
    s->axis = axis;
    s->grain = 1;
    s->has_tables = true;
    s->table_size = (n_table * (int64_t)deft_dtype_size(j->dtype) + 63) & ~(int64_t)63;
    return true;
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
    if (n_threads < 2 || total < WORTH_WAKING) return s;
    int64_t most = 0;
    if (s.axis < j->rank) {
        s.grain = s.axis + 1 == j->rank ? LEAST_PIECE : 1;
        most = (j->extent[s.axis] + s.grain - 1) / s.grain;
    }
    const int64_t bytes = j->n * (int64_t)deft_dtype_size(j->dtype);
    if (most < n_threads) {
        share by_tables = s;
        if (divide_by_tables(&by_tables, total, n_threads)) return by_tables;
        if (total >= WORTH_SHARING && bytes >= BEYOND_CACHES) {
            s.axis = j->rank;
            s.grain = 1;
            most = n_threads;
        }
    }
    s.n_pieces = df_max_i64(df_min_i64(most, (int64_t)n_threads * PIECES_PER_THREAD), 1);
    return s;
}

/* Returns true when each index of j stands for a long row of neighbouring values. */
static bool has_long_rows(const df_scatter_job *j)
{
    return j->rank == 2 && j->index_step[0] != 0 && j->index_step[1] == 0 && j->out_step[1] == 1 &&
           j->value_step[1] == 1 && j->extent[1] >= LONG_ROW;
}

/* Counts the indices of each bucket. A bucket is `width` elements of the indexed axis. Indices that
 * are out of range are left out. */
static void count_indices(const df_scatter_job *j, int64_t width, int64_t n_in[BUCKETS])
{
    const int64_t bytes = j->index_step[0] * (int64_t)deft_dtype_size(j->index_dtype);
    int64_t copy[CHUNK];
    for (int64_t begin = 0; begin < j->extent[0]; begin += CHUNK) {
        const int64_t n = df_min_i64(j->extent[0] - begin, CHUNK);
        const int64_t *const index =
            indices(j->index_dtype, j->index + begin * bytes, j->index_step[0], n, copy);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = index[i];
            if (resolve(&at, j->n)) n_in[at / width]++;
        }
    }
}

/* Divides the indexed axis so that each piece has about as many indices. Returns false, and changes
 * nothing, when j has no long rows or when one piece would have much more than its share. */
static bool divide_by_rows(share *s, uint32_t n_threads)
{
    const df_scatter_job *const j = s->j;
    const int64_t n = n_threads < MOST_CUTS ? n_threads : MOST_CUTS;
    if (!has_long_rows(j) || j->n < n) return false;
    const int64_t width = (j->n + BUCKETS - 1) / BUCKETS, fair = j->extent[0] / n;
    int64_t n_in[BUCKETS] = { 0 }, cut[MOST_CUTS + 1] = { 0 }, n_before = 0, n_at_cut = 0;
    int64_t piece = 1;
    count_indices(j, width, n_in);
    for (int64_t b = 0; b < BUCKETS && piece < n; b++) {
        n_before += n_in[b];
        if (n_before < fair * piece) continue;
        if (n_before - n_at_cut > fair + fair / 4) return false;
        cut[piece++] = df_min_i64((b + 1) * width, j->n);
        n_at_cut = n_before;
    }
    if (piece < n || j->extent[0] - n_at_cut > fair + fair / 4) return false;
    cut[n] = j->n;
    memcpy(s->cut, cut, sizeof cut);
    s->has_cuts = true;
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
    const uint64_t extent = (uint64_t)j->n;
    int64_t copy[CHUNK];
    for (int64_t begin = 0; begin < n; begin += CHUNK) {
        const int64_t here = df_min_i64(n - begin, CHUNK);
        const int64_t bytes = begin * step * (int64_t)deft_dtype_size(j->index_dtype);
        const int64_t *const index = indices(j->index_dtype, from + bytes, step, here, copy);
        int64_t n_bad = 0;
        for (int64_t i = 0; i < here; i++) n_bad += (uint64_t)index[i] + extent >= 2 * extent;
        for (int64_t i = 0; n_bad > 0 && i < here; i++) {
            *bad = index[i];
            int64_t resolved = *bad;
            if (!resolve(&resolved, j->n)) return false;
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
    return s.has_tables ? (size_t)((s.n_pieces - 1) * s.table_size) : 0;
}

bool df_scatter(const df_scatter_job *given, df_pool *pool, void *work, int64_t *bad)
{
    df_scatter_job j = *given;
    if (scatter_is_empty(&j)) return true;
    scatter_merge(&j);
    share s = scatter_divide(&j, df_pool_threads(pool));
    s.tables = work;
    if (s.n_pieces > 1 && !s.has_tables) (void)divide_by_rows(&s, df_pool_threads(pool));
    if (s.n_pieces > 1)
        df_pool_run(pool, (uint32_t)s.n_pieces, walk_piece, &s);
    else if (!walk(&j, 0, j.n))
        s.has_bad = true;
    if (s.has_bad) return df_scatter_check(&j, bad);
    if (s.has_tables) add_tables(&s);
    return true;
}
