/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates of the parameters of an optimizer. They are elementwise records that share no value, so
 * the fuser makes one launch of them. Some numbers change from step to step: the rate and the bias
 * corrections. They are computed here in f64 and passed as arguments, which do not change the plan.
 * Computing them on the device would need one more launch.
 */
#include "nn/optim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct deft_optim {
    deft_nn *nn;
    deft_optim_options opt;                    /* its name is NULL */
    size_t n;                                  /* number of parameters */
    deft_tensor **p, **state[DF_OPTIM_STATES]; /* n tensors each; NULL for a state not needed */
    int64_t *steps;                            /* number of updates; nn owns it */
};

deft_optim_options deft_optim_defaults(deft_optim_kind kind)
{
    deft_optim_options o = { .size = sizeof o,
                             .kind = kind,
                             .beta1 = 0.9,
                             .beta2 = 0.999,
                             .eps = 1e-8,
                             .weight_decay = kind == DEFT_OPTIM_ADAMW ? 0.01 : 0,
                             .momentum_decay = 4e-3,
                             .square_decay = 0.8,
                             .least_magnitude = 1e-3,
                             .clip = 1 };
    if (kind == DEFT_OPTIM_RMSPROP || kind == DEFT_OPTIM_LION) o.beta2 = 0.99;
    if (kind == DEFT_OPTIM_ADADELTA) {
        o.beta2 = 0.9;
        o.eps = 1e-6;
    }
    if (kind == DEFT_OPTIM_ADAGRAD) o.eps = 1e-10;
    if (kind == DEFT_OPTIM_ADAFACTOR) o.eps = 0x1p-23;
    return o;
}

/* ---- creating ---- */

static deft_status check_options(deft_ctx *cx, const deft_optim_options *o)
{
    if (o->size < sizeof *o)
        return df_refuse(cx, DEFT_E_ARG,
                         "optim_create: the size of deft_optim_options is %zu, it must be "
                         "sizeof(deft_optim_options)",
                         o->size);
    if ((unsigned)o->kind > DEFT_OPTIM_ADAFACTOR)
        return df_refuse(cx, DEFT_E_ARG, "optim_create: %d is no optimizer", (int)o->kind);
    if (o->name && !*o->name) return df_refuse(cx, DEFT_E_ARG, "optim_create: an empty name");
    const bool is_sgd = o->kind == DEFT_OPTIM_SGD;
    const bool betas = o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1;
    if (!is_sgd && (!betas || !(o->eps >= 0)))
        return df_refuse(cx, DEFT_E_RANGE,
                         "optim_create: betas %g and %g are to be in [0, 1), eps %g at least 0",
                         o->beta1, o->beta2, o->eps);
    if (!(o->weight_decay >= 0) || !(o->momentum >= 0) || !(o->rate_decay >= 0) ||
        !(o->momentum_decay >= 0) || !(o->initial_sum >= 0))
        return df_refuse(
            cx, DEFT_E_RANGE,
            "optim_create: weight_decay %g, momentum %g, rate_decay %g, momentum_decay "
            "%g and initial_sum %g are to be at least 0",
            o->weight_decay, o->momentum, o->rate_decay, o->momentum_decay, o->initial_sum);
    if (!(o->average_decay >= 0 && o->average_decay < 1))
        return df_refuse(cx, DEFT_E_RANGE, "optim_create: average_decay %g is to be in [0, 1)",
                         o->average_decay);
    const bool is_adafactor = o->kind == DEFT_OPTIM_ADAFACTOR;
    if (is_adafactor && (!(o->square_decay >= 0) || !(o->least_magnitude >= 0) || !(o->clip > 0)))
        return df_refuse(cx, DEFT_E_RANGE,
                         "optim_create: square_decay %g and least_magnitude %g are to be at least "
                         "0, clip %g above 0",
                         o->square_decay, o->least_magnitude, o->clip);
    if (is_sgd && o->nesterov && o->momentum == 0)
        return df_refuse(cx, DEFT_E_ARG, "optim_create: nesterov needs momentum");
    return DEFT_OK;
}

