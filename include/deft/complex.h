/* SPDX-License-Identifier: Apache-2.0
 *
 * Complex tensors: dtypes c64 and c128, and what only they need. docs/complex.md says what the
 * other functions mean for them. A function without a meaning for complex numbers refuses them,
 * with DEFT_E_DTYPE.
 *
 * An element is two reals in memory, first the real part: the float _Complex and double _Complex of
 * C. The rules of tensor.h hold for all functions here.
 */
#ifndef DEFT_COMPLEX_H
#define DEFT_COMPLEX_H

#include "deft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The complex tensor with the parts re and im, which broadcast. It is c128 when either is f64,
 * else c64. A bare number may be a part. */
DEFT_API deft_tensor *deft_complex(deft_tensor *re, deft_tensor *im);

/** The complex tensor r * (cos(angle) + i sin(angle)). The operands broadcast. */
DEFT_API deft_tensor *deft_polar(deft_tensor *r, deft_tensor *angle);

/** A tensor whose elements all are re + i im. dtype must be complex. With an empty shape it is a
 * complex number for calls that take tensors. Both parts are arguments of the trace: others reuse
 * the same plan. */
DEFT_API deft_tensor *deft_full_c(deft_ctx *cx, deft_shape shape, deft_dtype dtype, double re,
                                  double im);

/** The real part and the imaginary part. Of a complex tensor the result is a view, through which it
 * can be assigned. deft_real of a real tensor is that tensor, and deft_imag refuses it. */
DEFT_API deft_tensor *deft_real(deft_tensor *t);
DEFT_API deft_tensor *deft_imag(deft_tensor *t);

/** The complex conjugate. It costs nothing: what uses it takes the other sign. A real tensor is its
 * own conjugate. */
DEFT_API deft_tensor *deft_conj(deft_tensor *t);

/** The angle of each number, from -pi to pi. Of a real tensor, 0, or pi where it is negative. */
DEFT_API deft_tensor *deft_angle(deft_tensor *t);

/** The same memory as reals, with a last axis of extent 2 for the parts. The result is a view. */
DEFT_API deft_tensor *deft_view_as_real(deft_tensor *t);

/** The reverse: t is f32 or f64, and its last axis has extent 2. The result is a view. */
DEFT_API deft_tensor *deft_view_as_complex(deft_tensor *t);

#ifdef __cplusplus
}
#endif

#endif
