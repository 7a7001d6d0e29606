/* SPDX-License-Identifier: Apache-2.0
 *
 * Networks: named parameters, layers, optimizers. All of it records by the public calls and nothing
 * else, so that forward, backward and update stay one trace. docs/nn.md has a program.
 *
 * A deft_nn is the list: it owns parameters (trained), buffers (state that is not) and numbers of
 * the caller's, each under a dotted name, and saves and loads them. A layer is a plain struct that
 * borrows parameters from it: copied freely, nothing to destroy. Names, shapes and defaults are
 * PyTorch's.
 *
 * Calls that return a bool or a deft_tensor * are recording calls: false or NULL means a mistake
 * (deft/context.h says which call delivers it). A deft_nn belongs to the thread of its context, and
 * is destroyed before it.
 */
#ifndef DEFT_NN_H
#define DEFT_NN_H

#include "deft/grad.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct deft_nn deft_nn;

typedef struct deft_nn_options {
    size_t size;      /* sizeof(deft_nn_options) */
    deft_dtype dtype; /* of parameters: DEFT_F32 or DEFT_F64; others: DEFT_F32 */
    uint64_t seed;    /* of initial values and dropout */
} deft_nn_options;

/* options NULL: defaults. *out NULL on error. */
DEFT_API DEFT_MUST_CHECK deft_status deft_nn_create(deft_ctx *cx, const deft_nn_options *options,
                                                    deft_nn **out);
/* Drops all tensors of the list. NULL and *nn NULL are fine; leaves *nn NULL. */
DEFT_API void deft_nn_destroy(deft_nn **nn);

/* ---- the list ---- */

typedef enum deft_init_kind {
    DEFT_INIT_ZEROS = 0,
    DEFT_INIT_ONES = 1,
    DEFT_INIT_CONSTANT = 2,        /* a */
    DEFT_INIT_UNIFORM = 3,         /* in [a, b) */
    DEFT_INIT_NORMAL = 4,          /* mean a, deviation b */
    DEFT_INIT_KAIMING_UNIFORM = 5, /* He et al. 2015; gain a, 0: sqrt(2), that of relu */
    DEFT_INIT_KAIMING_NORMAL = 6,
    DEFT_INIT_XAVIER_UNIFORM = 7, /* Glorot, Bengio 2010; gain a, 0: 1 */
    DEFT_INIT_XAVIER_NORMAL = 8
} deft_init_kind;

/* How a tensor begins. A weight is [out, in, ...]: Kaiming looks at `in` and what follows, Xavier
 * at both, and both need two axes. */
typedef struct deft_init {
    deft_init_kind kind;
    double a, b;
} deft_init;

/* Adds a tensor under prefix and name, which is copied; buffers are not trained. Drawn numbers are
 * those of deft_nn_rng. Computed at once, or with all others when the outermost scope that is open
 * ends. Not inside a step, a capture or a loop, since it is to stay. The tensor is nn's.
 * DEFT_E_ARG: the name is taken, or empty. */
DEFT_API deft_tensor *deft_nn_parameter(deft_nn *nn, const char *name, deft_shape shape,
                                        deft_init init);
DEFT_API deft_tensor *deft_nn_buffer(deft_nn *nn, const char *name, deft_shape shape,
                                     deft_dtype dtype, deft_init init);
/* Saves and loads *number with the rest: how far training has come. It must live as long as nn. */
DEFT_API bool deft_nn_number(deft_nn *nn, const char *name, int64_t *number);

/* Names given from here on begin with "name." too, until the pop. */
DEFT_API bool deft_nn_push(deft_nn *nn, const char *name);
DEFT_API void deft_nn_pop(deft_nn *nn); /* does nothing where there is no prefix */

/* The parameter or buffer of that whole name; NULL, which is no error, when there is none. */
DEFT_API deft_tensor *deft_nn_find(const deft_nn *nn, const char *name);
/* Gives it a new beginning. DEFT_E_NOT_FOUND. */
DEFT_API bool deft_nn_fill(deft_nn *nn, const char *name, deft_init init);
/* Parameters in the order they were added; i below deft_nn_n_parameters, else NULL. The name lives
 * as long as nn. */
