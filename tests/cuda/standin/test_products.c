/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in for cuBLASLt: products against sums written down here, epilogues, what is refused.
 *
 *   test_products LIBCUDA LIBNVRTC LIBCUBLASLT
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "standin_cublaslt.h"
#include "try.h"

#define CALLS(X)                                                                                   \
    X(create, cublasLtCreate)                                                                      \
    X(destroy, cublasLtDestroy)                                                                    \
    X(desc_create, cublasLtMatmulDescCreate)                                                       \
    X(desc_destroy, cublasLtMatmulDescDestroy)                                                     \
    X(desc_set, cublasLtMatmulDescSetAttribute)                                                    \
    X(layout_create, cublasLtMatrixLayoutCreate)                                                   \
    X(layout_destroy, cublasLtMatrixLayoutDestroy)                                                 \
    X(layout_set, cublasLtMatrixLayoutSetAttribute)                                                \
    X(prefer_create, cublasLtMatmulPreferenceCreate)                                               \
    X(prefer_destroy, cublasLtMatmulPreferenceDestroy)                                             \
    X(prefer_set, cublasLtMatmulPreferenceSetAttribute)                                            \
    X(ask, cublasLtMatmulAlgoGetHeuristic)                                                         \
    X(multiply, cublasLtMatmul)                                                                    \
    X(count, standin_cublaslt_count)                                                               \
    X(fail, standin_cublaslt_fail)

static struct {
#define FIELD(field, symbol) __typeof__(symbol) *field;
    CALLS(FIELD)
#undef FIELD
} lt;

