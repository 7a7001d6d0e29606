/* SPDX-License-Identifier: Apache-2.0
 *
 * Time by call site (spent.h): an open-addressed hash table of a fixed size, which is never more
 * than half full.
 */
#include "runtime/spent.h"

#include <stdio.h>
#include <string.h>

#include "base/fork.h"

enum { PLACES = 2048, MOST = 1024 }; /* rows of the table; the most sites */

struct df_spent {
    const df_mem *mem;
    df_fork_lock lock; /* guards the rest */
    uint32_t n_sites;
    df_spending row[PLACES]; /* n == 0: the row is free */
};

df_spent *df_spent_create(const df_mem *mem)
{
    df_spent *s = df_mem_zalloc(mem, sizeof *s);
    if (!s) return NULL;
    s->mem = mem;
    if (df_fork_lock_init(&s->lock)) return s;
    df_mem_free(mem, s, sizeof *s);
    return NULL;
}

void df_spent_destroy(df_spent **out)
{
    df_spent *const s = *out;
    *out = NULL;
    if (!s) return;
    df_fork_lock_finish(&s->lock);
    df_mem_free(s->mem, s, sizeof *s);
}

/* In a forked child, a missing thread may have added only half of an entry. This makes a count
 * wrong, and does no other harm. */
static void lock(df_spent *s)
{
    if (df_fork_lock_take(&s->lock)) return;
}

static df_spending *row_of(df_spent *s, uintptr_t site)
{
    for (uint32_t at = (uint32_t)((site * UINT64_C(0x9E3779B97F4A7C15)) >> 32) % PLACES;;
         at = (at + 1) % PLACES) {
        df_spending *const r = &s->row[at];
        if (r->n && r->site == site) return r;
        if (r->n) continue;
        if (site != 0 && s->n_sites >= MOST) return row_of(s, 0);
        r->site = site;
        s->n_sites++;
        return r;
    }
}

void df_spent_add(df_spent *s, const df_spending *add)
{
    df_assert(add->n > 0);
    lock(s);
    df_spending *const r = row_of(s, add->site);
    if (!r->n) memcpy(r->ops, add->ops, sizeof r->ops);
    r->n += add->n;
    r->ns += add->ns;
    r->bytes += add->bytes;
    df_fork_lock_give(&s->lock);
}

uint32_t df_spent_top(df_spent *s, df_spending *out, uint32_t n, df_spending *all)
{
    uint32_t n_out = 0;
    *all = (df_spending){ 0 };
    lock(s);
    for (const df_spending *r = s->row; r < s->row + PLACES; r++) {
        if (!r->n) continue;
        all->ns += r->ns;
        all->bytes += r->bytes;
        all->n += r->n;
        uint32_t at = n_out < n ? n_out++ : n;
        while (at > 0 && out[at - 1].ns < r->ns) {
            if (at < n) out[at] = out[at - 1];
            at--;
        }
        if (at < n) out[at] = *r;
    }
    df_fork_lock_give(&s->lock);
    return n_out;
}
