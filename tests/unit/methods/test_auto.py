"""What the untuned default promises: no units, no harm from a wrong first step, rare samples, noise that vanishes."""

import numpy as np
import pytest
from tests.unit.front.samplers import codes

import dualanchor as da
from dualanchor.core.errors import ArgumentError
from dualanchor.methods.auto import Auto

A = np.random.default_rng(3).normal(size=(60, 8))
B = A @ np.arange(8.0)


def rows(scale_F=1.0, scale_x=1.0, root=B):
    """Row-sampled least squares, with values and points in other units."""

    def sample(x, n, rng):
        i = rng.integers(0, len(A), n)
        return scale_F * ((A[i] @ (x / scale_x) - root[i]) @ A[i]) / n

    return sample


def final(x, root=B):
    return np.linalg.norm((A @ x - root) @ A) / len(A)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("c", [2.0**-20, 2.0**20])
def test_the_units_of_F_do_not_matter(c, known):
    L = float((A**2).sum(axis=1).max())
    plain = da.root(rows(), np.ones(8), budget=1500, L=L if known else None)
    other = da.root(rows(c), np.ones(8), budget=1500, L=c * L if known else None)
    np.testing.assert_array_equal(other.x, plain.x)
    assert other.nfev == plain.nfev
    assert other.success == plain.success


@pytest.mark.parametrize("c", [2.0**-20, 2.0**20])
def test_the_units_of_x_do_not_matter(c):
    L = float((A**2).sum(axis=1).max())
    plain, other = (
        da.solve(
            da.Problem(da.Sampler(rows(1.0, scale), replayable=True), scale * np.ones(8)),
            Auto(scale / L, 1500),
            check=False,
        )
        for scale in (1.0, c)
    )
    np.testing.assert_array_equal(other.x / c, plain.x)


@pytest.mark.parametrize("c", [2.0**-20, 2.0**20, 1e-6, 1e6])
def test_the_units_of_x_do_not_matter_without_L(c):
    """As long as x0 is not 0: calibration looks within a part of |x0| first."""
    plain, other = (da.root(rows(1.0, scale), np.full(8, scale / 2), budget=1500) for scale in (1.0, c))
    np.testing.assert_allclose(other.x / c, plain.x, rtol=1e-6, atol=1e-12)
    assert other.nfev == plain.nfev
    assert other.success == plain.success


@pytest.mark.parametrize("c", [1e-6, 1e3])
def test_the_units_of_x_are_found_from_0(c):
    result = da.root(rows(1.0, c), np.zeros(8), budget=2000)
    assert result.success
    assert final(result.x / c) < 1e-3 * final(np.zeros(8))


@pytest.mark.parametrize("wrong", [0.01, 100.0])
def test_a_wrong_first_step_is_corrected_on_the_way(wrong):
    L = float((A**2).sum(axis=1).max())
    problem = da.Problem(da.Sampler(rows(), replayable=True), np.ones(8))
    result = da.solve(problem, Auto(wrong / L, 3000), reps=6, check=False)
    assert all(final(x) < 1e-6 * final(np.ones(8)) for x in result.x)


def test_noise_that_vanishes_lets_the_last_iterate_converge():
    L = float((A**2).sum(axis=1).max())
    for known in (L, None):
        result = da.root(rows(), np.ones(8), budget=3000, L=known)
        assert result.success
        assert final(result.x) < 1e-8 * final(np.ones(8))


def test_a_flat_start_is_left_behind():
    def sample(x, n, rng):
        return np.tanh(10 * (x - 1)) + 0.1 * rng.normal(size=x.shape) / np.sqrt(n)

    for seed in range(4):
        assert abs(da.root(sample, np.full(1, 30.0), budget=3000, seed=seed).x[0] - 1) < 0.01


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("noise", [1e-9, 0.1])
def test_a_plateau_is_left_without_overflows(noise):
    def sample(x, n, rng):
        return np.clip(20 * (x - 1), -1, 1) + noise * rng.normal(size=x.shape) / np.sqrt(n)

    assert abs(da.root(sample, [-30.0], budget=3000).x[0] - 1) < 0.01


@pytest.mark.filterwarnings("ignore::dualanchor.core.errors.AssumptionWarning")
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_samples_whose_squares_are_0_do_no_harm():
    def sample(x, n, rng):
        return (x - 1) * np.exp(-((x - 1) ** 2) / 2) + 0.0 * rng.normal(size=x.shape)

    assert not da.root(sample, [-30.0], budget=500).success


