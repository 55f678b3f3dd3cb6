"""Plans: the numbers they contain, the choice among results, the methods they make, and bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dualanchor as da
from dualanchor.theory import bounds

UNIT = {"L": 1.0, "D": 1.0, "sigma": 1.0}


@pytest.mark.parametrize(
    ("eps", "paper", "constant", "tapered"),
    [(0.1, 14_688, 7_200, 3_491), (0.01, 1.55e7, 7.92e6, 9.63e5), (0.001, 1.56e10, 7.99e9, 1.82e8)],
)
def test_samples_at_unit_constants(eps, paper, constant, tapered):
    assert da.plan(eps=eps, bound="paper", **UNIT).samples == pytest.approx(paper, rel=3e-3)
    assert da.plan(eps=eps, batches="constant", **UNIT).samples == pytest.approx(constant, rel=3e-3)
    assert da.plan(eps=eps, **UNIT).samples == pytest.approx(tapered, rel=3e-3)


def random_constants(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        L, D, sigma = (float(x) for x in 10 ** rng.uniform(-6, 6, 3))
        mu = float(L * 10 ** rng.uniform(-6, 0)) if rng.random() < 0.5 else 0.0
        yield {"L": L, "D": D, "sigma": sigma, "mu": mu}, float(L * D * 10 ** rng.uniform(-6, 0.5))


@pytest.mark.slow
def test_bound_is_at_most_eps_and_stop_within_the_horizon():
    for constants, eps in random_constants(120, 0):
        for options in ({}, {"bound": "paper"}, {"batches": "constant"}):
            plan = da.plan(eps=eps, **constants, **options)
            assert plan.bound <= eps
            assert plan.stop <= plan.horizon - 1
            assert plan.rounds == plan.stop
            assert plan.samples >= plan.rounds


@pytest.mark.slow
def test_budget_is_kept_and_more_never_hurts():
    for constants, _ in random_constants(25, 1):
        last = math.inf
        for budget in (10, 1000, 10**6):
            plan = da.plan(budget=budget, **constants)
            assert plan.samples <= budget
            assert plan.bound <= last * 1.01
            last = plan.bound


def test_early_stopping_respects_the_horizon():
    """With the paper's suggestion for experiment 3 at eps = 0.1 the stop, 2,993, would lie past the horizon, 485."""
    problem = da.problems.huber_minimax(sigma=1.5).constants
    plan = da.plan(
        eps=0.1, L=problem.L, mu=problem.mu, D=problem.D, sigma=problem.sigma, bound="paper",
        cocoercive_in_expectation=False,
    )  # fmt: skip
    assert plan.theorem.id == "theorem-4.5"
    assert plan.stop <= plan.horizon - 1
    value = bounds.theorem_4_5(
        plan.horizon, plan.stop, problem.L, problem.mu, problem.D, problem.sigma, plan.batches["size"]
    )
    assert value**0.5 <= 0.1


@pytest.mark.slow
def test_the_cheapest_result_is_chosen():
    far = {"L": 1.0, "D": 1000.0, "sigma": 0.5, "eps": 0.01}
    assert da.plan(mu=0.1, **far).theorem.id == "restarts"
    assert da.plan(**far).theorem.id == "theorem-b"
    plan = da.plan(mu=0.1, **far)
    assert plan.rejected
    assert all(samples >= plan.samples for _, samples in plan.rejected)
    assert da.plan(mu=0.1, cocoercive_in_expectation=False, **far).theorem.id == "theorem-c"
    affine = da.plan(affine=True, **far)
    assert affine.samples < da.plan(**far).samples


def test_edges():
    assert da.plan(eps=3.0, **UNIT).samples == 0  # |F(x0)| <= LD already
    assert da.plan(eps=3.0, **UNIT).method().horizon == 1
    quiet = da.plan(eps=0.1, L=1.0, D=1.0, sigma=0.0)
    assert (quiet.horizon, quiet.samples, quiet.batches["size"]) == (10, 9, 1)
    assert da.plan(eps=0.1, L=1.0, D=0.0, sigma=1.0).samples == 0
    assert da.plan(budget=1, **UNIT).samples <= 1
    assert da.plan(eps=0.1, L=1.0, mu=1.0, D=1.0, sigma=1.0).bound <= 0.1


def test_a_lipschitz_constant_with_mu_gives_cocoercivity_and_more():
    known = {"mu": 0.05, "D": 1.0, "sigma": 1.0}
    from_M, from_L = da.plan(eps=0.1, M=1.0, **known), da.plan(eps=0.1, L=20.0, **known)
    assert from_M.theorem.id == "theorem-b"
    assert from_M.samples < from_L.samples
    assert da.plan(eps=0.1, L=20.0, M=1.0, **known).samples < from_L.samples  # by Lemma 3
    extragradient = da.plan(eps=0.1, M=2.0, mu=0.5, D=1.0, sigma=1.0)
    assert extragradient.theorem.id == "theorem-r"
    assert "F is mu-strongly monotone" in extragradient.assumptions


