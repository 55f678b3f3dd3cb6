"""When a claim about a study counts as reproduced: what is compared, seed by seed, and the thresholds.

A statement is reproduced if the seeds support it and not reproduced if they contradict it; it depends where the seeds
do neither, or where readings of the paper's text disagree (see `readings`).

- Two methods are compared by the logarithm of the ratio of their residuals in each seed, where instance, start and
  budget are the same. One-sided t test of its mean at level `LEVEL`, or a sign test if a seed diverged.
- A statement about the shape of a curve is supported if it holds in every seed, contradicted if in no more than half.
  Shapes are read off tenths: geometric means over each tenth of the budget.
- A statement about a selected parameter is supported if at most `LEVEL` of the bootstrap resamples of the tuning seeds
  select otherwise, contradicted if at most `LEVEL` select as stated.
- A statement about several methods or panels is supported if all its parts are, contradicted if one part is.

The constants follow the wording of the paper and were fixed before the outcomes of a study were known.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from functools import wraps
from typing import Any, NamedTuple

import numpy as np
from scipy.special import bdtr, stdtr, stdtrit

from dualanchor.core.types import Array
from dualanchor.studies.study import Study

LEVEL = 0.05  # of every test; also the share of resamples that may select otherwise
RESAMPLES = 10_000  # of the seeds, with replacement
DIVERGING = 2.0  # the last tenth of a diverging residual is at least this multiple of its lowest level,
CALM = 1.25  # and of a stable one at most this multiple, which allows for noise
CONVERGED = 0.5  # of the start: a method that ends above has made very small progress
EFFECTIVE = 0.1  # of the start: a method that ends below solves a problem effectively
STEADY = -0.9  # at most this rank correlation of tenths with time
EARLY = 0.8  # at least this part of the logarithmic decrease in the first fifth of the budget is fast first
COMPARABLE = 2.0  # the factor within which residuals are comparable


class PanelSeeds:
    """The numbers of one panel, by method; arrays over seeds in the order of the study. A diverged seed is infinite."""

    def __init__(self, study: Study, panel: str) -> None:
        self._panel, self._curves = study.results["panels"][panel], study.curves[panel]
        self._seeds = study.results["seeds"]

    def final(self, method: str) -> Array:
        return _finite_or_inf(self._panel["methods"][method]["final"]["per_seed"])

    def at(self, method: str, shares: Any) -> Array:
        """Residuals after these shares of the budget: (seeds, shares), or (seeds,) after one."""
        # A reading may allow more evaluations than the budget; shares are then of what it allows.
        allowed = max(self._panel["budget"], self._panel["methods"][method]["evals"])
        curve = self._curves[method]
        rows = np.searchsorted(np.unique(curve.seed), self._seeds)
        values = _finite_or_inf(curve.on(np.atleast_1d(shares) * allowed))[rows]
        return values if np.ndim(shares) else values[:, 0]

    def tenths(self, method: str) -> Array:
        """Geometric means over each tenth of the budget: (seeds, 10)."""
        values = self.at(method, np.linspace(0, 1, 201)[1:])
        with np.errstate(divide="ignore", invalid="ignore"):
            return _finite_or_inf(np.exp(np.log(values).reshape(-1, 10, 20).mean(axis=2)))

    def shape(self, method: str) -> dict[str, Array]:
        """Numbers that describe the shape of the curve, one per seed; the criteria name them in plain language."""
        tenths, start = self.tenths(method), self.at(method, 0)
        last, reached, total = tenths[:, -1], log_ratio(start, tenths[:, 1]), log_ratio(start, tenths[:, -1])
        with np.errstate(over="ignore", invalid="ignore"):
            return {
                "growth": np.exp(log_ratio(last, np.minimum(tenths.min(axis=1), start))),
                "rise": np.exp(log_ratio(last, tenths[:, 4])),
                "remaining": np.exp(-total),
                "order": rank_correlation(tenths),
                "early": np.divide(reached, total, out=np.full(start.shape, np.inf), where=total > 0),
            }

    def batch_sizes(self, method: str) -> Array:
        """The batch sizes that tuning selects, (1 + RESAMPLES,): on all seeds, then on bootstrap resamples of them.

        The resamples are the same for all methods.
        """
        grid = self._panel["methods"][method]["grid"]
        values = np.array([point["params"]["batch_size"] for point in grid])
        huge = 1e300  # instead of inf, since 0 times inf is NaN
        residuals = np.minimum([_finite_or_inf(point["per_seed"]) for point in grid], huge)
        n = residuals.shape[1]
        weights = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), RESAMPLES)
        return values[np.argmin(residuals @ np.vstack([np.ones((1, n)), weights]).T, axis=0)]


class Verdict(Enum):
    """The verdicts, from the least to the most doubtful, as they are written in results.json."""

    REPRODUCED = "reproduced"
    DEPENDS = "depends"
    NOT_REPRODUCED = "not reproduced"


class Judgement(NamedTuple):
    """A verdict, the number it rests on, and a sentence with all numbers.

    `doubt` orders the parts of a statement, of which the most doubtful decides: a p-value, a ratio, or the share of
    seeds or resamples that do not fit.
    """

    verdict: Verdict
    value: float
    evidence: str
    doubt: float


Judge = Callable[..., Judgement]  # from a panel's numbers and the methods of a claim, in its order


def all_of(parts: Iterable[Judgement]) -> Judgement:
    """Contradicted if a part is, supported if all are; verdict and value are those of the most doubtful part."""
    parts, order = list(parts), list(Verdict)
    worst = max(parts, key=lambda part: (order.index(part.verdict), part.doubt))
    return worst._replace(evidence="; ".join(part.evidence for part in parts))


def _against_each(judge: Judge) -> Judge:
    """Turn a criterion for two methods into one for a method against each of several others."""

    @wraps(judge)
    def judged(panel: PanelSeeds, method: str, *others: str) -> Judgement:
        return all_of(judge(panel, method, other) for other in others)

    return judged


def _found(supported: bool, contradicted: bool, value: float, evidence: str, doubt: float) -> Judgement:
    verdict = Verdict.NOT_REPRODUCED if contradicted else Verdict.DEPENDS
    return Judgement(Verdict.REPRODUCED if supported else verdict, value, evidence, doubt)


def _tested(support: float, contradiction: float, value: float, evidence: str) -> Judgement:
    return _found(support <= LEVEL, contradiction <= LEVEL, value, evidence, support)


@_against_each
def ends_below(panel: PanelSeeds, method: str, other: str) -> Judgement:
    """Final residuals: the mean log ratio to each other method is below 0."""
    logs = log_ratio(panel.final(method), panel.final(other))
    below, above = tails(logs)
    ratio, wins = mean_ratio(logs), np.count_nonzero(logs < 0)
    evidence = f"{method} ends at {ratio:.3g} times {other} (smaller in {wins} of {logs.size} seeds, p = {below:.2g})"
    return _tested(below, above, ratio, evidence)._replace(doubt=ratio)  # p-values near 1 do not tell parts apart


@_against_each
def comparable(panel: PanelSeeds, method: str, other: str) -> Judgement:
    """Final residuals: the mean log ratio to each other method is within `COMPARABLE` either way, by two tests."""
    logs, limit = log_ratio(panel.final(method), panel.final(other)), np.log(COMPARABLE)
    not_too_high, too_high = tails(logs - limit)
    too_low, not_too_low = tails(logs + limit)
    ratio, shown = mean_ratio(logs), ""
    if logs.size > 1 and np.isfinite(logs).all():  # the interval that belongs to the two tests
        reach = stdtrit(logs.size - 1, 1 - LEVEL) * logs.std(ddof=1) / np.sqrt(logs.size)
        low, high = np.exp(logs.mean() - reach), np.exp(logs.mean() + reach)
        shown = f" ({1 - 2 * LEVEL:.0%} interval {low:.3g} to {high:.3g})"
    evidence = f"{method} ends at {ratio:.3g} times {other}{shown}"
    return _tested(max(not_too_high, not_too_low), min(too_high, too_low), ratio, evidence)


@_against_each
def steadier(panel: PanelSeeds, method: str, other: str) -> Judgement:
    """The share of the log decrease that falls into the first fifth is smaller in the mean for each other method."""
    mine, theirs = (panel.shape(name)["early"] for name in (method, other))
    with np.errstate(invalid="ignore"):
        difference = np.where(mine == theirs, 0.0, theirs - mine)
    below, above = tails(difference)
    shares = f"{_spread(theirs)} of the log decrease for {other}, {_spread(mine)} for {method}"
    return _tested(below, above, middle(difference), f"first fifth {shares}, p = {below:.2g}")


def overtakes(panel: PanelSeeds, method: str, *others: str) -> Judgement:
    """Behind others at half the budget, ahead of them at the end: supported if of most, contradicted if of none.

    Behind and ahead by the mean log ratio of residuals, each by its own test.
    """
    turned, ratios = [], []
    for other in others:
        half = log_ratio(panel.at(method, 0.5), panel.at(other, 0.5))
        end = log_ratio(panel.final(method), panel.final(other))
        if tails(half)[1] <= LEVEL and tails(end)[0] <= LEVEL:
            turned.append(other)
        ratios.append(f"{other} {mean_ratio(half):.3g} then {mean_ratio(end):.3g}")
    share = len(turned) / len(others)
    evidence = (
        f"{method} is behind and then ahead of {len(turned)} of {len(others)} ({', '.join(turned) or 'none'}); "
        f"ratio to each at half the budget and at the end: {', '.join(ratios)}"
    )
    return _found(share > 0.5, not turned, share, evidence, 1 - share)


def ends_at(panel: PanelSeeds, method: str, *, limit: float, above: bool = False) -> Judgement:
    """The mean log ratio of the final residual to the one at the start is below the log of a limit, or above it."""
    logs = log_ratio(panel.final(method), panel.at(method, 0))
    tests = tails(logs - np.log(limit))
    support, contradiction = tests[::-1] if above else tests
    low, high = np.exp(logs.min()), np.exp(logs.max())
    evidence = f"{method} ends at {mean_ratio(logs):.3g} of the start ({low:.3g} to {high:.3g}, p = {support:.2g})"
    return _tested(support, contradiction, mean_ratio(logs), evidence)


def in_every_seed(quantities: dict[str, str], holds: Callable[..., Any]) -> Judge:
    """The shape of each method's curve; `quantities` maps those of `PanelSeeds.shape` to phrases."""

    def judged(panel: PanelSeeds, *methods: str) -> Judgement:
        return all_of(one(panel, method) for method in methods)

    def one(panel: PanelSeeds, method: str) -> Judgement:
        shape = panel.shape(method)
        values = [shape[name] for name in quantities]
        fits = holds(*values)
        shown = ", ".join(text.format(_spread(value)) for text, value in zip(quantities.values(), values, strict=True))
        evidence = f"{method}: {shown}; as stated in {fits.sum()} of {fits.size} seeds"
        share = float(fits.mean())
        return _found(share == 1, share <= 0.5, middle(values[0]), evidence, 1 - share)

    return judged


