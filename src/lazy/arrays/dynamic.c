/* SPDX-License-Identifier: Apache-2.0
 *
 * Slices whose beginnings are tensors. A slice is taken axis by axis at the indices start,
 * start + 1 and so on. An update is a copy of slices to these indices along one axis. With several
 * axes, the slice along the first is updated along the others, and is then copied back.
 */
#include "lazy/arrays/arrays.h"

/* The axes of t that begin at tensors. */
typedef struct dynamic {
    deft_ctx *cx;
    deft_tensor *const *start; /* by axis; NULL: the whole axis */
    const int64_t *size;
    uint32_t rank;
} dynamic;

/* start in i64. Whatever is above the last place stays above it. */
static deft_tensor *as_i64(deft_ctx *cx, deft_tensor *start, int64_t last)
{
    if (deft_dtype_of(start) == DEFT_U64)
        start = deft_minimum(start, df_array_whole(cx, DEFT_U64, last));
    return deft_cast(start, DEFT_I64);
}

/* The indices of the slice along an axis of extent n. */
static deft_tensor *indices_of(const dynamic *d, uint32_t axis, int64_t n)
{
    const int64_t last = n - d->size[axis];
    const deft_shape line = { .rank = 1, .dim = { d->size[axis] } };
    deft_tensor *const start = as_i64(d->cx, d->start[axis], last);
    deft_tensor *const inside =
        deft_maximum(deft_minimum(start, df_array_whole(d->cx, DEFT_I64, last)),
                     df_array_whole(d->cx, DEFT_I64, 0));
    return deft_add(deft_iota(d->cx, line, 0), inside);
}

static deft_tensor *slice_from(const dynamic *d, deft_tensor *t)
{
    for (uint32_t axis = 0; t && axis < d->rank; axis++)
        if (d->start[axis])
            t = deft_take(t, indices_of(d, axis, deft_dim(t, (int)axis)), (int)axis);
    return t;
}

/* t with the slice that begins at the starts of axes [axis, rank) replaced by values. */
static deft_tensor *update_from(const dynamic *d, deft_tensor *t, deft_tensor *values,
                                uint32_t axis)
{
    while (axis < d->rank && !d->start[axis]) axis++;
    if (!t || axis == d->rank) return values;
    deft_tensor *const at = indices_of(d, axis, deft_dim(t, (int)axis));
    uint32_t more = axis + 1;
    while (more < d->rank && !d->start[more]) more++;
    if (more < d->rank) values = update_from(d, deft_take(t, at, (int)axis), values, more);
    return deft_index_copy(t, at, values, (int)axis);
}

/* Checks starts and sizes. Returns false with the error recorded. */
static bool check(const dynamic *d, const char *what, const df_shape *s)
{
    if (!d->start || !d->size) {
        df_error(d->cx, DEFT_E_ARG, "%s: there are no starts or no sizes", what);
        return false;
    }
    for (uint32_t i = 0; i < s->rank; i++) {
        if (!d->start[i]) continue;
        if (!df_enter_more(d->cx, what, 2, d->start[i])) return false;
        const deft_dtype t = deft_dtype_of(d->start[i]);
        if (deft_rank(d->start[i]) != 0 || !df_is_int(t)) {
            df_error(d->cx, DEFT_E_DTYPE,
                     "%s: the start of axis %u is %s with %u axes, not one integer", what, i,
                     deft_dtype_name(t), deft_rank(d->start[i]));
            return false;
        }
        if (d->size[i] < 0 || d->size[i] > s->dim[i]) {
            df_error(d->cx, DEFT_E_RANGE, "%s: %lld elements of axis %u, which has %lld", what,
                     (long long)d->size[i], i, (long long)s->dim[i]);
            return false;
        }
    }
    return true;
}

deft_tensor *deft_dynamic_slice(deft_tensor *t, deft_tensor *const *starts, const int64_t *sizes)
{
    df_shape s;
    deft_ctx *const cx = df_array_begin_faced("dynamic_slice", t, &s, DF_SITE);
    const dynamic d = { cx, starts, sizes, cx ? s.rank : 0 };
    if (!cx || !check(&d, "dynamic_slice", &s)) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, slice_from(&d, t));
}

/* The values as they are stored: with the dtype of t, and with the shape of the slice. */
static deft_tensor *run_update(const dynamic *d, deft_tensor *t, deft_tensor *values,
                               const df_shape *s)
{
    deft_shape slice = df_array_shape(s);
    for (uint32_t i = 0; i < s->rank; i++)
        if (d->start[i]) slice.dim[i] = d->size[i];
    /* a bare number takes dtype and shape where it is stored */
    if (!(values->flags & DF_HANDLE_WEAK)) values = deft_expand(values, slice);
    return values ? update_from(d, t, values, 0) : NULL;
}

deft_tensor *deft_dynamic_update(deft_tensor *t, deft_tensor *values, deft_tensor *const *starts,
                                 const int64_t *sizes)
{
    df_shape s;
    deft_ctx *const cx = df_array_begin_faced("dynamic_update", t, &s, DF_SITE);
    const dynamic d = { cx, starts, sizes, cx ? s.rank : 0 };
    if (!cx || !df_enter_more_faced(cx, "dynamic_update", 2, values) ||
        !check(&d, "dynamic_update", &s))
        return NULL;
    bool any = false;
    for (uint32_t i = 0; i < s.rank; i++) any |= starts[i] != NULL;
    if (!any) return df_error(cx, DEFT_E_ARG, "dynamic_update: no axis has a start");
    if (!(values->flags & DF_HANDLE_WEAK) && deft_dtype_of(values) != deft_dtype_of(t))
        return df_error(cx, DEFT_E_DTYPE, "dynamic_update: values are %s, the tensor is %s",
                        deft_dtype_name(deft_dtype_of(values)), deft_dtype_name(deft_dtype_of(t)));
    DF_LAYER_RETURN(deft_tensor *, cx, run_update(&d, t, values, &s));
}
