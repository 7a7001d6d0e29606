/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/exec/scatter_add.h"

#include <string.h>

#include "base/compiler.h"

enum { CHUNK = DF_SCATTER_CHUNK, WAYS = DF_SCATTER_WAYS };
_Static_assert((int)CHUNK <= (int)DF_CHUNK, "one call makes them i64");
_Static_assert(CHUNK % WAYS == 0, "whole turns");

typedef df_scatter_nest nest;

/* Makes n <= CHUNK indices i64. Floats are no indices. */
static void widen(const df_lane_ops *ops, deft_dtype t, const char *from, int64_t step, int64_t n,
                  int64_t *to)
{
    const df_lane_fn cast = ops->cast[t][DEFT_I64];
    const int64_t bytes = step * (int64_t)deft_dtype_size(t);
    df_assert(!df_is_float(t) && n <= CHUNK);
    if (step == 1)
        cast(to, from, NULL, NULL, (uint32_t)n);
    else
        for (int64_t i = 0; i < n; i++) cast(&to[i], from + i * bytes, NULL, NULL, 1);
}

const df_any_i64 *df_scatter_indices(const df_lane_ops *ops, deft_dtype t, const char *from,
                                     int64_t step, int64_t n, int64_t *copy)
{
    if (t == DEFT_I64 && step == 1) return (const void *)from;
    widen(ops, t, from, step, n, copy);
    return copy;
}

/* Folds need aligned operands; a few elements at a time are copied where these are not. */
DF_COLD static void fold_misaligned(df_fold_fn fold, char *out, const char *value, int64_t n,
                                    size_t size)
{
    enum { SOME = 64 };
    uint64_t to[SOME], from[SOME];
    for (int64_t i = 0; i < n; i += SOME) {
        const uint32_t some = (uint32_t)df_min_i64(n - i, SOME);
        memcpy(to, out + (size_t)i * size, some * size);
        memcpy(from, value + (size_t)i * size, some * size);
        fold(to, from, some);
        memcpy(out + (size_t)i * size, to, some * size);
    }
}

void df_scatter_fold(df_fold_fn fold, char *out, const char *value, int64_t n, size_t size)
{
    enum { MOST = 1 << 30 };
    if ((((uintptr_t)out | (uintptr_t)value) & (size - 1)) != 0) { /* sizes are powers of 2 */
        fold_misaligned(fold, out, value, n, size);
        return;
    }
    for (int64_t i = 0; i < n; i += MOST)
        fold(out + (size_t)i * size, value + (size_t)i * size, (uint32_t)df_min_i64(n - i, MOST));
}

