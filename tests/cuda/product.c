/* SPDX-License-Identifier: Apache-2.0
 *
 * Random matrix products. Draws go on from the seed one after the other.
 */
#include "product.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/matmul.h"

static void must(bool holds)
{
    if (holds) return;
    fprintf(stderr, "product: no memory\n");
    abort();
}

uint32_t product_pick(product *p, uint32_t n)
{
    p->seed = p->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(p->seed >> 33) % n;
}

/* ---- layouts ---- */

enum { MOST_AXES = DF_CUDA_GEMM_AXES };

/* Strides of the axes: dense in their order but for batches that it broadcasts over; or in some
 * order from the innermost on, with gaps, backwards, or 0 where it may broadcast; returns how many
 * elements that spans, *low of them before the first. */
static int64_t lay_out(product *p, const int64_t *extent, uint32_t rank, bool is_result,
                       int64_t *stride, int64_t *low)
{
    uint32_t order[MOST_AXES];
    int64_t span = 1;
    *low = 0;
    const bool is_dense = product_pick(p, 2);
    const bool is_one = is_dense && !is_result && product_pick(p, 3) == 0; /* for all batches */
    for (uint32_t i = 0; i < rank; i++) order[i] = i;
    for (uint32_t x = rank; x-- > 0 && is_dense;) {
        stride[x] = is_one && x + 2 < rank ? 0 : span;
        if (stride[x]) span *= extent[x] ? extent[x] : 1;
    }
    if (is_dense) return span;
    const uint32_t movable = is_result ? rank - 1 : rank; /* columns of C are neighbours */
    const uint32_t keeps = product_pick(p, 3);
    for (uint32_t i = movable; i-- > 1 && keeps == 0;) {
        const uint32_t with = product_pick(p, i + 1), was = order[i];
        order[i] = order[with];
        order[with] = was;
    }
    if (keeps == 1 && !is_result) { /* transposed */
        order[rank - 1] = rank - 2;
        order[rank - 2] = rank - 1;
    }
    for (uint32_t i = rank; i-- > 0;) {
        const uint32_t x = order[i];
        const int64_t n = extent[x] ? extent[x] : 1;
        const bool is_batch = x + 2 < rank;
        if (!is_result && product_pick(p, is_batch ? 4 : 40) == 0) {
            stride[x] = 0;
            continue;
        }
        if (i + 1 == rank && !is_result && product_pick(p, 8) == 0) span = 2;
        const bool is_back = !is_result && product_pick(p, 10) == 0;
        stride[x] = is_back ? -span : span;
        if (is_back) *low += span * (n - 1);
        span *= n;
        const uint32_t gap = product_pick(p, 6);
        if (gap < 3) span = (span + 3) / 4 * 4;
        if (gap == 3) span += 3;
    }
    return span;
}

/* What A and B of f32 lie in memory as. */
static void pick_dtypes(product *p)
{
    static const deft_dtype all[] = { DEFT_F32, DEFT_F16, DEFT_BF16 };
    p->j.a_dtype = p->j.b_dtype = p->j.dtype;
    if (p->j.dtype != DEFT_F32 || product_pick(p, 2)) return;
    p->j.a_dtype = all[product_pick(p, 3)];
    p->j.b_dtype = product_pick(p, 2) ? p->j.a_dtype : all[product_pick(p, 3)];
}

static uint64_t bits_of(product *p, uint8_t t)
{
    static const double odd[] = { NAN,   INFINITY, -INFINITY, -0.0,   0.0,   -0.0,
                                  1e-42, -1e-310,  1e30,      -1e300, 3e-39, 0.5 };
    const double tiny = t == DEFT_F64 ? 1e-162 : t == DEFT_F16 ? 1e-7 : 1e-23;
    const double v = ((double)product_pick(p, 4001) - 2000) / 128;
    if (p->data == PRODUCT_TINY) return of_real(t, v * tiny);
    if (p->data == PRODUCT_WILD && product_pick(p, 60) == 0)
        return of_real(t, odd[product_pick(p, 12)]);
    return of_real(t, v / 3);
}

