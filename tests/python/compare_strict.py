# SPDX-License-Identifier: Apache-2.0
"""Drawn calls of the array API, beside array-api-strict, which is NumPy behind the letter of the standard.

compare_strict.py [SEED]. DEFT_TEST_SECONDS: how long (1). Ends with 77 (skipped) where array_api_strict is not installed.
"""
import math
import os
import random
import sys
import time
import warnings

try:
    import array_api_strict as strict
    import numpy as np
except ImportError:
    print("array_api_strict is not installed")
    sys.exit(77)
import deft

strict.set_array_api_strict_flags(api_version="2024.12")
warnings.filterwarnings("ignore")
np.seterr(all="ignore")
SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 1
rng = random.Random(SEED)
FLOATS, SIGNED, UNSIGNED = ["float32", "float64"], ["int8", "int16", "int32", "int64"], ["uint8", "uint16", "uint32", "uint64"]
INTS = SIGNED + UNSIGNED
COMPLEX = ["complex64", "complex128"]
EVERY = ["bool"] + INTS + FLOATS + COMPLEX
# Values that are not rounded correctly on one side or the other.
INEXACT = set("acos acosh asin asinh atan atan2 atanh cos cosh exp expm1 log log1p log2 log10 logaddexp pow sin sinh tan tanh "
              "hypot mean var std cumulative_sum sum prod cumulative_prod matmul vecdot tensordot linspace abs divide "
              "multiply reciprocal sign sqrt square".split())
UNARY = {**{n: FLOATS for n in "acos acosh asin asinh atan atanh cos cosh exp expm1 log log1p log2 log10 sin sinh sqrt tan "
                               "tanh reciprocal signbit".split()},
         **{n: INTS + FLOATS for n in "ceil floor round trunc isfinite isinf isnan square".split()},
         **{n: SIGNED + FLOATS for n in ["abs", "negative", "sign"]},
         "positive": INTS + FLOATS, "logical_not": ["bool"], "bitwise_invert": ["bool"] + INTS}
BINARY = {**{n: INTS + FLOATS for n in "add subtract multiply maximum minimum".split()},
          **{n: FLOATS for n in "divide atan2 copysign hypot logaddexp nextafter pow".split()},
          **{n: FLOATS + INTS for n in ["floor_divide", "remainder"]},
          **{n: INTS + FLOATS for n in "greater greater_equal less less_equal".split()},
          "equal": EVERY, "not_equal": EVERY,
          **{n: ["bool"] for n in "logical_and logical_or logical_xor".split()},
          **{n: ["bool"] + INTS for n in "bitwise_and bitwise_or bitwise_xor".split()}}
REDUCE = {"sum": INTS + FLOATS, "prod": INTS + FLOATS, "max": INTS + FLOATS, "min": INTS + FLOATS, "mean": FLOATS, "var": FLOATS,
          "std": FLOATS, "all": EVERY, "any": EVERY, "count_nonzero": EVERY}


def shape():
    return tuple(rng.choice([0, 1, 2, 3, 4, 5] if rng.random() < 0.2 else [1, 2, 3, 4]) for _ in range(rng.randrange(4)))


def elements(dims, dtype):
    n = int(np.prod(dims))
    if dtype in COMPLEX:
        part = "float32" if dtype == "complex64" else "float64"
        return (elements(dims, part) + elements(dims, part) * np.array(1j, dtype)).astype(dtype)
    if dtype == "bool":
        values = [rng.random() < 0.5 for _ in range(n)]
    elif dtype in FLOATS:
        special = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0, -1.0, 0.5]
        values = [rng.choice(special) if rng.random() < 0.2 else rng.uniform(-4, 4) for _ in range(n)]
    else:
        low = 0 if dtype[0] == "u" else -9
        values = [rng.randrange(low, 10) for _ in range(n)]
    return np.array(values, dtype=dtype).reshape(dims)


def broadcastable(dims):
    cut = dims[rng.randrange(len(dims) + 1):]
    return tuple(1 if rng.random() < 0.3 else d for d in cut)


def axis_of(rank, many=True):
    if rank == 0 or rng.random() < 0.25:
        return None
    if many and rng.random() < 0.4:
        return tuple(a - rank * (rng.random() < 0.5) for a in rng.sample(range(rank), rng.randint(1, rank)))
    return rng.randrange(-rank, rank)


