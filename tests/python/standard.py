# SPDX-License-Identifier: Apache-2.0
"""Random calls of the functions of the array API, by the same code in NumPy and in deft: shapes, dtypes and elements agree.
Ends with 77 without NumPy 2.1 or later. DEFT_SEED chooses the calls."""
import os
import random
import sys
import unittest

try:
    import numpy as np
except ImportError:
    np = None
if np is None or np.lib.NumpyVersion(np.__version__) < "2.1.0":
    print("NumPy 2.1 is not installed")
    sys.exit(77)
import deft

np.seterr(all="ignore")
SEED = int(os.environ.get("DEFT_SEED", "1"))
SIGNED, UNSIGNED = ["int8", "int16", "int32", "int64"], ["uint8", "uint16", "uint32", "uint64"]
INTEGERS, REALS, COMPLEX = SIGNED + UNSIGNED, ["float32", "float64"], ["complex64", "complex128"]
FLOATS, NUMBERS = REALS + COMPLEX, INTEGERS + REALS + COMPLEX
ORDERED, ALL = INTEGERS + REALS, ["bool"] + NUMBERS
CALLS = {}


def call(dtypes, weight=1):
    """Registers a function that draws a call: it returns (arrays, function of a namespace and the arrays)."""
    def register(draw):
        CALLS[draw.__name__] = (draw, dtypes, weight)
        return draw
    return register


class Draw:
    def __init__(self, seed):
        self.random, self.numbers, self.turns = random.Random(seed), np.random.default_rng(seed), {}

    def chance(self, p):
        return self.random.random() < p

    def one(self, values):
        return self.random.choice(list(values))

    def next(self, names):
        """The names of a table, one after the other."""
        names = tuple(names)
        self.turns[names] = self.turns.get(names, -1) + 1
        return names[self.turns[names] % len(names)]

    def shape(self, least=0, most=3):
        return tuple(self.random.randint(0 if self.chance(0.08) else 1, 5) for _ in range(self.random.randint(least, most)))

    def array(self, shape, dtype):
        if dtype == "bool":
            return np.asarray(self.numbers.random(shape) < 0.5)
        if dtype in INTEGERS:
            if self.chance(0.2):
                limits = np.iinfo(dtype)
                return np.asarray(self.numbers.choice(np.array([limits.min, limits.max, 0, 1], dtype), shape))
            return np.asarray(self.numbers.integers(0 if dtype[0] == "u" else -9, 9, shape), dtype)
        if dtype in COMPLEX:
            # Finite: what infinite parts multiply to depends on the order of factors.
            re, im = (np.nan_to_num(self.array(shape, "float64"), posinf=1, neginf=2) for _ in range(2))
            return np.asarray(re + 1j * im, dtype)
        a = np.asarray(self.numbers.standard_normal(shape) * self.one([1, 1, 10]))
        if self.chance(0.3):
            a = np.round(a)
        if self.chance(0.15):
            special = self.numbers.choice([np.inf, -np.inf, np.nan, 0.0, -0.0], shape)
            a = np.where(self.numbers.random(shape) < 0.3, special, a)
        return np.asarray(a, dtype)

    def axis(self, a):
        return self.random.randrange(-a.ndim, a.ndim)

    def axes(self, a):
        """None, an axis, or several of them."""
        if not a.ndim or self.chance(0.3):
            return None
        if self.chance(0.4):
            return self.axis(a)
        chosen = self.random.sample(range(a.ndim), self.random.randint(1, a.ndim))
        return tuple(i - a.ndim if self.chance(0.3) else i for i in chosen)

    def narrower(self, shape):
        """A shape that broadcasts with this one."""
        return tuple(1 if self.chance(0.2) else n for n in shape[self.random.randint(0, len(shape)):])


# ---- elementwise ----

