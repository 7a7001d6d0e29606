# SPDX-License-Identifier: Apache-2.0
"""What all libraries of the table of peers have in common: rows, and a peer that runs one of them.

A library's module has a table of functions by the names of bench/table_*.c. A function gets the sizes of the row and its
inputs, in the order of the row, and returns its outputs, in the order of the row. A function with states gets them first;
what it does with them is the library's: PyTorch and NumPy write them in place, JAX returns the new ones.
"""
import time

import numpy as np

WARM_UP_SECONDS = 0.2
CHECK_CALLS = 3    # TABLE_CHECK_CALLS of bench/table.h


class Row:
    """index: inputs that the library wants as 64-bit integers. grad: the function returns a loss, and the outputs are that
    loss and its gradients with respect to these inputs. options: what one library alone knows."""

    def __init__(self, function, index=(), grad=(), **options):
        self.function, self.index, self.grad, self.options = function, index, grad, options


class Rows(dict):
    def row(self, *names, **options):
        def add(function):
            for name in names:
                self[name] = Row(function, **options)
            return function
        return add


class Peer:
    """A library. Its class says how inputs become its arrays (tensor), how a row becomes a call that is ready to be repeated
    (build), and what an array is as a number of NumPy (numpy)."""

    rows = Rows()
    version = ""

    def load(self, name, arrays, n_states, sizes):
        """False: the library does not know the row."""
        self.row = self.rows.get(name)
        if self.row is None:
            return False
        self.arrays, self.n_states, self.sizes = arrays, n_states, sizes
        self.inputs = [self.tensor(a, i in self.row.index) for i, a in enumerate(arrays)]
        self.call = self.build()
        return True

    def run(self, n):
        call, inputs = self.call, self.inputs
        for _ in range(n):
            outputs = call(*inputs)
        return outputs

    def check(self):
        """The outputs as arrays of f64; after this, the states are not the first ones any more."""
        outputs = self.run(CHECK_CALLS if self.n_states else 1)
        if self.n_states:
            outputs = self.inputs[:self.n_states]
        return self.listed(outputs)

    def listed(self, outputs):
        if not isinstance(outputs, (tuple, list)):
            outputs = (outputs,)
        return [self.with_room(np.ascontiguousarray(self.numpy(o), np.float64)) for o in outputs]

    def with_room(self, output):
        """Where the row says so, deft has room for as many elements as there are, and the rest are zeros."""
        if not self.row.options.get("room"):
            return output
        return np.concatenate([output, np.zeros(self.sizes[0] - len(output))])

    def warm(self):
        """Seconds of a call."""
        calls, start = 0, time.perf_counter()
        while calls < 3 or time.perf_counter() - start < WARM_UP_SECONDS:
            self.run(1)
            calls += 1
            if time.perf_counter() - start > 20 * WARM_UP_SECONDS:
                break
        return self.time(3) / 3

    def time(self, n):
        self.run(1)    # Untimed, as in deft's turn: the sides before have filled the caches.
        start = time.perf_counter()
        self.run(n)
        return time.perf_counter() - start


def half_bits(array):
    """bf16 as an array of NumPy, which has no such dtype, is u16; f16 is f16."""
    return array.dtype == np.uint16
