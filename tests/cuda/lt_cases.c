/* SPDX-License-Identifier: Apache-2.0
 *
 * FAST products by cuBLASLt's stand-in (standin/): random shapes and strides against
 * runtime/matmul/matmul.c, whose order of sums the stand-in has; which products go there, biases,
 * what is kept of the library's answers, failures, memory that runs out.
 *
 *   lt_cases LIBCUBLASLT [--quick]
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit_cuda/kernels/cublaslt.h"
#include "product.h"
#include "runtime/interp/interp.h"
#include "support/fail_mem.h"
#include "support/budget.h"

static struct {
    long products, library, halves, epilogues, faults;
} n;
static long (*count_asked)(void), (*count_products)(void);
static void (*fail_at)(long n, int code);
static const char *path;

static void expect(bool holds, const char *where, const char *what)
{
    if (holds) return;
    printf("%s: %s: does not hold\n", where, what);
    n.faults++;
}

static bool find(void *library, const char *name, void *fn)
{
    void *const p = dlsym(library, name);
    memcpy(fn, &p, sizeof p);
    return p != NULL;
}

static bool find_control(void)
{
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return library && find(library, "standin_cublaslt_asked", &count_asked) &&
           find(library, "standin_cublaslt_count", &count_products) &&
           find(library, "standin_cublaslt_fail", &fail_at);
}

/* ---- random products ---- */

static bool run(df_cublaslt *lt, const df_cuda_gemm_job *j, const df_cuda_gemm *plan,
                const char *where)
{
    df_diag d = { 0 };
    void *const work = aligned_alloc(256, (size_t)((plan->work_bytes + 511) & ~255ll));
    if (!work) abort();
    const bool good = df_cublaslt_run(lt, &d, j, plan, NULL, (uintptr_t)work) == DEFT_OK;
    if (!good) printf("%s: %s\n", where, d.text);
    n.faults += !good;
    free(work);
    return good;
}

/* Whether the library must be able to express it: unit strides, no element seen twice. */
static bool is_plain(const df_cuda_gemm_job *j)
{
    if (j->a_dtype != j->b_dtype) return false;
    if ((j->a_col != 1 || j->a_row < j->k) && (j->a_row != 1 || j->a_col < j->m)) return false;
    if ((j->b_col != 1 || j->b_row < j->n) && (j->b_row != 1 || j->b_col < j->k)) return false;
    for (uint32_t i = 0; i < j->batch_rank; i++)
        if (j->a_batch[i] < 0 || j->b_batch[i] < 0) return false;
    return true;
}

static void check_random(df_cublaslt *lt, uint64_t seed)
{
    product p;
    char text[160];
    product_make(&p, seed, seed % 3 ? DEFT_F32 : DEFT_F64, 100, true);
    expect(df_cuda_gemm_choose(&p.j, 100, lt).way != DF_CUDA_GEMM_LT, p.where, "strict stays ours");
    p.j.fast = true;
    const df_cuda_gemm plan = df_cuda_gemm_choose(&p.j, 100, lt);
    const long asked = count_asked();
    n.products++;
    if (plan.way == DF_CUDA_GEMM_LT && run(lt, &p.j, &plan, p.where)) {
        n.library++;
        n.halves += p.j.a_dtype != p.j.dtype;
        expect(!product_differs(&p, text, sizeof text), p.where, text);
        expect(count_asked() == asked, p.where, "a run asks nothing anew");
    }
    if (plan.way != DF_CUDA_GEMM_NOTHING && p.j.k > 0 && is_plain(&p.j))
        expect(plan.way == DF_CUDA_GEMM_LT, p.where, "plain strides go to the library");
    product_end(&p);
}

/* ---- biases ---- */

/* C + bias over [batch, M, N], C loaded first or second; or C rounded to the halves A and B are. */
typedef struct biased {
    df_kernel k;
    df_access access[3];
    df_ins ins[4];
    int64_t stride[9], extent[3];
    char *ptr[3];
    df_kargs a;
    product p;
    char *bias, *out, *want;
} biased;

