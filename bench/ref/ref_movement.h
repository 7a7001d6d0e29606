/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops in which data moves, as C programs have them; one table per compiler found. Each loop
 * computes the rows [begin, end) of its result, so that threads can divide it. All loops have one
 * type: `job` says what the arrays are and how large.
 */
#ifndef REF_MOVEMENT_H
#define REF_MOVEMENT_H

#include <stdint.h>

/* rows and columns: of the result, unless a loop says otherwise. */
typedef struct ref_movement_job {
    void *out;
    const void *in[3];
    int64_t rows, columns;
} ref_movement_job;

typedef void (*ref_movement_loop)(const ref_movement_job *j, int64_t begin, int64_t end);

typedef struct ref_movement {
    ref_movement_loop transpose_add; /* f32: x [columns, rows] transposed, plus y */
    ref_movement_loop transpose;     /* f32: x [columns, rows] transposed */
    ref_movement_loop transpose_8;   /* the same with f64 */
    ref_movement_loop transpose_2;   /* the same with elements of 2 bytes */
    ref_movement_loop channels_last; /* f32: x [n, 64, columns] to [n, columns, 64]; rows: n 64 */
    ref_movement_loop take;          /* f32: rows of x [rows, columns] at the i64 indices y */
    /* f32: pairs x[i], x[i + columns / 2] of a row, turned by the angle whose cosine and sine are
     * in[1] and in[2] [256, columns / 2]; row r has the angles of row r mod 256 */
    ref_movement_loop rotary;
    ref_movement_loop stencil;     /* f32: 7 points in a cube of `columns`, its inside alone */
    ref_movement_loop integers;    /* i32: (x * y + 7) ^ (x >> 3), wrapping */
    ref_movement_loop magnitude;   /* f32: sqrt(x * x + y * y) */
    ref_movement_loop interleaved; /* the same for pairs: x [rows, columns, 2] */
    ref_movement_loop concat;      /* f32: x and y [rows, columns / 2] side by side */
    ref_movement_loop pad;         /* f32: a frame of zeros around x [rows - 2, columns - 2] */
    ref_movement_loop stack;       /* f32: x and y as pairs, columns / 2 in a row */
    ref_movement_loop deviation;   /* f32: standard deviation of the rows of x [rows, columns] */
} ref_movement;

extern const ref_movement ref_movement_gcc, ref_movement_clang;

#endif
