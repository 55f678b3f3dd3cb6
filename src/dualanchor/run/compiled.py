"""Steps of any method on a sampler written in JAX, compiled: many of them in one call. Imported on demand.

`Method.step` is traced as it is written. The number of the step and the hyper-parameters are `Number`s, which compute
like numbers; where the method branches on one (`if n % 16 == 0`), the step is traced once for each answer and
`lax.cond` chooses. So one program serves every step, and every method that differs in numbers only. A hyper-parameter
that the method needs as a Python number (an index, a shape) is compiled in.
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
from dualanchor.oracles.jax_sampler import OracleTemplate, TracedStreams, key_of, sampler_of
from dualanchor.run.rows import COMPILED_INTERVAL, WINDOW
from dualanchor.run.traced import Computed, Number, NumberNeededError, computed_once, trace_branches


class _Sizes(Schedule):
    """The schedule of a traced step: its batch size is an argument of the compiled code."""

    def __init__(self, size: Any) -> None:
        self._size = size

    def size(self, k: Any, horizon: Any) -> Any:
        return self._size


class SamplesSeen(NamedTuple):
    """What the last WINDOW steps saw of samples."""

    largest: Any  # (WINDOW, rows, 2), squared norm and batch size of the largest sample of each step
    failed: Any  # (rows,), whether a value was NaN at a moderate point; farther out the row diverged
    norm: Any  # (rows,), of that point

    @classmethod
    def empty(cls, x: Array) -> SamplesSeen:
        rows = len(x)
        return cls(jnp.full((WINDOW, rows, 2), -1.0, x.dtype), jnp.zeros(rows, bool), jnp.zeros(rows, x.dtype))

    def with_call(self, step: Any, x: Array, value: Array, size: Any) -> SamplesSeen:
        """The report with another value: that of a batch of this size, in one of the last steps."""
        before, squares = self.largest[step], jnp.vecdot(value, value)
        seen = jnp.stack([squares, jnp.full_like(squares, size)], axis=1)
        largest = self.largest.at[step].set(jnp.where(squares[:, None] > before[:, :1], seen, before))
        failed = jnp.isnan(value).any(axis=1) & (jnp.abs(x).max(axis=1) < moderate(x.dtype))
        norm = jnp.where(failed & ~self.failed, jnp.linalg.norm(x, axis=1), self.norm)
        return SamplesSeen(largest, self.failed | failed, norm)


class _Session(Session):
    """The session of one traced step: it keeps the sizes drawn, and adds its calls to a report in the last steps.

    It is step k, and `window_step` is its number among the last WINDOW ones, negative before them.
    """

    __slots__ = ("_k", "_computed", "_window_step", "drawn", "report")

    def __init__(
        self, oracle: Oracle, streams: Any, computed: Computed, report: SamplesSeen, k: Any, window_step: Any
    ) -> None:
        super().__init__(oracle, streams)
        self._computed, self._k, self._window_step = computed, k, window_step
        self.drawn: list[Any] = []
        self.report = report

    def draw(self, size: Any) -> Batch:
        if isinstance(size, _Sizes):  # by a method that draws its batch itself
            size = size.size(None, None)
        if isinstance(size, Number):
            if not sampler_of(self.oracle).function.any_size:
                raise NumberNeededError(size.name)
            size = Varying(size.value, 0)
        self.drawn.append(size)
        return self.oracle.draw(self.streams, size)

    def __call__(self, x: Array, batch: Batch) -> Array:
        before, size = self.report, batch.size.value if isinstance(batch.size, Varying) else batch.size
        value = self._computed.once(lambda: computed_once(lambda: accepted(x, self.oracle.mean(x, batch)), x, self._k))
        self.report = self._computed.once(
            lambda: jax.lax.cond(
                self._window_step >= 0,
                lambda: before.with_call(self._window_step, x, value, size),
                lambda: before,
            )
        )
        return value

    def fresh(self, x: Array, size: Any) -> Array:
        return self(x, self.draw(size))

    def at(self, rows: Any) -> Session:
        if rows.all():
            return self
        raise NumberNeededError("rows")


class _State(State):
    """The state of one traced step: what is assigned before the method branches is computed before it branches."""

    __slots__ = ("_computed",)  # not among the named arrays

    def __init__(self, computed: Computed, values: dict[str, Any]) -> None:
        object.__setattr__(self, "_computed", computed)
        vars(self).update(values)

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)[name] = self._computed.once(lambda: value)


class Form(NamedTuple):
    """A method without its numbers: its class, and each parameter as a value or as one of the placeholders below."""

    cls: type[Method]
    parameters: tuple[tuple[str, Any], ...]


_NUMBER, _ARRAY, _BATCHES = ("a number",), ("an array",), ("batch sizes that differ",)
_EVERYTHING = ""  # among the names of parameters that are compiled in: all of them are


def _form(method: Method, any_size: bool, compiled_in: frozenset[str], numbers: list[Any]) -> Form:
    """The form of a method; the numbers that it leaves out are added to `numbers`."""
    is_open = _EVERYTHING not in compiled_in
    parameters = []
    for field in dataclasses.fields(method):  # type: ignore[arg-type]
        name, value = field.name, getattr(method, field.name)
        varies = isinstance(value, (list, tuple, Schedule)) and not isinstance(value, (Constant, Paired))
        if isinstance(value, Method):
            value = _form(value, any_size, compiled_in, numbers)
        elif isinstance(value, (np.ndarray, jax.Array)) and is_open:
            numbers.append(value)
            value = _ARRAY
        elif name == "batch_size" and varies:
            value = _BATCHES
        elif type(value) in (int, float) and is_open and name not in compiled_in and (any_size or name != "batch_size"):
            numbers.append(value)
            value = _NUMBER
        parameters.append((name, hashed(value)))
    return Form(type(method), tuple(parameters))


def _method(form: Form, numbers: Iterator[Any], size: Any, answers: Iterator[bool]) -> Method:
    """The method of a form, with traced numbers in it."""
    method = object.__new__(form.cls)
    for name, value in form.parameters:
        if isinstance(value, Form):
            value = _method(value, numbers, size, answers)
        elif value == _NUMBER and name == "batch_size":
            value = _Sizes(Varying(next(numbers), 0))
        elif value == _NUMBER:
            value = Number(next(numbers), answers, name)
        elif value == _ARRAY:
            value = next(numbers)
        elif value == _BATCHES:
            value = _Sizes(size)
        object.__setattr__(method, name, value)
    vars(method)["steps"] = None  # the driver knows how many there are
    return method


class Arguments(NamedTuple):
    """What compiled steps depend on besides the state: all of it may change without compiling again."""

    first: Any  # the steps are first, .., last - 1
    last: Any
    source: Any  # where the samples of each row come from
    position: Any  # (rows,), of the first step
    data: Any  # arguments of the sampler
    numbers: list[Any]  # hyper-parameters
    sizes: Any  # batch sizes of the steps; empty if they are compiled in


class Program:
    """Steps of the methods of one form on the oracles of one kind, compiled.

    `coin` is the coin of every step and row (None: without coins). `draws` is the number of batches in a step; with
    `open_sizes` their sizes are arguments, all of one size, with at most `bits` binary digits.
    """

    def __init__(self, form: Form, template: OracleTemplate, coin: bool | None, bits: int) -> None:
        self._form, self._template, self._coin, self._bits = form, template, coin, bits
        self.draws, self.open_sizes = 0, False
        self.run = jax.jit(self._run)

    def probe(self, state: dict[str, Any], arguments: Arguments) -> None:
        """Trace a step, to see whether it can be compiled and how many batches it draws; raises if it cannot."""
        counts = set[tuple[int, int]]()
        report = SamplesSeen.empty(state["x"])

        def first_step(state: dict[str, Any], report: SamplesSeen, arguments: Arguments) -> Any:
            return self._step(arguments.first, state, report, arguments, counts)

        jax.eval_shape(first_step, state, report, arguments)
        (self.draws, open_draws), *others = counts
        if others or open_draws not in (0, self.draws):
            raise NumberNeededError(_EVERYTHING)
        self.open_sizes = open_draws > 0

    def _step(
        self, k: Any, state: dict[str, Any], report: SamplesSeen, arguments: Arguments, counts: Any = None
    ) -> Any:
        """The state after step k, and the report.

        The numbers of batches drawn, and of those whose size is an argument, are added to `counts`.
        """
        oracle = self._template.with_data(arguments.data)
        sizes = arguments.sizes[k - arguments.first] if len(arguments.sizes) else 0
        position = arguments.position + (k - arguments.first) * self.draws

        def branch(answers: Iterator[bool], computed: Computed) -> Any:
            size = Varying(sizes, self._bits)
            method = _method(self._form, iter(arguments.numbers), size, answers)
            s, x = _State(computed, state), state["x"]
            streams, window_step = TracedStreams(arguments.source, position), k - (arguments.last - WINDOW)
            F = _Session(oracle, streams, computed, report, k, window_step)
            coin = None if self._coin is None else np.full(len(x), self._coin)
            method.step(Number(k, answers), s, F, coin)  # type: ignore[arg-type]
            if counts is not None:
                counts.add((len(F.drawn), sum(drawn is size for drawn in F.drawn)))
            after = {name: jnp.asarray(value, state[name].dtype) for name, value in vars(s).items()}
            return after, F.report

        return trace_branches(branch)

    def _run(self, state: dict[str, Any], arguments: Arguments) -> Any:
        def step(k: Any, now: tuple[dict[str, Any], SamplesSeen]) -> Any:
            return self._step(k, now[0], now[1], arguments)

        return jax.lax.fori_loop(arguments.first, arguments.last, step, (state, SamplesSeen.empty(state["x"])))


_PROGRAMS: dict[Any, Program] = {}
_COMPILED_IN: dict[Any, frozenset[str] | None] = {}  # parameters, by kind of method; None: it cannot be compiled
_MAX_PROGRAMS = 256


def can_compile(method: Method, s: State, F: Session) -> bool:
    """Whether steps of a method can be compiled, whatever its coins are."""
    on_host = isinstance(s.x, np.ndarray)
    if any(isinstance(value, np.ndarray) is not on_host for value in vars(s).values()):
        return False
    if jax.dtypes.canonicalize_dtype(s.x.dtype) != s.x.dtype:  # doubles of NumPy, which JAX would make singles
        return False
    coins = (None,) if method.probability(np.arange(1)) is None else (True, False)
    return all(_program(method, s, F, 0, 1, coin) is not None for coin in coins)


def advance(method: Method, s: State, F: Session, first: int, count: int, coins: Array | None) -> Array:
    """Take steps first, .., first + count - 1 in place; steps with different coins in different rows are not compiled.

    Returns squared norm and batch size of the largest sample in each of the last steps, (steps, rows, 2), or NaN.
    """
    ends = [count] if coins is None else [*(1 + np.flatnonzero(np.diff(coins[:, :count]).any(axis=0))).tolist(), count]
    seen: list[Array] = []
    begin = 0
    for end in ends:  # of steps with the same coins
        coin = None if coins is None else coins[:, begin]
        if coin is None or coin.all() or not coin.any():
            seen += _advance(method, s, F, first + begin, end - begin, None if coin is None else bool(coin[0]))
        else:
            F.checking = True
            for k in range(first + begin, first + end):
                F.largest = None
                method.step(k, s, F, coin)
                seen.append(np.full((len(s.x), 2), np.nan) if F.largest is None else F.largest)
        begin = end
    return np.array(seen[-WINDOW:])


def _advance(method: Method, s: State, F: Session, first: int, count: int, coin: bool | None) -> list[Array]:
    program, arguments = _program(method, s, F, first, count, coin)
    cost = method.cost(np.arange(first, first + count), s, None if coin is None else np.full(count, coin))
    draws, evals = (np.broadcast_to(np.asarray(counts), (count,)) for counts in cost)
    sizes = np.zeros(COMPILED_INTERVAL if program.open_sizes else 0, np.int32)
    if program.open_sizes:
        sizes[:count] = draws // program.draws
    sampler_of(F.oracle).require_noise(F.streams.position + count * program.draws)
    after, report = program.run(vars(s), arguments._replace(sizes=sizes))
    if F.checking:
        require_numbers(np.asarray(report.failed), np.asarray(report.norm), F.oracle)
    if isinstance(s.x, np.ndarray):
        after = {name: np.array(value, vars(s)[name].dtype) for name, value in after.items()}
    vars(s).update(after)
    F.draws, F.evals = F.draws + int(draws.sum()), F.evals + int(evals.sum())
    F.streams.position = F.streams.position + count * program.draws
    return list(np.asarray(report.largest, float)[-count:])


def _program(method: Method, s: State, F: Session, first: int, count: int, coin: bool | None) -> Any:
    """The program for steps of a method, and its arguments without sizes; None if it cannot be compiled."""
    sampler = sampler_of(F.oracle)
    position = np.asarray(per_row(F.streams.position, len(s.x)), np.int32)
    sizes = np.zeros(COMPILED_INTERVAL, np.int32)
    source = sampler.source(F.streams)
    key = key_of(F.oracle)
    kind = _kind(method), key, coin
    bits = 0 if sampler.function.any_size else _bits(method, first + count)
    compiled_in = _COMPILED_IN.get(kind, frozenset())
    while compiled_in is not None:
        numbers: list[Any] = []
        form = _form(method, sampler.function.any_size, compiled_in, numbers)
        arguments = Arguments(first, first + count, source, position, sampler.data, numbers, sizes)
        if (program := _PROGRAMS.get((form, key, coin, bits))) is not None:
            return program, arguments
        program = Program(form, OracleTemplate(key, F.oracle), coin, bits)
        try:
            program.probe(vars(s), arguments)
        except OracleError as error:
            if not sampler.function.is_outside(error):
                raise
            compiled_in = None
        except NumberNeededError as needed:
            name = str(needed.args[0])
            compiled_in = None if {_EVERYTHING, name} & compiled_in else compiled_in | {name}
        except Exception:  # it uses its numbers in another way
            compiled_in = None if _EVERYTHING in compiled_in else compiled_in | {_EVERYTHING}
        else:
            _COMPILED_IN[kind] = compiled_in
            while len(_PROGRAMS) >= _MAX_PROGRAMS:
                _PROGRAMS.pop(next(iter(_PROGRAMS)))
            _PROGRAMS[form, key, coin, bits] = program
            return program, arguments
    _COMPILED_IN[kind] = None
    return None


def _kind(method: Method) -> Any:
    """The class of a method, and of the methods within it."""
    inner = [value for value in vars(method).values() if isinstance(value, Method)]
    return type(method), tuple(map(_kind, inner))


def _bits(method: Method, last: int) -> int:
    """Binary digits of the largest batch, of all steps where they are known, rounded up: each number is compiled."""
    steps = last if method.steps is None else max(last, method.steps)
    return -(-int(np.max(method.cost(np.arange(steps)).draws)).bit_length() // 6) * 6
