/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the Python array API standard that tensor.h and ops.h lack, and others that
 * users of NumPy and PyTorch ask for. docs/array-api.md has the whole list.
 *
 * Nearly all of these functions record what a program could record with the functions of
 * tensor.h and ops.h. They are fused, differentiated and mapped as those are.
 *
 * The rules of tensor.h hold for all functions here, unless a comment says otherwise:
 *   - They are recording calls. The innermost open scope owns the result.
 *   - NULL means a mistake. An operand that is NULL gives NULL.
 *   - Tensor arguments are borrowed. Lists are read during the call only.
 *   - Halves are computed in f32, and each result is rounded once.
 *   - A function that returns a status also records its mistake in the context. It writes
 *     results only on success.
 */
#ifndef DEFT_ARRAY_H
#define DEFT_ARRAY_H

#include "deft/control.h"
#include "deft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dtypes ----
 *
 * These functions answer at once. Any thread may call those that take dtypes alone.
 */

/** What a float dtype can hold, or a part of a complex one. All members are 0 for another dtype. */
typedef struct deft_float_info {
    int bits;               /**< The size of an element in bits. */
    double eps;             /**< The distance from 1 to the next greater number. */
    double min;             /**< The least finite number. */
    double max;             /**< The greatest finite number. */
    double smallest_normal; /**< The least positive normal number. */
} deft_float_info;

/** What an integer dtype can hold. All members are 0 for another dtype. */
typedef struct deft_int_info {
    int bits;     /**< The size of an element in bits. */
    int64_t min;  /**< The least number. */
    uint64_t max; /**< The greatest number. */
} deft_int_info;

/** The limits of a float dtype, or of the parts of a complex one. */
DEFT_API deft_float_info deft_finfo(deft_dtype dtype);

/** The limits of an integer dtype. */
DEFT_API deft_int_info deft_iinfo(deft_dtype dtype);

/** Kinds of dtypes, which can be joined by |. */
typedef enum deft_kind {
    DEFT_KIND_BOOL = 1,     /**< bool */
    DEFT_KIND_SIGNED = 2,   /**< signed integers */
    DEFT_KIND_UNSIGNED = 4, /**< unsigned integers */
    DEFT_KIND_INTEGRAL = 6, /**< integers, signed or not */
    DEFT_KIND_REAL = 8,     /**< floats */
    DEFT_KIND_COMPLEX = 16, /**< complex numbers */
    DEFT_KIND_NUMERIC = 30  /**< integers, floats and complex numbers */
} deft_kind;

/** Whether dtype is of one of the kinds. */
DEFT_API bool deft_isdtype(deft_dtype dtype, unsigned kinds);

/** Whether promotion leads from one dtype to the other: deft_promote(from, to) == to. */
DEFT_API bool deft_can_cast(deft_dtype from, deft_dtype to);

/** The dtype in which n tensors meet. A bare number counts as docs/promotion.md says. NULL
 * tensors are passed over. When there is none, the result is DEFT_BOOL. */
DEFT_API deft_dtype deft_result_type(deft_tensor *const *t, size_t n);

/* ---- creation ---- */

/** A tensor of zeros, or of ones, with the shape and the dtype of t. */
DEFT_API deft_tensor *deft_zeros_like(deft_tensor *t);
DEFT_API deft_tensor *deft_ones_like(deft_tensor *t);

/** A tensor with the shape and the dtype of t, whose elements all are value. The value must fit
 * the dtype, else DEFT_E_RANGE. In C, deft_full_like also takes an integer and then calls
 * deft_full_like_i. */
DEFT_API deft_tensor *deft_full_like(deft_tensor *t, double value);
DEFT_API deft_tensor *deft_full_like_i(deft_tensor *t, int64_t value);
/** The same with an unsigned integer of 64 bits, for an unsigned long in C. */
DEFT_API deft_tensor *deft_full_like_u(deft_tensor *t, uint64_t value);

/** A matrix with ones on diagonal k and zeros elsewhere. A positive k is above the main
 * diagonal, a negative one below. */
DEFT_API deft_tensor *deft_eye_k(deft_ctx *cx, int64_t rows, int64_t columns, int64_t k,
                                 deft_dtype dtype);

/** n numbers from first on, of which `last` would be the next: first + i * ((last - first) /
 * n). dtype must be a float. A negative n gives DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_linspace_open(deft_ctx *cx, double first, double last, int64_t n,
                                         deft_dtype dtype);

/** Makes n tensors of one shape, which are the coordinates of a grid. Each x[i] has at most 1
 * axis. The elements of x[i] go along axis i of out[i], and axis i has their number. With
 * xy, the first two axes of each result are exchanged, as in Cartesian coordinates.
 *
 * The results are views. More than DEFT_MAX_RANK tensors give DEFT_E_LIMIT. */