static walled fill(product *p, deft_dtype t, int64_t span)
{
    const size_t size = deft_dtype_size(t), bytes = (size_t)span * size;
    /* Rounded up, it can be read 16 bytes at a time; exact, what is read too much is a crash. */
    const walled w = walled_take(product_pick(p, 3) ? (bytes + 15) & ~(size_t)15 : bytes);
    for (int64_t i = 0; i < span; i++) {
        const uint64_t bits = bits_of(p, (uint8_t)t);
        memcpy(w.at + i * (int64_t)size, &bits, size);
    }
    return w;
}

static walled operand(product *p, deft_dtype t, int64_t rows, int64_t cols, bool is_result,
                      int64_t *batch, int64_t *row, int64_t *col, uint64_t *at)
{
    int64_t extent[MOST_AXES], stride[MOST_AXES] = { 0 }, low;
    const uint32_t rank = p->j.batch_rank + 2;
    memcpy(extent, p->j.batch_extent, sizeof *extent * p->j.batch_rank);
    extent[rank - 2] = rows;
    extent[rank - 1] = cols;
    const walled w = fill(p, t, lay_out(p, extent, rank, is_result, stride, &low));
    memcpy(batch, stride, sizeof *stride * p->j.batch_rank);
    *row = stride[rank - 2];
    *col = stride[rank - 1];
    *at = (uintptr_t)w.at + (uint64_t)low * deft_dtype_size(t);
    return w;
}

/* ---- the CPU ---- */

static int64_t place_in_c(const product *p, int64_t batch, int64_t row)
{
    int64_t at = row * p->j.c_row;
    for (uint32_t i = p->j.batch_rank; i-- > 0;) {
        at += batch % p->j.batch_extent[i] * p->j.c_batch[i];
        batch /= p->j.batch_extent[i];
    }
    return at;
}

/* An operand as the CPU takes it; NULL: as it is. */
static float *lifted(const walled *w, deft_dtype t)
{
    const size_t n = w->bytes / 2;
    if (t == DEFT_F32 || t == DEFT_F64) return NULL;
    float *const out = malloc((n + 1) * sizeof *out);
    must(out != NULL);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)real_of((uint8_t)t, load_bits(w->at + 2 * i, (uint8_t)t));
    return out;
}

static const char *element_of(const walled *w, float *as_f32, uint64_t at)
{
    if (!as_f32) return (const char *)(uintptr_t)at;
    return (const char *)(as_f32 + (at - (uintptr_t)w->at) / 2);
}

static void multiply(product *p)
{
    const df_cuda_gemm_job *const j = &p->j;
    const size_t size = deft_dtype_size(j->dtype);
    df_diag d = { 0 };
    df_pool *pool = NULL;
    float *const a = lifted(&p->a, j->a_dtype), *const b = lifted(&p->b, j->b_dtype);
    df_matmul_job job = { .dtype = j->dtype,
                          .m = j->m,
                          .n = j->n,
                          .k = j->k,
                          .n_batch = p->n_batch,
                          .batch_rank = j->batch_rank,
                          .a = element_of(&p->a, a, j->a),
                          .b = element_of(&p->b, b, j->b),
                          .a_row = j->a_row,
                          .a_col = j->a_col,
                          .b_row = j->b_row,
                          .b_col = j->b_col,
                          .c_row = j->n };
    int64_t by = j->m * j->n;
    for (uint32_t i = j->batch_rank; i-- > 0;) {
        job.batch_extent[i] = j->batch_extent[i];
        job.a_batch[i] = j->a_batch[i];
        job.b_batch[i] = j->b_batch[i];
        job.c_batch[i] = by;
        by *= j->batch_extent[i];
    }
    must(df_pool_create(&d, &df_mem_system, 1, &pool) == DEFT_OK);
    p->dense = aligned_alloc(64, ((size_t)by * size + 127) & ~(size_t)63);
    job.c = p->dense;
    must(p->dense != NULL);
    void *const work = malloc(df_matmul_work_size(&job, NULL, 1) + 64);
    must(work != NULL);
    df_matmul_run(&job, NULL, NULL, pool, work);
    free(work);
    free(a);
    free(b);
    df_pool_destroy(&pool);
}

