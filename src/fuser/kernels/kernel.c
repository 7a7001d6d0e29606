/* SPDX-License-Identifier: Apache-2.0
 *
 * What depends on a kernel alone: its key, its cost, and copies of it.
 */
#include <string.h>

#include "base/arena.h"
#include "fuser/plan.h"

/* Vector instructions that an instruction costs. argmin and argmax compare and keep two vectors of
 * positions per vector of values. A value that runs along a row waits for the value before it. */
static double ins_cost(const df_kernel *k, const df_ins *i)
{
    switch (i->op) {
    case DF_K_const:
    case DF_K_num:
    case DF_K_carry:
    case DF_K_next: return 0;
    case DF_K_div:
    case DF_K_rem: return 5;
    case DF_K_sqrt: return 6;
    case DF_K_argmin:
    case DF_K_argmax:
    case DF_K_load_at: return 8;
    case DF_K_cumsum:
    case DF_K_cumprod:
    case DF_K_cummin:
    case DF_K_cummax: return k->mode == DF_MODE_ROW ? 20 : 1;
    }
    return 1;
}

deft_status df_kernel_seal(df_diag *d, df_kernel *k, df_arena *arena)
{
    const uint32_t first[] = { k->mode,     k->n_axes, k->n_stages, k->flags,
                               k->n_access, k->n_num,  k->n_ins };
    const size_t n =
        sizeof first + sizeof k->role + k->n_access * sizeof *k->access + k->n_ins * sizeof *k->ins;
    char *const bytes = df_arena_alloc(arena, n, 8);
    if (!bytes) return df_fail_mem(d, "kernel", n);
    char *at = bytes;
    memcpy(at, first, sizeof first);
    at += sizeof first;
    memcpy(at, k->role, sizeof k->role);
    at += sizeof k->role;
    if (k->n_access) memcpy(at, k->access, k->n_access * sizeof *k->access);
    at += k->n_access * sizeof *k->access;
    if (k->n_ins) memcpy(at, k->ins, k->n_ins * sizeof *k->ins);
    k->key = (df_key){ .hash = df_hash_bytes(bytes, n), .bytes = bytes, .n = n };
    k->cost = 0;
    for (uint32_t i = 0; i < k->n_ins; i++)
        if (k->ins[i].level == DF_LEVEL_ELEM) k->cost += ins_cost(k, &k->ins[i]);
    return DEFT_OK;
}

/* ---- copies ---- */

/* Room for n bytes, so that the next array is aligned. */
static size_t padded(size_t n)
{
    return (n + 15) & ~(size_t)15;
}

/* Copies n bytes to *at, advances *at, and returns the copy. */
static const void *copy_array(char **at, const void *from, size_t n)
{
    char *const to = *at;
    if (n) memcpy(to, from, n);
    *at += padded(n);
    return to;
}

size_t df_kernel_storage_size(const df_kernel *k)
{
    return padded(k->n_access * sizeof *k->access) + padded(k->n_ins * sizeof *k->ins) +
           padded(k->key.n);
}

void df_kernel_copy(df_kernel *to, const df_kernel *k, void *storage)
{
    char *at = storage;
    *to = *k;
    to->access = copy_array(&at, k->access, k->n_access * sizeof *k->access);
    to->ins = copy_array(&at, k->ins, k->n_ins * sizeof *k->ins);
    to->key.bytes = copy_array(&at, k->key.bytes, k->key.n);
}

/* Whether results go through the access, to elements that are apart along INNER. */
static bool stores_apart(const df_kernel *k, const df_access *a)
{
    const int last = k->n_axes - 1;
    return a->kind == DF_ACCESS_STORE && last >= 0 && k->role[last] == DF_AXIS_INNER &&
           a->step[last] == DF_STEP_ANY && deft_dtype_size((deft_dtype)a->dtype) >= 4;
}

uint32_t df_kernel_streamed_twos(const df_kernel *k)
{
    uint32_t first = DF_NONE, n = 0;
    if (k->mode != DF_MODE_MAP || df_kernel_has_tiles(k)) return DF_NONE;
    for (uint32_t a = 0; a < k->n_access; a++)
        if (k->access[a].kind == DF_ACCESS_STORE && n++ == 0) first = a;
    if (n != 2 || first + 1 == k->n_access) return DF_NONE;
    const df_access *const one = &k->access[first], *const other = one + 1;
    const bool are_alike = one->dtype == other->dtype && one->same_as == other->same_as;
    return are_alike && stores_apart(k, one) && stores_apart(k, other) ? first : DF_NONE;
}

bool df_kernel_has_tiles(const df_kernel *k)
{
    for (uint32_t a = 0; k->mode == DF_MODE_MAP && a < k->n_access; a++)
        for (uint32_t j = 0; j < k->n_axes; j++)
            if (k->role[j] == DF_AXIS_OUTER && k->access[a].step[j] == DF_STEP_UNIT) return true;
    return false;
}
