/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements in and out: the buffer protocol both ways, single elements, texts.
 */
#include "ext.h"

#include <stdlib.h>
#include <string.h>

/* The letters of the module struct for each dtype, and those of PEP 3118 for complex numbers; NULL:
 * there is none. */
static const char *const formats[DEFT_N_DTYPES] = {
    [DEFT_BOOL] = "?", [DEFT_U8] = "B",  [DEFT_I32] = "i", [DEFT_I64] = "q", [DEFT_F32] = "f",
    [DEFT_F64] = "d",  [DEFT_F16] = "e", [DEFT_I8] = "b",  [DEFT_I16] = "h", [DEFT_U16] = "H",
    [DEFT_U32] = "I",  [DEFT_U64] = "Q", [DEFT_C64] = "Zf", [DEFT_C128] = "Zd"
};

/* ---- out ---- */

/* What a Py_buffer refers to while it is lent. */
typedef struct lent {
    deft_mapped mapped;
    void *copy; /* of memory with gaps, which deft_map does not lend; else NULL */
    context *cx;
    Py_ssize_t shape[DEFT_MAX_RANK], strides[DEFT_MAX_RANK];
} lent;

/* Computes `a`. Everything else that is pending is computed with it, where that is allowed. */
static deft_status map_array(Array *a, deft_dtype dtype, lent *l)
{
    context_turn(a->cx);
    PyThreadState *const state = context_begin_work(a->cx);
    deft_status st = deft_map(a->t, &l->mapped);
    const size_t bytes = (size_t)deft_numel(a->t) * deft_dtype_size(dtype);
    if (st == DEFT_E_ARG && (l->copy = malloc(bytes + 1))) {
        l->mapped = (deft_mapped){ .data = l->copy, .bytes = bytes };
        st = deft_read(a->t, dtype, l->copy, bytes);
    }
    context_end_work(a->cx, state);
    return st;
}

int array_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    Array *const a = (Array *)self;
    view->obj = NULL;
    if (!array_usable(a) || !context_enter(a->cx)) return -1;
    const deft_dtype dtype = deft_dtype_of(a->t);
    if (!formats[dtype]) {
        PyErr_Format(PyExc_BufferError, "a buffer has no format for %s: cast to float32 first",
                     deft_dtype_name(dtype));
        return -1;
    }
    if (flags & PyBUF_WRITABLE) {
        PyErr_SetString(PyExc_BufferError, "the elements of an array are read only");
        return -1;
    }
    lent *const l = PyMem_Calloc(1, sizeof *l);
    if (!l) return PyErr_NoMemory(), -1;
    const deft_status st = map_array(a, dtype, l);
    if (st != DEFT_OK) {
        free(l->copy);
        PyMem_Free(l);
        raise_read(a->cx, st);
        return -1;
    }
    const deft_shape s = deft_shape_get(a->t);
    Py_ssize_t stride = (Py_ssize_t)deft_dtype_size(dtype);
    *view = (Py_buffer){ .buf = (void *)l->mapped.data,
                         .len = (Py_ssize_t)l->mapped.bytes,
                         .itemsize = stride,
                         .readonly = 1,
                         .ndim = (int)s.rank,
                         .internal = l };
    for (uint32_t i = s.rank; i-- > 0;) {
        l->shape[i] = (Py_ssize_t)s.dim[i];
        l->strides[i] = stride;
        stride *= l->shape[i];
    }
    if (flags & PyBUF_FORMAT) view->format = (char *)formats[dtype];
    if (flags & PyBUF_ND) view->shape = l->shape;
    if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES) view->strides = l->strides;
    l->cx = a->cx;
    view->obj = Py_NewRef(self);
    return 0;
}

void array_release_buffer(PyObject *self, Py_buffer *view)
{
    lent *const l = view->internal;
    (void)self;
    if (l->copy) {
        free(l->copy);
    } else {
        PyThreadState *const state = context_begin_work(l->cx); /* another thread may compute */
        deft_unmap(&l->mapped);
        context_end_work(l->cx, state);
    }
    PyMem_Free(l);
}

