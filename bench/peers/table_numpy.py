# SPDX-License-Identifier: Apache-2.0
"""NumPy in the table of peers, in the rows that NumPy's users would write with it alone."""
import numpy as np

import table_peer
from table_orders import order_rows
from table_stencils import beside3, neighbours3

ROWS = table_peer.Rows()
row = ROWS.row


class NumPy(table_peer.Peer):
    rows = ROWS
    version = np.__version__

    def __init__(self, threads):
        pass    # OMP_NUM_THREADS is set; only products have threads.

    def tensor(self, array, is_index):
        return array.copy()

    def numpy(self, array):
        return np.asarray(array)

    def build(self):
        function, sizes = self.row.function, self.sizes
        return lambda *inputs: function(sizes, *inputs)


# ---- elementwise ----


@row("elementwise/chain", "elementwise/chain_small")
def chain(n, x, y):
    return np.sqrt(x * x + y * y) * np.exp(-x) + y * np.tanh(x)


@row("elementwise/axpy")
def axpy(n, x, y):
    return (x * 2 + y) * y - x * np.float32(0.5)


@row("elementwise/select")
def select(n, x, y):
    return np.where(x > y, np.clip(x, -1, 1), y * np.float32(0.1))


@row("elementwise/broadcast")
def broadcast(n, column, line, x):
    return (column[:, None] + line) * np.sin(x)


@row("elementwise/magnitude")
def magnitude(n, x, y):
    return np.sqrt(x * x + y * y)


# ---- reductions ----


@row("reductions/sum_all")
def sum_all(n, x):
    return x.sum()


@row("reductions/sum_rows")
def sum_rows(n, x):
    return x.sum(1)


@row("reductions/sum_columns")
def sum_columns(n, x):
    return x.sum(0)


@row("reductions/deviation_rows")
def deviation(n, x):
    return x.std(1, ddof=1)


@row("reductions/norm_all")
def norm_all(n, x):
    return np.sqrt(np.vdot(x, x))


@row("reductions/argmax_rows")
def argmax_rows(n, x):
    return x.argmax(1)


@row("reductions/cumsum_rows")
def cumsum_rows(n, x):
    return x.cumsum(1)


@row("reductions/cumsum_columns")
def cumsum_columns(n, x):
    return x.cumsum(0)


# ---- random numbers, integers ----

generator = np.random.default_rng(1)


@row("random/uniform")
def uniform(n):
    return generator.random(n[0], np.float32)


@row("random/normal")
def normal(n):
    return generator.standard_normal(n[0], np.float32)


@row("integers/chain")
def integer_chain(n, x, y):
    return ((x * 3 + y) ^ (x >> 3)) & 65535


@row("integers/bins")
def bins(n, x):
    return np.bincount(x, minlength=n[1])


@row("integers/sort")
def sort(n, x):
    return np.sort(x, axis=1)


@row("integers/top_k")
def top_k(n, x):
    found = np.argpartition(-x, n[2], axis=1)[:, :n[2]]
    values = np.take_along_axis(x, found, 1)
    order = np.argsort(-values, axis=1)
    return np.take_along_axis(values, order, 1), np.take_along_axis(found, order, 1)


# ---- order ----

row(*order_rows("sort"))(lambda n, x: np.sort(x))
row(*order_rows("argsort"))(lambda n, x: np.argsort(x, kind="stable"))
row(*order_rows("unique"), room=True)(lambda n, x: np.unique(x))
row(*order_rows("unique_all"), room=True)(lambda n, x: np.unique(x, return_inverse=True, return_counts=True))
row(*order_rows("searchsorted"), *order_rows("bucketize"))(lambda n, edges, x: np.searchsorted(edges, x))
row(*order_rows("histogram"))(lambda n, x: np.histogram(x, n[1], (-3, 3))[0])
row(*order_rows("bincount"))(lambda n, x: np.bincount(x, minlength=n[1]))
row(*order_rows("isin"))(lambda n, x, elements: np.isin(x, elements))
row(*order_rows("quantile"))(lambda n, x: np.quantile(x, 0.3, -1))


@row(*order_rows("topk"))
def topk(n, x):
    k = n[1] if x.ndim == 1 else n[2]
    found = np.argpartition(x, -k)[..., -k:]
    values = np.take_along_axis(x, found, -1)
    order = np.argsort(values)[..., ::-1]
    indices = np.take_along_axis(found, order, -1)
    return np.take_along_axis(x, indices, -1)


@row(*order_rows("median"))
def median(n, x):
    """The lower of two in the middle, as in deft and PyTorch."""
    k = (x.shape[-1] - 1) // 2
    return np.partition(x, k)[..., k]


# ---- movement ----


@row("movement/transposed_add")
def transposed_add(n, x, y):
    return x.T + y


@row("movement/channels_first")
def channels_first(n, x):
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) * np.float32(0.5)


@row("movement/take_rows")
def take_rows(n, x, i):
    return x.take(i, axis=0)


@row("movement/gather")
def gather(n, x, i):
    return np.take_along_axis(x, i, 1)


@row("movement/concat")
def concat(n, x, y, z):
    return np.concatenate([x, y, z], 1)


@row("movement/pad")
def pad(n, x):
    return np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))


@row("movement/stack")
def stack(n, x, y, z):
    return np.stack([x, y, z], 2)


@row("movement/roll")
def roll(n, x):
    return np.roll(x, 3, 1) + x


@row("movement/windows")
def windows(n, x):
    return np.lib.stride_tricks.sliding_window_view(x, 8, 1).mean(2)


@row("movement/update_part")
def update_part(n, x, y):
    part = x[n[2]:n[2] + n[3]]
    part *= np.float32(0.5)
    part += y


@row("movement/flip")
def flip(n, x):
    return x - x[:, ::-1]


# ---- products and layers ----

THIN = [f"products/thin_{rows}" for rows in (1, 4, 8, 64)]


@row("products/square", "products/batched", *THIN)
def product(n, x, w):
    return x @ w


@row(*[name + "_bt" for name in THIN])
def product_bt(n, x, w):
    return x @ w.T


@row("products/transposed_a")
def product_at(n, x, w):
    return x.T @ w


@row("layers/layer_norm")
def layer_norm(n, x, gain, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5)) * gain + bias


@row("networks/mlp_inference", "networks/mlp_batch_1")
def mlp(n, w1, b1, w2, b2, w3, b3, x):
    h = np.maximum(x @ w1.T + b1, 0)
    return np.maximum(h @ w2.T + b2, 0) @ w3.T + b3


# ---- stencils, simulations, tiny operations ----


@row("images/blur_3d")
def blur3(n, u):
    return beside3(u, 0, 0, 0) * np.float32(0.4) + neighbours3(u) * np.float32(0.1)


@row("simulations/heat")
def heat(n, u):
    for _ in range(10):
        beside = u[:-2, 1:-1] + u[2:, 1:-1] + (u[1:-1, :-2] + u[1:-1, 2:])
        u[1:-1, 1:-1] += (beside - 4 * u[1:-1, 1:-1]) * np.float32(0.1)


@row("tiny/recorded_again", "tiny/captured")
def tiny(n, x):
    for _ in range(500):
        x = x * np.float32(0.99) + np.float32(0.01)
    return x