/* The name of a state, or NULL when it is not needed. */
static const char *state_name(const deft_optim_options *o, int state)
{
    if (state < DF_OPTIM_RULE_STATES) return df_optim_state_name(o, state);
    if (state == DF_OPTIM_SUM) return o->accumulates ? "grad_sum" : NULL;
    return o->average_decay != 0 ? "average" : NULL;
}

static deft_tensor **tensors(deft_nn *nn, size_t n)
{
    deft_tensor **const list = df_mem_zalloc(nn->mem, (n + 1) * sizeof *list);
    if (!list) df_error(nn->cx, DEFT_E_MEMORY, "optim_create: no memory for %zu parameters", n);
    return list;
}

/* Adds a buffer for each parameter. Its name is the prefix, the name of the state and the name of
 * the parameter. */
static bool add_state(deft_optim *o, int state, const char *prefix)
{
    deft_nn *const nn = o->nn;
    const double start = state < DF_OPTIM_RULE_STATES ? df_optim_state_start(&o->opt, state) : 0;
    const deft_init init = { .kind = start != 0 ? DEFT_INIT_CONSTANT : DEFT_INIT_ZEROS,
                             .a = start };
    const char *const name = state_name(&o->opt, state);
    o->state[state] = tensors(nn, o->n);
    for (size_t i = 0, k = 0; o->state[state] && i < nn->parameters.n; i++) {
        const df_nn_entry *const e = &nn->list.at[nn->parameters.at[i]];
        if (!e->trainable) continue;
        deft_shape shape = deft_shape_get(e->t);
        if (state < DF_OPTIM_RULE_STATES && !df_optim_state_shape(&o->opt, state, &shape)) {
            k++;
            continue;
        }
        deft_tensor *const from = e->t;
        deft_tensor *const t = df_nn_add(nn, "optim_create", DF_NN_BUFFER, prefix, name, e->name,
                                         &shape, deft_dtype_of(e->t), init);
        if (!t || (state == DF_OPTIM_AVERAGE && !deft_assign(t, from))) return false;
        o->state[state][k++] = t;
    }
    return o->state[state] != NULL;
}

static bool optim_init(deft_optim *o, const char *name)
{
    deft_nn *const nn = o->nn;
    for (size_t i = 0; i < nn->parameters.n; i++)
        o->n += nn->list.at[nn->parameters.at[i]].trainable;
    o->p = tensors(nn, o->n);
    for (size_t i = 0, k = 0; o->p && i < nn->parameters.n; i++) {
        const df_nn_entry *const e = &nn->list.at[nn->parameters.at[i]];
        if (e->trainable) o->p[k++] = e->t;
    }
    const size_t size = strlen(name) + 2;
    char *const prefix = o->p ? df_mem_alloc(nn->mem, size) : NULL;
    if (!prefix) return df_error(nn->cx, DEFT_E_MEMORY, "optim_create: no memory for a name");
    snprintf(prefix, size, "%s.", name);
    o->steps = df_nn_own_number(nn, "optim_create", prefix, "step");
    bool ok = o->steps != NULL;
    for (int k = 0; k < DF_OPTIM_STATES && ok; k++)
        if (state_name(&o->opt, k)) ok = add_state(o, k, prefix);
    df_mem_free(nn->mem, prefix, size);
    return ok;
}

static deft_status optim_create(deft_nn *nn, const deft_optim_options *options, deft_optim **out)
{
    if (out) *out = NULL;
    if (!nn || !out) return DEFT_E_ARG;
    const deft_optim_options adamw = deft_optim_defaults(DEFT_OPTIM_ADAMW);
    if (!options) options = &adamw;
    df_acts(nn->cx, "optim_create", DF_SITE);
    deft_status st = df_may_act(nn->cx);
    if (st == DEFT_OK) st = check_options(nn->cx, options);
    if (st != DEFT_OK) return st;
    deft_optim *o = df_mem_zalloc(nn->mem, sizeof *o);
    if (!o) return df_refuse(nn->cx, DEFT_E_MEMORY, "optim_create: no memory");
    const df_nn_mark m = df_nn_mark_of(nn);
    o->nn = nn;
    o->opt = *options;
    o->opt.name = NULL;
    if (optim_init(o, options->name ? options->name : "optim")) {
        *out = o;
        return DEFT_OK;
    }
    df_nn_truncate(nn, m);
    deft_optim_destroy(&o);
    return df_deliver(nn->cx);
}

