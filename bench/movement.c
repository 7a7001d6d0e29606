/* SPDX-License-Identifier: Apache-2.0
 *
 * Does data move as fast as C written for the purpose moves it, and as fast as the memory allows?
 * Whole steps that write their result into memory of the caller: transposed operands, gathers of
 * rows, rotations of pairs, stencils, parts that are joined or framed. Three sizes: the arrays fit
 * in the second-level cache, in the third, or in memory alone. One thread, and two.
 *
 * The reference is the loop of the faster compiler (bench/ref/ref_movement.c), on as many threads.
 * From memory there is a second reference: a copy that reads and writes as many bytes together as
 * the loop does, by memcpy or past the caches, whichever is faster. Before times are taken, the
 * results of both sides are compared.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref_copy.h"
#include "ref_movement.h"
#include "lazy/core/lazy.h"
#include "runtime/cpu.h"

enum { MAX_IN = 3, CHANNELS = 64, ANGLES = 256, MAX_THREADS = 2 };

typedef struct array {
    deft_shape shape;
    deft_dtype dtype;
} array;

/* What a case has at one size. The sizes are rows and columns as bench/ref/ref_movement.h says. */
typedef struct work {
    deft_ctx *cx;
    int64_t rows, columns;
    array in[MAX_IN], out;
    int n_in;
    deft_tensor *x[MAX_IN], *y;
    void *memory[MAX_IN], *result, *expected;
    char *from, *to; /* of the copy */
    size_t bytes;    /* that the copy copies */
    ref_movement_loop loop;
    df_pool *pool;
    uint32_t threads;
    int64_t grain; /* rows that stay together */
    deft_tensor *(*record)(struct work *w);
    bool streams; /* the copy goes past the caches */
} work;

static array floats(int64_t rows, int64_t columns)
{
    return (array){ DEFT_SHAPE(rows, columns), DEFT_F32 };
}

/* ---- the cases: shapes of the operands, and what a step records ---- */

static void square_shapes(work *w)
{
    w->in[0] = floats(w->columns, w->rows);
    w->in[1] = w->out = floats(w->rows, w->columns);
}

static void f64_shapes(work *w)
{
    square_shapes(w);
    w->in[0].dtype = w->out.dtype = DEFT_F64;
}

static void half_shapes(work *w)
{
    square_shapes(w);
    w->in[0].dtype = w->out.dtype = DEFT_BF16;
}

static deft_tensor *transpose_add(work *w)
{
    return deft_add(deft_t(w->x[0]), w->x[1]);
}

static deft_tensor *transpose(work *w)
{
    return deft_t(w->x[0]);
}

static void channels_shapes(work *w)
{
    const int64_t n = w->rows / CHANNELS;
    w->in[0] = (array){ DEFT_SHAPE(n, CHANNELS, w->columns), DEFT_F32 };
    w->out = (array){ DEFT_SHAPE(n, w->columns, CHANNELS), DEFT_F32 };
    w->grain = CHANNELS;
}

static deft_tensor *channels_last(work *w)
{
    return deft_permute(w->x[0], DEFT_AXES(0, 2, 1));
}

static void take_shapes(work *w)
{
    w->in[0] = w->out = floats(w->rows, w->columns);
    w->in[1] = (array){ DEFT_SHAPE(w->rows), DEFT_I64 };
}

static deft_tensor *take(work *w)
{
    return deft_take(w->x[0], w->x[1], 0);
}

static void rotary_shapes(work *w)
{
    w->in[0] = w->out = (array){ DEFT_SHAPE(w->rows / ANGLES, ANGLES, w->columns), DEFT_F32 };
    w->in[1] = w->in[2] = floats(ANGLES, w->columns / 2);
}

