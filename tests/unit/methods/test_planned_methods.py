"""Methods whose parameters follow from constants and budgets: what they choose, and what they ask for."""

from dataclasses import dataclass
from itertools import accumulate
from math import ceil, log2

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import Cost
from dualanchor.core.schedule import Geometric, Tapered
from dualanchor.methods import make
from dualanchor.studies.compare import _entries
from dualanchor.theory import bounds
from dualanchor.theory.schedules import Setting, loops_for_accuracy, loops_for_budget, rain_samples, tapered_for_budget

ORACLE = da.AdditiveNoise(lambda x: 2 * x, sigma=0.5)


def problem(**constants):
    return da.Problem(ORACLE, np.ones(3), constants=da.Constants(**constants))


# -- dual-ohm --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 7, 100, 5000])
def test_dual_ohm_has_the_smallest_bound_of_the_budget(budget):
    known = problem(L=2.0, sigma=0.5, D=1.7)
    method = make("dual-ohm", known, budget, {})
    run = tapered_for_budget(budget, Setting(1.0, 1.7, 0.5))
    assert (method.step_size, method.horizon, method.batch_size) == (1.0, run.horizon, run.batch_size)
    result = da.solve(known, method, budget=budget)
    assert result.status is da.Status.HORIZON
    assert result.nfev == run.samples <= budget


