# SPDX-License-Identifier: Apache-2.0
"""Calls from Python on arrays of 8 elements: deft beside NumPy and PyTorch, in turns.

The first rows are one call each: NumPy and PyTorch compute in the call, deft records. So the last rows also read: 20 operations
on one array and its value, and a training step. Each number is the median of ROUNDS turns of each library, in ns."""
import statistics
import sys
import time

import numpy as np

import deft

try:
    import torch
    torch.set_num_threads(1)
except ImportError:
    torch = None

ROUNDS, CALLS = 15, 4000


def libraries():
    found = {"deft": (deft, lambda a: deft.asarray(a)), "numpy": (np, lambda a: a)}
    if torch:
        found["torch"] = (torch, torch.from_numpy)
    return found


def chain(xp, x):
    y = x
    for _ in range(10):
        y = (y + x) * 0.5
    return float(y[0])


ROWS = {"x + y": lambda xp, x, y: x + y, "x * 2.0": lambda xp, x, y: x * 2.0, "1.0 - x": lambda xp, x, y: 1.0 - x,
        "exp(x)": lambda xp, x, y: xp.exp(x), "maximum(x, y)": lambda xp, x, y: xp.maximum(x, y), "x < y": lambda xp, x, y: x < y,
        "x[1:5]": lambda xp, x, y: x[1:5], "x @ y": lambda xp, x, y: x @ y}


def one(fn, n):
    start = time.perf_counter_ns()
    for _ in range(n):
        fn()
    return (time.perf_counter_ns() - start) / n


def measure(calls, n):
    """Median ns of each call, the libraries in turns."""
    times = {name: [] for name in calls}
    for fn in calls.values():
        one(fn, n // 10 + 1)
    for _ in range(ROUNDS):
        for name, fn in calls.items():
            times[name].append(one(fn, n))
            if name == "deft":
                deft.eval()
    return {name: statistics.median(t) for name, t in times.items()}


def show(title, times):
    cells = [f"{times[name]:10.0f}" for name in times]
    ratios = "  ".join(f"{times['deft'] / t:6.2f} of {name}" for name, t in times.items() if name != "deft")
    print(f"{title:26s}{''.join(cells)}   {ratios}")


def main():
    xps = libraries()
    a, b = np.linspace(0.5, 1.5, 8, dtype=np.float32), np.linspace(1.5, 0.5, 8, dtype=np.float32)
    print(f"ns for each call; {deft.compiler()}; NumPy {np.__version__}" + (f", PyTorch {torch.__version__}" if torch else ""))
    print(f"{'':26s}" + "".join(f"{name:>10s}" for name in xps))
    for title, fn in ROWS.items():
        calls = {}
        for name, (xp, make) in xps.items():
            x, y = make(a), make(b)
            calls[name] = lambda fn=fn, xp=xp, x=x, y=y: fn(xp, x, y)
        show(title, measure(calls, CALLS))
    calls = {name: lambda xp=xp, x=make(a): chain(xp, x) for name, (xp, make) in xps.items()}
    show("20 operations and a read", measure(calls, CALLS // 20))
    sys.stdout.flush()


main()
