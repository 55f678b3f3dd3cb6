"""What a step on symbols shows, and which steps are not of that form."""

from dataclasses import dataclass

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.method import Method, State
from dualanchor.fast.trace import traced


def evaluated(program, state, **names):
    """The state after a traced step."""
    return {name: node.evaluated({**state, **names}) for name, node in program.changes.items()}


def test_a_traced_step_is_the_step():
    rng = np.random.default_rng(1)
    x, z, G = rng.standard_normal((3, 1, 5))
    method, s = da.DualOHM(0.3, horizon=20, batch_size=2), State(x=x.copy(), z=z.copy())
    method.update(4, s, G)
    fields, program = traced(da.DualOHM, None)
    after = evaluated(program, {"x": x, "z": z}, G0=G, k=4, step_size=0.3, horizon=20)
    assert fields == ["x", "z"]
    assert program.point is None
    for name, value in after.items():
        np.testing.assert_array_equal(value, getattr(s, name))


def test_two_evaluations_with_one_batch_or_two():
    assert not traced(da.SEG, None)[1].same
    assert traced(da.HalpernPAGE, False)[1].same
    assert traced(da.HalpernPAGE, True)[1].point is None


@dataclass(frozen=True)
class Own(Method):
    """A method whose steps are not formulas of vectors alone."""

    step_size: float = 0.1
    id = "own"

    def init(self, x0):
        return State(x=x0.copy())


@dataclass(frozen=True)
class Deciding(Own):
    def step(self, k, s, F, coin=None):
        G = F(s.x, F.draw(1))
        if self.step_size * k > 3:
            s.x -= G


@dataclass(frozen=True)
class Measuring(Own):
    def step(self, k, s, F, coin=None):
        G = F(s.x, F.draw(1))
        s.x -= G / np.linalg.norm(G)


@dataclass(frozen=True)
class ThreeTimes(Own):
    def step(self, k, s, F, coin=None):
        for _ in range(3):
            s.x = s.x - self.step_size * F(s.x, F.draw(1))


@pytest.mark.parametrize("cls", [Deciding, Measuring, ThreeTimes])
def test_other_steps_are_refused(cls):
    with pytest.raises((TypeError, AttributeError)):
        traced(cls, None)
