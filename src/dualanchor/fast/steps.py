"""A method's own step as compiled loops over coordinates, one row at a time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from dualanchor.core.method import Method
from dualanchor.core.types import Array as Numbers
from dualanchor.fast.code import COUNT, NUMBERS, SINGLES, Array, Function, Number
from dualanchor.fast.trace import Node, Program, is_traced, traced

FIELDS = 4
"""Vectors of a state, at most."""
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "negative": lambda x: -x,
}


class Steps:
    """A method's compiled step.

    Attributes
    ----------
    fields : list of str
        Names of its state.
    parameters : list of str
        Hyper-parameters that its coefficients depend on.
    alone : bool
        Whether every step is one evaluation.
    same : bool
        Whether both evaluations, where there are two, use one batch.
    one : int
        Where the step after one evaluation stands; 0 if there is none.
    look, two : int
        The same for the second point, and for the step after two evaluations: of a method without a coin, or whose coin
        shows tails.
    """

    def __init__(self, cls: type[Method], tossed: bool) -> None:
        programs: dict[bool, Program] = {}
        for coin in (True, False) if tossed else (None,):
            self.fields, program = traced(cls, coin)
            programs[program.point is not None] = program
        if len(self.fields) > FIELDS:
            raise TypeError("keeps too many vectors")
        self._cls, self._coefficients, self._programs = cls, list[Node](), programs
        self.alone, self.same = True not in programs, True in programs and programs[True].same
        one, two = programs.get(False), programs.get(True)
        self.one = 0 if one is None else self._loop(NUMBERS, one.changes)
        self.look = 0 if two is None else self._loop(NUMBERS, {"point": two.point})
        self.two = 0 if two is None else self._loop(NUMBERS, two.changes)
        names = set().union(*(node.leaves() for node in self._coefficients))
        self.parameters = [field.name for field in fields(cls) if field.name in names]  # type: ignore[arg-type]

    @property
    def draws(self) -> int:
        """Batches that a step draws."""
        return 1 if self.alone or self.same else 2

    @property
    def size(self) -> int:
        """How many coefficients there are."""
        return len(self._coefficients)

    def coefficients(self, k: Any, parameters: list[Any]) -> list[Any]:
        """The numbers of step k for these hyper-parameters."""
        names = {"k": k, **dict(zip(self.parameters, parameters, strict=True))}
        return [node.evaluated(names) for node in self._coefficients]

    @cache  # noqa: B019 - there is one for each method
    def update(self, dtype: Any) -> Callable[..., None] | None:
        """`update(c, rows of the state, G)` for rows of any length, where a step is one evaluation and no coin."""
        if not self.alone or dtype not in (np.float64, np.float32):
            return None
        where = self._loop(NUMBERS if dtype == np.float64 else SINGLES, self._programs[False].changes)
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (FIELDS + 4), ctypes.c_int64)(where)

        def update(c: Numbers, state: list[Numbers], G: Numbers) -> None:
            there = [address(row) for row in state]
            call(address(c), *there, *[None] * (FIELDS - len(there)), address(G), None, None, G.size)

        return update

    def _loop(self, kind: Any, changes: Mapping[str, Node | None]) -> int:
        """Compile `loop(c, state .., G0, G1, point, d)`, which computes nodes into arrays, all from what was there."""
        f = Function(self._cls.__name__, NUMBERS, *[kind] * (FIELDS + 3), COUNT)
        c, *rest, d = f.given
        arrays: dict[str, Array] = dict(zip((*self.fields, "G0", "G1", "point"), _used(rest, self.fields), strict=True))
        with f.loop(0, d) as i:
            known: dict[Node, Number] = {}

            def value(node: Any) -> Any:
                if not isinstance(node, Node):
                    return f.number(float(node), kind.pointee)
                if node not in known:
                    known[node] = computed(node)
                return known[node]

            def computed(node: Node) -> Number:
                if not node.array:
                    number = c[self._index(node)]
                    return f.single(number) if kind is SINGLES else number
                if node.op == "leaf":
                    return arrays[node.parts[0]][i]
                return _ARITHMETIC[node.op](*(value(part) for part in node.parts))

            results = {name: value(node) for name, node in changes.items()}
            for name, result in results.items():
                arrays[name][i] = result
        return f.address()

    def _index(self, node: Node) -> int:
        """Which of the coefficients this is."""
        if node not in self._coefficients:
            self._coefficients.append(node)
        return self._coefficients.index(node)


def _used(arrays: list[Array], fields: list[str]) -> list[Array]:
    """The arrays of these fields, and those after the room for others."""
    return [*arrays[: len(fields)], *arrays[FIELDS:]]


def address(array: Numbers) -> int:
    """Where an array's first number stands."""
    return array.__array_interface__["data"][0]


def steps_of(method: Method) -> Steps | None:
    """The compiled step of one of this library's methods, or None."""
    return _steps(type(method), method.probability(0) is not None) if is_traced(method) else None


@cache
def _steps(cls: type[Method], tossed: bool) -> Steps | None:
    try:
        return Steps(cls, tossed)
    except Exception:  # of whatever kind: its step is not a sequence of elementwise formulas
        return None
