# SPDX-License-Identifier: Apache-2.0
"""compile, grad, value_and_grad, vmap, scan: functions of functions.

Arguments and results are arrays, numbers, or tuples, lists and dicts of them.
"""
import functools
import weakref

from . import _deft
from ._core import Array, _operand, asarray


def _is_foreign_array(obj):
    """Whether obj is an array of another library. NumPy's numbers (numpy.generic) are numbers."""
    return ((hasattr(obj, "__array_interface__") or hasattr(obj, "__dlpack__"))
            and not any(c.__name__ == "generic" for c in type(obj).__mro__))


def flatten(tree, leaves, numbers=None):
    """Appends the arrays of tree, also those of other libraries, to leaves, and its floats to numbers where that is a list; returns what is needed to build it
    again. Other objects are part of that."""
    if isinstance(tree, Array):
        leaves.append(tree)
        return None
    if _is_foreign_array(tree):
        leaves.append(_operand(tree))
        return None
    if isinstance(tree, (tuple, list)):
        return type(tree), tuple([flatten(t, leaves, numbers) for t in tree])
    if isinstance(tree, dict):
        return dict, tuple([(k, flatten(tree[k], leaves, numbers)) for k in sorted(tree)])
    if numbers is not None and type(tree) is float:
        numbers.append(tree)
        return _NUMBER
    return Static(tree)


