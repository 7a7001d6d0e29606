#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dlpack.py LIBDEFT: arrays of NumPy, PyTorch and JAX, as far as they are installed, go to deft and come back by DLPack. For
each dtype that both sides have, the elements are at the same address on both sides. Exit 77: none of them is there."""
import gc
import importlib
import sys

from library import NAMES, Deft, Exported, imported

NUMPY = {"bool": "bool", "u8": "uint8", "i32": "int32", "i64": "int64", "f32": "float32", "f64": "float64", "f16": "float16",
         "i8": "int8", "i16": "int16", "u16": "uint16", "u32": "uint32", "u64": "uint64", "c64": "complex64", "c128": "complex128"}
TORCH = dict(NUMPY, bf16="bfloat16")
FLOATS_OF_8 = {"f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "e8m0": "float8_e8m0fnu"}


def module(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


np, torch, jax = module("numpy"), module("torch"), module("jax")
if jax:
    jax.config.update("jax_enable_x64", True)
checks = 0


def must(ok, *what):
    global checks
    checks += 1
    if not ok:
        sys.exit("failed: " + " ".join(map(str, what)))


def elements(name):
    """Six elements, as bytes."""
    size = {"bool": 1, "u8": 1, "i8": 1, "f8e4m3fn": 1, "f8e5m2": 1, "e8m0": 1, "i16": 2, "u16": 2, "f16": 2, "bf16": 2, "i64": 8, "u64": 8, "f64": 8, "c64": 8,
            "c128": 16}.get(name, 4)
    if name == "bool":
        return bytes([0, 1, 1, 0, 1, 0])
    return bytes((17 * i + 3) % 60 for i in range(6 * size))


# ---- NumPy ----

def numpy_round_trips(deft):
    for name, theirs in NUMPY.items():
        x = deft.make(name, (2, 3), elements(name))
        a = np.from_dlpack(Exported(deft, x))
        must(a.dtype == theirs and a.shape == (2, 3), name, a.dtype)
        must(a.ctypes.data == deft.address(x), name, "leaves without a copy")
        must(a.tobytes() == elements(name) and not a.flags.writeable, name)
        b = np.frombuffer(elements(name), theirs).reshape(2, 3).copy()
        y = imported(deft, b)
        must(deft.dtype(y) == name and deft.dims(y) == (2, 3), name)
        must(deft.address(y) == b.ctypes.data, name, "comes without a copy")
        for view in (b.T, b[::-1], b[:, ::-2], b[1:, 1:], b[0, 0], b[:0], np.broadcast_to(b, (4, 2, 3)).copy()[::3]):
            must(deft.read(imported(deft, np.asarray(view))) == view.tobytes(), name, view.strides)
    w = np.from_dlpack(Exported(deft, x, copy=True))
    # NumPy before 2.2.5 takes any memory as read-only, its own among it.
    must(w.flags.writeable == np.from_dlpack(np.arange(3)).flags.writeable, "a copy may be written")
    b = np.arange(6.0).reshape(2, 3)
    t = imported(deft, b[::-1, ::-1], flags=4)
    deft.assign(t, 7)
    must((b == 7).all(), "assignments write the producer's memory")
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    deft.read(imported(deft, frozen))
    try:
        imported(deft, frozen, flags=4)
        must(False, "read-only memory cannot be written")
    except RuntimeError as e:
        must("read only" in str(e), e)
    misaligned = np.frombuffer(b"x" + b[0].tobytes(), np.float64, offset=1)
    try:
        capsule_of = imported(deft, misaligned.copy())
        must(deft.read(capsule_of) == misaligned.tobytes(), "misaligned")
    except BufferError:
        pass  # NumPy refuses to export it


def numpy_ownership(deft):
    base = np.arange(4.0)
    before = sys.getrefcount(base)
    s = deft.lib.deft_scope_begin(deft.cx)
    t = imported(deft, base)
    must(sys.getrefcount(base) == before + 1, "deft holds the array")
    must(deft.read(t) == base.tobytes(), "reads it")
    deft.ok(deft.lib.deft_scope_end(s))
    must(sys.getrefcount(base) == before, "deft has given it back", sys.getrefcount(base), before)


def outlives(path):
    """What was exported lives on without its context."""
    deft = Deft(path)
    a = np.from_dlpack(Exported(deft, deft.make("f32", (2, 3), elements("f32"))))
    deft.close()
    gc.collect()
    must(a.tobytes() == elements("f32"), "outlives the context")


def assigned(deft):
    """A consumer goes on seeing what it was given."""
    x = deft.make("f32", (6,), elements("f32"))
    a = np.from_dlpack(Exported(deft, x))
    for i in range(5):
        deft.assign(x, i)
    must(a.tobytes() == elements("f32"), "assignments do not reach a consumer")


# ---- PyTorch and JAX ----

def torch_round_trips(deft):
    for name, theirs in dict(TORCH, **FLOATS_OF_8).items():
        if not hasattr(torch, theirs):
            continue
        dtype = getattr(torch, theirs)
        x = deft.make(name, (2, 3), elements(name))
        a = torch.from_dlpack(Exported(deft, x))
        must(a.dtype == dtype and tuple(a.shape) == (2, 3), name, a.dtype)
        must(a.data_ptr() == deft.address(x), name, "leaves without a copy")
        y = imported(deft, a.clone())
        must(deft.dtype(y) == name and deft.read(y) == elements(name), name)
        b = a.clone()
        must(deft.address(imported(deft, b)) == b.data_ptr(), name, "comes without a copy")
        flipped = bytes(b.t().contiguous().view(torch.uint8).numpy().tobytes())
        must(deft.read(imported(deft, b.t())) == flipped, name, "transposed")


def jax_round_trips(deft):
    for name, theirs in TORCH.items():
        x = deft.make(name, (2, 3), elements(name))
        a = jax.dlpack.from_dlpack(Exported(deft, x))
        must(str(a.dtype) == theirs and a.shape == (2, 3), name, a.dtype)
        at = deft.address(x)
        if at % 64 == 0:  # JAX copies what is not aligned
            must(a.unsafe_buffer_pointer() == at, name, "leaves without a copy")
        y = imported(deft, a)
        must(deft.dtype(y) == name and deft.read(y) == elements(name), name)
        must(deft.address(y) == a.unsafe_buffer_pointer(), name, "comes without a copy")


def main(path):
    deft = Deft(path)
    found = [m.__name__ for m in (np, torch, jax) if m]
    if not found:
        print("none of NumPy, PyTorch and JAX is installed")
        sys.exit(77)
    if np:
        numpy_round_trips(deft)
        numpy_ownership(deft)
        assigned(deft)
        outlives(path)
    if torch:
        torch_round_trips(deft)
    if jax:
        jax_round_trips(deft)
    deft.close()
    print("%d checks with %s" % (checks, ", ".join(found)))


main(sys.argv[1])
