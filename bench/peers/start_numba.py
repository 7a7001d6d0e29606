# SPDX-License-Identifier: Apache-2.0
"""Programs of start.py in Numba, whose compiled code is kept (cache=True)."""
import math

import numba
import numpy as np
from numba import prange


@numba.njit(cache=True, parallel=True, fastmath=True)
def chain(x, y):
    out = np.empty_like(x)
    for i in prange(x.size):
        t = abs(math.tanh(x[i] * y[i] + x[i]) - y[i])
        out[i] = max(math.exp(-math.sqrt(t)), x[i]) * np.float32(0.5)
    return out


@numba.njit(cache=True, fastmath=True)
def adam(p, m, v, g):
    for i in range(p.size):
        m[i] += np.float32(0.1) * (g[i] - m[i])
        v[i] += np.float32(0.001) * (g[i] * g[i] - v[i])
        p[i] -= m[i] / (math.sqrt(v[i]) + np.float32(1e-8)) * np.float32(0.001)


@numba.njit(cache=True, fastmath=True)
def train(w1, b1, w2, b2, m1, m2, m3, m4, v1, v2, v3, v4, x, labels):
    rows, hidden, classes = x.shape[0], w1.shape[1], w2.shape[1]
    g1, g2, g3, g4 = np.zeros_like(w1), np.zeros_like(b1), np.zeros_like(w2), np.zeros_like(b2)
    h, d1 = np.empty(hidden, np.float32), np.empty(hidden, np.float32)
    d2 = np.empty(classes, np.float32)
    for r in range(rows):
        h[:] = b1
        for k in range(x.shape[1]):
            for j in range(hidden):
                h[j] += x[r, k] * w1[k, j]
        for j in range(hidden):
            h[j] = max(h[j], np.float32(0))
        d2[:] = b2
        for j in range(hidden):
            for c in range(classes):
                d2[c] += h[j] * w2[j, c]
        top, total = d2.max(), np.float32(0)
        for c in range(classes):
            d2[c] = math.exp(d2[c] - top)
            total += d2[c]
        for c in range(classes):
            d2[c] = d2[c] / total - np.float32(c == labels[r])
            g4[c] += d2[c]
        for j in range(hidden):
            d1[j] = np.float32(0)
            for c in range(classes):
                d1[j] += d2[c] * w2[j, c]
                g3[j, c] += h[j] * d2[c]
            if h[j] <= 0:
                d1[j] = np.float32(0)
            g2[j] += d1[j]
        for k in range(x.shape[1]):
            for j in range(hidden):
                g1[k, j] += x[r, k] * d1[j]
    adam(w1.ravel(), m1.ravel(), v1.ravel(), g1.ravel())
    adam(b1, m2, v2, g2)
    adam(w2.ravel(), m3.ravel(), v3.ravel(), g3.ravel())
    adam(b2, m4, v4, g4)
