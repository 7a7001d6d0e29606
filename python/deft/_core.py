# SPDX-License-Identifier: Apache-2.0
"""Dtypes, errors, arrays from other objects, and the methods of Array that need no speed."""
import array as _array
import itertools
import math
import operator
import os

from . import _deft

functions = _deft.functions
Array = _deft.Array


# ---- errors ----

class Error(Exception):
    """A mistake that deft found. The sentence has the numbers and the line of the program."""


def _error(name, *bases):
    return type(name, (Error, *bases), {"__module__": "deft"})


ArgumentError = _error("ArgumentError", ValueError)
ShapeError = _error("ShapeError", ValueError)
DtypeError = _error("DtypeError", TypeError)
RangeError = _error("RangeError", IndexError)
StateError = _error("StateError", RuntimeError)
OutOfMemoryError = _error("OutOfMemoryError", MemoryError)
LimitError = _error("LimitError", ValueError)
BackendError = _error("BackendError", RuntimeError)
FileError = _error("FileError", OSError)
NanError = _error("NanError", ArithmeticError)

# By deft_status.
_deft.set_errors([Error, ArgumentError, ShapeError, DtypeError, RangeError, StateError, OutOfMemoryError, LimitError,
                  BackendError, BackendError, StateError, FileError, FileError, FileError, Error, NanError],
                 os.path.join(os.path.dirname(os.path.abspath(__file__)), ""))


# ---- dtypes ----

class DType:
    """The type of the elements of an array."""

    __slots__ = ("name", "number", "itemsize", "kind", "code")

    def __init__(self, name, number, itemsize, kind, code):
        self.name, self.number, self.itemsize, self.kind, self.code = name, number, itemsize, kind, code

    def __repr__(self):
        return f"deft.{self.name}"

    def __reduce__(self):
        return "bool_" if self.name == "bool" else self.name


bool_ = DType("bool", 0, 1, "bool", "?")
uint8 = DType("uint8", 1, 1, "unsigned", "B")
int32 = DType("int32", 2, 4, "signed", "i")
int64 = DType("int64", 3, 8, "signed", "q")
float32 = DType("float32", 4, 4, "real", "f")
float64 = DType("float64", 5, 8, "real", "d")
float16 = DType("float16", 6, 2, "real", "e")
bfloat16 = DType("bfloat16", 7, 2, "real", None)
int8 = DType("int8", 8, 1, "signed", "b")
int16 = DType("int16", 9, 2, "signed", "h")
uint16 = DType("uint16", 10, 2, "unsigned", "H")
uint32 = DType("uint32", 11, 4, "unsigned", "I")
uint64 = DType("uint64", 12, 8, "unsigned", "Q")
complex64 = DType("complex64", 13, 8, "complex", None)
complex128 = DType("complex128", 14, 16, "complex", None)
float8_e4m3fn = DType("float8_e4m3fn", 15, 1, "stored", None)
float8_e5m2 = DType("float8_e5m2", 16, 1, "stored", None)
float8_e8m0fnu = DType("float8_e8m0fnu", 17, 1, "stored", None)
uint4 = DType("uint4", 18, 1, "stored", None)
int4 = DType("int4", 19, 1, "stored", None)

all_dtypes = [bool_, uint8, int32, int64, float32, float64, float16, bfloat16, int8, int16, uint16, uint32, uint64,
              complex64, complex128, float8_e4m3fn, float8_e5m2, float8_e8m0fnu, uint4, int4]
_by_name = {d.name: d for d in all_dtypes}


def dtype_of(value):
    """A dtype from a dtype, its name, bool, int, float or complex, or the dtype of NumPy with that name."""
    if isinstance(value, DType) or value is None:
        return value
    if value in (bool, int, float, complex):
        return {bool: bool_, int: int64, float: float32, complex: complex64}[value]
    name = value if isinstance(value, str) else getattr(value, "name", None) or str(value).rpartition(".")[2]
    if name not in _by_name:
        raise DtypeError(f"there is no dtype {value!r}")
    return _by_name[name]


# ---- arrays from other objects ----

_NUMBERS = (bool, int, float, complex)