void deft_optim_destroy(deft_optim **o)
{
    if (!o || !*o) return;
    const df_mem *const mem = (*o)->nn->mem;
    const size_t size = ((*o)->n + 1) * sizeof(deft_tensor *);
    df_mem_free(mem, (*o)->p, size);
    for (int k = 0; k < DF_OPTIM_STATES; k++) df_mem_free(mem, (*o)->state[k], size);
    df_mem_free(mem, *o, sizeof **o);
    *o = NULL;
}

size_t deft_optim_n(const deft_optim *o)
{
    return o ? o->n : 0;
}

deft_tensor *const *deft_optim_parameters(const deft_optim *o)
{
    return o ? o->p : NULL;
}

deft_tensor *const *deft_optim_sums(const deft_optim *o)
{
    return o ? o->state[DF_OPTIM_SUM] : NULL;
}

deft_tensor *const *deft_optim_averages(const deft_optim *o)
{
    return o ? o->state[DF_OPTIM_AVERAGE] : NULL;
}

int64_t deft_optim_steps(const deft_optim *o)
{
    return o ? *o->steps : 0;
}

void deft_optim_set_steps(deft_optim *o, int64_t steps)
{
    if (o) *o->steps = steps;
}

/* ---- updates ---- */

/* A df_layer_number_fn, which each replay of a capture also calls (lazy/layer.h). */
static double number_value(const void *user, uint32_t which, int64_t steps, double rate)
{
    const deft_optim *const o = user;
    return df_optim_number_value(&o->opt, (df_optim_number)which, (double)(steps + 1), rate);
}

/* Records the numbers that the optimizer needs. The rate is a bare number. Returns false after a
 * mistake. */
static bool make_numbers(const deft_optim *o, deft_tensor *rate, deft_tensor *out[DF_OPTIM_NUMBERS])
{
    const df_layer_source from = { .what = "optim_step: the rate",
                                   .value = number_value,
                                   .user = o,
                                   .count = o->steps,
                                   .given = rate };
    for (uint32_t n = 0; n < DF_OPTIM_NUMBERS; n++) {
        out[n] = NULL;
        if (!df_optim_needs_number(&o->opt, (df_optim_number)n)) continue;
        out[n] = df_layer_number(o->nn->cx, &from, n);
        if (!out[n]) return false;
    }
    return true;
}

/* Assigns v, or keeps `to` as it is when only_if is false. */
static void optim_assign(deft_tensor *only_if, deft_tensor *to, deft_tensor *v)
{
    deft_assign(to, only_if ? deft_where(only_if, v, to) : v);
}

/* The update of parameter i. only_if: as of optim_step. */
static void update_parameter(const deft_optim *o, size_t i, deft_tensor *g,
                             deft_tensor *const numbers[DF_OPTIM_NUMBERS], deft_tensor *only_if)
{
    df_optim_update u = { .opt = &o->opt, .p = o->p[i], .g = g };
    const double decay = o->opt.weight_decay;
    if (decay != 0 && df_optim_adds_decay(&o->opt)) u.g = deft_add(g, deft_mul_f(u.p, decay));
    memcpy(u.number, numbers, sizeof u.number);
    for (int k = 0; k < DF_OPTIM_RULE_STATES; k++)
        if (o->state[k]) u.state[k] = o->state[k][i];
    df_optim_record(&u);
    for (int k = 0; k < DF_OPTIM_RULE_STATES; k++)
        if (u.state[k]) optim_assign(only_if, u.state[k], u.next_state[k]);
    optim_assign(only_if, u.p, u.next);
    if (!o->state[DF_OPTIM_AVERAGE]) return;
    deft_tensor *const average = o->state[DF_OPTIM_AVERAGE][i];
    optim_assign(only_if, average, deft_lerp_f(average, u.next, 1 - o->opt.average_decay));
}

