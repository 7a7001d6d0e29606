/* SPDX-License-Identifier: Apache-2.0
 *
 * Casts between numbers and the codes of storage dtypes (docs/storage.md). Each is a composite of
 * operators on integers, so that all back ends give the same codes, and a cast fuses with what is
 * around it.
 */
#ifndef DF_LAZY_CODES_H
#define DF_LAZY_CODES_H

#include "lazy/core/face.h"

/* The tensor t, whose record is x, in another dtype, when t has a storage dtype or `dtype` is one.
 * Codes of 8 bits are read as f32, those of u4 as u8, and those of i4 as i8, all exactly. Returns
 * NULL with the error recorded. */
deft_tensor *df_cast_stored(deft_ctx *cx, const deft_tensor *t, uint32_t x, deft_dtype dtype,
                            uintptr_t site);

/* The pieces of n parts of a call that joins them, when `faces` is the set of their faces and has
 * more than the 0 of real numbers. Sets *t to the dtype of the records, and *face to the face of
 * the result. Returns false with the error recorded. */
bool df_meet_faces(deft_ctx *cx, const char *what, deft_tensor *const *parts, size_t n,
                   df_faces faces, uint32_t *piece, deft_dtype *t, df_face *face, uintptr_t site);

#endif
