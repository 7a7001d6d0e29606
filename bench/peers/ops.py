#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of `deft-bench gpu --peers`: single operations on a GPU.

    ops.py --device cuda

The Python at hand has to have PyTorch. Answers lines on standard input with lines on standard output, "ok ..." or
"failed REASON":

    (nothing)                      once the library is imported: ok VERSION
    time OP MODE SECONDS N...      seconds of one call, the median of rounds of about SECONDS/10 each, by events of the GPU.
                                   MODE: eager, or compiled (torch.compile)

    OP and its numbers             what is computed, in f32 unless it says otherwise
    copy N                         y = x.clone(): N elements
    gelu N                         gelu(x) by erf
    softmax ROWS COLUMNS           over the last axis
    layer_norm ROWS COLUMNS        with weight and bias
    sum N                          of all elements
    adamw N                        one fused AdamW step of one parameter
    matmul M N K                   a @ b
    matmul_gelu M N K              gelu(a @ b + bias), by erf
    matmul_f16, matmul_bf16 M N K  a @ b of halves, sums in f32, the result rounded to halves once
    matmul_f16_f32 M N K           the result in f32; failed where this PyTorch has no such product
    attention B H S D              scaled_dot_product_attention, causal, f16
    attention_grad B H S D         and its backward pass
"""
import argparse
import os
import statistics
import sys


class Ops:
    def __init__(self, device):
        import torch

        self.torch, self.device = torch, device
        self.version = torch.__version__.split("+")[0]
        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU")
        torch.manual_seed(1)

    def random(self, *shape, dtype=None):
        return self.torch.randn(*shape, device=self.device, dtype=dtype or self.torch.float32)

    def copy(self, n):
        x = self.random(n)
        return lambda: x.clone()

    def gelu(self, n):
        x = self.random(n)
        return lambda: self.torch.nn.functional.gelu(x)

    def softmax(self, rows, columns):
        x = self.random(rows, columns)
        return lambda: self.torch.softmax(x, 1)

    def layer_norm(self, rows, columns):
        x, weight, bias = self.random(rows, columns), self.random(columns), self.random(columns)
        return lambda: self.torch.nn.functional.layer_norm(x, (columns,), weight, bias)

    def sum(self, n):
        x = self.random(n)
        return lambda: x.sum()

    def adamw(self, n):
        p = self.random(n).requires_grad_()
        p.grad = self.random(n)
        step = self.torch.optim.AdamW([p], lr=1e-3, fused=True).step
        return lambda: step()

    def matmul(self, m, n, k):
        a, b = self.random(m, k), self.random(k, n)
        return lambda: a @ b

    def matmul_of_halves(self, m, n, k, dtype):
        self.torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        self.torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        return self.random(m, k, dtype=dtype), self.random(k, n, dtype=dtype)

    def matmul_f16(self, *mnk):
        a, b = self.matmul_of_halves(*mnk, self.torch.float16)
        return lambda: a @ b

    def matmul_bf16(self, *mnk):
        a, b = self.matmul_of_halves(*mnk, self.torch.bfloat16)
        return lambda: a @ b

    def matmul_f16_f32(self, *mnk):
        a, b = self.matmul_of_halves(*mnk, self.torch.float16)
        return lambda: self.torch.mm(a, b, out_dtype=self.torch.float32)

    def matmul_gelu(self, m, n, k):
        a, b, bias = self.random(m, k), self.random(k, n), self.random(n)
        return lambda: self.torch.nn.functional.gelu(self.torch.addmm(bias, a, b))

    def heads(self, b, h, s, d):
        return [self.random(b, h, s, d, dtype=self.torch.float16).requires_grad_() for _ in range(3)]

    def attention(self, *shape):
        q, k, v = (x.detach() for x in self.heads(*shape))
        return lambda: self.torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def attention_grad(self, *shape):
        q, k, v = self.heads(*shape)
        g = self.random(*shape, dtype=self.torch.float16)

        def both():
            y = self.torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.torch.autograd.grad(y, (q, k, v), g)
        return both

    def seconds(self, f, calls):
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            f()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3

    def time(self, op, mode, seconds, *numbers):
        f = getattr(self, op)(*(int(n) for n in numbers))
        if mode == "compiled":
            f = self.torch.compile(f)
        for _ in range(3):
            f()
        trial = self.seconds(f, 3) / 3
        calls = max(1, int(float(seconds) / 10 / max(trial, 1e-6)))
        return statistics.median(self.seconds(f, calls) / calls for _ in range(10))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")     # whatever the library prints goes to standard error
    os.dup2(2, 1)

    def say(word, text):
        print(word, " ".join(text.split()), file=answers, flush=True)

    try:
        ops = Ops(args.device)
        say("ok", ops.version)
    except Exception as error:
        say("failed", f"{type(error).__name__}: {error}")
        sys.exit(1)
    for line in sys.stdin:
        try:
            word, op, mode, seconds, *numbers = line.split()
            say("ok", f"{ops.time(op, mode, seconds, *numbers):.9g}")
        except Exception as error:      # one that does not fit the GPU is no reason to end
            say("failed", f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
