"""What a result claims, and what it does not."""

from dataclasses import dataclass

import numpy as np
import pytest
from tests.contract.driver import TickingClock
from tests.unit.front.samplers import Counted, codes, saddle_pair

import dualanchor as da
from dualanchor.core.errors import AssumptionWarning, UnsuccessfulError
from dualanchor.core.method import Cost

KNOWN = {"L": 1.0, "sigma": 0.3, "D": 2.0}
ROUTES = {
    "untuned": {"budget": 1600, "L": 1.0},
    "untuned, no L": {"budget": 1600},
    "guarantee": {"budget": 1600, **KNOWN, "guarantee": True},
    "planned": {"eps": 0.1, **KNOWN},
    "restarts": {"eps": 0.05, **KNOWN, "mu": 0.9},
    "alone": {"eps": 0.2, **KNOWN, "confidence": 0.5},
    "boosted": {"eps": 0.2, **KNOWN, "confidence": 0.99},
    "stages": {"eps": 0.1, "L": 1.0},
    "named": {"budget": 1600, "L": 1.0, "method": "sgda"},
    "named, eps": {"eps": 0.5, "L": 1.0, "method": "sgda"},
    "method": {"eps": 0.3, "method": da.DualOHM(1.0, horizon=50, batch_size=40)},
}


@pytest.fixture(scope="module")
def results():
    return {name: da.root(Counted(), np.zeros(2), **keywords) for name, keywords in ROUTES.items()}


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_says_what_was_chosen_and_why(results, route):
    result = results[route]
    text = repr(result)
    assert result.success
    assert np.linalg.norm(result.x - 1) < 0.4
    for word in ("method:", "route:", "status:", "success: True", "rounds:", "samples:", "certificate:"):
        assert word in text
    assert max(len(line) for line in text.splitlines()) < 220
    assert len(text.splitlines()) <= 24
    assert result.certificate.upper >= result.certificate.residual == result.residual
    assert result.residual_kind == "estimated"
    assert result.problem["name"] == "root"
    assert codes(result, "warning") == (["stalled"] if route == "named" else [])  # constant steps stay in the noise


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
def test_the_same_seed_gives_the_same_result(results, route):
    again = da.root(Counted(), np.zeros(2), **ROUTES[route])
    np.testing.assert_array_equal(again.x, results[route].x)
    assert repr(again) == repr(results[route])
    other = da.root(Counted(), np.zeros(2), seed=1, **ROUTES[route])
    assert np.any(other.x != results[route].x)


@pytest.mark.slow
@pytest.mark.parametrize("route", [name for name in ROUTES if name not in ("alone", "boosted")])
def test_a_replication_is_the_same_alone_and_beside_others(results, route):
    several = da.root(Counted(), np.zeros(2), reps=4, **ROUTES[route])
    np.testing.assert_allclose(several.x[0], results[route].x, rtol=1e-12)
    assert several.nfev[0] == results[route].nfev
    assert several.status[0] is results[route].status
    assert several.success.shape == several.certificate.upper.shape == (4,)
    np.testing.assert_allclose(several.certificate.upper[0], results[route].certificate.upper, rtol=1e-9)
    assert len(np.unique(several.x[:, 0])) == 4


def test_claims(results):
    claims = {name: result.claim for name, result in results.items()}
    assert claims["untuned"] is claims["named"] is None
    for name in ("planned", "restarts", "guarantee"):
        plan = results[name].plan
        assert claims[name] == da.Claim(
            da.ClaimKind.THEOREM_RMS, plan.bound, None, plan.theorem, plan.theorem.assumptions
        )
        assert str(claims[name]).startswith(f"root mean square residual <= {plan.bound:.4g}, by ")
    for name, level in (("alone", 0.5), ("boosted", 0.99)):
        claim = claims[name]
        assert (claim.kind, claim.bound, claim.confidence) == (da.ClaimKind.THEOREM_PROBABILITY, 0.2, level)
        assert claim.theorem == results[name].plan.theorem
    assert "sub-Gaussian noise" in claims["boosted"].assumptions
    assert results["boosted"].findings[0].values["delta"] == 0.01
    for name in ("stages", "named, eps", "method"):
        assert claims[name] == da.Claim(da.ClaimKind.CERTIFICATE, ROUTES[name]["eps"], 0.95), name


