/* SPDX-License-Identifier: Apache-2.0
 *
 * Records with an axis of examples: short forms for the rules.
 */
#include "lazy/vmap/vmap.h"
#include "lazy/calls/views.h"

#include <string.h>

uint32_t df_vmap_again(df_vmap *w, uint32_t k, const uint32_t *src)
{
    return df_append_like(w->cx, k, src, w->site);
}

uint32_t df_vmap_spread(df_vmap *w, uint32_t a)
{
    if (a == DF_BAD) return DF_BAD;
    if (df_vmap_node_at(w, a).rank == DEFT_MAX_RANK) {
        df_error(w->cx, DEFT_E_LIMIT, "vmap: a tensor of %d axes leaves none for %lld examples",
                 DEFT_MAX_RANK, (long long)w->extent);
        return DF_BAD;
    }
    const df_shape all = df_vmap_shape_for_all(w, a);
    return df_expand_to(w->cx, a, &all, w->site);
}

uint32_t df_vmap_for_each(df_vmap *w, uint32_t k)
{
    const uint32_t now = df_vmap_now(w, k);
    return df_vmap_is_batched(w, k) ? now : df_vmap_spread(w, now);
}

uint32_t df_vmap_lift(df_vmap *w, uint32_t a, uint32_t n_axes)
{
    if (n_axes == 0) return a;
    return df_vmap_view(w, DF_OP_unsqueeze, a, ((1u << n_axes) - 1) << 1, NULL);
}

uint32_t df_vmap_move(df_vmap *w, uint32_t a, uint32_t from, uint32_t to)
{
    uint32_t attr = 0;
    if (a == DF_BAD || from == to) return a;
    const uint32_t rank = df_vmap_node_at(w, a).rank;
    for (uint32_t i = 0, next = 0; i < rank; i++) {
        next += next == from;
        attr |= (i == to ? from : next++) << 4 * i;
    }
    return df_vmap_view(w, DF_OP_permute, a, attr, NULL);
}
