#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times other libraries on the benchmark kernels: JAX (XLA on the CPU), Dr.Jit (LLVM) and PyTorch.

    peers.py --venv build/peers                everything (installs about 750 MB from PyPI the first time, and
                                               for PyTorch, whose wheels bring CUDA along, some 5 GB more)
    peers.py --venv build/peers --peer jax --kernel gelu --size 4096

Prints one line per peer, kernel and size:

    first   the first call in a fresh process, inputs ready, until the result is ready; import not counted
    call    the median of later calls, result ready each time

The kernel "step" is the training step of `deft-bench overhead`: a 64-256-10 network with Adam; its size is the
batch. deft-bench prints what deft's own step costs beside its launches, and what those cost.

Each measurement is a process of its own. Nothing here is needed to build, test or benchmark deft; the formulas
are those of bench/ref/ref_kernels.h, but these libraries promise no order and no rounding.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time
import venv

PINS = {"jax": ["jax==0.10.2", "jaxlib==0.10.2"], "drjit": ["drjit==1.5.0", "numpy"],
        "torch": ["torch==2.15.0", "numpy"]}
KERNELS = {"jax": ["gelu", "black_scholes", "adam", "mse", "softmax", "layer_norm", "step"],
           "drjit": ["gelu", "black_scholes", "adam", "mse"],
           "torch": ["step", "step_compiled"]}
SIZES = [4096, 1 << 18, 1 << 20, 1 << 24]
BATCHES = [1, 8, 64]
COLS = 256
SQRT_HALF = 0.70710678


def formulas(sqrt, exp, log, erf):
    """Elementwise kernels over whatever arrays the four functions take; inputs a, b, c, d are in [0.1, 1.1)."""

    def gelu(a, b, c, d):
        return (a * (erf(a * SQRT_HALF) + 1) * 0.5,)

    def black_scholes(s, k, t, d):
        w = 0.3 * sqrt(t)
        d1 = (log(s / k) + 0.065 * t) / w
        n1, n2 = (erf(d1 * SQRT_HALF) + 1) * 0.5, (erf((d1 - w) * SQRT_HALF) + 1) * 0.5
        disc = k * exp(t * -0.02)
        return s * n1 - disc * n2, disc * (1 - n2) - s * (1 - n1)

    def adam(p, m, v, g):
        m = m + 0.1 * (g - m)
        v = v + 0.001 * (g * g - v)
        return p - m / (sqrt(v / 0.01) + 1e-8) * 0.001, m, v

    return {"gelu": gelu, "black_scholes": black_scholes, "adam": adam}


def jax_call(kernel, n):
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.scipy.special import erf

    def mse(a, b, c, d):
        return (jnp.mean((a - b) ** 2),)

    def softmax(a, b, c, d):
        return (jax.nn.softmax(a.reshape(-1, COLS), axis=-1),)

    def layer_norm(a, b, c, d):
        x = a.reshape(-1, COLS)
        x = x - x.mean(axis=-1, keepdims=True)
        return (x / jnp.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * b[:COLS] + c[:COLS],)

    table = {**formulas(jnp.sqrt, jnp.exp, jnp.log, erf),
             "mse": mse, "softmax": softmax, "layer_norm": layer_norm}
    rng = np.random.default_rng(1)
    inputs = [jnp.asarray(rng.random(n, np.float32) + np.float32(0.1)) for _ in range(4)]
    jax.block_until_ready(inputs)
    function = jax.jit(table[kernel])
    return lambda: jax.block_until_ready(function(*inputs))


def jax_step(batch):
    import jax
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(1)
    shapes = [(64, 256), (256,), (256, 10), (10,)]
    p = [jnp.asarray(rng.normal(0, 0.05, s).astype(np.float32)) for s in shapes]
    m = [jnp.zeros_like(x) for x in p]
    v = [jnp.zeros_like(x) for x in p]
    x = jnp.asarray(rng.normal(0, 1, (batch, 64)).astype(np.float32))
    labels = jnp.asarray(rng.integers(0, 10, batch))

    def loss(p):
        scores = jax.nn.relu(x @ p[0] + p[1]) @ p[2] + p[3]
        return -jnp.sum(jax.nn.log_softmax(scores)[jnp.arange(batch), labels])

    def step(p, m, v, rate):
        g = jax.grad(loss)(p)
        m = [a + 0.1 * (b - a) for a, b in zip(m, g)]
        v = [a + 0.001 * (b * b - a) for a, b in zip(v, g)]
        p = [a - b / (jnp.sqrt(c) + 1e-8) * rate for a, b, c in zip(p, m, v)]
        return p, m, v

    step = jax.jit(step, donate_argnums=(0, 1, 2))
    state = [p, m, v]

    def call():
        state[:] = step(*state, 0.001)
        jax.block_until_ready(state)
    return call


