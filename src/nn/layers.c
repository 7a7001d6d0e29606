/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers. The numbers that they pass to calls are marked as constants (deft/capture.h), so that a
 * captured function may call layers.
 */
#include "nn/nn.h"

#include <float.h>
#include <math.h>

/* ---- parameters ---- */

/* Adds parameter `of` of a layer. The prefix `name` of the layer may be NULL or empty. */
static deft_tensor *parameter(deft_nn *nn, const char *what, const char *name, const char *of,
                              deft_shape shape, deft_init init)
{
    if (!nn || (name && *name && !deft_nn_push(nn, name))) return NULL;
    deft_tensor *const t = df_nn_add(nn, what, DF_NN_PARAMETER, nn->prefix.n ? nn->prefix.at : "",
                                     NULL, of, &shape, nn->dtype, init);
    if (name && *name) deft_nn_pop(nn);
    return t;
}

static deft_shape vector(int64_t n)
{
    return deft_shape_of(1, (const int64_t[]){ n });
}

static deft_shape matrix(int64_t rows, int64_t columns)
{
    return deft_shape_of(2, (const int64_t[]){ rows, columns });
}

/* Checks that the last axis of a tensor and of a parameter agree. Else records a mistake that names
 * both. */
static bool fits(const char *what, const deft_tensor *x, const deft_tensor *weight)
{
    if (!x || !weight || deft_dim(x, -1) == deft_dim(weight, -1)) return true;
    char a[DF_NN_TEXT], b[DF_NN_TEXT];
    return df_error(deft_ctx_of(x), DEFT_E_SHAPE, "%s: x is %s, weight is %s", what,
                    df_nn_text(x, a), df_nn_text(weight, b));
}

/* ---- linear ---- */

static bool linear_init(deft_nn_linear *l, deft_nn *nn, const char *name, int64_t in, int64_t out,
                        bool has_bias)
{
    *l = (deft_nn_linear){ 0 };
    if (!nn) return false;
    const df_nn_mark m = df_nn_mark_of(nn);
    const double bound = in > 0 ? 1 / sqrt((double)in) : 0;
    const deft_init uniform = { DEFT_INIT_UNIFORM, -bound, bound };
    l->weight = parameter(nn, "linear", name, "weight", matrix(out, in), uniform);
    if (l->weight && has_bias)
        l->bias = parameter(nn, "linear", name, "bias", vector(out), uniform);
    if (l->weight && (l->bias || !has_bias)) return true;
    *l = (deft_nn_linear){ 0 };
    df_nn_truncate(nn, m);
    return false;
}

static deft_tensor *linear_call(const deft_nn_linear *l, deft_tensor *x)
{
    if (!fits("linear", x, l->weight)) return NULL;
    deft_tensor *const y = deft_matmul(x, deft_t(l->weight));
    return l->bias ? deft_add(y, l->bias) : y;
}

/* ---- embedding ---- */

static bool embedding_init(deft_nn_embedding *l, deft_nn *nn, const char *name, int64_t n,
                           int64_t width)
{
    const deft_init normal = { DEFT_INIT_NORMAL, 0, 1 };
    l->weight = parameter(nn, "embedding", name, "weight", matrix(n, width), normal);
    return l->weight != NULL;
}

static deft_tensor *embedding_call(const deft_nn_embedding *l, deft_tensor *indices)
{
    return deft_embedding(l->weight, indices);
}

/* ---- norms ---- */

static bool norm_init(deft_nn_norm *l, deft_nn *nn, const char *what, const char *name,
                      int64_t width, bool has_bias, double eps)
{
    *l = (deft_nn_norm){ .eps = eps };
    if (!nn) return false;
    const df_nn_mark m = df_nn_mark_of(nn);
    const deft_init ones = { .kind = DEFT_INIT_ONES }, zeros = { .kind = DEFT_INIT_ZEROS };
    l->weight = parameter(nn, what, name, "weight", vector(width), ones);
    if (l->weight && has_bias) l->bias = parameter(nn, what, name, "bias", vector(width), zeros);
    if (l->weight && (l->bias || !has_bias)) return true;
    l->weight = l->bias = NULL;
    df_nn_truncate(nn, m);
    return false;
}

