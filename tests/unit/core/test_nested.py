from typing import Any, NamedTuple

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.errors import ArgumentTypeError
from dualanchor.core.nested import flatten, row_of, unflatten


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.mark.parametrize("x", [1.0, (1.0, 2.0), [1.0], {"a": (1.0, [2.0, {"b": 3.0}]), "c": 4.0}])
def test_unflatten_undoes_flatten(x):
    leaves = []
    assert unflatten(flatten(x, leaves), leaves) == x


@pytest.mark.parametrize(
    "form",
    [
        1,
        -1,
        True,
        "0",
        {"set": [0]},
        {"tuple": [0], "list": [0]},
        {"dict": [0]},
        None,
        {"tuple": [0, 0]},
        {"tuple": {}},
        {"dict": [["a", 0], ["a", 0]]},
    ],
)
def test_other_forms_are_refused(form):
    with pytest.raises((AttributeError, IndexError, KeyError, TypeError, ValueError)):
        unflatten(form, [np.ones(2)])


@pytest.mark.parametrize("key", [(1, 2), b"w", np.int64(1)])
def test_keys_that_a_file_would_change_are_refused(key):
    with pytest.raises(ArgumentTypeError, match="keys of a dict"):
        flatten({key: np.ones(2)}, [])


@pytest.mark.parametrize("reps", [1, 3])
def test_a_result_of_nested_form_is_loaded_as_it_was(reps, tmp_path):
    def sample(x, n, rng):
        noise = rng.normal(size=3) / np.sqrt(n)
        return {"w": x["w"] - 1 + noise[:2], "b": [x["b"][0] + noise[2]]}

    result = da.root(sample, {"w": np.zeros(2), "b": [np.array(1.0)]}, budget=300, reps=reps)
    loaded = da.Result.load(result.save(tmp_path / "result"))
    np.testing.assert_array_equal(loaded.x["w"], result.x["w"])
    np.testing.assert_array_equal(loaded.x["b"][0], result.x["b"][0])
    assert repr(loaded) == repr(result)


def test_a_row_keeps_the_form():
    arrays = np.arange(6.0).reshape(3, 2)
    row = row_of({"a": (arrays, [arrays + 1]), "b": Pair(arrays[:, 0], arrays)}, 1)
    assert repr(row) == repr({"a": (arrays[1], [arrays[1] + 1]), "b": Pair(arrays[1, 0], arrays[1])})
