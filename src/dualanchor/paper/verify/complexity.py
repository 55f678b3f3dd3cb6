"""How many samples an accuracy costs: each method runs with the plan that its theorem makes, and costs are measured.

The logarithm of the samples is fitted by a line in log 1/eps, where eps is the accuracy planned for or the root mean
square residual reached. Logarithms in the bound of a theorem are divided out before its exponent is judged.
`draw_complexity` draws samples against accuracy.
"""

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
from dualanchor.paper.verify.check import Verdict, mean_at_most
from dualanchor.paper.verify.operators import Case, flip, norm, turn
from dualanchor.paper.verify.paper import growing_plan
from dualanchor.report.figures import figure_style, render
from dualanchor.report.styles import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION, Style
from dualanchor.run import Steps, solve
from dualanchor.theory import bounds, schedules
from dualanchor.theory.weights import root_sum

BOOTSTRAPS = 400  # resamples for the interval of an exponent
# How far a fitted exponent may be from the claimed one; a quick fit has fewer points over a smaller range. The exponent
# is judged and not its interval, which would accept more the worse the fit is.
TOLERANCE, QUICK_TOLERANCE = 0.1, 0.25
_CAPTION = "filled: the residual that runs reached; hollow: the accuracy they were planned for; grey: slopes claimed"


@dataclass(frozen=True)
class Fit:
    """A fitted exponent with its 95 % interval."""

    exponent: float
    low: float
    high: float


@dataclass(frozen=True)
class Point:
    """One accuracy `eps` planned for: the root mean square residual `reached`, what it cost, and whether it `holds`."""

    eps: float
    reached: float
    samples: int
    rounds: int
    holds: bool


@dataclass(frozen=True)
class CostCurve:
    """Samples against accuracy for one method on one operator.

    It holds where every point does and the exponent `without_logarithms` is within 0.1 (quick: 0.25) of the claim.
    """

    method: str
    operator: str
    source: str  # the statement that plans it
    claim: float  # the exponent that the statement claims, up to logarithms
    planned: Fit  # of samples in 1/eps
    measured: Fit  # of samples in 1/reached
    without_logarithms: Fit  # of samples, divided by the logarithms that the statement names, in 1/reached
    points: list[Point]  # from the largest accuracy to the smallest
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class RunSequence(NamedTuple):
    """Runs one after another, each from where the last one ended."""

    runs: list[tuple[Method, int | None]]  # with the number of steps; None: up to the horizon
    logarithms: float = 1.0  # the factor of logarithms in their cost


def growing_batches(eps: float, case: Case) -> RunSequence:
    """Proposition 3.4: S-OHM, N = 4D/(a eps), batches c(k+1), c = 8 sigma^2/eps^2."""
    N, c = growing_plan(eps, case)
    return RunSequence([(OHM(case.step_size, N, Growing(c)), None)])


def _duals(case: Case, *stages: Any, logarithms: float = 1.0) -> RunSequence:
    return RunSequence(
        [(DualOHM(case.step_size, stage.horizon, stage.batch_size), None) for stage in stages], logarithms
    )


def _setting(case: Case) -> schedules.Setting:
    return schedules.Setting(step_size=case.step_size, D=case.D, sigma=case.sigma)


def constant_batches(eps: float, case: Case) -> RunSequence:
    """Theorem 4.1's method with the cheapest constant batch by Theorem A: N = 4D/(a eps), B = 4 sigma^2/eps^2."""
    return _duals(case, schedules.constant_for_accuracy(eps, _setting(case)))


def tapered_batches(eps: float, case: Case) -> RunSequence:
    """Theorem B: samples ~ (8/3) H_N^2 sigma^2/eps^2."""
    stage = schedules.tapered_for_accuracy(eps, _setting(case))
    return _duals(case, stage, logarithms=float(root_sum(stage.horizon)) ** 2)


def restarts(eps: float, case: Case) -> RunSequence:
    """Restarted tapered batches: O(sigma^2 log^2(L/mu)/eps^2), without logarithms of eps but for the first rounds."""
    return _duals(case, *schedules.restarts_for_accuracy(eps, _setting(case), case.mu))


def early_stopping(eps: float, case: Case) -> RunSequence:
    """Theorem 4.5: N = 4LD/eps, k = L/mu log(256 L^4D^2/(mu^2 eps^2)) steps, B = 16 L sigma^2/(mu eps^2)."""
    kappa = case.L / case.mu
    k = ceil(kappa * log(256 * (kappa * case.L * case.D / eps) ** 2))
    N = max(k + 1, ceil(4 * case.L * case.D / eps))
    return RunSequence([(DualOHM(1 / case.L, N, ceil(16 * kappa * (case.sigma / eps) ** 2)), k)], float(k))


