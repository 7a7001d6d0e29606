/* SPDX-License-Identifier: Apache-2.0
 *
 * keys.h for x86 with AVX-512: keys512_body.h for keys of 4 and of 8 bytes.
 */
#include "base/fp.h"
#include "runtime/sort/keys.h"

#include <immintrin.h>
#include <math.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))),        \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,popcnt,prefer-vector-width=512")
#endif

#define FROM_BITS from_bits_512
#define TO_BITS to_bits_512
#include "runtime/sort/keys_bits_body.h"
#include "runtime/sort/keys512_pairs.def"

enum { BLOCK = 16, MOST_ROWS = 64 };
enum { N_ORDERS = 256, LEAST_FOR_ORDERS = 1 << 13 /* keys; the table takes about 1 us */ };

/* How elements become comparables. Those of f64 are floats, because the minimum of two vectors of
 * integers of 64 bits takes twice as long. All others are keys. */
typedef struct form {
    uint64_t flip;
    bool is_float;
} form;

enum { NAN_OR_MINUS_ZERO = 0x85 /* for fpclass */ };

/* Makes the permutations of 8 lanes that put the lanes of a mask, the index, first. */
static DF_NOINLINE void df_orders_make(__m256i orders[N_ORDERS])
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (unsigned mask = 0; mask < N_ORDERS; mask++) {
        const __m256i first = _mm256_maskz_compress_epi32((__mmask8)mask, lanes);
        const __m256i others = _mm256_maskz_compress_epi32((__mmask8)~mask, lanes);
        const unsigned behind = 0xffu << __builtin_popcount(mask);
        orders[mask] = _mm256_mask_expand_epi32(first, (__mmask8)behind, others);
    }
}

/* ---- elements of 4 bytes ---- */

/* Lane by lane: floats & (v >> 31 | sign), the bits in which a float and its key differ. v is a
 * float, or the complement of a key. */
DF_INLINE __m512i narrow_differs(__m512i v, form f)
{
    const __m512i sign = _mm512_set1_epi32(INT32_MIN), floats = _mm512_set1_epi32(-f.is_float);
    return _mm512_ternarylogic_epi32(_mm512_srai_epi32(v, 31), sign, floats, 0xa8);
}

/* A NaN is taken for infinity: the second operand of a minimum is the result when there is one. */
DF_INLINE __m512i narrow_key(__m512i v, form f)
{
    const __m512 infinity = _mm512_set1_ps(INFINITY), floats = (__m512)v;
    const __mmask16 all = (__mmask16)-f.is_float;
    v = (__m512i)_mm512_mask_min_ps(floats, all, floats, infinity);
    return _mm512_ternarylogic_epi32(v, narrow_differs(v, f), _mm512_set1_epi32((int)f.flip), 0x96);
}

DF_INLINE __m512i narrow_element(__m512i key, form f)
{
    const __m512i v = _mm512_xor_si512(key, _mm512_set1_epi32((int)f.flip));
    return _mm512_xor_si512(v, narrow_differs(_mm512_xor_si512(v, _mm512_set1_epi32(-1)), f));
}

DF_INLINE unsigned narrow_loses(__m512i v, form f)
{
    return _mm512_mask_fpclass_ps_mask((__mmask16)-f.is_float, (__m512)v, NAN_OR_MINUS_ZERO);
}

DF_INLINE __m256i narrow_key_8(__m256i v, form f)
{
    return _mm512_castsi512_si256(narrow_key(_mm512_castsi256_si512(v), f));
}

DF_INLINE unsigned narrow_loses_8(__m256i v, form f)
{
    return _mm256_mask_fpclass_ps_mask((__mmask8)-f.is_float, (__m256)v, NAN_OR_MINUS_ZERO);
}

#define NAME(x) narrow_##x
#define KEY uint32_t
#define LANES 16
#define LANE_NUMBERS _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define MASK __mmask16
#define BROADCAST(x) _mm512_set1_epi32((int)(x))
#define PERMUTE _mm512_permutexvar_epi32
#define MIN _mm512_min_epu32
#define MAX _mm512_max_epu32
#define MASK_MAX _mm512_mask_max_epu32
#define LESS _mm512_cmplt_epu32_mask
#define LESS_ONE(a, b) ((a) < (b))
#define TEST _mm512_test_epi32_mask
#define COMPRESS _mm512_maskz_compress_epi32
#define LOAD_MASKED _mm512_maskz_loadu_epi32
#define STORE_MASKED _mm512_mask_storeu_epi32
#define GREATEST BROADCAST(-1)
#define EIGHT __m256i
#define EIGHT_BROADCAST(x) _mm256_set1_epi32((int)(x))
#define EIGHT_LOAD(from) _mm256_loadu_si256((const void *)(from))
#define EIGHT_STORE(to, v) _mm256_storeu_si256((void *)(to), v)
#define EIGHT_LESS _mm256_cmplt_epu32_mask
#define EIGHT_ORDER(order, v) _mm256_permutevar8x32_epi32(v, order)
#define EIGHT_KEY narrow_key_8
#define EIGHT_LOSES narrow_loses_8
#define KEYS_OF_COMPARABLES(a, n) (void)0
#define COMPARABLES_OF_KEYS(a, n) (void)0
#include "runtime/sort/keys512_body.h"