def test_reasons(results):
    reasons = {name: codes(result, "route") for name, result in results.items()}
    assert reasons.pop("alone") == ["route-markov"]
    assert reasons.pop("boosted") == ["route-best-of-runs"]
    assert reasons.pop("guarantee") == ["route-guarantee"]
    for names, code in (
        (("untuned", "untuned, no L"), "route-budget"),
        (("planned", "restarts"), "route-theorem"),
        (("named", "method"), "route-method"),
        (("stages", "named, eps"), "route-certified"),
    ):
        for name in names:
            assert reasons.pop(name) == [code], name
    assert not reasons


def test_estimated_constants_are_named_in_the_claim():
    result = da.root(Counted(), np.zeros(2), budget=1600, L=1.0, guarantee=True)
    (found,) = (one for one in result.findings if one.code == "estimated-constants")
    assert found.values == {"names": ["sigma", "D"]}
    assert "if sigma and D are as estimated near x0" in repr(result)
    assert {"sigma is as estimated near x0", "D is as estimated near x0"} < set(result.claim.assumptions)
    assert result.plan.inputs["sigma"] == pytest.approx(0.1 * np.sqrt(2), rel=0.3)
    result = da.root(Counted(), np.zeros(2), budget=1600, L=1.0, D=2.0, guarantee=True)
    assert "if sigma is as estimated near x0" in repr(result)


def test_a_named_method_is_the_one_that_runs():
    constants = {**KNOWN, "mu": 1.0}  # for which Theorem C would be cheaper
    for name in ("dual-ohm", "s-dual-ohm", "restarted-dual-ohm"):
        result = da.root(Counted(), np.zeros(2), eps=0.02, method=name, **constants)
        assert "dual-ohm" in result.method["id"], name
        assert result.success
    assert isinstance(
        da.root(Counted(), np.zeros(2), eps=0.1, method="s-dual-ohm", **KNOWN).plan.stages[0].batch_size, int
    )


def test_the_distance_of_a_composite_start_includes_its_noise():
    """z0 = x0 - step F_B(x0), so D^2 grows by (step sigma)^2/B; sharp mu is mu/(1 + step mu)."""
    keywords = {"budget": 5000, "guarantee": True, "L": 1.0, "mu": 0.5}
    for given in ({"sigma": 0.5, "D": 1.0}, {"D": 1.0}):  # also where sigma is estimated
        plan = da.inclusion(Counted(sigma=0.3), da.prox.box(0, 3), np.zeros(2), **keywords, **given).plan
        inputs = plan.inputs
        assert inputs["D"] == pytest.approx(np.hypot(1.0, 2 * inputs["sigma"] / np.sqrt(100)))
        assert inputs["mu"] == pytest.approx(0.5 / (1 + 2 * 0.5))
        assert inputs["sharp_only"]
        assert plan.theorem.id != "theorem-c"


def test_an_unreachable_accuracy_says_what_is_reached():
    result = da.root(Counted(sigma=1.0), np.zeros(2), eps=0.01, max_samples=2000)
    assert not result.success
    assert result.status is da.Status.MAX_SAMPLES
    assert "max_samples is 2,000: allow more, or ask for a larger eps [max-samples]" in repr(result)
    assert "budget" not in repr(result)
    assert result.claim == da.Claim(da.ClaimKind.NOT_REACHED, result.certificate.upper, 0.95)
    assert f"|F(x)| <= {result.certificate.upper:.4g} with confidence 0.95 is certified" in repr(result)
    assert "more-samples" in codes(result)
    planned = da.root(Counted(sigma=1.0), np.zeros(2), eps=0.01, max_samples=2000, L=1.0, sigma=1.5, D=2.0)
    assert planned.findings[0].values["reason"] == "too-many-samples"
    assert planned.claim.kind is da.ClaimKind.NOT_REACHED
    with pytest.raises(
        da.errors.ArgumentError, match=r"dual-ohm takes .* samples for eps = 0.01.*Within that the bound"
    ):
        da.root(Counted(), np.zeros(2), eps=0.01, max_samples=2000, method="dual-ohm", L=1.0, sigma=1.5, D=2.0)