DEFT_API size_t deft_nn_n_parameters(const deft_nn *nn);
DEFT_API deft_tensor *deft_nn_parameter_at(const deft_nn *nn, size_t i);
DEFT_API const char *deft_nn_name_at(const deft_nn *nn, size_t i);
/* Elements of all parameters, or of those that are trained. */
DEFT_API int64_t deft_nn_numel(const deft_nn *nn, bool trainable_only);

/* Whether the parameter `name` and all below "name." are trained: all are until told otherwise. ""
 * or NULL: all. An optimizer takes those that are when it is made. Returns how many there are. */
DEFT_API size_t deft_nn_set_trainable(deft_nn *nn, const char *name, bool trainable);
/* Whether dropout drops; true at first. */
DEFT_API void deft_nn_set_training(deft_nn *nn, bool training);
DEFT_API bool deft_nn_is_training(const deft_nn *nn);
/* The stream of nn's random numbers, for the caller's draws too; lives as long as nn. */
DEFT_API deft_rng *deft_nn_rng(deft_nn *nn);

typedef enum deft_nn_part {
    DEFT_NN_ALL = 0,       /* parameters, buffers, numbers, the random stream: to go on from there,
                            * bit for bit */
    DEFT_NN_PARAMETERS = 1 /* alone: to use, or to start from */
} deft_nn_part;

/* A safetensors file (deft/eval.h); numbers are i64 of shape []. Load takes all or nothing. Not
 * inside a step. */
DEFT_API DEFT_MUST_CHECK deft_status deft_nn_save(deft_nn *nn, const char *path, deft_nn_part part);
DEFT_API DEFT_MUST_CHECK deft_status deft_nn_load(deft_nn *nn, const char *path, deft_nn_part part);

/* ---- layers ----
 *
 * _init adds the parameters below `name` to nn; a layer whose _init failed has NULLs, and its call
 * passes them on as errors. Members may be read, and replaced (weights that are shared). _call
 * records, in any scope. */

/* x [..., in] -> [..., out]: x times weight [out, in] transposed, plus bias [out]. Both begin
 * uniform within 1 / sqrt(in). */
typedef struct deft_nn_linear {
    deft_tensor *weight, *bias; /* bias NULL: none */
} deft_nn_linear;
DEFT_API bool deft_nn_linear_init(deft_nn_linear *l, deft_nn *nn, const char *name, int64_t in,
                                  int64_t out, bool has_bias);
DEFT_API deft_tensor *deft_nn_linear_call(const deft_nn_linear *l, deft_tensor *x);

/* Integers of any shape -> [their shape, width]: rows of weight [n, width], which begins normal. */
typedef struct deft_nn_embedding {
    deft_tensor *weight;
} deft_nn_embedding;
DEFT_API bool deft_nn_embedding_init(deft_nn_embedding *l, deft_nn *nn, const char *name, int64_t n,
                                     int64_t width);
DEFT_API deft_tensor *deft_nn_embedding_call(const deft_nn_embedding *l, deft_tensor *indices);

/* Over the last axis, of width elements. layer: (x - mean) / sqrt(var + eps) * weight + bias (Ba,
 * Kiros, Hinton 2016). rms: x / sqrt(mean(x * x) + eps) * weight (Zhang, Sennrich 2019). weight
 * begins as 1, bias as 0. */
typedef struct deft_nn_norm {
    deft_tensor *weight, *bias; /* bias NULL: rms */
    double eps; /* after _init: 1e-5; rms: the difference between 1 and the next number */
} deft_nn_norm;
DEFT_API bool deft_nn_norm_init_layer(deft_nn_norm *l, deft_nn *nn, const char *name,
                                      int64_t width);
DEFT_API bool deft_nn_norm_init_rms(deft_nn_norm *l, deft_nn *nn, const char *name, int64_t width);
DEFT_API deft_tensor *deft_nn_norm_call(const deft_nn_norm *l, deft_tensor *x);

/* While nn is training, each element becomes 0 with probability p, else x / (1 - p) (Srivastava et
 * al. 2014): a draw of deft_nn_rng each call. Else, and for p 0, x itself. p in [0, 1]. */
typedef struct deft_nn_dropout {
    deft_nn *nn;
    double p;
} deft_nn_dropout;
DEFT_API deft_tensor *deft_nn_dropout_call(const deft_nn_dropout *l, deft_tensor *x);

/* Multi-head attention of a sequence to itself (Vaswani et al. 2017): x [batch, time, width] ->
 * the same shape. Parameters as torch.nn.MultiheadAttention(width, n_heads, batch_first=True) has
 * them: in_proj_weight [3 width, width], in_proj_bias, out_proj.weight, out_proj.bias. */
