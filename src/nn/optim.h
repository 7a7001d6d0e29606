/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of optimizers, for optim.c. A rule says which states and which numbers an update needs,
 * and records the update of one parameter. Internal header of this folder.
 */
#ifndef DF_NN_OPTIM_H
#define DF_NN_OPTIM_H

#include "nn/nn.h"

/* The states of a parameter: those of the rule, the sum of gradients, the average of the
 * parameter. */
enum { DF_OPTIM_RULE_STATES = 3, DF_OPTIM_SUM = 3, DF_OPTIM_AVERAGE = 4, DF_OPTIM_STATES = 5 };

/* The numbers that change from step to step. t is the number of the update, from 1. */
typedef enum df_optim_number {
    DF_OPTIM_RATE,   /* the rate, or what it has become at step t */
    DF_OPTIM_KEEP,   /* the factor 1 - rate * weight_decay of the parameter */
    DF_OPTIM_SCALE,  /* the factor of the mean of gradients, over the root */
    DF_OPTIM_EPS,    /* what is added to the root */
    DF_OPTIM_SECOND, /* the factor of a second part of the update */
    DF_OPTIM_NUMBERS
} df_optim_number;

/* One update. */
typedef struct df_optim_update {
    const deft_optim_options *opt;
    deft_tensor *p, *g;                       /* the parameter, and its gradient */
    deft_tensor *state[DF_OPTIM_RULE_STATES]; /* NULL: not needed */
    deft_tensor *number[DF_OPTIM_NUMBERS];    /* bare numbers, as of deft_num; NULL: not needed */
    deft_tensor
        *next_state[DF_OPTIM_RULE_STATES]; /* set by the rule, for each state that is needed */
    deft_tensor *next;                     /* set by the rule: the next parameter */
} df_optim_update;

/* The name of state i of the rule, or NULL when the options do not need it. */
const char *df_optim_state_name(const deft_optim_options *o, int i);
/* Whether a parameter of that shape has state i, which the options need; then sets *s to the shape
 * of the state. */
bool df_optim_state_shape(const deft_optim_options *o, int i, deft_shape *s);
/* The first value of all elements of state i. */
double df_optim_state_start(const deft_optim_options *o, int i);
bool df_optim_needs_number(const deft_optim_options *o, df_optim_number n);
/* The value of a number that is needed. */
double df_optim_number_value(const deft_optim_options *o, df_optim_number n, double t, double rate);
/* Whether the weight decay is added to the gradient. Otherwise KEEP has it. */
bool df_optim_adds_decay(const deft_optim_options *o);
/* Records the update. The gradient contains the weight decay already. */
void df_optim_record(df_optim_update *u);

#endif
