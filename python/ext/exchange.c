/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that deft shares with other libraries: buffers and DLPack.
 *
 * deft calls a release function on any thread, and inside any call. Giving memory back needs the
 * GIL. So the release function puts the object on a list, and the next call of the package that
 * holds the GIL gives it back.
 */
#include "ext.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

/* What deft uses of another library. */
typedef struct held {
    struct held *next;
    enum { HELD_BUFFER, HELD_VERSIONED, HELD_OLD } what;
    Py_buffer buffer;
    void *managed;                  /* the struct of the producer */
    deft_dlpack_versioned versioned; /* its copy, which deft sees: the deleter is ours */
    deft_dlpack_old old;
} held;

static _Atomic(held *) released;

static void held_free(held *h)
{
    if (h->what == HELD_BUFFER) {
        PyBuffer_Release(&h->buffer);
    } else if (h->what == HELD_VERSIONED) {
        deft_dlpack_versioned *const m = h->managed;
        if (m->deleter) m->deleter((struct DLManagedTensorVersioned *)m);
    } else {
        deft_dlpack_old *const m = h->managed;
        if (m->deleter) m->deleter((struct DLManagedTensor *)m);
    }
    free(h);
}

static void held_release(void *user)
{
    held *const h = user;
    h->next = atomic_load_explicit(&released, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&released, &h->next, h, memory_order_release,
                                                  memory_order_relaxed)) {
    }
}

void exchange_give_back(void)
{
    if (!atomic_load_explicit(&released, memory_order_relaxed)) return;
    held *h = atomic_exchange_explicit(&released, NULL, memory_order_acquire);
    while (h) {
        held *const next = h->next;
        held_free(h);
        h = next;
    }
}

/* ---- buffers ---- */

deft_tensor *exchange_wrap(context *cx, deft_shape shape, deft_dtype dtype, PyObject *o)
{
    held *const h = calloc(1, sizeof *h);
    int64_t strides[DEFT_MAX_RANK];
    deft_tensor *t = NULL;
    if (!h) {
        PyErr_NoMemory();
        return NULL;
    }
    if (PyObject_GetBuffer(o, &h->buffer, PyBUF_FULL_RO) < 0) {
        free(h);
        return NULL;
    }
    const Py_ssize_t size = h->buffer.itemsize;
    Py_ssize_t low = 0, high = size;
    bool can = h->buffer.len > 0 && !h->buffer.suboffsets && h->buffer.ndim == (int)shape.rank;
    for (uint32_t i = 0; i < shape.rank && can; i++) {
        const Py_ssize_t step = h->buffer.strides[i], span = step * (Py_ssize_t)(shape.dim[i] - 1);
        can = step % size == 0;
        strides[i] = step / size;
        low += span < 0 ? span : 0;
        high += span > 0 ? span : 0;
    }
    if (can) {
        const deft_wrap_options options = { .size = sizeof options,
                                            .strides = strides,
                                            .release = held_release,
                                            .release_user = h };
        RECORD(cx, t, deft_wrap_with(cx->cx, shape, dtype, (char *)h->buffer.buf + low, (size_t)(high - low), &options));
    }
    if (!t) {
        PyBuffer_Release(&h->buffer);
        free(h);
    }
    return t;
}

/* ---- DLPack in ---- */

static void versioned_released(struct DLManagedTensorVersioned *m)
{
    held_release((char *)m - offsetof(held, versioned));
}

static void old_released(struct DLManagedTensor *m)
{
    held_release((char *)m - offsetof(held, old));
}

/* from_dlpack(capsule, flags) */
static PyObject *from_dlpack(PyObject *module, PyObject *args)
{
    PyObject *capsule;
    unsigned flags;
    (void)module;
    context *const cx = context_here();
    if (!cx || !PyArg_ParseTuple(args, "OI", &capsule, &flags) || !context_enter(cx)) return NULL;
    const bool is_versioned = PyCapsule_IsValid(capsule, "dltensor_versioned");
    const char *const name = is_versioned ? "dltensor_versioned" : "dltensor";
    if (!PyCapsule_IsValid(capsule, name)) {
        PyErr_SetString(PyExc_ValueError, "this is no capsule of DLPack, or it was used before");
        return NULL;
    }
    held *const h = calloc(1, sizeof *h);
    if (!h) return PyErr_NoMemory();
    deft_tensor *t;
    h->managed = PyCapsule_GetPointer(capsule, name);
    if (is_versioned) {
        h->what = HELD_VERSIONED;
        h->versioned = *(deft_dlpack_versioned *)h->managed;
        h->versioned.deleter = versioned_released;
        RECORD(cx, t, deft_from_dlpack(cx->cx, (struct DLManagedTensorVersioned *)&h->versioned, flags));
    } else {
        h->what = HELD_OLD;
        h->old = *(deft_dlpack_old *)h->managed;
        h->old.deleter = old_released;
        RECORD(cx, t, deft_from_dlpack_old(cx->cx, (struct DLManagedTensor *)&h->old, flags));
    }
    if (!t) {
        free(h);
        return raise_mistake(cx);
    }
    PyCapsule_SetName(capsule, is_versioned ? "used_dltensor_versioned" : "used_dltensor");
    PyCapsule_SetDestructor(capsule, NULL);
    return array_new(cx, t);
}

/* ---- DLPack out ---- */

static void capsule_freed(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        struct DLManagedTensorVersioned *const m = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        ((deft_dlpack_versioned *)m)->deleter(m);
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        struct DLManagedTensor *const m = PyCapsule_GetPointer(capsule, "dltensor");
        ((deft_dlpack_old *)m)->deleter(m);
    }
}

/* to_dlpack(array, is_versioned, flags) */
static PyObject *to_dlpack(PyObject *module, PyObject *args)
{
    PyObject *o;
    int is_versioned;
    unsigned flags;
    struct DLManagedTensorVersioned *versioned = NULL;
    struct DLManagedTensor *old = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "OpI", &o, &is_versioned, &flags)) return NULL;
    if (!array_check(o)) return PyErr_Format(PyExc_TypeError, "expected an array");
    Array *const a = (Array *)o;
    if (!array_usable(a) || !context_enter(a->cx)) return NULL;
    context_turn(a->cx);
    PyThreadState *const state = context_begin_work(a->cx);
    const deft_status st = is_versioned ? deft_to_dlpack(a->t, flags, &versioned)
                                        : deft_to_dlpack_old(a->t, flags, &old);
    context_end_work(a->cx, state);
    if (st != DEFT_OK) return raise_read(a->cx, st);
    return is_versioned ? PyCapsule_New(versioned, "dltensor_versioned", capsule_freed)
                        : PyCapsule_New(old, "dltensor", capsule_freed);
}

PyMethodDef exchange_functions[] = {
    { "from_dlpack", from_dlpack, METH_VARARGS, "An array of a capsule of DLPack." },
    { "to_dlpack", to_dlpack, METH_VARARGS, "A capsule of DLPack." },
    { NULL, NULL, 0, NULL }
};
