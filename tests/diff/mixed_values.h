/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of tensors for mixed_programs.c: on long tensors, whose operators take other code than
 * on short ones, and within dtypes other than f32. All arithmetic in them is on small whole numbers
 * and exact, so that fast mode has the same bits.
 */
#ifndef MIXED_VALUES_H
#define MIXED_VALUES_H

#include "deft/deft.h"

enum { MIXED_LASTING = 20000 }; /* elements of the long tensor that stays */

/* A vector of n whole numbers of dtype t that follow from the elements of x, any numbers of any
 * shape. Their range is small, or with `wide` as large as t has. */
deft_tensor *mixed_long_values(deft_tensor *x, deft_dtype t, int64_t n, unsigned p, bool wide);

/* A long vector of i64 that follows from x, an f32, by an order, a search, a set, a histogram, a
 * scatter, a scan or the like, which p and q choose. */
deft_tensor *mixed_long_work(deft_tensor *x, unsigned p, unsigned q);

/* What a long vector of integers comes to: as f32 of the shape, whole numbers from -4 to 4. */
deft_tensor *mixed_long_digest(deft_tensor *v, deft_shape shape);

/* A dtype that records have or handles show, no storage dtype and not f32. */
deft_dtype mixed_dtype(unsigned p);

/* x, an f32, as small whole numbers of dtype t; for complex t other ones are the imaginary part. */
deft_tensor *mixed_typed(deft_tensor *x, deft_dtype t);

/* A tensor of any dtype as small whole numbers of f32. */
deft_tensor *mixed_untyped(deft_tensor *v);

/* Small whole numbers of a's dtype and shape that follow from a and b, both [m, n] of one dtype. */
deft_tensor *mixed_typed_work(deft_tensor *a, deft_tensor *b, unsigned p);

#endif
