/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients against finite differences. deft/check.h has the formula.
 */
#include "check/check.h"

#include <math.h>
#include <stdio.h>

/* What is read of one direction. */
enum { SLOPE, REVERSE, MAGNITUDE, FORWARD, REVERSE_OF_V, MAGNITUDE_OF_V, RESULTS, N_NUMBERS };

enum { WEIGHTS = 1 << 20, SECOND = 2 << 20 }; /* streams of drawn numbers */

static deft_tensor *as_f64(deft_tensor *t)
{
    return deft_cast(t, DEFT_F64);
}

static deft_tensor *sum_of(deft_tensor *t)
{
    return deft_sum(t, DEFT_ALL_AXES, false);
}

/* L, and in *size the sum of |weight result|. NULL with the fault noted. */
static deft_tensor *weighted_sum_of(df_check *c, const char *name, deft_tensor *const *in,
                                    deft_tensor **size)
{
    deft_tensor *out[DF_CHECK_INPUTS];
    deft_tensor *loss = deft_zeros(c->cx, DEFT_SHAPE(), DEFT_F64);
    *size = loss;
    if (!df_check_run(c, name, "", in, out)) return NULL;
    for (size_t k = 0; k < c->n_out; k++) {
        const deft_dtype t = deft_dtype_of(out[k]);
        if (t != DEFT_F32 && t != DEFT_F64 && t != DEFT_F16 && t != DEFT_BF16) continue;
        deft_tensor *const term =
            deft_mul(as_f64(out[k]), df_check_draw(c, WEIGHTS + k, deft_shape_get(out[k])));
        loss = deft_add(loss, sum_of(term));
        *size = deft_add(*size, sum_of(deft_abs(term)));
    }
    return loss;
}

/* The sum over inputs of <gradient of L, u>, with drawn u. */
static deft_tensor *slope_of_all(df_check *c, deft_tensor *const *in, deft_tensor **size)
{
    deft_tensor *const loss = weighted_sum_of(c, "second", in, size);
    deft_tensor *sum = deft_zeros(c->cx, DEFT_SHAPE(), DEFT_F64);
    const deft_grad_options zero = { .size = sizeof zero, .unused_is_zero = true };
    *size = sum;
    for (size_t j = 0; j < c->n_in && loss; j++) {
        deft_tensor *g;
        if (!df_check_moves(in[j])) continue;
        if (!deft_grad(&loss, NULL, 1, &in[j], 1, &zero, &g)) return NULL;
        deft_tensor *const term =
            deft_mul(as_f64(g), df_check_draw(c, SECOND + j, deft_shape_get(in[j])));
        sum = deft_add(sum, sum_of(term));
        *size = deft_add(*size, sum_of(deft_abs(term)));
    }
    return loss ? sum : NULL;
}

typedef deft_tensor *(*df_check_value_fn)(df_check *c, deft_tensor *const *in, deft_tensor **size);

static deft_tensor *first_value(df_check *c, deft_tensor *const *in, deft_tensor **size)
{
    return weighted_sum_of(c, "reverse", in, size);
}

/* What is checked of one direction of one input: the gradient of `value`, under the name `name`. */
typedef struct direction {
    const char *name;
    df_check_value_fn value;
    size_t i;
    uint32_t number;
    bool has_forward;
} direction;

static double step_of(const df_check *c, bool is_f64)
{
    return c->options.step > 0 ? c->options.step : is_f64 ? 1e-5 : 5e-3;
}

/* Records the numbers of a direction. Returns false when a call has failed. */
static bool record_direction(df_check *c, const direction *d, deft_tensor **number)
{
    const bool is_f64 = deft_dtype_of(c->in[d->i]) == DEFT_F64;
    const deft_dtype dtype = is_f64 ? DEFT_F64 : DEFT_F32;
    const deft_grad_options zero = { .size = sizeof zero, .unused_is_zero = true };
    deft_tensor *in[DF_CHECK_INPUTS], *size[3], *g, *forward;
    for (size_t j = 0; j < c->n_in; j++) in[j] = c->in[j];
    deft_tensor *const x = in[d->i];
    deft_tensor *const v = df_check_draw(c, d->i * 64 + d->number, deft_shape_get(x));
    deft_tensor *const moved = deft_mul_f(v, step_of(c, is_f64));
    deft_tensor *const after = deft_cast(deft_add(as_f64(x), moved), dtype);
    deft_tensor *const before = deft_cast(deft_sub(as_f64(x), moved), dtype);
    in[d->i] = after;
    deft_tensor *const high = d->value(c, in, &size[0]);
    in[d->i] = before;
    deft_tensor *const low = high ? d->value(c, in, &size[1]) : NULL;
    in[d->i] = x;
    deft_tensor *const at = low ? d->value(c, in, &size[2]) : NULL;
    if (!at || !deft_grad(&at, NULL, 1, &x, 1, &zero, &g)) return false;
    deft_tensor *const way = deft_mul(as_f64(g), deft_sub(as_f64(after), as_f64(before)));
    deft_tensor *const along = deft_mul(as_f64(g), v);
    deft_tensor *const tangent = deft_cast(v, dtype);
    number[SLOPE] = deft_sub(high, low);
    number[REVERSE] = sum_of(way);
    number[MAGNITUDE] = sum_of(deft_abs(way));
    number[REVERSE_OF_V] = sum_of(along);
    number[MAGNITUDE_OF_V] = sum_of(deft_abs(along));
    number[FORWARD] = number[REVERSE_OF_V];
    number[RESULTS] = size[2];
    if (!d->has_forward) return true;
    if (!deft_jvp(&at, 1, &x, &tangent, 1, &zero, &forward)) return false;
    number[FORWARD] = forward;
    return true;
}

