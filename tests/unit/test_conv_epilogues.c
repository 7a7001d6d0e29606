/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows a convolution runs in the tiles of its product: how many segments a plan has, and
 * that the bits are those of the interpreter with one kernel for each operator.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include "support/harness.h"

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 3);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(conv_epilogues, .init = set_up, .fini = tear_down);

enum { IMAGES, WEIGHTS, GAIN, SHIFT, REST, N_IN };

typedef struct layer {
    int64_t n, in, out, size[2];
    deft_conv2d_options conv;
    int64_t kernel;
    bool has_bias;
} layer;

static deft_tensor *numbers(deft_shape s, uint64_t seed)
{
    static float v[1 << 16];
    int64_t n = 1;
    for (uint32_t i = 0; i < s.rank; i++) n *= s.dim[i];
    cr_assert_leq((size_t)n, sizeof v / sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        v[i] = (float)((int64_t)(seed >> 40) - (1 << 23)) * 0x1p-23f;
    }
    return rig_tensor(&r, s, v);
}

static deft_tensor *per_channel(deft_tensor *x)
{
    return deft_reshape(x, DEFT_SHAPE(deft_dim(x, 0), 1, 1));
}

/* relu(conv gain + shift + rest), where `rest` has the shape of the result. */
static deft_tensor *followed(const layer *l, deft_tensor *const *in, deft_tensor *rest)
{
    deft_conv2d_options o = l->conv;
    o.size = sizeof o;
    if (l->has_bias) o.bias = in[SHIFT];
    deft_tensor *y = deft_conv2d(in[IMAGES], in[WEIGHTS], &o);
    y = deft_add(deft_mul(y, per_channel(in[GAIN])), per_channel(in[SHIFT]));
    return deft_relu(deft_add(y, rest));
}

static void inputs(const layer *l, deft_tensor *in[N_IN])
{
    const int64_t groups = l->conv.groups ? l->conv.groups : 1;
    in[IMAGES] = numbers(DEFT_SHAPE(l->n, l->in, l->size[0], l->size[1]), 1);
    in[WEIGHTS] = numbers(DEFT_SHAPE(l->out, l->in / groups, l->kernel, l->kernel), 2);
    in[GAIN] = numbers(DEFT_SHAPE(l->out), 3);
    in[SHIFT] = numbers(DEFT_SHAPE(l->out), 4);
    in[REST] = numbers(DEFT_SHAPE(1), 5);
    OK(&r, deft_eval(in, N_IN));
}

static int n_times(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    return n;
}

/* The plan of the latest cut. */
static const char *plan_now(void)
{
    static char plan[1 << 16];
    cr_assert_gt(deft_show(r.cx, "plan", plan, sizeof plan), 0);
    return plan;
}

static void assert_one_segment(const char *what)
{
    const char *const plan = plan_now();
    cr_expect_eq(n_times(plan, "\n  s"), 1, "%s: %s", what, plan);
    cr_expect_eq(n_times(plan, " epilogue="), 1, "%s: %s", what, plan);
}

static const layer layers[] = {
    { 2, 3, 5, { 9, 11 }, { .padding = { 1, 1 } }, 3, false },
    { 3, 4, 40, { 8, 8 }, { .padding = { 1, 1 } }, 3, true }, /* several tiles of rows */
    { 2, 4, 6, { 13, 12 }, { .padding = { 1, 1 }, .stride = { 2, 3 } }, 3, false },
    { 2, 4, 6, { 13, 12 }, { .padding = { 2, 1 }, .dilation = { 2, 1 } }, 3, true },
    { 2, 6, 8, { 7, 9 }, { .padding = { 1, 1 }, .groups = 2 }, 3, true },
    { 3, 6, 6, { 10, 9 }, { .padding = { 1, 1 }, .groups = 6 }, 3, true },
    { 1, 4, 4, { 6, 5 }, { .groups = 4 }, 3, false }, /* one image */
    { 5, 3, 20, { 40, 30 }, { .padding = { 1, 1 } }, 3, false },
    { 3, 8, 8, { 3, 2 }, { 0 }, 1, true },
};

