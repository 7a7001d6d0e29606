# SPDX-License-Identifier: Apache-2.0
"""JAX in the table of peers: each row is one function under jit."""
import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

import table_peer
from table_stencils import beside2, beside3, blur2, blur3, neighbours3

ROWS = table_peer.Rows()
row = ROWS.row


class Jax(table_peer.Peer):
    rows = ROWS
    version = jax.__version__

    def __init__(self, threads):
        pass    # serve.py has set the affinity, from which XLA takes the number of its threads.

    def tensor(self, array, is_index):
        return jnp.array(array.view(ml_dtypes.bfloat16) if table_peer.half_bits(array) else array)

    def numpy(self, array):
        return np.asarray(array.astype(jnp.float32) if array.dtype in (jnp.bfloat16, jnp.float16) else array)

    def build(self):
        self.key = jax.random.key(1)
        function = functools.partial(self.row.function, self.sizes)
        if self.row.grad:
            inner = jax.value_and_grad(function, self.row.grad)
            function = lambda *inputs: (lambda loss, grads: (loss, *grads))(*inner(*inputs))
        return jax.jit(function, donate_argnums=tuple(range(self.n_states)))

    def run(self, n):
        call, inputs, wait = self.call, self.inputs, jax.block_until_ready
        if self.row.options.get("random"):
            for _ in range(n):
                self.key, outputs = wait(call(self.key))
            return outputs
        if not self.n_states:
            for _ in range(n):
                outputs = wait(call(*inputs))
            return outputs
        states, rest = inputs[:self.n_states], inputs[self.n_states:]
        for _ in range(n):
            outputs = wait(call(*states, *rest))
            # The new states come first; donated ones are gone.
            states = outputs[:self.n_states] if isinstance(outputs, tuple) else [outputs]
        self.inputs = [*states, *rest]
        return outputs


# ---- elementwise ----


@row("elementwise/chain", "elementwise/chain_small")
def chain(n, x, y):
    return jnp.sqrt(x * x + y * y) * jnp.exp(-x) + y * jnp.tanh(x)


@row("elementwise/gelu", "halves/bf16_gelu")
def gelu(n, x):
    return jax.nn.gelu(x, approximate=False)


@row("elementwise/axpy")
def axpy(n, x, y):
    return (x * 2 + y) * y - x * 0.5


@row("elementwise/select")
def select(n, x, y):
    return jnp.where(x > y, jnp.clip(x, -1, 1), y * 0.1)


@row("elementwise/broadcast")
def broadcast(n, column, line, x):
    return (column[:, None] + line) * jnp.sin(x)


@row("elementwise/magnitude")
def magnitude(n, x, y):
    return jnp.sqrt(x * x + y * y)


@row("elementwise/adam")
def adam(n, p, m, v, g):
    m = m + 0.1 * (g - m)
    v = v + 0.001 * (g * g - v)
    return p - m / (jnp.sqrt(v) + 1e-8) * 0.001, m, v


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


@row("reductions/mean_squared_error")
def mean_squared_error(n, x, y):
    return jnp.mean((x - y) ** 2)


@row("reductions/softmax")
def softmax(n, x):
    return jax.nn.softmax(x, axis=1)


@row("reductions/log_sum_exp")
def log_sum_exp(n, x):
    return jax.nn.logsumexp(x, axis=1)


@row("reductions/deviation_rows")
def deviation(n, x):
    return x.std(1, ddof=1)


@row("reductions/norm_all")
def norm_all(n, x):
    return jnp.sqrt(jnp.sum(x * x))


@row("reductions/unit_rows")
def unit_rows(n, x):
    return x / (jnp.linalg.norm(x, axis=1, keepdims=True) + 1e-6)


@row("reductions/argmax_rows")
def argmax_rows(n, x):
    return x.argmax(1)


@row("reductions/cumsum_rows")
def cumsum_rows(n, x):
    return x.cumsum(1)


@row("reductions/cumsum_columns")
def cumsum_columns(n, x):
    return x.cumsum(0)


# ---- random numbers, halves, integers ----


def drawn(draw):
    def function(n, key):
        key, sub = jax.random.split(key)
        return key, draw(sub, (n[0],), jnp.float32)
    return function


row("random/uniform", random=True)(drawn(jax.random.uniform))
row("random/normal", random=True)(drawn(jax.random.normal))


