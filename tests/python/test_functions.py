# SPDX-License-Identifier: Apache-2.0
"""compile, grad, vmap, scan, and streams of random numbers."""
import gc
import unittest

import deft


class Compile(unittest.TestCase):
    def test_a_part_is_another_array_in_recorded_functions_too(self):
        def slices(x):
            a = x * 1
            b, copy = a[0:2], deft.asarray(a, copy=True)
            c = b[0:1]
            b[0] = 5
            c[0] = 6
            copy[1] = 7
            a[2] = 8
            return a, b, c, copy

        def others(x):
            flipped, wide, zeros = deft.flip(x), deft.broadcast_to(x[None], (2, 3)), deft.zeros(3)
            same, part, positive = deft.real(x), zeros[1:], +x
            flipped[0], wide[0, 0], part[0], same[1], positive[2] = 5, 6, 7, 8, 9
            return x, flipped, wide, zeros, part, same, positive

        x = deft.asarray([1.0, 2, 3])
        want = {slices: [[1, 2, 8], [5, 2], [6], [1, 7, 3]],
                others: [[1, 2, 3], [5, 2, 1], [[6, 2, 3], [1, 2, 3]], [0, 0, 0], [7, 0], [1, 8, 3], [1, 2, 9]]}
        for fn, values in want.items():
            for run in (fn, deft.compile(fn), lambda v: [y[0] for y in deft.vmap(fn)(v[None])]):
                for _ in range(2):
                    self.assertEqual([y.tolist() for y in run(x)], values, fn.__name__)
            self.assertEqual(x.tolist(), [1, 2, 3])

        def step(state, row):
            part = state[0:2]
            part[0] = part[0] + row
            return deft.concat([part, state[2:]]), deft.sum(state)

        state, sums = deft.scan(step, x, x)
        self.assertEqual((state.tolist(), sums.tolist()), ([7, 2, 3], [6, 7, 9]))

    def test_gradients_of_a_function_that_assigns_its_argument(self):
        def loss(x):
            x[0] = 5
            x += 1
            return deft.sum(x * x)

        x = deft.asarray([1.0, 2, 3])
        for run in (deft.grad(loss), deft.compile(deft.grad(loss)), deft.grad(deft.compile(loss)),
                    lambda v: deft.vmap(deft.grad(loss))(v[None])[0]):
            self.assertEqual(run(x).tolist(), [0, 6, 8])
            self.assertEqual(x.tolist(), [1, 2, 3])

    def test_an_array_of_a_function_around_is_not_assigned(self):
        def adds(a):
            a += 1

        def stores(a):
            a[0] = 5

        def stores_in_part(a):
            a[:1][0] = 5

        for change in (adds, stores, stores_in_part):
            @deft.compile
            def outer(x):
                a = x[0] * 1

                def inner(row):
                    change(a)
                    return row + a
                return deft.vmap(inner)(x), deft.scan(lambda state, row: (state, inner(row)), deft.zeros(1), x), a

            if change is stores_in_part:    # a part is made inside
                self.assertEqual([y.tolist() for y in (outer(deft.ones((2, 2)))[0], outer(deft.ones((2, 2)))[2])],
                                 [[[2, 2], [2, 2]], [1, 1]])
                continue
            with self.assertRaisesRegex(deft.StateError, "from outside a loop, branch or vmap cannot be assigned"):
                outer(deft.ones((2, 2)))

    def test_parameters_are_numbers_of_64_bits(self):
        @deft.compile
        def read(x, number):
            return x * float(number) + deft.asarray([number, 1.0], dtype=deft.float64)

        @deft.compile
        def filled(x, number):
            return deft.full((2,), number, dtype=deft.float64), deft.full_like(x, number), deft.where(x > 0, number, x)

        x = deft.ones(2, dtype=deft.float64)
        for number in (0.1, 0.7):
            self.assertEqual(read(x, number).tolist(), [number + number, number + 1])
            self.assertEqual([y.tolist() for y in filled(x, number)], [[number, number]] * 3)
        self.assertEqual(deft.full(2, deft.asarray(3), dtype=deft.int8).tolist(), [3, 3])

    def test_diagonals_and_shifts_of_any_size(self):
        far, x = 2 ** 70, deft.ones((2, 2))
        self.assertEqual((deft.eye(2, k=far).tolist(), deft.eye(2, k=-far).tolist()), ([[0, 0], [0, 0]],) * 2)
        self.assertEqual((deft.tril(x, k=far).tolist(), deft.triu(x, k=far).tolist()), ([[1, 1], [1, 1]], [[0, 0], [0, 0]]))
        self.assertEqual((deft.tril(x, k=-far).tolist(), deft.triu(x, k=-far).tolist()), ([[0, 0], [0, 0]], [[1, 1], [1, 1]]))
        self.assertEqual(deft.roll(deft.arange(5), far).tolist(), [1, 2, 3, 4, 0])     # far is 4 after turns of 5
        self.assertEqual(deft.roll(deft.reshape(deft.arange(6), (2, 3)), (-far, 1), axis=(1, 0)).tolist(), [[4, 5, 3], [1, 2, 0]])
        self.assertEqual(deft.roll(deft.zeros((0, 3)), far, axis=0).shape, (0, 3))

    def test_a_replay_runs_no_python(self):
        runs = []

        @deft.compile
        def f(x, y):
            runs.append(1)
            return {"sum": x + y, "more": (x * 2, "text")}
        for i in range(5):
            made = f(deft.full((3,), i), deft.ones(3, dtype=deft.int64))
            self.assertEqual(made["sum"].tolist(), [i + 1] * 3)
            self.assertEqual((made["more"][0].tolist(), made["more"][1]), ([2 * i] * 3, "text"))
        n = len(runs)
        self.assertEqual(f.counters()["replayed"], 4)
        f(deft.ones(4), deft.ones(4))
        f(deft.ones(4), deft.ones(4))
        self.assertEqual(len(runs), n * 2)
        self.assertEqual(f.counters()["recordings"], 2)

    def test_floats_are_parameters_and_others_are_not(self):
        @deft.compile
        def f(x, a, n, flag=False):
            return x * a + n if flag else x - a
        x = deft.ones(2)
        self.assertEqual([f(x, a, 1, flag=True).tolist() for a in (2.0, 3.0, 0.5)], [[3, 3], [4, 4], [1.5, 1.5]])
        self.assertEqual(f.counters()["recordings"], 1)
        self.assertEqual(f(x, 2.0, 5, flag=True).tolist(), [7, 7])
        self.assertEqual(f(x, 2.0, 5).tolist(), [-1, -1])
        self.assertEqual(f.counters()["recordings"], 3)
        with self.assertRaisesRegex(TypeError, "neither an array nor hashable"):
            f(x, set(), 1)

    def test_assignments_take_effect_at_each_call(self):
        w, n = deft.zeros(3), deft.asarray(0)

        @deft.compile
        def step(w, g):
            nonlocal n
            w -= g * 0.5
            n += 1
            w[0] = 9
        for _ in range(4):
            self.assertIsNone(step(w, deft.ones(3)))
        self.assertEqual((w.tolist(), n.item()), ([9, -2, -2], 4))

    def test_a_failure_has_no_effect(self):
        w = deft.ones(2)
        ask = [True]

        @deft.compile
        def f(w):
            w += 1
            if ask[0]:
                raise KeyError("mine")
            return w * 1
        with self.assertRaisesRegex(KeyError, "mine"):
            f(w)
        self.assertEqual(w.tolist(), [1, 1])
        ask[0] = False
        self.assertEqual(f(w).tolist(), [2, 2])
        with self.assertRaises(deft.ShapeError):
            deft.compile(lambda a, b: a + b)(deft.ones(2), deft.ones(3))

    def test_arrays_do_not_escape(self):
        kept = []

        @deft.compile
        def f(x):
            kept.append(x + 1)
            return x
        f(deft.ones(2))
        for use in (lambda: kept[0] + 1, lambda: kept[0].shape, lambda: kept[0].tolist(), lambda: repr(kept[0])):
            with self.assertRaisesRegex(RuntimeError, "has ended"):
                use()

    def test_inside_other_functions(self):
        cube = deft.compile(lambda x: x ** 3)
        x = deft.asarray([1.0, 2.0, 3.0])
        cubes, slopes = [1, 8, 27], [3, 12, 27]
        self.assertEqual(cube(x).tolist(), cubes)
        self.assertEqual(deft.grad(lambda x: deft.sum(cube(x)))(x).tolist(), slopes)
        self.assertEqual(deft.grad(deft.compile(lambda x: deft.sum(cube(x))))(x).tolist(), slopes)
        self.assertEqual(deft.vmap(cube)(x).tolist(), cubes)
        self.assertEqual(deft.vmap(deft.grad(cube))(x).tolist(), slopes)
        outer = deft.compile(lambda x: (cube(x), deft.grad(lambda x: deft.sum(cube(x)))(x)))
        for _ in range(3):
            self.assertEqual([a.tolist() for a in outer(x)], [cubes, slopes])
        self.assertEqual(outer.counters()["replayed"], 2)
        self.assertEqual(deft.scan(lambda s, r: (s + cube(r), cube(s)), deft.zeros(()), x)[0].item(), 36)

        @deft.compile
        def step(w):
            w -= deft.grad(lambda w: deft.sum(cube(w)))(w)
            return w
        w = deft.ones(2)
        deft.compile(lambda: step(w))()
        self.assertEqual((w.tolist(), cube.counters()["calls"]), ([-2, -2], 1))

    def test_arrays_of_other_libraries(self):
        class Foreign:
            def __init__(self, *numbers):
                self.numbers = deft.asarray(numbers)

            def __dlpack__(self, **keywords):
                return self.numbers.__dlpack__(**keywords)
        a = Foreign(1.0, 2.0, 3.0)
        add = deft.compile(lambda p: p["x"] + 1)
        for _ in range(2):
            self.assertEqual(add({"x": a}).tolist(), [2, 3, 4])
        self.assertEqual(add.counters()["recordings"], 1)
        self.assertEqual(deft.vmap(lambda r: r * r)(a).tolist(), [1, 4, 9])
        self.assertEqual(deft.grad(lambda x: deft.sum(x * x))(a).tolist(), [2, 4, 6])
        self.assertEqual(deft.scan(lambda s, r: (s + r, ()), deft.zeros(()), a)[0].item(), 6)

    def test_values_that_the_function_reads(self):
        @deft.compile
        def f(x):
            return x * 2 if float(deft.sum(x)) > 0 else x
        self.assertEqual((f(deft.ones(2)).tolist(), f(-deft.ones(2)).tolist()), ([2, 2], [-1, -1]))

    def test_random_numbers_are_new(self):
        rng, same = deft.random.Generator(7), deft.random.Generator(7)
        f = deft.compile(lambda x: x + rng.normal((2,)))
        found = [f(deft.zeros(2)).tolist() for _ in range(3)]
        self.assertEqual(found, [same.normal((2,)).tolist() for _ in range(3)])
        self.assertEqual(f.counters()["replayed"], 2)

    def test_nothing_is_left(self):
        def work():
            w = deft.ones((4, 4))
            f = deft.compile(lambda x: (x @ w, x + 1))
            for _ in range(20):
                f(deft.ones((4, 4)))
        work()
        gc.collect()
        deft.eval()
        before = deft.stats()
        for _ in range(20):
            work()
        gc.collect()
        deft.eval()
        self.assertEqual(deft.stats()["live"], before["live"])
        self.assertLessEqual(deft.stats()["live_bytes"], before["live_bytes"] + 4096)


