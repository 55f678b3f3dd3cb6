"""What `certify` and `calibrate` are handed, made into samples at points: one row per point."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.oracle import Oracle, require_dimension
from dualanchor.core.problem import Problem, as_point
from dualanchor.core.result import Result
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.oracles.sampler import Sampler

Source: TypeAlias = Oracle | Problem | Callable[..., Any]  # of samples


def open_samples(oracle: Source, x: Any, *, seed: int, purpose: Purpose, owner: str) -> tuple[Session, Array, bool]:
    """A session, points (rows, d), and whether x is a single one: a point (d,), points, or a Result's.

    A problem's random parts are those of `solve` for the Result's seed, or else for `seed`, row r as replication r.
    """
    given, drawn = (x.x, x.seed) if isinstance(x, Result) else (x, seed)
    if isinstance(x, Result) and isinstance(given, tuple):
        rule = f"{owner}: x must be one array, and that of a saddle point is two"
        raise ArgumentTypeError(rule, "a Result of saddle", "Pass np.concatenate(result.x) and an oracle of both parts")
    if callable(oracle) and not isinstance(oracle, (Oracle, Problem)):
        form, is_array = _shape(given), not (given is None or isinstance(given, dict))
        one = is_array and (form == () or (isinstance(x, Result) and x.shape == ()))  # of any shape
        sample, shape = oracle, form if one else None
        if one:
            given = given.reshape(-1) if arrays.is_foreign(given) else np.reshape(given, -1)
        oracle = _keyed(sample, given, shape, f"{owner}: sample") or Sampler(sample, shape=shape)
    shape, dimension = _shape(given), None
    if isinstance(oracle, Problem):
        rows = shape[0] if len(shape) == 2 else 1
        oracle, start, _ = oracle.instance(Streams(drawn, np.arange(rows), Purpose.INSTANCE))
        given, dimension = start[0] if given is None else given, start.shape[1]
        shape = _shape(given)
    elif not isinstance(oracle, Oracle):
        rule = f"{owner}: oracle must be an Oracle, a Problem or a function sample(x, n, rng)"
        raise ArgumentTypeError(rule, type(oracle).__name__, "Wrap it in Sampler, AdditiveNoise or FiniteSum")
    if given is None:
        rule = f"{owner}: x can be left out only where the oracle is a Problem"
        raise ArgumentTypeError(rule, "no point", "Say where: x=...")
    if len(shape) not in (1, 2) or 0 in shape:
        remedy = "Of several configurations give one, as result.x[0]" if len(shape) == 3 else "Reshape it"
        raise ArgumentError(f"{owner}: x must be a point (d,) or points (rows, d)", f"shape {shape}", remedy)
    rows = shape[0] if len(shape) == 2 else 1
    width = shape[-1] if dimension is None else dimension
    point = as_point(given, f"{owner}: x", width, rows if len(shape) == 2 else None)
    require_dimension(oracle, width, f"{owner}: x")
    points = arrays.tile(point, rows)
    streams = Streams(seed, np.arange(rows), purpose, width, points.dtype)
    return Session(oracle, streams), points, len(shape) == 1


def _keyed(sample: Any, points: Any, shape: tuple[int, ...] | None, name: str) -> Oracle | None:
    """The oracle of a function that draws from a JAX key, if the points (d,) or (rows, d) are arrays of JAX."""
    if not arrays.is_jax(points):
        return None
    from dualanchor.oracles.jax_sampler import Reshaped, keyed

    one = points.reshape(-1, points.shape[-1])[0]
    return keyed(sample, one, form=None if shape is None else Reshaped(shape), args=(), name=name)


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of what may be an array; (1,) for dicts and ragged lists, which `as_point` then turns down."""
    try:
        return (1,) if isinstance(value, dict) else tuple(np.shape(value))
    except ValueError:
        return (1,)
