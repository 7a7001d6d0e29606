/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions that pass over NaN, and norms of vectors (deft/array.h).
 */
#define DEFT_NO_GENERIC
#include "deft/array.h"
#include "deft/ops.h"
#include "lazy/arrays/arrays.h"

#include <math.h>

/* The operands of one call. */
typedef struct job {
    deft_ctx *cx;
    deft_tensor *t; /* lifted */
    deft_axes axes;
    bool keepdims;
} job;

static deft_tensor *number(deft_ctx *cx, deft_tensor *like, double value)
{
    return deft_full(cx, (deft_shape){ .rank = 0 }, deft_dtype_of(like), value);
}

/* ---- without NaN ---- */

/* t with `value` in place of NaN. */
static deft_tensor *replaced(const job *j, double value)
{
    if (!df_is_float(deft_dtype_of(j->t))) return j->t;
    return deft_where(deft_isnan(j->t), number(j->cx, j->t, value), j->t);
}

/* Whether elements are numbers, as numbers of the dtype of `like`. */
static deft_tensor *is_number(const job *j, deft_tensor *like)
{
    return deft_cast(deft_logical_not(deft_isnan(j->t)), deft_dtype_of(like));
}

static deft_tensor *nansum(const job *j)
{
    return deft_sum(replaced(j, 0), j->axes, j->keepdims);
}

static deft_tensor *nanprod(const job *j)
{
    return deft_prod(replaced(j, 1), j->axes, j->keepdims);
}

/* NaN where all elements are NaN. */
static deft_tensor *nan_extreme(const job *j, bool greatest)
{
    deft_tensor *const t = replaced(j, greatest ? -INFINITY : INFINITY);
    deft_tensor *const y =
        greatest ? deft_max(t, j->axes, j->keepdims) : deft_min(t, j->axes, j->keepdims);
    if (!y || !df_is_float(deft_dtype_of(j->t))) return y;
    deft_tensor *const none = deft_all(deft_isnan(j->t), j->axes, j->keepdims);
    return deft_where(none, number(j->cx, y, NAN), y);
}

static deft_tensor *nanmin(const job *j)
{
    return nan_extreme(j, false);
}

static deft_tensor *nanmax(const job *j)
{
    return nan_extreme(j, true);
}

static deft_tensor *nanmean(const job *j)
{
    if (!df_is_float(deft_dtype_of(j->t))) return deft_mean(j->t, j->axes, j->keepdims);
    deft_tensor *const sum = nansum(j);
    return sum ? deft_div(sum, deft_sum(is_number(j, sum), j->axes, j->keepdims)) : NULL;
}

/* The sum of the squares of x - mean over the numbers, divided by their number less ddof. */
static deft_tensor *nanvar(const job *j, int ddof)
{
    if (!df_is_float(deft_dtype_of(j->t))) return deft_var(j->t, j->axes, j->keepdims, ddof);
    const job kept = { j->cx, j->t, j->axes, true };
    deft_tensor *const mean = nanmean(&kept);
    if (!mean) return NULL;
    const job centred = { j->cx, deft_sub(j->t, mean), j->axes, j->keepdims };
    deft_tensor *const sum = deft_sum(deft_square(replaced(&centred, 0)), j->axes, j->keepdims);
    if (!sum) return NULL;
    deft_tensor *const n = deft_sum(is_number(j, sum), j->axes, j->keepdims);
    deft_tensor *const rest =
        deft_maximum(deft_sub(n, number(j->cx, sum, ddof)), number(j->cx, sum, 0));
    /* of NaN alone, 0 / 0 */
    return deft_div(sum, rest);
}

static deft_ctx *begin(job *j, const char *what, deft_tensor *t, const deft_axes *axes,
                       bool keepdims, uintptr_t site)
{
    df_shape s;
    uint32_t mask;
    deft_ctx *const cx = df_array_begin(what, t, &s, site);
    if (!cx || !df_check_axes(cx, what, axes, s.rank, &mask)) return NULL;
    *j = (job){ cx, t, *axes, keepdims };
    return cx;
}

/* Computes f of j, whose tensor is t. */
static deft_tensor *nan_reduced(job *j, deft_tensor *(*f)(const job *))
{
    const deft_dtype own = deft_dtype_of(j->t);
    j->t = df_array_lift(j->t);
    return j->t ? df_array_round(f(j), own) : NULL;
}

