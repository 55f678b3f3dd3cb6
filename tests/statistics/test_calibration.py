"""How good calibrations are: on the named problems, on planted defects, and on innocent oracles.

The seeds are fixed. Next to each threshold stands how often correct code would fail it over all seeds; these rates were
measured over 50 to 400 seeds where no formula gives them.
"""

import numpy as np
import pytest
from scipy.stats import binom

import dualanchor as da
from dualanchor.advise.estimates import FALSE_ALARM, batch_findings
from dualanchor.advise.probes import StartSamples
from dualanchor.core.finding import VIOLATION
from dualanchor.core.streams import Purpose, Streams

pytestmark = pytest.mark.slow

SEEDS = [pytest.param(range(3), id="3 seeds"), pytest.param(range(3, 12), id="9 seeds", marks=pytest.mark.slow)]


def truth(problem, seed):
    """Sigma at x0, L of one sample, L of the mean and D of the instance that a seed makes."""
    oracle, x0, root = problem.instance(Streams(seed, np.arange(1), Purpose.INSTANCE))
    constants = problem.constants
    if oracle.components is None:
        return constants.sigma, constants.L, constants.L, constants.D
    n = oracle.components
    values = np.stack([oracle.mean(x0, da.Batch(1, np.array([[i]])))[0] for i in range(n)])
    sigma = np.sqrt(np.square(values - values.mean(axis=0)).sum(axis=1).mean())
    J = oracle.operator(np.eye(x0.shape[1]))  # linear, so the rows are the columns of the Jacobian
    return sigma, constants.L, np.linalg.eigvalsh(J)[-1], float(np.linalg.norm(x0 - root))


NAMED = [
    pytest.param(da.problems.worst_case_nonexpansive(), id="worst-case-nonexpansive"),
    pytest.param(da.problems.finite_sum_cocoercive(), id="finite-sum-cocoercive"),
    pytest.param(da.problems.affine(), id="affine"),
    pytest.param(da.problems.affine(rotation=0.0, mu=0.1, dimension=50), id="affine gradient"),
    pytest.param(da.problems.affine(rotation=1.0, dimension=2, sigma=3.0), id="affine in the plane"),
]


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("problem", NAMED)
def test_sigma_and_L_on_named_problems(problem, seeds):
    # Sigma: the standard error is largest for the finite sum, 2.3 %, where 10 % is 4.3 standard errors: 2e-5 per seed.
    # L of one sample is exact there and within 5 % on the others. L of the mean: 0.45 to 1.42 over 400 seeds.
    for seed in seeds:
        found = da.calibrate(problem, samples=2000, seed=seed)
        sigma, L, L_mean, D = truth(problem, seed)
        assert found.sigma == pytest.approx(sigma, rel=0.1)
        assert L / 2 <= found.local_L <= 2 * L
        assert L_mean / 3 <= found.local_L_mean <= 3 * L_mean
        assert D / 4 <= found.D_guess <= 4 * D
        assert found.D_at_least <= D
        assert found.violations == 0
        assert found.mu_at_most >= problem.constants.mu - 1e-12
        assert found.evals == 2000


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("sigma", [0.05, 1.5])
def test_huber_has_its_sigma_and_a_local_L_far_below_the_true_one(sigma, seeds):
    problem = da.problems.huber_minimax(sigma=sigma)
    for seed in seeds:  # the standard error of sigma is 0.2 %
        found = da.calibrate(problem, seed=seed)
        assert found.sigma == pytest.approx(sigma, rel=0.1)
        assert found.local_L < 0.1 * problem.constants.L
        assert found.shrink(problem.step_size) == problem.step_size
        assert not found.noise_grows
        assert not found.violations


def test_the_rotation_index_of_affine_problems():
    # With all directions and the same noise at both points it is exact: nothing is left to chance.
    for seed in range(5):
        for rotation, low, high in ((0.0, 0.0, 1e-6), (1.0, 0.35, 0.45)):
            found = da.calibrate(da.problems.affine(rotation=rotation), seed=seed)
            assert low <= found.rotation <= high


def test_the_rotation_index_in_high_dimension_and_with_noise_of_its_own():
    # From 64 of 2001 directions, true value 0.366, standard error 0.006: 9 standard errors.
    found = da.calibrate(da.problems.worst_case_nonexpansive())
    assert found.rotation == pytest.approx(0.366, abs=0.055)
    own = np.random.default_rng(0)
    turn = np.kron(np.eye(5), [[1.0, 1.0], [-1.0, 1.0]])  # index 1/2
    noisy = da.calibrate(lambda x, n, rng: turn @ x - 1 + 0.3 * own.normal(size=(n, 10)).mean(axis=0), np.zeros(10))
    assert noisy.rotation == pytest.approx(0.5, abs=0.1)  # the interval is 0.46 to 0.54