def torch_step(batch, compiled):
    import torch

    torch.manual_seed(1)
    shapes = [(64, 256), (256,), (256, 10), (10,)]
    p = [torch.nn.Parameter(torch.randn(s) * 0.05) for s in shapes]
    x, labels = torch.randn(batch, 64), torch.randint(0, 10, (batch,))
    adam = torch.optim.Adam(p, lr=0.001)

    def loss():
        scores = torch.relu(x @ p[0] + p[1]) @ p[2] + p[3]
        return torch.nn.functional.cross_entropy(scores, labels, reduction="sum")

    def call():
        adam.zero_grad()
        loss().backward()
        adam.step()
    return torch.compile(call) if compiled else call


def drjit_call(kernel, n):
    import drjit as dr
    import numpy as np
    from drjit.llvm import Float

    def mse(a, b, c, d):
        return (dr.sum((a - b) * (a - b)) / n,)

    table = {**formulas(dr.sqrt, dr.exp, dr.log, dr.erf), "mse": mse}
    rng = np.random.default_rng(1)
    inputs = [Float(rng.random(n, np.float32) + np.float32(0.1)) for _ in range(4)]
    dr.eval(inputs)
    dr.sync_thread()

    def call():
        dr.eval(*table[kernel](*inputs))
        dr.sync_thread()
    return call


def measure(peer, kernel, n):
    if kernel == "step":
        call = jax_step(n) if peer == "jax" else torch_step(n, False)
    elif kernel == "step_compiled":
        call = torch_step(n, True)
    else:
        call = {"jax": jax_call, "drjit": drjit_call}[peer](kernel, n)
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    later, until = [], time.perf_counter() + 0.5
    while len(later) < 5 or time.perf_counter() < until:
        start = time.perf_counter()
        call()
        later.append(time.perf_counter() - start)
    call_s = statistics.median(later)
    print(f"{peer:6} {kernel:14} {n:>9}  first {first * 1e3:9.2f} ms  call {call_s * 1e6:10.1f} us"
          f"  {call_s / n * 1e9:7.3f} ns/element", flush=True)


def prepare(folder, peer):
    """A virtual environment per peer, so that one peer's dependencies cannot move another's."""
    python = folder / peer / "bin" / "python"
    done = folder / peer / ("installed " + " ".join(PINS[peer]))
    if not done.exists():
        venv.create(folder / peer, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PINS[peer]], check=True)
        done.touch()
    return python


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--venv", type=pathlib.Path, required=True, help="folder for the environments")
    parser.add_argument("--peer", choices=sorted(PINS), action="append")
    parser.add_argument("--kernel", action="append")
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        measure(args.peer[0], args.kernel[0], args.size[0])
        return
    # Affinity is what both libraries take their thread count from.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:args.threads])
    failed = 0
    # Dr.Jit keeps compiled kernels in the home folder; a first call must not find them.
    env = {**os.environ, "HOME": str(args.venv.resolve() / "home"), "JAX_PLATFORMS": "cpu"}
    for peer in args.peer or PINS:
        python = prepare(args.venv, peer)
        for kernel in [k for k in KERNELS[peer] if not args.kernel or k in args.kernel]:
            for n in args.size or (BATCHES if kernel.startswith("step") else SIZES):
                subprocess.run(["rm", "-rf", env["HOME"]], check=True)
                os.makedirs(env["HOME"])
                run = subprocess.run([python, __file__, "--inside", "--venv", args.venv, "--peer", peer,
                                      "--kernel", kernel, "--size", str(n)], env=env)
                failed += run.returncode != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
