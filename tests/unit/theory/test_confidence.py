"""Bounds for the norm of a mean: against literal formulas, and against what they solve."""

import numpy as np
import pytest
from scipy import stats

from dualanchor.theory import confidence as c


def literal(means):
    """Norm, trace, largest eigenvalue and trace of the square, straight from the d x d covariance."""
    S = np.atleast_2d(np.cov(means.T))
    return np.linalg.norm(means.mean(axis=0)), np.trace(S), np.linalg.eigvalsh(S)[-1], np.trace(S @ S)


def outlier(means):
    """How far the outermost of K numbers lies above its mean, beyond sqrt(2 ln K) standard deviations."""
    along = means @ means.mean(axis=0) / np.linalg.norm(means.mean(axis=0))
    return max(0.0, along.max() - along.mean() - np.sqrt(2 * np.log(len(along))) * along.std(ddof=1))


@pytest.mark.parametrize("d", [1, 5, 12, 40, 9000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_equal_those_of_the_covariance(d, dtype):
    means = np.random.default_rng(d).normal(3.0, 1.0, size=(2, 12, d)).astype(dtype)
    m = c.group_moments(means)
    assert m.groups == 12
    for row in range(2):
        if d <= 40:
            expected = literal(means[row].astype(float))
        else:  # the same eigenvalues from singular values
            s = np.linalg.svd(means[row].astype(float) - means[row].mean(axis=0, dtype=float), compute_uv=False)
            expected = (
                np.linalg.norm(means[row].mean(axis=0, dtype=float)),
                *(f(s**2 / 11) for f in (np.sum, np.max, lambda v: np.sum(v**2))),
            )
        np.testing.assert_allclose([value[row] for value in m[1:5]], expected, rtol=1e-9)
        assert m.outlier[row] == pytest.approx(outlier(means[row].astype(float)), abs=1e-6)


def test_an_outlier_is_seen_and_corrected_for():
    means = np.tile([1.0, 2.0, 2.0], (64, 1))
    means[5] += [1.0, 2.0, 2.0]  # one group of 64, along the mean
    m = c.group_moments(means)
    assert (
        m.outlier == pytest.approx(outlier(means)) == pytest.approx(3 * (1 - 1 / 64) - np.sqrt(2 * np.log(64)) * 3 / 8)
    )
    uncorrected = c.upper_by_both(m._replace(outlier=np.zeros(())), 0.05)
    q = stats.t.ppf(0.975, 63)
    assert c.upper_by_both(m, 0.05) - uncorrected == pytest.approx(4 * (2 * q**2 + 1) / (6 * 64) * m.outlier)
    means[5] -= [2.0, 4.0, 4.0]  # towards zero: the mean is too small rather than too large
    assert c.group_moments(means).outlier == 0


def test_the_square_is_the_mean_of_products_of_different_groups():
    means = np.random.default_rng(1).normal(size=(9, 4))
    gram = means @ means.T
    pairs = (gram.sum() - np.trace(gram)) / (9 * 8)
    assert c.group_moments(means).square == pytest.approx(pairs, rel=1e-12)


def test_small_noise_beside_a_large_mean_is_not_lost():
    noise = np.random.default_rng(2).normal(size=(16, 3))
    quiet, loud = c.group_moments(noise), c.group_moments(1e8 + noise)
    np.testing.assert_allclose(loud.trace, quiet.trace, rtol=1e-6)
    np.testing.assert_allclose(loud.largest, quiet.largest, rtol=1e-6)


@pytest.mark.parametrize("d", [1, 4, 100])
def test_without_noise_every_bound_is_the_norm(d):
    f = np.random.default_rng(d).normal(size=d)
    m = c.group_moments(np.tile(f, (32, 1)))
    assert (m.trace, m.largest, m.squares) == (0, 0, 0)
    for bound in (c.upper_by_projection, c.upper_by_square, c.upper_by_both):
        assert bound(m, 0.05) == pytest.approx(np.linalg.norm(f), rel=1e-15)


def moments(groups=32, norm=1.0, trace=4.0, largest=2.0, squares=6.0, outlier=0.0):
    return c.GroupMoments(groups, *(np.asarray(v, dtype=float) for v in (norm, trace, largest, squares, outlier)))


@pytest.mark.parametrize("delta", [0.5, 0.05, 1e-4])
def test_projection_bound_is_the_written_formula(delta):
    expected = 1.0 + stats.t.ppf(1 - delta, 31) * np.sqrt(2.0 / 32)
    assert c.upper_by_projection(moments(), delta) == pytest.approx(expected)


@pytest.mark.parametrize("norm", [0.4, 1.0, 3.0, 200.0])
@pytest.mark.parametrize("delta", [0.2, 0.05, 1e-3])
def test_square_bound_is_where_the_inequality_is_tight(norm, delta):
    """|f|^2 - U = c sd(U) with the exact variance at |f|, and the inequality fails beyond."""
    m = moments(norm=norm)
    bound, quantile = c.upper_by_square(m, delta), stats.t.ppf(1 - delta, 31)
    for factor, sign in ((1.0, 0.0), (1.01, 1.0), (0.99, -1.0)):
        f = factor * bound
        sd = np.sqrt(4 * m.largest * f**2 / m.groups + 2 * m.squares / (m.groups * (m.groups - 1)))
        gap = f**2 - max(m.square, 0.0) - quantile * sd
        assert gap == pytest.approx(0.0, abs=1e-9 * f**2) if sign == 0 else np.sign(gap) == sign


def test_square_bound_is_the_written_formula():
    m, t, K = moments(norm=2.0), stats.t.ppf(0.95, 31), 32
    U, lam, tr2 = 4.0 - 4.0 / 32, 2.0, 6.0
    root = np.sqrt(4 * t**2 * lam * U / K + 4 * t**4 * lam**2 / K**2 + 2 * t**2 * tr2 / (K * (K - 1)))
    assert c.upper_by_square(m, 0.05) ** 2 == pytest.approx(U + 2 * t**2 * lam / K + root)


def test_a_negative_square_never_gives_a_bound_of_zero():
    """Far below zero the inequality has no solution at all; the bound is that of U = 0."""
    m = moments(norm=0.0, trace=400.0, largest=2.0, squares=6.0)
    assert m.square < 0
    zero = moments(norm=np.sqrt(400.0 / 32), trace=400.0)
    assert c.upper_by_square(m, 0.05) == pytest.approx(c.upper_by_square(zero, 0.05))
    assert c.upper_by_square(m, 0.05) > 0


def test_both_is_the_smaller_one_at_half_the_error():
    m = moments(norm=[0.1, 1.0, 50.0], trace=[4.0] * 3, largest=[2.0] * 3, squares=[6.0] * 3)
    expected = np.minimum(c.upper_by_projection(m, 0.025), c.upper_by_square(m, 0.025))
    np.testing.assert_array_equal(c.upper_by_both(m, 0.05), expected)


def test_high_dimension_near_a_root_is_where_the_square_helps():
    means = np.random.default_rng(3).normal(size=(32, 400)) / 20
    m = c.group_moments(means)
    assert c.upper_by_square(m, 0.025) < 0.8 * c.upper_by_projection(m, 0.025)


def test_cantelli_is_attained_by_its_two_point_law():
    """Cantelli's inequality is tight: on this law the bound fails with probability delta exactly."""
    delta, variance = 0.05, 3.0
    low = -np.sqrt(variance * (1 - delta) / delta)  # with probability delta; else `high`
    high = np.sqrt(variance * delta / (1 - delta))
    assert delta * low + (1 - delta) * high == pytest.approx(0.0)
    assert delta * low**2 + (1 - delta) * high**2 == pytest.approx(variance)
    f, few = 100.0, 1  # group
    assert c.upper_any_distribution(moments(few, f + low), few * variance, delta) == pytest.approx(f)
    assert c.upper_any_distribution(moments(few, f + high), few * variance, delta) > f
    assert c.upper_any_distribution(moments(few, f + low), 0.99 * few * variance, delta) < f


def test_the_logarithm_of_catoni_is_above_its_parabola_as_far_as_that_grows():
    y = np.linspace(-60, 60, 600_001)
    top = 1 / (2 * c._CURVATURE)
    below = np.where(y < top, y - c._CURVATURE * y**2, top / 2)
    assert (np.log(1 + y + y**2 / 2) >= below - 1e-15).all()


@pytest.mark.parametrize("law", ["normal", "exponential", "one far out"])
def test_the_bound_for_any_distribution_is_beyond_the_exact_one_of_catoni(law):
    """In one dimension: the largest f that the inequality of the docstring admits, found on a grid."""
    rng, K, delta, variance = np.random.default_rng(6), 256, 0.05, 1.0
    g = {
        "normal": rng.normal(size=K),
        "exponential": rng.standard_exponential(K) - 1,
        "one far out": np.where(np.arange(K) == 3, 20.0, 0.0),
    }[law] + 5
    upper = float(c.upper_any_distribution(c.group_moments(g[:, None]), variance, delta))
    alpha = np.sqrt(2 * np.log(1 / delta) / (K * variance * (1 + 2 * c._CURVATURE)))
    f = np.linspace(g.mean(), g.mean() + 3, 3001)
    y = alpha * (f[:, None] - g)
    admitted = np.log(1 + y + y**2 / 2).sum(axis=1) <= K * alpha**2 * variance / 2 + np.log(1 / delta)
    exact = f[admitted][-1]
    assert exact <= upper + 1e-3
    assert upper - g.mean() < (0.63 if law != "one far out" else 0.8) * np.sqrt(19 / K)  # Cantelli's is sqrt(19/K)
    assert admitted[: np.count_nonzero(admitted)].all()


def test_a_bound_by_kurtosis_is_the_written_formula_for_the_best_split():
    K, kurtosis, delta = 1024, 5.0, 0.05
    m = moments(K, norm=1.0, trace=4.0)
    V = (kurtosis - 1) / K + 2 / (K * (K - 1))
    splits = delta * np.linspace(0.3, 0.7, 401)
    C = 1 / (1 - np.sqrt(V * (1 - splits) / splits))
    expected = 1 + np.sqrt(C * 4.0 * (1 - delta + splits) / ((delta - splits) * K)).min()
    assert c.upper_by_kurtosis(m, kurtosis, delta) == pytest.approx(expected, rel=1e-3)
    assert c.upper_by_kurtosis(moments(32), kurtosis, delta) == np.inf  # too few groups to bound the variance


def test_sub_gaussian_covers_gaussian_noise():
    """P(Z < -sqrt(2 ln(1/delta))) <= delta."""
    for delta in (0.5, 0.05, 1e-6):
        width = c.upper_sub_gaussian(0.0, 1.0, delta)
        assert width == pytest.approx(np.sqrt(2 * np.log(1 / delta)))
        assert stats.norm.cdf(-width) <= delta


def test_more_confidence_is_never_a_smaller_bound():
    m = moments()
    for bound in (c.upper_by_projection, c.upper_by_square, c.upper_by_both):
        values = [float(bound(m, delta)) for delta in (0.99, 0.6, 0.5, 0.3, 0.05, 1e-3, 1e-9)]
        assert values == sorted(values)
        assert values[0] >= 0
    assert c.upper_by_projection(m, 0.99) == m.norm  # no credit below the median
