"""Error bars on x: the formulas they are to agree with, what they do not depend on, and what is turned down."""

import json

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, CapabilityError, OracleError
from dualanchor.oracles.composite import FixedPoint

N = 600
RNG = np.random.default_rng(5)
DESIGN = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))]) * [1.0, 1e4, 1e-5]
TARGETS = DESIGN @ [1.0, 2e-4, -3e5] + RNG.normal(size=N) * (1 + np.abs(DESIGN[:, 1]) / 1e4)
LABELS = (RNG.random(N) < 1 / (1 + np.exp(-DESIGN @ [0.5, 1e-4, -1e5]))).astype(float)
TURN = np.array([[1.0, 3.0], [-3.0, 1.0]])


def logistic(x, a, y):
    return a * (1 / (1 + np.exp(-a @ x)) - y)[:, None]


def sandwich(jacobian, values):
    """The textbook formula, J^-1 (sum of v v'/n) J^-T / n, for the n rows of values at the root."""
    inverse = np.linalg.inv(jacobian)
    return inverse @ (values.T @ values / len(values)) @ inverse.T / len(values)


def turning(x, n, rng):
    return TURN @ x - [1.0, 2.0] + rng.normal(size=(n, 2))


def cubic(x, n, rng):
    """Samples of x + x^3/3 - 1, the slope noisy as well."""
    slope, noise = rng.uniform(0.5, 1.5, size=(n, 1)), rng.normal(size=(n, 1))
    return slope * x + x**3 / 3 - 1 + noise


@pytest.mark.parametrize("form", ["rank one", "data", "function", "fixed point"])
def test_least_squares_has_the_robust_standard_errors(form):
    """HC0: the bread is (A'A)^-1, the filling sum e_i^2 a_i a_i'."""
    oracle = {
        "rank one": lambda: da.FiniteSum.rank_one(DESIGN, targets=TARGETS),
        "data": lambda: da.FiniteSum.from_data((DESIGN, TARGETS), lambda x, a, b: a * (a @ x - b)[:, None]),
        "function": lambda: da.FiniteSum(lambda x, i: DESIGN[i] * (DESIGN[i] @ x - TARGETS[i])[:, None], N),
        "fixed point": lambda: FixedPoint(
            da.FiniteSum(lambda x, i: x - DESIGN[i] * (DESIGN[i] @ x - TARGETS[i])[:, None], N)
        ),
    }[form]()
    fitted = np.linalg.lstsq(DESIGN, TARGETS, rcond=None)[0]
    values = DESIGN * (DESIGN @ fitted - TARGETS)[:, None]
    expected = sandwich(DESIGN.T @ DESIGN / N, values)
    found = da.infer(oracle, np.zeros(3))
    unit = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(found.covariance / np.outer(unit, unit), expected / np.outer(unit, unit), atol=1e-5)
    assert np.abs((found.estimate - fitted) / found.std_errors).max() < 1e-5
    assert (found.samples, found.population, found.degrees_of_freedom) == (N, True, N - 3)


def test_logistic_regression_has_the_robust_standard_errors():
    found = da.infer(da.FiniteSum.from_data((DESIGN, LABELS), logistic), np.zeros(3))
    p = 1 / (1 + np.exp(-DESIGN @ found.estimate))
    values = DESIGN * (p - LABELS)[:, None]
    expected = sandwich((DESIGN.T * (p * (1 - p))) @ DESIGN / N, values)
    assert np.abs(values.mean(axis=0) / values.std(axis=0)).max() * np.sqrt(N) < 0.02  # the likelihood equations
    np.testing.assert_allclose(found.std_errors, np.sqrt(np.diag(expected)), rtol=0.01)


def test_components_drawn_give_the_root_of_the_finite_sum():
    oracle = da.FiniteSum.rank_one(DESIGN, targets=TARGETS)
    exact = da.infer(oracle, np.zeros(3))
    drawn = da.infer(oracle, exact.estimate, samples=100 * N)
    assert not drawn.population
    np.testing.assert_allclose(drawn.std_errors, exact.std_errors / 10, rtol=0.25)  # of 128 groups, 6.3 %
    assert np.abs((drawn.estimate - exact.estimate) / drawn.std_errors).max() < 4


def test_the_estimate_is_the_root_of_the_mean_whatever_the_start():
    found, other = (da.infer(turning, x, samples=5000, seed=3) for x in ([0.0, 0.0], [-40.0, 70.0]))
    np.testing.assert_allclose(other.estimate, found.estimate, rtol=1e-9)
    np.testing.assert_allclose(other.std_errors, found.std_errors, rtol=1e-6)
    np.testing.assert_allclose(found.jacobian, TURN, rtol=1e-6)
    np.testing.assert_allclose(found.noise, np.eye(2), atol=0.35)
    assert np.abs(TURN @ found.estimate - [1.0, 2.0]).max() < 4 / np.sqrt(5000)


