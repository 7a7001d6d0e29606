/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors: shapes, creation, views, assignment, and every op that is not plainly elementwise (those
 * are in ops.h). Names and defaults are PyTorch's; docs/names.md lists the deviations.
 *
 * All functions here record and return at once. They return a tensor owned by the innermost scope,
 * or NULL (see the error rule in context.h). Extents and strides count elements. Axes may be
 * negative and then count from the last. At most DEFT_MAX_RANK axes.
 */
#ifndef DEFT_TENSOR_H
#define DEFT_TENSOR_H

#include "deft/context.h"
#include "deft/pick.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- shapes, axes, ranges ---- */

typedef struct deft_shape {
    uint32_t rank; /* > DEFT_MAX_RANK: an error wherever it is used */
    int64_t dim[DEFT_MAX_RANK];
} deft_shape;

DEFT_API deft_shape deft_shape_of(size_t rank, const int64_t *dim);

typedef struct deft_axes {
    uint32_t n; /* UINT32_MAX: all axes */
    int32_t at[DEFT_MAX_RANK];
} deft_axes;

DEFT_API deft_axes deft_axes_of(size_t n, const int *at);

/* One axis of a slice. */
typedef struct deft_range {
    int64_t start, stop, step; /* step 0: the single element start, and the axis disappears */
} deft_range;

/* "to the end" as a stop (to before the first element when step < 0), or "from the first" as a
 * start. */
#define DEFT_END INT64_MAX

DEFT_API deft_range deft_range_of(int64_t start, int64_t stop, int64_t step);

#ifndef __cplusplus
#define DEFT_SHAPE(...)                                                                            \
    deft_shape_of(sizeof((const int64_t[]){ 0, __VA_ARGS__ }) / sizeof(int64_t) - 1,               \
                  (const int64_t[]){ 0, __VA_ARGS__ } + 1)
#define DEFT_AXES(...)                                                                             \
    deft_axes_of(sizeof((const int[]){ 0, __VA_ARGS__ }) / sizeof(int) - 1,                        \
                 (const int[]){ 0, __VA_ARGS__ } + 1)
#define DEFT_ALL_AXES ((deft_axes){ UINT32_MAX, { 0 } })
#endif

/* Elements a, a + 1, .. b - 1; negative bounds count from the end. Bounds outside are an error, and
 * so are bounds between which no tensor has an element, whatever its extent: DEFT_R(1, 0),
 * DEFT_R(-1, 0). Equal bounds are an empty range, DEFT_R(3, 3); so are bounds of which one counts
 * from the end, where the tensor is too short: DEFT_R(1, -1) of one element. */
#define DEFT_R(a, b) deft_range_of((a), (b), 1)
#define DEFT_RS(a, b, step) deft_range_of((a), (b), (step))
#define DEFT_AT(i) deft_range_of((i), (i), 0)
#define DEFT_FULL deft_range_of(0, DEFT_END, 1)
#define DEFT_FLIP deft_range_of(-1, DEFT_END, -1)

/* ---- what a tensor is (answers without computing) ---- */

DEFT_API deft_dtype deft_dtype_of(const deft_tensor *t);
DEFT_API uint32_t deft_rank(const deft_tensor *t);
DEFT_API int64_t deft_dim(const deft_tensor *t, int axis); /* -1 when there is no such axis */
DEFT_API int64_t deft_numel(const deft_tensor *t);
DEFT_API deft_shape deft_shape_get(const deft_tensor *t);
DEFT_API deft_ctx *deft_ctx_of(const deft_tensor *t);

/* ---- creation ---- */

/* Copies now: data holds the row-major elements, bytes must be exactly their size. */
DEFT_API deft_tensor *deft_from(deft_ctx *cx, deft_shape shape, deft_dtype dtype, const void *data,
                                size_t bytes);
/* Borrows: data must stay and must not change until the step (or read) that uses it has ended.
 * strides in elements, NULL for row-major; every element must lie within bytes of data. Misaligned
 * data is allowed. */
DEFT_API deft_tensor *deft_wrap(deft_ctx *cx, deft_shape shape, deft_dtype dtype, const void *data,
                                size_t bytes, const int64_t *strides);