static void make_biased(biased *x, uint64_t seed, uint8_t t, deft_dtype in, bool second)
{
    const uint8_t e = DF_LEVEL_ELEM;
    *x = (biased){ 0 };
    x->k = (df_kernel){ .mode = DF_MODE_MAP,
                        .n_axes = 3,
                        .n_stages = 1,
                        .flags = DF_KERNEL_FAST,
                        .role = { DF_AXIS_OUTER, DF_AXIS_OUTER, DF_AXIS_INNER },
                        .n_access = 3,
                        .n_ins = 4,
                        .access = x->access,
                        .ins = x->ins };
    for (uint32_t i = 0; i < 3; i++) {
        const uint8_t outer = i == 1 ? DF_STEP_ZERO : DF_STEP_ANY;
        x->access[i] = (df_access){ .kind = i == 2 ? DF_ACCESS_STORE : DF_ACCESS_LOAD,
                                    .dtype = t,
                                    .same_as = i,
                                    .step = { outer, outer, DF_STEP_UNIT } };
    }
    x->ins[0] = (df_ins){ .op = DF_K_load, .dtype = t, .level = e, .imm = second };
    x->ins[1] = (df_ins){ .op = DF_K_load, .dtype = t, .level = e, .imm = !second };
    x->ins[2] = (df_ins){ .op = DF_K_add, .dtype = t, .level = e, .src = { 1, 0 } };
    x->ins[3] = (df_ins){ .op = DF_K_store, .dtype = t, .level = e, .src = { 2 }, .imm = 2 };
    product_of(&x->p, seed, (deft_dtype)t, in, 40, 24, 17, false);
    while (x->p.data != PRODUCT_TAME || !is_plain(&x->p.j)) {
        product_end(&x->p);
        product_of(&x->p, ++seed, (deft_dtype)t, in, 40, 24, 17, false);
    }
    df_cuda_gemm_job *const j = &x->p.j;
    x->bias = aligned_alloc(64, 64 * 8);
    x->out = calloc(2, 40 * 32 * 8);
    x->want = calloc(2, 40 * 32 * 8);
    if (!x->bias || !x->out || !x->want) abort();
    for (uint32_t i = 0; i < 24; i++) {
        const uint64_t bits = of_real(t, (double)i / 3 - 2);
        memcpy(x->bias + i * size_of(t), &bits, size_of(t));
    }
    j->fast = true;
    j->batch_rank = 1;
    j->batch_extent[0] = 1;
    j->epilogue = &x->k;
    j->c_access = 0;
    j->args = &x->a;
    x->a = (df_kargs){ .ptr = x->ptr, .stride = x->stride, .extent = x->extent };
    x->extent[0] = 1;
    x->extent[1] = 40;
    x->extent[2] = 24;
    x->stride[6] = 40 * 32;
    x->stride[7] = 32; /* rows of the result have a gap */
    x->stride[8] = 1;
}

static void interpret(biased *x, char *out)
{
    void *const work = aligned_alloc(64, (df_interp_work_size(&x->k) + 127) & ~(size_t)63);
    if (!work) abort();
    x->ptr[1] = x->bias;
    x->ptr[x->k.n_access - 1] = out;
    df_interp_main(&x->k, work, &x->a, 0, 40, 0, 24);
    free(work);
}

static void end_biased(biased *x)
{
    product_end(&x->p);
    free(x->bias);
    free(x->out);
    free(x->want);
}

