/* SPDX-License-Identifier: Apache-2.0
 *
 * Values added at indices: whole calls (record, cut, run) on one thread, against the plain C loop
 * over memory that is there.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

typedef struct work {
    deft_ctx *cx;
    int64_t n, rows, width; /* of the result: n rows; of the values: `rows` rows */
    bool each, ones;        /* an index for each value; every value is 1 */
    bool kept;              /* what is added to is assigned the result, with all it held */
    deft_tensor *base, *at, *value;
    const int64_t *index;
    const float *v;
    float *out;
} work;

static void ours(void *user)
{
    work *const w = user;
    const deft_scope s = deft_step_begin(w->cx);
    deft_tensor *const base =
        w->kept ? w->base : deft_zeros(w->cx, DEFT_SHAPE(w->n, w->width), DEFT_F32);
    deft_tensor *const value = w->ones ? deft_num(w->cx, 1) : w->value;
    deft_tensor *t =
        w->each ? deft_scatter_add(base, w->at, value, 1) : deft_index_add(base, w->at, value, 0);
    if (w->kept)
        deft_assign(w->base, t);
    else
        bench_must(w->cx, deft_eval(&t, 1), "scatter");
    bench_must(w->cx, deft_step_end(s), "scatter");
}

static void plain(void *user)
{
    const work *const w = user;
    if (!w->kept) memset(w->out, 0, (size_t)(w->n * w->width) * sizeof *w->out);
    for (int64_t i = 0; i < w->rows; i++) {
        if (w->each) {
            w->out[i * w->width + w->index[i]] += w->v[i];
            continue;
        }
        float *const to = w->out + w->index[i] * w->width;
        for (int64_t k = 0; k < w->width; k++) to[k] += w->ones ? 1 : w->v[i * w->width + k];
    }
}

static void compare(bench *b, const char *label, deft_ctx *cx, work w, double goal)
{
    if (!bench_wants(b, label)) return;
    const int64_t n_values = w.rows * (w.each ? 1 : w.width), n_out = w.n * w.width;
    const int64_t most = w.each ? w.width : w.n;
    int64_t *const index = malloc((size_t)w.rows * sizeof *index);
    float *const v = malloc((size_t)n_values * sizeof *v);
    w.out = calloc((size_t)n_out, sizeof *w.out);
    if (!index || !v || !w.out) exit(1);
    uint32_t r = 1;
    for (int64_t i = 0; i < w.rows; i++) {
        r = r * 1664525u + 1013904223u;
        index[i] = (int64_t)((uint64_t)r * (uint64_t)most >> 32);
    }
    for (int64_t i = 0; i < n_values; i++) v[i] = (float)(i % 1000) / 16;
    w.cx = cx;
    w.index = index;
    w.v = v;
    const deft_shape at = { .rank = w.each ? 2 : 1, .dim = { w.rows, 1 } };
    const deft_shape values = { .rank = 2, .dim = { w.rows, w.each ? 1 : w.width } };
    w.at = deft_keep(deft_wrap(cx, at, DEFT_I64, index, (size_t)w.rows * sizeof *index, NULL));
    w.value = deft_keep(deft_wrap(cx, values, DEFT_F32, v, (size_t)n_values * sizeof *v, NULL));
    w.base = deft_keep(deft_zeros(cx, DEFT_SHAPE(w.n, w.width), DEFT_F32));
    double tf, tg;
    bench_pair(ours, &w, plain, &w, b->quick ? 3 : 9, b->quick ? 1 : 4, &tf, &tg);
    bench_row(b, label, tf * 1e3, "ms", "C loop", tg * 1e3, BENCH_RATIO_AT_MOST, goal);
    deft_drop(&w.at);
    deft_drop(&w.value);
    deft_drop(&w.base);
    free(index);
    free(v);
    free(w.out);
}

void bench_scatter(bench *b)
{
    deft_runtime *rt = bench_runtime(1, DEFT_TIER_FULL, 0);
    deft_ctx *cx = bench_ctx(rt, DEFT_STRICT);
    compare(b, "1024 x 768 into 50257 x 768 zeros", cx,
            (work){ .n = 50257, .rows = 1024, .width = 768 }, 1.1);
    compare(b, "64 K x 16 into 16 K x 16 zeros", cx,
            (work){ .n = 1 << 14, .rows = 1 << 16, .width = 16 }, 1.25);
    compare(b, "one a row, 16 K, into 16 K x 256 zeros", cx,
            (work){ .n = 1 << 14, .rows = 1 << 14, .width = 256, .each = true }, 1.1);
    compare(b, "1 M counts in 256 bins", cx,
            (work){ .n = 256, .rows = 1 << 20, .width = 1, .ones = true }, 1.25);
    compare(b, "1 M counts in 1 M bins", cx,
            (work){ .n = 1 << 20, .rows = 1 << 20, .width = 1, .ones = true }, 1.25);
    compare(b, "1 K counts in 1 M bins, kept", cx,
            (work){ .n = 1 << 20, .rows = 1 << 10, .width = 1, .ones = true, .kept = true }, 4);
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}
