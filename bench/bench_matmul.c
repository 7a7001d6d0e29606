/* SPDX-License-Identifier: Apache-2.0
 *
 * Is our matrix product as fast as the best library's? f32 squares from 64 to 2048 on one and two
 * threads, and the flat products of a small network, also with B transposed, against OpenBLAS and
 * oneDNN at their best: one thread of theirs per row block over our pool (which no library's own
 * threads beat here), and OpenBLAS's own threads where that build is installed. All sides run in
 * turn; medians.
 */
#include "bench.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/cpu.h"
#include "runtime/matmul.h"

enum { OURS, OPENBLAS, ONEDNN, OPENBLAS_THREADS, N_SIDES, MAX_ROUNDS = 31 };

typedef void (*sgemm_fn)(int, int, int, int, int, int, float, const float *, int, const float *,
                         int, float, float *, int);
typedef int (*dnnl_fn)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t,
                       const float *, int64_t, float, float *, int64_t);

typedef struct product {
    int64_t m, n, k;
    uint32_t threads;
    bool fast;
    bool b_transposed; /* b lies as [n][k] */
    float *a, *b, *c;
    void *work;
    size_t work_bytes;
    df_pool *pool[3];
    df_blas *blas;
    const df_gemm_kernel *kernel;
    sgemm_fn sgemm, sgemm_threads;
    void (*set_threads)(int);
    dnnl_fn dnnl;
    void (*omp_threads)(int);
    int side;
} product;

/* As the allocator of the library gives it: huge pages, touched. */
static void *memory(size_t bytes)
{
    void *const p = aligned_alloc(2u << 20, (bytes + (2u << 20) - 1) >> 21 << 21);
    if (!p) exit(1);
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

static void find(void *lib, const char *name, void *fn)
{
    void *const p = lib ? dlsym(lib, name) : NULL;
    memcpy(fn, &p, sizeof p);
}

static void open_libraries(product *p)
{
    /* Left alone, OpenBLAS 0.3.21 takes Cooperlake code on AVX-512 machines: slower than SkylakeX.
     */
    unsetenv("OPENBLAS_L2_SIZE");
    unsetenv("OPENBLAS_CORETYPE");
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) setenv("OPENBLAS_CORETYPE", "SkylakeX", 1);
#endif
    static const char *const serial[] = {
        "/usr/lib/x86_64-linux-gnu/openblas-serial/libopenblas.so.0", "libopenblas.so.0"
    };
    for (size_t i = 0; i < DF_LEN(serial) && !p->sgemm; i++) {
        void *const lib = dlopen(serial[i], RTLD_NOW | RTLD_LOCAL);
        void (*set_one)(int) = NULL;
        find(lib, "cblas_sgemm", &p->sgemm);
        find(lib, "openblas_set_num_threads", &set_one);
        if (set_one) set_one(1);
    }
    void *const threaded = dlopen("/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
                                  RTLD_NOW | RTLD_LOCAL);
    find(threaded, "cblas_sgemm", &p->sgemm_threads);
    find(threaded, "openblas_set_num_threads", &p->set_threads);
    static const char *const dnnl[] = { "libdnnl.so.3", "libdnnl.so.2", "libdnnl.so" };
    for (size_t i = 0; i < DF_LEN(dnnl) && !p->dnnl; i++)
        find(dlopen(dnnl[i], RTLD_NOW | RTLD_LOCAL), "dnnl_sgemm", &p->dnnl);
    find(dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL), "omp_set_num_threads", &p->omp_threads);
}

static void part(void *user, uint32_t i, uint32_t thread)
{
    (void)thread;
    const product *const p = user;
    const int64_t rows = (p->m + p->threads - 1) / p->threads, m0 = i * rows;
    const int64_t m = df_min_i64(rows, p->m - m0);
    if (m <= 0) return;
    const float *const a = p->a + m0 * p->k;
    float *const c = p->c + m0 * p->n;
    const bool t = p->b_transposed;
    const int64_t ldb = t ? p->k : p->n;
    if (p->side == OPENBLAS) {
        p->sgemm(101, 111, t ? 112 : 111, (int)m, (int)p->n, (int)p->k, 1, a, (int)p->k, p->b,
                 (int)ldb, 0, c, (int)p->n);
    } else {
        if (p->omp_threads) p->omp_threads(1); /* OpenMP keeps this per calling thread */
        p->dnnl('N', t ? 'T' : 'N', m, p->n, p->k, 1, a, p->k, p->b, ldb, 0, c, p->n);
    }
}

static void multiply(void *user)
{
    product *const p = user;
    switch (p->side) {
    case OURS: {
        df_matmul_job j = {
            .dtype = DEFT_F32, .m = p->m, .n = p->n, .k = p->k, .n_batch = 1, .fast = p->fast
        };
        j.a = (const char *)p->a;
        j.b = (const char *)p->b;
        j.c = (char *)p->c;
        j.a_row = p->k;
        j.c_row = p->n;
        j.a_col = 1;
        j.b_row = p->b_transposed ? 1 : p->n;
        j.b_col = p->b_transposed ? p->k : 1;
        if (df_matmul_work_size(&j, p->kernel, p->threads) > p->work_bytes) exit(1);
        df_matmul_run(&j, p->kernel, p->blas, p->pool[p->threads], p->work);
        break;
    }
    case OPENBLAS_THREADS:
        p->set_threads((int)p->threads);
        p->sgemm_threads(101, 111, p->b_transposed ? 112 : 111, (int)p->m, (int)p->n, (int)p->k, 1,
                         p->a, (int)p->k, p->b, (int)(p->b_transposed ? p->k : p->n), 0, p->c,
                         (int)p->n);
        break;
    default:
        if (p->threads == 1)
            part(p, 0, 0);
        else
            df_pool_run(p->pool[p->threads], p->threads, part, p);
    }
}

