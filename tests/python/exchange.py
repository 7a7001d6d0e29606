# SPDX-License-Identifier: Apache-2.0
"""Arrays of NumPy, PyTorch and JAX come in and go out. Each that is not installed is left out; ends with 77 without NumPy."""
import gc
import sys
import unittest
import weakref

try:
    import numpy as np
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)
import deft

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
          "complex64", "complex128"]


class NumPy(unittest.TestCase):
    def test_every_dtype_and_layout(self):
        for d in DTYPES:
            a = (np.arange(24).reshape(2, 3, 4) % 2).astype(d)
            for b in (a, a.T, a[:, ::2], a[::-1], a[..., 1], a[:0], a[0, 0, 0], a.astype(np.dtype(d).newbyteorder("<"))):
                x = deft.asarray(b)
                self.assertEqual((x.dtype.name, x.shape), (d, b.shape))
                np.testing.assert_array_equal(np.asarray(x), b)
                np.testing.assert_array_equal(x.numpy(), b)
                np.testing.assert_array_equal(np.asarray(x + x) if d != "bool" else b, b + b if d != "bool" else b)

    def test_out_without_a_copy(self):
        x = deft.arange(1000, dtype=deft.float32) + 1
        deft.eval(x)
        a, b = np.asarray(x), np.asarray(x)
        self.assertEqual(a.ctypes.data, b.ctypes.data)
        self.assertFalse(a.flags.writeable)
        self.assertTrue(x.numpy().flags.writeable)
        del x
        gc.collect()
        self.assertEqual(a[999], 1000)               # what is lent lives as long as it is used

    def test_in_without_a_copy(self):
        for a in (np.arange(12.0).reshape(3, 4), np.arange(12.0).reshape(3, 4)[::-1, ::-2], np.arange(12.0)[3:]):
            for make in (deft.asarray, deft.from_dlpack) if a.flags.c_contiguous else (deft.asarray,):
                x = make(a)
                before = a.copy()
                a[...] = a + 1                       # only to show that the memory is the same: do not do this
                np.testing.assert_array_equal(np.asarray(x + 0), before + 1)
                y = deft.asarray(a, copy=True)
                a[...] = before
                np.testing.assert_array_equal(np.asarray(y), before + 1)
        with self.assertRaisesRegex(ValueError, "cannot be shared"):
            deft.asarray(np.zeros((0, 3)), copy=False)
        self.assertEqual(deft.asarray(np.zeros((0, 3))).shape, (0, 3))

    def test_operands_are_copies(self):
        a = np.ones(3, np.float32)
        y = deft.ones(3) + a
        z = deft.add(deft.ones(3), a)
        a[:] = 7
        self.assertEqual((y.tolist(), z.tolist()), ([2, 2, 2], [2, 2, 2]))

    def test_shared_memory_is_given_back(self):
        def work():
            for make in (deft.asarray, deft.from_dlpack):
                a = np.ones(5)
                weak = weakref.ref(a)
                x = make(a) * 2
                del a
                self.assertEqual(x.tolist(), [2] * 5)
                del x
                deft.eval()
                deft.eval()
                gc.collect()
                self.assertIsNone(weak(), make)
        work()

    def test_dlpack(self):
        x = deft.arange(6.0).astype(deft.float32)
        deft.eval(x)
        a = np.from_dlpack(x)
        self.assertEqual(a.ctypes.data, np.asarray(x).ctypes.data)
        self.assertFalse(a.flags.writeable)
        self.assertEqual(x.__dlpack_device__(), (1, 0))
        del x
        gc.collect()
        self.assertEqual(a.tolist(), [0, 1, 2, 3, 4, 5])
        capsule = np.ones(3).__dlpack__()
        deft._deft.from_dlpack(capsule, 0)
        with self.assertRaisesRegex(ValueError, "used before"):
            deft._deft.from_dlpack(capsule, 0)
        with self.assertRaises(BufferError):
            deft.ones(1).__dlpack__(dl_device=(2, 0))
        for d in DTYPES:
            a = np.ones(3, d)
            self.assertEqual(deft.from_dlpack(a).dtype.name, d)
            np.testing.assert_array_equal(np.from_dlpack(deft.asarray(a)), a)

    def test_operators_with_numpy_on_the_left(self):
        x = deft.ones(3)
        for made in (np.ones(3, np.float32) + x, x - np.ones(3, np.float32), np.float32(2) * x, x == np.ones(3, np.float32)):
            self.assertIsInstance(made, deft.Array)
        self.assertIs((x * np.float64(2)).dtype, deft.float32)       # a float of Python
        self.assertEqual(deft.add(x, np.ones(3, np.float32)).tolist(), [2, 2, 2])
        self.assertEqual(deft.concat([x, np.ones(2, np.float32)]).shape, (5,))
        x[:2] = np.asarray([5, 6], np.float32)
        self.assertEqual(x[np.asarray([1, 0])].tolist(), [6, 5])

    def test_what_has_no_dtype(self):
        for a in (np.ones(2, np.clongdouble), np.asarray(["a"]), np.asarray([object()]), np.ones(2, ">f4"), np.ones((1,) * 9)):
            with self.assertRaises((TypeError, ValueError, BufferError)):
                deft.asarray(a)


