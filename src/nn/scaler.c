/* SPDX-License-Identifier: Apache-2.0
 *
 * The scale of the loss. It is a tensor, and the step computes on the device whether to change it.
 */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEAST 0x1p-24
#define MOST 0x1p64

enum { MOST_IN_A_ROW = 1 << 24 }; /* the greatest count that is exact in f32 */

struct deft_scaler {
    deft_nn *nn;
    deft_tensor *scale, *good; /* nn owns both; good: successful updates in a row */
    double interval;
};

static deft_status check(deft_ctx *cx, const deft_scaler_options *o)
{
    if (o->size < sizeof *o)
        return df_refuse(cx, DEFT_E_ARG,
                         "scaler_create: the size of deft_scaler_options is %zu, it must be "
                         "sizeof(deft_scaler_options)",
                         o->size);
    if (o->name && !*o->name) return df_refuse(cx, DEFT_E_ARG, "scaler_create: an empty name");
    if (o->start != 0 && !(o->start >= LEAST && o->start <= MOST))
        return df_refuse(cx, DEFT_E_RANGE, "scaler_create: start %g is outside [%g, %g]", o->start,
                         LEAST, MOST);
    if (o->interval < 0 || o->interval > MOST_IN_A_ROW)
        return df_refuse(cx, DEFT_E_RANGE, "scaler_create: interval %lld is outside [0, %d]",
                         (long long)o->interval, MOST_IN_A_ROW);
    return DEFT_OK;
}

static bool fill(deft_scaler *s, const char *name, double start)
{
    const size_t size = strlen(name) + 2;
    char *const prefix = df_mem_alloc(s->nn->mem, size);
    if (!prefix) return df_error(s->nn->cx, DEFT_E_MEMORY, "scaler_create: no memory for a name");
    snprintf(prefix, size, "%s.", name);
    const deft_shape shape = DEFT_SHAPE();
    s->scale = df_nn_add(s->nn, "scaler_create", DF_NN_BUFFER, prefix, NULL, "scale", &shape,
                         DEFT_F32, (deft_init){ DEFT_INIT_CONSTANT, start, 0 });
    if (s->scale)
        s->good = df_nn_add(s->nn, "scaler_create", DF_NN_BUFFER, prefix, NULL, "good", &shape,
                            DEFT_F32, (deft_init){ .kind = DEFT_INIT_ZEROS });
    df_mem_free(s->nn->mem, prefix, size);
    return s->good != NULL;
}

static deft_status scaler_create(deft_nn *nn, const deft_scaler_options *options, deft_scaler **out)
{
    if (out) *out = NULL;
    if (!nn || !out) return DEFT_E_ARG;
    const deft_scaler_options defaults = { .size = sizeof defaults };
    if (!options) options = &defaults;
    df_acts(nn->cx, "scaler_create", DF_SITE);
    deft_status st = df_may_act(nn->cx);
    if (st == DEFT_OK) st = check(nn->cx, options);
    if (st != DEFT_OK) return st;
    deft_scaler *s = df_mem_zalloc(nn->mem, sizeof *s);
    if (!s) return df_refuse(nn->cx, DEFT_E_MEMORY, "scaler_create: no memory");
    const df_nn_mark m = df_nn_mark_of(nn);
    s->nn = nn;
    s->interval = options->interval ? (double)options->interval : 2000;
    if (fill(s, options->name ? options->name : "scaler",
             options->start != 0 ? options->start : 0x1p16)) {
        *out = s;
        return DEFT_OK;
    }
    df_nn_truncate(nn, m);
    deft_scaler_destroy(&s);
    return df_deliver(nn->cx);
}

void deft_scaler_destroy(deft_scaler **s)
{
    if (!s || !*s) return;
    df_mem_free((*s)->nn->mem, *s, sizeof **s);
    *s = NULL;
}

deft_tensor *deft_scaler_scale(const deft_scaler *s)
{
    return s ? s->scale : NULL;
}

static deft_tensor *unscale(const deft_scaler *s, deft_tensor **grads, size_t n)
{
    const deft_axes all = { .n = UINT32_MAX };
    deft_tensor *is_finite = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!grads[i]) continue;
        const bool is_wide = deft_dtype_of(grads[i]) == DEFT_F64;
        grads[i] = deft_div(is_wide ? grads[i] : deft_cast(grads[i], DEFT_F32), s->scale);
        deft_tensor *const one = deft_all(deft_isfinite(grads[i]), all, 0);
        is_finite = is_finite ? deft_logical_and(is_finite, one) : one;
        if (!is_finite) return NULL;
    }
    return is_finite ? is_finite
                     : df_error(s->nn->cx, DEFT_E_ARG, "scaler_unscale: there is no gradient");
}

static bool update(const deft_scaler *s, deft_tensor *is_finite)
{
    deft_ctx *const cx = s->nn->cx;
    if (!df_ctx_in_step(cx))
        return df_error(cx, DEFT_E_STATE,
                        "scaler_update: no step is open: a failure could leave half of the update");
    deft_tensor *const good = deft_add_f(s->good, 1);
    deft_tensor *const grows = deft_ge_f(good, s->interval);
    deft_tensor *const more = deft_minimum_f(deft_mul_f(s->scale, 2), MOST);
    deft_tensor *const less = deft_maximum_f(deft_mul_f(s->scale, 0.5), LEAST);
    deft_tensor *const stays = deft_logical_and(is_finite, deft_logical_not(grows));
    deft_assign(s->good, deft_where(stays, good, deft_num(cx, 0)));
    deft_assign(s->scale, deft_where(is_finite, deft_where(grows, more, s->scale), less));
    return !df_step_has_mistake(cx);
}

/* ---- public functions, with the line of their caller as call site ---- */

deft_status deft_scaler_create(deft_nn *nn, const deft_scaler_options *options, deft_scaler **out)
{
    DF_LAYER_RETURN(deft_status, nn ? nn->cx : NULL, scaler_create(nn, options, out));
}

deft_tensor *deft_scaler_loss(const deft_scaler *s, deft_tensor *loss)
{
    if (!s) return NULL;
    DF_LAYER_RETURN(deft_tensor *, s->nn->cx, deft_mul(deft_cast(loss, DEFT_F32), s->scale));
}

deft_tensor *deft_scaler_unscale(const deft_scaler *s, deft_tensor **grads, size_t n)
{
    if (!s || !grads) return NULL;
    DF_LAYER_RETURN(deft_tensor *, s->nn->cx, unscale(s, grads, n));
}

bool deft_scaler_update(deft_scaler *s, deft_tensor *is_finite)
{
    if (!s || df_step_has_mistake(s->nn->cx)) return false;
    DF_LAYER_RETURN(bool, s->nn->cx, update(s, is_finite));
}