ROUTES_THAT_LOOK = ("untuned", "untuned, no L", "guarantee", "planned", "boosted", "stages", "named")


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES_THAT_LOOK)
def test_an_operator_that_is_not_monotone_is_not_passed_off(route):
    keywords = {**ROUTES[route], **({"eps": 0.02} if route in ("planned", "boosted", "stages") else {})}
    if route == "stages":
        keywords |= {"max_samples": 3000}
    with pytest.warns(AssumptionWarning, match="not monotone"):
        result = da.root(Counted(lambda x: x * [-1, 0.3]), np.ones(2), **keywords)
    assert "not-monotone" in codes(result, "warning")
    assert "warning: F is not monotone along" in repr(result)
    assert not result.success
    if result.claim is not None:
        assert result.claim.kind in (da.ClaimKind.NONE, da.ClaimKind.NOT_REACHED)


@pytest.mark.slow
def test_rotation_without_pull():
    turn = Counted(lambda x: np.array([x[1], -x[0]]))
    with pytest.warns(AssumptionWarning, match="not cocoercive"):
        result = da.root(turn, np.ones(2), budget=1600, L=1.0, sigma=0.2, D=2.0, guarantee=True)
    assert result.claim.kind is da.ClaimKind.NONE
    result = da.root(turn, np.ones(2), eps=0.3, M=1.0)  # no reason to warn: nothing says that F is cocoercive
    assert result.success
    assert codes(result, "route") == ["route-certified", "extragradient"]
    assert "M is given without mu: F may not be cocoercive; the mean of extragradient steps" in repr(result)
    with pytest.warns(AssumptionWarning, match="not cocoercive"):
        unaided = da.root(turn, np.ones(2), budget=8000)  # seen to turn: no constant is needed to do the right thing
    assert np.linalg.norm(unaided.x) < 0.1


def test_noiseless_with_all_constants_stops_as_soon_as_it_may():
    result = da.root(lambda x, n, rng: x - 1, np.zeros(2), eps=1e-6, L=1.0, sigma=0.0, D=2.0)
    assert result.success
    assert result.nfev < 2000


@pytest.mark.slow
def test_a_residual_that_does_not_fall_is_mentioned():
    def nowhere_zero(x, n, rng):
        return np.ones(2) + rng.normal(size=2) / np.sqrt(n)

    result = da.root(nowhere_zero, np.zeros(2), budget=4000)
    assert "residual-did-not-fall" in codes(result)


def test_progress_true_writes_lines_and_other_values_are_turned_down(capsys):
    da.root(Counted(), np.zeros(2), budget=1e3, progress=True, **KNOWN)
    with pytest.raises(da.errors.ArgumentTypeError, match="progress must be True or a function"):
        da.root(Counted(), np.zeros(2), budget=1000, progress=3)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"L": 0.5, "D": 4.0}, r"L = 0.5 is too small: near x0 it is at least 1"),
        ({"sigma": 0.05}, "sigma = 0.05 is too small"),
        ({"D": 0.1}, "D = 0.1 is too"),
    ],
)
def test_constants_that_samples_contradict(given, text):
    with pytest.warns(AssumptionWarning, match=text):
        result = da.root(Counted(), np.zeros(2), budget=1600, **{**KNOWN, "guarantee": True, **given})
    assert result.claim.kind is da.ClaimKind.NONE
    assert text in repr(result)