def plain(xp, x):
    """Floats that every integer dtype can hold: what else becomes of them is not defined."""
    return xp.abs(xp.where(xp.isfinite(x), x, xp.zeros_like(x))) if xp.isdtype(x.dtype, "real floating") else x


class Case:
    """A call: its name, arrays, and what is done with a namespace and the arrays."""

    def __init__(self, name, arrays, call):
        self.name, self.arrays, self.call = name, arrays, call


def draw_unary():
    name = rng.choice(sorted(UNARY))
    return Case(name, [elements(shape(), rng.choice(UNARY[name]))], lambda xp, x: getattr(xp, name)(x))


def draw_binary():
    name = rng.choice(sorted(BINARY))
    a, b = rng.choice(BINARY[name]), rng.choice(BINARY[name])
    kinds = {"bool": 0, "i": 1, "u": 1, "f": 2, "c": 3}
    if kinds["bool" if a == "bool" else a[0]] != kinds["bool" if b == "bool" else b[0]] or "uint64" in (a, b):
        b = a                       # the standard has no rule, or the two differ by design (docs/promotion.md)
    dims = shape()
    x, y = elements(dims, a), elements(broadcastable(dims), b)
    if name in ("floor_divide", "remainder") and a not in FLOATS:
        y = np.where(y == 0, np.ones_like(y), y)
    return Case(name, [x, y], lambda xp, x, y: getattr(xp, name)(x, y))


def draw_scalar():
    op = rng.choice(["+", "-", "*", "<", "==", ">="])
    dtype = rng.choice(INTS + FLOATS)
    value = rng.choice([0.5, -1.5, 2.0]) if dtype in FLOATS else rng.randrange(4)
    left = rng.random() < 0.5
    expression = f"v {op} x" if left else f"x {op} v"
    return Case(expression.replace("v", repr(value)), [elements(shape(), dtype)], lambda xp, x: eval(expression, {"x": x, "v": value}))


def draw_reduce():
    name = rng.choice(sorted(REDUCE))
    x = elements(shape(), rng.choice(REDUCE[name]))
    axis, keep = axis_of(x.ndim), rng.random() < 0.5
    if x.size == 0 and name in ("max", "min", "mean", "var", "std"):
        x = elements((2, 3), str(x.dtype))
        axis = axis_of(2)
    return Case(f"{name}(axis={axis}, keepdims={keep})", [x], lambda xp, x: getattr(xp, name)(x, axis=axis, keepdims=keep))


def draw_shape():
    x = elements(shape(), rng.choice(EVERY))
    n = x.ndim
    choices = [("reshape", lambda xp, x: xp.reshape(x, (-1,) if x.size else (0,))),
               ("flip", lambda xp, x, a=axis_of(n): xp.flip(x, axis=a)),
               ("roll", lambda xp, x, a=axis_of(n, False), s=rng.randrange(-5, 6): xp.roll(x, s, axis=a)),
               ("tile", lambda xp, x, r=tuple(rng.randrange(1, 3) for _ in range(rng.randrange(1, 4))): xp.tile(x, r)),
               ("astype", lambda xp, x, d=rng.choice(COMPLEX if str(x.dtype) in COMPLEX else EVERY): xp.astype(plain(xp, x), getattr(xp, d))),
               ("expand_dims", lambda xp, x, a=rng.randrange(-n - 1, n + 1): xp.expand_dims(x, axis=a)),
               ("permute_dims", lambda xp, x, o=tuple(rng.sample(range(n), n)): xp.permute_dims(x, o)),
               ("broadcast_to", lambda xp, x: xp.broadcast_to(x, (2, *x.shape)))]
    if n:
        a = rng.randrange(-n, n)
        choices += [("concat", lambda xp, x: xp.concat([x, x], axis=a)), ("stack", lambda xp, x: xp.stack([x, x], axis=a)),
                    ("repeat", lambda xp, x, r=rng.randrange(3): xp.repeat(x, r, axis=a)),
                    ("unstack", lambda xp, x: xp.unstack(x, axis=a)),
                    ("moveaxis", lambda xp, x, b=rng.randrange(-n, n): xp.moveaxis(x, a, b))]
        if str(x.dtype) in COMPLEX:
            choices.append(("diff", lambda xp, x: xp.diff(x, axis=a)))
        elif x.dtype != bool:
            choices += [("sort", lambda xp, x, d=rng.random() < 0.5: xp.sort(x, axis=a, descending=d)),
                        ("argsort", lambda xp, x: xp.argsort(x, axis=a)),
                        ("cumulative_sum", lambda xp, x, i=rng.random() < 0.5: xp.cumulative_sum(x, axis=a, include_initial=i)),
                        ("diff", lambda xp, x: xp.diff(x, axis=a))]
            if x.shape[a]:
                choices += [("argmax", lambda xp, x: xp.argmax(x, axis=a)), ("argmin", lambda xp, x: xp.argmin(x, axis=a))]
        if x.shape[a]:
            k = np.array([rng.randrange(-x.shape[a], x.shape[a]) for _ in range(3)])
            choices.append(("take", lambda xp, x: xp.take(x, xp.asarray(k), axis=a)))
    if n >= 2:
        choices += [("tril", lambda xp, x, k=rng.randrange(-2, 3): xp.tril(x, k=k)), ("matrix_transpose", lambda xp, x: xp.matrix_transpose(x))]
    name, call = rng.choice(choices)
    return Case(name, [x], call)


