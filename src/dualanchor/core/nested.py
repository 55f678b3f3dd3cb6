"""Solutions of nested form, tuples, lists and dicts of arrays, as one list of arrays and a form that JSON can hold."""

from typing import Any

from dualanchor.core.types import Array

_SEQUENCES = {"tuple": tuple, "list": list}


def flatten(x: Any, leaves: list[Array]) -> Any:
    """The form of x, in which an array is its number in `leaves`, where it is appended.

    Examples
    --------
    >>> leaves = []
    >>> flatten({"w": 1.0, "b": (2.0, 3.0)}, leaves), leaves
    ({'dict': [['w', 0], ['b', {'tuple': [1, 2]}]]}, [1.0, 2.0, 3.0])
    """
    if isinstance(x, dict):
        return {"dict": [[key, flatten(value, leaves)] for key, value in x.items()]}
    if isinstance(x, (tuple, list)):
        return {"tuple" if isinstance(x, tuple) else "list": [flatten(value, leaves) for value in x]}
    leaves.append(x)
    return len(leaves) - 1


def unflatten(form: Any, leaves: list[Array]) -> Any:
    """The inverse of `flatten`; raises (any exception) if the form is not one of these leaves.

    Examples
    --------
    >>> unflatten({"list": [1, 0]}, ["a", "b"])
    ['b', 'a']
    """
    if type(form) is int and 0 <= form < len(leaves):
        return leaves[form]
    ((kind, items),) = form.items()
    if kind == "dict":
        return {key: unflatten(value, leaves) for key, value in items}
    return _SEQUENCES[kind](unflatten(item, leaves) for item in items)
