/* SPDX-License-Identifier: Apache-2.0
 *
 * Networks: named parameters, layers, optimizers, learning rates, and a scale of the loss.
 *
 * Everything here records by public calls of deft. So the forward pass, the backward pass
 * and the update stay one trace. docs/nn.md has a program. Names, shapes and defaults are
 * those of PyTorch.
 *
 * A deft_nn is a list that owns parameters, which are trained, and buffers, which are state
 * that is not trained. It also refers to numbers of the program. Each entry has a dotted
 * name, and the list saves and loads all of them. A layer is a plain struct of the program
 * that borrows parameters from the list. It may be copied, and needs no destroy.
 *
 * Rules for all functions here, unless a comment says otherwise:
 *   - Functions that return a deft_status are acting calls.
 *   - Functions that return a deft_tensor * or a bool are recording calls: NULL or false
 *     means a mistake. context.h has the error rule, and which call delivers the status that
 *     a comment names here. The innermost open scope owns a result. An operand that is NULL
 *     gives NULL.
 *   - NULL for the deft_nn, optimizer or scaler gives DEFT_E_ARG, NULL, false or 0.
 *   - Arguments are borrowed, and texts are copied.
 *   - DEFT_E_MEMORY is possible everywhere.
 *   - A deft_nn, its layers and its optimizers follow the thread rule of their context: one
 *     thread at a time. They are destroyed before the context.
 */
#ifndef DEFT_NN_H
#define DEFT_NN_H

#include "deft/grad.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The list of a network. */
typedef struct deft_nn deft_nn;

/** Options of deft_nn_create. Members that are 0 have defaults. */
typedef struct deft_nn_options {
    size_t size;      /**< sizeof(deft_nn_options) */
    deft_dtype dtype; /**< Dtype of parameters: DEFT_F32 or DEFT_F64. Others mean DEFT_F32. */
    uint64_t seed;    /**< Seed of initial values and of dropout. */
} deft_nn_options;

/** Makes an empty list, which the caller owns, in *out. options NULL means defaults. On
 * failure *out is NULL.
 *
 * The list has two numbers from the start, "rng.seed" and "rng.next". DEFT_E_ARG: cx or out
 * is NULL, or the size of options is too small. DEFT_E_STATE: the call is inside the
 * function of a loop, a branch or deft_vmap. */
DEFT_API DEFT_MUST_CHECK deft_status deft_nn_create(deft_ctx *cx, const deft_nn_options *options,
                                                    deft_nn **out);

/** Drops all tensors of the list and sets *nn to NULL. NULL and *nn NULL are allowed. Layers
 * that borrow from the list must not be used any more. */
DEFT_API void deft_nn_destroy(deft_nn **nn);

/* ---- the list ---- */

/** How the elements of a new tensor are chosen. a and b are members of deft_init. */
typedef enum deft_init_kind {
    DEFT_INIT_ZEROS = 0,
    DEFT_INIT_ONES = 1,
    DEFT_INIT_CONSTANT = 2, /**< All are a. */
    DEFT_INIT_UNIFORM = 3,  /**< Uniform in [a, b). */
    DEFT_INIT_NORMAL = 4,   /**< Normal with mean a and standard deviation b. */
    /** He et al. 2015, with gain a. A gain of 0 means sqrt(2), that of relu. */
    DEFT_INIT_KAIMING_UNIFORM = 5,
    DEFT_INIT_KAIMING_NORMAL = 6,
    /** Glorot and Bengio 2010, with gain a. A gain of 0 means 1. */
    DEFT_INIT_XAVIER_UNIFORM = 7,
    DEFT_INIT_XAVIER_NORMAL = 8
} deft_init_kind;

/** The initial value of a tensor.
 *
 * A weight is [out, in, ...]. Kaiming uses the number of inputs, in times the extents that
 * follow. Xavier uses the number of outputs as well. Both need at least 2 axes, else
 * DEFT_E_SHAPE. */
typedef struct deft_init {
    deft_init_kind kind; /**< How elements are chosen. */
    double a;            /**< The first number of the kind. */
    double b;            /**< The second number of the kind. */
} deft_init;

/** Adds a tensor to the list and returns it. Its full name is the open prefix (deft_nn_push)
 * and name. A parameter has the dtype of the list and is trained; a buffer is not trained.
 *
 * The list owns the tensor: the program must not drop it. Random numbers come from
 * deft_nn_rng. The initial value is computed at once or, inside a scope, with all others
 * when the outermost scope ends.
 *
 * DEFT_E_ARG: the name is empty or taken, or the kind of init is unknown. DEFT_E_STATE: the
 * call is inside a step, a captured function or a loop, where no tensor can stay. The
 * mistakes of tensor.h for shapes and dtypes are possible too. */