@row("halves/bf16_chain", "halves/f16_chain")
def half_chain(n, x, y):
    return (x * y + x) * y - x * 0.5


@row("integers/chain")
def integer_chain(n, x, y):
    return ((x * 3 + y) ^ (x >> 3)) & 65535


@row("integers/bins")
def bins(n, x):
    return jnp.bincount(x, length=n[1])


@row("integers/sort")
def sort(n, x):
    return jnp.sort(x, axis=1)


@row("integers/top_k")
def top_k(n, x):
    return tuple(lax.top_k(x, n[2]))


# ---- movement ----


@row("movement/transposed_add")
def transposed_add(n, x, y):
    return x.T + y


@row("movement/channels_first")
def channels_first(n, x):
    return x.transpose(0, 3, 1, 2) * 0.5


@row("movement/take_rows")
def take_rows(n, x, i):
    return x[i]


@row("movement/gather")
def gather(n, x, i):
    return jnp.take_along_axis(x, i, 1)


@row("movement/add_rows")
def add_rows(n, i, x):
    return jnp.zeros((n[0], n[1])).at[i].add(x)


@row("movement/scatter")
def scatter(n, i, x):
    return jnp.zeros((n[0], n[1])).at[i, jnp.arange(n[1])].add(x)


@row("movement/concat")
def concat(n, x, y, z):
    return jnp.concatenate([x, y, z], 1)


@row("movement/pad")
def pad(n, x):
    return jnp.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))


@row("movement/stack")
def stack(n, x, y, z):
    return jnp.stack([x, y, z], 2)


@row("movement/roll")
def roll(n, x):
    return jnp.roll(x, 3, 1) + x


@row("movement/windows")
def windows(n, x):
    width = n[1] - 7
    return sum(x[:, i:i + width] for i in range(8)) * 0.125


@row("movement/update_part")
def update_part(n, x, y):
    return x.at[n[2]:n[2] + n[3]].set(x[n[2]:n[2] + n[3]] * 0.5 + y)


@row("movement/flip")
def flip(n, x):
    return x - x[:, ::-1]


# ---- products ----

THIN = [f"products/thin_{rows}" for rows in (1, 4, 8, 64)]


@row("products/square", "products/batched", "halves/bf16_product", *THIN)
def product(n, x, w):
    return x @ w


@row(*[name + "_bt" for name in THIN])
def product_bt(n, x, w):
    return x @ w.T


@row("products/transposed_a")
def product_at(n, x, w):
    return x.T @ w


# ---- layers ----


@row("layers/linear_gelu")
def linear_gelu(n, x, w, bias):
    return jax.nn.gelu(x @ w.T + bias, approximate=False)


@row("layers/linear_gelu_train", grad=(0, 1, 2))
def linear_gelu_train(n, x, w, bias, g):
    return (linear_gelu(n, x, w, bias) * g).sum()


def normed(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


@row("layers/layer_norm")
def layer_norm(n, x, gain, bias):
    return normed(x) * gain + bias


@row("layers/layer_norm_train", grad=(0, 1, 2))
def layer_norm_train(n, x, gain, bias, g):
    return (layer_norm(n, x, gain, bias) * g).sum()


@row("layers/rms_norm")
def rms_norm(n, x, gain):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * gain


@row("layers/batch_norm")
def batch_norm(n, x, gain, bias):
    centred = x - x.mean((0, 2, 3), keepdims=True)
    unit = centred * lax.rsqrt((centred * centred).mean((0, 2, 3), keepdims=True) + 1e-5)
    return affine(unit, gain, bias)


@row("layers/batch_norm_train", grad=(0, 1, 2))
def batch_norm_train(n, x, gain, bias, g):
    return (batch_norm(n, x, gain, bias) * g).sum()


@row("layers/softmax_train", grad=(0,))
def softmax_train(n, x, g):
    return (jax.nn.softmax(x, axis=1) * g).sum()


@row("layers/cross_entropy_train", grad=(0,))
def cross_entropy_train(n, scores, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1).mean()


@row("layers/embedding_train", grad=(0,))
def embedding_train(n, table, i, g):
    return (table[i] * g).sum()


# ---- images ----


def convolved(x, w, padding=0, groups=1):
    return lax.conv_general_dilated(x, w, (1, 1), ((padding, padding),) * 2, feature_group_count=groups)


@row("images/conv3x3")
def conv3x3(n, x, w):
    return convolved(x, w, 1)


@row("images/conv3x3_train", grad=(0, 1))
def conv3x3_train(n, x, w, g):
    return (convolved(x, w, 1) * g).sum()


@row("images/conv1x1")
def conv1x1(n, x, w):
    return convolved(x, w)


@row("images/depthwise")
def depthwise(n, x, w):
    return convolved(x, w, 1, n[1])


def max_pooled(x, kernel, stride, padding):
    pads = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, kernel, kernel), (1, 1, stride, stride), pads)


