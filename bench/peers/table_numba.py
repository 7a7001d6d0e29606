# SPDX-License-Identifier: Apache-2.0
"""Numba in the table of peers: loops as its users write them, compiled with fastmath and parallel, in the rows where a loop is
what its users would write."""
import math

import numba
import numpy as np
from numba import prange

import table_peer

ROWS = table_peer.Rows()
row = ROWS.row
f4 = np.float32


class Numba(table_peer.Peer):
    rows = ROWS
    version = numba.__version__

    def __init__(self, threads):
        numba.set_num_threads(threads)

    def tensor(self, array, is_index):
        return array.copy()

    def numpy(self, array):
        return np.asarray(array)

    def build(self):
        function, sizes = self.row.function, self.sizes
        return lambda *inputs: function(sizes, *inputs)

    def run(self, n):
        if not self.row.options.get("exchanges"):
            return super().run(n)
        for _ in range(n):
            self.call(*self.inputs)
            self.inputs.reverse()


def loops(function):
    return numba.njit(parallel=True, fastmath=True)(function)


# ---- elementwise ----


@loops
def chain_loop(x, y):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = math.sqrt(x[i] * x[i] + y[i] * y[i]) * math.exp(-x[i]) + y[i] * math.tanh(x[i])
    return out


@row("elementwise/chain", "elementwise/chain_small")
def chain(n, x, y):
    return chain_loop(x, y)


@loops
def gelu_loop(x):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = f4(0.5) * x[i] * (f4(1) + math.erf(x[i] * f4(0.70710678)))
    return out


@row("elementwise/gelu")
def gelu(n, x):
    return gelu_loop(x)


@loops
def axpy_loop(x, y):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = (x[i] * f4(2) + y[i]) * y[i] - x[i] * f4(0.5)
    return out


@row("elementwise/axpy")
def axpy(n, x, y):
    return axpy_loop(x, y)


@loops
def select_loop(x, y):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = min(max(x[i], f4(-1)), f4(1)) if x[i] > y[i] else y[i] * f4(0.1)
    return out


@row("elementwise/select")
def select(n, x, y):
    return select_loop(x, y)


@loops
def magnitude_loop(x, y):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = math.sqrt(x[i] * x[i] + y[i] * y[i])
    return out


@row("elementwise/magnitude")
def magnitude(n, x, y):
    return magnitude_loop(x, y)


@loops
def adam_loop(p, m, v, g):
    for i in prange(p.size):
        m[i] += f4(0.1) * (g[i] - m[i])
        v[i] += f4(0.001) * (g[i] * g[i] - v[i])
        p[i] -= m[i] / (math.sqrt(v[i]) + f4(1e-8)) * f4(0.001)


@row("elementwise/adam")
def adam(n, p, m, v, g):
    adam_loop(p, m, v, g)


# ---- reductions ----


@loops
def sum_loop(x):
    total = f4(0)
    for i in prange(x.size):
        total += x[i]
    return total


@row("reductions/sum_all")
def sum_all(n, x):
    return sum_loop(x)


