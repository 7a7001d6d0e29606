/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a hash of the bits of many results: functions at special and at ordinary arguments,
 * operations of every kind, and the parameters of a network after some steps of training. It is
 * compiled with deft.h and deft.c as one file, and once more with the library. Both must print the
 * same.
 */
#ifdef ONE_FILE
#include "deft.h"
#else
#include <deft/deft.h>
#endif

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 96, MAX_BYTES = 1 << 16 };

static int n_failed;

/* Prints the name, the dtype, the length in bytes, and the FNV-1a hash of a result. */
static void show(deft_ctx *cx, const char *name, deft_tensor *t)
{
    static unsigned char bytes[MAX_BYTES];
    const deft_dtype dtype = deft_dtype_of(t);
    const size_t size = (size_t)deft_numel(t) * deft_dtype_size(dtype);
    uint64_t hash = 0xcbf29ce484222325u;
    if (!t || size > sizeof bytes || deft_read(t, dtype, bytes, size) != DEFT_OK) {
        printf("%s: %s\n", name, deft_message(cx));
        n_failed++;
        return;
    }
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    printf("%-16s %-5s %6zu %016llx\n", name, deft_dtype_name(dtype), size,
           (unsigned long long)hash);
}

/* ---- functions ---- */

typedef struct unary {
    const char *name;
    deft_tensor *(*fn)(deft_tensor *);
} unary;

#define UNARY(name) #name, deft_##name
static const unary unaries[] = {
    { UNARY(neg) },      { UNARY(abs) },     { UNARY(sqrt) },    { UNARY(rsqrt) },
    { UNARY(cbrt) },     { UNARY(exp) },     { UNARY(exp2) },    { UNARY(expm1) },
    { UNARY(log) },      { UNARY(log2) },    { UNARY(log1p) },   { UNARY(sin) },
    { UNARY(cos) },      { UNARY(tan) },     { UNARY(asin) },    { UNARY(atan) },
    { UNARY(sinh) },     { UNARY(tanh) },    { UNARY(erf) },     { UNARY(erfc) },
    { UNARY(lgamma) },   { UNARY(digamma) }, { UNARY(sigmoid) }, { UNARY(gelu) },
    { UNARY(softplus) }, { UNARY(round) },   { UNARY(i0) },      { UNARY(erfinv) },
};

static void show_functions(deft_ctx *cx)
{
    static const deft_dtype dtypes[] = { DEFT_F32, DEFT_F64, DEFT_F16, DEFT_BF16 };
    static const double special[] = { 0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 0.5, 1e30, -1e30, 88.7 };
    double x[N];
    for (int i = 0; i < N; i++) {
        const int n_special = (int)(sizeof special / sizeof *special);
        x[i] = i < n_special ? special[i] : (i - 50) * 0.37 + 1.0 / (i + 3);
    }
    x[N - 1] = (double)NAN, x[N - 2] = (double)INFINITY, x[N - 3] = -(double)INFINITY;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        deft_tensor *const t =
            deft_cast(deft_from(cx, DEFT_SHAPE(N), DEFT_F64, x, sizeof x), dtypes[d]);
        for (size_t i = 0; i < sizeof unaries / sizeof *unaries; i++) {
            /* A NaN has many encodings, and only one is printed. */
            deft_tensor *const y = unaries[i].fn(t);
            show(cx, unaries[i].name,
                 deft_where(deft_isnan(y), deft_full(cx, DEFT_SHAPE(), dtypes[d], 1234), y));
        }
        deft_tensor *const shifted = deft_slice(t, DEFT_R(10, 90));
        deft_tensor *const other = deft_slice(t, DEFT_R(11, 91));
        show(cx, "add", deft_add(shifted, other));
        show(cx, "div", deft_div(shifted, other));
        show(cx, "pow", deft_pow(deft_abs(shifted), deft_mul_f(other, 0.1)));
        show(cx, "maximum", deft_maximum(shifted, other));
    }
}

/* ---- operations ---- */

