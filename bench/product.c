/* SPDX-License-Identifier: Apache-2.0 */
#include "product.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

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
        find(lib, "cblas_sgemv", &p->sgemv);
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

void product_create(product *p, int64_t n_elements)
{
    const size_t bytes = (size_t)n_elements * sizeof(float);
    *p = (product){ .work_size = 3 * bytes + (16u << 20) };
    open_libraries(p);
    for (uint32_t i = 1; i <= 2; i++)
        if (df_pool_create(NULL, &df_mem_system, i, &p->pool[i]) != DEFT_OK) exit(1);
    df_blas_open(NULL, &df_mem_system, &p->blas);
    p->has_tiles = df_matmul_enable_tiles();
    const deft_status opened = df_plugin_open(NULL, &df_mem_system, NULL, getenv("DEFT_PLUGIN_DIR"),
                                              0, &p->compiler, &p->plugin);
    if (opened == DEFT_OK &&
        p->compiler.gemm(p->compiler.self, NULL, DEFT_F32, &p->kernel_value) == DEFT_OK)
        p->kernel = &p->kernel_value;
    p->a = memory(bytes);
    p->b = memory(bytes);
    p->c = memory(bytes);
    p->work = memory(p->work_size);
    for (int64_t i = 0; i < n_elements; i++) {
        p->a[i] = (float)(i % 17) * 0.1f;
        p->b[i] = (float)(i % 13) * 0.1f;
    }
}

void product_destroy(product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->work);
    df_blas_close(&p->blas);
    for (uint32_t i = 1; i <= 2; i++) df_pool_destroy(&p->pool[i]);
    df_plugin_close(&p->compiler, &p->plugin);
}

bool product_has(const product *p, product_side side)
{
    switch (side) {
    case PRODUCT_STRICT:
    case PRODUCT_FAST: return true;
    case PRODUCT_OPENBLAS: return p->sgemm;
    case PRODUCT_OPENBLAS_VECTOR: return p->sgemv && (p->m == 1 || p->n == 1);
    case PRODUCT_ONEDNN: return p->dnnl;
    case PRODUCT_OPENBLAS_THREADS: return p->sgemm_threads && p->set_threads && p->threads > 1;
    case PRODUCT_READ: return p->m == 1 || p->n == 1;
    case PRODUCT_N_SIDES: break;
    }
    return false;
}

const char *product_side_name(product_side side)
{
    static const char *const name[] = {
        [PRODUCT_STRICT] = "ours",
        [PRODUCT_FAST] = "ours",
        [PRODUCT_OPENBLAS] = "OpenBLAS, GFLOP/s",
        [PRODUCT_OPENBLAS_VECTOR] = "OpenBLAS's sgemv, GFLOP/s",
        [PRODUCT_ONEDNN] = "oneDNN, GFLOP/s",
        [PRODUCT_OPENBLAS_THREADS] = "OpenBLAS's threads, GFLOP/s",
        [PRODUCT_READ] = "reading the matrix, GFLOP/s",
    };
    _Static_assert(DF_LEN(name) == PRODUCT_N_SIDES, "a name for each side");
    return name[side];
}

int64_t product_weight_size(const product *p)
{
    return (int64_t)sizeof(float) * p->k * df_max_i64(p->m, p->n);
}

/* ---- the libraries, one part of C per thread ---- */

/* Rows [m0, m1) and columns [n0, n1) of C. */
typedef struct part {
    int64_t m0, m1, n0, n1;
} part;

static void run_openblas_vector(const product *p, const part *w)
{
    const bool row = p->m == 1; /* else one column */
    const float *const x = row ? p->a : p->b, *matrix = row ? p->b : p->a;
    const bool along_k = row ? p->b_transposed : !p->a_transposed; /* rows in memory are along k */
    const int64_t from = row ? w->n0 : w->m0, n = row ? w->n1 - w->n0 : w->m1 - w->m0;
    const int64_t ld = along_k ? p->k : row ? p->n : p->m;
    matrix += from * (along_k ? p->k : 1);
    if (along_k)
        p->sgemv(ROW_MAJOR, NO_TRANS, (int)n, (int)p->k, 1, matrix, (int)ld, x, 1, 0, p->c + from,
                 1);
    else
        p->sgemv(ROW_MAJOR, TRANS, (int)p->k, (int)n, 1, matrix, (int)ld, x, 1, 0, p->c + from, 1);
}

