/* SPDX-License-Identifier: Apache-2.0
 *
 * How the core reports to a capture what its function records.
 *
 * While the function of a capture runs, deft_ctx.recording is its recording and
 * deft_ctx.recorder is the table below. At all other times deft_ctx.recording is NULL,
 * and each call below costs one comparison with NULL. All functions need the thread of
 * the context.
 */
#ifndef DF_LAZY_RECORDER_H
#define DF_LAZY_RECORDER_H

#include "lazy/core/history.h"

/* The functions of a capture, which capture/recording.c implements. An argument of the
 * captured function has two handles, which are twins: one within the function and the
 * caller's. Both are bound alike. */
typedef struct df_recorder {
    /* Record `node` is the input record of t, and t has just been bound to it. Binds the
     * twin of t, too. */
    void (*input)(deft_ctx *cx, uint32_t node, deft_tensor *t);
    /* The twin of t. NULL when t is no argument of the function. */
    deft_tensor *(*twin)(deft_ctx *cx, const deft_tensor *t);
    /* The function uses t, the caller's handle of an argument, without getting it as an
     * argument. t is no longer UNSEEN. Each replay must find the same handle there. */
    void (*reached)(deft_ctx *cx, deft_tensor *t);
    /* Entry `at` of df_rec.args is the number of the weak handle t, in dtype. */
    void (*number)(deft_ctx *cx, uint32_t at, deft_dtype dtype, const deft_tensor *t);
    /* Entries at and at + 1 of df_rec.args are the seed and the number of a draw from
     * rng. */
    void (*draw)(deft_ctx *cx, uint32_t at, deft_rng *rng, uint64_t draw);
    /* The draw with its arguments at index `from` is recorded again, with its arguments
     * at index `at`. */
    void (*draw_again)(deft_ctx *cx, uint32_t from, uint32_t at);
    /* What is recorded cannot be replayed, for the reason `why`. site 0: no line is
     * named. */
    void (*spoil)(deft_ctx *cx, const char *why, uintptr_t site);
    /* An empty cut for the context's next materialization, which extracts its trace into
     * it. NULL: the materialization uses the cached cuts of the context. */
    df_cut *(*cut)(deft_ctx *cx);
    /* Called when the cut of `cut` has its trace. Returns whether nothing more is wanted: the cut
     * is not run, and the step fails. */
    bool (*stops)(deft_ctx *cx);
    /* The step has computed everything and will forget its undo log next. */
    void (*commit)(deft_ctx *cx);
    /* The cut of the step has computed cx->want for the handles in cx->who. */
    void (*wants)(deft_ctx *cx);
} df_recorder;

/* Each of these functions calls the function of the table with its name, when a captured
 * function runs. Otherwise it does nothing, or returns NULL. */
DF_INLINE void df_recording_input(deft_ctx *cx, uint32_t node, deft_tensor *t)
{
    if (DF_UNLIKELY(cx->recording != NULL)) cx->recorder->input(cx, node, t);
}

DF_INLINE deft_tensor *df_recording_twin(deft_ctx *cx, const deft_tensor *t)
{
    return DF_UNLIKELY(cx->recording != NULL) ? cx->recorder->twin(cx, t) : NULL;
}

DF_INLINE void df_recording_number(deft_ctx *cx, uint32_t at, deft_dtype dtype,
                                   const deft_tensor *t)
{
    if (DF_UNLIKELY(cx->recording != NULL)) cx->recorder->number(cx, at, dtype, t);
}

DF_INLINE void df_recording_draw(deft_ctx *cx, uint32_t at, deft_rng *rng, uint64_t draw)
{
    if (DF_UNLIKELY(cx->recording != NULL)) cx->recorder->draw(cx, at, rng, draw);
}

DF_INLINE void df_recording_draw_again(deft_ctx *cx, uint32_t from, uint32_t at)
{
    if (DF_UNLIKELY(cx->recording != NULL)) cx->recorder->draw_again(cx, from, at);
}

DF_INLINE void df_recording_spoil(deft_ctx *cx, const char *why, uintptr_t site)
{
    if (DF_UNLIKELY(cx->recording != NULL)) cx->recorder->spoil(cx, why, site);
}

/* A value is given to the C code, which may depend on it. So the function cannot be
 * replayed. */
DF_INLINE void df_recording_reads(deft_ctx *cx)
{
    df_recording_spoil(cx, "it reads a value while it runs", cx->call);
}

/* Whether a C number that is recorded now would be fixed in a capture, perhaps by
 * accident. */
DF_INLINE bool df_recording_freezes(const deft_ctx *cx)
{
    return DF_UNLIKELY(cx->recording != NULL) && !cx->layer_nest;
}

/* Records the mistake that the number v of operation `what` would be fixed in a capture.
 * Returns DF_BAD. */
uint32_t df_recording_refuses(deft_ctx *cx, const char *what, double v, uintptr_t site) DF_COLD;

#endif
