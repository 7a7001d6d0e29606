/* SPDX-License-Identifier: Apache-2.0
 *
 * Values combined with elements at indices: the reverse of take and gather (compose.c). A call
 * makes one record of an op scatter_* or index_*, which the runtime computes
 * (runtime/exec/scatter.c). Only means, and results without the elements of the tensor, are
 * composed of several.
 */
#include "lazy/complex/complex.h"

#include "base/compiler.h"

#include <math.h>

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

/* The record of values, which must have the dtype of t. A bare number takes it, but a fraction
 * does not take an integer dtype. */
static uint32_t values_of(deft_ctx *cx, const char *what, deft_tensor *values, const deft_tensor *t,
                          uintptr_t site)
{
    if (!df_enter_more_faced(cx, what, 3, values)) return DF_BAD;
    const bool is_number = values->flags & DF_HANDLE_WEAK;
    const deft_dtype want = df_shown_dtype(cx, t), as = df_record_dtype(want);
    uint32_t v = is_number ? DF_BAD : df_node_of(cx, values);
    if (!is_number && v == DF_BAD) return DF_BAD;
    const deft_dtype own = is_number ? df_weak_dtype(values, as) : df_shown_dtype(cx, values);
    if (own == (is_number ? as : want)) {
        if (is_number) v = df_weak_node(cx, values, as);
        if (!is_number || !df_is_complex(want)) return v;
        return df_parts_join(cx, (df_parts){ v, DF_BAD, true }, site);
    }
    df_error(cx, DEFT_E_DTYPE, "%s: values are %s, the tensor is %s", what, deft_dtype_name(own),
             deft_dtype_name(want));
    return DF_BAD;
}

/* A call that scatters: its name, and its operands as records. */
typedef struct call {
    deft_ctx *cx;
    const char *what;
    bool slices; /* an index stands for a slice of values, and not for one value */
    uint32_t axis, t, indices, values;
    deft_dtype dtype; /* of the tensor, of values and of the result */
    bool knows_faces; /* the parts of complex numbers are combined each by itself */
    df_face face;     /* of the tensor and of the result */
    uintptr_t site;
} call;

/* Checks the arguments and sets *c. Returns false with the error recorded. */
static bool call_begin(call *c, deft_tensor *t, deft_tensor *indices, deft_tensor *values, int axis)
{
    df_shape s, at, have;
    deft_ctx *const cx = c->cx = c->knows_faces ? df_begin_faced(c->what, t, &c->t, &s, c->site)
                                                : df_begin(c->what, t, &c->t, &s, c->site);
    if (!cx) return false;
    const int k = df_check_axis(cx, c->what, axis, s.rank);
    if (k < 0 || !df_enter_more(cx, c->what, 2, indices)) return false;
    uint32_t i = df_node_of(cx, indices);
    if (i == DF_BAD) return false;
    if (!df_is_int(df_dtype_at(cx, i))) {
        df_error(cx, DEFT_E_DTYPE, "%s: indices are %s, not integers", c->what,
                 deft_dtype_name(df_dtype_at(cx, i)));
        return false;
    }
    c->axis = (uint32_t)k;
    c->face = df_face_of(t);
    c->dtype = df_dtype_at(cx, c->t);
    c->values = values_of(cx, c->what, values, t, c->site);
    if (c->values == DF_BAD) return false;
    i = c->indices = df_indices(cx, i, c->site);
    if (!c->slices) i = c->indices = df_indices_hide(cx, c->what, c->face, i, c->site);
    if (i == DF_BAD) return false;
    df_rec_shape(&cx->rec, c->t, &s);
    df_rec_shape(&cx->rec, i, &at);
    df_rec_shape(&cx->rec, c->values, &have);
    const df_shape want = c->slices ? slices_of(&s, &at, c->axis) : at;
    if (!df_shape_equal(&have, &want) && stretches(&have, &want))
        c->values = df_expand_to(cx, c->values, &want, c->site);
    return c->values != DF_BAD;
}

/* Records one op on the operands of c, but with another base and other values. */
static uint32_t over(const call *c, df_scatter_how how, uint32_t base, uint32_t values)
{
    if (base == DF_BAD || values == DF_BAD) return DF_BAD;
    const uint32_t src[3] = { base, c->indices, values };
    return df_append(c->cx, df_scatter_op(c->slices, how), df_dtype_at(c->cx, base), c->axis, src,
                     NULL, 0, NULL, c->site);
}

/* The same with the values of c, in the dtype in which they are combined: f32 for halves, unless
 * they are only stored. */
static uint32_t combine_values(const call *c, df_scatter_how how, uint32_t base)
{
    const bool widens = how != DF_SCATTER_SET && df_is_half(c->dtype);
    const deft_dtype t = widens ? DEFT_F32 : c->dtype;
    return over(c, how, df_to(c->cx, base, t, c->site), df_to(c->cx, c->values, t, c->site));
}

/* Returns the handle of the record `result`, rounded to the dtype of the tensor. */
static deft_tensor *call_end(const call *c, uint32_t result)
{
    return df_result_faced(c->cx, df_to(c->cx, result, c->dtype, c->site), c->face);
}

static deft_tensor *scatter(const char *what, bool slices, df_scatter_how how, deft_tensor *t,
                            deft_tensor *indices, deft_tensor *values, int axis, uintptr_t site)
{
    const bool by_parts = how == DF_SCATTER_ADD || how == DF_SCATTER_SET;
    call c = { .what = what, .slices = slices, .knows_faces = by_parts, .site = site };
    if (!call_begin(&c, t, indices, values, axis)) return NULL;
    return call_end(&c, combine_values(&c, how, c.t));
}

