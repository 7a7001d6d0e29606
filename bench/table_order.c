/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the bench `order`: sorting, selecting, searching and counting (table.h).
 *
 * Each workload has a row for each dtype that NumPy or PyTorch has, and for each order of its
 * elements that matters. Its name ends in the dtype and in that order:
 *
 *     (none)     as they were drawn
 *     _up        in ascending order
 *     _down      in descending order
 *     _few       100 distinct values
 *     _rows      1,000 rows of 1,000 elements, as they were drawn
 *
 * The sizes are {elements, another size}. The seed draws elements, not sizes.
 */
#include "table.h"

static void sort(const table_call *c)
{
    c->out[0] = deft_sort(c->in[0], -1, false);
}

static void argsort(const table_call *c)
{
    c->out[0] = deft_argsort(c->in[0], -1, false);
}

/* Only values are compared: which of two equal elements a peer takes is its own choice. */
static void topk(const table_call *c)
{
    deft_tensor *indices;
    c->out[0] = deft_topk(c->in[0], c->n[1], -1, true, &indices);
}

static void topk_rows(const table_call *c)
{
    deft_tensor *indices;
    c->out[0] = deft_topk(c->in[0], c->n[2], -1, true, &indices);
}

static void median(const table_call *c)
{
    c->out[0] = deft_median(c->in[0], -1, false);
}

static void quantile(const table_call *c)
{
    c->out[0] = deft_quantile(c->in[0], 0.3, -1, false);
}

static void searchsorted(const table_call *c)
{
    c->out[0] = deft_searchsorted(c->in[0], c->in[1], false);
}

static void bucketize(const table_call *c)
{
    c->out[0] = deft_bucketize(c->in[1], c->in[0], false);
}

static void histogram(const table_call *c)
{
    c->out[0] = deft_histc(c->in[0], c->n[1], -3, 3);
}

static void bincount(const table_call *c)
{
    deft_tensor *const zeros = deft_zeros(c->cx, DEFT_SHAPE(c->n[1]), DEFT_I64);
    c->out[0] = deft_index_add(zeros, c->in[0], deft_const_i(c->cx, 1), 0);
}

/* There is room for all elements. The peers' outputs are made as long, with zeros, when outputs are
 * compared. */
static void unique(const table_call *c)
{
    deft_tensor *count;
    c->out[0] = deft_unique(c->in[0], c->n[0], &count);
}

static void unique_all(const table_call *c)
{
    deft_tensor *count;
    c->out[0] = deft_unique_all(c->in[0], c->n[0], NULL, &c->out[1], &c->out[2], &count);
}

static void isin(const table_call *c)
{
    c->out[0] = deft_isin(c->in[0], c->in[1], false);
}

enum { N = 1000000, ROWS = 1000, FEW = 100 };

/* clang-format off */
#define ROW(name, inputs, n_out, record, ...)                                                      \
    { "order/" name, inputs, n_out, 0, 0, record,                                                  \
      { { __VA_ARGS__ }, { __VA_ARGS__ }, { __VA_ARGS__ } } },
#define VECTOR(name, dtype, record)                                                                \
    ROW(name "_" dtype, dtype " a u", 1, record, N)
#define MATRIX(name, dtype, record)                                                                \
    ROW(name "_" dtype "_rows", dtype " ab u", 1, record, ROWS, ROWS, 10)
#define ORDERS(name, dtype, record)                                                                \
    ROW(name "_" dtype, dtype " a u", 1, record, N)                                                \
    ROW(name "_" dtype "_up", dtype " a ^", 1, record, N)                                          \
    ROW(name "_" dtype "_down", dtype " a v", 1, record, N)                                        \
    ROW(name "_" dtype "_few", dtype " a <b", 1, record, N, FEW)
#define ALL(dtype)                                                                                 \
    ORDERS("sort", dtype, sort)                                                                    \
    MATRIX("sort", dtype, sort)                                                                    \
    VECTOR("argsort", dtype, argsort)                                                              \
    MATRIX("argsort", dtype, argsort)                                                              \
    ROW("topk_10_" dtype, dtype " a u", 1, topk, N, 10)                                            \
    ROW("topk_1000_" dtype, dtype " a u", 1, topk, N, 1000)                                        \
    MATRIX("topk", dtype, topk_rows)                                                               \
    VECTOR("median", dtype, median)                                                                \
    MATRIX("median", dtype, median)                                                                \
    ROW("searchsorted_1000_" dtype, dtype " b ^; " dtype " a u", 1, searchsorted, N, 1000)         \
    ROW("searchsorted_all_" dtype, dtype " a ^; " dtype " a u", 1, searchsorted, N)                \
    ROW("bucketize_" dtype, dtype " b ^; " dtype " a u", 1, bucketize, N, 100)                     \
    ORDERS("unique", dtype, unique)                                                                \
    ROW("unique_all_" dtype, dtype " a u", 3, unique_all, N)                                       \
    ROW("unique_all_" dtype "_few", dtype " a <b", 3, unique_all, N, FEW)                          \
    ROW("isin_" dtype, dtype " a u; " dtype " b u", 1, isin, N, 1000)                              \
    ROW("isin_" dtype "_few", dtype " a <b; " dtype " c <b", 1, isin, N, 1000, 200)
#define FLOAT(dtype)                                                                               \
    { "order/quantile_" dtype, dtype " a u", 1, 1e-6, 0, quantile, { { N }, { N }, { N } } },      \
    { "order/quantile_" dtype "_rows", dtype " ab u", 1, 1e-6, 0, quantile,                        \
      { { ROWS, ROWS }, { ROWS, ROWS }, { ROWS, ROWS } } },                                        \
    /* an element that is rounded to the other side of an edge changes two counts by one */        \
    { "order/histogram_" dtype, dtype " a", 1, 1e-3, TABLE_ON_AVERAGE, histogram,                  \
      { { N, 100 }, { N, 100 }, { N, 100 } } },
#define INTEGER(dtype)                                                                             \
    ROW("bincount_" dtype, dtype " a <b", 1, bincount, N, 1000)
/* clang-format on */

const table_row table_order[] = {
    ALL("f32") ALL("f64") ALL("i32") ALL("i64") FLOAT("f32") FLOAT("f64") INTEGER("i32")
        INTEGER("i64"){ 0 },
};
