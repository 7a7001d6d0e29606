/* SPDX-License-Identifier: Apache-2.0
 *
 * Python functions that deft records: captures, deft_vmap, loops and branches; and gradients.
 *
 * deft must know how many results a function has before it runs. So the first attempt asks for one.
 * When the function returns another number, the attempt fails, has had no effect, and is repeated
 * with that number.
 */
#include "ext.h"

#include <stdlib.h>

static PyTypeObject *capture_type;

/* One call of a Python function by deft. */
typedef struct callback {
    context *cx;
    PyObject *fn;
    PyThreadState **state; /* of a call that released the GIL; else NULL */
    size_t n_found;        /* results that the function returned */
    bool captures;
} callback;

typedef struct Capture {
    PyObject_HEAD
    deft_capture *capture;
    context *cx;
    PyObject *fn;
    size_t n_out;
    PyThreadState *state;
    callback now;
} Capture;

/* ---- the function that deft calls ---- */

static PyObject *list_of(context *cx, deft_tensor *const *in, size_t n, bool are_inputs)
{
    PyObject *const list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *const a = array_borrowed(cx, in[i], are_inputs);
        if (!a) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SetItem(list, (Py_ssize_t)i, a);
    }
    return list;
}

static deft_status take_results(callback *c, PyObject *list, deft_tensor **out, size_t n_out)
{
    c->n_found = (size_t)PyList_Size(list);
    if (c->n_found != n_out) return DEFT_E_ARG;
    for (size_t i = 0; i < n_out; i++) {
        out[i] = array_operand(c->cx, PyList_GetItem(list, (Py_ssize_t)i));
        if (!out[i]) return DEFT_E_ARG;
    }
    return DEFT_OK;
}

static deft_status run(callback *c, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                       size_t n_out)
{
    body b;
    if (c->state) context_end_work(c->cx, *c->state);
    body_begin(c->cx, &b, c->captures);
    PyObject *const list = list_of(c->cx, in, n_in, c->captures);
    PyObject *const made = list ? PyObject_CallFunctionObjArgs(c->fn, list, NULL) : NULL;
    const deft_status st = made ? take_results(c, made, out, n_out) : DEFT_E_ARG;
    Py_XDECREF(list);
    Py_XDECREF(made);
    body_end(c->cx, &b);
    if (c->state) *c->state = context_begin_work(c->cx);
    return st;
}

static deft_status run_body(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                            size_t n_out, void *user)
{
    (void)cx;
    return run(user, in, n_in, out, n_out);
}

static deft_status run_capture(deft_ctx *cx, deft_tensor *const *in, size_t n_in, deft_tensor **out,
                               size_t n_out, void *user)
{
    Capture *const c = user;
    (void)cx;
    return run(&c->now, in, n_in, out, n_out);
}

/* ---- lists ---- */

/* The handles of a list of Arrays, which the caller frees. *n gets their number. */
static deft_tensor **handles_of(context *cx, PyObject *list, size_t *n)
{
    const Py_ssize_t size = PyList_Size(list);
    deft_tensor **const t = size < 0 ? NULL : PyMem_Calloc((size_t)size + 1, sizeof *t);
    for (Py_ssize_t i = 0; t && i < size; i++) {
        t[i] = array_operand(cx, PyList_GetItem(list, i));
        if (!t[i]) {
            PyMem_Free(t);
            if (!PyErr_Occurred()) raise_mistake(cx);
            return NULL;
        }
    }
    if (t) *n = (size_t)size;
    return t;
}

static PyObject *arrays_of(context *cx, deft_tensor *const *t, size_t n)
{
    PyObject *const list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *const a = array_new(cx, t[i]);
        if (!a) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SetItem(list, (Py_ssize_t)i, a);
    }
    return list;
}

/* ---- captures ---- */

