/* SPDX-License-Identifier: Apache-2.0
 *
 * What a module above lazy needs of a context beyond the public calls: memory, recording
 * the mistakes of its user, and whether a step is open. All functions need the thread of
 * the context.
 */
#ifndef DF_LAZY_LAYER_H
#define DF_LAZY_LAYER_H

#define DEFT_NO_GENERIC
#include "base/mem.h"
#include "deft/deft.h"

/* Records a mistake of the current call. Returns NULL so that recording calls can
 * `return` it. An undelivered mistake stays when the new one may be its consequence. */
void *df_error(deft_ctx *cx, deft_status st, const char *fmt, ...) DF_PRINTF(3, 4) DF_COLD;
/* The same for a mistake whose sentence is in the context already (cx->diag). */
void *df_error_keep(deft_ctx *cx, deft_status st) DF_COLD;
/* Number of mistakes recorded so far. A call that makes other calls compares two of these
 * numbers to see whether one of those calls failed. */
uint32_t df_mistakes(const deft_ctx *cx);
/* Whether a mistake was recorded in the open step, whose end will therefore fail. */
bool df_step_has_mistake(const deft_ctx *cx);
/* A recording call begins. `site` is its return address, which messages show as its line. */
void df_calls(deft_ctx *cx, uintptr_t site);
/* An acting call begins. `what` is its name for messages, `site` its return address. */
void df_acts(deft_ctx *cx, const char *what, uintptr_t site);
/* Must follow df_acts in each acting call. Returns DEFT_E_STATE inside a function of a
 * loop, branch or vmap, where no call may act. */
deft_status df_may_act(deft_ctx *cx);
/* For an acting call that cannot use a tensor. Delivers the mistake that the call
 * recorded itself, else the undelivered mistake, whose consequence a NULL tensor is.
 * Returns DEFT_OK when there is neither. A mistake recorded earlier in the open step
 * stays, for the end of the step. */
deft_status df_deliver(deft_ctx *cx);
/* Delivers the mistake recorded in the open step. Returns DEFT_OK when there is none. */
deft_status df_deliver_step(deft_ctx *cx);
/* Sets the sentence for a failure of the acting call itself. Returns st. */
deft_status df_refuse(deft_ctx *cx, deft_status st, const char *fmt, ...) DF_PRINTF(3, 4) DF_COLD;

const df_mem *df_ctx_mem(const deft_ctx *cx);

/* Whether the context is in a step, a captured function, a loop, a branch or a vmap.
 * There no tensors can be made that outlive it. */
bool df_ctx_is_passing(const deft_ctx *cx);
/* Whether a step is open, so that assignments take effect all together or not at all. */
bool df_ctx_in_step(const deft_ctx *cx);

/* Copies the options of a caller, whose structure has `given_size` bytes, to `to`. Members that the
 * caller lacks become zero. given may be NULL for defaults. Returns false, with a mistake recorded,
 * when given_size is 0. `what` is the public call, `name` the type of the options. */
bool df_layer_options(deft_ctx *cx, const char *what, const char *name, void *to, size_t to_size,
                      const void *given, size_t given_size);

/* Whether a policy of mixed precision holds (deft_mixed_set). */
bool df_ctx_is_mixed(const deft_ctx *cx);

/* Between these two calls, numbers passed to calls are options of a layer, and may be
 * fixed in a capture. The pairs nest; cx may be NULL. */
void df_layer_enter(deft_ctx *cx);
void df_layer_leave(deft_ctx *cx);

/* Computes number `which` of a source after `count` countings. `given` is finite. Must
 * call no function of deft. */
typedef double (*df_layer_number_fn)(const void *user, uint32_t which, int64_t count, double given);

/* Numbers that change from call to call, such as a learning rate. Captures refer to user
 * and count, which must outlive the captures. */
typedef struct df_layer_source {
    const char *what; /* what `given` is, for messages: "optim_step: the rate" */
    df_layer_number_fn value;
    const void *user;
    int64_t *count;
    /* a bare number of the user; in a captured function it must be a parameter or a
     * constant */
    deft_tensor *given;
} df_layer_source;

/* A bare number with the value for the current *count. In a captured function, each
 * replay computes the value again. Returns NULL with the error recorded when `given` is a
 * tensor (DEFT_E_ARG) or not finite (DEFT_E_RANGE), or would be fixed in a capture by
 * accident (DEFT_E_STATE). */
deft_tensor *df_layer_number(deft_ctx *cx, const df_layer_source *s, uint32_t which);
/* Adds 1 to *count. In a captured function, each replay that succeeds does so too, and a
 * call that fails restores *count. */
void df_layer_count(deft_ctx *cx, int64_t *count);

/* The definition of an operator (deft/extend.h). */
const deft_op_def *df_op_definition(const deft_op *op);

/* In a public function: the return address of its call. */
#define DF_SITE ((uintptr_t)DF_RETURN_ADDRESS())

/* Until df_caller_end, all that is recorded gets the call that returns to `site` as its
 * line. The user wrote that call, and none of the calls below it. Does nothing and
 * returns false when cx is NULL, and inside another such call or where deft_site has set
 * a line. */
bool df_caller_begin(deft_ctx *cx, uintptr_t site);
void df_caller_end(deft_ctx *cx, bool began);

/* The last statement of a public function. Returns the value of `call`. All records of `call` get
 * the line of the public function's caller as their call site. Numbers that `call` passes may be
 * fixed in captures (df_layer_enter). cx may be NULL. This is a macro because DF_SITE refers to the
 * function that contains it. */
#define DF_LAYER_RETURN(type, cx, call)                                                            \
    do {                                                                                           \
        deft_ctx *const df_cx = (cx);                                                              \
        const bool df_began = df_caller_begin(df_cx, DF_SITE);                                     \
        df_layer_enter(df_cx);                                                                     \
        type const df_returned = (call);                                                           \
        df_layer_leave(df_cx);                                                                     \
        df_caller_end(df_cx, df_began);                                                            \
        return df_returned;                                                                        \
    } while (0)

#endif
