/* SPDX-License-Identifier: Apache-2.0
 *
 * See facts.h. A launch as runtime/variant.h sees it is made of the numbers of the image. Buffers
 * get addresses that are far apart.
 */
#include "aot/facts.h"

#include <string.h>

#include "runtime/variant.h"

enum {
    ENOUGH_ROWS = 16, /* kernels with so many rows have enough for any number of threads */
    /* Buffers are 2^FAR bytes apart. Facts are for objects alone, which are made where addresses
     * have 64 bits. */
    FAR = sizeof(void *) == 8 ? 44 : 26
};

/* The value of a slot, if it is known. */
static bool known(const program *p, uint32_t slot, int64_t *out)
{
    *out = 0;
    if (slot == AOT_NONE) return true;
    *out = p->values.at[slot];
    return !p->is_open.at[slot];
}

static int64_t rows_of(const program *p, const aot_seg *g, bool *is_known)
{
    int64_t n = 1;
    *is_known = true;
    for (uint32_t x = 0; x < g->n_axes; x++) {
        int64_t extent;
        *is_known &= known(p, p->list.at[g->extent + x], &extent);
        if ((g->roles >> (2 * x) & 3) == AOT_ROLE_OUTER) n *= extent;
    }
    return n;
}

void facts_find_whole_rows(program *p)
{
    for (size_t i = 0; i < p->segs.n; i++) {
        aot_seg *const g = &p->segs.at[i];
        bool is_known;
        const int64_t rows = rows_of(p, g, &is_known);
        if (g->kind == AOT_SEG_KERNEL && is_known && rows >= ENOUGH_ROWS)
            g->flags |= AOT_WHOLE_ROWS;
    }
}

/* The arguments of a launch, as far as facts depend on them. */
typedef struct launch {
    df_kargs args;
    char *ptr[DF_FACT_ACCESSES];
    int64_t stride[DF_FACT_ACCESSES * DF_MAX_AXES], extent[DF_MAX_AXES];
    uint64_t num[DF_FACT_NUMS];
    bool has_numbers; /* all of them are known */
} launch;

/* Returns false when a stride or an extent is not known. */
static bool make_launch(const program *p, const aot_seg *g, launch *l)
{
    bool all = g->n_access <= DF_FACT_ACCESSES && g->n_num <= DF_FACT_NUMS;
    if (!all) return false;
    for (uint32_t x = 0; x < g->n_axes; x++)
        all &= known(p, p->list.at[g->extent + x], &l->extent[x]);
    for (uint32_t i = 0; i < g->n_access; i++) {
        const aot_bind *const b = &p->binds.at[g->bind + i];
        int64_t offset;
        all &= known(p, b->offset, &offset);
        l->ptr[i] = (char *)(((uintptr_t)b->buf + 1) << FAR) + offset * (int64_t)b->size;
        for (uint32_t x = 0; x < g->n_axes; x++)
            all &= known(p, p->list.at[b->stride + x], &l->stride[i * g->n_axes + x]);
    }
    l->has_numbers = true;
    for (uint32_t i = 0; i < g->n_num; i++) {
        const aot_num *const n = &p->nums.at[g->num + i];
        l->has_numbers &= n->slot == AOT_NONE && n->parameter == AOT_NONE;
        l->num[i] = n->bits;
    }
    l->args = (df_kargs){ .ptr = l->ptr, .stride = l->stride, .extent = l->extent, .num = l->num };
    return all;
}

static bool take_facts(const program *p, const aot_seg *g, df_facts *out)
{
    launch l;
    if (!make_launch(p, g, &l)) return false;
    bool is_known;
    const df_kernel *const k = p->kernels.at[g->kernel];
    const df_call c = { .args = &l.args,
                        .rows = k->mode == DF_MODE_ROW || (g->flags & AOT_WHOLE_ROWS),
                        .n_rows = rows_of(p, g, &is_known) };
    df_watch w = { .n_launches = 1 };
    atomic_store(&w.n_all, c.rows ? 1 : 0);
    atomic_store(&w.n_multiple, 1);
    const df_variant_kind kind = l.has_numbers ? DF_VARIANT_NUMBERS
                                 : c.rows      ? DF_VARIANT_ALL
                                               : DF_VARIANT_MULTIPLE;
    df_facts_take(out, &w, k, &c, kind, df_variant_slots(k), 1);
    return true;
}

bool facts_find(const program *p, uint32_t i, df_facts *out)
{
    bool any = false;
    for (size_t s = 0; s < p->segs.n; s++) {
        const aot_seg *const g = &p->segs.at[s];
        df_facts one;
        if (g->kernel != i) continue;
        if (g->kind == AOT_SEG_PRODUCT || (g->flags & AOT_BY_INNER) || !take_facts(p, g, &one))
            return false;
        if (any && memcmp(&one, out, sizeof one) != 0) return false;
        *out = one;
        any = true;
    }
    return any;
}

void facts_extents(const program *p, uint32_t i, int64_t out[DF_MAX_AXES])
{
    bool any = false;
    for (uint32_t x = 0; x < DF_MAX_AXES; x++) out[x] = DF_ANY;
    for (size_t s = 0; s < p->segs.n; s++) {
        const aot_seg *const g = &p->segs.at[s];
        if (g->kind == AOT_SEG_ROUTINE || g->kernel != i) continue;
        for (uint32_t x = 0; x < g->n_axes; x++) {
            int64_t extent;
            if (!known(p, p->list.at[g->extent + x], &extent)) extent = DF_ANY;
            out[x] = !any || out[x] == extent ? extent : DF_ANY;
        }
        any = true;
    }
}
