/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of optimizers, in the forms of PyTorch. Bias corrections are numbers, which are
 * computed in f64 for each step (df_optim_number_value). So an update is a few elementwise records
 * for each parameter.
 */
#include "nn/optim.h"

#include <math.h>

/* ---- states ---- */

/* The states of each kind. A name with ? needs an option, which has_state looks at. */
static const char *const names[][DF_OPTIM_RULE_STATES] = {
    [DEFT_OPTIM_SGD] = { "momentum_buffer", NULL, NULL },
    [DEFT_OPTIM_ADAM] = { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" },
    [DEFT_OPTIM_ADAMW] = { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" },
    [DEFT_OPTIM_RMSPROP] = { "momentum_buffer", "square_avg", "grad_avg" },
    [DEFT_OPTIM_ADAGRAD] = { NULL, "sum", NULL },
    [DEFT_OPTIM_ADADELTA] = { "acc_delta", "square_avg", NULL },
    [DEFT_OPTIM_ADAMAX] = { "exp_avg", "exp_inf", NULL },
    [DEFT_OPTIM_NADAM] = { "exp_avg", "exp_avg_sq", NULL },
    [DEFT_OPTIM_RADAM] = { "exp_avg", "exp_avg_sq", NULL },
    [DEFT_OPTIM_LION] = { "exp_avg", NULL, NULL },
    [DEFT_OPTIM_ADAFACTOR] = { "row_var", "col_var", "variance" },
};

const char *df_optim_state_name(const deft_optim_options *o, int i)
{
    const bool has_momentum = o->kind == DEFT_OPTIM_SGD || o->kind == DEFT_OPTIM_RMSPROP;
    if (i == 0 && has_momentum && o->momentum == 0) return NULL;
    const bool is_rmsprop = o->kind == DEFT_OPTIM_RMSPROP;
    const bool is_adam = o->kind == DEFT_OPTIM_ADAM || o->kind == DEFT_OPTIM_ADAMW;
    if (i == 2 && ((is_rmsprop && !o->centered) || (is_adam && !o->amsgrad))) return NULL;
    return names[o->kind][i];
}

bool df_optim_state_shape(const deft_optim_options *o, int i, deft_shape *s)
{
    if (o->kind != DEFT_OPTIM_ADAFACTOR) return true;
    if (s->rank < 2) return i == 2;
    if (i < 2) s->dim[s->rank - 1 - (uint32_t)i] = 1; /* means of rows, and of columns */
    return i < 2;
}

double df_optim_state_start(const deft_optim_options *o, int i)
{
    return o->kind == DEFT_OPTIM_ADAGRAD && i == 1 ? o->initial_sum : 0;
}

/* ---- numbers ---- */

/* The product over all steps up to t of NAdam's decay of the mean. It soon is so small that 1 minus
 * it is 1. */
static double nadam_decay(const deft_optim_options *o, double t)
{
    return o->beta1 * (1 - 0.5 * pow(0.96, t * o->momentum_decay));
}

static double nadam_product(const deft_optim_options *o, double t)
{
    double product = 1;
    for (double i = 1; i <= t && product > 1e-18; i++) product *= nadam_decay(o, i);
    return product;
}

/* RAdam's factor of the root at step t. 0: the variance is not known well enough. */
static double radam_factor(const deft_optim_options *o, double t)
{
    const double power = pow(o->beta2, t), most = 2 / (1 - o->beta2) - 1;
    const double rho = most - 2 * t * power / (1 - power);
    if (!(rho > 5)) return 0;
    return sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho)) * sqrt(1 - power);
}

bool df_optim_adds_decay(const deft_optim_options *o)
{
    return o->kind != DEFT_OPTIM_ADAMW && o->kind != DEFT_OPTIM_LION &&
           o->kind != DEFT_OPTIM_ADAFACTOR;
}

/* The numbers of each kind beside KEEP, as bits. */
enum {
    A_RATE = 1 << DF_OPTIM_RATE,
    A_SCALE = 1 << DF_OPTIM_SCALE,
    AN_EPS = 1 << DF_OPTIM_EPS,
    A_SECOND = 1 << DF_OPTIM_SECOND
};

static const unsigned numbers_of[] = {
    [DEFT_OPTIM_SGD] = A_RATE,
    [DEFT_OPTIM_ADAM] = A_SCALE | AN_EPS,
    [DEFT_OPTIM_ADAMW] = A_SCALE | AN_EPS,
    [DEFT_OPTIM_RMSPROP] = A_RATE,
    [DEFT_OPTIM_ADAGRAD] = A_RATE,
    [DEFT_OPTIM_ADADELTA] = A_RATE,
    [DEFT_OPTIM_ADAMAX] = A_SCALE,
    [DEFT_OPTIM_NADAM] = A_SCALE | AN_EPS | A_SECOND,
    [DEFT_OPTIM_RADAM] = A_SCALE | A_SECOND,
    [DEFT_OPTIM_LION] = A_RATE,
    [DEFT_OPTIM_ADAFACTOR] = A_RATE | A_SECOND,
};

