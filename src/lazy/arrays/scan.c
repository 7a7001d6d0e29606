/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_associative_scan: with offsets 1, 2, 4 and so on, each element is combined with the one that
 * far before it (W. D. Hillis and G. L. Steele, "Data parallel algorithms", 1986). After the last
 * offset, element i is the combination of elements 0 to i, in that order.
 */
#include "lazy/arrays/arrays.h"

enum { MOST = 16 };

/* Combines all elements of in with those `by` before them. Sets next[0..n). */
static bool combine_apart(deft_ctx *cx, deft_body_fn fn, void *user, deft_tensor *const *in,
                          size_t n, int axis, int64_t by, deft_tensor **next)
{
    deft_tensor *pair[2 * MOST] = { 0 }, *made[MOST] = { 0 };
    const int64_t length = deft_dim(in[0], axis);
    for (size_t i = 0; i < n; i++) {
        pair[i] = df_array_part(in[i], axis, 0, length - by);
        pair[n + i] = df_array_part(in[i], axis, by, length - by);
        if (!pair[i] || !pair[n + i]) return false;
    }
    const deft_status st = fn(cx, pair, 2 * n, made, n, user);
    if (st != DEFT_OK) {
        if (cx->pending == DEFT_OK)
            df_error(cx, st, "associative_scan: the function returned %s", deft_status_text(st));
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!made[i]) {
            df_error(cx, DEFT_E_ARG, "associative_scan: the function left result %zu NULL", i);
            return false;
        }
        const deft_shape have = deft_shape_get(made[i]), want = deft_shape_get(pair[i]);
        bool fits = have.rank == want.rank && deft_dtype_of(made[i]) == deft_dtype_of(in[i]);
        for (uint32_t k = 0; fits && k < have.rank; k++) fits = have.dim[k] == want.dim[k];
        if (!fits) {
            df_error(cx, DEFT_E_SHAPE,
                     "associative_scan: result %zu has another shape or dtype than its operands",
                     i);
            return false;
        }
        deft_tensor *const parts[2] = { df_array_part(in[i], axis, 0, by), made[i] };
        next[i] = deft_concat(parts, 2, axis);
        if (!next[i]) return false;
    }
    return true;
}

static bool run_scan(deft_ctx *cx, deft_body_fn fn, void *user, deft_tensor *const *in, size_t n,
                     int axis, deft_tensor **out)
{
    deft_tensor *state[MOST], *next[MOST];
    for (size_t i = 0; i < n; i++) state[i] = in[i];
    for (int64_t by = 1; by < deft_dim(in[0], axis); by *= 2) {
        if (!combine_apart(cx, fn, user, state, n, axis, by, next)) return false;
        for (size_t i = 0; i < n; i++) state[i] = next[i];
    }
    for (size_t i = 0; i < n; i++) out[i] = state[i];
    return true;
}

bool deft_associative_scan(deft_body_fn fn, void *user, deft_tensor *const *in, size_t n, int axis,
                           deft_tensor **out)
{
    deft_status st;
    for (size_t i = 0; out && i < n; i++) out[i] = NULL;
    deft_ctx *const cx = df_array_begin_list("associative_scan", in, n, &st, DF_SITE);
    if (!cx) return false;
    if (!fn || !out || n > MOST) {
        df_error(cx, DEFT_E_ARG, "associative_scan: %s",
                 n > MOST ? "more than 16 tensors" : "a function or a list is missing");
        return false;
    }
    const int at = df_check_axis(cx, "associative_scan", axis, deft_rank(in[0]));
    if (at < 0) return false;
    for (size_t i = 1; i < n; i++)
        if ((uint32_t)at >= deft_rank(in[i]) || deft_dim(in[i], at) != deft_dim(in[0], at)) {
            df_error(cx, DEFT_E_SHAPE, "associative_scan: axis %d of tensor %zu differs", axis, i);
            return false;
        }
    DF_LAYER_RETURN(bool, cx, run_scan(cx, fn, user, in, n, at, out));
}
