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
from dualanchor.core.oracle import Oracle, require_dimension
from dualanchor.core.problem import Problem, as_reals
from dualanchor.core.result import Result
from dualanchor.core.types import Array
from dualanchor.front.tree import Shapes, Tree, pieces, tree_of
from dualanchor.oracles.composite import FixedPoint
from dualanchor.oracles.sampler import Sampler
from dualanchor.oracles.user_call import accepted, taking_generator

_LONG = 1 << 16  # coordinates; copying shorter vectors to compiled code and back costs next to nothing


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
        if blocks is not None and (not isinstance(x0, (tuple, list)) or len(x0) != blocks):
            rule = f"{owner}: the start must be a tuple of {blocks} arrays"
            raise ArgumentTypeError(rule, repr(x0)[:80], "Pass (u0, v0)")
        blocks_of_leaves = [tree_of(block, owner) for block in (x0 if blocks is not None else [x0])]
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
            raise ArgumentError(f"{owner}: the start must have numbers", repr(x0)[:80], "Start from numbers")
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


def on_host(oracle: Oracle, x0: Any) -> Array:
    """The start in NumPy if steps are compiled by JAX, because the work between compiled steps is faster in NumPy.

    Long vectors, and those on another device than JAX's default, stay as they are.
    """
    if not oracle.traceable or x0.size > _LONG or x0.devices() != {sys.modules["jax"].devices()[0]}:
        start: Array = x0
        return start
    return np.array(x0)


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


def sampled(door: str, sample: Any, x0: Any, args: Any, minus_identity: bool = False) -> tuple[Oracle, Layout, Array]:
    """The oracle of a user's function `sample(x, n, rng, *args)` or a given one, the layout, and the flat start."""
    own = (
        sample.x0 if getattr(sample, "takes_vectors", False) else None
    )  # such an oracle takes vectors like its x0 only
    x0 = x0.x if isinstance(x0, Result) else x0
    if own is not None and not (isinstance(x0, (np.ndarray, list)) and np.shape(x0) == np.shape(own)):
        shape = f" of shape {tuple(x0.shape)}" if hasattr(x0, "shape") else ""
        rule = f"{door}: this oracle takes a NumPy vector of shape {np.shape(own)}, with all unknowns in it"
        raise ArgumentTypeError(rule, f"a {type(x0).__name__}{shape}", "Start from oracle.x0")
    layout, start = Layout.of(x0, door)
    if isinstance(sample, Oracle):
        require_dimension(sample, start.shape[0], f"{door}: the start")
    else:
        _require_tuple(args, door)
        name, form = f"{door}: sample", f"sample(x, n, rng{', *args' if args else ''})"
        is_problem = isinstance(sample, Problem)
        remedy = "Use dualanchor.solve for a Problem, or pass its oracle and a start" if is_problem else ""
        other_form = "Change its arguments; dualanchor.each(f) wraps a function f(x, rng) of one sample"
        check.function(sample, name, form, 3 + len(args), remedy, other_form)
        oracle = _keyed(sample, start, layout, tuple(args), name)
        if oracle is None and (tree := layout.trees[0]) is not None:
            oracle = Sampler(_OfTree(taking_generator(sample, 2), tree, name), args=tuple(args), name=name)
        sample = oracle or Sampler(sample, shape=layout.shapes[0], args=tuple(args), name=name)
    return FixedPoint(sample) if minus_identity else sample, layout, start


def _keyed(sample: Any, start: Array, layout: Layout | None, args: tuple[Any, ...], name: str) -> Oracle | None:
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


def _require_tuple(args: Any, door: str) -> None:
    if not isinstance(args, (tuple, list)):
        remedy = "Write args=(value,) for a single value"
        raise ArgumentTypeError(f"{door}: args must be a tuple", repr(args)[:80], remedy)


def saddle_sampled(sample_u: Any, sample_v: Any, x0: Any, args: Any) -> tuple[Oracle, Layout, Array]:
    """As `sampled`, for the oracle of (gradient in u, minus gradient in v)."""
    layout, start = Layout.of(x0, "saddle", blocks=2)
    _require_tuple(args, "saddle")
    for name, function in (("sample_u", sample_u), ("sample_v", sample_v)):
        form = f"{name}(u, v, n, rng{', *args' if args else ''})"
        check.function(function, f"saddle: {name}", form, 4 + len(args))

    both = _Gradients(sample_u, sample_v, layout)
    oracle = _keyed(both, start, None, tuple(args), "saddle: sample")
    if oracle is None:
        drawing = _Gradients(taking_generator(sample_u, 3), taking_generator(sample_v, 3), layout)
        oracle = Sampler(drawing, args=tuple(args))
    return oracle, layout, start


@dataclass(frozen=True)
class _Gradients:
    """Samples of (gradient in u, minus gradient in v) as a function of flat points; equal if both functions are."""

    sample_u: Any
    sample_v: Any
    layout: Layout

    def __call__(self, x: Array, n: Any, rng: Any, *args: Any) -> Array:
        u, v = self.layout.split(x)
        rng_u, rng_v = _for_each_player(rng)
        in_u = _flat(self.sample_u(u, v, n, rng_u, *args), self.layout, 0, n, "saddle: sample_u", x)
        in_v = _flat(self.sample_v(u, v, n, rng_v, *args), self.layout, 1, n, "saddle: sample_v", x)
        return arrays.concatenate([in_u, -in_v])


def _for_each_player(rng: Any) -> Any:
    """Generators for both players: the same one, or two keys split from a JAX key, which always draws the same."""
    if not arrays.is_jax(rng):
        return rng, rng
    import jax

    return jax.random.split(rng)


def _flat(value: Any, layout: Layout, block: int, n: int, owner: str, x: Array) -> Array:
    """The value of a user's function for a block as a flat vector of the library of x."""
    if (tree := layout.trees[block]) is not None:
        return tree.flatten(value, n, owner, x)
    return accepted(value, x, owner, None, layout.shapes[block], n)
