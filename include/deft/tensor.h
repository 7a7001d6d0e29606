/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors: shapes, creation, views, assignment, and every operator that is not plainly
 * elementwise. The plainly elementwise operators are in ops.h. Names and defaults are those
 * of PyTorch; docs/names.md lists the deviations.
 *
 * Rules for all functions here, unless a comment says otherwise:
 *   - They are recording calls: they record the operation and return at once, without
 *     computing.
 *   - The result is a tensor that the innermost open scope owns. The program must not free
 *     it.
 *   - NULL means a mistake. An operand that is NULL gives NULL. context.h has the error
 *     rule, and which call delivers the status that a comment names here.
 *   - Tensor arguments are borrowed. Arrays, shapes and ranges are read during the call
 *     only.
 *   - A context and its tensors belong to one thread at a time.
 *   - Extents and strides count elements. A negative axis counts from the last one.
 *   - A tensor has at most DEFT_MAX_RANK axes. A wrong axis gives DEFT_E_RANGE.
 *   - Shapes that do not fit give DEFT_E_SHAPE. Dtypes without a rule give DEFT_E_DTYPE.
 *   - DEFT_E_MEMORY and DEFT_E_LIMIT are possible everywhere.
 */
#ifndef DEFT_TENSOR_H
#define DEFT_TENSOR_H

#include "deft/context.h"
#include "deft/pick.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- shapes, axes, ranges ---- */

/** The extents of a tensor, outermost axis first. Rank 0 is a single number. */
typedef struct deft_shape {
    uint32_t rank; /**< A rank above DEFT_MAX_RANK is an error wherever the shape is used. */
    int64_t dim[DEFT_MAX_RANK]; /**< The extents of the first `rank` axes. */
} deft_shape;

/** Copies `rank` extents from dim. It never fails: too large a rank is found where the shape
 * is used. Any thread. */
DEFT_API deft_shape deft_shape_of(size_t rank, const int64_t *dim);

/** A list of axes. */
typedef struct deft_axes {
    uint32_t n;                /**< UINT32_MAX stands for all axes. */
    int32_t at[DEFT_MAX_RANK]; /**< The axes; negative ones count from the last. */
} deft_axes;

/** Copies n axes from `at`. It never fails: too long a list is found where the axes are
 * used. Any thread. */
DEFT_API deft_axes deft_axes_of(size_t n, const int *at);

/** One axis of a slice: the elements start, start + step, ... before stop. */
typedef struct deft_range {
    int64_t start; /**< The first element. A negative number counts from the end. */
    int64_t stop;  /**< The end, which is not selected. See DEFT_END. */
    /** The distance of two elements. 0 selects the single element `start`, and the axis
     * disappears. */
    int64_t step;
} deft_range;

/** As a stop: "to the end", which with a negative step means to before the first element. As
 * a start with a negative step: "from the last element". */
#define DEFT_END INT64_MAX

/** Makes a range of the three numbers. They are checked where the range is used. Any thread. */
DEFT_API deft_range deft_range_of(int64_t start, int64_t stop, int64_t step);

#ifndef __cplusplus
/** DEFT_SHAPE(2, 3), DEFT_AXES(0, -1): shapes and axes in C. Without arguments the list is
 * empty. */
#define DEFT_SHAPE(...)                                                                            \
    deft_shape_of(sizeof((const int64_t[]){ 0, __VA_ARGS__ }) / sizeof(int64_t) - 1,               \
                  (const int64_t[]){ 0, __VA_ARGS__ } + 1)
#define DEFT_AXES(...)                                                                             \
    deft_axes_of(sizeof((const int[]){ 0, __VA_ARGS__ }) / sizeof(int) - 1,                        \
                 (const int[]){ 0, __VA_ARGS__ } + 1)
#define DEFT_ALL_AXES ((deft_axes){ UINT32_MAX, { 0 } })
#endif

/** DEFT_R selects the elements a, a + 1, ... b - 1. DEFT_RS has a step, DEFT_AT selects one
 * element, DEFT_FULL the whole axis, and DEFT_FLIP the whole axis in reverse.
 *
 * Negative bounds count from the end. Equal bounds give an empty range. Bounds outside the
 * axis give DEFT_E_RANGE. So do bounds between which no tensor of any extent has an
 * element, such as DEFT_R(1, 0) or DEFT_R(-1, 0). When only one bound counts from the end
 * and the tensor is too short, the range is empty: DEFT_R(1, -1) of one element. */
#define DEFT_R(a, b) deft_range_of((a), (b), 1)
#define DEFT_RS(a, b, step) deft_range_of((a), (b), (step))
#define DEFT_AT(i) deft_range_of((i), (i), 0)
#define DEFT_FULL deft_range_of(0, DEFT_END, 1)
#define DEFT_FLIP deft_range_of(-1, DEFT_END, -1)

