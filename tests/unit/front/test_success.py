"""What success means at the front doors: compared with x0, with eps, and with what was asked for."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.errors import ArgumentError, AssumptionWarning


class Counted:
    """Samples of F(x) = slope (x - 1) in three dimensions, with noise, counted."""

    def __init__(self, slope=1.0, sigma=1.0):
        self.slope, self.sigma, self.samples = slope, sigma, 0

    def __call__(self, x, n, rng):
        self.samples += n
        return self.slope * (x - 1) + self.sigma * rng.normal(size=3) / np.sqrt(3 * n)


def codes(result):
    return [one.code for one in result.findings]


def test_a_start_that_reaches_eps_is_returned_as_it_is():
    for constants in ({"L": 1.0, "sigma": 1.0, "D": 2.0}, {}):
        result = da.root(Counted(), np.zeros(3), eps=4.0, **constants)
        assert (result.nit, result.status, result.success) == (0, da.Status.TARGET, True)
        assert (result.x == 0).all()
        assert result.claim.kind is da.ClaimKind.CERTIFICATE
        assert result.certificate.upper <= 4.0


@pytest.mark.parametrize("asked", [{"budget": 100_000}, {"eps": 0.01}, {"budget": 100_000, "method": "sgda", "L": 1.0}])
def test_nothing_is_run_where_F_decreases(asked):
    sample = Counted(-1.0)
    with pytest.warns(AssumptionWarning, match="did you mean -F"):
        result = da.root(sample, np.zeros(3), **asked)
    assert result.status is da.Status.REFUSED
    assert not result.success
    assert sample.samples == result.nfev < 6000
    assert (result.x == 0).all()
    assert not {"no-L", "route-budget"} & set(codes(result))  # reasons for a method that did not run


def test_a_guarantee_with_eps_is_a_theorem_or_an_error():
    with pytest.raises(ArgumentError, match=r"a guarantee needs L .*Got no sigma, D"):
        da.root(Counted(), np.zeros(3), eps=0.1, L=1.0, guarantee=True)
    constants = {"L": 1.0, "sigma": 1.0, "D": 2.0}
    with pytest.raises(ArgumentError, match=r"a guarantee takes .* samples for eps = 0\.01"):
        da.root(Counted(), np.zeros(3), eps=0.01, guarantee=True, max_samples=1000, **constants)
    assert da.root(Counted(), np.zeros(3), eps=0.1, guarantee=True, **constants).claim.by_theorem


def test_a_warm_start_is_not_called_a_success_unless_something_better_is_seen():
    first = da.root(Counted(), np.zeros(3), budget=4000, L=1.0)
    assert first.success
    again = da.root(Counted(), first, budget=1000, L=1.0)
    assert not again.success
    assert "fall-not-visible" in codes(again)
    assert "start-not-visible" not in codes(again)


def test_an_L_that_is_too_small_is_no_success_although_a_theorem_was_planned():
    with pytest.warns(AssumptionWarning, match="too small"):
        result = da.root(Counted(2.0), np.zeros(3), eps=1.0, L=1.0, sigma=1.0, D=2.0)
    assert not result.success
    assert not result.claim.by_theorem
    assert np.linalg.norm(result.x - 1) <= np.sqrt(3) + 1e-9  # x0, or better


def test_an_inclusion_returns_its_own_start_and_names_its_residual():
    good = da.inclusion(Counted(), da.prox.box(0, 0.5), np.zeros(3), budget=4000, L=1.0)
    assert good.success
    assert good.certificate.composite
    assert "||F(x) + g|| <=" in repr(good)
    bad = da.inclusion(Counted(2.0), da.prox.box(-1e6, 1e6), np.zeros(3), budget=100, L=1e-9)
    assert not bad.success
    assert (bad.x == 0).all()
    assert "back-at-start" in codes(bad)


def test_growth_of_samples_is_the_same_after_a_resume(tmp_path):
    def problem():
        return da.Problem(da.Sampler(Counted(-1.0)), np.zeros(3), constants=da.Constants(L=1.0))

    path, method = tmp_path / "run", da.SGDA(0.1)
    whole = da.solve(problem(), method, stop=da.Steps(200))
    assert not whole.success
    assert "samples-grew" in codes(whole)
    da.solve(problem(), method, stop=da.Steps(2), checkpoint=path)
    da.solve(problem(), method, stop=da.Steps(197), checkpoint=path)
    resumed = da.solve(problem(), method, stop=da.Steps(200), checkpoint=path)
    np.testing.assert_array_equal(resumed.x, whole.x)
    assert not resumed.success
    assert [one.values for one in resumed.findings if one.code == "samples-grew"] == [
        one.values for one in whole.findings if one.code == "samples-grew"
    ]


def sparse(x, n, rng):
    """F(x) = x - 1, from noise that shows in one sample of ten."""
    return x - 10 * rng.binomial(n, 0.1, size=x.shape) / n


def test_a_start_whose_samples_agree_says_nothing_about_the_start():
    """All 16 samples at x0 are 0 there in one call of five: no bound of 0 may come from that, and no claim about x0."""
    for seed in range(12):
        result = da.root(sparse, np.zeros(1), seed=seed, eps=0.5, L=1.0, sigma=5.0, D=1.5)
        assert not (result.certificate.upper < 1.0 and (result.x == 0).all())
        assert result.claim is None or not result.claim.by_theorem or result.nit > 0


@pytest.mark.slow
def test_a_certificate_overrules_samples_that_grew():
    """The first samples are often 0, so that later ones have grown without end."""
    found = [da.root(sparse, np.zeros(1), budget=20_000, L=1.0, seed=seed) for seed in range(8)]
    assert all("samples-grew" not in codes(one) for one in found)
    assert sum(one.success for one in found) >= 7


def test_rows_are_judged_one_by_one():
    few, many = (da.root(Counted(), np.zeros(3), reps=n, eps=0.1, L=1.0, sigma=1.0, D=2.0) for n in (3, 60))
    np.testing.assert_array_equal(few.success, many.success[:3])
    assert many.success.mean() > 0.9
    assert many.claim.by_theorem


def test_a_row_that_diverges_at_once_leaves_the_others_their_growth():
    def steep(x, n, rng):
        return np.where(np.abs(x) > 1e6, -1e200, -2.0 * x)

    starts = np.array([np.ones(4), np.full(4, 1e7)])
    problem = da.Problem(da.Sampler(steep), starts[0])
    result = da.solve(problem, da.SGDA(0.5), budget=15, reps=2, x0=starts, check=False)
    assert not result.success.any()
    np.testing.assert_array_equal(result.x[1], starts[1])


@pytest.mark.parametrize("start", [0.0, 0.9])
def test_a_planned_run_spends_no_more_than_max_samples(start):
    constants = {"L": 1.0, "sigma": 1.0, "D": 2.0}
    plan = da.plan(eps=0.3, **constants)
    for limit in (plan.samples + 256 + 64, plan.samples + 2 * 256 + 64):
        sample = Counted()
        result = da.root(sample, np.full(3, start), eps=0.3, max_samples=limit, **constants)
        assert sample.samples == result.nfev <= limit


def test_the_certificate_of_a_method_with_a_horizon_is_as_large_as_its_run():
    result = da.root(Counted(), np.zeros(3), eps=0.5, method=da.DualOHM(0.5, 100, 4))
    assert result.nfev < 20_000


def test_where_F_is_known_the_true_residuals_decide():
    x = np.ones(4)
    for seed in range(6):
        oracle = da.AdditiveNoise(lambda z: z - x, 20.0)
        result = da.root(oracle, x + 1, budget=2000, L=1.0, seed=seed)
        assert result.success == (np.linalg.norm(result.x - x) < 2.0 and "back-at-start" not in codes(result))
        assert np.linalg.norm(result.x - x) <= 2.0 + 1e-12


def test_a_run_that_diverged_is_not_said_to_have_fallen():
    result = da.root(Counted(50.0), np.zeros(3), budget=4000, method=da.SGDA(1.0), check=False)
    assert result.status is da.Status.DIVERGED
    assert (result.x == 0).all()
    assert "residual-fell-little" not in codes(result)
    assert {"diverged", "back-at-start"} <= set(codes(result))


@pytest.mark.slow
def test_a_fall_that_is_not_seen_names_the_bounds_that_decide():
    """Heavy tails: samples as large as some of the run may be missing from the certificate at x0, and hide its fall."""

    def heavy(x, n, rng):
        return x - 4 / np.sqrt(3) + rng.standard_t(2.1, size=(n, 3)).mean(axis=0)

    hidden = [one for seed in range(12) for one in da.root(heavy, np.zeros(3), budget=3000, seed=seed).findings]
    hidden = [one for one in hidden if one.code == "fall-not-visible"]
    assert any(one.values["large_samples"] for one in hidden)
    for one in hidden:
        assert 0.9 * one.values["at_least"] <= one.values["at_most"]
        assert f"at least {one.values['at_least']:.3g} at x0" in str(one)
        assert f"at most {one.values['at_most']:.3g} now" in str(one)
        assert ("allowing for missed samples" in str(one)) == one.values["large_samples"]
        assert "may be a root" not in str(one)


def test_x0_may_be_a_root_only_where_its_own_samples_leave_that_open():
    first = da.root(Counted(), np.zeros(3), budget=4000, L=1.0)
    (found,) = (one for one in da.root(Counted(), first, budget=1000, L=1.0).findings if one.code == "fall-not-visible")
    assert found.values["at_least"] == 0
    assert "x0 may be a root already" in str(found)


@pytest.mark.parametrize(
    "keywords",
    [
        {"budget": 5000},
        {"eps": 0.3},
        {"budget": 5000, "M": 4.0},
        {"budget": 5000, "L": 10.0, "prox_u": da.prox.box(-2, 2), "prox_v": da.prox.box(-2, 2)},
    ],
)
def test_a_root_that_is_no_saddle_point_is_no_success(keywords):
    """u^2 + 3 u v + v^2/2 has no maximum in v. Its field has the root 0, to which every run leads: a success so far."""

    def of_u(u, v, n, rng):
        return 2 * u + 3 * v + rng.normal(size=2) / np.sqrt(n)

    def of_v(u, v, n, rng):
        return 3 * u + v + rng.normal(size=2) / np.sqrt(n)

    with pytest.warns(AssumptionWarning, match="not monotone"):
        result = da.saddle(of_u, of_v, (np.ones(2), np.ones(2)), **keywords)
    assert result.residual < 0.3
    assert codes(result).count("success-withheld") == 1
    assert result.success is False


def test_samples_of_an_iterate_that_long_steps_threw_away_are_no_rare_noise():
    """A robust regression: it is bent along some coordinates, which the first, long steps do not expect."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(400, 4)) * [1.0, 2.0, 0.5, 1.0]
    values = rows @ [1.0, -1.0, 2.0, 0.3] + 0.5 + 0.3 * rng.normal(size=400)

    def sample(z, n, rng):
        chosen = rng.integers(400, size=n)
        error = (rows[chosen] + z[5:]) @ z[:4] + z[4] - values[chosen]
        gradient = (rows[chosen] + z[5:]).T @ error / n
        return np.concatenate([gradient, [error.mean()], 40 * z[5:] - error.mean() * z[:4]])

    for seed in range(4):
        result = da.root(sample, np.zeros(9), budget=20_000, batch=64, seed=seed)
        assert result.success, (seed, codes(result))
