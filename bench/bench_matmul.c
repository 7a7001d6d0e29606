/* SPDX-License-Identifier: Apache-2.0
 *
 * Is our matrix product as fast as the best library's? f32 on one and two threads, strict and fast:
 * squares from 64 to 2048, the flat products of a small network, and thin products: 1 to 64 rows
 * times weights in either layout, and a matrix times few columns. The references are the better of
 * OpenBLAS and oneDNN (product.h), and for a matrix beyond the L2 cache times a vector also a read
 * of the matrix. All sides run in turn; medians. On processors with AMX, products of bf16 by tiles
 * stand beside those by vectors.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "product.h"

enum { MAX_ROUNDS = 31, READ_FROM_SIZE = 2 << 20 };

static const double strict_goal = 0.95, fast_goal = 1.0, read_goal = 0.9;

/* Returns the label of a product. */
static const char *label_of(char *text, size_t size, const product *p, product_side side,
                            const char *what)
{
    snprintf(text, size, "matmul %lldx%lldx%lld%s%s f32, %u thread%s, %s%s", (long long)p->m,
             (long long)p->n, (long long)p->k, p->a_transposed ? " A'" : "",
             p->b_transposed ? " B'" : "", p->threads, p->threads > 1 ? "s" : "",
             side == PRODUCT_FAST ? "fast" : "strict", what);
    return text;
}

/* Times all sides in turns of about `seconds` each. Reports a row for strict mode and one for fast
 * mode. */
static void compare(bench *b, product *p, double seconds)
{
    double t[PRODUCT_N_SIDES][MAX_ROUNDS], rate[PRODUCT_N_SIDES] = { 0 };
    char label[128], reference[64];
    const double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    const int rounds = b->quick ? 7 : flops > 1e9 ? 11 : 21;
    if (!bench_wants(b, label_of(label, sizeof label, p, PRODUCT_STRICT, "")) &&
        !bench_wants(b, label_of(label, sizeof label, p, PRODUCT_FAST, "")))
        return;
    p->side = PRODUCT_STRICT;
    const int calls = bench_calls(product_run, p, seconds);
    for (int r = -1; r < rounds; r++)
        for (p->side = 0; p->side < PRODUCT_N_SIDES; p->side++) {
            if (!product_has(p, p->side)) continue;
            product_run(p); /* the side's own data into the caches */
            const double start = bench_now();
            for (int i = 0; i < calls; i++) product_run(p);
            if (r >= 0) t[p->side][r] = (bench_now() - start) / calls;
        }
    product_side best = PRODUCT_STRICT;
    for (product_side s = 0; s < PRODUCT_N_SIDES; s++) {
        if (!product_has(p, s)) continue;
        rate[s] = flops / bench_median(t[s], (size_t)rounds) * 1e-9;
        const bool is_library = s != PRODUCT_STRICT && s != PRODUCT_FAST && s != PRODUCT_READ;
        if (is_library && (best == PRODUCT_STRICT || rate[s] > rate[best])) best = s;
    }
    snprintf(reference, sizeof reference, "%s%s",
             best != PRODUCT_STRICT ? product_side_name(best) : "no library here",
             p->dnnl ? "" : " (no oneDNN)");
    const bool reads = product_has(p, PRODUCT_READ) && product_weight_size(p) > READ_FROM_SIZE;
    for (product_side s = PRODUCT_STRICT; s <= PRODUCT_FAST; s++) {
        bench_row(b, label_of(label, sizeof label, p, s, ""), rate[s], "GFLOP/s", reference,
                  best != PRODUCT_STRICT ? rate[best] : 0, BENCH_RATIO_AT_LEAST,
                  s == PRODUCT_FAST ? fast_goal : strict_goal);
        if (reads)
            bench_row(b, label_of(label, sizeof label, p, s, ", read"), rate[s], "GFLOP/s",
                      product_side_name(PRODUCT_READ), rate[PRODUCT_READ], BENCH_RATIO_AT_LEAST,
                      read_goal);
    }
}

static void compare_thin(bench *b, product *p)
{
    static const int64_t weights[][2] = {
        { 256, 256 }, { 768, 3072 }, { 1024, 1024 }, { 4096, 1024 }
    };
    static const int64_t few[] = { 1, 2, 4, 8, 16, 64 };
    const double seconds = b->quick ? 5e-4 : 1e-3;
    for (size_t i = 0; i < DF_LEN(weights); i++)
        for (int transposed = 0; transposed < 2; transposed++) {
            p->k = weights[i][0];
            p->n = weights[i][1];
            p->b_transposed = transposed;
            for (size_t x = 0; x < DF_LEN(few); x++) {
                p->m = few[x];
                compare(b, p, seconds);
            }
            p->b_transposed = false;
            p->a_transposed = transposed;
            p->m = weights[i][1];
            for (p->n = 1; p->n <= 8; p->n *= 2) compare(b, p, seconds);
            p->a_transposed = false;
        }
}