def index(dims):
    key = []
    for d in dims[:rng.randrange(len(dims) + 1)]:
        how = rng.random()
        if how < 0.3 and d:
            key.append(rng.randrange(-d, d))
        elif how < 0.85:
            bounds = [None, *range(-d - 1, d + 2)]
            key.append(slice(rng.choice(bounds), rng.choice(bounds), rng.choice([None, 1, 2, -1, -2])))
        else:
            key += [None, slice(None)]
    if rng.random() < 0.5:
        key.append(...)
    return tuple(key)


def draw_index():
    x = elements(shape(), rng.choice(EVERY))
    if rng.random() < 0.3:
        mask = elements(x.shape, "bool")
        return Case("x[mask]", [x, mask], lambda xp, x, m: x[m])
    key = index(x.shape)
    if rng.random() < 0.4 and all(k is not None for k in key):
        def put(xp, x):
            y = xp.asarray(x, copy=True)
            y[key] = xp.asarray(1, dtype=y.dtype)
            return y
        return Case(f"x[{key}] = 1", [x], put)
    return Case(f"x[{key}]", [x], lambda xp, x: x[key if len(key) != 1 else key[0]])


def draw_creation():
    n, d = rng.randrange(0, 6), rng.choice(INTS + FLOATS)
    name, call = rng.choice([
        ("arange", lambda xp: xp.arange(n, 2 * n + 3, 2, dtype=getattr(xp, d))),
        ("linspace", lambda xp, e=rng.random() < 0.5: xp.linspace(-1.0, 2.0, n + 1, dtype=xp.float64, endpoint=e)),
        ("eye", lambda xp, k=rng.randrange(-2, 3): xp.eye(n, 3, k=k, dtype=getattr(xp, d))),
        ("full", lambda xp: xp.full((n, 2), 3, dtype=getattr(xp, d))),
        ("zeros", lambda xp: xp.zeros((n,), dtype=getattr(xp, d))), ("ones", lambda xp: xp.ones(n, dtype=getattr(xp, d)))])
    return Case(name, [], call)


def draw_product():
    k, d = rng.randrange(1, 5), rng.choice(FLOATS + ["int32", "int64"])
    finite = [np.nan_to_num(elements(s, d), nan=1, posinf=2, neginf=3) for s in [(3, k), (k, 2), (k,), (2, 3, k)]]
    a, b, v, batch = finite
    choices = [("tensordot", [a, b], lambda xp, a, b: xp.tensordot(a, b, axes=1)), ("vecdot", [batch, v], lambda xp, a, b: xp.vecdot(a, b)),
               ("matmul", [batch, b], lambda xp, a, b: xp.matmul(a, b)), ("@", [a, v], lambda xp, a, b: a @ b)]
    return Case(*rng.choice(choices))


def draw_set():
    x = elements(shape(), rng.choice(INTS + FLOATS + COMPLEX))
    x = np.where(np.isnan(x), np.zeros_like(x), x) if x.dtype.kind in "fc" else x
    choices = [("unique_values", lambda xp, x: xp.unique_values(x)), ("unique_counts", lambda xp, x: tuple(xp.unique_counts(x))),
               ("unique_inverse", lambda xp, x: tuple(xp.unique_inverse(x)))]
    if x.ndim:
        choices.append(("nonzero", lambda xp, x: xp.nonzero(x)))
    return Case(*(lambda c: (c[0], [x], c[1]))(rng.choice(choices)))


