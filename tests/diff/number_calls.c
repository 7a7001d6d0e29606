/* SPDX-License-Identifier: Apache-2.0
 *
 * Bare numbers in every public call that takes more than one tensor. A number takes the dtype that
 * the tensors beside it promote to, at every place: so each call gives the same dtype and bits as
 * with a 0-d tensor of that dtype in the number's stead. Likewise in gradients, under vmap, and in
 * a capture, where the number is a parameter. The table is held against the headers (tools/
 * tensor_calls): a new call without a row fails.
 */
#define DEFT_NO_GENERIC
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deft/deft.h"
#include "../support/int_ref.h"

enum { N = 3, MAX_IN = 3 };

typedef enum kind {
    MEETS, /* its operands meet in one dtype */
    LIFTS, /* the same; halves are computed in f32, and so are its numbers */
    TAKES, /* the number takes the dtype of operand 0 */
    OTHER  /* no tensor and number meet in it, or there is a test of its own below */
} kind;

typedef deft_tensor *(*make_fn)(deft_tensor *const *x);

typedef struct row {
    const char *name;
    kind kind;
    int n_in, n_fixed; /* the first operands are never numbers */
    uint32_t rank;     /* of the tensors */
    make_fn f;
} row;

static deft_ctx *cx;
static long passed, failed;

/* ---- the calls ---- */

#define BINARY(name)                                                                               \
    static deft_tensor *f_##name(deft_tensor *const *x)                                            \
    {                                                                                              \
        return deft_##name(x[0], x[1]);                                                            \
    }
DEFT_BINARY_OPS(BINARY)

/* A formula in which both operands meet. */
static deft_tensor *f_apply_list(deft_tensor *const *x)
{
    deft_op *op;
    const deft_formula_def d = {
        .size = sizeof d, .name = "test.max", .version = 1, .text = "(x, y) { return max(x, y); }"
    };
    if (deft_formula_define(deft_ctx_runtime(cx), &d, &op, NULL, 0) != DEFT_OK) return NULL;
    return deft_apply(op, x[0], x[1]);
}

static deft_tensor *condition(void)
{
    return deft_from(cx, DEFT_SHAPE(N), DEFT_BOOL, (uint8_t[]){ 1, 0, 1 }, N);
}

static deft_tensor *indices(void)
{
    return deft_from(cx, DEFT_SHAPE(N), DEFT_I64, (int64_t[]){ 2, 0, 2 }, N * sizeof(int64_t));
}

#define MAKE(name, expr)                                                                           \
    static deft_tensor *f_##name(deft_tensor *const *x)                                            \
    {                                                                                              \
        return expr;                                                                               \
    }
MAKE(assign, deft_assign(deft_mul_i(x[0], 2), x[1]))
MAKE(clamp_t, deft_clamp_t(x[0], x[1], x[2]))
MAKE(index_add, deft_index_add(x[0], indices(), x[1], 0))
MAKE(layer_norm, deft_layer_norm(x[0], 1, x[1], x[2], 1e-3))
MAKE(lerp, deft_lerp(x[0], x[1], x[2]))
MAKE(lerp_f, deft_lerp_f(x[0], x[1], 0.3))
MAKE(lerp_i, deft_lerp_i(x[0], x[1], 2))
MAKE(lerp_u, deft_lerp_u(x[0], x[1], 2))
MAKE(rms_norm, deft_rms_norm(x[0], 1, x[1], 1e-3))
MAKE(scatter_add, deft_scatter_add(x[0], indices(), x[1], 0))
MAKE(scatter, deft_scatter(x[0], indices(), x[1], 0))
MAKE(index_copy, deft_index_copy(x[0], indices(), x[1], 0))
MAKE(scatter_reduce, deft_scatter_reduce(x[0], indices(), x[1], 0, DEFT_SCATTER_PROD, true))
MAKE(index_reduce, deft_index_reduce(x[0], indices(), x[1], 0, DEFT_SCATTER_AMAX, true))
static deft_tensor *const *start(void)
{
    static deft_tensor *at[1];
    at[0] = deft_full_i(cx, DEFT_SHAPE(), DEFT_I64, 0);
    return at;
}