/* ---- what a tensor is ----
 *
 * These calls answer without computing and never fail. The tensor is borrowed. For NULL,
 * and for a tensor whose scope has ended, each call returns the value named in its comment.
 */

/** The dtype of t; DEFT_BOOL when there is no tensor. */
DEFT_API deft_dtype deft_dtype_of(const deft_tensor *t);

/** The number of axes; 0 when there is no tensor. */
DEFT_API uint32_t deft_rank(const deft_tensor *t);

/** The extent of one axis; -1 when there is no such axis or no tensor. */
DEFT_API int64_t deft_dim(const deft_tensor *t, int axis);

/** The number of elements; 1 when there is no tensor. */
DEFT_API int64_t deft_numel(const deft_tensor *t);

/** All extents; rank 0 when there is no tensor. */
DEFT_API deft_shape deft_shape_get(const deft_tensor *t);

/** The context of t, borrowed; NULL when there is no tensor. */
DEFT_API deft_ctx *deft_ctx_of(const deft_tensor *t);

/* ---- creation ---- */

/** Makes a tensor from a copy of the caller's memory, which is read during the call.
 *
 * data holds the elements in row-major order. bytes must be exactly their size, else the
 * status is DEFT_E_ARG. data may be NULL only when there are no elements. In a bool tensor
 * every byte other than 0 becomes 1. */
DEFT_API deft_tensor *deft_from(deft_ctx *cx, deft_shape shape, deft_dtype dtype, const void *data,
                                size_t bytes);

/** Makes a tensor of the caller's memory without a copy. The memory stays the caller's. It
 * must exist and must not change until the step or read that uses it has ended.
 *
 * strides has one entry for each axis, counted in elements; NULL means row-major. A negative
 * stride walks the axis down from its highest address. With the stride -1, element 0 is the last
 * one in memory. data is the lowest address in any case. Every element must lie within the first
 * `bytes` bytes of data, else the status is DEFT_E_RANGE. data may be misaligned. The bytes of a
 * bool tensor must be 0 or 1. */
DEFT_API deft_tensor *deft_wrap(deft_ctx *cx, deft_shape shape, deft_dtype dtype, const void *data,
                                size_t bytes, const int64_t *strides);

/** Like deft_wrap, and assignments write to the memory. What is assigned to the tensor is in
 * data when the computation that includes the assignment has succeeded.
 *
 * Two elements that share memory give DEFT_E_ARG. */
DEFT_API deft_tensor *deft_wrap_mut(deft_ctx *cx, deft_shape shape, deft_dtype dtype, void *data,
                                    size_t bytes, const int64_t *strides);

/** Options of deft_wrap_with. Members that are zero have the default that their comment
 * names. */
typedef struct deft_wrap_options {
    size_t size;            /**< sizeof(deft_wrap_options) */
    const int64_t *strides; /**< As for deft_wrap. NULL: row-major. */
    bool is_mutable;        /**< true: assignments write the memory, as with deft_wrap_mut. */
    deft_device device;     /**< The device of the memory. 0: the host (device.h). */
    /** Called once, when deft does not use the memory any more. The memory then must exist until
     * this call, and no longer. Any thread may make the call, inside any call of deft; so the
     * function must call none itself. Memory of a GPU is released after the work that uses it.
     * NULL: the rule of deft_wrap. */
    void (*release)(void *user);
    void *release_user; /**< Passed to release. */
} deft_wrap_options;

/** deft_wrap and deft_wrap_mut with options, which are copied. NULL means none. A call that
 * returns NULL never calls release: the memory stays the caller's. */
DEFT_API deft_tensor *deft_wrap_with(deft_ctx *cx, deft_shape shape, deft_dtype dtype, void *data,
                                     size_t bytes, const deft_wrap_options *options);

/** A tensor of zeros, or of ones. In a bool tensor they are false and true. */
DEFT_API deft_tensor *deft_zeros(deft_ctx *cx, deft_shape shape, deft_dtype dtype);
DEFT_API deft_tensor *deft_ones(deft_ctx *cx, deft_shape shape, deft_dtype dtype);

/** A tensor whose elements all are value. value must fit dtype, else the status is
 * DEFT_E_RANGE.
 *
 * The value is an argument of the trace: another value reuses the same plan. In C,
 * deft_full also takes an integer and then calls deft_full_i or deft_full_u, which keep all
 * 64 bits. */
DEFT_API deft_tensor *deft_full(deft_ctx *cx, deft_shape shape, deft_dtype dtype, double value);
DEFT_API deft_tensor *deft_full_i(deft_ctx *cx, deft_shape shape, deft_dtype dtype, int64_t value);
DEFT_API deft_tensor *deft_full_u(deft_ctx *cx, deft_shape shape, deft_dtype dtype, uint64_t value);

