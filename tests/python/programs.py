# SPDX-License-Identifier: Apache-2.0
"""Random programs of views and assignments, beside NumPy in which every view is copied: an array of deft is a value. A program
runs as Python, compiled, compiled inside another function, for a batch, and in a loop. Ends with 77 without NumPy 2.1 or
later. DEFT_SEED chooses the programs."""
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

SEED = int(os.environ.get("DEFT_SEED", "1"))
NUMBERS = {"bool": True, "int8": 3, "uint8": 4, "int32": -5, "int64": 2 ** 53 + 1, "float16": 0.5, "float32": 2.5, "float64": 0.1,
           "complex64": 1.5 + 2j, "complex128": 0.1 - 0.7j}


class Program:
    """Steps on a growing list of arrays. Equal seeds draw equal steps, in NumPy and in deft."""

    def __init__(self, seed, xp, arrays):
        self.random, self.xp, self.arrays, self.steps = random.Random(seed), xp, list(arrays), []

    def run(self):
        for _ in range(self.random.randint(3, 14)):
            at = self.random.randrange(len(self.arrays))
            how = self.random.choice(["part", "part", "moved", "joined", "store", "store", "store", "in_place", "masked", "picked"])
            getattr(self, how)(at, self.arrays[at])
        return self.arrays

    def add(self, array, text):
        self.arrays.append(np.array(array) if self.xp is np else array)
        self.steps.append(f"a{len(self.arrays) - 1} = {text}")

    def chance(self, p):
        return self.random.random() < p

    def number(self, x):
        return NUMBERS[x.dtype.name]

    def key(self, shape):
        key = []
        for n in shape:
            if self.chance(0.2):
                break
            bounds = [self.random.choice([None, self.random.randint(-n - 1, n + 1)]) for _ in range(2)]
            is_one = n and self.chance(0.35)
            key.append(self.random.randrange(-n, n) if is_one else slice(*bounds, self.random.choice([None, 1, 2, -1, -2])))
        if self.chance(0.15):
            key.append(Ellipsis)
        if self.chance(0.15):
            key.insert(self.random.randint(0, len(key)), None)
        return tuple(key)

    def part(self, at, x):
        key = self.key(x.shape)
        self.add(x[key], f"a{at}[{key}]")

    def moved(self, at, x):
        order = tuple(self.random.sample(range(x.ndim), x.ndim))
        how = self.random.choice(["flip", "permute_dims", "reshape", "broadcast_to", "asarray"])
        more = {"permute_dims": (order,), "reshape": ((x.size,),), "broadcast_to": ((2, *x.shape),)}.get(how, ())
        if how != "broadcast_to" or x.ndim < 4:
            self.add(getattr(self.xp, how)(x, *more, **({"copy": True} if how == "asarray" else {})), f"{how} of a{at}")

    def joined(self, at, x):
        others = [i for i, y in enumerate(self.arrays) if (y.shape, y.dtype) == (x.shape, x.dtype)]
        other = self.random.choice(others)
        y = self.arrays[other]
        if x.ndim and self.chance(0.5):
            self.add(self.xp.concat([x, y], axis=self.random.randrange(x.ndim)), f"a{at} and a{other}")
        else:
            self.add(self.xp.where(x == y, y, x), f"where of a{at} and a{other}")

    def store(self, at, x):
        key = self.key(x.shape)
        to = x[key].shape
        fitting = [i for i, y in enumerate(self.arrays) if y.dtype == x.dtype and len(y.shape) <= len(to) and
                   all(n in (1, m) for n, m in zip(y.shape[::-1], to[::-1]))]
        if fitting and self.chance(0.6):
            of = self.random.choice(fitting)
            self.steps.append(f"a{at}[{key}] = a{of}")
            x[key] = self.arrays[of].copy() if self.xp is np else self.arrays[of]
        else:
            self.steps.append(f"a{at}[{key}] = {self.number(x)}")
            x[key] = self.number(x)

    def in_place(self, at, x):
        if x.dtype == self.xp.bool:
            return
        self.steps.append(f"a{at} += 2")
        x += 2

    def masked(self, at, x):
        mask = x == x if self.chance(0.5) else x != x
        self.steps.append(f"a{at} = {self.number(x)} at a mask")
        if x.ndim:
            x[mask] = self.number(x)

    def picked(self, at, x):
        if not x.ndim or not x.shape[0]:
            return
        rows = [self.random.randrange(-x.shape[0], x.shape[0]) for _ in range(self.random.randint(1, 3))]
        if self.chance(0.5):
            self.add(x[self.xp.asarray(rows)], f"rows {rows} of a{at}")
        else:
            self.steps.append(f"rows {rows} of a{at} = {self.number(x)}")
            x[self.xp.asarray(rows)] = self.number(x)