def test_dual_ohm_tapers_and_beats_the_constant_batch():
    known = problem(L=2.0, sigma=0.5, D=1.7)
    method = make("dual-ohm", known, 5000, {})
    assert isinstance(method.batch_size, Tapered)
    sizes = method.batch_size.size(np.arange(method.horizon - 1), method.horizon)
    constants = [bounds.theorem_a_constant(1 + 5000 // B, 1.0, 1.7, 0.5, B) for B in range(1, 200)]
    assert bounds.theorem_a(1.0, 1.7, 0.5, sizes) < 0.6 * min(constants)


def test_dual_ohm_without_noise_takes_single_samples():
    method = make("dual-ohm", problem(L=2.0, sigma=0.0, D=1.0), 50, {})
    assert (method.horizon, method.batch_size) == (51, 1)


def test_dual_ohm_with_parameters_is_the_papers():
    known = problem(L=2.0)
    for given in ({"horizon": 20}, {"batch_size": 3}, {"horizon": 20, "batch_size": Tapered(5.0)}):
        one, other = (make(name, known, 60, given) for name in ("dual-ohm", "s-dual-ohm"))
        assert one.parameters() == other.parameters()
        np.testing.assert_array_equal(*(da.solve(known, method).x for method in (one, other)))


def test_a_given_step_is_planned_for():
    known = problem(L=2.0, sigma=0.5, D=1.7)
    method = make("dual-ohm", known, 1000, {"step_size": 0.25})
    run = tapered_for_budget(1000, Setting(0.25, 1.7, 0.5, tau=0.5))
    assert (method.step_size, method.horizon) == (0.25, run.horizon)


@pytest.mark.parametrize(
    ("name", "constants", "budget", "missing"),
    [
        ("dual-ohm", {"L": 2.0}, 100, "without D and sigma"),
        ("dual-ohm", {"L": 2.0, "D": 1.0}, 100, "without sigma"),
        ("dual-ohm", {"L": 2.0, "D": 1.0, "sigma": 1.0}, None, "without a budget"),
        ("dual-ohm", {"D": 1.0, "sigma": 1.0}, 100, "step_size must be given"),
        ("anytime-dual-ohm", {"L": 2.0}, None, "without sigma and D"),
        ("anytime-dual-ohm", {"L": 2.0, "sigma": 1.0}, None, "without D"),
        ("anytime-dual-ohm", {"D": 1.0, "sigma": 1.0}, None, "step_size must be given"),
        ("sgda-decreasing", {"L": 2.0}, None, "mu > 0"),
        ("sgda-decreasing", {"mu": 0.1}, None, "step_size must be given"),
        ("rain-double-loop", {"L": 2.0}, None, "follow from a budget"),
        ("rain-double-loop", {}, 100, "step_size must be given"),
        ("dual-feg", {"L": 2.0}, None, "horizon must be given"),
        ("eag-c", {}, 100, "step_size must be given"),
        ("feg", {}, 100, "step_size must be given"),
        ("oc-halpern", {}, 100, "step_size must be given"),
        ("averaged", {}, 100, "step_size must be given"),
    ],
)
def test_what_is_missing_is_named(name, constants, budget, missing):
    with pytest.raises(da.errors.ArgumentError, match=missing):
        make(name, problem(**constants), budget, {})


# -- anytime-dual-ohm ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [8, 9, 31])
def test_stages_double_and_have_the_batches_of_tapered_runs(first):
    method = da.AnytimeDualOHM(1.0, 0.3, first)
    for j in range(4):
        stage, N = method.stage(j, method.begin(np.ones((1, 2)))), first << j
        assert (stage.steps, stage.method.horizon) == (N - 1, N)
        H = sum(1 / np.sqrt(m * (m - 1)) for m in range(2, N + 1))
        sizes = stage.method.batch_size.size(np.arange(N - 1), N)
        np.testing.assert_array_equal(sizes, Tapered(0.3 * N**2 * H).size(np.arange(N - 1), N))


def test_stages_follow_each_other_without_a_gap():
    """7, 15 and 31 rounds of stages 8, 16 and 32; the point changes at their ends only."""
    points = []
    da.solve(problem(L=2.0), da.AnytimeDualOHM(1.0, 0.1), stop=da.Steps(60), callback=lambda x: points.append(x.copy()))
    changed = [k + 1 for k in range(1, 60) if not np.array_equal(points[k], points[k - 1])]
    assert changed == [7, 22, 53]


def test_the_scale_of_batches_by_name():
    method = make("anytime-dual-ohm", problem(L=4.0, sigma=3.0, D=2.0), None, {})
    assert method.step_size == 0.5
    assert method.batch_scale == pytest.approx(0.25 * 9 / (4 * 4))
    quiet = make("anytime-dual-ohm", problem(L=4.0, sigma=0.0, D=2.0), None, {})
    assert (quiet.batches(1024).size(np.arange(1023), 1024) == 1).all()
    given = make("anytime-dual-ohm", problem(L=4.0), None, {"batch_scale": 2})
    assert given.batch_scale == 2
    with pytest.raises(da.errors.ArgumentError, match="first_stage must be at least 8"):
        da.AnytimeDualOHM(1.0, 1.0, 7)


# -- rain-double-loop ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("M", [0.3, 1.0, 40.0])
def test_loops_fit_their_budget(M):
    longest = 0
    for budget in np.unique(np.geomspace(48, 1e7, 60).astype(int)).tolist():
        loops = loops_for_budget(budget, M)
        assert 2 * loops.steps <= budget
        assert loops.anchor_weight == M / 2 ** len(loops.lengths)
        assert len(loops.lengths) >= longest
        longest = len(loops.lengths)
        if budget > 10_000:
            assert 2 * loops.steps > budget / 4, "most of the budget is used"
    assert longest > 10


def test_a_run_by_name_ends_at_its_end():
    known = problem(L=2.0, M=2.0)
    for budget in (60, 500, 5000):
        method = make("rain-double-loop", known, budget, {})
        result = da.solve(known, method, budget=budget)
        assert result.status is da.Status.HORIZON
        assert result.nfev == 2 * (method.horizon - 1)
    assert da.solve(known, "rain-double-loop", budget=20).status is da.Status.BUDGET


def test_the_sources_loops():
    """For e = eps/3: lambda = e/D, S = floor(log2(M/lambda)), N_0 = ceil(log2(512 S^2)), K_s by the noise."""
    eps, M, D, sigma = 0.01, 2.0, 3.0, 0.1
    loops = loops_for_accuracy(3 * eps, M, D, sigma)
    S = int(log2(M * D / eps))
    assert loops.anchor_weight == pytest.approx(eps / D)
    assert len(loops.lengths) == S == 9
    assert loops.epochs == (ceil(log2(512 * S**2)), *[3] * (S - 1))
    for s in range(S):
        weight = eps / D * 2**s
        M_s = M + eps / D * (2 ** (s + 1) - 1)
        assert loops.lengths[s] == ceil(8 * M_s / weight)
        assert loops.halvings[s] == max(0, ceil(log2(4096 * weight * S**2 * sigma**2 / (M_s * eps**2))))
    assert set(loops_for_accuracy(eps, M, D, 0.0).halvings) == {0}
    assert loops_for_accuracy(30.0, M, D, sigma).anchor_weight == M


def promised(eps, M, D, sigma, steps=None):
    """The residual that Epoch-SEG's lemma and the source's own two lemmas give for the loops, stage by stage."""
    loops = steps or loops_for_accuracy(eps, M, D, sigma)
    square, total = D**2, 0.0
    for s in range(len(loops.lengths)):
        weight = loops.anchor_weight * 2**s
        M_s = M + loops.anchor_weight * (2 ** (s + 1) - 1)
        for epoch in [one for one in loops.plan if one.stage == s]:
            eta = epoch.factor / (4 * M_s)
            square = square / (weight * eta * epoch.length) + 16 * eta * sigma**2 / weight
        total += 16 * weight * np.sqrt(square)  # |F^(0)(z_S)| <= 16 sum_s lambda_s |z_{s+1} - x^(s)|
    return 2 * total + loops.anchor_weight * D


@pytest.mark.parametrize("constants", [(1.0, 1.0, 1.0), (2.0, 3.0, 0.1), (40.0, 0.5, 7.0), (1.0, 1.0, 0.0)])
def test_the_certified_loops_keep_their_promise_and_those_for_three_eps_do_not(constants):
    M, D, sigma = constants
    for eps in (0.3 * M * D, 0.01 * M * D, 1e-4 * M * D):
        assert promised(eps, M, D, sigma) <= eps
        assert promised(eps, M, D, sigma, loops_for_accuracy(3 * eps, M, D, sigma)) > eps


def test_what_rain_certifies():
    """At M = D = sigma = 1. By the source's count, 16 N kappa + 2^(K+6) kappa with 2M for M_s, the last is 4.5e15."""
    found = [rain_samples(eps, 1.0, 1.0, 1.0) for eps in (0.1, 0.01, 0.001)]
    assert [f"{one:.2g}" for one in found] == ["2e+10", "1.9e+13", "4.8e+15"]
    assert rain_samples(1.0, 1.0, 1.0, 1.0) == 0


@pytest.mark.slow
def test_the_sources_loops_reach_their_accuracy():
    """Noiseless and with noise: the mean over 5 replications is below eps."""
    for eps, sigma in ((0.01, 0.0), (0.5, 0.05)):
        known = da.problems.affine(dimension=6, rotation=1.0, sigma=sigma)
        loops = loops_for_accuracy(eps, 1.0, 1.0, sigma)
        method = da.RAINDoubleLoop(0.25, *loops)
        assert da.solve(known, method, reps=5, record=0).residual.mean() <= eps


def test_epochs_are_listed_in_order():
    method = da.RAINDoubleLoop(0.1, 0.01, (10, 12), (2, 1), (1, 2))
    assert [(e.stage, e.length, e.factor, e.last) for e in method.plan] == [
        (0, 10, 1.0, False),
        (0, 10, 1.0, False),
        (0, 40, 0.5, True),
        (1, 12, 1.0, False),
        (1, 48, 0.5, False),
        (1, 96, 0.25, True),
    ]
    assert method.horizon - 1 == 216 == list(accumulate(e.length for e in method.plan))[-1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"lengths": ()},
        {"lengths": (10, 0)},
        {"epochs": (1,)},
        {"halvings": (-1, 0)},
        {"epochs": (1.5, 2)},
        {"anchor_weight": 0.0},
    ],
)
def test_wrong_loops_are_refused(wrong):
    right = {"step_size": 0.1, "anchor_weight": 0.01, "lengths": (10, 12), "epochs": (2, 1), "halvings": (1, 2)}
    with pytest.raises(da.errors.ArgumentError, match=f"RAINDoubleLoop: .*{next(iter(wrong))}"):
        da.RAINDoubleLoop(**{**right, **wrong})