PyObject *array_item(PyObject *self, PyObject *unused)
{
    Array *const a = (Array *)self;
    double f = 0, z[2] = { 0 };
    int64_t i = 0;
    uint64_t u = 0;
    (void)unused;
    if (!array_usable(a) || !context_enter(a->cx)) return NULL;
    const deft_dtype dtype = deft_dtype_of(a->t);
    const bool is_float = deft_isdtype(dtype, DEFT_KIND_REAL), is_large = dtype == DEFT_U64;
    const bool is_complex = deft_isdtype(dtype, DEFT_KIND_COMPLEX);
    deft_tensor *t = a->t;
    /* A parameter of a compiled function is a number without a dtype, which is read whole. */
    if (a->of && is_float) RECORD(a->cx, t, deft_cast(a->t, DEFT_F64));
    if (!t) return raise_mistake(a->cx);
    context_turn(a->cx);
    PyThreadState *const state = context_begin_work(a->cx);
    const deft_status st = is_float   ? deft_item_f64(t, &f)
                           : is_complex ? deft_item_c128(t, z)
                           : is_large ? deft_item_u64(t, &u)
                                      : deft_item_i64(t, &i);
    context_end_work(a->cx, state);
    if (st != DEFT_OK) return raise_read(a->cx, st);
    if (dtype == DEFT_BOOL) return PyBool_FromLong(i != 0);
    if (is_complex) return PyComplex_FromDoubles(z[0], z[1]);
    return is_float ? PyFloat_FromDouble(f) : is_large ? PyLong_FromUnsignedLongLong(u) : PyLong_FromLongLong(i);
}

static PyObject *format(PyObject *module, PyObject *o)
{
    char small[4096];
    size_t n = 0;
    (void)module;
    if (!array_check(o)) return PyErr_Format(PyExc_TypeError, "expected an array");
    Array *const a = (Array *)o;
    if (!array_usable(a) || !context_enter(a->cx)) return NULL;
    context_turn(a->cx);
    PyThreadState *const state = context_begin_work(a->cx);
    const deft_status st = deft_format(a->t, small, sizeof small, &n);
    context_end_work(a->cx, state);
    if (st != DEFT_OK) return raise_read(a->cx, st);
    return PyUnicode_FromString(small);
}

/* Computes the arrays together, and all else that is pending and alive. */
static PyObject *evaluate(PyObject *module, PyObject *list)
{
    (void)module;
    const Py_ssize_t n = PyList_Size(list);
    if (n < 0) return NULL;
    deft_tensor **const t = PyMem_Calloc((size_t)n + 1, sizeof *t);
    context *cx = NULL;
    if (!t) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *const o = PyList_GetItem(list, i);
        if (!array_check(o) || !array_usable((Array *)o)) {
            PyMem_Free(t);
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "expected arrays");
            return NULL;
        }
        t[i] = ((Array *)o)->t;
        cx = ((Array *)o)->cx;
    }
    deft_status st = DEFT_OK;
    if (cx && context_enter(cx)) {
        context_turn(cx);
        PyThreadState *const state = context_begin_work(cx);
        st = deft_eval(t, (size_t)n);
        context_end_work(cx, state);
    }
    PyMem_Free(t);
    if (PyErr_Occurred()) return NULL;
    if (st != DEFT_OK) return raise_read(cx, st);
    Py_RETURN_NONE;
}

/* ---- in ---- */

