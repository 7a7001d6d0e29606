/* SPDX-License-Identifier: Apache-2.0
 *
 * Words in order: a stable radix sort from the least significant digit (Knuth, The Art of Computer
 * Programming 3, 5.2.5). Floats become keys with the same order after Herf 2001.
 *
 * An element is one word, so a pass moves 8 bytes per element. Passes alternate between two arrays.
 * Keys of 64 bits are sorted by their lower halves first. Then the upper halves are loaded through
 * the indices, and sorted. A digit that is the same in all elements costs no pass.
 */
#include "runtime/sort/keys.h"

enum { FEW = 24, MANY = 4096, NARROW = 8, MAX_PASSES = 4 };

void df_order_load(const df_routine_job *j, const char *in, int64_t begin, int64_t end,
                   uint64_t *to)
{
    const int64_t step = j->in_step * (int64_t)deft_dtype_size(j->dtype);
    const uint64_t flip = df_order_flip(j);
#define ROW(T)                                                                                     \
    for (int64_t i = begin; i < end; i++)                                                          \
        to[i - begin] = df_order_word(df_order_key(T, in + i * step) ^ flip, i);                   \
    return
    switch (df_order_as(j->dtype)) {
/* clang-format off */
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    DF_ORDER_##kind(NAME, ROW(DEFT_##NAME))
#define FACE(name, NAME, kind, bits, record, c_type, file) case DEFT_##NAME: break;
#include "ops/dtypes.def"
        /* clang-format on */
    }
#undef ROW
    df_unreachable();
}

void df_order_load_half(const df_routine_job *j, const char *in, int shift, uint64_t *w, int64_t n)
{
    const int64_t step = j->in_step * (int64_t)deft_dtype_size(j->dtype);
    const uint64_t flip = df_order_flip(j);
#define ROW(T)                                                                                     \
    for (int64_t i = 0; i < n; i++) {                                                              \
        const int64_t index = (int64_t)(uint32_t)w[i];                                             \
        w[i] = df_order_word((df_order_key(T, in + index * step) ^ flip) >> shift, index);         \
    }                                                                                              \
    return
    switch (df_order_as(j->dtype)) {
/* clang-format off */
#define DTYPE(name, NAME, kind, bits, fraction, c_type, cuda, file)                                \
    DF_ORDER_##kind(NAME, ROW(DEFT_##NAME))
#define FACE(name, NAME, kind, bits, record, c_type, file) case DEFT_##NAME: break;
#include "ops/dtypes.def"
        /* clang-format on */
    }
#undef ROW
    df_unreachable();
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

/* Sorts the n words of a by their upper halves. */
static uint64_t *radix(uint64_t *a, uint64_t *b, int64_t n)
{
    uint32_t count[MAX_PASSES][1 << DF_ORDER_WIDE];
    if (n <= FEW) return insert(a, n), a;
    const int bits = n < MANY ? NARROW : DF_ORDER_WIDE;
    const int n_passes = (DF_ORDER_KEY_BITS + bits - 1) / bits;
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

uint64_t *df_order_words(const df_routine_job *j, const char *in, uint64_t *a, uint64_t *b,
                         int64_t n)
{
    /* Words contain their index, so a sort of whole words is stable. */
    const df_keys *const keys = df_keys_best();
    uint64_t *const sorted = n < keys->n_words ? keys->sort(sizeof *a, a, b, n) : radix(a, b, n);
    if (deft_dtype_size(j->dtype) < 8) return sorted;
    df_order_load_half(j, in, 32, sorted, n);
    return radix(sorted, sorted == a ? b : a, n);
}

uint64_t *df_order_again(const df_routine_job *j, const char *in, uint64_t *a, uint64_t *b,
                         int64_t n)
{
    if (deft_dtype_size(j->dtype) == 8) df_order_load_half(j, in, 0, a, n);
    return df_order_words(j, in, a, b, n);
}