static bool open_library(const char *path)
{
    bool good = true;
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
#define FIND(field, symbol)                                                                        \
    {                                                                                              \
        void *const p = dlsym(library, #symbol);                                                   \
        memcpy(&lt.field, &p, sizeof p);                                                           \
        good &= p != NULL;                                                                         \
    }
    CALLS(FIND)
#undef FIND
    return good;
}

enum { F32 = 0, F64 = 1, F16 = 2, COMPUTE_F32 = 68, COMPUTE_F64 = 70 };

/* 2 batches of 3 x 4 by 4 x 2. */
enum { N = 2, M = 3, K = 4, J = 2 };

typedef struct setup {
    struct lt_handle *h;
    struct lt_desc *d;
    struct lt_layout *a, *b, *to;
    struct lt_preference *p;
    lt_heuristic found;
    df_cu_ptr at[5]; /* A, B, D, bias, work space */
} setup;

static void set_int(int (*fn)(struct lt_layout *, int, const void *, size_t), struct lt_layout *l,
                    int what, int32_t v)
{
    CHECK(fn(l, what, &v, sizeof v) == 0);
}

static void add_batches(struct lt_layout *l, int64_t stride)
{
    set_int(lt.layout_set, l, 5, N);
    CHECK(lt.layout_set(l, 6, &stride, sizeof stride) == 0);
}

/* A is kept transposed where trans says; B by rows. */
static void set_up(setup *s, int type, int compute, bool trans)
{
    const int32_t one = 1;
    const uint64_t room = 4096;
    *s = (setup){ 0 };
    start(STANDIN_LATE);
    CHECK(lt.create(&s->h) == 0);
    CHECK(lt.desc_create(&s->d, compute, type == F64 ? F64 : F32) == 0);
    if (trans) CHECK(lt.desc_set(s->d, 3, &one, sizeof one) == 0);
    CHECK(lt.layout_create(&s->a, type, trans ? K : M, trans ? M : K, trans ? K : M) == 0);
    CHECK(lt.layout_create(&s->b, type, K, J, J) == 0);
    CHECK(lt.layout_create(&s->to, type, M, J, M + 1) == 0);
    set_int(lt.layout_set, s->b, 1, 1);
    add_batches(s->a, M * K);
    add_batches(s->b, K * J);
    add_batches(s->to, (M + 1) * J);
    CHECK(lt.prefer_create(&s->p) == 0);
    CHECK(lt.prefer_set(s->p, 1, &room, sizeof room) == 0);
    for (int i = 0; i < 5; i++) CHECK(cu.mem_alloc(&s->at[i], 4096) == 0);
}

static int find(setup *s)
{
    int n = 0;
    const int r = lt.ask(s->h, s->d, s->a, s->b, s->to, s->to, s->p, 1, &s->found, &n);
    CHECK(n == (r == 0));
    return r;
}

static int multiply(const setup *s, const void *alpha, const void *beta, size_t work)
{
    return lt.multiply(s->h, s->d, alpha, (void *)(uintptr_t)s->at[0], s->a,
                       (void *)(uintptr_t)s->at[1], s->b, beta, (void *)(uintptr_t)s->at[2], s->to,
                       (void *)(uintptr_t)s->at[2], s->to, &s->found.algo,
                       (void *)(uintptr_t)s->at[4], work, NULL);
}

static void finish(setup *s)
{
    lt.destroy(s->h);
    lt.desc_destroy(s->d);
    lt.layout_destroy(s->a);
    lt.layout_destroy(s->b);
    lt.layout_destroy(s->to);
    lt.prefer_destroy(s->p);
}

static float a_at(int n, int i, int k)
{
    return (float)(n + 2 * i - k);
}

static float b_at(int n, int k, int j)
{
    return (float)(1 + n * k - 3 * j);
}

static float want(int n, int i, int j)
{
    float sum = 0;
    for (int k = 0; k < K; k++) sum += a_at(n, i, k) * b_at(n, k, j);
    return sum;
}

static void products_of_floats(bool trans, uint32_t epilogue)
{
    setup s;
    float a[N * M * K], b[N * K * J], to[N * J * (M + 1)], bias[M] = { 0.5f, -1, 2 };
    const float alpha = 2, beta = 0.5f, old = 8;
    set_up(&s, F32, COMPUTE_F32, trans);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++) {
            for (int i = 0; i < M; i++)
                a[n * M * K + (trans ? i * K + k : k * M + i)] = a_at(n, i, k);
            for (int j = 0; j < J; j++) b[n * K * J + k * J + j] = b_at(n, k, j);
        }
    const void *const bias_at = (void *)(uintptr_t)s.at[3];
    CHECK(lt.desc_set(s.d, 7, &epilogue, sizeof epilogue) == 0);
    CHECK(lt.desc_set(s.d, 8, &bias_at, sizeof bias_at) == 0);
    CHECK(find(&s) == 0 && s.found.work_bytes == 1024);
    CHECK(cu.copy_in(s.at[0], a, sizeof a, NULL) == 0);
    CHECK(cu.copy_in(s.at[1], b, sizeof b, NULL) == 0);
    CHECK(cu.copy_in(s.at[3], bias, sizeof bias, NULL) == 0);
    uint32_t bits;
    memcpy(&bits, &old, sizeof bits);
    CHECK(cu.set_32(s.at[2], bits, N * J * (M + 1), NULL) == 0);
    CHECK(multiply(&s, &alpha, &beta, 4096) == 0);
    CHECK(in.n_work() == 0);
    CHECK(cu.copy_out(to, s.at[2], sizeof to, NULL) == 0);
    for (int n = 0; n < N; n++)
        for (int j = 0; j < J; j++) {
            for (int i = 0; i < M; i++) {
                float v = alpha * want(n, i, j) + beta * old;
                if (epilogue & 4) v += bias[i];
                if (epilogue & 2) v = v > 0 ? v : 0;
                if (epilogue & 32)
                    v = 0.5f * v * (1 + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
                CHECK(fabsf(to[(n * J + j) * (M + 1) + i] - v) <= 1e-5f * (1 + fabsf(v)));
            }
            CHECK(to[(n * J + j) * (M + 1) + M] == old); /* ld is M + 1 */
        }
    CHECK(*(unsigned char *)in.peek(s.at[4], 1) == 0x7A);
    in.unpeek();
    CHECK(in.n_misuse() == 0);
    finish(&s);
}

/* Of 1 and of 3, as bits: every sum is exact. */
static void products_of_halves(int type, uint16_t one, uint16_t three, uint16_t twelve)
{
    setup s;
    uint16_t a[N * M * K], b[N * K * J], to[N * J * (M + 1)];
    const float alpha = 1, beta = 0;
    set_up(&s, type, COMPUTE_F32, false);
    for (int i = 0; i < N * M * K; i++) a[i] = one;
    for (int i = 0; i < N * K * J; i++) b[i] = three;
    CHECK(find(&s) == 0);
    CHECK(cu.copy_in(s.at[0], a, sizeof a, NULL) == 0);
    CHECK(cu.copy_in(s.at[1], b, sizeof b, NULL) == 0);
    CHECK(multiply(&s, &alpha, &beta, 4096) == 0);
    CHECK(cu.copy_out(to, s.at[2], sizeof to, NULL) == 0);
    CHECK(to[0] == twelve && to[2] == twelve && to[M] == 0xA5A5);
    finish(&s);
}

static void products_of_doubles(void)
{
    setup s;
    double a[N * M * K], b[N * K * J], to[1];
    const double alpha = 1, beta = 0;
    set_up(&s, F64, COMPUTE_F64, false);
    for (int i = 0; i < N * M * K; i++) a[i] = 1 + 0x1p-40;
    for (int i = 0; i < N * K * J; i++) b[i] = 1;
    CHECK(find(&s) == 0);
    CHECK(cu.copy_in(s.at[0], a, sizeof a, NULL) == 0);
    CHECK(cu.copy_in(s.at[1], b, sizeof b, NULL) == 0);
    CHECK(multiply(&s, &alpha, &beta, 4096) == 0);
    CHECK(cu.copy_out(to, s.at[2], sizeof to, NULL) == 0);
    CHECK(to[0] == 4 * (1 + 0x1p-40));
    finish(&s);
}

static void refusals(void)
{
    setup s;
    const float alpha = 1, beta = 0;
    const uint32_t odd = 2 | 32, relu = 2;
    const uint64_t rows = M + 1;
    set_up(&s, F32, COMPUTE_F32, false);
    CHECK(lt.desc_set(s.d, 7, &odd, sizeof odd) == 0 && find(&s) == 15);
    CHECK(lt.desc_set(s.d, 7, &relu, 8) == 7);
    CHECK(lt.desc_set(s.d, 7, &relu, sizeof relu) == 0 && find(&s) == 0);
    CHECK(multiply(&s, &alpha, &beta, 512) == 7); /* too little work space */
    s.at[0] += 4;
    CHECK(multiply(&s, &alpha, &beta, 4096) == 7); /* aligned to 256 unless it is said */
    const uint32_t four = 4;
    CHECK(lt.prefer_set(s.p, 5, &four, sizeof four) == 0 && find(&s) == 0);
    CHECK(multiply(&s, &alpha, &beta, 4096) == 0);
    s.at[0] = s.at[2] + 4096; /* beyond its end */
    CHECK(multiply(&s, &alpha, &beta, 4096) == 0);
    CHECK(cu.stream_wait(NULL) == 700 && misused("cublasLtMatmul: touched what is no memory"));
    lt.fail(1, 14);
    const long before = lt.count();
    CHECK(multiply(&s, &alpha, &beta, 4096) == 14 && lt.count() == before + 1);
    CHECK(lt.layout_set(s.to, 2, &rows, sizeof rows) == 0 && find(&s) == 7);
    CHECK(multiply(&s, &alpha, &beta, 4096) == 7);
    finish(&s);
    set_up(&s, F64, COMPUTE_F32, false);
    CHECK(find(&s) == 15);
    finish(&s);
}

int main(int argc, char **argv)
{
    if (argc < 4 || !try_open(argv[1], argv[2]) || !open_library(argv[3])) return 1;
    static const uint32_t epilogues[] = { 1, 2, 4, 6, 32, 36 };
    for (int i = 0; i < 6; i++) products_of_floats(i % 2, epilogues[i]);
    products_of_halves(F16, 0x3C00, 0x4200, 0x4A00);
    products_of_halves(14, 0x3F80, 0x4040, 0x4140);
    products_of_doubles();
    refusals();
    in.reset();
    if (n_faults) printf("%ld faults\n", n_faults);
    return n_faults != 0;
}
