"""Calling a user's function for every row, and checking what it returns."""

import re
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.check import signature_of
from dualanchor.core.errors import OracleError
from dualanchor.core.types import Array


def user_call(function: Callable[[int], Any], x: Array, name: str, out: Array | None = None) -> Array:
    """The values `function(row)`, each of shape (d,), for all rows of x (rows, d); errors name the row.

    Returns an array like x, newly allocated unless `out` is given; `name` is what errors call the function.
    """
    foreign = arrays.is_foreign(x)
    values: Any = [None] * x.shape[0] if foreign else np.empty_like(x) if out is None else out
    shape, dtype = x.shape[1:], x.dtype
    for row in range(x.shape[0]):
        try:
            value = function(row)
        except Exception as error:
            raise raised(error, name, row, x) from error
        if foreign or type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
            value = accepted(value, x, name, row)
        values[row] = value
    return arrays.namespace(x).stack(values) if foreign else values


def accepted(
    value: Any, x: Array, name: str, row: int | None, shape: tuple[int, ...] | None = None, n: Any = None
) -> Array:
    """What a user's function returned for one row of x (rows, d), checked: a real vector (d,) of the library of x.

    The value must have the `shape` of a point, (d,) unless given; or, if n is given, be n points, which are averaged.
    """
    foreign = arrays.is_foreign(x)
    shape = tuple(x.shape[1:]) if shape is None else shape
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
    if isinstance(n, int) and tuple(value.shape) == (n, *shape):  # n is no int while JAX traces it
        value = arrays.namespace(value).mean(value, axis=0)
    if tuple(value.shape) != shape:
        rule = f"{name} must return one vector with the shape of x"
        received = f"{arrays.form(value)} for x of shape {shape}"
        if n is not None:
            rule = f"{name} must return the mean of n samples, of the shape of x, or n samples"
            received += f" and n = {n}"
        raise OracleError(rule, received, "Return the mean over the samples, one number per coordinate", row)
    return value.reshape(-1)


def raised(error: Exception, name: str, row: int | None, x: Any = None) -> OracleError:
    """The OracleError for an exception that the user's function `name` raised in a row of x."""
    if isinstance(error, OracleError):
        return OracleError(*error.parts, row)
    located = _raised(error, name, row, x)
    if x is not None and not arrays.is_foreign(x):
        located.norm = float(np.linalg.norm(x if row is None else x[row : row + 1], axis=-1).max())
    return located


def _raised(error: Exception, name: str, row: int | None, x: Any) -> OracleError:
    received = f"{type(error).__name__}: {error}"
    if (source := _other_source(error, x)) is not None:
        rule, remedy = source
        return OracleError(f"{name} gets {rule}", received.partition("\n")[0], remedy, row)
    if isinstance(error, TypeError) and received.endswith("'dict' object is not callable") and "torch" in sys.modules:
        remedy = f"A module comes as the dict of its parameters: {of_module('parameters')}"
        return OracleError(f"{name} must not raise", received, remedy, row)
    if isinstance(error, RuntimeError) and "does not require grad" in received:
        remedy = "Points come without a graph: differentiate at x = x.detach().requires_grad_()"
        return OracleError(f"{name} must not raise", received, remedy, row)
    remedy = f"Fix {name}; the error it raised is shown above, the result so far, if any, is in .result of this one"
    return OracleError(f"{name} must not raise", received, remedy, row)


def of_module(player: str) -> str:
    """How a function evaluates a module of PyTorch, which it gets as the dict of its parameters, as a remedy."""
    return f"evaluate a module by torch.func.functional_call(module, {player}, inputs)"


def _other_source(error: Exception, x: Any) -> tuple[str, str] | None:
    """What a function that has passed a NumPy Generator to JAX or PyTorch gets instead at x, and what it should do."""
    text = str(error)
    if not isinstance(error, TypeError) or not re.search(r"numpy\.random\S*Generator", text):
        return None
    only = "only where the start is of that library, elsewhere a NumPy Generator"
    if "PRNG key" in text or "abstract array" in text:
        return f"a JAX key {only}", "Start from a JAX array, such as jnp.asarray(x0)"
    if "torch" in text and x is not None and arrays.is_foreign(x) and not arrays.is_jax(x):
        return "a torch.Generator only if its parameter is called generator", "Call the parameter generator"
    if "torch" in text:
        return f"a torch.Generator {only}", "Start from a tensor of PyTorch, and call the parameter generator"
    return None


def takes_generator(sample: Callable[..., Any], place: int) -> bool:
    """Whether argument number `place` of a function is called `generator`."""
    return list(signature_of(sample).parameters)[place : place + 1] == ["generator"]


def taking_generator(sample: Callable[..., Any], place: int) -> Callable[..., Any]:
    """The function; if its argument number `place` is called `generator`, tensors come with a torch.Generator there."""
    if not takes_generator(sample, place):
        return sample

    @wraps(sample)
    def call(*arguments: Any) -> Any:
        generator = torch_generator(arguments[place], arguments[0])
        return sample(*arguments[:place], generator, *arguments[place + 1 :])

    return call


def torch_generator(rng: Any, x: Any) -> Any:
    """A torch.Generator seeded from rng, on the device of x, a tensor or a tree of tensors; rng itself for other x."""
    while isinstance(x, (dict, list, tuple)):
        x = next(iter(x.values() if isinstance(x, dict) else x))
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        return rng
    return torch.Generator(x.device).manual_seed(int(rng.integers(2**63)))