def test_a_step_past_all_loops_raises():
    method = da.RAINDoubleLoop(0.1, 0.01, (2,), (1,), (0,))
    F = da.Session(ORACLE, da.Streams(0, np.arange(1), dimension=3))
    with pytest.raises(da.errors.HorizonError, match="k = 2"):
        method.step(2, method.init(np.ones((1, 3))), F)


# -- steps and contractions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "largest"), [("eag-c", 1 / 24), ("feg", 1 / 3), ("dual-feg", 1 / 3)])
@pytest.mark.parametrize("constants", [{"M": 3.0}, {"L": 3.0}, {"M": 3.0, "L": 9.0}], ids=str)
def test_steps_in_units_of_the_lipschitz_constant(name, largest, constants):
    known = problem(**constants)
    method = make(name, known, 40, {})
    assert method.step_size == pytest.approx(largest, rel=1e-14)
    da.solve(known, method, budget=40)
    with pytest.raises(da.errors.ArgumentError, match=r"step_size must satisfy .* with M = 3"):
        da.solve(known, method.with_changes(step_size=1.01 * largest), budget=40)
    da.solve(known, method.with_changes(step_size=1.01 * largest), budget=40, check=False)
    da.solve(problem(), method.with_changes(step_size=10.0), budget=40)
    grid = type(method).grid(known, 40)["step_size"]
    assert max(grid) == pytest.approx(largest, rel=1e-5)


@pytest.mark.parametrize("name", ["oc-halpern", "dual-oc-halpern"])
def test_contractions_by_name(name):
    assert make(name, problem(L=2.0), 50, {}).contraction == 1.0
    strong = make(name, problem(L=2.0, mu=0.5), 50, {})
    assert strong.contraction == pytest.approx(np.sqrt(1 - 0.5 * 0.5))
    assert make(name, problem(L=2.0, mu=0.5), 50, {"step_size": 1.0}).contraction == 1.0
    assert 0 < make(name, problem(L=2.0, mu=2.0), 50, {}).contraction < 1e-5
    for wrong in (0.0, -0.1, 1.01):
        with pytest.raises(da.errors.ArgumentError, match="contraction must be"):
            strong.with_changes(contraction=wrong)


