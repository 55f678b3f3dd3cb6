"""Certificates: exact without noise, counted, reproducible, of bounded memory, and clear about bad input."""

import json
import re
import tracemalloc

import numpy as np
import pytest

import dualanchor as da
from dualanchor.advise import certify as module
from dualanchor.advise.certify import certificate_from_session, group_sizes
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.oracles.composite import Composite, FixedPoint
from dualanchor.theory.confidence import group_moments, upper_by_both

NOISY = da.AdditiveNoise(lambda x: 2 * x, 1.0, vectorized=True)


def codes(certificate):
    return [one.code for one in certificate.findings]


def session(oracle, rows, d, seed=0):
    return Session(oracle, Streams(seed, np.arange(rows), Purpose.CERTIFICATE, d))


@pytest.mark.parametrize("samples", [16, 100, 1000])
@pytest.mark.parametrize("d", [1, 3, 50])
def test_without_noise_the_bound_is_the_residual(samples, d):
    x = np.random.default_rng(d).normal(size=d)
    certificate = da.certify(da.AdditiveNoise(lambda x: 2 * x), x, samples=samples)
    norm = np.linalg.norm(2 * x)
    assert certificate.upper == pytest.approx(norm, rel=1e-14)
    assert certificate.residual == pytest.approx(norm, rel=1e-14)
    assert certificate.sigma == 0
    assert "samples-agree" in codes(certificate)


def test_at_a_root_without_noise_everything_is_zero():
    certificate = da.certify(lambda x, n, rng: 0 * x, [1.0, 2.0], samples=64)
    assert (certificate.residual, certificate.upper, certificate.squared) == (0, 0, 0)


@pytest.mark.parametrize(
    ("samples", "groups", "size"),
    [(16, 8, 2), (31, 15, 2), (256, 128, 2), (767, 383, 2), (768, 256, 3), (2000, 285, 7), (4096, 256, 16)],
)
def test_groups_and_exact_counts(samples, groups, size):
    assert group_sizes(samples) == (groups, size)
    F = session(NOISY, 3, 4)
    certificate = certificate_from_session(F, np.ones((3, 4)), samples)
    assert (certificate.groups, certificate.samples) == (groups, groups * size)
    assert F.draws == F.evals == groups * size <= samples
    assert ("samples-rounded-down" in codes(certificate)) == (groups * size < samples)
    assert ("few-groups" in codes(certificate)) == (samples < 256)


def test_a_sampler_is_asked_for_exactly_the_samples_counted():
    asked = []

    def sample(x, n, rng):
        asked.append(n)
        return x + rng.normal(size=(n, x.size)).mean(axis=0)

    certificate = da.certify(sample, np.ones(3), samples=1000)
    assert sum(asked) == certificate.samples == 999


def test_it_is_the_formula_on_the_group_means():
    F, x = session(NOISY, 2, 5, seed=4), np.ones((2, 5))
    means = np.stack([F(x, F.draw(2)) for _ in range(160)], axis=1)
    m = group_moments(means)
    certificate = da.certify(NOISY, x, samples=320, seed=4)
    np.testing.assert_allclose(certificate.upper, upper_by_both(m, 0.05), rtol=1e-12)
    np.testing.assert_allclose(certificate.squared, m.square, rtol=1e-12)
    np.testing.assert_allclose(certificate.sigma, np.sqrt(2 * m.trace), rtol=1e-12)


