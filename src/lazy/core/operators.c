/* SPDX-License-Identifier: Apache-2.0
 *
 * Opaque operators with attributes (deft/opaque.h), as calls number them.
 *
 * A call names its operator by a number in the table of the runtime. An entry of that table is an
 * operator with attributes. It stays until the runtime ends, so that a plan or a capture can never
 * find another operator under the number. Of an operator that was destroyed, only the name is left.
 */
#include "lazy/core/operators.h"

#include <string.h>

/* The entry of op that has these attributes, or DF_OPAQUE_NONE. */
static uint32_t find_opaque(const deft_op *op, const void *attributes, uint64_t hash)
{
    const size_t n = op->def.attribute_bytes;
    for (uint32_t i = op->opaque; i != DF_OPAQUE_NONE;) {
        const df_opaque *const x = df_opaques_at(&op->rt->opaques, i);
        if (x->hash == hash && (!n || !memcmp(x->attributes, attributes, n))) return i;
        i = x->before;
    }
    return DF_OPAQUE_NONE;
}

/* Adds an entry, under the lock. DEFT_E_LIMIT: there are too many. */
static deft_status add_opaque(deft_op *op, const void *attributes, uint64_t hash, uint32_t *number)
{
    deft_runtime *const rt = op->rt;
    df_arena *const a = &rt->opaque_arena;
    const size_t n = op->def.attribute_bytes;
    if (rt->opaques.n >= DF_OPAQUE_MOST) return DEFT_E_LIMIT;
    const char *const name = df_arena_strdup(a, op->name);
    void *const copy = n ? df_arena_copy(a, attributes, n, 16) : NULL;
    df_opaque *const x = df_opaques_next(&rt->opaques, a, number);
    if (!name || (n && !copy) || !x) return DEFT_E_MEMORY;
    x->name = name;
    x->version = op->def.version;
    x->n_in = op->def.n_in;
    x->n_out = op->def.n_out;
    x->before = op->opaque;
    x->attribute_bytes = n;
    x->attributes = copy;
    x->hash = hash;
    atomic_store(&x->code, &op->code);
    df_opaques_added(&rt->opaques);
    op->opaque = *number;
    return DEFT_OK;
}

deft_status df_opaque_number(df_diag *d, deft_op *op, const void *attributes, uint32_t *number)
{
    const size_t n = op->def.attribute_bytes;
    const uint64_t hash = n ? df_hash_bytes(attributes, n).lo : 0;
    deft_status st = DEFT_OK;
    df_operators_lock(op->rt);
    *number = find_opaque(op, attributes, hash);
    if (*number == DF_OPAQUE_NONE) st = add_opaque(op, attributes, hash, number);
    df_operators_unlock(op->rt);
    if (st == DEFT_E_LIMIT)
        return df_fail(d, st,
                       "%s: calls in this runtime have had %u different attributes, which is the "
                       "most: what changes from call to call should be an input",
                       op->name, (unsigned)DF_OPAQUE_MOST);
    return st == DEFT_OK ? st : df_fail_mem(d, op->name, n);
}

deft_op *df_operator_named(deft_runtime *rt, const char *name)
{
    deft_op *op = rt->ops;
    while (op && strcmp(op->name, name)) op = op->next;
    return op;
}

deft_op *df_operator_find(deft_runtime *rt, const char *name)
{
    df_operators_lock(rt);
    deft_op *const op = df_operator_named(rt, name);
    df_operators_unlock(rt);
    return op;
}
