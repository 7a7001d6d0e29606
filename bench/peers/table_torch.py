# SPDX-License-Identifier: Apache-2.0
"""PyTorch in the table of peers: eager and compiled. Its eager functions in f64 are the reference of every row."""
import numpy as np
import torch

import table_peer
from table_orders import order_rows
from table_stencils import beside2, beside3, blur2, blur3, neighbours3

ROWS = table_peer.Rows()
row = ROWS.row
F = torch.nn.functional


class Torch(table_peer.Peer):
    """Eager, as most write it."""

    rows = ROWS
    version = torch.__version__.split("+")[0]

    def __init__(self, threads):
        torch.set_num_threads(threads)

    def tensor(self, array, is_index):
        if table_peer.half_bits(array):
            return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
        tensor = torch.from_numpy(array.copy())
        return tensor.long() if is_index else tensor

    def numpy(self, tensor):
        return tensor.detach().double().numpy()

    def compiled(self, function):
        return function

    def called(self, function):
        """The row as one call of its inputs."""
        sizes, grad, descends = self.sizes, self.row.grad, self.row.options.get("descends")
        part = self.row.options.get("part")
        if part:    # The function calls a part again and again, and the compiler gets that alone.
            part = self.compiled(part)
            inner = lambda *inputs: function(sizes, part, *inputs)
        else:
            inner = self.compiled(lambda *inputs: function(sizes, *inputs))

        def both(*inputs):
            loss = inner(*inputs)
            return (loss, *torch.autograd.grad(loss, [inputs[i] for i in grad]))

        def descend(*inputs):
            """A step of SGD, which writes the first inputs."""
            parameters = inputs[:descends]
            grads = torch.autograd.grad(inner(*inputs), parameters)
            torch._foreach_add_([p.detach() for p in parameters], grads, alpha=-0.01)

        return both if grad else descend if descends else torch.no_grad()(inner)

    def build(self):
        for i in [*self.row.grad, *range(self.row.options.get("descends", 0))]:
            self.inputs[i].requires_grad_()
        return self.called(self.row.function)

    def reference(self):
        """The outputs in f64, computed by the eager functions from the inputs as they are at the beginning."""
        kept, compiled = self.inputs, self.compiled
        try:
            self.inputs = [self.tensor(a, i in self.row.index) for i, a in enumerate(self.arrays)]
            self.inputs = [a.double() if a.is_floating_point() else a for a in self.inputs]
            self.compiled = lambda function: function
            call, self.call = self.call, self.build()
            return self.check()
        finally:
            self.inputs, self.compiled, self.call = kept, compiled, call


class TorchCompiled(Torch):
    """torch.compile in its default mode."""

    def compiled(self, function):
        torch._dynamo.reset()    # Sizes seen before would make those of this row dynamic.
        return torch.compile(function)


# ---- elementwise ----


@row("elementwise/chain", "elementwise/chain_small")
def chain(n, x, y):
    return torch.sqrt(x * x + y * y) * torch.exp(-x) + y * torch.tanh(x)


@row("elementwise/gelu", "halves/bf16_gelu")
def gelu(n, x):
    return F.gelu(x)


@row("elementwise/axpy")
def axpy(n, x, y):
    return (x * 2 + y) * y - x * 0.5


@row("elementwise/select")
def select(n, x, y):
    return torch.where(x > y, x.clamp(-1, 1), y * 0.1)


@row("elementwise/broadcast")
def broadcast(n, column, line, x):
    return (column[:, None] + line) * torch.sin(x)


@row("elementwise/magnitude")
def magnitude(n, x, y):
    return torch.sqrt(x * x + y * y)


@row("elementwise/adam")
def adam(n, p, m, v, g):
    m.lerp_(g, 0.1)
    v.lerp_(g * g, 0.001)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.001)


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
    return F.mse_loss(x, y)


@row("reductions/softmax")
def softmax(n, x):
    return torch.softmax(x, 1)


@row("reductions/log_sum_exp")
def log_sum_exp(n, x):
    return torch.logsumexp(x, 1)


@row("reductions/deviation_rows")
def deviation(n, x):
    return x.std(1)


@row("reductions/norm_all")
def norm_all(n, x):
    return torch.linalg.vector_norm(x)


