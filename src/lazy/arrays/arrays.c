/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for the functions of deft/array.h.
 */
#include "lazy/arrays/arrays.h"

#include "lazy/complex/complex.h"

#include <string.h>

deft_ctx *df_array_begin(const char *what, deft_tensor *t, df_shape *s, uintptr_t site)
{
    uint32_t node;
    return df_begin(what, t, &node, s, site);
}

deft_ctx *df_array_begin_faced(const char *what, deft_tensor *t, df_shape *s, uintptr_t site)
{
    uint32_t node;
    return df_begin_faced(what, t, &node, s, site);
}

deft_ctx *df_array_begin_any(const char *what, deft_tensor *t, df_shape *s, uintptr_t site)
{
    uint32_t node;
    return df_begin_of(what, t, DF_ALL_FACES, &node, s, site);
}

deft_ctx *df_array_begin_list(const char *what, deft_tensor *const *t, size_t n, deft_status *st,
                              uintptr_t site)
{
    *st = DEFT_E_ARG;
    if (!t || !n) return NULL;
    deft_ctx *const cx = df_enter_faced(what, 1, t[0], site);
    if (!cx) return NULL;
    for (size_t i = 1; i < n; i++) {
        if (df_enter_more_faced(cx, what, (unsigned)i + 1, t[i])) continue;
        *st = cx->pending;
        return NULL;
    }
    *st = DEFT_OK;
    return cx;
}

deft_ctx *df_array_meet(const char *what, deft_tensor *a, deft_tensor *b, deft_tensor **out,
                        deft_dtype *t, uintptr_t site)
{
    uint32_t node[2];
    deft_tensor *const list[2] = { a, b };
    deft_ctx *const cx = df_enter(what, 1, a, site);
    const df_meeting m = { .what = what, .first = 1, .op = DF_OP_eq, .site = site };
    if (!cx || !df_meet(cx, &m, list, 2, node, t)) return NULL;
    for (int i = 0; i < 2; i++)
        if (!(out[i] = df_result(cx, df_to(cx, node[i], *t, site)))) return NULL;
    return cx;
}

deft_ctx *df_array_meet_faced(const char *what, deft_tensor *a, deft_tensor *b, deft_tensor **out,
                              deft_dtype *t, uintptr_t site)
{
    deft_tensor *const list[2] = { a, b };
    deft_ctx *const cx = df_enter_faced(what, 1, a, site);
    if (!cx || !df_enter_more_faced(cx, what, 2, b)) return NULL;
    if (!df_face_of(a) && !df_face_of(b)) return df_array_meet(what, a, b, out, t, site);
    const deft_dtype part = df_complex_meet(cx, list, 2);
    *t = df_complex_of(part);
    for (int i = 0; i < 2; i++) {
        const df_parts z = df_complex_operand(cx, list[i], part, site);
        if (!(out[i] = df_complex_cast(cx, z, *t, site))) return NULL;
    }
    return cx;
}

deft_tensor *df_array_lift(deft_tensor *t)
{
    const deft_dtype own = deft_dtype_of(t);
    return df_is_half(own) ? deft_cast(t, df_arithmetic_dtype(own)) : t;
}

deft_tensor *df_array_round(deft_tensor *t, deft_dtype as)
{
    return t && df_is_half(as) ? deft_cast(t, as) : t;
}

deft_tensor *df_array_whole(deft_ctx *cx, deft_dtype dtype, int64_t value)
{
    return deft_full_i(cx, (deft_shape){ .rank = 0 }, dtype, value);
}

deft_tensor *df_array_part(deft_tensor *t, int axis, int64_t start, int64_t n)
{
    deft_range r[DEFT_MAX_RANK];
    df_assert(axis >= 0 && axis < DEFT_MAX_RANK);
    for (int i = 0; i < axis; i++) r[i] = DEFT_FULL;
    r[axis] = DEFT_R(start, start + n);
    return deft_slice_n(t, (size_t)axis + 1, r);
}

deft_tensor *df_array_root(deft_ctx *cx, deft_tensor *v)
{
    if (!v) return NULL;
    deft_tensor *const is_above = deft_lt(df_array_whole(cx, deft_dtype_of(v), 0), v);
    deft_tensor *const one = df_array_whole(cx, deft_dtype_of(v), 1);
    return deft_where(is_above, deft_sqrt(deft_where(is_above, v, one)), v);
}

deft_shape df_array_shape(const df_shape *s)
{
    deft_shape out = { .rank = s->rank };
    memcpy(out.dim, s->dim, s->rank * sizeof *s->dim);
    return out;
}
