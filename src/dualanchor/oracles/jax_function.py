"""A user's JAX function as it is compiled: its arguments, its errors, batches of any size. Imported on demand."""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dualanchor.core.errors import OracleError
from dualanchor.core.types import Array

_LIBRARIES = (  # the folders of code that is not the user's
    os.path.dirname(str(jax.__file__)),
    os.path.dirname(str(np.__file__)),
    os.path.dirname(os.path.dirname(__file__)),
)
_NOT_CONCRETE = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)  # a traced value was used as a number


class Varying(NamedTuple):
    """A batch size that is known only when compiled code runs; below 2**bits."""

    value: Any
    bits: int


class ByIdentity:
    """A wrapper that compares values by identity, so that any value can be part of a key."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def hashed(value: Any) -> Any:
    """The value if it can be hashed; else a value that can and stands for it in a key."""
    try:
        hash(value)
    except TypeError:
        return tuple(map(hashed, value)) if isinstance(value, (list, tuple)) else ByIdentity(value)
    return value


def unwrapped(value: Any) -> Any:
    """The value that `hashed` got."""
    return value.value if isinstance(value, ByIdentity) else value


NUMBER = ByIdentity(None)
"""Stands for a number in the arguments of a function, which is passed when it is called."""


@dataclass(frozen=True)
class Function:
    """The part of a sampler that is compiled: all but the numbers in `args` and the noise. Points are flat, (d,)."""

    sample: Any  # as `hashed` returns it
    name: str
    form: Any  # its split(flat) is the point that `sample` takes; None for flat points
    structure: Any  # of args, as JAX describes it
    leaves: tuple[Any, ...]  # of args, as `hashed` returns them, with NUMBER in place of each number
    any_size: bool = False  # whether n may be a traced number
    traced: str = ""  # stands for what tracing `sample` has found, also outside of its arguments

    def mean_at(self, x: Array, n: Any, source: Any, numbers: list[Any]) -> Array:
        """The mean of n samples at one point (d,), with randomness from `source`; raises OracleErrors."""
        remaining = iter(numbers)
        args = self.structure.unflatten(
            [next(remaining) if leaf is NUMBER else unwrapped(leaf) for leaf in self.leaves]
        )
        point = x if self.form is None else self.form.split(x)
        try:
            value = unwrapped(self.sample)(point, n, source, *args)
        except Exception as error:
            raise self._error(error) from error
        parts, structure = jax.tree.flatten(value)
        point_parts, point_structure = jax.tree.flatten(point)
        if structure != point_structure and len(parts) != 1 == len(point_parts):
            wanted = f"x of shape {point.shape}" if isinstance(point, jax.Array) else f"{point_structure}"
            raise self._misshapen("None" if value is None else f"{structure}", f"{wanted} and n = {n}")
        flat = [self._part(part, like, n) for part, like in zip(parts, point_parts, strict=True)]
        return jnp.concatenate(flat) if len(flat) > 1 else flat[0]

    def _part(self, value: Any, like: Array, n: Any) -> Array:
        """One array that the user's function returned, checked, averaged over samples if there are n, and flat."""
        if isinstance(value, np.ndarray):  # so it does not depend on x
            rule, remedy = f"{self.name} must return an array of the library of x", "Compute with jax.numpy"
            raise OracleError(rule, "a NumPy array, which does not depend on x", remedy)
        shape, dtype = jnp.shape(value), jnp.result_type(value)
        if not jnp.issubdtype(dtype, jnp.floating) and not jnp.issubdtype(dtype, jnp.integer):
            raise OracleError(f"{self.name} must return real numbers", f"dtype {dtype}", "Return a float array")
        if isinstance(n, int) and shape == (n, *like.shape):
            value = jnp.mean(value, axis=0)
        elif shape != like.shape:
            raise self._misshapen(f"shape {shape}", f"x of shape {like.shape} and n = {n}")
        return jnp.asarray(value, like.dtype).reshape(-1)

    def _misshapen(self, received: str, wanted: str) -> OracleError:
        rule = f"{self.name} must return the mean of n samples, of the shape of x, or n samples"
        return OracleError(rule, f"{received} for {wanted}", "Return the mean over the samples")

    def _error(self, error: Exception) -> OracleError:
        if isinstance(error, OracleError):
            return error
        received = f"{type(error).__name__} in {_line(error)}"
        if wants_generator(error):
            rule = f"{self.name} gets a JAX key as third argument, not a Generator"
            remedy = "Draw with jax.random, for instance jax.random.normal(key, x.shape)"
            return OracleError(rule, f"{received}: {error}", remedy)
        if isinstance(error, _NOT_CONCRETE):
            rule = f"{self.name} must be traceable by JAX, which compiles it: values are not known while it does"
            remedy = "Use jax.numpy and jax.lax there in place of NumPy, float(), int() and if"
            return OracleError(rule, received, remedy)
        remedy = f"Fix {self.name}; the error it raised is shown above"
        return OracleError(f"{self.name} must not raise", f"{received}: {error}", remedy)

    def is_outside(self, error: OracleError) -> bool:
        """Whether the error is of other code that cannot be traced, such as a prox; steps are then not compiled."""
        return isinstance(error.__cause__, _NOT_CONCRETE) and not error.parts[0].startswith(self.name)

    def rows(self, x: Array, n: Any, source: Any, position: Any, data: Any) -> Array:
        """The means for all rows of x (rows, d); row i has its randomness from source[i] at position[i]."""
        if isinstance(n, Varying):
            if not self.any_size:
                return self._in_powers(x, n, source, position, data)
            n = jnp.asarray(n.value, x.dtype)
        numbers, noise = data

        def one(x: Array, source: Any, position: Any) -> Array:
            if noise is None:
                return self.mean_at(x, n, jax.random.fold_in(source, position), numbers)
            return self.mean_at(x, n, jax.tree.map(lambda leaf: leaf[source, position], noise), numbers)

        if len(x) == 1:  # without vmap, under which both branches of a `cond` are computed
            return one(x[0], source[0], position[0])[None]
        return jax.vmap(one)(x, source, position)

    def _in_powers(self, x: Array, n: Varying, source: Any, position: Any, data: Any) -> Array:
        """For a function that needs n as a shape: batches of 1, 2, 4, .. by the binary digits of n."""
        total = jnp.zeros_like(x)
        for digit in range(n.bits):
            size = 1 << digit
            digit_source = source
            if data[1] is None:  # keys, not noise
                digit_source = jax.vmap(lambda key, digit=digit: jax.random.fold_in(key, digit))(source)

            def part(size: int = size, source: Any = digit_source) -> Array:
                return size * self.rows(x, size, source, position, data)

            total += jax.lax.cond((n.value >> digit) & 1, part, lambda: jnp.zeros_like(x))
        return total / n.value


def mean_of_each(sample: Any, x: Any, n: Any, key: Any, *args: Any) -> Any:
    """The mean of n calls of `sample(x, key)`, each with its own key; n may be traced."""

    def add(i: Any, total: Any) -> Any:
        return jax.tree.map(jnp.add, total, sample(x, jax.random.fold_in(key, i), *args))

    first = sample(x, jax.random.fold_in(key, 0), *args)
    start = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf, float)), first)
    total = jax.lax.fori_loop(1, jnp.asarray(n, int), add, start)
    return jax.tree.map(lambda leaf: leaf / n, total)


def wants_generator(error: BaseException) -> bool:
    """Whether an error is that of a function that called a method of a Generator on its JAX key."""
    return isinstance(error, AttributeError) and error.name is not None and hasattr(np.random.Generator, error.name)


def _line(error: Exception) -> str:
    """The line of the user's code that raised an error."""
    frames = traceback.extract_tb(error.__traceback__)
    *_, last = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames
    return f"{os.path.basename(last.filename)}, line {last.lineno}: {last.line}"
