"""When a statement about a study counts as reproduced: what is looked at, and the thresholds.

Verdicts have three values. A statement is "reproduced" if the seeds support it and "not reproduced" if they contradict
it; it "depends" where the seeds do not settle it, or where readings of the paper's text disagree (see `readings`).

- Two methods are compared by the logarithm of the ratio of their residuals in each seed, where instance, start and
  budget are the same. One-sided t test of its mean at level `LEVEL`, or a sign test if a seed diverged.
- A statement about the shape of a curve is looked up in every single seed: supported if it holds in all of them,
  contradicted if in no more than half. Shapes are read off tenths: geometric means over each tenth of the budget.
- A statement about a selected parameter is supported if at most `LEVEL` of the bootstrap resamples of the tuning seeds
  select otherwise, contradicted if at most `LEVEL` select as stated.
- A statement about several methods or panels is supported if all its parts are, contradicted if one part is.

The constants follow the wording of the paper and were fixed before the outcomes of a study were looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import bdtr, stdtr, stdtrit

from dualanchor.core.types import Array
from dualanchor.studies.study import Study

Verdict = Literal["reproduced", "not reproduced", "depends"]

LEVEL = 0.05
"""Of every test; also the share of resamples that a settled selection may lose."""
DIVERGING = 2.0
"""A residual diverges if its last tenth is at least so many times its lowest level."""
CALM = 1.25
"""A residual is stable if its last tenth is at most so many times its lowest level: noise is allowed, growth is not."""
CONVERGED = 0.5
"""A method converges if it ends at no more than this part of where it started; above, it made very small progress."""
EFFECTIVE = 0.1
"""A method solves a problem effectively if it ends at no more than this part of where it started."""
STEADY = -0.9
"""A residual falls steadily if the rank correlation of its tenths with time is at most this."""
EARLY = 0.8
"""Progress is fast first if this part of the logarithmic decrease falls into the first fifth of the budget."""
COMPARABLE = 2.0
"""Residuals are comparable within this factor."""
RESAMPLES = 10_000
"""Of the seeds, with replacement."""


class Finding(NamedTuple):
    """What the numbers say.

    Attributes
    ----------
    verdict : str
        As above.
    value : float
        The number it rests on.
    evidence : str
        All numbers in words.
    doubt : float
        What orders the parts of a statement, of which the most doubtful decides: a p-value, a ratio, or the share of
        seeds or resamples that do not fit.
    """

    verdict: Verdict
    value: float
    evidence: str
    doubt: float


class Seen:
    """The numbers of one panel, by method; arrays over seeds in the order of the study. A diverged seed is infinite."""

    def __init__(self, study: Study, panel: str) -> None:
        self._panel, self._curves = study.results["panels"][panel], study.curves[panel]
        self._seeds = study.results["seeds"]

    def final(self, method: str) -> Array:
        """The final residuals."""
        return _finite_or_inf(self._panel["methods"][method]["final"]["per_seed"])

    def start(self, method: str) -> Array:
        """The residuals at the start."""
        return self.at(method, np.zeros(1))[:, 0]

    def halfway(self, method: str) -> Array:
        """The residuals at half the budget."""
        return self.at(method, np.array([0.5]))[:, 0]

    def at(self, method: str, shares: Array) -> Array:
        """Residuals after these shares of the budget: (seeds, shares)."""
        # A reading may allow more evaluations than the budget; shares are then of what it allows.
        allowed = max(self._panel["budget"], self._panel["methods"][method]["evals"])
        curve = self._curves[method]
        rows = np.searchsorted(np.unique(curve.seed), self._seeds)
        return _finite_or_inf(curve.on(shares * allowed))[rows]

    def tenths(self, method: str) -> Array:
        """Geometric means over each tenth of the budget: (seeds, 10)."""
        values = self.at(method, np.linspace(0, 1, 201)[1:])
        with np.errstate(divide="ignore", invalid="ignore"):
            return _finite_or_inf(np.exp(np.log(values).reshape(-1, 10, 20).mean(axis=2)))

    def chosen(self, method: str, parameter: str) -> Array:
        """The parameter that tuning selects: on its seeds, then on `RESAMPLES` bootstrap resamples of them.

        Resamples are the same for all methods, so that selections can be compared in each.
        """
        grid = self._panel["methods"][method]["grid"]
        values = np.array([point["params"][parameter] for point in grid])
        huge = 1e300  # instead of inf, which a weight of zero could not remove
        residuals = np.minimum([_finite_or_inf(point["per_seed"]) for point in grid], huge)
        n = residuals.shape[1]
        weights = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), RESAMPLES)
        return values[np.argmin(residuals @ np.vstack([np.ones((1, n)), weights]).T, axis=0)]


Judge = Callable[..., Finding]
"""From a panel's numbers and the methods a claim is about to a finding."""