static void show_operations(deft_ctx *cx)
{
    deft_rng rng = { .seed = 7 };
    deft_tensor *const a = deft_normal(cx, &rng, DEFT_SHAPE(24, 32), DEFT_F32, 0, 1);
    deft_tensor *const b = deft_uniform(cx, &rng, DEFT_SHAPE(32, 40), DEFT_F32, -1, 1);
    deft_tensor *const images = deft_normal(cx, &rng, DEFT_SHAPE(2, 3, 9, 9), DEFT_F32, 0, 1);
    deft_tensor *const filters = deft_normal(cx, &rng, DEFT_SHAPE(4, 3, 3, 3), DEFT_F32, 0, 1);
    deft_tensor *indices = NULL;
    show(cx, "normal", a);
    show(cx, "uniform", b);
    show(cx, "matmul", deft_matmul(a, b));
    show(cx, "matmul f64", deft_matmul(deft_cast(a, DEFT_F64), deft_cast(b, DEFT_F64)));
    show(cx, "matmul bf16", deft_matmul(deft_cast(a, DEFT_BF16), deft_cast(b, DEFT_BF16)));
    show(cx, "sum", deft_sum(a, DEFT_AXES(1), false));
    show(cx, "var", deft_var(a, DEFT_ALL_AXES, false, 0));
    show(cx, "softmax", deft_softmax(a, 1));
    show(cx, "cumsum", deft_cumsum(a, 0));
    show(cx, "sort", deft_sort(a, 1, false));
    show(cx, "topk", deft_topk(a, 5, 1, true, &indices));
    show(cx, "topk indices", indices);
    show(cx, "take", deft_take(a, deft_arange_i(cx, 20, 0, -3, DEFT_I64), 0));
    show(cx, "conv2d", deft_conv2d(images, filters, NULL));
    deft_tensor *const sides = deft_full(cx, DEFT_SHAPE(1, 1, 2), DEFT_F64, 1);
    deft_tensor *const weight = deft_full(cx, DEFT_SHAPE(1, 1, 1), DEFT_F64, 1);
    show(cx, "no weight reaches", /* GCC 14.2 can make f32 of it (meson.build) */
         deft_conv_transpose(sides, weight, DEFT_CONV(.stride = { 2 }, .padding = { 1 })));
    show(cx, "permute", deft_add_f(deft_t(a), 1));
    show(cx, "integers",
         deft_floor_div(deft_arange_i(cx, -50, 50, 1, DEFT_I32),
                        deft_full_i(cx, DEFT_SHAPE(), DEFT_I32, 7)));
}

/* ---- training ---- */

static void show_training(deft_ctx *cx)
{
    deft_nn *nn = NULL;
    deft_optim *optim = NULL;
    deft_nn_linear first, second;
    deft_tensor *g[4];
    deft_rng rng = { .seed = 3 };
    deft_tensor *const x = deft_normal(cx, &rng, DEFT_SHAPE(64, 10), DEFT_F32, 0, 1);
    deft_tensor *const labels = deft_arange_i(cx, 0, 64, 1, DEFT_I32);
    deft_tensor *const label = deft_remainder(labels, deft_full_i(cx, DEFT_SHAPE(), DEFT_I32, 5));
    if (deft_nn_create(cx, NULL, &nn) != DEFT_OK) {
        n_failed++;
        return;
    }
    deft_nn_linear_init(&first, nn, "first", 10, 16, true);
    deft_nn_linear_init(&second, nn, "second", 16, 5, true);
    if (deft_optim_create(nn, NULL, &optim) != DEFT_OK) n_failed++;
    for (int i = 0; i < 5 && !n_failed; i++) {
        const deft_scope step = deft_step_begin(cx);
        deft_tensor *loss = deft_cross_entropy(
            deft_nn_linear_call(&second, deft_tanh(deft_nn_linear_call(&first, x))), label);
        deft_grad(&loss, NULL, 1, deft_optim_parameters(optim), deft_optim_n(optim), NULL, g);
        deft_optim_step(optim, g, 0.02);
        if (deft_step_end(step) != DEFT_OK) {
            printf("step %d: %s\n", i, deft_message(cx));
            n_failed++;
        }
    }
    for (size_t i = 0; optim && i < deft_optim_n(optim); i++)
        show(cx, "parameter", deft_optim_parameters(optim)[i]);
    deft_optim_destroy(&optim);
    deft_nn_destroy(&nn);
}

int main(void)
{
    deft_ctx *cx = NULL;
    if (deft_ctx_create(NULL, NULL, &cx) != DEFT_OK) return 1;
    show_functions(cx);
    show_operations(cx);
    show_training(cx);
    deft_ctx_destroy(&cx);
    return n_failed != 0;
}
