/* SPDX-License-Identifier: Apache-2.0
 *
 * DLPack in both directions (deft/dlpack.h).
 *
 * An exported struct holds references to the buffer and to the runtime. It holds no value, because
 * values belong to the thread of their context, and any thread may call a deleter. The
 * reference to the buffer is one that df_may_donate counts, so that no run writes into exported
 * memory.
 *
 * An imported struct is released by the buffer that wraps its memory. Until then its deleter is
 * replaced by one that does nothing, which also shows that the struct was taken.
 */
#include "deft/dlpack.h"

#include "lazy/calls/wrap.h"
#include "lazy/exchange/shared.h"
#include "lazy/run/materialize.h"

enum { DL_HOST = 1, DL_CUDA = 2, DL_CUDA_HOST = 3 };     /* device_type */
enum { DL_READ_ONLY = 1, DL_COPIED = 2, DL_PADDED = 4 }; /* flags */
enum { DL_MAJOR = 1, DL_MINOR = 1 };

_Static_assert(sizeof(void *) != 8 ||
                   (sizeof(deft_dlpack_tensor) == 48 && sizeof(deft_dlpack_versioned) == 80 &&
                    sizeof(deft_dlpack_old) == 64),
               "the layout of the standard on machines with 64 bits");

/* ---- dtypes ---- */

static uint8_t dl_code(deft_dtype t)
{
    switch (df_kind_of(t)) {
    case DF_KIND_integer: return 0;
    case DF_KIND_natural: return 1;
    case DF_KIND_real: return 2;
    case DF_KIND_half: return t == DEFT_BF16 ? 4 : 2;
    case DF_KIND_boolean: return 6;
    case DF_KIND_complex: return 5;
    case DF_KIND_coded: return t == DEFT_F8E4M3FN ? 10 : t == DEFT_F8E5M2 ? 12 : 14;
    case DF_KIND_packed: return t == DEFT_U4;
    }
    df_unreachable();
}

/* The dtype of elements with one lane; DEFT_N_DTYPES: deft has none. */
static deft_dtype dl_dtype(uint8_t code, uint8_t bits)
{
    deft_dtype t = (deft_dtype)0;
    while (t < DEFT_N_DTYPES && (dl_code(t) != code || df_bits_of(t) != bits))
        t = (deft_dtype)(t + 1);
    return t;
}

/* ---- export ---- */

/* What a consumer has. */
typedef struct exported {
    union {
        deft_dlpack_versioned versioned;
        deft_dlpack_old old;
    } m; /* first: the consumer's pointer is one to this struct */
    df_buffer *buf;
    deft_runtime *rt; /* a reference: the buffer is memory of the runtime */
    int64_t shape[DEFT_MAX_RANK], strides[DEFT_MAX_RANK];
} exported;

static void delete_exported(void *self)
{
    exported *const e = self;
    deft_runtime *rt = e->rt;
    df_buffer_drop(&e->buf);
    df_mem_free(rt->mem, e, sizeof *e);
    deft_runtime_destroy(&rt);
}

static void delete_versioned(struct DLManagedTensorVersioned *self)
{
    delete_exported(self);
}

static void delete_old(struct DLManagedTensor *self)
{
    delete_exported(self);
}

/* Whether the elements of a tensor with that face are elements of v: their parts are adjacent, and
 * its strides are multiples of an element. Memory of deft_wrap need not be so. */
static bool dl_can_show(const df_value *v, df_face face)
{
    const uint32_t n = df_face_axes(face), rank = v->rank - n;
    bool can = n == 0 || v->stride[rank] == 1;
    for (uint32_t i = 0; n && i < rank; i++) can &= v->stride[i] % 2 == 0;
    return can;
}