@pytest.mark.parametrize("asked", [{"eps": 0.1}, {"eps": 0.2, "confidence": 0.9}, {"budget": 500, "guarantee": True}])
@pytest.mark.parametrize("sigma", [0.02, 0.2])
def test_a_sigma_so_small_that_nobody_looked_is_contradicted_by_the_certificate(sigma, asked):
    """Samples of the certificate have a noise of the root of 3."""

    def sample(x, n, rng):
        return 2 * x - 1 + rng.standard_normal(3) / np.sqrt(n)

    with pytest.warns(AssumptionWarning, match=rf"sigma = {sigma} is too small: at x0? it is"):
        result = da.root(sample, np.zeros(3), L=5, sigma=sigma, D=4, **asked)
    assert not result.claim.by_theorem
    assert "sigma-too-small" in codes(result, "warning")


@pytest.mark.slow
def test_a_sigma_that_is_right_is_not_contradicted():
    """Of 40 runs, which would all have to be lucky if the noise of a certificate were judged too strictly."""

    def sample(x, n, rng):
        return 2 * x - 1 + rng.standard_normal(3) / np.sqrt(n)

    for seed in range(40):
        result = da.root(sample, np.zeros(3), eps=1.0, L=5, sigma=3**0.5, D=4, seed=seed)
        assert not codes(result, "warning")
        assert result.success


@pytest.mark.filterwarnings("ignore:.*above the bound")
@pytest.mark.parametrize("route", ["guarantee", "planned", "alone", "boosted", "named", "method"])
@pytest.mark.parametrize("steepness", [30.0, 1e30])
def test_an_L_that_is_too_small(route, steepness):
    """Steps that are far too long: no success, nothing certified that is not so, and no crash."""
    result = da.root(Counted(lambda x: steepness * (x - 1)), np.zeros(2), check=False, **ROUTES[route])
    assert result.success is False
    assert np.linalg.norm(result.x) <= 2  # near the start, to which it returned
    assert result.certificate is None or result.certificate.upper > 10
    assert result.status is da.Status.DIVERGED or codes(result, "warning") or not result.claim.by_theorem
    assert result.claim is None or not result.claim.by_theorem
    with pytest.raises(UnsuccessfulError):
        result.raise_for_status()


@pytest.mark.parametrize("route", ["untuned", "stages"])
def test_the_untuned_default_survives_an_L_that_is_too_small(route):
    """Its steps follow the samples; what it claims is so."""
    result = da.root(Counted(lambda x: 1e3 * (x - 1)), np.zeros(2), check=False, **ROUTES[route])
    true = 1e3 * np.linalg.norm(result.x - 1)
    assert true <= result.certificate.upper
    assert not result.success or true < 0.1 or "eps" not in ROUTES[route]


def test_one_replication_that_diverges_does_not_cost_the_others_their_certificate():
    def sample(x, n, rng):
        return np.where(np.abs(x) > 3, 1e200 * x, x - 1) + rng.normal(size=1) * 0.75 / np.sqrt(n)

    result = da.root(sample, np.zeros(1), budget=200, method=da.SGDA(1.0), check=False, reps=20)
    gone = np.array([status is da.Status.DIVERGED for status in result.status])
    assert 0 < gone.sum() < 20
    assert np.isfinite(result.certificate.upper).all()
    assert (result.x[gone] == 0).all()
    assert (result.certificate.lower[gone] > 0.5).all()  # that of x0
    assert not result.success[gone].any()
    assert result.success[~gone].any()


