/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameters of the kernels of routine.cu. This file is C for routine.c, and is the
 * beginning of the text of the kernels. Addresses are those of the device, steps are in
 * elements.
 */
#ifndef DF_JIT_CUDA_ROUTINE_PARAMS_H
#define DF_JIT_CUDA_ROUTINE_PARAMS_H

enum {
    ROUTINE_THREADS = 256, /* of a thread block; also the number of digits of a pass */
    ROUTINE_RANK = 8,
    ROUTINE_TILE = 2048 /* elements that a thread block sorts at a time */
};

/* How the bits of an element are read, as one word. The word has the number of its bytes, and
 * one of the two bits. For a float, the bits of its fraction are counted from bit
 * KIND_FRACTION on. */
enum { KIND_BYTES = 15, KIND_SIGNED = 16, KIND_FLOAT = 32, KIND_FRACTION = 8 };

/* What a pass of a radix sort reads. FROM_OPERAND: keys of the operand, of 8-byte keys the
 * lower halves. FROM_WORDS: words of an earlier pass. FROM_UPPER: the upper halves of the
 * keys, in the current order. */
enum { FROM_OPERAND, FROM_WORDS, FROM_UPPER };

/* argsort, sort and topk of short rows. Rows are over a box, row-major. The indices at the
 * positions [first, first + m) of the order of each row are written, or the elements at these
 * indices. */
typedef struct rows_params {
    unsigned long long in, out;
    long long n, m, first, in_step, n_rows;
    long long extent[ROUTINE_RANK], step[ROUTINE_RANK];
    unsigned rank, kind, size; /* size: bytes of an element */
    unsigned values;           /* whether elements are written */
    /* keys are combined with it by XOR: all bits for descending order, else 0 */
    unsigned flip;
    unsigned width; /* a power of two, at least n */
    unsigned tile;  /* elements of a thread block: a multiple of width */
    unsigned unused;
} rows_params;

/* One pass over the words of all rows. A word is 32 bits of a key above the 32 bits of an
 * index. A row is divided into pieces of `piece` elements. counts is [row][digit][piece],
 * and totals is [row][digit]. The last pass writes indices or elements, as for short rows. */
typedef struct sort_params {
    unsigned long long in, from, to, counts, totals;
    long long n, m, first, in_step, n_rows, piece, n_pieces;
    long long extent[ROUTINE_RANK], step[ROUTINE_RANK];
    unsigned rank, kind, size, flip, source;
    unsigned shift;    /* position of the digit in a word, in bits */
    unsigned to_index; /* this is the last pass */
    unsigned values;   /* the last pass writes elements, not indices as i64 */
} sort_params;

/* which, compress: a vector in pieces. counts has one word per piece. */
typedef struct which_params {
    unsigned long long in, out, counts;
    unsigned long long values; /* compress: the vector whose elements are written; else 0 */
    long long n, m, in_step, value_step, piece, n_pieces;
    long long rest; /* which: value of the elements behind the last position */
    unsigned kind, size;
    unsigned value_size; /* bytes of an element of the result */
    unsigned unused;
} which_params;

/* How values are combined with elements: the values of df_scatter_how. */
enum { SCATTER_ADD, SCATTER_SET, SCATTER_MUL, SCATTER_MIN, SCATTER_MAX };

/* A scatter. Kernels iterate over two boxes: the first `rank` axes, and the `inner` axes
 * after them.
 *
 *   kernel        first box                                         second box
 *   check, tell   axes that the index steps along                   none
 *   atomic        all axes                                          none
 *   walk          axes that are kept                                axes along which values meet
 *   slots, runs   axes that the index steps along or along which    the other axes
 *                 values meet; a position in this box is an *entry*
 *
 * The slot of an entry is the number of its target: (position along kept axes) * n + index.
 * A word is the slot of an entry above the number of the entry. */
typedef struct scatter_params {
    unsigned long long out, index, value, fault, first_bad, words;
    long long n, step; /* extent and step of the indexed axis of out */
    long long n_first, n_inner;
    long long extent[ROUTINE_RANK], out_step[ROUTINE_RANK], index_step[ROUTINE_RANK],
        value_step[ROUTINE_RANK];
    unsigned rank, inner, id;
    unsigned n_slots;    /* the slot of entries with a bad index */
    unsigned index_kind; /* of an index, as of an element to sort */
    unsigned how;        /* SCATTER_* */
    unsigned is_signed;  /* whether values are signed integers */
    unsigned unused;
} scatter_params;

#endif
