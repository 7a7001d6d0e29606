/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixed precision: which dtypes operations take under a policy, that training in halves comes to
 * what f32 comes to, and what a gradient that overflows does.
 */
#include "support/budget.h"
#include "support/harness.h"

#include <math.h>
#include <string.h>

static const deft_dtype halves[] = { DEFT_F16, DEFT_BF16 };

static deft_tensor *of(rig *r, deft_shape s, deft_dtype t)
{
    return deft_cast(deft_full(r->cx, s, DEFT_F32, 0.5), t);
}

/* Which dtype a call gives. */
#define GIVES(call, dtype)                                                                         \
    do {                                                                                           \
        deft_tensor *const made = call;                                                            \
        cr_assert(made, "%s: %s", #call, deft_message(r.cx));                                      \
        cr_assert_eq(deft_dtype_of(made), dtype, "%s gives %s, not %s", #call,                     \
                     deft_dtype_name(deft_dtype_of(made)), deft_dtype_name(dtype));                \
    } while (0)

/* ---- the policy ---- */

static bool is_high(const char *name)
{
    static const char list[] = " square rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p tan "
                               "asin acos sinh cosh asinh acosh atanh cbrt erf erfc softplus "
                               "lgamma digamma erfinv i0 i0e i1 i1e ";
    char padded[32];
    snprintf(padded, sizeof padded, " %s ", name);
    return strstr(list, padded) != NULL;
}

static bool is_bool(const char *name)
{
    return !strncmp(name, "is", 2) || !strncmp(name, "logical", 7) || !strcmp(name, "signbit");
}

Test(mixed, unary_operations)
{
    rig r;
    rig_open(&r, NULL, NULL);
    for (size_t k = 0; k < 2; k++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const x = of(&r, DEFT_SHAPE(3), halves[k]);
        deft_tensor *const wide = of(&r, DEFT_SHAPE(3), DEFT_F32);
        for (int on = 0; on < 2; on++) {
            deft_mixed_set(r.cx, on ? halves[k] : DEFT_F32);
#define X(name)                                                                                    \
    if (strcmp(#name, "bitwise_not")) {                                                            \
        const bool high = on && is_high(#name);                                                    \
        GIVES(deft_##name(x), is_bool(#name) ? DEFT_BOOL : high ? DEFT_F32 : halves[k]);           \
        GIVES(deft_##name(wide), is_bool(#name) ? DEFT_BOOL : DEFT_F32);                           \
    }
            DEFT_UNARY_OPS(X)
#undef X
        }
        deft_mixed_set(r.cx, DEFT_F32);
        OK(&r, deft_scope_end(s));
    }
    rig_close(&r);
}

Test(mixed, other_operations)
{
    rig r;
    rig_open(&r, NULL, NULL);
    for (size_t k = 0; k < 2; k++) {
        const deft_dtype low = halves[k];
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const x = of(&r, DEFT_SHAPE(4, 4), low), *const f = deft_cast(x, DEFT_F32);
        deft_tensor *const d = deft_cast(x, DEFT_F64), *const i = deft_cast(x, DEFT_I32);
        deft_tensor *const rows = deft_slice(i, DEFT_FULL, DEFT_AT(0));
        deft_tensor *const image = deft_reshape(f, DEFT_SHAPE(1, 1, 4, 4));
        GIVES(deft_conv2d(deft_cast(image, low), deft_cast(image, low), NULL), low);
        cr_assert_eq(deft_mixed_set(r.cx, low), DEFT_F32);
        /* low */
        GIVES(deft_matmul(f, f), low);
        GIVES(deft_matmul(x, f), low);
        GIVES(deft_matmul(i, f), low);
        GIVES(deft_matmul(d, d), DEFT_F64);
        GIVES(deft_attention(f, f, f, NULL), low);
        GIVES(deft_conv2d(image, image, NULL), low);
        /* high */
        GIVES(deft_sum(x, DEFT_ALL_AXES, 0), DEFT_F32);
        GIVES(deft_prod(x, DEFT_ALL_AXES, 0), DEFT_F32);
        GIVES(deft_mean(x, DEFT_ALL_AXES, 0), DEFT_F32);
        GIVES(deft_var(x, DEFT_ALL_AXES, 0, 0), DEFT_F32);
        GIVES(deft_cumsum(x, 0), DEFT_F32);
        GIVES(deft_softmax(x, 1), DEFT_F32);
        GIVES(deft_log_softmax(x, 1), DEFT_F32);
        GIVES(deft_layer_norm(x, 1, NULL, NULL, 1e-5), DEFT_F32);
        GIVES(deft_rms_norm(x, 1, NULL, 1e-5), DEFT_F32);
        GIVES(deft_cross_entropy(x, rows), DEFT_F32);
        GIVES(deft_pow(x, x), DEFT_F32);
        GIVES(deft_pow(x, 2.5), DEFT_F32);
        GIVES(deft_pow(x, 3), DEFT_F32);
        /* widest */
        GIVES(deft_add(x, f), DEFT_F32);
        GIVES(deft_add(x, x), low);
        GIVES(deft_mul(x, 0.5), low);
        GIVES(deft_where(deft_lt(x, f), x, f), DEFT_F32);
        /* same */
        GIVES(deft_max(x, DEFT_ALL_AXES, 0), low);
        GIVES(deft_take(f, rows, 0), DEFT_F32);
        GIVES(deft_t(x), low);
        cr_assert_eq(deft_mixed_set(r.cx, DEFT_F32), low);
        GIVES(deft_matmul(f, f), DEFT_F32);
        GIVES(deft_softmax(x, 1), low);
        OK(&r, deft_scope_end(s));
    }
    cr_assert_eq(deft_mixed_set(r.cx, DEFT_I32), DEFT_F32);
    cr_assert_eq(deft_error(r.cx), DEFT_E_DTYPE);
    deft_clear(r.cx);
    cr_assert_eq(deft_mixed_set(r.cx, DEFT_F32), DEFT_F32, "what fails changes nothing");
    cr_assert_eq(deft_mixed_set(NULL, DEFT_F16), DEFT_F32);
    rig_close(&r);
}

/* Halves keep 8 or 11 bits: the sum of 3,000 ones is no half of the former. */
Test(mixed, sums_are_not_rounded)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_mixed_set(r.cx, DEFT_BF16);
    deft_tensor *const x = deft_cast(deft_ones(r.cx, DEFT_SHAPE(3001), DEFT_F32), DEFT_BF16);
    cr_assert_eq(rig_item(&r, deft_sum(x, DEFT_ALL_AXES, 0)), 3001);
    deft_mixed_set(r.cx, DEFT_F32);
    cr_assert_eq(rig_item(&r, deft_sum(x, DEFT_ALL_AXES, 0)), 3008);
    rig_close(&r);
}

/* The same calls with the policy switched between steps are other records each time. */
static void switched(bool is_binary)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_tensor *const w = rig_range(&r, 4, 1), *const out = rig_range(&r, 4, 0);
    const float want[2] = { 1 + 0x1p-9f, 1 };
    for (int i = 0; i < 8; i++) {
        const int on = i / 2 % 2;
        float v[4];
        deft_mixed_set(r.cx, on ? DEFT_BF16 : DEFT_F32);
        const deft_scope s = deft_step_begin(r.cx);
        deft_tensor *const half = deft_cast(w, DEFT_BF16);
        GIVES(is_binary ? deft_pow(half, half) : deft_exp(half), on ? DEFT_F32 : DEFT_BF16);
        deft_tensor *const a = deft_mul(deft_div(w, w), 1 + 0x1p-9);
        deft_tensor *const b = deft_reshape(a, DEFT_SHAPE(4, 1));
        deft_tensor *const one = deft_ones(r.cx, DEFT_SHAPE(1, 1), DEFT_F32);
        deft_assign(out, deft_cast(deft_reshape(deft_matmul(b, one), DEFT_SHAPE(4)), DEFT_F32));
        OK(&r, deft_step_end(s));
        rig_read(&r, out, v, 4);
        cr_assert_eq(v[0], want[on], "step %d: %.9g", i, (double)v[0]);
    }
    cr_assert_eq(rig_stats(&r).plans_built, 2);
    rig_close(&r);
}

Test(mixed, a_step_that_is_matched_with_the_one_before)
{
    switched(false);
    switched(true);
}

static deft_status square(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_cast(deft_matmul(in[0], in[0]), DEFT_F32);
    return DEFT_OK;
}

Test(mixed, a_capture_is_recorded_again)
{
    rig r;
    rig_open(&r, NULL, NULL);
    deft_capture *c = deft_capture_create(r.cx, square, NULL);
    deft_tensor *x = deft_full(r.cx, DEFT_SHAPE(1, 1), DEFT_F32, 1 + 0x1p-9);
    for (int i = 0; i < 4; i++) {
        deft_tensor *y;
        deft_mixed_set(r.cx, i % 2 ? DEFT_BF16 : DEFT_F32);
        OK(&r, deft_capture_call(c, &x, 1, &y, 1));
        cr_assert_eq(rig_item(&r, y) == 1, i % 2 == 1, "call %d", i);
        if (i < 2) continue;
        cr_assert_str_empty(deft_capture_reason(c), "%s", deft_capture_reason(c));
    }
    deft_capture_destroy(&c);
    rig_close(&r);
}

/* Recorded where the policy holds, gradients still have their tensors' dtypes. */
Test(mixed, gradients_have_the_dtype_of_what_they_belong_to)
{
    rig r;
    rig_open(&r, NULL, NULL);
    for (size_t k = 0; k < 2; k++) {
        const deft_scope s = deft_scope_begin(r.cx);
        deft_tensor *const a = of(&r, DEFT_SHAPE(3, 1), halves[k]);
        deft_tensor *const b = of(&r, DEFT_SHAPE(1, 4), DEFT_F32), *const c =
                                                                       deft_cast(b, halves[k]);
        deft_mixed_set(r.cx, halves[k]);
        deft_tensor *const y = deft_mul(deft_mul(a, c), deft_matmul(a, b));
        deft_tensor *const of_y = deft_sum(deft_exp(y), DEFT_ALL_AXES, 0);
        deft_tensor *const with[] = { a, b, c };
        deft_tensor *g[3];
        cr_assert(deft_grad(&of_y, NULL, 1, with, 3, NULL, g), "%s", deft_message(r.cx));
        for (int i = 0; i < 3; i++) cr_assert_eq(deft_dtype_of(g[i]), deft_dtype_of(with[i]));
        cr_assert_eq(deft_mixed_set(r.cx, DEFT_F32), halves[k], "and the policy holds on");
        OK(&r, deft_eval(g, 3));
        deft_tensor *const pair[] = { a, c };
        deft_tensor *image, *const low = deft_mul(a, c);
        deft_mixed_set(r.cx, halves[k]);
        cr_assert(deft_jvp(&low, 1, pair, pair, 2, NULL, &image), "%s", deft_message(r.cx));
        cr_assert_eq(deft_mixed_set(r.cx, DEFT_F32), halves[k]);
        GIVES(image, halves[k]);
        OK(&r, deft_scope_end(s));
    }
    rig_close(&r);
}

Test(mixed, attention_over_several_blocks)
{
    enum { T = DEFT_ATTENTION_BLOCK + 2, D = 4 };
    rig r;
    rig_open(&r, NULL, NULL);
    static float x[T * D];
    float want[D], got[D];
    for (int i = 0; i < T * D; i++) x[i] = sinf((float)i);
    deft_tensor *const k = deft_from(r.cx, DEFT_SHAPE(T, D), DEFT_F32, x, sizeof x);
    deft_tensor *const q = deft_slice(k, DEFT_R(0, 1));
    deft_tensor *const low_q = deft_cast(q, DEFT_F16), *const low_k = deft_cast(k, DEFT_F16);
    rig_read(&r, deft_attention(low_q, low_k, low_k, NULL), want, D);
    deft_mixed_set(r.cx, DEFT_F16);
    GIVES(deft_attention(q, k, k, NULL), DEFT_F16);
    deft_tensor *g, *const y = deft_attention(q, k, k, NULL);
    rig_read(&r, y, got, D);
    cr_assert_arr_eq(got, want, sizeof want, "rounded on the way");
    deft_tensor *const total = deft_sum(y, DEFT_ALL_AXES, 0);
    cr_assert(deft_grad(&total, NULL, 1, &k, 1, NULL, &g), "%s", deft_message(r.cx));
    GIVES(g, DEFT_F32);
    OK(&r, deft_eval(&g, 1));
    deft_mixed_set(r.cx, DEFT_F32);
    rig_close(&r);
}

/* ---- training ---- */

enum { IN = 8, HIDDEN = 8, OUT = 4, ROWS = 128 };

typedef struct net {
    rig r;
    deft_nn *nn;
    deft_nn_linear up, down;
    deft_nn_norm norm;
    deft_optim *optim;
    deft_scaler *scaler;
    deft_tensor *x, *labels, *loss;
    deft_dtype low;
    double factor; /* of the loss, besides its scale */
} net;

static void net_open(net *n, deft_dtype low, const deft_scaler_options *scaler)
{
    float x[ROWS * IN];
    int32_t labels[ROWS];
    *n = (net){ .low = low, .factor = 1 };
    rig *const r = &n->r;
    rig_open(r, NULL, NULL);
    OK(r, deft_nn_create(r->cx, NULL, &n->nn));
    cr_assert(deft_nn_linear_init(&n->up, n->nn, "up", IN, HIDDEN, true));
    cr_assert(deft_nn_norm_init_layer(&n->norm, n->nn, "norm", HIDDEN));
    cr_assert(deft_nn_linear_init(&n->down, n->nn, "down", HIDDEN, OUT, true));
    OK(r, deft_optim_create(n->nn, NULL, &n->optim));
    OK(r, deft_scaler_create(n->nn, scaler, &n->scaler));
    uint32_t seed = 1;
    for (int i = 0; i < ROWS; i++) {
        labels[i] = i % OUT;
        for (int k = 0; k < IN; k++) { /* noise, and a little of the label */
            seed = seed * 1664525u + 1013904223u;
            x[i * IN + k] = (float)(seed >> 8) * 0x1p-22f - 2 + (k == labels[i] ? 0.8f : 0);
        }
    }
    n->x = deft_keep(deft_from(r->cx, DEFT_SHAPE(ROWS, IN), DEFT_F32, x, sizeof x));
    n->labels = deft_keep(deft_from(r->cx, DEFT_SHAPE(ROWS), DEFT_I32, labels, sizeof labels));
    n->loss = deft_keep(deft_zeros(r->cx, DEFT_SHAPE(), DEFT_F32));
    OK(r, deft_eval(&n->loss, 1));
}

static void net_close(net *n)
{
    deft_scaler_destroy(&n->scaler);
    deft_optim_destroy(&n->optim);
    deft_nn_destroy(&n->nn);
    rig_close(&n->r);
}

static void train_step(net *n, double rate)
{
    deft_tensor *g[8];
    const size_t n_p = deft_optim_n(n->optim);
    const deft_scope s = deft_step_begin(n->r.cx);
    const deft_dtype was = deft_mixed_set(n->r.cx, n->low);
    deft_tensor *const h = deft_gelu(deft_nn_linear_call(&n->up, n->x));
    deft_tensor *const y = deft_nn_linear_call(&n->down, deft_nn_norm_call(&n->norm, h));
    deft_tensor *const loss = deft_cross_entropy(y, n->labels);
    deft_mixed_set(n->r.cx, was);
    cr_assert_eq(deft_dtype_of(loss), DEFT_F32);
    deft_tensor *const scaled = deft_mul(deft_scaler_loss(n->scaler, loss), n->factor);
    cr_assert(deft_grad(&scaled, NULL, 1, deft_optim_parameters(n->optim), n_p, NULL, g));
    for (size_t i = 0; i < n_p; i++) cr_assert_eq(deft_dtype_of(g[i]), DEFT_F32);
    deft_tensor *const is_finite = deft_scaler_unscale(n->scaler, g, n_p);
    cr_assert(deft_clip_grad_norm(g, n_p, 1, NULL));
    cr_assert(deft_optim_step_if(n->optim, g, rate, is_finite));
    cr_assert(deft_scaler_update(n->scaler, is_finite));
    deft_assign(n->loss, loss);
    OK(&n->r, deft_step_end(s));
}

/* Many steps with another rate each are one plan, and come to what f32 comes to. */
static float trained(deft_dtype low)
{
    const deft_scaler_options o = { .size = sizeof o, .interval = 100 };
    net n;
    net_open(&n, low, &o);
    deft_stats first = { 0 };
    const int steps = (int)test_size(1000, 400);
    for (int i = 0; i < steps; i++) {
        train_step(&n, 1e-3 * deft_schedule_cosine(i, steps, 0.1));
        if (i == 0) first = rig_stats(&n.r);
    }
    const deft_stats last = rig_stats(&n.r);
    cr_assert_eq(last.plans_built, first.plans_built);
    cr_assert_eq(last.kernels_known, first.kernels_known);
    cr_assert_eq(last.syncs, first.syncs);
    cr_assert_eq(last.cuts_unfused, 0);
    for (size_t i = 0; i < deft_nn_n_parameters(n.nn); i++)
        cr_assert_eq(deft_dtype_of(deft_nn_parameter_at(n.nn, i)), DEFT_F32);
    const float loss = rig_item(&n.r, n.loss);
    net_close(&n);
    return loss;
}

Test(mixed, training_comes_to_the_same)
{
    const float want = trained(DEFT_F32);
    cr_assert(want > 0.01f && want < 1, "%g: the task is too easy or too hard", (double)want);
    for (size_t k = 0; k < 2; k++) {
        const float got = trained(halves[k]);
        cr_assert(got != want && fabsf(got - want) < 0.02f * want, "%s: %g, f32 %g",
                  deft_dtype_name(halves[k]), (double)got, (double)want);
    }
}

/* Parameters and what the optimizer keeps, in one array. */
static size_t state_of(net *n, float *v, size_t room)
{
    size_t used = 0;
    char name[64];
    for (size_t i = 0; i < deft_nn_n_parameters(n->nn); i++)
        for (int k = 0; k < 3; k++) {
            static const char *const prefix[] = { "", "optim.exp_avg.", "optim.exp_avg_sq." };
            snprintf(name, sizeof name, "%s%s", prefix[k], deft_nn_name_at(n->nn, i));
            deft_tensor *const t = deft_nn_find(n->nn, name);
            const size_t size = (size_t)deft_numel(t);
            cr_assert(used + size <= room);
            OK(&n->r, deft_read(t, DEFT_F32, v + used, size * sizeof *v));
            used += size;
        }
    return used;
}

static void one_overflow(deft_dtype low, double factor)
{
    enum { ROOM = 3 * (IN * HIDDEN + HIDDEN * OUT + 4 * HIDDEN + OUT), PLANTED = 5 };
    const deft_scaler_options o = { .size = sizeof o, .start = 1024, .interval = 4 };
    static float before[ROOM], after[ROOM];
    net n;
    net_open(&n, low, &o);
    for (int i = 0; i < 12; i++) {
        const float scale = rig_item(&n.r, deft_scaler_scale(n.scaler));
        const size_t size = state_of(&n, before, ROOM) * sizeof *before;
        const uint64_t built = rig_stats(&n.r).plans_built;
        n.factor = i == PLANTED ? factor : 1;
        train_step(&n, 1e-2);
        if (i > 0) cr_assert_eq(rig_stats(&n.r).plans_built, built);
        state_of(&n, after, ROOM);
        const bool is_same = memcmp(before, after, size) == 0;
        cr_assert_eq(is_same, i == PLANTED, "step %d", i);
        /* Doubled by steps 3 and 9, four in a row each; halved by step 5. */
        const float want = i == PLANTED ? 0.5f : i == 3 || i == 9 ? 2 : 1;
        cr_assert_eq(rig_item(&n.r, deft_scaler_scale(n.scaler)), scale * want, "step %d", i);
    }
    net_close(&n);
}

Test(mixed, an_overflow_is_left_out)
{
    one_overflow(DEFT_F16, 1e8); /* beyond what f16 holds */
    one_overflow(DEFT_BF16, INFINITY);
    one_overflow(DEFT_F32, NAN);
}

Test(mixed, the_scale_stays_within_bounds)
{
    const deft_scaler_options o = { .size = sizeof o, .start = 0x1p63, .interval = 1 };
    net n;
    net_open(&n, DEFT_F32, &o);
    for (int i = 0; i < 3; i++) train_step(&n, 1e-3);
    cr_assert_eq(rig_item(&n.r, deft_scaler_scale(n.scaler)), 0x1p64f);
    n.factor = NAN;
    for (int i = 0; i < 100; i++) train_step(&n, 1e-3);
    cr_assert_eq(rig_item(&n.r, deft_scaler_scale(n.scaler)), 0x1p-24f);
    net_close(&n);
}

Test(mixed, mistakes_with_a_scaler)
{
    const struct {
        deft_scaler_options o;
        deft_status st;
    } bad[] = {
        { { .size = 1 }, DEFT_E_ARG },
        { { .size = sizeof bad[0].o, .name = "" }, DEFT_E_ARG },
        { { .size = sizeof bad[0].o, .start = INFINITY }, DEFT_E_RANGE },
        { { .size = sizeof bad[0].o, .start = -1 }, DEFT_E_RANGE },
        { { .size = sizeof bad[0].o, .interval = -1 }, DEFT_E_RANGE },
        { { .size = sizeof bad[0].o }, DEFT_E_ARG }, /* the name is taken */
    };
    net n;
    deft_scaler *s;
    net_open(&n, DEFT_F32, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(deft_scaler_create(n.nn, &bad[i].o, &s), bad[i].st, "%zu", i);
        cr_assert_null(s);
        cr_assert(deft_message(n.r.cx)[0]);
    }
    deft_tensor *none[2] = { NULL, NULL };
    cr_assert_null(deft_scaler_unscale(n.scaler, none, 2));
    cr_assert_eq(deft_error(n.r.cx), DEFT_E_ARG);
    deft_clear(n.r.cx);
    cr_assert(!deft_scaler_update(n.scaler, n.loss));
    cr_assert_eq(deft_error(n.r.cx), DEFT_E_STATE);
    deft_clear(n.r.cx);
    cr_assert_eq(deft_scaler_create(NULL, NULL, &s), DEFT_E_ARG);
    cr_assert_null(deft_scaler_scale(NULL));
    net_close(&n);
}
