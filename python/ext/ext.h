/* SPDX-License-Identifier: Apache-2.0
 *
 * The compiled part of the Python package: what its files share. It uses the stable ABI of Python
 * 3.11, so that one module serves all later versions.
 *
 * Contexts. Each thread has a context of deft, made when the thread first needs it. A context has
 * one open scope, in which everything is recorded. Each Array keeps its handle (deft_keep) and
 * drops it when Python frees the Array. The scope is closed and opened anew by a read, and after
 * CONTEXT_MAX_RECORDS recorded results. Closing it computes all pending Arrays as one program.
 *
 * The GIL protects all of it. It is released while deft computes. A context is then `busy`, and
 * another thread that needs the context waits. An Array that is freed meanwhile goes to `freed`.
 *
 * Functions. While deft runs a Python function that it records (capture, vmap), or while Python
 * runs one that is to be differentiated, the scope stays as it is: context.n_functions says so. In
 * the functions that deft calls, handles cannot be kept. Arrays made there are in body.arrays, and
 * lose their handle when the function ends.
 */
#ifndef DEFT_PYTHON_EXT_H
#define DEFT_PYTHON_EXT_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#ifndef DEFT_NO_GENERIC
#define DEFT_NO_GENERIC
#endif
#include "deft/call.h"
#include "deft/deft.h"
#include "deft/dlpack.h"

enum { CONTEXT_MAX_RECORDS = 1 << 16 };

typedef struct Array Array;

/* A function that deft has called, while it runs. */
typedef struct body {
    struct body *outer;
    Array **arrays; /* made inside, not kept, and not freed yet; borrowed */
    size_t n, room;
    bool captures; /* numbers of C are refused: they become deft_const_f and the like */
} body;

typedef struct context {
    deft_ctx *cx;
    deft_scope scope;
    size_t refs; /* its thread, and each Array */
    size_t live; /* handles that are kept */
    unsigned long thread;
    bool busy;               /* computes, without the GIL */
    PyThread_type_lock lock; /* held while busy */
    size_t n_waiting;        /* threads that wait until it is not busy */
    size_t n_served;         /* threads that have waited so far, and went on */
    unsigned n_functions;    /* functions that are recorded or differentiated at this moment */
    unsigned n_pins;         /* calls that hold handles which are not kept: the scope must stay */
    uint32_t n_recorded;     /* Arrays made since the scope began */
    body *body;              /* the innermost, or NULL */
    deft_tensor **freed;     /* to be dropped by the thread that uses the context next */
    size_t n_freed, freed_room;
} context;

/* An array: a handle of deft. */
struct Array {
    PyObject_HEAD
    deft_tensor *t; /* NULL: it belonged to a function that has ended */
    context *cx;    /* counted */
    size_t place;   /* in body.arrays, when it is not kept */
    body *of;       /* NULL: kept */
    bool is_input;  /* an argument of a captured function: assigning it assigns the caller's */
};

/* ---- context.c ---- */

/* The context of this thread, made when there is none; borrowed. NULL: an exception is set. */
context *context_here(void);
/* Called before cx is used: drops what was freed, waits while another thread computes, and begins
 * a new scope when the old one is long. Returns false with an exception when another thread records
 * a function in cx. */
bool context_enter(context *cx);
void context_release(context *cx);
/* Drops the handle, now or when cx can be used. */
void context_drop(context *cx, deft_tensor *t);
/* Closes the scope, which computes everything that is pending, and opens another. Does nothing
 * while functions are recorded, and while calls hold handles that are not kept. A failure is no exception: the Array that cannot be computed fails
 * when it is read. */
void context_turn(context *cx);
/* Around work without the GIL. */
PyThreadState *context_begin_work(context *cx);
void context_end_work(context *cx, PyThreadState *state);

/* Sets the exception for a status. text NULL: the sentence of cx. Returns NULL. */
PyObject *raise_status(context *cx, deft_status st, const char *text);
/* Sets the exception for a read that has failed. Returns NULL. */
PyObject *raise_read(context *cx, deft_status st);
/* Sets the exception for the mistake that a recording call has made, and clears it in cx. Returns
 * NULL. */
PyObject *raise_mistake(context *cx);
/* Names the line of Python that runs as the site of the calls that follow, until line_end. */
void line_begin(context *cx);
void line_end(context *cx);

/* Evaluates a recording call, and once more with the line of Python when it failed, so that the
 * sentence has the line. */
#define RECORD(cx_, t_, call_)                                                                     \
    do {                                                                                           \
        (t_) = (call_);                                                                            \
        if ((t_) || PyErr_Occurred()) break;                                                       \
        deft_clear((cx_)->cx);                                                                     \
        line_begin(cx_);                                                                           \
        (t_) = (call_);                                                                            \
        line_end(cx_);                                                                             \
    } while (0)

bool context_setup(PyObject *module);

/* ---- array.c ---- */

extern PyTypeObject *array_type;
/* An Array for a new handle. t NULL: raises the mistake. */
PyObject *array_new(context *cx, deft_tensor *t);
/* The same for a handle that deft owns, such as an operand of a function that it calls. */
PyObject *array_borrowed(context *cx, deft_tensor *t, bool is_input);
static inline bool array_check(PyObject *o)
{
    return Py_TYPE(o) == array_type || PyType_IsSubtype(Py_TYPE(o), array_type);
}
/* An Array that is made of another object, such as a list or an array of NumPy, with a copy of its
 * elements. NULL: an exception is set. */
PyObject *array_made_of(PyObject *o);
/* The handle of an Array or a number, for calls in cx. NULL: an exception is set. */
deft_tensor *array_operand(context *cx, PyObject *o);
/* The same beside operands of that dtype. A complex number of Python becomes c128 beside f64 and
 * c128, else c64: it has no precision of its own. */
deft_tensor *array_operand_beside(context *cx, PyObject *o, deft_dtype beside);
/* The dtype of an Array; f32 for anything else. */
deft_dtype array_dtype_of(PyObject *o);
/* Whether `a` can be used: its function has not ended. Sets an exception. */
bool array_usable(const Array *a);
/* Gives the Array another handle, in the place of the old one. false: an exception is set. */
bool array_rebind(Array *a, deft_tensor *t);
bool array_setup(PyObject *module);
extern PyMethodDef array_functions[];

void body_begin(context *cx, body *b, bool captures);
void body_end(context *cx, body *b);

/* ---- data.c ---- */
extern PyMethodDef data_functions[];
int array_get_buffer(PyObject *self, Py_buffer *view, int flags);
void array_release_buffer(PyObject *self, Py_buffer *view);
PyObject *array_item(PyObject *self, PyObject *unused);
/* ---- exchange.c ---- */

/* A tensor of the memory of a buffer, without a copy; the buffer is held until deft does not use it
 * any more. NULL without an exception: the layout does not permit it, or deft refused. */
deft_tensor *exchange_wrap(context *cx, deft_shape shape, deft_dtype dtype, PyObject *o);
/* Gives back what deft does not use any more. */
void exchange_give_back(void);
extern PyMethodDef exchange_functions[];

/* ---- function.c ---- */
bool function_setup(PyObject *module);
/* ---- record.c ---- */
bool record_setup(PyObject *module);
extern PyMethodDef record_functions[];

#endif
