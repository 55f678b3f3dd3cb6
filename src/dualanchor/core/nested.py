"""Trees: nested dicts, lists and tuples, with arrays or anything else as leaves."""

from collections.abc import Callable, Mapping
from typing import Any

from dualanchor.core.errors import ArgumentTypeError
from dualanchor.core.types import Array

_SEQUENCES = {"tuple": tuple, "list": list}


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with `function(leaf)` in place of each leaf."""
    if isinstance(tree, Mapping):
        return {key: mapped(function, child) for key, child in tree.items()}
    if isinstance(tree, (list, tuple)):
        return _sequence_like(tree, [mapped(function, child) for child in tree])
    return function(tree)


def skeleton_and_leaves(tree: Any) -> tuple[Any, list[Any]]:
    """The tree with the index of each leaf in its place, and the leaves."""
    leaves: list[Any] = []

    def index(leaf: Any) -> int:
        leaves.append(leaf)
        return len(leaves) - 1

    return mapped(index, tree), leaves


def in_order_of(skeleton: Any, value: Any) -> Any:
    """A tree with the keys of its dicts in the order of the skeleton: `jax.grad` sorts them."""
    if isinstance(skeleton, dict) and isinstance(value, Mapping) and value.keys() == skeleton.keys():
        return {key: in_order_of(child, value[key]) for key, child in skeleton.items()}
    if isinstance(skeleton, (list, tuple)) and isinstance(value, (list, tuple)) and len(value) == len(skeleton):
        return _sequence_like(value, [in_order_of(*pair) for pair in zip(skeleton, value, strict=True)])
    return value


def row_of(x: Any, number: int) -> Any:
    """The tree x with one row of each array in its place."""
    return mapped(lambda leaf: leaf[number], x)


def of_players(x: Any, door: Any) -> dict[str, Any] | None:
    """The parts u and v of a solution of `saddle`; None for a solution of another door, whose tuples are the user's."""
    return dict(zip("uv", x, strict=True)) if door == "saddle" and isinstance(x, tuple) and len(x) == 2 else None


def flatten(x: Any, leaves: list[Array]) -> Any:
    """The form of x for JSON, in which an array is its number in `leaves`, where it is appended.

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

    def built(form: Any) -> Any:
        if type(form) is int:
            return leaves[form]
        ((kind, items),) = form.items()
        if kind == "dict":
            return {key: built(value) for key, value in items}
        return _SEQUENCES[kind](map(built, items))

    again: list[Array] = []
    x = built(form)
    if flatten(x, again) != form or len(again) != len(leaves):
        raise ValueError(f"a form of {len(again)} parts for {len(leaves)} arrays")
    return x


def _sequence_like(sequence: Any, items: list[Any]) -> Any:
    """The items as a list, tuple or named tuple, like `sequence`."""
    if isinstance(sequence, list):
        return items
    return type(sequence)(*items) if hasattr(sequence, "_fields") else tuple(items)
