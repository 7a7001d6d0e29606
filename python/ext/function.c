/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of deft as callables of Python, one for each row of the table of deft/call.h, and
 * streams of random numbers.
 */
#include "ext.h"

#include <string.h>

enum { MAX_ARGS = 16, MAX_LIST = 1 << 16 };

static PyTypeObject *function_type, *stream_type;

typedef struct Function {
    PyObject_HEAD
    const deft_function *f;
    bool fails_late; /* an index out of range is found when it is computed: needs its line */
} Function;

/* A stream of random numbers. */
typedef struct Stream {
    PyObject_HEAD
    deft_rng rng;
} Stream;

/* One call: arguments, and what they refer to. */
typedef struct call {
    context *cx;
    const deft_function *f;
    deft_arg args[MAX_ARGS];
    size_t n;
    void *lists[MAX_ARGS + 1]; /* to be freed */
    size_t n_lists;
    PyObject *made; /* a list of converted operands, or NULL */
    PyObject *given; /* the arguments without a name */
} call;

/* ---- conversion ---- */

static void *list_of(call *c, Py_ssize_t n, size_t size)
{
    if (n > MAX_LIST) {
        PyErr_Format(PyExc_ValueError, "a list of %zd is too long", n);
        return NULL;
    }
    void *const p = PyMem_Calloc((size_t)n + 1, size);
    if (!p) PyErr_NoMemory();
    if (p) c->lists[c->n_lists++] = p;
    return p;
}

static bool take_int(PyObject *o, deft_arg *out)
{
    int overflow = 0;
    PyObject *const i = PyNumber_Index(o);
    if (!i) return false;
    *out = (deft_arg){ .kind = DEFT_ARG_INT, .as.i = PyLong_AsLongLongAndOverflow(i, &overflow) };
    if (overflow) *out = (deft_arg){ .kind = DEFT_ARG_UINT, .as.u = PyLong_AsUnsignedLongLong(i) };
    Py_DECREF(i);
    return !PyErr_Occurred();
}

static bool take_number(PyObject *o, deft_arg *out)
{
    if (!PyFloat_Check(o) && PyIndex_Check(o)) return take_int(o, out);
    *out = (deft_arg){ .kind = DEFT_ARG_FLOAT, .as.f = PyFloat_AsDouble(o) };
    return !PyErr_Occurred();
}

static bool take_ints(call *c, PyObject *o, deft_arg *out)
{
    if (!PySequence_Check(o) || array_check(o)) return take_int(o, out);
    const Py_ssize_t n = PySequence_Size(o);
    int64_t *const ints = n < 0 ? NULL : list_of(c, n, sizeof *ints);
    if (!ints) return false;
    *out = (deft_arg){ .kind = DEFT_ARG_INTS, .n = (uint32_t)n, .as.ints = ints };
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *const item = PySequence_GetItem(o, i);
        deft_arg one = { 0 };
        const bool ok = item && take_int(item, &one);
        Py_XDECREF(item);
        if (!ok) return false;
        ints[i] = one.as.i;
    }
    return true;
}

static bool take_floats(call *c, PyObject *o, deft_arg *out)
{
    if (!PySequence_Check(o) || array_check(o)) return take_number(o, out);
    const Py_ssize_t n = PySequence_Size(o);
    double *const floats = n < 0 ? NULL : list_of(c, n, sizeof *floats);
    if (!floats) return false;
    *out = (deft_arg){ .kind = DEFT_ARG_FLOATS, .n = (uint32_t)n, .as.floats = floats };
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *const item = PySequence_GetItem(o, i);
        if (item) floats[i] = PyFloat_AsDouble(item);
        Py_XDECREF(item);
        if (PyErr_Occurred()) return false;
    }
    return true;
}

