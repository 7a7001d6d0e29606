/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing of temporaries: buffers whose live ranges do not overlap share a region of the arena of
 * temporaries. Buffers are placed from the largest to the smallest. Each goes into the region whose
 * previous owner ended last (greedy by size: Pisarchyk and Lee, "Efficient Memory Management for
 * Deep Neural Net Inference", 2020). So a region is as large as its first owner, and a small buffer
 * never takes a region that a larger one needs.
 *
 * A buffer of less than half of the region would waste the rest of it. It gets a part of the region
 * instead, a region itself, beside which there is room for others. A region with parts takes no
 * further buffers as a whole; those that it has do not live at the same time as those of its parts.
 *
 * The result depends on sizes and live ranges alone, not on the order of equal ones. So the total
 * can be computed before buffers exist (keep.c).
 */
#include "fuser/fuse.h"

/* Regions and live ranges that are examined for each buffer, on average. When they are used up,
 * each further buffer gets a region of its own. */
#define LOOKS_PER_LIFE 1024

typedef struct packed {
    uint32_t last;  /* the live range that ends last */
    uint32_t outer; /* the region that this one is a part of, or DF_NONE */
    int64_t bytes;  /* of its first live range, which is its largest */
    int64_t parts;  /* the bytes of its parts */
} packed;

typedef struct packer {
    df_life *life;
    uint32_t *before; /* per live range: the previous one in its region, or DF_NONE */
    DF_VEC(packed) region;
    uint64_t looks_left;
} packer;

/* Where a live range goes. */
typedef struct spot {
    uint32_t region;      /* DF_NONE: a new region */
    uint32_t outer;       /* of a new region: what it is a part of, or DF_NONE */
    uint32_t after, then; /* the ranges before and after it in the region; DF_NONE: none */
} spot;

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

/* Whether live range l fits between those of region r. Sets s->after and s->then. */
static bool lies_between(packer *k, uint32_t r, const df_life *l, spot *s)
{
    uint32_t i = k->region.at[r].last;
    s->then = DF_NONE;
    while (i != DF_NONE && k->life[i].first > l->last && k->looks_left > 0) {
        k->looks_left--;
        s->then = i;
        i = k->before[i];
    }
    s->after = i;
    return i == DF_NONE || k->life[i].last < l->first;
}

/* Whether region r, which has no parts, is free during l. */
static bool is_free(packer *k, uint32_t r, const df_life *l, spot *s)
{
    spot around;
    const packed *const x = &k->region.at[r];
    if (x->parts > 0 || !lies_between(k, r, l, s)) return false;
    return x->outer == DF_NONE || lies_between(k, x->outer, l, &around);
}

/* Finds the region that is free during l and whose previous owner ended last, among those of at
 * most `most` bytes. */
static bool find_region(packer *k, const df_life *l, int64_t most, spot *out)
{
    int64_t latest = -2;
    for (uint32_t r = (uint32_t)k->region.n; r-- > 0 && k->looks_left > 0;) {
        spot s = { r, DF_NONE, DF_NONE, DF_NONE };
        k->looks_left--;
        if (k->region.at[r].bytes > most || !is_free(k, r, l, &s)) continue;
        const int64_t ended = s.after == DF_NONE ? -1 : (int64_t)k->life[s.after].last;
        if (ended <= latest) continue;
        latest = ended;
        *out = s;
        if (ended + 1 == (int64_t)l->first) break;
    }
    return latest > -2;
}

/* Finds the smallest region in which there is room beside its parts, and no buffer of its own
 * during l. */
static bool find_room(packer *k, const df_life *l, spot *out)
{
    const int64_t bytes = df_region_rounded(l->bytes);
    spot s;
    out->outer = DF_NONE;
    for (uint32_t r = (uint32_t)k->region.n; r-- > 0 && k->looks_left > 0;) {
        const packed *const x = &k->region.at[r];
        k->looks_left--;
        if (x->outer != DF_NONE || x->bytes - x->parts < bytes) continue;
        if (out->outer != DF_NONE && k->region.at[out->outer].bytes <= x->bytes) continue;
        if (lies_between(k, r, l, &s)) out->outer = r;
    }
    out->region = out->after = out->then = DF_NONE;
    return out->outer != DF_NONE;
}

static spot find_spot(packer *k, const df_life *l)
{
    spot s;
    if (l->bytes > 0 && find_region(k, l, 2 * l->bytes, &s)) return s;
    if (l->bytes > 0 && find_room(k, l, &s)) return s;
    if (find_region(k, l, INT64_MAX, &s)) return s;
    return (spot){ DF_NONE, DF_NONE, DF_NONE, DF_NONE };
}

deft_status df_fuse_pack(pass *p, df_life *life, uint32_t n, int64_t *total)
{
    deft_status st = DEFT_OK;
    packer k = { .life = life, .looks_left = (uint64_t)n * LOOKS_PER_LIFE };
    k.before = df_mem_alloc(p->mem, (n + 1) * sizeof *k.before);
    if (!k.before) TRY(df_fail_mem(p->diag, "fuser", n * sizeof *k.before));
    sort(life, n);
    *total = 0;
    for (uint32_t i = 0; i < n; i++) {
        spot s = find_spot(&k, &life[i]);
        if (s.region == DF_NONE) {
            const int64_t bytes = df_region_rounded(life[i].bytes);
            s.region = (uint32_t)k.region.n;
            if (!df_vec_push(p->mem, &k.region, ((packed){ DF_NONE, s.outer, life[i].bytes, 0 })))
                TRY(df_fail_mem(p->diag, "fuser", n));
            *(s.outer == DF_NONE ? total : &k.region.at[s.outer].parts) += bytes;
        }
        k.before[i] = s.after;
        *(s.then == DF_NONE ? &k.region.at[s.region].last : &k.before[s.then]) = i;
        life[i].region = s.region;
        life[i].outer = k.region.at[s.region].outer;
    }
done:
    df_mem_free(p->mem, k.before, k.before ? (n + 1) * sizeof *k.before : 0);
    df_vec_finish(p->mem, &k.region);
    return st;
}
