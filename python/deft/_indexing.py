# SPDX-License-Identifier: Apache-2.0
"""Indices that are arrays, with the rules of NumPy. Basic indices (integers, slices, None, ...) are in the compiled module.

An index becomes one entry for each axis of what the basic part of it selects: a slice, None, an integer, or an array of
integers. A mask is replaced by the indices of its true elements, which reads the mask. When there are arrays, they and the
integers are *selecting* entries. The arrays broadcast, and their axes stand in the result where the selecting entries are, if
these are next to each other, and else in front. A ... between them keeps them apart even where it stands for no axis.
"""
import array
import math
import operator

from . import _deft
from ._core import (Array, RangeError, ShapeError, _NUMBERS, _convert_operand, _operand, all_dtypes, asarray, bool_, functions,
                    int64)


def _entry(key):
    """An index as None, ..., a slice, an integer or an Array."""
    if key is None or key is Ellipsis or isinstance(key, (slice, Array)):
        return key
    if isinstance(key, bool):
        return asarray(key)
    if getattr(key, "ndim", 1) == 0 and hasattr(key, "__index__") and str(getattr(key, "dtype", "")) != "bool":
        return operator.index(key)
    if isinstance(key, list) and not key:
        return asarray(key, dtype=int64)
    if isinstance(key, (list, array.array)) or hasattr(key, "__array_interface__") or hasattr(key, "__dlpack__"):
        return _operand(key)
    if hasattr(key, "__index__"):
        return operator.index(key)
    raise TypeError(f"an index is an integer, a slice, None, ... or an array, not {type(key).__name__}")


def _entries(x, key):
    """The entries of key. Masks are still there; ... is as many slices as it stands for, or stays when it stands for none."""
    keys = [_entry(k) for k in (key if isinstance(key, tuple) else (key,))]
    used = sum(k.ndim if _is_mask(k) else 1 for k in keys if k is not None and k is not Ellipsis)
    ellipses = sum(k is Ellipsis for k in keys)
    if used > x.ndim or ellipses > 1:
        raise IndexError(f"{used} indices and {ellipses} times ... for an array of {x.ndim} axes")
    if not ellipses:
        keys.append(Ellipsis)
    at = next(i for i, k in enumerate(keys) if k is Ellipsis)
    keys[at:at + 1] = [slice(None)] * (x.ndim - used) or [Ellipsis]
    return keys


def _is_mask(key):
    return isinstance(key, Array) and key.dtype is bool_


def _check_mask(x, axis, mask):
    """As in NumPy, an extent of 0 fits any: it selects nothing."""
    if any(m not in (n, 0) for m, n in zip(mask.shape, x.shape[axis:axis + mask.ndim])):
        raise RangeError(f"a mask of shape {mask.shape} for axes of shape {x.shape[axis:axis + mask.ndim]}")


def _true_indices(mask):
    """The indices of the true elements, an array for each axis of the mask."""
    found, count = functions["nonzero"](mask, mask.size)
    found = found[:int(count)]
    return [found[:, a] for a in range(mask.ndim)]


def _is_leading_mask(x, keys):
    """Whether the keys are one mask of the leading axes of x. One that does not fit is refused elsewhere."""
    mask, *rest = keys
    fits = _is_mask(mask) and mask.ndim and mask.shape == x.shape[:mask.ndim]
    return fits and all(k is Ellipsis or isinstance(k, slice) and k == slice(None) for k in rest)


def _without_masks(x, keys):
    """(x, entries) in which arrays of indices stand for masks. A mask without axes selects from a new axis."""
    entries, inserted, axis = [], [], 0
    for k in keys:
        if _is_mask(k) and not k.ndim:
            inserted.append(len(entries))
            entries += _true_indices(functions["reshape"](k, (1,)))
        elif _is_mask(k):
            _check_mask(x, axis, k)
            entries += _true_indices(k)
            axis += k.ndim
        else:
            entries.append(k)
            axis += k is not None and k is not Ellipsis
    if inserted:
        x = x[tuple(None if i in inserted else slice(None) for i, k in enumerate(entries) if k is not None and k is not Ellipsis)]
    return x, entries


def _flat_index(arrays, extents):
    """The position that the arrays name together in axes of these extents, which are taken for one."""
    flat = None
    for k, n in zip(arrays, extents):
        # An index outside gives a position outside, which the take then refuses.
        k = functions["cast"](k, int64)
        inside = functions["logical_and"](k >= -n, k < n)
        k = functions["where"](inside, functions["where"](k < 0, k + n, k), math.prod(extents) * 2)
        flat = k if flat is None else flat * n + k
    return flat