DEFT_API deft_tensor *deft_nn_parameter(deft_nn *nn, const char *name, deft_shape shape,
                                        deft_init init);
DEFT_API deft_tensor *deft_nn_buffer(deft_nn *nn, const char *name, deft_shape shape,
                                     deft_dtype dtype, deft_init init);

/** Adds a number of the program to the list, for example how far training has come.
 * deft_nn_save writes *number and deft_nn_load sets it. It must live as long as nn. The name
 * is formed as in deft_nn_parameter. DEFT_E_ARG: number is NULL, or the name is empty or
 * taken. */
DEFT_API bool deft_nn_number(deft_nn *nn, const char *name, int64_t *number);

/** Opens a prefix: the full names of entries that are added later begin with "name.", until
 * deft_nn_pop. Prefixes nest. DEFT_E_ARG: the name is NULL or empty. */
DEFT_API bool deft_nn_push(deft_nn *nn, const char *name);

/** Closes the innermost prefix. Without a prefix it does nothing. */
DEFT_API void deft_nn_pop(deft_nn *nn);

/** Returns the parameter or buffer with that full name, which the list owns. NULL means that
 * there is none, and is no mistake. */
DEFT_API deft_tensor *deft_nn_find(const deft_nn *nn, const char *name);

/** Reinitialises the parameter or buffer with that full name: assigns a new initial value.
 * DEFT_E_NOT_FOUND: there is none. */
DEFT_API bool deft_nn_fill(deft_nn *nn, const char *name, deft_init init);

/** The number of parameters, and the tensor and the full name of parameter i. Parameters have
 * the order in which they were added. The list owns tensor and name. An i that is too large
 * gives NULL, which is no mistake. */
DEFT_API size_t deft_nn_n_parameters(const deft_nn *nn);
DEFT_API deft_tensor *deft_nn_parameter_at(const deft_nn *nn, size_t i);
DEFT_API const char *deft_nn_name_at(const deft_nn *nn, size_t i);

/** The number of elements of all parameters, or of those that are trained. */
DEFT_API int64_t deft_nn_numel(const deft_nn *nn, bool trainable_only);

/** Sets whether the parameter with the full name `name`, and all parameters below "name.", are
 * trained. NULL and "" name all parameters. New parameters are trained.
 *
 * An optimizer takes the parameters that are trained when it is made. Returns the number of
 * parameters that the call concerned. */
DEFT_API size_t deft_nn_set_trainable(deft_nn *nn, const char *name, bool trainable);

/** Sets and returns whether nn is training. Only then dropout has an effect. A new list is
 * training. nn NULL is not training. */
DEFT_API void deft_nn_set_training(deft_nn *nn, bool training);
DEFT_API bool deft_nn_is_training(const deft_nn *nn);

/** Returns the stream of random numbers of nn, which lives as long as nn. The program may
 * draw from it too. */
DEFT_API deft_rng *deft_nn_rng(deft_nn *nn);

/** The entries that a file has. */
typedef enum deft_nn_part {
    /** Parameters, buffers, numbers and the stream of random numbers. Training that resumes
     * from the file has the same bits. */
    DEFT_NN_ALL = 0,
    /** Parameters alone: for use, or as a start. */
    DEFT_NN_PARAMETERS = 1
} deft_nn_part;

/** Writes the entries of nn to a safetensors file, or sets them from one. Names are the full
 * names, and a number is an i64 of shape []. deft_nn_load sets all entries or none.
 *
 * Statuses are those of deft_save and deft_load (eval.h). DEFT_E_STATE: the call is inside a
 * step, a captured function or a loop. DEFT_E_ARG: an unknown part. */
DEFT_API DEFT_MUST_CHECK deft_status deft_nn_save(deft_nn *nn, const char *path, deft_nn_part part);
DEFT_API DEFT_MUST_CHECK deft_status deft_nn_load(deft_nn *nn, const char *path, deft_nn_part part);

/* ---- layers ----
 *
 * A function _init fills the caller's struct *l and adds its parameters to nn, below `name`
 * and the open prefix. A name of NULL or "" adds them directly below the prefix. It returns
 * false for a mistake, after which nothing has been added and the tensors of *l are NULL.
 * Mistakes are those of deft_nn_parameter.
 *
 * A function _call records the layer, in any scope. A layer whose _init failed gives NULL.
 * Members of the struct may be read and replaced, for example to share weights. The struct
 * borrows its tensors; nn must outlive it. *l is never NULL.
 */

