/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of images under windows that slide over them, against plain C written here, bit for
 * bit. What such a gradient costs. When the gradient of a part of it is wanted as well.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/budget.h"
#include "support/harness.h"

static rig r;

static void set_up(void)
{
    rig_interpret(&r, 2);
}

static void tear_down(void)
{
    rig_close(&r);
}

TestSuite(image_gradients, .init = set_up, .fini = tear_down);

static uint64_t state;

static int64_t drawn(int64_t least, int64_t most)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return least + (int64_t)((state >> 33) % (uint64_t)(most - least + 1));
}

static float *noise(int64_t n)
{
    float *const v = malloc((size_t)n * sizeof *v);
    cr_assert(v);
    for (int64_t i = 0; i < n; i++) v[i] = (float)drawn(-(1 << 20), 1 << 20) * 0x1p-20f;
    return v;
}

/* ---- the gradient of the images of a convolution ---- */

/* Index 0 is for rows, 1 for columns. channels and out are those of a group. */
typedef struct conv {
    int64_t n, groups, channels, out;
    int64_t size[2], kernel[2], stride[2], padding[2], dilation[2], windows[2];
} conv;

static conv draw_conv(void)
{
    conv c = { .n = drawn(1, 3), .groups = drawn(0, 1) ? 1 : drawn(2, 3) };
    c.channels = drawn(1, 9);
    c.out = drawn(1, c.channels < 8 ? 4 * c.channels : 40);
    for (int i = 0; i < 2; i++) {
        c.kernel[i] = drawn(i, 4);
        if (c.kernel[i] < 1) c.kernel[i] = 1;
        if (i == 1 && c.kernel[0] == 1 && c.kernel[1] == 1) c.kernel[1] = 2;
        c.stride[i] = drawn(0, 1) ? 1 : drawn(2, 4);
        c.dilation[i] = drawn(1, 3);
        c.padding[i] = drawn(0, 4);
        const int64_t reach = c.dilation[i] * (c.kernel[i] - 1) + 1;
        const int64_t least = reach - 2 * c.padding[i];
        c.size[i] = drawn(least > 1 ? least : 1, (least > 1 ? least : 1) + 9);
        c.windows[i] = (c.size[i] + 2 * c.padding[i] - reach) / c.stride[i] + 1;
    }
    return c;
}

/* The window that shows element i under tap t along a side; -1: there is none. */
static int64_t window_of(const conv *c, int side, int64_t i, int64_t t)
{
    const int64_t at = i + c->padding[side] - t * c->dilation[side];
    if (at < 0 || at % c->stride[side]) return -1;
    const int64_t window = at / c->stride[side];
    return window < c->windows[side] ? window : -1;
}

/* The gradient of one element: a chain of fma over (channel of dy, tap from the last to the first).
 */
static float gradient_at(const conv *c, const float *w, const float *dy, int64_t image,
                         int64_t channel, int64_t row, int64_t column)
{
    const int64_t group = channel / c->channels, n_taps = c->kernel[0] * c->kernel[1];
    float acc = 0;
    for (int64_t o = group * c->out; o < (group + 1) * c->out; o++)
        for (int64_t t = n_taps; t-- > 0;) {
            const int64_t y = window_of(c, 0, row, t / c->kernel[1]);
            const int64_t x = window_of(c, 1, column, t % c->kernel[1]);
            if (y < 0 || x < 0) continue;
            const int64_t at =
                ((image * c->groups * c->out + o) * c->windows[0] + y) * c->windows[1] + x;
            acc = fmaf(w[(o * c->channels + channel % c->channels) * n_taps + t], dy[at], acc);
        }
    return acc;
}