def _flatten(value):
    """(shape, elements in row-major order) of nested sequences of numbers and arrays without axes."""
    if isinstance(value, (list, tuple)):
        parts = [_flatten(v) for v in value]
        shapes = {s for s, _ in parts}
        if len(shapes) > 1:
            raise ShapeError(f"rows of a list have different shapes: {sorted(shapes)[:2]}")
        return (len(value), *(shapes.pop() if shapes else ())), list(itertools.chain.from_iterable(e for _, e in parts))
    if isinstance(value, Array) or hasattr(value, "item") and not isinstance(value, _NUMBERS):
        if getattr(value, "size", 1) != 1 or getattr(value, "ndim", 0):
            return _flatten(value.tolist())
        value = value.item()
    if not isinstance(value, _NUMBERS):
        raise TypeError(f"cannot make elements of {type(value).__name__}")
    return (), [value]


def _from_sequence(value, dtype):
    shape, elements = _flatten(value)
    if dtype is None:
        kinds = set(map(type, elements))
        dtype = complex64 if complex in kinds else float32 if float in kinds or not kinds else int64 if int in kinds else bool_
    if dtype.kind == "bool":
        data = bytes(map(bool, elements))
    elif dtype.kind == "complex":
        numbers = list(map(complex, elements))
        data = _array.array("f" if dtype is complex64 else "d", [p for z in numbers for p in (z.real, z.imag)])
    elif dtype.code in ("e", None):
        return _from_sequence(value, float64).astype(dtype)    # rounded once
    else:
        data = _array.array(dtype.code, map(float if dtype.kind == "real" else int, elements))
    return _deft.from_buffer(data, dtype.number, shape)


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    """An array of obj: an Array, a number, nested sequences, or an object with a buffer or DLPack (NumPy, PyTorch, JAX).

    The memory of such an object is shared where its layout permits, and must not change while deft uses it. copy: True always
    copies, False raises where memory cannot be shared."""
    _check_device(device)
    dtype = dtype_of(dtype)
    if isinstance(obj, Array):
        if dtype is not None and dtype is not obj.dtype:
            return obj.astype(dtype)
        return functions["reshape"](obj, obj.shape) if copy else obj
    if isinstance(obj, (*_NUMBERS, list, tuple)) and not hasattr(obj, "__array_interface__"):
        if copy is False:
            raise ValueError("a Python object cannot become an array without a copy")
        return _from_sequence(obj, dtype)
    made = _from_object(obj, copy)
    if made is NotImplemented:
        raise TypeError(f"cannot make an array of {type(obj).__name__}")
    return made if dtype is None or made.dtype is dtype else made.astype(dtype)


def _from_object(obj, copy=None):
    if hasattr(obj, "__array_interface__") or isinstance(obj, (bytes, bytearray, memoryview, _array.array)):
        return _deft.from_buffer(obj, -1, None, 0 if copy else 2 if copy is False else 1)
    if hasattr(obj, "__dlpack__"):
        return _from_dlpack(obj, copy)
    return NotImplemented


# Of deft/dlpack.h.
_COPY, _NO_COPY = 1, 2


def _from_dlpack(obj, copy=None):
    if getattr(obj, "requires_grad", False):
        obj = obj.detach()
    try:
        capsule = obj.__dlpack__(max_version=(1, 1))
    except TypeError:
        capsule = obj.__dlpack__()
    return _deft.from_dlpack(capsule, _COPY if copy else _NO_COPY if copy is False else 0)


def _operand(obj):
    """An array of an operand. It is a copy: the program may write to its own array before deft computes."""
    return asarray(obj, copy=True)


def _convert_operand(obj):
    return _from_object(obj, True)


def _check_device(device):
    if device not in (None, "cpu"):
        raise ArgumentError(f"there is no device {device!r}: arrays are on 'cpu'")


# ---- methods ----

def _method(fn):
    setattr(Array, fn.__name__, fn)
    return fn


@_method
def astype(self, dtype, *, copy=True, device=None):
    """The array in another dtype."""
    _check_device(device)
    dtype = dtype_of(dtype)
    if dtype is self.dtype:
        return functions["reshape"](self, self.shape) if copy else self
    return functions["cast"](self, dtype)


