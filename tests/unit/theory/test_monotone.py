"""Plans for merely monotone operators against their definitions and against looking at all of them."""

from __future__ import annotations

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.schedule import Geometric, Paired, PowerTapered
from dualanchor.theory import monotone as bounds
from dualanchor.theory.schedules import tapered
from dualanchor.theory.schedules.monotone import (
    MonotoneSetting,
    averaged_for_accuracy,
    averaged_for_budget,
    growing_noise,
    regularised_for_accuracy,
    regularised_for_budget,
)
from dualanchor.theory.schedules.recursive import extragradient_stage, hybrid_for_accuracy, recursive_for_accuracy
from dualanchor.theory.schedules.tapered import tapered_totals
from dualanchor.theory.weights import damping, root_sum

UNIT = MonotoneSetting(1.0, 1.0, 1.0)


def random_cases(count, seed, low=-2.2, high=-0.05):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        M, D, sigma = (float(one) for one in 10 ** rng.uniform(-2, 2, 3))
        yield float(10 ** rng.uniform(low, high) * M * D), MonotoneSetting(M, D, sigma * M * D)


def sizes_of(run):
    N = run.horizon
    return np.broadcast_to(
        run.batch_size if isinstance(run.batch_size, int) else run.batch_size.size(np.arange(N - 1), N), (N - 1,)
    )


def test_sums_over_damped_tapers_are_those_of_the_sizes():
    rng = np.random.default_rng(0)
    for _ in range(200):
        N, tau, C = int(10 ** rng.uniform(0.5, 5)), float(10 ** rng.uniform(-4.5, 0.3)), float(10 ** rng.uniform(-1, 6))
        totals = tapered_totals(C, N, tau)
        sizes = da.Tapered(C, tau=tau).size(np.arange(N - 1), N).astype(float)
        m = N - np.arange(N - 1.0)
        weights = damping(m, tau) / (m * (m - 1))
        assert root_sum(N, tau) == pytest.approx(np.sqrt(weights).sum(), rel=1e-11)
        direct = np.array([(weights / sizes).sum(), sizes.sum(), (1 / sizes).sum()])
        seen = np.array(totals[1:4])
        assert (seen >= direct * (1 - 1e-9)).all()
        assert (seen <= direct * (1 + (1e-9 if totals.exact else 0.01))).all()


def test_the_root_sum_is_below_its_logarithm():
    for tau in (1.0, 0.3, 1e-2, 1e-4, 1e-6):
        N = np.ceil(np.geomspace(3 / tau, 1e4 / tau, 50))
        assert (root_sum(N, tau) <= np.log(N * tau / 3) + 2).all()


@pytest.mark.slow
def test_planned_bounds_are_those_of_theorem_m():
    for eps, known in random_cases(60, 1):
        made = regularised_for_accuracy(eps, known)
        if made.run.horizon > 200_000:
            continue
        square = bounds.theorem_m(made.delta, made.step_size, known.M, known.D, known.sigma, sizes_of(made.run))
        assert made.run.bound == pytest.approx(np.sqrt(square), rel=1e-9)
        assert made.run.bound <= eps
        assert made.run.samples == sizes_of(made.run).sum()
        assert made.step_size <= 2 / bounds.regularised_cocoercivity(made.delta, known.M) * (1 + 1e-12)


@pytest.mark.parametrize(("eps", "most", "affine"), [(0.1, 9_200, 660), (0.01, 1.95e6, 5.0e4), (0.001, 3.55e8, 4.7e6)])
def test_samples_at_unit_constants(eps, most, affine):
    assert regularised_for_accuracy(eps, UNIT).run.samples <= most
    assert averaged_for_accuracy(eps, UNIT).run.samples <= affine
    plan = da.plan(eps=eps, M=1.0, D=1.0, sigma=1.0)
    assert plan.theorem.id == "theorem-m"
    assert plan.bound <= eps


def cheapest(eps, known):
    """The fewest samples over a fine grid of weights and horizons, the scale of each by bisection."""
    best = np.inf
    for phi in np.geomspace(0.01, 0.6, 24):
        delta = phi * eps / known.D
        if delta > known.M:
            continue
        setting, left = known.setting(delta), eps * (1 - phi)
        shortest = 2 * known.D / (setting.step_size * left)
        for N in np.unique(np.ceil(shortest * np.geomspace(1.001, 40, 24)) + 1).astype(int):
            m = np.arange(N, 1, -1.0)
            weights = damping(m, setting.tau) / (m * (m - 1))
            roots = np.sqrt(weights)
            room = left * (left - 2 * known.D / (setting.step_size * N)) / (2 * known.sigma**2)
            if room <= 0 or max(m.size, roots.sum() ** 2 / room) >= best:  # no sizes take fewer (Cauchy-Schwarz)
                continue
            low, high = 0.0, roots.sum() / room
            for _ in range(20):
                C = (low + high) / 2
                sizes = np.maximum(1, np.ceil(C * roots))
                fits = (weights / sizes).sum() <= room
                low, high = (low, C) if fits else (C, high)
                if not fits and sizes.sum() >= best:  # larger ones cost even more
                    break
            best = min(best, np.maximum(1, np.ceil(high * roots)).sum())
    return best


