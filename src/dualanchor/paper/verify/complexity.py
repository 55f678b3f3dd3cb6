r"""How many samples an accuracy costs, measured: each method runs with the plan that its theorem makes for it.

For a series of accuracies :math:`\epsilon` the plan fixes horizon and batches; the run gives the root mean square
residual :math:`\hat\epsilon` that was really reached. Both :math:`\log` samples against :math:`\log 1/\epsilon` (the
plan) and against :math:`\log 1/\hat\epsilon` (the run) are fitted by a line, whose slope is the exponent. A factor of
logarithms that the theorem names is divided out for the comparison with the exponent that it claims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, log
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core.method import Method
from dualanchor.core.schedule import Growing
from dualanchor.core.types import Array
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.methods.ohm import OHM
from dualanchor.methods.sgda import SGDA
from dualanchor.paper.verify.check import FAILS, HOLDS, Z
from dualanchor.paper.verify.operators import Case, flip, turn
from dualanchor.paper.verify.paper import growing_plan
from dualanchor.paper.verify.paths import norm
from dualanchor.run import Steps, solve
from dualanchor.theory import bounds, schedules
from dualanchor.theory.schedules import Setting
from dualanchor.theory.weights import root_sum

TOLERANCE, QUICK_TOLERANCE = 0.1, 0.25
"""How far a fitted exponent may be from the one that is claimed; five points over a factor of seven say less.

The exponent is judged and not its interval: the worse the fit, the more an interval would let pass.
"""

BOOTSTRAPS = 400
SIGMA = 1.0


class Stage(NamedTuple):
    """A method, and how many steps of it are taken (None: up to its horizon)."""

    method: Method
    steps: int | None = None


class Plan(NamedTuple):
    """Runs one after another, each from where the last one ended, and the factor of logarithms in their cost."""

    stages: list[Stage]
    logarithms: float


@dataclass(frozen=True)
class Fit:
    """A fitted exponent with its 95 % interval."""

    exponent: float
    low: float
    high: float


@dataclass(frozen=True)
class Point:
    """One accuracy: what was planned for it and what came of it.

    Attributes
    ----------
    eps : float
        The accuracy planned for.
    reached : float
        The root mean square residual.
    samples, rounds : int
        What it cost.
    holds : bool
        Whether `reached` is at most `eps`, but for chance.
    """

    eps: float
    reached: float
    samples: int
    rounds: int
    holds: bool


@dataclass(frozen=True)
class Curve:
    """Samples against accuracy for one method on one operator.

    Attributes
    ----------
    method, operator, source : str
        What was run on what, and the statement that plans it.
    claim : float
        The exponent that the statement claims, up to logarithms.
    planned, measured : Fit
        Exponents of samples in 1/eps and in 1/reached.
    without_logarithms : Fit
        That of samples, divided by the logarithms that the statement names, in 1/reached.
    points : list of Point
        From the largest accuracy to the smallest.
    verdict : str
        "holds" where every point does and the exponent `without_logarithms` is within 0.1 (quick: 0.25) of the claim.
    """

    method: str
    operator: str
    source: str
    claim: float
    planned: Fit
    measured: Fit
    without_logarithms: Fit
    points: list[Point]
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """All of it by name, ready for JSON."""
        return asdict(self)


# -- what each theorem says to do for an accuracy ----------------------------------------------------------------


def constant_batches(eps: float, case: Case, sigma: float) -> Plan:
    """Theorem 4.1's method with the cheapest constant batch by Theorem A: N = 4D/(a eps), B = 4 sigma^2/eps^2."""
    run = schedules.constant_for_accuracy(eps, _setting(case, sigma))
    return Plan([Stage(DualOHM(case.step_size, run.horizon, run.batch_size))], 1.0)


def growing_batches(eps: float, case: Case, sigma: float) -> Plan:
    """Proposition 3.4: S-OHM, N = 4D/(a eps), batches c(k+1), c = 8 sigma^2/eps^2."""
    N, c = growing_plan(eps, case.step_size, case.L, case.D, sigma)
    return Plan([Stage(OHM(case.step_size, N, Growing(c)))], 1.0)


def tapered_batches(eps: float, case: Case, sigma: float) -> Plan:
    """Theorem B: samples ~ (8/3) H_N^2 sigma^2/eps^2."""
    run = schedules.tapered_for_accuracy(eps, _setting(case, sigma))
    return Plan([Stage(DualOHM(case.step_size, run.horizon, run.batch_size))], float(root_sum(run.horizon)) ** 2)


