/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting of keys without indices, once per instruction set. Internal header of routines.
 *
 * A key is an unsigned integer of 4 or 8 bytes, `size`. The keys of elements are those of order.h.
 * Equal keys are equal in all bits, so no sort of keys alone has to be stable.
 */
#ifndef DF_RUNTIME_KEYS_H
#define DF_RUNTIME_KEYS_H

#include "runtime/sort/order.h"

typedef struct df_keys {
    /* Sorts the n keys of a. b is scratch memory of the same size. Returns the array that holds the
     * result, a or b. */
    void *(*sort)(size_t size, void *a, void *b, int64_t n);
    /* Moves the keys of a that are less than the pivot before all others. b is scratch memory of
     * the same size. Returns the number of these keys. */
    int64_t (*split)(size_t size, void *a, void *b, int64_t n, uint64_t pivot);
    /* Writes the keys of n elements of dtype t, which has 4 or 8 bytes. `to` may be `in`. Where it
     * is not, `in` need not be aligned. Returns true when to_bits does not restore the elements:
     * there is a NaN or a -0. */
    bool (*from_bits)(deft_dtype t, uint64_t flip, const void *in, void *to, int64_t n);
    /* Replaces n keys by elements. A NaN becomes any NaN, and a zero becomes +0. */
    void (*to_bits)(deft_dtype t, uint64_t flip, void *a, int64_t n);
    /* Copies the keys of [low, high] in their order, and adds the number of keys below low to
     * *n_below. Returns how many it copied. `to` has room for n keys. */
    int64_t (*between)(size_t size, const void *a, void *to, int64_t n, uint64_t low, uint64_t high,
                       int64_t *n_below);
    /* Returns the index of the key before which there are `nth` equal ones. It exists. */
    int64_t (*find)(size_t size, const void *a, int64_t n, uint64_t key, int64_t nth);
    int64_t n_words; /* fewer words than this are sorted fastest as keys of 8 bytes */
} df_keys;

extern const df_keys df_keys_plain, df_keys_avx512;

DF_INLINE uint64_t df_key_at(size_t size, const void *keys, int64_t i)
{
    return size == 8 ? df_bits_load((const char *)keys + 8 * i, 8)
                     : df_bits_load((const char *)keys + 4 * i, 4);
}

/* Sorts keys by their digits, from the least significant one: `sort` of df_keys_plain. */
void *df_keys_sort_digits(size_t size, void *a, void *b, int64_t n);

/* The fastest on this machine. All give the same results. */
const df_keys *df_keys_best(void);

#endif
