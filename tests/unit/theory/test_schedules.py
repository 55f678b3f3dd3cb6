"""Best horizons and batches against looking at all of them."""

from __future__ import annotations

import numpy as np
import pytest

from dualanchor import Tapered
from dualanchor.theory import bounds
from dualanchor.theory.schedules import (
    Setting,
    best_horizon,
    constant_for_accuracy,
    constant_for_budget,
    private_variances,
    restarts_for_accuracy,
    tapered_for_accuracy,
    tapered_for_budget,
)
from dualanchor.theory.schedules.tapered import tapered_totals
from dualanchor.theory.weights import root_sum


def random_settings(count, seed, bound="sharp"):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        L, D, sigma = 10 ** rng.uniform(-3, 3, 3)
        yield float(10 ** rng.uniform(-3.5, 0.5) * L * D), Setting(2 / L, float(D), float(sigma), bound=bound)


def brute_force(eps, setting):
    """The least (N - 1) B over all N by the definition of the bound, or None where that is too long a look."""
    c = setting.shortest(eps)
    if c <= 1:
        return 0
    if c > 3000:
        return None
    N = np.arange(2.0, 40 * c + 40)
    A = setting.D / (setting.step_size * N)
    if setting.bound == "sharp":
        room, noise = eps * (eps - 2 * A), 2 * (1 - 1 / N) * setting.sigma**2
    else:
        room, noise = eps**2 - 4 * A**2, 6 * setting.sigma**2
    B = np.maximum(1, np.ceil(np.where(room > 0, noise / np.where(room > 0, room, 1), np.inf) - 1e-12))
    return np.min((N - 1) * B)


@pytest.mark.parametrize("bound", ["sharp", "paper"])
def test_constant_batches_equal_the_brute_force_optimum(bound):
    compared = 0
    for eps, setting in random_settings(1000, 1, bound):
        run = constant_for_accuracy(eps, setting)
        assert run.bound <= eps
        best = brute_force(eps, setting)
        if best is not None and run.exact:
            assert run.samples == best
            compared += 1
    assert compared > 800


@pytest.mark.slow
def test_tapered_batches_are_within_one_percent_of_a_fine_grid():
    compared = 0
    for eps, setting in random_settings(60, 2):
        run = tapered_for_accuracy(eps, setting)
        constant = constant_for_accuracy(eps, setting)
        assert run.bound <= eps
        assert run.samples <= constant.samples
        c = setting.shortest(eps)
        if c <= 1 or c > 300:
            continue
        best = np.inf
        for N in np.unique(np.ceil(np.geomspace(c * 1.0001 + 1, 60 * c + 8, 150))).astype(int):
            room = setting.room(eps, N)
            if room <= 0:
                continue
            scales = float(root_sum(N)) * 2 * setting.sigma**2 / room * np.geomspace(0.2, 1.0, 60)
            sizes = np.maximum(1, np.ceil(scales[:, None] / np.sqrt(np.arange(2, N + 1) * np.arange(1, N))))
            good = 2 * setting.sigma**2 * (1 / (np.arange(2, N + 1) * np.arange(1, N)) / sizes).sum(axis=1) <= room
            if good.any():
                best = min(best, sizes[good].sum(axis=1).min())
        assert run.samples <= 1.01 * best
        compared += 1
    assert compared > 20


@pytest.mark.parametrize(("C", "N"), [(0.5, 2), (3.0, 50), (700.0, 900), (5e4, 30_000), (9e6, 200_000), (3e8, 500_000)])
def test_sums_over_tapered_batches(C, N):
    sizes = Tapered(C).size(np.arange(N - 1), N)
    m = N - np.arange(N - 1.0)
    weight, samples = (1 / (m * (m - 1) * sizes)).sum(), sizes.sum()
    totals = tapered_totals(C, N)
    if totals.exact:
        assert totals.samples == samples
        assert totals.weight == pytest.approx(weight, rel=1e-12)
    else:  # from above, and closely
        assert samples <= totals.samples <= 1.002 * samples
        assert weight * (1 - 1e-12) <= totals.weight <= 1.002 * weight


def test_what_a_plan_promises_is_what_theorem_a_says_of_its_batches():
    for eps, setting in random_settings(150, 3):
        run = tapered_for_accuracy(eps, setting)
        if 1 < run.horizon < 200_000 and run.samples < 2**53 and not isinstance(run.batch_size, int):
            sizes = run.batch_size.size(np.arange(run.horizon - 1), run.horizon)
            value = bounds.theorem_a(setting.step_size, setting.D, setting.sigma, sizes) ** 0.5
            assert value <= eps * (1 + 1e-12)
            assert value <= run.bound * (1 + 1e-9)
            assert sizes.sum() <= run.samples
            assert not run.exact or sizes.sum() == run.samples


@pytest.mark.slow
def test_constant_batches_for_a_budget_equal_brute_force():
    rng = np.random.default_rng(4)
    for _ in range(200):
        Q = int(10 ** rng.uniform(0.3, 3.0))
        a, D, sigma = (float(x) for x in 10 ** rng.uniform(-2, 2, 3))
        setting = Setting(a, D, sigma)
        run = constant_for_budget(Q, setting)
        assert run.samples <= Q
        N, B = np.meshgrid(np.arange(2.0, Q + 2), np.arange(1.0, Q + 1), sparse=True)
        values = np.where((N - 1) * B <= Q, bounds.theorem_a_constant(N, a, D, sigma, B) ** 0.5, np.inf)
        assert run.bound == pytest.approx(min(values.min(), 2 * D / a), rel=1e-12)