class TestCallback:
    @pytest.mark.parametrize("route", ROUTES)
    def test_returning_true_stops(self, route):
        seen = []

        def callback(x):
            seen.append(x.copy())
            return len(seen) == 3

        stop_after = 1 if route in ("stages", "named, eps") else 3
        seen += [None] * (3 - stop_after)
        result = da.root(Counted(), np.zeros((2, 1)), callback=callback, **ROUTES[route])
        assert np.all(np.atleast_1d(result.status) == da.Status.CALLBACK)
        assert len(seen) == 3
        assert seen[-1].shape[-2:] == result.x.shape == (2, 1)
        assert result.nit == stop_after or stop_after == 1
        assert result.claim is None or not result.claim.by_theorem
        if "eps" in ROUTES[route] and result.success:
            assert result.certificate.upper <= ROUTES[route]["eps"]

    @pytest.mark.parametrize("route", ["untuned", "planned", "stages"])
    def test_the_other_forms(self, route):
        def with_result(intermediate_result):
            assert isinstance(intermediate_result, da.Result)
            assert intermediate_result.status is da.Status.RUNNING
            assert intermediate_result.x.shape == (2, 1)
            raise StopIteration

        result = da.root(Counted(), np.zeros((2, 1)), callback=with_result, **ROUTES[route])
        assert result.status is da.Status.CALLBACK
        going_on = da.root(Counted(), np.zeros(2), callback=lambda x: "not True", **ROUTES[route])
        assert going_on.success

    @pytest.mark.slow
    def test_several_stages_can_be_watched(self):
        seen = []
        result = da.root(Counted(sigma=1.0), np.zeros(2), eps=0.3, L=1.0, callback=lambda x: seen.append(x))
        assert result.success
        assert len(seen) > 1


@pytest.mark.parametrize("route", ["untuned", "planned", "stages", "boosted"])
def test_progress_is_told(route, monkeypatch):
    TickingClock(monkeypatch)
    seen = []
    da.root(Counted(), np.zeros(2), progress=seen.append, **ROUTES[route])
    assert seen
    assert all(0 <= one.fraction <= 1 for one in seen)


@pytest.fixture(scope="module")
def of_all_doors():
    return list(doors())


def doors():
    sample_u, sample_v, _ = saddle_pair()
    for reps in (1, 2):
        common = {"budget": 600, "L": 4.0, "reps": reps}
        yield da.root(Counted(), 0.0, **common)
        yield da.root(Counted(), np.zeros((2, 2), np.float32), eps=0.2, L=1.0, reps=reps)
        yield da.root(Counted(), np.zeros(2), eps=0.1, reps=reps, **KNOWN)
        yield da.fixed_point(Counted(lambda x: 1 + 0 * x), np.zeros(2), budget=500, reps=reps)
        yield da.saddle(sample_u, sample_v, (np.zeros((2, 1)), 0.0), **common)
        yield da.inclusion(Counted(), da.prox.box(0, 0.5), np.zeros(3), **common)


def test_save_and_load(of_all_doors, tmp_path):
    for result in of_all_doors:
        loaded = da.Result.load(result.save(tmp_path / "result"))
        assert repr(loaded) == repr(result)
        assert type(loaded.x) is type(result.x)
        pairs = zip(result.x, loaded.x, strict=True) if isinstance(result.x, tuple) else [(result.x, loaded.x)]
        for mine, theirs in pairs:
            np.testing.assert_array_equal(mine, theirs)
            assert mine.dtype == theirs.dtype
        assert np.array_equal(loaded.nfev, result.nfev)
        assert (loaded.findings, loaded.claim) == (result.findings, result.claim)
        np.testing.assert_array_equal(loaded.certificate.upper, result.certificate.upper)
        assert repr(da.Result.load(loaded.save(tmp_path / "again"))) == repr(result)


def test_plots(of_all_doors):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    for result in of_all_doors:
        ax = result.plot()
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert "upper bound, confidence 95 %" in labels
        positive = np.any(np.asarray(result.certificate.residual) > 0)  # a logarithmic axis has no 0
        assert ("estimate on fresh samples" in labels) == positive
        assert {"estimates during the run", "estimates on fresh samples"} & set(labels)
        assert all(len(line.get_xdata()) >= 2 for line in ax.get_lines() if line.get_label() == labels[0])
        pyplot.close(ax.figure)
    known = da.root(da.AdditiveNoise(lambda x: x, 0.1), np.ones(2), budget=500, L=1.0)
    ax = known.plot()
    assert len(ax.lines[0].get_xdata()) > 10  # the true residuals that were recorded
    pyplot.close(ax.figure)


