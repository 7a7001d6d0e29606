# SPDX-License-Identifier: Apache-2.0
"""Functions of the array API (2024.12) by its names and signatures, and those that deft has beyond it."""
import builtins
import math

from . import _core, _deft
from ._core import (Array, DtypeError, ShapeError, all_dtypes, asarray, bool_, complex64, complex128, dtype_of, float32, float64,
                    functions, int64, _check_device)

F = functions
e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None
_FLAT = _deft.FLAT

# ---- elementwise ----

_SAME = """abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_or bitwise_xor ceil conj copysign cos cosh exp expm1
floor hypot imag isfinite isinf isnan log log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum minimum
nextafter pow real reciprocal remainder round sign signbit sin sinh sqrt square tan tanh trunc""".split()
globals().update({name: F[name] for name in _SAME})

_RENAMED = {"bitwise_invert": "bitwise_not", "bitwise_left_shift": "shift_left", "bitwise_right_shift": "shift_right",
            "divide": "div", "equal": "eq", "floor_divide": "floor_div", "greater": "gt", "greater_equal": "ge", "less": "lt",
            "less_equal": "le", "multiply": "mul", "negative": "neg", "not_equal": "ne", "subtract": "sub"}
globals().update({name: F[deft] for name, deft in _RENAMED.items()})


def positive(x, /):
    return +x


def clip(x, /, min=None, max=None):
    if min is None and max is None:
        return F["reshape"](x, x.shape)
    return F["clamp_t"](x, min, max).astype(x.dtype, copy=False)


def where(condition, x1, x2, /):
    return F["where"](condition, x1, x2)


# ---- creation ----

def _shape(shape):
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _number_dtype(*values):
    if builtins.any(isinstance(v, complex) for v in values):
        return complex64
    return float32 if builtins.any(isinstance(v, float) for v in values) else \
        bool_ if builtins.all(isinstance(v, bool) for v in values) else int64


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    _check_device(device)
    if stop is None:
        start, stop = 0, start
    return F["arange"](start, stop, step, dtype_of(dtype) or _number_dtype(start, stop, step))


def empty(shape, *, dtype=None, device=None):
    return zeros(shape, dtype=dtype, device=device)


def zeros(shape, *, dtype=None, device=None):
    _check_device(device)
    return F["zeros"](_shape(shape), dtype_of(dtype) or float32)


def ones(shape, *, dtype=None, device=None):
    _check_device(device)
    return F["ones"](_shape(shape), dtype_of(dtype) or float32)


def full(shape, fill_value, *, dtype=None, device=None):
    _check_device(device)
    if isinstance(fill_value, Array):    # such as a parameter of a compiled function
        return broadcast_to(fill_value if dtype is None else fill_value.astype(dtype), _shape(shape))
    dtype = dtype_of(dtype) or _number_dtype(fill_value)
    if isinstance(fill_value, complex):
        return F["full_c"](_shape(shape), dtype, fill_value.real, fill_value.imag)
    return F["full"](_shape(shape), dtype, fill_value)


def _like(make):
    def like(x, /, *, dtype=None, device=None):
        return make(x.shape, dtype=dtype or x.dtype, device=device)
    like.__name__ = make.__name__ + "_like"
    return like


empty_like, zeros_like, ones_like = _like(empty), _like(zeros), _like(ones)


def full_like(x, /, fill_value, *, dtype=None, device=None):
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    _check_device(device)
    return F["eye_k"](n_rows, n_rows if n_cols is None else n_cols, _diagonal(k), dtype_of(dtype) or float32)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    _check_device(device)
    made = F["linspace" if endpoint else "linspace_open"]
    dtype = dtype_of(dtype) or (complex64 if isinstance(start + stop, complex) else float32)
    if dtype.kind != "complex":
        return made(start, stop, num, dtype)
    part = float64 if dtype is complex128 else float32
    start, stop = complex(start), complex(stop)
    return F["complex"](made(start.real, stop.real, num, part), made(start.imag, stop.imag, num, part))


def _diagonal(k):
    """The number of a diagonal, in 64 bits. One further away than that is outside of every matrix."""
    return builtins.max(-2 ** 62, builtins.min(int(k), 2 ** 62))


def meshgrid(*arrays, indexing="xy"):
    return list(F["meshgrid"](arrays, indexing == "xy"))


def tril(x, /, *, k=0):
    return F["tril"](x, _diagonal(k))


