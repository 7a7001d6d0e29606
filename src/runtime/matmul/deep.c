/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/matmul/deep.h"

#include "base/compiler.h"

enum { PARTS = 4, MOST_ROWS = 8 /* of A: more rows take longer than reading B */, ALIGN = 64 };

/* Builds with checks divide small products, too, so that tests meet parts. */
#ifdef DF_DEBUG
enum { LEAST_K = 16, LEAST_COLUMNS = 8, LEAST_BYTES = 1 << 10 };
#else
enum {
    LEAST_K = 256, /* a part should have many rows of B */
    LEAST_COLUMNS = 64,
    LEAST_BYTES = 1 << 20 /* of B: a smaller one stays in L2 */
};
#endif

DF_COLD bool df_matmul_divide_deep(const df_matmul_job *j, char *work, df_matmul_deep *out)
{
    const int64_t size = (int64_t)deft_dtype_size(j->dtype);
    if (!j->fast || j->packed || j->images || j->is_bf16 || j->is_tiled || j->in_thirds ||
        j->n_batch != 1 || j->m > MOST_ROWS || j->k < LEAST_K || j->n < LEAST_COLUMNS ||
        j->b_col != 1 || j->k * j->n * size < LEAST_BYTES)
        return false;
    const int64_t k = j->k / PARTS, done = k * PARTS, area = j->m * j->n;
    *out = (df_matmul_deep){ .parts = *j, .rest = *j };
    df_matmul_job *const p = &out->parts, *const r = &out->rest;
    p->k = k;
    p->n_batch = p->batch_extent[0] = PARTS;
    p->batch_rank = 1;
    p->a_batch[0] = k * j->a_col;
    p->b_batch[0] = k * j->b_row;
    p->c_batch[0] = area;
    r->k = j->k - done;
    r->a = j->a + done * j->a_col * size;
    r->b = j->b + done * j->b_row * size;
    p->c = work;
    r->c = work ? work + PARTS * area * size : NULL;
    p->c_row = r->c_row = j->n;
    p->epilogue = r->epilogue = NULL;
    out->bytes = ((size_t)((PARTS + (r->k > 0)) * area * size) + ALIGN - 1) / ALIGN * ALIGN;
    return true;
}

/* to[i] = the sum of n_terms elements, `step` elements apart from term[i] on. */
#define DEFINE_ADD(T)                                                                              \
    DF_NOINLINE static void add_terms_##T(T *to, const T *term, int64_t step, int64_t n_terms,     \
                                          int64_t n)                                               \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T sum = term[i];                                                                       \
            for (int64_t t = 1; t < n_terms; t++) sum += term[t * step + i];                       \
            to[i] = sum;                                                                           \
        }                                                                                          \
    }
DEFINE_ADD(float)
DEFINE_ADD(double)

DF_COLD void df_matmul_join_deep(const df_matmul_job *j, const df_matmul_deep *d)
{
    const int64_t size = (int64_t)deft_dtype_size(j->dtype), area = j->m * j->n;
    const int64_t n_terms = PARTS + (d->rest.k > 0);
    char *const to = j->c ? j->c : d->parts.c;
    const int64_t row = j->c ? j->c_row : j->n;
    for (int64_t i = 0; i < j->m; i++) {
        void *const at = to + i * row * size;
        const void *const from = d->parts.c + i * j->n * size;
        if (j->dtype == DEFT_F32)
            add_terms_float(at, from, area, n_terms, j->n);
        else
            add_terms_double(at, from, area, n_terms, j->n);
    }
    if (j->epilogue) j->epilogue(j->user, 0, to, row, 0, j->m, 0, j->n);
}