def all_of(parts: Iterable[Finding]) -> Finding:
    """Contradicted if a part is, supported if all are; verdict and value are those of the most doubtful part."""
    found = list(parts)
    order: tuple[Verdict, ...] = ("reproduced", "depends", "not reproduced")
    worst = max(found, key=lambda part: (order.index(part.verdict), part.doubt))
    return worst._replace(evidence="; ".join(part.evidence for part in found))


# Statistics over seeds


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


def tested(support: float, contradiction: float, value: float, evidence: str) -> Finding:
    """From the p-values of a statement and of its opposite."""
    verdict: Verdict = "depends"
    if support <= LEVEL:
        verdict = "reproduced"
    elif contradiction <= LEVEL:
        verdict = "not reproduced"
    return Finding(verdict, value, evidence, support)


def in_seeds(holds: Array, value: float, evidence: str) -> Finding:
    """From a property of single runs."""
    share = float(holds.mean())
    verdict: Verdict = "depends"
    if share == 1:
        verdict = "reproduced"
    elif share <= 0.5:
        verdict = "not reproduced"
    return Finding(verdict, value, f"{evidence}; as stated in {holds.sum()} of {holds.size} seeds", 1 - share)


# Criteria, each called with a panel's numbers and the methods in the order of the claim


def ends_below(seen: Seen, method: str, *others: str) -> Finding:
    """Final residuals: the mean log ratio to each other method is below 0."""
    return all_of(_ends_below(seen, method, other) for other in others)


def _ends_below(seen: Seen, method: str, other: str) -> Finding:
    logs = log_ratio(seen.final(method), seen.final(other))
    below, above = tails(logs)
    ratio, wins = _mean_ratio(logs), np.count_nonzero(logs < 0)
    evidence = f"{method} ends at {ratio:.3g} times {other} (smaller in {wins} of {logs.size} seeds, p = {below:.2g})"
    return tested(below, above, ratio, evidence)._replace(doubt=ratio)  # p-values near 1 do not tell parts apart


def comparable(seen: Seen, method: str, *others: str) -> Finding:
    """Final residuals: the mean log ratio to each other method is within `COMPARABLE` either way, by two tests."""
    return all_of(_comparable(seen, method, other) for other in others)


def _comparable(seen: Seen, method: str, other: str) -> Finding:
    logs, limit = log_ratio(seen.final(method), seen.final(other)), np.log(COMPARABLE)
    not_too_high, too_high = tails(logs - limit)
    too_low, not_too_low = tails(logs + limit)
    ratio = _mean_ratio(logs)
    evidence = f"{method} ends at {ratio:.3g} times {other}{_interval(logs)}"
    return tested(max(not_too_high, not_too_low), min(too_high, too_low), ratio, evidence)


