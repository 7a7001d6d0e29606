/* SPDX-License-Identifier: Apache-2.0
 *
 * A ticket consists of the number of a slot and the generation that the slot had then. A thread
 * that drops the ticket advances the slot to the next generation, in which only one thread can
 * succeed. It then appends the slot to a lock-free list. The thread of the tree takes the complete
 * list at its next call. So a ticket that is dropped twice, or long after its memory was reused,
 * names nothing and has no effect.
 *
 * Slots are stored in chunks that never move, because other threads read them while new chunks are
 * allocated.
 *
 * A step that is replayed drops its outputs of the last time and writes new ones with the same
 * offsets. So a dropped range stays in the list without a slot: it is a left range. Usually it is
 * held again soon; otherwise it is removed when another range needs its offsets.
 */
#include "replay/held.h"

#include <string.h>

enum { SLOT_BITS = 24, FIRST_CHUNK = 64 };

void df_holding_init(df_holding *h, const df_mem *mem)
{
    memset(h, 0, sizeof *h);
    h->mem = mem;
}

static size_t chunk_slots(uint32_t chunk)
{
    return (size_t)FIRST_CHUNK << chunk;
}

void df_holding_finish(df_holding *h)
{
    for (uint32_t i = 0; i < h->n_chunks; i++)
        df_mem_free(h->mem, h->chunk[i], chunk_slots(i) * sizeof *h->chunk[i]);
    df_vec_finish(h->mem, &h->held);
}

/* Slots are numbered from 1, so the highest bit of number + 63 is bit 6 + chunk. */
df_held_slot *df_holding_slot(const df_holding *h, uint32_t slot)
{
    const uint32_t x = slot + FIRST_CHUNK - 1;
    const uint32_t chunk = 31 - (uint32_t)__builtin_clz(x) - 6;
    return &h->chunk[chunk][x - (uint32_t)chunk_slots(chunk)];
}

static bool add_chunk(df_holding *h)
{
    const uint32_t k = h->n_chunks;
    if (k == DF_HELD_CHUNKS) return false; /* numbers of slots must fit into a ticket */
    h->chunk[k] = df_mem_zalloc(h->mem, chunk_slots(k) * sizeof *h->chunk[k]);
    if (!h->chunk[k]) return false;
    h->n_chunks++;
    const uint32_t first = (uint32_t)chunk_slots(k) - FIRST_CHUNK + 1;
    for (uint32_t i = (uint32_t)chunk_slots(k); i-- > 0;) {
        h->chunk[k][i].next = h->free;
        h->free = first + i;
    }
    h->n_free += (uint32_t)chunk_slots(k);
    return true;
}

bool df_holding_reserve(df_holding *h, uint32_t n)
{
    while (h->n_free < n)
        if (!add_chunk(h)) return false;
    return df_vec_reserve(h->mem, &h->held, n);
}

/* df_holding_find among the first n ranges. */
static size_t find_among(const df_holding *h, size_t n, uint64_t offset)
{
    size_t low = 0;
    while (n > 0) {
        const size_t half = n / 2;
        const bool before = h->held.at[low + half].at.end <= offset;
        low += before ? half + 1 : 0;
        n = before ? n - half - 1 : half;
    }
    return low;
}

size_t df_holding_find(const df_holding *h, uint64_t offset)
{
    return find_among(h, h->held.n, offset);
}

/* The index of the range of slot s. Mostly it is still where it was added. */
static size_t position_of(const df_holding *h, uint32_t s)
{
    const df_held_slot *const slot = df_holding_slot(h, s);
    const size_t i = slot->position;
    return i < h->held.n && h->held.at[i].slot == s ? i : df_holding_find(h, slot->begin);
}

void df_holding_drain(df_holding *h)
{
    if (DF_LIKELY(atomic_load_explicit(&h->dropped, memory_order_relaxed) == 0)) return;
    uint32_t s = atomic_exchange_explicit(&h->dropped, 0, memory_order_acquire);
    while (s) {
        df_held_slot *const slot = df_holding_slot(h, s);
        df_held *const e = &h->held.at[position_of(h, s)];
        const uint32_t next = slot->next;
        df_assert(e->slot == s && e->at.begin == slot->begin);
        h->bytes -= e->at.end - e->at.begin;
        e->slot = 0;
        h->n_left++;
        slot->next = h->free;
        h->free = s;
        h->n_free++;
        s = next;
    }
}

