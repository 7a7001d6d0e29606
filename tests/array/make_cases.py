#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_cases.py > numpy.cases: calls of the functions of the array API, with what NumPy gives.

It needs NumPy 2.1 or later, which the tests do not: they read the file. A line is

    NAME [NUMBER...] | OPERAND... | RESULT...

A number is an argument of the call that is no tensor. A tensor is DTYPE:EXTENTS:ELEMENTS with extents and elements
separated by commas; an element is written as its bits, in hexadecimal, and a complex one as two of them. A result may end in ~N: it may differ by N units in
the last place, because neither side rounds correctly. `!` as only result: the call is refused.

Operands are special values: both zeros, infinities, NaN, denormals, the limits of each dtype, no elements, no axes. Where
deft deviates from NumPy (docs/names.md), the operands or the results are converted here, with a comment.
"""
import itertools
import warnings

import numpy as np

warnings.filterwarnings("ignore")
np.seterr(all="ignore")

DTYPES = {"bool": np.bool_, "u8": np.uint8, "i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64,
          "f16": np.float16, "u64": np.uint64, "c64": np.complex64, "c128": np.complex128}
NAMES = {np.dtype(v): k for k, v in DTYPES.items()}
WORD = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
FLOATS = ["f32", "f64"]
INTS = ["u8", "i32", "i64"]
NUMBERS = INTS + FLOATS
ALL = ["bool"] + NUMBERS


def array(values, dtype, shape=None):
    a = np.array(values, dtype=DTYPES[dtype])
    return a if shape is None else a.reshape(shape)


def specials(dtype):
    """The special values of a dtype, in one vector."""
    if dtype == "bool":
        return array([True, False], dtype)
    if dtype in INTS:
        info = np.iinfo(DTYPES[dtype])
        values = [0, 1, 2, 7, info.max, info.max - 1, info.min]
        return array(values + ([-1, -2, -7] if info.min else []), dtype)
    info = np.finfo(DTYPES[dtype])
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, np.inf, -np.inf, np.nan, info.tiny, -info.smallest_subnormal, info.max,
              -info.max, 1e-3, 7.25]
    return array(values, dtype)


def text(a):
    a = np.ascontiguousarray(a).reshape(np.shape(a))
    if a.dtype.kind == "c":
        parts = text(a.reshape(-1).view(np.float32 if a.dtype == np.complex64 else np.float64))
        return "%s:%s:%s" % (NAMES[a.dtype], ",".join(map(str, a.shape)), parts.split(":")[2])
    bits = a.view(WORD[a.dtype.itemsize]) if a.dtype != np.bool_ else a.astype(np.uint8)
    if a.dtype.kind == "f":
        bits = np.where(np.isnan(a), np.array(np.nan, a.dtype).view(WORD[a.dtype.itemsize]), bits)
    return "%s:%s:%s" % (NAMES[a.dtype], ",".join(map(str, a.shape)), ",".join("%x" % int(b) for b in bits.ravel()))


def number(v):
    """A number of a call, which the test reads as a double or as an integer."""
    return repr(v) if isinstance(v, float) else str(int(v))


def case(name, numbers, operands, results, ulps=0):
    results = results if isinstance(results, (list, tuple)) else [results]
    shown = [text(r) + ("~%g" % ulps if ulps and r.dtype.kind in "fc" else "") for r in map(np.asarray, results)]
    print(" ".join([name, *map(number, numbers)]), "|", " ".join(map(text, operands)), "|", " ".join(shown))


def refused(name, numbers, operands):
    print(" ".join([name, *map(number, numbers)]), "|", " ".join(map(text, operands)), "|", "!")


def real(a):
    """deft computes functions of reals of integers in f32, NumPy in f64."""
    return a if a.dtype.kind == "f" else a.astype(np.float32)


def shapes(dtype):
    """The special values in several shapes: a vector, none, one without axes, a matrix with a row that repeats."""
    v = specials(dtype)
    yield v
    yield v[:0]
    yield v[:0].reshape(0, 3)
    yield v[2 % len(v)].reshape(())
    yield np.stack([v, v[::-1]])


# ---- elementwise ----

def unary(name, f, dtypes, ulps=0, convert=lambda a: a):
    for dtype in dtypes:
        for a in shapes(dtype):
            case(name, [], [a], f(convert(a)), ulps)


def binary(name, f, dtypes, ulps=0, convert=lambda a: a, only=None):
    for dtype in dtypes:
        v = specials(dtype)
        for x, y in ((v[:, None], v[None, ::-1]), (v[:0], v[:0]), (v[0], v[:3])):
            if only:
                keep = only(*np.broadcast_arrays(x, y))
                x, y = (m[keep] for m in np.broadcast_arrays(x, y))
            case(name, [], [x, y], f(convert(x), convert(y)), ulps)


def elementwise():
    unary("abs", np.abs, FLOATS + ["i32", "i64", "u8"])
    for name, f, ulps in [("acos", np.arccos, 4), ("acosh", np.arccosh, 4), ("asin", np.arcsin, 4),
                          ("asinh", np.arcsinh, 4), ("atan", np.arctan, 4), ("atanh", np.arctanh, 4), ("cos", np.cos, 4),
                          ("cosh", np.cosh, 4), ("exp", np.exp, 4), ("expm1", np.expm1, 4), ("log", np.log, 4),
                          ("log1p", np.log1p, 4), ("log2", np.log2, 4), ("log10", np.log10, 4), ("sin", np.sin, 4),
                          ("sinh", np.sinh, 4), ("sqrt", np.sqrt, 0), ("tan", np.tan, 4), ("tanh", np.tanh, 4),
                          ("reciprocal", np.reciprocal, 0), ("cbrt", np.cbrt, 3)]:
        unary(name, f, FLOATS + ["i32"], ulps, real)
    for name, f in [("ceil", np.ceil), ("floor", np.floor), ("trunc", np.trunc), ("round", np.round)]:
        unary(name, f, NUMBERS)
    for name, f in [("isfinite", np.isfinite), ("isinf", np.isinf), ("isnan", np.isnan), ("signbit", np.signbit)]:
        unary(name, f, FLOATS)
    unary("bitwise_not", np.invert, ["bool"] + INTS)
    unary("logical_not", np.logical_not, ALL)
    unary("neg", np.negative, NUMBERS)
    # NumPy makes +0 of a sign of -0; deft and the standard's formula keep the zero
    unary("sign", lambda a: np.where(a == 0, a, np.sign(a)), NUMBERS)
    unary("square", np.square, NUMBERS)

    for name, f in [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("maximum", np.maximum),
                    ("minimum", np.minimum)]:
        # the sign of the least or greatest of two zeros is unspecified
        zeros = (lambda x, y: ~((x == 0) & (y == 0))) if "imum" in name else None
        binary(name, f, NUMBERS, only=zeros)
    binary("div", np.divide, FLOATS + ["i32"], 0, real)
    # an integer over 0 gives 0, and the remainder is the dividend (docs/names.md)
    binary("floor_div", np.floor_divide, NUMBERS, only=lambda x, y: (y != 0) & ~np.isinf(y) & ~np.isinf(x))
    # a remainder of 0 keeps the sign of the dividend, as in PyTorch; NumPy gives it that of the divisor
    binary("remainder", np.remainder, NUMBERS, only=lambda x, y: (y != 0) & ~np.isinf(x) & (np.remainder(x, y) != 0))
    binary("pow", np.power, FLOATS, 3)
    binary("pow", np.power, INTS, only=lambda x, y: y >= 0)
    binary("atan2", np.arctan2, FLOATS, 4)
    binary("copysign", np.copysign, FLOATS, only=lambda x, y: ~np.isnan(x))
    binary("hypot", np.hypot, FLOATS, 2)
    binary("logaddexp", np.logaddexp, FLOATS, 4)
    binary("nextafter", np.nextafter, FLOATS)
    unary("nextafter_half", lambda a: np.nextafter(a, np.float16(1)), ["f16"])
    for name, f in [("bitwise_and", np.bitwise_and), ("bitwise_or", np.bitwise_or), ("bitwise_xor", np.bitwise_xor)]:
        binary(name, f, ["bool"] + INTS)
    width = {1: 8, 4: 32, 8: 64}
    inside = lambda x, y: (y >= 0) & (y < width[x.dtype.itemsize])
    binary("shift_left", np.left_shift, INTS, only=inside)
    binary("shift_right", np.right_shift, INTS, only=inside)
    for name, f in [("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal), ("gt", np.greater),
                    ("ge", np.greater_equal), ("logical_and", np.logical_and), ("logical_or", np.logical_or),
                    ("logical_xor", np.logical_xor)]:
        binary(name, f, ALL)
    for dtype in NUMBERS:
        a = specials(dtype)
        low, high = array(1, dtype), array(3, dtype)
        case("clamp_t", [3], [a, low, high], np.clip(a, low, high))
        case("clamp_t", [1], [a, low], np.maximum(a, low))
        case("clamp_t", [2], [a, high], np.minimum(a, high))
    for dtype in ALL:
        a, b = specials(dtype), specials(dtype)[::-1].copy()
        condition = np.arange(len(a)) % 2 == 0
        case("where", [], [condition, a, b], np.where(condition, a, b))
        case("where", [], [condition[:0], a[:0], b[0]], np.where(condition[:0], a[:0], b[0]))


# ---- dtypes ----

def promotion():
    # an integer of any width leaves a float as it is, as in PyTorch (docs/promotion.md); NumPy widens
    for a, b in itertools.product(["bool"] + INTS, repeat=2):
        x, y = array(1, a), array([1, 0], b)
        case("result_type", [], [x, y], np.zeros(0, np.result_type(DTYPES[a], DTYPES[b])))
        if a != "bool" or b != "bool":
            case("add", [], [x, y], np.add(x, y))
    for a, b in itertools.product(FLOATS, repeat=2):
        x, y = array(1, a), array([1, 0], b)
        case("result_type", [], [x, y], np.zeros(0, np.result_type(DTYPES[a], DTYPES[b])))
        case("add", [], [x, y], np.add(x, y))
    for a, b in itertools.product(ALL, repeat=2):
        v = specials(a)
        if a in FLOATS and b in INTS:
            v = array([0, -0.0, 1.5, 7.25, 200], a)  # NumPy leaves what does not fit undefined
        case("astype", [list(DTYPES).index(b)], [v], v.astype(DTYPES[b]))
    for t in FLOATS + ["f16"]:
        i = np.finfo(DTYPES[t])
        case("finfo", [list(DTYPES).index(t)], [], np.array([i.bits, i.eps, i.max, i.min, i.smallest_normal], np.float64))
    for t in INTS:
        i = np.iinfo(DTYPES[t])
        case("iinfo", [list(DTYPES).index(t)], [], np.array([i.bits, i.max, i.min], np.int64))
    kinds = {"bool": 1, "signed integer": 2, "unsigned integer": 4, "integral": 6, "real floating": 8, "numeric": 14}
    for t, (kind, bits) in itertools.product(ALL, kinds.items()):
        case("isdtype", [list(DTYPES).index(t), bits], [], np.array(np.isdtype(np.dtype(DTYPES[t]), kind)))
    for a, b in itertools.product(["bool"] + INTS, repeat=2):
        case("can_cast", [list(DTYPES).index(a), list(DTYPES).index(b)], [],
             np.array(np.result_type(DTYPES[a], DTYPES[b]) == DTYPES[b]))


# ---- creation ----

def creation():
    for t in ALL:
        k = list(DTYPES).index(t)
        a = specials(t)[:2].reshape(1, 2)
        case("zeros", [k], [], np.zeros((2, 3), DTYPES[t]))
        case("ones", [k], [], np.ones((2, 3), DTYPES[t]))
        case("zeros_like", [], [a], np.zeros_like(a))
        case("ones_like", [], [a], np.ones_like(a))
        case("full", [k, 1], [], np.full((2, 3), 1, DTYPES[t]))
        case("full_like", [1], [a], np.full_like(a, 1))
        for n, m, d in [(3, 4, 0), (3, 4, 2), (4, 2, -1), (0, 2, 0), (2, 2, 9), (2, 2, -9)]:
            case("eye_k", [k, n, m, d], [], np.eye(n, m, d, DTYPES[t]))
    for t in NUMBERS:
        k = list(DTYPES).index(t)
        for a, b, c in [(0, 5, 1), (5, 0, -2), (0, 0, 1), (1, 8, 3)][:: 2 if t == "u8" else 1]:
            case("arange", [k, a, b, c], [], np.arange(a, b, c, dtype=DTYPES[t]))
    for t in FLOATS:
        k = list(DTYPES).index(t)
        for a, b, n in [(0.0, 1.0, 5), (1.0, -1.0, 4), (2.0, 2.0, 3), (0.0, 1.0, 0), (3.0, 4.0, 1)]:
            case("linspace", [k, a, b, n], [], np.linspace(a, b, n, dtype=DTYPES[t]), 1)
            case("linspace_open", [k, a, b, n], [], np.linspace(a, b, n, endpoint=False, dtype=DTYPES[t]), 1)
    for t in NUMBERS:
        m = specials(t)[:6].reshape(2, 3)
        for k in (0, 1, -1, 5, -5):
            case("tril", [k], [m], np.tril(m, k))
            case("triu", [k], [m], np.triu(m, k))
        case("tril", [0], [m[:0]], np.tril(m[:0]))
    x, y, z = array([1, 2, 3], "i32"), array([4.5, -0.0], "f32"), array([7], "f64")
    for xy in (0, 1):
        how = "xy" if xy else "ij"
        case("meshgrid", [xy], [x], np.meshgrid(x, indexing=how))
        case("meshgrid", [xy], [x, y], np.meshgrid(x, y, indexing=how))
        case("meshgrid", [xy], [x, y, z], np.meshgrid(x, y, z, indexing=how))
        case("meshgrid", [xy], [x, y[:0]], np.meshgrid(x, y[:0], indexing=how))


# ---- manipulation ----

def matrices(dtypes=("bool", "u8", "i64", "f32")):
    for t in dtypes:
        v = np.resize(specials(t), 12)
        yield v.reshape(3, 4)
        yield v[:0].reshape(0, 4)
        yield v.reshape(2, 3, 2)


def manipulation():
    for a in matrices():
        rank = a.ndim
        case("flip", [-1], [a], np.flip(a, -1))
        case("flip", [99], [a], np.flip(a))
        for axis in (0, rank - 1):
            case("roll", [1, axis], [a], np.roll(a, 1, axis))
            case("roll", [-5, axis], [a], np.roll(a, -5, axis))
            case("repeat", [3, axis], [a], np.repeat(a, 3, axis))
            case("repeat", [0, axis], [a], np.repeat(a, 0, axis))
            case("unsqueeze", [axis], [a], np.expand_dims(a, axis))
            case("moveaxis", [axis, 0], [a], np.moveaxis(a, axis, 0))
            case("moveaxis", [0, axis], [a], np.moveaxis(a, 0, axis))
            case("unstack", [axis], [a], np.unstack(a, axis=axis))
            case("concat", [axis], [a, a[::-1].copy()], np.concatenate([a, a[::-1]], axis=axis))
            case("stack", [axis], [a, a[::-1].copy()], np.stack([a, a[::-1]], axis=axis))
            case("squeeze", [axis], [np.expand_dims(a, axis)], a)
        case("roll", [2, 99], [a], np.roll(a, 2))
        case("roll_n", [1, -2], [a], np.roll(a, (1, -2), (0, 1)))
        case("repeat", [2, 99], [a], np.repeat(a, 2))
        case("expand_dims", [0, -1], [a], np.expand_dims(a, (0, -1)))
        case("concat", [99], [a, a.ravel()[:1]], np.concatenate([a, a.ravel()[:1]], axis=None))
        case("reshape", [-1, 2], [a] if a.size else [a.reshape(0, 4)], a.reshape(-1, 2) if a.size else a.reshape(0, 2))
        case("tile", [2], [a], np.tile(a, 2))
        case("tile", [2, 1, 3], [a], np.tile(a, (2, 1, 3)))
        case("tile", [0], [a], np.tile(a, 0))
        case("permute", list(range(rank))[::-1], [a], np.transpose(a))
        case("expand", [2, *a.shape], [a], np.broadcast_to(a, (2, *a.shape)))
        counts = array([2, 0, 1], "i32")
        if a.shape[0] == 3:
            case("repeat_t", [3], [a, counts], np.repeat(a, counts, 0))
            case("repeat_t", [6], [a, counts[:0].sum() + array(2, "i64")], np.repeat(a, 2, 0))
    a, b = array([[1], [2]], "i32"), array([3, 4, 5], "f32")
    case("broadcast_tensors", [], [a, b], np.broadcast_arrays(a, b))
    refused("broadcast_tensors", [], [array([1, 2], "i32"), b])
    for s, t in [((2, 1), (3,)), ((), (4,)), ((0, 1), (3,)), ((1,), (0,)), ((5, 1, 2), (3, 1))]:
        case("broadcast_shapes", [], [np.zeros(s, np.bool_), np.zeros(t, np.bool_)],
             np.array(np.broadcast_shapes(s, t), np.int64))
    refused("broadcast_shapes", [], [np.zeros(2, np.bool_), np.zeros(3, np.bool_)])


# ---- searching, sorting, sets ----

def searching():
    for t in ALL:
        v = specials(t)
        m = np.stack([v, v[::-1]])
        # the first NaN counts in both; the sign of an equal zero does not matter for the index
        case("argmax", [0, 0], [m], np.argmax(m, 0))
        case("argmax", [1, 1], [m], np.argmax(m, 1, keepdims=True))
        case("argmin", [1, 0], [m], np.argmin(m, 1))
        case("argmin", [0, 1], [m], np.argmin(m, 0, keepdims=True))
        case("count_nonzero", [0, 0], [m], np.count_nonzero(m, 0).astype(np.int64))
        case("count_nonzero", [1, 1], [m], np.count_nonzero(m, 1, keepdims=True).astype(np.int64))
        case("count_nonzero", [0, 0], [m[:0]], np.count_nonzero(m[:0], 0).astype(np.int64))
        rows = np.argwhere(m)
        case("nonzero", [len(rows)], [m], rows.astype(np.int64))
        rows = np.argwhere(v)
        case("nonzero", [len(rows)], [v], rows.astype(np.int64))
        # NumPy has no descending sort; the standard's is stable, with NaN first as deft's
        case("sort", [1, 0], [m], np.sort(m, 1, stable=True))
        case("sort", [0, 0], [m], np.sort(m, 0, stable=True))
        case("sort", [0, 0], [m[:0]], m[:0])
        case("argsort", [1, 0], [m], np.argsort(m, 1, stable=True))
        order = np.sort(v, stable=True)
        for right, side in ((0, "left"), (1, "right")):
            for s in (order, order[:1], order[:0], np.sort(np.resize(v, 20), stable=True)):
                case("searchsorted", [right], [s, m], np.searchsorted(s, m, side))
                case("searchsorted", [right], [s, v[0]], np.searchsorted(s, v[0], side))
                case("searchsorted", [right], [s, m[:0]], np.searchsorted(s, m[:0], side))
        for invert in (0, 1):
            for elements in (v[::2], v[:0], v[1], np.resize(v[1::2], 20)):
                case("isin", [invert], [m, elements], np.isin(m, elements, invert=bool(invert)))
        # all NaNs are one value, as NumPy's default has it; the standard makes each a value (docs/names.md)
        for a in (m, v, v[:0]):
            values, indices, inverse, counts = np.unique(a, return_index=True, return_inverse=True, return_counts=True)
            case("unique_all", [len(values)], [a],
                 [values, indices.astype(np.int64), inverse.reshape(a.shape).astype(np.int64), counts.astype(np.int64)])
            case("unique", [len(values)], [a], values)
        i = array([0, -1, 1], "i64")
        case("take", [1], [m, i], np.take(m, i, 1))
        case("take", [0], [m, array(-1, "i64")], np.take(m, -1, 0))
        case("take", [1], [m, i[:0]], np.take(m, i[:0], 1))
        along = np.argsort(m, 1, stable=True)
        case("take_along_axis", [1], [m, along], np.take_along_axis(m, along, 1))
        case("take_along_axis", [1], [m, along[:1, :3]], np.take_along_axis(m, along[:1, :3], 1))
        case("take_along_axis", [0], [m, array([[1]], "i64")], np.take_along_axis(m, array([[1]], "i64"), 0))


# ---- statistics, utilities ----

def statistics():
    for t in ALL:
        v = specials(t)
        if t in FLOATS:  # sums of numbers that are exact in any order
            v = array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.25], t)
        m = np.stack([v, v[::-1]])
        # integers are added in 64 bits
        wide = None if t in FLOATS else np.uint64 if t == "u8" else np.int64
        for axis, keep in ((0, 0), (1, 1)):
            k = bool(keep)
            case("sum", [axis, keep], [m], np.sum(m, axis, keepdims=k, dtype=wide))
            case("prod", [axis, keep], [m], np.prod(m, axis, keepdims=k, dtype=wide))
            case("any", [axis, keep], [m], np.any(m, axis, keepdims=k))
            case("all", [axis, keep], [m], np.all(m, axis, keepdims=k))
            case("mean", [axis, keep], [m.astype(np.float32) if wide else m],
                 np.mean(m.astype(np.float32) if wide else m, axis, keepdims=k), 4)
            if t != "bool":
                case("min", [axis, keep], [m], np.min(m, axis, keepdims=k))
                case("max", [axis, keep], [m], np.max(m, axis, keepdims=k))
        for axis in (0, 1):
            case("cumulative_sum", [axis, 0], [m], np.cumulative_sum(m, axis=axis, dtype=wide))
            case("cumulative_sum", [axis, 1], [m], np.cumulative_sum(m, axis=axis, dtype=wide, include_initial=True))
            case("cumulative_prod", [axis, 0], [m], np.cumulative_prod(m, axis=axis, dtype=wide))
            case("cumulative_prod", [axis, 1], [m], np.cumulative_prod(m, axis=axis, dtype=wide, include_initial=True))
            if t != "bool":
                case("cummax", [axis], [m], np.maximum.accumulate(m, axis))
                case("cummin", [axis], [m], np.minimum.accumulate(m, axis))
        none = m[:0]
        for name, f in (("sum", np.sum), ("prod", np.prod)):
            case(name, [0, 0], [none], f(none, 0, dtype=wide))
        case("cumulative_sum", [0, 1], [none], np.cumulative_sum(none, axis=0, dtype=wide, include_initial=True))
        case("any", [0, 0], [none], np.any(none, 0))
        case("all", [0, 0], [none], np.all(none, 0))
        for n in (0, 1, 2, 9):
            for axis in (0, 1):
                # the difference of two bools is whether they differ
                case("diff", [n, axis, 0], [m], np.diff(m, n, axis))
        case("diff", [1, 1, 1], [m, m[:, :1]], np.diff(m, 1, 1, prepend=m[:, :1]))
        case("diff", [1, 1, 2], [m, m[:, :2]], np.diff(m, 1, 1, append=m[:, :2]))
    for t in FLOATS:
        s = specials(t)
        m = np.stack([s, s[::-1]])
        for axis, keep in ((0, 0), (1, 1)):
            k = bool(keep)
            case("min", [axis, keep], [m], np.min(m, axis, keepdims=k))
            case("max", [axis, keep], [m], np.max(m, axis, keepdims=k))
            case("sum", [axis, keep], [m[:, 7:10]], np.sum(m[:, 7:10], axis, keepdims=k))
        case("cummax", [1], [m], np.maximum.accumulate(m, 1))
        case("cumulative_prod", [1, 0], [m[:, :10]], np.cumulative_prod(m[:, :10], axis=1))
        v = array([[1, 2, 4, 9], [3, 3, 3, 3], [np.inf, 1, 2, 3], [np.nan, 1, 2, 3]], t)
        for ddof in (0, 1):
            for axis, keep in ((0, 0), (1, 1)):
                case("var", [axis, keep, ddof], [v], np.var(v, axis, ddof=ddof, keepdims=bool(keep)), 4)
                case("std", [axis, keep, ddof], [v], np.std(v, axis, ddof=ddof, keepdims=bool(keep)), 4)
        case("mean", [0, 0], [v[:0]], np.mean(v[:0], 0))
        case("std", [0, 0, 0], [v[:0]], np.std(v[:0], 0))


def beyond():
    """What the standard does not have."""
    for t in FLOATS:
        v = array([[1, 2, np.nan, 9], [np.nan, -3, np.nan, 3.5], [np.nan] * 4, [0.0, -0.0, 5, -2]], t)
        for axis, keep in ((0, 0), (1, 1)):
            for name, f, ulps in [("nansum", np.nansum, 2), ("nanprod", np.nanprod, 2), ("nanmin", np.nanmin, 0),
                                  ("nanmax", np.nanmax, 0), ("nanmean", np.nanmean, 2)]:
                case(name, [axis, keep], [v], f(v, axis, keepdims=bool(keep)), ulps)
            for ddof in (0, 1):
                # of fewer numbers than ddof, deft has infinity or NaN as of var, NumPy NaN
                w = v[[0, 1, 3]] if axis else v[:, [1, 3]]
                case("nanvar", [axis, keep, ddof], [w], np.nanvar(w, axis, ddof=ddof, keepdims=bool(keep)), 4)
                case("nanstd", [axis, keep, ddof], [w], np.nanstd(w, axis, ddof=ddof, keepdims=bool(keep)), 4)
        m = array([[3, -4, 0, 12], [0.0, -0.0, 0, 0], [1e-3, -2.5, np.inf, 1], [1, np.nan, 2, 3]], t)
        for order in (2.0, 1.0, 0.0, np.inf, -np.inf, 3.0):
            for axis, keep in ((0, 0), (1, 1)):
                case("vector_norm", [order, axis, keep], [m], np.linalg.vector_norm(m, ord=order, axis=axis,
                                                                                    keepdims=bool(keep)), 4)
        s = np.stack([array([0.5, 2, 1, -1, 4], t), array([3, 1, 2, -7, np.inf], t), array([3, np.nan, 1, 2, 0], t)])
        for axis, keep in ((0, 0), (1, 1)):
            case("median", [axis, keep], [s], np.median(s, axis, keepdims=bool(keep)))
            for q in (0.0, 0.25, 0.3, 0.5, 1.0):
                case("quantile", [q, axis, keep], [s[:, :4]], np.quantile(s[:, :4], q, axis, keepdims=bool(keep)).astype(t_of(t)), 64)
        x = array([-1, 0, 0.5, 1, 1.5, 2, 2.5, 3, 4, np.nan, np.inf, -np.inf], t)
        edges = array([0, 1, 2.5, 3], t)
        case("histogram", [], [x, edges], np.histogram(x[np.isfinite(x)], edges)[0].astype(np.int64))
        case("histogram", [], [x[:0], edges], np.zeros(3, np.int64))
        case("histc", [4, 0.0, 4.0], [x], np.histogram(x[np.isfinite(x)], 4, (0.0, 4.0))[0].astype(np.int64))
        case("bucketize", [0], [x, edges], np.digitize(x, edges, right=True).astype(np.int64))
        case("bucketize", [1], [x, edges], np.digitize(x, edges, right=False).astype(np.int64))
        c = array([[0, 1, -2, 3], [-np.inf, -np.inf, 1, -np.inf], [1e3, -1e3, np.inf, 1]], t)
        case("logcumsumexp", [1], [c], np.logaddexp.accumulate(c, 1), 16)
        case("logsumexp", [1, 0], [c], np.logaddexp.reduce(c, 1), 16)
        case("logsumexp", [0, 1], [c], np.logaddexp.reduce(c, 0, keepdims=True), 16)
        case("logsumexp", [0, 0], [c[:0]], np.full(4, -np.inf, c.dtype), 0)
        g = array([[1, 2, 3], [4, 5, 6]], t)
        for mode, name in ((0, "constant"), (1, "edge"), (2, "reflect"), (3, "wrap")):
            more = {"constant_values": 7} if mode == 0 else {}
            wide = np.pad(g, ((1, 1), (1, 1)), name, **more)
            case("shift", [1, -1, mode, 7], [g], wide[2:4, 0:3])
            case("shift", [-1, 0, mode, 7], [g], wide[0:2, 1:4])
    # deft does not round the quotient first: 1 / 0.1 in f32 is less than 10
    exact = lambda a, b: np.trunc(a.astype(np.longdouble) / b).astype(a.dtype)
    for t in FLOATS:
        binary("trunc_div", exact, [t], only=lambda x, y: np.abs(x / y) < 1e6)
    for t in INTS:
        binary("trunc_div", exact, [t],
               only=lambda x, y: (y != 0) & ~((y == x.dtype.type(-1 if y.dtype.kind == "i" else 0)) & (x < 0)))


def t_of(t):
    return DTYPES[t]


# ---- complex numbers ----

COMPLEX = ["c64", "c128"]


def grid(dtype, values):
    """All numbers whose parts are among the values."""
    x = np.array(values, np.float64)
    z = np.empty((len(x), len(x)), DTYPES[dtype])
    z.real, z.imag = x[:, None], x[None, :]
    return z.ravel()


def complex_elementwise(t):
    plain = grid(t, [0.0, -0.0, 1.0, -2.5, 0.5, 3e-3, 7.25])
    wild = grid(t, [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan])
    nonzero = plain[plain != 0]
    for name, f in [("acos", np.arccos), ("acosh", np.arccosh), ("asin", np.arcsin), ("asinh", np.arcsinh),
                    ("atan", np.arctan), ("cos", np.cos), ("cosh", np.cosh), ("exp", np.exp), ("expm1", np.expm1),
                    ("sin", np.sin), ("sinh", np.sinh), ("sqrt", np.sqrt), ("tan", np.tan), ("tanh", np.tanh)]:
        away = plain[np.abs(plain * plain + 1) > 1e-6] if name == "atan" else plain
        case(name, [], [away], f(away), 8)
        case(name, [], [away[:0]], f(away[:0]))
    # NumPy loses digits of atanh near 0 in c64, and the poles
    off = nonzero[np.abs(np.abs(nonzero.real) - 1) > 1e-6]
    case("atanh", [], [off], np.arctanh(off.astype(np.clongdouble)).astype(off.dtype), 8)
    # the real part of a logarithm is 0 where |z| is 1
    far = nonzero[np.abs(np.abs(nonzero) - 1) > 1e-3]
    for name, f in [("log", np.log), ("log2", np.log2), ("log10", np.log10)]:
        case(name, [], [far], f(far), 8)
    case("log1p", [], [far], np.log1p(far.astype(np.clongdouble)).astype(far.dtype), 8)
    case("reciprocal", [], [nonzero], np.reciprocal(nonzero), 4)
    case("sign", [], [nonzero], np.sign(nonzero), 4)
    for name, f in [("neg", np.negative), ("conj", np.conj), ("square", np.square)]:
        case(name, [], [plain], f(plain), 2)
    for name, f in [("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite), ("real", np.real),
                    ("imag", np.imag), ("logical_not", np.logical_not), ("conj", np.conj), ("neg", np.negative)]:
        case(name, [], [wild], f(wild))
    case("abs", [], [wild], np.abs(wild), 2)
    x, y = nonzero[:, None], nonzero[None, ::3]
    for name, f in [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide), ("eq", np.equal),
                    ("ne", np.not_equal)]:
        case(name, [], [x, y], f(x, y), 4)
    case("pow", [], [x, y[:, :4]], np.power(x, y[:, :4]), 64)
    for name, f in [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide)]:
        r = nonzero.real[nonzero.real != 0][:3]
        case(name, [], [x, r], f(x, r), 2)
        case(name, [], [r, x], f(r, x), 4)
    for name in ("lt", "le", "maximum", "minimum", "floor", "atan2", "remainder"):
        refused(name, [], [x[:2], x[:2]] if name not in ("floor",) else [x])
    condition = np.arange(len(plain)) % 2 == 0
    case("where", [], [condition, plain, plain[::-1].copy()], np.where(condition, plain, plain[::-1]))


def complex_arrays(t):
    k, kinds = list(DTYPES).index(t), {"complex floating": 16, "numeric": 30, "real floating": 8}
    m = grid(t, [1.0, -2.5, 0.5]).reshape(3, 3)
    v = m[0]
    case("zeros", [k], [], np.zeros((2, 3), DTYPES[t]))
    case("ones", [k], [], np.ones((2, 3), DTYPES[t]))
    case("full", [k, 7], [], np.full((2, 3), 7, DTYPES[t]))
    case("zeros_like", [], [m], np.zeros_like(m))
    case("ones_like", [], [m], np.ones_like(m))
    case("full_like", [3], [m], np.full_like(m, 3))
    case("eye_k", [k, 3, 4, 1], [], np.eye(3, 4, 1, DTYPES[t]))
    for kind, bits in kinds.items():
        case("isdtype", [k, bits], [], np.array(np.isdtype(np.dtype(DTYPES[t]), kind)))
    i = np.finfo(DTYPES[t])
    case("finfo", [k], [], np.array([i.bits, i.eps, i.max, i.min, i.smallest_normal], np.float64))
    for other in ("bool", "f32", "f64", "c64", "c128"):
        case("result_type", [], [v, array([1, 0], other)], np.zeros(0, np.result_type(v.dtype, DTYPES[other])))
        case("add", [], [v, array(1, other)], np.add(v, array(1, other)), 2)
        case("astype", [k], [specials(other)[:2] if other[0] != "c" else v.astype(DTYPES[other])],
             (specials(other)[:2] if other[0] != "c" else v.astype(DTYPES[other])).astype(DTYPES[t]))
    for other in ("f32", "i64", "u8"):
        refused("astype", [list(DTYPES).index(other)], [v])
    for axis, keep in ((0, 0), (1, 1)):
        for name, f in [("sum", np.sum), ("prod", np.prod), ("mean", np.mean), ("any", np.any), ("all", np.all)]:
            case(name, [axis, keep], [m], f(m, axis, keepdims=bool(keep)), 8)
        case("var", [axis, keep, 1], [m], np.var(m, axis, ddof=1, keepdims=bool(keep)), 8)
        case("std", [axis, keep, 0], [m], np.std(m, axis, keepdims=bool(keep)), 8)
        case("vector_norm", [2.0, axis, keep], [m], np.linalg.vector_norm(m, axis=axis, keepdims=bool(keep)), 8)
        case("count_nonzero", [axis, keep], [m], np.count_nonzero(m, axis, keepdims=bool(keep)).astype(np.int64))
        case("cumulative_sum", [axis, 1], [m], np.cumulative_sum(m, axis=axis, include_initial=True), 8)
        case("cumulative_prod", [axis, 0], [m], np.cumulative_prod(m, axis=axis), 8)
        case("diff", [1, axis, 0], [m], np.diff(m, 1, axis), 2)
        case("concat", [axis], [m, m], np.concatenate([m, m], axis))
        case("stack", [axis], [m, m], np.stack([m, m], axis))
        case("flip", [axis], [m], np.flip(m, axis))
        case("roll", [1, axis], [m], np.roll(m, 1, axis))
        case("repeat", [2, axis], [m], np.repeat(m, 2, axis))
        case("unsqueeze", [axis], [m], np.expand_dims(m, axis))
        case("take", [axis], [m, array([2, 0, -1], "i64")], np.take(m, [2, 0, -1], axis))
        case("take_along_axis", [axis], [m, array([[2], [0], [1]], "i64")[: 3 if axis else 1]],
             np.take_along_axis(m, np.array([[2], [0], [1]])[: 3 if axis else 1], axis))
        case("unstack", [axis], [m], list(np.unstack(m, axis=axis)))
        for name in ("min", "max", "argmin"):
            refused(name, [axis, keep], [m])
        refused("sort", [axis, 0], [m])
    several = np.array([[2j, 1, 2j], [1 - 1j, 1, 0]], DTYPES[t])
    values, indices, inverse, counts = np.unique(several, return_index=True, return_inverse=True, return_counts=True)
    case("unique_all", [len(values)], [several], [values, indices, inverse.reshape(several.shape), counts])
    case("unique", [len(values)], [several], values)
    for invert in (0, 1):
        case("isin", [invert], [several, several[1]], np.isin(several, several[1], invert=bool(invert)))
        case("isin", [invert], [several, np.tile(several[1], 6)], np.isin(several, several[1], invert=bool(invert)))
    for d in (-1, 0, 1):
        case("tril", [d], [m], np.tril(m, d))
        case("triu", [d], [m], np.triu(m, d))
    case("permute", [1, 0], [m], m.T)
    case("reshape", [9], [m], m.reshape(9))
    case("expand", [2, 3], [v], np.broadcast_to(v, (2, 3)))
    case("tile", [2, 1], [v], np.tile(v, (2, 1)))
    case("moveaxis", [0, 1], [m], np.moveaxis(m, 0, 1))
    case("meshgrid", [1], [v, v[:2]], np.meshgrid(v, v[:2], indexing="xy"))
    case("broadcast_tensors", [], [m, v], list(np.broadcast_arrays(m, v)))
    case("nonzero", [4], [np.array([0, 1j, 0, 2], DTYPES[t])], np.array([[1], [3], [0], [0]], np.int64))


elementwise()
promotion()
creation()
manipulation()
searching()
statistics()
beyond()
for name in COMPLEX:
    complex_elementwise(name)
    complex_arrays(name)
