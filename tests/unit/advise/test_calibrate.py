"""What a calibration counts, refuses and says."""

import json
import random
import re

import numpy as np
import pytest

import dualanchor as da
from dualanchor.advise.calibrate import MIN_SAMPLES
from dualanchor.advise.estimates import lowest_combination

pytestmark = pytest.mark.slow


def codes(found):
    return [one.code for one in found.findings]


def linear(A, b=1.0, sigma=0.5):
    """A sampler of A x - b that takes its noise from the generator it is given."""
    A = np.asarray(A, dtype=float)

    def sample(x, n, rng):
        return A @ x - b + sigma * rng.normal(size=(n, x.size)).mean(axis=0)

    return sample


def hidden(A, b=1.0, sigma=0.5, seed=0):
    """The same with noise of its own: no batch can be had twice."""
    own = np.random.default_rng(seed)
    inner = linear(A, b, sigma)
    return lambda x, n, rng: inner(x, n, own)


class Counting:
    """A sampler that counts what it is asked for."""

    def __init__(self, sample):
        self.sample, self.evals, self.calls = sample, 0, 0

    def __call__(self, x, n, rng):
        self.evals += n
        self.calls += 1
        return self.sample(x, n, rng)


# -- counting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [linear, hidden])
@pytest.mark.parametrize("samples", [16, 17, 31, 32, 63, 64, 65, 100, 255, 511, 777, 2000])
def test_every_evaluation_is_counted_and_the_limit_is_kept(kind, samples):
    for d in (1, 2, 7):
        counting = Counting(kind(np.eye(d)))
        found = da.calibrate(counting, np.zeros(d), samples=samples)
        assert found.evals == counting.evals == samples == found.samples
        assert counting.calls <= found.evals


def test_draws_are_evaluations_less_repetitions():
    once = da.calibrate(hidden(np.eye(3)), np.zeros(3), samples=500)
    assert once.draws == once.evals - 1  # only the very first batch is asked for again
    again = da.calibrate(linear(np.eye(3)), np.zeros(3), samples=500)
    assert again.draws < again.evals


def test_the_same_seed_gives_the_same_and_another_seed_other_numbers():
    first, second, other = (da.calibrate(da.problems.affine(), samples=300, seed=seed) for seed in (3, 3, 4))
    assert first == second
    assert first.sigma != other.sigma


def test_samples_are_independent_of_those_of_a_run():
    problem, seen = da.problems.affine(dimension=2), []
    sampler = da.Sampler(lambda x, n, rng: (seen.append(rng.normal()), x)[1])
    da.calibrate(sampler, np.ones(2), samples=64)
    pilot = set(seen)
    seen.clear()
    da.solve(da.Problem(sampler, np.ones(2), constants=problem.constants), "sgda", budget=64)
    assert seen
    assert not pilot & set(seen)


def test_the_points_given_stay_untouched():
    x0 = np.ones(4)
    da.calibrate(linear(np.eye(4)), x0, samples=64)
    np.testing.assert_array_equal(x0, np.ones(4))


def test_a_result_is_a_point():
    problem = da.problems.affine()
    result = da.solve(problem, "sgda", budget=200)
    assert da.calibrate(problem, result, samples=64).evals == 64


# -- bad input ---------------------------------------------------------------------------------------------------

GOOD = linear(np.eye(2))


