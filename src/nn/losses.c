/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses (deft/losses.h). Each is a function of tensors that have met, whose losses of elements are
 * then weighted and reduced. Gradients are those of the operations. So a function with an infinite
 * derivative, such as a root or a logarithm, gets another argument where its value is not used.
 */
#include "nn/nn.h"

#include "deft/layers.h"
#include "deft/losses.h"

#include <math.h>
#include <string.h>

enum { MOST = 3 };

/* Members of deft_loss_options that only some losses take. */
enum {
    TAKES_WEIGHT = 1,
    TAKES_POS_WEIGHT = 2,
    TAKES_IGNORED = 4,
    TAKES_SMOOTHING = 8,
    TAKES_MARGIN = 16,
    TAKES_BETA = 32,
    TAKES_LOG_TARGET = 64,
    TAKES_SWAP = 128,
    TAKES_BATCH_MEAN = 256
};

typedef struct loss {
    deft_ctx *cx;
    deft_loss_options o;
    deft_tensor *x[MOST]; /* in the dtype in which the loss is computed */
    deft_dtype met;       /* the dtype of the operands; integers count as f32 */
} loss;

/* The losses of elements. NULL after a mistake. */
typedef deft_tensor *(*loss_fn)(const loss *l);

/* What a loss is: its name, operands, options, and function. */
typedef struct loss_kind {
    const char *what;
    unsigned takes;
    loss_fn f;
    double margin; /* that 0 stands for */
} loss_kind;

/* ---- checks ---- */

static bool check_members(deft_ctx *cx, const loss_kind *k, const deft_loss_options *o)
{
    const unsigned t = k->takes;
    const char *const wrong = o->weight && !(t & TAKES_WEIGHT)              ? "weight"
                              : o->pos_weight && !(t & TAKES_POS_WEIGHT)    ? "pos_weight"
                              : o->ignores && !(t & TAKES_IGNORED)          ? "ignores"
                              : o->smoothing != 0 && !(t & TAKES_SMOOTHING) ? "smoothing"
                              : o->margin != 0 && !(t & TAKES_MARGIN)       ? "margin"
                              : o->beta != 0 && !(t & TAKES_BETA)           ? "beta"
                              : o->log_target && !(t & TAKES_LOG_TARGET)    ? "log_target"
                              : o->swap && !(t & TAKES_SWAP)                ? "swap"
                                                                            : NULL;
    const unsigned most = t & TAKES_BATCH_MEAN ? DEFT_REDUCTION_BATCH_MEAN : DEFT_REDUCTION_NONE;
    if (wrong) return df_error(cx, DEFT_E_ARG, "%s: it takes no option %s", k->what, wrong);
    if ((unsigned)o->reduction > most)
        return df_error(cx, DEFT_E_ARG, "%s: %d is no reduction of this loss", k->what,
                        (int)o->reduction);
    if (!(o->smoothing >= 0 && o->smoothing <= 1) || !(o->beta >= 0) || !isfinite(o->margin))
        return df_error(cx, DEFT_E_ARG,
                        "%s: smoothing %g is to be in [0, 1], beta %g above 0, margin %g finite",
                        k->what, o->smoothing, o->beta, o->margin);
    return true;
}

/* Takes the options, and casts the operands to the dtype in which they meet. */
static bool begin_loss(loss *l, const loss_kind *k, deft_tensor *const *x, size_t n,
                       const deft_loss_options *options)
{
    for (size_t i = 0; i < n; i++)
        if (!x[i]) return false;
    l->cx = deft_ctx_of(x[0]);
    if (!l->cx) {
        (void)deft_abs(x[0]); /* records why x[0] cannot be used */
        return false;
    }
    const size_t size = options ? options->size : sizeof *options;
    if (!df_layer_options(l->cx, k->what, "deft_loss_options", &l->o, sizeof l->o, options, size) ||
        !check_members(l->cx, k, &l->o))
        return false;
    if (k->takes & TAKES_MARGIN && l->o.margin == 0) l->o.margin = k->margin;
    if (l->o.beta == 0) l->o.beta = 1;
    l->met = deft_result_type(x, n);
    const bool is_float = l->met == DEFT_F64 || l->met == DEFT_F16 || l->met == DEFT_BF16;
    if (!is_float) l->met = DEFT_F32;
    const deft_dtype t = l->met == DEFT_F64 ? DEFT_F64 : DEFT_F32;
    for (size_t i = 0; i < n; i++) l->x[i] = deft_cast(x[i], t);
    return true;
}

