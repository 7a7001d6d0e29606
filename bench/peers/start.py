#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peers' side of `deft-bench start`: the programs of bench/start_process.c, each in a process of its own.

    start.py --peer=jax --threads=2 --venv=build/peers [--install | --environment=DIR]
    PYTHON start.py PEER PROGRAM STEPS WEIGHTS

The first form answers "ok PYTHON VERSION" with the Python that has the library. The second form is what is timed. It writes
"result" as soon as the first step has its result. After all steps it writes seconds of the first step, the median of the
others, and a number that results can be compared by.

Each peer keeps what it compiles in the folder of kept code that it has itself, which the environment names (start.c). Imports
are as few as a program of this one purpose would have.
"""
import os
import statistics
import sys
import time

CHAIN, BATCH = 1 << 20, 8


def chain_inputs():
    import numpy as np

    x = np.arange(CHAIN, dtype=np.float32) / np.float32(CHAIN)
    return x, 1 - x / 2


def network_inputs(path):
    """What network_start of bench/network.h has: parameters, batch, labels."""
    import numpy as np
    import step

    with open(path, "rb") as file:
        start = [step.read_floats(file, "f4", shape) for shape in step.SHAPES]
        x = step.read_floats(file, "f4", (64, 64))[:BATCH]
        return start, x, np.frombuffer(file.read(4 * 64), "i4")[:BATCH]


class Mlp:
    """A training step of step.py, by the peer that it has."""

    def __init__(self, peer, path):
        import step

        self.mean_loss = step.mean_loss
        self.start, self.x, self.labels = network_inputs(path)
        self.peer = step.PEERS[peer](len(os.sched_getaffinity(0)))
        self.peer.load(self.start, self.x, self.labels)
        self.peer.reset()

    def step(self):
        self.peer.run(1)

    def number(self):
        return self.mean_loss(self.peer.params(), self.x, self.labels)


# ---- JAX ----


class JaxChain:
    def __init__(self, path):
        import jax
        import jax.numpy as jnp

        def chain(x, y):
            t = jnp.abs(jnp.tanh(x * y + x) - y)
            return jnp.maximum(jnp.exp(-jnp.sqrt(t)), x) * 0.5

        self.jax = jax
        self.inputs = [jnp.asarray(a) for a in chain_inputs()]
        self.call = jax.jit(chain)

    def step(self):
        self.result = self.jax.block_until_ready(self.call(*self.inputs))

    def number(self):
        return float(self.result.mean())


def jax_loss(jax):
    """The transformer of train_models.py, for GPT-2."""
    jnp = jax.numpy

    def linear(p, name, x):
        return x @ p[name + "weight"].T + p[name + "bias"]

    def norm(p, name, x):
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * p[name + ".weight"] + p[name + ".bias"]

    def loss(p, tokens, labels):
        n, length = tokens.shape
        x = p["tokens.weight"][tokens] + p["places.weight"][:length]
        for i in range(12):
            b = f"blocks.{i}."
            y = norm(p, b + "before", x) @ p[b + "attention.in_proj_weight"].T + p[b + "attention.in_proj_bias"]
            q, k, v = (a.reshape(n, length, 12, -1) for a in jnp.split(y, 3, axis=2))
            y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
            x = x + linear(p, b + "attention.out_proj.", y.reshape(n, length, -1))
            y = jax.nn.gelu(linear(p, b + "up.", norm(p, b + "after", x)), approximate=True)
            x = x + linear(p, b + "down.", y)
        scores = jax.nn.log_softmax(norm(p, "last", x) @ p["tokens.weight"].T)
        return -jnp.take_along_axis(scores, labels[..., None], axis=-1).mean()
    return loss


class JaxGpt2:
    def __init__(self, path, learns=False):
        import jax
        import train

        jnp, self.jax, self.learns = jax.numpy, jax, learns
        self.p = {name: jnp.asarray(a) for name, a in train.read_safetensors(path).items()}
        self.x, self.labels = self.p.pop("x"), self.p.pop("labels")
        loss = jax_loss(jax)

        def adamw(state, x, labels):
            p, m, v, t = state
            y, g = jax.value_and_grad(loss)(p, x, labels)
            t = t + 1
            m = {k: 0.9 * m[k] + 0.1 * g[k] for k in p}
            v = {k: 0.999 * v[k] + 0.001 * g[k] * g[k] for k in p}
            p = {k: p[k] * (1 - 3e-4 * 0.01) - 3e-4 * (m[k] / (1 - 0.9 ** t)) / (
                jnp.sqrt(v[k] / (1 - 0.999 ** t)) + 1e-8) for k in p}
            return y, (p, m, v, t)

        self.call = jax.jit(adamw, donate_argnums=0) if learns else jax.jit(loss)
        if learns:
            self.state = (self.p,) + tuple({k: jnp.zeros_like(a) for k, a in self.p.items()} for _ in range(2)) + (
                jnp.float32(0),)

    def step(self):
        if self.learns:
            self.result, self.state = self.call(self.state, self.x, self.labels)
            self.jax.block_until_ready(self.state)
        else:
            self.result = self.jax.block_until_ready(self.call(self.p, self.x, self.labels))

    def number(self):
        return float(self.result)


# ---- PyTorch ----


class TorchChain:
    def __init__(self, path):
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))

        def chain(x, y):
            t = torch.abs(torch.tanh(x * y + x) - y)
            return torch.maximum(torch.exp(-torch.sqrt(t)), x) * 0.5

        self.torch = torch
        self.inputs = [torch.from_numpy(a) for a in chain_inputs()]
        self.call = torch.compile(chain)

    def step(self):
        with self.torch.inference_mode():
            self.result = self.call(*self.inputs)

    def number(self):
        return float(self.result.mean())


class TorchGpt2:
    def __init__(self, path, learns=False):
        import train
        import train_models

        self.peer = train.TorchCompiled(len(os.sched_getaffinity(0)), "cpu")
        if learns:
            self.peer.load("gpt2", path)
            return
        torch = self.torch = self.peer.torch
        self.p = {name: torch.from_numpy(a) for name, a in train.read_safetensors(path).items()}
        self.x, self.labels = self.p.pop("x"), self.p.pop("labels")
        loss = train_models.TRAINS["gpt2"]
        self.call = torch.compile(lambda p, x, labels: loss(torch.nn.functional, p, x, labels))

    def step(self):
        if not hasattr(self, "call"):
            self.result = self.peer.step()
            return
        with self.torch.inference_mode():
            self.result = self.call(self.p, self.x, self.labels)

    def number(self):
        return float(self.result)


# ---- Dr.Jit ----


class DrJitChain:
    def __init__(self, path):
        import drjit as dr
        from drjit.llvm import Float

        self.dr = dr
        dr.set_thread_count(len(os.sched_getaffinity(0)))
        self.inputs = [Float(a) for a in chain_inputs()]

    def step(self):
        dr, (x, y) = self.dr, self.inputs
        t = dr.abs(dr.tanh(x * y + x) - y)
        self.result = dr.maximum(dr.exp(-dr.sqrt(t)), x) * 0.5
        dr.eval(self.result)
        dr.sync_thread()

    def number(self):
        return float(self.dr.mean(self.result)[0])


# ---- Numba ----


class NumbaChain:
    def __init__(self, path):
        import numpy as np
        import start_numba

        self.np, self.call = np, start_numba.chain
        self.inputs = chain_inputs()

    def step(self):
        self.result = self.call(*self.inputs)

    def number(self):
        return float(self.result.mean())


class NumbaMlp:
    """The loops of step.py's maths, written out: Numba has no products of matrices of its own."""

    def __init__(self, path):
        import numpy as np
        import start_numba
        import step

        self.mean_loss, self.call = step.mean_loss, start_numba.train
        start, self.x, self.labels = network_inputs(path)
        self.p = [a.copy() for a in start]
        self.m, self.v = ([np.zeros_like(a) for a in start] for _ in range(2))

    def step(self):
        self.call(*self.p, *self.m, *self.v, self.x, self.labels)

    def number(self):
        return self.mean_loss(self.p, self.x, self.labels)


