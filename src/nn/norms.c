/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalizations of channels (deft/layers.h), and the layer with running statistics.
 */
#include "nn/nn.h"

#include "deft/layers.h"

#include <math.h>

/* ---- functions ---- */

/* Checks the options. is_batch: those of deft_batch_norm are allowed, too. */
static bool take_norm(deft_ctx *cx, const char *what, deft_tensor *x, bool is_batch,
                      const deft_norm_options *given, deft_norm_options *o)
{
    if (!df_layer_options(cx, what, "deft_norm_options", o, sizeof *o, given,
                          given ? given->size : 0))
        return false;
    if (o->eps == 0) o->eps = 1e-5;
    if (o->momentum == 0) o->momentum = 0.1;
    const bool has_batch = o->mean || o->var || o->training;
    if ((has_batch && !is_batch) || !o->mean != !o->var)
        return df_error(cx, DEFT_E_ARG, "%s: %s", what,
                        is_batch ? "mean and var are given together or not at all"
                                 : "it takes weight, bias and eps alone");
    if (!isfinite(o->eps) || !isfinite(o->momentum))
        return df_error(cx, DEFT_E_ARG, "%s: eps %g and momentum %g must be finite", what, o->eps,
                        o->momentum);
    const deft_shape s = deft_shape_get(x);
    deft_tensor *const list[] = { o->weight, o->bias, o->mean, o->var };
    char a[DF_NN_TEXT], b[DF_NN_TEXT];
    if (s.rank < 2)
        return df_error(cx, DEFT_E_SHAPE, "%s: x is %s; it takes [N, C, ...]", what,
                        df_nn_text(x, a));
    for (int i = 0; i < 4; i++)
        if (list[i] && (deft_rank(list[i]) != 1 || deft_dim(list[i], 0) != s.dim[1]))
            return df_error(cx, DEFT_E_SHAPE, "%s: x is %s, a tensor of options is %s, not [%lld]",
                            what, df_nn_text(x, a), df_nn_text(list[i], b), (long long)s.dim[1]);
    return true;
}

/* t [C] with axes of extent 1 behind, so that it broadcasts to x. */
static deft_tensor *of_channels(deft_tensor *t, deft_tensor *x)
{
    if (!t || !x) return NULL;
    deft_shape s = { .rank = deft_rank(x) - 1, .dim = { deft_numel(t) } };
    for (uint32_t i = 1; i < s.rank; i++) s.dim[i] = 1;
    return deft_reshape(t, s);
}

/* y * weight + bias, in the dtype as. */
static deft_tensor *scaled_channels(deft_tensor *y, const deft_norm_options *o, deft_dtype as)
{
    if (!y) return NULL;
    const deft_dtype t = deft_dtype_of(y);
    if (o->weight) y = deft_mul(y, deft_cast(of_channels(o->weight, y), t));
    if (o->bias) y = deft_add(y, deft_cast(of_channels(o->bias, y), t));
    return deft_cast(y, as);
}

/* The dtype of the result, and the dtype in which it is computed. */
static deft_dtype norm_dtype(deft_ctx *cx, deft_tensor *x, deft_dtype *computed)
{
    const deft_dtype t = deft_dtype_of(x);
    const bool is_half = t == DEFT_F16 || t == DEFT_BF16;
    *computed = t == DEFT_F64 ? DEFT_F64 : DEFT_F32;
    return is_half && !df_ctx_is_mixed(cx) ? t : *computed;
}

/* The running statistic r moves towards `now` [C]. */
static bool update_statistic(deft_tensor *r, deft_tensor *now, double momentum)
{
    const deft_dtype t = deft_dtype_of(r);
    deft_tensor *const to = deft_cast(deft_stop_gradient(now), t);
    return deft_assign(r, deft_add(r, deft_mul_f(deft_sub(to, r), momentum))) != NULL;
}

static deft_tensor *batch_norm(deft_ctx *cx, deft_tensor *x, const deft_norm_options *given)
{
    deft_norm_options o;
    deft_dtype t;
    if (!x || !take_norm(cx, "batch_norm", x, true, given, &o)) return NULL;
    const deft_dtype as = norm_dtype(cx, x, &t);
    deft_axes axes = { .n = deft_rank(x) - 1, .at = { 0 } };
    for (uint32_t i = 1; i < axes.n; i++) axes.at[i] = (int32_t)i + 1;
    x = deft_cast(x, t);
    const bool is_own = o.training || !o.mean;
    deft_tensor *const mean = is_own ? deft_mean(x, axes, false) : deft_cast(o.mean, t);
    deft_tensor *const centred = deft_sub(x, of_channels(mean, x));
    deft_tensor *const var =
        is_own ? deft_mean(deft_square(centred), axes, false) : deft_cast(o.var, t);
    if (!var) return NULL;
    if (o.training && o.mean) {
        const double n = (double)deft_numel(x) / (double)deft_dim(x, 1);
        deft_tensor *const wide = deft_mul_f(var, n > 1 ? n / (n - 1) : NAN);
        if (!update_statistic(o.mean, mean, o.momentum) ||
            !update_statistic(o.var, wide, o.momentum))
            return NULL;
    }
    deft_tensor *const root = deft_sqrt(deft_add_f(var, o.eps));
    return scaled_channels(deft_div(centred, of_channels(root, x)), &o, as);
}