/** A bare number: a 0-d tensor without a dtype of its own, for calls that take tensors, such
 * as deft_sub(deft_num(cx, 1), x).
 *
 * Wherever the number meets tensors, it takes the dtype to which these promote. There are
 * two exceptions: deft_num makes f32 of integers and bools, and deft_num_i makes i64 of
 * bools. Where a number meets only numbers or nothing, deft_num is f32 and deft_num_i is
 * i64. deft_num_u is the same as deft_num_i for a number that i64 holds. Any other number is
 * u64 where deft_num_i would be i64.
 *
 * A number that does not fit its dtype gives DEFT_E_RANGE at the call that uses it.
 * deft_cast converts the number as it was written. Calls that ask whether it is 0 also look
 * at the number as it was written, such as deft_where and deft_logical_and. */
DEFT_API deft_tensor *deft_num(deft_ctx *cx, double value);
DEFT_API deft_tensor *deft_num_i(deft_ctx *cx, int64_t value);
DEFT_API deft_tensor *deft_num_u(deft_ctx *cx, uint64_t value);

/** The numbers start, start + step, ... while they are below stop, or above it when step is
 * negative. There are ceil((stop - start) / step) elements, or none when that is negative.
 *
 * Element i is start + i * step, computed in dtype. In f16 and bf16 it is computed in f32
 * and rounded once. A step of 0, an infinite start, or more than 2^53 elements give
 * DEFT_E_RANGE. dtype must not be bool. */
DEFT_API deft_tensor *deft_arange(deft_ctx *cx, double start, double stop, double step,
                                  deft_dtype dtype);

/** Like deft_arange for integers. In C, deft_arange calls one of these functions when all three
 * numbers are integers: deft_arange_u when start and stop are unsigned long. Integer dtypes
 * are exact; the first and the last element must fit the dtype. */
DEFT_API deft_tensor *deft_arange_i(deft_ctx *cx, int64_t start, int64_t stop, int64_t step,
                                    deft_dtype dtype);
DEFT_API deft_tensor *deft_arange_u(deft_ctx *cx, uint64_t start, uint64_t stop, int64_t step,
                                    deft_dtype dtype);

/** n numbers from first to last: first + i * ((last - first) / (n - 1)), and exactly last at the
 * end. dtype must be a float. A negative n gives DEFT_E_RANGE. One element is `first`. */
DEFT_API deft_tensor *deft_linspace(deft_ctx *cx, double first, double last, int64_t n,
                                    deft_dtype dtype);

/** A matrix with ones on the main diagonal and zeros elsewhere. */
DEFT_API deft_tensor *deft_eye(deft_ctx *cx, int64_t rows, int64_t columns, deft_dtype dtype);

/** Each element is its own index along axis, as i64. */
DEFT_API deft_tensor *deft_iota(deft_ctx *cx, deft_shape shape, int axis);

/* ---- random numbers: Philox 4x32-10 ----
 *
 * All numbers come from Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as
 * 1, 2, 3", 2011). random.h has more distributions.
 */

/** A stream of random numbers: plain data that the caller owns. Each draw takes the number
 * `next` and adds 1 to it.
 *
 * A drawn value depends on the seed, the number of the draw and the row-major index of the
 * element, and on nothing else. So it is the same under fusion, threads, replay and
 * recomputation. A call that returns NULL takes no number. A step that fails gives no
 * number back, because the deft_rng may no longer exist. To draw the same numbers again,
 * keep a copy of the deft_rng from before the step.
 *
 * Draws inside the function of a loop or branch give DEFT_E_STATE. A NULL rng gives
 * DEFT_E_ARG. */
typedef struct deft_rng {
    uint64_t seed; /**< Chosen by the program. */
    uint64_t next; /**< The number of the next draw; 0 for a new stream of numbers. */
} deft_rng;

/** Uniform numbers in [low, high). Rounding may give `high` itself. dtype must be a float. */
DEFT_API deft_tensor *deft_uniform(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype,
                                   double low, double high);

/** Normal numbers with the given mean and standard deviation (Box and Muller, 1958). dtype
 * must be a float. */
DEFT_API deft_tensor *deft_normal(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype,
                                  double mean, double deviation);

/** Integers in [low, high), where high - low is 1 to 2^31, else DEFT_E_RANGE. dtype must be
 * an integer that holds both ends. The method is multiply and shift: no value is more than
 * (high - low) / 2^32 likelier than another. */
DEFT_API deft_tensor *deft_randint(deft_ctx *cx, deft_rng *rng, deft_shape shape, deft_dtype dtype,
                                   int64_t low, int64_t high);

/* ---- assignment ---- */

