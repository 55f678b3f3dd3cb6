"""A user's function in JAX as it is compiled: its arguments, its errors, batches of any size. Imported on demand."""

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

_LIBRARIES = (*(os.path.dirname(str(one.__file__)) for one in (jax, np)), os.path.dirname(os.path.dirname(__file__)))
_NOT_CONCRETE = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)


class Varying(NamedTuple):
    """A batch size that compiled code finds out when it runs; below 2**bits."""

    value: Any
    bits: int


class Same:
    """A value that equals nothing but itself, so that anything can be part of a key."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def hashed(value: Any) -> Any:
    """The value, or what stands for it, as part of a key."""
    try:
        hash(value)
    except TypeError:
        return tuple(map(hashed, value)) if isinstance(value, (list, tuple)) else Same(value)
    return value


@dataclass(frozen=True)
class Function:
    """What of a sampler is compiled in: everything but the numbers in `args` and the noise. Points are flat, (d,)."""

    sample: Any
    name: str
    form: Any  # with split(flat), the point as the user has it; None for flat points
    places: Any  # the structure of args
    fixed: tuple[Any, ...]  # its leaves, Same(None) in the place of those that are numbers
    any_size: bool = False  # whether n may be a traced number

    def one(self, x: Array, n: Any, source: Any, numbers: list[Any]) -> Array:
        """The mean of n samples at one point (d,); errors are those of the user's function."""
        given = iter(numbers)
        args = self.places.unflatten([next(given) if type(leaf) is Same else leaf for leaf in self.fixed])
        point = x if self.form is None else self.form.split(x)
        try:
            value = self.sample(point, n, source, *args)
        except Exception as error:
            raise self._error(error) from error
        found, wanted = jax.tree.flatten(value), jax.tree.flatten(point)
        if found[1] != wanted[1] and len(found[0]) != 1 == len(wanted[0]):
            raise self._misshapen("None" if value is None else f"{found[1]}", f"{wanted[1]}")
        parts = [self._part(*both, n) for both in zip(found[0], wanted[0], strict=True)]
        return jnp.concatenate(parts) if len(parts) > 1 else parts[0]

    def _part(self, value: Any, like: Array, n: Any) -> Array:
        if isinstance(value, np.ndarray):  # it cannot depend on x
            rule, remedy = f"{self.name} must return an array of the library of x", "Compute with jax.numpy"
            raise OracleError(rule, f"ndarray for x of type {type(like).__name__}", remedy)
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
            rule = f"{self.name} must be traceable by JAX, which compiles it: its values are not known then"
            remedy = "Use jax.numpy and jax.lax there in place of NumPy, float(), int() and if"
            return OracleError(rule, received, remedy)
        remedy = f"Fix {self.name}; the error it raised is shown above"
        return OracleError(f"{self.name} must not raise", f"{received}: {error}", remedy)

    def is_outside(self, error: OracleError) -> bool:
        """Whether something around the function cannot be traced, such as a prox: it is then called step by step."""
        return isinstance(error.__cause__, _NOT_CONCRETE) and not error.parts[0].startswith(self.name)

    def rows(self, x: Array, n: Any, source: Any, position: Any, data: Any) -> Array:
        """The means for all rows of x (rows, d), from row i of `source` at position i."""
        if isinstance(n, Varying):
            if not self.any_size:
                return self._in_powers(x, n, source, position, data)
            n = jnp.asarray(n.value, x.dtype)
        numbers, noise = data

        def one(x: Array, source: Any, position: Any) -> Array:
            if noise is None:
                return self.one(x, n, jax.random.fold_in(source, position), numbers)
            return self.one(x, n, jax.tree.map(lambda leaf: leaf[source, position], noise), numbers)

        if len(x) == 1:  # under vmap both branches of a cond are computed
            return one(x[0], source[0], position[0])[None]
        return jax.vmap(one)(x, source, position)

    def _in_powers(self, x: Array, n: Varying, source: Any, position: Any, data: Any) -> Array:
        """For a function that needs n as a shape: n samples as 1, 2, 4, .. of them, as the digits of n say."""
        total = jnp.zeros_like(x)
        for digit in range(n.bits):
            size = 1 << digit
            own = (
                source
                if data[1] is not None
                else jax.vmap(lambda key, digit=digit: jax.random.fold_in(key, digit))(source)
            )

            def part(size: int = size, own: Any = own) -> Array:
                return size * self.rows(x, size, own, position, data)

            total += jax.lax.cond((n.value >> digit) & 1, part, lambda: jnp.zeros_like(x))
        return total / n.value


def mean_of_each(sample: Any, x: Any, n: Any, key: Any, *args: Any) -> Any:
    """The mean of n calls of `sample(x, key)`, each with a key of its own; n may be traced."""

    def add(i: Any, total: Any) -> Any:
        return jax.tree.map(jnp.add, total, sample(x, jax.random.fold_in(key, i), *args))

    start = jax.tree.map(
        lambda one: jnp.asarray(one, jnp.result_type(one, float)), sample(x, jax.random.fold_in(key, 0), *args)
    )
    total = jax.lax.fori_loop(1, jnp.asarray(n, int), add, start)
    return jax.tree.map(lambda one: one / n, total)


def wants_generator(error: BaseException) -> bool:
    """Whether an error is that of a function which took a key for a Generator."""
    return isinstance(error, AttributeError) and error.name is not None and hasattr(np.random.Generator, error.name)


def _line(error: Exception) -> str:
    """The line of the user's code that an error comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not one.filename.startswith(_LIBRARIES)] or frames
    return f"{os.path.basename(own[-1].filename)}, line {own[-1].lineno}: {own[-1].line}"
