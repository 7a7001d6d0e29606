/* SPDX-License-Identifier: Apache-2.0
 *
 * argsort: a stable radix sort from the least significant digit (Knuth, The Art of Computer
 * Programming 3, 5.2.5). Floats become keys with the same order after Herf 2001.
 *
 * An element is one word: 32 bits of its key above the 32 bits of its index. So a pass moves 8
 * bytes per element. Passes alternate between the workspace, one row per thread, and the result.
 * Keys of 64 bits are sorted by their lower halves first. Then the upper halves are loaded through
 * the indices, and sorted. A digit that is the same in all elements costs no pass.
 *
 *        keys, indices --> work <==passes==> out --> indices
 *
 * All NaNs have one key, above infinity. Both zeros have one key. A descending sort inverts the
 * bits of the keys, and is stable too. Rows are distributed over threads; one thread sorts a row.
 */
#include "runtime/routine.h"

#include "base/compiler.h"

#include <string.h>

enum { FEW = 24, MANY = 4096, WIDE = 11, NARROW = 8, MAX_PASSES = 4 };
#define ROWS_AT_ONCE ((int64_t)1 << 14) /* elements of a task: enough to wake a worker for */

#define TOP32 ((uint32_t)1 << 31)
#define TOP64 ((uint64_t)1 << 63)

/* Returns the key of a float of dtype t with the bits b. The key is made from the bits alone,
 * because the floating-point state of the caller may treat denormals as zeros. */
DF_INLINE uint64_t float_key(deft_dtype t, uint64_t b)
{
    const uint64_t sign = df_sign_bit(t), all = df_all_bits(t);
    if ((b & ~sign) > df_infinity_bits(t)) return all;
    return b & sign ? (b == sign ? sign : ~b & all) : b | sign;
}

DF_INLINE uint64_t key_of(deft_dtype t, const char *at)
{
    uint64_t b = 0;
    memcpy(&b, at, df_bytes_of(t)); /* little-endian */
    switch (df_kind_of(t)) {
    case DF_KIND_boolean:
    case DF_KIND_natural: return b;
    case DF_KIND_integer: return b ^ df_sign_bit(t);
    case DF_KIND_real:
    case DF_KIND_half: return float_key(t, b);
    }
    df_unreachable();
}

/* Loads a row: the lower halves of the keys, with indices. flip inverts keys. */
static void load(const df_routine_job *j, const char *in, uint32_t flip, uint64_t *to)
{
    const int64_t step = j->in_step * (int64_t)deft_dtype_size(j->dtype);
#define ROW(T)                                                                                     \
    for (int64_t i = 0; i < j->n; i++)                                                             \
        to[i] = (uint64_t)((uint32_t)key_of(T, in + i * step) ^ flip) << 32 | (uint64_t)i;         \
    return
    switch (j->dtype) {
/* clang-format off */
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    case DEFT_##NAME: ROW(DEFT_##NAME);
#include "ops/dtypes.def"
        /* clang-format on */
    }
#undef ROW
    df_unreachable();
}

/* Replaces the lower halves of the keys by the upper halves, without changing the order. */
static void load_upper(const df_routine_job *j, const char *in, uint32_t flip, uint64_t *w)
{
    const int64_t step = j->in_step * (int64_t)deft_dtype_size(j->dtype);
    for (int64_t i = 0; i < j->n; i++) {
        const uint64_t index = (uint32_t)w[i];
        const uint64_t key = key_of(j->dtype, in + (int64_t)index * step);
        w[i] = (uint64_t)((uint32_t)(key >> 32) ^ flip) << 32 | index;
    }
}

static void insert(uint64_t *w, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const uint64_t v = w[i];
        int64_t k = i;
        for (; k > 0 && w[k - 1] >> 32 > v >> 32; k--) w[k] = w[k - 1];
        w[k] = v;
    }
}

/* Sorts the n words of a by their upper halves. b is scratch memory of the same size. Returns the
 * array that holds the result, a or b. */