static void keep_wanted(product *p)
{
    const size_t size = deft_dtype_size(p->j.dtype);
    p->first = malloc(p->c.bytes + 1);
    p->want = malloc(p->c.bytes + 1);
    must(p->first && p->want);
    memcpy(p->first, p->c.at, p->c.bytes);
    memcpy(p->want, p->c.at, p->c.bytes);
    for (int64_t b = 0; b < p->n_batch; b++)
        for (int64_t i = 0; i < p->j.m; i++)
            memcpy(p->want + (size_t)place_in_c(p, b, i) * size,
                   p->dense + (size_t)((b * p->j.m + i) * p->j.n) * size, (size_t)p->j.n * size);
}

/* ---- products ---- */

static void finish(product *p, bool has_c)
{
    df_cuda_gemm_job *const j = &p->j;
    p->n_batch = 1;
    for (uint32_t i = 0; i < j->batch_rank; i++) p->n_batch *= j->batch_extent[i];
    p->data = (product_data)product_pick(p, PRODUCT_N_DATA);
    p->a = operand(p, j->a_dtype, j->m, j->k, false, j->a_batch, &j->a_row, &j->a_col, &j->a);
    p->b = operand(p, j->b_dtype, j->k, j->n, false, j->b_batch, &j->b_row, &j->b_col, &j->b);
    int64_t one;
    if (has_c) p->c = operand(p, j->dtype, j->m, j->n, true, j->c_batch, &j->c_row, &one, &j->c);
    multiply(p);
    if (has_c) keep_wanted(p);
    snprintf(p->where, sizeof p->where, "%s of %s, %s %lld x %lld x %lld, %lld of them, data %d",
             deft_dtype_name(j->dtype), deft_dtype_name(j->a_dtype), deft_dtype_name(j->b_dtype),
             (long long)j->m, (long long)j->n, (long long)j->k, (long long)p->n_batch,
             (int)p->data);
}

static int64_t pick_extent(product *p, int64_t most)
{
    static const int64_t often[] = { 1, 1, 2, 7, 8, 9, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129 };
    if (product_pick(p, 40) == 0) return 0;
    const int64_t n =
        product_pick(p, 2) ? 1 + product_pick(p, (uint32_t)most) : often[product_pick(p, 16)];
    return n < most ? n : most;
}

void product_make(product *p, uint64_t seed, deft_dtype t, int64_t most, bool has_c)
{
    *p = (product){ .seed = seed * 977 + 12345, .j = { .dtype = t } };
    double work;
    do {
        work = 1;
        p->j.batch_rank = product_pick(p, 4);
        for (uint32_t i = 0; i < p->j.batch_rank; i++) {
            p->j.batch_extent[i] = product_pick(p, 30) ? 1 + product_pick(p, 4) : 0;
            work *= (double)p->j.batch_extent[i] + 0.1;
        }
        p->j.m = pick_extent(p, most);
        p->j.n = pick_extent(p, most);
        p->j.k = pick_extent(p, most);
    } while (work * (double)p->j.m * (double)p->j.n * (double)(p->j.k + 8) > 3e6);
    pick_dtypes(p);
    finish(p, has_c);
}

void product_of(product *p, uint64_t seed, deft_dtype t, deft_dtype in, int64_t m, int64_t n,
                int64_t k, bool has_c)
{
    *p = (product){ .seed = seed * 977 + 12345,
                    .j = { .dtype = t, .a_dtype = in, .b_dtype = in, .m = m, .n = n, .k = k } };
    finish(p, has_c);
}

bool product_differs(product *p, char *text, size_t size)
{
    const uint8_t t = (uint8_t)p->j.dtype;
    bool differs = false;
    for (size_t at = 0; at + size_of(t) <= p->c.bytes && p->first && !differs; at += size_of(t)) {
        const uint64_t got = load_bits(p->c.at + at, t), want = load_bits(p->want + at, t);
        if (same_bits(t, got, want)) continue;
        snprintf(text, size, "element %zu of C is %llx, not %llx", at / size_of(t),
                 (unsigned long long)got, (unsigned long long)want);
        differs = true;
    }
    if (p->first) memcpy(p->c.at, p->first, p->c.bytes);
    return differs;
}

void product_end(product *p)
{
    const walled *const all[] = { &p->a, &p->b, &p->c };
    for (int i = 0; i < 3; i++)
        if (all[i]->map) munmap(all[i]->map, all[i]->mapped);
    free(p->first);
    free(p->want);
    free(p->dense);
}