def compiled_before(fn, xs):
    """Replayed: the first call had other elements."""
    made = deft.compile(fn)
    made(*[deft.roll(x, 1) for x in xs])
    return made(*xs)


def of_a_batch(fn, xs):
    return [y[1] for y in deft.vmap(fn)(*[deft.stack([deft.roll(x, 1), x]) for x in xs])]


def of_a_loop(fn, xs):
    rows = tuple(deft.stack([deft.roll(x, 1), x]) for x in xs)
    return [y[1] for y in deft.scan(lambda state, row: (state, fn(*row)), deft.zeros(1), rows)[1]]


# (name, how a program runs, whether its assignments to arguments reach the caller)
WAYS = [("python", lambda fn, xs: fn(*xs), True), ("compiled", compiled_before, True),
        ("compiled twice", lambda fn, xs: deft.compile(lambda *x: deft.compile(fn)(*x))(*xs), True),
        ("closure", lambda fn, xs: deft.compile(lambda: fn(*xs))(), True),
        ("batch", of_a_batch, False), ("loop", of_a_loop, False)]


class Programs(unittest.TestCase):
    def check(self, got, want, of):
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            g = np.asarray(g)
            is_equal = g.shape == w.shape and g.dtype == w.dtype and np.array_equal(g, w)
            self.assertTrue(is_equal, f"{of}: a{i} is {g.tolist()}, not {w.tolist()}")

    def test_beside_numpy(self):
        draw, numbers, n_steps = random.Random(SEED), np.random.default_rng(SEED), 0
        for case in range(120):
            arrays = []
            for _ in range(draw.randint(1, 2)):
                shape = tuple(draw.randint(0 if draw.random() < 0.05 else 1, 4) for _ in range(draw.randint(0, 3)))
                arrays.append(np.asarray(numbers.integers(0, 9, shape)).astype(draw.choice(list(NUMBERS))))
            seed = (SEED, case)
            model = Program(str(seed), np, [a.copy() for a in arrays])
            with np.errstate(all="ignore"):
                want = model.run()
            n_steps += len(model.steps)
            for name, how, reaches_caller in WAYS:
                of = f"{seed} {name}, {[(a.dtype.name, a.shape) for a in arrays]}: {'; '.join(model.steps)}"
                xs = [deft.asarray(a.copy()) for a in arrays]
                try:
                    got = how(lambda *x: tuple(Program(str(seed), deft, x).run()), xs)
                except Exception as e:
                    raise AssertionError(f"{of}: {type(e).__name__}: {e}") from e
                self.check(got, want, of)
                self.check(xs, want[:len(xs)] if reaches_caller else arrays, of)
        self.assertGreater(n_steps, 500)
        print(f"{n_steps} steps in {len(WAYS)} ways")

    def test_gradients(self):
        """The programs are linear where they are steady, so that differences in NumPy are gradients."""
        def sums(xp, seed, arrays):
            made = Program(seed, xp, arrays).run()
            weights = [np.random.default_rng(i).standard_normal(a.shape) for i, a in enumerate(made)]
            return sum((xp.sum(a * xp.asarray(w)) for a, w in zip(made, weights)), xp.zeros((), dtype=xp.float64))

        draw, numbers = random.Random(SEED), np.random.default_rng(SEED)
        for case in range(40):
            seed = str((SEED, "gradients", case))
            shape = tuple(draw.randint(1, 3) for _ in range(draw.randint(1, 3)))
            x, way = numbers.standard_normal(shape), numbers.standard_normal(shape)
            ends = [sums(np, seed, [x + step * way]) for step in (1e-3, -1e-3)]
            want = (ends[0] - ends[1]) / 2e-3

            def fn(v):
                return sums(deft, seed, [v])
            for name, run in [("python", deft.grad(fn)), ("compiled", deft.compile(deft.grad(fn))),
                              ("of compiled", deft.grad(deft.compile(fn))), ("batch", lambda v: deft.vmap(deft.grad(fn))(v[None])[0])]:
                got = float(np.sum(np.asarray(run(deft.asarray(x.copy()))) * way))
                self.assertAlmostEqual(got, want, delta=1e-6 * (1 + abs(want)), msg=f"{seed} {name} of {x.shape}")


if __name__ == "__main__":
    unittest.main()
