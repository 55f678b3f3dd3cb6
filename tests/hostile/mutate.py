"""Random damage to JSON values and to arrays, from a seeded generator."""

import copy
import math

import numpy as np

STRANGE = (
    None,
    True,
    0,
    -1,
    1,
    2.5,
    math.nan,
    math.inf,
    10**30,
    "",
    "x",
    "$\\frac$",
    "\ud800",
    "\r\n",
    [],
    [[]],
    [None],
    {},
    {"x": {}},
    "1" * 300,
)
DTYPES = ("<f8", "<f4", "<i8", "<u8", "?", "<c16", "<U3", "S2", "<M8[s]")


def places(value, at=()):
    """Where in a JSON value something may be changed: all paths to values inside it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*at, key)
        yield from places(item, (*at, key))


def damaged_json(rng, value):
    """A copy in which one to three values are replaced, removed or given another name."""
    value = copy.deepcopy(value)
    for _ in range(rng.integers(1, 4)):
        *way, key = choose(rng, list(places(value)) or [()]) or [None]
        if key is None:
            break
        inner = value
        for step in way:
            inner = inner[step]
        kind = rng.integers(4)
        if kind == 0:
            del inner[key]
        elif kind == 1 and isinstance(inner, dict):
            inner[choose(rng, ["", "x", "a\rb", "é\n", key + key])] = inner.pop(key)
        else:
            inner[key] = choose(rng, STRANGE)
    return value


def damaged_array(rng, array):
    """The array with another dtype, shape or values."""
    kind = rng.integers(5)
    if kind == 0:
        return np.zeros(array.shape, choose(rng, DTYPES))
    if kind == 1:
        return np.zeros(choose(rng, [(), (0,), (1,), (3,), (2, 2), (*array.shape, 2), array.shape[:-1]]), array.dtype)
    if kind == 2:
        return array[..., None]
    changed = np.array(array)
    values = [np.nan, np.inf, -1.0] if changed.dtype.kind == "f" else [-1, np.iinfo(np.int64).max]
    if changed.size and changed.dtype.kind in "fi":
        changed.reshape(-1)[rng.integers(changed.size)] = choose(rng, values)
    return changed


def choose(rng, options):
    return options[rng.integers(len(options))]
