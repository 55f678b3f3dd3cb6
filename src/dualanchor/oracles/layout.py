"""Translates between the user's arrays and functions, of any shape, and the flat vectors that all else works with."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, OracleError
from dualanchor.core.nested import in_order_of, mapped, of_players, row_of, skeleton_and_leaves
from dualanchor.core.oracle import Oracle
from dualanchor.core.problem import Problem, as_reals
from dualanchor.core.result import Result
from dualanchor.core.types import Array
from dualanchor.oracles.sampler import Sampler
from dualanchor.oracles.user_call import accepted, taking_generator


@dataclass(frozen=True)
class Layout:
    """How an array, or nested dicts, lists and tuples of arrays, lie in a flat vector.

    `skeleton` is the tree with the index of each leaf in its place (0 for a single array), `shapes` are those of the
    leaves, and `device` is that of JAX arrays, where flat vectors of NumPy are put.
    """

    skeleton: Any
    shapes: tuple[tuple[int, ...], ...]
    device: Any = None

    def __hash__(self) -> int:
        return hash((repr(self.skeleton), self.shapes))

    @classmethod
    def of(cls, x0: Any, owner: str, players: bool = False) -> tuple[Layout, Array]:
        """The layout of a start, or of the pair of starts of two players, and the start as a flat vector."""
        x0 = x0.x if isinstance(x0, Result) else x0
        _require_concrete(x0, owner)
        if not players:
            return cls._of_tree(_tree(x0, owner), owner)
        if not isinstance(x0, (tuple, list)) or len(x0) != 2:
            rule = f"{owner}: the start must be a tuple of 2 arrays"
            raise ArgumentTypeError(rule, repr(x0)[:80], "Pass (u0, v0)")
        return cls._of_tree(tuple(_tree(start, owner) for start in x0), owner)

    @classmethod
    def of_points(cls, x: Any, owner: str) -> tuple[Layout, Array] | None:
        """The layout of a tree or of a Result with one, and the flat vector (d,); None if x is not a tree.

        Of a Result with replications, the layout of one of them, and flat vectors (reps, d).
        """
        if not isinstance(x, Result):
            x = _parameters(x, owner)
            return cls._of_tree(x, owner) if _is_nested(x) else None
        if not isinstance(x.x, (Mapping, list, tuple)):
            return None
        if x.shape == ():
            return cls._of_tree(x.x, owner)
        found = [cls._of_tree(row_of(x.x, row), owner) for row in range(x.shape[0])]
        return found[0][0], arrays.namespace(found[0][1]).stack([flat for _, flat in found])

    @classmethod
    def _of_tree(cls, tree: Any, owner: str) -> tuple[Layout, Array]:
        skeleton, leaves = skeleton_and_leaves(tree)
        devices = dict.fromkeys(str(leaf.device) for leaf in leaves if arrays.is_foreign(leaf))
        if len(devices) > 1:
            rule, remedy = f"{owner}: the start must be on one device", "Move all of it to one of them"
            raise ArgumentError(rule, " and ".join(devices), remedy)
        parts = [_numbers(leaf, owner) for leaf in leaves]
        if not parts:
            raise ArgumentError(f"{owner}: the start must have numbers", repr(skeleton)[:80], "Start from numbers")
        if not all(arrays.alike(part, parts[0]) for part in parts):
            kinds = " and ".join(dict.fromkeys(type(part).__name__ for part in parts))
            raise ArgumentTypeError(f"{owner}: the start must be of one library", kinds, "Convert one of them")
        if len({str(part.dtype) for part in parts}) > 1:
            kinds = " and ".join(str(part.dtype) for part in parts)
            raise ArgumentTypeError(f"{owner}: the start must be of one dtype", kinds, "Convert one of them")
        flat = arrays.concatenate([part.reshape(-1) for part in parts])
        device = flat.device if arrays.is_jax(flat) else None
        return cls(skeleton, tuple(tuple(part.shape) for part in parts), device), flat

    @property
    def is_tree(self) -> bool:
        """Whether there are dicts, lists or tuples around the arrays."""
        return not isinstance(self.skeleton, int)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a single array; (d,) for a tree."""
        return (sum(map(prod, self.shapes)),) if self.is_tree else self.shapes[0]

    @cached_property
    def players(self) -> tuple[Layout, ...]:
        """The layouts of both parts of a pair."""
        parts = map(skeleton_and_leaves, self.skeleton)
        return tuple(Layout(skeleton, tuple(self.shapes[i] for i in numbers)) for skeleton, numbers in parts)

    def split(self, flat: Array) -> Any:
        """The tree of a flat vector; of several, (reps, d), each leaf has a first axis of length reps."""
        if self.device is not None and isinstance(flat, np.ndarray):
            flat = sys.modules["jax"].device_put(flat, self.device)
        return self.of_leaves(self.leaves_of(flat))

    def leaves_of(self, flat: Array) -> Iterator[Array]:
        """The leaves of a flat vector, or of several, in order."""
        ends = accumulate((prod(shape) for shape in self.shapes), initial=0)
        for (begin, end), shape in zip(pairwise(ends), self.shapes, strict=True):
            part = flat[..., begin:end]
            yield part if len(shape) == 1 else part.reshape((*flat.shape[:-1], *shape))[()]

    def of_leaves(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves."""
        return mapped(list(leaves).__getitem__, self.skeleton)

    def names(self) -> tuple[str, ...]:
        """A name for each number of a flat vector: the keys that lead to its leaf, and its index there."""
        labels = zip(_labels(self.skeleton, ""), self.shapes, strict=True)
        return tuple(label + (str(list(i)) if i else "") for label, shape in labels for i in np.ndindex(shape))

    def flatten(self, value: Any, n: Any, owner: str, x: Array) -> Array:
        """The value of a sampler, a mean or n samples in each leaf, as a flat vector of the library of x (d,)."""
        if not self.is_tree:
            return accepted(value, x, owner, None, self.shape, n)
        skeleton, leaves = skeleton_and_leaves(in_order_of(self.skeleton, value))
        if skeleton != self.skeleton:
            rule = f"{owner} must return a tree like the start, with the same keys"
            raise OracleError(rule, _form(value), f"Return {_form(self.split(x))}")
        parts = []
        for leaf, shape in zip(leaves, self.shapes, strict=True):
            if arrays.is_jax(x) and isinstance(leaf, (np.ndarray, np.generic)):
                leaf = arrays.like(leaf, x)
            parts.append(accepted(leaf, x, f"{owner}, in a leaf of shape {shape},", None, shape, n))
        return arrays.concatenate(parts)


def _tree(start: Any, owner: str) -> Any:
    """The start as a tree whose leaves are arrays or numbers: a list that makes one array is one."""
    start = _parameters(start, owner)
    is_array = isinstance(start, (list, tuple)) and not _is_nested(start)
    return _numbers(start, owner) if is_array else start


def _is_nested(start: Any) -> bool:
    """Whether a start is a dict, or a list that does not make one array.

    Such a list has dicts, arrays of other libraries than NumPy, or arrays of different shapes.
    """
    if not isinstance(start, (list, tuple)):
        return isinstance(start, Mapping)
    if any(isinstance(part, Mapping) or arrays.is_foreign(part) for part in start):
        return True
    return any(isinstance(part, np.ndarray) for part in start) and as_reals(start) is None


def _parameters(module: Any, owner: str) -> Any:
    """The dict of the parameters of a module of PyTorch, checked; anything else as it is."""
    if not callable(getattr(module, "named_parameters", None)):
        return module
    for name, part in module.named_modules():
        always = _is_batch_norm(part) and part.running_mean is None  # also in eval()
        in_training = getattr(part, "training", False) and getattr(part, "running_mean", None) is not None
        if always or in_training:
            rule = f"{owner}: a sample of a module must not depend on the other samples of its batch"
            kind = "without running statistics" if always else "in training mode"
            received = f"{name or 'a module'} ({type(part).__name__}) {kind}"
            remedy = "Call module.eval(), which uses its running statistics, or use GroupNorm or LayerNorm"
            if always:
                remedy = "Use track_running_stats=True and module.eval(), or GroupNorm or LayerNorm"
            raise ArgumentError(rule, received, remedy)
    parameters = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    if not parameters:
        rule, remedy = f"{owner}: a module must have parameters that require gradients", "Call requires_grad_() on it"
        raise ArgumentError(rule, f"a {type(module).__name__} without them", remedy)
    return parameters


def _is_batch_norm(part: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(part, torch.nn.modules.batchnorm._BatchNorm)


def _numbers(value: Any, owner: str) -> Array:
    array = as_reals(value)
    if array is None:
        raise ArgumentTypeError(f"{owner}: the start must be made of real numbers", repr(value)[:80], "Pass floats")
    if str(array.dtype) == "torch.bfloat16":  # in float16, which NumPy has, runs work
        rule, remedy = f"{owner}: the start must have a dtype that NumPy has too", "Pass x0.float()"
        raise ArgumentTypeError(rule, f"a tensor of {array.dtype}", f"{remedy}; the function may use torch.autocast")
    if str(getattr(array, "device", "")) == "meta":
        remedy = "Give it memory and values first, for a module by to_empty() and its initialisation"
        raise ArgumentError(f"{owner}: the start must have numbers", "a tensor on the device meta", remedy)
    empty = 0 in array.shape
    if empty or not arrays.finite_rows(array.reshape(1, -1)).all():
        what = "an empty array" if empty else "a start with NaN or infinity"
        raise ArgumentError(f"{owner}: the start must be finite numbers", what, "Start from numbers")
    return array


def _labels(tree: Any, path: str) -> Iterator[str]:
    """The keys to each leaf: a.b[0], or x[0] at the top of a list."""
    if isinstance(tree, Mapping):
        for key, child in tree.items():
            yield from _labels(child, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, (list, tuple)):
        for i, child in enumerate(tree):
            yield from _labels(child, f"{path or 'x'}[{i}]")
    else:
        yield path


def _form(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict of {', '.join(map(repr, list(value)[:8]))}"
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, (list, tuple)) else arrays.form(value)


def coordinate_names(x: Any, owner: str) -> tuple[str, ...]:
    """The names of the coordinates of a tree or of a Result with one; () for an array."""
    parts = of_players(x.x, x.problem["name"]) if isinstance(x, Result) else None
    found = Layout.of_points(x if parts is None else parts, owner)
    return () if found is None else found[0].names()


def of_function(owner: str, sample: Any, layout: Layout, start: Array, args: Any) -> Oracle:
    """The oracle of a user's function `sample(x, n, rng, *args)` of points in this layout; `start` is a flat one."""
    require_tuple(args, owner)
    name, form = f"{owner}: sample", f"sample(x, n, rng{', *args' if args else ''})"
    is_problem = isinstance(sample, Problem)
    remedy = "Use dualanchor.solve for a Problem, or pass its oracle and a start" if is_problem else ""
    other_form = "Change its arguments; bind further ones by args=; dualanchor.each(f) wraps a function f(x, rng)"
    check.function(sample, name, form, 3 + len(args), remedy, other_form)
    oracle = keyed_function(sample, start, layout, tuple(args), name)
    if oracle is None and layout.is_tree:
        oracle = Sampler(_OfTree(taking_generator(sample, 2), layout, name), args=tuple(args), name=name)
    return oracle or Sampler(sample, shape=layout.shape, args=tuple(args), name=name)


def keyed_function(sample: Any, start: Array, layout: Layout | None, args: tuple[Any, ...], name: str) -> Oracle | None:
    """The oracle of a function that draws from a JAX key, if the start is an array of JAX."""
    if not arrays.is_jax(start):
        return None
    from dualanchor.oracles.jax_sampler import keyed

    if layout is not None and layout.is_tree:
        sample, layout = _OfTree(sample, layout, name), None
    return keyed(sample, start, form=layout, args=args, name=name)


@dataclass(frozen=True)
class _OfTree:
    """A user's function of a tree as a function of flat points; equal to another one with the same function."""

    sample: Any
    layout: Layout
    name: str

    def __call__(self, x: Array, n: Any, rng: Any, *args: Any) -> Array:
        return self.layout.flatten(self.sample(self.layout.split(x), n, rng, *args), n, self.name, x)


def require_tuple(args: Any, door: str) -> None:
    """Raise unless `args` is a tuple or a list."""
    if not isinstance(args, (tuple, list)):
        remedy = "Write args=(value,) for a single value"
        raise ArgumentTypeError(f"{door}: args must be a tuple", repr(args)[:80], remedy)
    _require_concrete(args, door)


def _require_concrete(values: Any, owner: str) -> None:
    """Raise if JAX is tracing an array in a tree of values."""
    jax = sys.modules.get("jax")
    if jax is not None and any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values)):
        rule = f"{owner} computes in Python as well and cannot be called within jax.jit, vmap or grad"
        raise ArgumentTypeError(rule, "a traced array", "Call it outside of them")