static bool present(const product *p, int side)
{
    return side == OURS || (side == OPENBLAS && p->sgemm) || (side == ONEDNN && p->dnnl) ||
           (side == OPENBLAS_THREADS && p->sgemm_threads && p->set_threads && p->threads > 1);
}

static void compare(bench *b, product *p, double goal)
{
    static const char *const name[N_SIDES] = { "ours", "OpenBLAS, GFLOP/s", "oneDNN, GFLOP/s",
                                               "OpenBLAS's threads, GFLOP/s" };
    double t[N_SIDES][MAX_ROUNDS], best = 0;
    const double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    const int rounds = b->quick ? 7 : flops > 1e9 ? 11 : MAX_ROUNDS;
    int calls = (int)(2e6 / (flops / 200)), best_side = OURS;
    calls = calls < 1 ? 1 : calls > 2000 ? 2000 : calls;
    for (int r = -1; r < rounds; r++)
        for (p->side = 0; p->side < N_SIDES; p->side++) {
            if (!present(p, p->side)) continue;
            multiply(p); /* the side's own data into the caches */
            const double start = bench_now();
            for (int i = 0; i < calls; i++) multiply(p);
            if (r >= 0) t[p->side][r] = (bench_now() - start) / calls;
        }
    const double ours = flops / bench_median(t[OURS], (size_t)rounds) * 1e-9;
    for (int s = OPENBLAS; s < N_SIDES; s++) {
        const double rate = present(p, s) ? flops / bench_median(t[s], (size_t)rounds) * 1e-9 : 0;
        if (rate > best) best = rate, best_side = s;
    }
    char label[96];
    snprintf(label, sizeof label, "matmul %lldx%lldx%lld%s f32, %u thread%s, %s", (long long)p->m,
             (long long)p->n, (long long)p->k, p->b_transposed ? " B'" : "", p->threads,
             p->threads > 1 ? "s" : "", p->fast ? "fast" : "strict");
    char reference[64];
    snprintf(reference, sizeof reference, "%s%s", best > 0 ? name[best_side] : "no library here",
             p->dnnl ? "" : " (no oneDNN)");
    bench_row(b, label, ours, "GFLOP/s", reference, best, BENCH_RATIO_AT_LEAST, goal);
}

void bench_matmul(bench *b)
{
    static const int64_t squares[] = { 64, 128, 256, 512, 1024, 2048 };
    static const int64_t flat[][3] = { { 1, 256, 64 },  { 16, 256, 64 }, { 64, 256, 64 },
                                       { 16, 10, 256 }, { 64, 10, 256 }, { 64, 10, 64 } };
    const int64_t n_squares = b->quick ? 5 : DF_LEN(squares), most = squares[n_squares - 1];
    const size_t bytes = (size_t)(most * most) * sizeof(float);
    product p = { .work_bytes = 3 * bytes + (16u << 20) };
    open_libraries(&p);
    for (uint32_t i = 1; i <= 2; i++)
        if (df_pool_create(NULL, &df_mem_system, i, &p.pool[i]) != DEFT_OK) exit(1);
    df_blas_open(NULL, &df_mem_system, &p.blas);
    df_compiler compiler;
    df_gemm_kernel kernel;
    void *plugin = NULL;
    const deft_status opened = df_plugin_open(NULL, &df_mem_system, NULL, getenv("DEFT_PLUGIN_DIR"),
                                              0, &compiler, &plugin);
    if (opened == DEFT_OK && compiler.gemm(compiler.self, NULL, DEFT_F32, &kernel) == DEFT_OK)
        p.kernel = &kernel;
    p.a = memory(bytes);
    p.b = memory(bytes);
    p.c = memory(bytes);
    p.work = memory(p.work_bytes);
    for (int64_t i = 0; i < most * most; i++) {
        p.a[i] = (float)(i % 17) * 0.1f;
        p.b[i] = (float)(i % 13) * 0.1f;
    }

    for (p.threads = 1; p.threads <= 2; p.threads++)
        for (int64_t i = 0; i < n_squares; i++) {
            p.m = p.n = p.k = squares[i];
            p.fast = false;
            compare(b, &p, 0.9);
            p.fast = true;
            compare(b, &p, 1.0);
        }
    p.threads = 1;
    p.fast = false;
    for (size_t i = 0; i < DF_LEN(flat); i++) {
        p.m = flat[i][0];
        p.n = flat[i][1];
        p.k = flat[i][2];
        compare(b, &p, 0.9);
    }
    p.b_transposed = true;
    p.n = 256;
    p.k = 64;
    for (p.m = 1; p.m <= 16; p.m *= 4) compare(b, &p, 0.9);

    free(p.a);
    free(p.b);
    free(p.c);
    free(p.work);
    df_blas_close(&p.blas);
    for (uint32_t i = 1; i <= 2; i++) df_pool_destroy(&p.pool[i]);
    df_plugin_close(&compiler, &plugin);
}