/* The bytes of a text without a 0 in them, in memory of the call. */
static bool take_text(call *c, PyObject *o, deft_arg *out)
{
    if (!PyUnicode_Check(o)) return PyErr_Format(PyExc_TypeError, "%R is no text", o), false;
    Py_ssize_t n = 0;
    const char *const bytes = PyUnicode_AsUTF8AndSize(o, &n);
    char *const text = bytes ? list_of(c, n, 1) : NULL;
    if (!text) return false;
    if (strlen(bytes) != (size_t)n) return PyErr_SetString(PyExc_ValueError, "the text has a 0"), false;
    memcpy(text, bytes, (size_t)n);
    *out = (deft_arg){ .kind = DEFT_ARG_TEXT, .as.text = text };
    return true;
}

/* The dtype of a complex number beside the other arguments. */
static deft_dtype dtype_beside(const call *c)
{
    deft_dtype t = DEFT_F32;
    const Py_ssize_t n = PyTuple_Size(c->given);
    for (Py_ssize_t i = 0; i < n; i++)
        t = deft_promote(t, array_dtype_of(PyTuple_GetItem(c->given, i)));
    return t;
}

static deft_tensor *take_operand(call *c, PyObject *o)
{
    if (PyComplex_Check(o)) return array_operand_beside(c->cx, o, dtype_beside(c));
    if (!array_check(o) && !PyFloat_Check(o) && !PyLong_Check(o)) {
        PyObject *const made = array_made_of(o);
        if (!made) return NULL;
        if (!c->made) c->made = PyList_New(0);
        const int added = c->made ? PyList_Append(c->made, made) : -1;
        Py_DECREF(made);
        return added < 0 ? NULL : array_operand(c->cx, made);
    }
    return array_operand(c->cx, o);
}

static bool take_tensors(call *c, PyObject *o, deft_arg *out)
{
    const Py_ssize_t n = PySequence_Size(o);
    deft_tensor **const list = n < 0 ? NULL : list_of(c, n, sizeof *list);
    if (!list) return false;
    *out = (deft_arg){ .kind = DEFT_ARG_TENSORS, .n = (uint32_t)n, .as.tensors = list };
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *const item = PySequence_GetItem(o, i);
        list[i] = item ? take_operand(c, item) : NULL;
        Py_XDECREF(item); /* the sequence, or c->made, still has it */
        if (!list[i]) return false;
    }
    return true;
}

static bool take_dtype(PyObject *o, deft_arg *out)
{
    if (PyLong_Check(o)) return take_int(o, out);
    PyObject *const number = PyObject_GetAttrString(o, "number");
    const bool ok = number && take_int(number, out);
    Py_XDECREF(number);
    if (!ok) PyErr_Format(PyExc_TypeError, "%R is no dtype of deft", o);
    return ok;
}

static bool take(call *c, const deft_parameter *p, PyObject *o, deft_arg *out)
{
    const char *const type = p->type;
    if (o == Py_None) {
        *out = (deft_arg){ 0 };
        return true;
    }
    if (strcmp(type, "tensor") == 0) {
        *out = (deft_arg){ .kind = DEFT_ARG_TENSOR, .as.tensor = take_operand(c, o) };
        return out->as.tensor != NULL;
    }
    if (strcmp(type, "tensors") == 0) return take_tensors(c, o, out);
    if (strcmp(type, "float") == 0) return take_number(o, out);
    if (strcmp(type, "floats") == 0) return take_floats(c, o, out);
    if (strcmp(type, "text") == 0) return take_text(c, o, out);
    if (strcmp(type, "dtype") == 0) return take_dtype(o, out);
    if (strcmp(type, "rng") == 0) {
        if (Py_TYPE(o) != stream_type) return PyErr_SetString(PyExc_TypeError, "expected a stream of random numbers"), false;
        *out = (deft_arg){ .kind = DEFT_ARG_RNG, .as.rng = &((Stream *)o)->rng };
        return true;
    }
    if (strcmp(type, "bool") == 0) {
        const int is = PyObject_IsTrue(o);
        *out = (deft_arg){ .kind = DEFT_ARG_INT, .as.i = is };
        return is >= 0;
    }
    if (strcmp(type, "int") == 0 || strcmp(type, "enum") == 0) return take_int(o, out);
    return take_ints(c, o, out);
}