def test_the_covariance_is_that_of_the_mean_turned_by_the_jacobian():
    J, scales = np.array([[1.0, 2.0], [0.0, 0.5]]), np.array([1.0, 10.0])
    found = da.infer(lambda x, n, rng: J @ x + scales * rng.normal(size=(n, 2)), [0.1, 0.1], samples=100_000)
    expected = np.linalg.inv(J) @ np.diag(scales**2) @ np.linalg.inv(J).T / 100_000
    np.testing.assert_allclose(found.std_errors, np.sqrt(np.diag(expected)), rtol=0.25)  # of 128 groups, 6.3 %


@pytest.mark.parametrize("unit", [1e-9, 1e8])
@pytest.mark.parametrize("scale", [1e-9, 1e8])
def test_units_do_not_matter(unit, scale):
    plain = da.infer(cubic, [0.9], samples=2000)
    other = da.infer(lambda x, n, rng: scale * cubic(x / unit, n, rng), [0.9 * unit], samples=2000)
    np.testing.assert_allclose(other.estimate, plain.estimate * unit, rtol=1e-6)
    np.testing.assert_allclose(other.std_errors, plain.std_errors * unit, rtol=1e-3)


def test_a_start_at_zero_in_small_units():
    found = da.infer(lambda x, n, rng: 1e9 * x + rng.normal(size=(n, 2)), np.zeros(2), samples=1024)
    np.testing.assert_allclose(found.jacobian, 1e9 * np.eye(2), atol=1e3)


def test_a_step_function_is_differentiated_at_the_scale_of_the_noise():
    """A quantile, whose samples have derivative 0: the standard error is sqrt(q (1 - q)/n)/density."""
    found = da.infer(lambda x, n, rng: (rng.random((n, 1)) <= x) - 0.25, [0.25], samples=20_000)
    assert found.std_errors[0] == pytest.approx(np.sqrt(0.25 * 0.75 / 20_000), rel=0.3)


@pytest.mark.parametrize("seed", range(4))
def test_samples_that_share_no_noise_at_two_points(seed):
    """Counts are drawn by rejection: one that changes shifts all that follow."""
    found = da.infer(lambda x, n, rng: 18 - rng.poisson(30 * np.exp(-x), (n, 1)), [0.52], samples=1000, seed=seed)
    assert found.jacobian[0, 0] == pytest.approx(18, rel=0.4)
    assert abs(found.estimate[0] - np.log(30 / 18)) < 4 / np.sqrt(18 * 1000)


def test_noise_that_is_fresh_at_every_point():
    A = np.eye(3) + 0.3 * np.tril(np.ones((3, 3)), -1)

    def sample(x, n, rng):
        own = np.random.default_rng([int(rng.integers(2**31)), *x.view(np.uint64)])
        return A @ x - 1 + own.normal(size=(n, 3))

    found = da.infer(sample, np.linalg.solve(A, np.ones(3)) + 0.03, samples=1024)
    expected = np.linalg.inv(A) @ np.linalg.inv(A).T / 1024
    np.testing.assert_allclose(found.std_errors, np.sqrt(np.diag(expected)), rtol=0.3)


def test_a_coordinate_without_noise_has_no_error():
    def sample(x, n, rng):
        return np.column_stack([np.full(n, 3 * x[0] - 3), x[1] - x[0] + rng.normal(size=n)])

    found = da.infer(sample, [0.9, 0.9], samples=1024)
    assert found.std_errors[0] < 1e-9
    assert found.std_errors[1] == pytest.approx(1 / 32, rel=0.2)
    assert found.estimate[0] == pytest.approx(1, abs=1e-9)


def test_intervals():
    found = da.infer(turning, [0.0, 0.0], samples=4000, confidence=0.9)
    a = np.array([1.0, -2.0])
    lower, upper = found.interval(a)
    assert (lower + upper) / 2 == pytest.approx(a @ found.estimate)
    assert (upper - lower) / 2 == pytest.approx(1.657 * np.sqrt(a @ found.covariance @ a), rel=1e-3)  # t with 128
    np.testing.assert_array_equal(found.interval(), found.interval(np.eye(2)))
    np.testing.assert_allclose(found.interval()[:, 1] - found.estimate, 1.657 * found.std_errors, rtol=1e-3)
    assert np.ptp(found.interval(a, 0.99)) > np.ptp(found.interval(a))
    with pytest.raises(ArgumentError, match=r"interval: a must have shape \(2,\)"):
        found.interval([1.0, 2.0, 3.0])


@pytest.mark.parametrize("a", [["a", "b"], [1.0, np.nan], [1j, 0.0]])
def test_coefficients_of_an_interval_are_real_numbers(a):
    found = da.infer(da.AdditiveNoise(lambda x: 2 * x - 2, sigma=1.0), np.zeros(2), samples=64)
    with pytest.raises(ArgumentTypeError, match="interval: a must be real numbers"):
        found.interval(a)


