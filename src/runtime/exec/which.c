/* SPDX-License-Identifier: Apache-2.0
 *
 * which: writes the positions of all elements that are not 0, in order. compress: writes the
 * elements of another vector at these positions.
 *
 * 64 elements become the bits of one word, and the set bits are taken one by one. So the work is
 * that of the elements plus that of the positions, and there is one unpredictable branch per word,
 * not per element.
 *
 * Several threads divide the vector into blocks. First the positions of each block are counted.
 * Then each block writes its rows after those of the blocks before it. The unused rows at the end
 * are divided into blocks as well.
 */
#include "runtime/routine.h"

#include "base/bits.h"

#include <string.h>

#define WORD 64
#define BLOCK ((int64_t)1 << 16) /* elements of one task: enough to wake a worker for */

/* Sets to[i] to 1 when element i is not 0, else to 0, for n <= WORD elements from `in` on. Floats
 * are compared as bits, because the floating-point state of the caller may treat denormals as
 * zeros. */
#define NOT_ZERO(T)                                                                                \
    for (int i = 0; i < n; i++) {                                                                  \
        T v;                                                                                       \
        memcpy(&v, in + i * step * (int64_t)sizeof v, sizeof v);                                   \
        to[i] = (T)(v << shift) != 0;                                                              \
    }                                                                                              \
    return
DF_INLINE void not_zero(deft_dtype t, const char *in, const int64_t step, const int n, uint8_t *to)
{
    const int shift = df_is_float(t); /* the sign of a zero is no bit of it */
    switch (df_bytes_of(t)) {
    case 1: NOT_ZERO(uint8_t);
    case 2: NOT_ZERO(uint16_t);
    case 4: NOT_ZERO(uint32_t);
    case 8: NOT_ZERO(uint64_t);
    }
    df_unreachable();
}
#undef NOT_ZERO

/* The vector whose elements are compared with 0: the operand of which, and the mask of compress. */
typedef struct tested {
    const char *at;
    deft_dtype dtype;
    int64_t step;
} tested;

static tested tested_by(const df_routine_job *j)
{
    if (j->op == DF_OP_compress) return (tested){ j->mask, j->mask_dtype, j->mask_step };
    return (tested){ j->in, j->dtype, j->in_step };
}

/* Whether the WORD bytes at `in` are 0. */
static bool is_zero_word(const char *in)
{
    uint64_t v[WORD / 8];
    memcpy(v, in, sizeof v);
    uint64_t any = 0;
    for (int i = 0; i < WORD / 8; i++) any |= v[i];
    return any == 0;
}

/* Returns a word whose bit i is set when element at + i is not 0. Elements from `end` on are 0. */
static uint64_t word_of(const tested *x, int64_t at, int64_t end)
{
    uint8_t b[WORD];
    const char *const in = x->at + at * x->step * (int64_t)deft_dtype_size(x->dtype);
    if (end - at < WORD) {
        memset(b, 0, sizeof b);
        not_zero(x->dtype, in, x->step, (int)(end - at), b);
    } else if (x->step == 1) {
        if (deft_dtype_size(x->dtype) == 1 && is_zero_word(in)) return 0;
        not_zero(x->dtype, in, 1, WORD, b);
    } else {
        not_zero(x->dtype, in, x->step, WORD, b);
    }
    uint64_t bits = 0;
    for (int i = 0; i < WORD; i += 8) {
        /* byte k is 0 or 1; the product moves it to bit 56 + k */
        bits |= df_bits_of_bytes(b + i) * 0x0102040810204080u >> 56 << i;
    }
    return bits;
}

/* Copies the first n elements of [at, at + WORD) that have a bit. Where most have one, each element
 * up to the last that counts is written, and the next one overwrites it when it has no bit. */
#define COPY(T)                                                                                    \
    for (int64_t i = 0, k = 0; is_dense && k < n; k += (int64_t)(bits >> i++ & 1))                 \
        memcpy(out + k * (int64_t)sizeof(T), in + i * step, sizeof(T));                            \
    for (int64_t i = 0; !is_dense && i < n; i++, bits &= bits - 1)                                 \
        memcpy(out + i * (int64_t)sizeof(T), in + df_ctz64(bits) * step, sizeof(T));               \
    return
static void write_elements(const df_routine_job *j, int64_t at, uint64_t bits, int64_t n, char *out)
{
    const int64_t size = (int64_t)deft_dtype_size(j->dtype), step = j->in_step * size;
    const char *const in = j->in + at * step;
    const bool is_dense = n > WORD / 2;
    if (~bits == 0 && j->in_step == 1) {
        memcpy(out, in, (size_t)(n * size));
        return;
    }
    switch (size) {
    case 1: COPY(uint8_t);
    case 2: COPY(uint16_t);
    case 4: COPY(uint32_t);
    case 8: COPY(uint64_t);
    }
    df_unreachable();
}
#undef COPY

