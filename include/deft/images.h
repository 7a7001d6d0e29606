/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of images with one to three axes: convolutions, pools, windows, resampling.
 * layers.h has the convolution and the pools of images with two axes alone.
 *
 * The rules of layers.h hold. An image tensor x is [N, C, ...]: N images with C channels and
 * one to three further axes, which are called sides here: [N, C, W], [N, C, H, W] or
 * [N, C, D, H, W].
 *
 * An option that is a list has a number for each side: .stride = { 2, 1 }. Where 0 has no
 * meaning, a 0 after the first number means "as the first": .stride = 2 is { 2, 2, 2 }. A
 * padding of 0 has a meaning. So .padding = 1 without braces, in one of the macros below, gives
 * DEFT_E_ARG when there is more than one side.
 *
 * A size of 0 in options gives DEFT_E_ARG. An option that is out of its range gives DEFT_E_ARG,
 * and shapes that do not fit give DEFT_E_SHAPE. A window of more than 65536 elements gives
 * DEFT_E_LIMIT.
 */
#ifndef DEFT_IMAGES_H
#define DEFT_IMAGES_H

#include "deft/layers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- convolutions ---- */

/** Options of deft_conv and deft_conv_transpose. DEFT_CONV(...) makes them in C. */
typedef struct deft_conv_options {
    size_t size;               /**< sizeof(deft_conv_options) */
    int64_t stride[3];         /**< Elements between windows. First 0: 1. */
    int64_t padding[3];        /**< Zeros that are added at either end of a side. */
    int64_t dilation[3];       /**< Elements between neighbouring weights. First 0: 1. */
    int64_t output_padding[3]; /**< deft_conv_transpose: elements more at the end of a side. */
    int64_t groups;            /**< Groups of channels, each with weights of its own. 0: 1. */
    deft_tensor *bias;         /**< [out]; NULL: none. */
    const char *written;       /**< Text of DEFT_CONV's arguments, for messages; else NULL. */
} deft_conv_options;

/** The cross-correlation of images x [N, in, ...] with weights w [out, in / groups, ...], which
 * have an extent for each side. The result is [N, out, ...]; deft_conv2d says which extents it
 * has, and how dtypes are chosen. options NULL means defaults.
 *
 * One side is computed as rows of one row each. With three sides, the planes under a window
 * become channels: x is copied once for each plane of the window, and the rest is deft_conv2d.
 * In strict mode each element is one chain of fma over (channel, position in the window). */
DEFT_API deft_tensor *deft_conv(deft_tensor *x, deft_tensor *w, const deft_conv_options *options);

/** The transposed convolution, which is the gradient of deft_conv with respect to its images: of
 * images x [N, in, ...] and weights w [in, out / groups, ...]. The result is [N, out, ...], with
 *
 *     extent = (extent of x - 1) * stride - 2 padding + dilation (kernel - 1) + output_padding + 1
 *
 * for each side, which must be at least 1. output_padding is less than the stride or the dilation
 * of its side.
 *
 * The elements that the same weights reach form a phase. There is one for each remainder of the
 * stride. Each phase is a convolution that moves by 1, so that nothing is multiplied by zeros
 * between elements. */
DEFT_API deft_tensor *deft_conv_transpose(deft_tensor *x, deft_tensor *w,
                                          const deft_conv_options *options);

/* ---- pools ---- */

/** Options of pools and of windows. DEFT_POOL(...) makes them in C. */
typedef struct deft_pool_options {
    size_t size;         /**< sizeof(deft_pool_options) */
    int64_t kernel[3];   /**< Elements of a window, at least 1. */
    int64_t stride[3];   /**< Elements between windows. First 0: as kernel. */
    int64_t padding[3];  /**< Elements added at either end; at most half of the window. */
    int64_t dilation[3]; /**< Elements between those of a window. First 0: 1. */
    bool ceil_mode;      /**< Windows may reach beyond the padding, if they begin before its end. */
    bool excludes_padding; /**< Mean: padding does not count. */
    int64_t divisor;       /**< Mean: divides each sum. 0: the number of elements that count. */
    const char *written;   /**< Text of DEFT_POOL's arguments, for messages; else NULL. */
} deft_pool_options;

/** The greatest element of each window of x, which has floats. The result is [N, C, ...].
 *
 * NaN is greater than all numbers, and all NaNs are equal. Of equal elements the first in
 * row-major order gets the gradient. Padding is -infinity and gets no gradient.
 *
 * *indices gets, as i64, the place of that element: its row-major index within its image and
 * channel. Where a window has no element of the image, the index has no meaning. indices NULL
 * means that they are not wanted. */
DEFT_API deft_tensor *deft_max_pool(deft_tensor *x, const deft_pool_options *options,
                                    deft_tensor **indices);

/** The reverse of deft_max_pool with its indices: images [N, C, ...] with the extents `sides`. Each
 * element of x is at its index in them, and the others are 0. x and indices have one shape. Of
 * elements with one index the last stays, and gets the gradient. An index that is out of range is
 * found when the computation runs, as by deft_take. */
