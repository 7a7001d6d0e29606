/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial values of tensors. Fans are those of PyTorch: a tensor of shape [out, in, k...] has the
 * fans in * k... and out * k....
 */
#include "nn/nn.h"

#include <math.h>

typedef struct fans {
    double in, out;
} fans;

static fans fans_of(const deft_shape *s)
{
    double field = 1;
    for (uint32_t i = 2; i < s->rank; i++) field *= (double)s->dim[i];
    return (fans){ (double)s->dim[1] * field, (double)s->dim[0] * field };
}

/* The standard deviation by Kaiming or Xavier. 0 when the tensor has no elements. */
static double deviation(deft_init init, const deft_shape *s)
{
    const fans f = fans_of(s);
    const bool is_kaiming =
        init.kind == DEFT_INIT_KAIMING_UNIFORM || init.kind == DEFT_INIT_KAIMING_NORMAL;
    const double gain = init.a != 0 ? init.a : is_kaiming ? sqrt(2.0) : 1.0;
    const double fan = is_kaiming ? f.in : (f.in + f.out) / 2;
    return fan > 0 ? gain / sqrt(fan) : 0;
}

static bool looks_at_fans(deft_init_kind kind)
{
    return kind >= DEFT_INIT_KAIMING_UNIFORM && kind <= DEFT_INIT_XAVIER_NORMAL;
}

deft_tensor *df_nn_begin(deft_nn *nn, const char *what, const deft_shape *shape, deft_dtype dtype,
                         deft_init init)
{
    deft_ctx *const cx = nn->cx;
    double d = 0;
    if (looks_at_fans(init.kind)) {
        if (shape->rank < 2 || shape->rank > DEFT_MAX_RANK)
            return df_error(cx, DEFT_E_SHAPE,
                            "%s: Kaiming and Xavier need at least 2 axes, out and in, not %u", what,
                            shape->rank);
        d = deviation(init, shape);
    }
    switch (init.kind) {
    case DEFT_INIT_ZEROS: return deft_zeros(cx, *shape, dtype);
    case DEFT_INIT_ONES: return deft_ones(cx, *shape, dtype);
    case DEFT_INIT_CONSTANT: return deft_full(cx, *shape, dtype, init.a);
    case DEFT_INIT_UNIFORM: return deft_uniform(cx, &nn->rng, *shape, dtype, init.a, init.b);
    case DEFT_INIT_NORMAL: return deft_normal(cx, &nn->rng, *shape, dtype, init.a, init.b);
    case DEFT_INIT_KAIMING_UNIFORM:
    case DEFT_INIT_XAVIER_UNIFORM:
        return deft_uniform(cx, &nn->rng, *shape, dtype, -sqrt(3.0) * d, sqrt(3.0) * d);
    case DEFT_INIT_KAIMING_NORMAL:
    case DEFT_INIT_XAVIER_NORMAL: return deft_normal(cx, &nn->rng, *shape, dtype, 0, d);
    }
    return df_error(cx, DEFT_E_ARG, "%s: %d is no way to begin", what, (int)init.kind);
}