def draw_complex():
    """Calls on finite numbers, away from branch cuts."""
    d, k = rng.choice(COMPLEX), rng.randrange(1, 4)
    part = np.float32 if d == "complex64" else np.float64

    def some(*dims):
        parts = [rng.uniform(0.25, 2) * rng.choice([1, -1]) for _ in range(2 * math.prod(dims))]
        return np.array(parts, part).view(d).reshape(dims)
    name = rng.choice("abs acos acosh asin asinh atan atanh conj cos cosh exp expm1 imag log log1p log2 log10 negative real "
                      "reciprocal round sign sin sinh sqrt square tan tanh isfinite isnan".split())
    both = rng.choice("add subtract multiply divide equal not_equal pow".split())
    reduce = rng.choice("sum prod mean cumulative_sum cumulative_prod".split())
    number, op = rng.choice([2j, 1 - 0.5j, 3, 0.5]), rng.choice("+-*/")
    other = rng.choice([some(k), some(2, k).real, some(2, k).astype("complex128")])
    choices = [(name, [some(2, k)], lambda xp, x: getattr(xp, name)(x))] * 3
    choices += [(both, [some(2, k), other], lambda xp, x, y: getattr(xp, both)(x, y)),
                (reduce, [some(2, k)], lambda xp, x: getattr(xp, reduce)(x, axis=1)),
                ("multiply", [some(2, k)], lambda xp, x: eval(f"x {op} {number}") if number != 3 else eval(f"{number} {op} x")),
                ("multiply", [some(2, k).real.copy()], lambda xp, x: x * 2j if xp is deft else xp.asarray(np.asarray(x) * 2j)),
                ("vecdot", [some(2, k), some(k)], lambda xp, x, y: xp.vecdot(x, y)),
                ("matmul", [some(2, k), some(k, 3)], lambda xp, x, y: x @ y),
                ("tensordot", [some(2, k), some(k, 2)], lambda xp, x, y: xp.tensordot(x, y, axes=1)),
                ("full", [], lambda xp: xp.full((2,), 1 - 2j, dtype=getattr(xp, d))), ("eye", [], lambda xp: xp.eye(k, dtype=getattr(xp, d))),
                ("linspace", [], lambda xp: xp.linspace(1j, 2 - 1j, k + 1, dtype=getattr(xp, d)))]
    return Case(*rng.choice(choices))


DRAWS = [draw_unary, draw_binary, draw_scalar, draw_reduce, draw_shape, draw_index, draw_creation, draw_product, draw_set, draw_complex]


def as_list(made):
    return list(made) if isinstance(made, (tuple, list)) else [made]


def problem(case):
    """What differs, or None."""
    # The standard leaves most indices open, and NumPy defines them.
    reference = np if case.name.startswith("x[") else strict
    want = as_list(case.call(reference, *[reference.asarray(a) for a in case.arrays]))
    found = as_list(case.call(deft, *[deft.asarray(a) for a in case.arrays]))
    if len(want) != len(found):
        return f"{len(found)} results, not {len(want)}"
    for w, f in zip(want, found):
        w, f = np.asarray(w), np.asarray(f)
        if w.dtype != f.dtype or w.shape != f.shape:
            return f"{f.dtype}{f.shape}, not {w.dtype}{w.shape}"
        exact = case.name.partition("(")[0] not in INEXACT and case.name != "@"
        same = np.array_equal(f, w, equal_nan=w.dtype.kind in "fc") if exact else \
            np.allclose(f, w, rtol=3e-6 if w.dtype in (np.float32, np.complex64) else 1e-12, atol=1e-6, equal_nan=True)
        if not same:
            return f"{f.tolist()}, not {w.tolist()}"
    return None


def main():
    seconds, n, failures = float(os.environ.get("DEFT_TEST_SECONDS", "1")), 0, []
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(failures) < 10:
        case = DRAWS[n % len(DRAWS)]()
        n += 1
        try:
            found = problem(case)
        except Exception as e:  # noqa: BLE001
            found = f"{type(e).__name__}: {e}"
        if found:
            failures.append(f"{case.name} of {[(str(a.dtype), a.tolist()) for a in case.arrays]}: {found}")
    print(f"seed {SEED}: {n} calls, {len(failures)} differ")
    print("\n".join(failures))
    sys.exit(bool(failures))


main()