def triu(x, /, *, k=0):
    return F["triu"](x, _diagonal(k))


def from_dlpack(x, /, *, device=None, copy=None):
    """An array of the memory of another library, without a copy where that is possible. x must not change while deft uses it."""
    _check_device(device)
    return x if isinstance(x, Array) and not copy else _core._from_dlpack(x, copy)


# ---- dtypes ----

def astype(x, dtype, /, *, copy=True, device=None):
    return x.astype(dtype, copy=copy, device=device)


def _promote(a, b):
    one = F["add"](F["zeros"]((), a), F["zeros"]((), b)) if not (a is bool_ and b is bool_) else None
    return one.dtype if one is not None else bool_


def result_type(*arrays_and_dtypes):
    found, numbers = None, []
    for x in arrays_and_dtypes:
        if isinstance(x, (bool, int, float, complex)):
            numbers.append(x)
            continue
        d = x.dtype if isinstance(x, Array) else dtype_of(x)
        found = d if found is None else d if d is found else _promote(found, d)
    if found is None:
        raise ValueError("result_type needs an array or a dtype")
    for x in numbers:
        if isinstance(x, complex):
            found = complex128 if found in (float64, complex128) else complex64
        elif isinstance(x, float) and found.kind not in ("real", "complex"):
            found = float32
        elif type(x) is int and found is bool_:
            found = int64
    return found


def can_cast(from_, to, /):
    a = from_.dtype if isinstance(from_, Array) else dtype_of(from_)
    try:
        return result_type(a, to) is dtype_of(to)
    except DtypeError:
        return False


_KINDS = {"bool": {"bool"}, "signed integer": {"signed"}, "unsigned integer": {"unsigned"}, "integral": {"signed", "unsigned"},
          "real floating": {"real"}, "complex floating": {"complex"}, "numeric": {"signed", "unsigned", "real", "complex"}}


def isdtype(dtype, kind):
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"there is no kind {kind!r}: {', '.join(_KINDS)}")
        return dtype_of(dtype).kind in _KINDS[kind]
    return dtype_of(dtype) is dtype_of(kind)


class finfo:
    """The limits of a float dtype, or of the parts of a complex one."""

    def __init__(self, type, /):
        d = type.dtype if isinstance(type, Array) else dtype_of(type)
        d = {complex64: float32, complex128: float64}.get(d, d)
        digits, low, self.max = {"float64": (52, -1022, 1.7976931348623157e308), "float32": (23, -126, 3.4028234663852886e38),
                                 "float16": (10, -14, 65504.0), "bfloat16": (7, -126, 3.3895313892515355e38)}[d.name]
        self.bits, self.dtype = d.itemsize * 8, d
        self.eps, self.min, self.smallest_normal = 2.0 ** -digits, -self.max, 2.0 ** low


class iinfo:
    """The limits of an integer dtype."""

    def __init__(self, type, /):
        d = type.dtype if isinstance(type, Array) else dtype_of(type)
        self.bits, self.dtype = d.itemsize * 8, d
        is_signed = d.kind == "signed"
        self.min = -2 ** (self.bits - 1) if is_signed else 0
        self.max = 2 ** (self.bits - is_signed) - 1


# ---- shapes ----

def _axes(axis):
    return None if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


def broadcast_arrays(*arrays):
    return list(F["broadcast_tensors"](arrays))


def broadcast_to(x, /, shape):
    return F["expand"](x, _shape(shape))


def concat(arrays, /, *, axis=0):
    return F["concat"](arrays, _FLAT if axis is None else axis)


def stack(arrays, /, *, axis=0):
    return F["stack"](arrays, axis)


def unstack(x, /, *, axis=0):
    return F["unstack"](x, axis, x.shape[axis])


def expand_dims(x, /, *, axis=0):
    return F["expand_dims"](x, _axes(axis))


def squeeze(x, /, axis):
    return F["squeeze"](x, _axes(axis))


def flip(x, /, *, axis=None):
    return F["flip"](x, list(range(x.ndim)) if axis is None else _axes(axis))


def moveaxis(x, source, destination, /):
    return F["moveaxis"](x, _axes(source), _axes(destination))


def permute_dims(x, /, axes):
    return F["permute"](x, axes)


def matrix_transpose(x, /):
    return F["transpose"](x, -1, -2)


def reshape(x, /, shape, *, copy=None):
    return F["reshape"](x, _shape(shape))