static uint64_t *radix(uint64_t *a, uint64_t *b, int64_t n)
{
    uint32_t count[MAX_PASSES][1 << WIDE];
    if (n <= FEW) return insert(a, n), a;
    const int bits = n < MANY ? NARROW : WIDE, n_passes = (32 + bits - 1) / bits;
    const uint32_t mask = (1u << bits) - 1;
    for (int p = 0; p < n_passes; p++) memset(count[p], 0, sizeof **count << bits);
    for (int64_t i = 0; i < n; i++) {
        uint32_t key = (uint32_t)(a[i] >> 32);
        for (int p = 0; p < n_passes; p++, key >>= bits) count[p][key & mask]++;
    }
    for (int p = 0; p < n_passes; p++) {
        const int shift = 32 + p * bits;
        uint32_t *const at = count[p], first = (uint32_t)(a[0] >> shift) & mask;
        if (at[first] == n) continue;
        uint32_t sum = 0;
        for (uint32_t d = 0; d <= mask; d++) {
            const uint32_t here = at[d];
            at[d] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < n; i++) b[at[a[i] >> shift & mask]++] = a[i];
        uint64_t *const other = a;
        a = b;
        b = other;
    }
    return a;
}

static void sort_row(const df_routine_job *j, const char *in, int64_t *out, uint64_t *work)
{
    /* Access through the unsigned type of a signed one is allowed (C11 6.5, 7). */
    uint64_t *const result = (uint64_t *)out;
    const uint32_t flip = j->attr & DF_ORDER_DESCENDING ? UINT32_MAX : 0;
    load(j, in, flip, work);
    uint64_t *at = radix(work, result, j->n);
    if (deft_dtype_size(j->dtype) == 8) {
        load_upper(j, in, flip, at);
        at = radix(at, at == work ? result : work, j->n);
    }
    for (int64_t i = 0; i < j->n; i++) out[i] = (int64_t)(uint32_t)at[i];
}

typedef struct rows {
    const df_routine_job *j;
    uint64_t *work;
    int64_t each; /* rows per task */
} rows;

static void sort_rows(void *user, uint32_t task, uint32_t thread)
{
    const rows *const r = user;
    const df_routine_job *const j = r->j;
    const int64_t end = df_min_i64((task + 1) * r->each, j->n_batch);
    for (int64_t row = task * r->each; row < end; row++) {
        int64_t at = 0, rest = row;
        for (uint32_t i = j->batch_rank; i-- > 0;) {
            at += rest % j->batch_extent[i] * j->in_batch[i];
            rest /= j->batch_extent[i];
        }
        sort_row(j, j->in + at * (int64_t)deft_dtype_size(j->dtype), j->out + row * j->n,
                 r->work + thread * j->n);
    }
}

static bool is_parallel(const df_routine_job *j, uint32_t n_threads)
{
    return n_threads > 1 && j->n_batch > 1 && j->n > ROWS_AT_ONCE / j->n_batch;
}

size_t df_argsort_work_size(const df_routine_job *j, uint32_t n_threads)
{
    const bool any = j->n > 0 && j->n_batch > 0;
    return any ? (is_parallel(j, n_threads) ? n_threads : 1) * (size_t)j->n * sizeof(uint64_t) : 0;
}

void df_argsort(const df_routine_job *j, df_pool *pool, void *work)
{
    if (j->n <= 0 || j->n_batch <= 0) return;
    rows r = { j, work, j->n_batch };
    if (!is_parallel(j, df_pool_threads(pool))) {
        sort_rows(&r, 0, 0);
        return;
    }
    r.each = (ROWS_AT_ONCE + j->n - 1) / j->n;
    int64_t n = (j->n_batch + r.each - 1) / r.each;
    if (n > INT32_MAX) {
        r.each = (j->n_batch + INT32_MAX - 1) / INT32_MAX;
        n = (j->n_batch + r.each - 1) / r.each;
    }
    df_pool_run(pool, (uint32_t)n, sort_rows, &r);
}

/* ---- routine.h ---- */

size_t df_routine_work_size(const df_routine_job *j, uint32_t n_threads)
{
    return j->op == DF_OP_argsort ? df_argsort_work_size(j, n_threads)
                                  : df_which_work_size(j, n_threads);
}

void df_routine_run(const df_routine_job *j, df_pool *pool, void *work)
{
    df_assert(j->op == DF_OP_argsort || j->op == DF_OP_which);
    if (j->op == DF_OP_argsort)
        df_argsort(j, pool, work);
    else
        df_which(j, pool, work);
}