/* v as the program sees it with that face. */
static void dl_describe(exported *e, deft_dlpack_tensor *dl, const df_value *v, df_face face,
                        deft_device where)
{
    const deft_dtype t = face ? df_face_dtype(face) : (deft_dtype)v->dtype;
    const int64_t parts = (int64_t)(df_bytes_of(t) / df_bytes_of((deft_dtype)v->dtype));
    df_shape s = v->shape;
    df_face_show(face, &s);
    memcpy(e->shape, s.dim, sizeof e->shape);
    for (uint32_t i = 0; i < v->rank; i++) e->strides[i] = v->stride[i] / parts;
    for (uint32_t i = 0; df_face_is_packed(face) && i + 1 < s.rank; i++) e->strides[i] *= 2;
    *dl = (deft_dlpack_tensor){ .data = df_value_size(v) ? v->data : NULL,
                                .device_type = where == DEFT_CPU ? DL_HOST : DL_CUDA,
                                .device_id = where == DEFT_CPU ? 0 : (int32_t)where - 1,
                                .ndim = (int32_t)(v->rank - df_face_axes(face)),
                                .code = dl_code(t),
                                .bits = (uint8_t)df_bits_of(t),
                                .lanes = 1,
                                .shape = e->shape,
                                .strides = e->strides };
}

static deft_status dl_check_flags(df_diag *d, const char *what, uint32_t flags, uint32_t known)
{
    const uint32_t both = DEFT_DLPACK_COPY | DEFT_DLPACK_NO_COPY;
    if (flags & ~known)
        return df_fail(d, DEFT_E_ARG, "%s: flags are 0x%x, known are 0x%x", what, flags, known);
    if ((flags & both) == both)
        return df_fail(d, DEFT_E_ARG, "%s: DEFT_DLPACK_COPY and DEFT_DLPACK_NO_COPY together",
                       what);
    return DEFT_OK;
}

/* Exports v, the value of a tensor with that face, or a copy. Without memory for the struct nothing
 * has happened. */
static deft_status dl_export_value(deft_ctx *cx, const char *what, df_value *v, df_face face,
                                   uint32_t flags, bool is_old, exported **out)
{
    deft_status st = DEFT_OK;
    df_diag *const d = &cx->diag;
    df_value *copy = NULL;
    const deft_device where = df_value_where(cx, v);
    const bool fits = dl_can_show(v, face);
    const bool copies = flags & DEFT_DLPACK_COPY || df_must_copy(v) || !fits;
    if (df_must_copy(v) && flags & DEFT_DLPACK_NO_COPY)
        return df_fail(d, DEFT_E_ARG,
                       "%s: memory of deft_wrap%s is copied, and DEFT_DLPACK_NO_COPY forbids it",
                       what,
                       v->flags & DF_VALUE_MUT ? "_mut, which assignments write,"
                                               : " without a release function");
    if (!fits && flags & DEFT_DLPACK_NO_COPY)
        return df_fail(d, DEFT_E_ARG,
                       "%s: the parts of an element are not adjacent, and DEFT_DLPACK_NO_COPY "
                       "forbids a copy",
                       what);
    if (copies) TRY(df_value_moved(cx, d, v, where, &copy));
    if (where != DEFT_CPU) TRY(df_ctx_wait(cx, d));
    if (copy) v = copy;
    exported *const e = df_mem_zalloc(cx->mem, sizeof *e);
    if (!e) TRY(df_fail_mem(d, what, sizeof *e));
    e->buf = df_buffer_ref(v->buf);
    e->rt = df_runtime_ref(cx);
    if (is_old) {
        e->m.old = (deft_dlpack_old){ .manager_ctx = e, .deleter = delete_old };
    } else {
        e->m.versioned = (deft_dlpack_versioned){ .major = DL_MAJOR,
                                                  .minor = DL_MINOR,
                                                  .manager_ctx = e,
                                                  .deleter = delete_versioned,
                                                  .flags = copies ? DL_COPIED : DL_READ_ONLY };
    }
    dl_describe(e, is_old ? &e->m.old.tensor : &e->m.versioned.tensor, v, face, where);
    *out = e;
done:
    df_value_drop(cx, &copy);
    return st;
}

