/* SPDX-License-Identifier: Apache-2.0
 *
 * Every public call with every allocation failing in turn (world.h). A call that records is driven
 * twice: in a step of its own, where the cut's allocations fail too, and at the brim: with the
 * arrays of records so full that they must grow at each record the call makes in turn. A call that
 * must not allocate is held to it. The table is compared with what libdeft exports.
 *
 * Why this file is long: a row for each public function.
 */
#define DEFT_NO_GENERIC
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "network.h"
#include "support/budget.h"
#include "world.h"

static const char *const exported[] = {
#include "exports.inc"
};

#define SHAPE DEFT_SHAPE(4, 6)
#define GPU DEFT_CUDA(1) /* one of tests/cuda/far; contexts of suite far are on the other */
#define ALL DEFT_ALL_AXES
#define PAIR(a, b) (deft_tensor *const[]){ (a), (b) }, 2
#define SIZES(...)                                                                                 \
    (const int64_t[])                                                                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

#define START(w)                                                                                   \
    (deft_tensor *const[])                                                                         \
    {                                                                                              \
        deft_full_i((w)->cx, DEFT_SHAPE(), DEFT_I64, 1), NULL                                      \
    }

#define IMAGES deft_reshape(w->x, DEFT_SHAPE(1, 2, 3, 4))

#define MANY(t) deft_expand(deft_slice(t, DEFT_R(0, 1)), DEFT_SHAPE(DEFT_ATTENTION_BLOCK + 2, 6))

/* ---- calls that record ---- */

static const float numbers[N] = { 3, 1, 2 };
static const deft_wrap_options wrapping = { .size = sizeof wrapping, .is_mutable = true };

