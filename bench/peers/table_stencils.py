# SPDX-License-Identifier: Apache-2.0
"""Stencils for arrays of any library that slices as NumPy does. The borders are left out."""


def beside2(u, i, j):
    """The inside of u [rows, columns], moved by i rows and j columns."""
    return u[1 + i:u.shape[0] - 1 + i, 1 + j:u.shape[1] - 1 + j]


def beside3(u, i, j, k):
    return u[1 + i:u.shape[0] - 1 + i, 1 + j:u.shape[1] - 1 + j, 1 + k:u.shape[2] - 1 + k]


def neighbours3(u):
    return (beside3(u, -1, 0, 0) + beside3(u, 1, 0, 0) + beside3(u, 0, -1, 0) + beside3(u, 0, 1, 0)
            + beside3(u, 0, 0, -1) + beside3(u, 0, 0, 1))


def blur2(n, u):
    return sum(beside2(u, i, j) * ((1 if i else 2) * (1 if j else 2) / 16) for i in (-1, 0, 1) for j in (-1, 0, 1))


def blur3(n, u):
    return beside3(u, 0, 0, 0) * 0.4 + neighbours3(u) * 0.1