class Gradients(unittest.TestCase):
    def test_values(self):
        x = deft.asarray([1.0, 2.0])
        value, g = deft.value_and_grad(lambda x: deft.sum(x ** 3))(x)
        self.assertEqual((value.item(), g.tolist()), (9, [3, 12]))
        gx, gy = deft.grad(lambda x, y: deft.sum(x * x * y), argnums=(0, 1))(x, x)
        self.assertEqual((gx.tolist(), gy.tolist()), ([2, 8], [1, 4]))
        params = {"w": x, "b": [deft.ones(2)]}
        g = deft.grad(lambda p: deft.sum(p["w"] * p["b"][0]))(params)
        self.assertEqual((g["w"].tolist(), g["b"][0].tolist()), ([1, 1], [1, 2]))
        g, more = deft.grad(lambda x: (deft.sum(x), "more"), has_aux=True)(x)
        self.assertEqual((g.tolist(), more), ([1, 1], "more"))
        self.assertEqual(deft.grad(lambda x: x * x)(3.0).item(), 6)

    def test_of_gradients(self):
        f = lambda x: x ** 4  # noqa: E731
        self.assertEqual(deft.grad(deft.grad(f))(deft.asarray(2.0)).item(), 48)
        self.assertEqual(deft.grad(lambda x: deft.stop_gradient(x) * x)(deft.asarray(3.0)).item(), 3)

    def test_reads_inside(self):
        def f(x):
            y = x * x
            assert y.item() == 9
            return y * 2
        self.assertEqual(deft.grad(f)(deft.asarray(3.0)).item(), 12)

    def test_mistakes(self):
        with self.assertRaisesRegex(deft.ShapeError, "test_functions.py"):
            deft.grad(lambda x: x * 2)(deft.ones(3))
        with self.assertRaises(ZeroDivisionError):
            deft.grad(lambda x: 1 / 0)(deft.ones(3))
        self.assertEqual((deft.ones(2) + 1).tolist(), [2, 2])


