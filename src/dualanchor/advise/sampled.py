"""What `certify` and `calibrate` are handed, made into samples at points: one row per point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core.errors import ArgumentError, ArgumentTypeError, explain
from dualanchor.core.oracle import Oracle, Session
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

    A problem's random parts are drawn as `solve` draws them for the same seed, one row per replication; without x
    the point is its start. The samples come from streams of their own, so they are independent of every run.
    """
    if callable(oracle) and not isinstance(oracle, (Oracle, Problem)):
        oracle = Sampler(oracle)
    given = x.x if isinstance(x, Result) else x
    if isinstance(oracle, Problem):
        replications = np.arange(1 if given is None or np.ndim(given) < 2 else len(given))
        oracle, start, _ = oracle.instance(Streams(seed, replications, Purpose.INSTANCE))
        given = start[0] if given is None else given
    elif not isinstance(oracle, Oracle):
        raise ArgumentTypeError(
            explain(
                f"{owner}: oracle must be an Oracle, a Problem or a function sample(x, n, rng)",
                type(oracle).__name__,
                "Wrap what you have in Sampler, AdditiveNoise or FiniteSum",
            )
        )
    points = np.asarray(given)
    if points.ndim not in (1, 2):
        raise ArgumentError(
            explain(f"{owner}: x must be a point (d,) or points (rows, d)", f"shape {points.shape}", "Reshape it")
        )
    rows = points.shape[0] if points.ndim == 2 else 1
    point = as_point(given, f"{owner}: x", points.shape[-1], rows if points.ndim == 2 else None)
    x2 = np.array(np.broadcast_to(point, (rows, points.shape[-1])))
    streams = Streams(seed, np.arange(rows), purpose, x2.shape[1], x2.dtype)
    return Sampled(Session(oracle, streams), x2, points.ndim == 1)