typedef struct deft_nn_self_attention {
    deft_nn_linear in, out; /* query, key and value in one */
    deft_nn_dropout drop;   /* of the weights */
    int64_t n_heads;
    bool causal; /* each place sees itself and what is before; true after _init */
} deft_nn_self_attention;
/* width is a multiple of n_heads; drop: p. */
DEFT_API bool deft_nn_self_attention_init(deft_nn_self_attention *l, deft_nn *nn, const char *name,
                                          int64_t width, int64_t n_heads, double drop);
DEFT_API deft_tensor *deft_nn_self_attention_call(const deft_nn_self_attention *l, deft_tensor *x);

/* ---- optimizers ---- */

typedef enum deft_optim_kind {
    DEFT_OPTIM_SGD = 0,
    DEFT_OPTIM_ADAM = 1, /* Kingma, Ba 2015 */
    DEFT_OPTIM_ADAMW = 2 /* Loshchilov, Hutter 2019 */
} deft_optim_kind;

typedef struct deft_optim_options {
    size_t size; /* sizeof(deft_optim_options) */
    deft_optim_kind kind;
    const char *name;    /* what its state is named below; NULL: "optim" */
    double momentum;     /* SGD */
    bool nesterov;       /* SGD, with momentum */
    double beta1, beta2; /* ADAM, ADAMW */
    double eps;          /* ADAM, ADAMW */
    double weight_decay; /* SGD, ADAM: added to the gradient; ADAMW: of the parameter itself */
    bool accumulates;    /* keeps a sum of gradients, for deft_optim_accumulate */
} deft_optim_options;

/* PyTorch's defaults. */
DEFT_API deft_optim_options deft_optim_defaults(deft_optim_kind kind);

typedef struct deft_optim deft_optim;

/* For the parameters of nn that are trainable now. Its state is added to nn: buffers
 * "optim.exp_avg.NAME" and so on, and the number "optim.step". options NULL: those of ADAMW. *out
 * NULL on error. Destroyed before nn, where its state stays. */
DEFT_API DEFT_MUST_CHECK deft_status deft_optim_create(deft_nn *nn,
                                                       const deft_optim_options *options,
                                                       deft_optim **out);
DEFT_API void deft_optim_destroy(deft_optim **o); /* NULL and *o NULL are fine */

/* What gradients are taken with respect to; the array lives as long as o. */
DEFT_API size_t deft_optim_n(const deft_optim *o);
DEFT_API deft_tensor *const *deft_optim_parameters(const deft_optim *o);

/* Inside a step: the update. grads[i] belongs to parameter i; NULL: leave that one as it is. grads
 * itself NULL: what was accumulated. Sums, where o accumulates, are 0 afterwards. The learning
 * rate, like all that changes from step to step, is a number: nothing is planned or compiled again.
 *
 * Steps are counted here, as a number. One that fails gives none back, as with deft_rng:
 * deft_optim_set_steps.
 *
 * In a captured function (deft/capture.h) the rate is a bare number, deft_param_f or deft_const_f:
 * DEFT_E_STATE for a C number, which would stay for ever, DEFT_E_ARG for any other tensor. A replay
 * looks the rate up, computes bias corrections for the step it is, and counts; a call that fails
 * counts nothing. o must live as long as the capture. Everything else that is given to calls of
 * this header in numbers (max_norm, weights of micro-batches, members of layers and options,
 * whether nn is training) is part of the function, and stays as it was recorded. */
DEFT_API bool deft_optim_step(deft_optim *o, deft_tensor *const *grads, double rate);
/* The same with the rate as a bare number of deft's: deft_num, deft_param_f, deft_const_f. In C,
 * deft_optim_step takes either. */
DEFT_API bool deft_optim_step_t(deft_optim *o, deft_tensor *const *grads, deft_tensor *rate);
DEFT_API int64_t deft_optim_steps(const deft_optim *o);
DEFT_API void deft_optim_set_steps(deft_optim *o, int64_t steps);

/* The same where condition, bool [], holds true; else nothing changes but the count. Nothing is
 * read or waited for. Sums become 0 in both cases. */
DEFT_API bool deft_optim_step_if(deft_optim *o, deft_tensor *const *grads, double rate,
                                 deft_tensor *condition);