/** A linear layer: x [..., in] becomes [..., out], x times the transposed weight [out, in],
 * plus bias [out]. Initial values of both are uniform within 1 / sqrt(in) of 0. DEFT_E_SHAPE:
 * the last axis of x has not `in` elements. */
typedef struct deft_nn_linear {
    deft_tensor *weight; /**< The weights. */
    deft_tensor *bias;   /**< The bias. NULL: there is none. */
} deft_nn_linear;

/** Makes a layer from `in` to `out` features. Without has_bias, bias is NULL. */
DEFT_API bool deft_nn_linear_init(deft_nn_linear *l, deft_nn *nn, const char *name, int64_t in,
                                  int64_t out, bool has_bias);

/** Returns [..., out] for x [..., in]. */
DEFT_API deft_tensor *deft_nn_linear_call(const deft_nn_linear *l, deft_tensor *x);

/** Options of deft_nn_conv_init. Members that are 0 have defaults.
 *
 * A list has a number for each side of the images (images.h). Where 0 has no meaning, a 0 after
 * the first number means "as the first": .kernel = { 3 } is { 3, 3 }. A padding of 0 has one. */
typedef struct deft_nn_conv_options {
    size_t size;               /**< sizeof(deft_nn_conv_options) */
    int64_t in;                /**< Channels of the images, at least 1. */
    int64_t out;               /**< Channels of the result, at least 1. */
    int32_t n_sides;           /**< Sides of the images, 1 to 3. 0: 2. */
    int64_t kernel[3];         /**< Elements of a window, at least 1. */
    int64_t stride[3];         /**< Elements between windows. First 0: 1. */
    int64_t padding[3];        /**< Zeros that are added at either end of a side. */
    int64_t dilation[3];       /**< Elements between neighbouring weights. First 0: 1. */
    int64_t output_padding[3]; /**< With is_transposed: elements more at the end of a side. */
    int64_t groups;            /**< Groups of channels. 0: 1. */
    bool is_transposed;        /**< The layer is a deft_conv_transpose, else a deft_conv. */
    bool lacks_bias;           /**< There is no bias. */
} deft_nn_conv_options;

/** A convolution with its weights. The parameters are those of torch.nn.Conv1d to Conv3d, or of
 * ConvTranspose1d to 3d. Initial values of both are uniform within 1 / sqrt(n) of 0, where n is
 * the number of weights in weight[0]. */
typedef struct deft_nn_conv {
    deft_tensor *weight;       /**< [out, in / groups, ...]; transposed [in, out / groups, ...]. */
    deft_tensor *bias;         /**< [out]; NULL: there is none. */
    int64_t stride[3];         /**< As in the options. */
    int64_t padding[3];        /**< As in the options. */
    int64_t dilation[3];       /**< As in the options. */
    int64_t output_padding[3]; /**< As in the options. */
    int64_t groups;            /**< As in the options. */
    bool is_transposed;        /**< As in the options. */
} deft_nn_conv;

/** Makes a convolution. options NULL, and options that are out of their range, give DEFT_E_ARG.
 * Numbers of channels that are no multiples of the number of groups give DEFT_E_SHAPE. */
DEFT_API bool deft_nn_conv_init(deft_nn_conv *l, deft_nn *nn, const char *name,
                                const deft_nn_conv_options *options);

/** Returns [N, out, ...] for images x [N, in, ...], as deft_conv or deft_conv_transpose do. */
DEFT_API deft_tensor *deft_nn_conv_call(const deft_nn_conv *l, deft_tensor *x);

/** An embedding: integers of any shape become [their shape, width], rows of weight [n, width]
 * (deft_embedding). The initial weight is normal with mean 0 and deviation 1. */
typedef struct deft_nn_embedding {
    deft_tensor *weight; /**< [n, width] */
} deft_nn_embedding;

/** Makes an embedding of n entries with `width` elements each. */
DEFT_API bool deft_nn_embedding_init(deft_nn_embedding *l, deft_nn *nn, const char *name, int64_t n,
                                     int64_t width);

/** Returns the rows at the indices, [shape of indices, width]. */
DEFT_API deft_tensor *deft_nn_embedding_call(const deft_nn_embedding *l, deft_tensor *indices);

/** A norm over the last axis, which has `width` elements, else DEFT_E_SHAPE.
 *
 *     layer   (x - mean) / sqrt(var + eps) * weight + bias   (Ba, Kiros and Hinton 2016)
 *     rms     x / sqrt(mean(x * x) + eps) * weight           (Zhang and Sennrich 2019)
 *
 * The initial weight is 1, the initial bias 0. */
