/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and words, which the files of this folder and select.c order. Internal header of routines.
 *
 * A key is an unsigned integer with the order of the elements. All NaNs have one key, above
 * infinity. Both zeros have one key. A signed integer inverts the sign bit, and a descending order
 * inverts all bits of the keys. Both are done by one XOR, so integers of one size share their code.
 *
 * A word has 32 bits of a key above the 32 bits of the index of an element. Of keys of 64 bits, a
 * word has one half.
 */
#ifndef DF_RUNTIME_EXEC_ORDER_H
#define DF_RUNTIME_EXEC_ORDER_H

#include "base/bits.h"
#include "runtime/routine.h"

#include <string.h>

/* Returns the key of a float of dtype t with the bits b. The key is made from the bits alone,
 * because the floating-point state of the caller may treat denormals as zeros. There is no branch
 * on the sign, which no processor predicts. */
DF_INLINE uint64_t df_order_float_key(deft_dtype t, uint64_t b)
{
    const uint64_t sign = df_sign_bit(t), all = df_all_bits(t), magnitude = b & ~sign;
    const uint64_t is_negative = (b & sign) != 0;
    const uint64_t key = (b ^ ((0 - is_negative) | sign)) & all;
    return magnitude > df_infinity_bits(t) ? all : magnitude == 0 ? sign : key;
}

/* Returns the key of the element at `at`, before the XOR with df_order_flip. t is a dtype of
 * df_order_as. */
DF_INLINE uint64_t df_order_key(deft_dtype t, const char *at)
{
    const uint64_t b = df_bits_load(at, df_bytes_of(t));
    return df_is_float(t) ? df_order_float_key(t, b) : b;
}

/* Returns the dtype whose keys before the XOR are those of t: of integers and bools, the unsigned
 * integer of their size. */
DF_INLINE deft_dtype df_order_as(deft_dtype t)
{
    static const uint8_t as[] = { [1] = DEFT_U8, [2] = DEFT_U16, [4] = DEFT_U32, [8] = DEFT_U64 };
    return df_is_float(t) ? t : (deft_dtype)as[df_bytes_of(t)];
}

/* In a switch over df_order_as: DF_ORDER_##kind(NAME, row) is a case of dtypes.def. */
/* clang-format off */
#define DF_ORDER_boolean(NAME, row) case DEFT_##NAME: df_unreachable();
#define DF_ORDER_natural(NAME, row) case DEFT_##NAME: row;
#define DF_ORDER_integer(NAME, row) case DEFT_##NAME: df_unreachable();
#define DF_ORDER_real(NAME, row) case DEFT_##NAME: row;
#define DF_ORDER_half(NAME, row) case DEFT_##NAME: row;
/* clang-format on */

/* Fetches the lines of n words, which will be written. */
DF_INLINE void df_order_fetch(const uint64_t *w, int64_t n)
{
    enum { LINE_WORDS = 8 };
    for (int64_t i = 0; i < n; i += LINE_WORDS) __builtin_prefetch(w + i, 1);
}

DF_INLINE uint64_t df_order_word(uint64_t key, int64_t index)
{
    return (uint64_t)(uint32_t)key << 32 | (uint64_t)index;
}

/* What keys are combined with by XOR. */
DF_INLINE uint64_t df_order_flip(const df_routine_job *j)
{
    const uint64_t sign = df_is_signed(j->dtype) ? df_sign_bit(j->dtype) : 0;
    return (j->attr & DF_ORDER_DESCENDING ? df_all_bits(j->dtype) : 0) ^ sign;
}

/* ---- sort_words.c ---- */

enum {
    DF_ORDER_WIDE = 11,     /* bits of a digit of a long row */
    DF_ORDER_KEY_BITS = 32, /* of a word */
};

/* Writes the words of the elements [begin, end) of the row at `in`. shift: 32 for the upper halves
 * of keys of 64 bits; else 0. */
void df_order_load(const df_routine_job *j, const char *in, int64_t begin, int64_t end, int shift,
                   uint64_t *to);
