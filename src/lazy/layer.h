/* SPDX-License-Identifier: Apache-2.0
 *
 * What a module above the front door needs of a context beyond the public calls: memory, a way to
 * tell its user's mistakes, and whether a step is open.
 */
#ifndef DF_LAZY_LAYER_H
#define DF_LAZY_LAYER_H

#define DEFT_NO_GENERIC
#include "base/mem.h"
#include "deft/deft.h"

/* Records a mistake of the call that runs; returns NULL so that recording calls can `return` it.
 * The mistake that waits for its delivery stays when the new one may come of it. */
void *df_error(deft_ctx *cx, deft_status st, const char *fmt, ...) DF_PRINTF(3, 4) DF_COLD;
/* The same with the sentence already there. */
void *df_error_keep(deft_ctx *cx, deft_status st) DF_COLD;
/* Mistakes recorded so far: a call that runs others knows by it whether one of them failed. */
uint32_t df_mistakes(const deft_ctx *cx);
/* Whether a mistake was recorded in the open step, whose end will therefore fail. */
bool df_step_has_mistake(const deft_ctx *cx);
/* A recording call begins, and the call that returns to site is its line. */
void df_calls(deft_ctx *cx, uintptr_t site);
/* An acting call begins, and the call that returns to site is its line. */
void df_acts(deft_ctx *cx, const char *what, uintptr_t site);
/* First call of every acting call after that. None may act inside a function of a loop or branch:
 * DEFT_E_STATE. */
deft_status df_may_act(deft_ctx *cx);
/* For an acting call that cannot use a tensor: the mistake that it recorded itself, else the
 * undelivered one, which a NULL tensor comes of. DEFT_OK when there is neither. What was recorded
 * in a step before stays, for the end of the step. */
deft_status df_deliver(deft_ctx *cx);
/* The mistake recorded in the open step, delivered; DEFT_OK: there is none. */
deft_status df_deliver_step(deft_ctx *cx);
/* An acting call's own failure, as its status. */
deft_status df_refuse(deft_ctx *cx, deft_status st, const char *fmt, ...) DF_PRINTF(3, 4) DF_COLD;

const df_mem *df_ctx_mem(const deft_ctx *cx);

/* Where tensors that stay cannot be made: in a step, a captured function, a loop or a branch. */
bool df_ctx_is_passing(const deft_ctx *cx);
/* Whether what is assigned takes effect whole or not at all. */
bool df_ctx_in_step(const deft_ctx *cx);

/* Between the two, the numbers that calls are given are options of the layer's, and may stay in a
 * capture. They nest; cx may be NULL. */
void df_layer_enter(deft_ctx *cx);
void df_layer_leave(deft_ctx *cx);

/* The value of one of a source's numbers, `which`, after `count` countings. `given` is finite.
 * Calls nothing of deft's. */
typedef double (*df_layer_number_fn)(const void *user, uint32_t which, int64_t count, double given);

/* Numbers that change from call to call by themselves. Captures refer to user and count, which have
 * to live as long as they. */
typedef struct df_layer_source {
    const char *what; /* for sentences: what `given` is, as "optim_step: the rate" */
    df_layer_number_fn value;
    const void *user;
    int64_t *count;
    deft_tensor *given; /* a bare number of the user's; in a captured function a parameter, or one
                         * that is marked to stay */
} df_layer_source;

/* A bare number: the value for *count as it is now. In a captured function each replay asks for the
 * value again. NULL, and an error: DEFT_E_ARG, given is a tensor; DEFT_E_RANGE, it is not finite;
 * DEFT_E_STATE, it would stay in a capture for ever. */
deft_tensor *df_layer_number(deft_ctx *cx, const df_layer_source *s, uint32_t which);
/* Adds 1 to *count. In a captured function each replay does so too when it succeeds, and a call
 * that fails leaves *count as it was. */
void df_layer_count(deft_ctx *cx, int64_t *count);

/* In a public function: its call. */
#define DF_SITE ((uintptr_t)DF_RETURN_ADDRESS())

/* What follows is told as the call that returns to site, until df_caller_end: that one a user
 * wrote, and none of those below it. Does nothing, and returns false, inside another such call,
 * where a line was told (deft_site), and for NULL. */
bool df_caller_begin(deft_ctx *cx, uintptr_t site);
void df_caller_end(deft_ctx *cx, bool began);

#endif
