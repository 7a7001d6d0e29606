/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers of networks: convolution, pooling, normalization, embedding, attention. Names and
 * defaults are those of PyTorch.
 *
 * Each layer is recorded as ordinary operations, which are fused with the operations around
 * them. All have gradients (grad.h), and gradients of gradients.
 *
 * Rules for all functions here, unless a comment says otherwise:
 *   - They are recording calls, and the rules of tensor.h hold. The innermost open scope
 *     owns the result. NULL means a mistake, and an operand that is NULL gives NULL.
 *     context.h has the error rule.
 *   - Tensors and options are borrowed, and read during the call only. options NULL means
 *     defaults. A size of 0 in options gives DEFT_E_ARG.
 *   - A context and its tensors belong to one thread at a time.
 *
 * Images are [N, C, H, W]: N images, C channels, H rows, W columns.
 *
 * An option of two numbers is for rows and for columns: DEFT_CONV2D(.stride = { 2, 1 }).
 * Where 0 has no meaning for columns, 0 means "as for rows": .stride = 2 is { 2, 2 }. A
 * padding of 0 columns has a meaning. So .padding = 1 without braces, in one of the macros
 * below, gives DEFT_E_ARG.
 */
#ifndef DEFT_LAYERS_H
#define DEFT_LAYERS_H

#include "deft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- mixed precision ---- */

/** Sets the policy of mixed precision of cx (Micikevicius et al. 2018, docs/mixed.md), and
 * returns the policy before the call, so that the program can restore it.
 *
 * low is DEFT_F16 or DEFT_BF16, or DEFT_F32 for no policy, as in a new context. The policy
 * holds for all operations that are recorded later:
 *   - products, convolutions and attention cast f32 operands to `low`, which is also the
 *     dtype of their result;
 *   - exponentials, logarithms, powers, sums, means, norms, softmax and losses cast halves
 *     to f32;
 *   - all others promote their operands as usual. f64 and integers are left alone.
 *
 * Gradients follow the dtypes of the forward pass: the gradient of an f32 parameter is f32.
 * The call is allowed anywhere, in a captured function too. The end of a scope, or a step
 * that fails, does not change the policy.
 *
 * Another dtype changes nothing and is a mistake, DEFT_E_DTYPE. cx NULL gives DEFT_F32. */
DEFT_API deft_dtype deft_mixed_set(deft_ctx *cx, deft_dtype low);

/* ---- images ---- */

/** Options of deft_conv2d. DEFT_CONV2D(...) makes them in C. */
typedef struct deft_conv2d_options {
    size_t size;         /**< sizeof(deft_conv2d_options) */
    int64_t stride[2];   /**< Pixels between windows. Rows 0: 1; columns 0: as rows. */
    int64_t padding[2];  /**< Rows and columns of zeros that are added on either side. */
    int64_t dilation[2]; /**< Pixels between neighbouring weights. Rows 0: 1; columns 0: as rows. */
    int64_t groups;      /**< Groups of channels, each with weights of its own. 0: 1. */
    deft_tensor *bias;   /**< [out]; NULL: none. */
    const char *written; /**< Text of DEFT_CONV2D's arguments, for messages; else NULL. */
} deft_conv2d_options;

/** The cross-correlation of images x [N, in, H, W] with weights w [out, in / groups, kh, kw].
 * The result is [N, out, Ho, Wo], with
 *
 *     Ho = floor((H + 2 padding - dilation (kh - 1) - 1) / stride) + 1
 *
 * for rows, and Wo likewise for columns. Both must be at least 1. Operands are promoted, and
 * integers become f32. bias is cast to the dtype of the result.
 *
 * This is one matrix product with all windows, [in * kh * kw, N * Ho * Wo]. The CPU reads them
 * from x and does not store them, except under deft_vmap. A GPU stores them. In strict mode
 * each element is one chain of fma over (channel, row, column), in that order, on any number of
 * threads. The result is stored with its channels outermost, and later operations read it
 * through strides.
 *
 * DEFT_E_SHAPE: ranks, channels, groups, bias or the size of a window do not fit.
 * DEFT_E_ARG: an option is negative. DEFT_E_LIMIT: a window has more than 65536 elements. */
DEFT_API deft_tensor *deft_conv2d(deft_tensor *x, deft_tensor *w,
                                  const deft_conv2d_options *options);