/** Gives dst the value of src. When dst is a view, the assignment writes its elements in the
 * tensor that it shows. Every other handle keeps the value that it has. Returns dst.
 *
 * src broadcasts to the shape of dst. The dtypes must be equal, else DEFT_E_DTYPE; a bare
 * number takes the dtype of dst. DEFT_E_STATE is given in three cases:
 *   - the tensor that the view shows was assigned after the view was taken;
 *   - the view was taken outside the outermost scope or step that is now open;
 *   - dst was made outside the loop, branch or deft_vmap function that assigns it.
 *
 * An expanded view cannot be assigned, because its elements share memory: DEFT_E_ARG. */
DEFT_API deft_tensor *deft_assign(deft_tensor *dst, deft_tensor *src);

/** The same with a C number, which must fit the dtype of dst. In C, deft_assign takes
 * numbers and calls these functions. */
DEFT_API deft_tensor *deft_assign_f(deft_tensor *dst, double value);
DEFT_API deft_tensor *deft_assign_i(deft_tensor *dst, int64_t value);
DEFT_API deft_tensor *deft_assign_u(deft_tensor *dst, uint64_t value);

/* ---- views ----
 *
 * A view shows elements of another tensor. Nothing is copied. Assigning to a view writes
 * those elements (deft_assign). A view that is kept becomes a tensor of its own
 * (deft_keep).
 */

/** Selects elements by n ranges, one for each of the first n axes. The other axes are
 * complete. More ranges than axes, and ranges that do not fit, give DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_slice_n(deft_tensor *t, size_t n, const deft_range *ranges);

/** The same elements in row-major order with another shape. One extent may be -1 and is then
 * computed. The number of elements must not change, else DEFT_E_SHAPE. */
DEFT_API deft_tensor *deft_reshape(deft_tensor *t, deft_shape shape);

/** All elements along one axis, in row-major order. */
DEFT_API deft_tensor *deft_flatten(deft_tensor *t);

/** Reorders the axes: axis i of the result is axis order.at[i] of t. Each axis appears once. */
DEFT_API deft_tensor *deft_permute(deft_tensor *t, deft_axes order);

/** Exchanges two axes. */
DEFT_API deft_tensor *deft_transpose(deft_tensor *t, int a, int b);

/** Exchanges the last two axes. t has at least 2 axes. */
DEFT_API deft_tensor *deft_t(deft_tensor *t);

/** Broadcasts t to a shape; an extent of -1 keeps the extent of t. */
DEFT_API deft_tensor *deft_expand(deft_tensor *t, deft_shape shape);

/** Removes axes of extent 1. DEFT_ALL_AXES removes every axis whose extent is 1. */
DEFT_API deft_tensor *deft_squeeze(deft_tensor *t, deft_axes axes);

/** Inserts an axis of extent 1, so that it has the index `axis` in the result. */
DEFT_API deft_tensor *deft_unsqueeze(deft_tensor *t, int axis);

/** Reverses the order of the elements along the axes. */
DEFT_API deft_tensor *deft_flip(deft_tensor *t, deft_axes axes);

/** The elements (i, i + offset) of the matrices that axes a and b form. A negative offset
 * selects a diagonal below the main one. The diagonal becomes the last axis, and a and b
 * disappear. */
DEFT_API deft_tensor *deft_diagonal(deft_tensor *t, int64_t offset, int a, int b);

#ifndef __cplusplus

/** deft_slice(t, DEFT_R(1, -1), DEFT_AT(0)): deft_slice_n over at most 8 ranges. An argument
 * that is no deft_range does not compile. A braced deft_range must stand in parentheses. */
#define deft_slice(t, ...)                                                                         \
    deft_slice_n((t),                                                                              \
                 sizeof((const deft_range[]){ __VA_ARGS__ }) / sizeof(deft_range) +                \
                     DEFT_REQUIRE(DEFT_ARE_RANGES(__VA_ARGS__),                                    \
                                  "deft_slice takes ranges, not numbers: DEFT_R(a, b) for "        \
                                  "elements a to b - 1, DEFT_AT(i) for one, DEFT_FULL for all"),   \
                 (const deft_range[]){ __VA_ARGS__ })
#endif

/* ---- joining, splitting, padding, moving ---- */

/** As an axis of deft_concat, deft_roll and deft_repeat: the tensors are flattened first. */
#define DEFT_FLAT INT32_MIN

/** Joins n tensors along an existing axis. The other extents must agree; dtypes are
 * promoted. With axis DEFT_FLAT the tensors are flattened first, and may have any shapes. A
 * NULL list or an n of 0 gives NULL without a mistake; more than 65536 give DEFT_E_LIMIT. */
DEFT_API deft_tensor *deft_concat(deft_tensor *const *parts, size_t n, int axis);

/** Joins n tensors of equal shape along a new axis, whose index in the result is `axis`. */
DEFT_API deft_tensor *deft_stack(deft_tensor *const *parts, size_t n, int axis);

