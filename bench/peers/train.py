#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peers' side of `deft-bench train --peers`: the steps of bench/train_step.c.

    train.py --venv build/peers --peer torch --threads 2 [--device cuda]

Installs PyTorch (or ONNX Runtime) into a virtual environment in that folder (the first time; with a device the Python at hand
has to have it), then answers lines on standard input with lines on standard output, "ok ..." or "failed REASON":

    (nothing)          once the library is imported: ok VERSION
    load MODEL FILE    the safetensors file has the parameters and the batch: makes model and optimizer
    loss N             N steps; the loss that the last of them began with, the cross entropy of its scores, or the score of the
                       token that it decoded
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

import train_models

RATE = 3e-4


def read_safetensors(path):
    """Name to array, each read into its own memory; without the state of deft's random numbers."""
    import numpy as np

    dtypes = {"F32": np.float32, "I32": np.int32, "I64": np.int64}
    arrays = {}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        start = file.tell()
        for name, entry in header.items():
            if name == "__metadata__" or name.startswith("rng."):
                continue
            arrays[name] = np.empty(entry["shape"], dtypes[entry["dtype"]])
            file.seek(start + entry["data_offsets"][0])
            file.readinto(arrays[name].reshape(-1).view("u1"))
    return arrays


def status_bytes(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def resident_now():
    """Resident bytes, from which the most resident bytes are counted again."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return status_bytes("VmRSS")


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
            self.before = resident_now()
        else:
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
        self.p = {name: torch.from_numpy(a).to(self.device) for name, a in read_safetensors(path).items()}
        self.x, self.labels = self.p.pop("x"), self.p.pop("labels")
        if model in train_models.TRAINS:
            self.load_training(train_models.TRAINS[model])
        elif model in train_models.INFERS:
            self.load_inference(train_models.INFERS[model])
        else:
            self.load_decoding(*train_models.DECODES[model])

    def load_training(self, loss):
        torch = self.torch
        parameters = [a.requires_grad_() for name, a in self.p.items() if ".running_" not in name]
        self.adamw = torch.optim.AdamW(parameters, lr=RATE, fused=True)
        self.loss = self.built(lambda p, x, labels: loss(torch.nn.functional, p, x, labels))
        self.step = self.train

    def load_inference(self, scores):
        torch = self.torch
        self.scores = self.built(lambda p, x: scores(torch.nn.functional, p, x, None))
        self.step = self.infer

    def load_decoding(self, next_token, heads):
        torch = self.torch
        length, width = self.p["places.weight"].shape
        n = sum(1 for _ in train_models.blocks_of(self.p))
        self.keys, self.values = torch.zeros(2, n, 1, heads, length, width // heads, device=self.device)
        self.place = 0
        self.next_token = self.built(lambda p, *rest: next_token(torch.nn.functional, p, *rest))
        self.step = self.decode

    def built(self, function):
        return function

    def train(self):
        self.adamw.zero_grad()
        loss = self.loss(self.p, self.x, self.labels)
        loss.backward()
        self.adamw.step()
        return loss

    def infer(self):
        with self.torch.inference_mode():
            return self.scores(self.p, self.x)

    def decode(self):
        with self.torch.inference_mode():
            self.place %= self.keys.shape[3]
            self.x, score = self.next_token(self.p, self.x, self.place, self.keys, self.values)
            self.place += 1
            self.x.item()    # which a program would show
        return score

    def steps(self, n):
        for _ in range(n):
            result = self.step()
        return result

    def run(self, n):
        result = self.steps(n)
        return result if result.numel() == 1 else self.torch.nn.functional.cross_entropy(result, self.labels)

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

    def built(self, function):
        return self.torch.compile(function)


class TorchReduced(Torch):
    """torch.compile(mode="reduce-overhead"): CUDA graphs."""

    def built(self, function):
        return self.torch.compile(function, mode="reduce-overhead")


class OnnxRuntime:
    """Scores alone, of a graph whose weights are constants, so that they are packed once."""

    def __init__(self, threads, device):
        import train_onnx

        self.onnx, self.threads, self.version = train_onnx, threads, train_onnx.VERSION

    def peak(self):
        return status_bytes("VmHWM")

    def finish(self):
        pass

    def load(self, model, path):
        self.before = resident_now()
        arrays = read_safetensors(path)
        self.x, self.labels = arrays.pop("x"), arrays.pop("labels")
        self.scores = self.onnx.session(arrays, self.x, self.threads)

    def steps(self, n):
        for _ in range(n):
            result = self.scores(self.x)
        return result

    def run(self, n):
        return self.onnx.cross_entropy(self.steps(n), self.labels)

    def gap(self):
        return "nan there is no GPU"


PEERS = {"onnxruntime": OnnxRuntime, "torch": Torch, "torch-compile": TorchCompiled, "torch-reduced": TorchReduced}


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
        return f"{peer.run(n).item():.9g}"
    peer.finish()
    start = time.perf_counter()
    peer.steps(n)
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
    import serve    # not where start.py imports this file: a start is timed

    # With a device, the Python at hand has PyTorch.
    serve.main(__doc__, PEERS, lambda args: "onnxruntime" if args.peer == "onnxruntime" else "torch", start, add_device, lambda args: args.device != "cpu")
