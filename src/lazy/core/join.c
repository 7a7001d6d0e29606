/* SPDX-License-Identifier: Apache-2.0
 *
 * Records next to each other: new memory that updates cover.
 */
#include "lazy/core/lazy.h"

/* Writes value into rows [at, at + n) of axis of base. */
static uint32_t put(deft_ctx *cx, uint32_t base, uint32_t value, uint32_t axis, int64_t at,
                    uintptr_t site)
{
    if (base == DF_BAD || value == DF_BAD) return DF_BAD;
    df_shape s;
    df_rec_shape(&cx->rec, value, &s);
    int64_t start[DEFT_MAX_RANK] = { 0 }, step[DEFT_MAX_RANK];
    for (uint32_t i = 0; i < s.rank; i++) step[i] = 1;
    start[axis] = s.dim[axis] ? at : 0;
    const uint32_t place = df_slice_node(cx, base, start, step, &s, site);
    const uint32_t src[3] = { base, value, place };
    return df_append(cx, DF_OP_update, df_dtype_at(cx, base), 0, src, NULL, 0, NULL, site);
}

static uint32_t empty(deft_ctx *cx, deft_dtype t, const df_shape *s, uintptr_t site)
{
    return df_append(cx, DF_OP_empty, t, 0, NULL, NULL, 0, s, site);
}

uint32_t df_join(deft_ctx *cx, const uint32_t *piece, size_t n, uint32_t axis, uintptr_t site)
{
    df_shape s, p;
    df_rec_shape(&cx->rec, piece[0], &s);
    s.dim[axis] = 0;
    for (size_t i = 0; i < n; i++) {
        df_rec_shape(&cx->rec, piece[i], &p);
        s.dim[axis] += p.dim[axis];
    }
    uint32_t out = empty(cx, df_dtype_at(cx, piece[0]), &s, site);
    int64_t at = 0;
    for (size_t i = 0; i < n && out != DF_BAD; i++) {
        df_rec_shape(&cx->rec, piece[i], &p);
        if (p.dim[axis] == 0) continue;
        out = put(cx, out, piece[i], axis, at, site);
        at += p.dim[axis];
    }
    return out;
}