/* Whether a is not near b. NaN is near nothing but NaN. */
static bool is_far(double a, double b, double tolerance, double noise)
{
    if (isnan(a) && isnan(b)) return false;
    return !(fabs(a - b) <= tolerance + noise);
}

static void judge_direction(df_check *c, const direction *d, const double *v)
{
    const bool is_f64 = deft_dtype_of(c->in[d->i]) == DEFT_F64;
    const double eps = is_f64 ? 2.220446049250313e-16 : 1.1920928955078125e-7;
    const double given = c->options.tolerance, tolerance = given > 0 ? given : is_f64 ? 1e-6 : 2e-3;
    const double noise = 64 * eps * v[RESULTS];
    if (is_far(v[SLOPE], v[REVERSE], tolerance * (fabs(v[SLOPE]) + v[MAGNITUDE]), noise))
        df_check_fault(c, d->name,
                       "input %zu, direction %u: the gradient says %.9g, the difference is %.9g "
                       "(step %g, tolerance %g)",
                       d->i, d->number, v[REVERSE], v[SLOPE], step_of(c, is_f64), tolerance);
    if (is_far(v[FORWARD], v[REVERSE_OF_V], tolerance * v[MAGNITUDE_OF_V], 0))
        df_check_fault(c, "forward",
                       "input %zu, direction %u: forward mode says %.9g, the gradient says %.9g "
                       "(tolerance %g)",
                       d->i, d->number, v[FORWARD], v[REVERSE_OF_V], tolerance);
}

static deft_status check_direction(df_check *c, const direction *d)
{
    deft_tensor *number[N_NUMBERS] = { NULL };
    double v[N_NUMBERS];
    char where[48];
    const uint32_t before = df_mistakes(c->cx), faults = c->n_faults;
    const deft_scope s = deft_scope_begin(c->cx);
    deft_status st = DEFT_OK;
    (void)snprintf(where, sizeof where, "input %zu: ", d->i);
    if (record_direction(c, d, number)) {
        deft_tensor *const all = deft_stack(number, N_NUMBERS, 0);
        st = deft_read(all, DEFT_F64, v, sizeof v);
        if (st == DEFT_OK) judge_direction(c, d, v);
    } else if (c->n_faults == faults) {
        (void)df_check_mistake(c, before, d->name, where);
    }
    const deft_status end = deft_scope_end(s);
    return st == DEFT_OK ? end : st;
}

deft_status df_check_gradients(df_check *c)
{
    deft_status st = DEFT_OK;
    for (int order = 1; order <= (c->options.no_second ? 1 : 2); order++) {
        if (order == 2 && c->n_faults) break; /* they would be the same ones once more */
        for (size_t i = 0; i < c->n_in; i++) {
            const uint32_t faults = c->n_faults;
            for (uint32_t k = 0; k < c->options.directions && df_check_moves(c->in[i]); k++) {
                const direction d = { .name = order == 1 ? "reverse" : "second",
                                      .value = order == 1 ? first_value : slope_of_all,
                                      .i = i,
                                      .number = k,
                                      .has_forward = order == 1 };
                if (st == DEFT_OK && c->n_faults == faults) st = check_direction(c, &d);
            }
        }
    }
    return st;
}

deft_status deft_grad_check(deft_ctx *cx, deft_body_fn fn, void *user, deft_tensor *const *in,
                            size_t n_in, size_t n_out, const deft_check_options *options,
                            char *report, size_t n)
{
    if (!cx) return DEFT_E_ARG;
    df_check c = { .cx = cx,
                   .what = "grad_check",
                   .fn = fn,
                   .user = user,
                   .n_in = n_in,
                   .n_out = n_out,
                   .report = report,
                   .n = n };
    deft_status st = df_check_begin(&c, in, options, DF_SITE);
    if (st == DEFT_OK && !fn) st = df_refuse(cx, DEFT_E_ARG, "grad_check: the function is NULL");
    bool moves = false;
    for (size_t i = 0; i < c.n_in; i++) moves = moves || df_check_moves(c.in[i]);
    if (st == DEFT_OK && !moves)
        st = df_refuse(cx, DEFT_E_DTYPE, "grad_check: none of %zu inputs is f32 or f64", c.n_in);
    if (st == DEFT_OK) st = df_check_gradients(&c);
    return df_check_end(&c, st);
}