@row("reductions/unit_rows")
def unit_rows(n, x):
    return x / (torch.linalg.vector_norm(x, dim=1, keepdim=True) + 1e-6)


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


@row("random/uniform")
def uniform(n):
    return torch.rand(n[0])


@row("random/normal")
def normal(n):
    return torch.randn(n[0])


@row("halves/bf16_chain", "halves/f16_chain")
def half_chain(n, x, y):
    return (x * y + x) * y - x * 0.5


@row("integers/chain")
def integer_chain(n, x, y):
    return ((x * 3 + y) ^ (x >> 3)) & 65535


@row("integers/bins")
def bins(n, x):
    return torch.bincount(x, minlength=n[1])


@row("integers/sort")
def sort(n, x):
    return torch.sort(x, dim=1).values


@row("integers/top_k")
def top_k(n, x):
    return tuple(torch.topk(x, n[2], dim=1))


# ---- order ----

row(*order_rows("sort"))(lambda n, x: torch.sort(x)[0])
row(*order_rows("argsort"))(lambda n, x: torch.argsort(x, stable=True))
row(*order_rows("topk"))(lambda n, x: torch.topk(x, n[1] if x.dim() == 1 else n[2])[0])
row(*order_rows("median"))(lambda n, x: torch.median(x, -1)[0])
row(*order_rows("quantile"))(lambda n, x: torch.quantile(x, 0.3, -1))
row(*order_rows("unique"), room=True)(lambda n, x: torch.unique(x))
row(*order_rows("unique_all"), room=True)(lambda n, x: torch.unique(x, return_inverse=True, return_counts=True))
row(*order_rows("searchsorted"))(lambda n, edges, x: torch.searchsorted(edges, x))
row(*order_rows("bucketize"))(lambda n, edges, x: torch.bucketize(x, edges))
row(*order_rows("histogram"))(lambda n, x: torch.histc(x, n[1], -3, 3))
row(*order_rows("bincount"))(lambda n, x: torch.bincount(x, minlength=n[1]))
row(*order_rows("isin"))(lambda n, x, elements: torch.isin(x, elements))


# ---- movement ----


@row("movement/transposed_add")
def transposed_add(n, x, y):
    return x.t() + y


@row("movement/channels_first")
def channels_first(n, x):
    return (x.permute(0, 3, 1, 2) * 0.5).contiguous()


@row("movement/take_rows", index=(1,))
def take_rows(n, x, i):
    return x[i]


@row("movement/gather", index=(1,))
def gather(n, x, i):
    return torch.gather(x, 1, i)


@row("movement/add_rows", index=(0,))
def add_rows(n, i, x):
    return x.new_zeros(n[0], n[1]).index_add_(0, i, x)


@row("movement/scatter", index=(0,))
def scatter(n, i, x):
    return x.new_zeros(n[0], n[1]).scatter_add_(0, i, x)


@row("movement/concat")
def concat(n, x, y, z):
    return torch.cat([x, y, z], 1)


@row("movement/pad")
def pad(n, x):
    return F.pad(x, (2, 2, 2, 2))


@row("movement/stack")
def stack(n, x, y, z):
    return torch.stack([x, y, z], 2)


@row("movement/roll")
def roll(n, x):
    return torch.roll(x, 3, 1) + x


@row("movement/windows")
def windows(n, x):
    return x.unfold(1, 8, 1).mean(2)


@row("movement/update_part")
def update_part(n, x, y):
    x[n[2]:n[2] + n[3]].mul_(0.5).add_(y)


@row("movement/flip")
def flip(n, x):
    return x - x.flip(1)


# ---- products ----

THIN = [f"products/thin_{rows}" for rows in (1, 4, 8, 64)]


@row("products/square", "products/batched", "halves/bf16_product", *THIN)
def product(n, x, w):
    return x @ w


@row(*[name + "_bt" for name in THIN])
def product_bt(n, x, w):
    return F.linear(x, w)


@row("products/transposed_a")
def product_at(n, x, w):
    return x.t() @ w


# ---- layers ----


@row("layers/linear_gelu")
def linear_gelu(n, x, w, bias):
    return F.gelu(F.linear(x, w, bias))


@row("layers/linear_gelu_train", grad=(0, 1, 2))
def linear_gelu_train(n, x, w, bias, g):
    return (linear_gelu(n, x, w, bias) * g).sum()


