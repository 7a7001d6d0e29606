/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLASLt's stand-in: descriptions, what of them is refused, products.
 */
#include "standin_cublaslt.h"

#include <dlfcn.h>
#include <link.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_MEMORY = 3, BAD_VALUE = 7, NOT_DONE = 13, NOT_KNOWN = 15, WORK = 1024, MARK = 0x7A };

/* cudaDataType */
enum { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };

/* cublasComputeType_t */
enum {
    COMPUTE_F32 = 68,
    COMPUTE_F32_PEDANTIC = 69,
    COMPUTE_F64 = 70,
    COMPUTE_F64_PEDANTIC = 71,
    COMPUTE_TF32 = 77
};

/* cublasLtEpilogue_t, by bits */
enum { REDUCE_IN_COMPUTE_TYPE = 2, REDUCE_ANY = 7, SPLIT = 1 << 30 };

enum { PLAIN = 1, RELU = 2, BIAS = 4, GELU = 32 };

struct lt_handle {
    int nothing;
};

struct lt_desc {
    int32_t compute, scale;
    int32_t pointer_mode, trans_a, trans_b;
    uint32_t epilogue;
    const void *bias;
    int64_t bias_stride;
    int32_t bias_type; /* -1: the result's */
};

struct lt_layout {
    uint32_t type;
    int32_t by_rows;
    uint64_t rows, cols;
    int64_t ld;
    int32_t n_batches;
    int64_t stride;
};

struct lt_preference {
    uint64_t work_bytes;
    uint32_t reductions; /* cublasLtReductionScheme_t, by bits */
    uint32_t align[4];
};

/* A product, as it is queued. The addresses stand first: libcuda-standin looks for them. */
typedef struct product {
    const void *a, *b, *c, *bias;
    void *to, *work;
    uint64_t has_work, splits;
    double alpha, beta;
    struct lt_desc d;
    struct lt_layout a_is, b_is, c_is, to_is;
} product;

static _Atomic long n_products, n_asked, fail_at;
static _Atomic int fail_code;

/* ---- numbers ---- */

static size_t size_of(uint32_t type)
{
    return type == F64 ? 8 : type == F32 ? 4 : 2;
}

static bool is_type(uint32_t type)
{
    return type == F32 || type == F64 || type == F16 || type == BF16;
}

static float float_of_bits(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static float float_of_half(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, frac = h & 1023;
    if (exp == 31) return float_of_bits(sign | 0x7F800000 | frac << 13);
    if (exp) return float_of_bits(sign | (exp + 112) << 23 | frac << 13);
    const float tiny = ldexpf((float)frac, -24);
    return sign ? -tiny : tiny;
}

/* To nearest, ties to even. */
static uint16_t half_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const float size = fabsf(v);
    if (v != v) return sign | 0x7E00;
    if (size >= 65520) return sign | 0x7C00;
    if (size < 0x1p-14f) return (uint16_t)(sign | (uint16_t)nearbyintf(ldexpf(size, 24)));
    bits = (bits & 0x7FFFFFFF) - (112u << 23);
    bits += 0xFFF + (bits >> 13 & 1);
    return (uint16_t)(sign | bits >> 13);
}

static uint16_t bfloat_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (v != v) return (uint16_t)(bits >> 16 | 64);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static double get(const void *at, uint32_t type, int64_t i)
{
    switch (type) {
    case F64: return ((const double *)at)[i];
    case F32: return (double)((const float *)at)[i];
    case F16: return (double)float_of_half(((const uint16_t *)at)[i]);
    default: return (double)float_of_bits((uint32_t)((const uint16_t *)at)[i] << 16);
    }
}

static void set(void *at, uint32_t type, int64_t i, double v)
{
    switch (type) {
    case F64: ((double *)at)[i] = v; break;
    case F32: ((float *)at)[i] = (float)v; break;
    case F16: ((uint16_t *)at)[i] = half_of((float)v); break;
    default: ((uint16_t *)at)[i] = bfloat_of((float)v); break;
    }
}

/* ---- products ---- */

static bool in_f64(const struct lt_desc *d)
{
    return d->compute == COMPUTE_F64 || d->compute == COMPUTE_F64_PEDANTIC;
}

/* Element (r, c) of the matrix, or of its transpose. */
static int64_t place(const struct lt_layout *l, bool transposed, int64_t r, int64_t c,
                     int64_t batch)
{
    const int64_t row = transposed ? c : r, col = transposed ? r : c;
    return batch * l->stride + (l->by_rows ? row * l->ld + col : col * l->ld + row);
}

static float rounded(float v, uint32_t type)
{
    uint16_t bits;
    set(&bits, type, 0, (double)v);
    return (float)get(&bits, type, 0);
}