@loops
def rows_loop(x):
    out = np.empty(x.shape[0], f4)
    for i in prange(x.shape[0]):
        total = f4(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        out[i] = total
    return out


@row("reductions/sum_rows")
def sum_rows(n, x):
    return rows_loop(x)


@loops
def square_error_loop(x, y):
    total = f4(0)
    for i in prange(x.size):
        d = x[i] - y[i]
        total += d * d
    return total / f4(x.size)


@row("reductions/mean_squared_error")
def mean_squared_error(n, x, y):
    return square_error_loop(x, y)


@loops
def norm_loop(x):
    total = f4(0)
    for i in prange(x.size):
        total += x[i] * x[i]
    return math.sqrt(total)


@row("reductions/norm_all")
def norm_all(n, x):
    return norm_loop(x)


@loops
def deviation_loop(x):
    out = np.empty(x.shape[0], f4)
    for i in prange(x.shape[0]):
        total = f4(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        mean, square = total / f4(x.shape[1]), f4(0)
        for j in range(x.shape[1]):
            square += (x[i, j] - mean) * (x[i, j] - mean)
        out[i] = math.sqrt(square / f4(x.shape[1] - 1))
    return out


@row("reductions/deviation_rows")
def deviation(n, x):
    return deviation_loop(x)


@loops
def softmax_loop(x):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = f4(0)
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - top)
            total += out[i, j]
        for j in range(x.shape[1]):
            out[i, j] /= total
    return out


@row("reductions/softmax")
def softmax(n, x):
    return softmax_loop(x)


@loops
def cumsum_loop(x):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        total = f4(0)
        for j in range(x.shape[1]):
            total += x[i, j]
            out[i, j] = total
    return out


@row("reductions/cumsum_rows")
def cumsum_rows(n, x):
    return cumsum_loop(x)


@loops
def cumsum_columns_loop(x, parts):
    out = np.empty_like(x)
    width = (x.shape[1] + parts - 1) // parts
    for part in prange(parts):
        first, last = part * width, min((part + 1) * width, x.shape[1])
        out[0, first:last] = x[0, first:last]
        for i in range(1, x.shape[0]):
            for j in range(first, last):
                out[i, j] = out[i - 1, j] + x[i, j]
    return out


@row("reductions/cumsum_columns")
def cumsum_columns(n, x):
    return cumsum_columns_loop(x, numba.get_num_threads())


# ---- integers and movement ----


@loops
def integer_loop(x, y):
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = ((x[i] * np.int32(3) + y[i]) ^ (x[i] >> np.int32(3))) & np.int32(65535)
    return out


@row("integers/chain")
def integer_chain(n, x, y):
    return integer_loop(x, y)


@loops
def bins_loop(x, n_bins, parts):
    counts = np.zeros((parts, n_bins), np.int32)
    each = (x.size + parts - 1) // parts
    for part in prange(parts):
        for i in range(part * each, min((part + 1) * each, x.size)):
            counts[part, x[i]] += 1
    return counts.sum(0)


@row("integers/bins")
def bins(n, x):
    return bins_loop(x, n[1], numba.get_num_threads())


@loops
def transposed_loop(x, y, block):
    out = np.empty_like(y)
    for part in prange((y.shape[0] + block - 1) // block):
        first, last = part * block, min((part + 1) * block, y.shape[0])
        for column in range(0, y.shape[1], block):
            for i in range(first, last):
                for j in range(column, min(column + block, y.shape[1])):
                    out[i, j] = x[j, i] + y[i, j]
    return out


@row("movement/transposed_add")
def transposed_add(n, x, y):
    return transposed_loop(x, y, 32)


@loops
def take_loop(x, at):
    out = np.empty((at.size, x.shape[1]), f4)
    for i in prange(at.size):
        for j in range(x.shape[1]):
            out[i, j] = x[at[i], j]
    return out


@row("movement/take_rows")
def take_rows(n, x, at):
    return take_loop(x, at)


@loops
def add_rows_loop(at, x, n_rows, parts):
    out = np.zeros((n_rows, x.shape[1]), f4)
    width = (x.shape[1] + parts - 1) // parts
    for part in prange(parts):
        for i in range(at.size):
            for j in range(part * width, min((part + 1) * width, x.shape[1])):
                out[at[i], j] += x[i, j]
    return out


@row("movement/add_rows")
def add_rows(n, at, x):
    return add_rows_loop(at, x, n[0], numba.get_num_threads())


@loops
def windows_loop(x):
    out = np.empty((x.shape[0], x.shape[1] - 7), f4)
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            total = f4(0)
            for k in range(8):
                total += x[i, j + k]
            out[i, j] = total * f4(0.125)
    return out


@row("movement/windows")
def windows(n, x):
    return windows_loop(x)


@loops
def update_loop(x, y, first):
    for i in prange(y.shape[0]):
        for j in range(y.shape[1]):
            x[first + i, j] = x[first + i, j] * f4(0.5) + y[i, j]


@row("movement/update_part")
def update_part(n, x, y):
    update_loop(x, y, n[2])


@loops
def random_loop(n):
    out = np.empty(n, f4)
    for i in prange(n):
        out[i] = np.random.random()
    return out


@row("random/uniform")
def uniform(n):
    return random_loop(n[0])


@loops
def normal_loop(n):
    out = np.empty(n, f4)
    for i in prange(n):
        out[i] = np.random.standard_normal()
    return out


@row("random/normal")
def normal(n):
    return normal_loop(n[0])


# ---- stencils and simulations ----


@loops
def blur2_loop(u):
    out = np.empty((u.shape[0] - 2, u.shape[1] - 2), f4)
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            corners = u[i, j] + u[i, j + 2] + u[i + 2, j] + u[i + 2, j + 2]
            edges = u[i, j + 1] + u[i + 1, j] + u[i + 1, j + 2] + u[i + 2, j + 1]
            out[i, j] = f4(0.25) * u[i + 1, j + 1] + f4(0.125) * edges + f4(0.0625) * corners
    return out


@row("images/blur_2d")
def blur2(n, u):
    return blur2_loop(u)


@loops
def blur3_loop(u):
    out = np.empty((u.shape[0] - 2, u.shape[1] - 2, u.shape[2] - 2), f4)
    for i in prange(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            for k in range(1, u.shape[2] - 1):
                beside = (u[i - 1, j, k] + u[i + 1, j, k] + u[i, j - 1, k] + u[i, j + 1, k]
                          + u[i, j, k - 1] + u[i, j, k + 1])
                out[i - 1, j - 1, k - 1] = f4(0.4) * u[i, j, k] + f4(0.1) * beside
    return out


@row("images/blur_3d")
def blur3(n, u):
    return blur3_loop(u)


@loops
def heat_loop(u, next):
    for i in prange(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            beside = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
            next[i, j] = u[i, j] + f4(0.1) * (beside - f4(4) * u[i, j])


@row("simulations/heat")
def heat(n, u):
    """An even number of steps: the state is in u again."""
    next = u.copy()
    for _ in range(5):
        heat_loop(u, next)
        heat_loop(next, u)


@loops
def wave_loop(u, before):
    """Writes the new state over the one before."""
    for i in prange(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            for k in range(1, u.shape[2] - 1):
                beside = (u[i - 1, j, k] + u[i + 1, j, k] + u[i, j - 1, k] + u[i, j + 1, k]
                          + u[i, j, k - 1] + u[i, j, k + 1])
                before[i, j, k] = f4(1.4) * u[i, j, k] - before[i, j, k] + f4(0.1) * beside


@row("simulations/wave_3d", exchanges=True)
def wave(n, u, before):
    """The two states are exchanged after each call."""
    for axis in range(3):
        for end in (0, -1):
            face = (slice(None),) * axis + (end,)
            before[face] = u[face]
    wave_loop(u, before)


@loops
def n_body_loop(x, y, z, vx, vy, vz, m):
    for i in prange(x.size):
        ax, ay, az = f4(0), f4(0), f4(0)
        for j in range(x.size):
            dx, dy, dz = x[j] - x[i], y[j] - y[i], z[j] - z[i]
            inverse = f4(1) / math.sqrt(dx * dx + dy * dy + dz * dz + f4(0.01))
            w = m[j] * inverse * inverse * inverse
            ax += dx * w
            ay += dy * w
            az += dz * w
        vx[i] += ax * f4(1e-6)
        vy[i] += ay * f4(1e-6)
        vz[i] += az * f4(1e-6)


@loops
def move_loop(x, y, z, vx, vy, vz):
    for i in prange(x.size):
        x[i] += vx[i] * f4(1e-6)
        y[i] += vy[i] * f4(1e-6)
        z[i] += vz[i] * f4(1e-6)


@row("simulations/n_body")
def n_body(n, x, y, z, vx, vy, vz, m):
    n_body_loop(x, y, z, vx, vy, vz, m)
    move_loop(x, y, z, vx, vy, vz)


@loops
def mandelbrot_loop(im, re):
    count = np.empty((im.size, re.size), np.int32)
    for i in prange(im.size):
        b = im[i] * f4(2) - f4(1.2)
        for j in range(re.size):
            a = re[j] * f4(2.5) - f4(2)
            x, y, n = f4(0), f4(0), 0
            for _ in range(50):
                xx, yy = x * x, y * y
                if xx + yy > f4(4):
                    break
                n += 1
                x, y = xx - yy + a, f4(2) * x * y + b
            count[i, j] = n
    return count


@row("simulations/mandelbrot")
def mandelbrot(n, im, re):
    return mandelbrot_loop(im, re)


@loops
def black_scholes_loop(s, k, t):
    call, put = np.empty_like(s), np.empty_like(s)
    for i in prange(s.size):
        w = f4(0.3) * math.sqrt(t[i])
        d1 = (math.log(s[i] / k[i]) + f4(0.065) * t[i]) / w
        n1 = (math.erf(d1 * f4(0.70710678)) + f4(1)) * f4(0.5)
        n2 = (math.erf((d1 - w) * f4(0.70710678)) + f4(1)) * f4(0.5)
        discounted = k[i] * math.exp(t[i] * f4(-0.02))
        call[i] = s[i] * n1 - discounted * n2
        put[i] = call[i] + discounted - s[i]
    return call, put


@row("simulations/black_scholes")
def black_scholes(n, s, k, t):
    return black_scholes_loop(s, k, t)


@numba.njit(fastmath=True)
def tiny_loop(x):
    out = x.copy()
    for _ in range(500):
        for i in range(out.size):
            out[i] = out[i] * f4(0.99) + f4(0.01)
    return out


@row("tiny/captured")
def tiny(n, x):
    return tiny_loop(x)