static deft_status to_dlpack(const char *what, uintptr_t site, deft_tensor *t, uint32_t flags,
                             bool is_old, exported **out)
{
    deft_ctx *cx;
    df_value *v;
    deft_status st = df_read_faced(what, site, t, &cx, &v);
    if (st != DEFT_OK) return st;
    const df_face face = df_face_of(t);
    if (face > DF_N_FACES && v->rank > 1)
        return df_fail(&cx->diag, DEFT_E_DTYPE,
                       "%s: rows of %s with an odd extent end within a byte, and those of the "
                       "standard do not",
                       what, deft_dtype_name(df_face_dtype(face)));
    st = dl_check_flags(&cx->diag, what, flags, DEFT_DLPACK_COPY | DEFT_DLPACK_NO_COPY);
    if (st != DEFT_OK) return st;
    return dl_export_value(cx, what, v, face, flags, is_old, out);
}

deft_status deft_to_dlpack(deft_tensor *t, uint32_t flags, struct DLManagedTensorVersioned **out)
{
    exported *e = NULL;
    if (!out) return DEFT_E_ARG;
    *out = NULL;
    const deft_status st = to_dlpack("to_dlpack", DF_SITE, t, flags, false, &e);
    if (e) *out = (struct DLManagedTensorVersioned *)(void *)e;
    return st;
}

deft_status deft_to_dlpack_old(deft_tensor *t, uint32_t flags, struct DLManagedTensor **out)
{
    exported *e = NULL;
    if (!out) return DEFT_E_ARG;
    *out = NULL;
    const deft_status st = to_dlpack("to_dlpack_old", DF_SITE, t, flags, true, &e);
    if (e) *out = (struct DLManagedTensor *)(void *)e;
    return st;
}

/* ---- import ---- */

/* A struct that was taken; exactly one of the two. */
typedef struct taken {
    deft_dlpack_versioned *versioned;
    deft_dlpack_old *old;
    void (*delete_versioned)(struct DLManagedTensorVersioned *self);
    void (*delete_old)(struct DLManagedTensor *self);
    const df_mem *mem;
} taken;

/* The deleters of structs that were taken. */
static void was_taken(struct DLManagedTensorVersioned *self)
{
    (void)self;
}

static void was_taken_old(struct DLManagedTensor *self)
{
    (void)self;
}

/* The release of the buffer. Any thread. */
static void dl_release(void *user)
{
    const taken k = *(const taken *)user;
    df_mem_free(k.mem, user, sizeof k);
    if (k.versioned) {
        k.versioned->deleter = k.delete_versioned;
        if (k.delete_versioned) k.delete_versioned((void *)k.versioned);
    } else {
        k.old->deleter = k.delete_old;
        if (k.delete_old) k.delete_old((void *)k.old);
    }
}

static deft_status dl_find_device(df_diag *d, const deft_dlpack_tensor *dl, deft_device *out)
{
    const int32_t type = dl->device_type, id = dl->device_id;
    *out = type == DL_CUDA ? DEFT_CUDA(id) : DEFT_CPU;
    if (type == DL_HOST || type == DL_CUDA_HOST) return DEFT_OK;
    if (type == DL_CUDA && id >= 0 && id < DF_MAX_GPUS) return DEFT_OK;
    return df_fail(d, DEFT_E_BACKEND,
                   "its memory is on device %d of type %d, and deft has the host (1), CUDA (2) and "
                   "pinned memory (3)",
                   id, type);
}

static deft_status dl_find_dtype(df_diag *d, const deft_dlpack_tensor *dl, deft_dtype *out)
{
    static const char *const names[] = { "int",    "uint",    "float", "opaque handle",
                                         "bfloat", "complex", "bool" };
    const char *const name = dl->code < DF_LEN(names) ? names[dl->code] : "a kind unknown here";
    if (dl->lanes != 1)
        return df_fail(d, DEFT_E_DTYPE, "its elements have %u lanes, and deft takes 1", dl->lanes);
    *out = dl_dtype(dl->code, dl->bits);
    if (*out < DEFT_N_DTYPES) return DEFT_OK;
    return df_fail(d, DEFT_E_DTYPE,
                   "its dtype is %s of %u bits (code %u), which deft does not have", name, dl->bits,
                   dl->code);
}

