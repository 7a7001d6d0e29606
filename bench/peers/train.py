#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of `deft-bench train --peers`: the training steps of bench/train_step.c.

    train.py --venv build/peers --peer torch --threads 2 [--device cuda]

Installs PyTorch into a virtual environment in that folder (the first time; with a device the Python at hand has to have
it), then answers lines on standard input with lines on standard output, "ok ..." or "failed REASON":

    (nothing)          once the library is imported: ok VERSION
    load MODEL FILE    the safetensors file has the parameters and the batch: makes model and optimizer
    loss N             N steps; the loss that the last of them began with
    time N             N steps: their seconds
    gap N              seconds that the GPU is busy with a step, those that the host takes to put one in, and 0; or nan
                       and why: bench/held.h. N is how many launches deft puts in ahead; here up to 32 steps, as many
                       as the driver's queue takes
    peak 0             bytes: most resident memory (on a device: most allocated there) since `load` began, less what
                       it was before

Each peer does the same maths in f32, and AdamW with its defaults (fused=True: the fastest on the CPU and on GPUs).
"""
import json
import statistics
import sys
import time

import serve

RATE = 3e-4


def read_safetensors(path, torch):
    """Name to tensor, each read into its own memory."""
    dtypes = {"F32": torch.float32, "I32": torch.int32, "I64": torch.int64}
    tensors = {}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        start = file.tell()
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            tensor = torch.empty(entry["shape"], dtype=dtypes[entry["dtype"]])
            file.seek(start + entry["data_offsets"][0])
            file.readinto(tensor.numpy().reshape(-1).view("u1"))
            tensors[name] = tensor
    return tensors


def mlp(F, p, x, labels):
    for i in range(3):
        x = F.linear(x, p[f"{i}.weight"], p[f"{i}.bias"])
        if i < 2:
            x = F.relu(x)
    return F.cross_entropy(x, labels)


def cnn(F, p, x, labels):
    for i in range(2):
        x = F.max_pool2d(F.relu(F.conv2d(x, p[f"{i}.weight"], p[f"{i}.bias"], padding=1)), 2)
    return F.cross_entropy(F.linear(x.flatten(1), p["2.weight"], p["2.bias"]), labels)


def transformer(heads):
    def loss(F, p, tokens, labels):
        n, length = tokens.shape
        width = p["tokens.weight"].shape[1]

        def norm(name, x):
            return F.layer_norm(x, (width,), p[name + ".weight"], p[name + ".bias"])

        x = F.embedding(tokens, p["tokens.weight"]) + p["places.weight"][:length]
        i = 0
        while f"blocks.{i}.up.weight" in p:
            b = f"blocks.{i}."
            y = F.linear(norm(b + "before", x), p[b + "attention.in_proj_weight"], p[b + "attention.in_proj_bias"])
            q, k, v = (a.view(n, length, heads, -1).transpose(1, 2) for a in y.split(width, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = y.transpose(1, 2).reshape(n, length, width)
            x = x + F.linear(y, p[b + "attention.out_proj.weight"], p[b + "attention.out_proj.bias"])
            y = F.linear(norm(b + "after", x), p[b + "up.weight"], p[b + "up.bias"])
            x = x + F.linear(F.gelu(y, approximate="tanh"), p[b + "down.weight"], p[b + "down.bias"])
            i += 1
        scores = F.linear(norm("last", x), p["tokens.weight"])
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten())
    return loss


LOSSES = {"mlp": mlp, "mlp1": mlp, "mlp8": mlp, "cnn": cnn, "gpt": transformer(4), "gpt2": transformer(12)}


def status_bytes(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


class Torch:
    """Eager, as most write it."""

    def __init__(self, threads, device):
        import torch

        torch.set_num_threads(threads)
        self.torch, self.version, self.device = torch, torch.__version__.split("+")[0], device
        if device != "cpu" and not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU")

    def peak(self):
        if self.device != "cpu":
            return self.torch.cuda.max_memory_allocated()
        return status_bytes("VmHWM")

    def finish(self):
        """Until what was asked for is done."""
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def load(self, model, path):
        torch = self.torch
        if self.device == "cpu":
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")      # VmHWM starts again
            self.before = status_bytes("VmRSS")
        else:
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
        tensors = {name: a.to(self.device) for name, a in read_safetensors(path, torch).items()}
        self.x, self.labels = tensors.pop("x"), tensors.pop("labels").long()
        self.p = {name: a.requires_grad_() for name, a in tensors.items()}
        loss = LOSSES[model]
        self.adamw = torch.optim.AdamW(self.p.values(), lr=RATE, fused=True)
        self.loss = self.built(lambda p, x, labels: loss(torch.nn.functional, p, x, labels))

    def built(self, loss):
        return loss

    def steps(self, n):
        for _ in range(n):
            self.adamw.zero_grad()
            loss = self.loss(self.p, self.x, self.labels)
            loss.backward()
            self.adamw.step()
        return loss

    def run(self, n):
        return self.steps(n).item()

    def spins_per_second(self):
        cuda, n = self.torch.cuda, 10_000_000
        for _ in range(2):
            begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            cuda._sleep(n)
            end.record()
            cuda.synchronize()
        return n / (begin.elapsed_time(end) * 1e-3)

    def held(self, n, spins):
        """n steps behind a kernel that spins: seconds of the GPU and of the host for one; None: it ended before all was
        put in."""
        cuda = self.torch.cuda
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        cuda.synchronize()
        cuda._sleep(int(spins))
        begin.record()
        start = time.perf_counter()
        self.steps(n)
        host = time.perf_counter() - start
        end.record()
        is_held = not begin.query()
        cuda.synchronize()
        return (begin.elapsed_time(end) * 1e-3 / n, host / n) if is_held else None

    def gap(self, rounds=5, most=32):
        if self.device == "cpu":
            return "nan there is no GPU"
        spins = self.spins_per_second()
        self.finish()
        start = time.perf_counter()
        self.steps(2)
        self.finish()
        step = (time.perf_counter() - start) / 2
        n = most
        while n >= 1:
            found = []
            while len(found) < rounds and (one := self.held(n, spins * min(1, 3 * n * step + 0.005))):
                found.append(one)
            if len(found) == rounds:
                return " ".join(f"{statistics.median(column):.9g}" for column in zip(*found)) + " 0"
            n //= 2
        return "nan a step waits for the GPU, or has more launches than the driver's queue takes"


class TorchCompiled(Torch):
    """torch.compile in its default mode: forward and backward pass. The fused AdamW is one call, which was faster
    than the one that is compiled from its steps."""

    def built(self, loss):
        return self.torch.compile(loss)


class TorchReduced(Torch):
    """torch.compile(mode="reduce-overhead"): CUDA graphs."""

    def built(self, loss):
        return self.torch.compile(loss, mode="reduce-overhead")


PEERS = {"torch": Torch, "torch-compile": TorchCompiled, "torch-reduced": TorchReduced}


def answer(peer, line):
    word, *rest = line.split()
    if word == "load":
        peer.load(*rest)
        return ""
    if word == "peak":
        return str(peer.peak() - peer.before)
    if word == "gap":
        return peer.gap()
    n = int(rest[0])
    if word == "loss":
        return f"{peer.run(n):.9g}"
    peer.finish()
    start = time.perf_counter()
    peer.run(n)
    peer.finish()
    return f"{time.perf_counter() - start:.9g}"


def start(args, say):
    peer = PEERS[args.peer](args.threads, args.device)
    say("ok", peer.version)
    for line in sys.stdin:
        say("ok", answer(peer, line))


def add_device(parser):
    parser.add_argument("--device", default="cpu", help="cpu, or what PyTorch calls the device")


if __name__ == "__main__":
    # With a device, the Python at hand has PyTorch.
    serve.main(__doc__, PEERS, lambda args: "torch", start, add_device, lambda args: args.device != "cpu")