void df_holding_tidy(df_holding *h)
{
    size_t n = 0;
    if (h->n_left == 0) return;
    for (size_t i = 0; i < h->held.n; i++)
        if (h->held.at[i].slot) h->held.at[n++] = h->held.at[i];
    h->held.n = n;
    h->n_left = 0;
}

uint64_t df_holding_end(df_holding *h)
{
    df_holding_tidy(h);
    return h->held.n ? h->held.at[h->held.n - 1].at.end : 0;
}

uint64_t df_holding_ticket(df_holding *h, struct df_tree_node *maker, uint32_t out, df_span at,
                           uint32_t *slot)
{
    df_assert(h->n_free > 0);
    const uint32_t s = h->free;
    df_held_slot *const p = df_holding_slot(h, s);
    h->free = p->next;
    h->n_free--;
    p->maker = maker;
    p->out = out;
    p->begin = at.begin;
    const uint64_t generation = atomic_load_explicit(&p->generation, memory_order_relaxed) + 1;
    atomic_store_explicit(&p->generation, generation, memory_order_relaxed);
    h->bytes += at.end - at.begin;
    *slot = s;
    return generation << SLOT_BITS | s;
}

static void put(df_holding *h, size_t i, df_held e)
{
    h->held.at[i] = e;
    df_holding_slot(h, e.slot)->position = (uint32_t)i;
}

/* Holds left ranges again that equal the first of the new ranges. Returns the number of new ranges
 * that were added in this way. A run of the same graph usually finds all of them. */
static uint32_t refill(df_holding *h, const df_held *more, uint32_t n)
{
    size_t i = 0;
    for (uint32_t k = 0; k < n; k++, i++) {
        const df_held *e = &h->held.at[i];
        if (i >= h->held.n || e->at.begin != more[k].at.begin)
            e = &h->held.at[i = df_holding_find(h, more[k].at.begin)];
        if (i >= h->held.n || e->at.begin != more[k].at.begin || e->at.end != more[k].at.end)
            return k;
        df_assert(e->slot == 0);
        put(h, i, more[k]);
        h->n_left--;
    }
    return n;
}

bool df_holding_is_ordered(const df_holding *h)
{
    for (size_t i = 0; i < h->held.n; i++) {
        const df_span s = h->held.at[i].at;
        if (s.begin >= s.end || (i > 0 && h->held.at[i - 1].at.end > s.begin)) return false;
    }
    return true;
}

/* Adds ranges that equal no left range. */
static void merge(df_holding *h, const df_held *more, uint32_t n)
{
    df_holding_tidy(h);
    df_held *const v = h->held.at;
    size_t end = h->held.n;
    h->held.n += n;
    for (; n > 0; n--) {
        const size_t i = find_among(h, end, more[n - 1].at.begin);
        memmove(v + i + n, v + i, (end - i) * sizeof *v);
        end = i;
        put(h, i + n - 1, more[n - 1]);
    }
}

void df_holding_add(df_holding *h, const df_held *more, uint32_t n)
{
    const uint32_t n_in = h->n_left ? refill(h, more, n) : 0;
    if (n_in < n) merge(h, more + n_in, n - n_in);
    df_assert_slow(df_holding_is_ordered(h));
}

void df_holding_orphan(df_holding *h, const struct df_tree_node *maker)
{
    df_holding_tidy(h);
    for (size_t i = 0; i < h->held.n; i++) {
        df_held_slot *const s = df_holding_slot(h, h->held.at[i].slot);
        if (s->maker == maker) s->maker = NULL;
    }
}

void df_holding_drop(df_holding *h, uint64_t ticket)
{
    const uint32_t s = (uint32_t)ticket & ((1u << SLOT_BITS) - 1);
    uint64_t generation = ticket >> SLOT_BITS;
    if (!ticket) return;
    df_held_slot *const slot = df_holding_slot(h, s);
    if (!atomic_compare_exchange_strong_explicit(&slot->generation, &generation, generation + 1,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    uint32_t head = atomic_load_explicit(&h->dropped, memory_order_relaxed);
    do slot->next = head;
    while (!atomic_compare_exchange_weak_explicit(&h->dropped, &head, s, memory_order_release,
                                                  memory_order_relaxed));
}

bool df_holding_is_held(const df_holding *h, uint64_t ticket)
{
    if (!ticket) return false;
    const df_held_slot *const slot = df_holding_slot(h, (uint32_t)ticket & ((1u << SLOT_BITS) - 1));
    return atomic_load_explicit(&slot->generation, memory_order_relaxed) == ticket >> SLOT_BITS;
}
