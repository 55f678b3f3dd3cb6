"""Numbers whose value is known only when compiled code runs, for methods that are traced. Imported on demand."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dualanchor.core.types import Array

_ONE_CORE = 4096  # numbers in a sample, of all rows, up to which it is computed on one core


class NumberNeededError(Exception):
    """The method needs a hyper-parameter, given by its name, as a Python number."""


class _UnansweredError(BaseException):
    """The method branches on a predicate for which no answer is given."""

    def __init__(self, predicate: Any) -> None:
        self.predicate = predicate


def _value(number: Any) -> Any:
    return number.value if isinstance(number, Number) else number


def _arithmetic(operation: Callable[[Any, Any], Any], reflected: bool = False, real: bool = False) -> Any:
    def compute(self: Number, other: Any) -> Any:
        value = 1.0 * self.value if real else self.value
        return self.like(operation(_value(other), value) if reflected else operation(value, _value(other)))

    return compute


def _comparison(operation: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: _Condition(operation(self.value, _value(other)), self.answers)


class Number:
    """The number of the step, or a hyper-parameter, as a traced value that computes like a number."""

    def __init__(self, value: Any, answers: Iterator[bool], name: str = "") -> None:
        self.value, self.answers, self.name = value, answers, name

    def __jax_array__(self) -> Any:
        return self.value

    def like(self, value: Any) -> Any:
        """What was computed with it: a Number again, or an array."""
        return Number(value, self.answers) if jnp.ndim(value) == 0 else value

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            return NotImplemented
        return self.like(getattr(jnp, ufunc.__name__)(*map(_value, inputs)))

    __add__ = __radd__ = _arithmetic(operator.add)
    __sub__, __rsub__ = _arithmetic(operator.sub), _arithmetic(operator.sub, reflected=True)
    __mod__, __floordiv__ = _arithmetic(operator.mod), _arithmetic(operator.floordiv)
    __and__ = __rand__ = _arithmetic(operator.and_)
    __mul__ = __rmul__ = _arithmetic(operator.mul, real=True)  # whole numbers of 32 bits might overflow
    __truediv__, __rtruediv__ = _arithmetic(operator.truediv), _arithmetic(operator.truediv, reflected=True)
    __pow__, __rpow__ = _arithmetic(operator.pow, real=True), _arithmetic(operator.pow, reflected=True, real=True)
    __lt__, __le__, __gt__, __ge__ = map(_comparison, (operator.lt, operator.le, operator.gt, operator.ge))
    __eq__, __ne__ = _comparison(operator.eq), _comparison(operator.ne)
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Any:
        return self.like(-self.value)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __index__(self) -> int:
        raise NumberNeededError(self.name)

    __int__ = __float__ = __index__


class _Condition:
    """A comparison of Numbers; as a bool it takes the next of the given answers."""

    def __init__(self, predicate: Any, answers: Iterator[bool]) -> None:
        self._predicate, self._answers = predicate, answers

    def __jax_array__(self) -> Any:
        return self._predicate

    def __bool__(self) -> bool:
        for answer in self._answers:
            return answer
        raise _UnansweredError(self._predicate)


class Computed:
    """What a traced step computes, one value after the other; a step that is traced again gets those already known."""

    def __init__(self, known: Sequence[Any]) -> None:
        self.known = list(known)
        self._next = 0

    def once(self, compute: Callable[[], Any]) -> Any:
        """The next value: the known one, or else what `compute` gives."""
        if self._next == len(self.known):
            self.known.append(compute())
        self._next += 1
        return self.known[self._next - 1]


def trace_branches(
    run: Callable[[Iterator[bool], Computed], Any], answers: tuple[bool, ...] = (), known: Sequence[Any] = ()
) -> Any:
    """`run(answers, computed)`, traced for all answers that it asks for; compiled code chooses among them.

    What it computes by `computed.once` before a branch is computed before the branch in compiled code too.
    """
    computed = Computed(known)
    try:
        return run(iter(answers), computed)
    except _UnansweredError as question:
        predicate = question.predicate
    branches = (partial(trace_branches, run, (*answers, answer), computed.known) for answer in (True, False))
    return jax.lax.cond(predicate, *branches)


def computed_once(compute: Callable[[], Array], x: Array, k: Any) -> Array:
    """`compute()`, of the shape of x, as a value that compiled code does not compute again wherever it is used.

    A small one is written to one of two slots and read from there. XLA computes what it writes to a slot on one core;
    it would divide other work of this size among the cores, which takes longer than the work.
    """
    if x.size > _ONE_CORE:
        return jax.lax.cond(k >= 0, compute, lambda: x)  # k is never negative, but the compiler does not know
    slots = jax.lax.dynamic_update_index_in_dim(jnp.zeros((2, *x.shape), x.dtype), compute(), k & 1, 0)
    return jax.lax.dynamic_index_in_dim(slots, k & 1, 0, keepdims=False)
