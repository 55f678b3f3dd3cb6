"""Every keyword of a front door stands in its signature, for readers, editors and type checkers."""

import inspect
from dataclasses import fields

import numpy as np
import pytest
from tests.unit.front.samplers import Counted

import dualanchor as da
from dualanchor.front.request import Request

DOORS = [da.root, da.fixed_point, da.saddle, da.inclusion]
SADDLE = {"prox_u": None, "prox_v": None, "bounds": None}
DEFAULTS = {field.name: field.default for field in fields(Request) if field.name != "door"}


@pytest.mark.parametrize("door", DOORS)
def test_keywords_are_those_of_a_request(door):
    given = inspect.signature(door).parameters
    keywords = {name: one.default for name, one in given.items() if one.kind is one.KEYWORD_ONLY}
    assert not any(one.kind is one.VAR_KEYWORD for one in given.values())
    expected = {**DEFAULTS, "args": (), "rng": None}
    expected |= {
        da.root: {"prox": None, "bounds": None},
        da.saddle: SADDLE,
        da.fixed_point: {"L": 2.0, "bounds": None},
    }.get(door, {})
    assert keywords == expected
    assert all(one.annotation is not inspect.Parameter.empty for one in given.values())


def test_root_with_a_prox_is_an_inclusion():
    for keywords in ({"budget": 900, "L": 1.0}, {"eps": 0.3, "M": 1.0, "mu": 1.0}, {"budget": 900}):
        one = da.root(Counted(), np.zeros((2, 2)), prox=da.prox.box(0, 0.5), **keywords)
        other = da.inclusion(Counted(), da.prox.box(0, 0.5), np.zeros((2, 2)), **keywords)
        np.testing.assert_array_equal(one.x, other.x)
        assert (one.nfev, one.findings, one.claim) == (other.nfev, other.findings, other.claim)
    with pytest.raises(da.errors.ArgumentTypeError, match=r"root: prox must accept prox\(z, step\)"):
        da.root(Counted(), np.zeros(2), prox=lambda z: z, budget=300, L=1.0)
    with pytest.raises(da.errors.ArgumentTypeError, match="inclusion: prox must be a function"):
        da.inclusion(Counted(), None, np.zeros(2), budget=300, L=1.0)