static deft_tensor *rotary(work *w)
{
    const int64_t half = w->columns / 2;
    deft_tensor *const a = deft_slice(w->x[0], DEFT_FULL, DEFT_FULL, DEFT_R(0, half));
    deft_tensor *const b = deft_slice(w->x[0], DEFT_FULL, DEFT_FULL, DEFT_R(half, 2 * half));
    deft_tensor *const c = w->x[1], *const s = w->x[2];
    deft_tensor *parts[2] = { deft_sub(deft_mul(a, c), deft_mul(b, s)),
                              deft_add(deft_mul(a, s), deft_mul(b, c)) };
    return deft_concat(parts, 2, 2);
}

static void stencil_shapes(work *w)
{
    const int64_t n = w->columns + 2;
    w->in[0] = (array){ DEFT_SHAPE(n, n, n), DEFT_F32 };
    w->out = (array){ DEFT_SHAPE(w->columns, w->columns, w->columns), DEFT_F32 };
}

static deft_tensor *shifted(const work *w, int64_t i, int64_t j, int64_t k)
{
    const int64_t n = w->columns;
    return deft_slice(w->x[0], DEFT_R(1 + i, 1 + i + n), DEFT_R(1 + j, 1 + j + n),
                      DEFT_R(1 + k, 1 + k + n));
}

static deft_tensor *stencil(work *w)
{
    static const int at[6][3] = { { 0, 0, -1 }, { 0, 0, 1 },  { 0, -1, 0 },
                                  { 0, 1, 0 },  { -1, 0, 0 }, { 1, 0, 0 } };
    deft_tensor *sum = shifted(w, 0, 0, -1), *const c = shifted(w, 0, 0, 0);
    for (int i = 1; i < 6; i++) sum = deft_add(sum, shifted(w, at[i][0], at[i][1], at[i][2]));
    return deft_add(c, deft_mul(deft_sub(sum, deft_mul(c, 6)), 0.1));
}

static void integer_shapes(work *w)
{
    w->in[0] = w->in[1] = w->out = (array){ DEFT_SHAPE(w->rows, w->columns), DEFT_I32 };
}

static deft_tensor *integers(work *w)
{
    deft_tensor *const product = deft_add(deft_mul(w->x[0], w->x[1]), 7);
    return deft_bitwise_xor(product, deft_shift_right(w->x[0], 3));
}

static void same_shapes(work *w)
{
    w->in[0] = w->in[1] = w->out = floats(w->rows, w->columns);
}

static deft_tensor *length(deft_tensor *re, deft_tensor *im)
{
    return deft_sqrt(deft_add(deft_mul(re, re), deft_mul(im, im)));
}

static deft_tensor *magnitude(work *w)
{
    return length(w->x[0], w->x[1]);
}

static void pair_shapes(work *w)
{
    w->in[0] = (array){ DEFT_SHAPE(w->rows, w->columns, 2), DEFT_F32 };
    w->out = floats(w->rows, w->columns);
}

static deft_tensor *interleaved(work *w)
{
    return length(deft_slice(w->x[0], DEFT_FULL, DEFT_FULL, DEFT_AT(0)),
                  deft_slice(w->x[0], DEFT_FULL, DEFT_FULL, DEFT_AT(1)));
}

static void concat_shapes(work *w)
{
    w->in[0] = w->in[1] = floats(w->rows, w->columns / 2);
    w->out = floats(w->rows, w->columns);
}

static deft_tensor *concat(work *w)
{
    return deft_concat(w->x, 2, 1);
}

static void pad_shapes(work *w)
{
    w->in[0] = floats(w->rows - 2, w->columns - 2);
    w->out = floats(w->rows, w->columns);
}

static deft_tensor *pad(work *w)
{
    return deft_pad(w->x[0], (const int64_t[]){ 1, 1 }, (const int64_t[]){ 1, 1 },
                    DEFT_PAD_CONSTANT, 0.0);
}

static void stack_shapes(work *w)
{
    w->in[0] = w->in[1] = floats(w->rows, w->columns / 2);
    w->out = (array){ DEFT_SHAPE(w->rows, w->columns / 2, 2), DEFT_F32 };
}

