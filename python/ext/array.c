/* SPDX-License-Identifier: Apache-2.0
 *
 * The type Array: life, operators, and basic indexing. Methods that need no speed are in Python.
 */
#include "ext.h"

#include <stdlib.h>

PyTypeObject *array_type;

static PyObject *dtypes;        /* the dtype objects of Python, by deft_dtype: a tuple */
static PyObject *index_hook;    /* for indices that are arrays */
static PyObject *assign_hook;
static PyObject *convert_hook;  /* makes an Array of what is none, or returns NotImplemented */

/* ---- life ---- */

static Array *array_alloc(context *cx, deft_tensor *t)
{
    Array *const a = PyObject_New(Array, array_type);
    if (!a) return NULL;
    a->t = t;
    a->cx = cx;
    a->of = NULL;
    a->place = 0;
    a->is_input = false;
    cx->refs++;
    return a;
}

static bool body_add(body *b, Array *a)
{
    if (b->n == b->room) {
        const size_t room = b->room ? b->room * 2 : 64;
        Array **const more = realloc(b->arrays, room * sizeof *more);
        if (!more) return false;
        b->arrays = more;
        b->room = room;
    }
    a->of = b;
    a->place = b->n;
    b->arrays[b->n++] = a;
    return true;
}

static void body_remove(Array *a)
{
    body *const b = a->of;
    Array *const last = b->arrays[--b->n];
    b->arrays[a->place] = last;
    last->place = a->place;
    a->of = NULL;
}

void body_begin(context *cx, body *b, bool captures)
{
    *b = (body){ .outer = cx->body, .captures = captures || (cx->body && cx->body->captures) };
    cx->body = b;
    cx->n_functions++;
}

void body_end(context *cx, body *b)
{
    for (size_t i = 0; i < b->n; i++) {
        b->arrays[i]->t = NULL;
        b->arrays[i]->of = NULL;
    }
    free(b->arrays);
    cx->body = b->outer;
    cx->n_functions--;
}

PyObject *array_borrowed(context *cx, deft_tensor *t, bool is_input)
{
    Array *const a = array_alloc(cx, t);
    if (!a) return NULL;
    a->is_input = is_input;
    if (!body_add(cx->body, a)) {
        a->t = NULL;
        Py_DECREF((PyObject *)a);
        return PyErr_NoMemory();
    }
    return (PyObject *)a;
}

PyObject *array_new(context *cx, deft_tensor *t)
{
    if (!t) return raise_mistake(cx);
    cx->n_recorded++;
    if (cx->body) return array_borrowed(cx, t, false);
    if (!deft_keep(t)) return raise_mistake(cx);
    Array *const a = array_alloc(cx, t);
    if (!a) {
        deft_drop(&t);
        return NULL;
    }
    cx->live++;
    return (PyObject *)a;
}

static void array_dealloc(PyObject *self)
{
    Array *const a = (Array *)self;
    PyTypeObject *const type = Py_TYPE(self);
    if (a->of)
        body_remove(a);
    else if (a->t)
        context_drop(a->cx, a->t);
    context_release(a->cx);
    PyObject_Free(self);
    Py_DECREF(type);
}

bool array_usable(const Array *a)
{
    if (a->t) return true;
    PyErr_SetString(PyExc_RuntimeError,
                    "this array belonged to a function that deft recorded, and the function has ended");
    return false;
}

bool array_rebind(Array *a, deft_tensor *t)
{
    if (!t) {
        raise_mistake(a->cx);
        return false;
    }
    if (a->of) {
        a->t = t;
        return true;
    }
    if (!deft_keep(t)) {
        raise_mistake(a->cx);
        return false;
    }
    deft_drop(&a->t);
    a->t = t;
    return true;
}

/* ---- operands ---- */

/* A number as a tensor. In a captured function it is one that keeps its value. */
static deft_tensor *number(context *cx, PyObject *o)
{
    const bool constant = cx->body && cx->body->captures;
    if (PyBool_Check(o)) return deft_full_i(cx->cx, deft_shape_of(0, NULL), DEFT_BOOL, o == Py_True);
    if (PyFloat_Check(o)) {
        const double v = PyFloat_AsDouble(o);
        return constant ? deft_const_f(cx->cx, v) : deft_num(cx->cx, v);
    }
    int overflow = 0;
    const long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (!overflow) return constant ? deft_const_i(cx->cx, v) : deft_num_i(cx->cx, v);
    const unsigned long long u = PyLong_AsUnsignedLongLong(o);
    if (PyErr_Occurred()) return NULL;
    return deft_num_u(cx->cx, u);
}