def test_it_is_data_and_can_be_read():
    found = da.infer(turning, [0.0, 0.0], samples=1000)
    facts = json.loads(json.dumps(found.to_dict()))
    assert facts["samples"] == found.samples == 994  # 142 groups of 7
    assert facts["std_errors"] == found.std_errors.tolist()
    assert "994 fresh samples" in repr(found)
    assert "x[1]" in repr(found)
    many = da.infer(lambda x, n, rng: x + rng.normal(size=(n, 30)), np.zeros(30), samples=200)
    assert "and 10 more coordinates" in repr(many)


def test_of_a_result_and_of_a_problem():
    problem = da.Problem(da.Sampler(turning), [0.0, 0.0], constants=da.Constants(L=10.0))
    result = da.solve(problem, budget=500)
    of_result = result.infer(problem, samples=1000, seed=4, confidence=0.9)
    np.testing.assert_array_equal(of_result.estimate, da.infer(problem, result.x, samples=1000, seed=4).estimate)
    assert of_result.confidence == 0.9
    assert da.infer(problem, samples=1000).samples == 994


def test_the_same_seed_gives_the_same_numbers():
    one, same, other = (da.infer(turning, [0.0, 0.0], samples=500, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.covariance, same.covariance)
    assert (one.estimate != other.estimate).all()


def test_evaluations_are_counted():
    count = 0

    def sample(x, n, rng):
        nonlocal count
        count += n
        return turning(x, n, rng)

    assert da.infer(sample, [0.0, 0.0], samples=512).evals == count


@pytest.mark.slow
@pytest.mark.parametrize("library", ["float32", "torch", "jax"])
def test_other_arrays(library):
    start = np.zeros(2, np.float32)
    if library != "float32":
        module = pytest.importorskip("torch" if library == "torch" else "jax.numpy")
        start = module.asarray(start)
    found = da.infer(da.AdditiveNoise(lambda x: 2 * x - 2, sigma=1.0), start, samples=4096)
    np.testing.assert_allclose(found.jacobian, 2 * np.eye(2), atol=2e-3)
    np.testing.assert_allclose(found.std_errors, np.sqrt(0.5) / 2 / 64, rtol=0.2)


def hidden(x, n, rng):
    return x * (1e-3 + rng.normal(size=(n, 1))) + rng.normal(size=(n, 1))


def own_randomness():
    own = np.random.default_rng(0)
    return lambda x, n, rng: x + own.normal(size=(n, x.size))


def bounded():
    return da.root(turning, np.zeros(2), bounds=(0, 1), budget=300)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: da.infer(turning, [0.0, 0.0]), ArgumentError, "samples can be left out only"),
        (lambda: da.infer(turning, [0.0, 0.0], samples=31), ArgumentError, "samples must be at least 32"),
        (lambda: da.infer(da.FiniteSum.rank_one(DESIGN[:20]), np.ones(3)), ArgumentError, "must have 32 rows or more"),
        (lambda: da.infer(turning, np.zeros(501), samples=5000), CapabilityError, "500 coordinates at most"),
        (lambda: da.infer(turning, np.zeros((2, 2)), samples=500), ArgumentError, "x must be one point"),
        (lambda: bounded().infer(turning, samples=500), CapabilityError, "x must be a root of F itself"),
        (lambda: da.infer(own_randomness(), [0.0], samples=500), CapabilityError, "must be repeatable"),
        (lambda: da.infer(lambda x, n, rng: x, [1.0], samples=500), ArgumentError, "samples must be noisy"),
        (lambda: da.infer(hidden, [1.0], samples=500), ArgumentError, "must be seen to be invertible"),
        (
            lambda: da.infer(lambda x, n, rng: x.sum() * np.ones(2) + rng.normal(size=(n, 2)), [0.0, 0.0], samples=500),
            ArgumentError,
            "no change of F in some direction",
        ),
        (
            lambda: da.infer(lambda x, n, rng: 9 + x**2 + rng.normal(size=(n, 1)), [1.0], samples=500),
            ArgumentError,
            "near enough to a root",
        ),
        (lambda: da.infer(lambda x, n, rng: x + np.inf, [1.0], samples=500), OracleError, "must be finite"),
        (lambda: da.infer(da.FiniteSum(lambda x, i: 1 / 0, 50), [1.0]), OracleError, "must not raise"),
        (
            lambda: da.infer(da.engines.Local(2).attach(da.FiniteSum(lambda x, i: x - i[:, None], 50)), [1.0]),
            CapabilityError,
            "say how many samples",
        ),
    ],
)
def test_what_is_turned_down(call, error, text):
    with np.errstate(invalid="ignore"), pytest.raises(error, match=text):
        call()