Test(conv_epilogues, need_no_launch_of_their_own)
{
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        deft_tensor *in[N_IN];
        char what[32];
        const deft_scope s = deft_scope_begin(r.cx);
        inputs(&layers[i], in);
        deft_tensor *y = followed(&layers[i], in, in[REST]);
        OK(&r, deft_eval(&y, 1));
        snprintf(what, sizeof what, "layer %zu", i);
        assert_one_segment(what);
        OK(&r, deft_scope_end(s));
    }
}

/* What is added to the result may be as large as the result. Then it is read tile by tile. */
Test(conv_epilogues, read_residuals)
{
    deft_tensor *in[N_IN];
    const layer l = { 2, 6, 6, { 9, 8 }, { .padding = { 1, 1 } }, 3, false };
    const deft_scope s = deft_scope_begin(r.cx);
    inputs(&l, in);
    deft_tensor *y = followed(&l, in, in[IMAGES]);
    OK(&r, deft_eval(&y, 1));
    assert_one_segment("a residual");
    OK(&r, deft_scope_end(s));
}

/* A residual that is replaced gives its memory to the result, unless the product reads it as images
 * too: other tiles may still need them. */
Test(conv_epilogues, replace_residuals)
{
    const layer l = { 2, 6, 6, { 9, 8 }, { .padding = { 1, 1 } }, 3, false };
    for (int is_image = 0; is_image < 2; is_image++) {
        deft_tensor *in[N_IN];
        float got[2 * 6 * 72], want[2 * 6 * 72];
        const deft_scope s = deft_scope_begin(r.cx);
        inputs(&l, in);
        deft_tensor *const x = in[is_image ? IMAGES : REST] = numbers(DEFT_SHAPE(2, 6, 9, 8), 9);
        const deft_scope once = deft_scope_begin(r.cx);
        OK(&r, deft_read(followed(&l, in, x), DEFT_F32, want, sizeof want));
        OK(&r, deft_scope_end(once));
        const uint64_t before = rig_stats(&r).donated;
        const deft_scope step = deft_step_begin(r.cx);
        deft_assign(x, followed(&l, in, x));
        OK(&r, deft_step_end(step));
        assert_one_segment("an assign");
        cr_expect_eq(rig_stats(&r).donated - before, is_image ? 0 : 1);
        OK(&r, deft_read(x, DEFT_F32, got, sizeof got));
        cr_expect_arr_eq(got, want, sizeof want, "is_image %d", is_image);
        OK(&r, deft_scope_end(s));
    }
}

/* A value before the last one is a second result of the epilogue. */
Test(conv_epilogues, have_several_results)
{
    deft_tensor *in[N_IN];
    const layer l = { 2, 6, 7, { 9, 8 }, { .padding = { 1, 1 } }, 3, false };
    const deft_scope s = deft_scope_begin(r.cx);
    inputs(&l, in);
    deft_tensor *y[2];
    y[0] = followed(&l, in, in[REST]);
    y[1] = deft_mul(y[0], deft_const_f(r.cx, 2));
    OK(&r, deft_eval(y, 2));
    assert_one_segment("two results");
    OK(&r, deft_scope_end(s));
}

/* The gradient of an activation is applied to the gradient of the images where it is computed. */
Test(conv_epilogues, follow_gradients_of_images)
{
    deft_tensor *in[N_IN], *g;
    const layer l = { 2, 6, 7, { 9, 8 }, { .padding = { 1, 1 } }, 3, false };
    const deft_scope s = deft_scope_begin(r.cx);
    inputs(&l, in);
    deft_tensor *const y =
        deft_conv2d(deft_tanh(in[IMAGES]), in[WEIGHTS], DEFT_CONV2D(.padding = { 1, 1 }));
    deft_tensor *const loss = deft_sum(y, DEFT_ALL_AXES, 0);
    cr_assert(deft_grad(&loss, NULL, 1, in, 1, NULL, &g), "%s", deft_message(r.cx));
    OK(&r, deft_eval(&g, 1));
    cr_expect_eq(n_times(plan_now(), " epilogue="), 1, "%s", plan_now());
    cr_expect_eq(n_times(plan_now(), " columns="), 1, "%s", plan_now());
    OK(&r, deft_scope_end(s));
}