/* groups 0: one for each channel. */
static deft_tensor *group_norm(deft_ctx *cx, const char *what, deft_tensor *x, int64_t groups,
                               const deft_norm_options *given)
{
    deft_norm_options o;
    deft_dtype t;
    if (!x || !take_norm(cx, what, x, false, given, &o)) return NULL;
    const deft_shape s = deft_shape_get(x);
    if (groups < 1 || s.dim[1] % groups)
        return df_error(cx, DEFT_E_SHAPE, "%s: %lld channels in %lld groups", what,
                        (long long)s.dim[1], (long long)groups);
    const deft_dtype as = norm_dtype(cx, x, &t);
    const int64_t n = s.dim[0] * groups, numel = deft_numel(x);
    const deft_shape rows = deft_shape_of(2, (const int64_t[]){ n, n ? numel / n : 0 });
    deft_tensor *const y =
        deft_layer_norm(deft_reshape(deft_cast(x, t), rows), 1, NULL, NULL, o.eps);
    return scaled_channels(deft_reshape(y, s), &o, as);
}

/* ---- the layer ---- */

static bool batch_norm_init(deft_nn_batch_norm *l, deft_nn *nn, const char *name, int64_t width)
{
    *l = (deft_nn_batch_norm){ .nn = nn, .eps = 1e-5, .momentum = 0.1 };
    if (!nn) return false;
    const df_nn_mark m = df_nn_mark_of(nn);
    const deft_init ones = { .kind = DEFT_INIT_ONES }, zeros = { .kind = DEFT_INIT_ZEROS };
    const deft_shape s = deft_shape_of(1, &width);
    const bool named = name && *name;
    if (named && !deft_nn_push(nn, name)) return false;
    l->weight = deft_nn_parameter(nn, "weight", s, ones);
    l->bias = l->weight ? deft_nn_parameter(nn, "bias", s, zeros) : NULL;
    l->mean = l->bias ? deft_nn_buffer(nn, "running_mean", s, nn->dtype, zeros) : NULL;
    l->var = l->mean ? deft_nn_buffer(nn, "running_var", s, nn->dtype, ones) : NULL;
    if (named) deft_nn_pop(nn);
    if (l->var) return true;
    l->weight = l->bias = l->mean = NULL;
    df_nn_truncate(nn, m);
    return false;
}

static deft_tensor *batch_norm_call(const deft_nn_batch_norm *l, deft_tensor *x)
{
    const deft_norm_options o = { .size = sizeof o,
                                  .weight = l->weight,
                                  .bias = l->bias,
                                  .mean = l->mean,
                                  .var = l->var,
                                  .eps = l->eps,
                                  .momentum = l->momentum,
                                  .training = deft_nn_is_training(l->nn) };
    return deft_batch_norm(x, &o);
}

/* ---- public functions, with the line of their caller as call site ---- */

deft_tensor *deft_batch_norm(deft_tensor *x, const deft_norm_options *options)
{
    deft_ctx *const cx = deft_ctx_of(x);
    DF_LAYER_RETURN(deft_tensor *, cx, batch_norm(cx, x, options));
}

deft_tensor *deft_group_norm(deft_tensor *x, int64_t groups, const deft_norm_options *options)
{
    deft_ctx *const cx = deft_ctx_of(x);
    DF_LAYER_RETURN(deft_tensor *, cx, group_norm(cx, "group_norm", x, groups, options));
}

deft_tensor *deft_instance_norm(deft_tensor *x, const deft_norm_options *options)
{
    deft_ctx *const cx = deft_ctx_of(x);
    DF_LAYER_RETURN(deft_tensor *, cx, group_norm(cx, "instance_norm", x, deft_dim(x, 1), options));
}

bool deft_nn_batch_norm_init(deft_nn_batch_norm *l, deft_nn *nn, const char *name, int64_t width)
{
    DF_LAYER_RETURN(bool, nn ? nn->cx : NULL, batch_norm_init(l, nn, name, width));
}

deft_tensor *deft_nn_batch_norm_call(const deft_nn_batch_norm *l, deft_tensor *x)
{
    DF_LAYER_RETURN(deft_tensor *, deft_ctx_of(x), batch_norm_call(l, x));
}
