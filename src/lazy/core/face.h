/* SPDX-License-Identifier: Apache-2.0
 *
 * Faces: dtypes that only handles have. The record of such a tensor has another dtype and more
 * axes: that of a c64 of shape [M,N] is an f32 of shape [M,N,2]. The axes that the program does not
 * see are the last ones. A call that moves elements treats them as axes that stay where they are.
 *
 * The face of a handle never changes. All functions need the thread of the context.
 */
#ifndef DF_LAZY_FACE_H
#define DF_LAZY_FACE_H

#include "lazy/core/record.h"

/* The dtype that a face shows. A face is not 0. */
DF_INLINE deft_dtype df_face_dtype(df_face face)
{
    df_assert(face);
    return (deft_dtype)(DF_N_RECORDED - 1 + (int)face);
}

/* The face that shows dtype t; 0 for a dtype that records have. */
DF_INLINE df_face df_face_for(deft_dtype t)
{
    return df_is_face(t) ? (df_face)((int)t - DF_N_RECORDED + 1) : 0;
}

DF_INLINE bool df_face_is_complex(df_face face)
{
    return face && df_is_complex(df_face_dtype(face));
}

/* The number of last axes of a record that a handle with that face does not show. */
DF_INLINE uint32_t df_face_axes(df_face face)
{
    return df_face_is_complex(face) ? 1 : 0;
}

/* The dtype and shape of t as the program sees them. A lost tensor has dtype bool and no axes. */
deft_dtype df_shown_dtype(const deft_ctx *cx, const deft_tensor *t);
void df_shown_shape(const deft_ctx *cx, const deft_tensor *t, df_shape *out);

/* Makes the shape s that a program sees with that face the shape of the record. Returns false with
 * the error recorded when it has too many axes. */
bool df_face_hide(deft_ctx *cx, const char *what, df_face face, df_shape *s);
/* The reverse. */
DF_INLINE void df_face_show(df_face face, df_shape *s)
{
    s->rank -= df_face_axes(face);
}

/* Record i of indices for elements of a record with that face: the axes that the program does not
 * see are appended. DF_BAD on failure. */
uint32_t df_indices_hide(deft_ctx *cx, const char *what, df_face face, uint32_t i, uintptr_t site);

/* Gives the new handle t that face; t may be NULL. Returns t. */
deft_tensor *df_wear(deft_tensor *t, df_face face);
/* df_result with a face. */
deft_tensor *df_result_faced(deft_ctx *cx, uint32_t node, df_face face);

/* df_begin for a call that knows faces. *s is the shape that the program sees. */
deft_ctx *df_begin_faced(const char *what, deft_tensor *t, uint32_t *node, df_shape *s,
                         uintptr_t site);

#endif