def contraction(eps: float, case: Case) -> RunSequence:
    """Theorem C with N = inf: half of eps^2 for the start, half for the noise; SGDA with a large batch."""
    kappa = case.L / case.mu
    k, B = ceil(kappa * log(2 * (case.L * case.D / eps) ** 2)), ceil(2 * kappa * (case.sigma / eps) ** 2)
    while bounds.theorem_c(k, 1 / case.L, case.L, case.mu, case.D, case.sigma, B) > eps**2:
        k += 1
    return RunSequence([(SGDA(1 / case.L, B), k)], float(k))


class RateStudy(NamedTuple):
    """A method by its style in the picture, the statement behind it, the exponent claimed, and its planner."""

    style: Style
    source: str
    claim: float
    plan: Callable[[float, Case], RunSequence]

    @property
    def method(self) -> str:
        return self.style.name


GENERAL = (
    RateStudy(Style("S-OHM, growing batches", BLUE, (5.0, 1.5), "s"), "Proposition 3.4", 4.0, growing_batches),
    RateStudy(Style("S-Dual-OHM, constant batch", ORANGE, (2.5, 1.2), "v"), "Theorem 4.1", 3.0, constant_batches),
    RateStudy(
        Style("Dual-OHM, tapered batches", VERMILLION, (), "o", emphasised=True), "Theorem B", 2.0, tapered_batches
    ),
)
STRONG = (
    RateStudy(Style("S-Dual-OHM, early stopping", BLACK, (1.0, 1.3), "X"), "Theorem 4.5", 2.0, early_stopping),
    RateStudy(Style("SGDA, large batch", GREEN, (), "^"), "Theorem C", 2.0, contraction),
    RateStudy(Style("Dual-OHM, restarts", VERMILLION, (), "D", emphasised=True), "Restarts", 2.0, restarts),
)


class Ground(NamedTuple):
    """An operator with sigma = D = 1, the methods that run on it, and the first and last accuracy.

    With `odd`, accuracies are lowered until the horizon is odd: with an even one T = -I forgets its start exactly.
    """

    case: Case
    studies: Sequence[RateStudy]
    first: float
    last: float
    odd: bool = False

    def plan(self, study: RateStudy, eps: float) -> tuple[float, RunSequence]:
        while self.odd and study.plan(eps, self.case).runs[0][0].horizon % 2 == 0:
            eps *= 0.999
        return eps, study.plan(eps, self.case)


def grounds() -> list[Ground]:
    """The scalar T = -I, experiment 1's operator, and the same made strongly monotone (mu = 0.1, L = 2.1)."""
    base, mu = turn(101), 0.1
    L, name = 2 + mu, f"experiment 1 + {mu:g} I, L/mu = {2 / mu + 1:g}"
    strong = replace(base, name=name, F=lambda x: base.F(x) + mu * x, L=L, mu=mu, step_size=2 / L)
    return [
        Ground(flip(1, D=1.0), GENERAL, 0.1, 0.002, odd=True),
        Ground(replace(base, name="experiment 1, d = 101"), GENERAL, 0.1, 0.002),
        Ground(strong, STRONG, 0.01, 0.0002),
    ]


def measure(
    *, quick: bool = False, seed: int = 0, progress: Callable[[int, int, str], None] | None = None
) -> list[CostCurve]:
    """Run every method with its plans (if `quick`, not for the smallest accuracies), and fit the exponents.

    `progress` is called with (done, total, what) before each curve.
    """
    pairs = [(ground, study) for ground in grounds() for study in ground.studies]
    curves = []
    for done, (ground, study) in enumerate(pairs):
        if progress is not None:
            progress(done, len(pairs), f"{study.method} on {ground.case.name}")
        curves.append(curve(study, ground, quick, seed))
    return curves


def curve(study: RateStudy, ground: Ground, quick: bool = False, seed: int = 0) -> CostCurve:
    """Run the plans of one method on one operator for all accuracies, and fit the exponents."""
    count, part, tolerance = (5, 0.5, QUICK_TOLERANCE) if quick else (9, 1.0, TOLERANCE)
    accuracies = ground.first * (ground.last / ground.first) ** np.linspace(0.0, part, count)
    plans = [ground.plan(study, float(eps)) for eps in accuracies]
    points, squares = [], []
    for eps, plan in plans:
        values, samples, rounds = _run(plan, ground.case, seed)
        holds = mean_at_most("", values, eps**2).holds
        points.append(Point(eps, float(np.sqrt(values.mean())), samples, rounds, holds))
        squares.append(values)
    cost = np.log([point.samples for point in points])
    planned = _regression(-np.log([eps for eps, _ in plans]), cost)
    without = cost - np.log([plan.logarithms for _, plan in plans])
    measured, plain = (_bootstrap(np.array(squares), y, seed) for y in (cost, without))
    holds = abs(plain.exponent - study.claim) <= tolerance and all(point.holds for point in points)
    about = (study.method, ground.case.name, study.source, study.claim)
    return CostCurve(*about, planned, measured, plain, points, "holds" if holds else "fails")


