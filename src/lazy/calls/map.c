/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_map_view: the elements of a tensor, typed, with strides, and writable if asked for. What is
 * written goes to a copy, which is assigned to the tensor when the loan ends. So handles of the old
 * value keep it, and a step can be undone.
 */
#include <string.h>

#include "lazy/calls/views.h"
#include "lazy/core/devices.h"
#include "lazy/run/materialize.h"

/* Finds what is lent: the value where it is, or a copy. *out is counted. */
static deft_status find_lent(deft_ctx *cx, df_value *v, bool is_writable, df_value **out)
{
    if (is_writable || v->flags & DF_VALUE_MUT)
        return df_value_moved(cx, &cx->diag, v, DEFT_CPU, out);
    return df_value_host(cx, &cx->diag, v, out);
}

deft_status deft_map_view(deft_tensor *t, uint32_t dtypes, bool is_writable, deft_view *out)
{
    deft_ctx *cx;
    df_value *v, *lent;
    if (out) *out = (deft_view){ 0 };
    deft_status st = df_read_value("map_view", DF_SITE, t, &cx, &v);
    if (st != DEFT_OK) return st;
    if (!out) return df_fail(&cx->diag, DEFT_E_ARG, "map_view: out is NULL");
    if (!(dtypes >> v->dtype & 1))
        return df_fail(&cx->diag, DEFT_E_DTYPE,
                       "map_view: the tensor is %s, whose elements have another type of C",
                       deft_dtype_name((deft_dtype)v->dtype));
    if (is_writable && t->flags & DF_HANDLE_WEAK)
        return df_fail(&cx->diag, DEFT_E_ARG, "map_view: a bare number cannot be written");
    st = find_lent(cx, v, is_writable, &lent);
    if (st != DEFT_OK) return st;
    *out = (deft_view){ .data = lent->data,
                        .dtype = (deft_dtype)lent->dtype,
                        .rank = lent->rank,
                        .held = lent,
                        .target = is_writable ? t : NULL,
                        .cx = cx };
    memcpy(out->dim, lent->shape.dim, sizeof out->dim);
    memcpy(out->stride, lent->stride, sizeof out->stride);
    return DEFT_OK;
}

/* Assigns what was written to the tensor, on the device where its value was. */
static deft_status write_back(deft_ctx *cx, deft_tensor *target, df_value *written)
{
    df_value *there = NULL;
    const df_value *before = NULL;
    const size_t n = df_value_size(written);
    df_act(cx, "unmap_view", cx->act_site);
    deft_status st = df_may_act(cx);
    if (st != DEFT_OK) return st;
    if (!df_enter_more(cx, "unmap_view", 1, target)) return df_deliver(cx);
    for (size_t i = 0; written->dtype == DEFT_BOOL && i < n; i++)
        written->data[i] = written->data[i] != 0; /* kernels rely on 0 and 1 */
    before = df_handle_value(cx, target);
    const deft_device where = before ? df_value_where(cx, before) : cx->default_device;
    if (where == DEFT_CPU) return df_assign_value(cx, target, written);
    st = df_value_moved(cx, &cx->diag, written, where, &there);
    if (st == DEFT_OK) st = df_assign_value(cx, target, there);
    df_value_drop(cx, &there);
    return st;
}

deft_status deft_unmap_view(deft_view *view)
{
    deft_status st = DEFT_OK;
    if (!view || !view->held) return DEFT_OK;
    df_value *v = view->held;
    if (view->target) st = write_back(view->cx, view->target, v);
    df_value_drop(view->cx, &v);
    *view = (deft_view){ 0 };
    return st;
}