/** Options of the pools. DEFT_POOL2D(...) makes them in C. */
typedef struct deft_pool2d_options {
    size_t size;         /**< sizeof(deft_pool2d_options) */
    int64_t kernel[2];   /**< Rows and columns of a window, at least 1. Columns 0: as rows. */
    int64_t stride[2];   /**< Pixels between windows. 0: as kernel; columns alone 0: as rows. */
    int64_t padding[2];  /**< Rows and columns added on either side; at most half of kernel. */
    const char *written; /**< Text of DEFT_POOL2D's arguments, for messages; else NULL. */
} deft_pool2d_options;

/** The greatest element of each window of the images x [N, C, H, W], which are floats. The
 * result is [N, C, Ho, Wo] with the extents of deft_conv2d at dilation 1.
 *
 * NaN is greater than all numbers, and all NaNs are equal. Of equal elements the first in
 * row-major order gets the gradient. Padding is -infinity and gets no gradient.
 *
 * options NULL gives DEFT_E_ARG, because a kernel is needed. DEFT_E_ARG: an option is out of
 * its range. DEFT_E_DTYPE: x is no float. DEFT_E_SHAPE: x has not 4 axes, or a window does
 * not fit. DEFT_E_LIMIT: a window has more than 65536 elements. */
DEFT_API deft_tensor *deft_max_pool2d(deft_tensor *x, const deft_pool2d_options *options);

/** The mean of each window: the sum in row-major order, divided by the number of elements of
 * the window. Padding is 0 and counts. Everything else is as in deft_max_pool2d. */
DEFT_API deft_tensor *deft_avg_pool2d(deft_tensor *x, const deft_pool2d_options *options);

/* ---- rows ---- */

/** t / sqrt(mean(t * t) + eps), with the mean over the last n_axes axes. The result is
 * multiplied by gain, which broadcasts, unless gain is NULL (Zhang and Sennrich 2019).
 * Operands are promoted, and integers become f32.
 *
 * n_axes is 1 to the rank of t, else DEFT_E_RANGE. */
DEFT_API deft_tensor *deft_rms_norm(deft_tensor *t, uint32_t n_axes, deft_tensor *gain, double eps);

/** Options of deft_batch_norm, deft_group_norm and deft_instance_norm. DEFT_NORM(...) makes them in
 * C. */
typedef struct deft_norm_options {
    size_t size;         /**< sizeof(deft_norm_options) */
    deft_tensor *weight; /**< Factor of each channel [C]; NULL: none. */
    deft_tensor *bias;   /**< What is added to each channel [C]; NULL: none. */
    double eps;          /**< What is added to variances. 0: 1e-5. */
    deft_tensor *mean;   /**< deft_batch_norm: the running mean [C]; NULL: none. */
    deft_tensor *var;    /**< deft_batch_norm: the running variance [C]; NULL: none. */
    bool training;       /**< deft_batch_norm: uses and updates the statistics of the batch. */
    double momentum;     /**< deft_batch_norm: weight of the new statistics. 0: 0.1. */
} deft_norm_options;

/** (x - mean) / sqrt(var + eps) * weight + bias for x [N, C, ...], with a mean and a variance for
 * each channel over all other axes (Ioffe and Szegedy 2015).
 *
 * In training, or when there are no running statistics, mean and variance are those of x. The
 * variance has ddof 0. In training the running statistics, when given, are assigned: r + momentum
 * (new - r), where the new variance has ddof 1. The assignment follows the rules of deft_assign.
 * Otherwise the running statistics are used. Integers become f32. options NULL means defaults.
 *
 * DEFT_E_SHAPE: x has less than 2 axes, or a tensor of options is not [C]. DEFT_E_ARG: only one of
 * mean and var is given, or a number is not finite. */
DEFT_API deft_tensor *deft_batch_norm(deft_tensor *x, const deft_norm_options *options);

/** The same with a mean and a variance for each image and each of `groups` groups of channels (Wu
 * and He 2018). deft_instance_norm has a group for each channel. They take weight, bias and eps;
 * other options give DEFT_E_ARG. DEFT_E_SHAPE: C is no multiple of groups. */
DEFT_API deft_tensor *deft_group_norm(deft_tensor *x, int64_t groups,
                                      const deft_norm_options *options);
DEFT_API deft_tensor *deft_instance_norm(deft_tensor *x, const deft_norm_options *options);

