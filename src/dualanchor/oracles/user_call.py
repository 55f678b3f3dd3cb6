"""Calling a user's function of one point for every row."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import OracleError
from dualanchor.core.types import Array


def user_call(function: Callable[[int], Any], x: Array, name: str, out: Array | None = None) -> Array:
    """`function(row)`, of shape (d,), for each row of x (rows, d), like x, in `out` if given; errors name the row."""
    foreign = arrays.is_foreign(x)
    values: Any = [None] * x.shape[0] if foreign else np.empty_like(x) if out is None else out
    shape, dtype = x.shape[1:], x.dtype
    for row in range(x.shape[0]):
        try:
            value = function(row)
        except Exception as error:
            raise raised(error, name, row) from error
        if foreign or type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
            value = _checked(value, x, name, row)
        values[row] = value
    return arrays.namespace(x).stack(values) if foreign else values


def _checked(value: Any, x: Array, name: str, row: int) -> Array:
    """The value, if it is real, of the length of a row and of the library of x."""
    foreign = arrays.is_foreign(x)
    try:
        value = arrays.as_library_of(value, x) if foreign else arrays.to_host(value)
    except Exception as error:
        raise raised(error, name, row) from error
    if foreign and not arrays.alike(value, x):
        received = f"{type(value).__name__} for x of type {type(x).__name__}"
        remedy = "Compute with that library; its asarray, with dtype and device of x, takes numbers from rng"
        raise OracleError(f"{name} must return an array of the library of x", received, remedy, row)
    if tuple(value.shape) != tuple(x.shape[1:]):
        received = f"{arrays.form(value)} for x of shape {tuple(x.shape[1:])}"
        remedy = "Return the mean over the samples, one number per coordinate"
        raise OracleError(f"{name} must return one vector with the shape of x", received, remedy, row)
    if not (arrays.is_real(value) if foreign else value.dtype.kind in "fiu"):
        raise OracleError(f"{name} must return real numbers", f"dtype {value.dtype}", "Return a float array", row)
    return value


def raised(error: Exception, name: str, row: int) -> OracleError:
    """An error of the user's function, which names the row."""
    if isinstance(error, OracleError):
        return OracleError(*error.parts, row)
    remedy = f"Fix {name}; the error it raised is shown above, the result so far is in .result of this one"
    return OracleError(f"{name} must not raise", f"{type(error).__name__}: {error}", remedy, row)
