/* SPDX-License-Identifier: Apache-2.0
 *
 * Faces: dtypes that only handles have. The record of such a tensor has another dtype and more
 * axes: that of a c64 of shape [M,N] is an f32 of shape [M,N,2]. The axes that the program does not
 * see are the last ones. A call that moves elements treats them as axes that stay where they are.
 *
 * The record of a storage dtype has the codes as u8, and the shape that the program sees. Of u4 and
 * i4, the last axis of the record has a byte for two elements; the last byte of a row may be half
 * used. Such a tensor has at least one axis, and that axis never moves.
 *
 * The face of a handle never changes. All functions need the thread of the context.
 */
#ifndef DF_LAZY_FACE_H
#define DF_LAZY_FACE_H

#include "lazy/core/record.h"

/* Added to the face of a packed dtype when the last extent is odd. Only half of the last byte of a
 * row is used then. The packed dtypes are the last rows of the table. */
#define DF_FACE_ODD 2u
_Static_assert(DF_N_FACES + DF_FACE_ODD <= DF_MAX_FACE, "a face has 4 bits");

#define DF_FACE_BIT(dtype) (1u << (DEFT_##dtype - DF_N_RECORDED + 1))
#define DF_COMPLEX_FACES (DF_FACE_BIT(C64) | DF_FACE_BIT(C128))
/* The faces whose elements are whole bytes. A call that moves elements takes them. */
#define DF_WHOLE_FACES                                                                             \
    (DF_COMPLEX_FACES | DF_FACE_BIT(F8E4M3FN) | DF_FACE_BIT(F8E5M2) | DF_FACE_BIT(E8M0))
#define DF_ALL_FACES 0xfffeu

/* The dtype that a face shows. A face is not 0. */
DF_INLINE deft_dtype df_face_dtype(df_face face)
{
    df_assert(face);
    return (deft_dtype)(DF_N_RECORDED - 1 + (int)(face > DF_N_FACES ? face - DF_FACE_ODD : face));
}

/* The face that shows dtype t; 0 for a dtype that records have. Of a packed dtype, the one for an
 * even last extent. */
DF_INLINE df_face df_face_for(deft_dtype t)
{
    return df_is_face(t) ? (df_face)((int)t - DF_N_RECORDED + 1) : 0;
}

DF_INLINE bool df_face_is_complex(df_face face)
{
    return face && df_is_complex(df_face_dtype(face));
}

/* Whether it shows a storage dtype, and whether two of its elements share a byte. */
DF_INLINE bool df_face_is_stored(df_face face)
{
    return face && df_is_stored(df_face_dtype(face));
}

DF_INLINE bool df_face_is_packed(df_face face)
{
    return face && df_kind_of(df_face_dtype(face)) == DF_KIND_packed;
}

/* The number of last axes of a record that a handle with that face does not show. */
DF_INLINE uint32_t df_face_axes(df_face face)
{
    return df_face_is_complex(face) ? 1 : 0;
}

/* The dtype and shape of t as the program sees them. A lost tensor has dtype bool and no axes. */
deft_dtype df_shown_dtype(const deft_ctx *cx, const deft_tensor *t);
void df_shown_shape(const deft_ctx *cx, const deft_tensor *t, df_shape *out);

/* The face of a tensor of dtype t and shape s, as the program sees them. */
df_face df_face_fitting(deft_dtype t, const df_shape *s);

/* Makes the shape s that a program sees with that face the shape of the record. Returns false with
 * the error recorded when it has too many axes, or too few. */
bool df_face_hide(deft_ctx *cx, const char *what, df_face face, df_shape *s);
/* The reverse. */
void df_face_show(df_face face, df_shape *s);

/* Record i of indices for elements of a record with that face: the axes that the program does not
 * see are appended. DF_BAD on failure. */
uint32_t df_indices_hide(deft_ctx *cx, const char *what, df_face face, uint32_t i, uintptr_t site);

/* Gives the new handle t that face; t may be NULL. Returns t. */
deft_tensor *df_wear(deft_tensor *t, df_face face);
/* df_result with a face. */
deft_tensor *df_result_faced(deft_ctx *cx, uint32_t node, df_face face);

/* Why a call refuses a tensor of a packed dtype that would divide a byte. */
#define DF_SHARED_BYTES                                                                            \
    "two elements of which share a byte of the last axis: cast it to u8 or i8 first"

/* Refuses a tensor with that face, of a storage dtype, in the call `what`, for the reason `why`.
 * NULL. */
void *df_refuse_stored(deft_ctx *cx, const char *what, df_face face, const char *why);

/* df_begin for a call that knows faces. *s is the shape that the program sees. df_begin_faced is
 * for calls that know complex numbers, and no other faces. */
deft_ctx *df_begin_of(const char *what, deft_tensor *t, df_faces faces, uint32_t *node, df_shape *s,
                      uintptr_t site);
deft_ctx *df_begin_faced(const char *what, deft_tensor *t, uint32_t *node, df_shape *s,
                         uintptr_t site);

#endif