static PyObject *capture_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *fn;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "O", &fn)) return NULL;
    context *const cx = context_here();
    if (!cx || !context_enter(cx)) return NULL;
    Capture *const c = PyObject_New(Capture, type);
    if (!c) return NULL;
    c->cx = cx;
    c->fn = Py_NewRef(fn);
    c->n_out = 1;
    cx->refs++;
    c->capture = deft_capture_create(cx->cx, run_capture, c);
    if (c->capture) return (PyObject *)c;
    raise_mistake(cx);
    Py_DECREF((PyObject *)c);
    return NULL;
}

static void capture_dealloc(PyObject *self)
{
    Capture *const c = (Capture *)self;
    PyTypeObject *const type = Py_TYPE(self);
    if (c->capture) {
        PyThreadState *const state = context_begin_work(c->cx);
        deft_capture_destroy(&c->capture);
        context_end_work(c->cx, state);
    }
    Py_XDECREF(c->fn);
    context_release(c->cx);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *capture_call(PyObject *self, PyObject *list)
{
    Capture *const c = (Capture *)self;
    size_t n_in = 0;
    if (!context_enter(c->cx)) return NULL;
    if (c->cx->body) {
        PyErr_SetString(PyExc_RuntimeError, "a compiled function cannot be called inside another "
                                            "function that deft records");
        return NULL;
    }
    deft_tensor **const in = handles_of(c->cx, list, &n_in), **out = NULL;
    if (!in) return NULL;
    deft_status st = DEFT_E_ARG;
    for (int attempt = 0; attempt < 2; attempt++) {
        PyMem_Free(out);
        out = PyMem_Calloc(c->n_out + 1, sizeof *out);
        if (!out) break;
        c->now = (callback){ c->cx, c->fn, &c->state, c->n_out, true };
        c->state = context_begin_work(c->cx);
        st = deft_capture_call(c->capture, in, n_in, out, c->n_out);
        context_end_work(c->cx, c->state);
        if (st == DEFT_OK || PyErr_Occurred() || c->now.n_found == c->n_out) break;
        deft_clear(c->cx->cx);
        c->n_out = c->now.n_found;
    }
    PyObject *result = NULL;
    if (st == DEFT_OK)
        result = arrays_of(c->cx, out, c->n_out);
    else if (!PyErr_Occurred())
        raise_status(c->cx, st, NULL);
    if (st != DEFT_OK) deft_clear(c->cx->cx);
    PyMem_Free(in);
    PyMem_Free(out);
    return result;
}

static PyObject *capture_set(PyObject *self, PyObject *args)
{
    const char *name;
    double value;
    Capture *const c = (Capture *)self;
    if (!PyArg_ParseTuple(args, "sd", &name, &value) || !context_enter(c->cx)) return NULL;
    const deft_status st = deft_capture_set_f(c->capture, name, value);
    if (st != DEFT_OK) return raise_status(c->cx, st, NULL);
    Py_RETURN_NONE;
}

static PyObject *capture_counters(PyObject *self, PyObject *unused)
{
    deft_capture_stats s;
    (void)unused;
    deft_capture_stats_read(((Capture *)self)->capture, &s, sizeof s);
    return Py_BuildValue("{sKsKsKsKss}", "calls", (unsigned long long)s.calls, "replayed",
                         (unsigned long long)s.replayed, "recordings",
                         (unsigned long long)s.recordings, "missed", (unsigned long long)s.missed,
                         "reason", deft_capture_reason(((Capture *)self)->capture));
}

static PyMethodDef capture_methods[] = {
    { "call", capture_call, METH_O, "Runs or replays the function." },
    { "set", capture_set, METH_VARARGS, "Sets a parameter." },
    { "counters", capture_counters, METH_NOARGS, "Counters of the capture." },
    { NULL, NULL, 0, NULL }
};

static PyType_Slot capture_slots[] = { { Py_tp_new, capture_new },
                                       { Py_tp_dealloc, capture_dealloc },
                                       { Py_tp_methods, capture_methods },
                                       { 0, NULL } };

static PyType_Spec capture_spec = { .name = "deft._deft.Capture",
                                    .basicsize = sizeof(Capture),
                                    .flags = Py_TPFLAGS_DEFAULT,
                                    .slots = capture_slots };

static PyObject *param(PyObject *module, PyObject *args)
{
    const char *name;
    deft_tensor *t;
    (void)module;
    context *const cx = context_here();
    if (!cx || !PyArg_ParseTuple(args, "s", &name) || !context_enter(cx)) return NULL;
    RECORD(cx, t, deft_param_f(cx->cx, name));
    return array_new(cx, t);
}

/* ---- vmap, loops, branches ---- */

/* Records a call that takes a function of unknown number of results, up to two times. */
typedef bool (*record_fn)(void *what, callback *c, deft_tensor **out, size_t n_out);

static PyObject *record(context *cx, record_fn fn, void *what, PyObject *python, size_t n_more)
{
    callback c = { .cx = cx, .fn = python, .n_found = 1 };
    for (int attempt = 0; attempt < 2; attempt++) {
        const size_t n = c.n_found + n_more; /* a loop may return its states alone */
        deft_tensor **const out = PyMem_Calloc(n + 1, sizeof *out);
        if (!out) return PyErr_NoMemory();
        const size_t asked = c.n_found;
        const bool ok = fn(what, &c, out, asked);
        PyObject *const result = ok && !PyErr_Occurred() ? arrays_of(cx, out, c.n_found) : NULL;
        PyMem_Free(out);
        if (ok || PyErr_Occurred() || c.n_found == asked) {
            if (!ok && !PyErr_Occurred()) return raise_mistake(cx);
            if (!ok) deft_clear(cx->cx);
            return result;
        }
        deft_clear(cx->cx);
    }
    return raise_mistake(cx);
}

typedef struct mapped_call {
    deft_tensor **in;
    size_t n_in;
    int *in_axes;
    PyObject *out_axes; /* a number for all results, or a list */
} mapped_call;

static int axis_of(PyObject *o)
{
    return o == Py_None ? DEFT_NOT_MAPPED : (int)PyLong_AsLong(o);
}

static bool record_vmap(void *what, callback *c, deft_tensor **out, size_t n_out)
{
    mapped_call *const m = what;
    int *const axes = PyMem_Calloc(n_out + 1, sizeof *axes);
    const bool many = PyList_Check(m->out_axes);
    bool ok = axes != NULL;
    for (size_t i = 0; ok && i < n_out; i++) {
        if (many && i >= (size_t)PyList_Size(m->out_axes)) break;
        axes[i] = axis_of(many ? PyList_GetItem(m->out_axes, (Py_ssize_t)i) : m->out_axes);
    }
    ok = ok && !PyErr_Occurred() &&
         deft_vmap(c->cx->cx, run_body, c, m->in, m->in_axes, m->n_in, out, axes, n_out);
    PyMem_Free(axes);
    return ok;
}

static PyObject *vmap(PyObject *module, PyObject *args)
{
    PyObject *fn, *list, *in_axes, *out_axes, *result = NULL;
    mapped_call m = { 0 };
    (void)module;
    context *const cx = context_here();
    if (!cx || !PyArg_ParseTuple(args, "OOOO", &fn, &list, &in_axes, &out_axes) || !context_enter(cx))
        return NULL;
    m.in = handles_of(cx, list, &m.n_in);
    m.in_axes = PyMem_Calloc(m.n_in + 1, sizeof *m.in_axes);
    m.out_axes = out_axes;
    for (size_t i = 0; m.in_axes && i < m.n_in; i++)
        m.in_axes[i] = axis_of(PyList_GetItem(in_axes, (Py_ssize_t)i));
    if (m.in && m.in_axes && !PyErr_Occurred()) result = record(cx, record_vmap, &m, fn, 0);
    PyMem_Free(m.in);
    PyMem_Free(m.in_axes);
    return result;
}

typedef struct scan_call {
    deft_tensor **init, **rows;
    size_t n_states, n_rows;
    long long length;
} scan_call;

static bool record_scan(void *what, callback *c, deft_tensor **out, size_t n_out)
{
    const scan_call *const s = what;
    if (n_out < s->n_states) n_out = s->n_states; /* the first attempt */
    return deft_scan(c->cx->cx, run_body, c, s->init, s->n_states, s->rows, s->n_rows, s->length,
                     n_out - s->n_states, out);
}

/* scan(fn, init, rows, length): states, then results with a row for each iteration. */
static PyObject *scan(PyObject *module, PyObject *args)
{
    PyObject *fn, *init, *rows, *result = NULL;
    scan_call s = { 0 };
    (void)module;
    context *const cx = context_here();
    if (!cx || !PyArg_ParseTuple(args, "OOOL", &fn, &init, &rows, &s.length) || !context_enter(cx)) return NULL;
    s.init = handles_of(cx, init, &s.n_states);
    s.rows = s.init ? handles_of(cx, rows, &s.n_rows) : NULL;
    if (s.rows) result = record(cx, record_scan, &s, fn, s.n_states);
    PyMem_Free(s.init);
    PyMem_Free(s.rows);
    return result;
}

/* ---- gradients ---- */

/* grad(results, seeds or None, operands): a gradient for each operand. */
static PyObject *grad(PyObject *module, PyObject *args)
{
    PyObject *of_list, *seed_list, *with_list, *result = NULL;
    size_t n_of = 0, n_with = 0, n_seeds = 0;
    (void)module;
    context *const cx = context_here();
    if (!cx || !PyArg_ParseTuple(args, "OOO", &of_list, &seed_list, &with_list) || !context_enter(cx)) return NULL;
    deft_tensor **const of = handles_of(cx, of_list, &n_of);
    deft_tensor **const with = of ? handles_of(cx, with_list, &n_with) : NULL;
    deft_tensor **const seeds = with && seed_list != Py_None ? handles_of(cx, seed_list, &n_seeds) : NULL;
    deft_tensor **const out = with ? PyMem_Calloc(n_with + 1, sizeof *out) : NULL;
    const deft_grad_options options = { .size = sizeof options, .unused_is_zero = true };
    if (out && !PyErr_Occurred()) {
        bool ok = deft_grad(of, seeds, n_of, with, n_with, &options, out);
        if (!ok) {
            deft_clear(cx->cx);
            line_begin(cx);
            ok = deft_grad(of, seeds, n_of, with, n_with, &options, out);
            line_end(cx);
        }
        result = ok ? arrays_of(cx, out, n_with) : raise_mistake(cx);
    }
    PyMem_Free(of);
    PyMem_Free(with);
    PyMem_Free(seeds);
    PyMem_Free(out);
    return result;
}

static PyObject *stop_gradient(PyObject *module, PyObject *o)
{
    deft_tensor *t;
    (void)module;
    if (!array_check(o)) return PyErr_Format(PyExc_TypeError, "expected an array");
    Array *const a = (Array *)o;
    if (!array_usable(a) || !context_enter(a->cx)) return NULL;
    RECORD(a->cx, t, deft_stop_gradient(a->t));
    return array_new(a->cx, t);
}

PyMethodDef record_functions[] = {
    { "grad", grad, METH_VARARGS, "Gradients of results with respect to operands." },
    { "param", param, METH_VARARGS, "A parameter of the function that is being captured." },
    { "scan", scan, METH_VARARGS, "Records a loop over rows." },
    { "stop_gradient", stop_gradient, METH_O, "An array as a constant of gradients." },
    { "vmap", vmap, METH_VARARGS, "Records a function of one example for many." },
    { NULL, NULL, 0, NULL }
};

bool record_setup(PyObject *module)
{
    capture_type = (PyTypeObject *)PyType_FromSpec(&capture_spec);
    return capture_type && PyModule_AddObjectRef(module, "Capture", (PyObject *)capture_type) == 0 &&
           PyModule_AddFunctions(module, record_functions) == 0;
}