def early_stopping(eps: float, case: Case, sigma: float) -> Plan:
    """Theorem 4.5: N = 4LD/eps, k = L/mu log(256 L^4D^2/(mu^2 eps^2)) steps, B = 16 L sigma^2/(mu eps^2)."""
    kappa = case.L / case.mu
    k = ceil(kappa * log(256 * (kappa * case.L * case.D / eps) ** 2))
    N = max(k + 1, ceil(4 * case.L * case.D / eps))
    return Plan([Stage(DualOHM(1 / case.L, N, ceil(16 * kappa * (sigma / eps) ** 2)), k)], float(k))


def contraction(eps: float, case: Case, sigma: float) -> Plan:
    """Theorem C with N = inf: half of eps^2 for the start, half for the noise; SGDA with a large batch."""
    kappa = case.L / case.mu
    k = ceil(kappa * log(2 * (case.L * case.D / eps) ** 2))
    B = ceil(2 * kappa * (sigma / eps) ** 2)
    while bounds.theorem_c(k, 1 / case.L, case.L, case.mu, case.D, sigma, B) > eps**2:
        k += 1
    return Plan([Stage(SGDA(1 / case.L, B), k)], float(k))


def restarts(eps: float, case: Case, sigma: float) -> Plan:
    """Restarted tapered batches: O(sigma^2 log^2(L/mu)/eps^2), without logarithms of eps but for the first rounds."""
    runs = schedules.restarts_for_accuracy(eps, _setting(case, sigma), case.mu)
    return Plan([Stage(DualOHM(case.step_size, run.horizon, run.batch_size)) for run in runs], 1.0)


def _setting(case: Case, sigma: float) -> Setting:
    return Setting(step_size=case.step_size, D=case.D, sigma=sigma)


# -- what is run -------------------------------------------------------------------------------------------------


class Study(NamedTuple):
    """A method with its planner, the statement behind it and the exponent claimed."""

    method: str
    source: str
    claim: float
    plan: Callable[[float, Case, float], Plan]


GENERAL = (
    Study("S-OHM, growing batches", "Proposition 3.4", 4.0, growing_batches),
    Study("S-Dual-OHM, constant batch", "Theorem 4.1", 3.0, constant_batches),
    Study("Dual-OHM, tapered batches", "Theorem B", 2.0, tapered_batches),
)
STRONG = (
    Study("S-Dual-OHM, early stopping", "Theorem 4.5", 2.0, early_stopping),
    Study("SGDA, large batch", "Theorem C", 2.0, contraction),
    Study("Dual-OHM, restarts", "Restarts", 2.0, restarts),
)


class Ground(NamedTuple):
    """An operator with sigma = D = 1, the methods that run on it, and the accuracies from which to which.

    With `odd` accuracies are lowered until the plan's horizon is odd: at even ones T = -I forgets its start exactly.
    """

    case: Case
    studies: Sequence[Study]
    first: float
    last: float
    odd: bool = False


def grounds() -> list[Ground]:
    """The scalar T = -I, experiment 1's operator, and the same made strongly monotone (mu = 0.1, L = 2.1)."""
    base, mu = turn(101), 0.1
    strong = replace(
        base,
        name=f"experiment 1 + {mu:g} I, L/mu = {2 / mu + 1:g}",
        F=lambda x: base.F(x) + mu * x,
        L=2 + mu,
        mu=mu,
        step_size=2 / (2 + mu),
    )
    return [
        Ground(replace(flip(1, D=1.0), name="T = -I"), GENERAL, 0.1, 0.002, odd=True),
        Ground(replace(base, name="experiment 1, d = 101"), GENERAL, 0.1, 0.002),
        Ground(strong, STRONG, 0.01, 0.0002),
    ]


def measure(
    *, quick: bool = False, seed: int = 0, progress: Callable[[int, int, str], None] | None = None
) -> list[Curve]:
    """Run every method with its plans, and fit the exponents.

    Parameters
    ----------
    quick : bool
        Whether the smallest accuracies are left out.
    seed : int
        Everything random follows from it.
    progress : callable, optional
        Called with (done, total, what) before each curve.
    """
    pairs = [(ground, study) for ground in grounds() for study in ground.studies]
    curves = []
    for done, (ground, study) in enumerate(pairs):
        if progress is not None:
            progress(done, len(pairs), f"{study.method} on {ground.case.name}")
        curves.append(curve(study, ground, quick, seed))
    return curves


