/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of keys that causal attention masks completely.
 *
 * All scores of such a block are -infinity. So the greatest score m stays what it is, the weights p
 * are exp(-infinity - m) = 0, and the sum l and acc are multiplied by exp(m - m) = 1. A weight of 0
 * adds 0 times a value to acc, which is 0 unless the value is infinite or NaN. The sum of products
 * starts at +0, so it is +0, and a -0 in acc becomes +0. When m is NaN or infinite, l and acc are
 * NaN since the block that made it so, and stay NaN.
 *
 * So the block may be left out, with equal bits, when all of its values are finite.
 */
#include "runtime/exec/exec_masked.h"

#include "runtime/bind.h"
#include "runtime/finite.h"

static int64_t masked_slot(const df_masked *m, df_slot s)
{
    return df_slot_value(m->slots, s);
}

bool df_masked_find(const df_flow_construct *w, df_masked *out)
{
    const df_part_tag *const tag = w->part->tag;
    *out = (df_masked){ .w = w, .tag = tag, .slots = w->slots + w->part->body.slot0 };
    if (!tag || tag->what.kind != DF_LOOP_ATTENTION || !tag->what.is_causal) return false;
    out->n_queries = masked_slot(out, tag->n_queries);
    out->block = masked_slot(out, tag->block);
    out->n_blocks = w->slots[w->part->most.i];
    return true;
}

/* Whether the values of one block of keys are finite. */
static bool has_finite_values(const df_masked *m, int64_t entry, int64_t block)
{
    const df_tag_matrix *const v = &m->tag->v;
    const df_port *const port = &m->w->part->body.port[v->port];
    const float *at = (const float *)(const void *)((const char *)m->w->body[v->port].data +
                                                    block * m->w->slots[port->row_bytes.i]);
    const int64_t width = masked_slot(m, m->tag->value_width);
    at += masked_slot(m, v->offset);
    for (uint32_t i = m->tag->n_batch; i-- > 0;) {
        const int64_t extent = masked_slot(m, m->tag->batch[i]);
        at += entry % extent * masked_slot(m, v->batch[i]);
        entry /= extent;
    }
    const int64_t row = masked_slot(m, v->row);
    if (masked_slot(m, v->col) != 1 && width != 1) return false;
    if (row == width) return df_are_finite(at, m->block * width);
    for (int64_t i = 0; i < m->block; i++)
        if (!df_are_finite(at + i * row, width)) return false;
    return true;
}

int64_t df_masked_iterations(const df_masked *m, int64_t entry, int64_t end)
{
    const int64_t n = df_min_i64((end - 1) / m->block + 1, m->n_blocks);
    for (int64_t i = n; i < m->n_blocks; i++)
        if (!has_finite_values(m, entry, i)) return m->n_blocks;
    return n;
}

void df_masked_finish(float *acc, int64_t n)
{
    for (int64_t i = 0; i < n; i++) acc[i] += 0.0f;
}