static deft_tensor *stack(work *w)
{
    return deft_stack(w->x, 2, 2);
}

static void deviation_shapes(work *w)
{
    w->in[0] = floats(w->rows, w->columns);
    w->out = (array){ DEFT_SHAPE(w->rows), DEFT_F32 };
}

static deft_tensor *deviation(work *w)
{
    return deft_sqrt(deft_var(w->x[0], DEFT_AXES(1), false, 0));
}

#define LOOP(name) offsetof(ref_movement, name)
static const struct movement {
    const char *name;
    void (*shapes)(work *w);
    deft_tensor *(*record)(work *w);
    size_t loop; /* in ref_movement */
    int n_in;
    bool is_cube; /* rows are columns times columns */
    int64_t rows[3], columns[3];
} cases[] = {
    { "x' + y",
      square_shapes,
      transpose_add,
      LOOP(transpose_add),
      2,
      false,
      { 256, 1024, 4096 },
      { 256, 1024, 4096 } },
    { "x' + y odd",
      square_shapes,
      transpose_add,
      LOOP(transpose_add),
      2,
      false,
      { 201, 1001, 3001 },
      { 251, 1003, 4011 } },
    { "x'",
      square_shapes,
      transpose,
      LOOP(transpose),
      1,
      false,
      { 256, 1024, 4096 },
      { 256, 1024, 4096 } },
    { "x' f64",
      f64_shapes,
      transpose,
      LOOP(transpose_8),
      1,
      false,
      { 200, 1000, 4000 },
      { 200, 1000, 4000 } },
    { "x' bf16",
      half_shapes,
      transpose,
      LOOP(transpose_2),
      1,
      false,
      { 256, 1024, 8192 },
      { 256, 1024, 8192 } },
    { "channels last",
      channels_shapes,
      channels_last,
      LOOP(channels_last),
      1,
      false,
      { 64, 1024, 8192 },
      { 784, 784, 3136 } },
    { "rows of 64",
      take_shapes,
      take,
      LOOP(take),
      2,
      false,
      { 1024, 16384, 524288 },
      { 64, 64, 64 } },
    { "rows of 256",
      take_shapes,
      take,
      LOOP(take),
      2,
      false,
      { 256, 4096, 131072 },
      { 256, 256, 256 } },
    { "rows of 1024",
      take_shapes,
      take,
      LOOP(take),
      2,
      false,
      { 64, 1024, 32768 },
      { 1024, 1024, 1024 } },
    { "rotary",
      rotary_shapes,
      rotary,
      LOOP(rotary),
      3,
      false,
      { 1024, 16384, 262144 },
      { 64, 64, 128 } },
    { "stencil 3-d", stencil_shapes, stencil, LOOP(stencil), 1, true, { 0 }, { 48, 126, 318 } },
    { "i32 (x y + 7) ^ (x >> 3)",
      integer_shapes,
      integers,
      LOOP(integers),
      2,
      false,
      { 64, 1024, 16384 },
      { 1024, 1024, 1024 } },
    { "magnitude",
      same_shapes,
      magnitude,
      LOOP(magnitude),
      2,
      false,
      { 64, 1024, 16384 },
      { 1024, 1024, 1024 } },
    { "magnitude of pairs",
      pair_shapes,
      interleaved,
      LOOP(interleaved),
      1,
      false,
      { 64, 1024, 16384 },
      { 1024, 1024, 1024 } },
    { "concat",
      concat_shapes,
      concat,
      LOOP(concat),
      2,
      false,
      { 64, 1024, 16384 },
      { 1024, 1024, 1024 } },
    { "pad", pad_shapes, pad, LOOP(pad), 1, false, { 66, 1026, 8194 }, { 1026, 1026, 2050 } },
    { "stack pairs",
      stack_shapes,
      stack,
      LOOP(stack),
      2,
      false,
      { 64, 1024, 16384 },
      { 1024, 1024, 1024 } },
    { "deviation of rows",
      deviation_shapes,
      deviation,
      LOOP(deviation),
      1,
      false,
      { 256, 4096, 65536 },
      { 512, 512, 512 } },
};

