/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates of the parameters of an optimizer. They are elementwise records that share no value, so
 * the fuser makes one launch of them. Some numbers change from step to step: the rate and the bias
 * corrections. They are computed here in f64 and passed as arguments, which do not change the plan.
 * Computing them on the device would need one more launch.
 */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The states that an update may need for each parameter. */
enum { MEAN, SQUARES, SUM, N_STATES };

static const char *const state_names[N_STATES] = { "exp_avg", "exp_avg_sq", "grad_sum" };

struct deft_optim {
    deft_nn *nn;
    deft_optim_options opt;             /* its name is NULL */
    size_t n;                           /* number of parameters */
    deft_tensor **p, **state[N_STATES]; /* n tensors each; NULL for a state that is not needed */
    int64_t *steps;                     /* number of updates; nn owns it */
};

deft_optim_options deft_optim_defaults(deft_optim_kind kind)
{
    return (deft_optim_options){ .size = sizeof(deft_optim_options),
                                 .kind = kind,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .weight_decay = kind == DEFT_OPTIM_ADAMW ? 0.01 : 0 };
}

/* ---- creating ---- */

static deft_status check_options(deft_ctx *cx, const deft_optim_options *o)
{
    if (o->size < sizeof *o)
        return df_refuse(cx, DEFT_E_ARG,
                         "optim_create: the size of deft_optim_options is %zu, it must be "
                         "sizeof(deft_optim_options)",
                         o->size);
    if ((unsigned)o->kind > DEFT_OPTIM_ADAMW)
        return df_refuse(cx, DEFT_E_ARG, "optim_create: %d is no optimizer", (int)o->kind);
    if (o->name && !*o->name) return df_refuse(cx, DEFT_E_ARG, "optim_create: an empty name");
    const bool is_sgd = o->kind == DEFT_OPTIM_SGD;
    const bool betas = o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1;
    if (!is_sgd && (!betas || !(o->eps >= 0)))
        return df_refuse(cx, DEFT_E_RANGE,
                         "optim_create: betas %g and %g are to be in [0, 1), eps %g at least 0",
                         o->beta1, o->beta2, o->eps);
    if (!(o->weight_decay >= 0) || (is_sgd && !(o->momentum >= 0)))
        return df_refuse(cx, DEFT_E_RANGE,
                         "optim_create: weight_decay %g and momentum %g are to be at least 0",
                         o->weight_decay, o->momentum);
    if (is_sgd && o->nesterov && o->momentum == 0)
        return df_refuse(cx, DEFT_E_ARG, "optim_create: nesterov needs momentum");
    return DEFT_OK;
}

static bool needs_state(const deft_optim_options *o, int state)
{
    switch (state) {
    case MEAN: return o->kind != DEFT_OPTIM_SGD || o->momentum != 0;
    case SQUARES: return o->kind != DEFT_OPTIM_SGD;
    }
    return o->accumulates;
}

static deft_tensor **tensors(deft_nn *nn, size_t n)
{
    deft_tensor **const list = df_mem_zalloc(nn->mem, (n + 1) * sizeof *list);
    if (!list) df_error(nn->cx, DEFT_E_MEMORY, "optim_create: no memory for %zu parameters", n);
    return list;
}

/* Adds a buffer of zeros for each parameter. Its name is the prefix, the name of the state and the
 * name of the parameter. */
