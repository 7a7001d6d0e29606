/* SPDX-License-Identifier: Apache-2.0
 *
 * What does it cost to write a part of an array, against the C loop that does the same? Whole steps
 * (record, cut, run) on one thread, on memory that both sides have as long as the program runs, and
 * the temporaries that a step is planned to take, against the bytes of the largest part that it
 * writes; the allocator's sizes lie up to an eighth apart. Before the times are taken, one step of
 * each is compared with the loop bit by bit.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref_updates.h"

enum { N = 1000, WIDE = 2000, SWEEP = 16, ROWS = 4096, C = 256, MOST = WIDE * WIDE };

typedef struct work {
    deft_ctx *cx;
    const ref_updates *ref;
    deft_tensor *x, *y, *z;
    double *ours[3], *c[3];
    double *staged;
    int64_t at[2]; /* where the next step writes: ours, the C loop */
} work;

/* The i-th position of a sweep over columns, or of a few blocks of nearly one size. */
static int64_t next_at(work *w, int side, int64_t least, int64_t n)
{
    return least + w->at[side]++ % n;
}

/* ---- the cases: what a step records, and the loop ---- */

static deft_tensor *column_of(deft_tensor *x, int64_t t)
{
    return deft_slice(x, DEFT_FULL, DEFT_AT(t));
}

static void column(work *w)
{
    const int64_t t = next_at(w, 0, 1, WIDE - 1);
    deft_tensor *const both = deft_add(column_of(w->x, t), column_of(w->x, t - 1));
    deft_assign(column_of(w->x, t), deft_mul(both, 0.5));
}

static void ref_column(work *w)
{
    w->ref->column(w->c[0], WIDE, next_at(w, 1, 1, WIDE - 1));
}

/* Neighbouring columns in one step, each from the one before. */
static void columns(work *w)
{
    for (int i = 0; i < SWEEP; i++) column(w);
}

static void ref_columns(work *w)
{
    for (int i = 0; i < SWEEP; i++) ref_column(w);
}

/* The same, read by the handles that were assigned to. */
static void columns_by_handle(work *w)
{
    deft_tensor *before = NULL;
    for (int i = 0; i < SWEEP; i++) {
        const int64_t t = next_at(w, 0, 1, WIDE - 1);
        deft_tensor *const to = column_of(w->x, t);
        deft_tensor *const both = deft_add(to, before && t > 1 ? before : column_of(w->x, t - 1));
        deft_assign(to, deft_mul(both, 0.5));
        before = to;
    }
}

static void minus(work *w)
{
    deft_tensor *const y = deft_slice(w->y, DEFT_R(0, N - 1));
    deft_assign(deft_slice(w->x, DEFT_R(1, N)), deft_sub(deft_slice(w->x, DEFT_R(1, N)), y));
}

static void ref_minus(work *w)
{
    w->ref->minus(w->c[0], w->c[1], N);
}

static deft_tensor *block(deft_tensor *x, int i, int j, int64_t n_rows, int64_t n_columns)
{
    return deft_slice(x, DEFT_R(i, i + n_rows), DEFT_R(j, j + n_columns));
}

static void fields(work *w)
{
    deft_tensor *const ex = w->x, *const ey = w->y, *const hz = w->z;
    deft_tensor *d = deft_sub(block(hz, 1, 0, N - 1, N), block(hz, 0, 0, N - 1, N));
    deft_assign(block(ey, 1, 0, N - 1, N), deft_sub(block(ey, 1, 0, N - 1, N), deft_mul(d, 0.5)));
    d = deft_sub(block(hz, 0, 1, N, N - 1), block(hz, 0, 0, N, N - 1));
    deft_assign(block(ex, 0, 1, N, N - 1), deft_sub(block(ex, 0, 1, N, N - 1), deft_mul(d, 0.5)));
    d = deft_sub(block(ex, 0, 1, N - 1, N - 1), block(ex, 0, 0, N - 1, N - 1));
    d = deft_add(d, block(ey, 1, 0, N - 1, N - 1));
    d = deft_sub(d, block(ey, 0, 0, N - 1, N - 1));
    deft_tensor *const before = block(hz, 0, 0, N - 1, N - 1);
    deft_assign(block(hz, 0, 0, N - 1, N - 1), deft_sub(before, deft_mul(d, 0.7)));
}

static void ref_fields(work *w)
{
    w->ref->fields(w->c[0], w->c[1], w->c[2], N);
}

