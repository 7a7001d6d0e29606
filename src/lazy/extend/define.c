/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators of the program: defining and destroying them (deft/extend.h). call.c calls them.
 */
#include "deft/extend.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lazy/extend/formula.h"

/* ---- the sentence of a failure ---- */

/* A buffer of the program for a sentence. */
typedef struct sentence {
    const char *call; /* the call that may fail */
    char *at;
    size_t n;
} sentence;

static sentence begin_sentence(const char *call, char *why, size_t n)
{
    if (why && n) *why = '\0';
    return (sentence){ call, why, why ? n : 0 };
}

static deft_status refuse_definition(sentence s, deft_status st, const char *fmt, ...)
    DF_PRINTF(3, 4);

static deft_status refuse_definition(sentence s, deft_status st, const char *fmt, ...)
{
    const int used = s.n ? snprintf(s.at, s.n, "%s: ", s.call) : -1;
    if (used < 0 || (size_t)used >= s.n) return st;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(s.at + used, s.n - (size_t)used, fmt, ap);
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
                                 "\"%.80s\" is no name: it has letters, digits, '_', "
                                 "'-' and a '.' within, and "
                                 "at most %d bytes, as \"acme.rms_norm\"",
                                 d->name ? d->name : "", DEFT_OP_MAX_NAME);
    if (!d->version)
        return refuse_definition(s, DEFT_E_ARG, "%s: the version is 0, it must be at least 1",
                                 d->name);
    if (!d->body == !d->run)
        return refuse_definition(s, DEFT_E_ARG, "%s: %s; it has either a body or `run`", d->name,
                                 d->body ? "it has both" : "the body is NULL");
    if (!d->shape != !d->run || (d->dense && !d->run))
        return refuse_definition(
            s, DEFT_E_ARG, "%s: `shape` and `run` belong together, and `dense` to them", d->name);
    if (d->n_in > DEFT_OP_MAX_TENSORS || d->n_out > DEFT_OP_MAX_TENSORS || !d->n_out)
        return refuse_definition(s, DEFT_E_ARG,
                                 "%s: %u inputs, %u results; at most %d of each, and one result",
                                 d->name, d->n_in, d->n_out, DEFT_OP_MAX_TENSORS);
    if (d->attribute_bytes > DEFT_OP_MAX_ATTRIBUTES)
        return refuse_definition(s, DEFT_E_ARG, "%s: attributes of %zu bytes; at most %d bytes",
                                 d->name, d->attribute_bytes, DEFT_OP_MAX_ATTRIBUTES);
    return DEFT_OK;
}

static bool is_defined_so(const deft_op *op, const deft_op_def *d)
{
    const deft_op_def *const o = &op->def;
    return o->n_in == d->n_in && o->n_out == d->n_out && o->attribute_bytes == d->attribute_bytes &&
           o->body == d->body && o->grad == d->grad && o->batch == d->batch &&
           o->shape == d->shape && o->run == d->run && o->user == d->user && o->dense == d->dense;
}