class Vmap(unittest.TestCase):
    def test_values(self):
        x = deft.reshape(deft.arange(6.0), (2, 3))
        self.assertEqual(deft.vmap(deft.sum)(x).tolist(), [3, 12])
        self.assertEqual(deft.vmap(lambda r, s: (r * s, deft.sum(r)), in_axes=(0, None))(x, deft.ones(3))[1].tolist(), [3, 12])
        self.assertEqual(deft.vmap(deft.sum, in_axes=1)(x).tolist(), [3, 5, 7])
        self.assertEqual(deft.vmap(lambda r: r, out_axes=1)(x).shape, (3, 2))
        norms = deft.vmap(deft.grad(lambda w, r: deft.sum(w * r) ** 2), in_axes=(None, 0))(deft.ones(3), x)
        self.assertEqual(norms.tolist(), [[0, 6, 12], [72, 96, 120]])
        self.assertEqual(deft.vmap(deft.vmap(lambda v: v + 1))(x).tolist(), (x + 1).tolist())
        self.assertEqual(deft.grad(lambda x: deft.sum(deft.vmap(lambda r: r * r)(x)))(x).tolist(), (2 * x).tolist())

    def test_mistakes(self):
        with self.assertRaises(deft.ShapeError):
            deft.vmap(lambda a, b: a + b)(deft.ones((2, 3)), deft.ones((3, 3)))
        with self.assertRaises(ZeroDivisionError):
            deft.vmap(lambda a: 1 / 0)(deft.ones(2))
        self.assertEqual((deft.ones(2) + 1).tolist(), [2, 2])

    def test_inside_compile(self):
        f = deft.compile(lambda x: deft.vmap(deft.grad(lambda r: deft.sum(r * r)))(x))
        for _ in range(3):
            self.assertEqual(f(deft.ones((2, 2))).tolist(), [[2, 2], [2, 2]])


