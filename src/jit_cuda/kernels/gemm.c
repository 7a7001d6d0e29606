/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the code of a product. It is cuBLASLt when the trace is FAST and the library takes
 * the product. Otherwise it is one of our tiles, and how its threads read A and B. Pure
 * arithmetic on shapes, strides and addresses. Any choice gives the same bits, except
 * cuBLASLt and tensor cores.
 *
 * The rates in the table are estimates of how well a tile uses a multiprocessor. When there
 * are fewer tiles than multiprocessors, small tiles win because they keep more
 * multiprocessors at work.
 */
#include "jit_cuda/kernels/gemm.h"

#include "base/limits.h"
#include "jit_cuda/kernels/cublaslt.h"
#include "jit_cuda/kernels/gemm_tile.h"
#include "ops/shape.h"

#include <string.h>

const df_cuda_tile df_cuda_tiles[2][DF_CUDA_N_TILES] = {
    { { 128, 128, 8, 8, 8, 2, 1 },
      { 64, 64, 16, 4, 4, 3, 0.75 },
      { 32, 32, 32, 2, 2, 3, 0.4 },
      { 8, 64, 32, 1, 2, 3, 0.15 },
      { 64, 8, 32, 2, 1, 3, 0.2 } },
    { { 128, 64, 8, 8, 4, 1, 1 },
      { 64, 64, 16, 4, 4, 2, 0.9 },
      { 32, 32, 32, 2, 2, 2, 0.5 },
      { 8, 64, 32, 1, 2, 2, 0.3 },
      { 64, 8, 32, 2, 1, 2, 0.3 } },
};

const df_cuda_tile df_cuda_mma_tiles[DF_CUDA_N_MMA_TILES] = {
    { 128, 128, 32, 64, 32, 1, 1 },
    { 64, 64, 32, 32, 16, 2, 0.7 },
    { 32, 64, 32, 16, 16, 2, 0.4 },
};

const df_cuda_tile *df_cuda_gemm_tile(const df_cuda_gemm_config *v)
{
    if (v->flags & DF_CUDA_GEMM_MMA) return &df_cuda_mma_tiles[v->tile];
    return &df_cuda_tiles[v->dtype == DEFT_F64][v->tile];
}

static int64_t size_of(const df_cuda_gemm_job *j)
{
    return (int64_t)deft_dtype_size(j->dtype);
}

static bool can_read(const df_cuda_gemm_job *j, deft_dtype t)
{
    return t == j->dtype || (j->dtype == DEFT_F32 && df_is_half(t));
}

static int64_t n_batch_of(const df_cuda_gemm_job *j)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < j->batch_rank; i++) n *= j->batch_extent[i];
    return n;
}

/* ---- how operands are read ---- */

/* An operand: r rows of A or columns of B. */
typedef struct side {
    deft_dtype dtype;
    uint64_t base;
    int64_t r, r_stride, k_stride;
    const int64_t *batch;
    int64_t v; /* neighbours of a wide access */
} side;

/* Whether v neighbours are one aligned access everywhere: the base address, the stride
 * across the neighbours, and the batch strides must be multiples. */
static bool is_wide(const df_cuda_gemm_job *j, const side *x, int64_t step, int64_t n_steps)
{
    const int64_t v = x->v;
    if (x->base % ((uint64_t)v * deft_dtype_size(x->dtype)) != 0 || (n_steps > 1 && step % v != 0))
        return false;
    for (uint32_t i = 0; i < j->batch_rank; i++)
        if (x->batch[i] % v != 0) return false;
    return true;
}

static int64_t magnitude(int64_t a)
{
    return a < 0 ? -a : a;
}

static uint8_t read_of(const df_cuda_gemm_job *j, const side *x)
{
    const int64_t r = x->r_stride, k = x->k_stride;
    const bool along_k =
        j->k > 1 && (x->r == 1 || k == 1 || (r != 1 && magnitude(k) <= magnitude(r)));
    if (along_k)
        return k == 1 && is_wide(j, x, r, x->r) ? DF_CUDA_READ_WIDE_K : DF_CUDA_READ_ALONG_K;
    return r == 1 && is_wide(j, x, k, j->k) ? DF_CUDA_READ_WIDE_C : DF_CUDA_READ_ALONG_C;
}

