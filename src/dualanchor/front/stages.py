"""Accuracy by certificates: stages of growing length, each judged on fresh samples, until one certifies eps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dualanchor.advise.certify import MIN_SAMPLES, certificate_from_session, group_sizes
from dualanchor.advise.planned import Plan
from dualanchor.core import arrays
from dualanchor.core.certificate import NUMBERS, Certificate
from dualanchor.core.finding import Finding
from dualanchor.core.method import Method, State
from dualanchor.core.result import Result, Status
from dualanchor.core.session import Session
from dualanchor.core.staged import END, Stage, Staged
from dualanchor.core.streams import per_row
from dualanchor.core.types import Array, IntArray, Rows
from dualanchor.theory.confidence import enough_for_rare

FIRST_STAGE = 256  # samples of the first stage
SHORTEST_STAGE = 32  # samples; a row that cannot pay for this many ends
_START_CERTIFICATE = 32  # samples of the certificate at x0
_MIN_CERTIFICATE = 64  # samples of a certificate after a stage, at least
_STAGE_PER_CERTIFICATE = 4  # samples of a stage for one sample of the certificate after it
_GROUP_MARGIN = 1.1  # extra samples, because counts are rounded down to equal groups
STALLED = 0.8  # while samples grow fourfold, a healthy residual halves; one above this part of it has stalled
_MAX_SUGGESTED_FACTOR = 1e6  # more samples than this factor would give are not suggested
_PLAN_STAGE = 1 << 41  # number of the stage that follows the plan: larger than any length in samples


@dataclass(frozen=True)
class UntilCertified(Staged):
    """Stages of growing length, each from the best point so far, until an upper bound is at most eps.

    The number of a stage is its length in samples. Stage 0 has no steps: x0 is certified as it is. A later stage starts
    where the previous one ended, or from the point with the smallest bound if that is the better one. Every stage and
    every certificate has fresh samples, and what a row does depends on that row alone.

    The failure probability is split over the certificates of a row: the i-th gets 1/(i(i+1)) of it, so all of them hold
    together with the overall confidence. For a finite sum, the residual is exact once a pass over its components takes
    no more evaluations than the stage.

    The memory of a row holds its point `x`, the numbers of its best certificate (`NUMBERS`) with their point `best`,
    and those of its latest certificate (`latest_...`).
    """

    method: Callable[[int], Method]  # makes the method for a stage of a number of samples
    eps: float
    confidence: float  # of all certificates of a row together
    max_samples: int  # of a row, in all
    start: Callable[[int], Array]  # the point that stage 0 certifies, for a number of rows: x0, or what stands for it
    sigma: float | None = None  # as given by the user
    plan: Plan | None = None  # followed from x0 if nothing is certified within max_samples
    step_size: Any = 1.0

    @cached_property
    def min_samples(self) -> int:
        """Samples that a bound must rest on where there may be noise: fewer could miss rare large samples."""
        return enough_for_rare(1 - self.confidence)

    def describe(self) -> dict[str, Any]:
        return self.method(FIRST_STAGE).describe() | {"anytime": self.anytime, "parameters": self.parameters()}

    @property
    def needs(self) -> frozenset[str]:
        return self.method(FIRST_STAGE).needs

    def parameters(self) -> dict[str, Any]:
        return {"eps": self.eps, "confidence": self.confidence, "max_samples": self.max_samples}

    def begin(self, x0: Array) -> State:
        unknown = (*NUMBERS, "latest_residual", "latest_margin", "latest_noise")
        counts = ("certificates", "half_doublings", "best_samples", "certificate_samples")
        flags = ("best_is_exact", "followed_plan")
        return State(
            **{name: arrays.copy(x0) for name in ("x", "best", "x0")},
            **{name: np.full(len(x0), np.inf) for name in unknown},
            **{name: np.zeros(len(x0), np.int64) for name in (*counts, *flags)},
            largest_sample=np.zeros(len(x0)),
        )

    def stage(self, number: int, memory: State) -> Stage:
        if self.plan is not None and number == _PLAN_STAGE:
            method = self.plan.method()
            return Stage(method, _start_of(method, memory.x0), self.plan.stop or None)
        length = max(number, SHORTEST_STAGE)
        method = self.method(length)
        start = _start_of(method, memory.x)
        if number == 0:
            return Stage(method, start, 0)
        if isinstance(method, Staged):
            return Stage(method, start, method.steps_within(length) if method.horizon is None else None)
        max_steps = length if method.horizon is None else method.horizon - 1
        evals = method.cost(np.arange(max_steps), None, np.ones(max_steps, bool)).evals
        total = np.cumsum(np.broadcast_to(evals, (max_steps,)))
        return Stage(method, start, int(np.searchsorted(total, length, side="right")))

    def choose(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        if number == _PLAN_STAGE:
            memory.followed_plan[:] = 1
            return np.full(len(s.x), END)
        numbers = self._after_stage(number, memory, s, F)
        if self.plan is None:
            self._certify_with_rest(np.flatnonzero((numbers == END) & (memory.upper > self.eps)), memory, F)
            return numbers
        return np.where((numbers == END) & (memory.upper > self.eps), _PLAN_STAGE, numbers)

    def _after_stage(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        """Certify the point of each row; the number of its next stage, END if it is certified or out of samples."""
        memory.x = s.x if number else self.start(len(s.x))
        samples = int(self._certificate_size(number)) if number else _START_CERTIFICATE
        if (n := F.oracle.components) is not None and n <= max(number, FIRST_STAGE):
            samples = max(samples, n)
        self._certify(np.arange(len(s.x)), samples, memory, F)
        self._certify_again(np.flatnonzero(memory.upper > self.eps), samples, memory, F)
        if number == 0:
            memory.x = s.x
        else:
            memory.half_doublings += self._growth(memory)
            worse = np.flatnonzero(memory.latest_residual > memory.upper)
            memory.x = arrays.put(memory.x, worse, memory.best[worse]) if worse.size else memory.x
        return self._next_lengths(memory, F)

    def _next_lengths(self, memory: State, F: Session) -> IntArray:
        """The length of each row's next stage; END if it is certified or cannot pay for a quarter of what it wants."""
        wanted = self._wanted_lengths(memory)
        remaining = self.max_samples - F.evals
        lengths = wanted
        while (costly := (lengths >= SHORTEST_STAGE) & (lengths + self._certificate_size(lengths) > remaining)).any():
            lengths = np.where(costly, lengths // 2, lengths)
        payable = (lengths >= SHORTEST_STAGE) & (4 * lengths >= wanted)
        return np.where((memory.upper > self.eps) & payable, lengths, END)

    def point(self, number: int, memory: State, s: State) -> Array:
        if number == _PLAN_STAGE:
            return s.x
        diverged = np.flatnonzero(~np.isfinite(arrays.to_host(arrays.row_squares(s.x))))
        certified = np.flatnonzero(np.isfinite(memory.upper))
        x = arrays.copy(s.x)
        x = arrays.put(x, diverged, memory.x[diverged]) if diverged.size else x
        return arrays.put(x, certified, memory.best[certified]) if certified.size else x

    def observed(self, memory: State) -> Array:
        return memory.latest_residual

    def outcome(self, memory: State) -> list[Status]:
        otherwise = [Status.HORIZON if followed else Status.BUDGET for followed in memory.followed_plan]
        certified = memory.upper <= self.eps
        return [Status.TARGET if reached else status for reached, status in zip(certified, otherwise, strict=True)]

    def _certify_with_rest(self, rows: Rows, memory: State, F: Session) -> None:
        """Certify the points of rows that end without eps again, if more samples are left than their best bound had."""
        rest = self.max_samples - per_row(F.evals, len(memory.upper))[rows]
        worth = rest > np.maximum(_MIN_CERTIFICATE, memory.best_samples[rows])
        for some, count in grouped(rows[worth], rest[worth]):
            self._certify(some, count, memory, F)

    def _growth(self, memory: State) -> IntArray:
        """By how many half doublings the next stage of each row is to be longer."""
        with np.errstate(divide="ignore"):  # errors fall at best like one over the root of the samples
            growth = np.ceil(4 * np.log2(memory.latest_residual / (0.6 * self.eps)))
        return np.clip(np.nan_to_num(growth, posinf=2.0), 2, 4).astype(int)

    def _certificate_size(self, length: Any) -> Any:
        """Samples of the first certificate after a stage of this length."""
        return np.maximum(_MIN_CERTIFICATE, length // _STAGE_PER_CERTIFICATE)

    def _next_confidence(self, certificates: int) -> float:
        """The confidence of the next certificate of a row that has had this many."""
        return 1 - (1 - self.confidence) / ((certificates + 1) * (certificates + 2))

    def _wanted_lengths(self, memory: State) -> IntArray:
        return np.rint(FIRST_STAGE * 2 ** (memory.half_doublings / 2)).astype(np.int64)

    def _certify_again(self, rows: Rows, samples: int, memory: State, F: Session) -> None:
        """Certify those rows again that a larger certificate may bring below eps at a small price."""
        gap = self.eps - memory.latest_residual[rows]
        margin = memory.latest_margin[rows]
        deltas = [1 - self._next_confidence(count) for count in memory.certificates[rows].tolist()]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # Margins fall like one over the root of the samples. Where all samples agree, they fall faster: there must
            # be enough of them to have shown one as large as the largest seen elsewhere.
            noisy = 1.3 * samples * (margin / np.where(gap > 0.2 * self.eps, gap, np.nan)) ** 2
            agreeing = _GROUP_MARGIN * np.log([1 / delta for delta in deltas]) * memory.largest_sample[rows] / gap
        agree = np.isinf(margin) | (memory.latest_noise[rows] == 0)
        needed = np.where(agree & (gap > 0), agreeing, noisy)
        cheap = needed <= 6 * samples * _STAGE_PER_CERTIFICATE
        rows = rows[cheap]
        counts = rounded_up(np.maximum(needed[cheap], max(samples, self.min_samples)))
        payable = per_row(F.evals, len(memory.upper))[rows] + counts <= self.max_samples
        for some, count in grouped(rows[payable], counts[payable]):
            self._certify(some, count, memory, F)

    def _certify(self, rows: Rows, samples: int, memory: State, F: Session) -> None:
        """Certify the points of some rows and remember those with smaller bounds than before."""
        for some, certificates in grouped(rows, memory.certificates[rows]):
            made = certificate_from_session(
                F.at(mask_of(some, len(memory.upper))),
                arrays.take(memory.x, some),
                samples,
                confidence=self._next_confidence(certificates),
                sigma=self.sigma,
                scale=memory.largest_sample[some],
                least=self.min_samples,
            )
            unclear = np.isinf(made.upper) & np.isfinite(made.residual) & (made.residual > self.eps)
            made = replace(made, upper=np.where(unclear, made.residual, made.upper))  # to compare points by
            largest = np.nan_to_num(made.scale, posinf=0.0)
            memory.largest_sample[some] = np.maximum(memory.largest_sample[some], largest)
            memory.certificates[some] += 1
            memory.certificate_samples[some] += made.fresh_samples
            memory.latest_residual[some] = made.residual
            with np.errstate(invalid="ignore"):  # both may be infinite
                memory.latest_margin[some] = made.upper - made.residual
            memory.latest_noise[some] = made.sigma
            if made.samples < self.min_samples:
                unsafe = (made.sigma > 0) & (made.upper <= self.eps)
                made = replace(made, upper=np.where(unsafe, np.inf, made.upper))
            is_best = made.upper < memory.upper[some]
            best = some[is_best]
            memory.best = arrays.put(memory.best, best, memory.x[best])
            memory.best_samples[best] = made.samples
            memory.best_is_exact[best] = made.is_exact
            for name in NUMBERS:
                getattr(memory, name)[best] = getattr(made, name)[is_best]


def _start_of(method: Method, x: Array) -> State:
    return method.begin(x) if isinstance(method, Staged) else method.init(x)


def rounded_up(counts: Array) -> IntArray:
    """Counts rounded up to powers of 1.05, so that many rows have the same."""
    return np.ceil(1.05 ** np.ceil(np.log(counts) / np.log(1.05))).astype(np.int64)


def grouped(rows: Rows, keys: IntArray) -> Iterator[tuple[Rows, int]]:
    """The rows with equal keys together, and the key."""
    for key in np.unique(keys).tolist():
        yield rows[keys == key], key


def mask_of(rows: Rows, total: int) -> Array:
    """A mask of length `total` that is True for some rows."""
    mask = np.zeros(total, bool)
    mask[rows] = True
    return mask


def certificate_of(result: Result, confidence: float) -> Certificate | None:
    """The best certificate of each row of an `UntilCertified` run; all certificates together hold with `confidence`."""
    memory = result.state
    if not memory["certificates"].any():
        return None
    samples = memory["best_samples"]
    if memory["best_is_exact"].all():
        return Certificate.exact(memory["residual"], int(samples.max()), not result.shape)
    numbers: dict[str, Any] = {name: memory[name] for name in NUMBERS} | {"samples": samples}
    if not result.shape:
        numbers = {name: values[0].item() for name, values in numbers.items()}
    groups = group_sizes(max(MIN_SAMPLES, int(samples.min())), memory["best"].shape[1])[0]
    findings = (Finding.of("joint-confidence", count=memory["certificates"].max()), Finding.of("asymptotic"))
    corrected = "best_is_corrected" in memory and memory["best_is_corrected"].all()
    rule = "paired" if corrected else "min"
    return Certificate(**numbers, confidence=confidence, groups=groups, rule=rule, findings=findings)


def findings_of(result: Result, eps: float) -> Iterator[Finding]:
    """Where the samples of an `UntilCertified` run went and, if eps was not reached, what it would take."""
    memory = result.state
    samples = memory["certificate_samples"]
    if samples.any():
        yield Finding.of("certificate-samples", samples=samples if result.shape else samples[0])
    if (np.isinf(memory["latest_margin"]) & np.isfinite(memory["latest_residual"])).any():
        yield Finding.of("noise-not-seen", sigma=None, scale=0.0)
    if Status.BUDGET not in np.atleast_1d(result.status):  # reached, or stopped from outside
        return
    row = int(memory["upper"].argmax())
    worst = float(memory["upper"][row])
    factor = max(2.0, (worst / eps) ** 2)  # bounds fall at best like one over the root of the samples
    if worst <= eps or factor > _MAX_SUGGESTED_FACTOR:
        return
    history = result.history.of(row)
    early = history.residual[history.evals <= np.max(history.evals, initial=0) / 4]
    residual, margin = memory["latest_residual"][row], memory["latest_margin"][row]
    if early.size and residual > max(eps, 2 * margin) and residual > STALLED * early[-1]:
        yield Finding.of("stalled", residual=float(residual))
    else:
        yield Finding.of("more-samples", factor=factor)