/** Divides t along axis into n parts of the given sizes, which are written to out[0..n). The
 * parts are views.
 *
 * Returns DEFT_OK, or the status of the mistake. The mistake is also recorded in the
 * context, as that of a recording call is. A NULL t gives DEFT_E_ARG. */
DEFT_API DEFT_MUST_CHECK deft_status deft_split(deft_tensor *t, const int64_t *sizes, size_t n,
                                                int axis, deft_tensor **out);

/** Where the elements that deft_pad adds come from. */
typedef enum deft_pad_mode {
    DEFT_PAD_CONSTANT = 0, /**< the value that is given */
    DEFT_PAD_EDGE = 1,     /**< the nearest element at the edge */
    DEFT_PAD_REFLECT = 2,  /**< the elements mirrored at the edge, which is not repeated */
    DEFT_PAD_WRAP = 3      /**< the elements of the opposite end */
} deft_pad_mode;

/** Adds before[i] elements before and after[i] elements after those of axis i. Both arrays
 * have one entry for each axis of t, at least 0. value is used by DEFT_PAD_CONSTANT alone.
 *
 * NULL arrays and an unknown mode give DEFT_E_ARG. More elements than the mode can take
 * from the axis give DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_pad(deft_tensor *t, const int64_t *before, const int64_t *after,
                               deft_pad_mode mode, double value);

/** The same with an integer value. In C, deft_pad calls this function for an integer. */
DEFT_API deft_tensor *deft_pad_i(deft_tensor *t, const int64_t *before, const int64_t *after,
                                 deft_pad_mode mode, int64_t value);

/** The same with an unsigned integer of 64 bits, which deft_pad in C takes for an unsigned long. */
DEFT_API deft_tensor *deft_pad_u(deft_tensor *t, const int64_t *before, const int64_t *after,
                                 deft_pad_mode mode, uint64_t value);

/** Moves the elements by shift positions along axis. Those that leave one end enter at the
 * other. With axis DEFT_FLAT, the elements move in row-major order, and the shape stays. */
DEFT_API deft_tensor *deft_roll(deft_tensor *t, int64_t shift, int axis);

/** The lower triangle of the last two axes: elements above the given diagonal become 0. t
 * has at least 2 axes. */
DEFT_API deft_tensor *deft_tril(deft_tensor *t, int64_t diagonal);

/** The upper triangle of the last two axes: elements below the given diagonal become 0. t
 * has at least 2 axes. */
DEFT_API deft_tensor *deft_triu(deft_tensor *t, int64_t diagonal);

/* ---- indexing ----
 *
 * Indices are integers, else DEFT_E_DTYPE. A negative index counts from the end. An index
 * out of range is found only when the computation runs. The whole computation then fails
 * with DEFT_E_RANGE, and none of its results exists.
 */

/** The slices of t along axis at the indices. In the result the axes of indices replace that
 * axis. */
DEFT_API deft_tensor *deft_take(deft_tensor *t, deft_tensor *indices, int axis);

/** One element for each index: out[i][j] = t[indices[i][j]][j] for axis 0, and likewise for
 * other axes. indices has the rank of t, and its shape is that of the result. */
DEFT_API deft_tensor *deft_gather(deft_tensor *t, deft_tensor *indices, int axis);

/** A copy of t to which values are added at the indices: out[indices[i][j]][j] +=
 * values[i][j] for axis 0, and likewise for other axes.
 *
 * indices has the rank of t, and along the other axes at most the extents of t. The dtype
 * of t is not bool. values has that dtype, or is a bare number, and broadcasts to the shape
 * of indices.
 *
 * Values are added one after the other, in the row-major order of their indices. The bits
 * are thus the same on any number of threads. Integers wrap. Halves are added in f32 and
 * rounded once. */
DEFT_API deft_tensor *deft_scatter_add(deft_tensor *t, deft_tensor *indices, deft_tensor *values,
                                       int axis);

/** The same with slices along axis: values have the shape of deft_take(t, indices, axis), or
 * broadcast to it. To count: deft_index_add(zeros, indices, deft_num(cx, 1), 0). */
DEFT_API deft_tensor *deft_index_add(deft_tensor *t, deft_tensor *indices, deft_tensor *values,
                                     int axis);

/** A copy of t in which the values replace the elements at the indices: out[indices[i][j]][j] =
 * values[i][j] for axis 0, and likewise for other axes. Shapes are those of deft_scatter_add. The
 * dtype of t is any, and values has that dtype.
 *
 * Where several values have one element, the last of them in row-major order stays. A value that
 * another one replaced has the gradient 0. */
DEFT_API deft_tensor *deft_scatter(deft_tensor *t, deft_tensor *indices, deft_tensor *values,
                                   int axis);