MAKE(dynamic_update, deft_dynamic_update(x[0], x[1], start(), (int64_t[]){ N }))
MAKE(stack, deft_stack(x, 3, 0))
MAKE(where, deft_where(condition(), x[0], x[1]))
MAKE(searchsorted, deft_searchsorted(x[0], x[1], false))
MAKE(fma, deft_fma(x[0], x[1], x[2]))
MAKE(isin, deft_isin(x[0], x[1], false))

static deft_status give_second(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out, (void)user;
    out[0] = in[1];
    return DEFT_OK;
}

static deft_status give_first(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out, (void)user;
    out[0] = in[0];
    return DEFT_OK;
}

static deft_status multiply(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(in[0], in[1]);
    return DEFT_OK;
}

static deft_tensor *yes(void)
{
    return deft_gt_f(deft_sum(deft_cast(condition(), DEFT_F32), DEFT_ALL_AXES, 0), 0.5);
}

/* What one branch gives as a number, the other as a tensor; and both used together inside one. */
static deft_tensor *f_cond(deft_tensor *const *x)
{
    deft_tensor *out[2];
    if (!deft_cond(yes(), give_second, give_first, NULL, x, 2, &out[0], 1)) return NULL;
    if (!deft_cond(yes(), multiply, multiply, NULL, x, 2, &out[1], 1)) return NULL;
    return deft_add(out[0], out[1]);
}

/* States are tensors; what the body makes of one may be a number. */
static deft_tensor *f_scan(deft_tensor *const *x)
{
    deft_tensor *out = NULL, *const init[] = { x[0] };
    return deft_scan(cx, multiply, NULL, init, 1, (deft_tensor *const[]){ deft_stack(x, 2, 0) }, 1,
                     2, 0, &out)
               ? out
               : NULL;
}

MAKE(mse_loss, deft_mse_loss(x[0], x[1], NULL))
MAKE(l1_loss, deft_l1_loss(x[0], x[1], NULL))
MAKE(smooth_l1_loss, deft_smooth_l1_loss(x[0], x[1], NULL))
MAKE(huber_loss, deft_huber_loss(x[0], x[1], NULL))
MAKE(hinge_embedding_loss, deft_hinge_embedding_loss(x[0], x[1], NULL))
MAKE(soft_margin_loss, deft_soft_margin_loss(x[0], x[1], NULL))
MAKE(bce_loss, deft_bce_loss(x[0], x[1], NULL))
MAKE(bce_logits_loss, deft_bce_logits_loss(x[0], x[1], NULL))
MAKE(kl_div, deft_kl_div(x[0], x[1], NULL))
MAKE(margin_ranking_loss, deft_margin_ranking_loss(x[0], x[1], x[2], NULL))
MAKE(triplet_margin_loss, deft_triplet_margin_loss(x[0], x[1], x[2], NULL))
MAKE(cosine_embedding_loss, deft_cosine_embedding_loss(x[0], x[1], x[2], NULL))

