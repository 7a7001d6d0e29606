#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times other libraries on the benchmark kernels: JAX (XLA on the CPU) and Dr.Jit (LLVM).

    peers.py --venv build/peers                everything (installs about 750 MB from PyPI the first time)
    peers.py --venv build/peers --peer jax --kernel gelu --size 4096

Prints one line per peer, kernel and size:

    first   the first call in a fresh process, inputs ready, until the result is ready; import not counted
    call    the median of later calls, result ready each time

Each measurement is a process of its own. Nothing here is needed to build, test or benchmark deft; the formulas
are those of bench/ref/ref_kernels.h, but these libraries promise no order and no rounding. step.py beside this
file times whole training steps, for `deft-bench overhead --peers`.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time
import venv

FOLDER = pathlib.Path(__file__).resolve().parent
KERNELS = {"jax": ["gelu", "black_scholes", "adam", "mse", "softmax", "layer_norm"],
           "drjit": ["gelu", "black_scholes", "adam", "mse"]}
SIZES = [4096, 1 << 18, 1 << 20, 1 << 24]
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
    """The Python of a virtual environment per peer, so that one peer's dependencies cannot move another's. Installs
    what bench/peers/requirements-PEER.txt names unless just that is there."""
    python = folder / peer / "bin" / "python"
    wanted = FOLDER / f"requirements-{peer}.txt"
    done = folder / peer / "installed.txt"
    if not done.exists() or done.read_text() != wanted.read_text():
        print(f"installing {peer} into {folder / peer}", file=sys.stderr, flush=True)
        venv.create(folder / peer, with_pip=True, clear=True)
        pip = subprocess.run([python, "-m", "pip", "install", "--quiet", "--requirement", wanted],
                             stdout=2, stderr=subprocess.PIPE, text=True)
        if pip.returncode:
            sys.stderr.write(pip.stderr)
            errors = [line for line in pip.stderr.splitlines() if line.startswith("ERROR")]
            raise RuntimeError(f"pip install {peer}: {(errors or ['failed'])[-1]}")
        done.write_text(wanted.read_text())
    return python


def environment(folder, threads):
    """Compiled kernels are kept in the folder, not in the home folder, where Dr.Jit looks for them."""
    home = str(folder.resolve() / "home")
    os.makedirs(home, exist_ok=True)
    return {**os.environ, "HOME": home, "TORCHINDUCTOR_CACHE_DIR": home + "/inductor", "JAX_PLATFORMS": "cpu",
            "OMP_NUM_THREADS": str(threads)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--venv", type=pathlib.Path, required=True, help="folder for the environments")
    parser.add_argument("--peer", choices=sorted(KERNELS), action="append")
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
    env = environment(args.venv, args.threads)
    for peer in args.peer or KERNELS:
        python = prepare(args.venv, peer)
        for kernel in [k for k in KERNELS[peer] if not args.kernel or k in args.kernel]:
            for n in args.size or SIZES:
                # A first call must not find what an earlier run compiled.
                subprocess.run(["rm", "-rf", env["HOME"]], check=True)
                os.makedirs(env["HOME"])
                run = subprocess.run([python, __file__, "--inside", "--venv", args.venv, "--peer", peer,
                                      "--kernel", kernel, "--size", str(n)], env=env)
                failed += run.returncode != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