@row("layers/layer_norm")
def layer_norm(n, x, gain, bias):
    return F.layer_norm(x, x.shape[-1:], gain, bias)


@row("layers/layer_norm_train", grad=(0, 1, 2))
def layer_norm_train(n, x, gain, bias, g):
    return (layer_norm(n, x, gain, bias) * g).sum()


@row("layers/rms_norm")
def rms_norm(n, x, gain):
    return F.rms_norm(x, x.shape[-1:], gain, 1e-6)


@row("layers/batch_norm")
def batch_norm(n, x, gain, bias):
    return F.batch_norm(x, None, None, gain, bias, training=True)


@row("layers/batch_norm_train", grad=(0, 1, 2))
def batch_norm_train(n, x, gain, bias, g):
    return (batch_norm(n, x, gain, bias) * g).sum()


@row("layers/softmax_train", grad=(0,))
def softmax_train(n, x, g):
    return (torch.softmax(x, 1) * g).sum()


@row("layers/cross_entropy_train", index=(1,), grad=(0,))
def cross_entropy_train(n, scores, labels):
    return F.cross_entropy(scores, labels)


@row("layers/embedding_train", index=(1,), grad=(0,))
def embedding_train(n, table, i, g):
    return (F.embedding(i, table) * g).sum()


# ---- images ----


@row("images/conv3x3")
def conv3x3(n, x, w):
    return F.conv2d(x, w, padding=1)


@row("images/conv3x3_train", grad=(0, 1))
def conv3x3_train(n, x, w, g):
    return (F.conv2d(x, w, padding=1) * g).sum()


@row("images/conv1x1")
def conv1x1(n, x, w):
    return F.conv2d(x, w)


@row("images/depthwise")
def depthwise(n, x, w):
    return F.conv2d(x, w, padding=1, groups=n[1])


@row("images/max_pool")
def max_pool(n, x):
    return F.max_pool2d(x, 3, 2, 1)


@row("images/max_pool_train", grad=(0,))
def max_pool_train(n, x, g):
    return (F.max_pool2d(x, 2) * g).sum()


@row("images/avg_pool")
def avg_pool(n, x):
    return F.avg_pool2d(x, 2)


def affine(x, scale, shift):
    return x * scale[:, None, None] + shift[:, None, None]


@row("images/resnet_block")
def resnet_block(n, x, w1, scale1, shift1, w2, scale2, shift2):
    h = F.relu(affine(F.conv2d(x, w1, padding=1), scale1, shift1))
    return F.relu(affine(F.conv2d(h, w2, padding=1), scale2, shift2) + x)


@row("images/resnet_block_train", grad=(0, 1, 2, 3, 4, 5, 6))
def resnet_block_train(n, *inputs):
    return (resnet_block(n, *inputs[:-1]) * inputs[-1]).sum()


row("images/blur_2d")(blur2)
row("images/blur_3d")(blur3)


@row("simulations/heat")
def heat(n, u):
    for _ in range(10):
        beside = beside2(u, -1, 0) + beside2(u, 1, 0) + (beside2(u, 0, -1) + beside2(u, 0, 1))
        beside2(u, 0, 0).add_(beside - 4 * beside2(u, 0, 0), alpha=0.1)


@row("simulations/wave_3d")
def wave(n, u, before):
    laplace = neighbours3(u) - 6 * beside3(u, 0, 0, 0)
    after = 2 * beside3(u, 0, 0, 0) - beside3(before, 0, 0, 0) + 0.1 * laplace
    before.copy_(u)
    beside3(u, 0, 0, 0).copy_(after)


# ---- sequences ----


def recurrent(layer):
    def function(n, x, w, u, b, c):
        state = x.new_zeros(1, n[1], n[3])
        if layer is torch.lstm:
            return torch.lstm(x, (state, state), (w, u, b, c), True, 1, 0.0, False, False, False)[0]
        return torch.gru(x, state, (w, u, b, c), True, 1, 0.0, False, False, False)[0]
    return function


row("recurrent/lstm", "recurrent/lstm_batch_1")(recurrent(torch.lstm))
row("recurrent/gru", "recurrent/gru_batch_1")(recurrent(torch.gru))


