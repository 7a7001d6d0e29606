/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses, with the names and defaults of PyTorch. tensor.h has deft_cross_entropy, the mean over
 * the rows of a matrix.
 *
 * The rules of tensor.h hold. All losses are recorded as ordinary operations, and have gradients
 * that are finite wherever the loss is finite. Operands broadcast and are promoted; integers become
 * f32. Halves are computed in f32, and the result is rounded once, or stays f32 under a policy of
 * mixed precision.
 *
 * options NULL means defaults. A size of 0 in options, a member that a loss does not take, and a
 * member that is out of its range give DEFT_E_ARG.
 */
#ifndef DEFT_LOSSES_H
#define DEFT_LOSSES_H

#include "deft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What becomes of the losses of all elements. */
typedef enum deft_reduction {
    DEFT_REDUCTION_MEAN = 0,      /**< Their mean; each function says when it is a weighted one. */
    DEFT_REDUCTION_SUM = 1,       /**< Their sum. */
    DEFT_REDUCTION_NONE = 2,      /**< They stay as they are. */
    DEFT_REDUCTION_BATCH_MEAN = 3 /**< Their sum divided by the first extent; deft_kl_div alone. */
} deft_reduction;

/** Options of losses. DEFT_LOSS(...) makes them in C. Each function names the members that it
 * takes beside the reduction. */
typedef struct deft_loss_options {
    size_t size;              /**< sizeof(deft_loss_options) */
    deft_reduction reduction; /**< What becomes of the losses of all elements. */
    deft_tensor *weight;      /**< Factors of losses; NULL: 1. */
    deft_tensor *pos_weight;  /**< Factors of the part for a target of 1; NULL: 1. */
    bool ignores;             /**< Labels equal to `ignored` are left out. */
    int64_t ignored;          /**< The label that is left out. */
    double smoothing;         /**< Part of the target that all classes share, in [0, 1]. */
    double margin;            /**< The margin. 0 means 0, except where a function says otherwise. */
    double beta;              /**< Where a square becomes a line, above 0. 0: 1. */
    bool log_target;          /**< The target has logarithms. */
    bool swap;                /**< The nearer of two distances counts (Balntas et al. 2016). */
} deft_loss_options;

/** The cross-entropy of logits [N, classes, ...] and a target, with the classes on axis 1; logits
 * of one axis have the classes on axis 0. It takes weight, smoothing and ignored.
 *
 * The target has integer labels [N, ...], or as floats the probabilities of all classes, in the
 * shape of the logits. weight has a factor for each class. The mean over labels is divided by the
 * sum of the factors of the labels; that over probabilities by the number of rows. A label that is
 * no class gives NaN, unless it is left out. */
DEFT_API deft_tensor *deft_cross_entropy_loss(deft_tensor *logits, deft_tensor *target,
                                              const deft_loss_options *options);

/** The same for logarithms of probabilities in place of logits, and labels. It takes weight and
 * ignored. */
DEFT_API deft_tensor *deft_nll_loss(deft_tensor *log_probabilities, deft_tensor *labels,
                                    const deft_loss_options *options);

/** The cross-entropy of probabilities p and targets, both in [0, 1]: -(t log p + (1 - t) log(1 -
 * p)). Logarithms are at least -100, and have gradient 0 there. It takes weight. */
DEFT_API deft_tensor *deft_bce_loss(deft_tensor *p, deft_tensor *target,
                                    const deft_loss_options *options);

/** deft_bce_loss of sigmoid(x), computed without overflow. It takes weight and pos_weight. */
DEFT_API deft_tensor *deft_bce_logits_loss(deft_tensor *x, deft_tensor *target,
                                           const deft_loss_options *options);

/** The square, and the magnitude, of the difference. They take weight. */
DEFT_API deft_tensor *deft_mse_loss(deft_tensor *x, deft_tensor *target,
                                    const deft_loss_options *options);
DEFT_API deft_tensor *deft_l1_loss(deft_tensor *x, deft_tensor *target,
                                   const deft_loss_options *options);