@pytest.mark.slow
def test_tapered_batches_for_a_budget_stay_within_it_and_beat_constant_ones():
    rng = np.random.default_rng(5)
    for _ in range(100):
        Q = int(10 ** rng.uniform(0.3, 7))
        a, D, sigma = (float(x) for x in 10 ** rng.uniform(-2, 2, 3))
        setting = Setting(a, D, sigma)
        run, constant = tapered_for_budget(Q, setting), constant_for_budget(Q, setting)
        assert run.samples <= Q
        assert run.bound <= constant.bound
        if run.horizon > 1 and not isinstance(run.batch_size, int):
            sizes = run.batch_size.size(np.arange(run.horizon - 1), run.horizon)
            assert sizes.sum() <= Q
            assert bounds.theorem_a(a, D, sigma, sizes) ** 0.5 <= run.bound * (1 + 1e-9)


def test_workers_share_batches_that_are_multiples_of_their_number():
    setting = Setting(2.0, 5.0, 1.0, multiple=8)
    for run in (tapered_for_accuracy(0.05, setting), constant_for_accuracy(0.05, setting)):
        size = run.batch_size
        sizes = (
            np.full(run.horizon - 1, size)
            if isinstance(size, int)
            else size.size(np.arange(run.horizon - 1), run.horizon)
        )
        assert (sizes % 8 == 0).all()
        assert sizes.sum() == run.samples
        assert bounds.theorem_a(2.0, 5.0, 1.0, sizes) ** 0.5 <= 0.05


def test_dear_rounds_make_fewer_of_them():
    rounds = [tapered_for_accuracy(0.01, Setting(2.0, 5.0, 1.0, round_cost=r)).horizon for r in (0.0, 100.0, 1e5)]
    assert rounds == sorted(rounds, reverse=True)
    assert rounds[-1] < 0.7 * rounds[0]


def test_smaller_steps_profit_from_their_smaller_noise():
    halved = constant_for_accuracy(0.01, Setting(0.5, 1.0, 1.0, tau=0.5))
    careless = constant_for_accuracy(0.01, Setting(0.5, 1.0, 1.0, tau=2.0))
    assert halved.samples < 0.6 * careless.samples
    sizes = np.full(halved.horizon - 1, halved.batch_size)
    assert bounds.theorem_a(0.5, 1.0, 1.0, sizes, tau=0.5) ** 0.5 <= 0.01


@pytest.mark.parametrize("tapered", [True, False])
@pytest.mark.parametrize("kappa", [3, 30, 1000])
def test_restarts_chain_their_bounds(kappa, tapered):
    mu, eps, D, sigma = 1 / kappa, 0.02, 30.0 * kappa, 0.5
    stages = restarts_for_accuracy(eps, Setting(2.0, D, sigma), mu, tapered)
    assert len(stages) > 1
    distance = D
    for run in stages:
        constant = isinstance(run.batch_size, int)
        sizes = (
            np.full(run.horizon - 1, run.batch_size)
            if constant
            else run.batch_size.size(np.arange(run.horizon - 1), run.horizon)
        )
        value = bounds.theorem_a(2.0, distance, sigma, sizes) ** 0.5
        assert value <= run.bound * (1 + 1e-9)
        distance = run.bound / mu
    assert stages[-1].bound <= eps
    alone = (tapered_for_accuracy if tapered else constant_for_accuracy)(eps, Setting(2.0, D, sigma))
    assert sum(run.samples for run in stages) < alone.samples


def test_restarts_grow_slowly_with_the_condition_number():
    """THEORY: log squared of kappa with tapered batches and depth kappa log; 20.8 kappa with constant ones."""
    samples = {}
    for kappa in (10, 100, 1000):
        setting = Setting(2.0, 20.0 * kappa, 1.0)
        for tapered in (True, False):
            stages = restarts_for_accuracy(0.01, setting, 1 / kappa, tapered)
            samples[kappa, tapered] = sum(run.samples for run in stages)
    assert samples[1000, True] / samples[10, True] < 100**0.5
    assert samples[1000, False] / samples[10, False] == pytest.approx(100, rel=0.15)
    assert samples[100, False] <= 20.8 * 100 / 0.01**2 * 1.05


def test_best_horizon_under_privacy():
    setting = Setting(1.0, 3.0, 0.0)
    run = best_horizon(lambda rounds: 1e-3 * rounds, setting)
    values = [float(setting.value(N, 2 * (1 - 1 / N) * 1e-3 * (N - 1))) for N in range(1, 3000)]
    assert run.horizon == 1 + int(np.argmin(values))
    assert run.bound == pytest.approx(min(values))


def test_private_variances_use_up_the_budget_and_beat_equal_ones():
    N, c = 500, 0.01
    v = private_variances(N, c)
    assert (c / v).sum() == pytest.approx(1.0)
    m = N - np.arange(N - 1.0)
    weighted = 2 * (v / (m * (m - 1))).sum()
    assert weighted == pytest.approx(2 * c * root_sum(N) ** 2)
    assert weighted < 0.2 * 2 * c * N
