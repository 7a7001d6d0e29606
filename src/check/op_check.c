/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of operators of the program: state, batch rules, loops, captures. Each compares results of
 * the operator with those that it has alone, bit by bit. The gradients are those of grad_check.c.
 */
#include "check/check.h"

#include <stdio.h>

enum { EXAMPLES = 3 };

/* The operator and its attributes. */
typedef struct op_user {
    const deft_op *op;
    const void *attributes;
} op_user;

static deft_status run_op(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    const op_user *const u = user;
    if (deft_op_call(cx, u->op, in, n_in, u->attributes, out, n_out)) return DEFT_OK;
    const deft_status st = deft_error(cx); /* a lack of memory is no fault of the operator */
    return st == DEFT_OK ? DEFT_E_ARG : st;
}

/* ---- comparing ---- */

static bool has_gradient_dtype(deft_dtype t)
{
    return t == DEFT_F32 || t == DEFT_F64 || t == DEFT_F16 || t == DEFT_BF16;
}

/* The elements of t as numbers that a comparison of bits takes. */
static deft_tensor *comparable(deft_tensor *t)
{
    const deft_dtype dtype = deft_dtype_of(t);
    if (dtype == DEFT_C64 || dtype == DEFT_C128) return deft_view_as_real(t);
    return t;
}

static deft_tensor *bits_to_compare(deft_tensor *t)
{
    switch ((int)deft_dtype_of(t)) {
    case DEFT_F64: return deft_bitcast(t, DEFT_U64);
    case DEFT_F32: return deft_bitcast(t, DEFT_U32);
    case DEFT_F16:
    case DEFT_BF16: return deft_bitcast(t, DEFT_U16);
    }
    return t;
}

static bool have_equal_shapes(const deft_tensor *a, const deft_tensor *b)
{
    const deft_shape x = deft_shape_get(a), y = deft_shape_get(b);
    if (x.rank != y.rank || deft_dtype_of(a) != deft_dtype_of(b)) return false;
    for (size_t i = 0; i < x.rank; i++)
        if (x.dim[i] != y.dim[i]) return false;
    return true;
}

/* Compares the results of the function in some surrounding with those that it has alone. */
static deft_status compare(df_check *c, const char *name, const char *where,
                           deft_tensor *const *found, deft_tensor *const *alone)
{
    for (size_t k = 0; k < c->n_out; k++) {
        if (!have_equal_shapes(found[k], alone[k])) {
            df_check_fault(c, name, "%sresult %zu has another shape or dtype than alone", where, k);
            continue;
        }
        int64_t n = 0;
        deft_tensor *const a = comparable(found[k]), *const b = comparable(alone[k]);
        deft_tensor *differs = deft_ne(bits_to_compare(a), bits_to_compare(b));
        if (has_gradient_dtype(deft_dtype_of(a)))
            differs = deft_logical_and(
                differs, deft_logical_not(deft_logical_and(deft_isnan(a), deft_isnan(b))));
        const deft_status st =
            deft_item_i64(deft_sum(deft_cast(differs, DEFT_I64), DEFT_ALL_AXES, false), &n);
        if (st != DEFT_OK) return st;
        if (n)
            df_check_fault(c, name, "%sresult %zu differs from that alone in %lld elements", where,
                           k, (long long)n);
    }
    return DEFT_OK;
}

/* ---- examples ---- */

/* Input i of example e. */
static deft_tensor *example_of(const df_check *c, size_t i, int e)
{
    deft_tensor *const x = c->in[i];
    const deft_dtype dtype = deft_dtype_of(x);
    if (e == 0) return x;
    if (has_gradient_dtype(dtype) || dtype == DEFT_C64 || dtype == DEFT_C128)
        return deft_mul_f(x, 1 + e * 0.125);
    return deft_shape_get(x).rank && (int)dtype <= DEFT_BF16 ? deft_roll(x, e, 0) : x;
}

/* Which inputs are mapped, and along which axis. */
typedef struct mapping {
    char where[64];
    int axis[DF_CHECK_INPUTS];
} mapping;

static bool has_room_for_axis(const df_check *c, const mapping *m)
{
    for (size_t i = 0; i < c->n_in; i++)
        if (m->axis[i] != DEFT_NOT_MAPPED && deft_shape_get(c->in[i]).rank + 1 >= DEFT_MAX_RANK)
            return false;
    return true;
}

