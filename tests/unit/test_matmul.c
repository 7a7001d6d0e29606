/* SPDX-License-Identifier: Apache-2.0
 *
 * Products against the definition: a naive chain of fma per element, k ascending from +0. Equal
 * bits, whatever the shape, strides, batch, epilogue, number of threads and micro-kernel. The
 * micro-kernel with the ABI of compiled ones is a C stand-in here, in several shapes; the compiled
 * ones meet the same oracle where the LLVM plug-in is tested.
 *
 * Why this file is long: each way to compute a product has shapes of its own, and all of them share
 * one reference and one check.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "runtime/cpu.h"
#include "runtime/matmul.h"
#include "runtime/matmul/tile.h"
#include "support/budget.h"
#include "support/chains.h"
#include "support/stand_in.h"

enum {
    MAX_THREADS = 4,
    GUARD = 64,
    N_STAND_INS = 2,
    N_JITS = 3,
    N_KERNELS = 1 + N_STAND_INS + N_JITS
};

typedef struct operand {
    void *memory; /* with guard bytes around what strides reach */
    size_t bytes;
    char *origin;
} operand;

typedef struct fixture {
    df_pool *pool[MAX_THREADS + 1];
    df_compiler compiler[N_JITS];
    void *plugin[N_JITS];
    df_gemm_kernel kernel[2][N_KERNELS]; /* by dtype; fn NULL: not here */
    uint64_t random;
    int n_checks, n_packed;
    bool is_exact; /* sums of small integers, whose order shows in no bit */
    df_bf16_use bf16;
    bool has_tiles;
} fixture;

static uint32_t draw(fixture *f, uint32_t below)
{
    f->random = f->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(f->random >> 33) % below;
}

/* Mixed signs and magnitudes, and digits to the last one of an f64, so that another order or a lost
 * fma shows in the last bits. */
static double value(fixture *f)
{
    static const double scale[] = { 0x1p-4, 0x1p-3, 0x1p-2, 0x1p-1, 1, 2, 4, 8 };
    const double x = draw(f, 1u << 24) * 0x1p-23 - 1.0 + draw(f, 1u << 24) * 0x1p-47;
    return x * scale[draw(f, 8)];
}

static void put(deft_dtype t, char *at, double x)
{
    if (t == DEFT_F32)
        *(float *)(void *)at = (float)x;
    else if (t == DEFT_BF16)
        *(uint16_t *)(void *)at = df_bf16_of_f32((float)x);
    else
        *(double *)(void *)at = x;
}

static double get(deft_dtype t, const char *at)
{
    if (t == DEFT_BF16) return (double)df_f32_of_bf16(*(const uint16_t *)(const void *)at);
    return t == DEFT_F32 ? (double)*(const float *)(const void *)at
                         : *(const double *)(const void *)at;
}

/* Memory for every element that extents and strides (n of them) reach, filled. */
static operand make(fixture *f, deft_dtype t, const int64_t *extent, const int64_t *stride, int n)
{
    const int64_t size = (int64_t)deft_dtype_size(t);
    int64_t low = 0, high = 0;
    for (int i = 0; i < n; i++) {
        const int64_t reach = extent[i] > 0 ? (extent[i] - 1) * stride[i] : 0;
        *(reach < 0 ? &low : &high) += reach;
    }
    operand o = { .bytes = (size_t)((high - low + 1) * size) };
    /* Exactly as large as reached, so that AddressSanitizer sees any step outside. */
    o.memory = malloc(o.bytes);
    o.origin = (char *)o.memory - low * size;
    const bool is_exact = f->is_exact || (t == DEFT_BF16 && f->bf16 != DF_BF16_CHAINS);
    for (size_t i = 0; i < o.bytes; i += (size_t)size)
        put(t, (char *)o.memory + i, is_exact ? (double)draw(f, 33) - 16 : value(f));
    return o;
}

/* ---- epilogue: adds one to every element exactly once, or copies a tile out ---- */

typedef struct sink {
    deft_dtype dtype;
    int64_t m, n, n_batch;
    char *out; /* [batch, m, n] contiguous */
    uint32_t n_threads;
    bool bad;
} sink;

static void collect(void *user, uint32_t thread, const char *tile, int64_t ld, int64_t o0,
                    int64_t o1, int64_t i0, int64_t i1)
{
    sink *const s = user;
    const int64_t size = (int64_t)deft_dtype_size(s->dtype);
    if (thread >= s->n_threads || o0 < 0 || o1 > s->m * s->n_batch || i0 < 0 || i1 > s->n ||
        o0 >= o1 || i0 >= i1) {
        s->bad = true;
        return;
    }
    for (int64_t o = o0; o < o1; o++) {
        void *const row = s->out + (o * s->n + i0) * size;
        const void *const of_tile = tile + (o - o0) * ld * size;
        if (s->dtype == DEFT_F32)
            for (int64_t i = 0; i < i1 - i0; i++) ((float *)row)[i] += ((const float *)of_tile)[i];
        else
            for (int64_t i = 0; i < i1 - i0; i++)
                ((double *)row)[i] += ((const double *)of_tile)[i];
    }
}

/* ---- a micro-kernel with the ABI of compiled ones ---- */

STAND_IN(stand_in_8x48, float, chains_f32, 8, 48)
STAND_IN(stand_in_6x16, float, chains_f32, 6, 16)
STAND_IN(stand_in_4x8, double, chains_f64, 4, 8)
STAND_IN(stand_in_8x24, double, chains_f64, 8, 24)

