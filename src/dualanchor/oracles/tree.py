"""Nested dicts, lists and tuples of arrays, and modules of PyTorch, as one flat vector."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from math import prod
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, OracleError
from dualanchor.core.problem import as_reals
from dualanchor.core.types import Array

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Tree:
    """The form of a tree: `skeleton`, the tree with the index of each leaf in its place, and the leaves' shapes."""

    skeleton: Any
    shapes: Shapes

    def __hash__(self) -> int:
        return hash((repr(self.skeleton), self.shapes))

    def build(self, flat: Array) -> Any:
        """The tree of a flat vector; of several, (reps, d), each leaf has a first axis of length reps."""
        return self.of_leaves(pieces(flat, self.shapes))

    def of_leaves(self, leaves: Iterator[Any]) -> Any:
        """The tree with the next leaves of an iterator."""
        return mapped(list(islice(leaves, len(self.shapes))).__getitem__, self.skeleton)

    def names(self) -> tuple[str, ...]:
        """A name for each number of a flat vector: the keys that lead to its leaf, and its index there."""
        labels = zip(_labels(self.skeleton, ""), self.shapes, strict=True)
        return tuple(label + (str(list(i)) if i else "") for label, shape in labels for i in np.ndindex(shape))

    def flatten(self, value: Any, n: int, owner: str, x: Array) -> Array:
        """The value of a sampler, a mean or n samples in each leaf, as a flat vector of the library of x."""
        skeleton, leaves = skeleton_and_leaves(in_order_of(self.skeleton, value))
        if skeleton != self.skeleton:
            rule = f"{owner} must return a tree like the start, with the same keys"
            raise OracleError(rule, _form(value), f"Return {_form(self.build(x))}")
        pairs = zip(leaves, self.shapes, strict=True)
        return arrays.concatenate([self._flat_mean(leaf, shape, n, owner, x) for leaf, shape in pairs])

    @staticmethod
    def _flat_mean(leaf: Any, shape: tuple[int, ...], n: int, owner: str, x: Array) -> Array:
        if arrays.is_foreign(x):
            _require_array(leaf, shape, owner, x)
            leaf = arrays.as_library_of(leaf, x)
        else:
            leaf = arrays.to_host(leaf)
        if tuple(leaf.shape) == (n, *shape):
            leaf = arrays.namespace(leaf).mean(leaf, axis=0)
        if tuple(leaf.shape) != shape:
            remedy = "Return the mean over the n samples in the shape of each leaf, or n samples"
            received = f"{arrays.form(leaf)} for a leaf of shape {shape}"
            raise OracleError(f"{owner} must return leaves with the shapes of the start", received, remedy)
        return leaf.reshape(-1)


def tree_of(start: Any, owner: str) -> tuple[Any, list[Any]]:
    """The skeleton and the leaves of a start; for a single array None and the array."""
    if callable(getattr(start, "named_parameters", None)):
        start = _parameters(start, owner)
    nested = isinstance(start, Mapping) or (isinstance(start, (list, tuple)) and _has_arrays(start))
    return skeleton_and_leaves(start) if nested else (None, [start])


def pieces(flat: Array, shapes: Shapes) -> Iterator[Array]:
    """Consecutive parts of a flat vector, or of (reps, d), in these shapes."""
    ends = accumulate((prod(shape) for shape in shapes), initial=0)
    for (begin, end), shape in zip(pairwise(ends), shapes, strict=True):
        part = flat[..., begin:end]
        yield part if len(shape) == 1 else part.reshape((*flat.shape[:-1], *shape))[()]


def _has_arrays(start: Sequence[Any]) -> bool:
    """Whether a list does not make one array: it has dicts, arrays of other libraries, or of different shapes."""
    if any(isinstance(part, Mapping) or arrays.is_foreign(part) for part in start):
        return True
    return any(isinstance(part, np.ndarray) for part in start) and as_reals(start) is None


def _require_array(leaf: Any, shape: tuple[int, ...], owner: str, x: Array) -> None:
    """Refuse a leaf of a sample at x, of another library than NumPy, that is no array of that library."""
    is_numpy = isinstance(leaf, (np.ndarray, np.generic))  # which JAX converts
    if not (arrays.is_foreign(leaf) or (is_numpy and arrays.is_jax(x))):
        rule = f"{owner} must return a tree whose leaves are arrays of the library of the start"
        kind = "None" if leaf is None else type(leaf).__name__
        remedy = "Compute with that library; its asarray, with dtype and device of the leaf, converts numbers"
        raise OracleError(rule, f"{kind} for a leaf of shape {shape}", remedy)


def _parameters(module: Any, owner: str) -> dict[str, Any]:
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


def skeleton_and_leaves(tree: Any) -> tuple[Any, list[Any]]:
    """The tree with the index of each leaf in its place, and the leaves."""
    leaves: list[Any] = []

    def index(leaf: Any) -> int:
        leaves.append(leaf)
        return len(leaves) - 1

    return mapped(index, tree), leaves


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with `function(leaf)` in place of each leaf."""
    if isinstance(tree, Mapping):
        return {key: mapped(function, child) for key, child in tree.items()}
    if isinstance(tree, (list, tuple)):
        return _sequence_like(tree, [mapped(function, child) for child in tree])
    return function(tree)


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


def in_order_of(skeleton: Any, value: Any) -> Any:
    """A tree with the keys of its dicts in the order of the skeleton: `jax.grad` sorts them."""
    if isinstance(skeleton, dict) and isinstance(value, Mapping) and value.keys() == skeleton.keys():
        return {key: in_order_of(child, value[key]) for key, child in skeleton.items()}
    if isinstance(skeleton, (list, tuple)) and isinstance(value, (list, tuple)) and len(value) == len(skeleton):
        return _sequence_like(value, [in_order_of(*pair) for pair in zip(skeleton, value, strict=True)])
    return value


def _sequence_like(sequence: Any, items: list[Any]) -> Any:
    """The items as a list, tuple or named tuple, like `sequence`."""
    if isinstance(sequence, list):
        return items
    return type(sequence)(*items) if hasattr(sequence, "_fields") else tuple(items)


def _form(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict of {', '.join(map(repr, list(value)[:8]))}"
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, (list, tuple)) else arrays.form(value)