def _run(plan: RunSequence, case: Case, seed: int) -> tuple[Array, int, int]:
    """Squared residuals at the end of a plan, from random starts at distance D; samples and rounds of a replication."""
    reps = 24 if case.x0.size > 1 else 512
    x = np.random.default_rng(seed).standard_normal((reps, case.x0.size))
    x *= case.D / norm(x)[:, None]
    samples = rounds = 0
    for number, (method, steps) in enumerate(plan.runs):
        stop = None if steps is None else Steps(steps)
        result = solve(case.problem(), method, stop=stop, seed=seed + number, reps=reps, x0=x, record=0)
        x, samples, rounds = result.x, samples + int(np.max(result.nfev)), rounds + int(np.max(result.nit))
    return result.residual**2, samples, rounds


def _regression(x: Array, y: Array) -> Fit:
    from scipy import stats  # slow to import, and only needed here

    line = stats.linregress(x, y)
    half = float(stats.t.ppf(0.975, x.size - 2) * line.stderr)
    return Fit(float(line.slope), float(line.slope) - half, float(line.slope) + half)


def _bootstrap(squares: Array, y: Array, seed: int) -> Fit:
    """The slope of y in log 1/reached; the interval is the wider of Student's and a bootstrap over replications."""
    fit = _regression(-0.5 * np.log(squares.mean(axis=1)), y)
    reps = squares.shape[1]
    again = np.random.default_rng(seed).integers(reps, size=(BOOTSTRAPS, reps))
    drawn = -0.5 * np.log(squares[:, again].mean(axis=2)).T
    low, high = np.percentile([np.polyfit(x, y, 1)[0] for x in drawn], [2.5, 97.5])
    return Fit(fit.exponent, min(fit.low, float(low)), max(fit.high, float(high)))


def draw_complexity(curves: Sequence[CostCurve]) -> dict[str, bytes]:
    """One panel for each operator, samples against one over the residual; returns the picture as PNG and as SVG."""
    styles = {study.method: study.style for study in (*GENERAL, *STRONG)}
    operators = list(dict.fromkeys(curve.operator for curve in curves))
    with figure_style("The picture of --complexity", "plot") as Figure:
        figure = Figure(figsize=(4.6 * len(operators), 5.6))
        axes = figure.subplots(1, len(operators), squeeze=False)[0]
        for ax, operator in zip(axes, operators, strict=True):
            for curve in curves:
                if curve.operator == operator:
                    _draw(ax, curve, styles[curve.method])
            ax.set(xscale="log", yscale="log", title=operator, xlabel="1 / root mean square residual", ylabel="samples")
            ax.set_xlim(right=2.5 * ax.get_xlim()[1])  # room for the slopes' names
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), title="measured exponent, 95 % interval")
        figure.supxlabel(_CAPTION, fontsize=8.5, color="#606060")
        return render(figure)


def _draw(ax: Any, curve: CostCurve, style: Style) -> None:
    fit = curve.measured
    eps, reached, samples = np.transpose([(point.eps, point.reached, point.samples) for point in curve.points])
    label = f"{style.label}: {fit.exponent:.2f} ({fit.low:.2f} to {fit.high:.2f})"
    dashes = (0, style.dash) if style.dash else "-"
    drawn = {"color": style.colour, "marker": style.marker, "markersize": 5.5}
    ax.plot(1 / eps, samples, linestyle="none", markerfacecolor="white", markeredgewidth=0.9, zorder=3, **drawn)
    ax.plot(1 / reached, samples, linestyle=dashes, linewidth=0.75 * style.width, label=label, zorder=4, **drawn)
    middle = len(samples) // 2
    line = samples[middle] * (reached[middle] / reached) ** curve.claim
    ax.plot(1 / reached, line, color=GREY, linewidth=0.8, zorder=2)
    at = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "annotation_clip": False}
    ax.annotate(f"slope {curve.claim:g}", (1 / reached[-1], line[-1]), color="#606060", fontsize=8, **at)
