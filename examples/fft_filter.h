/* SPDX-License-Identifier: Apache-2.0
 *
 * A filter in the frequency domain: 256 real numbers are transformed, multiplied by a response, and
 * transformed back. A transform of 256 = 16 x 16 numbers is two products with the matrix of a
 * transform of 16, and factors between them (Gentleman and Sande 1966).
 *
 * All tensors with two parts are f32[2,16,16]: the real parts, then the imaginary ones.
 *
 *   dft       exp(-2 pi i j k / 16) in row j and column k
 *   twiddle   exp(-2 pi i j k / 256)
 *   response  in row j and column k, the factor of frequency j + 16 k
 */
#ifndef FFT_FILTER_H
#define FFT_FILTER_H

#include "deft/deft.h"

enum { FFT_SIDE = 16, FFT_SIZE = FFT_SIDE * FFT_SIDE };

typedef struct fft_numbers {
    deft_tensor *re, *im;
} fft_numbers;

static inline fft_numbers fft_parts(deft_tensor *t)
{
    const deft_range all = DEFT_R(0, DEFT_END);
    return (fft_numbers){ deft_slice(t, DEFT_RS(0, 0, 0), all, all),
                          deft_slice(t, DEFT_RS(1, 0, 0), all, all) };
}

/* a * b. */
static inline fft_numbers fft_times(fft_numbers a, fft_numbers b)
{
    return (fft_numbers){ deft_sub(deft_mul(a.re, b.re), deft_mul(a.im, b.im)),
                          deft_add(deft_mul(a.re, b.im), deft_mul(a.im, b.re)) };
}

static inline fft_numbers fft_conjugate(fft_numbers a)
{
    return (fft_numbers){ a.re, deft_neg(a.im) };
}

/* The matrix product of a and b. */
static inline fft_numbers fft_product(fft_numbers a, fft_numbers b)
{
    return (fft_numbers){ deft_sub(deft_matmul(a.re, b.re), deft_matmul(a.im, b.im)),
                          deft_add(deft_matmul(a.re, b.im), deft_matmul(a.im, b.re)) };
}

/* The filtered block of x, which is f32[256]. */
static inline deft_tensor *fft_filter(deft_ctx *cx, deft_tensor *x, deft_tensor *dft,
                                      deft_tensor *twiddle, deft_tensor *response)
{
    const fft_numbers f = fft_parts(dft), t = fft_parts(twiddle), h = fft_parts(response);
    const fft_numbers back = fft_conjugate(f);
    deft_tensor *const block = deft_reshape(x, DEFT_SHAPE(FFT_SIDE, FFT_SIDE));
    const fft_numbers columns = { deft_matmul(f.re, block), deft_matmul(f.im, block) };
    const fft_numbers spectrum = fft_product(fft_times(columns, t), f);
    const fft_numbers rows = fft_product(fft_times(spectrum, h), back);
    const fft_numbers turned = fft_times(rows, fft_conjugate(t));
    deft_tensor *const y = fft_product(back, turned).re;
    return deft_reshape(deft_mul(y, deft_const_f(cx, 1.0 / FFT_SIZE)), DEFT_SHAPE(FFT_SIZE));
}

#endif