static void start(fixture *f)
{
    static const df_gemm_kernel stand_ins[2][N_STAND_INS] = {
        { { stand_in_8x48, 8, 48, 0 }, { stand_in_6x16, 6, 16, 0 } },
        { { stand_in_4x8, 4, 8, 0 }, { stand_in_8x24, 8, 24, 0 } },
    };
    static const uint32_t widths[N_JITS] = { 0, 32, 16 }; /* 0: the machine's own */
    memset(f, 0, sizeof *f);
    f->random = 12345;
    f->bf16 = df_matmul_try_bf16();
    f->has_tiles = df_matmul_enable_tiles();
    for (uint32_t i = 1; i <= MAX_THREADS; i++)
        cr_assert(df_pool_create(NULL, &df_mem_system, i, &f->pool[i]) == DEFT_OK);
    for (int t = 0; t < 2; t++) memcpy(&f->kernel[t][1], stand_ins[t], sizeof stand_ins[t]);
    for (int i = 0; i < N_JITS; i++) {
        df_compiler *const c = &f->compiler[i];
        if (df_plugin_open(NULL, &df_mem_system, NULL, NULL, widths[i], c, &f->plugin[i]) !=
            DEFT_OK)
            continue;
        /* Refused where the width has no fused multiply-add. */
        for (int t = 0; t < 2; t++) {
            const deft_dtype dtype = t ? DEFT_F64 : DEFT_F32;
            const deft_status st =
                c->gemm(c->self, NULL, dtype, &f->kernel[t][1 + N_STAND_INS + i]);
            cr_assert(st == DEFT_OK || st == DEFT_E_BACKEND);
        }
    }
}

static void finish_pools(fixture *f)
{
    for (uint32_t i = 1; i <= MAX_THREADS; i++) df_pool_destroy(&f->pool[i]);
    for (int i = 0; i < N_JITS; i++) df_plugin_close(&f->compiler[i], &f->plugin[i]);
}

static void finish(fixture *f)
{
    cr_assert(f->n_checks > 0);
    finish_pools(f);
}

/* ---- the check ---- */

typedef struct layout {
    bool a_transposed, b_transposed, a_negative, b_negative, a_zero, b_zero, wide; /* wide: gaps */
    bool a_shared, b_per_batch, c_null;
    int epilogue;
    bool is_bf16; /* A and B */
    bool is_tiled;
    bool fast;
} layout;

static deft_dtype operand_dtype(const df_matmul_job *j)
{
    return j->is_bf16 ? DEFT_BF16 : j->dtype;
}

static int64_t offset(const df_matmul_job *j, const int64_t *stride, int64_t index)
{
    int64_t at = 0;
    for (uint32_t i = j->batch_rank; i-- > 0;) {
        at += index % j->batch_extent[i] * stride[i];
        index /= j->batch_extent[i];
    }
    return at;
}

/* Elements of dtype t, which lie a number of elements apart, as an array of another dtype. */
static void gather_f32(deft_dtype t, const char *from, int64_t step, int64_t n, float *to)
{
    if (t == DEFT_BF16)
        for (int64_t i = 0; i < n; i++)
            to[i] = df_f32_of_bf16(((const uint16_t *)(const void *)from)[i * step]);
    else
        for (int64_t i = 0; i < n; i++) to[i] = ((const float *)(const void *)from)[i * step];
}

static void gather_f64(const char *from, int64_t step, int64_t n, double *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = ((const double *)(const void *)from)[i * step];
}

/* The results as [batch, m, n]. */
static char *reference(const df_matmul_job *j)
{
    const deft_dtype in = operand_dtype(j);
    const int64_t size = (int64_t)deft_dtype_size(j->dtype), by = (int64_t)deft_dtype_size(in);
    char *const out = calloc((size_t)(j->n_batch * j->m * j->n) + 1, (size_t)size);
    char *const row = malloc((size_t)(j->k + 1) * (size_t)size);        /* of A */
    char *const all = malloc((size_t)(j->k * j->n + 1) * (size_t)size); /* B as [k, n] */
    for (int64_t b = 0; b < j->n_batch; b++) {
        const char *const pa = j->a + offset(j, j->a_batch, b) * by;
        const char *const pb = j->b + offset(j, j->b_batch, b) * by;
        for (int64_t k = 0; k < j->k; k++) {
            void *const to = all + k * j->n * size;
            if (j->dtype == DEFT_F32)
                gather_f32(in, pb + k * j->b_row * by, j->b_col, j->n, to);
            else
                gather_f64(pb + k * j->b_row * by, j->b_col, j->n, to);
        }
        for (int64_t m = 0; m < j->m; m++) {
            const char *const from = pa + m * j->a_row * by;
            void *const to = out + (b * j->m + m) * j->n * size;
            if (j->dtype == DEFT_F32) {
                gather_f32(in, from, j->a_col, j->k, (void *)row);
                chains_f32(j->n, j->k, (const void *)row, 1, (const void *)all, j->n, to);
            } else {
                gather_f64(from, j->a_col, j->k, (void *)row);
                chains_f64(j->n, j->k, (const void *)row, 1, (const void *)all, j->n, to);
            }
        }
    }
    free(all);
    free(row);
    return out;
}