/* The same, and what is assigned to the tensor is written to data when the cut succeeds. No two
 * elements may share memory. */
DEFT_API deft_tensor *deft_wrap_mut(deft_ctx *cx, deft_shape shape, deft_dtype dtype, void *data,
                                    size_t bytes, const int64_t *strides);

DEFT_API deft_tensor *deft_zeros(deft_ctx *cx, deft_shape shape, deft_dtype dtype);
DEFT_API deft_tensor *deft_ones(deft_ctx *cx, deft_shape shape, deft_dtype dtype);
/* value is an argument of the trace, not part of its identity. Must fit dtype. In C deft_full takes
 * an integer too, and calls deft_full_i, which knows all 64 bits of it. */
DEFT_API deft_tensor *deft_full(deft_ctx *cx, deft_shape shape, deft_dtype dtype, double value);
DEFT_API deft_tensor *deft_full_i(deft_ctx *cx, deft_shape shape, deft_dtype dtype, int64_t value);
/* A 0-d number, for use where a call takes tensors: deft_sub(deft_num(cx, 1), x). In every call, at
 * every place, it takes the dtype that the tensors it meets there promote to; but deft_num makes
 * f32 of integers and bools, deft_num_i i64 of bools. Where it meets numbers alone, or nothing, it
 * is f32, deft_num_i i64. A number that does not fit its dtype is an error. deft_cast converts the
 * number as it was written, and what asks whether it is 0 (deft_where, deft_logical_and) looks at
 * that too. */
DEFT_API deft_tensor *deft_num(deft_ctx *cx, double value);
DEFT_API deft_tensor *deft_num_i(deft_ctx *cx, int64_t value);
/* start, start + step, ... while below stop (above, for a negative step): ceil((stop - start) /
 * step) elements, each computed as start + i * step in dtype (f16, bf16: in f32, rounded once). */
DEFT_API deft_tensor *deft_arange(deft_ctx *cx, double start, double stop, double step,
                                  deft_dtype dtype);
/* The same for integers, which deft_arange calls in C when all three are. Exact in integer dtypes,
 * where the first and the last element must fit. */
DEFT_API deft_tensor *deft_arange_i(deft_ctx *cx, int64_t start, int64_t stop, int64_t step,
                                    deft_dtype dtype);
/* n values from first to last, both included: first + i * ((last - first) / (n - 1)). */
DEFT_API deft_tensor *deft_linspace(deft_ctx *cx, double first, double last, int64_t n,
                                    deft_dtype dtype);
DEFT_API deft_tensor *deft_eye(deft_ctx *cx, int64_t rows, int64_t columns, deft_dtype dtype);
/* The index along axis, as i64. */
DEFT_API deft_tensor *deft_iota(deft_ctx *cx, deft_shape shape, int axis);

/* ---- random numbers: Philox 4x32-10 ---- */

/* The caller's plain data. Each draw uses next++; the value depends on (seed, draw, row-major
 * element) alone, so it is the same under fusion, threads, replay and recomputation. A call that
 * returns NULL takes no number. A step that fails gives none back, since the rng may be gone by
 * then: to draw the same again, keep a copy from before the step. */
typedef struct deft_rng {
    uint64_t seed, next;
} deft_rng;

DEFT_API deft_tensor *deft_uniform(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype,
                                   double low, double high); /* [low, high), but for rounding */
/* Box-Muller (Box and Muller 1958). */
DEFT_API deft_tensor *deft_normal(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype,
                                  double mean, double deviation);
/* Integers in [low, high), high - low <= 2^31; dtype an integer. Multiply-shift: no value is more
 * than (high - low) / 2^32 likelier than another. */
DEFT_API deft_tensor *deft_randint(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype,
                                   int64_t low, int64_t high);

/* ---- assignment ---- */

/* Binds dst to src's value; when dst is a view, writes its place in the tensor it is a view of.
 * Every other handle keeps the value it has. src broadcasts to dst's shape; dtypes must be equal.
 * Assigning through a view whose root was assigned since the view was taken is an error, and so is
 * assigning, inside an outermost scope or step, through a view taken before it opened. Returns dst.
 */
