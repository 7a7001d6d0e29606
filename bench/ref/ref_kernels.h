/* SPDX-License-Identifier: Apache-2.0
 *
 * Hand-written C for the kernels that the benchmarks compare with. One source text, ref_kernels.c,
 * is compiled several ways; each compilation exports one table.
 *
 *   strict  -O3 -march=native -ffp-contract=off, the library's recipes and reduction order
 *   fast    -Ofast -march=native, libm, any order
 *
 * Strict results equal a strict context's bit for bit; all NaNs count as equal.
 *
 * Everything is f32 unless it says otherwise and single-threaded: a caller splits [begin, end) over
 * threads. Arrays do not overlap. Shapes are row-major and dense. Any length, any alignment;
 * 64-byte alignment is fastest. The formulas below are exact: each operation rounds once, in the
 * order of the parentheses.
 */
#ifndef BENCH_REF_KERNELS_H
#define BENCH_REF_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

enum { REF_LANES = 64, REF_BLOCK = 4096 };

/* out = gelu(x) */
typedef void ref_gelu_fn(float *out, const float *x, int64_t begin, int64_t end);

/* European options (Black, Scholes 1973): s spot, k strike, t years; rate r, volatility vol, and
 * drift = r + vol * vol / 2.
 *
 *   w    = vol * sqrt(t)
 *   d1   = (log(s / k) + drift * t) / w
 *   d2   = d1 - w
 *   n1   = (erf(d1 * 0.70710678) + 1) * 0.5, n2 likewise of d2
 *   disc = k * exp(t * -r)
 *   call = s * n1 - disc * n2
 *   put  = disc * (1 - n2) - s * (1 - n1) */
typedef void ref_black_scholes_fn(float *call, float *put, const float *s, const float *k,
                                  const float *t, float r, float vol, float drift, int64_t begin,
                                  int64_t end);

/* One step of Adam (Kingma, Ba 2015), in place.
 *   m = m + b1 * (g - m)
 *   v = v + b2 * (g * g - v)
 *   p = p - (m / (sqrt(v / c2) + eps)) * rate
 *
 * with b1 = 1 - beta1, b2 = 1 - beta2, c2 = 1 - beta2^step, rate = learning / (1 - beta1^step). */
typedef void ref_adam_fn(float *p, float *m, float *v, const float *g, float b1, float b2, float c2,
                         float rate, float eps, int64_t begin, int64_t end);

/* Sums of (a - b) * (a - b) over the blocks [block_begin, block_end) of n elements: partials[b] for
 * block b. */
typedef void ref_mse_blocks_fn(float *partials, const float *a, const float *b, int64_t n,
                               int64_t block_begin, int64_t block_end);

/* The sum of n block partials: a balanced tree, its shape a function of n. 0 blocks sum to +0. */
typedef float ref_join_fn(const float *partials, int64_t n);

/* The whole mean squared difference of n >= 1 elements: join(blocks) / n. */
typedef float ref_mse_fn(const float *a, const float *b, int64_t n);

/* Rows [begin, end) of cols >= 1 elements: e = exp(x - max(x)), out = e / sum(e). */
typedef void ref_softmax_fn(float *out, const float *x, int64_t cols, int64_t begin, int64_t end);

/* Layer norm (Ba, Kiros, Hinton 2016) of rows [begin, end) of cols >= 1 elements:
 *   d = x - sum(x) / cols, var = sum(d * d) / cols, out = d / sqrt(var + eps) * gain + bias */
typedef void ref_layer_norm_fn(float *out, const float *x, const float *gain, const float *bias,
                               float eps, int64_t cols, int64_t begin, int64_t end);

/* Interior rows [begin, end) (1 <= begin, end <= rows - 1) of one step of the heat equation from u
 * to next, both rows x cols; the boundary of next is left alone, so both buffers must carry it.
 *   next = c + ((up + down) + (left + right) - c * 4) * rate */
typedef void ref_heat_fn(float *next, const float *u, float rate, int64_t cols, int64_t begin,
                         int64_t end);

/* The same, and the greatest |next - c| of these rows (NaN when any is; 0 for no rows). */
typedef float ref_heat_worst_fn(float *next, const float *u, float rate, int64_t cols,
                                int64_t begin, int64_t end);

/* Accelerations of the bodies [begin, end) of n under gravity, softened (Aarseth 1963): over all j
 *   dx = x[j] - x[i] and so on, r2 = (dx * dx + dy * dy) + dz * dz + eps2, inv = 1 / sqrt(r2)
 *   w  = m[j] * (inv * inv * inv),  ax[i] = sum(dx * w) and so on
 * The body itself adds 0. */
typedef void ref_nbody_fn(float *ax, float *ay, float *az, const float *x, const float *y,
                          const float *z, const float *m, float eps2, int64_t n, int64_t begin,
                          int64_t end);

/* Counts for rows [begin, end) of a width x height picture over the points (cx[column], cy[row]):
 * from x = y = 0, n_iter times
 *
 *   alive = x * x + y * y <= 4,  count += alive
 *   (x, y) = alive ? (x * x - y * y + cx, x * y * 2 + cy) : (x, y) */
typedef void ref_mandelbrot_fn(int32_t *count, const float *cx, const float *cy, int32_t n_iter,
                               int64_t width, int64_t begin, int64_t end);

typedef struct ref_kernels {
    const char *name; /* "strict gcc" and so on */
    bool strict;
    ref_gelu_fn *gelu;
    ref_black_scholes_fn *black_scholes;
    ref_adam_fn *adam;
    ref_mse_blocks_fn *mse_blocks;
    ref_join_fn *join;
    ref_mse_fn *mse;
    ref_softmax_fn *softmax;
    ref_layer_norm_fn *layer_norm;
    ref_heat_fn *heat;
    ref_heat_worst_fn *heat_worst;
    ref_nbody_fn *nbody;
    ref_mandelbrot_fn *mandelbrot;
} ref_kernels;

/* Every table in this build: strict and fast by each compiler found. */
extern const ref_kernels *const ref_tables[];
extern const int ref_n_tables;

#endif