def test_workers_and_latency():
    alone = da.plan(eps=0.02, **UNIT)
    shared = da.plan(eps=0.02, workers=16, latency=0.1, sample_cost=0.01, **UNIT)
    assert shared.rounds < alone.rounds
    assert shared.batches["first"] % 16 == shared.batches["last"] % 16 == 0
    assert shared.seconds == pytest.approx(shared.rounds * 0.1 + shared.samples / 16 * 0.01)
    assert shared.seconds < alone.rounds * 0.1 + alone.samples / 16 * 0.01


def test_variance_that_grows_with_the_rounds():
    one = da.plan(L=2.0, D=3.0, round_variance=1e-3)
    same = da.plan(L=2.0, D=3.0, round_variance=lambda rounds: 1e-3 * rounds)
    assert (one.rounds, one.bound) == (same.rounds, same.bound)
    rms = [float(bounds.theorem_a_constant(N, 1.0, 3.0, (1e-3 * (N - 1)) ** 0.5, 1)) ** 0.5 for N in range(2, 2000)]
    assert one.bound == pytest.approx(min(rms))


@pytest.mark.parametrize("options", [{}, {"batches": "constant"}, {"mu": 0.2}, {"mu": 0.2, "bound": "paper"}])
def test_the_method_does_what_the_plan_says(options):
    problem = da.problems.affine(dimension=6, L=1.0, mu=options.get("mu", 0.0), sigma=0.5, D=100.0, rotation=1.0)
    plan = da.plan(eps=0.2, L=1.0, D=100.0, sigma=0.5, **options)
    result = da.solve(problem, plan.method(), stop=da.Steps(plan.stop), record=0)
    assert result.nit == plan.rounds
    assert result.nfev == plan.samples or (not plan.exact and result.nfev <= plan.samples)


def test_epochs_of_sgda_are_a_method_too():
    plan = da.plan(eps=0.2, L=1.0, mu=0.3, D=10.0, sigma=0.5, cocoercive_in_expectation=False)
    assert plan.theorem.id == "theorem-c"
    problem = da.problems.affine(dimension=6, mu=0.3, sigma=0.5, D=10.0)
    result = da.solve(problem, plan.method(), stop=da.Steps(plan.stop), record=0)
    assert (result.nit, result.nfev) == (plan.rounds, plan.samples)


@pytest.mark.parametrize("target", [{"eps": 1e-10}, {"budget": 600}])
def test_the_bound_of_epochs_without_noise_is_not_rounded_to_zero(target):
    plan = da.plan(L=1.0, mu=0.1, D=2.0, sigma=0.0, **target)
    assert plan.theorem.id == "theorem-c"
    assert plan.bound == pytest.approx(2.0 * 0.9 ** (plan.rounds / 2), rel=1e-9, abs=0)


def test_what_is_printed():
    plan = da.plan(eps=0.05, L=2, D=45, sigma=0.1, mu=0.01)
    text = repr(plan)
    for part in ("theorem", "assumes", "rounds", "samples", "bound", "eps / 2", "s-dual-ohm", "order only"):
        assert part in text
    facts = plan.to_dict()
    assert {"theorem", "horizon", "stop", "batches", "rounds", "samples", "bound", "step_size"} <= set(facts)
    assert {"kind", "first", "last"} <= set(facts["batches"])
    assert facts["batches"]["first"] <= facts["batches"]["last"]
    assert "samples: ≤ " in repr(da.plan(eps=1e-7, **UNIT))


def test_confidence_is_by_markovs_inequality():
    sure, plain = da.plan(eps=0.1, confidence=0.99, **UNIT), da.plan(eps=0.01, **UNIT)
    assert sure.samples == pytest.approx(plain.samples, rel=1e-3)
    assert sure.bound**2 / 0.1**2 <= 1 - 0.99 + 1e-12
    assert "at most 0.1 with probability 0.99" in repr(sure)
    assert sure.halved.samples > sure.samples


def test_comparisons_are_left_out_where_the_noise_grows():
    known = {"eps": 0.3, "M": 1.0, "D": 1.0, "sigma": 1.0}
    assert [name for name, *_ in da.plan(**known).other_methods()] == ["rain", "seg"]
    assert da.plan(growth=0.1, **known).other_methods() == []


def test_a_budget_may_be_a_whole_float():
    plan = da.plan(budget=1e5, **UNIT)
    assert repr(plan) == repr(da.plan(budget=100_000, **UNIT))
    assert isinstance(plan.samples, int)