typedef struct deft_nn_norm {
    deft_tensor *weight; /**< The scale. */
    deft_tensor *bias;   /**< The shift. NULL: an rms norm. */
    /** _init sets 1e-5; for an rms norm, the difference between 1 and the next number of the
     * dtype of nn. */
    double eps;
} deft_nn_norm;

/** Makes a layer norm, or an rms norm, over `width` elements. */
DEFT_API bool deft_nn_norm_init_layer(deft_nn_norm *l, deft_nn *nn, const char *name,
                                      int64_t width);
DEFT_API bool deft_nn_norm_init_rms(deft_nn_norm *l, deft_nn *nn, const char *name, int64_t width);

/** Returns x [..., width], normalized. */
DEFT_API deft_tensor *deft_nn_norm_call(const deft_nn_norm *l, deft_tensor *x);

/** Batch normalization of x [N, width, ...] (deft_batch_norm). The statistics are those of x while
 * nn is training, and else the running ones. The buffers are running_mean and running_var. */
typedef struct deft_nn_batch_norm {
    deft_nn *nn;         /**< The list whose training flag is used. */
    deft_tensor *weight; /**< The factor of each channel, 1 at first. */
    deft_tensor *bias;   /**< What is added to each channel, 0 at first. */
    deft_tensor *mean;   /**< The running mean, 0 at first. */
    deft_tensor *var;    /**< The running variance, 1 at first. */
    double eps;          /**< _init sets 1e-5. */
    double momentum;     /**< Weight of new statistics. _init sets 0.1. */
} deft_nn_batch_norm;

/** Makes a batch normalization of `width` channels. */
DEFT_API bool deft_nn_batch_norm_init(deft_nn_batch_norm *l, deft_nn *nn, const char *name,
                                      int64_t width);

/** Returns x [N, width, ...], normalized. While nn is training, the running statistics are
 * assigned, so that the call is made inside a step or a captured function. */
DEFT_API deft_tensor *deft_nn_batch_norm_call(const deft_nn_batch_norm *l, deft_tensor *x);

/** Dropout (Srivastava et al. 2014). While nn is training, each element becomes 0 with
 * probability p, and else x / (1 - p). Each call draws from deft_nn_rng. When nn is not
 * training, or p is 0, the call returns x itself.
 *
 * The program fills the struct. p is in [0, 1], else DEFT_E_RANGE. */
typedef struct deft_nn_dropout {
    deft_nn *nn; /**< The list whose random numbers and training flag are used. */
    double p;    /**< The probability that an element is dropped. */
} deft_nn_dropout;

/** Returns x with elements dropped, of the shape and dtype of x. */
DEFT_API deft_tensor *deft_nn_dropout_call(const deft_nn_dropout *l, deft_tensor *x);

/** Multi-head attention of a sequence to itself (Vaswani et al. 2017): x [batch, time, width]
 * becomes a tensor of the same shape.
 *
 * The parameters are those of torch.nn.MultiheadAttention(width, n_heads, batch_first=True):
 * in_proj_weight [3 width, width], in_proj_bias, out_proj.weight and out_proj.bias. */
typedef struct deft_nn_self_attention {
    deft_nn_linear in;    /**< Makes query, key and value in one product. */
    deft_nn_linear out;   /**< Makes the result of the heads' results. */
    deft_nn_dropout drop; /**< Drops attention weights. */
    int64_t n_heads;      /**< The number of heads. */
    bool causal;          /**< Each position uses itself and earlier ones only. _init sets true. */
} deft_nn_self_attention;

/** Makes a layer with n_heads heads of width / n_heads elements. drop is the probability p of
 * the dropout of attention weights. DEFT_E_SHAPE: width is no multiple of n_heads, or
 * one of them is below 1. */
DEFT_API bool deft_nn_self_attention_init(deft_nn_self_attention *l, deft_nn *nn, const char *name,
                                          int64_t width, int64_t n_heads, double drop);

/** Returns [batch, time, width]. DEFT_E_SHAPE: x has another number of axes or another width. */
DEFT_API deft_tensor *deft_nn_self_attention_call(const deft_nn_self_attention *l, deft_tensor *x);