def test_rotation_that_noise_hides_is_not_reported():
    own = np.random.default_rng(0)
    noisy = lambda x, n, rng: x - 1 + 50 * own.normal(size=(n, 10)).mean(axis=0)  # noqa: E731
    assert da.calibrate(noisy, np.zeros(10), radius=3.0).rotation is None
    far = da.calibrate(noisy, np.zeros(10))  # without a radius it looks where differences stand out from the noise
    assert far.radius > 30
    assert far.rotation is None or far.rotation < 0.25


@pytest.mark.slow
def test_the_interval_of_sigma_covers():
    # 200 intervals of 95 %: at least 176 cover unless the true coverage is below 93 %; 2e-4 at the nominal coverage.
    own = np.random.default_rng(7)
    covered = 0
    for seed in range(200):
        scales = np.exp(own.normal(size=3))
        found = da.calibrate(
            lambda x, n, rng, scales=scales: x + scales * rng.normal(size=(n, 3)).mean(axis=0),
            np.ones(3),
            samples=300,
            seed=seed,
        )
        covered += found.sigma_interval[0] <= np.linalg.norm(scales) <= found.sigma_interval[1]
    assert covered >= 176


# 1e-4 is how often intervals of 95 % cover less often than this in 40 and in 60 independent calibrations.
AT_LEAST = {n: int(binom.ppf(1e-4, n, 0.95)) for n in (40, 60)}


def additive(x, n, rng):
    return x - 1 + 0.5 * rng.normal(size=(n, x.size)).mean(axis=0)


def rank_one(x, n, rng):
    a = rng.normal(size=(n, x.size))
    return (a * (a @ x - 1)[:, None]).mean(axis=0)


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("kind", [additive, rank_one])
def test_mu_at_most_covers(kind, replay):
    """Mu is 1; the bound of 95 % may be below it in 11 of 60 seeds: 1e-4 at the nominal coverage.

    Additive noise cancels where samples can be repeated: there the bound is exact up to rounding. Measured over 400
    seeds: 398 with additive noise of its own, 399 with rank-one data.
    """
    covered = 0
    for seed in range(60):
        own = None if replay else np.random.default_rng(seed)
        found = da.calibrate(lambda x, n, rng, own=own: kind(x, n, own or rng), np.full(3, 0.5), samples=300, seed=seed)
        assert found.mu_at_most < np.inf
        covered += found.mu_at_most >= 1
    assert covered >= AT_LEAST[60]


@pytest.mark.parametrize("samples", [400, 2000])
def test_the_interval_of_a_small_rotation_index_covers(samples):
    """The noise is in the rotation alone and the same along all directions; None counts as covering.

    9 of 40 intervals may miss: 1e-4 at the nominal coverage. An index above 0.1 is, with 2,000 samples, 4 standard
    errors off: 1e-3 over 40 seeds. With 400 samples 3 of 300 were above it, with intervals that cover.
    """
    index = 0.022
    turn = np.kron(np.eye(5), [[0.0, 1.0], [-1.0, 0.0]]) * index / (1 - index)

    def sample(x, n, rng):
        return x - 1 + (1 + 6 * rng.normal(size=n).mean()) * (turn @ x)

    covered = 0
    for seed in range(40):
        found = da.calibrate(sample, np.full(10, 0.5), samples=samples, seed=seed)
        if found.rotation is None:
            covered += 1
            continue
        low, high = found.rotation_interval
        assert low <= found.rotation <= high
        covered += low <= index <= high
        assert found.rotation <= 0.1 or samples < 2000
    assert covered >= AT_LEAST[40]


# -- planted defects: found ---------------------------------------------------------------------------------------


def sampler(slopes, sigma, own=None, proportional=False):
    slopes = np.asarray(slopes, dtype=float)

    def sample(x, n, rng):
        noise = sigma * (own or rng).normal(size=(n, x.size)).mean(axis=0)
        return slopes * x - 1 + (np.linalg.norm(x) * noise if proportional else noise)

    return sample


