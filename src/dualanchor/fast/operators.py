"""Compiled operators of the named problems: the mean of a batch at one point, in the order of the readable ones.

Each is written down with what `Given` lists. One of a finite sum computes all coordinates of G, whatever is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from dualanchor.fast.code import COUNT, COUNTS, NUMBERS, Array, Function, Number

KINDS = (NUMBERS, NUMBERS, NUMBERS, NUMBERS, COUNTS, COUNT, NUMBERS, COUNT, COUNT, COUNT)
"""Of what is given, in the same order."""


class Given(NamedTuple):
    """What an operator is evaluated with."""

    x: Array
    data: Array
    constants: Array  # the first is the scale of the noise
    noise: Array
    picks: Array  # indices of components
    size: Number  # how many they are
    G: Array  # room for the value
    d: Number
    first: Number  # of the coordinates of G to compute
    last: Number  # before which they end


def turn(f: Function, given: Given) -> None:
    """Experiment 1: x + H'x - c plus noise, with the linear part H' of H."""
    x, offset, constants, noise, _, _, G, d, first, last = given
    scale = constants[0]
    with f.unless(first > 0):
        G[0] = x[0] + (scale * noise[0] - offset[0]) + x[d - 1]
    with f.loop(f.either(first > 0, first, f.number(1, COUNT)), last) as i:
        G[i] = x[i] + (scale * noise[i] - offset[i]) - x[i - 1]


def coupled_huber(f: Function, given: Given) -> None:
    """Experiment 3: clipped coordinates, a little of themselves, and a little of the other player's."""
    x, _, constants, noise, _, _, G, d, first, last = given
    scale, mu, delta, nu = (constants[i] for i in range(4))
    half, own = d / 2, 1.0 - delta

    def clipped(value: Number) -> Number:
        value = f.either(value > -nu, value, -nu)
        return f.either(value < nu, value, nu)

    with f.loop(first, f.either(last < half, last, half)) as i:
        G[i] = clipped(x[i]) * own + mu * x[i] + delta * x[i + half] + scale * noise[i]
    with f.loop(f.either(first > half, first, half), last) as i:
        G[i] = clipped(x[i]) * own + mu * x[i] - delta * x[i - half] + scale * noise[i]


def rank_one(f: Function, given: Given) -> None:
    """Experiment 2: the mean of q (q'x) over the picked lines q."""
    x, data, _, _, picks, size, G, d, _, _ = given
    with f.loop(0, d) as i:
        G[i] = 0.0
    with f.loop(0, size) as j:
        q, total = data + picks[j] * d, f.variables(x.value.type.pointee, 0.0)
        with f.loop(0, d) as i:
            total[0] = total[0].plus_in_any_order(q[i] * x[i])
        length = total[0]
        with f.loop(0, d) as i:
            G[i] = G[i] + length * q[i]
    share = 1.0 / f.real(size)
    with f.loop(0, d) as i:
        G[i] = G[i] * share


OPERATORS: dict[str, Callable[[Function, Given], None]] = {
    "turn": turn,
    "coupled-huber": coupled_huber,
    "rank-one": rank_one,
}


@cache
def compiled_operator(name: str) -> int | None:
    """Where the operator of this name stands; None if there is none."""
    if name not in OPERATORS:
        return None
    f = Function(name, *KINDS)
    OPERATORS[name](f, Given(*f.given))
    return f.address()