/* Checks that a step is open, and that each gradient has the dtype and shape of its parameter. A
 * gradient may be NULL. Returns false after recording a mistake. A mistake about a gradient names
 * its index. */
static bool check_step_gradients(const deft_optim *o, const char *what, deft_tensor *const *grads)
{
    deft_ctx *const cx = o->nn->cx;
    if (!df_ctx_in_step(cx))
        return df_error(cx, DEFT_E_STATE,
                        "%s: no step is open: a failure could leave half of the update", what);
    for (size_t i = 0; i < o->n; i++) {
        const deft_tensor *const g = grads[i], *const p = o->p[i];
        if (!g) continue;
        const deft_shape a = deft_shape_get(g), b = deft_shape_get(p);
        if (a.rank == b.rank && !memcmp(a.dim, b.dim, a.rank * sizeof *a.dim) &&
            deft_dtype_of(g) == deft_dtype_of(p))
            continue;
        char of_g[DF_NN_TEXT], of_p[DF_NN_TEXT];
        return df_error(cx, DEFT_E_SHAPE, "%s: gradient %zu is %s, its parameter %s", what, i,
                        df_nn_text(g, of_g), df_nn_text(p, of_p));
    }
    return true;
}

/* Records one update. only_if may be NULL; otherwise it decides whether parameters and their state
 * change. In any case the sums become 0 and the update counts. */
static bool optim_step(deft_optim *o, deft_tensor *const *grads, deft_tensor *rate,
                       deft_tensor *only_if)
{
    if (!o || df_step_has_mistake(o->nn->cx)) return false;
    deft_ctx *const cx = o->nn->cx;
    deft_tensor *const *const sums = o->state[DF_OPTIM_SUM];
    if (!grads) grads = sums;
    if (!grads)
        return df_error(cx, DEFT_E_ARG, "optim_step: no gradients, and none are accumulated");
    deft_tensor *numbers[DF_OPTIM_NUMBERS];
    if (!check_step_gradients(o, "optim_step", grads) || !make_numbers(o, rate, numbers))
        return false;
    for (size_t i = 0; i < o->n; i++) {
        if (grads[i]) update_parameter(o, i, grads[i], numbers, only_if);
        if (sums) deft_assign_f(sums[i], 0);
    }
    if (df_step_has_mistake(cx)) return false;
    df_layer_count(cx, o->steps);
    return true;
}

static bool optim_accumulate(deft_optim *o, deft_tensor *const *grads, double weight)
{
    if (!o || df_step_has_mistake(o->nn->cx)) return false;
    deft_ctx *const cx = o->nn->cx;
    deft_tensor *const *const sums = o->state[DF_OPTIM_SUM];
    if (!sums || !grads)
        return df_error(cx, DEFT_E_ARG, "optim_accumulate: %s",
                        grads ? "the optimizer was made without options.accumulates"
                              : "no gradients");
    if (!check_step_gradients(o, "optim_accumulate", grads)) return false;
    for (size_t i = 0; i < o->n; i++)
        if (grads[i]) deft_assign(sums[i], deft_add(sums[i], deft_mul_f(grads[i], weight)));
    return !df_step_has_mistake(cx);
}

/* ---- clipping ---- */

/* The sum of the squares of all elements. NULL when there is no gradient, or after a mistake. */
static deft_tensor *squares(deft_tensor *const *grads, size_t n)
{
    const deft_axes all = { .n = UINT32_MAX };
    deft_tensor *total = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!grads[i]) continue;
        deft_tensor *const one = deft_sum(deft_square(grads[i]), all, 0);
        total = total ? deft_add(total, one) : one;
        if (!total) return NULL;
    }
    return total;
}