/** The same with slices along axis; shapes are those of deft_index_add. */
DEFT_API deft_tensor *deft_index_copy(deft_tensor *t, deft_tensor *indices, deft_tensor *values,
                                      int axis);

/** What becomes of the values that meet in one element. */
typedef enum deft_scatter_how {
    DEFT_SCATTER_SUM,
    DEFT_SCATTER_PROD, /**< integers wrap */
    DEFT_SCATTER_MEAN, /**< of integers it is rounded down */
    DEFT_SCATTER_AMIN, /**< the least; NaN when one of them is NaN */
    DEFT_SCATTER_AMAX  /**< the greatest; NaN when one of them is NaN */
} deft_scatter_how;

/** A copy of t in which each element at an index is reduced together with its values. Shapes,
 * dtypes and order are those of deft_scatter_add. With include_self, the element of t is one of the
 * reduced numbers. Without it, only the values are. Elements that no index selects keep the value
 * of t in both cases.
 *
 * The gradient of the least and the greatest is divided evenly between all that are equal to it. */
DEFT_API deft_tensor *deft_scatter_reduce(deft_tensor *t, deft_tensor *indices, deft_tensor *values,
                                          int axis, deft_scatter_how how, bool include_self);

/** The same with slices along axis; shapes are those of deft_index_add. */
DEFT_API deft_tensor *deft_index_reduce(deft_tensor *t, deft_tensor *indices, deft_tensor *values,
                                        int axis, deft_scatter_how how, bool include_self);

/** The bits of t as numbers of another dtype. Between dtypes of one size the shape stays. Else the
 * last axis becomes longer or shorter: elements are divided into smaller ones, or joined to larger
 * ones, the low bits first. Neither dtype is bool. There is no gradient. The bits of a NaN that was
 * computed are unspecified. The codes of a storage dtype are u8. Two elements of u4
 * or i4 are one byte. */
DEFT_API deft_tensor *deft_bitcast(deft_tensor *t, deft_dtype dtype);

/** The derivative of that order, 0 to 20, of deft_digamma. Below 0 it is NaN for orders above 1. An
 * integer or bool tensor becomes f32. */
DEFT_API deft_tensor *deft_polygamma(int order, deft_tensor *x);

/** Appends an axis of n_classes elements: 1 at the position that the index names, 0
 * elsewhere. An index outside gives a row of zeros. A negative n_classes, or indices that
 * are no integers, give DEFT_E_ARG. */
DEFT_API deft_tensor *deft_one_hot(deft_tensor *indices, int64_t n_classes, deft_dtype dtype);

/* ---- sorting ---- */

/** The indices, as i64, that put each row along axis in ascending order. When descending is
 * not 0, the greatest element comes first. The result has the shape of t.
 *
 * The sort is stable in both directions: equal elements keep their order. NaN is greater
 * than infinity. All NaNs are equal, and so are -0 and +0. The axis has less than 2^32
 * elements, else DEFT_E_LIMIT. The threads divide the rows. When there are fewer long rows
 * than threads, all threads sort each row together. */
DEFT_API deft_tensor *deft_argsort(deft_tensor *t, int axis, bool descending);

/** The elements in that order: deft_gather(t, deft_argsort(t, axis, descending), axis). */
DEFT_API deft_tensor *deft_sort(deft_tensor *t, int axis, bool descending);

/** The first k elements along axis of deft_sort(t, axis, largest), in that order, without a
 * sort of the rest. So `largest` gives the k greatest elements, with NaN first, and otherwise
 * the k least. Of equal elements, those with lower indices are taken.
 *
 * *indices gets the first k elements of deft_argsort(t, axis, largest), as i64, or NULL when
 * the result is NULL. indices NULL means that they are not wanted. k is an extent, from 0 to
 * that of the axis, else DEFT_E_RANGE. Another k runs the same kernels. */
DEFT_API deft_tensor *deft_topk(deft_tensor *t, int64_t k, int axis, bool largest,
                                deft_tensor **indices);

/* ---- sizes known only by computing ----
 *
 * The extents of every tensor are known when it is recorded. So these calls return `max`
 * rows, and the number of rows that were found comes as data: *count gets a 0-d i64 tensor.
 * It can be read, or used in the trace, for example compared with deft_iota to make a mask.
 *
 *   - The count may be larger than max. Then only the first max rows are returned.
 *   - count NULL means that the number is not wanted.
 *   - Rows from *count on hold 0. This is a valid position wherever the operand has
 *     elements, so that deft_take at unused rows does not fail.
 *   - max is an extent, at least 0, else DEFT_E_RANGE. Another max runs the same kernels.
 *   - When the result is NULL, *count is NULL as well.
 *   - No call here waits for a value.
 */

