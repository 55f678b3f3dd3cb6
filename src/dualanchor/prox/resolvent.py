"""The base class of every prox, and the parameters of one."""

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, CapabilityError
from dualanchor.core.problem import as_reals
from dualanchor.core.types import Array

_SHOWN = 6  # entries up to which a repr shows the values of an array


class Resolvent(ABC):
    r"""A resolvent :math:`J = (I + \alpha G)^{-1}` of a maximal monotone G, called as `prox(z, step)`.

    For :math:`G = \partial g` it is the proximal map :math:`\arg\min_x g(x) + \|x - z\|^2/(2\alpha)`, for a set the
    projection. A subclass is a frozen dataclass of its parameters that defines `apply`.

    Attributes
    ----------
    is_projection : bool, whether J is the projection onto a convex set, which does not depend on the step
    rowwise : bool, whether a row's value has the same bits whatever the other rows are
    size : int or None, the number of coordinates if the parameters fix it
    """

    is_projection: bool = False
    rowwise: bool = False
    size: int | None = None

    @abstractmethod
    def apply(self, z: Array, step: Any) -> Array:
        """J(z) for floats z (..., d), newly allocated with the same shape and dtype; step is a number or (..., 1)."""

    def __call__(self, z: Any, step: Any = 1.0) -> Array:
        """J(z) for each row: z of shape (..., d) gives an array of the same shape and, for floats, the same dtype."""
        if arrays.is_foreign(z):
            return arrays.like(self(arrays.to_host(z), arrays.to_host(step)), z)  # computed on the host
        points: Any = np.asarray(z)
        if points.dtype.kind != "f" and (points := as_reals(z)) is None:
            raise ArgumentTypeError(f"{self}: points must be real numbers", repr(z)[:80], "Pass floats")
        if points.ndim == 0 or (self.size is not None and points.shape[-1] != self.size):
            rule = f"{self}: points must have shape (..., {'d' if self.size is None else self.size})"
            raise ArgumentError(rule, f"shape {points.shape}", "Check the sizes")
        return self.apply(points, step)

    def diameter(self, dimension: int) -> float | None:
        """The largest distance between two points of the set in this dimension; None if infinite or unknown."""
        return None

    def support(self, y: Any) -> Any:
        r"""The support function :math:`\sup_{s \in C} \langle y, s\rangle` of a bounded set C, for rows y (..., d)."""
        rule, remedy = "a support function needs a bounded set", "Use a box, ball or simplex, or a product of them"
        raise CapabilityError(rule, self, remedy)

    def blocks_of(self, dimension: int) -> list[tuple[slice, Any]]:
        """The prox of each block of coordinates, in order; a single block unless this is a product."""
        return [(slice(0, dimension), self)]

    def contains(self, x: Any, tol: float = 1e-9) -> Any:
        """Whether x, or each row of it, is in the set: at a distance of at most `tol`, relative to 1 + |x|."""
        if not self.is_projection:
            rule = "contains needs a projection onto a set"
            raise CapabilityError(rule, self, "Compare x with prox(x, step) in your own way")
        x = np.asarray(x)
        is_near = np.linalg.norm(x - self(x), axis=-1) <= tol * (1 + np.linalg.norm(x, axis=-1))
        return bool(is_near) if is_near.ndim == 0 else is_near

    def describe(self) -> dict[str, Any]:
        """What distinguishes this prox from others, as plain values; functions by name only."""
        return {"type": type(self).__name__, **{name: _described(value) for name, value in self._parameters().items()}}

    def __repr__(self) -> str:
        shown = [f"{name}={_shown(value)}" for name, value in self._parameters().items() if value is not False]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _parameters(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def _set(self, **values: Any) -> None:
        vars(self).update(values)

    def _set_parameters(self, *names: str, finite: bool = False) -> None:
        """Check the parameters with these names, numbers or arrays of shape (d,); d becomes `size`."""
        owner = type(self).__name__
        values = {name: as_parameter(getattr(self, name), f"{owner}: {name}", finite=finite) for name in names}
        sizes = sorted({value.size for value in values.values() if np.ndim(value)})
        if len(sizes) > 1:
            rule = f"{owner}: {' and '.join(names)} must have one length"
            raise ArgumentError(rule, " and ".join(map(str, sizes)), "Check the sizes")
        self._set(**values, size=sizes[0] if sizes else None)


def as_parameter(value: Any, name: str, *, finite: bool = False, shape: str = "(d,)") -> Any:
    """A parameter, checked: a read-only array of this shape, "(d,)" or "(m, d)"; for "(d,)" also a number, a float."""
    array = as_reals(value)
    is_vector = shape == "(d,)"
    a_number_or = "a number or " if is_vector else ""
    if array is None or np.asarray(value).dtype == bool:
        raise ArgumentTypeError(f"{name} must be {a_number_or}an array of numbers", repr(value), "Pass floats")
    if array.size == 0 or not (array.ndim <= 1 if is_vector else array.ndim == 2):
        rule = f"{name} must be {a_number_or}an array of shape {shape}"
        raise ArgumentError(rule, f"shape {array.shape}", "Reshape it")
    if np.isnan(array).any() or (finite and not np.isfinite(array).all()):
        raise ArgumentError(f"{name} must be {'finite' if finite else 'numbers'}", value, "Leave no entry undefined")
    return float(array) if array.ndim == 0 else read_only(array)


def read_only(array: Array) -> Array:
    """A read-only copy in double precision."""
    array = array.astype(np.float64)
    array.flags.writeable = False
    return array


def like(parameter: Any, z: Array) -> Any:
    """The parameter in the precision of z."""
    return parameter.astype(z.dtype, copy=False) if isinstance(parameter, np.ndarray) else parameter


def _described(value: Any) -> Any:
    """A parameter as plain values."""
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "data": hashlib.sha256(value.tobytes()).hexdigest()[:16]}
    if isinstance(value, tuple):
        return [_described(item) for item in value]
    return value.describe() if isinstance(value, Resolvent) else name_of(value) if callable(value) else value


def _shown(value: Any) -> str:
    """A parameter in a repr."""
    if isinstance(value, np.ndarray):
        return str(value.tolist()) if value.size <= _SHOWN else f"array of shape {value.shape}"
    if isinstance(value, tuple):
        return "[" + ", ".join(f"({_shown(size)}, {_shown(prox)})" for size, prox in value) + "]"
    if isinstance(value, float):
        return f"{value:.6g}"
    return name_of(value) if callable(value) and not isinstance(value, Resolvent) else repr(value)


def name_of(function: Any) -> str:
    """A function's name, which is the same in every process."""
    return getattr(function, "__qualname__", type(function).__name__)