@_method
def __array__(self, dtype=None, copy=None):
    import numpy
    source = self.astype(float32) if self.dtype is bfloat16 else self
    made = numpy.frombuffer(source if source.size else b"", dtype=source.dtype.name)
    made = made.reshape(self.shape)
    if dtype is not None and made.dtype != dtype:
        return made.astype(dtype)
    return made.copy() if copy else made


@_method
def numpy(self):
    """A NumPy array with a copy of the elements."""
    return self.__array__(copy=True)


@_method
def tolist(self):
    """The elements as nested lists, or a number where there are no axes."""
    if self.ndim == 0:
        return self.item()
    source = self.astype(float32) if self.dtype in (float16, bfloat16) else self
    if self.size == 0:
        return _empty_list(self.shape)
    if self.dtype.kind == "complex":
        return _complex_list(memoryview(functions["view_as_real"](self)).tolist(), self.ndim)
    return memoryview(source).tolist()


def _complex_list(parts, depth):
    return [_complex_list(p, depth - 1) for p in parts] if depth else complex(*parts)


def _empty_list(shape):
    return [_empty_list(shape[1:]) for _ in range(shape[0])] if len(shape) > 1 else []


@_method
def tobytes(self):
    """The elements in row-major order."""
    return bytes(memoryview(self))


@_method
def __repr__(self):
    text = _deft.format(self)
    return f"deft.Array({text})"


@_method
def __iter__(self):
    if self.ndim == 0:
        raise TypeError("an array without axes cannot be iterated over")
    return (self[i] for i in range(self.shape[0]))


@_method
def __int__(self):
    return int(self.item())


@_method
def __float__(self):
    return float(self.item())


@_method
def __complex__(self):
    return complex(self.item())


@_method
def __index__(self):
    if self.dtype.kind not in ("signed", "unsigned"):
        raise TypeError(f"an array of {self.dtype.name} is no index")
    return operator.index(self.item())


@_method
def __format__(self, spec):
    return format(self.item(), spec) if spec else repr(self)


@_method
def __contains__(self, value):
    return bool(functions["any"](self == value, None, False))


@_method
def __reduce__(self):
    source = self.astype(float32) if self.dtype is bfloat16 else self
    return _rebuild, (source.tobytes(), source.dtype.name, self.dtype.name, self.shape)


def _rebuild(data, stored, name, shape):
    made = _deft.from_buffer(data, _by_name[stored].number, shape)
    return made if stored == name else made.astype(_by_name[name])


@_method
def __copy__(self):
    return functions["reshape"](self, self.shape)


@_method
def __deepcopy__(self, memo):
    return functions["reshape"](self, self.shape)


@_method
def __array_namespace__(self, *, api_version=None):
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"deft has the array API of 2024.12, not {api_version}")
    import deft
    return deft


@_method
def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """A capsule of DLPack. Memory is shared with consumers that know read-only memory, which others get a copy of."""
    if dl_device not in (None, (1, 0)):
        raise BufferError(f"arrays are on the CPU, not on {dl_device}")
    is_versioned = max_version is not None and max_version[0] >= 1
    if copy is None:
        copy = None if is_versioned else True
    return _deft.to_dlpack(self, is_versioned, _COPY if copy else _NO_COPY if copy is False else 0)


@_method
def __dlpack_device__(self):
    return 1, 0


@_method
def to_device(self, device, /, *, stream=None):
    """The array itself: all arrays are on the CPU."""
    _check_device(device)
    return self


# NumPy then leaves operators with an Array to the Array.
Array.__array_ufunc__ = None
Array.device = property(lambda self: "cpu")
Array.real = property(lambda self: functions["real"](self))
Array.imag = property(lambda self: functions["imag"](self) if self.dtype.kind == "complex" else functions["zeros_like"](self))
Array.T = property(lambda self: functions["permute"](self, list(range(self.ndim))[::-1]))
Array.mT = property(lambda self: functions["transpose"](self, -1, -2))
Array.nbytes = property(lambda self: self.size * self.dtype.itemsize)
Array.itemsize = property(lambda self: self.dtype.itemsize)
