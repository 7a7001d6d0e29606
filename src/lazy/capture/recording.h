/* SPDX-License-Identifier: Apache-2.0
 *
 * What recording tells a capture (capture.c) while its function runs. deft_ctx.recording is NULL
 * at all other times, and these calls then stand behind one comparison.
 */
#ifndef DF_LAZY_RECORDING_H
#define DF_LAZY_RECORDING_H

#include "lazy/core/spine.h"

/* Record `node` reads what t is bound to, and what the handle that has to be bound as t is. */
void df_recording_input(deft_ctx *cx, uint32_t node, deft_tensor *t);
/* The handle that has to be bound as t is: of a function's argument the caller's handle, and the
 * other way round; NULL: none. */
deft_tensor *df_recording_twin(deft_ctx *cx, const deft_tensor *t);
/* The function uses t by itself, which is the caller's handle of an argument and asleep: it wakes,
 * and has to be the same handle at each replay. */
void df_recording_reached(deft_ctx *cx, deft_tensor *t) DF_COLD;
/* All of them wake: the function has ended, or what is recorded is computed in its middle. */
void df_recording_wake(deft_ctx *cx);
/* The argument at `at` of the records, a number of dtype, is that of the weak handle t. */
void df_recording_number(deft_ctx *cx, uint32_t at, deft_dtype dtype, const deft_tensor *t);
/* The arguments at `at` and after it are seed and number of a draw from rng. */
void df_recording_draw(deft_ctx *cx, uint32_t at, deft_rng *rng, uint64_t draw);
/* What stands at `from` is drawn again, as the arguments at `at`. */
void df_recording_draw_again(deft_ctx *cx, uint32_t from, uint32_t at);
/* Whether a C number would stay in a capture without being meant to. */
DF_INLINE bool df_recording_freezes(const deft_ctx *cx)
{
    return DF_UNLIKELY(cx->recording != NULL) && !cx->layer_nest;
}

/* The number of an operation that came as a C number: DF_BAD, with the error recorded. */
uint32_t df_recording_refuses(deft_ctx *cx, const char *what, double v, uintptr_t site) DF_COLD;
/* What is recorded can't be replayed. */
void df_recording_spoil(deft_ctx *cx, const char *why, uintptr_t site) DF_COLD;
/* A value is handed out to the C code, which may depend on it. */
DF_INLINE void df_recording_reads(deft_ctx *cx)
{
    if (DF_UNLIKELY(cx->recording != NULL))
        df_recording_spoil(cx, "it reads a value while it runs", cx->call);
}

/* The cut to make next; NULL: an ordinary one. */
df_made *df_recording_cut(deft_ctx *cx);
/* The step has computed everything and is about to forget its undo log. */
void df_recording_commit(deft_ctx *cx);
/* Which handles the wanted records of the step's cut are for: cx->want and cx->who. */
void df_recording_wants(deft_ctx *cx);

#endif