@pytest.mark.slow
def test_rare_samples_are_not_taken_for_noise_that_vanishes():
    def sparse(x, n, rng):
        return x - 10 * rng.binomial(n, 0.1, size=x.shape) / n

    problem = da.Problem(da.Sampler(sparse, replayable=True), np.zeros(1), constants=da.Constants(L=1.0))
    x = da.solve(problem, "auto", budget=10_000, reps=20).x
    assert np.sqrt(np.mean((x - 1) ** 2)) < 4 * 3 / np.sqrt(10_000)


def test_max_rounds_makes_larger_rounds():
    def sample(x, n, rng):
        sizes.append(n)
        return x - 1 + rng.normal(size=x.shape) / np.sqrt(n)

    sizes = []
    result = da.root(sample, np.zeros(2), budget=20_000, L=1.0, max_rounds=500)
    assert result.nit <= 500
    assert result.nfev <= 20_000
    assert "residual-grew" not in codes(result)
    with pytest.raises(ArgumentError, match="root: max_rounds must be"):
        da.root(sample, np.zeros(2), budget=8000, max_rounds=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dualanchor.core.errors.AssumptionWarning")
@pytest.mark.parametrize("budget", [100, 300, 2000])
@pytest.mark.parametrize("factor", [0.01, 1.0, 100.0, None])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_no_success_at_a_point_that_is_worse_than_the_start(budget, factor, noise):
    """True residuals are compared; the bends make steps that fit at x0 too long, or too short, at the root."""
    if factor is None and budget < 128:
        return
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])

    def F(x):
        return np.tanh(4 * (x - 1)) + turn @ (x - 1)

    def sample(x, n, rng):
        return F(x) + noise * rng.normal(size=2) / np.sqrt(n)

    for seed in range(6):
        with np.errstate(all="ignore"):
            result = da.root(sample, np.zeros(2), budget=budget, L=None if factor is None else 20 * factor, seed=seed)
        assert not result.success or np.linalg.norm(F(result.x)) <= np.linalg.norm(F(np.zeros(2)))


def test_samples_that_are_small_by_chance_do_not_stop_a_run():
    """The mean square of sixteen samples is a third of what it should be: the next ones seem to have grown."""
    A, b = np.array([[1.0, 2.0], [-2.0, 1.0]]), np.array([5.0, 0.0])

    def sample(x, n, rng):
        return A @ x - b + rng.normal(size=(n, 2)).mean(axis=0)

    result = da.root(sample, np.zeros(2), budget=5000, seed=0)
    assert np.linalg.norm(A @ result.x - b) < 0.1


@pytest.mark.slow
def test_an_iterate_that_is_back_where_it_was_does_not_stop_a_run():
    """Counts make it return to the same number exactly; 1 of 30 runs ended far away, where 10 times 0.07 is not."""

    def simulate(x, rng):
        return 20 - rng.poisson(40 * np.exp(-x))

    residuals = [abs(20 - 40 * np.exp(-da.root(da.each(simulate), 0.2, budget=2000, seed=s).x)) for s in range(30)]
    assert max(residuals) < 0.7


def test_a_first_step_that_is_far_too_long_for_dual_ohm_is_not_taken_by_it():
    problem = da.Problem(da.AdditiveNoise(lambda x: x - 3, 30.0, vectorized=True), np.zeros(1))
    result = da.solve(problem, Auto(6.0, 4000), budget=4000, reps=200, record=0, check=False)
    assert np.max(result.residual) < 6  # 12 standard deviations of a mean of all samples


