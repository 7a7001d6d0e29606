/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of cuBLASLt that are needed, through dlopen. Their prototypes and constants are
 * declared here as its documentation gives them, because no CUDA header is available.
 *
 * The library uses column-major matrices. Our row-major C is its C transposed, so the call
 * computes C' = B' A'. Its first operand is our B, n by k, and its second our A, k by m.
 *
 * Batches with one stride are one call. Other batch axes are iterated, call by call. The
 * library cannot take operands without a unit stride in either direction, or with rows that
 * overlap.
 *
 * When both operands are halves of one dtype, they are passed as halves. Sums are in f32
 * all the same, so tensor cores may compute them. C is f32, or halves to which the product
 * is rounded once, at the end.
 */
#include "jit_cuda/kernels/cublaslt.h"

#include "base/counted.h"
#include "base/env.h"
#include "base/limits.h"
#include "cache/cache.h"
#include "jit_cuda/driver/library.h"
#include "jit_cuda/kernels/gemm_tile.h"
#include "ops/shape.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct handle handle;
typedef struct desc desc;
typedef struct layout layout;
typedef struct preference preference;

typedef struct algorithm {
    uint64_t data[8];
} algorithm;

typedef struct heuristic {
    algorithm algo;
    size_t work;
    int status;
    float waves;
    int reserved[4];
} heuristic;

enum {
    REAL_32 = 0, /* cudaDataType */
    REAL_64 = 1,
    REAL_16 = 2,
    BRAIN_16 = 14,
    COMPUTE_32 = 68, /* cublasComputeType_t: f32 without TF32 */
    COMPUTE_64 = 70,
    TRANSPOSED = 1,
    DESC_TRANS_A = 3,
    DESC_TRANS_B = 4,
    DESC_EPILOGUE = 7,
    DESC_BIAS = 8,
    EPILOGUE_BIAS = 4,
    LAYOUT_BATCH_COUNT = 5,
    LAYOUT_BATCH_STRIDE = 6,
    PREFER_WORK = 1,
    PREFER_REDUCTION = 3,
    REDUCE_IN_COMPUTE_TYPE = 2, /* partial sums along k stay f32 until they are added */
    PREFER_ALIGN_A = 5,         /* then alignments of B, C, D */
    MOST_CALLS = 64,
    ANSWER_BYTES = 1 << 20
};

/* X(field, symbol, parameters): each returns 0 or an error */
#define CALLS(X)                                                                                   \
    X(create, cublasLtCreate, (handle **))                                                         \
    X(destroy, cublasLtDestroy, (handle *))                                                        \
    X(desc_create, cublasLtMatmulDescCreate, (desc **, int, int))                                  \
    X(desc_destroy, cublasLtMatmulDescDestroy, (desc *))                                           \
    X(desc_set, cublasLtMatmulDescSetAttribute, (desc *, int, const void *, size_t))               \
    X(layout_create, cublasLtMatrixLayoutCreate, (layout **, int, uint64_t, uint64_t, int64_t))    \
    X(layout_destroy, cublasLtMatrixLayoutDestroy, (layout *))                                     \
    X(layout_set, cublasLtMatrixLayoutSetAttribute, (layout *, int, const void *, size_t))         \
    X(prefer_create, cublasLtMatmulPreferenceCreate, (preference **))                              \
    X(prefer_destroy, cublasLtMatmulPreferenceDestroy, (preference *))                             \
    X(prefer_set, cublasLtMatmulPreferenceSetAttribute, (preference *, int, const void *, size_t)) \
    X(ask, cublasLtMatmulAlgoGetHeuristic,                                                         \
      (handle *, desc *, layout *, layout *, layout *, layout *, preference *, int, heuristic *,   \
       int *))                                                                                     \
    X(multiply, cublasLtMatmul,                                                                    \
      (handle *, desc *, const void *, const void *, layout *, const void *, layout *,             \
       const void *, const void *, layout *, void *, layout *, const algorithm *, void *, size_t,  \
       void *))