/* fused: whether the library is to do it by itself. */
static void check_biased(df_cublaslt *lt, biased *x, bool fused, const char *what)
{
    df_cuda_gemm_job j = x->p.j;
    df_cuda_gemm_dense(&j, (uintptr_t)x->p.dense);
    df_cuda_gemm_aim(&j, x->ptr, x->stride);
    interpret(x, x->want);
    x->ptr[0] = NULL;
    x->stride[0] = x->stride[1] = x->stride[2] = 0;
    x->ptr[x->k.n_access - 1] = x->out;
    j = x->p.j;
    const df_cuda_gemm plan = df_cuda_gemm_choose(&j, 100, lt);
    expect(plan.way == DF_CUDA_GEMM_LT && plan.fused == fused, what, "the way that was expected");
    if (plan.way != DF_CUDA_GEMM_LT) return;
    void *const c = aligned_alloc(256, (size_t)((plan.c_bytes + 511) & ~255ll));
    if (!c) abort();
    if (!fused) {
        expect(plan.c_bytes == 40 * 24 * (int64_t)deft_dtype_size(j.dtype), what, "C's bytes");
        df_cuda_gemm_dense(&j, (uintptr_t)c);
    }
    const bool done = run(lt, &j, &plan, what);
    if (done && !fused) {
        df_cuda_gemm_aim(&j, x->ptr, x->stride);
        interpret(x, x->out);
    }
    expect(memcmp(x->out, x->want, 2 * 40 * 32 * 8) == 0, what, "the CPU's bits");
    free(c);
    n.epilogues++;
}

static void check_biases(df_cublaslt *lt)
{
    static const deft_dtype of[] = { DEFT_F32, DEFT_F16, DEFT_BF16 };
    static biased x;
    for (uint64_t seed = 0; seed < 8; seed++) {
        make_biased(&x, 3000 + 100 * seed, DEFT_F32, of[seed % 3], seed % 2);
        check_biased(lt, &x, true, "a bias");
        end_biased(&x);
    }
    make_biased(&x, 3000, DEFT_F64, DEFT_F64, false);
    check_biased(lt, &x, false, "a bias of f64, which the library has not");
    end_biased(&x);
    make_biased(&x, 3000, DEFT_F32, DEFT_F32, false);
    x.k.flags = 0;
    check_biased(lt, &x, false, "a strict bias");
    end_biased(&x);
    make_biased(&x, 3000, DEFT_F32, DEFT_F32, false);
    x.ins[2].op = DF_K_max;
    check_biased(lt, &x, false, "no bias");
    end_biased(&x);
    make_biased(&x, 3000, DEFT_F32, DEFT_F32, false);
    x.access[1].step[1] = DF_STEP_ANY;
    check_biased(lt, &x, false, "a summand with rows");
    end_biased(&x);
    make_biased(&x, 3000, DEFT_F32, DEFT_F32, false);
    x.ins[3].src[0] = 1;
    check_biased(lt, &x, false, "a sum that is not stored");
    end_biased(&x);
}

/* ---- rounding ---- */

/* The kernel that stores C as `to`. */
static void make_rounding(biased *x, uint64_t seed, deft_dtype in, uint8_t to)
{
    make_biased(x, seed, DEFT_F32, in, false);
    x->k.n_ins = 3;
    x->k.n_access = 2;
    x->access[1] = x->access[2];
    x->access[1].dtype = to;
    x->access[1].same_as = 1;
    x->ins[1] = (df_ins){ .op = DF_K_cast, .dtype = to, .level = DF_LEVEL_ELEM };
    x->ins[2] =
        (df_ins){ .op = DF_K_store, .dtype = to, .level = DF_LEVEL_ELEM, .src = { 1 }, .imm = 1 };
    memcpy(x->stride + 3, x->stride + 6, 3 * sizeof *x->stride);
}

static void check_rounding(df_cublaslt *lt)
{
    static biased x;
    for (uint64_t seed = 0; seed < 8; seed++) {
        const deft_dtype t = seed % 2 ? DEFT_F16 : DEFT_BF16;
        make_rounding(&x, 5000 + 100 * seed, t, (uint8_t)t);
        check_biased(lt, &x, true, "rounded once, at the end");
        end_biased(&x);
    }
    make_rounding(&x, 5000, DEFT_F16, DEFT_BF16);
    check_biased(lt, &x, false, "rounded to other halves");
    end_biased(&x);
    make_rounding(&x, 5000, DEFT_F32, DEFT_F16);
    check_biased(lt, &x, false, "f32 rounded to halves");
    end_biased(&x);
}

/* ---- what goes where ---- */