def test_one_sample_is_a_sample():
    text = repr(da.plan(eps=0.1, L=1.0, D=1.0, sigma=0.05))
    assert "from 1 sample in the first round to " in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"eps": 0.0}, ["eps", "positive"]),
        ({"eps": -1.0}, ["eps", "positive"]),
        ({"eps": math.nan}, ["eps", "finite"]),
        ({"sigma": -1.0}, ["sigma", "non-negative"]),
        ({"sigma": math.nan}, ["sigma"]),
        ({"sigma": None}, ["sigma must be given"]),
        ({"D": None}, ["D must be given"]),
        ({"D": math.inf}, ["D", "finite"]),
        ({"L": 0.0}, ["L", "positive"]),
        ({"L": None}, ["L or M must be given"]),
        ({"mu": 2.0}, ["mu", "at most L"]),
        ({"mu": math.nan}, ["mu"]),
        ({"step_size": 2.1}, ["step_size", "2/L"]),
        ({"step_size": -0.1}, ["step_size", "positive"]),
        ({"budget": 10}, ["exactly one", "both"]),
        ({"eps": None}, ["exactly one", "neither"]),
        ({"eps": None, "budget": 0}, ["budget", ">= 1"]),
        ({"eps": None, "budget": 2.5}, ["budget", "whole"]),
        ({"workers": 0}, ["workers"]),
        ({"latency": 0.1}, ["sample_cost"]),
        ({"batches": "large"}, ["batches", "tapered"]),
        ({"bound": "best"}, ["bound", "paper"]),
        ({"L": None, "M": 1.0, "step_size": 0.1}, ["M without mu", "step_size"]),
        ({"L": None, "M": 1.0, "bound": "paper"}, ["M without mu", "paper"]),
        ({"L": None, "M": 1.0, "D": None}, ["D must be given"]),
        ({"L": None, "M": 1.0, "sigma": None}, ["sigma must be given"]),
        ({"L": None, "M": 1.0, "mu": 2.0}, ["mu must be at most M"]),
        ({"growth": 0.1}, ["growth", "M"]),
        ({"confidence": 1.0}, ["confidence"]),
        ({"eps": None, "budget": 10, "confidence": 0.9}, ["confidence goes with eps"]),
        ({"L": None, "M": 1.0, "growth": -0.1}, ["growth", "non-negative"]),
        ({"round_variance": 1.0}, ["round_variance", "eps"]),
        ({"eps": None, "budget": 3, "workers": 5}, ["budget", "5 workers"]),
        ({"eps": None, "budget": 1, "cocoercive_in_expectation": False}, ["budget must pay for the first steps"]),
        ({"L": None, "M": 1.0, "prox": True, "cocoercive_in_expectation": False}, ["with a prox", "Pass L"]),
    ],
)
def test_bad_input_names_the_argument_and_the_rule(changes, words):
    with pytest.raises((da.errors.ArgumentError, da.errors.ArgumentTypeError)) as caught:
        da.plan(**{"eps": 0.1, **UNIT, **changes})
    for word in words:
        assert word in str(caught.value)


def test_a_word_is_not_a_number():
    with pytest.raises(da.errors.ArgumentTypeError, match="eps must be a number"):
        da.plan(eps="small", **UNIT)


def test_batches_take_longer_steps_where_the_mean_operator_is_gentler():
    constants = {"L": 1.0, "D": 141.0, "sigma": 15.0}
    plain = da.plan(eps=0.5, **constants)
    for options in ({}, {"latency": 1.0, "sample_cost": 1e-3}):
        wide = da.plan(eps=0.5, L_mean=0.02, **constants, **options)
        smallest = wide.batches["first"]
        assert wide.rounds < plain.rounds / 5
        assert wide.samples <= 1.02 * plain.samples or options
        assert wide.step_size <= 2 / bounds.batch_cocoercivity(smallest, 1.0, 0.02) * (1 + 1e-12)
        run = wide.stages[0]
        sizes = (
            np.full(run.horizon - 1, run.batch_size)
            if isinstance(run.batch_size, int)
            else run.batch_size.size(np.arange(run.horizon - 1), run.horizon)
        )
        assert sizes.min() == smallest
        assert bounds.theorem_a(wide.step_size, 141.0, 15.0, sizes) ** 0.5 <= 0.5
        assert wide.findings[0].code == "longer-steps"
    assert da.plan(eps=0.5, L_mean=1.0, **constants).samples <= 1.02 * plain.samples
    assert da.plan(budget=20_000, L_mean=0.02, **constants).bound < da.plan(budget=20_000, **constants).bound
    with pytest.raises(da.errors.ArgumentError, match="L_mean must be at most L"):
        da.plan(eps=0.5, L_mean=2.0, **constants)


@pytest.mark.parametrize("known", [{"L": 1.0}, {"M": 1.0}])
def test_numbers_without_a_plan_are_named(known):
    with pytest.raises(da.errors.ArgumentError, match="plan overflows"):
        da.plan(eps=1e-20, D=1.0, sigma=1.0, **known)


def test_a_stage_ends_with_the_bound_of_the_plan():
    plan = da.plan(eps=0.05, M=1.0, D=1.0, sigma=0.01)
    assert plan.theorem.id == "theorem-h"
    assert {run.bound for run in plan.stages} == {plan.bound}
