"""An accuracy without constants: stages of a method, each judged on fresh samples."""

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

FIRST_STAGE = 256  # samples
SHORTEST_STAGE = 32
_SHORTEST_CERTIFICATE, _FIRST_CERTIFICATE = 64, 32  # after a stage; at x0
_SHARE = 4  # samples of a stage for one of its first certificate
_MARGIN = 1.1  # for counts that are rounded down to groups
_FAR = 1e6  # times the samples: further than anybody would go
_PLAN = 1 << 41  # the stage that follows a plan
_STALLED = 0.8  # of the residual at a quarter of the samples; one that falls with their root is at half of it


@dataclass(frozen=True)
class UntilCertified(Staged):
    """Stages of growing length, each from the best point so far, until an upper bound is at most eps.

    The first stage has no steps: x0 is certified as it is. Each later one starts from where the one before ended, or
    from the point with the smallest bound where that has turned out to be better.
    Of a finite sum the residual is exact where a pass takes no more evaluations than the stage. The failure probability
    of other certificates is split over those of a row, the i-th gets 1/(i(i+1)) of it, so that none of
    them is wrong with the overall confidence. Every stage and every certificate has fresh samples, and what a row does
    depends on that row alone. The number of a stage is its length in samples.
    """

    method: Callable[[int], Method]  # makes the method for a stage of a number of samples
    eps: float
    level: float  # the confidence of all certificates of a row together
    limit: int  # samples that a row may spend in all
    start: Callable[[int], Array]  # what is certified first, for a number of rows: x0, or what stands for it
    sigma: float | None = None  # as given, for samples that all agree
    plan: Plan | None = None  # what is done from x0 where nothing is certified within the limit
    step_size: Any = 1.0

    @cached_property
    def least(self) -> int:
        """Samples that a bound must rest on where there may be noise: fewer might show nothing of rare ones."""
        return enough_for_rare(1 - self.level)

    def describe(self) -> dict[str, Any]:
        return self.method(FIRST_STAGE).describe() | {"anytime": self.anytime, "parameters": self.parameters()}

    @property
    def needs(self) -> frozenset[str]:
        return self.method(FIRST_STAGE).needs

    def parameters(self) -> dict[str, Any]:
        return {"eps": self.eps, "confidence": self.level, "max_samples": self.limit}

    def begin(self, x0: Array) -> State:
        numbers = {
            name: np.full(len(x0), np.inf) for name in (*NUMBERS, "last", "width", "noise")
        }  # of the best; the latest
        numbers["scale"] = np.zeros(len(x0))  # of samples
        counts = {
            name: np.zeros(len(x0), np.int64)
            for name in ("tests", "half_doublings", "used", "certified", "exact", "planned")
        }
        vectors = {name: arrays.copy(x0) for name in ("x", "best", "first")}
        return State(**vectors, **numbers, **counts)

    def stage(self, number: int, memory: State) -> Stage:
        if self.plan is not None and number == _PLAN:
            method = self.plan.method()
            return Stage(method, _start_of(method, memory.first), self.plan.stop or None)
        length = max(number, SHORTEST_STAGE)
        method = self.method(length)
        if number == 0:
            return Stage(method, _start_of(method, memory.x), 0)
        if isinstance(method, Staged):
            steps = method.steps_within(length) if method.horizon is None else None
            return Stage(method, method.begin(memory.x), steps)
        end = length if method.horizon is None else method.horizon - 1  # the length in samples ends it, at the latest
        evals = method.cost(np.arange(end), None, np.ones(end, bool)).evals
        total = np.cumsum(np.broadcast_to(evals, (end,)))
        return Stage(method, method.init(memory.x), int(np.searchsorted(total, length, side="right")))

    def choose(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        if number == _PLAN:
            memory.planned[:] = 1
            return np.full(len(s.x), END)
        numbers = self._next(number, memory, s, F)
        return np.where((numbers == END) & (memory.upper > self.eps), END if self.plan is None else _PLAN, numbers)

    def _next(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        """The numbers of the next stages, END where a row is certified or has spent what it may."""
        memory.x = s.x if number else self.start(len(s.x))
        rows, samples = np.arange(len(s.x)), int(self._judging(number)) if number else _FIRST_CERTIFICATE
        if (n := F.oracle.components) is not None and n <= max(number, FIRST_STAGE):
            samples = max(samples, n)
        self._certify(rows, samples, memory, F)
        again, counts = self._worth_another(np.flatnonzero(memory.upper > self.eps), samples, memory, F)
        for some, count in alike(again, counts):
            self._certify(some, count, memory, F)
        memory.half_doublings += self._growth(memory) if number else 0
        worse = np.flatnonzero(memory.last > memory.upper)
        memory.x = arrays.put(memory.x, worse, memory.best[worse]) if worse.size else memory.x
        memory.x = memory.x if number else s.x
        return self._following(memory, F)

    def _following(self, memory: State, F: Session) -> IntArray:
        """The length of each row's next stage, END where it is certified or cannot pay for one."""
        lengths = self._lengths(memory, F.evals)
        payable = (lengths >= SHORTEST_STAGE) & (4 * lengths >= self._wanted(memory))
        return np.where((memory.upper > self.eps) & payable, lengths, END)

    def point(self, number: int, memory: State, s: State) -> Array:
        if number == _PLAN:
            return s.x
        x, certified = s.x, np.isfinite(memory.upper)
        bad = ~np.isfinite(arrays.to_host(arrays.row_squares(x)))
        for rows, points in ((np.flatnonzero(bad), memory.x), (np.flatnonzero(certified), memory.best)):
            x = arrays.put(arrays.copy(x), rows, points[rows]) if rows.size else x
        return x

    def observed(self, memory: State) -> Array:
        return memory.last

    def outcome(self, memory: State) -> list[Status]:
        ended = {(False, 0): Status.BUDGET, (False, 1): Status.HORIZON}
        rows = zip((memory.upper <= self.eps).tolist(), memory.planned.tolist(), strict=True)
        return [ended.get(row, Status.TARGET) for row in rows]

    def _growth(self, memory: State) -> IntArray:
        """How much longer the next stage of each row is to be, in half doublings."""
        with np.errstate(divide="ignore"):  # errors fall at best like one over the root of the samples
            growth = np.nan_to_num(np.ceil(4 * np.log2(memory.last / (0.6 * self.eps))), posinf=2.0)
        return np.clip(growth, 2, 4).astype(int)

    def _judging(self, length: Any) -> Any:
        """Samples of the first certificate after a stage of this length."""
        return np.maximum(_SHORTEST_CERTIFICATE, length // _SHARE)

    def _level(self, tests: int) -> float:
        """The confidence of a certificate of a row that has had so many."""
        return 1 - (1 - self.level) / ((tests + 1) * (tests + 2))

    def _wanted(self, memory: State) -> IntArray:
        return np.rint(FIRST_STAGE * 2 ** (memory.half_doublings / 2)).astype(np.int64)

    def _lengths(self, memory: State, spent: Any) -> IntArray:
        """What each row would spend on its next stage: what is wanted, halved as often as it takes to pay for it."""
        remaining, lengths = self.limit - spent, self._wanted(memory)
        while (costly := (lengths >= SHORTEST_STAGE) & (lengths + self._judging(lengths) > remaining)).any():
            lengths = np.where(costly, lengths // 2, lengths)
        return lengths

    def _worth_another(self, rows: Rows, samples: int, memory: State, F: Session) -> tuple[Rows, IntArray]:
        """Rows that a larger certificate may settle at a small price, and its size for each."""
        gap, width = self.eps - memory.last[rows], memory.width[rows]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # widths fall like one over the root
            needed = 1.3 * samples * (width / np.where(gap > 0.2 * self.eps, gap, np.nan)) ** 2
            odds = np.log([1 / (1 - self._level(tests)) for tests in memory.tests[rows].tolist()])
            agreeing = _MARGIN * odds * memory.scale[rows] / gap  # samples that must not show one as large as others
        needed = np.where(np.isinf(width) & (gap > 0), agreeing, needed)
        worth = needed <= 6 * samples * _SHARE
        rows, counts = rows[worth], rounded_up(np.maximum(needed[worth], max(samples, self.least)))
        payable = per_row(F.evals, len(memory.upper))[rows] + counts <= self.limit
        return rows[payable], counts[payable]

    def _certify(self, rows: Rows, samples: int, memory: State, F: Session) -> None:
        """Certify some rows, those with as many certificates so far together."""
        for tests in np.unique(memory.tests[rows]).tolist():
            some = rows[memory.tests[rows] == tests]
            part, points = F.at(mask_of(some, len(memory.tests))), arrays.take(memory.x, some)
            known = {"sigma": self.sigma, "scale": memory.scale[some], "least": self.least}
            made = certificate_from_session(part, points, samples, confidence=self._level(tests), **known)
            unclear = np.isinf(made.upper) & np.isfinite(made.residual) & (made.residual > self.eps)
            made = replace(made, upper=np.where(unclear, made.residual, made.upper))  # seen: it decides which is best
            memory.scale[some] = np.maximum(memory.scale[some], np.nan_to_num(made.scale, posinf=0.0))
            memory.tests[some] += 1
            memory.certified[some] += made.fresh_samples
            with np.errstate(invalid="ignore"):  # both may be infinite
                memory.last[some], memory.width[some] = made.residual, made.upper - made.residual
            memory.noise[some] = made.sigma
            if made.samples < self.least:  # rare samples may be missing
                made = replace(made, upper=np.where((made.sigma > 0) & (made.upper <= self.eps), np.inf, made.upper))
            picked = made.upper < memory.upper[some]
            better = some[picked]
            memory.best, memory.used[better] = arrays.put(memory.best, better, memory.x[better]), made.samples
            memory.exact[better] = made.is_exact
            for name in NUMBERS:
                getattr(memory, name)[better] = getattr(made, name)[picked]


def _start_of(method: Method, x: Array) -> State:
    return method.begin(x) if isinstance(method, Staged) else method.init(x)


def rounded_up(counts: Array) -> IntArray:
    """Counts, rounded up to powers of 1.25, so that many rows have the same."""
    return np.ceil(1.25 ** np.ceil(np.log(counts) / np.log(1.25))).astype(np.int64)


def alike(rows: Rows, counts: IntArray) -> Iterator[tuple[Rows, int]]:
    """The rows with the same count together, and the count."""
    for count in np.unique(counts).tolist():
        yield rows[counts == count], count


def mask_of(rows: Rows, total: int) -> Array:
    """A mask of some rows."""
    mask = np.zeros(total, bool)
    mask[rows] = True
    return mask


def certificate_of(result: Result, level: float) -> Certificate | None:
    """The smallest bound of each row of an `UntilCertified` run; all its bounds hold together with this confidence."""
    memory = result.state
    if not memory["tests"].any():
        return None
    if memory["exact"].all():
        return Certificate.exact(memory["residual"], int(memory["used"].max()), not result.shape)
    numbers: dict[str, Any] = {name: memory[name] for name in NUMBERS} | {"samples": memory["used"]}
    if not result.shape:
        numbers = {name: values[0].item() for name, values in numbers.items()}
    groups = group_sizes(max(MIN_SAMPLES, int(memory["used"].min())), memory["best"].shape[1])[0]
    findings = (Finding.of("joint-confidence", count=memory["tests"].max()), Finding.of("asymptotic"))
    rule = "paired" if "corrected" in memory and memory["corrected"].all() else "min"
    return Certificate(**numbers, confidence=level, groups=groups, rule=rule, findings=findings)


def findings_of(result: Result, eps: float) -> Iterator[Finding]:
    """Where the samples of an `UntilCertified` run went and, if eps was not reached, what it would take."""
    memory = result.state
    if memory["certified"].any():
        yield Finding.of("certificate-samples", samples=memory["certified"] if result.shape else memory["certified"][0])
    if (np.isinf(memory["width"]) & np.isfinite(memory["last"])).any():
        yield Finding.of("noise-not-seen", sigma=None, scale=0.0)
    row = int(memory["upper"].argmax())
    worst = float(memory["upper"][row])
    factor = max(2.0, (worst / eps) ** 2)  # bounds fall at best like one over the root of the samples
    if worst <= eps or factor > _FAR:
        return
    history, last, width = result.history.of(row), memory["last"][row], memory["width"][row]
    early = history.residual[history.evals <= np.max(history.evals, initial=0) / 4]
    if early.size and last > max(eps, 2 * width) and last > _STALLED * early[-1]:
        yield Finding.of("stalled", residual=float(last))
    else:
        yield Finding.of("more-samples", factor=factor)