static void compare(const df_matmul_job *j, const char *got, const int64_t row, const char *want,
                    bool batched, const char *what)
{
    const int64_t size = (int64_t)deft_dtype_size(j->dtype);
    for (int64_t b = 0; b < j->n_batch; b++)
        for (int64_t m = 0; m < j->m; m++) {
            const int64_t at = batched ? offset(j, j->c_batch, b) + m * row : (b * j->m + m) * j->n;
            const char *const w = want + (b * j->m + m) * j->n * size;
            if (memcmp(got + at * size, w, (size_t)(j->n * size)) == 0) continue;
            int64_t n = 0;
            while (memcmp(got + (at + n) * size, w + n * size, (size_t)size) == 0) n++;
            cr_assert_fail("%s %s [%lld x %lld x %lld] x %lld: (%lld, %lld, %lld) is %a, not %a",
                           what, deft_dtype_name(j->dtype), (long long)j->m, (long long)j->n,
                           (long long)j->k, (long long)j->n_batch, (long long)b, (long long)m,
                           (long long)n, get(j->dtype, got + (at + n) * size),
                           get(j->dtype, w + n * size));
        }
}

/* One job under every kernel and the numbers of threads in the bits of threads. */
static void check(fixture *f, deft_dtype t, int64_t m, int64_t n, int64_t k, int64_t b0, int64_t b1,
                  layout l, unsigned threads)
{
    df_matmul_job j = { .dtype = t, .m = m, .n = n, .k = k, .n_batch = b0 * b1, .batch_rank = 2 };
    const bool was_exact = f->is_exact;
    j.is_bf16 = l.is_bf16;
    j.is_tiled = l.is_tiled;
    f->is_exact = l.is_tiled || was_exact;
    j.fast = l.fast;
    const int64_t size = (int64_t)deft_dtype_size(t), gap = l.wide ? 3 : 0;
    j.batch_extent[0] = b0;
    j.batch_extent[1] = b1;
    j.a_row = l.a_transposed ? 1 : k + gap;
    j.a_col = l.a_transposed ? m + gap : 1;
    j.b_row = l.b_transposed ? 1 : n + gap;
    j.b_col = l.b_transposed ? k + gap : 1;
    if (l.wide && draw(f, 2)) j.a_row *= 2, j.a_col *= 2, j.b_row *= 2, j.b_col *= 2;
    const int64_t a_all = j.a_row * m + j.a_col * k, b_all = j.b_row * k + j.b_col * n;
    if (l.a_negative) j.a_row = -j.a_row, j.a_col = draw(f, 2) ? j.a_col : -j.a_col;
    if (l.b_negative) j.b_row = draw(f, 2) ? j.b_row : -j.b_row, j.b_col = -j.b_col;
    if (l.a_zero) *(draw(f, 2) ? &j.a_row : &j.a_col) = 0;
    if (l.b_zero) *(draw(f, 2) ? &j.b_row : &j.b_col) = 0;
    j.c_row = n + gap;
    const bool folds = !l.wide && !l.a_transposed && !l.a_negative && !l.a_zero;
    const bool columns_fold = !l.wide && l.b_transposed && !l.b_negative && !l.b_zero;
    j.a_batch[1] = l.a_shared ? 0 : folds ? m * k : a_all;
    j.a_batch[0] = j.a_batch[1] * b1;
    j.b_batch[1] = !l.b_per_batch ? 0 : columns_fold ? n * k : b_all;
    j.b_batch[0] = j.b_batch[1] * b1;
    j.c_batch[1] = m * j.c_row;
    j.c_batch[0] = j.c_batch[1] * b1;
    operand a = make(f, operand_dtype(&j), (int64_t[]){ b0, b1, m, k },
                     (int64_t[]){ j.a_batch[0], j.a_batch[1], j.a_row, j.a_col }, 4);
    operand b = make(f, operand_dtype(&j), (int64_t[]){ b0, b1, k, n },
                     (int64_t[]){ j.b_batch[0], j.b_batch[1], j.b_row, j.b_col }, 4);
    j.a = a.origin;
    j.b = b.origin;
    char *const want = reference(&j);
    const size_t c_bytes = (size_t)((b0 * b1 * m * j.c_row + GUARD) * size);
    char *const c = malloc(c_bytes), *const before = malloc(c_bytes);
    for (size_t i = 0; i < c_bytes; i++) before[i] = (char)draw(f, 256);

    j.c = l.c_null ? NULL : c;
    df_weights w;
    const bool packs = df_matmul_find_weights(&j, &w);
    char *const packed = malloc(packs ? (size_t)w.bytes : 1);
    if (packs) df_matmul_pack(&w, t, w.is_a ? j.a : j.b, packed, f->pool[1 + draw(f, MAX_THREADS)]);
    f->n_packed += packs;

    /* Of two runs with the same kernel, one has packed weights. */
    for (uint32_t p = 1; p <= MAX_THREADS; p++)
        for (int run = 0; run < N_KERNELS * (1 + packs); run++) {
            const int g = run % N_KERNELS;
            const df_gemm_kernel *const kernel = g ? &f->kernel[t == DEFT_F64][g] : NULL;
            if (!(threads >> p & 1) || (kernel && !kernel->fn)) continue;
            if (g > 0 && run >= N_KERNELS && j.a_row != 1) break; /* they need no such kernel */
            sink s = { .dtype = t, .m = m, .n = n, .n_batch = b0 * b1, .n_threads = p };
            s.out = calloc((size_t)(b0 * b1 * m * n) + 1, (size_t)size);
            memcpy(c, before, c_bytes);
            j.c = l.c_null ? NULL : c;
            j.epilogue = l.c_null || l.epilogue ? collect : NULL;
            j.user = &s;
            j.packed = NULL;
            const size_t bytes = df_matmul_work_size(&j, kernel, p);
            if (run >= N_KERNELS) j.packed = packed;
            char *const work = malloc(bytes ? bytes : 1);
            df_matmul_run(&j, kernel, NULL, f->pool[p], bytes ? work : NULL);
            free(work);
            cr_assert(!s.bad, "the epilogue was called outside the product");
            if (j.c) compare(&j, c, j.c_row, want, true, "C");
            if (j.epilogue) compare(&j, s.out, n, want, false, "epilogue");
            if (j.c) /* between and after the rows nothing was touched */
                for (int64_t r = 0; r < b0 * b1 * m + 1; r++) {
                    const int64_t at = r < b0 * b1 * m ? r * j.c_row + n : r * j.c_row;
                    const int64_t many = r < b0 * b1 * m ? gap : GUARD;
                    cr_assert(memcmp(c + at * size, before + at * size, (size_t)(many * size)) == 0,
                              "wrote beyond C");
                }
            free(s.out);
            f->n_checks++;
        }
    f->is_exact = was_exact;
    free(packed);
    free(c);
    free(before);
    free(want);
    free(a.memory);
    free(b.memory);
}