def test_a_run_that_diverges_goes_back_and_takes_shorter_steps():
    """Without that, 4 of 10 runs gave up after a fifth of their samples."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 5))
    y = rng.gamma(2.0, np.exp(rows @ [0.5, -0.5, 0.3, 0.2, 0.0]) / 2)

    def score(b, rows, y):
        return rows * (1 - y * np.exp(-rows @ b))[:, None]

    oracle = da.FiniteSum.from_data((rows, y), score)
    for seed in range(10):
        result = da.root(oracle, np.zeros(5), budget=1000, seed=seed)
        assert result.status is not da.Status.DIVERGED
        assert np.linalg.norm(score(result.x, rows, y).mean(axis=0)) < 0.3  # 1.16 at the start


def test_a_result_says_where_dual_ohm_took_over():
    def bent(x, n, rng):
        return np.tanh(9 * x) + rng.normal(size=4) / np.sqrt(n)

    results = [da.root(bent, np.full(4, 5.0), budget=3600, L=9.0, seed=seed) for seed in range(6)]
    said = ["dual-ohm-took-over" in codes(result) for result in results]
    assert said == [bool(result.state["dual"][0]) for result in results]
    assert set(said) == {True, False}


@pytest.mark.slow
def test_samples_that_are_infinite_cost_a_part_of_a_run_and_not_the_run():
    """In every kind of stage, also in the last round of one."""

    def sample(x, n, rng):
        value = np.array([[1.0, 0.5], [-0.5, 1.0]]) @ (x - 0.5) + rng.normal(size=2) / np.sqrt(n)
        return np.full(2, np.inf) if rng.random() < 0.002 else value

    problem = da.Problem(da.Sampler(sample), np.array([3.0, -2.0]))
    with np.errstate(all="ignore"):
        result = da.solve(problem, Auto(0.5, 1000), reps=60, record=0, check=False)
    assert (result.status == da.Status.HORIZON).all()
    assert np.isfinite(result.x).all()
    assert np.median(np.linalg.norm(result.x - 0.5, axis=1)) < 0.2


@pytest.mark.parametrize("call", [16, 32])
def test_one_infinite_sample_at_the_end_of_a_segment_is_not_passed_on(call):
    calls = []

    def sample(x, n, rng):
        calls.append(n)
        return np.full(2, np.inf) if len(calls) == call else x - 0.5 + 0.1 * rng.normal(size=2)

    problem = da.Problem(da.Sampler(sample, replayable=False), np.ones(2))
    result = da.solve(problem, Auto(0.5, 400), budget=400, record=0, check=False)
    assert np.linalg.norm(result.x - 0.5) < 0.1


@pytest.mark.slow
def test_a_sample_that_throws_the_iterate_far_away_is_taken_back():
    """Counts with a logarithmic link: one long step up makes a sample of e^20, whose step leads to a plateau."""
    rng = np.random.default_rng(7)
    data = np.column_stack([rng.normal(size=(400, 5)), np.ones(400)])
    counts = rng.poisson(np.exp(data @ np.array([0.5, -0.5, 0.3, 0.2, -0.4, 1.5])))

    def sample(x, n, rng):
        i = rng.integers(0, 400, n)
        return (np.exp(np.minimum(data[i] @ x, 20.0)) - counts[i]) @ data[i] / n

    def residual(x):
        return np.linalg.norm((np.exp(np.minimum(data @ x, 20.0)) - counts) @ data) / 400

    problem = da.Problem(da.Sampler(sample, replayable=True), np.zeros(6))
    result = da.solve(problem, Auto(0.05, 1500), reps=40, check=False)
    assert max(residual(x) for x in result.x) < 1.0 < residual(np.zeros(6)) / 5


@pytest.mark.parametrize("sigma", [0.05, 0.5])
def test_a_step_held_by_the_distance_travelled_does_not_jump(sigma):
    """Short segments late in a run drift, and the longest step, which they never took, grew until it was taken."""
    game = np.block([[0.05 * np.eye(2), np.eye(2)], [-np.eye(2), 0.05 * np.eye(2)]])

    def sample(x, n, rng):
        return game @ (x - 1) + sigma * rng.normal(size=(n, 4)).mean(axis=0)

    result = da.root(sample, np.full(4, 4.0), budget=20_000, seed=1)
    assert result.success
    assert result.state["fourth"][0] < 100 * result.state["count"][0] * result.state["level"][0] ** 2


@pytest.mark.parametrize("known", [True, False])
def test_a_plateau_far_from_the_root_is_left(known):
    """Calibration sees a tiny slope there, which says nothing of where the root is."""
    root = np.array([1.0, -2.0, 0.5])

    def F(x):
        return (x - root) / np.sqrt(1 + (x - root) ** 2)

    def sample(x, n, rng):
        return F(x) + 0.3 * rng.normal(size=(n, 3)).mean(axis=0)

    for seed in range(3):
        result = da.root(sample, np.full(3, 1000.0), budget=3000, L=1.0 if known else None, seed=seed)
        assert result.success
        assert np.linalg.norm(F(result.x)) < 0.1  # the noise of the mean is about 0.01
