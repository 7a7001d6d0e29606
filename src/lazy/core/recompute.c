/* SPDX-License-Identifier: Apache-2.0
 *
 * Which records the cuts of this epoch have computed.
 *
 * A cut computes the records of its trace and stores its roots. The chain of cached cuts
 * tells which records the cuts of this epoch have computed, so a cached cut that is used
 * again needs no marks per record. The marks are written only when another cut is made.
 */
#include "lazy/core/history.h"

#include <string.h>

static void mark(deft_ctx *cx, const df_cut *m)
{
    for (uint32_t k = 0; k < m->t->n_nodes; k++)
        if (m->record[k] < cx->again.n) cx->again.at[m->record[k]] = 1;
}

/* Makes room for a mark for each record of this epoch. Returns false when memory runs
 * out; then some records are not counted. */
static bool marks(deft_ctx *cx)
{
    if (cx->again_epoch != cx->epoch) {
        cx->again.n = 0;
        cx->again_epoch = cx->epoch;
        cx->again_upto = 0;
    }
    const uint32_t n = cx->rec.n;
    if (cx->again.n >= n) return true;
    if (!df_vec_reserve(cx->mem, &cx->again, n - cx->again.n)) return false;
    memset(cx->again.at + cx->again.n, 0, n - cx->again.n);
    cx->again.n = n;
    return true;
}

void df_again_note(deft_ctx *cx)
{
    uint32_t id = cx->rec.last_cut;
    if (id == 0 || id == DF_CUT_UNKNOWN || !marks(cx)) return;
    /* From the latest cut back. A cut that is missing was noted before it was replaced. */
    for (const df_cut *m; id != 0 && id != cx->again_upto; id = m->before) {
        m = NULL;
        for (uint32_t i = 0; i < DF_MAX_CUTS && !m; i++)
            if (cx->cuts[i] && cx->cuts[i]->id == id) m = cx->cuts[i];
        if (!m) break;
        mark(cx, m);
    }
    cx->again_upto = cx->rec.last_cut;
}

void df_again_count(deft_ctx *cx, df_cut *m)
{
    if (cx->rec.last_cut == 0 || !marks(cx)) return;
    for (uint32_t k = m->t->n_nodes; k-- > 0;) {
        if (m->record[k] == DF_NONE || !cx->again.at[m->record[k]] || !df_is_work(&m->t->nodes[k]))
            continue;
        m->n_again++;
        m->first_again = k;
    }
}

void df_again_truncate(deft_ctx *cx, uint32_t n)
{
    df_again_note(cx);
    if (cx->again_epoch == cx->epoch && cx->again.n > n) cx->again.n = n;
    cx->again_upto = 0;
}

void df_again_renumber(deft_ctx *cx, const uint32_t *map)
{
    uint32_t n = 0;
    df_again_note(cx);
    if (cx->again_epoch != cx->epoch) return;
    for (size_t i = 0; i < cx->again.n && i < cx->rec.n; i++)
        if (map[i] != DF_NONE) cx->again.at[n++] = cx->again.at[i];
    cx->again.n = n;
    cx->again_upto = 0;
}

void df_again_add(deft_ctx *cx, const df_cut *m)
{
    if (cx->rec.last_cut == DF_CUT_UNKNOWN && marks(cx)) mark(cx, m);
}