/* ---- tiles ---- */

static int64_t n_tiles(const df_cuda_gemm_job *j, const df_cuda_tile *t)
{
    return n_batch_of(j) * df_div_up(j->m, t->bm) * df_div_up(j->n, t->bn);
}

static bool takes_mma(const df_cuda_gemm_job *j)
{
    return j->mma && j->fast && df_is_half(j->a_dtype) && j->a_dtype == j->b_dtype;
}

static uint8_t choose_tile(const df_cuda_gemm_job *j, uint32_t n_sms)
{
    const bool mma = takes_mma(j);
    const df_cuda_tile *const t = mma ? df_cuda_mma_tiles : df_cuda_tiles[j->dtype == DEFT_F64];
    double least = 0;
    uint8_t best = 0;
    for (uint8_t i = 0; i < (mma ? DF_CUDA_N_MMA_TILES : DF_CUDA_N_TILES); i++) {
        const int64_t rounds = df_div_up(n_tiles(j, &t[i]), n_sms);
        const double cost = (double)rounds * t[i].bm * t[i].bn / t[i].rate;
        if (i > 0 && cost >= least) continue;
        best = i;
        least = cost;
    }
    return best;
}

/* ---- the choice ---- */

static bool fuses(const df_cuda_gemm_job *j)
{
    const df_kernel *const k = j->epilogue;
    return k && k->mode == DF_MODE_MAP && j->c_access <= UINT8_MAX &&
           (DF_CUDA_GEMM_WORDS + df_cuda_layout(k, NULL, NULL)) * sizeof(uint64_t) <=
               DF_CUDA_PARAM_BYTES;
}

/* The flags for the epilogue and for how C is written. */
static uint8_t flags_of(const df_cuda_gemm_job *j, bool fused)
{
    const df_kernel *const k = fused ? j->epilogue : NULL;
    const int64_t v = k ? df_cuda_lanes(k) : 16 / size_of(j);
    const uint8_t facts = k ? df_cuda_facts(k, j->args) : DF_CUDA_WIDE;
    uint8_t flags = facts & DF_CUDA_NARROW;
    bool wide = facts & DF_CUDA_WIDE && v > 1;
    if (j->c) {
        flags |= DF_CUDA_GEMM_STORE;
        wide &= j->c % (uint64_t)(v * size_of(j)) == 0 && (j->m == 1 || j->c_row % v == 0);
        for (uint32_t i = 0; i < j->batch_rank; i++) wide &= j->c_batch[i] % v == 0;
    }
    if (k) flags |= DF_CUDA_GEMM_EPILOGUE;
    return (uint8_t)(flags | (wide ? DF_CUDA_WIDE : 0));
}

static void choose_ours(const df_cuda_gemm_job *given, uint32_t n_sms, df_cuda_gemm *p)
{
    df_cuda_gemm_job j = *given;
    const uint32_t n_epilogue = p->fused ? df_cuda_layout(j.epilogue, NULL, NULL) : 0;
    df_cuda_gemm_fold(&j);
    const bool mma = takes_mma(&j);
    const int64_t v = mma ? 8 : 16 / size_of(&j);
    const side a = { j.a_dtype, j.a, j.m, j.a_row, j.a_col, j.a_batch, v };
    const side b = { j.b_dtype, j.b, j.n, j.b_col, j.b_row, j.b_batch, v };
    p->variant = (df_cuda_gemm_config){
        .dtype = (uint8_t)j.dtype,
        .tile = choose_tile(&j, n_sms),
        .a = read_of(&j, &a),
        .b = read_of(&j, &b),
        .flags = (uint8_t)(flags_of(&j, p->fused) | (mma ? DF_CUDA_GEMM_MMA : 0)),
        .c_access = p->fused ? (uint8_t)j.c_access : 0,
        .a_dtype = (uint8_t)j.a_dtype,
        .b_dtype = (uint8_t)j.b_dtype,
    };
    p->n_words = DF_CUDA_GEMM_WORDS + n_epilogue;
    p->n_blocks = n_tiles(&j, df_cuda_gemm_tile(&p->variant));
    if (p->n_blocks > INT32_MAX) p->n_blocks = INT32_MAX;
}