/** What a recurrent layer computes in each step of time. */
typedef enum deft_rnn_kind {
    DEFT_RNN_TANH = 0, /**< h = tanh(W_ih x + b_ih + W_hh h + b_hh) */
    DEFT_RNN_LSTM = 1, /**< Hochreiter and Schmidhuber 1997. */
    DEFT_RNN_GRU = 2   /**< Cho et al. 2014. */
} deft_rnn_kind;

/** The most layers of a deft_nn_rnn. */
#define DEFT_RNN_MAX_LAYERS 8

/** The parameters of one direction of one layer. The rows of the gates follow each other, in the
 * order of PyTorch: input, forget, cell, output; or reset, update, new. */
typedef struct deft_nn_rnn_weights {
    deft_tensor *weight_ih; /**< [gates * hidden, input], of the layer's input. */
    deft_tensor *weight_hh; /**< [gates * hidden, hidden], of the state. */
    deft_tensor *bias_ih;   /**< [gates * hidden]; NULL: none. */
    deft_tensor *bias_hh;   /**< [gates * hidden]; NULL: none. */
} deft_nn_rnn_weights;

/** Options of deft_nn_rnn_init. Members that are 0 have defaults. */
typedef struct deft_nn_rnn_options {
    size_t size;           /**< sizeof(deft_nn_rnn_options) */
    deft_rnn_kind kind;    /**< What a step computes. */
    int64_t input;         /**< Elements of the input, at least 1. */
    int64_t hidden;        /**< Elements of the state, at least 1. */
    int32_t n_layers;      /**< Layers, one on the results of the other. 0: 1. */
    bool is_bidirectional; /**< Each layer also goes backwards, with weights of its own. */
    bool lacks_bias;       /**< There are no biases. */
    double drop;           /**< Dropout of what goes from layer to layer. */
} deft_nn_rnn_options;

/** Layers that go through time: x [batch, time, input] becomes [batch, time, hidden], or twice as
 * wide when they go in both directions. The parameters are those of torch.nn.RNN, LSTM and GRU
 * with batch_first=True: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, then
 * weight_ih_l0_reverse and so on, then those of layer 1. */
typedef struct deft_nn_rnn {
    deft_rnn_kind kind;    /**< What a step computes. */
    int32_t n_layers;      /**< 1 to DEFT_RNN_MAX_LAYERS. */
    bool is_bidirectional; /**< at[2 i + 1] is the backward direction of layer i. */
    deft_nn_rnn_weights at[2 * DEFT_RNN_MAX_LAYERS]; /**< One for each layer and direction. */
    deft_nn_dropout drop;                            /**< Between layers. */
} deft_nn_rnn;

/** Makes the layers. Initial values are uniform within 1 / sqrt(hidden). DEFT_E_ARG: an option is
 * out of its range. */
DEFT_API bool deft_nn_rnn_init(deft_nn_rnn *l, deft_nn *nn, const char *name,
                               const deft_nn_rnn_options *options);

/** Returns the states of the last layer at all times. The products with x are computed for all
 * times at once, and the rest by one deft_scan for each layer and direction.
 *
 * h and c are the first states, [layers * directions, batch, hidden], or NULL for zeros. Only an
 * LSTM has c. *h_end and *c_end get the last states, in that shape. Each may be NULL.
 *
 * DEFT_E_SHAPE: the shapes do not fit. DEFT_E_ARG: c or c_end is not NULL, and the layers are no
 * LSTM. */
DEFT_API deft_tensor *deft_nn_rnn_call(const deft_nn_rnn *l, deft_tensor *x, deft_tensor *h,
                                       deft_tensor *c, deft_tensor **h_end, deft_tensor **c_end);

/* ---- optimizers ---- */

/** The rule of an update. */
typedef enum deft_optim_kind {
    DEFT_OPTIM_SGD = 0,      /**< Stochastic gradient descent, with or without momentum. */
    DEFT_OPTIM_ADAM = 1,     /**< Kingma and Ba 2015. */
    DEFT_OPTIM_ADAMW = 2,    /**< Loshchilov and Hutter 2019. */
    DEFT_OPTIM_RMSPROP = 3,  /**< Tieleman and Hinton 2012. */
    DEFT_OPTIM_ADAGRAD = 4,  /**< Duchi, Hazan and Singer 2011. */
    DEFT_OPTIM_ADADELTA = 5, /**< Zeiler 2012. */
    DEFT_OPTIM_ADAMAX = 6,   /**< Kingma and Ba 2015. */
    DEFT_OPTIM_NADAM = 7,    /**< Dozat 2016. */
    DEFT_OPTIM_RADAM = 8,    /**< Liu et al. 2020. */
    DEFT_OPTIM_LION = 9,     /**< Chen et al. 2023. */
    /** Shazeer and Stern 2018, as in PyTorch. A parameter of two or more axes has the means of the
     * squares of rows and of columns alone, along its last two axes. */
    DEFT_OPTIM_ADAFACTOR = 10
} deft_optim_kind;

