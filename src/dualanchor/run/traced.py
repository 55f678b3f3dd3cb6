"""Numbers that are known only when compiled code runs, for methods traced as they stand. Imported on demand."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


class _NotKnown(BaseException):
    """The method asks for something that is known only when the compiled code runs."""

    def __init__(self, predicate: Any) -> None:
        self.predicate = predicate


class OpenError(Exception):
    """A hyper-parameter, by its name, cannot be left open."""


def _value(number: Any) -> Any:
    return number.value if isinstance(number, Number) else number


def _computed(operation: Callable[[Any, Any], Any], reflected: bool = False, real: bool = False) -> Any:
    def compute(self: Number, other: Any) -> Any:
        value = 1.0 * self.value if real else self.value
        return self.like(operation(_value(other), value) if reflected else operation(value, _value(other)))

    return compute


def _asked(question: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: _Answer(question(self.value, _value(other)), self.answers)


class Number:
    """A number that is known only when the compiled code runs: that of the step, or a hyper-parameter."""

    def __init__(self, value: Any, answers: Iterator[bool], name: str = "") -> None:
        self.value, self.answers, self.name = value, answers, name

    def __jax_array__(self) -> Any:
        return self.value

    def like(self, value: Any) -> Any:
        """What was computed with it: a number again, or an array."""
        return Number(value, self.answers) if jnp.ndim(value) == 0 else value

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            return NotImplemented
        return self.like(getattr(jnp, ufunc.__name__)(*map(_value, inputs)))

    __add__ = __radd__ = _computed(operator.add)
    __sub__, __rsub__ = _computed(operator.sub), _computed(operator.sub, reflected=True)
    __mod__, __floordiv__ = _computed(operator.mod), _computed(operator.floordiv)
    __and__ = __rand__ = _computed(operator.and_)
    __mul__ = __rmul__ = _computed(operator.mul, real=True)  # whole numbers of 32 bits might overflow
    __truediv__, __rtruediv__ = _computed(operator.truediv), _computed(operator.truediv, reflected=True)
    __pow__, __rpow__ = _computed(operator.pow, real=True), _computed(operator.pow, reflected=True, real=True)
    __lt__, __le__, __gt__, __ge__ = map(_asked, (operator.lt, operator.le, operator.gt, operator.ge))
    __eq__, __ne__ = _asked(operator.eq), _asked(operator.ne)
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Any:
        return self.like(-self.value)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __index__(self) -> int:
        raise OpenError(self.name)

    __int__ = __float__ = __index__


class _Answer:
    """Whether something holds for a Number: decided in advance, or the question that must be."""

    def __init__(self, predicate: Any, answers: Iterator[bool]) -> None:
        self._predicate, self._answers = predicate, answers

    def __jax_array__(self) -> Any:
        return self._predicate

    def __bool__(self) -> bool:
        for answer in self._answers:
            return answer
        raise _NotKnown(self._predicate)


def each_answer(
    run: Callable[[Iterator[bool], list[Any]], Any], answers: tuple[bool, ...] = (), values: Sequence[Any] = ()
) -> Any:
    """`run(answers, values)` with all answers that it asks for; compiled code chooses among them.

    It adds to `values` what it has computed before a question, and finds it there when it is run with the answer.
    """
    known = list(values)
    try:
        return run(iter(answers), known)
    except _NotKnown as question:
        predicate = question.predicate
    branches = (partial(each_answer, run, (*answers, answer), known) for answer in (True, False))
    return jax.lax.cond(predicate, *branches)