/* X(row, function without deft_, arguments...): the function gets them in a step of world w. */
#define RECORDING(X)                                                                               \
    X(from, from, w->cx, SHAPE, DEFT_F32, numbers, sizeof numbers)                                 \
    X(wrap, wrap, w->cx, SHAPE, DEFT_F32, numbers, sizeof numbers, NULL)                           \
    X(wrap_mut, wrap_mut, w->cx, SHAPE, DEFT_F32, w->target, sizeof w->target, NULL)               \
    X(wrap_device, wrap_device, w->cx, DEFT_CPU, SHAPE, DEFT_F32, numbers, sizeof numbers, NULL)   \
    X(wrap_device_mut, wrap_device_mut, w->cx, DEFT_CPU, SHAPE, DEFT_F32, w->target,               \
      sizeof w->target, NULL)                                                                      \
    X(wrap_with, wrap_with, w->cx, SHAPE, DEFT_F32, w->target, sizeof w->target, &wrapping)        \
    X(to, to, w->x, GPU)                                                                           \
    X(to_pending, to, deft_exp(w->x), GPU)                                                         \
    X(to_other, add, w->x, deft_to(deft_to(w->x, GPU), DEFT_CUDA(0)))                              \
    X(to_cpu, to, w->x, DEFT_CPU)                                                                  \
    X(zeros, zeros, w->cx, SHAPE, DEFT_F64)                                                        \
    X(ones, ones, w->cx, SHAPE, DEFT_I32)                                                          \
    X(full, full, w->cx, SHAPE, DEFT_U8, 7)                                                        \
    X(full_i, full_i, w->cx, SHAPE, DEFT_I64, 7)                                                   \
    X(full_u, full_u, w->cx, SHAPE, DEFT_U64, UINT64_MAX)                                          \
    X(num, num, w->cx, 0.5)                                                                        \
    X(complex, complex, w->x, w->p[0])                                                             \
    X(polar, polar, w->x, deft_num(w->cx, 0.5))                                                    \
    X(full_c, full_c, w->cx, SHAPE, DEFT_C64, 1, -2)                                               \
    X(real, real, deft_complex(w->x, w->p[0]))                                                     \
    X(imag, imag, deft_exp(deft_complex(w->x, w->p[0])))                                           \
    X(conj, conj, deft_complex(w->x, w->p[0]))                                                     \
    X(angle, angle, deft_complex(w->x, w->p[0]))                                                   \
    X(view_as_real, view_as_real, deft_div(deft_complex(w->x, w->p[0]), w->x))                     \
    X(view_as_complex, view_as_complex, deft_stack(PAIR(w->x, w->p[0]), -1))                       \
    X(const_f, const_f, w->cx, 0.5)                                                                \
    X(num_i, num_i, w->cx, 3)                                                                      \
    X(num_u, num_u, w->cx, UINT64_MAX)                                                             \
    X(const_i, const_i, w->cx, 3)                                                                  \
    X(const_u, const_u, w->cx, UINT64_MAX)                                                         \
    X(arange_u, arange_u, w->cx, 0, 3, 2, DEFT_U64)                                                \
    X(arange, arange, w->cx, 0, 3, 0.5, DEFT_F32)                                                  \
    X(arange_i, arange_i, w->cx, 0, 3, 2, DEFT_I64)                                                \
    X(linspace, linspace, w->cx, 0, 1, 5, DEFT_F64)                                                \
    X(eye, eye, w->cx, 3, 4, DEFT_F32)                                                             \
    X(iota, iota, w->cx, SHAPE, 1)                                                                 \
    X(uniform, uniform, w->cx, &w->rng, SHAPE, DEFT_F32, 0, 1)                                     \
    X(uniform_f64, uniform, w->cx, &w->rng, SHAPE, DEFT_F64, 0, 1)                                 \
    X(normal, normal, w->cx, &w->rng, SHAPE, DEFT_F32, 0, 1)                                       \
    X(randint, randint, w->cx, &w->rng, SHAPE, DEFT_I32, -3, 9)                                    \
    X(assign, assign, w->p[2], w->x)                                                               \
    X(assign_number, assign, w->p[2], deft_num(w->cx, 2))                                          \
    X(assign_view, assign, deft_slice(w->p[2], DEFT_AT(1)), deft_num(w->cx, 9))                    \
    X(assign_f, assign_f, w->p[2], 0.5)                                                            \
    X(assign_i, assign_i, deft_t(w->p[2]), 4)                                                      \
    X(assign_u, assign_u, deft_t(w->p[2]), 5)                                                      \
    X(slice_n, slice_n, w->x, 2, (const deft_range[]){ DEFT_R(1, 3), DEFT_RS(-1, DEFT_END, -2) })  \
    X(reshape, reshape, w->x, DEFT_SHAPE(3, -1))                                                   \
    X(flatten, flatten, w->x)                                                                      \
    X(permute, permute, w->x, DEFT_AXES(1, 0))                                                     \
    X(transpose, transpose, w->x, 0, 1)                                                            \
    X(t, t, w->x)                                                                                  \
    X(expand, expand, w->x, DEFT_SHAPE(2, -1, 6))                                                  \
    X(squeeze, squeeze, deft_unsqueeze(w->x, 1), ALL)                                              \
    X(unsqueeze, unsqueeze, w->x, 0)                                                               \
    X(flip, flip, w->x, ALL)                                                                       \
    X(diagonal, diagonal, w->x, 1, 0, 1)                                                           \
    X(concat, concat, PAIR(w->x, w->i), 0)                                                         \
    X(stack, stack, PAIR(w->x, w->p[0]), 1)                                                        \
    X(pad, pad, w->x, SIZES(1, 2), SIZES(0, 1), DEFT_PAD_CONSTANT, 7)                              \
    X(pad_i, pad_i, w->x, SIZES(1, 2), SIZES(0, 1), DEFT_PAD_CONSTANT, 7)                          \
    X(pad_edge, pad, w->x, SIZES(1, 2), SIZES(0, 1), DEFT_PAD_EDGE, 0)                             \
    X(pad_reflect, pad, w->x, SIZES(1, 2), SIZES(0, 1), DEFT_PAD_REFLECT, 0)                       \
    X(pad_wrap, pad, w->x, SIZES(1, 2), SIZES(0, 1), DEFT_PAD_WRAP, 0)                             \
    X(roll, roll, w->x, 2, 1)                                                                      \
    X(tril, tril, w->x, 0)                                                                         \
    X(triu, triu, w->x, 1)                                                                         \
    X(take, take, w->x, w->labels, 1)                                                              \
    X(gather, gather, w->x, w->i, 0)                                                               \
    X(scatter_add, scatter_add, w->x, w->i, deft_num(w->cx, 1), 0)                                 \
    X(index_add, index_add, w->x, w->labels, w->x, 0)                                              \
    X(scatter, scatter, w->x, w->i, deft_num(w->cx, 1), 0)                                         \
    X(polygamma, polygamma, 2, w->x)                                                               \
    X(pad_u, pad_u, w->x, SIZES(1, 2), SIZES(0, 1), DEFT_PAD_CONSTANT, 7)                          \
    X(clamp_u, clamp_u, w->x, 1, 2)                                                                \
    X(lerp_u, lerp_u, w->x, w->x, 2)                                                               \
    X(full_like_u, full_like_u, w->x, 2)                                                           \
    X(bitcast, bitcast, w->x, DEFT_U8)                                                             \
    X(einsum, einsum, "ij,kj->ik", PAIR(w->x, w->x))                                               \
    X(polyval, polyval, w->x, w->p[0])                                                             \
    X(polyval_f, polyval_f, w->x, (const double[]){ 1, 0.5, 2 }, 3)                                \
    X(tensordot, tensordot, w->x, w->x, DEFT_AXES(0), DEFT_AXES(0))                                \
    X(outer, outer, deft_flatten(w->x), deft_flatten(w->x))                                        \
    X(vecdot, vecdot, w->x, w->x, -1)                                                              \
    X(dynamic_slice, dynamic_slice, w->x, START(w), SIZES(2, 0))                                   \
    X(dynamic_update, dynamic_update, w->x, deft_num(w->cx, 2), START(w), SIZES(2, 0))             \
    X(index_copy, index_copy, w->x, w->labels, w->x, 0)                                            \
    X(scatter_reduce, scatter_reduce, w->x, w->i, deft_num(w->cx, 2), 0, DEFT_SCATTER_MEAN, 0)     \
    X(index_reduce, index_reduce, w->x, w->labels, w->x, 0, DEFT_SCATTER_AMAX, 0)                  \
    X(argsort, argsort, w->x, 0, 1)                                                                \
    X(sort, sort, w->x, 1, 0)                                                                      \
    X(topk, topk, w->x, 2, 0, 1, &(deft_tensor *){ NULL })                                         \
    X(nonzero, nonzero, w->x, 5, NULL)                                                             \
    X(nonzero_counted, nonzero, w->i, 5, &(deft_tensor *){ NULL })                                 \
    X(compress, compress, w->x, deft_gt(w->x, deft_num(w->cx, 0)), 7, NULL)                        \
    X(unique, unique, w->i, 9, &(deft_tensor *){ NULL })                                           \
    X(one_hot, one_hot, w->labels, 5, DEFT_F32)                                                    \
    X(cast, cast, w->x, DEFT_I64)                                                                  \
    X(where, where, deft_gt_f(w->x, 1), w->x, w->i)                                                \
    X(clamp, clamp, w->x, 0.5, 2)                                                                  \
    X(clamp_i, clamp_i, w->x, 0, 2)                                                                \
    X(clamp_t, clamp_t, w->x, deft_num(w->cx, 0.5), w->i)                                          \
    X(lerp, lerp, w->x, w->i, w->p[0])                                                             \
    X(lerp_f, lerp_f, w->x, w->p[0], 0.25)                                                         \
    X(lerp_i, lerp_i, w->x, w->p[0], 2)                                                            \
    X(sum, sum, w->x, DEFT_AXES(0), 0)                                                             \
    X(sum_int, sum, w->i, ALL, 1)                                                                  \
    X(prod, prod, w->x, ALL, 0)                                                                    \
    X(min, min, w->x, DEFT_AXES(1), 1)                                                             \
    X(max, max, w->x, DEFT_AXES(1), 0)                                                             \
    X(mean, mean, w->x, DEFT_AXES(0), 1)                                                           \
    X(var, var, w->x, DEFT_AXES(1), 0, 1)                                                          \
    X(any, any, w->x, DEFT_AXES(1), 0)                                                             \
    X(all, all, w->x, DEFT_AXES(0), 0)                                                             \
    X(argmin, argmin, w->x, DEFT_AXES(1), 0)                                                       \
    X(argmax, argmax, w->x, ALL, 0)                                                                \
    X(cumsum, cumsum, w->x, 1)                                                                     \
    X(cumprod, cumprod, w->x, 1)                                                                   \
    X(cummin, cummin, w->x, 1)                                                                     \
    X(cummax, cummax, w->x, 0)                                                                     \
    X(cumulative_sum, cumulative_sum, w->x, 1, true)                                               \
    X(cumulative_prod, cumulative_prod, w->x, 0, true)                                             \
    X(fma, fma, w->x, w->p[0], deft_num(w->cx, 0.5))                                               \
    X(nansum, nansum, w->x, DEFT_AXES(1), 0)                                                       \
    X(nanprod, nanprod, w->x, DEFT_AXES(1), 0)                                                     \
    X(nanmin, nanmin, w->x, DEFT_AXES(1), 0)                                                       \
    X(nanmax, nanmax, w->x, DEFT_AXES(1), 0)                                                       \
    X(nanmean, nanmean, w->x, DEFT_AXES(1), 0)                                                     \
    X(nanvar, nanvar, w->x, DEFT_AXES(1), 0, 1)                                                    \
    X(nanstd, nanstd, w->x, DEFT_AXES(1), 0, 1)                                                    \
    X(vector_norm, vector_norm, w->x, 3, DEFT_AXES(1), 0)                                          \
    X(median, median, w->x, 1, 0)                                                                  \
    X(quantile, quantile, w->x, 0.3, 1, 0)                                                         \
    X(histogram, histogram, w->x, deft_arange(w->cx, 0, 4, 1, DEFT_F32))                           \
    X(histc, histc, w->x, 3, 0, 4)                                                                 \
    X(bucketize, bucketize, w->x, deft_arange(w->cx, 0, 4, 1, DEFT_F32), false)                    \
    X(logcumsumexp, logcumsumexp, w->x, 1)                                                         \
    X(logsumexp, logsumexp, w->x, DEFT_AXES(1), 0)                                                 \
    X(shift, shift, w->x, SIZES(1, -1), DEFT_PAD_EDGE, 0)                                          \
    X(std, std, w->x, DEFT_AXES(1), 0, 1)                                                          \
    X(count_nonzero, count_nonzero, w->x, DEFT_AXES(1), 0)                                         \
    X(zeros_like, zeros_like, w->x)                                                                \
    X(ones_like, ones_like, w->x)                                                                  \
    X(full_like, full_like, w->x, 0.5)                                                             \
    X(full_like_i, full_like_i, w->x, 7)                                                           \
    X(eye_k, eye_k, w->cx, 3, 4, 1, DEFT_F32)                                                      \
    X(linspace_open, linspace_open, w->cx, 0, 1, 5, DEFT_F64)                                      \
    X(expand_dims, expand_dims, w->x, DEFT_AXES(0, -1))                                            \
    X(moveaxis, moveaxis, w->x, DEFT_AXES(0), DEFT_AXES(1))                                        \
    X(repeat, repeat, w->x, 2, 0)                                                                  \
    X(repeat_t, repeat_t, w->x, deft_cast(deft_num_i(w->cx, 2), DEFT_I64), 0, 7)                   \
    X(tile, tile, w->x, DEFT_SHAPE(2, 1))                                                          \
    X(roll_n, roll_n, w->x, SIZES(1, 2), DEFT_AXES(0, 1))                                          \
    X(take_along_axis, take_along_axis, w->x, deft_argsort(w->x, 1, 0), 1)                         \
    X(diff, diff, w->x, 2, 1, w->x, NULL)                                                          \
    X(searchsorted, searchsorted, deft_arange(w->cx, 0, 9, 1, DEFT_F32), w->x, true)               \
    X(isin, isin, w->x, w->i, false)                                                               \
    X(unique_all, unique_all, w->i, 9, &(deft_tensor *){ NULL }, &(deft_tensor *){ NULL },         \
      &(deft_tensor *){ NULL }, &(deft_tensor *){ NULL })                                          \
    X(matmul, matmul, w->x, deft_t(w->p[0]))                                                       \
    X(softmax, softmax, w->x, -1)                                                                  \
    X(log_softmax, log_softmax, w->x, 0)                                                           \
    X(layer_norm, layer_norm, w->x, 1, deft_num(w->cx, 2), deft_num(w->cx, 1), 1e-5)               \
    X(layer_norm_bare, layer_norm, w->x, 2, NULL, NULL, 1e-5)                                      \
    X(cross_entropy, cross_entropy, w->x, w->labels)                                               \
    X(rms_norm, rms_norm, w->x, 1, deft_num(w->cx, 2), 1e-5)                                       \
    X(embedding, embedding, w->x, w->labels)                                                       \
    X(conv2d, conv2d, IMAGES, deft_reshape(w->p[0], DEFT_SHAPE(3, 2, 2, 2)),                       \
      DEFT_CONV2D(.padding = { 1, 0 }, .bias = deft_slice(w->p[1], DEFT_AT(0), DEFT_R(0, 3))))     \
    X(max_pool2d, max_pool2d, IMAGES,                                                              \
      DEFT_POOL2D(.kernel = { 2, 2 }, .stride = { 1, 2 }, .padding = { 1, 1 }))                    \
    X(avg_pool2d, avg_pool2d, IMAGES, DEFT_POOL2D(.kernel = { 3, 2 }))                             \
    X(attention, attention, deft_unsqueeze(w->x, 0), w->p[0], w->p[1],                             \
      DEFT_ATTENTION(.is_causal = true))                                                           \
    X(attention_masked, attention, w->x, MANY(w->p[0]), MANY(w->p[1]),                             \
      DEFT_ATTENTION(.cap = 2, .window = 4,                                                        \
                     .mask = deft_full(w->cx, DEFT_SHAPE(1, 1), DEFT_F32, 0.5)))                   \
    X(attention_grouped, attention, deft_reshape(w->x, DEFT_SHAPE(4, 2, 3)),                       \
      deft_reshape(w->p[0], DEFT_SHAPE(2, 4, 3)), deft_reshape(w->p[1], DEFT_SHAPE(2, 4, 3)),      \
      DEFT_ATTENTION(.has_grouped_heads = true))                                                   \
    X(conv, conv, deft_reshape(w->x, DEFT_SHAPE(1, 2, 3, 2, 2)),                                   \
      deft_reshape(w->p[0], DEFT_SHAPE(3, 2, 2, 2, 1)), DEFT_CONV(.padding = { 1, 1 }))            \
    X(conv_transpose, conv_transpose, IMAGES, deft_reshape(w->p[0], DEFT_SHAPE(2, 3, 2, 2)),       \
      DEFT_CONV(.stride = { 2, 1 }, .bias = deft_slice(w->p[1], DEFT_AT(0), DEFT_R(0, 3))))        \
    X(max_pool, max_pool, IMAGES, DEFT_POOL(.kernel = { 2, 2 }, .padding = { 1, 1 }),              \
      &(deft_tensor *){ NULL })                                                                    \
    X(avg_pool, avg_pool, IMAGES, DEFT_POOL(.kernel = { 2, 2 }, .ceil_mode = true))                \
    X(adaptive_avg_pool, adaptive_avg_pool, IMAGES, DEFT_SHAPE(2, 2))                              \
    X(adaptive_max_pool, adaptive_max_pool, IMAGES, DEFT_SHAPE(2, 3))                              \
    X(max_unpool, max_unpool, IMAGES, deft_reshape(w->i, DEFT_SHAPE(1, 2, 3, 4)),                  \
      DEFT_SHAPE(9, 9))                                                                            \
    X(unfold, unfold, IMAGES, DEFT_POOL(.kernel = { 2, 2 }))                                       \
    X(fold, fold, deft_reshape(w->x, DEFT_SHAPE(1, 4, 6)), DEFT_SHAPE(3, 4),                       \
      DEFT_POOL(.kernel = { 2, 2 }))                                                               \
    X(interpolate, interpolate, IMAGES, DEFT_SHAPE(5, 2),                                          \
      DEFT_SAMPLING(.mode = DEFT_CUBIC, .antialias = true))                                        \
    X(grid_sample, grid_sample, IMAGES, deft_reshape(deft_sin(w->x), DEFT_SHAPE(1, 3, 4, 2)),      \
      DEFT_SAMPLING(.mode = DEFT_LINEAR, .border = DEFT_BORDER_REFLECTION))                        \
    X(batch_norm, batch_norm, w->x, DEFT_NORM(.eps = 0.5))                                         \
    X(group_norm, group_norm, w->x, 3, NULL)                                                       \
    X(instance_norm, instance_norm, IMAGES, NULL)                                                  \
    X(cross_entropy_loss, cross_entropy_loss, w->x, w->labels,                                     \
      DEFT_LOSS(.smoothing = 0.1, .ignores = true))                                                \
    X(nll_loss, nll_loss, w->x, w->labels, NULL)                                                   \
    X(ctc_loss, ctc_loss, deft_unsqueeze(w->x, 1), deft_reshape(w->i, DEFT_SHAPE(1, -1)), NULL,    \
      NULL, NULL)                                                                                  \
    X(bce_loss, bce_loss, deft_sigmoid(w->x), w->p[0], NULL)                                       \
    X(bce_logits_loss, bce_logits_loss, w->x, w->p[0], DEFT_LOSS(.pos_weight = w->p[1]))           \
    X(mse_loss, mse_loss, w->x, w->p[0], DEFT_LOSS(.weight = w->p[1]))                             \
    X(l1_loss, l1_loss, w->x, w->p[0], NULL)                                                       \
    X(smooth_l1_loss, smooth_l1_loss, w->x, w->p[0], NULL)                                         \
    X(huber_loss, huber_loss, w->x, w->p[0], NULL)                                                 \
    X(kl_div, kl_div, w->x, w->p[0], NULL)                                                         \
    X(cosine_embedding_loss, cosine_embedding_loss, w->x, w->p[0], deft_num_i(w->cx, 1), NULL)     \
    X(margin_ranking_loss, margin_ranking_loss, w->x, w->p[0], deft_num_i(w->cx, 1), NULL)         \
    X(hinge_embedding_loss, hinge_embedding_loss, w->x, w->p[0], NULL)                             \
    X(soft_margin_loss, soft_margin_loss, w->x, w->p[0], NULL)                                     \
    X(triplet_margin_loss, triplet_margin_loss, w->x, w->p[0], w->p[1], DEFT_LOSS(.swap = true))   \
    X(exponential, exponential, w->cx, &w->rng, SHAPE, DEFT_F32)                                   \
    X(laplace, laplace, w->cx, &w->rng, SHAPE, DEFT_F32)                                           \
    X(gumbel, gumbel, w->cx, &w->rng, SHAPE, DEFT_F64)                                             \
    X(truncated_normal, truncated_normal, w->cx, &w->rng, SHAPE, DEFT_F32, -1, 2)                  \
    X(bernoulli, bernoulli, &w->rng, w->x)                                                         \
    X(gamma, gamma, &w->rng, w->x)                                                                 \
    X(beta, beta, &w->rng, w->x, w->p[0])                                                          \
    X(dirichlet, dirichlet, &w->rng, w->x)                                                         \
    X(poisson, poisson, &w->rng, w->x)                                                             \
    X(binomial, binomial, &w->rng, w->i, deft_num(w->cx, 0.25))                                    \
    X(categorical, categorical, &w->rng, w->x, 1)                                                  \
    X(permutation, permutation, w->cx, &w->rng, 9)                                                 \
    X(choice, choice, w->cx, &w->rng, 9, 4, false, NULL)                                           \
    X(choice_weighted, choice, w->cx, &w->rng, 4, 9, true,                                         \
      deft_slice(w->p[0], DEFT_AT(0), DEFT_R(0, 4)))

