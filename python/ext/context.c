/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts of threads, their scopes, and exceptions.
 */
#include "ext.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static deft_runtime *runtime;
static _Thread_local context *current; /* borrowed: the dict of the thread owns it */
static PyObject *errors;               /* exception classes by status: a tuple */
static bool has_lines;                 /* each call names its line of Python */
static char *folder;                   /* of the package, with a slash at its end; or NULL */

static const char capsule_name[] = "deft.context";

/* ---- life ---- */

static void context_destroy(context *cx)
{
    deft_ctx_destroy(&cx->cx);
    if (cx->lock) PyThread_free_lock(cx->lock);
    free(cx->freed);
    free(cx);
}

void context_release(context *cx)
{
    if (--cx->refs == 0) context_destroy(cx);
}

/* The thread ends. */
static void forget_thread(PyObject *capsule)
{
    context *const cx = PyCapsule_GetPointer(capsule, capsule_name);
    if (current == cx) current = NULL;
    if (cx) context_release(cx);
}

static context *context_create(void)
{
    deft_status st = runtime ? DEFT_OK : deft_runtime_create(NULL, &runtime);
    context *const cx = calloc(1, sizeof *cx);
    if (!cx) return (context *)PyErr_NoMemory();
    if (st == DEFT_OK) st = deft_ctx_create(runtime, NULL, &cx->cx);
    if (st != DEFT_OK) {
        free(cx);
        return (context *)raise_status(NULL, st, deft_status_text(st));
    }
    cx->refs = 1;
    cx->thread = PyThread_get_thread_ident();
    cx->lock = PyThread_allocate_lock();
    cx->scope = deft_scope_begin(cx->cx);
    PyObject *const dict = PyThreadState_GetDict();
    PyObject *const capsule = dict ? PyCapsule_New(cx, capsule_name, forget_thread) : NULL;
    if (!capsule || PyDict_SetItemString(dict, capsule_name, capsule) < 0) {
        if (!capsule) context_destroy(cx);
        Py_XDECREF(capsule);
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "deft: this thread has no state");
        return NULL;
    }
    Py_DECREF(capsule);
    return current = cx;
}

context *context_here(void)
{
    return current ? current : context_create();
}

/* ---- use ---- */

static void wait_while_busy(context *cx)
{
    if (!cx->busy) return;
    cx->n_waiting++;
    while (cx->busy) {
        PyThreadState *const state = PyEval_SaveThread();
        PyThread_acquire_lock(cx->lock, WAIT_LOCK);
        PyThread_release_lock(cx->lock);
        PyEval_RestoreThread(state);
    }
    cx->n_waiting--;
    cx->n_served++;
}

/* Lets a thread that waits go on first. A thread that computes in a loop releases the GIL only
 * while it is busy, so that the others would never find the context free. */
static void give_way(context *cx)
{
    const size_t served = cx->n_served;
    while (cx->n_waiting && cx->n_served == served && !cx->busy) {
        PyThreadState *const state = PyEval_SaveThread();
        (void)sched_yield();
        PyEval_RestoreThread(state);
    }
}

static void drop_freed(context *cx)
{
    while (cx->n_freed) {
        deft_drop(&cx->freed[--cx->n_freed]);
        cx->live--;
    }
}

bool context_enter(context *cx)
{
    if (cx->n_waiting) give_way(cx);
    wait_while_busy(cx); /* also in its own thread: another may compute in it */
    if (cx != current && cx->n_functions) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this array belongs to another thread, which is recording a function "
                        "at the moment");
        return false;
    }
    exchange_give_back();
    if (cx->n_freed) drop_freed(cx);
    if (cx->n_recorded >= CONTEXT_MAX_RECORDS) context_turn(cx);
    if (has_lines) line_begin(cx);
    return true;
}