static const deft_dtype dtypes[2] = { DEFT_F32, DEFT_F64 };

Test(matmul, every_small_size)
{
    fixture f;
    start(&f);
    const uint32_t n_m = 11, n_n = 26, n_all = 2 * n_m * n_n;
    for (uint32_t i = 0; i < n_all && (i < n_all / 8 || test_time_left(1)); i++) {
        const uint32_t which = test_scattered(i, n_all), row = which / 2 % n_m;
        const uint32_t column = which / 2 / n_m;
        const int64_t m = row < 9 ? 1 + row : 9 + 5 * (row - 8); /* 1 to 9, 14, 19 */
        const int64_t n =
            column < 20 ? 1 + column : 20 + 13 * (column - 19); /* 1 to 20, 33 to 98 */
        check(&f, dtypes[which % 2], m, n, 7, 1, 1, (layout){ 0 }, 1 << 1);
        check(&f, dtypes[which % 2], m, n, 9, 1, 1, (layout){ .b_transposed = true }, 1 << 1);
    }
    finish(&f);
}

Test(matmul, strides_batches_epilogues_threads)
{
    static const int64_t sizes[] = { 1, 2, 3, 5, 8, 13, 16, 31, 47, 48, 49, 65, 96, 130 };
    fixture f;
    start(&f);
    for (int i = 0; i < 400 && (i < 40 || test_time_left(1)); i++) {
        const uint32_t bits = draw(&f, 1024);
        layout l = { .a_transposed = bits & 1,
                     .b_transposed = bits & 2,
                     .wide = bits & 4,
                     .b_per_batch = bits & 8,
                     .c_null = bits & 16,
                     .epilogue = bits >> 5 & 1 };
        l.a_negative = (bits >> 6 & 3) == 3;
        l.b_negative = (bits >> 6 & 3) == 2;
        l.a_zero = (bits >> 8 & 3) == 3;
        l.b_zero = (bits >> 8 & 3) == 2;
        const int64_t m = sizes[draw(&f, DF_LEN(sizes))], n = sizes[draw(&f, DF_LEN(sizes))];
        const int64_t k = sizes[draw(&f, DF_LEN(sizes))];
        const int64_t b0 = 1 + draw(&f, 3), b1 = 1 + draw(&f, 2);
        check(&f, dtypes[i & 1], m, n, k, b0, b1, l, 1u << (1 + draw(&f, 4)));
    }
    finish(&f);
}

/* Products of bf16 by instructions for pairs of them: odd k, more than one slice of k, shapes that
 * fill no tile, one column, and strides along which pairs are not contiguous. is_tiled: by the
 * tiles of AMX. */
static void check_bf16(bool is_tiled)
{
    static const int64_t sizes[] = { 1, 2, 3, 7, 8, 9, 15, 16, 17, 47, 48, 49, 65, 96, 130, 300 };
    static const int64_t depths[] = { 0, 1, 2, 3, 15, 16, 17, 31, 33, 130, 301, 1537, 3100 };
    fixture f;
    start(&f);
    if (f.bf16 == DF_BF16_NONE || (is_tiled && !f.has_tiles)) {
        finish_pools(&f);
        cr_skip_test("no instructions for bf16 here");
    }
    for (int i = 0; i < 2000 && (i < 100 || test_time_left(1)); i++) {
        const uint32_t bits = draw(&f, 1024);
        const layout l = { .is_bf16 = true,
                           .is_tiled = is_tiled,
                           .fast = is_tiled || i & 1 || f.bf16 != DF_BF16_CHAINS,
                           .a_transposed = bits & 1,
                           .b_transposed = bits & 2,
                           .wide = bits & 4,
                           .b_per_batch = bits & 8,
                           .c_null = bits & 16,
                           .epilogue = bits >> 5 & 1,
                           .a_negative = (bits >> 6 & 3) == 3,
                           .b_negative = (bits >> 6 & 3) == 2,
                           .a_zero = (bits >> 8 & 3) == 3,
                           .b_zero = (bits >> 8 & 3) == 2 };
        const int64_t m = sizes[draw(&f, DF_LEN(sizes))], n = sizes[draw(&f, DF_LEN(sizes))];
        const int64_t k = depths[draw(&f, i % 4 ? 10 : DF_LEN(depths))];
        if (m * n * k > 1 << 19) continue; /* the reference is slow */
        check(&f, DEFT_F32, m, n, k, 1 + draw(&f, 2), 1 + draw(&f, 2), l, 1u << (1 + draw(&f, 4)));
    }
    finish(&f);
}