typedef deft_tensor *(*make_fn)(world *w);

#define DEFINE(row, name, ...)                                                                     \
    static deft_tensor *make_##row(world *w)                                                       \
    {                                                                                              \
        return deft_##name(__VA_ARGS__);                                                           \
    }
RECORDING(DEFINE)
#undef DEFINE

static deft_tensor *make_split(world *w)
{
    deft_tensor *part[2] = { 0 };
    return deft_split(w->x, SIZES(2, 4), 2, 1, part) == DEFT_OK ? part[1] : NULL;
}

static deft_tensor *make_unstack(world *w)
{
    deft_tensor *part[4] = { 0 };
    return deft_unstack(w->x, 0, 4, part) == DEFT_OK ? part[3] : NULL;
}

static deft_tensor *make_meshgrid(world *w)
{
    deft_tensor *const x[2] = { deft_slice(w->x, DEFT_AT(0)), deft_slice(w->x, DEFT_AT(1)) };
    deft_tensor *out[2] = { 0 };
    return deft_meshgrid(x, 2, true, out) == DEFT_OK ? out[1] : NULL;
}

static deft_tensor *make_broadcast_tensors(world *w)
{
    deft_tensor *const x[2] = { w->x, deft_unsqueeze(w->x, 1) };
    deft_tensor *out[2] = { 0 };
    return deft_broadcast_tensors(x, 2, out) == DEFT_OK ? out[0] : NULL;
}

/* ---- loops and branches ---- */

static deft_status few(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                       size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_lt_f(in[1], 3);
    return DEFT_OK;
}

static deft_status twice(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                         size_t n_out, void *user)
{
    (void)n_in;
    const world *const w = user;
    out[0] = deft_add(deft_mul(in[0], w->p[0]), in[n_in - 1]);
    if (n_out > 1) out[1] = deft_add_f(in[1], 1);
    (void)cx;
    return DEFT_OK;
}

static deft_tensor *make_while(world *w)
{
    deft_tensor *out[2];
    deft_tensor *const init[] = { w->x, deft_zeros(w->cx, DEFT_SHAPE(), DEFT_F32) };
    return deft_while(w->cx, few, twice, w, init, 2, 5, out) ? out[0] : NULL;
}

static deft_tensor *make_scan(world *w)
{
    deft_tensor *out[2];
    deft_tensor *const rows = deft_expand(w->x, DEFT_SHAPE(2, 4, 6));
    return deft_scan(w->cx, twice, w, &w->x, 1, &rows, 1, 2, 1, out) ? out[1] : NULL;
}

static deft_tensor *make_cond(world *w)
{
    deft_tensor *out;
    deft_tensor *const in[] = { w->x, w->p[0] };
    deft_tensor *const some = deft_any(deft_gt_f(w->x, 1), ALL, 0);
    return deft_cond(some, twice, twice, w, in, 2, &out, 1) ? out : NULL;
}

/* ---- gradients ---- */

static deft_tensor *loss_of(deft_tensor *x, world *w)
{
    return deft_sum(deft_tanh(deft_matmul(x, deft_t(w->p[0]))), ALL, 0);
}

static deft_tensor *make_grad(world *w)
{
    deft_tensor *const of[] = { loss_of(w->x, w) }, *const with[] = { w->x, w->p[0] };
    deft_tensor *g[2];
    return deft_grad(of, NULL, 1, with, 2, NULL, g) ? g[1] : NULL;
}

static deft_tensor *make_grad_of_loops(world *w)
{
    deft_tensor *const some = deft_any(deft_gt_f(w->x, 1), ALL, 0);
    deft_tensor *const loop = make_scan(w);
    if (!loop) return NULL;
    deft_tensor *out, *g[2], *const in[] = { loop, w->p[0] };
    if (!deft_cond(some, twice, twice, w, in, 2, &out, 1)) return NULL;
    deft_tensor *const of[] = { deft_sum(out, ALL, 0) }, *const with[] = { w->x, w->p[0] };
    return deft_grad(of, NULL, 1, with, 2, NULL, g) ? g[0] : NULL;
}

static deft_status loss(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out;
    out[0] = loss_of(in[0], user);
    return DEFT_OK;
}

static deft_tensor *make_grad_of_attention(world *w)
{
    deft_tensor *const k = MANY(w->p[0]);
    deft_tensor *const y = deft_attention(w->x, k, k, DEFT_ATTENTION(.is_causal = true));
    deft_tensor *const of[] = { deft_sum(y, ALL, 0) }, *const with[] = { w->x, w->p[0] };
    deft_tensor *g[2];
    return deft_grad(of, NULL, 1, with, 2, NULL, g) ? g[1] : NULL;
}

static deft_tensor *make_value_and_grad(world *w)
{
    deft_tensor *value, *g;
    return deft_value_and_grad(w->cx, loss, w, &w->x, 1, &value, 1, &g) ? g : NULL;
}

static deft_tensor *make_jvp(world *w)
{
    deft_tensor *const of[] = { loss_of(w->x, w) }, *const along[] = { w->p[1] };
    deft_tensor *moved;
    return deft_jvp(of, 1, &w->x, along, 1, NULL, &moved) ? moved : NULL;
}

static deft_tensor *make_stop_gradient(world *w)
{
    return deft_stop_gradient(w->x);
}

static deft_tensor *half_of(deft_ctx *cx, deft_tensor *grad, void *user)
{
    (void)cx, (void)user;
    return deft_mul_f(grad, 0.5);
}

static deft_tensor *make_grad_hook(world *w)
{
    deft_tensor *const h = deft_exp(w->x), *const of[] = { deft_sum(h, ALL, 0) };
    deft_tensor *g;
    if (!deft_grad_hook(h, half_of, NULL)) return NULL;
    return deft_grad(of, NULL, 1, &w->x, 1, NULL, &g) ? g : NULL;
}

static deft_status backward(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                            deft_tensor *const *out, deft_tensor *const *grad_out, size_t n_out,
                            deft_tensor **grad_in, void *user)
{
    (void)cx, (void)n_in, (void)out, (void)n_out, (void)user;
    grad_in[0] = deft_mul(grad_out[0], in[1]);
    return DEFT_OK;
}

static deft_tensor *make_custom_grad(world *w)
{
    deft_tensor *const in[] = { w->x, w->p[0] };
    deft_tensor *out, *g;
    if (!deft_custom_grad(w->cx, twice, backward, w, in, 2, &out, 1)) return NULL;
    deft_tensor *const of[] = { deft_sum(out, ALL, 0) };
    return deft_grad(of, NULL, 1, &w->x, 1, NULL, &g) ? g : NULL;
}

/* ---- operators of the program ---- */

static deft_status scaled(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)n_in, (void)n_out;
    if (deft_rank(in[0]) > 3) return deft_op_fail(cx, DEFT_E_SHAPE, "too many axes");
    out[0] = deft_mul(deft_tanh(in[0]), deft_mul_f(in[1], *(const double *)user));
    return DEFT_OK;
}

static deft_status scaled_of_all(deft_ctx *cx, int64_t n, deft_tensor *const *in,
                                 const bool *is_mapped, size_t n_in, deft_tensor **out,
                                 size_t n_out, void *user)
{
    (void)n, (void)is_mapped;
    return scaled(cx, in, n_in, out, n_out, user);
}

static deft_status opaque_shape(const deft_op_form *in, size_t n_in, deft_op_form *out,
                                size_t n_out, const deft_op_about *about)
{
    (void)n_in, (void)n_out, (void)about;
    out[0] = in[0];
    return DEFT_OK;
}

static deft_status opaque_run(const deft_op_input *in, size_t n_in, const deft_op_result *out,
                              size_t n_out, const deft_op_about *about)
{
    (void)n_in, (void)n_out, (void)about;
    memcpy(out[0].data, in[0].data, in[0].bytes);
    return DEFT_OK;
}

/* An operator: 0 has a body alone, 1 a gradient, 2 a batch rule as well. 3 is opaque, with a
 * gradient. NULL with a mistake. */
static deft_op *op_of(world *w, int which)
{
    static const char *const name[] = { "oom.plain", "oom.gradient", "oom.both", "oom.opaque" };
    char why[128];
    deft_op *op = NULL;
    const deft_op_def d = { .size = sizeof d,
                            .name = name[which],
                            .version = 1,
                            .n_in = 2,
                            .n_out = 1,
                            .attribute_bytes = sizeof(double),
                            .body = which == 3 ? NULL : scaled,
                            .shape = which == 3 ? opaque_shape : NULL,
                            .run = which == 3 ? opaque_run : NULL,
                            .dense = which == 3,
                            .grad = which ? backward : NULL,
                            .batch = which == 2 ? scaled_of_all : NULL };
    const deft_status st = deft_op_define(w->rt, &d, &op, why, sizeof why);
    if (st != DEFT_OK) (void)deft_op_fail(w->cx, st, why);
    return op;
}

static deft_status op_of_row(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    return deft_op_call(cx, user, in, n_in, &(double){ 0.5 }, out, n_out) ? DEFT_OK : DEFT_E_STATE;
}

static deft_tensor *make_op_call(world *w)
{
    deft_tensor *out, *g = deft_zeros_like(w->x);
    deft_tensor *const in[] = { w->x, w->p[0] };
    for (int i = 0; i < 4 && g; i++) {
        deft_op *const op = op_of(w, i);
        if (!op) return NULL;
        deft_label_begin(w->cx, "some");
        const bool ok = deft_op_call(w->cx, op, in, 2, &(double){ 0.5 }, &out, 1);
        deft_label_end(w->cx);
        deft_tensor *of = ok ? deft_sum(out, ALL, 0) : NULL, *one;
        if (!of || !deft_grad(&of, NULL, 1, &w->x, 1, NULL, &one)) return NULL;
        g = deft_add(g, one);
        if (!deft_vmap(w->cx, op_of_row, op, in, NULL, 2, &out, NULL, 1)) return NULL;
        g = deft_add(g, out);
    }
    return g;
}

/* ---- formulas ---- */

/* A formula that calls one with a derivative of its own. NULL with a mistake. */
static deft_op *formula_of(world *w)
{
    char why[160];
    deft_op *inner, *op = NULL;
    const deft_formula_def defs[] = { { .size = sizeof *defs,
                                        .name = "oom.inner",
                                        .version = 1,
                                        .text = "(x) { return tanh(x); }",
                                        .derivative = "(x, y) { return 1 - y * y; }" },
                                      { .size = sizeof *defs,
                                        .name = "oom.formula",
                                        .version = 1,
                                        .text = "(x, y) { return x * oom.inner(y); }" } };
    deft_status st = deft_formula_define(w->rt, &defs[0], &inner, why, sizeof why);
    if (st == DEFT_OK) st = deft_formula_define(w->rt, &defs[1], &op, why, sizeof why);
    if (st != DEFT_OK) (void)deft_op_fail(w->cx, st, why);
    return op;
}