@pytest.mark.parametrize(
    ("call", "error", "parts"),
    [
        (lambda: da.calibrate(GOOD, [0.0, 0.0], samples=15), ValueError, ("samples", "16", "15")),
        (lambda: da.calibrate(GOOD, [0.0, 0.0], samples=1000.5), TypeError, ("samples", "1000.5")),
        (lambda: da.calibrate(GOOD, [0.0, 0.0], samples=True), TypeError, ("samples", "True")),
        (lambda: da.calibrate(GOOD, [0.0, 0.0], seed=-1), ValueError, ("seed", "-1")),
        (lambda: da.calibrate(GOOD, [0.0, 0.0], radius=0.0), ValueError, ("radius", "0.0", "positive")),
        (lambda: da.calibrate(GOOD, [0.0, 0.0], radius=np.inf), ValueError, ("radius", "inf")),
        (lambda: da.calibrate(GOOD, [0.0, 0.0], radius="far"), TypeError, ("radius", "'far'")),
        (lambda: da.calibrate(GOOD, [0.0, 0.0], confidence=1.0), ValueError, ("confidence", "1.0")),
        (lambda: da.calibrate(GOOD, [0.0, 0.0], confidence=None), TypeError, ("confidence", "None")),
        (lambda: da.calibrate(GOOD), TypeError, ("calibrate", "Problem")),
        (lambda: da.calibrate(GOOD, {"a": "far"}), TypeError, ("calibrate", "real numbers", "'far'")),
        (lambda: da.calibrate(da.Sampler(GOOD), np.zeros((1, 1, 2))), ValueError, ("calibrate", "(d,)")),
        (lambda: da.calibrate(da.Sampler(GOOD), np.zeros((2, 2))), ValueError, ("one point", "2 points")),
        (lambda: da.calibrate(GOOD, [[0.0], [0.0, 1.0]]), TypeError, ("calibrate", "real numbers", "list")),
        (lambda: da.calibrate(GOOD, [0.0, np.nan]), ValueError, ("finite", "nan")),
        (lambda: da.calibrate(da.problems.affine(), np.zeros(3)), ValueError, ("(20,)", "(3,)")),
        (lambda: da.calibrate(3.0, [0.0]), TypeError, ("oracle", "float", "Sampler")),
        (lambda: da.calibrate(lambda x: x, [0.0]), TypeError, ("(x, n, rng)",)),
    ],
)
def test_bad_arguments_are_named(call, error, parts):
    with pytest.raises(error) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (lambda x, n, rng: np.full(2, np.nan), "NaN"),
        (lambda x, n, rng: np.full(2, np.inf), "inf"),
        (lambda x, n, rng: np.zeros(3), "shape (3,)"),
        (lambda x, n, rng: 1 / 0, "ZeroDivisionError"),
        (lambda x, n, rng: np.array(["a", "b"]), "dtype"),
    ],
)
def test_a_broken_oracle_is_named(sample, message):
    with pytest.raises(da.errors.OracleError, match=re.escape(message)):
        da.calibrate(sample, np.zeros(2), samples=64)


def test_an_oracle_that_is_defined_only_nearby_is_calibrated_there():
    def sample(x, n, rng):
        if np.abs(x).max() > 2:
            raise ValueError("outside of the domain")
        return x - 1 + 0.1 * rng.normal(size=(n, 3)).mean(axis=0)

    found = da.calibrate(sample, np.zeros(3))
    (far,) = (one for one in found.findings if one.code == "no-far-samples")
    assert "outside of the domain" in str(far)
    assert abs(found.sigma / (0.1 * 3**0.5) - 1) < 0.1
    assert found.evals == 2000


# -- what it says ------------------------------------------------------------------------------------------------


def test_a_step_is_shrunk_and_never_enlarged():
    found = da.calibrate(da.problems.huber_minimax())
    assert found.local_L < 0.5  # far below the true constant of 12.1, and that is why
    assert found.largest_step == 1 / (2 * max(found.local_L, found.local_L_mean))
    assert found.shrink(0.05) == 0.05
    assert found.shrink(1e6) == found.largest_step
    assert found.constants() == da.Constants(sigma=found.sigma, D=found.D_guess)
    assert found.constants().L is None


def test_without_noise_it_says_so():
    found = da.calibrate(lambda x, n, rng: x - 1, np.zeros(4))
    assert found.sigma == 0 == found.sigma_interval[1]
    assert "no-noise" in codes(found)
    assert found.residual == pytest.approx(2.0)
    assert found.D_guess == pytest.approx(2.0)
    assert not found.warnings


