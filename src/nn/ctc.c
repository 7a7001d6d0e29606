/* SPDX-License-Identifier: Apache-2.0
 *
 * Connectionist temporal classification (A. Graves et al. 2006). A target of S labels becomes a
 * line of 2 S + 1 places, with blanks before, between and after the labels. A path is at one place
 * at each time. It stays, goes on by one place, or passes over a blank between two labels that
 * differ. A deft_scan over time has the logarithm of the probability of all paths that end at each
 * place. So the gradient is that of the scan.
 *
 * Before the first time all paths are at the first blank. From there one step reaches the first
 * blank and the first label, where paths may begin.
 */
#include "nn/nn.h"

#include "deft/losses.h"

#include <math.h>

/* One call. P is 2 S + 1. */
typedef struct ctc {
    deft_ctx *cx;
    deft_ctc_options o;
    deft_dtype dtype;       /* in which it is computed */
    int64_t n, n_labels;    /* N, S */
    deft_tensor *classes;   /* i64 [N, P]: the class at each place */
    deft_tensor *may_pass;  /* bool [N, P]: whether the place before may be passed over */
    deft_tensor *n_times;   /* i64 [N, 1]; NULL: all */
    deft_tensor *n_targets; /* i64 [N, 1]; NULL: all */
} ctc;

/* ---- checks ---- */

static bool are_lengths(deft_tensor *t, int64_t n)
{
    return deft_isdtype(deft_dtype_of(t), DEFT_KIND_INTEGRAL) && deft_rank(t) == 1 &&
           deft_dim(t, 0) == n;
}

/* Takes the options, and checks the operands. Returns false with the error recorded. */
static bool begin_ctc(ctc *c, deft_tensor *x, deft_tensor *targets, deft_tensor *n_times,
                      deft_tensor *n_targets, const deft_ctc_options *options)
{
    char a[DF_NN_TEXT], b[DF_NN_TEXT];
    if (!df_layer_options(c->cx, "ctc_loss", "deft_ctc_options", &c->o, sizeof c->o, options,
                          options ? options->size : sizeof *options))
        return false;
    if (!deft_isdtype(deft_dtype_of(x), DEFT_KIND_REAL) ||
        !deft_isdtype(deft_dtype_of(targets), DEFT_KIND_INTEGRAL))
        return df_error(c->cx, DEFT_E_DTYPE,
                        "ctc_loss: logarithms are %s, targets are %s; it takes floats and integers",
                        df_nn_text(x, a), df_nn_text(targets, b));
    if (deft_rank(x) != 3 || deft_rank(targets) != 2 || deft_dim(x, 1) != deft_dim(targets, 0))
        return df_error(c->cx, DEFT_E_SHAPE,
                        "ctc_loss: logarithms are %s, targets are %s; it takes [T, N, C] and [N, "
                        "S]",
                        df_nn_text(x, a), df_nn_text(targets, b));
    c->n = deft_dim(x, 1);
    c->n_labels = deft_dim(targets, 1);
    if ((n_times && !are_lengths(n_times, c->n)) || (n_targets && !are_lengths(n_targets, c->n)))
        return df_error(c->cx, DEFT_E_SHAPE, "ctc_loss: lengths are to be %lld integers",
                        (long long)c->n);
    if (c->o.blank < 0 || c->o.blank >= deft_dim(x, 2) ||
        (unsigned)c->o.reduction > DEFT_REDUCTION_NONE)
        return df_error(c->cx, DEFT_E_ARG, "ctc_loss: blank %lld of %lld classes, reduction %d",
                        (long long)c->o.blank, (long long)deft_dim(x, 2), (int)c->o.reduction);
    c->dtype = deft_dtype_of(x) == DEFT_F64 ? DEFT_F64 : DEFT_F32;
    return true;
}

static deft_tensor *column(deft_tensor *lengths)
{
    return lengths ? deft_unsqueeze(deft_cast(lengths, DEFT_I64), 1) : NULL;
}

/* ---- places ---- */

/* t [N, P], moved to the right by some places; `value` comes in. */
static deft_tensor *moved(deft_tensor *t, int64_t by, double value)
{
    const int64_t before[] = { 0, by }, after[] = { 0, 0 };
    const deft_range part[] = { deft_range_of(0, DEFT_END, 1),
                                deft_range_of(0, deft_dim(t, 1), 1) };
    return deft_slice_n(deft_pad(t, before, after, DEFT_PAD_CONSTANT, value), 2, part);
}

/* Blanks between the labels, and which of them may be passed over. Labels behind the end of a
 * target may be any numbers: no path that counts is there. */
static void set_places(ctc *c, deft_tensor *targets)
{
    const deft_shape pairs = { .rank = 2, .dim = { c->n, 2 * c->n_labels } };
    targets = deft_cast(targets, DEFT_I64);
    if (c->n_targets) {
        const deft_shape line = { .rank = 2, .dim = { 1, c->n_labels } };
        targets = deft_where(deft_lt(deft_iota(c->cx, line, 1), c->n_targets), targets,
                             deft_num_i(c->cx, c->o.blank));
    }
    deft_tensor *const blanks = deft_full_like_i(targets, c->o.blank);
    deft_tensor *const both = deft_stack((deft_tensor *[]){ blanks, targets }, 2, 2);
    const int64_t none[] = { 0, 0 }, one[] = { 0, 1 };
    c->classes = deft_pad_i(deft_reshape(both, pairs), none, one, DEFT_PAD_CONSTANT, c->o.blank);
    deft_tensor *const is_label = deft_ne_i(c->classes, c->o.blank);
    c->may_pass = deft_bitwise_and(is_label, deft_ne(c->classes, moved(c->classes, 2, -1)));
}

