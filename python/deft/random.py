# SPDX-License-Identifier: Apache-2.0
"""Streams of random numbers: the numbers depend on the seed and on how many draws came before, and on nothing else."""
import functools

from . import _deft
from ._core import dtype_of, float32, functions, int64
from ._functions import _shape


class Generator:
    """A stream of random numbers. A compiled function that uses one draws new numbers at each call."""

    def __init__(self, seed=0, _next=0):
        self._stream = _deft.Stream(seed, _next)

    def uniform(self, shape=(), low=0.0, high=1.0, dtype=None):
        return functions["uniform"](self._stream, _shape(shape), dtype_of(dtype) or float32, low, high)

    def normal(self, shape=(), mean=0.0, deviation=1.0, dtype=None):
        return functions["normal"](self._stream, _shape(shape), dtype_of(dtype) or float32, mean, deviation)

    def integers(self, low, high, shape=(), dtype=None):
        return functions["randint"](self._stream, _shape(shape), dtype_of(dtype) or int64, low, high)

    def permutation(self, n):
        """The numbers 0 to n - 1 in a random order."""
        return functions["argsort"](self.uniform((n,)), 0, False)

    def __getattr__(self, name):
        """The other draws of the headers, by their names and with their arguments in C: bernoulli(p), poisson(rate), ..."""
        f = functions.get(name)
        if f is None or not f.parameters or f.parameters[0][1] != "rng":
            raise AttributeError(f"a Generator has no attribute {name!r}")
        return functools.partial(f, self._stream)

    @property
    def state(self):
        return self._stream.state

    def __reduce__(self):
        return Generator, self.state