DEFT_API DEFT_MUST_CHECK deft_status deft_meshgrid(deft_tensor *const *x, size_t n, bool xy,
                                                   deft_tensor **out);

/* ---- shapes ---- */

/** Sets *out to the shape to which n shapes broadcast, and returns true. Returns false when they
 * do not fit together. No shapes give rank 0. Any thread. */
DEFT_API bool deft_broadcast_shapes(const deft_shape *shapes, size_t n, deft_shape *out);

/** Expands n tensors to the shape to which they broadcast. The results are views, each with the
 * dtype of its operand. Shapes that do not fit together give DEFT_E_SHAPE. */
DEFT_API DEFT_MUST_CHECK deft_status deft_broadcast_tensors(deft_tensor *const *t, size_t n,
                                                            deft_tensor **out);

/** Inserts axes of extent 1, so that they have these indices in the result. The result is a
 * view. */
DEFT_API deft_tensor *deft_expand_dims(deft_tensor *t, deft_axes axes);

/** Moves the axes `from` to the positions `to` of the result, which are as many. The other axes
 * keep their order. The result is a view. */
DEFT_API deft_tensor *deft_moveaxis(deft_tensor *t, deft_axes from, deft_axes to);

/** Divides t along axis into n tensors without that axis, which are written to out[0..n). The
 * results are views. n is the extent of the axis, else DEFT_E_SHAPE. */
DEFT_API DEFT_MUST_CHECK deft_status deft_unstack(deft_tensor *t, int axis, size_t n,
                                                  deft_tensor **out);

/** Each element along axis n times, one after another. With axis DEFT_FLAT, t is flattened
 * first. A negative n gives DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_repeat(deft_tensor *t, int64_t n, int axis);

/** Element i along axis repeats[i] times, one after another. repeats are integers of shape [] or
 * of the extent of the axis; a negative number counts as 0. As extents are known before
 * elements are, the result has `total` elements along axis. Elements that are missing hold 0,
 * and elements for which there is no room are left out. */
DEFT_API deft_tensor *deft_repeat_t(deft_tensor *t, deft_tensor *repeats, int axis, int64_t total);

/** t side by side, n.dim[i] times along axis i. When n and t differ in rank, the shorter one
 * gets axes of extent 1 in front. */
DEFT_API deft_tensor *deft_tile(deft_tensor *t, deft_shape n);

/** Moves the elements by shifts[i] positions along axis axes.at[i]. Those that leave one end
 * enter at the other. With DEFT_ALL_AXES, the flattened tensor is moved by shifts[0]. */
DEFT_API deft_tensor *deft_roll_n(deft_tensor *t, const int64_t *shifts, deft_axes axes);

/* ---- indexing and differences ---- */

/** deft_gather after broadcasting: the axes of t and of indices other than `axis` broadcast.
 * t and indices have equal rank. */
DEFT_API deft_tensor *deft_take_along_axis(deft_tensor *t, deft_tensor *indices, int axis);

/** The n-th differences along axis: n times, each element is subtracted from the next one.
 * prepend and append are joined to t before; either may be NULL. For bools, a difference is
 * whether the two differ. n is not negative, else DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_diff(deft_tensor *t, int64_t n, int axis, deft_tensor *prepend,
                                deft_tensor *append);

/* ---- searching ---- */

/** The number of elements that are not 0, as i64. NaN is not 0. */
DEFT_API deft_tensor *deft_count_nonzero(deft_tensor *t, deft_axes axes, bool keepdims);

/** Where each value would be inserted into a sorted vector, as i64: the number of elements that
 * are less than the value, or with `right` at most the value.
 *
 * sorted has 1 axis, and less than 2^32 elements, else DEFT_E_LIMIT. It is in ascending order,
 * with NaN last, as deft_sort gives it; in another order the positions mean nothing. NaN is
 * greater than infinity here. Dtypes are promoted. The result has the shape of values. */
DEFT_API deft_tensor *deft_searchsorted(deft_tensor *sorted, deft_tensor *values, bool right);

/** Whether each element of t equals an element of `elements`, as a bool. With `invert`, whether
 * it equals none. NaN equals nothing. Dtypes are promoted. */
DEFT_API deft_tensor *deft_isin(deft_tensor *t, deft_tensor *elements, bool invert);

/** deft_unique with what belongs to the values. Each of the last four arguments may be NULL, and
 * is set to NULL when the result is NULL:
 *   - *indices: where each value occurs first in the flattened t, i64 [max];
 *   - *inverse: the index of the value of each element of t, i64 of the shape of t. It counts
 *     all values, also those for which there was no room;
 *   - *counts: how often each value occurs, i64 [max];
 *   - *count: the number of values, as for deft_unique.
 *
 * Rows from *count on hold 0. */