Test(matmul, bf16)
{
    check_bf16(false);
}

Test(matmul, tiles)
{
    check_bf16(true);
}

/* Several tasks along both axes, packed rows that tasks share, and threads that share nothing. */
Test(matmul, tiles_of_larger_products)
{
    static const int64_t shapes[][3] = {
        { 300, 520, 70 }, { 20, 1100, 600 }, { 520, 40, 530 }, { 530, 300, 70 }
    };
    fixture f;
    start(&f);
    for (size_t i = 0; i < DF_LEN(shapes) && f.has_tiles; i++)
        for (uint32_t bits = 0; bits < 8; bits++) {
            const layout l = { .is_bf16 = true,
                               .is_tiled = true,
                               .fast = true,
                               .a_transposed = bits & 1,
                               .b_transposed = bits & 2,
                               .c_null = bits & 4 };
            check(&f, DEFT_F32, shapes[i][0], shapes[i][1], shapes[i][2], 1, 1, l, 6);
        }
    f.n_checks += !f.has_tiles;
    finish(&f);
}

/* One to nine rows, or columns, against every layout: tiles that are cut off by the end of n or k,
 * and divided among threads. */
Test(matmul, thin)
{
    static const int64_t sizes[] = { 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 131, 200 };
    fixture f;
    start(&f);
    for (int i = 0; i < 3000 && (i < 72 || test_time_left(1)); i++) {
        const uint32_t bits = draw(&f, 512);
        const layout l = { .a_transposed = (bits & 3) == 3,
                           .b_transposed = i / 9 % 4 > 0,
                           .wide = bits & 4,
                           .b_per_batch = bits & 8,
                           .c_null = bits & 16,
                           .epilogue = bits >> 5 & 1,
                           .b_negative = (bits >> 6 & 7) == 7 };
        const int64_t thin = 1 + i % 9, other = sizes[draw(&f, DF_LEN(sizes))];
        const int64_t k = sizes[draw(&f, DF_LEN(sizes))], batch = draw(&f, 4) ? 1 : 3;
        const bool by_columns = i / 36 % 3 == 2;
        check(&f, dtypes[i & 1], by_columns ? other : thin, by_columns ? thin : other, k, batch, 1,
              l, 1u << (1 + i / 4 % 3));
    }
    finish(&f);
}

/* Few rows times a transposed matrix, and a matrix times few columns, around the extents of the
 * squares that are transposed in registers; 20 rows, for which such squares are packed. Columns of
 * 512 elements are a multiple of 2 KiB apart. */
Test(matmul, squares)
{
    static const int64_t wide[] = { 7, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 97 };
    static const int64_t deep[] = { 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 48, 63, 65, 130, 512 };
    const uint32_t n_few = 10, n_all = 2 * 2 * n_few * DF_LEN(wide) * DF_LEN(deep);
    fixture f;
    start(&f);
    for (uint32_t i = 0; i < n_all && (i < n_all / 8 || test_time_left(1)); i++) {
        uint32_t which = test_scattered(i, n_all);
        const deft_dtype t = dtypes[which % 2];
        const bool as_columns = which / 2 % 2;
        which /= 4;
        const int64_t few = which % n_few == n_few - 1 ? 20 : 1 + which % n_few;
        which /= n_few;
        const int64_t n = wide[which % DF_LEN(wide)], k = deep[which / DF_LEN(wide)];
        const layout l = { .b_transposed = !as_columns, .wide = draw(&f, 4) == 0 };
        const unsigned threads = 1u << (1 + draw(&f, 2));
        check(&f, t, as_columns ? n : few, as_columns ? few : n, k, 1, 1, l, threads);
    }
    finish(&f);
}

/* One to nine columns: products that are computed as rows. Layouts of all operands, batches that
 * are one tall product or one with many columns, and fast mode. */
Test(matmul, few_columns)
{
    static const int64_t rows[] = { 1, 2, 3, 5, 9, 16, 17, 19, 31, 33, 64, 65, 131, 700 };
    static const int64_t depths[] = { 0, 1, 2, 3, 7, 8, 15, 16, 17, 32, 33, 64, 65, 200 };
    fixture f;
    start(&f);
    for (int i = 0; i < 3000 && (i < 144 || test_time_left(1)); i++) {
        const uint32_t bits = draw(&f, 1u << 16);
        const layout l = { .a_transposed = bits & 1,
                           .b_transposed = bits & 2,
                           .wide = (bits >> 2 & 3) == 3,
                           .b_per_batch = bits >> 4 & 1,
                           .a_shared = bits >> 5 & 1,
                           .c_null = bits >> 6 & 1,
                           .epilogue = bits >> 7 & 1,
                           .a_negative = (bits >> 8 & 7) == 7,
                           .b_negative = (bits >> 8 & 7) == 6,
                           .a_zero = (bits >> 11 & 7) == 7,
                           .b_zero = (bits >> 11 & 7) == 6,
                           .fast = i & 2 };
        const int64_t m = rows[draw(&f, DF_LEN(rows))], k = depths[draw(&f, DF_LEN(depths))];
        const int64_t b0 = draw(&f, 3) ? 1 : 3, b1 = draw(&f, 3) ? 1 : 2;
        f.is_exact = l.fast;
        check(&f, dtypes[i & 1], m, 1 + i % 9, k, b0, b1, l, 1u << (1 + i / 4 % 3));
    }
    finish(&f);
}

/* More rows than one tile has, and than an epilogue gets at once when there is no C. Then batches
 * whose columns are rows of one product, which is divided within a batch entry. */