DEFT_API deft_tensor *deft_assign(deft_tensor *dst, deft_tensor *src);
DEFT_API deft_tensor *deft_assign_f(deft_tensor *dst, double value);
DEFT_API deft_tensor *deft_assign_i(deft_tensor *dst, int64_t value);

/* ---- views ---- */

/* Ranges for the first n axes; the others are taken whole. */
DEFT_API deft_tensor *deft_slice_n(deft_tensor *t, size_t n, const deft_range *ranges);
DEFT_API deft_tensor *deft_reshape(deft_tensor *t, deft_shape shape); /* one extent may be -1 */
DEFT_API deft_tensor *deft_flatten(deft_tensor *t);
DEFT_API deft_tensor *deft_permute(deft_tensor *t, deft_axes order);
DEFT_API deft_tensor *deft_transpose(deft_tensor *t, int a, int b);
DEFT_API deft_tensor *deft_t(deft_tensor *t);                        /* last two axes swapped */
DEFT_API deft_tensor *deft_expand(deft_tensor *t, deft_shape shape); /* -1 keeps an extent */
DEFT_API deft_tensor *deft_squeeze(deft_tensor *t,
                                   deft_axes axes); /* DEFT_ALL_AXES: every extent 1 */
DEFT_API deft_tensor *deft_unsqueeze(deft_tensor *t, int axis);
DEFT_API deft_tensor *deft_flip(deft_tensor *t, deft_axes axes);
DEFT_API deft_tensor *deft_diagonal(deft_tensor *t, int64_t offset, int a, int b);

#ifndef __cplusplus
/* deft_slice(t, DEFT_R(1, -1), DEFT_AT(0)): deft_slice_n over the ranges given, at most 8. What is
 * no deft_range does not compile. A braced deft_range stands in parentheses. */
#define deft_slice(t, ...)                                                                         \
    deft_slice_n((t),                                                                              \
                 sizeof((const deft_range[]){ __VA_ARGS__ }) / sizeof(deft_range) +                \
                     DEFT_REQUIRE(DEFT_ARE_RANGES(__VA_ARGS__),                                    \
                                  "deft_slice takes ranges, not numbers: DEFT_R(a, b) for "        \
                                  "elements a to b - 1, DEFT_AT(i) for one, DEFT_FULL for all"),   \
                 (const deft_range[]){ __VA_ARGS__ })
#endif

/* ---- joining, splitting, padding, moving ---- */

DEFT_API deft_tensor *deft_concat(deft_tensor *const *parts, size_t n, int axis);
DEFT_API deft_tensor *deft_stack(deft_tensor *const *parts, size_t n, int axis);
/* Parts of the given sizes along axis into out[0..n). DEFT_OK, or the error (then recorded too). */
DEFT_API DEFT_MUST_CHECK deft_status deft_split(deft_tensor *t, const int64_t *sizes, size_t n,
                                                int axis, deft_tensor **out);
typedef enum deft_pad_mode {
    DEFT_PAD_CONSTANT = 0,
    DEFT_PAD_EDGE = 1,
    DEFT_PAD_REFLECT = 2, /* without repeating the edge */
    DEFT_PAD_WRAP = 3
} deft_pad_mode;
/* before[i], after[i] >= 0 elements on axis i, for all axes; value for DEFT_PAD_CONSTANT. */
DEFT_API deft_tensor *deft_pad(deft_tensor *t, const int64_t *before, const int64_t *after,
                               deft_pad_mode mode, double value);
/* With an integer value, which deft_pad calls in C when it is given one. */
DEFT_API deft_tensor *deft_pad_i(deft_tensor *t, const int64_t *before, const int64_t *after,
                                 deft_pad_mode mode, int64_t value);
DEFT_API deft_tensor *deft_roll(deft_tensor *t, int64_t shift, int axis);
DEFT_API deft_tensor *deft_tril(deft_tensor *t, int64_t diagonal);
DEFT_API deft_tensor *deft_triu(deft_tensor *t, int64_t diagonal);

/* ---- indexing ---- */