/* ---- both sides ---- */

static void ours(void *user)
{
    work *const w = user;
    const deft_scope s = deft_step_begin(w->cx);
    deft_assign(w->y, w->record(w));
    bench_must(w->cx, deft_step_end(s), "movement");
}

static void loop_slice(void *user, uint32_t i, uint32_t thread)
{
    const work *const w = user;
    ref_movement_job j = { w->expected, { NULL }, w->rows, w->columns };
    const int64_t n = w->rows / w->grain;
    (void)thread;
    for (int a = 0; a < w->n_in; a++) j.in[a] = w->memory[a];
    w->loop(&j, n * i / w->threads * w->grain, n * (i + 1) / w->threads * w->grain);
}

static void copy_slice(void *user, uint32_t i, uint32_t thread)
{
    const work *const w = user;
    const size_t share = w->bytes / w->threads / 64 * 64;
    (void)thread;
    if (w->streams)
        ref_copy_stream(w->to + share * i, w->from + share * i, share);
    else
        memcpy(w->to + share * i, w->from + share * i, share);
}

static void plain(void *user)
{
    work *const w = user;
    df_pool_run(w->pool, w->threads, loop_slice, w);
}

static void copy(void *user)
{
    work *const w = user;
    df_pool_run(w->pool, w->threads, copy_slice, w);
}

/* ---- one case ---- */

static size_t bytes_of(const array *a)
{
    size_t n = deft_dtype_size(a->dtype);
    for (uint32_t i = 0; i < a->shape.rank; i++) n *= (size_t)a->shape.dim[i];
    return n;
}

static void *memory_of(size_t bytes)
{
    void *const p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!p) exit(1);
    memset(p, 0, bytes);
    return p;
}

/* Numbers between 0 and 4, small integers, or indices of rows in an order without a pattern. */
static void fill(const array *a, void *memory, int64_t rows)
{
    const size_t n = bytes_of(a) / deft_dtype_size(a->dtype);
    for (size_t i = 0; i < n; i++) {
        const uint32_t mixed = (uint32_t)(i * 2654435761u) >> 12;
        if (a->dtype == DEFT_I64) ((int64_t *)memory)[i] = mixed % rows;
        if (a->dtype == DEFT_I32) ((int32_t *)memory)[i] = (int32_t)mixed - (1 << 19);
        if (a->dtype == DEFT_BF16) ((uint16_t *)memory)[i] = (uint16_t)(0x3f00 + mixed % 256);
        if (a->dtype == DEFT_F32) ((float *)memory)[i] = (float)mixed * 0x1p-18f;
        if (a->dtype == DEFT_F64) ((double *)memory)[i] = mixed * 0x1p-18;
    }
}

static work prepare(const struct movement *m, int size, uint32_t threads)
{
    work w = { .columns = m->columns[size], .n_in = m->n_in, .threads = threads, .grain = 1 };
    w.rows = m->is_cube ? w.columns * w.columns : m->rows[size];
    w.record = m->record;
    m->shapes(&w);
    w.bytes = bytes_of(&w.out);
    for (int i = 0; i < w.n_in; i++) {
        w.memory[i] = memory_of(bytes_of(&w.in[i]));
        fill(&w.in[i], w.memory[i], w.rows);
        w.bytes += bytes_of(&w.in[i]);
    }
    w.bytes /= 2;
    w.result = memory_of(bytes_of(&w.out));
    w.expected = memory_of(bytes_of(&w.out));
    return w;
}

static void finish(work *w)
{
    for (int i = 0; i < w->n_in; i++) {
        deft_drop(&w->x[i]);
        free(w->memory[i]);
    }
    deft_drop(&w->y);
    free(w->result);
    free(w->expected);
    free(w->from);
    free(w->to);
}