/** The indices of the elements that are not 0, in row-major order: i64 [max, rank of t]. NaN
 * is not 0. A 0-d t gives [max, 0]. */
DEFT_API deft_tensor *deft_nonzero(deft_tensor *t, int64_t max, deft_tensor **count);

/** The elements of t where mask is true, in row-major order: [max], of the dtype of t. mask
 * is bool, else DEFT_E_DTYPE, and broadcasts to the shape of t. */
DEFT_API deft_tensor *deft_compress(deft_tensor *t, deft_tensor *mask, int64_t max,
                                    deft_tensor **count);

/** The distinct values among all elements of t, in ascending order: [max], of the dtype of
 * t.
 *
 * All NaNs are one value, which comes last. The zeros -0 and +0 are one value, with the
 * sign of the first in row-major order. Complex numbers come in the order of their real parts, then
 * of their imaginary parts. t has less than 2^32 elements, else DEFT_E_LIMIT. */
DEFT_API deft_tensor *deft_unique(deft_tensor *t, int64_t max, deft_tensor **count);

/* ---- elementwise with other arguments ---- */

/** t in another dtype. A float that becomes an integer is truncated and saturates; NaN
 * becomes 0. docs/storage.md has the rules of storage dtypes. */
DEFT_API deft_tensor *deft_cast(deft_tensor *t, deft_dtype dtype);

/** Each element is that of a where the condition is not 0, else that of b. All three
 * broadcast. a and b are promoted to one dtype. */
DEFT_API deft_tensor *deft_where(deft_tensor *condition, deft_tensor *a, deft_tensor *b);

/** a * b + c, rounded once. The operands broadcast and are promoted; integers and bools become
 * f32. */
DEFT_API deft_tensor *deft_fma(deft_tensor *a, deft_tensor *b, deft_tensor *c);

/** The elements of t, limited to low from below and to high from above. NaN stays NaN. The
 * bounds must fit the dtype of t; where low is greater than high, the result is high. */
DEFT_API deft_tensor *deft_clamp(deft_tensor *t, double low, double high);

/** The same with integer bounds. In C, deft_clamp calls this function when both are
 * integers. */
DEFT_API deft_tensor *deft_clamp_i(deft_tensor *t, int64_t low, int64_t high);

/** The same with unsigned bounds of 64 bits. In C, deft_clamp calls this function when both are
 * unsigned long. */
DEFT_API deft_tensor *deft_clamp_u(deft_tensor *t, uint64_t low, uint64_t high);

/** The same with tensors, which broadcast and are promoted. A bound that is NULL does not
 * exist. */
DEFT_API deft_tensor *deft_clamp_t(deft_tensor *t, deft_tensor *low, deft_tensor *high);

/** a + weight * (b - a), with broadcasting and promotion. In C, deft_lerp also takes a
 * number as weight and calls the functions that follow. */
DEFT_API deft_tensor *deft_lerp(deft_tensor *a, deft_tensor *b, deft_tensor *weight);
DEFT_API deft_tensor *deft_lerp_f(deft_tensor *a, deft_tensor *b, double weight);
DEFT_API deft_tensor *deft_lerp_i(deft_tensor *a, deft_tensor *b, int64_t weight);
DEFT_API deft_tensor *deft_lerp_u(deft_tensor *a, deft_tensor *b, uint64_t weight);

/* ---- reductions ----
 *
 * The axes are DEFT_ALL_AXES or a list. With keepdims other than 0 they stay with extent 1;
 * otherwise they disappear. In strict mode the order of additions is fixed, so that the
 * bits do not depend on the number of threads.
 */

/** The sum. Unsigned integers are added in u64, other integers and bools in i64. */
DEFT_API deft_tensor *deft_sum(deft_tensor *t, deft_axes axes, bool keepdims);

/** The product. Unsigned integers are multiplied in u64, other integers and bools in i64. */
DEFT_API deft_tensor *deft_prod(deft_tensor *t, deft_axes axes, bool keepdims);

/** The least and the greatest element; NaN when any element is NaN. */
DEFT_API deft_tensor *deft_min(deft_tensor *t, deft_axes axes, bool keepdims);
DEFT_API deft_tensor *deft_max(deft_tensor *t, deft_axes axes, bool keepdims);

/** The sum divided by the number of elements. Integers are averaged in f32. */
DEFT_API deft_tensor *deft_mean(deft_tensor *t, deft_axes axes, bool keepdims);

/** The variance: sum((x - mean)^2) / max(count - ddof, 0), in two passes.
 *
 * As in NumPy, the variance of no elements is NaN. When there are no more than ddof
 * elements it is infinity, or NaN when the elements are equal. */
DEFT_API deft_tensor *deft_var(deft_tensor *t, deft_axes axes, bool keepdims, int ddof);