def test_seeds():
    one, same, other = (da.certify(NOISY, np.ones(3), samples=300, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one.upper != other.upper


def test_the_samples_are_not_those_of_a_run():
    """The run's first batch and the certificate's first group of the same seed are different."""
    streams = Streams(3, np.arange(1), Purpose.NOISE, 2)
    used = Session(NOISY, streams)(np.ones((1, 2)), Session(NOISY, Streams(3, np.arange(1), Purpose.NOISE, 2)).draw(8))
    fresh = session(NOISY, 1, 2, seed=3)
    assert not np.isclose(used, fresh(np.ones((1, 2)), fresh.draw(8))).any()


def test_rows_do_not_depend_on_each_other(monkeypatch):
    x = np.random.default_rng(0).normal(size=(5, 6))
    together = da.certify(NOISY, x, samples=500, seed=7)
    alone = da.certify(NOISY, x[0], samples=500, seed=7)
    assert together.upper.shape == (5,)
    assert together.upper[0] == pytest.approx(alone.upper, rel=1e-13)
    monkeypatch.setattr(module, "_BLOCK_NUMBERS", 2 * 250 * 6)  # two rows at a time
    F = session(NOISY, 5, 6, seed=7)
    blocks = certificate_from_session(F, x, 500)
    np.testing.assert_allclose(blocks.upper, together.upper, rtol=1e-13)
    np.testing.assert_array_equal(F.draws, [500] * 5)
    np.testing.assert_array_equal(F.evals, [500] * 5)


def test_rows_of_a_sampler_do_not_depend_on_blocks(monkeypatch):
    def sample(x, n, rng):
        return x + rng.normal(size=(n, x.size)).mean(axis=0)

    x = np.arange(12.0).reshape(4, 3)
    together = da.certify(sample, x, samples=320)
    monkeypatch.setattr(module, "_BLOCK_NUMBERS", 1)
    np.testing.assert_allclose(da.certify(sample, x, samples=320).upper, together.upper, rtol=1e-13)


def test_pieces_of_a_group_are_averaged_by_their_sizes(monkeypatch):
    """A sampler whose mean depends on nothing but how much it was asked for shows the weights."""
    monkeypatch.setattr(module, "_BATCH_NUMBERS", 64 * 2)
    sizes = []

    def sample(x, n, rng):
        sizes.append(n)
        return np.full_like(x, float(n))

    certificate = da.certify(sample, np.ones(2), samples=256 * 100)
    assert sizes.pop() == 1  # to see whether it draws random numbers, as all groups agree
    assert set(sizes) == {64, 36}
    assert certificate.residual == pytest.approx(np.sqrt(2) * (64 * 64 + 36 * 36) / 100)


def test_memory_does_not_grow_with_the_samples(monkeypatch):
    """The sampler lists its samples; sixteen times as many must not take more than a little more memory."""
    monkeypatch.setattr(module, "_BATCH_NUMBERS", 1 << 12)

    def sample(x, n, rng):
        return x + rng.normal(size=(n, x.size)).mean(axis=0)

    def peak(samples):
        tracemalloc.start()
        da.certify(sample, np.ones(64), samples=samples)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(1 << 13)  # imports
    few, many = peak(1 << 13), peak(1 << 17)
    assert many < 1.2 * few
    assert many < (1 << 17) * 64 * 8 / 50


def test_a_single_precision_point_stays_one_and_is_summed_in_double():
    x = np.ones(4, dtype=np.float32)
    seen = []

    def sample(x, n, rng):
        seen.append(x.dtype)
        return x + rng.normal(size=(n, x.size)).mean(axis=0).astype(np.float32)

    certificate = da.certify(sample, x, samples=4096)
    assert set(seen) == {np.dtype(np.float32)}
    assert certificate.residual == pytest.approx(2.0, rel=0.05)


def test_problem_start_point_and_result():
    problem = da.problems.worst_case_nonexpansive(dimension=21)
    start = problem.instance(Streams(2, np.arange(1), Purpose.INSTANCE)).x0[0]
    assert da.certify(problem, samples=256, seed=2).upper == da.certify(problem, start, samples=256, seed=2).upper
    result = da.solve(problem, budget=200, seed=2)
    assert (
        da.certify(problem, result, samples=256, seed=2).upper
        == da.certify(problem, result.x, samples=256, seed=2).upper
    )


def test_a_result_is_certified_on_the_instances_it_was_found_on():
    """They agree with the true residuals whatever the seed of the certificate."""
    problem = da.problems.finite_sum_cocoercive(components=9, dimension=5, rank=4)  # random components
    result = da.solve(problem, "sgda", budget=50, reps=3, seed=11)
    certificate = da.certify(problem, result, samples=1_000_000, seed=5)
    assert certificate.upper.shape == (3,)
    np.testing.assert_allclose(certificate.residual, result.residual, rtol=1e-12)
    elsewhere = da.certify(problem, result.x, samples=1_000_000, seed=5)  # nothing says where these points are from
    assert (np.abs(elsewhere.residual - result.residual) > 0.1 * result.residual).any()


def test_a_finite_sum_is_certified_exactly_where_the_samples_pay_for_a_pass():
    rows = np.random.default_rng(0).normal(size=(40, 3))
    oracle, x = da.FiniteSum.rank_one(rows), np.array([1.0, -2.0, 0.5])
    residual = np.linalg.norm(rows.T @ (rows @ x)) / 40
    for options in ({}, {"rule": "any-distribution", "sigma": 50.0}):
        exact = da.certify(oracle, x, samples=40, **options)
        assert exact.residual == exact.lower == exact.upper == pytest.approx(residual, rel=1e-12)
        assert (exact.rule, exact.confidence, exact.samples, exact.fresh_samples, exact.sigma) == (
            "exact",
            1.0,
            40,
            0,
            0.0,
        )
    assert [one.code for one in exact.findings] == ["exact-residual"]
    assert "with confidence 100 % (exact, from all 40 components)" in exact.text
    read = da.Certificate.from_dict(json.loads(json.dumps(exact.to_dict())))
    assert (read.upper, read.is_exact) == (exact.upper, True)
    with pytest.raises(da.errors.ArgumentError, match="confidence"):
        da.Certificate.from_dict({**exact.to_dict(), "confidence": 0.5})
    assert da.certify(oracle, x, samples=39).rule == "min"
    both = da.certify(oracle, np.stack([x, 2 * x]), samples=100)
    np.testing.assert_allclose(both.upper, [residual, 2 * residual], rtol=1e-12)


def test_an_exact_certificate_at_a_point_that_overflows_is_infinite():
    huge = da.FiniteSum(lambda x, i: np.full((i.size, 2), np.inf), 4)
    assert da.certify(huge, np.ones(2), samples=16).upper == np.inf


@pytest.mark.parametrize(
    ("rule", "factor"), [("any-distribution", 2.5), ("sub-gaussian", np.sqrt(2 * np.log(20))), ("kurtosis", 7.1)]
)
def test_rules_that_rest_on_a_constant(rule, factor):
    constant = {"kurtosis": 3.0} if rule == "kurtosis" else {"sigma": 1.0}
    certificate = da.certify(NOISY, np.ones(3), samples=1280, rule=rule, **constant)
    norm = np.sqrt(certificate.squared + certificate.sigma**2 / 1280)
    tolerance = 1e-12 if rule == "sub-gaussian" else 0.1
    assert certificate.upper - norm == pytest.approx(factor / np.sqrt(1280), rel=tolerance)
    assert (certificate.assumed_sigma, certificate.assumed_kurtosis) == (
        constant.get("sigma"),
        constant.get("kurtosis"),
    )
    assert ("kurtosis <= 3" if rule == "kurtosis" else "sigma <= 1") in certificate.text
    assert certificate.findings == ()
    assert da.Certificate.from_dict(certificate.to_dict()) == certificate


def rarely(x, n, rng):
    """One sample in a thousand million is not x."""
    return x + (rng.random(n) < 1e-9).mean() * 1e9


def still(x, n, rng):
    """A sampler without noise, which leaves the generator alone."""
    return x


def test_noise_that_no_sample_shows_gives_no_bound():
    """A bound of 0 from samples that happen to be 0 would be wrong wherever the noise is rare."""
    for x in (np.zeros(2), np.ones(2)):
        certificate = da.certify(rarely, x, samples=256)
        assert certificate.upper == np.inf
        assert codes(certificate) == ["asymptotic", "noise-not-seen"]
        assert "give sigma" in repr(certificate)
    assert da.certify(rarely, np.zeros(2), samples=2048, rule="kurtosis", kurtosis=9.0).upper == np.inf


def test_noise_that_no_sample_shows_has_the_scale_of_a_given_sigma():
    certificate = da.certify(rarely, np.ones(2), samples=256, sigma=2.0)
    same = da.certify(rarely, np.ones(2), samples=256, sigma=2.0, rule="any-distribution")
    assert certificate.upper == same.upper > np.sqrt(2) + 0.25
    assert codes(certificate) == ["asymptotic", "noise-not-seen"]
    declared = da.certify(rarely, np.ones(2), samples=256, sigma=0.0)
    assert declared.upper == pytest.approx(np.sqrt(2), rel=1e-14)
    assert "samples-agree" in codes(declared)


@pytest.mark.parametrize(
    "oracle",
    [
        still,
        da.Sampler(lambda x, n, rngs: 1 * x, vectorized=True),
        FixedPoint(da.Sampler(lambda x, n, rng: 0 * x)),
        Composite(da.Sampler(still), da.prox.box(-5, 5), 1.0),
        da.AdditiveNoise(lambda x: x),
        da.AdditiveNoise(lambda x: x, noise=lambda n, rng: (rng.random() < 1e-9) * np.ones(2)),
        da.FiniteSum(lambda x, i: np.tile(x, (len(i), 1)), 500),
        da.engines.Local(2).attach(da.Sampler(still)),
    ],
    ids=["sampler", "vectorized", "fixed point", "composite", "additive", "own noise", "finite sum", "engine"],
)
def test_oracles_without_noise_are_certified_exactly(oracle):
    x = np.array([0.1, 0.7])
    certificate = da.certify(oracle, x, samples=300)
    assert certificate.upper == pytest.approx(np.linalg.norm(x), rel=1e-13)
    assert "samples-agree" in codes(certificate)


def test_a_component_that_no_sample_showed_is_found_by_the_operator():
    """A finite sum knows its operator: samples of the other components agree, and are not taken for F."""
    oracle = da.FiniteSum(lambda x, i: np.where(i[:, None] == 7, 1e9, x), 10**6)
    certificate = da.certify(oracle, np.zeros(1), samples=256)
    assert certificate.upper == np.inf


def test_long_points_have_fewer_groups():
    assert group_sizes(10_000, 1000) == (256, 39)
    assert group_sizes(10_000, 500_000)[0] in range(67, 72)
    assert group_sizes(10_000, 10**8) == (32, 312)


def test_a_problem_s_sigma_is_used_and_a_wrong_one_is_noticed():
    problem = da.Problem(NOISY, np.ones(3), constants=da.Constants(L=2.0, sigma=1.0))
    assert da.certify(problem, samples=320, rule="any-distribution").assumed_sigma == 1.0
    wrong = da.certify(problem, samples=320, rule="any-distribution", sigma=0.1)
    assert codes(wrong) == ["spread-above-sigma"]
    assert "more than the sigma of 0.1" in str(wrong)


def test_infinite_samples_give_an_infinite_bound():
    def sample(x, n, rng):
        return x if x[0] < 2 else np.where(x > 0, np.inf, x)

    certificate = da.certify(sample, [[1.0, 1.0], [3.0, 3.0]], samples=64)
    np.testing.assert_array_equal(np.isinf(certificate.upper), [False, True])
    np.testing.assert_array_equal(certificate.holds_for(1e300), [True, False])
    assert certificate.to_dict()["upper"][1] is None
    huge = da.certify(lambda x, n, rng: x * 1e160, [1.0], samples=64)
    assert huge.upper == np.inf


def test_what_it_says():
    certificate = da.certify(NOISY, np.ones(3), samples=320)
    assert isinstance(certificate.upper, float)
    assert certificate.holds_for(certificate.upper)
    assert certificate.holds_for(certificate.upper * 0.999) is False
    text = repr(certificate)
    assert f"||F(x)|| <= {certificate.upper:.4g} with confidence 95 % (asymptotic)" in text
    assert "rare samples" in text
    assert json.loads(json.dumps(certificate.to_dict()))["samples"] == 320
    several = da.certify(NOISY, np.ones((4, 3)), samples=320, confidence=0.999)
    assert "99.9 % each" in repr(several)
    assert "each of 4 points" in repr(several)
    assert "separate-confidence" in codes(several)
    assert len(json.loads(json.dumps(several.to_dict()))["upper"]) == 4
    with pytest.raises(AttributeError):
        several.upper = 0.0


def test_more_confidence_gives_a_larger_bound_and_the_same_estimate():
    values = [
        da.certify(NOISY, np.ones(3), samples=320, confidence=level) for level in (0.01, 0.5, 0.9, 0.99, 1 - 1e-9)
    ]
    assert [one.upper for one in values] == sorted(one.upper for one in values)
    assert len({one.squared for one in values}) == 1


POINT = np.ones(3)
SAMPLE = {"samples": 64}
BAD = {
    "few samples": ((NOISY, POINT), {"samples": 15}, ValueError, "samples must be at least 16", "15", ">= 16"),
    "samples float": ((NOISY, POINT), {"samples": 99.5}, TypeError, "samples must be an integer", "99.5", "16"),
    "samples bool": ((NOISY, POINT), {"samples": True}, TypeError, "samples", "True", "16"),
    "confidence 1": ((NOISY, POINT), SAMPLE | {"confidence": 1}, ValueError, "confidence must be", "1", "0.95"),
    "confidence 95": ((NOISY, POINT), SAMPLE | {"confidence": 95}, ValueError, "confidence must be", "95", "0.95"),
    "confidence nan": ((NOISY, POINT), SAMPLE | {"confidence": np.nan}, ValueError, "confidence", "nan", "0.95"),
    "confidence text": ((NOISY, POINT), SAMPLE | {"confidence": "high"}, TypeError, "confidence", "'high'", "0.95"),
    "seed": ((NOISY, POINT), SAMPLE | {"seed": -1}, ValueError, "seed must be at least 0", "-1", ">= 0"),
    "seed text": ((NOISY, POINT), SAMPLE | {"seed": "a"}, TypeError, "seed must be an integer", "'a'", "0"),
    "rule": ((NOISY, POINT), SAMPLE | {"rule": "any"}, ValueError, "rule must be a known name", "'any'", "any-dist"),
    "rule list": ((NOISY, POINT), SAMPLE | {"rule": []}, ValueError, "rule must be a known name", "[]", "min"),
    "no sigma": (
        (NOISY, POINT),
        SAMPLE | {"rule": "any-distribution"},
        ValueError,
        "'any-distribution' needs sigma",
        "no sigma",
        "sigma=",
    ),
    "sigma negative": (
        (NOISY, POINT),
        SAMPLE | {"rule": "sub-gaussian", "sigma": -1.0},
        ValueError,
        "sigma must be non-negative",
        "-1.0",
        "bound",
    ),
    "sigma text": (
        (NOISY, POINT),
        SAMPLE | {"rule": "sub-gaussian", "sigma": "1"},
        TypeError,
        "sigma must be a number",
        "'1'",
        "bound",
    ),
    "no point": ((NOISY,), SAMPLE, TypeError, "x can be left out only", "no point", "x=..."),
    "nan": ((NOISY, [1.0, np.nan]), SAMPLE, ValueError, "x must be finite", "nan at index 1", "numbers"),
    "text": ((NOISY, ["a"]), SAMPLE, TypeError, "x must be an array of real numbers", "dtype", "floats"),
    "ragged": ((NOISY, [[1.0], [1.0, 2.0]]), SAMPLE, TypeError, "x must be an array", "list", "floats"),
    "empty": ((NOISY, []), SAMPLE, ValueError, "x must be a point (d,) or points", "shape (0,)", "Reshape"),
    "no rows": ((NOISY, np.ones((0, 3))), SAMPLE, ValueError, "x must be a point", "shape (0, 3)", "Reshape"),
    "no rows, function": (
        (lambda x, n, rng: x, np.ones((0, 3))),
        SAMPLE,
        ValueError,
        "x must be a point",
        "shape (0, 3)",
        "Reshape",
    ),
    "configurations": ((NOISY, np.ones((2, 2, 3))), SAMPLE, ValueError, "x must be", "shape (2, 2, 3)", "result.x[0]"),
    "other dimension": ((da.problems.affine(dimension=4), POINT), SAMPLE, ValueError, "shape (4,)", "(3,)", "Reshape"),
    "no oracle": ((3, POINT), SAMPLE, TypeError, "oracle must be an Oracle, a Problem", "int", "Sampler"),
    "two arguments": (
        (lambda x, rng: x, POINT),
        SAMPLE,
        TypeError,
        "must accept sample(x, n, rng)",
        "(x, rng)",
        "dualanchor.each(f) wraps a function f(x, rng)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_a_clear_answer(case):
    arguments, keywords, error, rule, received, advice = BAD[case]
    with pytest.raises(error) as caught:
        da.certify(*arguments, **keywords)
    before, _, after = str(caught.value).partition("Got ")
    assert rule in before
    assert re.match(r"\w[\w.]*: ", before)
    assert received in after
    assert advice in after
    assert isinstance(caught.value, da.errors.DualAnchorError)


def test_samples_must_be_numbers():
    with pytest.raises(da.errors.OracleError, match="NaN"):
        da.certify(lambda x, n, rng: np.full_like(x, np.nan), POINT, samples=64)


def test_inputs_are_untouched():
    x = np.ones((2, 3))
    da.certify(NOISY, x, samples=64)
    np.testing.assert_array_equal(x, 1.0)