/* Rows are summed in another order than deft's, so deviations are compared as numbers. */
static bool equal(const work *w)
{
    const size_t bytes = bytes_of(&w->out);
    if (w->record != deviation) return memcmp(w->result, w->expected, bytes) == 0;
    const float *const a = w->result, *const b = w->expected;
    for (size_t i = 0; i < bytes / sizeof *a; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5f * fabsf(b[i]))) return false;
    return true;
}

static void compare(work *w, const char *label)
{
    ours(w);
    plain(w);
    if (equal(w)) return;
    fprintf(stderr, "movement: %s: other values than the C loop's\n", label);
    exit(1);
}

/* The faster compiler's loop. */
static ref_movement_loop fastest(work *w, size_t loop)
{
    static const ref_movement *const table[] = {
#ifdef REF_HAVE_GCC
        &ref_movement_gcc,
#endif
#ifdef REF_HAVE_CLANG
        &ref_movement_clang,
#endif
    };
    ref_movement_loop best = NULL;
    double least = 1e30;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        memcpy(&w->loop, (const char *)table[i] + loop, sizeof w->loop);
        const double t = bench_one(plain, w, 3, bench_calls(plain, w, 0.005));
        if (t < least) best = w->loop;
        if (t < least) least = t;
    }
    return best;
}

static void beside_copy(bench *b, work *w, const char *label, int rounds, int calls)
{
    double t, other[2];
    w->from = memory_of(w->bytes);
    w->to = memory_of(w->bytes);
    for (int k = 0; k < 2; k++) {
        w->streams = k;
        other[k] = bench_one(copy, w, 3, calls);
    }
    w->streams = other[1] < other[0];
    bench_pair(ours, w, copy, w, rounds, calls, &t, &other[0]);
    bench_row(b, label, t * 1e6, "us", w->streams ? "streaming copy" : "memcpy of the bytes",
              other[0] * 1e6, BENCH_RATIO_AT_MOST, 1 / 0.9);
}

static void one_case(bench *b, const struct movement *m, int size, deft_runtime *rt, df_pool *pool,
                     uint32_t threads)
{
    static const char *const fits[] = { "L2", "L3", "memory" };
    char label[64];
    double t, reference;
    snprintf(label, sizeof label, "%s, %s, %u thread%s", m->name, fits[size], threads,
             threads > 1 ? "s" : "");
    if (!bench_wants(b, label)) return;
    work w = prepare(m, size, threads);
    w.cx = bench_ctx(rt, DEFT_STRICT);
    w.pool = pool;
    for (int i = 0; i < w.n_in; i++)
        w.x[i] = deft_keep(
            deft_wrap(w.cx, w.in[i].shape, w.in[i].dtype, w.memory[i], bytes_of(&w.in[i]), NULL));
    w.y =
        deft_keep(deft_wrap_mut(w.cx, w.out.shape, w.out.dtype, w.result, bytes_of(&w.out), NULL));
    w.loop = fastest(&w, m->loop);
    compare(&w, label);
    for (int i = 0; i < 10; i++) ours(&w);
    const int rounds = b->quick ? 3 : 11, calls = bench_calls(ours, &w, b->quick ? 1e-3 : 5e-3);
    bench_pair(ours, &w, plain, &w, rounds, calls, &t, &reference);
    bench_row(b, label, t * 1e6, "us", "C loop", reference * 1e6, BENCH_RATIO_AT_MOST, 1.05);
    if (size == 2) beside_copy(b, &w, label, rounds, calls);
    finish(&w);
    deft_ctx_destroy(&w.cx);
}

void bench_movement(bench *b)
{
    for (uint32_t threads = 1; threads <= MAX_THREADS; threads++) {
        deft_runtime *rt = bench_runtime_with(threads, DEFT_TIER_FULL, 0, 8);
        df_pool *const pool = df_cpu_pool(rt->dev);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int size = 0; size < (b->quick ? 2 : 3); size++)
                one_case(b, &cases[i], size, rt, pool, threads);
        deft_runtime_destroy(&rt);
    }
}
