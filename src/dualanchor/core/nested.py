"""Solutions of nested form, tuples, lists and dicts of arrays, as one list of arrays and a form that JSON can hold."""

from typing import Any

from dualanchor.core.errors import ArgumentTypeError
from dualanchor.core.types import Array

_SEQUENCES = {"tuple": tuple, "list": list}


def of_players(x: Any, door: Any) -> dict[str, Any] | None:
    """The parts u and v of a solution of `saddle`; None for a solution of another door, whose tuples are the user's."""
    return dict(zip("uv", x, strict=True)) if door == "saddle" and isinstance(x, tuple) and len(x) == 2 else None


def flatten(x: Any, leaves: list[Array]) -> Any:
    """The form of x, in which an array is its number in `leaves`, where it is appended.

    Examples
    --------
    >>> leaves = []
    >>> flatten({"w": 1.0, "b": (2.0, 3.0)}, leaves), leaves
    ({'dict': [['w', 0], ['b', {'tuple': [1, 2]}]]}, [1.0, 2.0, 3.0])
    """
    if isinstance(x, dict):
        for key in x:
            if type(key) not in (str, int):
                rule = "Result.save: keys of a dict must be strings or whole numbers"
                raise ArgumentTypeError(rule, key, "Name the parts of x by strings")
        return {"dict": [[key, flatten(value, leaves)] for key, value in x.items()]}
    if isinstance(x, (tuple, list)):
        return {"tuple" if isinstance(x, tuple) else "list": [flatten(value, leaves) for value in x]}
    leaves.append(x)
    return len(leaves) - 1


def unflatten(form: Any, leaves: list[Array]) -> Any:
    """The inverse of `flatten`; raises (any exception) if the form does not use each of these leaves once, in order.

    Examples
    --------
    >>> unflatten({"list": [0, 1]}, ["a", "b"])
    ['a', 'b']
    """
    again: list[Array] = []
    x = _built(form, leaves)
    if flatten(x, again) != form or len(again) != len(leaves):
        raise ValueError(f"a form of {len(again)} parts for {len(leaves)} arrays")
    return x


def row_of(x: Any, number: int) -> Any:
    """The form of x with one row of each array in its place."""
    if isinstance(x, dict):
        return {key: row_of(value, number) for key, value in x.items()}
    if isinstance(x, (tuple, list)):
        rows = [row_of(value, number) for value in x]
        return type(x)(*rows) if hasattr(x, "_fields") else type(x)(rows)  # a named tuple has fields
    return x[number]


def _built(form: Any, leaves: list[Array]) -> Any:
    if type(form) is int:
        return leaves[form]
    ((kind, items),) = form.items()
    if kind == "dict":
        return {key: _built(value, leaves) for key, value in items}
    return _SEQUENCES[kind](_built(item, leaves) for item in items)