/* ---- reductions ---- */

static deft_tensor *all_of(deft_tensor *t, bool is_mean)
{
    const deft_axes all = { .n = UINT32_MAX };
    return is_mean ? deft_mean(t, all, false) : deft_sum(t, all, false);
}

static deft_tensor *rounded_loss(const loss *l, deft_tensor *t)
{
    const bool is_half = l->met == DEFT_F16 || l->met == DEFT_BF16;
    return is_half && t && !df_ctx_is_mixed(l->cx) ? deft_cast(t, l->met) : t;
}

static deft_tensor *reduced_loss(const loss *l, deft_tensor *t)
{
    switch (l->o.reduction) {
    case DEFT_REDUCTION_MEAN: return all_of(t, true);
    case DEFT_REDUCTION_SUM: return all_of(t, false);
    case DEFT_REDUCTION_NONE: return t;
    case DEFT_REDUCTION_BATCH_MEAN: break;
    }
    const int64_t n = deft_rank(t) ? deft_dim(t, 0) : 1;
    return deft_div_f(all_of(t, false), (double)n);
}

/* A loss of elements: made, weighted, reduced, rounded. */
static deft_tensor *elementwise_loss(const loss_kind *k, deft_tensor *const *x, size_t n,
                                     const deft_loss_options *options)
{
    loss l;
    if (!begin_loss(&l, k, x, n, options)) return NULL;
    deft_tensor *t = k->f(&l);
    if (t && l.o.weight) t = deft_mul(t, deft_cast(l.o.weight, deft_dtype_of(t)));
    return t ? rounded_loss(&l, reduced_loss(&l, t)) : NULL;
}

/* ---- losses of elements ---- */

static deft_tensor *zero_at_least(deft_tensor *t)
{
    return deft_relu(t);
}

static deft_tensor *squared_error(const loss *l)
{
    return deft_square(deft_sub(l->x[0], l->x[1]));
}

static deft_tensor *absolute_error(const loss *l)
{
    return deft_abs(deft_sub(l->x[0], l->x[1]));
}

static deft_tensor *smooth_error(const loss *l)
{
    deft_tensor *const d = deft_abs(deft_sub(l->x[0], l->x[1]));
    return deft_where(deft_lt_f(d, l->o.beta), deft_mul_f(deft_square(d), 0.5 / l->o.beta),
                      deft_sub_f(d, 0.5 * l->o.beta));
}

static deft_tensor *huber_error(const loss *l)
{
    const double beta = l->o.beta;
    deft_tensor *const d = deft_abs(deft_sub(l->x[0], l->x[1]));
    return deft_where(deft_le_f(d, beta), deft_mul_f(deft_square(d), 0.5),
                      deft_mul_f(deft_sub_f(d, 0.5 * beta), beta));
}

/* The logarithm of p, at least -100, with gradient 0 where it is cut off. */
static deft_tensor *bounded_log(deft_ctx *cx, deft_tensor *p)
{
    deft_tensor *const is_above = deft_gt_f(p, 3.720075976020836e-44); /* exp(-100) */
    deft_tensor *const log = deft_log(deft_where(is_above, p, deft_num_i(cx, 1)));
    return deft_where(is_above, log, deft_where(deft_isnan(p), p, deft_num(cx, -100)));
}

static deft_tensor *binary_cross_entropy(const loss *l)
{
    deft_tensor *const p = l->x[0], *const t = l->x[1];
    deft_tensor *const yes = deft_mul(t, bounded_log(l->cx, p));
    deft_tensor *const no = deft_mul(deft_rsub_f(t, 1), bounded_log(l->cx, deft_rsub_f(p, 1)));
    return deft_neg(deft_add(yes, no));
}

static deft_tensor *binary_cross_entropy_of_logits(const loss *l)
{
    deft_tensor *const x = l->x[0], *const t = l->x[1];
    deft_tensor *const no = deft_mul(deft_rsub_f(t, 1), x);
    deft_tensor *const log = deft_softplus(deft_neg(x));
    if (!l->o.pos_weight) return deft_add(no, log);
    deft_tensor *const more = deft_sub_f(deft_cast(l->o.pos_weight, deft_dtype_of(x)), 1);
    return deft_add(no, deft_mul(deft_add_f(deft_mul(more, t), 1), log));
}

