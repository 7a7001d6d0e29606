/* SPDX-License-Identifier: Apache-2.0
 *
 * HELD: rows that stay in shared memory between the stages of a ROW kernel.
 *
 * Such kernels wait for the memory of the GPU. Softmax reads its operand for the maximum, and again
 * for the exponentials, and its last stage reads the exponentials. Between two stages, other rows
 * push these elements out of the caches. So a thread block keeps them:
 *
 * - SCRATCH rows are in shared memory and nowhere else.
 * - An operand that several stages read is kept by the first of them.
 *
 * Two rows share one room when the first is no longer needed at the time the second is written. In
 * each room, element r of the row is at index r, as in SCRATCH. A barrier separates stages, so an
 * element may be kept by one thread and read by another.
 */
#include "jit_cuda/gen/held.h"

uint32_t df_cuda_held_first(const df_kernel *k, uint32_t access)
{
    while (k->access[access].same_as != access) access = k->access[access].same_as;
    return access;
}

static bool held_touches(const df_kernel *k, const df_ins *ins, uint32_t access)
{
    return df_kop_infos[ins->op].kind == DF_KOP_memory &&
           df_cuda_held_first(k, (uint32_t)ins->imm) == access;
}

/* Adds a stage to those that touch the row. A row that none touches has first > last. */
static void extend(df_cuda_held_row *row, uint8_t stage)
{
    if (stage < row->first) row->first = stage;
    if (stage > row->last) row->last = stage;
}

/* Finds the stages that touch a SCRATCH row. Returns whether there is one. */
static bool span_scratch(const df_kernel *k, uint32_t access, df_cuda_held_row *row)
{
    for (uint32_t i = 0; i < k->n_ins; i++) {
        const df_ins *const ins = &k->ins[i];
        if (!held_touches(k, ins, access)) continue;
        extend(row, ins->stage);
        row->moves |= ins->op == DF_K_load_at || ins->level == DF_LEVEL_ROW;
    }
    return row->first <= row->last;
}

static bool moves_along_rows(const df_kernel *k, uint32_t access)
{
    for (uint32_t x = 0; x < k->n_axes; x++)
        if (k->role[x] == DF_AXIS_RED && k->access[access].step[x] != DF_STEP_ZERO) return true;
    return false;
}

/* Whether elements of an operand may change before the last stage that reads them has done so. In
 * that stage an element is read before it is written. */
static bool changes(const df_kernel *k, uint32_t access, uint32_t last)
{
    for (uint32_t i = 0; i < k->n_ins; i++) {
        const df_ins *const ins = &k->ins[i];
        if (ins->op != DF_K_store ||
            df_cuda_held_first(k, (uint32_t)ins->imm) != df_cuda_held_first(k, access))
            continue;
        if (ins->stage < last || (ins->stage == last && ins->level == DF_LEVEL_ROW)) return true;
    }
    return false;
}

/* Finds the stages that read an operand. Returns whether it may be kept and is worth it. */
static bool span_operand(const df_kernel *k, uint32_t access, df_cuda_held_row *row)
{
    for (uint32_t i = 0; i < k->n_ins; i++) {
        const df_ins *const ins = &k->ins[i];
        if (ins->op != DF_K_load || ins->level != DF_LEVEL_ELEM || ins->imm != access) continue;
        extend(row, ins->stage);
    }
    return row->first < row->last && moves_along_rows(k, access) && !changes(k, access, row->last);
}

/* Whether all reads of row a in a stage come before all writes of row b, in the order of the
 * body. */
static bool reads_before(const df_kernel *k, const df_cuda_held_row *a, const df_cuda_held_row *b,
                         uint32_t stage)
{
    uint32_t last_read = 0, first_write = UINT32_MAX;
    for (uint32_t i = 0; i < k->n_ins; i++) {
        const df_ins *const ins = &k->ins[i];
        if (ins->stage != stage || df_kop_infos[ins->op].kind != DF_KOP_memory) continue;
        if (ins->imm == a->access || held_touches(k, ins, a->access)) last_read = i;
        const bool is_of_b = ins->imm == b->access || held_touches(k, ins, b->access);
        if (is_of_b && i < first_write) first_write = i;
    }
    return last_read < first_write;
}

static bool may_follow(const df_kernel *k, const df_cuda_held_row *a, const df_cuda_held_row *b)
{
    if (a->size != b->size || a->last > b->first) return false;
    if (a->last < b->first) return true;
    return !a->moves && !b->moves && reads_before(k, a, b, a->last);
}

/* Gives row n the room of rows that are needed no longer, or room of its own. */
static void held_place(const df_kernel *k, df_cuda_held *h, uint32_t n)
{
    df_cuda_held_row *const row = &h->row[n];
    for (uint32_t at = 0; at < h->n_rooms; at++) {
        bool fits = true;
        for (uint32_t i = 0; i < n; i++)
            fits = fits && (h->row[i].room != at || may_follow(k, &h->row[i], row));
        row->room = at;
        if (fits) return;
    }
    row->room = h->n_rooms++;
    h->size[row->room] = row->size;
}

static bool add(df_cuda_held *h, const df_cuda_held_row *row)
{
    uint32_t at = h->n;
    if (h->n == DF_CUDA_HELD_ROWS) return false;
    while (at > 0 && h->row[at - 1].first > row->first) {
        h->row[at] = h->row[at - 1];
        at--;
    }
    h->row[at] = *row;
    h->n++;
    return true;
}

df_cuda_held df_cuda_held_of(const df_kernel *k)
{
    df_cuda_held h = { 0 };
    if (k->mode != DF_MODE_ROW || k->n_stages < 2) return h;
    for (uint32_t i = 0; i < k->n_access; i++) {
        const df_access *const a = &k->access[i];
        df_cuda_held_row row = { .access = i,
                                 .first = UINT8_MAX,
                                 .size = (uint8_t)deft_dtype_size((deft_dtype)a->dtype) };
        const bool is_scratch = a->kind == DF_ACCESS_SCRATCH;
        if (is_scratch ? a->same_as == i && span_scratch(k, i, &row)
                       : a->kind == DF_ACCESS_LOAD && span_operand(k, i, &row)) {
            if (add(&h, &row)) continue;
            return (df_cuda_held){ 0 };
        }
    }
    for (uint32_t i = 0; i < h.n; i++) held_place(k, &h, i);
    return h;
}

const df_cuda_held_row *df_cuda_held_row_of(const df_cuda_held *h, uint32_t access)
{
    for (uint32_t i = 0; i < h->n; i++)
        if (h->row[i].access == access) return &h->row[i];
    return NULL;
}

int64_t df_cuda_held_bytes(const df_cuda_held *h, int64_t length)
{
    int64_t n = 0;
    if (length > DF_CUDA_SHARED_BYTES) return INT64_MAX;
    for (uint32_t i = 0; i < h->n_rooms; i++)
        n += DF_CUDA_HELD_ALIGNED(h->size[i] * df_cuda_scratch_row(length));
    return n;
}
