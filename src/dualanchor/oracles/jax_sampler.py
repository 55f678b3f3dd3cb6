"""A user's sampler written in JAX, with randomness from a key; runs with it are compiled. Imported on demand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentTypeError, OracleError
from dualanchor.core.oracle import Batch, Oracle
from dualanchor.core.streams import Streams, per_row
from dualanchor.core.types import Array
from dualanchor.oracles.jax_function import NUMBER, Function, Varying, hashed, unwrapped, wants_generator

_WORD = (1 << 32) - 1  # the bits of a seed that JAX takes
_FEW, _MANY = 4, 32  # values of a table that are computed in one call, at most: two choices, since each is compiled
_HELD = 1 << 21  # numbers in the values of one call, at most


@partial(jax.jit, static_argnames=("function", "size"))
def _means(function: Function, size: Any, x: Any, n: Any, source: Any, position: Any, data: Any) -> Any:
    return function.rows(x, size if n is None else Varying(n, 0), source, position, data)


@dataclass(frozen=True)
class OracleTemplate:
    """An oracle without the data of its sampler. Templates with the same key (see `key_of`) share compiled code."""

    key: Any
    oracle: Oracle = field(compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "oracle", self.with_data(None))

    def with_data(self, data: Any) -> Oracle:
        """The oracle with these numbers and noise."""
        return rebuilt(self.oracle, sampler_of(self.oracle).with_data(data))


@partial(jax.jit, static_argnames=("template", "size"))
def _values(
    template: OracleTemplate, size: Any, x: Any, n: Any, source: Any, rows: Any, position: Any, count: Any, data: Any
) -> Any:
    """The first `count` values of a table, in an array like x.

    They are computed one by one, as in a run. XLA would divide the work on many rows at once among the cores, which
    for short rows takes longer than the work.
    """
    oracle = template.with_data(data)
    batch_size: Any = size if n is None else Varying(n, 0)

    def add(i: Any, values: Any) -> Any:
        batch = Batch(batch_size, (source[rows[i]][None], position[i][None]))
        return values.at[i].set(oracle.mean(x[i][None], batch)[0])

    return jax.lax.fori_loop(0, count, add, jnp.zeros_like(x))


@partial(jax.jit, static_argnames=("operator", "form"))
def _true_values(operator: Any, form: Any, x: Any) -> Any:
    function = Function(lambda x, n, key: operator(x), "operator", form, jax.tree.structure(()), ())
    return jax.vmap(lambda x: function.mean_at(x, 1, None, []))(x)


def sampler_of(oracle: Oracle) -> JaxSampler:
    """The sampler within a traceable oracle."""
    while oracle.inner is not None:
        oracle = oracle.inner
    assert isinstance(oracle, JaxSampler)
    return oracle


def rebuilt(oracle: Oracle, sampler: JaxSampler) -> Oracle:
    """The same oracle around another sampler."""
    return sampler if oracle.inner is None else oracle.with_inner(rebuilt(oracle.inner, sampler))


def key_of(oracle: Oracle) -> Any:
    """A key for the parts of an oracle that compiled code depends on."""
    if isinstance(oracle, JaxSampler):
        return oracle.function
    attributes = sorted((name, hashed(value)) for name, value in vars(oracle).items() if name != "inner")
    assert oracle.inner is not None
    return type(oracle), tuple(attributes), key_of(oracle.inner)


class JaxSampler(Oracle):
    """Samples of F from a function written in JAX: `sample(x, n, key, *args)`, the mean of n samples, or all of them.

    Runs with it are compiled. The key of a batch is that of (seed, purpose, replication), folded with the number of the
    batch, so the same samples can be evaluated at another point.

    Parameters
    ----------
    sample : callable
        A pure function of JAX arrays. n is a traced number of x's dtype if the function accepts that, else an int.
    x0 : array (d,), a point at which the function is traced to check it
    form : object, optional; its `split(flat)` is the point that `sample` takes
    args : tuple, passed to `sample`; compiled code does not depend on the values of arrays and floats in it
    noise : pytree of arrays, optional; instead of a key, `sample` gets entry (replication, batch) of each array
    operator : callable, optional; the true F(x) if it is known
    name : str, what error messages call the function
    """

    traceable = tables = True

    def __init__(
        self, sample: Callable[..., Any], x0: Array, *, form: Any = None, args: tuple[Any, ...] = (), noise: Any = None,
        operator: Callable[[Any], Any] | None = None, name: str = "JaxSampler: sample",
    ) -> None:  # fmt: skip
        check.function(sample, name, f"(x, n, key{', *args' if args else ''})", 3 + len(args))
        x0 = jnp.asarray(x0)
        if x0.dtype.itemsize < 4:
            rule = f"{name.partition(':')[0]}: a start in JAX must be in single or double precision"
            raise ArgumentTypeError(rule, f"dtype {x0.dtype}", "Pass x0.astype(jnp.float32)")
        leaves, structure = jax.tree.flatten(tuple(args))
        self.data = [_strong(leaf) for leaf in leaves if _is_number(leaf)], noise
        self.knows_operator = operator is not None
        self._operator = operator
        fixed = tuple(NUMBER if _is_number(leaf) else hashed(leaf) for leaf in leaves)
        self.function = Function(hashed(sample), name, form, structure, fixed)
        traced = self._traced(x0)
        self.function = replace(self.function, any_size=self._takes_any_size(x0), traced=traced)

    def with_data(self, data: Any) -> JaxSampler:
        """The same sampler with another `data`: the numbers in `args`, and the noise."""
        other = copy(self)
        other.data = data
        return other

    def source(self, streams: Any) -> Any:
        """Where the samples of each row come from, (rows,): its key, or the index of its noise."""
        if isinstance(streams, TracedStreams):
            return streams.source
        if self.data[1] is not None:
            return jnp.asarray(streams.replications)
        return _keys(streams.seed, int(streams.purpose), streams.replications.tobytes())

    def draw(self, streams: Streams, size: Any) -> Batch:
        position = streams.position
        streams.position = position + 1
        self.require_noise(streams.position)
        return Batch(size, (self.source(streams), position))

    def require_noise(self, position: Any) -> None:
        """Raise if the noise ends before this number of batches, (rows,) or for all rows; JAX would repeat its end."""
        batches = min((leaf.shape[1] for leaf in jax.tree.leaves(self.data[1])), default=None)
        if batches is not None and not isinstance(position, jax.core.Tracer) and np.max(position) > batches:
            rule = f"{self.function.name}: noise must have an entry for each batch"
            raise OracleError(rule, f"noise for {batches} batches, in a longer run", "Pass more, or a smaller budget")

    def mean(self, x: Array, batch: Batch) -> Array:
        source, position = batch.data
        if isinstance(x, jax.core.Tracer):
            return self.function.rows(x, batch.size, source, position, self.data)
        positions = np.asarray(per_row(position, len(x)), np.int32)
        size, n = self._size(batch, x.dtype)
        return _means(self.function, size, jnp.asarray(x), n, source, positions, self.data)

    def _size(self, batch: Batch, dtype: Any) -> tuple[Any, Any]:
        """The batch size as a static and a traced argument of compiled code; one of them is None."""
        return (None, np.asarray(batch.size, dtype)) if self.function.any_size else (batch.size, None)

    def operator(self, x: Array) -> Array | None:
        return None if self._operator is None else _true_values(self._operator, self.function.form, jnp.asarray(x))

    def table(self, points: Sequence[Array], batches: Sequence[Batch], outer: Oracle | None = None) -> Array | None:
        rows, d = points[0].shape
        count = len(points) * len(batches) * rows
        most = _FEW if count <= 2 * _FEW else _MANY
        if count == 1 or most * d > _HELD:
            return None
        x = np.concatenate([arrays.to_host(point) for point in points])
        positions = np.empty((len(batches), rows), np.int32)
        for i, drawn in enumerate(batches):
            positions[i] = drawn.data[1]
        entries = np.zeros((3, -(-count // most) * most), int)
        entries[:, :count] = np.indices((len(points), len(batches), rows)).reshape(3, -1)
        size, n = self._size(batches[0], x.dtype)
        source = batches[0].data[0]
        oracle = outer or self
        template = OracleTemplate(key_of(oracle), oracle)
        values = np.empty((count, d), x.dtype)
        for start in range(0, count, most):
            point, batch, row = entries[:, start : start + most]
            length = min(most, count - start)
            arguments = x[point * rows + row], n, source, row, positions[batch, row], length, self.data
            try:
                values[start : start + length] = np.asarray(_values(template, size, *arguments))[:length]
            except OracleError as error:
                if self.function.is_outside(error):
                    return None
                raise
        return values.reshape(len(points), len(batches), rows, d)

    def is_noiseless(self, x: Array, streams: Any) -> bool:
        """Whether no random numbers are in the value of a sample, from its key or from one that it makes itself."""
        from jax.interpreters.partial_eval import dce_jaxpr

        numbers, noise = self.data
        if noise is not None:
            return False
        traced = jax.make_jaxpr(lambda key: self.function.mean_at(jnp.asarray(x)[0], 2, key, numbers))(
            jax.random.key(0)
        )
        needed, is_used = dce_jaxpr(traced.jaxpr, [True])
        return not any(is_used) and "random_bits[" not in str(needed)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "args": len(self.function.leaves)}

    def __repr__(self) -> str:
        sample = unwrapped(self.function.sample)
        return f"JaxSampler({getattr(sample, '__name__', type(sample).__name__)})"

    def _trial_source(self) -> Any:
        """A key, or noise, with which the function can be traced."""
        noise = self.data[1]
        if noise is None:
            return jax.random.key(0)
        return jax.tree.map(lambda leaf: jnp.empty(leaf.shape[2:], jnp.result_type(leaf)), noise)

    def _traced(self, x: Array) -> str:
        """A digest of the traced program with its constants; raises unless tracing twice gives the same.

        It is a part of the key of compiled code: what a function reads from outside of its arguments may change.
        """
        source, numbers = self._trial_source(), self.data[0]
        first, second = (  # two lambdas: JAX caches what it has traced
            jax.make_jaxpr(lambda *arguments: self.function.mean_at(arguments[0], 2, *arguments[1:]))(
                x, source, numbers
            )
            for _ in range(2)
        )
        texts = [re.sub(r"0x[0-9a-f]+", "", str(program)) for program in (first, second)]
        constants = [list(_constants(program)) for program in (first, second)]
        pairs = zip(*constants, strict=True) if texts[0] == texts[1] else [(0, 1)]
        if not all(one is other or np.array_equal(_plain(one), _plain(other)) for one, other in pairs):
            rule = f"{self.function.name} must be a pure function: all randomness must come from the key"
            received = "one that was different when it was traced again"
            raise OracleError(rule, received, "Draw with jax.random from the key, not with NumPy or random")
        digest = blake2b(texts[0].encode())
        for constant in constants[0]:
            digest.update(np.ascontiguousarray(_plain(constant)).tobytes())
        return digest.hexdigest()

    def _takes_any_size(self, x: Array) -> bool:
        """Whether the function can be traced with n as a traced number."""
        try:
            traced = partial(self.function.mean_at, x, numbers=self.data[0])
            jax.eval_shape(traced, jnp.ones([], x.dtype), self._trial_source())
        except Exception:  # of any kind: the function is then called with ints
            return False
        return True


@dataclass
class TracedStreams:
    """The streams of all rows within compiled code: the sources of samples, and the positions, both (rows,)."""

    source: Any
    position: Any


@lru_cache(maxsize=64)
def _keys(seed: int, purpose: int, replications: bytes) -> Any:
    """The keys of rows, (rows,)."""
    key = jax.random.key(seed & _WORD)
    for shift in range(32, seed.bit_length(), 32):  # a seed of any length, a word at a time
        key = jax.random.fold_in(key, seed >> shift & _WORD)
    rows = jnp.asarray(np.frombuffer(replications, np.int64).astype(np.uint32))
    return jax.vmap(partial(jax.random.fold_in, jax.random.fold_in(key, purpose)))(rows)


def keyed(sample: Any, x0: Array, *, form: Any, args: tuple[Any, ...], name: str) -> JaxSampler | None:
    """The oracle of a function that draws from a JAX key; None for one that draws from a NumPy Generator."""
    try:
        return JaxSampler(sample, x0, form=form, args=args, name=name)
    except OracleError as error:
        cause, x = error.__cause__, x0 if form is None else form.split(x0)
        if cause is None or _runs(sample, x, jax.random.key(0), args):
            raise
        if wants_generator(cause) or _runs(sample, x, np.random.default_rng(0), args):
            return None
        raise


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.floating, float))


def _constants(program: Any) -> Iterator[Any]:
    """The constants of a traced program, and of the programs within it, such as those of functions under `jax.jit`."""
    yield from getattr(program, "consts", ())
    for equation in program.eqns:
        for value in equation.params.values():
            for part in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(part, "eqns"):
                    yield from _constants(part)


def _plain(constant: Any) -> Array:
    """A constant of a traced program as a NumPy array."""
    keys = isinstance(constant, jax.Array) and jnp.issubdtype(constant.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(constant) if keys else constant)


def _strong(value: Any) -> Any:
    """An array that is not weakly typed, so that compiled code can be reused for all arrays of its shape and dtype."""
    return jnp.asarray(value, jax.dtypes.canonicalize_dtype(value.dtype)) if hasattr(value, "dtype") else value


def _runs(sample: Any, x: Any, source: Any, args: tuple[Any, ...]) -> bool:
    try:
        sample(x, 1, source, *args)
    except Exception:
        return False
    return True