static void run_part(void *user, uint32_t i, uint32_t thread)
{
    (void)thread;
    const product *const p = user;
    part w = { .m1 = p->m, .n1 = p->n };
    int64_t *const from = p->m > p->n ? &w.m0 : &w.n0, *const to = p->m > p->n ? &w.m1 : &w.n1;
    const int64_t each = (*to + p->threads - 1) / p->threads;
    *from = i * each;
    *to = df_min_i64(*from + each, *to);
    const int64_t m = w.m1 - w.m0, n = w.n1 - w.n0;
    if (m <= 0 || n <= 0) return;
    const int64_t lda = p->a_transposed ? p->m : p->k, ldb = p->b_transposed ? p->k : p->n;
    const float *const a = p->a + w.m0 * (p->a_transposed ? 1 : lda);
    const float *const b = p->b + w.n0 * (p->b_transposed ? ldb : 1);
    float *const c = p->c + w.m0 * p->n + w.n0;
    if (p->side == PRODUCT_OPENBLAS_VECTOR) {
        run_openblas_vector(p, &w);
    } else if (p->side == PRODUCT_OPENBLAS) {
        p->sgemm(ROW_MAJOR, p->a_transposed ? TRANS : NO_TRANS, p->b_transposed ? TRANS : NO_TRANS,
                 (int)m, (int)n, (int)p->k, 1, a, (int)lda, b, (int)ldb, 0, c, (int)p->n);
    } else {
        if (p->omp_threads) p->omp_threads(1); /* OpenMP keeps this per calling thread */
        p->dnnl(p->a_transposed ? 'T' : 'N', p->b_transposed ? 'T' : 'N', m, n, p->k, 1, a, lda, b,
                ldb, 0, c, p->n);
    }
}

/* ---- reading ---- */

typedef uint64_t lanes __attribute__((vector_size(32), aligned(32), may_alias));

static inline __attribute__((always_inline)) uint64_t sum_lanes(const lanes *p, int64_t n)
{
    lanes s[8] = { { 0 } };
    for (int64_t i = 0; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) s[j] += p[i + j];
    for (int j = 1; j < 8; j++) s[0] += s[j];
    return s[0][0] + s[0][1] + s[0][2] + s[0][3];
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t sum_avx2(const lanes *p, int64_t n)
{
    return sum_lanes(p, n);
}
#endif

static uint64_t sum_any(const lanes *p, int64_t n)
{
    return sum_lanes(p, n);
}

static void read_part(void *user, uint32_t i, uint32_t thread)
{
    (void)thread;
    const product *const p = user;
    static _Atomic uint64_t sink;
    const int64_t n = product_weight_size(p) / (int64_t)sizeof(lanes) / p->threads;
    const lanes *const from = (const lanes *)(const void *)(p->m > p->n ? p->a : p->b) + i * n;
    uint64_t (*sum)(const lanes *, int64_t) = sum_any;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) sum = sum_avx2;
#endif
    atomic_store_explicit(&sink, sum(from, n), memory_order_relaxed);
}

/* ---- all sides ---- */

static void run_ours(const product *p, bool fast)
{
    df_matmul_job j = {
        .dtype = DEFT_F32, .m = p->m, .n = p->n, .k = p->k, .n_batch = 1, .fast = fast
    };
    j.a = (const char *)p->a;
    j.b = (const char *)p->b;
    j.c = (char *)p->c;
    j.c_row = p->n;
    j.a_row = p->a_transposed ? 1 : p->k;
    j.a_col = p->a_transposed ? p->m : 1;
    j.b_row = p->b_transposed ? 1 : p->n;
    j.b_col = p->b_transposed ? p->k : 1;
    j.in_thirds = fast && p->has_tiles && df_matmul_gains_by_thirds(&j);
    if (df_matmul_work_size(&j, p->kernel, p->threads) > p->work_size) exit(1);
    df_matmul_run(&j, p->kernel, p->blas, p->pool[p->threads], p->work);
}

static void run_parts(product *p, void (*task)(void *user, uint32_t i, uint32_t thread))
{
    if (p->threads == 1)
        task(p, 0, 0);
    else
        df_pool_run(p->pool[p->threads], p->threads, task, p);
}

void product_run(void *user)
{
    product *const p = user;
    switch (p->side) {
    case PRODUCT_STRICT:
    case PRODUCT_FAST: run_ours(p, p->side == PRODUCT_FAST); break;
    case PRODUCT_OPENBLAS_THREADS:
        p->set_threads((int)p->threads);
        p->sgemm_threads(ROW_MAJOR, p->a_transposed ? TRANS : NO_TRANS,
                         p->b_transposed ? TRANS : NO_TRANS, (int)p->m, (int)p->n, (int)p->k, 1,
                         p->a, (int)(p->a_transposed ? p->m : p->k), p->b,
                         (int)(p->b_transposed ? p->k : p->n), 0, p->c, (int)p->n);
        /* The serial library may be the same one. */
        p->set_threads(1);
        break;
    case PRODUCT_READ: run_parts(p, read_part); break;
    case PRODUCT_OPENBLAS:
    case PRODUCT_OPENBLAS_VECTOR:
    case PRODUCT_ONEDNN: run_parts(p, run_part); break;
    case PRODUCT_N_SIDES: break;
    }
}