static double sum_of(const product *p, int64_t i, int64_t j, int64_t k, int64_t batch)
{
    double wide = 0;
    float narrow = 0;
    for (int64_t x = 0; x < k; x++) {
        const double a = get(p->a, p->a_is.type, place(&p->a_is, p->d.trans_a, i, x, batch));
        const double b = get(p->b, p->b_is.type, place(&p->b_is, p->d.trans_b, x, j, batch));
        if (in_f64(&p->d))
            wide = fma(a, b, wide);
        else
            narrow = fmaf((float)a, (float)b, narrow);
        if (p->splits && x == k / 2) narrow = rounded(narrow, p->to_is.type);
    }
    return in_f64(&p->d) ? wide : (double)narrow;
}

static double finish(const product *p, double v, int64_t i, int64_t j, int64_t batch)
{
    const uint32_t e = p->d.epilogue;
    v *= p->alpha;
    if (p->beta != 0) v += p->beta * get(p->c, p->c_is.type, place(&p->c_is, false, i, j, batch));
    if (e & BIAS) {
        const uint32_t type = p->d.bias_type < 0 ? p->to_is.type : (uint32_t)p->d.bias_type;
        v += get(p->bias, type, batch * p->d.bias_stride + i);
    }
    if (!in_f64(&p->d)) v = (double)(float)v;
    if (e & RELU) v = v > 0 ? v : 0;
    if (e & GELU) v = 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    return v;
}

static int run(void *args)
{
    const product *const p = args;
    const int64_t k = (int64_t)(p->d.trans_a ? p->a_is.rows : p->a_is.cols);
    if (p->has_work) memset(p->work, MARK, WORK);
    for (int64_t n = 0; n < p->to_is.n_batches; n++)
        for (int64_t i = 0; i < (int64_t)p->to_is.rows; i++)
            for (int64_t j = 0; j < (int64_t)p->to_is.cols; j++)
                set(p->to, p->to_is.type, place(&p->to_is, false, i, j, n),
                    finish(p, sum_of(p, i, j, k, n), i, j, n));
    return 0;
}

/* ---- what is refused ---- */

static bool is_layout(const struct lt_layout *l)
{
    return l && is_type(l->type) && l->rows > 0 && l->cols > 0 && l->n_batches > 0 &&
           l->ld >= (int64_t)(l->by_rows ? l->cols : l->rows);
}

static bool is_known(const struct lt_desc *d, const struct lt_layout *a, const struct lt_layout *b,
                     const struct lt_layout *c, const struct lt_layout *to)
{
    const uint32_t e = d->epilogue;
    const bool f64 = in_f64(d);
    const bool is_f32 = d->compute == COMPUTE_F32 || d->compute == COMPUTE_F32_PEDANTIC ||
                        d->compute == COMPUTE_TF32;
    if ((!f64 && !is_f32) || d->scale != (f64 ? F64 : F32) || d->pointer_mode != 0) return false;
    if (a->type != b->type || c->type != to->type || (a->type == F64) != f64) return false;
    if (to->type != a->type && to->type != F32) return false;
    if (e != PLAIN && (e & ~(uint32_t)(RELU | BIAS | GELU) || (e & RELU && e & GELU))) return false;
    return !f64 || e == PLAIN; /* epilogues are not for f64 */
}

static int look(const struct lt_desc *d, const struct lt_layout *a, const struct lt_layout *b,
                const struct lt_layout *c, const struct lt_layout *to)
{
    if (!d || !is_layout(a) || !is_layout(b) || !is_layout(c) || !is_layout(to)) return BAD_VALUE;
    const uint64_t m = d->trans_a ? a->cols : a->rows, k = d->trans_a ? a->rows : a->cols;
    const uint64_t n = d->trans_b ? b->rows : b->cols, kb = d->trans_b ? b->cols : b->rows;
    if (k != kb || to->rows != m || to->cols != n || c->rows != m || c->cols != n) return BAD_VALUE;
    if (a->n_batches != to->n_batches || b->n_batches != to->n_batches ||
        c->n_batches != to->n_batches)
        return BAD_VALUE;
    return is_known(d, a, b, c, to) ? 0 : NOT_KNOWN;
}

static bool is_aligned(const void *p, uint32_t type)
{
    return p && (uintptr_t)p % size_of(type) == 0;
}

/* ---- libcuda-standin ---- */

typedef int enqueue_fn(void *stream, int (*fn)(void *), const void *args, size_t n,
                       const char *what);

static int find_standin(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    if (!strstr(info->dlpi_name, "libcuda-standin")) return 0;
    void *const library = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
    if (!library) return 0;
    void *const p = dlsym(library, "standin_enqueue");
    memcpy(user, &p, sizeof p);
    dlclose(library);
    return p != NULL;
}