static deft_tensor *make_apply(world *w)
{
    deft_op *const op = formula_of(w);
    deft_tensor *const y = op ? deft_apply(op, w->x, w->p[0]) : NULL, *g;
    deft_tensor *of = y ? deft_sum(y, ALL, 0) : NULL;
    if (!of || !deft_grad(&of, NULL, 1, &w->p[0], 1, NULL, &g)) return NULL;
    return deft_add(y, g);
}

/* ---- many examples ---- */

/* A row of x, of integers and of p[0]: a draw, indices of its own, a gradient. */
static deft_status gradient_of_row(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                   deft_tensor **out, size_t n_out, void *user)
{
    world *const w = user;
    (void)n_in, (void)n_out;
    deft_rng rng = w->rng; /* the draw is done when what follows it fails */
    deft_tensor *const noise = deft_uniform(cx, &rng, DEFT_SHAPE(6), DEFT_F32, 0, 1);
    deft_tensor *const picked = deft_take(deft_mul(in[0], noise), in[1], 0);
    deft_tensor *const y = deft_sum(deft_mul(picked, deft_matmul(in[2], w->p[1])), ALL, 0);
    deft_grad(&y, NULL, 1, in, 1, NULL, out);
    return DEFT_OK;
}

static deft_status add_pairs(deft_ctx *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    (void)c, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add(in[0], in[1]);
    return DEFT_OK;
}

static deft_tensor *make_associative_scan(world *w)
{
    deft_tensor *y;
    return deft_associative_scan(add_pairs, w, &w->x, 1, 1, &y) ? y : NULL;
}

static deft_tensor *make_vmap(world *w)
{
    deft_tensor *const in[] = { w->x, w->i, deft_slice(w->p[0], DEFT_FULL, DEFT_R(0, 4)) };
    deft_tensor *g;
    return deft_vmap(w->cx, gradient_of_row, w, in, NULL, 3, &g, NULL, 1) ? g : NULL;
}

static deft_status is_low(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                          size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_lt_f(deft_sum(in[0], ALL, 0), 9);
    return DEFT_OK;
}

static deft_status doubled(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_add_f(deft_mul_f(in[0], 2), 1);
    return DEFT_OK;
}

static deft_status running_sum(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = out[1] = deft_add(in[0], in[1]);
    return DEFT_OK;
}

static deft_status loops_of_row(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                deft_tensor **out, size_t n_out, void *user)
{
    deft_tensor *made[2], *const init = deft_zeros(cx, DEFT_SHAPE(), DEFT_F32);
    (void)n_in, (void)n_out;
    if (!deft_while(cx, is_low, doubled, user, in, 1, 5, made) ||
        !deft_cond(deft_gt_f(deft_sum(in[0], ALL, 0), 1), doubled, doubled, user, made, 1, made,
                   1) ||
        !deft_scan(cx, running_sum, user, &init, 1, made, 1, 6, 1, made))
        return DEFT_E_STATE;
    out[0] = made[1];
    return DEFT_OK;
}

static deft_tensor *make_vmap_of_loops(world *w)
{
    deft_tensor *y;
    return deft_vmap(w->cx, loops_of_row, w, &w->x, NULL, 1, &y, NULL, 1) ? y : NULL;
}

static deft_status product(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                           size_t n_out, void *user)
{
    (void)cx, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_mul(in[0], in[1]);
    return DEFT_OK;
}

static deft_status custom_of_row(deft_ctx *cx, deft_tensor *const *in, size_t n_in,
                                 deft_tensor **out, size_t n_out, void *user)
{
    (void)n_in, (void)n_out;
    if (!deft_custom_grad(cx, product, backward, user, in, 2, out, 1)) return DEFT_E_STATE;
    return deft_grad_hook(out[0], half_of, NULL) ? DEFT_OK : DEFT_E_STATE;
}

static deft_tensor *make_grad_of_vmap(world *w)
{
    deft_tensor *const in[] = { w->x, w->p[0] };
    deft_tensor *y, *g;
    if (!deft_vmap(w->cx, custom_of_row, w, in, NULL, 2, &y, NULL, 1)) return NULL;
    deft_tensor *const of[] = { deft_sum(y, ALL, 0) };
    return deft_grad(of, NULL, 1, &w->x, 1, NULL, &g) ? g : NULL;
}

/* Bit ops take integers only. */
static bool operand_is_int(const char *op)
{
    return !strncmp(op, "bitwise", 7) || !strncmp(op, "shift", 5);
}

static deft_tensor *operand(world *w, const char *op)
{
    return operand_is_int(op) ? w->i : w->x;
}

#define DEFINE(name)                                                                               \
    static deft_tensor *make_##name(world *w)                                                      \
    {                                                                                              \
        return deft_##name(operand(w, #name));                                                     \
    }
DEFT_UNARY_OPS(DEFINE)
#undef DEFINE

#define DEFINE(name)                                                                               \
    static deft_tensor *make_##name(world *w)                                                      \
    {                                                                                              \
        return deft_##name(operand(w, #name), w->i);                                               \
    }                                                                                              \
    static deft_tensor *make_##name##_f(world *w)                                                  \
    {                                                                                              \
        return deft_##name##_f(operand(w, #name), 1.5);                                            \
    }                                                                                              \
    static deft_tensor *make_##name##_i(world *w)                                                  \
    {                                                                                              \
        return deft_##name##_i(operand(w, #name), 2);                                              \
    }                                                                                              \
    static deft_tensor *make_##name##_u(world *w)                                                  \
    {                                                                                              \
        return deft_##name##_u(operand(w, #name), 2);                                              \
    }
DEFT_BINARY_OPS(DEFINE)
#undef DEFINE

/* ---- calls that act ---- */

/* A read of NULL cannot name its context: the scope's end delivers the cause. */
static deft_status end(deft_scope s, deft_status st)
{
    const deft_status cause = deft_scope_end(s);
    return cause != DEFT_OK ? cause : st;
}

static deft_tensor *pending(world *w)
{
    return deft_exp(deft_mul_f(w->x, 0.5));
}

static deft_status act_eval(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *const list[3] = { pending(w), deft_sqrt(w->x), w->i };
    deft_status st;
    SUBJECT(w, st = deft_eval(list, 3));
    float out[2][N];
    for (int k = 0; k < 2 && st == DEFT_OK; k++)
        st = deft_read(list[k], DEFT_F32, out[k], sizeof out[k]);
    st = end(s, st);
    if (st == DEFT_OK) memcpy(w->got, out, sizeof out);
    return st;
}

static deft_status act_nan_check(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *const list[] = { pending(w), make_grad(w) };
    deft_status st;
    SUBJECT(w, st = deft_nan_check(list, 2));
    return end(s, st);
}

static deft_status ones(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                        size_t n_out, void *user)
{
    (void)in, (void)n_in, (void)n_out, (void)user;
    out[0] = deft_ones(cx, DEFT_SHAPE(2), DEFT_F32);
    return DEFT_OK;
}

/* An operator without inputs. Checks with inputs make thousands of allocations, for which those of
 * act_grad_check stand. */
static deft_status act_op_define(world *w)
{
    char why[128];
    deft_op *op = NULL;
    const deft_op_def d = {
        .size = sizeof d, .name = "oom.ones", .version = 1, .n_out = 1, .body = ones
    };
    deft_status st;
    SUBJECT(w, st = deft_op_define(w->rt, &d, &op, why, sizeof why));
    if (st != DEFT_OK) { /* hands the sentence to the context */
        (void)deft_op_fail(w->cx, st, why);
        return deft_wait(w->cx);
    }
    SUBJECT(w, st = deft_op_check(w->cx, op, NULL, 0, NULL, NULL, NULL, 0));
    deft_op *const opaque = st == DEFT_OK ? op_of(w, 3) : NULL;
    if (opaque) {
        const deft_check_options o = { .size = sizeof o, .directions = 1, .no_second = true };
        deft_tensor *const i = deft_cast(w->x, DEFT_I32), *const in[] = { i, i };
        SUBJECT(w, st = deft_op_check(w->cx, opaque, in, 2, &(double){ 0.5 }, &o, NULL, 0));
    } else if (st == DEFT_OK) {
        st = deft_wait(w->cx);
    }
    const deft_status end = deft_op_destroy(&op, NULL, 0);
    return st == DEFT_OK ? end : st;
}

static deft_status act_formula_define(world *w)
{
    deft_op *op;
    SUBJECT(w, op = formula_of(w));
    return op ? DEFT_OK : deft_wait(w->cx);
}

static deft_status act_grad_check(world *w)
{
    const deft_check_options o = { .size = sizeof o, .directions = 1, .no_second = true };
    deft_tensor *const in[] = { w->x, w->p[0] };
    deft_status st;
    double half = 0.5;
    SUBJECT(w, st = deft_grad_check(w->cx, scaled, &half, in, 2, 1, &o, NULL, 0));
    return st;
}

static deft_status act_read(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_status st;
    SUBJECT(w, st = deft_read(pending(w), DEFT_F64, w->got, N * sizeof(double)));
    return end(s, st);
}

