/* SPDX-License-Identifier: Apache-2.0
 *
 * Routines on a GPU: argsort, sort, topk, which and compress as launches, and the text of all
 * routines.
 *
 * Short rows are sorted in shared memory, many per thread block. Long rows are sorted by a
 * radix sort of words, a key above an index, as in runtime/sort/sort.c. It moves words
 * between the result and one row of workspace:
 *
 *   32-bit keys    operand -> work -> out -> work -> indices in out
 *   64-bit keys    the same by lower halves, but with words in out; then by upper halves, fetched
 *                  through the indices: out -> work -> ... -> indices in out
 *   8-bit keys     operand -> indices in out
 *
 * topk is the same sort, which writes only some of the indices, and `sort` writes elements.
 * Then the result has no room for words, and a second row of workspace takes its place.
 *
 * A pass is three launches: pieces of rows count digits, counts become positions, pieces
 * move words. There are about as many pieces as the largest GPUs hold thread blocks,
 * whatever the extents.
 */
#include "jit_cuda/kernels/routine_plan.h"

#include "base/compiler.h"
#include "jit_cuda/routine_text.h"

#include <string.h>

enum {
    PIECES = 1024,      /* pieces of all rows together, when rows are long */
    MOST_BLOCKS = 4096, /* of a grid, at most */
    FEW_BLOCKS = 256,   /* tiles are made smaller until there are so many */
    LEAST_TILE = 256
};

_Static_assert(ROUTINE_RANK == DEFT_MAX_RANK, "axes of a box");

/* ---- text ---- */

static const struct {
    const char *name, *body, *params;
} kernels[] = {
#define KERNEL(kernel, parameter) { "routine_" #kernel, #kernel, #parameter },
    DF_CUDA_ROUTINES(KERNEL)
#undef KERNEL
};

_Static_assert(sizeof(rows_params) <= DF_CUDA_ROUTINE_WORDS * 8 &&
                   sizeof(sort_params) <= DF_CUDA_ROUTINE_WORDS * 8 &&
                   sizeof(which_params) <= DF_CUDA_ROUTINE_WORDS * 8 &&
                   sizeof(scatter_params) <= DF_CUDA_ROUTINE_WORDS * 8,
               "parameters fit a launch");
_Static_assert(DF_LEN(kernels) <= 64, "a set is a word");

const char *df_cuda_routine_name(df_cuda_routine kernel)
{
    return kernels[kernel].name;
}

uint32_t df_cuda_routine_threads(df_cuda_routine kernel)
{
    (void)kernel;
    return ROUTINE_THREADS;
}

void df_cuda_routine_text(uint64_t set, df_str *out)
{
    df_str_putn(out, (const char *)routine_text, sizeof routine_text - 1);
    for (uint32_t i = 0; i < DF_LEN(kernels); i++)
        if (set >> i & 1)
            df_str_fmt(out,
                       "extern \"C\" __global__ void __launch_bounds__(%u, 1) %s(const %s a)\n"
                       "{\n    %s(a);\n}\n",
                       (unsigned)ROUTINE_THREADS, kernels[i].name, kernels[i].params,
                       kernels[i].body);
}

/* ---- launches ---- */

void df_cuda_routine_add(df_cuda_launches *out, df_cuda_routine kernel, int64_t n_blocks,
                         const void *params, size_t size)
{
    df_assert(out->n < DF_CUDA_ROUTINE_LAUNCHES && size <= sizeof out->at->params);
    df_cuda_launch *const l = &out->at[out->n++];
    l->kernel = kernel;
    l->n_blocks = (uint32_t)df_max_i64(df_min_i64(n_blocks, MOST_BLOCKS), 1);
    l->size = (uint32_t)size;
    memcpy(l->params, params, size);
    out->kernels |= (uint64_t)1 << kernel;
}

int64_t df_cuda_routine_blocks(int64_t n)
{
    return df_cuda_ceil(n, ROUTINE_THREADS);
}

uint32_t df_cuda_routine_kind(deft_dtype t)
{
    const uint32_t order = df_is_float(t) ? KIND_FLOAT : df_is_signed(t) ? KIND_SIGNED : 0;
    return df_bytes_of(t) | order | df_fraction_of(t) << KIND_FRACTION;
}

