/* SPDX-License-Identifier: Apache-2.0
 *
 * Values added at indices: the reverse of take and gather (compose.c). Each call makes
 * one record; the runtime adds (runtime/exec/scatter.c).
 */
#include "lazy/core/lazy.h"

/* Whether s broadcasts to `to`. */
static bool stretches(const df_shape *s, const df_shape *to)
{
    bool fits = s->rank <= to->rank && to->rank <= DEFT_MAX_RANK;
    for (uint32_t i = 0; fits && i < s->rank; i++) {
        const int64_t n = s->dim[s->rank - 1 - i];
        fits = n == 1 || n == to->dim[to->rank - 1 - i];
    }
    return fits;
}

/* The shape of the result of take from s at indices of shape `at`. df_append refuses a
 * rank beyond the limit. */
static df_shape slices_of(const df_shape *s, const df_shape *at, uint32_t axis)
{
    df_shape out = { .rank = s->rank - 1 + at->rank };
    if (out.rank > DEFT_MAX_RANK) return out;
    for (uint32_t i = 0; i < out.rank; i++)
        out.dim[i] = i < axis              ? s->dim[i]
                     : i < axis + at->rank ? at->dim[i - axis]
                                           : s->dim[i - at->rank + 1];
    return out;
}

/* The record of values, which must have dtype t. A bare number takes t, but a fraction
 * does not take an integer dtype. */
static uint32_t values_of(deft_ctx *cx, const char *what, deft_tensor *values, deft_dtype t)
{
    if (!df_enter_more(cx, what, 3, values)) return DF_BAD;
    const bool is_number = values->flags & DF_HANDLE_WEAK;
    const uint32_t v = is_number ? DF_BAD : df_node_of(cx, values);
    if (!is_number && v == DF_BAD) return DF_BAD;
    const deft_dtype own = is_number ? df_weak_dtype(values, t) : df_dtype_at(cx, v);
    if (own == t) return is_number ? df_weak_node(cx, values, t) : v;
    df_error(cx, DEFT_E_DTYPE, "%s: values are %s, the tensor is %s", what, deft_dtype_name(own),
             deft_dtype_name(t));
    return DF_BAD;
}

static deft_tensor *scatter(df_op op, deft_tensor *t, deft_tensor *indices, deft_tensor *values,
                            int axis, uintptr_t site)
{
    uint32_t a;
    df_shape s, at, have;
    const char *const what = df_op_infos[op].name;
    deft_ctx *const cx = df_begin(what, t, &a, &s, site);
    if (!cx) return NULL;
    const int k = df_check_axis(cx, what, axis, s.rank);
    if (k < 0 || !df_enter_more(cx, what, 2, indices)) return NULL;
    const uint32_t i = df_node_of(cx, indices);
    if (i == DF_BAD) return NULL;
    if (!df_is_int(df_dtype_at(cx, i)))
        return df_error(cx, DEFT_E_DTYPE, "%s: indices are %s, not integers", what,
                        deft_dtype_name(df_dtype_at(cx, i)));
    uint32_t v = values_of(cx, what, values, df_dtype_at(cx, a));
    if (v == DF_BAD) return NULL;
    df_rec_shape(&cx->rec, i, &at);
    df_rec_shape(&cx->rec, v, &have);
    const df_shape want = op == DF_OP_index_add ? slices_of(&s, &at, (uint32_t)k) : at;
    if (!df_shape_equal(&have, &want) && stretches(&have, &want))
        v = df_expand_to(cx, v, &want, site);
    /* Halves are added up in f32 and rounded once. */
    const deft_dtype met = df_dtype_at(cx, a), t_sum = df_is_half(met) ? DEFT_F32 : met;
    const uint32_t src[3] = { df_to(cx, a, t_sum, site), df_indices(cx, i, site),
                              df_to(cx, v, t_sum, site) };
    if (src[0] == DF_BAD || src[1] == DF_BAD || src[2] == DF_BAD) return NULL;
    const uint32_t sums = df_append(cx, op, t_sum, (uint32_t)k, src, NULL, 0, NULL, site);
    return df_result(cx, df_to(cx, sums, met, site));
}

deft_tensor *deft_scatter_add(deft_tensor *t, deft_tensor *indices, deft_tensor *values, int axis)
{
    return scatter(DF_OP_scatter_add, t, indices, values, axis, DF_SITE);
}

deft_tensor *deft_index_add(deft_tensor *t, deft_tensor *indices, deft_tensor *values, int axis)
{
    return scatter(DF_OP_index_add, t, indices, values, axis, DF_SITE);
}
