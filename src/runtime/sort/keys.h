/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting of keys without indices, once per instruction set. Internal header of routines.
 *
 * A key is an unsigned integer of 4 or 8 bytes, `size`. The keys of elements are those of order.h.
 * Equal keys are equal in all bits, so no sort of keys alone has to be stable.
 *
 * Elements alone are sorted as comparables. These are keys, or whatever an instruction set compares
 * fastest: with AVX-512, f64 are compared as f64 without NaNs. They have the size of the elements.
 */
#ifndef DF_RUNTIME_KEYS_H
#define DF_RUNTIME_KEYS_H

#include "runtime/sort/order.h"

typedef struct df_keys {
    /* ---- elements of dtype t, which has 4 or 8 bytes, in the order of `flip` (order.h) ---- */

    /* Writes n elements as comparables to `to`. `to` may be `in`. Where it is not, `in` need not be
     * aligned. Returns true when the element of a comparable may be another one: there is a NaN or
     * a -0. */
    bool (*load)(deft_dtype t, uint64_t flip, const void *in, void *to, int64_t n);
    /* The same, with the comparables that are less than the pivot before all others. `to` is not
     * `in`. Returns the number of the lesser ones. Sets *loses to true where `load` returns true.
     */
    int64_t (*split)(deft_dtype t, uint64_t flip, const void *in, void *to, int64_t n,
                     uint64_t pivot, bool *loses);
    /* Sorts n comparables of a and replaces them by their elements. A NaN becomes a NaN or an
     * infinity, and zeros have any sign. b is scratch memory of the same size. */
    void (*sort_loaded)(deft_dtype t, uint64_t flip, void *a, void *b, int64_t n);

    /* ---- keys ---- */

    /* Sorts the n keys of a. b is scratch memory of the same size. Returns the array that holds the
     * result, a or b. */
    void *(*sort)(size_t size, void *a, void *b, int64_t n);
    /* Writes the keys of n elements of dtype t. `to` and the result are as in `load`. */
    bool (*from_bits)(deft_dtype t, uint64_t flip, const void *in, void *to, int64_t n);
    /* Copies the keys of [low, high] in their order, and adds the number of keys below low to
     * *n_below. Returns how many it copied. `to` has room for n keys. */
    int64_t (*between)(size_t size, const void *a, void *to, int64_t n, uint64_t low, uint64_t high,
                       int64_t *n_below);
    /* Returns the key at position `nth` of the order of n keys, and sets *n_below to the number of
     * lesser ones. Changes the keys of a. b is scratch memory of the same size. NULL: a sort tells
     * it as soon. */
    uint64_t (*nth)(size_t size, void *a, void *b, int64_t n, int64_t nth, int64_t *n_below);
    /* Returns the index of the key before which there are `nth` equal ones. It exists. */
    int64_t (*find)(size_t size, const void *a, int64_t n, uint64_t key, int64_t nth);
    int64_t n_words;  /* fewer words than this are sorted fastest as keys of 8 bytes */
    bool has_doubles; /* the comparables of f64 are f64 without NaNs; else all are keys */
    int64_t n_split;  /* as many elements or more are split before they are sorted; 0: none */
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