class Others(unittest.TestCase):
    def test_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not installed")
        t = torch.arange(6.0).reshape(2, 3)
        self.assertEqual(deft.asarray(t).tolist(), t.tolist())
        self.assertEqual(deft.asarray(t.T).tolist(), t.T.tolist())
        x = deft.asarray(t)
        t[0, 0] = 9
        self.assertEqual(x.tolist(), t.tolist())
        self.assertEqual(deft.asarray(torch.ones(2, requires_grad=True)).tolist(), [1, 1])
        for d in (torch.complex64, torch.complex128):
            z = torch.tensor([1 + 2j, 3j], dtype=d)
            x = deft.asarray(z)
            self.assertEqual((x.tolist(), x.dtype.name), (z.tolist(), str(d).rpartition(".")[2]))
            self.assertEqual(np.asarray(x).ctypes.data, z.data_ptr())
            y = x * 1j
            back = torch.from_dlpack(y)
            self.assertEqual((back.tolist(), back.dtype, back.data_ptr()), (y.tolist(), d, np.asarray(y).ctypes.data))
        for d in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu):
            q = torch.tensor([1.0, 2, 0.5]).to(d)
            x = deft.asarray(q)
            self.assertEqual((x.dtype.name, x.astype(deft.float32).tolist()), (str(d).rpartition(".")[2], [1, 2, 0.5]))
            self.assertEqual(torch.from_dlpack(x).view(torch.uint8).tolist(), q.view(torch.uint8).tolist())
        b = torch.ones(2, dtype=torch.bfloat16)
        self.assertIs(deft.asarray(b).dtype, deft.bfloat16)
        y = deft.arange(5) * 2
        back = torch.from_dlpack(y)
        self.assertEqual(back.tolist(), [0, 2, 4, 6, 8])
        self.assertEqual(back.data_ptr(), np.asarray(y).ctypes.data)
        self.assertEqual((deft.ones((2, 3)) + t).tolist(), (t + 1).tolist())

    def test_jax(self):
        try:
            import jax.numpy as jnp
        except ImportError:
            self.skipTest("JAX is not installed")
        a = jnp.arange(6.0).reshape(2, 3)
        self.assertEqual(deft.asarray(a).tolist(), a.tolist())
        self.assertEqual(deft.asarray(a).dtype, deft.float32)
        import jax
        z = deft.asarray([1 + 2j, 3j])
        self.assertEqual(jax.dlpack.from_dlpack(z).tolist(), z.tolist())
        self.assertEqual(deft.asarray(jnp.asarray([1j, 2])).tolist(), [1j, 2])
        self.assertEqual(jax.dlpack.from_dlpack(deft.ones(3)).tolist(), [1, 1, 1])


if __name__ == "__main__":
    unittest.main()
