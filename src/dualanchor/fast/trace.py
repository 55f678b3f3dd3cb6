"""A method's step, run once on symbols: the expressions that it computes, the same for every coordinate.

What a step does to its state between two evaluations of F is elementwise, so the expressions that come out are the
bodies of loops over coordinates. What depends on k and the hyper-parameters alone is a coefficient, computed outside of
these loops, by NumPy, with the method's own formulas.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from dualanchor.core.method import Method, State

_COUNTS = ("batch_size", "big_batch", "small_batch")  # they set how much is drawn, not what is computed with it


@dataclass(frozen=True)
class Node:
    """An operation, by NumPy's name for it, on nodes and numbers, or a leaf; `array` if coordinates have values."""

    op: str
    parts: tuple[Any, ...]
    array: bool

    def evaluated(self, names: dict[str, Any]) -> Any:
        """Its value where leaves have these values."""
        if self.op == "leaf":
            return names[self.parts[0]]
        return getattr(np, self.op)(*(part.evaluated(names) if isinstance(part, Node) else part for part in self.parts))

    def leaves(self) -> set[str]:
        """The names it depends on."""
        if self.op == "leaf":
            return {self.parts[0]}
        return set().union(*(part.leaves() for part in self.parts if isinstance(part, Node)))


@dataclass(frozen=True)
class Program:
    """What one step does: evaluate F at x, perhaps at a second point, and change the state.

    Values of F are the leaves G0 and G1. `same` tells whether both evaluations use one batch.
    """

    changes: dict[str, Node]
    point: Node | None
    same: bool


def is_traced(method: Method) -> bool:
    """Whether the method is one of this library's; a subclass of one may do more than a trace shows."""
    return type(method).__module__.startswith("dualanchor.methods.") and "id" in vars(type(method))


def is_elementwise(method: Method) -> bool:
    """Whether its step is known to do the same with every coordinate of every row."""
    other = method.probability(0) is not None or getattr(method, "estimator", None) is not None
    return is_traced(method) and not other and _has_form(type(method))


@cache
def _has_form(cls: type[Method]) -> bool:
    try:
        traced(cls, None)
    except Exception:  # of whatever kind: its step is not a sequence of elementwise formulas
        return False
    return True


def traced(cls: type[Method], coin: bool | None) -> tuple[list[str], Program]:
    """The names of a method's state, and its step with a coin that shows heads or tails, or with none.

    Raises an error of some kind where a step is not of that form.
    """
    method: Any = object.__new__(cls)
    for field in fields(cls):  # type: ignore[arg-type]
        symbol = field.name not in _COUNTS and (field.default is MISSING or isinstance(field.default, float))
        value = 1 if field.name in _COUNTS else _leaf(field.name, False) if symbol else field.default
        object.__setattr__(method, field.name, value)
    start = cls.init(method, np.ones((1, 2)))
    if any(value.shape != (1, 2) for value in vars(start).values()):
        raise TypeError("keeps other things than vectors")
    s = State(**{name: _leaf(name, True) for name in vars(start)})
    k, F, tossed = _leaf("k", False), _Session(), None if coin is None else np.array([coin])
    if cls.step is Method.step:
        cls.update(method, k, s, method.estimator_in_use.estimate(0, s, F, None, tossed))
    else:
        object.__setattr__(method, "steps", None)
        cls.step(method, k, s, F, tossed)  # type: ignore[arg-type]
    (first, batch), *others = F.calls
    if len(others) > 1 or first != _leaf("x", True).node:
        raise TypeError("evaluates F elsewhere first, or more than twice")
    state = {name: value.node for name, value in vars(s).items()}
    changes = {name: node for name, node in state.items() if node != _leaf(name, True).node}
    point, other = others[0] if others else (None, None)
    return list(state), Program(changes, point, other == batch)


class _Symbol(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for an array or a number: arithmetic with it is written down."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if method != "__call__" or options:
            return NotImplemented
        if not all(isinstance(part, _Symbol) or np.isscalar(part) for part in inputs):
            raise TypeError("computes with other arrays than its state")
        parts = tuple(part.node if isinstance(part, _Symbol) else part for part in inputs)
        node = Node(ufunc.__name__, parts, any(isinstance(part, Node) and part.array for part in parts))
        if out is None:
            return _Symbol(node)
        out[0].node = node  # augmented assignment
        return out[0]

    def __setitem__(self, where: Any, value: _Symbol) -> None:
        if where is not Ellipsis:
            raise TypeError("only whole rows are assigned")
        self.node = value.node

    def __bool__(self) -> bool:
        raise TypeError("what a step does depends on numbers")

    def __array__(self, *_: Any, **options: Any) -> Any:
        raise TypeError("does more than arithmetic, coordinate by coordinate")

    def copy(self) -> _Symbol:
        """The same value under another name."""
        return _Symbol(self.node)

    def __array_namespace__(self) -> Any:
        return SimpleNamespace(asarray=lambda x, copy: x.copy())


def _leaf(name: str, array: bool) -> Any:
    return _Symbol(Node("leaf", (name,), array))


class _Session:
    """Stands for F: notes at which points which batches are evaluated."""

    def __init__(self) -> None:
        self._draws = 0
        self.calls: list[tuple[Node, int]] = []

    def draw(self, size: Any) -> int:
        self._draws += 1
        return self._draws

    def __call__(self, x: _Symbol, batch: int) -> _Symbol:
        self.calls.append((x.node, batch))
        return _leaf(f"G{len(self.calls) - 1}", True)