static const row rows[] = {
#define BINARY_ROW(name) { #name, MEETS, 2, 0, 1, f_##name },
    DEFT_BINARY_OPS(BINARY_ROW){ "assign", TAKES, 2, 1, 1, f_assign },
    { "clamp_t", MEETS, 3, 0, 1, f_clamp_t },
    { "index_add", TAKES, 2, 1, 1, f_index_add },
    { "scatter_add", TAKES, 2, 1, 1, f_scatter_add },
    { "scatter", TAKES, 2, 1, 1, f_scatter },
    { "index_copy", TAKES, 2, 1, 1, f_index_copy },
    { "scatter_reduce", TAKES, 2, 1, 1, f_scatter_reduce },
    { "index_reduce", TAKES, 2, 1, 1, f_index_reduce },
    { "dynamic_update", TAKES, 2, 1, 1, f_dynamic_update },
    { "layer_norm", LIFTS, 3, 1, 1, f_layer_norm },
    { "rms_norm", LIFTS, 2, 1, 1, f_rms_norm },
    { "lerp", LIFTS, 3, 0, 1, f_lerp },
    { "lerp_f", LIFTS, 2, 0, 1, f_lerp_f },
    { "lerp_i", LIFTS, 2, 0, 1, f_lerp_i },
    { "lerp_u", LIFTS, 2, 0, 1, f_lerp_u },
#define LOSS_ROW(name, n)                                                                          \
    {                                                                                              \
#name, LIFTS, n, 0, 1, f_##name                                                            \
    }
    LOSS_ROW(mse_loss, 2),
    LOSS_ROW(l1_loss, 2),
    LOSS_ROW(smooth_l1_loss, 2),
    LOSS_ROW(huber_loss, 2),
    LOSS_ROW(hinge_embedding_loss, 2),
    LOSS_ROW(soft_margin_loss, 2),
    LOSS_ROW(bce_loss, 2),
    LOSS_ROW(bce_logits_loss, 2),
    LOSS_ROW(kl_div, 2),
    LOSS_ROW(margin_ranking_loss, 3),
    LOSS_ROW(triplet_margin_loss, 3),
    LOSS_ROW(cosine_embedding_loss, 3),
    { "stack", MEETS, 3, 0, 0, f_stack },
    { "where", MEETS, 2, 0, 1, f_where },
    { "apply_list", MEETS, 2, 0, 1, f_apply_list },
    { "searchsorted", MEETS, 2, 1, 1, f_searchsorted },
    { "fma", MEETS, 3, 0, 1, f_fma },
    { "isin", MEETS, 2, 0, 1, f_isin },
    { "complex", OTHER, 0, 0, 0, NULL }, /* unit/test_complex.c: numbers beside parts */
    { "polar", OTHER, 0, 0, 0, NULL },
    { "cond", MEETS, 2, 0, 0, f_cond },
    { "scan", MEETS, 2, 1, 0, f_scan },
    { "concat", OTHER, 0, 0, 0, NULL }, /* parts have an axis; as stack in all else */
    /* operands that must have axes of their own */
    { "matmul", OTHER, 0, 0, 0, NULL },
    { "einsum", OTHER, 0, 0, 0, NULL },
    { "tensordot", OTHER, 0, 0, 0, NULL },
    { "outer", OTHER, 0, 0, 0, NULL },
    { "polyval", OTHER, 0, 0, 0, NULL },
    { "vecdot", OTHER, 0, 0, 0, NULL },
    { "associative_scan", OTHER, 0, 0, 0, NULL },
    { "attention", OTHER, 0, 0, 0, NULL },
    { "conv2d", OTHER, 0, 0, 0, NULL },
    { "conv", OTHER, 0, 0, 0, NULL },
    { "conv_transpose", OTHER, 0, 0, 0, NULL },
    { "max_unpool", OTHER, 0, 0, 0, NULL },
    { "grid_sample", OTHER, 0, 0, 0, NULL },
    { "max_pool", OTHER, 0, 0, 0, NULL }, /* one operand; the indices are a result */
    { "cross_entropy_loss", OTHER, 0, 0, 0, NULL },
    { "nll_loss", OTHER, 0, 0, 0, NULL },
    { "ctc_loss", OTHER, 0, 0, 0, NULL },
    { "nn_rnn_call", OTHER, 0, 0, 0, NULL },
    { "beta", OTHER, 0, 0, 0,
      NULL }, /* draws: what its parameters meet in is promoted as a loss does it */
    { "binomial", OTHER, 0, 0, 0, NULL },
    { "cross_entropy", OTHER, 0, 0, 0, NULL },
    /* the second operand is an index or a mask */
    { "take", OTHER, 0, 0, 0, NULL },
    { "dynamic_slice", OTHER, 0, 0, 0, NULL },
    { "gather", OTHER, 0, 0, 0, NULL },
    { "embedding", OTHER, 0, 0, 0, NULL },
    { "compress", OTHER, 0, 0, 0, NULL },
    /* lists whose tensors do not meet each other */
    /* indices and numbers of repetitions are integers of their own */
    { "take_along_axis", OTHER, 0, 0, 0, NULL },
    { "repeat_t", OTHER, 0, 0, 0, NULL },
    { "histogram", OTHER, 0, 0, 0, NULL }, /* edges are a vector; as searchsorted in all else */
    { "bucketize", OTHER, 0, 0, 0, NULL },
    { "diff", OTHER, 0, 0, 0, NULL },     /* joins as concat does */
    { "meshgrid", OTHER, 0, 0, 0, NULL }, /* nothing meets */
    { "broadcast_tensors", OTHER, 0, 0, 0, NULL },
    { "result_type", OTHER, 0, 0, 0, NULL }, /* records nothing */
    { "eval", OTHER, 0, 0, 0, NULL },
    { "nan_check", OTHER, 0, 0, 0, NULL },
    { "capture_call", OTHER, 0, 0, 0, NULL },
    { "program_call", OTHER, 0, 0, 0, NULL },
    { "device_work", OTHER, 0, 0, 0, NULL },
    { "vmap", OTHER, 0, 0, 0, NULL },
    { "custom_grad", OTHER, 0, 0, 0, NULL },
    { "op_call", OTHER, 0, 0, 0, NULL },
    { "op_check", OTHER, 0, 0, 0, NULL },
    { "grad_check", OTHER, 0, 0, 0, NULL },
    { "while", OTHER, 0, 0, 0, NULL },
    /* seeds and tangents are made like the tensor that they belong to: tests/unit/test_grad.c */
    { "grad", OTHER, 0, 0, 0, NULL },
    { "jvp", OTHER, 0, 0, 0, NULL },
    { "value_and_grad", OTHER, 0, 0, 0, NULL },
    { "optim_accumulate", OTHER, 0, 0, 0, NULL },
    { "optim_step", OTHER, 0, 0, 0, NULL },
    { "optim_step_if", OTHER, 0, 0, 0, NULL },
    { "optim_step_t", OTHER, 0, 0, 0, NULL },
    { "optim_step_if_t", OTHER, 0, 0, 0, NULL },
};