@pytest.mark.parametrize("sigma", [0.0, 0.5])
def test_at_a_root_nothing_breaks(sigma):
    found = da.calibrate(linear(np.diag([1.0, 2.0, 3.0]), b=0.0, sigma=sigma), np.zeros(3))
    assert found.local_L == pytest.approx(3.0, rel=0.2)
    assert not found.violations
    assert not found.noise_grows
    assert found.residual_interval[0] == 0


def test_a_constant_operator_limits_nothing():
    found = da.calibrate(linear(np.zeros((3, 3))), np.zeros(3))
    assert found.local_L is None
    assert found.largest_step is None
    assert found.shrink(7.0) == 7.0
    assert found.D_guess is None
    assert found.D_at_least == 0


def test_rotation_without_pull_is_not_cocoercive_but_monotone():
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    found = da.calibrate(linear(turn), np.zeros(2))
    assert found.local_L == np.inf
    assert found.local_M == pytest.approx(1.0)
    assert found.largest_step == pytest.approx(0.5)
    assert found.violations == 0
    assert found.not_cocoercive == found.pairs
    assert found.rotation == pytest.approx(1.0)
    (found,) = found.warnings
    assert (found.code, found.severity) == ("not-cocoercive", da.Severity.VIOLATION)
    assert "extragradient" in str(found)


@pytest.mark.parametrize("samples", [16, 32, 64, 100])
def test_few_samples_show_what_is_far_off(samples):
    found = da.calibrate(linear(-np.diag([1.0, 2.0, 3.0, 4.0])), np.ones(4), samples=samples)
    assert found.findings[0].code == "decreasing"
    found = da.calibrate(linear(np.diag([1.0, 2.0, 3.0, 4.0]), b=100.0), np.zeros(4), samples=samples)
    assert 1.5 < found.L_at_least <= 4.0 + 1e-9
    assert 100 < found.residual_at_least <= 200
    assert not found.warnings


@pytest.mark.parametrize("samples", [16, 32, 64, 2000])
def test_a_domain_is_kept_to(samples):
    def sample(x, n, rng):
        assert (x >= 0).all()
        assert (x <= 1).all()
        return x * [1.0, -26.0, 1.0] + rng.normal(size=(n, 3)).mean(axis=0)

    found = da.calibrate(sample, np.array([0.0, 1.0, 0.5]), samples, project=lambda x: np.clip(x, 0, 1))
    assert found.evals == samples
    assert found.violations or samples < 64
    assert "no-far-samples" not in codes(found)


def test_growing_noise_is_given_in_numbers():
    def sample(x, n, rng):
        return x - 1 + 0.5 * rng.normal(size=(n, 2)).mean(axis=0) + 2 * x * rng.normal(size=(n, 1)).mean(axis=0)

    (found,) = (one for one in da.calibrate(sample, np.zeros(2)).findings if one.code == "noise-grows")
    assert found.values["sigma_at_x0"] == pytest.approx(0.5 * 2**0.5, rel=0.1)
    assert found.values["growth"] == pytest.approx(2, rel=0.3)
    assert found.values["sigma"] > found.values["sigma_at_x0"]
    assert "sqrt(" in str(found)


def test_a_hidden_start_comes_with_a_bound():
    found = da.calibrate(linear(np.eye(2), b=0.0), np.zeros(2), samples=200)
    (hidden,) = (one for one in found.findings if one.code == "start-not-visible")
    assert hidden.values["at_most"] == found.residual_interval[1] > 0


def test_samples_that_cannot_be_had_again_are_said_to_be_so():
    found = da.calibrate(hidden(np.eye(5)), np.zeros(5))
    assert not found.replayable
    assert found.local_L is None
    low, high = found.local_L_mean_interval
    assert low < 1 < high
    assert high > low  # exact with the same noise at both points
    assert [one.code for one in found.warnings] == ["own-randomness", "not-replayable"]


