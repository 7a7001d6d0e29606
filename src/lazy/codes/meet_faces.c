/* SPDX-License-Identifier: Apache-2.0
 *
 * The dtype in which parts with faces meet (codes.h): complex numbers promote, and codes do not.
 */
#include "lazy/codes/codes.h"
#include "lazy/complex/complex.h"

/* The complex records of n parts, some of which may be real, with parts of dtype *t. */
static bool meet_complex(deft_ctx *cx, deft_tensor *const *parts, size_t n, uint32_t *piece,
                         deft_dtype *t, uintptr_t site)
{
    *t = df_complex_meet(cx, parts, n);
    for (size_t i = 0; i < n; i++) {
        const df_parts p = df_complex_operand(cx, parts[i], *t, site);
        piece[i] = p.is_real ? df_parts_join(cx, p, site) : df_node_of(cx, parts[i]);
        piece[i] = df_to(cx, piece[i], *t, site);
        if (piece[i] == DF_BAD) return false;
    }
    return true;
}

/* The records of n parts, all of one storage dtype. */
static bool meet_codes(deft_ctx *cx, const char *what, deft_tensor *const *parts, size_t n,
                       uint32_t *piece)
{
    const deft_dtype t = df_shown_dtype(cx, parts[0]);
    for (size_t i = 0; i < n; i++) {
        const deft_dtype own = df_shown_dtype(cx, parts[i]);
        if (own == t && (piece[i] = df_node_of(cx, parts[i])) != DF_BAD) continue;
        if (own != t)
            df_error(cx, DEFT_E_DTYPE, "%s: part 0 is %s, part %zu is %s: cast one to the other",
                     what, deft_dtype_name(t), i, deft_dtype_name(own));
        return false;
    }
    return true;
}

bool df_meet_faces(deft_ctx *cx, const char *what, deft_tensor *const *parts, size_t n,
                   df_faces faces, uint32_t *piece, deft_dtype *t, df_face *face, uintptr_t site)
{
    if (faces & ~DF_COMPLEX_FACES & ~1u) {
        *face = df_face_of(parts[0]);
        *t = DEFT_U8;
        return meet_codes(cx, what, parts, n, piece);
    }
    if (!meet_complex(cx, parts, n, piece, t, site)) return false;
    *face = df_face_for(df_complex_of(*t));
    return true;
}
