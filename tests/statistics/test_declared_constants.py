"""What problems declare is tested, not trusted: L, mu, M, sigma, D and the root of each, with several options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.statistics import constants as check

import dualanchor as da

pytestmark = pytest.mark.slow

DEFAULT = [(entry.id, {}) for entry in da.list_problems()]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("affine", {"dimension": 7, "L": 4.0, "mu": 0.3, "rotation": 0.0, "sigma": 2.0, "D": 3.0}),
    ("affine", {"dimension": 6, "L": 0.5, "mu": 0.1, "rotation": 1.0, "sigma": 0.5, "D": 10.0}),
    ("affine", {"dimension": 9, "mu": 1.0}),
    ("finite-sum-cocoercive", {"components": 25, "dimension": 10, "rank": 9}),
    ("finite-sum-cocoercive", {"components": 8, "dimension": 12, "rank": 12}),
    ("huber-minimax", {"sigma": 1.5}),
    ("huber-minimax", {"dimension": 8, "mu": 1.0, "delta": 0.5, "nu": 0.1, "sigma": 1.0}),
    ("worst-case-nonexpansive", {"dimension": 11, "sigma": 1.0}),
    ("worst-case-nonexpansive", {"dimension": 4, "sigma": 0.5}),
]

# Constants that cannot be made better by 2 %, and where that shows.
ATTAINED: list[tuple[str, dict[str, Any], str, float, Callable[..., None]]] = [
    ("affine", {}, "L", 0.98, check.jacobian_constants),
    ("affine", {}, "M", 0.98, check.jacobian_constants),
    ("affine", {"mu": 0.3}, "mu", 1.02, check.jacobian_constants),
    ("affine", {}, "L", 0.5, check.cocoercive_in_expectation),
    ("affine", {}, "sigma", 0.8, check.variance),
    ("affine", {}, "sigma", 1.25, check.variance_is_attained),
    ("finite-sum-cocoercive", {}, "L", 0.98, check.cocoercive_in_expectation),
    ("huber-minimax", {"dimension": 10}, "mu", 1.02, check.jacobian_constants),
    ("huber-minimax", {}, "sigma", 0.8, check.variance),
    ("huber-minimax", {}, "sigma", 1.25, check.variance_is_attained),
    ("worst-case-nonexpansive", {"dimension": 11}, "L", 0.98, check.jacobian_constants),
    ("worst-case-nonexpansive", {"dimension": 11}, "M", 0.98, check.jacobian_constants),
    ("worst-case-nonexpansive", {}, "L", 0.98, check.operator_constants),
    ("worst-case-nonexpansive", {}, "L", 0.98, check.cocoercive_in_expectation),
    ("worst-case-nonexpansive", {}, "sigma", 0.8, check.variance),
    ("worst-case-nonexpansive", {}, "sigma", 1.25, check.variance_is_attained),
]


def make(name: str, options: dict[str, Any]) -> Any:
    return da.problems.make(name, options)


# A finite sum is noisier far from its root; the others add the same noise everywhere.
NOISE_IS_CONSTANT = [case for case in [*DEFAULT, *VARIANTS] if make(*case).components is None]


def _label(case: tuple[str, dict[str, Any]]) -> str:
    name, options = case[:2]
    return " ".join([name, *(f"{key}={value}" for key, value in options.items())])


def over(cases: list[tuple[str, dict[str, Any]]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("name", "options"), cases, ids=map(_label, cases))


@over([*DEFAULT, *VARIANTS])
def test_the_root_is_a_root(name: str, options: dict[str, Any]) -> None:
    check.root_is_a_root(make(name, options))


@over([*DEFAULT, *VARIANTS])
def test_L_mu_and_M_hold_between_random_points(name: str, options: dict[str, Any]) -> None:
    problem = make(name, options)
    check.operator_constants(problem, problem.constants)


@over([case for case in [*DEFAULT, *VARIANTS] if make(*case).dimension <= 100])
def test_L_mu_and_M_hold_in_the_worst_direction(name: str, options: dict[str, Any]) -> None:
    problem = make(name, options)
    check.jacobian_constants(problem, problem.constants)


@over([*DEFAULT, *VARIANTS])
def test_L_holds_in_expectation(name: str, options: dict[str, Any]) -> None:
    problem = make(name, options)
    check.cocoercive_in_expectation(problem, problem.constants)


@over([*DEFAULT, *VARIANTS])
def test_sigma_bounds_the_noise(name: str, options: dict[str, Any]) -> None:
    """1200 samples at three places. False failures: 1e-6 each, 4e-5 in all.

    For noise that does not depend on the point, sigma declared 20 % too small is found (see the cases of ATTAINED).
    """
    problem = make(name, options)
    check.variance(problem, problem.constants)


@over(NOISE_IS_CONSTANT)
def test_sigma_is_the_noise(name: str, options: dict[str, Any]) -> None:
    """1200 samples. False failures: 2e-6 each, 2e-5 in all.

    The standard error of sigma^2 is at most sqrt(2/4/1200) = 2 % (d = 4), so sigma wrong by 8 % is found with 99 %.
    """
    problem = make(name, options)
    check.variance_is_attained(problem, problem.constants)


@over([*DEFAULT, *VARIANTS])
def test_D_is_the_root_mean_square_distance(name: str, options: dict[str, Any]) -> None:
    """200 replications for small problems, 60 else. False failures: 2e-6 each (1.3e-5 for 60, Student), 7e-5 in all.

    The standard error of D^2 is at most 5 % (d = 4), so D wrong by 18 % is found with 99 %, and 5 % at the sizes of the
    paper; a start that is not random has no error.
    """
    problem = make(name, options)
    check.distance(problem, problem.constants, rows=200 if problem.dimension <= 100 else 60)


@pytest.mark.parametrize(("name", "options", "constant", "factor", "holds"), ATTAINED)
def test_better_constants_than_the_declared_are_rejected(
    name: str, options: dict[str, Any], constant: str, factor: float, holds: Callable[..., None]
) -> None:
    problem = make(name, options)
    declared = problem.constants
    holds(problem, declared)
    with pytest.raises(AssertionError):
        holds(problem, replace(declared, **{constant: factor * getattr(declared, constant)}))


@pytest.mark.parametrize("factor", [0.9, 1.1])
@over(DEFAULT)
def test_another_D_is_rejected(name: str, options: dict[str, Any], factor: float) -> None:
    problem = make(name, options)
    with pytest.raises(AssertionError):
        check.distance(problem, replace(problem.constants, D=factor * problem.constants.D), rows=60)


def test_sigma_of_the_finite_sum_is_the_worst_at_distance_D() -> None:
    """The largest variance on the sphere of radius D, exact for 30 instances of the paper's size.

    It is D^2 x (1-x) at the eigenvalue x of the mean projection that is nearest to 1/2. The declared value is a limit:
    instances may be above it by 2 % (0.4 % is the largest seen) and are below it by less than 6 %.
    """
    problem = da.problems.finite_sum_cocoercive()
    constants, d = problem.constants, problem.dimension
    every, _, roots = check.instances(problem, 30)
    for replication in range(30):
        oracle = every.take(np.full(d, replication))  # all rows of one instance
        A = check.operator_of(oracle, roots[replication] + np.eye(d))
        eigenvalues = np.linalg.eigvalsh((A + A.T) / 2)
        largest = constants.D * np.sqrt((eigenvalues * (1 - eigenvalues)).max())
        assert 0.94 <= largest / constants.sigma <= 1.02


@pytest.mark.parametrize("rotation", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("dimension", [10, 11])
def test_the_spectrum_of_affine_turns_from_a_segment_to_a_circle(rotation: float, dimension: int) -> None:
    """Eigenvalues t +- i rho sqrt((t-mu)(L-t)): real on [mu, L] for rho = 0, on the circle over it for rho = 1."""
    mu, L = 0.2, 3.0
    problem = da.problems.affine(dimension=dimension, L=L, mu=mu, rotation=rotation)
    oracle, _, root = check.instances(problem, dimension)
    A = check.operator_of(oracle, root + np.eye(dimension)).T
    np.testing.assert_allclose(A @ A.T, A.T @ A, atol=1e-13)  # normal
    eigenvalues = np.linalg.eigvals(A)
    t = np.linspace(mu, L, (dimension + 1) // 2)
    np.testing.assert_allclose(np.unique(np.round(eigenvalues.real, 9)), t, atol=1e-9)
    height = np.sqrt((eigenvalues.real - mu).clip(0) * (L - eigenvalues.real).clip(0))
    np.testing.assert_allclose(np.abs(eigenvalues.imag), rotation * height, atol=1e-6)
    from_center = np.abs(eigenvalues - (mu + L) / 2)
    if rotation == 1.0:
        np.testing.assert_allclose(from_center, (L - mu) / 2, rtol=1e-9)
    assert (from_center <= (L - mu) / 2 * (1 + 1e-9)).all()
