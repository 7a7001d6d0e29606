#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One peer's side of `deft-bench overhead --peers`: the training step of bench/network.c in another library.

    step.py --venv build/peers --peer jax --threads 2

Installs the peer into a virtual environment in that folder (the first time), then answers lines on standard
input with lines on standard output, "ok ..." or "failed REASON":

    (nothing)    once the library is imported: ok VERSION
    load BATCH   then the four parameters, x (f32) and the labels (i32) as bytes: compiles, warms up
    loss N       the mean cross entropy, in double precision, after N steps from the start
    time N       back to the start, a few steps untimed, then N steps: their seconds

Each peer does the same maths: relu, softmax, cross entropy summed over the batch, Adam without bias correction.
Each is written in the form that was fastest for it of those that we tried; where a step returns before it is
done (JAX, Dr.Jit) only the last of the N is waited for, so that calls overlap with kernels as they would in a
program that looks at its loss now and then.
"""
import sys
import time

SHAPES = [(64, 256), (256,), (256, 10), (10,)]
CLASSES = 10
RATE, EPS = 0.001, 1e-8
WARM_UP, BEFORE_TIMING = 100, 5


class Jax:
    """One jitted step, its state donated. The gradient is jax.grad's: XLA makes the same of one by hand."""

    venv = "jax"

    def __init__(self, threads):
        import jax

        self.jax, self.version = jax, jax.__version__

    def load(self, start, x, labels):
        jax, jnp = self.jax, self.jax.numpy
        self.start, self.x, self.labels = start, jnp.asarray(x), jnp.asarray(labels)

        def loss(p, x, labels):
            scores = jax.nn.relu(x @ p[0] + p[1]) @ p[2] + p[3]
            return -jnp.sum(jax.nn.log_softmax(scores)[jnp.arange(len(labels)), labels])

        def step(state, x, labels, rate):
            p, m, v = state
            g = jax.grad(loss)(p, x, labels)
            m = [a + 0.1 * (b - a) for a, b in zip(m, g)]
            v = [a + 0.001 * (b * b - a) for a, b in zip(v, g)]
            p = [a - b / (jnp.sqrt(c) + EPS) * rate for a, b, c in zip(p, m, v)]
            return p, m, v

        self.step = jax.jit(step, donate_argnums=0)

    def reset(self):
        jnp = self.jax.numpy
        self.state = ([jnp.array(a) for a in self.start],) + tuple(
            [jnp.zeros(s, jnp.float32) for s in SHAPES] for _ in range(2))

    def run(self, n):
        for _ in range(n):
            self.state = self.step(self.state, self.x, self.labels, RATE)
        self.jax.block_until_ready(self.state)

    def params(self):
        return self.state[0]


class DrJit:
    """LLVM backend, the step frozen. Matrix products are Dr.Jit's own (dr.matmul), the gradient is by hand."""

    venv = "drjit"

    def __init__(self, threads):
        import drjit
        from drjit.llvm import TensorXf

        drjit.set_thread_count(threads)
        self.dr, self.tensor, self.version = drjit, TensorXf, drjit.__version__

    def load(self, start, x, labels):
        import numpy as np

        dr = self.dr
        self.x, self.wanted = self.tensor(x), self.tensor(np.eye(CLASSES, dtype=np.float32)[labels])
        self.start = [[self.tensor(a * k) for a in start] for k in (np.float32(1), np.float32(0), np.float32(0))]

        def step(state, x, wanted):
            p, m, v = state
            h = dr.maximum(x @ p[0] + p[1], 0)
            scores = h @ p[2] + p[3]
            e = dr.exp(scores - dr.max(scores, axis=1, keepdims=True))
            d2 = e / dr.sum(e, axis=1, keepdims=True) - wanted
            d1 = dr.select(h > 0, dr.matmul(d2, p[2], Bt=True), 0)
            g = [dr.matmul(x, d1, At=True), dr.sum(d1, axis=0), dr.matmul(h, d2, At=True), dr.sum(d2, axis=0)]
            m = [a + 0.1 * (b - a) for a, b in zip(m, g)]
            v = [a + 0.001 * (b * b - a) for a, b in zip(v, g)]
            p = [a - b / (dr.sqrt(c) + EPS) * RATE for a, b, c in zip(p, m, v)]
            return [p, m, v]

        self.step = dr.freeze(step)

    def reset(self):
        self.state = self.start      # a step makes new arrays

    def run(self, n):
        for _ in range(n):
            self.state = self.step(self.state, self.x, self.wanted)
            self.dr.eval(self.state)
        self.dr.sync_thread()

    def params(self):
        return [a.numpy() for a in self.state[0]]