static void stencil(work *w)
{
    deft_tensor *const u = w->x;
    deft_tensor *sum = deft_add(block(u, 0, 1, N - 2, N - 2), block(u, 2, 1, N - 2, N - 2));
    sum = deft_add(deft_add(sum, block(u, 1, 0, N - 2, N - 2)), block(u, 1, 2, N - 2, N - 2));
    deft_assign(block(u, 1, 1, N - 2, N - 2), deft_mul(sum, 0.25));
}

static void ref_stencil(work *w)
{
    w->ref->stencil(w->c[0], w->staged, N);
}

static void rank1(work *w)
{
    const int64_t k = next_at(w, 0, 100, 8);
    deft_tensor *const a = w->x, *const to = deft_slice(a, DEFT_R(k + 1, N), DEFT_R(k + 1, N));
    deft_tensor *const left = deft_mul(deft_slice(a, DEFT_R(k + 1, N), DEFT_R(k, k + 1)), 0.001);
    deft_tensor *const row = deft_slice(a, DEFT_R(k, k + 1), DEFT_R(k + 1, N));
    deft_assign(to, deft_sub(to, deft_mul(left, row)));
}

static void ref_rank1(work *w)
{
    w->ref->rank1(w->c[0], N, next_at(w, 1, 100, 8));
}

static void parts(work *w)
{
    deft_tensor *part[3], *g, *loss;
    for (int i = 0; i < 3; i++) part[i] = deft_slice(w->x, DEFT_FULL, DEFT_R(i * C, (i + 1) * C));
    loss = deft_sum(deft_mul(deft_mul(part[0], part[1]), part[2]), DEFT_ALL_AXES, 0);
    if (!deft_grad(&loss, NULL, 1, &w->x, 1, NULL, &g))
        bench_must(w->cx, deft_error(w->cx), "updates");
    deft_assign(w->y, g);
}

static void ref_parts(work *w)
{
    w->ref->parts((const float *)(const void *)w->c[0], (float *)(void *)w->c[1], ROWS, C);
}

static const struct update {
    const char *name, *size;
    void (*record)(work *w);
    void (*plain)(work *w);
    deft_dtype dtype;
    int64_t n_rows, n_columns;
    int n_arrays;
    int64_t written; /* elements of the largest part */
    int calls;
} cases[] = {
    { "column from column", "2000 x 2000 f64", columns, ref_columns, DEFT_F64, WIDE, WIDE, 1, WIDE,
      8 },
    { "the same, by handles", "2000 x 2000 f64", columns_by_handle, ref_columns, DEFT_F64, WIDE,
      WIDE, 1, WIDE, 8 },
    { "one column a step", "2000 x 2000 f64", column, ref_column, DEFT_F64, WIDE, WIDE, 1, WIDE,
      64 },
    { "slice minus itself", "1000 x 1000 f64", minus, ref_minus, DEFT_F64, N, N, 2, (N - 1) * N,
      16 },
    { "stencil, slices twice", "1000 x 1000 f64", fields, ref_fields, DEFT_F64, N, N, 3,
      (N - 1) * N, 4 },
    { "stencil in place", "1000 x 1000 f64", stencil, ref_stencil, DEFT_F64, N, N, 1,
      (N - 2) * (N - 2), 4 },
    { "rank-1 update of a block", "1000 f64", rank1, ref_rank1, DEFT_F64, N, N, 1, 892 * 892, 4 },
    { "q, k, v gradient", "4096 x 768 f32", parts, ref_parts, DEFT_F32, ROWS, 3 * C, 2,
      (int64_t)ROWS * 3 * C, 4 },
};

typedef struct run {
    const struct update *of;
    work *w;
} run;

static deft_step_memory step_of(run *r, bool asks)
{
    deft_step_memory m = { 0 };
    const deft_scope s = deft_step_begin(r->w->cx);
    r->of->record(r->w);
    if (asks) bench_must(r->w->cx, deft_step_memory_read(s, &m, sizeof m), "updates");
    bench_must(r->w->cx, deft_step_end(s), "updates");
    return m;
}

static void ours(void *user)
{
    step_of(user, false);
}

static void plain(void *user)
{
    run *const r = user;
    r->of->plain(r->w);
}

/* ---- one case ---- */

static void fill(const struct update *of, work *w)
{
    const int64_t n = of->n_rows * of->n_columns;
    for (int a = 0; a < 3; a++)
        for (int64_t i = 0; i < n; i++) {
            const double x = (double)((i * 7 + a * 3) % 1009) / 1009;
            if (of->dtype == DEFT_F64)
                w->ours[a][i] = w->c[a][i] = x;
            else
                ((float *)(void *)w->ours[a])[i] = ((float *)(void *)w->c[a])[i] = (float)x;
        }
}