#define ITEM(type)                                                                                 \
    static deft_status act_item_##type(world *w)                                                   \
    {                                                                                              \
        const deft_scope s = deft_scope_begin(w->cx);                                              \
        deft_status st;                                                                            \
        SUBJECT(w, st = deft_item_##type(deft_sum(w->x, ALL, 0), (void *)w->got));                 \
        return end(s, st);                                                                         \
    }
ITEM(f32)
ITEM(f64)
ITEM(i32)
ITEM(i64)
ITEM(u8)
ITEM(i8)
ITEM(i16)
ITEM(u16)
ITEM(u32)
ITEM(u64)
ITEM(bool)
ITEM(c64)
ITEM(c128)
#undef ITEM

static deft_status act_map(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_mapped m;
    deft_status st;
    SUBJECT(w, st = deft_map(pending(w), &m));
    if (st == DEFT_OK)
        memcpy(w->got, m.data, m.bytes);
    else if (m.data || m.held)
        w->wrong = "a failed map lends something";
    deft_unmap(&m);
    return end(s, st);
}

static deft_status act_map_view(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_view v;
    deft_status st;
    deft_tensor *const t = pending(w);
    SUBJECT(w, st = deft_map_view(t, ~0u, true, &v));
    if (st != DEFT_OK && (v.data || v.held)) w->wrong = "a failed map lends something";
    if (st == DEFT_OK) ((float *)v.data)[3] = 3;
    deft_status ended;
    SUBJECT(w, ended = deft_unmap_view(&v));
    if (st == DEFT_OK) st = ended;
    if (st == DEFT_OK) st = deft_read(t, DEFT_F32, w->got, N * sizeof(float));
    return end(s, st);
}

/* A column that goes out and comes back. */
static deft_status act_arrow(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    struct ArrowSchema schema;
    struct ArrowArray array;
    deft_status st;
    deft_tensor *t = NULL;
    SUBJECT(w, st = deft_to_arrow(pending(w), &schema, &array));
    if ((st == DEFT_OK) != (schema.release && array.release)) w->wrong = "half an export";
    if (st == DEFT_OK) SUBJECT(w, t = deft_from_arrow(w->cx, &schema, &array, NULL));
    if (st == DEFT_OK && (t != NULL) != !array.release) w->wrong = "an array is taken, or is not";
    if (schema.release) schema.release(&schema);
    if (array.release) array.release(&array);
    if (st == DEFT_OK) st = t ? deft_read(t, DEFT_F32, w->got, 96) : deft_error(w->cx);
    return end(s, st);
}

/* Writes and reads a file of each kind. */
static deft_status act_files(world *w)
{
    char dir[64] = "/tmp/deft-oom-XXXXXX", npy[96], npz[96];
    deft_file *f = NULL;
    deft_tensor *t = NULL;
    if (!mkdtemp(dir)) return DEFT_E_IO;
    snprintf(npy, sizeof npy, "%s/a.npy", dir);
    snprintf(npz, sizeof npz, "%s/a.npz", dir);
    const deft_scope s = deft_scope_begin(w->cx);
    const deft_named list[2] = { { "a", pending(w) }, { "b", deft_t(w->i) } };
    deft_status st;
    SUBJECT(w, st = deft_save_npy(pending(w), npy));
    if (st == DEFT_OK) SUBJECT(w, st = deft_save_npz(w->cx, npz, list, 2));
    if (st == DEFT_OK) SUBJECT(w, st = deft_file_open(w->cx, npz, &f));
    if ((st == DEFT_OK) != (f != NULL)) w->wrong = "a failed open gives something";
    if (st == DEFT_OK) SUBJECT(w, t = deft_file_load(f, "a"));
    if (st == DEFT_OK) st = t ? deft_read(t, DEFT_F32, w->got, 96) : deft_error(w->cx);
    deft_tensor *(*const map)(deft_file *, const char *) =
        DF_IS_BIG_ENDIAN ? deft_file_load : deft_file_map; /* the file has the low byte first */
    if (st == DEFT_OK) SUBJECT(w, t = map(f, "b"));
    if (st == DEFT_OK) st = t ? deft_read(t, DEFT_I32, w->got + 96, 96) : deft_error(w->cx);
    SUBJECT(w, deft_file_close(&f));
    unlink(npy);
    unlink(npz);
    rmdir(dir);
    return end(s, st);
}

/* What another library has, and takes back. */
static deft_status act_to_dlpack(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    struct DLManagedTensorVersioned *m;
    deft_status st;
    SUBJECT(w, st = deft_to_dlpack(pending(w), DEFT_DLPACK_COPY, &m));
    if ((st == DEFT_OK) != (m != NULL)) w->wrong = "a failed export gives something";
    if (m) ((deft_dlpack_versioned *)(void *)m)->deleter(m);
    return end(s, st);
}

static deft_status act_to_dlpack_old(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    struct DLManagedTensor *m;
    deft_status st;
    SUBJECT(w, st = deft_to_dlpack_old(pending(w), 0, &m));
    if (m) ((deft_dlpack_old *)(void *)m)->deleter(m);
    return end(s, st);
}

static void was_given_back(struct DLManagedTensorVersioned *m)
{
    ++*(int *)((deft_dlpack_versioned *)(void *)m)->manager_ctx;
}

/* An array that is not taken stays the caller's; one that is taken is given back once. */
static deft_status import_flagged(world *w, uint32_t flags)
{
    int n = 0;
    const deft_scope s = deft_scope_begin(w->cx);
    deft_dlpack_versioned m = {
        .major = 1,
        .manager_ctx = &n,
        .deleter = was_given_back,
        .tensor = { .data = w->target, 1, 0, 2, 2, 32, 1, (int64_t[]){ 4, 6 }, NULL, 0 }
    };
    deft_tensor *t;
    SUBJECT(w, t = deft_from_dlpack(w->cx, (void *)&m, flags));
    const bool is_taken = m.deleter != was_given_back || n;
    if ((t != NULL) != is_taken) w->wrong = "an array is taken, or is not";
    const deft_status st = t ? deft_read(t, DEFT_F32, w->got, sizeof w->target) : DEFT_OK;
    const deft_status ended = end(s, st != DEFT_OK ? st : t ? DEFT_OK : deft_error(w->cx));
    if (n != (t != NULL)) w->wrong = "an array is given back once when it was taken";
    return ended;
}

static deft_status act_from_dlpack(world *w)
{
    const deft_status st = import_flagged(w, 0);
    return st != DEFT_OK ? st : import_flagged(w, DEFT_DLPACK_COPY);
}

static deft_status act_from_dlpack_old(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_dlpack_old m = {
        .tensor = { .data = w->target, 1, 0, 2, 2, 32, 1, (int64_t[]){ 4, 6 }, NULL, 0 }
    };
    deft_tensor *t;
    SUBJECT(w, t = deft_from_dlpack_old(w->cx, (void *)&m, DEFT_DLPACK_WRITE));
    return end(s, t ? DEFT_OK : deft_error(w->cx));
}

static deft_status act_map_device(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_mapped m;
    deft_device where;
    deft_status st;
    SUBJECT(w, st = deft_map_device(deft_to(pending(w), GPU), &m, &where));
    if (st == DEFT_OK && where != GPU) w->wrong = "what was moved is elsewhere";
    if (st != DEFT_OK && (m.data || m.held)) w->wrong = "a failed map lends something";
    if (st == DEFT_OK) deft_unmap(&m);
    const deft_status first = deft_error(w->cx);
    return end(s, st == DEFT_E_ARG && first ? first : st);
}

static deft_status do_nothing(void *stream, const void *const *in, void *const *out, void *user)
{
    (void)stream, (void)in, (void)out, (void)user;
    return DEFT_OK;
}

/* What it makes is nobody's to look at. */
static deft_status act_device_work(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    const deft_work job = { .size = sizeof job, .fn = do_nothing };
    const deft_work_result results[2] = { { SHAPE, DEFT_F32 }, { SHAPE, DEFT_F32 } };
    deft_tensor *out[2] = { w->x, w->x };
    deft_status st;
    SUBJECT(w, deft_tensor *const in[3] = { pending(w), deft_to(w->x, GPU), w->x };
            st = deft_device_work(w->cx, &job, in, 3, results, out, 2));
    if (st == DEFT_OK && (!out[0] || !out[1])) w->wrong = "work without a result";
    if (st != DEFT_OK && (out[0] || out[1])) w->wrong = "a failed work has a result";
    return end(s, st);
}

static deft_status act_device_of(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_device where = DEFT_CPU;
    deft_status st = DEFT_OK;
    SUBJECT(w, deft_tensor *const t = deft_add(pending(w), deft_to(w->x, GPU));
            if (t) st = deft_device_of(t, &where));
    if (st == DEFT_OK && deft_error(w->cx) == DEFT_OK && where == DEFT_CPU)
        w->wrong = "it would be computed elsewhere";
    return end(s, st == DEFT_OK ? deft_error(w->cx) : st);
}

static deft_status act_stream(world *w)
{
    void *stream;
    SUBJECT(w, stream = deft_stream(w->cx, GPU));
    const deft_status st = deft_wait(w->cx);
    if ((st == DEFT_OK) != (stream != NULL)) w->wrong = "a stream, and an error";
    return st;
}

static deft_status act_device_describe(world *w)
{
    char text[256];
    deft_device_memory m;
    deft_status st;
    w->silent = true;
    SUBJECT(w, st = deft_device_describe(w->rt, GPU, text, sizeof text));
    if (!text[0]) w->wrong = "a device without a line";
    if (st != DEFT_OK) return st;
    SUBJECT(w, st = deft_device_memory_read(w->rt, GPU, &m, sizeof m));
    return st;
}

static deft_status act_device_memory_read(world *w)
{
    return act_device_describe(w);
}

static deft_status act_format(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    size_t length = 0;
    deft_status st;
    SUBJECT(w, st = deft_format(pending(w), (char *)w->got, MAX_GOT, &length));
    if (st != DEFT_OK && length) w->wrong = "a failed format has a length";
    return end(s, st);
}

static deft_status act_print(world *w)
{
    FILE *const f = fmemopen(w->got, MAX_GOT - 1, "w");
    if (!f) abort();
    setvbuf(f, NULL, _IONBF, 0);
    const deft_scope s = deft_scope_begin(w->cx);
    deft_status st;
    SUBJECT(w, st = deft_print(pending(w), f));
    fclose(f);
    return end(s, st);
}

static char folder[] = "/tmp/deft-oom-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int n_files(void)
{
    int n = 0;
    DIR *const d = opendir(folder);
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n - 2;
}

static deft_status act_save(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    const deft_named list[] = { { "x", w->x }, { "y", pending(w) }, { "l", w->labels } };
    const int before = n_files();
    deft_status st;
    SUBJECT(w, st = deft_save(w->cx, in_folder("saved"), list, 3));
    if (st != DEFT_OK && n_files() != before) w->wrong = "a failed save left a file";
    FILE *const f = st == DEFT_OK ? fopen(in_folder("saved"), "rb") : NULL;
    if (f) {
        if (fread(w->got, 1, MAX_GOT, f) < 100) w->wrong = "the file is short";
        fclose(f);
        unlink(in_folder("saved"));
    }
    return end(s, st);
}

static bool save_parameters(void)
{
    world w = { .mem = fail_mem_create() };
    if (!world_open(&w, NULL) || !world_fill(&w)) abort();
    const deft_named list[] = { { "a", deft_mul_f(w.x, 2) },
                                { "b", deft_mul_f(w.x, 3) },
                                { "c", deft_mul_f(w.x, 4) } };
    const bool ok = deft_save(w.cx, in_folder("parameters"), list, 3) == DEFT_OK;
    world_close(&w);
    fail_mem_destroy(&w.mem);
    return ok;
}

static deft_status load(world *w, deft_tensor *first)
{
    const deft_named list[] = { { "a", first }, { "b", w->p[1] }, { "c", w->p[2] } };
    deft_status st;
    SUBJECT(w, st = deft_load(w->cx, in_folder("parameters"), list, 3));
    return st;
}

/* Both files or none, whether storing fails or the run that comes after it. */
static deft_status act_store_next(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *const gaps =
        deft_wrap(w->cx, DEFT_SHAPE(4, 3), DEFT_F32, numbers, sizeof numbers, SIZES(6, 2));
    deft_tensor *const t = deft_sum(gaps, DEFT_AXES(1), 0);
    const int before = n_files();
    deft_status st;
    SUBJECT(w, st = deft_store_next(w->cx, in_folder("next")));
    if (st == DEFT_OK) SUBJECT(w, st = deft_eval(&t, 1));
    const int made = n_files() - before;
    if (made != 2 && (made || st == DEFT_OK)) w->wrong = "half of what was to be stored";
    unlink(in_folder("next.trace"));
    unlink(in_folder("next.safetensors"));
    if (st == DEFT_OK) st = deft_read(t, DEFT_F32, w->got, deft_numel(t) * sizeof(float));
    return end(s, st);
}

static deft_status act_load(world *w)
{
    return load(w, w->p[0]);
}

static deft_status act_load_in_a_step(world *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    deft_assign(w->p[2], deft_neg(w->p[2]));
    const deft_status st = load(w, w->p[0]);
    if (st == DEFT_OK) return deft_step_end(s);
    deft_step_abort(s);
    return st;
}

/* The caller's memory is among what is loaded: a load that fails must not have it written later. */
static deft_status act_load_wrapped(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *const out =
        deft_wrap_mut(w->cx, SHAPE, DEFT_F32, w->target, sizeof w->target, NULL);
    const deft_status st = load(w, out);
    fail_mem_at(w->mem, 0, false);
    return end(s, st);
}

static deft_status act_scope_begin(world *w)
{
    deft_scope first = { 0 };
    deft_tensor *t = w->x;
    float out[N];
    for (int i = 0; i < 20; i++) {
        deft_scope s;
        SUBJECT(w, s = deft_scope_begin(w->cx));
        if (i == 0) first = s;
        t = deft_add_f(t, 1);
    }
    deft_status st = deft_error(w->cx);
    if (st == DEFT_OK) st = deft_read(t, DEFT_F32, out, sizeof out);
    st = end(first, st);
    if (st == DEFT_OK) memcpy(w->got, out, sizeof out);
    return st;
}

static deft_status act_scope_end(world *w)
{
    float out[N];
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *kept = deft_keep(pending(w));
    deft_status st;
    SUBJECT(w, st = deft_scope_end(s)); /* computes it */
    if (st == DEFT_OK) st = deft_read(kept, DEFT_F32, out, sizeof out);
    if (st == DEFT_OK) memcpy(w->got, out, sizeof out);
    deft_drop(&kept);
    return st;
}

/* The scope around it has no room for one more handle at some of these. */
static deft_status act_scope_return(world *w)
{
    float out[N];
    const deft_scope outer = deft_scope_begin(w->cx);
    deft_tensor *t = w->x;
    for (int k = 0; k < 2; k++) {
        for (int i = k ? 242 : 5 * 254 - 6; i > 0; i--) (void)deft_num(w->cx, i);
        for (int i = 0; i < 12; i++) {
            const deft_scope s = deft_scope_begin(w->cx);
            t = i % 2 == 0 ? deft_from(w->cx, SHAPE, DEFT_F32, numbers, sizeof numbers)
                           : deft_add_f(t, 1);
            SUBJECT(w, t = deft_scope_return(s, t));
        }
    }
    deft_status st = deft_error(w->cx);
    if (st == DEFT_OK) st = deft_read(t, DEFT_F32, out, sizeof out);
    st = end(outer, st);
    if (st == DEFT_OK) memcpy(w->got, out, sizeof out);
    return st;
}

/* Each depth needs handles of its own. */
static deft_status act_step_begin(world *w)
{
    deft_status st = DEFT_OK;
    const deft_scope first = deft_scope_begin(w->cx);
    for (int i = 0; i < 10 && st == DEFT_OK; i++) {
        deft_scope s;
        SUBJECT(w, s = deft_step_begin(w->cx));
        if (i == 9) deft_assign(w->p[0], pending(w));
        st = deft_step_end(s);
        (void)deft_scope_begin(w->cx);
    }
    return end(first, st);
}

/* Every budget at once, so that each recording call looks at them and cuts. */
static deft_status act_step_begin_with(world *w)
{
    const deft_step_options o = { .size = sizeof o,
                                  .syncs = DEFT_SYNC_WARN,
                                  .max_nodes = 6,
                                  .max_bytes = 1,
                                  .max_latency_ns = 1 };
    const deft_scope outer = deft_scope_begin(w->cx);
    (void)deft_scope_begin(w->cx);
    deft_scope s;
    SUBJECT(w, s = deft_step_begin_with(w->cx, &o));
    /* Without a step an assign would stay. */
    for (int i = 0; i < 3 && deft_error(w->cx) == DEFT_OK; i++) {
        SUBJECT(w, deft_assign(w->p[0], deft_add(w->p[0], pending(w))));
        deft_assign(w->p[1], deft_cumsum(w->p[0], 0));
    }
    float out[N];
    deft_status st = deft_read(w->p[1], DEFT_F32, out, sizeof out);
    if (st == DEFT_OK)
        st = deft_step_end(s);
    else
        deft_step_abort(s);
    st = end(outer, st);
    if (st == DEFT_OK) memcpy(w->got, out, sizeof out);
    return st;
}

static deft_status act_step_end(world *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    for (int i = 0; i < N_PARAMS; i++)
        deft_assign(w->p[i], deft_add(w->p[i], deft_cumsum(w->x, i % 2)));
    deft_status st;
    SUBJECT(w, st = deft_step_end(s));
    return st;
}

/* Under a bound for which two of the values that are read late are computed again. */
static deft_status act_step_memory_read(world *w)
{
    const deft_step_options o = { .size = sizeof o, .max_temporary_bytes = 1536 };
    deft_step_memory m = { 0 };
    const deft_scope s = deft_step_begin_with(w->cx, &o);
    deft_tensor *t = deft_matmul(deft_t(w->x), w->x), *kept[8];
    for (int i = 0; i < 8; i++) {
        kept[i] = deft_sigmoid(t);
        t = deft_matmul(kept[i], kept[i]);
    }
    for (int i = 8; i-- > 0;) t = deft_matmul(deft_add(t, kept[i]), kept[i]);
    deft_assign(w->p[0], deft_matmul(w->x, t));
    deft_status st;
    SUBJECT(w, st = deft_step_memory_read(s, &m, sizeof m));
    if (st != DEFT_OK) {
        deft_step_abort(s);
        return st;
    }
    st = deft_step_end(s);
    if (st == DEFT_OK) w->got[0] = (unsigned char)m.repeated;
    return st;
}

/* All that the context's thread takes is taken before deft_wait returns. */
static deft_status act_step_submit(world *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    for (int i = 0; i < N_PARAMS; i++)
        deft_assign(w->p[i], deft_add(w->p[i], deft_cumsum(w->x, i % 2)));
    deft_status st;
    SUBJECT(w, st = deft_step_submit(s); if (st == DEFT_OK) st = deft_wait(w->cx));
    return st;
}

static deft_status act_wait(world *w)
{
    return act_step_submit(w);
}

static deft_status act_keep(world *w)
{
    const deft_scope s = deft_scope_begin(w->cx);
    deft_tensor *kept[40];
    for (int i = 0; i < 40; i++) {
        deft_tensor *const t = deft_add_f(w->x, i);
        SUBJECT(w, kept[i] = deft_keep(t));
    }
    deft_status st = deft_error(w->cx);
    if (st == DEFT_OK) st = deft_read(kept[39], DEFT_F32, w->got, N * sizeof(float));
    for (int i = 0; i < 40; i++) deft_drop(&kept[i]);
    return end(s, st);
}

static deft_status act_ctx_create(world *w)
{
    deft_ctx *cx = NULL;
    deft_status st;
    w->silent = true;
    SUBJECT(w, st = deft_ctx_create(w->rt, NULL, &cx));
    if (st != DEFT_OK && cx) w->wrong = "a failed create gave a context";
    deft_ctx_destroy(&cx);
    return st;
}

static deft_status act_runtime_create(world *w)
{
    const df_mem *const m = fail_mem_get(w->mem);
    const deft_runtime_options o = { .size = sizeof o,
                                     .n_threads = 2,
                                     .tier = DEFT_TIER_INTERPRET,
                                     .log = "why,fusion",
                                     .resize = m->resize,
                                     .resize_user = m->user };
    deft_runtime *rt = NULL;
    deft_status st;
    w->silent = true;
    SUBJECT(w, st = deft_runtime_create(&o, &rt));
    if (st != DEFT_OK && rt) w->wrong = "a failed create gave a runtime";
    deft_runtime_destroy(&rt);
    return st;
}

/* Gives a length, not a status: 0 when there was no memory for the text. */
static deft_status act_show(world *w)
{
    static const char *const what[] = { "trace", "key", "guards", "sites", "plan" };
    deft_tensor *const t = deft_sum(pending(w), DEFT_AXES(1), 0);
    char *at = (char *)w->got;
    deft_status st = deft_error(w->cx);
    if (st == DEFT_OK) st = deft_eval(&t, 1);
    for (size_t k = 0; k < 5 && st == DEFT_OK; k++) {
        char text[MAX_GOT] = "?";
        size_t n;
        SUBJECT(w, n = deft_show(w->cx, what[k], text, sizeof text));
        if (n != strlen(text)) w->wrong = "show: the length is not the text's";
        if (n == 0) {
            memset(w->got, 0, MAX_GOT);
            w->silent = true;
            st = DEFT_E_MEMORY;
        } else if (k == 4) {
            memcpy(at, text, n);
        }
    }
    return st;
}

/* Without memory for a line or a label, what it would tell is left out and nothing else. */
static deft_status act_site(world *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    char file[] = "row0.py";
    for (int i = 0; i < 20; i++) {
        file[3] = (char)('a' + i);
        SUBJECT(w, deft_site(w->cx, file, i));
        SUBJECT(w, deft_label_begin(w->cx, file));
        deft_assign(w->p[0], deft_add_f(w->p[0], i));
        if (i % 2) SUBJECT(w, deft_label_end(w->cx));
    }
    SUBJECT(w, deft_site(w->cx, NULL, 0));
    deft_assign(w->p[1], deft_neg(w->p[0]));
    return deft_step_end(s);
}

/* ---- captures ---- */

static world *captured;

static deft_status capture_fn(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                              size_t n_out, void *user)
{
    world *const w = captured;
    (void)n_in, (void)n_out;
    deft_tensor *rate = NULL, *n = NULL;
    for (int i = 0; i < 200; i++) {
        SUBJECT(w, rate = deft_param_f(cx, "rate"));
        SUBJECT(w, n = deft_param_i(cx, "n"));
    }
    deft_tensor *const y = deft_add(deft_mul(in[0], rate), deft_mul(w->p[1], n));
    if (user) {
        deft_assign(w->p[0], y);
        deft_assign(deft_slice(w->p[2], DEFT_AT(1), DEFT_FULL), deft_sum(y, DEFT_AXES(0), 0));
    }
    out[0] = deft_uniform(cx, &w->rng, SHAPE, DEFT_F32, 0, 1);
    out[0] = deft_add(out[0], y);
    return DEFT_OK;
}

/* calls of a capture; it assigns in the one and only call, or never. */
static deft_status capture(world *w, int calls, bool assigns)
{
    deft_capture *c;
    deft_tensor *out[1] = { NULL };
    captured = w;
    const deft_scope s = deft_scope_begin(w->cx);
    SUBJECT(w, c = deft_capture_create(w->cx, capture_fn, assigns ? w : NULL));
    deft_status st = deft_error(w->cx);
    if (st == DEFT_OK) SUBJECT(w, st = deft_capture_set_f(c, "rate", 0.5));
    if (st == DEFT_OK) SUBJECT(w, st = deft_capture_set_i(c, "n", 3));
    if (st == DEFT_OK) SUBJECT(w, st = deft_capture_set_u(c, "many", UINT64_MAX));
    for (int i = 0; i < calls && st == DEFT_OK; i++) {
        const uint64_t next = w->rng.next;
        SUBJECT(w, st = deft_capture_call(c, &w->x, 1, out, 1));
        if (st != DEFT_OK && calls > 1 && i > 0 && w->rng.next != next)
            w->wrong = "a replay that failed took a number";
        if (st != DEFT_OK && out[0]) w->wrong = "a failed call left an output";
    }
    if (st == DEFT_OK && calls) st = deft_read(out[0], DEFT_F32, w->got, N * sizeof(float));
    deft_capture_destroy(&c);
    return end(s, st);
}

static deft_status act_capture_create(world *w)
{
    return capture(w, 0, false);
}

/* A program as data, from the file to its result. */
static deft_status act_program(world *w)
{
    static const char text[] = "%0 = input f32[4,6]\n%1 = exp f32[4,6] %0\noutput %1\n";
    char path[] = "/tmp/deft-oom-XXXXXX";
    deft_program *p = NULL;
    deft_tensor *out = NULL;
    const int fd = mkstemp(path);
    if (fd < 0 || write(fd, text, sizeof text - 1) < 0 || close(fd) != 0) return DEFT_E_IO;
    const deft_scope s = deft_scope_begin(w->cx);
    deft_status st;
    SUBJECT(w, st = deft_program_load(w->cx, path, &p));
    if ((st == DEFT_OK) != (p != NULL)) w->wrong = "a failed load gives something";
    if (st == DEFT_OK &&
        !(deft_program_inputs(p) == 1 && deft_program_outputs(p) == 1 &&
          deft_program_input(p, 0, NULL, NULL) && deft_program_output(p, 0, NULL, NULL)))
        w->wrong = "a loaded program is another one";
    bool ok = false;
    if (st == DEFT_OK) SUBJECT(w, ok = deft_program_call(p, &w->x, 1, &out, 1));
    if (st == DEFT_OK) st = ok ? deft_read(out, DEFT_F32, w->got, 96) : deft_error(w->cx);
    SUBJECT(w, deft_program_destroy(&p));
    unlink(path);
    return end(s, st);
}

static deft_status export_fn(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                             size_t n_out, void *user)
{
    world *const w = user;
    (void)n_in, (void)n_out;
    deft_tensor *const y = deft_mul(deft_add(in[0], w->p[1]), deft_param_f(cx, "rate"));
    out[0] = deft_add(deft_uniform(cx, &w->rng, deft_shape_get(y), DEFT_F32, 0, 1), y);
    return DEFT_OK;
}

/* An export of a call that has been recorded, with an open extent that a tensor from outside has,
 * too. */
static deft_status act_export(world *w)
{
    const deft_export_extent rows = { "rows", 0, 0 };
    deft_tensor *out[1] = { NULL };
    char path[] = "/tmp/deft-oom-XXXXXX", name[64];
    if (!mkdtemp(path)) return DEFT_E_IO;
    const deft_scope s = deft_scope_begin(w->cx);
    deft_capture *c = deft_capture_create(w->cx, export_fn, w);
    deft_status st = deft_error(w->cx);
    if (st == DEFT_OK) st = deft_capture_set_f(c, "rate", 0.5);
    if (st == DEFT_OK) st = deft_capture_call(c, &w->x, 1, out, 1);
    snprintf(name, sizeof name, "%s/f", path);
    const deft_export_options o = {
        .size = sizeof o, .as_c = true, .passes_outside = true, .extents = &rows, .n_extents = 1
    };
    const char *const ends[] = { ".c", ".h" };
    if (st == DEFT_OK) SUBJECT(w, st = deft_export(c, name, &o));
    /* The call had no memory for its recording. */
    if (st == DEFT_E_STATE && strstr(deft_capture_reason(c), "memory")) st = DEFT_E_MEMORY;
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s/f%s", path, ends[i]);
        const bool exists = unlink(name) == 0;
        if (st == DEFT_OK && !exists) w->wrong = "an export left no file";
    }
    if (rmdir(path) != 0) w->wrong = "an export left other files";
    deft_capture_destroy(&c);
    return end(s, st);
}