/** Whether any element, or every element, is not 0. The result is bool. */
DEFT_API deft_tensor *deft_any(deft_tensor *t, deft_axes axes, bool keepdims);
DEFT_API deft_tensor *deft_all(deft_tensor *t, deft_axes axes, bool keepdims);

/** The index, as i64, of the first least element; of the first NaN when there is one. Over
 * several axes the index is row-major. */
DEFT_API deft_tensor *deft_argmin(deft_tensor *t, deft_axes axes, bool keepdims);

/** The same for the greatest element. */
DEFT_API deft_tensor *deft_argmax(deft_tensor *t, deft_axes axes, bool keepdims);

/** Running sums along axis, added in order. Unsigned integers are added in u64, other integers
 * and bools in i64. */
DEFT_API deft_tensor *deft_cumsum(deft_tensor *t, int axis);

/** Running products along axis, multiplied in order. Integers and bools are multiplied in the
 * dtype in which deft_cumsum adds them. */
DEFT_API deft_tensor *deft_cumprod(deft_tensor *t, int axis);

/** The least and the greatest element so far along axis. From the first NaN on, the result is
 * NaN. The gradient goes to the last of equal elements. Bools give DEFT_E_DTYPE. */
DEFT_API deft_tensor *deft_cummin(deft_tensor *t, int axis);
DEFT_API deft_tensor *deft_cummax(deft_tensor *t, int axis);

/* ---- products, normalization, losses ---- */

/** The matrix product of [..., M, K] and [..., K, N]. The axes before the last two
 * broadcast. A 1-d operand is a row on the left, or a column on the right; its axis
 * disappears from the result. A 0-d operand gives DEFT_E_SHAPE. Dtypes are promoted; bools
 * become f32. Products of integers are exact, and wrap as integers do. */
DEFT_API deft_tensor *deft_matmul(deft_tensor *a, deft_tensor *b);

/** exp(x) divided by the sum of exp(x) along axis. The maximum is subtracted first, so that
 * exp does not overflow. When the axis has no elements, the result has none. */
DEFT_API deft_tensor *deft_softmax(deft_tensor *t, int axis);

/** The logarithm of deft_softmax, computed without forming the quotient. */
DEFT_API deft_tensor *deft_log_softmax(deft_tensor *t, int axis);

/** (x - mean) / sqrt(var + eps) over the last n_axes axes, where var has ddof 0. The result
 * is multiplied by gain and bias is added, unless they are NULL (Ba, Kiros and Hinton,
 * 2016).
 *
 * n_axes is 1 to the rank of t, else DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_layer_norm(deft_tensor *t, uint32_t n_axes, deft_tensor *gain,
                                      deft_tensor *bias, double eps);

/** The mean over rows of -log_softmax(logits)[row, label[row]]. logits is [n, classes],
 * labels are integers [n], else DEFT_E_SHAPE. A label that is no class contributes NaN. */
DEFT_API deft_tensor *deft_cross_entropy(deft_tensor *logits, deft_tensor *labels);

#ifdef __cplusplus
}
#endif

#if !defined(__cplusplus) && !defined(DEFT_NO_GENERIC)
/** In C, these macros choose the function by the types of the numbers. Defining
 * DEFT_NO_GENERIC before the first header of deft is included leaves them out. */
#define deft_full(...)                                                                             \
    DEFT_PICK_OF((DEFT_LAST(__VA_ARGS__)), deft_full, deft_full_i, deft_full_u, deft_full)         \
    (__VA_ARGS__)
#define deft_pad(...)                                                                              \
    DEFT_PICK_OF((DEFT_LAST(__VA_ARGS__)), deft_pad, deft_pad_i, deft_pad_u, deft_pad)(__VA_ARGS__)
#define deft_clamp(t, low, high)                                                                   \
    DEFT_PICK_OF(                                                                                  \
        (low) + (high), deft_clamp, deft_clamp_i,                                                  \
        DEFT_PICK_OF((low), deft_clamp_i, deft_clamp_i,                                            \
                     DEFT_PICK_OF((high), deft_clamp_i, deft_clamp_i, deft_clamp_u, deft_clamp_i), \
                     deft_clamp_i),                                                                \
        deft_clamp)                                                                                \
    ((t), (low), (high))
#define deft_arange(cx, start, stop, step, dtype)                                                  \
    DEFT_PICK_OF((start) + (stop) + (step), deft_arange, deft_arange_i,                            \
                 DEFT_PICK_OF((start), deft_arange_i, deft_arange_i,                               \
                              DEFT_PICK_OF((stop), deft_arange_i, deft_arange_i, deft_arange_u,    \
                                           deft_arange_i),                                         \
                              deft_arange_i),                                                      \
                 deft_arange)                                                                      \
    ((cx), (start), (stop), (step), (dtype))
#endif

#endif
