"""Steps of any method on a sampler written in JAX, compiled: many of them in one call. Imported on demand.

`Method.step` is traced as it stands. The number of the step and the hyper-parameters are objects that compute like
numbers; where the method asks about one (`if n % 16 == 0`), the step is traced once for each answer and
`lax.cond` chooses. So what is compiled serves every step, and every method that differs in numbers only. A method that
needs more than that of its numbers (an index, a shape, the value of an array) is not compiled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dualanchor.core.errors import OracleError
from dualanchor.core.method import Method, State
from dualanchor.core.oracle import Batch, Oracle
from dualanchor.core.schedule import Constant, Paired, Schedule
from dualanchor.core.session import Session, accepted, moderate, require_numbers
from dualanchor.core.streams import per_row
from dualanchor.core.types import Array
from dualanchor.oracles.jax_function import Varying, hashed
from dualanchor.oracles.jax_sampler import Around, TracedStreams, key_of, sampler_of
from dualanchor.run.traced import Number, OpenError, each_answer

INTERVAL = 1024  # steps that are taken at once, at most
WINDOW = 4  # of the last of them it is returned what they have seen of samples


class _Sizes(Schedule):
    """Batch sizes that compiled code gets as an array, one for each step."""

    def __init__(self, size: Any) -> None:
        self._size = size

    def size(self, k: Any, horizon: Any) -> Any:
        return self._size


class _Session(Session):
    """A session within compiled code, for one step: it notes what it draws, and what it sees of the largest value.

    `values` has those of its first calls, where the step is traced once more with other answers. `always` is true, but
    the compiler does not know: what depends on it is computed once, and not again in every place that uses it.
    """

    __slots__ = ("_always", "_called", "_values", "drawn", "failed", "largest", "norm")

    def __init__(self, oracle: Oracle, streams: Any, x: Array, values: list[Array], always: Any) -> None:
        super().__init__(oracle, streams)
        self._values, self._called, self._always = values, 0, always
        self.drawn: list[Any] = []
        self.largest, self.failed = jnp.full((len(x), 2), -1.0, x.dtype), jnp.zeros(len(x), bool)
        self.norm = jnp.zeros(len(x), x.dtype)

    def draw(self, size: Any) -> Batch:
        if isinstance(size, _Sizes):  # a method that draws its batch itself
            size = size.size(None, None)
        if isinstance(size, Number):
            if not sampler_of(self.oracle).function.any_size:
                raise OpenError(size.name)
            size = Varying(size.value, 0)
        self.drawn.append(size)
        return self.oracle.draw(self.streams, size)

    def __call__(self, x: Array, batch: Batch) -> Array:
        if self._called == len(self._values):
            self._values.append(jax.lax.cond(self._always, lambda: accepted(x, self.oracle.mean(x, batch)), lambda: x))
        value = self._values[self._called]
        self._called += 1
        size = batch.size.value if isinstance(batch.size, Varying) else batch.size
        squares = jnp.vecdot(value, value)
        seen = jnp.stack([squares, jnp.full_like(squares, size)], axis=1)
        self.largest = jnp.where(squares[:, None] > self.largest[:, :1], seen, self.largest)
        before = self.failed, self.norm
        self.failed, self.norm = jax.lax.cond(
            jnp.isnan(squares).any(), lambda: _failed(x, value, *before), lambda: before
        )
        return value

    def fresh(self, x: Array, size: Any) -> Array:
        return self(x, self.draw(size))

    def at(self, rows: Any) -> Session:
        if rows.all():
            return self
        raise OpenError("rows")


def _failed(x: Array, value: Array, failed: Array, norm: Array) -> tuple[Array, Array]:
    """Which rows have seen NaN at a moderate point, and the norm of that point; farther out they diverged."""
    now = jnp.isnan(value).any(axis=1) & (jnp.abs(x).max(axis=1) < moderate(x.dtype))
    return failed | now, jnp.where(now & ~failed, jnp.linalg.norm(x, axis=1), norm)


class Form(NamedTuple):
    """A method without its numbers: its class, and for each parameter a value, or what is left open."""

    cls: type[Method]
    parameters: tuple[tuple[str, Any], ...]


_NUMBER, _ARRAY, _BATCHES = "a number", "an array", "batch sizes"


def _form(method: Method, any_size: bool, known: frozenset[str], numbers: list[Any]) -> Form:
    """The form of a method; the numbers that are left open are added to `numbers`."""
    parameters = []
    for field in dataclasses.fields(method):  # type: ignore[arg-type]
        name, value = field.name, getattr(method, field.name)
        sizes = isinstance(value, (list, tuple, Schedule)) and not isinstance(value, (Constant, Paired))
        if isinstance(value, Method):
            value = _form(value, any_size, known, numbers)
        elif isinstance(value, (np.ndarray, jax.Array)) and "" not in known:
            numbers.append(value)
            value = (_ARRAY,)
        elif name == "batch_size" and (sizes or (any_size and isinstance(value, int) and "" not in known)):
            value = (_BATCHES,)
        elif type(value) in (int, float) and name not in known and "" not in known and name != "batch_size":
            numbers.append(value)
            value = (_NUMBER,)
        parameters.append((name, hashed(value)))
    return Form(type(method), tuple(parameters))


def _method(form: Form, numbers: Iterator[Any], sizes: Any, answers: Iterator[bool]) -> Method:
    """The method of a form with traced numbers."""
    method = object.__new__(form.cls)
    for name, value in form.parameters:
        if isinstance(value, Form):
            value = _method(value, numbers, sizes, answers)
        elif value == (_NUMBER,):
            value = Number(next(numbers), answers, name)
        elif value == (_ARRAY,):
            value = next(numbers)
        elif value == (_BATCHES,):
            value = _Sizes(sizes)
        object.__setattr__(method, name, value)
    vars(method)["steps"] = None  # the driver knows how many there are
    return method


class Numbers(NamedTuple):
    """What compiled steps depend on besides the state: all of it may change without compiling anew."""

    first: Any  # the steps: first, .., last - 1
    last: Any
    source: Any  # where the samples of each row come from
    position: Any  # (rows,), of the first step
    data: Any  # arguments of the sampler
    numbers: list[Any]  # hyper-parameters
    sizes: Any  # batch sizes of the steps; empty if none is asked for


class Program:
    """Steps of the methods of one form on the oracles of one kind, compiled.

    `coin` is that of every step, for all rows. `draws` is the number of batches in a step, of which `open_draws` have
    sizes that are given from outside.
    """

    def __init__(self, form: Form, around: Around, coin: bool | None, bits: int) -> None:
        self._form, self._around, self._coin, self._bits = form, around, coin, bits
        self.draws, self.open_draws = 0, 0
        self.run = jax.jit(self._run)

    def probe(self, state: dict[str, Any], given: Numbers) -> None:
        """Trace a step, to see whether it can be compiled and how many batches it draws."""
        found = set[tuple[int, int]]()
        jax.eval_shape(lambda state, given: self._step(given.first, state, given, found), state, given)
        (self.draws, self.open_draws), *others = found
        if others or self.open_draws not in (0, self.draws):
            raise OpenError("")

    def _step(self, k: Any, state: dict[str, Any], given: Numbers, found: Any = None) -> Any:
        oracle = self._around.with_data(given.data)
        sizes = given.sizes[k - given.first] if len(given.sizes) else 0
        position = given.position + (k - given.first) * self.draws

        def one(answers: Iterator[bool], values: list[Array]) -> Any:
            size = Varying(sizes, self._bits)
            method = _method(self._form, iter(given.numbers), size, answers)
            s, x = State(**state), state["x"]
            F = _Session(oracle, TracedStreams(given.source, position), x, values, k >= 0)
            coin = None if self._coin is None else np.full(len(x), self._coin)
            method.step(Number(k, answers), s, F, coin)  # type: ignore[arg-type]
            if found is not None:
                found.add((len(F.drawn), sum(drawn is size for drawn in F.drawn)))
            after = {name: jnp.asarray(value, state[name].dtype) for name, value in vars(s).items()}
            return after, F.largest, F.failed, F.norm

        return each_answer(one)

    def _run(self, state: dict[str, Any], given: Numbers) -> Any:
        x = state["x"]

        def step(k: Any, now: Any) -> Any:
            state, largest, failed, norm = self._step(k, now[0], given)
            return state, jnp.concatenate([now[1][1:], largest[None]]), failed, norm

        seen = jnp.zeros((WINDOW, len(x), 2), x.dtype), jnp.zeros(len(x), bool), jnp.zeros(len(x), x.dtype)
        state, *seen = jax.lax.fori_loop(given.first, given.last, step, (state, *seen))
        bounded = jnp.isfinite(jnp.vecdot(state["x"], state["x"]))
        for name, value in state.items():
            if name != "x":
                bounded &= ~jnp.isnan(value.reshape(len(bounded), -1)).any(axis=1)
        return state, bounded, seen


_PROGRAMS: dict[Any, Program] = {}
_KNOWN: dict[Any, frozenset[str] | None] = {}
_MOST_PROGRAMS = 256


class Taken(NamedTuple):
    """What is known after compiled steps: `bounded` as in `ActiveRows`, None if that is not known; and `seen`.

    `seen` (steps, rows, 2) has squared norm and batch size of the largest sample in each of the last steps, or NaN.
    """

    bounded: Array | None
    seen: Array


def advance(method: Method, s: State, F: Session, first: int, count: int, coins: Array | None) -> Taken | None:
    """Take steps first, .., first + count - 1 in compiled code, in place; None if that cannot be done."""
    ends = [count] if coins is None else [*(1 + np.flatnonzero(np.diff(coins[:, :count]).any(axis=0))), count]
    bounded, seen, begin = None, list[Array](), 0
    for end in ends:  # of steps with the same coins
        coin = None if coins is None else coins[:, begin]
        if coin is None or coin.all() or not coin.any():
            taken = _advance(method, s, F, first + begin, end - begin, None if coin is None else bool(coin[0]))
            if taken is None:
                return None
            bounded, latest = taken
            seen.extend(latest)
        else:
            F.checking = True
            for k in range(first + begin, first + end):
                F.seen = None
                method.step(k, s, F, coin)
                seen.append(np.full((len(s.x), 2), np.nan) if F.seen is None else F.seen)
            bounded = None
        begin = end
    return Taken(bounded, np.array(seen[-WINDOW:]))


def _advance(method: Method, s: State, F: Session, first: int, count: int, coin: bool | None) -> Taken | None:
    state, rows, sampler, on_host = vars(s), len(s.x), sampler_of(F.oracle), isinstance(s.x, np.ndarray)
    if any(isinstance(value, np.ndarray) is not on_host for value in state.values()):
        return None
    if jax.dtypes.canonicalize_dtype(s.x.dtype) != s.x.dtype:  # doubles of NumPy, which JAX would make singles
        return None
    cost = method.cost(np.arange(first, first + count), s, None if coin is None else np.full(count, coin))
    draws, evals = (np.broadcast_to(np.asarray(one), (count,)) for one in cost)
    given = Numbers(
        first, first + count, sampler.source(F.streams), np.asarray(per_row(F.streams.position, rows), np.int32),
        sampler.data, [], np.zeros(INTERVAL, np.int32),
    )  # fmt: skip
    found = _program(method, F.oracle, coin, state, given)
    if found is None:
        return None
    program, numbers = found
    sizes = np.zeros(0, np.int32)
    if program.open_draws:
        sizes = np.zeros(INTERVAL, np.int32)
        sizes[:count] = draws // program.draws
    after, bounded, (seen, failed, norms) = program.run(state, given._replace(numbers=numbers, sizes=sizes))
    if F.checking:
        require_numbers(np.asarray(failed), np.asarray(norms), F.oracle)
    if on_host:
        after = {name: np.array(value, state[name].dtype) for name, value in after.items()}
    vars(s).update(after)
    F.draws, F.evals = F.draws + int(draws.sum()), F.evals + int(evals.sum())
    F.streams.position = F.streams.position + count * program.draws
    return Taken(np.asarray(bounded), np.asarray(seen, float)[-count:])


def _program(method: Method, oracle: Oracle, coin: bool | None, state: dict[str, Any], given: Numbers) -> Any:
    """The program for a method, and its numbers; None if it cannot be compiled."""
    key, function = key_of(oracle), sampler_of(oracle).function
    kind = _kind(method), key, coin
    known: frozenset[str] | None = _KNOWN.get(kind, frozenset())
    while known is not None:
        numbers = list[Any]()
        form = _form(method, function.any_size, known, numbers)
        bits = 0 if function.any_size else _bits(method, given)
        if (program := _PROGRAMS.get((form, key, coin, bits))) is not None:
            return program, numbers
        program = Program(form, Around(key, oracle), coin, bits)
        try:
            program.probe(state, given._replace(numbers=numbers))
        except OracleError as error:
            if not function.is_outside(error):
                raise
            known = None
        except OpenError as unknown:
            name = str(unknown.args[0])
            known = None if "" in known or name in known else known | {name}
        except Exception:  # it looks at its numbers in another way
            known = None if "" in known else known | {""}
        else:
            _KNOWN[kind] = known
            while len(_PROGRAMS) >= _MOST_PROGRAMS:
                _PROGRAMS.pop(next(iter(_PROGRAMS)))
            _PROGRAMS[form, key, coin, bits] = program
            return program, numbers
    _KNOWN[kind] = None
    return None


def _kind(method: Method) -> Any:
    """The class of a method, and of a method within it."""
    inner = [value for value in vars(method).values() if isinstance(value, Method)]
    return type(method), tuple(map(_kind, inner))


def _bits(method: Method, given: Numbers) -> int:
    """Binary digits of the largest batch, of all steps where they are known, rounded up: each number is compiled."""
    last = given.last if method.steps is None else max(given.last, method.steps)
    return -(-int(np.max(method.cost(np.arange(last)).draws)).bit_length() // 6) * 6
