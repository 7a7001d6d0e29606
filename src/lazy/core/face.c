/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program sees of handles with faces (face.h).
 */
#include "lazy/core/face.h"

deft_dtype df_shown_dtype(const deft_ctx *cx, const deft_tensor *t)
{
    const df_face face = df_face_of(t);
    return face && !df_is_lost(cx, t) ? df_face_dtype(face) : df_tensor_dtype(cx, t);
}

void df_shown_shape(const deft_ctx *cx, const deft_tensor *t, df_shape *out)
{
    df_tensor_shape(cx, t, out);
    if (!df_is_lost(cx, t)) df_face_show(df_face_of(t), out);
}

df_face df_face_fitting(deft_dtype t, const df_shape *s)
{
    const df_face face = df_face_for(t);
    return df_face_is_packed(face) && s->rank && s->dim[s->rank - 1] % 2 ? face + DF_FACE_ODD
                                                                         : face;
}

void df_face_show(df_face face, df_shape *s)
{
    s->rank -= df_face_axes(face);
    if (df_face_is_packed(face))
        s->dim[s->rank - 1] = 2 * s->dim[s->rank - 1] - (face > DF_N_FACES);
}

bool df_face_hide(deft_ctx *cx, const char *what, df_face face, df_shape *s)
{
    if (df_face_is_packed(face)) {
        if (s->rank > 0 && s->rank < DEFT_MAX_RANK) {
            s->dim[s->rank - 1] = s->dim[s->rank - 1] / 2 + s->dim[s->rank - 1] % 2;
            return true;
        }
        df_error(cx, DEFT_E_LIMIT, "%s: %u axes; a tensor of %s has 1 to %d", what, s->rank,
                 deft_dtype_name(df_face_dtype(face)), DEFT_MAX_RANK - 1);
        return false;
    }
    if (!df_face_axes(face)) return true;
    if (s->rank < DEFT_MAX_RANK) {
        s->dim[s->rank++] = 2;
        int64_t n;
        if (df_shape_numel(s, &n)) return true;
        df_error(cx, DEFT_E_SHAPE, "%s: more elements than can be counted", what);
        return false;
    }
    df_error(cx, DEFT_E_LIMIT, "%s: %d axes; a tensor of %s has at most %d", what, DEFT_MAX_RANK,
             deft_dtype_name(df_face_dtype(face)), DEFT_MAX_RANK - 1);
    return false;
}

uint32_t df_indices_hide(deft_ctx *cx, const char *what, df_face face, uint32_t i, uintptr_t site)
{
    df_shape s;
    if (i == DF_BAD || !df_face_axes(face)) return i;
    df_rec_shape(&cx->rec, i, &s);
    if (!df_face_hide(cx, what, face, &s)) return DF_BAD;
    i = df_append(cx, DF_OP_unsqueeze, df_dtype_at(cx, i), 1u << (s.rank - 1), &i, NULL, 0, NULL,
                  site);
    return df_expand_to(cx, i, &s, site);
}

deft_tensor *df_wear(deft_tensor *t, df_face face)
{
    if (t && face) df_flags_change(t, DF_HANDLE_LIVE, df_face_flags(face));
    return t;
}

deft_tensor *df_result_faced(deft_ctx *cx, uint32_t node, df_face face)
{
    return df_wear(df_result(cx, node), face);
}

void *df_refuse_stored(deft_ctx *cx, const char *what, df_face face, const char *why)
{
    return df_error(cx, DEFT_E_DTYPE, "%s: the tensor is %s, %s", what,
                    deft_dtype_name(df_face_dtype(face)), why);
}

deft_ctx *df_begin_of(const char *what, deft_tensor *t, df_faces faces, uint32_t *node, df_shape *s,
                      uintptr_t site)
{
    deft_ctx *const cx = df_enter_of(what, 1, t, faces, site);
    if (!cx) return NULL;
    *node = df_node_of(cx, t);
    if (*node == DF_BAD) return NULL;
    df_rec_shape(&cx->rec, *node, s);
    df_face_show(df_face_of(t), s);
    return cx;
}

deft_ctx *df_begin_faced(const char *what, deft_tensor *t, uint32_t *node, df_shape *s,
                         uintptr_t site)
{
    return df_begin_of(what, t, DF_COMPLEX_FACES, node, s, site);
}
