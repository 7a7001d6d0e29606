/* SPDX-License-Identifier: Apache-2.0
 *
 * Keep or compute again: brings a plan within a bound on the bytes of its temporaries
 * (df_trace.max_temporary_bytes).
 *
 * Groups have their launches already. While more bytes are live at once than the bound allows, the
 * launch with the most live bytes is examined: the peak. One of the values that are live across the
 * peak is given up: the one that frees the most bytes per work. Its group is computed once more, in
 * the launch before the first of the readers after the peak, into memory of its own. Those readers
 * read the copy instead.
 *
 *   launch    2       5        ...        40      41
 *             g -> v -----------------------------> r        v is live from 2 to 41
 *             g -> v -> q                  g' -> v' -> r     v until 5, v' from 40 on
 *
 * The copy g' needs the operands of g in launch 40. They may live longer for that, or be computed
 * again themselves. A copy goes into an existing launch, so no launch is added. The copy does the
 * same work on the same bits, random numbers included, so no result changes. The epilogue of a
 * product can be computed again by itself where the product is stored. Products themselves are
 * computed again only when nothing else helps.
 *
 * The next choice does not depend on the bound; only the end does. So of two bounds, the lower one
 * gives up all that the higher one gives up, and never takes more memory. Values are stored over
 * operands (over.c) before each comparison with the bound, and apart again before the next choice.
 * So a plan without a choice is the plan without a bound.
 *
 * The choice is greedy, by bytes freed per work, as in dynamic tensor rematerialization (Kirisame
 * et al. 2021), but before anything runs. Each choice lowers the live bytes at the peak. At no
 * other launch do they rise as high as the old peak. So the choices come to an end.
 */
#include "base/size_class.h"
#include "fuser/memory/keep.h"

#include <string.h>

#define MAX_DEPTH 6 /* of copies of which each needs the next */
/* Estimates of work. Only their ratios matter. */
#define NS_PER_ITEM 0.02
#define NS_PER_BYTE 0.05
#define NS_PER_FMA 0.02

/* ---- trying copies ---- */

static bool is_repeatable(const keeper *k, group_id gi)
{
    const pass *const p = k->p;
    const group *const g = group_at(p, gi);
    if (g->kind == DF_SEG_ROUTINE || g->dead || g->frame || g->after || g->checks) return false;
    if (g->n_heads > MAX_MADE) return false;
    for (head_id h = g->first_head; !IS_NONE(h); h = head_at(p, h)->next)
        if (!val_at(p, head_at(p, h)->val)->plain) return false;
    return true;
}

static double work_of(keeper *k, group_id gi, bool epilogue)
{
    pass *const p = k->p;
    const df_slot total = df_space_total(p, &group_at(p, gi)->sp); /* may move p->now */
    const group *const g = group_at(p, gi);
    double work = (double)p->now.at[total.i] * (g->n_items * NS_PER_ITEM + NS_PER_BYTE);
    for (head_id h = g->first_head; !IS_NONE(h); h = head_at(p, h)->next)
        work += (double)k->bytes.at[val_at(p, head_at(p, h)->val)->place.i] * NS_PER_BYTE;
    if (IS_NONE(g->product) || epilogue) return work + 1;
    const uint32_t n = val_at(p, g->product)->node, a = node_of(p, n)->src[0].i;
    const df_slot depth = df_fuse_axis_extent(p, a, node_of(p, a)->rank - 1u);
    const df_slot numel = df_fuse_numel(p, n);
    return work + (double)p->now.at[numel.i] * (double)p->now.at[depth.i] * NS_PER_FMA;
}

static bool try_copy(keeper *k, group_id gi, uint32_t level, bool epilogue, uint32_t depth);

/* The copy of a group that is being tried; NULL: none. */
static copy *tried(keeper *k, group_id gi)
{
    for (uint32_t i = 0; i < k->n_copies; i++)
        if (same_group(k->copies[i].group, gi)) return &k->copies[i];
    return NULL;
}

/* Whether a copy that is being tried computes val v before launch `level`. If so, notes that
 * another copy reads v in that launch. The copy of an epilogue computes no product. */
static bool read_tried(keeper *k, val_id v, uint32_t level)
{
    copy *const c = tried(k, val_at(k->p, v)->group);
    const bool product = same_val(group_at(k->p, val_at(k->p, v)->group)->product, v);
    if (!c || c->level >= level || (product && c->epilogue)) return false;
    if (c->until < level) c->until = level;
    c->stored |= product;
    return true;
}

/* Whether v is computed by the epilogue of a product that is stored. Then the epilogue can be
 * computed again by itself. */
