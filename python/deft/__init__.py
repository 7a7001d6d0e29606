# SPDX-License-Identifier: Apache-2.0
"""deft: deferred arrays. Operations are recorded, and fused and compiled when values are read.

Names and signatures are those of the Python array API, version 2024.12. docs/python.md of the project is the manual.
"""
from ._core import (Array, ArgumentError, BackendError, DType, DtypeError, Error, FileError, LimitError, NanError,
                    OutOfMemoryError, RangeError, ShapeError, StateError, asarray, bfloat16, bool_, complex64, complex128, float16,
                    float32, float64, float8_e4m3fn, float8_e5m2, float8_e8m0fnu, int4, int8, int16, int32, int64, uint4,
                    uint8, uint16, uint32, uint64)
from . import _deft, _indexing, random
from ._core import _operand
from ._functions import *  # noqa: F401,F403
from ._functions import __array_namespace_info__
from ._transforms import compile, grad, scan, stop_gradient, value_and_grad, vmap

bool = bool_
__version__ = _deft.version
__array_api_version__ = "2024.12"


def __getattr__(name):
    """Every other function of the headers, by its name in C without "deft_"."""
    if name not in _deft.functions:
        raise AttributeError(f"module 'deft' has no attribute {name!r}")
    return globals().setdefault(name, _deft.functions[name])


def explain():
    """Why something took time since the last call, in lines."""
    return _deft.explain()


def compiler():
    """The compiler, or "interpreter: " and why there is none."""
    return _deft.compiler()


def lines(on=True):
    """Whether records have the line of Python that made them, for explain, reports and profilers. It costs 0.5 us for each."""
    _deft.set_lines(on)


def stats():
    """Counters of this thread, and `live`: the arrays that exist."""
    return {**_deft.counters(), "live": _deft.live()}