static bool is_number(PyObject *o)
{
    return PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o); /* a bool is a long */
}

deft_dtype array_dtype_of(PyObject *o)
{
    return array_check(o) && ((Array *)o)->t ? deft_dtype_of(((Array *)o)->t) : DEFT_F32;
}

static deft_tensor *complex_number(context *cx, PyObject *o, deft_dtype beside)
{
    const double re = PyComplex_RealAsDouble(o), im = PyComplex_ImagAsDouble(o);
    const bool is_double = deft_promote(beside, DEFT_C64) == DEFT_C128;
    const deft_shape none = deft_shape_of(0, NULL);
    if (!cx->body || !cx->body->captures)
        return deft_full_c(cx->cx, none, is_double ? DEFT_C128 : DEFT_C64, re, im);
    const deft_dtype part = is_double ? DEFT_F64 : DEFT_F32;
    return deft_complex(deft_cast(deft_const_f(cx->cx, re), part),
                        deft_cast(deft_const_f(cx->cx, im), part));
}

deft_tensor *array_operand(context *cx, PyObject *o)
{
    return array_operand_beside(cx, o, DEFT_F32);
}

deft_tensor *array_operand_beside(context *cx, PyObject *o, deft_dtype beside)
{
    if (array_check(o)) return array_usable((Array *)o) ? ((Array *)o)->t : NULL;
    if (PyComplex_Check(o)) return complex_number(cx, o, beside);
    if (is_number(o)) return number(cx, o);
    PyErr_Format(PyExc_TypeError, "expected an array or a number, not %R", Py_TYPE(o));
    return NULL;
}

typedef deft_tensor *(*unary_fn)(deft_tensor *x);
typedef deft_tensor *(*binary_fn)(deft_tensor *a, deft_tensor *b);

typedef struct binary_op {
    binary_fn t;
    deft_tensor *(*f)(deft_tensor *a, double b);
    deft_tensor *(*i)(deft_tensor *a, int64_t b);
} binary_op;

/* a op number, where the number is on the right and no function is being captured. */
static deft_tensor *with_number(const binary_op *op, context *cx, deft_tensor *a, PyObject *o)
{
    if (PyFloat_Check(o)) return op->f(a, PyFloat_AsDouble(o));
    int overflow = 0;
    const long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (!overflow) return op->i(a, v);
    deft_tensor *const b = number(cx, o);
    return b ? op->t(a, b) : NULL;
}

static deft_tensor *binary_now(const binary_op *op, context *cx, PyObject *a, PyObject *b)
{
    deft_tensor *x, *y;
    if (array_check(a) && !array_check(b) && !PyBool_Check(b) && !PyComplex_Check(b) && !cx->body)
        return array_usable((Array *)a) ? with_number(op, cx, ((Array *)a)->t, b) : NULL;
    x = array_operand_beside(cx, a, array_dtype_of(b));
    y = x ? array_operand_beside(cx, b, array_dtype_of(a)) : NULL;
    return y ? op->t(x, y) : NULL;
}

/* Makes an operand an Array or a number. A new reference, or NULL: no exception means that Python
 * is to ask the other operand. */
static PyObject *convert(PyObject *o)
{
    if (array_check(o) || is_number(o)) return Py_NewRef(o);
    PyObject *const made = convert_hook ? PyObject_CallFunctionObjArgs(convert_hook, o, NULL) : NULL;
    if (made != Py_NotImplemented) return made;
    Py_DECREF(made);
    return NULL;
}

PyObject *array_made_of(PyObject *o)
{
    PyObject *const module = PyImport_ImportModule("deft");
    PyObject *const made = module ? PyObject_CallMethod(module, "_operand", "O", o) : NULL;
    Py_XDECREF(module);
    return made;
}