enum { N_ROWS = sizeof rows / sizeof *rows };

/* ---- one case ---- */

typedef enum spelling { NUM, CONST, PARAM } spelling;

typedef struct number {
    bool is_int;
    double f;
    int64_t i;
} number;

typedef struct kase {
    const row *r;
    unsigned numbers; /* a bit per operand */
    deft_dtype t[MAX_IN];
    number n;
    spelling how;
} kase;

static bool is_float(deft_dtype t)
{
    return t != DEFT_BOOL && !int_ref_bits(t);
}

static bool is_half(deft_dtype t)
{
    return t == DEFT_F16 || t == DEFT_BF16;
}

static deft_tensor *bare(const kase *k)
{
    switch (k->how) {
    case NUM: return k->n.is_int ? deft_num_i(cx, k->n.i) : deft_num(cx, k->n.f);
    case CONST: return k->n.is_int ? deft_const_i(cx, k->n.i) : deft_const_f(cx, k->n.f);
    case PARAM: return k->n.is_int ? deft_param_i(cx, "n") : deft_param_f(cx, "n");
    }
    return NULL;
}

static deft_shape shape_of(const row *r)
{
    return r->rank ? DEFT_SHAPE(N) : DEFT_SHAPE();
}

static deft_tensor *tensor_at(const kase *k, int i)
{
    const float v[N] = { 3, 1 + (float)i, 2 };
    return deft_cast(deft_from(cx, shape_of(k->r), DEFT_F32, v, (k->r->rank ? N : 1) * sizeof *v),
                     k->t[i]);
}

/* What the number must be: the rule, written down once more. */
static deft_dtype dtype_met(const kase *k)
{
    deft_dtype t = DEFT_BOOL;
    bool any = false;
    for (int i = 0; i < k->r->n_in; i++) {
        if (k->numbers >> i & 1u) continue;
        t = any ? deft_promote(t, k->t[i]) : k->t[i];
        any = true;
        if (k->r->kind == TAKES) break;
    }
    if (!any) return k->n.is_int ? DEFT_I64 : DEFT_F32;
    if (k->n.is_int) return t == DEFT_BOOL ? DEFT_I64 : t;
    return is_float(t) ? t : DEFT_F32;
}

static deft_tensor *typed(const kase *k, deft_dtype as)
{
    if (k->n.is_int) return deft_full_i(cx, DEFT_SHAPE(), as, k->n.i);
    return deft_full(cx, DEFT_SHAPE(), as, k->n.f);
}

/* Results, bare and with tensors in the numbers' stead; x: the tensors themselves, for gradients.
 */
static deft_tensor *with_numbers(const kase *k, deft_tensor **x)
{
    deft_tensor *in[MAX_IN];
    for (int i = 0; i < k->r->n_in; i++)
        in[i] = k->numbers >> i & 1u ? bare(k) : (x[i] = tensor_at(k, i));
    return k->r->f(in);
}