/* Writes the box of rows with as few axes as possible; returns how many. */
static uint32_t box_of(const df_routine_job *j, long long *extent, long long *step)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->batch_rank; i++) {
        if (j->batch_extent[i] == 1) continue;
        if (n > 0 && step[n - 1] == j->batch_extent[i] * j->in_batch[i])
            extent[n - 1] *= j->batch_extent[i];
        else
            extent[n++] = j->batch_extent[i];
        step[n - 1] = j->in_batch[i];
    }
    return n;
}

/* ---- long rows ---- */

void df_cuda_sort_split(sort_params *s)
{
    const int64_t each = df_max_i64(PIECES / s->n_rows, 1);
    s->piece = df_cuda_ceil(df_cuda_ceil(s->n, each), ROUTINE_TILE) * ROUTINE_TILE;
    s->n_pieces = df_cuda_ceil(s->n, s->piece);
}

static size_t total_size(const sort_params *s)
{
    return df_cuda_align((size_t)s->n_rows * 256 * sizeof(uint32_t));
}

size_t df_cuda_sort_count_size(const sort_params *s)
{
    return total_size(s) + (size_t)(s->n_rows * s->n_pieces) * 256 * sizeof(uint32_t);
}

void df_cuda_sort_pass(const sort_params *s, uint64_t counts, df_cuda_launches *out)
{
    const int64_t n = s->n_rows * s->n_pieces;
    sort_params p = *s;
    p.totals = counts;
    p.counts = counts + total_size(s);
    df_cuda_routine_add(out, DF_CUDA_R_sort_count, n, &p, sizeof p);
    df_cuda_routine_add(out, DF_CUDA_R_sort_scan, s->n_rows * 32, &p, sizeof p);
    df_cuda_routine_add(out, DF_CUDA_R_sort_move, n, &p, sizeof p);
}

static sort_params sort_of(const df_routine_job *j)
{
    sort_params s = { .in = (uintptr_t)j->in,
                      .n = j->n,
                      .m = j->m,
                      .first = j->first,
                      .in_step = j->in_step,
                      .n_rows = j->n_batch,
                      .kind = df_cuda_routine_kind(j->dtype),
                      .size = (uint32_t)deft_dtype_size(j->dtype),
                      .flip = j->attr & DF_ORDER_DESCENDING ? UINT32_MAX : 0,
                      .values = j->op == DF_OP_sort };
    s.rank = box_of(j, s.extent, s.step);
    df_cuda_sort_split(&s);
    return s;
}

/* Whether the result has room for words. */
static bool result_holds_words(const df_routine_job *j)
{
    return j->m == j->n && j->op != DF_OP_sort;
}

/* Bytes of one array of words. */
static size_t words_size(const df_routine_job *j)
{
    return (size_t)(j->n_batch * j->n) * sizeof(uint64_t);
}

static void plan_passes(const df_routine_job *j, uint64_t work, df_cuda_launches *out)
{
    sort_params s = sort_of(j);
    const uint64_t words = work + df_cuda_align(df_cuda_sort_count_size(&s));
    const uint64_t others = result_holds_words(j) ? (uintptr_t)j->out : words + words_size(j);
    for (uint32_t pass = 0; pass < s.size; pass++) {
        const bool to_out = pass % 2 == 1 || s.size == 1;
        s.source = pass == 0 ? FROM_OPERAND : pass == 4 ? FROM_UPPER : FROM_WORDS;
        s.from = to_out ? words : others;
        s.to_index = pass + 1 == s.size;
        s.to = s.to_index ? (uintptr_t)j->out : to_out ? others : words;
        s.shift = 32 + pass % 4 * 8;
        df_cuda_sort_pass(&s, work, out);
    }
}

/* ---- short rows ---- */