static void check_ways(df_cublaslt *lt)
{
    df_cuda_gemm_job j = { .dtype = DEFT_F32,
                           .a_dtype = DEFT_F32,
                           .b_dtype = DEFT_F32,
                           .fast = true,
                           .m = 64,
                           .n = 32,
                           .k = 16,
                           .a = 4096,
                           .b = 8192,
                           .c = 65536,
                           .a_row = 16,
                           .a_col = 1,
                           .b_row = 32,
                           .b_col = 1,
                           .c_row = 32 };
    const df_cuda_gemm_job plain = j;
    expect(df_cuda_gemm_choose(&j, 100, lt).way == DF_CUDA_GEMM_LT, "ways", "row-major");
    expect(df_cuda_gemm_choose(&j, 100, NULL).way == DF_CUDA_GEMM_OURS, "ways", "no library");
    j.a_row = 1;
    j.a_col = 64;
    expect(df_cuda_gemm_choose(&j, 100, lt).way == DF_CUDA_GEMM_LT, "ways", "A transposed");
    j.a_col = 63;
    expect(df_cuda_gemm_choose(&j, 100, lt).way == DF_CUDA_GEMM_OURS, "ways", "columns overlap");
    j.a_row = 2;
    expect(df_cuda_gemm_choose(&j, 100, lt).way == DF_CUDA_GEMM_OURS, "ways", "no unit stride");
    j = plain;
    j.b_col = 0;
    expect(df_cuda_gemm_choose(&j, 100, lt).way == DF_CUDA_GEMM_OURS, "ways", "B broadcast");
    j = plain;
    j.m = 1;
    j.a_row = 0;
    expect(df_cuda_gemm_choose(&j, 100, lt).way == DF_CUDA_GEMM_LT, "ways",
           "one row of any stride");
    j = plain;
    j.k = 0;
    expect(df_cuda_gemm_choose(&j, 100, lt).way == DF_CUDA_GEMM_OURS, "ways", "k is 0");
    j = plain;
    j.a_dtype = DEFT_F16;
    expect(df_cuda_gemm_choose(&j, 100, lt).way == DF_CUDA_GEMM_OURS, "ways", "f16 and f32");
    j.b_dtype = DEFT_BF16;
    expect(df_cuda_gemm_choose(&j, 100, lt).way == DF_CUDA_GEMM_OURS, "ways", "f16 and bf16");
    j.a_dtype = DEFT_BF16;
    expect(df_cuda_gemm_choose(&j, 100, lt).way == DF_CUDA_GEMM_LT, "ways", "bf16");
    j = plain;
    j.batch_rank = 1;
    j.batch_extent[0] = 3;
    j.a_batch[0] = -1024;
    j.c_batch[0] = 2048;
    expect(df_cuda_gemm_choose(&j, 100, lt).way == DF_CUDA_GEMM_OURS, "ways", "batches backwards");
    j.a_batch[0] = 1024;
    const long asked = count_asked();
    expect(df_cuda_gemm_choose(&j, 100, lt).way == DF_CUDA_GEMM_LT, "ways", "one B for batches");
    expect(count_asked() == asked + 1, "ways", "the library is asked");
    (void)df_cuda_gemm_choose(&j, 100, lt);
    j.a += 1 << 20;
    (void)df_cuda_gemm_choose(&j, 100, lt);
    expect(count_asked() == asked + 1, "ways", "its answer is kept");
    j.a += 4;
    (void)df_cuda_gemm_choose(&j, 100, lt);
    expect(count_asked() == asked + 2, "ways", "asked anew for another alignment");
    j = plain;
    j.batch_rank = 2;
    j.batch_extent[0] = 9;
    j.batch_extent[1] = 70;
    j.a_batch[0] = 1024;
    j.a_batch[1] = 9 * 1024;
    j.b_batch[0] = 70 * 512;
    j.b_batch[1] = 512;
    j.c_batch[0] = 70 * 2048;
    j.c_batch[1] = 2048;
    expect(df_cuda_gemm_choose(&j, 100, lt).way == DF_CUDA_GEMM_LT, "ways", "call by call");
    j.batch_extent[0] = 66;
    expect(df_cuda_gemm_choose(&j, 100, lt).way == DF_CUDA_GEMM_OURS, "ways", "too many calls");
}