Test(matmul, few_columns_and_many_rows)
{
    fixture f;
    start(&f);
    for (int i = 0; i < 14; i++) {
        const layout l = { .c_null = i & 1,
                           .epilogue = i >> 1 & 1,
                           .a_transposed = i % 3 == 1,
                           .b_transposed = i % 3 == 2 };
        check(&f, dtypes[i / 2 & 1], 9001, 2 + i % 7, 5, 1, 1, l, 1 << 1 | 1 << 2);
    }
    for (int i = 0; i < 8; i++) {
        const layout l = { .a_shared = true,
                           .b_transposed = true,
                           .b_per_batch = true,
                           .c_null = i & 1,
                           .epilogue = i >> 1 & 1,
                           .a_transposed = i >> 2 & 1 };
        check(&f, dtypes[i & 1], 20, 5, 200, 50, 2, l, 1 << 1 | 1 << 2);
    }
    finish(&f);
}

/* Thin products with a B beyond the L2 cache, whose threads take a part of the columns each. */
Test(matmul, thin_and_large)
{
    fixture f;
    start(&f);
    for (int i = 0; i < 36 && (i < 8 || test_time_left(1)); i++) {
        const int64_t thin = i % 9 < 4 ? 1 + i % 9 % 2 : i % 9, other = 1003 + i, k = 293 - i;
        const layout l = { .b_transposed = i & 1,
                           .a_transposed = (i & 6) == 6,
                           .wide = i % 5 == 1,
                           .c_null = i % 7 == 2,
                           .epilogue = i % 7 == 3 };
        const bool by_columns = i % 3 == 2;
        check(&f, dtypes[i / 2 & 1], by_columns ? other : thin, by_columns ? thin : other, k, 1, 1,
              l, 1 << 1 | 1 << 2 | 1 << 3);
    }
    finish(&f);
}

/* Products without a plan, whole and in parts for threads that are awake: often enough to wake
 * them. */
Test(matmul, small_in_parts)
{
    static const int64_t shapes[][3] = { { 64, 64, 64 },   { 33, 120, 65 },  { 16, 250, 65 },
                                         { 1, 256, 1000 }, { 2, 129, 1000 }, { 63, 5, 800 } };
    fixture f;
    start(&f);
    for (int round = 0; round < 24 && (round < 4 || test_time_left(1)); round++)
        for (size_t i = 0; i < DF_LEN(shapes); i++)
            for (int v = 0; v < 4; v++) {
                /* Under a limit the later rounds, other dtypes and epilogues, take a third. */
                if (round > 0 && (i + (size_t)round) % 3 && !test_time_left(1)) continue;
                const layout l = { .a_transposed = v == 1,
                                   .b_transposed = v == 2,
                                   .b_zero = v == 3,
                                   .epilogue = round & 1 };
                check(&f, dtypes[round >> 1 & 1], shapes[i][0], shapes[i][1], shapes[i][2], 1, 1, l,
                      1 << 2 | 1 << 3);
            }
    finish(&f);
}

/* Beyond one slice of K, one block of rows, the B that is multiplied unpacked. */
Test(matmul, blocked)
{
    static const int64_t shapes[][3] = { { 700, 1, 600 },   { 700, 10, 70 },   { 40, 10, 1500 },
                                         { 1, 700, 1300 },  { 3, 1000, 600 },  { 33, 49, 2600 },
                                         { 35, 600, 520 },  { 104, 900, 760 }, { 150, 333, 1100 },
                                         { 310, 530, 530 }, { 260, 530, 830 } };
    fixture f;
    start(&f);
    for (int v = 0; v < 4; v++)
        for (size_t i = 0; i < DF_LEN(shapes); i++) {
            if (v > 0 && !test_time_left(1)) break;
            const layout l = { .a_transposed = v & 1,
                               .b_transposed = v >> 1,
                               .c_null = (i + v) % 3 == 1,
                               .epilogue = (i + v) % 3 == 2,
                               .wide = v == 2 };
            check(&f, dtypes[(i + v) & 1], shapes[i][0], shapes[i][1], shapes[i][2], 1, 1, l,
                  v == 1 ? 1 << 1 | 1 << 2 : 1u << (1 + v % 4));
        }
    finish(&f);
}

/* Long sums with few columns, as in the gradient of the first weights of a network: threads divide
 * the rows, and pack pieces of one panel. Columns that do not fill the panels of all threads. */
Test(matmul, narrow)
{
    static const int64_t shapes[][3] = { { 16, 9, 6000 }, { 24, 10, 4100 }, { 32, 144, 800 } };
    fixture f;
    start(&f);
    for (size_t i = 0; i < DF_LEN(shapes); i++)
        for (int v = 0; v < 4; v++) {
            const layout l = {
                .b_transposed = true, .a_transposed = v == 3, .c_null = v == 1, .epilogue = v == 2
            };
            check(&f, dtypes[v & 1], shapes[i][0], shapes[i][1], shapes[i][2], 1, 1, l,
                  1 << 1 | 1 << 2 | 1 << 3);
        }
    finish(&f);
}

/* K = 0 gives +0 and still runs the epilogue; no rows or no columns give nothing. */
Test(matmul, empty)
{
    static const int64_t shapes[][5] = { { 5, 7, 0, 1, 1 },    { 100, 200, 0, 2, 1 },
                                         { 0, 7, 3, 1, 1 },    { 5, 0, 3, 1, 2 },
                                         { 5, 7, 3, 0, 2 },    { 0, 0, 0, 1, 1 },
                                         { 300, 100, 0, 1, 1 } };
    fixture f;
    start(&f);
    for (size_t i = 0; i < DF_LEN(shapes); i++)
        for (int v = 0; v < 4; v++)
            check(&f, dtypes[v & 1], shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3],
                  shapes[i][4],
                  (layout){ .c_null = v == 2, .epilogue = v == 3, .b_transposed = v == 1 },
                  1 << 1 | 1 << 2);
    finish(&f);
}