/* ---- bf16 ---- */

typedef struct bf16_product {
    df_matmul_job job;
    df_pool *pool;
    void *work;
} bf16_product;

static void run_bf16(void *user)
{
    bf16_product *const p = user;
    df_matmul_run(&p->job, NULL, NULL, p->pool, p->work);
}

/* Products of bf16 in fast mode, by the tiles of AMX and by vectors (AVX-512 BF16), into f32. */
static void compare_bf16(bench *b, product *p)
{
    static const int64_t shapes[][3] = {
        { 1, 4096, 1024 }, { 8, 4096, 1024 }, { 64, 768, 768 },
        { 256, 256, 256 }, { 512, 512, 512 }, { 1024, 1024, 1024 }
    };
    const int rounds = b->quick ? 7 : 21;
    if (!df_matmul_enable_tiles()) return;
    for (int64_t i = 0; i < 2 * 1024 * 4096; i++) { /* between 0.5 and 2, of either sign */
        const uint16_t bits = (uint16_t)(i * 40503 >> 3);
        ((uint16_t *)(void *)p->a)[i] = (uint16_t)((bits & 0x80ff) | 0x3f00);
        ((uint16_t *)(void *)p->b)[i] = (uint16_t)((bits & 0x807f) | 0x3f80);
    }
    for (size_t i = 0; i < DF_LEN(shapes); i++) {
        const int64_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
        const double flops = 2.0 * (double)m * (double)n * (double)k * 1e-9;
        double tiles, vectors;
        char label[128];
        snprintf(label, sizeof label, "matmul %lldx%lldx%lld bf16, %u thread%s, fast", (long long)m,
                 (long long)n, (long long)k, p->threads, p->threads > 1 ? "s" : "");
        if (!bench_wants(b, label)) continue;
        bf16_product ours = { .job = { .dtype = DEFT_F32,
                                       .m = m,
                                       .n = n,
                                       .k = k,
                                       .n_batch = 1,
                                       .a = (const char *)p->a,
                                       .b = (const char *)p->b,
                                       .c = (char *)p->c,
                                       .a_row = k,
                                       .a_col = 1,
                                       .b_row = n,
                                       .b_col = 1,
                                       .c_row = n,
                                       .is_bf16 = true,
                                       .fast = true },
                              .pool = p->pool[p->threads],
                              .work = p->work };
        bf16_product other = ours;
        ours.job.is_tiled = true;
        if (df_matmul_work_size(&ours.job, NULL, p->threads) > p->work_size) exit(1);
        if (df_matmul_work_size(&other.job, NULL, p->threads) > p->work_size) exit(1);
        bench_pair(run_bf16, &ours, run_bf16, &other, rounds,
                   bench_calls(run_bf16, &ours, b->quick ? 5e-4 : 2e-3), &tiles, &vectors);
        bench_row(b, label, flops / tiles, "GFLOP/s", "vectors (AVX-512 BF16)", flops / vectors,
                  BENCH_RATIO_AT_LEAST, m <= 4 ? 0.85 : 1.0);
    }
}

void bench_matmul(bench *b)
{
    static const int64_t squares[] = { 64, 128, 256, 512, 1024, 2048 };
    static const int64_t flat[][3] = { { 1, 256, 64 },  { 16, 256, 64 }, { 64, 256, 64 },
                                       { 16, 10, 256 }, { 64, 10, 256 }, { 64, 10, 64 } };
    const int64_t n_squares = b->quick ? 5 : DF_LEN(squares);
    product p;
    product_create(&p, 2048 * 2048);
    for (p.threads = 1; p.threads <= 2; p.threads++) {
        for (int64_t i = 0; i < n_squares; i++) {
            p.m = p.n = p.k = squares[i];
            compare(b, &p, 2e-3);
        }
        compare_thin(b, &p);
    }
    p.threads = 1;
    for (size_t i = 0; i < DF_LEN(flat); i++) {
        p.m = flat[i][0];
        p.n = flat[i][1];
        p.k = flat[i][2];
        compare(b, &p, 1e-3);
    }
    p.b_transposed = true;
    p.n = 256;
    p.k = 64;
    for (p.m = 1; p.m <= 16; p.m *= 4) compare(b, &p, 1e-3);
    for (p.threads = 1; p.threads <= 2; p.threads++) compare_bf16(b, &p);
    product_destroy(&p);
}