static int put(const product *p, void *stream)
{
    enqueue_fn *enqueue = NULL;
    dl_iterate_phdr(find_standin, &enqueue);
    product own = *p;
    if (!enqueue) return run(&own);
    return enqueue(stream, run, p, sizeof *p, "cublasLtMatmul") ? NOT_DONE : 0;
}

/* ---- the library ---- */

size_t cublasLtGetVersion(void)
{
    return 120400;
}

const char *cublasLtGetStatusName(int status)
{
    switch (status) {
    case 0: return "CUBLAS_STATUS_SUCCESS";
    case NO_MEMORY: return "CUBLAS_STATUS_ALLOC_FAILED";
    case BAD_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case NOT_DONE: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case NOT_KNOWN: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

const char *cublasLtGetStatusString(int status)
{
    return cublasLtGetStatusName(status);
}

static int create(void **out, size_t n)
{
    *out = calloc(1, n);
    return *out ? 0 : NO_MEMORY;
}

int cublasLtCreate(struct lt_handle **out)
{
    return create((void **)out, sizeof **out);
}

int cublasLtDestroy(struct lt_handle *h)
{
    free(h);
    return 0;
}

int cublasLtMatmulDescCreate(struct lt_desc **out, int compute, int scale)
{
    const int r = create((void **)out, sizeof **out);
    if (!r)
        **out = (struct lt_desc){
            .compute = compute, .scale = scale, .epilogue = PLAIN, .bias_type = -1
        };
    return r;
}

int cublasLtMatmulDescDestroy(struct lt_desc *d)
{
    free(d);
    return 0;
}

/* Attributes have one size each. */
static int take(void *to, size_t size, const void *from, size_t n)
{
    if (n != size || !from) return BAD_VALUE;
    memcpy(to, from, n);
    return 0;
}

static int take_flag(int32_t *to, const void *from, size_t n)
{
    int32_t v;
    const int r = take(&v, sizeof v, from, n);
    if (!r) *to = v != 0; /* transposed; by rows: numbers are real, orders two */
    return r;
}

int cublasLtMatmulDescSetAttribute(struct lt_desc *d, int what, const void *from, size_t n)
{
    switch (what) {
    case 0: return take(&d->compute, sizeof d->compute, from, n);
    case 1: return take(&d->scale, sizeof d->scale, from, n);
    case 2: return take(&d->pointer_mode, sizeof d->pointer_mode, from, n);
    case 3: return take_flag(&d->trans_a, from, n);
    case 4: return take_flag(&d->trans_b, from, n);
    case 7: return take(&d->epilogue, sizeof d->epilogue, from, n);
    case 8: return take(&d->bias, sizeof d->bias, from, n);
    case 10: return take(&d->bias_stride, sizeof d->bias_stride, from, n);
    case 26: return take(&d->bias_type, sizeof d->bias_type, from, n);
    default: return BAD_VALUE;
    }
}

int cublasLtMatrixLayoutCreate(struct lt_layout **out, int type, uint64_t rows, uint64_t cols,
                               int64_t ld)
{
    const int r = create((void **)out, sizeof **out);
    if (!r)
        **out = (struct lt_layout){
            .type = (uint32_t)type, .rows = rows, .cols = cols, .ld = ld, .n_batches = 1
        };
    return r;
}

int cublasLtMatrixLayoutDestroy(struct lt_layout *l)
{
    free(l);
    return 0;
}

int cublasLtMatrixLayoutSetAttribute(struct lt_layout *l, int what, const void *from, size_t n)
{
    switch (what) {
    case 0: return take(&l->type, sizeof l->type, from, n);
    case 1: return take_flag(&l->by_rows, from, n);
    case 2: return take(&l->rows, sizeof l->rows, from, n);
    case 3: return take(&l->cols, sizeof l->cols, from, n);
    case 4: return take(&l->ld, sizeof l->ld, from, n);
    case 5: return take(&l->n_batches, sizeof l->n_batches, from, n);
    case 6: return take(&l->stride, sizeof l->stride, from, n);
    default: return BAD_VALUE;
    }
}

int cublasLtMatmulPreferenceCreate(struct lt_preference **out)
{
    const int r = create((void **)out, sizeof **out);
    for (int i = 0; !r && i < 4; i++) (*out)->align[i] = 256;
    if (!r) (*out)->reductions = REDUCE_ANY;
    return r;
}

int cublasLtMatmulPreferenceDestroy(struct lt_preference *p)
{
    free(p);
    return 0;
}

int cublasLtMatmulPreferenceSetAttribute(struct lt_preference *p, int what, const void *from,
                                         size_t n)
{
    uint32_t word;
    switch (what) {
    case 0: return take(&word, sizeof word, from, n);
    case 3: return take(&p->reductions, sizeof p->reductions, from, n);
    case 1: return take(&p->work_bytes, sizeof p->work_bytes, from, n);
    case 5:
    case 6:
    case 7:
    case 8: return take(&p->align[what - 5], sizeof p->align[0], from, n);
    default: return BAD_VALUE;
    }
}

/* The algorithm says what it was chosen for: another product refuses it. */
static lt_algo algo_for(const struct lt_desc *d, const struct lt_layout *a,
                        const struct lt_layout *b, const struct lt_layout *to, uint64_t splits,
                        uint64_t work, uint64_t align)
{
    return (
        lt_algo){ { 0x57A4D14 | splits, a->rows << 32 | a->cols, b->rows << 32 | b->cols,
                    to->rows << 32 | to->cols,
                    (uint64_t)d->epilogue << 32 | (uint64_t)d->trans_a << 1 | (uint64_t)d->trans_b,
                    (uint64_t)to->n_batches << 32 | a->type << 8 | to->type, work, align } };
}

int cublasLtMatmulAlgoGetHeuristic(struct lt_handle *h, struct lt_desc *d, struct lt_layout *a,
                                   struct lt_layout *b, struct lt_layout *c, struct lt_layout *to,
                                   struct lt_preference *p, int most, lt_heuristic *out, int *n)
{
    atomic_fetch_add(&n_asked, 1);
    *n = 0;
    if (!h || !p || most < 1) return BAD_VALUE;
    const int r = look(d, a, b, c, to);
    if (r) return r;
    const uint64_t work = p->work_bytes >= WORK ? WORK : 0;
    uint64_t align = 0;
    for (int i = 0; i < 4; i++) align |= (uint64_t)(p->align[i] & 0xFFFF) << 16 * i;
    const bool in_halves = size_of(to->type) == 2 && p->reductions & ~REDUCE_IN_COMPUTE_TYPE;
    out[0] = (lt_heuristic){ .algo = algo_for(d, a, b, to, in_halves ? SPLIT : 0, work, align),
                             .work_bytes = work,
                             .waves = 1 };
    *n = 1;
    return 0;
}

static bool fits(const product *p, const lt_algo *algo, size_t work_bytes)
{
    const lt_algo own =
        algo_for(&p->d, &p->a_is, &p->b_is, &p->to_is, p->splits, algo->data[6], algo->data[7]);
    const void *const at[] = { p->a, p->b, p->beta != 0 ? p->c : p->to, p->to };
    if (memcmp(&own, algo, sizeof own) != 0) return false;
    for (int i = 0; i < 4; i++) {
        const uint64_t align = algo->data[7] >> 16 * i & 0xFFFF;
        if (align && (uintptr_t)at[i] % align) return false;
    }
    return !algo->data[6] || (work_bytes >= algo->data[6] && p->work);
}

int cublasLtMatmul(struct lt_handle *h, struct lt_desc *d, const void *alpha, const void *a,
                   struct lt_layout *a_is, const void *b, struct lt_layout *b_is, const void *beta,
                   const void *c, struct lt_layout *c_is, void *to, struct lt_layout *to_is,
                   const lt_algo *algo, void *work, size_t work_bytes, void *stream)
{
    const long count = atomic_fetch_add(&n_products, 1) + 1;
    if (count == atomic_load(&fail_at)) return atomic_load(&fail_code);
    if (!h || !alpha || !beta) return BAD_VALUE;
    const int r = look(d, a_is, b_is, c_is, to_is);
    if (r) return r;
    const product p = { .a = a,
                        .b = b,
                        .c = c,
                        .bias = d->bias,
                        .to = to,
                        .work = work,
                        .has_work = algo && algo->data[6],
                        .splits = algo ? algo->data[0] & SPLIT : 0,
                        .alpha = get(alpha, (uint32_t)d->scale, 0),
                        .beta = get(beta, (uint32_t)d->scale, 0),
                        .d = *d,
                        .a_is = *a_is,
                        .b_is = *b_is,
                        .c_is = *c_is,
                        .to_is = *to_is };
    if (!is_aligned(a, a_is->type) || !is_aligned(b, b_is->type) || !is_aligned(to, to_is->type) ||
        (p.beta != 0 && !is_aligned(c, c_is->type)) || (d->epilogue & BIAS && !d->bias))
        return BAD_VALUE;
    if (algo && !fits(&p, algo, work_bytes)) return BAD_VALUE;
    return put(&p, stream);
}

/* ---- control ---- */

long standin_cublaslt_count(void)
{
    return atomic_load(&n_products);
}

long standin_cublaslt_asked(void)
{
    return atomic_load(&n_asked);
}

void standin_cublaslt_fail(long n, int code)
{
    atomic_store(&fail_code, code);
    atomic_store(&fail_at, n ? atomic_load(&n_products) + n : 0);
}