def roll(x, /, shift, *, axis=None):
    turn = builtins.max(x.size, 1)    # after which every axis is where it was
    if axis is None:
        return F["roll"](x, shift % turn, _FLAT)
    axes = _axes(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    for s, a in zip(shifts, axes):
        x = F["roll"](x, s % turn, a)
    return x


def repeat(x, repeats, /, *, axis=None):
    if isinstance(repeats, int):
        return F["repeat"](x, repeats, _FLAT if axis is None else axis)
    if axis is None:
        x, axis = F["reshape"](x, (-1,)), 0
    repeats, n = asarray(repeats), x.shape[axis]
    if repeats.size == 1:
        return F["repeat"](x, int(repeats), axis)
    return F["repeat_t"](x, repeats, axis, int(sum(repeats)))


def tile(x, repetitions, /):
    return F["tile"](x, repetitions)


def pad(x, pad_width, mode="constant", constant_values=0):
    modes = {"constant": 0, "edge": 1, "reflect": 2, "wrap": 3}
    width = [(pad_width, pad_width)] * x.ndim if isinstance(pad_width, int) else list(pad_width)
    return F["pad"](x, [w[0] for w in width], [w[1] for w in width], modes[mode], constant_values)


def diagonal(x, /, *, offset=0):
    return F["diagonal"](x, offset, -2, -1)


# ---- reductions ----

def _reduction(name, has_dtype=False):
    fn = F[name]

    def reduce(x, /, *, axis=None, dtype=None, keepdims=False):
        if dtype is not None:
            return fn(x.astype(dtype, copy=False), _axes(axis), keepdims).astype(dtype, copy=False)
        return fn(x, _axes(axis), keepdims)

    def plain(x, /, *, axis=None, keepdims=False):
        return fn(x, _axes(axis), keepdims)
    made = reduce if has_dtype else plain
    made.__name__ = name
    return made


all, any, max, min, mean = map(_reduction, ["all", "any", "max", "min", "mean"])
argmax, argmin, count_nonzero = map(_reduction, ["argmax", "argmin", "count_nonzero"])
nansum, nanprod, nanmin, nanmax, nanmean = map(_reduction, ["nansum", "nanprod", "nanmin", "nanmax", "nanmean"])
prod = _reduction("prod", True)
_sum = _reduction("sum", True)


def sum(x, /, *, axis=None, dtype=None, keepdims=False):
    return _sum(x, axis=axis, dtype=dtype, keepdims=keepdims)


def var(x, /, *, axis=None, correction=0, keepdims=False):
    if correction == int(correction):
        return F["var"](x, _axes(axis), keepdims, int(correction))
    n = math.prod(x.shape if axis is None else [x.shape[a] for a in _axes(axis)])
    return F["var"](x, _axes(axis), keepdims, 0) * n / builtins.max(n - correction, 0)


def std(x, /, *, axis=None, correction=0, keepdims=False):
    if correction == int(correction):
        return F["std"](x, _axes(axis), keepdims, int(correction))
    return sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    return F["vector_norm"](x, float(ord), _axes(axis), keepdims)


def median(x, /, *, axis=None, keepdims=False):
    return F["median"](F["flatten"](x) if axis is None else x, 0 if axis is None else axis, keepdims)


def quantile(x, q, /, *, axis=None, keepdims=False):
    return F["quantile"](F["flatten"](x) if axis is None else x, q, 0 if axis is None else axis, keepdims)


def _cumulative(name):
    fn = F[name]

    def cumulative(x, /, *, axis=None, dtype=None, include_initial=False):
        if axis is None:
            if x.ndim > 1:
                raise ShapeError(f"{name} needs an axis for an array of {x.ndim} axes")
            axis = 0
        x = x if dtype is None else x.astype(dtype, copy=False)
        made = fn(x, axis, include_initial)
        return made if dtype is None else made.astype(dtype, copy=False)
    cumulative.__name__ = name
    return cumulative


cumulative_sum, cumulative_prod = _cumulative("cumulative_sum"), _cumulative("cumulative_prod")


# ---- searching, sorting, sets ----

def argsort(x, /, *, axis=-1, descending=False, stable=True):
    return F["argsort"](x, axis, descending)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    return F["sort"](x, axis, descending)


def nonzero(x, /):
    if x.ndim == 0:
        raise ShapeError("nonzero needs an axis")
    found, count = F["nonzero"](x, x.size)
    n = int(count)
    return tuple(found[:n, i] for i in range(x.ndim))


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    return F["searchsorted"](x1 if sorter is None else F["take"](x1, sorter, 0), x2, side == "right")


def take(x, indices, /, *, axis=None):
    return F["take"](x, indices, 0 if axis is None else axis)


def take_along_axis(x, indices, /, *, axis=-1):
    return F["take_along_axis"](x, indices, axis)


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    return F["diff"](x, n, axis, prepend, append)


def unique_values(x, /):
    found, count = F["unique"](x, x.size)
    return found[:int(count)]


def _unique(x):
    values, indices, inverse, counts, count = F["unique_all"](x, x.size)
    n = int(count)
    return values[:n], indices[:n], inverse, counts[:n]


def unique_all(x, /):
    return _result("UniqueAll", values=_unique(x)[0], indices=_unique(x)[1], inverse_indices=_unique(x)[2],
                   counts=_unique(x)[3])


def unique_counts(x, /):
    values, _, _, counts = _unique(x)
    return _result("UniqueCounts", values=values, counts=counts)


def unique_inverse(x, /):
    values, _, inverse, _ = _unique(x)
    return _result("UniqueInverse", values=values, inverse_indices=inverse)


def _result(name, **members):
    from collections import namedtuple
    return namedtuple(name, members)(**members)


# ---- products ----

def matmul(x1, x2, /):
    return F["matmul"](x1, x2)


def vecdot(x1, x2, /, *, axis=-1):
    left = F["conj"](x1) if x1.dtype.kind == "complex" else x1
    return sum(left * x2, axis=axis, dtype=result_type(x1, x2))


def tensordot(x1, x2, /, *, axes=2):
    left, right = (list(range(x1.ndim - axes, x1.ndim)), list(range(axes))) if isinstance(axes, int) else map(list, axes)
    left, right = [a % x1.ndim for a in left], [a % x2.ndim for a in right]
    rest1 = [a for a in range(x1.ndim) if a not in left]
    rest2 = [a for a in range(x2.ndim) if a not in right]
    n = math.prod(x1.shape[a] for a in left)
    shape = [x1.shape[a] for a in rest1] + [x2.shape[a] for a in rest2]
    a = F["reshape"](F["permute"](x1, rest1 + left), (math.prod(x1.shape[i] for i in rest1), n))
    b = F["reshape"](F["permute"](x2, right + rest2), (n, math.prod(x2.shape[i] for i in rest2)))
    return F["reshape"](F["matmul"](a, b), shape)


def einsum(equation, /, *operands):
    """The sum of products that the equation names, as in NumPy. The operands may also be one list."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    return F["einsum"](equation, list(operands))


# ---- methods ----

def _as_method(fn):
    def method(self, axis=None, **keywords):
        return fn(self, axis=axis, **keywords)
    method.__name__ = fn.__name__
    method.__doc__ = f"deft.{fn.__name__} of this array."
    return method


for _fn in (all, any, argmax, argmin, max, mean, min, prod, std, sum, var):
    setattr(Array, _fn.__name__, _as_method(_fn))


def _of_list(fn):
    """A method that takes its numbers one by one, or as one list."""
    def method(self, *numbers):
        return fn(self, *(numbers if len(numbers) == 1 and not isinstance(numbers[0], int) else (numbers,)))
    return method


Array.reshape = _of_list(reshape)
Array.transpose = _of_list(lambda self, axes: permute_dims(self, axes or tuple(range(self.ndim))[::-1]))
Array.flatten = lambda self: reshape(self, (-1,))


# ---- about deft ----

def eval(*arrays):
    """Computes the arrays, and everything else that is alive and pending, as one program."""
    if arrays:
        _deft.evaluate(list(arrays))
    else:
        _deft.turn()


class Info:
    """What __array_namespace_info__ returns."""

    def capabilities(self):
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self):
        return "cpu"

    def default_dtypes(self, *, device=None):
        return {"real floating": float32, "complex floating": complex64, "integral": int64, "indexing": int64}

    def devices(self):
        return ["cpu"]

    def dtypes(self, *, device=None, kind=None):
        names = {d.name: d for d in all_dtypes if d.name not in ("float16", "bfloat16") and d.kind != "stored"}
        return {n: d for n, d in names.items() if kind is None or isdtype(d, kind)}


def __array_namespace_info__():
    return Info()


__all__ = [name for name in list(globals()) if not name.startswith("_") and name not in ("F", "builtins", "functions", "math")]