/* ---- failures ---- */

static void check_failures(df_cublaslt *lt)
{
    product p;
    df_diag d = { 0 };
    df_cublaslt *none = NULL;
    uint64_t work[128 + 32];
    product_of(&p, 7, DEFT_F32, DEFT_F32, 8, 8, 8, true);
    p.j.a_row = p.j.b_row = 8;
    p.j.a_col = p.j.b_col = 1;
    p.j.fast = true;
    const df_cuda_gemm plan = df_cuda_gemm_choose(&p.j, 100, lt);
    fail_at(1, 14);
    const uint64_t at = ((uintptr_t)work + 255) & ~(uint64_t)255;
    expect(df_cublaslt_run(lt, &d, &p.j, &plan, NULL, at) == DEFT_E_BACKEND &&
               strstr(d.text, "8 x 8 x 8, 1 of them, gave 14"),
           d.text, "a product that fails");
    expect(df_cublaslt_open(&d, &df_mem_system, "/nowhere", &none) == DEFT_E_BACKEND &&
               strstr(d.text, "/nowhere"),
           d.text, "no library");
    expect(df_cublaslt_version(lt) == 120400, "version", "is told");
    product_end(&p);
}

/* Opening, choosing, running, the n-th allocation failing: a product that cannot be asked about is
 * ours. */
static void check_memory(void)
{
    product p;
    fail_mem *f = fail_mem_create();
    bool done = false;
    uint64_t work[128 + 32];
    const uint64_t work_at = ((uintptr_t)work + 255) & ~(uint64_t)255;
    product_of(&p, 7, DEFT_F32, DEFT_F32, 8, 8, 8, true);
    p.j.a_row = p.j.b_row = 8;
    p.j.a_col = p.j.b_col = 1;
    p.j.fast = true;
    for (size_t at = 1; !done && at < 100; at++) {
        df_diag d = { 0 };
        df_cublaslt *lt = NULL;
        const size_t failed = fail_mem_count(f).failed;
        fail_mem_at(f, at, false);
        deft_status st = df_cublaslt_open(&d, fail_mem_get(f), path, &lt);
        const df_cuda_gemm plan = df_cuda_gemm_choose(&p.j, 100, lt);
        if (st == DEFT_OK && plan.way == DF_CUDA_GEMM_LT)
            st = df_cublaslt_run(lt, &d, &p.j, &plan, NULL, work_at);
        fail_mem_at(f, 0, false);
        done = fail_mem_count(f).failed == failed;
        expect(st == DEFT_OK || (!done && st == DEFT_E_MEMORY), "memory", d.text);
        expect(!done || plan.way == DF_CUDA_GEMM_LT, "memory", "the library's at last");
        df_cublaslt_close(&lt);
        expect(fail_mem_count(f).live_blocks == 0 && fail_mem_count(f).faults == 0, "memory",
               "given back");
    }
    expect(done, "memory", "enough at last");
    fail_mem_destroy(&f);
    product_end(&p);
}

int main(int argc, char **argv)
{
    const bool quick = argc > 2 && strcmp(argv[2], "--quick") == 0;
    df_diag d = { 0 };
    df_cublaslt *lt = NULL;
    if (argc < 2) return 2;
    path = argv[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!find_control() || df_cublaslt_open(&d, &df_mem_system, path, &lt) != DEFT_OK) {
        printf("%s: %s\n", path, d.text);
        return 1;
    }
    const uint32_t all = quick ? 200 : 3000;
    for (uint32_t i = 0; i < all && (i < 30 || test_time_left(1)); i++) check_random(lt, 70000 + i);
    check_biases(lt);
    check_rounding(lt);
    check_ways(lt);
    check_failures(lt);
    check_memory();
    df_cublaslt_close(&lt);
    printf("%ld products, %ld by the library (%ld of halves), %ld with epilogues, %ld faults\n",
           n.products, n.library, n.halves, n.epilogues, n.faults);
    return n.faults == 0 ? 0 : 1;
}