static size_t position_of(const deft_function *f, PyObject *name)
{
    const size_t n = deft_function_arity(f);
    for (size_t i = 0; i < n; i++)
        if (PyUnicode_CompareWithASCIIString(name, deft_function_parameter(f, i).name) == 0) return i;
    PyErr_Format(PyExc_TypeError, "%s has no argument %U", deft_function_name(f), name);
    return SIZE_MAX;
}

static bool take_one(call *c, size_t i, PyObject *o)
{
    const deft_parameter p = deft_function_parameter(c->f, i);
    if (i >= c->n) c->n = i + 1;
    return take(c, &p, o, &c->args[i]);
}

static bool take_all(call *c, PyObject *args, PyObject *keywords)
{
    const Py_ssize_t n = PyTuple_Size(args);
    if ((size_t)n > deft_function_arity(c->f)) {
        PyErr_Format(PyExc_TypeError, "%s takes %zu arguments, not %zd", deft_function_name(c->f),
                     deft_function_arity(c->f), n);
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (!take_one(c, (size_t)i, PyTuple_GetItem(args, i))) return false;
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (keywords && PyDict_Next(keywords, &at, &name, &value)) {
        const size_t i = position_of(c->f, name);
        if (i == SIZE_MAX || !take_one(c, i, value)) return false;
    }
    return true;
}

/* ---- calling ---- */

static PyObject *results(context *cx, deft_tensor **out, size_t n, bool is_list)
{
    if (!is_list && n == 1) return array_new(cx, out[0]);
    PyObject *const tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; tuple && i < n; i++) {
        PyObject *const a = array_new(cx, out[i]);
        if (!a) {
            Py_DECREF(tuple);
            return NULL;
        }
        PyTuple_SetItem(tuple, (Py_ssize_t)i, a);
    }
    return tuple;
}

static PyObject *call_now(call *c, const Function *self)
{
    const bool is_list = deft_function_results(c->f, NULL, 0) == 0;
    const size_t n = deft_function_results(c->f, c->args, c->n);
    deft_tensor **const out = list_of(c, (Py_ssize_t)n, sizeof *out);
    deft_call_error error;
    /* The conversion of arguments may have run Python, and another thread may compute here. */
    if (!out || !context_enter(c->cx)) return NULL;
    if (self->fails_late) line_begin(c->cx);
    deft_status st = deft_function_call(c->f, c->cx->cx, c->args, c->n, out, n, &error);
    if (st != DEFT_OK && deft_error(c->cx->cx) != DEFT_OK) {
        deft_clear(c->cx->cx); /* once more, for a sentence with the line of Python */
        line_begin(c->cx);
        st = deft_function_call(c->f, c->cx->cx, c->args, c->n, out, n, &error);
        line_end(c->cx);
    }
    if (self->fails_late) line_end(c->cx);
    if (st == DEFT_OK) return results(c->cx, out, n, is_list);
    raise_status(c->cx, st, error.text);
    deft_clear(c->cx->cx);
    return NULL;
}

/* The context of the first operand, else that of the thread. */
static context *context_of(PyObject *args)
{
    PyObject *const first = PyTuple_Size(args) ? PyTuple_GetItem(args, 0) : NULL;
    return first && array_check(first) ? ((Array *)first)->cx : context_here();
}

static PyObject *function_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    const Function *const f = (Function *)self;
    call c = { .cx = context_of(args), .f = f->f, .given = args };
    if (!c.cx || !context_enter(c.cx)) return NULL;
    c.cx->n_pins++;
    PyObject *const result = take_all(&c, args, keywords) ? call_now(&c, f) : NULL;
    c.cx->n_pins--;
    for (size_t i = 0; i < c.n_lists; i++) PyMem_Free(c.lists[i]);
    Py_XDECREF(c.made);
    return result;
}

