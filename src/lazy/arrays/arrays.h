/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for the functions of deft/array.h. Those functions are made of public calls, so that
 * they record what a program could record. Each function checks its arguments first. So an error
 * names the function that the program called, and not one of those below it.
 */
#ifndef DF_LAZY_ARRAYS_H
#define DF_LAZY_ARRAYS_H

#include "lazy/layer.h"
#include "lazy/core/recorder.h"

/* A public call on tensor t begins. Returns the context and sets *s to the shape of t. Returns
 * NULL with the error recorded. */
deft_ctx *df_array_begin(const char *what, deft_tensor *t, df_shape *s, uintptr_t site);

/* The same for a call that is made of calls which know faces (core/face.h). */
deft_ctx *df_array_begin_faced(const char *what, deft_tensor *t, df_shape *s, uintptr_t site);
/* The same for a call that only moves elements: those that it is made of refuse what they cannot
 * move. */
deft_ctx *df_array_begin_any(const char *what, deft_tensor *t, df_shape *s, uintptr_t site);

/* The context of the n tensors of a list, with a record for each. Returns NULL with the error
 * recorded, and *st set. */
deft_ctx *df_array_begin_list(const char *what, deft_tensor *const *t, size_t n, deft_status *st,
                              uintptr_t site);

/* t in the dtype in which composites compute: f32 for a half, else the dtype of t. */
deft_tensor *df_array_lift(deft_tensor *t);

/* t rounded to `as` when `as` is a half. */
deft_tensor *df_array_round(deft_tensor *t, deft_dtype as);

/* A 0-d tensor with an integer value in a dtype. It is a part of the program, also in a captured
 * function. */
deft_tensor *df_array_whole(deft_ctx *cx, deft_dtype dtype, int64_t value);

/* Elements [start, start + n) along axis. They exist. */
deft_tensor *df_array_part(deft_tensor *t, int axis, int64_t start, int64_t n);

/* Sets out[0] and out[1] to a and b in the dtype in which they meet, which is *t. Returns the
 * context, or NULL with the error recorded. */
deft_ctx *df_array_meet(const char *what, deft_tensor *a, deft_tensor *b, deft_tensor **out,
                        deft_dtype *t, uintptr_t site);

/* The same for a call that is made of calls which know faces. */
deft_ctx *df_array_meet_faced(const char *what, deft_tensor *a, deft_tensor *b, deft_tensor **out,
                              deft_dtype *t, uintptr_t site);

/* The root of v, a sum of squares. Where v is 0 the result is v itself, since the root has an
 * infinite gradient there, and that of v is 0. NaN stays NaN. v may be NULL. */
deft_tensor *df_array_root(deft_ctx *cx, deft_tensor *v);

/* The shape in the form that public calls take. */
deft_shape df_array_shape(const df_shape *s);

#endif