/* The inputs of all examples in in[]. For each result, the stack of what the function gives for
 * each example alone in alone[]. Returns false with the fault noted. */
static bool record_examples(df_check *c, const char *name, const mapping *m, deft_tensor **in,
                            deft_tensor **alone)
{
    deft_tensor *example[DF_CHECK_INPUTS][EXAMPLES], *out[EXAMPLES][DF_CHECK_INPUTS];
    for (size_t i = 0; i < c->n_in; i++) {
        const bool is_mapped = m->axis[i] != DEFT_NOT_MAPPED;
        for (int e = 0; e < EXAMPLES; e++) example[i][e] = example_of(c, i, is_mapped ? e : 0);
        in[i] = is_mapped ? deft_stack(example[i], EXAMPLES, m->axis[i]) : example[i][0];
        /* From the stack, so that gradients go to it. */
        if (is_mapped && deft_unstack(in[i], m->axis[i], EXAMPLES, example[i]) != DEFT_OK)
            return df_check_mistake(c, UINT32_MAX, name, m->where);
    }
    for (int e = 0; e < EXAMPLES; e++) {
        deft_tensor *one[DF_CHECK_INPUTS];
        for (size_t i = 0; i < c->n_in; i++) one[i] = example[i][e];
        if (!df_check_run(c, name, m->where, one, out[e])) return false;
    }
    for (size_t k = 0; k < c->n_out; k++) {
        deft_tensor *row[EXAMPLES];
        for (int e = 0; e < EXAMPLES; e++) row[e] = out[e][k];
        alone[k] = deft_stack(row, EXAMPLES, 0);
        if (!alone[k]) return df_check_mistake(c, UINT32_MAX, name, m->where);
    }
    return true;
}

/* The gradients of drawn weights times float results with respect to the mapped inputs. Returns
 * false when a call has failed. */
static bool record_gradients(df_check *c, deft_tensor *const *out, deft_tensor *const *in,
                             const mapping *m, deft_tensor **g)
{
    const deft_grad_options zero = { .size = sizeof zero, .unused_is_zero = true };
    deft_tensor *loss = deft_zeros(c->cx, DEFT_SHAPE(), DEFT_F64);
    for (size_t k = 0; k < c->n_out; k++)
        if (has_gradient_dtype(deft_dtype_of(out[k])))
            loss = deft_add(loss, deft_sum(deft_mul(deft_cast(out[k], DEFT_F64),
                                                    df_check_draw(c, k, deft_shape_get(out[k]))),
                                           DEFT_ALL_AXES, false));
    for (size_t i = 0; i < c->n_in; i++) {
        g[i] = NULL;
        if (m->axis[i] == DEFT_NOT_MAPPED || !df_check_moves(in[i])) continue;
        if (!deft_grad(&loss, NULL, 1, &in[i], 1, &zero, &g[i])) return false;
    }
    return loss != NULL;
}

/* Compares gradients through deft_vmap with those of each example: the results may have been
 * recorded in another way, so that bits may differ. */
static deft_status compare_gradients(df_check *c, const mapping *m, deft_tensor *const *in,
                                     deft_tensor *const *mapped, deft_tensor *const *alone)
{
    static const char name[] = "batch gradient";
    deft_tensor *g[DF_CHECK_INPUTS], *want[DF_CHECK_INPUTS];
    const uint32_t before = df_mistakes(c->cx);
    if (!record_gradients(c, mapped, in, m, g) || !record_gradients(c, alone, in, m, want)) {
        (void)df_check_mistake(c, before, name, m->where);
        return DEFT_OK;
    }
    for (size_t i = 0; i < c->n_in; i++) {
        if (!g[i]) continue;
        deft_tensor *const w = deft_cast(want[i], DEFT_F64), *const x = deft_cast(g[i], DEFT_F64);
        deft_tensor *const zeros = deft_zeros(c->cx, DEFT_SHAPE(), DEFT_F64);
        deft_tensor *const are_nan = deft_logical_and(deft_isnan(x), deft_isnan(w));
        deft_tensor *const are_equal = deft_logical_or(deft_eq(x, w), are_nan);
        deft_tensor *const d = deft_where(are_equal, zeros, deft_abs(deft_sub(x, w)));
        deft_tensor *const finite = deft_where(deft_isfinite(w), w, zeros);
        deft_tensor *const numbers[] = { deft_sum(d, DEFT_ALL_AXES, false),
                                         deft_sum(deft_abs(finite), DEFT_ALL_AXES, false) };
        double v[2];
        const deft_status st = deft_read(deft_stack(numbers, 2, 0), DEFT_F64, v, sizeof v);
        if (st != DEFT_OK) return st;
        const double far = v[0], size = v[1];
        if (far <= (deft_dtype_of(in[i]) == DEFT_F64 ? 1e-9 : 1e-3) * size) continue; /* no NaN */
        df_check_fault(c, name, "%sthat of input %zu differs by %.9g in sum, of %.9g", m->where, i,
                       far, size);
    }
    return DEFT_OK;
}

