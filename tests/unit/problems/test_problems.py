"""The named problems: operators, declared constants, replications."""

import numpy as np
import pytest
from tests.contract.cases import small

import dualanchor as da
from dualanchor.core.streams import Purpose

ROWS = 3
every_problem = pytest.mark.parametrize("entry", da.list_problems(), ids=lambda entry: entry.id)


def instance(problem, replications=range(ROWS), seed=4):
    return problem.instance(da.Streams(seed, np.array(list(replications)), Purpose.INSTANCE))


@every_problem
def test_the_operator_is_cocoercive_monotone_and_lipschitz_as_declared(entry):
    problem = small(entry)
    oracle, _, _ = instance(problem)
    constants, rng = problem.constants, np.random.default_rng(0)
    for scale in (1e-5, 1e-2, 1.0, 100.0):
        x, y = scale * rng.normal(size=(2, ROWS, problem.dimension))
        dF, dx = oracle.operator(x) - oracle.operator(y), x - y
        inner, square = np.sum(dF * dx, axis=1), np.sum(dx * dx, axis=1)
        slack = 1e-13 * (square + np.sqrt(square))  # differences of values of order one
        assert (inner >= np.sum(dF * dF, axis=1) / constants.L - slack).all()
        assert (inner >= constants.mu * square - slack).all()
        assert (np.sum(dF * dF, axis=1) <= constants.M**2 * square + slack).all()


@every_problem
def test_a_replication_is_the_same_alone_and_among_others(entry):
    problem = small(entry)
    many, alone = instance(problem), instance(problem, [2])
    np.testing.assert_array_equal(many.x0[2], alone.x0[0])
    np.testing.assert_array_equal(many.root[2], alone.root[0])
    x = np.random.default_rng(1).normal(size=(1, problem.dimension))
    np.testing.assert_array_equal(many.oracle.take(np.array([2])).operator(x), alone.oracle.operator(x))


@every_problem
@pytest.mark.parametrize("dimension", [1, 2, 3, 7])
def test_small_dimensions_are_problems_too(entry, dimension):
    """The root is one, the start is not, and the declared distance is about right."""
    try:
        problem = small(entry, dimension=dimension, **({"rank": 1} if "rank" in entry.cls.option_names() else {}))
    except da.errors.ArgumentError:
        return  # a dimension that is refused is refused for a reason
    oracle, x0, root = instance(problem, range(20))
    np.testing.assert_allclose(oracle.operator(root), 0.0, atol=1e-12)
    assert (np.linalg.norm(oracle.operator(x0), axis=1) > 0).any()


def test_worst_case_by_hand():
    problem = da.problems.worst_case_nonexpansive(dimension=3, sigma=0.0)
    oracle, x0, root = instance(problem)
    np.testing.assert_array_equal(x0, 0.0)
    shift = root - 1 / np.sqrt(3)
    x = np.array([[1.0, 2.0, 3.0]] * ROWS)
    y = x - shift
    H = np.stack([y[:, 2] - 2 / np.sqrt(3), -y[:, 0], -y[:, 1]], axis=1)
    np.testing.assert_allclose(oracle.operator(x), H + y, rtol=1e-13)
    assert problem.constants.L == 2.0
    assert problem.constants.D == 2.0


def test_finite_sum_by_hand():
    problem = da.problems.finite_sum_cocoercive(components=6, dimension=4, rank=3)
    oracle, x0, root = instance(problem)
    np.testing.assert_array_equal(root[:, 3], x0[:, 3])
    np.testing.assert_array_equal(root[:, :3], 0.0)
    x = np.random.default_rng(0).normal(size=(ROWS, 4))
    generators = da.Streams(4, np.arange(ROWS), Purpose.INSTANCE).generators()
    for row, rng in enumerate(generators):
        q = rng.standard_normal((6, 3))
        q /= np.linalg.norm(q, axis=1, keepdims=True)
        expected = np.append(q.T @ (q @ x[row, :3]) / 6, 0.0)
        np.testing.assert_allclose(oracle.operator(x)[row], expected, rtol=1e-12)
    starts = [10 * rng.standard_normal(4) for rng in da.Streams(4, np.arange(ROWS), Purpose.START).generators()]
    np.testing.assert_array_equal(x0, starts)


def test_huber_by_hand():
    problem = da.problems.huber_minimax(dimension=4, sigma=0.0, mu=0.2, delta=0.1, nu=0.5)
    oracle, x0, _ = instance(problem)
    np.testing.assert_allclose(np.linalg.norm(x0, axis=1), 1.0)
    z = np.array([[2.0, -0.1, 0.3, -4.0]] * ROWS)
    expected = [
        0.9 * 0.5 + 0.1 * 0.3 + 0.2 * 2.0,
        0.9 * -0.1 + 0.1 * -4.0 + 0.2 * -0.1,
        -0.1 * 2.0 + 0.9 * 0.3 + 0.2 * 0.3,
        -0.1 * -0.1 + 0.9 * -0.5 + 0.2 * -4.0,
    ]
    np.testing.assert_allclose(oracle.operator(z), [expected] * ROWS, rtol=1e-13)
    assert pytest.approx(1.2**2 / 0.2) == problem.constants.L
    assert problem.step_size == pytest.approx(0.2 / 1.2**2)


@pytest.mark.parametrize("dimension", [4, 5, 8])
@pytest.mark.parametrize("rotation", [0.0, 0.5, 1.0])
def test_affine_has_the_spectrum_it_declares(dimension, rotation):
    problem = da.problems.affine(dimension=dimension, L=3.0, mu=0.5, rotation=rotation, D=2.0)
    oracle, x0, root = instance(problem, [0])
    basis = np.eye(dimension)
    matrix = np.stack([oracle.operator(root + e)[0] for e in basis], axis=1)
    values = np.linalg.eigvals(matrix)
    assert values.real.min() == pytest.approx(0.5)
    assert values.real.max() == pytest.approx(3.0)
    on_curve = rotation * np.sqrt(np.maximum(0, (values.real - 0.5) * (3.0 - values.real)))
    np.testing.assert_allclose(np.abs(values.imag), on_curve, atol=1e-7)
    assert np.linalg.norm(x0 - root) == pytest.approx(2.0)