static bool by_epilogue(const pass *p, val_id v)
{
    const group *const g = group_at(p, val_at(p, v)->group);
    return g->kind == DF_SEG_MATMUL && !same_val(g->product, v) &&
           !place_at(p, val_at(p, g->product)->place)->unused;
}

/* Tries to compute val v again before launch `level`, where a copy needs it. Undoes a failed try.
 */
static bool again_too(keeper *k, val_id v, uint32_t level, uint32_t depth)
{
    const uint32_t n_copies = k->n_copies, n_stretches = k->n_stretches;
    const double work = k->work;
    if (depth >= MAX_DEPTH || level <= k->peak + 1 || !df_keep_is_alone(k->p, v)) return false;
    if (try_copy(k, val_at(k->p, v)->group, level - 1, by_epilogue(k->p, v), depth + 1))
        return read_tried(k, v, level);
    k->n_copies = n_copies;
    k->n_stretches = n_stretches;
    k->work = work;
    return false;
}

/* Makes val u readable in launch `level`: as it is, by a copy, or by a longer live range. Returns
 * false when that is impossible. */
static bool have(keeper *k, val_id u, uint32_t level, uint32_t depth)
{
    const pass *const p = k->p;
    if (!IS_NONE(val_at(p, u)->over_by)) return false;
    const val_id v = df_keep_version_at(k, u, level);
    const place_id q = val_at(p, v)->place;
    const storage *const w = place_at(p, q);
    if (w->kind == STORAGE_INTO) return false;
    if (w->kind == STORAGE_ROOT || w->last >= level) return true;
    if (read_tried(k, v, level)) return true;
    if (w->last < k->peak && again_too(k, v, level, depth)) return true;
    return df_keep_stretch(k, q, level);
}

/* Whether the memory of input node `node` still holds the input in launch `level`. */
static bool have_input(const keeper *k, uint32_t node, uint32_t level)
{
    return k->until[node_of(k->p, node)->attr] > level;
}

/* Makes all that a copy of group gi reads readable in launch `level`. */
static bool have_all(keeper *k, group_id gi, uint32_t level, bool epilogue, uint32_t depth)
{
    const pass *const p = k->p;
    const group *const g = group_at(p, gi);
    for (uint32_t i = 0; i < g->n_items; i++) {
        const item *const it = &g->items[i];
        const bool loads = it->kind == IT_LOAD || it->kind == IT_TAKE;
        if (it->kind == IT_INPUT && !have_input(k, it->node, level)) return false;
        if (it->kind == IT_TAKE && IS_NONE(it->val) && !have_input(k, it->base, level))
            return false;
        if (loads && !IS_NONE(it->val) && !have(k, it->val, level, depth)) return false;
    }
    if (epilogue) return have(k, g->product, level, depth);
    for (uint32_t s = 0; s < g->n_operands; s++)
        if (IS_NONE(g->mm_val[s]) ? !have_input(k, g->mm_node[s], level)
                                  : !have(k, g->mm_val[s], level, depth))
            return false;
    return true;
}

/* Tries a copy of group gi in launch `level`. Returns false when there can be no such copy. */
static bool try_copy(keeper *k, group_id gi, uint32_t level, bool epilogue, uint32_t depth)
{
    const copy *const known = tried(k, gi);
    if (known) return known->level == level && known->epilogue == epilogue;
    if (k->n_copies == MAX_COPIES || !is_repeatable(k, gi)) return false;
    if (group_at(k->p, gi)->kind == DF_SEG_MATMUL && !epilogue && !k->dear) return false;
    k->copies[k->n_copies++] = (copy){ gi, level, level, epilogue, false };
    k->work += work_of(k, gi, epilogue);
    return have_all(k, gi, level, epilogue, depth);
}

/* ---- live bytes with the copies ---- */

/* Adds the ranges of a copied val: v dies earlier, and its copy is live from launch c->level on. */
static void keep_add_val(keeper *k, const copy *c, val_id v, bool stays_in_tile)
{
    const pass *const p = k->p;
    const storage *const w = place_at(p, val_at(p, v)->place);
    const int64_t bytes = df_region_rounded(k->bytes.at[val_at(p, v)->place.i]);
    const readers r = df_keep_readers_of(p, v, c->level);
    uint32_t until = c->until;
    if (df_keep_is_alone(p, v) && r.first != DF_NONE) {
        df_keep_add_range(k, r.early + 1, w->last, -bytes);
        if (r.last > until) until = r.last;
    } else if (stays_in_tile) {
        return;
    }
    df_keep_add_range(k, c->level, until, bytes);
}