static bool clip_grad_norm(deft_tensor **grads, size_t n, double max_norm, deft_tensor **norm)
{
    if (norm) *norm = NULL;
    deft_tensor *const total = grads ? squares(grads, n) : NULL;
    if (!total) return false;
    deft_ctx *const cx = deft_ctx_of(total);
    const uint32_t before = df_mistakes(cx);
    if (!(max_norm > 0))
        return df_error(cx, DEFT_E_RANGE, "clip_grad_norm: max_norm is %g", max_norm);
    deft_tensor *const root = deft_sqrt(total);
    deft_tensor *const ratio = deft_div(deft_num(cx, max_norm), deft_add_f(root, 1e-6));
    deft_tensor *const scale = deft_minimum_f(ratio, 1);
    for (size_t i = 0; i < n; i++)
        if (grads[i]) grads[i] = deft_mul(grads[i], deft_cast(scale, deft_dtype_of(grads[i])));
    if (norm) *norm = root;
    return df_mistakes(cx) == before;
}

static bool clip_grad_value(deft_ctx *cx, deft_tensor **grads, size_t n, double limit)
{
    if (!cx) return false;
    const uint32_t before = df_mistakes(cx);
    if (!(limit > 0)) return df_error(cx, DEFT_E_RANGE, "clip_grad_value: the limit is %g", limit);
    for (size_t i = 0; i < n; i++)
        if (grads[i]) grads[i] = deft_clamp(grads[i], -limit, limit);
    return df_mistakes(cx) == before;
}

/* ---- public functions, with the line of their caller as call site ---- */

deft_status deft_optim_create(deft_nn *nn, const deft_optim_options *options, deft_optim **out)
{
    DF_LAYER_RETURN(deft_status, nn ? nn->cx : NULL, optim_create(nn, options, out));
}

bool deft_optim_step(deft_optim *o, deft_tensor *const *grads, double rate)
{
    if (!o) return false;
    DF_LAYER_RETURN(bool, o->nn->cx, optim_step(o, grads, deft_num(o->nn->cx, rate), NULL));
}

bool deft_optim_step_t(deft_optim *o, deft_tensor *const *grads, deft_tensor *rate)
{
    if (!o || !rate) return false; /* a NULL rate is the result of an earlier mistake */
    DF_LAYER_RETURN(bool, o->nn->cx, optim_step(o, grads, rate, NULL));
}

bool deft_optim_step_if(deft_optim *o, deft_tensor *const *grads, double rate,
                        deft_tensor *condition)
{
    if (!o || !condition) return false;
    DF_LAYER_RETURN(bool, o->nn->cx, optim_step(o, grads, deft_num(o->nn->cx, rate), condition));
}

bool deft_optim_step_if_t(deft_optim *o, deft_tensor *const *grads, deft_tensor *rate,
                          deft_tensor *condition)
{
    if (!o || !rate || !condition) return false;
    DF_LAYER_RETURN(bool, o->nn->cx, optim_step(o, grads, rate, condition));
}

bool deft_optim_accumulate(deft_optim *o, deft_tensor *const *grads, double weight)
{
    DF_LAYER_RETURN(bool, o ? o->nn->cx : NULL, optim_accumulate(o, grads, weight));
}

static deft_ctx *context_of_any(deft_tensor *const *grads, size_t n)
{
    size_t i = 0;
    while (grads && i < n && !grads[i]) i++;
    return grads && i < n ? deft_ctx_of(grads[i]) : NULL;
}

bool deft_clip_grad_value(deft_tensor **grads, size_t n, double limit)
{
    deft_ctx *const cx = context_of_any(grads, n);
    DF_LAYER_RETURN(bool, cx, clip_grad_value(cx, grads, n, limit));
}

bool deft_clip_grad_norm(deft_tensor **grads, size_t n, double max_norm, deft_tensor **norm)
{
    deft_ctx *const cx = context_of_any(grads, n);
    DF_LAYER_RETURN(bool, cx, clip_grad_norm(grads, n, max_norm, norm));
}