/* Where two elements share a byte, rows must end where a byte does. df_wrap checks strides. */
static deft_status dl_check_packed(df_diag *d, const deft_dlpack_tensor *dl, const df_shape *s,
                                   uint64_t flags)
{
    if (flags & DL_PADDED)
        return df_fail(d, DEFT_E_DTYPE, "each of its elements of 4 bits has a byte of its own");
    if (!dl->strides && s->rank > 1 && s->dim[s->rank - 1] % 2)
        return df_fail(d, DEFT_E_DTYPE, "its rows of %lld elements of 4 bits end within a byte",
                       (long long)s->dim[s->rank - 1]);
    return DEFT_OK;
}

/* Fills in what the memory is, from the address of the first element. */
static deft_status dl_find_memory(df_diag *d, const deft_dlpack_tensor *dl, const df_shape *s,
                                  df_wrapping *w)
{
    const int64_t size = (int64_t)deft_dtype_size(w->dtype);
    const int64_t share = df_kind_of(w->dtype) == DF_KIND_packed ? 2 : 1; /* elements of a byte */
    int64_t low = 0, high, from, n;
    if (!df_shape_numel(s, &n) || n == 0) return DEFT_OK; /* no address has a meaning */
    if (!dl->data) return df_fail(d, DEFT_E_ARG, "its data is NULL");
    high = n - 1;
    w->strides = dl->strides;
    if (dl->byte_offset > INT64_MAX ||
        (dl->strides && !df_strides_reach(s, dl->strides, &low, &high)) ||
        !df_mul_i64(low / share, size, &from) || !df_add_i64(high, -low, &n) ||
        !df_add_i64(n / share, 1, &n) || !df_mul_i64(n, size, &n) ||
        !df_add_i64(from, (int64_t)dl->byte_offset, &from))
        return df_fail(d, DEFT_E_RANGE, "its strides or its offset overflow");
    w->data = (void *)((uintptr_t)dl->data + (uintptr_t)from);
    w->bytes = (size_t)n;
    return DEFT_OK;
}

static deft_status dl_find_shape(df_diag *d, const deft_dlpack_tensor *dl, deft_shape *out)
{
    if (dl->ndim < 0 || dl->ndim > DEFT_MAX_RANK)
        return df_fail(d, DEFT_E_SHAPE, "it has %d axes, and deft takes 0 to %d", dl->ndim,
                       DEFT_MAX_RANK);
    if (dl->ndim > 0 && !dl->shape) return df_fail(d, DEFT_E_ARG, "its shape is NULL");
    *out = deft_shape_of((size_t)dl->ndim, dl->shape);
    return DEFT_OK;
}

/* Replaces the borrowed value of t by a copy. The array is given back with the borrowed value. */
static deft_tensor *dl_replace_by_copy(deft_ctx *cx, const char *what, deft_tensor *t)
{
    df_diag d = { 0 };
    df_value *theirs = t->value, *ours = NULL;
    const deft_status st = df_value_moved(cx, &d, theirs, df_value_where(cx, theirs), &ours);
    if (st != DEFT_OK) { /* the array is not taken */
        theirs->buf->release = (df_buffer_release){ 0 };
        df_handle_unbind(cx, t);
        t->flags = 0;
        return df_error(cx, st, "%s: %s", what, d.text);
    }
    t->value = ours;
    df_value_drop(cx, &theirs);
    return t;
}