# ---- all of them ----

PROGRAMS = {
    "jax": {"chain": JaxChain, "mlp": lambda path: Mlp("jax", path), "gpt2-forward": JaxGpt2,
            "gpt2": lambda path: JaxGpt2(path, True)},
    "torch-compile": {"chain": TorchChain, "mlp": lambda path: Mlp("torch-compile", path), "gpt2-forward": TorchGpt2,
                      "gpt2": lambda path: TorchGpt2(path, True)},
    "drjit": {"chain": DrJitChain, "mlp": lambda path: Mlp("drjit", path)},
    "numba": {"chain": NumbaChain, "mlp": NumbaMlp},
}


def run(peer, name, n, path):
    program = PROGRAMS[peer][name](path)
    seconds = []
    for i in range(n):
        start = time.perf_counter()
        program.step()
        seconds.append(time.perf_counter() - start)
        if i == 0:
            print("result", flush=True)
    print(f"{seconds[0]:.9g} {statistics.median(seconds[1:]):.9g} {program.number():.9g}", flush=True)


def python_and_version():
    import argparse
    import pathlib
    import subprocess

    import serve

    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", choices=sorted(PROGRAMS), required=True)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--venv", type=pathlib.Path)
    parser.add_argument("--environment", type=pathlib.Path)
    parser.add_argument("--install", action="store_true")
    args = parser.parse_args()
    library = args.peer.split("-")[0]
    try:
        python = serve.python_of(args, library)
        asks = f"import importlib.metadata; print(importlib.metadata.version('{library}'))"
        found = subprocess.run([python, "-c", asks], capture_output=True, text=True, check=True)
        print("ok", python, found.stdout.strip())
    except Exception as error:
        print("failed", f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    if sys.argv[1].startswith("--"):
        python_and_version()
    else:
        run(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