static PyObject *binary(const binary_op *op, PyObject *a, PyObject *b)
{
    PyObject *result = NULL, *const x = convert(a), *const y = x ? convert(b) : NULL;
    if (!x || !y) {
        Py_XDECREF(x);
        if (PyErr_Occurred()) return NULL;
        Py_RETURN_NOTIMPLEMENTED;
    }
    context *const cx = ((Array *)(array_check(x) ? x : y))->cx;
    deft_tensor *t = NULL;
    if (context_enter(cx)) {
        RECORD(cx, t, binary_now(op, cx, x, y));
        if (t || !PyErr_Occurred()) result = array_new(cx, t);
    }
    Py_DECREF(x);
    Py_DECREF(y);
    return result;
}

static PyObject *unary(unary_fn op, PyObject *a)
{
    Array *const x = (Array *)a;
    deft_tensor *t;
    if (!array_usable(x) || !context_enter(x->cx)) return NULL;
    RECORD(x->cx, t, op(x->t));
    return array_new(x->cx, t);
}

/* ---- assigning ---- */

/* Whether the innermost function that is being recorded made `a`, which then gets a new handle when
 * it is assigned. The handle would end before an Array of a function around that one. */
static bool is_local(const Array *a)
{
    return a->of && a->of == a->cx->body && !a->is_input;
}

/* Gives `a` the value of t, as the operators with "=" do. Arrays from outside are assigned, so that
 * captures and steps see it. An Array of a function that is being recorded gets the new handle. */
static bool assign(Array *a, deft_tensor *t)
{
    if (!t) {
        if (!PyErr_Occurred()) raise_mistake(a->cx);
        return false;
    }
    const deft_dtype want = deft_dtype_of(a->t), have = deft_dtype_of(t);
    if (want != have) {
        PyErr_Format(PyExc_TypeError, "an array of %s cannot become one of %s in place",
                     deft_dtype_name(want), deft_dtype_name(have));
        return false;
    }
    const deft_shape s = deft_shape_get(a->t), r = deft_shape_get(t);
    bool equal = s.rank == r.rank;
    for (uint32_t i = 0; i < s.rank && equal; i++) equal = s.dim[i] == r.dim[i];
    if (!equal) {
        PyErr_SetString(PyExc_ValueError, "an array cannot change its shape in place");
        return false;
    }
    if (is_local(a)) return array_rebind(a, t);
    deft_tensor *done;
    RECORD(a->cx, done, deft_assign(a->t, t));
    a->cx->n_recorded++;
    if (!done) raise_mistake(a->cx);
    return done != NULL;
}

static PyObject *in_place(const binary_op *op, PyObject *a, PyObject *b)
{
    PyObject *const y = convert(b);
    Array *const x = (Array *)a;
    deft_tensor *t = NULL;
    if (!y) {
        if (PyErr_Occurred()) return NULL;
        Py_RETURN_NOTIMPLEMENTED;
    }
    bool ok = array_usable(x) && context_enter(x->cx);
    if (ok) {
        RECORD(x->cx, t, binary_now(op, x->cx, a, y));
        ok = assign(x, t);
    }
    Py_DECREF(y);
    return ok ? Py_NewRef(a) : NULL;
}

/* ---- operators ---- */

#define TABLE(name)                                                                                \
    static const binary_op op_##name = { deft_##name, deft_##name##_f, deft_##name##_i };