@pytest.mark.slow
def test_plans_are_within_one_percent_of_a_fine_scan():
    compared = 0
    for eps, known in random_cases(200, 2, -0.9):
        made = regularised_for_accuracy(eps, known)
        assert made.run.bound <= eps
        if made.run.horizon < 120:
            assert made.run.samples <= 1.01 * cheapest(eps, known) + 2
            compared += 1
    assert compared > 50


@pytest.mark.parametrize(("eps", "most"), [(0.1, 400), (0.01, 220), (0.001, 200)])
def test_a_plan_adds_up_few_tapers(eps, most, monkeypatch):
    """What a plan takes is the number of tapers that it adds up, each about 0.1 ms."""
    added = []

    def counted(*arguments):
        added.append(arguments)
        return tapered_totals(*arguments)

    monkeypatch.setattr(tapered, "tapered_totals", counted)
    regularised_for_accuracy(eps, UNIT)
    assert len(added) <= most


def test_averaged_plans_are_the_best_of_all_small_batches():
    for eps, known in random_cases(200, 3):
        made = averaged_for_accuracy(eps, known).run
        assert made.bound <= eps
        theta = np.linspace(0.01, 1, 100)[:, None, None]
        ahead, update = np.arange(1.0, 5)[:, None], np.arange(1.0, 65)
        v, q = (4 / update + theta**2 / ahead) * known.sigma**2, 4 * (known.M * known.D / theta) ** 2
        n = np.maximum(1, np.ceil((v + np.sqrt(v**2 + 4 * eps**2 * q)) / (2 * eps**2) * (1 - 1e-12)))
        assert made.samples <= 1.02 * (n * (ahead + update)).min() + 2


def test_a_stage_of_extragradient_steps_ends_where_it_should():
    rng = np.random.default_rng(4)
    for _ in range(40):
        known = MonotoneSetting(*(float(one) for one in 10 ** rng.uniform(-1, 1, 3)))
        start = known.D
        end, nu = start * float(10 ** rng.uniform(-1.5, -0.05)), known.M * float(10 ** rng.uniform(-2, 0.3))
        stage = extragradient_stage(start, end, nu, known)
        steps, sizes = stage.run.horizon - 1, stage.run.batch_size
        if steps > 20_000:
            continue
        square, k = start**2, np.arange(steps)
        ahead, update = (known.sigma**2 / one.size(k, None) for one in (sizes.ahead, sizes.update))
        for v, w in zip(ahead, update, strict=True):
            square = bounds.extragradient_step(square, stage.step_size, known.M + nu, nu, v, w)
        assert square <= end**2 * (1 + 1e-9)
        assert stage.run.samples == sizes.size(k, None).sum()


@pytest.mark.slow
def test_recursive_and_hybrid_plans_keep_to_eps():
    for eps, known in random_cases(40, 5, -1.6):
        for plan in (recursive_for_accuracy, hybrid_for_accuracy):
            made = plan(eps, known)
            if made is not None:
                assert made.bound <= eps * (1 + 1e-9)
                assert all(stage.run.horizon > 1 for stage in made.stages)
    quiet = MonotoneSetting(1.0, 1.0, 0.01)
    assert hybrid_for_accuracy(0.01, quiet).samples < 6_200
    assert hybrid_for_accuracy(0.01, quiet).samples < regularised_for_accuracy(0.01, quiet).run.samples / 5


def test_budgets_are_kept_and_larger_ones_are_better():
    for plan in (lambda Q: regularised_for_budget(Q, UNIT).run, lambda Q: averaged_for_budget(Q, UNIT).run):
        made = [plan(Q) for Q in (100, 1_000, 10_000, 100_000)]
        assert all(one.samples <= Q for one, Q in zip(made, (100, 1_000, 10_000, 100_000), strict=True))
        assert sorted((one.bound for one in made), reverse=True) == [one.bound for one in made]


@pytest.mark.slow
def test_noise_that_grows_is_planned_for():
    made, sigma = growing_noise(lambda one: regularised_for_accuracy(0.3, one), UNIT, 0.5)
    needed = bounds.sigma_of_growing_noise(1.0, 0.5, 1.0, made.step_size, sizes_of(made.run))
    assert 2.0 < needed <= sigma * (1 + 1e-9)
    assert sigma <= 1.05 * needed
    plan = da.plan(eps=0.3, M=1.0, D=1.0, sigma=1.0, growth=0.5)
    assert plan.samples == made.run.samples
    assert [one.code for one in plan.findings] == ["growing-noise"]


