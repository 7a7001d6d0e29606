/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers that convolve images with weights of their own.
 */
#include "nn/nn.h"

#include "deft/images.h"

#include <math.h>

enum { SIDES = 3 };

/* The elements of a window along side i: 0 after the first number means "as the first". */
static int64_t kernel_side(const deft_nn_conv_options *o, int32_t i)
{
    return o->kernel[o->kernel[i] ? i : 0];
}

static bool check_conv_layer(deft_ctx *cx, const deft_nn_conv_options *o)
{
    if (o->n_sides < 1 || o->n_sides > SIDES)
        return df_error(cx, DEFT_E_ARG, "conv: %d sides; there are 1 to %d", (int)o->n_sides,
                        SIDES);
    if (o->in < 1 || o->out < 1 || o->groups < 1 || o->in % o->groups || o->out % o->groups)
        return df_error(cx, DEFT_E_SHAPE,
                        "conv: %lld and %lld channels in %lld groups; both are multiples of the "
                        "number of groups, which is at least 1",
                        (long long)o->in, (long long)o->out, (long long)o->groups);
    for (int32_t i = 0; i < o->n_sides; i++)
        if (kernel_side(o, i) < 1)
            return df_error(cx, DEFT_E_ARG, "conv: a window of %lld elements along side %d",
                            (long long)kernel_side(o, i), (int)i);
    return true;
}

static bool conv_init(deft_nn_conv *l, deft_nn *nn, const char *name,
                      const deft_nn_conv_options *options)
{
    deft_nn_conv_options o;
    *l = (deft_nn_conv){ 0 };
    if (!nn) return false;
    if (!options) return df_error(nn->cx, DEFT_E_ARG, "conv: options are NULL");
    if (!df_layer_options(nn->cx, "conv", "deft_nn_conv_options", &o, sizeof o, options,
                          options->size))
        return false;
    if (!o.n_sides) o.n_sides = 2;
    if (!o.groups) o.groups = 1;
    if (!check_conv_layer(nn->cx, &o)) return false;
    const int64_t rows = o.is_transposed ? o.in : o.out;
    int64_t n_inputs = (o.is_transposed ? o.out : o.in) / o.groups;
    deft_shape s = { .rank = 2 + (uint32_t)o.n_sides, .dim = { rows, n_inputs } };
    for (int32_t i = 0; i < o.n_sides; i++) n_inputs *= s.dim[2 + i] = kernel_side(&o, i);
    const double bound = 1 / sqrt((double)n_inputs);
    const deft_init uniform = { DEFT_INIT_UNIFORM, -bound, bound };
    const df_nn_mark m = df_nn_mark_of(nn);
    const bool named = name && *name;
    if (named && !deft_nn_push(nn, name)) return false;
    l->weight = deft_nn_parameter(nn, "weight", s, uniform);
    if (l->weight && !o.lacks_bias)
        l->bias = deft_nn_parameter(nn, "bias", deft_shape_of(1, &o.out), uniform);
    if (named) deft_nn_pop(nn);
    if (!l->weight || (!l->bias && !o.lacks_bias)) {
        *l = (deft_nn_conv){ 0 };
        df_nn_truncate(nn, m);
        return false;
    }
    for (int32_t i = 0; i < o.n_sides; i++) {
        l->stride[i] = o.stride[i];
        l->padding[i] = o.padding[i];
        l->dilation[i] = o.dilation[i];
        l->output_padding[i] = o.output_padding[i];
    }
    l->groups = o.groups;
    l->is_transposed = o.is_transposed;
    return true;
}

static deft_tensor *conv_call(const deft_nn_conv *l, deft_tensor *x)
{
    deft_conv_options o = { .size = sizeof o, .groups = l->groups, .bias = l->bias };
    for (int32_t i = 0; i < SIDES; i++) {
        o.stride[i] = l->stride[i];
        o.padding[i] = l->padding[i];
        o.dilation[i] = l->dilation[i];
        o.output_padding[i] = l->output_padding[i];
    }
    return l->is_transposed ? deft_conv_transpose(x, l->weight, &o) : deft_conv(x, l->weight, &o);
}

/* ---- public functions, with the line of their caller as call site ---- */

bool deft_nn_conv_init(deft_nn_conv *l, deft_nn *nn, const char *name,
                       const deft_nn_conv_options *options)
{
    DF_LAYER_RETURN(bool, nn ? nn->cx : NULL, conv_init(l, nn, name, options));
}

deft_tensor *deft_nn_conv_call(const deft_nn_conv *l, deft_tensor *x)
{
    DF_LAYER_RETURN(deft_tensor *, deft_ctx_of(x), conv_call(l, x));
}