@row("images/max_pool")
def max_pool(n, x):
    return max_pooled(x, 3, 2, 1)


@row("images/max_pool_train", grad=(0,))
def max_pool_train(n, x, g):
    return (max_pooled(x, 2, 2, 0) * g).sum()


@row("images/avg_pool")
def avg_pool(n, x):
    return lax.reduce_window(x, 0., lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") * 0.25


def affine(x, scale, shift):
    return x * scale[:, None, None] + shift[:, None, None]


@row("images/resnet_block")
def resnet_block(n, x, w1, scale1, shift1, w2, scale2, shift2):
    h = jax.nn.relu(affine(convolved(x, w1, 1), scale1, shift1))
    return jax.nn.relu(affine(convolved(h, w2, 1), scale2, shift2) + x)


@row("images/resnet_block_train", grad=(0, 1, 2, 3, 4, 5, 6))
def resnet_block_train(n, *inputs):
    return (resnet_block(n, *inputs[:-1]) * inputs[-1]).sum()


row("images/blur_2d")(blur2)
row("images/blur_3d")(blur3)


@row("simulations/heat")
def heat(n, u):
    def step(_, u):
        beside = beside2(u, -1, 0) + beside2(u, 1, 0) + (beside2(u, 0, -1) + beside2(u, 0, 1))
        centre = beside2(u, 0, 0)
        return u.at[1:-1, 1:-1].set(centre + (beside - 4 * centre) * 0.1)
    return lax.fori_loop(0, 10, step, u)


@row("simulations/wave_3d")
def wave(n, u, before):
    laplace = neighbours3(u) - 6 * beside3(u, 0, 0, 0)
    after = 2 * beside3(u, 0, 0, 0) - beside3(before, 0, 0, 0) + 0.1 * laplace
    return u.at[1:-1, 1:-1, 1:-1].set(after), u


# ---- sequences ----


@row("recurrent/lstm", "recurrent/lstm_batch_1")
def lstm(n, x, w, u, b, c):
    def step(states, row):
        h, cell = states
        i, f, g, o = jnp.split(row + h @ u.T, 4, axis=1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (h, cell), h
    zero = jnp.zeros((n[1], n[3]))
    return lax.scan(step, (zero, zero), x @ w.T + b + c)[1]


@row("recurrent/gru", "recurrent/gru_batch_1")
def gru(n, x, w, u, b, c):
    def step(h, row):
        xr, xz, xn = jnp.split(row, 3, axis=1)
        hr, hz, hn = jnp.split(h @ u.T + c, 3, axis=1)
        fresh = jnp.tanh(xn + jax.nn.sigmoid(xr + hr) * hn)
        h = fresh + jax.nn.sigmoid(xz + hz) * (h - fresh)
        return h, h
    return lax.scan(step, jnp.zeros((n[1], n[3])), x @ w.T + b)[1]


def attention(q, k, v, causal):
    """softmax(q k' / sqrt(width)) v over the last two axes."""
    scores = q @ jnp.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return jax.nn.softmax(scores, axis=-1) @ v


@row("attention/prefill")
def prefill(n, q, k, v):
    return attention(q, k, v, True)


@row("attention/one_query")
def one_query(n, q, k, v):
    return attention(q, k, v, False)


@row("attention/grouped")
def grouped(n, q, k, v):
    return attention(q, k[:, :, None], v[:, :, None], True)


@row("attention/train", grad=(0, 1, 2))
def attention_train(n, q, k, v, g):
    return (attention(q, k, v, True) * g).sum()


@row("attention/rotary")
def rotary(n, x, angle):
    re, im = jnp.split(x, 2, axis=-1)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate([re * cosine - im * sine, re * sine + im * cosine], -1)


@row("decoding/block")
def decode(n, keys, values, x, qkv, out, up, down):
    q, k, v = (normed(x) @ qkv.T).reshape(3, n[0], 1, n[2])
    keys, values = keys.at[:, -1:].set(k), values.at[:, -1:].set(v)
    x = x + attention(q, keys, values, False).reshape(1, n[3]) @ out.T
    return keys, values, x + jax.nn.gelu(normed(x) @ up.T, approximate=False) @ down.T


# ---- whole networks ----


def descent(loss, count):
    """A step of SGD, which returns the first `count` inputs anew."""
    def function(n, *inputs):
        grads = jax.grad(lambda *inputs: loss(n, *inputs), tuple(range(count)))(*inputs)
        return tuple(p - 0.01 * g for p, g in zip(inputs, grads))
    return function


def linear(x, w, b):
    return x @ w.T + b


@row("networks/mlp_inference", "networks/mlp_batch_1")
def mlp(n, w1, b1, w2, b2, w3, b3, x):
    return linear(jax.nn.relu(linear(jax.nn.relu(linear(x, w1, b1)), w2, b2)), w3, b3)


def mlp_loss(n, *inputs):
    return cross_entropy_train(n, mlp(n, *inputs[:7]), inputs[7])


def cnn_loss(n, w1, b1, w2, b2, w3, b3, x, labels):
    for w, b in ((w1, b1), (w2, b2)):
        x = max_pooled(jax.nn.relu(convolved(x, w, 1) + b[:, None, None]), 2, 2, 0)
    return cross_entropy_train(n, linear(x.reshape(n[0], -1), w3, b3), labels)


row("networks/mlp_step")(descent(mlp_loss, 6))
row("networks/cnn_step")(descent(cnn_loss, 6))


@row("networks/transformer_block")
def block(n, x, qkv, out, up, down):
    batch, time, width, _, _, heads = n
    y = normed(x) @ qkv.T
    q, k, v = (a.reshape(batch, time, heads, -1).swapaxes(1, 2) for a in jnp.split(y, 3, axis=2))
    y = attention(q, k, v, True)
    x = x + y.swapaxes(1, 2).reshape(batch, time, width) @ out.T
    return x + jax.nn.gelu(normed(x) @ up.T, approximate=False) @ down.T


@row("networks/transformer_block_train", grad=(0, 1, 2, 3, 4))
def block_train(n, *inputs):
    return (block(n, *inputs[:-1]) * inputs[-1]).sum()


# ---- simulations and tiny operations ----


@row("simulations/n_body")
def n_body(n, x, y, z, vx, vy, vz, m):
    d = [a[None] - a[:, None] for a in (x, y, z)]
    w = m * lax.rsqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + 0.01) ** 3
    v = [speed + (difference * w).sum(1) * 1e-6 for speed, difference in zip((vx, vy, vz), d)]
    return (*[a + speed * 1e-6 for a, speed in zip((x, y, z), v)], *v)


@row("simulations/mandelbrot")
def mandelbrot(n, im, re):
    re, im = re * 2.5 - 2, (im * 2 - 1.2)[:, None]

    def step(_, states):
        x, y, count = states
        xx, yy = x * x, y * y
        near = xx + yy <= 4
        return (jnp.where(near, xx - yy + re, x), jnp.where(near, 2 * x * y + im, y), count + near)
    zero = jnp.zeros((n[0], n[1]))
    return lax.fori_loop(0, 50, step, (zero, zero, jnp.zeros((n[0], n[1]), jnp.int32)), unroll=True)[2]


@row("simulations/black_scholes")
def black_scholes(n, s, k, t):
    w = 0.3 * jnp.sqrt(t)
    d1 = (jnp.log(s / k) + 0.065 * t) / w
    n1, n2 = ((lax.erf(d * 0.70710678) + 1) * 0.5 for d in (d1, d1 - w))
    discounted = k * jnp.exp(t * -0.02)
    call = s * n1 - discounted * n2
    return call, call + discounted - s


@row("tiny/recorded_again", "tiny/captured")
def tiny(n, x):
    for _ in range(500):
        x = x * 0.99 + 0.01
    return x
