"""Validators: what passes comes back in its plain form, what does not is named in three parts."""

from math import inf, nan

import numpy as np
import pytest

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError


@pytest.mark.parametrize("value", [3, np.int64(3), 3.0, np.float64(3.0), np.uint8(3)])
def test_whole_numbers(value):
    found = check.count(value, "a: b", 3, most=3)
    assert found == 3
    assert type(found) is int


@pytest.mark.parametrize("value", [True, np.bool_(True), 2.5, inf, nan, "3", None, 1j, [3], np.array([3, 4])], ids=repr)
def test_what_is_no_whole_number(value):
    with pytest.raises(ArgumentTypeError, match=r"^a: b must be an integer\. Got .+\. Use a whole number >= 1\.$"):
        check.count(value, "a: b")


def test_whole_numbers_within_limits():
    with pytest.raises(ArgumentError, match=r"a: b must be at least 4\. Got 3\. Use a whole number >= 4"):
        check.count(3, "a: b", 4)
    for value in (1, 6):
        with pytest.raises(ArgumentError, match=rf"a: b must be from 2 to 5\. Got {value}\. Use fewer"):
            check.count(value, "a: b", 2, most=5, remedy="Use fewer")


@pytest.mark.parametrize("value", [0, 0.0, np.float32(0.0), np.int8(0)])
def test_numbers(value):
    assert check.number(value, "a: b") == 0.0
    assert type(check.number(value, "a: b")) is float
    with pytest.raises(ArgumentError, match=r"a: b must be positive and finite\. Got 0"):
        check.number(value, "a: b", positive=True)


@pytest.mark.parametrize("value", [True, np.bool_(True), "1.0", None, 1j, [1.0], np.ones(2)], ids=repr)
def test_what_is_no_number(value):
    with pytest.raises(ArgumentTypeError, match=r"^a: b must be a number\. Got "):
        check.number(value, "a: b")


@pytest.mark.parametrize(
    ("value", "limits", "rule"),
    [
        (nan, {}, "non-negative and finite"),
        (inf, {}, "non-negative and finite"),
        (-1e-300, {}, "non-negative and finite"),
        (-inf, {"least": -1.0}, "at least -1 and finite"),
        (-2.0, {"least": -1.0}, "at least -1 and finite"),
        (nan, {"positive": True}, "positive and finite"),
        (1.0, {"positive": True, "below": 1.0}, "strictly between 0 and 1"),
        (0.0, {"positive": True, "below": 1.0}, "strictly between 0 and 1"),
    ],
)
def test_numbers_within_limits(value, limits, rule):
    with pytest.raises(ArgumentError, match=rf"^a: b must be {rule}\. Got .+\. Use a number that is {rule}\.$"):
        check.number(value, "a: b", **limits)


def test_probabilities():
    assert check.probability(0.5, "a: b") == 0.5
    for value in (0, 1, -0.5, nan):
        with pytest.raises(ArgumentError, match=r"a: b must be strictly between 0 and 1\. Got .*Use for example 0.95"):
            check.probability(value, "a: b")


@pytest.mark.parametrize("value", ["three", "", None, 1, ["one"]], ids=repr)
def test_one_of_a_few_words(value):
    assert check.choice("one", "a: b", ("one", "two")) == "one"
    with pytest.raises(ArgumentError, match=r"a: b must be one of 'one', 'two'\. Got "):
        check.choice(value, "a: b", ("one", "two"))


def test_functions():
    check.function(lambda x, n, *more: x, "a: b", "(x, n, rng)", 3)
    check.function(max, "a: b", "(x, n)", 2)  # its signature does not tell
    check.function(lambda: 0, "a: b", "of anything")
    for value in (3, "abs", None):
        with pytest.raises(ArgumentTypeError, match=r"a: b must be a function \(x\)\. Got '.+'\. Pass a function"):
            check.function(value, "a: b", "(x)", 1)
    with pytest.raises(ArgumentTypeError, match=r"a: b must accept \(x, n\)\. Got one with \(x\)"):
        check.function(lambda x: x, "a: b", "(x, n)", 2)
    with pytest.raises(ArgumentTypeError, match=r"a: b must accept \(x\)"):
        check.function(lambda *, x: x, "a: b", "(x)", 1)


def test_a_generator_gives_a_seed_per_call():
    made = np.random.default_rng(7)
    drawn = [check.seed(0, made, "a") for _ in range(3)]
    again = np.random.default_rng(7)
    assert drawn == [check.seed(0, again, "a") for _ in range(3)]
    assert len(set(drawn)) == 3
    assert check.seed(5, None, "a") == 5
