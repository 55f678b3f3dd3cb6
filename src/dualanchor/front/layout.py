"""The oracles behind the front doors, of one function or of both players of a game, and the start as a flat vector."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.oracle import Oracle, require_dimension
from dualanchor.core.result import Result
from dualanchor.core.types import Array
from dualanchor.oracles.composite import FixedPoint
from dualanchor.oracles.layout import Layout, keyed_function, of_function, require_tuple
from dualanchor.oracles.sampler import Sampler
from dualanchor.oracles.user_call import taking_generator

__all__ = ["Layout", "on_host", "saddle_sampled", "sampled"]

_LONG = 1 << 16  # coordinates; copying shorter vectors to compiled code and back costs next to nothing


def on_host(oracle: Oracle, x0: Any) -> Any:
    """The start in NumPy if steps are compiled by JAX, because the work between compiled steps is faster in NumPy.

    Long vectors of JAX, and those on another device than its default, stay as they are. Doubles of NumPy become singles
    where JAX has no doubles.
    """
    if not oracle.traceable:
        return x0
    jax = sys.modules["jax"]
    if isinstance(x0, np.ndarray):
        return x0.astype(jax.dtypes.canonicalize_dtype(x0.dtype), copy=False)
    return x0 if x0.size > _LONG or x0.devices() != {jax.devices()[0]} else np.array(x0)


def sampled(door: str, sample: Any, x0: Any, args: Any, minus_identity: bool = False) -> tuple[Oracle, Layout, Array]:
    """The oracle of a user's function `sample(x, n, rng, *args)` or a given one, the layout, and the flat start."""
    own = sample.x0 if getattr(sample, "takes_vectors", False) else None  # it takes vectors like its x0 only
    x0 = x0.x if isinstance(x0, Result) else x0
    if own is not None and not (isinstance(x0, (np.ndarray, list)) and np.shape(x0) == np.shape(own)):
        shape = f" of shape {tuple(x0.shape)}" if hasattr(x0, "shape") else ""
        rule = f"{door}: this oracle takes a NumPy vector of shape {np.shape(own)}, with all unknowns in it"
        raise ArgumentTypeError(rule, f"a {type(x0).__name__}{shape}", "Start from oracle.x0")
    layout, start = Layout.of(x0, door)
    if isinstance(sample, Oracle):
        require_dimension(sample, start.shape[0], f"{door}: the start")
        if sample.take(np.arange(1)) is not sample:  # calibration and certificates would be those of the first row
            rule = f"{door}: all rows of the oracle must have the same data, since it solves one problem"
            raise ArgumentError(rule, f"{sample!r} with data per row", "Pass the data of one row, or use da.solve")
    else:
        sample = of_function(door, sample, layout, start, args)
    return FixedPoint(sample) if minus_identity else sample, layout, start


def saddle_sampled(sample_u: Any, sample_v: Any, x0: Any, args: Any) -> tuple[Oracle, Layout, Array]:
    """As `sampled`, for the oracle of (gradient in u, minus gradient in v)."""
    layout, start = Layout.of(x0, "saddle", players=True)
    require_tuple(args, "saddle")
    for name, function in (("sample_u", sample_u), ("sample_v", sample_v)):
        form = f"{name}(u, v, n, rng{', *args' if args else ''})"
        check.function(function, f"saddle: {name}", form, 4 + len(args))

    both = _Gradients(sample_u, sample_v, layout)
    oracle = keyed_function(both, start, None, tuple(args), "saddle: sample")
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
        layout_u, layout_v = self.layout.players
        in_u = layout_u.flatten(self.sample_u(u, v, n, rng_u, *args), n, "saddle: sample_u", x)
        in_v = layout_v.flatten(self.sample_v(u, v, n, rng_v, *args), n, "saddle: sample_v", x)
        return arrays.concatenate([in_u, -in_v])


def _for_each_player(rng: Any) -> Any:
    """Generators for both players: the same one, or two keys split from a JAX key, which always draws the same."""
    if not arrays.is_jax(rng):
        return rng, rng
    import jax

    return jax.random.split(rng)
