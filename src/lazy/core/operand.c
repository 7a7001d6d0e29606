/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks that a public call makes of its operands when it begins.
 */
#include "lazy/core/face.h"
#include "lazy/core/recorder.h"

static DF_COLD bool refuse(deft_ctx *cx, const char *what, unsigned which, const deft_tensor *t)
{
    static const char *const nth[] = { "?", "first", "second", "third", "fourth" };
    char site[DF_SITE_TEXT];
    const df_slab *const s = df_slab_of(t);
    const char *const argument = nth[which < DF_LEN(nth) ? which : 0];
    if (df_face_of(t) && (s->open || t->keeps))
        df_error(cx, DEFT_E_DTYPE,
                 df_face_is_complex(df_face_of(t))
                     ? "%s: the %s argument is %s, for which it has no meaning"
                     : "%s: the %s argument is %s, which only stores numbers: cast it to f32 with "
                       "deft_cast first",
                 what, argument, deft_dtype_name(df_face_dtype(df_face_of(t))));
    else if (s->open) /* the slot belongs to another scope, or to none */
        df_error(cx, DEFT_E_STATE, "%s: %s argument was dropped, or its scope has ended", what,
                 argument);
    else
        df_error(cx, DEFT_E_STATE,
                 "%s: %s argument belonged to the scope opened at %s, which has ended", what,
                 argument, df_ctx_site_text(cx, s->site, site, sizeof site));
    return false;
}

/* Called when a handle is used that is not usable. An UNSEEN handle is the caller's
 * handle of an argument of the captured function that runs: reports its use to the
 * recording. Returns whether the handle is usable then, by a call that knows `faces`. */
static DF_COLD bool wakes(const df_slab *s, const deft_tensor *t, df_faces faces)
{
    if (t->flags & DF_HANDLE_UNSEEN && !(t->flags & (DF_HANDLE_LIVE | DF_HANDLE_WEAK)))
        s->cx->recorder->reached(s->cx, (deft_tensor *)(uintptr_t)t);
    if (faces >> df_face_of(t) & 1) return s->open || t->keeps;
    return df_usable(t, s);
}

deft_ctx *df_look(const deft_tensor *t)
{
    if (!t) return NULL;
    const df_slab *const s = df_slab_of(t);
    return s->magic == DF_SLAB_MAGIC && (df_usable(t, s) || wakes(s, t, DF_ALL_FACES)) ? s->cx
                                                                                       : NULL;
}

DF_INLINE deft_ctx *peek(const char *what, unsigned which, const deft_tensor *t, df_faces faces,
                         uintptr_t site)
{
    if (DF_UNLIKELY(!t)) return NULL;
    const df_slab *const s = df_slab_of(t);
    if (DF_UNLIKELY(s->magic != DF_SLAB_MAGIC)) return NULL;
    df_enter_call(s->cx, site);
    if (DF_UNLIKELY(!df_usable(t, s)) && !wakes(s, t, faces)) {
        refuse(s->cx, what, which, t);
        return NULL;
    }
    return s->cx;
}

deft_ctx *df_peek_faced(const char *what, unsigned which, const deft_tensor *t, uintptr_t site)
{
    return peek(what, which, t, DF_ALL_FACES, site);
}

DF_INLINE deft_ctx *enter(const char *what, unsigned which, const deft_tensor *t, df_faces faces,
                          uintptr_t site)
{
    deft_ctx *const cx = peek(what, which, t, faces, site);
    if (DF_UNLIKELY(cx && cx->rec.n >= cx->look_at) && !cx->make_room(cx)) return NULL;
    return cx;
}

deft_ctx *df_enter(const char *what, unsigned which, const deft_tensor *t, uintptr_t site)
{
    return enter(what, which, t, 0, site);
}

deft_ctx *df_enter_of(const char *what, unsigned which, const deft_tensor *t, df_faces faces,
                      uintptr_t site)
{
    return enter(what, which, t, faces, site);
}

deft_ctx *df_enter_faced(const char *what, unsigned which, const deft_tensor *t, uintptr_t site)
{
    return df_enter_of(what, which, t, DF_COMPLEX_FACES, site);
}

DF_INLINE bool enter_more(deft_ctx *cx, const char *what, unsigned which, const deft_tensor *t,
                          df_faces faces)
{
    if (DF_UNLIKELY(!t)) {
        /* NULL is the result of an earlier mistake. When there is none, NULL itself is a
         * mistake. */
        if (cx->pending == DEFT_OK)
            df_error(cx, DEFT_E_ARG, "%s: argument %u is NULL", what, which);
        return false;
    }
    const df_slab *const s = df_slab_of(t);
    if (DF_UNLIKELY(s->magic != DF_SLAB_MAGIC || s->cx != cx)) {
        df_error(cx, DEFT_E_STATE, "%s: argument %u belongs to another context", what, which);
        return false;
    }
    return DF_LIKELY(df_usable(t, s)) || wakes(s, t, faces) || refuse(cx, what, which, t);
}

bool df_enter_more(deft_ctx *cx, const char *what, unsigned which, const deft_tensor *t)
{
    return enter_more(cx, what, which, t, 0);
}

bool df_enter_more_of(deft_ctx *cx, const char *what, unsigned which, const deft_tensor *t,
                      df_faces faces)
{
    return enter_more(cx, what, which, t, faces);
}

bool df_enter_more_faced(deft_ctx *cx, const char *what, unsigned which, const deft_tensor *t)
{
    return df_enter_more_of(cx, what, which, t, DF_COMPLEX_FACES);
}