static deft_tensor *with_tensors(const kase *k, deft_tensor **x)
{
    const deft_dtype as = dtype_met(k);
    const bool is_lifted = k->r->kind == LIFTS && is_half(as);
    deft_tensor *in[MAX_IN];
    for (int i = 0; i < k->r->n_in; i++) {
        if (k->numbers >> i & 1u) {
            in[i] = typed(k, is_lifted ? DEFT_F32 : as);
        } else {
            x[i] = tensor_at(k, i);
            in[i] = is_lifted ? deft_cast(x[i], DEFT_F32) : x[i];
        }
    }
    deft_tensor *const y = k->r->f(in);
    return is_lifted ? deft_cast(y, as) : y;
}

static const char *text_of(const kase *k)
{
    static char text[160];
    snprintf(text, sizeof text, "%s, numbers at %u, tensors %s %s %s, %s %.17g", k->r->name,
             k->numbers, deft_dtype_name(k->t[0]), deft_dtype_name(k->t[1]),
             deft_dtype_name(k->t[2]), k->n.is_int ? "integer" : "fraction",
             k->n.is_int ? (double)k->n.i : k->n.f);
    return text;
}

static void fail(const kase *k, const char *why)
{
    if (failed++ < 20) printf("%s: %s\n", text_of(k), why);
}

/* Both fail, or both give the same dtype, shape and bits. */
static void same(const kase *k, const char *what, deft_tensor *a, deft_tensor *b)
{
    unsigned char x[256], y[256];
    char why[400];
    const size_t size = deft_dtype_size(deft_dtype_of(a)) * (size_t)deft_numel(a);
    if (!a != !b) {
        snprintf(why, sizeof why, "%s: %s alone is refused: %s", what,
                 a ? "the tensor" : "the number", deft_message(cx));
        fail(k, why);
    } else if (a && (deft_dtype_of(a) != deft_dtype_of(b) || deft_numel(a) != deft_numel(b))) {
        snprintf(why, sizeof why, "%s: gives %s, not %s", what, deft_dtype_name(deft_dtype_of(a)),
                 deft_dtype_name(deft_dtype_of(b)));
        fail(k, why);
    } else if (a && (size > sizeof x || deft_read(a, deft_dtype_of(a), x, size) != DEFT_OK ||
                     deft_read(b, deft_dtype_of(b), y, size) != DEFT_OK || memcmp(x, y, size))) {
        snprintf(why, sizeof why, "%s: other bits %s", what, deft_message(cx));
        fail(k, why);
    } else {
        passed++;
    }
    deft_clear(cx);
}

static void plain_is_same(const kase *k)
{
    deft_tensor *x[MAX_IN];
    deft_tensor *const a = with_numbers(k, x);
    if (!a) deft_clear(cx); /* no rule for these dtypes: then there is none with tensors either */
    same(k, "value", a, with_tensors(k, x));
}

static deft_tensor *gradient(const kase *k, deft_tensor *(*make)(const kase *, deft_tensor **))
{
    deft_tensor *x[MAX_IN] = { 0 }, *g = NULL, *with = NULL;
    deft_tensor *const y = make(k, x);
    const deft_grad_options o = { .size = sizeof o, .unused_is_zero = true };
    for (int i = 0; i < k->r->n_in && !with; i++) with = x[i];
    if (!y || !is_float(deft_dtype_of(y)) || !is_float(deft_dtype_of(with))) return NULL;
    deft_tensor *const of = deft_sum(y, DEFT_ALL_AXES, 0);
    return deft_grad(&of, NULL, 1, &with, 1, &o, &g) ? g : NULL;
}

static void gradient_is_same(const kase *k)
{
    const deft_scope s = deft_scope_begin(cx);
    deft_tensor *const a = gradient(k, with_numbers);
    deft_clear(cx);
    same(k, "gradient", a, gradient(k, with_tensors));
    if (deft_scope_end(s) != DEFT_OK) fail(k, deft_message(cx));
}

static deft_status one_example(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    const kase *const k = user;
    deft_tensor *all[MAX_IN];
    int next = 0;
    (void)c, (void)n_in, (void)n_out;
    for (int i = 0; i < k->r->n_in; i++) all[i] = k->numbers >> i & 1u ? bare(k) : in[next++];
    out[0] = k->r->f(all);
    return out[0] ? DEFT_OK : DEFT_E_DTYPE;
}