#define EQUAL _mm512_cmpeq_epu32_mask
#include "runtime/sort/keys512_find.h"
#include "runtime/sort/keys512_end.h"

/* ---- integers of 8 bytes ---- */

DF_INLINE __m512i wide_key(__m512i v, form f)
{
    return _mm512_xor_si512(v, _mm512_set1_epi64((long long)f.flip));
}

DF_INLINE __m512i wide_element(__m512i key, form f)
{
    return wide_key(key, f);
}

DF_INLINE unsigned wide_loses(__m512i v, form f)
{
    (void)v;
    (void)f;
    return 0;
}

#define NAME(x) wide_##x
#define KEY uint64_t
#define LANES 8
#define LANE_NUMBERS _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7)
#define MASK __mmask8
#define BROADCAST(x) _mm512_set1_epi64((long long)(x))
#define PERMUTE _mm512_permutexvar_epi64
#define MIN _mm512_min_epu64
#define MAX _mm512_max_epu64
#define MASK_MAX _mm512_mask_max_epu64
#define LESS _mm512_cmplt_epu64_mask
#define LESS_ONE(a, b) ((a) < (b))
#define TEST _mm512_test_epi64_mask
#define COMPRESS _mm512_maskz_compress_epi64
#define LOAD_MASKED _mm512_maskz_loadu_epi64
#define STORE_MASKED _mm512_mask_storeu_epi64
#define GREATEST BROADCAST(-1)
#define EIGHT __m512i
#define EIGHT_BROADCAST BROADCAST
#define EIGHT_LOAD _mm512_loadu_si512
#define EIGHT_STORE _mm512_storeu_si512
#define EIGHT_LESS LESS
#define EIGHT_ORDER(order, v) _mm512_permutexvar_epi64(_mm512_cvtepu32_epi64(order), v)
#define EIGHT_KEY wide_key
#define EIGHT_LOSES wide_loses
#define KEYS_OF_COMPARABLES(a, n) (void)0
#define COMPARABLES_OF_KEYS(a, n) (void)0
#include "runtime/sort/keys512_body.h"

#define EQUAL _mm512_cmpeq_epu64_mask
#include "runtime/sort/keys512_find.h"
#include "runtime/sort/keys512_end.h"

/* ---- f64 ---- */

DF_INLINE __m512i double_min(__m512i a, __m512i b)
{
    return (__m512i)_mm512_min_pd((__m512d)a, (__m512d)b);
}

DF_INLINE __m512i double_max(__m512i a, __m512i b)
{
    return (__m512i)_mm512_max_pd((__m512d)a, (__m512d)b);
}

DF_INLINE __m512i double_mask_max(__m512i v, __mmask8 is, __m512i a, __m512i b)
{
    return (__m512i)_mm512_mask_max_pd((__m512d)v, is, (__m512d)a, (__m512d)b);
}

DF_INLINE __mmask8 double_less(__m512i a, __m512i b)
{
    return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_LT_OQ);
}

DF_INLINE bool double_less_one(uint64_t a, uint64_t b)
{
    double x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x < y;
}

DF_INLINE __m512i double_infinity(void)
{
    return (__m512i)_mm512_set1_pd(INFINITY);
}

/* A NaN is taken for infinity, as above. The flip is the sign or 0. */
DF_INLINE __m512i double_key(__m512i v, form f)
{
    return wide_key(double_min(v, double_infinity()), f);
}

DF_INLINE __m512i double_element(__m512i key, form f)
{
    return wide_key(key, f);
}

DF_INLINE unsigned double_loses(__m512i v, form f)
{
    (void)f;
    return _mm512_fpclass_pd_mask((__m512d)v, NAN_OR_MINUS_ZERO);
}