def test_a_name_with_dollars_is_drawn_as_it_is():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    named = da.Problem(da.AdditiveNoise(lambda x: x, 0.1), np.ones(2), name="in $, at most 5^$")
    figure = Figure()
    da.solve(named, da.SGDA(0.5), budget=50).plot(figure.subplots())
    figure.draw_without_rendering()


def test_a_plot_calls_an_exact_residual_exact():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    centers = np.random.default_rng(0).normal(size=(40, 2))
    result = da.root(da.FiniteSum(lambda x, i: x - centers[i], 40), np.zeros(2), budget=1000)
    assert result.certificate.is_exact
    ax = result.plot()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "exact residual" in labels
    assert not [label for label in labels if "confidence" in label or "fresh samples" in label]
    pyplot.close(ax.figure)


def test_plans_know_that_means_of_samples_are_gentler():
    lines = np.random.default_rng(0).normal(size=(60, 12))
    lines /= np.linalg.norm(lines, axis=1, keepdims=True)

    def sample(x, n, rng):
        chosen = lines[rng.integers(0, 60, n)]
        return (chosen @ (x - 1)) @ chosen / n

    constants = {"eps": 0.3, "L": 1.0, "sigma": 1.2, "D": 4.0, "check": False}
    plain = da.root(sample, np.zeros(12), **constants)
    wide = da.root(sample, np.zeros(12), L_mean=float(np.linalg.norm(lines, 2) ** 2 / 60), **constants)
    assert wide.nit < plain.nit / 2
    assert wide.certificate.residual < 0.3
    with pytest.raises(da.errors.ArgumentError, match="L_mean must come with L"):
        da.root(sample, np.zeros(12), eps=0.3, L_mean=0.1)


def test_max_samples_of_an_inclusion_is_the_one_asked_for():
    result = da.inclusion(Counted(sigma=1.0), da.prox.box(0, 1), np.zeros(2), eps=1e-3, L=1.0, max_samples=2000)
    assert result.status is da.Status.MAX_SAMPLES
    assert "max_samples is 2,000:" in repr(result)


@pytest.mark.slow
def test_replications_have_certificates_with_counts_of_their_own():
    """Rows stop at different stages; each tells what went into its own certificate, as it does alone."""
    together = da.root(Counted(sigma=1.0), np.zeros(2), eps=0.06, reps=6)
    samples = together.certificate.samples
    assert samples.shape == (6,)
    assert len(set(samples.tolist())) > 1
    assert (samples < together.nfev).all()
    alone = da.root(Counted(sigma=1.0), np.zeros(2), eps=0.06)
    assert isinstance(alone.certificate.samples, int)
    assert alone.certificate.samples == samples[0]
    assert f"from {samples.min():,} to {samples.max():,}, median " in repr(together)
    assert " fresh samples at each of 6 points" in repr(together)


def test_what_is_printed():
    result = da.root(Counted(), np.zeros(2), eps=0.02, M=2.0, mu=1.0, sigma=0.2, D=2.0)
    assert "route: eps, L = M^2/mu = 4, sigma and D are known;" in repr(result)
    lines = [line.strip() for line in repr(result).splitlines()]
    spent = {one.code: one.values["samples"] for one in result.findings if one.label == "samples"}
    assert spent == {
        "calibration-samples": result.calibration.draws,
        "certificate-samples": result.certificate.samples,
    }
    shares = [result.calibration.draws, result.draws - sum(spent.values()), result.certificate.samples]
    assert "samples: {:,} ({:,} calibration, {:,} run, {:,} certificate)".format(result.draws, *shares) in lines
    assert f"evaluations: {result.nfev:,} (some samples more than once)" in lines
    assert "eps, L, sigma and D" in repr(da.root(Counted(), np.zeros(2), eps=0.02, L=4.0, sigma=0.2, D=2.0))