bool df_optim_needs_number(const deft_optim_options *o, df_optim_number n)
{
    if (n == DF_OPTIM_KEEP) return !df_optim_adds_decay(o) && o->weight_decay != 0;
    return numbers_of[o->kind] >> n & 1;
}

/* The factor of the mean of gradients. */
static double scale_value(const deft_optim_options *o, double t, double rate)
{
    const double root = sqrt(1 - pow(o->beta2, t)), mean = 1 - pow(o->beta1, t);
    if (o->kind == DEFT_OPTIM_ADAMAX) return rate / mean;
    if (o->kind == DEFT_OPTIM_RADAM) return rate * radam_factor(o, t) / mean;
    if (o->kind != DEFT_OPTIM_NADAM) return rate * root / mean;
    const double next = nadam_decay(o, t + 1);
    return rate * next / (1 - nadam_product(o, t) * next) * root;
}

/* NAdam: the factor of the gradient, over the root. RAdam: that of the mean, without a root.
 * Adafactor: the weight of the new squares in their mean. */
static double second_value(const deft_optim_options *o, double t, double rate)
{
    if (o->kind == DEFT_OPTIM_ADAFACTOR) return pow(t, -o->square_decay);
    if (o->kind == DEFT_OPTIM_RADAM)
        return radam_factor(o, t) > 0 ? 0 : rate / (1 - pow(o->beta1, t));
    return rate * (1 - nadam_decay(o, t)) / (1 - nadam_product(o, t)) * sqrt(1 - pow(o->beta2, t));
}

double df_optim_number_value(const deft_optim_options *o, df_optim_number n, double t, double rate)
{
    switch (n) {
    case DF_OPTIM_RATE:
        if (o->kind == DEFT_OPTIM_ADAFACTOR) return fmin(rate, 1 / sqrt(t));
        return o->kind == DEFT_OPTIM_ADAGRAD ? rate / (1 + (t - 1) * o->rate_decay) : rate;
    case DF_OPTIM_KEEP: return 1 - rate * o->weight_decay;
    case DF_OPTIM_SCALE: return scale_value(o, t, rate);
    case DF_OPTIM_EPS: return o->eps * sqrt(1 - pow(o->beta2, t));
    case DF_OPTIM_SECOND: return second_value(o, t, rate);
    case DF_OPTIM_NUMBERS: break;
    }
    return 0;
}

/* ---- updates ---- */

/* decay * s + (1 - decay) * square(of) */
static deft_tensor *mean_of_squares(deft_tensor *s, deft_tensor *of, double decay)
{
    return deft_add(deft_mul_f(s, decay), deft_mul_f(deft_square(of), 1 - decay));
}

/* The parameter less `step`, with a weight decay of its own. */
static void move(df_optim_update *u, deft_tensor *step)
{
    deft_tensor *const keep = u->number[DF_OPTIM_KEEP];
    u->next = deft_sub(keep ? deft_mul(u->p, keep) : u->p, step);
}

static void record_sgd(df_optim_update *u)
{
    deft_tensor *g = u->g;
    if (u->state[0]) {
        u->next_state[0] = deft_add(deft_mul_f(u->state[0], u->opt->momentum), g);
        g = u->opt->nesterov ? deft_add(g, deft_mul_f(u->next_state[0], u->opt->momentum))
                             : u->next_state[0];
    }
    move(u, deft_mul(g, u->number[DF_OPTIM_RATE]));
}

/* ADAM, ADAMW, NADAM and RADAM: the means of gradients and of their squares. */
static void record_adam(df_optim_update *u)
{
    const deft_optim_options *const o = u->opt;
    deft_tensor *const keep = u->number[DF_OPTIM_KEEP];
    deft_tensor *const from = keep ? deft_mul(u->p, keep) : u->p;
    deft_tensor *const mean = deft_lerp_f(u->state[0], u->g, 1 - o->beta1);
    deft_tensor *squares = mean_of_squares(u->state[1], u->g, o->beta2);
    u->next_state[0] = mean;
    u->next_state[1] = squares;
    if (u->state[2]) squares = u->next_state[2] = deft_maximum(u->state[2], squares);
    deft_tensor *const scale = u->number[DF_OPTIM_SCALE], *const second =
                                                              u->number[DF_OPTIM_SECOND];
    deft_tensor *const root = deft_sqrt(squares);
    if (o->kind == DEFT_OPTIM_RADAM) {
        deft_tensor *const by_root = deft_div(deft_mul(mean, scale), deft_add_f(root, o->eps));
        u->next = deft_sub(from, deft_add(by_root, deft_mul(mean, second)));
        return;
    }
    deft_tensor *const divisor = deft_add(root, u->number[DF_OPTIM_EPS]);
    u->next = deft_sub(from, deft_mul(deft_div(mean, divisor), scale));
    if (second) u->next = deft_sub(u->next, deft_mul(deft_div(u->g, divisor), second));
}