static deft_status check_mapping(df_check *c, const mapping *m)
{
    deft_tensor *in[DF_CHECK_INPUTS], *alone[DF_CHECK_INPUTS], *mapped[DF_CHECK_INPUTS];
    deft_status st = DEFT_OK;
    if (!has_room_for_axis(c, m)) return DEFT_OK;
    const uint32_t faults = c->n_faults;
    const deft_scope s = deft_scope_begin(c->cx);
    if (record_examples(c, "batch", m, in, alone)) {
        const uint32_t before = df_mistakes(c->cx);
        if (deft_vmap(c->cx, c->fn, c->user, in, m->axis, c->n_in, mapped, NULL, c->n_out))
            st = compare(c, "batch", m->where, mapped, alone);
        else
            (void)df_check_mistake(c, before, "batch", m->where);
        if (st == DEFT_OK && c->n_faults == faults && !c->no_gradient)
            st = compare_gradients(c, m, in, mapped, alone);
    }
    const deft_status end = deft_scope_end(s);
    return st == DEFT_OK ? end : st;
}

static deft_status check_mappings(df_check *c)
{
    deft_status st = DEFT_OK;
    const int n = (int)c->n_in;
    for (int which = -2; which < n && st == DEFT_OK && n; which++) {
        mapping m;
        for (int i = 0; i < n; i++)
            m.axis[i] = which == -2 ? 0 : which == -1 ? -1 : i == which ? 0 : DEFT_NOT_MAPPED;
        if (which >= 0 && n == 1) continue;
        if (which < 0)
            (void)snprintf(m.where, sizeof m.where, "all inputs along axis %d: ", m.axis[0]);
        else
            (void)snprintf(m.where, sizeof m.where, "input %d alone along axis 0: ", which);
        st = check_mapping(c, &m);
    }
    return st;
}

/* ---- other surroundings ---- */

static deft_status check_state(df_check *c)
{
    deft_tensor *once[DF_CHECK_INPUTS], *again[DF_CHECK_INPUTS];
    deft_status st = DEFT_OK;
    const deft_scope s = deft_scope_begin(c->cx);
    if (df_check_run(c, "call", "", c->in, once)) {
        st = deft_eval(once, c->n_out);
        if (st != DEFT_OK && !df_check_fails(c, st, deft_message(c->cx)))
            df_check_fault(c, "call", "%s", deft_message(c->cx));
        else if (st == DEFT_OK && df_check_run(c, "state", "the second call: ", c->in, again))
            st = compare(c, "state", "the second call: ", again, once);
        if (c->n_faults) st = DEFT_OK;
    }
    const deft_status end = deft_scope_end(s);
    return st == DEFT_OK ? end : st;
}

static deft_status check_loop(df_check *c)
{
    mapping m = { .where = "" };
    deft_tensor *in[DF_CHECK_INPUTS], *alone[DF_CHECK_INPUTS], *found[DF_CHECK_INPUTS];
    deft_status st = DEFT_OK;
    if (!c->n_in || !has_room_for_axis(c, &m)) return st;
    const deft_scope s = deft_scope_begin(c->cx);
    if (record_examples(c, "loop", &m, in, alone)) {
        const uint32_t before = df_mistakes(c->cx);
        if (deft_scan(c->cx, c->fn, c->user, NULL, 0, in, c->n_in, EXAMPLES, c->n_out, found))
            st = compare(c, "loop", "", found, alone);
        else
            (void)df_check_mistake(c, before, "loop", "");
    }
    const deft_status end = deft_scope_end(s);
    return st == DEFT_OK ? end : st;
}