static deft_tensor *divergence(const loss *l)
{
    deft_tensor *const x = l->x[0], *const t = l->x[1];
    if (l->o.log_target) return deft_mul(deft_exp(t), deft_sub(t, x));
    deft_tensor *const is_above = deft_gt_f(t, 0);
    deft_tensor *const log = deft_log(deft_where(is_above, t, deft_num_i(l->cx, 1)));
    deft_tensor *const rest = deft_where(deft_ge_f(t, 0), deft_num(l->cx, 0), deft_num(l->cx, NAN));
    deft_tensor *const own = deft_where(is_above, deft_mul(t, log), rest);
    return deft_sub(own, deft_mul(t, x));
}

static deft_tensor *last_sum(deft_tensor *t)
{
    return deft_sum(t, deft_axes_of(1, (const int[]){ -1 }), false);
}

static deft_tensor *cosine_embedding(const loss *l)
{
    deft_tensor *const a = l->x[0], *const b = l->x[1];
    deft_tensor *const aa = deft_add_f(last_sum(deft_square(a)), 1e-12);
    deft_tensor *const bb = deft_add_f(last_sum(deft_square(b)), 1e-12);
    deft_tensor *const cos = deft_div(last_sum(deft_mul(a, b)), deft_sqrt(deft_mul(aa, bb)));
    return deft_where(deft_eq_f(l->x[2], 1), deft_rsub_f(cos, 1),
                      zero_at_least(deft_sub_f(cos, l->o.margin)));
}

static deft_tensor *margin_ranking(const loss *l)
{
    deft_tensor *const way = deft_mul(l->x[2], deft_sub(l->x[1], l->x[0]));
    return zero_at_least(deft_add_f(way, l->o.margin));
}

static deft_tensor *hinge_embedding(const loss *l)
{
    deft_tensor *const x = l->x[0];
    return deft_where(deft_eq_f(l->x[1], 1), x, zero_at_least(deft_rsub_f(x, l->o.margin)));
}

static deft_tensor *soft_margin(const loss *l)
{
    return deft_softplus(deft_neg(deft_mul(l->x[0], l->x[1])));
}

static deft_tensor *distance_between(deft_tensor *a, deft_tensor *b)
{
    deft_tensor *const d = deft_add_f(deft_sub(a, b), 1e-6);
    return deft_vector_norm(d, 2, deft_axes_of(1, (const int[]){ -1 }), false);
}

static deft_tensor *triplet_margin(const loss *l)
{
    deft_tensor *const near = distance_between(l->x[0], l->x[1]);
    deft_tensor *far = distance_between(l->x[0], l->x[2]);
    if (l->o.swap) far = deft_minimum(far, distance_between(l->x[1], l->x[2]));
    return zero_at_least(deft_add_f(deft_sub(near, far), l->o.margin));
}

static const loss_kind bce = { "bce_loss", TAKES_WEIGHT, binary_cross_entropy, 0 },
                       bce_logits = { "bce_logits_loss", TAKES_WEIGHT | TAKES_POS_WEIGHT,
                                      binary_cross_entropy_of_logits, 0 },
                       mse = { "mse_loss", TAKES_WEIGHT, squared_error, 0 },
                       l1 = { "l1_loss", TAKES_WEIGHT, absolute_error, 0 },
                       smooth_l1 = { "smooth_l1_loss", TAKES_WEIGHT | TAKES_BETA, smooth_error, 0 },
                       huber = { "huber_loss", TAKES_WEIGHT | TAKES_BETA, huber_error, 0 },
                       kl = { "kl_div", TAKES_LOG_TARGET | TAKES_BATCH_MEAN, divergence, 0 },
                       cosine = { "cosine_embedding_loss", TAKES_MARGIN, cosine_embedding, 0 },
                       ranking = { "margin_ranking_loss", TAKES_MARGIN, margin_ranking, 0 },
                       hinge = { "hinge_embedding_loss", TAKES_MARGIN, hinge_embedding, 1 },
                       soft = { "soft_margin_loss", 0, soft_margin, 0 },
                       triplet = { "triplet_margin_loss", TAKES_MARGIN | TAKES_SWAP, triplet_margin,
                                   1 };

/* ---- losses of labels ---- */

/* The loss of logarithms of probabilities. */
typedef struct label_loss {
    loss l;
    deft_tensor *log;    /* [N, classes, ...] */
    int axis;            /* of the classes */
    deft_tensor *weight; /* with the shape of the classes' axis and those behind it; NULL: none */
    double smoothing;
} label_loss;

static deft_axes classes_axis(const label_loss *c)
{
    return deft_axes_of(1, (const int[]){ c->axis });
}