static void gradient_is_right(const conv *c)
{
    const int64_t in = c->groups * c->channels, out = c->groups * c->out;
    const int64_t pixels = c->size[0] * c->size[1], n_x = c->n * in * pixels;
    float *const x = noise(n_x), *const want = noise(n_x);
    float *const w = noise(out * c->channels * c->kernel[0] * c->kernel[1]);
    float *const dy = noise(c->n * out * c->windows[0] * c->windows[1]);
    for (int64_t k = 0; k < n_x; k++)
        want[k] = gradient_at(c, w, dy, k / (in * pixels), k / pixels % in,
                              k / c->size[1] % c->size[0], k % c->size[1]);
    const deft_conv2d_options options = { .size = sizeof options,
                                          .stride = { c->stride[0], c->stride[1] },
                                          .padding = { c->padding[0], c->padding[1] },
                                          .dilation = { c->dilation[0], c->dilation[1] },
                                          .groups = c->groups };
    const deft_shape of_w = DEFT_SHAPE(out, c->channels, c->kernel[0], c->kernel[1]);
    deft_tensor *const tx = rig_tensor(&r, DEFT_SHAPE(c->n, in, c->size[0], c->size[1]), x);
    deft_tensor *const y = deft_conv2d(tx, rig_tensor(&r, of_w, w), &options);
    cr_assert(y, "%s", deft_message(r.cx));
    deft_tensor *const tdy =
        rig_tensor(&r, DEFT_SHAPE(c->n, out, c->windows[0], c->windows[1]), dy);
    deft_tensor *const g = rig_grad_of_sum(deft_mul(y, tdy), tx);
    rig_expect(&r, g, n_x, want);
    free(x), free(want), free(w), free(dy);
}

Test(image_gradients, are_chains_of_fma_over_channels_and_taps_from_the_last)
{
    state = 1;
    for (int i = 0; i < 400 && (i < 60 || test_time_left(1)); i++) {
        const conv c = draw_conv();
        const deft_scope s = deft_scope_begin(r.cx);
        gradient_is_right(&c);
        OK(&r, deft_scope_end(s));
    }
}

/* ---- what it costs ---- */

