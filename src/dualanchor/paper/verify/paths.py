"""Runs with every iterate and every evaluation written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core.method import Method
from dualanchor.core.oracle import Batch, Oracle, Session
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array

Operator = Callable[[Array], Array]
Answer = Callable[[int, Array], Array]


class Recorded(Oracle):
    """An oracle whose answer to draw number k is `answer(k, x)`, and which writes down every evaluation."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.values: list[Array] = []

    def draw(self, streams: Streams, size: Any) -> Batch:
        number = streams.position
        streams.position = number + 1
        return Batch(size, number)

    def mean(self, x: Array, batch: Batch) -> Array:
        value = self._answer(batch.data, x)
        self.values.append(value.copy())
        return value


class Path(NamedTuple):
    """Iterates x_0 .. x_K, (K + 1, rows, d), and the evaluations F_{B_k}(x_k), in order of the calls."""

    x: Array
    G: Array


def follow(
    method: Method, answer: Answer, x0: Array, steps: int | None = None, coins: Sequence[bool] | None = None
) -> Path:
    """Let a method take its steps and keep all of them.

    Parameters
    ----------
    method : Method
        What is run.
    answer : callable
        `answer(k, x)`: the evaluation of draw number k at x, (rows, d).
    x0 : array of shape (rows, d)
        The start.
    steps : int, optional
        How many; as many as the horizon admits if left out.
    coins : list of bool, optional
        What the coin of each step shows, for methods that toss one.
    """
    oracle = Recorded(answer)
    F = Session(oracle, Streams(0, np.arange(x0.shape[0]), dimension=x0.shape[1]))
    s = method.init(x0)
    xs = [s.x.copy()]
    steps = method.steps if steps is None else steps
    assert steps is not None
    for k in range(steps):
        if coins is None:
            method.step(k, s, F)
        else:
            method.step(k, s, F, np.full(x0.shape[0], coins[k]))
        xs.append(s.x.copy())
    return Path(np.array(xs), np.array(oracle.values).reshape(-1, *x0.shape))


def exact(operator: Operator) -> Answer:
    """The answers of a noiseless oracle."""
    return lambda k, x: operator(x)


def noisy(operator: Operator, noise: Array) -> Answer:
    """The answers of an oracle with additive noise, (rounds, rows, d)."""
    return lambda k, x: operator(x) + noise[k]


def inner(a: Array, b: Array) -> Array:
    """Inner products along the last axis."""
    return np.asarray(np.einsum("...i,...i->...", a, b))


def square(a: Array) -> Array:
    """Squared Euclidean norms along the last axis."""
    return inner(a, a)


def norm(a: Array) -> Array:
    """Euclidean norms along the last axis."""
    return np.asarray(np.linalg.norm(a, axis=-1))