df_cuda_gemm df_cuda_gemm_choose(const df_cuda_gemm_job *given, uint32_t n_sms, df_cublaslt *lt)
{
    df_cuda_gemm p = { .way = DF_CUDA_GEMM_NOTHING };
    df_cuda_gemm_job j = *given;
    if (j.m == 0 || j.n == 0 || n_batch_of(&j) == 0) return p;
    df_assert(j.dtype == DEFT_F32 || j.dtype == DEFT_F64);
    const bool is_readable = can_read(&j, j.a_dtype) && can_read(&j, j.b_dtype);
    df_assert(is_readable);
    (void)is_readable;
    df_assert(j.c || j.epilogue);
    const bool library = lt && j.fast && j.k > 0;
    const int64_t c_bytes = n_batch_of(&j) * j.m * j.n * size_of(&j);
    p.way = DF_CUDA_GEMM_LT;
    if (library && df_cublaslt_fuses(&j) && df_cublaslt_takes(lt, &j, true, &p.work_bytes)) {
        p.fused = true;
        return p;
    }
    p.c_bytes = j.c ? 0 : c_bytes;
    if (p.c_bytes > 0) df_cuda_gemm_dense(&j, 256);
    if (library && df_cublaslt_takes(lt, &j, false, &p.work_bytes)) return p;
    p.way = DF_CUDA_GEMM_OURS;
    p.work_bytes = 0;
    p.fused = fuses(&j);
    if (p.fused) p.c_bytes = 0;
    choose_ours(p.fused ? given : &j, n_sms, &p);
    return p;
}

void df_cuda_gemm_dense(df_cuda_gemm_job *j, uint64_t c)
{
    int64_t by = j->m * j->n;
    j->c = c;
    j->c_row = j->n;
    for (uint32_t i = j->batch_rank; i-- > 0;) {
        j->c_batch[i] = by;
        by *= j->batch_extent[i];
    }
}

/* ---- words ---- */

void df_cuda_gemm_fill(const df_cuda_gemm_job *given, const df_cuda_gemm *p, uint64_t *words)
{
    df_cuda_gemm_job j = *given;
    df_cuda_gemm_fold(&j);
    const int64_t slice = df_cuda_gemm_tile(&p->variant)->bk;
    const int64_t a_slice = slice * j.a_col * (int64_t)deft_dtype_size(j.a_dtype);
    const int64_t b_slice = slice * j.b_row * (int64_t)deft_dtype_size(j.b_dtype);
    const int64_t first[] = {
        (int64_t)j.a, (int64_t)j.b,   (int64_t)j.c, j.m,     j.n,
        j.k,          j.a_row,        j.a_col,      j.b_row, j.b_col,
        j.c_row,      n_batch_of(&j), j.batch_rank, a_slice, b_slice,
    };
    memset(words, 0, sizeof *words * DF_CUDA_GEMM_WORDS);
    for (uint32_t i = 0; i < DF_LEN(first); i++) words[i] = (uint64_t)first[i];
    for (uint32_t i = 0; i < j.batch_rank; i++) {
        words[15 + 4 * i] = (uint64_t)j.batch_extent[i];
        words[16 + 4 * i] = (uint64_t)j.a_batch[i];
        words[17 + 4 * i] = (uint64_t)j.b_batch[i];
        words[18 + 4 * i] = (uint64_t)j.c_batch[i];
    }
    if (p->fused) df_cuda_fill(j.epilogue, j.args, words + DF_CUDA_GEMM_WORDS);
}

void df_cuda_gemm_aim(const df_cuda_gemm_job *j, char **ptr, int64_t *stride)
{
    const df_kernel *const k = j->epilogue;
    int64_t *const to = stride + (size_t)j->c_access * k->n_axes;
    ptr[j->c_access] = (char *)(uintptr_t)j->c;
    df_assert(k->n_axes == j->batch_rank + 2);
    for (uint32_t i = 0; i < j->batch_rank; i++) to[i] = j->c_batch[i];
    to[j->batch_rank] = j->c_row;
    to[j->batch_rank + 1] = 1;
}