def overtakes(seen: Seen, method: str, *others: str) -> Finding:
    """Behind others at half the budget, ahead of them at the end: supported if of most, contradicted if of none.

    Behind and ahead by the mean log ratio of residuals, each by its own test.
    """
    turned, ratios = [], []
    for other in others:
        half = log_ratio(seen.halfway(method), seen.halfway(other))
        end = log_ratio(seen.final(method), seen.final(other))
        if tails(half)[1] <= LEVEL and tails(end)[0] <= LEVEL:
            turned.append(other)
        ratios.append(f"{other} {_mean_ratio(half):.3g} then {_mean_ratio(end):.3g}")
    share = len(turned) / len(others)
    return Finding(
        "reproduced" if share > 0.5 else "depends" if turned else "not reproduced",
        share,
        f"{method} is behind and then ahead of {len(turned)} of {len(others)} ({', '.join(turned) or 'none'}); "
        f"ratio to each at half the budget and at the end: {', '.join(ratios)}",
        1 - share,
    )


def solves(seen: Seen, method: str) -> Finding:
    """The mean log ratio of the final residual to the one at the start is below log `EFFECTIVE`."""
    logs = log_ratio(seen.final(method), seen.start(method))
    below, above = tails(logs - np.log(EFFECTIVE))
    return tested(below, above, _mean_ratio(logs), _progress(method, logs, below))


def hardly_moves(seen: Seen, method: str) -> Finding:
    """The mean log ratio of the final residual to the one at the start is above log `CONVERGED`."""
    logs = log_ratio(seen.final(method), seen.start(method))
    below, above = tails(logs - np.log(CONVERGED))
    return tested(above, below, _mean_ratio(logs), _progress(method, logs, above))


def diverges(seen: Seen, method: str) -> Finding:
    """Last tenth at least `DIVERGING` times the lowest level on the way, and above the fifth tenth, in every seed."""
    tenths, growth = seen.tenths(method), _growth(seen, method)
    rise = np.exp(log_ratio(tenths[:, -1], tenths[:, 4]))
    evidence = (
        f"{method}: last tenth at {_spread(growth)} times the lowest level, {_spread(rise)} times the fifth tenth"
    )
    return in_seeds((growth >= DIVERGING) & ((rise > 1) | np.isinf(growth)), _middle(growth), evidence)


def stable(seen: Seen, *methods: str) -> Finding:
    """Last tenth at most `CALM` times the lowest level and at most `CONVERGED` of the start, in every seed."""
    return all_of(_stable(seen, method) for method in methods)


def _stable(seen: Seen, method: str) -> Finding:
    growth, left = _growth(seen, method), _left(seen, method)
    evidence = f"{method}: last tenth at {_spread(growth)} times the lowest level, {_spread(left)} of the start"
    return in_seeds((growth <= CALM) & (left <= CONVERGED), _middle(growth), evidence)


def steady(seen: Seen, *methods: str) -> Finding:
    """Rank correlation of tenths and time at most `STEADY`, at most `CONVERGED` of the start left, in every seed."""
    return all_of(_steady(seen, method) for method in methods)


def _steady(seen: Seen, method: str) -> Finding:
    order, left = _rank_correlation(seen.tenths(method)), _left(seen, method)
    evidence = f"{method}: rank correlation with time {_spread(order)}, last tenth at {_spread(left)} of the start"
    return in_seeds((order <= STEADY) & (left <= CONVERGED), _middle(order), evidence)


def fast_then_stagnates(seen: Seen, method: str) -> Finding:
    """At least `EARLY` of the log decrease in the first fifth, at most `CONVERGED` of the start left, in every seed."""
    early, left = _early(seen, method), _left(seen, method)
    evidence = (
        f"{method}: {_spread(early)} of the log decrease in the first fifth, last tenth at {_spread(left)} of the start"
    )
    return in_seeds((early >= EARLY) & (left <= CONVERGED), _middle(early), evidence)


def steadier(seen: Seen, method: str, *others: str) -> Finding:
    """The share of the log decrease that falls into the first fifth is smaller in the mean for each other method."""
    return all_of(_steadier(seen, method, other) for other in others)


def _steadier(seen: Seen, method: str, other: str) -> Finding:
    mine, theirs = _early(seen, method), _early(seen, other)
    with np.errstate(invalid="ignore"):
        difference = np.where(mine == theirs, 0.0, theirs - mine)
    below, above = tails(difference)
    evidence = (
        f"first fifth {_spread(theirs)} of the log decrease for {other}, {_spread(mine)} for {method}, p = {below:.2g}"
    )
    return tested(below, above, _middle(difference), evidence)