static void record_rmsprop(df_optim_update *u)
{
    const deft_optim_options *const o = u->opt;
    deft_tensor *squares = u->next_state[1] = mean_of_squares(u->state[1], u->g, o->beta2);
    if (u->state[2]) {
        u->next_state[2] = deft_lerp_f(u->state[2], u->g, 1 - o->beta2);
        squares = deft_sub(squares, deft_square(u->next_state[2]));
    }
    deft_tensor *step = deft_div(u->g, deft_add_f(deft_sqrt(squares), o->eps));
    if (u->state[0]) step = u->next_state[0] = deft_add(deft_mul_f(u->state[0], o->momentum), step);
    move(u, deft_mul(step, u->number[DF_OPTIM_RATE]));
}

static void record_adagrad(df_optim_update *u)
{
    u->next_state[1] = deft_add(u->state[1], deft_square(u->g));
    deft_tensor *const root = deft_add_f(deft_sqrt(u->next_state[1]), u->opt->eps);
    move(u, deft_mul(deft_div(u->g, root), u->number[DF_OPTIM_RATE]));
}

static void record_adadelta(df_optim_update *u)
{
    const deft_optim_options *const o = u->opt;
    u->next_state[1] = mean_of_squares(u->state[1], u->g, o->beta2);
    deft_tensor *const root = deft_sqrt(deft_add_f(u->next_state[1], o->eps));
    deft_tensor *const delta =
        deft_mul(deft_div(deft_sqrt(deft_add_f(u->state[0], o->eps)), root), u->g);
    u->next_state[0] = mean_of_squares(u->state[0], delta, o->beta2);
    move(u, deft_mul(delta, u->number[DF_OPTIM_RATE]));
}

static void record_adamax(df_optim_update *u)
{
    const deft_optim_options *const o = u->opt;
    u->next_state[0] = deft_lerp_f(u->state[0], u->g, 1 - o->beta1);
    u->next_state[1] =
        deft_maximum(deft_mul_f(u->state[1], o->beta2), deft_add_f(deft_abs(u->g), o->eps));
    move(u, deft_mul(deft_div(u->next_state[0], u->next_state[1]), u->number[DF_OPTIM_SCALE]));
}

static void record_lion(df_optim_update *u)
{
    const deft_optim_options *const o = u->opt;
    deft_tensor *const way = deft_sign(deft_lerp_f(u->state[0], u->g, 1 - o->beta1));
    u->next_state[0] = deft_lerp_f(u->state[0], u->g, 1 - o->beta2);
    move(u, deft_mul(way, u->number[DF_OPTIM_RATE]));
}

/* The root of the mean of squares. */
static deft_tensor *magnitude(deft_tensor *t)
{
    return deft_sqrt(deft_mean(deft_square(t), (deft_axes){ .n = UINT32_MAX }, false));
}

/* The means of squares of a matrix are the product of those of its rows and of its columns. */
static void record_adafactor(df_optim_update *u)
{
    const deft_optim_options *const o = u->opt;
    const deft_axes last = { 1, { -1 } }, before = { 1, { -2 } };
    deft_tensor *const weight = u->number[DF_OPTIM_SECOND], *squares = deft_square(u->g);
    if (u->state[2]) {
        squares = u->next_state[2] = deft_lerp(u->state[2], squares, weight);
    } else {
        deft_tensor *const rows = deft_lerp(u->state[0], deft_mean(squares, last, true), weight);
        deft_tensor *const columns =
            deft_lerp(u->state[1], deft_mean(squares, before, true), weight);
        u->next_state[0] = rows;
        u->next_state[1] = columns;
        squares = deft_div(deft_mul(rows, columns),
                           deft_maximum_f(deft_mean(rows, before, true), o->eps));
    }
    deft_tensor *const root = deft_sqrt(deft_maximum_f(squares, o->eps * o->eps));
    deft_tensor *const step = deft_div(u->g, root);
    deft_tensor *const size = deft_maximum_f(deft_mul_f(magnitude(step), 1 / o->clip), 1);
    deft_tensor *const rate =
        deft_mul(deft_maximum_f(magnitude(u->p), o->least_magnitude), u->number[DF_OPTIM_RATE]);
    move(u, deft_mul(step, deft_div(rate, size)));
}

void df_optim_record(df_optim_update *u)
{
    static void (*const record[])(df_optim_update *) = {
        [DEFT_OPTIM_SGD] = record_sgd,
        [DEFT_OPTIM_ADAM] = record_adam,
        [DEFT_OPTIM_ADAMW] = record_adam,
        [DEFT_OPTIM_RMSPROP] = record_rmsprop,
        [DEFT_OPTIM_ADAGRAD] = record_adagrad,
        [DEFT_OPTIM_ADADELTA] = record_adadelta,
        [DEFT_OPTIM_ADAMAX] = record_adamax,
        [DEFT_OPTIM_NADAM] = record_adam,
        [DEFT_OPTIM_RADAM] = record_adam,
        [DEFT_OPTIM_LION] = record_lion,
        [DEFT_OPTIM_ADAFACTOR] = record_adafactor,
    };
    record[u->opt->kind](u);
}