void context_drop(context *cx, deft_tensor *t)
{
    if (!cx->busy) {
        deft_drop(&t);
        cx->live--;
        return;
    }
    if (cx->n_freed == cx->freed_room) {
        const size_t room = cx->freed_room ? cx->freed_room * 2 : 64;
        deft_tensor **const more = realloc(cx->freed, room * sizeof *more);
        if (!more) return; /* the handle stays until the context ends */
        cx->freed = more;
        cx->freed_room = room;
    }
    cx->freed[cx->n_freed++] = t;
}

PyThreadState *context_begin_work(context *cx)
{
    wait_while_busy(cx);
    cx->busy = true;
    PyThread_acquire_lock(cx->lock, WAIT_LOCK);
    return PyEval_SaveThread();
}

void context_end_work(context *cx, PyThreadState *state)
{
    PyEval_RestoreThread(state);
    cx->busy = false;
    PyThread_release_lock(cx->lock);
    if (cx->n_freed) drop_freed(cx);
}

void context_turn(context *cx)
{
    if (cx->n_functions || cx->body || cx->n_pins) return;
    PyThreadState *const state = context_begin_work(cx);
    const deft_status st = deft_scope_end(cx->scope);
    cx->scope = deft_scope_begin(cx->cx);
    context_end_work(cx, state);
    cx->n_recorded = 0;
    if (st != DEFT_OK) deft_clear(cx->cx);
}

/* ---- exceptions ---- */

PyObject *raise_status(context *cx, deft_status st, const char *text)
{
    if (PyErr_Occurred()) return NULL;
    PyObject *const type = errors ? PyTuple_GetItem(errors, (Py_ssize_t)st) : PyExc_RuntimeError;
    if (!text) text = deft_message(cx->cx);
    PyErr_SetString(type ? type : PyExc_RuntimeError, *text ? text : deft_status_text(st));
    return NULL;
}

PyObject *raise_read(context *cx, deft_status st)
{
    /* The attempt to compute all that was pending has failed before with the sentence itself. */
    static const char before[] = "since computing it failed: ";
    char text[1024];
    snprintf(text, sizeof text, "%s", deft_message(cx->cx));
    const char *const found = strstr(text, before);
    char *const end = strrchr(text, ',');
    /* Where it was read: Python's trace has it. */
    if (end && strncmp(end, found ? ", at " : ", at _deft.", found ? 5 : 11) == 0) *end = '\0';
    return raise_status(cx, st, found ? found + sizeof before - 1 : text);
}

PyObject *raise_mistake(context *cx)
{
    const deft_status st = deft_error(cx->cx);
    raise_status(cx, st == DEFT_OK ? DEFT_E_STATE : st, NULL);
    deft_clear(cx->cx);
    return NULL;
}

/* Whether this file belongs to the package: its lines say nothing to the program. */
static bool is_inside(const char *file)
{
    return folder && strncmp(file, folder, strlen(folder)) == 0;
}

/* The file of a frame, as a new reference that *text points into; NULL: there is none. */
static PyObject *file_of(PyObject *frame, const char **text)
{
    PyCodeObject *const code = PyFrame_GetCode((PyFrameObject *)frame);
    PyObject *const name = PyObject_GetAttrString((PyObject *)code, "co_filename");
    Py_DECREF((PyObject *)code);
    *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    return name;
}

void line_begin(context *cx)
{
    PyObject *error_type, *error_value, *trace;
    PyErr_Fetch(&error_type, &error_value, &trace);
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame && frame != Py_None) {
        const char *text = NULL;
        PyObject *const name = file_of(frame, &text);
        const bool is_line = text && !is_inside(text);
        if (is_line) deft_site(cx->cx, text, PyFrame_GetLineNumber((PyFrameObject *)frame));
        PyObject *const outer = is_line ? NULL : PyObject_GetAttrString(frame, "f_back");
        Py_XDECREF(name);
        Py_DECREF(frame);
        frame = outer;
    }
    Py_XDECREF(frame);
    PyErr_Restore(error_type, error_value, trace);
}

void line_end(context *cx)
{
    if (has_lines) return; /* the next call names its own */
    deft_site(cx->cx, NULL, 0);
}

/* ---- module ---- */