/* Replaces the halves of keys of 64 bits, without changing the order of the words. shift is 0 for
 * the lower halves, 32 for the upper halves. */
void df_order_load_half(const df_routine_job *j, const char *in, int shift, uint64_t *w, int64_t n);
/* Copies n elements of `size` bytes, which are `step` bytes apart, one behind the other. */
void df_order_copy(size_t size, const char *in, int64_t step, char *to, int64_t n);
/* Sorts the n words of a by the keys of their elements. Words of equal keys keep their order. Of
 * keys of 64 bits, the words may have either half, and the result has the upper halves. b is
 * scratch memory of the same size. Returns the array that holds the result, a or b. */
uint64_t *df_order_words(const df_routine_job *j, const char *in, uint64_t *a, uint64_t *b,
                         int64_t n);
/* Writes the indices of all elements of the row in order. work: n words. */
void df_order_row(const df_routine_job *j, const char *in, int64_t *out, uint64_t *work);

/* ---- select.c ---- */

/* Returns true when selecting the first m of n elements is cheaper than sorting them. */
bool df_select_pays(int64_t n, int64_t m);
/* The words that each of the arrays a and b of df_select must hold. */
int64_t df_select_room(int64_t m);
/* Finds the first m elements of [begin, end) of the row at `in`, in order; fewer when the range has
 * fewer. Returns the array that holds their words, a or b. */
uint64_t *df_select(const df_routine_job *j, const char *in, int64_t begin, int64_t end,
                    uint64_t *a, uint64_t *b);

/* ---- sort_middle.c: positions [first, first + m) of the order ---- */

/* Returns true when df_middle is cheaper than a sort of the row. */
bool df_middle_pays(const df_routine_job *j);
/* How many threads can take part in one row. */
int64_t df_middle_pieces(const df_routine_job *j, uint32_t n_threads);
/* Writes the indices of the elements at these positions. pool NULL: this thread alone. work: 2 n
 * words. Returns false when the elements were not found: equal elements, or chance. */
bool df_middle(const df_routine_job *j, df_pool *pool, const char *in, int64_t *out,
               uint64_t *work);

/* ---- sort_values.c: elements in order, for the operator `sort` ---- */

/* Sorts the row at `in`. work has the bytes of df_sort_values_row_size. */
void df_sort_values_row(const df_routine_job *j, const char *in, char *out, void *work);
size_t df_sort_values_row_size(const df_routine_job *j);
/* Returns true when all threads sort one row after the other. */
bool df_sort_values_is_long(const df_routine_job *j, uint32_t n_threads);
/* Sorts one row on all threads. work is that of a row. */
void df_sort_values_long(const df_routine_job *j, df_pool *pool, const char *in, char *out,
                         void *work);

/* ---- sort_counts.c: rows of few distinct elements ---- */

/* Sorts the row at `in` when a sample of it has few distinct elements. Else returns false, and
 * leaves `out` and `work` undefined. Both have room for n elements of 4 or 8 bytes. Sets *loses to
 * true when NaNs and zeros must be written once more. pool NULL: this thread alone. n_pieces: into
 * which the row is divided, one for each thread. */
bool df_sort_counts(const df_routine_job *j, df_pool *pool, int64_t n_pieces, const char *in,
                    char *out, char *work, bool *loses);

/* ---- sort_long.c: one row on all threads ---- */

/* Returns true when all threads sort one row after the other. */
bool df_sort_is_long(const df_routine_job *j, uint32_t n_threads);
size_t df_sort_long_work_size(const df_routine_job *j, uint32_t n_threads);
void df_sort_long(const df_routine_job *j, df_pool *pool, const char *in, int64_t *out, void *work);

/* Where piece number `piece` of n_pieces begins, into which n elements are divided evenly. */
DF_INLINE int64_t df_order_piece(int64_t n, int64_t n_pieces, int64_t piece)
{
    return n / n_pieces * piece + n % n_pieces * piece / n_pieces;
}

#endif