class Torch:
    """Eager, as most write it: autograd and torch.optim's fused Adam."""

    venv = "torch"
    grad = True

    def __init__(self, threads):
        import torch

        torch.set_num_threads(threads)
        self.torch, self.version = torch, torch.__version__.split("+")[0]

    def load(self, start, x, labels):
        torch = self.torch
        self.start = [torch.from_numpy(a.copy()) for a in start]
        self.p = [a.clone().requires_grad_(self.grad) for a in self.start]
        self.m, self.v = ([torch.zeros_like(a) for a in self.start] for _ in range(2))
        # So many steps done that the bias corrections are 1.
        self.done = [torch.tensor(1e6) for _ in self.p]
        self.x, self.labels = torch.from_numpy(x.copy()), torch.from_numpy(labels.astype("int64"))
        self.wanted = torch.nn.functional.one_hot(self.labels, CLASSES).float()
        self.build()

    def build(self):
        self.adam = self.torch.optim.Adam(self.p, lr=RATE, eps=EPS, fused=True)
        for a, m, v, done in zip(self.p, self.m, self.v, self.done):
            self.adam.state[a] = {"step": done, "exp_avg": m, "exp_avg_sq": v}

    def reset(self):
        with self.torch.no_grad():
            for a, b in zip(self.p, self.start):
                a.copy_(b)
            for a in self.m + self.v:
                a.zero_()

    def run(self, n):
        torch, p = self.torch, self.p
        for _ in range(n):
            self.adam.zero_grad()
            h = torch.relu(torch.addmm(p[1], self.x, p[0]))
            scores = torch.addmm(p[3], h, p[2])
            torch.nn.functional.cross_entropy(scores, self.labels, reduction="sum").backward()
            self.adam.step()

    def params(self):
        return [a.detach().numpy() for a in self.p]

    def gradient_by_hand(self, p):
        torch = self.torch
        h = torch.relu(torch.addmm(p[1], self.x, p[0]))
        d2 = torch.softmax(torch.addmm(p[3], h, p[2]), 1) - self.wanted
        d1 = (d2 @ p[2].t()) * (h > 0)
        return [self.x.t() @ d1, d1.sum(0), h.t() @ d2, d2.sum(0)]


class TorchByHand(Torch):
    """Eager, without autograd and without the optimizer's Python: the gradient by hand, the fused Adam called."""

    grad = False

    def build(self):
        pass

    def run(self, n):
        with self.torch.no_grad():
            for _ in range(n):
                self.torch._fused_adam_(
                    self.p, self.gradient_by_hand(self.p), self.m, self.v, [], self.done, lr=RATE, beta1=0.9,
                    beta2=0.999, weight_decay=0.0, eps=EPS, amsgrad=False, maximize=False)


class TorchCompiled(Torch):
    """torch.compile in its default mode, the whole step one graph; the gradient by hand, which was faster than
    torch.func.grad inside the graph and than a compiled loss with autograd around it."""

    grad = False

    def build(self):
        torch = self.torch

        def step(p, m, v):
            for a, b, c, g in zip(p, m, v, self.gradient_by_hand(p)):
                b.lerp_(g, 0.1)
                c.lerp_(g * g, 0.001)
                a.addcdiv_(b, c.sqrt().add_(EPS), value=-RATE)

        torch._dynamo.reset()        # a batch seen before would make this one's size dynamic
        self.step = torch.compile(step)

    def run(self, n):
        with self.torch.no_grad():
            for _ in range(n):
                self.step(self.p, self.m, self.v)


PEERS = {"jax": Jax, "drjit": DrJit, "torch": Torch, "torch-by-hand": TorchByHand, "torch-compile": TorchCompiled}


def mean_loss(params, x, labels):
    import numpy as np

    p = [np.asarray(a, np.float64) for a in params]
    scores = np.maximum(x @ p[0] + p[1], 0) @ p[2] + p[3]
    top = scores.max(axis=1)
    return float(np.mean(top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
                         - scores[np.arange(len(labels)), labels]))


def read_floats(source, dtype, shape):
    import numpy as np

    size = 4 * int(np.prod(shape))
    return np.frombuffer(source.read(size), dtype).reshape(shape)


def answer(peer, loaded, line, source):
    word, n = line.split()[0].decode(), int(line.split()[1])
    if word == "load":
        start = [read_floats(source, "f4", s) for s in SHAPES]
        loaded[:] = [read_floats(source, "f4", (n, SHAPES[0][0])), read_floats(source, "i4", (n,))]
        peer.load(start, *loaded)
        peer.reset()
        peer.run(WARM_UP)
        return ""
    peer.reset()
    if word == "loss":
        peer.run(n)
        return f"{mean_loss(peer.params(), *loaded):.9g}"
    peer.run(BEFORE_TIMING)
    start = time.perf_counter()
    peer.run(n)
    return f"{time.perf_counter() - start:.9g}"


def start(args, say):
    peer = PEERS[args.peer](args.threads)
    say("ok", peer.version)
    loaded = []
    for line in sys.stdin.buffer:
        say("ok", answer(peer, loaded, line, sys.stdin.buffer))


if __name__ == "__main__":
    import serve    # not where start.py imports this file: a start is timed

    serve.main(__doc__, PEERS, lambda args: PEERS[args.peer].venv, start)