static void plan_rows(const df_routine_job *j, df_cuda_launches *out)
{
    rows_params p = { .in = (uintptr_t)j->in,
                      .out = (uintptr_t)j->out,
                      .n = j->n,
                      .m = j->m,
                      .first = j->first,
                      .in_step = j->in_step,
                      .n_rows = j->n_batch,
                      .kind = df_cuda_routine_kind(j->dtype),
                      .size = (uint32_t)deft_dtype_size(j->dtype),
                      .values = j->op == DF_OP_sort,
                      .flip = j->attr & DF_ORDER_DESCENDING ? UINT32_MAX : 0,
                      .width = 1,
                      .tile = ROUTINE_TILE };
    p.rank = box_of(j, p.extent, p.step);
    while (p.width < p.n) p.width *= 2;
    while (p.tile > LEAST_TILE && p.tile > p.width &&
           df_cuda_ceil(p.n_rows, p.tile / p.width) < FEW_BLOCKS)
        p.tile /= 2;
    df_cuda_routine_add(out, p.size == 8 ? DF_CUDA_R_sort_rows_64 : DF_CUDA_R_sort_rows,
                        df_cuda_ceil(p.n_rows, p.tile / p.width), &p, sizeof p);
}

/* ---- which, compress ---- */

static bool is_which(const df_routine_job *j)
{
    return j->op == DF_OP_which || j->op == DF_OP_compress;
}

static which_params which_of(const df_routine_job *j)
{
    const bool finds = j->op == DF_OP_which; /* else it compresses */
    const deft_dtype tested = finds ? j->dtype : j->mask_dtype;
    which_params p = { .in = (uintptr_t)(finds ? j->in : j->mask),
                       .out = (uintptr_t)j->out,
                       .values = finds ? 0 : (uintptr_t)j->in,
                       .n = j->n,
                       .m = j->m,
                       .in_step = finds ? j->in_step : j->mask_step,
                       .value_step = j->in_step,
                       .rest = j->attr & DF_WHICH_ZEROS || !finds ? 0 : -1,
                       .kind = df_cuda_routine_kind(tested),
                       .size = (uint32_t)deft_dtype_size(tested),
                       .value_size = finds ? 8 : (uint32_t)deft_dtype_size(j->dtype) };
    p.piece = df_max_i64(df_cuda_ceil(df_cuda_ceil(j->n, PIECES), ROUTINE_TILE), 1) * ROUTINE_TILE;
    p.n_pieces = df_cuda_ceil(j->n, p.piece);
    return p;
}

static void plan_which(const df_routine_job *j, uint64_t work, df_cuda_launches *out)
{
    which_params p = which_of(j);
    p.counts = work;
    if (p.n_pieces > 0) df_cuda_routine_add(out, DF_CUDA_R_which_count, p.n_pieces, &p, sizeof p);
    df_cuda_routine_add(out, DF_CUDA_R_which_write,
                        df_max_i64(p.n_pieces, df_min_i64(df_cuda_routine_blocks(p.m), PIECES)), &p,
                        sizeof p);
}

/* ---- functions of routine.h ---- */

static bool is_empty(const df_routine_job *j)
{
    return j->m <= 0 || j->n_batch <= 0;
}

size_t df_cuda_routine_work_size(const df_routine_job *j)
{
    if (is_empty(j)) return 0;
    if (is_which(j)) return (size_t)which_of(j).n_pieces * sizeof(uint64_t);
    if (j->n <= ROUTINE_TILE) return 0;
    const sort_params s = sort_of(j);
    const size_t counts = df_cuda_sort_count_size(&s);
    if (s.size == 1) return counts;
    return df_cuda_align(counts) + words_size(j) * (result_holds_words(j) ? 1 : 2);
}

deft_status df_cuda_routine_plan(df_diag *d, const df_routine_job *j, uint64_t work,
                                 df_cuda_launches *out)
{
    df_assert(j->op == DF_OP_argsort || j->op == DF_OP_sort || j->op == DF_OP_topk || is_which(j));
    out->n = 0;
    out->kernels = 0;
    if (is_empty(j)) return DEFT_OK;
    if (is_which(j))
        plan_which(j, work, out);
    else if (j->n >= UINT32_MAX)
        return df_fail(d, DEFT_E_LIMIT, "%s: a row has %lld elements; a GPU sorts fewer than %lld",
                       df_op_infos[j->op].name, (long long)j->n, (long long)UINT32_MAX);
    else if (j->n <= ROUTINE_TILE)
        plan_rows(j, out);
    else
        plan_passes(j, work, out);
    return DEFT_OK;
}