static bool norm_init_layer(deft_nn_norm *l, deft_nn *nn, const char *name, int64_t width)
{
    return norm_init(l, nn, "layer_norm", name, width, true, 1e-5);
}

static bool norm_init_rms(deft_nn_norm *l, deft_nn *nn, const char *name, int64_t width)
{
    const double eps = nn && nn->dtype == DEFT_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    return norm_init(l, nn, "rms_norm", name, width, false, eps);
}

static deft_tensor *norm_call(const deft_nn_norm *l, deft_tensor *x)
{
    if (!fits(l->bias ? "layer_norm" : "rms_norm", x, l->weight)) return NULL;
    if (l->bias) return deft_layer_norm(x, 1, l->weight, l->bias, l->eps);
    return deft_rms_norm(x, 1, l->weight, l->eps);
}

/* ---- dropout ---- */

static deft_tensor *dropout_call(const deft_nn_dropout *l, deft_tensor *x)
{
    if (!x || !deft_nn_is_training(l->nn) || l->p == 0) return x;
    deft_ctx *const cx = deft_ctx_of(x);
    if (!(l->p > 0 && l->p <= 1))
        return df_error(cx, DEFT_E_RANGE, "dropout: p is %g, not in [0, 1]", l->p);
    const deft_dtype dtype = deft_dtype_of(x);
    deft_tensor *const draw = deft_uniform(cx, &l->nn->rng, deft_shape_get(x), dtype, 0, 1);
    deft_tensor *const keep = deft_ge(draw, deft_const_f(cx, l->p));
    deft_tensor *const scale = deft_const_f(cx, l->p < 1 ? 1 / (1 - l->p) : 0);
    return deft_where(keep, deft_mul(x, scale), deft_const_f(cx, 0));
}

/* ---- public functions, with the line of their caller as call site ---- */

bool deft_nn_linear_init(deft_nn_linear *l, deft_nn *nn, const char *name, int64_t in, int64_t out,
                         bool has_bias)
{
    DF_LAYER_RETURN(bool, nn ? nn->cx : NULL, linear_init(l, nn, name, in, out, has_bias));
}

deft_tensor *deft_nn_linear_call(const deft_nn_linear *l, deft_tensor *x)
{
    DF_LAYER_RETURN(deft_tensor *, deft_ctx_of(x), linear_call(l, x));
}

bool deft_nn_embedding_init(deft_nn_embedding *l, deft_nn *nn, const char *name, int64_t n,
                            int64_t width)
{
    DF_LAYER_RETURN(bool, nn ? nn->cx : NULL, embedding_init(l, nn, name, n, width));
}

deft_tensor *deft_nn_embedding_call(const deft_nn_embedding *l, deft_tensor *indices)
{
    DF_LAYER_RETURN(deft_tensor *, deft_ctx_of(indices), embedding_call(l, indices));
}

bool deft_nn_norm_init_layer(deft_nn_norm *l, deft_nn *nn, const char *name, int64_t width)
{
    DF_LAYER_RETURN(bool, nn ? nn->cx : NULL, norm_init_layer(l, nn, name, width));
}

bool deft_nn_norm_init_rms(deft_nn_norm *l, deft_nn *nn, const char *name, int64_t width)
{
    DF_LAYER_RETURN(bool, nn ? nn->cx : NULL, norm_init_rms(l, nn, name, width));
}

deft_tensor *deft_nn_norm_call(const deft_nn_norm *l, deft_tensor *x)
{
    DF_LAYER_RETURN(deft_tensor *, deft_ctx_of(x), norm_call(l, x));
}

deft_tensor *deft_nn_dropout_call(const deft_nn_dropout *l, deft_tensor *x)
{
    DF_LAYER_RETURN(deft_tensor *, deft_ctx_of(x), dropout_call(l, x));
}