def curve(study: Study, ground: Ground, quick: bool = False, seed: int = 0) -> Curve:
    """One method on one operator: its plan for each accuracy run, and the exponents fitted."""
    case, reps = ground.case, 24 if ground.case.x0.size > 1 else 512
    count, part = (5, 0.5) if quick else (9, 1.0)
    spread = (ground.last / ground.first) ** np.linspace(0.0, part, count)
    plans = [_plan(study, ground, float(eps)) for eps in ground.first * spread]
    runs = _run([plan for _, plan in plans], case, reps, seed)
    squares = np.array([run.squares for run in runs])
    means, errors = squares.mean(axis=1), squares.std(axis=1, ddof=1) / np.sqrt(reps)
    points = [
        Point(eps, float(np.sqrt(mean)), run.samples, run.rounds, bool(mean - Z * error <= eps**2))
        for (eps, _), run, mean, error in zip(plans, runs, means, errors, strict=True)
    ]
    samples = np.log([run.samples for run in runs])
    logarithms = np.log([plan.logarithms for _, plan in plans])
    planned = _regression(-np.log([eps for eps, _ in plans]), samples)
    measured, plain = (_bootstrap(squares, y, seed) for y in (samples, samples - logarithms))
    near = abs(plain.exponent - study.claim) <= (QUICK_TOLERANCE if quick else TOLERANCE)
    verdict = HOLDS if near and all(point.holds for point in points) else FAILS
    return Curve(study.method, case.name, study.source, study.claim, planned, measured, plain, points, verdict)


def _plan(study: Study, ground: Ground, eps: float) -> tuple[float, Plan]:
    """The plan for an accuracy, and the accuracy."""
    while ground.odd and study.plan(eps, ground.case, SIGMA).stages[0].method.horizon % 2 == 0:
        eps *= 0.999
    return eps, study.plan(eps, ground.case, SIGMA)


class Outcome(NamedTuple):
    """Squared residuals at the end, one for each replication, and what one replication cost."""

    squares: Array
    samples: int
    rounds: int


def _run(plans: Sequence[Plan], case: Case, reps: int, seed: int) -> list[Outcome]:
    """Carry out plans from random starts at distance D."""
    problem = case.problem(SIGMA)
    x0 = np.random.default_rng(seed).standard_normal((reps, case.x0.size))
    x0 *= case.D / norm(x0)[:, None]
    if all(len(plan.stages) == 1 and plan.stages[0].steps is None for plan in plans):  # all of them as one array
        result = solve(problem, [plan.stages[0].method for plan in plans], seed=seed, reps=reps, x0=x0, record=0)
        rows = zip(result.residual**2, result.nfev[:, 0], result.nit[:, 0], strict=True)
        return [Outcome(squares, int(samples), int(rounds)) for squares, samples, rounds in rows]
    outcomes = []
    for plan in plans:
        x, total = x0, Outcome(np.zeros(reps), 0, 0)
        for number, (method, steps) in enumerate(plan.stages):
            stop = None if steps is None else Steps(steps)
            result = solve(problem, method, stop=stop, seed=seed + number, reps=reps, x0=x, record=0)
            x = result.x
            total = Outcome(
                result.residual**2,
                total.samples + int(np.max(result.nfev)),
                total.rounds + int(np.max(result.nit)),
            )
        outcomes.append(total)
    return outcomes


def _slope(x: Array, y: Array) -> Any:
    x = x - x.mean(axis=-1, keepdims=True)
    return (x * (y - y.mean())).sum(axis=-1) / (x * x).sum(axis=-1)


def _regression(x: Array, y: Array) -> Fit:
    """The least-squares slope, and its Student interval."""
    from scipy.special import stdtrit

    slope = float(_slope(x, y))
    away = x - x.mean()
    rest = y - y.mean() - slope * away
    half = float(stdtrit(x.size - 2, 0.975) * np.sqrt((rest @ rest) / (x.size - 2) / (away @ away)))
    return Fit(slope, slope - half, slope + half)


def _bootstrap(squares: Array, y: Array, seed: int) -> Fit:
    """The slope of y in log 1/reached; as interval the wider of Student's and that of drawing replications anew."""
    fit = _regression(-0.5 * np.log(squares.mean(axis=1)), y)
    rng = np.random.default_rng(seed)
    reps = squares.shape[1]
    again = rng.integers(reps, size=(BOOTSTRAPS, reps))
    means = squares[:, again].mean(axis=2).T
    low, high = np.percentile(_slope(-0.5 * np.log(means), y), [2.5, 97.5])
    return Fit(fit.exponent, min(fit.low, float(low)), max(fit.high, float(high)))
