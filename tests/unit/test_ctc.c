/* SPDX-License-Identifier: Apache-2.0
 *
 * deft_ctc_loss against its definition: a loop over all paths. PyTorch's values are in
 * tests/torch/torch.cases.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include "support/harness.h"

enum { T = 5, C = 3, S = 3, N = 4, BLANK = 1 };

/* Whether path number `path` of n times reads as the target. */
static bool reads_as(int path, int64_t n, const int64_t *target, int64_t n_target)
{
    int64_t last = -1, found = 0;
    for (int64_t t = 0; t < n; t++, path /= C) {
        const int64_t k = path % C;
        if (k != last && k != BLANK) {
            if (found == n_target || target[found] != k) return false;
            found++;
        }
        last = k;
    }
    return found == n_target;
}

static double loss_by_paths(double p[T][N][C], int64_t i, int64_t n, const int64_t *target,
                            int64_t n_target)
{
    double sum = 0;
    int n_paths = 1;
    for (int64_t t = 0; t < n; t++) n_paths *= C;
    for (int path = 0; path < n_paths; path++) {
        if (!reads_as(path, n, target, n_target)) continue;
        double product = 1;
        int rest = path;
        for (int64_t t = 0; t < n; t++, rest /= C) product *= p[t][i][rest % C];
        sum += product;
    }
    return -log(sum);
}

static void fill(double p[T][N][C], double log_p[T][N][C], unsigned seed)
{
    for (int t = 0; t < T; t++)
        for (int i = 0; i < N; i++) {
            double sum = 0;
            for (int k = 0; k < C; k++)
                sum += p[t][i][k] = 1 + (double)(seed = seed * 1664525 + 1013904223) / 4e9;
            for (int k = 0; k < C; k++) log_p[t][i][k] = log(p[t][i][k] /= sum);
        }
}

static void compare_with_paths(rig *r)
{
    static const int64_t targets[][N][S] = {
        { { 0, 2, 0 }, { 2, 2, 0 }, { 0, 0, 0 }, { 2, 0, 2 } },
        { { 2, 2, 7 }, { 0, -5, 9 }, { 0, 2, BLANK }, { BLANK, BLANK, BLANK } },
    };
    static const int64_t times[][N] = { { T, T, T, T }, { 4, 1, 2, 0 } };
    static const int64_t lengths[][N] = { { S, S, S, S }, { 2, 1, 2, 0 } };
    for (int k = 0; k < 2; k++) {
        double p[T][N][C], log_p[T][N][C], got[N];
        fill(p, log_p, 3 + (unsigned)k);
        const deft_scope s = deft_scope_begin(r->cx);
        deft_tensor *const x = deft_from(r->cx, DEFT_SHAPE(T, N, C), DEFT_F64, log_p, sizeof log_p);
        deft_tensor *const y =
            deft_from(r->cx, DEFT_SHAPE(N, S), DEFT_I64, targets[k], sizeof targets[k]);
        deft_tensor *const n = deft_from(r->cx, DEFT_SHAPE(N), DEFT_I64, times[k], sizeof times[k]);
        deft_tensor *const m =
            deft_from(r->cx, DEFT_SHAPE(N), DEFT_I64, lengths[k], sizeof lengths[k]);
        const deft_ctc_options o = { .size = sizeof o,
                                     .reduction = DEFT_REDUCTION_NONE,
                                     .blank = BLANK };
        OK(r, deft_read(deft_ctc_loss(x, y, k ? n : NULL, k ? m : NULL, &o), DEFT_F64, got,
                        sizeof got));
        for (int i = 0; i < N; i++) {
            const double want = loss_by_paths(p, i, times[k][i], targets[k][i], lengths[k][i]);
            cr_assert(got[i] == want || fabs(got[i] - want) < 1e-12,
                      "%d, example %d: %.17g, not %.17g", k, i, got[i], want);
        }
        OK(r, deft_scope_end(s));
    }
}

