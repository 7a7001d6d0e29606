/* SPDX-License-Identifier: Apache-2.0
 *
 * How the core tells a capture what its function records. While the function of a capture runs,
 * deft_ctx.recording is its recording and deft_ctx.recorder the table below. At all other times
 * recording is NULL, and each of these calls stands behind one comparison with NULL.
 */
#ifndef DF_LAZY_RECORDER_H
#define DF_LAZY_RECORDER_H

#include "lazy/core/history.h"

/* A handle in the function of a capture, and the handle of the same tensor outside it, are twins:
 * both are bound alike. capture/recording.c implements the table. */
typedef struct df_recorder {
    /* Record `node` is the input record of t, which has just been bound to it; so is t's twin. */
    void (*input)(deft_ctx *cx, uint32_t node, deft_tensor *t);
    /* The twin of t, or NULL when t is no argument of the function. */
    deft_tensor *(*twin)(deft_ctx *cx, const deft_tensor *t);
    /* The function uses t directly, and t is the caller's handle of an argument. t wakes. Each
     * replay must find the same handle there. */
    void (*reached)(deft_ctx *cx, deft_tensor *t);
    /* Argument `at` of the records is the number of the weak handle t, in dtype. */
    void (*number)(deft_ctx *cx, uint32_t at, deft_dtype dtype, const deft_tensor *t);
    /* Arguments `at` and at + 1 of the records are seed and number of a draw from rng. */
    void (*draw)(deft_ctx *cx, uint32_t at, deft_rng *rng, uint64_t draw);
    /* The draw whose arguments stand at `from` is recorded again, with its arguments at `at`. */
    void (*draw_again)(deft_ctx *cx, uint32_t from, uint32_t at);
    /* What is recorded can't be replayed, because of `why`. site 0: no line is named. */
    void (*spoil)(deft_ctx *cx, const char *why, uintptr_t site);
    /* The made cut to use next, or NULL for an ordinary one. */
    df_cut *(*cut)(deft_ctx *cx);
    /* The step has computed everything and is about to forget its undo log. */
    void (*commit)(deft_ctx *cx);
    /* The step's cut has computed cx->want for the handles in cx->who. */
    void (*wants)(deft_ctx *cx);
} df_recorder;

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

/* A value is handed out to the C code, which may depend on it. */
DF_INLINE void df_recording_reads(deft_ctx *cx)
{
    df_recording_spoil(cx, "it reads a value while it runs", cx->call);
}

/* Whether a C number would stay in a capture without being meant to. */
DF_INLINE bool df_recording_freezes(const deft_ctx *cx)
{
    return DF_UNLIKELY(cx->recording != NULL) && !cx->layer_nest;
}

/* Records the mistake that number v of the operation `what` would stay in a capture. DF_BAD. */
uint32_t df_recording_refuses(deft_ctx *cx, const char *what, double v, uintptr_t site) DF_COLD;

#endif