@pytest.mark.parametrize("d", [2, 10, 200])
@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("down", [-0.3, -2.0])
def test_negative_slopes_are_found(d, replay, down):
    # Power at -0.3, measured: 100 of 100 in each dimension, with the same noise at both points and without.
    slopes = np.ones(d)
    slopes[: max(1, d // 100)] = down
    own = None if replay else np.random.default_rng(d)
    found = da.calibrate(sampler(slopes, 0.1, own), np.zeros(d))
    assert 1 <= found.violations <= found.pairs
    assert found.mu_at_most < 0
    seen = {one.code: one for one in found.findings}
    assert (seen["not-monotone"].values["count"], seen["not-monotone"].severity) == (found.violations, VIOLATION)
    assert "gradient-like" not in seen


@pytest.mark.parametrize("d", [1, 2, 10, 200])
@pytest.mark.parametrize("replay", [True, False])
def test_a_wrong_sign_is_named(d, replay):
    own = None if replay else np.random.default_rng(d)
    found = da.calibrate(sampler(np.linspace(-2.0, -0.5, d), 0.1, own), np.zeros(d))
    assert found.decreasing
    assert found.findings[0].code == "decreasing"
    assert "-F" in str(found.findings[0])
    assert "not-monotone" not in {one.code for one in found.findings}


def test_a_saddle_that_is_not_monotone_is_not_called_decreasing():
    slopes = np.ones(10)
    slopes[:2] = -26.0
    for seed in range(5):
        found = da.calibrate(sampler(slopes, 0.1), np.zeros(10), seed=seed)
        assert found.violations
        assert not found.decreasing


@pytest.mark.parametrize("x0", [np.zeros(6), np.full(6, 0.5)])
@pytest.mark.parametrize("replay", [True, False])
def test_noise_that_grows_with_the_point_is_found(x0, replay):
    own = None if replay else np.random.default_rng(3)
    for seed in range(3):  # power, measured: 100 of 100 in each case
        found = da.calibrate(sampler(np.ones(6), 0.3, own, proportional=True), x0, seed=seed)
        assert found.noise_grows
        assert "noise-grows" in [one.code for one in found.warnings]


def test_the_noise_of_the_finite_sum_grows():
    # Power, measured: 399 of 400 seeds. Two misses in four seeds: 4e-5.
    grown = [da.calibrate(da.problems.finite_sum_cocoercive(), seed=seed).noise_grows for seed in range(4)]
    assert sum(grown) >= 3


ODD_BATCHES = {"biased-batches", "batch-variance"}
BATCHES = {
    "sum": lambda x, n, rng: (x - 1 + rng.normal(size=(n, x.size))).sum(axis=0),
    "one draw for all": lambda x, n, rng: x - 1 + rng.normal(size=x.size),
    "biased": lambda x, n, rng: x - 1 + 0.5 * (n > 1) + 0.3 * rng.normal(size=(n, x.size)).mean(axis=0),
    "sum without noise": lambda x, n, rng: n * (x - 1),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_odd_batches_are_found(kind):
    # Power, measured: 50 of 50 for each kind.
    found = da.calibrate(BATCHES[kind], np.zeros(8))
    odd = [one for one in found.findings if one.code in ODD_BATCHES]
    assert odd
    assert all(one.severity is VIOLATION for one in odd)


@pytest.mark.parametrize("constants", [{}, {"L": 1.0}], ids=["L unknown", "L given"])
@pytest.mark.parametrize(("kind", "code"), [("sum", "biased-batches"), ("one draw for all", "batch-variance")])
@pytest.mark.filterwarnings("ignore::dualanchor.core.errors.AssumptionWarning")
def test_a_small_run_names_odd_batches(kind, code, constants):
    """The calibration of a run of 2,000 samples has 100. Power, measured there: 500 of 500 for both kinds."""
    for seed in range(10):
        result = da.root(BATCHES[kind], np.zeros(4), budget=2000, seed=seed, **constants)
        assert code in {one.code for one in result.findings}


# -- innocent oracles: nothing is found ---------------------------------------------------------------------------

INNOCENT = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "skewed": lambda rng, shape: rng.exponential(size=shape) - 1,
    "heavy": lambda rng, shape: rng.standard_t(5, size=shape),
}


@pytest.mark.parametrize("law", INNOCENT)
@pytest.mark.parametrize("replay", [True, False])
def test_no_alarm_without_a_cause(law, replay):
    # Three kinds of alarm at 2e-4 each on 4 calibrations: 0.24 %; with the same noise at both points only the
    # comparison of batches is left to chance.
    own = np.random.default_rng(11)
    R = np.random.default_rng(1).normal(size=(4, 4))
    A = R @ R.T / 4 + (R - R.T) / 2

    def sample(x, n, rng):
        return A @ x - 1 + 0.5 * INNOCENT[law](rng if replay else own, (n, 4)).mean(axis=0)

    for seed in range(4):
        found = da.calibrate(sample, np.zeros(4), samples=1000, seed=seed)
        assert found.violations == 0
        assert not found.noise_grows
        assert not ODD_BATCHES & {one.code for one in found.findings}


@pytest.mark.parametrize("law", INNOCENT)
@pytest.mark.parametrize("d", [1, 5])
def test_batches_of_independent_samples_are_rarely_called_odd(law, d):
    # 500 comparisons at 2e-4 expect 0.1 alarms, and 3 or more come up in 2e-4 of all seeds. At a rate of 1 % they come
    # up in 88 %. Measured over 6,000 comparisons: 2e-4 for normal noise, at most 8e-4 for t5 in 30 dimensions.
    rng, alarms = np.random.default_rng(5), 0
    for _ in range(500):
        at = StartSamples(d, groups=32, eps=2e-16)
        for block in INNOCENT[law](rng, (24, 32, d)) + 1:
            at.add(block)
        alarms += bool(batch_findings(at, INNOCENT[law](rng, (8, 8, d)).mean(axis=1) + 1, 8))
    assert alarms < 3
    assert FALSE_ALARM == 2e-4


RARELY_LARGE = {
    "Pareto": lambda rng, shape: rng.pareto(2.1, size=shape) - 1 / 1.1,
    "t2.1": lambda rng, shape: rng.standard_t(2.1, size=shape),
    "rare": lambda rng, shape: 10.0 * (rng.random(shape) < 0.01) - 0.1,
}


@pytest.mark.parametrize("law", RARELY_LARGE)
@pytest.mark.parametrize("samples", [40, 250])
def test_one_rare_large_sample_does_not_make_batches_odd(law, samples):
    """Measured: 0 of 100 for each law; 1 to 14 of 100 if one batch is enough. At 1e-3, 2 or more come up in 0.3 %."""

    def sample(x, n, rng):
        return x - 1 + RARELY_LARGE[law](rng, (n, 4)).mean(axis=0)

    seen = [da.calibrate(sample, np.zeros(4), samples=samples, seed=seed).findings for seed in range(80)]
    assert sum(any(one.code in ODD_BATCHES for one in findings) for findings in seen) < 2


def test_means_that_the_library_computes_are_not_called_odd():
    """One component of 400 is far larger than the others: batches with it have a mean of their own."""
    values = np.zeros((400, 2))
    values[0] = 1e4
    finite_sum = da.FiniteSum(lambda x, i: x - values[i], 400)
    sample = da.Sampler(lambda x, n, rng: x - values[rng.integers(0, 400, n)].mean(axis=0))
    for seed in range(20):
        for samples in (40, 250):
            found = da.calibrate(finite_sum, np.zeros(2), samples=samples, seed=seed).findings
            assert not ODD_BATCHES & {one.code for one in found}
    assert finite_sum.independent_samples
    assert not sample.independent_samples
    assert not da.FiniteSum.from_data(values, lambda x, rows: x - rows, sampling="blocks", block=4).independent_samples


def rounded(seed, dtype):
    """A x - b without noise, from n copies whose mean is rounded, and a start near the root, where b cancels A x."""
    rng = np.random.default_rng(seed)
    R = rng.normal(size=(5, 5))
    A, root = (R @ R.T / 5 + np.eye(5)).astype(dtype), rng.normal(size=5).astype(dtype)
    b, gap = A @ root, 3000 * np.finfo(dtype).eps
    return lambda x, n, rng: np.mean(np.tile(A @ x, (n, 1)), axis=0) - b, (root * (1 + gap)).astype(dtype)


@pytest.mark.parametrize("samples", [16, 32, 64, 200, 2000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_is_no_violation(dtype, samples):
    """Nothing is random but the directions: no alarm in 6 calibrations of each kind. Measured: 0 of 860."""
    for seed in range(6):
        sample, x0 = rounded(seed, dtype)
        found = da.calibrate(sample, x0, samples=samples, seed=seed)
        assert not [one.code for one in found.findings if one.severity is VIOLATION]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore::dualanchor.core.errors.AssumptionWarning")
def test_rounding_does_not_make_batches_biased_in_a_run(dtype):
    """Nothing is random but the directions: no alarm in 10 runs of each kind, 20 in all."""
    for seed in range(10):
        sample, x0 = rounded(seed, dtype)
        result = da.root(sample, x0, budget=3000, seed=seed)
        assert not ODD_BATCHES & {one.code for one in result.findings}