/** The rows of table [entries, ...] at the indices, which are integers of any shape. The axes
 * of indices come first: [their shape, ...]. This is deft_take along axis 0, with its rule
 * for indices (tensor.h). In the gradient, the rows of equal indices are added in row-major
 * order of the indices.
 *
 * DEFT_E_SHAPE: the table has no axis, or the indices are no integers. */
DEFT_API deft_tensor *deft_embedding(deft_tensor *table, deft_tensor *indices);

/* ---- attention ---- */

/** The number of keys in a block of deft_attention. The block is part of what deft_attention
 * computes, so that the bits of results are the same on every machine. */
#define DEFT_ATTENTION_BLOCK 128

/** Options of deft_attention. DEFT_ATTENTION(...) makes them in C. */
typedef struct deft_attention_options {
    size_t size;    /**< sizeof(deft_attention_options) */
    double scale;   /**< Factor of the scores. 0: 1 / sqrt(D). */
    bool is_causal; /**< Query i uses the keys 0 to i only. */
    /** Broadcasts to scores [..., S, T]. A bool says which keys a query sees; floats are added to
     * the scores, and have a gradient. A query that sees no key has the result 0. NULL: none. */
    deft_tensor *mask;
    /** Query i sees only keys at a distance of less than `window` from key i. 0: all. */
    int64_t window;
    /** Causality and window are those of queries at the end of the keys: query i is at key i + T -
     * S, as when a text is continued. */
    bool is_at_end;
    /** The heads, on axis -3, are more in q than in k and v. Heads of q that are next to each other
     * share one head of k and v. */
    bool has_grouped_heads;
    double cap; /**< Scores s become cap * tanh(s / cap), before any mask. 0: no cap. */
} deft_attention_options;

/** Attention: softmax(q k^T * scale) v, for q [..., S, D], k [..., T, D] and v [..., T, E]. The
 * result is [..., S, E]. S is the number of queries and T the number of keys, at least 1.
 *
 * The axes before the last two broadcast. Operands have 2 to DEFT_MAX_RANK - 1 axes, and are
 * floats of one dtype. Halves are computed in f32, and the result is rounded once.
 *
 * The memory of a mask is that of the caller. With a mask, a window, a cap or is_at_end, a GPU runs
 * the ordinary operations and not its own attention.
 *
 * Up to DEFT_ATTENTION_BLOCK keys, or up to 16 queries, all [S, T] scores are stored. Otherwise
 * a loop over blocks of keys carries a running maximum and sum (Dao et al., "FlashAttention",
 * 2022). At most [S, DEFT_ATTENTION_BLOCK] scores are stored then. When the last block is not
 * full, the loop copies k and v and pads them with zeros. The number of queries changes no bit of
 * a strict result. The gradient is another such loop, which computes the scores again. Gradients
 * of gradients store all scores.
 *
 * DEFT_E_SHAPE: the shapes do not fit, or T is 0. DEFT_E_DTYPE: the operands are not floats
 * of one dtype. DEFT_E_ARG: window or cap is negative. */
DEFT_API deft_tensor *deft_attention(deft_tensor *q, deft_tensor *k, deft_tensor *v,
                                     const deft_attention_options *options);

#ifndef __cplusplus
/** Options in C, from designated initializers; they live until the end of the block:
 * deft_max_pool2d(x, DEFT_POOL2D(.kernel = { 2, 2 })). Members that are not named are 0. */
#define DEFT_ATTENTION(...)                                                                        \
    (&(const deft_attention_options){ .size = sizeof(deft_attention_options), __VA_ARGS__ })
#define DEFT_NORM(...)                                                                             \
    (&(const deft_norm_options){ .size = sizeof(deft_norm_options), __VA_ARGS__ })
#define DEFT_CONV2D(...)                                                                           \
    (&(const deft_conv2d_options){                                                                 \
        .written = DEFT_TEXT(__VA_ARGS__), .size = sizeof(deft_conv2d_options), __VA_ARGS__ })
#define DEFT_POOL2D(...)                                                                           \
    (&(const deft_pool2d_options){                                                                 \
        .written = DEFT_TEXT(__VA_ARGS__), .size = sizeof(deft_pool2d_options), __VA_ARGS__ })
#endif

#ifdef __cplusplus
}
#endif
#endif