def test_generators_of_the_process_are_seen_to_be_used_even_if_values_agree():
    def rare(x, n, rng):
        return x - 1 + rng.normal(size=5) / n**0.5 + (random.random() < 1e-9)

    def seeded(x, n, rng):
        random.seed(int(rng.integers(2**32)))
        return x - 1 + np.array([random.gauss() for _ in range(5)]) / n**0.5

    found = da.calibrate(rare, np.zeros(5), samples=200)
    assert [one.code for one in found.warnings] == ["own-randomness", "not-replayable"]
    assert da.calibrate(seeded, np.zeros(5), samples=200).replayable


def test_an_oracle_that_declares_that_is_believed():
    found = da.calibrate(da.Sampler(linear(np.eye(5)), replayable=False), np.zeros(5), samples=200)
    assert not found.replayable
    assert found.draws == found.evals


def test_a_broken_promise_is_reported():
    found = da.calibrate(da.Sampler(hidden(np.eye(2)), replayable=True), np.zeros(2), samples=200)
    assert found.findings[0] == da.Finding("broken-promise", da.Severity.VIOLATION)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_single_precision_is_enough(dtype):
    found = da.calibrate(da.problems.affine(mu=0.2), np.full(20, 3.0, dtype=dtype))
    assert found.local_L == pytest.approx(1.0, rel=0.3)
    assert not found.warnings


def test_few_samples_leave_parts_out_and_say_so():
    found = da.calibrate(da.problems.affine(), samples=16)
    assert {"growth-not-tested", "batches-not-tested"} < set(codes(found))
    assert "batches-not-tested" not in codes(da.calibrate(da.problems.affine(), samples=32))
    assert found.sigma_at == ()
    assert not {"growth-not-tested", "batches-not-tested"} & set(codes(da.calibrate(da.problems.affine())))


def test_the_radius_sets_how_far_samples_are_taken():
    farthest = 0.0

    def sample(x, n, rng):
        nonlocal farthest
        farthest = max(farthest, float(np.linalg.norm(x)))
        return x - 1

    found = da.calibrate(sample, np.zeros(3), radius=0.5)
    assert found.radius == 0.5
    assert farthest == pytest.approx(2.0)
    assert [distance for distance, _ in found.sigma_at] == pytest.approx([0.5, 1.0, 2.0])


def test_it_prints_as_a_table_with_sentences_and_goes_into_json():
    found = da.calibrate(da.problems.finite_sum_cocoercive())
    text = repr(found)
    assert "sigma at x0" in text
    assert "L, local" in text
    assert "warning: the noise grows" in text
    assert len(text.splitlines()) < 20
    facts = json.loads(json.dumps(found.to_dict()))
    assert facts["sigma"] == found.sigma
    assert [da.Finding.from_dict(one) for one in facts["findings"]] == list(found.findings)
    assert {"largest_step", "D_at_least"} <= facts.keys()
    with pytest.raises(AttributeError):
        found.sigma = 1.0


def test_infinite_numbers_are_null_in_json():
    found = da.calibrate(linear([[0.0, 1.0], [-1.0, 0.0]]), np.zeros(2), samples=200)
    assert found.to_dict()["local_L"] is None
    json.dumps(found.to_dict(), allow_nan=False)


# -- pieces ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [MIN_SAMPLES, 20, 33, 47, 64, 65, 79, 100, 159, 255, 256, 257, 511, 512, 513, 699])
def test_the_parts_fit_into_every_limit(samples):
    for dimension in (1, 2, 90):
        assert da.calibrate(lambda x, n, rng: x, np.ones(dimension), samples=samples).evals == samples