UNARY = {"abs": NUMBERS, "acos": REALS, "acosh": REALS, "asin": REALS, "asinh": REALS, "atan": REALS, "atanh": REALS,
         "bitwise_invert": ["bool"] + INTEGERS, "ceil": ORDERED, "conj": COMPLEX, "cos": REALS, "cosh": REALS, "exp": REALS,
         "expm1": REALS, "floor": ORDERED, "imag": COMPLEX, "isfinite": NUMBERS, "isinf": NUMBERS, "isnan": NUMBERS, "log": REALS,
         "log1p": REALS, "log2": REALS, "log10": REALS, "logical_not": ["bool"], "negative": SIGNED + FLOATS, "positive": NUMBERS,
         "real": NUMBERS, "reciprocal": REALS, "round": ORDERED, "sign": ORDERED, "signbit": REALS, "sin": REALS, "sinh": REALS,
         "sqrt": REALS, "square": NUMBERS, "tan": REALS, "tanh": REALS, "trunc": ORDERED}
BINARY = {"add": NUMBERS, "atan2": REALS, "bitwise_and": ["bool"] + INTEGERS, "bitwise_or": ["bool"] + INTEGERS,
          "bitwise_xor": ["bool"] + INTEGERS, "copysign": REALS, "divide": FLOATS, "equal": ALL, "greater": ORDERED,
          "greater_equal": ORDERED, "hypot": REALS, "less": ORDERED, "less_equal": ORDERED, "logaddexp": REALS,
          "logical_and": ["bool"], "logical_or": ["bool"], "logical_xor": ["bool"], "maximum": ORDERED, "minimum": ORDERED,
          "multiply": NUMBERS, "nextafter": REALS, "not_equal": ALL, "pow": REALS, "remainder": ORDERED, "subtract": NUMBERS,
          "floor_divide": ORDERED}


@call(ALL, 8)
def unary(d, dtype):
    name = d.next(UNARY)
    return [d.array(d.shape(), d.one(UNARY[name]))], name, lambda xp, x: getattr(xp, name)(x)


@call(ALL, 6)
def binary(d, dtype):
    name = d.next(BINARY)
    dtype = d.one(BINARY[name])
    other = d.one(BINARY[name]) if d.chance(0.3) else dtype
    if str(np.result_type(dtype, other)) not in BINARY[name] or promotes_apart(dtype, other):
        other = dtype
    s = d.shape()
    a, b = d.array(s, dtype), d.array(d.narrower(s), other)
    if name in ("remainder", "floor_divide"):    # the standard leaves open what 0 and infinity divide
        a, b = (np.where(np.isfinite(x) & (x != 0), x, np.asarray(1, x.dtype)) for x in (a, b))
    return [a, b] if d.chance(0.5) else [b, a], name, lambda xp, x, y: getattr(xp, name)(x, y)


def promotes_apart(a, b):
    """The array API leaves the promotion of different kinds open, and deft has rules of its own (docs/promotion.md)."""
    return np.dtype(a).kind != np.dtype(b).kind and "bool" not in (a, b) or "bool" in (a, b) and a != b


@call(ORDERED)
def shift(d, dtype):
    name, t = d.one(["bitwise_left_shift", "bitwise_right_shift"]), dtype if dtype in INTEGERS else "int32"
    s = d.shape()
    by = np.asarray(d.numbers.integers(0, np.iinfo(t).bits - 1, d.narrower(s)), t)
    return [d.array(s, t), by], name, lambda xp, x, y: getattr(xp, name)(x, y)


@call(ORDERED)
def clip(d, dtype):
    s = d.shape()
    a = d.array(s, dtype)
    low, high = sorted([d.random.randint(0, 5), d.random.randint(0, 5)])
    which = d.random.randint(0, 2)
    if which == 2:
        return [a, np.asarray(low, dtype), np.asarray(high, dtype)], "clip", lambda xp, x, p, q: xp.clip(x, p, q)
    return [a], "clip", lambda xp, x: xp.clip(x, low, high) if which else xp.clip(x, max=high)


@call(ALL)
def where(d, dtype):
    s = d.shape()
    return [d.array(d.narrower(s), "bool"), d.array(s, dtype), d.array(d.narrower(s), dtype)], "where", lambda xp, c, x, y: xp.where(c, x, y)


# ---- reductions and running values ----

REDUCTIONS = {"sum": NUMBERS, "prod": NUMBERS, "max": ORDERED, "min": ORDERED, "mean": REALS, "var": REALS, "std": REALS, "any": ALL,
              "all": ALL, "count_nonzero": ALL}