#define OPERATOR(name)                                                                             \
    TABLE(name)                                                                                    \
    static PyObject *array_##name(PyObject *a, PyObject *b)                                        \
    {                                                                                              \
        return binary(&op_##name, a, b);                                                           \
    }                                                                                              \
    static PyObject *array_in_place_##name(PyObject *a, PyObject *b)                               \
    {                                                                                              \
        return in_place(&op_##name, a, b);                                                         \
    }
OPERATOR(add)
OPERATOR(sub)
OPERATOR(mul)
OPERATOR(div)
OPERATOR(floor_div)
OPERATOR(remainder)
OPERATOR(bitwise_and)
OPERATOR(bitwise_or)
OPERATOR(bitwise_xor)
OPERATOR(shift_left)
OPERATOR(shift_right)
TABLE(pow)
TABLE(eq)
TABLE(ne)
TABLE(lt)
TABLE(le)
TABLE(gt)
TABLE(ge)

static PyObject *array_pow(PyObject *a, PyObject *b, PyObject *modulus)
{
    if (modulus == Py_None) return binary(&op_pow, a, b);
    Py_RETURN_NOTIMPLEMENTED;
}

static PyObject *array_in_place_pow(PyObject *a, PyObject *b, PyObject *modulus)
{
    if (modulus == Py_None) return in_place(&op_pow, a, b);
    Py_RETURN_NOTIMPLEMENTED;
}

static PyObject *array_compare(PyObject *a, PyObject *b, int how)
{
    static const binary_op *const ops[] = { [Py_LT] = &op_lt, [Py_LE] = &op_le, [Py_EQ] = &op_eq,
                                            [Py_NE] = &op_ne, [Py_GT] = &op_gt, [Py_GE] = &op_ge };
    return binary(ops[how], a, b);
}

static PyObject *matmul_of(PyObject *a, PyObject *b, bool is_in_place)
{
    PyObject *const x = convert(a), *const y = x ? convert(b) : NULL;
    PyObject *result = NULL;
    deft_tensor *t = NULL;
    if (!x || !y || !array_check(x) || !array_check(y)) {
        Py_XDECREF(x);
        Py_XDECREF(y);
        if (PyErr_Occurred()) return NULL;
        Py_RETURN_NOTIMPLEMENTED;
    }
    Array *const l = (Array *)x, *const r = (Array *)y;
    if (array_usable(l) && array_usable(r) && context_enter(l->cx)) {
        RECORD(l->cx, t, deft_matmul(l->t, r->t));
        if (!is_in_place)
            result = array_new(l->cx, t);
        else if (assign(l, t))
            result = Py_NewRef(x);
    }
    Py_DECREF(x);
    Py_DECREF(y);
    return result;
}

static PyObject *array_matmul(PyObject *a, PyObject *b)
{
    return matmul_of(a, b, false);
}

static PyObject *array_in_place_matmul(PyObject *a, PyObject *b)
{
    return matmul_of(a, b, true);
}

static PyObject *array_negative(PyObject *a)
{
    return unary(deft_neg, a);
}

static PyObject *array_absolute(PyObject *a)
{
    return unary(deft_abs, a);
}

static PyObject *array_invert(PyObject *a)
{
    return unary(deft_bitwise_not, a);
}

/* Another object with the value of `a`: assigning to one does not change the other. */
static PyObject *array_positive(PyObject *self)
{
    Array *const a = (Array *)self;
    deft_tensor *t;
    if (!array_usable(a) || !context_enter(a->cx)) return NULL;
    RECORD(a->cx, t, deft_reshape(a->t, deft_shape_get(a->t)));
    return array_new(a->cx, t);
}

/* ---- what an array is ---- */

static PyObject *array_shape(PyObject *self, void *unused)
{
    (void)unused;
    if (!array_usable((Array *)self)) return NULL;
    const deft_shape s = deft_shape_get(((Array *)self)->t);
    PyObject *const tuple = PyTuple_New(s.rank);
    for (uint32_t i = 0; tuple && i < s.rank; i++)
        PyTuple_SetItem(tuple, i, PyLong_FromLongLong(s.dim[i]));
    return tuple;
}

static PyObject *array_dtype(PyObject *self, void *unused)
{
    (void)unused;
    if (!array_usable((Array *)self)) return NULL;
    return Py_XNewRef(PyTuple_GetItem(dtypes, (Py_ssize_t)deft_dtype_of(((Array *)self)->t)));
}

static PyObject *array_rank(PyObject *self, void *unused)
{
    (void)unused;
    return array_usable((Array *)self) ? PyLong_FromUnsignedLong(deft_rank(((Array *)self)->t)) : NULL;
}

static PyObject *array_numel(PyObject *self, void *unused)
{
    (void)unused;
    return array_usable((Array *)self) ? PyLong_FromLongLong(deft_numel(((Array *)self)->t)) : NULL;
}

static Py_ssize_t array_length(PyObject *self)
{
    if (!array_usable((Array *)self)) return -1;
    const deft_shape s = deft_shape_get(((Array *)self)->t);
    if (s.rank) return (Py_ssize_t)s.dim[0];
    PyErr_SetString(PyExc_TypeError, "an array without axes has no length");
    return -1;
}

static int array_is_true(PyObject *self)
{
    PyObject *const item = array_item(self, NULL);
    const int is = item ? PyObject_IsTrue(item) : -1;
    Py_XDECREF(item);
    return is;
}

/* ---- indexing ---- */

/* One index of a tuple, as a range. */
static bool range_of(PyObject *o, int64_t extent, deft_range *out)
{
    if (PySlice_Check(o)) {
        Py_ssize_t start, stop, step;
        if (PySlice_Unpack(o, &start, &stop, &step) < 0) return false;
        const Py_ssize_t n = PySlice_AdjustIndices((Py_ssize_t)extent, &start, &stop, step);
        if (n == 0)
            *out = deft_range_of(0, 0, 1);
        else
            *out = deft_range_of(start, step < 0 && stop < 0 ? DEFT_END : stop, step);
        return true;
    }
    const Py_ssize_t i = PyNumber_AsSsize_t(o, PyExc_IndexError);
    if (i == -1 && PyErr_Occurred()) return false;
    if (i < -extent || i >= extent) {
        PyErr_Format(PyExc_IndexError, "index %zd is outside an axis of %lld elements", i,
                     (long long)extent);
        return false;
    }
    *out = deft_range_of(i, 0, 0);
    return true;
}

typedef struct indices {
    deft_range ranges[DEFT_MAX_RANK];
    size_t n_ranges;
    int32_t inserted[DEFT_MAX_RANK]; /* axes of the result that newaxis makes */
    uint32_t n_inserted;
    uint32_t rank; /* of the result */
} indices;

static bool is_basic(PyObject *o)
{
    return PySlice_Check(o) || (PyLong_Check(o) && !PyBool_Check(o)) || o == Py_None ||
           o == Py_Ellipsis;
}

/* 1: basic, 0: it has arrays, -1: an exception. */
static int indices_of(Array *a, PyObject *key, indices *out)
{
    const bool many = PyTuple_Check(key);
    const Py_ssize_t n = many ? PyTuple_Size(key) : 1;
    const deft_shape s = deft_shape_get(a->t);
    Py_ssize_t n_used = 0, n_ellipses = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *const o = many ? PyTuple_GetItem(key, i) : key;
        /* An array of NumPy may have __index__, and is one all the same. */
        if (!is_basic(o) && (array_check(o) || PyBool_Check(o) || !PyIndex_Check(o) ||
                             PyObject_CheckBuffer(o)))
            return 0;
        n_used += o != Py_None && o != Py_Ellipsis;
        n_ellipses += o == Py_Ellipsis;
    }
    if (n_used > (Py_ssize_t)s.rank || n_ellipses > 1) {
        PyErr_Format(PyExc_IndexError, "%zd indices, of which %zd are ..., for an array of %u axes",
                     n, n_ellipses, (unsigned)s.rank);
        return -1;
    }
    uint32_t axis = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *const o = many ? PyTuple_GetItem(key, i) : key;
        if (o == Py_None) {
            if (out->rank >= DEFT_MAX_RANK) {
                PyErr_Format(PyExc_IndexError, "the result would have more than %d axes", DEFT_MAX_RANK);
                return -1;
            }
            out->inserted[out->n_inserted++] = (int32_t)out->rank++;
        } else if (o == Py_Ellipsis) {
            for (Py_ssize_t k = (Py_ssize_t)s.rank - n_used; k > 0; k--, axis++, out->rank++)
                out->ranges[out->n_ranges++] = DEFT_FULL;
        } else {
            if (!range_of(o, s.dim[axis++], &out->ranges[out->n_ranges])) return -1;
            out->rank += out->ranges[out->n_ranges++].step != 0;
        }
    }
    return 1;
}

