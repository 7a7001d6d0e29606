/* SPDX-License-Identifier: Apache-2.0
 *
 * which: writes the positions of all elements that are not 0, in order.
 *
 * 64 elements become the bits of one word, and the set bits are taken one by one. So the work is
 * that of the elements plus that of the positions, and there is one unpredictable branch per word,
 * not per element.
 *
 * Several threads divide the vector into blocks. First the positions of each block are counted.
 * Then each block writes its positions after those of the blocks before it.
 */
#include "runtime/routine.h"

#include "base/compiler.h"

#include <string.h>

#define WORD 64
#define BLOCK ((int64_t)1 << 16) /* elements of one task: enough to wake a worker for */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bit i of a word is byte i's");

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

/* Returns a word whose bit i is set when element at + i is not 0. Elements from `end` on are 0. */
static uint64_t word_of(const df_routine_job *j, int64_t at, int64_t end)
{
    uint8_t b[WORD];
    const char *const in = j->in + at * j->in_step * (int64_t)deft_dtype_size(j->dtype);
    if (end - at < WORD) {
        memset(b, 0, sizeof b);
        not_zero(j->dtype, in, j->in_step, (int)(end - at), b);
    } else if (j->in_step == 1) {
        not_zero(j->dtype, in, 1, WORD, b);
    } else {
        not_zero(j->dtype, in, j->in_step, WORD, b);
    }
    uint64_t bits = 0;
    for (int i = 0; i < WORD; i += 8) {
        uint64_t v; /* byte k is 0 or 1; the product moves it to bit 56 + k */
        memcpy(&v, b + i, sizeof v);
        bits |= v * 0x0102040810204080u >> 56 << i;
    }
    return bits;
}

static int64_t count(const df_routine_job *j, int64_t begin, int64_t end)
{
    int64_t n = 0;
    for (int64_t at = begin; at < end; at += WORD) n += __builtin_popcountll(word_of(j, at, end));
    return n;
}

/* Writes the positions of elements [begin, end) to out[done], and on, up to out[m - 1]. Returns how
 * many positions out holds then. */
static int64_t write_positions(const df_routine_job *j, int64_t begin, int64_t end, int64_t done)
{
    for (int64_t at = begin; at < end && done < j->m; at += WORD) {
        uint64_t bits = word_of(j, at, end);
        const int64_t n = df_min_i64(__builtin_popcountll(bits), j->m - done);
        int64_t *const out = j->out + done;
        done += n;
        if (~bits == 0)
            for (int64_t i = 0; i < n; i++) out[i] = at + i;
        else
            for (int64_t i = 0; i < n; i++, bits &= bits - 1) out[i] = at + df_ctz64(bits);
    }
    return done;
}

typedef struct division {
    const df_routine_job *j;
    int64_t *first; /* per block: its count, then how many positions the blocks before it have */
} division;

static void count_block(void *user, uint32_t i, uint32_t thread)
{
    const division *const d = user;
    const int64_t begin = i * BLOCK;
    (void)thread;
    d->first[i] = count(d->j, begin, df_min_i64(begin + BLOCK, d->j->n));
}

static void write_block(void *user, uint32_t i, uint32_t thread)
{
    const division *const d = user;
    const int64_t begin = i * BLOCK;
    (void)thread;
    write_positions(d->j, begin, df_min_i64(begin + BLOCK, d->j->n), d->first[i]);
}

/* Returns the number of blocks; 0: one thread does all the work. */
static int64_t n_blocks(const df_routine_job *j, uint32_t n_threads)
{
    const int64_t n = (j->n + BLOCK - 1) / BLOCK;
    return n_threads > 1 && n > 1 && n <= INT32_MAX ? n : 0;
}

size_t df_which_work_size(const df_routine_job *j, uint32_t n_threads)
{
    return (size_t)n_blocks(j, n_threads) * sizeof(int64_t);
}

void df_which(const df_routine_job *j, df_pool *pool, void *work)
{
    const int64_t n = n_blocks(j, df_pool_threads(pool));
    const division d = { j, work };
    int64_t done = 0;
    if (n == 0) {
        done = write_positions(j, 0, j->n, 0);
    } else {
        df_pool_run(pool, (uint32_t)n, count_block, (void *)(uintptr_t)&d);
        for (int64_t i = 0; i < n; i++) {
            const int64_t here = d.first[i];
            d.first[i] = done;
            done += here;
        }
        df_pool_run(pool, (uint32_t)n, write_block, (void *)(uintptr_t)&d);
    }
    const int64_t rest = j->attr & DF_WHICH_ZEROS ? 0 : -1;
    for (int64_t i = done; i < j->m; i++) j->out[i] = rest;
}
