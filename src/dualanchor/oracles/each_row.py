"""Calling a user's function of one point for every row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, OracleError
from dualanchor.core.types import Array


def each_row(function: Callable[[int], Any], x: Array, name: str, out: Any = None) -> Array:
    """`function(row)` for each row of x, in `out` or an array like x that nobody else keeps; an error names the row."""
    foreign = arrays.is_foreign(x)
    if out is None:
        out = [None] * x.shape[0] if foreign else np.empty_like(x)
    for row in range(x.shape[0]):
        try:
            value = function(row)
            value = arrays.settled(value, x) if foreign else arrays.to_host(value)
        except OracleError as error:
            raise OracleError(*error.parts, row) from error
        except Exception as error:
            raise OracleError(
                f"{name} must not raise",
                f"{type(error).__name__}: {error}",
                f"Mend {name}; the error it raised is shown above, the result so far is in .result of this one",
                row,
            ) from error
        if foreign and not arrays.alike(value, x):
            raise OracleError(
                f"{name} must return an array of the library of x",
                f"{type(value).__name__} for x of type {type(x).__name__}",
                "Compute with that library; its asarray, with dtype and device of x, takes numbers from rng",
                row,
            )
        if tuple(value.shape) != tuple(x.shape[1:]):
            raise OracleError(
                f"{name} must return one vector with the shape of x",
                f"{arrays.form(value)} for x of shape {tuple(x.shape[1:])}",
                "Return the mean over the samples, one number per coordinate",
                row,
            )
        if not (arrays.is_real(value) if foreign else value.dtype.kind in "fiu"):
            raise OracleError(f"{name} must return real numbers", f"dtype {value.dtype}", "Return a float array", row)
        out[row] = value
    return arrays.namespace(x).stack(out) if foreign else out


def require_callable(function: Any, name: str, signature: str) -> None:
    """Raise unless `function` can be called."""
    if not callable(function):
        raise ArgumentTypeError(
            f"{name} must be a function {signature}", repr(type(function).__name__), "Pass a function"
        )


def require_non_negative(value: Any, name: str) -> None:
    """Raise unless `value` is a finite number that is not negative."""
    if not (np.ndim(value) == 0 and np.isreal(value) and np.isfinite(value) and value >= 0):
        raise ArgumentError(f"{name} must be a finite number >= 0", value, "Use 0 for no noise")