/* The dtype of a format of the buffer protocol; DEFT_N_DTYPES: none. */
static deft_dtype dtype_of_format(const char *format, Py_ssize_t size)
{
    if (!format) return DEFT_U8;
    if (*format == '@' || *format == '=' || *format == '<') format++;
    if (*format == 'Z') return !strcmp(format, "Zf") ? DEFT_C64 : !strcmp(format, "Zd") ? DEFT_C128 : DEFT_N_DTYPES;
    if (!*format || format[1]) return DEFT_N_DTYPES;
    const bool is_signed = strchr("bhilqn", *format) != NULL, is_unsigned = strchr("BHILQN", *format) != NULL;
    if (*format == '?') return DEFT_BOOL;
    if (is_signed) return size == 1 ? DEFT_I8 : size == 2 ? DEFT_I16 : size == 4 ? DEFT_I32 : DEFT_I64;
    if (is_unsigned) return size == 1 ? DEFT_U8 : size == 2 ? DEFT_U16 : size == 4 ? DEFT_U32 : DEFT_U64;
    return *format == 'f' ? DEFT_F32 : *format == 'd' ? DEFT_F64 : *format == 'e' ? DEFT_F16 : DEFT_N_DTYPES;
}

/* from_buffer(object, dtype or -1, shape or None, how): dtype and shape describe bytes whose buffer
 * says nothing of them. how: 0 copies, 1 shares where the layout permits it, 2 shares or fails. */
static PyObject *from_buffer(PyObject *module, PyObject *args)
{
    PyObject *o, *dims = NULL, *result = NULL;
    int dtype = -1, how = 0;
    Py_buffer view;
    deft_shape s = { 0 };
    (void)module;
    if (!PyArg_ParseTuple(args, "OiO|i", &o, &dtype, &dims, &how)) return NULL;
    context *const cx = context_here();
    if (!cx || !context_enter(cx) || PyObject_GetBuffer(o, &view, PyBUF_FULL_RO) < 0) return NULL;
    if (dtype < 0) dtype = (int)dtype_of_format(view.format, view.itemsize);
    const Py_ssize_t n_dims = dims == Py_None ? view.ndim : PyTuple_Size(dims);
    void *copy = NULL;
    if (n_dims < 0) goto done;
    if (n_dims > DEFT_MAX_RANK || dtype >= DEFT_N_DTYPES) {
        if (n_dims > DEFT_MAX_RANK)
            PyErr_Format(PyExc_ValueError, "an array has at most %d axes, not %zd", DEFT_MAX_RANK, n_dims);
        else
            PyErr_Format(PyExc_TypeError, "there is no dtype for the buffer format %s", view.format);
        goto done;
    }
    s.rank = (uint32_t)n_dims;
    for (Py_ssize_t i = 0; i < n_dims; i++)
        s.dim[i] = dims == Py_None ? view.shape[i] : PyLong_AsLongLong(PyTuple_GetItem(dims, i));
    if (PyErr_Occurred()) goto done;
    deft_tensor *t = NULL;
    if (how && dims == Py_None) t = exchange_wrap(cx, s, (deft_dtype)dtype, o);
    if (t || PyErr_Occurred() || how == 2) {
        if (t)
            result = array_new(cx, t);
        else if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "this memory cannot be shared");
        deft_clear(cx->cx);
        goto done;
    }
    deft_clear(cx->cx);
    const void *data = view.buf;
    if (!PyBuffer_IsContiguous(&view, 'C')) {
        data = copy = PyMem_Malloc((size_t)view.len + 1);
        if (!copy) {
            PyErr_NoMemory();
            goto done;
        }
        if (PyBuffer_ToContiguous(copy, &view, view.len, 'C') < 0) goto done;
    }
    static const char nothing;
    RECORD(cx, t, deft_from(cx->cx, s, (deft_dtype)dtype, data ? data : &nothing, (size_t)view.len));
    result = array_new(cx, t);
done:
    PyMem_Free(copy);
    PyBuffer_Release(&view);
    return result;
}

PyMethodDef data_functions[] = {
    { "format", format, METH_O, "The elements as a text." },
    { "evaluate", evaluate, METH_O, "Computes a list of arrays." },
    { "from_buffer", from_buffer, METH_VARARGS, "An array of the elements of a buffer." },
    { NULL, NULL, 0, NULL }
};