/* Slices of t along axis at the indices; the indices' axes replace that axis. Negative indices
 * count from the end. An index outside is found when the cut runs: it fails whole with
 * DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_take(deft_tensor *t, deft_tensor *indices, int axis);
/* out[i][j] = t[indices[i][j]][j] for axis 0, and so on: indices has t's rank. */
DEFT_API deft_tensor *deft_gather(deft_tensor *t, deft_tensor *indices, int axis);
/* t with values added where the indices say: out[indices[i][j]][j] += values[i][j] for axis 0, and
 * so on. indices has t's rank, and along the other axes no more elements than t. Values have t's
 * dtype, which is not bool, or are a number, and broadcast to the shape of indices. Every element
 * of the result is t's, to which its values are added one after the other in the row-major order
 * of their indices: the same bits on any number of threads. Integers wrap. Indices as in
 * deft_take. */
DEFT_API deft_tensor *deft_scatter_add(deft_tensor *t, deft_tensor *indices, deft_tensor *values,
                                       int axis);
/* Likewise with slices along axis: values have the shape of deft_take(t, indices, axis), or
 * broadcast to it. Counts: deft_index_add(zeros, indices, deft_num(cx, 1), 0). */
DEFT_API deft_tensor *deft_index_add(deft_tensor *t, deft_tensor *indices, deft_tensor *values,
                                     int axis);
DEFT_API deft_tensor *deft_one_hot(deft_tensor *indices, int64_t n_classes, deft_dtype dtype);

/* ---- sorting ---- */

/* The indices, i64 and of t's shape, that put each row along axis in ascending order: stable, so
 * that equal elements keep theirs. descending != 0: the greatest first, equal elements still in
 * theirs. NaN counts as greater than infinity, all NaNs as equal, and so do -0 and +0. The axis has
 * less than 2^32 elements (DEFT_E_LIMIT). Rows are shared out to the threads; one row is sorted by
 * one. */
DEFT_API deft_tensor *deft_argsort(deft_tensor *t, int axis, int descending);
/* The elements in that order: deft_gather(t, deft_argsort(t, axis, descending), axis). */
DEFT_API deft_tensor *deft_sort(deft_tensor *t, int axis, int descending);

/* ---- sizes known only by computing ----
 *
 * The extents of every tensor are known when it is recorded, so what such a call finds goes into
 * `max` rows, and how many it found comes beside it as data: *count gets a 0-d i64 tensor, to be
 * read or used in the trace (compare deft_iota with it to mask). It may be larger than max: then
 * the first max are given. count NULL: not wanted. Rows from *count on hold 0, which is a position
 * and a value that exists wherever the operand has elements, so that deft_take at unused rows
 * fails nothing. max >= 0 is an extent: another max, like another extent of the operand, runs the
 * same kernels. When the result is NULL, so is *count. Nothing here waits for a value.
 */

/* i64 [max, rank of t]: the indices of the elements that are not 0, in row-major order. NaN is not
 * 0. A 0-d t gives [max, 0]. */
DEFT_API deft_tensor *deft_nonzero(deft_tensor *t, int64_t max, deft_tensor **count);
/* [max], of t's dtype: the elements of t where mask (bool, broadcast to t's shape) is true, in
 * row-major order. */
DEFT_API deft_tensor *deft_compress(deft_tensor *t, deft_tensor *mask, int64_t max,
                                    deft_tensor **count);
/* [max], of t's dtype: the values among all elements of t, each once, ascending. All NaNs are one
 * value, the last; -0 and +0 are one, with the sign of the first in row-major order. t has less
 * than 2^32 elements (DEFT_E_LIMIT). */
DEFT_API deft_tensor *deft_unique(deft_tensor *t, int64_t max, deft_tensor **count);

/* ---- elementwise with other arguments ---- */

DEFT_API deft_tensor *deft_cast(deft_tensor *t, deft_dtype dtype);
DEFT_API deft_tensor *deft_where(deft_tensor *condition, deft_tensor *a, deft_tensor *b);
DEFT_API deft_tensor *deft_clamp(deft_tensor *t, double low, double high);
/* With integer bounds, which deft_clamp calls in C when both are. */
DEFT_API deft_tensor *deft_clamp_i(deft_tensor *t, int64_t low, int64_t high);
DEFT_API deft_tensor *deft_clamp_t(deft_tensor *t, deft_tensor *low,
                                   deft_tensor *high); /* NULL: no bound */