_GROWTH = {"growth": "last tenth at {} times the lowest level"}
_REMAINING = {"remaining": "last tenth at {} of the start"}
diverges = in_every_seed(
    _GROWTH | {"rise": "{} times the fifth tenth"},
    lambda growth, rise: (growth >= DIVERGING) & ((rise > 1) | np.isinf(growth)),
)
stable = in_every_seed(
    _GROWTH | {"remaining": "{} of the start"}, lambda growth, rest: (growth <= CALM) & (rest <= CONVERGED)
)
steady = in_every_seed(
    {"order": "rank correlation with time {}"} | _REMAINING, lambda order, rest: (order <= STEADY) & (rest <= CONVERGED)
)
fast_then_stagnates = in_every_seed(
    {"early": "{} of the log decrease in the first fifth"} | _REMAINING,
    lambda early, rest: (early >= EARLY) & (rest <= CONVERGED),
)


def selects(panel: PanelSeeds, method: str, *, batch_size: int) -> Judgement:
    """Tuning selects this batch size, in all but `LEVEL` of the resamples of the seeds."""
    chosen = panel.batch_sizes(method)
    share = float(np.mean(chosen[1:] == batch_size))
    evidence = f"{method} selects B = {chosen[0]}; B = {batch_size} in {share:.1%} of resamples of the seeds"
    return _tested(1 - share, share, share, evidence)


