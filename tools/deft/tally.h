/* SPDX-License-Identifier: Apache-2.0
 *
 * Counting by text: how often, how long. Bounded, since keys come from logs: texts are cut, and
 * once a store is full new keys are counted together.
 */
#ifndef TOOL_TALLY_H
#define TOOL_TALLY_H

#include "base/arena.h"
#include "base/vec.h"

enum {
    TALLY_MAX_TEXT = 320,     /* bytes of a key or note, its end counted */
    TALLY_MAX_ROWS = 1 << 17, /* of all tallies of a store */
};

typedef struct tally_row {
    const char *key; /* printable (log_clean) */
    const char *note;
    uint64_t count, total;
} tally_row;

typedef struct tally {
    DF_VEC(tally_row) rows;
    DF_VEC(uint32_t) slots; /* hash to row + 1; their number is a power of two */
    tally_row rest;         /* of keys that had no room; its key is NULL */
} tally;

/* Memory that tallies share. */
typedef struct tally_store {
    df_arena arena;
    uint32_t n_rows;
} tally_store;

void tally_finish(tally *t);

/* Adds 1 and amount (saturating) to key's row, NULL is "". The row until the next call; never
 * NULL: without memory or room it is the rest. */
tally_row *tally_add(tally *t, tally_store *store, const char *key, uint64_t amount);
/* A copy of text as keys have it; NULL without memory. */
const char *tally_keep(tally_store *store, const char *text);

/* Greatest first; equal ones by key. */
void tally_sort_by_count(tally *t);
void tally_sort_by_total(tally *t);

/* a + b of such sums, or the greatest that any reader of JSON takes. */
DF_INLINE uint64_t tally_sum(uint64_t a, uint64_t b)
{
    return b > INT64_MAX - a ? INT64_MAX : a + b;
}

#endif
