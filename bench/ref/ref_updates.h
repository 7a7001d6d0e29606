/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops that write a part of an array, as C programs have them; one table per compiler found.
 * Arrays of two axes are row-major, with n elements a row.
 */
#ifndef REF_UPDATES_H
#define REF_UPDATES_H

#include <stdint.h>

typedef struct ref_updates {
    /* column t of x [n,n] = half of columns t and t - 1 together */
    void (*column)(double *x, int64_t n, int64_t t);
    /* rows 1.. of x [n,n] -= rows ..n-1 of y */
    void (*minus)(double *x, const double *y, int64_t n);
    /* one step of fdtd-2d on ex, ey, hz [n,n] */
    void (*fields)(double *ex, double *ey, double *hz, int64_t n);
    /* the inside of u [n,n] = a quarter of the four neighbours' sum; `to` holds the inside */
    void (*stencil)(double *u, double *to, int64_t n);
    /* a[k+1:, k+1:] -= 0.001 a[k+1:, k] a[k, k+1:] of a [n,n] */
    void (*rank1)(double *a, int64_t n, int64_t k);
    /* the gradient of sum(q k v), which lie side by side: [rows, 3 c] */
    void (*parts)(const float *x, float *g, int64_t rows, int64_t c);
} ref_updates;

extern const ref_updates ref_updates_gcc, ref_updates_clang;

#endif
