"""Calling a user's function of one point for every row."""

import inspect
import sys
from collections.abc import Callable
from functools import wraps
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
            value = accepted(value, x, name, row)
        values[row] = value
    return arrays.namespace(x).stack(values) if foreign else values


def accepted(
    value: Any, x: Array, name: str, row: int | None, shape: tuple[int, ...] | None = None, n: Any = None
) -> Array:
    """What a function returned for one row of x (rows, d) as a real vector (d,) of its library.

    It must have the shape of a row, or another `shape` of as many numbers; or be n of those, of which it is the mean.
    """
    foreign, shape = arrays.is_foreign(x), tuple(x.shape[1:]) if shape is None else shape
    try:
        value = arrays.as_library_of(value, x) if foreign else arrays.to_host(value)
    except Exception as error:
        raise raised(error, name, row) from error
    if not arrays.alike(value, x):
        received = f"{type(value).__name__} for x of type {type(x).__name__}"
        remedy = "Compute with that library; its asarray, with dtype and device of x, takes numbers from rng"
        raise OracleError(f"{name} must return an array of the library of x", received, remedy, row)
    if not (arrays.is_real(value) if foreign else value.dtype.kind in "fiu"):
        received = arrays.form(value) if value.dtype == object else f"dtype {value.dtype}"
        raise OracleError(f"{name} must return real numbers", received, "Return a float array", row)
    if isinstance(n, int) and tuple(value.shape) == (n, *shape):  # JAX may not know it yet
        value = arrays.namespace(value).mean(value, axis=0)
    if tuple(value.shape) != shape:
        what = (
            "one vector with the shape of x" if n is None else "the mean of n samples, of the shape of x, or n samples"
        )
        received = f"{arrays.form(value)} for x of shape {shape}{'' if n is None else f' and n = {n}'}"
        remedy = "Return the mean over the samples, one number per coordinate"
        raise OracleError(f"{name} must return {what}", received, remedy, row)
    return value.reshape(-1)


def raised(error: Exception, name: str, row: int | None) -> OracleError:
    """An error of the user's function, which names the row."""
    if isinstance(error, OracleError):
        return OracleError(*error.parts, row)
    remedy = f"Fix {name}; the error it raised is shown above, the result so far is in .result of this one"
    return OracleError(f"{name} must not raise", f"{type(error).__name__}: {error}", remedy, row)


def taking_generator(sample: Callable[..., Any], place: int) -> Callable[..., Any]:
    """The function; if its parameter in this place is called `generator`, with a torch.Generator there on tensors."""
    try:
        names = list(inspect.signature(sample).parameters)
    except (TypeError, ValueError):
        return sample
    if names[place : place + 1] != ["generator"]:
        return sample

    @wraps(sample)
    def call(x: Any, *given: Any) -> Any:
        rng = torch_generator(given[place - 1], x)
        return sample(x, *given[: place - 1], rng, *given[place:])

    return call


def torch_generator(rng: Any, x: Any) -> Any:
    """A torch.Generator on the device of x, a tensor or a tree of tensors, seeded from rng; for other arrays rng."""
    while isinstance(x, (dict, list, tuple)):
        x = next(iter(x.values() if isinstance(x, dict) else x))
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        return rng
    return torch.Generator(x.device).manual_seed(int(rng.integers(2**63)))