static void keep_add_ranges(keeper *k)
{
    const pass *const p = k->p;
    k->n_ranges = 0;
    for (uint32_t i = 0; i < k->n_copies; i++) {
        const copy *const c = &k->copies[i];
        const group *const g = group_at(p, c->group);
        for (head_id h = g->first_head; !IS_NONE(h); h = head_at(p, h)->next)
            keep_add_val(k, c, head_at(p, h)->val, false);
        if (!IS_NONE(g->product) && !c->epilogue)
            keep_add_val(k, c, g->product, !IS_NONE(g->first_head) && !c->stored);
    }
    df_keep_add_stretches(k);
}

/* Tries to compute v again after the peak. Returns the bytes freed at the peak per work, or 0 when
 * that is impossible or frees nothing. */
static double try_val(keeper *k, val_id v)
{
    const pass *const p = k->p;
    const readers r = df_keep_readers_of(p, v, k->peak);
    int64_t freed = 0;
    k->n_copies = k->n_stretches = 0;
    k->work = 0;
    k->full = false;
    if (r.early >= k->peak || r.first == DF_NONE || r.first < k->peak + 2) return 0;
    if (!try_copy(k, val_at(p, v)->group, r.first - 1, by_epilogue(p, v), 0)) return 0;
    keep_add_ranges(k);
    for (uint32_t i = 0; i < k->n_ranges; i++)
        if (k->ranges[i].from <= k->peak && k->peak <= k->ranges[i].to) freed -= k->ranges[i].bytes;
    return k->full || freed <= 0 ? 0 : (double)freed / k->work;
}

/* ---- choosing ---- */

static deft_status find_candidates(keeper *k)
{
    pass *const p = k->p;
    k->at_peak.n = 0;
    for (val_id v = { 0 }; v.i < p->vals.n; v.i++) {
        const place_id q = val_at(p, v)->place;
        const storage *const w = place_at(p, q);
        if (!df_keep_is_alone(p, v) || !df_keep_is_temporary(p, q) || w->first >= k->peak ||
            w->last <= k->peak)
            continue;
        if (!df_vec_push(p->mem, &k->at_peak, ((candidate){ v, 0 }))) return df_keep_no_memory(p);
    }
    return DEFT_OK;
}

static candidate *best(keeper *k)
{
    candidate *out = NULL;
    for (size_t i = 0; i < k->at_peak.n; i++) {
        candidate *const c = &k->at_peak.at[i];
        if (c->score > 0 && (!out || c->score > out->score)) out = c;
    }
    return out;
}

/* Lowers the peak by one choice. *found: there was such a choice. */
static deft_status keep_lower_peak(keeper *k, bool *found)
{
    const deft_status st = find_candidates(k);
    *found = false;
    for (int dear = 0; dear < 2 && st == DEFT_OK; dear++) {
        candidate *c;
        k->dear = dear != 0;
        for (size_t i = 0; i < k->at_peak.n; i++)
            k->at_peak.at[i].score = try_val(k, k->at_peak.at[i].val);
        while ((c = best(k)) != NULL) {
            (void)try_val(k, c->val);
            if (df_keep_is_lower(k)) {
                *found = true;
                return df_keep_do_copies(k, c->val);
            }
            c->score = 0;
        }
    }
    return st == DEFT_OK ? k->p->st : st;
}

/* ---- lowering ---- */

/* Finds for each input the first launch that writes its memory. */
static void until_when(keeper *k)
{
    const pass *const p = k->p;
    uint32_t all = UINT32_MAX;
    for (uint32_t i = 0; i < p->t->n_inputs; i++) k->until[i] = UINT32_MAX;
    for (val_id v = { 0 }; v.i < p->vals.n; v.i++) {
        const storage *const w = place_at(p, val_at(p, v)->place);
        if (w->kind == STORAGE_INTO && w->first < all) all = w->first;
        if (w->kind == STORAGE_ROOT && w->donor != DF_NONE && w->first < k->until[w->donor])
            k->until[w->donor] = w->first;
    }
    /* The caller's memory may overlap any input. */
    for (uint32_t i = 0; i < p->t->n_inputs; i++)
        if (all < k->until[i]) k->until[i] = all;
}

static deft_status keep_begin(keeper *k)
{
    deft_status st = DEFT_OK;
    pass *const p = k->p;
    k->until = df_arena_new(&p->tmp, uint32_t, p->t->n_inputs + 1);
    if (!k->until) TRY(df_keep_no_memory(p));
    TRY(df_keep_count(k));
    until_when(k);
done:
    return st;
}