/** Options of an optimizer. Begin with deft_optim_defaults: members that are 0 mean 0. */
typedef struct deft_optim_options {
    size_t size;          /**< sizeof(deft_optim_options) */
    deft_optim_kind kind; /**< The rule of the update. */
    const char *name;     /**< First part of the names of its state. NULL: "optim". */
    double momentum;      /**< SGD, RMSPROP; at least 0. */
    bool nesterov;        /**< SGD; needs a momentum. */
    double beta1;         /**< Decay of the mean of gradients, in [0, 1). */
    /** Decay of the mean of their squares, in [0, 1). Some call it alpha (RMSPROP) or rho
     * (ADADELTA). */
    double beta2;
    double eps; /**< All but SGD and LION; at least 0. */
    /** At least 0. ADAMW, LION and ADAFACTOR shrink the parameter by it times the rate. The others
     * add it times the parameter to the gradient. */
    double weight_decay;
    bool accumulates;      /**< Keeps a sum of gradients, for deft_optim_accumulate. */
    bool amsgrad;          /**< ADAM, ADAMW: divides by the greatest mean of squares so far. */
    bool centered;         /**< RMSPROP: subtracts the square of the mean of gradients. */
    double rate_decay;     /**< ADAGRAD: the rate is divided by 1 + (t - 1) times this. */
    double initial_sum;    /**< ADAGRAD: where the sum of squares starts. */
    double momentum_decay; /**< NADAM. */
    /** Keeps an average of each parameter: after each update it moves by 1 - average_decay of the
     * way to the parameter. In [0, 1); 0: there is none. */
    double average_decay;
    /** ADAFACTOR: at step t the new squares have the weight t to the power of minus this. At least
     * 0. */
    double square_decay;
    /** ADAFACTOR: the rate, at most one over the root of t, is multiplied by the root of the mean
     * square of the parameter, which counts as at least this. At least 0. */
    double least_magnitude;
    double clip; /**< ADAFACTOR: the greatest root of the mean square of a step; above 0. */
} deft_optim_options;

/** Returns PyTorch's defaults for a kind; name is NULL. Any thread. */
DEFT_API deft_optim_options deft_optim_defaults(deft_optim_kind kind);

/** An optimizer. */
typedef struct deft_optim deft_optim;

/** Makes an optimizer for the parameters of nn that are trained at this moment, in *out. The
 * caller owns it and destroys it before nn. options NULL means the defaults of ADAMW. On
 * failure *out is NULL, and nn is as before.
 *
 * The state of the optimizer is added to nn, and stays there: buffers such as
 * "optim.exp_avg.NAME", and the number "optim.step".
 *
 * DEFT_E_ARG: a size that is too small, an unknown kind, an empty or taken name, or nesterov
 * without momentum. DEFT_E_RANGE: a number outside its range. DEFT_E_STATE: as in
 * deft_nn_parameter. */
DEFT_API DEFT_MUST_CHECK deft_status deft_optim_create(deft_nn *nn,
                                                       const deft_optim_options *options,
                                                       deft_optim **out);

/** Destroys the optimizer and sets *o to NULL. NULL and *o NULL are allowed. */
DEFT_API void deft_optim_destroy(deft_optim **o);

/** The number of parameters of o, and the list of them: gradients are taken with respect to
 * these. The list lives as long as o. */
DEFT_API size_t deft_optim_n(const deft_optim *o);
DEFT_API deft_tensor *const *deft_optim_parameters(const deft_optim *o);

/** Records the update of all parameters, inside a step.
 *
 * grads[i] is the gradient of parameter i, of the same shape and dtype. NULL leaves the
 * parameter as it is. grads itself NULL means the sums of deft_optim_accumulate. In an
 * optimizer that accumulates, the sums are 0 after the update.
 *
 * rate is the learning rate. All that changes from step to step is an argument of the
 * trace: a new rate needs no new plan. In C the macro deft_optim_step also takes a
 * deft_tensor * as rate and then calls deft_optim_step_t.
 *
 * Each update counts as one step (deft_optim_steps). A step of the context that fails does
 * not give its number back; deft_optim_set_steps can.
 *
 * In a captured function (capture.h):
 *   - The rate is a bare number of deft_param_f or deft_const_f. A C number gives
 *     DEFT_E_STATE, because each replay would use the same rate.
 *   - Each replay reads the rate, computes the bias corrections for its step, and counts. A
 *     call that fails does not count.
 *   - o must live as long as the capture.
 *   - All other numbers that are given to calls of this header stay as they were recorded:
 *     max_norm, weights of micro-batches, members of layers and options, and whether nn is
 *     training.
 *
 * DEFT_E_STATE: no step is open. DEFT_E_SHAPE: a gradient has another shape or dtype than
 * its parameter. DEFT_E_RANGE: the rate is not finite. DEFT_E_ARG: there are no gradients. A
 * call after a mistake in the same step returns false. */