static int n_times(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

/* The plan of both gradients of a convolution. */
static const char *plan_of(int64_t stride)
{
    static char plan[1 << 16];
    deft_tensor *const x = deft_keep(deft_ones(r.cx, DEFT_SHAPE(2, 9, 12, 12), DEFT_F32));
    deft_tensor *const w = deft_keep(deft_ones(r.cx, DEFT_SHAPE(40, 9, 3, 3), DEFT_F32));
    OK(&r, deft_eval((deft_tensor *[]){ x, w }, 2));
    deft_tensor *const y =
        deft_square(deft_conv2d(x, w, DEFT_CONV2D(.stride = { stride }, .padding = { 1, 1 })));
    deft_tensor *const loss = deft_sum(y, DEFT_ALL_AXES, 0), *const with[] = { x, w };
    deft_tensor *g[2];
    cr_assert(deft_grad(&loss, NULL, 1, with, 2, NULL, g), "%s", deft_message(r.cx));
    OK(&r, deft_eval(g, 2));
    cr_assert_gt(deft_show(r.cx, "plan", plan, sizeof plan), 0);
    return plan;
}

Test(image_gradients, are_one_product_that_reads_windows)
{
    const char *const plan = plan_of(1);
    cr_assert_eq(n_times(plan, " matmul "), 3, "%s", plan);
    cr_assert_eq(n_times(plan, "    windows"), 3, "%s", plan);
}

/* Taps that several phases share are not stored either. */
Test(image_gradients, are_a_product_for_each_phase_of_the_stride)
{
    const char *const plan = plan_of(2);
    cr_assert_eq(n_times(plan, " matmul "), 6, "%s", plan);
    cr_assert_eq(n_times(plan, "    windows"), 6, "%s", plan);
}

/* ---- windows that a program joins itself ---- */

/* A convolution of x [1, 2, 4, 4] with w [3, 2 * 4] from public calls. *padded and *joined are what
 * it goes through. */
static deft_tensor *by_hand(deft_tensor *x, deft_tensor *w, deft_tensor **padded,
                            deft_tensor **joined)
{
    deft_tensor *tap[4];
    const int64_t one[4] = { 0, 0, 1, 1 };
    *padded = deft_pad(x, one, one, DEFT_PAD_CONSTANT, 0);
    deft_tensor *const images = deft_permute(*padded, DEFT_AXES(1, 0, 2, 3));
    for (int t = 0; t < 4; t++)
        tap[t] = deft_slice(images, DEFT_FULL, DEFT_FULL, DEFT_R(t / 2, t / 2 + 5),
                            DEFT_R(t % 2, t % 2 + 5));
    *joined = deft_stack(tap, 4, 1);
    return deft_matmul(w, deft_reshape(*joined, DEFT_SHAPE(8, 25)));
}

/* The sums of the gradients are exact, so that no order matters. */
Test(image_gradients, of_parts_are_there_when_they_are_wanted)
{
    float v[32], u[24], w4[24], dv[75];
    for (int i = 0; i < 32; i++) v[i] = (float)(i % 7 - 3);
    for (int i = 0; i < 24; i++) u[i] = w4[i] = (float)(i % 5 - 2);
    for (int i = 0; i < 75; i++) dv[i] = (float)(i % 9 - 4);
    deft_tensor *const x = rig_tensor(&r, DEFT_SHAPE(1, 2, 4, 4), v);
    deft_tensor *const w = rig_tensor(&r, DEFT_SHAPE(3, 8), u);
    deft_tensor *const dy = rig_tensor(&r, DEFT_SHAPE(3, 25), dv);
    deft_tensor *padded, *joined, *g[3], *alone;
    deft_tensor *loss = deft_sum(deft_mul(by_hand(x, w, &padded, &joined), dy), DEFT_ALL_AXES, 0);
    deft_tensor *const with[] = { x, padded, joined };
    cr_assert(deft_grad(&loss, NULL, 1, with, 3, NULL, g), "%s", deft_message(r.cx));
    cr_assert(deft_grad(&loss, NULL, 1, with, 1, NULL, &alone), "%s", deft_message(r.cx));
    float all[2 * 4 * 25], of_padded[2 * 36] = { 0 }, of_x[32];
    for (int c = 0; c < 2; c++)
        for (int t = 0; t < 4; t++)
            for (int p = 0; p < 25; p++) {
                float sum = 0;
                for (int o = 0; o < 3; o++) sum += w4[o * 8 + c * 4 + t] * dv[o * 25 + p];
                all[(c * 4 + t) * 25 + p] = sum;
                of_padded[c * 36 + (p / 5 + t / 2) * 6 + p % 5 + t % 2] += sum;
            }
    for (int i = 0; i < 32; i++) of_x[i] = of_padded[i / 16 * 36 + (i / 4 % 4 + 1) * 6 + i % 4 + 1];
    rig_expect(&r, g[2], 200, all);
    rig_expect(&r, g[1], 72, of_padded);
    rig_expect(&r, g[0], 32, of_x);
    rig_expect(&r, alone, 32, of_x);
}

/* The gradient of the sum of squares of the gradient of the images, by the gradient of the result:
 * twice the convolution of that gradient. */
Test(image_gradients, have_gradients)
{
    state = 5;
    float *const v = noise(2 * 8 * 36);
    for (int i = 0; i < 2 * 8 * 36; i++) v[i] = rintf(8 * v[i]);
    deft_tensor *const x = rig_tensor(&r, DEFT_SHAPE(2, 8, 6, 6), v);
    deft_tensor *const dy = rig_tensor(&r, DEFT_SHAPE(2, 8, 6, 6), v);
    deft_tensor *const w = deft_ones(r.cx, DEFT_SHAPE(8, 8, 3, 3), DEFT_F32);
    const deft_conv2d_options *const o = DEFT_CONV2D(.padding = { 1, 1 });
    deft_tensor *const g = rig_grad_of_sum(deft_mul(deft_conv2d(x, w, o), dy), x);
    deft_tensor *const second = rig_grad_of_sum(deft_square(g), dy);
    deft_tensor *const want = deft_mul(deft_conv2d(g, w, o), 2);
    float *const values = noise(2 * 8 * 36);
    OK(&r, deft_read(want, DEFT_F32, values, 2 * 8 * 36 * sizeof *values));
    rig_expect(&r, second, 2 * 8 * 36, values);
    free(v), free(values);
}