/* Whether all n <= CHUNK indices are in [0, extent). */
#define WITHIN(bits)                                                                               \
    static bool are_within##bits(const df_any_i##bits *index, int64_t n, int64_t extent)           \
    {                                                                                              \
        const uint##bits##_t last = (uint##bits##_t)(extent - 1);                                  \
        uint##bits##_t outside = 0; /* its sign */                                                 \
        for (int64_t i = 0; i < n; i++)                                                            \
            outside |= (uint##bits##_t)index[i] | (last - (uint##bits##_t)index[i]);               \
        return (int##bits##_t)outside >= 0;                                                        \
    }
WITHIN(32)
WITHIN(64)

/* Whether x adds i32 indices as they are, without making them i64. */
static bool takes_i32(const nest *x)
{
    return x->index_dtype == DEFT_I32 && x->index_step[0] == 1 && x->n <= INT32_MAX;
}

/* Whether this walk adds the values of all indices. */
static bool takes_all(const nest *x)
{
    return x->low == 0 && x->end == x->n;
}

/* Whether all values along the inner axis are added to one vector of neighbours. */
static bool is_vector(const nest *x)
{
    return takes_all(x) && x->step == 1 && x->out_step[0] == 0;
}

/* Whether the rows of x are so short that one call for each costs more than their additions, and
 * are neighbours everywhere. */
static bool has_simple_rows(const nest *x)
{
    return takes_i32(x) && takes_all(x) && x->way == 0 && x->extent[0] <= CHUNK &&
           x->out_step[0] == 1 && x->value_step[0] == 1;
}

/* ---- the indices of a chunk that this walk takes ---- */

/* Which of the indices of a chunk this walk takes: their positions, counted from `first`, and the
 * elements that they select. */
typedef struct taken {
    int64_t n, at[CHUNK], row[CHUNK];
} taken;

/* There is no branch on whether an index is taken. No processor predicts it for indices in no
 * order, and a branch that is predicted wrongly waits for the additions before it. */
static void select_taken(const nest *x, const df_any_i64 *index, int64_t n, int64_t first, taken *r,
                         bool *ok)
{
    r->n = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = index[i];
        const bool is_taken = df_scatter_takes(x, &at, ok);
        r->at[r->n] = at;
        r->row[r->n] = first + i;
        r->n += is_taken;
    }
}

/* ---- rows of neighbours, each with one index ---- */

static void take_rows(const nest *x, int64_t begin, int64_t end, taken *r, bool *ok)
{
    const int64_t bytes = (int64_t)deft_dtype_size(x->index_dtype) * x->index_step[1];
    int64_t copy[CHUNK];
    const df_any_i64 *const index = df_scatter_indices(
        x->ops, x->index_dtype, x->index + begin * bytes, x->index_step[1], end - begin, copy);
    select_taken(x, index, end - begin, begin, r, ok);
}

/* Prefetches what the processor does not foresee: the beginning of a row anywhere. It goes on by
 * itself from line to line. */
static void fetch_row(const char *row, int64_t bytes)
{
    enum { LINE = 64, MOST = 8 };
    for (int64_t x = 0; x < df_min_i64(bytes, MOST * LINE); x += LINE) __builtin_prefetch(row + x);
}

static bool add_rows(const nest *x, char *out, const char *value)
{
    enum { AHEAD = 6 };
    const int64_t size = (int64_t)deft_dtype_size(x->dtype), step = x->step * size;
    const int64_t out_step = x->out_step[1] * size, value_step = x->value_step[1] * size;
    bool ok = true;
    taken r;
    for (int64_t begin = 0; begin < x->extent[1]; begin += CHUNK) {
        take_rows(x, begin, df_min_i64(begin + CHUNK, x->extent[1]), &r, &ok);
        for (int64_t i = -AHEAD; i < r.n; i++) {
            const int64_t next = i + AHEAD;
            if (next < r.n) {
                fetch_row(out + r.row[next] * out_step + r.at[next] * step, x->extent[0] * size);
                fetch_row(value + r.row[next] * value_step, x->extent[0] * size);
            }
            if (i >= 0)
                df_scatter_fold(x->ops->fold[0][x->dtype],
                                out + r.row[i] * out_step + r.at[i] * step,
                                value + r.row[i] * value_step, x->extent[0], (size_t)size);
        }
    }
    return ok;
}

/* ---- other additions ---- */

/* Additions at indices that are all in [0, n) and added by this walk. With ways, neighbours are
 * added to different ways. Else all are added to one vector, or results and values are
 * neighbours. Indices of the next chunk are fetched meanwhile: they are all checked before one of
 * them is used, and that would wait for memory. */
#define SIMPLE(name, T, bits)                                                                      \
    DF_INLINE void name##_turns##bits(T *out, const T *value, const df_any_i##bits *index,         \
                                      int64_t n, int64_t way, int64_t value_step)                  \
    {                                                                                              \
        for (int64_t i = 0; i < n; i += WAYS) {                                                    \
            __builtin_prefetch(index + i + CHUNK);                                                 \
            for (int64_t k = 0; k < WAYS; k++) {                                                   \
                T *const to = &out[k * way + index[i + k]];                                        \
                *to = (T)(*to + value[(i + k) * value_step]);                                      \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    DF_INLINE void name##_add_row##bits(T *out, const T *value, const df_any_i##bits *index,       \
                                        int64_t n, int64_t step)                                   \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T *const to = &out[index[i] * step + i];                                               \
            *to = (T)(*to + value[i]);                                                             \
        }                                                                                          \
    }                                                                                              \
    static void name##_simple##bits(const nest *x, T *out, const T *value,                         \
                                    const df_any_i##bits *index, int64_t n)                        \
    {                                                                                              \
        const int64_t step = x->step, vs = x->value_step[0], whole = n - n % WAYS;                 \
        const T one = *value;                                                                      \
        if (x->way == 0 && x->out_step[0] == 1) {                                                  \
            name##_add_row##bits(out, value, index, n, step);                                      \
            return;                                                                                \
        }                                                                                          \
        if (vs == 0)                                                                               \
            name##_turns##bits(out, &one, index, whole, x->way, 0);                                \
        else                                                                                       \
            name##_turns##bits(out, value, index, whole, x->way, vs);                              \
        for (int64_t i = whole; i < n; i++) out[index[i]] = (T)(out[index[i]] + value[i * vs]);    \
    }