DEFT_API bool deft_optim_step(deft_optim *o, deft_tensor *const *grads, double rate);

/** The same with the rate as a bare number: deft_num, deft_param_f or deft_const_f. Another
 * tensor gives DEFT_E_ARG, and NULL gives false. */
DEFT_API bool deft_optim_step_t(deft_optim *o, deft_tensor *const *grads, deft_tensor *rate);

/** The number of updates so far, and a way to set it. */
DEFT_API int64_t deft_optim_steps(const deft_optim *o);
DEFT_API void deft_optim_set_steps(deft_optim *o, int64_t steps);

/** Like deft_optim_step and deft_optim_step_t, but parameters and their state change only when
 * condition, a bool of shape [], is true. The update counts in both cases, and sums become 0
 * in both. The condition is part of the trace, so nothing is read and nothing waits. A
 * condition of NULL gives false. */
DEFT_API bool deft_optim_step_if(deft_optim *o, deft_tensor *const *grads, double rate,
                                 deft_tensor *condition);
DEFT_API bool deft_optim_step_if_t(deft_optim *o, deft_tensor *const *grads, deft_tensor *rate,
                                   deft_tensor *condition);

#if !defined(__cplusplus) && !defined(DEFT_NO_GENERIC)
/** In C, the type of rate chooses the function. */
#define deft_optim_step(o, grads, rate)                                                            \
    _Generic((rate), deft_tensor *                                                                 \
             : deft_optim_step_t, default                                                          \
             : deft_optim_step)((o), (grads), (rate))
#define deft_optim_step_if(o, grads, rate, condition)                                              \
    _Generic((rate), deft_tensor *                                                                 \
             : deft_optim_step_if_t, default                                                       \
             : deft_optim_step_if)((o), (grads), (rate), (condition))
#endif

/** Records, inside a step, sum[i] += weight * grads[i] for each gradient that is not NULL. For
 * n micro-batches of equal size, each in a step of its own, the weight is 1.0 / n.
 *
 * DEFT_E_ARG: grads is NULL, or the optimizer does not accumulate. Other mistakes are those
 * of deft_optim_step. */
DEFT_API bool deft_optim_accumulate(deft_optim *o, deft_tensor *const *grads, double weight);

/** The sums of gradients, one for each parameter, which nn owns. NULL when o does not
 * accumulate, which is no mistake. */
DEFT_API deft_tensor *const *deft_optim_sums(const deft_optim *o);

/** The averages of the parameters, one for each, which nn owns (options.average_decay). They start
 * with the values that the parameters have when o is made. NULL when there are none, which is no
 * mistake. */
DEFT_API deft_tensor *const *deft_optim_averages(const deft_optim *o);

/** Limits each element of n gradients to [-limit, limit]. NULLs are left as they are.
 * DEFT_E_RANGE: the limit is not above 0. A list without a gradient gives false without another
 * mistake. */
DEFT_API bool deft_clip_grad_value(deft_tensor **grads, size_t n, double limit);

/** Replaces each gradient by its product with one common number, so that the norm of all of
 * them is at most max_norm. The norm is the root of the sum of the squares of all elements.
 *
 * grads is a list of n gradients, in which NULLs are left as they are. When norm is not
 * NULL, *norm gets the norm before the call: f32 [], or f64 [] when a gradient is f64.
 * Nothing is read and nothing waits.
 *
 * DEFT_E_RANGE: max_norm is not above 0. A list without a gradient gives false without
 * another mistake, and *norm NULL. */
DEFT_API bool deft_clip_grad_norm(deft_tensor **grads, size_t n, double max_norm,
                                  deft_tensor **norm);

/* ---- scale of the loss ----
 *
 * Small gradients become 0 in f16. Therefore the loss is multiplied by a scale, and the
 * gradients are divided by it again. When a gradient is infinite or NaN, the update is left
 * out and the scale is halved (Micikevicius et al. 2018, docs/mixed.md).
 *
 * The scale is a tensor, and everything here is part of the step. Nothing is read, nothing
 * waits, and a new scale needs no new plan.
 */