static deft_tensor *slice_at(deft_tensor *t, const indices *at)
{
    if (at->n_ranges) t = deft_slice_n(t, at->n_ranges, at->ranges);
    if (!at->n_inserted) return t;
    deft_axes axes = { .n = at->n_inserted };
    for (uint32_t i = 0; i < at->n_inserted; i++) axes.at[i] = at->inserted[i];
    return deft_expand_dims(t, axes);
}

static PyObject *array_get(PyObject *self, PyObject *key)
{
    Array *const a = (Array *)self;
    indices at = { 0 };
    if (!array_usable(a) || !context_enter(a->cx)) return NULL;
    const int how = indices_of(a, key, &at);
    if (how < 0) return NULL;
    if (how == 0) return PyObject_CallFunctionObjArgs(index_hook, self, key, NULL);
    deft_tensor *t;
    if (!at.n_ranges && !at.n_inserted)
        RECORD(a->cx, t, deft_reshape(a->t, deft_shape_get(a->t)));
    else
        RECORD(a->cx, t, slice_at(a->t, &at));
    return array_new(a->cx, t);
}

static PyObject *array_sequence_get(PyObject *self, Py_ssize_t i)
{
    PyObject *const key = PyLong_FromSsize_t(i);
    PyObject *const result = key ? array_get(self, key) : NULL;
    Py_XDECREF(key);
    return result;
}