static bool add_state(deft_optim *o, int state, const char *prefix)
{
    deft_nn *const nn = o->nn;
    const deft_init zeros = { .kind = DEFT_INIT_ZEROS };
    const char *const name =
        state == MEAN && o->opt.kind == DEFT_OPTIM_SGD ? "momentum_buffer" : state_names[state];
    o->state[state] = tensors(nn, o->n);
    for (size_t i = 0, k = 0; o->state[state] && i < nn->parameters.n; i++) {
        const df_nn_entry *const e = &nn->list.at[nn->parameters.at[i]];
        if (!e->trainable) continue;
        const deft_shape shape = deft_shape_get(e->t);
        deft_tensor *const t = df_nn_add(nn, "optim_create", DF_NN_BUFFER, prefix, name, e->name,
                                         &shape, deft_dtype_of(e->t), zeros);
        if (!t) return false;
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
    for (int k = 0; k < N_STATES && ok; k++)
        if (needs_state(&o->opt, k)) ok = add_state(o, k, prefix);
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
    for (int k = 0; k < N_STATES; k++) df_mem_free(mem, (*o)->state[k], size);
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
    return o ? o->state[SUM] : NULL;
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

/* The numbers that change from step to step. t is the number of the update, from 1. */
typedef enum number {
    RATE,
    KEEP,  /* for ADAMW: the factor 1 - rate * weight_decay of the parameter */
    SCALE, /* rate * root / (1 - beta1^t), where root = sqrt(1 - beta2^t) */
    EPS,   /* eps * root */
    N_NUMBERS
} number;

typedef struct numbers {
    deft_tensor *at[N_NUMBERS]; /* bare numbers, as of deft_num; NULL: not needed */
    /* A bool of shape [] that decides whether parameters and states change; NULL: they do. */
    deft_tensor *only_if;
} numbers;

/* A df_layer_number_fn, which each replay of a capture also calls (lazy/layer.h). */
static double optim_number_value(const void *user, uint32_t which, int64_t steps, double rate)
{
    const deft_optim *const o = user;
    const double t = (double)(steps + 1);
    switch ((number)which) {
    case RATE: return rate;
    case KEEP: return 1 - rate * o->opt.weight_decay;
    case SCALE: return rate * sqrt(1 - pow(o->opt.beta2, t)) / (1 - pow(o->opt.beta1, t));
    case EPS: return o->opt.eps * sqrt(1 - pow(o->opt.beta2, t));
    case N_NUMBERS: break;
    }
    return 0;
}

static bool needs_number(const deft_optim *o, number n)
{
    switch (n) {
    case RATE: return o->opt.kind == DEFT_OPTIM_SGD;
    case KEEP: return o->opt.kind == DEFT_OPTIM_ADAMW && o->opt.weight_decay != 0;
    case SCALE:
    case EPS: return o->opt.kind != DEFT_OPTIM_SGD;
    case N_NUMBERS: break;
    }
    return false;
}

/* Records the numbers that the optimizer needs. The rate is a bare number. Returns false after a
 * mistake. */
static bool make_numbers(const deft_optim *o, deft_tensor *rate, numbers *out)
{
    const df_layer_source from = { .what = "optim_step: the rate",
                                   .value = optim_number_value,
                                   .user = o,
                                   .count = o->steps,
                                   .given = rate };
    for (number n = RATE; n < N_NUMBERS; n++) {
        if (!needs_number(o, n)) continue;
        out->at[n] = df_layer_number(o->nn->cx, &from, n);
        if (!out->at[n]) return false;
    }
    return true;
}

/* Assigns v, or keeps `to` as it is when only_if is false. */
static void optim_assign(const numbers *k, deft_tensor *to, deft_tensor *v)
{
    deft_assign(to, k->only_if ? deft_where(k->only_if, v, to) : v);
}

/* The gradient with weight decay, for optimizers that add the decay to the gradient. */
static deft_tensor *decayed(const deft_optim *o, deft_tensor *p, deft_tensor *g)
{
    const double decay = o->opt.weight_decay;
    return decay != 0 ? deft_add(g, deft_mul_f(p, decay)) : g;
}

static void update_sgd(const deft_optim *o, size_t i, deft_tensor *g, const numbers *k)
{
    deft_tensor *const p = o->p[i];
    g = decayed(o, p, g);
    if (o->opt.momentum != 0) {
        deft_tensor *const v = o->state[MEAN][i];
        deft_tensor *const next = deft_add(deft_mul_f(v, o->opt.momentum), g);
        optim_assign(k, v, next);
        g = o->opt.nesterov ? deft_add(g, deft_mul_f(next, o->opt.momentum)) : next;
    }
    optim_assign(k, p, deft_sub(p, deft_mul(g, k->at[RATE])));
}

static void update_adam(const deft_optim *o, size_t i, deft_tensor *g, const numbers *k)
{
    deft_tensor *const p = o->p[i], *const m = o->state[MEAN][i], *const v = o->state[SQUARES][i];
    const bool is_adamw = o->opt.kind == DEFT_OPTIM_ADAMW;
    deft_tensor *const from = k->at[KEEP] ? deft_mul(p, k->at[KEEP]) : p;
    if (!is_adamw) g = decayed(o, p, g);
    deft_tensor *const mean = deft_lerp_f(m, g, 1 - o->opt.beta1);
    deft_tensor *const squares =
        deft_add(deft_mul_f(v, o->opt.beta2), deft_mul_f(deft_square(g), 1 - o->opt.beta2));
    optim_assign(k, m, mean);
    optim_assign(k, v, squares);
    deft_tensor *const root = deft_add(deft_sqrt(squares), k->at[EPS]);
    optim_assign(k, p, deft_sub(from, deft_mul(deft_div(mean, root), k->at[SCALE])));
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
    deft_tensor *const *const sums = o->state[SUM];
    if (!grads) grads = sums;
    if (!grads)
        return df_error(cx, DEFT_E_ARG, "optim_step: no gradients, and none are accumulated");
    numbers k = { .only_if = only_if };
    if (!check_step_gradients(o, "optim_step", grads) || !make_numbers(o, rate, &k)) return false;
    for (size_t i = 0; i < o->n; i++) {
        if (grads[i] && o->opt.kind == DEFT_OPTIM_SGD) update_sgd(o, i, grads[i], &k);
        if (grads[i] && o->opt.kind != DEFT_OPTIM_SGD) update_adam(o, i, grads[i], &k);
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
    deft_tensor *const *const sums = o->state[SUM];
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

bool deft_clip_grad_norm(deft_tensor **grads, size_t n, double max_norm, deft_tensor **norm)
{
    size_t i = 0;
    while (grads && i < n && !grads[i]) i++;
    deft_ctx *const cx = grads && i < n ? deft_ctx_of(grads[i]) : NULL;
    DF_LAYER_RETURN(bool, cx, clip_grad_norm(grads, n, max_norm, norm));
}