def test_a_dual_feg_spends_its_budget():
    known = problem(M=3.0)
    for budget, given in ((41, {}), (40, {"batch_size": 4}), (100, {"batch_size": Tapered(7.0)})):
        method = make("dual-feg", known, budget, given)
        result = da.solve(known, method, budget=budget)
        assert result.status is da.Status.HORIZON
        longer = method.with_changes(horizon=method.horizon + 1)
        assert da.solve(known, longer, budget=budget).status is da.Status.BUDGET


# -- comparisons -----------------------------------------------------------------------------------------------


def test_who_joins_a_comparison_unasked():
    def names(known):
        return {entry.id for entry in _entries(known, None, 400)}

    everything = names(problem(L=2.0, M=2.0, mu=0.5, sigma=0.5, D=1.0))
    assert {"averaged", "dual-ohm", "sgda-decreasing"} <= everything
    experimental = {"eag-c", "feg", "dual-feg", "oc-halpern", "dual-oc-halpern", "rain-double-loop", "anytime-dual-ohm"}
    assert not everything & experimental
    assert names(problem(L=2.0)) == everything - {"dual-ohm", "sgda-decreasing"}


def test_any_of_them_can_be_asked_for():
    known = da.problems.affine(dimension=4, mu=0.2)
    asked = ["averaged", "dual-ohm", "anytime-dual-ohm", "eag-c", "dual-feg", "oc-halpern", "rain-double-loop"]
    found = da.compare(known, asked, budget=200, seeds=2, jobs=1).methods
    assert set(found) == set(asked)
    assert found["dual-ohm"]["selected"] == {}
    assert set(found["averaged"]["selected"]) == {"step_size"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"deltas": 0.1}, "tuple"),
        ({"deltas": (-0.1, 0.2)}, "non-negative"),
        ({"deltas": (0.2, 0.1)}, "must not fall"),
        ({"stage_steps": (5, 0)}, "steps of a stage"),
        ({"batch_sizes": (1,)}, "as many"),
        ({"last": 3}, "RegularisedDualOHM"),
    ],
)
def test_stages_of_recursive_extragradient_are_checked(changes, words):
    stages = {"deltas": (0.1, 0.2), "stage_steps": (5, 5), "batch_sizes": (1, 1), "step_factors": (1.0, 1.0)}
    with pytest.raises((da.errors.ArgumentError, da.errors.ArgumentTypeError), match=words):
        da.RecursiveExtragradient(0.1, **{**stages, **changes})


def test_configurations_of_new_schedules_and_methods_run_together():
    problem = da.problems.affine(dimension=3)
    stacks = [
        [da.RegularisedDualOHM(0.1, 20, delta=delta) for delta in (0.1, 0.2)],
        [da.DualOHM(0.1, 20, da.Tapered(5.0, tau=tau)) for tau in (0.1, 0.5)],
        [da.SEG(0.1, Geometric(1.0, q)) for q in (1.1, 1.2)],
    ]
    for stack in stacks:
        together = da.solve(problem, stack, stop=da.Steps(19), record=0)
        for row, method in zip(together.x, stack, strict=True):
            np.testing.assert_array_equal(row[0], da.solve(problem, method, stop=da.Steps(19), record=0).x)


def test_instances_of_any_method_can_be_compared():
    problem = da.problems.affine(dimension=3)
    methods = [da.averaged(da.SEG(0.3)), da.MirrorProx(0.3, prox=da.prox.box(-9, 9))]
    assert len(da.compare(problem, methods, budget=100, seeds=2, jobs=1).methods) == 2


@dataclass(frozen=True)
class Untitled(da.Method):
    """A user's method without id, title and citation."""

    step_size: float

    def step(self, k, s, F, coin=None):
        s.x = s.x - self.step_size * F(s.x, F.draw(2))

    def cost(self, k, s=None, coin=None):
        return Cost(2, 2)


@pytest.mark.parametrize("make", [lambda: Untitled(0.1), lambda: Untitled])
def test_a_method_without_an_id_can_be_compared(make):
    known = da.compare(problem(L=2.0), [make(), "sgda"], budget=100, seeds=2, jobs=1).methods
    assert set(known) == {"Untitled", "sgda"}


def test_a_method_without_an_id_can_be_averaged_and_made_for_a_problem():
    result = da.solve(problem(), da.averaged(Untitled(0.1)), budget=20)
    assert result.method["parameters"]["method"] == "Untitled"
    with pytest.raises(ArgumentError, match="Untitled: step_size must be given"):
        Untitled.for_problem(problem())