#define NAME(x) double_##x
#define KEY uint64_t
#define LANES 8
#define LANE_NUMBERS _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7)
#define MASK __mmask8
#define BROADCAST(x) _mm512_set1_epi64((long long)(x))
#define PERMUTE _mm512_permutexvar_epi64
#define MIN double_min
#define MAX double_max
#define MASK_MAX double_mask_max
#define LESS double_less
#define LESS_ONE double_less_one
#define TEST _mm512_test_epi64_mask
#define COMPRESS _mm512_maskz_compress_epi64
#define LOAD_MASKED _mm512_maskz_loadu_epi64
#define STORE_MASKED _mm512_mask_storeu_epi64
#define GREATEST double_infinity()
#define EIGHT __m512i
#define EIGHT_BROADCAST BROADCAST
#define EIGHT_LOAD _mm512_loadu_si512
#define EIGHT_STORE _mm512_storeu_si512
#define EIGHT_LESS LESS
#define EIGHT_ORDER(order, v) _mm512_permutexvar_epi64(_mm512_cvtepu32_epi64(order), v)
#define EIGHT_KEY double_key
#define EIGHT_LOSES double_loses
#define KEYS_OF_COMPARABLES(a, n) (void)from_bits_512(DEFT_F64, 0, a, a, n)
#define COMPARABLES_OF_KEYS(a, n) to_bits_512(DEFT_F64, 0, a, n)
#include "runtime/sort/keys512_body.h"
#include "runtime/sort/keys512_end.h"

/* ---- keys.h ----
 *
 * Floats are compared in the default state. The caller's may take denormals for zeros. */

/* Uses X(name, K) of dtype t: the prefix of its functions, and the type of a comparable. */
#define OF_DTYPE(t, X)                                                                             \
    if (df_bytes_of(t) == 4)                                                                       \
        X(narrow, uint32_t);                                                                       \
    else if (df_is_float(t))                                                                       \
        X(double, uint64_t);                                                                       \
    else                                                                                           \
        X(wide, uint64_t);

static form form_of_flip(deft_dtype t, uint64_t flip)
{
    /* The other bits of a float that a flip inverts are those of its key. */
    const bool is_double = df_is_float(t) && df_bytes_of(t) == 8;
    return (form){ is_double ? flip & df_sign_bit(t) : flip, df_is_float(t) };
}

static bool load_512(deft_dtype t, uint64_t flip, const void *in, void *to, int64_t n)
{
    const form f = form_of_flip(t, flip);
    const df_fp_state state = df_fp_enter();
    bool loses = false;
#define LOAD(name, K) loses = name##_load(in, to, n, f)
    OF_DTYPE(t, LOAD)
#undef LOAD
    df_fp_leave(state);
    return loses;
}

static DF_COLD int64_t split_512(deft_dtype t, uint64_t flip, const void *in, void *to, int64_t n,
                                 uint64_t pivot, bool *loses)
{
    const form f = form_of_flip(t, flip);
    const df_fp_state state = df_fp_enter();
    int64_t below = 0;
    __m256i orders[N_ORDERS];
    df_orders_make(orders);
#define SPLIT(name, K) below = name##_halve_elements(in, to, n, f, (K)pivot, orders, loses)
    OF_DTYPE(t, SPLIT)
#undef SPLIT
    df_fp_leave(state);
    return below;
}

static void sort_loaded_512(deft_dtype t, uint64_t flip, void *a, void *b, int64_t n)
{
    const form f = form_of_flip(t, flip);
    const df_fp_state state = df_fp_enter();
    int depth = 4;
    for (int64_t left = n; left > 0; left /= 2) depth += 2;
    __m256i table[N_ORDERS];
    const __m256i *const orders = n < LEAST_FOR_ORDERS ? NULL : table;
    if (orders) df_orders_make(table);
#define SORT(name, K) name##_quicksort(a, b, n, false, f, orders, depth)
    OF_DTYPE(t, SORT)
#undef SORT
    df_fp_leave(state);
}

static void *sort_512(size_t size, void *a, void *b, int64_t n)
{
    sort_loaded_512(size == 8 ? DEFT_U64 : DEFT_U32, 0, a, b, n);
    return a;
}

static int64_t between_512(size_t size, const void *a, void *to, int64_t n, uint64_t low,
                           uint64_t high, int64_t *n_below)
{
    return size == 8 ? wide_between(a, to, n, low, high, n_below)
                     : narrow_between(a, to, n, (uint32_t)low, (uint32_t)high, n_below);
}

static uint64_t nth_512(size_t size, void *a, void *b, int64_t n, int64_t nth, int64_t *n_below)
{
    return size == 8 ? wide_nth(a, b, n, nth, n_below) : narrow_nth(a, b, n, nth, n_below);
}

static int64_t find_512(size_t size, const void *a, int64_t n, uint64_t key, int64_t nth)
{
    return size == 8 ? wide_find(a, n, key, nth) : narrow_find(a, n, (uint32_t)key, nth);
}

const df_keys df_keys_avx512 = {
    .load = load_512,
    .split = split_512,
    .sort_loaded = sort_loaded_512,
    .sort = sort_512,
    .from_bits = from_bits_512,
    .between = between_512,
    .nth = nth_512,
    .find = find_512,
    .n_words = 1 << 15,
    .has_doubles = true,
    .n_split = 1 << 13,
};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