/* Two equal examples; each has the value of one. */
static void vmap_is_same(const kase *k)
{
    deft_tensor *x[MAX_IN], *in[MAX_IN], *out = NULL;
    size_t n = 0;
    if (k->r->f == f_assign) return; /* assigns what a vmap does not own */
    for (int i = 0; i < k->r->n_in; i++)
        if (!(k->numbers >> i & 1u))
            in[n++] = deft_stack((deft_tensor *const[]){ tensor_at(k, i), tensor_at(k, i) }, 2, 0);
    if (!deft_vmap(cx, one_example, (void *)(uintptr_t)k, in, NULL, n, &out, NULL, 1)) out = NULL;
    if (!out) deft_clear(cx);
    deft_tensor *const one = with_tensors(k, x);
    same(k, "vmap", out, one ? deft_stack((deft_tensor *const[]){ one, one }, 2, 0) : NULL);
}

/* ---- captures ---- */

static deft_status captured(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    return one_example(c, in, n_in, out, n_out, user);
}

static deft_status set(deft_capture *c, const number *n)
{
    return n->is_int ? deft_capture_set_i(c, "n", n->i) : deft_capture_set_f(c, "n", n->f);
}

/* The number is a parameter: another one is replayed, with the dtype it had. */
static void parameter_is_same(const kase *k)
{
    kase p = *k, moved = *k;
    deft_tensor *x[MAX_IN], *in[MAX_IN], *out = NULL;
    deft_capture_stats stats = { 0 };
    size_t n = 0;
    p.how = PARAM;
    moved.n = (number){ k->n.is_int, 1.7, 5 };
    if (k->r->f == f_assign || k->r->f == f_lerp_f || k->r->f == f_lerp_i || k->r->f == f_lerp_u ||
        k->r->kind == TAKES || k->r->rank == 0)
        return; /* C numbers or memory inside, which no capture takes */
    if (!with_tensors(k, x)) {
        deft_clear(cx);
        return;
    }
    for (int i = 0; i < k->r->n_in; i++)
        if (!(k->numbers >> i & 1u)) in[n++] = tensor_at(k, i);
    deft_capture *c = deft_capture_create(cx, captured, &p);
    for (int turn = 0; turn < 2; turn++) {
        const kase *const now = turn ? &moved : k;
        if (set(c, &now->n) != DEFT_OK || deft_capture_call(c, in, n, &out, 1) != DEFT_OK)
            fail(k, deft_message(cx));
        else
            same(now, "capture", out, with_tensors(now, x));
    }
    deft_capture_stats_read(c, &stats, sizeof stats);
    if (k->r->f != f_where && (stats.recordings != 1 || stats.replayed != 1))
        fail(k, deft_capture_reason(c));
    deft_capture_destroy(&c);
}

/* ---- all cases ---- */

static void check(const row *r, unsigned numbers, deft_dtype t0, deft_dtype t1, number n)
{
    kase k = { .r = r, .numbers = numbers, .t = { t0, t1, t0 }, .n = n };
    const deft_scope s = deft_scope_begin(cx);
    plain_is_same(&k);
    k.how = CONST;
    plain_is_same(&k);
    k.how = NUM;
    if (numbers + 1 < 1u << r->n_in) {
        gradient_is_same(&k);
        vmap_is_same(&k);
    }
    if (deft_scope_end(s) != DEFT_OK) fail(&k, deft_message(cx));
    if (numbers + 1 < 1u << r->n_in && t0 == t1) {
        const deft_scope outer = deft_scope_begin(cx);
        parameter_is_same(&k);
        if (deft_scope_end(outer) != DEFT_OK) fail(&k, deft_message(cx));
    }
}

