/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame of a check: its arguments, its faults, and calls of the function.
 */
#include "check/check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- faults ---- */

static void report_append(df_check *c, const char *text)
{
    const size_t n = strlen(text);
    if (c->length + 1 < c->n) {
        const size_t room = c->n - 1 - c->length;
        memcpy(c->report + c->length, text, n < room ? n : room);
        c->report[c->length + (n < room ? n : room)] = '\0';
    }
    c->length += n;
}

void df_check_fault(df_check *c, const char *name, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!c->n_faults++) (void)snprintf(c->first, sizeof c->first, "%s: %.220s", name, text);
    report_append(c, name);
    report_append(c, ": ");
    report_append(c, text);
    report_append(c, "\n");
}

bool df_check_fails(df_check *c, deft_status st, const char *why)
{
    if (st != DEFT_E_MEMORY && st != DEFT_E_INTERRUPTED && st != DEFT_E_BACKEND &&
        st != DEFT_E_COMPILE)
        return false;
    if (c->failed == DEFT_OK) (void)snprintf(c->first, sizeof c->first, "%.250s", why);
    c->failed = st;
    c->n_faults++; /* nothing more is checked */
    return true;
}

bool df_check_mistake(df_check *c, uint32_t before, const char *name, const char *where)
{
    const bool is_new = df_mistakes(c->cx) != before;
    if (!df_check_fails(c, deft_error(c->cx), deft_message(c->cx)))
        df_check_fault(c, name, "%s%s", where,
                       is_new ? deft_message(c->cx) : "the function fails without a sentence");
    deft_clear(c->cx);
    return false;
}

/* ---- the function ---- */

bool df_check_run(df_check *c, const char *name, const char *where, deft_tensor *const *in,
                  deft_tensor **out)
{
    const uint32_t before = df_mistakes(c->cx);
    for (size_t i = 0; i < c->n_out; i++) out[i] = NULL;
    const deft_status st = c->fn(c->cx, in, c->n_in, out, c->n_out, c->user);
    bool ok = st == DEFT_OK && df_mistakes(c->cx) == before;
    for (size_t i = 0; i < c->n_out; i++) ok = ok && out[i];
    return ok || df_check_mistake(c, before, name, where);
}

bool df_check_moves(const deft_tensor *t)
{
    const deft_dtype dtype = deft_dtype_of(t);
    return dtype == DEFT_F32 || dtype == DEFT_F64;
}

deft_tensor *df_check_draw(df_check *c, uint64_t stream, deft_shape shape)
{
    deft_rng rng = { .seed = c->options.seed * 0x9e3779b97f4a7c15u + stream };
    return deft_uniform(c->cx, &rng, shape, DEFT_F64, -1, 1);
}

/* ---- the frame ---- */

static deft_status check_arguments(df_check *c, deft_tensor *const *in,
                                   const deft_check_options *options)
{
    const deft_check_options *const o = &c->options;
    if (df_ctx_is_passing(c->cx))
        return df_refuse(c->cx, DEFT_E_STATE,
                         "%s: inside a step, a captured function, a loop, branch, vmap or operator "
                         "nothing can be checked",
                         c->what);
    const deft_status st = df_deliver(c->cx);
    if (st != DEFT_OK) return st;
    if (c->n_in > DF_CHECK_INPUTS || c->n_out > DF_CHECK_INPUTS || !c->n_out || (c->n_in && !in))
        return df_refuse(
            c->cx, DEFT_E_ARG,
            "%s: %zu inputs%s, %zu results; it takes at most %d of each, and one result", c->what,
            c->n_in, c->n_in && !in ? " (the list is NULL)" : "", c->n_out, DF_CHECK_INPUTS);
    if (!df_layer_options(c->cx, c->what, "deft_check_options", &c->options, sizeof c->options,
                          options, options ? options->size : 0))
        return df_deliver(c->cx);
    if (o->directions > 64 || !(o->step >= 0) || !(o->tolerance >= 0) || isinf(o->step) ||
        isinf(o->tolerance))
        return df_refuse(
            c->cx, DEFT_E_ARG,
            "%s: %u directions, step %g, tolerance %g; there are at most 64 directions, "
            "and numbers are finite and not negative",
            c->what, o->directions, o->step, o->tolerance);
    if (!o->directions) c->options.directions = 2;
    return DEFT_OK;
}

deft_status df_check_begin(df_check *c, deft_tensor *const *in, const deft_check_options *options,
                           uintptr_t site)
{
    df_acts(c->cx, c->what, site);
    c->site = site;
    c->names_caller = df_caller_begin(c->cx, site);
    if (c->report && c->n) *c->report = '\0';
    if (!c->report) c->n = 0;
    const deft_status st = check_arguments(c, in, options);
    const size_t n_in = c->n_in;
    c->n_in = 0;
    for (size_t i = 0; i < n_in && st == DEFT_OK; i++) {
        /* A tensor of its own, also of a bare number, which nothing else is computed from. */
        deft_tensor *const t =
            in[i] ? deft_stop_gradient(deft_cast(in[i], deft_dtype_of(in[i]))) : NULL;
        if (!t || deft_ctx_of(t) != c->cx || !deft_keep(t)) {
            const deft_status mistake = df_deliver(c->cx);
            if (mistake != DEFT_OK) return mistake;
            return df_refuse(c->cx, DEFT_E_ARG,
                             "%s: input %zu is NULL, or belongs to another context", c->what, i);
        }
        c->in[c->n_in++] = t;
    }
    if (st != DEFT_OK) return st;
    return c->n_in ? deft_eval(c->in, c->n_in) : DEFT_OK;
}

deft_status df_check_end(df_check *c, deft_status st)
{
    for (size_t i = 0; i < c->n_in; i++) deft_drop(&c->in[i]);
    df_caller_end(c->cx, c->names_caller);
    df_calls(c->cx, c->site);
    if (c->failed != DEFT_OK) return df_refuse(c->cx, c->failed, "%s: %s", c->what, c->first);
    if (st != DEFT_OK || !c->n_faults) return st;
    return df_refuse(c->cx, DEFT_E_CHECK, "%s: %u faults, the first is %s", c->what, c->n_faults,
                     c->first);
}