def test_theorem_n_is_planned_without_cocoercive_samples():
    known = {"L": 1.0, "D": 1.0, "sigma": 1.0}
    counts = []
    for eps, most in ((0.1, 6_650), (0.01, 3.3e6)):
        plan = da.plan(eps=eps, cocoercive_in_expectation=False, **known)
        assert plan.theorem.id == "theorem-n"
        assert isinstance(plan.method().batch_size, PowerTapered)
        sizes = sizes_of(plan.stages[0])
        assert plan.bound == pytest.approx(np.sqrt(bounds.theorem_n(2.0, 1.0, 1.0, sizes)), rel=1e-9)
        assert plan.bound <= eps
        assert plan.samples <= most
        counts.append(plan.samples)
    assert counts[0] > da.plan(eps=0.1, **known).samples


def test_theorem_n_adds_up_what_its_formula_says():
    sizes, sigma = [3, 1, 4], 2.0
    v = [sigma**2 / one for one in sizes]
    W = sum((v[k] + np.sqrt(2 * v[k] * sum(v[k:]))) / ((4 - k) * (3 - k)) for k in range(3))
    assert bounds.theorem_n(0.5, 1.0, sigma, sizes) == pytest.approx((0.5 + np.sqrt(0.25 + W)) ** 2)


def test_paired_and_geometric_sizes():
    sizes = Paired(Geometric(0.4, 2.0), 3)
    assert [sizes.size(k, None) for k in range(4)] == [4, 4, 5, 7]
    assert sizes.size(np.arange(4), None).tolist() == [4, 4, 5, 7]
    with pytest.raises(da.errors.ArgumentError, match="Paired: ahead"):
        Paired(0, 1)


def test_plans_without_noise_and_at_the_start():
    plan = da.plan(eps=0.1, M=1.0, D=1.0, sigma=0.0)
    assert (plan.theorem.id, plan.rounds, plan.samples) == ("fast-extragradient", 20, 40)
    assert da.plan(eps=1.0, M=1.0, D=1.0, sigma=1.0).samples == 0
    assert da.plan(budget=1, M=1.0, D=1.0, sigma=1.0).bound <= 1.0


@pytest.mark.slow
def test_budgets_and_workers_have_the_same_choice_as_accuracies():
    known = {"M": 2.0, "D": 3.0, "sigma": 0.5}
    plan = da.plan(eps=0.1, **known)
    within = da.plan(budget=plan.samples, **known)
    assert plan.theorem.id == within.theorem.id == "theorem-h"
    assert within.bound <= 1.02 * plan.bound
    timed = {"eps": 0.1, "latency": 1.0, "sample_cost": 0.001, **known}
    assert da.plan(workers=8, **timed).seconds < da.plan(**timed).seconds
    shared = da.plan(eps=0.1, workers=8, **known)
    for one in shared.stages:
        sizes = one.batch_size.size(np.arange(one.horizon - 1), one.horizon)
        assert (sizes % 8 == 0).all()
    affine = da.plan(eps=0.1, workers=8, affine=True, M=1.0, D=1.0, sigma=1.0)
    assert affine.theorem.id == "averaged-extragradient"
    assert affine.batches["first"] % 8 == 0


def test_plans_with_a_prox():
    known = {"M": 2.0, "D": 3.0, "sigma": 0.5, "prox": True}
    assert da.plan(eps=0.1, mu=0.2, **known).samples < da.plan(eps=0.1, **known).samples
    assert da.plan(eps=10.0, **known).rounds > 0  # |F(x0)| <= M D says nothing here
    assert da.plan(budget=2, **known).theorem.id == "theorem-m-prox"


def test_longer_steps_are_not_damped_as_short_ones():
    plan = da.plan(L=100.0, L_mean=1.0, M=5.0, D=1.0, sigma=1.0, eps=0.1)
    run = plan.stages[0]
    square = da.theory.bounds.theorem_a(plan.step_size, 1.0, 1.0, sizes_of(run), tau=min(2.0, 5 * plan.step_size))
    assert np.sqrt(square) <= plan.bound * (1 + 1e-9)


def test_plans_with_a_prox_and_L_count_the_noise_of_the_start():
    plan = da.plan(eps=0.15, L=1.0, D=0.1, sigma=1.0, prox=True)
    assert plan.rounds > 0
    strong = {"eps": 0.02, "L": 1.0, "D": 1.0, "sigma": 0.2, "mu": 1.0}
    assert da.plan(prox=True, **strong).theorem.id == "restarts"
    assert da.plan(**strong).theorem.id == "theorem-c"


@pytest.mark.parametrize("scale", [1e-85, 1e60])
def test_theorem_n_in_any_units(scale):
    known = {"L": 1.0, "D": scale, "sigma": scale, "cocoercive_in_expectation": False}
    assert da.plan(eps=0.1 * scale, **known).samples == pytest.approx(6364, rel=0.01)