struct df_cublaslt {
    const df_mem *mem;
    void *library;
    handle *handle;
    df_cache *answers;
    size_t (*version)(void);
#define FIELD(field, symbol, parameters) int(*field) parameters;
    CALLS(FIELD)
#undef FIELD
};

/* ---- opening ---- */

void *df_cublaslt_library(const char *path)
{
    static const char *const names[] = { "libcublasLt.so.13", "libcublasLt.so.12",
                                         "libcublasLt.so.11", "libcublasLt.so" };
    return df_library_open(path, names, DF_LEN(names));
}

static deft_status cublaslt_find_calls(df_diag *d, df_cublaslt *lt)
{
#define FIND(field, symbol, parameters)                                                            \
    if (!df_library_find(lt->library, #symbol, &lt->field))                                        \
        return df_fail(d, DEFT_E_BACKEND, "cublasLt: no " #symbol ": CUDA 11 or newer is needed");
    CALLS(FIND)
#undef FIND
    if (!df_library_find(lt->library, "cublasLtGetVersion", &lt->version))
        return df_fail(d, DEFT_E_BACKEND, "cublasLt: no cublasLtGetVersion");
    return DEFT_OK;
}

deft_status df_cublaslt_open(df_diag *d, const df_mem *mem, const char *path, df_cublaslt **out)
{
    deft_status st = DEFT_OK;
    df_cublaslt *lt = df_mem_zalloc(mem, sizeof *lt);
    if (!lt) return df_fail_mem(d, "cublasLt", sizeof *lt);
    lt->mem = mem;
    if (!path) path = df_env("DEFT_CUBLASLT");
    lt->library = df_cublaslt_library(path);
    if (!lt->library)
        TRY(df_fail(d, DEFT_E_BACKEND,
                    "cublasLt: no library %s%s: install CUDA's, or say where it is in "
                    "DEFT_CUBLASLT",
                    path ? "at " : "under its usual names", path ? path : ""));
    TRY(cublaslt_find_calls(d, lt));
    if (df_cache_create(mem, &(df_cache_options){ .max_bytes = ANSWER_BYTES }, &lt->answers) !=
        DEFT_OK)
        TRY(df_fail_mem(d, "cublasLt", ANSWER_BYTES));
    const int err = lt->create(&lt->handle);
    if (err) TRY(df_fail(d, DEFT_E_BACKEND, "cublasLt: cublasLtCreate gave %d", err));
    *out = lt;
    lt = NULL;
done:
    df_cublaslt_close(&lt);
    return st;
}

/* The library stays open: its threads and its own memory are not ours to end. */
void df_cublaslt_close(df_cublaslt **lt)
{
    if (*lt) {
        df_cache_destroy(&(*lt)->answers);
        if ((*lt)->handle) (*lt)->destroy((*lt)->handle);
        df_mem_free((*lt)->mem, *lt, sizeof **lt);
    }
    *lt = NULL;
}

size_t df_cublaslt_version(const df_cublaslt *lt)
{
    return lt->version();
}

/* ---- a product in the terms of the library ---- */

/* All that the library is asked for. Compared as bytes. */
typedef struct problem {
    int64_t m, n, k, count;
    int64_t ld[3], stride[3]; /* of our B, A and C */
    uint32_t align[3], bias_align;
    uint32_t in, out, trans[2]; /* cudaDataType: of A and B, of C */
    uint32_t has_bias, pad;
} problem;
_Static_assert(sizeof(problem) == 120, "no padding");

typedef struct call {
    problem p;
    uint64_t at[3], bias;
    /* batch axes that are iterated */
    uint32_t rank;
    int64_t extent[DF_CUDA_GEMM_AXES], step[DF_CUDA_GEMM_AXES][3]; /* steps in elements */
} call;

/* Expresses a matrix of inner by outer as one with contiguous columns: transposed when
 * elements are contiguous along outer. Returns false when they are contiguous along
 * neither. */
static bool express(int64_t inner, int64_t outer, int64_t by_inner, int64_t by_outer, int64_t *ld,
                    uint32_t *trans)
{
    *trans = 0;
    *ld = outer == 1 ? inner : by_outer;
    if ((by_inner == 1 || inner == 1) && *ld >= inner) return true;
    *trans = TRANSPOSED;
    *ld = inner == 1 ? outer : by_inner;
    return (by_outer == 1 || outer == 1) && *ld >= outer;
}

/* The largest power of two, at most 256, that divides bits. */
static uint32_t align_of(uint64_t bits)
{
    bits |= 256;
    return (uint32_t)(bits & (0 - bits));
}

/* Chooses the batch axes of each call: the axis with most entries. The others are iterated. */
static bool split_batch(const df_cuda_gemm_job *j, call *c)
{
    uint32_t most = 0;
    int64_t n_calls = 1;
    c->p.count = 1;
    for (uint32_t i = 1; i < j->batch_rank; i++)
        if (j->batch_extent[i] > j->batch_extent[most]) most = i;
    for (uint32_t i = 0; i < j->batch_rank; i++) {
        const int64_t by[3] = { j->b_batch[i], j->a_batch[i], j->c_batch[i] };
        for (int s = 0; s < 3; s++)
            if (by[s] < 0) return false;
        if (i == most) {
            c->p.count = j->batch_extent[i];
            memcpy(c->p.stride, by, sizeof by);
            continue;
        }
        c->extent[c->rank] = j->batch_extent[i];
        memcpy(c->step[c->rank++], by, sizeof by);
        if (j->batch_extent[i] > MOST_CALLS || (n_calls *= j->batch_extent[i]) > MOST_CALLS)
            return false;
    }
    return c->p.count <= INT32_MAX;
}

static uint32_t cuda_type_of(deft_dtype t)
{
    if (df_is_half(t)) return t == DEFT_F16 ? REAL_16 : BRAIN_16;
    return t == DEFT_F64 ? REAL_64 : REAL_32;
}

static uint64_t cuda_type_size(uint32_t type)
{
    return type == REAL_64 ? 8 : type == REAL_32 ? 4 : 2;
}

/* out: the dtype of C. */
static bool fill_call(const df_cuda_gemm_job *j, deft_dtype out, call *c)
{
    uint32_t c_trans;
    c->at[0] = j->b;
    c->at[1] = j->a;
    c->at[2] = j->c;
    c->p.m = j->m;
    c->p.n = j->n;
    c->p.k = j->k;
    c->p.in = cuda_type_of(j->a_dtype);
    c->p.out = cuda_type_of(out);
    if (j->a_dtype != j->b_dtype) return false;
    if (j->m > INT32_MAX || j->n > INT32_MAX || j->k > INT32_MAX || !split_batch(j, c))
        return false;
    if (!express(j->n, j->k, j->b_col, j->b_row, &c->p.ld[0], &c->p.trans[0]) ||
        !express(j->k, j->m, j->a_col, j->a_row, &c->p.ld[1], &c->p.trans[1]) ||
        !express(j->n, j->m, 1, j->c_row, &c->p.ld[2], &c_trans) || c_trans)
        return false;
    for (int s = 0; s < 3; s++) {
        const uint64_t size = cuda_type_size(s < 2 ? c->p.in : c->p.out);
        uint64_t bits = c->at[s] | (uint64_t)c->p.stride[s] * size;
        for (uint32_t i = 0; i < c->rank; i++) bits |= (uint64_t)c->step[i][s] * size;
        c->p.align[s] = align_of(bits);
    }
    return true;
}

/* Prefers batches as rows, and otherwise uses them as batches. With one row per batch, A
 * has a unit stride more often than with many. */
static bool make_call(const df_cuda_gemm_job *given, bool fused, call *c)
{
    uint64_t bias = 0;
    deft_dtype out = given->dtype;
    const df_cuda_gemm_job as_given =
        fused ? df_cublaslt_with_epilogue(given, &bias, &out) : *given;
    df_cuda_gemm_job folded = as_given;
    const call empty = { .p = { .has_bias = fused && out == given->dtype,
                                .bias_align = align_of(bias) },
                         .bias = bias };
    df_cuda_gemm_fold(&folded);
    *c = empty;
    if (fill_call(&folded, out, c)) return true;
    *c = empty;
    return fill_call(&as_given, out, c);
}

/* ---- cached answers ---- */

typedef struct answer {
    df_counted counted;
    df_cublaslt *lt;
    layout *layout[3];
    bool takes;
    algorithm algo;
    size_t work;
} answer;

static void answer_destroy(df_counted *counted)
{
    answer *const a = (answer *)counted;
    for (int s = 0; s < 3; s++)
        if (a->layout[s]) a->lt->layout_destroy(a->layout[s]);
    df_mem_free(a->lt->mem, a, sizeof *a);
}

static bool make_layouts(df_cublaslt *lt, const problem *p, answer *a)
{
    const int64_t rows[3] = { p->trans[0] ? p->k : p->n, p->trans[1] ? p->m : p->k, p->n };
    const int64_t cols[3] = { p->trans[0] ? p->n : p->k, p->trans[1] ? p->k : p->m, p->m };
    const int32_t count = (int32_t)p->count;
    for (int s = 0; s < 3; s++) {
        if (lt->layout_create(&a->layout[s], (int)(s < 2 ? p->in : p->out), (uint64_t)rows[s],
                              (uint64_t)cols[s], p->ld[s]))
            return false;
        if (count > 1 &&
            (lt->layout_set(a->layout[s], LAYOUT_BATCH_COUNT, &count, sizeof count) ||
             lt->layout_set(a->layout[s], LAYOUT_BATCH_STRIDE, &p->stride[s], sizeof p->stride[s])))
            return false;
    }
    return true;
}

static bool make_desc(df_cublaslt *lt, const problem *p, uint64_t bias, desc **out)
{
    const int32_t trans[2] = { (int32_t)p->trans[0], (int32_t)p->trans[1] };
    const uint32_t epilogue = EPILOGUE_BIAS;
    const void *const at = (const void *)(uintptr_t)bias;
    const bool wide = p->in == REAL_64;
    if (lt->desc_create(out, wide ? COMPUTE_64 : COMPUTE_32, wide ? REAL_64 : REAL_32))
        return false;
    return !lt->desc_set(*out, DESC_TRANS_A, &trans[0], sizeof trans[0]) &&
           !lt->desc_set(*out, DESC_TRANS_B, &trans[1], sizeof trans[1]) &&
           (!p->has_bias || (!lt->desc_set(*out, DESC_EPILOGUE, &epilogue, sizeof epilogue) &&
                             !lt->desc_set(*out, DESC_BIAS, &at, sizeof at)));
}

static bool make_preference(df_cublaslt *lt, const problem *p, preference **out)
{
    const uint64_t work = DF_CUBLASLT_WORK;
    const uint32_t align[4] = { p->align[0], p->align[1], p->align[2], p->align[2] };
    const uint32_t reduction = REDUCE_IN_COMPUTE_TYPE;
    if (lt->prefer_create(out) || lt->prefer_set(*out, PREFER_WORK, &work, sizeof work))
        return false;
    if (cuda_type_size(p->out) == 2 &&
        lt->prefer_set(*out, PREFER_REDUCTION, &reduction, sizeof reduction))
        return false;
    for (int i = 0; i < 4; i++)
        if (lt->prefer_set(*out, PREFER_ALIGN_A + i, &align[i], sizeof align[i])) return false;
    return true;
}

/* Asks the library. Whatever it refuses is a product that it does not take. */
static void answer_ask_library(df_cublaslt *lt, const call *c, answer *a)
{
    desc *op = NULL;
    preference *wish = NULL;
    heuristic best = { .status = 1 };
    int n = 0;
    if (make_layouts(lt, &c->p, a) && make_desc(lt, &c->p, c->bias, &op) &&
        make_preference(lt, &c->p, &wish) &&
        lt->ask(lt->handle, op, a->layout[0], a->layout[1], a->layout[2], a->layout[2], wish, 1,
                &best, &n) == 0)
        a->takes = n == 1 && best.status == 0 && best.work <= DF_CUBLASLT_WORK;
    a->algo = best.algo;
    a->work = best.work;
    if (wish) lt->prefer_destroy(wish);
    if (op) lt->desc_destroy(op);
}

/* The cached answer to a call, asked for when needed. NULL: memory ran out. */
static answer *answer_to(df_cublaslt *lt, const call *c)
{
    const df_cache_key key = df_cache_key_make(&c->p, sizeof c->p);
    answer *a = (answer *)df_cache_find(lt->answers, &key, NULL, NULL);
    if (a) return a;
    a = df_mem_zalloc(lt->mem, sizeof *a);
    if (!a) return NULL;
    df_counted_init(&a->counted, answer_destroy);
    a->lt = lt;
    answer_ask_library(lt, c, a);
    df_counted_ref(&a->counted);
    /* otherwise it is asked again the next time */
    (void)df_cache_add(lt->answers, &key, &a->counted, sizeof *a);
    return a;
}

static void answer_drop(answer *a)
{
    df_counted *counted = a ? &a->counted : NULL;
    df_counted_drop(&counted);
}

bool df_cublaslt_takes(df_cublaslt *lt, const df_cuda_gemm_job *j, bool fused, int64_t *bytes)
{
    call c;
    if (!make_call(j, fused, &c)) return false;
    answer *const a = answer_to(lt, &c);
    const bool takes = a && a->takes;
    *bytes = takes ? (int64_t)a->work : 0;
    answer_drop(a);
    return takes;
}

/* ---- running ---- */

static deft_status cublaslt_multiply(df_cublaslt *lt, df_diag *d, const call *c, const answer *a,
                                     desc *op, void *stream, uint64_t work)
{
    static const double one_64 = 1, zero_64 = 0;
    static const float one_32 = 1, zero_32 = 0;
    const bool wide = c->p.in == REAL_64;
    const void *const one = wide ? (const void *)&one_64 : (const void *)&one_32;
    const void *const zero = wide ? (const void *)&zero_64 : (const void *)&zero_32;
    int64_t at[DF_CUDA_GEMM_AXES] = { 0 };
    for (;;) {
        uint64_t p[3];
        for (int s = 0; s < 3; s++) {
            int64_t offset = 0;
            for (uint32_t i = 0; i < c->rank; i++) offset += at[i] * c->step[i][s];
            p[s] = c->at[s] + (uint64_t)offset * cuda_type_size(s < 2 ? c->p.in : c->p.out);
        }
        void *const out = (void *)(uintptr_t)p[2];
        const int err =
            lt->multiply(lt->handle, op, one, (const void *)(uintptr_t)p[0], a->layout[0],
                         (const void *)(uintptr_t)p[1], a->layout[1], zero, out, a->layout[2], out,
                         a->layout[2], &a->algo, (void *)(uintptr_t)work, a->work, stream);
        if (err)
            return df_fail(d, DEFT_E_BACKEND,
                           "cublasLt: cublasLtMatmul of %lld x %lld x %lld, %lld of them, gave %d",
                           (long long)c->p.m, (long long)c->p.n, (long long)c->p.k,
                           (long long)c->p.count, err);
        uint32_t i = c->rank;
        while (i > 0 && ++at[i - 1] == c->extent[i - 1]) at[--i] = 0;
        if (i == 0) return DEFT_OK;
    }
}

deft_status df_cublaslt_run(df_cublaslt *lt, df_diag *d, const df_cuda_gemm_job *j,
                            const df_cuda_gemm *p, void *stream, uint64_t work)
{
    deft_status st = DEFT_OK;
    desc *op = NULL;
    call c;
    const bool made = make_call(j, p->fused, &c);
    df_assert(made);
    (void)made;
    answer *const a = answer_to(lt, &c);
    if (!a) TRY(df_fail_mem(d, "cublasLt", sizeof *a));
    if (!a->takes || a->work > (size_t)p->work_bytes)
        TRY(df_fail(d, DEFT_E_BACKEND, "cublasLt: no longer knows how to do what it was asked"));
    if (!make_desc(lt, &c.p, c.bias, &op))
        TRY(df_fail(d, DEFT_E_BACKEND, "cublasLt: cublasLtMatmulDescCreate failed"));
    TRY(cublaslt_multiply(lt, d, &c, a, op, stream, work));
done:
    if (op) lt->desc_destroy(op);
    answer_drop(a);
    return st;
}
