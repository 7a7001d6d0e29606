/* SPDX-License-Identifier: Apache-2.0
 *
 * What halves cost: one fused map on one thread, kept in place, on f32, f16 and bf16. Out of memory
 * against a memcpy of as many bytes, in cache against the f32 kernel.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 1 << 24, SMALL = 1 << 18 };

typedef struct work {
    deft_ctx *cx;
    deft_tensor *x, *y;
    void *from, *to;
    size_t bytes;
    bool is_gelu;
} work;

static void ours(void *user)
{
    work *const w = user;
    const deft_scope s = deft_step_begin(w->cx);
    deft_tensor *const r =
        w->is_gelu ? deft_gelu(w->x) : deft_relu(deft_add(deft_mul(w->x, 0.75), 0.25));
    deft_assign(w->y, r);
    bench_must(w->cx, deft_step_end(s), "halves");
}

static void copy(void *user)
{
    const work *const w = user;
    memcpy(w->to, w->from, w->bytes);
}

static work prepare(deft_ctx *cx, deft_dtype t, int64_t n, bool is_gelu)
{
    work w = { .cx = cx, .bytes = (size_t)n * deft_dtype_size(t), .is_gelu = is_gelu };
    const deft_shape shape = { .rank = 1, .dim = { n } };
    w.from = aligned_alloc(64, w.bytes);
    w.to = aligned_alloc(64, w.bytes);
    if (!w.from || !w.to) exit(1);
    memset(w.to, 0, w.bytes);
    deft_rng rng = { 1, 0 };
    bench_must(cx, deft_read(deft_uniform(cx, &rng, shape, t, -4, 4), t, w.from, w.bytes),
               "halves");
    w.x = deft_keep(deft_wrap(cx, shape, t, w.from, w.bytes, NULL));
    w.y = deft_keep(deft_wrap_mut(cx, shape, t, w.to, w.bytes, NULL));
    return w;
}

static void finish(work *w)
{
    deft_drop(&w->x);
    deft_drop(&w->y);
    free(w->from);
    free(w->to);
}

void bench_halves(bench *b)
{
    static const deft_dtype dtypes[] = { DEFT_F32, DEFT_F16, DEFT_BF16 };
    deft_runtime *rt = bench_runtime(1, DEFT_TIER_FULL, 0);
    deft_ctx *cx = bench_ctx(rt, DEFT_STRICT);
    const int rounds = b->quick ? 3 : 15;
    for (size_t k = 0; k < 3; k++) {
        char label[64];
        double t, reference;
        snprintf(label, sizeof label, "relu(a x + b), 16 M %s", deft_dtype_name(dtypes[k]));
        if (bench_wants(b, label)) {
            work w = prepare(cx, dtypes[k], LARGE, false);
            bench_pair(ours, &w, copy, &w, rounds, 2, &t, &reference);
            bench_row(b, label, t * 1e3, "ms", "memcpy of as many bytes", reference * 1e3,
                      BENCH_RATIO_AT_MOST, dtypes[k] == DEFT_F32 ? 1.25 : 1.1);
            finish(&w);
        }
        for (int is_gelu = 0; k > 0 && is_gelu < 2; is_gelu++) {
            snprintf(label, sizeof label, "%s, 256 K %s", is_gelu ? "gelu" : "relu(a x + b)",
                     deft_dtype_name(dtypes[k]));
            if (!bench_wants(b, label)) continue;
            work w = prepare(cx, dtypes[k], SMALL, is_gelu);
            work f32 = prepare(cx, DEFT_F32, SMALL, is_gelu);
            bench_pair(ours, &w, ours, &f32, rounds, 50, &t, &reference);
            bench_row(b, label, t * 1e6, "us", "the same in f32", reference * 1e6,
                      BENCH_RATIO_AT_MOST, 1.5);
            finish(&w);
            finish(&f32);
        }
    }
    deft_ctx_destroy(&cx);
    deft_runtime_destroy(&rt);
}