static void write_positions(int64_t at, uint64_t bits, int64_t n, int64_t *out)
{
    if (~bits == 0)
        for (int64_t i = 0; i < n; i++) out[i] = at + i;
    else
        for (int64_t i = 0; i < n; i++, bits &= bits - 1) out[i] = at + df_ctz64(bits);
}

/* The number of set bits. Not every processor has an instruction for it. */
static int64_t n_bits(uint64_t bits)
{
    bits -= bits >> 1 & 0x5555555555555555u;
    bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (int64_t)(bits * 0x0101010101010101u >> 56);
}

static int64_t row_size(const df_routine_job *j)
{
    return j->op == DF_OP_which ? (int64_t)sizeof *j->out : (int64_t)deft_dtype_size(j->dtype);
}

static char *row_of(const df_routine_job *j, int64_t row)
{
    return (char *)j->out + row * row_size(j);
}

/* Writes the rows of the elements [begin, end) to row `done`, and on, up to row m - 1. Returns how
 * many rows are written then. */
static int64_t write_rows(const df_routine_job *j, int64_t begin, int64_t end, int64_t done)
{
    const tested x = tested_by(j);
    for (int64_t at = begin; at < end && done < j->m; at += WORD) {
        const uint64_t bits = word_of(&x, at, end);
        const int64_t n = df_min_i64(n_bits(bits), j->m - done);
        if (n > 0 && j->op == DF_OP_which)
            write_positions(at, bits, n, j->out + done);
        else if (n > 0)
            write_elements(j, at, bits, n, row_of(j, done));
        done += n;
    }
    return done;
}

/* Fills the unused rows [begin, end) with 0, or with positions -1. */
static void fill_rows(const df_routine_job *j, int64_t begin, int64_t end)
{
    const bool zeros = j->op == DF_OP_compress || j->attr & DF_WHICH_ZEROS;
    if (begin < end)
        memset(row_of(j, begin), zeros ? 0 : -1, (size_t)((end - begin) * row_size(j)));
}

typedef struct division {
    const df_routine_job *j;
    int64_t n;      /* blocks of the vector */
    int64_t n_used; /* rows */
    int64_t *first; /* per block: its count, then how many rows the blocks before it have */
} division;

static int64_t end_of(const division *d, int64_t block)
{
    return df_min_i64((block + 1) * BLOCK, d->j->n);
}

static void count_block(void *user, uint32_t i, uint32_t thread)
{
    const division *const d = user;
    const tested x = tested_by(d->j);
    const int64_t end = end_of(d, i);
    int64_t n = 0;
    (void)thread;
    for (int64_t at = i * BLOCK; at < end; at += WORD) n += n_bits(word_of(&x, at, end));
    d->first[i] = n;
}

static void write_block(void *user, uint32_t i, uint32_t thread)
{
    const division *const d = user;
    (void)thread;
    if (i < d->n) {
        write_rows(d->j, i * BLOCK, end_of(d, i), d->first[i]);
        return;
    }
    const int64_t begin = d->n_used + (i - d->n) * BLOCK;
    fill_rows(d->j, begin, df_min_i64(begin + BLOCK, d->j->m));
}

static int64_t blocks_of(int64_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

/* Returns the number of blocks of the vector; 0: one thread does all the work. */
static int64_t n_blocks(const df_routine_job *j, uint32_t n_threads)
{
    const int64_t n = blocks_of(j->n);
    return n_threads > 1 && n > 1 && n + blocks_of(j->m) <= INT32_MAX ? n : 0;
}

size_t df_which_work_size(const df_routine_job *j, uint32_t n_threads)
{
    return (size_t)n_blocks(j, n_threads) * sizeof(int64_t);
}

void df_which(const df_routine_job *j, df_pool *pool, void *work)
{
    division d = { j, n_blocks(j, df_pool_threads(pool)), 0, work };
    if (d.n == 0) {
        fill_rows(j, write_rows(j, 0, j->n, 0), j->m);
        return;
    }
    df_pool_run(pool, (uint32_t)d.n, count_block, &d);
    for (int64_t i = 0; i < d.n; i++) {
        const int64_t here = d.first[i];
        d.first[i] = d.n_used;
        d.n_used += here;
    }
    const int64_t n_unused = blocks_of(df_max_i64(j->m - d.n_used, 0));
    df_pool_run(pool, (uint32_t)(d.n + n_unused), write_block, &d);
}