/** With d the magnitude of the difference: d d / (2 beta) below beta, else d - beta / 2. The huber
 * loss is beta times as large. They take weight and beta. */
DEFT_API deft_tensor *deft_smooth_l1_loss(deft_tensor *x, deft_tensor *target,
                                          const deft_loss_options *options);
DEFT_API deft_tensor *deft_huber_loss(deft_tensor *x, deft_tensor *target,
                                      const deft_loss_options *options);

/** target * (log(target) - x), where x has logarithms of probabilities. It is 0 where target is
 * 0. It takes log_target and DEFT_REDUCTION_BATCH_MEAN. */
DEFT_API deft_tensor *deft_kl_div(deft_tensor *x, deft_tensor *target,
                                  const deft_loss_options *options);

/** For a target of 1, 1 - cos(a, b); else max(0, cos(a, b) - margin), with the cosine of the angle
 * between rows along the last axis. It takes margin. */
DEFT_API deft_tensor *deft_cosine_embedding_loss(deft_tensor *a, deft_tensor *b,
                                                 deft_tensor *target,
                                                 const deft_loss_options *options);

/** max(0, -target * (a - b) + margin), with a target of 1 or -1. It takes margin. */
DEFT_API deft_tensor *deft_margin_ranking_loss(deft_tensor *a, deft_tensor *b, deft_tensor *target,
                                               const deft_loss_options *options);

/** For a target of 1, x; else max(0, margin - x). It takes margin, where 0 means 1. */
DEFT_API deft_tensor *deft_hinge_embedding_loss(deft_tensor *x, deft_tensor *target,
                                                const deft_loss_options *options);

/** log(1 + exp(-target * x)), computed without overflow, with a target of 1 or -1. */
DEFT_API deft_tensor *deft_soft_margin_loss(deft_tensor *x, deft_tensor *target,
                                            const deft_loss_options *options);

/** max(0, |anchor - positive| - |anchor - negative| + margin), with lengths along the last axis of
 * differences to which 1e-6 is added. It takes swap, and margin, where 0 means 1. */
DEFT_API deft_tensor *deft_triplet_margin_loss(deft_tensor *anchor, deft_tensor *positive,
                                               deft_tensor *negative,
                                               const deft_loss_options *options);

/** Options of deft_ctc_loss. DEFT_CTC(...) makes them in C. */
typedef struct deft_ctc_options {
    size_t size;              /**< sizeof(deft_ctc_options) */
    deft_reduction reduction; /**< The mean is that of the losses divided by the lengths of targets,
                               * which count as 1 when they are 0. */
    int64_t blank;            /**< The class of the blank. */
    bool zero_infinity;       /**< Infinite losses count as 0, and have the gradient 0. */
} deft_ctc_options;

/** Connectionist temporal classification (Graves et al. 2006): for each of N examples, minus the
 * logarithm of the probability of all paths that read as its target. A path has a class at each
 * time. It reads as itself without repetitions, and then without blanks.
 *
 *   - log_probabilities: [T, N, C], the logarithms of the probabilities of C classes.
 *   - targets: integers [N, S], which are classes, and no blanks.
 *   - n_times, n_targets: integers [N], how many times and labels each example has; NULL: all.
 *     What lies behind them has no effect.
 *
 * A target that no path can read has an infinite loss. A label that is no class gives DEFT_E_RANGE
 * when the loss is computed. */
DEFT_API deft_tensor *deft_ctc_loss(deft_tensor *log_probabilities, deft_tensor *targets,
                                    deft_tensor *n_times, deft_tensor *n_targets,
                                    const deft_ctc_options *options);

#ifndef __cplusplus
/** Options of deft_ctc_loss in C, from designated initializers; they live until the end of the
 * block. */
#define DEFT_CTC(...) (&(const deft_ctc_options){ .size = sizeof(deft_ctc_options), __VA_ARGS__ })
/** Options in C, from designated initializers; they live until the end of the block. */
#define DEFT_LOSS(...)                                                                             \
    (&(const deft_loss_options){ .size = sizeof(deft_loss_options), __VA_ARGS__ })
#endif

#ifdef __cplusplus
}
#endif
#endif
