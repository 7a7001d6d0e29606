/* SPDX-License-Identifier: Apache-2.0
 *
 * A BLAS that is opened at run time, for fast mode.
 *
 * The serial build of OpenBLAS is tried first. The threads of a threaded build compete with our
 * pool: a region after such a product costs up to 50 times as much. So a pthread build is set to
 * one thread. An OpenMP build is refused, because its number of threads is a setting of the
 * program.
 */
#include "runtime/matmul/blas.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112, OPENMP = 2 };

typedef void (*sgemm_fn)(int order, int ta, int tb, int m, int n, int k, float alpha,
                         const float *a, int lda, const float *b, int ldb, float beta, float *c,
                         int ldc);
typedef void (*dgemm_fn)(int order, int ta, int tb, int m, int n, int k, double alpha,
                         const double *a, int lda, const double *b, int ldb, double beta, double *c,
                         int ldc);

struct df_blas {
    const df_mem *mem;
    void *lib;
    sgemm_fn sgemm;
    dgemm_fn dgemm;
};

static const char *const places[] = {
    "/usr/lib/x86_64-linux-gnu/openblas-serial/libopenblas.so.0",
    "/usr/lib/aarch64-linux-gnu/openblas-serial/libopenblas.so.0",
    "/usr/lib64/openblas-serial/libopenblas.so.0",
    "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
    "/usr/lib/aarch64-linux-gnu/openblas-pthread/libopenblas.so.0",
    "libopenblas.so.0",
    "libopenblas.so",
};

/* ISO C has no conversion from object pointers to function pointers. POSIX lets the bytes be
 * copied. */
static void find(void *lib, const char *name, void *fn)
{
    void *const p = dlsym(lib, name);
    memcpy(fn, &p, sizeof p);
}

/* Returns true when lib can be used. From then on it uses one thread. */
static bool take(df_blas *b, void *lib)
{
    int (*parallel)(void) = NULL;
    void (*set_threads)(int) = NULL;
    find(lib, "openblas_get_parallel", &parallel);
    find(lib, "openblas_set_num_threads", &set_threads);
    find(lib, "cblas_sgemm", &b->sgemm);
    find(lib, "cblas_dgemm", &b->dgemm);
    if (!b->sgemm || !b->dgemm || (parallel && parallel() == OPENMP)) return false;
    if (set_threads) set_threads(1);
    b->lib = lib;
    return true;
}

deft_status df_blas_open(df_diag *d, const df_mem *mem, df_blas **out)
{
    df_blas *const b = df_mem_zalloc(mem, sizeof *b);
    if (!b) return df_fail_mem(d, "blas", sizeof *b);
    b->mem = mem;
    for (size_t i = 0; i < DF_LEN(places) && !b->lib; i++) {
        void *const lib = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
        if (lib && !take(b, lib)) dlclose(lib);
    }
    if (b->lib) {
        *out = b;
        return DEFT_OK;
    }
    df_mem_free(mem, b, sizeof *b);
    return df_fail(d, DEFT_E_BACKEND, "blas: no serial or pthread libopenblas.so.0 was found");
}

void df_blas_close(df_blas **b)
{
    if (!*b) return;
    dlclose((*b)->lib);
    df_mem_free((*b)->mem, *b, sizeof **b);
    *b = NULL;
}

/* Returns the leading dimension of a matrix with these strides and extents, or 0 when a BLAS cannot
 * express them. */
static int64_t leading(int64_t row, int64_t col, int64_t rows, int64_t cols, bool *transposed)
{
    const int64_t least = rows > cols ? rows : cols; /* enough for either reading of the strides */
    *transposed = !(col == 1 || cols == 1);
    if (*transposed && !(row == 1 || rows == 1)) return 0;
    const int64_t ld = *transposed ? (cols == 1 ? least : col) : (rows == 1 ? least : row);
    const int64_t need = *transposed ? rows : cols;
    return ld >= need && ld > 0 && ld <= INT_MAX ? ld : 0;
}

bool df_blas_multiply(const df_blas *b, const df_matmul_job *j, void *c, int64_t c_row)
{
    bool ta, tb;
    const int64_t lda = leading(j->a_row, j->a_col, j->m, j->k, &ta);
    const int64_t ldb = leading(j->b_row, j->b_col, j->k, j->n, &tb);
    const int64_t ldc = j->m == 1 ? j->n : c_row;
    if (lda == 0 || ldb == 0 || ldc < j->n || df_max_i64(ldc, j->m) > INT_MAX ||
        df_max_i64(j->n, j->k) > INT_MAX)
        return false;
    const int opa = ta ? TRANS : NO_TRANS, opb = tb ? TRANS : NO_TRANS;
    const int m = (int)j->m, n = (int)j->n, k = (int)j->k;
    const void *const x = j->a, *const y = j->b;
    if (j->dtype == DEFT_F32)
        b->sgemm(ROW_MAJOR, opa, opb, m, n, k, 1, x, (int)lda, y, (int)ldb, 0, c, (int)ldc);
    else
        b->dgemm(ROW_MAJOR, opa, opb, m, n, k, 1, x, (int)lda, y, (int)ldb, 0, c, (int)ldc);
    return true;
}
