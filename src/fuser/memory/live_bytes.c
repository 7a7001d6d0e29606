/* SPDX-License-Identifier: Apache-2.0
 *
 * How many bytes are live at each launch, and which launches read a val. The choice of what to
 * compute again (keep.c) and the copies of groups (rematerialize.c) keep these counts up to date.
 */
#include "fuser/memory/keep.h"

void df_keep_add_live(keeper *k, uint32_t from, uint32_t to, int64_t bytes)
{
    for (uint32_t l = from; l <= to && l < k->p->n_levels; l++) k->live[l] += bytes;
}

void df_keep_count_place(keeper *k, place_id q, int sign)
{
    const storage *const w = place_at(k->p, q);
    if (df_keep_is_temporary(k->p, q))
        df_keep_add_live(k, w->first, w->last, sign * df_keep_rounded(k->bytes.at[q.i]));
}

deft_status df_keep_follow(keeper *k)
{
    pass *const p = k->p;
    while (k->newer.n < p->vals.n)
        if (!df_vec_push(p->mem, &k->newer, NO_VAL)) return df_keep_no_memory(p);
    while (k->bytes.n < p->places.n) {
        const uint32_t node = place_at(p, (place_id){ (uint32_t)k->bytes.n })->node;
        const df_slot numel = df_fuse_numel(p, node);
        const int64_t size = (int64_t)deft_dtype_size((deft_dtype)node_of(p, node)->dtype);
        if (p->st != DEFT_OK || !df_vec_push(p->mem, &k->bytes, p->now.at[numel.i] * size))
            return df_keep_no_memory(p);
    }
    return p->st;
}

readers df_keep_readers_of(const pass *p, val_id v, uint32_t launch)
{
    readers r = { .early = df_keep_level_of(p, v), .first = DF_NONE };
    for (load_id l = val_at(p, v)->readers; !IS_NONE(l); l = load_at(p, l)->next) {
        const uint32_t at = group_at(p, load_at(p, l)->group)->level;
        if (at <= launch) {
            r.early = at > r.early ? at : r.early;
            continue;
        }
        if (r.first == DF_NONE || at < r.first) r.first = at;
        if (at > r.last) r.last = at;
    }
    return r;
}