@call(ALL, 4)
def reduction(d, dtype):
    name = d.next(REDUCTIONS)
    dtype = d.one(REDUCTIONS[name])
    a = d.array(d.shape(), dtype)
    more = {"axis": d.axes(a), "keepdims": d.chance(0.5)}
    if name in ("var", "std"):
        more["correction"] = d.one([0, 0, 1, 0.5])
    if name in ("sum", "prod") and d.chance(0.2) and dtype in REALS:
        more["dtype"] = "float64"
    return [a], name, lambda xp, x: getattr(xp, name)(x, **typed(xp, more))


def typed(xp, more):
    return {k: getattr(xp, v) if k == "dtype" else v for k, v in more.items()}


@call(ORDERED)
def arg_extreme(d, dtype):
    a = d.array(d.shape(1), dtype)
    name, axis = d.one(["argmax", "argmin"]), None if d.chance(0.3) else d.axis(a)
    keep = d.chance(0.5)
    return [a], name, lambda xp, x: getattr(xp, name)(x, axis=axis, keepdims=keep)


@call(NUMBERS)
def running(d, dtype):
    a = d.array(d.shape(1), dtype)
    name, axis, initial = d.one(["cumulative_sum", "cumulative_prod"]), d.axis(a), d.chance(0.5)
    return [a], name, lambda xp, x: getattr(xp, name)(x, axis=axis, include_initial=initial)


@call(NUMBERS)
def diff(d, dtype):
    a = d.array(d.shape(1), dtype)
    axis, n = d.axis(a), d.random.randint(1, 2)    # with n = 0, NumPy leaves out what is joined to the array
    more = list(a.shape)
    more[axis] = d.random.randint(0, 2)
    end = d.array(tuple(more), dtype)
    which = d.one([{}, {"prepend": 1}, {"append": 1}])
    return [a, end], "diff", lambda xp, x, e: xp.diff(x, axis=axis, n=n, **{k: e for k in which})


# ---- creation ----

