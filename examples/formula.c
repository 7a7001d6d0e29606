/* SPDX-License-Identifier: Apache-2.0
 *
 * A formula: the transfer function of sRGB as text, with the derivative that a program has for it.
 * It is one kernel together with the sum that follows, and it is checked against plain C.
 */
#include <deft/deft.h>
#include <math.h>
#include <stdio.h>

/* IEC 61966-2-1. */
static const char to_linear[] = "(x) {\n"
                                "    low = x / 12.92;\n"
                                "    high = pow((max(x, 0.04045) + 0.055) / 1.055, 2.4);\n"
                                "    return x <= 0.04045 ? low : high;\n"
                                "}";
static const char to_linear_slope[] =
    "(x) {\n"
    "    high = 2.4 / 1.055 * pow((max(x, 0.04045) + 0.055) / 1.055, 1.4);\n"
    "    return x <= 0.04045 ? 1 / 12.92 : high;\n"
    "}";

static void to_linear_in_c(const double *in, double *out)
{
    *out = *in <= 0.04045 ? *in / 12.92 : pow((*in + 0.055) / 1.055, 2.4);
}

int main(void)
{
    enum { N = 8 };
    const double pixels[N] = { 0, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1 };
    char why[256], report[1024];
    deft_op *linear = NULL;
    deft_ctx *cx = NULL;
    if (deft_ctx_create(NULL, NULL, &cx) != DEFT_OK) return 1;
    const deft_formula_def def = { .size = sizeof def,
                                   .name = "colour.to_linear",
                                   .version = 1,
                                   .text = to_linear,
                                   .derivative = to_linear_slope,
                                   .reference = to_linear_in_c };
    if (deft_formula_define(deft_ctx_runtime(cx), &def, &linear, why, sizeof why) != DEFT_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }

    /* The mean light of the pixels, and how it depends on each of them. */
    deft_tensor *const x = deft_from(cx, DEFT_SHAPE(N), DEFT_F64, pixels, sizeof pixels);
    deft_tensor *mean = deft_mean(deft_apply(linear, x), DEFT_ALL_AXES, false), *slope;
    double light = 0, by_pixel[N], want = 0;
    if (!deft_grad(&mean, NULL, 1, &x, 1, NULL, &slope) || deft_item(mean, &light) != DEFT_OK ||
        deft_read(slope, DEFT_F64, by_pixel, sizeof by_pixel) != DEFT_OK) {
        fprintf(stderr, "%s\n", deft_message(cx));
        return 1;
    }
    for (int i = 0; i < N; i++) {
        double y;
        to_linear_in_c(&pixels[i], &y);
        want += y / N;
    }
    printf("mean light %.6f, plain C says %.6f\n", light, want);
    printf("a change of the brightest pixel counts %.3f times\n", by_pixel[N - 1] * N);

    /* The derivative against differences, and all else. */
    const deft_status st = deft_op_check(cx, linear, &x, 1, NULL, NULL, report, sizeof report);
    printf("%s: %s\n", deft_op_name(linear), deft_status_text(st));
    if (st != DEFT_OK) fprintf(stderr, "%s\n%s", deft_message(cx), report);

    /* What a mistake looks like. */
    deft_op *wrong = NULL;
    const deft_formula_def mistake = { .size = sizeof mistake,
                                       .name = "colour.wrong",
                                       .version = 1,
                                       .text = "(x) { return x * gamma; }" };
    if (deft_formula_define(deft_ctx_runtime(cx), &mistake, &wrong, why, sizeof why) == DEFT_OK)
        return 1;
    printf("%s\n", why);
    deft_ctx_destroy(&cx);
    return st != DEFT_OK || fabs(light - want) > 1e-14;
}