/* The order of axes of a batch is of no meaning for what follows a product. */
Test(conv_epilogues, follow_batches_in_another_order)
{
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const a = numbers(DEFT_SHAPE(2, 3, 5, 4), 1),
                       *b = numbers(DEFT_SHAPE(2, 3, 4, 6), 2);
    deft_tensor *const rest = numbers(DEFT_SHAPE(2, 5, 3, 6), 3);
    OK(&r, deft_eval((deft_tensor *[]){ a, b, rest }, 3));
    deft_tensor *y = deft_add(deft_permute(deft_matmul(a, b), DEFT_AXES(0, 2, 1, 3)), rest);
    OK(&r, deft_eval(&y, 1));
    assert_one_segment("heads behind their queries");
    OK(&r, deft_scope_end(s));
}

/* Columns that become rows would be written element by element. */
Test(conv_epilogues, do_not_transpose)
{
    const deft_scope s = deft_scope_begin(r.cx);
    deft_tensor *const a = numbers(DEFT_SHAPE(5, 4), 1), *b = numbers(DEFT_SHAPE(4, 6), 2);
    OK(&r, deft_eval((deft_tensor *[]){ a, b }, 2));
    deft_tensor *y = deft_exp(deft_permute(deft_matmul(a, b), DEFT_AXES(1, 0)));
    OK(&r, deft_eval(&y, 1));
    cr_expect_eq(n_times(plan_now(), " epilogue="), 0, "%s", plan_now());
    OK(&r, deft_scope_end(s));
}

/* A 3 x 3 convolution with padding 1 as a chain over channels and taps, and what `followed` adds to
 * it. */
static float element(const layer *l, float *const v[N_IN], int64_t i)
{
    const int64_t rows = l->size[0], columns = l->size[1], pixels = rows * columns;
    const int64_t n = i / pixels / l->out, o = i / pixels % l->out;
    const int64_t y = i % pixels / columns, x = i % columns;
    const float *const image = v[IMAGES] + n * l->in * pixels;
    float sum = 0;
    for (int64_t k = 0; k < l->in * 9; k++) {
        const int64_t a = y + k % 9 / 3 - 1, b = x + k % 3 - 1;
        const bool is_in = a >= 0 && a < rows && b >= 0 && b < columns;
        const float of_image = is_in ? image[k / 9 * pixels + a * columns + b] : 0;
        sum = fmaf(v[WEIGHTS][o * l->in * 9 + k], of_image, sum);
    }
    if (l->has_bias) sum += v[SHIFT][o];
    sum = sum * v[GAIN][o];
    sum = sum + v[SHIFT][o];
    sum = sum + v[REST][0];
    return sum > 0 ? sum : 0;
}

static void check_bits(const layer *l)
{
    static float value[N_IN][1 << 16], got[1 << 16];
    float *v[N_IN];
    deft_tensor *in[N_IN];
    const int64_t n = l->n * l->out * l->size[0] * l->size[1];
    const deft_scope s = deft_scope_begin(r.cx);
    inputs(l, in);
    for (int i = 0; i < N_IN; i++) {
        v[i] = value[i];
        rig_read(&r, in[i], value[i], deft_numel(in[i]));
    }
    rig_read(&r, followed(l, in, in[REST]), got, n);
    assert_one_segment("with bits");
    for (int64_t i = 0; i < n; i++)
        cr_assert_eq(got[i], element(l, v, i), "%d images of %d x %d, at %d", (int)l->n,
                     (int)l->size[0], (int)l->size[1], (int)i);
    OK(&r, deft_scope_end(s));
}

/* One plan serves images of other sizes, also when they have as many columns. */
Test(conv_epilogues, serve_all_extents)
{
    static const int64_t sizes[][3] = {
        { 2, 9, 8 }, { 1, 9, 16 }, { 4, 6, 6 }, { 1, 1, 1 }, { 3, 30, 40 }
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_bits(&(layer){ sizes[i][0],
                             3,
                             5,
                             { sizes[i][1], sizes[i][2] },
                             { .padding = { 1, 1 } },
                             3,
                             i % 2 == 0 });
    cr_expect_eq(n_times(plan_now(), " columns=2"), 1, "%s", plan_now());
}

/* Sums of more than one slice of the product's blocks, whose weights all tasks share. */
Test(conv_epilogues, have_the_bits_of_long_sums)
{
    check_bits(&(layer){ 1, 96, 40, { 20, 20 }, { .padding = { 1, 1 } }, 3, true });
}
