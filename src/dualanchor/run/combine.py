"""Updates of long rows as linear combinations: by BLAS, a term is one pass over coordinates that are in the cache."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from dualanchor.core.method import Method, State
from dualanchor.core.types import Array
from dualanchor.fast.trace import Node, is_traced, traced

_PIECE = 1 << 20  # bytes of each vector that are worked on at a time

Form = dict[str, Any]
"""Coefficients of the state's vectors, by name, and of G0, the value of F."""


def combined_update(method: Method, state: State) -> Callable[[int, State, Array], None] | None:
    """A method's elementwise update by BLAS, equal to `method.update` to rounding; None where it has no such form."""
    changes, dtype = _changes(type(method)) if is_traced(method) else None, state.x.dtype
    if changes is None or method.probability(0) is not None or dtype not in (np.float64, np.float32):
        return None
    from scipy.linalg.blas import get_blas_funcs  # takes time to import

    axpy: Any = get_blas_funcs("axpy", dtype=dtype)
    width = _PIECE // dtype.itemsize
    names = set().union(*(node.leaves() for node in changes.values())) - {"k", "G0", *vars(state)}

    def update(k: int, s: State, G: Array) -> None:
        arrays = vars(s)
        if any(value.dtype != dtype or value.strides[1] != value.itemsize for value in arrays.values()):
            method.update_in_pieces(k, s, G)
            return
        if any(np.may_share_memory(G, value) for value in arrays.values()):  # an oracle that returns its point
            G = G.copy()
        values = {"k": k, **{name: getattr(method, name) for name in names}}
        forms = _in_turn({name: _form(node, values) for name, node in changes.items()})
        for row in range(len(G)):
            mine = {name: {other: _of_row(c, row) for other, c in form.items()} for name, form in forms.items()}
            for start in range(0, G.shape[1], width):
                here = {name: value[row, start : start + width] for name, value in arrays.items()}
                here["G0"] = np.ascontiguousarray(G[row, start : start + width], dtype)
                for name, form in mine.items():
                    _combine(axpy, here, name, form)

    return update


def _combine(axpy: Any, arrays: dict[str, Array], name: str, form: Form) -> None:
    """Put a combination of arrays in the place of one of them."""
    out, own = arrays[name], form.get(name, 0.0)
    if own == 0.0:
        out.fill(0.0)
    elif own != 1.0:
        out *= own
    for other, c in form.items():
        if other != name:
            axpy(arrays[other], out, a=c)


@cache
def _changes(cls: type[Method]) -> dict[str, Node] | None:
    """What an update does to each vector that it changes; None if that is not a combination of vectors."""
    try:
        _, program = traced(cls, None)
        if program.point is not None:
            return None
        names = set().union(*(node.leaves() for node in program.changes.values()))
        anything = {name: 0.1 + 0.2 * i for i, name in enumerate(names)}
        _in_turn({name: _form(node, anything) for name, node in program.changes.items()})
    except Exception:  # of whatever kind: it does something else
        return None
    return program.changes


def _form(node: Any, values: dict[str, Any]) -> Form:
    """The combination that a node is, where hyper-parameters and k have these values; a number has no name."""
    if not isinstance(node, Node) or not node.array:
        return {"": node.evaluated(values) if isinstance(node, Node) else node}
    if node.op == "leaf":
        return {node.parts[0]: 1.0}
    first, *others = (_form(part, values) for part in node.parts)
    if node.op == "negative":
        return {name: -c for name, c in first.items()}
    (second,) = others
    if node.op in ("add", "subtract") and "" not in {**first, **second}:
        operation: Any = getattr(np, node.op)
        return {name: operation(first.get(name, 0.0), second.get(name, 0.0)) for name in {**first, **second}}
    if node.op == "multiply" and list(first) == [""]:
        first, second = second, first
    if node.op in ("multiply", "divide") and list(second) == [""]:
        operation = getattr(np, node.op)
        return {name: operation(c, second[""]) for name, c in first.items()}
    raise TypeError("not a linear combination")


def _in_turn(forms: dict[str, Form]) -> dict[str, Form]:
    """The combinations in an order in which none needs the old value of a vector that has been replaced."""
    ordered: dict[str, Form] = {}
    while forms:
        free = [name for name in forms if not any(name in form for other, form in forms.items() if other != name)]
        if not free:
            raise TypeError("vectors need each other's old values")
        ordered[free[0]] = forms[free[0]]
        forms = {name: form for name, form in forms.items() if name != free[0]}
    return ordered


def _of_row(c: Any, row: int) -> float:
    """A coefficient of one row: one number for all, or one for each, (rows, 1)."""
    return float(c) if np.ndim(c) == 0 else float(c[row, 0])