/* The bytes that the arena takes, with temporaries packed into regions. */
static deft_status arena_bytes(keeper *k, int64_t *out)
{
    pass *const p = k->p;
    uint32_t n = 0;
    df_life *const life = df_mem_alloc(p->mem, (p->places.n + 1) * sizeof *life);
    if (!life) return df_keep_no_memory(p);
    for (place_id q = { 0 }; q.i < p->places.n; q.i++) {
        const storage *const w = place_at(p, q);
        if (df_keep_is_temporary(p, q) && IS_NONE(w->over))
            life[n++] = (df_life){ k->bytes.at[q.i], w->first, w->last, q.i, 0, DF_NONE };
    }
    for (place_id q = { 0 }; q.i < p->places.n; q.i++) {
        const storage *const w = place_at(p, q);
        if (!IS_NONE(w->over)) df_life_extend(life, n, w->over.i, w->last);
    }
    const deft_status st = df_fuse_pack(p, life, n, out);
    df_mem_free(p->mem, life, (p->places.n + 1) * sizeof *life);
    return st;
}

/* Fails with DEFT_E_MEMORY: `lowest` bytes are still more than the bound. */
static deft_status keep_report_excess(keeper *k, int64_t lowest)
{
    const pass *const p = k->p;
    place_id largest = NO_PLACE;
    for (place_id q = { 0 }; q.i < p->places.n; q.i++) {
        const storage *const w = place_at(p, q);
        if (!df_keep_is_temporary(p, q) || w->first > k->peak || w->last < k->peak) continue;
        if (IS_NONE(largest) || k->bytes.at[q.i] > k->bytes.at[largest.i]) largest = q;
    }
    df_str s;
    df_str_init(&s, p->mem);
    if (!IS_NONE(largest)) df_trace_print_node(&s, p->t, place_at(p, largest)->node);
    const deft_status st = df_fail(
        p->diag, DEFT_E_MEMORY,
        "at most %llu bytes of temporaries are allowed, and with all computed again that helps it "
        "is %lld; the largest is of %lld bytes: %s",
        (unsigned long long)p->t->max_temporary_bytes, (long long)df_buffer_bytes(lowest),
        IS_NONE(largest) ? 0LL : (long long)k->bytes.at[largest.i], s.ok && s.at ? s.at : "");
    df_str_finish(&s);
    return st;
}

/* Notes for each value that is live across the final peak why it is kept. */
static deft_status keep_explain(keeper *k)
{
    pass *const p = k->p;
    if (!p->lim->keep_why || p->n_repeated == 0) return DEFT_OK;
    df_keep_find_peak(k);
    const deft_status st = find_candidates(k);
    for (size_t i = 0; i < k->at_peak.n && st == DEFT_OK; i++) {
        const val_id v = k->at_peak.at[i].val;
        const uint32_t node = val_at(p, v)->node;
        df_fuse_why(p, node, node, "kept",
                    "%lld bytes live across launch %u: others are cheaper to have again, or they "
                    "fit",
                    (long long)k->bytes.at[val_at(p, v)->place.i], k->peak);
    }
    return st == DEFT_OK ? p->st : st;
}

/* Stores values over operands as long as that lowers the peak. */
static void store_all_over(keeper *k)
{
    val_id under;
    do df_keep_find_peak(k);
    while (!IS_NONE(df_keep_store_over(k, &under)));
}

static deft_status keep_lower_to_bound(keeper *k)
{
    deft_status st = DEFT_OK;
    const uint64_t most = df_size_class_within(k->p->t->max_temporary_bytes);
    int64_t bytes = 0;
    for (bool found = true;;) {
        store_all_over(k);
        if (!found || (uint64_t)k->live[k->peak] <= most) {
            TRY(arena_bytes(k, &bytes));
            if ((uint64_t)bytes <= most) return k->p->st;
        }
        if (!found) return keep_report_excess(k, bytes);
        df_keep_store_apart(k);
        df_keep_find_peak(k);
        TRY(keep_lower_peak(k, &found));
    }
done:
    return st;
}

deft_status df_fuse_keep(pass *p)
{
    deft_status st = DEFT_OK;
    keeper k = { .p = p };
    if (p->t->max_temporary_bytes && p->n_levels > 0) {
        TRY(keep_begin(&k));
        TRY(keep_lower_to_bound(&k));
        TRY(keep_explain(&k));
    }
    df_keep_explain_over(p);
    st = p->st;
done:
    df_keep_finish(&k);
    return st;
}
