#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""files.py LIBDEFT: npy, npz and safetensors files, and Arrow columns, go to NumPy, safetensors and pyarrow, as far as they are
installed, and come back bit for bit. Exit 77: NumPy is not there."""
import ctypes as c
import importlib
import os
import sys
import tempfile

from library import MAX_RANK, NAMES, Deft, Shape

NUMPY = {"bool": "bool", "u8": "uint8", "i32": "int32", "i64": "int64", "f32": "float32", "f64": "float64", "f16": "float16",
         "i8": "int8", "i16": "int16", "u16": "uint16", "u32": "uint32", "u64": "uint64", "c64": "complex64", "c128": "complex128"}
# What other formats have no name for.
NOT_SAFETENSORS, NOT_ARROW = {"c128"}, {"c64", "c128"}
checks = 0


def module(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


np = module("numpy")
safetensors = module("safetensors.numpy")
pyarrow = module("pyarrow")


def must(ok, *what):
    global checks
    checks += 1
    if not ok:
        sys.exit("failed: " + " ".join(map(str, what)))


class Named(c.Structure):
    _fields_ = [("name", c.c_char_p), ("tensor", c.c_void_p)]


class Entry(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_int), ("dtype_name", c.c_char_p), ("shape", Shape), ("bytes", c.c_uint64),
                ("is_mappable", c.c_bool)]


def sample(name, shape=(3, 4)):
    a = np.arange(np.prod(shape)).reshape(shape) * 7 % 100
    if name.startswith("c"):
        a = a * (1 - 0.25j)
    return (a % 2 == 0) if name == "bool" else a.astype(NUMPY[name])


def tensor(deft, a):
    name = {v: k for k, v in NUMPY.items()}[str(a.dtype)]
    return deft.make(name, a.shape, a.tobytes())


class File:
    def __init__(self, deft, path):
        self.deft, self.f = deft, c.c_void_p()
        deft.ok(deft.lib.deft_file_open(deft.cx, path.encode(), c.byref(self.f)))

    def entries(self):
        for i in range(self.deft.lib.deft_file_count(self.f)):
            e = Entry()
            must(self.deft.lib.deft_file_entry_read(self.f, c.c_size_t(i), c.byref(e), c.c_size_t(c.sizeof(e))), i)
            yield e

    def load(self, name, how="deft_file_load"):
        return self.deft.tensor(getattr(self.deft.lib, how)(self.f, name.encode() if name is not None else None))

    def close(self):
        self.deft.lib.deft_file_close(c.byref(self.f))


def same(deft, t, a, *what):
    must(deft.dtype(t) == {v: k for k, v in NUMPY.items()}[str(a.dtype.newbyteorder("="))], *what)
    must(deft.dims(t) == a.shape, *what, deft.dims(t), a.shape)
    native = np.ascontiguousarray(a.astype(a.dtype.newbyteorder("=")))
    must(deft.read(t) == native.tobytes(), *what)


def npy(deft, folder):
    path = os.path.join(folder, "a.npy")
    for name in NUMPY:
        a = sample(name)
        deft.ok(deft.lib.deft_save_npy(tensor(deft, a), path.encode()))
        b = np.load(path)
        must(b.dtype == a.dtype and b.shape == a.shape and (b == a).all(), "npy out", name)
        for version in ((1, 0), (2, 0), (3, 0)):
            for order in ("C", "F"):
                for swapped in (False, True):
                    x = np.array(a.astype(a.dtype.newbyteorder(">")) if swapped else a, order=order)
                    with open(path, "wb") as f:
                        np.lib.format.write_array(f, x, version=version)
                    f = File(deft, path)
                    same(deft, f.load(None), x, "npy in", name, version, order, swapped)
                    if next(f.entries()).is_mappable:
                        same(deft, f.load(None, "deft_file_map"), x, "npy mapped", name, order)
                    f.close()
    for shape in ((), (0,), (1,), (2, 0, 3), (1, 2, 3, 4, 5)):
        a = sample("f32", shape)
        deft.ok(deft.lib.deft_save_npy(tensor(deft, a), path.encode()))
        must(np.load(path).shape == shape, shape)
        np.save(path, a)
        f = File(deft, path)
        same(deft, f.load(None), a, "shape", shape)
        f.close()


def npz(deft, folder):
    path = os.path.join(folder, "a.npz")
    arrays = {"x_" + n: sample(n, (5, 40)) for n in NUMPY}
    tensors = [tensor(deft, a) for a in arrays.values()]
    listed = (Named * len(arrays))(*[Named(n.encode(), t) for n, t in zip(arrays, tensors)])
    deft.ok(deft.lib.deft_save_npz(deft.cx, path.encode(), listed, c.c_size_t(len(arrays))))
    with np.load(path) as z:
        must(sorted(z.files) == sorted(arrays), z.files)
        for n, a in arrays.items():
            must(z[n].dtype == a.dtype and (z[n] == a).all(), "npz out", n)
    for save in (np.savez, np.savez_compressed):
        save(path, **arrays, big=np.arange(100000.0))
        f = File(deft, path)
        names = [e.name.decode() for e in f.entries()]
        must(names == list(arrays) + ["big"], names)
        for n, a in arrays.items():
            same(deft, f.load(n), a, "npz in", n, save.__name__)
        same(deft, f.load("big"), np.arange(100000.0), "npz in")
        if save is np.savez:
            same(deft, f.load("big", "deft_file_map"), np.arange(100000.0), "npz mapped")
        f.close()


def tensors_safe(deft, folder):
    path = os.path.join(folder, "a.safetensors")
    arrays = {n: sample(n) for n in NUMPY if n not in NOT_SAFETENSORS}
    safetensors.save_file(arrays, path)
    f = File(deft, path)
    must(sorted(e.name.decode() for e in f.entries()) == sorted(arrays), "names")
    for n, a in arrays.items():
        same(deft, f.load(n), a, "safetensors in", n)
        same(deft, f.load(n, "deft_file_map"), a, "safetensors mapped", n)
    f.close()
    tensors = [tensor(deft, a) for a in arrays.values()]
    listed = (Named * len(arrays))(*[Named(n.encode(), t) for n, t in zip(arrays, tensors)])
    deft.ok(deft.lib.deft_save(deft.cx, path.encode(), listed, c.c_size_t(len(arrays))))
    back = safetensors.load_file(path)
    for n, a in arrays.items():
        must(back[n].dtype == a.dtype and (back[n] == a).all(), "safetensors out", n)


def import_arrow(deft, column):
    """The tensor and the mask of a pyarrow array, which deft takes; with the structs, which must live."""
    schema, array, valid = (c.c_char * 72)(), (c.c_char * 80)(), c.c_void_p()
    column._export_to_c(c.addressof(array), c.addressof(schema))
    t = deft.tensor(deft.lib.deft_from_arrow(deft.cx, schema, array, c.byref(valid)))
    return t, valid if valid.value else None


def arrow(deft):
    for name in NUMPY:
        a = sample(name, (12,))
        if name in NOT_ARROW:
            try:
                deft.ok(deft.lib.deft_to_arrow(tensor(deft, a), (c.c_char * 72)(), (c.c_char * 80)()))
                must(False, "Arrow has no complex numbers")
            except RuntimeError as e:
                must(name in str(e), e)
            continue
        x = tensor(deft, a)
        schema, array = (c.c_char * 72)(), (c.c_char * 80)()
        deft.ok(deft.lib.deft_to_arrow(x, schema, array))
        column = pyarrow.Array._import_from_c(c.addressof(array), c.addressof(schema))
        column.validate(full=True)
        if name != "bool":
            must(column.buffers()[1].address == deft.address(x), "arrow out without a copy", name)
        must((np.asarray(column.to_numpy(zero_copy_only=False)) == a).all(), "arrow out", name)
        source = pyarrow.array(a)
        t, valid = import_arrow(deft, source)
        same(deft, t, a, "arrow in", name)
        must(valid is None, name)
        if name != "bool":
            must(deft.address(t) == source.buffers()[1].address, "arrow in without a copy", name)
        same(deft, import_arrow(deft, source[3:9])[0], a[3:9], "arrow slice", name)
    t, valid = import_arrow(deft, pyarrow.array([1, None, 3], pyarrow.int32()))
    must(deft.read(valid) == b"\1\0\1", "nulls")
    grid = sample("f32", (2, 3, 4))
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(grid.ravel()), 4), 3)
    same(deft, import_arrow(deft, lists)[0], grid, "lists in")
    same(deft, import_arrow(deft, lists[1:])[0], grid[1:], "a slice of lists")
    schema, array = (c.c_char * 72)(), (c.c_char * 80)()
    deft.ok(deft.lib.deft_to_arrow(tensor(deft, grid), schema, array))
    back = pyarrow.Array._import_from_c(c.addressof(array), c.addressof(schema))
    back.validate(full=True)
    must(back.to_pylist() == grid.tolist(), "lists out")
    del back, column
    try:
        import_arrow(deft, pyarrow.array(["text"]))
        must(False, "text has no dtype")
    except RuntimeError as e:
        must('format "u"' in str(e), e)


def main(path):
    if not np:
        print("NumPy is not installed")
        sys.exit(77)
    deft = Deft(path)
    for name in ("deft_file_load", "deft_file_map", "deft_from_arrow"):
        getattr(deft.lib, name).restype = c.c_void_p
    deft.lib.deft_file_entry_read.restype = c.c_bool
    deft.lib.deft_file_count.restype = c.c_size_t
    with tempfile.TemporaryDirectory() as folder:
        npy(deft, folder)
        npz(deft, folder)
        if safetensors:
            tensors_safe(deft, folder)
        if pyarrow:
            arrow(deft)
    deft.close()
    print("%d checks with %s" % (checks, ", ".join(m.__name__ for m in (np, safetensors, pyarrow) if m)))


main(sys.argv[1])