def test_the_lowest_direction_is_an_eigenvector_of_the_symmetric_part():
    rng = np.random.default_rng(0)
    J, directions = rng.normal(size=(6, 6)), rng.normal(size=(8, 6))  # dependent directions are no trouble
    found = lowest_combination(directions, directions @ J.T) @ directions
    least = np.linalg.eigvalsh(J + J.T)[0] / 2
    assert found @ J @ found == pytest.approx(least)


@pytest.mark.parametrize(
    ("units", "seen"), [([1.0, 1.0, 1.0], False), ([1.0, 30.0, 1.0], False), ([1.0, 40.0, 5e4], True)]
)
def test_columns_in_different_units_are_noticed(units, seen):
    rng = np.random.default_rng(0)
    rows = np.array(units) * rng.normal(size=(500, 3))
    regression = da.FiniteSum.rank_one(rows, targets=rows @ (1 / np.array(units)) + rng.normal(size=500))
    found = [one for one in da.calibrate(regression, np.zeros(3)).findings if one.code == "scales-differ"]
    assert bool(found) == seen
    for one in found:
        assert (one.values["large"], one.values["small"]) == (2, 0)
        assert 1e4 < one.values["factor"] < 1e6


def test_noise_alone_is_no_scale():
    scales = np.array([1e-3, 1.0])
    oracle = da.Sampler(lambda x, n, rng: x - 1 + scales * rng.normal(size=(n, 2)))
    assert "scales-differ" not in {one.code for one in da.calibrate(oracle, np.zeros(2)).findings}


def test_a_coordinate_without_noise_has_no_scale():
    oracle = da.Sampler(lambda x, n, rng: x - 1 + np.array([0.0, 1.0]) * rng.normal(size=(n, 1)))
    assert "scales-differ" not in {one.code for one in da.calibrate(oracle, np.zeros(2)).findings}


def test_the_lines_on_mu_and_the_step_say_what_to_do_with_them():
    flat = repr(da.calibrate(lambda x, n, rng: np.array([x[0], 0.0]), np.ones(2)))
    assert "0, or too small to see: leave mu out" in flat
    steep = da.calibrate(lambda x, n, rng: 2 * x, np.ones(2))
    assert f"at most {steep.mu_at_most:.3g} near x0: give no larger one" in repr(steep)
    assert "use 0.25 or less near x0 (an estimate, no theorem)" in repr(steep)
    constant = da.calibrate(lambda x, n, rng: np.ones(2) + 0 * x, np.ones(2))
    assert "no limit seen" in repr(constant)


def test_a_slope_that_does_not_last_says_nothing_about_the_distance_of_a_root():
    def sample(x, n, rng):
        return x / np.sqrt(1 + x**2) + 0.1 * rng.normal(size=(n, 2)).mean(axis=0)

    found = da.calibrate(sample, np.full(2, 1000.0), samples=200)
    assert found.radius == pytest.approx(1000 * np.sqrt(2))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("samples", [100, 800])
def test_numbers_that_are_infinite_inside_give_no_warnings(samples):
    """The rounding of an F that does not change is infinite."""

    def too_few(x, n, rng):  # of a demand of about 100, 80 pieces: the same in all samples near there
        return 0.8 - (rng.poisson(100, size=(n, 1)) <= x)

    assert da.calibrate(too_few, np.array([80.0]), samples).L_at_least == 0.0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("exponent", [60, 80, 90, 99, 120])
def test_large_samples_are_measured_or_refused(exponent):
    """Powers of variances of 1e180 ended in an OverflowError."""

    def large(x, n, rng):
        return (x - 1 + rng.normal(size=2) / np.sqrt(n)) * 10.0**exponent

    for samples in (100, 800):
        if exponent < 70:
            assert da.calibrate(large, np.zeros(2), samples).sigma > 10.0**exponent
        else:
            with pytest.raises(da.errors.OracleError, match="finite and small enough"):
                da.calibrate(large, np.zeros(2), samples)
