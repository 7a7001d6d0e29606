#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peers' side of `deft-bench peers` and `deft-bench order`: one library, which runs the rows that it knows.

    table.py --venv build/peers --peer jax --threads 2 [--install]

Starts itself in the library's environment, then answers lines on standard input with lines on standard output, "ok ..." or
"failed REASON":

    (nothing)                         once the library is imported: ok VERSION
    load ROW FILE SIZES INPUT...      the file has the inputs, one behind the other; an INPUT is such as f32:64x64, with "!"
                                      behind a state. "none" when the library does not know the row
    check FILE                        runs the row from its first state and writes the outputs, as f64
    reference FILE                    the same in f64 (PyTorch alone)
    warm                              runs the row for a while; seconds of a call
    time N                            seconds of N calls
"""
import ctypes
import importlib
import signal
import sys

import serve

# The module, its class, and the environment that has it.
PEERS = {"torch": ("table_torch", "Torch", "torch"), "torch-compile": ("table_torch", "TorchCompiled", "torch"),
         "jax": ("table_jax", "Jax", "jax"), "numpy": ("table_numpy", "NumPy", "jax"),
         "numba": ("table_numba", "Numba", "numba"), "drjit": ("table_drjit", "DrJit", "drjit"),
         "onnxruntime": ("table_onnxruntime", "OnnxRuntime", "onnxruntime")}
DTYPES = {"f32": "f4", "f64": "f8", "i32": "i4", "i64": "i8", "bf16": "u2", "f16": "f2"}


def read_inputs(path, texts):
    import numpy as np

    arrays = []
    with open(path, "rb") as file:
        for text in texts:
            dtype, extents = text.rstrip("!").split(":")
            shape = [int(n) for n in extents.split("x")] if extents else []
            count = int(np.prod(shape, dtype=np.int64))
            arrays.append(np.fromfile(file, DTYPES[dtype], count).reshape(shape))
    return arrays


def write_outputs(path, outputs):
    with open(path, "wb") as file:
        for output in outputs:
            output.tofile(file)
    return ""


def answer(peer, line):
    word, *rest = line.split()
    if word == "load":
        name, path, sizes, *texts = rest
        arrays = read_inputs(path, texts)
        n_states = sum(text.endswith("!") for text in texts)
        return "" if peer.load(name, arrays, n_states, [int(n) for n in sizes.split(",")]) else "none"
    if word == "check":
        return write_outputs(rest[0], peer.check())
    if word == "reference":
        return write_outputs(rest[0], peer.reference())
    if word == "warm":
        return f"{peer.warm():.9g}"
    return f"{peer.time(int(rest[0])):.9g}"


def end_with_parent():
    """The driver stops this process between its turns, and a stopped process would outlive it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)    # PR_SET_PDEATHSIG


def start(args, say):
    end_with_parent()
    module, name, _ = PEERS[args.peer]
    peer = getattr(importlib.import_module(module), name)(args.threads)
    say("ok", peer.version)
    for line in sys.stdin:
        try:
            say("ok", answer(peer, line))
        except Exception as error:    # The next row may work.
            say("failed", f"{type(error).__name__}: {error}")


def options(parser):
    parser.add_argument("--install", action="store_true", help="install the library where it is missing")


if __name__ == "__main__":
    serve.main(__doc__, PEERS, lambda args: PEERS[args.peer][2], start, options)
