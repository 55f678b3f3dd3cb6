"""Translates between the user's arrays and functions, of any shape, and the flat vectors that all else works with."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.nested import of_players
from dualanchor.core.oracle import Oracle
from dualanchor.core.problem import Problem, as_reals
from dualanchor.core.result import Result
from dualanchor.core.types import Array
from dualanchor.oracles.sampler import Sampler
from dualanchor.oracles.tree import Shapes, Tree, pieces, skeleton_and_leaves, tree_of
from dualanchor.oracles.user_call import taking_generator


@dataclass(frozen=True)
class Layout:
    """How one array, or a tuple of blocks, lies in a flat vector."""

    shapes: tuple[tuple[int, ...], ...]  # of each block; (size,) for a tree of arrays
    blocks: bool  # whether the start is a tuple of blocks
    trees: tuple[Tree | None, ...]  # of each block; None for a single array
    device: Any = None  # of JAX arrays, where flat vectors of NumPy are put

    @classmethod
    def of(cls, x0: Any, owner: str, blocks: int | None = None) -> tuple[Layout, Array]:
        """The layout of a start, and the start as a flat vector; with `blocks`, a tuple of that many is expected."""
        x0 = x0.x if isinstance(x0, Result) else x0
        _require_concrete(x0, owner)
        if blocks is not None and (not isinstance(x0, (tuple, list)) or len(x0) != blocks):
            rule = f"{owner}: the start must be a tuple of {blocks} arrays"
            raise ArgumentTypeError(rule, repr(x0)[:80], "Pass (u0, v0)")
        return cls._joined([tree_of(block, owner) for block in (x0 if blocks is not None else [x0])], blocks, owner)

    @classmethod
    def of_points(cls, x: Any, owner: str) -> tuple[Layout, Array] | None:
        """The layout of a tree or of a Result with one, and the flat vector (d,); None if x is not a tree.

        Of a Result with replications, the layout of one of them, and flat vectors (reps, d).
        """
        of_run = isinstance(x, Result)
        tree = x.x if of_run else x
        nested = of_run and isinstance(tree, (list, tuple))  # also blocks of one shape, which would make one array
        skeleton, leaves = skeleton_and_leaves(tree) if nested else tree_of(tree, owner)
        if skeleton is None:
            return None
        if not of_run or x.shape == ():
            return cls._joined([(skeleton, leaves)], None, owner)
        found = [cls._joined([(skeleton, [leaf[row] for leaf in leaves])], None, owner) for row in range(x.shape[0])]
        return found[0][0], arrays.namespace(found[0][1]).stack([flat for _, flat in found])

    @classmethod
    def _joined(
        cls, blocks_of_leaves: list[tuple[Any, list[Any]]], blocks: int | None, owner: str
    ) -> tuple[Layout, Array]:
        """The layout of blocks, each with its skeleton (None for an array) and leaves, and their flat vector."""
        foreign = [leaf for _, leaves in blocks_of_leaves for leaf in leaves if arrays.is_foreign(leaf)]
        devices = dict.fromkeys(str(leaf.device) for leaf in foreign)
        if len(devices) > 1:
            rule, remedy = f"{owner}: the start must be on one device", "Move all of it to one of them"
            raise ArgumentError(rule, " and ".join(devices), remedy)
        shapes, trees, parts = [], [], []
        for skeleton, raw_leaves in blocks_of_leaves:
            leaves = [_numbers(leaf, owner) for leaf in raw_leaves]
            tree = None if skeleton is None else Tree(skeleton, tuple(tuple(leaf.shape) for leaf in leaves))
            shapes.append(tuple(leaves[0].shape) if tree is None else (sum(map(prod, tree.shapes)),))
            trees.append(tree)
            parts += leaves
        if not parts:
            received = repr([skeleton for skeleton, _ in blocks_of_leaves])[1:-1]
            raise ArgumentError(f"{owner}: the start must have numbers", received[:80], "Start from numbers")
        if not all(arrays.alike(part, parts[0]) for part in parts):
            kinds = " and ".join(dict.fromkeys(type(part).__name__ for part in parts))
            raise ArgumentTypeError(f"{owner}: the start must be of one library", kinds, "Convert one of them")
        if len({str(part.dtype) for part in parts}) > 1:
            kinds = " and ".join(str(part.dtype) for part in parts)
            raise ArgumentTypeError(f"{owner}: the start must be of one dtype", kinds, "Convert one of them")
        flat = arrays.concatenate([part.reshape(-1) for part in parts])
        device = flat.device if arrays.is_jax(flat) else None
        return cls(tuple(shapes), blocks is not None, tuple(trees), device), flat

    def split(self, flat: Array) -> Any:
        """The array or the tuple of blocks from a flat vector, or from (reps, d)."""
        if self.device is not None and isinstance(flat, np.ndarray):
            flat = sys.modules["jax"].device_put(flat, self.device)
        return self.of_leaves(pieces(flat, self.leaf_shapes))

    @cached_property
    def leaf_shapes(self) -> Shapes:
        """The shapes of all arrays, in the order in which they lie in a flat vector."""
        blocks = zip(self.shapes, self.trees, strict=True)
        return tuple(leaf for shape, tree in blocks for leaf in ((shape,) if tree is None else tree.shapes))

    def of_leaves(self, leaves: Iterable[Any]) -> Any:
        """The array or the tuple of blocks from the arrays of all leaves, in order."""
        remaining = iter(leaves)
        blocks = tuple(next(remaining) if tree is None else tree.of_leaves(remaining) for tree in self.trees)
        return blocks if self.blocks else blocks[0]


def _numbers(value: Any, owner: str) -> Array:
    array = as_reals(value)
    if array is None:
        raise ArgumentTypeError(f"{owner}: the start must be made of real numbers", repr(value)[:80], "Pass floats")
    if str(array.dtype) == "torch.bfloat16":  # in float16, which NumPy has, runs work
        rule, remedy = f"{owner}: the start must have a dtype that NumPy has too", "Pass x0.float()"
        raise ArgumentTypeError(rule, f"a tensor of {array.dtype}", f"{remedy}; the function may use torch.autocast")
    empty = 0 in array.shape
    if empty or not arrays.finite_rows(array.reshape(1, -1)).all():
        what = "an empty array" if empty else "a start with NaN or infinity"
        raise ArgumentError(f"{owner}: the start must be finite numbers", what, "Start from numbers")
    return array


def coordinate_names(x: Any, owner: str) -> tuple[str, ...]:
    """The names of the coordinates of a tree or of a Result with one; () for an array."""
    parts = of_players(x.x, x.problem["name"]) if isinstance(x, Result) else None
    found = Layout.of_points(x if parts is None else parts, owner)
    tree = None if found is None else found[0].trees[0]
    return () if tree is None else tree.names()


def of_function(owner: str, sample: Any, layout: Layout, start: Array, args: Any) -> Oracle:
    """The oracle of a user's function `sample(x, n, rng, *args)` of points in this layout; `start` is a flat one."""
    require_tuple(args, owner)
    name, form = f"{owner}: sample", f"sample(x, n, rng{', *args' if args else ''})"
    is_problem = isinstance(sample, Problem)
    remedy = "Use dualanchor.solve for a Problem, or pass its oracle and a start" if is_problem else ""
    other_form = "Change its arguments; bind further ones by args=; dualanchor.each(f) wraps a function f(x, rng)"
    check.function(sample, name, form, 3 + len(args), remedy, other_form)
    oracle = keyed_function(sample, start, layout, tuple(args), name)
    if oracle is None and (tree := layout.trees[0]) is not None:
        oracle = Sampler(_OfTree(taking_generator(sample, 2), tree, name), args=tuple(args), name=name)
    return oracle or Sampler(sample, shape=layout.shapes[0], args=tuple(args), name=name)


def keyed_function(sample: Any, start: Array, layout: Layout | None, args: tuple[Any, ...], name: str) -> Oracle | None:
    """The oracle of a function that draws from a JAX key, if the start is an array of JAX."""
    if not arrays.is_jax(start):
        return None
    if start.dtype.itemsize < 4:
        rule = f"{name.partition(':')[0]}: a start in JAX must be in single or double precision"
        raise ArgumentTypeError(rule, f"dtype {start.dtype}", "Pass x0.astype(jnp.float32)")
    from dualanchor.oracles.jax_sampler import keyed

    if layout is not None and (tree := layout.trees[0]) is not None:
        sample, layout = _OfTree(sample, tree, name), None
    return keyed(sample, start, form=layout, args=args, name=name)


@dataclass(frozen=True)
class _OfTree:
    """A user's function of a tree as a function of flat points; equal to another one with the same function."""

    sample: Any
    tree: Tree
    name: str

    def __call__(self, x: Array, n: Any, rng: Any, *args: Any) -> Array:
        return self.tree.flatten(self.sample(self.tree.build(x), n, rng, *args), n, self.name, x)


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