@pytest.mark.parametrize("budget", [130, 500, 1200])  # too small for a look
def test_a_small_budget_that_ends_far_above_its_start_is_no_success(budget):
    sample = Counted(lambda x: 1.5 - 0.5 * x)
    result = da.root(sample, np.zeros(2), budget=budget, L=1.0)
    assert sample.samples - 1 <= result.nfev <= min(budget, sample.samples)  # one may show that there is no noise
    assert not result.success
    assert codes(result, "warning") == ["residual-grew"]
    fine = da.root(Counted(), np.zeros(2), budget=budget, L=1.0)
    assert fine.success
    assert not codes(fine, "warning")
    assert " residual at x0" in repr(fine)


@pytest.mark.slow
def test_a_residual_that_stays_where_it_is_is_not_extrapolated():
    nowhere = da.root(Counted(lambda x: 1 + 0 * x), np.zeros(2), eps=0.1, L=1.0, max_samples=20_000)
    assert "has stayed near 1.4 for most of the samples, so more may not help: is there a root" in repr(nowhere)
    floor = {"eps": 0.05, "method": da.SGDA(1.0), "max_samples": 30_000}
    assert "stalled" in codes(da.root(Counted(sigma=1.0), np.zeros(2), **floor))
    falling = da.root(Counted(sigma=1.0), np.zeros(2), eps=0.01, max_samples=2000)
    assert "more-samples" in codes(falling)


def test_a_constant_step_without_noise_is_not_called_stuck():
    slow = da.root(Counted(lambda x: 1e-3 * (x - 1), sigma=0.0), np.zeros(2), eps=1e-5, L=1.0, max_samples=4000)
    assert "stalled" not in codes(slow)


def test_a_residual_at_rounding_has_not_stalled():
    rng = np.random.default_rng(0)
    square = rng.standard_normal((10, 10))
    matrix = square @ square.T / 10 + (square - square.T) / 4 + 0.1 * np.eye(10)
    solved = da.root(lambda x, n, rng: np.tile(matrix @ (x - 1), (n, 1)), np.zeros(10), budget=5000)
    assert 0 < solved.certificate.residual < 1e-12
    assert "stalled" not in codes(solved)


def test_a_right_L_is_not_doubted_for_what_a_look_rounds():
    oracle = da.AdditiveNoise(lambda x: 5 * x - 1, sigma=0.1)
    for budget in (1000, 2000, 20_000):
        assert da.root(oracle, np.zeros(2), budget=budget, L=5.0).method["parameters"]["step_size"] == 1 / 5


def test_where_samples_show_turning_the_reason_says_so():
    def turning(x, n, rng):
        return np.array([x[1], -x[0]]) + 0.01 * rng.normal(size=2) / np.sqrt(n)

    with pytest.warns(AssumptionWarning, match="not cocoercive"):
        result = da.root(turning, np.ones(2), budget=5000)
    assert codes(result, "route") == ["extragradient"]
    assert "samples show an F that is not cocoercive" in repr(result)
    assert result.method["id"] == "averaged-iterates"


@pytest.mark.parametrize("after", [1, 12])  # in the residual at x0, and in the certificate
def test_an_interrupt_after_the_run_leaves_its_result(after):
    usual = da.root(Counted(), np.zeros(2), budget=500, L=1.0)

    class Interrupted(Counted):
        def __call__(self, x, n, rng):
            if self.calls == usual.nit + after - 1:
                raise KeyboardInterrupt
            return super().__call__(x, n, rng)

    result = da.root(Interrupted(), np.zeros(2), budget=500, L=1.0)
    np.testing.assert_array_equal(result.x, usual.x)
    assert result.certificate is None
    assert "certificate-interrupted" in codes(result)


@dataclass(frozen=True)
class Untitled(da.Method):
    step_size: float

    def step(self, k, s, F, coin=None):
        s.x = s.x - self.step_size * F(s.x, F.draw(4))

    def cost(self, k, s=None, coin=None):
        return Cost(4, 4)


