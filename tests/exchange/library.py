# SPDX-License-Identifier: Apache-2.0
"""libdeft through ctypes, as far as the tests of exchange need it: contexts, wraps, reads, and structs of DLPack."""
import ctypes as c

NAMES = ["bool", "u8", "i32", "i64", "f32", "f64", "f16", "bf16", "i8", "i16", "u16", "u32", "u64", "c64",
         "c128", "f8e4m3fn", "f8e5m2", "e8m0", "u4", "i4"]
MAX_RANK = 8


class Shape(c.Structure):
    _fields_ = [("rank", c.c_uint32), ("dim", c.c_int64 * MAX_RANK)]


class Scope(c.Structure):
    _fields_ = [("cx", c.c_void_p), ("words", c.c_uint32 * 2)]


class Mapped(c.Structure):
    _fields_ = [("data", c.c_void_p), ("bytes", c.c_size_t), ("held", c.c_void_p), ("cx", c.c_void_p)]


def shape_of(dims):
    return Shape(len(dims), (c.c_int64 * MAX_RANK)(*dims))


class Deft:
    """A context. Tensors are addresses."""

    def __init__(self, path):
        self.lib = c.CDLL(path)
        for name in ("deft_from", "deft_from_dlpack", "deft_from_dlpack_old", "deft_assign_f"):
            getattr(self.lib, name).restype = c.c_void_p
        self.lib.deft_message.restype = c.c_char_p
        self.lib.deft_shape_get.restype = Shape
        self.lib.deft_scope_begin.restype = Scope
        self.lib.deft_step_begin.restype = Scope
        self.cx = c.c_void_p()
        self.ok(self.lib.deft_ctx_create(None, None, c.byref(self.cx)))

    def ok(self, status):
        if status:
            raise RuntimeError("%d: %s" % (status, self.lib.deft_message(self.cx).decode()))

    def tensor(self, address):
        if not address:
            raise RuntimeError(self.lib.deft_message(self.cx).decode())
        return c.c_void_p(address)

    def close(self):
        self.lib.deft_ctx_destroy(c.byref(self.cx))

    def dtype(self, t):
        return NAMES[self.lib.deft_dtype_of(t)]

    def dims(self, t):
        s = self.lib.deft_shape_get(t)
        return tuple(s.dim[:s.rank])

    def make(self, name, dims, data):
        return self.tensor(self.lib.deft_from(self.cx, shape_of(dims), NAMES.index(name), data, c.c_size_t(len(data))))

    def address(self, t):
        """Where deft has the elements."""
        m = Mapped()
        self.ok(self.lib.deft_map(t, c.byref(m)))
        at = m.data or 0
        self.lib.deft_unmap(c.byref(m))
        return at

    def read(self, t):
        """The elements in row-major order, as bytes."""
        n = 1
        for d in self.dims(t):
            n *= d
        size = self.lib.deft_dtype_size(self.lib.deft_dtype_of(t))
        out = c.create_string_buffer(max(n * size, 1))
        self.ok(self.lib.deft_read(t, self.lib.deft_dtype_of(t), out, c.c_size_t(n * size)))
        return out.raw[:n * size]

    def assign(self, t, number):
        """t = number, in a step."""
        s = self.lib.deft_step_begin(self.cx)
        self.tensor(self.lib.deft_assign_f(t, c.c_double(number)))
        self.ok(self.lib.deft_step_end(s))


# ---- capsules ----

API = c.pythonapi
API.PyCapsule_New.restype = c.py_object
API.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
API.PyCapsule_GetPointer.restype = c.c_void_p
API.PyCapsule_GetPointer.argtypes = [c.py_object, c.c_char_p]
API.PyCapsule_SetName.argtypes = [c.py_object, c.c_char_p]
API.PyCapsule_IsValid.argtypes = [c.py_object, c.c_char_p]
VERSIONED, OLD = b"dltensor_versioned", b"dltensor"
USED = {VERSIONED: b"used_dltensor_versioned", OLD: b"used_dltensor"}


class Exported:
    """What other libraries take for an array: a tensor of deft."""

    def __init__(self, deft, t, copy=None):
        self.deft, self.t, self.copy = deft, t, copy

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        versioned = max_version is not None and max_version[0] >= 1
        export = self.deft.lib.deft_to_dlpack if versioned else self.deft.lib.deft_to_dlpack_old
        flags = {None: 0, True: 1, False: 2}[self.copy if copy is None else copy]
        m = c.c_void_p()
        self.deft.ok(export(self.t, c.c_uint32(flags), c.byref(m)))
        return API.PyCapsule_New(m, VERSIONED if versioned else OLD, None)


def imported(deft, array, flags=0, **wishes):
    """A tensor of what another library exports."""
    try:
        capsule = array.__dlpack__(max_version=(1, 1), **wishes)
    except TypeError:
        capsule = array.__dlpack__(**wishes)
    name = VERSIONED if API.PyCapsule_IsValid(capsule, VERSIONED) else OLD
    take = deft.lib.deft_from_dlpack if name == VERSIONED else deft.lib.deft_from_dlpack_old
    t = deft.tensor(take(deft.cx, c.c_void_p(API.PyCapsule_GetPointer(capsule, name)), c.c_uint32(flags)))
    API.PyCapsule_SetName(capsule, USED[name])
    return t
