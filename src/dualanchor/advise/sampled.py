"""What `certify` and `calibrate` are handed, made into samples at points: one row per point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.oracle import Oracle, Session, require_dimension
from dualanchor.core.problem import Problem, as_point
from dualanchor.core.result import Result
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.oracles.sampler import Sampler


class Sampled(NamedTuple):
    """A session at points of shape (rows, d); `single` where the caller gave one point of shape (d,)."""

    F: Session
    x: Array
    single: bool


def open_samples(
    oracle: Oracle | Problem | Callable[..., Any], x: Any, *, seed: int, purpose: Purpose, owner: str
) -> Sampled:
    """Samples of an oracle, a problem or a function `sample(x, n, rng)` at a point, at several, or at a Result's x.

    A problem's random parts are drawn as `solve` draws them: for the seed of the Result, or else for `seed`, row r as
    its replication r. Without x the point is the problem's start. The samples come from streams of their own, so they
    are independent of every run.
    """
    require_whole(seed, owner, "seed", 0)
    if callable(oracle) and not isinstance(oracle, (Oracle, Problem)):
        oracle = Sampler(oracle)
    given = x.x if isinstance(x, Result) else x
    shape = _shape(given)
    dimension = None
    if isinstance(oracle, Problem):
        drawn = x.seed if isinstance(x, Result) else seed
        rows = shape[0] if len(shape) == 2 else 1
        oracle, start, _ = oracle.instance(Streams(drawn, np.arange(rows), Purpose.INSTANCE))
        given, dimension = start[0] if given is None else given, start.shape[1]
        shape = _shape(given)
    elif not isinstance(oracle, Oracle):
        raise ArgumentTypeError(
            f"{owner}: oracle must be an Oracle, a Problem or a function sample(x, n, rng)",
            type(oracle).__name__,
            "Wrap what you have in Sampler, AdditiveNoise or FiniteSum",
        )
    if given is None:
        raise ArgumentTypeError(
            f"{owner}: x can be left out only where the oracle is a Problem", "no point", "Say where: x=..."
        )
    if len(shape) not in (1, 2) or 0 in shape:
        raise ArgumentError(
            f"{owner}: x must be a point (d,) or points (rows, d)",
            f"shape {shape}",
            "Of several configurations give one, as result.x[0]" if len(shape) == 3 else "Reshape it",
        )
    rows = shape[0] if len(shape) == 2 else 1
    width = shape[-1] if dimension is None else dimension
    point = as_point(given, f"{owner}: x", width, rows if len(shape) == 2 else None)
    require_dimension(oracle, width, f"{owner}: x")
    x2 = arrays.tile(point, rows)
    streams = Streams(seed, np.arange(rows), purpose, width, x2.dtype)
    return Sampled(Session(oracle, streams), x2, len(shape) == 1)


def require_whole(value: Any, owner: str, name: str, least: int) -> None:
    """Raise unless the value is a whole number, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ArgumentTypeError(f"{owner}: {name} must be a whole number", repr(value), f"Use one of at least {least}")
    if value < least:
        raise ArgumentError(f"{owner}: {name} must be at least {least}", value, f"Use {least} or more")


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of what may be an array; (1,) for ragged lists, which `as_point` then turns down."""
    try:
        return tuple(np.shape(value))
    except ValueError:
        return (1,)