static bool equal(const struct update *of, const work *w)
{
    const size_t bytes = (size_t)(of->n_rows * of->n_columns) * deft_dtype_size(of->dtype);
    bool same = true;
    for (int a = 0; a < of->n_arrays; a++) same &= memcmp(w->ours[a], w->c[a], bytes) == 0;
    return same;
}

/* The faster compiler's loop. */
static const ref_updates *fastest(run *r)
{
    static const ref_updates *const table[] = {
#ifdef REF_HAVE_GCC
        &ref_updates_gcc,
#endif
#ifdef REF_HAVE_CLANG
        &ref_updates_clang,
#endif
    };
    const ref_updates *best = NULL;
    double least = 1e30;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        r->w->ref = table[i];
        const double t = bench_one(plain, r, 5, r->of->calls);
        if (t < least) best = table[i];
        if (t < least) least = t;
    }
    return best;
}

static void swap_arrays(work *w)
{
    for (int a = 0; a < 3; a++) {
        double *const ours = w->ours[a];
        w->ours[a] = w->c[a];
        w->c[a] = ours;
    }
}

/* The times of both sides on the arrays as they are, after one step of each was compared. */
static deft_step_memory time_both(const bench *b, run *r, double *ours_s, double *c_s)
{
    const struct update *const of = r->of;
    work *const w = r->w;
    deft_tensor **const t[3] = { &w->x, &w->y, &w->z };
    const deft_shape shape = DEFT_SHAPE(of->n_rows, of->n_columns);
    const size_t bytes = (size_t)(of->n_rows * of->n_columns) * deft_dtype_size(of->dtype);
    for (int a = 0; a < of->n_arrays; a++)
        *t[a] = deft_keep(deft_wrap_mut(w->cx, shape, of->dtype, w->ours[a], bytes, NULL));
    fill(of, w);
    w->at[0] = w->at[1] = 0;
    const deft_step_memory m = step_of(r, true);
    plain(r);
    if (!equal(of, w)) {
        fprintf(stderr, "updates: %s: other values than the C loop's\n", of->name);
        exit(1);
    }
    for (int i = 0; i < 10; i++) ours(r);
    bench_pair(ours, r, plain, r, b->quick ? 3 : 26, of->calls, ours_s, c_s);
    for (int a = 0; a < of->n_arrays; a++) deft_drop(t[a]);
    return m;
}

/* Where an array lies decides a tenth of a time, so each side has each array for half of it. */
static void one_case(bench *b, const struct update *of, work *w)
{
    char label[64];
    double ours_s[2], c_s[2];
    deft_step_memory m = { 0 };
    run r = { of, w };
    if (!bench_wants(b, of->name)) return;
    deft_runtime *rt = bench_runtime(1, DEFT_TIER_FULL, 0);
    w->cx = bench_ctx(rt, DEFT_STRICT);
    fill(of, w);
    w->ref = fastest(&r);
    for (int k = 0; k < 2; k++, swap_arrays(w)) m = time_both(b, &r, &ours_s[k], &c_s[k]);
    snprintf(label, sizeof label, "%s, %s", of->name, of->size);
    bench_row(b, label, (ours_s[0] + ours_s[1]) / 2 * 1e6, "us", "C loop, -O3 -march=native",
              (c_s[0] + c_s[1]) / 2 * 1e6, BENCH_RATIO_AT_MOST, 1.1);
    snprintf(label, sizeof label, "%s, temporaries", of->name);
    bench_row(b, label, (double)m.temporary_bytes, "bytes", "the part that is written",
              (double)of->written * (double)deft_dtype_size(of->dtype), BENCH_RATIO_AT_MOST, 1.125);
    deft_ctx_destroy(&w->cx);
    deft_runtime_destroy(&rt);
}

void bench_updates(bench *b)
{
    work w = { .staged = calloc(MOST, sizeof(double)) };
    for (int a = 0; a < 3; a++) {
        w.ours[a] = calloc(MOST, sizeof(double));
        w.c[a] = calloc(MOST, sizeof(double));
        if (!w.ours[a] || !w.c[a] || !w.staged) exit(1);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) one_case(b, &cases[i], &w);
    for (int a = 0; a < 3; a++) {
        free(w.ours[a]);
        free(w.c[a]);
    }
    free(w.staged);
}
