/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls that move a tensor to a device, or give access to its memory there
 * (deft/device.h).
 */
#include "lazy/core/devices.h"
#include "lazy/core/recorder.h"

#include <string.h>

#include "lazy/run/submit.h"
#include "lazy/run/materialize.h"

/* Gives the value of t, computed when it is pending. The caller owns a reference. */
static deft_status value_of(deft_ctx *cx, deft_tensor *t, df_value **out)
{
    df_recording_reads(cx);
    const deft_status st = df_wait_for(cx, df_handle_value(cx, t));
    if (st != DEFT_OK) return st;
    if ((*out = df_value_ref(df_handle_value(cx, t)))) return DEFT_OK;
    df_want w = { .node = df_node_of(cx, t) };
    if (w.node == DF_BAD) return df_deliver(cx);
    const deft_status made = df_sync(cx, &w, 1);
    *out = w.result;
    return made;
}

static deft_status to(deft_ctx *cx, deft_tensor *t, deft_device where, df_value **out)
{
    deft_status st = DEFT_OK;
    df_value *v = NULL;
    TRY(df_ctx_use(cx, &cx->diag, where, NULL));
    TRY(value_of(cx, t, &v));
    if (v->flags & DF_VALUE_WRAPPED || df_value_where(cx, v) != where)
        TRY(df_value_moved(cx, &cx->diag, v, where, out));
    else
        *out = df_value_ref(v);
done:
    df_value_drop(cx, &v);
    return st;
}

deft_tensor *deft_to(deft_tensor *t, deft_device where)
{
    deft_ctx *const cx = df_enter_of("to", 1, t, DF_ALL_FACES, DF_SITE);
    df_value *v = NULL;
    if (!cx) return NULL;
    if (t->flags & DF_HANDLE_WEAK)
        return df_error(cx, DEFT_E_ARG,
                        "to: a bare number lives nowhere: it goes with what it meets");
    if (cx->recording || cx->body_at)
        return df_error(cx, DEFT_E_STATE,
                        "to: inside a captured function, a loop, branch or vmap nothing can be "
                        "computed: move tensors before it");
    df_act(cx, "to", DF_SITE);
    const deft_status st = to(cx, t, where, &v);
    if (st == DEFT_OK) return df_wear(df_tensor_of(cx, v), df_face_of(t));
    char name[DF_DEVICE_TEXT];
    (void)df_fail_more(&cx->diag, " (to %s)", df_device_text(where, name));
    return df_error_keep(cx, st);
}

deft_status deft_device_of(deft_tensor *t, deft_device *out)
{
    if (!t || df_slab_of(t)->magic != DF_SLAB_MAGIC) return DEFT_E_ARG;
    deft_ctx *const cx = df_slab_of(t)->cx;
    df_act(cx, "device_of", DF_SITE);
    const deft_status st = df_may_act(cx);
    if (st != DEFT_OK) return st;
    if (!out) return df_fail(&cx->diag, DEFT_E_ARG, "device_of: nowhere to write to");
    if (!df_enter_more_of(cx, "device_of", 1, t, DF_ALL_FACES)) return df_deliver(cx);
    const df_value *const v = df_handle_value(cx, t);
    *out = cx->default_device;
    if (v && !(v->flags & DF_VALUE_FUTURE)) *out = df_value_where(cx, v);
    if (v || t->flags & DF_HANDLE_WEAK) return DEFT_OK;
    const uint32_t node = df_node_of(cx, t);
    return node == DF_BAD ? df_deliver(cx) : df_cut_where(cx, node, out);
}

deft_status deft_map_device(deft_tensor *t, deft_mapped *out, deft_device *where)
{
    df_value *v = NULL;
    if (out) *out = (deft_mapped){ 0 };
    if (!t || df_slab_of(t)->magic != DF_SLAB_MAGIC) return DEFT_E_ARG;
    deft_ctx *const cx = df_slab_of(t)->cx;
    df_act(cx, "map_device", DF_SITE);
    deft_status st = df_may_act(cx);
    if (st != DEFT_OK) return st;
    if (!out || !where)
        return df_fail(&cx->diag, DEFT_E_ARG, "map_device: %s is NULL", out ? "where" : "out");
    if (!df_enter_of("map_device", 1, t, DF_ALL_FACES, DF_SITE) || df_owes(cx, t))
        return df_deliver(cx);
    st = value_of(cx, t, &v);
    if (st != DEFT_OK) return st;
    if (!df_value_contiguous(v)) {
        df_value_drop(cx, &v);
        return df_fail(&cx->diag, DEFT_E_ARG,
                       "map_device: wrapped memory with gaps is the caller's own: use it there");
    }
    *where = df_value_where(cx, v);
    if (v->flags & DF_VALUE_MUT) { /* assignments write the memory: a copy does not change */
        df_value *copy = NULL;
        st = df_value_moved(cx, &cx->diag, v, *where, &copy);
        df_value_drop(cx, &v);
        if (st != DEFT_OK) return st;
        v = copy;
    }
    *out = (deft_mapped){ .data = v->data, .bytes = df_value_size(v), .held = v, .cx = cx };
    return DEFT_OK;
}
