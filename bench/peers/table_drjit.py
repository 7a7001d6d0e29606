# SPDX-License-Identifier: Apache-2.0
"""Dr.Jit (LLVM) in the table of peers, in rows over one axis: traces that are frozen where that works."""
import drjit as dr
import numpy as np
from drjit.llvm import Float, Int

import table_peer

ROWS = table_peer.Rows()
row = ROWS.row


class DrJit(table_peer.Peer):
    rows = ROWS
    version = dr.__version__

    def __init__(self, threads):
        dr.set_thread_count(threads)

    def tensor(self, array, is_index):
        return (Float if array.dtype == np.float32 else Int)(array.reshape(-1))

    def numpy(self, array):
        return np.asarray(array.numpy())

    def build(self):
        function, sizes = self.row.function, self.sizes

        @dr.freeze
        def frozen(inputs):
            return function(sizes, *inputs)

        def call(*inputs):
            outputs = frozen(inputs)
            dr.eval(outputs)
            dr.sync_thread()
            return outputs
        return call

    def run(self, n):
        if not self.n_states:
            return super().run(n)
        for _ in range(n):
            outputs = self.call(*self.inputs)
            self.inputs = [*outputs, *self.inputs[self.n_states:]]
        return outputs


@row("elementwise/chain", "elementwise/chain_small")
def chain(n, x, y):
    return dr.sqrt(x * x + y * y) * dr.exp(-x) + y * dr.tanh(x)


@row("elementwise/gelu")
def gelu(n, x):
    return x * (dr.erf(x * 0.70710678) + 1) * 0.5


@row("elementwise/axpy")
def axpy(n, x, y):
    return (x * 2 + y) * y - x * 0.5


@row("elementwise/select")
def select(n, x, y):
    return dr.select(x > y, dr.clip(x, -1, 1), y * 0.1)


@row("elementwise/magnitude")
def magnitude(n, x, y):
    return dr.sqrt(x * x + y * y)


@row("elementwise/adam")
def adam(n, p, m, v, g):
    m = m + 0.1 * (g - m)
    v = v + 0.001 * (g * g - v)
    return p - m / (dr.sqrt(v) + 1e-8) * 0.001, m, v


@row("reductions/sum_all")
def sum_all(n, x):
    return dr.sum(x)


@row("reductions/mean_squared_error")
def mean_squared_error(n, x, y):
    return dr.mean((x - y) * (x - y))


@row("reductions/norm_all")
def norm_all(n, x):
    return dr.sqrt(dr.sum(x * x))


@row("integers/chain")
def integer_chain(n, x, y):
    return ((x * 3 + y) ^ (x >> 3)) & 65535


@row("simulations/black_scholes")
def black_scholes(n, s, k, t):
    w = 0.3 * dr.sqrt(t)
    d1 = (dr.log(s / k) + 0.065 * t) / w
    n1, n2 = ((dr.erf(d * 0.70710678) + 1) * 0.5 for d in (d1, d1 - w))
    discounted = k * dr.exp(t * -0.02)
    call = s * n1 - discounted * n2
    return call, call + discounted - s


@row("simulations/mandelbrot")
def mandelbrot(n, im, re):
    i = dr.arange(Int, n[0] * n[1])
    b = dr.gather(Float, im, i // n[1]) * 2 - 1.2
    a = dr.gather(Float, re, i % n[1]) * 2.5 - 2
    x, y, count = Float(0), Float(0), Int(0)
    for _ in range(50):
        xx, yy = x * x, y * y
        near = xx + yy <= 4
        x, y = dr.select(near, xx - yy + a, x), dr.select(near, 2 * x * y + b, y)
        count = count + dr.select(near, Int(1), Int(0))
    return count


@row("tiny/captured")
def tiny(n, x):
    for _ in range(500):
        x = x * 0.99 + 0.01
    return x
