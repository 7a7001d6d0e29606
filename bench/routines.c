/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting, selecting, counting and random numbers: whole calls (record, cut, run) on one thread and
 * on two, against C on one thread (bench/ref, the faster of the compilers found).
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref_routines.h"

enum { N = 1 << 20, MANY = 1 << 24 };

typedef struct work {
    deft_ctx *cx;
    deft_tensor *x, *index;
    deft_dtype dtype;
    int64_t n_rows, n, k; /* rows of n elements; k of them, or bins */
    const ref_routines *ref;
    const float *in;
    const int64_t *at;
    void *out;
    uint32_t *words;
    deft_rng rng;
} work;

/* ---- ours ---- */

static void our_topk(void *user)
{
    work *const w = user;
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *both[2];
    both[0] = deft_topk(w->x, w->k, -1, true, &both[1]);
    bench_must(w->cx, deft_eval(both, 2), "routines");
    bench_must(w->cx, deft_scope_end(s), "routines");
}

#define OURS(name, made)                                                                           \
    static void name(void *user)                                                                   \
    {                                                                                              \
        work *const w = user;                                                                      \
        const deft_scope s = deft_scope_begin(w->cx);                                              \
        deft_tensor *t = (made);                                                                   \
        bench_must(w->cx, deft_eval(&t, 1), "routines");                                           \
        bench_must(w->cx, deft_scope_end(s), "routines");                                          \
    }

OURS(our_argsort, deft_argsort(w->x, -1, false))
OURS(our_sort, deft_sort(w->x, -1, false))
OURS(our_count, deft_index_add(deft_zeros(w->cx, DEFT_SHAPE(w->k), w->dtype), w->index,
                               deft_num_i(w->cx, 1), 0))
OURS(our_uniform, deft_uniform(w->cx, &w->rng, DEFT_SHAPE(w->n), DEFT_F32, 0, 1))
OURS(our_normal, deft_normal(w->cx, &w->rng, DEFT_SHAPE(w->n), DEFT_F32, 0, 1))

/* ---- C ---- */

static void c_topk(void *user)
{
    const work *const w = user;
    for (int64_t i = 0; i < w->n_rows; i++)
        w->ref->topk(w->in + i * w->n, w->n, w->k, (int64_t *)w->out + i * w->k);
}

static void c_argsort(void *user)
{
    const work *const w = user;
    for (int64_t i = 0; i < w->n_rows; i++)
        w->ref->argsort(w->in + i * w->n, w->n, (int64_t *)w->out + i * w->n, w->words);
}

static void c_count(void *user)
{
    const work *const w = user;
    if (w->dtype == DEFT_I64) w->ref->count_i64(w->at, w->n, w->out, w->k);
    if (w->dtype == DEFT_I32) w->ref->count_i32(w->at, w->n, w->out, w->k);
    if (w->dtype == DEFT_F32) w->ref->count_f32(w->at, w->n, w->out, w->k);
}

static void c_uniform(void *user)
{
    const work *const w = user;
    w->ref->uniform(1, w->out, w->n);
}

static void c_normal(void *user)
{
    const work *const w = user;
    w->ref->normal(1, w->out, w->n);
}

/* ---- rows ---- */

static const ref_routines *fastest(work *w, bench_fn c)
{
    static const ref_routines *const tables[] = {
#ifdef REF_HAVE_GCC
        &ref_routines_gcc,
#endif
#ifdef REF_HAVE_CLANG
        &ref_routines_clang,
#endif
    };
    const ref_routines *best = NULL;
    double least = 1e30;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        w->ref = tables[i];
        const double t = bench_one(c, w, 3, 1);
        if (t < least) best = tables[i];
        if (t < least) least = t;
    }
    return best;
}