DEFT_API bool deft_optim_step_if_t(deft_optim *o, deft_tensor *const *grads, deft_tensor *rate,
                                   deft_tensor *condition);

#if !defined(__cplusplus) && !defined(DEFT_NO_GENERIC)
#define deft_optim_step(o, grads, rate)                                                            \
    _Generic((rate), deft_tensor *                                                                 \
             : deft_optim_step_t, default                                                          \
             : deft_optim_step)((o), (grads), (rate))
#define deft_optim_step_if(o, grads, rate, condition)                                              \
    _Generic((rate), deft_tensor *                                                                 \
             : deft_optim_step_if_t, default                                                       \
             : deft_optim_step_if)((o), (grads), (rate), (condition))
#endif

/* Inside a step: adds weight * grads[i] to sum i. Micro-batches, each a step of its own, of equal
 * size: weight 1 / how many there are. */
DEFT_API bool deft_optim_accumulate(deft_optim *o, deft_tensor *const *grads, double weight);
/* The sums, to be clipped or looked at; NULL when o does not accumulate. */
DEFT_API deft_tensor *const *deft_optim_sums(const deft_optim *o);

/* Scales all gradients by the same number, so that the root of the sum of all their squares is at
 * most max_norm: grads[i] is replaced, NULLs are passed over, but one is there. *norm, when norm is
 * not NULL, gets what it was, f32 [] (f64 when a gradient is). Nothing is read or waited for. */
DEFT_API bool deft_clip_grad_norm(deft_tensor **grads, size_t n, double max_norm,
                                  deft_tensor **norm);

/* ---- scale of the loss ----
 *
 * Small gradients become 0 in f16. So the loss is multiplied by a scale, and gradients are divided
 * by it again; where one is infinite or NaN, the update is left out and the scale made smaller
 * (Micikevicius et al. 2018). The scale is a tensor: all of it is part of the step, nothing is read
 * or waited for, and no scale is planned anew. docs/mixed.md */
typedef struct deft_scaler_options {
    size_t size;      /* sizeof(deft_scaler_options) */
    const char *name; /* what its state is named below; NULL: "scaler" */
    double start;     /* the first scale; 0: 65536 */
    int64_t interval; /* updates in a row after which the scale doubles; 0: 2000 */
} deft_scaler_options;

typedef struct deft_scaler deft_scaler;

/* Adds f32 [] buffers to nn, "scaler.scale" and "scaler.good". options NULL: defaults. *out NULL on
 * error. DEFT_E_RANGE: start is not in [2^-24, 2^64], or interval not in [0, 2^24]. Destroyed
 * before nn, where its state stays. */
DEFT_API DEFT_MUST_CHECK deft_status deft_scaler_create(deft_nn *nn,
                                                        const deft_scaler_options *options,
                                                        deft_scaler **out);
DEFT_API void deft_scaler_destroy(deft_scaler **s); /* NULL and *s NULL are fine */
/* f32 []. NULL for NULL. */
DEFT_API deft_tensor *deft_scaler_scale(const deft_scaler *s);
/* loss times the scale, f32: what gradients are taken of. */
DEFT_API deft_tensor *deft_scaler_loss(const deft_scaler *s, deft_tensor *loss);
/* Divides grads[i] by the scale, in f32 at least; NULLs are passed over. Returns whether all of
 * them are finite, bool []: what the next two take. To be clipped afterwards, if at all. */
DEFT_API deft_tensor *deft_scaler_unscale(const deft_scaler *s, deft_tensor **grads, size_t n);
/* Inside a step, after the update (deft_optim_step_if): halves the scale unless is_finite, doubles
 * it after so many updates in a row; it stays in [2^-24, 2^64]. */
DEFT_API bool deft_scaler_update(deft_scaler *s, deft_tensor *is_finite);

/* Factors of the learning rate at a step, counted from 0; multiply what is wanted. steps <= 0: 1,
 * or last. */
DEFT_API double deft_schedule_warm_up(int64_t step, int64_t steps); /* (step + 1) / steps, then 1 */
/* From 1 down to last after `steps`, along half a cosine, or a line. */
DEFT_API double deft_schedule_cosine(int64_t step, int64_t steps, double last);
DEFT_API double deft_schedule_linear(int64_t step, int64_t steps, double last);

#ifdef __cplusplus
}
#endif
#endif