#define DF_NAN_REDUCTION(name)                                                                     \
    deft_tensor *deft_##name(deft_tensor *t, deft_axes axes, bool keepdims)                        \
    {                                                                                              \
        job j;                                                                                     \
        deft_ctx *const cx = begin(&j, #name, t, &axes, keepdims, DF_SITE);                        \
        if (!cx) return NULL;                                                                      \
        DF_LAYER_RETURN(deft_tensor *, cx, nan_reduced(&j, name));                                 \
    }
DF_NAN_REDUCTION(nansum)
DF_NAN_REDUCTION(nanprod)
DF_NAN_REDUCTION(nanmin)
DF_NAN_REDUCTION(nanmax)
DF_NAN_REDUCTION(nanmean)
#undef DF_NAN_REDUCTION

static deft_tensor *lifted_variance(job *j, int ddof, bool root)
{
    const deft_dtype own = deft_dtype_of(j->t);
    j->t = df_array_lift(j->t);
    deft_tensor *const v = j->t ? nanvar(j, ddof) : NULL;
    return v ? df_array_round(root ? df_array_root(j->cx, v) : v, own) : NULL;
}

deft_tensor *deft_nanvar(deft_tensor *t, deft_axes axes, bool keepdims, int ddof)
{
    job j;
    deft_ctx *const cx = begin(&j, "nanvar", t, &axes, keepdims, DF_SITE);
    if (!cx) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, lifted_variance(&j, ddof, false));
}

deft_tensor *deft_nanstd(deft_tensor *t, deft_axes axes, bool keepdims, int ddof)
{
    job j;
    deft_ctx *const cx = begin(&j, "nanstd", t, &axes, keepdims, DF_SITE);
    if (!cx) return NULL;
    DF_LAYER_RETURN(deft_tensor *, cx, lifted_variance(&j, ddof, true));
}

/* ---- norms ---- */

/* sum(|x|^p)^(1/p). A power has no slope at 0 where p is below 1. Where all elements are 0 the sum
 * itself stands for the root, so that no gradient is infinite there. */
static deft_tensor *power_norm(const job *j, deft_tensor *a, double p)
{
    deft_tensor *const sum = deft_sum(deft_pow(a, number(j->cx, a, p)), j->axes, j->keepdims);
    if (!sum) return NULL;
    deft_tensor *const is_above = deft_lt(number(j->cx, sum, 0), sum);
    deft_tensor *const safe = deft_where(is_above, sum, number(j->cx, sum, 1));
    return deft_where(is_above, deft_pow(safe, number(j->cx, sum, 1 / p)),
                      p < 0 ? deft_reciprocal(sum) : sum);
}

static deft_tensor *norm(const job *j, double ord)
{
    deft_tensor *const t = j->t;
    if (ord == 2) return df_array_root(j->cx, deft_sum(deft_square(t), j->axes, j->keepdims));
    if (ord == 0)
        return deft_sum(deft_cast(deft_cast(t, DEFT_BOOL), deft_dtype_of(t)), j->axes, j->keepdims);
    deft_tensor *const a = deft_abs(t);
    if (ord == 1) return deft_sum(a, j->axes, j->keepdims);
    if (isinf(ord))
        return ord > 0 ? deft_max(a, j->axes, j->keepdims) : deft_min(a, j->axes, j->keepdims);
    return power_norm(j, a, ord);
}

static deft_tensor *lifted_norm(job *j, double ord)
{
    if (df_is_complex(deft_dtype_of(j->t))) j->t = deft_abs(j->t);
    const deft_dtype own = deft_dtype_of(j->t);
    j->t = df_is_float(own) ? df_array_lift(j->t) : deft_cast(j->t, DEFT_F32);
    return j->t ? df_array_round(norm(j, ord), own) : NULL;
}

deft_tensor *deft_vector_norm(deft_tensor *t, double ord, deft_axes axes, bool keepdims)
{
    job j;
    df_shape s;
    uint32_t mask;
    deft_ctx *const cx = df_array_begin_faced("vector_norm", t, &s, DF_SITE);
    if (!cx || !df_check_axes(cx, "vector_norm", &axes, s.rank, &mask)) return NULL;
    j = (job){ cx, t, axes, keepdims };
    if (isnan(ord)) return df_error(cx, DEFT_E_RANGE, "vector_norm: order %g", ord);
    DF_LAYER_RETURN(deft_tensor *, cx, lifted_norm(&j, ord));
}