class Static:
    """An argument that is no array: a function is recorded for each value."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def _key(self):
        return type(self.value), self.value

    def __eq__(self, other):
        return isinstance(other, Static) and self._key() == other._key()

    def __hash__(self):
        try:
            return hash(self._key())
        except TypeError:
            raise TypeError(f"an argument of type {type(self.value).__name__} is neither an array nor hashable") from None


def unflatten(spec, leaves):
    """The inverse of flatten; leaves is an iterator."""
    if spec is None:
        return next(leaves)
    if isinstance(spec, Static):
        return spec.value
    kind, parts = spec
    if kind is dict:
        return {k: unflatten(s, leaves) for k, s in parts}
    made = [unflatten(s, leaves) for s in parts]
    return kind(*made) if hasattr(kind, "_fields") else kind(made)


class Compiled:
    """A function that deft records once for each kind of arguments, and replays."""

    def __init__(self, fn):
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._captures = {}

    def __call__(self, *args, **keywords):
        # Inside another function that deft records or differentiates, the calls of this one become part of that.
        if _deft.is_recording():
            return self._fn(*args, **keywords)
        leaves, numbers = [], []
        spec = flatten((args, keywords), leaves, numbers)
        key = spec, tuple((a.dtype.number, a.shape) for a in leaves)
        entry = self._captures.get(key)
        if entry is None:
            entry = self._captures[key] = _Entry(self._fn, spec)
        return entry(leaves, numbers)

    def counters(self):
        """Counters of all recordings together: calls, replayed, recordings, missed."""
        total = {"calls": 0, "replayed": 0, "recordings": 0, "missed": 0}
        for entry in self._captures.values():
            found = entry.capture.counters()
            for name in total:
                total[name] += found[name]
        return total


class _Number:
    """A float argument: a parameter, whose value is not part of the recording."""

    def __eq__(self, other):
        return isinstance(other, _Number)

    def __hash__(self):
        return 1


_NUMBER = _Number()


def _floats_in(spec, params):
    if isinstance(spec, _Number):
        return next(params)
    if spec is None or isinstance(spec, Static):
        return spec
    kind, parts = spec
    if kind is dict:
        return kind, tuple((k, _floats_in(s, params)) for k, s in parts)
    return kind, tuple(_floats_in(s, params) for s in parts)


class _Entry:
    """The capture of one kind of arguments."""

    def __init__(self, fn, spec):
        self._fn, self._spec, self._out = fn, spec, None
        self._sent = []
        me = weakref.ref(self)  # the capture must not keep the object that owns it
        self.capture = _deft.Capture(lambda leaves: me()._run(leaves))

    def _run(self, leaves):
        params = (Static(_deft.param(f"p{i}")) for i in range(len(self._sent)))
        args, keywords = unflatten(_floats_in(self._spec, params), iter(leaves))
        found = []
        self._out = flatten(self._fn(*args, **keywords), found)
        return found

    def __call__(self, leaves, numbers):
        if numbers != self._sent:
            for i, value in enumerate(numbers):
                if i >= len(self._sent) or value != self._sent[i]:
                    self.capture.set(f"p{i}", value)
            self._sent = numbers
        return unflatten(self._out_of(leaves), iter(self._results))

    def _out_of(self, leaves):
        self._results = self.capture.call(leaves)
        return self._out


def compile(fn):
    """fn, recorded at its first call with arguments of these shapes and dtypes, and replayed at later ones. Where another function
    that is compiled, differentiated or mapped calls it, its operations become part of that function.

    A replay runs no Python. Floats among the arguments are parameters; other objects that are no arrays are part of the
    function and must be hashable. Arrays that fn assigns (x += 1, x[...] = v), arguments or not, are assigned at each call.
    Everything takes effect, or nothing."""
    return Compiled(fn)


def _operands(fn, args, argnums):
    chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    leaves, specs = [], {}
    args = list(args)
    for i in chosen:
        found = []
        specs[i] = flatten(args[i] if not isinstance(args[i], float) else asarray(args[i]), found)
        # An array of its own, so that equal arguments are told apart. The function gets another object, which it may assign.
        own = [+a for a in found]
        args[i] = unflatten(specs[i], iter([+a for a in own]))
        leaves += own
    return chosen, specs, leaves, args


def value_and_grad(fn, argnums=0, has_aux=False):
    """A function that returns (value, gradients) of fn, whose value has one element. has_aux: fn returns (value, more)."""
    @functools.wraps(fn)
    def both(*args, **keywords):
        _deft.function_begin()
        try:
            chosen, specs, leaves, args = _operands(fn, args, argnums)
            made = fn(*args, **keywords)
            value = made[0] if has_aux else made
            found = iter(_deft.grad([value], None, leaves))
        finally:
            _deft.function_end()
        grads = tuple(unflatten(specs[i], found) for i in chosen)
        return made, grads[0] if isinstance(argnums, int) else grads
    return both


def grad(fn, argnums=0, has_aux=False):
    """A function that returns the gradients of fn with respect to its arguments argnums; with has_aux, (gradients, more)."""
    both = value_and_grad(fn, argnums, has_aux)

    @functools.wraps(fn)
    def alone(*args, **keywords):
        made, grads = both(*args, **keywords)
        return (grads, made[1]) if has_aux else grads
    return alone


def stop_gradient(x):
    """x as a constant of gradients."""
    return _deft.stop_gradient(x)


def _axes_for(axes, tree):
    """One axis for each array of tree; axes is a number, None, or has the form of tree."""
    if axes is None or isinstance(axes, int):
        leaves = []
        flatten(tree, leaves)
        return [axes] * len(leaves)
    if isinstance(tree, dict):
        return [a for k in sorted(tree) for a in _axes_for(axes[k], tree[k])]
    if len(axes) != len(tree):
        raise ValueError(f"{len(axes)} axes for {len(tree)} arguments")
    return [a for one, t in zip(axes, tree) for a in _axes_for(one, t)]


def vmap(fn, in_axes=0, out_axes=0):
    """fn of one example as a function of many: axis in_axes of each argument numbers the examples; None: the same for all."""
    @functools.wraps(fn)
    def many(*args):
        leaves = []
        spec = flatten(args, leaves)
        out = [None]

        def one(inside):
            found = []
            out[0] = flatten(fn(*unflatten(spec, iter(inside))), found)
            return found
        axes = out_axes if out_axes is None or isinstance(out_axes, int) else list(out_axes)
        made = _deft.vmap(one, leaves, _axes_for(in_axes, args), axes)
        return unflatten(out[0], iter(made))
    return many


def scan(fn, init, rows=None, length=None):
    """(state, row) -> (state, result) for each row; returns (last state, results stacked). rows None: `length` iterations."""
    state_leaves, row_leaves, out = [], [], [None, None]
    state_spec, row_spec = flatten(init, state_leaves), flatten(rows, row_leaves)
    n = row_leaves[0].shape[0] if row_leaves else length
    if n is None:
        raise ValueError("scan: length is needed where there are no rows")

    def body(inside):
        states, more = inside[:len(state_leaves)], inside[len(state_leaves):]
        state, result = fn(unflatten(state_spec, iter(states)), unflatten(row_spec, iter(more)))
        found = []
        if flatten(state, found) != state_spec:
            raise ValueError("scan: the next state has another form than the state")
        out[0] = flatten(result, found)
        return found
    made = iter(_deft.scan(body, state_leaves, row_leaves, n))
    return unflatten(state_spec, made), unflatten(out[0], made)