static PyObject *set_errors(PyObject *self, PyObject *args)
{
    PyObject *list;
    const char *path;
    (void)self;
    if (!PyArg_ParseTuple(args, "Os", &list, &path)) return NULL;
    Py_XDECREF(errors);
    errors = PyList_AsTuple(list);
    free(folder);
    folder = strdup(path);
    if (!errors) return NULL;
    Py_RETURN_NONE;
}

static PyObject *live(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    context *const cx = context_here();
    if (!cx || !context_enter(cx)) return NULL;
    return PyLong_FromSize_t(cx->live);
}

static PyObject *counters(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    context *const cx = context_here();
    if (!cx || !context_enter(cx)) return NULL;
    deft_stats s;
    deft_stats_read(cx->cx, &s, sizeof s);
    return Py_BuildValue("{sKsKsKsKsKsKsKsK}", "ops_recorded", (unsigned long long)s.ops_recorded,
                         "cuts", (unsigned long long)s.cuts, "plans_built",
                         (unsigned long long)s.plans_built, "kernels_compiled",
                         (unsigned long long)s.kernels_compiled, "kernels_run",
                         (unsigned long long)s.kernels_run, "live_bytes",
                         (unsigned long long)s.live_bytes, "syncs", (unsigned long long)s.syncs,
                         "recomputed", (unsigned long long)s.recomputed);
}

static PyObject *explain(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    context *const cx = context_here();
    if (!cx || !context_enter(cx)) return NULL;
    const size_t n = deft_explain(cx->cx, NULL, 0);
    char *const text = PyMem_Malloc(n + 1);
    if (!text) return PyErr_NoMemory();
    deft_explain(cx->cx, text, n + 1);
    PyObject *const result = PyUnicode_FromStringAndSize(text, (Py_ssize_t)n);
    PyMem_Free(text);
    return result;
}

static PyObject *compiler(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    context *const cx = context_here();
    return cx ? PyUnicode_FromString(deft_runtime_compiler(runtime)) : NULL;
}

static PyObject *set_lines(PyObject *self, PyObject *on)
{
    (void)self;
    context *const cx = context_here();
    if (!cx) return NULL;
    has_lines = PyObject_IsTrue(on) == 1;
    line_end(cx);
    Py_RETURN_NONE;
}

static PyObject *turn(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    context *const cx = context_here();
    if (!cx || !context_enter(cx)) return NULL;
    context_turn(cx);
    Py_RETURN_NONE;
}

/* Around a Python function whose gradient is taken: its records must stay. */
static PyObject *function_begin(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    context *const cx = context_here();
    if (!cx || !context_enter(cx)) return NULL;
    cx->n_functions++;
    Py_RETURN_NONE;
}

static PyObject *function_end(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    context *const cx = context_here();
    if (!cx) return NULL;
    if (cx->n_functions) cx->n_functions--;
    Py_RETURN_NONE;
}

static PyObject *is_recording(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    context *const cx = context_here();
    return cx ? PyBool_FromLong(cx->n_functions > 0) : NULL;
}

static PyMethodDef context_functions[] = {
    { "set_errors", set_errors, METH_VARARGS, "Exception classes by deft_status, and the folder of the package." },
    { "live", live, METH_NOARGS, "The number of handles that this thread's arrays keep." },
    { "counters", counters, METH_NOARGS, "Counters of this thread's context." },
    { "explain", explain, METH_NOARGS, "Why something took time (deft_explain)." },
    { "compiler", compiler, METH_NOARGS, "The compiler, or why there is none." },
    { "set_lines", set_lines, METH_O, "Whether each call names its line of Python." },
    { "turn", turn, METH_NOARGS, "Computes everything that is pending." },
    { "function_begin", function_begin, METH_NOARGS, "Keeps records until function_end." },
    { "function_end", function_end, METH_NOARGS, "Ends function_begin." },
    { "is_recording", is_recording, METH_NOARGS, "Whether a function that deft records or differentiates is running." },
    { NULL, NULL, 0, NULL }
};

bool context_setup(PyObject *module)
{
    return PyModule_AddFunctions(module, context_functions) == 0;
}
