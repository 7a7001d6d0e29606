/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of calls.c for deft/nn.h.
 */
#ifndef TEST_OOM_NETWORK_H
#define TEST_OOM_NETWORK_H

#include "world.h"

/* clang-format off */
/* Each drives the function of that name, and others with it. X(name). */
#define NETWORK_ACTS(X)                                                                            \
    X(nn_create) X(nn_parameter) X(nn_buffer) X(nn_number) X(nn_push) X(nn_fill) X(nn_save)        \
    X(nn_load) X(nn_linear_init) X(nn_embedding_init) X(nn_norm_init_layer) X(nn_norm_init_rms)    \
    X(nn_self_attention_init) X(nn_dropout_call) X(optim_create) X(optim_step) X(optim_step_t)     \
    X(optim_accumulate) X(optim_step_if) X(optim_step_if_t) X(scaler_create) X(scaler_loss)        \
    X(scaler_unscale) X(scaler_update) X(nn_batch_norm_init) X(nn_conv_init) X(nn_rnn_init)
#define NETWORK_RECORDS(X)                                                                         \
    X(nn_linear_call) X(nn_embedding_call) X(nn_norm_call) X(nn_self_attention_call)               \
    X(clip_grad_norm) X(clip_grad_value) X(nn_batch_norm_call) X(nn_conv_call) X(nn_rnn_call)
/* All driven at once, in a network with an optimizer: none takes memory. */
#define NETWORK_QUIET(X)                                                                           \
    X(nn_destroy) X(nn_pop) X(nn_find) X(nn_n_parameters) X(nn_parameter_at) X(nn_name_at)         \
    X(nn_numel) X(nn_set_trainable) X(nn_set_training) X(nn_is_training) X(nn_rng)                 \
    X(optim_defaults) X(optim_destroy) X(optim_n) X(optim_parameters) X(optim_steps)               \
    X(optim_set_steps) X(optim_sums) X(schedule_warm_up) X(schedule_cosine) X(schedule_linear)     \
    X(scaler_scale) X(scaler_destroy) X(optim_averages) X(schedule_steps)                          \
    X(schedule_polynomial) X(schedule_inverse_sqrt) X(schedule_restarts) X(schedule_one_cycle)
/* clang-format on */

#define DECLARE(name) deft_status act_##name(world *w);
NETWORK_ACTS(DECLARE)
#undef DECLARE
#define DECLARE(name) deft_tensor *make_##name(world *w);
NETWORK_RECORDS(DECLARE)
#undef DECLARE
deft_status quiet_network(world *w);

#endif