DEFT_API deft_tensor *deft_max_unpool(deft_tensor *x, deft_tensor *indices, deft_shape sides);

/** The mean of each window: its sum in row-major order, divided. Padding is 0 and counts, unless
 * options say otherwise. What windows have beyond the padding never counts. */
DEFT_API deft_tensor *deft_avg_pool(deft_tensor *x, const deft_pool_options *options);

/** The mean, or the greatest element, of the windows that divide side i into out.dim[i] parts.
 * Window o of n is from floor(o * extent / n) to before ceil((o + 1) * extent / n). out has a
 * positive extent for each side. The sides are reduced one after another, the last first. Equal
 * elements share the gradient of the maximum. */
DEFT_API deft_tensor *deft_adaptive_avg_pool(deft_tensor *x, deft_shape out);
DEFT_API deft_tensor *deft_adaptive_max_pool(deft_tensor *x, deft_shape out);

/** The windows of x as columns: [N, C * elements of a window, windows], both in row-major order.
 * Padding is 0. The stride is 1 when options say nothing else. */
DEFT_API deft_tensor *deft_unfold(deft_tensor *x, const deft_pool_options *options);

/** The reverse: images [N, C, ...] with the extents `sides`, in which each element is the sum of
 * its places in the columns x, [N, C * elements of a window, windows]. It is the gradient of
 * deft_unfold. x has floats, and is not a half. */
DEFT_API deft_tensor *deft_fold(deft_tensor *x, deft_shape sides, const deft_pool_options *options);

/* ---- resampling ---- */

/** How elements between those of an image are found. */
typedef enum deft_interpolation {
    DEFT_NEAREST = 0, /**< The element before, or for a grid the nearest one. */
    DEFT_LINEAR = 1,  /**< On the line between two elements, along each side. */
    DEFT_CUBIC = 2,   /**< Keys 1981, with a = -0.75, along each side. */
    DEFT_AREA = 3     /**< deft_adaptive_avg_pool; deft_interpolate alone. */
} deft_interpolation;

/** What is beyond the edges of an image. */
typedef enum deft_border {
    DEFT_BORDER_ZEROS = 0,     /**< Zeros. */
    DEFT_BORDER_NEAREST = 1,   /**< The element at the edge. */
    DEFT_BORDER_REFLECTION = 2 /**< The image, mirrored. */
} deft_border;

/** Options of deft_interpolate and deft_grid_sample. DEFT_SAMPLING(...) makes them in C. */
typedef struct deft_sampling_options {
    size_t size;             /**< sizeof(deft_sampling_options) */
    deft_interpolation mode; /**< How elements between others are found. */
    bool is_aligned;         /**< Corners are centres of elements; else they are edges. */
    /** deft_interpolate: factors of the sides, above 0. First 0: the quotient of the extents. A 0
     * after the first number means "as the first". */
    double scale[3];
    /** deft_interpolate: where an image shrinks, more elements take part, as many as its scale asks
     * for. LINEAR and CUBIC, not aligned. CUBIC then has a = -0.5. */
    bool antialias;
    deft_border border; /**< deft_grid_sample: what is beyond the edges. */
} deft_sampling_options;

/** Images x [N, C, ...] with other extents. `sides` has the new extents. With rank 0, they are
 * floor(extent * scale). The sides are resampled one after another, the last first. x has floats.
 *
 * Element o of a side is at (o + 1/2) / scale - 1/2, or aligned at o * (extent - 1) / (new extent -
 * 1). The nearest mode takes the element floor(o / scale), and cannot be aligned. */
DEFT_API deft_tensor *deft_interpolate(deft_tensor *x, deft_shape sides,
                                       const deft_sampling_options *options);

/** The images x [N, C, H, W] at the places of grid [N, Ho, Wo, 2], as [N, C, Ho, Wo]. Or x is
 * [N, C, D, H, W], and the grid [N, Do, Ho, Wo, 3]. The numbers of a place are for columns, rows
 * and planes, in this order, from -1 at one end to 1 at the other. NaN counts as -1.
 *
 * x and the grid have gradients. Both are floats, and the result has the dtype of x. */
DEFT_API deft_tensor *deft_grid_sample(deft_tensor *x, deft_tensor *grid,
                                       const deft_sampling_options *options);

#ifndef __cplusplus
/** Options in C, from designated initializers; they live until the end of the block. */
#define DEFT_CONV(...)                                                                             \
    (&(const deft_conv_options){                                                                   \
        .written = DEFT_TEXT(__VA_ARGS__), .size = sizeof(deft_conv_options), __VA_ARGS__ })
#define DEFT_SAMPLING(...)                                                                         \
    (&(const deft_sampling_options){ .size = sizeof(deft_sampling_options), __VA_ARGS__ })
#define DEFT_POOL(...)                                                                             \
    (&(const deft_pool_options){                                                                   \
        .written = DEFT_TEXT(__VA_ARGS__), .size = sizeof(deft_pool_options), __VA_ARGS__ })
#endif

#ifdef __cplusplus
}
#endif
#endif