DEFT_API deft_tensor *deft_unique_all(deft_tensor *t, int64_t max, deft_tensor **indices,
                                      deft_tensor **inverse, deft_tensor **counts,
                                      deft_tensor **count);

/* ---- statistics ---- */

/** The square root of deft_var. Its gradient is 0 where the elements are equal. */
DEFT_API deft_tensor *deft_std(deft_tensor *t, deft_axes axes, bool keepdims, int ddof);

/** Running sums and running products along axis. include_initial puts a 0, or a 1, before them,
 * so that the axis has one element more. Integers are computed in 64 bits, as by deft_cumsum. */
DEFT_API deft_tensor *deft_cumulative_sum(deft_tensor *t, int axis, bool include_initial);
DEFT_API deft_tensor *deft_cumulative_prod(deft_tensor *t, int axis, bool include_initial);

/** The logarithm of the sum of exp(t) over the axes. The greatest element is subtracted first, so
 * that exp does not overflow. It is -infinity over no elements. Integers are computed in f32. */
DEFT_API deft_tensor *deft_logsumexp(deft_tensor *t, deft_axes axes, bool keepdims);

/** The logarithm of the running sums of exp(t) along axis, without overflow (a parallel prefix:
 * Hillis and Steele, "Data parallel algorithms", 1986). log2(n) passes over t. Integers are
 * computed in f32. */
DEFT_API deft_tensor *deft_logcumsumexp(deft_tensor *t, int axis);

/** Reductions that pass over NaN, as if those elements did not exist. Where none is left,
 * deft_nansum is 0, deft_nanprod is 1 and the others are NaN. Other dtypes than floats are
 * reduced as by deft_sum and the like. */
DEFT_API deft_tensor *deft_nansum(deft_tensor *t, deft_axes axes, bool keepdims);
DEFT_API deft_tensor *deft_nanprod(deft_tensor *t, deft_axes axes, bool keepdims);
DEFT_API deft_tensor *deft_nanmin(deft_tensor *t, deft_axes axes, bool keepdims);
DEFT_API deft_tensor *deft_nanmax(deft_tensor *t, deft_axes axes, bool keepdims);
DEFT_API deft_tensor *deft_nanmean(deft_tensor *t, deft_axes axes, bool keepdims);
DEFT_API deft_tensor *deft_nanvar(deft_tensor *t, deft_axes axes, bool keepdims, int ddof);
DEFT_API deft_tensor *deft_nanstd(deft_tensor *t, deft_axes axes, bool keepdims, int ddof);

/** The norm of the elements along the axes: sum(|x|^ord)^(1/ord).
 *
 * ord 2 gives the length, and 1 the sum of magnitudes. INFINITY and -INFINITY give the greatest
 * and the least magnitude. 0 gives the number of elements that are not 0.
 *
 * Its gradient is finite where all elements are 0, for ord 1 and above. Integers are computed
 * in f32. NaN as ord gives DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_vector_norm(deft_tensor *t, double ord, deft_axes axes, bool keepdims);

/** The element in the middle of the order along axis; of an even number, the lower of the two.
 * NaN when any element is NaN. An axis without elements gives DEFT_E_SHAPE. */
DEFT_API deft_tensor *deft_median(deft_tensor *t, int axis, bool keepdims);

/** The value at position q * (n - 1) of the order along axis, from 0. Between two elements it is
 * on the line from one to the other. q is from 0 to 1, else DEFT_E_RANGE. NaN when any element
 * is NaN. Integers are computed in f32. */
DEFT_API deft_tensor *deft_quantile(deft_tensor *t, double q, int axis, bool keepdims);

/** How many elements of t are in each bin, i64 [edges - 1]. Bin i is from edges[i] on to before
 * edges[i + 1]; the last bin also has its end. Elements outside the bins, and NaN, are not
 * counted. edges is an ascending vector of at least 2 elements. Dtypes are promoted. */
DEFT_API deft_tensor *deft_histogram(deft_tensor *t, deft_tensor *edges);

/** The same for n bins of equal width between low and high. Integers are compared in f32. n is
 * at least 1, and low less than high, else DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_histc(deft_tensor *t, int64_t n, double low, double high);

/** deft_searchsorted(edges, values, right). */
DEFT_API deft_tensor *deft_bucketize(deft_tensor *values, deft_tensor *edges, bool right);

/* ---- products ----
 *
 * Dtypes are promoted, and the result has the common dtype. Integers wrap.
 */

