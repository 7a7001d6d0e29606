/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing of temporaries: buffers whose live ranges do not overlap share a region of the arena of
 * temporaries. Buffers are placed from the largest to the smallest. Each goes into the region whose
 * previous owner ended last (greedy by size: Pisarchyk and Lee, "Efficient Memory Management for
 * Deep Neural Net Inference", 2020). So a region is as large as its first owner, and a small buffer
 * never takes a region that a larger one needs.
 *
 * The result depends on sizes and live ranges alone, not on the order of equal ones. So the total
 * can be computed before buffers exist (keep.c).
 */
#include "fuser/fuse.h"

/* Regions and live ranges that are examined for each buffer, on average. When they are used up,
 * each further buffer gets a region of its own. */
#define LOOKS_PER_LIFE 1024

typedef struct packer {
    df_life *life;
    uint32_t *before;      /* per live range: the previous one in its region, or DF_NONE */
    DF_VEC(uint32_t) last; /* per region: the live range that ends last */
    uint64_t looks_left;
} packer;

static bool goes_first(const df_life *a, const df_life *b)
{
    if (a->bytes != b->bytes) return a->bytes > b->bytes;
    if (a->first != b->first) return a->first < b->first;
    if (a->last != b->last) return a->last < b->last;
    return a->who < b->who;
}

static void sift(df_life *at, uint32_t root, uint32_t n)
{
    const df_life x = at[root];
    for (;;) {
        uint32_t k = 2 * root + 1;
        if (k >= n) break;
        if (k + 1 < n && goes_first(&at[k], &at[k + 1])) k++;
        if (!goes_first(&x, &at[k])) break;
        at[root] = at[k];
        root = k;
    }
    at[root] = x;
}

/* Heapsort (Williams 1964): in place, n log n on every input. */
static void sort(df_life *at, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;) sift(at, i, n);
    for (uint32_t i = n; i-- > 1;) {
        const df_life x = at[0];
        at[0] = at[i];
        at[i] = x;
        sift(at, 0, i);
    }
}

/* Whether live range l fits into region r. *after and *then are the ranges before and after it;
 * DF_NONE: there is none. */
static bool fits(packer *k, uint32_t r, const df_life *l, uint32_t *after, uint32_t *then)
{
    uint32_t i = k->last.at[r];
    *then = DF_NONE;
    while (i != DF_NONE && k->life[i].first > l->last && k->looks_left > 0) {
        k->looks_left--;
        *then = i;
        i = k->before[i];
    }
    *after = i;
    return i == DF_NONE || k->life[i].last < l->first;
}

/* The region that is free during l and whose previous owner ended last. DF_NONE: no region is free.
 */
static uint32_t find_region(packer *k, const df_life *l, uint32_t *after, uint32_t *then)
{
    uint32_t best = DF_NONE;
    int64_t latest = -2;
    for (uint32_t r = (uint32_t)k->last.n; r-- > 0 && k->looks_left > 0;) {
        uint32_t a, t;
        k->looks_left--;
        if (!fits(k, r, l, &a, &t)) continue;
        const int64_t ended = a == DF_NONE ? -1 : (int64_t)k->life[a].last;
        if (ended <= latest) continue;
        latest = ended;
        best = r;
        *after = a;
        *then = t;
        if (ended + 1 == (int64_t)l->first) break;
    }
    return best;
}

deft_status df_fuse_pack(pass *p, df_life *life, uint32_t n, uint32_t *n_regions, int64_t *total)
{
    deft_status st = DEFT_OK;
    packer k = { .life = life, .looks_left = (uint64_t)n * LOOKS_PER_LIFE };
    k.before = df_mem_alloc(p->mem, (n + 1) * sizeof *k.before);
    if (!k.before) TRY(df_fail_mem(p->diag, "fuser", n * sizeof *k.before));
    sort(life, n);
    *total = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t after = DF_NONE, then = DF_NONE;
        uint32_t r = find_region(&k, &life[i], &after, &then);
        if (r == DF_NONE) {
            r = (uint32_t)k.last.n;
            after = then = DF_NONE;
            if (!df_vec_push(p->mem, &k.last, DF_NONE)) TRY(df_fail_mem(p->diag, "fuser", n));
            *total += (life[i].bytes + 63) & ~(int64_t)63;
        }
        k.before[i] = after;
        *(then == DF_NONE ? &k.last.at[r] : &k.before[then]) = i;
        life[i].region = r;
    }
    *n_regions = (uint32_t)k.last.n;
done:
    df_mem_free(p->mem, k.before, k.before ? (n + 1) * sizeof *k.before : 0);
    df_vec_finish(p->mem, &k.last);
    return st;
}