/* a + weight * (b - a). */
DEFT_API deft_tensor *deft_lerp(deft_tensor *a, deft_tensor *b, deft_tensor *weight);
DEFT_API deft_tensor *deft_lerp_f(deft_tensor *a, deft_tensor *b, double weight);
DEFT_API deft_tensor *deft_lerp_i(deft_tensor *a, deft_tensor *b, int64_t weight);

/* ---- reductions: over axes (DEFT_ALL_AXES, or a list); keepdims != 0 keeps them with extent 1
 * ---- */

DEFT_API deft_tensor *deft_sum(deft_tensor *t, deft_axes axes, int keepdims);  /* integers in i64 */
DEFT_API deft_tensor *deft_prod(deft_tensor *t, deft_axes axes, int keepdims); /* integers in i64 */
DEFT_API deft_tensor *deft_min(deft_tensor *t, deft_axes axes, int keepdims);
DEFT_API deft_tensor *deft_max(deft_tensor *t, deft_axes axes, int keepdims);
DEFT_API deft_tensor *deft_mean(deft_tensor *t, deft_axes axes, int keepdims); /* sum / count */
/* sum((x - mean)^2) / max(count - ddof, 0), in two passes: as in NumPy NaN of no elements, and of
 * no more than ddof elements infinity, or NaN when they are equal. */
DEFT_API deft_tensor *deft_var(deft_tensor *t, deft_axes axes, int keepdims, int ddof);
DEFT_API deft_tensor *deft_any(deft_tensor *t, deft_axes axes, int keepdims);
DEFT_API deft_tensor *deft_all(deft_tensor *t, deft_axes axes, int keepdims);
DEFT_API deft_tensor *deft_argmin(deft_tensor *t, deft_axes axes, int keepdims); /* i64 */
DEFT_API deft_tensor *deft_argmax(deft_tensor *t, deft_axes axes, int keepdims); /* i64 */
DEFT_API deft_tensor *deft_cumsum(deft_tensor *t, int axis);

/* ---- products, normalization, losses ---- */

/* [..., M, K] by [..., K, N]; batch axes broadcast; a 1-d operand is a row (left) or a column
 * (right) whose axis disappears from the result. */
DEFT_API deft_tensor *deft_matmul(deft_tensor *a, deft_tensor *b);
/* Of an axis without elements the result has none. */
DEFT_API deft_tensor *deft_softmax(deft_tensor *t, int axis);
DEFT_API deft_tensor *deft_log_softmax(deft_tensor *t, int axis);
/* (x - mean) / sqrt(var + eps) over the last n_axes axes, var with ddof 0; then * gain + bias when
 * they are not NULL (Ba, Kiros, Hinton 2016). */
DEFT_API deft_tensor *deft_layer_norm(deft_tensor *t, uint32_t n_axes, deft_tensor *gain,
                                      deft_tensor *bias, double eps);
/* Mean over rows of -log_softmax(logits)[row, label[row]]; logits [n, classes], labels integer [n].
 * A label outside contributes NaN. */
DEFT_API deft_tensor *deft_cross_entropy(deft_tensor *logits, deft_tensor *labels);

#ifdef __cplusplus
}
#endif

#if !defined(__cplusplus) && !defined(DEFT_NO_GENERIC)
#define deft_full(...)                                                                             \
    DEFT_PICK_OF((DEFT_LAST(__VA_ARGS__)), deft_full, deft_full_i, deft_full)(__VA_ARGS__)
#define deft_pad(...)                                                                              \
    DEFT_PICK_OF((DEFT_LAST(__VA_ARGS__)), deft_pad, deft_pad_i, deft_pad)(__VA_ARGS__)
#define deft_clamp(t, low, high)                                                                   \
    DEFT_PICK_OF((low) + (high), deft_clamp, deft_clamp_i, deft_clamp)((t), (low), (high))
#define deft_arange(cx, start, stop, step, dtype)                                                  \
    DEFT_PICK_OF((start) + (stop) + (step), deft_arange, deft_arange_i, deft_arange)               \
    ((cx), (start), (stop), (step), (dtype))
#endif

#endif
