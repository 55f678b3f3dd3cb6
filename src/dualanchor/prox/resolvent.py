"""What every prox here can do, and how its parameters are read."""

from __future__ import annotations

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dualanchor.core.arrays import is_foreign
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, CapabilityError
from dualanchor.core.types import Array

_SHOWN = 6  # numbers of an array that a repr writes out


class Resolvent(ABC):
    r"""A resolvent :math:`J = (I + \alpha G)^{-1}` of a maximal monotone G, called as `prox(z, step)`.

    For a closed convex function g and :math:`G = \partial g` it is the proximal map
    :math:`J(z) = \arg\min_x g(x) + \|x - z\|^2/(2\alpha)`; for a set it is the projection, whatever the step.
    A subclass is a frozen dataclass of its parameters with the method `apply`.

    Attributes
    ----------
    is_projection : bool
        Whether J is the projection onto a convex set, so that the step does not matter.
    rowwise : bool
        Whether a row's value is the same to the last bit whatever rows are beside it.
    size : int or None
        The number of coordinates that the parameters are for; None if they are for any number.
    """

    is_projection: bool = False
    rowwise: bool = False
    size: int | None = None

    @abstractmethod
    def apply(self, z: Array, step: Any) -> Array:
        """J(z) for floats z of shape (..., d), in a new array of the same shape and dtype."""

    def __call__(self, z: Any, step: Any = 1.0) -> Array:
        """J(z) for each row: z of shape (..., d) gives an array of the same shape and, for floats, the same dtype."""
        if is_foreign(z):
            raise ArgumentTypeError(
                f"{self} works with NumPy arrays",
                f"points of type {type(z).__name__}",
                "Pass a function prox(z, step) that works with theirs",
            )
        z = np.asarray(z)
        if z.dtype.kind != "f":
            z = z.astype(np.float64)
        if z.ndim == 0 or (self.size is not None and z.shape[-1] != self.size):
            wanted = "..., d" if self.size is None else f"..., {self.size}"
            raise ArgumentError(f"{self}: points must have shape ({wanted})", f"shape {z.shape}", "Check the sizes")
        return self.apply(z, step)

    def diameter(self, dimension: int) -> float | None:
        """The largest distance between two points of the set in so many dimensions; None if infinite or not known."""
        return None

    def contains(self, x: Any, tol: float = 1e-9) -> Any:
        """Whether x, or each row of it, is in the set: within `tol` of it, relative to 1 + |x|."""
        if not self.is_projection:
            raise CapabilityError(
                "contains needs a projection onto a set", self, "Compare x with prox(x, step) in your own way"
            )
        x = np.asarray(x)
        inside = np.linalg.norm(x - self(x), axis=-1) <= tol * (1 + np.linalg.norm(x, axis=-1))
        return bool(inside) if inside.ndim == 0 else inside

    def describe(self) -> dict[str, Any]:
        """What tells this prox from another, as far as it can be seen; a function's inside cannot."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {"type": type(self).__name__, **{name: _described(value) for name, value in values.items()}}

    def __repr__(self) -> str:
        shown = [
            f"{field.name}={_shown(getattr(self, field.name))}"
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if getattr(self, field.name) is not field.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def as_parameter(value: Any, name: str) -> Any:
    """A Python float for a single number, or a read-only copy of an array of shape (d,)."""
    try:
        array = np.array(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "fiu" or isinstance(value, bool):
        raise ArgumentTypeError(f"{name} must be a number or an array of numbers", _kind(value, array), "Pass floats")
    if array.ndim == 0:
        return float(array)
    if array.ndim != 1 or array.size == 0:
        raise ArgumentError(f"{name} must be a number or an array of shape (d,)", f"shape {array.shape}", "Reshape it")
    if np.isnan(array).any():
        raise ArgumentError(f"{name} must be numbers", "nan", "Leave no entry undefined")
    array = array.astype(np.float64)
    array.flags.writeable = False
    return array


def require_one(value: Any, name: str, *, positive: bool = False) -> float:
    """One finite number that is not negative, or positive."""
    number = as_parameter(value, name)
    sign = "positive" if positive else "non-negative"
    if np.ndim(number) or not np.isfinite(number) or number < 0 or (positive and number == 0):
        raise ArgumentError(f"{name} must be one {sign} finite number", value, "Use such a number")
    return float(number)


def common_size(name: str, *parameters: Any) -> int | None:
    """The length that array parameters agree on; None if all are single numbers."""
    sizes = sorted({parameter.size for parameter in parameters if np.ndim(parameter)})
    if len(sizes) > 1:
        raise ArgumentError(f"{name} must have one length", " and ".join(map(str, sizes)), "Check the sizes")
    return sizes[0] if sizes else None


def like(parameter: Any, z: Array) -> Any:
    """The parameter in the precision of z."""
    return parameter.astype(z.dtype, copy=False) if isinstance(parameter, np.ndarray) else parameter


def _kind(value: Any, array: Array) -> str:
    return f"dtype {array.dtype}" if array.dtype.kind not in "bO" else repr(value)


def _described(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "data": hashlib.sha256(value.tobytes()).hexdigest()[:16]}
    if isinstance(value, tuple):
        return [_described(one) for one in value]
    if isinstance(value, Resolvent):
        return value.describe()
    return name_of(value) if callable(value) else value


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return str(value.tolist()) if value.size <= _SHOWN else f"array of shape {value.shape}"
    if isinstance(value, tuple):
        return "[" + ", ".join(f"({_shown(size)}, {_shown(one)})" for size, one in value) + "]"
    if isinstance(value, float):
        return f"{value:.6g}"
    return name_of(value) if callable(value) and not isinstance(value, Resolvent) else repr(value)


def name_of(function: Any) -> str:
    """A function's name, without the address that differs from process to process."""
    return getattr(function, "__qualname__", type(function).__name__)