/** Options of deft_scaler_create. */
typedef struct deft_scaler_options {
    size_t size;      /**< sizeof(deft_scaler_options) */
    const char *name; /**< First part of the names of its state. NULL: "scaler". */
    double start;     /**< The first scale, in [2^-24, 2^64]. 0: 65536. */
    /** Updates in a row after which the scale doubles, at most 2^24. 0: 2000. */
    int64_t interval;
} deft_scaler_options;

/** A scale of the loss. */
typedef struct deft_scaler deft_scaler;

/** Makes a scaler in *out. The caller owns it and destroys it before nn. options NULL means
 * defaults. On failure *out is NULL, and nn is as before.
 *
 * The state is added to nn, and stays there: the f32 [] buffers "scaler.scale" and
 * "scaler.good", the number of updates in a row. DEFT_E_RANGE: start or interval is outside
 * its range. Other statuses are those of deft_optim_create. */
DEFT_API DEFT_MUST_CHECK deft_status deft_scaler_create(deft_nn *nn,
                                                        const deft_scaler_options *options,
                                                        deft_scaler **out);

/** Destroys the scaler and sets *s to NULL. NULL and *s NULL are allowed. */
DEFT_API void deft_scaler_destroy(deft_scaler **s);

/** The scale, an f32 of shape [], which nn owns. */
DEFT_API deft_tensor *deft_scaler_scale(const deft_scaler *s);

/** The loss, in f32, times the scale. Gradients are taken of this tensor. */
DEFT_API deft_tensor *deft_scaler_loss(const deft_scaler *s, deft_tensor *loss);

/** Replaces each of n gradients by its quotient with the scale, in f32, or in f64 for an f64.
 * NULLs are left as they are. Returns a bool of shape []: whether all of them are finite.
 * deft_optim_step_if and deft_scaler_update take this result. Gradients are clipped after
 * this call. DEFT_E_ARG: there is no gradient. grads NULL gives NULL. */
DEFT_API deft_tensor *deft_scaler_unscale(const deft_scaler *s, deft_tensor **grads, size_t n);

/** Records the change of the scale, inside a step and after deft_optim_step_if. The scale is
 * halved when is_finite is false. It is doubled after `interval` updates in a row. It stays
 * in [2^-24, 2^64]. DEFT_E_STATE: no step is open. */
DEFT_API bool deft_scaler_update(deft_scaler *s, deft_tensor *is_finite);

/* ---- learning rates ----
 *
 * Factors for the learning rate at a step, which is counted from 0. A program multiplies
 * those that it wants. These functions only compute. Any thread.
 */

/** Rises in a line: (step + 1) / steps, and 1 from then on. steps <= 0 gives 1. */
DEFT_API double deft_schedule_warm_up(int64_t step, int64_t steps);

/** Falls from 1 at step 0 to `last` at step `steps`, along half a cosine or along a line, and
 * stays there. steps <= 0 gives `last`. */
DEFT_API double deft_schedule_cosine(int64_t step, int64_t steps, double last);
DEFT_API double deft_schedule_linear(int64_t step, int64_t steps, double last);

/** Multiplies by `factor` after every `every` steps. every <= 0 counts as 1. */
DEFT_API double deft_schedule_steps(int64_t step, int64_t every, double factor);

/** Falls from 1 to 0 as (1 - step / steps)^power, and stays there. steps <= 0 gives 0. */
DEFT_API double deft_schedule_polynomial(int64_t step, int64_t steps, double power);

/** Rises in a line as deft_schedule_warm_up, and then falls as sqrt(warm_up / (step + 1)). */
DEFT_API double deft_schedule_inverse_sqrt(int64_t step, int64_t warm_up);

/** Falls along half a cosine in each period, from 1 to `last`, and begins again (Loshchilov and
 * Hutter 2017). The first period has `steps` steps, and each later one `growth` times as many as
 * the one before. steps <= 0 gives `last`; a growth below 1 counts as 1. */
DEFT_API double deft_schedule_restarts(int64_t step, int64_t steps, double growth, double last);

/** One cycle (Smith and Topin 2018): along half a cosine from `first` to 1 in `rise` steps, and
 * along half a cosine to `last` at step `steps`, where it stays. */
DEFT_API double deft_schedule_one_cycle(int64_t step, int64_t steps, int64_t rise, double first,
                                        double last);

#ifdef __cplusplus
}
#endif
#endif
