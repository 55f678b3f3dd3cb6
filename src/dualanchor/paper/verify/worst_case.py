"""Proposition 3.3 over all nonexpansive maps at once: the worst case as a semidefinite program (PEPit)."""

import importlib.util
import warnings
from collections.abc import Callable

import numpy as np

from dualanchor.core.errors import optional_module
from dualanchor.core.method import Method, State
from dualanchor.paper.verify.check import Lab, Measurements, equal, identifier, rate
from dualanchor.theory import bounds
from dualanchor.theory.bounds import PAPER

NAME = "Proposition 3.3, worst case"
ID = identifier(NAME)
HORIZONS = range(2, 9)


def installed() -> bool:
    """Whether the worst case can be computed here."""
    return importlib.util.find_spec("PEPit") is not None


@rate(name=NAME, source=PAPER)
def proposition_3_3_worst_case(lab: Lab) -> Measurements:
    """The largest |F(y_{N-1})|^2 over all nonexpansive T in all dimensions is 4D^2/(a^2 N^2)."""
    claimed = [bounds.proposition_3_3(N, 1.0, 1.0) for N in HORIZONS]
    for name, make in (("OHM", lab.anchor), ("Dual-OHM", lab.dual)):
        worst = [worst_case(make, N) for N in HORIZONS]
        # 1e-4: solvers stop at 1e-8 or so, and the value is as exact as that times the multipliers
        yield equal(f"{name}, every T, N = {min(HORIZONS)} .. {max(HORIZONS)}", worst, claimed, 1e-4)


def worst_case(make: Callable[..., Method], N: int) -> float:
    """The largest |y_{N-1} - T y_{N-1}|^2 over nonexpansive T with a fixed point within 1 of the start.

    The method's own `update` runs on PEPit's points, which add up and multiply like arrays.
    """
    with warnings.catch_warnings(action="ignore"):  # an inaccurate solution is found by comparing it
        problem = optional_module("PEPit", "pep", NAME).PEP()
        T = problem.declare_function(optional_module("PEPit.operators", "pep", NAME).NonexpansiveOperator)
        root, _, _ = T.fixed_point()
        x0 = problem.set_initial_point()
        problem.set_initial_condition((x0 - root) ** 2 <= 1)
        method, s = make(step_size=1.0, horizon=N), State(x=x0, z=0 * x0, anchor=x0)
        for k in range(N - 1):
            method.update(k, s, s.x - T.gradient(s.x))
        problem.set_performance_metric((s.x - T.gradient(s.x)) ** 2)
        value = problem.solve(wrapper="cvxpy", verbose=0)
    return np.nan if value is None else float(value)