#define ADD(name, T)                                                                               \
    SIMPLE(name, T, 32)                                                                            \
    SIMPLE(name, T, 64)                                                                            \
    static void name##_slice(const nest *x, T *restrict out, const T *restrict value)              \
    {                                                                                              \
        const int64_t n = x->extent[0], out_step = x->out_step[0], value_step = x->value_step[0];  \
        for (int64_t i = 0; i < n; i++)                                                            \
            out[i * out_step] = (T)(out[i * out_step] + value[i * value_step]);                    \
    }                                                                                              \
    /* Most indices are not negative: one comparison finds out. */                                 \
    DF_INLINE void name##_line(const nest *x, T *out, const T *value, const df_any_i64 *index,     \
                               int64_t n, int64_t step, int64_t out_step, int64_t value_step,      \
                               bool *ok)                                                           \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            int64_t at = index[i];                                                                 \
            if (DF_UNLIKELY((uint64_t)at >= (uint64_t)x->n) && !df_scatter_takes(x, &at, ok))      \
                continue;                                                                          \
            T *const to = &out[at * step + i * out_step];                                          \
            *to = (T)(*to + value[i * value_step]);                                                \
        }                                                                                          \
    }                                                                                              \
    static void name##_some(const nest *x, T *out, const T *value, const taken *r)                 \
    {                                                                                              \
        for (int64_t i = 0; i < r->n; i++) {                                                       \
            T *const to = &out[r->at[i] * x->step + r->row[i] * x->out_step[0]];                   \
            *to = (T)(*to + value[r->row[i] * x->value_step[0]]);                                  \
        }                                                                                          \
    }                                                                                              \
    static void name##_each(const nest *x, T *out, const char *index, const T *value, bool *ok)    \
    {                                                                                              \
        const int64_t bytes = (int64_t)deft_dtype_size(x->index_dtype) * x->index_step[0];         \
        const int64_t os = x->out_step[0], vs = x->value_step[0];                                  \
        const bool is_simple = x->way > 0 || is_vector(x) || (takes_all(x) && os == 1 && vs == 1); \
        const bool is_short = is_simple && takes_i32(x);                                           \
        int64_t copy[CHUNK];                                                                       \
        taken r;                                                                                   \
        for (int64_t begin = 0; begin < x->extent[0]; begin += CHUNK) {                            \
            const int64_t n = df_min_i64(x->extent[0] - begin, CHUNK);                             \
            T *const to = out + begin * os;                                                        \
            const T *const from = value + begin * vs;                                              \
            const df_any_i32 *const short_index = (const void *)(index + begin * bytes);           \
            if (is_short && are_within32(short_index, n, x->n)) {                                  \
                name##_simple32(x, to, from, short_index, n);                                      \
                continue;                                                                          \
            }                                                                                      \
            const df_any_i64 *const some = df_scatter_indices(                                     \
                x->ops, x->index_dtype, index + begin * bytes, x->index_step[0], n, copy);         \
            if (!takes_all(x)) {                                                                   \
                select_taken(x, some, n, 0, &r, ok);                                               \
                name##_some(x, to, from, &r);                                                      \
            } else if (is_simple && are_within64(some, n, x->n))                                   \
                name##_simple64(x, to, from, some, n);                                             \
            else if (x->step == 1 && os == 0 && vs == 0)                                           \
                name##_line(x, to, from, some, n, 1, 0, 0, ok);                                    \
            else                                                                                   \
                name##_line(x, to, from, some, n, x->step, os, vs, ok);                            \
        }                                                                                          \
    }                                                                                              \
    /* The same for many rows, none of which is longer than a chunk. */                            \
    static void name##_rows(const nest *x, T *out, const T *value, bool *ok)                       \
    {                                                                                              \
        const int64_t n = x->extent[0], step = x->step;                                            \
        const df_any_i32 *index = (const void *)x->index;                                          \
        for (int64_t row = 0; row < x->extent[1]; row++) {                                         \
            if (DF_LIKELY(are_within32(index, n, x->n)))                                           \
                name##_add_row32(out, value, index, n, step);                                      \
            else                                                                                   \
                name##_each(x, out, (const char *)index, value, ok);                               \
            index += x->index_step[1];                                                             \
            value += x->value_step[1];                                                             \
            out += x->out_step[1];                                                                 \
        }                                                                                          \
    }                                                                                              \
    static bool name(const nest *x, char *out_at, const char *value_at)                            \
    {                                                                                              \
        T *const out = (void *)out_at;                                                             \
        const T *const value = (const void *)value_at;                                             \
        bool ok = true;                                                                            \
        if (has_simple_rows(x)) {                                                                  \
            name##_rows(x, out, value, &ok);                                                       \
            return ok;                                                                             \
        }                                                                                          \
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
            widen(x->ops, x->index_dtype, index, 1, 1, &at);                                       \
            if (df_scatter_takes(x, &at, &ok)) name##_slice(x, to + at * x->step, from);           \
        }                                                                                          \
        return ok;                                                                                 \
    }