def selects(seen: Seen, method: str, *, batch_size: int) -> Finding:
    """Tuning selects this batch size, in all but `LEVEL` of the resamples of the seeds."""
    chosen = seen.chosen(method, "batch_size")
    share = float(np.mean(chosen[1:] == batch_size))
    evidence = f"{method} selects B = {chosen[0]}; B = {batch_size} in {share:.1%} of resamples of the seeds"
    return tested(1 - share, share, share, evidence)


def same_batch(seen: Seen, method: str, other: str, *, same: bool = True) -> Finding:
    """Tuning selects one batch size for both methods (or not), in all but `LEVEL` of the resamples of the seeds."""
    mine, theirs = (seen.chosen(name, "batch_size") for name in (method, other))
    share = float(np.mean((mine == theirs)[1:] == same))
    evidence = (
        f"{method} selects B = {mine[0]}, {other} B = {theirs[0]}; "
        f"{'the same' if same else 'different ones'} in {share:.1%} of resamples of the seeds"
    )
    return tested(1 - share, share, share, evidence)


def _finite_or_inf(values: Any) -> Array:
    numbers = np.asarray(values, dtype=float)
    return np.where(np.isnan(numbers), np.inf, numbers)


def _middle(values: Array) -> float:
    """The middle of the values in order, the upper one of two; infinite values are values."""
    return float(np.sort(values)[values.size // 2])


def _mean_ratio(logs: Array) -> float:
    """The geometric mean of ratios, or their middle one if some are infinite."""
    return float(np.exp(logs.mean() if np.isfinite(logs).all() else _middle(logs)))


def _growth(seen: Seen, method: str) -> Array:
    """The last tenth as a multiple of the lowest level on the way, start included."""
    tenths = seen.tenths(method)
    return np.exp(log_ratio(tenths[:, -1], np.minimum(tenths.min(axis=1), seen.start(method))))


def _left(seen: Seen, method: str) -> Array:
    """The last tenth as a part of the start."""
    return np.exp(log_ratio(seen.tenths(method)[:, -1], seen.start(method)))


def _early(seen: Seen, method: str) -> Array:
    """The share of the logarithmic decrease that the second tenth has reached; infinite if there is no decrease."""
    tenths, start = seen.tenths(method), seen.start(method)
    reached, total = log_ratio(start, tenths[:, 1]), log_ratio(start, tenths[:, -1])
    return np.divide(reached, total, out=np.full(start.shape, np.inf), where=total > 0)


def _rank_correlation(rows: Array) -> Array:
    """Spearman's correlation of each row with its index."""
    n = rows.shape[1]
    ranks = rows.argsort(axis=1, kind="stable").argsort(axis=1)
    return 1 - 6 * ((ranks - np.arange(n)) ** 2).sum(axis=1) / (n * (n**2 - 1))


def _spread(values: Array) -> str:
    """The middle one and the range over seeds."""
    return f"{_middle(values):.3g} ({values.min():.3g} to {values.max():.3g})"


def _interval(logs: Array) -> str:
    """The interval that belongs to two one-sided tests."""
    if logs.size < 2 or not np.isfinite(logs).all():
        return ""
    reach = stdtrit(logs.size - 1, 1 - LEVEL) * logs.std(ddof=1) / np.sqrt(logs.size)
    low, high = np.exp(logs.mean() - reach), np.exp(logs.mean() + reach)
    return f" ({1 - 2 * LEVEL:.0%} interval {low:.3g} to {high:.3g})"


def _progress(method: str, logs: Array, p: float) -> str:
    low, high = np.exp(logs.min()), np.exp(logs.max())
    return f"{method} ends at {_mean_ratio(logs):.3g} of the start ({low:.3g} to {high:.3g}, p = {p:.2g})"
