/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameters of the kernels of routine.cu: C for routine.c, and the beginning of their text.
 * Addresses are those of the device, steps are in elements.
 */
#ifndef DF_JIT_CUDA_ROUTINE_PARAMS_H
#define DF_JIT_CUDA_ROUTINE_PARAMS_H

enum {
    ROUTINE_THREADS = 256, /* of a thread block; and digits of a pass */
    ROUTINE_RANK = 8,
    ROUTINE_TILE = 2048 /* elements that a thread block sorts at a time */
};

/* How bits are read: which order they have, and which of them are 0. */
enum { KIND_U8, KIND_F16, KIND_BF16, KIND_I32, KIND_F32, KIND_I64, KIND_F64 };

/* What a radix sort's pass reads: keys of the operand, their lower halves; words that are there;
 * the upper halves of the keys, in the order at hand. */
enum { FROM_OPERAND, FROM_WORDS, FROM_UPPER };

/* Rows over a box, row-major. */
typedef struct rows_params {
    unsigned long long in, out;
    long long n, in_step, n_rows;
    long long extent[ROUTINE_RANK], step[ROUTINE_RANK];
    unsigned rank, kind, size; /* size: bytes of an element */
    unsigned flip;             /* of keys: all bits in descending order, else 0 */
    unsigned width;            /* a power of two, at least n */
    unsigned tile;             /* elements of a thread block: a multiple of width */
} rows_params;

/* One pass over the words of all rows: 32 bits of a key above the 32 of an index. A row is cut into
 * pieces of `piece` elements, and counts is [row][digit][piece], totals [row][digit]. */
typedef struct sort_params {
    unsigned long long in, from, to, counts, totals;
    long long n, in_step, n_rows, piece, n_pieces;
    long long extent[ROUTINE_RANK], step[ROUTINE_RANK];
    unsigned rank, kind, size, flip, source;
    unsigned shift;    /* of the digit in a word */
    unsigned to_index; /* whether indices alone are written, as i64 */
    unsigned unused;
} sort_params;

/* A vector in pieces: counts has one word for each. */
typedef struct which_params {
    unsigned long long in, out, counts;
    long long n, m, in_step, piece, n_pieces;
    long long rest; /* what stands after the last position */
    unsigned kind, size;
} which_params;

/* Two boxes, of `rank` axes and of the `inner` axes after them:
 *
 *   check, tell   axes that the index steps along
 *   atomic        all axes
 *   walk          axes that are kept; those along which values meet
 *   slots, runs   axes that the index steps along or values meet along: entries; the others
 *
 * An entry's slot is its target's number among all: (position along kept axes) * n + index. Words
 * are slots above numbers of entries. */
typedef struct scatter_params {
    unsigned long long out, index, value, fault, first_bad, words;
    long long n, step; /* the indexed axis of out */
    long long n_first, n_inner;
    long long extent[ROUTINE_RANK], out_step[ROUTINE_RANK], index_step[ROUTINE_RANK],
        value_step[ROUTINE_RANK];
    unsigned rank, inner, id;
    unsigned n_slots; /* the slot of what has a bad index */
} scatter_params;

#endif