/* t without leading axes of extent 1 that it has beyond `rank` axes. */
static deft_tensor *without_ones(deft_tensor *t, uint32_t rank)
{
    deft_shape s = deft_shape_get(t);
    uint32_t n = 0;
    while (s.rank - n > rank && s.dim[n] == 1) n++;
    return n ? deft_reshape(t, deft_shape_of(s.rank - n, s.dim + n)) : t;
}

/* In a function that is being recorded, handles are not kept, which would end what makes them views.
 * Such an Array becomes a tensor of its own before a part of it is assigned: the value that it has,
 * bound to a handle that shows nothing else. */
static bool make_own(Array *a)
{
    if (!is_local(a)) return true;
    deft_tensor *own, *done = NULL;
    RECORD(a->cx, own, deft_zeros_like(a->t));
    if (own) RECORD(a->cx, done, deft_assign(own, a->t));
    return array_rebind(a, done);
}

/* The part of `a` that the indices name becomes t. */
static deft_tensor *store(Array *a, const indices *at, deft_tensor *t)
{
    deft_tensor *const part = at->n_ranges || at->n_inserted ? slice_at(a->t, at) : a->t;
    return part ? deft_assign(part, without_ones(t, deft_rank(part))) : NULL;
}

static int array_set(PyObject *self, PyObject *key, PyObject *value)
{
    Array *const a = (Array *)self;
    indices at = { 0 };
    if (!value) {
        PyErr_SetString(PyExc_TypeError, "elements of an array cannot be deleted");
        return -1;
    }
    if (!array_usable(a) || !context_enter(a->cx)) return -1;
    const int how = indices_of(a, key, &at);
    if (how < 0) return -1;
    PyObject *const x = how ? convert(value) : NULL;
    if (!x) { /* an index with arrays, or nested lists */
        if (PyErr_Occurred()) return -1;
        PyObject *const done = PyObject_CallFunctionObjArgs(assign_hook, self, key, value, NULL);
        Py_XDECREF(done);
        return done ? 0 : -1;
    }
    if (!context_enter(a->cx)) { /* Python ran since: another thread may compute here */
        Py_DECREF(x);
        return -1;
    }
    const deft_dtype dtype = deft_dtype_of(a->t);
    deft_tensor *t = array_operand_beside(a->cx, x, dtype), *stored = NULL;
    if (t && (array_check(x) || PyBool_Check(x)) && deft_dtype_of(t) != dtype) t = deft_cast(t, dtype);
    if (t && make_own(a)) RECORD(a->cx, stored, store(a, &at, t));
    a->cx->n_recorded += 3;
    Py_DECREF(x);
    if (!stored && !PyErr_Occurred()) raise_mistake(a->cx);
    return stored ? 0 : -1;
}

/* ---- the type ---- */

static PyObject *assign_value(PyObject *self, PyObject *value)
{
    Array *const a = (Array *)self;
    if (!array_usable(a) || !context_enter(a->cx)) return NULL;
    deft_tensor *const t = array_operand(a->cx, value);
    if (!t) return NULL;
    return assign(a, t) ? Py_NewRef(self) : NULL;
}

static PyMethodDef array_methods[] = {
    { "item", array_item, METH_NOARGS, "The only element, as a number of Python." },
    { "assign", assign_value, METH_O, "Gives this array the value of another of its shape and dtype." },
    { NULL, NULL, 0, NULL }
};