Test(ctc, is_the_sum_over_all_paths)
{
    rig r;
    rig_open(&r, NULL, NULL);
    compare_with_paths(&r);
    rig_close(&r);
    rig_interpret(&r, 1);
    compare_with_paths(&r);
    rig_close(&r);
}

static deft_status loss_and_gradient(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                     deft_tensor **out, size_t n_out, void *user)
{
    const deft_ctc_options o = { .size = sizeof o, .zero_infinity = true };
    (void)n_in, (void)n_out, (void)user;
    out[0] = deft_ctc_loss(in[0], in[1], NULL, in[2], &o);
    return deft_grad(&out[0], NULL, 1, in, 1, NULL, &out[1]) ? DEFT_OK : deft_error(cx);
}

/* With two times and one label, 0 the blank: minus the sum of p[0][0] p[1][1], p[0][1] p[1][0] and
 * p[0][1] p[1][1] inside the logarithm. All are 1/2, so each path has the weight 1/3. */
Test(ctc, its_gradient_is_in_captures_and_finite_where_no_path_is)
{
    rig r;
    rig_interpret(&r, 1);
    const float half = logf(0.5f);
    float x[2][2][2] = { { { half, half }, { half, half } }, { { half, half }, { half, half } } };
    deft_capture *c = deft_capture_create(r.cx, loss_and_gradient, NULL);
    deft_tensor *const in[] = {
        rig_tensor(&r, DEFT_SHAPE(2, 2, 2), &x[0][0][0]),
        deft_keep(deft_full_i(r.cx, DEFT_SHAPE(2, 2), DEFT_I32, 1)),
        deft_keep(deft_from(r.cx, DEFT_SHAPE(2), DEFT_I64, (int64_t[]){ 1, 2 }, 16)),
    };
    for (int i = 0; i < 4; i++) {
        deft_tensor *out[2];
        float got[8], loss;
        OK(&r, deft_capture_call(c, in, 3, out, 2));
        rig_read(&r, out[0], &loss, 1);
        rig_read(&r, out[1], got, 8);
        cr_assert_float_eq(loss, -logf(0.75f) / 2, 1e-6f);
        const float want[8] = { -1 / 6.f, -1 / 3.f, 0, 0, -1 / 6.f, -1 / 3.f, 0, 0 };
        for (int k = 0; k < 8; k++)
            cr_assert_float_eq(got[k], want[k], 1e-6f, "%d: %g", k, (double)got[k]);
        deft_drop(&out[0]);
        deft_drop(&out[1]);
    }
    deft_capture_destroy(&c);
    rig_close(&r);
}

Test(ctc, mistakes)
{
    rig r;
    rig_interpret(&r, 1);
    deft_tensor *const x = deft_zeros(r.cx, DEFT_SHAPE(4, 2, 3), DEFT_F32);
    deft_tensor *const y = deft_zeros(r.cx, DEFT_SHAPE(2, 1), DEFT_I64), *const n = deft_flatten(y);
#define MISTAKE(call, status, words) rig_expect_error(&r, call, status, words)
    MISTAKE(deft_ctc_loss(x, x, NULL, NULL, NULL), DEFT_E_DTYPE,
            "targets are f32[4,2,3]; it takes floats");
    MISTAKE(deft_ctc_loss(x, n, NULL, NULL, NULL), DEFT_E_SHAPE,
            "targets are i64[2]; it takes [T, N, C]");
    MISTAKE(deft_ctc_loss(x, y, x, NULL, NULL), DEFT_E_SHAPE, "lengths are to be 2 integers");
    MISTAKE(deft_ctc_loss(x, y, NULL, NULL, DEFT_CTC(.blank = 3)), DEFT_E_ARG,
            "blank 3 of 3 classes");
    MISTAKE(deft_ctc_loss(x, y, n, n, DEFT_CTC(.reduction = DEFT_REDUCTION_BATCH_MEAN)), DEFT_E_ARG,
            "reduction 3");
    rig_close(&r);
}