/* The sign of zero: +0 + (-0 * x) is +0, and the chain starts from +0. */
Test(matmul, zeros_and_nan)
{
    df_pool *pool = NULL;
    cr_assert(df_pool_create(NULL, &df_mem_system, 1, &pool) == DEFT_OK);
    float a[4] = { -0.0f, 0.0f, NAN, 1.0f }, b[2] = { 1.0f, 1.0f }, c[2];
    df_matmul_job j = { .dtype = DEFT_F32,
                        .m = 2,
                        .n = 1,
                        .k = 2,
                        .n_batch = 1,
                        .a = (char *)a,
                        .b = (char *)b,
                        .c = (char *)c,
                        .a_row = 2,
                        .a_col = 1,
                        .b_row = 1,
                        .b_col = 1,
                        .c_row = 1 };
    char *const work = malloc(df_matmul_work_size(&j, NULL, 1) + 1);
    df_matmul_run(&j, NULL, NULL, pool, work);
    cr_assert(c[0] == 0 && !signbit(c[0]));
    cr_assert(isnan(c[1]));
    free(work);
    df_pool_destroy(&pool);
}

/* Fast mode with a BLAS, where there is one: near the strict result, C or no C, all of it. */
Test(matmul, fast)
{
    static const int64_t shapes[][3] = { { 1, 10, 256 },  { 4, 64, 64 },   { 64, 10, 64 },
                                         { 2, 1, 33 },    { 1, 1, 5 },     { 200, 16, 100 },
                                         { 1, 33, 71 },   { 3, 7, 19 },    { 2, 5, 1 },
                                         { 4, 999, 300 }, { 999, 1, 300 }, { 1, 1001, 303 },
                                         { 300, 4, 100 }, { 500, 3, 64 },  { 130, 8, 128 },
                                         { 2, 30, 131 },  { 3, 37, 203 },  { 1, 37, 2100 } };
    fixture f;
    start(&f);
    df_blas *blas = NULL;
    const deft_status opened = df_blas_open(NULL, &df_mem_system, &blas);
    cr_assert(opened == DEFT_OK ? blas != NULL : opened == DEFT_E_BACKEND && !blas);
    for (size_t i = 0; i < DF_LEN(shapes) * 16; i++) {
        const deft_dtype t = dtypes[i & 1];
        const int64_t m = shapes[i / 16][0], n = shapes[i / 16][1], k = shapes[i / 16][2];
        const int64_t ld = k + (i & 2 ? 3 : 0), size = (int64_t)deft_dtype_size(t);
        operand a = make(&f, t, (int64_t[]){ m, k }, (int64_t[]){ ld, 1 }, 2);
        operand b = make(&f, t, (int64_t[]){ k, n }, (int64_t[]){ 1, ld }, 2);
        sink s = { .dtype = t, .m = m, .n = n, .n_batch = 1, .n_threads = 2 };
        s.out = calloc((size_t)(m * n), (size_t)size);
        df_matmul_job j = { .dtype = t, .m = m, .n = n, .k = k, .n_batch = 1, .fast = true };
        j.a = a.origin;
        j.b = b.origin;
        j.a_row = j.b_col = ld;
        j.a_col = j.b_row = 1;
        j.c_row = n;
        j.epilogue = collect;
        j.user = &s;
        char *const want = reference(&j), *const c = calloc((size_t)(m * n), (size_t)size);
        if (i & 4) j.c = c;
        const size_t bytes = df_matmul_work_size(&j, NULL, 2);
        void *const work = malloc(bytes ? bytes : 1);
        df_matmul_run(&j, NULL, i & 8 ? blas : NULL, f.pool[2], work);
        cr_assert(!s.bad);
        for (int64_t e = 0; e < m * n; e++) {
            const double x = get(t, s.out + e * size), y = get(t, want + e * size);
            cr_assert(fabs(x - y) <= (t == DEFT_F32 ? 1e-2 : 1e-10), "%g, not %g", x, y);
            if (j.c) cr_assert(memcmp(c + e * size, s.out + e * size, (size_t)size) == 0);
        }
        free(work);
        free(want);
        free(c);
        free(s.out);
        free(a.memory);
        free(b.memory);
        f.n_checks++;
    }
    df_blas_close(&blas);
    cr_assert(!blas);
    finish(&f);
}

