/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles: the objects behind deft_tensor pointers. A handle is a slot of a slab. A slab is an
 * aligned block of memory, so that the address of a handle gives its slab, and the slab gives the
 * context. All functions need the thread of the context.
 *
 * A handle is bound to a record of this epoch, to a value, or to both. Its scope ends it, unless
 * the program keeps it.
 */
#ifndef DF_LAZY_HANDLE_H
#define DF_LAZY_HANDLE_H

#include "lazy/core/context.h"
#include "ops/dtype.h"

enum {
    DF_HANDLE_LIVE = 1,
    DF_HANDLE_UNDO = 2,     /* deft_ctx.undo holds the binding from before the open step */
    DF_HANDLE_WEAK = 4,     /* a bare number: takes the dtype of other operands; has no record */
    DF_HANDLE_MUT = 8,      /* made by deft_wrap_mut: has an entry in deft_ctx.muts */
    DF_HANDLE_CONST = 16,   /* with WEAK: may be used in a capture */
    DF_HANDLE_UNSEEN = 16,  /* without WEAK, instead of LIVE: its use must be reported to the
                               recording of a capture */
    DF_HANDLE_PARAM = 32,   /* with WEAK: `number` is the index of a parameter of a capture */
    DF_HANDLE_VIEWED = 32,  /* without WEAK: views of it were made */
    DF_HANDLE_ESCAPED = 64, /* its scope has ended, and the program keeps it */
    DF_HANDLE_FLIGHT = 128, /* the undo log of the submitted step holds an earlier binding */
    DF_HANDLE_FACE = 256,   /* the lowest of the 4 bits of its face */
    DF_HANDLE_BITS = 4095   /* all flags, and the face */
};

/* The face of a handle is the dtype that the program sees, when only handles can have it. Such
 * dtypes are the rows of FACE in ops/dtypes.def, c64 for one. A face of 0 means that the program
 * sees the dtype of the record. A handle with a face is not LIVE, so that every call takes its slow
 * path. There the call is refused, unless it says that it knows faces (core/face.h). */
typedef uint32_t df_face;
#define DF_MAX_FACE 15u
#define DF_N_FACES (DEFT_N_DTYPES - DF_N_RECORDED)
_Static_assert(DF_N_FACES <= DF_MAX_FACE, "a face has 4 bits");

/* A set of faces: bit f stands for face f. */
typedef uint32_t df_faces;

struct deft_tensor {
    df_value *value; /* counted; NULL while the handle is only bound to a record */
    union {
        deft_tensor *root; /* the handle this is a view of, or NULL: see df_root_of */
        int64_t number;    /* WEAK: the bits of an f64, or an i64; `place` holds the dtype */
    };
    uint32_t node;       /* its record; means something only while epoch is the context's */
    uint32_t epoch;      /* 0: no record */
    uint32_t place;      /* the view record that locates it in root, or DF_NONE */
    uint32_t keeps : 12; /* calls of deft_keep less calls of deft_drop */
    uint32_t flags : 12; /* DF_HANDLE_* */
    uint8_t failure;     /* DF_FAILURE_*, or the index in deft_ctx.missed of an assign it misses */
};
_Static_assert(sizeof(deft_tensor) <= 32, "handles are what a pending op costs most");

#define DF_MAX_KEEPS 4095u

#define DF_SLAB_SIZE ((size_t)8192) /* bytes; also the alignment */
#define DF_SLAB_MAGIC 0x6465667473616c62u

/* The first bytes of a slab. Slots follow from byte 64 on. */
typedef struct df_slab {
    uint64_t magic;
    deft_ctx *cx;
    struct df_slab *next; /* of the same run */
    uintptr_t site;       /* where the scope was opened */
    uint32_t serial;      /* of the scope */
    uint32_t depth;
    uint32_t n; /* slots handed out since the scope was opened */
    bool open;
} df_slab;

#define DF_SLAB_SLOTS ((uint32_t)((DF_SLAB_SIZE - 64) / sizeof(deft_tensor)))
_Static_assert(sizeof(df_slab) <= 64, "slots start at byte 64");

DF_INLINE df_slab *df_slab_of(const deft_tensor *t)
{
    return (df_slab *)((uintptr_t)t & ~(uintptr_t)(DF_SLAB_SIZE - 1));
}

