/* SPDX-License-Identifier: Apache-2.0
 *
 * First fit from offset 0 (Knuth 1968, 2.5). The order keeps the pool as small as the largest path
 * allows. Outputs come first, because they may outlive the call, and the smallest output has the
 * lowest offset. The arena comes last, because it is free again at the next call. So held outputs
 * grow from the bottom like a stack, and the space above them, which all arenas share, is one
 * piece. A small output that is held for long, such as a loss, is at the bottom, where it splits
 * no free space.
 *
 *      | loss | output | output |        arena         |             first call
 *      | held |  held  |  held  | loss | output |      arena      |  second call
 *
 * When there are gaps between held outputs, another order may be better; the largest first fills
 * gaps best. Other orders are tried only when the pool would have to grow.
 */
#include "replay/placement.h"

#include <string.h>

/* df_taken.what for ranges that are no outputs. */
#define ARENA UINT32_MAX
#define HELD (UINT32_MAX - 1)

typedef enum order { SMALL_FIRST, LARGE_FIRST, ARENA_FIRST, N_ORDERS } order;

/* Insertion sort: it runs only once per node. */
static void sort_by_size(df_layout *l)
{
    for (uint32_t i = 0; i < l->n_out; i++) {
        uint32_t k = i;
        for (; k > 0 && l->bytes[l->by_size[k - 1]] > l->bytes[i]; k--)
            l->by_size[k] = l->by_size[k - 1];
        l->by_size[k] = i;
    }
}

df_layout *df_layout_create(const df_mem *mem, const df_tree_call *c)
{
    const size_t n = c->n_out;
    const size_t size = sizeof(df_layout) + n * (2 * sizeof(uint64_t) + sizeof(df_span)) +
                        sizeof(df_span) + n * (3 * sizeof(uint32_t) + sizeof(bool));
    df_layout *const l = df_mem_zalloc(mem, size);
    if (!l) return NULL;
    l->block_size = size;
    l->arena_bytes = c->arena_bytes;
    l->n_out = c->n_out;
    l->spans = (df_span *)(l + 1);
    l->bytes = (uint64_t *)(l->spans + n + 1);
    l->at = l->bytes + n;
    l->by_size = (uint32_t *)(l->at + n);
    l->by_place = l->by_size + n;
    l->in_way = l->by_place + n;
    l->outside = (bool *)(l->in_way + n);
    for (size_t i = 0; i < n; i++) l->bytes[i] = c->out[i].bytes;
    sort_by_size(l);
    return l;
}

void df_layout_destroy(const df_mem *mem, df_layout **l)
{
    if (*l) df_mem_free(mem, *l, (*l)->block_size);
    *l = NULL;
}

bool df_layout_fits(const df_layout *l, const df_tree_call *c)
{
    if (l->n_out != c->n_out || l->arena_bytes != c->arena_bytes) return false;
    uint64_t other = 0;
    for (uint32_t i = 0; i < l->n_out; i++) other |= l->bytes[i] ^ c->out[i].bytes;
    return other == 0;
}

/* Takes the lowest gap with room for `bytes` and returns its offset. */
static uint64_t put(df_taken_vec *v, uint64_t bytes, uint32_t what)
{
    uint64_t at = 0;
    size_t i = 0;
    for (; i < v->n && v->at[i].at.begin - at < bytes; i++) at = v->at[i].at.end;
    memmove(v->at + i + 1, v->at + i, (v->n - i) * sizeof *v->at);
    v->at[i] = (df_taken){ { at, at + bytes }, what };
    v->n++;
    return at;
}

/* Finds offsets for all parts of l in one order. Returns the end of the last one. */
static uint64_t try_order(df_layout *l, const df_holding *h, df_taken_vec *v, order o)
{
    uint64_t end = 0;
    v->n = h->held.n;
    for (size_t i = 0; i < v->n; i++) v->at[i] = (df_taken){ h->held.at[i].at, HELD };
    const uint64_t arena = l->arena_bytes ? df_place_bytes(l->arena_bytes) : 0;
    l->arena = arena && o == ARENA_FIRST ? put(v, arena, ARENA) : 0;
    for (uint32_t k = 0; k < l->n_out; k++) {
        const uint32_t i = l->by_size[o == SMALL_FIRST ? k : l->n_out - 1 - k];
        l->at[i] = l->outside[i] ? DF_TREE_OUTSIDE : put(v, df_place_bytes(l->bytes[i]), i);
    }
    if (arena && o != ARENA_FIRST) l->arena = put(v, arena, ARENA);
    for (size_t i = 0; i < v->n; i++)
        if (v->at[i].what != HELD) end = v->at[i].at.end;
    return end;
}

/* Fills in spans, by_place and their numbers, from the ranges that were taken. */
static void note(df_layout *l, const df_taken_vec *v)
{
    l->n_spans = l->n_inside = 0;
    l->pool_bytes = 0;
    for (size_t i = 0; i < v->n; i++) {
        const df_taken *const t = &v->at[i];
        if (t->what == HELD) continue;
        if (t->what != ARENA) l->by_place[l->n_inside++] = t->what;
        l->pool_bytes += t->at.end - t->at.begin;
        if (l->n_spans && l->spans[l->n_spans - 1].end == t->at.begin)
            l->spans[l->n_spans - 1].end = t->at.end;
        else
            l->spans[l->n_spans++] = t->at;
    }
}

/* Whether the held ranges end by max, and the parts of l together need at most max bytes. Then no
 * sum overflows, since max is at most DF_PLACE_MAX. */
static bool is_sane(const df_layout *l, df_holding *h, uint64_t max)
{
    uint64_t room = max;
    const uint64_t end = df_holding_end(h);
    if (end > room || l->arena_bytes > room) return false;
    for (uint32_t i = 0; i < l->n_out; i++) {
        if (l->outside[i]) continue;
        if (l->bytes[i] > room || df_place_bytes(l->bytes[i]) > room) return false;
        room -= df_place_bytes(l->bytes[i]);
    }
    return df_place_bytes(l->arena_bytes) <= room || l->arena_bytes == 0;
}

bool df_place(df_layout *l, df_holding *h, df_taken_vec *taken, uint64_t backed, uint64_t max,
              uint64_t *end)
{
    df_holding_tidy(h);
    taken->n = 0;
    if (!df_vec_reserve(h->mem, taken, h->held.n + l->n_out + 1)) return false;
    if (!is_sane(l, h, max)) return false;
    order best = SMALL_FIRST, last = best;
    *end = try_order(l, h, taken, best);
    for (order o = LARGE_FIRST; *end > backed && o < N_ORDERS; o++) {
        const uint64_t other = try_order(l, h, taken, last = o);
        if (other < *end) *end = other, best = o;
    }
    if (last != best) try_order(l, h, taken, best);
    if (*end > max) return false;
    note(l, taken);
    return true;
}

#undef ARENA
#undef HELD