/* One row for each number of threads. With two threads, half the time on one is the goal. */
static void compare(bench *b, const char *what, work *w, bench_fn ours, bench_fn c, double goal)
{
    for (uint32_t threads = 1; threads <= 2; threads++) {
        char label[64];
        double t, reference;
        snprintf(label, sizeof label, "%s, %u thread%s", what, threads, threads > 1 ? "s" : "");
        if (!bench_wants(b, label)) continue;
        deft_runtime *rt = bench_runtime(threads, DEFT_TIER_FULL, 0);
        w->cx = bench_ctx(rt, DEFT_STRICT);
        const deft_shape rows = { .rank = 2, .dim = { w->n_rows, w->n } };
        const size_t n = (size_t)(w->n_rows * w->n);
        const bool many = n > N;
        w->x = many ? NULL
                    : deft_keep(deft_wrap(w->cx, rows, DEFT_F32, w->in, n * sizeof *w->in, NULL));
        w->index = many ? NULL
                        : deft_keep(deft_wrap(w->cx, DEFT_SHAPE(w->n), DEFT_I64, w->at,
                                              (size_t)w->n * sizeof *w->at, NULL));
        w->rng = (deft_rng){ 1, 0 };
        w->ref = fastest(w, c);
        bench_pair(ours, w, c, w, b->quick ? 3 : 9, b->quick || many ? 1 : 4, &t, &reference);
        bench_row(b, label, t * 1e3, "ms", "C, one thread", reference * 1e3, BENCH_RATIO_AT_MOST,
                  threads > 1 ? goal * 0.6 : goal);
        deft_drop(&w->x);
        deft_drop(&w->index);
        deft_ctx_destroy(&w->cx);
        deft_runtime_destroy(&rt);
    }
}

static void compare_rows(bench *b, work *w)
{
    static const struct {
        const char *name;
        int64_t n;
    } lengths[] = { { "1 K", 1 << 10 }, { "64 K", 1 << 16 }, { "1 M", N } };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char label[64];
        w->n = lengths[i].n;
        w->n_rows = N / w->n;
        for (w->k = 8; w->k <= 64; w->k *= 8) {
            snprintf(label, sizeof label, "%d of %s", (int)w->k, lengths[i].name);
            compare(b, label, w, our_topk, c_topk, 1);
        }
        snprintf(label, sizeof label, "argsort, rows of %s", lengths[i].name);
        compare(b, label, w, our_argsort, c_argsort, 1.1);
        snprintf(label, sizeof label, "sort, rows of %s", lengths[i].name);
        compare(b, label, w, our_sort, c_argsort, 1.3);
    }
}

static void compare_counts(bench *b, work *w, int64_t *at)
{
    static const deft_dtype dtypes[] = { DEFT_I64, DEFT_I32, DEFT_F32 };
    static const int64_t bins[] = { 16, 256, 65536 };
    w->n_rows = 1;
    w->n = N;
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) {
            char label[64];
            uint32_t r = 1;
            w->k = bins[k];
            w->dtype = dtypes[i];
            for (int64_t j = 0; j < N; j++) {
                r = r * 1664525u + 1013904223u;
                at[j] = (int64_t)((uint64_t)r * (uint64_t)w->k >> 32);
            }
            snprintf(label, sizeof label, "count in %d bins of %s", (int)w->k,
                     deft_dtype_name(w->dtype));
            compare(b, label, w, our_count, c_count, 1.1);
        }
}

void bench_routines(bench *b)
{
    float *const in = malloc(N * sizeof *in);
    int64_t *const at = malloc(N * sizeof *at);
    work w = { .in = in, .at = at };
    w.out = malloc(N * sizeof(int64_t) > MANY * sizeof(float) ? N * sizeof(int64_t)
                                                              : MANY * sizeof(float));
    w.words = malloc(4 * N * sizeof *w.words);
    if (!in || !at || !w.out || !w.words) exit(1);
    uint32_t r = 1;
    for (int i = 0; i < N; i++) {
        r = r * 1664525u + 1013904223u;
        in[i] = (float)(r >> 8) * 0x1p-21f - 4;
        at[i] = 0;
    }
    compare_rows(b, &w);
    compare_counts(b, &w, at);
    w.n_rows = 1;
    for (w.n = N; w.n <= MANY; w.n *= 16) {
        const char *const size = w.n == N ? "1 M" : "16 M";
        char label[64];
        snprintf(label, sizeof label, "uniform, %s f32", size);
        compare(b, label, &w, our_uniform, c_uniform, 1);
        snprintf(label, sizeof label, "normal, %s f32", size);
        compare(b, label, &w, our_normal, c_normal, 1);
    }
    free(in);
    free(at);
    free(w.out);
    free(w.words);
}
