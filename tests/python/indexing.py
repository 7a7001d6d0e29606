# SPDX-License-Identifier: Apache-2.0
"""Random indices, read and assigned, beside NumPy: shapes, dtypes and elements are equal. Ends with 77 without NumPy."""
import os
import random
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)
import deft

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
          "complex64", "complex128"]
SEED = int(os.environ.get("DEFT_SEED", "1"))
# Kinds of indices that a run must have compared.
KINDS = ("ints", "list", "mask", "scalar mask", "newaxis", "...", "int and arrays", "slice between arrays", "several masks")


class Indices:
    """Random arrays, indices and values."""

    def __init__(self, seed):
        self.random, self.numbers, self.kinds = random.Random(seed), np.random.default_rng(seed), set()

    def chance(self, p):
        return self.random.random() < p

    def array(self, shape, dtype):
        if dtype == "bool":
            return np.asarray(self.numbers.random(shape) < 0.5)
        if dtype[0] in "iu":
            limits = np.iinfo(dtype)
            low, high = (limits.min, limits.max) if self.chance(0.3) else (0 if dtype[0] == "u" else -9, 9)
            return np.asarray(self.numbers.integers(low, high, shape, dtype, endpoint=True))
        a = self.numbers.standard_normal(shape)
        return np.asarray(a + 1j * self.numbers.standard_normal(shape) if dtype[0] == "c" else a, dtype)

    def slice(self, n):
        bounds = [self.random.choice([None, self.random.randint(-n - 2, n + 2)]) for _ in range(2)]
        return slice(*bounds, self.random.choice([None, 1, 2, -1, -2, 3]))

    def selecting(self, shape, common):
        """(an array that selects, how many axes it takes)."""
        if self.chance(0.06):
            return np.asarray(self.numbers.random() < 0.5), 0
        if self.chance(0.3):
            n = self.random.randint(1, len(shape))
            extents = [0 if self.chance(0.05) else extent for extent in shape[:n]]
            return self.numbers.random(extents) < 0.4, n
        extents = tuple(1 if self.chance(0.2) else n for n in common[self.random.randint(0, len(common)):])
        at = self.numbers.integers(-shape[0], max(shape[0], 1), extents) if shape[0] else np.zeros((0,), int)
        return (at if self.chance(0.7) or not at.ndim else at.tolist()), 1

    def index(self, shape):
        common = tuple(self.random.randint(1, 3) for _ in range(self.random.randint(0, 2)))
        keys, axis, has_ellipsis, arrays = [], 0, False, self.chance(0.6)
        while axis < len(shape) and self.chance(0.85):
            if self.chance(0.12):
                keys.append(None)
            elif self.chance(0.1) and not has_ellipsis:
                keys.append(Ellipsis)
                has_ellipsis, axis = True, self.random.randint(axis, len(shape))
            elif arrays and self.chance(0.5):
                key, n = self.selecting(shape[axis:], common)
                keys.append(key)
                axis += n
            elif shape[axis] and self.chance(0.4):
                keys.append(self.random.randrange(-shape[axis], shape[axis]))
                axis += 1
            else:
                keys.append(self.slice(shape[axis]))
                axis += 1
        return keys[0] if len(keys) == 1 and self.chance(0.5) else tuple(keys)

    def given(self, value):
        """The value as numbers of Python: one, or nested lists. No lists stand for an array without elements."""
        if not value.size:
            return value
        return value.flat[0].item() if self.chance(0.4) else value.tolist()

    def note(self, key):
        keys = key if isinstance(key, tuple) else (key,)
        masks = [k for k in keys if getattr(k, "dtype", None) == bool]
        at = [i for i, k in enumerate(keys) if isinstance(k, (list, np.ndarray))]
        found = {"ints": any(isinstance(k, np.ndarray) and k.dtype != bool for k in keys),
                 "list": any(isinstance(k, list) for k in keys), "mask": any(m.ndim for m in masks),
                 "scalar mask": any(not m.ndim for m in masks), "newaxis": None in [k for k in keys if not hasattr(k, "ndim")],
                 "...": any(k is Ellipsis for k in keys), "int and arrays": bool(at) and any(isinstance(k, int) for k in keys),
                 "slice between arrays": bool(at) and any(isinstance(k, slice) for k in keys[at[0]:at[-1]]),
                 "several masks": len(masks) > 1}
        self.kinds |= {name for name, is_there in found.items() if is_there}


def assigned(array, key, value):
    array[key] = value
    return array


class Random(unittest.TestCase):
    def check(self, what, a, key, want, run):
        try:
            got = np.asarray(run())
        except Exception as e:
            raise AssertionError(f"{what} {a.dtype} {a.shape} at {key!r}: {type(e).__name__}: {e}") from e
        if got.shape != want.shape or got.dtype != want.dtype or not np.array_equal(got, want):
            raise AssertionError(f"{what} {a.dtype} {a.shape} at {key!r}: {got!r}, not {want!r}")

    def test_beside_numpy(self):
        draw, n_compared = Indices(SEED), 0
        for _ in range(3000):
            dtype = draw.random.choice(DTYPES)
            shape = tuple(draw.random.randint(0 if draw.chance(0.1) else 1, 5) for _ in range(draw.random.randint(0, 4)))
            a = draw.array(shape, dtype)
            key = draw.index(shape)
            try:
                part = np.asarray(a[key])
                extents = part.shape[draw.random.randint(0, part.ndim):] if part.ndim else ()
                value = draw.array(tuple(1 if draw.chance(0.2) else n for n in extents), dtype)
                want = assigned(a.copy(), key, value)
            except (IndexError, ValueError):
                continue
            if part.ndim > 7:
                continue
            draw.note(key)
            n_compared += 1
            given = draw.given(value)
            self.check(f"assigned {given!r}", a, key, assigned(a.copy(), key, given), lambda: assigned(deft.asarray(a.copy()), key, given))
            self.check("read", a, key, part, lambda: deft.asarray(a.copy())[key])
            self.check("assigned", a, key, want, lambda: assigned(deft.asarray(a.copy()), key, deft.asarray(value)))
        self.assertGreater(n_compared, 2000)
        self.assertEqual(set(KINDS) - draw.kinds, set())
        print(f"{n_compared} indices read and assigned")

    def test_the_program_may_write_to_its_index_and_its_value(self):
        x, at, value = deft.zeros(3), np.array([0, 2]), np.array([5, 6], dtype=np.float32)
        y = x[at]
        x[at] = value
        at[:], value[:] = 1, 9
        self.assertEqual((x.tolist(), y.tolist()), ([5, 0, 6], [0, 0]))

    def test_lists_and_leading_ones(self):
        x = deft.zeros((2, 3))
        x[0] = [1, 2, 3]
        x[1] = np.array([[4, 5, 6]], dtype=np.float32)
        x[[True, False]] = [[7, 8, 9]]
        self.assertEqual(x.tolist(), [[7, 8, 9], [4, 5, 6]])
        self.assertEqual(x[[]].shape, (0, 3))
        with self.assertRaisesRegex(IndexError, "more than 8 axes"):
            x[(None,) * 9]
        with self.assertRaises(deft.ShapeError):
            x[0] = [1, 2]


if __name__ == "__main__":
    unittest.main()