def test_a_method_without_a_title_runs_until_certified_under_the_name_of_its_class():
    result = da.root(Counted(), np.zeros(2), eps=0.2, method=Untitled(0.02))
    assert result.success
    assert (result.method["id"], result.method["title"]) == ("Untitled", "Untitled")


@dataclass(frozen=True)
class Fourth(Untitled):
    """Its state has an array with the name of one of the default's."""

    def init(self, x0):
        s = super().init(x0)
        s.fourth = s.x**4
        return s


def test_names_in_the_state_of_a_method_are_its_own():
    assert da.root(Counted(), np.zeros(2), budget=500, method=Fourth(0.1)).success


@pytest.mark.slow
def test_a_lipschitz_constant_is_enough_for_a_theorem():
    turn = Counted(lambda x: np.array([x[1], -x[0]]))
    known = {"M": 1.0, "sigma": 0.2, "D": 1.5}
    result = da.root(turn, np.ones(2), eps=0.2, **known)
    assert result.success
    assert result.claim.theorem.id in ("theorem-m", "theorem-h")
    assert codes(result, "route") == ["route-theorem"]
    affine = da.root(turn, np.ones(2), eps=0.2, affine=True, **known)
    assert affine.claim.theorem.id == "averaged-extragradient"
    assert affine.success
    assert affine.plan.samples < result.plan.samples
    within = da.root(turn, np.ones(2), budget=4000, guarantee=True, **known)
    assert within.claim.by_theorem
    assert within.nfev <= 4000
    estimated = da.root(turn, np.ones(2), budget=4000, guarantee=True, M=1.0)
    assert "estimated-constants" in codes(estimated)


def test_a_lipschitz_constant_that_is_too_small_is_named():
    turn = Counted(lambda x: 3 * np.array([x[1], -x[0]]))
    with pytest.warns(AssumptionWarning, match="M = 1 is too small"):
        result = da.root(turn, np.ones(2), eps=0.2, M=1.0, sigma=0.2, D=6.0)
    assert not result.claim.by_theorem
    assert "M-too-small" in codes(result, "warning")


@pytest.mark.parametrize(
    "make",
    [
        lambda: da.root(Counted(), np.zeros(2), budget=600, reps=3),
        lambda: da.root(Counted(), np.zeros(2), eps=0.1, reps=3),
        lambda: da.root(Counted(), np.zeros(2), budget=600, reps=3, bounds=(0.0, 0.5)),  # with a gap
        lambda: da.saddle(*saddle_pair()[:2], (np.zeros(2), np.zeros(3)), budget=600, reps=3),
    ],
)
def test_one_replication_is_a_result_of_its_own(make, tmp_path):
    """It kept the certificate of all replications, and of a pair (u, v) it took one player's points."""
    several = make()
    result = several.row(1)
    assert np.shape(result.certificate.upper) == ()
    assert result.certificate.upper == several.certificate.upper[1]
    assert result.gap == (None if several.gap is None else several.gap[1])
    assert "separate-confidence" not in [one.code for one in result.certificate.findings]
    blocks, rows = (one.x if isinstance(one.x, tuple) else (one.x,) for one in (several, result))
    assert all(np.array_equal(block[1], row) for block, row in zip(blocks, rows, strict=True))
    assert repr(da.Result.load(result.save(tmp_path / "row"))) == repr(result)


def test_the_claim_of_one_replication_is_its_own():
    """Eps was reached by some replications only: what is claimed for all of them is not what holds for each."""
    several = da.root(Counted(sigma=0.5), np.zeros(2), eps=0.1, max_samples=1600, reps=8)
    assert set(several.success) == {True, False}
    assert several.claim.kind is da.ClaimKind.NOT_REACHED
    for number, reached in enumerate(several.success):
        claim = several.row(number).claim
        assert claim.kind is (da.ClaimKind.CERTIFICATE if reached else da.ClaimKind.NOT_REACHED)
        assert claim.bound == several.certificate.upper[number]
