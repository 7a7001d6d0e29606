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

/* Records the first undelivered error; returns NULL so that recording calls can `return` it. */
void *df_error(deft_ctx *cx, deft_status st, const char *fmt, ...) DF_PRINTF(3, 4) DF_COLD;
/* The same with the sentence already there. */
void *df_error_keep(deft_ctx *cx, deft_status st) DF_COLD;
/* Delivers an undelivered error, DEFT_OK when there is none: first call of every acting call. None
 * of them may act inside a function of a loop or branch: DEFT_E_STATE. */
deft_status df_deliver(deft_ctx *cx);
/* An acting call's own failure, as its status. */
deft_status df_refuse(deft_ctx *cx, deft_status st, const char *fmt, ...) DF_PRINTF(3, 4) DF_COLD;

const df_mem *df_ctx_mem(const deft_ctx *cx);

/* Where tensors that stay cannot be made: in a step, a captured function, a loop or a branch. */
bool df_ctx_is_passing(const deft_ctx *cx);
/* Whether what is assigned takes effect whole or not at all. */
bool df_ctx_in_step(const deft_ctx *cx);

/* In a public function: its call. */
#define DF_SITE ((uintptr_t)DF_RETURN_ADDRESS())

/* What follows is told as the call that returns to site, until df_caller_end: that one a user
 * wrote, and none of those below it. Does nothing, and returns false, inside another such call,
 * where a line was told (deft_site), and for NULL. */
bool df_caller_begin(deft_ctx *cx, uintptr_t site);
void df_caller_end(deft_ctx *cx, bool began);

#endif
