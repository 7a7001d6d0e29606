/* SPDX-License-Identifier: Apache-2.0
 *
 * from_bits and to_bits of keys.h, as FROM_BITS and TO_BITS. A file that includes this one sets the
 * instruction set. Blocks have a constant number of elements, so that compilers use vectors.
 * They are copied first, because the output may be the input, whose elements may lie anywhere.
 */
enum { KEYS_BLOCK = 64 };

/* S is the signed type of T. *lost gets the bits that a key has other than a reversible one. */
#define BITS_OF(T, S, name)                                                                        \
    DF_INLINE T name##_float_key(T b, T sign, T infinity, T flip, T *lost)                         \
    {                                                                                              \
        const T reversible = (T)(b ^ ((T)((S)b >> (8 * sizeof b - 1)) | sign));                    \
        const T magnitude = (T)(b & (T)~sign);                                                     \
        const T is_nan = magnitude > infinity, is_minus_zero = b == sign;                          \
        const T key = (T)(reversible + is_minus_zero) | (T)(0 - is_nan);                           \
        *lost |= reversible ^ key;                                                                 \
        return key ^ flip;                                                                         \
    }                                                                                              \
                                                                                                   \
    static bool name##_from_floats(deft_dtype t, T flip, const char *in, T *to, int64_t n)         \
    {                                                                                              \
        const T sign = (T)df_sign_bit(t), infinity = (T)df_infinity_bits(t);                       \
        T lost = 0, some[KEYS_BLOCK];                                                              \
        int64_t at = 0;                                                                            \
        for (; at + KEYS_BLOCK <= n; at += KEYS_BLOCK) {                                           \
            memcpy(some, in + at * (int64_t)sizeof *to, sizeof some);                              \
            for (int i = 0; i < KEYS_BLOCK; i++)                                                   \
                to[at + i] = name##_float_key(some[i], sign, infinity, flip, &lost);               \
        }                                                                                          \
        for (; at < n; at++) {                                                                     \
            memcpy(some, in + at * (int64_t)sizeof *to, sizeof *to);                               \
            to[at] = name##_float_key(*some, sign, infinity, flip, &lost);                         \
        }                                                                                          \
        return lost;                                                                               \
    }                                                                                              \
    static void name##_to_floats(deft_dtype t, T flip, T *a, int64_t n)                            \
    {                                                                                              \
        const T sign = (T)df_sign_bit(t);                                                          \
        int64_t at = 0;                                                                            \
        for (; at + KEYS_BLOCK <= n; at += KEYS_BLOCK)                                             \
            for (int i = 0; i < KEYS_BLOCK; i++) {                                                 \
                const T key = a[at + i] ^ flip;                                                    \
                a[at + i] = key & sign ? key ^ sign : (T)~key;                                     \
            }                                                                                      \
        for (; at < n; at++) {                                                                     \
            const T key = a[at] ^ flip;                                                            \
            a[at] = key & sign ? key ^ sign : (T)~key;                                             \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void name##_flip(T flip, const char *in, T *to, int64_t n)                              \
    {                                                                                              \
        T some[KEYS_BLOCK];                                                                        \
        int64_t at = 0;                                                                            \
        for (; at + KEYS_BLOCK <= n; at += KEYS_BLOCK) {                                           \
            memcpy(some, in + at * (int64_t)sizeof *to, sizeof some);                              \
            for (int i = 0; i < KEYS_BLOCK; i++) to[at + i] = some[i] ^ flip;                      \
        }                                                                                          \
        for (; at < n; at++) {                                                                     \
            memcpy(some, in + at * (int64_t)sizeof *to, sizeof *to);                               \
            to[at] = *some ^ flip;                                                                 \
        }                                                                                          \
    }

BITS_OF(uint32_t, int32_t, bits32)
BITS_OF(uint64_t, int64_t, bits64)

static bool FROM_BITS(deft_dtype t, uint64_t flip, const void *in, void *to, int64_t n)
{
    const bool is_wide = df_bytes_of(t) == 8;
    if (df_is_float(t))
        return is_wide ? bits64_from_floats(t, flip, in, to, n)
                       : bits32_from_floats(t, (uint32_t)flip, in, to, n);
    if (is_wide)
        bits64_flip(flip, in, to, n);
    else
        bits32_flip((uint32_t)flip, in, to, n);
    return false;
}

static void TO_BITS(deft_dtype t, uint64_t flip, void *a, int64_t n)
{
    const bool is_wide = df_bytes_of(t) == 8;
    if (!df_is_float(t))
        (void)FROM_BITS(t, flip, a, a, n);
    else if (is_wide)
        bits64_to_floats(t, flip, a, n);
    else
        bits32_to_floats(t, (uint32_t)flip, a, n);
}