static PyObject *function_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<function %s of deft>", deft_function_name(((Function *)self)->f));
}

static PyObject *function_signature(PyObject *self, void *unused)
{
    const deft_function *const f = ((Function *)self)->f;
    const size_t n = deft_function_arity(f);
    PyObject *const list = PyTuple_New((Py_ssize_t)n);
    (void)unused;
    for (size_t i = 0; list && i < n; i++) {
        const deft_parameter p = deft_function_parameter(f, i);
        PyTuple_SetItem(list, (Py_ssize_t)i, Py_BuildValue("(ssO)", p.name, p.type, p.is_optional ? Py_True : Py_False));
    }
    return list;
}

static PyObject *function_name(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(deft_function_name(((Function *)self)->f));
}

static void plain_dealloc(PyObject *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyGetSetDef function_properties[] = {
    { "parameters", function_signature, NULL, "(name, type, is optional) of each argument.", NULL },
    { "__name__", function_name, NULL, "The name.", NULL },
    { NULL, NULL, NULL, NULL, NULL }
};

static PyType_Slot function_slots[] = { { Py_tp_call, function_call },
                                        { Py_tp_repr, function_repr },
                                        { Py_tp_getset, function_properties },
                                        { Py_tp_dealloc, plain_dealloc },
                                        { 0, NULL } };

static PyType_Spec function_spec = { .name = "deft._deft.Function",
                                     .basicsize = sizeof(Function),
                                     .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                     .slots = function_slots };

/* ---- streams of random numbers ---- */

static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    unsigned long long seed = 0, next = 0;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "K|K", &seed, &next)) return NULL;
    Stream *const s = PyObject_New(Stream, type);
    if (s) s->rng = (deft_rng){ seed, next };
    return (PyObject *)s;
}

static PyObject *stream_state(PyObject *self, void *unused)
{
    (void)unused;
    const deft_rng *const r = &((Stream *)self)->rng;
    return Py_BuildValue("(KK)", (unsigned long long)r->seed, (unsigned long long)r->next);
}

static PyGetSetDef stream_properties[] = {
    { "state", stream_state, NULL, "The seed, and the number of the next draw.", NULL },
    { NULL, NULL, NULL, NULL, NULL }
};

static PyType_Slot stream_slots[] = { { Py_tp_new, stream_new },
                                      { Py_tp_getset, stream_properties },
                                      { Py_tp_dealloc, plain_dealloc },
                                      { 0, NULL } };

static PyType_Spec stream_spec = { .name = "deft._deft.Stream",
                                   .basicsize = sizeof(Stream),
                                   .flags = Py_TPFLAGS_DEFAULT,
                                   .slots = stream_slots };

bool function_setup(PyObject *module)
{
    static const char *const late[] = { "take",        "gather",    "take_along_axis", "embedding",
                                        "scatter_add", "index_add", "scatter", "scatter_reduce",
                                        "index_copy", "index_reduce", "repeat_t", "max_unpool",
                                        "ctc_loss" };
    PyObject *const all = PyDict_New();
    function_type = (PyTypeObject *)PyType_FromSpec(&function_spec);
    stream_type = (PyTypeObject *)PyType_FromSpec(&stream_spec);
    if (!all || !function_type || !stream_type) return false;
    for (size_t i = 0; deft_function_at(i); i++) {
        Function *const f = PyObject_New(Function, function_type);
        if (!f) return false;
        f->f = deft_function_at(i);
        f->fails_late = false;
        for (size_t k = 0; k < sizeof late / sizeof *late; k++)
            f->fails_late |= strcmp(late[k], deft_function_name(f->f)) == 0;
        const int added = PyDict_SetItemString(all, deft_function_name(f->f), (PyObject *)f);
        Py_DECREF((PyObject *)f);
        if (added < 0) return false;
    }
    return PyModule_AddObjectRef(module, "functions", all) == 0 &&
           PyModule_AddObjectRef(module, "Stream", (PyObject *)stream_type) == 0;
}