DF_INLINE deft_tensor *df_slab_slot(df_slab *s, uint32_t i)
{
    return (deft_tensor *)(void *)((char *)s + 64) + i;
}

/* ---- new handles (slab.c) ---- */

/* The case of df_handle_new in which the slab is full or the slot is kept. */
deft_tensor *df_handle_new_slow(deft_ctx *cx, uint32_t node);

DF_INLINE deft_tensor *df_handle_init(const deft_ctx *cx, deft_tensor *t, uint32_t node)
{
    t->value = NULL;
    t->root = NULL;
    t->node = node;
    t->epoch = cx->epoch;
    t->place = DF_NONE;
    t->keeps = 0; /* as before: the slot is free, and all is one store */
    t->flags = DF_HANDLE_LIVE;
    t->failure = DF_FAILURE_NOTHING;
    return t;
}

/* A handle of the innermost scope for record `node`. Returns NULL, with DEFT_E_MEMORY recorded,
 * when memory runs out. */
DF_INLINE deft_tensor *df_handle_new(deft_ctx *cx, uint32_t node)
{
    df_slab *const s = cx->scope[cx->depth].cur;
    deft_tensor *const t = df_slab_slot(s, s->n);
    if (DF_UNLIKELY(s->n >= DF_SLAB_SLOTS || t->keeps)) return df_handle_new_slow(cx, node);
    s->n++;
    return df_handle_init(cx, t, node);
}

/* The same for a call with the operand `near`. In most cases the new handle is in the slab of the
 * operand. Its address is then computed from that of the operand, and no load of the context or
 * the scope delays the next call, which takes the new handle. */
DF_INLINE deft_tensor *df_handle_new_near(deft_ctx *cx, uint32_t node, const deft_tensor *near)
{
    df_slab *s = df_slab_of(near);
    DF_OPAQUE(s);
    if (DF_UNLIKELY(s != cx->scope[cx->depth].cur)) return df_handle_new_slow(cx, node);
    deft_tensor *const t = df_slab_slot(s, s->n);
    if (DF_UNLIKELY(s->n >= DF_SLAB_SLOTS || t->keeps)) return df_handle_new_slow(cx, node);
    s->n++;
    return df_handle_init(cx, t, node);
}

/* Opens a scope at call site `site`. Returns false, with the error recorded, when there are too
 * many scopes or memory runs out. */
bool df_scope_push(deft_ctx *cx, uintptr_t site);
/* Ends the handles of scope f, except those that are kept, and closes its slabs. */
void df_scope_free_handles(deft_ctx *cx, df_scope_entry *f);

/* ---- operands of calls (operand.c) ---- */

/* Notes that a recording call begins, whose return address is `site`. Mistakes that the call
 * records name its line. cx may be NULL. */
DF_INLINE void df_enter_call(deft_ctx *cx, uintptr_t site)
{
    if (cx) cx->call = site;
}

/* The context of t, which may have a face. NULL when t is NULL or has ended; no error is
 * recorded. */
deft_ctx *df_look(const deft_tensor *t);
/* Begins a recording call with its operand t, argument number `which` (from 1) of the public call
 * `what`. Computes what is pending if a budget is used up. Returns the context of t. Returns NULL
 * when t is NULL (the result of an earlier mistake) or has ended; an ended handle is recorded as an
 * error when its context is still known. */
deft_ctx *df_enter(const char *what, unsigned which, const deft_tensor *t, uintptr_t site);
/* Checks another operand of a call that has begun. Returns false when t is not usable, or belongs
 * to another context than cx; the error is recorded. */
bool df_enter_more(deft_ctx *cx, const char *what, unsigned which, const deft_tensor *t);
/* The two functions above for calls that know faces. t may have one of `faces` (core/face.h), and a
 * handle without one takes no other path than above. */
deft_ctx *df_enter_of(const char *what, unsigned which, const deft_tensor *t, df_faces faces,
                      uintptr_t site);
bool df_enter_more_of(deft_ctx *cx, const char *what, unsigned which, const deft_tensor *t,
                      df_faces faces);