/* Every width this machine runs gives the bits of the plain one. */
Test(matmul, widths_agree)
{
    fixture f = { .random = 7 };
    const df_tiles *const widest = df_tiles_pick(DEFT_F32);
    const df_tiles *const all[] = {
        &df_tiles_base_f32,
#if defined(__x86_64__)
        &df_tiles_avx2_f32,
#endif
        widest
    };
    const size_t n_all = widest == &df_tiles_base_f32 ? 1 : DF_LEN(all);
    for (int round = 0; round < 200; round++) {
        const int64_t m = round % 8 ? 1 + draw(&f, 20) : 1, n = 1 + draw(&f, 100);
        const int64_t k = draw(&f, 40);
        float a[20 * 40], b[40 * 100], c[3][20 * 100], packed[3][40 * 48];
        for (size_t i = 0; i < DF_LEN(a); i++) a[i] = (float)value(&f);
        for (size_t i = 0; i < DF_LEN(b); i++) b[i] = (float)value(&f);
        const int64_t w = df_min_i64(n, 48), width = draw(&f, 2) ? 48 : w;
        for (size_t v = 0; v < n_all; v++) {
            for (size_t i = 0; i < DF_LEN(c[v]); i++) c[v][i] = (float)i;
            df_block g = { m, n, k, a, b, c[v], 40, 1, 100, 100, round & 1, round & 2 };
            all[v]->block(&g);
            if (all[v]->dots && k > 0) { /* b as columns of k, 100 apart: n of them at most */
                const int64_t n_columns = df_min_i64(n, 40);
                float got[20 * 100];
                memcpy(got, c[v], sizeof got);
                df_block d = { m, n_columns, k, a, b, got, 40, 1, 100, 100, false, false };
                all[v]->dots(&d);
                for (int64_t i = 0; i < m; i++)
                    for (int64_t x = 0; x < n_columns; x++) {
                        float acc = c[v][i * 100 + x];
                        for (int64_t p = 0; p < k; p++)
                            acc = fmaf(a[i * 40 + p], b[x * 100 + p], acc);
                        cr_assert(memcmp(&acc, &got[i * 100 + x], sizeof acc) == 0, "dots: %zu", v);
                    }
            }
            if (m == 1) {
                float got[20 * 100];
                for (size_t i = 0; i < DF_LEN(got); i++) got[i] = (float)i;
                g.c = got;
                all[v]->sweep(&g);
                cr_assert(memcmp(c[v], got, sizeof got) == 0, "sweep: width %zu differs", v);
            }
            memset(packed[v], 0xff, sizeof packed[v]);
            all[v]->pack(packed[v], width, b, round & 2 ? 1 : 100, round & 2 ? 40 : 1, k, w);
            cr_assert(memcmp(c[v], c[0], sizeof c[0]) == 0, "block: width %zu differs", v);
            cr_assert(memcmp(packed[v], packed[0], sizeof packed[0]) == 0, "pack: width %zu", v);
        }
    }
}

/* Few rows times a transposed B have one chain per element, with any number of rows, columns and
 * steps: whole runs of squares and what remains behind them, and long columns, which are multiplied
 * in parts. Nothing is written behind C. */
Test(matmul, transposed_b_has_chains)
{
    enum {
        M = 18,
        N = 150,
        SHORT = 150,
        K = 2100,
        PAD = 8,
        A_SIZE = M * K,
        B_SIZE = N * (K + PAD)
    };
    fixture f = { .random = 11 };
    double *const c = malloc(M * (N + PAD) * sizeof *c);
    char *const stored_c = malloc(M * (N + PAD) * sizeof *c);
    char *a[2], *turned_a[2], *b[2]; /* by dtype */
    for (int i = 0; i < 2; i++) {
        const int64_t size = (int64_t)deft_dtype_size(dtypes[i]);
        a[i] = malloc((size_t)(A_SIZE * size));
        turned_a[i] = malloc((size_t)(A_SIZE * size)); /* as [K, M] */
        b[i] = malloc((size_t)(B_SIZE * size));
        for (int64_t x = 0; x < A_SIZE; x++) {
            const double v = value(&f);
            put(dtypes[i], a[i] + x * size, v);
            put(dtypes[i], turned_a[i] + (x % K * M + x / K) * size, v);
        }
        for (int64_t x = 0; x < B_SIZE; x++) put(dtypes[i], b[i] + x * size, value(&f));
    }
    for (int round = 0; round < 240; round++) {
        const int w = round & 1;
        const deft_dtype t = dtypes[w];
        const df_tiles *const tiles = df_tiles_pick(t);
        const int64_t size = (int64_t)deft_dtype_size(t);
        const int64_t m = round % 5 ? 1 + draw(&f, 9) : 1 + draw(&f, M);
        const int64_t n = 1 + draw(&f, N), c_row = n + PAD;
        const int64_t k = 1 + draw(&f, round % 15 ? SHORT : K);
        const int64_t b_col = k + (round & 2 ? PAD : 0);
        const bool is_first = round & 4;
        if (!tiles->dots) break;
        for (int64_t i = 0; i < m * c_row; i++) {
            c[i] = value(&f);
            put(t, stored_c + i * size, c[i]);
        }
        const df_block g = { m, n, k, a[w], b[w], stored_c, K, 1, b_col, c_row, is_first, false };
        tiles->dots(&g);
        for (int64_t x = 0; x < c_row; x++) {
            double sums[M]; /* of dtype t: a column of C */
            char *const sum = (char *)sums, *const column = b[w] + x * b_col * size;
            for (int64_t i = 0; i < m; i++)
                put(t, sum + i * size, is_first && x < n ? 0 : c[i * c_row + x]);
            if (x < n && t == DEFT_F32)
                chains_f32(m, k, (void *)column, 1, (void *)turned_a[w], M, (void *)sum);
            else if (x < n)
                chains_f64(m, k, (void *)column, 1, (void *)turned_a[w], M, (void *)sum);
            for (int64_t i = 0; i < m; i++) {
                const double got = get(t, stored_c + (i * c_row + x) * size);
                const double want = get(t, sum + i * size);
                cr_assert(got == want, "%lld x %lld x %lld: %g, not %g, at %lld, %lld",
                          (long long)m, (long long)n, (long long)k, got, want, (long long)i,
                          (long long)x);
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        free(a[i]);
        free(turned_a[i]);
        free(b[i]);
    }
    free(stored_c);
    free(c);
}