static deft_status act_capture_call(world *w)
{
    return capture(w, 1, true);
}

static deft_status act_capture_replay(world *w)
{
    return capture(w, 3, false);
}

/* ---- calls that take no memory ---- */

#define QUIET(X)                                                                                   \
    X(version, )                                                                                   \
    X(status_text, DEFT_E_MEMORY)                                                                  \
    X(dtype_size, DEFT_F32)                                                                        \
    X(dtype_name, DEFT_F32)                                                                        \
    X(promote, DEFT_F32, DEFT_I64)                                                                 \
    X(finfo, DEFT_F32)                                                                             \
    X(iinfo, DEFT_I64)                                                                             \
    X(isdtype, DEFT_F32, DEFT_KIND_NUMERIC)                                                        \
    X(can_cast, DEFT_I32, DEFT_F32)                                                                \
    X(result_type, &w->x, 1)                                                                       \
    X(broadcast_shapes, &(deft_shape){ .rank = 0 }, 1, &(deft_shape){ .rank = 0 })                 \
    X(shape_of, 2, SIZES(4, 6))                                                                    \
    X(axes_of, 2, (const int[]){ 0, 1 })                                                           \
    X(range_of, 0, 3, 1)                                                                           \
    X(dtype_of, w->x)                                                                              \
    X(rank, w->x)                                                                                  \
    X(dim, w->x, 0)                                                                                \
    X(numel, w->x)                                                                                 \
    X(shape_get, w->x)                                                                             \
    X(ctx_of, w->x)                                                                                \
    X(ctx_runtime, w->cx)                                                                          \
    X(runtime_compiler, w->rt)                                                                     \
    X(runtime_threads, w->rt)                                                                      \
    X(runtime_settle, w->rt)                                                                       \
    X(runtime_trim, w->rt)                                                                         \
    X(gpu_count, w->rt, NULL, 0)                                                                   \
    X(op_name, NULL)                                                                               \
    X(op_version, NULL)                                                                            \
    X(op_inputs, NULL)                                                                             \
    X(op_results, NULL)                                                                            \
    X(op_fail, NULL, DEFT_E_ARG, "")                                                               \
    X(error, w->cx)                                                                                \
    X(message, w->cx)                                                                              \
    X(clear, w->cx)                                                                                \
    X(mixed_set, w->cx, DEFT_F32)                                                                  \
    X(interrupt, w->cx)                                                                            \
    X(stats_read, w->cx, (deft_stats *)(void *)w->got, sizeof(deft_stats))                         \
    X(explain, w->cx, (char[4096]){ 0 }, 4096)

