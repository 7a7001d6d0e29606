/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers of networks: convolution, pooling, normalization, embedding, attention. Each is recorded
 * as ordinary operations, which are fused with what stands around them; all have gradients
 * (deft/grad.h), and gradients of those.
 *
 * Recording calls: NULL means a mistake (deft/context.h says which call delivers it). Results
 * belong to the innermost open scope. A context and its tensors belong to one thread at a time.
 *
 * Images are [N, C, H, W]: of a batch, channels, rows, columns. An option of two numbers is for
 * rows and columns: DEFT_CONV2D(.stride = { 2, 1 }). Where 0 columns have no meaning, they are as
 * the rows, so that .stride = 2 is { 2, 2 }. Padding of 0 columns has one: .padding = 1 without
 * braces, in one of the macros below, is an error. Defaults and names are PyTorch's.
 */
#ifndef DEFT_LAYERS_H
#define DEFT_LAYERS_H

#include "deft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- mixed precision ---- */

/* From here on, until told otherwise (Micikevicius et al. 2018, docs/mixed.md): products,
 * convolutions and attention take f32 operands in `low`, DEFT_F16 or DEFT_BF16, which is then their
 * result's dtype; exponentials, logarithms, powers, sums, means, norms, softmax and losses take
 * halves in f32; where operands meet, the promoted dtype holds, as always. f64 and integers are
 * left alone. Gradients follow the dtypes of the forward pass: of an f32 parameter they are f32.
 *
 * DEFT_F32: no policy, as in a new context. Returns what it was, to be set again; a failure changes
 * nothing: DEFT_E_DTYPE, and DEFT_F32 for a NULL cx. Allowed anywhere, in a captured function too;
 * nothing else changes it, the end of a scope or a failed step neither. */
DEFT_API deft_dtype deft_mixed_set(deft_ctx *cx, deft_dtype low);

/* ---- images ---- */

typedef struct deft_conv2d_options {
    size_t size;         /* sizeof(deft_conv2d_options) */
    int64_t stride[2];   /* 0: 1; columns 0: as rows */
    int64_t padding[2];  /* rows and columns of zeros on either side */
    int64_t dilation[2]; /* from one weight to the next, in pixels; 0: 1; columns 0: as rows */
    int64_t groups;      /* of channels, each with weights of its own; 0: 1 */
    deft_tensor *bias;   /* [out]; NULL: none */
    const char *written; /* the text of DEFT_CONV2D's arguments, for errors; else NULL */
} deft_conv2d_options;

/* Cross-correlation: x [N, in, H, W] with w [out, in / groups, kh, kw] gives [N, out, Ho, Wo], Ho =
 * (H + 2 padding - dilation (kh - 1) - 1) / stride + 1 rounded down, at least 1. Floats; of two
 * dtypes the promoted one. options NULL: defaults.
 *
 * Windows are laid out in memory, [in * kh * kw, N * Ho * Wo], for one matrix product: each element
 * is one chain of fma over (channel, row, column) in that order, on any number of threads. In
 * memory the channels of the result are outermost: what follows reads it through strides. */
DEFT_API deft_tensor *deft_conv2d(deft_tensor *x, deft_tensor *w,
                                  const deft_conv2d_options *options);

typedef struct deft_pool2d_options {
    size_t size;         /* sizeof(deft_pool2d_options) */
    int64_t kernel[2];   /* rows and columns of a window: at least 1; columns 0: as rows */
    int64_t stride[2];   /* 0: as kernel; columns alone 0: as rows */
    int64_t padding[2];  /* on either side; at most half of kernel */
    const char *written; /* the text of DEFT_POOL2D's arguments, for errors; else NULL */
} deft_pool2d_options;

/* The greatest of each window of x [N, C, H, W], a float. NaN is greater than all else, and all
 * NaNs are equal. Of equal elements the first in row-major order gets the gradient; padding is
 * -infinity and gets none. */
DEFT_API deft_tensor *deft_max_pool2d(deft_tensor *x, const deft_pool2d_options *options);

/* The mean of each window: its sum, in row-major order, over the window's size; padding is 0 and
 * counted. */
DEFT_API deft_tensor *deft_avg_pool2d(deft_tensor *x, const deft_pool2d_options *options);

/* ---- rows ---- */

/* x / sqrt(mean(x * x) + eps) over the last n_axes axes; then * gain when it is not NULL (Zhang,
 * Sennrich 2019). */
DEFT_API deft_tensor *deft_rms_norm(deft_tensor *t, uint32_t n_axes, deft_tensor *gain, double eps);

/* Rows of table [entries, ...] at the indices, whose axes come first: deft_take along axis 0, with
 * its rule for indices. Equal indices add up in the gradient, in their row-major order. */
DEFT_API deft_tensor *deft_embedding(deft_tensor *table, deft_tensor *indices);

/* ---- attention ---- */

/* Keys that are looked at together: part of what deft_attention computes, whatever the machine. */
#define DEFT_ATTENTION_BLOCK 128

typedef struct deft_attention_options {
    size_t size;    /* sizeof(deft_attention_options) */
    double scale;   /* of the scores; 0: 1 / sqrt(D) */
    bool is_causal; /* row i looks at keys 0 .. i alone */
} deft_attention_options;

/* softmax(q k^T * scale) v for q [..., S, D], k [..., T, D], v [..., T, E]: [..., S, E]. Batch axes
 * broadcast; floats of one dtype; T at least 1; at most 7 axes. options NULL: defaults.
 *
 * Up to one block of keys the whole [S, T] of scores is made. Beyond that a loop goes over blocks
 * with a running maximum and sum (Dao et al., "FlashAttention", 2022): neither this nor a gradient
 * keeps more than [S, DEFT_ATTENTION_BLOCK] of them; the gradient computes them again. Gradients of
 * gradients keep them all. A last block that is not full is filled up with zeros, for which k and v
 * are copied. */
DEFT_API deft_tensor *deft_attention(deft_tensor *q, deft_tensor *k, deft_tensor *v,
                                     const deft_attention_options *options);

#ifndef __cplusplus
#define DEFT_ATTENTION(...)                                                                        \
    (&(const deft_attention_options){ .size = sizeof(deft_attention_options), __VA_ARGS__ })
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