@row("attention/prefill")
def prefill(n, q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@row("attention/one_query")
def one_query(n, q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


@row("attention/grouped")
def grouped(n, q, k, v):
    y = F.scaled_dot_product_attention(q.flatten(1, 2), k, v, is_causal=True, enable_gqa=True)
    return y.view(q.shape)


@row("attention/train", grad=(0, 1, 2))
def attention_train(n, q, k, v, g):
    return (prefill(n, q, k, v) * g).sum()


@row("attention/rotary")
def rotary(n, x, angle):
    re, im = x.chunk(2, -1)
    cosine, sine = angle.cos(), angle.sin()
    return torch.cat([re * cosine - im * sine, re * sine + im * cosine], -1)


@row("decoding/block")
def decode(n, keys, values, x, qkv, out, up, down):
    q, k, v = F.linear(F.layer_norm(x, x.shape[-1:]), qkv).view(3, n[0], 1, n[2])
    keys[:, -1:] = k
    values[:, -1:] = v
    y = F.scaled_dot_product_attention(q[None], keys[None], values[None])[0]
    x = x + F.linear(y.reshape(1, n[3]), out)
    return x + F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[-1:]), up)), down)


# ---- whole networks ----


@row("networks/mlp_inference", "networks/mlp_batch_1")
def mlp(n, w1, b1, w2, b2, w3, b3, x):
    return F.linear(F.relu(F.linear(F.relu(F.linear(x, w1, b1)), w2, b2)), w3, b3)


@row("networks/mlp_step", index=(7,), descends=6)
def mlp_loss(n, *inputs):
    return F.cross_entropy(mlp(n, *inputs[:7]), inputs[7])


@row("networks/cnn_step", index=(7,), descends=6)
def cnn_loss(n, w1, b1, w2, b2, w3, b3, x, labels):
    x = F.max_pool2d(F.relu(F.conv2d(x, w1, b1, padding=1)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, w2, b2, padding=1)), 2)
    return F.cross_entropy(F.linear(x.flatten(1), w3, b3), labels)


@row("networks/transformer_block")
def block(n, x, qkv, out, up, down):
    batch, time, width, _, _, heads = n
    y = F.linear(F.layer_norm(x, x.shape[-1:]), qkv)
    q, k, v = (a.view(batch, time, heads, -1).transpose(1, 2) for a in y.split(width, 2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + F.linear(y.transpose(1, 2).reshape(batch, time, width), out)
    return x + F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[-1:]), up)), down)


@row("networks/transformer_block_train", grad=(0, 1, 2, 3, 4))
def block_train(n, *inputs):
    return (block(n, *inputs[:-1]) * inputs[-1]).sum()


# ---- simulations and tiny operations ----


@row("simulations/n_body")
def n_body(n, x, y, z, vx, vy, vz, m):
    d = [a[None] - a[:, None] for a in (x, y, z)]
    w = m * torch.rsqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + 0.01) ** 3
    for a, v, difference in zip((x, y, z), (vx, vy, vz), d):
        v.add_((difference * w).sum(1), alpha=1e-6)
        a.add_(v, alpha=1e-6)


def iterate(re, im, x, y, count):
    """Two iterations. The compiler needs minutes for five of them in one graph."""
    for _ in range(2):
        xx, yy = x * x, y * y
        near = xx + yy <= 4
        count = count + near
        x, y = torch.where(near, xx - yy + re, x), torch.where(near, 2 * x * y + im, y)
    return x, y, count


@row("simulations/mandelbrot", part=iterate)
def mandelbrot(n, part, im, re):
    re, im = re * 2.5 - 2, (im * 2 - 1.2)[:, None]
    x = y = re.new_zeros(n[0], n[1])
    count = torch.zeros(n[0], n[1], dtype=torch.int32)
    for _ in range(25):
        x, y, count = part(re, im, x, y, count)
    return count


@row("simulations/black_scholes")
def black_scholes(n, s, k, t):
    w = 0.3 * torch.sqrt(t)
    d1 = (torch.log(s / k) + 0.065 * t) / w
    n1, n2 = ((torch.erf(d * 0.70710678) + 1) * 0.5 for d in (d1, d1 - w))
    discounted = k * torch.exp(t * -0.02)
    call = s * n1 - discounted * n2
    return call, call + discounted - s


@row("tiny/recorded_again", "tiny/captured")
def tiny(n, x):
    for _ in range(500):
        x = x * 0.99 + 0.01
    return x