/* Imports the array. k is copied when a tensor is made. */
static deft_tensor *dl_import(deft_ctx *cx, const char *what, const deft_dlpack_tensor *dl,
                              uint64_t their_flags, uint32_t flags, const taken *k)
{
    deft_status st = DEFT_OK;
    df_diag d = { 0 };
    deft_shape shape;
    df_shape s;
    taken *kept = NULL;
    df_wrapping w = { .what = what, .shape = &shape, .is_mutable = flags & DEFT_DLPACK_WRITE };
    TRY(dl_find_device(&d, dl, &w.where));
    TRY(dl_find_dtype(&d, dl, &w.dtype));
    TRY(dl_find_shape(&d, dl, &shape));
    if (!df_check_shape(cx, what, &shape, &s)) return NULL;
    if (df_kind_of(w.dtype) == DF_KIND_packed) TRY(dl_check_packed(&d, dl, &s, their_flags));
    TRY(dl_find_memory(&d, dl, &s, &w));
    kept = df_mem_alloc(cx->mem, sizeof *kept);
    if (!kept) TRY(df_fail_mem(&d, "the array", sizeof *kept));
    *kept = *k;
    w.release = (df_buffer_release){ dl_release, kept };
done:
    if (st != DEFT_OK) return df_error(cx, st, "%s: %s", what, d.text);
    deft_tensor *t = df_wrap(cx, &w);
    if (t && flags & DEFT_DLPACK_COPY) t = dl_replace_by_copy(cx, what, t);
    if (!t) df_mem_free(cx->mem, kept, sizeof *kept);
    return t;
}

/* Checks what both structs share. */
static bool dl_may_import(deft_ctx *cx, const char *what, const void *m, bool is_taken,
                          uint32_t flags)
{
    df_diag d = { 0 };
    deft_status st =
        dl_check_flags(&d, what, flags, DEFT_DLPACK_COPY | DEFT_DLPACK_NO_COPY | DEFT_DLPACK_WRITE);
    if (st == DEFT_OK && !m) st = df_fail(&d, DEFT_E_ARG, "%s: the struct is NULL", what);
    if (st == DEFT_OK && is_taken)
        st = df_fail(&d, DEFT_E_STATE,
                     "%s: the struct was imported before, and can be used only once", what);
    if (st == DEFT_OK && flags & DEFT_DLPACK_WRITE && flags & DEFT_DLPACK_COPY)
        st = df_fail(&d, DEFT_E_ARG, "%s: DEFT_DLPACK_WRITE of a copy writes nothing", what);
    if (st != DEFT_OK) df_error(cx, st, "%s", d.text);
    return st == DEFT_OK;
}

deft_tensor *deft_from_dlpack(deft_ctx *cx, struct DLManagedTensorVersioned *theirs, uint32_t flags)
{
    df_enter_call(cx, DF_SITE);
    const char *const what = "from_dlpack";
    deft_dlpack_versioned *const m = (void *)theirs;
    if (!cx || !dl_may_import(cx, what, m, m && m->deleter == was_taken, flags)) return NULL;
    if (m->major != DL_MAJOR)
        return df_error(cx, DEFT_E_FORMAT, "%s: it has version %u.%u, and deft reads %d.x", what,
                        m->major, m->minor, DL_MAJOR);
    if (flags & DEFT_DLPACK_WRITE && m->flags & DL_READ_ONLY)
        return df_error(cx, DEFT_E_ARG, "%s: its memory is read only", what);
    const taken k = { .versioned = m, .delete_versioned = m->deleter, .mem = cx->mem };
    m->deleter = was_taken;
    deft_tensor *const t = dl_import(cx, what, &m->tensor, m->flags, flags, &k);
    if (!t) m->deleter = k.delete_versioned;
    return t;
}

deft_tensor *deft_from_dlpack_old(deft_ctx *cx, struct DLManagedTensor *theirs, uint32_t flags)
{
    df_enter_call(cx, DF_SITE);
    const char *const what = "from_dlpack_old";
    deft_dlpack_old *const m = (void *)theirs;
    if (!cx || !dl_may_import(cx, what, m, m && m->deleter == was_taken_old, flags)) return NULL;
    const taken k = { .old = m, .delete_old = m->deleter, .mem = cx->mem };
    m->deleter = was_taken_old;
    deft_tensor *const t = dl_import(cx, what, &m->tensor, 0, flags, &k);
    if (!t) m->deleter = k.delete_old;
    return t;
}
