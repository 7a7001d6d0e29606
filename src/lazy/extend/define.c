/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators of the program: defining and destroying them (deft/extend.h). call.c calls them.
 */
#include "deft/extend.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lazy/core/operators.h"

/* ---- the sentence of a failure ---- */

/* A buffer of the program for a sentence. */
typedef struct sentence {
    char *at;
    size_t n;
} sentence;

static sentence begin_sentence(char *why, size_t n)
{
    if (why && n) *why = '\0';
    return (sentence){ why, why ? n : 0 };
}

static deft_status refuse_definition(sentence s, deft_status st, const char *fmt, ...)
    DF_PRINTF(3, 4);

static deft_status refuse_definition(sentence s, deft_status st, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (s.n) (void)vsnprintf(s.at, s.n, fmt, ap);
    va_end(ap);
    return st;
}

/* ---- checks ---- */

static bool is_operator_name(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    const char *const dot = strchr(name, '.');
    const size_t n = strspn(name, allowed);
    return !name[n] && n <= DEFT_OP_MAX_NAME && dot && dot != name && name[n - 1] != '.';
}

static deft_status check_definition(const deft_op_def *d, sentence s)
{
    if (!d->name || !is_operator_name(d->name))
        return refuse_definition(s, DEFT_E_ARG,
                                 "op_define: \"%.80s\" is no name: it has letters, digits, '_', "
                                 "'-' and a '.' within, and "
                                 "at most %d bytes, as \"acme.rms_norm\"",
                                 d->name ? d->name : "", DEFT_OP_MAX_NAME);
    if (!d->version)
        return refuse_definition(s, DEFT_E_ARG,
                                 "op_define: %s: the version is 0, it must be at least 1", d->name);
    if (!d->body)
        return refuse_definition(s, DEFT_E_ARG, "op_define: %s: the body is NULL", d->name);
    if (d->n_in > DEFT_OP_MAX_TENSORS || d->n_out > DEFT_OP_MAX_TENSORS || !d->n_out)
        return refuse_definition(
            s, DEFT_E_ARG,
            "op_define: %s: %u inputs, %u results; at most %d of each, and one result", d->name,
            d->n_in, d->n_out, DEFT_OP_MAX_TENSORS);
    if (d->attribute_bytes > DEFT_OP_MAX_ATTRIBUTES)
        return refuse_definition(s, DEFT_E_ARG,
                                 "op_define: %s: attributes of %zu bytes; at most %d bytes",
                                 d->name, d->attribute_bytes, DEFT_OP_MAX_ATTRIBUTES);
    return DEFT_OK;
}

static bool is_defined_so(const deft_op *op, const deft_op_def *d)
{
    const deft_op_def *const o = &op->def;
    return o->version == d->version && o->n_in == d->n_in && o->n_out == d->n_out &&
           o->attribute_bytes == d->attribute_bytes && o->body == d->body && o->grad == d->grad &&
           o->batch == d->batch;
}

/* ---- the list ---- */

static void lock_operators(deft_runtime *rt)
{
    /* In a forked child a missing thread was changing the list, which is not read again. */
    if (df_fork_lock_take(&rt->op_lock)) rt->ops = NULL;
}

/* The member that points to the operator of that name, or to NULL at the end of the list. */
static deft_op **find_operator(deft_runtime *rt, const char *name)
{
    deft_op **at = &rt->ops;
    while (*at && strcmp((*at)->name, name)) at = &(*at)->next;
    return at;
}

/* Adds d under the lock, or finds it. */
static deft_status add_operator(deft_runtime *rt, const deft_op_def *d, deft_op **out, sentence s)
{
    deft_op *op = *find_operator(rt, d->name);
    if (op && is_defined_so(op, d)) {
        *out = op;
        return DEFT_OK;
    }
    if (op && op->def.version != d->version)
        return refuse_definition(s, DEFT_E_STATE,
                                 "op_define: %s has version %u in this runtime, and not version %u",
                                 d->name, op->def.version, d->version);
    if (op)
        return refuse_definition(s, DEFT_E_STATE,
                                 "op_define: %s has another definition in this runtime, which also "
                                 "is version %u",
                                 d->name, d->version);
    op = df_mem_zalloc(rt->mem, sizeof *op);
    if (!op)
        return refuse_definition(s, DEFT_E_MEMORY, "op_define: %s: no memory for %zu bytes",
                                 d->name, sizeof *op);
    op->rt = rt;
    op->def = *d;
    memcpy(op->name, d->name, strlen(d->name) + 1);
    op->def.name = op->name;
    op->is_simple = !d->grad && !d->batch;
    op->number = ++rt->n_ops;
    op->next = rt->ops;
    *out = rt->ops = op;
    return DEFT_OK;
}

deft_status deft_op_define(deft_runtime *rt, const deft_op_def *def, deft_op **out, char *why,
                           size_t n)
{
    const sentence s = begin_sentence(why, n);
    deft_op_def d;
    if (out) *out = NULL;
    if (!rt || !def || !out)
        return refuse_definition(s, DEFT_E_ARG,
                                 "op_define: the runtime, the definition or out is NULL");
    if (!def->size)
        return refuse_definition(
            s, DEFT_E_ARG,
            "op_define: the size of deft_op_def is 0, it must be sizeof(deft_op_def)");
    df_take_options(&d, sizeof d, def, def->size);
    deft_status st = check_definition(&d, s);
    if (st != DEFT_OK) return st;
    lock_operators(rt);
    st = add_operator(rt, &d, out, s);
    df_fork_lock_give(&rt->op_lock);
    return st;
}

deft_status deft_op_destroy(deft_op **pop, char *why, size_t n)
{
    const sentence s = begin_sentence(why, n);
    deft_op *const op = pop ? *pop : NULL;
    if (!op) return DEFT_OK;
    deft_runtime *const rt = op->rt;
    const uint32_t users = atomic_load(&op->users);
    if (users)
        return refuse_definition(s, DEFT_E_STATE,
                                 "op_destroy: %s: the records of %u calls may need its gradient or "
                                 "its batch rule: end their step, or their outermost scope, first",
                                 op->name, users);
    lock_operators(rt);
    deft_op **const at = find_operator(rt, op->name);
    if (*at == op) *at = op->next;
    df_fork_lock_give(&rt->op_lock);
    df_mem_free(rt->mem, op, sizeof *op);
    *pop = NULL;
    return DEFT_OK;
}

const char *deft_op_name(const deft_op *op)
{
    return op ? op->name : "";
}

uint32_t deft_op_version(const deft_op *op)
{
    return op ? op->def.version : 0;
}

uint32_t deft_op_inputs(const deft_op *op)
{
    return op ? op->def.n_in : 0;
}

uint32_t deft_op_results(const deft_op *op)
{
    return op ? op->def.n_out : 0;
}
