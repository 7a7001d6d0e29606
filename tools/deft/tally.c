/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows in order of arrival, found by open addressing: see tally.h. Sorting ends the finding.
 */
#include "tally.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "log.h"

void tally_finish(tally *t)
{
    df_vec_finish(&df_mem_system, &t->rows);
    df_vec_finish(&df_mem_system, &t->slots);
}

const char *tally_keep(tally_store *store, const char *text)
{
    char copy[TALLY_MAX_TEXT];
    return df_arena_strdup(&store->arena, log_clean(copy, sizeof copy, text));
}

static uint32_t *slot_of(tally *t, const char *key)
{
    const size_t mask = t->slots.n - 1;
    size_t at = (size_t)df_hash_bytes(key, strlen(key)).lo & mask;
    while (t->slots.at[at] && strcmp(t->rows.at[t->slots.at[at] - 1].key, key) != 0)
        at = (at + 1) & mask;
    return &t->slots.at[at];
}

/* Keeps at least half of the slots free. */
static bool make_room(tally *t)
{
    const size_t n = t->slots.n ? 2 * t->slots.n : 16;
    if (2 * (t->rows.n + 1) <= t->slots.n) return true;
    if (!df_vec_reserve(&df_mem_system, &t->slots, n - t->slots.n)) return false;
    memset(t->slots.at, 0, n * sizeof *t->slots.at);
    t->slots.n = n;
    for (size_t i = 0; i < t->rows.n; i++) *slot_of(t, t->rows.at[i].key) = (uint32_t)i + 1;
    return true;
}

static tally_row *find(tally *t, tally_store *store, const char *key)
{
    if (!make_room(t)) return &t->rest;
    uint32_t *const slot = slot_of(t, key);
    if (*slot) return &t->rows.at[*slot - 1];
    if (store->n_rows == TALLY_MAX_ROWS) return &t->rest;
    const tally_row row = { .key = df_arena_strdup(&store->arena, key) };
    if (!row.key || !df_vec_push(&df_mem_system, &t->rows, row)) return &t->rest;
    store->n_rows++;
    *slot = (uint32_t)t->rows.n;
    return &t->rows.at[t->rows.n - 1];
}

tally_row *tally_add(tally *t, tally_store *store, const char *key, uint64_t amount)
{
    char copy[TALLY_MAX_TEXT];
    tally_row *const row = find(t, store, log_clean(copy, sizeof copy, key ? key : ""));
    row->count++;
    row->total = tally_sum(row->total, amount);
    return row;
}

static int by_key(const tally_row *a, const tally_row *b)
{
    return strcmp(a->key, b->key);
}

static int by_count(const void *a, const void *b)
{
    const tally_row *const x = a, *const y = b;
    return x->count != y->count ? (x->count < y->count ? 1 : -1) : by_key(x, y);
}

static int by_total(const void *a, const void *b)
{
    const tally_row *const x = a, *const y = b;
    return x->total != y->total ? (x->total < y->total ? 1 : -1) : by_key(x, y);
}

void tally_sort_by_count(tally *t)
{
    if (t->rows.n) qsort(t->rows.at, t->rows.n, sizeof *t->rows.at, by_count);
}

void tally_sort_by_total(tally *t)
{
    if (t->rows.n) qsort(t->rows.at, t->rows.n, sizeof *t->rows.at, by_total);
}