/* ---- time ---- */

/* One time (deft_body_fn): in[0] has the logarithms at the places, in[1] is row [N, C] of the
 * logarithms of classes, in[2] the time. */
static deft_status step_of_paths(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                 deft_tensor **out, size_t n_out, void *user)
{
    const ctc *const c = user;
    (void)n_in, (void)n_out;
    deft_tensor *const none = deft_full(cx, (deft_shape){ 0 }, c->dtype, -INFINITY);
    deft_tensor *const passed = deft_where(c->may_pass, moved(in[0], 2, -INFINITY), none);
    deft_tensor *const before =
        deft_logaddexp(deft_logaddexp(in[0], moved(in[0], 1, -INFINITY)), passed);
    deft_tensor *const now = deft_add(before, deft_gather(in[1], c->classes, 1));
    out[0] = c->n_times ? deft_where(deft_lt(in[2], c->n_times), now, in[0]) : now;
    return out[0] ? DEFT_OK : deft_error(cx);
}

/* The logarithms [N, 1] at a place of each example, or -infinity before the first place. */
static deft_tensor *paths_at(const ctc *c, deft_tensor *paths, deft_tensor *place)
{
    deft_tensor *const at = deft_gather(paths, deft_maximum_i(place, 0), 1);
    return deft_where(deft_lt_i(place, 0), deft_full(c->cx, (deft_shape){ 0 }, c->dtype, -INFINITY),
                      at);
}

/* The loss of each example, [N]. */
static deft_tensor *losses_of(ctc *c, deft_tensor *x)
{
    const int64_t n_times = deft_dim(x, 0), n_places = 2 * c->n_labels + 1;
    const deft_shape s = { .rank = 2, .dim = { c->n, n_places } },
                     first = { .rank = 2, .dim = { c->n, 1 } },
                     line = { .rank = 1, .dim = { n_times } };
    deft_tensor *rows[] = { x, deft_iota(c->cx, line, 0) };
    deft_tensor *const start = deft_zeros(c->cx, first, c->dtype);
    const int64_t none[] = { 0, 0 }, others[] = { 0, s.dim[1] - 1 };
    deft_tensor *paths = deft_pad(start, none, others, DEFT_PAD_CONSTANT, -INFINITY);
    if (!paths || !c->may_pass ||
        !deft_scan(c->cx, step_of_paths, c, &paths, 1, rows, 2, n_times, 0, &paths))
        return NULL;
    deft_tensor *const n =
        c->n_targets ? c->n_targets : deft_full_i(c->cx, first, DEFT_I64, c->n_labels);
    deft_tensor *const last = deft_mul_i(n, 2);
    deft_tensor *const all =
        deft_logaddexp(paths_at(c, paths, last), paths_at(c, paths, deft_sub_i(last, 1)));
    deft_tensor *const loss = deft_neg(deft_squeeze(all, (deft_axes){ 1, { 1 } }));
    if (!c->o.zero_infinity) return loss;
    return deft_where(deft_isinf(loss), deft_num_i(c->cx, 0), loss);
}

static deft_tensor *reduced(const ctc *c, deft_tensor *loss)
{
    const deft_axes all = { .n = UINT32_MAX };
    if (!loss || c->o.reduction == DEFT_REDUCTION_NONE) return loss;
    if (c->o.reduction == DEFT_REDUCTION_SUM) return deft_sum(loss, all, false);
    deft_tensor *const n =
        c->n_targets ? deft_cast(deft_squeeze(c->n_targets, (deft_axes){ 1, { 1 } }), c->dtype)
                     : deft_full_i(c->cx, (deft_shape){ 0 }, c->dtype, c->n_labels);
    return deft_mean(deft_div(loss, deft_maximum_f(n, 1)), all, false);
}

static deft_tensor *ctc_loss(deft_tensor *x, deft_tensor *targets, deft_tensor *n_times,
                             deft_tensor *n_targets, const deft_ctc_options *options)
{
    ctc c = { .cx = deft_ctx_of(x) };
    if (!x || !targets) return NULL;
    if (!c.cx) return deft_abs(x); /* records why x cannot be used */
    if (!begin_ctc(&c, x, targets, n_times, n_targets, options)) return NULL;
    c.n_times = column(n_times);
    c.n_targets = column(n_targets);
    set_places(&c, targets);
    deft_tensor *const loss = reduced(&c, losses_of(&c, deft_cast(x, c.dtype)));
    const deft_dtype own = deft_dtype_of(x);
    const bool is_half = own == DEFT_F16 || own == DEFT_BF16;
    return is_half && loss && !df_ctx_is_mixed(c.cx) ? deft_cast(loss, own) : loss;
}

deft_tensor *deft_ctc_loss(deft_tensor *log_probabilities, deft_tensor *targets,
                           deft_tensor *n_times, deft_tensor *n_targets,
                           const deft_ctc_options *options)
{
    DF_LAYER_RETURN(deft_tensor *, deft_ctx_of(log_probabilities),
                    ctc_loss(log_probabilities, targets, n_times, n_targets, options));
}