static PyGetSetDef array_properties[] = {
    { "shape", array_shape, NULL, "The extents, as a tuple.", NULL },
    { "dtype", array_dtype, NULL, "The dtype of the elements.", NULL },
    { "ndim", array_rank, NULL, "The number of axes.", NULL },
    { "size", array_numel, NULL, "The number of elements.", NULL },
    { NULL, NULL, NULL, NULL, NULL }
};

static PyType_Slot array_slots[] = {
    { Py_tp_dealloc, array_dealloc },
    { Py_tp_methods, array_methods },
    { Py_tp_getset, array_properties },
    { Py_tp_richcompare, array_compare },
    { Py_tp_hash, PyObject_HashNotImplemented },
    { Py_tp_doc, (char *)"An array of deft. Operations are recorded, and computed when values are read." },
    { Py_nb_add, array_add },
    { Py_nb_subtract, array_sub },
    { Py_nb_multiply, array_mul },
    { Py_nb_true_divide, array_div },
    { Py_nb_floor_divide, array_floor_div },
    { Py_nb_remainder, array_remainder },
    { Py_nb_power, array_pow },
    { Py_nb_and, array_bitwise_and },
    { Py_nb_or, array_bitwise_or },
    { Py_nb_xor, array_bitwise_xor },
    { Py_nb_lshift, array_shift_left },
    { Py_nb_rshift, array_shift_right },
    { Py_nb_matrix_multiply, array_matmul },
    { Py_nb_inplace_add, array_in_place_add },
    { Py_nb_inplace_subtract, array_in_place_sub },
    { Py_nb_inplace_multiply, array_in_place_mul },
    { Py_nb_inplace_true_divide, array_in_place_div },
    { Py_nb_inplace_floor_divide, array_in_place_floor_div },
    { Py_nb_inplace_remainder, array_in_place_remainder },
    { Py_nb_inplace_power, array_in_place_pow },
    { Py_nb_inplace_and, array_in_place_bitwise_and },
    { Py_nb_inplace_or, array_in_place_bitwise_or },
    { Py_nb_inplace_xor, array_in_place_bitwise_xor },
    { Py_nb_inplace_lshift, array_in_place_shift_left },
    { Py_nb_inplace_rshift, array_in_place_shift_right },
    { Py_nb_inplace_matrix_multiply, array_in_place_matmul },
    { Py_nb_negative, array_negative },
    { Py_nb_positive, array_positive },
    { Py_nb_absolute, array_absolute },
    { Py_nb_invert, array_invert },
    { Py_nb_bool, array_is_true },
    { Py_mp_length, array_length },
    { Py_mp_subscript, array_get },
    { Py_mp_ass_subscript, array_set },
    { Py_sq_item, array_sequence_get },
    { Py_sq_length, array_length },
    { Py_bf_getbuffer, array_get_buffer },
    { Py_bf_releasebuffer, array_release_buffer },
    { 0, NULL }
};

static PyType_Spec array_spec = { .name = "deft.Array",
                                  .basicsize = sizeof(Array),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  .slots = array_slots };

static PyObject *set_hooks(PyObject *self, PyObject *args)
{
    PyObject *list, *get, *set, *make;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO", &list, &get, &set, &make)) return NULL;
    Py_XDECREF(dtypes);
    dtypes = PyList_AsTuple(list);
    Py_XDECREF(index_hook);
    index_hook = Py_NewRef(get);
    Py_XDECREF(assign_hook);
    assign_hook = Py_NewRef(set);
    Py_XDECREF(convert_hook);
    convert_hook = Py_NewRef(make);
    if (!dtypes) return NULL;
    Py_RETURN_NONE;
}

PyMethodDef array_functions[] = {
    { "set_hooks", set_hooks, METH_VARARGS, "The dtypes by number, and functions for Array." },
    { NULL, NULL, 0, NULL }
};

bool array_setup(PyObject *module)
{
    array_type = (PyTypeObject *)PyType_FromSpec(&array_spec);
    return array_type && PyModule_AddObjectRef(module, "Array", (PyObject *)array_type) == 0 &&
           PyModule_AddFunctions(module, array_functions) == 0;
}
