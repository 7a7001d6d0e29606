/* SPDX-License-Identifier: Apache-2.0
 *
 * An opaque operator: the median of each row, by qsort of libc. It stands in the middle of a
 * program: rows are scaled before it, and their distances from the median are computed after it.
 * deft_vmap and a gradient pass through it, too.
 */
#include <deft/deft.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3, COLS = 5 };

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* f64[..., n] gives the medians f64[...], and where they are: i64[...]. n is odd. */
static deft_status median_shape(const deft_op_form *in, size_t n_in, deft_op_form *out,
                                size_t n_out, const deft_op_about *about)
{
    (void)n_in, (void)n_out;
    if (in[0].dtype != DEFT_F64 || in[0].rank < 1 || in[0].extent[in[0].rank - 1] % 2 == 0) {
        snprintf(about->why, about->n_why, "it takes rows of an odd number of f64");
        return DEFT_E_SHAPE;
    }
    out[0] = in[0];
    out[0].rank--;
    out[1] = out[0];
    out[1].dtype = DEFT_I64;
    return DEFT_OK;
}

static deft_status median_run(const deft_op_input *in, size_t n_in, const deft_op_result *out,
                              size_t n_out, const deft_op_about *about)
{
    const size_t n = (size_t)in[0].form.extent[in[0].form.rank - 1];
    const double *const from = in[0].data; /* without gaps: deft_op_def.dense */
    double *const medians = out[0].data;
    int64_t *const at = out[1].data;
    double *const row = malloc(n * sizeof *row);
    (void)n_in, (void)n_out;
    if (!row) {
        snprintf(about->why, about->n_why, "no memory for %zu numbers", n);
        return DEFT_E_MEMORY;
    }
    for (size_t i = 0; i < out[0].bytes / sizeof *medians; i++) {
        memcpy(row, from + i * n, n * sizeof *row);
        qsort(row, n, sizeof *row, ascending);
        medians[i] = row[n / 2];
        for (size_t k = n; k-- > 0;)
            if (from[i * n + k] == medians[i]) at[i] = (int64_t)k;
    }
    free(row);
    return DEFT_OK;
}

/* The gradient goes to the element that is the median. This records ordinary operations. */
static deft_status median_gradient(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                   deft_tensor *const *out, deft_tensor *const *grad_out,
                                   size_t n_out, deft_tensor **grad_in, void *attributes)
{
    deft_tensor *const at = deft_expand_dims(out[1], DEFT_AXES(-1));
    deft_tensor *const g = deft_expand_dims(grad_out[0], DEFT_AXES(-1));
    (void)cx, (void)n_in, (void)n_out, (void)attributes;
    grad_in[0] = deft_scatter_add(deft_zeros_like(in[0]), at, g, -1);
    return DEFT_OK;
}

static const deft_op *median;

/* The sum of distances from the median, of one row. */
static deft_status spread(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    deft_tensor *of[2], *const scaled = deft_mul(in[0], 2);
    (void)n_in, (void)n_out, (void)user;
    if (!deft_op_call(cx, median, &scaled, 1, NULL, of, 2)) return DEFT_E_STATE;
    out[0] = deft_sum(deft_abs(deft_sub(scaled, of[0])), DEFT_ALL_AXES, false);
    return DEFT_OK;
}

int main(void)
{
    const double data[ROWS][COLS] = { { 5, 1, 4, 2, 3 },
                                      { 0, 7, -1, 9, 2.5 },
                                      { 1.5, 1, 8, -3, 0 } };
    const double want[ROWS] = { 12, 34, 25 };
    deft_ctx *cx = NULL;
    deft_op *op = NULL;
    char why[256], report[1024];
    double got[ROWS], slope[COLS];
    if (deft_ctx_create(NULL, NULL, &cx) != DEFT_OK) return 1;
    const deft_op_def def = { .size = sizeof def,
                              .name = "acme.median",
                              .version = 1,
                              .n_in = 1,
                              .n_out = 2,
                              .grad = median_gradient,
                              .shape = median_shape,
                              .run = median_run,
                              .dense = true };
    if (deft_op_define(deft_ctx_runtime(cx), &def, &op, why, sizeof why) != DEFT_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    median = op;

    deft_tensor *const x = deft_from(cx, DEFT_SHAPE(ROWS, COLS), DEFT_F64, data, sizeof data);
    deft_tensor *y;
    if (!deft_vmap(cx, spread, NULL, &x, (int[]){ 0 }, 1, &y, NULL, 1)) return 1;
    if (deft_read(y, DEFT_F64, got, sizeof got) != DEFT_OK) return 1;
    int n_wrong = 0;
    for (int i = 0; i < ROWS; i++) n_wrong += got[i] != want[i];
    printf("%d of %d sums differ from those by hand\n", n_wrong, ROWS);

    /* The gradient of the first sum: the median itself has the slope of all others. */
    deft_tensor *const row = deft_from(cx, DEFT_SHAPE(COLS), DEFT_F64, data[0], sizeof data[0]);
    deft_tensor *of, *g;
    if (spread(cx, &row, 1, &of, 1, NULL) != DEFT_OK) return 1;
    if (!deft_grad(&of, NULL, 1, &row, 1, NULL, &g)) return 1;
    if (deft_read(g, DEFT_F64, slope, sizeof slope) != DEFT_OK) return 1;
    const double signs[COLS] = { 2, -2, 2, -2, 0 };
    for (int i = 0; i < COLS; i++) n_wrong += slope[i] != signs[i];

    const deft_status st = deft_op_check(cx, op, &x, 1, NULL, NULL, report, sizeof report);
    printf("%s: %s\n", deft_op_name(op), deft_status_text(st));
    if (st != DEFT_OK) fprintf(stderr, "%s\n%s", deft_message(cx), report);
    deft_ctx_destroy(&cx);
    return n_wrong != 0 || st != DEFT_OK;
}