/** The sum of products that the equation names: "ij,jk->ik" is the product of two matrices. A label
 * is a letter, and there is one for each axis of each of the n operands. A label that the result
 * lacks is summed over. A label twice in one operand means its diagonal. Without "->", the result
 * has the labels that stand once, in alphabetic order. Spaces are skipped.
 *
 * "..." stands for the axes of an operand that have no letter. They broadcast, counted from the
 * last: "...ij,...jk->...ik" is a batch of products. Without "->", they come first in the result.
 * A result that lacks "..." is summed over them.
 *
 * Two operands are one deft_matmul. More are contracted in pairs, in the order that a greedy rule
 * gives; the sums of floats may depend on it, but not on anything else than the extents.
 * DEFT_E_ARG: a mistake in the equation. DEFT_E_SHAPE: axes with one label differ. */
DEFT_API deft_tensor *deft_einsum(const char *equation, deft_tensor *const *t, size_t n);

/** The sum over a_axes of a and b_axes of b, in their order, of all products. The result has the
 * other axes of a, then those of b. */
DEFT_API deft_tensor *deft_tensordot(deft_tensor *a, deft_tensor *b, deft_axes a_axes,
                                     deft_axes b_axes);

/** a[i] * b[j] of two vectors. */
DEFT_API deft_tensor *deft_outer(deft_tensor *a, deft_tensor *b);

/** The sum of a * b along an axis, which counts from the end: -1 is the last. The other axes
 * broadcast. A complex a is conjugated. */
DEFT_API deft_tensor *deft_vecdot(deft_tensor *a, deft_tensor *b, int axis);

/* ---- polynomials ---- */

/** The polynomial with these coefficients at each element of x, by Horner's rule. As in NumPy, the
 * first coefficient is that of the highest power. Without coefficients it is 0.
 *
 * The coefficients stand along the first axis of a tensor, and its other axes broadcast to x.
 * Dtypes are promoted. Both have gradients. */
DEFT_API deft_tensor *deft_polyval(deft_tensor *x, deft_tensor *coefficients);

/** The same with n numbers, each of which is an argument of the trace: others need no new plan.
 * Integers become f32. In a captured function, give a tensor. */
DEFT_API deft_tensor *deft_polyval_f(deft_tensor *x, const double *coefficients, size_t n);

/* ---- slices that begin at tensors ---- */

/** sizes[i] elements of each axis i of t, from starts[i] on, which is an integer without axes.
 * Where starts[i] is NULL, the whole axis is taken, and sizes[i] is ignored. A start is clamped so
 * that the slice is inside: it is at least 0, and at most the extent minus the size.
 *
 * Both lists have an element for each axis. In a loop a start may be a state or a row. A size
 * beyond the extent gives DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_dynamic_slice(deft_tensor *t, deft_tensor *const *starts,
                                         const int64_t *sizes);

/** A copy of t in which that slice is replaced by values, which have its dtype and broadcast to its
 * shape. */
DEFT_API deft_tensor *deft_dynamic_update(deft_tensor *t, deft_tensor *values,
                                          deft_tensor *const *starts, const int64_t *sizes);

/** out[k][i] along the axis is the combination of elements 0 to i, in this order.
 *
 * fn combines, and is associative. It gets 2 n tensors: the n earlier ones, then the n later ones.
 * It sets n results with their shape and dtype, and works elementwise along the axis, whose extent
 * differs between calls. It is called once for each power of 2 below the extent. This decides the
 * order in which floats are combined.
 *
 * in and out have n tensors, 1 to 16, with equal extents of the axis. Returns false with the
 * mistake recorded, and then all of out are NULL. */
DEFT_API bool deft_associative_scan(deft_body_fn fn, void *user, deft_tensor *const *in, size_t n,
                                    int axis, deft_tensor **out);

/* ---- neighbours ---- */

/** The neighbour of each element, at a distance of by[i] along axis i. For two axes:
 * out[i][j] = t[i + by[0]][j + by[1]].
 *
 * by has one number for each axis. mode says what is beyond the edges, and value is used by
 * DEFT_PAD_CONSTANT alone. As for deft_pad, a mode can refuse a distance: DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_shift(deft_tensor *t, const int64_t *by, deft_pad_mode mode,
                                 double value);

#ifdef __cplusplus
}
#endif

#if !defined(__cplusplus) && !defined(DEFT_NO_GENERIC)
/** In C, this macro chooses the function by the type of the number. */
#define deft_full_like(t, value)                                                                   \
    DEFT_PICK_OF((value), deft_full_like, deft_full_like_i, deft_full_like_u, deft_full_like)      \
    ((t), (value))
#endif

#endif