/* The same for calls that know complex numbers, and no other faces. */
deft_ctx *df_enter_faced(const char *what, unsigned which, const deft_tensor *t, uintptr_t site);
bool df_enter_more_faced(deft_ctx *cx, const char *what, unsigned which, const deft_tensor *t);
/* df_enter_of with all faces, but computes nothing. */
deft_ctx *df_peek_faced(const char *what, unsigned which, const deft_tensor *t, uintptr_t site);

DF_INLINE df_face df_face_of(const deft_tensor *t)
{
    return t->flags / DF_HANDLE_FACE;
}

/* Gives t the flags `to`, and takes from it the flags `from`. */
DF_INLINE void df_flags_change(deft_tensor *t, uint32_t from, uint32_t to)
{
    t->flags = ((t->flags & ~from) | to) & DF_HANDLE_BITS;
}

/* The flags that say whether t may be used: those of a handle with that face. */
DF_INLINE uint32_t df_face_flags(df_face face)
{
    return face ? face * DF_HANDLE_FACE : (uint32_t)DF_HANDLE_LIVE;
}

/* ---- bindings (handle.c) ---- */

/* Whether t is live, and its scope is open or the program keeps it. s is the slab of t. */
DF_INLINE bool df_usable(const deft_tensor *t, const df_slab *s)
{
    return t->flags & DF_HANDLE_LIVE && (s->open || t->keeps);
}

/* Whether t is bound to a record and to no value. */
DF_INLINE bool df_is_pending(const deft_ctx *cx, const deft_tensor *t)
{
    return !t->value && t->epoch == cx->epoch;
}

/* Whether t has neither a value nor a record: a failed step made it, and the program keeps it. */
DF_INLINE bool df_is_lost(const deft_ctx *cx, const deft_tensor *t)
{
    return !t->value && t->epoch != cx->epoch && !(t->flags & DF_HANDLE_WEAK);
}

/* The value of record `node` that a handle may hold on to, or NULL. Memory of the caller does not
 * count: it is the caller's again when the step ends, and is copied before. */
DF_INLINE df_value *df_own_value(const deft_ctx *cx, uint32_t node)
{
    const uint32_t i = cx->rec.val[node];
    df_value *const v = i ? cx->rec.vals.at[i] : NULL;
    return v && !(v->flags & DF_VALUE_WRAPPED) ? v : NULL;
}

/* The value of t, its own or that of its record. NULL while t is pending. Borrowed. */
df_value *df_handle_value(deft_ctx *cx, const deft_tensor *t);
/* Drops the value of t and its binding to a record. */
void df_handle_unbind(deft_ctx *cx, deft_tensor *t);
/* Gives handles whose records have values a reference of their own: all handles, or those that
 * stand outside depth `below`. */
void df_handles_resolve(deft_ctx *cx);
void df_handles_resolve_outer(deft_ctx *cx, uint32_t below);
/* Calls f for every live handle outside depth `below`: handles of the scopes 0 to below - 1, and
 * kept handles. */
void df_each_outer(deft_ctx *cx, uint32_t below, void (*f)(deft_ctx *, deft_tensor *, void *),
                   void *user);
/* Whether t outlives the open step. */
bool df_is_outer(const deft_ctx *cx, const deft_tensor *t);
/* Whether t was made outside the innermost body that is open (run/body.h). */
bool df_is_outside_body(const deft_ctx *cx, const deft_tensor *t);
/* The handle that t is a view of. NULL when t is no view, or its root has ended. A view ends, or
 * stops being a view, before the slot of its root is used again: deft_keep, deft_scope_return and
 * the last deft_drop of an escaped tensor see to that. */
deft_tensor *df_root_of(const deft_tensor *t);

/* ---- memory of the caller, and undo (handle.c) ---- */

/* The entry in deft_ctx.muts of t, or NULL when t does not write memory of the caller. */
df_mut *df_mut_of(deft_ctx *cx, const deft_tensor *t);
/* Makes t, a tensor of the caller's memory, writable. Returns false without memory; t has ended. */
bool df_mut_begin(deft_ctx *cx, deft_tensor *t);
/* Called when the handle t ends: its entry in deft_ctx.muts goes, or stays until its assignment is
 * written. */
void df_mut_end(deft_ctx *cx, deft_tensor *t);
/* Called when the handle t ends: removes its entries from the undo logs. */
void df_undo_end(deft_ctx *cx, const deft_tensor *t);

#endif