@call(ALL)
def creation(d, dtype):
    name, s = d.one(["zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "eye", "arange", "linspace"]), d.shape()
    a, number = d.array(s, dtype), True if dtype == "bool" else d.random.randint(0, 5)
    if name in ("zeros", "ones"):
        return [], name, lambda xp: getattr(xp, name)(s, dtype=getattr(xp, dtype))
    if name == "full":
        return [], name, lambda xp: xp.full(s, number, dtype=getattr(xp, dtype))
    if name.endswith("like"):
        more = (number,) if name == "full_like" else ()
        return [a], name, lambda xp, x: getattr(xp, name)(x, *more)
    if name == "eye":
        n, m, k = d.random.randint(0, 5), d.one([None, 0, 3, 6]), d.random.randint(-6, 6)
        return [], name, lambda xp: xp.eye(n, m, k=k, dtype=getattr(xp, dtype))
    if name == "arange":
        t = dtype if dtype in ORDERED else "int64"
        start, step = d.random.randint(0, 5), d.one([1, 2, 3]) if t in UNSIGNED else d.one([1, 2, -1, -3])
        stop = start + d.random.randint(0, 9) * (1 if step > 0 else -1)
        if stop < 0 and t in UNSIGNED:
            stop = 0
        return [], name, lambda xp: xp.arange(start, stop, step, dtype=getattr(xp, t))
    t, n, ends = d.one(REALS), d.random.randint(0, 9), d.chance(0.5)
    low, high = d.random.uniform(-3, 3), d.random.uniform(-3, 3)
    return [], name, lambda xp: xp.linspace(low, high, n, dtype=getattr(xp, t), endpoint=ends)


@call(ALL)
def triangle(d, dtype):
    name, k = d.one(["tril", "triu"]), d.random.randint(-4, 4)
    return [d.array(d.shape(2, 3), dtype)], name, lambda xp, x: getattr(xp, name)(x, k=k)


@call(NUMBERS)
def meshgrid(d, dtype):
    arrays = [d.array(d.shape(1, 1), dtype) for _ in range(d.random.randint(1, 3))]
    how = d.one(["xy", "ij"])
    return arrays, "meshgrid", lambda xp, *x: xp.meshgrid(*x, indexing=how)


# ---- shapes ----

@call(ALL, 4)
def shapes(d, dtype):
    a = d.array(d.shape(1), dtype)
    name = d.one(["expand_dims", "squeeze", "flip", "permute_dims", "moveaxis", "reshape", "roll", "repeat", "tile", "unstack",
                  "matrix_transpose", "broadcast_to"])
    if name == "expand_dims":
        axis = d.random.randint(-a.ndim - 1, a.ndim)
        return [a], name, lambda xp, x: xp.expand_dims(x, axis=axis)
    if name == "squeeze":
        axis = d.random.randint(0, a.ndim)
        return [np.expand_dims(a, axis)], name, lambda xp, x: xp.squeeze(x, axis)
    if name == "flip":
        axes = d.axes(a)
        return [a], name, lambda xp, x: xp.flip(x, axis=axes)
    if name == "permute_dims":
        order = tuple(d.random.sample(range(a.ndim), a.ndim))
        return [a], name, lambda xp, x: xp.permute_dims(x, order)
    if name == "moveaxis":
        n = d.random.randint(1, a.ndim)
        source, to = d.random.sample(range(a.ndim), n), d.random.sample(range(a.ndim), n)
        return [a], name, lambda xp, x: xp.moveaxis(x, tuple(source), tuple(to))
    if name == "reshape":
        s = d.one([(-1,), a.shape[::-1], (1, a.size), (a.size, 1)])
        return [a if s != (-1,) or a.size else np.ones(2, dtype)], name, lambda xp, x: xp.reshape(x, s)
    if name == "roll":
        axes = d.axes(a)
        by = d.random.randint(-7, 7) if not isinstance(axes, tuple) else tuple(d.random.randint(-7, 7) for _ in axes)
        return [a], name, lambda xp, x: xp.roll(x, by, axis=axes)
    if name == "repeat":
        axis = None if d.chance(0.3) else d.axis(a)
        n = a.size if axis is None else a.shape[axis]
        if d.chance(0.5) and n:
            times = np.asarray(d.numbers.integers(0, 3, n))
            return [a, times], name, lambda xp, x, t: xp.repeat(x, t, axis=axis)
        k = d.random.randint(0, 3)
        return [a], name, lambda xp, x: xp.repeat(x, k, axis=axis)
    if name == "tile":
        times = tuple(d.random.randint(0, 3) for _ in range(d.random.randint(0, 4)))
        return [a], name, lambda xp, x: xp.tile(x, times)
    if name == "unstack":
        axis = d.axis(a)
        return [a], name, lambda xp, x: list(xp.unstack(x, axis=axis))
    if name == "matrix_transpose":
        return [d.array(d.shape(2, 4), dtype)], name, lambda xp, x: xp.matrix_transpose(x)
    s = (2,) + a.shape
    return [a], name, lambda xp, x: xp.broadcast_to(x, s)


@call(ALL)
def joined(d, dtype):
    name, s = d.one(["concat", "stack"]), d.shape(1)
    if name == "stack":
        axis = d.random.randint(-len(s) - 1, len(s))
        return [d.array(s, dtype) for _ in range(d.random.randint(1, 3))], name, lambda xp, *x: xp.stack(x, axis=axis)
    axis, parts = d.random.randrange(-len(s), len(s)), []
    for _ in range(d.random.randint(1, 3)):
        extents = list(s)
        extents[axis] = d.random.randint(0, 4)
        parts.append(d.array(tuple(extents), dtype))
    flat = d.chance(0.2)
    return parts, name, lambda xp, *x: xp.concat(x, axis=None if flat else axis)


@call(ALL)
def broadcast_arrays(d, dtype):
    s = d.shape()
    return [d.array(s, dtype), d.array(d.narrower(s), dtype)], "broadcast_arrays", lambda xp, *x: list(xp.broadcast_arrays(*x))


# ---- searching, sorting, sets ----

@call(ORDERED, 2)
def sorting(d, dtype):
    a = d.array(d.shape(1), dtype)
    name, axis = d.one(["sort", "argsort"]), d.axis(a)
    return [a], name, lambda xp, x: getattr(xp, name)(x, axis=axis, stable=True)


@call(ORDERED)
def searchsorted(d, dtype):
    edges, values = np.sort(d.array(d.shape(1, 1), dtype)), d.array(d.shape(), dtype)
    side = d.one(["left", "right"])
    return [edges, values], "searchsorted", lambda xp, e, v: xp.searchsorted(e, v, side=side)


@call(ALL)
def nonzero(d, dtype):
    return [d.array(d.shape(1), dtype)], "nonzero", lambda xp, x: list(xp.nonzero(x))


@call(ORDERED, 2)
def sets(d, dtype):
    name = d.one(["unique_all", "unique_counts", "unique_inverse", "unique_values"])
    a = np.nan_to_num(d.array(d.shape(), dtype)) + np.asarray(0, dtype)    # all NaNs are one value of deft, and zeros have one sign
    # The values of unique_values are in no order that the standard names.
    return [a], name, lambda xp, x: xp.sort(xp.unique_values(x)) if name == "unique_values" else list(getattr(xp, name)(x))


@call(ALL, 2)
def taking(d, dtype):
    a = d.array(d.shape(1), dtype)
    axis = d.axis(a)
    n = a.shape[axis]
    if d.chance(0.5):
        at = np.asarray(d.numbers.integers(-n, n, d.random.randint(0, 5)) if n else np.zeros(0), "int64")
        return [a, at], "take", lambda xp, x, i: xp.take(x, i, axis=axis)
    s = list(a.shape)
    s[axis] = d.random.randint(0, 4) if n else 0
    at = np.asarray(d.numbers.integers(-n, n, s) if n else np.zeros(s), "int64")
    return [a, at], "take_along_axis", lambda xp, x, i: xp.take_along_axis(x, i, axis=axis)


# ---- products ----

@call(NUMBERS, 2)
def products(d, dtype):
    name = d.one(["matmul", "tensordot", "vecdot", "outer"])
    batch, (m, k, n) = d.shape(0, 2), (d.random.randint(0, 4) for _ in range(3))
    finite = (lambda s: np.nan_to_num(d.array(s, dtype), posinf=1, neginf=2))
    if name == "matmul":
        a = finite(d.one([(k,), (m, k), batch + (m, k)]))
        b = finite(d.one([(k,), (k, n), d.narrower(batch) + (k, n)]))
        return [a, b], name, lambda xp, x, y: xp.matmul(x, y)
    if name == "vecdot":
        s = batch + (k,)
        axis = d.random.randint(-len(s), -1)
        return [finite(s), finite(s)], name, lambda xp, x, y: xp.vecdot(x, y, axis=axis)
    if name == "outer":
        return [finite((m, 1)), finite((n,))], "multiply", lambda xp, x, y: xp.multiply(x, y)
    if d.chance(0.5):
        return [finite((m, k, n)), finite((k, n, m))], name, lambda xp, x, y: xp.tensordot(x, y, axes=2)
    return [finite((m, k, n)), finite((n, m))], name, lambda xp, x, y: xp.tensordot(x, y, axes=((0, 2), (1, 0)))


# ---- dtypes ----

@call(ALL)
def astype(d, dtype):
    to = d.one(NUMBERS if dtype == "bool" else COMPLEX if dtype in COMPLEX else ["bool", *ALL[1:]])
    a = np.nan_to_num(d.array(d.shape(), dtype), posinf=1, neginf=2)
    if to in INTEGERS and dtype in REALS:
        a = np.abs(np.clip(a, -100, 100))
    return [a], "astype", lambda xp, x: xp.astype(x, getattr(xp, to))


# ---- views, and functions that are compiled ----

def as_view(d, a):
    """An array of deft with the elements of a, which shows those of another one."""
    how = d.one(["reversed steps", "permuted", "memory", "padded", "pending", "joined"])
    if not a.ndim or not a.size or how == "pending":
        return deft.reshape(deft.asarray(a.copy()), (1, *a.shape))[0]
    axis, order = d.random.randrange(a.ndim), d.random.sample(range(a.ndim), a.ndim)
    if how == "permuted":
        return deft.permute_dims(deft.asarray(np.ascontiguousarray(np.transpose(a, order))), [order.index(i) for i in range(a.ndim)])
    if how == "memory":
        part = np.zeros([2 * n for n in a.shape], a.dtype)[(slice(None, None, -2),) * a.ndim]
        part[...] = a
        return deft.asarray(part)
    if how == "joined":
        return deft.concat([deft.asarray(p.copy()) for p in np.split(a, [a.shape[axis] // 2], axis)], axis=axis)
    step, extents = d.random.randint(1, 3), list(a.shape)
    where = [slice(1, n + 1) for n in a.shape]
    if how == "reversed steps":
        last = (a.shape[axis] - 1) * step + 1
        extents[axis], where[axis] = last, slice(last, 0, -step)
    whole = np.ones([n + 2 for n in extents], a.dtype)
    whole[tuple(where)] = a
    return deft.asarray(whole)[tuple(where)]


def then(how, xp, r):
    """What else is done with a result."""
    if isinstance(r, (list, tuple)):
        return [then(how, xp, x) for x in r]
    if not r.ndim:
        return r
    if how == "turn":
        return xp.flip(xp.permute_dims(r, tuple(range(r.ndim))[::-1]))
    if how == "double":
        return xp.concat([r, r], axis=-1)[..., ::-2]
    if how == "assign" and r.size:
        r = xp.asarray(r, copy=True)
        r[::-1] = xp.asarray(r, copy=True)
        r[0] = r[-1]
    return r


class Standard(unittest.TestCase):
    def check(self, got, want, of):
        if isinstance(want, (list, tuple)):
            self.assertEqual(len(got), len(want), of)
            for g, w in zip(got, want):
                self.check(g, w, of)
            return
        got, want = np.asarray(got), np.asarray(want)
        self.assertEqual((got.shape, got.dtype), (want.shape, want.dtype), of)
        if want.dtype.kind not in "fc":
            np.testing.assert_array_equal(got, want, of)
            return
        scale = np.max(np.abs(np.where(np.isfinite(want), want, 0)), initial=1)
        precision = np.finfo(want.dtype).eps
        np.testing.assert_allclose(got, want, rtol=64 * precision, atol=64 * precision * scale, err_msg=of)

    def test_beside_numpy(self):
        d, compared = Draw(SEED), {}
        names = [n for n, (_, _, weight) in CALLS.items() for _ in range(weight)]
        for _ in range(6000):
            draw, dtypes, _ = CALLS[d.one(names)]
            arrays, name, run = draw(d, d.one(dtypes))
            try:
                want = run(np, *arrays)
            except (ValueError, IndexError):    # a reduction without elements, and the like
                continue
            of = f"{name} of {', '.join(f'{a.dtype}{list(a.shape)}' for a in arrays)}: {[a.tolist() for a in arrays]}"
            try:
                got = run(deft, *(deft.asarray(a.copy()) for a in arrays))
            except Exception as e:
                raise AssertionError(f"{of}: {type(e).__name__}: {e}") from e
            self.check(got, want, of)
            compared[name] = compared.get(name, 0) + 1
        names = {*UNARY, *BINARY, *REDUCTIONS}
        self.assertEqual(names - set(compared), set())
        self.assertGreater(sum(compared.values()), 5000)
        print(f"{sum(compared.values())} calls of {len(compared)} functions")

    def test_views_and_compiled_functions(self):
        d, names = Draw(SEED + 1), [n for n, (_, _, weight) in CALLS.items() for _ in range(weight)]
        n_compared = 0
        for _ in range(1000):
            draw, dtypes, _ = CALLS[d.one(names)]
            arrays, name, run = draw(d, d.one(dtypes))
            how, is_compiled = d.one(["nothing", "turn", "double", "assign"]), d.chance(0.7)
            try:
                want = run(np, *arrays)
            except (ValueError, IndexError):
                continue
            want = then(how, np, [np.asarray(w) for w in want] if isinstance(want, (list, tuple)) else np.asarray(want))
            of = f"{name}, then {how}, {'compiled' if is_compiled else ''}, of {[a.tolist() for a in arrays]}"

            def call(*x):
                return then(how, deft, run(deft, *x))
            fn = deft.compile(call) if is_compiled else call
            try:
                for xs in [as_view(d, a) for a in arrays], [deft.asarray(a.copy()) for a in arrays]:
                    self.check(fn(*xs), want, of)
            except Exception as e:
                raise AssertionError(f"{of}: {type(e).__name__}: {e}") from e
            n_compared += 1
        self.assertGreater(n_compared, 800)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