def _index(x, key):
    keys = _entries(x, key)
    if _is_leading_mask(x, keys):
        found, = _true_indices(functions["reshape"](keys[0], (keys[0].size,)))
        return functions["take"](functions["reshape"](x, (keys[0].size, *x.shape[keys[0].ndim:])), found, 0)
    x, keys = _without_masks(x, keys)
    x = x[tuple(slice(None) if isinstance(k, Array) else k for k in keys)]
    selecting = [i for i, k in enumerate(keys) if isinstance(k, (int, Array))]
    rest = [i for i, k in enumerate(keys) if not isinstance(k, int) and k is not Ellipsis]     # the axes of x now
    axes = [a for a, i in enumerate(rest) if isinstance(keys[i], Array)]
    if not axes:
        return x
    if len(axes) == 1:
        taken, at = functions["take"](x, keys[rest[axes[0]]], axes[0]), axes[0]
        ndim = keys[rest[axes[0]]].ndim
    else:
        others = [a for a in range(x.ndim) if a not in axes]
        extents = [x.shape[a] for a in axes]
        flat = _flat_index([keys[rest[a]] for a in axes], extents)
        rows = functions["permute"](x, axes + others)
        rows = functions["reshape"](rows, (math.prod(extents), *(x.shape[a] for a in others)))
        taken, at, ndim = functions["take"](rows, flat, 0), 0, flat.ndim
    is_adjacent = selecting[-1] - selecting[0] == len(selecting) - 1
    to = sum(i < selecting[0] for i in rest) if is_adjacent else 0
    if to == at or not ndim:
        return taken
    return functions["moveaxis"](taken, list(range(at, at + ndim)), list(range(to, to + ndim)))


def _rows_at(mask, value, ndim):
    """A value for each element of the mask, from one for each true element. The value has `ndim` axes beyond the mask's."""
    n_true = int(functions["count_nonzero"](mask, None, False))
    if value.shape[0] != n_true:
        raise ShapeError(f"{value.shape[0]} rows for a mask of {n_true} elements")
    row = functions["cumsum"](functions["cast"](functions["reshape"](mask, (mask.size,)), int64), 0) - 1
    rows = functions["take"](value, functions["clamp"](row, 0, n_true - 1), 0)
    return functions["reshape"](rows, (*mask.shape, *value.shape[1:]))


def _assigned_value(x, value):
    """What is assigned to elements of x, in its dtype. A number must fit, as one that is assigned to a slice."""
    if isinstance(value, _NUMBERS):
        element = functions["zeros"]((), x.dtype)
        element[()] = value
        return element
    if not isinstance(value, Array):
        value = asarray(value, dtype=x.dtype, copy=True)
    return value.astype(x.dtype, copy=False)


def _assign_index(x, key, value):
    """Assigns where the key has arrays, or the value is a list."""
    keys, is_list = _entries(x, key), not isinstance(value, (Array, *_NUMBERS))
    value = _assigned_value(x, value)
    if is_list and not any(isinstance(k, Array) for k in keys):
        x[key] = value
        return
    if _is_leading_mask(x, keys):
        mask = keys[0]
        more = x.ndim - mask.ndim
        if isinstance(value, Array) and value.ndim > more:
            value = _without_ones(value, more + 1)
            if value.shape[0] == 1:
                value = value[0]
            elif value.shape[0] == 0 and not bool(functions["any"](mask, None, False)):
                return
            else:
                value = _rows_at(mask, value, more)
        mask = functions["reshape"](mask, mask.shape + (1,) * more)
        x.assign(functions["where"](mask, value, x))
        return
    # The positions of the elements, as the same index selects them, then a flat update. The last of equal positions counts.
    positions = functions["reshape"](functions["iota"]((x.size,), 0), x.shape)[tuple(keys)]
    value = functions["expand"](_without_ones(value, positions.ndim), positions.shape)
    flat = functions["scatter"](functions["reshape"](x, (x.size,)), functions["reshape"](positions, (positions.size,)),
                                functions["reshape"](value, (positions.size,)), 0)
    x.assign(functions["reshape"](flat, x.shape))


def _without_ones(value, ndim):
    """The value without leading axes of extent 1 that it has beyond ndim axes."""
    n = value.ndim - ndim
    return functions["reshape"](value, value.shape[n:]) if n > 0 and set(value.shape[:n]) == {1} else value


_deft.set_hooks(all_dtypes, _index, _assign_index, _convert_operand)