/* t, which has one element for each class, with axes of extent 1 behind. */
static deft_tensor *along_classes(const label_loss *c, deft_tensor *t)
{
    deft_shape s = { .rank = deft_rank(c->log) - (uint32_t)c->axis, .dim = { deft_numel(t) } };
    for (uint32_t i = 1; i < s.rank; i++) s.dim[i] = 1;
    return deft_reshape(t, s);
}

/* The sum of v over the classes that are `hit`. v may be NULL for ones. */
static deft_tensor *sum_of_hits(const label_loss *c, deft_tensor *hit, deft_tensor *v)
{
    deft_tensor *const of = v ? v : deft_num_i(c->l.cx, 1);
    deft_tensor *const zero = deft_zeros(c->l.cx, (deft_shape){ .rank = 0 }, deft_dtype_of(c->log));
    return deft_sum(deft_where(hit, of, zero), classes_axis(c), false);
}

/* The part of the loss of each row that its label has, and the part that all classes share. */
static deft_tensor *smoothed(const label_loss *c, deft_tensor *own)
{
    if (c->smoothing == 0) return own;
    const double n = (double)deft_dim(c->log, c->axis);
    deft_tensor *const terms = c->weight ? deft_mul(c->log, c->weight) : c->log;
    deft_tensor *const all = deft_neg(deft_sum(terms, classes_axis(c), false));
    return deft_add(deft_mul_f(own, 1 - c->smoothing), deft_mul_f(all, c->smoothing / n));
}

static deft_tensor *loss_of_labels(label_loss *c, deft_tensor *labels)
{
    const loss *const l = &c->l;
    const int64_t classes = deft_dim(c->log, c->axis);
    const deft_dtype t = deft_dtype_of(c->log);
    deft_tensor *const each = along_classes(c, deft_iota(l->cx, deft_shape_of(1, &classes), 0));
    deft_tensor *const hit = deft_eq(deft_unsqueeze(deft_cast(labels, DEFT_I64), c->axis), each);
    deft_tensor *const found = deft_any(hit, classes_axis(c), false);
    deft_tensor *factor = sum_of_hits(c, hit, c->weight);
    deft_tensor *row = deft_mul(deft_neg(sum_of_hits(c, hit, c->log)), factor);
    row = deft_where(found, smoothed(c, row), deft_num(l->cx, NAN));
    if (l->o.ignores) {
        deft_tensor *const is_out = deft_eq_i(labels, l->o.ignored);
        deft_tensor *const zero = deft_zeros(l->cx, (deft_shape){ .rank = 0 }, t);
        row = deft_where(is_out, zero, row);
        factor = deft_where(is_out, zero, factor);
    }
    if (l->o.reduction != DEFT_REDUCTION_MEAN) return reduced_loss(l, row);
    return deft_div(all_of(row, false), all_of(factor, false));
}

static deft_tensor *loss_of_probabilities(label_loss *c, deft_tensor *target)
{
    const double n = (double)deft_dim(c->log, c->axis);
    if (c->smoothing != 0)
        target = deft_add_f(deft_mul_f(target, 1 - c->smoothing), c->smoothing / n);
    deft_tensor *const terms = deft_mul(c->log, c->weight ? deft_mul(target, c->weight) : target);
    return reduced_loss(&c->l, deft_neg(deft_sum(terms, classes_axis(c), false)));
}

static bool is_float_dtype(deft_dtype t)
{
    return t == DEFT_F32 || t == DEFT_F64 || t == DEFT_F16 || t == DEFT_BF16;
}

/* Whether the target fits x: labels without the classes' axis, or probabilities. */
static bool check_target(const char *what, deft_tensor *x, deft_tensor *target, int axis,
                         bool takes_probabilities)
{
    const deft_shape a = deft_shape_get(x), b = deft_shape_get(target);
    deft_shape want = a;
    const bool has_probabilities = is_float_dtype(deft_dtype_of(target));
    if (!has_probabilities) {
        memmove(want.dim + axis, want.dim + axis + 1, (a.rank - (uint32_t)axis) * sizeof *want.dim);
        want.rank--;
    }
    const bool fits = a.rank > 0 && b.rank == want.rank &&
                      !memcmp(b.dim, want.dim, want.rank * sizeof *want.dim) &&
                      deft_dtype_of(target) != DEFT_BOOL &&
                      (!has_probabilities || takes_probabilities);
    if (fits) return true;
    char tx[DF_NN_TEXT], tt[DF_NN_TEXT];
    return df_error(deft_ctx_of(x), DEFT_E_SHAPE,
                    "%s: x is %s, the target is %s; it takes [N, classes, ...] and integer labels "
                    "[N, ...]%s",
                    what, df_nn_text(x, tx), df_nn_text(target, tt),
                    takes_probabilities ? ", or floats of the shape of x" : "");
}

