/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators of the program: RMS norm, and a GELU with a gradient of its own. Both are fused with
 * what is around them, and both are checked against differences.
 */
#include <deft/deft.h>
#include <math.h>
#include <stdio.h>

/* x / sqrt(mean of x^2 + eps) times gain. The attributes are eps. */
static deft_status rms_norm(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *attributes)
{
    const double *const eps = attributes;
    (void)n_in, (void)n_out;
    if (deft_rank(in[0]) == 0) return deft_op_fail(cx, DEFT_E_SHAPE, "x must have an axis");
    deft_tensor *const mean = deft_mean(deft_square(in[0]), DEFT_AXES(-1), true);
    out[0] = deft_mul(deft_div(in[0], deft_sqrt(deft_add(mean, *eps))), in[1]);
    return DEFT_OK;
}

/* x sigmoid(1.702 x), which is near GELU. */
static deft_status gelu(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *attributes)
{
    (void)cx, (void)n_in, (void)n_out, (void)attributes;
    out[0] = deft_mul(in[0], deft_sigmoid(deft_mul(in[0], 1.702)));
    return DEFT_OK;
}

/* With s = sigmoid(1.702 x), the slope is s (1 + 1.702 x (1 - s)). */
static deft_status gelu_gradient(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                 deft_tensor *const *out, deft_tensor *const *grad_out,
                                 size_t n_out, deft_tensor **grad_in, void *attributes)
{
    deft_tensor *const z = deft_mul(in[0], 1.702), *const s = deft_sigmoid(z);
    deft_tensor *const slope = deft_add(deft_mul(z, deft_add(deft_neg(s), 1)), 1);
    (void)cx, (void)n_in, (void)out, (void)n_out, (void)attributes;
    grad_in[0] = deft_mul(grad_out[0], deft_mul(s, slope));
    return DEFT_OK;
}

int main(void)
{
    const double eps = 1e-6;
    const double data[2][4] = { { 0.5, -1, 2, 0.25 }, { 1, 1.5, -0.5, 3 } };
    const double gains[4] = { 1, 0.5, 2, 1 };
    deft_op *norm = NULL, *act = NULL;
    deft_ctx *cx = NULL;
    char why[256], report[1024];
    double got[2][4];
    if (deft_ctx_create(NULL, NULL, &cx) != DEFT_OK) return 1;
    const deft_op_def defs[] = {
        { .size = sizeof(deft_op_def),
          .name = "acme.rms_norm",
          .version = 1,
          .n_in = 2,
          .n_out = 1,
          .attribute_bytes = sizeof eps,
          .body = rms_norm },
        { .size = sizeof(deft_op_def),
          .name = "acme.gelu",
          .version = 1,
          .n_in = 1,
          .n_out = 1,
          .body = gelu,
          .grad = gelu_gradient },
    };
    if (deft_op_define(deft_ctx_runtime(cx), &defs[0], &norm, why, sizeof why) != DEFT_OK ||
        deft_op_define(deft_ctx_runtime(cx), &defs[1], &act, why, sizeof why) != DEFT_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }

    deft_tensor *const x = deft_from(cx, DEFT_SHAPE(2, 4), DEFT_F64, data, sizeof data);
    deft_tensor *const gain = deft_from(cx, DEFT_SHAPE(4), DEFT_F64, gains, sizeof gains);
    deft_tensor *y, *const in[] = { x, gain };
    if (!deft_op_call(cx, norm, in, 2, &eps, &y, 1)) return 1;
    if (!deft_op_call(cx, act, &y, 1, NULL, &y, 1)) return 1;
    if (deft_read(y, DEFT_F64, got, sizeof got) != DEFT_OK) return 1;

    int n_wrong = 0;
    for (int i = 0; i < 2; i++) {
        double sum = 0;
        for (int k = 0; k < 4; k++) sum += data[i][k] * data[i][k];
        for (int k = 0; k < 4; k++) {
            const double n = data[i][k] / sqrt(sum / 4 + eps) * gains[k];
            n_wrong += fabs(got[i][k] - n / (1 + exp(-1.702 * n))) > 1e-12;
        }
    }
    printf("%d of 8 elements differ from plain C\n", n_wrong);

    /* Gradients, deft_vmap, loops and captures of both. */
    const deft_status checks[] = {
        deft_op_check(cx, norm, in, 2, &eps, NULL, report, sizeof report),
        deft_op_check(cx, act, &x, 1, NULL, NULL, report, sizeof report),
    };
    for (int i = 0; i < 2; i++) {
        printf("%s: %s\n", deft_op_name(i ? act : norm), deft_status_text(checks[i]));
        if (checks[i] != DEFT_OK) fprintf(stderr, "%s\n%s", deft_message(cx), report);
        n_wrong += checks[i] != DEFT_OK;
    }
    deft_ctx_destroy(&cx);
    return n_wrong != 0;
}