/* Whether two texts, each of which may be NULL, are equal. */
static bool are_equal_texts(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static bool is_formula_of(const df_formula *f, const deft_formula_def *d)
{
    return f && are_equal_texts(f->text, d->text) &&
           are_equal_texts(f->derivative, d->derivative) && f->reference == d->reference &&
           f->ulps == df_formula_ulps(d);
}

/* ---- the list ---- */

/* The member that points to op, or to NULL at the end of the list. */
static deft_op **place_of(deft_runtime *rt, const deft_op *op)
{
    deft_op **at = &rt->ops;
    while (*at && *at != op) at = &(*at)->next;
    return at;
}

/* Notes that a text calls other formulas, or calls them no more: then by is -1. */
static void count_callers(const df_formula_code *c, int by)
{
    for (uint32_t i = 0; i < c->n_called; i++)
        ((deft_op *)(uintptr_t)c->called[i])->n_callers += (uint32_t)by;
}

/* Adds d under the lock, or finds it. formula: that of the body, or NULL. */
static deft_status add_operator(deft_runtime *rt, const deft_op_def *d,
                                const deft_formula_def *formula, deft_op **out, sentence s)
{
    deft_op *op = df_operator_named(rt, d->name);
    const bool is_equal =
        op && op->def.version == d->version &&
        (formula ? is_formula_of(op->formula, formula) : !op->formula && is_defined_so(op, d));
    if (is_equal) {
        *out = op;
        return DEFT_OK;
    }
    if (op && op->def.version != d->version)
        return refuse_definition(s, DEFT_E_STATE,
                                 "%s has version %u in this runtime, and not version %u", d->name,
                                 op->def.version, d->version);
    if (op)
        return refuse_definition(s, DEFT_E_STATE,
                                 "%s has another definition in this runtime, which also "
                                 "is version %u",
                                 d->name, d->version);
    op = df_mem_zalloc(rt->mem, sizeof *op);
    if (!op)
        return refuse_definition(s, DEFT_E_MEMORY, "%s: no memory for %zu bytes", d->name,
                                 sizeof *op);
    if (formula) {
        deft_status st;
        op->formula =
            df_formula_new(rt, df_operator_named, formula, &op->formula_bytes, &st, s.at, s.n);
        if (!op->formula) {
            df_op_free(rt->mem, &op);
            return st;
        }
    }
    op->rt = rt;
    op->def = *d;
    if (formula) {
        count_callers(&op->formula->value, 1);
        count_callers(&op->formula->slope, 1);
        op->def.n_in = op->formula->value.n_inputs;
        op->def.n_out = op->formula->value.n_results;
    }
    memcpy(op->name, d->name, strlen(d->name) + 1);
    op->def.name = op->name;
    op->is_simple = !d->grad && !d->batch && !d->run;
    op->batch = !d->batch && d->run ? df_opaque_batch : d->batch;
    op->takes_attributes = d->attribute_bytes && !formula;
    op->code = (df_opaque_code){ d->shape, d->run, d->user, d->dense };
    op->opaque = DF_OPAQUE_NONE;
    op->number = ++rt->n_ops;
    op->next = rt->ops;
    *out = rt->ops = op;
    return DEFT_OK;
}

deft_status deft_op_define(deft_runtime *rt, const deft_op_def *def, deft_op **out, char *why,
                           size_t n)
{
    const sentence s = begin_sentence("op_define", why, n);
    deft_op_def d;
    if (out) *out = NULL;
    if (!rt || !def || !out)
        return refuse_definition(s, DEFT_E_ARG, "the runtime, the definition or out is NULL");
    if (!def->size)
        return refuse_definition(s, DEFT_E_ARG,
                                 "the size of deft_op_def is 0, it must be sizeof(deft_op_def)");
    df_take_options(&d, sizeof d, def, def->size);
    deft_status st = check_definition(&d, s);
    if (st != DEFT_OK) return st;
    df_operators_lock(rt);
    st = add_operator(rt, &d, NULL, out, s);
    df_operators_unlock(rt);
    return st;
}

deft_status deft_formula_define(deft_runtime *rt, const deft_formula_def *def, deft_op **out,
                                char *why, size_t n)
{
    const sentence s = begin_sentence("formula_define", why, n);
    deft_formula_def d;
    if (out) *out = NULL;
    if (!rt || !def || !out)
        return refuse_definition(s, DEFT_E_ARG, "the runtime, the definition or out is NULL");
    if (!def->size)
        return refuse_definition(
            s, DEFT_E_ARG,
            "the size of deft_formula_def is 0, it must be sizeof(deft_formula_def)");
    df_take_options(&d, sizeof d, def, def->size);
    deft_op_def op = { .size = sizeof op,
                       .name = d.name,
                       .version = d.version,
                       .n_out = 1,
                       .attribute_bytes = sizeof(df_formula *),
                       .body = df_formula_body,
                       .grad = d.derivative ? df_formula_grad : NULL };
    deft_status st = check_definition(&op, s);
    if (st != DEFT_OK) return st;
    if (!d.text) return refuse_definition(s, DEFT_E_ARG, "%s: the text is NULL", d.name);
    if (!(d.ulps >= 0))
        return refuse_definition(s, DEFT_E_ARG, "%s: %g ulps; at least 0", d.name, d.ulps);
    df_operators_lock(rt);
    st = add_operator(rt, &op, &d, out, s);
    df_operators_unlock(rt);
    return st;
}

deft_status deft_op_destroy(deft_op **pop, char *why, size_t n)
{
    const sentence s = begin_sentence("op_destroy", why, n);
    deft_op *const op = pop ? *pop : NULL;
    if (!op) return DEFT_OK;
    deft_runtime *const rt = op->rt;
    const uint32_t users = atomic_load(&op->users);
    if (users)
        return refuse_definition(s, DEFT_E_STATE,
                                 "%s: the records of %u calls may need its gradient or "
                                 "its batch rule: end their step, or their outermost scope, first",
                                 op->name, users);
    df_operators_lock(rt);
    const uint32_t n_callers = op->n_callers;
    deft_op **const at = place_of(rt, op);
    if (!n_callers && *at == op) {
        *at = op->next;
        /* Plans and captures that need it fail from here on. */
        for (uint32_t i = op->opaque; i != DF_OPAQUE_NONE;) {
            df_opaque *const x = (df_opaque *)(uintptr_t)df_opaques_at(&rt->opaques, i);
            atomic_store(&x->code, NULL);
            i = x->before;
        }
        if (op->formula) {
            count_callers(&op->formula->value, -1);
            count_callers(&op->formula->slope, -1);
        }
    }
    df_operators_unlock(rt);
    if (n_callers)
        return refuse_definition(s, DEFT_E_STATE, "%s: %u texts of formulas call it", op->name,
                                 n_callers);
    df_op_free(rt->mem, pop);
    return DEFT_OK;
}

const deft_op_def *df_op_definition(const deft_op *op)
{
    return &op->def;
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