def same_batch(panel: PanelSeeds, method: str, other: str, *, same: bool = True) -> Judgement:
    """Tuning selects one batch size for both methods (or not), in all but `LEVEL` of the resamples of the seeds."""
    mine, theirs = (panel.batch_sizes(name) for name in (method, other))
    share = float(np.mean((mine == theirs)[1:] == same))
    in_words = f"{'the same' if same else 'different ones'} in {share:.1%} of resamples of the seeds"
    evidence = f"{method} selects B = {mine[0]}, {other} B = {theirs[0]}; {in_words}"
    return _tested(1 - share, share, share, evidence)


def log_ratio(a: Array, b: Array) -> Array:
    """log(a/b) per seed; 0 where both are infinite or both are zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(a == b, 0.0, np.log(a) - np.log(b))


def tails(values: Array) -> tuple[float, float]:
    """p-values of "the mean is below 0" and of "the mean is above 0": t test, or sign test if a value is infinite."""
    n = values.size
    if n < 2 or not np.isfinite(values).all():
        below, above = np.count_nonzero(values < 0), np.count_nonzero(values > 0)
        return float(bdtr(above, above + below, 0.5)), float(bdtr(below, above + below, 0.5))
    mean, error = values.mean(), values.std(ddof=1) / np.sqrt(n)
    t = mean / error if error > 0 else np.sign(mean) * np.inf if mean else 0.0
    return float(stdtr(n - 1, t)), float(stdtr(n - 1, -t))


def middle(values: Array) -> float:
    """The median, of an even number of values the upper of the middle two; values may be infinite."""
    return float(np.sort(values)[values.size // 2])


def mean_ratio(logs: Array) -> float:
    """The geometric mean of ratios, given their logarithms; their median if some are infinite."""
    return float(np.exp(logs.mean() if np.isfinite(logs).all() else middle(logs)))


def rank_correlation(rows: Array) -> Array:
    """Spearman's correlation of each row with its index."""
    n = rows.shape[1]
    ranks = rows.argsort(axis=1, kind="stable").argsort(axis=1)
    return 1 - 6 * ((ranks - np.arange(n)) ** 2).sum(axis=1) / (n * (n**2 - 1))


def _spread(values: Array) -> str:
    return f"{middle(values):.3g} ({values.min():.3g} to {values.max():.3g})"


def _finite_or_inf(values: Any) -> Array:
    numbers = np.asarray(values, dtype=float)
    return np.where(np.isnan(numbers), np.inf, numbers)