/* Integers wrap, so they are added as unsigned integers of their size, which naturals are. Halves
 * do not get here: plans add them up as f32. */
#define ADD_ANYWHERE(name, T)                                                                      \
    typedef T DF_ANYWHERE name##_element;                                                          \
    ADD(name, name##_element)
#define ADD_boolean(name, T)
#define ADD_natural(name, T) ADD_ANYWHERE(add_##name, T)
#define ADD_integer(name, T)
#define ADD_real(name, T) ADD_ANYWHERE(add_##name, T)
#define ADD_half(name, T)
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file) ADD_##kind(name, c_type)
#include "ops/dtypes.def"
#undef ADD
#undef SIMPLE

bool df_scatter_nest_add(const df_scatter_nest *x, char *out, const char *value)
{
    if (x->index_step[0] == 0 && x->out_step[0] == 1 && x->value_step[0] == 1)
        return add_rows(x, out, value);
#define CALL_boolean(name, bits) break
#define CALL_natural(name, bits) return add_u##bits(x, out, value)
#define CALL_integer(name, bits) return add_u##bits(x, out, value)
#define CALL_real(name, bits) return add_##name(x, out, value)
#define CALL_half(name, bits) break
    switch (x->dtype) {
/* clang-format off */
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    case DEFT_##NAME: CALL_##kind(name, bits);
#define FACE(name, NAME, kind, bits, record, c_type, file) case DEFT_##NAME: break;
#include "ops/dtypes.def"
        /* clang-format on */
    }
    df_unreachable();
}