static deft_tensor *loss_of_classes(const loss_kind *k, deft_tensor *x, deft_tensor *target,
                                    const deft_loss_options *options, bool has_logits)
{
    label_loss c;
    if (!target || !begin_loss(&c.l, k, &x, 1, options)) return NULL;
    c.axis = deft_rank(x) > 1;
    if (!check_target(k->what, x, target, c.axis, has_logits)) return NULL;
    c.log = has_logits ? deft_log_softmax(c.l.x[0], c.axis) : c.l.x[0];
    c.smoothing = c.l.o.smoothing;
    c.weight = NULL;
    deft_tensor *const w = c.l.o.weight;
    if (!c.log) return NULL;
    if (w && (deft_rank(w) != 1 || deft_dim(w, 0) != deft_dim(x, c.axis)))
        return df_error(c.l.cx, DEFT_E_SHAPE,
                        "%s: weight has %lld elements, there are %lld classes", k->what,
                        (long long)deft_numel(w), (long long)deft_dim(x, c.axis));
    if (w) c.weight = along_classes(&c, deft_cast(w, deft_dtype_of(c.log)));
    if (is_float_dtype(deft_dtype_of(target))) {
        if (c.l.o.ignores)
            return df_error(c.l.cx, DEFT_E_ARG, "%s: probabilities have no label to leave out",
                            k->what);
        return rounded_loss(&c.l,
                            loss_of_probabilities(&c, deft_cast(target, deft_dtype_of(c.log))));
    }
    return rounded_loss(&c.l, loss_of_labels(&c, target));
}

static const loss_kind cross_entropy = { "cross_entropy_loss",
                                         TAKES_WEIGHT | TAKES_IGNORED | TAKES_SMOOTHING, NULL, 0 },
                       nll = { "nll_loss", TAKES_WEIGHT | TAKES_IGNORED, NULL, 0 };

/* ---- public functions, with the line of their caller as call site ---- */

deft_tensor *deft_cross_entropy_loss(deft_tensor *logits, deft_tensor *target,
                                     const deft_loss_options *options)
{
    DF_LAYER_RETURN(deft_tensor *, deft_ctx_of(logits),
                    loss_of_classes(&cross_entropy, logits, target, options, true));
}

deft_tensor *deft_nll_loss(deft_tensor *log_probabilities, deft_tensor *labels,
                           const deft_loss_options *options)
{
    DF_LAYER_RETURN(deft_tensor *, deft_ctx_of(log_probabilities),
                    loss_of_classes(&nll, log_probabilities, labels, options, false));
}

#define LOSS_OF_TWO(name, kind)                                                                    \
    deft_tensor *deft_##name(deft_tensor *x, deft_tensor *target,                                  \
                             const deft_loss_options *options)                                     \
    {                                                                                              \
        deft_tensor *const list[] = { x, target };                                                 \
        DF_LAYER_RETURN(deft_tensor *, deft_ctx_of(x), elementwise_loss(&kind, list, 2, options)); \
    }
LOSS_OF_TWO(bce_loss, bce)
LOSS_OF_TWO(bce_logits_loss, bce_logits)
LOSS_OF_TWO(mse_loss, mse)
LOSS_OF_TWO(l1_loss, l1)
LOSS_OF_TWO(smooth_l1_loss, smooth_l1)
LOSS_OF_TWO(huber_loss, huber)
LOSS_OF_TWO(kl_div, kl)
LOSS_OF_TWO(hinge_embedding_loss, hinge)
LOSS_OF_TWO(soft_margin_loss, soft)
#undef LOSS_OF_TWO

#define LOSS_OF_THREE(name, kind)                                                                  \
    deft_tensor *deft_##name(deft_tensor *a, deft_tensor *b, deft_tensor *target,                  \
                             const deft_loss_options *options)                                     \
    {                                                                                              \
        deft_tensor *const list[] = { a, b, target };                                              \
        DF_LAYER_RETURN(deft_tensor *, deft_ctx_of(a), elementwise_loss(&kind, list, 3, options)); \
    }
LOSS_OF_THREE(cosine_embedding_loss, cosine)
LOSS_OF_THREE(margin_ranking_loss, ranking)
LOSS_OF_THREE(triplet_margin_loss, triplet)
#undef LOSS_OF_THREE