static deft_status quiet_capture_destroy(world *w)
{
    deft_capture *c = deft_capture_create(w->cx, capture_fn, NULL);
    SUBJECT(w, deft_capture_destroy(&c));
    return DEFT_OK;
}

static deft_status quiet_capture_stats_read(world *w)
{
    deft_capture *c = deft_capture_create(w->cx, capture_fn, NULL);
    deft_capture_stats n;
    SUBJECT(w, deft_capture_stats_read(c, &n, sizeof n));
    SUBJECT(w, (void)deft_capture_reason(c));
    deft_capture_destroy(&c);
    return DEFT_OK;
}

static deft_status quiet_replay_read(world *w)
{
    deft_replay_stats s;
    deft_status st;
    SUBJECT(w, st = deft_replay_read(w->cx, GPU, &s, sizeof s));
    return st;
}

#define DEFINE(name, ...)                                                                          \
    static deft_status quiet_##name(world *w)                                                      \
    {                                                                                              \
        SUBJECT(w, (void)deft_##name(__VA_ARGS__));                                                \
        return DEFT_OK;                                                                            \
    }
QUIET(DEFINE)
#undef DEFINE

static deft_status quiet_step_abort(world *w)
{
    const deft_scope s = deft_step_begin(w->cx);
    deft_assign(w->p[0], pending(w));
    SUBJECT(w, deft_step_abort(s));
    return DEFT_OK;
}

static deft_status quiet_drop(world *w)
{
    deft_tensor *t = deft_keep(pending(w));
    SUBJECT(w, deft_drop(&t));
    return DEFT_OK;
}

static deft_status quiet_file(world *w)
{
    deft_file_entry e;
    SUBJECT(w, (void)deft_file_count(NULL));
    SUBJECT(w, (void)deft_file_entry_read(NULL, 0, &e, sizeof e));
    return DEFT_OK;
}

static deft_status quiet_program(world *w)
{
    SUBJECT(w, (void)deft_program_inputs(NULL));
    SUBJECT(w, (void)deft_program_outputs(NULL));
    SUBJECT(w, (void)deft_program_input(NULL, 0, NULL, NULL));
    SUBJECT(w, (void)deft_program_output(NULL, 0, NULL, NULL));
    return DEFT_OK;
}

static deft_status quiet_unmap(world *w)
{
    deft_mapped m;
    const deft_status st = deft_map(w->x, &m);
    SUBJECT(w, deft_unmap(&m));
    return st;
}

static deft_status quiet_ctx_destroy(world *w)
{
    deft_ctx *cx = NULL;
    const deft_status st = deft_ctx_create(w->rt, NULL, &cx);
    (void)deft_keep(deft_ones(cx, SHAPE, DEFT_F32));
    (void)deft_step_begin(cx);
    SUBJECT(w, deft_ctx_destroy(&cx));
    return st;
}

static deft_status quiet_runtime_destroy(world *w)
{
    deft_runtime *rt = NULL;
    const deft_status st = deft_runtime_create(NULL, &rt);
    SUBJECT(w, deft_runtime_destroy(&rt));
    return st;
}

/* ---- the table ---- */

typedef struct row {
    const char *name;                                 /* of the public function */
    make_fn make;                                     /* it records, */
    deft_status (*act)(world *w), (*quiet)(world *w); /* or acts, or takes no memory */
} row;

static const row rows[] = {
#define ROW(id, fn, ...) { .name = "deft_" #fn, .make = make_##id },
    RECORDING(ROW)
#undef ROW
#define ROW(fn) { .name = "deft_" #fn, .make = make_##fn },
        DEFT_UNARY_OPS(ROW)
#undef ROW
#define ROW(fn)                                                                                    \
    { .name = "deft_" #fn, .make = make_##fn },                                                    \
        { .name = "deft_" #fn "_i", .make = make_##fn##_i },                                       \
        { .name = "deft_" #fn "_u", .make = make_##fn##_u },                                       \
        { .name = "deft_" #fn "_f", .make = make_##fn##_f },
            DEFT_BINARY_OPS(ROW)
#undef ROW
#define ROW(fn) { .name = "deft_" #fn, .act = act_##fn },
                ROW(eval) ROW(nan_check) ROW(read) ROW(item_f32) ROW(item_f64) ROW(item_i32) ROW(
                    item_i64) ROW(item_u8) ROW(item_i8) ROW(item_i16) ROW(item_u16) ROW(item_u32)
                    ROW(item_u64) ROW(item_bool) ROW(item_c64) ROW(item_c128) ROW(map) ROW(
                        map_device) ROW(device_work) ROW(map_view) ROW(to_dlpack) ROW(to_dlpack_old)
                        ROW(from_dlpack) ROW(from_dlpack_old) ROW(device_of) ROW(stream)
                            ROW(device_describe) ROW(device_memory_read) ROW(format) ROW(print) ROW(
                                save) ROW(load) ROW(scope_begin) ROW(scope_end) ROW(scope_return)
                                ROW(step_begin) ROW(step_begin_with) ROW(step_end)
                                    ROW(step_memory_read) ROW(step_submit) ROW(wait) ROW(keep) ROW(
                                        ctx_create) ROW(runtime_create) ROW(show) ROW(store_next)
#undef ROW
#define ROW(fn, ...) { .name = "deft_" #fn, .quiet = quiet_##fn },
                                        QUIET(ROW) ROW(step_abort, ) ROW(drop, ) ROW(unmap, )
                                            ROW(ctx_destroy, ) ROW(runtime_destroy, )
#undef ROW
                                                { .name = "deft_split", .make = make_split },
    { .name = "deft_unstack", .make = make_unstack },
    { .name = "deft_meshgrid", .make = make_meshgrid },
    { .name = "deft_broadcast_tensors", .make = make_broadcast_tensors },
    { .name = "deft_while", .make = make_while },
    { .name = "deft_scan", .make = make_scan },
    { .name = "deft_cond", .make = make_cond },
    { .name = "deft_grad", .make = make_grad },
    { .name = "deft_grad", .make = make_grad_of_loops },
    { .name = "deft_grad", .make = make_grad_of_attention },
    { .name = "deft_value_and_grad", .make = make_value_and_grad },
    { .name = "deft_jvp", .make = make_jvp },
    { .name = "deft_stop_gradient", .make = make_stop_gradient },
    { .name = "deft_grad_hook", .make = make_grad_hook },
    { .name = "deft_custom_grad", .make = make_custom_grad },
    { .name = "deft_op_call", .make = make_op_call },
    { .name = "deft_apply_list", .make = make_apply },
    { .name = "deft_formula_define", .act = act_formula_define },
    { .name = "deft_op_define", .act = act_op_define },
    { .name = "deft_op_destroy", .act = act_op_define },
    { .name = "deft_op_check", .act = act_op_define },
    { .name = "deft_grad_check", .act = act_grad_check },
    { .name = "deft_associative_scan", .make = make_associative_scan },
    { .name = "deft_vmap", .make = make_vmap },
    { .name = "deft_vmap", .make = make_vmap_of_loops },
    { .name = "deft_vmap", .make = make_grad_of_vmap },
#define ROW(fn) { .name = "deft_" #fn, .act = act_##fn },
    NETWORK_ACTS(ROW)
#undef ROW
#define ROW(fn) { .name = "deft_" #fn, .make = make_##fn },
        NETWORK_RECORDS(ROW)
#undef ROW
#define ROW(fn) { .name = "deft_" #fn, .quiet = quiet_network },
            NETWORK_QUIET(ROW)
#undef ROW
                { .name = "deft_site", .act = act_site },
    { .name = "deft_label_begin", .act = act_site },
    { .name = "deft_label_end", .act = act_site },
    { .name = "deft_unmap_view", .act = act_map_view },
    { .name = "deft_to_arrow", .act = act_arrow },
    { .name = "deft_from_arrow", .act = act_arrow },
    { .name = "deft_save_npy", .act = act_files },
    { .name = "deft_save_npz", .act = act_files },
    { .name = "deft_file_open", .act = act_files },
    { .name = "deft_file_close", .act = act_files },
    { .name = "deft_file_load", .act = act_files },
    { .name = "deft_file_map", .act = act_files },
    { .name = "deft_file_count", .quiet = quiet_file },
    { .name = "deft_program_inputs", .quiet = quiet_program },
    { .name = "deft_program_outputs", .quiet = quiet_program },
    { .name = "deft_program_input", .quiet = quiet_program },
    { .name = "deft_program_output", .quiet = quiet_program },
    { .name = "deft_file_entry_read", .quiet = quiet_file },
    { .name = "deft_load", .act = act_load_in_a_step },
    { .name = "deft_load", .act = act_load_wrapped },
    { .name = "deft_capture_create", .act = act_capture_create },
    { .name = "deft_capture_set_f", .act = act_capture_create },
    { .name = "deft_capture_set_i", .act = act_capture_create },
    { .name = "deft_capture_set_u", .act = act_capture_create },
    { .name = "deft_export", .act = act_export },
    { .name = "deft_program_load", .act = act_program },
    { .name = "deft_program_call", .act = act_program },
    { .name = "deft_program_destroy", .act = act_program },
    { .name = "deft_param_f", .act = act_capture_call },
    { .name = "deft_param_i", .act = act_capture_call },
    { .name = "deft_capture_call", .act = act_capture_call },
    { .name = "deft_capture_call", .act = act_capture_replay },
    { .name = "deft_capture_destroy", .quiet = quiet_capture_destroy },
    { .name = "deft_capture_stats_read", .quiet = quiet_capture_stats_read },
    { .name = "deft_replay_read", .quiet = quiet_replay_read },
    { .name = "deft_capture_reason", .quiet = quiet_capture_stats_read },
};

enum { N_ROWS = sizeof rows / sizeof *rows, N_EXPORTED = sizeof exported / sizeof *exported };

static bool has_row(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (!strcmp(rows[i].name, name)) return true;
    return false;
}

static bool is_exported(const char *name)
{
    for (size_t i = 0; i < N_EXPORTED; i++)
        if (!strcmp(exported[i], name)) return true;
    return false;
}

static void compare_names(void)
{
    for (size_t i = 0; i < N_EXPORTED; i++)
        if (!has_row(exported[i])) oom_fault(exported[i], 0, "is exported and in no row");
    for (size_t i = 0; i < N_ROWS; i++)
        if (!is_exported(rows[i].name)) oom_fault(rows[i].name, 0, "has a row and is not exported");
}

/* ---- driving them ---- */

/* How a call is driven; scenarios carry no pointer of their own. */
static struct {
    const row *row;
    int n_filled, kind; /* records before the call: how many, of which kind */
    size_t fail_at;     /* 0: not by this file, but by world.c */
    bool keep_failing, hit;
    uint64_t n_recorded; /* by the call */
} drive;

/* What runs out first. */
enum { FILL_RECORDS, FILL_EXTENTS, FILL_ARGUMENTS, FILL_HANDLES };

/* How many it takes; where memory for handles is aligned decides between two. */
static const struct {
    int kind, n;
} brims[] = {
    { FILL_RECORDS, 256 },     { FILL_EXTENTS, 252 },     { FILL_ARGUMENTS, 256 },
    { FILL_HANDLES, 7 * 254 }, { FILL_HANDLES, 8 * 254 },
};

static void fill(world *w)
{
    for (int i = 0; i < drive.n_filled; i++) switch (drive.kind) {
        case FILL_RECORDS: (void)deft_neg(w->x); break;
        case FILL_EXTENTS: (void)deft_reshape(w->x, DEFT_SHAPE(6, 4)); break;
        case FILL_ARGUMENTS: (void)deft_add_f(w->x, i); break;
        default: (void)deft_num(w->cx, i);
        }
}

static uint64_t recorded(const world *w)
{
    deft_stats s;
    deft_stats_read(w->cx, &s, sizeof s);
    return s.ops_recorded;
}

/* A step that uses the call's result and assigns another parameter too. */
static deft_status record(world *w)
{
    deft_tensor *t;
    const deft_scope s = deft_step_begin(w->cx);
    fill(w);
    const uint64_t before = recorded(w);
    if (drive.fail_at) fail_mem_at(w->mem, drive.fail_at, drive.keep_failing);
    const size_t failed = fail_mem_count(w->mem).failed;
    SUBJECT(w, t = drive.row->make(w));
    drive.hit = fail_mem_count(w->mem).failed > failed;
    if (drive.fail_at) fail_mem_at(w->mem, 0, false);
    if (!t && w->rng.next) w->wrong = "a draw that failed took a number";
    drive.n_recorded = recorded(w) - before;
    deft_assign(w->p[0], deft_add_f(deft_mul_f(w->p[0], 2), 1));
    deft_tensor *const reals = deft_isdtype(deft_dtype_of(t), DEFT_KIND_COMPLEX) ? deft_abs(t) : t;
    deft_assign(w->p[1], deft_add(w->p[1], deft_sum(deft_cast(reals, DEFT_F32), ALL, 0)));
    return deft_step_end(s);
}

static deft_status record_again(world *w, const scenario *sc)
{
    drive.fail_at = 0;
    w->rng = (deft_rng){ 5, 0 };
    return sc->run(w);
}

/* Allocation n of the call alone, behind n_filled records. Returns whether there was one. */
static bool brim_attempt(const scenario *sc, const outcome *want, size_t n, bool keep_failing)
{
    world w = { .mem = fail_mem_create() };
    outcome before;
    if (!world_open(&w, NULL) || !world_fill(&w)) abort();
    world_get(&w, &before);
    drive.fail_at = n;
    drive.keep_failing = keep_failing;
    const deft_status st = record(&w);
    const bool hit = drive.hit;
    drive.n_filled = 0;
    world_check(&w, sc, n, st, &before, want, record_again);
    world_finish(&w, sc->name, n);
    drive.fail_at = 0;
    oom_count();
    return hit;
}

static int brim_step = 1;

/* A part takes one brim that has something to fail, another one for the next row. */
static size_t fail_at_brim(const scenario *sc, const outcome *want, uint64_t n_recorded)
{
    const size_t n_brims = sizeof brims / sizeof *brims, row_at = (size_t)(drive.row - rows);
    size_t n_hit = 0;
    for (size_t i = 0; i < n_brims && (brim_step == 1 || !n_hit); i++) {
        const size_t k = (row_at + i) % n_brims;
        const int most = brims[k].kind == FILL_HANDLES ? 1 : (int)n_recorded + 3;
        for (int below = 0; below <= most; below += brim_step)
            for (size_t n = 1, more = 1; more; n++) {
                drive.kind = brims[k].kind;
                drive.n_filled = brims[k].n - below;
                more = brim_attempt(sc, want, n, false);
                n_hit += more;
                if (n > 1 || !more) continue;
                drive.n_filled = brims[k].n - below;
                (void)brim_attempt(sc, want, n, true);
            }
    }
    return n_hit;
}

/* Bit ops have no rule for the fractional number of their _f form. */
static bool refused(const row *r)
{
    const size_t n = strlen(r->name);
    return operand_is_int(r->name + 5) && n > 2 && !strcmp(r->name + n - 2, "_f");
}

/* keeps: whether the failing allocation goes on failing; bit 0: no, bit 1: yes. */
static void drive_row(const row *r, unsigned keeps)
{
    outcome want;
    const scenario sc = { .name = r->name,
                          .run = r->make  ? record
                                 : r->act ? r->act
                                          : r->quiet,
                          .want = refused(r) ? DEFT_E_DTYPE : DEFT_OK };
    drive.row = r;
    drive.n_filled = 0;
    if (!scenario_once(&sc, &want)) return;
    if (r->quiet) {
        if (want.subject) oom_fault(r->name, want.subject, "allocates, and should not");
        return;
    }
    const uint64_t n_recorded = drive.n_recorded;
    for (int keep = 0; keep < 2; keep++)
        if (keeps >> keep & 1) scenario_fail_each(&sc, keep, &want);
    const size_t n_hit = r->make ? fail_at_brim(&sc, &want, n_recorded) : want.subject;
    if (!n_hit) oom_fault(r->name, 0, "allocates nothing: the row has lost its subject");
}

/* Of the allocations of a call, and of the places at the brim, the first is taken and each n-th
 * after it. */
static void take_every(int n)
{
    scenario_every((size_t)n);
    brim_step = n;
}

/* With the name of a function: its row alone. */
int main(int argc, char **argv)
{
    enum { FEW = 120 };
    uint32_t n_whole = argc > 1 ? N_ROWS : 0;
    if (!mkdtemp(folder) || !save_parameters()) return 99;
    compare_names();
    for (size_t i = 0; i < N_ROWS && argc > 1; i++)
        if (!strcmp(rows[i].name, argv[1])) drive_row(&rows[i], 3);
    if (argc == 1 && test_is_limited()) { /* each row a little, before some of them whole */
        take_every(FEW);
        for (size_t i = 0; i < N_ROWS; i++) drive_row(&rows[i], 1u << i % 2);
    }
    take_every(1);
    for (; n_whole < N_ROWS && test_time_left(1); n_whole++)
        drive_row(&rows[test_scattered(n_whole, N_ROWS)], 3);
    unlink(in_folder("parameters"));
    if (rmdir(folder)) oom_fault("deft_save", 0, "a file was left behind");
    printf(
        "%d public functions, %d rows (%u with each allocation), %ld allocations failed in turn, "
        "%ld faults\n",
        N_EXPORTED, N_ROWS, n_whole, oom_cases(), oom_faults());
    return oom_faults() ? 1 : 0;
}