class Scan(unittest.TestCase):
    def test_values(self):
        last, rows = deft.scan(lambda s, r: (s + r, s * 2), deft.zeros(()), deft.asarray([1.0, 2, 3]))
        self.assertEqual((last.item(), rows.tolist()), (6, [0, 2, 6]))
        (a, b), none = deft.scan(lambda s, _: ((s[1], s[0] + s[1]), ()), (deft.asarray(0), deft.asarray(1)), length=10)
        self.assertEqual((a.item(), none), (55, ()))
        self.assertEqual(deft.grad(lambda w: deft.scan(lambda s, _: (s * w, ()), deft.ones(()), length=3)[0])(2.0).item(), 12)


class Headers(unittest.TestCase):
    def test_every_function_of_the_headers_is_there(self):
        for name, f in deft._deft.functions.items():
            self.assertTrue(callable(getattr(deft, name)), name)
            self.assertTrue(all(len(p) == 3 for p in f.parameters), name)
        with self.assertRaisesRegex(AttributeError, "no attribute 'nothing'"):
            deft.nothing
        self.assertEqual(deft.softplus(deft.zeros(2)).shape, (2,))
        self.assertEqual(deft.mse_loss(deft.ones(3), deft.zeros(3), reduction=1).item(), 3)
        self.assertEqual(deft.conv(deft.ones((1, 1, 8)), deft.ones((1, 1, 3)), stride=2).shape, (1, 1, 3))
        self.assertEqual(deft.layer_norm(deft.ones((2, 3)), 1, eps=1e-5).tolist(), [[0] * 3] * 2)
        x = deft.ones((1, 1, 4, 2))
        self.assertEqual(deft.interpolate(x, (), scale=[1.5, 2]).shape, (1, 1, 6, 4))
        self.assertEqual(deft.interpolate(x, (), scale=2).shape, (1, 1, 8, 4))
        self.assertEqual(deft.grid_sample(x, deft.zeros((1, 3, 5, 2)), mode=1).shape, (1, 1, 3, 5))
        with self.assertRaisesRegex(TypeError, "no text"):
            deft._deft.functions["einsum"](1, [x])

    def test_einsum(self):
        a, b = deft.asarray([[1, 2], [3, 4]]), deft.asarray([5, 6])
        self.assertEqual(deft.einsum("ij,j->i", a, b).tolist(), [17, 39])
        self.assertEqual(deft.einsum("ii", a).item(), 5)
        self.assertEqual(deft.einsum("ij,j->i", [a, b]).tolist(), [17, 39])
        with self.assertRaisesRegex(deft.ArgumentError, "einsum"):
            deft.einsum("ij->k", a)


class Random(unittest.TestCase):
    def test_streams(self):
        a, b = deft.random.Generator(1), deft.random.Generator(1)
        self.assertEqual(a.uniform((3,)).tolist(), b.uniform((3,)).tolist())
        self.assertNotEqual(a.uniform((3,)).tolist(), deft.random.Generator(2).uniform((3,)).tolist())
        self.assertEqual(sorted(a.permutation(10).tolist()), list(range(10)))
        found = a.integers(5, 8, (100,))
        self.assertEqual({v for v in found.tolist()}, {5, 6, 7})
        self.assertEqual(a.state, (1, 4))
        self.assertEqual(a.bernoulli(deft.ones(3)).tolist(), [1, 1, 1])
        with self.assertRaises(AttributeError):
            a.softmax


if __name__ == "__main__":
    unittest.main()