static deft_status check_capture(df_check *c)
{
    deft_status st = DEFT_OK;
    const uint32_t faults = c->n_faults;
    deft_capture *capture = deft_capture_create(c->cx, c->fn, c->user);
    if (!capture) return df_deliver(c->cx);
    for (int e = 0; e < EXAMPLES && c->n_faults == faults && st == DEFT_OK; e++) {
        deft_tensor *in[DF_CHECK_INPUTS], *alone[DF_CHECK_INPUTS], *found[DF_CHECK_INPUTS];
        const deft_scope s = deft_scope_begin(c->cx);
        for (size_t i = 0; i < c->n_in; i++) in[i] = example_of(c, i, e);
        const deft_status called = deft_capture_call(capture, in, c->n_in, found, c->n_out);
        if (called != DEFT_OK && !df_check_fails(c, called, deft_message(c->cx)))
            df_check_fault(c, "capture", "%s", deft_message(c->cx));
        if (called == DEFT_OK && df_check_run(c, "capture", "", in, alone))
            st = compare(c, "capture", e ? "a replay: " : "", found, alone);
        const deft_status end = deft_scope_end(s);
        if (st == DEFT_OK && c->n_faults == faults) st = end;
    }
    deft_capture_destroy(&capture);
    return st;
}

/* ---- the call ---- */

/* Whether an input and a result have gradients. */
static bool op_has_gradients(df_check *c)
{
    deft_tensor *out[DF_CHECK_INPUTS];
    bool moves = false, is_float = false;
    const deft_scope s = deft_scope_begin(c->cx);
    for (size_t i = 0; i < c->n_in; i++) moves = moves || df_check_moves(c->in[i]);
    if (moves && df_check_run(c, "call", "", c->in, out))
        for (size_t k = 0; k < c->n_out; k++)
            is_float = is_float || has_gradient_dtype(deft_dtype_of(out[k]));
    return deft_scope_end(s) == DEFT_OK && is_float;
}

/* Whether a call would accept the inputs and the attributes. If not, check_state says why. */
static bool may_call_directly(const df_check *c, const deft_op_def *def, const void *attributes)
{
    bool may = c->n_in == def->n_in && !attributes == !def->attribute_bytes;
    for (size_t i = 0; i < c->n_in; i++) may = may && (int)deft_dtype_of(c->in[i]) <= DEFT_BF16;
    return may;
}

static deft_status check_op(df_check *c)
{
    const op_user *const u = c->user;
    const deft_op_def *const def = df_op_definition(u->op);
    deft_status st = DEFT_OK;
    if (def->run && may_call_directly(c, def, u->attributes))
        df_check_opaque(c, def, u->attributes);
    c->no_gradient = def->run && !def->grad;
    if (c->n_faults) return st;
    st = check_state(c);
    if (st != DEFT_OK || c->n_faults) return st; /* nothing else can be compared */
    st = df_check_reference(c, u->op);
    if (st != DEFT_OK || c->n_faults) return st;
    if (!c->no_gradient && op_has_gradients(c)) st = df_check_gradients(c);
    if (st != DEFT_OK || c->n_faults) return st;
    st = check_mappings(c);
    if (st == DEFT_OK) st = check_loop(c);
    if (st == DEFT_OK) st = check_capture(c);
    return st;
}

deft_status deft_op_check(deft_ctx *cx, const deft_op *op, deft_tensor *const *in, size_t n_in,
                          const void *attributes, const deft_check_options *options, char *report,
                          size_t n)
{
    if (!cx) return DEFT_E_ARG;
    op_user u = { op, attributes };
    df_check c = { .cx = cx,
                   .what = "op_check",
                   .fn = run_op,
                   .user = &u,
                   .n_in = n_in,
                   .n_out = deft_op_results(op),
                   .report = report,
                   .n = n };
    if (!op) {
        df_acts(cx, c.what, DF_SITE);
        return df_refuse(cx, DEFT_E_ARG, "op_check: the operator is NULL");
    }
    deft_status st = df_check_begin(&c, in, options, DF_SITE);
    if (st == DEFT_OK) st = check_op(&c);
    return df_check_end(&c, st);
}