static void check_row(const row *r, bool is_quick)
{
    static const deft_dtype all[] = { DEFT_BOOL, DEFT_U8,  DEFT_I32,  DEFT_I64, DEFT_F32,
                                      DEFT_F64,  DEFT_F16, DEFT_BF16, DEFT_I8,  DEFT_I16,
                                      DEFT_U16,  DEFT_U32, DEFT_U64 };
    const int n = sizeof all / sizeof *all;
    static const number list[] = { { false, 0.1, 0 },
                                   { true, 0, 3 },
                                   { true, 0, ((int64_t)1 << 53) + 1 } };
    for (unsigned numbers = 1; numbers < 1u << r->n_in; numbers++) {
        if (numbers & ((1u << r->n_fixed) - 1)) continue;
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++) {
                if (b != a && (r->n_in < 3 || is_quick || (a + b) % 3)) continue;
                if (deft_promote(all[a], all[b]) == DEFT_N_DTYPES) continue;
                check(r, numbers, all[a], all[b], list[0]);
                check(r, numbers, all[a], all[b], list[1]);
                if (all[a] == DEFT_I64 && a == b) check(r, numbers, all[a], all[b], list[2]);
            }
    }
}

static void check_headers(void)
{
    static const char *const calls[] = {
#define X(name) #name,
#include "tensor_calls.inc"
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        bool has_row = false;
        for (int k = 0; k < N_ROWS; k++) has_row |= !strcmp(rows[k].name, calls[i]);
        if (has_row) continue;
        printf("deft_%s takes more than one tensor and has no row here\n", calls[i]);
        failed++;
    }
}

/* ---- what has no tensor beside it ---- */

static void gives(const char *what, deft_tensor *t, deft_dtype dtype, double want)
{
    double got = NAN;
    if (deft_dtype_of(t) == dtype && deft_item_f64(t, &got) == DEFT_OK && got == want) {
        passed++;
        return;
    }
    printf("%s: %s %.17g, not %s %.17g: %s\n", what, deft_dtype_name(deft_dtype_of(t)), got,
           deft_dtype_name(dtype), want, deft_message(cx));
    failed++;
    deft_clear(cx);
}

/* A cast converts what was written; so does what asks for 0. */
static void check_conversions(void)
{
    gives("cast to f64", deft_cast(deft_num(cx, 0.1), DEFT_F64), DEFT_F64, 0.1);
    gives("cast to i64", deft_cast(deft_num(cx, 16777217), DEFT_I64), DEFT_I64, 16777217);
    gives("cast to f32", deft_cast(deft_num(cx, 0.1), DEFT_F32), DEFT_F32, (double)0.1f);
    gives("cast that overflows", deft_cast(deft_num(cx, 1e300), DEFT_F32), DEFT_F32, INFINITY);
    gives("cast to bool", deft_cast(deft_num(cx, 1e-300), DEFT_BOOL), DEFT_BOOL, 1);
    gives("logical",
          deft_logical_and(deft_num(cx, 1e-300), deft_full(cx, DEFT_SHAPE(), DEFT_U8, 1)),
          DEFT_BOOL, 1);
    gives("logical of u8",
          deft_logical_or(deft_full(cx, DEFT_SHAPE(), DEFT_U8, 0), deft_num_i(cx, 256)), DEFT_BOOL,
          1);
    gives("condition", deft_where(deft_num(cx, 1e-300), deft_num(cx, 2), deft_num_i(cx, 3)),
          DEFT_F32, 2);
    gives("stop_gradient",
          deft_mul(deft_stop_gradient(deft_num(cx, 0.1)), deft_full(cx, DEFT_SHAPE(), DEFT_F64, 1)),
          DEFT_F64, 0.1);
}

/* Under a policy numbers take the dtype that the operation computes in. */
static void check_policy(void)
{
    deft_tensor *const x = deft_full(cx, DEFT_SHAPE(), DEFT_F16, 2);
    double want = NAN;
    const deft_dtype was = deft_mixed_set(cx, DEFT_F16);
    if (deft_item_f64(deft_pow_f(x, 0.1), &want) != DEFT_OK) failed++;
    gives("pow under a policy", deft_pow(x, deft_num(cx, 0.1)), DEFT_F32, want);
    deft_mixed_set(cx, was);
}

int main(int argc, char **argv)
{
    const bool is_quick = argc > 1 && !strcmp(argv[1], "--quick");
    deft_runtime *rt = NULL;
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 1,
                                     .tier = DEFT_TIER_INTERPRET };
    if (deft_runtime_create(&o, &rt) != DEFT_OK || deft_ctx_create(rt, NULL, &cx) != DEFT_OK)
        return 1;
    check_headers();
    for (int i = 0; i < N_ROWS; i++)
        if (rows[i].kind != OTHER) check_row(&rows[i], is_quick);
    check_conversions();
    check_policy();
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed != 0;
}
