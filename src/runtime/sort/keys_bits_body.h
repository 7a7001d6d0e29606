/* SPDX-License-Identifier: Apache-2.0
 *
 * from_bits and to_bits of keys.h, as FROM_BITS and TO_BITS. A file that includes this one sets the
 * instruction set. Blocks have a constant number of elements, so that compilers use vectors.
 */
enum { KEYS_BLOCK = 64 };

#define BITS_OF(T, name)                                                                           \
    DF_INLINE T name##_float_key(T b, T sign, T infinity, T flip, T *loses)                        \
    {                                                                                              \
        const T magnitude = (T)(b & (T)~sign);                                                     \
        const T key = b & sign ? (T)~b : (T)(b | sign);                                            \
        *loses |= (T)(magnitude > infinity) | (T)(b == sign);                                      \
        return (T)((magnitude > infinity ? (T)-1 : magnitude == 0 ? sign : key) ^ flip);           \
    }                                                                                              \
                                                                                                   \
    static bool name##_from_floats(deft_dtype t, T flip, T *a, int64_t n)                          \
    {                                                                                              \
        const T sign = (T)df_sign_bit(t), infinity = (T)df_infinity_bits(t);                       \
        T loses = 0;                                                                               \
        int64_t at = 0;                                                                            \
        for (; at + KEYS_BLOCK <= n; at += KEYS_BLOCK)                                             \
            for (int i = 0; i < KEYS_BLOCK; i++)                                                   \
                a[at + i] = name##_float_key(a[at + i], sign, infinity, flip, &loses);             \
        for (; at < n; at++) a[at] = name##_float_key(a[at], sign, infinity, flip, &loses);        \
        return loses;                                                                              \
    }                                                                                              \
                                                                                                   \
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
    static void name##_flip(T flip, T *a, int64_t n)                                               \
    {                                                                                              \
        int64_t at = 0;                                                                            \
        if (flip == 0) return;                                                                     \
        for (; at + KEYS_BLOCK <= n; at += KEYS_BLOCK)                                             \
            for (int i = 0; i < KEYS_BLOCK; i++) a[at + i] ^= flip;                                \
        for (; at < n; at++) a[at] ^= flip;                                                        \
    }

BITS_OF(uint32_t, bits32)
BITS_OF(uint64_t, bits64)

static bool FROM_BITS(deft_dtype t, uint64_t flip, void *a, int64_t n)
{
    const bool is_wide = df_bytes_of(t) == 8;
    if (df_is_float(t))
        return is_wide ? bits64_from_floats(t, flip, a, n)
                       : bits32_from_floats(t, (uint32_t)flip, a, n);
    if (is_wide)
        bits64_flip(flip, a, n);
    else
        bits32_flip((uint32_t)flip, a, n);
    return false;
}

static void TO_BITS(deft_dtype t, uint64_t flip, void *a, int64_t n)
{
    const bool is_wide = df_bytes_of(t) == 8;
    if (!df_is_float(t))
        (void)FROM_BITS(t, flip, a, n);
    else if (is_wide)
        bits64_to_floats(t, flip, a, n);
    else
        bits32_to_floats(t, (uint32_t)flip, a, n);
}
