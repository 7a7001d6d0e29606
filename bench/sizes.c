/* SPDX-License-Identifier: Apache-2.0
 *
 * Results whose size is data, and sorting: whole calls (record, cut, run, read in place) on 1 M
 * elements and one thread, against the plain C loop that a program without deft would have.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N (1 << 20)

typedef struct work {
    deft_ctx *cx;
    deft_tensor *t, *mask;
    const float *x;
    const double *d;
    const bool *is;
    void *out;
    size_t n_out;
} work;

static void finish(work *w, deft_tensor *t)
{
    bench_must(w->cx, deft_eval(&t, 1), "sizes");
}

static void ours_nonzero(void *user)
{
    work *const w = user;
    const deft_scope s = deft_scope_begin(w->cx);
    finish(w, deft_nonzero(w->t, N, NULL));
    bench_must(w->cx, deft_scope_end(s), "sizes");
}

static void plain_nonzero(void *user)
{
    work *const w = user;
    int64_t *const out = w->out;
    int64_t n = 0;
    for (int64_t i = 0; i < N; i++)
        if (w->x[i] != 0) out[n++] = i;
    for (w->n_out = (size_t)n; n < N; n++) out[n] = 0;
}

static void ours_nonzero_2d(void *user)
{
    work *const w = user;
    const deft_scope s = deft_scope_begin(w->cx);
    finish(w, deft_nonzero(deft_reshape(w->t, DEFT_SHAPE(1 << 10, -1)), N, NULL));
    bench_must(w->cx, deft_scope_end(s), "sizes");
}

static void plain_nonzero_2d(void *user)
{
    work *const w = user;
    int64_t(*const out)[2] = w->out;
    int64_t n = 0;
    for (int64_t i = 0; i < 1 << 10; i++)
        for (int64_t k = 0; k < 1 << 10; k++)
            if (w->x[i << 10 | k] != 0) {
                out[n][0] = i;
                out[n++][1] = k;
            }
    for (w->n_out = (size_t)n; n < N; n++) out[n][0] = out[n][1] = 0;
}

static void ours_compress(void *user)
{
    work *const w = user;
    const deft_scope s = deft_scope_begin(w->cx);
    finish(w, deft_compress(w->t, w->mask, N, NULL));
    bench_must(w->cx, deft_scope_end(s), "sizes");
}

static void plain_compress(void *user)
{
    work *const w = user;
    float *const out = w->out;
    int64_t n = 0;
    for (int64_t i = 0; i < N; i++)
        if (w->is[i]) out[n++] = w->x[i];
    for (w->n_out = (size_t)n; n < N; n++) out[n] = 0;
}

static int by_f32(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static int by_f64(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void ours_sort(void *user)
{
    work *const w = user;
    const deft_scope s = deft_scope_begin(w->cx);
    finish(w, deft_sort(w->t, 0, 0));
    bench_must(w->cx, deft_scope_end(s), "sizes");
}

static void ours_rows(void *user)
{
    work *const w = user;
    const deft_scope s = deft_scope_begin(w->cx);
    finish(w, deft_sort(deft_reshape(w->t, DEFT_SHAPE(N / 64, 64)), 1, 0));
    bench_must(w->cx, deft_scope_end(s), "sizes");
}

static void plain_rows(void *user)
{
    work *const w = user;
    memcpy(w->out, w->x, N * sizeof *w->x);
    for (size_t i = 0; i < N / 64; i++) qsort((float *)w->out + 64 * i, 64, sizeof *w->x, by_f32);
}

static void ours_unique(void *user)
{
    work *const w = user;
    const deft_scope s = deft_scope_begin(w->cx);
    finish(w, deft_unique(w->t, N, NULL));
    bench_must(w->cx, deft_scope_end(s), "sizes");
}

static void plain_sort(void *user)
{
    work *const w = user;
    if (w->d) {
        memcpy(w->out, w->d, N * sizeof *w->d);
        qsort(w->out, N, sizeof *w->d, by_f64);
    } else {
        memcpy(w->out, w->x, N * sizeof *w->x);
        qsort(w->out, N, sizeof *w->x, by_f32);
    }
}

static void plain_unique(void *user)
{
    work *const w = user;
    float *const out = w->out;
    size_t n = 0;
    plain_sort(w);
    for (size_t i = 0; i < N; i++)
        if (i == 0 || out[i] != out[n - 1]) out[n++] = out[i];
}

static void compare(bench *b, const char *label, bench_fn f, bench_fn g, work *w,
                    const char *reference, double goal)
{
    double tf, tg;
    if (!bench_wants(b, label)) return;
    bench_pair(f, w, g, w, b->quick ? 3 : 9, b->quick ? 1 : 4, &tf, &tg);
    bench_row(b, label, tf * 1e3, "ms", reference, tg * 1e3, BENCH_RATIO_AT_MOST, goal);
}

void bench_sizes(bench *b)
{
    deft_runtime *rt = bench_runtime(1, DEFT_TIER_FULL, 0);
    deft_ctx *cx = bench_ctx(rt, DEFT_STRICT);
    float *const x = malloc(N * sizeof *x);
    double *const d = malloc(N * sizeof *d);
    bool *const is = malloc(N * sizeof *is);
    work w = { .cx = cx, .x = x, .is = is, .out = malloc(2 * N * sizeof(int64_t)) };
    if (!x || !d || !is || !w.out) exit(1);
    w.t = deft_keep(deft_wrap(cx, DEFT_SHAPE(N), DEFT_F32, x, N * sizeof *x, NULL));
    w.mask = deft_keep(deft_wrap(cx, DEFT_SHAPE(N), DEFT_BOOL, is, N * sizeof *is, NULL));
    static const int percent[] = { 1, 50, 100 };
    for (size_t k = 0; k < sizeof percent / sizeof *percent; k++) {
        uint32_t r = 1;
        char label[64];
        for (int i = 0; i < N; i++) {
            r = r * 1664525u + 1013904223u;
            is[i] = (r >> 8) % 100 < (uint32_t)percent[k];
            x[i] = is[i] ? (float)i + 0.5f : 0;
        }
        snprintf(label, sizeof label, "nonzero, %d %% of 1 M f32", percent[k]);
        compare(b, label, ours_nonzero, plain_nonzero, &w, "C loop", 2);
        snprintf(label, sizeof label, "nonzero, %d %% of 1 K x 1 K f32", percent[k]);
        compare(b, label, ours_nonzero_2d, plain_nonzero_2d, &w, "C loops", 2);
        snprintf(label, sizeof label, "compress, %d %% of 1 M f32", percent[k]);
        compare(b, label, ours_compress, plain_compress, &w, "C loop", 2);
    }
    uint32_t r = 1;
    for (int i = 0; i < N; i++) {
        r = r * 1664525u + 1013904223u;
        x[i] = (float)(r >> 8);
        d[i] = 1.0 / (1.0 + (double)r);
    }
    compare(b, "sort 1 M f32", ours_sort, plain_sort, &w, "qsort", 5);
    compare(b, "sort 16 K rows of 64 f32", ours_rows, plain_rows, &w, "qsort", 5);
    for (int i = 0; i < N; i++) x[i] = (float)((int)x[i] % 1000);
    compare(b, "unique of 1 M f32, 1000 values", ours_unique, plain_unique, &w, "qsort and a loop",
            5);
    deft_drop(&w.t);
    w.t = deft_keep(deft_wrap(cx, DEFT_SHAPE(N), DEFT_F64, d, N * sizeof *d, NULL));
    w.d = d;
    compare(b, "sort 1 M f64", ours_sort, plain_sort, &w, "qsort", 5);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
    free(x);
    free(d);
    free(is);
    free(w.out);
}
