/* SPDX-License-Identifier: Apache-2.0
 *
 * How many bytes are live at each launch, how a change would alter that, and which launches read a
 * val. What moves groups (postpone.c), what chooses values to compute again (keep.c), and the
 * copies of groups (rematerialize.c) keep these counts up to date.
 */
#include "fuser/memory/keep.h"

/* What costs no time is done when it lowers the peak by at least this part of it. For less, the
 * plan stays as it is. */
#define LEAST_GAIN 16

void df_keep_add_live(keeper *k, uint32_t from, uint32_t to, int64_t bytes)
{
    for (uint32_t l = from; l <= to && l < k->p->n_levels; l++) k->live[l] += bytes;
}

int64_t df_keep_least_gain(const keeper *k)
{
    return k->p->lim->saves_all ? 1 : k->live[k->peak] / LEAST_GAIN;
}

void df_keep_find_peak(keeper *k)
{
    k->peak = 0;
    for (uint32_t l = 1; l < k->p->n_levels; l++)
        if (k->live[l] > k->live[k->peak]) k->peak = l;
}

void df_keep_count_place(keeper *k, place_id q, int sign)
{
    const storage *const w = place_at(k->p, q);
    if (df_keep_is_temporary(k->p, q))
        df_keep_add_live(k, IS_NONE(w->over) ? w->first : w->first + 1, w->last,
                         sign * df_region_rounded(k->bytes.at[q.i]));
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

deft_status df_keep_count(keeper *k)
{
    pass *const p = k->p;
    k->live = df_arena_new(&p->tmp, int64_t, p->n_levels + 1);
    if (!k->live) return df_keep_no_memory(p);
    df_fuse_find_unused(p);
    const deft_status st = df_keep_follow(k);
    if (st != DEFT_OK) return st;
    for (place_id q = { 0 }; q.i < p->places.n; q.i++) df_keep_count_place(k, q, 1);
    return DEFT_OK;
}

void df_keep_finish(keeper *k)
{
    df_vec_finish(k->p->mem, &k->newer);
    df_vec_finish(k->p->mem, &k->bytes);
    df_vec_finish(k->p->mem, &k->at_peak);
}

/* ---- changes that are being tried ---- */

bool df_keep_stretch(keeper *k, place_id q, uint32_t to)
{
    for (uint32_t i = 0; i < k->n_stretches; i++)
        if (same_place(k->stretches[i].place, q)) {
            if (k->stretches[i].to < to) k->stretches[i].to = to;
            return true;
        }
    if (k->n_stretches == MAX_STRETCHES) return false;
    k->stretches[k->n_stretches++] = (stretch){ q, to };
    return true;
}

void df_keep_add_range(keeper *k, uint32_t from, uint32_t to, int64_t bytes)
{
    if (from > to || bytes == 0) return;
    if (k->n_ranges == MAX_RANGES) {
        k->full = true;
        return;
    }
    k->ranges[k->n_ranges++] = (range){ from, to, bytes };
}

void df_keep_add_stretches(keeper *k)
{
    for (uint32_t i = 0; i < k->n_stretches; i++) {
        const place_id q = k->stretches[i].place;
        df_keep_add_range(k, df_keep_free_from(k->p, q), k->stretches[i].to,
                          df_region_rounded(k->bytes.at[q.i]));
    }
}

void df_keep_apply_ranges(keeper *k, int sign)
{
    for (uint32_t i = 0; i < k->n_ranges; i++)
        df_keep_add_live(k, k->ranges[i].from, k->ranges[i].to, sign * k->ranges[i].bytes);
}

bool df_keep_is_lower(keeper *k)
{
    const int64_t most = k->live[k->peak];
    bool lower = true;
    df_keep_apply_ranges(k, 1);
    for (uint32_t i = 0; i < k->n_ranges && lower; i++)
        for (uint32_t l = k->ranges[i].from; k->ranges[i].bytes > 0 && l <= k->ranges[i].to; l++)
            lower &= k->live[l] < most;
    lower &= k->live[k->peak] < most;
    df_keep_apply_ranges(k, -1);
    return lower;
}