deft_tensor *deft_scatter_add(deft_tensor *t, deft_tensor *indices, deft_tensor *values, int axis)
{
    return scatter("scatter_add", false, DF_SCATTER_ADD, t, indices, values, axis, DF_SITE);
}

deft_tensor *deft_index_add(deft_tensor *t, deft_tensor *indices, deft_tensor *values, int axis)
{
    return scatter("index_add", true, DF_SCATTER_ADD, t, indices, values, axis, DF_SITE);
}

deft_tensor *deft_scatter(deft_tensor *t, deft_tensor *indices, deft_tensor *values, int axis)
{
    return scatter("scatter", false, DF_SCATTER_SET, t, indices, values, axis, DF_SITE);
}

deft_tensor *deft_index_copy(deft_tensor *t, deft_tensor *indices, deft_tensor *values, int axis)
{
    return scatter("index_copy", true, DF_SCATTER_SET, t, indices, values, axis, DF_SITE);
}

/* ---- reductions ---- */

/* The number that changes no value which is combined with it. */
static uint32_t neutral(const call *c, deft_scatter_how how)
{
    deft_ctx *const cx = c->cx;
    const deft_dtype t = c->dtype;
    if (how == DEFT_SCATTER_PROD) return df_cst(cx, t, 1, c->site);
    if (how != DEFT_SCATTER_AMIN && how != DEFT_SCATTER_AMAX) return df_cst(cx, t, 0, c->site);
    if (df_is_float(t))
        return df_number_f(cx, c->what, t, how == DEFT_SCATTER_AMIN ? INFINITY : -INFINITY,
                           c->site);
    return how == DEFT_SCATTER_AMIN ? df_number_u(cx, c->what, t, df_int_greatest(t), c->site)
                                    : df_number_i(cx, c->what, t, df_int_least(t), c->site);
}

/* base with `value`, which has no axes, at every index of c. */
static uint32_t put_number(const call *c, df_scatter_how how, uint32_t base, uint32_t value)
{
    df_shape s;
    df_rec_shape(&c->cx->rec, c->values, &s);
    return over(c, how, base, s.rank == 0 ? value : df_expand_to(c->cx, value, &s, c->site));
}

/* How many values each element of sums is the sum of. Elements that no index selects count 1. */
static uint32_t counts(const call *c, bool include_self)
{
    deft_ctx *const cx = c->cx;
    df_shape s;
    df_rec_shape(&cx->rec, c->t, &s);
    const uint32_t none = df_cst(cx, DEFT_I64, include_self, c->site);
    const uint32_t one = df_cst(cx, DEFT_I64, 1, c->site);
    const uint32_t n = put_number(c, DF_SCATTER_ADD, df_expand_to(cx, none, &s, c->site), one);
    return include_self || n == DF_BAD ? n : df_map2(cx, DF_OP_maximum, n, one, c->site);
}

static deft_tensor *reduce_at(const char *what, bool slices, deft_tensor *tensor,
                              deft_tensor *indices, deft_tensor *values, int axis,
                              deft_scatter_how how, bool include_self, uintptr_t site)
{
    static const uint8_t hows[] = { [DEFT_SCATTER_SUM] = DF_SCATTER_ADD,
                                    [DEFT_SCATTER_PROD] = DF_SCATTER_MUL,
                                    [DEFT_SCATTER_MEAN] = DF_SCATTER_ADD,
                                    [DEFT_SCATTER_AMIN] = DF_SCATTER_MIN,
                                    [DEFT_SCATTER_AMAX] = DF_SCATTER_MAX };
    call c = { .what = what, .slices = slices, .site = site };
    if (!call_begin(&c, tensor, indices, values, axis)) return NULL;
    if ((unsigned)how >= DF_LEN(hows))
        return df_error(c.cx, DEFT_E_ARG, "%s: %d is no reduction", what, (int)how);
    if (c.dtype == DEFT_BOOL)
        return df_error(c.cx, DEFT_E_DTYPE, "%s: the tensor is bool: arithmetic needs numbers",
                        what);
    const uint32_t base =
        include_self ? c.t : put_number(&c, DF_SCATTER_SET, c.t, neutral(&c, how));
    const uint32_t out = combine_values(&c, (df_scatter_how)hows[how], base);
    if (how != DEFT_SCATTER_MEAN || out == DF_BAD) return call_end(&c, out);
    /* Integers are divided as i64 or u64: a narrow one does not hold each count. */
    const deft_dtype t = df_dtype_at(c.cx, out);
    const deft_dtype as = df_is_float(t) ? t : df_is_unsigned(t) ? DEFT_U64 : DEFT_I64;
    const uint32_t n = df_to(c.cx, counts(&c, include_self), as, site);
    return call_end(&c, df_map2(c.cx, df_is_float(t) ? DF_OP_div : DF_OP_floor_div,
                                df_to(c.cx, out, as, site), n, site));
}

deft_tensor *deft_scatter_reduce(deft_tensor *t, deft_tensor *indices, deft_tensor *values,
                                 int axis, deft_scatter_how how, bool include_self)
{
    return reduce_at("scatter_reduce", false, t, indices, values, axis, how, include_self, DF_SITE);
}

deft_tensor *deft_index_reduce(deft_tensor *t, deft_tensor *indices, deft_tensor *values, int axis,
                               deft_scatter_how how, bool include_self)
{
    return reduce_at("index_reduce", true, t, indices, values, axis, how, include_self, DF_SITE);
}
